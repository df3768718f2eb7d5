/* SPDX-License-Identifier: MIT */
/* source.h - samples as loader, evaluation and executor see them, whatever they are made of.
 *
 * A sample has up to three parts: x (an image, or the ids of a sequence), x2 (the ids of a second
 * sequence, a decoder's input) and y (a label, or one a token). Images are all of one size.
 * Sequences have lengths of their own; those of one batch are read with the length of the longest,
 * rounded up to a multiple of SOURCE_ROUND, and filled with SOURCE_PADDING, as are labels that do not count.
 *
 * Whoever holds samples (dataset.h: images, text.h: sequences) embeds a struct source.
 *
 * Of images that are bytes, somebody else may hold all samples (exec.h: a device) and make x and y by himself. He is told
 * picks in their place, and comes to the same bits.
 *
 * Threads: reading is safe from any thread.
 */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <stddef.h>
#include <stdint.h>

#include "data/augment.h"
#include "tensor/pick.h"

enum { SOURCE_PADDING = -1, SOURCE_ROUND = 4, SOURCE_SEQUENCES = 2 };
enum { SOURCE_BYTES = 256 };
enum source_part { SOURCE_X, SOURCE_X2, SOURCE_Y, SOURCE_PARTS };

struct source;
struct strbuf;
struct dataset_info;

/* What a sample depends on besides its number. NULL in its place: as evaluation wants it. */
struct source_how {
    struct augment augment; /* of images */
    uint64_t seed;
    int64_t epoch;
    uint8_t *scratch; /* source_scratch_bytes, for one thread */
};

/* How a kind of source works. One table each. */
struct source_kind {
    /* As long as the longest of `count` samples, not rounded. NULL: images. */
    void (*extents)(const struct source *source, const int64_t *index, int64_t count,
                    int64_t length[SOURCE_SEQUENCES]);
    /* Labels that count. NULL: one a sample. */
    int64_t (*weight)(const struct source *source, const struct source_how *how,
                      const int64_t *index, int64_t count);
    void (*read)(const struct source *source, const struct source_how *how,
                 const int64_t *index, int64_t count, const int64_t length[SOURCE_SEQUENCES],
                 void *x, int32_t *x2, int32_t *y);
    /* The class of a sample; SOURCE_PADDING where samples have none. */
    int32_t (*label)(const struct source *source, int64_t index);
    /* Where a sample stands in the order of its files: a number that ascends with it. NULL: samples
     * come in that order. */
    int64_t (*place)(const struct source *source, int64_t index);
    /* Adds what a person finds the sample by: its file, its line's number, its id. NULL: the
     * number of the sample, from 0. */
    void (*name)(const struct source *source, int64_t index, struct strbuf *out);
    /* Of images that are bytes: C planes of H x W of them, and what each stands for, a table of SOURCE_BYTES for each
     * channel. NULL: they are not. */
    const uint8_t *(*pixels)(const struct source *source, int64_t index);
    const float *(*values)(const struct source *source);
};

struct source {
    const struct source_kind *kind;
    int64_t count;
    const struct dataset_info *info;
    const char *path, *fingerprint; /* see dataset_path, dataset_fingerprint */
    const char *old_fingerprint;    /* as older versions made it, with the folder's name */
    struct shape sample;            /* of x: C, H, W, or the greatest length */
    size_t row_bytes[SOURCE_PARTS]; /* of a sample's parts at most; 0: it has none */
    size_t scratch_bytes;
    size_t
        held_bytes; /* of the split in memory, beside pages of files that the system can drop */
    /* Of sequences: samples whose keys are close are of like length; and samples by key, then
     * number, the order in which evaluation reads them. NULL: all are alike. */
    const uint32_t *key;
    const int32_t *by_key;
};

static inline int64_t source_count(const struct source *source)
{
    return source->count;
}

/* Bytes of one row of a batch at most, for buffers. */
static inline size_t source_row_bytes(const struct source *source, enum source_part part)
{
    return source->row_bytes[part];
}

/* Does it give ids, not images? */
static inline bool source_has_sequences(const struct source *source)
{
    return source->kind->extents != NULL;
}

/* The sample that evaluation reads at `position`. */
static inline int64_t source_at(const struct source *source, int64_t position)
{
    return source->by_key ? source->by_key[position] : position;
}

static inline int32_t source_label(const struct source *source, int64_t index)
{
    return source->kind->label(source, index);
}

static inline int64_t source_place(const struct source *source, int64_t index)
{
    return source->kind->place ? source->kind->place(source, index) : index;
}

/* See source_kind. */
void source_name(const struct source *source, int64_t index, struct strbuf *out);

/* Can samples be picked? */
bool source_has_pixels(const struct source *source);
/* What source_read would make of these samples. */
void source_pick(const struct source *source, const struct source_how *how,
                 const int64_t *index, int64_t count, struct pick *out);

/* The lengths a batch of these samples has; 0 where it has no such sequence. */
void source_extents(const struct source *source, const int64_t *index, int64_t count,
                    int64_t length[SOURCE_SEQUENCES]);
/* How many labels of these samples count. */
int64_t source_weight(const struct source *source, const struct source_how *how,
                      const int64_t *index, int64_t count);
/* Writes `count` samples, one after the other: x (H, W, C floats, or length[0] ids each), x2 (length[1]
 * ids; may be NULL where there is none), y (1 label, or as many as the last sequence has ids).
 * `length` is that of source_extents for these samples or more. */
void source_read(const struct source *source, const struct source_how *how,
                 const int64_t *index, int64_t count, const int64_t length[SOURCE_SEQUENCES],
                 void *x, int32_t *x2, int32_t *y);

#endif /* DATA_SOURCE_H */
