/* SPDX-License-Identifier: MIT */
/* transport_test.c - shared memory, agreement, waiting and failure, with threads as ranks. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "transport/agree.h"
#include "transport/transport_testing.h"

/* Shared memory ---------------------------------------------------------------------------- */

static enum status share_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport), size = transport_size(transport);
    _Atomic uintptr_t *addresses = arg;
    struct transport_counter *counter;
    void *block, *memory;

    TRY(transport_share(transport, sizeof(*counter), &memory));
    counter = memory;
    TRY(transport_share(transport, 10000, &block));
    if ((uintptr_t)block % 4096 != 0 || !transport_is_shared(transport, block, 10000))
        return FAIL(STATUS_CORRUPT, "the block is misplaced");
    if (transport_is_shared(transport, &rank, sizeof(rank)))
        return FAIL(STATUS_CORRUPT, "the stack is not shared memory");
    atomic_store(&addresses[rank], (uintptr_t)block);
    ((char *)block)[rank] = (char)(rank + 1);
    transport_raise(counter, 1);
    TRY(transport_wait(transport, counter, (uint32_t)size, "test"));
    for (int peer = 0; peer < size; peer++) {
        if (atomic_load(&addresses[peer]) != (uintptr_t)block ||
            ((char *)block)[peer] != peer + 1)
            return FAIL(STATUS_CORRUPT, "rank %d sees another block", peer);
    }
    return STATUS_OK;
}

static void test_shared_block_is_the_same_for_all(void)
{
    _Atomic uintptr_t addresses[MOST_RANKS] = { 0 };

    for (int size = 1; size <= 5; size++)
        ranks_run(size, share_body, addresses);
}

/* Five ranks on two nodes: 0 and 1, 2 to 4. */
static enum status nodes_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport), node = rank < 2 ? 0 : 1;
    const int first = node * 2, size = 2 + node;
    struct transport_counter *counter;
    void *memory;

    (void)arg;
    if (transport_size(transport) != 5 || transport_nodes(transport) != 2 ||
        transport_node_of(transport, rank) != node || transport_node_of(transport, 1) != 0 ||
        transport_node_of(transport, 4) != 1 ||
        transport_node_first(transport, node) != first ||
        transport_node_size(transport, node) != size || transport_shares_memory(transport))
        return FAIL(STATUS_CORRUPT, "rank %d is at another place", rank);
    TRY(transport_share(transport, sizeof(*counter) + (size_t)node, &memory));
    counter = memory;
    transport_raise(counter, 1);
    TRY(transport_wait(transport, counter, (uint32_t)size, "test"));
    for (int peer = 0; peer < 5; peer++) /* nobody raises it any more */
        TRY(transport_send(transport, peer, 1, &rank, sizeof(rank)));
    for (int peer = 0; peer < 5; peer++) {
        int theirs;
        TRY(transport_receive(transport, peer, 1, &theirs, sizeof(theirs)));
        if (theirs != peer)
            return FAIL(STATUS_CORRUPT, "rank %d says that it is %d", peer, theirs);
    }
    return atomic_load(&counter->value) == (uint32_t)size
               ? STATUS_OK
               : FAIL(STATUS_CORRUPT, "the nodes share memory");
}

static void test_nodes_share_memory_within(void)
{
    ranks_run_on(2, 5, nodes_body, NULL);
}

static enum status share_differently_body(struct transport *transport, void *arg)
{
    void *block;

    (void)arg;
    return transport_share(transport, transport_rank(transport) == 2 ? 200 : 100, &block);
}

static void test_sharing_different_sizes_is_a_mismatch(void)
{
    struct rank ranks[3];

    ranks_run_each(3, share_differently_body, NULL, ranks);
    for (int i = 0; i < 3; i++) {
        CHECK_INT(STATUS_MISMATCH, ranks[i].status);
        CHECK_TEXT("rank 2 shares 200 bytes while rank 0 shares 100 bytes", ranks[i].text);
    }
}

static enum status share_too_much_body(struct transport *transport, void *arg)
{
    void *block;

    (void)arg;
    return transport_share(transport, SIZE_MAX / 2, &block);
}

static void test_sharing_too_much_is_refused(void)
{
    struct rank ranks[2];

    ranks_run_each(2, share_too_much_body, NULL, ranks);
    CHECK_INT(STATUS_NO_MEMORY, ranks[0].status);
    CHECK_INT(STATUS_NO_MEMORY, ranks[1].status);
}

static void test_counter_wraps_around(void)
{
    struct transport_counter counter = { .value = UINT32_MAX - 1 };

    CHECK(transport_reached(&counter, UINT32_MAX - 1));
    CHECK(!transport_reached(&counter, UINT32_MAX));
    CHECK(!transport_reached(&counter, 3));
    transport_raise(&counter, 5);
    CHECK(transport_reached(&counter, 3));
    CHECK(transport_reached(&counter, UINT32_MAX));
}

/* Agreement -------------------------------------------------------------------------------- */

/* differs: the fact in which the last rank differs; 2: in how many it has. */
static enum status agree_body(struct transport *transport, void *arg)
{
    const int differs = *(const int *)arg;
    const bool is_last = transport_rank(transport) == transport_size(transport) - 1;
    struct agree_fact facts[3] = { { "program", "1234" }, { "data", "5678" }, { "more", "" } };

    if (is_last && differs >= 0 && differs < 2)
        (void)snprintf(facts[differs].text, AGREE_TEXT, "%s", "other");
    return agree(transport, facts, is_last && differs == 2 ? 3 : 2);
}

static void test_ranks_that_differ_are_named(void)
{
    static const char *const texts[] = {
        "rank 3 has another program than rank 0: other, not 1234",
        "rank 3 has another data than rank 0: other, not 5678",
        "rank 3 has another program than rank 0",
    };

    for (int differs = -1; differs < 3; differs++) {
        struct rank ranks[4];
        ranks_run_each_on(2, 4, agree_body, &differs, ranks);
        for (int i = 0; i < 4; i++) {
            CHECK_INT(differs < 0 ? STATUS_OK : STATUS_MISMATCH, ranks[i].status);
            if (differs >= 0)
                CHECK_TEXT(texts[differs], ranks[i].text);
        }
    }
}

static void test_program_has_a_hash(void)
{
    char once[AGREE_TEXT], again[AGREE_TEXT];

    CHECK_OK(agree_program(once));
    CHECK_OK(agree_program(again));
    CHECK_INT(64, strlen(once));
    CHECK_TEXT(once, again);
}

/* Failure ---------------------------------------------------------------------------------- */

/* Rank 0 gives up while the others wait, each in another way. */
static enum status abort_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport);
    struct transport_counter *counter = arg;
    char *data;
    enum status status;

    if (rank == 0) {
        clock_sleep_ms(20); /* most often the others sleep by now; any order must work */
        transport_abort(transport, "the sky fell");
        return transport_check(transport);
    }
    TRY(mem_alloc(1 << 20, 1, &data));
    if (rank == 1)
        status = transport_receive(transport, 0, 5, data, 10);
    else if (rank == 2)
        status = transport_send(transport, 0, 5, data, 1 << 20);
    else
        status = transport_wait(transport, counter, 1, "test");
    mem_free(data);
    return status;
}

static void test_abort_wakes_all(void)
{
    struct transport_counter counter = { 0 };
    struct rank ranks[4];
    const int64_t start = clock_ns();

    ranks_run_each(4, abort_body, &counter, ranks);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(STATUS_PEER_LOST, ranks[i].status);
        CHECK_TEXT("the sky fell", ranks[i].text);
    }
    CHECK(clock_ns() - start < 2000000000);
}

static void test_a_wait_gives_up_in_its_time(void)
{
    static struct transport_counter counter;
    struct transport *ends[1];
    bool reached;

    CHECK_OK(transport_inproc_create(1, ends));
    const int64_t start = clock_ns();
    CHECK_OK(transport_wait_within(ends[0], &counter, 1, 60000000, "test", &reached));
    CHECK(!reached);
    CHECK(clock_ns() - start >= 60000000);
    CHECK(clock_ns() - start < 2000000000);
    transport_raise(&counter, 1);
    CHECK_OK(transport_wait_within(ends[0], &counter, 1, 1, "test", &reached));
    CHECK(reached);
    transport_inproc_destroy(ends, 1);
}

/* The same on two nodes; ranks 1 to 4 wait for what another node has, rank 5 within its own. */
static enum status abort_nodes_body(struct transport *transport, void *arg)
{
    const int rank = transport_rank(transport);
    const size_t bytes = 1 << 20;
    struct transport_request request;
    struct transport_counter *counter;
    bool done = false;
    void *memory;
    char *data;
    enum status status;

    (void)arg;
    TRY(transport_share(transport, sizeof(*counter), &memory));
    counter = memory;
    if (rank == 0) {
        clock_sleep_ms(20);
        transport_abort(transport, "rank 0 gave up");
        return transport_check(transport);
    }
    TRY(mem_alloc(bytes, 1, &data));
    if (rank == 1) {
        status = transport_receive(transport, 5, 5, data, bytes);
    } else if (rank == 2) { /* leaves requests in both directions */
        TRY(transport_send(transport, 4, 5, data, bytes));
        TRY(transport_start_send(transport, 4, 5, data, bytes, &request));
        status = transport_receive(transport, 5, 5, data + 1, 10);
        transport_cancel(transport, &request);
    } else if (rank == 3) {
        TRY(transport_start_send(transport, 0, 5, data, bytes, &request));
        status = transport_wait_for(transport, &request, "test");
    } else if (rank == 4) {
        TRY(transport_start_receive(transport, 0, 5, data, bytes, &request));
        do
            status = transport_test(transport, &request, &done);
        while (status == STATUS_OK && !done);
    } else {
        status = transport_wait(transport, counter, 1, "test");
    }
    mem_free(data);
    return status;
}

static void test_abort_reaches_all_nodes(void)
{
    struct rank ranks[6];
    const int64_t start = clock_ns();

    ranks_run_each_on(2, 6, abort_nodes_body, NULL, ranks);
    for (int i = 0; i < 6; i++) {
        CHECK_INT(STATUS_PEER_LOST, ranks[i].status);
        CHECK_TEXT("rank 0 gave up", ranks[i].text);
    }
    CHECK(clock_ns() - start < 2000000000);
}

/* Rank 1 neither sends nor takes. */
static enum status be_patient(struct transport *transport, void *arg)
{
    const bool sends = *(const bool *)arg;
    const size_t bytes = (size_t)4 << 20; /* more than rings and links take in advance */
    struct transport_request request;
    char *data;

    if (transport_rank(transport) == 1) {
        while (transport_check(transport) == STATUS_OK)
            clock_sleep_ms(1);
        return transport_check(transport);
    }
    TRY(mem_alloc(bytes, 1, &data));
    transport_set_patience(transport, 0.1);
    enum status status = sends
                             ? transport_start_send(transport, 1, 5, data, bytes, &request)
                             : transport_start_receive(transport, 1, 5, data, bytes, &request);
    if (status == STATUS_OK)
        status = transport_wait_for(transport, &request, "test");
    mem_free(data);
    return status;
}

static void test_a_peer_that_is_silent_for_too_long_is_named(void)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        for (int sends = 0; sends < 2; sends++) {
            struct rank ranks[2];
            bool arg = sends;
            const int64_t start = clock_ns();

            ranks_run_each_on(nodes, 2, be_patient, &arg, ranks);
            for (int i = 0; i < 2; i++) {
                CHECK_INT(STATUS_PEER_LOST, ranks[i].status);
                CHECK(strstr(ranks[i].text, sends
                                                ? "rank 1 has taken nothing from rank 0 in test"
                                                : "rank 1 has sent nothing to rank 0 in test"));
            }
            CHECK(clock_ns() - start < 2000000000);
        }
    }
}

static void test_threads_may_be_lost(void)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct transport *ends[2];
        const char *text;

        CHECK_OK(transport_inproc_create_nodes(2, nodes, ends));
        CHECK_OK(transport_set_expendable(ends[1]));
        CHECK(!transport_lost(ends[0], 1, &text) && !*text);
        transport_inproc_lose(ends[1]);
        CHECK(transport_lost(ends[0], 1, NULL));
        CHECK(!transport_lost(ends[0], 0, NULL));
        CHECK_OK(transport_check(ends[0]));
        transport_inproc_destroy(ends, 2);
    }
}

static void test_size_is_checked(void)
{
    struct transport *ends[1];

    CHECK_STATUS(STATUS_USAGE, transport_inproc_create(0, ends));
    CHECK_STATUS(STATUS_USAGE, transport_inproc_create(100000, ends));
    CHECK_STATUS(STATUS_USAGE, transport_inproc_create_nodes(1, 0, ends));
    CHECK_STATUS(STATUS_USAGE, transport_inproc_create_nodes(1, 2, ends));
}

static void test_refused_memory_leaks_nothing(void)
{
    struct transport *ends[3];

    const uint64_t before = mem_count();
    CHECK_OK(transport_inproc_create_nodes(3, 2, ends));
    const uint64_t n_made = mem_count() - before;
    transport_inproc_destroy(ends, 3);
    for (uint64_t nth = 1; nth <= n_made; nth++) {
        mem_fail_at(nth);
        CHECK_STATUS(STATUS_NO_MEMORY, transport_inproc_create_nodes(3, 2, ends));
    }
    mem_fail_at(0);
    CHECK_OK(transport_inproc_create_nodes(3, 2, ends));
    transport_inproc_destroy(ends, 3);
}

const struct test tests[] = {
    { .name = "threads may be lost", .run = test_threads_may_be_lost },
    { .name = "nodes share memory within", .run = test_nodes_share_memory_within },
    { .name = "shared block is the same for all",
      .run = test_shared_block_is_the_same_for_all },
    { .name = "sharing different sizes is a mismatch",
      .run = test_sharing_different_sizes_is_a_mismatch },
    { .name = "sharing too much is refused", .run = test_sharing_too_much_is_refused },
    { .name = "counter wraps around", .run = test_counter_wraps_around },
    { .name = "ranks that differ are named", .run = test_ranks_that_differ_are_named },
    { .name = "program has a hash", .run = test_program_has_a_hash },
    { .name = "abort wakes all", .run = test_abort_wakes_all },
    { .name = "a wait gives up in its time", .run = test_a_wait_gives_up_in_its_time },
    { .name = "abort reaches all nodes", .run = test_abort_reaches_all_nodes },
    { .name = "a peer that is silent for too long is named",
      .run = test_a_peer_that_is_silent_for_too_long_is_named },
    { .name = "size is checked", .run = test_size_is_checked },
    { .name = "refused memory leaks nothing", .run = test_refused_memory_leaks_nothing },
    { 0 },
};
