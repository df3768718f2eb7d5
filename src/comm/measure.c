/* SPDX-License-Identifier: MIT */
/* measure.c - times a collective: fill, barrier, call, clock, barrier, again; then the median. The same
 * of a codec, without ranks.
 *
 * Each rank writes its vector anew before every call, as a training step does. Else the parts
 * that a rank reduces would stay in its cache from call to call, and the numbers would flatter.
 * Nobody fills before all are done: where ranks share a core, that would be in others' time.
 * Little data is timed in batches: one call takes less than leaving the barrier at the same
 * time.
 */
#include "comm/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "comm/algorithm.h"

enum { WARM_UPS = 3, LEAST = 5, MOST = 20000, BATCH = 1000 };
enum { CODEC_NODES = 64, CODEC_STEPS = 1000 };

static const double usual_seconds = 0.4;
static const double warm_up_ns = 10e6; /* at least, and WARM_UPS calls */
static const double batch_ns = 1e6;    /* of little data: of calls that are timed together */

enum measured {
    ALL_REDUCE,
    ALL_REDUCE_PRIVATE,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    BARRIER,
    PING
};

const char *const comm_measured_ops[] = { [ALL_REDUCE] = "all_reduce",
                                          [ALL_REDUCE_PRIVATE] = "all_reduce_private",
                                          [REDUCE_SCATTER] = "reduce_scatter",
                                          [ALL_GATHER] = "all_gather",
                                          [BROADCAST] = "broadcast",
                                          [BARRIER] = "barrier",
                                          [PING] = "ping",
                                          NULL };

/* There and back between ranks 0 and 1. */
static enum status ping(struct comm *comm, void *data, size_t bytes)
{
    const int rank = comm_rank(comm), peer = 1 - rank;

    if (rank > 1 || comm_size(comm) < 2)
        return STATUS_OK;
    if (rank == 0)
        TRY(comm_send(comm, peer, data, bytes));
    TRY(comm_receive(comm, peer, data, bytes));
    if (rank == 1)
        TRY(comm_send(comm, peer, data, bytes));
    return STATUS_OK;
}

static enum status call_once(struct comm *comm, int op, char *data, char *more, size_t count)
{
    const size_t parts = (size_t)comm_size(comm);

    if (op == ALL_REDUCE || op == ALL_REDUCE_PRIVATE)
        return comm_all_reduce(comm, data, count, DTYPE_F32, COMM_OP_SUM);
    if (op == REDUCE_SCATTER)
        return comm_reduce_scatter(comm, data, more, count / parts, DTYPE_F32, COMM_OP_SUM);
    if (op == ALL_GATHER)
        return comm_all_gather(comm, data, more, count, DTYPE_F32);
    if (op == BROADCAST)
        return comm_broadcast(comm, data, count, DTYPE_F32, 0);
    if (op == PING)
        return ping(comm, data, count * sizeof(float));
    return comm_barrier(comm);
}

/* One call's share of `batch` calls. */
static enum status time_once(struct comm *comm, int op, void *data, char *more, size_t count,
                             int batch, double *out_ns)
{
    const float value = (float)comm_rank(comm);

    for (size_t i = 0; i < count; i++)
        ((float *)data)[i] = value;
    TRY(comm_barrier(comm));
    const int64_t start = clock_ns();
    for (int i = 0; i < batch; i++)
        TRY(call_once(comm, op, data, more, count));
    *out_ns = (double)(clock_ns() - start) / batch;
    return comm_barrier(comm);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Memory that all see, kept for the next measurement: shared memory cannot be given back. */
static enum status shared_buffer(struct comm *comm, size_t bytes, char **out)
{
    if (bytes > comm->measured_bytes) {
        TRY(comm_share(comm, bytes, &comm->measured));
        comm->measured_bytes = bytes;
    }
    *out = comm->measured;
    return STATUS_OK;
}

/* What a rank has to send at least, in bytes: of a sum every element but those it adds up itself,
 * and the sums of those to everyone. */
static double optimum_of(int op, int size, double bytes)
{
    const double others = size - 1;

    if (op == ALL_REDUCE || op == ALL_REDUCE_PRIVATE)
        return 2 * bytes * others / size;
    if (op == REDUCE_SCATTER)
        return bytes * others / size;
    if (op == ALL_GATHER)
        return bytes * others;
    return op != BARRIER && others > 0 ? bytes : 0;
}

/* Bytes of one call, of the rank that sends most. */
static enum status count_bytes(struct comm *comm, int op, char *data, char *more, size_t count,
                               double *out)
{
    const uint64_t before = comm_bytes_sent(comm);

    TRY(call_once(comm, op, data, more, count));
    *out = op == PING ? optimum_of(op, comm_size(comm), (double)(count * sizeof(float)))
                      : (double)(comm_bytes_sent(comm) - before);
    return comm_all_reduce(comm, out, 1, DTYPE_F64, COMM_OP_MAX);
}

/* How a measurement is made, the same on all ranks: calls timed together, and how often. */
struct repeats {
    int32_t batch, count;
};

/* Warms up until calls have taken long enough to tell how often they fit into `seconds`. */
static enum status find_repeats(struct comm *comm, int op, char *data, char *more, size_t count,
                                double seconds, struct repeats *out)
{
    const bool is_small = count * sizeof(float) <= COMM_SMALL_BYTES;
    const int64_t start = clock_ns();
    double took = 0, calls = 0;
    int32_t is_warm = 0;
    int n = 0;

    while (!is_warm) {
        double once;
        TRY(time_once(comm, op, data, more, count, 1, &once));
        took += once;
        calls++;
        n++;
        is_warm = n >= WARM_UPS && (double)(clock_ns() - start) >= warm_up_ns;
        TRY(comm_broadcast(comm, &is_warm, 1, DTYPE_I32, 0));
    }
    const double each = took / calls + 1, around = (double)(clock_ns() - start) / calls - each;
    const double batch = is_small ? fmin(fmax(batch_ns / each, 1), BATCH) : 1;
    const double fit = seconds * 1e9 / (batch * each + fmax(around, 0));
    *out = (struct repeats){ .batch = (int32_t)batch,
                             .count = (int32_t)fmin(fmax(fit, LEAST), MOST) };
    return comm_broadcast(comm, out, 2, DTYPE_I32, 0);
}

/* A call takes from its first rank's beginning to its last rank's end: a rank that leaves the barrier
 * late finds the others' work done, so its own time may be next to nothing. */
static enum status time_calls(struct comm *comm, int op, char *data, char *more, size_t count,
                              struct repeats repeats, double *times)
{
    for (int i = 0; i < repeats.count; i++)
        TRY(time_once(comm, op, data, more, count, repeats.batch, &times[i]));
    TRY(comm_all_reduce(comm, times, (size_t)repeats.count, DTYPE_F64, COMM_OP_MAX));
    qsort(times, (size_t)repeats.count, sizeof(*times), compare_doubles);
    return STATUS_OK;
}

static enum status measure(struct comm *comm, int op, char *data, char *more, size_t count,
                           double seconds, struct comm_measurement *out)
{
    double *times, took, sent;
    struct repeats repeats;

    TRY(time_once(comm, op, data, more, count, 1, &took)); /* touches the memory */
    const char *algorithm = op < BARRIER ? comm_last_algorithm(comm) : "";
    TRY(count_bytes(comm, op, data, more, count, &sent));
    TRY(find_repeats(comm, op, data, more, count, seconds, &repeats));
    TRY(mem_alloc((size_t)repeats.count, sizeof(*times), &times));
    const enum status status = time_calls(comm, op, data, more, count, repeats, times);
    const double optimum = optimum_of(op, comm_size(comm), (double)(count * sizeof(float)));
    if (status == STATUS_OK)
        *out = (struct comm_measurement){
            .us_median = times[repeats.count / 2] / 1000,
            .us_p90 = times[(int64_t)repeats.count * 9 / 10] / 1000,
            .algorithm = algorithm,
            .iterations = repeats.batch * repeats.count,
            .bytes_sent = sent,
            .optimum = optimum,
            .bus_bytes = op == PING ? 2 * optimum : optimum,
        };
    mem_free(times);
    return status;
}

static int op_of(const char *name)
{
    int op = 0;

    while (comm_measured_ops[op] && strcmp(comm_measured_ops[op], name) != 0)
        op++;
    return op;
}

bool comm_measures(const struct comm *comm, const char *name, size_t bytes)
{
    static const enum comm_kind kinds[] = { [ALL_REDUCE] = COMM_ALL_REDUCE,
                                            [ALL_REDUCE_PRIVATE] = COMM_ALL_REDUCE,
                                            [REDUCE_SCATTER] = COMM_REDUCE_SCATTER,
                                            [ALL_GATHER] = COMM_ALL_GATHER,
                                            [BROADCAST] = COMM_BROADCAST };
    const int op = op_of(name);

    return !comm->forced || op >= BARRIER || comm_can_run(comm, comm->forced, kinds[op], bytes);
}

enum status comm_measure_briefly(struct comm *comm, const char *name, size_t bytes,
                                 double seconds, struct comm_measurement *out)
{
    const size_t count = bytes / sizeof(float);
    char *data, *more = NULL, *private_data = NULL;
    const int op = op_of(name);

    if (!comm_measured_ops[op])
        return FAIL(STATUS_USAGE, "there is no collective %s to measure", name);

    const size_t more_bytes = op == ALL_GATHER       ? bytes * (size_t)comm_size(comm)
                              : op == REDUCE_SCATTER ? bytes
                                                     : 0;
    if (op == ALL_REDUCE_PRIVATE || comm->by_messages) {
        TRY(mem_alloc(bytes + more_bytes, 1, &private_data));
        data = private_data;
    } else {
        TRY(shared_buffer(comm, bytes + more_bytes, &data));
    }
    if (more_bytes > 0)
        more = data + bytes;
    const enum status status = measure(comm, op, data, more, count, seconds, out);
    mem_free(private_data);
    return status;
}

enum status comm_measure(struct comm *comm, const char *op, size_t bytes,
                         struct comm_measurement *out)
{
    return comm_measure_briefly(comm, op, bytes, usual_seconds, out);
}

/* The network ----------------------------------------------------------------------------- */

/* The time of `n` messages there and one back, the least of some: what disturbs only adds. */
static enum status probe(struct comm *comm, int peer, char *data, size_t bytes, int n,
                         double *out_us)
{
    const int times = 10;
    double least = 0;

    for (int i = 0; i < times; i++) {
        const int64_t start = clock_ns();

        for (int at = 0; at < n; at++) {
            if (comm->rank == 0)
                TRY(comm_send(comm, peer, data, bytes));
            else if (comm->rank == peer)
                TRY(comm_receive(comm, 0, data, bytes));
        }
        if (comm->rank == 0)
            TRY(comm_receive(comm, peer, data, bytes));
        else if (comm->rank == peer)
            TRY(comm_send(comm, 0, data, bytes));
        const double took = (double)(clock_ns() - start) / 1000;
        least = i == 0 || took < least ? took : least;
    }
    *out_us = least;
    return STATUS_OK;
}

static enum status probe_all(struct comm *comm, char *data, size_t bytes)
{
    const bool has_nodes = comm->shape.nodes > 1;
    const int peer = has_nodes ? transport_node_first(comm->transport, 1) : 1;
    const int many = 17;
    double us[3] = { 0 }; /* a small message, a long one, many small ones */

    TRY(probe(comm, peer, data, sizeof(float), 1, &us[0]));
    TRY(probe(comm, peer, data, bytes, 1, &us[1]));
    TRY(probe(comm, peer, data, sizeof(float), many, &us[2]));
    TRY(comm_broadcast(comm, us, 3, DTYPE_F64, 0));
    const double way = us[0] / 2, more = (us[1] - us[0]) / 2;
    const double rate = (double)bytes / (more > 0.001 ? more : 0.001);
    comm->network.latency_us = way;
    comm->network.message_us = us[2] > us[0] ? (us[2] - us[0]) / (many - 1) : 0;
    if (has_nodes)
        comm->network.wire_bytes_per_us = rate;
    else
        comm->network.local_bytes_per_us = rate;
    return STATUS_OK;
}

enum status comm_probe_network(struct comm *comm)
{
    const size_t bytes = (size_t)1 << 20;
    char *data;

    if (comm->size < 2)
        return STATUS_OK;
    TRY(mem_alloc(bytes, 1, &data));
    const enum status status = probe_all(comm, data, bytes);
    mem_free(data);
    return status;
}

/* Codecs ---------------------------------------------------------------------------------- */

struct codec_trial {
    struct codec_state *state;
    float *gradient, *sum;
    char *payload;
    double encode_ns, decode_ns;
};

/* All nodes' payloads are one: what is measured does not depend on what is in them. */
static enum status step_once(struct codec_trial *trial, int nodes)
{
    const void *payloads[CODEC_NODES];
    size_t bytes[CODEC_NODES];

    trial->encode_ns = trial->decode_ns = 0;
    for (int round = 0; round < codec_rounds(trial->state); round++) {
        const int64_t start = clock_ns();
        const size_t length =
            codec_encode(trial->state, round, trial->gradient, trial->payload);
        const int64_t encoded = clock_ns();

        for (int node = 0; node < nodes; node++) {
            payloads[node] = trial->payload;
            bytes[node] = length;
        }
        TRY(codec_decode(trial->state, round, payloads, bytes, nodes, trial->sum));
        trial->encode_ns += (double)(encoded - start);
        trial->decode_ns += (double)(clock_ns() - encoded);
    }
    return STATUS_OK;
}

static enum status measure_steps(struct codec_trial *trial, int nodes, double seconds,
                                 struct codec_measurement *out)
{
    double encode[CODEC_STEPS], decode[CODEC_STEPS];
    const int64_t end = clock_ns() + (int64_t)(seconds * 1e9);
    int n = 0;

    TRY(step_once(trial, nodes)); /* touches the memory */
    while (n < LEAST || (n < CODEC_STEPS && clock_ns() < end)) {
        TRY(step_once(trial, nodes));
        encode[n] = trial->encode_ns;
        decode[n++] = trial->decode_ns;
    }
    qsort(encode, (size_t)n, sizeof(*encode), compare_doubles);
    qsort(decode, (size_t)n, sizeof(*decode), compare_doubles);
    out->encode_us = encode[n / 2] / 1000;
    out->decode_us = decode[n / 2] / 1000;
    return STATUS_OK;
}

/* Payloads' bytes: of a whole step, and the most of one round. */
static void find_payload(const struct codec_state *state, size_t *out_step, size_t *out_round)
{
    *out_step = *out_round = 0;
    for (int round = 0; round < codec_rounds(state); round++) {
        const size_t bytes = codec_max_bytes(state, round);

        *out_step += bytes;
        *out_round = bytes > *out_round ? bytes : *out_round;
    }
}

static enum status measure_codec(struct codec_trial *trial, size_t count, int nodes,
                                 double seconds, struct codec_measurement *out)
{
    struct rng rng;
    size_t longest;

    find_payload(trial->state, &out->payload_bytes, &longest);
    TRY(mem_alloc(count, sizeof(float), &trial->gradient));
    TRY(mem_alloc(count, sizeof(float), &trial->sum));
    TRY(mem_alloc(longest, 1, &trial->payload));
    rng_init(&rng, 1, 1);
    for (size_t i = 0; i < count; i++) /* many small ones, few large ones */
        trial->gradient[i] = (rng_float(&rng) - 0.5f) * rng_float(&rng) * rng_float(&rng);
    return measure_steps(trial, nodes, seconds, out);
}

enum status codec_measure(const struct codec_config *config, size_t bytes, int nodes,
                          double seconds, struct codec_measurement *out)
{
    const size_t count = bytes / sizeof(float);
    struct codec_matrix matrix = { 0, 1, 1 };
    const struct codec_layout layout = { &matrix, 1 };
    struct codec_trial trial = { 0 };

    if (nodes < 1 || nodes > CODEC_NODES)
        return FAIL(STATUS_USAGE, "%d nodes are not between 1 and %d", nodes, CODEC_NODES);
    while (matrix.cols * matrix.cols < count)
        matrix.cols *= 2;
    matrix.rows = count / matrix.cols;
    TRY(codec_create(config, &layout, count, &trial.state));
    const enum status status = measure_codec(&trial, count, nodes, seconds, out);
    mem_free(trial.gradient);
    mem_free(trial.sum);
    mem_free(trial.payload);
    codec_destroy(trial.state);
    return status;
}
