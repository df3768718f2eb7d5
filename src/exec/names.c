/* SPDX-License-Identifier: MIT */
/* names.c - what tensors of other programs' files are called here, and which of them say nothing. */
#include "exec/names.h"

#include <stdio.h>
#include <string.h>

static const char prefix[] = "transformer.";

enum { NAME_BYTES = 256 };

/* A name that begins and ends like this; with `same`, only if it has that tensor's contents. */
static const struct spare {
    const char *begin, *end, *same;
} spares[] = {
    { "", ".num_batches_tracked", NULL },
    { "h.", ".attn.bias", NULL },
    { "h.", ".attn.masked_bias", NULL },
    { "bert.embeddings.", "position_ids", NULL },
    { "lm_head.", "weight", "wte.weight" },
    { "cls.predictions.decoder.", "weight", "bert.embeddings.word_embeddings.weight" },
    { "cls.predictions.decoder.", "bias", "cls.predictions.bias" },
};

const char *names_bare(const char *name)
{
    return strncmp(name, prefix, sizeof prefix - 1) == 0 ? name + sizeof prefix - 1 : name;
}

const struct safetensors_entry *names_find(const struct safetensors *file, const char *name)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);
    char longer[NAME_BYTES];

    if (entry)
        return entry;
    const int length = snprintf(longer, sizeof longer, "%s%s", prefix, name);
    return length < (int)sizeof longer ? safetensors_find(file, longer) : NULL;
}

static bool is_like(const char *name, const struct spare *spare)
{
    const size_t length = strlen(name), begin = strlen(spare->begin), end = strlen(spare->end);

    return length >= begin + end && strncmp(name, spare->begin, begin) == 0 &&
           strcmp(name + length - end, spare->end) == 0;
}

static bool is_same(const struct safetensors_entry *a, const struct safetensors_entry *b)
{
    return b && a->dtype == b->dtype && shape_equal(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, (size_t)shape_count(&a->shape) * dtype_size(a->dtype)) == 0;
}

bool names_is_spare(const struct safetensors *file, const struct safetensors_entry *entry)
{
    const char *name = names_bare(entry->name);

    for (size_t i = 0; i < sizeof spares / sizeof *spares; i++) {
        if (is_like(name, &spares[i]) &&
            (!spares[i].same || is_same(entry, names_find(file, spares[i].same))))
            return true;
    }
    return false;
}
