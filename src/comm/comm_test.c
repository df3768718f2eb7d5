/* SPDX-License-Identifier: MIT */
/* comm_test.c - every collective, by every algorithm, against a plain serial version; and what
 * happens when ranks disagree or die. */
#include "comm/comm.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "comm/algorithm.h"
#include "comm/comm_testing.h"
#include "comm/measure.h"
#include "comm/probe.h"

enum { SMALL = 64, PIECE = 1024 }; /* limits under which short vectors take every path */

static const int group_sizes[] = { 1, 2, 3, 4, 5, 8 }; /* of processes */
static const enum dtype reducible[] = { DTYPE_F32, DTYPE_F64, DTYPE_I32, DTYPE_I64 };

/* The serial reference ------------------------------------------------------------------- */

/* Fills rank's vector: floats of all magnitudes and signs, some of them -0. */
static void fill(void *data, size_t count, enum dtype dtype, uint64_t seed, int rank)
{
    struct rng rng;

    rng_init(&rng, seed, (uint64_t)rank);
    for (size_t i = 0; i < count; i++) {
        const uint64_t word = rng_u64(&rng);
        const double number = ldexp((double)(int32_t)word, (int)(word >> 32 & 63) - 40);
        const bool is_zero = word >> 40 % 16 == 0;

        if (dtype == DTYPE_F32)
            ((float *)data)[i] = is_zero ? -0.0f : (float)number;
        else if (dtype == DTYPE_F64)
            ((double *)data)[i] = is_zero ? -0.0 : number;
        else if (dtype == DTYPE_I32)
            ((int32_t *)data)[i] = (int32_t)word / 16;
        else if (dtype == DTYPE_I64)
            ((int64_t *)data)[i] = (int64_t)word / 16;
        else
            memcpy((char *)data + i * dtype_size(dtype), &word, dtype_size(dtype));
    }
}

static float pair_f32(float left, float right, enum comm_op op)
{
    return op == COMM_OP_SUM ? left + right : left > right ? left : right;
}

static double pair_f64(double left, double right, enum comm_op op)
{
    return op == COMM_OP_SUM ? left + right : left > right ? left : right;
}

static int64_t pair_i64(int64_t left, int64_t right, enum comm_op op)
{
    return op == COMM_OP_SUM ? left + right : left > right ? left : right;
}

/* Element i of ranks [lo, lo + width) combined along the tree; all: vectors one after another.
 */
static double tree_float(const void *all, size_t count, size_t i, enum dtype dtype, int lo,
                         int width, int size, enum comm_op op)
{
    const size_t at = (size_t)lo * count + i;
    const int half = width / 2;

    if (width == 1)
        return dtype == DTYPE_F32 ? ((const float *)all)[at] : ((const double *)all)[at];
    const double left = tree_float(all, count, i, dtype, lo, half, size, op);
    if (lo + half >= size)
        return left;
    const double right = tree_float(all, count, i, dtype, lo + half, half, size, op);
    return dtype == DTYPE_F32 ? pair_f32((float)left, (float)right, op)
                              : pair_f64(left, right, op);
}

/* The sum that all_reduce must give for the vectors in `all`, one a rank. */
static void reduce_serially(const void *all, size_t count, enum dtype dtype, int size,
                            enum comm_op op, void *out)
{
    int width = 1;

    while (width < size)
        width *= 2;
    for (size_t i = 0; i < count; i++) {
        if (dtype == DTYPE_F32) {
            ((float *)out)[i] = (float)tree_float(all, count, i, dtype, 0, width, size, op);
        } else if (dtype == DTYPE_F64) {
            ((double *)out)[i] = tree_float(all, count, i, dtype, 0, width, size, op);
        } else {
            int64_t result = 0;
            for (int rank = 0; rank < size; rank++) {
                const size_t at = (size_t)rank * count + i;
                const int64_t value = dtype == DTYPE_I32 ? ((const int32_t *)all)[at]
                                                         : ((const int64_t *)all)[at];
                result = rank == 0 ? value : pair_i64(result, value, op);
            }
            if (dtype == DTYPE_I32)
                ((int32_t *)out)[i] = (int32_t)result;
            else
                ((int64_t *)out)[i] = result;
        }
    }
}

/* One collective of each kind, checked ---------------------------------------------------- */

struct trial {
    uint64_t seed;
    size_t count;
    enum dtype dtype;
    enum comm_op op;
    int root;
    bool is_shared; /* buffers in shared memory */
    bool in_place;  /* mine is a part of the whole vector */
    bool has_limits;
    /* Made by begin_trial, read by all ranks. */
    size_t bytes;       /* of `count` elements */
    char *inputs, *sum; /* a vector of size * count elements for each rank; their sum */
};

static void begin_trial(struct trial *trial, int size)
{
    const size_t parts = (size_t)size, count = trial->count * parts;

    trial->bytes = trial->count * dtype_size(trial->dtype);
    CHECK_OK(mem_alloc(parts * parts, trial->bytes, &trial->inputs));
    CHECK_OK(mem_alloc(parts, trial->bytes, &trial->sum));
    for (int rank = 0; rank < size; rank++)
        fill(trial->inputs + (size_t)rank * parts * trial->bytes, count, trial->dtype,
             trial->seed, rank);
    if (comm_can_combine(trial->dtype))
        reduce_serially(trial->inputs, count, trial->dtype, size, trial->op, trial->sum);
}

static void end_trial(struct trial *trial)
{
    mem_free(trial->inputs);
    mem_free(trial->sum);
}

static const char *input_of(const struct trial *trial, int rank, int size)
{
    return trial->inputs + (size_t)rank * (size_t)size * trial->bytes;
}

static enum status expect_same(const struct comm *comm, const char *what,
                               const struct trial *trial, const void *expected,
                               const void *actual, size_t bytes)
{
    size_t at = 0;

    if (memcmp(expected, actual, bytes) == 0)
        return STATUS_OK;
    while (((const char *)expected)[at] == ((const char *)actual)[at])
        at++;
    return FAIL(
        STATUS_CORRUPT,
        "%s of %zu %s, op %d, shared %d, in place %d: rank %d of %d differs at byte %zu", what,
        trial->count, dtype_name(trial->dtype), (int)trial->op, trial->is_shared,
        trial->in_place, comm_rank(comm), comm_size(comm), at);
}

static enum status try_all_reduce(struct comm *comm, const struct trial *trial, char *data)
{
    memcpy(data, input_of(trial, comm_rank(comm), comm_size(comm)), trial->bytes);
    data[trial->bytes] = 42; /* a guard */
    TRY(comm_all_reduce(comm, data, trial->count, trial->dtype, trial->op));
    if (data[trial->bytes] != 42)
        return FAIL(STATUS_CORRUPT, "all_reduce wrote behind the vector");
    return expect_same(comm, "all_reduce", trial, trial->sum, data, trial->bytes);
}

static enum status try_reduce_scatter(struct comm *comm, const struct trial *trial, char *data,
                                      char *more)
{
    const int rank = comm_rank(comm), size = comm_size(comm);
    const size_t own = (size_t)rank * trial->bytes;
    char *mine = trial->in_place ? data + own : more;

    memcpy(data, input_of(trial, rank, size), trial->bytes * (size_t)size);
    TRY(comm_reduce_scatter(comm, data, mine, trial->count, trial->dtype, trial->op));
    return expect_same(comm, "reduce_scatter", trial, trial->sum + own, mine, trial->bytes);
}

static enum status try_all_gather(struct comm *comm, const struct trial *trial, char *data,
                                  char *more)
{
    const int rank = comm_rank(comm), size = comm_size(comm);
    char *mine = trial->in_place ? data + (size_t)rank * trial->bytes : more;

    memset(data, 0, trial->bytes * (size_t)size);
    memcpy(mine, input_of(trial, rank, size), trial->bytes);
    TRY(comm_all_gather(comm, mine, data, trial->count, trial->dtype));
    for (int peer = 0; peer < size; peer++)
        TRY(expect_same(comm, "all_gather", trial, input_of(trial, peer, size),
                        data + (size_t)peer * trial->bytes, trial->bytes));
    return STATUS_OK;
}

static enum status try_broadcast(struct comm *comm, const struct trial *trial, char *data)
{
    const int size = comm_size(comm), root = trial->root % size;

    memcpy(data, input_of(trial, comm_rank(comm), size), trial->bytes);
    TRY(comm_broadcast(comm, data, trial->count, trial->dtype, root));
    return expect_same(comm, "broadcast", trial, input_of(trial, root, size), data,
                       trial->bytes);
}

static enum status try_each(struct comm *comm, const struct trial *trial, char *data,
                            char *more)
{
    for (int round = 0; round < 2; round++) {
        if (comm_can_combine(trial->dtype)) {
            TRY(try_all_reduce(comm, trial, data));
            TRY(comm_barrier(comm));
            TRY(try_reduce_scatter(comm, trial, data, more));
        }
        TRY(try_all_gather(comm, trial, data, more));
        TRY(try_broadcast(comm, trial, data));
    }
    return STATUS_OK;
}

static enum status try_all(struct comm *comm, void *arg)
{
    const struct trial *trial = arg;
    const size_t whole = trial->bytes * (size_t)comm_size(comm) + MEM_ALIGN;
    char *memory;
    void *shared;

    if (trial->has_limits)
        comm_set_limits(comm, SMALL, PIECE);
    if (trial->is_shared) {
        TRY(comm_share(comm, 2 * whole, &shared));
        return try_each(comm, trial, shared, (char *)shared + whole);
    }
    TRY(mem_alloc(2, whole, &memory));
    const enum status status = try_each(comm, trial, memory, memory + whole);
    mem_free(memory);
    return status;
}

static void test_agrees_with_serial(struct rng *rng)
{
    static const size_t counts[] = { 0, 1, 2, 3, 16, 17, 31, 61, 127, 256, 257, 1009, 2048 };
    const int size = 1 + (int)rng_below(rng, 9);
    const int nodes = 1 + (int)rng_below(rng, (uint64_t)size);
    struct trial trial = { .seed = rng_u64(rng),
                           .count = counts[rng_below(rng, 13)],
                           .dtype = (enum dtype)rng_below(rng, DTYPE_COUNT),
                           .op = rng_below(rng, 4) == 0 ? COMM_OP_MAX : COMM_OP_SUM,
                           .root = (int)rng_below(rng, 8),
                           .is_shared = rng_below(rng, 2) == 0,
                           .in_place = rng_below(rng, 2) == 0,
                           .has_limits = true };

    begin_trial(&trial, size);
    for (int i = 0; comm_algorithms[i]; i++)
        CHECK_OK(comm_testing_threads(size, comm_algorithm_name(comm_algorithms[i]), try_all,
                                      &trial));
    CHECK_OK(comm_testing_threads(size, NULL, try_all, &trial));
    trial.is_shared = false;
    for (int i = 0; comm_algorithms[i]; i++) {
        if (comm_algorithms[i]->by_messages)
            CHECK_OK(comm_testing_nodes(size, nodes, comm_algorithm_name(comm_algorithms[i]),
                                        try_all, &trial));
    }
    CHECK_OK(comm_testing_nodes(size, nodes, NULL, try_all, &trial));
    end_trial(&trial);
}

static void test_agrees_with_serial_between_processes(void)
{
    for (size_t i = 0; i < 6; i++) {
        struct trial trial = {
            .seed = i, .count = 2003, .dtype = reducible[i % 4], .has_limits = true
        };

        begin_trial(&trial, group_sizes[i]);
        for (int at = 0; comm_algorithms[at]; at++) {
            trial.is_shared = (i + (size_t)at) % 2 == 0;
            CHECK_OK(comm_testing_processes(
                group_sizes[i], comm_algorithm_name(comm_algorithms[at]), try_all, &trial));
        }
        end_trial(&trial);
    }
}

static void test_long_vectors_agree_with_serial(void)
{
    struct trial trial = { .count = COMM_PIECE_BYTES / sizeof(float) + 1001 };

    begin_trial(&trial, 3);
    for (int at = 0; comm_algorithms[at]; at++) {
        CHECK_OK(
            comm_testing_threads(3, comm_algorithm_name(comm_algorithms[at]), try_all, &trial));
        trial.is_shared = !trial.is_shared;
    }
    end_trial(&trial);
}

/* Some ranks' vectors shared, some private: all must take the same path. */
static enum status mixed_body(struct comm *comm, void *arg)
{
    const size_t count = 5000;
    int32_t *mine, *data;
    void *shared;

    (void)arg;
    comm_set_limits(comm, SMALL, PIECE);
    TRY(comm_share(comm, count * sizeof(*data), &shared));
    TRY(mem_alloc(count, sizeof(*mine), &mine));
    data = comm_rank(comm) == 1 ? mine : shared;
    for (size_t i = 0; i < count; i++)
        data[i] = (int32_t)i + comm_rank(comm);
    enum status status = comm_all_reduce(comm, data, count, DTYPE_I32, COMM_OP_SUM);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        if (data[i] != 3 * (int32_t)i + 3)
            status = FAIL(STATUS_CORRUPT, "element %zu is %d", i, (int)data[i]);
    }
    mem_free(mine);
    return status;
}

static void test_mixed_buffers(void)
{
    CHECK_OK(comm_testing_threads(3, NULL, mixed_body, NULL));
}

static enum status nan_body(struct comm *comm, void *arg)
{
    float data[2] = { comm_rank(comm) == 1 ? NAN : 1, (float)comm_rank(comm) };

    (void)arg;
    TRY(comm_all_reduce(comm, data, 2, DTYPE_F32, COMM_OP_MAX));
    if (!isnan(data[0]) || data[1] != 2)
        return FAIL(STATUS_CORRUPT, "max is %g %g", (double)data[0], (double)data[1]);
    return STATUS_OK;
}

static void test_maximum_keeps_nan(void)
{
    CHECK_OK(comm_testing_threads(3, NULL, nan_body, NULL));
    CHECK_OK(comm_testing_threads(3, "direct", nan_body, NULL));
}

/* Other functions -------------------------------------------------------------------------- */

static enum status ring_body(struct comm *comm, void *arg)
{
    const int size = comm_size(comm), rank = comm_rank(comm);
    int token = 0;

    (void)arg;
    if (rank > 0)
        TRY(comm_receive(comm, rank - 1, &token, sizeof(token)));
    token += rank;
    TRY(comm_send(comm, (rank + 1) % size, &token, sizeof(token)));
    if (rank == 0) {
        TRY(comm_receive(comm, size - 1, &token, sizeof(token)));
        if (token != size * (size - 1) / 2)
            return FAIL(STATUS_CORRUPT, "token is %d", token);
    }
    return STATUS_OK;
}

static void test_send_and_receive(void)
{
    CHECK_OK(comm_testing_threads(5, NULL, ring_body, NULL));
    CHECK_OK(comm_testing_threads(1, NULL, ring_body, NULL));
}

/* Two communicators of the same ranks, used by two threads, do not disturb each other. */
struct lane {
    struct comm *comm;
    enum status status;
};

static enum status sum_often(struct comm *comm)
{
    for (int i = 0; i < 200; i++) {
        int64_t data[40];
        for (int at = 0; at < 40; at++)
            data[at] = i + at;
        TRY(comm_all_reduce(comm, data, 40, DTYPE_I64, COMM_OP_SUM));
        if (data[39] != (i + 39) * comm_size(comm))
            return FAIL(STATUS_CORRUPT, "sum %d is %lld", i, (long long)data[39]);
    }
    return STATUS_OK;
}

static void *lane_thread(void *arg)
{
    struct lane *lane = arg;

    lane->status = sum_often(lane->comm);
    return NULL;
}

static enum status lanes_body(struct comm *comm, void *arg)
{
    struct lane lane;
    pthread_t thread;

    TRY(comm_create(comm_transport(comm), arg, &lane.comm));
    BUG_ON(pthread_create(&thread, NULL, lane_thread, &lane) != 0);
    const enum status status = sum_often(comm);
    pthread_join(thread, NULL);
    comm_destroy(lane.comm);
    TRY(status);
    return lane.status;
}

static void test_two_communicators(void)
{
    CHECK_OK(comm_testing_threads(2, NULL, lanes_body, NULL));
    CHECK_OK(comm_testing_threads(2, "direct", lanes_body, "direct"));
    CHECK_OK(comm_testing_threads(3, NULL, lanes_body, "direct"));
}

static enum status queries_body(struct comm *comm, void *arg)
{
    float data[4096] = { 0 };

    (void)arg;
    if (strcmp(comm_last_algorithm(comm), "none") != 0)
        return FAIL(STATUS_CORRUPT, "no algorithm has run yet");
    TRY(comm_all_reduce(comm, data, 10, DTYPE_F32, COMM_OP_SUM));
    if (strcmp(comm_last_algorithm(comm), "small") != 0)
        return FAIL(STATUS_CORRUPT, "%s ran", comm_last_algorithm(comm));
    TRY(comm_all_reduce(comm, data, 4096, DTYPE_F32, COMM_OP_SUM));
    if (strcmp(comm_last_algorithm(comm), "shared") != 0)
        return FAIL(STATUS_CORRUPT, "%s ran", comm_last_algorithm(comm));
    if (comm_all_reduce(comm, data, 4, DTYPE_BF16, COMM_OP_SUM) != STATUS_UNSUPPORTED ||
        comm_broadcast(comm, data, 4, DTYPE_F32, 2) != STATUS_USAGE ||
        comm_all_reduce(comm, data, SIZE_MAX / 2, DTYPE_F32, COMM_OP_SUM) != STATUS_USAGE)
        return FAIL(STATUS_CORRUPT, "a wrong call was accepted");
    return comm_barrier(comm);
}

static void test_choice_and_refusals(void)
{
    CHECK_OK(comm_testing_threads(2, NULL, queries_body, NULL));
    CHECK_STATUS(STATUS_USAGE, comm_testing_threads(1, "telepathy", queries_body, NULL));
    CHECK_MESSAGE("telepathy");
}

static void test_costs(void)
{
    for (int i = 0; comm_algorithms[i]; i++) {
        const struct comm_cost one = comm_algorithm_cost(comm_algorithms[i], 1, 1, 1000);
        const struct comm_cost four = comm_algorithm_cost(comm_algorithms[i], 4, 1, 1000);
        const struct comm_cost two_nodes = comm_algorithm_cost(comm_algorithms[i], 4, 2, 1000);

        if (!comm_algorithms[i]->run[COMM_ALL_REDUCE])
            continue;
        CHECK(one.bytes == 0 && one.wire == 0);
        CHECK(four.steps >= 1 && four.bytes >= 1500);
        CHECK(!comm_algorithms[i]->by_messages || two_nodes.wire >= 1000);
        CHECK(comm_algorithm_summary(comm_algorithms[i])[0] != '\0');
    }
}

/* What a rank expects to have sent in an all_reduce, and by what. */
struct sent {
    const char *algorithm;
    size_t count;
    double most; /* bytes, of those of one vector */
};

static enum status sent_body(struct comm *comm, void *arg)
{
    const struct sent *sent = arg;
    float *data;

    TRY(mem_alloc(sent->count, sizeof(*data), &data));
    const uint64_t before = comm_bytes_sent(comm);
    const enum status status = comm_all_reduce(comm, data, sent->count, DTYPE_F32, COMM_OP_SUM);
    const double bytes = (double)(comm_bytes_sent(comm) - before);
    mem_free(data);
    TRY(status);
    if (strcmp(comm_last_algorithm(comm), sent->algorithm) != 0)
        return FAIL(STATUS_CORRUPT, "%s ran", comm_last_algorithm(comm));
    if (bytes > 1.01 * sent->most * (double)sent->count * sizeof(float))
        return FAIL(STATUS_CORRUPT, "%s of %d ranks: %.0f bytes of %zu elements",
                    sent->algorithm, comm_size(comm), bytes, sent->count);
    return STATUS_OK;
}

/* Within 1 % of the least that is possible: 2 (p-1)/p of the vector. */
static void test_bytes_sent(void)
{
    for (int size = 2; size <= 9; size++) {
        struct sent sent = { "direct", 60000, 2.0 * (size - 1) / size };

        CHECK_OK(comm_testing_threads(size, "direct", sent_body, &sent));
        sent.algorithm = "shared";
        CHECK_OK(comm_testing_threads(size, NULL, sent_body, &sent));
        sent.algorithm = "halving";
        if ((size & (size - 1)) == 0)
            CHECK_OK(comm_testing_threads(size, "halving", sent_body, &sent));
    }
    for (int nodes = 2; nodes <= 4; nodes++) { /* of two ranks, which share what goes out */
        struct sent sent = { "hierarchical", 60000, 2.0 * (nodes - 1) / nodes / 2 };
        CHECK_OK(comm_testing_nodes(2 * nodes, nodes, "hierarchical", sent_body, &sent));
    }
}

/* By the usual network: little data goes straight, much data by the algorithm that sends least
 * out of a node. */
static void test_choice_by_cost(void)
{
    struct sent little = { "direct", 2, 4 }, much = { "hierarchical", 300000, 2 };

    CHECK_OK(comm_testing_nodes(4, 4, NULL, sent_body, &little));
    CHECK_OK(comm_testing_nodes(4, 2, NULL, sent_body, &much));
    CHECK_OK(comm_testing_nodes(6, 2, NULL, sent_body, &much));
    much.algorithm = "direct";
    CHECK_OK(comm_testing_nodes(3, 3, NULL, sent_body, &much));
}

static enum status network_body(struct comm *comm, void *arg)
{
    struct comm_network network = *comm_network(comm);
    struct sent *sent = arg;

    network.latency_us = 0; /* and messages cost much */
    network.message_us = 100;
    comm_set_network(comm, &network);
    return sent_body(comm, sent);
}

static void test_choice_by_another_network(void)
{
    struct sent sent = { "halving", 2, 4 };

    CHECK_OK(comm_testing_nodes(8, 8, NULL, network_body, &sent));
    sent.algorithm = "tree";
    CHECK_OK(comm_testing_nodes(9, 9, NULL, network_body, &sent));
}

static enum status probe_body(struct comm *comm, void *arg)
{
    const struct comm_network before = *comm_network(comm);

    (void)arg;
    TRY(comm_probe_network(comm));
    const struct comm_network *now = comm_network(comm);
    const double sent[2] = { now->latency_us, now->wire_bytes_per_us };
    double given[2] = { sent[0], sent[1] };
    TRY(comm_broadcast(comm, given, 2, DTYPE_F64, comm_size(comm) - 1));
    if (given[0] != sent[0] || given[1] != sent[1])
        return FAIL(STATUS_CORRUPT, "ranks have another network");
    if (now->latency_us == before.latency_us || !(now->latency_us > 0) ||
        !(now->wire_bytes_per_us > 0))
        return FAIL(STATUS_CORRUPT, "latency %g", now->latency_us);
    return STATUS_OK;
}

static void test_probe(void)
{
    CHECK_OK(comm_testing_nodes(4, 2, NULL, probe_body, NULL));
    CHECK_OK(comm_testing_nodes(3, 1, "direct", probe_body, NULL));
}

static enum status measure_body(struct comm *comm, void *arg)
{
    struct comm_measurement result;

    (void)arg;
    for (int i = 0; comm_measured_ops[i]; i++) {
        TRY(comm_measure_briefly(comm, comm_measured_ops[i], 10000, 0.001, &result));
        if (!(result.us_median > 0) || result.us_p90 < result.us_median)
            return FAIL(STATUS_CORRUPT, "median %g p90 %g", result.us_median, result.us_p90);
        if (result.bytes_sent > 2 * result.optimum + 100 ||
            result.bytes_sent < 0.99 * result.optimum)
            return FAIL(STATUS_CORRUPT, "%s: %g bytes sent, optimum %g", comm_measured_ops[i],
                        result.bytes_sent, result.optimum);
        const double n = comm_size(comm);
        if (i == 0 && fabs(result.bus_bytes - 2 * (n - 1) / n * 10000) > 1e-6)
            return FAIL(STATUS_CORRUPT, "an all_reduce's bus has %g bytes", result.bus_bytes);
        if (n == 1 && result.bus_bytes != 0)
            return FAIL(STATUS_CORRUPT, "%s: one rank has a bus", comm_measured_ops[i]);
        double same = result.us_median;
        TRY(comm_broadcast(comm, &same, 1, DTYPE_F64, 0));
        if (same != result.us_median || result.iterations < 5)
            return FAIL(STATUS_CORRUPT, "%s: ranks have another time", comm_measured_ops[i]);
    }
    return STATUS_OK;
}

static void test_measure(void)
{
    CHECK_OK(comm_testing_threads(3, NULL, measure_body, NULL));
    CHECK_OK(comm_testing_threads(1, NULL, measure_body, NULL));
    CHECK_OK(comm_testing_threads(4, "direct", measure_body, NULL));
}

/* Disagreement ------------------------------------------------------------------------------
 */

/* What a rank calls in the mismatch tests; the rank at odds calls the second of a pair. */
enum call_kind {
    BARRIER,
    REDUCE_12,
    REDUCE_13,
    REDUCE_12_MAX,
    REDUCE_12_F64,
    REDUCE_LONG,
    SCATTER_12,
    GATHER_12,
    BROADCAST_0,
    BROADCAST_1,
    SHARE
};

static enum status call_kind(struct comm *comm, enum call_kind kind)
{
    double data[4000] = { 0 }, more[4000];
    void *memory;

    switch (kind) {
    case BARRIER:
        return comm_barrier(comm);
    case REDUCE_12:
        return comm_all_reduce(comm, data, 12, DTYPE_F32, COMM_OP_SUM);
    case REDUCE_13:
        return comm_all_reduce(comm, data, 13, DTYPE_F32, COMM_OP_SUM);
    case REDUCE_12_MAX:
        return comm_all_reduce(comm, data, 12, DTYPE_F32, COMM_OP_MAX);
    case REDUCE_12_F64:
        return comm_all_reduce(comm, data, 12, DTYPE_F64, COMM_OP_SUM);
    case REDUCE_LONG:
        return comm_all_reduce(comm, data, 4000, DTYPE_F64, COMM_OP_SUM);
    case SCATTER_12:
        return comm_reduce_scatter(comm, data, more, 12, DTYPE_F32, COMM_OP_SUM);
    case GATHER_12:
        return comm_all_gather(comm, data, more, 12, DTYPE_F32);
    case BROADCAST_0:
        return comm_broadcast(comm, data, 12, DTYPE_F32, 0);
    case BROADCAST_1:
        return comm_broadcast(comm, data, 12, DTYPE_F32, 1);
    case SHARE:
        return comm_share(comm, 100, &memory);
    }
    return STATUS_OK;
}

struct odds {
    int odd_rank;
    enum call_kind usual, odd;
    const char *text;
    _Atomic int n_mismatches;
};

static enum status odds_body(struct comm *comm, void *arg)
{
    struct odds *odds = arg;

    TRY(comm_barrier(comm));
    TRY(call_kind(comm, REDUCE_LONG));
    const enum status status =
        call_kind(comm, comm_rank(comm) == odds->odd_rank ? odds->odd : odds->usual);
    if (status == STATUS_MISMATCH && strcmp(status_message(), odds->text) == 0)
        atomic_fetch_add(&odds->n_mismatches, 1);
    return status;
}

static void test_disagreement_is_named_to_all(void)
{
    struct odds rows[] = {
        { 1, BARRIER, REDUCE_12,
          "rank 1 called all_reduce of 12 f32 while rank 0 called barrier", 0 },
        { 2, REDUCE_12, REDUCE_13,
          "rank 2 called all_reduce of 13 f32 while rank 0 called all_reduce of 12 f32", 0 },
        { 2, REDUCE_12, REDUCE_LONG,
          "rank 2 called all_reduce of 4000 f64 while rank 0 called all_reduce of 12 f32", 0 },
        { 1, REDUCE_LONG, REDUCE_12_F64,
          "rank 1 called all_reduce of 12 f64 while rank 0 called all_reduce of 4000 f64", 0 },
        { 1, REDUCE_12, REDUCE_12_MAX,
          "rank 1 called all_reduce of 12 f32 by max while rank 0 called all_reduce of 12 f32",
          0 },
        { 1, SCATTER_12, GATHER_12,
          "rank 1 called all_gather of 12 f32 while rank 0 called reduce_scatter of 12 f32",
          0 },
        { 2, BROADCAST_0, BROADCAST_1,
          "rank 2 called broadcast of 12 f32 from rank 1 while rank 0 called broadcast of 12 "
          "f32 "
          "from rank 0",
          0 },
        { 1, BARRIER, SHARE, "rank 1 called share of 100 bytes while rank 0 called barrier",
          0 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int messages = 0; messages < 2; messages++) {
            atomic_store(&rows[i].n_mismatches, 0);
            CHECK_STATUS(STATUS_MISMATCH, comm_testing_threads(3, messages ? "direct" : NULL,
                                                               odds_body, &rows[i]));
            CHECK_TEXT(rows[i].text, status_message());
            CHECK_INT(3, atomic_load(&rows[i].n_mismatches));
        }
    }
}

/* Rank 0 is at odds with all others: rank 1 is the first that differs from it. */
static void test_rank_0_at_odds(void)
{
    struct odds odds = { 0, REDUCE_12, BARRIER,
                         "rank 1 called all_reduce of 12 f32 while rank 0 called barrier", 0 };

    CHECK_STATUS(STATUS_MISMATCH, comm_testing_threads(2, NULL, odds_body, &odds));
    CHECK_INT(2, atomic_load(&odds.n_mismatches));
}

/* Death --------------------------------------------------------------------------------------
 */

static const enum call_kind sequence[] = { BARRIER,     REDUCE_12, REDUCE_LONG, SCATTER_12,
                                           REDUCE_LONG, GATHER_12, BROADCAST_0, SHARE,
                                           BROADCAST_1, BARRIER };
enum { N_CALLS = sizeof(sequence) / sizeof(sequence[0]) };

/* Shared with the ranks of the sweep. */
struct sweep {
    int rank, call; /* who dies before which call */
    _Atomic int64_t died_ns, worst_ns;
    _Atomic int n_lost;
};

static enum status sweep_body(struct comm *comm, void *arg)
{
    struct sweep *sweep = arg;

    for (int i = 0; i < N_CALLS; i++) {
        transport_note(comm_transport(comm), (uint64_t)i, "the sweep");
        if (comm_rank(comm) == sweep->rank && i == sweep->call) {
            atomic_store(&sweep->died_ns, clock_ns());
            (void)raise(SIGKILL);
        }
        const enum status status = call_kind(comm, sequence[i]);
        if (status == STATUS_PEER_LOST) {
            const int64_t took = clock_ns() - atomic_load(&sweep->died_ns);
            if (took > atomic_load(&sweep->worst_ns))
                atomic_store(&sweep->worst_ns, took);
            atomic_fetch_add(&sweep->n_lost, 1);
        }
        TRY(status);
    }
    return STATUS_OK;
}

static void sweep_deaths(int size, const char *algorithm)
{
    struct sweep *sweep =
        mmap(NULL, sizeof(*sweep), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    char expected[64];

    CHECK(sweep != MAP_FAILED);
    for (int rank = 0; rank < size; rank++) {
        for (int call = 0; call < N_CALLS; call++) {
            *sweep = (struct sweep){ .rank = rank, .call = call };
            CHECK_STATUS(STATUS_PEER_LOST,
                         comm_testing_processes(size, algorithm, sweep_body, sweep));
            (void)snprintf(expected, sizeof(expected), "rank %d (pid ", rank);
            CHECK_MESSAGE(expected);
            (void)snprintf(expected, sizeof(expected),
                           "by signal 9 (SIGKILL) at step %d in the sweep", call);
            CHECK_MESSAGE(expected);
            CHECK_INT(size - 1, atomic_load(&sweep->n_lost));
            CHECK(atomic_load(&sweep->worst_ns) < 2000000000);
        }
    }
    munmap(sweep, sizeof(*sweep));
}

static void test_death_at_every_call(void)
{
    sweep_deaths(3, NULL);
    sweep_deaths(2, "direct");
}

/* Memory --------------------------------------------------------------------------------------
 */

static enum status count_body(struct comm *comm, void *arg)
{
    (void)arg;
    for (int round = 0; round < 10; round++) {
        const uint64_t before = mem_count();
        for (int i = 0; i < N_CALLS; i++)
            TRY(sequence[i] == SHARE ? STATUS_OK : call_kind(comm, sequence[i]));
        if (round > 0 && mem_count() != before)
            return FAIL(STATUS_CORRUPT, "%llu allocations",
                        (unsigned long long)(mem_count() - before));
    }
    return STATUS_OK;
}

static void test_no_allocation_after_the_first_round(void)
{
    CHECK_OK(comm_testing_processes(2, NULL, count_body, NULL));
}

static enum status probe_on_one_rank(struct comm *comm, void *arg)
{
    double seen[4];

    (void)arg;
    for (int rails = 1; rails <= 2; rails++) {
        struct probe probe = { -1, -1 };
        TRY(probe_nodes(comm, rails, &probe));
        if (!(probe.us >= 0 && probe.us_per_byte >= 0 && probe_us(&probe, 1e6) > 0))
            return FAIL(STATUS_CORRUPT, "%g us and %g a byte", probe.us, probe.us_per_byte);
        const double mine = probe_us(&probe, 4096);
        TRY(comm_all_gather(comm, &mine, seen, 1, DTYPE_F64));
        for (int rank = 0; rank < comm_size(comm); rank++) {
            if (seen[rank] != mine)
                return FAIL(STATUS_CORRUPT, "%g, rank %d has %g", mine, rank, seen[rank]);
        }
    }
    return STATUS_OK;
}

static void test_a_probe_is_the_same_on_every_rank(void)
{
    CHECK_OK(comm_testing_nodes(4, 2, NULL, probe_on_one_rank, NULL));
}

const struct test tests[] = {
    { .name = "a probe is the same on every rank",
      .run = test_a_probe_is_the_same_on_every_rank },
    { .name = "agrees with serial", .property = test_agrees_with_serial },
    { .name = "agrees with serial between processes",
      .run = test_agrees_with_serial_between_processes },
    { .name = "long vectors agree with serial", .run = test_long_vectors_agree_with_serial },
    { .name = "mixed buffers", .run = test_mixed_buffers },
    { .name = "maximum keeps nan", .run = test_maximum_keeps_nan },
    { .name = "send and receive", .run = test_send_and_receive },
    { .name = "two communicators", .run = test_two_communicators },
    { .name = "choice and refusals", .run = test_choice_and_refusals },
    { .name = "costs", .run = test_costs },
    { .name = "bytes sent", .run = test_bytes_sent },
    { .name = "choice by cost", .run = test_choice_by_cost },
    { .name = "choice by another network", .run = test_choice_by_another_network },
    { .name = "probe of the network", .run = test_probe },
    { .name = "measure", .run = test_measure },
    { .name = "disagreement is named to all", .run = test_disagreement_is_named_to_all },
    { .name = "rank 0 at odds", .run = test_rank_0_at_odds },
    { .name = "death at every call", .run = test_death_at_every_call },
    { .name = "no allocation after the first round",
      .run = test_no_allocation_after_the_first_round },
    { 0 },
};
