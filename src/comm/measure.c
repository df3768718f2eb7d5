/* SPDX-License-Identifier: MIT */
/* measure.c - times a collective: fill, barrier, call, clock, again; then the median.
 *
 * Each rank writes its vector anew before every call, as a training step does. Else the parts
 * that a rank reduces would stay in its cache from call to call, and the numbers would flatter.
 * Little data is timed in batches: one call takes less than leaving the barrier at the same
 * time.
 */
#include "comm/measure.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/algorithm.h"

enum { WARM_UPS = 3, LEAST = 5, MOST = 20000, BATCH = 50 };

static const double usual_seconds = 0.4;

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

static enum status time_once(struct comm *comm, int op, void *data, char *more, size_t count,
                             double *out_ns)
{
    for (size_t i = 0; i < count; i++)
        ((float *)data)[i] = (float)comm_rank(comm);
    TRY(comm_barrier(comm));
    const int batch = count * sizeof(float) <= COMM_SMALL_BYTES ? BATCH : 1;
    const int64_t start = clock_ns();
    for (int i = 0; i < batch; i++)
        TRY(call_once(comm, op, data, more, count));
    *out_ns = (double)(clock_ns() - start) / batch;
    return STATUS_OK;
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

static enum status measure(struct comm *comm, int op, char *data, char *more, size_t count,
                           double seconds, struct comm_measurement *out)
{
    double *times, took = 0, result[2];
    int32_t n;

    TRY(time_once(comm, op, data, more, count, &took)); /* touches the memory */
    const int64_t start = clock_ns();
    for (int i = 0; i < WARM_UPS; i++)
        TRY(time_once(comm, op, data, more, count, &took));
    const double fit = seconds * 1e9 * WARM_UPS / (double)(clock_ns() - start + 1000);
    n = fit < LEAST ? LEAST : fit > MOST ? MOST : (int32_t)fit;
    TRY(comm_broadcast(comm, &n, 1, DTYPE_I32, 0));

    TRY(mem_alloc((size_t)n, sizeof(*times), &times));
    enum status status = STATUS_OK;
    for (int i = 0; i < n && status == STATUS_OK; i++)
        status = time_once(comm, op, data, more, count, &times[i]);
    if (status == STATUS_OK) {
        qsort(times, (size_t)n, sizeof(*times), compare_doubles);
        result[0] = times[n / 2] / 1000;
        result[1] = times[n * 9 / 10] / 1000;
        status = comm_broadcast(comm, result, 2, DTYPE_F64, 0);
    }
    mem_free(times);
    TRY(status);
    *out = (struct comm_measurement){ .us_median = result[0],
                                      .us_p90 = result[1],
                                      .algorithm = op <= ALL_REDUCE_PRIVATE
                                                       ? comm_last_algorithm(comm)
                                                       : "",
                                      .iterations = n };
    return STATUS_OK;
}

enum status comm_measure_briefly(struct comm *comm, const char *name, size_t bytes,
                                 double seconds, struct comm_measurement *out)
{
    const size_t count = bytes / sizeof(float);
    char *data, *more = NULL, *private_data = NULL;
    int op = 0;

    while (comm_measured_ops[op] && strcmp(comm_measured_ops[op], name) != 0)
        op++;
    if (!comm_measured_ops[op])
        return FAIL(STATUS_USAGE, "there is no collective %s to measure", name);

    const size_t more_bytes = op == ALL_GATHER       ? bytes * (size_t)comm_size(comm)
                              : op == REDUCE_SCATTER ? bytes
                                                     : 0;
    if (op == ALL_REDUCE_PRIVATE || !transport_shares_memory(comm_transport(comm))) {
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
