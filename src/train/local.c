/* SPDX-License-Identifier: MIT */
/* local.c - workers that train alone and take averages now and then. */
#include "train/local.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"

/* What a worker tells the others at a meeting. */
struct said {
    double busy;  /* seconds since the last meeting */
    double sum_s; /* that the sum of parameters took, waiting included */
    double loss;  /* sums of its steps since then */
    double weight;
    double step_s; /* mean of a step */
    double spread; /* squares of its parameters' distances from the mean, added up */
    double bits;
};
enum { SAID = sizeof(struct said) / sizeof(double) };

struct local {
    struct local_config config;
    int rank, size;
    size_t length;     /* of the flat vector */
    int64_t trained;   /* elements that are trained */
    float share;       /* by which this worker's parameters count, 1 if all have as much */
    float *mean;       /* the flat vector's sum, then mean; while lent, the worker's own */
    bool mean_is_heap; /* else shared with the ranks of the machine */
    float *anchor, *momentum; /* outer optimizer: parameters of the last meeting; NULL: none */
    struct interval interval;
    uint64_t next;    /* meeting, in steps done */
    int64_t meetings; /* so far */
    bool is_fresh;    /* no step since the last meeting */
    bool is_lent;
    bool gossips;
    double mixed;       /* seconds of averages with neighbors since the last meeting */
    struct tally since; /* of the steps since the last meeting; seconds are theirs alone */
    int64_t steps_since;
    struct said *all; /* of each worker */
    double comm, wait;
    double *waited_for;
};

static bool has_outer(const struct local_config *config)
{
    return config->outer_lr != 1 || config->outer_momentum != 0;
}

static enum status make_memory(struct local *local)
{
    const size_t bytes = local->length * sizeof(float);
    void *shared;

    enum status status = comm_share(local->config.comm, bytes, &shared);
    if (status == STATUS_OK) {
        local->mean = shared;
    } else if (status == STATUS_UNSUPPORTED) { /* on several machines: messages carry it */
        TRY(mem_alloc(local->length, sizeof(float), &local->mean));
        local->mean_is_heap = true;
    } else {
        return status;
    }
    if (has_outer(&local->config)) {
        TRY(mem_alloc(local->length, sizeof(float), &local->anchor));
        TRY(mem_alloc(local->length, sizeof(float), &local->momentum));
    }
    TRY(mem_alloc((size_t)local->size, sizeof *local->all, &local->all));
    return mem_alloc((size_t)local->size, sizeof(double), &local->waited_for);
}

static bool is_trained(const struct exec *exec, int param)
{
    return exec_param(exec, param)->kind == VALUE_PARAM;
}

enum status local_create(const struct local_config *config, struct local **out)
{
    struct exec *exec = config->exec;
    struct local *local;

    TRY(mem_alloc(1, sizeof *local, &local));
    local->config = *config;
    local->rank = comm_rank(config->comm);
    local->size = comm_size(config->comm);
    local->length = exec_vector_length(exec);
    local->share =
        (float)((double)(exec_shard_count(exec) * local->size) / (double)config->shards);
    local->interval.now = config->axes->interval;
    local->gossips = config->axes->sync == SYNC_GOSSIP;
    for (int i = 0; i < exec_param_count(exec); i++) {
        if (is_trained(exec, i))
            local->trained += shape_count(&exec_param(exec, i)->shape);
    }
    enum status status = make_memory(local);
    if (status != STATUS_OK) {
        local_destroy(local);
        return status;
    }
    local_resume(local, 0);
    *out = local;
    return STATUS_OK;
}

void local_destroy(struct local *local)
{
    if (!local)
        return;
    if (local->mean_is_heap)
        mem_free(local->mean);
    mem_free(local->anchor);
    mem_free(local->momentum);
    mem_free(local->all);
    mem_free(local->waited_for);
    mem_free(local);
}

/* A given interval counts from the first step of the run, so that it does not matter where a session began;
 * a chosen one from the last meeting. */
static void plan_next(struct local *local, uint64_t number)
{
    const uint64_t every = local->gossips ? LOCAL_GOSSIP_STEPS : (uint64_t)local->interval.now;

    local->next = local->config.axes->is_auto ? number + every : (number / every + 1) * every;
}

void local_resume(struct local *local, uint64_t number)
{
    if (local->anchor)
        memcpy(local->anchor, exec_vector(local->config.exec, -1),
               local->length * sizeof(float));
    plan_next(local, number);
    local->is_fresh = !local->gossips;
}

bool local_step(struct local *local, uint64_t number, double seconds)
{
    local->is_fresh = false;
    local->since.seconds += seconds;
    local->steps_since++;
    return number >= local->next;
}

void local_add(struct local *local, const struct exec_result *result, double seconds)
{
    local->since.loss += result->loss * (double)result->weight;
    local->since.weight += result->weight;
    local->since.seconds += seconds;
}

/* Meetings ------------------------------------------------------------------------------------ */

/* Neighbors that gossip are asked for nothing here: the mean of all is for evaluations. */
static enum status make_mean_of_gossip(struct local *local)
{
    float *mean = local->mean;
    const float inverse = 1 / (float)local->size;

    TRY(exec_fetch_params(local->config.exec));
    memcpy(mean, exec_vector(local->config.exec, -1), local->length * sizeof(float));
    TRY(comm_all_reduce(local->config.comm, mean, local->length, DTYPE_F32, COMM_OP_SUM));
    for (size_t i = 0; i < local->length; i++)
        mean[i] *= inverse;
    return STATUS_OK;
}

/* The mean of all workers' parameters. Of one worker it is what it has, to the bit. */
static enum status make_mean(struct local *local)
{
    return local->gossips && local->size > 1
               ? make_mean_of_gossip(local)
               : exec_average(local->config.exec, local->share, local->mean);
}

static void take_mean(struct local *local)
{
    memcpy(exec_vector(local->config.exec, -1), local->mean, local->length * sizeof(float));
    exec_wrote_params(local->config.exec);
}

enum status local_mix(struct local *local)
{
    const double begin = clock_seconds();

    TRY(exec_average(local->config.exec, 1, local->mean));
    take_mean(local);
    local->mixed += clock_seconds() - begin;
    return STATUS_OK;
}

static double spread_of(const struct local *local)
{
    struct exec *exec = local->config.exec;
    const float *own = exec_vector(exec, -1);
    double sum = 0;

    for (int p = 0; p < exec_param_count(exec); p++) {
        const size_t begin = exec_place(exec, p);
        const size_t count = (size_t)shape_count(&exec_param(exec, p)->shape);
        for (size_t i = begin; is_trained(exec, p) && i < begin + count; i++) {
            const double distance = (double)own[i] - (double)local->mean[i];
            sum += distance * distance;
        }
    }
    return sum;
}

/* Moves the mean of what is trained: from the last meeting's parameters along the way to it. */
static void take_outer_step(struct local *local)
{
    const struct exec *exec = local->config.exec;
    const float lr = (float)local->config.outer_lr, m = (float)local->config.outer_momentum;

    for (int p = 0; p < exec_param_count(exec); p++) {
        const size_t begin = exec_place(exec, p);
        const size_t count = (size_t)shape_count(&exec_param(exec, p)->shape);
        for (size_t i = begin; is_trained(exec, p) && i < begin + count; i++) {
            const float gradient = local->anchor[i] - local->mean[i];
            local->momentum[i] = m * local->momentum[i] + gradient;
            local->mean[i] = local->anchor[i] - lr * (gradient + m * local->momentum[i]);
        }
    }
    memcpy(local->anchor, local->mean, local->length * sizeof(float));
}

/* Who waited least for the sum came last, and the others for that one. */
static void account(struct local *local)
{
    const double own = local->all[local->rank].sum_s;
    int last = 0;

    for (int r = 1; r < local->size; r++)
        last = local->all[r].sum_s < local->all[last].sum_s ? r : last;
    const double least = local->all[last].sum_s;
    local->comm += least;
    local->wait += own - least;
    local->waited_for[last] += own - least;
}

static struct local_met look_back(struct local *local, double lr)
{
    struct local_met met = { .comm_s = INFINITY };
    double loss = 0, weight = 0, spread = 0;
    const int64_t before = local->interval.now;

    for (int r = 0; r < local->size; r++) {
        const struct said *said = &local->all[r];
        met.heard |= (uint32_t)said->bits;
        met.comm_s = fmin(met.comm_s, said->sum_s);
        met.step_s += said->step_s / local->size;
        loss += said->loss;
        weight += said->weight;
        spread += said->spread;
    }
    met.variance = spread / local->size / (double)local->trained;
    /* The first meeting of a session is the first use of its memory: its time says nothing. */
    if (local->config.axes->is_auto && local->size > 1 && local->meetings > 0) {
        const struct interval_seen seen = {
            .comm_s = met.comm_s,
            .step_s = met.step_s,
            .growth = met.variance / (double)local->steps_since,
            .loss = weight > 0 ? loss / weight : 0,
            .lr = lr,
        };
        interval_next(&local->interval, &seen);
    }
    met.interval = local->interval.now;
    met.is_new = met.interval != before;
    return met;
}

/* All take the mean of all; what they are told about that. */
static enum status average(struct local *local, struct said *mine)
{
    const double begin = clock_seconds();

    TRY(make_mean(local));
    mine->sum_s = clock_seconds() - begin;
    mine->spread = spread_of(local);
    if (local->anchor)
        take_outer_step(local);
    take_mean(local);
    return STATUS_OK;
}

enum status local_meet(struct local *local, uint64_t number, double lr, uint32_t says,
                       struct local_met *out)
{
    struct said mine = {
        .sum_s = local->mixed,
        .loss = local->since.loss,
        .weight = (double)local->since.weight,
        .step_s = local->steps_since ? local->since.seconds / (double)local->steps_since : 0,
        .bits = says,
    };

    if (!local->gossips)
        TRY(average(local, &mine));
    TRY(comm_all_gather(local->config.comm, &mine, local->all, SAID, DTYPE_F64));
    account(local);
    *out = look_back(local, lr);
    local->since = (struct tally){ 0 };
    local->steps_since = 0;
    local->mixed = 0;
    local->is_fresh = !local->gossips;
    local->meetings++;
    plan_next(local, number);
    return STATUS_OK;
}

/* Between meetings ------------------------------------------------------------------------------ */

static void exchange(struct local *local)
{
    float *own = exec_vector(local->config.exec, -1);

    for (size_t i = 0; i < local->length; i++) {
        const float kept = own[i];
        own[i] = local->mean[i];
        local->mean[i] = kept;
    }
    exec_wrote_params(local->config.exec);
}

enum status local_lend_mean(struct local *local)
{
    if (local->is_fresh || local->is_lent)
        return exec_settle(local->config.exec);
    TRY(make_mean(local));
    exchange(local);
    local->is_lent = true;
    return STATUS_OK;
}

void local_give_back(struct local *local)
{
    if (local->is_lent)
        exchange(local);
    local->is_lent = false;
}

const float *local_own(const struct local *local)
{
    return local->mean;
}

enum status local_variance(const struct local *local, double *out)
{
    double spread = spread_of(local);

    TRY(comm_all_reduce(local->config.comm, &spread, 1, DTYPE_F64, COMM_OP_SUM));
    *out = spread / local->size / (double)local->trained;
    return STATUS_OK;
}

enum status local_sum(const struct local *local, struct tally *tally)
{
    double means[] = { tally->loss, tally->correct };
    int64_t counts[] = { tally->samples, tally->weight };

    TRY(comm_all_reduce(local->config.comm, means, 2, DTYPE_F64, COMM_OP_SUM));
    TRY(comm_all_reduce(local->config.comm, counts, 2, DTYPE_I64, COMM_OP_SUM));
    *tally = (struct tally){ .loss = means[0],
                             .correct = means[1],
                             .samples = counts[0],
                             .weight = counts[1],
                             .seconds = tally->seconds };
    return STATUS_OK;
}

struct local_times local_times(const struct local *local)
{
    return (struct local_times){ .comm = local->comm,
                                 .wait = local->wait,
                                 .bytes = (double)comm_bytes_sent(local->config.comm),
                                 .waited_for = local->waited_for };
}

float *local_momentum(const struct local *local)
{
    return local->momentum;
}

const struct interval *local_interval(const struct local *local)
{
    return &local->interval;
}

/* Checkpoints ----------------------------------------------------------------------------------- */

/* What an interval that is chosen has learned. */
static const struct {
    const char *name;
    size_t offset;
} numbers[] = {
    { "sync_first_comm_s", offsetof(struct interval, first.comm_s) },
    { "sync_first_step_s", offsetof(struct interval, first.step_s) },
    { "sync_first_growth", offsetof(struct interval, first.growth) },
    { "sync_first_loss", offsetof(struct interval, first.loss) },
    { "sync_first_lr", offsetof(struct interval, first.lr) },
    { "sync_comm_s", offsetof(struct interval, last.comm_s) },
    { "sync_step_s", offsetof(struct interval, last.step_s) },
    { "sync_growth", offsetof(struct interval, last.growth) },
    { "sync_loss", offsetof(struct interval, last.loss) },
    { "sync_lr", offsetof(struct interval, last.lr) },
};

void local_print(const struct local *local, struct strbuf *out)
{
    strbuf_printf(out, ", \"workers\": %d", local->size);
    if (!local->config.axes->is_auto)
        return;
    strbuf_printf(out, ", \"sync_interval\": %lld, \"sync_base\": %lld",
                  (long long)local->interval.now, (long long)local->interval.base);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        double number;
        memcpy(&number, (const char *)&local->interval + numbers[i].offset, sizeof number);
        strbuf_printf(out, ", \"%s\": ", numbers[i].name);
        strbuf_add_number(out, number);
    }
}

enum status local_read(struct local *local, const char *text)
{
    struct interval *interval = &local->interval;
    struct json *json;

    TRY(json_parse(text, strlen(text), &json));
    const struct json_value *state = json_root(json);
    const int64_t workers = json_integer(state, "workers", local->size);
    if (workers != local->size && local->rank == 0)
        log_line(LOG_WARNING,
                 "saved by %lld workers, now there are %d: those that had none go on with the "
                 "optimizer's state of worker 0",
                 (long long)workers, local->size);
    if (local->config.axes->is_auto) {
        const int64_t now = json_integer(state, "sync_interval", interval->now);
        interval->now = now >= 1 && now <= INTERVAL_MOST ? now : interval->now;
        interval->base = json_integer(state, "sync_base", 0);
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            const double number = json_number(state, numbers[i].name, 0);
            memcpy((char *)interval + numbers[i].offset, &number, sizeof number);
        }
    }
    json_destroy(json);
    return STATUS_OK;
}
