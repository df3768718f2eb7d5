/* SPDX-License-Identifier: MIT */
/* fed_coordinator.c - tutti fed coordinator */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli/fed.h"
#include "fed/coordinator.h"
#include "fed/local.h"
#include "fed/start.h"
#include "fed/stop.h"
#include "train/train.h"

enum { PORT = 8443, CONNECTIONS = 256, REQUEST_SECONDS = 30, LINGER_SECONDS = 60 };

static const char *model_name, *state, *keys, *listen_text, *connections_text, *request_text,
    *linger_text;
static bool quiet;

static const struct flag flags[] = {
    { "model", "MODEL", "what is trained: a name, a graph file or a C file", NULL,
      &model_name },
    { "state", "DIR", "where the federation is kept; the same goes on after any end", NULL,
      &state },
    { "keys", "DIR", "the coordinator's certificate and key (federation/coordinator)", NULL,
      &keys },
    { "listen", "HOST:PORT", "where participants find it (*:8443; port 0: any)", NULL,
      &listen_text },
    { "connections", "N", "at once, at most (256)", NULL, &connections_text },
    { "request-timeout", "S", "seconds for a request, besides those for its bytes (30)", NULL,
      &request_text },
    { "linger", "S", "seconds to wait at the end until all know that it is (60)", NULL,
      &linger_text },
    { "quiet", NULL, "no lines about what happens", &quiet, NULL },
    { 0 },
};

static void help(void)
{
    puts("\nParticipants join by tutti fed join https://HOST:PORT. A coordinator that was "
         "stopped or\n"
         "killed goes on with the round that ran: tutti fed coordinator --state DIR.\n"
         "With --data it tests the model after every round.");
    cli_print_flags("Coordinator", flags);
    cli_terms_help(false);
}

/* Everything of a run of the command. */
struct session {
    const struct args *args;
    struct cli_terms given; /* on the command line */
    struct fed_terms terms; /* of the federation */
    struct fed_sqlite *store;
    struct fed_job *job;
    struct fed_local *local;
    float *initial;
};

static void release(struct session *s)
{
    mem_free(s->initial);
    fed_local_destroy(s->local);
    fed_job_destroy(s->job);
    fed_sqlite_close(s->store);
    fed_terms_release(&s->terms);
    cli_terms_release(&s->given);
}

static void tell(void *arg, const char *line)
{
    (void)arg;
    if (!quiet)
        cli_print_lines(stderr, line);
}

/* Terms ------------------------------------------------------------------------------------- */

static enum status print_terms(const struct fed_terms *terms, struct strbuf *out)
{
    strbuf_init(out, 2 * (size_t)FED_GRAPH_TEXT);
    fed_terms_print(terms, out);
    return strbuf_status(out);
}

/* What the flags say, with the model as a graph. */
static enum status make_terms(struct session *s, struct fed_terms *out)
{
    const struct model *model;
    struct fed_job *job;
    struct fed_job_config config = { .terms = &s->given.terms,
                                     .options = s->given.settings.options,
                                     .table = &s->given.settings,
                                     .data = *s->given.settings.data ? s->given.settings.data
                                                                     : NULL,
                                     .limit = s->given.settings.limit };

    TRY(cli_find_model(model_name, &model));
    config.model = model;
    *out = s->given.terms;
    out->graph = NULL;
    snprintf(out->model, sizeof out->model, "%.63s", model->name);
    TRY(fed_job_create(&config, &job));
    const enum status status = fed_job_print_graph(job, &out->graph);
    fed_job_destroy(job);
    TRY(status);
    return STATUS_OK;
}

/* Terms of a new federation. */
static enum status draft_terms(struct session *s)
{
    if (!model_name)
        return FAIL(STATUS_USAGE, "%s: is new, so --model says what is trained", state);
    TRY(make_terms(s, &s->terms));
    fed_draw_id(s->terms.federation);
    return fed_terms_check(&s->terms);
}

static enum status keep_terms(struct session *s)
{
    struct strbuf text;
    char *other;

    TRY(fed_sqlite_get(s->store, "terms", &other));
    if (other) {
        mem_free(other);
        return FAIL(STATUS_USAGE, "%s: another coordinator has begun a federation there",
                    state);
    }
    enum status status = print_terms(&s->terms, &text);
    if (status == STATUS_OK)
        status = fed_sqlite_set(s->store, "terms", text.text);
    strbuf_release(&text);
    return status;
}

/* Without --model flags may repeat what the federation has, and say nothing else. */
static enum status compare_flags(struct session *s)
{
    struct cli_terms again;
    int n_words;

    cli_terms_init_from(&again, &s->terms);
    enum status status = cli_terms_parse(&again, s->args, flags, false, NULL, 0, &n_words);
    if (status == STATUS_OK) {
        const struct fed_flag *other = fed_terms_differ(&again.terms, &s->terms);
        if (again.terms.full_batch != s->terms.full_batch) /* which changes --batch, too */
            other = fed_flag_find("full-batch");
        if (other)
            status = FAIL(STATUS_USAGE,
                          "--%s: %s has a federation with other terms, which do not change; "
                          "without this flag it goes on",
                          other->name, state);
    }
    cli_terms_release(&again);
    return status;
}

/* Terms do not change while a federation lives: participants agreed to them. */
static enum status compare_terms(struct session *s)
{
    struct fed_terms asked = { .graph = NULL };
    struct strbuf one, two;

    if (!model_name)
        return compare_flags(s);
    enum status status = make_terms(s, &asked);
    if (status == STATUS_OK) {
        snprintf(asked.federation, sizeof asked.federation, "%s", s->terms.federation);
        status = print_terms(&asked, &one);
        const enum status other = print_terms(&s->terms, &two);
        status = status == STATUS_OK ? other : status;
        if (status == STATUS_OK && strcmp(one.text, two.text) != 0)
            status = FAIL(STATUS_USAGE,
                          "%s: has a federation with other terms; without --model it goes on",
                          state);
        strbuf_release(&one);
        strbuf_release(&two);
    }
    fed_terms_release(&asked);
    return status;
}

/* The terms that the state has. */
static enum status find_terms(struct session *s, bool *found)
{
    char *text;

    TRY(fed_sqlite_get(s->store, "terms", &text));
    *found = text != NULL;
    if (!text)
        return STATUS_OK;
    const enum status status = fed_terms_read(text, strlen(text), &s->terms);
    mem_free(text);
    TRY(status);
    return compare_terms(s);
}

/* Results ------------------------------------------------------------------------------------ */

static enum status evaluate(void *arg, int64_t round, const float *parameters,
                            struct fed_score *out)
{
    struct session *s = arg;
    struct fed_tally tally = { 0 };

    (void)round;
    TRY(fed_local_evaluate(s->local, fed_job_test(s->job), parameters, &tally));
    out->loss = tally.val_seen > 0 ? tally.val_loss / tally.val_seen : (double)NAN;
    out->accuracy = tally.val_seen > 0 ? tally.val_correct / tally.val_seen : (double)NAN;
    return STATUS_OK;
}

static void standardize(void *arg, const float *statistics)
{
    const struct session *s = arg;

    if (fed_job_test(s->job))
        fed_job_standardize(s->job, statistics);
}

static enum status add_line(void *arg, const char *metrics)
{
    strbuf_printf(arg, "%s\n", metrics);
    return STATUS_OK;
}

static enum status write_file(const char *name, const struct strbuf *text)
{
    char *path;

    TRY(strbuf_status(text));
    TRY(file_join(state, name, &path));
    const enum status status = file_replace(path, text->text, text->length);
    mem_free(path);
    return status;
}

static enum status write_metrics(struct session *s)
{
    const struct fed_store store = fed_sqlite_store(s->store);
    struct strbuf text;

    strbuf_init(&text, (size_t)1 << 28);
    enum status status = store.history(store.arg, add_line, &text);
    if (status == STATUS_OK)
        status = write_file("metrics.jsonl", &text);
    strbuf_release(&text);
    return status;
}

static enum status write_summary(struct session *s, struct fed_server *server)
{
    char hash[65];
    struct strbuf text;

    TRY(fed_local_hash(s->local, fed_server_parameters(server), hash));
    strbuf_init(&text, 1 << 24);
    strbuf_printf(&text,
                  "{\"kind\": \"federation\", \"weights_sha256\": \"%s\", \"status\": ", hash);
    fed_server_print(server, &text);
    strbuf_add(&text, "}\n");
    const enum status status = write_file("summary.json", &text);
    strbuf_release(&text);
    TRY(status);
    if (!quiet)
        fprintf(stderr, "weights  %s\nmodel    %s/model.safetensors\n", hash, state);
    return STATUS_OK;
}

/* The model as a graph file, so that eval has all it needs: with the statistics of a table, if all gave them. */
static enum status write_model(struct session *s, const struct fed_server *server)
{
    struct strbuf text;

    strbuf_init(&text, FED_GRAPH_TEXT);
    enum status status =
        job_print_trained(fed_job_base(s->job), fed_server_statistics(server), &text);
    if (status == STATUS_OK)
        status = write_file("model.json", &text);
    strbuf_release(&text);
    return status;
}

/* The folder has the model, the metrics of all rounds and a summary, however it ends. */
static enum status write_results(void *arg, struct fed_server *server)
{
    struct session *s = arg;
    char *path;

    TRY(file_join(state, "model.safetensors", &path));
    const enum status status = fed_local_save(s->local, fed_server_parameters(server), path);
    mem_free(path);
    TRY(status);
    TRY(write_model(s, server));
    TRY(write_metrics(s));
    return write_summary(s, server);
}

/* The command ------------------------------------------------------------------------------------ */

static enum status read_address(const char *text, char host[256], int *port)
{
    const char *colon = strrchr(text, ':');
    long long number;

    if (!colon || colon - text >= 256)
        return FAIL(STATUS_USAGE, "--listen %s: HOST:PORT", text);
    snprintf(host, 256, "%.*s", (int)(colon - text), text);
    TRY(cli_whole_number("listen HOST:PORT", colon + 1, 65535, &number));
    *port = (int)number;
    return STATUS_OK;
}

static enum status number_of(const char *flag, const char *text, int usual, int *out)
{
    long long number = usual;

    if (text)
        TRY(cli_whole_number(flag, text, 1 << 20, &number));
    *out = (int)number;
    return STATUS_OK;
}

static enum status make_local(struct session *s)
{
    const struct fed_job_config config = { .terms = &s->terms,
                                           .table = &s->given.settings,
                                           .data = *s->given.settings.data
                                                       ? s->given.settings.data
                                                       : NULL,
                                           .limit = s->given.settings.limit };
    const int threads = s->given.settings.threads > 0 ? (int)s->given.settings.threads : 1;

    TRY(fed_job_create(&config, &s->job));
    TRY(fed_local_create(s->job, threads, &s->local));
    TRY(mem_alloc(fed_local_length(s->local), sizeof *s->initial, &s->initial));
    return fed_local_initial(s->local, s->terms.seed, s->initial);
}

/* What the engine is made of, when the terms are known. */
static enum status make_engine(struct session *s, struct fed_server_config *out)
{
    TRY(make_local(s));
    *out = (struct fed_server_config){ .terms = &s->terms,
                                       .length = fed_local_length(s->local),
                                       .initial = s->initial,
                                       .head = fed_local_head(s->local),
                                       .arg = s,
                                       .statistics = fed_job_statistics(s->job),
                                       .standardize = standardize,
                                       .evaluate = fed_job_test(s->job) ? evaluate : NULL };
    out->n_averages = fed_local_averages(s->local, &out->averages);
    return STATUS_OK;
}

/* Terms, keys and address of a new federation are tried before anything of it is kept. */
static enum status draft(struct session *s, struct fed_coordinator_config *config)
{
    TRY(draft_terms(s));
    TRY(make_engine(s, &config->server));
    return fed_coordinator_check(config);
}

static enum status open_state(struct session *s, struct fed_coordinator_config *config)
{
    const bool is_new = !fed_sqlite_exists(state);
    bool found;

    if (is_new)
        TRY(draft(s, config));
    TRY(fed_sqlite_open(state, &s->store));
    config->store = s->store;
    if (is_new)
        return keep_terms(s);
    TRY(find_terms(s, &found));
    if (found)
        return make_engine(s, &config->server);
    TRY(draft(s, config)); /* it was killed before it kept any */
    return keep_terms(s);
}

static enum status coordinate(struct session *s)
{
    char host[256] = "*";
    int linger = LINGER_SECONDS;
    struct fed_coordinator_config config = { .store = s->store,
                                             .keys = keys ? keys : "federation/coordinator",
                                             .port = PORT,
                                             .arg = s,
                                             .tell = tell };

    if (listen_text)
        TRY(read_address(listen_text, host, &config.port));
    config.host = strcmp(host, "*") == 0 || !*host ? NULL : host;
    TRY(number_of("connections", connections_text, CONNECTIONS, &config.connections));
    TRY(number_of("request-timeout", request_text, REQUEST_SECONDS, &config.request_s));
    TRY(number_of("linger", linger_text, LINGER_SECONDS, &linger));
    config.linger_s = linger;
    TRY(open_state(s, &config));
    fed_stop_begin();
    const enum status status = fed_coordinator_run(&config, write_results);
    fed_stop_end();
    return status;
}

static enum status run(const struct args *args)
{
    struct session s = { .args = args };
    int n_words;

    TRY(fed_start());
    cli_terms_init(&s.given);
    /* Options of the model are flags of its own: it must be known before they are read. */
    for (int i = 0; i + 1 < args->count; i++) {
        if (strcmp(args->word[i], "--model") == 0)
            snprintf(s.given.settings.model, sizeof s.given.settings.model, "%s",
                     args->word[i + 1]);
    }
    enum status status = cli_terms_parse(&s.given, args, flags, false, NULL, 0, &n_words);
    if (status == STATUS_OK && !state)
        status =
            FAIL(STATUS_USAGE, "no state: tutti fed coordinator --state DIR --model MODEL");
    if (status == STATUS_OK)
        status = coordinate(&s);
    release(&s);
    return status;
}

const struct command command_fed_coordinator = {
    .name = "coordinator",
    .usage = "fed coordinator --state DIR --model MODEL [FLAGS]",
    .summary = "lead a federation: rounds, sums, the status page",
    .run = run,
    .help = help,
};
