/* SPDX-License-Identifier: MIT */
/* clip.c - servers tell each other squares of what they have summed, and scale by the norm of all:
 * see clip.h. */
#include "ps/clip.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "ps/server.h"

bool clip_is_used(const struct ps_config *config)
{
    return config->policy == PS_STEP && config->optim.attrs.max_norm > 0;
}

static int64_t stretches_of(int64_t count)
{
    return (count + TREE_STRETCH - 1) / TREE_STRETCH;
}

int64_t clip_words(const struct slice *slice)
{
    return slice->is_table ? (int64_t)(sizeof(struct exact_sum) / sizeof(double))
                           : stretches_of(slice->count);
}

bool clip_counts(const struct server *server, int slice)
{
    const int bucket = server->slices->slice[slice].bucket;

    return server->clip && !server->config.layout.updates[bucket].is_average;
}

size_t clip_count(const struct clip *clip, int slice, size_t stretch)
{
    return (size_t)clip->counts[(size_t)clip->first[slice] + stretch];
}

/* A dense bucket's slices follow each other, so do their stretches. */
static void count_elements(const struct server *server, const struct ps_param *param)
{
    const int first = server->slices->of_bucket[param->bucket];
    int32_t *counts = server->clip->counts + server->clip->first[first];

    BUG_ON(param->at % TREE_STRETCH != 0);
    if (server->slices->slice[first].is_table)
        return;
    for (int64_t at = 0; at < param->count; at += TREE_STRETCH) {
        const int64_t left = param->count - at;
        counts[(param->at + at) / TREE_STRETCH] =
            (int32_t)(left < TREE_STRETCH ? left : TREE_STRETCH);
    }
}

enum status clip_create(struct server *server)
{
    const struct slices *slices = server->slices;
    const size_t count = (size_t)slices->count;
    struct clip *clip;

    if (!clip_is_used(&server->config))
        return STATUS_OK;
    TRY(mem_alloc(1, sizeof(*clip), &clip));
    server->clip = clip;
    TRY(mem_alloc(count + 1, sizeof(*clip->first), &clip->first));
    TRY(mem_alloc(count, sizeof(*clip->heard), &clip->heard));
    TRY(mem_alloc(count, sizeof(*clip->known), &clip->known));
    for (int i = 0; i < slices->count; i++)
        clip->first[i + 1] = clip->first[i] + clip_words(&slices->slice[i]);
    TRY(mem_alloc((size_t)clip->first[count], sizeof(*clip->squares), &clip->squares));
    TRY(mem_alloc((size_t)clip->first[count], sizeof(*clip->counts), &clip->counts));
    for (int p = 0; p < server->config.layout.n_params; p++)
        count_elements(server, &server->config.layout.params[p]);
    return STATUS_OK;
}

void clip_destroy(struct server *server)
{
    if (!server->clip)
        return;
    mem_free(server->clip->squares);
    mem_free(server->clip->counts);
    mem_free(server->clip->first);
    mem_free(server->clip->heard);
    mem_free(server->clip->known);
    mem_free(server->clip);
}

/* Telling ---------------------------------------------------------------------------------------------- */

static int64_t fill_squares(void *arg, const struct job *job, struct frame *head, void *payload)
{
    const double *squares = arg;
    const int64_t left = job->end - job->at;

    head->count = left < FRAME_WORDS ? left : FRAME_WORDS;
    head->bytes = (uint32_t)head->count * (uint32_t)sizeof(*squares);
    memcpy(payload, squares + job->at, head->bytes);
    return job->at + head->count;
}

/* All that are told lie in memory until the next clock, which nobody begins before they have come. */
static enum status tell(struct server *server, int slice)
{
    struct clip *clip = server->clip;
    struct job *job;

    for (int s = 0; s < server->config.servers; s++) {
        if (s == server->number)
            continue;
        TRY(server_job(server, slices_rank(server->slices, s), FRAME_SQUARES, slice, &job));
        job->head.clock = clip->known[slice] - 1;
        job->fill = fill_squares;
        job->arg = clip->squares + clip->first[slice];
        job->end = clip_words(&server->slices->slice[slice]);
    }
    server->moved = true;
    return STATUS_OK;
}

enum status clip_take_over(struct server *server, int slice)
{
    if (!server->clip || server->clip->known[slice] == 0)
        return STATUS_OK;
    return tell(server, slice);
}

bool clip_knows(const struct server *server, int slice, uint64_t clocks)
{
    return server->clip->known[slice] >= clocks;
}

bool clip_knows_all_of(const struct server *server, int from, uint64_t clocks)
{
    for (int i = 0; i < server->slices->count; i++) {
        if (clip_counts(server, i) &&
            server_of_slice(server->slices, server->is_lost, i) == from &&
            !clip_knows(server, i, clocks))
            return false;
    }
    return true;
}

/* Nobody can be further: squares of a clock are told when all slices are at it. */
static uint64_t furthest_clock(const struct server *server)
{
    uint64_t clock = 0;

    for (int i = 0; i < server->n_held; i++)
        clock = server->held[i].clock > clock ? server->held[i].clock : clock;
    return clock;
}

/* The last of another server's squares has come. */
static void trace_squares(const struct server *server, int from, uint64_t clock)
{
    const struct program *program = server->tasks.program;

    for (int t = 0; server->traces.rows && t < program->n_tasks; t++) {
        if (program->tasks[t].kind == TASK_RECEIVE && program->tasks[t].peer == from &&
            clip_knows_all_of(server, from, clock + 1))
            server_trace(server, t, -1, clock);
    }
}

enum status clip_hear(struct server *server, int from, const struct frame *frame,
                      const void *payload)
{
    struct clip *clip = server->clip;
    const struct slice *slice = &server->slices->slice[frame->slice];
    const int number = frame->slice;

    if (!clip || frame->clock > furthest_clock(server) ||
        (slice->server != from && slice->partner != from))
        return FAIL(STATUS_CORRUPT, "server %d tells squares of slice %d that nobody expects",
                    from, number);
    if (frame->clock < clip->known[number])
        return STATUS_OK; /* told again */
    if (frame->at != 0 && frame->at != clip->heard[number])
        return FAIL(STATUS_CORRUPT, "squares of slice %d are missing", number);
    memcpy(clip->squares + clip->first[number] + frame->at, payload, frame->bytes);
    clip->heard[number] = frame->at + frame->count;
    if (clip->heard[number] < clip_words(slice))
        return STATUS_OK;
    clip->known[number] = frame->clock + 1;
    clip->heard[number] = 0;
    trace_squares(server, from, frame->clock);
    return STATUS_OK;
}

/* The scale -------------------------------------------------------------------------------------------- */

/* Of a table: its slices' rows. */
static double squares_of_rows(const struct server *server, int bucket)
{
    const int *of_bucket = server->slices->of_bucket;
    struct exact_sum sum = { .infinite = 0 }, part;

    for (int i = of_bucket[bucket]; i < of_bucket[bucket + 1]; i++) {
        memcpy(&part, server->clip->squares + server->clip->first[i], sizeof(part));
        exact_sum_join(&sum, &part);
    }
    return exact_sum_value(&sum);
}

static double squares_of(const struct server *server, const struct ps_param *param)
{
    const struct slices *slices = server->slices;
    const int first = slices->of_bucket[param->bucket];
    const double *squares = server->clip->squares + server->clip->first[first];
    const int64_t begin = param->at / TREE_STRETCH;
    double sum = 0;

    if (slices->slice[first].is_table)
        return squares_of_rows(server, param->bucket);
    for (int64_t i = begin; i < begin + stretches_of(param->count); i++)
        sum += squares[i];
    return sum;
}

static float find_scale(const struct server *server)
{
    const struct ps_layout *layout = &server->config.layout;
    double squares = 0;

    for (int p = 0; p < layout->n_params; p++)
        squares += squares_of(server, &layout->params[p]);
    return kernel_clip_scale(sqrt(squares), server->config.optim.attrs.max_norm);
}

uint64_t clip_clock(const struct server *server)
{
    uint64_t clock = UINT64_MAX;

    for (int i = 0; i < server->n_held; i++) {
        const struct held *held = &server->held[i];
        if (held->is_mine && clip_counts(server, held->number) && held->clock < clock)
            clock = held->clock;
    }
    return clock;
}

void clip_find_scale(struct server *server, uint64_t clocks)
{
    server->clip->scale = find_scale(server);
    server->clip->scaled = clocks;
    server->moved = true;
}

float clip_scale(const struct server *server, int slice)
{
    return clip_counts(server, slice) ? server->clip->scale : 1;
}

enum status clip_square(struct server *server, struct held *held, struct seat *const *seats,
                        int count, double missing)
{
    struct clip *clip = server->clip;
    const int number = held->number;

    if (clip_knows(server, number, held->clock + 1))
        return STATUS_OK;
    apply_squares(server, held, seats, count, missing, clip->squares + clip->first[number]);
    clip->known[number] = held->clock + 1;
    clip->heard[number] = 0;
    server_meet(server, "squares");
    return tell(server, number);
}
