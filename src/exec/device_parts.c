/* SPDX-License-Identifier: MIT */
/* device_parts.c - gradients (zero=2) and parameters (zero=3) of which a rank has a part and a
 * window, on devices.
 *
 * Flat vectors keep their numbering: plans, updates and copies name elements as ever. Where these
 * lie is asked for here. Groups of buckets (device_side.h) have places in a window, which groups
 * share that are not needed at the same time; lives are counted in nodes of the graph, whose order
 * all plans have, so places are the same on every rank and in every step.
 *
 *   gradients    from the first that is written until all ranks have summed the group. Who writes the next one to the
 *                place waits for that. With several shards a rank, all stay until the last: the whole vector is there.
 *   parameters   a rank keeps the parts that it updates, packed as its state is. Before the first reader of a group, in
 *                forward, in backward and in an evaluation, all ranks' parts are copied into the window.
 *
 * Why two meetings a group are still enough: an owner updates its part after all ranks are ready,
 * each after the last of its copies of this step; they copy again in the next step, after all are
 * done. Groups with averages or tables of rows stay whole: they have a place of their own in the
 * window, and come as without parts.
 */
#include <stdlib.h>

#include "base/mem.h"
#include "exec/device_side.h"
#include "exec/place.h"
#include "graph/op.h"

enum { ALIGN = 256, GRADIENTS = PARTS_KINDS, LIVES };

/* Numbers of nodes; first -1: none. */
struct life {
    int first, last;
};

struct device_parts {
    bool has_gradients, has_params;  /* in windows */
    uint32_t held;                   /* groups (bits) whose parameters are */
    size_t at[LIVES][DEVICE_GROUPS]; /* of each kind's window: elements; of gradients */
    struct life lives[LIVES][DEVICE_GROUPS];
    size_t grad_count, param_count; /* elements of the windows */
    float *own;                     /* parts of this rank */
    float *window;
    uint16_t *half;
    /* Of the run that goes on. */
    enum parts_kind kind;
    uint32_t here;    /* groups whose parameters were brought in this phase */
    uint32_t written; /* groups that gradients were written of */
    uint32_t ended;   /* groups that were summed */
};

/* Lives ------------------------------------------------------------------------------------ */

static int group_of_bucket(const struct device_side *side, int bucket)
{
    int group = 0;

    while (bucket >= side->groups[group].end)
        group++;
    return group;
}

static int group_of_element(const struct device_side *side, size_t element)
{
    int group = side->n_groups - 1;

    while (element < side->groups[group].at)
        group--;
    return group;
}

static void lengthen(struct life *life, int now)
{
    life->first = life->first < 0 ? now : life->first;
    life->last = now > life->last ? now : life->last;
}

static void note_reads(const struct exec *exec, const struct node *node, enum parts_kind kind,
                       int now)
{
    struct device_parts *parts = exec->device->parts;

    for (uint64_t left = plan_reads(node, exec->config.train); left; left &= left - 1) {
        const int group = group_of_bucket(exec->device, __builtin_ctzll(left));
        lengthen(&parts->lives[kind][group], now);
        /* Nobody updates what is read. */
        if (kind != PARTS_EVALUATION && parts->lives[GRADIENTS][group].first >= 0)
            parts->lives[GRADIENTS][group].last = now;
    }
}

/* The flat vector that a value goes to: its own, or that of a sum which is added to where it lies
 * (plan.c). NULL: none. */
static const struct value *flat_of(const struct graph *graph, const struct value *value)
{
    for (int n = 0; n < graph_node_count(graph) && !value->flat; n++) {
        const struct node *node = graph_node(graph, n);
        const int extended = node->op->extends;
        if (extended > 0 && node->n_in > extended && node->in[extended] == value)
            return flat_of(graph, node->out[0]);
    }
    return value->flat;
}

/* Of a table the sum is made after the last node. */
static void note_writes(const struct exec *exec, const struct node *node, int now, int end)
{
    const struct device_side *side = exec->device;

    for (int i = 0; i < node->n_out; i++) {
        const struct value *flat = flat_of(exec->config.train, node->out[i]);
        if (flat)
            lengthen(
                &side->parts->lives[GRADIENTS][group_of_bucket(side, plan_bucket_of(flat))],
                now);
    }
    for (int b = 0; b < exec->layout.buckets.count && node->op == &op_rows_sort; b++) {
        if (bucket_is_table(&exec->layout, b)) {
            lengthen(&side->parts->lives[GRADIENTS][group_of_bucket(side, b)], now);
            lengthen(&side->parts->lives[GRADIENTS][group_of_bucket(side, b)], end);
        }
    }
}

static void find_lives(const struct exec *exec)
{
    const struct graph *train = exec->config.train, *eval = exec->config.eval;
    struct device_parts *parts = exec->device->parts;
    const int end = graph_node_count(train);

    for (int kind = 0; kind < LIVES; kind++) {
        for (int g = 0; g < DEVICE_GROUPS; g++)
            parts->lives[kind][g] = (struct life){ -1, -1 };
    }
    for (int n = 0; n < end; n++) {
        const struct node *node = graph_node(train, n);
        if (node->op->split[0] == SPLIT_WHOLE)
            continue;
        note_writes(exec, node, n, end);
        note_reads(exec, node, node->phase == PHASE_FORWARD ? PARTS_FORWARD : PARTS_BACKWARD,
                   n);
    }
    for (int n = 0; eval && n < graph_node_count(eval); n++)
        note_reads(exec, graph_node(eval, n), PARTS_EVALUATION, n);
    for (int g = 1; g < exec->device->n_groups; g++) { /* groups end in their order */
        struct life *life = &parts->lives[GRADIENTS][g];
        if (parts->lives[GRADIENTS][g - 1].last > life->last)
            life->last = parts->lives[GRADIENTS][g - 1].last;
    }
}

/* Places ----------------------------------------------------------------------------------- */

/* A group's place in a kind's window, while it is looked for. */
struct wish {
    struct place_block block;
    int kind, group;
};

static int by_first(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;

    return x->block.first != y->block.first ? x->block.first - y->block.first
           : x->kind != y->kind             ? x->kind - y->kind
                                            : x->group - y->group;
}

static enum status place(const struct exec *exec, struct wish *wishes, int count,
                         size_t *out_elements)
{
    struct device_parts *parts = exec->device->parts;
    struct place_block *blocks;
    size_t bytes;

    qsort(wishes, (size_t)count, sizeof *wishes, by_first);
    TRY(mem_alloc((size_t)count + 1, sizeof *blocks, &blocks));
    for (int i = 0; i < count; i++)
        blocks[i] = wishes[i].block;
    const enum status status = place_blocks(blocks, count, &bytes);
    for (int i = 0; i < count; i++)
        parts->at[wishes[i].kind][wishes[i].group] = blocks[i].at / sizeof(float);
    mem_free(blocks);
    *out_elements = bytes / sizeof(float);
    return status;
}

static struct wish wish_of(const struct device_side *side, int kind, int group, int first,
                           int last)
{
    const size_t bytes = side->groups[group].count * sizeof(float);

    return (struct wish){
        .block = { .bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN, .first = first, .last = last },
        .kind = kind,
        .group = group
    };
}

static enum status place_gradients(const struct exec *exec)
{
    const struct device_side *side = exec->device;
    struct wish wishes[DEVICE_GROUPS];
    int count = 0;

    for (int g = 0; g < side->n_groups; g++) {
        const struct life *life = &side->parts->lives[GRADIENTS][g];
        const int last = graph_node_count(exec->config.train);
        wishes[count++] = wish_of(side, GRADIENTS, g, life->first < 0 ? 0 : life->first,
                                  life->first < 0 ? last : life->last);
    }
    return place(exec, wishes, count, &side->parts->grad_count);
}

/* Forward, backward and evaluations follow each other. A group that is whole has one place all the
 * time. */
static enum status place_params(const struct exec *exec)
{
    const struct device_side *side = exec->device;
    struct device_parts *parts = side->parts;
    const int train = graph_node_count(exec->config.train);
    const int all = 2 * train + (exec->config.eval ? graph_node_count(exec->config.eval) : 0);
    struct wish wishes[PARTS_KINDS * DEVICE_GROUPS];
    int count = 0;

    for (int g = 0; g < side->n_groups; g++) {
        if (!(parts->held >> g & 1)) {
            wishes[count++] = wish_of(side, PARTS_FORWARD, g, 0, all);
            continue;
        }
        for (int kind = 0; kind < PARTS_KINDS; kind++) {
            const struct life *life = &parts->lives[kind][g];
            if (life->first >= 0)
                wishes[count++] = wish_of(side, kind, g, kind * train + life->first,
                                          kind * train + life->last);
        }
    }
    TRY(place(exec, wishes, count, &parts->param_count));
    for (int g = 0; g < side->n_groups; g++) {
        if (!(parts->held >> g & 1))
            parts->at[PARTS_BACKWARD][g] = parts->at[PARTS_EVALUATION][g] =
                parts->at[PARTS_FORWARD][g];
    }
    return STATUS_OK;
}

/* Making ----------------------------------------------------------------------------------- */

static bool has_one_shard_each(const struct exec *exec)
{
    return exec->topology.shards == exec->topology.ranks;
}

enum status parts_create(struct exec *exec)
{
    struct device_side *side = exec->device;
    struct device_parts *parts;

    if (exec->topology.ranks == 1 || exec->config.zero < 2 || exec->config.batch == 0)
        return STATUS_OK;
    TRY(mem_alloc(1, sizeof *parts, &parts));
    side->parts = parts;
    parts->has_gradients = has_one_shard_each(exec);
    parts->has_params = exec->config.zero == 3;
    for (int g = 0; g < side->n_groups && parts->has_params; g++) {
        bool is_held = true;
        for (int b = side->groups[g].first; b < side->groups[g].end; b++)
            is_held = is_held && exec->layout.buckets.held >> b & 1;
        parts->held |= (uint32_t)is_held << g;
    }
    find_lives(exec);
    if (parts->has_gradients)
        TRY(place_gradients(exec));
    return parts->has_params ? place_params(exec) : STATUS_OK;
}

void parts_destroy(struct device_side *side)
{
    mem_free(side->parts);
    side->parts = NULL;
}

size_t parts_gradients(const struct exec *exec)
{
    const struct device_parts *parts = exec->device->parts;

    return parts && parts->has_gradients ? parts->grad_count : exec->layout.vector;
}

size_t parts_own(const struct device_side *side)
{
    return side->parts && side->parts->has_params ? side->state_count : 0;
}

size_t parts_window(const struct exec *exec)
{
    const struct device_parts *parts = exec->device->parts;

    return parts && parts->has_params ? parts->param_count : exec->layout.vector;
}

void parts_place(struct device_side *side, float *own)
{
    if (!side->parts)
        return;
    side->parts->own = own;
    side->parts->window = side->param;
    side->parts->half = side->half;
}

/* Addresses -------------------------------------------------------------------------------- */

static size_t shifted(const struct device_side *side, int kind, size_t element)
{
    const int group = group_of_element(side, element);

    return side->parts->at[kind][group] + element - side->groups[group].at;
}

float *parts_gradient(const struct exec *exec, int buffer, size_t element)
{
    const struct device_side *side = exec->device;

    if (side->parts && side->parts->has_gradients)
        return side->gradients + shifted(side, GRADIENTS, element);
    return side->gradients + (size_t)buffer * exec->layout.vector + element;
}

size_t parts_param(const struct device_side *side, size_t element)
{
    const struct device_parts *parts = side->parts;

    return parts && parts->has_params ? shifted(side, (int)parts->kind, element) : element;
}

bool parts_hold(const struct device_side *side, int group)
{
    return side->parts && side->parts->held >> group & 1;
}

char *parts_address(const struct device_side *side, const struct operand *operand)
{
    const struct device_parts *parts = side->parts;

    if (parts && operand->base == BASE_GRAD && parts->has_gradients)
        return (char *)(side->gradients +
                        shifted(side, GRADIENTS, operand->offset / sizeof(float)));
    if (parts && operand->base == BASE_PARAM)
        return (char *)(side->param + parts_param(side, operand->offset / sizeof(float)));
    if (parts && operand->base == BASE_HALF)
        return (char *)(side->half + parts_param(side, operand->offset / sizeof(uint16_t)));
    return side->bases[operand->base] + operand->offset;
}

/* Where rank r's part of a stretch is among what it packs. */
static size_t packed_at(const struct exec *exec, const struct device_stretch *stretch, int r)
{
    size_t at = 0;

    for (const struct device_stretch *s = exec->device->stretches; s < stretch; s++)
        at += device_packed(exec, s, r);
    return at;
}

float *parts_owned(const struct exec *exec, const struct device_stretch *stretch, int r)
{
    const struct device_side *side = exec->device;

    return ranks_theirs(side, r, side->parts->own + packed_at(exec, stretch, r));
}

/* A run ------------------------------------------------------------------------------------ */

void parts_begin(const struct device_side *side, enum parts_kind kind)
{
    struct device_parts *parts = side->parts;

    if (!parts)
        return;
    parts->kind = kind;
    parts->here = 0;
    if (kind == PARTS_FORWARD)
        parts->written = parts->ended = 0;
}

/* All ranks' parts of a group come to its place. */
static enum status bring(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;
    const struct device_group *of = &side->groups[group];
    const size_t at = parts_param(side, of->at);

    for (int i = 0; i < side->n_stretches; i++) {
        const struct device_stretch *stretch = &side->stretches[i];
        for (int r = 0; r < exec->topology.ranks && stretch->group == group; r++) {
            const struct device_part part = ranks_part(exec, stretch, r);
            if (part.count > 0)
                TRY(side->config.face->memory->copy(
                    side->stream, side->param + at + part.at - of->at,
                    parts_owned(exec, stretch, r), part.count * sizeof(float)));
        }
    }
    if (side->half)
        side->config.face->convert(side->stream, side->half + at, side->config.precision,
                                   side->param + at, DTYPE_F32, of->count);
    return STATUS_OK;
}

/* Do two groups' gradients lie where the other's do? */
static bool share_place(const struct device_side *side, int g, int h)
{
    const size_t *at = side->parts->at[GRADIENTS];

    return at[g] < at[h] + side->groups[h].count && at[h] < at[g] + side->groups[g].count;
}

enum status parts_begin_gradients(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;
    struct device_parts *parts = side->parts;

    if (!parts || !parts->has_gradients || parts->written >> group & 1)
        return STATUS_OK;
    parts->written |= UINT32_C(1) << group;
    for (int g = 0; g < side->n_groups && side->sums != side->stream; g++) {
        if (parts->ended >> g & 1 && share_place(side, g, group))
            TRY(side->config.face->stream->wait_event(side->stream, side->groups[g].done));
    }
    return aside_leave(side); /* also who writes there */
}

enum status parts_before(const struct exec *exec, const struct plan *plan, int number)
{
    const struct device_side *side = exec->device;
    const struct instruction *next = &plan->instructions[number];
    struct device_parts *parts = side->parts;

    if (!parts)
        return STATUS_OK;
    if (parts->kind == PARTS_FORWARD && number >= plan->n_forward)
        parts_begin(side, PARTS_BACKWARD);
    for (uint64_t left = next->takes; left; left &= left - 1) {
        const int group = group_of_bucket(side, __builtin_ctzll(left));
        if (!(parts->held >> group & 1) || parts->here >> group & 1)
            continue;
        parts->here |= UINT32_C(1) << group;
        TRY(bring(exec, group));
    }
    for (int i = 0; i < next->problem.n_out; i++) {
        const bool is_turned = i == 0 && next->gives.count > 0;
        const struct operand *out = is_turned ? &next->gives.to : &next->out[i];
        if (out->base == BASE_GRAD)
            TRY(parts_begin_gradients(exec,
                                      group_of_element(side, out->offset / sizeof(float))));
    }
    return STATUS_OK;
}

enum status parts_end_group(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;

    if (!side->parts || !side->parts->has_gradients || side->sums == side->stream)
        return STATUS_OK;
    side->parts->ended |= UINT32_C(1) << group;
    return side->config.face->stream->record(side->sums, side->groups[group].done);
}
