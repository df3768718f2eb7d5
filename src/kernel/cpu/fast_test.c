/* SPDX-License-Identifier: MIT */
/* fast_test.c - every fast kernel of linear and convolution against plain sums in double.
 *
 * Shapes are random and ragged. Every buffer stands between guard bytes; scratch is filled
 * with rubbish. Pools of 1, 2 and 3 threads must give the bits of no pool. ctest runs
 * the program once for each instruction set (TUTTI_ISA).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/test.h"
#include "kernel/cpu/rows.h"
#include "kernel/kernel.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5, N_POOLS = 3 };

/* Buffers ------------------------------------------------------------------------------ */

struct buffer {
    unsigned char *block;
    size_t bytes;
    void *data; /* off by `shift` floats from the alignment: bits must not depend on it */
};

static struct buffer make_buffer(size_t bytes, size_t shift)
{
    struct buffer buffer = { .bytes = bytes };

    CHECK_OK(mem_alloc(bytes + 4 * GUARD, 1, &buffer.block));
    memset(buffer.block, GUARD_BYTE, bytes + 4 * GUARD);
    buffer.data = buffer.block + GUARD + shift * sizeof(float);
    return buffer;
}

static bool is_guarded(const struct buffer *buffer)
{
    const unsigned char *data = buffer->data, *end = buffer->block + buffer->bytes + 4 * GUARD;

    for (const unsigned char *p = buffer->block; p < data; p++) {
        if (*p != GUARD_BYTE)
            return false;
    }
    for (const unsigned char *p = data + buffer->bytes; p < end; p++) {
        if (*p != GUARD_BYTE)
            return false;
    }
    return true;
}

/* A tensor of the problem in plain order, and as the kernel sees it. */
struct value {
    int64_t count;
    float *plain;
    struct buffer buffer;
};

static struct value random_value(struct rng *rng, const struct kernel_tensor *tensor)
{
    struct value value = { .count = shape_count(&tensor->shape) };

    CHECK_OK(mem_alloc((size_t)value.count, sizeof(float), &value.plain));
    for (int64_t i = 0; i < value.count; i++)
        value.plain[i] = rng_float(rng) - 0.5f;
    value.buffer = make_buffer((size_t)value.count * sizeof(float), rng_below(rng, 3));
    layout_from_plain(tensor->layout, &tensor->shape, sizeof(float), value.plain,
                      value.buffer.data);
    return value;
}

static void release_value(struct value *value)
{
    mem_free(value->plain);
    mem_free(value->buffer.block);
}

/* The plain sums ----------------------------------------------------------------------- */

struct conv_sizes {
    int64_t n, c, h, w, o, oh, ow, kh, kw;
    int sh, sw, ph, pw;
};

static int64_t at4(const int64_t *dim, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return ((a * dim[1] + b) * dim[2] + c) * dim[3] + d;
}

/* Calls visit for every product x[i] w[j] that is part of y[k]. */
typedef void visit_fn(void *arg, int64_t x, int64_t w, int64_t y);
static void visit_conv(const struct conv_sizes *s, visit_fn *visit, void *arg)
{
    const int64_t x_dim[4] = { s->n, s->c, s->h, s->w },
                  w_dim[4] = { s->o, s->c, s->kh, s->kw },
                  y_dim[4] = { s->n, s->o, s->oh, s->ow };

    for (int64_t n = 0; n < s->n; n++)
        for (int64_t o = 0; o < s->o; o++)
            for (int64_t y = 0; y < s->oh; y++)
                for (int64_t x = 0; x < s->ow; x++)
                    for (int64_t c = 0; c < s->c; c++)
                        for (int64_t ky = 0; ky < s->kh; ky++)
                            for (int64_t kx = 0; kx < s->kw; kx++) {
                                const int64_t iy = y * s->sh + ky - s->ph;
                                const int64_t ix = x * s->sw + kx - s->pw;
                                if (iy >= 0 && iy < s->h && ix >= 0 && ix < s->w)
                                    visit(arg, at4(x_dim, n, c, iy, ix),
                                          at4(w_dim, o, c, ky, kx), at4(y_dim, n, o, y, x));
                            }
}

struct sums {
    const float *x, *w, *dy;
    double *out;
};

static void add_forward(void *arg, int64_t x, int64_t w, int64_t y)
{
    struct sums *s = arg;
    s->out[y] += (double)s->x[x] * s->w[w];
}
static void add_input(void *arg, int64_t x, int64_t w, int64_t y)
{
    struct sums *s = arg;
    s->out[x] += (double)s->dy[y] * s->w[w];
}
static void add_weight(void *arg, int64_t x, int64_t w, int64_t y)
{
    struct sums *s = arg;
    s->out[w] += (double)s->x[x] * s->dy[y];
}

struct expected {
    double *sum[KERNEL_OUT];
    double terms; /* of a sum */
};

/* Running -------------------------------------------------------------------------------- */

static void run_once(const struct kernel *kernel, const struct kernel_problem *problem,
                     struct value *const *in, struct buffer *out, struct pool *pool)
{
    const size_t bytes = kernel->scratch_bytes == NULL ? 0 : kernel->scratch_bytes(problem);
    struct buffer scratch = make_buffer(bytes, 0);
    struct kernel_call call = { .problem = problem, .scratch = scratch.data, .pool = pool };

    for (int i = 0; i < problem->n_in; i++)
        call.in[i] = in[i]->buffer.data;
    for (int i = 0; i < problem->n_out; i++)
        call.out[i] = out[i].data;
    if (kernel->prepare != NULL)
        CHECK_OK(kernel->prepare(problem, &call.state));
    kernel->run(&call);
    if (kernel->release != NULL)
        kernel->release(call.state);
    CHECK(is_guarded(&scratch));
    for (int i = 0; i < problem->n_in; i++)
        CHECK(is_guarded(&in[i]->buffer));
    for (int i = 0; i < problem->n_out; i++)
        CHECK(is_guarded(&out[i]));
    mem_free(scratch.block);
}

static struct buffer output_buffer(const struct kernel_tensor *tensor, size_t shift)
{
    return make_buffer((size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype), shift);
}

/* Runs a kernel without a pool, then with pools, other addresses and the same bits. */
static void run_all(const struct kernel *kernel, const struct kernel_problem *problem,
                    struct value *const *in, struct buffer out[KERNEL_OUT])
{
    for (int i = 0; i < problem->n_out; i++)
        out[i] = output_buffer(&problem->out[i], 0);
    run_once(kernel, problem, in, out, NULL);
    for (int threads = 1; threads <= N_POOLS; threads++) {
        struct buffer again[KERNEL_OUT] = { 0 };
        struct pool *pool;

        CHECK_OK(pool_create(threads, &pool));
        for (int i = 0; i < problem->n_out; i++)
            again[i] = output_buffer(&problem->out[i], (size_t)threads);
        run_once(kernel, problem, in, again, pool);
        for (int i = 0; i < problem->n_out; i++) {
            CHECK(memcmp(out[i].data, again[i].data, out[i].bytes) == 0);
            mem_free(again[i].block);
        }
        pool_destroy(pool);
    }
}

static void check_close(const double *expected, const struct kernel_tensor *tensor,
                        const struct buffer *buffer, double tolerance)
{
    const int64_t count = shape_count(&tensor->shape);
    float *plain;

    CHECK_OK(mem_alloc((size_t)count, sizeof(float), &plain));
    layout_to_plain(tensor->layout, &tensor->shape, sizeof(float), buffer->data, plain);
    for (int64_t i = 0; i < count; i++)
        CHECK_CLOSE(expected[i], plain[i], tolerance);
    mem_free(plain);
}

static struct kernel_tensor tensor_of(enum layout layout, struct shape shape)
{
    return (struct kernel_tensor){ DTYPE_F32, layout, shape };
}

/* The tables that hold `op`, from all rows of this build. */
static const struct kernel *const tables[] = {
    kernel_linear_rows,   kernel_conv_rows, kernel_conv_pool_rows,
#ifdef HAVE_AMX
    kernel_conv_amx_rows,
#endif
#ifdef HAVE_ONEDNN
    kernel_onednn_rows,
#endif
#ifdef HAVE_OPENBLAS
    kernel_openblas_rows,
#endif
};

static bool is_rough(const struct kernel *kernel)
{
    return strcmp(kernel->name, "winograd") == 0 || strcmp(kernel->name, "amx_pairs") == 0;
}

/* slack: how much more than plain sums a kernel may be off. */
typedef void check_fn(const struct kernel_problem *problem, struct buffer *out, double slack,
                      void *arg);
static void check_named(const char *name, const struct kernel_problem *problem,
                        struct value *const *in, check_fn *check, void *arg)
{
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        for (const struct kernel *kernel = tables[t]; kernel->op != NULL; kernel++) {
            struct buffer out[KERNEL_OUT] = { 0 };

            if (strcmp(kernel->op, problem->op) != 0 ||
                (name != NULL && strcmp(kernel->name, name) != 0) ||
                (kernel->can_run != NULL && !kernel->can_run(problem)))
                continue;
            run_all(kernel, problem, in, out);
            check(problem, out, is_rough(kernel) ? 30 : 1, arg);
            for (int i = 0; i < problem->n_out; i++)
                mem_free(out[i].block);
        }
    }
}

static void check_kernels(const struct kernel_problem *problem, struct value *const *in,
                          check_fn *check, void *arg)
{
    check_named(NULL, problem, in, check, arg);
}

static void check_sums(const struct kernel_problem *problem, struct buffer *out, double slack,
                       void *arg)
{
    const struct expected *expected = arg;

    for (int i = 0; i < problem->n_out; i++)
        check_close(expected->sum[i], &problem->out[i], &out[i],
                    slack * (4e-7 * sqrt(expected->terms) + 1e-6));
}

static double *zeros(int64_t count)
{
    double *sums;
    CHECK_OK(mem_alloc((size_t)count, sizeof(double), &sums));
    return sums;
}

static void apply_relu(double *sums, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        sums[i] = sums[i] > 0 ? sums[i] : 0;
}

/* Linear ----------------------------------------------------------------------------------- */

static void check_linear(struct rng *rng, int64_t m, int64_t n, int64_t k)
{
    const bool relu = rng_below(rng, 2), bias = rng_below(rng, 2);
    const struct kernel_tensor tx = tensor_of(LAYOUT_PLAIN, shape_2(m, k)),
                               tw = tensor_of(LAYOUT_IO, shape_2(n, k)),
                               ty = tensor_of(LAYOUT_PLAIN, shape_2(m, n)),
                               tb = tensor_of(LAYOUT_PLAIN, shape_1(n));
    struct value x = random_value(rng, &tx), w = random_value(rng, &tw),
                 b = random_value(rng, &tb), dy = random_value(rng, &ty);
    double *y = zeros(m * n), *dx = zeros(m * k), *dw = zeros(n * k), *db = zeros(n);

    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            y[i * n + j] = bias ? b.plain[j] : 0;
            db[j] += dy.plain[i * n + j];
            for (int64_t l = 0; l < k; l++) {
                y[i * n + j] += (double)x.plain[i * k + l] * w.plain[j * k + l];
                dx[i * k + l] += (double)dy.plain[i * n + j] * w.plain[j * k + l];
                dw[j * k + l] += (double)dy.plain[i * n + j] * x.plain[i * k + l];
            }
        }
    }
    if (relu)
        apply_relu(y, m * n);
    check_kernels(&(struct kernel_problem){ .op = "linear",
                                            .n_in = bias ? 3 : 2,
                                            .n_out = 1,
                                            .in = { tx, tw, tb },
                                            .out = { ty },
                                            .attrs.activation =
                                                relu ? ACTIVATION_RELU : ACTIVATION_NONE },
                  (struct value *[]){ &x, &w, &b }, check_sums,
                  &(struct expected){ { y }, (double)k });
    check_kernels(
        &(struct kernel_problem){
            .op = "linear_grad_input", .n_in = 2, .n_out = 1, .in = { ty, tw }, .out = { tx } },
        (struct value *[]){ &dy, &w }, check_sums, &(struct expected){ { dx }, (double)n });
    check_kernels(&(struct kernel_problem){ .op = "linear_grad_weight",
                                            .n_in = 2,
                                            .n_out = bias ? 2 : 1,
                                            .in = { tx, ty },
                                            .out = { tw, tb } },
                  (struct value *[]){ &x, &dy }, check_sums,
                  &(struct expected){ { dw, db }, (double)m });
    struct value *values[] = { &x, &w, &b, &dy };
    double *sums[] = { y, dx, dw, db };
    for (int i = 0; i < 4; i++) {
        release_value(values[i]);
        mem_free(sums[i]);
    }
}

static void test_linear_agrees_with_plain_sums(struct rng *rng)
{
    check_linear(rng, 1 + (int64_t)rng_below(rng, 80), 1 + (int64_t)rng_below(rng, 140),
                 1 + (int64_t)rng_below(rng, 300));
}

/* Sizes at which panels are packed and the shared dimension is cut. */
static void test_large_linear_agrees_with_plain_sums(void)
{
    static const int64_t sizes[][3] = {
        { 130, 1030, 270 }, { 300, 100, 700 }, { 520, 97, 259 }, { 33, 600, 530 },
        { 1, 515, 513 },    { 600, 65, 65 },   { 97, 512, 768 },
    };
    struct rng rng;

    rng_init(&rng, 7, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_linear(&rng, sizes[i][0], sizes[i][1], sizes[i][2]);
}

/* Convolution ------------------------------------------------------------------------------ */

static void check_pooled(const struct kernel_problem *problem, struct buffer *out, double slack,
                         void *arg)
{
    const struct conv_sizes *s = ((void **)arg)[0];
    const double *y = ((void **)arg)[1];
    const bool relu = problem->attrs.activation == ACTIVATION_RELU;
    const int64_t ph = problem->out[0].shape.dim[2], pw = problem->out[0].shape.dim[3];
    const int wh = problem->attrs.window[0], ww = problem->attrs.window[1];
    const int64_t y_dim[4] = { s->n, s->o, s->oh, s->ow };
    const float *pooled = out[0].data;
    const uint8_t *index = out[1].data;

    for (int64_t n = 0; n < s->n; n++)
        for (int64_t i = 0; i < ph; i++)
            for (int64_t j = 0; j < pw; j++)
                for (int64_t o = 0; o < s->o; o++) {
                    const int64_t at = ((n * ph + i) * pw + j) * s->o + o;
                    double best = -INFINITY;
                    for (int p = 0; p < wh * ww; p++)
                        best =
                            fmax(best, y[at4(y_dim, n, o, i * wh + p / ww, j * ww + p % ww)]);
                    CHECK_CLOSE(best, pooled[at], slack * 1e-5);
                    if (relu && !(pooled[at] > 0)) {
                        CHECK_INT(255, index[at]);
                        continue;
                    }
                    CHECK(index[at] < wh * ww);
                    const int64_t from =
                        at4(y_dim, n, o, i * wh + index[at] / ww, j * ww + index[at] % ww);
                    CHECK_CLOSE(best, y[from], slack * 2e-5);
                }
}

/* Gradients that come as a 2x2 max pool left them: spread out here, then as above. */
static void check_pool_grads(struct rng *rng, const struct conv_sizes *s, struct attrs attrs,
                             struct value *x, const struct kernel_tensor *tx, struct value *w,
                             const struct kernel_tensor *tw)
{
    const int64_t ph = s->oh / 2, pw = s->ow / 2, y_count = s->n * s->o * s->oh * s->ow;
    const int64_t y_dim[4] = { s->n, s->o, s->oh, s->ow };
    const struct kernel_tensor ty = tensor_of(LAYOUT_NHWC, shape_4(s->n, s->o, ph, pw)),
                               tb = tensor_of(LAYOUT_PLAIN, shape_1(s->o));
    struct kernel_tensor ti = ty;
    struct value dy = random_value(rng, &ty);
    struct value index = { .buffer = make_buffer((size_t)dy.count, 0) };
    double *dx = zeros(x->count), *dw = zeros(w->count), *db = zeros(s->o);
    float *spread;

    ti.dtype = DTYPE_U8;
    attrs.window[0] = attrs.window[1] = 2;
    CHECK_OK(mem_alloc((size_t)y_count, sizeof(float), &spread));
    for (int64_t i = 0; i < dy.count; i++) { /* memory order: n, y, x, o */
        const int64_t o = i % s->o, px = i / s->o % pw, py = i / s->o / pw % ph;
        const int64_t n = i / s->o / pw / ph;
        const int place = (int)rng_below(rng, 5);

        ((uint8_t *)index.buffer.data)[i] = place < 4 ? (uint8_t)place : 255;
        if (place < 4) {
            const float value = ((const float *)dy.buffer.data)[i];
            spread[at4(y_dim, n, o, 2 * py + place / 2, 2 * px + place % 2)] = value;
            db[o] += value;
        }
    }
    visit_conv(s, add_input, &(struct sums){ .dy = spread, .w = w->plain, .out = dx });
    visit_conv(s, add_weight, &(struct sums){ .dy = spread, .x = x->plain, .out = dw });
    check_kernels(&(struct kernel_problem){ .op = "conv2d_pool_grad_input",
                                            .n_in = 3,
                                            .n_out = 1,
                                            .in = { ty, ti, *tw },
                                            .out = { *tx },
                                            .attrs = attrs },
                  (struct value *[]){ &dy, &index, w }, check_sums,
                  &(struct expected){ { dx }, (double)(s->o * s->kh * s->kw) });
    check_kernels(&(struct kernel_problem){ .op = "conv2d_pool_grad_weight",
                                            .n_in = 3,
                                            .n_out = 2,
                                            .in = { *tx, ty, ti },
                                            .out = { *tw, tb },
                                            .attrs = attrs },
                  (struct value *[]){ x, &dy, &index }, check_sums,
                  &(struct expected){ { dw, db }, (double)(s->n * s->oh * s->ow) });
    release_value(&dy);
    release_value(&index);
    mem_free(spread);
    mem_free(dx);
    mem_free(dw);
    mem_free(db);
}

static void check_conv(struct rng *rng, struct conv_sizes s)
{
    const bool relu = rng_below(rng, 2), bias = rng_below(rng, 2);

    s.oh = (s.h + 2 * s.ph - s.kh) / s.sh + 1;
    s.ow = (s.w + 2 * s.pw - s.kw) / s.sw + 1;
    const struct kernel_tensor tx = tensor_of(LAYOUT_NHWC, shape_4(s.n, s.c, s.h, s.w)),
                               tw = tensor_of(LAYOUT_HWIO, shape_4(s.o, s.c, s.kh, s.kw)),
                               ty = tensor_of(LAYOUT_NHWC, shape_4(s.n, s.o, s.oh, s.ow)),
                               tb = tensor_of(LAYOUT_PLAIN, shape_1(s.o));
    const struct attrs attrs = { .stride = { s.sh, s.sw },
                                 .pad = { s.ph, s.pw },
                                 .activation = relu ? ACTIVATION_RELU : ACTIVATION_NONE };
    struct attrs grad_attrs = attrs;
    struct value x = random_value(rng, &tx), w = random_value(rng, &tw),
                 b = random_value(rng, &tb), dy = random_value(rng, &ty);
    double *y = zeros(dy.count), *dx = zeros(x.count), *dw = zeros(w.count), *db = zeros(s.o);

    grad_attrs.activation = ACTIVATION_NONE;
    visit_conv(&s, add_forward, &(struct sums){ .x = x.plain, .w = w.plain, .out = y });
    visit_conv(&s, add_input, &(struct sums){ .dy = dy.plain, .w = w.plain, .out = dx });
    visit_conv(&s, add_weight, &(struct sums){ .dy = dy.plain, .x = x.plain, .out = dw });
    for (int64_t i = 0; i < dy.count; i++) {
        const int64_t o = i / (s.oh * s.ow) % s.o;
        db[o] += dy.plain[i];
        y[i] += bias ? b.plain[o] : 0;
    }
    if (relu)
        apply_relu(y, dy.count);
    struct kernel_problem forward = { .op = "conv2d",
                                      .n_in = bias ? 3 : 2,
                                      .n_out = 1,
                                      .in = { tx, tw, tb },
                                      .out = { ty },
                                      .attrs = attrs };
    check_kernels(&forward, (struct value *[]){ &x, &w, &b }, check_sums,
                  &(struct expected){ { y }, (double)(s.c * s.kh * s.kw) });
    check_kernels(&(struct kernel_problem){ .op = "conv2d_grad_input",
                                            .n_in = 2,
                                            .n_out = 1,
                                            .in = { ty, tw },
                                            .out = { tx },
                                            .attrs = grad_attrs },
                  (struct value *[]){ &dy, &w }, check_sums,
                  &(struct expected){ { dx }, (double)(s.o * s.kh * s.kw) });
    check_kernels(&(struct kernel_problem){ .op = "conv2d_grad_weight",
                                            .n_in = 2,
                                            .n_out = bias ? 2 : 1,
                                            .in = { tx, ty },
                                            .out = { tw, tb },
                                            .attrs = grad_attrs },
                  (struct value *[]){ &x, &dy }, check_sums,
                  &(struct expected){ { dw, db }, (double)(s.n * s.oh * s.ow) });
    if (s.oh >= 2 && s.ow >= 2) {
        struct kernel_problem pool = forward;
        pool.op = "conv2d_pool";
        pool.n_out = 2;
        pool.out[0] = tensor_of(LAYOUT_NHWC, shape_4(s.n, s.o, s.oh / 2, s.ow / 2));
        pool.out[1] = pool.out[0];
        pool.out[1].dtype = DTYPE_U8;
        pool.attrs.window[0] = pool.attrs.window[1] = 2;
        check_kernels(&pool, (struct value *[]){ &x, &w, &b }, check_pooled,
                      (void *[]){ &s, y });
        check_pool_grads(rng, &s, grad_attrs, &x, &tx, &w, &tw);
    }
    struct value *values[] = { &x, &w, &b, &dy };
    double *sums[] = { y, dx, dw, db };
    for (int i = 0; i < 4; i++) {
        release_value(values[i]);
        mem_free(sums[i]);
    }
}

static void test_convolution_agrees_with_plain_sums(struct rng *rng)
{
    struct conv_sizes s = { 0 };

    s.n = 1 + (int64_t)rng_below(rng, 5);
    s.c = rng_below(rng, 3) == 0 ? 1 + (int64_t)rng_below(rng, 4)
                                 : 1 + (int64_t)rng_below(rng, 40);
    s.o = 1 + (int64_t)rng_below(rng, 70);
    s.kh = 1 + (int64_t)rng_below(rng, 4);
    s.kw = rng_below(rng, 2) ? s.kh : 1 + (int64_t)rng_below(rng, 4);
    s.h = s.kh + (int64_t)rng_below(rng, 10);
    s.w = s.kw + (int64_t)rng_below(rng, 10);
    s.sh = 1 + (int)rng_below(rng, 3);
    s.sw = rng_below(rng, 2) ? s.sh : 1 + (int)rng_below(rng, 3);
    s.ph = (int)rng_below(rng, 3);
    s.pw = (int)rng_below(rng, 3);
    if (rng_below(rng, 3) == 0) { /* what Winograd's method takes */
        s.kh = s.kw = 3;
        s.sh = s.sw = 1;
        s.h += 2;
        s.w += 2;
    } else if (rng_below(rng, 3) == 0) { /* and in phases */
        s.kh = s.kw = 3;
        s.sh = s.sw = 2;
        s.ph = s.pw = 1;
    }
    check_conv(rng, s);
}

/* Sizes at which planes become strips, rows are cut, channels come in blocks and panels, tiles
 * in several units, and phases have no pixel. */
static void test_large_convolution_agrees_with_plain_sums(void)
{
    static const struct conv_sizes sizes[] = {
        { .n = 3,
          .c = 1,
          .h = 12,
          .w = 14,
          .o = 32,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 2,
          .c = 1,
          .h = 9,
          .w = 8,
          .o = 45,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 0,
          .pw = 0 },
        { .n = 2,
          .c = 1,
          .h = 7,
          .w = 9,
          .o = 11,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 2,
          .pw = 1 },
        { .n = 2,
          .c = 300,
          .h = 9,
          .w = 13,
          .o = 35,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 0 },
        { .n = 1,
          .c = 4,
          .h = 40,
          .w = 38,
          .o = 18,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 1,
          .c = 350,
          .h = 4,
          .w = 5,
          .o = 20,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 2,
          .c = 150,
          .h = 5,
          .w = 3,
          .o = 33,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .n = 2,
          .c = 3,
          .h = 40,
          .w = 150,
          .o = 17,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 1,
          .c = 33,
          .h = 50,
          .w = 60,
          .o = 9,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 1,
          .c = 34,
          .h = 45,
          .w = 60,
          .o = 9,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .n = 9,
          .c = 5,
          .h = 20,
          .w = 3,
          .o = 7,
          .kh = 18,
          .kw = 1,
          .sh = 1,
          .sw = 1,
          .ph = 0,
          .pw = 0 },
        { .n = 2,
          .c = 3,
          .h = 15,
          .w = 15,
          .o = 64,
          .kh = 7,
          .kw = 7,
          .sh = 2,
          .sw = 2,
          .ph = 3,
          .pw = 3 },
        { .n = 33,
          .c = 20,
          .h = 2,
          .w = 2,
          .o = 30,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 3,
          .c = 340,
          .h = 6,
          .w = 6,
          .o = 40,
          .kh = 1,
          .kw = 1,
          .sh = 2,
          .sw = 2,
          .ph = 0,
          .pw = 0 },
        { .n = 20,
          .c = 70,
          .h = 5,
          .w = 5,
          .o = 70,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 90,
          .c = 20,
          .h = 5,
          .w = 5,
          .o = 66,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 70,
          .c = 270,
          .h = 2,
          .w = 2,
          .o = 20,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 3,
          .c = 18,
          .h = 2,
          .w = 2,
          .o = 35,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 3,
          .c = 1,
          .h = 28,
          .w = 28,
          .o = 6,
          .kh = 5,
          .kw = 5,
          .sh = 1,
          .sw = 1,
          .ph = 0,
          .pw = 0 },
        { .n = 2,
          .c = 1,
          .h = 8,
          .w = 77,
          .o = 9,
          .kh = 5,
          .kw = 5,
          .sh = 1,
          .sw = 1,
          .ph = 2,
          .pw = 1 },
        { .n = 3,
          .c = 6,
          .h = 12,
          .w = 12,
          .o = 16,
          .kh = 5,
          .kw = 5,
          .sh = 1,
          .sw = 1,
          .ph = 0,
          .pw = 0 },
        { .n = 2,
          .c = 5,
          .h = 9,
          .w = 11,
          .o = 7,
          .kh = 5,
          .kw = 5,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 2 },
        { .n = 3,
          .c = 18,
          .h = 1,
          .w = 2,
          .o = 35,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .n = 40,
          .c = 140,
          .h = 9,
          .w = 7,
          .o = 70,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .n = 90,
          .c = 20,
          .h = 8,
          .w = 11,
          .o = 150,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .n = 2,
          .c = 35,
          .h = 10,
          .w = 3,
          .o = 20,
          .kh = 3,
          .kw = 3,
          .sh = 2,
          .sw = 2,
          .ph = 1,
          .pw = 1 },
        { .n = 40, /* more than one block of images and chunk of channels by AMX */
          .c = 300,
          .h = 3,
          .w = 4,
          .o = 35,
          .kh = 3,
          .kw = 3,
          .sh = 1,
          .sw = 1,
          .ph = 1,
          .pw = 1 },
        { .n = 33,
          .c = 40,
          .h = 9,
          .w = 7,
          .o = 70,
          .kh = 1,
          .kw = 1,
          .sh = 2,
          .sw = 3,
          .ph = 0,
          .pw = 0 },
    };
    struct rng rng;

    rng_init(&rng, 9, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_conv(&rng, sizes[i]);
}

/* Weight gradients that are zero, and rounding errors by Winograd's method ------------------ */

/* The sums of a weight gradient: weight (o, c, tap) is number (o * inputs + c) * 9 + tap. */
struct products {
    const float *x, *dy;
    double *sum;
    bool is_met[9];           /* taps that meet a pixel where dy is not zero */
    double *x_norm, *dy_norm; /* of each channel */
    int64_t inputs;
    double limit; /* of errors, as a part of the product of norms */
};

static void add_product(void *arg, int64_t x, int64_t w, int64_t y)
{
    struct products *p = arg;

    p->sum[w] += (double)p->x[x] * p->dy[y];
    p->is_met[w % 9] |= p->dy[y] != 0;
}

static double norms_at(const struct products *p, int64_t weight)
{
    return p->x_norm[weight / 9 % p->inputs] * p->dy_norm[weight / 9 / p->inputs];
}

/* The norm of each channel of a tensor (n, channels, rows, columns). */
static double *channel_norms(const struct value *value, const struct shape *shape)
{
    const int64_t pixels = shape->dim[2] * shape->dim[3];
    double *norms = zeros(shape->dim[1]);

    for (int64_t i = 0; i < value->count; i++)
        norms[i / pixels % shape->dim[1]] += (double)value->plain[i] * value->plain[i];
    for (int64_t c = 0; c < shape->dim[1]; c++)
        norms[c] = sqrt(norms[c]);
    return norms;
}

/* Gradients are zero where a channel is zero or a tap meets no pixel. */
static void check_zeros(const struct kernel_problem *problem, struct buffer *out, double slack,
                        void *arg)
{
    const struct products *products = arg;
    const struct kernel_tensor *tensor = &problem->out[0];
    const int64_t count = shape_count(&tensor->shape);
    float *plain;

    (void)slack;
    CHECK_OK(mem_alloc((size_t)count, sizeof(float), &plain));
    layout_to_plain(tensor->layout, &tensor->shape, sizeof(float), out[0].data, plain);
    for (int64_t i = 0; i < count; i++)
        CHECK((products->is_met[i % 9] && norms_at(products, i) > 0) || plain[i] == 0);
    mem_free(plain);
}

static void check_errors(const struct kernel_problem *problem, struct buffer *out, double slack,
                         void *arg)
{
    const struct products *products = arg;
    const struct kernel_tensor *tensor = &problem->out[0];
    const int64_t count = shape_count(&tensor->shape);
    float *plain;

    (void)slack;
    CHECK_OK(mem_alloc((size_t)count, sizeof(float), &plain));
    layout_to_plain(tensor->layout, &tensor->shape, sizeof(float), out[0].data, plain);
    for (int64_t i = 0; i < count; i++)
        CHECK_CLOSE(products->sum[i], plain[i], products->limit * norms_at(products, i));
    mem_free(plain);
}

/* Numbers of weight gradients' operands. */
struct density {
    int kept;      /* of 256, about; the others become zero */
    int64_t every; /* channels c % every == 1 become zero */
    float mean;
};

static void make_sparse(struct rng *rng, struct value *value,
                        const struct kernel_tensor *tensor, struct density density)
{
    const int64_t pixels = tensor->shape.dim[2] * tensor->shape.dim[3];

    for (int64_t i = 0; i < value->count; i++)
        if (i / pixels % tensor->shape.dim[1] % density.every == 1 ||
            (int)rng_below(rng, 256) >= density.kept)
            value->plain[i] = 0;
        else
            value->plain[i] += density.mean;
    layout_from_plain(tensor->layout, &tensor->shape, sizeof(float), value->plain,
                      value->buffer.data);
}

/* dy of the pooled gradient, spread out to where `index` says. */
static void spread_pooled(struct rng *rng, const struct conv_sizes *s,
                          const struct value *pooled, uint8_t *index, struct value *dy)
{
    const int64_t rows = s->oh / 2, columns = s->ow / 2;
    const int64_t y_dim[4] = { s->n, s->o, s->oh, s->ow };

    memset(dy->plain, 0, (size_t)dy->count * sizeof(float));
    for (int64_t i = 0; i < pooled->count; i++) { /* memory order: n, y, x, o */
        const int64_t o = i % s->o, x = i / s->o % columns, y = i / s->o / columns % rows;
        const int64_t n = i / s->o / columns / rows;
        const int place = (int)rng_below(rng, 5);

        index[i] = place < 4 ? (uint8_t)place : 255;
        if (place < 4)
            dy->plain[at4(y_dim, n, o, 2 * y + place / 2, 2 * x + place % 2)] =
                ((const float *)pooled->buffer.data)[i];
    }
}

static void check_weight_op(const struct kernel_problem *problem, const struct conv_sizes *s,
                            struct value *const *in, const struct value *dy, double limit)
{
    const struct shape y_shape = shape_4(s->n, s->o, s->oh, s->ow);
    struct products products = {
        .x = in[0]->plain,
        .dy = dy->plain,
        .sum = zeros(s->o * s->c * 9),
        .x_norm = channel_norms(in[0], &problem->in[0].shape),
        .dy_norm = channel_norms(dy, &y_shape),
        .inputs = s->c,
        .limit = limit,
    };

    visit_conv(s, add_product, &products);
    check_kernels(problem, in, check_zeros, &products);
    if (limit > 0)
        check_named("winograd", problem, in, check_errors, &products);
    mem_free(products.sum);
    mem_free(products.x_norm);
    mem_free(products.dy_norm);
}

/* The gradient of a 3x3 weight, and the same through a 2x2 max pool. A limit of 0 is none. */
static void check_weight(struct rng *rng, struct conv_sizes s, struct density density,
                         double limit)
{
    s.kh = s.kw = 3;
    s.oh = (s.h + 2 * s.ph - s.kh) / s.sh + 1;
    s.ow = (s.w + 2 * s.pw - s.kw) / s.sw + 1;
    const struct kernel_tensor tx = tensor_of(LAYOUT_NHWC, shape_4(s.n, s.c, s.h, s.w)),
                               tw = tensor_of(LAYOUT_HWIO, shape_4(s.o, s.c, s.kh, s.kw)),
                               ty = tensor_of(LAYOUT_NHWC, shape_4(s.n, s.o, s.oh, s.ow)),
                               tp = tensor_of(LAYOUT_NHWC,
                                              shape_4(s.n, s.o, s.oh / 2, s.ow / 2));
    struct attrs attrs = { .stride = { s.sh, s.sw }, .pad = { s.ph, s.pw } };
    struct value x = random_value(rng, &tx), dy = random_value(rng, &ty);

    make_sparse(rng, &x, &tx, density);
    make_sparse(rng, &dy, &ty, density);
    check_weight_op(&(struct kernel_problem){ .op = "conv2d_grad_weight",
                                              .n_in = 2,
                                              .n_out = 1,
                                              .in = { tx, ty },
                                              .out = { tw },
                                              .attrs = attrs },
                    &s, (struct value *[]){ &x, &dy }, &dy, limit);
    if (s.oh >= 2 && s.ow >= 2) {
        struct kernel_tensor ti = tp;
        struct value pooled = random_value(rng, &tp);
        struct value index = { .buffer = make_buffer((size_t)pooled.count, 0) };

        ti.dtype = DTYPE_U8;
        attrs.window[0] = attrs.window[1] = 2;
        make_sparse(rng, &pooled, &tp, density);
        spread_pooled(rng, &s, &pooled, index.buffer.data, &dy);
        check_weight_op(&(struct kernel_problem){ .op = "conv2d_pool_grad_weight",
                                                  .n_in = 3,
                                                  .n_out = 1,
                                                  .in = { tx, tp, ti },
                                                  .out = { tw },
                                                  .attrs = attrs },
                        &s, (struct value *[]){ &x, &pooled, &index }, &dy, limit);
        release_value(&pooled);
        release_value(&index);
    }
    release_value(&x);
    release_value(&dy);
}

/* One or two rows or columns, where some taps meet no pixel. The pool leaves an odd last row
 * out, so a padding of 2 has such taps too. */
static void test_taps_without_pixels_have_zero_gradients(void)
{
    static const struct conv_sizes sizes[] = {
        { .n = 40, .c = 40, .h = 1, .w = 1, .o = 70, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
        { .n = 5, .c = 40, .h = 1, .w = 9, .o = 70, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
        { .n = 70, .c = 20, .h = 9, .w = 1, .o = 40, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
        { .n = 300, .c = 9, .h = 1, .w = 6, .o = 20, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
        { .n = 40, .c = 20, .h = 1, .w = 1, .o = 40, .sh = 1, .sw = 1, .ph = 2, .pw = 2 },
        { .n = 40, .c = 20, .h = 1, .w = 6, .o = 40, .sh = 1, .sw = 1, .ph = 2, .pw = 1 },
        { .n = 40, .c = 20, .h = 1, .w = 1, .o = 40, .sh = 2, .sw = 2, .ph = 1, .pw = 1 },
        { .n = 40, .c = 20, .h = 2, .w = 2, .o = 40, .sh = 2, .sw = 2, .ph = 1, .pw = 1 },
        { .n = 40, .c = 20, .h = 2, .w = 7, .o = 40, .sh = 2, .sw = 2, .ph = 1, .pw = 1 },
        { .n = 300, .c = 9, .h = 7, .w = 2, .o = 20, .sh = 2, .sw = 2, .ph = 1, .pw = 1 },
    };
    struct rng rng;

    rng_init(&rng, 11, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_weight(&rng, sizes[i], (struct density){ .kept = 256, .every = 256 }, 0);
}

/* Tiles of 4x4 outputs, 2x2 images and stride 2; several units, blocks and panels. The limits
 * are those of decision 72. */
static const struct {
    struct conv_sizes sizes;
    double limit;
} weights[] = {
    { { .n = 1, .c = 150, .h = 4, .w = 4, .o = 150, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
      1.0 / (1 << 15) },
    { { .n = 20, .c = 130, .h = 4, .w = 4, .o = 70, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
      1.0 / (1 << 15) },
    { { .n = 9, .c = 20, .h = 17, .w = 14, .o = 40, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
      1.0 / (1 << 15) },
    { { .n = 300, .c = 9, .h = 6, .w = 5, .o = 20, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
      1.0 / (1 << 15) },
    { { .n = 40, .c = 20, .h = 1, .w = 1, .o = 40, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
      1.0 / (1 << 15) },
    { { .n = 30, .c = 30, .h = 9, .w = 8, .o = 40, .sh = 2, .sw = 2, .ph = 1, .pw = 1 },
      1.0 / (1 << 17) },
    { { .n = 1, .c = 70, .h = 8, .w = 8, .o = 70, .sh = 2, .sw = 2, .ph = 1, .pw = 1 },
      1.0 / (1 << 17) },
    { { .n = 70, .c = 40, .h = 2, .w = 2, .o = 80, .sh = 1, .sw = 1, .ph = 1, .pw = 1 },
      1.0 / (1 << 18) },
};

static void test_channels_of_zeros_have_zero_gradients(void)
{
    struct rng rng;

    rng_init(&rng, 12, 0);
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        check_weight(&rng, weights[i].sizes, (struct density){ .kept = 256, .every = 3 }, 0);
}

static void test_errors_of_weight_gradients_are_bounded(void)
{
    struct rng rng;

    rng_init(&rng, 13, 0);
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        for (int kept = 4; kept <= 256; kept *= 8)
            for (int mean = 0; mean < 2; mean++)
                check_weight(
                    &rng, weights[i].sizes,
                    (struct density){ .kept = kept, .every = 256, .mean = (float)mean },
                    weights[i].limit);
}

const struct test tests[] = {
    { .name = "linear agrees with plain sums", .property = test_linear_agrees_with_plain_sums },
    { .name = "large linear agrees with plain sums",
      .run = test_large_linear_agrees_with_plain_sums },
    { .name = "convolution agrees with plain sums",
      .property = test_convolution_agrees_with_plain_sums },
    { .name = "large convolution agrees with plain sums",
      .run = test_large_convolution_agrees_with_plain_sums },
    { .name = "taps without pixels have gradients of zero",
      .run = test_taps_without_pixels_have_zero_gradients },
    { .name = "channels of zeros have gradients of zero",
      .run = test_channels_of_zeros_have_zero_gradients },
    { .name = "rounding errors of weight gradients are bounded",
      .run = test_errors_of_weight_gradients_are_bounded },
    { 0 },
};
