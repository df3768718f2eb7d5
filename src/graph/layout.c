/* layout.c - lanes, rows, order and coordinates; then the edges.
 *
 * Rows: longest paths over "stands above": a forward node above its users, a backward node above
 * the one it gets its gradient from, no backward node above its forward node, and nothing that
 * follows a forward node above its backward ones.
 *
 * Across a lane: Sugiyama's method. An edge that passes rows gets a thin item on each of them; items
 * of a row are ordered by the mean of their neighbours, and placed as near to that mean as
 * the order and their sizes allow.
 */
#include "graph/layout.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "graph/op.h"

enum {
    ROW_GAP = 36,
    LANE_GAP = 64,   /* between lanes; edges from lane to lane turn there */
    COLUMN_GAP = 44, /* between columns of reduce and update */
    ITEM_GAP = 26,
    PILL_GAP = 12,
    PASSING = 5, /* half the width of an edge that passes a row */
    SWEEPS = 12,
};

enum lane { LANE_FORWARD, LANE_BACKWARD, LANE_WEIGHT, LANE_STEP, LANE_COUNT };

/* Something that takes place on a layer (a row, or a column of the last lane). */
struct item {
    int box; /* -1: an edge that passes */
    int layer, order;
    double before, after; /* room on both sides of its middle */
    double at;            /* the middle */
    double pull, weight;  /* where things outside of the lane would like it; 0: nowhere */
};

struct link { /* between items of neighbouring layers */
    int upper, lower;
};

/* One lane, while its items are placed. */
struct strip {
    struct item *items;
    int n_items, max_items;
    struct link *links;
    int n_links, max_links;
    int n_layers;
    int *sorted; /* item numbers by layer and order */
    int *begin;  /* sorted[begin[l] .. begin[l + 1]) is layer l */
    int *near;   /* neighbours of item i: near[near_begin[i] .. near_begin[i + 1]) */
    int *near_begin;
    double *goal, *share; /* of the items of one layer: where each should go, and how much */
};

struct maker {
    const struct graph *graph;
    struct layout *layout;
    enum status status;
    int *box_of_id;        /* by node id */
    enum lane *lane;       /* these by box */
    int *layer;            /* row; column in the last lane */
    int *partner;          /* forward box of a backward one, or -1 */
    int *first_item;       /* by edge: first passing item of its lane, or -1 */
    struct strip strips[LANE_COUNT];
    int n_rows;
    double lane_x[LANE_COUNT], lane_width[LANE_COUNT];
    double box_width[LANE_COUNT], pill_width[LANE_COUNT];
    int *in_gap; /* edges that run along the gap above each row */
    int max_edges;
    int to;      /* the box whose edges are collected */
};

static void *get(struct maker *m, size_t count, size_t size)
{
    void *block = arena_alloc(m->layout->arena, count + 1, size);

    if (!block)
        m->status = STATUS_NO_MEMORY;
    return block;
}

/* A list with room for one more. */
static bool grow(struct maker *m, void *list, int count, int *max, size_t size)
{
    if (count < *max)
        return true;
    const int more = *max ? *max * 2 : 64;
    void *old, *block = get(m, (size_t)more, size);
    if (!block)
        return false;
    memcpy(&old, list, sizeof old);
    if (old)
        memcpy(block, old, (size_t)count * size);
    memcpy(list, &block, sizeof block);
    *max = more;
    return true;
}

/* What flows where ---------------------------------------------------------------------- */

void layout_each_maker(const struct graph *graph, const struct value *value,
                       void (*fn)(void *arg, const struct value *made), void *arg)
{
    if (value->maker) {
        fn(arg, value);
        return;
    }
    for (int i = 0; value->kind == VALUE_FLAT && i < graph_value_count(graph); i++) {
        const struct value *inside = graph_value(graph, i);
        if (inside->flat == value && inside->maker)
            fn(arg, inside);
    }
}

static void add_edge(void *arg, const struct value *made)
{
    struct maker *m = arg;
    struct layout *layout = m->layout;
    const int from = m->box_of_id[made->maker->id];

    if (from < 0) /* left out of the order */
        return;
    for (int i = layout->n_edges - 1; i >= 0 && layout->edges[i].to == m->to; i--) {
        if (layout->edges[i].from == from)
            return;
    }
    if (!grow(m, &layout->edges, layout->n_edges, &m->max_edges, sizeof *layout->edges))
        return;
    layout->edges[layout->n_edges++] =
        (struct layout_edge){ .value = made, .from = from, .to = m->to };
}

static void add_pill(struct layout_box *box, const struct value *value)
{
    for (int i = 0; i < box->n_pills; i++) {
        if (box->pills[i].value == value)
            return;
    }
    if (box->n_pills < GRAPH_IN + 1)
        box->pills[box->n_pills++].value = value;
}

static void collect(struct maker *m)
{
    struct layout *layout = m->layout;
    int most = 0;

    layout->n_boxes = graph_node_count(m->graph);
    for (int n = 0; n < layout->n_boxes; n++)
        most = graph_node(m->graph, n)->id > most ? graph_node(m->graph, n)->id : most;
    for (int i = 0; i < graph_value_count(m->graph); i++) {
        const struct node *node = graph_value(m->graph, i)->maker;
        most = node && node->id > most ? node->id : most;
    }
    layout->boxes = get(m, (size_t)layout->n_boxes, sizeof *layout->boxes);
    m->box_of_id = get(m, (size_t)most + 1, sizeof *m->box_of_id);
    if (m->status != STATUS_OK)
        return;
    for (int i = 0; i <= most; i++)
        m->box_of_id[i] = -1;
    for (int n = 0; n < layout->n_boxes; n++) {
        layout->boxes[n].node = graph_node(m->graph, n);
        m->box_of_id[layout->boxes[n].node->id] = n;
    }
    for (m->to = 0; m->to < layout->n_boxes; m->to++) {
        struct layout_box *box = &layout->boxes[m->to];
        for (int i = 0; i < box->node->n_in; i++) {
            const int before = layout->n_edges;
            layout_each_maker(m->graph, box->node->in[i], add_edge, m);
            if (layout->n_edges == before && !box->node->in[i]->maker)
                add_pill(box, box->node->in[i]);
        }
    }
}

static enum phase phase_of(const struct maker *m, int box)
{
    return m->layout->boxes[box].node->phase;
}

/* A backward node is in the lane of weights unless another one goes on with what it makes; what sums
 * and updates continues the forward lane if nothing else flows into it. */
static void pick_lanes(struct maker *m)
{
    const struct layout *layout = m->layout;

    for (int b = 0; b < layout->n_boxes; b++) {
        const enum phase phase = phase_of(m, b);
        m->lane[b] = phase == PHASE_FORWARD    ? LANE_FORWARD
                     : phase == PHASE_BACKWARD ? LANE_WEIGHT
                                               : LANE_STEP;
    }
    for (int e = 0; e < layout->n_edges; e++) {
        if (phase_of(m, layout->edges[e].to) == PHASE_BACKWARD &&
            phase_of(m, layout->edges[e].from) == PHASE_BACKWARD)
            m->lane[layout->edges[e].from] = LANE_BACKWARD;
    }
    /* Edges stand in the order of the boxes they lead to, so makers are decided before. */
    for (int e = 0, b = 0; b < layout->n_boxes; b++) {
        bool any = false, all = true;
        for (; e < layout->n_edges && layout->edges[e].to == b; e++) {
            any = true;
            all = all && m->lane[layout->edges[e].from] == LANE_FORWARD;
        }
        if (m->lane[b] == LANE_STEP && any && all)
            m->lane[b] = LANE_FORWARD;
    }
}

/* Rows ---------------------------------------------------------------------------------- */

static bool reads(const struct node *node, const struct value *value)
{
    for (int i = 0; i < node->n_in; i++) {
        if (node->in[i] == value)
            return true;
    }
    return false;
}

/* How well a backward node fits a forward one: by name, by op, by what it reads. */
static int fit(const struct node *back, const struct node *front)
{
    const char *name = strncmp(back->name, "d.", 2) == 0 ? back->name + 2 : back->name;
    bool is_named = strcmp(name, front->name) == 0;
    bool reads_out = false, shares_in = false;

    for (int i = 0; i < front->n_in; i++) {
        is_named = is_named || (!front->in[i]->maker && strcmp(name, front->in[i]->name) == 0);
        shares_in = shares_in || reads(back, front->in[i]);
    }
    for (int i = 0; i < front->n_out; i++)
        reads_out = reads_out || reads(back, front->out[i]);
    const bool same_op = strncmp(back->op->name, front->op->name, strlen(front->op->name)) == 0;
    return 4 * is_named + 2 * (same_op || reads_out) + shares_in;
}

static void find_partners(struct maker *m)
{
    for (int b = 0; b < m->layout->n_boxes; b++) {
        int best = 1;

        m->partner[b] = -1;
        for (int f = 0; phase_of(m, b) == PHASE_BACKWARD && f < m->layout->n_boxes; f++) {
            const int score = phase_of(m, f) == PHASE_FORWARD
                                  ? fit(m->layout->boxes[b].node, m->layout->boxes[f].node)
                                  : 0;
            if (score > best) {
                best = score;
                m->partner[b] = f;
            }
        }
    }
}

/* "Row of `lower` is at least that of `upper` plus `rows`." */
struct rule {
    int upper, lower, rows;
};

struct rules {
    struct rule *rules;
    int count, max;
};

static void add_rule(struct maker *m, struct rules *rules, int upper, int lower, int rows)
{
    if (grow(m, &rules->rules, rules->count, &rules->max, sizeof *rules->rules))
        rules->rules[rules->count++] = (struct rule){ upper, lower, rows };
}

static bool is_row_lane(enum lane lane)
{
    return lane != LANE_STEP;
}

static void collect_rules(struct maker *m, bool align, struct rules *rules)
{
    const struct layout *layout = m->layout;

    for (int e = 0; e < layout->n_edges; e++) {
        const int from = layout->edges[e].from, to = layout->edges[e].to;
        const bool from_front = m->lane[from] == LANE_FORWARD;
        const bool to_front = m->lane[to] == LANE_FORWARD;

        if (!is_row_lane(m->lane[from]) || !is_row_lane(m->lane[to]) || from_front != to_front)
            continue;
        if (!from_front) {
            add_rule(m, rules, to, from, 1);
            continue;
        }
        add_rule(m, rules, from, to, 1);
        for (int b = 0; align && b < layout->n_boxes; b++) {
            if (m->partner[b] == from)
                add_rule(m, rules, b, to, 1);
        }
    }
    for (int b = 0; align && b < layout->n_boxes; b++) {
        if (m->partner[b] >= 0)
            add_rule(m, rules, m->partner[b], b, 0);
    }
}

/* Longest paths; false if the rules go round in a circle. */
static bool apply_rules(struct maker *m, const struct rules *rules)
{
    const int n = m->layout->n_boxes;
    int *waiting = get(m, (size_t)n, sizeof *waiting), *ready = get(m, (size_t)n, sizeof *ready);
    int *first = get(m, (size_t)n, sizeof *first);
    int *next = get(m, (size_t)rules->count, sizeof *next);
    int n_ready = 0;

    if (m->status != STATUS_OK)
        return true;
    for (int b = 0; b < n; b++) {
        m->layer[b] = 0;
        first[b] = -1;
    }
    for (int r = 0; r < rules->count; r++) {
        waiting[rules->rules[r].lower]++;
        next[r] = first[rules->rules[r].upper];
        first[rules->rules[r].upper] = r;
    }
    for (int b = 0; b < n; b++) {
        if (waiting[b] == 0)
            ready[n_ready++] = b;
    }
    for (int i = 0; i < n_ready; i++) {
        for (int r = first[ready[i]]; r >= 0; r = next[r]) {
            const int low = rules->rules[r].lower, row = m->layer[ready[i]] + rules->rules[r].rows;
            m->layer[low] = row > m->layer[low] ? row : m->layer[low];
            if (--waiting[low] == 0)
                ready[n_ready++] = low;
        }
    }
    return n_ready == n;
}

static void pick_rows(struct maker *m)
{
    struct rules rules = { 0 };

    collect_rules(m, true, &rules);
    if (!apply_rules(m, &rules)) { /* partners that do not fit together: without them, then */
        rules.count = 0;
        collect_rules(m, false, &rules);
        (void)apply_rules(m, &rules);
    }
    for (int b = 0; b < m->layout->n_boxes; b++) {
        if (is_row_lane(m->lane[b]) && m->layer[b] >= m->n_rows)
            m->n_rows = m->layer[b] + 1;
    }
}

/* Columns of the last lane: longest paths within it. Boxes and edges stand in running order. */
static void pick_columns(struct maker *m)
{
    for (int e = 0; e < m->layout->n_edges; e++) {
        const int from = m->layout->edges[e].from, to = m->layout->edges[e].to;
        if (m->lane[to] != LANE_STEP || m->lane[from] != LANE_STEP)
            continue;
        m->layer[to] = m->layer[from] + 1 > m->layer[to] ? m->layer[from] + 1 : m->layer[to];
    }
}

/* Sizes --------------------------------------------------------------------------------- */

static double text_width(const char *text, int most, double size)
{
    int count = 0;

    for (; *text && count < most; text++)
        count += (*text & 0xC0) != 0x80; /* characters, not bytes */
    return count * size * 0.6;
}

static double at_least(double a, double b)
{
    return a > b ? a : b;
}

static void measure(struct maker *m)
{
    struct layout *layout = m->layout;

    for (int b = 0; b < layout->n_boxes; b++) {
        struct layout_box *box = &layout->boxes[b];
        double *width = &m->box_width[m->lane[b]], *pill = &m->pill_width[m->lane[b]];
        char shape[SHAPE_TEXT];

        *width = at_least(*width, 110);
        *width = at_least(*width, text_width(box->node->op->name, LAYOUT_TEXT_MAX, 13) + 28);
        *width = at_least(*width, text_width(box->node->name, LAYOUT_TEXT_MAX, 11) + 28);
        *width = at_least(*width, text_width(shape_print(&box->node->out[0]->shape, shape),
                                             LAYOUT_TEXT_MAX, 11) + 28);
        for (int p = 0; p < box->n_pills; p++) {
            box->pills[p].width =
                text_width(box->pills[p].value->name, LAYOUT_PILL_TEXT_MAX, 10) + 14;
            *pill = at_least(*pill, box->pills[p].width + PILL_GAP);
        }
    }
    for (int b = 0; b < layout->n_boxes; b++) {
        layout->boxes[b].width = m->box_width[m->lane[b]];
        layout->boxes[b].height = LAYOUT_BOX_HEIGHT;
    }
}

/* Room that pills take below a box of the last lane. */
static double pills_height(const struct layout_box *box)
{
    return box->n_pills ? box->n_pills * (LAYOUT_PILL_HEIGHT + 3) + 3 : 0;
}

/* Strips -------------------------------------------------------------------------------- */

static int add_item(struct maker *m, struct strip *strip, struct item item)
{
    if (!grow(m, &strip->items, strip->n_items, &strip->max_items, sizeof *strip->items))
        return 0;
    if (item.layer >= strip->n_layers)
        strip->n_layers = item.layer + 1;
    item.order = strip->n_items;
    strip->items[strip->n_items] = item;
    return strip->n_items++;
}

static void add_link(struct maker *m, struct strip *strip, int upper, int lower)
{
    if (grow(m, &strip->links, strip->n_links, &strip->max_links, sizeof *strip->links))
        strip->links[strip->n_links++] = (struct link){ upper, lower };
}

/* An edge within the lane, with an item on every layer that it passes. */
static void add_path(struct maker *m, struct strip *strip, int e, int upper, int lower)
{
    const int first = strip->items[upper].layer + 1, end = strip->items[lower].layer;
    int last = upper;

    for (int layer = first; layer < end; layer++) {
        const int passing = add_item(
            m, strip,
            (struct item){ .box = -1, .layer = layer, .before = PASSING, .after = PASSING });
        if (layer == first)
            m->first_item[e] = passing;
        add_link(m, strip, last, passing);
        last = passing;
    }
    add_link(m, strip, last, lower);
}

/* Fills the strips; item numbers of boxes are their numbers within the lane. */
static void fill_strips(struct maker *m, int *item_of)
{
    struct layout *layout = m->layout;

    for (int b = 0; b < layout->n_boxes; b++) {
        const struct layout_box *box = &layout->boxes[b];
        struct item item = { .box = b, .layer = m->layer[b] };

        item.before = box->width / 2 + m->pill_width[m->lane[b]];
        item.after = box->width / 2;
        if (m->lane[b] == LANE_STEP) {
            item.before = box->height / 2;
            item.after = box->height / 2 + pills_height(box);
        }
        item_of[b] = add_item(m, &m->strips[m->lane[b]], item);
    }
    for (int e = 0; e < layout->n_edges; e++) {
        int upper = layout->edges[e].from, lower = layout->edges[e].to;
        const enum lane lane = m->lane[upper];

        m->first_item[e] = -1;
        if (lane != m->lane[lower] || m->status != STATUS_OK)
            continue;
        if (lane == LANE_BACKWARD || lane == LANE_WEIGHT) {
            upper = layout->edges[e].to;
            lower = layout->edges[e].from;
        }
        if (m->layer[upper] < m->layer[lower])
            add_path(m, &m->strips[lane], e, item_of[upper], item_of[lower]);
    }
}

/* Cuts the items into layers and lists everybody's neighbours. */
static void index_strip(struct maker *m, struct strip *strip)
{
    const size_t n = (size_t)strip->n_items;
    int *used = get(m, n, sizeof *used);

    strip->sorted = get(m, n, sizeof *strip->sorted);
    strip->begin = get(m, (size_t)strip->n_layers + 1, sizeof *strip->begin);
    strip->near = get(m, 2 * (size_t)strip->n_links, sizeof *strip->near);
    strip->near_begin = get(m, n + 1, sizeof *strip->near_begin);
    strip->goal = get(m, 2 * n, sizeof *strip->goal);
    strip->share = get(m, 2 * n, sizeof *strip->share);
    if (m->status != STATUS_OK)
        return;

    for (int i = 0; i < strip->n_items; i++)
        strip->begin[strip->items[i].layer + 1]++;
    for (int l = 0; l < strip->n_layers; l++)
        strip->begin[l + 1] += strip->begin[l];
    for (int i = 0; i < strip->n_items; i++) {
        struct item *item = &strip->items[i];
        item->order = 0;
        for (int j = strip->begin[item->layer]; used[j]; j++)
            item->order++;
        used[strip->begin[item->layer] + item->order] = 1;
        strip->sorted[strip->begin[item->layer] + item->order] = i;
    }

    for (int l = 0; l < strip->n_links; l++) {
        strip->near_begin[strip->links[l].upper + 1]++;
        strip->near_begin[strip->links[l].lower + 1]++;
    }
    for (int i = 0; i < strip->n_items; i++) {
        strip->near_begin[i + 1] += strip->near_begin[i];
        used[i] = 0;
    }
    for (int l = 0; l < strip->n_links; l++) {
        const struct link link = strip->links[l];
        strip->near[strip->near_begin[link.upper] + used[link.upper]++] = link.lower;
        strip->near[strip->near_begin[link.lower] + used[link.lower]++] = link.upper;
    }
}

/* Puts the items of a layer in the order of their goals; equals keep theirs. */
static void sort_layer(struct strip *strip, int layer)
{
    const int begin = strip->begin[layer], end = strip->begin[layer + 1];

    for (int i = begin + 1; i < end; i++) {
        const int item = strip->sorted[i];
        const double goal = strip->goal[i];
        int j = i;
        for (; j > begin && strip->goal[j - 1] > goal; j--) {
            strip->sorted[j] = strip->sorted[j - 1];
            strip->goal[j] = strip->goal[j - 1];
        }
        strip->sorted[j] = item;
        strip->goal[j] = goal;
    }
    for (int i = begin; i < end; i++)
        strip->items[strip->sorted[i]].order = i - begin;
}

/* Orders a layer by the mean order of neighbours on the layer `other`. */
static void order_layer(struct strip *strip, int layer, int other)
{
    for (int i = strip->begin[layer]; i < strip->begin[layer + 1]; i++) {
        const int item = strip->sorted[i];
        double sum = 0;
        int count = 0;

        for (int k = strip->near_begin[item]; k < strip->near_begin[item + 1]; k++) {
            const struct item *near = &strip->items[strip->near[k]];
            if (near->layer == other) {
                sum += near->order;
                count++;
            }
        }
        strip->goal[i] = count ? sum / count : strip->items[item].order;
    }
    sort_layer(strip, layer);
}

/* Least distance of the middles of two items side by side. */
static double distance(const struct item *a, const struct item *b)
{
    const double gap = a->box >= 0 && b->box >= 0 ? ITEM_GAP : a->box < 0 && b->box < 0 ? 2 : 10;
    return a->after + gap + b->before;
}

/* Places the items of a layer as near to their goals as their order and sizes allow: with the
 * distances taken off, the best places are an isotonic regression (pool adjacent violators). */
static void place_layer(struct strip *strip, int layer)
{
    const int begin = strip->begin[layer], count = strip->begin[layer + 1] - begin;
    double *mean = strip->goal + strip->n_items, *weight = strip->share + strip->n_items;
    double offset = 0;
    int n = 0; /* pools so far; the i-th ends before item last[i] */
    int *last = strip->near_begin + 0;

    (void)last;
    for (int i = 0; i < count; i++) {
        struct item *item = &strip->items[strip->sorted[begin + i]];
        if (i > 0)
            offset += distance(&strip->items[strip->sorted[begin + i - 1]], item);
        item->at = offset;
        mean[n] = strip->goal[begin + i] - offset;
        weight[n] = strip->share[begin + i];
        n++;
    }
}
