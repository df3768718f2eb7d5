/* SPDX-License-Identifier: MIT */
/* rounds_testing.c - federations of engines in a test. */
#include "fed/rounds_testing.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/test.h"

static double now(void *arg)
{
    return ((struct federation *)arg)->now;
}

static void draw(uint32_t who, uint64_t *drawn, void *out, size_t bytes)
{
    for (size_t at = 0; at < bytes; ++*drawn) {
        const uint32_t counter[4] = { (uint32_t)*drawn, who, 0, 0 };
        const struct rng_block block = rng_philox(77, counter);
        const size_t n = bytes - at < sizeof block ? bytes - at : sizeof block;
        memcpy((char *)out + at, &block, n);
        at += n;
    }
}

static enum status server_entropy(void *arg, void *out, size_t bytes)
{
    struct federation *federation = arg;

    /* By the round, so that one that begins again draws the same. */
    uint64_t drawn =
        federation->server ? (uint64_t)fed_server_round(federation->server) << 20 : 0;
    draw(1000, &drawn, out, bytes);
    return STATUS_OK;
}

static enum status evaluate(void *arg, int64_t round, const float *parameters,
                            struct fed_score *out)
{
    (void)round, (void)parameters;
    *out = (struct fed_score){ (double)NAN, (double)NAN };
    return ((struct federation *)arg)->fails ? FAIL(STATUS_IO, "the disk is full") : STATUS_OK;
}

static enum status client_entropy(void *arg, void *out, size_t bytes)
{
    struct tested *tested = arg;

    draw((uint32_t)tested->number, &tested->drawn, out, bytes);
    return STATUS_OK;
}

static enum status identify(void *arg, const void *proof, size_t bytes,
                            uint8_t public_key[SECAGG_PUBLIC])
{
    const struct federation *federation = arg;

    for (int i = 0; i < federation->n; i++) {
        const struct tested *tested = &federation->tested[i];
        if (strlen(tested->name) != bytes || memcmp(tested->name, proof, bytes) != 0)
            continue;
        memcpy(public_key, tested->public_key, SECAGG_PUBLIC);
        return STATUS_OK;
    }
    return FAIL(STATUS_MISMATCH, "nobody of that name");
}

static enum status train(void *arg, const struct fed_work *work, const float *shift, float *out,
                         struct fed_tally *tally)
{
    const struct tested *tested = arg;
    const float goal = (float)tested->number + 1;

    *tally = (struct fed_tally){ .samples = (uint64_t)(tested->number + 1 - tested->lost),
                                 .steps = 1,
                                 .loss = goal,
                                 .correct = 1,
                                 .seen = 2 };
    if (tested->fails)
        return FAIL(STATUS_MISMATCH, "local training diverged");
    for (size_t i = 0; i < TESTED_LENGTH; i++) {
        const float gradient = (work->vector[0][i] - goal) / 4 + (shift ? shift[i] : 0);
        out[i] = work->whole ? gradient : work->vector[0][i] - gradient;
        if (i < (size_t)tested->n_lies)
            out[i] = tested->lie;
    }
    return STATUS_OK;
}

/* One row a participant: 1, its goal, the goal's square. */
static enum status sum_rows(void *arg, float *out)
{
    const struct tested *tested = arg;
    const float goal = (float)tested->number + 1;

    out[0] = 1;
    out[1] = goal;
    out[2] = goal * goal / 16;
    for (int i = 0; i < TESTED_STATISTICS && tested->federation->scale[0] != 0; i++)
        out[i] = (float)(out[i] * tested->federation->scale[i]);
    return STATUS_OK;
}

static enum status standardize(void *arg, const float *statistics)
{
    struct tested *tested = arg;

    memcpy(tested->statistics, statistics, sizeof tested->statistics);
    return STATUS_OK;
}

static enum status initial(void *arg, uint64_t seed, float *head)
{
    (void)arg, (void)seed;
    memset(head, 0, TESTED_HEAD * sizeof *head);
    return STATUS_OK;
}

static enum status open_trainer(void *arg, const struct fed_terms *terms,
                                struct fed_trainer *out)
{
    (void)terms;
    *out = (struct fed_trainer){ .arg = arg,
                                 .length = TESTED_LENGTH,
                                 .head = TESTED_HEAD,
                                 .train = train,
                                 .statistics = TESTED_STATISTICS,
                                 .sum_rows = sum_rows,
                                 .standardize = standardize,
                                 .initial = initial };
    return STATUS_OK;
}

static enum status save(void *arg, const void *state, size_t length)
{
    struct tested *tested = arg;

    mem_free(tested->state);
    tested->state = NULL;
    TRY(mem_alloc(length, 1, &tested->state));
    memcpy(tested->state, state, length);
    tested->state_length = length;
    return STATUS_OK;
}

void federation_terms(struct fed_terms *terms)
{
    fed_terms_init(terms);
    snprintf(terms->federation, sizeof terms->federation, "test");
    snprintf(terms->model, sizeof terms->model, "arithmetic");
    terms->rounds = 3;
    terms->lr = 1;
    CHECK_OK(mem_strdup("{}", &terms->graph));
}

static void make_server(struct federation *federation)
{
    static const float zeros[TESTED_LENGTH];
    const struct fed_server_config config = {
        .terms = &federation->terms,
        .length = TESTED_LENGTH,
        .initial = zeros,
        .head = TESTED_HEAD,
        .statistics = TESTED_STATISTICS,
        .store = fed_memory_store(federation->store),
        .arg = federation,
        .now = now,
        .entropy = server_entropy,
        .evaluate = evaluate,
        .trust = &federation->trust,
    };

    CHECK_OK(fed_server_create(&config, &federation->server));
}

static void make_client(struct tested *tested)
{
    const struct fed_client_config config = {
        .name = tested->name,
        .samples = (uint64_t)(tested->number + 1 - tested->lost),
        .about = "{}",
        .state = tested->state,
        .state_length = tested->state_length,
        .arg = tested,
        .open = open_trainer,
        .save = save,
        .entropy = client_entropy,
        .identity = &tested->identity,
        .trust = &tested->federation->trust,
    };

    CHECK_OK(fed_client_create(&config, &tested->client));
}

void federation_begin(struct federation *federation, const struct fed_terms *terms, int n)
{
    *federation = (struct federation){ .terms = *terms, .n = n };
    federation->trust = (struct secagg_trust){ identify, federation };
    CHECK_OK(fed_memory_store_create(&federation->store));
    for (int i = 0; i < n; i++) {
        struct tested *tested = &federation->tested[i];
        uint8_t seed[SECAGG_SEED] = { (uint8_t)(i + 1) };
        tested->federation = federation;
        tested->number = i;
        snprintf(tested->name, sizeof tested->name, "p%02d", i);
        CHECK_OK(secagg_identity_make(seed, tested->identity.secret, tested->public_key));
        tested->identity.proof = tested->name;
        tested->identity.proof_bytes = strlen(tested->name);
        make_client(tested);
    }
    make_server(federation);
    for (int i = 0; i < n; i++)
        CHECK_INT(FED_TERMS, federation_post(federation, i));
}

void federation_end(struct federation *federation)
{
    for (int i = 0; i < federation->n; i++) {
        fed_client_destroy(federation->tested[i].client);
        mem_free(federation->tested[i].state);
    }
    fed_server_destroy(federation->server);
    fed_memory_store_destroy(federation->store);
    fed_terms_release(&federation->terms);
}

void federation_restart_server(struct federation *federation)
{
    fed_server_destroy(federation->server);
    federation->server = NULL;
    make_server(federation);
}

void federation_begin_another(struct federation *federation, const char *name)
{
    fed_server_destroy(federation->server);
    federation->server = NULL;
    fed_memory_store_destroy(federation->store);
    CHECK_OK(fed_memory_store_create(&federation->store));
    snprintf(federation->terms.federation, sizeof federation->terms.federation, "%s", name);
    make_server(federation);
}

enum status federation_come_back(struct federation *federation, int number)
{
    struct tested *tested = &federation->tested[number];
    struct fed_buffer reply;
    struct fed_step step;

    fed_client_destroy(tested->client);
    make_client(tested);
    fed_buffer_init(&reply, 1 << 24);
    CHECK_OK(fed_client_next(tested->client, &step));
    CHECK_OK(
        fed_server_answer(federation->server, tested->name, step.message, step.length, &reply));
    const enum status status = fed_client_reply(tested->client, reply.data, reply.length);
    fed_buffer_release(&reply);
    return status;
}

void federation_restart_client(struct federation *federation, int number)
{
    struct tested *tested = &federation->tested[number];
    struct fed_client *old = tested->client;
    void *state = NULL;

    if (tested->state) { /* the new one borrows the blob while it writes others */
        CHECK_OK(mem_alloc(tested->state_length, 1, &state));
        memcpy(state, tested->state, tested->state_length);
    }
    void *kept = tested->state;
    tested->state = state;
    make_client(tested);
    tested->state = kept;
    fed_client_destroy(old);
    while (federation_post(federation, number) != FED_TERMS)
        continue;
    mem_free(state);
}

enum fed_type federation_post(struct federation *federation, int number)
{
    struct tested *tested = &federation->tested[number];
    struct fed_buffer reply;
    struct fed_message message;
    struct fed_step step;

    if (tested->is_silent)
        return FED_TYPES;
    CHECK_OK(fed_client_next(tested->client, &step));
    if (step.what != FED_SEND)
        return FED_TYPES;
    fed_buffer_init(&reply, 1 << 24);
    CHECK_OK(
        fed_server_answer(federation->server, tested->name, step.message, step.length, &reply));
    CHECK_OK(fed_message_read(reply.data, reply.length, &message));
    CHECK_OK(fed_client_reply(tested->client, reply.data, reply.length));
    fed_buffer_release(&reply);
    return message.type;
}

void federation_turn(struct federation *federation)
{
    for (int i = 0; i < federation->n; i++)
        (void)federation_post(federation, i);
    federation->now += 1;
    CHECK_OK(fed_server_tick(federation->server));
}

void federation_run(struct federation *federation)
{
    for (int i = 0; i < 2000 && !fed_server_is_done(federation->server); i++)
        federation_turn(federation);
    CHECK(fed_server_is_done(federation->server));
}

void federation_run_for(struct federation *federation, int turns)
{
    for (int i = 0; i < turns; i++)
        federation_turn(federation);
}

double rounds_expected(double x, int rounds, int n, bool equal)
{
    for (int r = 0; r < rounds; r++) {
        double sum = 0, weight = 0;
        for (int i = 0; i < n; i++) {
            const double w = equal ? 1 : i + 1;
            sum += w * (i + 1 - x) / 4;
            weight += w;
        }
        x += sum / weight;
    }
    return x;
}

float federation_parameter(const struct federation *federation)
{
    return fed_server_parameters(federation->server)[0];
}

void federation_post_as(struct federation *federation, const char *client,
                        const struct fed_message *message, struct fed_message *answer)
{
    static struct fed_buffer bytes, reply;

    fed_buffer_release(&bytes);
    fed_buffer_release(&reply);
    fed_buffer_init(&bytes, 1 << 20);
    fed_buffer_init(&reply, 1 << 20);
    fed_message_write(message, &bytes);
    CHECK_OK(fed_server_answer(federation->server, client, bytes.data, bytes.length, &reply));
    CHECK_OK(fed_message_read(reply.data, reply.length, answer));
}

void federation_reach_training(struct federation *federation, struct fed_buffer *reply,
                               struct fed_message *message)
{
    struct fed_client *client = federation->tested[0].client;
    struct fed_step step;

    *message = (struct fed_message){ .type = FED_TYPES };
    for (int i = 0; i < 100; i++) {
        CHECK_OK(fed_client_next(client, &step));
        if (step.what == FED_SEND) {
            fed_buffer_clear(reply);
            CHECK_OK(fed_server_answer(federation->server, federation->tested[0].name,
                                       step.message, step.length, reply));
            CHECK_OK(fed_message_read(reply->data, reply->length, message));
            if (message->type == FED_TASK && message->stage == FED_TRAIN)
                return;
            CHECK_OK(fed_client_reply(client, reply->data, reply->length));
        }
        for (int other = 1; other < federation->n; other++)
            (void)federation_post(federation, other);
        CHECK_OK(fed_server_tick(federation->server));
        federation->now++;
    }
    test_fail(__FILE__, __LINE__, "participant 0 is never to train");
}

enum status federation_take_lie(struct federation *federation,
                                void (*lie)(struct fed_work *work))
{
    struct fed_message message;
    struct fed_buffer reply, payload;
    struct fed_work work;

    fed_buffer_init(&reply, 1 << 16);
    fed_buffer_init(&payload, 1 << 16);
    federation_reach_training(federation, &reply, &message);
    CHECK_OK(fed_work_read(message.payload, message.payload_length, TESTED_LENGTH, &work));
    lie(&work);
    fed_work_write(&work, &payload);
    message.payload = payload.data;
    message.payload_length = payload.length;
    struct fed_buffer told;
    fed_buffer_init(&told, 1 << 16);
    fed_message_write(&message, &told);
    const enum status status =
        fed_client_reply(federation->tested[0].client, told.data, told.length);
    fed_work_release(&work);
    fed_buffer_release(&told);
    fed_buffer_release(&reply);
    fed_buffer_release(&payload);
    return status;
}

int federation_audited(const struct federation *federation, const char *what)
{
    int count = 0;

    for (const char *at = fed_memory_store_audit(federation->store); (at = strstr(at, what));
         at++)
        count++;
    return count;
}

struct counted {
    const char *what;
    int count;
};

static enum status count_metrics(void *arg, const char *metrics)
{
    struct counted *counted = arg;

    counted->count += strstr(metrics, counted->what) != NULL;
    return STATUS_OK;
}

int federation_metrics(const struct federation *federation, const char *what)
{
    const struct fed_store store = fed_memory_store(federation->store);
    struct counted counted = { what, 0 };

    CHECK_OK(store.history(store.arg, count_metrics, &counted));
    return counted.count;
}

enum status federation_post_in_vain(struct federation *federation, int number)
{
    struct fed_buffer reply;
    struct fed_step step;

    CHECK_OK(fed_client_next(federation->tested[number].client, &step));
    CHECK_INT(FED_SEND, step.what);
    fed_buffer_init(&reply, 1 << 20);
    const enum status status = fed_server_answer(
        federation->server, federation->tested[number].name, step.message, step.length, &reply);
    fed_buffer_release(&reply);
    return status;
}
