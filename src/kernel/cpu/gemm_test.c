/* SPDX-License-Identifier: MIT */
/* gemm_test.c - products have the very bits that gemm.h promises, however they are packed, shared
 * and laid out.
 */
#include "kernel/cpu/gemm.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#ifdef HAVE_AMX
#include "kernel/cpu/amx.h"
#include "kernel/cpu/processor.h"
#endif

enum { GUARD = 16 }; /* floats after C that stay as they are */

struct matrices {
    struct gemm gemm;
    float *a, *b, *c, *bias, *sums, *packed, *expected, *expected_sums;
    void *scratch;
    int64_t c_count;
};

static void *make(size_t count, struct rng *rng)
{
    float *data;

    CHECK_OK(mem_alloc(count, sizeof *data, &data));
    for (size_t i = 0; i < count; i++)
        data[i] = rng == NULL ? 0 : 2 * rng_float(rng) - 1;
    return data;
}

static int64_t some(struct rng *rng, int most)
{
    return 1 + (int64_t)rng_below(rng, (uint64_t)most);
}

/* Rows or columns lie together, perhaps with something between them. */
static void choose_steps(struct rng *rng, int64_t rows, int64_t columns, int64_t *row,
                         int64_t *column)
{
    const bool turned = rng_below(rng, 2) == 0;
    const int64_t gap = rng_below(rng, 2) == 0 ? 0 : some(rng, 9);

    *row = turned ? 1 : columns + gap;
    *column = turned ? rows + gap : 1;
}

static size_t floats_of(int64_t rows, int64_t columns, int64_t row, int64_t column)
{
    return (size_t)((rows - 1) * row + (columns - 1) * column + 1);
}

/* What gemm.h says: chains of multiply-adds, added one after another. */
static float element(const struct gemm *g, const float *c, int64_t i, int64_t j)
{
    const int64_t parts = gemm_ceil(g->k, GEMM_DEPTH);
    float sum = g->accumulate ? c[i * g->c_row + j] : 0;

    for (int64_t p = 0; p < parts; p++) {
        int64_t first;
        const int64_t steps = gemm_part(g->k, parts, p, &first);
        float chain = 0;
        for (int64_t t = first; t < first + steps; t++)
            chain = fmaf(g->a[i * g->a_row + t * g->a_column],
                         g->b[t * g->b_row + j * g->b_column], chain);
        sum = p > 0 || g->accumulate ? chain + sum : chain;
    }
    if (g->bias != NULL)
        sum += g->bias[j];
    return g->relu && sum < 0 ? 0 : sum;
}

static void expect(struct matrices *x)
{
    const struct gemm *g = &x->gemm;

    memcpy(x->expected, x->c, (size_t)x->c_count * sizeof(float));
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++)
            x->expected[i * g->c_row + j] = element(g, x->c, i, j);
    }
    for (int64_t j = 0; g->b_sums != NULL && j < g->n; j++) {
        for (int64_t t = 0; t < g->k; t++)
            x->expected_sums[j] += g->b[t * g->b_row + j];
    }
}

static void make_matrices(struct rng *rng, const int64_t size[3], struct matrices *x)
{
    const struct tile_isa *isa = tile_current();
    struct gemm *g = &x->gemm;

    *g = (struct gemm){ .m = size[0], .n = size[1], .k = size[2] };
    choose_steps(rng, g->m, g->k, &g->a_row, &g->a_column);
    choose_steps(rng, g->k, g->n, &g->b_row, &g->b_column);
    g->c_row = g->n + (rng_below(rng, 2) == 0 ? 0 : some(rng, 9));
    g->accumulate = rng_below(rng, 2) == 0;
    g->relu = rng_below(rng, 2) == 0;
    x->c_count = g->m * g->c_row + GUARD;
    g->a = x->a = make(floats_of(g->m, g->k, g->a_row, g->a_column), rng);
    g->b = x->b = make(floats_of(g->k, g->n, g->b_row, g->b_column), rng);
    g->c = x->c = make((size_t)x->c_count, rng);
    x->bias = make((size_t)g->n, rng);
    x->sums = make((size_t)g->n, rng);
    x->expected_sums = make((size_t)g->n, NULL);
    x->expected = make((size_t)x->c_count, NULL);
    g->bias = rng_below(rng, 2) == 0 ? x->bias : NULL;
    g->b_sums = g->b_column == 1 && rng_below(rng, 2) == 0 ? x->sums : NULL;
    CHECK_OK(mem_alloc(1, gemm_packed_bytes(isa, g->n, g->k), &x->packed));
    expect(x);
}

static void drop_matrices(struct matrices *x)
{
    mem_free(x->a);
    mem_free(x->b);
    mem_free(x->c);
    mem_free(x->bias);
    mem_free(x->sums);
    mem_free(x->expected_sums);
    mem_free(x->expected);
    mem_free(x->packed);
}

/* Runs it on a copy of C; B is packed before, or not. */
static void check_run(const struct matrices *x, bool packed, struct pool *pool)
{
    const struct tile_isa *isa = tile_current();
    const size_t bytes = (size_t)x->c_count * sizeof(float);
    struct gemm g = x->gemm;
    void *scratch;

    CHECK_OK(mem_alloc(1, bytes, &g.c));
    memcpy(g.c, x->c, bytes);
    if (packed) {
        gemm_pack_b(isa, &g, pool, x->packed);
        g.b = x->packed;
        g.b_packed = true;
        g.b_sums = NULL;
    }
    CHECK_OK(mem_alloc(1, gemm_scratch_bytes(isa, &g), &scratch));
    gemm_run(isa, &g, pool, scratch);
    if (memcmp(g.c, x->expected, bytes) != 0)
        test_fail(__FILE__, __LINE__, "%lldx%lldx%lld, a %lld %lld, b %lld %lld, packed %d",
                  (long long)g.m, (long long)g.n, (long long)g.k, (long long)g.a_row,
                  (long long)g.a_column, (long long)g.b_row, (long long)g.b_column, packed);
    if (g.b_sums != NULL)
        CHECK(memcmp(g.b_sums, x->expected_sums, (size_t)g.n * sizeof(float)) == 0);
    mem_free(scratch);
    mem_free(g.c);
}

static void check_product(struct rng *rng, const int64_t size[3])
{
    struct matrices x = { 0 };
    struct pool *pool;

    make_matrices(rng, size, &x);
    CHECK_OK(pool_create(1 + (int)rng_below(rng, 3), &pool));
    check_run(&x, false, NULL);
    check_run(&x, false, pool);
    if (x.gemm.a_column == 1)
        check_run(&x, true, pool);
    pool_destroy(pool);
    drop_matrices(&x);
}

static void small_products_have_the_promised_bits(struct rng *rng)
{
    if (tile_current() == NULL)
        test_skip("no tiles for this processor");
    check_product(rng, (const int64_t[]){ some(rng, 60), some(rng, 150), some(rng, 100) });
}

/* More than a block, a group, a part of each extent. */
static void large_products_have_the_promised_bits(void)
{
    static const int64_t sizes[][3] = {
        { 100, 250, 784 }, { 330, 600, 401 },  { 700, 70, 300 },
        { 97, 49, 1201 },  { 250, 513, 150 },  { 1300, 33, 64 },
        { 15, 2100, 90 },  { 401, 300, 1000 }, { 784, 100, 32 }
    };
    struct rng rng;

    if (tile_current() == NULL)
        test_skip("no tiles for this processor");
    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int way = 0; way < 4; way++)
            check_product(&rng, sizes[i]);
    }
}

/* By AMX ------------------------------------------------------------------------------- */

#ifdef HAVE_AMX
/* Runs it on a copy of C, which is given back. */
static float *run_amx(const struct matrices *x, struct gemm g, bool is_short, struct pool *pool)
{
    const size_t bytes = (size_t)x->c_count * sizeof(float);
    void *scratch;

    CHECK_OK(mem_alloc(1, bytes, &g.c));
    memcpy(g.c, x->c, bytes);
    g.b_sums = NULL;
    CHECK_OK(mem_alloc(1, amx_scratch_bytes(&g, is_short), &scratch));
    amx_run(&g, is_short, pool, scratch);
    mem_free(scratch);
    return g.c;
}

/* The mean error over the norm of what is summed, before anything is bent. */
static double mean_error(const struct gemm *g, const float *old, const float *made)
{
    double errors = 0;

    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            const double begin = g->accumulate ? (double)old[i * g->c_row + j]
                                 : g->bias     ? (double)g->bias[j]
                                               : 0;
            double sum = begin, squares = begin * begin;
            for (int64_t t = 0; t < g->k; t++) {
                const double product = (double)g->a[i * g->a_row + t * g->a_column] *
                                       (double)g->b[t * g->b_row + j * g->b_column];
                sum += product;
                squares += product * product;
            }
            if (g->relu && sum < 0)
                sum = 0;
            errors += fabs(sum - (double)made[i * g->c_row + j]) / sqrt(squares);
        }
    }
    return errors / (double)(g->m * g->n);
}

/* most: of the mean error. */
static void check_amx(struct rng *rng, const int64_t size[3], bool is_short, double most)
{
    struct matrices x = { 0 };
    struct pool *pool;

    make_matrices(rng, size, &x);
    if (x.gemm.accumulate)
        x.gemm.bias = NULL; /* one of them */
    const size_t bytes = (size_t)x.c_count * sizeof(float);
    float *alone = run_amx(&x, x.gemm, is_short, NULL);
    const double error = mean_error(&x.gemm, x.c, alone);
    if (!(error < most))
        test_fail(__FILE__, __LINE__, "%lldx%lldx%lld: mean error %.1e", (long long)size[0],
                  (long long)size[1], (long long)size[2], error);
    for (int64_t i = 0; i < x.gemm.m; i++)
        CHECK(memcmp(alone + i * x.gemm.c_row + x.gemm.n, x.c + i * x.gemm.c_row + x.gemm.n,
                     (size_t)(x.gemm.c_row - x.gemm.n) * sizeof(float)) == 0);
    CHECK(memcmp(alone + x.c_count - GUARD, x.c + x.c_count - GUARD, GUARD * sizeof(float)) ==
          0);

    CHECK_OK(pool_create(3, &pool));
    float *shared = run_amx(&x, x.gemm, is_short, pool);
    CHECK(memcmp(alone, shared, bytes) == 0);
    mem_free(shared);
    pool_destroy(pool);

    struct gemm fewer = x.gemm; /* a row's bits do not hang on the others */
    fewer.m = 1 + (int64_t)rng_below(rng, (uint64_t)fewer.m);
    float *some_rows = run_amx(&x, fewer, is_short, NULL);
    for (int64_t i = 0; i < fewer.m; i++)
        CHECK(memcmp(alone + i * fewer.c_row, some_rows + i * fewer.c_row,
                     (size_t)fewer.n * sizeof(float)) == 0);
    mem_free(some_rows);
    mem_free(alone);
    drop_matrices(&x);
}

/* Mean errors: a chain of multiply-adds has 2e-7 to 3e-7. */
static const double as_others = 4e-7, of_pairs = 6e-6;

static void check_small(struct rng *rng, bool is_short, double most)
{
    if (processor_current() < PROCESSOR_AMX)
        test_skip("this processor has no AMX");
    check_amx(rng, (const int64_t[]){ some(rng, 70), some(rng, 100), some(rng, 150) }, is_short,
              most);
}

static void products_by_amx_are_as_exact_as_others(struct rng *rng)
{
    check_small(rng, false, as_others);
}

static void products_by_pairs_have_16_bits(struct rng *rng)
{
    check_small(rng, true, of_pairs);
}

/* More than a block of rows, of steps and a group of panels. */
static void check_large(bool is_short, double most)
{
    static const int64_t sizes[][3] = { { 100, 300, 1100 },
                                        { 1700, 40, 530 },
                                        { 33, 900, 512 } };
    struct rng rng;

    if (processor_current() < PROCESSOR_AMX)
        test_skip("this processor has no AMX");
    rng_init(&rng, 2, 0);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_amx(&rng, sizes[i], is_short, most);
}

static void large_products_by_amx_are_as_exact_as_others(void)
{
    check_large(false, as_others);
}

static void large_products_by_pairs_have_16_bits(void)
{
    check_large(true, of_pairs);
}
#endif

const struct test tests[] = {
#ifdef HAVE_AMX
    { .name = "products by AMX are as exact as others",
      .property = products_by_amx_are_as_exact_as_others },
    { .name = "large products by AMX are as exact as others",
      .run = large_products_by_amx_are_as_exact_as_others },
    { .name = "products by pairs of bf16 have 16 bits",
      .property = products_by_pairs_have_16_bits },
    { .name = "large products by pairs of bf16 have 16 bits",
      .run = large_products_by_pairs_have_16_bits },
#endif
    { .name = "small products have the promised bits",
      .property = small_products_have_the_promised_bits },
    { .name = "large products have the promised bits",
      .run = large_products_have_the_promised_bits },
    { 0 },
};
