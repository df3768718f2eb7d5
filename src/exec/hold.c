/* SPDX-License-Identifier: MIT */
/* hold.c - the lanes' side of parameters that are held in parts; hold.h says what that is.
 *
 *   queue   F: b5 b4 b3 b2 | B: b2 b3 b4 b5      a step of one round
 *                  ^ furthest  `--' kept            b3 and b2 are brought: the window is two buckets
 *
 * Why the window cannot block: lanes come to uses in the order of the queue. What the least
 * advanced lane of a node waits for is requested as soon as it comes to it, whatever the window is.
 * The rest the step program says, and its verifier shows.
 */
#include "exec/hold.h"

#include "base/mem.h"
#include "exec/lane.h"
#include "exec/pipe.h"
#include "exec/state.h"
#include "graph/op.h"
#include "pass/pass.h"

/* Orders ------------------------------------------------------------------------------------- */

/* First and last readers of a phase's buckets. */
struct readers {
    int first[GRAPH_NODE_IN], last[GRAPH_NODE_IN]; /* numbers of nodes; -1: none */
};

/* Pieces of the graph that a rank runs one after the other. */
static int chunks_of(const struct exec *exec)
{
    return exec->pipe ? exec->config.pipeline.chunks : 1;
}

/* The kind of phase that a node of the step, or of an evaluation, belongs to. */
static int kind_of_node(const struct exec *exec, const struct node *node, bool is_evaluation,
                        bool is_backward)
{
    const int chunks = chunks_of(exec);
    const int chunk = exec->pipe ? node->stage / exec->config.pipeline.stages : 0;

    return is_evaluation ? 2 * chunks + chunk : is_backward ? 2 * chunks - 1 - chunk : chunk;
}

static void find_readers(const struct exec *exec, int kind, struct readers *out)
{
    const bool is_evaluation = kind >= 2 * chunks_of(exec);
    const struct graph *graph = is_evaluation ? exec->config.eval : exec->config.train;
    bool is_backward = false;

    for (int b = 0; b < GRAPH_NODE_IN; b++)
        out->first[b] = out->last[b] = -1;
    for (int n = 0; graph && n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (node->op->split[0] == SPLIT_WHOLE)
            continue;
        is_backward |= node->phase != PHASE_FORWARD;
        if (!pass_is_local(&exec->layout.buckets.pipeline, node->stage) ||
            kind_of_node(exec, node, is_evaluation, is_backward) != kind)
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
    const int n = exec->layout.buckets.count;

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
    return (size_t)(exec->layout.buckets.begin[b + 1] - exec->layout.buckets.begin[b]) *
           sizeof(float);
}

/* The last buckets that a phase leaves: one, and as many as fit the window. */
static uint64_t find_tail(const struct exec *exec, const struct readers *readers)
{
    uint64_t tail = 0;
    size_t bytes = 0;

    for (;;) {
        int last = -1;
        for (int b = 0; b < exec->layout.buckets.count; b++) {
            if (readers->last[b] >= 0 && !(tail >> b & 1) &&
                (last < 0 || readers->last[b] > readers->last[last]))
                last = b;
        }
        if (last < 0)
            return tail;
        bytes += bytes_of(exec, last);
        if (tail && bytes > exec->layout.window)
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
        if (head && bytes > exec->layout.window)
            break;
        head |= UINT64_C(1) << order->bucket[i];
    }
    return head;
}

/* Sequences ---------------------------------------------------------------------------------- */

static enum status make_sequence(const struct hold *hold, const uint8_t *kinds, int count,
                                 struct hold_sequence *out)
{
    TRY(mem_alloc((size_t)count + 1, sizeof *out->kinds, &out->kinds));
    TRY(mem_alloc((size_t)count + 1, sizeof *out->first, &out->first));
    out->count = count;
    for (int i = 0; i < count; i++) {
        out->kinds[i] = kinds[i];
        out->first[i + 1] = out->first[i] + hold->orders[kinds[i]].count;
    }
    return STATUS_OK;
}

/* Of a stage: what it does in a step, if its node has so many shards. */
static enum status make_stage_sequence(const struct exec *exec, int64_t shards,
                                       struct hold_sequence *out)
{
    const struct exec_pipeline *pipeline = &exec->config.pipeline;
    const struct pipe_config config = { .kind = pipeline->kind,
                                        .stages = pipeline->stages,
                                        .chunks = pipeline->chunks,
                                        .shards = shards };
    const size_t count = (size_t)pipe_count(&config);
    struct pipe_action *actions;
    uint8_t *kinds = NULL;

    TRY(mem_alloc(count + 1, sizeof *actions, &actions));
    enum status status = mem_alloc(count + 1, sizeof *kinds, &kinds);
    if (status == STATUS_OK) {
        pipe_schedule(&config, pipeline->own, actions);
        for (size_t i = 0; i < count; i++)
            kinds[i] =
                (uint8_t)(actions[i].is_backward ? 2 * pipeline->chunks - 1 - actions[i].chunk
                                                 : actions[i].chunk);
        status = make_sequence(&exec->hold, kinds, (int)count, out);
    }
    mem_free(kinds);
    mem_free(actions);
    return status;
}

/* Evaluations go through several chunks in groups of as many batches as there are stages. */
static enum status make_evaluation(struct exec *exec)
{
    const int chunks = chunks_of(exec);
    const int group = chunks > 1 ? exec->config.pipeline.stages : 1;
    uint8_t kinds[PIPE_STAGES * PIPE_CHUNKS];

    for (int i = 0; i < chunks * group; i++)
        kinds[i] = (uint8_t)(2 * chunks + i / group);
    return make_sequence(&exec->hold, kinds, chunks * group, &exec->hold.evaluation);
}

static enum status make_sequences(struct exec *exec)
{
    static const uint8_t usual[] = { 0, 1 }; /* forward and backward of a shard */
    struct hold *hold = &exec->hold;

    TRY(mem_alloc((size_t)exec->topology.nodes, sizeof *hold->steps, &hold->steps));
    for (int node = 0; node < exec->topology.nodes; node++) {
        int64_t first, count;
        exec_node_row(exec, node, &first, &count);
        if (exec->pipe)
            TRY(make_stage_sequence(exec, count, &hold->steps[node]));
        else
            TRY(make_sequence(hold, usual, 2, &hold->steps[node]));
    }
    return make_evaluation(exec);
}

enum status hold_create(struct exec *exec)
{
    struct hold *hold = &exec->hold;
    struct readers readers;

    if (!hold->buckets)
        return STATUS_OK;
    if (exec->pipe && exec->topology.nodes < exec->topology.ranks)
        return FAIL(STATUS_UNSUPPORTED,
                    "stages of a pipeline hold parameters in parts a rank, not a machine");
    hold->n_kinds = 3 * chunks_of(exec);
    for (int kind = 0; kind < hold->n_kinds; kind++) {
        find_readers(exec, kind, &readers);
        put_in_order(exec, &readers, &hold->orders[kind]);
        hold->last[kind] = find_tail(exec, &readers);
        hold->first[kind] = find_head(exec, &hold->orders[kind]);
    }
    return make_sequences(exec);
}

static void free_sequence(struct hold_sequence *sequence)
{
    mem_free(sequence->kinds);
    mem_free(sequence->first);
}

void hold_destroy(struct exec *exec)
{
    struct hold *hold = &exec->hold;

    for (int node = 0; hold->steps && node < exec->topology.nodes; node++)
        free_sequence(&hold->steps[node]);
    mem_free(hold->steps);
    free_sequence(&hold->evaluation);
}

/* Walks -------------------------------------------------------------------------------------- */

/* Does lane `lane` of the job run something in a round, counted with those in which no lane does? */
static bool takes_part(const struct exec *exec, const struct hold_walk *walk, int lane,
                       int64_t round)
{
    int64_t first, count;

    if (walk->is_evaluation) {
        const int64_t lanes = exec->topology.job_lanes;
        const int64_t shift = ((lane - walk->begin) % lanes + lanes) % lanes;
        return walk->begin + shift + round * lanes < walk->end;
    }
    exec_lane_row(exec, lane, &first, &count);
    return round < count; /* a shard without samples runs the same tasks */
}

static int lanes_in(const struct exec *exec, const struct hold_walk *walk, int node,
                    int64_t round)
{
    const int first = transport_node_first(exec->transport, node) * exec->topology.n_lanes;
    const int end = first + transport_node_size(exec->transport, node) * exec->topology.n_lanes;
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
        return (walk->end - walk->begin + exec->topology.job_lanes - 1) /
               exec->topology.job_lanes;
    exec_node_row(exec, node, &first, &count);
    return count;
}

/* Of these the number of those that have lanes before a round. */
static int rounds_before(const struct exec *exec, const struct hold_walk *walk, int node,
                         int64_t raw)
{
    int rounds = 0;

    for (int64_t before = 0; before < raw; before++)
        rounds += lanes_in(exec, walk, node, before) > 0;
    return rounds;
}

static const struct hold_sequence *sequence_of(const struct exec *exec,
                                               const struct hold_walk *walk, int node)
{
    return walk->is_evaluation ? &exec->hold.evaluation : &exec->hold.steps[node];
}

static int kind_of(const struct hold_sequence *sequence, int phase)
{
    return sequence->kinds[phase % sequence->count];
}

int hold_phases(const struct exec *exec, const struct hold_walk *walk, int node)
{
    const int count = sequence_of(exec, walk, node)->count;

    if (exec->pipe && !walk->is_evaluation)
        return count;
    int rounds = rounds_before(exec, walk, node, most_rounds(exec, walk, node));
    if (chunks_of(exec) > 1) /* batches in groups */
        rounds = (rounds + exec->config.pipeline.stages - 1) / exec->config.pipeline.stages;
    return rounds * count;
}

int hold_lanes(const struct exec *exec, const struct hold_walk *walk, int node, int phase)
{
    int round = phase / sequence_of(exec, walk, node)->count;

    if (exec->pipe)
        return 1; /* it passes where there is nothing to run */
    for (int64_t raw = 0; raw < most_rounds(exec, walk, node); raw++) {
        const int lanes = lanes_in(exec, walk, node, raw);
        if (lanes > 0 && round-- == 0)
            return lanes;
    }
    return 0;
}

bool hold_is_used(const struct exec *exec, const struct hold_walk *walk, int node, int phase,
                  int b)
{
    const int kind = kind_of(sequence_of(exec, walk, node), phase);

    return exec->hold.orders[kind].at[b] >= 0;
}

uint32_t hold_uses(const struct exec *exec, const struct hold_walk *walk, int phase, int b)
{
    const int count = sequence_of(exec, walk, exec->topology.node)->count;
    uint32_t of_round = 0, uses = 0;

    for (int p = 0; p < count; p++) {
        const bool is_used = hold_is_used(exec, walk, exec->topology.node, p, b);
        of_round += is_used;
        uses += is_used && p < phase % count;
    }
    return (uint32_t)(phase / count) * of_round + uses;
}

/* The kind of phase that a segment is in the walk. */
static int kind_of_segment(const struct exec *exec, const struct hold_walk *walk, int segment)
{
    return walk->is_evaluation ? 2 * chunks_of(exec) + segment : segment;
}

int hold_times(const struct exec *exec, const struct hold_walk *walk, int segment, int b)
{
    const struct hold_sequence *s = sequence_of(exec, walk, exec->topology.node);
    const int kind = kind_of_segment(exec, walk, segment);
    int per = 0;

    if (kind >= exec->hold.n_kinds || exec->hold.orders[kind].at[b] < 0)
        return 0; /* evaluations have no backward */
    for (int p = 0; p < s->count; p++)
        per += s->kinds[p] == kind;
    return hold_phases(exec, walk, exec->topology.node) / s->count * per;
}

int hold_phase_of(const struct exec *exec, const struct hold_walk *walk, int segment, int time)
{
    const struct hold_sequence *s = sequence_of(exec, walk, exec->topology.node);
    const int kind = kind_of_segment(exec, walk, segment);
    int per = 0, at = 0;

    for (int p = 0; p < s->count; p++)
        per += s->kinds[p] == kind;
    BUG_ON(per == 0); /* the task runs in none: hold_times */
    for (int left = time % per; s->kinds[at] != kind || left-- > 0;)
        at++;
    return time / per * s->count + at;
}

int64_t hold_place(const struct exec *exec, const struct hold_walk *walk, int phase, int b)
{
    const struct hold_sequence *s = sequence_of(exec, walk, exec->topology.node);
    const int at = phase % s->count;

    return phase / s->count * s->first[s->count] + s->first[at] +
           exec->hold.orders[s->kinds[at]].at[b];
}

int hold_at(const struct exec *exec, const struct hold_walk *walk, int64_t place)
{
    const struct hold_sequence *s = sequence_of(exec, walk, exec->topology.node);
    const int64_t at = place % s->first[s->count];
    int low = 0, high = s->count; /* the phase is in [low, high) */

    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (s->first[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return exec->hold.orders[s->kinds[low]].bucket[at - s->first[low]];
}

bool hold_is_kept(const struct exec *exec, const struct hold_walk *walk, int node, int phase,
                  int b)
{
    const struct hold_sequence *s = sequence_of(exec, walk, node);

    if (phase == 0 || walk->is_evaluation)
        return false;
    return (exec->hold.last[kind_of(s, phase - 1)] & exec->hold.first[kind_of(s, phase)]) >> b &
           1;
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
    const int phases = hold_phases(exec, walk, exec->topology.node);
    for (int b = 0; b < exec->layout.buckets.count; b++)
        hold->before[b] += hold_uses(exec, walk, phases, b);
    hold->is_walking = false;
    hold->walks++;
}

/* A lane ------------------------------------------------------------------------------------- */

void hold_enter_round(struct lane *lane, int64_t raw)
{
    const struct exec *exec = lane->exec;
    const struct hold_walk *walk = &exec->hold.walk;

    if (exec->hold.is_walking)
        lane->phase = rounds_before(exec, walk, exec->topology.node, raw) *
                      sequence_of(exec, walk, exec->topology.node)->count;
}

void hold_enter_action(struct lane *lane, int64_t phase)
{
    lane->phase = (int)phase;
}

/* The lane has come to this place of the queue. */
static void note_place(struct hold *hold, int64_t place)
{
    const uint64_t mark = mark_of(hold->walks, place);
    uint64_t seen = atomic_load_explicit(hold->furthest, memory_order_relaxed);

    while (seen < mark &&
           !atomic_compare_exchange_weak_explicit(hold->furthest, &seen, mark,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

enum status hold_await(struct lane *lane, int b, bool is_backward)
{
    struct exec *exec = lane->exec;
    struct hold *hold = &exec->hold;
    const int phase = lane->phase + (is_backward && !exec->pipe);
    const uint32_t uses = hold->before[b] + hold_uses(exec, &hold->walk, phase, b) + 1;
    const int unshard = exec->program->unshard[b];

    note_place(hold, hold_place(exec, &hold->walk, phase, b));
    return clock_wait_until(&lane->clock, unshard,
                            account_target(&exec->account, unshard, uses - 1),
                            "all_gather of parameters");
}

enum status hold_take(struct lane *lane, uint64_t buckets)
{
    for (; buckets && lane->exec->hold.is_walking; buckets &= buckets - 1)
        TRY(hold_await(lane, __builtin_ctzll(buckets), false));
    return STATUS_OK; /* or all of them are here */
}

void hold_leave(struct lane *lane, uint64_t buckets)
{
    const struct exec *exec = lane->exec;

    for (; buckets && exec->hold.is_walking; buckets &= buckets - 1)
        clock_signal(&lane->clock, exec->program->is_read[__builtin_ctzll(buckets)]);
}

enum status hold_pass(struct lane *lane)
{
    const struct exec *exec = lane->exec;

    if (!exec->hold.is_walking)
        return STATUS_OK;
    const struct hold_sequence *s = sequence_of(exec, &exec->hold.walk, exec->topology.node);
    const struct hold_order *order = &exec->hold.orders[kind_of(s, lane->phase)];
    for (int i = 0; i < order->count; i++) {
        TRY(hold_take(lane, UINT64_C(1) << order->bucket[i]));
        hold_leave(lane, UINT64_C(1) << order->bucket[i]);
    }
    return STATUS_OK;
}
