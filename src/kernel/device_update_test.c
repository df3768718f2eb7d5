/* SPDX-License-Identifier: MIT */
/* device_update_test.c - what a device does with gradients: updates and conversions have the bits of the CPU, norms, squares
 * and scales are those of plain sums, and rows without a mark stay.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "kernel/device_check_testing.h"
#include "kernel/precision.h"

enum { COUNT = 5000, PARAMETERS = 5, RANGE_AT = 11 };

/* Updates ------------------------------------------------------------------------------ */

struct vectors {
    float param[COUNT], grad[COUNT], state[DEVICE_STATES][COUNT], out[COUNT];
    uint16_t half[COUNT];
    struct device_origin origins[PARAMETERS];
};

static void fill(struct vectors *v, struct rng *rng)
{
    for (int i = 0; i < COUNT; i++) {
        v->param[i] = rng_float(rng) - 0.5F;
        v->grad[i] = rng_float(rng) - 0.5F;
        v->state[0][i] = rng_float(rng) - 0.5F;
        v->state[1][i] = rng_float(rng);
        v->out[i] = 0;
        v->half[i] = 0;
    }
    memset(v->origins, 0, sizeof v->origins); /* also what is between its members */
    for (int p = 0; p < PARAMETERS; p++) { /* one begins before the range, some may behind it */
        v->origins[p].at = p == 0 ? 7 : v->origins[p - 1].at + 1 + rng_below(rng, COUNT / 2);
        v->origins[p].parameter = (uint32_t)rng_below(rng, 1000);
    }
}

static struct device_range range_of(struct vectors *v, size_t count)
{
    return (struct device_range){ .param = v->param,
                                  .grad = v->grad,
                                  .state = { v->state[0], v->state[1] },
                                  .out = v->out,
                                  .half = v->half,
                                  .count = count,
                                  .at = RANGE_AT,
                                  .origins = v->origins,
                                  .n_origins = PARAMETERS };
}

static void draw_step(struct rng *rng, struct attrs *attrs, struct kernel_update_step *step)
{
    *attrs = (struct attrs){ .momentum = rng_below(rng, 2) ? rng_float(rng) : 0,
                             .weight_decay = rng_float(rng) / 100,
                             .beta1 = 0.9F,
                             .beta2 = 0.999F,
                             .epsilon = 1e-8F,
                             .nesterov = (int)rng_below(rng, 2),
                             .decoupled = (int)rng_below(rng, 2) };
    *step = (struct kernel_update_step){ .lr = rng_float(rng) / 10,
                                         .scale = rng_below(rng, 2) ? 1 : rng_float(rng),
                                         .correction1 = 1 + rng_float(rng),
                                         .correction2 = 1 + rng_float(rng),
                                         .first = (int)rng_below(rng, 2),
                                         .trust = rng_float(rng),
                                         .draws = (int)rng_below(rng, 2),
                                         .seed = rng_u64(rng),
                                         .number = rng_u64(rng) };
}

/* Runs an update in the device's memory and brings the vectors back. */
static void update_there(const struct device_place *place, const char *op, struct vectors *v,
                         size_t count, const struct attrs *attrs,
                         const struct kernel_update_step *step, const uint8_t *marks,
                         size_t width)
{
    const struct device_memory_ops *memory = place->face->memory;
    struct vectors *there;
    struct kernel_update_step *step_there;

    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->create(place->device, sizeof *step, (void **)&step_there));
    CHECK_OK(memory->copy(place->stream, there, v, sizeof *v));
    CHECK_OK(memory->copy(place->stream, step_there, step, sizeof *step));
    const struct device_range range = {
        (float *)((char *)there + offsetof(struct vectors, param)),
        (float *)((char *)there + offsetof(struct vectors, grad)),
        { (float *)((char *)there + offsetof(struct vectors, state)),
          (float *)((char *)there + offsetof(struct vectors, state)) + COUNT },
        (float *)((char *)there + offsetof(struct vectors, out)),
        (uint16_t *)((char *)there + offsetof(struct vectors, half)),
        DTYPE_BF16,
        count,
        marks,
        width,
        RANGE_AT,
        (const struct device_origin *)((char *)there + offsetof(struct vectors, origins)),
        PARAMETERS,
    };
    device_update(place->face, op)->run(place->stream, &range, attrs, step_there);
    CHECK_OK(memory->copy(place->stream, v, there, sizeof *v));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, step_there);
    memory->destroy(place->device, there);
}

/* The same bits as the CPU's: updates are elementwise, without a sum. */
static void updates_have_the_bits_of_the_cpu(struct rng *rng)
{
    const struct device_place *place = device_gpu();
    const struct device_face *cpu;
    static struct vectors expected, actual;
    struct kernel_update_step step;
    struct attrs attrs;

    CHECK_OK(device_find("cpu", &cpu));
    for (size_t i = 0; i < sizeof device_update_ops / sizeof device_update_ops[0]; i++) {
        const size_t count = 1 + rng_below(rng, COUNT);
        fill(&expected, rng);
        actual = expected;
        draw_step(rng, &attrs, &step);
        const struct device_range range = range_of(&expected, count);
        device_update(cpu, device_update_ops[i])->run(NULL, &range, &attrs, &step);
        update_there(place, device_update_ops[i], &actual, count, &attrs, &step, NULL, 0);
        if (memcmp(&expected, &actual, sizeof expected) != 0)
            test_fail(__FILE__, __LINE__, "%s has other bits than on the cpu",
                      device_update_ops[i]);
    }
}

/* Rows without a mark stay as they are, of every vector. */
static void check_marked_rows(struct rng *rng, const struct device_place *place)
{
    enum { WIDTH = 5, ROWS = 12 };
    static struct vectors before, after;
    const struct device_memory_ops *memory = place->face->memory;
    uint8_t marks[ROWS], *marks_there;
    struct kernel_update_step step;
    struct attrs attrs;

    fill(&before, rng);
    after = before;
    draw_step(rng, &attrs, &step);
    for (int i = 0; i < ROWS; i++)
        marks[i] = (uint8_t)rng_below(rng, 2);
    CHECK_OK(memory->create(place->device, sizeof marks, (void **)&marks_there));
    CHECK_OK(memory->copy(place->stream, marks_there, marks, sizeof marks));
    update_there(place, "adam_update", &after, ROWS * WIDTH, &attrs, &step, marks_there, WIDTH);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const bool stays = after.param[i] == before.param[i] &&
                           after.state[0][i] == before.state[0][i] &&
                           after.state[1][i] == before.state[1][i];
        CHECK(stays == !marks[i / WIDTH]);
    }
    memory->destroy(place->device, marks_there);
}

static void rows_without_a_mark_stay(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_marked_rows(rng, &cpu);
    device_place_close(&cpu);
}

static void rows_without_a_mark_stay_on_the_gpu(struct rng *rng)
{
    check_marked_rows(rng, device_gpu());
}

/* Sums, norms and scales --------------------------------------------------------------- */

static void sums_and_conversions_agree(struct rng *rng)
{
    const struct device_place *place = device_gpu();
    const struct device_memory_ops *memory = place->face->memory;
    const size_t count = 1 + rng_below(rng, 100000);
    float *data, *back, *data_there;
    double *sum_there, sums[2];
    void *scratch, *half;

    CHECK_OK(mem_alloc(count, sizeof *data, &data));
    CHECK_OK(mem_alloc(count, sizeof *back, &back));
    CHECK_OK(memory->create(place->device, count * sizeof(uint16_t), &half));
    for (size_t i = 0; i < count; i++)
        data[i] = rng_float(rng) - 0.5F;
    CHECK_OK(memory->create(place->device, count * sizeof *data, (void **)&data_there));
    CHECK_OK(memory->create(place->device, sizeof *sum_there, (void **)&sum_there));
    CHECK_OK(memory->create(place->device, place->face->sum_squares_bytes(count), &scratch));
    CHECK_OK(memory->copy(place->stream, data_there, data, count * sizeof *data));
    for (int i = 0; i < 2; i++) {
        place->face->sum_squares(place->stream, data_there, count, sum_there, scratch);
        CHECK_OK(memory->copy(place->stream, &sums[i], sum_there, sizeof sums[i]));
        CHECK_OK(place->face->stream->wait(place->stream));
    }
    CHECK_CLOSE(kernel_sum_squares(data, count), sums[0], 1e-12);
    CHECK(memcmp(&sums[0], &sums[1], sizeof sums[0]) == 0);
    place->face->add(place->stream, data_there, data_there, data_there, count);
    CHECK_OK(memory->copy(place->stream, data, data_there, count * sizeof *data));
    CHECK_OK(place->face->stream->wait(place->stream));
    CHECK_CLOSE(4 * sums[0], kernel_sum_squares(data, count), 1e-12);
    place->face->convert(place->stream, half, DTYPE_BF16, data_there, DTYPE_F32, count);
    place->face->convert(place->stream, data_there, DTYPE_F32, half, DTYPE_BF16, count);
    for (size_t i = 0; i < count; i++)
        data[i] = kernel_from_bf16(kernel_to_bf16(data[i]));
    CHECK_OK(memory->copy(place->stream, back, data_there, count * sizeof *back));
    CHECK_OK(place->face->stream->wait(place->stream));
    CHECK(memcmp(data, back, count * sizeof *data) == 0);
    memory->destroy(place->device, half);
    mem_free(back);
    memory->destroy(place->device, scratch);
    memory->destroy(place->device, sum_there);
    memory->destroy(place->device, data_there);
    mem_free(data);
}

/* Numbers of a step by norms, and rows of a table: there, against plain sums here. */
struct by_norms {
    double params[COUNT], moves[COUNT];
    struct kernel_update_step numbers, trusted[COUNT];
    int32_t ids[COUNT];
    uint8_t marks[COUNT];
};

static void run_norms_and_marks(const struct device_place *place, struct by_norms *n,
                                const struct device_trust *trust, size_t count)
{
    const struct device_memory_ops *memory = place->face->memory;
    struct by_norms *there;

    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, n, sizeof *n));
    place->face->clip(place->stream,
                      &(struct joint_parts){ .of = { there->moves }, .count = 1 }, count, 0.5F,
                      &there->numbers);
    place->face->trust(place->stream, trust, there->params, there->moves, count,
                       &there->numbers, there->trusted);
    place->face->mark_rows(place->stream, there->ids, count, COUNT / 2, there->marks);
    CHECK_OK(memory->copy(place->stream, n, there, sizeof *n));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, there);
}

static void check_norms_and_marks(struct rng *rng, const struct device_place *place)
{
    static struct by_norms n;
    const size_t count = 1 + rng_below(rng, COUNT);
    const struct device_trust trust = { .coefficient = 0.25F,
                                        .weight_decay = rng_float(rng),
                                        .of_gradient = rng_below(rng, 2) };
    double all = 0;

    memset(&n, 0, sizeof n);
    n.numbers = (struct kernel_update_step){ .lr = 0.5F, .scale = 1, .trust = 1 };
    for (size_t i = 0; i < count; i++) {
        n.params[i] = rng_below(rng, 4) ? (double)rng_float(rng) : 0;
        n.moves[i] = rng_below(rng, 4) ? (double)rng_float(rng) : 0;
        n.ids[i] = (int32_t)rng_below(rng, COUNT) - 8;
        all += n.moves[i];
    }
    run_norms_and_marks(place, &n, &trust, count);
    const double scale = fmin(1, 0.5 / (sqrt(all) + 1e-6));
    CHECK_CLOSE(scale, (double)n.numbers.scale, 1e-6);
    for (size_t i = 0; i < count; i++) {
        const double weight = sqrt(n.params[i]);
        double move = sqrt(n.moves[i]) * (trust.of_gradient ? scale : 1);
        move += move > 0 ? (double)trust.weight_decay * weight : 0;
        CHECK_CLOSE(weight > 0 && move > 0 ? 0.25 * weight / move : 1,
                    (double)n.trusted[i].trust, 1e-5);
        CHECK(n.trusted[i].lr == 0.5F);
        if (n.ids[i] >= 0 && n.ids[i] < COUNT / 2)
            CHECK(n.marks[n.ids[i]] == 1);
    }
    int marked = 0, occur[COUNT] = { 0 };
    for (size_t i = 0; i < count; i++)
        if (n.ids[i] >= 0 && n.ids[i] < COUNT / 2)
            occur[n.ids[i]] = 1;
    for (int i = 0; i < COUNT; i++)
        marked += n.marks[i] - occur[i];
    CHECK_INT(0, marked);
}

static void norms_and_marks_are_plain_sums(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_norms_and_marks(rng, &cpu);
    device_place_close(&cpu);
}

static void the_gpu_agrees_on_norms_and_marks(struct rng *rng)
{
    check_norms_and_marks(rng, device_gpu());
}

/* Squares of a vector of parameters, the pieces of which belong to ranks by chance. */
enum { SQUARED = 7, SQUARED_RANKS = 3, SQUARED_PIECES = SQUARED * 4, SQUARED_MODEL = 40 };
struct squared {
    float data[SQUARED_PIECES * DEVICE_PIECE];
    struct device_piece pieces[SQUARED_RANKS][SQUARED_PIECES];
    struct device_squared params[SQUARED];
    double places[SQUARED_RANKS][SQUARED_PIECES], of_model[SQUARED_MODEL];
    struct kernel_update_step numbers;
};

static void run_squares(const struct device_place *place, struct squared *n,
                        const size_t count[SQUARED_RANKS])
{
    const struct device_memory_ops *memory = place->face->memory;
    struct squared *there;
    struct joint_parts places = { .count = SQUARED_RANKS };

    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, n, sizeof *n));
    for (int r = 0; r < SQUARED_RANKS; r++) {
        place->face->square_pieces(place->stream, there->data, there->pieces[r], count[r],
                                   there->places[r]);
        places.of[r] = there->places[r];
    }
    place->face->add_squares(place->stream, &places, there->params, SQUARED, there->of_model);
    place->face->clip(place->stream,
                      &(struct joint_parts){ .of = { there->of_model }, .count = 1 },
                      SQUARED_MODEL, 0.5F, &there->numbers);
    CHECK_OK(memory->copy(place->stream, n, there, sizeof *n));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, there);
}

static void check_squares(struct rng *rng, const struct device_place *place)
{
    static struct squared n;
    uint32_t lengths[SQUARED];
    double expected[SQUARED_MODEL] = { 0 }, all = 0, first[SQUARED_MODEL];

    for (int i = 0; i < SQUARED; i++)
        lengths[i] = 1 + (uint32_t)rng_below(rng, 4 * DEVICE_PIECE);
    for (int ranks = 1; ranks <= SQUARED_RANKS; ranks++) {
        size_t count[SQUARED_RANKS] = { 0 };
        uint32_t used = 0;

        memset(&n, 0, sizeof n);
        for (uint32_t i = 0; i < SQUARED; i++) {
            n.params[i] = (struct device_squared){
                .first = used,
                .count = (lengths[i] + DEVICE_PIECE - 1) / DEVICE_PIECE,
                .number = 3 * i + 1,
            };
            expected[3 * i + 1] = 0;
            for (uint32_t at = 0; at < lengths[i]; at += DEVICE_PIECE, used++) {
                const uint32_t left = lengths[i] - at;
                const size_t r = rng_below(rng, (uint64_t)ranks);
                const struct device_piece piece = { (uint64_t)used * DEVICE_PIECE,
                                                    left < DEVICE_PIECE ? left : DEVICE_PIECE,
                                                    used };
                n.pieces[r][count[r]++] = piece;
                for (uint32_t k = 0; k < piece.count; k++) {
                    const float x = (float)((k * 37 + i * 11 + at) % 101) / 64;
                    n.data[piece.at + k] = x;
                    expected[3 * i + 1] += (double)x * (double)x;
                }
            }
        }
        run_squares(place, &n, count);
        all = 0;
        for (int i = 0; i < SQUARED_MODEL; i++) {
            CHECK_CLOSE(expected[i], n.of_model[i], 1e-12 * (1 + expected[i]));
            all += n.of_model[i];
        }
        CHECK_CLOSE(fmin(1, 0.5 / (sqrt(all) + 1e-6)), (double)n.numbers.scale, 1e-6);
        if (ranks == 1)
            memcpy(first, n.of_model, sizeof first);
        CHECK(memcmp(first, n.of_model, sizeof first) == 0); /* whoever has which */
    }
}

static void squares_are_plain_sums(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_squares(rng, &cpu);
    device_place_close(&cpu);
}

static void the_gpu_agrees_on_squares(struct rng *rng)
{
    check_squares(rng, device_gpu());
}

/* Losses are scaled, and gradients taken back, on both; a sum that is not finite halves the scale and skips the step. */
static void check_scaling(struct rng *rng, const struct device_place *place)
{
    enum { SQUARES = 9, STEPS = 3 };
    static struct {
        struct device_scaling scaling;
        struct kernel_step steps[STEPS], scaled[STEPS];
        struct kernel_update_step numbers;
        double squares[SQUARES];
    } n, *there;
    const struct device_memory_ops *memory = place->face->memory;
    const float scale = ldexpf(1, (int)rng_below(rng, 20));
    const bool is_last = rng_below(rng, 2), is_finite = rng_below(rng, 3) > 0;
    const float max_norm = rng_below(rng, 2) ? 0.5F : 0;
    double sum = 0;

    memset(&n, 0, sizeof n);
    n.scaling = (struct device_scaling){ scale, is_last ? DEVICE_SCALE_STEPS - 1 : 5, 3 };
    n.numbers = (struct kernel_update_step){ .lr = 0.5F, .scale = 1, .trust = 1 };
    for (int i = 0; i < STEPS; i++)
        n.steps[i] = (struct kernel_step){ .seed = 4, .inv_batch = 0.125F };
    for (int i = 0; i < SQUARES; i++)
        sum += n.squares[i] = (double)rng_float(rng) * (double)scale * (double)scale;
    if (!is_finite)
        n.squares[rng_below(rng, SQUARES)] = rng_below(rng, 2) ? (double)NAN : (double)INFINITY;
    CHECK_OK(memory->create(place->device, sizeof *there, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, &n, sizeof n));
    place->face->scale_losses(place->stream, &there->scaling, there->steps, STEPS,
                              there->scaled);
    place->face->unscale(place->stream,
                         &(struct joint_parts){ .of = { there->squares }, .count = 1 }, SQUARES,
                         max_norm, &there->scaling, &there->numbers);
    CHECK_OK(memory->copy(place->stream, &n, there, sizeof n));
    CHECK_OK(place->face->stream->wait(place->stream));
    memory->destroy(place->device, there);

    CHECK(n.scaled[STEPS - 1].inv_batch == scale / 8 && n.scaled[STEPS - 1].seed == 4);
    CHECK(kernel_inv_batch(&n.scaled[0]) == 0.125 && kernel_inv_batch(&n.steps[0]) == 0.125);
    CHECK_INT(!is_finite, n.numbers.skips);
    CHECK_INT(is_finite ? 3 : 4, n.scaling.skipped);
    CHECK_INT(is_finite && !is_last ? 6 : 0, n.scaling.good);
    CHECK(n.scaling.scale == (!is_finite ? (scale > 1 ? scale / 2 : 1)
                              : is_last  ? 2 * scale
                                         : scale));
    const double norm = sqrt(sum) / (double)scale;
    const double factor = max_norm > 0 ? fmin(1, (double)max_norm / (norm + 1e-6)) : 1;
    if (is_finite)
        CHECK_CLOSE(factor / (double)scale, (double)n.numbers.scale, 1e-6 / (double)scale);
}

static void losses_are_scaled(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_scaling(rng, &cpu);
    device_place_close(&cpu);
}

static void losses_are_scaled_on_the_gpu(struct rng *rng)
{
    check_scaling(rng, device_gpu());
}

const struct test tests[] = {
    { .name = "updates have the bits of the cpu",
      .property = updates_have_the_bits_of_the_cpu },
    { .name = "norms and marks are plain sums", .property = norms_and_marks_are_plain_sums },
    { .name = "the GPU agrees on norms and marks",
      .property = the_gpu_agrees_on_norms_and_marks },
    { .name = "rows without a mark stay", .property = rows_without_a_mark_stay },
    { .name = "rows without a mark stay on the GPU",
      .property = rows_without_a_mark_stay_on_the_gpu },
    { .name = "squares are plain sums", .property = squares_are_plain_sums },
    { .name = "the GPU agrees on squares", .property = the_gpu_agrees_on_squares },
    { .name = "losses are scaled", .property = losses_are_scaled },
    { .name = "losses are scaled on the GPU", .property = losses_are_scaled_on_the_gpu },
    { .name = "sums and conversions agree", .property = sums_and_conversions_agree },
    { 0 },
};
