/* SPDX-License-Identifier: MIT */
/* outputs.c - rows in the order of files: safetensors with ids and class names beside them, or
 * CSV. */
#include "train/outputs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "tensor/safetensors.h"

enum { NOTES_MOST = 48 << 20, LINE_MOST = 1 << 20, NAME_ROOM = 24 };

struct row {
    int64_t place, index;
};

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;

    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* The source's numbers of samples in the order of its files. Caller frees *out. */
static enum status order_rows(const struct source *source, struct row **out)
{
    const int64_t count = source_count(source);

    TRY(mem_alloc((size_t)count, sizeof **out, out));
    for (int64_t i = 0; i < count; i++)
        (*out)[i] = (struct row){ source_place(source, i), i };
    if (count > 0)
        qsort(*out, (size_t)count, sizeof **out, compare_rows);
    return STATUS_OK;
}

static const char *class_name(const struct source *source, int class, char room[NAME_ROOM])
{
    const struct dataset_info *info = source->info;

    if (info && info->class_names && class >= 0 && class < info->classes)
        return info->class_names[class];
    snprintf(room, NAME_ROOM, "%d", class);
    return room;
}

/* safetensors ---------------------------------------------------------------------------- */

static enum status print_ids(const struct source *source, const struct row *rows,
                             struct strbuf *out)
{
    struct strbuf id;

    strbuf_init(&id, LINE_MOST);
    strbuf_add(out, "[");
    for (int64_t i = 0; i < source_count(source); i++) {
        strbuf_clear(&id);
        source_name(source, rows[i].index, &id);
        strbuf_add(out, i ? "," : "");
        strbuf_add_json(out, id.text);
    }
    strbuf_add(out, "]");
    const enum status status = strbuf_status(&id);
    strbuf_release(&id);
    TRY(status);
    return strbuf_status(out);
}

static enum status print_classes(const struct source *source, int classes, struct strbuf *out)
{
    char room[NAME_ROOM];

    strbuf_add(out, "[");
    for (int c = 0; c < classes; c++) {
        strbuf_add(out, c ? "," : "");
        strbuf_add_json(out, class_name(source, c, room));
    }
    strbuf_add(out, "]");
    return strbuf_status(out);
}

static enum status write_tensors(const char *path, const struct source *source,
                                 const struct shape *shape, const float *outputs,
                                 const int32_t *labels, const struct row *rows, int classes)
{
    const int64_t count = source_count(source);
    struct strbuf ids, names;

    strbuf_init(&ids, NOTES_MOST);
    strbuf_init(&names, NOTES_MOST);
    enum status status = print_ids(source, rows, &ids);
    if (status == STATUS_OK)
        status = print_classes(source, classes, &names);
    if (status == STATUS_OK) {
        const struct safetensors_entry entries[] = {
            { "outputs", DTYPE_F32, *shape, outputs },
            { "labels", DTYPE_I32, shape_of(1, &count), labels },
        };
        const struct safetensors_pair notes[] = { { "ids", ids.text },
                                                  { "classes", names.text } };
        status = safetensors_write(path, entries, sizeof entries / sizeof *entries, notes,
                                   classes ? 2 : 1, NULL);
    }
    strbuf_release(&ids);
    strbuf_release(&names);
    return status;
}

/* CSV ------------------------------------------------------------------------------------ */

bool outputs_are_csv(const char *path)
{
    const size_t length = strlen(path);

    return length > 4 && strcmp(path + length - 4, ".csv") == 0;
}

/* In quotes where a reader would take it for something else; quotes are doubled. */
static void add_cell(struct strbuf *line, const char *text)
{
    if (!strpbrk(text, ",\"\r\n") && *text && *text != ' ') {
        strbuf_add(line, text);
        return;
    }
    strbuf_add(line, "\"");
    for (; *text; text++)
        strbuf_printf(line, *text == '"' ? "\"\"" : "%c", *text);
    strbuf_add(line, "\"");
}

static int answer_of(const float *output, int classes)
{
    int answer = 0;

    for (int c = 1; c < classes; c++)
        if (output[c] > output[answer])
            answer = c;
    return answer;
}

static void print_line(const struct source *source, const struct row *row, const float *output,
                       int32_t label, int classes, struct strbuf *line)
{
    char room[NAME_ROOM];
    struct strbuf id;

    strbuf_init(&id, LINE_MOST);
    source_name(source, row->index, &id);
    add_cell(line, id.text);
    strbuf_release(&id);
    strbuf_add(line, ",");
    add_cell(line, class_name(source, label, room));
    strbuf_add(line, ",");
    add_cell(line, class_name(source, answer_of(output, classes), room));
    for (int c = 0; c < classes; c++)
        strbuf_printf(line, ",%.9g", (double)output[c]);
    strbuf_add(line, "\n");
}

static enum status write_lines(struct file_writer *writer, const struct source *source,
                               const struct row *rows, const float *outputs,
                               const int32_t *labels, int classes)
{
    struct strbuf line;
    char room[NAME_ROOM];

    strbuf_init(&line, (size_t)LINE_MOST * 16);
    strbuf_add(&line, "id,label,answer");
    for (int c = 0; c < classes; c++) {
        strbuf_add(&line, ",");
        add_cell(&line, class_name(source, c, room));
    }
    strbuf_add(&line, "\n");
    enum status status = strbuf_status(&line);
    for (int64_t i = 0; status == STATUS_OK; i++) {
        status = file_writer_add(writer, line.text, line.length);
        if (i == source_count(source))
            break;
        strbuf_clear(&line);
        print_line(source, &rows[i], outputs + i * classes, labels[i], classes, &line);
        if (status == STATUS_OK)
            status = strbuf_status(&line);
    }
    strbuf_release(&line);
    return status;
}

static enum status write_csv(const char *path, const struct source *source,
                             const struct row *rows, const float *outputs,
                             const int32_t *labels, int classes)
{
    struct file_writer writer;

    TRY(file_writer_begin(&writer, path));
    const enum status status = write_lines(&writer, source, rows, outputs, labels, classes);
    if (status == STATUS_OK)
        return file_writer_commit(&writer);
    file_writer_cancel(&writer);
    return status;
}

enum status outputs_write(const char *path, const struct source *source,
                          const struct shape *shape, const float *outputs, int classes)
{
    const int64_t count = source_count(source), floats = shape_count(shape) / count;
    struct row *rows;
    float *ordered = NULL;
    int32_t *labels = NULL;

    TRY(order_rows(source, &rows));
    enum status status = mem_alloc((size_t)shape_count(shape), sizeof *ordered, &ordered);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)count, sizeof *labels, &labels);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
        memcpy(ordered + i * floats, outputs + rows[i].index * floats,
               (size_t)floats * sizeof *ordered);
        labels[i] = source_label(source, rows[i].index);
    }
    if (status == STATUS_OK && outputs_are_csv(path))
        status = write_csv(path, source, rows, ordered, labels, classes);
    else if (status == STATUS_OK)
        status = write_tensors(path, source, shape, ordered, labels, rows, classes);
    mem_free(labels);
    mem_free(ordered);
    mem_free(rows);
    return status;
}
