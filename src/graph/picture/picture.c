/* SPDX-License-Identifier: MIT */
/* picture.c - boxes, pills and edges of a graph, and where they go. */
#include "graph/picture/picture.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "graph/op.h"
#include "graph/picture/maker.h"
#include "graph/print.h"

void *maker_alloc(struct maker *m, size_t count, size_t size)
{
    void *block = arena_alloc(m->picture->arena, count + 1, size);

    if (!block)
        m->status = STATUS_NO_MEMORY;
    return block;
}

bool maker_grow(struct maker *m, void *list, int count, int *max, size_t size)
{
    if (count < *max)
        return true;
    const int more = *max ? *max * 2 : 64;
    void *old, *block = maker_alloc(m, (size_t)more, size);
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
    if (!maker_grow(m, &picture->edges, picture->n_edges, &m->max_edges,
                    sizeof *picture->edges))
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
    picture->boxes = maker_alloc(m, (size_t)picture->n_boxes, sizeof *picture->boxes);
    m->box_of_id = maker_alloc(m, (size_t)most + 1, sizeof *m->box_of_id);
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
        double *width = &m->box_width[m->lane[b]];
        char shape[SHAPE_TEXT];

        *width = at_least(*width, 110);
        *width = at_least(*width, text_width(box->node->op->name, PICTURE_TEXT_MAX, 14) + 24);
        *width = at_least(*width, text_width(box->node->name, PICTURE_TEXT_MAX, 11) + 24);
        *width = at_least(*width, text_width(shape_print(&box->node->out[0]->shape, shape),
                                             PICTURE_TEXT_MAX, 11) +
                                      24);
        for (int p = 0; p < box->n_pills; p++) {
            box->pills[p].width =
                text_width(box->pills[p].value->name, PICTURE_PILL_TEXT_MAX, 10) + 14;
        }
    }
    for (int b = 0; b < picture->n_boxes; b++) {
        picture->boxes[b].width = m->box_width[m->lane[b]];
        picture->boxes[b].height = PICTURE_BOX_HEIGHT;
    }
}

/* Coordinates --------------------------------------------------------------------------- */

/* Room for tracks and space after the boxes of a line. */
static double gap_after(const struct maker *m, enum lane lane, int line)
{
    const int n = maker_slot_count(m, lane, line);

    return n ? 2 * TRACK_GAP + (n - 1) * TRACK_PITCH : LINE_GAP;
}

/* `end` is where the boxes of the line do. */
static void place_tracks(struct maker *m, enum lane lane, int line, double end)
{
    for (int t = 0; t < m->n_tracks; t++) {
        struct track *track = &m->tracks[t];
        if (m->lane[track->to] == lane && track->line == line)
            track->at = end + TRACK_GAP + track->slot * TRACK_PITCH;
    }
}

/* Puts a lane that goes by rows to the right of `x`, line after line; returns its right end. */
static double place_lane(struct maker *m, enum lane lane, double x)
{
    struct picture *picture = m->picture;

    m->lane_x[lane] = x;
    for (int line = 0, left = 1; left > 0; line++) {
        double pills = 0;
        left = 0;
        for (int b = 0; b < picture->n_boxes; b++) {
            const struct picture_box *box = &picture->boxes[b];
            left += m->lane[b] == lane && m->chains[m->chain[b]].line > line;
            if (m->lane[b] != lane || m->chains[m->chain[b]].line != line)
                continue;
            for (int p = 0; p < box->n_pills; p++)
                pills = at_least(pills, box->pills[p].width + PILL_GAP);
        }
        for (int b = 0; b < picture->n_boxes; b++) {
            if (m->lane[b] != lane || m->chains[m->chain[b]].line != line)
                continue;
            picture->boxes[b].x = x + pills;
            picture->boxes[b].y = row_y(m->layer[b]);
        }
        x += pills + m->box_width[lane];
        place_tracks(m, lane, line, x);
        if (left > 0 || maker_slot_count(m, lane, line) > 0)
            x += gap_after(m, lane, line);
    }
    m->lane_width[lane] = x - m->lane_x[lane];
    return x;
}

/* Chains in a row that must be placed side by side. */
struct pool {
    double at, share;
    int count;
};

/* Places the lines of the last lane as near to where they would like to be as their order and sizes
 * allow. With the least distances taken off, that is isotonic regression: neighbours in the wrong
 * order are pooled. `by_line` holds the chains, `heights` what their boxes need. */
static void place_lines(struct maker *m, struct chain **by_line, const double *heights, int n)
{
    struct pool *pools = maker_alloc(m, (size_t)n, sizeof *pools);
    double offset = 0;
    int n_pools = 0;

    for (int line = 0; pools && line < n; line++) {
        struct chain *chain = by_line[line];
        chain->at = offset;
        pools[n_pools++] = (struct pool){ chain->pull - offset, chain->weight, 1 };
        offset += heights[line] + gap_after(m, LANE_STEP, line);
        for (; n_pools > 1 && pools[n_pools - 2].at > pools[n_pools - 1].at; n_pools--) {
            struct pool *upper = &pools[n_pools - 2];
            const struct pool lower = pools[n_pools - 1];
            upper->at = (upper->at * upper->share + lower.at * lower.share) /
                        (upper->share + lower.share);
            upper->share += lower.share;
            upper->count += lower.count;
        }
    }
    for (int line = 0, p = 0; p < n_pools; p++) {
        for (int k = 0; k < pools[p].count; k++, line++)
            by_line[line]->at += pools[p].at;
    }
}

/* Places the last lane to the right of `x`. */
static void place_steps(struct maker *m, double x)
{
    const double pitch = m->box_width[LANE_STEP] + COLUMN_GAP;
    struct chain **by_line = maker_alloc(m, (size_t)m->n_chains, sizeof *by_line);
    double *heights = maker_alloc(m, (size_t)m->n_chains, sizeof *heights);
    int n = 0;

    if (m->status != STATUS_OK)
        return;
    for (int c = 0; c < m->n_chains; c++) {
        if (m->chains[c].lane == LANE_STEP) {
            by_line[m->chains[c].line] = &m->chains[c];
            n++;
        }
    }
    for (int b = 0; b < m->picture->n_boxes; b++) {
        struct picture_box *box = &m->picture->boxes[b];
        const int line = m->chains[m->chain[b]].line;
        if (m->lane[b] == LANE_STEP)
            heights[line] = at_least(heights[line], box->height + pills_height(box));
    }
    place_lines(m, by_line, heights, n);
    for (int line = 0; line < n; line++)
        place_tracks(m, LANE_STEP, line, by_line[line]->at + heights[line]);
    m->lane_x[LANE_STEP] = x;
    for (int b = 0; b < m->picture->n_boxes; b++) {
        struct picture_box *box = &m->picture->boxes[b];
        if (m->lane[b] != LANE_STEP)
            continue;
        box->x = x + m->layer[b] * pitch;
        box->y = m->chains[m->chain[b]].at;
        m->lane_width[LANE_STEP] = at_least(m->lane_width[LANE_STEP], box->x + box->width - x);
    }
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

static bool is_used(const struct maker *m, enum lane lane)
{
    for (int c = 0; c < m->n_chains; c++) {
        if (m->chains[c].lane == lane)
            return true;
    }
    return false;
}

static void place(struct maker *m)
{
    double x = 0;

    for (enum lane lane = LANE_FORWARD; lane <= LANE_WEIGHT; lane++) {
        if (is_used(m, lane))
            x = place_lane(m, lane, x) + LANE_GAP;
    }
    if (is_used(m, LANE_STEP))
        place_steps(m, x);
    if (m->status == STATUS_OK)
        place_pills(m);
}

struct extent {
    struct picture_point low, high;
    bool is_empty;
};

static void include(struct extent *extent, double x, double y)
{
    if (extent->is_empty) {
        *extent = (struct extent){ { x, y }, { x, y }, false };
        return;
    }
    extent->low.x = x < extent->low.x ? x : extent->low.x;
    extent->low.y = y < extent->low.y ? y : extent->low.y;
    extent->high.x = at_least(extent->high.x, x);
    extent->high.y = at_least(extent->high.y, y);
}

/* Moves everything so that it begins at the margin below `top`, and measures the whole. */
static void frame(struct picture *picture, double top)
{
    struct extent all = { .is_empty = true };

    for (int b = 0; b < picture->n_boxes; b++) {
        const struct picture_box *box = &picture->boxes[b];
        include(&all, box->x, box->y);
        include(&all, box->x + box->width, box->y + box->height + pills_height(box));
        for (int p = 0; p < box->n_pills; p++)
            include(&all, box->pills[p].x, box->pills[p].y);
    }
    for (int e = 0; e < picture->n_edges; e++) {
        for (int i = 0; i < picture->edges[e].n_points; i++)
            include(&all, picture->edges[e].points[i].x, picture->edges[e].points[i].y);
    }
    const double dx = PICTURE_MARGIN - all.low.x, dy = top - all.low.y;
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
    picture->width = all.high.x + dx + PICTURE_MARGIN;
    picture->height = all.high.y + dy + PICTURE_MARGIN;
}

/* ---------------------------------------------------------------------------------------- */

static void make(struct maker *m)
{
    collect(m);
    const size_t n = (size_t)m->picture->n_boxes;
    m->lane = maker_alloc(m, n, sizeof *m->lane);
    m->layer = maker_alloc(m, n, sizeof *m->layer);
    m->partner = maker_alloc(m, n, sizeof *m->partner);
    m->chain = maker_alloc(m, n, sizeof *m->chain);
    m->edge_chain = maker_alloc(m, (size_t)m->picture->n_edges, sizeof *m->edge_chain);
    m->edge_track = maker_alloc(m, (size_t)m->picture->n_edges, sizeof *m->edge_track);
    if (m->status != STATUS_OK)
        return;
    maker_pick_lanes(m);
    maker_pick_rows(m);
    maker_pick_columns(m);
    maker_pick_lines(m);
    maker_pick_tracks(m);
    measure(m);
    if (m->status == STATUS_OK)
        place(m);
    if (m->status == STATUS_OK)
        maker_route(m);
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
