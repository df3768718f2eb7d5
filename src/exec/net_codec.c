/* SPDX-License-Identifier: MIT */
/* net_codec.c - all_reduce of buckets whose gradients are compressed between nodes (comm/codec.h).
 *
 * A compressed bucket belongs to one rail of a node. When all lanes have announced it, the rail adds the node's
 * partial sums, encodes, and swaps payloads with the same rail of every node; all decode all payloads in the
 * order of nodes, so that all have the same sum, and update the whole bucket. What a node could not send stays
 * with it (error feedback) and is part of a checkpoint: state of rank 0's that comes from all nodes
 * (net_between.c). Running averages, factors and rows go as they are, and so do all gradients of the first steps
 * (--compress-after): they are the payload then, and nothing is left over.
 *
 * Cost of a bucket whose payload has c bytes: a node sends (N-1) c, and decodes N c.
 */
#include <string.h>

#include "base/mem.h"
#include "exec/net.h"

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

bool bucket_is_compressed(const struct exec *exec, int b)
{
    return exec->topology.nodes > 1 && exec->config.compress.codec &&
           !bucket_is_gathered(&exec->layout, b) && !bucket_is_served(&exec->layout, b) &&
           !exec->layout.updates[b].is_average;
}

static bool has_codec(const struct net *net, int b)
{
    return bucket_is_compressed(net->exec, b) && net_codec_rail(net->exec, b) == net->rail;
}

int net_codec_rail(const struct exec *exec, int b)
{
    return b % net_rails(exec);
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
    const struct exec *exec = net->exec;
    struct codec_config config = exec->config.compress;
    struct codec_matrix *matrices;
    size_t n_matrices = 0;

    config.seed = exec->config.seed + (uint64_t)b;
    TRY(mem_alloc((size_t)exec->model.count + 1, sizeof *matrices, &matrices));
    for (int i = 0; i < exec->model.count; i++) { /* in the model's order: that of offsets */
        const struct value *value = exec->model.params[i];
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
        at += (size_t)net->exec->topology.nodes * stride_of(codec, r);
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
        bytes += (size_t)net->exec->topology.nodes * stride_of(&step, r);
    return bytes;
}

static enum status create(struct net *net, int b)
{
    const struct exec *exec = net->exec;
    const size_t nodes = (size_t)exec->topology.nodes;
    struct net_codec *codec;

    TRY(mem_alloc(1, sizeof *codec, &codec));
    net->codecs[b] = codec;
    codec->count = (size_t)(exec->layout.buckets.begin[b + 1] - exec->layout.buckets.begin[b]);
    TRY(create_state(net, b, codec));
    size_t bytes = room_of(net, codec, false);
    if (exec->config.compress_after > 0 && room_of(net, codec, true) > bytes)
        bytes = room_of(net, codec, true);
    TRY(mem_alloc(bytes + 1, 1, &codec->payloads));
    TRY(mem_alloc(nodes, sizeof *codec->arrived, &codec->arrived));
    return mem_alloc(nodes, sizeof *codec->bytes, &codec->bytes);
}

enum status net_codecs_create(struct net *net)
{
    const struct exec *exec = net->exec;

    TRY(mem_alloc((size_t)exec->layout.buckets.count + 1, sizeof *net->codecs, &net->codecs));
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        if (has_codec(net, b))
            TRY(create(net, b));
    }
    return STATUS_OK;
}

void net_codecs_destroy(struct net *net)
{
    for (int b = 0; net->codecs && b < net->exec->layout.buckets.count; b++) {
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

/* This node's gradient of the bucket: all its partial sums, in the place where the sum of all nodes will be. */
static void add_partial_sums(struct net *net, int b)
{
    const struct exec *exec = net->exec;
    const size_t at = (size_t)exec->layout.buckets.begin[b];
    const struct slice whole = { at, (size_t)exec->layout.buckets.begin[b + 1] - at };

    for (int p = 0; p < net->sums.n_own; p++) {
        const float *sum = net_make_sum(net, p, whole) + at;
        if (p == 0)
            memcpy(exec->memory.sum + at, sum, whole.count * sizeof *sum);
        else
            kernel_add(exec->memory.sum + at, exec->memory.sum + at, sum, whole.count);
    }
}

static enum status send_round(struct net *net, struct net_task *t, struct net_codec *codec)
{
    const struct exec *exec = net->exec;
    const float *gradient = exec->memory.sum + exec->layout.buckets.begin[t->task->bucket];
    const size_t bytes = bytes_of(codec, codec->round);
    char *payloads = payloads_of(net, codec, codec->round);
    const size_t stride = stride_of(codec, codec->round);
    char *own = payloads + (size_t)exec->topology.node * stride;
    const uint32_t tag = t->tag + (uint32_t)codec->round;

    if (codec->is_whole)
        memcpy(own, gradient, bytes);
    else
        codec_encode(codec->state, codec->round, gradient, own);
    for (int node = 0; node < exec->topology.nodes; node++) {
        codec->arrived[node] = payloads + (size_t)node * stride;
        codec->bytes[node] = bytes;
        if (node == exec->topology.node)
            continue;
        TRY(net_receive(net, t, net_peer(net, node), tag, payloads + (size_t)node * stride,
                        bytes));
        TRY(net_send(net, t, net_peer(net, node), tag, own, bytes));
    }
    return STATUS_OK;
}

static enum status start_compressed(struct net *net, struct net_task *t)
{
    struct net_codec *codec = net->codecs[t->task->bucket];

    codec->round = 0;
    codec->is_whole = net->step.number < net->exec->config.compress_after;
    add_partial_sums(net, t->task->bucket);
    return send_round(net, t, codec);
}

/* What a codec makes of the gaps between parameters is nobody's: neither sum nor error, which is saved by
 * parameters. */
static void clear_gaps(const struct exec *exec, int b, struct codec_state *state)
{
    struct codec_vector vectors[CODEC_VECTORS];

    reduce_clear_gaps(&exec->sums, b, exec->memory.sum + exec->layout.buckets.begin[b]);
    if (codec_vectors(state, vectors) > 0)
        reduce_clear_gaps(&exec->sums, b, vectors[0].data);
}

/* In the order of nodes, as payloads are decoded. */
static void add_whole(const struct net *net, const struct net_codec *codec, float *sum)
{
    memcpy(sum, codec->arrived[0], codec->count * sizeof *sum);
    for (int node = 1; node < net->exec->topology.nodes; node++)
        kernel_add(sum, sum, codec->arrived[node], codec->count);
}

/* All payloads of a round are here. */
static enum status add_payloads(struct net *net, struct net_task *t, bool *again)
{
    const struct exec *exec = net->exec;
    const int b = t->task->bucket;
    struct net_codec *codec = net->codecs[b];
    float *sum = exec->memory.sum + exec->layout.buckets.begin[b];

    if (codec->is_whole) {
        add_whole(net, codec, sum);
        return STATUS_OK;
    }
    *again = codec->round + 1 < rounds_of(codec);
    TRY(codec_decode(codec->state, codec->round, codec->arrived, codec->bytes,
                     exec->topology.nodes, *again ? NULL : sum));
    if (!*again) {
        clear_gaps(exec, b, codec->state);
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

static bool is_compressed(const struct exec *exec, const struct task *task)
{
    return task->bucket >= 0 && bucket_is_compressed(exec, task->bucket);
}

static struct net_most most_payloads(const struct net *net, const struct task *task)
{
    const int rounds = codec_rounds(net->codecs[task->bucket]->state),
              nodes = net->exec->topology.nodes;

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
