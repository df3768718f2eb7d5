/* SPDX-License-Identifier: MIT */
/* lines.c - which boxes stand on one line, and where edges pass them.
 *
 *   line 0     line 1      Chains are cut off a lane from the top, each on the longest way down:
 *     a -.                 a b c e, then d. Nothing else stands on a chain's line from where the
 *     |   `----.           nearest edge into it comes from to where the nearest edge out of it
 *     b -.     d           goes, so these are straight there: a -> d -> e.
 *     |  |     |           Others that pass boxes, like b -> f, have a track beside the line they
 *     c  |     |           come from. Edges to one box share theirs.
 *     |  |     |
 *     e <+-----'
 *     |  |
 *     f <'
 */
#include "graph/picture/maker.h"

/* What chains are found with: the lane's graph, from upper layers to lower ones. */
struct search {
    int *height;  /* by box: longest way down */
    int *n_above; /* by box: edges from above */
    int *first;   /* by box: its first edge down, or -1 */
    int *next;    /* by edge: the next edge down of the same box */
};

static bool is_within_lane(const struct maker *m, int e)
{
    const struct picture_edge *edge = &m->picture->edges[e];

    return m->lane[edge->from] == m->lane[edge->to];
}

static int upper_end(const struct maker *m, int e)
{
    const struct picture_edge *edge = &m->picture->edges[e];

    return m->layer[edge->from] < m->layer[edge->to] ? edge->from : edge->to;
}

static int lower_end(const struct maker *m, int e)
{
    const struct picture_edge *edge = &m->picture->edges[e];

    return m->layer[edge->from] < m->layer[edge->to] ? edge->to : edge->from;
}

/* Edges stand in the order of the boxes they lead to: read backwards, what is below a forward
 * box comes before it; read forwards, what is below a backward one. */
static void measure_heights(struct maker *m, struct search *s)
{
    const int n = m->picture->n_edges;

    for (int i = 0; i < 2 * n; i++) {
        const int e = i < n ? n - 1 - i : i - n;
        const bool goes_down = m->picture->edges[e].from == upper_end(m, e);
        if (!is_within_lane(m, e) || goes_down != (i < n))
            continue;
        const int upper = upper_end(m, e), height = s->height[lower_end(m, e)] + 1;
        s->height[upper] = height > s->height[upper] ? height : s->height[upper];
    }
}

static void init_search(struct maker *m, struct search *s)
{
    const size_t n = (size_t)m->picture->n_boxes;

    s->height = maker_alloc(m, n, sizeof *s->height);
    s->n_above = maker_alloc(m, n, sizeof *s->n_above);
    s->first = maker_alloc(m, n, sizeof *s->first);
    s->next = maker_alloc(m, (size_t)m->picture->n_edges, sizeof *s->next);
    if (m->status != STATUS_OK)
        return;
    for (int b = 0; b < m->picture->n_boxes; b++)
        s->first[b] = -1;
    for (int e = m->picture->n_edges - 1; e >= 0; e--) {
        if (!is_within_lane(m, e))
            continue;
        s->n_above[lower_end(m, e)]++;
        s->next[e] = s->first[upper_end(m, e)];
        s->first[upper_end(m, e)] = e;
    }
    measure_heights(m, s);
}

/* The edge on which a chain goes on from `box`: to what has the longest way to go, but not to where
 * many edges meet if that is not the only way. -1: nowhere. */
static int find_heir(const struct maker *m, const struct search *s, int box)
{
    int best = -1;

    for (int e = s->first[box]; e >= 0; e = s->next[e]) {
        const int low = lower_end(m, e);
        const bool is_only = e == s->first[box] && s->next[e] < 0;
        if (m->chain[low] < 0 && (s->n_above[low] <= 2 || is_only) &&
            (best < 0 || s->height[low] > s->height[lower_end(m, best)]))
            best = e;
    }
    return best;
}

/* Gives the chain the line up to the box above its head that is nearest. */
static void reach_up(struct maker *m, struct chain *chain, int head)
{
    int nearest = -1;

    for (int e = 0; e < m->picture->n_edges; e++) {
        if (!is_within_lane(m, e) && m->picture->edges[e].to == head)
            m->edge_chain[e] = m->chain[head]; /* on the line if there are layers to pass */
        if (is_within_lane(m, e) && lower_end(m, e) == head &&
            (nearest < 0 || m->layer[upper_end(m, e)] > m->layer[upper_end(m, nearest)]))
            nearest = e;
    }
    if (nearest < 0)
        return;
    chain->first = m->layer[upper_end(m, nearest)] + 1;
    m->edge_chain[nearest] = m->chain[head];
}

/* And down to the box below its tail. */
static void reach_down(struct maker *m, const struct search *s, struct chain *chain, int tail)
{
    int nearest = -1;

    for (int e = s->first[tail]; e >= 0; e = s->next[e]) {
        if (nearest < 0 || m->layer[lower_end(m, e)] < m->layer[lower_end(m, nearest)])
            nearest = e;
    }
    if (nearest < 0)
        return;
    chain->last = m->layer[lower_end(m, nearest)] - 1;
    m->edge_chain[nearest] = m->chain[tail];
}

static bool is_free(const struct maker *m, const struct chain *chain, int line)
{
    for (int c = 0; c < m->n_chains; c++) {
        const struct chain *other = &m->chains[c];
        if (other->lane == chain->lane && other->line == line && other->first <= chain->last &&
            chain->first <= other->last)
            return false;
    }
    return true;
}

static void add_chain(struct maker *m, const struct search *s, int head)
{
    struct chain chain = { .lane = m->lane[head] };
    int tail = head;

    if (!maker_grow(m, &m->chains, m->n_chains, &m->max_chains, sizeof *m->chains))
        return;
    m->chain[head] = m->n_chains;
    for (int e; (e = find_heir(m, s, tail)) >= 0;) {
        tail = lower_end(m, e);
        m->chain[tail] = m->n_chains;
        m->edge_chain[e] = m->n_chains;
    }
    chain.first = m->layer[head];
    chain.last = m->layer[tail];
    reach_up(m, &chain, head);
    reach_down(m, s, &chain, tail);
    if (!is_row_lane(chain.lane))
        chain.first = 0; /* what comes from other lanes travels on it, too */
    while (!is_free(m, &chain, chain.line))
        chain.line++;
    m->chains[m->n_chains++] = chain;
}

/* A chain of the last lane would like to stand level with what flows into it; if nothing comes from
 * other lanes, with what is before it. Chains stand in the order of their layers. */
static void pull_chains(struct maker *m)
{
    for (int c = 0; c < m->n_chains; c++) {
        struct chain *chain = &m->chains[c];
        double sum = 0, inner = 0;
        int n = 0, n_inner = 0;

        for (int e = 0; chain->lane == LANE_STEP && e < m->picture->n_edges; e++) {
            const struct picture_edge *edge = &m->picture->edges[e];
            if (m->chain[edge->to] != c || m->chain[edge->from] == c)
                continue;
            if (m->lane[edge->from] != LANE_STEP) {
                sum += row_y(m->layer[edge->from]);
                n++;
            } else {
                inner += m->chains[m->chain[edge->from]].pull;
                n_inner++;
            }
        }
        chain->pull = n ? sum / n : n_inner ? inner / n_inner : 0;
        chain->weight = n ? n : 1;
    }
}

/* The lines of the last lane, each of one chain, in the order in which they would like to stand. */
static void order_chains(struct maker *m)
{
    pull_chains(m);
    for (int c = 0; c < m->n_chains; c++) {
        struct chain *chain = &m->chains[c];
        if (chain->lane != LANE_STEP)
            continue;
        chain->line = 0;
        for (int i = 0; i < m->n_chains; i++) {
            const struct chain *other = &m->chains[i];
            chain->line += other->lane == LANE_STEP &&
                           (other->pull < chain->pull || (other->pull == chain->pull && i < c));
        }
    }
}

void maker_pick_lines(struct maker *m)
{
    struct search s = { 0 };

    init_search(m, &s);
    for (int b = 0; b < m->picture->n_boxes; b++)
        m->chain[b] = -1;
    for (int e = 0; e < m->picture->n_edges; e++)
        m->edge_chain[e] = -1;
    for (int left = m->picture->n_boxes; left > 0 && m->status == STATUS_OK;) {
        int head = -1;
        left = 0;
        for (int b = 0; b < m->picture->n_boxes; b++) {
            if (m->chain[b] >= 0)
                continue;
            left++;
            if (head < 0 || m->layer[b] < m->layer[head] ||
                (m->layer[b] == m->layer[head] && s.height[b] > s.height[head]))
                head = b;
        }
        if (left > 0)
            add_chain(m, &s, head);
    }
    if (m->status == STATUS_OK)
        order_chains(m);
}

/* Tracks -------------------------------------------------------------------------------- */

int maker_add_track(struct maker *m, int to, int line, int first, int last)
{
    int t = 0;

    while (t < m->n_tracks && m->tracks[t].to != to)
        t++;
    if (t == m->n_tracks) {
        if (maker_grow(m, &m->tracks, t, &m->max_tracks, sizeof *m->tracks))
            m->tracks[m->n_tracks++] = (struct track){ to, line, first, last, -1, 0 };
        return t;
    }
    struct track *track = &m->tracks[t];
    track->line = line < track->line ? line : track->line;
    track->first = first < track->first ? first : track->first;
    track->last = last > track->last ? last : track->last;
    return t;
}

static int find_track(struct maker *m, int e)
{
    const struct picture_edge *edge = &m->picture->edges[e];

    if (is_within_lane(m, e))
        return maker_add_track(m, edge->to, m->chains[m->chain[edge->from]].line,
                               2 * m->layer[upper_end(m, e)] + 1,
                               2 * m->layer[lower_end(m, e)]);
    return maker_add_track(m, edge->to, m->chains[m->chain[edge->to]].line, 0,
                           2 * m->layer[edge->to]);
}

/* Does the edge pass boxes of a lane elsewhere than on a chain's line? */
static bool needs_track(const struct maker *m, int e)
{
    const struct picture_edge *edge = &m->picture->edges[e];

    if (is_within_lane(m, e))
        return m->edge_chain[e] < 0 &&
               m->layer[lower_end(m, e)] - m->layer[upper_end(m, e)] > 1;
    return m->lane[edge->to] == LANE_STEP && m->layer[edge->to] > 0 && m->edge_chain[e] < 0;
}

/* The innermost slot that is free all the way. */
static int pick_slot(const struct maker *m, const struct track *track)
{
    for (int slot = 0;; slot++) {
        bool is_taken = false;
        for (int t = 0; t < m->n_tracks && !is_taken; t++) {
            const struct track *other = &m->tracks[t];
            is_taken = other->slot == slot && other->line == track->line &&
                       m->lane[other->to] == m->lane[track->to] &&
                       other->first <= track->last && track->first <= other->last;
        }
        if (!is_taken)
            return slot;
    }
}

void maker_pick_slots(struct maker *m)
{
    while (m->status == STATUS_OK) {
        struct track *shortest = NULL;
        for (int t = 0; t < m->n_tracks; t++) {
            struct track *track = &m->tracks[t];
            if (track->slot < 0 &&
                (!shortest || track->last - track->first < shortest->last - shortest->first))
                shortest = track;
        }
        if (!shortest)
            return;
        shortest->slot = pick_slot(m, shortest);
    }
}

void maker_pick_tracks(struct maker *m)
{
    for (int e = 0; e < m->picture->n_edges && m->status == STATUS_OK; e++)
        m->edge_track[e] = needs_track(m, e) ? find_track(m, e) : -1;
    maker_pick_slots(m);
}

int maker_slot_count(const struct maker *m, enum lane lane, int line)
{
    int count = 0;

    for (int t = 0; t < m->n_tracks; t++) {
        const struct track *track = &m->tracks[t];
        if (m->lane[track->to] == lane && track->line == line && track->slot >= count)
            count = track->slot + 1;
    }
    return count;
}
