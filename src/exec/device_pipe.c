/* SPDX-License-Identifier: MIT */
/* device_pipe.c - a stage of a pipeline on a device.
 *
 * What pipe.h says of stages holds here: the schedule, an arena for each shard under way, segments
 * of the plan, a stack of the tree for each segment. What is different is how values go from stage
 * to stage. A stage has *boxes* in memory that the other stages see, one for each shard under way
 * and two more, and words for every pair of nodes and every box:
 *
 *   send      await taken, if the box was used before | copy to the box | signal full, at the receiver
 *   receive   await full | copy from the sender's box | signal taken, at the sender
 *
 * A step ends with awaiting all that was sent and not known to be taken: so every step finds all
 * words 0 and all boxes free. Nothing in it depends on the step: all of a stage's step, whatever
 * its schedule is, is one captured graph. What goes once a step has a box of its own.
 *
 * Why nobody waits for ever: streams do one thing after the other as lanes do, schedules alone do
 * not deadlock (schedule_test.c), and a box is used again by a shard that begins after the one
 * before it has ended here; pipe.c has the rest.
 *
 * Groups of buckets are summed and updated after the last action, as by lanes.
 */
#include "base/mem.h"
#include "exec/device_side.h"
#include "graph/op.h"

enum { ALIGN = 256 };
enum word_kind { FULL, TAKEN, WORD_KINDS };

struct device_pipe {
    struct device_circle circle;
    struct pipe_stage stage;
    int slots;  /* pairs of nodes: of the step or of an evaluation, whichever has more */
    int places; /* boxes, and that of what goes once a step */
    size_t box_bytes, once_bytes; /* the same on all stages */
    char *kept;                   /* what came once a step */
    size_t kept_bytes;
    bool *is_sent;                /* of slots * places: not known to be taken */
    struct device_words *watched; /* all of this rank's */
    int n_watched;
    struct tree_stack stacks[2 * PIPE_CHUNKS]; /* one a segment */
};

/* Memory ------------------------------------------------------------------------------------ */

static int count_slots(const struct graph *graph)
{
    int count = 0;

    for (int n = 0; graph && n < graph_node_count(graph); n++)
        count += graph_node(graph, n)->op == &op_send;
    return count;
}

static int count_words(const struct device_pipe *pipe)
{
    return WORD_KINDS * pipe->slots * pipe->places;
}

static size_t words_bytes(const struct device_pipe *pipe)
{
    return ((size_t)count_words(pipe) * DEVICE_LINE + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t *word_of(const struct device_pipe *pipe, int rank, enum word_kind kind,
                         int slot, int place)
{
    const int number = ((int)kind * pipe->slots + slot) * pipe->places + place;

    return (uint32_t *)(pipe->circle.block[rank] + (size_t)number * DEVICE_LINE);
}

/* Where a stage has what an instruction sends or receives, as this rank sees it. */
static char *place_of(const struct device_pipe *pipe, int rank, const struct instruction *move,
                      int place)
{
    return pipe->circle.block[rank] + words_bytes(pipe) + (size_t)place * pipe->box_bytes +
           move->at;
}

enum status device_pipe_create(struct exec *exec)
{
    struct device_side *side = exec->device;
    struct device_pipe *pipe;

    TRY(mem_alloc(1, sizeof *pipe, &pipe));
    side->pipe = pipe;
    pipe->stage = pipe_stage_of(exec);
    const int train = count_slots(exec->config.train), eval = count_slots(exec->config.eval);
    pipe->slots = train > eval ? train : eval;
    /* The stage that has most shards under way says how many boxes all have: both ends of a pair
     * count alike. */
    TRY(circle_create(exec, exec->config.pipeline.transport, &pipe->circle));
    size_t boxes = (size_t)pipe->stage.boxes;
    TRY(circle_agree(&pipe->circle, &boxes, 1));
    pipe->stage.boxes = (int)boxes;
    pipe->places = pipe->stage.boxes + 1;
    TRY(mem_alloc((size_t)(pipe->slots * pipe->places) + 1, sizeof *pipe->is_sent,
                  &pipe->is_sent));
    pipe->n_watched = (count_words(pipe) + DEVICE_PEERS - 1) / DEVICE_PEERS;
    return mem_alloc((size_t)pipe->n_watched + 1, sizeof *pipe->watched, &pipe->watched);
}

void device_pipe_destroy(struct exec *exec)
{
    struct device_side *side = exec->device;
    struct device_pipe *pipe = side->pipe;

    if (!pipe)
        return;
    circle_release(exec, &pipe->circle);
    side->config.face->memory->destroy(side->config.device, pipe->kept);
    mem_free(pipe->is_sent);
    mem_free(pipe->watched);
    mem_free(pipe);
    side->pipe = NULL;
}

/* All words of this rank, for who gives up. */
static void watch(struct exec *exec)
{
    struct device_pipe *pipe = exec->device->pipe;

    for (int i = 0; i < pipe->n_watched; i++)
        pipe->watched[i].count = 0;
    for (int i = 0; i < count_words(pipe); i++) {
        struct device_words *words = &pipe->watched[i / DEVICE_PEERS];
        words->word[words->count++] =
            (uint32_t *)(pipe->circle.memory + (size_t)i * DEVICE_LINE);
    }
    device_watch_words(exec->device, WATCH_PIPE, pipe->watched, pipe->n_watched);
}

static enum status grow_kept(struct exec *exec, size_t bytes)
{
    struct device_side *side = exec->device;
    struct device_pipe *pipe = side->pipe;
    const struct device_memory_ops *memory = side->config.face->memory;

    if (bytes <= pipe->kept_bytes)
        return STATUS_OK;
    TRY(device_wait(exec));
    device_forget_graphs(side);
    memory->destroy(side->config.device, pipe->kept);
    pipe->kept = NULL;
    pipe->kept_bytes = 0;
    TRY(memory->create(side->config.device, bytes, (void **)&pipe->kept));
    pipe->kept_bytes = bytes;
    return STATUS_OK;
}

enum status device_pipe_prepare(struct exec *exec, const struct plan *plan)
{
    struct device_pipe *pipe = exec->device->pipe;
    size_t wanted[] = { plan->outbox_bytes, plan->once_bytes };

    TRY(grow_kept(exec, plan->kept_bytes));
    TRY(circle_agree(&pipe->circle, wanted, 2));
    if (pipe->circle.memory && wanted[0] <= pipe->box_bytes && wanted[1] <= pipe->once_bytes)
        return STATUS_OK;
    device_forget_graphs(exec->device);
    device_watch_words(exec->device, WATCH_PIPE, NULL, 0);
    pipe->box_bytes = wanted[0] > pipe->box_bytes ? wanted[0] : pipe->box_bytes;
    pipe->once_bytes = wanted[1] > pipe->once_bytes ? wanted[1] : pipe->once_bytes;
    TRY(circle_make(exec, &pipe->circle,
                    words_bytes(pipe) + (size_t)pipe->stage.boxes * pipe->box_bytes +
                        pipe->once_bytes));
    watch(exec);
    return STATUS_OK;
}

size_t device_pipe_bytes(const struct device_side *side)
{
    return side->pipe ? side->pipe->circle.bytes + side->pipe->kept_bytes : 0;
}

/* Moving ------------------------------------------------------------------------------------ */

static void signal_one(const struct device_side *side, uint32_t *word)
{
    const struct device_words words = { .word = { word }, .count = 1 };

    side->config.face->share->signal(side->stream, &words);
}

static void await_one(const struct device_side *side, uint32_t *word)
{
    const struct device_words words = { .word = { word }, .count = 1 };

    side->config.face->share->await(side->stream, &words);
}

static enum status send(const struct device_side *side, const struct instruction *move, int box)
{
    const struct device_pipe *pipe = side->pipe;
    const struct attrs *attrs = &move->node->attrs;
    const int place = attrs->once ? pipe->stage.boxes : box, own = pipe->circle.rank;
    bool *is_sent = &pipe->is_sent[attrs->slot * pipe->places + place];

    if (*is_sent)
        await_one(side, word_of(pipe, own, TAKEN, attrs->slot, place));
    *is_sent = true;
    TRY(side->config.face->memory->copy(side->stream, place_of(pipe, own, move, place),
                                        side->bases[move->in[0].base] + move->in[0].offset,
                                        move->bytes));
    signal_one(side, word_of(pipe, attrs->peer, FULL, attrs->slot, place));
    return STATUS_OK;
}

static enum status receive(const struct device_side *side, const struct instruction *move,
                           int box)
{
    const struct device_pipe *pipe = side->pipe;
    const struct attrs *attrs = &move->node->attrs;
    const int place = attrs->once ? pipe->stage.boxes : box, own = pipe->circle.rank;

    await_one(side, word_of(pipe, own, FULL, attrs->slot, place));
    TRY(side->config.face->memory->copy(side->stream,
                                        side->bases[move->out[0].base] + move->out[0].offset,
                                        place_of(pipe, attrs->peer, move, place), move->bytes));
    signal_one(side, word_of(pipe, attrs->peer, TAKEN, attrs->slot, place));
    return STATUS_OK;
}

/* Parameters that other stages read, too: all send before they wait. */
enum status device_pipe_move_once(const struct exec *exec, const struct plan *plan)
{
    struct device_side *side = exec->device;

    side->bases[BASE_KEPT] = side->pipe->kept;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < plan->segment[0]; i++) {
            const struct instruction *move = &plan->instructions[i];
            if (pass == 0 && move->node->op == &op_send)
                TRY(send(side, move, 0));
            if (pass == 1 && move->node->op == &op_receive)
                TRY(receive(side, move, 0));
        }
    }
    return STATUS_OK;
}

void device_pipe_end(const struct device_side *side)
{
    struct device_pipe *pipe = side->pipe;
    struct device_words words = { .count = 0 };

    for (int i = 0; i < pipe->slots * pipe->places; i++) {
        if (pipe->is_sent[i])
            words.word[words.count++] =
                word_of(pipe, pipe->circle.rank, TAKEN, i / pipe->places, i % pipe->places);
        pipe->is_sent[i] = false;
        if (words.count == DEVICE_PEERS ||
            (words.count > 0 && i == pipe->slots * pipe->places - 1)) {
            side->config.face->share->await(side->stream, &words);
            words.count = 0;
        }
    }
}

/* Memory of a shard, or of a batch of an evaluation; its box. */
static int point_to(const struct exec *exec, int64_t number)
{
    struct device_side *side = exec->device;
    const struct pipe_stage *stage = &side->pipe->stage;

    side->arena = side->arenas + (size_t)(number % stage->arenas) * exec->arena_bytes;
    side->bases[BASE_ARENA] = side->arena;
    return (int)(number % stage->boxes);
}

enum status device_pipe_run(const struct exec *exec, const struct plan *plan, int segment,
                            int64_t number, const struct kernel_step *step)
{
    struct device_side *side = exec->device;
    const int box = point_to(exec, number);

    for (int i = plan->segment[segment]; i < plan->segment[segment + 1]; i++) {
        const struct instruction *next = &plan->instructions[i];
        if (!next->node->op->moves) {
            TRY(device_run(side, next, scaled_step(side, next, step)));
            continue;
        }
        TRY(aside_before(side, next));
        if (next->node->op == &op_send)
            TRY(send(side, next, box));
        else
            TRY(receive(side, next, box));
        TRY(aside_after(side));
    }
    return aside_join(side, side->stream);
}

/* A step ------------------------------------------------------------------------------------ */

/* Elements of buckets that stand in a row, the first of which is lowest of `left`; takes them out
 * of it. */
static struct device_part take_row(const struct exec *exec, uint64_t *left)
{
    const int first = __builtin_ctzll(*left);
    int end = first;

    for (; end < exec->layout.buckets.count && *left >> end & 1; end++)
        *left &= ~(UINT64_C(1) << end);
    const size_t at = (size_t)exec->layout.buckets.begin[first];
    return (struct device_part){ at, (size_t)exec->layout.buckets.begin[end] - at };
}

static enum status leave_empty(const struct exec *exec, uint64_t buckets, float *gradients)
{
    const struct device_side *side = exec->device;

    while (buckets) {
        const struct device_part part = take_row(exec, &buckets);
        TRY(side->config.face->memory->fill(side->stream, gradients + part.at, 0,
                                            part.count * sizeof(float)));
    }
    return STATUS_OK;
}

/* A shard's sums are added when what others wait for has been sent. */
static enum status run_action(const struct exec *exec, const struct pipe_action *a)
{
    struct device_side *side = exec->device;
    struct device_pipe *pipe = side->pipe;
    const int segment =
        a->is_backward ? 2 * exec->config.pipeline.chunks - 1 - a->chunk : a->chunk;
    const int64_t v = exec->lanes[0].first + a->shard;
    struct tree_stack *stack = &pipe->stacks[segment];
    const int buffer = tree_stack_push(stack, exec->topology.tree_first + v);
    float *gradients = side->gradients + (size_t)buffer * exec->layout.vector;
    const struct kernel_step *step = device_point_to_shard(exec, v, gradients);
    const struct plan *plan = lane_plan_of(&exec->lanes[0], v);

    if (plan)
        TRY(device_pipe_run(exec, plan, segment, a->shard, step));
    else
        TRY(leave_empty(exec, pipe->stage.buckets[segment], gradients));
    for (uint64_t left = pipe->stage.buckets[segment]; left;) {
        const struct device_part part = take_row(exec, &left);
        device_add_along_tree(exec, side->stream, stack, part);
    }
    while (tree_stack_can_add(stack))
        tree_stack_add(stack);
    return STATUS_OK;
}

/* Of a shard without samples there is no loss. */
static enum status clear_results(const struct exec *exec)
{
    const struct device_side *side = exec->device;

    return side->config.face->memory->fill(side->stream, side->results, 0,
                                           2 * (size_t)exec->topology.shards * sizeof(float));
}

enum status device_pipe_step(const struct exec *exec)
{
    struct device_side *side = exec->device;
    struct device_pipe *pipe = side->pipe;
    const struct lane *lane = &exec->lanes[0];
    const struct plan *plan = NULL;

    for (int64_t v = lane->first; v < lane->first + lane->count && !plan; v++)
        plan = lane_plan_of(lane, v);
    BUG_ON(!plan && lane->count == exec->topology.shards); /* a step has samples */
    for (int s = 0; s < 2 * exec->config.pipeline.chunks; s++)
        tree_stack_init(&pipe->stacks[s], exec->topology.tree_shards);
    TRY(clear_results(exec));
    if (plan)
        TRY(device_pipe_move_once(exec, plan));
    for (int64_t i = 0; i < pipe->stage.n_actions; i++)
        TRY(run_action(exec, &pipe->stage.actions[i]));
    device_pipe_end(side);
    for (int group = 0; group < side->n_groups; group++)
        TRY(device_end_group(exec, &pipe->stacks[0], group));
    return STATUS_OK;
}
