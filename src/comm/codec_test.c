/* SPDX-License-Identifier: MIT */
/* codec_test.c - known answers of each codec; and of all of them, by the table: that nothing is
 * lost over steps, that nodes agree, that training converges, that damage is refused. */
#include "comm/codec.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "comm/measure.h"

enum { MOST_NODES = 4, MOST_ROUNDS = 2 };

/* Nodes that send to each other --------------------------------------------------------- */

struct job {
    int n;
    size_t count;
    struct codec_state *states[MOST_NODES];
    char *payloads[MOST_NODES];
    float *sums[MOST_NODES];
};

static const char guard = 42;

static struct codec_config parsed(const char *text)
{
    struct codec_config config;

    CHECK_OK(codec_parse(text, &config));
    return config;
}

static size_t longest(const struct codec_state *state)
{
    size_t most = 0;

    for (int round = 0; round < codec_rounds(state); round++)
        most = codec_max_bytes(state, round) > most ? codec_max_bytes(state, round) : most;
    return most;
}

static void begin_job(struct job *job, const struct codec_config *config,
                      const struct codec_layout *layout, size_t count, int n)
{
    *job = (struct job){ .n = n, .count = count };
    for (int node = 0; node < n; node++) {
        CHECK_OK(codec_create(config, layout, count, &job->states[node]));
        CHECK_OK(mem_alloc(longest(job->states[node]) + 1, 1, &job->payloads[node]));
        CHECK_OK(mem_alloc(count + 1, sizeof(float), &job->sums[node]));
    }
}

static void end_job(struct job *job)
{
    for (int node = 0; node < job->n; node++) {
        codec_destroy(job->states[node]);
        mem_free(job->payloads[node]);
        mem_free(job->sums[node]);
    }
}

/* One step of all nodes; gradients: one a node. All have the same sum afterwards. */
static void step(struct job *job, const float *const *gradients)
{
    for (int round = 0; round < codec_rounds(job->states[0]); round++) {
        size_t bytes[MOST_NODES];

        for (int node = 0; node < job->n; node++) {
            const size_t most = codec_max_bytes(job->states[node], round);
            job->payloads[node][most] = guard;
            bytes[node] =
                codec_encode(job->states[node], round, gradients[node], job->payloads[node]);
            CHECK_INT(most, bytes[node]);
            CHECK(job->payloads[node][most] == guard);
        }
        for (int node = 0; node < job->n; node++) {
            job->sums[node][job->count] = 42;
            CHECK_OK(codec_decode(job->states[node], round, (const void *const *)job->payloads,
                                  bytes, job->n, job->sums[node]));
            CHECK(job->sums[node][job->count] == 42);
        }
    }
    for (int node = 1; node < job->n; node++)
        CHECK(memcmp(job->sums[node], job->sums[0], job->count * sizeof(float)) == 0);
}

static const float *error_of(struct codec_state *state)
{
    struct codec_vector vectors[CODEC_VECTORS];

    CHECK(codec_vectors(state, vectors) >= 1);
    CHECK_TEXT("error", vectors[0].name);
    return vectors[0].data;
}

/* A bucket with a matrix, a vector, a matrix and something behind it. */
struct bucket {
    struct codec_matrix matrices[3];
    struct codec_layout layout;
    size_t count;
};

static void make_bucket(struct rng *rng, struct bucket *out)
{
    size_t at = rng_below(rng, 5);

    for (int i = 0; i < 3; i++) {
        const size_t rows = 1 + rng_below(rng, 40), cols = i == 1 ? 1 : 1 + rng_below(rng, 90);
        out->matrices[i] = (struct codec_matrix){ at, rows, cols };
        at += rows * cols + rng_below(rng, 2) * rng_below(rng, 40);
    }
    out->layout = (struct codec_layout){ out->matrices, 3 };
    out->count = at;
}

static void fill(struct rng *rng, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const double size = rng_below(rng, 10) == 0 ? 10 : 0.1;
        out[i] = rng_below(rng, 20) == 0 ? 0 : (float)(size * rng_normal(rng));
    }
}

/* Every codec, with its usual number and with another. */
static const char *const texts[] = { "bf16",       "int8",     "int8:32",    "topk",
                                     "topk:0.3",   "topk:1",   "onebit",     "onebit:40",
                                     "powersgd:1", "powersgd", "powersgd:7", NULL };
enum { N_TEXTS = sizeof(texts) / sizeof(texts[0]) - 1 };

static void test_every_codec_is_tried(void)
{
    for (int i = 0; codecs[i]; i++) {
        bool found = false;
        for (int at = 0; texts[at]; at++)
            found |=
                strncmp(texts[at], codec_name(codecs[i]), strlen(codec_name(codecs[i]))) == 0;
        CHECK(found);
        CHECK(codec_summary(codecs[i])[0] != '\0');
    }
}

/* Laws --------------------------------------------------------------------------------- */

enum { STEPS = 7 };

/* After some steps: what was decoded + all errors = all gradients, and all nodes agree. */
static void check_nothing_is_lost(struct rng *rng, const char *text)
{
    const struct codec_config config = parsed(text);
    const int n = 1 + (int)rng_below(rng, MOST_NODES);
    struct bucket bucket;
    struct job job;
    float *gradients[MOST_NODES];
    double *truth, *decoded;

    make_bucket(rng, &bucket);
    begin_job(&job, &config, &bucket.layout, bucket.count, n);
    CHECK_OK(mem_alloc(bucket.count, sizeof(double), &truth));
    CHECK_OK(mem_alloc(bucket.count, sizeof(double), &decoded));
    for (int node = 0; node < n; node++)
        CHECK_OK(mem_alloc(bucket.count, sizeof(float), &gradients[node]));
    for (int time = 0; time < STEPS; time++) {
        for (int node = 0; node < n; node++) {
            fill(rng, gradients[node], bucket.count);
            for (size_t i = 0; i < bucket.count; i++)
                truth[i] += (double)gradients[node][i];
        }
        step(&job, (const float *const *)gradients);
        for (size_t i = 0; i < bucket.count; i++)
            decoded[i] += (double)job.sums[0][i];
    }
    for (size_t i = 0; i < bucket.count; i++) {
        for (int node = 0; node < n; node++)
            decoded[i] += (double)error_of(job.states[node])[i];
        CHECK_CLOSE(truth[i], decoded[i], 2e-4);
    }
    for (int node = 0; node < n; node++)
        mem_free(gradients[node]);
    mem_free(truth);
    mem_free(decoded);
    end_job(&job);
}

static void test_nothing_is_lost(struct rng *rng)
{
    check_nothing_is_lost(rng, texts[rng_below(rng, N_TEXTS)]);
}

static void copy_state(struct codec_state *from, struct codec_state *to)
{
    struct codec_vector source[CODEC_VECTORS], target[CODEC_VECTORS];
    const int n = codec_vectors(from, source);

    CHECK_INT(n, codec_vectors(to, target));
    for (int i = 0; i < n; i++) {
        CHECK_INT(source[i].count, target[i].count);
        CHECK_TEXT(source[i].name, target[i].name);
        memcpy(target[i].data, source[i].data, source[i].count * sizeof(float));
    }
}

/* The same gradients give the same bits; a state that was saved and loaded goes on the same. */
static void test_bits_repeat_and_resume(struct rng *rng)
{
    const struct codec_config config = parsed(texts[rng_below(rng, N_TEXTS)]);
    struct job first, second;
    struct bucket bucket;
    float *gradients[2];

    make_bucket(rng, &bucket);
    for (int node = 0; node < 2; node++)
        CHECK_OK(mem_alloc(bucket.count, sizeof(float), &gradients[node]));
    begin_job(&first, &config, &bucket.layout, bucket.count, 2);
    begin_job(&second, &config, &bucket.layout, bucket.count, 2);
    for (int time = 0; time < 4; time++) {
        for (int node = 0; node < 2; node++)
            fill(rng, gradients[node], bucket.count);
        step(&first, (const float *const *)gradients);
        if (time == 1) {
            copy_state(first.states[0], second.states[0]);
            copy_state(first.states[1], second.states[1]);
            continue;
        }
        step(&second, (const float *const *)gradients);
        CHECK(memcmp(first.sums[0], second.sums[0], bucket.count * sizeof(float)) == 0);
    }
    end_job(&first);
    end_job(&second);
    mem_free(gradients[0]);
    mem_free(gradients[1]);
}

/* As if the seed mattered: another one gives powersgd another Q. */
static void test_seed(void)
{
    const struct codec_matrix matrix = { 0, 20, 30 };
    const struct codec_layout layout = { &matrix, 1 };
    struct codec_config config = parsed("powersgd:2");
    float gradient[600];
    const float *gradients[] = { gradient };
    struct job one, other;
    struct rng rng;

    rng_init(&rng, 1, 1);
    fill(&rng, gradient, 600);
    begin_job(&one, &config, &layout, 600, 1);
    config.seed = 7;
    begin_job(&other, &config, &layout, 600, 1);
    step(&one, gradients);
    step(&other, gradients);
    CHECK(memcmp(one.sums[0], other.sums[0], sizeof(gradient)) != 0);
    end_job(&one);
    end_job(&other);
}

/* Gradient descent on two nodes, node k having f_k(x) = sum of a (x - t_k)^2 / 2: the minimum of
 * f_0 + f_1 is half-way between t_0 and t_1, where neither node's gradient is zero. */
static void check_converges(const char *text, int steps, double rate)
{
    enum { ROWS = 24, COLS = 40, COUNT = ROWS * COLS + 40 };
    const struct codec_matrix matrix = { 0, ROWS, COLS };
    const struct codec_layout layout = { &matrix, 1 };
    const struct codec_config config = parsed(text);
    float x[COUNT] = { 0 }, target[2][COUNT], slope[COUNT], gradient[2][COUNT];
    const float *gradients[] = { gradient[0], gradient[1] };
    struct job job;
    struct rng rng;
    double left = 0, first = 0; /* squares of the distances at the end, at the start */

    rng_init(&rng, 3, 3);
    for (size_t i = 0; i < COUNT; i++) {
        slope[i] = 0.5f + rng_float(&rng);
        target[0][i] = (float)rng_normal(&rng);
        target[1][i] = (float)rng_normal(&rng);
    }
    begin_job(&job, &config, &layout, COUNT, 2);
    for (int time = 0; time < steps; time++) {
        /* The rate falls towards the end: what errors stir up is in proportion to it. */
        const double now = time < steps / 2 ? rate : rate * 2 * (steps - time) / steps;
        for (int node = 0; node < 2; node++)
            for (size_t i = 0; i < COUNT; i++)
                gradient[node][i] = slope[i] * (x[i] - target[node][i]);
        step(&job, gradients);
        for (size_t i = 0; i < COUNT; i++)
            x[i] -= (float)now / 2 * job.sums[0][i];
    }
    for (size_t i = 0; i < COUNT; i++) {
        const double best = (double)(target[0][i] + target[1][i]) / 2;
        left += ((double)x[i] - best) * ((double)x[i] - best);
        first += best * best;
    }
    end_job(&job);
    if (!(sqrt(left / first) <= 0.02))
        test_fail(__FILE__, __LINE__, "%s: %g of the way is left", text, sqrt(left / first));
}

static void test_descent_converges(void)
{
    check_converges("bf16", 60, 0.5);
    check_converges("int8", 60, 0.5);
    check_converges("topk:0.1", 1500, 0.05);
    check_converges("onebit", 2000, 0.02);
    check_converges("powersgd:4", 1500, 0.05);
}

/* Three nodes' errors are added and given to node 0 of two: nothing is lost on the way. */
static void test_errors_for_another_number_of_nodes(void)
{
    enum { COUNT = 300 };
    const struct codec_config config = parsed("topk:0.1");
    float gradient[3][COUNT];
    const float *gradients[] = { gradient[0], gradient[1], gradient[2] };
    double truth[COUNT] = { 0 }, decoded[COUNT] = { 0 };
    struct codec_vector vectors[CODEC_VECTORS];
    struct job three, two;
    struct rng rng;

    rng_init(&rng, 5, 5);
    begin_job(&three, &config, NULL, COUNT, 3);
    begin_job(&two, &config, NULL, COUNT, 2);
    for (int time = 0; time < 6; time++) {
        struct job *job = time < 3 ? &three : &two;
        for (int node = 0; node < job->n; node++) {
            fill(&rng, gradient[node], COUNT);
            for (size_t i = 0; i < COUNT; i++)
                truth[i] += (double)gradient[node][i];
        }
        step(job, gradients);
        for (size_t i = 0; i < COUNT; i++)
            decoded[i] += (double)job->sums[0][i];
        CHECK_INT(1, codec_vectors(two.states[0], vectors));
        for (size_t i = 0; i < COUNT && time == 2; i++)
            for (int node = 0; node < 3; node++)
                vectors[0].data[i] += error_of(three.states[node])[i];
    }
    for (size_t i = 0; i < COUNT; i++)
        CHECK_CLOSE(truth[i],
                    decoded[i] + (double)error_of(two.states[0])[i] +
                        (double)error_of(two.states[1])[i],
                    1e-4);
    end_job(&three);
    end_job(&two);
}

static void test_not_a_number_is_sent(void)
{
    const struct codec_matrix matrix = { 0, 30, 30 };
    const struct codec_layout layout = { &matrix, 1 };

    for (int at = 0; texts[at]; at++) {
        const struct codec_config config = parsed(texts[at]);
        const float bad[] = { NAN, -NAN, INFINITY };

        for (int kind = 0; kind < 3; kind++) {
            float gradient[1000] = { 0 };
            const float *gradients[] = { gradient, gradient };
            bool found = false;
            struct job job;

            gradient[77] = bad[kind];
            begin_job(&job, &config, &layout, 1000, 1);
            step(&job, gradients);
            for (size_t i = 0; i < 1000; i++)
                found |= !isfinite(job.sums[0][i]);
            if (!found)
                test_fail(__FILE__, __LINE__, "%s: %g vanished", texts[at], (double)bad[kind]);
            end_job(&job);
        }
    }
}

static void test_empty_and_tiny_buckets(void)
{
    for (int at = 0; texts[at]; at++) {
        const struct codec_config config = parsed(texts[at]);

        for (size_t count = 0; count < 4; count++) {
            const float gradient[3] = { 1, -2, 3 };
            const float *gradients[] = { gradient, gradient };
            struct job job;

            begin_job(&job, &config, NULL, count, 2);
            step(&job, gradients);
            step(&job, gradients);
            end_job(&job);
        }
    }
}

/* Known answers ------------------------------------------------------------------------ */

/* One step of one node; the sum and the error afterwards. */
static void once(const char *text, const float *gradient, size_t count,
                 const struct codec_layout *layout, float *sum, float *error)
{
    const struct codec_config config = parsed(text);
    struct job job;

    begin_job(&job, &config, layout, count, 1);
    step(&job, &gradient);
    memcpy(sum, job.sums[0], count * sizeof(float));
    memcpy(error, error_of(job.states[0]), count * sizeof(float));
    end_job(&job);
}

static void test_bf16_known(void)
{
    /* Ties to even: 1 + 2^-8 down to 1, 1 + 3 * 2^-8 up to 1 + 2^-6; then a carry. */
    const float given[] = { 1, 0x1.01p0f, 0x1.03p0f, -0x1.03p0f, 0x1.ffp0f, 0x1.0101p0f, 0 };
    const float expected[] = { 1, 1, 0x1.04p0f, -0x1.04p0f, 2, 0x1.02p0f, 0 };
    float sum[7], error[7];

    once("bf16", given, 7, NULL, sum, error);
    CHECK(memcmp(expected, sum, sizeof(sum)) == 0);
    for (int i = 0; i < 7; i++)
        CHECK(error[i] == given[i] - expected[i]);
}

static void test_int8_known(void)
{
    const float given[] = { 127, -127, 2.5f, 3.5f, -0.4f, 0 };
    const float expected[] = { 127, -127, 2, 4, 0, 0 };
    float many[2000] = { 0 }, sum[2000], error[2000];

    once("int8", given, 6, NULL, sum, error);
    for (int i = 0; i < 6; i++)
        CHECK(sum[i] == expected[i] && error[i] == given[i] - expected[i]);
    many[0] = 1000; /* does not concern the second block */
    many[1] = 1;
    many[1024] = 1;
    many[1025] = 1e-35f;
    once("int8", many, 2000, NULL, sum, error);
    CHECK(sum[0] == 1000 && sum[1] == 0 && error[1] == 1);
    CHECK(sum[1024] == 1 && error[1024] == 0 && sum[1025] == 0);
}

static void test_topk_known(void)
{
    const float given[] = { 1, -5, 3, 3, -3, 0, 4, 2, 3, 1 };
    const float expected[] = { 0, -5, 3, 3, 0, 0, 4, 0, 0, 0 }; /* of four 3 the first two */
    float sum[10], error[10];

    once("topk:0.4", given, 10, NULL, sum, error);
    for (int i = 0; i < 10; i++)
        CHECK(sum[i] == expected[i] && error[i] == given[i] - expected[i]);
}

/* What topk has to send, by sorting: larger ones first, of equal ones the first. */
static bool comes_before(const float *x, size_t a, size_t b)
{
    const float left = fabsf(x[a]), right = fabsf(x[b]);

    return left > right || (left == right && a < b);
}

static void choose_largest(const float *x, size_t count, size_t n, bool *is_sent)
{
    for (size_t i = 0; i < count; i++) {
        size_t before = 0;
        for (size_t j = 0; j < count; j++)
            before += comes_before(x, j, i);
        is_sent[i] = before < n;
    }
}

/* Over steps whose gradients change size suddenly and slowly, and with many equal elements: the
 * threshold of the step before helps, hinders, or is of no use. */
static void test_topk_sends_the_largest(struct rng *rng)
{
    enum { COUNT = 700 };
    const struct codec_config config = parsed("topk:0.02");
    float gradient[COUNT], whole[COUNT] = { 0 };
    const float *gradients[] = { gradient };
    bool is_sent[COUNT];
    struct job job;

    begin_job(&job, &config, NULL, COUNT, 1);
    for (int time = 0; time < 12; time++) {
        const float scale = rng_below(rng, 4) == 0 ? powf(10, 4 * rng_float(rng) - 2) : 1;
        const bool is_coarse = rng_below(rng, 3) == 0;

        for (size_t i = 0; i < COUNT; i++) {
            const float number = (float)rng_normal(rng);
            gradient[i] = scale * (is_coarse ? roundf(number) : number);
            whole[i] += gradient[i];
        }
        step(&job, gradients);
        choose_largest(whole, COUNT, 14, is_sent);
        for (size_t i = 0; i < COUNT; i++) {
            CHECK(job.sums[0][i] == (is_sent[i] ? whole[i] : 0));
            whole[i] = is_sent[i] ? 0 : whole[i];
        }
    }
    end_job(&job);
}

/* Suddenly everything is larger than the threshold of the step before: the result is that of a
 * state that has none. */
static void test_topk_after_a_jump(void)
{
    enum { COUNT = 40000 };
    const struct codec_config config = parsed("topk:0.001");
    const float scales[] = { 1, 1, 1000, 0.001f, 1 };
    float *gradient;
    struct job job, other;
    struct rng rng;

    rng_init(&rng, 11, 11);
    CHECK_OK(mem_alloc(COUNT, sizeof(float), &gradient));
    begin_job(&job, &config, NULL, COUNT, 1);
    for (size_t time = 0; time < sizeof(scales) / sizeof(scales[0]); time++) {
        const float *gradients[] = { gradient };

        for (size_t i = 0; i < COUNT; i++)
            gradient[i] = scales[time] * (float)rng_normal(&rng);
        begin_job(&other, &config, NULL, COUNT, 1);
        copy_state(job.states[0], other.states[0]);
        step(&job, gradients);
        step(&other, gradients);
        CHECK(memcmp(job.sums[0], other.sums[0], COUNT * sizeof(float)) == 0);
        CHECK(memcmp(error_of(job.states[0]), error_of(other.states[0]),
                     COUNT * sizeof(float)) == 0);
        end_job(&other);
    }
    end_job(&job);
    mem_free(gradient);
}

static void test_onebit_known(void)
{
    const float given[] = { 3, -1, 5, -2 };
    const float expected[] = { 4, -1.5f, 4, -1.5f };
    float sum[4], error[4];

    once("onebit", given, 4, NULL, sum, error);
    for (int i = 0; i < 4; i++)
        CHECK(sum[i] == expected[i] && error[i] == given[i] - expected[i]);
}

/* A matrix of rank 2 is sent whole by rank 2 and by more; what is no matrix always. */
static void test_powersgd_known(void)
{
    enum { ROWS = 30, COLS = 50, COUNT = ROWS * COLS + 10 };
    const struct codec_matrix matrix = { 10, ROWS, COLS };
    const struct codec_layout layout = { &matrix, 1 };
    float given[COUNT], sum[COUNT], error[COUNT];

    for (size_t i = 0; i < 10; i++)
        given[i] = (float)i;
    for (size_t i = 0; i < ROWS; i++)
        for (size_t j = 0; j < COLS; j++)
            given[10 + i * COLS + j] = (float)((i % 5) * (j % 7)) - (float)(i * (j % 3)) / 4;
    for (int many = 0; many < 2; many++) {
        once(many ? "powersgd:5" : "powersgd:2", given, COUNT, &layout, sum, error);
        for (size_t i = 0; i < COUNT; i++) {
            CHECK_CLOSE(given[i], sum[i], 1e-4);
            CHECK_CLOSE(0, error[i], 1e-3);
        }
        CHECK(memcmp(given, sum, 10 * sizeof(float)) == 0);
    }
    once("powersgd:1", given, COUNT, &layout, sum, error);
    double norm = 0;
    for (size_t i = 0; i < COUNT; i++)
        norm += fabs((double)error[i]);
    CHECK(norm > 1);
}

/* The warm start: repeated on one matrix, a step's approximation comes near the best of that
 * rank. Singular values 8, 4, 2 and 1 on orthogonal axes: the best of rank 2 leaves 2 and 1. */
static void test_powersgd_finds_the_largest(void)
{
    enum { ROWS = 20, COLS = 24, COUNT = ROWS * COLS };
    const struct codec_matrix matrix = { 0, ROWS, COLS };
    const struct codec_layout layout = { &matrix, 1 };
    const struct codec_config config = parsed("powersgd:2");
    float gradient[COUNT] = { 0 };
    const float *gradients[] = { gradient };
    struct codec_vector vectors[CODEC_VECTORS];
    struct job job;

    for (size_t i = 0; i < 4; i++)
        gradient[(3 * i + 1) * COLS + 5 * i] = (float)(8 >> i);
    begin_job(&job, &config, &layout, COUNT, 1);
    CHECK_INT(2, codec_vectors(job.states[0], vectors));
    for (int time = 0; time < 12; time++) {
        memset(vectors[0].data, 0, sizeof(gradient));
        step(&job, gradients);
    }
    CHECK_CLOSE(8, job.sums[0][1 * COLS], 1e-3);
    CHECK_CLOSE(4, job.sums[0][4 * COLS + 5], 1e-3);
    CHECK_CLOSE(2, vectors[0].data[7 * COLS + 10], 1e-3);
    end_job(&job);
}

static void test_bytes(void)
{
    static const struct {
        const char *text;
        size_t round_0, round_1;
    } rows[] = {
        { "bf16", 2 * 3000, 0 },
        { "int8", 3000 + 3 * 4, 0 },
        { "int8:16", 3000 + 188 * 4, 0 },
        { "topk", 30 * 6 + 4, 0 },
        { "topk:0.1", 300 * 6 + 4, 0 },
        { "onebit", 94 * 4 + 3 * 8, 0 },
        { "powersgd:2", 2 * 50 * 4, 2 * 40 * 4 + 1000 * 4 },
    };
    const struct codec_matrix matrices[] = { { 0, 50, 40 }, { 2000, 2, 500 } };
    const struct codec_layout layout = { matrices, 2 };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct codec_config config = parsed(rows[i].text);
        struct codec_state *state;

        CHECK_OK(codec_create(&config, &layout, 3000, &state));
        CHECK_INT(rows[i].round_0, codec_max_bytes(state, 0));
        if (rows[i].round_1 > 0)
            CHECK_INT(rows[i].round_1, codec_max_bytes(state, 1));
        CHECK_INT(rows[i].round_1 > 0 ? 2 : 1, codec_rounds(state));
        codec_destroy(state);
    }
}

static void test_measure(void)
{
    for (int at = 0; texts[at]; at++) {
        const struct codec_config config = parsed(texts[at]);
        struct codec_measurement result;

        CHECK_OK(codec_measure(&config, 40000, 3, 0.001, &result));
        CHECK(result.encode_us > 0 && result.decode_us > 0);
        CHECK(result.payload_bytes > 0 && result.payload_bytes <= 60004);
        CHECK_STATUS(STATUS_USAGE, codec_measure(&config, 40000, 0, 0.001, &result));
    }
}

/* Refusals ----------------------------------------------------------------------------- */

static void test_names(void)
{
    struct codec_config config = { 0 };

    CHECK_OK(codec_parse("topk:0.25", &config));
    CHECK_TEXT("topk", codec_name(config.codec));
    CHECK(config.amount == 0.25);
    CHECK_OK(codec_parse("powersgd", &config));
    CHECK(config.amount == 4);
    static const char *const wrong[][2] = {
        { "topj", "there is no codec topj; did you mean topk?" },
        { "", "there is no codec ; there are bf16 int8 topk onebit powersgd" },
        { "a name that is longer than any codec has ever had", "there is no codec a name" },
        { "bf16:2", "codec bf16 takes no number" },
        { "topk:", "codec topk:: the share is a number from 1e-06 to 1, as in topk:0.01" },
        { "topk:0", "codec topk:0: the share is a number from 1e-06 to 1, as in topk:0.01" },
        { "topk:1%", "codec topk:1%: the share is a number" },
        { "topk:nan", "codec topk:nan: the share is a number" },
        { "topk:-0.1", "codec topk:-0.1: the share is a number" },
        { "powersgd:1.5",
          "codec powersgd:1.5: the rank is a whole number from 1 to 64, as in powersgd:4" },
        { "powersgd:65", "codec powersgd:65: the rank is a whole number" },
        { "int8:1", "codec int8:1: the block is a whole number from 16" },
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        CHECK_STATUS(STATUS_USAGE, codec_parse(wrong[i][0], &config));
        CHECK_MESSAGE(wrong[i][1]);
    }
}

/* Decodes node 1's payload after `change` has been at it; node 0's is good. */
struct damage {
    const char *text;
    size_t at; /* byte */
    uint8_t value;
};

static void test_damage_is_refused(void)
{
    enum { COUNT = 70000 }; /* topk: two groups, 65536 and 4464 elements; 70 are sent */
    static const struct damage rows[] = {
        { "topk:0.001", 0, 71 },        /* more in the first group than are sent */
        { "topk:0.001", 3, 255 },       /* far more */
        { "topk:0.001", 4, 1 },         /* one less in the second than were left */
        { "topk:0.001", 8 + 280, 255 }, /* the first place is behind the second */
        { "topk:0.001", 427, 255 },     /* the last is outside its group */
    };
    float *gradient, *sum;
    struct rng rng;

    rng_init(&rng, 9, 9);
    CHECK_OK(mem_alloc(COUNT, sizeof(float), &gradient));
    CHECK_OK(mem_alloc(COUNT, sizeof(float), &sum));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct codec_config config = parsed(rows[i].text);
        const float *gradients[] = { gradient, gradient };
        struct job job;
        size_t bytes[2];

        fill(&rng, gradient, COUNT);
        for (size_t at = 0; at < 20; at++) /* in both groups, and far apart */
            gradient[at * 3499] = 1000;
        gradient[COUNT - 1] = 1000;
        begin_job(&job, &config, NULL, COUNT, 2);
        for (int node = 0; node < 2; node++)
            bytes[node] =
                codec_encode(job.states[node], 0, gradients[node], job.payloads[node]);
        CHECK_OK(
            codec_decode(job.states[0], 0, (const void *const *)job.payloads, bytes, 2, sum));
        CHECK((uint8_t)job.payloads[1][rows[i].at] != rows[i].value);
        job.payloads[1][rows[i].at] = (char)rows[i].value;
        if (rows[i].at == 8 + 280) /* places have two bytes */
            job.payloads[1][rows[i].at + 1] = (char)rows[i].value;
        sum[0] = 42;
        CHECK_STATUS(
            STATUS_CORRUPT,
            codec_decode(job.states[0], 0, (const void *const *)job.payloads, bytes, 2, sum));
        CHECK_MESSAGE("node 1");
        CHECK(sum[0] == 42);
        end_job(&job);
    }
    mem_free(gradient);
    mem_free(sum);
}

static void test_other_lengths_are_refused(void)
{
    for (int at = 0; texts[at]; at++) {
        const struct codec_config config = parsed(texts[at]);
        const float gradient[500] = { 1 };
        float sum[500] = { 42 };
        struct job job;

        begin_job(&job, &config, NULL, 500, 1);
        for (int round = 0; round < codec_rounds(job.states[0]); round++) {
            const size_t right = codec_encode(job.states[0], round, gradient, job.payloads[0]);
            size_t wrong = right + 1;

            CHECK_STATUS(STATUS_CORRUPT,
                         codec_decode(job.states[0], round, (const void *const *)job.payloads,
                                      &wrong, 1, sum));
            CHECK_MESSAGE("node 0 sent");
            wrong = 0;
            if (right > 0)
                CHECK_STATUS(STATUS_CORRUPT,
                             codec_decode(job.states[0], round,
                                          (const void *const *)job.payloads, &wrong, 1, sum));
            CHECK(sum[0] == 42);
        }
        end_job(&job);
    }
}

static void test_no_memory(void)
{
    const struct codec_matrix matrix = { 0, 50, 40 };
    const struct codec_layout layout = { &matrix, 1 };

    for (int at = 0; texts[at]; at++) {
        const struct codec_config config = parsed(texts[at]);
        struct codec_state *state;
        enum status status = STATUS_NO_MEMORY;

        for (uint64_t nth = 1; status != STATUS_OK; nth++) {
            mem_fail_at(nth);
            status = codec_create(&config, &layout, 3000, &state);
            mem_fail_at(0);
            CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY);
        }
        codec_destroy(state);
    }
    codec_destroy(NULL);
}

const struct test tests[] = {
    { .name = "every codec is tried", .run = test_every_codec_is_tried },
    { .name = "nothing is lost", .property = test_nothing_is_lost },
    { .name = "bits repeat and resume", .property = test_bits_repeat_and_resume },
    { .name = "the seed matters", .run = test_seed },
    { .name = "descent converges", .run = test_descent_converges },
    { .name = "errors for another number of nodes",
      .run = test_errors_for_another_number_of_nodes },
    { .name = "what is not a number is sent", .run = test_not_a_number_is_sent },
    { .name = "empty and tiny buckets", .run = test_empty_and_tiny_buckets },
    { .name = "bf16 known", .run = test_bf16_known },
    { .name = "int8 known", .run = test_int8_known },
    { .name = "topk known", .run = test_topk_known },
    { .name = "topk sends the largest", .property = test_topk_sends_the_largest },
    { .name = "topk after a jump", .run = test_topk_after_a_jump },
    { .name = "onebit known", .run = test_onebit_known },
    { .name = "powersgd known", .run = test_powersgd_known },
    { .name = "powersgd finds the largest", .run = test_powersgd_finds_the_largest },
    { .name = "bytes as predicted", .run = test_bytes },
    { .name = "measure", .run = test_measure },
    { .name = "names", .run = test_names },
    { .name = "damage is refused", .run = test_damage_is_refused },
    { .name = "other lengths are refused", .run = test_other_lengths_are_refused },
    { .name = "no memory", .run = test_no_memory },
    { 0 },
};
