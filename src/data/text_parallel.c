/* SPDX-License-Identifier: MIT */
/* text_parallel.c - pairs: train.A and train.B, whose lines belong together.
 *
 * A and B are any two words (de and en, src and tgt); the first by the alphabet is the source. Likewise
 * val.A and val.B (or valid, dev), test.A and test.B; all may end in .gz.
 */
#include "base/mem.h"
#include "data/format.h"
#include "data/text_format.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char TRAIN[] = "train.";
enum { ENDING = 32 };

/* The endings of a folder's two training files, the first by the alphabet first, each with its dot. */
struct endings {
    char text[TEXT_SIDES][ENDING];
};

/* The ending of a file called train.ENDING or train.ENDING.gz, the dot before it included. */
static bool ending_of(const char *name, char out[ENDING])
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
    const size_t word = sizeof TRAIN - 1;

    if (strncmp(name, TRAIN, word) != 0)
        return false;
    const size_t length = strspn(name + word, LETTERS);
    const char *rest = name + word + length;
    if (length == 0 || length + 2 > ENDING || (*rest && strcmp(rest, ".gz") != 0))
        return false;
    snprintf(out, ENDING, ".%.*s", (int)length, name + word);
    return true;
}

/* How many endings there are: 0, 1, 2, or 3 for more; the first two are noted. */
static int find_endings(const char *folder, struct endings *out)
{
    DIR *stream = opendir(folder);
    const struct dirent *entry;
    int count = 0;

    if (!stream)
        return 0;
    while (count < 3 && (entry = readdir(stream))) { /* NOLINT(concurrency-mt-unsafe) */
        char ending[ENDING];
        if (!ending_of(entry->d_name, ending))
            continue;
        bool is_known = false;
        for (int i = 0; i < count && i < TEXT_SIDES; i++)
            is_known = is_known || strcmp(out->text[i], ending) == 0;
        if (is_known)
            continue;
        if (count < TEXT_SIDES)
            memcpy(out->text[count], ending, ENDING);
        count++;
    }
    closedir(stream);
    if (count == TEXT_SIDES && strcmp(out->text[0], out->text[1]) > 0) {
        const struct endings turned = *out;
        memcpy(out->text[0], turned.text[1], ENDING);
        memcpy(out->text[1], turned.text[0], ENDING);
    }
    return count;
}

static bool probe(const char *folder)
{
    struct endings endings;

    return find_endings(folder, &endings) == TEXT_SIDES;
}

static enum status read_side(const char *folder, enum text_split split, const char *ending,
                             int side, struct text_data *data, int64_t *out_count)
{
    char name[TEXT_NAME];

    TRY(text_get_split(folder, split, "", ending, name));
    TRY(text_file_open_in(folder, name, &data->file[side]));
    return text_file_lines(&data->file[side], &data->span[side], out_count);
}

static enum status open_split(const char *folder, enum text_split split, struct text_data *out)
{
    int64_t count[TEXT_SIDES] = { 0 };
    struct text_data data = { 0 };
    struct endings endings;
    enum status status = STATUS_OK;

    if (find_endings(folder, &endings) != TEXT_SIDES)
        return FAIL(STATUS_NOT_FOUND, "%s: there are not two files train.*", folder);
    for (int side = 0; side < TEXT_SIDES && status == STATUS_OK; side++)
        status = read_side(folder, split, endings.text[side], side, &data, &count[side]);
    if (status == STATUS_OK && count[0] != count[1])
        status =
            FAIL(STATUS_CORRUPT,
                 "%s has %" PRId64 " lines, %s has %" PRId64 ": they do not belong together",
                 data.file[0].path, count[0], data.file[1].path, count[1]);
    if (status != STATUS_OK) {
        text_data_release(&data);
        return status;
    }
    data.count = count[0];
    *out = data;
    return STATUS_OK;
}

static enum status copy(const char *folder, const struct dataset_info *expected,
                        const char *target)
{
    struct text_data data;
    struct endings endings;

    (void)expected;
    for (int split = TEXT_TRAIN; split <= TEXT_TEST; split++) {
        TRY(open_split(folder, split, &data));
        text_data_release(&data);
    }
    find_endings(folder, &endings);
    for (int side = 0; side < TEXT_SIDES; side++)
        TRY(text_copy_splits(folder, "", endings.text[side], target));
    return STATUS_OK;
}

static const struct text_format parallel = { .kind = TEXT_PARALLEL, .open = open_split };

const struct format format_parallel = {
    .name = "parallel",
    .files = "train.A and train.B, such as train.de.gz and train.en.gz",
    .text = &parallel,
    .probe = probe,
    .copy = copy,
};
