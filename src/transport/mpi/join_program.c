/* SPDX-License-Identifier: MIT */
/* join_program.c - what join_test starts under mpirun: one rank that does what it is told.
 *
 *   join_program work|flat             messages between all ranks, memory within nodes, twice
 *   join_program kill|stop|exit|fail RANK [flat]   RANK goes; the others wait, and say so
 *   join_program early RANK            RANK fails before it has joined
 *   join_program halt RANK             RANK is asked to stop
 *
 * Every rank that returns writes a line "rank R: STATUS TEXT" to standard error.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "transport/launch.h"

enum { MANY = 700001, FEW = 10, ROUNDS = 3 };

struct order {
    const char *mode;
    int rank; /* whom it concerns */
    int done_at;
};

/* Everyone sends much and little to everyone, itself included. */
static enum status exchange(struct transport *transport, uint32_t tag)
{
    const int rank = transport_rank(transport), size = transport_size(transport);
    struct transport_request *requests;
    char *out, *in;

    TRY(mem_alloc((size_t)size * 4, sizeof(*requests), &requests));
    TRY(mem_alloc((size_t)size * 2, MANY, &out));
    TRY(mem_alloc((size_t)size * 2, MANY, &in));
    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < 2; i++) {
            char *data = out + (size_t)(peer * 2 + i) * MANY;
            memset(data, rank * 16 + peer + i, i ? FEW : MANY);
            TRY(transport_start_send(transport, peer, tag, data, i ? FEW : MANY,
                                     &requests[peer * 4 + i]));
        }
    }
    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < 2; i++)
            TRY(transport_start_receive(transport, peer, tag,
                                        in + (size_t)(peer * 2 + i) * MANY, i ? FEW : MANY,
                                        &requests[peer * 4 + 2 + i]));
    }
    for (int at = 0; at < size * 4; at++)
        TRY(transport_wait_for(transport, &requests[(at + rank) % (size * 4)], "exchange"));
    for (int at = 0; at < size * 2; at++) {
        for (size_t i = 0; i < (at % 2 ? FEW : MANY); i++) {
            const char expected = (char)(at / 2 * 16 + rank + at % 2);
            if (in[(size_t)at * MANY + i] != expected)
                return FAIL(STATUS_CORRUPT, "message %d byte %zu differs", at, i);
        }
    }
    mem_free(in);
    mem_free(out);
    mem_free(requests);
    return STATUS_OK;
}

/* Ranks of a node count together, and only they. */
static enum status count_node(struct transport *transport)
{
    const int node = transport_node_of(transport, transport_rank(transport));
    const int size = transport_node_size(transport, node);
    struct transport_counter *counter;
    void *memory;

    TRY(transport_share(transport, sizeof(*counter), &memory));
    counter = memory;
    transport_raise(counter, 1);
    TRY(transport_wait(transport, counter, (uint32_t)size, "count"));
    TRY(exchange(transport, transport_new_tags(transport, 1)));
    if (atomic_load(&counter->value) != (uint32_t)size)
        return FAIL(STATUS_CORRUPT, "%u ranks of %d counted", atomic_load(&counter->value),
                    size);
    return STATUS_OK;
}

static enum status work(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport), size = transport_size(transport);
    const struct order *order = arg;
    int sum = 0;

    for (int round = 0; round < ROUNDS; round++)
        TRY(count_node(transport));
    for (int peer = 0; peer < size; peer++) /* plain sends that cross each other */
        TRY(transport_send(transport, peer, 9, &rank, sizeof(rank)));
    for (int peer = 0; peer < size; peer++) {
        int theirs;
        TRY(transport_receive(transport, peer, 9, &theirs, sizeof(theirs)));
        sum += theirs;
    }
    if (sum != size * (size - 1) / 2)
        return FAIL(STATUS_CORRUPT, "sum %d", sum);
    if (rank == 0)
        printf("%s: %d ranks on %d nodes\n", order->mode, size, transport_nodes(transport));
    return STATUS_OK;
}

/* Everyone waits for everyone, round after round; one rank goes. */
static enum status lose(struct transport *transport, void *arg)
{
    const struct order *order = arg;
    const int rank = transport_rank(transport);

    for (uint64_t round = 0;; round++) {
        transport_note(transport, round, "exchange");
        if (rank == order->rank && round == 3) {
            if (strcmp(order->mode, "kill") == 0)
                (void)raise(SIGKILL);
            if (strcmp(order->mode, "stop") == 0)
                (void)raise(SIGSTOP);
            if (strcmp(order->mode, "exit") == 0)
                _exit(5);
            if (strcmp(order->mode, "fail") == 0)
                return FAIL(STATUS_CORRUPT, "the file is bad");
            if (strcmp(order->mode, "halt") == 0)
                return FAIL(STATUS_STOPPED, "asked to stop");
        }
        TRY(exchange(transport, 3));
    }
}

static enum status run(struct order *order, bool flat)
{
    struct launch_config config = { .flat = flat };
    int rank;

    if (!launch_world(&rank, &config.size))
        return FAIL(STATUS_USAGE, "not started by mpirun");
    if (strcmp(order->mode, "early") == 0 && rank == order->rank)
        return FAIL(STATUS_NOT_FOUND, "no data here");
    if (strcmp(order->mode, "work") == 0) {
        TRY(launch_ranks(&config, work, order));
        return launch_ranks(&config, work, order);
    }
    return launch_ranks(&config, lose, order);
}

int main(int argc, char **argv)
{
    struct order order = { .mode = argc > 1 ? argv[1] : "",
                           .rank = argc > 2 ? atoi(argv[2]) : 0 };
    const char *own =
        getenv("OMPI_COMM_WORLD_RANK") ? getenv("OMPI_COMM_WORLD_RANK") : getenv("PMI_RANK");

    const enum status status = run(&order, argc > 3 && strcmp(argv[3], "flat") == 0);
    if (status == STATUS_OK)
        return 0;
    const bool reports = launch_reports(status);
    fprintf(stderr, "rank %s: %s%s %s\n", own ? own : "?", reports ? "reports " : "",
            status_name(status), status_message());
    return 1;
}
