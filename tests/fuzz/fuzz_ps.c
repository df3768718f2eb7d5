/* SPDX-License-Identifier: MIT */
/* fuzz_ps.c - a parameter server is told anything by workers and by another server.
 *
 * Input is a row of messages to a server of a job with two workers, each on a node of its own, two servers and two
 * replicas. Of each: a byte for the sender; if that has its highest bit set, a byte for the length and the message as
 * it is; else kind, slice, part, clock, two bytes each for `at` and `count`, and a payload as long as it must be. The
 * first byte of all picks the policy, backup and clipping.
 */
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "ps/server.h"

enum {
    WORKERS = 2,
    SERVERS = 2,
    RANKS = WORKERS + SERVERS,
    BUCKETS = 2,
    MESSAGES = 64,
    USES = 1000
};

struct input {
    const uint8_t *data;
    size_t size;
};

static uint8_t take_byte(struct input *in)
{
    if (in->size == 0)
        return 0;
    in->size--;
    return *in->data++;
}

static int16_t take_number(struct input *in)
{
    const uint8_t low = take_byte(in);

    return (int16_t)(low | take_byte(in) << 8);
}

static void take_bytes(struct input *in, void *out, size_t bytes)
{
    const size_t here = bytes < in->size ? bytes : in->size;

    memcpy(out, in->data, here);
    memset((char *)out + here, 0, bytes - here);
    in->data += here;
    in->size -= here;
}

/* A header with the right magic, and as much payload as it asks for, if what it says is possible. */
static size_t make_frame(struct input *in, const struct server *server, unsigned char *message)
{
    struct frame frame = { .magic = FRAME_MAGIC };

    frame.kind = take_byte(in);
    frame.slice = (int8_t)take_byte(in);
    frame.part = (int8_t)take_byte(in);
    frame.clock = (uint64_t)(int64_t)(int8_t)take_byte(in);
    frame.at = take_number(in);
    frame.count = take_number(in);
    frame.version = frame.clock;
    const int64_t bytes = frame_payload(server->slices, &frame);
    frame.bytes = bytes < 0 ? 0 : (uint32_t)bytes;
    memcpy(message, &frame, sizeof(frame));
    take_bytes(in, message + sizeof(frame), frame.bytes);
    return sizeof(frame) + frame.bytes;
}

static void tell(struct input *in, struct server *server, unsigned char *message)
{
    const uint8_t who = take_byte(in);
    const int from = who % (RANKS - 1); /* all but the server itself, which is the last */
    struct frame frame;
    size_t bytes;

    if (who & 128) {
        bytes = take_byte(in);
        take_bytes(in, message, bytes);
    } else {
        bytes = make_frame(in, server, message);
    }
    if (frame_check(server->slices, from < WORKERS ? from : -1, message, bytes, &frame) !=
        STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    /* Nobody reads the answers, so at some time there are too many of them. */
    const enum status status =
        server_hear(server, from, &frame, message + sizeof(struct frame));
    BUG_ON(status != STATUS_OK && status != STATUS_CORRUPT);
    BUG_ON(server_look(server) == STATUS_PEER_LOST);
}

static void run(struct input *in, struct transport *transport, unsigned char *message)
{
    static const int64_t begin[BUCKETS + 1] = { 0, 4112, 4112 + 48 };
    static const struct ps_table tables[BUCKETS] = { { 0 }, { .rows = 9, .width = 5 } };
    static const int64_t rows[WORKERS + 1] = { 0, 3, 5 };
    static const enum ps_policy policies[] = { PS_STEP, PS_ASYNC, PS_BOUNDED, PS_CENTER };
    const uint8_t first = take_byte(in);
    struct ps_config config = { .transport = transport,
                                .workers = WORKERS,
                                .servers = SERVERS,
                                .replicas = 2,
                                .shards = 5,
                                .rows = rows,
                                .policy = policies[first % 4],
                                .bound = 1,
                                .alpha = 0.5 };
    struct ps_update updates[BUCKETS];
    struct server *server;

    static const struct ps_param params[] = { { 0, 0, 2000 }, { 0, 2048, 2000 }, { 1, 0, 45 } };

    config.backup = config.policy == PS_STEP && first & 4 ? 1 : 0;
    config.optim.optimizer = optim_find("adam");
    config.optim.attrs = config.optim.optimizer->defaults;
    config.optim.attrs.max_norm = config.policy == PS_STEP && first & 8 ? 1 : 0;
    for (int b = 0; b < BUCKETS; b++)
        updates[b] = (struct ps_update){ .kernel = kernel_update_find("adam_update"),
                                         .attrs = config.optim.attrs };
    config.layout = (struct ps_layout){ .buckets = BUCKETS,
                                        .begin = begin,
                                        .tables = tables,
                                        .updates = updates,
                                        .n_states = optim_states(&config.optim),
                                        .params = params,
                                        .n_params = 3 };
    BUG_ON(server_create(&config, &server) != STATUS_OK);
    for (int i = 0; i < MESSAGES && in->size > 0; i++)
        tell(in, server, message);
    server_destroy(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct transport *ends[RANKS]; /* used again: making them takes long */
    static int uses;
    struct input in = { data, size };
    unsigned char *message;

    if (uses++ == 0 && transport_inproc_create_nodes(RANKS, RANKS, ends) != STATUS_OK)
        return 0;
    BUG_ON(mem_alloc(FRAME_LARGE, 1, &message) != STATUS_OK);
    run(&in, ends[RANKS - 1], message);
    mem_free(message);
    if (uses == USES) {
        transport_inproc_destroy(ends, RANKS);
        uses = 0;
    }
    return 0;
}
