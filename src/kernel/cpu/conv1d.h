/* SPDX-License-Identifier: MIT */
/* conv1d.h - convolution along sequences under a maximum over time, one table for each
 * instruction set.
 *
 * A vector holds the sums of one filter at neighbouring places, so that a sequence of any length
 * fills vectors whatever the number of filters, and the maximum over time is one of vectors until
 * the end. x lies transposed, channel by channel, for that: a window's step is one place further.
 * Gradients walk over the windows that were chosen, which are k*c contiguous floats of x each.
 *
 * Bits: a sum is one chain of fused multiply-adds over the window, tap by tap and channel by
 * channel, whatever the tile and the instruction set.
 */
#ifndef KERNEL_CPU_CONV1D_H
#define KERNEL_CPU_CONV1D_H

#include <stddef.h>
#include <stdint.h>

enum { CONV1D_FILTERS = 6, CONV1D_VECS = 4 };

/* Sums of a few filters at up to vecs * lanes places. */
struct conv1d_tile {
    const float *x;  /* the first place of channel 0; may be read up to whole vectors + taps */
    ptrdiff_t x_row; /* floats between channels */
    const float *w;  /* [taps][channels][filters] */
    int64_t taps, channels;
    int64_t first, count; /* number of the first place, and how many there are */
    float *best;          /* [filters][lanes]: the largest so far of every lane ... */
    int32_t *place;       /* ... and where it stood first */
};

/* What one sample's dy sends back: filter f's to the window at index[f], unless that is below 0.
 * A window has `depth` floats and begins at a multiple of `step`. */
struct conv1d_sample {
    const float *dy;
    const int32_t *index;
    int64_t filters, step, depth;
};

struct conv1d_isa {
    int lanes, filters, vecs; /* of a tile at most */
    /* Raises best and place. */
    void (*largest)(const struct conv1d_tile *tile, int filters, int vecs);
    /* The largest of each filter's lanes and its place, the first of equals; -1 if there was no
     * number. y may be anything then. */
    void (*reduce)(const float *best, const int32_t *place, int64_t filters, float *y,
                   int32_t *index);
    /* rows[f * row] += dy[f] * window of x */
    void (*gather)(const struct conv1d_sample *sample, const float *x, float *rows,
                   int64_t row);
    /* window of dx += dy[f] * rows[f * row] */
    void (*scatter)(const struct conv1d_sample *sample, const float *rows, int64_t row,
                    float *dx);
};

extern const struct conv1d_isa conv1d_avx2;
extern const struct conv1d_isa conv1d_avx512;

#endif /* KERNEL_CPU_CONV1D_H */
