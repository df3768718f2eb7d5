/* SPDX-License-Identifier: MIT */
/* norm_conv.c - convolutions with the batch norms before and after them, 1x1 or depthwise.
 *
 * Images go through in pieces that stay in L2: chunks of places for 1x1, bands of rows for depthwise. Of each
 * piece
 *
 *   forward   a = activation(norm(x)); z = conv(a), its moments
 *   backward  dz += what flows through z's moments; a as before; dw += a dz; da = conv^T(dz);
 *             dx = da through the activation and the scale, its two sums
 *
 * where both norms may be absent. So a wide image, whose norm would have read it twice and written it once, is
 * written once and read once forward; backward dz, z and x are read once and dx is written once.
 *
 * Pieces belong to parts, a number that shapes alone decide; each has sums of its own, which are joined in
 * order. What is written large goes past the caches.
 */
#include <math.h>
#include <string.h>

#include "kernel/cpu/depthwise.h"
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/norm_conv.h"
#include "kernel/cpu/processor.h"

enum {
    PARTS = 16,
    PART_ROWS = 256,         /* of a part, at least */
    CHUNK_BYTES = 128 << 10, /* of the widest rows of a chunk, but */
    FEW_ROWS = 96,           /* at least */
    CHUNK_ROWS = 384,        /* at most */
    BAND_ROWS = 8,           /* of an image, that are there besides those under the kernel */
    FAR_BYTES = 8 << 20,     /* as in batch_norm.c */
    LINE_BYTES = 64,
};

struct plan {
    const struct norm_isa *norm;
    const struct depthwise_isa *deep; /* NULL: 1x1 */
    const struct norm_products *products;
    struct depthwise d;   /* extents, of 1x1, too */
    int64_t o;            /* channels of z */
    bool has_norm;        /* of x */
    bool has_stats;       /* of z */
    bool is_back, is_far; /* writes past the caches */
    int64_t parts, chunk; /* rows of a chunk */

    struct norm_numbers in, out; /* what is done to x, and to dz */
    const float *x, *w, *z, *dz;
    float *to;           /* z forward, dx backward */
    void *packed;        /* w, or w turned */
    int64_t sums_floats; /* of dw of a part */
    float *dw_sums;      /* of all parts */
    double *sums;        /* likewise: means and squares of z, or the two sums of dx */
    char *slots;
    size_t slot_bytes;
};

/* Inputs of a gradient after dz, w and x. */
static int norm_at(const struct plan *plan)
{
    return plan->is_back ? 3 : 2;
}

static int stats_at(const struct plan *plan)
{
    return plan->has_norm ? 6 : 3;
}

/* The shape ---------------------------------------------------------------------------------- */

static struct depthwise extents_of(const struct kernel_problem *problem, const struct shape *x)
{
    const struct attrs *a = &problem->attrs;
    const struct shape *w = &problem->in[1].shape;

    return (struct depthwise){
        .n = x->dim[0],
        .c = x->dim[1],
        .h = x->dim[2],
        .w = x->dim[3],
        .oh = (x->dim[2] + 2 * a->pad[0] - w->dim[2]) / a->stride[0] + 1,
        .ow = (x->dim[3] + 2 * a->pad[1] - w->dim[3]) / a->stride[1] + 1,
        .kh = w->dim[2],
        .kw = w->dim[3],
        .sh = a->stride[0],
        .sw = a->stride[1],
        .ph = a->pad[0],
        .pw = a->pad[1],
        .low = -INFINITY,
        .high = INFINITY,
    };
}

static bool is_depthwise(const struct kernel_problem *problem)
{
    return problem->attrs.groups > 1 && problem->in[1].shape.dim[1] == 1 &&
           problem->attrs.groups == problem->in[1].shape.dim[0];
}

static int64_t rows_of(const struct plan *plan) /* of 1x1 */
{
    return plan->d.n * plan->d.h * plan->d.w;
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct plan plan_of(const struct kernel_problem *problem,
                           const struct norm_products *products)
{
    const bool is_back = strstr(problem->op, "_grad") != NULL;
    struct plan plan = {
        .products = products,
        .d = extents_of(problem, &problem->in[is_back ? 2 : 0].shape),
        .o = problem->in[1].shape.dim[0],
        .has_norm = strncmp(problem->op, "norm_", 5) == 0,
        .has_stats = strstr(problem->op, "_stats") != NULL,
        .is_back = is_back,
    };
    const bool is_wide = processor_current() >= PROCESSOR_AVX512;

    plan.norm = is_wide ? &norm_avx512 : &norm_avx2;
    if (is_depthwise(problem)) {
        plan.deep = is_wide ? &depthwise_avx512 : &depthwise_avx2;
        plan.parts = at_most(plan.d.n, PARTS);
    } else {
        const int64_t widest = plan.d.c > plan.o ? plan.d.c : plan.o;
        const int64_t few = at_least(FEW_ROWS, gemm_ceil(CHUNK_BYTES / 4, widest));
        const int64_t most = at_most(CHUNK_ROWS, few);
        plan.parts = at_most(PARTS, gemm_ceil(rows_of(&plan), PART_ROWS));
        const int64_t part = gemm_ceil(rows_of(&plan), plan.parts);
        const int64_t rows = gemm_ceil(part, gemm_ceil(part, most));
        plan.chunk = gemm_ceil(rows, products->row_grain) * products->row_grain;
    }
    if (is_back)
        plan.sums_floats = plan.deep ? plan.d.kh * plan.d.kw * plan.d.c : plan.d.c * plan.o;
    return plan;
}

/* Rows of an image that a slot has room for: of x, of dz and of the gradient of a. */
static int64_t x_room(const struct depthwise *d)
{
    return at_most(d->h, d->kh + d->sh + BAND_ROWS);
}

static int64_t z_room(const struct depthwise *d)
{
    return depthwise_is_turned(d) || depthwise_is_halved(d) ? at_most(d->oh, d->kh + BAND_ROWS)
                                                            : d->oh;
}

static int64_t dx_room(const struct depthwise *d)
{
    return depthwise_is_halved(d) ? 2 : 1;
}

/* Room --------------------------------------------------------------------------------------- */

/* What of a slot is where, in floats. */
struct room {
    int64_t dz, made, work; /* a is first, what products work in is last */
};

static int64_t lines(int64_t floats)
{
    return gemm_ceil(floats, LINE_BYTES / 4) * (LINE_BYTES / 4);
}

static struct room room_of(const struct plan *plan)
{
    const struct depthwise *d = &plan->d;
    const int64_t in = plan->deep ? x_room(d) * d->w : plan->chunk;
    const int64_t out = plan->deep ? z_room(d) * d->ow : plan->chunk;
    struct room room = { 0 };

    room.dz = plan->has_norm ? lines(in * d->c) : 0;
    room.made = room.dz + (plan->is_back && plan->has_stats ? lines(out * plan->o) : 0);
    room.work = room.made;
    if (plan->is_back && plan->has_norm)
        room.work += lines((plan->deep ? dx_room(d) * d->w : plan->chunk) * d->c);
    else if (!plan->is_back && plan->has_stats)
        room.work += lines((plan->deep ? d->ow : plan->chunk) * plan->o);
    return room;
}

static int64_t slot_floats(const struct plan *plan)
{
    const int64_t floats = room_of(plan).work;

    if (plan->deep)
        return floats;
    const size_t bytes =
        plan->products->room_bytes(plan->chunk, plan->d.c, plan->o, plan->is_back);
    return floats + lines((int64_t)(bytes / 4));
}

/* Of w as products want it, or as a depthwise gradient does. */
static int64_t packed_floats(const struct plan *plan)
{
    if (plan->deep)
        return plan->is_back ? lines(plan->d.kh * plan->d.kw * plan->d.c) : 0;
    const size_t bytes = plan->is_back ? plan->products->packed_bytes(plan->o, plan->d.c)
                                       : plan->products->packed_bytes(plan->d.c, plan->o);
    return lines((int64_t)(bytes / 4));
}

static int64_t number_floats(const struct plan *plan)
{
    return lines(plan->d.c) + 2 * lines(plan->o);
}

/* Channels of the two sums that a part has; 0: none. */
static int64_t sum_channels(const struct plan *plan)
{
    if (plan->is_back)
        return plan->has_norm ? plan->d.c : 0;
    return plan->has_stats ? plan->o : 0;
}

size_t norm_conv_scratch(const struct kernel_problem *problem,
                         const struct norm_products *products)
{
    const struct plan plan = plan_of(problem, products);
    const int64_t floats =
        number_floats(&plan) + packed_floats(&plan) + plan.parts * lines(plan.sums_floats) +
        plan.parts * 2 * lines(2 * sum_channels(&plan)) + plan.parts * slot_floats(&plan);

    return (size_t)floats * sizeof(float);
}

bool norm_conv_is_pixel(const struct kernel_problem *problem)
{
    const bool is_back = strstr(problem->op, "_grad") != NULL;
    const struct depthwise d = extents_of(problem, &problem->in[is_back ? 2 : 0].shape);

    return problem->attrs.groups <= 1 && d.kh == 1 && d.kw == 1 && d.sh == 1 && d.sw == 1 &&
           d.ph == 0 && d.pw == 0;
}

bool norm_conv_can_run(const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32)
            return false;
    }
    return tile_current() != NULL && problem->attrs.activation <= ACTIVATION_RELU6 &&
           (is_depthwise(problem) || norm_conv_is_pixel(problem));
}

/* Pieces ------------------------------------------------------------------------------------- */

/* What a task works on. */
struct work {
    const struct plan *plan;
    float *a, *dz, *made, *room; /* of the slot */
    float *dw;                   /* of the part */
    double *first, *second;      /* its sums */
    int64_t seen;                /* rows whose moments are there */
};

static struct work work_of(const struct plan *plan, size_t part, size_t slot)
{
    const struct room room = room_of(plan);
    float *floats = (float *)(plan->slots + slot * plan->slot_bytes);
    const int64_t channels = sum_channels(plan);
    double *sums = plan->sums + (int64_t)part * lines(2 * channels);

    return (struct work){
        .plan = plan,
        .a = floats,
        .dz = floats + room.dz,
        .made = floats + room.made,
        .room = floats + room.work,
        .dw = plan->dw_sums + (int64_t)part * lines(plan->sums_floats),
        .first = sums,
        .second = sums + channels,
    };
}

/* Rows of x as the convolution sees them, into the slot from its row `to` on. */
static void make_input(const struct work *work, int64_t row, int64_t rows, int64_t to)
{
    const struct plan *plan = work->plan;

    if (plan->has_norm)
        plan->norm->normalize(&plan->in, plan->x + row * plan->d.c, rows, plan->d.c,
                              work->a + to * plan->d.c);
}

/* Likewise dz with what flows back through the moments of z. */
static void make_gradient(const struct work *work, int64_t row, int64_t rows, int64_t to)
{
    const struct plan *plan = work->plan;
    const int64_t at = row * plan->o;

    if (plan->has_stats)
        plan->norm->spread(&plan->out, plan->dz + at, plan->z + at, rows, plan->o,
                           work->dz + to * plan->o);
}

/* Some rows of z were made, in memory or, if that is far, in the slot. */
static void take_moments(struct work *work, const float *z, int64_t row, int64_t rows)
{
    const struct plan *plan = work->plan;

    plan->norm->moments(z, rows, plan->o, work->seen, work->first, work->second,
                        plan->is_far ? plan->to + row * plan->o : NULL);
    work->seen += rows;
}

/* Some rows of the gradient of a were made. */
static void take_gradient(struct work *work, float *da, int64_t row, int64_t rows)
{
    const struct plan *plan = work->plan;
    const int64_t at = row * plan->d.c;

    plan->norm->back(&plan->in, da, plan->x + at, rows, plan->d.c, plan->is_far, plan->to + at,
                     work->first, work->second);
}

/* 1x1 ---------------------------------------------------------------------------------------- */

static void chunk_forward(struct work *work, int64_t row, int64_t rows)
{
    const struct plan *plan = work->plan;
    float *z = plan->has_stats && plan->is_far ? work->made : plan->to + row * plan->o;

    make_input(work, row, rows, 0);
    plan->products->multiply(plan->has_norm ? work->a : plan->x + row * plan->d.c, rows,
                             plan->d.c, plan->packed, plan->o, z, work->room);
    if (plan->has_stats)
        take_moments(work, z, row, rows);
}

static void chunk_back(struct work *work, int64_t row, int64_t rows)
{
    const struct plan *plan = work->plan;
    const float *a = plan->has_norm ? work->a : plan->x + row * plan->d.c;
    const float *dz = plan->has_stats ? work->dz : plan->dz + row * plan->o;
    float *da = plan->has_norm ? work->made : plan->to + row * plan->d.c;

    make_input(work, row, rows, 0);
    make_gradient(work, row, rows, 0);
    plan->products->add_weight(a, dz, rows, plan->d.c, plan->o, work->dw, work->room);
    plan->products->multiply(dz, rows, plan->o, plan->packed, plan->d.c, da, work->room);
    if (plan->has_norm)
        take_gradient(work, da, row, rows);
}

static void run_rows(struct work *work, int64_t part)
{
    const struct plan *plan = work->plan;
    int64_t first;
    const int64_t count = gemm_part(rows_of(plan), plan->parts, part, &first);

    if (plan->products->begin)
        plan->products->begin();
    for (int64_t row = first; row < first + count; row += plan->chunk) {
        const int64_t rows = at_most(plan->chunk, first + count - row);
        if (plan->is_back)
            chunk_back(work, row, rows);
        else
            chunk_forward(work, row, rows);
    }
    if (plan->products->end)
        plan->products->end();
}

/* Depthwise ---------------------------------------------------------------------------------- */

/* Rows of one image that are made when they are first needed: those from `base` on lie in the slot. */
struct band {
    int64_t base, end; /* of the rows that are there */
    int64_t room;      /* there is for so many */
    int64_t width;     /* places of a row */
    int64_t floats;    /* of a row */
    float *rows;
};

/* Makes room for rows up to `end`; those before `first` are needed no more. */
static void move_band(struct band *band, int64_t first, int64_t end)
{
    if (end <= band->base + band->room)
        return;
    memmove(band->rows, band->rows + (first - band->base) * band->floats,
            (size_t)((band->end - first) * band->floats) * sizeof(float));
    band->base = first;
}

/* Where row 0 of the image would lie. */
static const float *origin(const struct band *band)
{
    return band->rows - band->base * band->floats;
}

/* An image goes through row by row, so what is made of it is near from its first use to its last. */
struct image {
    int64_t x, z; /* the first place of it */
    struct band a, dz;
    int64_t dx_rows; /* that are done */
};

/* The image as the convolution sees it, of which rows [first, end) are needed. */
static const float *see_rows(const struct work *work, struct image *image, int64_t first,
                             int64_t end)
{
    struct band *band = &image->a;

    if (!work->plan->has_norm)
        return work->plan->x + image->x * work->plan->d.c;
    first = at_least(first, 0);
    end = at_most(end, work->plan->d.h);
    if (end > band->end) {
        move_band(band, at_most(first, band->end), end);
        make_input(work, image->x + band->end * band->width, (end - band->end) * band->width,
                   (band->end - band->base) * band->width);
        band->end = end;
    }
    return origin(band);
}

/* Likewise dz. */
static const float *see_gradient(const struct work *work, struct image *image, int64_t first,
                                 int64_t end)
{
    struct band *band = &image->dz;

    if (!work->plan->has_stats)
        return work->plan->dz + image->z * work->plan->o;
    if (end > band->end) {
        move_band(band, at_most(first, band->end), end);
        make_gradient(work, image->z + band->end * band->width, (end - band->end) * band->width,
                      (band->end - band->base) * band->width);
        band->end = end;
    }
    return origin(band);
}

static struct image image_at(const struct work *work, int64_t number)
{
    const struct depthwise *d = &work->plan->d;

    return (struct image){
        .x = number * d->h * d->w,
        .z = number * d->oh * d->ow,
        .a = { .room = x_room(d), .width = d->w, .floats = d->w * d->c, .rows = work->a },
        .dz = { .room = z_room(d), .width = d->ow, .floats = d->ow * d->c, .rows = work->dz },
    };
}

static void image_forward(struct work *work, int64_t number)
{
    const struct plan *plan = work->plan;
    const struct depthwise *d = &plan->d;
    struct image image = image_at(work, number);

    for (int64_t oy = 0; oy < d->oh; oy++) {
        const int64_t row = image.z + oy * d->ow, first = oy * d->sh - d->ph;
        float *z = plan->has_stats && plan->is_far ? work->made : plan->to + row * d->c;

        plan->deep->forward(d, see_rows(work, &image, first, first + d->kh), oy, plan->w, NULL,
                            z);
        if (plan->has_stats)
            take_moments(work, z, row, d->ow);
    }
}

/* Rows of dz that row iy of dx is made from: [first, end). */
static int64_t first_needed(const struct depthwise *d, int64_t iy)
{
    if (depthwise_is_turned(d))
        return at_least(0, iy + d->ph - (d->kh - 1));
    return depthwise_is_halved(d) ? at_most(iy / 2, d->oh) : 0;
}

static int64_t end_needed(const struct depthwise *d, int64_t iy)
{
    if (depthwise_is_turned(d))
        return at_most(d->oh, iy + d->ph + 1);
    return depthwise_is_halved(d) ? at_most(d->oh, iy / 2 + 2) : d->oh;
}

/* The next row of dx, or the next two. */
static void next_row(struct work *work, struct image *image, const float *dz)
{
    const struct plan *plan = work->plan;
    const struct depthwise *d = &plan->d, t = depthwise_turned(d);
    const int64_t iy = image->dx_rows, rows = at_most(dx_room(d), d->h - iy);
    const int64_t place = image->x + iy * d->w;
    float *row = plan->has_norm ? work->made : plan->to + place * d->c;

    if (depthwise_is_turned(d))
        plan->deep->forward(&t, dz, iy, plan->packed, NULL, row);
    else if (depthwise_is_halved(d))
        plan->deep->input_halved(d, dz, iy / 2, plan->w, row - iy * d->w * d->c);
    else
        plan->deep->input(d, dz, iy, plan->w, row);
    if (plan->has_norm)
        take_gradient(work, row, place, rows * d->w);
    image->dx_rows += rows;
}

static void image_back(struct work *work, int64_t number)
{
    const struct plan *plan = work->plan;
    const struct depthwise *d = &plan->d;
    struct image image = image_at(work, number);

    for (int64_t oy = 0; oy < d->oh; oy++) {
        const int64_t first = oy * d->sh - d->ph;
        const float *a = see_rows(work, &image, first, first + d->kh);
        const float *dz =
            see_gradient(work, &image, at_most(oy, first_needed(d, image.dx_rows)), oy + 1);

        plan->deep->weight(d, a, dz, oy, false, work->dw);
        while (image.dx_rows < d->h && end_needed(d, image.dx_rows) <= oy + 1)
            next_row(work, &image, dz);
    }
}

static void run_images(struct work *work, int64_t part)
{
    const struct plan *plan = work->plan;
    int64_t first;
    const int64_t count = gemm_part(plan->d.n, plan->parts, part, &first);

    for (int64_t image = first; image < first + count; image++) {
        if (plan->is_back)
            image_back(work, image);
        else
            image_forward(work, image);
    }
}

/* All parts ---------------------------------------------------------------------------------- */

static void run_part(void *arg, size_t part, size_t slot)
{
    const struct plan *plan = arg;
    struct work work = work_of(plan, part, slot);

    memset(work.first, 0, (size_t)(2 * sum_channels(plan)) * sizeof(double));
    if (plan->is_back)
        memset(work.dw, 0, (size_t)plan->sums_floats * sizeof(float));
    if (plan->deep)
        run_images(&work, (int64_t)part);
    else
        run_rows(&work, (int64_t)part);
    if (plan->is_far)
        plan->norm->end_far();
}

/* The numbers of both norms. */
static void set_numbers(struct plan *plan, const struct kernel_call *call, float *numbers)
{
    const struct attrs *a = &call->problem->attrs;

    if (plan->has_norm) {
        const float *const *in = (const float *const *)call->in + norm_at(plan);
        const float *gamma = in[0], *saved = in[2];
        for (int64_t c = 0; c < plan->d.c; c++)
            numbers[c] = gamma[c] * saved[plan->d.c + c];
        plan->in = (struct norm_numbers){
            .mean = saved,
            .scale = numbers,
            .shift = in[1],
            .low = a->activation != ACTIVATION_NONE ? 0.0F : -INFINITY,
            .high = a->activation == ACTIVATION_RELU6 ? 6.0F : INFINITY,
        };
    }
    if (plan->is_back && plan->has_stats) {
        const float *const *in = (const float *const *)call->in + stats_at(plan);
        const float *saved = in[1], *dsaved = in[2];
        const double n = (double)(plan->d.n * plan->d.oh * plan->d.ow);
        float *slope = numbers + lines(plan->d.c), *shift = slope + lines(plan->o);
        for (int64_t o = 0; o < plan->o; o++) {
            const double rstd = (double)saved[plan->o + o];
            slope[o] = (float)(-(double)dsaved[plan->o + o] * rstd * rstd * rstd / n);
            shift[o] = (float)((double)dsaved[o] / n);
        }
        plan->z = in[0];
        plan->out = (struct norm_numbers){ .mean = saved, .scale = slope, .shift = shift };
    }
}

static void pack(struct plan *plan, struct pool *pool)
{
    const struct depthwise *d = &plan->d;
    const int64_t taps = d->kh * d->kw;

    if (plan->deep) {
        float *turned_w = plan->packed;
        for (int64_t tap = 0; plan->is_back && tap < taps; tap++)
            memcpy(turned_w + tap * d->c, plan->w + (taps - 1 - tap) * d->c,
                   (size_t)d->c * sizeof(float));
    } else if (plan->is_back) {
        plan->products->pack(plan->w, 1, plan->o, plan->o, d->c, pool, plan->packed);
    } else {
        plan->products->pack(plan->w, plan->o, 1, d->c, plan->o, pool, plan->packed);
    }
}

/* Rows or images that a part has. */
static int64_t part_count(const struct plan *plan, int64_t part)
{
    int64_t first;

    return plan->deep
               ? gemm_part(plan->d.n, plan->parts, part, &first) * plan->d.oh * plan->d.ow
               : gemm_part(rows_of(plan), plan->parts, part, &first);
}

/* Moments of all parts onto the first one's, and what batch_norm has of them. */
static void finish_moments(const struct plan *plan, const struct kernel_call *call)
{
    const int64_t o = plan->o, step = lines(2 * o);
    const double epsilon = (double)call->problem->attrs.epsilon;
    const double share = (double)plan->d.n * (double)call->step->inv_batch;
    double *mean = plan->sums, *squares = mean + o, n = (double)part_count(plan, 0);
    float *saved = call->out[1], *seen_mean = call->out[2], *seen_variance = call->out[3];

    for (int64_t part = 1; part < plan->parts; part++) {
        const double *sums = plan->sums + part * step, more = (double)part_count(plan, part);
        const double weight = more / (n + more), spread = n * weight;
        for (int64_t i = 0; i < o; i++) {
            const double delta = sums[i] - mean[i];
            mean[i] += delta * weight;
            squares[i] += sums[o + i] + delta * delta * spread;
        }
        n += more;
    }
    for (int64_t i = 0; i < o; i++) {
        saved[i] = (float)mean[i];
        saved[o + i] = (float)(1 / sqrt(squares[i] / n + epsilon));
        seen_mean[i] = (float)(mean[i] * share);
        seen_variance[i] = (float)(squares[i] / (n > 1 ? n - 1 : 1) * share);
    }
}

/* Gradients of scale, shift and statistics. */
static void finish_sums(const struct plan *plan, const struct kernel_call *call)
{
    const int64_t c = plan->d.c, step = lines(2 * c);
    const float *gamma = call->in[3], *saved = call->in[5];
    float *dgamma = call->out[2], *dbeta = call->out[3], *dsaved = call->out[4];
    double *sum = plan->sums, *product = sum + c;

    for (int64_t part = 1; part < plan->parts; part++) {
        for (int64_t i = 0; i < 2 * c; i++)
            sum[i] += plan->sums[part * step + i];
    }
    for (int64_t i = 0; i < c; i++) {
        const double rstd = (double)saved[c + i];
        dgamma[i] = (float)(product[i] * rstd);
        dbeta[i] = (float)sum[i];
        dsaved[i] = (float)(-(double)gamma[i] * rstd * sum[i]);
        dsaved[c + i] = (float)((double)gamma[i] * product[i]);
    }
}

static bool can_go_far(const struct kernel_call *call)
{
    const struct kernel_tensor *to = &call->problem->out[0];

    return shape_count(&to->shape) >= FAR_BYTES / 4 &&
           to->shape.dim[1] % (LINE_BYTES / 4) == 0 &&
           (uintptr_t)call->out[0] % LINE_BYTES == 0;
}

void norm_conv_run(const struct kernel_call *call, const struct norm_products *products)
{
    struct plan plan = plan_of(call->problem, products);
    float *at = call->scratch;

    plan.is_far = can_go_far(call) && (plan.is_back ? plan.has_norm : plan.has_stats);
    plan.x = call->in[plan.is_back ? 2 : 0];
    plan.w = call->in[1];
    plan.dz = call->in[0];
    plan.to = call->out[0];
    set_numbers(&plan, call, at);
    plan.packed = at + number_floats(&plan);
    plan.dw_sums = at + number_floats(&plan) + packed_floats(&plan);
    plan.sums = (double *)(plan.dw_sums + plan.parts * lines(plan.sums_floats));
    plan.slots = (char *)(plan.sums + plan.parts * lines(2 * sum_channels(&plan)));
    plan.slot_bytes = (size_t)slot_floats(&plan) * sizeof(float);
    pack(&plan, call->pool);
    pool_for_slots(call->pool, (size_t)plan.parts, (size_t)plan.parts, run_part, &plan);
    if (plan.is_back)
        gemm_column_sums(tile_current(), plan.dw_sums, lines(plan.sums_floats), plan.parts,
                         plan.sums_floats, call->pool, call->out[1]);
    if (plan.is_back && plan.has_norm)
        finish_sums(&plan, call);
    if (!plan.is_back && plan.has_stats)
        finish_moments(&plan, call);
}
