/* SPDX-License-Identifier: MIT */
/* verify_pipe.c - unmatched messages and deadlocks between the stages of a pipeline.
 *
 * All stages have one graph, in which each runs the nodes that are its own, and one set of schedules. A
 * send and a receive that belong together have one slot. Schedules are gone through on paper: an action
 * is done when all that its segment receives for its shard was sent. If no stage gets any further and
 * some are not through, they wait for each other.
 *
 * Cost: of 64 stages with 64 shards each, 8,192 actions, some milliseconds.
 */
#include "base/mem.h"
#include "graph/op.h"
#include "sched/verify.h"

/* Messages --------------------------------------------------------------------------------- */

/* The node of the other end of a message; NULL: none, or several. */
static const struct node *other_end(const struct graph *graph, const struct node *move)
{
    const struct node *found = NULL;

    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (!node->op->moves || node->op == move->op || node->attrs.slot != move->attrs.slot)
            continue;
        if (found)
            return NULL;
        found = node;
    }
    return found;
}

static enum status check_ends(const struct graph *graph, int stages)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        const struct node *node = graph_node(graph, n);
        if (!node->op->moves)
            continue;
        const struct node *other = other_end(graph, node);
        if (!other || other->attrs.once != node->attrs.once)
            return FAIL(STATUS_MISMATCH, "%s %s of stage %d: no node is its other end",
                        node->op->name, node->name, node->stage % stages);
        if (node->attrs.peer != other->stage % stages)
            return FAIL(STATUS_MISMATCH, "%s %s is for stage %d, its other end is on stage %d",
                        node->op->name, node->name, node->attrs.peer, other->stage % stages);
    }
    return STATUS_OK;
}

/* Schedules -------------------------------------------------------------------------------- */

/* What a segment receives of another one, for every shard. */
struct message {
    int from, to;
    const char *name;
};

struct walk {
    const struct graph *graph;
    const struct pipe_config *config;
    struct message *messages;
    int n_messages;
    const struct pipe_action *actions; /* stage after stage */
    int64_t count;                     /* of a stage */
    int64_t *next;                     /* action of each stage */
    bool *is_done;                     /* of each segment and shard */
};

/* Forward of piece 0, 1, ..., then backward of the last, ..., 0. */
static int segment_of(const struct walk *walk, int piece, bool is_backward)
{
    return is_backward ? 2 * walk->config->stages * walk->config->chunks - 1 - piece : piece;
}

static bool *done_at(const struct walk *walk, int segment, int64_t shard)
{
    return &walk->is_done[segment * walk->config->shards + shard];
}

static int segment_of_node(const struct walk *walk, const struct node *node)
{
    return segment_of(walk, node->stage, node->phase != PHASE_FORWARD);
}

static int segment_of_action(const struct walk *walk, int stage, const struct pipe_action *a)
{
    return segment_of(walk, a->chunk * walk->config->stages + stage, a->is_backward);
}

static enum status list_messages(struct walk *walk)
{
    const int nodes = graph_node_count(walk->graph);

    TRY(mem_alloc((size_t)nodes + 1, sizeof *walk->messages, &walk->messages));
    for (int n = 0; n < nodes; n++) {
        const struct node *node = graph_node(walk->graph, n);
        if (node->op != &op_receive || node->attrs.once)
            continue;
        walk->messages[walk->n_messages++] =
            (struct message){ segment_of_node(walk, other_end(walk->graph, node)),
                              segment_of_node(walk, node), node->name };
    }
    return STATUS_OK;
}

/* What a stage's next action receives and nobody has sent yet; NULL: nothing. */
static const struct message *missing_of(const struct walk *walk, int stage)
{
    const struct pipe_action *a = &walk->actions[stage * walk->count + walk->next[stage]];
    const int segment = segment_of_action(walk, stage, a);

    for (int i = 0; i < walk->n_messages; i++) {
        const struct message *message = &walk->messages[i];
        if (message->to == segment && !*done_at(walk, message->from, a->shard))
            return message;
    }
    return NULL;
}

/* Goes on with a stage as far as it gets. */
static bool advance(const struct walk *walk, int stage)
{
    const int64_t before = walk->next[stage];

    while (walk->next[stage] < walk->count && !missing_of(walk, stage)) {
        const struct pipe_action *a = &walk->actions[stage * walk->count + walk->next[stage]];
        *done_at(walk, segment_of_action(walk, stage, a), a->shard) = true;
        walk->next[stage]++;
    }
    return walk->next[stage] > before;
}

static enum status go_through(const struct walk *walk)
{
    for (bool any = true; any;) {
        any = false;
        for (int stage = 0; stage < walk->config->stages; stage++)
            any |= advance(walk, stage);
    }
    for (int stage = 0; stage < walk->config->stages; stage++) {
        if (walk->next[stage] == walk->count)
            continue;
        const struct pipe_action *a = &walk->actions[stage * walk->count + walk->next[stage]];
        return FAIL(STATUS_MISMATCH, "a deadlock: stage %d waits in %s of shard %lld for %s",
                    stage, a->is_backward ? "backward" : "forward", (long long)a->shard,
                    missing_of(walk, stage)->name);
    }
    return STATUS_OK;
}

enum status pipe_verify_actions(const struct graph *graph, const struct pipe_config *config,
                                const struct pipe_action *actions)
{
    const size_t segments = 2 * (size_t)config->stages * (size_t)config->chunks;
    struct walk walk = {
        .graph = graph, .config = config, .actions = actions, .count = pipe_count(config)
    };

    TRY(check_ends(graph, config->stages));
    enum status status = mem_alloc((size_t)config->stages, sizeof *walk.next, &walk.next);
    if (status == STATUS_OK)
        status =
            mem_alloc(segments * (size_t)config->shards, sizeof *walk.is_done, &walk.is_done);
    if (status == STATUS_OK)
        status = list_messages(&walk);
    if (status == STATUS_OK)
        status = go_through(&walk);
    mem_free(walk.messages);
    mem_free(walk.next);
    mem_free(walk.is_done);
    return status;
}

enum status pipe_verify(const struct graph *graph, const struct pipe_config *config)
{
    const int64_t count = pipe_count(config);
    struct pipe_action *actions;

    TRY(mem_alloc((size_t)(count * config->stages), sizeof *actions, &actions));
    for (int stage = 0; stage < config->stages; stage++)
        pipe_schedule(config, stage, actions + stage * count);
    const enum status status = pipe_verify_actions(graph, config, actions);
    mem_free(actions);
    return status;
}
