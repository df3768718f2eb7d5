/* SPDX-License-Identifier: MIT */
/* place.c - coordinates of lines, tracks, boxes and pills. */
#include "graph/picture/maker.h"

enum {
    FOLD_ROWS = 16,    /* bands of fewer rows are not wanted */
    FOLD_WIDTH = 1950, /* bands side by side are no wider */
};

static double larger(double a, double b)
{
    return a > b ? a : b;
}

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
                pills = larger(pills, box->pills[p].width + PILL_GAP);
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

/* In front of the last lane: the tracks of what leads to its first column from top to bottom of
 * the picture. Returns how wide that is. */
static double add_trunks(struct maker *m)
{
    for (int e = 0; e < m->picture->n_edges && m->status == STATUS_OK; e++) {
        const struct picture_edge *edge = &m->picture->edges[e];
        if (m->lane[edge->to] != LANE_STEP || m->lane[edge->from] == LANE_STEP ||
            m->layer[edge->to] > 0)
            continue;
        const int y = (int)m->picture->boxes[edge->to].y;
        const int from = (int)row_y(m->layer[edge->from]), row = (int)row_y(1);
        m->edge_track[e] =
            maker_add_track(m, edge->to, -1, y < from ? y : from, (y > from ? y : from) + row);
    }
    maker_pick_slots(m);
    return larger(LANE_GAP, 3 * TRACK_GAP + maker_slot_count(m, LANE_STEP, -1) * TRACK_PITCH);
}

static void place_trunks(struct maker *m)
{
    for (int t = 0; t < m->n_tracks; t++) {
        if (m->tracks[t].line < 0)
            m->tracks[t].at =
                m->lane_x[LANE_STEP] - TRACK_GAP - m->tracks[t].slot * TRACK_PITCH;
    }
}

/* Places the last lane to the right of what ends at `x`. */
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
        const struct picture_box *box = &m->picture->boxes[b];
        const int line = m->chains[m->chain[b]].line;
        if (m->lane[b] == LANE_STEP)
            heights[line] = larger(heights[line], box->height + pills_height(box));
    }
    place_lines(m, by_line, heights, n);
    for (int line = 0; line < n; line++)
        place_tracks(m, LANE_STEP, line, by_line[line]->at + heights[line]);
    for (int b = 0; b < m->picture->n_boxes; b++) {
        if (m->lane[b] == LANE_STEP)
            m->picture->boxes[b].y = m->chains[m->chain[b]].at;
    }
    x += add_trunks(m);
    for (int b = 0; b < m->picture->n_boxes; b++) {
        if (m->lane[b] == LANE_STEP)
            m->picture->boxes[b].x = x + m->layer[b] * pitch;
    }
    m->lane_x[LANE_STEP] = x;
    place_trunks(m);
}

/* Can the forward lane be cut above `row`? Then one box flows from row to row there. */
static bool is_cut(const struct maker *m, int row)
{
    int only = -1;

    for (int e = 0; e < m->picture->n_edges; e++) {
        const int from = m->picture->edges[e].from;
        if (m->layer[from] >= row || m->layer[m->picture->edges[e].to] < row)
            continue;
        if (m->layer[from] != row - 1 || (only >= 0 && only != from))
            return false;
        only = from;
    }
    return only >= 0;
}

/* The row above which it is best cut, after `begin`; 0: nowhere. */
static int find_cut(const struct maker *m, int begin, int ideal, int reach)
{
    for (int apart = 0; apart <= reach; apart++) {
        if (ideal - apart > begin && is_cut(m, ideal - apart))
            return ideal - apart;
        if (ideal + apart < m->n_rows && is_cut(m, ideal + apart))
            return ideal + apart;
    }
    return 0;
}

/* Cuts the rows into at most `n` bands; returns how wide they are together. */
static double cut_bands(struct maker *m, int n)
{
    m->n_bands = 1;
    for (int k = 1; k < n; k++) {
        const int begin = m->band_row[m->n_bands - 1];
        const int cut = find_cut(m, begin, k * m->n_rows / n, m->n_rows / n / 2);
        if (cut > begin)
            m->band_row[m->n_bands++] = cut;
    }
    for (int row = 0, band = 0; row < m->n_rows; row++) {
        band += band + 1 < m->n_bands && row == m->band_row[band + 1];
        m->band[row] = band;
    }
    for (int band = 0; band < m->n_bands; band++)
        m->band_end[band] = 0;
    for (int b = 0; b < m->picture->n_boxes; b++) {
        double *end = &m->band_end[m->band[m->layer[b]]];
        *end = larger(*end, m->picture->boxes[b].x + m->picture->boxes[b].width);
    }
    for (int t = 0; t < m->n_tracks; t++) {
        double *end = &m->band_end[m->band[m->layer[m->tracks[t].to]]];
        *end = larger(*end, m->tracks[t].at);
    }
    for (int band = 1; band < m->n_bands; band++)
        m->band_end[band] += m->band_end[band - 1] + LANE_GAP;
    return m->band_end[m->n_bands - 1];
}

/* Puts parts of a long forward lane that is alone side by side, as many as a page is wide. */
static void fold(struct maker *m)
{
    int n = (m->n_rows + FOLD_ROWS - 1) / FOLD_ROWS;

    for (n = n > MOST_BANDS ? MOST_BANDS : n; cut_bands(m, n) > FOLD_WIDTH && n > 1;)
        n--;
    for (int b = 0; b < m->picture->n_boxes; b++) {
        m->picture->boxes[b].x += row_x(m, m->layer[b]);
        m->picture->boxes[b].y = row_top(m, m->layer[b]);
    }
    for (int t = 0; t < m->n_tracks; t++)
        m->tracks[t].at += row_x(m, m->layer[m->tracks[t].to]);
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

void maker_place(struct maker *m)
{
    double x = -LANE_GAP;

    for (enum lane lane = LANE_FORWARD; lane <= LANE_WEIGHT; lane++) {
        if (is_used(m, lane))
            x = place_lane(m, lane, x + LANE_GAP);
    }
    if (is_used(m, LANE_STEP))
        place_steps(m, x);
    else if (x == m->lane_width[LANE_FORWARD] && m->n_rows > FOLD_ROWS)
        fold(m);
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
    extent->high.x = larger(extent->high.x, x);
    extent->high.y = larger(extent->high.y, y);
}

void maker_frame(struct picture *picture)
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
    const double dx = PICTURE_MARGIN - all.low.x, dy = PICTURE_TOP - all.low.y;
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
