/* SPDX-License-Identifier: MIT */
/* cost.c - work of layers, read from a graph, and guessed; cuts; memory of a rank. */
#include "sched/cost.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "graph/op.h"
#include "pass/pass.h"
#include "sched/work.h"

/* Rates of one core of a machine of our time, for who cannot measure. */
const struct cost_rates cost_usual_rates = { .flops = 5e10, .bytes = 8e9 };

/* A page of 4096 bytes that is given back and written again, where nobody has measured it. */
static const double PAGE_SECONDS = 0.7e-6 / 4096;

/* Bytes of parameters or gradients that are resident at a time where they are held in parts
 * (exec/memory.c). */
const double cost_window = 8 << 20;

/* Reading a graph ------------------------------------------------------------------------ */

static double bytes_of(const struct value *value)
{
    return (double)shape_count(&value->shape) * (double)dtype_size(value->dtype);
}

/* The value whose memory a view is. */
static const struct value *root_of(const struct value *value)
{
    while (value->maker && value->maker->op->is_view)
        value = value->maker->in[0];
    return value;
}

struct reader {
    const struct graph *graph;
    int *layer_of;  /* by place of a node: its layer; -1: none */
    int *maker_of;  /* by value id: layer that makes it, -1 */
    int *last_read; /* by value id: last layer of forward that reads it, -1 */
    bool *is_kept;  /* by value id: backward reads it */
    bool *is_owned; /* by value id: a layer has these parameters already */
    struct cost_work *work;
};

static bool is_computed(const struct node *node)
{
    return node->phase == PHASE_FORWARD || node->phase == PHASE_BACKWARD;
}

/* It makes a gradient of what all shards have. */
static bool is_making(const struct node *node)
{
    return node->op == &op_factor_sum || node->op == &op_row_sum;
}

/* A node of backward is called "d." and as the node that it differentiates, or as one of its
 * parameters; what is called otherwise follows the node before it. Backward goes from the last
 * layer to the first. */
static int layer_differentiated(const struct reader *reader, const struct node *node,
                                int before)
{
    const char *name = strncmp(node->name, "d.", 2) == 0 ? node->name + 2 : node->name;

    for (int n = graph_node_count(reader->graph) - 1; n >= 0; n--) {
        const struct node *forward = graph_node(reader->graph, n);
        const int layer = reader->layer_of[n];
        if (forward->phase != PHASE_FORWARD || layer < 0 || layer > before)
            continue;
        if (strcmp(forward->name, name) == 0)
            return layer;
        for (int i = 0; i < forward->n_in; i++) {
            if (forward->in[i]->kind == VALUE_PARAM && strcmp(forward->in[i]->name, name) == 0)
                return layer;
        }
    }
    return before;
}

static void read_forward(struct reader *reader, const struct node *node, int layer)
{
    struct cost_layer *l = &reader->work->layers[layer];

    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = root_of(node->in[i]);
        reader->last_read[in->id] = layer;
        if ((in->kind == VALUE_PARAM || in->kind == VALUE_AVERAGE) &&
            !reader->is_owned[in->id]) {
            reader->is_owned[in->id] = true;
            l->params += bytes_of(in);
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        reader->maker_of[node->out[i]->id] = layer;
        l->out += bytes_of(node->out[i]);
    }
}

/* Factors, or ids and rows, go between machines in place of a gradient. */
static void read_sum(struct reader *reader, const struct node *node, double seconds)
{
    double bytes = 0;

    if (!is_making(node))
        return;
    for (int i = 0; i < node->n_in; i++)
        bytes += bytes_of(node->in[i]);
    for (int v = 0; v < graph_value_count(reader->graph); v++) {
        const struct value *param = graph_value(reader->graph, v);
        if (param->kind != VALUE_PARAM || !param->flat ||
            param->flat != pass_bucket_value(reader->graph, node->attrs.bucket, "param"))
            continue;
        for (int n = 0; n < graph_node_count(reader->graph); n++) {
            const struct node *user = graph_node(reader->graph, n);
            if (reader->layer_of[n] < 0 || user->phase != PHASE_FORWARD)
                continue;
            for (int i = 0; i < user->n_in; i++) {
                if (user->in[i] == param) {
                    reader->work->layers[reader->layer_of[n]].sums += bytes;
                    reader->work->layers[reader->layer_of[n]].made += seconds;
                    return;
                }
            }
        }
    }
}

static void read_values(struct reader *reader)
{
    struct cost_work *work = reader->work;

    for (int v = 0; v < graph_value_count(reader->graph); v++) {
        const struct value *value = graph_value(reader->graph, v);
        const int maker = reader->maker_of[v];
        if (maker < 0 || root_of(value) != value)
            continue;
        if (reader->is_kept[v])
            work->layers[maker].kept += bytes_of(value);
        for (int l = maker; l < reader->last_read[v]; l++)
            work->layers[l].crossing += bytes_of(value);
    }
}

/* Layers are the nodes of forward. Gives how many there are. */
static int find_layers(const struct reader *reader)
{
    const int count = graph_node_count(reader->graph);
    int n_layers = 0;

    for (int n = 0; n < count; n++)
        reader->layer_of[n] =
            graph_node(reader->graph, n)->phase == PHASE_FORWARD ? n_layers++ : -1;
    for (int n = 0, before = n_layers - 1; n < count; n++) {
        const struct node *node = graph_node(reader->graph, n);
        if (node->phase == PHASE_BACKWARD)
            reader->layer_of[n] = before = layer_differentiated(reader, node, before);
    }
    return n_layers;
}

enum status cost_layers(const struct graph *graph, int *layer_of)
{
    const struct reader reader = { .graph = graph, .layer_of = layer_of };

    return find_layers(&reader) > 0
               ? STATUS_OK
               : FAIL(STATUS_USAGE, "graph %s has no forward nodes", graph_name(graph));
}

static void read_nodes(struct reader *reader, const double *seconds)
{
    struct cost_work *work = reader->work;

    work->n_layers = find_layers(reader);
    for (int n = 0; n < graph_node_count(reader->graph); n++) {
        const struct node *node = graph_node(reader->graph, n);
        const int layer = reader->layer_of[n];
        if (node->phase == PHASE_FORWARD) {
            work->layers[layer] =
                (struct cost_layer){ .name = node->name, .forward = seconds[n] };
            read_forward(reader, node, layer);
        }
    }
    for (int n = 0; n < graph_node_count(reader->graph); n++) {
        const struct node *node = graph_node(reader->graph, n);
        if (node->phase != PHASE_BACKWARD)
            continue;
        work->layers[reader->layer_of[n]].backward += seconds[n];
        for (int i = 0; i < node->n_in; i++)
            reader->is_kept[root_of(node->in[i])->id] = true;
    }
    for (int n = 0; n < graph_node_count(reader->graph); n++) {
        if (!is_computed(graph_node(reader->graph, n)))
            read_sum(reader, graph_node(reader->graph, n), seconds[n]);
    }
    read_values(reader);
}

enum status cost_read(const struct graph *graph, const double *node_seconds, int64_t shards,
                      int n_states, struct cost_work *out)
{
    const size_t n_nodes = (size_t)graph_node_count(graph) + 1;
    const size_t n_values = (size_t)graph_value_count(graph) + 1;
    struct cost_work work = { .shards = shards,
                              .n_states = n_states,
                              .n_buckets = pass_bucket_count(graph),
                              .dense = work_dense_bytes(graph) };
    struct reader reader = { .graph = graph, .work = &work };

    enum status status = mem_alloc(n_nodes, sizeof *work.layers, &work.layers);
    if (status == STATUS_OK)
        status = mem_alloc(n_nodes, sizeof(int), &reader.layer_of);
    if (status == STATUS_OK)
        status = mem_alloc(n_values, sizeof(int), &reader.maker_of);
    if (status == STATUS_OK)
        status = mem_alloc(n_values, sizeof(int), &reader.last_read);
    if (status == STATUS_OK)
        status = mem_alloc(n_values, sizeof(bool), &reader.is_kept);
    if (status == STATUS_OK)
        status = mem_alloc(n_values, sizeof(bool), &reader.is_owned);
    if (status == STATUS_OK) {
        for (size_t v = 0; v < n_values; v++)
            reader.maker_of[v] = reader.last_read[v] = -1;
        read_nodes(&reader, node_seconds);
    }
    mem_free(reader.layer_of);
    mem_free(reader.maker_of);
    mem_free(reader.last_read);
    mem_free(reader.is_kept);
    mem_free(reader.is_owned);
    if (status == STATUS_OK && work.n_layers == 0)
        status = FAIL(STATUS_USAGE, "graph %s has no forward nodes", graph_name(graph));
    if (status != STATUS_OK) {
        cost_release(&work);
        return status;
    }
    *out = work;
    return STATUS_OK;
}

void cost_release(struct cost_work *work)
{
    mem_free(work->layers);
    *work = (struct cost_work){ 0 };
}

void cost_guess(const struct graph *graph, const struct cost_rates *rates, double *node_seconds)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        double bytes = 0;
        node_seconds[n] = 0;
        if (!is_making(node) &&
            (!is_computed(node) || node->op->is_view || node->op->split[0] == SPLIT_WHOLE))
            continue;
        for (int i = 0; i < node->n_in; i++)
            bytes += bytes_of(node->in[i]);
        for (int i = 0; i < node->n_out && !is_making(node); i++)
            bytes += bytes_of(node->out[i]);
        node_seconds[n] = fmax(graph_node_flops(node) / rates->flops, bytes / rates->bytes);
    }
}

/* A table's update covers the rows that are looked up; that of a product of factors covers all. */
void cost_guess_updates(const struct graph *graph, const struct cost_rates *rates,
                        int64_t shards, int n_states, double *node_seconds)
{
    const double streams = 2 + 2 * n_states;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op == &op_row_sum)
            node_seconds[n] += streams * bytes_of(node->in[2]) / rates->bytes;
        if (node->op == &op_factor_sum)
            node_seconds[n] += streams * bytes_of(node->out[0]) / (double)shards / rates->bytes;
    }
}

void cost_guess_rest(struct cost_work *work, const struct cost_rates *rates)
{
    double widest = 0;

    for (int l = 0; l < work->n_layers; l++)
        widest = fmax(widest, work->layers[l].out);
    work->add = 1 / rates->bytes;
    work->update = (2 + 2 * work->n_states) / rates->bytes;
    work->transient = 3 * widest; /* an output, its gradient, and the next one's */
}

double cost_shard_seconds(const struct cost_work *work)
{
    double seconds = 0;

    for (int l = 0; l < work->n_layers; l++)
        seconds += work->layers[l].forward + work->layers[l].backward + work->layers[l].made;
    return seconds;
}

double cost_params(const struct cost_work *work)
{
    double bytes = 0;

    for (int l = 0; l < work->n_layers; l++)
        bytes += work->layers[l].params;
    return bytes;
}

/* Cuts ----------------------------------------------------------------------------------- */

static double layer_seconds(const struct cost_layer *layer)
{
    return layer->forward + layer->backward;
}

/* Can layers be cut such that no piece takes longer than `most`? A piece takes as many as it can,
 * but leaves one for each that follows. */
static bool can_cut(const struct cost_work *work, int parts, double most, int *begins)
{
    int l = 0;

    for (int p = 0; p < parts; p++) {
        double sum = 0;
        begins[p] = l;
        while (l < work->n_layers - (parts - 1 - p)) {
            const double next = layer_seconds(&work->layers[l]);
            if (l > begins[p] && sum + next > most)
                break;
            sum += next;
            l++;
        }
        if (sum > most)
            return false;
    }
    begins[parts] = l;
    return l == work->n_layers;
}

enum status cost_cut(const struct cost_work *work, int parts, int *begins)
{
    double low = 0, high = 0;

    if (parts > work->n_layers)
        return FAIL(STATUS_USAGE, "%d pieces of %d layers: each needs one at least", parts,
                    work->n_layers);
    for (int l = 0; l < work->n_layers; l++)
        high += layer_seconds(&work->layers[l]);
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        if (can_cut(work, parts, middle, begins))
            high = middle;
        else
            low = middle;
    }
    BUG_ON(!can_cut(work, parts, high * (1 + 1e-9) + 1e-12, begins));
    return STATUS_OK;
}

/* Memory --------------------------------------------------------------------------------- */

static double activations_of(const struct cost_work *work)
{
    double kept = 0;

    for (int l = 0; l < work->n_layers; l++)
        kept += work->layers[l].kept;
    return kept + work->transient;
}

/* As exec/memory.c has it: W rails of N machines. */
void cost_memory(const struct cost_work *work, const struct cost_cluster *cluster,
                 const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = cost_params(work), ranks = (double)choice->dp;
    const int nodes = cluster->shares ? cluster->nodes : choice->dp;
    const double window = fmin(params, cost_window);
    const bool is_alone = choice->interval > 1 || choice->servers > 0 || choice->neighbors > 0;
    const double local = nodes > 1 ? 1 : cluster->ranks; /* that read each other's gradients */

    out->params = choice->zero == 3 && nodes > 1 ? params / nodes + 2 * window : params;
    out->gradients = choice->lanes * (choice->zero >= 2 ? fmin(params, 2 * window) : params);
    if (choice->lanes == 1 && work->shards == 1 && choice->dp == 1)
        out->gradients = window; /* they pass through the arena */
    out->gradients *= 1 + (local - 1) / local;
    if (nodes > 1 && !is_alone)
        out->gradients += choice->zero >= 2 ? window : params;
    out->state =
        choice->servers > 0 ? 0 : work->n_states * (is_alone ? params : params / ranks);
    out->activations = choice->lanes * activations_of(work);
    if (choice->interval > 1)
        out->params += params; /* of all, as they last met */
    if (choice->neighbors > 0) /* the mean; two slots, or what comes from neighbors */
        out->params += params * (1 + (nodes > 1 ? choice->neighbors : 2));
    if (choice->zero == 0)
        out->copy = (1 + work->n_states) * params;
    out->memory = out->params + out->gradients + out->state + out->activations + out->copy;
}

double cost_page_seconds(const struct cost_cluster *cluster)
{
    return cluster->pages > 0 ? cluster->pages : PAGE_SECONDS;
}
