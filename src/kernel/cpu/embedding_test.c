/* SPDX-License-Identifier: MIT */
/* embedding_test.c - padding, ids that are no rows, sums into a buffer of their own, and the order of
 * ids, by example. What random problems show is in kernel_test.c.
 */
#include <math.h>
#include <string.h>

#include "base/test.h"
#include "kernel/kernel.h"

/* Two samples of three ids, a table of four rows of two. */
static const int32_t ids[] = { 3, -1, 1, 1, 3, 1 };
static const float table[] = { 0, 0, 1, 10, 2, 20, 3, 30 };
static const char *const names[] = { "reference", "own" };

/* Runs a problem with these inputs. */
static void solve(const char *name, const char *text, const void *a, const void *b,
                  const void *c, void *out, void *out1)
{
    static _Alignas(64) char scratch[1 << 16];
    const struct kernel_step step = { .inv_batch = 1 };
    struct kernel_problem problem;

    CHECK_OK(kernel_parse(text, &problem));
    const struct kernel *kernel = kernel_find(problem.op, name);
    CHECK(kernel &&
          (!kernel->scratch_bytes || kernel->scratch_bytes(&problem) <= sizeof scratch));
    const struct kernel_call call = { .problem = &problem,
                                      .in = { a, b, c },
                                      .out = { out, out1 },
                                      .scratch = scratch,
                                      .step = &step };
    kernel->run(&call);
}

static void padding_is_zeros_and_no_part_of_a_mean(void)
{
    static const float rows[] = { 3, 30, 0, 0, 1, 10, 1, 10, 3, 30, 1, 10 };
    static const int32_t none[] = { -1, -1, -1, 2, -1, -1 };

    for (size_t k = 0; k < 2; k++) {
        float y[12];

        solve(names[k], "embedding 2x3 4x2", ids, table, NULL, y, NULL);
        CHECK(memcmp(y, rows, sizeof rows) == 0);
        solve(names[k], "embedding_mean 2x3 4x2", ids, table, NULL, y, NULL);
        CHECK(y[0] == 2 && y[1] == 20 && y[2] == 5.0F / 3 && y[3] == 50.0F / 3);
        solve(names[k], "embedding_mean 2x3 4x2", none, table, NULL, y, NULL);
        CHECK(y[0] == 0 && y[1] == 0 && y[2] == 2 && y[3] == 20);
        solve(names[k], "embedding_mean_grad 2x2 2x3 -> 2x2", table, ids, NULL, y, NULL);
        CHECK(y[0] == 0 && y[2] == 1.0F / 3 && y[3] == 10.0F / 3);
        solve(names[k], "embedding_mean_grad 2x2 2x3 -> 2x2", table + 2, none, NULL, y, NULL);
        CHECK(y[0] == 0 && y[1] == 0 && y[2] == 2 && y[3] == 20);
    }
}

static void an_id_that_is_no_row_makes_nan_and_no_gradient(void)
{
    static const int32_t wrong[] = { 3, 4, 1, 1, -1, 1 };
    static const float dy[] = { 1, 2, 4, 8 };

    for (size_t k = 0; k < 2; k++) {
        float y[12], dw[8];

        solve(names[k], "embedding 2x3 4x2", wrong, table, NULL, y, NULL);
        CHECK(y[1] == 30 && isnan(y[2]) && isnan(y[3]) && y[4] == 1);
        solve(names[k], "embedding_mean 2x3 4x2", wrong, table, NULL, y, NULL);
        CHECK(isnan(y[0]) && isnan(y[1]) && y[2] == 1);
        solve(names[k], "embedding_grad 2x2 2x3 -> 4x2", dy, wrong, NULL, dw, NULL);
        CHECK(dw[0] == 0 && dw[2] == 9 && dw[3] == 18 && dw[5] == 0 && dw[6] == 1);
    }
}

static void a_gradient_may_be_added_to_what_is_there(void)
{
    static const float dy[] = { 1, 2, 9, 9, 4, 8, 16, 32, 64, 128, 256, 512 };
    static const float sum[] = { 0, 0, 277, 562, 2, 20, 68, 160 };

    for (size_t k = 0; k < 2; k++) {
        float apart[8], in_place[8];

        memcpy(in_place, table, sizeof table);
        solve(names[k], "embedding_grad 2x3x2 2x3 4x2 -> 4x2", dy, ids, table, apart, NULL);
        solve(names[k], "embedding_grad 2x3x2 2x3 4x2 -> 4x2", dy, ids, in_place, in_place,
              NULL);
        CHECK(memcmp(apart, sum, sizeof sum) == 0);
        CHECK(memcmp(in_place, sum, sizeof sum) == 0);
    }
}

static void ids_are_sorted_with_their_places(void)
{
    static const int32_t by_place[] = { 1, 2, 1, 3, 1, 5, 3, 0, 3, 4, -1, -1 };
    static const int32_t by_sample[] = { 1, 0, 1, 1, 1, 1, 3, 0, 3, 1, -1, -1 };

    for (size_t k = 0; k < 2; k++) {
        int32_t order[12], begin[ROWS_BLOCKS + 1];

        solve(names[k], "rows_sort 2x3 rows 300", ids, NULL, NULL, order, begin);
        CHECK(memcmp(order, by_place, sizeof order) == 0);
        /* A block is of two ids. */
        CHECK(begin[0] == 0 && begin[1] == 3 && begin[2] == 5 && begin[ROWS_BLOCKS] == 5);
        solve(names[k], "rows_sort 2x3 rows 4 by_sample", ids, NULL, NULL, order, begin);
        CHECK(memcmp(order, by_sample, sizeof order) == 0);
        CHECK(begin[1] == 0 && begin[2] == 3 && begin[3] == 3 && begin[4] == 5);
        solve(names[k], "rows_sort 2x3 rows 3", ids, NULL, NULL, order, begin);
        CHECK(order[4] == 1 && order[6] == -1 && order[7] == -1 && begin[ROWS_BLOCKS] == 3);
    }
}

const struct test tests[] = {
    { .name = "padding is zeros and no part of a mean",
      .run = padding_is_zeros_and_no_part_of_a_mean },
    { .name = "an id that is no row makes nan and no gradient",
      .run = an_id_that_is_no_row_makes_nan_and_no_gradient },
    { .name = "a gradient may be added to what is there",
      .run = a_gradient_may_be_added_to_what_is_there },
    { .name = "ids are sorted with their places", .run = ids_are_sorted_with_their_places },
    { 0 },
};
