/* SPDX-License-Identifier: MIT */
/* maker.h - a picture while it is made. Private to graph/picture/.
 *
 * Memory comes from the picture's arena; the first refusal is kept in `status`, after which
 * nothing is done any more.
 */
#ifndef GRAPH_PICTURE_MAKER_H
#define GRAPH_PICTURE_MAKER_H

#include "graph/picture/picture.h"

enum {
    ROW_GAP = 36,
    LANE_GAP = 56,   /* between lanes; edges from lane to lane turn there */
    COLUMN_GAP = 44, /* between columns of reduce and update */
    LINE_GAP = 26,   /* between lines */
    TRACK_GAP = 14,  /* between boxes and the first track, and after the last */
    TRACK_PITCH = 10,
    PILL_GAP = 12,
    MOST_BANDS = 8,
};

enum lane { LANE_FORWARD, LANE_BACKWARD, LANE_WEIGHT, LANE_STEP, LANE_COUNT };

/* Boxes one after the other that stand on one line: a column of a lane of rows, a row of the last
 * lane. The line is theirs from layer `first` to `last`; edges at their ends may travel on it. */
struct chain {
    enum lane lane;
    int first, last, line;
    double at;           /* last lane: its height */
    double pull, weight; /* last lane: where what flows into it would like it */
};

/* Where edges to one box pass others: after the boxes of a line, or (line -1) before the last lane.
 * It reaches from `first` to `last`: layers, counted twice, and one more behind the middle of its
 * boxes; before the last lane y. */
struct track {
    int to; /* box */
    int line, first, last;
    int slot; /* from the boxes outwards; -1: not decided */
    double at;
};

struct maker {
    const struct graph *graph;
    struct picture *picture;
    enum status status;
    int *box_of_id;  /* by node id */
    enum lane *lane; /* these by box */
    int *layer;      /* row; column in the last lane */
    int *partner;    /* forward box of a backward one, or -1 */
    int *chain;      /* number in `chains` */
    int *edge_chain; /* by edge: on whose line it passes layers of its last lane, or -1 */
    int *edge_track; /* by edge: on which track it does so, or -1 */
    struct chain *chains;
    int n_chains, max_chains;
    struct track *tracks;
    int n_tracks, max_tracks;
    int n_rows;
    int *band; /* by row: a forward lane that is alone and long goes on beside itself */
    int band_row[MOST_BANDS];    /* first rows */
    double band_end[MOST_BANDS]; /* right ends */
    int n_bands;
    double lane_x[LANE_COUNT], lane_width[LANE_COUNT]; /* width 0: nothing there */
    double box_width[LANE_COUNT];
    int max_edges;
    int to; /* the box whose edges are collected */
};

/* Zeroed; NULL if refused. */
void *maker_alloc(struct maker *m, size_t count, size_t size);
/* Makes room for one more in a list (a pointer to a pointer); false if refused. */
bool maker_grow(struct maker *m, void *list, int count, int *max, size_t size);

/* rows.c: decides lanes, and rows or columns. */
void maker_pick_lanes(struct maker *m);
void maker_pick_rows(struct maker *m);
void maker_pick_columns(struct maker *m);

/* lines.c: decides chains, their lines, and tracks. */
void maker_pick_lines(struct maker *m);
void maker_pick_tracks(struct maker *m);
/* The track to a box, longer than it was or new; returns its number. */
int maker_add_track(struct maker *m, int to, int line, int first, int last);
/* Gives tracks that have none a slot: short ones first, so that long ones go round them. */
void maker_pick_slots(struct maker *m);
/* How many tracks pass after the line of a lane. */
int maker_slot_count(const struct maker *m, enum lane lane, int line);

/* place.c: gives everything but edges its place; at the end, measures the whole and moves it to where
 * the picture begins. */
void maker_place(struct maker *m);
void maker_frame(struct picture *picture);

/* route.c: draws the edges between boxes that have their places. */
void maker_route(struct maker *m);

static inline bool is_row_lane(enum lane lane)
{
    return lane != LANE_STEP;
}

static inline double row_y(int row)
{
    return row * (double)(PICTURE_BOX_HEIGHT + ROW_GAP);
}

/* The same within the row's band. */
static inline double row_top(const struct maker *m, int row)
{
    return row_y(row - m->band_row[m->band[row]]);
}

/* Where the row's band begins. */
static inline double row_x(const struct maker *m, int row)
{
    return m->band[row] ? m->band_end[m->band[row] - 1] + LANE_GAP : 0;
}

static inline double middle_x(const struct picture_box *box)
{
    return box->x + box->width / 2;
}

static inline double middle_y(const struct picture_box *box)
{
    return box->y + box->height / 2;
}

/* Room that pills take below a box of the last lane. */
static inline double pills_height(const struct picture_box *box)
{
    return box->n_pills ? box->n_pills * (PICTURE_PILL_HEIGHT + 3) + 3 : 0;
}

#endif /* GRAPH_PICTURE_MAKER_H */
