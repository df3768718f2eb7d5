/* SPDX-License-Identifier: MIT */
/* linear.c - the linear layer and its gradients, by own tiles.
 *
 * x is (m,k), W lies as [k][n], y is (m,n), all row-major. Work is 2*m*k*n each.
 *
 *   y  = x W       A = x by rows, B = W as it lies; bias and relu on the way out
 *   dW = x^T dy    A = x by columns, B = dy as it lies; db = sums of dy's columns
 *   dx = dy W^T    large m: A = dy by rows, B = W transposed panel by panel
 *                  small m: dx^T = W dy^T, A = W by rows, B = dy^T, and the result, smaller
 *                  than W, is transposed instead. Both sum over n in the same order.
 *
 * A weight that lies plain is [n][k]: y and dx change places, and dW^T = dy^T x. "amx" has the same
 * products by tile registers (amx.h), "amx_pairs" those of gradients by two bf16 a float, which is rough.
 */
#include <string.h>

#ifdef HAVE_AMX
#include "kernel/cpu/amx.h"
#endif
#include "kernel/cpu/gemm.h"
#include "kernel/cpu/processor.h"
#include "kernel/cpu/rows.h"

enum { SMALL_M = 64, STRIP = 48 /* rows of dx^T made at once */ };

static bool is_f32(const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].dtype != DTYPE_F32)
            return false;
    }
    for (int i = 0; i < problem->n_out; i++) {
        if (problem->out[i].dtype != DTYPE_F32)
            return false;
    }
    return true;
}

static bool can_run(const struct kernel_problem *problem)
{
    return tile_current() != NULL && is_f32(problem);
}

/* Few rows ----------------------------------------------------------------------------- */

/* C = A B with few rows and a B that lies transposed: C^T = B^T A^T strip by strip. */
static bool is_small(const struct kernel_problem *problem, const struct gemm *gemm)
{
    return gemm->b_column != 1 && gemm->m <= SMALL_M && problem->n_in == 2 && !gemm->relu;
}

static int64_t padded(const struct tile_isa *isa, int64_t m)
{
    return gemm_ceil(m, isa->lanes) * isa->lanes;
}

struct strips {
    const struct tile_isa *isa;
    const struct gemm *gemm; /* of C = A B */
    const float *turned;     /* A^T, (k, m padded) */
    int64_t width;           /* m padded */
    int n_panels;
};

/* Rows [first, first + rows) of B^T times A^T, into a strip whose rows are width apart. */
static void multiply_strip(const struct strips *strips, int64_t first, int rows, float *strip)
{
    static const ptrdiff_t no_offset[1] = { 0 };
    const struct tile_isa *isa = strips->isa;
    const struct gemm *g = strips->gemm;
    const int64_t n_blocks = gemm_ceil(g->k, GEMM_DEPTH);

    for (int p = 0; p < strips->n_panels; p++) {
        int64_t vec;
        const int vecs = (int)gemm_part(strips->width / isa->lanes, strips->n_panels, p, &vec);

        for (int64_t block = 0; block < n_blocks; block++) {
            int64_t k0;
            const int depth = (int)gemm_part(g->k, n_blocks, block, &k0);
            struct tile tile = {
                .segment = no_offset,
                .n_segments = 1,
                .depth = depth,
                .b = strips->turned + k0 * strips->width + vec * isa->lanes,
                .b_step = strips->width,
                .last = isa->lanes,
                .b_full = true,
                .accumulate = block > 0,
            };
            const int n_tiles = (int)gemm_ceil(rows, isa->rows[vecs]);
            for (int t = 0; t < n_tiles; t++) {
                int64_t at;
                const int count = (int)gemm_part(rows, n_tiles, t, &at);

                for (int i = 0; i < count; i++) {
                    tile.a[i] = g->b + (first + at + i) * g->b_column + k0;
                    tile.c[i] = strip + (at + i) * strips->width + vec * isa->lanes;
                }
                isa->by_rows(&tile, count, vecs);
            }
        }
    }
}

static void run_strip(void *arg, size_t i)
{
    const struct strips *strips = arg;
    const struct gemm *g = strips->gemm;
    _Alignas(64) float strip[STRIP * SMALL_M];
    int64_t first;
    const int rows = (int)gemm_part(g->n, gemm_ceil(g->n, STRIP), (int64_t)i, &first);

    multiply_strip(strips, first, rows, strip);
    strips->isa->transpose(strip, strips->width, rows, (int)g->m, g->c + first, g->c_row,
                           false);
}

static void run_strips(const struct gemm *gemm, struct pool *pool, float *scratch)
{
    const struct tile_isa *isa = tile_current();
    struct strips strips = {
        .isa = isa, .gemm = gemm, .turned = scratch, .width = padded(isa, gemm->m)
    };

    strips.n_panels = gemm_panels(isa, isa->rows, STRIP, gemm->m);
    isa->transpose(gemm->a, gemm->a_row, (int)gemm->m, (int)gemm->k, scratch, strips.width,
                   true);
    pool_for(pool, (size_t)gemm_ceil(gemm->n, STRIP), run_strip, &strips);
}

static size_t product_scratch(const struct kernel_problem *problem, const struct gemm *gemm)
{
    const struct tile_isa *isa = tile_current();

    if (is_small(problem, gemm))
        return (size_t)(gemm->k * padded(isa, gemm->m)) * sizeof(float);
    return gemm_scratch_bytes(isa, gemm);
}

static void run_product(const struct kernel_call *call, const struct gemm *gemm)
{
    if (is_small(call->problem, gemm))
        run_strips(gemm, call->pool, call->scratch);
    else
        gemm_run(tile_current(), gemm, call->pool, call->scratch);
}

/* Rows of a matrix of so many columns. */
static int64_t rows_of(const struct kernel_tensor *tensor, int64_t columns)
{
    return shape_count(&tensor->shape) / (columns > 0 ? columns : 1);
}

/* y = x W ------------------------------------------------------------------------------ */

static struct gemm forward_gemm(const struct kernel_problem *problem)
{
    const int64_t k = problem->in[1].shape.dim[1], n = problem->in[1].shape.dim[0];
    const bool plain = problem->in[1].layout == LAYOUT_PLAIN;

    return (struct gemm){
        .m = rows_of(&problem->in[0], k),
        .n = n,
        .k = k,
        .a_row = k,
        .a_column = 1,
        .b_row = plain ? 1 : n,
        .b_column = plain ? k : 1,
        .c_row = n,
        .relu = problem->attrs.activation == ACTIVATION_RELU,
    };
}

static size_t forward_scratch(const struct kernel_problem *problem)
{
    const struct gemm gemm = forward_gemm(problem);

    return product_scratch(problem, &gemm);
}

static struct gemm forward_of(const struct kernel_call *call)
{
    struct gemm gemm = forward_gemm(call->problem);

    gemm.a = call->in[0];
    gemm.b = call->in[1];
    gemm.bias = call->problem->n_in > 2 ? call->in[2] : NULL;
    gemm.c = call->out[0];
    return gemm;
}

static void forward_run(const struct kernel_call *call)
{
    const struct gemm gemm = forward_of(call);

    run_product(call, &gemm);
}

/* dx = dy W^T -------------------------------------------------------------------------- */

static struct gemm input_gemm(const struct kernel_problem *problem)
{
    const int64_t k = problem->in[1].shape.dim[1], n = problem->in[1].shape.dim[0];
    const bool plain = problem->in[1].layout == LAYOUT_PLAIN;

    return (struct gemm){
        .m = rows_of(&problem->in[0], n),
        .n = k,
        .k = n,
        .a_row = n,
        .a_column = 1,
        .b_row = plain ? k : 1,
        .b_column = plain ? 1 : n,
        .c_row = k,
    };
}

static size_t input_scratch(const struct kernel_problem *problem)
{
    const struct gemm gemm = input_gemm(problem);

    return product_scratch(problem, &gemm);
}

static struct gemm input_of(const struct kernel_call *call)
{
    struct gemm gemm = input_gemm(call->problem);

    gemm.a = call->in[0];
    gemm.b = call->in[1];
    gemm.c = call->out[0];
    return gemm;
}

static void input_run(const struct kernel_call *call)
{
    const struct gemm gemm = input_of(call);

    run_product(call, &gemm);
}

/* dW = x^T dy -------------------------------------------------------------------------- */

static struct gemm weight_gemm(const struct kernel_problem *problem)
{
    const int64_t k = problem->out[0].shape.dim[1], n = problem->out[0].shape.dim[0];
    const bool plain = problem->out[0].layout == LAYOUT_PLAIN;
    const int64_t rows = plain ? n : k, columns = plain ? k : n;

    return (struct gemm){
        .m = rows,
        .n = columns,
        .k = rows_of(&problem->in[0], k),
        .a_row = 1,
        .a_column = rows,
        .b_row = columns,
        .b_column = 1,
        .c_row = columns,
    };
}

static size_t weight_scratch(const struct kernel_problem *problem)
{
    const struct gemm gemm = weight_gemm(problem);

    return gemm_scratch_bytes(tile_current(), &gemm);
}

static struct gemm weight_of(const struct kernel_call *call)
{
    const bool plain = call->problem->out[0].layout == LAYOUT_PLAIN;
    struct gemm gemm = weight_gemm(call->problem);

    gemm.a = call->in[plain ? 1 : 0];
    gemm.b = call->in[plain ? 0 : 1];
    gemm.c = call->out[0];
    return gemm;
}

static void weight_run(const struct kernel_call *call)
{
    const struct tile_isa *isa = tile_current();
    const bool plain = call->problem->out[0].layout == LAYOUT_PLAIN;
    struct gemm gemm = weight_of(call);

    if (call->problem->n_out > 1 && !plain)
        gemm.b_sums = call->out[1];
    gemm_run(isa, &gemm, call->pool, call->scratch);
    if (call->problem->n_out > 1 && plain)
        gemm_column_sums(isa, gemm.a, gemm.m, gemm.k, gemm.m, call->pool, call->out[1]);
}

/* By AMX ------------------------------------------------------------------------------- */

#ifdef HAVE_AMX
static bool amx_can_run(const struct kernel_problem *problem)
{
    bool is_empty = false;

    for (int i = 0; i < problem->n_in; i++)
        is_empty |= shape_count(&problem->in[i].shape) == 0;
    return processor_current() >= PROCESSOR_AMX && is_f32(problem) && !is_empty;
}

static size_t amx_forward_scratch(const struct kernel_problem *problem)
{
    const struct gemm gemm = forward_gemm(problem);

    return amx_scratch_bytes(&gemm, false);
}

static void amx_forward_run(const struct kernel_call *call)
{
    const struct gemm gemm = forward_of(call);

    amx_run(&gemm, false, call->pool, call->scratch);
}

static size_t amx_input_scratch_of(const struct kernel_problem *problem, bool is_short)
{
    const struct gemm gemm = input_gemm(problem);

    return amx_scratch_bytes(&gemm, is_short);
}

static size_t amx_input_scratch(const struct kernel_problem *problem)
{
    return amx_input_scratch_of(problem, false);
}

static size_t pairs_input_scratch(const struct kernel_problem *problem)
{
    return amx_input_scratch_of(problem, true);
}

static void amx_input_run_of(const struct kernel_call *call, bool is_short)
{
    const struct gemm gemm = input_of(call);

    amx_run(&gemm, is_short, call->pool, call->scratch);
}

static void amx_input_run(const struct kernel_call *call)
{
    amx_input_run_of(call, false);
}

static void pairs_input_run(const struct kernel_call *call)
{
    amx_input_run_of(call, true);
}

static size_t amx_weight_scratch_of(const struct kernel_problem *problem, bool is_short)
{
    const struct gemm gemm = weight_gemm(problem);

    return amx_scratch_bytes(&gemm, is_short);
}

static size_t amx_weight_scratch(const struct kernel_problem *problem)
{
    return amx_weight_scratch_of(problem, false);
}

static size_t pairs_weight_scratch(const struct kernel_problem *problem)
{
    return amx_weight_scratch_of(problem, true);
}

static void amx_weight_run_of(const struct kernel_call *call, bool is_short)
{
    const int64_t n = call->problem->out[0].shape.dim[0];
    const struct gemm gemm = weight_of(call);

    amx_run(&gemm, is_short, call->pool, call->scratch);
    if (call->problem->n_out > 1)
        gemm_column_sums(tile_current(), call->in[1], n, gemm.k, n, call->pool, call->out[1]);
}

static void amx_weight_run(const struct kernel_call *call)
{
    amx_weight_run_of(call, false);
}

static void pairs_weight_run(const struct kernel_call *call)
{
    amx_weight_run_of(call, true);
}
#endif

const struct kernel kernel_linear_rows[] = {
    { .op = "linear",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = forward_scratch,
      .run = forward_run },
    { .op = "linear_grad_input",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = input_scratch,
      .run = input_run },
    { .op = "linear_grad_weight",
      .name = "own",
      .can_run = can_run,
      .scratch_bytes = weight_scratch,
      .run = weight_run },
#ifdef HAVE_AMX
    { .op = "linear",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_forward_scratch,
      .run = amx_forward_run },
    { .op = "linear_grad_input",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_input_scratch,
      .run = amx_input_run },
    { .op = "linear_grad_weight",
      .name = "amx",
      .can_run = amx_can_run,
      .scratch_bytes = amx_weight_scratch,
      .run = amx_weight_run },
    { .op = "linear_grad_input",
      .name = "amx_pairs",
      .can_run = amx_can_run,
      .scratch_bytes = pairs_input_scratch,
      .run = pairs_input_run },
    { .op = "linear_grad_weight",
      .name = "amx_pairs",
      .can_run = amx_can_run,
      .scratch_bytes = pairs_weight_scratch,
      .run = pairs_weight_run },
#endif
    { 0 },
};
