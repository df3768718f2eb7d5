/* SPDX-License-Identifier: MIT */
/* device_aside.c - the second stream of a step on a device, for instructions that are aside (aside.h).
 *
 * It leaves the first one with the first instruction that is aside, and joins it again at the end of what was put, so that both can
 * be captured; between these, instructions follow each other's signals, which are events.
 */
#include "base/mem.h"
#include "exec/device_side.h"

struct device_aside {
    struct device_stream *stream;
    struct device_event *left, *joined;
    struct device_event **signals;
    int n_signals;
    bool is_away; /* something was put there that the other stream has not waited for */
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

enum status aside_leave(const struct device_side *side)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_aside *aside = side->aside;

    aside->is_away = true;
    TRY(stream->record(side->stream, aside->left));
    return stream->wait_event(aside->stream, aside->left);
}

enum status aside_before(const struct device_side *side, const struct instruction *instruction)
{
    const struct device_aside *aside = side->aside;

    if (instruction->is_aside && !aside->is_away)
        return aside_leave(side); /* which follows all that was put */
    if (!instruction->follows || !aside->is_away)
        return STATUS_OK;
    return side->config.face->stream->wait_event(aside_stream(side, instruction),
                                                 aside->signals[instruction->follows - 1]);
}

enum status aside_after(const struct device_side *side, const struct instruction *instruction)
{
    if (!instruction->signals)
        return STATUS_OK;
    return side->config.face->stream->record(aside_stream(side, instruction),
                                             side->aside->signals[instruction->signals - 1]);
}

enum status aside_join(const struct device_side *side, struct device_stream *with)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device_aside *aside = side->aside;

    if (!aside->is_away)
        return STATUS_OK;
    aside->is_away = with != side->stream;
    TRY(stream->record(aside->stream, aside->joined));
    return stream->wait_event(with, aside->joined);
}
