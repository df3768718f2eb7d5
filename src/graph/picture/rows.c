/* SPDX-License-Identifier: MIT */
/* rows.c - which lane, and which row of it, each node stands on.
 *
 * Rows are longest paths over "stands above": a forward node above its users, a backward node above
 * the one it gets its gradient from, no backward node above its forward node, and nothing that
 * follows a forward node above its backward ones. So a backward node is level with its forward
 * node wherever that can be.
 */
#include <string.h>

#include "graph/op.h"
#include "graph/picture/maker.h"

static enum phase phase_of(const struct maker *m, int box)
{
    return m->picture->boxes[box].node->phase;
}

/* A backward node is in the lane of weights unless another one goes on with what it makes; what sums
 * and updates continues the forward lane if nothing else flows into it. */
void maker_pick_lanes(struct maker *m)
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
    /* Unless it meets there with what comes back. Users stand after their makers. */
    for (int e = picture->n_edges - 1; e >= 0; e--) {
        const int from = picture->edges[e].from;
        if (m->lane[picture->edges[e].to] == LANE_STEP && m->lane[from] == LANE_FORWARD &&
            phase_of(m, from) != PHASE_FORWARD)
            m->lane[from] = LANE_STEP;
    }
    /* And nothing flows to the left: what does stands in the lane of its user. */
    for (int e = picture->n_edges - 1; e >= 0; e--) {
        const int from = picture->edges[e].from, to = picture->edges[e].to;
        if (m->lane[from] > m->lane[to])
            m->lane[from] = m->lane[to];
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
    if (maker_grow(m, &rules->rules, rules->count, &rules->max, sizeof *rules->rules))
        rules->rules[rules->count++] = (struct rule){ upper, lower, rows };
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
    int *waiting = maker_alloc(m, (size_t)n, sizeof *waiting),
        *ready = maker_alloc(m, (size_t)n, sizeof *ready);
    int *first = maker_alloc(m, (size_t)n, sizeof *first);
    int *next = maker_alloc(m, (size_t)rules->count, sizeof *next);
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

/* Lets nodes of the lane of weights that share a row step down to free rows, as long as they stay
 * above what flows into them. */
static void spread_weights(struct maker *m)
{
    const struct picture *picture = m->picture;
    bool *taken = maker_alloc(m, (size_t)m->n_rows, sizeof *taken);

    for (int e = 0, b = 0; taken && b < picture->n_boxes; b++) {
        int end = m->n_rows;
        for (; e < picture->n_edges && picture->edges[e].to == b; e++) {
            const int from = picture->edges[e].from;
            if (m->lane[from] == LANE_BACKWARD && m->layer[from] < end)
                end = m->layer[from];
        }
        if (m->lane[b] != LANE_WEIGHT)
            continue;
        for (int row = m->layer[b]; row < end; row++) {
            if (!taken[row]) {
                m->layer[b] = row;
                break;
            }
        }
        taken[m->layer[b]] = true;
    }
}

void maker_pick_rows(struct maker *m)
{
    struct rules rules = { 0 };

    find_partners(m);
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
    spread_weights(m);
}

/* Columns of the last lane: longest paths within it. Boxes and edges stand in running order. */
void maker_pick_columns(struct maker *m)
{
    for (int e = 0; e < m->picture->n_edges; e++) {
        const int from = m->picture->edges[e].from, to = m->picture->edges[e].to;
        if (m->lane[to] != LANE_STEP || m->lane[from] != LANE_STEP)
            continue;
        m->layer[to] = m->layer[from] + 1 > m->layer[to] ? m->layer[from] + 1 : m->layer[to];
    }
}
