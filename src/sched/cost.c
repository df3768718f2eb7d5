/* SPDX-License-Identifier: MIT */
/* cost.c - predicts a step from the seconds of layers and what links do.
 *
 * With V shards on dp x lanes places, each lane of a data-parallel rank has v = V / (dp lanes) of them:
 *
 *   compute   v (F + B) + M                   seconds of all layers, forward and backward, and of meeting
 *   sums      P (add n + update) / n          n lanes of a machine add n gradients of P bytes and update, a part each
 *   wire      2 (latency + (N-1) message + (N-1)/N b / bandwidth) for each bucket of b bytes, between N machines;
 *             thrice with zero=3; what has factors or rows sends these to all
 *
 * The wire's time is hidden behind backward as far as no core is busy with it. Servers add and update in the
 * place of the lanes. A grid (tp x pp > 1) is simulated (simulate.c): a stage's seconds are those of its layers,
 * what divides by tp divided; a tensor split has an all_reduce for every second layer that divides, forward and
 * backward (Shoeybi et al. 2019).
 */
#include "sched/cost.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "graph/op.h"
#include "pass/pass.h"

/* Rates of one core of a machine of our time, for who cannot measure. */
const struct cost_rates cost_usual_rates = { .flops = 5e10, .bytes = 8e9 };

/* A page of 4096 bytes that is given back and written again, where nobody has measured it. */
static const double PAGE_SECONDS = 0.7e-6 / 4096;

/* Bytes of parameters or gradients that are resident at a time where they are held in parts (exec/memory.c). */
const double cost_window = 8 << 20;

/* Reading a graph ------------------------------------------------------------------------ */

static double bytes_of(const struct value *value)
{
    return (double)shape_count(&value->shape) * (double)dtype_size(value->dtype);
}

/* What a value's memory is: past views. */
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

static bool divides(const struct op *op)
{
    static const struct op *const ops[] = { &op_linear,
                                            &op_linear_gelu,
                                            &op_linear_add,
                                            &op_attention,
                                            &op_conv2d,
                                            &op_conv2d_pool,
                                            &op_embedding,
                                            &op_lstm,
                                            &op_conv1d,
                                            &op_conv1d_max,
                                            &op_gru,
                                            &op_lstm_attend,
                                            &op_token_cross_entropy,
                                            &op_conv2d_transpose,
                                            &op_conv2d_stats,
                                            &op_norm_conv2d,
                                            &op_norm_conv2d_stats };

    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        if (ops[i] == op)
            return true;
    }
    return false;
}

/* A node of backward is called "d." and as the node that it differentiates, or as one of its parameters; what is called
 * otherwise follows the node before it. Backward goes from the last layer to the first. */
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

/* What stands for a gradient between machines: factors, or ids and rows. */
static void read_sum(struct reader *reader, const struct node *node)
{
    const bool is_rows = node->op == &op_row_sum;
    double bytes = 0;

    if (node->op != &op_factor_sum && !is_rows)
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

static void read_nodes(struct reader *reader, const double *seconds)
{
    struct cost_work *work = reader->work;
    int before;

    for (int n = 0; n < graph_node_count(reader->graph); n++) {
        const struct node *node = graph_node(reader->graph, n);
        reader->layer_of[n] = -1;
        if (node->phase != PHASE_FORWARD)
            continue;
        reader->layer_of[n] = work->n_layers;
        work->layers[work->n_layers] = (struct cost_layer){ .name = node->name,
                                                            .forward = seconds[n],
                                                            .divides = divides(node->op) };
        read_forward(reader, node, work->n_layers++);
    }
    before = work->n_layers - 1;
    for (int n = 0; n < graph_node_count(reader->graph); n++) {
        const struct node *node = graph_node(reader->graph, n);
        if (node->phase != PHASE_BACKWARD)
            continue;
        before = layer_differentiated(reader, node, before);
        work->layers[before].backward += seconds[n];
        for (int i = 0; i < node->n_in; i++)
            reader->is_kept[root_of(node->in[i])->id] = true;
    }
    for (int n = 0; n < graph_node_count(reader->graph); n++) {
        if (!is_computed(graph_node(reader->graph, n)))
            read_sum(reader, graph_node(reader->graph, n));
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
                              .n_buckets = pass_bucket_count(graph) };
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
        if (!is_computed(node) || node->op->is_view)
            continue;
        for (int i = 0; i < node->n_in; i++)
            bytes += bytes_of(node->in[i]);
        for (int i = 0; i < node->n_out; i++)
            bytes += bytes_of(node->out[i]);
        node_seconds[n] = fmax(graph_node_flops(node) / rates->flops, bytes / rates->bytes);
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
    double seconds = work->other;

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

/* Can layers be cut such that no piece takes longer than `most`? A piece takes as many as it can, but leaves one for each
 * that follows. */
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

/* Links ---------------------------------------------------------------------------------- */

/* Every one of n has `bytes` and sends each other one a part of it: sums to their owners, or results to all. */
static double exchange_seconds(const struct cost_link *link, int n, double bytes, double times)
{
    if (n < 2 || times < 1)
        return 0;
    return times * (link->latency + (n - 1) * link->message) +
           bytes * (n - 1) / n / link->bandwidth;
}

static double send_seconds(const struct cost_link *link, double bytes)
{
    return link->latency + bytes / link->bandwidth;
}

/* Data parallel -------------------------------------------------------------------------- */

/* What one machine of N sends to others in a step, in bytes, of `of` parameters' bytes, and in how many exchanges. */
struct traffic {
    double bytes, exchanges;
    double gathered; /* of the bytes: factors and rows, which all machines work through */
};

static struct traffic traffic_of(const struct cost_work *work, const struct cost_choice *choice,
                                 int nodes)
{
    const double shards = (double)work->shards / nodes;
    struct traffic t = { .exchanges = 2.0 * work->n_buckets };

    for (int l = 0; l < work->n_layers; l++) {
        const struct cost_layer *layer = &work->layers[l];
        if (layer->sums > 0)
            t.gathered += layer->sums * shards * (nodes - 1);
        else
            t.bytes += (choice->zero == 3 ? 3 : 2) * layer->params * (nodes - 1) / nodes;
    }
    t.bytes += t.gathered;
    return t;
}

static double activations_of(const struct cost_work *work)
{
    double kept = 0;

    for (int l = 0; l < work->n_layers; l++)
        kept += work->layers[l].kept;
    return kept + work->transient;
}

/* As exec/memory.c has it: W rails of N machines. */
static void set_memory(const struct cost_work *work, const struct cost_cluster *cluster,
                       const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = cost_params(work), ranks = (double)choice->dp;
    const int nodes = cluster->shares ? cluster->nodes : choice->dp;
    const double window = fmin(params, cost_window);
    const bool is_alone = choice->interval > 1 || choice->servers > 0;
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
    if (choice->zero == 0)
        out->copy = (1 + work->n_states) * params;
    out->memory = out->params + out->gradients + out->state + out->activations + out->copy;
}

/* Seconds that lanes of one machine need to add `n` gradients and to update, all of it. */
static double sum_seconds(const struct cost_work *work, double bytes, double n, double lanes,
                          const struct cost_cluster *cluster)
{
    return bytes * (work->add * n + work->update) / lanes * cluster->crowding / cluster->speed;
}

/* Of a shard, on a lane. */
static double lane_seconds(const struct cost_work *work, const struct cost_cluster *cluster,
                           const struct cost_choice *choice)
{
    return cost_shard_seconds(work) * cluster->crowding / (cluster->speed * choice->team);
}

/* What of the wire's time is not hidden behind the backward of the last shard. */
static double exposed(const struct cost_work *work, const struct cost_cluster *cluster,
                      double wire)
{
    double backward = 0;

    for (int l = 0; l < work->n_layers; l++)
        backward += work->layers[l].backward;
    const double free = wire * (1 - cluster->between.cpu);
    const double hidden = fmin(free, 0.9 * backward / cluster->speed);
    return wire * cluster->between.cpu * cluster->crowding + free - hidden;
}

/* Bytes that a lane gives back in a step and touches again: gradients, and of parameters in parts what other machines own, after
 * forward and after backward. Tables whose gradients are rows stay. */
static double released_bytes(const struct cost_choice *choice, int nodes, double params)
{
    if (choice->zero < 2)
        return 0;
    return params + (choice->zero == 3 ? 2 * params * (nodes - 1) / nodes : 0);
}

static double release_seconds(const struct cost_cluster *cluster, double bytes)
{
    return bytes * (cluster->pages > 0 ? cluster->pages : PAGE_SECONDS) * cluster->crowding /
           cluster->speed;
}

/* All ranks meet in every step. */
static void predict_reduced(const struct cost_work *work, const struct cost_cluster *cluster,
                            const struct cost_choice *choice, struct cost_estimate *out)
{
    const int nodes = cluster->shares ? cluster->nodes : choice->dp;
    const double params = cost_params(work);
    const double v = (double)work->shards / (choice->dp * choice->lanes);
    const double lanes = (double)choice->dp * choice->lanes / nodes;
    const struct traffic t = traffic_of(work, choice, nodes);

    out->compute = ceil(v) * lane_seconds(work, cluster, choice) +
                   work->meeting * cluster->crowding / cluster->speed;
    double gathered = 0;
    for (int l = 0; l < work->n_layers; l++)
        gathered += work->layers[l].sums > 0 ? work->layers[l].params : 0;
    out->compute += release_seconds(cluster, released_bytes(choice, nodes, params - gathered));
    if (nodes == 1) {
        out->compute += sum_seconds(work, params, lanes, lanes, cluster);
        out->bytes = 2 * (choice->dp - 1.0) / choice->dp * params;
        out->seconds = out->compute;
        return;
    }
    out->compute += sum_seconds(work, gathered, (double)work->shards, lanes, cluster);
    out->compute +=
        sum_seconds(work, (params - gathered) / nodes, lanes + nodes, lanes, cluster);
    out->bytes = t.bytes * nodes / choice->dp;
    const double wire =
        t.exchanges * (cluster->between.latency + (nodes - 1) * cluster->between.message) +
        t.bytes / cluster->between.bandwidth;
    out->seconds = out->compute + exposed(work, cluster, wire);
}

/* Workers have executors of their own; servers add and update. */
static void predict_served(const struct cost_work *work, const struct cost_cluster *cluster,
                           const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = cost_params(work), n = choice->dp;
    const double v = (double)work->shards / (n * choice->lanes);
    const double per_server = params / choice->servers;
    const struct cost_link *link =
        cluster->shares && cluster->nodes == 1 ? &cluster->within : &cluster->between;
    const bool is_here = link == &cluster->within;

    out->compute = ceil(v) * lane_seconds(work, cluster, choice);
    /* A worker reads or receives the new values; a server adds what all have given, or what one has. */
    const double given = is_here ? params * work->add : send_seconds(link, params);
    const double taken = is_here ? params * work->add : send_seconds(link, params);
    const double served = per_server * (work->add * n + work->update) / cluster->speed +
                          (is_here ? 0 : n * 2 * per_server / link->bandwidth);
    const double one = per_server * (work->add + work->update) / cluster->speed +
                       (is_here ? 0 : 2 * per_server / link->bandwidth);
    const double each = out->compute + (given + taken) * cluster->crowding;

    out->bytes = 2 * params;
    if (choice->interval > 1)
        out->seconds = out->compute + params * (work->add + work->update) / choice->lanes +
                       (given + taken + one) / (double)choice->interval;
    else if (choice->waits)
        out->seconds = each + served * cluster->crowding;
    else /* the rate at which servers take pushes of all, if workers are faster */
        out->seconds = fmax(each + one, n * one);
    if (choice->interval > 1)
        out->bytes /= (double)choice->interval;
}

/* Workers that train alone and take the mean of all now and then. */
static void predict_alone(const struct cost_work *work, const struct cost_cluster *cluster,
                          const struct cost_choice *choice, struct cost_estimate *out)
{
    const double params = cost_params(work), n = choice->dp;
    const double v = (double)work->shards / (n * choice->lanes);
    const struct cost_link *link =
        cluster->nodes > 1 || !cluster->shares ? &cluster->between : &cluster->within;

    out->compute = ceil(v) * lane_seconds(work, cluster, choice) +
                   sum_seconds(work, params, choice->lanes, choice->lanes, cluster);
    out->bytes = 2 * (n - 1) / n * params / (double)choice->interval;
    out->seconds = out->compute + exchange_seconds(link, choice->dp, 2 * params, 2) *
                                      cluster->crowding / (double)choice->interval;
}

/* Grids ---------------------------------------------------------------------------------- */

/* Between ranks that are `apart` from each other in the job's order. */
static const struct cost_link *link_over(const struct cost_cluster *cluster, int apart)
{
    return cluster->shares && apart <= cluster->ranks ? &cluster->within : &cluster->between;
}

struct piece_sum {
    double forward, backward, made, params, kept;
    double reduced, n_reductions; /* bytes and exchanges of a shard, forward and backward */
};

/* A piece's layers as one rank of tp has them. Where nothing else is known, what divides is divided, and every second of
 * these needs a sum over all, forward and backward, which is two exchanges. */
static struct piece_sum sum_piece(const struct cost_work *work, int begin, int end,
                                  const struct cost_choice *choice)
{
    const struct cost_sharing *sharing = &choice->sharing;
    const bool is_known = choice->tp > 1 && sharing->forward > 0;
    struct piece_sum sum = { 0 };
    int divided = 0;

    for (int l = begin; l < end; l++) {
        const struct cost_layer *layer = &work->layers[l];
        const double share = layer->divides ? 1.0 / choice->tp : 1;
        sum.forward += (is_known ? sharing->forward : share) * layer->forward;
        sum.backward += (is_known ? sharing->backward : share) * layer->backward;
        sum.made += (is_known ? sharing->params : share) * layer->made;
        sum.params += (is_known ? sharing->params : share) * layer->params;
        sum.kept += (is_known ? sharing->forward : share) * layer->kept;
        if (choice->tp > 1 && layer->divides && ++divided % 2 == 0) {
            sum.reduced += 4 * layer->out;
            sum.n_reductions += 4;
        }
    }
    if (is_known) {
        sum.n_reductions = sharing->sums * (end - begin) / work->n_layers;
        sum.reduced = sharing->bytes * (end - begin) / work->n_layers;
    }
    return sum;
}

/* Those of its warm-up, and one. */
double cost_open_shards(const struct cost_choice *choice, int s, double shards)
{
    const double p = choice->pp, v = choice->chunks;
    const double warm = choice->pipeline == PIPE_GPIPE ? shards
                        : choice->pipeline == PIPE_1F1B
                            ? p - s
                            : (2 * (p - 1 - s) + (v - 1) * p + 1) / v;

    return fmin(warm, shards);
}

/* The pipeline that each of dp copies is. */
static struct pipe_config pipe_of(const struct cost_work *work,
                                  const struct cost_choice *choice)
{
    return (struct pipe_config){ .kind = choice->pipeline,
                                 .stages = choice->pp,
                                 .chunks = choice->chunks,
                                 .shards = work->shards / choice->dp };
}

static enum status check_grid(const struct cost_work *work, const struct cost_choice *choice)
{
    int divide = 0;

    for (int l = 0; l < work->n_layers; l++)
        divide += work->layers[l].divides;
    if (choice->tp > 1 && divide < 2 && choice->sharing.forward <= 0)
        return FAIL(STATUS_USAGE, "tp=%d: the model has nothing that a tensor split divides",
                    choice->tp);
    if (choice->pp * choice->chunks > work->n_layers)
        return FAIL(STATUS_USAGE, "%d pieces of %d layers: a stage needs one at least",
                    choice->pp * choice->chunks, work->n_layers);
    if (work->shards < choice->dp)
        return FAIL(STATUS_USAGE, "%lld shards for %d copies", (long long)work->shards,
                    choice->dp);
    const struct pipe_config pipe = pipe_of(work, choice);
    return choice->pp > 1 ? pipe_check(&pipe) : STATUS_OK;
}

struct grid {
    const struct cost_work *work;
    const struct cost_cluster *cluster;
    const struct cost_choice *choice;
    int *begins;
    struct simulate_piece *pieces;
};

/* Stages that have a core at a time, where there are more threads than cores; 0: all. */
static int at_once(const struct grid *grid)
{
    const double crowding = grid->cluster->crowding;
    const int stages = (int)(grid->choice->pp / crowding);

    return crowding > 1 ? (stages > 1 ? stages : 1) : 0;
}

/* How much longer a stage takes beside that: the ranks of a stage share cores among themselves. */
static double crowding_of(const struct grid *grid)
{
    return at_once(grid) ? grid->cluster->crowding * at_once(grid) / grid->choice->pp : 1;
}

/* How often a piece's parameters cross between copies in a step: as sums and as results; in parts they come for each shard, forward
 * and backward, unless they fit the window and stay (decision 44). */
static double times_sent(const struct cost_choice *choice, double params, double shards)
{
    if (choice->zero < 3)
        return 2;
    return params > cost_window ? 1 + 2 * shards : 3;
}

static void fill_piece(const struct grid *grid, int piece, struct cost_estimate *out)
{
    const struct cost_work *work = grid->work;
    const struct cost_choice *choice = grid->choice;
    const struct cost_cluster *cluster = grid->cluster;
    const int parts = choice->pp * choice->chunks;
    const int end = grid->begins[piece + 1];
    const struct piece_sum sum = sum_piece(work, grid->begins[piece], end, choice);
    const struct cost_link *tp_link = link_over(cluster, choice->tp);
    const struct cost_link *dp_link = link_over(cluster, choice->tp * choice->dp);
    const struct cost_link *pp_link = link_over(cluster, choice->tp * choice->dp * 2);
    const double slow = crowding_of(grid) / (cluster->speed * choice->team);
    const double reduce =
        exchange_seconds(tp_link, choice->tp, sum.reduced, sum.n_reductions) / 2;
    const double crossing = end < work->n_layers ? work->layers[end - 1].crossing : 0;
    const double shards = (double)work->shards / choice->dp;
    const double sums = times_sent(choice, sum.params, shards) * sum.params;
    const int buckets = 1 + work->n_buckets / parts;
    const double other = work->other / parts / choice->tp;
    struct simulate_piece *p = &grid->pieces[piece];

    p->forward = (sum.forward + other / 3) * slow + reduce;
    p->backward = (sum.backward + other * 2 / 3) * slow + reduce;
    p->out = piece + 1 < parts ? send_seconds(pp_link, crossing) : 0;
    p->copied = pp_link->cpu;
    p->sum = exchange_seconds(dp_link, choice->dp, sums, 2.0 * buckets);
    p->hidden = 1 - dp_link->cpu;
    p->update = sum.params * (work->add + work->update) / choice->dp * slow +
                sum.made * shards * slow +
                release_seconds(cluster, released_bytes(choice, choice->dp, sum.params));
    out->bytes =
        fmax(out->bytes, 2 * shards * crossing + (sums - sum.params) * (choice->dp > 1) +
                             shards * sum.reduced * (choice->tp - 1) / choice->tp);
}

/* Of the stage that has most. */
static void set_grid_memory(const struct grid *grid, struct cost_estimate *out)
{
    const struct cost_work *work = grid->work;
    const struct cost_choice *choice = grid->choice;
    const double shards = (double)work->shards / choice->dp;

    for (int s = 0; s < choice->pp; s++) {
        struct cost_estimate now = { 0 };
        double kept = 0, params = 0;
        for (int piece = s; piece < choice->pp * choice->chunks; piece += choice->pp) {
            const struct piece_sum sum =
                sum_piece(work, grid->begins[piece], grid->begins[piece + 1], choice);
            kept += sum.kept;
            params += sum.params;
        }
        const double window = fmin(params, cost_window);
        now.params =
            choice->zero == 3 ? params / choice->dp + fmin(2 * window, params) : params;
        /* Those of earlier shards wait for later ones; sums of other copies are there beside them, with zero a few. */
        now.gradients = params + (choice->dp == 1 ? 0 : choice->zero >= 2 ? window : params);
        now.state = work->n_states * params / choice->dp;
        /* Each shard that is under way has an arena of its own. */
        now.activations = (kept + work->transient / (choice->tp * choice->pp)) *
                          cost_open_shards(choice, s, shards);
        now.memory = now.params + now.gradients + now.state + now.activations;
        if (now.memory <= out->memory)
            continue;
        out->memory = now.memory;
        out->params = now.params;
        out->gradients = now.gradients;
        out->state = now.state;
        out->activations = now.activations;
    }
}

static enum status run_grid(struct grid *grid, struct cost_estimate *out,
                            struct simulate_result *events)
{
    const struct cost_choice *choice = grid->choice;
    struct simulate_result result;

    const struct simulate_config config = {
        .pipe = pipe_of(grid->work, choice),
        .at_once = at_once(grid),
        .pieces = grid->pieces,
    };
    const int pieces = choice->pp * choice->chunks;
    if (choice->begins)
        memcpy(grid->begins, choice->begins, ((size_t)pieces + 1) * sizeof *grid->begins);
    else
        TRY(cost_cut(grid->work, pieces, grid->begins));
    for (int piece = 0; piece < pieces; piece++)
        fill_piece(grid, piece, out);
    TRY(simulate_run(&config, events != NULL, &result));
    out->seconds = result.seconds;
    out->compute = result.busiest;
    out->bubble = result.bubble;
    set_grid_memory(grid, out);
    if (events)
        *events = result;
    return STATUS_OK;
}

static enum status predict_grid(const struct cost_work *work,
                                const struct cost_cluster *cluster,
                                const struct cost_choice *choice, struct cost_estimate *out,
                                struct simulate_result *events)
{
    struct grid grid = { .work = work, .cluster = cluster, .choice = choice };
    const size_t parts = (size_t)choice->pp * (size_t)choice->chunks;

    TRY(check_grid(work, choice));
    enum status status = mem_alloc(parts + 1, sizeof *grid.begins, &grid.begins);
    if (status == STATUS_OK)
        status = mem_alloc(parts, sizeof *grid.pieces, &grid.pieces);
    if (status == STATUS_OK)
        status = run_grid(&grid, out, events);
    mem_free(grid.begins);
    mem_free(grid.pieces);
    return status;
}

enum status cost_predict(const struct cost_work *work, const struct cost_cluster *cluster,
                         const struct cost_choice *choice, struct cost_estimate *out,
                         struct simulate_result *events)
{
    struct cost_estimate estimate = { 0 };

    if (events)
        *events = (struct simulate_result){ 0 };
    if (choice->tp * choice->pp > 1) {
        TRY(predict_grid(work, cluster, choice, &estimate, events));
        *out = estimate;
        return STATUS_OK;
    }
    if (work->shards < (int64_t)choice->dp * choice->lanes)
        return FAIL(STATUS_USAGE, "%lld shards for %d lanes", (long long)work->shards,
                    choice->dp * choice->lanes);
    if (choice->servers > 0)
        predict_served(work, cluster, choice, &estimate);
    else if (choice->interval > 1)
        predict_alone(work, cluster, choice, &estimate);
    else
        predict_reduced(work, cluster, choice, &estimate);
    set_memory(work, cluster, choice, &estimate);
    *out = estimate;
    return STATUS_OK;
}
