/* SPDX-License-Identifier: MIT */
/* text_plain.c - running text: one file, or one a split.
 *
 * wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (WikiText), or train.txt, valid.txt and
 * test.txt; or input.txt, or any one file, whose first nine tenths, counted in characters, are for
 * training.
 */
#include "base/mem.h"
#include "data/format.h"
#include "data/text_format.h"

#include <string.h>

/* How the files of splits are called. */
static const struct {
    const char *prefix, *suffix;
} NAMES[] = { { "wiki.", ".tokens" }, { "", ".txt" } };
enum { N_NAMES = sizeof NAMES / sizeof *NAMES };
static const char INPUT[] = "input.txt";

/* The row of NAMES that a folder's files follow, or -1. */
static int names_of(const char *folder)
{
    char found[TEXT_NAME];

    for (int i = 0; i < N_NAMES; i++)
        if (text_find_split(folder, TEXT_TRAIN, NAMES[i].prefix, NAMES[i].suffix, found) &&
            text_find_split(folder, TEXT_TEST, NAMES[i].prefix, NAMES[i].suffix, found))
            return i;
    return -1;
}

static bool probe(const char *path)
{
    char found[TEXT_NAME];

    return text_file_is_plain(path) || text_file_find(path, INPUT, found) ||
           names_of(path) >= 0;
}

static bool begins_character(char byte)
{
    return ((unsigned char)byte & 0xc0) != 0x80;
}

/* Where the last tenth begins, by characters: after int(0.9 n) of n. */
static size_t nine_tenths(const struct text_file *file)
{
    size_t characters = 0, at = 0;

    for (size_t i = 0; i < file->length; i++)
        characters += begins_character(file->bytes[i]);
    size_t left = characters / 10 * 9 + characters % 10 * 9 / 10;
    for (; at < file->length; at++)
        if (begins_character(file->bytes[at]) && left-- == 0)
            break;
    return at;
}

/* The file of a split, and whether it is that of all. */
static enum status find_file(const char *path, enum text_split split, struct text_file *out,
                             bool *out_is_all)
{
    char name[TEXT_NAME];
    const int names = names_of(path);

    *out_is_all = names < 0;
    if (text_file_is_plain(path))
        return text_file_open(path, out);
    if (names < 0) {
        if (!text_file_find(path, INPUT, name))
            return FAIL(STATUS_NOT_FOUND, "%s: has no %s", path, INPUT);
    } else {
        TRY(text_get_split(path, split, NAMES[names].prefix, NAMES[names].suffix, name));
    }
    return text_file_open_in(path, name, out);
}

static enum status open_split(const char *path, enum text_split split, struct text_data *out)
{
    struct text_data data = { .count = 1 };
    bool is_all;

    TRY(find_file(path, split, &data.file[0], &is_all));
    const struct text_file *file = &data.file[0];
    const size_t cut = is_all ? nine_tenths(file) : 0;
    enum status status = mem_alloc(1, sizeof *data.span[0], &data.span[0]);
    const struct text_span rest = { file->bytes + cut, file->length - cut };
    if (status == STATUS_OK && is_all && split == TEXT_TRAIN) {
        data.span[0][0] = (struct text_span){ file->bytes, cut };
        data.rest = rest;
    } else if (status == STATUS_OK) {
        data.span[0][0] = rest;
    }
    if (status != STATUS_OK) {
        text_data_release(&data);
        return status;
    }
    *out = data;
    return STATUS_OK;
}

static enum status copy(const char *path, const struct dataset_info *expected,
                        const char *target)
{
    const int names = names_of(path);
    char found[TEXT_NAME];

    (void)expected;
    if (names >= 0)
        return text_copy_splits(path, NAMES[names].prefix, NAMES[names].suffix, target);
    if (!text_file_find(path, INPUT, found))
        return FAIL(STATUS_USAGE, "%s: give the folder of %s, or of files of splits", path,
                    INPUT);
    return text_file_copy(path, found, target);
}

static const struct text_format plain = { .kind = TEXT_PLAIN, .open = open_split };

const struct format format_plain = {
    .name = "plain",
    .files = "input.txt, or train.txt and test.txt, or the path of one file",
    .text = &plain,
    .probe = probe,
    .copy = copy,
};
