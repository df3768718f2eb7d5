/* SPDX-License-Identifier: MIT */
/* winograd_plan.h - how a 3x3 convolution is cut for Winograd's method: phases, units, blocks and
 * panels. conv_winograd.c has forward and the gradient of the input, conv_winograd_weight.c that
 * of the weights.
 */
#ifndef KERNEL_CPU_WINOGRAD_PLAN_H
#define KERNEL_CPU_WINOGRAD_PLAN_H

#include "kernel/cpu/conv.h"
#include "kernel/cpu/winograd.h"

enum {
    WINOGRAD_PANEL = 64, /* channels that come out together */
    WINOGRAD_PHASES = 4,
};

/* A convolution of stride 1: all there is to do, or one of the four it falls into. */
struct winograd_phase {
    const struct winograd_form *form;
    int64_t places, weight_places;
    struct winograd_in x;        /* the image: of the whole batch */
    int64_t top, left;           /* zeros before it */
    int64_t rows, columns;       /* of the output that are wanted */
    int64_t y_first;             /* floats of y before them */
    int64_t tap[2], tap_step[2]; /* row and column of the first tap in w, and to the next */
    int64_t u_first;             /* where its kept U begins */
};

struct winograd_plan {
    const struct tile_isa *isa;
    struct winograd_phase phases[WINOGRAD_PHASES]; /* the first has the most places */
    int n_phases;
    int64_t images, in, out;
    int64_t tiles_y, tiles_x; /* of an image */
    int64_t n_units, tiles;   /* tiles of a full unit */
    int64_t n_blocks, n_panels;
    int64_t block, panel;           /* channels of a full one */
    int64_t v_step, m_step, u_step; /* between places */
    int64_t n_tasks, slots;         /* not of the weights' gradient; threads that take part */
    int64_t task_floats;            /* scratch of a thread */
    int64_t kept_floats;            /* of U, before it */
    bool keeps_u;                   /* several units: U is made once a call, not on the way */
    bool is_turned;
    bool adds_up;              /* phases make the same pixels of y */
    struct winograd_in dy;     /* of the whole batch, for the gradient of the weights */
    int64_t x_image, dy_image; /* floats between images */
    int64_t y_image, y_row, y_pixel;
    /* The call. */
    const float *w, *bias;
    float *y;
    uint8_t *index;
    bool relu, pool;
    float *scratch;
};

/* Some tiles of the batch. */
struct winograd_unit {
    int64_t first, tiles;
};

/* One panel for one block of channels. */
struct winograd_slice {
    int64_t k0, depth; /* of the side that is summed over */
    int64_t first, n;  /* of the side that comes out */
};

static inline int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* An image of (rows, columns, channels), or what a 2x2 max pool left of it. */
struct winograd_in winograd_image_of(int64_t rows, int64_t columns, int64_t channels,
                                     bool is_pooled);

/* Floats of one image. */
int64_t winograd_image_floats(const struct winograd_in *image, bool is_pooled);

/* A kernel of stride 1 over x, an image of (h,w): all of it is one phase. */
struct winograd_phase winograd_whole_phase(const struct conv *conv, struct winograd_in x,
                                           int64_t rows, int64_t columns, bool is_turned);

/* The phases of a kernel of stride 2: of x, or of dx if turned, which comes from `dy`. */
void winograd_cut_phases(struct winograd_plan *plan, const struct conv *conv,
                         struct winograd_in dy);

/* Tiles, units, blocks and panels of at most `panel`, when phases are known. */
void winograd_shape_plan(struct winograd_plan *plan, int64_t panel);

/* 3x3, and of a stride that this method knows? */
bool winograd_can_shape(const struct kernel_problem *problem, const struct shape *w);

struct winograd_unit winograd_unit_at(const struct winograd_plan *plan, int64_t i);

/* Image, row and column of the output where tile t begins. */
int64_t winograd_place_tile(const struct winograd_plan *plan, int64_t t, int64_t *row,
                            int64_t *column);

/* V of channels [first, first + n) of tiles [from, to), the first of a unit being `begin`. */
void winograd_turn_inputs(const struct winograd_plan *plan, const struct winograd_phase *phase,
                          int64_t begin, int64_t from, int64_t to, int64_t first, int64_t n,
                          float *v);

/* Vectors of part p of `n` columns in `parts`: *first column, and existing columns. */
int winograd_vecs_at(const struct winograd_plan *plan, int64_t n, int parts, int p,
                     int64_t *first, int *columns);

struct winograd_slice winograd_slice_at(const struct winograd_plan *plan, int64_t panel,
                                        int64_t block);

/* Floats of U of one slice. */
int64_t winograd_u_floats(const struct winograd_plan *plan, const struct winograd_phase *phase);

/* Which of U a place takes. */
int64_t winograd_weights_at(const struct winograd_form *form, int64_t place);

#endif /* KERNEL_CPU_WINOGRAD_PLAN_H */
