/* SPDX-License-Identifier: MIT */
/* infer_test.c - graphs that run by themselves: a small recurrent one, and a model of the zoo. */
#include "exec/infer.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "graph/build.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { FEATURES = 5, WIDTH = 4, ROWS = 7, PLACES = 9, SIDE = 8, CLASSES = 6 };

/* y = x W + b of every place; next = relu(state U + c). */
struct cell {
    struct graph *graph;
    struct value *in[2], *out[2];
};

static struct cell make_cell(void)
{
    struct cell cell;

    CHECK_OK(graph_create("cell", &cell.graph));
    cell.in[0] =
        graph_sequence(cell.graph, "x", DTYPE_F32, (struct shape){ 3, { 1, 1, FEATURES } }, 0);
    cell.in[1] = graph_input(cell.graph, "state", DTYPE_F32, shape_2(1, WIDTH));
    cell.out[0] = build_linear(cell.graph, "places", cell.in[0], 3);
    cell.out[1] =
        build_relu(cell.graph, "next", build_linear(cell.graph, "states", cell.in[1], WIDTH));
    CHECK_OK(graph_status(cell.graph));
    return cell;
}

/* The cell's parameters in a file of small whole numbers. */
struct file {
    struct safetensors *open;
    float places[3 * FEATURES], places_bias[3], states[WIDTH * WIDTH], states_bias[WIDTH];
};

static void fill(float *numbers, size_t count, int from)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = (float)((from + 5 * (int)i) % 7 - 3);
}

static void write_file(struct file *file)
{
    char path[512];

    fill(file->places, 3 * FEATURES, 0);
    fill(file->places_bias, 3, 1);
    fill(file->states, WIDTH * WIDTH, 2);
    fill(file->states_bias, WIDTH, 6);
    const struct safetensors_entry entries[] = {
        { "places.weight", DTYPE_F32, shape_2(3, FEATURES), file->places },
        { "places.bias", DTYPE_F32, shape_1(3), file->places_bias },
        { "states.weight", DTYPE_F32, shape_2(WIDTH, WIDTH), file->states },
        { "states.bias", DTYPE_F32, shape_1(WIDTH), file->states_bias },
    };
    snprintf(path, sizeof path, "%s/weights.safetensors", test_folder());
    CHECK_OK(safetensors_write(path, entries, 4, NULL, 0, NULL));
    CHECK_OK(safetensors_open(path, &file->open));
}

static float expected_linear(const float *x, const float *weight, const float *bias, int out,
                             int features)
{
    float sum = bias[out];

    for (int i = 0; i < features; i++)
        sum += x[i] * weight[out * features + i];
    return sum;
}

/* Runs the cell with states that go round, and checks every number; they are exact. */
static void check_rounds(struct infer *infer, const struct file *file, struct extents extents,
                         int rounds)
{
    _Alignas(64) float x[ROWS * PLACES * FEATURES], y[ROWS * PLACES * 3];
    _Alignas(64) float state[2][ROWS * WIDTH];

    fill(x, sizeof x / sizeof *x, 4);
    fill(state[0], sizeof state[0] / sizeof(float), 3);
    for (int round = 0; round < rounds; round++) {
        const float *before = state[round % 2];
        float *after = state[1 - round % 2];
        CHECK_OK(infer_run(infer, extents, (const void *const[]){ x, before },
                           (void *const[]){ y, after }));
        for (int64_t i = 0; i < extents.rows * extents.length[0]; i++) {
            for (int o = 0; o < 3; o++)
                CHECK(y[i * 3 + o] == expected_linear(x + i * FEATURES, file->places,
                                                      file->places_bias, o, FEATURES));
        }
        for (int64_t i = 0; i < extents.rows; i++) {
            for (int o = 0; o < WIDTH; o++) {
                const float sum = expected_linear(before + i * WIDTH, file->states,
                                                  file->states_bias, o, WIDTH);
                CHECK(after[i * WIDTH + o] == (sum > 0 ? sum : 0));
            }
        }
    }
}

struct setup {
    struct cell cell;
    struct file file;
    struct infer_weights *weights;
    struct kernel_choices *choices;
    struct pool *pool;
    struct infer_config config;
};

static void set_up(struct setup *s, int threads)
{
    s->cell = make_cell();
    write_file(&s->file);
    CHECK_OK(infer_weights_load(s->cell.graph, s->file.open, &s->weights));
    CHECK_OK(kernel_choices_load(NULL, &s->choices));
    CHECK_OK(pool_create(threads, &s->pool));
    s->config = (struct infer_config){
        .graph = s->cell.graph,
        .weights = s->weights,
        .choices = s->choices,
        .pool = threads > 1 ? s->pool : NULL,
        .in = s->cell.in,
        .out = s->cell.out,
        .n_in = 2,
        .n_out = 2,
    };
}

static void tear_down(struct setup *s)
{
    infer_weights_destroy(s->weights);
    kernel_choices_destroy(s->choices);
    pool_destroy(s->pool);
    safetensors_close(s->file.open);
    graph_destroy(s->cell.graph);
}

static void test_states_go_round(void)
{
    for (int threads = 1; threads <= 2; threads++) {
        struct setup s;
        struct infer *infer;

        set_up(&s, threads);
        CHECK_OK(infer_create(&s.config, &infer));
        check_rounds(infer, &s.file, (struct extents){ .rows = 2, .length = { 3, 0 } }, 4);
        infer_destroy(infer);
        tear_down(&s);
    }
}

/* More extents than plans are kept for, some of them again and again. */
static void test_one_graph_serves_all_extents(struct rng *rng)
{
    struct setup s;
    struct infer *infer;

    set_up(&s, 1);
    CHECK_OK(infer_create(&s.config, &infer));
    for (int i = 0; i < 150; i++) {
        const struct extents extents = { .rows = 1 + (int64_t)rng_below(rng, ROWS),
                                         .length = { 1 + (int64_t)rng_below(rng, PLACES) } };
        check_rounds(infer, &s.file, extents, 1);
    }
    infer_destroy(infer);
    tear_down(&s);
}

static void test_known_extents_allocate_nothing(void)
{
    const struct extents one = { .rows = 1, .length = { 1 } };
    struct setup s;
    struct infer *infer;

    set_up(&s, 1);
    CHECK_OK(infer_create(&s.config, &infer));
    check_rounds(infer, &s.file, one, 1);
    const uint64_t before = mem_count();
    check_rounds(infer, &s.file, one, 5);
    CHECK_INT(before, mem_count());
    infer_destroy(infer);
    tear_down(&s);
}

static void test_shapes_follow_extents(void)
{
    struct setup s;
    struct infer *infer;
    struct shape shape;

    set_up(&s, 1);
    CHECK_OK(infer_create(&s.config, &infer));
    CHECK_OK(infer_shape(infer, (struct extents){ .rows = 4, .length = { 6 } }, s.cell.out[0],
                         &shape));
    CHECK(shape_equal(&shape, &(struct shape){ 3, { 4, 6, 3 } }));
    infer_destroy(infer);
    tear_down(&s);
}

static void test_what_is_missing_is_named(void)
{
    struct setup s;
    struct infer *infer;
    struct cell other = make_cell();

    set_up(&s, 1);
    s.config.n_in = 1;
    CHECK_STATUS(STATUS_MISMATCH, infer_create(&s.config, &infer));
    CHECK_MESSAGE("input state of graph cell");
    build_linear(other.graph, "unknown", other.out[1], 2);
    s.config.graph = other.graph;
    s.config.in = other.in;
    s.config.out = other.out;
    s.config.n_in = 2;
    CHECK_STATUS(STATUS_MISMATCH, infer_create(&s.config, &infer));
    CHECK_MESSAGE("parameter unknown.weight");
    CHECK_STATUS(STATUS_MISMATCH, infer_weights_load(other.graph, s.file.open, &s.weights));
    CHECK_MESSAGE("tensor unknown.weight");
    graph_destroy(other.graph);
    tear_down(&s);
}

/* A model of the zoo --------------------------------------------------------------------- */

static struct graph *build_mlp(bool training)
{
    const struct model *model = model_find("mlp");
    struct model_config config = model_defaults(model);
    struct graph *graph;

    config.sample = (struct shape){ 3, { 1, SIDE, SIDE } };
    config.classes = CLASSES;
    config.training = training;
    CHECK_OK(model_build(model, &config, &graph));
    return graph;
}

struct zoo {
    struct graph *train, *forward;
    struct kernel_choices *choices;
    struct optim_config optim;
    _Alignas(64) float images[3 * SIDE * SIDE], from_exec[3 * CLASSES], from_file[3 * CLASSES];
    char path[512];
};

static enum status run_forward(const struct zoo *zoo, const struct infer_weights *weights,
                               float *logits)
{
    struct graph_roles *roles = graph_roles(zoo->forward);
    _Alignas(64) static const int32_t labels[3];
    const struct infer_config config = {
        .graph = zoo->forward,
        .weights = weights,
        .choices = zoo->choices,
        .in = (struct value *const[]){ roles->input, roles->target },
        .out = (struct value *const[]){ roles->output },
        .n_in = 2,
        .n_out = 1,
    };
    struct infer *infer;

    TRY(infer_create(&config, &infer));
    enum status status =
        infer_run(infer, (struct extents){ .rows = 3 },
                  (const void *const[]){ zoo->images, labels }, (void *const[]){ logits });
    infer_destroy(infer);
    return status;
}

static enum status save(const struct exec *exec, const char *path)
{
    struct safetensors_entry entries[16];
    const int count = exec_param_count(exec);
    enum status status = STATUS_OK;
    int i;

    for (i = 0; i < count && status == STATUS_OK; i++) {
        const struct value *value = exec_param(exec, i);
        float *numbers = NULL;
        status = mem_alloc((size_t)shape_count(&value->shape), sizeof *numbers, &numbers);
        if (status == STATUS_OK)
            exec_get(exec, i, -1, numbers);
        entries[i] = (struct safetensors_entry){ value->name, DTYPE_F32,
                                                 graph_saved_shape(value), numbers };
    }
    if (status == STATUS_OK)
        status = safetensors_write(path, entries, (size_t)count, NULL, 0, NULL);
    while (i-- > 0)
        mem_free((void *)entries[i].data);
    return status;
}

static enum status use_exec(struct exec *exec, struct zoo *zoo)
{
    struct infer_weights *weights;

    TRY(exec_init_params(exec));
    TRY(infer_weights_of(exec, &weights));
    enum status status = run_forward(zoo, weights, zoo->from_exec);
    infer_weights_destroy(weights);
    return status == STATUS_OK ? save(exec, zoo->path) : status;
}

static enum status zoo_rank(struct comm *comm, void *arg)
{
    struct zoo *zoo = arg;
    const struct exec_config config = { .train = zoo->train,
                                        .comm = comm,
                                        .threads = 1,
                                        .shards = 1,
                                        .batch = 1,
                                        .seed = 5,
                                        .choices = zoo->choices,
                                        .optim = zoo->optim };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    enum status status = use_exec(exec, zoo);
    exec_destroy(exec);
    return status;
}

/* The executor's parameters where they lie, and the same ones saved and loaded. */
static void test_weights_of_an_executor_are_those_of_its_file(void)
{
    static struct zoo zoo;
    struct pass_config config = { .batch = 1, .shards = 1, .ranks = 1 };
    struct safetensors *file;
    struct infer_weights *weights;
    bool differ = false;

    zoo = (struct zoo){ .optim.optimizer = optim_find("sgd") };
    zoo.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = 0.1 };
    config.optim = zoo.optim;
    fill(zoo.images, 3 * SIDE * SIDE, 2);
    snprintf(zoo.path, sizeof zoo.path, "%s/mlp.safetensors", test_folder());
    zoo.train = build_mlp(true);
    zoo.forward = build_mlp(false);
    CHECK_OK(pass_run(zoo.train, strategy_find("single")->passes, &config, NULL));
    CHECK_OK(kernel_choices_load(NULL, &zoo.choices));
    CHECK_OK(comm_testing_threads(1, NULL, zoo_rank, &zoo));

    CHECK_OK(safetensors_open(zoo.path, &file));
    CHECK_OK(infer_weights_load(zoo.forward, file, &weights));
    CHECK_OK(run_forward(&zoo, weights, zoo.from_file));
    CHECK(memcmp(zoo.from_exec, zoo.from_file, sizeof zoo.from_file) == 0);
    for (int i = 1; i < CLASSES; i++)
        differ = differ || zoo.from_exec[i] != zoo.from_exec[0];
    CHECK(differ);
    infer_weights_destroy(weights);
    safetensors_close(file);
    graph_destroy(zoo.train);
    graph_destroy(zoo.forward);
    kernel_choices_destroy(zoo.choices);
}

const struct test tests[] = {
    { .name = "states go round", .run = test_states_go_round },
    { .name = "one graph serves all extents", .property = test_one_graph_serves_all_extents },
    { .name = "known extents allocate nothing", .run = test_known_extents_allocate_nothing },
    { .name = "shapes follow extents", .run = test_shapes_follow_extents },
    { .name = "what is missing is named", .run = test_what_is_missing_is_named },
    { .name = "weights of an executor are those of its file",
      .run = test_weights_of_an_executor_are_those_of_its_file },
    { 0 },
};
