/* SPDX-License-Identifier: MIT */
/* timeline.c - the last step of a pipeline as the stages measured it, beside the schedule with the same pieces.
 *
 * Stages of one machine have one clock. On several, clocks differ by what is unknown here: each stage's times count from
 * its own first action, whose place in the plan is added.
 */
#include "train/timeline.h"

#include <math.h>

#include "base/mem.h"

enum { EVENTS = 4096 }; /* that are printed, of one kind */

struct timeline {
    const struct pipe_config *config;
    int64_t count;               /* actions of a stage */
    struct exec_action *actions; /* of all stages, one after the other */
    struct pipe_span *planned;   /* likewise */
    double step, planned_step;   /* seconds */
    bool is_one_clock;
};

static int piece_of(const struct timeline *t, int stage, const struct exec_action *a)
{
    return a->chunk * t->config->stages + stage;
}

/* Each piece takes what it took on average. */
static enum status plan(struct timeline *t)
{
    const size_t pieces = (size_t)(t->config->stages * t->config->chunks);
    double *seconds[2] = { NULL, NULL };

    enum status status = mem_alloc(pieces, sizeof(double), &seconds[0]);
    if (status == STATUS_OK)
        status = mem_alloc(pieces, sizeof(double), &seconds[1]);
    for (int64_t i = 0; status == STATUS_OK && i < t->count * t->config->stages; i++) {
        const struct exec_action *a = &t->actions[i];
        seconds[a->is_backward][piece_of(t, (int)(i / t->count), a)] +=
            (a->end - a->begin) / (double)t->config->shards;
    }
    const struct pipe_times times = { .forward = seconds[0], .backward = seconds[1] };
    if (status == STATUS_OK)
        status = pipe_simulate(t->config, &times, t->planned, &t->planned_step);
    mem_free(seconds[0]);
    mem_free(seconds[1]);
    return status;
}

/* Times from the beginning of the step. */
static void align(struct timeline *t)
{
    double first = t->actions[0].begin;

    for (int stage = 0; stage < t->config->stages; stage++)
        first = fmin(first, t->actions[stage * t->count].begin);
    for (int stage = 0; stage < t->config->stages; stage++) {
        struct exec_action *own = t->actions + stage * t->count;
        const double from =
            t->is_one_clock ? first : own->begin - t->planned[stage * t->count].begin;
        for (int64_t i = 0; i < t->count; i++) {
            own[i].begin -= from;
            own[i].end -= from;
            t->step = fmax(t->step, own[i].end);
        }
    }
}

/* Share of a step in which stages are idle. */
static double bubble_of(const struct timeline *t, bool planned)
{
    const double step = planned ? t->planned_step : t->step;
    double busy = 0;

    for (int64_t i = 0; i < t->count * t->config->stages; i++)
        busy += planned ? t->planned[i].end - t->planned[i].begin
                        : t->actions[i].end - t->actions[i].begin;
    return step > 0 ? 1 - busy / (step * t->config->stages) : 0;
}

/* Rows of [stage, chunk, shard, 1 if backward, begin, end in milliseconds]. */
static void print_events(const struct timeline *t, bool planned, struct strbuf *out)
{
    const int64_t all = t->count * t->config->stages;

    strbuf_printf(out, ", \"%s\": [", planned ? "planned" : "measured");
    for (int64_t i = 0; i < all && i < EVENTS; i++) {
        const struct exec_action *a = &t->actions[i];
        const double begin = planned ? t->planned[i].begin : a->begin;
        const double end = planned ? t->planned[i].end : a->end;
        strbuf_printf(out, "%s[%d, %d, %lld, %d, %.4f, %.4f]", i ? ", " : "",
                      (int)(i / t->count), (int)a->chunk, (long long)a->shard,
                      (int)a->is_backward, 1e3 * begin, 1e3 * end);
    }
    strbuf_add(out, "]");
}

static enum status print(struct timeline *t, struct strbuf *out)
{
    const struct pipe_config *c = t->config;

    TRY(plan(t));
    align(t);
    strbuf_printf(out,
                  ",\n  \"pipeline\": {\"schedule\": \"%s\", \"stages\": %d, \"chunks\": %d, "
                  "\"shards\": %lld, \"bubble_formula\": ",
                  pipe_kind_names[c->kind], c->stages, c->chunks, (long long)c->shards);
    strbuf_add_number(out, pipe_bubble(c));
    strbuf_add(out, ", \"bubble_planned\": ");
    strbuf_add_number(out, bubble_of(t, true));
    strbuf_add(out, ", \"bubble_measured\": ");
    strbuf_add_number(out, bubble_of(t, false));
    print_events(t, true, out);
    print_events(t, false, out);
    strbuf_add(out, "}");
    return strbuf_status(out);
}

static enum status gather(struct timeline *t, struct transport *stages, uint32_t tag,
                          const struct exec_action *own)
{
    const size_t bytes = (size_t)t->count * sizeof *own;

    for (int64_t i = 0; i < t->count; i++)
        t->actions[i] = own[i];
    for (int s = 1; s < t->config->stages; s++)
        TRY(transport_receive(stages, s, tag, t->actions + s * t->count, bytes));
    return STATUS_OK;
}

enum status timeline_print(const struct pipe_config *config, struct transport *stages,
                           uint32_t tag, const struct exec *exec, struct strbuf *out)
{
    const struct exec_action *own;
    struct timeline t = { .config = config, .count = exec_actions(exec, &own) };

    if (t.count == 0)
        return STATUS_OK;
    if (transport_rank(stages) > 0)
        return transport_send(stages, 0, tag, own, (size_t)t.count * sizeof *own);
    const size_t all = (size_t)(t.count * config->stages);
    t.is_one_clock = transport_is_one_machine(stages);
    enum status status = mem_alloc(all, sizeof *t.actions, &t.actions);
    if (status == STATUS_OK)
        status = mem_alloc(all, sizeof *t.planned, &t.planned);
    if (status == STATUS_OK)
        status = gather(&t, stages, tag, own);
    if (status == STATUS_OK)
        status = print(&t, out);
    mem_free(t.actions);
    mem_free(t.planned);
    return status;
}
