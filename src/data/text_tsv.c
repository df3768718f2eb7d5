/* SPDX-License-Identifier: MIT */
/* text_tsv.c - labelled text: a document a line, its class first.
 *
 *      LABEL <tab> TEXT                              or, as IMDB's reviews,
 *      LABEL <tab> RATING <tab> NUMBER <tab> TEXT    where the first line has two numbers in the middle
 *
 * The text is all the rest of the line, tabs included. Labels are numbers from 0, or words: then the classes
 * are the words of the training file in the order of their bytes. Documents are handed over one of each class
 * in turn, so that the first N hold all classes; files are often sorted by class. Of one file alone
 * every tenth line is for testing.
 */
#include "base/mem.h"
#include "data/format.h"
#include "data/text_format.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char SUFFIX[] = ".tsv";
enum { LABEL_MOST = 64, NUMBER_DIGITS = 9, TENTH = 10 };

/* A line's parts. */
struct labelled {
    struct text_span label, text;
};

/* Reads a column; *at moves behind its tab. False: there is no tab any more. */
static bool take_column(const char **at, const char *end, struct text_span *out)
{
    const char *tab = memchr(*at, '\t', (size_t)(end - *at));

    if (!tab)
        return false;
    *out = (struct text_span){ *at, (size_t)(tab - *at) };
    *at = tab + 1;
    return true;
}

/* A whole number of a few digits. */
static bool is_number(struct text_span span, int32_t *out)
{
    int32_t number = 0;

    if (span.length == 0 || span.length > NUMBER_DIGITS)
        return false;
    for (size_t i = 0; i < span.length; i++) {
        if (span.bytes[i] < '0' || span.bytes[i] > '9')
            return false;
        number = 10 * number + (span.bytes[i] - '0');
    }
    *out = number;
    return true;
}

/* Columns between label and text, by the first line: 0, or 2. */
static int columns_between(struct text_span line)
{
    const char *at = line.bytes, *end = at + line.length;
    struct text_span column;
    int32_t number;

    if (!take_column(&at, end, &column))
        return 0;
    for (int i = 0; i < 2; i++)
        if (!take_column(&at, end, &column) || !is_number(column, &number))
            return 0;
    return 2;
}

/* Cuts a line; false if it has too few columns, no label or no text. */
static bool cut_line(struct text_span line, int between, struct labelled *out)
{
    const char *at = line.bytes, *end = at + line.length;
    struct text_span column;

    if (!take_column(&at, end, &out->label))
        return false;
    for (int i = 0; i < between; i++)
        if (!take_column(&at, end, &column))
            return false;
    out->text = (struct text_span){ at, (size_t)(end - at) };
    return out->label.length > 0 && out->label.length <= LABEL_MOST && out->text.length > 0;
}

/* A file's lines, cut. */
struct lines {
    const struct text_file *file;
    struct labelled *line;
    int64_t count;
};

static enum status read_lines(const struct text_file *file, struct lines *out)
{
    struct text_span *span;
    int64_t count;

    TRY(text_file_lines(file, &span, &count));
    enum status status = mem_alloc((size_t)count, sizeof *out->line, &out->line);
    const int between = columns_between(span[0]);
    for (int64_t i = 0; status == STATUS_OK && i < count; i++)
        if (!cut_line(span[i], between, &out->line[i]))
            status = FAIL(STATUS_CORRUPT, "%s:%" PRId64 ": not a label, %sa tab and text",
                          file->path, i + 1, between ? "a rating, a number, " : "");
    mem_free(span);
    out->file = file;
    out->count = count;
    return status;
}

/* Classes ------------------------------------------------------------------------------- */

static int compare_spans(const void *a, const void *b)
{
    const struct text_span *x = a, *y = b;
    const size_t both = x->length < y->length ? x->length : y->length;
    const int order = memcmp(x->bytes, y->bytes, both);

    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* The labels of the training lines are numbers: classes are up to the largest. */
static bool count_numbers(const struct lines *train, int *out_classes)
{
    int32_t largest = 0, number;

    for (int64_t i = 0; i < train->count; i++) {
        if (!is_number(train->line[i].label, &number))
            return false;
        largest = number > largest ? number : largest;
    }
    *out_classes = largest < FORMAT_CLASSES ? largest + 1 : FORMAT_CLASSES + 1;
    return true;
}

/* The labels are words: sorts them and keeps each once, as lines of a file. */
static enum status collect_words(const struct lines *train, struct text_data *out)
{
    struct text_span *labels;
    struct strbuf text;

    TRY(mem_alloc((size_t)train->count, sizeof *labels, &labels));
    for (int64_t i = 0; i < train->count; i++)
        labels[i] = train->line[i].label;
    qsort(labels, (size_t)train->count, sizeof *labels, compare_spans);
    strbuf_init(&text, (size_t)FORMAT_CLASSES * (LABEL_MOST + 1));
    for (int64_t i = 0; i < train->count; i++)
        if (i == 0 || compare_spans(&labels[i - 1], &labels[i]) != 0) {
            strbuf_add_bytes(&text, labels[i].bytes, labels[i].length);
            strbuf_add(&text, "\n");
            if (++out->classes > FORMAT_CLASSES)
                break;
        }
    mem_free(labels);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK && out->classes <= FORMAT_CLASSES)
        status = names_parse(train->file->path, text.text, text.length, &out->names);
    strbuf_release(&text);
    return status;
}

static int compare_names(const void *a, const void *b)
{
    const struct text_span *label = a;
    const char *name = *(const char *const *)b;
    const struct text_span other = { name, strlen(name) };

    return compare_spans(label, &other);
}

/* The class of a label; -1 if there is none. */
static int32_t class_of(const struct text_data *data, struct text_span label)
{
    int32_t number;

    if (!data->names.name)
        return is_number(label, &number) && number < data->classes ? number : -1;
    const char **found = bsearch(&label, data->names.name, (size_t)data->names.count,
                                 sizeof *data->names.name, compare_names);
    return found ? (int32_t)(found - data->names.name) : -1;
}

static enum status find_classes(const struct lines *train, struct text_data *out)
{
    if (!count_numbers(train, &out->classes))
        TRY(collect_words(train, out));
    if (out->classes > FORMAT_CLASSES)
        return FAIL(STATUS_CORRUPT, "%s: has more than %d classes", train->file->path,
                    FORMAT_CLASSES);
    return STATUS_OK;
}

/* Documents ----------------------------------------------------------------------------- */

/* Lists the lines of each class, then takes one of each in turn. first[c] and next[i] are line numbers
 * plus 1; 0 ends a list. */
static void deal(const struct text_data *data, int64_t *first, int64_t *next,
                 struct text_span *span, int32_t *label, int64_t *line)
{
    for (int64_t i = data->count - 1; i >= 0; i--) {
        next[i] = first[data->label[i]];
        first[data->label[i]] = i + 1;
    }
    for (int64_t done = 0; done < data->count;)
        for (int32_t class = 0; class < data->classes; class ++) {
            const int64_t at = first[class] - 1;
            if (at < 0)
                continue;
            span[done] = data->span[0][at];
            line[done] = data->line[at];
            label[done++] = class;
            first[class] = next[at];
        }
}

/* Puts the documents in such an order that classes come in turn. */
static enum status interleave(struct text_data *data)
{
    const size_t count = (size_t)data->count;
    struct text_span *span = NULL;
    int32_t *label = NULL;
    int64_t *first = NULL, *next = NULL, *line = NULL;

    enum status status = mem_alloc(count, sizeof *span, &span);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *line, &line);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *label, &label);
    if (status == STATUS_OK)
        status = mem_alloc(count, sizeof *next, &next);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)data->classes, sizeof *first, &first);
    if (status == STATUS_OK) {
        deal(data, first, next, span, label, line);
        struct text_span *old_span = data->span[0];
        int32_t *old_label = data->label;
        int64_t *old_line = data->line;
        data->span[0] = span;
        data->label = label;
        data->line = line;
        span = old_span;
        label = old_label;
        line = old_line;
    }
    mem_free(line);
    mem_free(first);
    mem_free(next);
    mem_free(label);
    mem_free(span);
    return status;
}

/* Lines of which part: all, all but every tenth, or every tenth. */
enum part { WHOLE, MOST, REST };

static bool is_in(enum part part, int64_t line)
{
    const bool is_tenth = line % TENTH == TENTH - 1;

    return part == WHOLE || (part == REST) == is_tenth;
}

static enum status take_lines(const struct lines *lines, enum part part, struct text_data *out)
{
    TRY(mem_alloc((size_t)lines->count, sizeof *out->span[0], &out->span[0]));
    TRY(mem_alloc((size_t)lines->count, sizeof *out->label, &out->label));
    TRY(mem_alloc((size_t)lines->count, sizeof *out->line, &out->line));
    for (int64_t i = 0; i < lines->count; i++) {
        const struct text_span label = lines->line[i].label;
        const int32_t class = class_of(out, label);
        if (class < 0)
            return FAIL(STATUS_CORRUPT,
                        "%s:%" PRId64
                        ": label \"%.*s\" is none of the %d of the training lines",
                        lines->file->path, i + 1, (int)label.length, label.bytes, out->classes);
        if (!is_in(part, i))
            continue;
        out->span[0][out->count] = lines->line[i].text;
        out->line[out->count] = i + 1;
        out->label[out->count++] = class;
    }
    if (out->count == 0)
        return FAIL(STATUS_CORRUPT, "%s: too few lines to keep every tenth for testing",
                    lines->file->path);
    return interleave(out);
}

static enum status parse(const struct text_file *train, const struct text_file *file,
                         enum part part, struct text_data *out)
{
    struct lines of_train = { 0 }, own = { 0 };
    struct text_data data = { 0 };

    enum status status = read_lines(train, &of_train);
    if (status == STATUS_OK)
        status = find_classes(&of_train, &data);
    if (status == STATUS_OK && file != train)
        status = read_lines(file, &own);
    if (status == STATUS_OK)
        status = take_lines(file == train ? &of_train : &own, part, &data);
    mem_free(of_train.line);
    mem_free(own.line);
    if (status != STATUS_OK) {
        text_data_release(&data);
        return status;
    }
    *out = data;
    return STATUS_OK;
}

enum status text_parse_labelled(const struct text_file *train, const struct text_file *file,
                                struct text_data *out)
{
    return parse(train, file, WHOLE, out);
}

/* Files --------------------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    const size_t length = strlen(path), ending = sizeof SUFFIX - 1;
    const size_t packed = length > 3 && strcmp(path + length - 3, ".gz") == 0 ? 3 : 0;

    return text_file_is_plain(path) && length > ending + packed &&
           memcmp(path + length - packed - ending, SUFFIX, ending) == 0;
}

static bool probe(const char *path)
{
    char found[TEXT_NAME];

    return is_file(path) || text_find_split(path, TEXT_TRAIN, "", SUFFIX, found);
}

static enum status open_file(const char *path, enum text_split split, struct text_data *out)
{
    struct text_file file;

    TRY(text_file_open(path, &file));
    const enum status status = parse(&file, &file, split == TEXT_TRAIN ? MOST : REST, out);
    if (status == STATUS_OK)
        out->file[0] = file;
    else
        text_file_close(&file);
    return status;
}

static enum status open_split(const char *folder, enum text_split split, struct text_data *out)
{
    char of_train[TEXT_NAME], name[TEXT_NAME];
    struct text_file train, file;

    TRY(text_get_split(folder, TEXT_TRAIN, "", SUFFIX, of_train));
    TRY(text_get_split(folder, split, "", SUFFIX, name));
    TRY(text_file_open_in(folder, of_train, &train));
    const bool is_train = split == TEXT_TRAIN;
    enum status status = is_train ? STATUS_OK : text_file_open_in(folder, name, &file);
    if (status == STATUS_OK) {
        status = parse(&train, is_train ? &train : &file, WHOLE, out);
        if (status == STATUS_OK)
            out->file[0] = is_train ? train : file;
        else if (!is_train)
            text_file_close(&file);
    }
    if (!is_train || status != STATUS_OK)
        text_file_close(&train);
    return status;
}

static enum status open_path(const char *path, enum text_split split, struct text_data *out)
{
    return is_file(path) ? open_file(path, split, out) : open_split(path, split, out);
}

static enum status copy(const char *folder, const struct dataset_info *expected,
                        const char *target)
{
    struct text_data data;

    if (is_file(folder))
        return FAIL(STATUS_USAGE, "%s: give the folder of train.tsv and test.tsv", folder);
    for (int split = TEXT_TRAIN; split <= TEXT_TEST; split++) {
        TRY(open_split(folder, split, &data));
        const int classes = data.classes;
        text_data_release(&data);
        if (expected && expected->classes != classes)
            return FAIL(STATUS_MISMATCH, "%s: has %d classes where %s has %d", folder, classes,
                        expected->name, expected->classes);
    }
    return text_copy_splits(folder, "", SUFFIX, target);
}

static const struct text_format tsv = { .kind = TEXT_LABELLED, .open = open_path };

const struct format format_tsv = {
    .name = "tsv",
    .files = "train.tsv and test.tsv, or the path of one file",
    .text = &tsv,
    .probe = probe,
    .copy = copy,
};
