/* SPDX-License-Identifier: MIT */
/* schedule.c - makes schedules of pipelines, and runs them on paper.
 *
 * All kinds are one rule: the forward work of a stage in an order, the backward work in an order, and how many
 * of the first come before the two alternate. With p stages, m shards and v chunks:
 *
 *   gpipe         m v before
 *   1f1b          p - 1 - stage
 *   interleaved   2 (p - 1 - stage) + (v - 1) p
 *
 * Forward work is in groups of p shards: chunk 0 of all of them, chunk 1 of all, ...; backward work likewise
 * with the last chunk first. With one chunk that is the order of shards. For p = 2, v = 2, m = 4 (chunk.shard,
 * backward in brackets):
 *
 *   stage 0   0.0 0.1 1.0 1.1 0.2 [1.0] 0.3 [1.1] 1.2 [0.0] 1.3 [0.1] [1.2] [1.3] [0.2] [0.3]
 *   stage 1   0.0 0.1 1.0 [1.0] 1.1 [1.1] 0.2 [0.0] 0.3 [0.1] 1.2 [1.2] 1.3 [1.3] [0.2] [0.3]
 */
#include "pass/schedule.h"

#include <math.h>

#include "base/mem.h"

const char *const pipe_kind_names[PIPE_KINDS] = { "gpipe", "1f1b", "interleaved" };

enum status pipe_check(const struct pipe_config *config)
{
    if (config->stages < 1 || config->stages > PIPE_STAGES)
        return FAIL(STATUS_USAGE, "%d stages are not between 1 and %d", config->stages,
                    PIPE_STAGES);
    if (config->chunks < 1 || config->chunks > PIPE_CHUNKS)
        return FAIL(STATUS_USAGE, "%d chunks a stage are not between 1 and %d", config->chunks,
                    PIPE_CHUNKS);
    if (config->chunks > 1 && config->kind != PIPE_INTERLEAVED)
        return FAIL(STATUS_USAGE, "%s has one chunk a stage, not %d: use interleaved:%d",
                    pipe_kind_names[config->kind], config->chunks, config->chunks);
    if (config->shards < 1)
        return FAIL(STATUS_USAGE, "%lld shards in a pipeline", (long long)config->shards);
    if (config->chunks > 1 && config->shards % config->stages)
        return FAIL(STATUS_USAGE,
                    "interleaved chunks go through %d stages in groups of %d shards, %lld are "
                    "no whole number of groups: use --shards",
                    config->stages, config->stages, (long long)config->shards);
    return STATUS_OK;
}

int64_t pipe_count(const struct pipe_config *config)
{
    return 2 * config->shards * config->chunks;
}

/* Number i of a stage's forward work, or of its backward work. */
static struct pipe_action work(const struct pipe_config *config, int64_t i, bool is_backward)
{
    const int chunks = config->chunks;
    const int64_t group = chunks > 1 ? config->stages : config->shards;
    const int64_t within = i % (group * chunks);
    const int chunk = (int)(within / group);

    return (struct pipe_action){
        .is_backward = is_backward,
        .chunk = is_backward ? chunks - 1 - chunk : chunk,
        .shard = i / (group * chunks) * group + within % group,
    };
}

/* Forward work that comes before the first backward. */
static int64_t work_before(const struct pipe_config *config, int stage)
{
    const int64_t all = config->shards * config->chunks;
    const int64_t behind = config->stages - 1 - stage;
    const int64_t before = config->kind == PIPE_GPIPE ? all
                           : config->chunks == 1
                               ? behind
                               : 2 * behind + (int64_t)(config->chunks - 1) * config->stages;

    return before < all ? before : all;
}

void pipe_schedule(const struct pipe_config *config, int stage, struct pipe_action *out)
{
    const int64_t all = config->shards * config->chunks;
    int64_t forward = 0, backward = 0;

    while (forward < work_before(config, stage))
        *out++ = work(config, forward++, false);
    while (backward < all) {
        if (forward < all)
            *out++ = work(config, forward++, false);
        *out++ = work(config, backward++, true);
    }
}

void pipe_schedule_forward(const struct pipe_config *config, struct pipe_action *out)
{
    for (int64_t i = 0; i < config->shards * config->chunks; i++)
        out[i] = work(config, i, false);
}

int64_t pipe_in_flight(const struct pipe_action *actions, int64_t count, int chunks,
                       bool forward_alone)
{
    int64_t now = 0, most = 0;

    for (int64_t i = 0; i < count; i++) {
        const struct pipe_action *a = &actions[i];
        now += !a->is_backward && a->chunk == 0;
        most = now > most ? now : most;
        now -= forward_alone ? a->chunk == chunks - 1 : a->is_backward && a->chunk == 0;
    }
    return most;
}

double pipe_bubble(const struct pipe_config *config)
{
    const double p = config->stages, work = (double)config->shards * config->chunks;

    return (p - 1) / (work + p - 1);
}

/* On paper ------------------------------------------------------------------------------- */

struct simulation {
    const struct pipe_config *config;
    const struct pipe_times *times;
    int64_t count;               /* actions of a stage */
    struct pipe_action *actions; /* of all stages */
    double *ended[2]; /* forward, backward: of a piece and a shard, for others; -1: not yet */
    int64_t *next;    /* action of each stage */
    double *free;     /* when each stage has done what it began */
};

static double *ended_at(const struct simulation *s, bool is_backward, int piece, int64_t shard)
{
    return &s->ended[is_backward][piece * s->config->shards + shard];
}

/* When what an action needs is there; -1: not yet known. */
static double ready_at(const struct simulation *s, int stage, const struct pipe_action *a)
{
    const int pieces = s->config->stages * s->config->chunks;
    const int piece = a->chunk * s->config->stages + stage;
    const double message = s->config->stages > 1 ? s->times->message : 0;

    if (!a->is_backward && piece == 0)
        return 0;
    if (a->is_backward && piece == pieces - 1)
        return *ended_at(s, false, piece, a->shard);
    const double before =
        *ended_at(s, a->is_backward, piece + (a->is_backward ? 1 : -1), a->shard);
    return before < 0 ? -1 : before + message;
}

/* Does the stage's next action, if it can; false: it waits. */
static bool advance(struct simulation *s, int stage, struct pipe_span *spans)
{
    const int64_t number = stage * s->count + s->next[stage];

    if (s->next[stage] == s->count)
        return false;
    const struct pipe_action *a = &s->actions[number];
    const int piece = a->chunk * s->config->stages + stage;
    const double ready = ready_at(s, stage, a);
    if (ready < 0)
        return false;
    const double begin = fmax(ready, s->free[stage]);
    const double seconds =
        s->times->actions ? s->times->actions[number]
                          : (a->is_backward ? s->times->backward : s->times->forward)[piece];
    s->free[stage] = begin + seconds;
    *ended_at(s, a->is_backward, piece, a->shard) =
        begin + seconds - (s->times->early ? s->times->early[number] : 0);
    if (spans)
        spans[number] = (struct pipe_span){ begin, begin + seconds };
    s->next[stage]++;
    return true;
}

static enum status simulate(struct simulation *s, struct pipe_span *spans, double *out_seconds)
{
    const int stages = s->config->stages;
    int64_t left = s->count * stages;
    double seconds = 0;

    for (int stage = 0; stage < stages; stage++)
        pipe_schedule(s->config, stage, s->actions + stage * s->count);
    for (int64_t i = 0; i < s->count / 2 * stages; i++)
        s->ended[0][i] = s->ended[1][i] = -1;
    for (int64_t before = left + 1; left > 0 && left < before;) {
        before = left;
        for (int stage = 0; stage < stages; stage++) {
            while (advance(s, stage, spans))
                left--;
        }
    }
    if (left > 0)
        return FAIL(
            STATUS_MISMATCH,
            "stages of a pipeline (%s, %d stages, %d chunks, %lld shards) wait for each "
            "other for ever",
            pipe_kind_names[s->config->kind], stages, s->config->chunks,
            (long long)s->config->shards);
    for (int stage = 0; stage < stages; stage++)
        seconds = fmax(seconds, s->free[stage]);
    *out_seconds = seconds;
    return STATUS_OK;
}

enum status pipe_simulate(const struct pipe_config *config, const struct pipe_times *times,
                          struct pipe_span *spans, double *out_seconds)
{
    const size_t stages = (size_t)config->stages, count = (size_t)pipe_count(config);
    struct simulation s = { .config = config, .times = times, .count = pipe_count(config) };

    enum status status = pipe_check(config);
    if (status == STATUS_OK)
        status = mem_alloc(stages * count, sizeof *s.actions, &s.actions);
    for (int i = 0; i < 2 && status == STATUS_OK; i++)
        status = mem_alloc(stages * count / 2, sizeof(double), &s.ended[i]);
    if (status == STATUS_OK)
        status = mem_alloc(stages, sizeof *s.next, &s.next);
    if (status == STATUS_OK)
        status = mem_alloc(stages, sizeof *s.free, &s.free);
    if (status == STATUS_OK)
        status = simulate(&s, spans, out_seconds);
    mem_free(s.actions);
    mem_free(s.ended[0]);
    mem_free(s.ended[1]);
    mem_free(s.next);
    mem_free(s.free);
    return status;
}
