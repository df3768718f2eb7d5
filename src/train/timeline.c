/* SPDX-License-Identifier: MIT */
/* timeline.c - the last steps of a pipeline as the stages measured them, beside the schedule with the same pieces.
 *
 * A bubble is the share of a step's span, from the first action of any stage to the end of the last, in which stages do nothing,
 * on average. Of each step there are three:
 *
 *   planned    the schedule, every piece as long as it took on average in that step
 *   paced      the schedule, every action as long as it took
 *   measured   what was
 *
 * What lies between planned and paced is that actions of a piece differ, whatever the reason; between paced and measured, that
 * what a stage needs comes later than it was sent: hand-over. Medians over steps are told. Updates, loading and all that
 * stages do after their last action are no part of the span.
 *
 * Stages of one machine have one clock. On several, clocks differ by what is unknown here: each stage's times count from
 * its own first action, whose place in the plan is added.
 */
#include "train/timeline.h"

#include <math.h>
#include <stdlib.h>

#include "base/mem.h"

enum { EVENTS = 4096 }; /* that are printed, of one kind */

struct timeline {
    const struct pipe_config *config;
    struct exec_actions own;
    int64_t count;               /* actions of all stages in a step */
    struct exec_action *actions; /* of all steps: of all stages, one after the other */
    struct pipe_span *planned;   /* of one step */
    double *seconds[2],
        *early[2]; /* forward, backward: of each piece; and before its end it had sent all */
    double *lengths, *before; /* the same of each action of a step */
    bool is_one_clock;
};

/* Shares of a step. */
struct bubbles {
    double planned, paced, measured;
};

static int stage_of(const struct timeline *t, int64_t i)
{
    return (int)(i / t->own.count);
}

static int piece_of(const struct timeline *t, int64_t i, const struct exec_action *a)
{
    return a->chunk * t->config->stages + stage_of(t, i);
}

static double bubble_of(const struct timeline *t, double busy, double span)
{
    return span > 0 ? 1 - busy / (span * t->config->stages) : 0;
}

/* What each action took, and each piece on average; gives how long stages were busy together. */
static double read_lengths(struct timeline *t, const struct exec_action *actions)
{
    const double share = 1.0 / (double)t->config->shards;
    double busy = 0;

    for (int p = 0; p < t->config->stages * t->config->chunks; p++)
        t->seconds[0][p] = t->seconds[1][p] = t->early[0][p] = t->early[1][p] = 0;
    for (int64_t i = 0; i < t->count; i++) {
        const struct exec_action *a = &actions[i];
        const int piece = piece_of(t, i, a);
        t->lengths[i] = a->end - a->begin;
        t->before[i] = a->end - a->given;
        t->seconds[a->is_backward][piece] += t->lengths[i] * share;
        t->early[a->is_backward][piece] += t->before[i] * share;
        busy += t->lengths[i];
    }
    return busy;
}

static enum status simulate(struct timeline *t, double *out_span)
{
    const struct pipe_times times = { .actions = t->lengths, .early = t->before };

    return pipe_simulate(t->config, &times, t->planned, out_span);
}

/* Each action takes what its piece took on average. */
static enum status plan(struct timeline *t, const struct exec_action *actions, double *out_span)
{
    for (int64_t i = 0; i < t->count; i++) {
        const int piece = piece_of(t, i, &actions[i]);
        t->lengths[i] = t->seconds[actions[i].is_backward][piece];
        t->before[i] = t->early[actions[i].is_backward][piece];
    }
    return simulate(t, out_span);
}

/* Times from the beginning of the step; gives its span. */
static double align(const struct timeline *t, struct exec_action *actions)
{
    double first = actions[0].begin, span = 0;

    for (int64_t i = 0; i < t->count; i += t->own.count)
        first = fmin(first, actions[i].begin);
    for (int stage = 0; stage < t->config->stages; stage++) {
        struct exec_action *own = actions + stage * t->own.count;
        const double from =
            t->is_one_clock ? first : own->begin - t->planned[stage * t->own.count].begin;
        for (int64_t i = 0; i < t->own.count; i++) {
            own[i].begin -= from;
            own[i].end -= from;
            own[i].given -= from;
            span = fmax(span, own[i].end);
        }
    }
    return span;
}

static enum status measure_step(struct timeline *t, int step, struct bubbles *out)
{
    struct exec_action *actions = t->actions + step * t->count;
    const double busy = read_lengths(t, actions);
    double span;

    TRY(simulate(t, &span));
    out->paced = bubble_of(t, busy, span);
    TRY(plan(t, actions, &span));
    out->planned = bubble_of(t, busy, span);
    out->measured = bubble_of(t, busy, align(t, actions));
    return STATUS_OK;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *numbers, int count)
{
    qsort(numbers, (size_t)count, sizeof *numbers, by_size);
    return (numbers[(count - 1) / 2] + numbers[count / 2]) / 2;
}

static enum status measure(struct timeline *t, struct bubbles *out)
{
    double planned[EXEC_ACTION_STEPS], paced[EXEC_ACTION_STEPS], measured[EXEC_ACTION_STEPS];

    for (int step = 0; step < t->own.steps; step++) {
        TRY(measure_step(t, step, out));
        planned[step] = out->planned;
        paced[step] = out->paced;
        measured[step] = out->measured;
    }
    out->planned = median(planned, t->own.steps);
    out->paced = median(paced, t->own.steps);
    out->measured = median(measured, t->own.steps);
    return STATUS_OK;
}

/* Rows of [stage, chunk, shard, 1 if backward, begin, end in milliseconds]. */
static void print_events(const struct timeline *t, bool planned, struct strbuf *out)
{
    const struct exec_action *actions = t->actions + t->own.last * t->count;

    strbuf_printf(out, ", \"%s\": [", planned ? "planned" : "measured");
    for (int64_t i = 0; i < t->count && i < EVENTS; i++) {
        const struct exec_action *a = &actions[i];
        const double begin = planned ? t->planned[i].begin : a->begin;
        const double end = planned ? t->planned[i].end : a->end;
        strbuf_printf(out, "%s[%d, %d, %lld, %d, %.4f, %.4f]", i ? ", " : "", stage_of(t, i),
                      (int)a->chunk, (long long)a->shard, (int)a->is_backward, 1e3 * begin,
                      1e3 * end);
    }
    strbuf_add(out, "]");
}

/* Milliseconds of each piece, forward or backward. */
static void print_pieces(const struct timeline *t, bool is_backward, struct strbuf *out)
{
    strbuf_printf(out, ", \"%s_ms\": [", is_backward ? "backward" : "forward");
    for (int p = 0; p < t->config->stages * t->config->chunks; p++)
        strbuf_printf(out, "%s%.4f", p ? ", " : "", 1e3 * t->seconds[is_backward][p]);
    strbuf_add(out, "]");
}

static void add_share(struct strbuf *out, const char *name, double share)
{
    strbuf_printf(out, ", \"bubble_%s\": ", name);
    strbuf_add_number(out, share);
}

static enum status print(struct timeline *t, struct strbuf *out)
{
    const struct pipe_config *c = t->config;
    struct bubbles bubbles;
    const struct exec_action *last = t->actions + t->own.last * t->count;
    double span;

    TRY(measure(t, &bubbles));
    (void)read_lengths(t, last); /* what is drawn is the last step */
    TRY(plan(t, last, &span));
    strbuf_printf(out,
                  ",\n  \"pipeline\": {\"schedule\": \"%s\", \"stages\": %d, \"chunks\": %d, "
                  "\"shards\": %lld, \"steps\": %d",
                  pipe_kind_names[c->kind], c->stages, c->chunks, (long long)c->shards,
                  t->own.steps);
    add_share(out, "formula", pipe_bubble(c));
    add_share(out, "planned", bubbles.planned);
    add_share(out, "paced", bubbles.paced);
    add_share(out, "measured", bubbles.measured);
    print_pieces(t, false, out);
    print_pieces(t, true, out);
    print_events(t, true, out);
    print_events(t, false, out);
    strbuf_add(out, "}");
    return strbuf_status(out);
}

/* Steps of this rank lie one after the other, those of all stages step by step. */
static enum status gather(struct timeline *t, struct transport *stages, uint32_t tag)
{
    const size_t bytes = (size_t)t->own.count * sizeof *t->actions;

    for (int step = 0; step < t->own.steps; step++) {
        struct exec_action *of = t->actions + step * t->count;
        for (int64_t i = 0; i < t->own.count; i++)
            of[i] = t->own.of[step * t->own.count + i];
        for (int s = 1; s < t->config->stages; s++)
            TRY(transport_receive(stages, s, tag, of + s * t->own.count, bytes));
    }
    return STATUS_OK;
}

static enum status tell(const struct exec_actions *own, struct transport *stages, uint32_t tag)
{
    for (int step = 0; step < own->steps; step++)
        TRY(transport_send(stages, 0, tag, own->of + step * own->count,
                           (size_t)own->count * sizeof *own->of));
    return STATUS_OK;
}

static enum status make_room(struct timeline *t)
{
    const size_t all = (size_t)t->count,
                 pieces = (size_t)(t->config->stages * t->config->chunks);

    TRY(mem_alloc(all * (size_t)t->own.steps, sizeof *t->actions, &t->actions));
    TRY(mem_alloc(all, sizeof *t->planned, &t->planned));
    TRY(mem_alloc(all, sizeof *t->lengths, &t->lengths));
    TRY(mem_alloc(all, sizeof *t->before, &t->before));
    for (int i = 0; i < 2; i++) {
        TRY(mem_alloc(pieces, sizeof *t->seconds[i], &t->seconds[i]));
        TRY(mem_alloc(pieces, sizeof *t->early[i], &t->early[i]));
    }
    return STATUS_OK;
}

enum status timeline_print(const struct pipe_config *config, struct transport *stages,
                           uint32_t tag, const struct exec *exec, struct strbuf *out)
{
    struct timeline t = { .config = config, .own = exec_actions(exec) };

    if (t.own.count == 0)
        return STATUS_OK;
    if (transport_rank(stages) > 0)
        return tell(&t.own, stages, tag);
    t.count = t.own.count * config->stages;
    t.is_one_clock = transport_is_one_machine(stages);
    enum status status = make_room(&t);
    if (status == STATUS_OK)
        status = gather(&t, stages, tag);
    if (status == STATUS_OK)
        status = print(&t, out);
    mem_free(t.actions);
    mem_free(t.planned);
    mem_free(t.lengths);
    mem_free(t.before);
    for (int i = 0; i < 2; i++) {
        mem_free(t.seconds[i]);
        mem_free(t.early[i]);
    }
    return status;
}
