/* SPDX-License-Identifier: MIT */
/* text_format.c - what text formats have in common: how the files of splits are called. */
#include "data/text_format.h"

#include "base/mem.h"
#include "data/format.h"
#include "data/vocab_build.h"

#include <stdio.h>
#include <string.h>

void text_data_release(struct text_data *data)
{
    for (int side = 0; side < TEXT_SIDES; side++) {
        mem_free(data->span[side]);
        text_file_close(&data->file[side]);
    }
    mem_free(data->label);
    mem_free(data->line);
    names_release(&data->names);
    *data = (struct text_data){ 0 };
}

enum { N_SPLITS = TEXT_TEST + 1, WORDS_MOST = 4 };

/* What splits are called; the second test is Multi30k's. */
static const char *const WORDS[N_SPLITS][WORDS_MOST + 1] = {
    [TEXT_TRAIN] = { "train" },
    [TEXT_VALIDATION] = { "val", "valid", "validation", "dev" },
    [TEXT_TEST] = { "test", "test_2016_flickr" },
};

static bool find_own(const char *folder, enum text_split split, const char *prefix,
                     const char *suffix, char found[TEXT_NAME])
{
    for (int i = 0; WORDS[split][i]; i++) {
        char name[TEXT_NAME];
        if (snprintf(name, sizeof name, "%s%s%s", prefix, WORDS[split][i], suffix) <
                (int)sizeof name &&
            text_file_find(folder, name, found))
            return true;
    }
    return false;
}

bool text_find_split(const char *folder, enum text_split split, const char *prefix,
                     const char *suffix, char found[TEXT_NAME])
{
    return find_own(folder, split, prefix, suffix, found) ||
           (split == TEXT_VALIDATION && find_own(folder, TEXT_TEST, prefix, suffix, found)) ||
           (split == TEXT_TEST && find_own(folder, TEXT_VALIDATION, prefix, suffix, found));
}

enum status text_get_split(const char *folder, enum text_split split, const char *prefix,
                           const char *suffix, char found[TEXT_NAME])
{
    if (text_find_split(folder, split, prefix, suffix, found))
        return STATUS_OK;
    return FAIL(STATUS_NOT_FOUND, "%s: has no %s%s%s", folder, prefix, WORDS[split][0], suffix);
}

enum status text_copy_splits(const char *folder, const char *prefix, const char *suffix,
                             const char *target)
{
    for (int split = 0; split < N_SPLITS; split++) {
        char found[TEXT_NAME];
        if (find_own(folder, split, prefix, suffix, found))
            TRY(text_file_copy(folder, found, target));
    }
    return STATUS_OK;
}

/* GPT-2's files ------------------------------------------------------------------------- */

static bool probe_bpe(const char *folder)
{
    return vocab_bpe_name(folder, BPE_TOKENS) && vocab_bpe_name(folder, BPE_MERGES);
}

static enum status copy_bpe(const char *folder, const struct dataset_info *expected,
                            const char *target)
{
    struct vocab *vocab;

    (void)expected;
    TRY(vocab_read_bpe(folder, &vocab));
    vocab_destroy(vocab);
    for (int i = 0; i < BPE_FILES; i++)
        TRY(text_file_copy(folder, vocab_bpe_name(folder, i), target));
    return STATUS_OK;
}

static const struct text_format bpe = { .kind = TEXT_VOCABULARY };

const struct format format_bpe = {
    .name = "bpe",
    .files = "encoder.json and vocab.bpe",
    .text = &bpe,
    .probe = probe_bpe,
    .copy = copy_bpe,
};
