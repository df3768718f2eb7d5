/* SPDX-License-Identifier: MIT */
/* cost_test.c - predictions of a step, where they can be worked out by hand. */
#include "sched/cost.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "model/model.h"
#include "pass/strategy.h"

enum { LAYERS = 8 };

/* Eight equal layers of 1 s forward and 2 s backward, a million bytes of parameters each. */
static struct cost_work even_work(struct cost_layer layers[LAYERS], int64_t shards)
{
    for (int l = 0; l < LAYERS; l++)
        layers[l] = (struct cost_layer){ .name = "l",
                                         .forward = 1,
                                         .backward = 2,
                                         .params = 1e6,
                                         .kept = 1e5,
                                         .crossing = 1e3,
                                         .out = 1e3 };
    return (struct cost_work){ .layers = layers,
                               .n_layers = LAYERS,
                               .n_buckets = 8,
                               .n_states = 1,
                               .shards = shards,
                               .dense = LAYERS * 1e6,
                               .add = 1e-9,
                               .update = 4e-9 };
}

static struct cost_cluster one_machine(int ranks)
{
    const struct cost_link link = { .latency = 1e-6, .bandwidth = 1e9 };

    return (struct cost_cluster){ .nodes = 1,
                                  .ranks = ranks,
                                  .shares = true,
                                  .crowding = 1,
                                  .speed = 1,
                                  .within = link,
                                  .between = link };
}

static struct cost_choice data_parallel(int dp)
{
    return (struct cost_choice){
        .dp = dp, .tp = 1, .pp = 1, .interval = 1, .lanes = 1, .team = 1, .chunks = 1
    };
}

static struct cost_estimate predict(const struct cost_work *work,
                                    const struct cost_cluster *cluster,
                                    struct cost_choice choice)
{
    struct cost_estimate out;

    CHECK_OK(cost_grid(work, cluster, &choice, &out));
    return out;
}

/* Copies of stages may hold theirs in parts: less memory, and more that is given back or sent. */
static void test_grids_hold_parts(void)
{
    struct cost_layer layers[LAYERS];
    struct cost_work work = even_work(layers, 8);
    struct cost_cluster machine = one_machine(4);
    struct cost_choice choice = { .dp = 2,
                                  .tp = 1,
                                  .pp = 2,
                                  .interval = 1,
                                  .lanes = 1,
                                  .team = 1,
                                  .chunks = 1,
                                  .pipeline = PIPE_1F1B };

    machine.shares = false;
    machine.pages = 1e-9;
    for (int l = 0; l < LAYERS; l++)
        layers[l].params = 1e9;
    const struct cost_estimate whole = predict(&work, &machine, choice);
    choice.zero = 2;
    const struct cost_estimate gradients = predict(&work, &machine, choice);
    choice.zero = 3;
    const struct cost_estimate all = predict(&work, &machine, choice);
    CHECK(gradients.memory < whole.memory && all.memory < gradients.memory);
    CHECK(gradients.seconds > whole.seconds && all.seconds > gradients.seconds);
    CHECK_CLOSE(whole.bytes, gradients.bytes, 1);
    CHECK(all.bytes > gradients.bytes);
}

/* Gradients of rows are made when all shards are there: a stage does its own after its last action.
 */
static void test_what_is_made_last_belongs_to_its_stage(void)
{
    struct cost_layer layers[LAYERS];
    const struct cost_work work = even_work(layers, 8);
    const struct cost_cluster machine = one_machine(4);
    struct cost_choice stages = data_parallel(1);

    stages.pp = 2;
    stages.pipeline = PIPE_1F1B;
    const double first = predict(&work, &machine, stages).seconds;
    layers[0].made = 0.5; /* of eight shards */
    CHECK_CLOSE(first + 4, predict(&work, &machine, stages).seconds, 1e-9);
}

static void test_stages_have_the_bubble_and_a_share_of_memory(void)
{
    struct cost_layer layers[LAYERS];
    const struct cost_work work = even_work(layers, 8);
    const struct cost_cluster machine = one_machine(4);
    struct cost_choice choice = data_parallel(1);

    choice.pp = 4;
    choice.pipeline = PIPE_1F1B;
    const struct cost_estimate out = predict(&work, &machine, choice);
    CHECK_CLOSE(3.0 / 11, out.bubble, 1e-3);
    CHECK_CLOSE(11 * 6, out.seconds, 1e-2);
    CHECK_CLOSE(2e6, out.params, 1e-9);
    CHECK_CLOSE(2e6, out.state, 1e-9);
    CHECK_CLOSE(4 * 2e5, out.activations,
                1e-9); /* of the first stage, which has four shards under way */
    choice.pipeline = PIPE_GPIPE;
    CHECK_CLOSE(8 * 2e5, predict(&work, &machine, choice).activations, 1e-9);
}

static void test_a_tensor_split_divides_work(void)
{
    struct cost_layer layers[LAYERS];
    const struct cost_work work = even_work(layers, 1);
    const struct cost_cluster machine = one_machine(2);
    struct cost_choice choice = data_parallel(1);

    choice.tp = 2;
    choice.sharing = (struct cost_sharing){ .forward = 0.5, .backward = 0.5, .params = 0.5 };
    CHECK_CLOSE(12, predict(&work, &machine, choice).seconds, 1e-1);
    CHECK_CLOSE(4e6, predict(&work, &machine, choice).params, 1e-9);
}

static void test_what_is_no_split_is_refused(void)
{
    struct cost_layer layers[LAYERS];
    struct cost_work work = even_work(layers, 2);
    const struct cost_cluster machine = one_machine(16);
    struct cost_choice choice = data_parallel(1);
    struct cost_estimate out;

    choice.pp = 16;
    CHECK_STATUS(STATUS_USAGE, cost_grid(&work, &machine, &choice, &out));
    CHECK_MESSAGE("16 pieces of 8 layers");
    choice.pp = 2;
    choice.dp = 4;
    CHECK_STATUS(STATUS_USAGE, cost_grid(&work, &machine, &choice, &out));
    CHECK_MESSAGE("2 shards for 4 copies");
}

/* A step takes a second. Servers that wait add the pushes of all workers; an exchange every so many
 * steps costs its share. */
static void test_workers_that_train_alone_pay_for_their_exchange(void)
{
    struct cost_layer layers[LAYERS];
    const struct cost_work work = even_work(layers, 4);
    const struct cost_cluster machine = one_machine(4);
    struct cost_choice choice = data_parallel(4);
    struct cost_estimate out = { .seconds = 1 };

    choice.servers = 2;
    choice.waits = true;
    cost_exchange(&work, &machine, &choice, &out);
    CHECK_CLOSE(1 + 2 * 8e6 * 1e-9 + 4e6 * (4 * 1e-9 + 4e-9), out.seconds, 1e-9);
    CHECK_CLOSE(16e6, out.bytes, 1e-9);
    for (int l = 0; l < LAYERS; l++)
        layers[l].sums = 1; /* rows, of which there are few */
    cost_exchange(&work, &machine, &choice, &out);
    CHECK_CLOSE(16, out.bytes, 1e-9);
    out.seconds = 1;
    choice.servers = 0;
    choice.interval = 10;
    cost_exchange(&work, &machine, &choice, &out);
    CHECK_CLOSE(1 + (2 * 1e-6 + 2 * 8e6 * 0.75 / 1e9) / 10, out.seconds, 1e-9);
    CHECK_CLOSE(1.5 * 8e6 / 10, out.bytes, 1e-9);
}

/* No cut has a shorter longest piece: tried out, for few layers. */
static double longest(const struct cost_work *work, int begin, int pieces)
{
    double best = INFINITY, sum = 0;

    if (pieces == 1) {
        for (int l = begin; l < work->n_layers; l++)
            sum += work->layers[l].forward;
        return begin < work->n_layers ? sum : INFINITY;
    }
    for (int l = begin; l < work->n_layers; l++) {
        sum += work->layers[l].forward;
        best = fmin(best, fmax(sum, longest(work, l + 1, pieces - 1)));
    }
    return best;
}

static void test_a_cut_is_balanced_as_well_as_can_be(struct rng *rng)
{
    struct cost_layer layers[LAYERS];
    struct cost_work work = even_work(layers, 1);
    const int pieces = 1 + (int)rng_below(rng, LAYERS);
    int begins[LAYERS + 1];
    double most = 0;

    for (int l = 0; l < LAYERS; l++) {
        layers[l].forward = rng_below(rng, 4) ? (double)rng_float(rng) : 0;
        layers[l].backward = 0;
    }
    CHECK_OK(cost_cut(&work, pieces, begins));
    CHECK_INT(0, begins[0]);
    CHECK_INT(LAYERS, begins[pieces]);
    for (int i = 0; i < pieces; i++) {
        double sum = 0;
        CHECK(begins[i] < begins[i + 1]);
        for (int l = begins[i]; l < begins[i + 1]; l++)
            sum += layers[l].forward;
        most = fmax(most, sum);
    }
    CHECK_CLOSE(longest(&work, 0, pieces), most, 1e-9);
}

static struct graph *graph_of(const char *name)
{
    const struct model *model = model_find(name);
    struct model_config model_config = model_defaults(model);
    struct pass_config config = { .batch = 64, .shards = 4, .ranks = 1 };
    struct graph *graph;

    config.optim.optimizer = optim_find("sgd");
    config.optim.attrs = config.optim.optimizer->defaults;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("single")->passes, &config, NULL));
    return graph;
}

/* Whatever the model, its layers together have all of its time and all of its parameters. */
static void test_layers_have_all_time_and_all_parameters(void)
{
    for (int m = 0; model_table[m]; m++) {
        struct graph *graph = graph_of(model_table[m]->name);
        const int n = graph_node_count(graph);
        double *seconds, total = 0, params = 0, backward = 0;
        struct cost_work work;

        CHECK_OK(mem_alloc((size_t)n, sizeof *seconds, &seconds));
        cost_guess(graph, &cost_usual_rates, seconds);
        for (int i = 0; i < n; i++)
            total += seconds[i];
        for (int v = 0; v < graph_value_count(graph); v++) {
            const struct value *value = graph_value(graph, v);
            if (value->kind == VALUE_PARAM)
                params += 4 * (double)shape_count(&value->shape);
        }
        CHECK_OK(cost_read(graph, seconds, 4, 1, &work));
        CHECK_CLOSE(total, cost_shard_seconds(&work), 1e-9);
        CHECK(cost_params(&work) >= params && cost_params(&work) < 1.1 * params);
        for (int l = 0; l < work.n_layers; l++)
            backward += work.layers[l].backward;
        CHECK(backward > 0 && backward < 0.9 * total);
        CHECK(work.layers[work.n_layers - 1].crossing == 0);
        cost_release(&work);
        mem_free(seconds);
        graph_destroy(graph);
    }
}

/* A gradient is made by the layer that has the weight, or that made what it is the gradient of. */
static void test_backward_belongs_to_the_layer_it_differentiates(void)
{
    static const char *const pairs[][2] = { { "d.conv1.weight", "conv1" },
                                            { "d.conv2", "conv2" },
                                            { "d.fc2.weight", "fc2" },
                                            { "d.drop", "drop" } };
    struct graph *graph = graph_of("cnn");
    const int n = graph_node_count(graph);
    double *seconds;

    CHECK_OK(mem_alloc((size_t)n, sizeof *seconds, &seconds));
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        struct cost_work work;
        for (int i = 0; i < n; i++)
            seconds[i] = strcmp(graph_node(graph, i)->name, pairs[p][0]) == 0;
        CHECK_OK(cost_read(graph, seconds, 4, 1, &work));
        for (int l = 0; l < work.n_layers; l++)
            CHECK_CLOSE(strcmp(work.layers[l].name, pairs[p][1]) == 0, work.layers[l].backward,
                        1e-12);
        CHECK_CLOSE(1, cost_shard_seconds(&work), 1e-12);
        cost_release(&work);
    }
    mem_free(seconds);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "grids hold parts", .run = test_grids_hold_parts },
    { .name = "stages have the bubble and a share of memory",
      .run = test_stages_have_the_bubble_and_a_share_of_memory },
    { .name = "what is made last belongs to its stage",
      .run = test_what_is_made_last_belongs_to_its_stage },
    { .name = "a tensor split divides work", .run = test_a_tensor_split_divides_work },
    { .name = "workers that train alone pay for their exchange",
      .run = test_workers_that_train_alone_pay_for_their_exchange },
    { .name = "what is no split is refused", .run = test_what_is_no_split_is_refused },
    { .name = "a cut is balanced as well as can be",
      .property = test_a_cut_is_balanced_as_well_as_can_be },
    { .name = "layers have all time and all parameters",
      .run = test_layers_have_all_time_and_all_parameters },
    { .name = "backward belongs to the layer it differentiates",
      .run = test_backward_belongs_to_the_layer_it_differentiates },
    { 0 },
};
