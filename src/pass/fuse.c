/* SPDX-License-Identifier: MIT */
/* fuse.c - joins what would be bound by memory: bias, activation, pooling and residuals into the op
 * before.
 *
 *   linear -> bias [-> relu]                        becomes  linear with bias and activation
 *   linear -> bias -> gelu_tanh, or -> add          becomes  linear_gelu, linear_add (pass_config.epilogues)
 *   conv2d [-> bias] [-> relu]                      becomes  conv2d with bias and activation;
 *   likewise conv2d_transpose
 *   conv2d [-> bias] -> relu -> max_pool (stride = window, no padding)  becomes  conv2d_pool
 *   conv1d [-> bias] [-> relu]                      becomes  conv1d with bias and activation
 *   conv1d [-> bias] [-> relu] -> max_over_time     becomes  conv1d_max
 *   batch_norm [-> add] [-> relu or relu6]          becomes  batch_norm with residual and activation
 *   batch_norm_apply                                likewise
 *   conv2d -> batch_norm -> conv2d                  becomes  conv2d_stats -> norm_conv2d (fuse_norm.c)
 *
 * only where the value in between is used once; with pass_config.apart conv2d_pool is made of a first convolution of images alone. What has something added to it goes to where the last of
 * its chain stood, as that may be made after it. Before: a forward graph. After: the same
 * function with fewer nodes; parameters untouched.
 */
#include "pass/fuse.h"
#include "graph/op.h"

/* The node that alone uses `value`, if it is one of `op`. */
static struct node *only_user(const struct graph *graph, const struct value *value,
                              const struct op *op)
{
    if (graph_uses(graph, value) != 1)
        return NULL;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        for (int i = 0; i < node->n_in; i++) {
            if (node->in[i] == value)
                return node->op == op ? node : NULL;
        }
    }
    return NULL;
}

static bool is_plain_pool(const struct node *pool)
{
    const struct attrs *a = &pool->attrs;
    return a->stride[0] == a->window[0] && a->stride[1] == a->window[1] && a->pad[0] == 0 &&
           a->pad[1] == 0;
}

/* What can be joined to one node, in order. */
struct chain {
    struct node *bias, *add, *gelu, *activation, *pool;
    struct node *start, *last;
};

static bool is_batch_norm(const struct node *node)
{
    return node->op == &op_batch_norm || node->op == &op_batch_norm_apply;
}

/* Has a batch norm nothing joined to it yet? */
static bool is_bare(const struct node *node)
{
    return node->attrs.activation == ACTIVATION_NONE && node->n_in == node->op->min_in;
}

/* Takes the only user of the chain's end if it is one of `op`. */
static struct node *extend(const struct graph *graph, struct chain *chain, const struct op *op)
{
    struct node *user = only_user(graph, chain->last->out[0], op);
    if (user)
        chain->last = user;
    return user;
}

static bool is_power(int64_t n, int64_t least, int64_t most)
{
    return n >= least && n <= most && (n & (n - 1)) == 0;
}

/* A first convolution that a device does with its pool: of grey images (kernel/cuda/thin_pool.cu), or of colours (thin.cu). */
static bool is_thin(const struct node *conv, const struct node *pool)
{
    const struct attrs *a = &conv->attrs;
    const struct shape *x = &conv->in[0]->shape, *w = &conv->in[1]->shape;
    const bool is_grey = x->dim[1] == 1 && is_power(w->dim[0], 32, 256);
    const bool has_colours = x->dim[1] == 3 && is_power(w->dim[0], 16, 64) &&
                             x->dim[2] % 2 == 0 && x->dim[3] % 2 == 0;

    return !conv->in[0]->maker && (is_grey || has_colours) && w->dim[2] == 3 &&
           w->dim[3] == 3 && a->stride[0] == 1 && a->stride[1] == 1 && a->pad[0] == 1 &&
           a->pad[1] == 1 && pool->attrs.window[0] == 2 && pool->attrs.window[1] == 2 &&
           (x->dim[2] + 2) * (x->dim[3] + 3) <= 66 * 67; /* which fits its shared memory */
}

static struct chain chain_of(const struct graph *graph, struct node *node,
                             const struct pass_config *config)
{
    struct chain chain = { .start = node, .last = node };

    if (is_batch_norm(node)) {
        if (!is_bare(node))
            return chain;
        chain.add = extend(graph, &chain, &op_add);
        chain.activation = extend(graph, &chain, &op_relu);
        if (!chain.activation)
            chain.activation = extend(graph, &chain, &op_relu6);
        return chain;
    }
    if (node->op != &op_linear && node->op != &op_conv2d && node->op != &op_conv2d_transpose &&
        node->op != &op_conv1d)
        return chain;
    if (node->n_in == 2)
        chain.bias = extend(graph, &chain, &op_bias);
    if (node->op == &op_linear && chain.bias && config->epilogues) {
        chain.gelu = extend(graph, &chain, &op_gelu_tanh);
        chain.add = chain.gelu ? NULL : extend(graph, &chain, &op_add);
        if (chain.gelu || chain.add)
            return chain;
    }
    chain.activation = extend(graph, &chain, &op_relu);
    if (node->op == &op_conv2d && node->attrs.groups <= 1 && chain.activation) {
        struct node *pool = only_user(graph, chain.last->out[0], &op_max_pool);
        if (pool && is_plain_pool(pool) &&
            (!config->apart || (config->epilogues && is_thin(node, pool))))
            chain.pool = chain.last = pool;
    }
    if (node->op == &op_conv1d)
        chain.pool = extend(graph, &chain, &op_max_over_time);
    return chain;
}

/* What the chain's addition adds to what comes before it. */
static struct value *other_summand(const struct chain *chain)
{
    const struct value *own = (chain->bias ? chain->bias : chain->start)->out[0];

    return chain->add->in[chain->add->in[0] == own ? 1 : 0];
}

static struct node *fused(struct graph *graph, struct node *node, const struct chain *chain)
{
    struct value *in[GRAPH_IN] = { NULL };
    struct attrs attrs = node->attrs;
    const struct op *op = node->op;
    int n_in = node->n_in;

    for (int i = 0; i < n_in; i++)
        in[i] = node->in[i];
    if (chain->bias)
        in[n_in++] = chain->bias->in[1];
    if (chain->add)
        in[n_in++] = other_summand(chain);
    if (chain->activation)
        attrs.activation =
            chain->activation->op == &op_relu6 ? ACTIVATION_RELU6 : ACTIVATION_RELU;
    if (node->op == &op_linear && (chain->gelu || chain->add)) {
        op = chain->gelu ? &op_linear_gelu : &op_linear_add;
    } else if (chain->pool && node->op == &op_conv1d) {
        op = &op_conv1d_max;
    } else if (chain->pool) {
        op = &op_conv2d_pool;
        attrs.window[0] = chain->pool->attrs.window[0];
        attrs.window[1] = chain->pool->attrs.window[1];
    }
    graph_set_phase(graph, PHASE_FORWARD);
    struct node *made = graph_add(graph, op, node->name, in, n_in, &attrs);
    if (!made)
        return NULL;
    graph_replace(graph, chain->last->out[0], made->out[0]);
    for (int i = 1; i < node->n_out; i++) /* a batch norm's statistics */
        graph_replace(graph, node->out[i], made->out[i]);
    return made;
}

/* Puts `made` in the place of `node`, or if something is added of the last of its chain, and takes the
 * rest of the chain out of the list. What is taken out uses nothing any more. */
static void put(struct node **nodes, int count, struct node *made, struct node *node,
                const struct chain *chain)
{
    struct node *const joined[] = { node,        chain->bias,       chain->add,
                                    chain->gelu, chain->activation, chain->pool };
    const struct node *place = chain->add ? chain->last : node;

    for (int n = 0; n < count; n++) {
        for (size_t i = 0; nodes[n] && i < sizeof joined / sizeof *joined; i++) {
            if (nodes[n] == joined[i]) {
                nodes[n]->n_in = 0;
                nodes[n] = nodes[n] == place ? made : NULL;
            }
        }
    }
}

static enum status run_fuse(struct graph *graph, const struct pass_config *config)
{
    const int n_before = graph_node_count(graph);
    struct node **nodes = graph_alloc(graph, (size_t)n_before + 1, sizeof(struct node *));
    int count = 0;

    TRY(graph_status(graph));
    for (int n = 0; n < n_before; n++)
        nodes[n] = graph_node(graph, n);
    for (int n = 0; n < n_before; n++) {
        struct node *node = nodes[n];
        if (!node)
            continue;
        const struct chain chain = chain_of(graph, node, config);
        if (chain.last == node)
            continue;
        struct node *made = fused(graph, node, &chain);
        TRY(graph_status(graph));
        put(nodes, n_before, made, node, &chain);
    }
    for (int n = 0; n < n_before; n++) {
        if (nodes[n])
            nodes[count++] = nodes[n];
    }
    TRY(graph_set_order(graph, nodes, count));
    return fuse_norms(graph, config);
}

const struct pass pass_fuse = {
    .name = "fuse",
    .summary = "join bias, activation, pooling and residual to the op before, batch norms to "
               "convolutions around",
    .run = run_fuse,
};
