/* SPDX-License-Identifier: MIT */
/* format.c - which format a folder is in, and what every format checks. */
#include "data/format.h"

#include "base/file.h"
#include "base/foreign.h"
#include "base/strbuf.h"

const struct format *format_of_folder(const char *folder)
{
    for (size_t i = 0; format_table[i]; i++)
        if (format_table[i]->probe(folder))
            return format_table[i];
    return NULL;
}

static enum status fail_unknown(const char *folder)
{
    enum { TEXT_MOST = 4096 };
    struct strbuf known;

    strbuf_init(&known, TEXT_MOST);
    for (size_t i = 0; format_table[i]; i++)
        strbuf_printf(&known, "%s%s (%s)", i > 0 ? "; " : "", format_table[i]->name,
                      format_table[i]->files);
    enum status status = strbuf_status(&known);
    if (status == STATUS_OK)
        status =
            FAIL(STATUS_NOT_FOUND, "%s: no data set there; read are %s", folder, known.text);
    strbuf_release(&known);
    return status;
}

enum status format_detect(const char *folder, const struct format **out)
{
    const char *foreign = file_is_folder(folder) ? NULL : foreign_kind_of_file(folder);
    const struct format *format = foreign ? NULL : format_of_folder(folder);

    if (foreign)
        return FAIL(
            STATUS_MISMATCH,
            "%s is %s, which is not read as data: convert it (man tutti, FILES OF OTHER "
            "PROGRAMS)",
            folder, foreign);
    if (!file_exists(folder))
        return FAIL(STATUS_NOT_FOUND, "%s: no such file or folder", folder);
    if (!format)
        return fail_unknown(folder);
    *out = format;
    return STATUS_OK;
}

static enum status refuse_layout(const struct format *format, const char *folder)
{
    return FAIL(STATUS_USAGE,
                "--layout is for images in NumPy arrays; %s holds %s: leave it out", folder,
                format->name);
}

enum status format_open(const struct format *format, const char *folder,
                        enum dataset_split split, const struct dataset_info *expected,
                        enum dataset_layout layout, struct format_data *out)
{
    if (format->open_layout)
        return format->open_layout(folder, split, expected, layout, out);
    if (layout != DATASET_FOUND)
        return refuse_layout(format, folder);
    return format->open(folder, split, expected, out);
}

enum status format_copy(const struct format *format, const char *folder,
                        const struct dataset_info *expected, enum dataset_layout layout,
                        const char *target)
{
    if (format->copy_layout)
        return format->copy_layout(folder, expected, layout, target);
    if (layout != DATASET_FOUND)
        return refuse_layout(format, folder);
    return format->copy(folder, expected, target);
}

enum status format_check_shape(const char *path, const struct shape *sample,
                               const struct dataset_info *expected)
{
    char there[SHAPE_TEXT], here[SHAPE_TEXT];

    if (!expected || shape_equal(sample, &expected->sample))
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "%s: its images are %s where %s has %s", path,
                shape_print(sample, there), expected->name,
                shape_print(&expected->sample, here));
}
