/* SPDX-License-Identifier: MIT */
/* part_pipeline.c - a pipeline: its last step as the stages measured it, above what the schedule planned. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "report/number.h"
#include "report/page.h"
#include "report/part.h"
#include "report/plan_page.h"

enum { EVENTS = 20000, MOST_STAGES = 256 };

/* A row of [stage, chunk, shard, 1 if backward, begin, end in milliseconds]; false if it is none. */
static bool read_event(const struct json_value *row, int stages, struct plan_page_event *out)
{
    double n[6];

    if (row->kind != JSON_ARRAY || row->count != 6)
        return false;
    for (int i = 0; i < 6; i++) {
        n[i] = row->items[i].kind == JSON_NUMBER ? row->items[i].number : NAN;
        if (!(n[i] >= 0 && n[i] < 1e12))
            return false;
    }
    *out = (struct plan_page_event){ .stage = n[0] < MOST_STAGES ? (int)n[0] : MOST_STAGES,
                                     .shard = (int64_t)n[2],
                                     .is_backward = n[3] > 0,
                                     .begin = 1e-3 * n[4],
                                     .end = 1e-3 * n[5] };
    return out->stage < stages && out->end >= out->begin;
}

/* One timeline; both are drawn to the same scale. Gives its end. */
static size_t read_events(const struct json_value *list, int stages,
                          struct plan_page_event *events, double *seconds)
{
    size_t count = 0;

    for (size_t i = 0; list && list->kind == JSON_ARRAY && i < list->count && i < EVENTS; i++) {
        if (!read_event(&list->items[i], stages, &events[count]))
            continue;
        *seconds = fmax(*seconds, events[count++].end);
    }
    return count;
}

static void write_timeline(struct report *report, const struct json_value *pipeline,
                           const char *name, const char *title, double seconds,
                           struct plan_page_event *events)
{
    const int stages = (int)json_integer(pipeline, "stages", 0);
    struct plan_page page = { .stages = stages, .events = events };
    double end = 0;

    page.n_events = read_events(json_get(pipeline, name), stages, events, &end);
    page.seconds = seconds;
    if (page.n_events == 0 || !(seconds > 0))
        return;
    page_plot_begin(report->out, true);
    strbuf_printf(report->out, "<p><b>%s</b></p>\n", title);
    plan_page_timeline(&page, report->out);
    page_plot_end(report->out);
}

static void add_share(struct strbuf *out, const struct json_value *pipeline, const char *name)
{
    char text[NUMBER_TEXT];

    number_print(text, json_number(pipeline, name, NAN), NUMBER_PERCENT, 0);
    strbuf_add(out, text);
}

static void write_note(struct report *report, const struct json_value *pipeline)
{
    struct strbuf note;

    strbuf_init(&note, 1024);
    strbuf_printf(&note, "%.40s, %lld shards through %lld stages of %lld pieces each. Idle: ",
                  json_text(pipeline, "schedule", "?"),
                  (long long)json_integer(pipeline, "shards", 0),
                  (long long)json_integer(pipeline, "stages", 0),
                  (long long)json_integer(pipeline, "chunks", 0));
    add_share(&note, pipeline, "bubble_formula");
    strbuf_add(&note, " if all pieces took as long, ");
    add_share(&note, pipeline, "bubble_planned");
    strbuf_add(&note, " with the times that they took on average, ");
    add_share(&note, pipeline, "bubble_paced");
    strbuf_add(&note, " with each action's own, ");
    add_share(&note, pipeline, "bubble_measured");
    strbuf_printf(&note, " as measured: medians of the last %lld steps.",
                  (long long)json_integer(pipeline, "steps", 1));
    page_note(report->out, note.text);
    strbuf_release(&note);
}

void part_pipeline(struct report *report)
{
    const struct json_value *pipeline =
        report->run->summary ? json_get(json_root(report->run->summary), "pipeline") : NULL;
    struct plan_page_event *events;
    double seconds = 0;

    if (!pipeline || pipeline->kind != JSON_OBJECT)
        return;
    const int64_t stages = json_integer(pipeline, "stages", 0);
    if (stages < 1 || stages > MOST_STAGES)
        return;
    const enum status status = mem_alloc(EVENTS, sizeof *events, &events);
    if (status != STATUS_OK) {
        report->status = status;
        return;
    }
    (void)read_events(json_get(pipeline, "planned"), (int)stages, events, &seconds);
    (void)read_events(json_get(pipeline, "measured"), (int)stages, events, &seconds);
    page_section_begin(report->out, "Pipeline");
    write_note(report, pipeline);
    page_plots_begin(report->out);
    write_timeline(report, pipeline, "measured", "The last step, as measured", seconds, events);
    write_timeline(report, pipeline, "planned", "The schedule, with the pieces' average times",
                   seconds, events);
    page_plots_end(report->out);
    page_section_end(report->out);
    mem_free(events);
}
