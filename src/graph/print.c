/* SPDX-License-Identifier: MIT */
/* print.c - graphs as text and as DOT. */
#include "graph/print.h"

#include "graph/op.h"

int graph_each_made(const struct graph *graph, const struct value *value,
                    void (*fn)(void *arg, const struct value *made), void *arg)
{
    int count = 0;

    if (value->maker) {
        fn(arg, value);
        return 1;
    }
    for (int i = 0; value->kind == VALUE_FLAT && i < graph_value_count(graph); i++) {
        const struct value *inside = graph_value(graph, i);
        if (inside->flat == value && inside->maker) {
            fn(arg, inside);
            count++;
        }
    }
    return count;
}

static void print_value(const struct value *value, struct strbuf *out)
{
    char shape[SHAPE_TEXT];
    strbuf_printf(out, "%%%d:%s %s[%s]", value->id, value->name, dtype_name(value->dtype),
                  shape_print(&value->shape, shape));
    if (value->layout != LAYOUT_PLAIN)
        strbuf_printf(out, " %s", layout_name(value->layout));
    if (value->part == PART_SUM)
        strbuf_add(out, " summand");
    if (value->form == VALUE_ROWS)
        strbuf_add(out, " rows");
    if (value->slice.count)
        strbuf_printf(out, " slice %d/%d along %d", value->slice.index, value->slice.count,
                      value->slice.axis);
    if (value->flat)
        strbuf_printf(out, " in %s+%lld", value->flat->name, (long long)value->offset);
}

static void print_pair(struct strbuf *out, const char *name, const int pair[2])
{
    if (pair[0] || pair[1])
        strbuf_printf(out, " %s=%dx%d", name, pair[0], pair[1]);
}

static void print_float(struct strbuf *out, const char *name, float number)
{
    if (number != 0)
        strbuf_printf(out, " %s=%g", name, (double)number);
}

void graph_print_attrs(const struct node *node, struct strbuf *out)
{
    const struct attrs *a = &node->attrs;

    print_pair(out, "window", a->window);
    print_pair(out, "stride", a->stride);
    print_pair(out, "pad", a->pad);
    print_pair(out, "extent", a->extent);
    if (a->groups > 1)
        strbuf_printf(out, " groups=%d", a->groups);
    if (a->activation != ACTIVATION_NONE)
        strbuf_printf(out, " activation=%s", activation_name(a->activation));
    if (a->rows)
        strbuf_printf(out, " rows=%lld", (long long)a->rows);
    if (a->served)
        strbuf_add(out, " served");
    if (node->op->moves)
        strbuf_printf(out, " %s=%d", node->op == &op_send ? "to" : "from", a->peer);
    if (a->once)
        strbuf_add(out, " once");
    if (a->between_nodes)
        strbuf_add(out, " levels=within_node,between_nodes");
    if (a->when == WHEN_BOUNDED)
        strbuf_printf(out, " when=bounded:%d", a->bound);
    else if (a->when != WHEN_UNSTATED)
        strbuf_printf(out, " when=%s", attr_when_name(a->when));
    if (a->slice.count)
        strbuf_printf(out, " slice=%d/%d", a->slice.index, a->slice.count);
    if (a->by_sample)
        strbuf_add(out, " by_sample");
    for (int i = 0; i < a->n_offsets; i++)
        strbuf_printf(out, "%s%d", i ? "," : " offsets=", a->offset[i]);
    print_float(out, "rate", a->rate);
    print_float(out, "momentum", a->momentum);
    print_float(out, "weight_decay", a->weight_decay);
    print_float(out, "beta1", a->beta1);
    print_float(out, "beta2", a->beta2);
    print_float(out, "epsilon", a->epsilon);
    print_float(out, "smoothing", a->smoothing);
    print_float(out, "max_norm", a->max_norm);
    print_float(out, "trust", a->trust);
    if (a->nesterov)
        strbuf_add(out, " nesterov");
    if (a->decoupled)
        strbuf_add(out, " decoupled");
    if (a->adapts_all)
        strbuf_add(out, " adapts_all");
}

void graph_print_text(const struct graph *graph, struct strbuf *out)
{
    strbuf_printf(out, "graph %s: %lld parameters\n", graph_name(graph),
                  (long long)graph_param_count(graph));
    for (int i = 0; i < graph_value_count(graph); i++) {
        static const char *const kinds[] = { "input", "param", "state", "average",
                                             "flat",  "",      "unused" };
        const struct value *value = graph_value(graph, i);
        if (value->kind == VALUE_RESULT)
            continue;
        strbuf_printf(out, "  %-6s ", kinds[value->kind]);
        print_value(value, out);
        strbuf_add(out, "\n");
    }
    enum phase phase = PHASE_FORWARD;
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (n == 0 || node->phase != phase)
            strbuf_printf(out, " %s\n", phase_name(node->phase));
        phase = node->phase;
        strbuf_add(out, "  ");
        for (int i = 0; i < node->n_out; i++) {
            strbuf_add(out, i ? ", " : "");
            print_value(node->out[i], out);
        }
        strbuf_printf(out, " = %s(", node->op->name);
        for (int i = 0; i < node->n_in; i++)
            strbuf_printf(out, "%s%%%d", i ? ", " : "", node->in[i]->id);
        strbuf_add(out, ")");
        graph_print_attrs(node, out);
        strbuf_add(out, "\n");
    }
}

/* DOT ---------------------------------------------------------------------------------- */

static void add_dot_text(struct strbuf *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            strbuf_add(out, "\\");
        strbuf_add_bytes(out, (unsigned char)*text < 0x20 ? "?" : text, 1);
    }
}

/* The node whose edges are written, and the makers seen so far: a flat value may hold several
 * outputs of one node. */
struct dot {
    struct strbuf *out;
    const struct node *node;
    const struct node *seen[GRAPH_NODE_IN];
    int n_seen;
};

static void add_dot_edge(void *arg, const struct value *made)
{
    struct dot *dot = arg;
    char shape[SHAPE_TEXT];

    for (int i = 0; i < dot->n_seen; i++) {
        if (dot->seen[i] == made->maker)
            return;
    }
    if (dot->n_seen < GRAPH_NODE_IN)
        dot->seen[dot->n_seen++] = made->maker;
    strbuf_printf(dot->out, "  n%d -> n%d [label=\"%s\"];\n", made->maker->id, dot->node->id,
                  shape_print(&made->shape, shape));
}

static void add_dot_node(const struct graph *graph, const struct node *node, struct strbuf *out)
{
    static const char *const colours[] = { "#d7e8fa", "#fbe0cd", "#d9efd7", "#ecdff2" };
    struct dot dot = { .out = out, .node = node };

    strbuf_printf(out, "  n%d [label=\"%s\\n", node->id, node->op->name);
    add_dot_text(out, node->name);
    strbuf_printf(out, "\", fillcolor=\"%s\"];\n", colours[node->phase]);
    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        char shape[SHAPE_TEXT];
        if (graph_each_made(graph, in, add_dot_edge, &dot) == 0)
            strbuf_printf(out, "  v%d -> n%d [label=\"%s\"];\n", in->id, node->id,
                          shape_print(&in->shape, shape));
    }
}

static void ignore(void *arg, const struct value *made)
{
    (void)arg;
    (void)made;
}

void graph_print_dot(const struct graph *graph, struct strbuf *out)
{
    strbuf_add(out, "digraph \"");
    add_dot_text(out, graph_name(graph));
    strbuf_add(
        out, "\" {\n  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\"];\n");
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (graph_uses(graph, value) == 0 || graph_each_made(graph, value, ignore, NULL) > 0)
            continue;
        strbuf_printf(out, "  v%d [label=\"", value->id);
        add_dot_text(out, value->name);
        strbuf_add(out, "\", shape=ellipse, fillcolor=\"#f4f4f4\"];\n");
    }
    for (int n = 0; n < graph_node_count(graph); n++)
        add_dot_node(graph, graph_node(graph, n), out);
    strbuf_add(out, "}\n");
}
