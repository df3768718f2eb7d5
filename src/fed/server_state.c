/* SPDX-License-Identifier: MIT */
/* server_state.c - the end of a round: what is committed, and what an engine reads back of it. */
#include "fed/server_state.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "fed/wire.h"

static const char magic[8] = "tfstate2";
/* Without a record of cohorts. */
static const char old_magic[8] = "tfstate1";

static size_t state_bytes(const struct fed_server *server)
{
    return (server->config.length + (size_t)(FED_STATES + 2) * server->length) * sizeof(float) +
           2 * server->n_statistics * sizeof(float) +
           (size_t)server->n_members * (FED_NAME + 24) + server->ledger_text.length + 4096 +
           COHORTS_BYTES;
}

static void write_state(const struct fed_server *server, struct fed_buffer *out)
{
    fed_put(out, magic, sizeof magic);
    fed_put_text(out, server->terms->federation);
    fed_put_u64(out, (uint64_t)server->round);
    fed_put_u64(out, (uint64_t)server->done);
    fed_put_f64(out, server->clip);
    fed_put_f64(out, server->bytes_in);
    fed_put_f64(out, server->bytes_out);
    fed_put_text(out, server->ledger_text.text);
    fed_put_floats(out, server->parameters, server->config.length);
    for (int i = 0; i < server->algorithm->n_states; i++)
        fed_put_floats(out, server->state[i], server->length);
    if (server->control)
        fed_put_floats(out, server->control, server->length);
    fed_put_u8(out, server->statistics != NULL);
    if (server->statistics)
        fed_put_floats(out, server->statistics, server->n_statistics);
    fed_put_u32(out, (uint32_t)server->n_members);
    for (int i = 0; i < server->n_members; i++) {
        fed_put_text(out, server->members[i].name);
        fed_put_u64(out, server->members[i].samples);
        fed_put_u64(out, (uint64_t)server->members[i].last_given);
    }
    cohorts_write(server->cohorts, out);
    fed_put_u8(out, server->ranges != NULL);
    if (server->ranges)
        fed_put_floats(out, server->ranges, server->n_statistics);
}

/* A ledger is a line an entry. */
static enum status read_ledger(struct fed_server *server, const char *text, size_t length)
{
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        const size_t line = end ? (size_t)(end - (text + at)) : length - at;
        struct ledger_entry entry;
        TRY(ledger_entry_read(text + at, line, &entry));
        if (server->ledger)
            TRY(ledger_add(server->ledger, &entry));
        at += line + 1;
    }
    strbuf_add_bytes(&server->ledger_text, text, length);
    return strbuf_status(&server->ledger_text);
}

static enum status read_vectors(struct fed_server *server, struct fed_reader *reader)
{
    fed_take_floats(reader, server->parameters, server->config.length);
    for (int i = 0; i < server->algorithm->n_states; i++)
        fed_take_floats(reader, server->state[i], server->length);
    if (server->control)
        fed_take_floats(reader, server->control, server->length);
    if (fed_take_u8(reader)) {
        TRY(mem_alloc(server->n_statistics, sizeof *server->statistics, &server->statistics));
        fed_take_floats(reader, server->statistics, server->n_statistics);
    }
    return reader->failed
               ? FAIL(STATUS_MISMATCH, "the store holds another model than the terms")
               : STATUS_OK;
}

static enum status read_members(struct fed_server *server, struct fed_reader *reader)
{
    const uint32_t count = fed_take_u32(reader);

    for (uint32_t i = 0; i < count && !reader->failed; i++) {
        struct member member = { .seen = -(double)INFINITY, .place = -1, .refused = -1 };
        fed_take_text(reader, member.name, sizeof member.name);
        member.samples = fed_take_u64(reader);
        member.last_given = (int64_t)fed_take_u64(reader);
        if (reader->failed)
            break;
        if (server->n_members == server->capacity) {
            const int more = 2 * server->capacity + 16;
            TRY(mem_grow(&server->members, (size_t)server->capacity, (size_t)more,
                         sizeof *server->members));
            server->capacity = more;
        }
        server->members[server->n_members++] = member; /* they were written in their order */
    }
    return STATUS_OK;
}

/* Records that secure rounds keep of each other. */
static enum status read_sums(struct fed_server *server, struct fed_reader *reader)
{
    TRY(cohorts_read(server->cohorts, reader));
    if (!fed_take_u8(reader))
        return STATUS_OK;
    TRY(mem_alloc(server->n_statistics, sizeof *server->ranges, &server->ranges));
    fed_take_floats(reader, server->ranges, server->n_statistics);
    return STATUS_OK;
}

enum status server_load(struct fed_server *server, const struct fed_commit *commit)
{
    struct fed_reader reader = fed_reader(commit->state, commit->state_length);
    const uint8_t *head = fed_take(&reader, sizeof magic);
    char federation[FED_TEXT];
    size_t ledger_length;

    const bool is_old = head && memcmp(head, old_magic, sizeof old_magic) == 0;
    if (!head || (!is_old && memcmp(head, magic, sizeof magic) != 0))
        return FAIL(STATUS_CORRUPT, "the store's state is none of this program");
    fed_take_text(&reader, federation, sizeof federation);
    if (strcmp(federation, server->terms->federation) != 0)
        return FAIL(STATUS_MISMATCH, "the store is of federation %.40s, the terms are of %.40s",
                    federation, server->terms->federation);
    server->round = (int64_t)fed_take_u64(&reader);
    server->done = (int64_t)fed_take_u64(&reader);
    server->clip = fed_take_f64(&reader);
    server->bytes_in = fed_take_f64(&reader);
    server->bytes_out = fed_take_f64(&reader);
    const char *ledger = (const char *)fed_take_bytes(&reader, &ledger_length);
    if (ledger_length)
        TRY(read_ledger(server, ledger, ledger_length));
    TRY(read_vectors(server, &reader));
    server_tell_statistics(server);
    TRY(read_members(server, &reader));
    if (!is_old)
        TRY(read_sums(server, &reader));
    return fed_reader_end(&reader, "state");
}

static void add_number(struct strbuf *out, const char *key, double number)
{
    if (!isfinite(number))
        return;
    strbuf_printf(out, ", \"%s\": ", key);
    strbuf_add_number(out, number);
}

static void print_score(const struct fed_server *server, const struct round_score *score,
                        const struct fed_score *own, struct strbuf *out)
{
    strbuf_printf(out, ", \"participants\": %d, \"samples\": %" PRIu64, score->participants,
                  score->samples);
    add_number(out, "train_loss", score->loss);
    add_number(out, "train_accuracy", score->accuracy);
    add_number(out, "val_loss", isfinite(own->loss) ? own->loss : score->val_loss);
    add_number(out, "val_accuracy",
               isfinite(own->accuracy) ? own->accuracy : score->val_accuracy);
    add_number(out, "local_val_loss", score->val_loss);
    add_number(out, "local_val_accuracy", score->val_accuracy);
    add_number(out, "update_norm", score->norm);
    if (*server->terms->dp)
        add_number(out, "clip", score->clip);
    if (score->cut_off > 0)
        add_number(out, "cut_off", score->cut_off);
}

static void print_metrics(const struct fed_server *server, const struct round_score *score,
                          const struct fed_score *own, const char *lost, struct strbuf *out)
{
    strbuf_printf(out, "{\"round\": %" PRId64 ", \"done\": %" PRId64, server->round,
                  server->done);
    if (score)
        print_score(server, score, own, out);
    else if (!lost)
        strbuf_add(out, ", \"statistics\": true");
    if (lost) {
        strbuf_add(out, ", \"lost\": ");
        strbuf_add_json(out, lost);
    }
    if (server->ledger)
        add_number(out, "epsilon", ledger_epsilon(server->ledger, NULL));
    add_number(out, "bytes_in", server->round_in);
    add_number(out, "bytes_out", server->round_out);
    add_number(out, "seconds", server->config.now(server->config.arg) - server->round_since);
    strbuf_add(out, "}");
}

/* Nothing is left of the round that is over. moved: it was one of training, and not lost. */
static void end_round(struct fed_server *server, bool moved)
{
    for (int i = 0; i < server->n_members; i++) {
        struct member *member = &server->members[i];
        if (member->gift && moved)
            member->last_given = member->gift_round;
        mem_free(member->gift);
        member->gift = NULL;
        member->gift_length = 0;
        member->place = -1;
    }
    secagg_server_destroy(server->secagg);
    server->secagg = NULL;
    server->n_cohort = 0;
    server->is_running = false;
    server->round++;
    server->done += moved;
}

enum status server_commit(struct fed_server *server, const struct round_score *score,
                          const char *lost)
{
    const struct fed_server_config *config = &server->config;
    struct fed_score own = { NAN, NAN };
    struct fed_buffer state;
    struct strbuf metrics;

    end_round(server, score != NULL);
    if (config->evaluate && score)
        TRY(config->evaluate(config->arg, server->done, server->parameters, &own));
    fed_buffer_init(&state, state_bytes(server));
    strbuf_init(&metrics, 1 << 16);
    write_state(server, &state);
    print_metrics(server, score, &own, lost, &metrics);
    enum status status = fed_buffer_status(&state);
    if (status == STATUS_OK)
        status = strbuf_status(&metrics);
    if (status == STATUS_OK) {
        const struct fed_commit commit = { .round = server->round,
                                           .state = state.data,
                                           .state_length = state.length,
                                           .metrics = metrics.text,
                                           .ledger = server->ledger_text.text };
        status = config->store.commit(config->store.arg, &commit);
    }
    fed_buffer_release(&state);
    strbuf_release(&metrics);
    return status;
}
