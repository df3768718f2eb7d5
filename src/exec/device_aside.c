/* SPDX-License-Identifier: MIT */
/* device_aside.c - the second stream of a step on a device, for instructions that are aside (aside.h).
 *
 * One that is aside is held until the next of the chain was put, and follows all that was: so the chain, whose kernels want the whole device as
 * often as not, goes first, and what it has least use for, gradients of norms and of activations, has company. The first stream
 * follows events that those aside give, and all of them at the end of what was put, so that both can be captured.
 */
#include "base/mem.h"
#include "exec/device_side.h"

struct device_aside {
    struct device_stream *stream;
    struct device_event *left, *joined;
    struct device_event **signals;
    int n_signals;
    bool is_away; /* something was put there that the other stream has not waited for */
    const struct instruction *held; /* so many in a row */
    int n_held;
    const struct kernel_step *step; /* theirs */
};

enum status aside_create(struct device_side *side)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_aside *aside;

    TRY(mem_alloc(1, sizeof *aside, &aside));
    side->aside = aside;
    TRY(stream->create_beside(side->config.device, &aside->stream));
    TRY(stream->event_create(side->config.device, &aside->left));
    return stream->event_create(side->config.device, &aside->joined);
}

void aside_destroy(struct device_side *side)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_aside *aside = side->aside;

    if (!aside)
        return;
    for (int i = 0; i < aside->n_signals; i++)
        stream->event_destroy(aside->signals[i]);
    mem_free(aside->signals);
    stream->event_destroy(aside->left);
    stream->event_destroy(aside->joined);
    stream->destroy(aside->stream);
    mem_free(aside);
    side->aside = NULL;
}

enum status aside_prepare(struct device_side *side, const struct plan *plan)
{
    struct device_aside *aside = side->aside;
    struct device_event **signals;

    if (plan->n_signals <= aside->n_signals)
        return STATUS_OK;
    TRY(mem_alloc((size_t)plan->n_signals, sizeof *signals, &signals));
    for (int i = 0; i < aside->n_signals; i++)
        signals[i] = aside->signals[i];
    mem_free(aside->signals);
    aside->signals = signals;
    while (aside->n_signals < plan->n_signals) {
        TRY(side->config.face->stream->event_create(side->config.device,
                                                    &signals[aside->n_signals]));
        aside->n_signals++;
    }
    return STATUS_OK;
}

enum status aside_wait(const struct device_side *side)
{
    return side->aside && side->aside->stream
               ? side->config.face->stream->wait(side->aside->stream)
               : STATUS_OK;
}

struct device_stream *aside_stream(const struct device_side *side,
                                   const struct instruction *instruction)
{
    return instruction->is_aside ? side->aside->stream : side->stream;
}

void aside_hold(const struct device_side *side, const struct instruction *instruction,
                const struct kernel_step *step)
{
    struct device_aside *aside = side->aside;

    if (aside->n_held == 0)
        aside->held = instruction;
    BUG_ON(aside->held + aside->n_held != instruction);
    aside->n_held++;
    aside->step = step;
}

enum status aside_leave(const struct device_side *side)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_aside *aside = side->aside;

    aside->is_away = true;
    TRY(stream->record(side->stream, aside->left));
    return stream->wait_event(aside->stream, aside->left);
}

static enum status put_held(const struct device_side *side)
{
    struct device_aside *aside = side->aside;

    if (aside->n_held == 0)
        return STATUS_OK;
    TRY(aside_leave(side));
    for (const struct instruction *next = aside->held; aside->n_held > 0; next++) {
        aside->n_held--;
        TRY(device_put(side, next, aside->step));
        if (next->signals)
            TRY(side->config.face->stream->record(aside->stream,
                                                  aside->signals[next->signals - 1]));
    }
    return STATUS_OK;
}

enum status aside_before(const struct device_side *side, const struct instruction *instruction)
{
    const struct device_aside *aside = side->aside;

    if (!instruction->follows)
        return STATUS_OK;
    TRY(put_held(side));
    if (!aside->is_away)
        return STATUS_OK; /* it was followed by all */
    return side->config.face->stream->wait_event(side->stream,
                                                 aside->signals[instruction->follows - 1]);
}

enum status aside_after(const struct device_side *side)
{
    return put_held(side);
}

enum status aside_join(const struct device_side *side, struct device_stream *with)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_aside *aside = side->aside;

    TRY(put_held(side));
    if (!aside->is_away)
        return STATUS_OK;
    aside->is_away = with != side->stream;
    TRY(stream->record(aside->stream, aside->joined));
    return stream->wait_event(with, aside->joined);
}
