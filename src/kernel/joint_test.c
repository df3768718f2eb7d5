/* SPDX-License-Identifier: MIT */
/* joint_test.c - what ranks that share layers make of what each has is the same on every device as by plain loops. */
#include "kernel/joint.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "kernel/device_check_testing.h"
#include "kernel/precision.h"

enum { RANKS = 4, MOST = 1 << 13 };
static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_BF16, DTYPE_F16 };

/* Memory of the device with these bytes. */
static void *there(const struct device_place *place, const void *host, size_t bytes)
{
    void *memory;

    CHECK_OK(place->face->memory->create(place->device, bytes, &memory));
    CHECK_OK(place->face->memory->copy(place->stream, memory, host, bytes));
    CHECK_OK(place->face->stream->wait(place->stream));
    return memory;
}

/* Brings them back, and the memory goes. */
static void back(const struct device_place *place, void *memory, void *host, size_t bytes)
{
    CHECK_OK(place->face->memory->copy(place->stream, host, memory, bytes));
    CHECK_OK(place->face->stream->wait(place->stream));
    place->face->memory->destroy(place->device, memory);
}

static void fill(struct rng *rng, enum dtype dtype, void *data, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const float x = (float)rng_normal(rng) * 3;
        if (kernel_is_half(dtype))
            ((uint16_t *)data)[i] = kernel_to_half(dtype, x);
        else
            ((float *)data)[i] = x;
    }
}

/* Sums have the bits of plain loops, rows copied are where they belong. */
static void check_sums(struct rng *rng, const struct device_place *place)
{
    static float data[RANKS][MOST], expected[MOST], made[MOST];
    const enum dtype dtype = dtypes[rng_below(rng, 3)];
    const size_t unit = rng_below(rng, 2) ? 8 : 1, size = dtype_size(dtype);
    const struct joint_rows rows = { .width = unit * (1 + rng_below(rng, 20)),
                                     .rows = 1 + rng_below(rng, 20),
                                     .apart = unit * (20 + rng_below(rng, 20)),
                                     .out_apart = unit * (20 + rng_below(rng, 20)) };
    struct joint_parts parts = { .count = 1 + (int)rng_below(rng, RANKS) }, far = parts;

    memset(expected, 0, sizeof expected);
    for (int r = 0; r < parts.count; r++) {
        fill(rng, dtype, data[r], MOST);
        parts.of[r] = data[r];
        far.of[r] = there(place, data[r], sizeof data[r]);
    }
    joint_sum(expected, &parts, dtype, &rows);
    memset(made, 0, sizeof made);
    void *out = there(place, made, sizeof made);
    place->face->joint->sum(place->stream, out, &far, dtype, &rows);
    back(place, out, made, sizeof made);
    CHECK(memcmp(expected, made, sizeof made) == 0);

    out = there(place, data[0], sizeof data[0]);
    CHECK_OK(place->face->memory->copy_rows(place->stream, out, rows.out_apart * size,
                                            far.of[parts.count - 1], rows.apart * size,
                                            rows.width * size, rows.rows));
    back(place, out, made, sizeof made);
    memcpy(expected, data[0], sizeof expected);
    for (size_t r = 0; r < rows.rows; r++)
        memcpy((char *)expected + r * rows.out_apart * size,
               (const char *)data[parts.count - 1] + r * rows.apart * size, rows.width * size);
    CHECK(memcmp(expected, made, sizeof made) == 0);
    for (int r = 0; r < parts.count; r++)
        place->face->memory->destroy(place->device, (void *)far.of[r]);
}

static void check_ids(struct rng *rng, const struct device_place *place)
{
    enum { COUNT = 500 };
    int32_t ids[COUNT], expected[COUNT], made[COUNT];

    for (int i = 0; i < COUNT; i++)
        ids[i] = (int32_t)rng_below(rng, 90) - 1;
    joint_ids(expected, ids, COUNT, 20, 50);
    int32_t *from = there(place, ids, sizeof ids), *to = there(place, ids, sizeof ids);
    place->face->joint->ids(place->stream, to, from, COUNT, 20, 50);
    back(place, to, made, sizeof made);
    place->face->memory->destroy(place->device, from);
    CHECK(memcmp(expected, made, sizeof made) == 0);
}

/* Logits of all classes, of which each rank has a slice. */
struct cut {
    int64_t rows, classes;
    int ranks;
    enum dtype dtype;
    float smoothing;
    int32_t labels[64];
    float logits[64][80], lse[RANKS][64];
    char slices[RANKS][64 * 80 * sizeof(float)];
};

static struct kernel_problem problem_of(const struct cut *cut, const char *op, int r)
{
    struct kernel_problem problem = { .op = op, .n_out = 1 };
    const int64_t begin = slice_begin(cut->classes, r, cut->ranks);

    problem.in[0] =
        (struct kernel_tensor){ cut->dtype, LAYOUT_PLAIN,
                                shape_2(cut->rows,
                                        slice_begin(cut->classes, r + 1, cut->ranks) - begin) };
    problem.attrs.smoothing = cut->smoothing;
    problem.attrs.slice = (struct shape_slice){
        .count = cut->ranks, .index = r, .axis = 1, .whole = cut->classes
    };
    return problem;
}

static void draw_cut(struct rng *rng, struct cut *cut)
{
    cut->rows = 1 + (int64_t)rng_below(rng, 64);
    cut->classes = 8 + (int64_t)rng_below(rng, 72);
    cut->ranks = 1 + (int)rng_below(rng, RANKS);
    cut->dtype = dtypes[rng_below(rng, 3)];
    cut->smoothing = rng_below(rng, 2) ? 0.1F : 0;
    for (int64_t i = 0; i < cut->rows; i++) {
        cut->labels[i] = (int32_t)rng_below(rng, (uint64_t)cut->classes + 1) - 1;
        for (int64_t c = 0; c < cut->classes; c++) /* some are equal */
            cut->logits[i][c] = (float)((int)rng_below(rng, 21) - 10) * 0.25F;
    }
    for (int r = 0; r < cut->ranks; r++) {
        const int64_t begin = slice_begin(cut->classes, r, cut->ranks);
        const int64_t count = slice_begin(cut->classes, r + 1, cut->ranks) - begin;
        for (int64_t i = 0; i < cut->rows; i++) {
            double sum = 0;
            for (int64_t c = 0; c < count; c++) {
                const float x = cut->logits[i][begin + c];
                sum += exp((double)x);
                if (kernel_is_half(cut->dtype))
                    ((uint16_t *)cut->slices[r])[i * count + c] = kernel_to_half(cut->dtype, x);
                else
                    ((float *)cut->slices[r])[i * count + c] = x;
            }
            cut->lse[r][i] = (float)log(sum);
        }
    }
}

/* Loss and lse of whole rows; how many answers are right. */
static void expect(const struct cut *cut, float inv_batch, double *loss, double *lse,
                   int *correct)
{
    *loss = *correct = 0;
    for (int64_t i = 0; i < cut->rows; i++) {
        double sum = 0, all = 0;
        int64_t largest = 0;
        for (int64_t c = 0; c < cut->classes; c++) {
            sum += exp((double)cut->logits[i][c]);
            all += (double)cut->logits[i][c];
            largest = cut->logits[i][c] > cut->logits[i][largest] ? c : largest;
        }
        lse[i] = cut->labels[i] < 0 ? 0 : log(sum);
        *correct += largest == cut->labels[i];
        if (cut->labels[i] >= 0)
            *loss += (lse[i] -
                      (1 - (double)cut->smoothing) * (double)cut->logits[i][cut->labels[i]] -
                      (double)cut->smoothing / (double)cut->classes * all) *
                     (double)inv_batch;
    }
}

static void check_losses(struct rng *rng, const struct device_place *place)
{
    static struct cut cut;
    const struct kernel_step step = { .inv_batch = 0.125F };
    const size_t numbers = 64 * JOINT_LOSS_NUMBERS * sizeof(float);
    struct joint_parts noted = { 0 }, answers = { 0 };
    struct kernel_step *step_there = there(place, &step, sizeof step);
    double loss, lse[64];
    float made[64 + 2] = { 0 };
    int correct;

    draw_cut(rng, &cut);
    int32_t *labels = there(place, cut.labels, sizeof cut.labels);
    float *out = there(place, made, sizeof made);
    noted.count = answers.count = cut.ranks;
    for (int r = 0; r < cut.ranks; r++) {
        void *logits = there(place, cut.slices[r], sizeof cut.slices[r]);
        void *lse_there = there(place, cut.lse[r], sizeof cut.lse[r]);
        const struct kernel_problem of_loss = problem_of(&cut, "tp_token_loss", r);
        const struct kernel_problem of_answers = problem_of(&cut, "tp_token_accuracy", r);
        struct kernel_call call = { .problem = &of_loss,
                                    .in = { logits, lse_there, labels },
                                    .out = { out, out + 2 },
                                    .step = step_there,
                                    .stream = place->stream };
        CHECK_OK(place->face->memory->create(place->device, numbers, (void **)&noted.of[r]));
        CHECK_OK(place->face->memory->create(place->device, numbers, (void **)&answers.of[r]));
        place->face->joint->note_losses(&call, (float *)noted.of[r]);
        if (r == cut.ranks - 1)
            place->face->joint->join_losses(&call, &noted);
        call.problem = &of_answers;
        call.in[1] = labels;
        call.out[0] = out + 1;
        place->face->joint->note_answers(&call, (struct joint_answer *)answers.of[r]);
        if (r == cut.ranks - 1)
            place->face->joint->join_answers(&call, &answers);
        CHECK_OK(place->face->stream->wait(place->stream));
        place->face->memory->destroy(place->device, logits);
        place->face->memory->destroy(place->device, lse_there);
    }
    back(place, out, made, sizeof made);
    expect(&cut, step.inv_batch, &loss, lse, &correct);
    CHECK_CLOSE(loss, (double)made[0], 1e-5);
    CHECK_INT(correct, (int)made[1]);
    for (int64_t i = 0; i < cut.rows; i++)
        CHECK(fabs(lse[i] - (double)made[2 + i]) < 1e-5);
    for (int r = 0; r < cut.ranks; r++) {
        place->face->memory->destroy(place->device, (void *)noted.of[r]);
        place->face->memory->destroy(place->device, (void *)answers.of[r]);
    }
    place->face->memory->destroy(place->device, labels);
    place->face->memory->destroy(place->device, step_there);
}

static void check_all(struct rng *rng, const struct device_place *place)
{
    check_sums(rng, place);
    check_ids(rng, place);
    check_losses(rng, place);
}

static void ranks_join_what_they_have(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_all(rng, &cpu);
    device_place_close(&cpu);
}

static void ranks_join_what_they_have_on_a_gpu(struct rng *rng)
{
    check_all(rng, device_gpu());
}

const struct test tests[] = {
    { .name = "ranks join what they have", .property = ranks_join_what_they_have },
    { .name = "ranks join what they have on a GPU",
      .property = ranks_join_what_they_have_on_a_gpu },
    { 0 },
};
