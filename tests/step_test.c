/* SPDX-License-Identifier: MIT */
/* step_test.c - training steps of exec/, whatever the cut into shards, lanes and ranks, are those of
 * the definition: each shard through the plain graph, node by node, the gradients added up, and the
 * optimizer's rule as its paper has it, in double: p -= lr * gradient, LARS or LAMB; running averages
 * go a tenth of the way to what the step saw. With batch norm over the whole step the definition is the
 * plain graph with all samples as one shard.
 *
 * Unlike exec_test, which compares exec/ with itself bit for bit, this compares it with something
 * that shares neither plan nor fusion nor kernels with it; so within a tolerance.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"
#include "exec/exec.h"
#include "graph/op.h"
#include "interpret.h"
#include "pass/strategy.h"
#include "random_model.h"

enum { STEPS = 3 };

struct job {
    int64_t batch, shards;
    int64_t samples[STEPS];
    int ranks, threads;
    bool sync_norm; /* batch norm over the whole step, so that it is like one shard */
    struct optim_config optim;
    double tolerance;    /* of parameters */
    struct graph *graph; /* for exec/ */
    struct kernel_choices *choices;
    float *x[STEPS]; /* whole batches */
    int32_t *y[STEPS];
    int64_t floats; /* of a sample */
    struct exec_result results[STEPS];
    float *params[STEPS + 1]; /* plain, one after the other, before each step and at the end */
    double *state[2];         /* the definition's: momentum; m, v */
    int64_t n_params;
};

static struct graph *build(const struct job *job, struct rng rng)
{
    struct graph *graph;

    CHECK_OK(graph_create("random", &graph));
    random_model_add(graph, job->batch, false, &rng);
    CHECK_OK(graph_verify(graph));
    return graph;
}

static void fill_batches(struct job *job, struct rng *rng)
{
    for (int s = 0; s < STEPS; s++) {
        const int64_t count = job->samples[s] * job->floats;
        CHECK_OK(mem_alloc((size_t)count, sizeof(float), &job->x[s]));
        CHECK_OK(mem_alloc((size_t)job->samples[s], sizeof(int32_t), &job->y[s]));
        for (int64_t i = 0; i < count; i++)
            job->x[s][i] = (float)rng_normal(rng);
        for (int64_t i = 0; i < job->samples[s]; i++)
            job->y[s][i] = (int32_t)rng_below(rng, RANDOM_MODEL_CLASSES);
    }
    for (int s = 0; s <= STEPS; s++)
        CHECK_OK(mem_alloc((size_t)job->n_params, sizeof(float), &job->params[s]));
    for (int i = 0; i < 2; i++)
        CHECK_OK(mem_alloc((size_t)job->n_params, sizeof(double), &job->state[i]));
}

/* exec/ ---------------------------------------------------------------------------------- */

static void get_params(const struct exec *exec, float *out)
{
    for (int p = 0; p < exec_param_count(exec); p++) {
        exec_get(exec, p, -1, out);
        out += shape_count(&exec_param(exec, p)->shape);
    }
}

static enum status run_steps(struct job *job, struct exec *exec, bool is_first)
{
    const int64_t shards = job->shards, first = exec_first_shard(exec);

    TRY(exec_init_params(exec));
    if (is_first)
        get_params(exec, job->params[0]);
    for (int s = 0; s < STEPS; s++) {
        struct batch batch = { .step = (uint64_t)s,
                               .samples = job->samples[s],
                               .weight = job->samples[s] };
        struct exec_result result;

        batch.first = sampler_shard_begin(batch.samples, shards, first);
        batch.rows =
            sampler_shard_begin(batch.samples, shards, first + exec_shard_count(exec)) -
            batch.first;
        batch.x = job->x[s] + batch.first * job->floats;
        batch.y = job->y[s] + batch.first;
        TRY(exec_step(exec, &batch, &result));
        TRY(exec_settle(exec));
        if (is_first) {
            job->results[s] = result;
            get_params(exec, job->params[s + 1]);
        }
        TRY(exec_settle(exec)); /* before another rank changes what was read */
    }
    return STATUS_OK;
}

static enum status run_rank(struct comm *comm, void *arg)
{
    struct job *job = arg;
    const struct exec_config config = {
        .train = job->graph,
        .comm = comm,
        .threads = job->threads,
        .shards = job->shards,
        .batch = job->batch,
        .seed = 7,
        .choices = job->choices,
        .optim = job->optim,
    };
    struct exec *exec;

    TRY(exec_create(&config, &exec));
    const enum status status = run_steps(job, exec, comm_rank(comm) == 0);
    exec_destroy(exec);
    return status;
}

/* The definition ------------------------------------------------------------------------- */

static bool is_saved(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

/* Parameters and averages, from a plain vector. */
static void set_params(struct interpreter *in, const struct graph *graph, const float *plain)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (!is_saved(value))
            continue;
        layout_from_plain(value->layout, &value->shape, sizeof(float), plain,
                          interpret_data(in, value));
        plain += shape_count(&value->shape);
    }
}

/* Adds a shard's gradients, and what it saw of the averages, to `sum`. */
static void add_gradients(const struct interpreter *in, const struct graph *graph,
                          float *scratch, double *sum)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (!is_saved(value))
            continue;
        const int64_t count = shape_count(&value->shape);
        layout_to_plain(value->gradient->layout, &value->shape, sizeof(float),
                        interpret_data(in, value->gradient), scratch);
        for (int64_t k = 0; k < count; k++)
            *sum++ += (double)scratch[k];
    }
}

static double clip_factor(const struct job *job, const struct graph *graph, const double *sum)
{
    double squares = 0;

    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const int64_t count = is_saved(value) ? shape_count(&value->shape) : 0;
        for (int64_t k = 0; k < count; k++)
            squares += value->kind == VALUE_PARAM ? sum[k] * sum[k] : 0;
        sum += count;
    }
    const double most = (double)job->optim.attrs.max_norm;
    return most > 0 && most < sqrt(squares) ? most / sqrt(squares) : 1;
}

struct expected {
    double loss, correct;
    double *sum; /* of the gradients */
};

/* One shard of `shards` of a step, from the parameters that exec/ had before it. */
static void run_shard(const struct job *job, const struct graph *graph, int s, int64_t shards,
                      int64_t v, struct expected *expected)
{
    const int64_t begin = sampler_shard_begin(job->samples[s], shards, v);
    const int64_t rows = sampler_shard_begin(job->samples[s], shards, v + 1) - begin;
    const struct kernel_step step = {
        .seed = 7,
        .first_sample = (uint64_t)s * (uint64_t)job->batch + (uint64_t)begin,
        .inv_batch = (float)(1.0 / (double)job->samples[s]),
    };
    const struct graph_roles *roles = graph_roles((struct graph *)graph);
    struct interpreter *in;
    float *scratch;

    if (rows == 0)
        return;
    CHECK_OK(mem_alloc((size_t)job->n_params, sizeof *scratch, &scratch));
    CHECK_OK(interpret_create(graph, rows, NULL, &in));
    memcpy(interpret_data(in, roles->input), job->x[s] + begin * job->floats,
           (size_t)(rows * job->floats) * sizeof(float));
    memcpy(interpret_data(in, roles->target), job->y[s] + begin,
           (size_t)rows * sizeof(int32_t));
    set_params(in, graph, job->params[s]);
    interpret_run(in, 0, graph_node_count(graph), &step);
    expected->loss += (double)((const float *)interpret_data(in, roles->loss))[0];
    if (roles->correct)
        expected->correct += (double)((const float *)interpret_data(in, roles->correct))[0];
    add_gradients(in, graph, scratch, expected->sum);
    interpret_destroy(in);
    mem_free(scratch);
}

static double norm_of(const double *data, int64_t count)
{
    double squares = 0;

    for (int64_t k = 0; k < count; k++)
        squares += data[k] * data[k];
    return sqrt(squares);
}

/* What a parameter is multiplied by its rate and subtracted: `moves` becomes that. You, Gitman, Ginsburg
 * 2017, with PyTorch's momentum, and You et al. 2019; one with one extent has neither decay nor ratio.
 * Returns the rate's factor that comes after momentum. */
static double follow_rule(const struct job *job, const struct value *value, int s,
                          const float *before, double *moves, double *m, double *v)
{
    const struct attrs *a = &job->optim.attrs;
    const int64_t count = shape_count(&value->shape);
    const bool adapts = value->shape.rank > 1 || a->adapts_all;
    const double decay = adapts ? (double)a->weight_decay : 0;
    const bool is_lamb = job->optim.optimizer == optim_find("lamb");
    double weight = 0, trust = 1;

    if (job->optim.optimizer == optim_find("sgd"))
        return 1;
    for (int64_t k = 0; k < count; k++)
        weight += (double)before[k] * (double)before[k];
    weight = sqrt(weight);
    if (!is_lamb && adapts && norm_of(moves, count) > 0 && weight > 0)
        trust = (double)a->trust * weight / (norm_of(moves, count) + decay * weight);
    for (int64_t k = 0; k < count; k++) {
        if (!is_lamb) {
            m[k] = (double)a->momentum * m[k] + trust * (moves[k] + decay * (double)before[k]);
            moves[k] = m[k];
            continue;
        }
        const double b1 = (double)a->beta1, b2 = (double)a->beta2;
        m[k] = b1 * m[k] + (1 - b1) * moves[k];
        v[k] = b2 * v[k] + (1 - b2) * moves[k] * moves[k];
        moves[k] = m[k] / (1 - pow(b1, s + 1)) /
                       (sqrt(v[k] / (1 - pow(b2, s + 1))) + (double)a->epsilon) +
                   decay * (double)before[k];
    }
    const double length = norm_of(moves, count);
    return is_lamb && adapts && weight > 0 && length > 0 ? weight / length : 1;
}

/* Compares loss and parameters after a step. */
static void check_step(const struct job *job, const struct graph *graph, int s)
{
    struct expected expected = { 0 };
    double *m = job->state[0], *v = job->state[1];
    const float *before = job->params[s], *after = job->params[s + 1];

    CHECK_OK(mem_alloc((size_t)job->n_params, sizeof(double), &expected.sum));
    const int64_t shards = job->sync_norm ? 1 : job->shards;
    for (int64_t shard = 0; shard < shards; shard++)
        run_shard(job, graph, s, shards, shard, &expected);
    CHECK_CLOSE(expected.loss, job->results[s].loss, 1e-4);
    CHECK_CLOSE(expected.correct, job->results[s].correct, 0);
    const double scale = clip_factor(job, graph, expected.sum);
    double *sum = expected.sum;
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const int64_t count = is_saved(value) ? shape_count(&value->shape) : 0;
        double lr = job->optim.schedule.lr;
        if (value->kind == VALUE_PARAM) {
            for (int64_t k = 0; k < count; k++)
                sum[k] *= scale;
            lr *= follow_rule(job, value, s, before, sum, m, v);
        }
        for (int64_t k = 0; k < count; k++, before++, after++, sum++)
            CHECK_CLOSE(value->kind == VALUE_PARAM ? (double)*before - lr * *sum
                                                   : 0.9 * (double)*before + 0.1 * *sum,
                        *after, job->tolerance);
        m += count;
        v += count;
    }
    mem_free(expected.sum);
}

static int64_t saved_count(const struct graph *graph)
{
    int64_t count = 0;

    for (int i = 0; i < graph_value_count(graph); i++) {
        if (is_saved(graph_value(graph, i)))
            count += shape_count(&graph_value(graph, i)->shape);
    }
    return count;
}

/* Plain SGD, LARS or LAMB. Adam divides small numbers by small ones, so LAMB's epsilon is large here and
 * rounding still is seen; what the tests are about is seen better. */
static void pick_optimizer(struct job *job, struct rng *rng)
{
    static const struct {
        const char *name;
        struct attrs attrs;
        double lr, tolerance;
    } rules[] = {
        { "sgd", { .momentum = 0 }, 0.125, 1e-4 },
        { "lars", { .momentum = 0.5F, .weight_decay = 0.25F, .trust = 0.125F }, 0.5, 1e-4 },
        { "lamb",
          { .beta1 = 0.5F, .beta2 = 0.75F, .epsilon = 0.125F, .weight_decay = 0.25F },
          0.0625,
          1e-4 },
    };
    const uint64_t r = rng_below(rng, 3);

    job->optim.optimizer = optim_find(rules[r].name);
    job->optim.attrs = rules[r].attrs;
    job->optim.attrs.max_norm = rng_below(rng, 2) ? 0.5F : 0;
    job->optim.attrs.adapts_all = r > 0 && rng_below(rng, 4) == 0;
    job->optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = rules[r].lr };
    job->tolerance = rules[r].tolerance;
}

/* Runs a random model as `job` says, and checks its steps. */
static void check_steps(const struct job *made, struct rng *rng)
{
    static struct job job;

    job = *made;
    for (int s = 0; s < STEPS; s++)
        job.samples[s] =
            rng_below(rng, 2) ? job.batch : 1 + (int64_t)rng_below(rng, (uint64_t)job.batch);
    pick_optimizer(&job, rng);
    const struct pass_config config = { .batch = job.batch,
                                        .shards = job.shards,
                                        .ranks = job.ranks,
                                        .bucket_bytes = 64 << rng_below(rng, 10),
                                        .factors = rng_below(rng, 2),
                                        .recompute = rng_below(rng, 2),
                                        .sync_norm = job.sync_norm,
                                        .optim = job.optim };
    CHECK_OK(kernel_choices_load(NULL, &job.choices));

    job.graph = build(&job, *rng);
    struct graph *plain = build(&job, *rng);
    const struct shape *input = &graph_roles(plain)->input->shape;
    job.floats = input->dim[1] * input->dim[2] * input->dim[3];
    job.n_params = saved_count(plain);
    fill_batches(&job, rng);
    CHECK_OK(pass_run(job.graph, strategy_find(job.ranks > 1 ? "mirrored" : "single")->passes,
                      &config, NULL));
    CHECK_OK(pass_autodiff.run(plain, &config));
    CHECK_OK(comm_testing_threads(job.ranks, NULL, run_rank, &job));
    for (int s = 0; s < STEPS; s++)
        check_step(&job, plain, s);

    for (int s = 0; s < STEPS; s++) {
        mem_free(job.x[s]);
        mem_free(job.y[s]);
    }
    for (int s = 0; s <= STEPS; s++)
        mem_free(job.params[s]);
    for (int i = 0; i < 2; i++)
        mem_free(job.state[i]);
    graph_destroy(job.graph);
    graph_destroy(plain);
    kernel_choices_destroy(job.choices);
}

static void test_steps_are_those_of_the_definition(struct rng *rng)
{
    const int64_t shards = 1 + (int64_t)rng_below(rng, 7);
    const struct job job = { .shards = shards,
                             .batch = shards * (1 + (int64_t)rng_below(rng, 4)),
                             .ranks =
                                 1 + (int)rng_below(rng, shards < 3 ? (uint64_t)shards : 3),
                             .threads = 1 + (int)rng_below(rng, 3) };

    check_steps(&job, rng);
}

/* A lane a shard; at times two threads share a lane's work. */
static void test_synchronized_steps_are_those_of_one_shard(struct rng *rng)
{
    const int ranks = 1 + (int)rng_below(rng, 3), lanes = 1 + (int)rng_below(rng, 3);
    const struct job job = { .shards = ranks * lanes,
                             .batch = ranks * lanes * (1 + (int64_t)rng_below(rng, 4)),
                             .ranks = ranks,
                             .threads = lanes * (1 + (int)rng_below(rng, 2)),
                             .sync_norm = true };

    check_steps(&job, rng);
}

const struct test tests[] = {
    { .name = "steps are those of the definition",
      .property = test_steps_are_those_of_the_definition },
    { .name = "synchronized steps are those of one shard",
      .property = test_synchronized_steps_are_those_of_one_shard },
    { 0 },
};
