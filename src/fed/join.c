/* SPDX-License-Identifier: MIT */
/* join.c - a client engine behind HTTPS.
 *
 * Before the engine is made the terms are fetched and held against the policy, as the engine's first message says how many
 * samples there are, and what a sample is the terms say. What cannot be reached is tried again after a pause that doubles.
 */
#include "fed/join.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "fed/dp_sgd.h"
#include "fed/https_client.h"
#include "fed/local.h"
#include "fed/spending.h"
#include "fed/start.h"
#include "fed/stop.h"
#include "fed/trust.h"

enum {
    SILENT_SECONDS = 120,
    STATE_BYTES = 1 << 30,
    TRIES_OF_NONSENSE = 3,
    PATH_MOST = 1 << 12
};
static const size_t reply_most = (size_t)1 << 31;
static const double first_pause_s = 0.1, longest_pause_s = 30;

struct join {
    const struct fed_join_config *config;
    char name[FED_NAME];
    struct fed_trust *trust;
    struct https_client *https;
    struct fed_terms terms;
    bool has_terms;
    uint64_t samples; /* here */
    struct fed_trainer trainer;
    uint8_t *certificate;
    struct secagg_identity identity;
    struct secagg_trust secagg;
    struct fed_client *client;
    char *state; /* what it saved before a restart; its client reads it when terms come */
    size_t state_length;
    double pause_s, silent_since; /* silent_since 0: it answers */
    int lock;                     /* of the state; -1: not taken */
};

static void tell(const struct join *join, const char *format, ...) PRINTF_LIKE(2, 3);
static void tell(const struct join *join, const char *format, ...)
{
    char line[512];
    va_list list;

    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    join->config->tell(join->config->arg, line);
}

/* What the engine asks of its surroundings ------------------------------------------------------ */

static enum status draw(void *arg, void *out, size_t bytes)
{
    (void)arg;
    randombytes_buf(out, bytes);
    return STATUS_OK;
}

static enum status save(void *arg, const void *state, size_t length)
{
    const struct join *join = arg;
    const mode_t before = umask(077);
    const enum status status = file_replace(join->config->state, state, length);

    umask(before);
    return status;
}

/* Counts a release in this participant's own record, where the terms have noise of that kind. */
static enum status spend_on(const struct join *join, int64_t round, const char *keys,
                            bool is_record)
{
    const uint64_t passes = fed_local_passes(&join->terms, (int64_t)join->samples);
    struct fed_release release = { .federation = join->terms.federation,
                                   .keys = keys,
                                   .is_record = is_record,
                                   .epsilon =
                                       fed_policy_epsilon(join->config->policy, is_record),
                                   .delta = fed_policy_delta(&join->terms) };

    if (!fed_release_of(&join->terms, is_record, passes, &release.entry))
        return STATUS_OK;
    release.entry.round = (uint64_t)round;
    const enum status status = fed_spending_add(join->config->ledger, &release);
    if (status != STATUS_STOPPED)
        return status;
    char why[512]; /* nobody stopped it by hand, and the same command would be refused again */
    snprintf(why, sizeof why, "%s", status_message());
    return status_set(STATUS_MISMATCH, why);
}

static enum status spend(void *arg, int64_t round, const char *keys)
{
    TRY(spend_on(arg, round, keys, false));
    return spend_on(arg, round, keys, true);
}

/* Peers are identified by certificate and by the policy's list; the coordinator's claims are ignored. */
static enum status identify(void *context, const void *proof, size_t bytes,
                            uint8_t public_key[SECAGG_PUBLIC])
{
    const struct join *join = context;
    struct fed_identity who;

    TRY(fed_trust_check(join->trust, proof, bytes, time(NULL), &who));
    if (who.role != FED_ROLE_PARTICIPANT || !who.has_sign)
        return FAIL(STATUS_MISMATCH, "certificate of %s: is not one of a participant",
                    who.name);
    TRY(fed_policy_check_peer(join->config->policy, &who));
    memcpy(public_key, who.sign, SECAGG_PUBLIC);
    return STATUS_OK;
}

/* The terms that the engine was told must be those that were agreed to. */
static enum status check_terms(void *arg, const struct fed_terms *terms)
{
    const struct join *join = arg;
    struct strbuf agreed, told;

    strbuf_init(&agreed, 2 * (size_t)FED_GRAPH_TEXT);
    strbuf_init(&told, 2 * (size_t)FED_GRAPH_TEXT);
    fed_terms_print(&join->terms, &agreed);
    fed_terms_print(terms, &told);
    enum status status = strbuf_status(&agreed);
    if (status == STATUS_OK)
        status = strbuf_status(&told);
    if (status == STATUS_OK && strcmp(agreed.text, told.text) != 0)
        status = FAIL(STATUS_MISMATCH, "%s: its terms are not those it told before",
                      join->config->url);
    strbuf_release(&agreed);
    strbuf_release(&told);
    return status;
}

static enum status give_trainer(void *arg, const struct fed_terms *terms,
                                struct fed_trainer *out)
{
    const struct join *join = arg;

    (void)terms;
    *out = join->trainer;
    return STATUS_OK;
}

/* Asking ------------------------------------------------------------------------------------------- */

/* Waits before the next try. STATUS_PEER_LOST when it has been silent for too long. */
static enum status wait_for_it(struct join *join)
{
    const double limit = join->config->give_up_s;
    char why[256];

    snprintf(why, sizeof why, "%s", status_message());
    if (join->silent_since == 0) {
        join->silent_since = clock_seconds();
        tell(join, "%s; trying again", why);
    }
    if (limit > 0 && clock_seconds() - join->silent_since > limit)
        return FAIL(STATUS_PEER_LOST, "given up after %.0f s: %s", limit, why);
    join->pause_s = fmin(fmax(2 * join->pause_s, first_pause_s), longest_pause_s);
    /* Participants that lost it together do not come back together. */
    const double spread = 0.5 + (double)randombytes_uniform(1000) / 1000;
    if (!fed_stop_sleep(join->pause_s * spread))
        return FAIL(fed_stop_status(), "stopped; the same command goes on");
    return STATUS_OK;
}

/* Asks until it answers. */
static enum status ask(struct join *join, const char *path, const void *body, size_t length,
                       struct fed_buffer *reply)
{
    for (;;) {
        const enum status status = https_client_ask(join->https, path, body, length, reply);
        if (status == STATUS_OK) {
            if (join->silent_since > 0)
                tell(join, "the coordinator is there again");
            join->silent_since = join->pause_s = 0;
            return STATUS_OK;
        }
        if (status != STATUS_PEER_LOST)
            return status;
        TRY(wait_for_it(join));
    }
}

static enum status fetch_terms(struct join *join)
{
    struct fed_buffer reply;

    fed_buffer_init(&reply, reply_most);
    enum status status = ask(join, "/terms", NULL, 0, &reply);
    if (status == STATUS_OK)
        status = fed_terms_read((const char *)reply.data, reply.length, &join->terms);
    join->has_terms = status == STATUS_OK;
    fed_buffer_release(&reply);
    TRY(status);
    TRY(fed_terms_check(&join->terms));
    if (join->config->policy)
        TRY(fed_policy_check(join->config->policy, &join->terms));
    return STATUS_OK;
}

/* Life --------------------------------------------------------------------------------------------- */

static enum status read_identity(struct join *join)
{
    uint8_t seed[FED_SIGN_SEED], public_key[SECAGG_PUBLIC];
    struct fed_identity who;
    size_t length;

    TRY(fed_certificate_read(join->config->cert, &join->certificate, &length));
    TRY(fed_trust_check(join->trust, join->certificate, length, time(NULL), &who));
    if (who.role != FED_ROLE_PARTICIPANT)
        return FAIL(STATUS_USAGE, "%s: is a certificate of a %s; participants join",
                    join->config->cert, fed_role_name(who.role));
    snprintf(join->name, sizeof join->name, "%s", who.name);
    TRY(fed_sign_key_read(join->config->identity, seed));
    const enum status status = secagg_identity_make(seed, join->identity.secret, public_key);
    sodium_memzero(seed, sizeof seed);
    TRY(status);
    if (memcmp(public_key, who.sign, SECAGG_PUBLIC) != 0)
        return FAIL(STATUS_MISMATCH, "%s: is not the key that %s names", join->config->identity,
                    join->config->cert);
    join->identity.proof = join->certificate;
    join->identity.proof_bytes = length;
    join->secagg = (struct secagg_trust){ .identify = identify, .context = join };
    return STATUS_OK;
}

/* Two that go on from one state would each undo what the other saved. The state is replaced whenever it is saved, so a file
 * beside it carries the lock, and stays. */
static enum status lock_state(struct join *join)
{
    const char *state = join->config->state;
    struct strbuf path;

    strbuf_init(&path, PATH_MOST);
    strbuf_printf(&path, "%s.lock", state);
    enum status status = strbuf_status(&path);
    if (status == STATUS_OK) {
        join->lock = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (join->lock < 0)
            status = FAIL(STATUS_USAGE, "%s: the state cannot be kept there: %s", state,
                          strerror(errno));
        else if (flock(join->lock, LOCK_EX | LOCK_NB) != 0)
            status = FAIL(STATUS_USAGE, "%s: another participant runs on this state", state);
    }
    strbuf_release(&path);
    return status;
}

static enum status open_trust(struct join *join)
{
    char *revoked;

    /* A list of revoked certificates beside the authority's is heeded; only a file that is not there is no list. */
    TRY(fed_beside(join->config->authority, "revoked.pem", &revoked));
    const bool is_absent = access(revoked, F_OK) != 0 && errno == ENOENT;
    const enum status status =
        fed_trust_create(join->config->authority, is_absent ? NULL : revoked, &join->trust);
    mem_free(revoked);
    return status;
}

/* What --dp-sgd promises to each sample here, if this participant is in every round. */
static enum status tell_privacy(const struct join *join, uint64_t samples)
{
    const struct fed_terms *terms = &join->terms;
    double epsilon;

    if (!*terms->dp_sgd)
        return STATUS_OK;
    const uint64_t passes = fed_local_passes(terms, (int64_t)samples) * (uint64_t)terms->rounds;
    TRY(fed_dp_sgd_epsilon(terms->dp_sgd, passes, terms->delta, &epsilon));
    tell(join, "a sample here spends epsilon %.3g at delta %g in all rounds, in %llu steps",
         epsilon, terms->delta, (unsigned long long)passes);
    return STATUS_OK;
}

static enum status make_client(struct join *join)
{
    uint64_t samples = 0;
    const char *about = "{}";

    TRY(join->config->open(join->config->arg, join->name, &join->terms, &join->trainer,
                           &samples, &about));
    join->samples = samples;
    TRY(fed_policy_check_records(join->config->policy, &join->terms,
                                 fed_local_passes(&join->terms, (int64_t)samples)));
    TRY(tell_privacy(join, samples));
    if (file_exists(join->config->state))
        TRY(file_read(join->config->state, STATE_BYTES, &join->state, &join->state_length));
    const struct fed_client_config config = { .name = join->name,
                                              .samples = samples,
                                              .about = about,
                                              .state = join->state,
                                              .state_length = join->state_length,
                                              .arg = join,
                                              .check = check_terms,
                                              .open = give_trainer,
                                              .save = save,
                                              .entropy = draw,
                                              .spend = spend,
                                              .identity = &join->identity,
                                              .trust = &join->secagg };
    return fed_client_create(&config, &join->client);
}

/* Posts a message and hands its reply to the engine, which trains where that is a task. */
static enum status exchange(struct join *join, const struct fed_step *step)
{
    struct fed_buffer reply;
    enum status status = STATUS_OK;

    for (int i = 0; i < TRIES_OF_NONSENSE; i++) {
        fed_buffer_init(&reply, reply_most);
        status = ask(join, "/message", step->message, step->length, &reply);
        if (status == STATUS_OK)
            status = fed_client_reply(join->client, reply.data, reply.length);
        fed_buffer_release(&reply);
        if (status != STATUS_CORRUPT)
            break;
        TRY(wait_for_it(join));
    }
    return status;
}

/* Says what was trained, once. */
static void tell_round(const struct join *join, struct fed_tally *told)
{
    const struct fed_tally *tally = fed_client_tally(join->client);

    if (!tally || tally->seen <= 0 || (tally->loss == told->loss && tally->seen == told->seen))
        return;
    *told = *tally;
    tell(join, "round %lld: %llu samples, loss %.4f",
         (long long)fed_client_round(join->client) + 1, (unsigned long long)tally->samples,
         tally->loss / tally->seen);
}

static enum status take_part(struct join *join)
{
    struct fed_tally told = { 0 };
    struct fed_step step;

    for (;;) {
        TRY(fed_client_next(join->client, &step));
        if (step.what == FED_END)
            return STATUS_OK;
        if (fed_stop_asked() || (step.what == FED_SLEEP && !fed_stop_sleep(step.seconds)))
            return FAIL(fed_stop_status(), "stopped; the same command goes on");
        if (step.what == FED_SEND)
            TRY(exchange(join, &step));
        tell_round(join, &told);
    }
}

static enum status run(struct join *join)
{
    const struct fed_join_config *config = join->config;
    const struct https_client_config https = { .url = config->url,
                                               .cert = config->cert,
                                               .key = config->key,
                                               .authority = config->authority,
                                               .silent_s = SILENT_SECONDS,
                                               .reply_most = reply_most };

    TRY(fed_start());
    TRY(fed_pair_check(config->cert, config->key));
    TRY(open_trust(join));
    TRY(read_identity(join));
    TRY(lock_state(join));
    TRY(https_client_create(&https, &join->https));
    TRY(fetch_terms(join));
    TRY(make_client(join));
    tell(join, "%s takes part: %s, %s, %lld rounds", join->name, join->terms.model,
         join->terms.algorithm, (long long)join->terms.rounds);
    TRY(take_part(join));
    const float *parameters = fed_client_parameters(join->client);
    if (parameters && config->on_end)
        TRY(config->on_end(config->arg, parameters));
    return STATUS_OK;
}

enum status fed_join_run(const struct fed_join_config *config)
{
    struct join join = { .config = config, .lock = -1 };
    const enum status status = run(&join);

    fed_client_destroy(join.client);
    if (join.state)
        sodium_memzero(join.state, join.state_length);
    mem_free(join.state);
    https_client_destroy(join.https);
    fed_trust_destroy(join.trust);
    if (join.has_terms)
        fed_terms_release(&join.terms);
    sodium_memzero(&join.identity, sizeof join.identity);
    mem_free(join.certificate);
    if (join.lock >= 0)
        close(join.lock);
    return status;
}
