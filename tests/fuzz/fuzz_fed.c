/* SPDX-License-Identifier: MIT */
/* fuzz_fed.c - a message between coordinator and participant may be anything: it is refused, or read within bounds.
 *
 * The first byte picks what the rest is taken for: a message, a task, an update (with each codec), terms, or what a
 * server hears from somebody it knows. A message that is read is written again and must be the same bytes. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "fed/client.h"
#include "fed/server.h"
#include "fuzz.h"

enum { LENGTH = 20, MOST = 1 << 20 };

static void read_message(const uint8_t *data, size_t size)
{
    struct fed_message message;
    struct fed_buffer again;

    if (fed_message_read(data, size, &message) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    fed_buffer_init(&again, MOST);
    fed_message_write(&message, &again);
    BUG_ON(again.length != size || memcmp(again.data, data, size) != 0);
    fed_buffer_release(&again);
}

static void read_work(const uint8_t *data, size_t size)
{
    struct fed_work work;

    if (fed_work_read(data, size, LENGTH, &work) != STATUS_OK)
        return;
    BUG_ON(work.n_vectors > 0 && !isfinite(work.vector[0][LENGTH - 1]));
    fed_work_release(&work);
}

static void read_update(const uint8_t *data, size_t size, const char *codec)
{
    struct codec_state *state = NULL;
    struct codec_config config;
    struct fed_update update;

    if (*codec &&
        (codec_parse(codec, &config) != STATUS_OK ||
         codec_create(&config, &(struct codec_layout){ 0 }, LENGTH, &state) != STATUS_OK))
        return;
    for (int vectors = 1; vectors <= FED_VECTORS; vectors++) {
        if (fed_update_read(data, size, state, LENGTH, vectors, &update) == STATUS_OK)
            fed_update_release(&update);
    }
    codec_destroy(state);
}

static void read_terms(const uint8_t *data, size_t size)
{
    struct fed_terms terms;

    if (fed_terms_read((const char *)data, size, &terms) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    BUG_ON(fed_terms_check(&terms) != STATUS_OK || !terms.graph);
    fed_terms_release(&terms);
}

/* A server that hears it from somebody it knows. */
static double now(void *arg)
{
    (void)arg;
    return 0;
}

static enum status entropy(void *arg, void *out, size_t bytes)
{
    (void)arg;
    memset(out, 7, bytes);
    return STATUS_OK;
}

static void hear(struct fed_server *server, const void *message, size_t length)
{
    struct fed_buffer reply;
    struct fed_message read;

    fed_buffer_init(&reply, MOST);
    if (fed_server_answer(server, "a", message, length, &reply) == STATUS_OK)
        BUG_ON(fed_message_read(reply.data, reply.length, &read) != STATUS_OK);
    fed_buffer_release(&reply);
}

static void serve(const uint8_t *data, size_t size)
{
    static const float zeros[LENGTH];
    const struct fed_message hello = { .type = FED_HELLO, .client = "a", .samples = 1 };
    const struct fed_message ask = { .type = FED_ASK, .client = "a" };
    struct fed_memory_store *store;
    struct fed_server *server = NULL;
    struct fed_buffer first, second;
    struct fed_terms terms;

    if (fed_memory_store_create(&store) != STATUS_OK)
        return;
    fed_terms_init(&terms);
    snprintf(terms.model, sizeof terms.model, "m");
    terms.minimum = 1;
    const struct fed_server_config config = { .terms = &terms,
                                              .length = LENGTH,
                                              .initial = zeros,
                                              .store = fed_memory_store(store),
                                              .now = now,
                                              .entropy = entropy };
    fed_buffer_init(&first, MOST);
    fed_buffer_init(&second, MOST);
    fed_message_write(&hello, &first);
    fed_message_write(&ask, &second);
    if (fed_server_create(&config, &server) == STATUS_OK) {
        hear(server, first.data, first.length);
        hear(server, second.data, second.length);
        hear(server, data, size);
        hear(server, second.data, second.length);
    }
    fed_server_destroy(server);
    fed_buffer_release(&first);
    fed_buffer_release(&second);
    fed_memory_store_destroy(store);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const codecs_of[] = { "", "bf16", "int8", "topk:0.2", "onebit" };

    if (size == 0)
        return 0;
    const uint8_t what = *data % 9;
    data++, size--;
    if (what == 0)
        read_message(data, size);
    else if (what == 1)
        read_work(data, size);
    else if (what == 2)
        read_terms(data, size);
    else if (what == 3)
        serve(data, size);
    else
        read_update(data, size, codecs_of[what - 4]);
    return 0;
}
