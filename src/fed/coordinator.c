/* SPDX-License-Identifier: MIT */
/* coordinator.c - a server engine behind HTTPS.
 *
 * One lock guards engine and store: requests come from several threads. A message whose reply was lost on the way is
 * posted again and answered again by the engine; nothing is remembered here but who has been told of the end.
 */
#include "fed/coordinator.h"

#include <pthread.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "fed/https_server.h"
#include "fed/status_page.h"
#include "fed/stop.h"
#include "fed/trust.h"

enum {
    TICK_MS = 100,
    BYTES_A_SECOND = 32 << 10, /* of large bodies, at least */
    STATUS_BYTES = 1 << 24,
    AUDIT_LINES = 50,     /* of the status page */
    MEMBERS_SECONDS = 30, /* certificates of members are judged so often */
    SEEN_SECONDS = 60     /* who was here so lately is told of the end */
};

/* A participant as this process has seen it. */
struct seen {
    char name[FED_NAME];
    char serial[FED_SERIAL_TEXT]; /* of its certificate */
    double last;
    bool knows_end;
};

struct coordinator {
    const struct fed_coordinator_config *config;
    struct fed_trust *trust;   /* of who connects */
    struct fed_trust *signers; /* of who signed in a round that is heard again */
    struct secagg_trust secagg;
    pthread_mutex_t lock;
    /* Guarded by lock: */
    struct fed_server *server;
    struct seen *seen;
    size_t n_seen;
    int revocations;        /* changes of the list that members were held against */
    double members_checked; /* clock_seconds */
};

/* What was told of rounds. */
struct told {
    int64_t done, lost;
};

static void tell(const struct coordinator *c, const char *format, ...) PRINTF_LIKE(2, 3);
static void tell(const struct coordinator *c, const char *format, ...)
{
    char line[512];
    va_list list;

    if (!c->config->tell)
        return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    c->config->tell(c->config->arg, line);
}

void fed_draw_id(char out[FED_TEXT])
{
    uint8_t id[16];

    randombytes_buf(id, sizeof id);
    sodium_bin2hex(out, FED_TEXT, id, sizeof id);
}

/* What the engine asks of its surroundings ------------------------------------------------------ */

static double now(void *arg)
{
    (void)arg;
    return clock_seconds();
}

static enum status draw(void *arg, void *out, size_t bytes)
{
    (void)arg;
    randombytes_buf(out, bytes);
    return STATUS_OK;
}

/* Whose signature it is. What was accepted before a restart, which is heard again while the engine is made, is accepted
 * whatever its date. */
static enum status identify(void *context, const void *proof, size_t bytes,
                            uint8_t public_key[SECAGG_PUBLIC])
{
    const struct coordinator *c = context;
    struct fed_identity who;

    TRY(c->server ? fed_trust_check(c->trust, proof, bytes, time(NULL), &who)
                  : fed_trust_check(c->signers, proof, bytes, FED_ANY_TIME, &who));
    if (who.role != FED_ROLE_PARTICIPANT || !who.has_sign)
        return FAIL(STATUS_MISMATCH, "certificate of %s: is not one of a participant",
                    who.name);
    memcpy(public_key, who.sign, SECAGG_PUBLIC);
    return STATUS_OK;
}

/* Requests -------------------------------------------------------------------------------------------- */

static enum status find_seen(struct coordinator *c, const char *name, struct seen **out)
{
    for (size_t i = 0; i < c->n_seen; i++) {
        if (strcmp(c->seen[i].name, name) == 0) {
            *out = &c->seen[i];
            return STATUS_OK;
        }
    }
    TRY(mem_grow(&c->seen, c->n_seen, c->n_seen + 1, sizeof *c->seen));
    *out = &c->seen[c->n_seen++];
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return STATUS_OK;
}

static bool is_done_message(const struct fed_buffer *reply)
{
    struct fed_message message;

    return fed_message_read(reply->data, reply->length, &message) == STATUS_OK &&
           message.type == FED_DONE;
}

static enum status answer_message(struct coordinator *c, const struct https_request *request,
                                  struct https_reply *reply)
{
    const char *name = request->who->name;
    struct seen *seen;

    if (request->who->role != FED_ROLE_PARTICIPANT) {
        reply->code = 403;
        fed_put(&reply->body, "participants alone send messages\n", 33);
        return c->config->server.store.audit(c->config->server.store.arg,
                                             fed_server_round(c->server), name,
                                             "refused: a message of who is no participant");
    }
    TRY(find_seen(c, name, &seen));
    if (strcmp(seen->serial, request->who->serial) != 0)
        TRY(fed_sqlite_set_certificate(c->config->store, name, request->certificate,
                                       request->certificate_length));
    snprintf(seen->serial, sizeof seen->serial, "%s", request->who->serial);
    seen->last = clock_seconds();
    TRY(fed_server_answer(c->server, name, request->body, request->length, &reply->body));
    seen->knows_end |= is_done_message(&reply->body);
    return STATUS_OK;
}

static enum status add_text(struct https_reply *reply, struct strbuf *text, const char *type)
{
    const enum status status = strbuf_status(text);

    if (status == STATUS_OK) {
        fed_put(&reply->body, text->text, text->length);
        reply->type = type;
    }
    strbuf_release(text);
    return status;
}

static enum status answer_terms(struct coordinator *c, const struct https_request *request,
                                struct https_reply *reply)
{
    struct strbuf text;

    (void)request;
    strbuf_init(&text, 2 * (size_t)FED_GRAPH_TEXT);
    fed_terms_print(c->config->server.terms, &text);
    return add_text(reply, &text, "application/json");
}

static enum status add_metrics(void *arg, const char *metrics)
{
    struct strbuf *text = arg;

    if (text->text[text->length - 1] != '[')
        strbuf_add(text, ", ");
    strbuf_add(text, metrics);
    return STATUS_OK;
}

static void add_audit(void *arg, int64_t when, int64_t round, const char *client,
                      const char *what)
{
    struct strbuf *text = arg;

    if (text->text[text->length - 1] != '[')
        strbuf_add(text, ", ");
    strbuf_printf(text, "{\"time\": %lld, \"round\": %lld, \"client\": ", (long long)when,
                  (long long)round);
    strbuf_add_json(text, client);
    strbuf_add(text, ", \"what\": ");
    strbuf_add_json(text, what);
    strbuf_add(text, "}");
}

static enum status print_status(struct coordinator *c, struct strbuf *text)
{
    const struct fed_store *store = &c->config->server.store;
    const struct fed_terms *terms = c->config->server.terms;

    strbuf_printf(text, "{\"time\": %lld, \"federation\": ", (long long)time(NULL));
    strbuf_add_json(text, terms->federation);
    strbuf_add(text, ", \"model\": ");
    strbuf_add_json(text, terms->model);
    strbuf_add(text, ", \"algorithm\": ");
    strbuf_add_json(text, terms->algorithm);
    strbuf_add(text, ", \"now\": ");
    fed_server_print(c->server, text);
    strbuf_add(text, ", \"history\": [");
    TRY(store->history(store->arg, add_metrics, text));
    strbuf_add(text, "], \"audit\": [");
    TRY(fed_sqlite_audit(c->config->store, AUDIT_LINES, add_audit, text));
    strbuf_add(text, "]}");
    return strbuf_status(text);
}

static enum status answer_status(struct coordinator *c, const struct https_request *request,
                                 struct https_reply *reply)
{
    struct strbuf text;

    (void)request;
    strbuf_init(&text, STATUS_BYTES);
    const enum status status = print_status(c, &text);
    if (status == STATUS_OK)
        return add_text(reply, &text, "application/json");
    strbuf_release(&text);
    return status;
}

static enum status answer_page(struct coordinator *c, const struct https_request *request,
                               struct https_reply *reply)
{
    struct strbuf text, page;
    struct json *json = NULL;

    (void)request;
    strbuf_init(&text, STATUS_BYTES);
    strbuf_init(&page, STATUS_BYTES);
    enum status status = print_status(c, &text);
    if (status == STATUS_OK)
        status = json_parse(text.text, text.length, &json);
    if (status == STATUS_OK)
        status = status_page_print(json_root(json), &page);
    json_destroy(json);
    strbuf_release(&text);
    if (status != STATUS_OK) {
        strbuf_release(&page);
        return status;
    }
    reply->refresh_s = STATUS_PAGE_SECONDS;
    return add_text(reply, &page, "text/html; charset=utf-8");
}

static const struct route {
    const char *method, *path;
    enum status (*answer)(struct coordinator *c, const struct https_request *request,
                          struct https_reply *reply);
} routes[] = {
    { "POST", "/message", answer_message },
    { "GET", "/terms", answer_terms },
    { "GET", "/status.json", answer_status },
    { "GET", "/", answer_page },
};

static enum status answer(void *arg, const struct https_request *request,
                          struct https_reply *reply)
{
    struct coordinator *c = arg;

    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].method, request->method) != 0 ||
            strcmp(routes[i].path, request->path) != 0)
            continue;
        pthread_mutex_lock(&c->lock);
        const enum status status = routes[i].answer(c, request, reply);
        pthread_mutex_unlock(&c->lock);
        return status;
    }
    reply->code = 404;
    fed_put(&reply->body, "nothing is here\n", 16);
    return STATUS_OK;
}

static void note_refusal(void *arg, const char *address, const char *name, const char *why)
{
    struct coordinator *c = arg;
    const struct fed_store *store = &c->config->server.store;
    char line[400];

    snprintf(line, sizeof line, "refused %s: %s", address, why);
    tell(c, "%s%s%s", name, *name ? ": " : "", line);
    pthread_mutex_lock(&c->lock);
    if (store->audit(store->arg, c->server ? fed_server_round(c->server) : -1, name, line) !=
        STATUS_OK)
        tell(c, "%s", status_message());
    pthread_mutex_unlock(&c->lock);
}

/* The loop ------------------------------------------------------------------------------------------- */

/* Does this participant of the federation still have to be told of the end? One that this process has not seen does: it
 * may have been told before a restart, or not. One that left long ago does not. */
static bool is_untold(const struct coordinator *c, const char *name)
{
    for (size_t i = 0; i < c->n_seen; i++) {
        if (strcmp(c->seen[i].name, name) == 0)
            return !c->seen[i].knows_end && c->seen[i].last > clock_seconds() - SEEN_SECONDS;
    }
    return true;
}

static bool everybody_knows(const struct coordinator *c)
{
    struct strbuf text;
    struct json *json = NULL;
    bool all = false;

    strbuf_init(&text, STATUS_BYTES);
    fed_server_print(c->server, &text);
    if (strbuf_status(&text) == STATUS_OK &&
        json_parse(text.text, text.length, &json) == STATUS_OK) {
        all = true;
        const struct json_value *list = json_get(json_root(json), "participants");
        for (size_t i = 0; list && i < list->count; i++)
            all &= strcmp(json_text(&list->items[i], "state", ""), "gone") == 0 ||
                   !is_untold(c, json_text(&list->items[i], "name", ""));
    }
    json_destroy(json);
    strbuf_release(&text);
    return all;
}

/* Is the certificate that a member showed last still good? One that cannot be read or judged is not. */
static enum status check_member(struct coordinator *c, const char *name)
{
    struct fed_identity who;
    uint8_t *der;
    size_t length;

    TRY(fed_sqlite_certificate(c->config->store, name, &der, &length));
    const enum status status = fed_trust_check(c->trust, der, length, time(NULL), &who);
    mem_free(der);
    return status;
}

/* A member that was revoked, or whose certificate has expired, is refused at the door and cannot say that it leaves. All members are
 * checked whenever the list is another one, and every MEMBERS_SECONDS. */
static enum status dismiss_strangers(struct coordinator *c)
{
    const double now_s = clock_seconds();
    const char *name;
    int changes;

    if (fed_trust_changes(c->trust, &changes) != STATUS_OK)
        return STATUS_OK; /* whoever comes is told; it says nothing of members */
    if (changes == c->revocations && now_s - c->members_checked < MEMBERS_SECONDS)
        return STATUS_OK;
    c->revocations = changes;
    c->members_checked = now_s;
    for (int i = 0; (name = fed_server_member(c->server, i)) != NULL; i++) {
        if (check_member(c, name) == STATUS_OK)
            continue;
        if (!fed_server_is_dismissed(c->server, name))
            tell(c, "rounds go on without %s: %s", name, status_message());
        TRY(fed_server_dismiss(c->server, name));
    }
    return STATUS_OK;
}

/* Ends what is over by time, or as somebody was revoked. */
static enum status tick(struct coordinator *c, struct told *told, bool *done, bool *all_know)
{
    const int64_t rounds = c->config->server.terms->rounds;
    const struct told before = *told;
    char why[FED_WHY];
    const char *text;

    pthread_mutex_lock(&c->lock);
    enum status status = dismiss_strangers(c);
    if (status == STATUS_OK)
        status = fed_server_tick(c->server);
    *told = (struct told){ fed_server_done(c->server), fed_server_lost(c->server, &text) };
    snprintf(why, sizeof why, "%s", text);
    *done = fed_server_is_done(c->server);
    *all_know = *done && everybody_knows(c);
    pthread_mutex_unlock(&c->lock);
    if (status == STATUS_OK && told->done > before.done)
        tell(c, "round %lld of %lld is done", (long long)told->done, (long long)rounds);
    if (status == STATUS_OK && told->lost > before.lost)
        tell(c, "round %lld of %lld is lost: %s", (long long)told->done + 1, (long long)rounds,
             why);
    return status;
}

static enum status serve(struct coordinator *c)
{
    const char *why;
    struct told told = { fed_server_done(c->server), fed_server_lost(c->server, &why) };
    double end = 0;
    bool done = false, all_know = false;

    for (;;) {
        TRY(tick(c, &told, &done, &all_know));
        if (done && end == 0) {
            tell(c, "done%s%s", *fed_server_why(c->server) ? ": " : "",
                 fed_server_why(c->server));
            end = clock_seconds() + c->config->linger_s;
        }
        if (done && (all_know || clock_seconds() > end))
            return STATUS_OK;
        if (!fed_stop_sleep(TICK_MS * 1e-3))
            return FAIL(fed_stop_status(), "stopped in round %lld; the same command goes on",
                        (long long)told.done);
    }
}

static enum status listen_with(struct coordinator *c,
                               enum status (*how)(void *arg,
                                                  const struct https_request *request,
                                                  struct https_reply *reply),
                               struct https_server **out)
{
    const struct https_server_config https = { .host = c->config->host,
                                               .port = c->config->port,
                                               .folder = c->config->keys,
                                               .trust = c->trust,
                                               .body_most = fed_server_message_limit(c->server),
                                               .connections = c->config->connections,
                                               .request_s = c->config->request_s,
                                               .bytes_per_s = BYTES_A_SECOND,
                                               .arg = c,
                                               .answer = how,
                                               .refused = note_refusal };

    return https_server_start(&https, out);
}

static enum status listen_and_serve(struct coordinator *c)
{
    struct https_server *server;

    TRY(listen_with(c, answer, &server));
    tell(c, "listening on https://%s:%d, round %lld of %lld",
         c->config->host ? c->config->host : "*", https_server_port(server),
         (long long)fed_server_done(c->server), (long long)c->config->server.terms->rounds);
    const enum status status = serve(c);
    https_server_stop(server);
    return status;
}

/* Who asks before all is ready is told to come again. */
static enum status answer_early(void *arg, const struct https_request *request,
                                struct https_reply *reply)
{
    (void)arg, (void)request, (void)reply;
    return FAIL(STATUS_PEER_LOST, "the federation has not begun");
}

static enum status listen_once(struct coordinator *c)
{
    struct https_server *server;

    TRY(listen_with(c, answer_early, &server));
    https_server_stop(server);
    return STATUS_OK;
}

static enum status open_trusts(struct coordinator *c)
{
    char *authority = NULL, *revoked = NULL;
    enum status status = file_join(c->config->keys, "authority.pem", &authority);

    if (status == STATUS_OK)
        status = file_join(c->config->keys, "revoked.pem", &revoked);
    if (status == STATUS_OK)
        status = fed_trust_create(authority, revoked, &c->trust);
    if (status == STATUS_OK)
        status = fed_trust_create(authority, NULL, &c->signers);
    mem_free(authority);
    mem_free(revoked);
    c->secagg = (struct secagg_trust){ .identify = identify, .context = c };
    return status;
}

/* Keys and engine. `filled` becomes the configuration, and stays the caller's. */
static enum status begin(struct coordinator *c, struct fed_coordinator_config *filled,
                         struct fed_store store)
{
    *c = (struct coordinator){ .config = filled };
    pthread_mutex_init(&c->lock, NULL);
    filled->server.store = store;
    filled->server.now = now;
    filled->server.entropy = draw;
    filled->server.trust = &c->secagg;
    TRY(open_trusts(c));
    return fed_server_create(&filled->server, &c->server);
}

static void end(struct coordinator *c)
{
    fed_server_destroy(c->server);
    fed_trust_destroy(c->trust);
    fed_trust_destroy(c->signers);
    pthread_mutex_destroy(&c->lock);
    mem_free(c->seen);
}

enum status fed_coordinator_check(const struct fed_coordinator_config *config)
{
    struct fed_coordinator_config filled = *config;
    struct fed_memory_store *store;
    struct coordinator c;

    TRY(fed_memory_store_create(&store));
    enum status status = begin(&c, &filled, fed_memory_store(store));
    if (status == STATUS_OK)
        status = listen_once(&c);
    end(&c);
    fed_memory_store_destroy(store);
    return status;
}

enum status fed_coordinator_run(const struct fed_coordinator_config *config,
                                enum status (*on_end)(void *arg, struct fed_server *server))
{
    struct fed_coordinator_config filled = *config;
    struct coordinator c;

    enum status status = begin(&c, &filled, fed_sqlite_store(config->store));
    if (status == STATUS_OK)
        status = listen_and_serve(&c);
    if (c.server &&
        (status == STATUS_OK || status == STATUS_STOPPED || status == STATUS_PREEMPTED)) {
        const enum status ended = on_end(config->arg, c.server);
        status = ended == STATUS_OK ? status : ended;
    }
    end(&c);
    return status;
}
