/* SPDX-License-Identifier: MIT */
/* route.c - the curves of edges.
 *
 * Edges turn only where no box stands: between two layers, between two lanes, and on tracks. All
 * else of them is straight. They leave and reach boxes at right angles.
 */
#include <math.h>

#include "graph/picture/maker.h"

enum { CORNER = 10, MOST_POINTS = 48 };

/* Draws one edge. Within a lane, `along` goes from layer to layer and `across` from line to line:
 * y and x in lanes of rows, x and y in the last one. */
struct pen {
    struct picture_edge *edge;
    bool is_sideways; /* along is x */
    double along, across;
};

static void add_point(struct pen *pen, double along, double across)
{
    BUG_ON(pen->edge->n_points == MOST_POINTS);
    pen->along = along;
    pen->across = across;
    pen->edge->points[pen->edge->n_points++] = pen->is_sideways
                                                   ? (struct picture_point){ along, across }
                                                   : (struct picture_point){ across, along };
}

/* From where the pen is, leaving and arriving along. */
static void curve_to(struct pen *pen, double along, double across)
{
    const double from = pen->across, middle = (pen->along + along) / 2;

    if (along == pen->along && across == pen->across)
        return;
    add_point(pen, middle, from);
    add_point(pen, middle, across);
    add_point(pen, along, across);
}

static void line_to(struct pen *pen, double along, double across)
{
    const double a = pen->along, b = pen->across;

    if (along == a && across == b)
        return;
    add_point(pen, a + (along - a) / 3, b + (across - b) / 3);
    add_point(pen, along - (along - a) / 3, across - (across - b) / 3);
    add_point(pen, along, across);
}

/* A quarter of an ellipse, more or less; arrives along or across. */
static void turn_to(struct pen *pen, double along, double across, bool arrives_along)
{
    const double corner_along = arrives_along ? pen->along : along;
    const double corner_across = arrives_along ? across : pen->across;

    add_point(pen, (pen->along + corner_along) / 2, (pen->across + corner_across) / 2);
    add_point(pen, (along + corner_along) / 2, (across + corner_across) / 2);
    add_point(pen, along, across);
}

/* The height of one of three ways through the gap above or below a row; the same for all edges that
 * are there on behalf of one box. */
static double gap_y(const struct maker *m, int row, bool above, int box)
{
    const double middle = above ? row_top(m, row) - ROW_GAP / 2.0
                                : row_top(m, row) + PICTURE_BOX_HEIGHT + ROW_GAP / 2.0;

    return middle + (box % 3 - 1) * 6.0;
}

/* Within a lane ------------------------------------------------------------------------- */

/* A box as its lane sees it. */
struct place {
    double begin, end;  /* along */
    double middle, out; /* across: of its middle, and of its side where tracks are */
};

static struct place place_of(const struct maker *m, int b)
{
    const struct picture_box *box = &m->picture->boxes[b];

    if (is_row_lane(m->lane[b]))
        return (struct place){ box->y, box->y + box->height, middle_x(box),
                               box->x + box->width };
    return (struct place){ box->x, box->x + box->width, middle_y(box), box->y + box->height };
}

/* Tracks of the line a box stands on begin at its side, unless pills are there. */
static bool is_beside(const struct maker *m, int b, const struct track *track)
{
    return is_row_lane(m->lane[b]) && m->chains[m->chain[b]].line == track->line;
}

/* Where the edge passes layers: on its track or its line. */
static double passing_at(const struct maker *m, int e)
{
    const struct picture_edge *edge = &m->picture->edges[e];

    if (m->edge_track[e] >= 0)
        return m->tracks[m->edge_track[e]].at;
    if (m->chain[edge->to] == m->edge_chain[e])
        return place_of(m, edge->to).middle;
    return place_of(m, edge->from).middle;
}

/* Through the gap between two layers, with corners at `turn`. */
static void cross_gap(struct pen *pen, double turn, double along, double across)
{
    const double side = across > pen->across ? CORNER : -CORNER;

    turn_to(pen, turn, pen->across + side, false);
    line_to(pen, turn, across - side);
    turn_to(pen, along, across, true);
}

/* Do many edges of the lane meet at the box? */
static bool is_hub(const struct maker *m, int b)
{
    int count = 0;

    for (int e = 0; e < m->picture->n_edges; e++) {
        const struct picture_edge *edge = &m->picture->edges[e];
        count += m->lane[edge->from] == m->lane[edge->to] && (edge->from == b || edge->to == b);
    }
    return count > 4;
}

/* To the next layer, which is at `along`: a curve, or with corners if it is far and lines would be
 * too flat to be told apart. `row` is on the gap's upper side, `box` at one end of it. */
static void go_to_layer(const struct maker *m, struct pen *pen, int row, double along,
                        double across, int box)
{
    const bool is_far = fabs(across - pen->across) >= 4 * CORNER;

    if (is_far && !pen->is_sideways)
        cross_gap(pen, gap_y(m, row, false, box) + 3, along,
                  across); /* not on a way to other lanes */
    else if (is_far && (is_hub(m, pen->edge->from) || is_hub(m, pen->edge->to)))
        cross_gap(pen, (pen->along + along) / 2, along, across);
    else
        curve_to(pen, along, across);
}

/* Ends at the box which the pen is before, on a track or a line. */
static void arrive(struct maker *m, struct pen *pen, int e, double direction)
{
    const int to = m->picture->edges[e].to;
    const struct place place = place_of(m, to);
    const double gap = is_row_lane(m->lane[to]) ? ROW_GAP : COLUMN_GAP;

    if (m->edge_track[e] >= 0 && is_beside(m, to, &m->tracks[m->edge_track[e]])) {
        const double at =
            (place.begin + place.end) / 2 - direction * (place.end - place.begin) / 4;
        line_to(pen, at - direction * CORNER, pen->across);
        turn_to(pen, at, pen->across - CORNER, false);
        line_to(pen, at, place.out);
        return;
    }
    const double end = direction > 0 ? place.begin : place.end;
    line_to(pen, end - direction * gap, pen->across);
    go_to_layer(m, pen, m->layer[to] - (direction > 0), end, place.middle, to);
}

/* From the end of a band, up beside it, to the begin of the next one. */
static void route_to_next_band(struct maker *m, int e)
{
    struct picture_edge *edge = &m->picture->edges[e];
    struct pen pen = { .edge = edge };
    const struct place from = place_of(m, edge->from), to = place_of(m, edge->to);
    const int row = m->layer[edge->from];
    const bool is_first = m->layer[edge->to] == row + 1;
    const double x = m->band_end[m->band[row]] + LANE_GAP / 2.0;
    double at = is_first ? to.middle : passing_at(m, e);

    if (!is_first && m->edge_track[e] < 0 && m->chain[edge->to] != m->edge_chain[e])
        at += row_x(m, row + 1) - row_x(m, row); /* on the line of the box it comes from */
    add_point(&pen, from.end, from.middle);
    turn_to(&pen, from.end + ROW_GAP / 2.0, from.middle + CORNER, false);
    line_to(&pen, pen.along, x - CORNER);
    turn_to(&pen, pen.along - CORNER, x, true);
    line_to(&pen, CORNER - ROW_GAP / 2.0, x);
    turn_to(&pen, -ROW_GAP / 2.0, x + CORNER, false);
    line_to(&pen, pen.along, at - CORNER);
    turn_to(&pen, 0, at, true);
    if (!is_first)
        arrive(m, &pen, e, 1);
}

static void route_within(struct maker *m, int e)
{
    struct picture_edge *edge = &m->picture->edges[e];
    struct pen pen = { .edge = edge, .is_sideways = !is_row_lane(m->lane[edge->from]) };
    const struct place from = place_of(m, edge->from), to = place_of(m, edge->to);
    const double gap = pen.is_sideways ? COLUMN_GAP : ROW_GAP;
    const int apart = m->layer[edge->to] - m->layer[edge->from];
    const double direction = apart > 0 ? 1 : -1;
    const int row = m->layer[edge->from] - (direction < 0);
    const double start = direction > 0 ? from.end : from.begin, at = passing_at(m, e);

    if (apart * direction == 1) {
        add_point(&pen, start, from.middle);
        go_to_layer(m, &pen, row, direction > 0 ? to.begin : to.end, to.middle, edge->to);
        return;
    }
    if (m->edge_track[e] >= 0 && is_beside(m, edge->from, &m->tracks[m->edge_track[e]])) {
        const double out =
            (from.begin + from.end) / 2 + direction * (from.end - from.begin) / 4;
        add_point(&pen, out, from.out);
        line_to(&pen, out, at - CORNER);
        turn_to(&pen, out + direction * CORNER, at, true);
    } else {
        add_point(&pen, start, from.middle);
        go_to_layer(m, &pen, row, start + direction * gap, at, edge->from);
    }
    arrive(m, &pen, e, direction);
}

/* From lane to lane --------------------------------------------------------------------- */

/* Is there a box on the same row of the lane, to the left or to the right? */
static bool has_neighbour(const struct maker *m, int b, bool right)
{
    const int line = m->chains[m->chain[b]].line;

    for (int o = 0; o < m->picture->n_boxes; o++) {
        const int other = m->chains[m->chain[o]].line;
        if (m->lane[o] == m->lane[b] && m->layer[o] == m->layer[b] &&
            (right ? other > line : other < line))
            return true;
    }
    return false;
}

/* To the right end of the lane: from the box's side, or below its neighbours. */
static void leave_lane(struct maker *m, struct pen *pen, int b)
{
    const struct picture_box *box = &m->picture->boxes[b];
    const double end = m->lane_x[m->lane[b]] + m->lane_width[m->lane[b]];

    if (!has_neighbour(m, b, true)) {
        add_point(pen, box->x + box->width, middle_y(box));
    } else {
        const double x = box->x + box->width - 2 * CORNER, y = gap_y(m, m->layer[b], false, b);
        add_point(pen, x, box->y + box->height);
        turn_to(pen, x + CORNER, y, true);
    }
    line_to(pen, end, pen->across);
}

/* From the gap left of a lane of rows into a box: from the left past its pills, or from above. */
static void enter_lane(struct maker *m, struct pen *pen, int b)
{
    const struct picture_box *box = &m->picture->boxes[b];
    const double x = m->lane_x[m->lane[b]];
    double y = middle_y(box);

    if (has_neighbour(m, b, false) || box->n_pills > 2) {
        y = gap_y(m, m->layer[b], m->layer[b] > 0, b);
        curve_to(pen, x, y);
        line_to(pen, box->x + CORNER, y);
        turn_to(pen, box->x + 2 * CORNER, y < box->y ? box->y : box->y + box->height, false);
        return;
    }
    if (box->n_pills > 0)
        y = pen->across > box->y + 1 ? box->y + box->height - 6 : box->y + 6;
    curve_to(pen, x, y);
    line_to(pen, box->x, y);
}

/* Into the last lane: along a trunk to its first column, on a line or a track to others. */
static void enter_steps(struct maker *m, struct pen *pen, int e)
{
    const int to = m->picture->edges[e].to;
    const struct track *track = m->edge_track[e] >= 0 ? &m->tracks[m->edge_track[e]] : NULL;
    const double y = middle_y(&m->picture->boxes[to]);

    if (track && track->line >= 0) {
        curve_to(pen, m->lane_x[LANE_STEP], track->at);
        arrive(m, pen, e, 1);
        return;
    }
    if (track && fabs(y - pen->across) > 2 * CORNER) {
        const double step = y > pen->across ? CORNER : -CORNER;
        line_to(pen, track->at - CORNER, pen->across);
        turn_to(pen, track->at, pen->across + step, false);
        line_to(pen, track->at, y - step);
        turn_to(pen, track->at + CORNER, y, true);
    } else {
        curve_to(pen, m->lane_x[LANE_STEP], y);
    }
    line_to(pen, m->picture->boxes[to].x, y);
}

/* From left to right; lanes in between are crossed in the gap between two rows: above the row
 * it leads to, or below the one it comes from. */
static void route_across(struct maker *m, int e)
{
    struct picture_edge *edge = &m->picture->edges[e];
    struct pen pen = { .edge = edge, .is_sideways = true };
    const enum lane last = m->lane[edge->to];
    enum lane next = m->lane[edge->from] + 1, before = last - 1;

    leave_lane(m, &pen, edge->from);
    while (next < last && m->lane_width[next] == 0)
        next++;
    while (before > next && m->lane_width[before] == 0)
        before--;
    if (next < last) {
        const double y = last == LANE_STEP
                             ? gap_y(m, m->layer[edge->from], false, edge->from)
                             : gap_y(m, m->layer[edge->to], m->layer[edge->to] > 0, edge->from);
        curve_to(&pen, m->lane_x[next], y);
        line_to(&pen, m->lane_x[before] + m->lane_width[before], y);
    }
    if (last == LANE_STEP)
        enter_steps(m, &pen, e);
    else
        enter_lane(m, &pen, edge->to);
}

void maker_route(struct maker *m)
{
    struct picture *picture = m->picture;

    for (int e = 0; e < picture->n_edges && m->status == STATUS_OK; e++) {
        struct picture_edge *edge = &picture->edges[e];
        const enum lane from = m->lane[edge->from], to = m->lane[edge->to];

        edge->is_saved = from == LANE_FORWARD && (to == LANE_BACKWARD || to == LANE_WEIGHT);
        edge->points = maker_alloc(m, MOST_POINTS, sizeof *edge->points);
        if (!edge->points)
            return;
        if (from == to && is_row_lane(to) &&
            m->band[m->layer[edge->from]] != m->band[m->layer[edge->to]])
            route_to_next_band(m, e);
        else if (from == to)
            route_within(m, e);
        else
            route_across(m, e);
    }
}
