/* SPDX-License-Identifier: MIT */
/* simulate.c - a federation in one process.
 *
 * In turns: participants ask, some hundred at a time; those that got a task train, in parallel; what they give is taken in the
 * order of their numbers. With asynchronous rounds that order is random (by the seed), so that some updates are
 * older than others. If a turn brings nothing, the clock moves on to the next deadline.
 */
#include "fed/simulate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/rng.h"
#include "fed/algorithm.h"
#include "fed/local.h"
#include "fed/partition.h"
#include "fed/server.h"
#include "fed/simulate_folder.h"
#include "fed/stop.h"

/* Participants that have a task at once: bounds memory, and is no matter of threads. */
enum { AT_ONCE = 128 };
/* Rounds lost in a row after which no other is begun. */
enum { LOST_MOST = 50 };
/* Deadlines that may pass in one round: a secure one has five stages. */
enum { DEADLINES_MOST = 8 };
/* Uses of random numbers, so that no two are the same. */
enum { STREAM_SERVER = 0x5372, STREAM_CLIENT, STREAM_DROP, STREAM_ORDER, STREAM_IDENTITY };
static const double TURN_S = 1;

struct participant {
    struct simulation *simulation;
    int number;
    char name[FED_NAME];
    struct fed_client *client;
    struct fed_part train, validation;
    struct fed_local *local; /* that it trains on now */
    struct secagg_identity identity;
    uint8_t public_key[SECAGG_PUBLIC];
    uint64_t drawn; /* blocks of entropy */
    int64_t silent; /* round in which it says nothing any more; -1: none */
};

/* A participant with a reply that it is to take. */
struct turn {
    struct participant *participant;
    struct fed_buffer reply;
    enum status status;
    char failure[512];
};

struct simulation {
    const struct fed_simulation *config;
    const struct fed_terms *terms;
    struct fed_job *base; /* of the model as it was named: for the folder */
    struct fed_job *job;  /* of the graph in the terms */
    struct fed_local **locals;
    int n_locals;
    struct pool *pool;
    struct fed_parts parts;
    struct participant *participants;
    struct fed_memory_store *store;
    struct fed_server *server;
    struct secagg_trust trust;
    struct simulate_folder *folder;
    double now;
    int deadlines;      /* that passed in the running round */
    int64_t done, lost; /* rounds, when one was done last */
    char why[FED_WHY];  /* it is given up; "": not */
    uint64_t drawn;     /* blocks of entropy of the server */
    struct rng drops;
    struct turn turns[AT_ONCE];
    int n_turns;
};

/* What engines ask for ------------------------------------------------------------------------------ */

static double now(void *arg)
{
    return ((struct simulation *)arg)->now;
}

/* Entropy: a stream for each, from the seed. */
static void draw(uint64_t seed, uint32_t stream, uint32_t who, uint64_t *drawn, void *out,
                 size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const uint32_t counter[4] = { (uint32_t)*drawn, (uint32_t)(*drawn >> 32), stream, who };
        const struct rng_block block = rng_philox(seed, counter);
        const size_t left = bytes - at;
        const size_t n = left < sizeof block ? left : sizeof block;
        memcpy((char *)out + at, &block, n);
        at += n;
        ++*drawn;
    }
}

static enum status server_entropy(void *arg, void *out, size_t bytes)
{
    struct simulation *s = arg;

    draw(s->terms->seed, STREAM_SERVER, 0, &s->drawn, out, bytes);
    return STATUS_OK;
}

static enum status client_entropy(void *arg, void *out, size_t bytes)
{
    struct participant *p = arg;

    draw(p->simulation->terms->seed, STREAM_CLIENT, (uint32_t)p->number, &p->drawn, out, bytes);
    return STATUS_OK;
}

/* Everybody knows everybody's key by number. */
static enum status identify(void *arg, const void *proof, size_t bytes,
                            uint8_t public_key[SECAGG_PUBLIC])
{
    const struct simulation *s = arg;

    for (int i = 0; i < s->config->participants; i++) {
        const struct participant *p = &s->participants[i];
        if (strlen(p->name) == bytes && memcmp(p->name, proof, bytes) == 0) {
            memcpy(public_key, p->public_key, SECAGG_PUBLIC);
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_MISMATCH, "nobody of that name");
}

static enum status train(void *arg, const struct fed_work *work, const float *shift, float *out,
                         struct fed_tally *tally)
{
    struct participant *p = arg;

    return fed_local_train(p->local, &p->train, (uint64_t)p->number, work, shift, out, tally);
}

static enum status sum_rows(void *arg, float *out)
{
    struct participant *p = arg;

    return fed_part_statistics(p->simulation->job, &p->train, out);
}

/* All have one table: it is standardized when the statistics are known, not by each. */
static enum status standardize(void *arg, const float *statistics)
{
    (void)arg, (void)statistics;
    return STATUS_OK;
}

static void standardize_all(void *arg, const float *statistics)
{
    fed_job_standardize(((struct simulation *)arg)->job, statistics);
}

static enum status initial(void *arg, uint64_t seed, float *head)
{
    struct participant *p = arg;

    return fed_local_initial_head(p->local, seed, head);
}

static enum status validate(void *arg, const float *parameters, struct fed_tally *tally)
{
    struct participant *p = arg;

    return fed_local_evaluate(p->local, &p->validation.source, parameters, tally);
}

static enum status open_trainer(void *arg, const struct fed_terms *terms,
                                struct fed_trainer *out)
{
    struct participant *p = arg;
    const struct fed_local *any = p->simulation->locals[0];

    (void)terms; /* all have the same */
    *out = (struct fed_trainer){ .arg = p,
                                 .length = fed_local_length(any),
                                 .head = fed_local_head(any),
                                 .train = train,
                                 .statistics = fed_job_statistics(p->simulation->job),
                                 .sum_rows = sum_rows,
                                 .standardize = standardize,
                                 .initial = initial,
                                 .evaluate =
                                     source_count(&p->validation.source) ? validate : NULL };
    return STATUS_OK;
}

/* Evaluation ---------------------------------------------------------------------------------------- */

/* The test split in parts whose number is no matter of threads. */
enum { EVALUATED = 8 };
struct evaluation {
    struct simulation *simulation;
    const float *parameters;
    const int64_t *index;
    struct fed_tally tally[EVALUATED];
    enum status status[EVALUATED];
};

static void evaluate_part(void *arg, size_t i, size_t slot)
{
    struct evaluation *e = arg;
    const struct source *test = fed_job_test(e->simulation->job);
    const int64_t count = source_count(test), k = (int64_t)i;
    const int64_t begin = k * count / EVALUATED, end = (k + 1) * count / EVALUATED;
    struct fed_part part;

    if (begin == end)
        return;
    fed_part_init(&part, test, e->index + begin, end - begin);
    e->status[i] = fed_local_evaluate(e->simulation->locals[slot], &part.source, e->parameters,
                                      &e->tally[i]);
}

static enum status evaluate(void *arg, int64_t round, const float *parameters,
                            struct fed_score *out)
{
    struct simulation *s = arg;
    struct evaluation e = { .simulation = s, .parameters = parameters };
    const int64_t every = s->config->settings->eval_every;
    const int64_t count = source_count(fed_job_test(s->job));
    struct fed_tally sum = { 0 };
    int64_t *index;

    *out = (struct fed_score){ NAN, NAN };
    if (every == 0 || (round % every != 0 && round != s->terms->rounds))
        return STATUS_OK;
    TRY(mem_alloc((size_t)count, sizeof *index, &index));
    for (int64_t i = 0; i < count; i++)
        index[i] = i;
    e.index = index;
    pool_for_slots(s->pool, EVALUATED, (size_t)s->n_locals, evaluate_part, &e);
    mem_free(index);
    for (int i = 0; i < EVALUATED; i++) {
        if (e.status[i] != STATUS_OK)
            return FAIL(e.status[i], "the test split could not be evaluated");
        sum.val_loss += e.tally[i].val_loss;
        sum.val_correct += e.tally[i].val_correct;
        sum.val_seen += e.tally[i].val_seen;
    }
    *out = (struct fed_score){ sum.val_loss / sum.val_seen, sum.val_correct / sum.val_seen };
    return STATUS_OK;
}

/* Turns --------------------------------------------------------------------------------------------- */

/* A participant says what it has to say; the reply is kept for it. false: it sleeps or has ended. */
static enum status post(struct simulation *s, struct turn *turn, bool *posted)
{
    struct participant *p = turn->participant;
    struct fed_step step;

    *posted = false;
    TRY(fed_client_next(p->client, &step));
    if (step.what == FED_SLEEP)
        TRY(fed_client_next(p->client, &step));
    if (step.what != FED_SEND)
        return STATUS_OK;
    fed_buffer_clear(&turn->reply);
    *posted = true;
    return fed_server_answer(s->server, p->name, step.message, step.length, &turn->reply);
}

static void take_reply(void *arg, size_t i, size_t slot)
{
    struct simulation *s = arg;
    struct turn *turn = &s->turns[i];

    turn->participant->local = s->locals[slot];
    turn->status =
        fed_client_reply(turn->participant->client, turn->reply.data, turn->reply.length);
    if (turn->status != STATUS_OK)
        snprintf(turn->failure, sizeof turn->failure, "%s", status_message());
}

static enum status take_replies(struct simulation *s)
{
    pool_for_slots(s->pool, (size_t)s->n_turns, (size_t)s->n_locals, take_reply, s);
    for (int i = 0; i < s->n_turns; i++) {
        const struct turn *turn = &s->turns[i];
        if (turn->status != STATUS_OK)
            return FAIL(turn->status, "participant %s: %s", turn->participant->name,
                        turn->failure);
    }
    return STATUS_OK;
}

/* Does the participant go silent now, for the rest of the round? */
static bool drops(struct simulation *s, struct participant *p)
{
    if (s->config->drop <= 0 || (double)rng_float(&s->drops) >= s->config->drop)
        return false;
    p->silent = fed_server_round(s->server);
    return true;
}

static bool is_buffered(const struct simulation *s)
{
    return fed_algorithm_find(s->terms->algorithm)->is_buffered;
}

/* Only asynchronous rounds depend on the order. */
static void mix_turns(struct simulation *s)
{
    struct rng rng;

    if (!is_buffered(s))
        return;
    rng_init(&rng, s->terms->seed ^ (uint64_t)fed_server_round(s->server), STREAM_ORDER);
    for (int i = s->n_turns - 1; i > 0; i--) {
        const int j = (int)rng_below(&rng, (uint64_t)i + 1);
        struct participant *moved = s->turns[i].participant;
        s->turns[i].participant = s->turns[j].participant;
        s->turns[j].participant = moved;
    }
}

/* What those that have trained give. */
static enum status give_all(struct simulation *s)
{
    mix_turns(s);
    for (int i = 0; i < s->n_turns; i++) {
        struct turn *turn = &s->turns[i];
        bool posted = false;
        if (!drops(s, turn->participant)) {
            TRY(post(s, turn, &posted));
            if (posted)
                TRY(fed_client_reply(turn->participant->client, turn->reply.data,
                                     turn->reply.length));
        }
        fed_client_rest(turn->participant->client);
    }
    return STATUS_OK;
}

static bool is_task(const struct fed_buffer *reply)
{
    struct fed_message message;

    return fed_message_read(reply->data, reply->length, &message) == STATUS_OK &&
           (message.type == FED_TASK || message.type == FED_DONE);
}

/* Participants from *next on ask, until enough have a task; *busy: somebody had one. */
static enum status ask_some(struct simulation *s, int *next, bool *busy)
{
    s->n_turns = 0;
    for (; *next < s->config->participants && s->n_turns < AT_ONCE; ++*next) {
        struct turn *turn = &s->turns[s->n_turns];
        bool posted;
        turn->participant = &s->participants[*next];
        if (turn->participant->silent == fed_server_round(s->server))
            continue;
        TRY(post(s, turn, &posted));
        if (!posted)
            continue;
        if (is_task(&turn->reply)) {
            s->n_turns++;
            continue;
        }
        TRY(fed_client_reply(turn->participant->client, turn->reply.data, turn->reply.length));
    }
    if (s->n_turns == 0)
        return STATUS_OK;
    *busy = true;
    TRY(take_replies(s));
    return give_all(s);
}

static enum status run_turn(struct simulation *s, bool *busy)
{
    *busy = false;
    for (int next = 0; next < s->config->participants && !fed_stop_asked();)
        TRY(ask_some(s, &next, busy));
    s->now += TURN_S;
    return STATUS_OK;
}

static bool is_over(const struct simulation *s)
{
    return fed_server_is_done(s->server) || simulate_folder_reached(s->folder) >= 0 || *s->why;
}

/* Tells the coordinator that a participant is still there. */
static enum status say_hello(struct simulation *s, const struct participant *p)
{
    struct fed_message hello = { .type = FED_HELLO,
                                 .samples = (uint64_t)source_count(&p->train.source) };
    struct fed_buffer message, reply;

    snprintf(hello.client, sizeof hello.client, "%s", p->name);
    fed_buffer_init(&message, 1 << 10);
    fed_buffer_init(&reply, fed_server_message_limit(s->server));
    fed_message_write(&hello, &message);
    enum status status = fed_buffer_status(&message);
    if (status == STATUS_OK)
        status = fed_server_answer(s->server, p->name, message.data, message.length, &reply);
    fed_buffer_release(&message);
    fed_buffer_release(&reply);
    return status;
}

/* Nobody has anything to do: time passes until the stage is over. */
static enum status pass_time(struct simulation *s)
{
    const int64_t before = fed_server_round(s->server);

    if (*fed_server_waits(s->server)) /* nobody comes or goes here */
        return FAIL(STATUS_USAGE, "no round can begin: %s", fed_server_waits(s->server));
    if (s->terms->deadline_s <= 0)
        return FAIL(STATUS_MISMATCH,
                    "round %lld waits for participants that are silent: give --deadline",
                    (long long)before);
    if (++s->deadlines > DEADLINES_MOST)
        return FAIL(STATUS_MISMATCH, "round %lld does not end: %d deadlines have passed",
                    (long long)before, DEADLINES_MOST);
    s->now += s->terms->deadline_s;
    for (int i = 0; i < s->config->participants; i++)
        TRY(say_hello(s, &s->participants[i]));
    TRY(fed_server_tick(s->server));
    if (fed_server_round(s->server) > before)
        s->deadlines = 0;
    else if (is_buffered(s)) /* it goes on, so those that were silent come late */
        for (int i = 0; i < s->config->participants; i++)
            s->participants[i].silent = -1;
    return STATUS_OK;
}

/* Rounds that are lost again and again: what was trained before is the result. No participant gives more updates than its terms
 * explain. */
static void look_at_losses(struct simulation *s)
{
    const int64_t done = fed_server_done(s->server);
    const char *why;
    const int64_t lost = fed_server_lost(s->server, &why);

    if (done > s->done) {
        s->done = done;
        s->lost = lost;
    }
    if (is_over(s) || (lost - s->lost < LOST_MOST &&
                       (uint64_t)fed_server_round(s->server) < fed_client_most(s->terms)))
        return;
    snprintf(s->why, sizeof s->why, "%lld rounds are lost, %lld in a row: %.160s",
             (long long)lost, (long long)(lost - s->lost), why);
}

/* A signal asked for the end: rounds that are done are the result. */
static void look_at_signals(struct simulation *s)
{
    if (fed_stop_asked() && !is_over(s))
        snprintf(s->why, sizeof s->why, "stopped by a signal in round %lld",
                 (long long)fed_server_round(s->server) + 1);
}

static enum status run_rounds(struct simulation *s)
{
    while (!is_over(s)) {
        const int64_t before = fed_server_round(s->server);
        bool busy;
        TRY(run_turn(s, &busy));
        TRY(simulate_folder_tell(s->folder, fed_memory_store(s->store)));
        look_at_losses(s);
        look_at_signals(s);
        const bool lost = fed_server_round(s->server) > before; /* and another may have begun */
        s->deadlines = lost ? 0 : s->deadlines;
        if (!busy && !lost && !is_over(s))
            TRY(pass_time(s));
    }
    return simulate_folder_tell(s->folder, fed_memory_store(s->store));
}

/* Setting up ---------------------------------------------------------------------------------------- */

static enum status make_jobs(struct simulation *s)
{
    const struct fed_simulation *config = s->config;
    struct fed_job_config job = { .terms = config->terms,
                                  .model = config->model,
                                  .options = config->settings->options,
                                  .table = config->settings,
                                  .data = config->settings->data,
                                  .limit = config->settings->limit };
    int64_t largest = 0;

    TRY(fed_job_create(&job, &s->base));
    TRY(job_check_classes(fed_job_base(s->base)));
    TRY(fed_job_print_graph(s->base, &config->terms->graph));
    TRY(fed_partition(config->partition, fed_job_train(s->base), config->participants,
                      config->terms->seed, &s->parts));
    for (int p = 0; p < config->participants; p++) {
        const int64_t size = s->parts.begin[p + 1] - s->parts.begin[p];
        largest = size > largest ? size : largest;
    }
    job.model = NULL;
    job.options = NULL;
    job.data = job_settings(fed_job_base(s->base))->data;
    job.largest = largest;
    TRY(fed_job_create(&job, &s->job));
    s->n_locals = config->settings->threads ? (int)config->settings->threads : job_cores();
    TRY(mem_alloc((size_t)s->n_locals, sizeof(struct fed_local *), &s->locals));
    for (int i = 0; i < s->n_locals; i++) {
        TRY(fed_local_create(s->job, 1, &s->locals[i]));
        fed_local_simulate(s->locals[i], config->terms->seed);
    }
    return pool_create(s->n_locals, &s->pool);
}

static enum status make_participant(struct simulation *s, int number)
{
    struct participant *p = &s->participants[number];
    const int64_t begin = s->parts.begin[number], end = s->parts.begin[number + 1];
    const int64_t held = (int64_t)(s->config->validation * (double)(end - begin));
    uint64_t drawn = 0;
    uint8_t seed[SECAGG_SEED];

    p->simulation = s;
    p->number = number;
    p->silent = -1;
    snprintf(p->name, sizeof p->name, "p%06d", number);
    fed_part_init(&p->train, fed_job_train(s->job), s->parts.index + begin, end - begin - held);
    fed_part_init(&p->validation, fed_job_train(s->job), s->parts.index + end - held, held);
    if (s->terms->secure) {
        draw(s->terms->seed, STREAM_IDENTITY, (uint32_t)number, &drawn, seed, sizeof seed);
        TRY(secagg_identity_make(seed, p->identity.secret, p->public_key));
        p->identity.proof = p->name;
        p->identity.proof_bytes = strlen(p->name);
    }
    const struct fed_client_config config = { .name = p->name,
                                              .samples = (uint64_t)(end - begin - held),
                                              .about = "{}",
                                              .arg = p,
                                              .open = open_trainer,
                                              .entropy = client_entropy,
                                              .identity = &p->identity,
                                              .trust = &s->trust };
    return fed_client_create(&config, &p->client);
}

static enum status make_server(struct simulation *s)
{
    const size_t length = fed_local_length(s->locals[0]);
    float *parameters;

    TRY(fed_memory_store_create(&s->store));
    fed_memory_store_forget(s->store);
    TRY(mem_alloc(length, sizeof *parameters, &parameters));
    enum status status = fed_local_initial(s->locals[0], s->terms->seed, parameters);
    struct fed_server_config config = { .terms = s->terms,
                                        .length = length,
                                        .initial = parameters,
                                        .head = fed_local_head(s->locals[0]),
                                        .statistics = fed_job_statistics(s->job),
                                        .store = fed_memory_store(s->store),
                                        .arg = s,
                                        .now = now,
                                        .entropy = server_entropy,
                                        .evaluate = s->terms->personal_head ? NULL : evaluate,
                                        .standardize = standardize_all,
                                        .trust = &s->trust };
    config.n_averages = fed_local_averages(s->locals[0], &config.averages);
    if (status == STATUS_OK)
        status = fed_server_create(&config, &s->server);
    mem_free(parameters);
    return status;
}

/* Everybody says hello and hears the terms. */
static enum status join_all(struct simulation *s)
{
    for (int i = 0; i < s->config->participants; i++) {
        struct turn *turn = &s->turns[0];
        bool posted;
        turn->participant = &s->participants[i];
        TRY(post(s, turn, &posted));
        TRY(fed_client_reply(turn->participant->client, turn->reply.data, turn->reply.length));
    }
    return STATUS_OK;
}

static enum status set_up(struct simulation *s)
{
    const struct fed_simulation *config = s->config;

    TRY(make_jobs(s));
    s->trust = (struct secagg_trust){ .identify = identify, .context = s };
    rng_init(&s->drops, s->terms->seed, STREAM_DROP);
    for (int i = 0; i < AT_ONCE; i++)
        fed_buffer_init(&s->turns[i].reply, (size_t)1 << 34);
    TRY(mem_alloc((size_t)config->participants, sizeof *s->participants, &s->participants));
    for (int i = 0; i < config->participants; i++)
        TRY(make_participant(s, i));
    TRY(make_server(s));
    TRY(simulate_folder_create(config, s->base, &s->parts, &s->folder));
    return join_all(s);
}

static void release(struct simulation *s)
{
    simulate_folder_destroy(s->folder);
    fed_server_destroy(s->server);
    fed_memory_store_destroy(s->store);
    for (int i = 0; s->participants && i < s->config->participants; i++)
        fed_client_destroy(s->participants[i].client);
    mem_free(s->participants);
    for (int i = 0; i < AT_ONCE; i++)
        fed_buffer_release(&s->turns[i].reply);
    fed_parts_release(&s->parts);
    for (int i = 0; s->locals && i < s->n_locals; i++)
        fed_local_destroy(s->locals[i]);
    mem_free(s->locals);
    pool_destroy(s->pool);
    fed_job_destroy(s->job);
    fed_job_destroy(s->base);
}

static enum status run(struct simulation *s, struct fed_simulated *out)
{
    TRY(set_up(s));
    const enum status status = run_rounds(s);
    if (status != STATUS_OK) {
        simulate_folder_fail(s->folder, status_message());
        return status;
    }
    snprintf(out->why, sizeof out->why, "%s", *s->why ? s->why : fed_server_why(s->server));
    return simulate_folder_end(s->folder, s->locals, s->n_locals,
                               fed_server_parameters(s->server), out);
}

/* Do the terms fit participants of which there are so many? */
static enum status check(const struct fed_simulation *simulation)
{
    const struct fed_terms *terms = simulation->terms;

    if (fed_algorithm_find(terms->algorithm)->is_buffered &&
        terms->buffer > simulation->participants)
        return FAIL(STATUS_USAGE,
                    "--buffer %lld above --participants %d: no round would be full; take as "
                    "many at most",
                    (long long)terms->buffer, simulation->participants);
    if (terms->minimum > simulation->participants)
        return FAIL(STATUS_USAGE,
                    "--min-participants %lld above --participants %d: no round could begin",
                    (long long)terms->minimum, simulation->participants);
    if (simulation->drop > 0 && terms->deadline_s <= 0)
        return FAIL(STATUS_USAGE,
                    "--drop %g: rounds would wait for participants that are "
                    "silent: give --deadline",
                    simulation->drop);
    return STATUS_OK;
}

enum status fed_simulate(const struct fed_simulation *simulation, struct fed_simulated *out)
{
    struct simulation *s;

    if (simulation->participants < 1)
        return FAIL(STATUS_USAGE, "--participants %d: one at least", simulation->participants);
    TRY(fed_partition_check(simulation->partition));
    TRY(check(simulation));
    TRY(mem_alloc(1, sizeof *s, &s));
    s->config = simulation;
    s->terms = simulation->terms;
    *out = (struct fed_simulated){ .reached = -1 };
    const enum status status = run(s, out);
    release(s);
    mem_free(s);
    return status;
}
