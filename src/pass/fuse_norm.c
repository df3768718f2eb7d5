/* SPDX-License-Identifier: MIT */
/* fuse_norm.c - the last part of fuse: batch norms between two convolutions that memory bounds go into these.
 *
 *   conv2d -> batch_norm -> conv2d   becomes   conv2d_stats -> norm_conv2d
 *
 * and norm_conv2d_stats where one convolution has both. The convolutions are 1x1 or depthwise, without bias, and
 * images are small enough that one of them stays near a core; the batch norm has no residual; the values in between are used
 * once. Graphs of a device (pass_config.apart) have it from 1x1 to depthwise alone, with pass_config.epilogues; statistics of all
 * shards (sync_norm) have batch norms of their own.
 */
#include "graph/op.h"
#include "pass/fuse.h"

enum { IMAGE_BYTES = 1 << 20 };

static int64_t image_bytes(const struct value *value)
{
    return value->shape.dim[1] * value->shape.dim[2] * value->shape.dim[3] * 4;
}

static bool is_bare(const struct node *node)
{
    return node->op == &op_conv2d && node->n_in == 2 &&
           node->attrs.activation == ACTIVATION_NONE;
}

static bool is_pixel(const struct node *node)
{
    const struct attrs *a = &node->attrs;
    const struct shape *w = &node->in[1]->shape;

    return a->groups <= 1 && w->dim[2] == 1 && w->dim[3] == 1 && a->stride[0] == 1 &&
           a->stride[1] == 1 && a->pad[0] == 0 && a->pad[1] == 0;
}

static bool is_deep(const struct node *node)
{
    const struct shape *w = &node->in[1]->shape;

    return node->attrs.groups > 1 && w->dim[1] == 1 && w->dim[0] == node->attrs.groups;
}

/* Is it a convolution that can do the work of a batch norm? */
static bool is_fit(const struct node *node)
{
    if (!is_bare(node) && node->op != &op_norm_conv2d)
        return false;
    return (is_pixel(node) || is_deep(node)) && image_bytes(node->in[0]) <= IMAGE_BYTES &&
           image_bytes(node->out[0]) <= IMAGE_BYTES;
}

/* The same on a device, of what stands before and after: kernel/cuda/norm_depthwise.cu has these windows. */
static bool are_fit_there(const struct node *before, const struct node *after)
{
    const struct attrs *a = &after->attrs;
    const struct shape *w = &after->in[1]->shape;

    return is_bare(before) && is_pixel(before) && is_bare(after) && is_deep(after) &&
           w->dim[0] % 2 == 0 && w->dim[2] == 3 && w->dim[3] == 3 && a->pad[0] == 1 &&
           a->pad[1] == 1 && a->stride[0] == a->stride[1] && a->stride[0] <= 2;
}

/* The one node that reads a value. */
static struct node *reader_of(const struct graph *graph, const struct value *value)
{
    if (graph_uses(graph, value) != 1)
        return NULL;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] == value)
                return node;
        }
    }
    return NULL;
}

/* What stands before and after a batch norm, and what takes their places. */
struct joint {
    struct node *before, *norm, *after;
    struct node *maker, *reader;
};

static bool find_joint(const struct graph *graph, const struct pass_config *config,
                       struct node *norm, struct joint *out)
{
    if (norm->op != &op_batch_norm || norm->n_in != 3)
        return false;
    *out = (struct joint){ .before = norm->in[0]->maker,
                           .norm = norm,
                           .after = reader_of(graph, norm->out[0]) };
    if (!out->before || !out->after || out->after->op != &op_conv2d ||
        out->after->in[0] != norm->out[0] || reader_of(graph, norm->in[0]) != norm)
        return false;
    return config->apart ? are_fit_there(out->before, out->after)
                         : is_fit(out->before) && is_fit(out->after);
}

static enum status make_nodes(struct graph *graph, struct joint *joint)
{
    const struct node *before = joint->before, *norm = joint->norm, *after = joint->after;
    struct attrs makes = before->attrs, reads = after->attrs;

    makes.epsilon = norm->attrs.epsilon;
    reads.activation = norm->attrs.activation;
    graph_set_phase(graph, PHASE_FORWARD);
    joint->maker =
        graph_add(graph, before->op == &op_conv2d ? &op_conv2d_stats : &op_norm_conv2d_stats,
                  before->name, before->in, before->n_in, &makes);
    TRY(graph_status(graph));
    struct value *const in[] = { joint->maker->out[0], after->in[1], norm->in[1], norm->in[2],
                                 joint->maker->out[1] };
    joint->reader = graph_add(graph, &op_norm_conv2d, after->name, in, 5, &reads);
    TRY(graph_status(graph));
    graph_replace(graph, after->out[0], joint->reader->out[0]);
    for (int i = 2; i < norm->n_out; i++) /* what running averages see */
        graph_replace(graph, norm->out[i], joint->maker->out[i]);
    return STATUS_OK;
}

/* Puts the new nodes in the places of the old ones, which use nothing any more. */
static void put(struct node **nodes, int count, const struct joint *joint)
{
    for (int n = 0; n < count; n++) {
        struct node *node = nodes[n];
        if (!node || (node != joint->before && node != joint->norm && node != joint->after))
            continue;
        nodes[n] = node == joint->before  ? joint->maker
                   : node == joint->after ? joint->reader
                                          : NULL;
        node->n_in = 0;
    }
}

enum status fuse_norms(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph);
    struct node **nodes = graph_alloc(graph, (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    if (config->apart ? !config->epilogues : config->norms_apart)
        return STATUS_OK;
    if (config->sync_norm)
        return STATUS_OK;
    for (int n = 0; n < n_before; n++)
        nodes[n] = graph_node(graph, n);
    for (int n = 0; n < n_before; n++) {
        struct joint joint;
        if (!nodes[n] || !find_joint(graph, config, nodes[n], &joint))
            continue;
        TRY(make_nodes(graph, &joint));
        put(nodes, n_before, &joint);
    }
    for (int n = 0; n < n_before; n++) {
        if (nodes[n])
            nodes[count++] = nodes[n];
    }
    return graph_set_order(graph, nodes, count);
}
