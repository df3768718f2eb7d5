/* SPDX-License-Identifier: MIT */
/* client.c - a participant's engine: what it says next, and what it does with what it hears.
 *
 * What a message depends on is kept with the message: if the post fails, or the process ends, the same bytes go again.
 * The control variate and the error of compression that belong to an update become the participant's own when the
 * update was taken; if it was refused, they are as if it had never been made.
 */
#include "fed/client.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "fed/client_state.h"
#include "optim/optim.h"

static const char magic[8] = "tfclien4";
/* 3 has no hash of the terms. Secure rounds of 2 had another protocol: one that was under way is
 * left. */
static const char *const old_magics[] = { "tfclien2", "tfclien3" };
enum { OLDEST = 2, NEWEST = 4 };
static const double REFUSED_WAIT_S = 1;

enum { STATE_MOST = 1 << 30, MESSAGE_MOST = 1 << 30 };
/* Updates by rounds, at most. */
enum { TIMES = 10, TIMES_PRIVATE = 2 };

/* State ------------------------------------------------------------------------------------------- */

static void put_optional(struct fed_buffer *out, const float *vector, size_t length)
{
    fed_put_u8(out, vector != NULL);
    if (vector)
        fed_put_floats(out, vector, length);
}

/* The error that compression keeps, or NULL. */
static float *codec_error(const struct fed_client *client)
{
    struct codec_vector vectors[CODEC_VECTORS];
    const int n = client->codec ? codec_vectors(client->codec, vectors) : 0;

    for (int i = 0; i < n; i++) {
        if (strcmp(vectors[i].name, "error") == 0)
            return vectors[i].data;
    }
    return NULL;
}

static enum status write_state(const struct fed_client *client, struct fed_buffer *out)
{
    struct fed_buffer secagg;

    fed_put(out, magic, sizeof magic);
    fed_put_text(out, client->terms.federation);
    fed_put(out, client->terms_hash, sizeof client->terms_hash);
    fed_put_u64(out, (uint64_t)client->round);
    fed_put_u64(out, (uint64_t)client->taken_round);
    fed_put_u64(out, client->given);
    put_optional(out, client->control, client->length);
    put_optional(out, client->new_control, client->length);
    put_optional(out, codec_error(client), client->length);
    put_optional(out, client->old_error, client->length);
    put_optional(out, client->head, client->trainer.head);
    fed_put_u64(out, (uint64_t)client->secure_round);
    fed_put_u32(out, client->secure_participants);
    fed_put_u8(out, (uint8_t)client->secure_asks);
    fed_put(out, client->secure_agreed, SECAGG_AGREED);
    fed_put_u64(out, (uint64_t)client->left_round);
    fed_buffer_init(&secagg, STATE_MOST);
    enum status status =
        client->secagg ? secagg_client_save(client->secagg, &secagg) : STATUS_OK;
    fed_put_bytes(out, secagg.data, secagg.length);
    fed_buffer_release(&secagg);
    TRY(status);
    fed_put_bytes(out, client->message.data, client->message.length);
    fed_put_bytes(out, client->task_hashes.data, client->task_hashes.length);
    cohorts_write(client->cohorts, out);
    return fed_buffer_status(out);
}

static enum status save(struct fed_client *client)
{
    struct fed_buffer blob;

    if (!client->config.save)
        return STATUS_OK;
    fed_buffer_init(&blob, STATE_MOST);
    enum status status = write_state(client, &blob);
    if (status == STATUS_OK)
        status = client->config.save(client->config.arg, blob.data, blob.length);
    fed_buffer_release(&blob);
    return status;
}

/* A vector that may be there; it is allocated then. */
static enum status take_optional(struct fed_reader *reader, float **vector, size_t length)
{
    const uint8_t is_there = fed_take_u8(reader);

    if (!is_there)
        return STATUS_OK;
    if (is_there != 1 || reader->length - reader->at < length * sizeof(float)) {
        reader->failed = true;
        return STATUS_OK;
    }
    if (!*vector)
        TRY(mem_alloc(length, sizeof(float), vector));
    fed_take_floats(reader, *vector, length);
    return STATUS_OK;
}

/* A round in which a peer is not believed any more is left: to refuse the whole state would have
 * its owner throw away the records in it. */
static enum status load_secagg(struct fed_client *client, const void *bytes, size_t length)
{
    if (length == 0)
        return STATUS_OK;
    TRY(client_secure_shape(client));
    const enum status status =
        secagg_client_load(&client->shape.config, client->config.identity, client->config.trust,
                           bytes, length, &client->secagg);
    if (status != STATUS_MISMATCH)
        return status;
    log_line(LOG_WARNING, "round %lld is left: %s", (long long)client->secure_round,
             status_message());
    if (client->left_round < client->secure_round)
        client->left_round = client->secure_round;
    return STATUS_OK;
}

static enum status take_cohorts(struct fed_client *client, struct fed_reader *reader)
{
    size_t length;
    const uint8_t *hashes = fed_take_bytes(reader, &length);

    if (length % SECAGG_AGREED != 0)
        reader->failed = true;
    fed_buffer_clear(&client->task_hashes);
    fed_put(&client->task_hashes, hashes, length);
    return cohorts_read(client->cohorts, reader);
}

/* Of which version is the state? 0: of none. */
static int take_version(struct fed_reader *reader)
{
    const uint8_t *head = fed_take(reader, sizeof magic);

    if (!head)
        return 0;
    for (int version = OLDEST; version < NEWEST; version++) {
        if (memcmp(head, old_magics[version - OLDEST], sizeof magic) == 0)
            return version;
    }
    return memcmp(head, magic, sizeof magic) == 0 ? NEWEST : 0;
}

static void skip_optional(struct fed_reader *reader)
{
    if (fed_take_u8(reader) == 0)
        return;
    (void)fed_take(reader, fed_take_u32(reader) * sizeof(float));
}

/* The state is of another federation: this one begins anew. But it is the coordinator that names a
 * federation, so the sets whose sums were signed are kept. */
static enum status keep_cohorts(struct fed_client *client, struct fed_reader *reader,
                                int version)
{
    size_t length;

    if (version == OLDEST)
        return STATUS_OK;
    (void)fed_take(reader, 3 * 8); /* rounds, updates */
    for (int i = 0; i < 5; i++)    /* vectors */
        skip_optional(reader);
    (void)fed_take(reader, 8 + 4 + 1 + SECAGG_AGREED + 8); /* the secure round */
    for (int i = 0; i < 3; i++) /* its secrets, the message, hashes of tasks */
        (void)fed_take_bytes(reader, &length);
    TRY(cohorts_read(client->cohorts, reader));
    TRY(fed_reader_end(reader, "saved state of another federation"));
    log_line(LOG_INFO, "the state is of another federation, and its record of sums is kept: "
                       "where the data are others, join with another --state");
    return STATUS_OK;
}

/* What an earlier session left, once the terms say how long vectors are. */
static enum status load_state(struct fed_client *client)
{
    const struct fed_client_config *config = &client->config;
    struct fed_reader reader = fed_reader(config->state, config->state_length);
    const int version = take_version(&reader);
    const bool is_old = version == OLDEST;
    char federation[FED_TEXT];
    float *error = codec_error(client), *loaded = NULL;
    size_t secagg_length, message_length;

    if (version == 0)
        return FAIL(STATUS_CORRUPT, "the saved state is none of this program");
    fed_take_text(&reader, federation, sizeof federation);
    const uint8_t *hash =
        version == NEWEST ? fed_take(&reader, sizeof client->terms_hash) : NULL;
    if (!reader.failed && strcmp(federation, client->terms.federation) != 0)
        return keep_cohorts(client, &reader, version);
    if (hash && memcmp(hash, client->terms_hash, sizeof client->terms_hash) != 0)
        return FAIL(STATUS_MISMATCH,
                    "the coordinator has other terms than it had when this participant joined "
                    "the federation %s",
                    federation);
    client->round = (int64_t)fed_take_u64(&reader);
    client->taken_round = (int64_t)fed_take_u64(&reader);
    client->given = fed_take_u64(&reader);
    TRY(take_optional(&reader, &client->control, client->length));
    TRY(take_optional(&reader, &client->new_control, client->length));
    TRY(take_optional(&reader, &loaded, client->length));
    if (error && loaded)
        memcpy(error, loaded, client->length * sizeof *error);
    mem_free(loaded);
    TRY(take_optional(&reader, &client->old_error, client->length));
    TRY(take_optional(&reader, &client->head, client->trainer.head));
    client->secure_round = (int64_t)fed_take_u64(&reader);
    client->secure_participants = fed_take_u32(&reader);
    const uint8_t asks = fed_take_u8(&reader);
    reader.failed |= asks >= SECURE_ASKS;
    client->secure_asks = reader.failed ? SECURE_UPDATE : (enum secure_asks)asks;
    const uint8_t *agreed = is_old ? NULL : fed_take(&reader, SECAGG_AGREED);
    if (agreed)
        memcpy(client->secure_agreed, agreed, SECAGG_AGREED);
    client->left_round = (int64_t)fed_take_u64(&reader);
    const uint8_t *secagg = fed_take_bytes(&reader, &secagg_length);
    const uint8_t *message = fed_take_bytes(&reader, &message_length);
    if (!is_old)
        TRY(take_cohorts(client, &reader));
    TRY(fed_reader_end(&reader, "saved state"));
    if (is_old && secagg_length > 0) {
        if (client->left_round < client->secure_round)
            client->left_round = client->secure_round;
        return STATUS_OK;
    }
    TRY(load_secagg(client, secagg, secagg_length));
    if (message_length) {
        fed_buffer_clear(&client->message);
        fed_put(&client->message, message, message_length);
        client->phase = PHASE_GIVE;
    }
    return fed_buffer_status(&client->message);
}

/* Terms ------------------------------------------------------------------------------------------- */

static enum status open_trainer(struct fed_client *client)
{
    const struct fed_terms *terms = &client->terms;
    struct codec_config codec;

    if (client->config.check)
        TRY(client->config.check(client->config.arg, terms));
    if (terms->secure && (!client->config.identity || !client->config.trust))
        return FAIL(STATUS_MISMATCH,
                    "rounds are secure, and there is no identity to sign with");
    TRY(client->config.open(client->config.arg, terms, &client->trainer));
    client->length = client->trainer.length - (terms->personal_head ? client->trainer.head : 0);
    if (terms->personal_head && (client->trainer.head == 0 || client->length == 0))
        return FAIL(STATUS_MISMATCH, "the model has no last layer to keep apart");
    client->algorithm = fed_algorithm_find(terms->algorithm);
    if (client->algorithm->n_vectors > 1)
        TRY(mem_alloc(client->length, sizeof(float), &client->control));
    if (*terms->compress) {
        TRY(codec_parse(terms->compress, &codec));
        TRY(codec_create(&codec, &(struct codec_layout){ 0 }, client->length, &client->codec));
    }
    return STATUS_OK;
}

static enum status take_terms(struct fed_client *client, const struct fed_message *message)
{
    struct sha256 hash;

    if (client->has_terms) { /* hello was said again: the coordinator must mean the same */
        uint8_t again[SHA256_BYTES];
        sha256_init(&hash);
        sha256_add(&hash, message->payload, message->payload_length);
        sha256_end(&hash, again);
        if (memcmp(again, client->terms_hash, sizeof again) != 0)
            return FAIL(STATUS_MISMATCH, "the coordinator has other terms than before");
        client->phase = PHASE_ASK;
        return STATUS_OK;
    }
    TRY(fed_terms_read((const char *)message->payload, message->payload_length,
                       &client->terms));
    client->has_terms = true;
    sha256_init(&hash);
    sha256_add(&hash, message->payload, message->payload_length);
    sha256_end(&hash, client->terms_hash);
    TRY(open_trainer(client));
    client->phase = PHASE_ASK;
    return client->config.state ? load_state(client) : STATUS_OK;
}

/* Training ---------------------------------------------------------------------------------------- */

/* The parameters that came, with the own head behind them. */
static enum status take_parameters(struct fed_client *client, const float *came)
{
    if (!client->parameters)
        TRY(mem_alloc(client->trainer.length, sizeof(float), &client->parameters));
    memcpy(client->parameters, came, client->length * sizeof(float));
    if (!client->terms.personal_head)
        return STATUS_OK;
    if (!client->head) { /* the first: as the coordinator's seed makes it */
        TRY(mem_alloc(client->trainer.head, sizeof(float), &client->head));
        TRY(client->trainer.initial(client->trainer.arg, client->terms.seed, client->head));
    }
    memcpy(client->parameters + client->length, client->head,
           client->trainer.head * sizeof(float));
    return STATUS_OK;
}

/* SCAFFOLD: what every local step is shifted by, c - c_i; the head has none. */
static enum status make_shift(const struct fed_client *client, const float *server, float **out)
{
    TRY(mem_alloc(client->trainer.length, sizeof(float), out));
    for (size_t i = 0; i < client->length; i++)
        (*out)[i] = server[i] - client->control[i];
    return STATUS_OK;
}

/* c_i+ = c_i - c + (x - y) / (K lr), the paper's option II; change becomes c_i+ - c_i. */
static enum status move_control(struct fed_client *client, const struct fed_work *work,
                                const float *trained, uint64_t steps, float *change)
{
    const float *server = work->vector[1];
    const double by = (double)steps * work->lr;

    if (!client->new_control)
        TRY(mem_alloc(client->length, sizeof(float), &client->new_control));
    for (size_t i = 0; i < client->length; i++) {
        const double moved = ((double)client->parameters[i] - (double)trained[i]) / by;
        change[i] = (float)(moved - (double)server[i]);
        client->new_control[i] = client->control[i] + change[i];
    }
    return STATUS_OK;
}

/* Trains from work->vector[0]; `trained` has the parameters afterwards, or the gradient. */
static enum status train(struct fed_client *client, const struct fed_work *work, float *trained)
{
    struct fed_work local = *work;
    float *shift = NULL;

    TRY(take_parameters(client, work->vector[0]));
    local.vector[0] = client->parameters;
    local.length = client->trainer.length;
    if (client->control)
        TRY(make_shift(client, work->vector[1], &shift));
    enum status status =
        client->trainer.train(client->trainer.arg, &local, shift, trained, &client->tally);
    mem_free(shift);
    if (status == STATUS_OK && client->trainer.evaluate)
        status =
            client->trainer.evaluate(client->trainer.arg, client->parameters, &client->tally);
    if (status == STATUS_OK && client->head)
        memcpy(client->head, trained + client->length, client->trainer.head * sizeof(float));
    return status;
}

/* What is given: the difference, and the change of the control variate. vectors are allocated. */
static enum status make_update(struct fed_client *client, const struct fed_work *work,
                               struct fed_update *out)
{
    float *trained;

    *out = (struct fed_update){ .n_vectors = client->algorithm->n_vectors,
                                .length = client->length };
    TRY(mem_alloc(client->trainer.length, sizeof(float), &trained));
    enum status status = train(client, work, trained);
    for (int i = 0; i < out->n_vectors && status == STATUS_OK; i++)
        status = mem_alloc(client->length, sizeof(float), &out->vector[i]);
    if (status == STATUS_OK && client->control)
        status = move_control(client, work, trained, client->tally.steps, out->vector[1]);
    if (status == STATUS_OK) {
        for (size_t i = 0; i < client->length; i++)
            out->vector[0][i] = work->whole ? trained[i] : trained[i] - client->parameters[i];
        out->tally = client->tally;
        if (client->terms.max_norm > 0)
            dp_clip(out->vector[0], client->length, client->terms.max_norm);
    }
    mem_free(trained);
    return status;
}

/* Tables are standardized by what all have, once that is known: by the same numbers in all
 * rounds. Others that are agreed on in a later round would leave this participant's data as they
 * are, and its update would be of another task than all have signed. */
enum status client_standardize(struct fed_client *client, const struct fed_work *work)
{
    const size_t count = client->trainer.statistics;

    if (work->asks_statistics)
        return STATUS_OK;
    if (client->statistics &&
        (work->n_statistics != count ||
         memcmp(work->statistics, client->statistics, count * sizeof *work->statistics) != 0))
        return FAIL(STATUS_MISMATCH,
                    "the coordinator sends other statistics than before, which "
                    "the data here are standardized by already: do not trust "
                    "it");
    if (client->statistics || work->n_statistics == 0)
        return STATUS_OK;
    if (!client->trainer.standardize || count != work->n_statistics)
        return FAIL(STATUS_MISMATCH, "the coordinator has %zu statistics, the data here %zu",
                    work->n_statistics, count);
    TRY(client->trainer.standardize(client->trainer.arg, work->statistics));
    TRY(mem_alloc(count, sizeof *client->statistics, &client->statistics));
    memcpy(client->statistics, work->statistics, count * sizeof *client->statistics);
    return STATUS_OK;
}

enum status client_sum_rows(struct fed_client *client, struct fed_update *out)
{
    const struct fed_trainer *trainer = &client->trainer;

    *out = (struct fed_update){ .n_vectors = 1, .length = trainer->statistics };
    if (!client->terms.standardize || !trainer->sum_rows || trainer->statistics == 0)
        return FAIL(STATUS_MISMATCH, "the coordinator asks for statistics, which the terms do "
                                     "not say or the data here do not have");
    TRY(mem_alloc(trainer->statistics, sizeof(float), &out->vector[0]));
    out->tally.samples = client->config.samples;
    return trainer->sum_rows(trainer->arg, out->vector[0]);
}

static enum status answer_statistics(struct fed_client *client, struct fed_buffer *out)
{
    struct fed_update update;

    enum status status = client_sum_rows(client, &update);
    if (status == STATUS_OK)
        status = fed_update_write(&update, NULL, out);
    fed_update_release(&update);
    return status;
}

static enum status answer_plain(struct fed_client *client, const struct fed_work *work,
                                struct fed_buffer *out)
{
    struct fed_update update;

    enum status status = make_update(client, work, &update);
    if (status == STATUS_OK && client->codec) {
        const float *error = codec_error(client);
        if (error && !client->old_error)
            status = mem_alloc(client->length, sizeof(float), &client->old_error);
        if (error && status == STATUS_OK)
            memcpy(client->old_error, error, client->length * sizeof *error);
    }
    if (status == STATUS_OK)
        status = fed_update_write(&update, client->codec, out);
    fed_update_release(&update);
    return status;
}

/* Is it the terms' rate after some number of rounds, at most so many as there were? Which of them counted only the
 * coordinator knows. */
static bool is_rate(const struct fed_terms *terms, double lr, int64_t most)
{
    const double first =
        isfinite(terms->lr) ? terms->lr : optim_find(terms->optimizer)->default_lr;
    const double decay = terms->lr_decay;

    if (first == 0 || decay >= 1 || lr == first)
        return lr == first;
    const double rounds = round(log(lr / first) / log(decay));
    const double expected = first * pow(decay, rounds);
    return rounds >= 0 && rounds <= (double)most &&
           fabs(lr - expected) <= 1e-9 * fabs(expected);
}

/* Does the task fit the terms? */
static enum status check_work(const struct fed_client *client, const struct fed_work *work,
                              int64_t round)
{
    if (!work->asks_statistics && work->n_vectors != client->algorithm->n_vectors)
        return FAIL(STATUS_MISMATCH, "the task has %d vectors, the terms say %d",
                    work->n_vectors, client->algorithm->n_vectors);
    if (client->terms.secure && work->secure_length == 0)
        return FAIL(STATUS_MISMATCH, "the coordinator asks for an update in the clear, the "
                                     "terms say secure rounds");
    if (!work->asks_statistics && !is_rate(&client->terms, work->lr, round))
        return FAIL(STATUS_MISMATCH,
                    "the task has the rate %g, which the terms have after no round up to %lld",
                    work->lr, (long long)round);
    return STATUS_OK;
}

/* Counts the privacy of an update. The name of a round's secrets says nothing of them. */
static enum status spend(const struct fed_client *client, int64_t round)
{
    uint8_t name[SECAGG_SEED];
    char text[17];

    if (!client->config.spend)
        return STATUS_OK;
    if (!client->terms.secure || !client->secagg)
        return client->config.spend(client->config.arg, round, NULL);
    secagg_client_derive(client->secagg, "spending", name);
    for (int i = 0; i < 8; i++)
        snprintf(text + 2 * i, 3, "%02x", name[i]);
    return client->config.spend(client->config.arg, round, text);
}

static enum status answer_work(struct fed_client *client, const struct fed_work *work,
                               int64_t round, struct fed_buffer *out)
{
    TRY(check_work(client, work, round));
    if (!client->terms.secure) /* else once it is known to be the task that was announced */
        TRY(client_standardize(client, work));
    if (!work->asks_statistics)
        TRY(spend(client, round));
    if (client->terms.secure)
        return client_secure_train(client, round, work, out);
    return work->asks_statistics ? answer_statistics(client, out)
                                 : answer_plain(client, work, out);
}

static enum status answer_training(struct fed_client *client, const struct fed_message *message,
                                   struct fed_buffer *out)
{
    struct fed_work work;

    TRY(fed_work_read(message->payload, message->payload_length, client->length, &work));
    const enum status status = answer_work(client, &work, message->round, out);
    fed_work_release(&work);
    return status;
}

enum status client_make_update(struct fed_client *client, const struct fed_work *work,
                               struct fed_update *out)
{
    return make_update(client, work, out);
}

/* Tasks ------------------------------------------------------------------------------------------- */

static enum status sleep_for(struct fed_client *client, double seconds)
{
    client->phase = PHASE_SLEEP;
    client->seconds = seconds;
    return STATUS_OK;
}

/* The update under way was taken, or never will be. */
static void settle(struct fed_client *client, bool taken)
{
    float *error = codec_error(client);

    if (taken && client->new_control)
        memcpy(client->control, client->new_control, client->length * sizeof(float));
    if (!taken && error && client->old_error)
        memcpy(error, client->old_error, client->length * sizeof(float));
    mem_free(client->new_control);
    mem_free(client->old_error);
    client->new_control = client->old_error = NULL;
}

/* Statistics are an update, in secure rounds two. */
uint64_t fed_client_most(const struct fed_terms *terms)
{
    const uint64_t rounds =
        (uint64_t)terms->rounds + terms->standardize * (terms->secure ? 2U : 1U);
    const bool spends = *terms->dp || *terms->dp_sgd;

    return (spends ? TIMES_PRIVATE : TIMES) * rounds;
}

/* One update a round, and no more in all than lost rounds explain: what a participant spends is not the coordinator's to
 * say. */
static enum status check_count(const struct fed_client *client, int64_t round)
{
    if (round <= client->taken_round)
        return FAIL(
            STATUS_MISMATCH,
            "the coordinator asks for another update of round %lld, of which it has one",
            (long long)round);
    if (client->given >= fed_client_most(&client->terms))
        return FAIL(
            STATUS_MISMATCH,
            "the coordinator has had %llu updates and asks for more, the terms say %lld "
            "rounds, and not so many are lost",
            (unsigned long long)client->given, (long long)client->terms.rounds);
    return STATUS_OK;
}

static enum status take_task(struct fed_client *client, const struct fed_message *message)
{
    struct fed_buffer answer;

    if (message->round < client->round)
        return FAIL(STATUS_MISMATCH, "the coordinator goes back from round %lld to %lld",
                    (long long)client->round, (long long)message->round);
    if (!client->terms.secure && message->stage != FED_TRAIN)
        return FAIL(STATUS_MISMATCH, "the coordinator asks for %s, rounds are not secure",
                    fed_stage_name(message->stage));
    if (message->stage == FED_TRAIN)
        TRY(check_count(client, message->round));
    if (message->round <= client->left_round)
        return sleep_for(client, REFUSED_WAIT_S);
    fed_buffer_init(&answer, MESSAGE_MOST);
    enum status status = message->stage == FED_TRAIN
                             ? answer_training(client, message, &answer)
                             : client_secure_answer(client, message, &answer);
    const bool is_left = message->round == client->left_round;
    if (status == STATUS_OK && !is_left) {
        struct fed_message give = { .type = FED_GIVE,
                                    .round = message->round,
                                    .stage = message->stage,
                                    .payload = answer.data,
                                    .payload_length = answer.length };
        snprintf(give.client, sizeof give.client, "%s", client->config.name);
        fed_buffer_clear(&client->message);
        fed_message_write(&give, &client->message);
        status = fed_buffer_status(&client->message);
    }
    fed_buffer_release(&answer);
    if (status != STATUS_OK || is_left)
        settle(client, false);
    TRY(status);
    client->round = message->round;
    client->given += message->stage == FED_TRAIN; /* that it left is an answer, too */
    client->phase = PHASE_GIVE;
    if (is_left)
        TRY(sleep_for(client, REFUSED_WAIT_S));
    return save(client);
}

static enum status take_end(struct fed_client *client, const struct fed_message *message)
{
    struct fed_work work;

    TRY(fed_work_read(message->payload, message->payload_length, client->length, &work));
    enum status status = client_standardize(client, &work);
    if (status == STATUS_OK && work.asks_statistics)
        status = FAIL(STATUS_CORRUPT, "the last message has no parameters");
    if (status == STATUS_OK)
        status = take_parameters(client, work.vector[0]);
    fed_work_release(&work);
    client->phase = PHASE_END;
    return status;
}

/* The message was taken, or never will be. */
static enum status take_verdict(struct fed_client *client, bool accepted)
{
    struct fed_message given;

    TRY(fed_message_read(client->message.data, client->message.length, &given));
    settle(client, accepted && given.stage == FED_TRAIN);
    if (accepted && given.stage == FED_TRAIN)
        client->taken_round = given.round;
    fed_buffer_clear(&client->message);
    client->phase = accepted ? PHASE_ASK : PHASE_SLEEP;
    client->seconds = REFUSED_WAIT_S;
    return save(client);
}

/* A refusal of what was said. Who is not known says hello again. */
static enum status take_refusal(struct fed_client *client, const struct fed_message *message)
{
    if (client->phase == PHASE_HELLO)
        return FAIL(STATUS_MISMATCH, "the coordinator refuses: %s", message->why);
    log_line(LOG_INFO, "the coordinator refuses: %s", message->why);
    if (client->phase == PHASE_GIVE)
        return take_verdict(client, false);
    client->phase = PHASE_HELLO;
    return STATUS_OK;
}

enum status fed_client_reply(struct fed_client *client, const void *reply, size_t length)
{
    struct fed_message message;

    TRY(fed_message_read(reply, length, &message));
    if (message.type == FED_REFUSED)
        return take_refusal(client, &message);
    if (client->phase == PHASE_HELLO && message.type == FED_TERMS)
        return take_terms(client, &message);
    if (client->phase == PHASE_GIVE && message.type == FED_OK)
        return take_verdict(client, true);
    if (client->phase == PHASE_ASK && message.type == FED_WAIT)
        return sleep_for(client, message.seconds);
    if (client->phase == PHASE_ASK && message.type == FED_TASK)
        return take_task(client, &message);
    if (client->phase == PHASE_ASK && message.type == FED_DONE)
        return take_end(client, &message);
    return FAIL(STATUS_CORRUPT, "the coordinator says %s where that is no answer",
                fed_type_name(message.type));
}

enum status fed_client_next(struct fed_client *client, struct fed_step *out)
{
    struct fed_message message = { .type = FED_ASK };

    *out = (struct fed_step){ .what = FED_SEND };
    if (client->phase == PHASE_END) {
        out->what = FED_END;
        return STATUS_OK;
    }
    if (client->phase == PHASE_SLEEP) {
        *out = (struct fed_step){ .what = FED_SLEEP, .seconds = client->seconds };
        client->phase = PHASE_ASK;
        return STATUS_OK;
    }
    struct fed_buffer *buffer = client->phase == PHASE_GIVE ? &client->message : &client->small;
    if (client->phase != PHASE_GIVE) {
        snprintf(message.client, sizeof message.client, "%s", client->config.name);
        if (client->phase == PHASE_HELLO) {
            message.type = FED_HELLO;
            message.samples = client->config.samples;
            message.payload = (const uint8_t *)client->config.about;
            message.payload_length = strlen(client->config.about);
        }
        fed_buffer_clear(buffer);
        fed_message_write(&message, buffer);
    }
    out->message = buffer->data;
    out->length = buffer->length;
    return fed_buffer_status(buffer);
}

enum status fed_client_create(const struct fed_client_config *config, struct fed_client **out)
{
    struct fed_client *client;

    if (!fed_name_is_good(config->name))
        return FAIL(STATUS_USAGE,
                    "%.64s: a participant's name has letters, digits, '.', '-' and '_' alone",
                    config->name);
    TRY(mem_alloc(1, sizeof *client, &client));
    client->config = *config;
    client->round = client->taken_round = client->secure_round = client->left_round = -1;
    fed_buffer_init(&client->message, MESSAGE_MOST);
    fed_buffer_init(&client->small, FED_ABOUT + 1024);
    fed_buffer_init(&client->task_hashes, STATE_MOST);
    const enum status status = cohorts_create(&client->cohorts);
    if (status != STATUS_OK) {
        fed_client_destroy(client);
        return status;
    }
    *out = client;
    return STATUS_OK;
}

void fed_client_destroy(struct fed_client *client)
{
    if (!client)
        return;
    if (client->has_terms)
        fed_terms_release(&client->terms);
    secagg_client_destroy(client->secagg);
    codec_destroy(client->codec);
    fed_buffer_release(&client->message);
    fed_buffer_release(&client->small);
    fed_buffer_release(&client->task_hashes);
    cohorts_destroy(client->cohorts);
    mem_free(client->parameters);
    mem_free(client->statistics);
    mem_free(client->control);
    mem_free(client->new_control);
    mem_free(client->old_error);
    mem_free(client->head);
    mem_free(client);
}

void fed_client_rest(struct fed_client *client)
{
    mem_free(client->parameters);
    client->parameters = NULL;
    if (client->phase == PHASE_GIVE)
        return;
    fed_buffer_release(&client->message);
    fed_buffer_init(&client->message, MESSAGE_MOST);
}

const struct fed_terms *fed_client_terms(const struct fed_client *client)
{
    return client->has_terms ? &client->terms : NULL;
}

int64_t fed_client_round(const struct fed_client *client)
{
    return client->round;
}

const struct fed_tally *fed_client_tally(const struct fed_client *client)
{
    return &client->tally;
}

const float *fed_client_parameters(const struct fed_client *client)
{
    return client->parameters;
}
