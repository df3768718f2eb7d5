/* SPDX-License-Identifier: MIT */
/* hold.c - the lanes' side of parameters that are held in parts; hold.h says what that is.
 *
 *   queue   F: b5 b4 b3 b2 | B: b2 b3 b4 b5      a step of one round
 *                  ^ furthest  `--' kept            b3 and b2 are brought: the window is two buckets
 *
 * Why this cannot block: lanes come to uses in the order of the queue. What the least advanced lane of a node
 * waits for is brought as soon as it comes to it, whatever the window is; the bucket's use before was left
 * by all lanes that took part, as they are no less advanced; and other nodes' wires give their parts
 * whenever asked, whatever their lanes do (wire_hold.c).
 */
#include "exec/hold.h"

#include "exec/state.h"
#include "graph/op.h"

/* Orders ------------------------------------------------------------------------------------- */

/* First and last readers of a phase's buckets. */
struct readers {
    int first[GRAPH_NODE_IN], last[GRAPH_NODE_IN]; /* numbers of nodes; -1: none */
};

static void find_readers(const struct exec *exec, const struct graph *graph,
                         enum hold_kind kind, struct readers *out)
{
    bool is_backward = false;

    for (int b = 0; b < GRAPH_NODE_IN; b++)
        out->first[b] = out->last[b] = -1;
    for (int n = 0; graph && n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op->split[0] == SPLIT_WHOLE)
            continue;
        is_backward |= node->phase != PHASE_FORWARD;
        if (kind != HOLD_EVALUATION && is_backward != (kind == HOLD_BACKWARD))
            continue;
        uint64_t read = plan_reads(node, exec->config.train) & exec->hold.buckets;
        for (; read; read &= read - 1) {
            const int b = __builtin_ctzll(read);
            out->first[b] = out->first[b] < 0 ? n : out->first[b];
            out->last[b] = n;
        }
    }
}

/* The bucket with the smallest number above `after`; -1: none. */
static int next_by(const int numbers[GRAPH_NODE_IN], int count, int after)
{
    int found = -1;

    for (int b = 0; b < count; b++) {
        if (numbers[b] > after && (found < 0 || numbers[b] < numbers[found]))
            found = b;
    }
    return found;
}

/* Buckets that one node is the first to read stand in the order of their numbers. */
static void put_in_order(const struct exec *exec, const struct readers *readers,
                         struct hold_order *order)
{
    const int n = exec->buckets.count;

    order->count = 0;
    for (int b = 0; b < n; b++)
        order->at[b] = -1;
    for (int b = next_by(readers->first, n, -1); b >= 0;
         b = next_by(readers->first, n, readers->first[b])) {
        for (int same = 0; same < n; same++) {
            if (readers->first[same] != readers->first[b])
                continue;
            order->at[same] = order->count;
            order->bucket[order->count++] = same;
        }
    }
    for (int b = 0; b < n; b++) {
        order->until[b] = 0;
        while (order->until[b] < order->count &&
               readers->first[order->bucket[order->until[b]]] <= readers->last[b])
            order->until[b]++;
    }
}

static size_t bytes_of(const struct exec *exec, int b)
{
    return (size_t)(exec->buckets.begin[b + 1] - exec->buckets.begin[b]) * sizeof(float);
}

/* The last buckets that a phase leaves: one, and as many as fit the window. */
static uint64_t find_tail(const struct exec *exec, const struct readers *readers)
{
    uint64_t tail = 0;
    size_t bytes = 0;

    for (;;) {
        int last = -1;
        for (int b = 0; b < exec->buckets.count; b++) {
            if (readers->last[b] >= 0 && !(tail >> b & 1) &&
                (last < 0 || readers->last[b] > readers->last[last]))
                last = b;
        }
        if (last < 0)
            return tail;
        bytes += bytes_of(exec, last);
        if (tail && bytes > exec->window)
            return tail;
        tail |= UINT64_C(1) << last;
    }
}

/* The first ones that a phase takes, likewise. */
static uint64_t find_head(const struct exec *exec, const struct hold_order *order)
{
    uint64_t head = 0;
    size_t bytes = 0;

    for (int i = 0; i < order->count; i++) {
        bytes += bytes_of(exec, order->bucket[i]);
        if (head && bytes > exec->window)
            break;
        head |= UINT64_C(1) << order->bucket[i];
    }
    return head;
}

void hold_find(struct exec *exec)
{
    struct hold *hold = &exec->hold;
    struct readers readers[HOLD_KINDS];

    if (!hold->buckets)
        return;
    for (int kind = 0; kind < HOLD_KINDS; kind++) {
        const struct graph *graph =
            kind == HOLD_EVALUATION ? exec->config.eval : exec->config.train;
        find_readers(exec, graph, (enum hold_kind)kind, &readers[kind]);
        put_in_order(exec, &readers[kind], &hold->orders[kind]);
    }
    hold->kept_for_backward =
        find_tail(exec, &readers[HOLD_FORWARD]) & find_head(exec, &hold->orders[HOLD_BACKWARD]);
    hold->kept_for_forward =
        find_tail(exec, &readers[HOLD_BACKWARD]) & find_head(exec, &hold->orders[HOLD_FORWARD]);
}

/* Walks -------------------------------------------------------------------------------------- */

/* Does lane `lane` of the job run something in a round, counted with those in which no lane does? */
static bool takes_part(const struct exec *exec, const struct hold_walk *walk, int lane,
                       int64_t round)
{
    int64_t first, count;

    if (walk->is_evaluation) {
        const int64_t lanes = exec->job_lanes;
        const int64_t shift = ((lane - walk->begin) % lanes + lanes) % lanes;
        return walk->begin + shift + round * lanes < walk->end;
    }
    exec_lane_row(exec, lane, &first, &count);
    if (round >= count)
        return false;
    const int64_t shards = exec->config.shards, v = first + round;
    return sampler_shard_begin(walk->samples, shards, v + 1) >
           sampler_shard_begin(walk->samples, shards, v);
}

static int lanes_in(const struct exec *exec, const struct hold_walk *walk, int node,
                    int64_t round)
{
    const int first = transport_node_first(exec->transport, node) * exec->n_lanes;
    const int end = first + transport_node_size(exec->transport, node) * exec->n_lanes;
    int count = 0;

    for (int lane = first; lane < end; lane++)
        count += takes_part(exec, walk, lane, round);
    return count;
}

/* Rounds of a node, those without lanes counted. */
static int64_t most_rounds(const struct exec *exec, const struct hold_walk *walk, int node)
{
    int64_t first, count;

    if (walk->is_evaluation)
        return (walk->end - walk->begin + exec->job_lanes - 1) / exec->job_lanes;
    exec_node_row(exec, node, &first, &count);
    return count;
}

int hold_lanes(const struct exec *exec, const struct hold_walk *walk, int node, int round)
{
    for (int64_t raw = 0; raw < most_rounds(exec, walk, node); raw++) {
        const int lanes = lanes_in(exec, walk, node, raw);
        if (lanes > 0 && round-- == 0)
            return lanes;
    }
    return 0;
}

int hold_rounds(const struct exec *exec, const struct hold_walk *walk, int node)
{
    int rounds = 0;

    for (int64_t raw = 0; raw < most_rounds(exec, walk, node); raw++)
        rounds += lanes_in(exec, walk, node, raw) > 0;
    return rounds;
}

int hold_phases(const struct hold_walk *walk)
{
    return walk->is_evaluation ? 1 : 2;
}

enum hold_kind hold_kind_of(const struct hold_walk *walk, int phase)
{
    return walk->is_evaluation ? HOLD_EVALUATION : phase % 2 ? HOLD_BACKWARD : HOLD_FORWARD;
}

static bool is_used(const struct hold *hold, enum hold_kind kind, int b)
{
    return hold->orders[kind].at[b] >= 0;
}

uint32_t hold_uses(const struct hold *hold, const struct hold_walk *walk, int phase, int b)
{
    if (walk->is_evaluation)
        return (uint32_t)phase * is_used(hold, HOLD_EVALUATION, b);
    const bool forward = is_used(hold, HOLD_FORWARD, b),
               backward = is_used(hold, HOLD_BACKWARD, b);
    return (uint32_t)(phase / 2) * ((uint32_t)forward + backward) + (phase % 2 && forward);
}

/* Entries of the queue before the phase of a kind in a round, and of a round. */
static int64_t round_length(const struct hold *hold, const struct hold_walk *walk)
{
    return walk->is_evaluation
               ? hold->orders[HOLD_EVALUATION].count
               : hold->orders[HOLD_FORWARD].count + hold->orders[HOLD_BACKWARD].count;
}

int64_t hold_place(const struct hold *hold, const struct hold_walk *walk, int phase, int b)
{
    const enum hold_kind kind = hold_kind_of(walk, phase);
    const int64_t before = kind == HOLD_BACKWARD ? hold->orders[HOLD_FORWARD].count : 0;

    return phase / hold_phases(walk) * round_length(hold, walk) + before +
           hold->orders[kind].at[b];
}

int hold_at(const struct hold *hold, const struct hold_walk *walk, int64_t place)
{
    const struct hold_order *order =
        &hold->orders[walk->is_evaluation ? HOLD_EVALUATION : HOLD_FORWARD];
    const int64_t at = place % round_length(hold, walk);

    return at < order->count ? order->bucket[at]
                             : hold->orders[HOLD_BACKWARD].bucket[at - order->count];
}

bool hold_is_kept(const struct hold *hold, const struct hold_walk *walk, int phase, int b)
{
    if (phase == 0 || walk->is_evaluation)
        return false;
    return (phase % 2 ? hold->kept_for_backward : hold->kept_for_forward) >> b & 1;
}

/* A walk's number, and a place in its queue; 0: none yet. */
static uint64_t mark_of(uint64_t walk, int64_t place)
{
    return walk << 32 | (uint64_t)(place + 1);
}

int64_t hold_furthest(const struct hold *hold, uint64_t number)
{
    const uint64_t mark = atomic_load_explicit(hold->furthest, memory_order_relaxed);

    if (mark >> 32 != number)
        return mark >> 32 < number ? -1 : INT64_MAX; /* lanes are in the next walk already */
    return (int64_t)(mark & UINT32_MAX) - 1;
}

void hold_begin(struct exec *exec, const struct hold_walk *walk)
{
    struct hold *hold = &exec->hold;

    if (!hold->buckets)
        return;
    hold->walk = *walk;
    hold->is_walking = true;
}

void hold_end(struct exec *exec)
{
    struct hold *hold = &exec->hold;
    const struct hold_walk *walk = &hold->walk;

    if (!hold->is_walking)
        return;
    const int phases = hold_rounds(exec, walk, exec->node) * hold_phases(walk);
    for (int b = 0; b < exec->buckets.count; b++)
        hold->before[b] += hold_uses(hold, walk, phases, b);
    hold->is_walking = false;
    hold->walks++;
}

/* A lane ------------------------------------------------------------------------------------- */

void hold_enter_round(struct lane *lane, int64_t raw)
{
    const struct exec *exec = lane->exec;

    lane->round = 0;
    for (int64_t before = 0; exec->hold.is_walking && before < raw; before++)
        lane->round += lanes_in(exec, &exec->hold.walk, exec->node, before) > 0;
}

enum status hold_take(struct lane *lane, uint64_t buckets, bool is_backward)
{
    struct exec *exec = lane->exec;
    struct hold *hold = &exec->hold;

    if (!hold->is_walking)
        return STATUS_OK; /* all of them are here */
    const int phase = lane->round * hold_phases(&hold->walk) + is_backward;
    for (; buckets; buckets &= buckets - 1) {
        const int b = __builtin_ctzll(buckets);
        const uint64_t mark = mark_of(hold->walks, hold_place(hold, &hold->walk, phase, b));
        const uint32_t uses = hold->before[b] + hold_uses(hold, &hold->walk, phase, b) + 1;
        uint64_t seen = atomic_load_explicit(hold->furthest, memory_order_relaxed);

        while (seen < mark && !atomic_compare_exchange_weak_explicit(hold->furthest, &seen,
                                                                     mark, memory_order_relaxed,
                                                                     memory_order_relaxed)) {
        }
        TRY(exec_wait(exec, lane, &hold->held[b], uses * (uint32_t)wire_rails(exec),
                      "all_gather of parameters"));
    }
    return STATUS_OK;
}

void hold_leave(struct lane *lane, uint64_t buckets)
{
    struct hold *hold = &lane->exec->hold;

    for (; buckets && hold->is_walking; buckets &= buckets - 1)
        transport_raise(&hold->left[__builtin_ctzll(buckets)], 1);
}
