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
    PILL_GAP = 12,
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

/* Zeroed; NULL if refused. */
void *maker_alloc(struct maker *m, size_t count, size_t size);
/* Makes room for one more in a list (a pointer to a pointer); false if refused. */
bool maker_grow(struct maker *m, void *list, int count, int *max, size_t size);

/* rows.c: decides lanes, rows and columns. */
void maker_pick_lanes(struct maker *m);
void maker_pick_rows(struct maker *m);
void maker_pick_columns(struct maker *m);

/* strip.c: fills the strips of all lanes; decides order and places of one. */
void maker_fill_strips(struct maker *m);
void maker_arrange(struct maker *m, struct strip *strip);

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
