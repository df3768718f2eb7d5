/* SPDX-License-Identifier: MIT */
/* fuzz_idx.c - an IDX file, plain or packed, that is accepted has all that it claims to have.
 */
#include "data/idx.h"
#include "fuzz.h"

/* Reads every byte, so that a sanitizer sees one that is not there. */
static void check_whole(const struct idx *idx, enum idx_kind kind)
{
    volatile uint8_t seen = 0;
    size_t count = 1;

    for (int i = 0; i < (int)kind; i++)
        count *= (size_t)idx->dim[i];
    BUG_ON(count == 0 || idx->data + count != idx->file + idx->length);
    for (size_t i = 0; i < idx->length; i++)
        seen = seen ^ idx->file[i];
}

static void parse(const char *path, const uint8_t *data, size_t size, enum idx_kind kind)
{
    struct idx idx;

    if (idx_parse(path, data, size, kind, &idx) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    check_whole(&idx, kind);
    idx_release(&idx);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse("fuzz", data, size, IDX_IMAGES);
    parse("fuzz", data, size, IDX_LABELS);
    parse("fuzz.gz", data, size, IDX_IMAGES);
    parse("fuzz.gz", data, size, IDX_LABELS);
    return 0;
}
