/* SPDX-License-Identifier: MIT */
/* device_test.c - devices: the CPU behind the face, the plug-in without a GPU, and, where there is one, every
 * kernel and update of CUDA against the CPU's reference.
 *
 * Tests of the GPU walk the CPU's table of references, so an op that has no kernel on the device is found.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "kernel/device_rows.h"
#include "kernel/device_testing.h"
#include "kernel/kernel_testing.h"
#include "kernel/measure.h"

enum { COUNT = 5000, SEEDS_OF_CPU = 3 };

static const char *const update_ops[] = { "sgd_update",  "adam_update", "average_update",
                                          "lars_update", "lamb_update", "lamb_direction" };

static const struct kernel *reference_at(size_t i)
{
    const struct kernel *kernel;

    for (size_t at = 0; (kernel = kernel_at(at)) != NULL; at++) {
        if (strcmp(kernel->name, "reference") == 0 && i-- == 0)
            return kernel;
    }
    return NULL;
}

/* Device 0 of CUDA, opened once; the test is skipped if there is none. */
static const struct device_place *gpu(void)
{
    static struct device_place place;

    if (!place.face && device_place_open("cuda", &place) != STATUS_OK)
        test_skip(status_message());
    return &place;
}

/* Kernels ------------------------------------------------------------------------------ */

/* Differences are counted, so that one run on a machine that is seldom there names them all. */
static int n_bad;

PRINTF_LIKE(2, 3)
static void complain(const struct kernel_problem *problem, const char *format, ...)
{
    char text[KERNEL_TEXT];
    va_list args;

    n_bad++;
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, ": \"%s\"\n", kernel_print(problem, text));
}

static void check_none_bad(void)
{
    const int bad = n_bad;

    n_bad = 0;
    if (bad)
        test_fail(__FILE__, __LINE__, "%d kernels do not agree", bad);
}

static void check_close(const struct kernel_problem *problem, struct kernel_trial *expected,
                        struct kernel_trial *actual, double tolerance)
{
    for (int i = 0; i < problem->n_out; i++) {
        const double difference = kernel_trial_difference(expected, actual, i);
        const bool bytes = problem->out[i].dtype != DTYPE_F32 && tolerance > 0;
        if (!(difference <= (bytes ? 0.01 : tolerance)))
            complain(problem, "differs from the reference by %g in output %d", difference, i);
    }
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

/* Another way of running gives the same bytes. */
static void check_same(const struct device_place *place, const struct kernel *kernel,
                       const struct kernel_problem *problem, struct kernel_trial *once,
                       struct kernel_trial *again, enum device_way way)
{
    if (device_testing_run(place, kernel, kernel_trial_call(again), way) != STATUS_OK)
        complain(problem, "way %d: %s", (int)way, status_message());
    for (int i = 0; i < problem->n_out; i++) {
        if (memcmp(kernel_trial_call(once)->out[i], kernel_trial_call(again)->out[i],
                   bytes_of(&problem->out[i])) != 0)
            complain(problem, "way %d changes output %d", (int)way, i);
    }
}

static bool may_be_in_place(const char *op)
{
    static const char *const ops[] = { "bias",
                                       "relu",
                                       "relu_grad",
                                       "add",
                                       "dropout",
                                       "relu6_grad",
                                       "sigmoid",
                                       "sigmoid_grad",
                                       "relu6",
                                       "add_positions",
                                       "tanh",
                                       "tanh_grad",
                                       "gelu",
                                       "gelu_grad",
                                       "gelu_tanh",
                                       "gelu_tanh_grad",
                                       "token_cross_entropy_grad" };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(op, ops[i]) == 0)
            return true;
    }
    return false;
}

/* One problem on a device, in every way, against the reference. */
static void compare(const struct device_place *place, const struct kernel_problem *problem,
                    enum kernel_fill fill, double tolerance, uint64_t seed)
{
    const struct kernel *reference = kernel_find(problem->op, "reference");
    const struct kernel *kernel = device_kernel(place->face, problem);
    struct kernel_trial *expected, *actual, *again;

    if (!kernel)
        test_fail(__FILE__, __LINE__, "%s has no kernel for %s", place->face->name,
                  problem->op);
    CHECK_OK(kernel_trial_create(reference, problem, fill, seed, &expected));
    CHECK_OK(kernel_trial_create(reference, problem, fill, seed, &actual));
    CHECK_OK(kernel_trial_create(reference, problem, fill, seed, &again));
    kernel_trial_run(expected);
    if (device_testing_run(place, kernel, kernel_trial_call(actual), DEVICE_ONCE) ==
        STATUS_OK) {
        check_close(problem, expected, actual, tolerance);
        check_same(place, kernel, problem, actual, again, DEVICE_TWICE);
        check_same(place, kernel, problem, actual, again, DEVICE_GRAPH);
        if (may_be_in_place(problem->op))
            check_same(place, kernel, problem, actual, again, DEVICE_IN_PLACE);
    } else {
        complain(problem, "%s", status_message());
    }
    kernel_trial_destroy(again);
    kernel_trial_destroy(actual);
    kernel_trial_destroy(expected);
}

static void compare_all(const struct device_place *place, struct rng *rng,
                        enum kernel_fill fill)
{
    const struct kernel *reference;

    for (size_t i = 0; (reference = reference_at(i)) != NULL; i++) {
        struct kernel_problem problem;

        kernel_testing_problem(rng, reference->op, &problem);
        compare(place, &problem, fill, kernel_testing_tolerance(&problem), rng_u64(rng));
    }
    check_none_bad();
}

static void the_cpu_is_a_device(void)
{
    struct device_place place;
    struct device_info info;

    CHECK_OK(device_place_open("cpu", &place));
    CHECK_OK(place.face->describe(0, &info));
    CHECK(info.units > 0 && info.memory > 0 && info.name[0] != '\0');
    CHECK_STATUS(STATUS_NOT_FOUND, place.face->describe(1, &info));
    for (uint64_t seed = 0; seed < SEEDS_OF_CPU; seed++) {
        struct rng rng;
        rng_init(&rng, seed, 0);
        compare_all(&place, &rng, KERNEL_FILL_NORMAL);
    }
    device_place_close(&place);
}

static void devices_agree_on_any_numbers(struct rng *rng)
{
    compare_all(gpu(), rng, KERNEL_FILL_NORMAL);
}

/* Sums of whole numbers are exact: what does not divide has to be, too. */
static void devices_agree_on_whole_numbers(struct rng *rng)
{
    static const char *const ops[] = {
        "linear",
        "linear_grad_input",
        "linear_grad_weight",
        "conv2d",
        "conv2d_grad_input",
        "conv2d_grad_weight",
        "conv2d_pool",
        "conv2d_pool_grad_input",
        "conv2d_pool_grad_weight",
        "conv2d_transpose",
        "conv2d_transpose_grad_input",
        "conv2d_transpose_grad_weight",
        "conv1d",
        "conv1d_grad_input",
        "conv1d_grad_weight",
        "conv1d_max",
        "conv1d_max_grad_input",
        "conv1d_max_grad_weight",
        "bias_grad",
        "embedding_grad",
        "positions_grad",
    };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        struct kernel_problem problem;
        kernel_testing_problem(rng, ops[i], &problem);
        const bool divides = problem.attrs.activation == ACTIVATION_SIGMOID;
        compare(gpu(), &problem, KERNEL_FILL_WHOLE,
                divides ? kernel_testing_tolerance(&problem) : 0, rng_u64(rng));
    }
    check_none_bad();
}

static void devices_agree_on_large_problems(void)
{
    const struct device_place *place = gpu();

    for (size_t i = 0; kernel_testing_large[i]; i++) {
        struct kernel_problem problem;
        CHECK_OK(kernel_parse(kernel_testing_large[i], &problem));
        if (strcmp(problem.op, "dropout") == 0)
            problem.attrs.rate = 0.5F;
        compare(place, &problem, KERNEL_FILL_NORMAL, kernel_testing_tolerance(&problem), i);
    }
    check_none_bad();
}

/* Updates ------------------------------------------------------------------------------ */

struct vectors {
    float param[COUNT], grad[COUNT], state[DEVICE_STATES][COUNT], out[COUNT];
};

static void fill(struct vectors *v, struct rng *rng)
{
    for (int i = 0; i < COUNT; i++) {
        v->param[i] = rng_float(rng) - 0.5F;
        v->grad[i] = rng_float(rng) - 0.5F;
        v->state[0][i] = rng_float(rng) - 0.5F;
        v->state[1][i] = rng_float(rng);
        v->out[i] = 0;
    }
}

static struct device_range range_of(struct vectors *v, size_t count)
{
    return (
        struct device_range){ v->param, v->grad, { v->state[0], v->state[1] }, v->out, count };
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
                                         .trust = rng_float(rng) };
}

/* Runs an update in the device's memory and brings the vectors back. */
static void update_there(const struct device_place *place, const char *op, struct vectors *v,
                         size_t count, const struct attrs *attrs,
                         const struct kernel_update_step *step)
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
        count,
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
    const struct device_place *place = gpu();
    const struct device_face *cpu;
    static struct vectors expected, actual;
    struct kernel_update_step step;
    struct attrs attrs;

    CHECK_OK(device_find("cpu", &cpu));
    for (size_t i = 0; i < sizeof update_ops / sizeof update_ops[0]; i++) {
        const size_t count = 1 + rng_below(rng, COUNT);
        fill(&expected, rng);
        actual = expected;
        draw_step(rng, &attrs, &step);
        const struct device_range range = range_of(&expected, count);
        device_update(cpu, update_ops[i])->run(NULL, &range, &attrs, &step);
        update_there(place, update_ops[i], &actual, count, &attrs, &step);
        if (memcmp(&expected, &actual, sizeof expected) != 0)
            test_fail(__FILE__, __LINE__, "%s has other bits than on the cpu", update_ops[i]);
    }
}

static void sums_of_squares_agree(struct rng *rng)
{
    const struct device_place *place = gpu();
    const struct device_memory_ops *memory = place->face->memory;
    const size_t count = 1 + rng_below(rng, 100000);
    float *data, *data_there;
    double *sum_there, sums[2];
    void *scratch;

    CHECK_OK(mem_alloc(count, sizeof *data, &data));
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
    memory->destroy(place->device, scratch);
    memory->destroy(place->device, sum_there);
    memory->destroy(place->device, data_there);
    mem_free(data);
}

/* The table ---------------------------------------------------------------------------- */

static void what_is_no_device_is_refused(void)
{
    const struct device_face *face;

    CHECK_STATUS(STATUS_USAGE, device_find("tpu", &face));
    CHECK_MESSAGE("unknown device tpu");
    CHECK_OK(device_find("cpu", &face));
    CHECK_TEXT("cpu", face->name);
}

static void a_plugin_that_is_not_there_is_named(void)
{
    const struct device_face *face;

    CHECK(setenv("TUTTI_CUDA", "/nowhere/tutti-cuda.so", 1) == 0);
    CHECK_STATUS(STATUS_NOT_FOUND, device_find("cuda", &face));
    CHECK_MESSAGE("/nowhere/tutti-cuda.so");
    CHECK(unsetenv("TUTTI_CUDA") == 0);
}

/* Opened without a driver: the rows are there all the same. */
static void every_op_has_a_row_in_the_plugin(void)
{
    const struct device_face *face;
    const struct kernel *reference;

    if (device_load_cuda(&face) != STATUS_OK)
        test_skip(status_message());
    CHECK_TEXT("cuda", face->name);
    for (size_t i = 0; (reference = reference_at(i)) != NULL; i++) {
        bool found = false;
        const struct kernel *kernel;
        for (size_t k = 0; (kernel = face->kernel_at(k)) != NULL; k++)
            found = found || strcmp(kernel->op, reference->op) == 0;
        if (!found)
            test_fail(__FILE__, __LINE__, "%s has no kernel of CUDA", reference->op);
    }
    for (size_t i = 0; i < sizeof update_ops / sizeof update_ops[0]; i++)
        CHECK(device_update(face, update_ops[i]) != NULL);
    CHECK(device_update(face, "no_update") == NULL);
}

static void a_machine_without_a_gpu_says_so(void)
{
    const struct device_face *face;
    struct device *device;
    int count;

    if (device_load_cuda(&face) != STATUS_OK)
        test_skip(status_message());
    if (face->count(&count) == STATUS_OK) {
        CHECK(count > 0);
        CHECK_STATUS(STATUS_NOT_FOUND, face->open(count, &device));
        CHECK_MESSAGE("there is no device");
        return;
    }
    CHECK_MESSAGE("cuda: ");
    CHECK_STATUS(STATUS_UNSUPPORTED, device_find("cuda", &face));
}

static void memory_that_is_not_there_is_refused(void)
{
    const struct device_place *place = gpu();
    void *memory;

    CHECK_STATUS(STATUS_NO_MEMORY,
                 place->face->memory->create(place->device, (size_t)1 << 45, &memory));
    CHECK_MESSAGE("MiB are free");
    CHECK_OK(place->face->memory->create_host(place->device, 100, &memory));
    place->face->memory->destroy_host(place->device, memory);
}

const struct test tests[] = {
    { .name = "what is no device is refused", .run = what_is_no_device_is_refused },
    { .name = "a plug-in that is not there is named",
      .run = a_plugin_that_is_not_there_is_named },
    { .name = "every op has a row in the plug-in", .run = every_op_has_a_row_in_the_plugin },
    { .name = "a machine without a GPU says so", .run = a_machine_without_a_gpu_says_so },
    { .name = "the cpu is a device", .run = the_cpu_is_a_device },
    { .name = "memory that is not there is refused",
      .run = memory_that_is_not_there_is_refused },
    { .name = "updates have the bits of the cpu",
      .property = updates_have_the_bits_of_the_cpu },
    { .name = "sums of squares agree", .property = sums_of_squares_agree },
    { .name = "devices agree on whole numbers", .property = devices_agree_on_whole_numbers },
    { .name = "devices agree on any numbers", .property = devices_agree_on_any_numbers },
    { .name = "devices agree on large problems", .run = devices_agree_on_large_problems },
    { 0 },
};
