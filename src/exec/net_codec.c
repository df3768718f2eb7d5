/* SPDX-License-Identifier: MIT */
/* net_codec.c - all_reduce of buckets whose gradients are compressed between nodes (comm/codec.h).
 *
 * A compressed bucket belongs to one rail of a node. When all lanes have announced it, the rail
 * adds the node's partial sums, encodes, and swaps payloads with the same rail of every node; all
 * decode all payloads in the order of nodes, so that all have the same sum, and update the whole
 * bucket. What a node could not send stays with it (error feedback) and is part of a checkpoint:
 * state of rank 0's that comes from all nodes (net_between.c). Running averages, factors and rows
 * go as they are, and so do all gradients of the first steps (--compress-after): they are the
 * payload then, and nothing is left over.
 *
 * Cost of a bucket whose payload has c bytes: a node sends (N-1) c, and decodes N c.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/layout.h"
#include "exec/net.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"

/* What a rail keeps of a compressed bucket. */
struct net_codec {
    struct codec_state *state;
    bool is_whole; /* this step's gradients go as they are */
    size_t count;
    int round;
    char *payloads;       /* of each round, of every node */
    const void **arrived; /* of one round */
    size_t *bytes;
};

static bool has_codec(const struct net *net, int b)
{
    return bucket_is_compressed(net->layout, b) && net_codec_rail(net->rails, b) == net->rail;
}

int net_codec_rail(int rails, int b)
{
    return b % rails;
}

struct codec_state *net_codec_state(const struct net *net, int b)
{
    return net->codecs && net->codecs[b] ? net->codecs[b]->state : NULL;
}

/* Making ----------------------------------------------------------------------------------- */

/* A parameter as its rows lie in memory: most weights have their outputs innermost, or outermost. */
static struct codec_matrix matrix_of(const struct value *value)
{
    const struct shape *shape = &value->shape;
    const bool is_plain = value->layout == LAYOUT_PLAIN || value->is_turned;
    const size_t count = (size_t)shape_count(shape), outputs = (size_t)shape->dim[0];
    const size_t cols = is_plain                       ? (size_t)shape->dim[shape->rank - 1]
                        : value->layout == LAYOUT_OHWI ? count / outputs
                                                       : outputs;

    return (struct codec_matrix){ .offset = (size_t)value->offset,
                                  .rows = count / cols,
                                  .cols = cols };
}

static enum status create_state(const struct net *net, int b, struct net_codec *codec)
{
    struct codec_config config = net->worker.sums->config->compress;
    struct codec_matrix *matrices;
    size_t n_matrices = 0;

    config.seed = net->worker.sums->config->seed + (uint64_t)b;
    TRY(mem_alloc((size_t)net->worker.sums->model->count + 1, sizeof *matrices, &matrices));
    for (int i = 0; i < net->worker.sums->model->count;
         i++) { /* in the model's order: that of offsets */
        const struct value *value = net->worker.sums->model->params[i];
        if (plan_bucket_of(value->flat) == b && value->shape.rank > 1)
            matrices[n_matrices++] = matrix_of(value);
    }
    const struct codec_layout layout = { matrices, n_matrices };
    const enum status status = codec_create(&config, &layout, codec->count, &codec->state);
    mem_free(matrices);
    return status;
}

static int rounds_of(const struct net_codec *codec)
{
    return codec->is_whole ? 1 : codec_rounds(codec->state);
}

static size_t bytes_of(const struct net_codec *codec, int round)
{
    return codec->is_whole ? codec->count * sizeof(float)
                           : codec_max_bytes(codec->state, round);
}

/* From one node's payload to the next: payloads are aligned. */
static size_t stride_of(const struct net_codec *codec, int round)
{
    return (bytes_of(codec, round) + 63) / 64 * 64;
}

/* Where a round's payloads begin. */
static char *payloads_of(const struct net *net, const struct net_codec *codec, int round)
{
    char *at = codec->payloads;

    for (int r = 0; r < round; r++)
        at += (size_t)net->topology->nodes * stride_of(codec, r);
    return at;
}

/* Room of the payloads of a step of either kind. */
static size_t room_of(const struct net *net, const struct net_codec *codec, bool is_whole)
{
    const struct net_codec step = { .state = codec->state,
                                    .is_whole = is_whole,
                                    .count = codec->count };
    size_t bytes = 0;

    for (int r = 0; r < rounds_of(&step); r++)
        bytes += (size_t)net->topology->nodes * stride_of(&step, r);
    return bytes;
}

static enum status create(struct net *net, int b)
{
    const size_t nodes = (size_t)net->topology->nodes;
    struct net_codec *codec;

    TRY(mem_alloc(1, sizeof *codec, &codec));
    net->codecs[b] = codec;
    codec->count = (size_t)(net->layout->buckets.begin[b + 1] - net->layout->buckets.begin[b]);
    TRY(create_state(net, b, codec));
    size_t bytes = room_of(net, codec, false);
    if (net->worker.sums->config->compress_after > 0 && room_of(net, codec, true) > bytes)
        bytes = room_of(net, codec, true);
    TRY(mem_alloc(bytes + 1, 1, &codec->payloads));
    TRY(mem_alloc(nodes, sizeof *codec->arrived, &codec->arrived));
    return mem_alloc(nodes, sizeof *codec->bytes, &codec->bytes);
}

enum status net_codecs_create(struct net *net)
{

    TRY(mem_alloc((size_t)net->layout->buckets.count + 1, sizeof *net->codecs, &net->codecs));
    for (int b = 0; b < net->layout->buckets.count; b++) {
        if (has_codec(net, b))
            TRY(create(net, b));
    }
    return STATUS_OK;
}

void net_codecs_destroy(struct net *net)
{
    for (int b = 0; net->codecs && b < net->layout->buckets.count; b++) {
        struct net_codec *codec = net->codecs[b];
        if (!codec)
            continue;
        codec_destroy(codec->state);
        mem_free(codec->payloads);
        mem_free(codec->arrived);
        mem_free(codec->bytes);
        mem_free(codec);
    }
    mem_free(net->codecs);
}

/* A step ----------------------------------------------------------------------------------- */

/* This node's gradient of the bucket: all its partial sums, in the place where the sum of all nodes
 * will be. */
static void add_partial_sums(struct net *net, int b)
{
    const size_t at = (size_t)net->layout->buckets.begin[b];
    const struct slice whole = { at, (size_t)net->layout->buckets.begin[b + 1] - at };

    for (int p = 0; p < net->sums.n_own; p++) {
        const float *sum = net_make_sum(net, p, whole) + at;
        if (p == 0)
            memcpy(net->memory->sum + at, sum, whole.count * sizeof *sum);
        else
            kernel_add(net->memory->sum + at, net->memory->sum + at, sum, whole.count);
    }
}

static enum status send_round(struct net *net, struct net_task *t, struct net_codec *codec)
{
    const float *gradient = net->memory->sum + net->layout->buckets.begin[t->task->bucket];
    const size_t bytes = bytes_of(codec, codec->round);
    char *payloads = payloads_of(net, codec, codec->round);
    const size_t stride = stride_of(codec, codec->round);
    char *own = payloads + (size_t)net->topology->node * stride;
    const uint32_t tag = t->tag + (uint32_t)codec->round;

    if (codec->is_whole)
        memcpy(own, gradient, bytes);
    else
        codec_encode(codec->state, codec->round, gradient, own);
    for (int node = 0; node < net->topology->nodes; node++) {
        net->exchange.members[node].at = (size_t)node * stride;
        net->exchange.members[node].count = codec->bytes[node] = bytes;
        codec->arrived[node] = payloads + net->exchange.members[node].at;
    }
    const int n = exchange_all_gather(net->exchange.members, net->topology->nodes,
                                      net->topology->node, net->exchange.transfers);
    for (int i = 0; i < n; i++) {
        const struct exchange_transfer *x = &net->exchange.transfers[i];
        const int peer = net_peer(net, x->member);
        if (x->is_send)
            TRY(net_send(net, t, peer, tag, payloads + x->at, x->count));
        else
            TRY(net_receive(net, t, peer, tag, payloads + x->at, x->count));
    }
    return STATUS_OK;
}

static enum status start_compressed(struct net *net, struct net_task *t)
{
    struct net_codec *codec = net->codecs[t->task->bucket];

    codec->round = 0;
    codec->is_whole = net->step.number < net->worker.sums->config->compress_after;
    add_partial_sums(net, t->task->bucket);
    return send_round(net, t, codec);
}

/* What a codec makes of the gaps between parameters is nobody's: neither sum nor error, which is
 * saved by parameters. */
static void clear_gaps(const struct net *net, int b, struct codec_state *state)
{
    struct codec_vector vectors[CODEC_VECTORS];

    reduce_clear_gaps(net->worker.sums, b, net->memory->sum + net->layout->buckets.begin[b]);
    if (codec_vectors(state, vectors) > 0)
        reduce_clear_gaps(net->worker.sums, b, vectors[0].data);
}

/* In the order of nodes, as payloads are decoded. */
static void add_whole(const struct net *net, const struct net_codec *codec, float *sum)
{
    memcpy(sum, codec->arrived[0], codec->count * sizeof *sum);
    for (int node = 1; node < net->topology->nodes; node++)
        kernel_add(sum, sum, codec->arrived[node], codec->count);
}

/* All payloads of a round are here. */
static enum status add_payloads(struct net *net, struct net_task *t, bool *again)
{
    const int b = t->task->bucket;
    struct net_codec *codec = net->codecs[b];
    float *sum = net->memory->sum + net->layout->buckets.begin[b];

    if (codec->is_whole) {
        add_whole(net, codec, sum);
        return STATUS_OK;
    }
    *again = codec->round + 1 < rounds_of(codec);
    TRY(codec_decode(codec->state, codec->round, codec->arrived, codec->bytes,
                     net->topology->nodes, *again ? NULL : sum));
    if (!*again) {
        clear_gaps(net, b, codec->state);
        return STATUS_OK;
    }
    codec->round++;
    return send_round(net, t, codec);
}

static enum status finish_compressed(struct net *net, struct net_task *t)
{
    const bool updates = t->task->does >> TASK_UPDATE & 1;

    net_work_on_own(net, t, updates ? SUM_AND_UPDATE : SUM_AND_KEEP);
    return STATUS_OK;
}

static bool is_compressed(const struct net *net, const struct task *task)
{
    return task->bucket >= 0 && bucket_is_compressed(net->layout, task->bucket);
}

static struct net_most most_payloads(const struct net *net, const struct task *task)
{
    const int rounds = codec_rounds(net->codecs[task->bucket]->state),
              nodes = net->topology->nodes;

    return (struct net_most){ nodes, nodes * (rounds > 1 ? rounds : 1) };
}

const struct net_row net_compressed = {
    .kind = TASK_ALL_REDUCE,
    .medium = MEDIUM_MESSAGES,
    .name = "all_reduce of compressed gradients",
    .point = "net",
    .can_run = is_compressed,
    .most = most_payloads,
    .start = start_compressed,
    .arrived = add_payloads,
    .finish = finish_compressed,
};
