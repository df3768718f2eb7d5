/* SPDX-License-Identifier: MIT */
/* line.c - a queue of jobs becomes frames; frames that come are put in order and checked.
 *
 * Messages of a tag arrive in the order in which they were sent, and receives are served in the order in which
 * they were posted, so of each tag only the oldest slot is looked at. A frame waits for those with smaller
 * numbers, which may come with the other tag.
 */
#include "ps/line.h"

#include <string.h>

#include "base/mem.h"

enum { ROUND = 64 };

static size_t small_stride(void)
{
    return (FRAME_SMALL + ROUND - 1) / ROUND * ROUND;
}

static size_t large_stride(void)
{
    return (FRAME_LARGE + ROUND - 1) / ROUND * ROUND;
}

int line_smalls(const struct slices *slices)
{
    return 3 * slices->count + 16;
}

int64_t line_fill_floats(void *arg, const struct job *job, struct frame *head, void *payload)
{
    const float *values = arg;
    const int64_t left = job->end - job->at;

    head->count = left < FRAME_FLOATS ? left : FRAME_FLOATS;
    head->bytes = (uint32_t)head->count * (uint32_t)sizeof(float);
    memcpy(payload, values + job->at, head->bytes);
    return job->at + head->count;
}

static enum status post(struct line *line, struct line_slot *slot, bool is_small)
{
    return transport_start_receive_most(line->transport, line->peer,
                                        line->tag + (is_small ? 0 : 1), slot->data,
                                        is_small ? FRAME_SMALL : FRAME_LARGE, &slot->request);
}

static enum status post_again(struct line *line, struct line_slot *slot)
{
    const bool is_large = slot >= line->large_in && slot < line->large_in + LINE_LARGE;

    return post(line, slot, !is_large);
}

static enum status post_all(struct line *line)
{
    for (int i = 0; i < line->n_small; i++)
        TRY(post(line, &line->small_in[i], true));
    for (int i = 0; i < LINE_LARGE; i++)
        TRY(post(line, &line->large_in[i], false));
    return STATUS_OK;
}

enum status line_open(struct line *line, const struct slices *slices, int peer, uint32_t tag,
                      int n_small)
{
    const size_t smalls = (size_t)n_small;
    const int workers = slices->config.workers;

    *line = (struct line){ .transport = slices->config.transport,
                           .slices = slices,
                           .peer = peer,
                           .worker = peer < workers ? peer : -1,
                           .tag = tag,
                           .n_small = n_small,
                           .capacity = 8 * (uint32_t)slices->count + 64 };
    TRY(mem_alloc(2 * smalls, sizeof(struct line_slot), &line->small_in));
    line->small_out = line->small_in + n_small;
    TRY(mem_alloc(line->capacity, sizeof(struct job), &line->jobs));
    TRY(mem_alloc(2, smalls * small_stride() + LINE_LARGE * large_stride(), &line->memory));
    unsigned char *at = line->memory;
    for (size_t i = 0; i < 2 * smalls; i++, at += small_stride())
        line->small_in[i].data = at;
    for (int i = 0; i < LINE_LARGE; i++, at += 2 * large_stride()) {
        line->large_in[i].data = at;
        line->large_out[i].data = at + large_stride();
    }
    line->is_open = true;
    return post_all(line);
}

void line_close(struct line *line)
{
    for (int i = 0; line->memory && i < 2 * line->n_small; i++)
        transport_cancel(line->transport, &line->small_in[i].request);
    for (int i = 0; line->memory && i < LINE_LARGE; i++) {
        transport_cancel(line->transport, &line->large_in[i].request);
        transport_cancel(line->transport, &line->large_out[i].request);
    }
    mem_free(line->small_in);
    mem_free(line->jobs);
    mem_free(line->memory);
    *line = (struct line){ 0 };
}

static bool has_died(const struct line *line)
{
    return transport_lost(line->transport, line->peer, NULL);
}

/* Nobody reads what is to be sent. */
static void drop_jobs(struct line *line)
{
    for (; line->n_jobs > 0; line->n_jobs--, line->first_job++) {
        struct job *job = &line->jobs[line->first_job % line->capacity];
        if (job->flag)
            *job->flag = false;
    }
}

/* Has the slot's message been moved? Of a peer that died, that is no failure. */
static enum status look(struct line *line, struct line_slot *slot, bool *out_done)
{
    *out_done = false;
    if (slot->is_dead)
        return STATUS_OK;
    const enum status status = transport_test(line->transport, &slot->request, out_done);
    if (status == STATUS_OK || !has_died(line))
        return status;
    slot->is_dead = true;
    *out_done = false;
    return STATUS_OK;
}

/* Sending ------------------------------------------------------------------------------------------ */

struct job *line_add(struct line *line, enum frame_kind kind, int slice)
{
    static _Thread_local struct job nowhere; /* of a line that leads nowhere */
    struct job *job = &nowhere;

    if (line->is_open) {
        if (line->n_jobs == line->capacity)
            return NULL;
        job = &line->jobs[(line->first_job + line->n_jobs++) % line->capacity];
    }
    *job = (struct job){ .head = { .magic = FRAME_MAGIC, .kind = kind, .slice = slice } };
    return job;
}

/* The next frame of a job into its slot; *out_over: it was the last. */
static size_t compose(struct job *job, unsigned char *data, bool *out_over)
{
    struct frame head = job->head;

    *out_over = true;
    if (job->fill) {
        head.at = job->at;
        job->at = job->fill(job->arg, job, &head, data + sizeof(head));
        *out_over = job->at >= job->end;
    } else {
        memcpy(data + sizeof(head), job->payload, head.bytes);
    }
    memcpy(data, &head, sizeof(head));
    return sizeof(head) + head.bytes;
}

static enum status send_frame(struct line *line, struct line_slot *slot, bool is_small)
{
    struct job *job = &line->jobs[line->first_job % line->capacity];
    bool over;

    job->head.number = line->sent++;
    const size_t bytes = compose(job, slot->data, &over);
    line->bytes_out += (int64_t)bytes;
    if (over) {
        if (job->flag)
            *job->flag = false;
        line->first_job++;
        line->n_jobs--;
    }
    return transport_start_send(line->transport, line->peer, line->tag + (is_small ? 0 : 1),
                                slot->data, bytes, &slot->request);
}

enum status line_send(struct line *line, bool *out_moved)
{
    if (line->is_open && has_died(line))
        drop_jobs(line);
    while (line->is_open && line->n_jobs > 0) {
        const struct job *job = &line->jobs[line->first_job % line->capacity];
        const bool is_small = frame_is_small(job->head.kind);
        uint32_t *count = is_small ? &line->n_small_out : &line->n_large_out;
        struct line_slot *slot = is_small ? &line->small_out[*count % (uint32_t)line->n_small]
                                          : &line->large_out[*count % LINE_LARGE];
        bool done;

        TRY(look(line, slot, &done));
        if (!done)
            return STATUS_OK;
        (*count)++;
        *out_moved = true;
        TRY(send_frame(line, slot, is_small));
    }
    return STATUS_OK;
}

bool line_is_idle(struct line *line)
{
    bool done = true;

    if (!line->is_open || has_died(line))
        return true;
    if (line->n_jobs > 0)
        return false;
    for (int i = 0; done && i < line->n_small; i++) {
        if (look(line, &line->small_out[i], &done) != STATUS_OK)
            return true;
    }
    for (int i = 0; done && i < LINE_LARGE; i++) {
        if (look(line, &line->large_out[i], &done) != STATUS_OK)
            return true;
    }
    return done;
}

/* Receiving ---------------------------------------------------------------------------------------- */

/* Is the oldest message of this tag there, and the next frame of the line? Frames that are no frames
 * are as good as next. */
static enum status is_next(struct line *line, struct line_slot *slot, bool *out_is)
{
    struct frame head;

    TRY(look(line, slot, out_is));
    if (!*out_is || slot->request.length < sizeof(head))
        return STATUS_OK;
    memcpy(&head, slot->data, sizeof(head));
    *out_is = head.magic != FRAME_MAGIC || head.number == line->received;
    return STATUS_OK;
}

enum status line_receive(struct line *line, struct frame *out, const void **out_payload,
                         bool *out_came)
{
    *out_came = false;
    if (line->taken)
        TRY(post_again(line, line->taken));
    line->taken = NULL;
    while (line->is_open && !line->is_silent) {
        struct line_slot *small = &line->small_in[line->n_small_in % (uint32_t)line->n_small];
        struct line_slot *large = &line->large_in[line->n_large_in % LINE_LARGE];
        struct line_slot *slot = small;
        const bool died = has_died(line); /* before the look: what it had sent is not missed */
        bool is;

        TRY(is_next(line, small, &is));
        if (!is) {
            slot = large;
            const enum status status = is_next(line, large, &is);
            if (status != STATUS_OK) { /* it has ended; its goodbye may have come since */
                slot = small;
                TRY(is_next(line, small, &is));
                if (!is)
                    return status;
            }
        }
        if (!is) {
            line->is_lost = died;
            line->is_open = !died;
            return STATUS_OK;
        }
        *(slot == small ? &line->n_small_in : &line->n_large_in) += 1;
        line->received++;
        if (frame_check(line->slices, line->worker, slot->data, slot->request.length, out) ==
            STATUS_OK) {
            *out_payload = slot->data + sizeof(*out);
            *out_came = true;
            line->taken = slot;
            return STATUS_OK;
        }
        line->refused++;
        TRY(post_again(line, slot));
    }
    return STATUS_OK;
}
