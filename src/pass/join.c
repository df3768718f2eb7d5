/* SPDX-License-Identifier: MIT */
/* join.c - brings activations' gradients, and sums of gradients, to where they cost less on a device.
 *
 *   linear_grad_input -> gelu_tanh_grad or relu_grad   becomes  linear_grad_through
 *   max_pool_grad -> relu_grad                         becomes  relu_grad -> max_pool_grad
 *   conv2d -> batch_norm                               becomes  conv2d_stats -> batch_norm_normalize
 *   add -> batch_norm_grad with an activation          becomes  batch_norm_grad of two summands
 *   batch_norm_grad of dy, x and y                     becomes  the same with beta for y
 *   linear_grad_weight with the sums of dy over rows   becomes  one without, where what makes dy can sum as well, or could but for a cut
 *   softmax_cross_entropy, accuracy and the gradient of the former become one softmax_loss
 *   linear -> token_cross_entropy, token_accuracy and the gradients of both become one linear_token_loss
 *
 * The second as what a window's largest is, zero or more, is what relu left at its place; pooled images are smaller. The third as some
 * convolutions have sums of what they make at hand, in the order of a norm by itself. The fifth
 * as where an activation was open follows from x, which is read anyway. Both losses stand at the beginning of backward; with the
 * last the graph has no output any more, which evaluations alone read. Only with pass_config.epilogues, within one stage, and where
 * nobody else uses the value in between. Before and after: forward and backward nodes that compute the same.
 */
#include "graph/op.h"
#include "pass/pass.h"

static enum activation differentiated(const struct node *node)
{
    return node->op == &op_relu_grad        ? ACTIVATION_RELU
           : node->op == &op_gelu_tanh_grad ? ACTIVATION_GELU_TANH
                                            : ACTIVATION_NONE;
}

/* The gradient of an activation that alone uses what the node makes, in the same stage; NULL: there is none. */
static struct node *slope_after(const struct graph *graph, const struct node *node)
{
    if (graph_uses(graph, node->out[0]) != 1)
        return NULL;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *user = graph_node(graph, n);
        if (user->n_in > 0 && user->in[0] == node->out[0])
            return differentiated(user) && user->stage == node->stage ? user : NULL;
    }
    return NULL;
}

/* Takes a node out: what it made is `by`. */
static void drop(struct graph *graph, struct node *node, struct value *by)
{
    graph_replace(graph, node->out[0], by);
    node->n_in = 0; /* it uses nothing any more */
}

/* Makes a product end with the slope after it, whose other input is of forward, so it is there already. */
static void join(struct graph *graph, struct node *product)
{
    struct node *slope = slope_after(graph, product);

    if (!slope)
        return;
    product->op = &op_linear_grad_through;
    product->attrs.activation = differentiated(slope);
    product->in[product->n_in++] = slope->in[1]; /* a node has room for one more */
    drop(graph, slope, product->out[0]);
}

/* Lets what flows back to a pool go through the relu before it first; returns the node to be put before `spread`, the
 * pool's gradient, or NULL. */
static struct node *swap(struct graph *graph, struct node *spread)
{
    const struct node *pool = spread->in[1]->maker;
    struct node *slope = slope_after(graph, spread);

    if (!slope || slope->op != &op_relu_grad || !pool || pool->op != &op_max_pool ||
        pool->in[0] != slope->in[1])
        return NULL;
    struct value *const in[] = { spread->in[0], pool->out[0] };
    graph_set_stage(graph, spread->stage);
    /* Without the "d." of backward, which the new one gets as well. */
    struct node *smaller = graph_add(graph, &op_relu_grad, slope->name + 2, in, 2, NULL);
    graph_set_stage(graph, -1);
    if (smaller) {
        spread->in[0] = smaller->out[0];
        drop(graph, slope, spread->out[0]);
    }
    return smaller;
}

/* Has the convolution sums of what it makes at hand? kernel/cuda/conv_hopper.cu has those of these images. */
static bool can_sum_images(const struct node *conv)
{
    static const int64_t images[][2] = { { 64, 32 }, { 128, 16 } }; /* channels, side */
    const struct attrs *a = &conv->attrs;

    if (conv->op != &op_conv2d || conv->n_in != 2 || a->activation != ACTIVATION_NONE ||
        a->groups > 1 || a->stride[0] != 1 || a->stride[1] != 1 || a->pad[0] != 1 ||
        a->pad[1] != 1)
        return false;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++) {
        const int64_t channels = images[i][0], side = images[i][1];
        const struct shape filter = shape_4(channels, channels, 3, 3);
        const struct shape image = shape_4(conv->out[0]->shape.dim[0], channels, side, side);
        if (shape_equal(&conv->in[1]->shape, &filter) &&
            shape_equal(&conv->out[0]->shape, &image))
            return true;
    }
    return false;
}

/* Leaves a norm's statistics to the convolution that makes what they are of. */
static void join_stats(struct node *norm)
{
    enum { X, RESIDUAL = 3 };
    struct node *conv = norm->in[X]->maker;

    if (!conv || conv->stage != norm->stage || !can_sum_images(conv))
        return;
    conv->op = &op_conv2d_stats;
    conv->attrs.epsilon = norm->attrs.epsilon;
    for (int i = 1; i < norm->n_out; i++) {
        conv->out[i] = norm->out[i];
        conv->out[i]->maker = conv;
    }
    conv->n_out = norm->n_out;
    norm->op = &op_batch_norm_normalize;
    norm->n_out = 1;
    if (norm->n_in > RESIDUAL)
        norm->in[RESIDUAL + 1] = norm->in[RESIDUAL];
    norm->in[RESIDUAL] = conv->out[1];
    norm->n_in++;
}

/* Makes a norm's gradient add what flows into it, and know by itself where its activation was open. */
static void join_norm(const struct graph *graph, struct node *grad)
{
    enum { DY, Y = 4 };
    const struct node *norm = grad->n_in > Y ? grad->in[Y]->maker : NULL;
    struct node *sum = grad->in[DY]->maker;

    if (!norm)
        return;
    if (sum && sum->op == &op_add && sum->stage == grad->stage &&
        graph_uses(graph, sum->out[0]) == 1) {
        grad->in[DY] = sum->in[0];
        grad->in[grad->n_in++] = sum->in[1];
        sum->n_in = 0;
    }
    const bool is_whole = norm->op == &op_batch_norm && norm->n_in == 3;
    if (is_whole || (norm->op == &op_batch_norm_normalize && norm->n_in == 4))
        grad->in[Y] = norm->in[2];
}

/* Can the node sum over rows what it makes, for less than it costs to read it again? */
static bool can_sum(const struct node *node)
{
    return node->op == &op_layer_norm_grad || (node->op == &op_linear_grad_through &&
                                               node->attrs.activation == ACTIVATION_GELU_TANH);
}

/* Gives a sum that a node makes to another. */
static void give_sums(struct node *from, struct node *to, int place)
{
    struct value *sums = from->out[--from->n_out];

    from->attrs.with_bias = 0;
    to->out[place] = sums;
    sums->maker = to;
}

/* Leaves a bias's gradient to the node that makes what it is the sum of. Where that is another stage's, stayed two nodes as a cut
 * is between them, or has a sum already, of another layer that takes the same, it is for a node that sums in the same order, which is returned, to be put after `weight`; else NULL. */
static struct node *move_sums(struct graph *graph, struct node *weight)
{
    struct value *summand = weight->in[1];
    struct node *maker = summand->maker;

    if (!weight->attrs.with_bias || !maker || summand != maker->out[0] ||
        !(can_sum(maker) || maker->op == &op_gelu_tanh_grad))
        return NULL;
    if (can_sum(maker) && maker->stage == weight->stage && !maker->attrs.with_bias) {
        maker->attrs.with_bias = 1;
        give_sums(weight, maker, maker->n_out++);
        return NULL;
    }
    graph_set_stage(graph, weight->stage);
    struct node *sum = graph_add(graph, &op_sum_rows, weight->name + 2, &summand, 1, NULL);
    graph_set_stage(graph, -1);
    if (sum)
        give_sums(weight, sum, 0);
    return sum;
}

/* Cross entropy of classes, and who reads the same logits. */
struct classes {
    struct node *loss, *accuracy, *slope;
};

/* Are all there, in one stage that has another forward node besides? One without would not be a stage of evaluations. */
static bool find_classes(const struct graph *graph, struct classes *of)
{
    const struct value *root = graph_roles((struct graph *)graph)->loss;
    struct node *loss = root ? root->maker : NULL;
    bool is_alone = true;

    *of = (struct classes){ .loss = loss };
    if (!loss || loss->op != &op_softmax_cross_entropy)
        return false;
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        if (node->stage != loss->stage)
            continue;
        if (node->op == &op_accuracy && node->in[0] == loss->in[0] &&
            node->in[1] == loss->in[1])
            of->accuracy = node;
        else if (node->op == &op_softmax_cross_entropy_grad && node->in[0] == loss->out[1])
            of->slope = node;
        else if (node->phase == PHASE_FORWARD && node != loss)
            is_alone = false;
    }
    return of->accuracy && of->slope && !is_alone && graph_uses(graph, loss->out[1]) == 1;
}

/* One node for these, NULL where it cannot be; they use nothing any more. */
static struct node *join_classes(struct graph *graph, const struct classes *of)
{
    struct node *loss = of->loss;
    const struct attrs attrs = { .smoothing = loss->attrs.smoothing };
    struct value *const in[] = { loss->in[0], loss->in[1] };

    graph_set_stage(graph, loss->stage);
    struct node *whole = graph_add(graph, &op_softmax_loss, loss->name, in, 2, &attrs);
    graph_set_stage(graph, -1);
    if (!whole)
        return NULL;
    drop(graph, loss, whole->out[0]);
    drop(graph, of->accuracy, whole->out[1]);
    drop(graph, of->slope, whole->out[2]);
    return whole;
}

/* The nodes from the last layer's product to its gradients. */
struct head {
    struct node *product, *loss, *accuracy, *slope, *input, *weight;
};

/* Notes the node as one of the head's, if there is none yet; returns whether that is so. */
static bool note(struct node **slot, struct node *node, const struct op *op)
{
    if (node->op != op || *slot || node->attrs.slice.count > 0)
        return false;
    *slot = node;
    return true;
}

/* Is the loss of the graph all that its last layer is for, and that a table without a bias? */
static bool find_head(const struct graph *graph, struct head *head)
{
    const struct graph_roles *roles = graph_roles((struct graph *)graph);
    struct node *loss = roles->loss ? roles->loss->maker : NULL;

    *head = (struct head){ .loss = loss };
    if (!loss || loss->op != &op_token_cross_entropy || loss->attrs.slice.count > 0 ||
        loss->in[0] != roles->output || !loss->in[0]->maker)
        return false;
    const struct value *logits = loss->in[0], *gradient = NULL;
    struct node *product = head->product = logits->maker;
    if (product->op != &op_linear || product->n_in != 2 ||
        product->attrs.activation != ACTIVATION_NONE ||
        product->in[1]->layout != LAYOUT_PLAIN || product->in[1]->kind != VALUE_PARAM)
        return false;
    int known = 2, within = 0; /* uses: the role, and the loss; nodes of the same stage */
    bool is_alone = true;      /* a stage keeps a forward node, by which evaluations are cut */
    for (int n = 0; n < graph_node_count(graph); n++) {
        struct node *node = graph_node(graph, n);
        bool is_one = false;
        if (node->n_in > 1 && node->in[0] == logits)
            is_one = (node->in[1] == loss->in[1] &&
                      note(&head->accuracy, node, &op_token_accuracy)) ||
                     note(&head->slope, node, &op_token_cross_entropy_grad);
        known += is_one;
        if (head->slope)
            gradient = head->slope->out[0];
        if (gradient && node->n_in > 1 && node->in[0] == gradient)
            is_one |= note(&head->input, node, &op_linear_grad_input);
        if (gradient && node->n_in > 1 && node->in[1] == gradient && node->n_out == 1)
            is_one |= note(&head->weight, node, &op_linear_grad_weight);
        within += is_one && node->stage == product->stage;
        if (!is_one && node->phase == PHASE_FORWARD && node->stage == product->stage &&
            node != product && node != loss)
            is_alone = false;
    }
    return within == 4 && !is_alone && loss->stage == product->stage &&
           graph_uses(graph, logits) == known && graph_uses(graph, gradient) == 2 &&
           graph_uses(graph, loss->out[1]) == 1;
}

/* One node for all of the head, NULL where it cannot be; the others use nothing any more. */
static struct node *join_head(struct graph *graph, const struct head *head)
{
    const struct node *product = head->product;
    const struct attrs attrs = { .smoothing = head->loss->attrs.smoothing };
    struct value *const in[] = { product->in[0], product->in[1], head->loss->in[1] };

    graph_set_stage(graph, product->stage);
    struct node *whole = graph_add(graph, &op_linear_token_loss, product->name, in, 3, &attrs);
    graph_set_stage(graph, -1);
    if (!whole)
        return NULL;
    graph_roles(graph)->output = NULL;
    if (product->in[1]->gradient == head->weight->out[0])
        product->in[1]->gradient = whole->out[3];
    drop(graph, head->loss, whole->out[0]);
    drop(graph, head->accuracy, whole->out[1]);
    drop(graph, head->input, whole->out[2]);
    drop(graph, head->weight, whole->out[3]);
    head->product->n_in = head->slope->n_in = 0;
    return whole;
}

static enum status run_join(struct graph *graph, const struct pass_config *config)
{
    const int n_nodes = graph_node_count(graph);
    struct node **order = graph_alloc(graph, 2 * (size_t)n_nodes + 1, sizeof *order);
    struct node *whole = NULL, *slope = NULL; /* what stands before the other */
    struct classes classes;
    struct head head;
    int count = 0;

    if (!config->epilogues)
        return STATUS_OK;
    TRY(graph_status(graph));
    graph_set_phase(graph, PHASE_BACKWARD);
    if (find_head(graph, &head)) {
        whole = join_head(graph, &head);
        slope = head.slope;
    } else if (find_classes(graph, &classes)) {
        whole = join_classes(graph, &classes);
        slope = classes.slope;
    }
    TRY(graph_status(graph));
    for (int n = 0; n < n_nodes; n++) {
        struct node *node = graph_node(graph, n);
        struct node *before = node->op == &op_max_pool_grad ? swap(graph, node) : NULL;
        if (node->op == &op_linear_grad_input)
            join(graph, node);
        if (node->op == &op_batch_norm)
            join_stats(node);
        if (node->op == &op_batch_norm_grad)
            join_norm(graph, node);
        struct node *after = node->op == &op_linear_grad_weight && node->n_in > 0
                                 ? move_sums(graph, node)
                                 : NULL;
        if (before)
            order[count++] = before;
        if (whole && node == slope)
            order[count++] = whole;
        order[count++] = node;
        if (after)
            order[count++] = after;
    }
    int kept = 0;
    for (int n = 0; n < count; n++) {
        if (order[n]->n_in >= order[n]->op->min_in) /* not dropped */
            order[kept++] = order[n];
    }
    return graph_set_order(graph, order, kept);
}

const struct pass pass_join = {
    .name = "join",
    .summary = "bring activations' and sums of gradients to where they cost less on a device",
    .run = run_join,
};
