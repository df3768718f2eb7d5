/* SPDX-License-Identifier: MIT */
/* strip.c - order and places of what stands in one lane, by Sugiyama's method.
 *
 * An edge that passes layers gets a thin item on each of them. Items of a layer are ordered by the
 * mean of their neighbours, over and over, and placed as near to that mean as the order
 * and their sizes allow.
 */
#include "graph/picture/maker.h"

enum {
    ITEM_GAP = 26,
    PASSING = 5, /* half the width of an edge that passes */
    SWEEPS = 12,
    STRAIGHTEN = 40, /* how far an item may move to stand right below another */
};

/* Strips -------------------------------------------------------------------------------- */

static int add_item(struct maker *m, struct strip *strip, struct item item)
{
    if (!maker_grow(m, &strip->items, strip->n_items, &strip->max_items, sizeof *strip->items))
        return 0;
    if (item.layer >= strip->n_layers)
        strip->n_layers = item.layer + 1;
    item.order = strip->n_items;
    strip->items[strip->n_items] = item;
    return strip->n_items++;
}

static void add_link(struct maker *m, struct strip *strip, int upper, int lower)
{
    if (maker_grow(m, &strip->links, strip->n_links, &strip->max_links, sizeof *strip->links))
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
void maker_fill_strips(struct maker *m)
{
    int *item_of = maker_alloc(m, (size_t)m->picture->n_boxes, sizeof *item_of);
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
    int *used = maker_alloc(m, n, sizeof *used);

    strip->sorted = maker_alloc(m, n, sizeof *strip->sorted);
    strip->begin = maker_alloc(m, (size_t)strip->n_layers + 1, sizeof *strip->begin);
    strip->near = maker_alloc(m, 2 * (size_t)strip->n_links, sizeof *strip->near);
    strip->near_begin = maker_alloc(m, n + 1, sizeof *strip->near_begin);
    strip->goal = maker_alloc(m, n, sizeof *strip->goal);
    strip->share = maker_alloc(m, n, sizeof *strip->share);
    strip->pools = maker_alloc(m, n, sizeof *strip->pools);
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

/* Chains that are nearly straight become straight: an item with one upper neighbour moves below
 * it if that is near. */
static void straighten(struct strip *strip, int layer)
{
    for (int i = strip->begin[layer]; i < strip->begin[layer + 1]; i++) {
        const int number = strip->sorted[i];
        const struct item *item = &strip->items[number], *upper = NULL;
        int count = 0;

        for (int k = strip->near_begin[number]; k < strip->near_begin[number + 1]; k++) {
            const struct item *near = &strip->items[strip->near[k]];
            if (near->layer < layer) {
                upper = near;
                count++;
            }
        }
        const double apart = upper ? upper->at - item->at : 0;
        const bool snaps = count == 1 && apart < STRAIGHTEN && apart > -STRAIGHTEN;
        strip->goal[i] = snaps ? upper->at : item->at;
        strip->share[i] = snaps ? 10 : 1;
    }
    place_layer(strip, layer);
}

void maker_arrange(struct maker *m, struct strip *strip)
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
    for (int layer = 1; layer < strip->n_layers; layer++)
        straighten(strip, layer);
}
