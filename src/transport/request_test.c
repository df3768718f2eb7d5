/* SPDX-License-Identifier: MIT */
/* request_test.c - messages between ranks, which are threads: waited for at once or as requests, by tags, of any length. */
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/test.h"
#include "transport/transport_testing.h"

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

    ranks_run_on(1 + (int)rng_below(rng, (uint64_t)size), size, storm_body, &storm);
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

    ranks_run(2, swap_body, &bytes);
    ranks_run_on(2, 2, swap_body, &bytes);
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
    ranks_run(2, length_body, NULL);
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
    ranks_run_on(2, 2, longer_body, NULL);
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
    ranks_run(2, bad_peer_body, NULL);
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
    ranks_run(2, threads_body, NULL);
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

    ranks_run(1, crossing_body, &longest);
    ranks_run(3, crossing_body, &longest);
    ranks_run_on(3, 3, crossing_body, &longest);
    ranks_run_on(2, 5, crossing_body, &longest);
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
    ranks_run(2, late_body, NULL);
    ranks_run_on(2, 2, late_body, NULL);
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
    ranks_run(1, never_begun_body, NULL);
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
    ranks_run_on(1, 2, shorter_body, NULL);
    ranks_run_on(2, 2, shorter_body, NULL);
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

const struct test tests[] = {
    { .name = "a receive may ask for at most", .run = test_a_receive_may_ask_for_at_most },
    { .name = "a rank rings its own bell", .run = test_a_rank_rings_its_own_bell },
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
    { 0 },
};
