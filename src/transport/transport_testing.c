/* SPDX-License-Identifier: MIT */
/* transport_testing.c - ranks as threads. */
#include "transport/transport_testing.h"

#include <stdio.h>

#include "base/test.h"

static void *run_thread(void *arg)
{
    struct rank *rank = arg;

    rank->status = rank->body(rank->transport, rank->arg);
    if (rank->status != STATUS_OK)
        (void)snprintf(rank->text, sizeof(rank->text), "%s", status_message());
    return NULL;
}

void ranks_run_each_on(int nodes, int size, rank_body *body, void *arg, struct rank *ranks)
{
    struct transport *ends[MOST_RANKS];

    CHECK_OK(transport_inproc_create_nodes(size, nodes, ends));
    for (int i = 0; i < size; i++) {
        ranks[i] = (struct rank){ .transport = ends[i], .body = body, .arg = arg };
        CHECK(pthread_create(&ranks[i].thread, NULL, run_thread, &ranks[i]) == 0);
    }
    for (int i = 0; i < size; i++)
        pthread_join(ranks[i].thread, NULL);
    transport_inproc_destroy(ends, size);
}

void ranks_run_each(int size, rank_body *body, void *arg, struct rank *ranks)
{
    ranks_run_each_on(1, size, body, arg, ranks);
}

void ranks_run_on(int nodes, int size, rank_body *body, void *arg)
{
    struct rank ranks[MOST_RANKS];

    ranks_run_each_on(nodes, size, body, arg, ranks);
    for (int i = 0; i < size; i++) {
        if (ranks[i].status != STATUS_OK)
            test_fail(__FILE__, __LINE__, "rank %d: %s", i, ranks[i].text);
    }
}

void ranks_run(int size, rank_body *body, void *arg)
{
    ranks_run_on(1, size, body, arg);
}
