/* SPDX-License-Identifier: MIT */
/* group_test.c - groups of a job's ranks, which are threads: tags and memory of their own, and one failure. */
#include <string.h>

#include "base/test.h"
#include "transport/transport_testing.h"

/* Rows and columns of a grid of 2 x 2: the same tags mean different messages in each. */
static enum status grid_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport);
    const int row[] = { rank / 2 * 2, rank / 2 * 2 + 1 }, column[] = { rank % 2, rank % 2 + 2 };
    struct transport *groups[2];
    void *block;

    (void)arg;
    TRY(transport_group_create(transport, row, 2, &groups[0]));
    TRY(transport_group_create(transport, column, 2, &groups[1]));
    for (int g = 0; g < 2; g++) {
        struct transport *group = groups[g];
        const int own = transport_rank(group), peer = 1 - own;
        const int peer_rank = g == 0 ? row[peer] : column[peer];
        const uint32_t tag = transport_new_tags(group, 1);
        struct transport_request requests[2];
        int sent = 100 * g + rank, got = -1, again = -1;

        CHECK(transport_size(group) == 2 && transport_nodes(group) == 2);
        CHECK_INT(own, transport_node_of(group, own));
        TRY(transport_start_receive(group, peer, tag, &got, sizeof(got), &requests[0]));
        TRY(transport_start_send(group, peer, tag, &sent, sizeof(sent), &requests[1]));
        TRY(transport_wait_for(group, &requests[0], "receive"));
        TRY(transport_wait_for(group, &requests[1], "send"));
        CHECK_INT(100 * g + peer_rank, got);
        TRY(transport_send(group, peer, tag, &sent, sizeof(sent)));
        TRY(transport_receive(group, peer, tag, &again, sizeof(again)));
        CHECK_INT(got, again);
        TRY(transport_share(group, 4096, &block)); /* its own: nobody else comes */
        CHECK(transport_is_shared(group, block, 4096) &&
              !transport_is_shared(transport, block, 4096));
        CHECK_STATUS(STATUS_USAGE, transport_send(group, 2, tag, &sent, sizeof(sent)));
    }
    transport_group_destroy(groups[0]);
    transport_group_destroy(groups[1]);
    return STATUS_OK;
}

/* Rank 3 is in a group with 0, and in one with 1; nobody has more tags than others afterwards. */
static enum status overlapping_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport);
    struct transport *groups[2] = { NULL }, *large = NULL;

    (void)arg;
    for (int g = 0; g < 2; g++) {
        const int members[] = { g, 3 };
        if (rank == g || rank == 3)
            TRY(transport_group_create_small(transport, members, 2, 2, &groups[g]));
        else
            (void)transport_new_tags(transport, 2);
    }
    if (rank == 2)
        transport_group_skip(transport);
    else
        TRY(transport_group_create(transport, (int[]){ 0, 1, 3 }, 3, &large));
    const uint32_t tag = transport_new_tags(transport, 1);
    int sent = rank, got = -1;
    for (int g = 0; g < 2; g++) {
        if (!groups[g])
            continue;
        const uint32_t own = transport_new_tags(groups[g], 2) + 1;
        const int peer = 1 - transport_rank(groups[g]);
        TRY(transport_send(groups[g], peer, own, &sent, sizeof(sent)));
        TRY(transport_receive(groups[g], peer, own, &got, sizeof(got)));
        CHECK_INT(rank == 3 ? g : 3, got);
    }
    TRY(transport_send(transport, (rank + 1) % 4, tag, &sent, sizeof(sent)));
    TRY(transport_receive(transport, (rank + 3) % 4, tag, &got, sizeof(got)));
    CHECK_INT((rank + 3) % 4, got);
    transport_group_destroy(large);
    transport_group_destroy(groups[0]);
    transport_group_destroy(groups[1]);
    return STATUS_OK;
}

static void test_a_rank_may_be_in_groups_that_others_are_not_in(void)
{
    ranks_run_on(1, 4, overlapping_body, NULL);
    ranks_run_on(2, 4, overlapping_body, NULL);
}

/* Two pairs, each with a half of a block: a counter of one is not the other's. */
static enum status joined_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport), pair = rank / 2;
    const size_t each = 16384;
    struct transport *group;
    void *block, *first, *second;

    (void)arg;
    TRY(transport_group_create(transport, (int[]){ 2 * pair, 2 * pair + 1 }, 2, &group));
    TRY(transport_share(transport, 2 * each, &block));
    transport_group_join(group, (char *)block + (size_t)pair * each, each);
    CHECK(transport_shares_memory(group) && transport_node_size(group, 0) == 2);
    TRY(transport_share(group, 64, &first));
    TRY(transport_share(group, 64, &second));
    CHECK((char *)first == (char *)block + (size_t)pair * each && second != first);
    CHECK(transport_is_shared(group, second, 64));
    CHECK(!transport_is_shared(group, (char *)block + (size_t)(1 - pair) * each, 64));
    transport_raise(second, 1 + (uint32_t)pair);
    TRY(transport_wait(group, second, 2 * (1 + (uint32_t)pair), "the other"));
    CHECK(!transport_reached(second, 2 * (1 + (uint32_t)pair) + 1));
    CHECK_STATUS(STATUS_NO_MEMORY, transport_share(group, each, &first));
    transport_group_destroy(group);
    return STATUS_OK;
}

static void test_a_group_on_one_machine_may_share_memory(void)
{
    ranks_run_on(1, 4, joined_body, NULL);
}

static void test_groups_number_ranks_anew(void)
{
    ranks_run_on(1, 4, grid_body, NULL);
    ranks_run_on(2, 4, grid_body, NULL);
    ranks_run_on(4, 4, grid_body, NULL);
}

static enum status failing_group_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport);
    const int members[] = { rank % 2, rank % 2 + 2 };
    struct transport *group;
    int got;

    (void)arg;
    CHECK_STATUS(STATUS_USAGE,
                 transport_group_create(transport, (int[]){ (rank + 1) % 4 }, 1, &group));
    CHECK_MESSAGE("is no member");
    TRY(transport_group_create(transport, members, 2, &group));
    if (rank == 3)
        transport_abort(group, "rank 3 has had enough");
    const enum status status =
        transport_receive(group, 1 - transport_rank(group), 0, &got, sizeof(got));
    transport_group_destroy(group);
    return status;
}

static void test_a_group_fails_with_its_job(void)
{
    struct rank ranks[MOST_RANKS];

    ranks_run_each_on(2, 4, failing_group_body, NULL, ranks);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(STATUS_PEER_LOST, ranks[i].status);
        CHECK(strstr(ranks[i].text, "rank 3 has had enough") != NULL);
    }
}

const struct test tests[] = {
    { .name = "a rank may be in groups that others are not in",
      .run = test_a_rank_may_be_in_groups_that_others_are_not_in },
    { .name = "a group on one machine may share memory",
      .run = test_a_group_on_one_machine_may_share_memory },
    { .name = "groups number ranks anew", .run = test_groups_number_ranks_anew },
    { .name = "a group fails with its job", .run = test_a_group_fails_with_its_job },
    { 0 },
};
