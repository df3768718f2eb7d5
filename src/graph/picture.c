/* picture.c - lanes, rows, order and coordinates; then the edges.
 *
 * Rows: longest paths over "stands above": a forward node above its users, a backward node above
 * the one it gets its gradient from, no backward node above its forward node, and nothing that
 * follows a forward node above its backward ones.
 *
 * Across a lane: Sugiyama's method. An edge that passes rows gets a thin item on each of them; items
 * of a row are ordered by the mean of their neighbours, and placed as near to that mean as
 * the order and their sizes allow.
 */
#include "graph/picture.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "graph/op.h"
#include "graph/print.h"

enum {
    ROW_GAP = 36,
    LANE_GAP = 56,   /* between lanes; edges from lane to lane turn there */
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

struct pool { /* items in a row that must be placed side by side */
    double at, share;
    int count;
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
    double *goal, *share; /* by place in `sorted`: where the item should go, and how much so */
    struct pool *pools;   /* room for place_layer */
    bool follows; /* items look at the layer before alone, so that chains are straight */
};

struct maker {
    const struct graph *graph;
    struct picture *picture;
    enum status status;
    int *box_of_id;  /* by node id */
    enum lane *lane; /* these by box */
    int *layer;      /* row; column in the last lane */
    int *partner;    /* forward box of a backward one, or -1 */
    int *first_item; /* by edge: first passing item of its lane, or -1 */
    struct strip strips[LANE_COUNT];
    int n_rows;
    double lane_x[LANE_COUNT], lane_width[LANE_COUNT];
    double box_width[LANE_COUNT], pill_width[LANE_COUNT];
    int *in_gap; /* edges that run along the gap above each row */
    int max_edges;
    int to; /* the box whose edges are collected */
};

static void *get(struct maker *m, size_t count, size_t size)
{
    void *block = arena_alloc(m->picture->arena, count + 1, size);

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

static void add_edge(void *arg, const struct value *made)
{
    struct maker *m = arg;
    struct picture *picture = m->picture;
    const int from = m->box_of_id[made->maker->id];

    if (from < 0) /* left out of the order */
        return;
    for (int i = picture->n_edges - 1; i >= 0 && picture->edges[i].to == m->to; i--) {
        if (picture->edges[i].from == from)
            return;
    }
    if (!grow(m, &picture->edges, picture->n_edges, &m->max_edges, sizeof *picture->edges))
        return;
    picture->edges[picture->n_edges++] =
        (struct picture_edge){ .value = made, .from = from, .to = m->to };
}

static void add_pill(struct picture_box *box, const struct value *value)
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
    struct picture *picture = m->picture;
    int most = 0;

    picture->n_boxes = graph_node_count(m->graph);
    for (int n = 0; n < picture->n_boxes; n++)
        most = graph_node(m->graph, n)->id > most ? graph_node(m->graph, n)->id : most;
    for (int i = 0; i < graph_value_count(m->graph); i++) {
        const struct node *node = graph_value(m->graph, i)->maker;
        most = node && node->id > most ? node->id : most;
    }
    picture->boxes = get(m, (size_t)picture->n_boxes, sizeof *picture->boxes);
    m->box_of_id = get(m, (size_t)most + 1, sizeof *m->box_of_id);
    if (m->status != STATUS_OK)
        return;
    for (int i = 0; i <= most; i++)
        m->box_of_id[i] = -1;
    for (int n = 0; n < picture->n_boxes; n++) {
        picture->boxes[n].node = graph_node(m->graph, n);
        m->box_of_id[picture->boxes[n].node->id] = n;
    }
    for (m->to = 0; m->to < picture->n_boxes; m->to++) {
        struct picture_box *box = &picture->boxes[m->to];
        for (int i = 0; i < box->node->n_in; i++) {
            if (graph_each_made(m->graph, box->node->in[i], add_edge, m) == 0)
                add_pill(box, box->node->in[i]);
        }
    }
}

static enum phase phase_of(const struct maker *m, int box)
{
    return m->picture->boxes[box].node->phase;
}

/* A backward node is in the lane of weights unless another one goes on with what it makes; what sums
 * and updates continues the forward lane if nothing else flows into it. */
static void pick_lanes(struct maker *m)
{
    const struct picture *picture = m->picture;

    for (int b = 0; b < picture->n_boxes; b++) {
        const enum phase phase = phase_of(m, b);
        m->lane[b] = phase == PHASE_FORWARD    ? LANE_FORWARD
                     : phase == PHASE_BACKWARD ? LANE_WEIGHT
                                               : LANE_STEP;
    }
    for (int e = 0; e < picture->n_edges; e++) {
        if (phase_of(m, picture->edges[e].to) == PHASE_BACKWARD &&
            phase_of(m, picture->edges[e].from) == PHASE_BACKWARD)
            m->lane[picture->edges[e].from] = LANE_BACKWARD;
    }
    /* Edges stand in the order of the boxes they lead to, so makers are decided before. */
    for (int e = 0, b = 0; b < picture->n_boxes; b++) {
        bool any = false, all = true;
        for (; e < picture->n_edges && picture->edges[e].to == b; e++) {
            any = true;
            all = all && m->lane[picture->edges[e].from] == LANE_FORWARD;
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
    for (int b = 0; b < m->picture->n_boxes; b++) {
        int best = 1;

        m->partner[b] = -1;
        for (int f = 0; phase_of(m, b) == PHASE_BACKWARD && f < m->picture->n_boxes; f++) {
            const int score = phase_of(m, f) == PHASE_FORWARD
                                  ? fit(m->picture->boxes[b].node, m->picture->boxes[f].node)
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
    const struct picture *picture = m->picture;

    for (int e = 0; e < picture->n_edges; e++) {
        const int from = picture->edges[e].from, to = picture->edges[e].to;
        const bool from_front = m->lane[from] == LANE_FORWARD;
        const bool to_front = m->lane[to] == LANE_FORWARD;

        if (!is_row_lane(m->lane[from]) || !is_row_lane(m->lane[to]) || from_front != to_front)
            continue;
        if (!from_front) {
            add_rule(m, rules, to, from, 1);
            continue;
        }
        add_rule(m, rules, from, to, 1);
        for (int b = 0; align && b < picture->n_boxes; b++) {
            if (m->partner[b] == from)
                add_rule(m, rules, b, to, 1);
        }
    }
    for (int b = 0; align && b < picture->n_boxes; b++) {
        if (m->partner[b] >= 0)
            add_rule(m, rules, m->partner[b], b, 0);
    }
}

/* Longest paths; false if the rules go round in a circle. */
static bool apply_rules(struct maker *m, const struct rules *rules)
{
    const int n = m->picture->n_boxes;
    int *waiting = get(m, (size_t)n, sizeof *waiting),
        *ready = get(m, (size_t)n, sizeof *ready);
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
            const int low = rules->rules[r].lower,
                      row = m->layer[ready[i]] + rules->rules[r].rows;
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
    for (int b = 0; b < m->picture->n_boxes; b++) {
        if (is_row_lane(m->lane[b]) && m->layer[b] >= m->n_rows)
            m->n_rows = m->layer[b] + 1;
    }
}

/* Columns of the last lane: longest paths within it. Boxes and edges stand in running order. */
static void pick_columns(struct maker *m)
{
    for (int e = 0; e < m->picture->n_edges; e++) {
        const int from = m->picture->edges[e].from, to = m->picture->edges[e].to;
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
    return count * size * 0.58;
}

static double at_least(double a, double b)
{
    return a > b ? a : b;
}

static void measure(struct maker *m)
{
    struct picture *picture = m->picture;

    for (int b = 0; b < picture->n_boxes; b++) {
        struct picture_box *box = &picture->boxes[b];
        double *width = &m->box_width[m->lane[b]], *pill = &m->pill_width[m->lane[b]];
        char shape[SHAPE_TEXT];

        *width = at_least(*width, 110);
        *width = at_least(*width, text_width(box->node->op->name, PICTURE_TEXT_MAX, 13) + 24);
        *width = at_least(*width, text_width(box->node->name, PICTURE_TEXT_MAX, 11) + 24);
        *width = at_least(*width, text_width(shape_print(&box->node->out[0]->shape, shape),
                                             PICTURE_TEXT_MAX, 11) +
                                      24);
        for (int p = 0; p < box->n_pills; p++) {
            box->pills[p].width =
                text_width(box->pills[p].value->name, PICTURE_PILL_TEXT_MAX, 10) + 14;
            *pill = at_least(*pill, box->pills[p].width + PILL_GAP);
        }
    }
    for (int b = 0; b < picture->n_boxes; b++) {
        picture->boxes[b].width = m->box_width[m->lane[b]];
        picture->boxes[b].height = PICTURE_BOX_HEIGHT;
    }
}

/* Room that pills take below a box of the last lane. */
static double pills_height(const struct picture_box *box)
{
    return box->n_pills ? box->n_pills * (PICTURE_PILL_HEIGHT + 3) + 3 : 0;
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
    struct picture *picture = m->picture;

    for (int b = 0; b < picture->n_boxes; b++) {
        const struct picture_box *box = &picture->boxes[b];
        struct item item = { .box = b, .layer = m->layer[b] };

        item.before = box->width / 2 + m->pill_width[m->lane[b]];
        item.after = box->width / 2;
        if (m->lane[b] == LANE_STEP) {
            item.before = box->height / 2;
            item.after = box->height / 2 + pills_height(box);
        }
        item_of[b] = add_item(m, &m->strips[m->lane[b]], item);
    }
    for (int e = 0; e < picture->n_edges; e++) {
        int upper = picture->edges[e].from, lower = picture->edges[e].to;
        const enum lane lane = m->lane[upper];

        m->first_item[e] = -1;
        if (lane != m->lane[lower] || m->status != STATUS_OK)
            continue;
        if (lane == LANE_BACKWARD || lane == LANE_WEIGHT) {
            upper = picture->edges[e].to;
            lower = picture->edges[e].from;
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
    strip->goal = get(m, n, sizeof *strip->goal);
    strip->share = get(m, n, sizeof *strip->share);
    strip->pools = get(m, n, sizeof *strip->pools);
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
    const double gap = a->box >= 0 && b->box >= 0 ? ITEM_GAP
                       : a->box < 0 && b->box < 0 ? 2
                                                  : 10;
    return a->after + gap + b->before;
}

/* Places the items of a layer as near to their goals as their order and sizes allow. With the least
 * distances taken off, that is isotonic regression: neighbours in the wrong order are pooled. */
static void place_layer(struct strip *strip, int layer)
{
    const int begin = strip->begin[layer], end = strip->begin[layer + 1];
    struct pool *pools = strip->pools;
    double offset = 0;
    int n = 0;

    for (int i = begin; i < end; i++) {
        struct item *item = &strip->items[strip->sorted[i]];
        if (i > begin)
            offset += distance(&strip->items[strip->sorted[i - 1]], item);
        item->at = offset;
        pools[n++] = (struct pool){ strip->goal[i] - offset, strip->share[i], 1 };
        for (; n > 1 && pools[n - 2].at > pools[n - 1].at; n--) {
            struct pool *left = &pools[n - 2];
            const struct pool right = pools[n - 1];
            left->at =
                (left->at * left->share + right.at * right.share) / (left->share + right.share);
            left->share += right.share;
            left->count += right.count;
        }
    }
    for (int i = begin, p = 0; p < n; p++) {
        for (int k = 0; k < pools[p].count; k++, i++)
            strip->items[strip->sorted[i]].at += pools[p].at;
    }
}

/* Where the neighbours of a layer's items, on all layers, would like them. Edges that pass several
 * layers should be straight, so they pull more. */
static void find_goals(struct strip *strip, int layer)
{
    for (int i = strip->begin[layer]; i < strip->begin[layer + 1]; i++) {
        const int number = strip->sorted[i];
        const struct item *item = &strip->items[number];
        double sum = item->pull * item->weight, share = item->weight;

        for (int k = strip->near_begin[number]; k < strip->near_begin[number + 1]; k++) {
            const struct item *near = &strip->items[strip->near[k]];
            const double weight = near->box < 0 && item->box < 0 ? 4 : 1;
            if (strip->follows && near->layer > item->layer)
                continue;
            sum += near->at * weight;
            share += weight;
        }
        strip->goal[i] = share > 0 ? sum / share : item->at;
        strip->share[i] = share > 0 ? share : 0.1;
    }
}

static void arrange(struct maker *m, struct strip *strip)
{
    index_strip(m, strip);
    if (m->status != STATUS_OK)
        return;
    for (int layer = 0; layer < strip->n_layers; layer++) { /* where the outside wants them */
        for (int i = strip->begin[layer]; i < strip->begin[layer + 1]; i++) {
            const struct item *item = &strip->items[strip->sorted[i]];
            strip->goal[i] = item->weight > 0 ? item->pull : 0;
            strip->share[i] = 1;
        }
        sort_layer(strip, layer);
        place_layer(strip, layer);
    }
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        for (int k = 1; k < strip->n_layers; k++) {
            const bool down = sweep % 2 == 0;
            order_layer(strip, down ? k : strip->n_layers - 1 - k,
                        down ? k - 1 : strip->n_layers - k);
        }
    }
    for (int sweep = 0; sweep < 2 * SWEEPS; sweep++) {
        for (int k = 0; k < strip->n_layers; k++) {
            const int layer = sweep % 2 == 0 ? k : strip->n_layers - 1 - k;
            find_goals(strip, layer);
            place_layer(strip, layer);
        }
    }
}

/* Coordinates --------------------------------------------------------------------------- */

static double row_y(int row)
{
    return row * (double)(PICTURE_BOX_HEIGHT + ROW_GAP);
}

static double middle_x(const struct picture_box *box)
{
    return box->x + box->width / 2;
}

static double middle_y(const struct picture_box *box)
{
    return box->y + box->height / 2;
}

/* Puts a lane that goes by rows to the right of `x`; returns its right end. */
static double place_lane(struct maker *m, enum lane lane, double x)
{
    struct strip *strip = &m->strips[lane];
    double low = 0, high = 0;

    for (int i = 0; i < strip->n_items; i++) {
        const struct item *item = &strip->items[i];
        low = i == 0 || item->at - item->before < low ? item->at - item->before : low;
        high = i == 0 || item->at + item->after > high ? item->at + item->after : high;
    }
    for (int i = 0; i < strip->n_items; i++) {
        struct item *item = &strip->items[i];
        item->at += x - low;
        if (item->box < 0)
            continue;
        struct picture_box *box = &m->picture->boxes[item->box];
        box->x = item->at - box->width / 2;
        box->y = row_y(item->layer);
    }
    m->lane_x[lane] = x;
    m->lane_width[lane] = high - low;
    return x + high - low;
}

/* The boxes of the last lane would like to stand level with what flows into them. */
static void pull_steps(struct maker *m)
{
    struct strip *strip = &m->strips[LANE_STEP];

    for (int i = 0; i < strip->n_items; i++) {
        struct item *item = &strip->items[i];
        double sum = 0;
        int count = 0;
        for (int e = 0; item->box >= 0 && e < m->picture->n_edges; e++) {
            const struct picture_edge *edge = &m->picture->edges[e];
            if (edge->to != item->box || m->lane[edge->from] == LANE_STEP)
                continue;
            sum += middle_y(&m->picture->boxes[edge->from]);
            count++;
        }
        item->pull = count ? sum / count : 0;
        item->weight = count;
    }
}

/* Places the last lane; returns its right end. */
static double place_steps(struct maker *m, double x)
{
    struct strip *strip = &m->strips[LANE_STEP];
    const double pitch = m->box_width[LANE_STEP] + COLUMN_GAP;

    pull_steps(m);
    strip->follows = true;
    arrange(m, strip);
    for (int i = 0; i < strip->n_items; i++) {
        const struct item *item = &strip->items[i];
        if (item->box < 0)
            continue;
        struct picture_box *box = &m->picture->boxes[item->box];
        box->x = x + item->layer * pitch;
        box->y = item->at - box->height / 2;
    }
    m->lane_x[LANE_STEP] = x;
    m->lane_width[LANE_STEP] = strip->n_layers * pitch - COLUMN_GAP;
    return x + m->lane_width[LANE_STEP];
}

static void place_pills(struct maker *m)
{
    for (int b = 0; b < m->picture->n_boxes; b++) {
        struct picture_box *box = &m->picture->boxes[b];
        const double pitch = PICTURE_PILL_HEIGHT + 3;
        const double top = middle_y(box) - (box->n_pills * pitch - 3) / 2;

        for (int p = 0; p < box->n_pills; p++) {
            struct picture_pill *pill = &box->pills[p];
            pill->x = box->x - PILL_GAP - pill->width;
            pill->y = top + p * pitch;
            if (m->lane[b] == LANE_STEP) {
                pill->x = box->x + 6;
                pill->y = box->y + box->height + 3 + p * pitch;
            }
        }
    }
}

static void place(struct maker *m)
{
    double x = 0;

    for (enum lane lane = LANE_FORWARD; lane <= LANE_WEIGHT; lane++) {
        arrange(m, &m->strips[lane]);
        if (m->status == STATUS_OK && m->strips[lane].n_items)
            x = place_lane(m, lane, x) + LANE_GAP;
    }
    if (m->status == STATUS_OK && m->strips[LANE_STEP].n_items)
        place_steps(m, x);
    if (m->status == STATUS_OK)
        place_pills(m);
}

/* Edges --------------------------------------------------------------------------------- */

static void add_point(struct picture_edge *edge, double x, double y)
{
    edge->points[edge->n_points++] = (struct picture_point){ x, y };
}

/* A curve from where the edge is to x, y, which leaves and arrives downwards (or upwards). */
static void curve_down(struct picture_edge *edge, double x, double y)
{
    const struct picture_point from = edge->points[edge->n_points - 1];

    add_point(edge, from.x, (from.y + y) / 2);
    add_point(edge, x, (from.y + y) / 2);
    add_point(edge, x, y);
}

/* The same sideways. */
static void curve_across(struct picture_edge *edge, double x, double y)
{
    const struct picture_point from = edge->points[edge->n_points - 1];

    add_point(edge, (from.x + x) / 2, from.y);
    add_point(edge, (from.x + x) / 2, y);
    add_point(edge, x, y);
}

/* Within a lane of rows: through the gaps that were kept for it. */
static void route_along_rows(struct maker *m, int e)
{
    struct picture_edge *edge = &m->picture->edges[e];
    const struct picture_box *from = &m->picture->boxes[edge->from];
    const struct picture_box *to = &m->picture->boxes[edge->to];
    const bool down = from->y < to->y;
    const int passed = m->layer[edge->to] - m->layer[edge->from];
    const int n = (down ? passed : -passed) - 1;

    add_point(edge, middle_x(from), down ? from->y + from->height : from->y);
    for (int k = 0; m->first_item[e] >= 0 && k < n; k++) {
        const struct item *item =
            &m->strips[m->lane[edge->from]].items[m->first_item[e] + (down ? k : n - 1 - k)];
        const double top = row_y(item->layer), bottom = top + PICTURE_BOX_HEIGHT;
        curve_down(edge, item->at, down ? top : bottom);
        curve_down(edge, item->at, down ? bottom : top);
    }
    curve_down(edge, middle_x(to), down ? to->y : to->y + to->height);
}

/* Within the last lane. */
static void route_along_columns(struct maker *m, int e)
{
    struct picture_edge *edge = &m->picture->edges[e];
    const struct picture_box *from = &m->picture->boxes[edge->from];
    const struct picture_box *to = &m->picture->boxes[edge->to];
    const int n = m->layer[edge->to] - m->layer[edge->from] - 1;

    add_point(edge, from->x + from->width, middle_y(from));
    for (int k = 0; m->first_item[e] >= 0 && k < n; k++) {
        const struct item *item = &m->strips[LANE_STEP].items[m->first_item[e] + k];
        const double x =
            m->lane_x[LANE_STEP] + item->layer * (m->box_width[LANE_STEP] + COLUMN_GAP);
        curve_across(edge, x, item->at);
        curve_across(edge, x + m->box_width[LANE_STEP], item->at);
    }
    curve_across(edge, to->x, middle_y(to));
}

/* Where an edge from the left reaches a box: in the middle, or past its pills. */
static double entry_y(const struct picture_box *box, double from_y)
{
    if (box->n_pills == 0 || box->pills[0].x >= box->x)
        return middle_y(box);
    return from_y > box->y + 1 ? box->y + box->height - 8 : box->y + 8;
}

/* From lane to lane, left to right; lanes in between are crossed in the gap between two rows. */
static void route_across(struct maker *m, int e)
{
    struct picture_edge *edge = &m->picture->edges[e];
    const struct picture_box *from = &m->picture->boxes[edge->from];
    const struct picture_box *to = &m->picture->boxes[edge->to];
    const enum lane first = m->lane[edge->from], last = m->lane[edge->to];

    double y = middle_y(from);
    add_point(edge, from->x + from->width, y);
    enum lane next = first + 1;
    while (next < last && m->strips[next].n_items == 0)
        next++;
    if (next < last) {
        /* Above the row it leads to, or below the one it comes from. */
        const int to_row = m->layer[edge->to] > 0 ? m->layer[edge->to] : 1;
        const int row = last == LANE_STEP ? m->layer[edge->from] + 1 : to_row;
        const double shift = (m->in_gap[row]++ % 3 - 1) * 6.0;
        y = row_y(row) - ROW_GAP / 2.0 + shift;
        const double left = m->lane_x[next] - LANE_GAP / 4.0;
        const double right = m->lane_x[last - 1] + m->lane_width[last - 1] + LANE_GAP / 4.0;
        curve_across(edge, left, y);
        curve_across(edge, right, y);
    }
    curve_across(edge, to->x, entry_y(to, y));
}

static void route(struct maker *m)
{
    struct picture *picture = m->picture;

    m->in_gap = get(m, (size_t)m->n_rows + 2, sizeof *m->in_gap);
    for (int e = 0; e < picture->n_edges && m->status == STATUS_OK; e++) {
        struct picture_edge *edge = &picture->edges[e];
        const enum lane from = m->lane[edge->from], to = m->lane[edge->to];
        int apart = m->layer[edge->to] - m->layer[edge->from];

        apart = apart < 0 ? -apart : apart;
        edge->is_saved = from == LANE_FORWARD && (to == LANE_BACKWARD || to == LANE_WEIGHT);
        edge->points = get(m, 6 * ((size_t)apart + 4), sizeof *edge->points);
        if (!edge->points)
            return;
        if (from < to || (from == to && apart == 0))
            route_across(m, e);
        else if (from == LANE_STEP && to == LANE_STEP)
            route_along_columns(m, e);
        else
            route_along_rows(m, e);
    }
}

/* Moves everything so that it begins at the margin below `top`, and measures the whole. */
static void frame(struct picture *picture, double top)
{
    struct picture_point low = { 0 }, high = { 0 };

    for (int b = 0; b < picture->n_boxes; b++) {
        const struct picture_box *box = &picture->boxes[b];
        const double bottom = box->y + box->height + pills_height(box);
        double left = box->x;
        for (int p = 0; p < box->n_pills; p++)
            left = box->pills[p].x < left ? box->pills[p].x : left;
        low.x = b == 0 || left < low.x ? left : low.x;
        low.y = b == 0 || box->y < low.y ? box->y : low.y;
        high.x = b == 0 ? box->x + box->width : at_least(high.x, box->x + box->width);
        high.y = b == 0 ? bottom : at_least(high.y, bottom);
    }
    const double dx = PICTURE_MARGIN - low.x, dy = top - low.y;
    for (int b = 0; b < picture->n_boxes; b++) {
        struct picture_box *box = &picture->boxes[b];
        box->x += dx;
        box->y += dy;
        for (int p = 0; p < box->n_pills; p++) {
            box->pills[p].x += dx;
            box->pills[p].y += dy;
        }
    }
    for (int e = 0; e < picture->n_edges; e++) {
        for (int i = 0; i < picture->edges[e].n_points; i++) {
            picture->edges[e].points[i].x += dx;
            picture->edges[e].points[i].y += dy;
        }
    }
    picture->width = high.x + dx + PICTURE_MARGIN;
    picture->height = high.y + dy + PICTURE_MARGIN;
}

/* ---------------------------------------------------------------------------------------- */

static void make(struct maker *m)
{
    collect(m);
    const size_t n = (size_t)m->picture->n_boxes;
    m->lane = get(m, n, sizeof *m->lane);
    m->layer = get(m, n, sizeof *m->layer);
    m->partner = get(m, n, sizeof *m->partner);
    m->first_item = get(m, (size_t)m->picture->n_edges, sizeof *m->first_item);
    int *item_of = get(m, n, sizeof *item_of);
    if (m->status != STATUS_OK)
        return;
    pick_lanes(m);
    find_partners(m);
    pick_rows(m);
    pick_columns(m);
    measure(m);
    fill_strips(m, item_of);
    if (m->status == STATUS_OK)
        place(m);
    if (m->status == STATUS_OK)
        route(m);
    if (m->status == STATUS_OK)
        frame(m->picture, PICTURE_TOP);
}

enum status picture_create(const struct graph *graph, struct picture **out)
{
    struct maker maker = { .graph = graph };

    TRY(mem_alloc(1, sizeof *maker.picture, &maker.picture));
    maker.status = arena_create(&maker.picture->arena);
    if (maker.status == STATUS_OK)
        make(&maker);
    if (maker.status != STATUS_OK) {
        picture_destroy(maker.picture);
        return maker.status;
    }
    *out = maker.picture;
    return STATUS_OK;
}

void picture_destroy(struct picture *picture)
{
    if (!picture)
        return;
    arena_destroy(picture->arena);
    mem_free(picture);
}
