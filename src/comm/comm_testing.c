/* SPDX-License-Identifier: MIT */
/* comm_testing.c - ranks as threads and as processes. */
#include "comm/comm_testing.h"

#include <pthread.h>
#include <stdio.h>

#include "base/mem.h"
#include "transport/launch.h"

enum { MOST_RANKS = 64, TEXT_BYTES = 512 };

struct job {
    const char *algorithm;
    comm_testing_body *body;
    void *arg;
};

struct rank {
    const struct job *job;
    struct transport *transport;
    pthread_t thread;
    enum status status;
    char text[TEXT_BYTES];
};

static enum status run_rank(struct transport *transport, void *arg)
{
    const struct job *job = arg;
    struct comm *comm;

    TRY(comm_create(transport, job->algorithm, &comm));
    const enum status status = job->body(comm, job->arg);
    comm_destroy(comm);
    return status;
}

static void *run_thread(void *arg)
{
    struct rank *rank = arg;

    rank->status = run_rank(rank->transport, (void *)rank->job);
    if (rank->status != STATUS_OK) {
        (void)snprintf(rank->text, sizeof(rank->text), "%s", status_message());
        transport_abort(rank->transport, rank->text); /* or the others would wait for it */
    }
    return NULL;
}

static enum status outcome(const struct rank *ranks, int size)
{
    const struct rank *worst = NULL;

    for (int i = 0; i < size; i++) {
        if (ranks[i].status == STATUS_OK)
            continue;
        if (!worst ||
            (worst->status == STATUS_PEER_LOST && ranks[i].status != STATUS_PEER_LOST))
            worst = &ranks[i];
    }
    return worst ? status_set(worst->status, worst->text) : STATUS_OK;
}

enum status comm_testing_nodes(int size, int nodes, const char *algorithm,
                               comm_testing_body *body, void *arg)
{
    const struct job job = { algorithm, body, arg };
    struct transport *ends[MOST_RANKS];
    struct rank *ranks;

    BUG_ON(size > MOST_RANKS);
    TRY(mem_alloc((size_t)size, sizeof(*ranks), &ranks));
    enum status status = nodes > 1 ? transport_inproc_create_nodes(size, nodes, ends)
                                   : transport_inproc_create(size, ends);
    if (status != STATUS_OK) {
        mem_free(ranks);
        return status;
    }
    for (int i = 0; i < size; i++) {
        ranks[i].job = &job;
        ranks[i].transport = ends[i];
        BUG_ON(pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]) != 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
    status = outcome(ranks, size);
    transport_inproc_destroy(ends, size);
    mem_free(ranks);
    return status;
}

enum status comm_testing_threads(int size, const char *algorithm, comm_testing_body *body,
                                 void *arg)
{
    return comm_testing_nodes(size, 1, algorithm, body, arg);
}

enum status comm_testing_processes(int size, const char *algorithm, comm_testing_body *body,
                                   void *arg)
{
    struct job job = { algorithm, body, arg };
    const struct launch_config config = { .size = size };

    return launch_ranks(&config, run_rank, &job);
}
