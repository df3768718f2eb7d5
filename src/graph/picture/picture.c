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
    m->band = maker_alloc(m, (size_t)m->n_rows, sizeof *m->band);
    maker_pick_lines(m);
    maker_pick_tracks(m);
    measure(m);
    if (m->status == STATUS_OK)
        maker_place(m);
    if (m->status == STATUS_OK)
        maker_route(m);
    if (m->status == STATUS_OK)
        maker_frame(m->picture);
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
