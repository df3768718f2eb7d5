/* SPDX-License-Identifier: MIT */
/* parallax.c - measures what the strategy parallax decides by.
 *
 * Ids are counted in some of the batches that training will see; messages between machines are timed
 * (comm/probe.h).
 */
#include "train/parallax.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "comm/probe.h"
#include "graph/op.h"
#include "pass/strategy.h"
#include "train/job.h"
#include "train/made_up.h"

enum { COUNTED_STEPS = 4 };

enum status parallax_parse(const char *text, int ranks, struct parallax *out)
{
    *out = (struct parallax){ .way = PASS_WAYS, .network = { ranks, 5e-5, 1.25e9 } };
    if (strcmp(text, "auto") == 0 || !*text)
        return STATUS_OK;
    for (int way = 0; way < PASS_WAYS; way++) {
        if (strcmp(text, pass_way_names[way]) == 0) {
            out->way = (enum pass_way)way;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_USAGE, "--tables %s: auto, dense, gather or serve", text);
}

/* Rows --------------------------------------------------------------------------------------- */

/* Ids of one step that go to an input, as many a sample; samples of node k are [k * rows / nodes, ...). */
struct ids {
    const int32_t *id;
    int64_t rows, length;
};

/* Counts different ids of a step: on a node, on average, and on all. */
static enum status count_ids(const struct ids *ids, int64_t vocabulary, int nodes,
                             struct pass_table *table)
{
    int32_t *last; /* node that had an id last, from 1; 0: none */
    double different = 0, all = 0, places = 0;

    TRY(mem_alloc((size_t)vocabulary + 1, sizeof *last, &last));
    for (int node = 0; node < nodes; node++) {
        const int64_t begin = node * ids->rows / nodes, end = (node + 1) * ids->rows / nodes;
        for (int64_t i = begin * ids->length; i < end * ids->length; i++) {
            const int32_t id = ids->id[i];
            if (id < 0 || id >= vocabulary)
                continue;
            places++;
            all += last[id] == 0;
            different += last[id] != node + 1;
            last[id] = node + 1;
        }
    }
    mem_free(last);
    table->places += places / COUNTED_STEPS;
    table->on_node += different / nodes / COUNTED_STEPS;
    table->on_all += all / COUNTED_STEPS;
    return STATUS_OK;
}

/* The samples of a step: real ones, or such as measurements use. */
static enum status read_step(const struct job *job, struct sampler *sampler, uint64_t step,
                             struct batch *out)
{
    const struct settings *s = &job->settings;

    if (!job->train)
        return made_up_batch(job, s->batch, 0, s->batch, out);
    const struct sampler_step now = sampler_step(sampler, step);
    const struct source_how how = { .seed = s->seed, .epoch = now.epoch };
    const size_t count = (size_t)now.samples;
    *out = (struct batch){ .samples = now.samples, .rows = now.samples };
    TRY(mem_alloc(count, source_row_bytes(job->train, SOURCE_X), &out->x));
    TRY(mem_alloc(count, source_row_bytes(job->train, SOURCE_X2) + 4, &out->x2));
    TRY(mem_alloc(count, source_row_bytes(job->train, SOURCE_Y) + 4, &out->y));
    source_extents(job->train, now.index, now.samples, out->length);
    source_read(job->train, &how, now.index, now.samples, out->length, out->x, out->x2, out->y);
    return STATUS_OK;
}

/* The input whose ids a node looks up; -1: they are made in the graph. */
static int input_of(const struct graph *graph, const struct node *lookup)
{
    const struct graph_roles *roles = graph_roles((struct graph *)graph);

    return lookup->in[0] == roles->input ? 0 : lookup->in[0] == roles->second ? 1 : -1;
}

static enum status count_step(struct job *job, const struct batch *batch)
{
    struct parallax *p = &job->parallax;
    int table = 0;

    for (int n = 0; n < graph_node_count(job->graph); n++) {
        const struct node *node = graph_node(job->graph, n);
        if ((node->op != &op_embedding && node->op != &op_embedding_mean) ||
            node->in[1]->kind != VALUE_PARAM || table == PARALLAX_TABLES)
            continue;
        const int input = input_of(job->graph, node);
        if (input < 0)
            continue;
        const struct ids ids = { .id = input == 0 ? batch->x : batch->x2,
                                 .rows = batch->rows,
                                 .length = batch->length[input] };
        snprintf(p->tables[table].name, sizeof p->tables[table].name, "%s", node->in[1]->name);
        TRY(count_ids(&ids, node->in[1]->shape.dim[0], p->network.nodes, &p->tables[table++]));
    }
    p->n_tables = table;
    return STATUS_OK;
}

static enum status count_tables(struct job *job)
{
    struct sampler *sampler;
    enum status status = STATUS_OK;

    memset(job->parallax.tables, 0, sizeof job->parallax.tables);
    TRY(sampler_create(&job->sampler, &sampler));
    for (int i = 0; i < COUNTED_STEPS && status == STATUS_OK; i++) {
        const uint64_t step =
            (uint64_t)i * (uint64_t)job->steps_per_epoch / (uint64_t)COUNTED_STEPS;
        struct batch batch = { 0 };
        status = read_step(job, sampler, step, &batch);
        if (status == STATUS_OK)
            status = count_step(job, &batch);
        made_up_release(&batch);
    }
    sampler_destroy(sampler);
    return status;
}

/* The decision ------------------------------------------------------------------------------- */

static void tell(const struct job *job)
{
    const struct parallax *p = &job->parallax;

    log_line(LOG_INFO, "parallax: %d machines, a message takes %.0f us, %.0f MB/s",
             p->network.nodes, p->network.latency * 1e6, p->network.bandwidth * 1e-6);
    for (int i = 0; i < p->chosen.count; i++) {
        const struct pass_choice *c = &p->chosen.item[i];
        log_line(LOG_INFO, "parallax: %s: %s; of %.0f rows a step has %.0f, a machine %.0f",
                 c->name, pass_way_names[c->way], c->rows, c->on_all, c->on_node);
    }
}

void parallax_print(const struct job *job, char *out, size_t size)
{
    const struct pass_choices *chosen = &job->parallax.chosen;
    struct strbuf text;

    *out = 0;
    strbuf_init(&text, size);
    for (int i = 0; i < chosen->count; i++) {
        const struct pass_choice *c = &chosen->item[i];
        strbuf_printf(&text, "%s%s %s (ms a step, expected:", i ? "; " : "", c->name,
                      pass_way_names[c->way]);
        for (int way = 0; way < PASS_WAYS; way++)
            strbuf_printf(&text, " %s %.2g", pass_way_names[way], 1e3 * c->seconds[way]);
        strbuf_add(&text, ")");
    }
    if (strbuf_status(&text) == STATUS_OK && text.text)
        snprintf(out, size, "%s", text.text);
    strbuf_release(&text);
}

enum status parallax_measure(struct job *job, struct comm *comm)
{
    struct parallax *p = &job->parallax;
    struct probe probe;

    if (job->axes.meet != MEET_PARALLAX)
        return STATUS_OK;
    p->network.nodes = transport_nodes(comm_transport(comm));
    if (p->network.nodes == 1) {
        log_line(LOG_INFO, "parallax: one machine, whose ranks share all tables");
        return job_remake_graph(job);
    }
    TRY(probe_nodes(comm, 1, &probe));
    p->network.latency = 1e-6 * probe.us;
    p->network.bandwidth =
        1e6 * (p->network.nodes - 1) / (probe.us_per_byte > 1e-6 ? probe.us_per_byte : 1e-6);
    if (comm_rank(comm) == 0)
        TRY(count_tables(job));
    TRY(comm_broadcast(comm, p->tables, sizeof p->tables / (sizeof(int64_t)), DTYPE_I64, 0));
    int64_t n_tables = p->n_tables;
    TRY(comm_broadcast(comm, &n_tables, 1, DTYPE_I64, 0));
    p->n_tables = (int)n_tables;
    TRY(job_remake_graph(job));
    if (comm_rank(comm) == 0)
        tell(job);
    return STATUS_OK;
}
