/* SPDX-License-Identifier: MIT */
/* route.c - the curves of edges. They leave and reach boxes at right angles. */
#include "graph/picture/maker.h"

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

void maker_route(struct maker *m)
{
    struct picture *picture = m->picture;

    m->in_gap = maker_alloc(m, (size_t)m->n_rows + 2, sizeof *m->in_gap);
    for (int e = 0; e < picture->n_edges && m->status == STATUS_OK; e++) {
        struct picture_edge *edge = &picture->edges[e];
        const enum lane from = m->lane[edge->from], to = m->lane[edge->to];
        int apart = m->layer[edge->to] - m->layer[edge->from];

        apart = apart < 0 ? -apart : apart;
        edge->is_saved = from == LANE_FORWARD && (to == LANE_BACKWARD || to == LANE_WEIGHT);
        edge->points = maker_alloc(m, 6 * ((size_t)apart + 4), sizeof *edge->points);
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
