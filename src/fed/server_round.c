/* SPDX-License-Identifier: MIT */
/* server_round.c - a round: who takes part, what becomes of their updates. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "fed/server_state.h"
#include "kernel/tree.h"
#include "optim/optim.h"

/* A participant that asked in this time is there. */
static const double LIVE_S = 60;
/* After a start those that were there before have so long to ask again before a round begins without them. */
static const double GRACE_S = 3;

bool server_is_live(const struct fed_server *server, const struct member *member)
{
    return server->config.now(server->config.arg) - member->seen <= LIVE_S;
}

int server_live(const struct fed_server *server)
{
    int live = 0;

    for (int i = 0; i < server->n_members; i++)
        live += server_is_live(server, &server->members[i]);
    return live;
}

static int count_gifts(const struct fed_server *server)
{
    int gifts = 0;

    for (int i = 0; i < server->n_members; i++)
        gifts += server->members[i].gift != NULL;
    return gifts;
}

bool server_has_enough(const struct fed_server *server)
{
    const struct fed_terms *terms = server->terms;

    return count_gifts(server) >=
           (terms->buffer < terms->minimum ? terms->buffer : terms->minimum);
}

bool server_may_come_back(const struct fed_server *server)
{
    const double age = server->config.now(server->config.arg) - server->created;

    return age < LIVE_S && server_live(server) < server->n_members;
}

bool server_asks_statistics(const struct fed_server *server)
{
    return server->n_statistics > 0 && !server->statistics;
}

bool server_is_buffered(const struct fed_server *server)
{
    return server->algorithm->is_buffered && !server_asks_statistics(server);
}

/* Choosing -------------------------------------------------------------------------------------- */

/* With differential privacy a fraction means that each takes part with this probability, by itself. */
static bool draws_each(const struct fed_server *server)
{
    return *server->terms->dp && server->terms->per_round == 0 && server->terms->fraction < 1;
}

/* Never fewer than the minimum, which are there when a round begins. */
static int cohort_size(const struct fed_server *server, int live)
{
    const struct fed_terms *terms = server->terms;

    if (server_asks_statistics(server)) /* all have a part in them */
        return live;
    if (terms->per_round)
        return terms->per_round < live ? (int)terms->per_round : live;
    const int size = (int)ceil(terms->fraction * live);
    return size < terms->minimum ? (int)terms->minimum : size;
}

/* The first `size` of a random order; or each with its own chance. By unforeseeable numbers: who takes part is a part
 * of the privacy. `chosen` has a mark a live member. */
static enum status choose(struct fed_server *server, int live, bool *chosen)
{
    uint64_t key;

    TRY(server->config.entropy(server->config.arg, &key, sizeof key));
    struct rng rng;
    rng_init(&rng, key, (uint64_t)server->round);
    if (draws_each(server)) {
        for (int i = 0; i < live; i++)
            chosen[i] = (double)rng_u64(&rng) * 0x1p-64 < server->terms->fraction;
        return STATUS_OK;
    }
    int left = cohort_size(server, live);
    for (int i = 0; i < live; i++) { /* selection sampling: each of the rest as likely */
        chosen[i] = rng_below(&rng, (uint64_t)(live - i)) < (uint64_t)left;
        left -= chosen[i];
    }
    return STATUS_OK;
}

/* Leaves out members of a cohort that is too near an earlier one, as long as enough stay. STATUS_USAGE: no cohort of these
 * can be summed. */
static enum status keep_apart(const struct fed_server *server, int live, bool *chosen)
{
    enum status status = server_check_chosen(server, chosen);
    int count = 0;

    for (int i = 0; i < live; i++)
        count += chosen[i];
    /* Any order is as good: who was chosen was drawn already. */
    for (int i = 0; i < live && status == STATUS_MISMATCH && count > server->terms->minimum;
         i++) {
        if (!chosen[i])
            continue;
        chosen[i] = false;
        count--;
        status = server_check_chosen(server, chosen);
    }
    return status == STATUS_MISMATCH ? STATUS_USAGE : status; /* the reason stays */
}

static enum status write_cohort(struct fed_server *server, int live, struct fed_buffer *out)
{
    bool *chosen;
    int count = 0;

    TRY(mem_alloc((size_t)live, sizeof *chosen, &chosen));
    enum status status = choose(server, live, chosen);
    if (status == STATUS_OK && server->terms->secure)
        status = keep_apart(server, live, chosen);
    for (int i = 0; status == STATUS_OK && i < live; i++)
        count += chosen[i];
    const double chance =
        draws_each(server) ? server->terms->fraction : (double)count / (double)live;
    fed_put_f64(out, chance);
    fed_put_f64(out, draws_each(server) ? chance * live : count);
    fed_put_u32(out, (uint32_t)count);
    for (int i = 0, at = 0; status == STATUS_OK && i < server->n_members; i++) {
        if (!server_is_live(server, &server->members[i]))
            continue;
        if (chosen[at++])
            fed_put_text(out, server->members[i].name);
    }
    mem_free(chosen);
    TRY(status);
    return fed_buffer_status(out);
}

enum status server_take_cohort(struct fed_server *server, const void *bytes, size_t length)
{
    struct fed_reader reader = fed_reader(bytes, length);

    server->chance = fed_take_f64(&reader);
    server->expected = fed_take_f64(&reader);
    const uint32_t count = fed_take_u32(&reader);
    if (reader.failed || count > (uint32_t)server->n_members)
        return FAIL(STATUS_CORRUPT, "the store has a round of %u participants, there are %d",
                    count, server->n_members);
    mem_free(server->cohort);
    server->cohort = NULL;
    server->n_cohort = 0;
    server->whole = server->most = 0;
    TRY(mem_alloc((size_t)count + 1, sizeof *server->cohort, &server->cohort));
    for (uint32_t i = 0; i < count; i++) {
        char name[FED_NAME];
        fed_take_text(&reader, name, sizeof name);
        struct member *member = server_member(server, name);
        if (reader.failed || !member)
            return FAIL(STATUS_CORRUPT, "the store has a round with somebody unknown");
        member->place = server->n_cohort;
        server->whole += member->samples;
        const uint64_t samples = fed_terms_samples(server->terms, member->samples);
        server->most = samples > server->most ? samples : server->most;
        server->cohort[server->n_cohort++] = (int)(member - server->members);
    }
    TRY(fed_reader_end(&reader, "cohort"));
    server->is_running = true;
    server->stage = server->terms->secure ? FED_KEYS : FED_TRAIN;
    server->stage_since = server->round_since = server->config.now(server->config.arg);
    server->round_in = server->round_out = 0;
    return server->terms->secure ? server_begin_secure(server) : STATUS_OK;
}

/* Asynchronous rounds have no members: whoever asks takes part. */
void server_begin_buffered(struct fed_server *server)
{
    server->is_running = true;
    server->stage = FED_TRAIN;
    server->stage_since = server->round_since = server->config.now(server->config.arg);
    server->round_in = server->round_out = 0;
}

/* Can there be a round of so many? STATUS_USAGE with the reason. */
static enum status check_cohort(const struct fed_server *server, uint32_t count)
{
    struct secure_shape shape;

    if (count < server->terms->minimum)
        return FAIL(STATUS_USAGE, "the draw has %u of the %lld participants that a round needs",
                    count, (long long)server->terms->minimum);
    return server->terms->secure ? server_secure_shape(server, count, &shape) : STATUS_OK;
}

/* A draw that cannot be a round. Where each was drawn by itself the round is lost, and not drawn again: who is drawn until there
 * are enough is no Poisson sample any more. Else the next draw has the same size, and others must come or go. */
static enum status drop_cohort(struct fed_server *server)
{
    if (draws_each(server)) {
        server->round_since = server->config.now(server->config.arg);
        server->round_in = server->round_out = 0;
        return server_lose(server, status_message());
    }
    if (strcmp(server->waits, status_message()) == 0)
        return STATUS_OK;
    snprintf(server->waits, sizeof server->waits, "%s", status_message());
    return server_audit(server, "", "waits: %.200s", server->waits);
}

/* The drawn ones begin, if they can and may. */
static enum status begin_cohort(struct fed_server *server, const struct fed_buffer *cohort)
{
    struct fed_reader reader = fed_reader(cohort->data, cohort->length);
    const double chance = fed_take_f64(&reader);

    (void)fed_take_f64(&reader);
    const uint32_t count = fed_take_u32(&reader);
    enum status status = server_check_budget(server, chance, (int)count);
    if (status == STATUS_STOPPED) {
        snprintf(server->why, sizeof server->why, "%s", status_message());
        return server_audit(server, "", "ends: %.200s", server->why);
    }
    TRY(status);
    status = check_cohort(server, count);
    if (status == STATUS_USAGE)
        return drop_cohort(server);
    TRY(status);
    *server->waits = '\0';
    TRY(server_append(server, RECORD_COHORT, "", cohort, "begins with %u participants", count));
    return server_take_cohort(server, cohort->data, cohort->length);
}

enum status server_begin(struct fed_server *server)
{
    const int live = server_live(server);
    struct fed_buffer cohort;

    const double age = server->config.now(server->config.arg) - server->created;
    if (live < server->terms->minimum || (live < server->n_members && age < GRACE_S))
        return STATUS_OK;
    if (server_is_buffered(server)) {
        server_begin_buffered(server);
        return STATUS_OK;
    }
    fed_buffer_init(&cohort, (size_t)(live + 1) * (FED_NAME + 8));
    enum status status = write_cohort(server, live, &cohort);
    if (status == STATUS_OK)
        status = begin_cohort(server, &cohort);
    else if (status == STATUS_USAGE)
        status = drop_cohort(server);
    fed_buffer_release(&cohort);
    return status;
}

/* The rate of local steps falls from round to round. */
static double local_lr(const struct fed_server *server)
{
    const struct fed_terms *terms = server->terms;
    const double lr =
        isfinite(terms->lr) ? terms->lr : optim_find(terms->optimizer)->default_lr;

    return lr * pow(terms->lr_decay, (double)server->done);
}

/* The smallest one from n on: of sums over rows, participants take no other scale. */
static uint64_t power_of_two(uint64_t n)
{
    uint64_t power = 1;

    while (power < n && power < UINT64_C(1) << 63)
        power *= 2;
    return power;
}

void server_fill_work(const struct fed_server *server, struct fed_work *work)
{
    /* A secure round that is tried again is another task: nobody gives the same update twice. */
    const int64_t lost =
        server->round - server->done - (server->statistics != NULL) - (server->ranges != NULL);
    const uint64_t again = server->terms->secure ? (uint64_t)lost << 32 : 0;

    *work = (struct fed_work){ .seed = server->terms->seed * 0x9e3779b97f4a7c15U +
                                       (uint64_t)server->done + again,
                               .lr = local_lr(server),
                               .clip = server->terms->secure ? server->clip : 0,
                               .n_vectors = server->algorithm->n_vectors,
                               .vector = { server->parameters, server->control },
                               .length = server->length };
    work->most = server->most;
    if (fed_algorithm_asks_gradient(server->terms))
        work->whole = server->whole;
    work->statistics = server->statistics;
    work->n_statistics = server->statistics ? server->n_statistics : 0;
    if (server->is_running && server_asks_statistics(server)) {
        work->asks_statistics = true;
        work->statistics = server->ranges;
        work->n_statistics = server->ranges ? server->n_statistics : 0;
        work->n_vectors = 0;
        work->most = power_of_two(server->most);
    }
}

/* Aggregating ------------------------------------------------------------------------------------ */

static enum status read_gift(struct fed_server *server, const void *bytes, size_t length,
                             struct fed_update *out)
{
    if (server_asks_statistics(server))
        return fed_update_read(bytes, length, NULL, server->n_statistics, 1, out);
    return fed_update_read(bytes, length, server->codec, server->length,
                           server->algorithm->n_vectors, out);
}

/* Rounding in a codec may add so much to a norm. */
static const double NORM_MARGIN = 1.01;

enum status server_check_gift(struct fed_server *server, const void *bytes, size_t length,
                              double *norm)
{
    const double most = server->terms->max_norm;
    struct fed_update update;

    TRY(read_gift(server, bytes, length, &update));
    const double found = dp_norm(update.vector[0], update.length);
    fed_update_release(&update);
    if (most > 0 && !server_asks_statistics(server) && !(found <= most * NORM_MARGIN))
        return FAIL(STATUS_MISMATCH, "the update has norm %g, the terms allow %g", found, most);
    *norm = found;
    return STATUS_OK;
}

static int compare_norms(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of the norms of what was given; n of them. */
static enum status median_norm(const struct fed_server *server, double *out, int *n)
{
    double *norms;

    *n = 0;
    TRY(mem_alloc((size_t)server->n_members + 1, sizeof *norms, &norms));
    for (int i = 0; i < server->n_members; i++) {
        if (server->members[i].gift)
            norms[(*n)++] = server->members[i].gift_norm;
    }
    qsort(norms, (size_t)*n, sizeof *norms, compare_norms);
    *out = *n > 0 ? norms[*n / 2] : 0;
    mem_free(norms);
    return STATUS_OK;
}

/* An update so many times as large as that of most participants is left out, and its giver named. */
static const double NORM_OUTLIER = 1e4;

static enum status leave_outliers(struct fed_server *server)
{
    double median;
    int n;

    TRY(median_norm(server, &median, &n));
    for (int i = 0; i < server->n_members && n >= 3 && median > 0; i++) {
        struct member *member = &server->members[i];
        if (!member->gift || member->gift_norm <= NORM_OUTLIER * median)
            continue;
        TRY(server_audit(server, member->name,
                         "left out: its update has norm %g, most have about %g",
                         member->gift_norm, median));
        mem_free(member->gift);
        member->gift = NULL;
        member->gift_length = 0;
    }
    return STATUS_OK;
}

/* What participants tell with their updates, added up. */
struct told {
    struct fed_tally sum;
    int count;
    uint64_t samples;
};

static void add_told(struct told *told, const struct fed_tally *tally, uint64_t samples)
{
    told->sum.loss += tally->loss;
    told->sum.correct += tally->correct;
    told->sum.seen += tally->seen;
    told->sum.val_loss += tally->val_loss;
    told->sum.val_correct += tally->val_correct;
    told->sum.val_seen += tally->val_seen;
    told->samples += samples;
    told->count++;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

static struct round_score score_of(const struct told *told)
{
    return (struct round_score){ .participants = told->count,
                                 .samples = told->samples,
                                 .loss = ratio(told->sum.loss, told->sum.seen),
                                 .accuracy = ratio(told->sum.correct, told->sum.seen),
                                 .val_loss = ratio(told->sum.val_loss, told->sum.val_seen),
                                 .val_accuracy =
                                     ratio(told->sum.val_correct, told->sum.val_seen) };
}

static double weight_of(const struct fed_server *server, const struct member *member)
{
    const double weight =
        strcmp(server->terms->weighting, "equal") == 0 ? 1 : (double)member->gift_samples;

    return server->algorithm->is_buffered
               ? weight * fed_staleness_weight(server->round - member->gift_round)
               : weight;
}

/* By which the sum of weighted updates is divided: with privacy a number that does not depend on who came; of late updates
 * their weights as they would be if they were not late. */
static double divisor(const struct fed_server *server)
{
    double sum = 0;

    if (*server->terms->dp)
        return server->expected;
    for (int i = 0; i < server->n_members && server->algorithm->is_buffered; i++) {
        const struct member *member = &server->members[i];
        if (member->gift)
            sum += weight_of(server, member) /
                   fed_staleness_weight(server->round - member->gift_round);
    }
    return sum; /* 0: the weights */
}

/* Calls `take` with the update of every member that gave one, by name. */
struct taker {
    enum status (*take)(struct taker *taker, const struct member *member,
                        struct fed_update *update);
    struct fed_server *server;
    struct told told;
    struct fed_mean mean, control;
    double bits;
    float **kept; /* robust: all updates; gradients, too */
    int n_kept;
};

static enum status take_all(struct taker *taker)
{
    struct fed_server *server = taker->server;

    for (int i = 0; i < server->n_members; i++) {
        const struct member *member = &server->members[i];
        struct fed_update update;
        if (!member->gift)
            continue;
        TRY(read_gift(server, member->gift, member->gift_length, &update));
        add_told(&taker->told, &update.tally, member->gift_samples);
        const enum status status = taker->take(taker, member, &update);
        fed_update_release(&update);
        TRY(status);
    }
    return STATUS_OK;
}

static enum status add_to_mean(struct taker *taker, const struct member *member,
                               struct fed_update *update)
{
    struct fed_server *server = taker->server;

    if (*server->terms->dp) {
        const double norm = dp_clip(update->vector[0], server->length, server->clip);
        taker->bits += (double)dp_bit(norm, server->clip);
    }
    fed_mean_add(&taker->mean, update->vector[0], weight_of(server, member));
    if (server->control)
        fed_mean_add(&taker->control, update->vector[1], 1);
    return STATUS_OK;
}

static enum status keep(struct taker *taker, const struct member *member,
                        struct fed_update *update)
{
    (void)member;
    taker->kept[taker->n_kept++] = update->vector[0];
    update->vector[0] = NULL; /* ours now */
    return STATUS_OK;
}

static enum status end_mean(struct fed_server *server, float *update, float *control,
                            struct round_score *score)
{
    struct taker taker = { .take = add_to_mean, .server = server };

    enum status status = fed_mean_init(&taker.mean, server->length);
    if (status == STATUS_OK && control)
        status = fed_mean_init(&taker.control, server->length);
    if (status == STATUS_OK)
        status = take_all(&taker);
    const double clip = server->clip;
    if (status == STATUS_OK && *server->terms->dp)
        status = server_add_noise(server, taker.mean.sum, server->length, taker.bits,
                                  taker.told.count);
    if (status == STATUS_OK) {
        fed_mean_end(&taker.mean, divisor(server), update);
        if (control)
            fed_mean_end(&taker.control, 0, control);
        *score = score_of(&taker.told);
        if (*server->terms->dp) /* they have no noise */
            score->loss = score->accuracy = score->val_loss = score->val_accuracy = NAN;
        score->clip = clip;
    }
    fed_mean_release(&taker.mean);
    fed_mean_release(&taker.control);
    return status;
}

/* All updates at once, for those that compare them or add them along the tree. */
static enum status gather(struct fed_server *server, struct taker *taker)
{
    *taker = (struct taker){ .take = keep, .server = server };
    TRY(mem_alloc((size_t)server->n_members + 1, sizeof *taker->kept, &taker->kept));
    return take_all(taker);
}

static void release_gathered(struct taker *taker)
{
    for (int i = 0; i < taker->n_kept; i++)
        mem_free(taker->kept[i]);
    mem_free(taker->kept);
}

static enum status end_robust(struct fed_server *server, float *update,
                              struct round_score *score)
{
    struct taker taker;

    enum status status = gather(server, &taker);
    if (status == STATUS_OK)
        status = server->aggregation.kind->run(&server->aggregation,
                                               (const float *const *)taker.kept, taker.n_kept,
                                               server->length, update);
    *score = score_of(&taker.told);
    release_gathered(&taker);
    return status;
}

/* Moving ----------------------------------------------------------------------------------------- */

/* Elements so large overflow when they are squared or added up over rounds. */
static const float LARGEST_MOVE = 1e15F;

static bool is_move(const struct fed_server *server, const float *update, const float *control)
{
    bool fine = true;

    for (size_t i = 0; i < server->length; i++)
        fine &=
            fabsf(update[i]) <= LARGEST_MOVE && (!control || fabsf(control[i]) <= LARGEST_MOVE);
    return fine;
}

enum status server_move(struct fed_server *server, const float *update, const float *control,
                        struct round_score *score)
{
    float *before;

    if (!is_move(server, update, control))
        return server_lose(server, "the sum of updates has elements that no model can have: a "
                                   "participant's training diverged, or it lied");
    TRY(mem_alloc(server->length, sizeof *before, &before));
    memcpy(before, server->parameters, server->length * sizeof *before);
    server->algorithm->apply(server->terms, fed_algorithm_lr(server->terms), update,
                             server->length, server->parameters, server->state);
    for (int i = 0; i < server->n_averages;
         i++) { /* those are the mean, whatever the algorithm */
        const struct fed_range *range = &server->averages[i];
        for (size_t k = range->begin; k < range->begin + range->count && k < server->length;
             k++)
            server->parameters[k] = before[k] + update[k];
    }
    mem_free(before);
    const double share = (double)score->participants / (double)server->n_members;
    for (size_t i = 0; control && i < server->length; i++)
        server->control[i] += (float)(share * (double)control[i]);
    score->norm = dp_norm(update, server->length);
    return server_commit(server, score, NULL);
}

/* The sum of gradients along the tree over participants, and one step of plain SGD: the arithmetic of a single run. */
static void step_by_gradients(struct fed_server *server, const struct tree_part *parts, int n,
                              float missing, float *scratch)
{
    const struct optimizer *sgd = optim_find("sgd");
    const struct optim_config optim = { .optimizer = sgd,
                                        .schedule = { .lr = local_lr(server) } };
    const struct kernel_update_step numbers = optim_step(&optim, 0);
    const struct kernel_update *kernel = kernel_update_find("sgd_update");
    float *no_state[KERNEL_STATES] = { NULL };

    for (size_t at = 0; at < server->length; at += TREE_STRETCH) {
        const size_t left = server->length - at;
        const size_t count = left < TREE_STRETCH ? left : TREE_STRETCH;
        const float *sum = tree_combine_some(parts, n, server->n_cohort, at, count, scratch);
        struct kernel_update_step step = numbers;
        step.scale = missing; /* 1 if all gave theirs */
        kernel->run(server->parameters + at, sum, no_state, count, &optim.attrs, &step);
    }
}

static enum status end_gradients(struct fed_server *server)
{
    struct taker taker;
    struct tree_part *parts = NULL;
    float *scratch = NULL;

    enum status status = gather(server, &taker);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)taker.n_kept + 1, sizeof *parts, &parts);
    if (status == STATUS_OK)
        status = mem_alloc(TREE_SCRATCH, sizeof *scratch, &scratch);
    if (status == STATUS_OK) {
        int n = 0;
        for (int i = 0; i < server->n_cohort; i++) {
            if (server->members[server->cohort[i]].gift) {
                parts[n] = (struct tree_part){ { i, 1 }, taker.kept[n] };
                n++;
            }
        }
        step_by_gradients(server, parts, n,
                          (float)((double)server->whole / (double)taker.told.samples), scratch);
        struct round_score score = score_of(&taker.told);
        score.norm = NAN;
        status = server_commit(server, &score, NULL);
    }
    mem_free(parts);
    mem_free(scratch);
    release_gathered(&taker);
    return status;
}

static enum status add_rows(struct taker *taker, const struct member *member,
                            struct fed_update *update)
{
    (void)member;
    fed_mean_add(&taker->mean, update->vector[0], 1);
    return STATUS_OK;
}

static enum status end_statistics(struct fed_server *server)
{
    struct taker taker = { .take = add_rows, .server = server };

    TRY(fed_mean_init(&taker.mean, server->n_statistics));
    enum status status = take_all(&taker);
    if (status == STATUS_OK)
        status = server_take_statistics(server, taker.mean.sum, 1);
    fed_mean_release(&taker.mean);
    return status;
}

void server_tell_statistics(struct fed_server *server)
{
    const struct fed_server_config *config = &server->config;

    if (server->statistics && config->standardize)
        config->standardize(config->arg, server->statistics);
}

enum status server_take_statistics(struct fed_server *server, const double *values, double by)
{
    TRY(mem_alloc(server->n_statistics, sizeof *server->statistics, &server->statistics));
    for (size_t i = 0; i < server->n_statistics; i++)
        server->statistics[i] = (float)(values[i] * by);
    server_tell_statistics(server);
    TRY(server_audit(server, "", "has the statistics of %d participants", server->n_cohort));
    return server_commit(server, NULL, NULL);
}

enum status server_lose(struct fed_server *server, const char *why)
{
    char kept[FED_WHY];

    snprintf(kept, sizeof kept, "%s", why);
    TRY(server_audit(server, "", "round %lld is lost: %.160s", (long long)server->round, kept));
    server->n_lost++;
    memcpy(server->lost, kept, sizeof kept);
    return server_commit(server, NULL, kept);
}

enum status server_end_plain(struct fed_server *server)
{
    struct round_score score;
    float *update, *control = NULL;

    if (!server_asks_statistics(server) && !server->aggregation.kind->is_robust)
        TRY(leave_outliers(server));
    const int gifts = count_gifts(server);
    if (!server_is_buffered(server) && gifts < server->terms->minimum)
        return server_lose(server, "too few participants gave an update in time");
    if (gifts == 0)
        return server_lose(server, "nobody gave an update in time");
    if (server_asks_statistics(server))
        return end_statistics(server);
    if (fed_algorithm_asks_gradient(server->terms))
        return end_gradients(server);
    TRY(mem_alloc(server->length, sizeof *update, &update));
    enum status status = STATUS_OK;
    if (server->control)
        status = mem_alloc(server->length, sizeof *control, &control);
    if (status == STATUS_OK)
        status = server->aggregation.kind->is_robust
                     ? end_robust(server, update, &score)
                     : end_mean(server, update, control, &score);
    if (status == STATUS_USAGE) /* too few for krum */
        status = server_lose(server, status_message());
    else if (status == STATUS_OK)
        status = server_move(server, update, control, &score);
    mem_free(update);
    mem_free(control);
    return status;
}
