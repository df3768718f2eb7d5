/* SPDX-License-Identifier: MIT */
/* server.c - the coordinator's engine: who is there, who is asked for what, who has given it. */
#include "fed/server.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "fed/about.h"
#include "fed/server_state.h"

enum { TERMS_MOST = FED_GRAPH_TEXT * 2, MEMBERS_MOST = 1 << 20 };
static const double WAIT_S = 0.25; /* until a participant asks again */

enum status server_audit(struct fed_server *server, const char *client, const char *format, ...)
{
    char text[FED_WHY];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return server->is_replaying ? STATUS_OK
                                : server->config.store.audit(server->config.store.arg,
                                                             server->round, client, text);
}

enum status server_append(struct fed_server *server, int kind, const char *client,
                          const struct fed_buffer *bytes, const char *format, ...)
{
    char text[FED_WHY];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    const struct fed_record record = { .round = kind == RECORD_HELLO ? -1 : server->round,
                                       .kind = kind,
                                       .client = client,
                                       .bytes = bytes->data,
                                       .length = bytes->length,
                                       .what = text };

    return server->is_replaying
               ? STATUS_OK
               : server->config.store.append(server->config.store.arg, &record);
}

/* Members --------------------------------------------------------------------------------------- */

/* Where a name is among the members, or would be. */
static int find_place(const struct fed_server *server, const char *name)
{
    int begin = 0, end = server->n_members;

    while (begin < end) {
        const int middle = (begin + end) / 2;
        if (strcmp(server->members[middle].name, name) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

struct member *server_member(const struct fed_server *server, const char *name)
{
    const int place = find_place(server, name);

    return place < server->n_members && strcmp(server->members[place].name, name) == 0
               ? &server->members[place]
               : NULL;
}

/* Makes room for a new member; the cohort's numbers follow. */
static enum status add_member(struct fed_server *server, const char *name, uint64_t samples)
{
    const int place = find_place(server, name);

    if (server->n_members == MEMBERS_MOST)
        return FAIL(STATUS_NO_MEMORY, "more than %d participants", MEMBERS_MOST);
    if (server->n_members == server->capacity) {
        const int more = 2 * server->capacity + 16;
        TRY(mem_grow(&server->members, (size_t)server->capacity, (size_t)more,
                     sizeof *server->members));
        server->capacity = more;
    }
    memmove(&server->members[place + 1], &server->members[place],
            (size_t)(server->n_members - place) * sizeof *server->members);
    server->members[place] = (struct member){ .samples = samples,
                                              .seen = -(double)INFINITY,
                                              .last_given = -1,
                                              .place = -1,
                                              .refused = -1 };
    snprintf(server->members[place].name, FED_NAME, "%s", name);
    server->n_members++;
    for (int i = 0; i < server->n_cohort; i++)
        server->cohort[i] += server->cohort[i] >= place;
    return STATUS_OK;
}

static void free_member(struct member *member)
{
    mem_free(member->gift);
    mem_free(member->labels);
}

/* `bytes`: the samples' count, then what the participant tells about them. */
static enum status take_hello(struct fed_server *server, const char *name, const void *bytes,
                              size_t length)
{
    struct fed_reader reader = fed_reader(bytes, length);
    const uint64_t samples = fed_take_u64(&reader);
    char *labels;

    if (reader.failed)
        return FAIL(STATUS_CORRUPT, "the store has a hello of %s that is cut off", name);
    TRY(fed_about_labels((const uint8_t *)bytes + sizeof samples, length - sizeof samples,
                         &labels));
    if (!server_member(server, name)) {
        const enum status status = add_member(server, name, samples);
        if (status != STATUS_OK) {
            mem_free(labels);
            return status;
        }
    }
    struct member *member = server_member(server, name);
    mem_free(member->labels);
    member->labels = labels;
    member->samples = samples;
    return STATUS_OK;
}

/* Replies --------------------------------------------------------------------------------------- */

static enum status reply_with(const struct fed_message *message, struct fed_buffer *reply)
{
    fed_message_write(message, reply);
    return fed_buffer_status(reply);
}

/* Refuses with the text of the failure, or a given one, and says so in the audit. */
static enum status refuse(struct fed_server *server, const char *client, const char *why,
                          struct fed_buffer *reply)
{
    struct fed_message message = { .type = FED_REFUSED };

    snprintf(message.why, sizeof message.why, "%s", why);
    for (char *c = message.why; *c; c++)
        *c = (unsigned char)*c < ' ' || *c == 127 ? '?' : *c;
    TRY(server_audit(server, client, "refused: %.200s", message.why));
    return reply_with(&message, reply);
}

static enum status reply_wait(struct fed_buffer *reply)
{
    return reply_with(&(struct fed_message){ .type = FED_WAIT, .seconds = WAIT_S }, reply);
}

static enum status reply_payload(struct fed_message *message, const struct fed_buffer *payload,
                                 struct fed_buffer *reply)
{
    TRY(fed_buffer_status(payload));
    message->payload = payload->data;
    message->payload_length = payload->length;
    return reply_with(message, reply);
}

static size_t work_bytes(const struct fed_server *server)
{
    return ((size_t)FED_VECTORS * server->length + server->n_statistics) * sizeof(float) +
           (1 << 16);
}

size_t fed_server_message_limit(const struct fed_server *server)
{
    size_t most = work_bytes(server) + TERMS_MOST;

    if (server->terms->secure)
        most += 16 * server->length + ((size_t)1 << 22) +
                8 * SECURE_EXPONENTS * server->n_statistics;
    return most;
}

/* The task of the running stage, or the last parameters. */
static enum status reply_task(struct fed_server *server, const struct member *member,
                              struct fed_message *message, struct fed_buffer *reply)
{
    struct fed_buffer payload;
    enum status status = STATUS_OK;

    fed_buffer_init(&payload, fed_server_message_limit(server));
    if (server->secagg && message->type == FED_TASK) {
        status = server_secure_task(server, member, &payload);
    } else {
        struct fed_work work;
        server_fill_work(server, &work);
        fed_work_write(&work, &payload);
    }
    if (status == STATUS_OK)
        status = reply_payload(message, &payload, reply);
    fed_buffer_release(&payload);
    return status;
}

/* Asking ---------------------------------------------------------------------------------------- */

/* Is this member to give something now? */
static bool is_expected(const struct fed_server *server, const struct member *member)
{
    if (!server->is_running || member->refused == server->round)
        return false;
    if (server_is_buffered(server))
        return member->last_given < server->round && !member->gift;
    if (member->place < 0)
        return false;
    return server->secagg ? server_secure_expects(server, member) : !member->gift;
}

/* Asynchronous: are no more than a number of participants at work? */
static bool has_room(const struct fed_server *server, const struct member *member)
{
    const int64_t most = server->terms->per_round;
    int64_t away = 0;

    if (!server_is_buffered(server) || !most || member->is_away)
        return true;
    for (int i = 0; i < server->n_members; i++)
        away += server->members[i].is_away && server_is_live(server, &server->members[i]);
    return away < most;
}

static enum status answer_ask(struct fed_server *server, struct member *member,
                              struct fed_buffer *reply)
{
    if (!fed_server_is_done(server) && !server->is_running)
        TRY(server_begin(server));
    if (fed_server_is_done(server))
        return reply_task(server, member, &(struct fed_message){ .type = FED_DONE }, reply);
    if (!is_expected(server, member) || !has_room(server, member))
        return reply_wait(reply);
    member->is_away = true;
    return reply_task(server, member,
                      &(struct fed_message){
                          .type = FED_TASK, .round = server->round, .stage = server->stage },
                      reply);
}

/* Giving ---------------------------------------------------------------------------------------- */

static bool is_same(const struct member *member, const struct fed_message *message)
{
    return member->gift && member->gift_round == message->round &&
           member->gift_length == message->payload_length &&
           memcmp(member->gift, message->payload, member->gift_length) == 0;
}

/* Keeps a plain update. */
static enum status keep_gift(struct member *member, uint64_t samples, int64_t round,
                             const void *bytes, size_t length)
{
    uint8_t *copy;

    TRY(mem_alloc(length + 1, 1, &copy));
    memcpy(copy, bytes, length);
    mem_free(member->gift);
    member->gift = copy;
    member->gift_length = length;
    member->gift_samples = samples;
    member->gift_round = round;
    member->is_away = false;
    return STATUS_OK;
}

/* Why a give cannot be taken, or NULL. */
static const char *find_objection(const struct fed_server *server, const struct member *member,
                                  const struct fed_message *message)
{
    if (server_is_buffered(server)) {
        if (message->round > server->round || message->stage != FED_TRAIN ||
            !server->is_running)
            return "that round has not begun, or all are over";
        return message->round <= member->last_given ? "an update of that round was taken before"
                                                    : NULL;
    }
    if (!server->is_running || message->round != server->round)
        return "that round is over, or has not begun";
    if (member->place < 0)
        return "it does not take part in that round";
    return message->stage != server->stage ? "that stage is over, or has not begun" : NULL;
}

/* Records of gives carry the round that they are for before the bytes. */
static enum status append_gift(struct fed_server *server, const struct member *member,
                               const struct fed_message *message)
{
    struct fed_buffer bytes;

    fed_buffer_init(&bytes, message->payload_length + 8);
    fed_put_u64(&bytes, (uint64_t)message->round);
    fed_put(&bytes, message->payload, message->payload_length);
    enum status status = fed_buffer_status(&bytes);
    if (status == STATUS_OK)
        status = server_append(server, message->stage, member->name, &bytes,
                               "gave %s of round %" PRId64 ", %zu bytes",
                               fed_stage_name(message->stage), message->round,
                               message->payload_length);
    fed_buffer_release(&bytes);
    return status;
}

/* Takes a give into the state; also when it is replayed. */
static enum status take_gift(struct fed_server *server, struct member *member,
                             const struct fed_message *message)
{
    if (server->secagg)
        return server_secure_hear(server, member, message->stage, message->payload,
                                  message->payload_length);
    TRY(server_check_gift(server, message->payload, message->payload_length,
                          &member->gift_norm));
    return keep_gift(member, fed_terms_samples(server->terms, member->samples), message->round,
                     message->payload, message->payload_length);
}

/* Is everything there that the open stage waits for? */
static bool is_complete(const struct fed_server *server)
{
    int gifts = 0;

    if (server->secagg)
        return server_secure_is_complete(server);
    for (int i = 0; i < server->n_members; i++)
        gifts += server->members[i].gift != NULL;
    return server_is_buffered(server) ? gifts >= server->terms->buffer
                                      : gifts == server->n_cohort;
}

static enum status close_stage(struct fed_server *server)
{
    return server->secagg ? server_secure_close(server) : server_end_plain(server);
}

/* The stage ends without all that it waits for, which does not follow from the gifts: that is a record. */
static enum status append_close(struct fed_server *server, const char *why)
{
    uint8_t stage = (uint8_t)server->stage;

    return server_append(server, RECORD_CLOSE, "",
                         &(struct fed_buffer){ .data = &stage, .length = 1 },
                         "%s of round %" PRId64 " is over %s", fed_stage_name(server->stage),
                         server->round, why);
}

/* May the open stage wait for this member? Asynchronous rounds have no members whom they wait for but those that are there or
 * at work. */
static bool is_waited_for(const struct fed_server *server, const struct member *member)
{
    if (member->is_gone || !is_expected(server, member))
        return false;
    return !server_is_buffered(server) || member->is_away || server_is_live(server, member);
}

/* Is nobody left who could give more in the open stage? */
static bool is_exhausted(const struct fed_server *server)
{
    if (server_is_buffered(server) &&
        (!server_has_enough(server) || server_may_come_back(server)))
        return false;
    for (int i = 0; i < server->n_members; i++) {
        if (is_waited_for(server, &server->members[i]))
            return false;
    }
    return true;
}

static enum status advance(struct fed_server *server)
{
    while (server->is_running) {
        if (!is_complete(server)) {
            if (server->is_replaying || !is_exhausted(server))
                break;
            TRY(append_close(server, "as nobody is left to give more"));
        }
        TRY(close_stage(server));
    }
    return STATUS_OK;
}

/* Was it refused for what it is, and not because the server failed? */
static bool is_theirs(enum status status)
{
    return status == STATUS_CORRUPT || status == STATUS_MISMATCH || status == STATUS_USAGE;
}

/* The round does not wait for another one: whoever lies once may lie again. */
static enum status refuse_gift(struct fed_server *server, struct member *member,
                               const char *why, struct fed_buffer *reply)
{
    if (!server->secagg)
        member->refused = server->round;
    TRY(refuse(server, member->name, why, reply));
    return server->secagg ? STATUS_OK : advance(server);
}

static enum status answer_give(struct fed_server *server, struct member *member,
                               const struct fed_message *message, struct fed_buffer *reply)
{
    const struct fed_message ok = { .type = FED_OK };

    const bool counted = member->last_given == message->round && message->stage == FED_TRAIN;
    if (counted || (!server->secagg && is_same(member, message)))
        return reply_with(&ok, reply);
    if (server_is_buffered(server) && !server->is_running && !fed_server_is_done(server))
        server_begin_buffered(server); /* late ones count for the round that is next */
    const char *objection = find_objection(server, member, message);
    if (objection)
        return refuse(server, member->name, objection, reply);
    const bool again = server->secagg && server_secure_has(server, member, message->stage);
    enum status status = STATUS_OK;
    if (server
            ->secagg) { /* it hears what is right alone, and what is heard again changes nothing */
        status = take_gift(server, member, message);
    } else if (member->gift) {
        return refuse(server, member->name, "another update was taken before", reply);
    } else {
        double norm;
        status = server_check_gift(server, message->payload, message->payload_length, &norm);
    }
    if (is_theirs(status))
        return refuse_gift(server, member, status_message(), reply);
    TRY(status);
    if (again)
        return reply_with(&ok, reply);
    TRY(append_gift(server, member, message));
    if (!server->secagg)
        TRY(take_gift(server, member, message));
    TRY(reply_with(&ok, reply));
    return advance(server);
}

static bool is_same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

/* A participant that is new, or has other data than it had. */
static enum status append_hello(struct fed_server *server, const struct fed_message *message)
{
    struct fed_buffer bytes;

    fed_buffer_init(&bytes, message->payload_length + 8);
    fed_put_u64(&bytes, message->samples);
    fed_put(&bytes, message->payload, message->payload_length);
    enum status status = fed_buffer_status(&bytes);
    if (status == STATUS_OK)
        status = server_append(server, RECORD_HELLO, message->client, &bytes,
                               "joined with %" PRIu64 " samples", message->samples);
    if (status == STATUS_OK)
        status = take_hello(server, message->client, bytes.data, bytes.length);
    fed_buffer_release(&bytes);
    return status;
}

static enum status answer_hello(struct fed_server *server, const struct fed_message *message,
                                struct fed_buffer *reply)
{
    const struct member *member = server_member(server, message->client);
    char *labels;

    if (message->samples == 0)
        return refuse(server, message->client, "a participant has samples", reply);
    if (message->payload_length > FED_ABOUT)
        return refuse(server, message->client, "it tells too much about its data", reply);
    const enum status status =
        fed_about_labels(message->payload, message->payload_length, &labels);
    if (is_theirs(status))
        return refuse(server, message->client, status_message(), reply);
    TRY(status);
    const bool is_news =
        !member || member->samples != message->samples || !is_same_text(member->labels, labels);
    mem_free(labels);
    if (is_news)
        TRY(append_hello(server, message));
    struct member *there = server_member(server, message->client);
    there->seen = server->config.now(server->config.arg);
    there->is_gone = false;
    const struct fed_message terms = { .type = FED_TERMS,
                                       .payload = (const uint8_t *)server->text,
                                       .payload_length = strlen(server->text) };
    return reply_with(&terms, reply);
}

static enum status answer(struct fed_server *server, const char *client,
                          const struct fed_message *message, struct fed_buffer *reply)
{
    struct member *member = server_member(server, client);

    if (strcmp(message->client, client) != 0)
        return refuse(server, client, "the message names another participant", reply);
    if (message->type == FED_HELLO)
        return answer_hello(server, message, reply);
    if (!member)
        return refuse(server, client, "it has not said hello", reply);
    member->seen = server->config.now(server->config.arg);
    member->is_gone = false;
    return message->type == FED_ASK ? answer_ask(server, member, reply)
                                    : answer_give(server, member, message, reply);
}

/* What failed may have changed the state and not the store: nothing goes on from there. */
static enum status fail_again(const struct fed_server *server)
{
    return server->failure == STATUS_OK ? STATUS_OK
                                        : FAIL(server->failure, "%s", server->failure_why);
}

static enum status keep_failure(struct fed_server *server, enum status status)
{
    if (status == STATUS_OK)
        return STATUS_OK;
    server->failure = status;
    snprintf(server->failure_why, sizeof server->failure_why, "%s", status_message());
    return status;
}

enum status fed_server_answer(struct fed_server *server, const char *client,
                              const void *message, size_t length, struct fed_buffer *reply)
{
    const size_t before = reply->length;
    struct fed_message read;
    enum status status;

    TRY(fail_again(server));
    server->bytes_in += (double)length; /* before: the message may end its round */
    server->round_in += (double)length;
    if (fed_message_read(message, length, &read) != STATUS_OK)
        status = refuse(server, client, status_message(), reply);
    else if (read.type != FED_HELLO && read.type != FED_ASK && read.type != FED_GIVE)
        status = refuse(server, client, "participants do not say that", reply);
    else
        status = answer(server, client, &read, reply);
    server->bytes_out += (double)(reply->length - before);
    server->round_out += (double)(reply->length - before);
    return keep_failure(server, status);
}

static enum status end_by_time(struct fed_server *server)
{
    const double now = server->config.now(server->config.arg);
    const double deadline = server->terms->deadline_s;

    if (server->is_running && deadline > 0 && now - server->stage_since >= deadline &&
        (!server_is_buffered(server) || server_has_enough(server))) {
        TRY(append_close(server, "by its deadline"));
        TRY(close_stage(server));
    }
    return advance(server);
}

static enum status dismiss(struct fed_server *server, struct member *member)
{
    TRY(server_audit(server, member->name, "is not waited for any more"));
    member->is_gone = true;
    member->is_away = false;
    member->seen = -(double)INFINITY;
    return advance(server);
}

bool fed_server_is_dismissed(const struct fed_server *server, const char *client)
{
    const struct member *member = server_member(server, client);

    return member && member->is_gone;
}

enum status fed_server_dismiss(struct fed_server *server, const char *client)
{
    struct member *member = server_member(server, client);

    TRY(fail_again(server));
    return member && !member->is_gone ? keep_failure(server, dismiss(server, member))
                                      : STATUS_OK;
}

enum status fed_server_tick(struct fed_server *server)
{
    TRY(fail_again(server));
    return keep_failure(server, end_by_time(server));
}

bool fed_server_is_done(const struct fed_server *server)
{
    return server->done >= server->terms->rounds || *server->why;
}

const char *fed_server_why(const struct fed_server *server)
{
    return server->why;
}

const char *fed_server_waits(const struct fed_server *server)
{
    return server->waits;
}

int64_t fed_server_round(const struct fed_server *server)
{
    return server->round;
}

int64_t fed_server_done(const struct fed_server *server)
{
    return server->done;
}

int64_t fed_server_lost(const struct fed_server *server, const char **why)
{
    *why = server->lost;
    return server->n_lost;
}

const char *fed_server_member(const struct fed_server *server, int number)
{
    return number < server->n_members ? server->members[number].name : NULL;
}

const float *fed_server_statistics(const struct fed_server *server)
{
    return server->statistics;
}

const float *fed_server_parameters(const struct fed_server *server)
{
    return server->parameters;
}

void fed_server_print(const struct fed_server *server, struct strbuf *out)
{
    const double now = server->config.now(server->config.arg);

    strbuf_printf(out, "{\"round\": %" PRId64 ", \"done\": %" PRId64 ", \"rounds\": %" PRId64,
                  server->round, server->done, server->terms->rounds);
    strbuf_printf(out, ", \"stage\": \"%s\", \"why\": ",
                  server->is_running ? fed_stage_name(server->stage) : "idle");
    strbuf_add_json(out, server->why);
    strbuf_printf(out, ", \"bytes_in\": %.0f, \"bytes_out\": %.0f", server->bytes_in,
                  server->bytes_out);
    if (server->ledger) {
        strbuf_add(out, ", \"epsilon\": ");
        strbuf_add_number(out, ledger_epsilon(server->ledger, NULL));
        strbuf_add(out, ", \"budget\": ");
        strbuf_add_number(out, server->terms->epsilon);
        strbuf_add(out, ", \"delta\": ");
        strbuf_add_number(out, server->terms->delta);
    }
    strbuf_add(out, ", \"participants\": [");
    for (int i = 0; i < server->n_members; i++) {
        const struct member *member = &server->members[i];
        const char *state = member->is_gone                            ? "gone"
                            : is_expected(server, member)              ? "working"
                            : server->is_running && member->place >= 0 ? "gave"
                                                                       : "waiting";
        strbuf_printf(out, "%s{\"name\": ", i ? ", " : "");
        strbuf_add_json(out, member->name);
        strbuf_printf(out, ", \"samples\": %" PRIu64 ", \"state\": \"%s\", \"seen_s\": ",
                      member->samples, state);
        strbuf_add_number(out, now - member->seen); /* null: not since the start */
        strbuf_printf(out, ", \"last_round\": %" PRId64, member->last_given);
        if (member->labels)
            strbuf_printf(out, ", \"labels\": %s", member->labels);
        strbuf_add(out, "}");
    }
    strbuf_add(out, "]}");
}

/* Beginning ------------------------------------------------------------------------------------- */

/* What followed from the records so far. It is done when the next one comes, or there is none: only the last can end the
 * round, which is committed when the store is not being read any more. */
static enum status catch_up(struct fed_server *server)
{
    const bool closes = server->closes;

    server->closes = false;
    if (closes)
        TRY(close_stage(server));
    return advance(server);
}

static enum status visit_record(void *arg, const struct fed_record *record)
{
    struct fed_server *server = arg;
    struct fed_reader reader = fed_reader(record->bytes, record->length);

    if (record->kind == RECORD_HELLO)
        return take_hello(server, record->client, record->bytes, record->length);
    if (record->kind == RECORD_COHORT)
        return server_take_cohort(server, record->bytes, record->length);
    TRY(catch_up(server));
    if (record->kind == RECORD_CLOSE) {
        server->closes = true;
        return STATUS_OK;
    }
    struct member *member = server_member(server, record->client);
    if (!member || record->kind < 0 || record->kind >= FED_STAGES || record->length < 8)
        return FAIL(STATUS_CORRUPT, "the store has a record of kind %d that fits nothing",
                    record->kind);
    const struct fed_message message = { .type = FED_GIVE,
                                         .round = (int64_t)fed_take_u64(&reader),
                                         .stage = (enum fed_stage)record->kind,
                                         .payload = reader.data + reader.at,
                                         .payload_length = reader.length - reader.at };
    if (server_is_buffered(server) && !server->is_running)
        server_begin_buffered(server);
    return take_gift(server, member, &message);
}

/* Makes the state again from the store. A round that its records complete is committed now. */
static enum status replay(struct fed_server *server)
{
    struct fed_commit commit;
    const struct fed_store *store = &server->config.store;

    enum status status = store->last(store->arg, &commit);
    if (status == STATUS_OK)
        status = server_load(server, &commit);
    else if (status == STATUS_NOT_FOUND)
        status = STATUS_OK;
    TRY(status);
    server->is_replaying = true;
    status = store->replay(store->arg, server->round, visit_record, server);
    server->is_replaying = false;
    TRY(status);
    return catch_up(server);
}

static enum status make_vectors(struct fed_server *server)
{
    const struct fed_server_config *config = &server->config;
    struct codec_config codec;

    TRY(mem_alloc(config->length, sizeof(float), &server->parameters));
    memcpy(server->parameters, config->initial, config->length * sizeof(float));
    for (int i = 0; i < server->algorithm->n_states; i++)
        TRY(mem_alloc(server->length, sizeof(float), &server->state[i]));
    fed_algorithm_begin(server->terms, server->length, server->state);
    if (server->algorithm->n_vectors > 1)
        TRY(mem_alloc(server->length, sizeof(float), &server->control));
    TRY(mem_alloc((size_t)config->n_averages + 1, sizeof *server->averages, &server->averages));
    for (int i = 0; i < config->n_averages; i++)
        server->averages[i] = config->averages[i];
    server->n_averages = config->n_averages;
    if (*server->terms->compress) {
        TRY(codec_parse(server->terms->compress, &codec));
        TRY(codec_create(&codec, &(struct codec_layout){ 0 }, server->length, &server->codec));
    }
    return STATUS_OK;
}

static enum status print_terms(struct fed_server *server)
{
    struct strbuf text;
    struct sha256 hash;

    strbuf_init(&text, TERMS_MOST);
    fed_terms_print(server->terms, &text);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = mem_strdup(text.text, &server->text);
    sha256_init(&hash);
    sha256_add(&hash, text.text, text.length);
    sha256_end(&hash, server->terms_hash);
    strbuf_release(&text);
    return status;
}

/* A round of as many as terms ask for, or of the fewest, must be possible. */
static enum status check_secure(const struct fed_server *server)
{
    const struct fed_terms *terms = server->terms;
    struct secure_shape shape;

    return terms->secure
               ? server_secure_shape(
                     server, (uint32_t)(terms->per_round ? terms->per_round : terms->minimum),
                     &shape)
               : STATUS_OK;
}

static enum status fill(struct fed_server *server)
{
    const struct fed_server_config *config = &server->config;

    TRY(fed_terms_check(server->terms));
    if (server->terms->personal_head && (config->head == 0 || config->head >= config->length))
        return FAIL(STATUS_USAGE, "--personal-head: the model has no last layer to keep apart");
    if (server->terms->secure && !config->trust)
        return FAIL(STATUS_USAGE, "--secure: there are no identities to sign keys with");
    if (server->terms->standardize && config->statistics == 0)
        return FAIL(STATUS_USAGE, "--standardize: the data are no table");
    server->n_statistics = server->terms->standardize ? config->statistics : 0;
    server->length = config->length - (server->terms->personal_head ? config->head : 0);
    server->algorithm = fed_algorithm_find(server->terms->algorithm);
    TRY(fed_aggregation_parse(server->terms->aggregate, &server->aggregation));
    TRY(make_vectors(server));
    TRY(print_terms(server));
    TRY(server_start_privacy(server));
    TRY(cohorts_create(&server->cohorts));
    TRY(check_secure(server));
    server->stage_since = server->round_since = server->created = config->now(config->arg);
    return replay(server);
}

enum status fed_server_create(const struct fed_server_config *config, struct fed_server **out)
{
    struct fed_server *server;

    TRY(mem_alloc(1, sizeof *server, &server));
    server->config = *config;
    server->terms = config->terms;
    strbuf_init(&server->ledger_text, 1 << 24);
    const enum status status = fill(server);
    if (status != STATUS_OK) {
        fed_server_destroy(server);
        return status;
    }
    *out = server;
    return STATUS_OK;
}

void fed_server_destroy(struct fed_server *server)
{
    if (!server)
        return;
    for (int i = 0; i < server->n_members; i++)
        free_member(&server->members[i]);
    for (int i = 0; i < FED_STATES; i++)
        mem_free(server->state[i]);
    secagg_server_destroy(server->secagg);
    cohorts_destroy(server->cohorts);
    ledger_destroy(server->ledger);
    strbuf_release(&server->ledger_text);
    codec_destroy(server->codec);
    mem_free(server->text);
    mem_free(server->parameters);
    mem_free(server->control);
    mem_free(server->averages);
    mem_free(server->statistics);
    mem_free(server->ranges);
    mem_free(server->members);
    mem_free(server->cohort);
    mem_free(server);
}
