/* SPDX-License-Identifier: MIT */
/* transport_test.c - messages, shared memory, waiting and failure, with threads as ranks. */
#include "transport/transport.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "transport/agree.h"

enum { MOST_RANKS = 8, TEXT_BYTES = 256 };

typedef enum status rank_body(struct transport *transport, void *arg);

struct rank {
    struct transport *transport;
    rank_body *body;
    void *arg;
    pthread_t thread;
    enum status status;
    char text[TEXT_BYTES];
};

static void *run_thread(void *arg)
{
    struct rank *rank = arg;

    rank->status = rank->body(rank->transport, rank->arg);
    if (rank->status != STATUS_OK)
        (void)snprintf(rank->text, sizeof(rank->text), "%s", status_message());
    return NULL;
}

/* Runs the body on every rank and leaves what became of each in ranks. */
static void run_each_on(int nodes, int size, rank_body *body, void *arg, struct rank *ranks)
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

static void run_each(int size, rank_body *body, void *arg, struct rank *ranks)
{
    run_each_on(1, size, body, arg, ranks);
}

static void run_on(int nodes, int size, rank_body *body, void *arg)
{
    struct rank ranks[MOST_RANKS];

    run_each_on(nodes, size, body, arg, ranks);
    for (int i = 0; i < size; i++) {
        if (ranks[i].status != STATUS_OK)
            test_fail(__FILE__, __LINE__, "rank %d: %s", i, ranks[i].text);
    }
}

static void run(int size, rank_body *body, void *arg)
{
    run_on(1, size, body, arg);
}

/* Messages ------------------------------------------------------------------------------- */

/* All pairs, several tags, random lengths; received in another order of tags than sent. */
struct storm {
    uint64_t seed;
    int n_messages;
    size_t longest;
};
enum { N_TAGS = 3 };

static struct rng rng_of(const struct storm *storm, int from, int to, uint32_t tag)
{
    struct rng rng;

    rng_init(&rng, storm->seed, (uint64_t)(from * MOST_RANKS + to) * N_TAGS + tag);
    return rng;
}

static enum status storm_body(struct transport *transport, void *arg)
{
    const struct storm *storm = arg;
    const int rank = transport_rank(transport), size = transport_size(transport);
    struct rng rngs[MOST_RANKS][N_TAGS];
    uint8_t *buffer;

    TRY(mem_alloc(storm->longest + 1, 1, &buffer));
    for (int peer = 0; peer < size; peer++)
        for (uint32_t tag = 0; tag < N_TAGS; tag++)
            rngs[peer][tag] = rng_of(storm, rank, peer, tag);
    for (int i = 0; i < storm->n_messages; i++) {
        for (int peer = 0; peer < size; peer++) {
            for (uint32_t tag = 0; tag < N_TAGS; tag++) {
                struct rng *rng = &rngs[peer][tag];
                const size_t bytes = rng_below(rng, storm->longest + 1);
                memset(buffer, (int)(rng_u32(rng) & 0xff), bytes);
                TRY(transport_send(transport, peer, tag, buffer, bytes));
            }
        }
    }
    for (int peer = size - 1; peer >= 0; peer--) {
        for (uint32_t tag = N_TAGS; tag-- > 0;) {
            struct rng rng = rng_of(storm, peer, rank, tag);
            for (int i = 0; i < storm->n_messages; i++) {
                const size_t bytes = rng_below(&rng, storm->longest + 1);
                const uint8_t value = (uint8_t)(rng_u32(&rng) & 0xff);
                TRY(transport_receive(transport, peer, tag, buffer, bytes));
                for (size_t at = 0; at < bytes; at++) {
                    if (buffer[at] != value)
                        return FAIL(STATUS_CORRUPT, "message %d tag %u byte %zu differs", i,
                                    tag, at);
                }
            }
        }
    }
    mem_free(buffer);
    return STATUS_OK;
}

static void test_messages_keep_order_per_tag(struct rng *rng)
{
    struct storm storm = { .seed = rng_u64(rng),
                           .n_messages = 1 + (int)rng_below(rng, 10),
                           .longest = rng_below(rng, 3000) };

    const int size = 1 + (int)rng_below(rng, 4);

    run_on(1 + (int)rng_below(rng, (uint64_t)size), size, storm_body, &storm);
}

static enum status swap_body(struct transport *transport, void *arg)
{
    const size_t bytes = *(const size_t *)arg;
    const int rank = transport_rank(transport), peer = 1 - rank;
    uint8_t *out, *in;

    TRY(mem_alloc(bytes, 1, &out));
    TRY(mem_alloc(bytes, 1, &in));
    for (int round = 0; round < 2; round++) {
        memset(out, rank + 1 + round, bytes);
        TRY(transport_send(transport, peer, 7, out, bytes));
        TRY(transport_receive(transport, peer, 7, in, bytes));
        for (size_t i = 0; i < bytes; i++) {
            if (in[i] != peer + 1 + round)
                return FAIL(STATUS_CORRUPT, "byte %zu is %d", i, in[i]);
        }
    }
    mem_free(out);
    mem_free(in);
    return STATUS_OK;
}

static void test_both_send_more_than_a_ring_at_once(void)
{
    size_t bytes = 5 << 20;

    run(2, swap_body, &bytes);
    run_on(2, 2, swap_body, &bytes);
}

static enum status length_body(struct transport *transport, void *arg)
{
    char data[16] = "";

    (void)arg;
    if (transport_rank(transport) == 0)
        return transport_send(transport, 1, 1, data, 12);
    if (transport_receive(transport, 0, 1, data, 16) != STATUS_MISMATCH)
        return FAIL(STATUS_CORRUPT, "a message of another length was taken");
    if (!strstr(status_message(), "12 bytes"))
        return FAIL(STATUS_CORRUPT, "text: %s", status_message());
    /* The message is still there for someone who knows its length. */
    return transport_receive(transport, 0, 1, data, 12);
}

static void test_another_length_is_a_mismatch(void)
{
    run(2, length_body, NULL);
}

static enum status longer_body(struct transport *transport, void *arg)
{
    char data[16] = "", byte = 1;

    (void)arg;
    if (transport_rank(transport) == 0) {
        TRY(transport_send(transport, 1, 1, data, 16));
        return transport_send(transport, 1, 1, &byte, 1);
    }
    if (transport_receive(transport, 0, 1, data, 12) != STATUS_MISMATCH)
        return FAIL(STATUS_CORRUPT, "a message of another length was taken");
    if (!strstr(status_message(), "16 bytes"))
        return FAIL(STATUS_CORRUPT, "text: %s", status_message());
    byte = 0;
    TRY(transport_receive(transport, 0, 1, &byte, 1));
    return byte == 1 ? STATUS_OK : FAIL(STATUS_CORRUPT, "the next message differs");
}

static void test_another_length_is_a_mismatch_over_a_link(void)
{
    run_on(2, 2, longer_body, NULL);
}

static enum status bad_peer_body(struct transport *transport, void *arg)
{
    char byte = 0;

    (void)arg;
    if (transport_send(transport, 2, 0, &byte, 1) != STATUS_USAGE ||
        transport_receive(transport, -1, 0, &byte, 1) != STATUS_USAGE)
        return FAIL(STATUS_CORRUPT, "a rank that does not exist was accepted");
    return STATUS_OK;
}

static void test_unknown_peer_is_refused(void)
{
    run(2, bad_peer_body, NULL);
}

/* Two threads of one rank, each with its own tag and peer thread. */
struct pair_thread {
    struct transport *transport;
    uint32_t tag;
    enum status status;
};

static enum status talk(struct transport *transport, uint32_t tag)
{
    const int peer = 1 - transport_rank(transport);
    uint32_t numbers[500];

    for (uint32_t i = 0; i < 200; i++) {
        for (size_t at = 0; at < 500; at++)
            numbers[at] = tag * 1000 + i;
        TRY(transport_send(transport, peer, tag, numbers, sizeof(numbers)));
        TRY(transport_receive(transport, peer, tag, numbers, sizeof(numbers)));
        if (numbers[0] != tag * 1000 + i || numbers[499] != tag * 1000 + i)
            return FAIL(STATUS_CORRUPT, "tag %u message %u differs", tag, i);
    }
    return STATUS_OK;
}

static void *talk_thread(void *arg)
{
    struct pair_thread *pair = arg;

    pair->status = talk(pair->transport, pair->tag);
    return NULL;
}

static enum status threads_body(struct transport *transport, void *arg)
{
    struct pair_thread pair = { .transport = transport, .tag = 1 };
    pthread_t thread;

    (void)arg;
    if (pthread_create(&thread, NULL, talk_thread, &pair) != 0)
        return FAIL(STATUS_IO, "no thread");
    const enum status status = talk(transport, 2);
    pthread_join(thread, NULL);
    TRY(status);
    return pair.status;
}

static void test_two_threads_of_a_rank_use_two_tags(void)
{
    run(2, threads_body, NULL);
}

/* Requests --------------------------------------------------------------------------------- */

enum { N_CROSSING = 5 };

static uint8_t byte_of(int from, int to, int number)
{
    return (uint8_t)(1 + from * 31 + to * 7 + number);
}

/* Every rank begins sends to all ranks and receives from all, long and short in turns, and
 * asks for them in an order of its own. */
static enum status crossing_body(struct transport *transport, void *arg)
{
    const size_t longest = *(const size_t *)arg;
    const int rank = transport_rank(transport), size = transport_size(transport);
    struct transport_request requests[2][MOST_RANKS][N_CROSSING];
    uint8_t *out, *in;

    TRY(mem_alloc((size_t)size * N_CROSSING * longest, 1, &out));
    TRY(mem_alloc((size_t)size * N_CROSSING * longest, 1, &in));
    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < N_CROSSING; i++) {
            const size_t at = (size_t)(peer * N_CROSSING + i) * longest;
            const size_t bytes = i % 2 ? 10 : longest;
            memset(out + at, byte_of(rank, peer, i), bytes);
            TRY(transport_start_send(transport, peer, 3, out + at, bytes,
                                     &requests[0][peer][i]));
        }
    }
    for (int peer = size - 1; peer >= 0; peer--) {
        for (int i = 0; i < N_CROSSING; i++) {
            const size_t at = (size_t)(peer * N_CROSSING + i) * longest;
            TRY(transport_start_receive(transport, peer, 3, in + at, i % 2 ? 10 : longest,
                                        &requests[1][peer][i]));
        }
    }
    for (int i = N_CROSSING - 1; i >= 0; i--) {
        for (int at = 0; at < size; at++) {
            const int peer = (at + rank) % size;
            bool done = false;
            TRY(transport_wait_for(transport, &requests[rank % 2][peer][i], "test"));
            while (!done)
                TRY(transport_test(transport, &requests[1 - rank % 2][peer][i], &done));
        }
    }
    for (int peer = 0; peer < size; peer++) {
        for (int i = 0; i < N_CROSSING; i++) {
            const uint8_t *data = in + (size_t)(peer * N_CROSSING + i) * longest;
            for (size_t at = 0; at < (i % 2 ? 10 : longest); at++) {
                if (data[at] != byte_of(peer, rank, i))
                    return FAIL(STATUS_CORRUPT, "message %d of rank %d differs", i, peer);
            }
        }
    }
    mem_free(out);
    mem_free(in);
    return STATUS_OK;
}

static void test_requests_cross_each_other(void)
{
    size_t longest = 700001; /* more than a ring */

    run(1, crossing_body, &longest);
    run(3, crossing_body, &longest);
    run_on(3, 3, crossing_body, &longest);
    run_on(2, 5, crossing_body, &longest);
}

/* A receive that is begun while its message is arriving gets what came and then the rest. */
static enum status late_body(struct transport *transport, void *arg)
{
    const size_t bytes = 1 << 20;
    struct transport_request request;
    bool done = false;
    uint8_t *data;
    char byte = 0;

    (void)arg;
    TRY(mem_alloc(bytes, 1, &data));
    if (transport_rank(transport) == 0) {
        memset(data, 9, bytes);
        TRY(transport_start_send(transport, 1, 1, data, bytes, &request));
        TRY(transport_receive(transport, 1, 2, &byte, 1));
        TRY(transport_wait_for(transport, &request, "test"));
    } else {
        /* Nothing is sent with tag 7: this takes in the first bytes of the message. */
        TRY(transport_start_receive(transport, 0, 7, &byte, 1, &request));
        TRY(transport_test(transport, &request, &done));
        transport_cancel(transport, &request);
        TRY(transport_send(transport, 0, 2, &byte, 1));
        TRY(transport_receive(transport, 0, 1, data, bytes));
        for (size_t i = 0; i < bytes; i++) {
            if (data[i] != 9)
                return FAIL(STATUS_CORRUPT, "byte %zu is %d", i, data[i]);
        }
    }
    mem_free(data);
    return STATUS_OK;
}

static void test_receive_takes_over_a_message_that_is_arriving(void)
{
    run(2, late_body, NULL);
    run_on(2, 2, late_body, NULL);
}

static enum status never_begun_body(struct transport *transport, void *arg)
{
    struct transport_request request = { 0 };
    bool done = false;

    (void)arg;
    TRY(transport_test(transport, &request, &done));
    TRY(transport_wait_for(transport, &request, "test"));
    transport_cancel(transport, &request);
    return done ? STATUS_OK : FAIL(STATUS_CORRUPT, "not done");
}

static void test_request_that_was_never_begun_is_done(void)
{
    run(1, never_begun_body, NULL);
}

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
        run(size, share_body, addresses);
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
    run_on(2, 5, nodes_body, NULL);
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

    run_each(3, share_differently_body, NULL, ranks);
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

    run_each(2, share_too_much_body, NULL, ranks);
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
        run_each_on(2, 4, agree_body, &differs, ranks);
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

    run_each(4, abort_body, &counter, ranks);
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

    run_each_on(2, 6, abort_nodes_body, NULL, ranks);
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

            run_each_on(nodes, 2, be_patient, &arg, ranks);
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

/* Messages of unknown length, and a bell ---------------------------------------------------------- */

enum { MOST = 3000, SHORTER = 20 };

static enum status send_shorter(struct transport *transport)
{
    char data[MOST + 1] = { 0 };

    for (int i = 0; i < SHORTER; i++) {
        data[0] = (char)i;
        TRY(transport_send(transport, 1, 5, data,
                           (size_t)(i * MOST / (SHORTER - 1)) + (i == 0)));
    }
    return transport_send(transport, 1, 6, data, MOST + 1);
}

/* Takes them as they come, waiting for its bell in between. */
static enum status shorter_body(struct transport *transport, void *arg)
{
    struct transport_request request;
    char data[MOST];
    bool done;

    (void)arg;
    if (transport_rank(transport) == 0)
        return send_shorter(transport);
    for (int i = 0; i < SHORTER; i++) {
        TRY(transport_start_receive_most(transport, 0, 5, data, MOST, &request));
        for (;;) {
            const uint32_t seen = transport_bell(transport);
            TRY(transport_test(transport, &request, &done));
            if (done)
                break;
            TRY(transport_wait_bell(transport, seen, 1000000000, "a message"));
        }
        if (request.length != (size_t)(i * MOST / (SHORTER - 1)) + (i == 0) || data[0] != i)
            return FAIL(STATUS_CORRUPT, "message %d has %zu bytes", i, request.length);
    }
    TRY(transport_start_receive_most(transport, 0, 6, data, MOST, &request));
    const enum status status = transport_wait_for(transport, &request, "too much");
    return status == STATUS_MISMATCH ? STATUS_OK : FAIL(STATUS_CORRUPT, "too much was taken");
}

static void test_a_receive_may_ask_for_at_most(void)
{
    run_on(1, 2, shorter_body, NULL);
    run_on(2, 2, shorter_body, NULL);
}

/* A thread of the rank sleeps until another rings. */
static void *ring_later(void *arg)
{
    clock_sleep_ms(5);
    transport_ring(arg);
    return NULL;
}

static void test_a_rank_rings_its_own_bell(void)
{
    struct transport *end;
    pthread_t thread;

    CHECK_OK(transport_inproc_create(1, &end));
    const uint32_t seen = transport_bell(end);
    const int64_t began = clock_ns();
    CHECK(pthread_create(&thread, NULL, ring_later, end) == 0);
    CHECK_OK(transport_wait_bell(end, seen, (int64_t)60 * 1000000000, "the bell"));
    CHECK(clock_ns() - began < (int64_t)30 * 1000000000);
    CHECK(transport_bell(end) != seen);
    pthread_join(thread, NULL);
    transport_inproc_destroy(&end, 1);
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

/* Groups --------------------------------------------------------------------------------- */

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
    run_on(1, 4, overlapping_body, NULL);
    run_on(2, 4, overlapping_body, NULL);
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
    run_on(1, 4, joined_body, NULL);
}

static void test_groups_number_ranks_anew(void)
{
    run_on(1, 4, grid_body, NULL);
    run_on(2, 4, grid_body, NULL);
    run_on(4, 4, grid_body, NULL);
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

    run_each_on(2, 4, failing_group_body, NULL, ranks);
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
    { .name = "a receive may ask for at most", .run = test_a_receive_may_ask_for_at_most },
    { .name = "a rank rings its own bell", .run = test_a_rank_rings_its_own_bell },
    { .name = "threads may be lost", .run = test_threads_may_be_lost },
    { .name = "messages keep order per tag", .property = test_messages_keep_order_per_tag },
    { .name = "both send more than a ring at once",
      .run = test_both_send_more_than_a_ring_at_once },
    { .name = "another length is a mismatch", .run = test_another_length_is_a_mismatch },
    { .name = "another length is a mismatch over a link",
      .run = test_another_length_is_a_mismatch_over_a_link },
    { .name = "unknown peer is refused", .run = test_unknown_peer_is_refused },
    { .name = "two threads of a rank use two tags",
      .run = test_two_threads_of_a_rank_use_two_tags },
    { .name = "requests cross each other", .run = test_requests_cross_each_other },
    { .name = "receive takes over a message that is arriving",
      .run = test_receive_takes_over_a_message_that_is_arriving },
    { .name = "request that was never begun is done",
      .run = test_request_that_was_never_begun_is_done },
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
