/* SPDX-License-Identifier: MIT */
/* clip.c - servers tell each other squares of what they have summed, and scale by the norm of all: see clip.h. */
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

/* Running averages are not scaled, and no part of the norm. */
static bool counts(const struct server *server, int slice)
{
    return !server->config.layout.updates[server->slices->slice[slice].bucket].is_average;
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

/* Nobody can be further: squares of a clock are told when all slices are at it. */
static uint64_t furthest_clock(const struct server *server)
{
    uint64_t clock = 0;

    for (int i = 0; i < server->n_held; i++)
        clock = server->held[i].clock > clock ? server->held[i].clock : clock;
    return clock;
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
    return STATUS_OK;
}

/* The scale -------------------------------------------------------------------------------------------- */

static bool all_are_known(const struct server *server, uint64_t clock)
{
    for (int i = 0; i < server->slices->count; i++) {
        if (counts(server, i) && server->clip->known[i] != clock + 1)
            return false;
    }
    return true;
}

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

enum status clip_step(struct server *server, struct held *held, struct seat *const *seats,
                      int count, double missing, bool *out_ready, float *out_scale)
{
    struct clip *clip = server->clip;
    const int number = held->number;

    *out_ready = true;
    *out_scale = 1;
    if (!clip || !counts(server, number))
        return STATUS_OK;
    for (int i = 0; i < count && !held->is_summed; i++)
        seats[i]->is_summed = true;
    held->is_summed = true;
    if (clip->known[number] != held->clock + 1) {
        apply_squares(server, held, seats, count, missing, clip->squares + clip->first[number]);
        clip->known[number] = held->clock + 1;
        clip->heard[number] = 0;
        server_meet(server, "squares");
        TRY(tell(server, number));
    }
    *out_ready = all_are_known(server, held->clock);
    if (*out_ready && clip->scaled != held->clock + 1) {
        clip->scale = find_scale(server);
        clip->scaled = held->clock + 1;
        server->moved = true; /* other slices wait for it */
    }
    *out_scale = clip->scale;
    return STATUS_OK;
}
