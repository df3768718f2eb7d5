/* SPDX-License-Identifier: MIT */
/* format.c - which format a folder is in, and what every format checks. */
#include "data/format.h"

#include "base/file.h"
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
    const struct format *format = format_of_folder(folder);

    if (!file_exists(folder))
        return FAIL(STATUS_NOT_FOUND, "%s: no such folder", folder);
    if (!format)
        return fail_unknown(folder);
    *out = format;
    return STATUS_OK;
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
