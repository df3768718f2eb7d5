/* SPDX-License-Identifier: MIT */
/* plan_test.c - buffers of a plan share the arena, but never while both are needed. */
#include "base/mem.h"
#include "base/test.h"
#include "exec/plan.h"
#include "graph/op.h"
#include "model/model.h"
#include "pass/strategy.h"

static const struct plan_factors no_factors;
static const struct plan_gathers no_gathers;

/* A piece of the arena and the instructions [first, last] that need it. */
struct span {
    const struct value *value; /* NULL: scratch */
    size_t begin, end;
    int first, last;
    int after; /* the span that it may lie on: what its instruction writes over; or -1 */
};

/* The value whose memory this one is. */
static const struct value *root_of(const struct value *value)
{
    while (value->maker && value->maker->op->is_view)
        value = value->maker->in[0];
    return value;
}

/* Last instruction that reads a value or a view of it; `made` if none does. */
static int last_use(const struct plan *plan, const struct value *value, int made)
{
    int last = made;

    for (int n = made + 1; n < plan->n_instructions; n++) {
        const struct node *node = plan->instructions[n].node;
        for (int i = 0; i < node->n_in; i++) {
            if (root_of(node->in[i]) == value)
                last = n;
        }
    }
    return last;
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

/* Finds the span of the value that instruction n reads as input i, and checks that it reads
 * there what was written. */
static int span_of_input(const struct plan *plan, const struct span *spans, int count, int n,
                         int i)
{
    const struct instruction *reader = &plan->instructions[n];
    const struct value *root = root_of(reader->node->in[i]);

    for (int s = 0; s < count; s++) {
        if (spans[s].value == root) {
            CHECK(reader->in[i].base == BASE_ARENA && reader->in[i].offset == spans[s].begin);
            return s;
        }
    }
    CHECK(reader->in[i].base != BASE_ARENA);
    return -1;
}

/* The last instruction before which a gradient in the arena may not be written over: that after which
 * its bucket and all before it are announced. */
static int last_of_gradient(const struct plan *plan, int bucket)
{
    const uint64_t buckets = ((UINT64_C(1) << bucket) - 1) * 2 + 1;
    int last = -1;

    for (int n = 0; n < plan->n_instructions; n++) {
        if (plan->instructions[n].after & buckets)
            last = n;
    }
    return last;
}

static int collect_spans(const struct plan *plan, struct span *spans)
{
    int count = 0;

    for (int n = 0; n < plan->n_instructions; n++) {
        const struct instruction *made = &plan->instructions[n];
        const int extended = made->node->op->extends; /* or written over */
        int first_input = -1;

        for (int i = 0; i < made->node->n_in; i++) {
            const int s = span_of_input(plan, spans, count, n, i);
            first_input = i == extended ? s : first_input;
        }
        for (int i = 0; i < made->node->n_out; i++) {
            if (made->out[i].base != BASE_ARENA)
                continue;
            const struct op *op = made->node->op;
            const bool over = i == op->overwrites && (op->may_overwrite || extended > 0) &&
                              first_input >= 0 && spans[first_input].last == n;
            const struct value *out = made->node->out[i];
            spans[count++] = (struct span){
                .value = out,
                .begin = made->out[i].offset,
                .end = made->out[i].offset + bytes_of(&made->problem.out[i]),
                .first = n,
                .last = out->flat ? last_of_gradient(plan, plan_bucket_of(out->flat))
                                  : last_use(plan, out, n),
                .after = over ? first_input : -1,
            };
        }
        if (made->kernel->scratch_bytes)
            spans[count++] = (struct span){
                .begin = made->scratch,
                .end = made->scratch + made->kernel->scratch_bytes(&made->problem),
                .first = n,
                .last = n,
                .after = -1,
            };
    }
    return count;
}

static void check_plan(const struct plan *plan)
{
    enum { SPANS = 4096 };
    static struct span spans[SPANS];
    const int count = collect_spans(plan, spans);
    size_t sum = 0;

    CHECK(count > 0 && count <= SPANS);
    for (int s = 0; s < count; s++) {
        CHECK(spans[s].begin % MEM_ALIGN == 0 && spans[s].end <= plan->arena_bytes);
        sum += (spans[s].end - spans[s].begin + MEM_ALIGN - 1) / MEM_ALIGN * MEM_ALIGN;
        for (int t = 0; t < s; t++) {
            const bool at_once =
                spans[s].first <= spans[t].last && spans[t].first <= spans[s].last;
            const bool apart = spans[s].end <= spans[t].begin || spans[t].end <= spans[s].begin;
            if (at_once && !apart && spans[s].after != t)
                test_fail(__FILE__, __LINE__, "%s and %s lie on each other",
                          spans[s].value ? spans[s].value->name : "scratch",
                          spans[t].value ? spans[t].value->name : "scratch");
        }
    }
    CHECK(plan->arena_bytes <= sum);
}

/* Every bucket is final once, after the last instruction that touches it. */
static void check_buckets(const struct plan *plan, int n_buckets)
{
    for (int b = 0; b < n_buckets; b++) {
        const uint64_t bit = UINT64_C(1) << b;
        int final = -1;

        for (int n = 0; n < plan->n_instructions; n++) {
            const struct instruction *i = &plan->instructions[n];
            for (int k = 0; k < i->node->n_in; k++) {
                if (i->node->in[k]->flat && plan_bucket_of(i->node->in[k]->flat) == b)
                    CHECK(final < 0);
            }
            for (int k = 0; k < i->node->n_out; k++) {
                if (i->node->out[k]->flat && plan_bucket_of(i->node->out[k]->flat) == b)
                    CHECK(final < 0);
            }
            if (i->after & bit) {
                CHECK_INT(-1, final);
                final = n;
            }
        }
        CHECK(final >= 0);
    }
}

/* A gradient lies where its bucket does. */
static void check_gradients(const struct plan *plan, const struct plan_buckets *buckets)
{
    for (int n = 0; n < plan->n_instructions; n++) {
        const struct instruction *i = &plan->instructions[n];
        for (int k = 0; k < i->node->n_out; k++) {
            const struct value *out = i->node->out[k];
            if (!out->flat)
                continue;
            const int b = plan_bucket_of(out->flat);
            const size_t in_bucket = (size_t)out->offset * sizeof(float);
            CHECK_INT(buckets->pass ? BASE_ARENA : BASE_GRAD, i->out[k].base);
            CHECK_INT(in_bucket + (buckets->pass ? plan->gradients[b]
                                                 : (size_t)buckets->begin[b] * sizeof(float)),
                      i->out[k].offset);
        }
    }
}

static struct graph *training_graph(const struct model *model, int64_t bucket_bytes)
{
    struct pass_config config = {
        .batch = 32, .shards = 4, .ranks = 2, .bucket_bytes = bucket_bytes
    };
    struct model_config model_config = model_defaults(model);
    struct graph *graph;

    config.optim.optimizer = optim_find("sgd");
    config.optim.attrs = config.optim.optimizer->defaults;
    model_config.batch = config.batch;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, strategy_find("mirrored")->passes, &config, NULL));
    return graph;
}

static struct graph *evaluation_graph(const struct model *model)
{
    const struct pass_config whole = { .batch = 1, .shards = 1, .ranks = 1 };
    struct model_config model_config = model_defaults(model);
    struct graph *graph;

    model_config.training = false;
    CHECK_OK(model_build(model, &model_config, &graph));
    CHECK_OK(pass_run(graph, pass_evaluation, &whole, NULL));
    return graph;
}

static struct plan_buckets buckets_of(const struct graph *graph)
{
    struct plan_buckets buckets = { .count = pass_bucket_count(graph) };

    for (int b = 0; b < buckets.count; b++)
        buckets.begin[b + 1] =
            buckets.begin[b] + shape_count(&pass_bucket_value(graph, b, "param")->shape);
    return buckets;
}

/* So many rows, of the lengths that the model has. */
static struct extents extents_of(const struct graph *graph, int64_t rows)
{
    struct extents extents = graph_extents(graph);
    extents.rows = rows;
    return extents;
}

static void test_buffers_needed_at_once_lie_apart(struct rng *rng)
{
    struct kernel_choices *choices;

    const struct model *model;
    uint64_t n_models = 0;

    while (model_table[n_models])
        n_models++;
    model = model_table[rng_below(rng, n_models)];
    const int64_t rows = 1 + (int64_t)rng_below(rng, 40);
    struct graph *train = training_graph(model, (int64_t)rng_below(rng, 100000));
    struct graph *eval = evaluation_graph(model);
    struct plan_buckets buckets = buckets_of(train);
    struct plan *plan;

    buckets.pass = rng_below(rng, 2) == 1;
    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_OK(plan_create(train, train, extents_of(train, rows), &buckets, &no_factors,
                         &no_gathers, choices, &plan));
    CHECK_INT(rows, plan->extents.rows);
    check_plan(plan);
    check_buckets(plan, buckets.count);
    check_gradients(plan, &buckets);
    plan_destroy(plan);
    CHECK_OK(plan_create(eval, train, extents_of(eval, rows), &buckets, &no_factors,
                         &no_gathers, choices, &plan));
    check_plan(plan);
    plan_destroy(plan);
    graph_destroy(train);
    graph_destroy(eval);
    kernel_choices_destroy(choices);
}

/* The output of the first layer, which others would write over. */
static void test_the_output_of_an_evaluation_stays(void)
{
    struct graph *train = training_graph(model_find("cnn"), 0);
    struct graph *eval = evaluation_graph(model_find("cnn"));
    const struct plan_buckets buckets = buckets_of(train);
    struct kernel_choices *choices;
    struct plan *plan;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    graph_roles(eval)->output = graph_node(eval, 0)->out[0];
    CHECK_OK(plan_create(eval, train, (struct extents){ .rows = 8 }, &buckets, &no_factors,
                         &no_gathers, choices, &plan));
    const size_t begin = plan->output.offset,
                 end = begin + bytes_of(&plan->instructions[0].problem.out[0]);
    CHECK(plan->output.base == BASE_ARENA && plan->n_instructions > 3);
    CHECK(begin == plan->instructions[0].out[0].offset);
    for (int n = 1; n < plan->n_instructions; n++) {
        const struct instruction *later = &plan->instructions[n];
        for (int i = 0; i < later->problem.n_out; i++) {
            const size_t from = later->out[i].offset;
            CHECK(later->out[i].base != BASE_ARENA || from >= end ||
                  from + bytes_of(&later->problem.out[i]) <= begin);
        }
    }
    plan_destroy(plan);
    kernel_choices_destroy(choices);
    graph_destroy(train);
    graph_destroy(eval);
}

static void test_a_plan_that_finds_no_memory_leaks_nothing(void)
{
    struct graph *graph = training_graph(model_find("cnn"), 0);
    const struct plan_buckets buckets = buckets_of(graph);
    struct kernel_choices *choices;
    struct plan *plan;
    enum status status = STATUS_NO_MEMORY;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    for (uint64_t nth = 1; status != STATUS_OK && nth < 1000; nth++) {
        mem_fail_at(nth);
        status = plan_create(graph, graph, (struct extents){ .rows = 8 }, &buckets, &no_factors,
                             &no_gathers, choices, &plan);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
    }
    CHECK_OK(status);
    plan_destroy(plan);
    plan_destroy(NULL);
    kernel_choices_destroy(choices);
    graph_destroy(graph);
}

const struct test tests[] = {
    { .name = "buffers needed at once lie apart",
      .property = test_buffers_needed_at_once_lie_apart },
    { .name = "the output of an evaluation stays",
      .run = test_the_output_of_an_evaluation_stays },
    { .name = "a plan that finds no memory leaks nothing",
      .run = test_a_plan_that_finds_no_memory_leaks_nothing },
    { 0 },
};
