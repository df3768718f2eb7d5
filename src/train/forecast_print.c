/* SPDX-License-Identifier: MIT */
/* forecast_print.c - a forecast as JSON (docs/formats.md). */
#include "train/forecast.h"

static void add_number(struct strbuf *out, const char *name, double number)
{
    strbuf_printf(out, ", \"%s\": ", name);
    strbuf_add_number(out, number);
}

static void add_row_json(const struct forecast *plan, int i, struct strbuf *out)
{
    const struct forecast_row *row = &plan->rows[i];
    const struct cost_estimate *c = &row->cost;

    strbuf_printf(out,
                  "%s\n    {\"strategy\": \"%s\", \"split\": \"%s\", \"pipeline\": \"%s\", "
                  "\"dp\": %d, \"tp\": %d, \"pp\": %d, \"zero\": %d, \"shards\": %lld, "
                  "\"legal\": %s, \"runs\": %s, "
                  "\"exact\": %s, \"fits\": %s",
                  i ? "," : "", row->strategy, row->split, row->pipeline, row->choice.dp,
                  row->choice.tp, row->choice.pp, row->choice.zero, (long long)row->shards,
                  row->is_legal ? "true" : "false", row->runs ? "true" : "false",
                  row->is_exact ? "true" : "false", row->fits ? "true" : "false");
    if (row->is_legal) {
        add_number(out, "step_ms", 1e3 * c->seconds);
        strbuf_printf(out, ", \"rough\": %s", row->is_rough ? "true" : "false");
        if (row->tried > 0)
            add_number(out, "tried_ms", 1e3 * row->tried);
        add_number(out, "samples_per_s", (double)plan->batch / c->seconds);
        add_number(out, "compute_ms", 1e3 * c->compute);
        add_number(out, "bubble", c->bubble);
        add_number(out, "bytes", c->bytes);
        add_number(out, "memory", c->memory);
        add_number(out, "params", c->params);
        add_number(out, "gradients", c->gradients);
        add_number(out, "state", c->state);
        add_number(out, "activations", c->activations);
        add_number(out, "copy", c->copy);
    }
    strbuf_add(out, ", \"why\": ");
    strbuf_add_json(out, row->why);
    strbuf_add(out, "}");
}

static void add_link(struct strbuf *out, const char *name, const struct cost_link *link)
{
    strbuf_printf(out, ", \"%s\": {\"latency_us\": ", name);
    strbuf_add_number(out, 1e6 * link->latency);
    add_number(out, "message_us", 1e6 * link->message);
    add_number(out, "gb_per_s", 1e-9 * link->bandwidth);
    add_number(out, "cpu", link->cpu);
    strbuf_add(out, "}");
}

void forecast_print_json(const struct forecast *plan, struct strbuf *out)
{
    const struct cost_cluster *c = &plan->machine.cluster;

    strbuf_add(out, "{\"model\": ");
    strbuf_add_json(out, plan->model);
    strbuf_printf(out,
                  ", \"batch\": %lld, \"shards\": %lld, \"ranks\": %d, \"threads\": %d, "
                  "\"measured\": %s",
                  (long long)plan->batch, (long long)plan->shards, plan->ranks, plan->threads,
                  plan->is_measured ? "true" : "false");
    add_number(out, "single_ms", 1e3 * plan->single);
    strbuf_printf(out, ",\n  \"cluster\": {\"nodes\": %d, \"ranks_per_node\": %d", c->nodes,
                  c->ranks);
    add_number(out, "speed", c->speed);
    add_number(out, "crowding", c->crowding);
    add_number(out, "memory", c->memory);
    add_link(out, "within", &c->within);
    add_link(out, "between", &c->between);
    strbuf_add(out, "},\n  \"chosen\": ");
    if (plan->chosen >= 0)
        strbuf_printf(out, "%d", plan->chosen);
    else
        strbuf_add(out, "null");
    strbuf_add(out, ", \"why\": ");
    strbuf_add_json(out, plan->why);
    strbuf_add(out, ",\n  \"strategies\": [");
    for (int i = 0; i < plan->n_rows; i++)
        add_row_json(plan, i, out);
    strbuf_add(out, "],\n  \"scaling\": [");
    for (int i = 0; i < plan->n_points; i++) {
        const struct forecast_point *point = &plan->points[i];
        strbuf_printf(out, "%s\n    {\"ranks\": %d", i ? "," : "", point->ranks);
        add_number(out, "data_parallel_samples_per_s", point->data_parallel);
        add_number(out, "best_samples_per_s", point->best);
        strbuf_printf(out, ", \"best\": \"%s\"}", point->name);
    }
    strbuf_add(out, "]}\n");
}
