/* SPDX-License-Identifier: MIT */
/* plan.c - compiles the shard part of a graph for a shard of given extents.
 *
 * At each instruction the outputs and the scratch take a block of the arena, which dies after its last
 * reader; place.c says where blocks lie when all lives are known. Views share their source's block; an
 * elementwise op writes over an input that dies with it. Where gradients pass (plan_buckets.pass), a
 * bucket of them is such a block, too. In which types and layouts values lie, and what is made of one for a kernel that
 * wants another, is in plan_types.c.
 */
#include "exec/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "exec/aside.h"
#include "exec/pair.h"
#include "exec/plan_maker.h"
#include "exec/talk.h"
#include "graph/op.h"
#include "kernel/precision.h"

enum { ALIGN = 64, DEVICE_ALIGN = 256 };

int plan_bucket_of(const struct value *flat)
{
    return atoi(flat->name + strlen("bucket"));
}

/* Is it kept in the flat vectors of parameters? */
static bool is_kept(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

/* What a shard gives, before ranks gather it. */
static const struct value *given(const struct value *value)
{
    return value->maker && value->maker->op == &op_all_gather ? value->maker->in[0] : value;
}

/* What a table's gradient is made of. */
static const struct value *dy_of(const struct node *row_sum)
{
    return given(row_sum->in[2]);
}

static const struct value *ids_of(const struct node *row_sum)
{
    return given(row_sum->in[0])->maker->in[0];
}

/* The node whose place a table's gradient has on a device: what sorts the ids elsewhere. */
static const struct node *sort_of(const struct node *row_sum)
{
    return given(row_sum->in[0])->maker;
}

static bool has_row_gradient(const struct maker *maker, const struct node *node)
{
    return maker->target && node->op == &op_rows_sort;
}

static const struct node *row_sum_of(const struct maker *maker, const struct node *sort)
{
    for (int n = 0; n < graph_node_count(maker->graph); n++) {
        const struct node *node = graph_node(maker->graph, n);
        if (node->op == &op_row_sum && sort_of(node) == sort)
            return node;
    }
    BUG_ON(true); /* what is sorted is summed */
    return NULL;
}

static bool is_shard_node(const struct maker *maker, const struct node *node)
{
    return node->op->split[0] != SPLIT_WHOLE &&
           pass_is_local(&maker->buckets->pipeline, node->stage);
}

/* Is the node's work left to a plan? */
static bool is_instruction(const struct maker *maker, const struct node *node)
{
    if (!is_shard_node(maker, node) || node->op->is_view || node->op->meets)
        return false;
    for (int i = 0; i < maker->factors->count; i++) {
        const struct plan_factor *factor = &maker->factors->item[i];
        if (factor->is_joint && factor->value == node->out[0])
            return false;
    }
    return true;
}

size_t plan_take(struct maker *maker, size_t bytes, int now, int until)
{
    const size_t align =
        maker->target ? DEVICE_ALIGN : ALIGN; /* libraries' workspaces need it */

    maker->blocks[maker->n_blocks] = (struct place_block){
        .bytes = (bytes + align - 1) / align * align, .first = now, .last = until
    };
    return (size_t)maker->n_blocks++ << BLOCK_SHIFT;
}

/* Blocks have their places now: from a block's number to an address. */
static void settle(const struct maker *maker, size_t *offset)
{
    *offset =
        maker->blocks[*offset >> BLOCK_SHIFT].at + (*offset & (((size_t)1 << BLOCK_SHIFT) - 1));
}

static void settle_operand(const struct maker *maker, struct operand *operand)
{
    if (operand->base == BASE_ARENA)
        settle(maker, &operand->offset);
}

/* What shards give each other lies where all see it. */
static void place_tables(struct maker *maker)
{
    const struct plan_gathers *gathers = maker->gathers;

    for (int i = 0; i < gathers->count; i++) {
        const struct plan_gather *gather = &gathers->item[i];
        struct place *own = &maker->places[gather->node->in[0]->id];
        struct place *all = &maker->places[gather->node->out[0]->id];

        BUG_ON(own->known); /* made by a node, for one gather alone */
        own->known = all->known = true;
        own->operand = (struct operand){ BASE_TABLE, gather->offset + (size_t)gathers->shard *
                                                                          gather->bytes };
        all->operand = (struct operand){ BASE_TABLE, gather->offset };
    }
}

/* What a gradient is added to lies where the sum will. */
static void place_extended(struct maker *maker)
{
    for (int n = graph_node_count(maker->graph) - 1; n >= 0; n--) {
        const struct node *node = graph_node(maker->graph, n);
        const int last = node->op->extends;
        if (last == 0 || node->n_in <= last || node->in[last]->kind != VALUE_RESULT ||
            graph_uses(maker->graph, node->in[last]) > 1)
            continue;
        const struct place *sum = &maker->places[node->out[0]->id];
        struct place *place = &maker->places[node->in[last]->id];
        if (sum->known && !place->known) {
            place->known = true;
            place->operand = sum->operand;
        }
    }
}

/* Where the caller says that a value lies; NULL if it says nothing. */
static const struct operand *find_given(const struct maker *maker, const struct value *value)
{
    for (int i = 0; i < maker->n_given; i++) {
        if (maker->given[i].value == value)
            return &maker->given[i].operand;
    }
    return NULL;
}

/* Of the two numbers that a shard reports: how many are correct has no gradient. */
static bool is_loss(const struct value *number)
{
    const struct node *maker = number->maker;

    return maker->op->gradient ||
           ((maker->op == &op_linear_token_loss || maker->op == &op_softmax_loss) &&
            number == maker->out[0]);
}

/* Places that are known before anything runs. */
static enum status place_given(struct maker *maker)
{
    struct graph_roles *roles = graph_roles((struct graph *)maker->graph);

    for (int i = 0; i < graph_value_count(maker->graph); i++) {
        const struct value *value = graph_value(maker->graph, i);
        const struct value *placed = value;
        const struct operand *given = find_given(maker, value);
        struct place *place = &maker->places[i];

        BUG_ON(!value);
        if (is_kept(value) && !value->flat && !given)
            placed = graph_find_value(maker->places_of, value->name);
        place->root = i;
        place->last_use = -1;
        place->bytes = (size_t)shape_count(&maker->shapes[i]) * dtype_size(maker->dtypes[i]);
        place->known = true;
        if (given) {
            BUG_ON(value->maker && value->maker->op->is_view);
            place->operand = *given;
        } else if (placed && placed->flat) {
            const int bucket = plan_bucket_of(placed->flat);
            place->operand.base = is_kept(value) ? BASE_PARAM : BASE_GRAD;
            place->operand.offset =
                (size_t)(maker->buckets->begin[bucket] + placed->offset) * sizeof(float);
        } else if (value == roles->input) {
            place->operand.base = BASE_INPUT;
        } else if (value == roles->second) {
            place->operand.base = BASE_SECOND;
        } else if (value == roles->target) {
            place->operand.base = BASE_TARGET;
        } else if (is_kept(value) && pass_is_local(&maker->buckets->pipeline, value->stage)) {
            return FAIL(STATUS_MISMATCH, "parameter %s has no place", value->name);
        } else {
            place->known = false;
        }
    }
    for (int i = 0; i < maker->factors->count; i++) {
        const struct plan_factor *factor = &maker->factors->item[i];
        if (factor->value == roles->input)
            continue; /* it is copied there */
        struct place *place = &maker->places[factor->value->id];
        place->known = true;
        place->operand = (struct operand){ BASE_FACTOR, factor->offset };
    }
    place_tables(maker);
    place_extended(maker);
    /* The losses go to the numbers that the shard reports. */
    for (int n = 0; n < graph_node_count(maker->graph); n++) {
        const struct node *node = graph_node(maker->graph, n);
        if (roles->loss && node->op == &op_shard_sum && node->in[0]->kind == VALUE_RESULT) {
            struct place *place = &maker->places[node->in[0]->id];
            place->known = true;
            place->operand.base = is_loss(node->in[0]) ? BASE_LOSS : BASE_CORRECT;
        }
    }
    return STATUS_OK;
}

/* What an evaluation gives is read after its last instruction; training gives gradients alone. */
static void keep_output(struct maker *maker)
{
    const struct value *output = graph_roles((struct graph *)maker->graph)->output;

    if (output && maker->graph != maker->places_of)
        maker->places[maker->places[output->id].root].last_use = graph_node_count(maker->graph);
}

static void find_last_uses(struct maker *maker)
{
    int number = 0;

    for (int n = 0; n < graph_node_count(maker->graph); n++) {
        const struct node *node = graph_node(maker->graph, n);
        if (!is_shard_node(maker, node))
            continue;
        if (node->op->is_view)
            maker->places[node->out[0]->id].root = maker->places[node->in[0]->id].root;
        for (int i = 0; i < node->n_in; i++)
            maker->places[maker->places[node->in[i]->id].root].last_use = number;
        if (has_row_gradient(maker, node)) {
            const struct value *dy = dy_of(row_sum_of(maker, node));
            maker->places[maker->places[dy->id].root].last_use = number;
        }
        number += is_instruction(maker, node);
    }
    keep_output(maker);
}

/* The input whose memory output 0 may take: what the node writes over or adds to. -1: none. */
static int overwritten(const struct node *node)
{
    const int extended = node->op->extends;

    if (node->op->may_overwrite)
        return 0;
    return extended > 0 && node->n_in > extended ? extended : -1;
}

/* The value behind views and gathers of parameters. */
static const struct value *source_of(const struct value *value)
{
    while (value->maker && (value->maker->op->is_view || value->maker->op == &op_all_gather))
        value = value->maker->in[0];
    return value;
}

/* Buckets (bits) whose parameters the node reads, or whose gradients or factors of them it writes. */
static uint64_t buckets_touched(const struct node *node, const struct plan_factors *factors)
{
    uint64_t touched = 0;

    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = source_of(node->in[i]);
        if (in->kind == VALUE_PARAM && in->flat)
            touched |= UINT64_C(1) << plan_bucket_of(in->flat);
    }
    for (int i = 0; i < node->n_out; i++) {
        if (node->out[i]->flat)
            touched |= UINT64_C(1) << plan_bucket_of(node->out[i]->flat);
        for (int f = 0; f < factors->count; f++) {
            if (factors->item[f].value == node->out[i])
                touched |= factors->item[f].buckets;
        }
    }
    return touched;
}

/* Buckets are updated in their order, each after the last instruction that touches it. */
static void find_updates(struct maker *maker)
{
    int number = 0;

    for (int n = 0; n < graph_node_count(maker->graph); n++) {
        const struct node *node = graph_node(maker->graph, n);
        if (!is_instruction(maker, node))
            continue;
        for (uint64_t left = buckets_touched(node, maker->factors); left; left &= left - 1)
            maker->updated[__builtin_ctzll(left)] = number;
        number++;
    }
    for (int b = 1; b < maker->buckets->count; b++) {
        if (maker->updated[b] < maker->updated[b - 1])
            maker->updated[b] = maker->updated[b - 1];
    }
}

/* Turns a place in the flat vector of gradients into one in the arena, where its bucket is from now
 * to its update. */
static void let_bucket_pass(struct maker *maker, struct operand *operand, int number)
{
    const struct plan_buckets *buckets = maker->buckets;
    const size_t element = operand->offset / sizeof(float);
    int b = 0;

    if (operand->base != BASE_GRAD || !buckets->pass)
        return;
    while ((size_t)buckets->begin[b + 1] <= element)
        b++;
    const size_t begin = (size_t)buckets->begin[b] * sizeof(float);
    if (!maker->has_place[b]) {
        const size_t bytes = (size_t)buckets->begin[b + 1] * sizeof(float) - begin;
        maker->has_place[b] = true;
        maker->gradients[b] = plan_take(maker, bytes, number, maker->updated[b]);
    }
    *operand = (struct operand){ BASE_ARENA, maker->gradients[b] + operand->offset - begin };
}

static void place_outputs(struct maker *maker, const struct node *node, int number)
{
    const int over = overwritten(node);

    for (int i = 0; i < node->n_out; i++) {
        struct place *out = &maker->places[node->out[i]->id];
        if (out->known)
            continue;
        const struct place *in = &maker->places[node->in[over < 0 ? 0 : over]->id];
        const struct place *source = &maker->places[in->root];
        const int until = out->last_use > number ? out->last_use : number;
        out->known = true;
        if (i == node->op->overwrites && over >= 0 && source->operand.base == BASE_ARENA &&
            source->last_use == number && source->late_use <= number &&
            source->bytes == out->bytes) {
            out->operand = source->operand;
            maker->blocks[out->operand.offset >> BLOCK_SHIFT].last = until;
        } else {
            out->operand.base = BASE_ARENA;
            out->operand.offset = plan_take(maker, out->bytes, number, until);
        }
    }
}

static size_t boxed(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Where the stage that sends has what goes: in a shard's box, or among what goes once a step. Every stage knows. */
static size_t place_in_box(const struct maker *maker, const struct node *move)
{
    const struct node *own = move->op == &op_send ? move : move->in[0]->maker;
    const int stages = maker->buckets->pipeline.stages;
    size_t at = 0;

    for (int n = 0; graph_node(maker->graph, n) != own; n++) {
        const struct node *node = graph_node(maker->graph, n);
        if (node->op == &op_send && node->stage % stages == own->stage % stages &&
            node->attrs.once == own->attrs.once)
            at += boxed(maker->places[node->out[0]->id].bytes);
    }
    return at;
}

/* Something that goes to another stage, or comes from there: no kernel runs it. */
static void make_move(struct maker *maker, const struct node *node, int number,
                      struct plan *plan, struct instruction *out)
{
    const bool sends = node->op == &op_send;
    struct place *place = &maker->places[node->out[0]->id];

    out->node = node;
    out->problem.n_in = out->problem.n_out = 1;
    out->bytes = place->bytes;
    out->number = sends ? plan->n_sends++ : plan->n_receives++;
    out->at = place_in_box(maker, node);
    out->in[0] = maker->places[maker->places[node->in[0]->id].root].operand;
    if (sends && !node->attrs.once) {
        place->operand = (struct operand){ BASE_OUTBOX, out->at };
        plan->outbox_bytes += boxed(place->bytes);
    } else if (node->attrs.once) {
        place->operand = (struct operand){ BASE_KEPT, plan->kept_bytes };
        plan->kept_bytes += sends ? 0 : boxed(place->bytes);
        plan->once_bytes += sends ? boxed(place->bytes) : 0;
    } else if (!place->known) {
        place->operand.base = BASE_ARENA;
        place->operand.offset = plan_take(maker, place->bytes, number,
                                          place->last_use > number ? place->last_use : number);
    }
    place->known = true;
    out->out[0] = place->operand;
    let_bucket_pass(maker, &out->out[0], number);
}

/* Will a device run it aside, if nothing better is found? */
static bool may_go_aside(const struct maker *maker, const struct instruction *made)
{
    bool may = maker->target && made->kernel && maker->target->face->leaves_room &&
               maker->target->face->leaves_room(made->kernel);

    for (int i = 0; i < made->node->n_out; i++)
        may = may && made->node->out[i]->flat;
    return may && made->node->phase == PHASE_BACKWARD;
}

static void take_scratch(struct maker *maker, struct instruction *out, int number)
{
    const struct kernel *kernel = out->kernel;
    size_t scratch = kernel && kernel->scratch_bytes ? kernel->scratch_bytes(&out->problem) : 0;

    if (!kernel && !maker->target)
        scratch = talk_scratch(&out->problem);

    out->has_scratch = scratch > 0;
    out->scratch = scratch ? plan_take(maker, scratch, number, number) : 0;
}

static enum status make_instruction(struct maker *maker, const struct node *node, int number,
                                    const struct kernel_choices *choices,
                                    struct instruction *out)
{
    struct kernel_problem *problem = &out->problem;

    out->node = node;
    TRY(plan_find_kernel(maker, node, choices, problem, &out->kernel));
    place_outputs(maker, node, number);
    take_scratch(maker, out, number);
    for (int i = 0; i < node->n_in; i++)
        out->in[i] = plan_place_input(maker, out, node->in[i], &problem->in[i], number);
    for (int i = 0; i < node->n_in && may_go_aside(maker, out); i++)
        maker->places[maker->places[node->in[i]->id].root].late_use = number + ASIDE_LAG;
    for (int i = 0; i < node->n_out; i++)
        out->out[i] = maker->places[node->out[i]->id].operand;
    for (int i = 0; i < node->n_out; i++)
        let_bucket_pass(maker, &out->out[i], number);
    for (int i = 0; i < node->n_in; i++)
        let_bucket_pass(maker, &out->in[i], number);
    plan_place_gradient(maker, node, out, number);
    if (out->kernel && out->kernel->prepare)
        TRY(out->kernel->prepare(problem, &out->state));
    return STATUS_OK;
}

/* A shard's gradient of a table, all rows of it: what row_sum makes of sorted ids elsewhere. */
static enum status make_row_gradient(struct maker *maker, const struct node *sum, int number,
                                     const struct kernel_choices *choices,
                                     struct instruction *out)
{
    const struct value *dy = dy_of(sum), *ids = ids_of(sum);
    const struct shape *row = &maker->shapes[dy->id];
    const int64_t table[] = { sum->attrs.rows, row->dim[row->rank - 1] };
    struct kernel_problem *problem = &out->problem;

    out->node = sum;
    *problem = (struct kernel_problem){
        .op = "embedding_grad",
        .n_in = 2,
        .n_out = 1,
        .in = { { DTYPE_F32, LAYOUT_PLAIN, *row },
                { DTYPE_I32, LAYOUT_PLAIN, maker->shapes[ids->id] } },
        .out = { { DTYPE_F32, LAYOUT_PLAIN, shape_of(2, table) } },
        .attrs = { .rows = sum->attrs.rows },
    };
    if (plan_is_narrow(maker))
        kernel_narrow(problem, maker->target->precision);
    TRY(plan_choose(maker, sum, problem, choices, &out->kernel));
    take_scratch(maker, out, number);
    out->in[0] = plan_place_input(maker, out, dy, &problem->in[0], number);
    out->in[1] = plan_place_input(maker, out, ids, &problem->in[1], number);
    out->out[0] =
        (struct operand){ BASE_GRAD,
                          (size_t)maker->buckets->begin[sum->attrs.bucket] * sizeof(float) };
    return out->kernel->prepare ? out->kernel->prepare(problem, &out->state) : STATUS_OK;
}

/* First writes of each bucket's gradients, last touch of its parameters and gradients. */
static void mark_buckets(struct plan *plan, const struct plan_buckets *buckets,
                         const struct plan_factors *factors)
{
    for (int b = 0; b < buckets->count; b++) {
        int last = -1, written = -1;
        for (int n = 0; n < plan->n_instructions; n++) {
            const struct node *node = plan->instructions[n].node;
            for (int i = 0; i < node->n_in; i++) {
                const struct value *in = node->in[i];
                if (in->kind != VALUE_PARAM || !in->flat || plan_bucket_of(in->flat) != b)
                    continue;
                last = n;
            }
            for (int i = 0; i < node->n_out; i++) {
                if (node->out[i]->flat && plan_bucket_of(node->out[i]->flat) == b) {
                    written = written < 0 ? n : written;
                    last = n;
                }
                for (int f = 0; f < factors->count; f++) {
                    if (factors->item[f].value != node->out[i] ||
                        !(factors->item[f].buckets >> b & 1))
                        continue;
                    last = n;
                }
            }
        }
        if (last >= 0)
            plan->instructions[last].after |= UINT64_C(1) << b;
        if (written >= 0)
            plan->instructions[written].begins |= UINT64_C(1) << b;
    }
}

uint64_t plan_reads(const struct node *node, const struct graph *places_of)
{
    uint64_t buckets = 0;

    for (int i = 0; i < node->n_in; i++) {
        const struct value *in = node->in[i];
        while (in->maker && in->maker->op->is_view)
            in = in->maker->in[0];
        if (in->kind == VALUE_PARAM && !in->flat)
            in = graph_find_value(places_of, in->name);
        if (in && in->kind == VALUE_PARAM && in->flat)
            buckets |= UINT64_C(1) << plan_bucket_of(in->flat);
    }
    return buckets;
}

/* Where buckets that are held in parts are first and last read, in forward and in backward. */
static void mark_held(struct plan *plan, const struct maker *maker)
{
    plan->n_forward = 0;
    while (plan->n_forward < plan->n_instructions &&
           plan->instructions[plan->n_forward].node->phase == PHASE_FORWARD)
        plan->n_forward++;
    for (uint64_t left = maker->buckets->held; left; left &= left - 1) {
        const uint64_t bit = left & -left;
        int last = -1;
        for (int n = 0; n < plan->n_instructions; n++) {
            struct instruction *next = &plan->instructions[n];
            if (n == plan->n_forward)
                last = -1; /* backward begins */
            if (!(plan_reads(next->node, maker->places_of) & bit))
                continue;
            if (last < 0)
                next->takes |= bit;
            else
                plan->instructions[last].leaves &= ~bit;
            next->leaves |= bit;
            last = n;
        }
    }
}

/* Is some bucket announced after instruction n, or those that follow it? */
static bool is_announced(const struct plan *plan, int n)
{
    while (n < plan->n_instructions && !plan->instructions[n].after)
        n++;
    return n < plan->n_instructions;
}

/* Which instructions make a table that is gathered, and which are the first to read all of them. What
 * reads one comes before the shard's last announcement: see gather.c. */
static void mark_gathers(struct plan *plan, const struct plan_gathers *gathers)
{
    for (int n = 0; n < plan->n_instructions && gathers->count > 0; n++) {
        struct instruction *next = &plan->instructions[n];
        for (int g = 0; g < gathers->count; g++) {
            const struct node *gather = gathers->item[g].node;
            if (next->node == gather->in[0]->maker) {
                BUG_ON(next->fills);
                next->fills = g + 1;
            }
            for (int i = 0; i < next->node->n_in; i++) {
                if (next->node->in[i] == gather->out[0])
                    next->awaits = g + 1;
            }
        }
        BUG_ON(next->awaits && !is_announced(plan, n));
    }
}

/* Where each segment begins. */
static void mark_segments(struct plan *plan, const struct pass_pipeline *pipeline)
{
    const int chunks = pipeline->chunks, segments = 2 * chunks;
    int n = 0;

    if (pipeline->stages == 0)
        return;
    while (n < plan->n_instructions && plan->instructions[n].node->attrs.once)
        n++;
    plan->segment[0] = n;
    for (int s = 0; s < segments; s++) {
        for (; n < plan->n_instructions; n++) {
            const struct node *made = plan->instructions[n].node;
            const struct node *node = made->op == &op_row_sum ? sort_of(made) : made;
            const int chunk = node->stage < 0 ? 0 : node->stage / pipeline->stages;
            if (s != (node->phase == PHASE_FORWARD ? chunk : segments - 1 - chunk))
                break;
        }
        plan->segment[s + 1] = n;
    }
    BUG_ON(n != plan->n_instructions);
}

/* Places all blocks and turns what the plan has of them into addresses. */
static enum status settle_plan(struct maker *maker, struct plan *plan)
{
    if (maker->target)
        TRY(aside_choose(plan, maker->target->face, maker->blocks));
    TRY(place_blocks(maker->blocks, maker->n_blocks, &plan->arena_bytes));
    if (maker->target)
        TRY(aside_link(plan, maker->blocks));
    for (int n = 0; n < plan->n_instructions; n++) {
        struct instruction *made = &plan->instructions[n];
        for (int i = 0; i < made->problem.n_in; i++)
            settle_operand(maker, &made->in[i]);
        for (int i = 0; i < made->problem.n_out; i++)
            settle_operand(maker, &made->out[i]);
        if (made->has_scratch)
            settle(maker, &made->scratch);
        for (int i = 0; i < made->n_converts; i++) {
            settle_operand(maker, &made->converts[i].from);
            settle_operand(maker, &made->converts[i].to);
        }
        if (made->gives.count > 0) {
            settle_operand(maker, &made->gives.from);
            settle_operand(maker, &made->gives.to);
        }
    }
    for (int b = 0; b < maker->buckets->count; b++) {
        if (maker->has_place[b])
            settle(maker, &plan->gradients[b]);
    }
    if (plan->output_floats)
        settle_operand(maker, &plan->output);
    return STATUS_OK;
}

static enum status add_instruction(struct maker *maker, const struct node *node,
                                   const struct kernel_choices *choices, struct plan *plan)
{
    /* Counted before it is made whole, so that plan_destroy releases its state. */
    const int number = plan->n_instructions++;
    struct instruction *next = &plan->instructions[number];
    enum status status;

    if (node->op->moves) {
        make_move(maker, node, number, plan, next);
        return STATUS_OK;
    }
    next->converts = plan->converts ? plan->converts + maker->n_converts : NULL;
    if (has_row_gradient(maker, node))
        status = make_row_gradient(maker, row_sum_of(maker, node), number, choices, next);
    else
        status = make_instruction(maker, node, number, choices, next);
    if (status != STATUS_OK)
        return FAIL(status, "node %s (%s): %s", node->name, node->op->name, status_message());
    return STATUS_OK;
}

static enum status make_plan(struct maker *maker, const struct kernel_choices *choices,
                             struct plan *plan)
{
    TRY(graph_infer(maker->graph, plan->extents, maker->shapes));
    plan_find_dtypes(maker);
    TRY(place_given(maker));
    find_last_uses(maker);
    find_updates(maker);
    for (int n = 0; n < graph_node_count(maker->graph); n++) {
        const struct node *node = graph_node(maker->graph, n);
        if (is_instruction(maker, node))
            TRY(add_instruction(maker, node, choices, plan));
    }
    mark_buckets(plan, maker->buckets, maker->factors);
    mark_gathers(plan, maker->gathers);
    mark_held(plan, maker);
    mark_segments(plan, &maker->buckets->pipeline);
    const struct value *output = graph_roles((struct graph *)maker->graph)->output;
    if (output &&
        pass_is_local(&maker->buckets->pipeline, output->maker ? output->maker->stage : -1)) {
        const struct shape *shape = &maker->shapes[output->id];
        plan->output = maker->places[maker->places[output->id].root].operand;
        plan->output_floats = shape_count(shape) / shape->dim[0];
        plan->output_dtype = maker->dtypes[maker->places[output->id].root];
    }
    memcpy(plan->gradients, maker->gradients, sizeof plan->gradients);
    if (maker->target)
        pair_instructions(plan, maker->target->face, maker->blocks);
    return settle_plan(maker, plan);
}

/* Room for values in another type: each has one copy at most. */
static enum status make_copies(struct maker *maker, size_t n_values, struct plan *plan)
{
    TRY(mem_alloc(n_values + 1, sizeof *maker->copies, &maker->copies));
    TRY(mem_alloc(n_values + 1, sizeof *maker->has_copy, &maker->has_copy));
    return mem_alloc(n_values + 1, sizeof *plan->converts, &plan->converts);
}

/* Makes the plan of a maker that knows its graph and what is given. */
static enum status create(struct maker *maker, struct extents extents,
                          const struct kernel_choices *choices, struct plan **out)
{
    const size_t n_values = (size_t)graph_value_count(maker->graph);
    const size_t n_nodes = (size_t)graph_node_count(maker->graph);
    struct plan *plan = NULL;

    enum status status = mem_alloc(1, sizeof *plan, &plan);
    if (status == STATUS_OK)
        status = mem_alloc(n_nodes + 1, sizeof *plan->instructions, &plan->instructions);
    if (status == STATUS_OK)
        status = mem_alloc(n_values + 1, sizeof *maker->shapes, &maker->shapes);
    if (status == STATUS_OK)
        status = mem_alloc(n_values + 1, sizeof *maker->places, &maker->places);
    if (status == STATUS_OK)
        status = mem_alloc(2 * (n_nodes + n_values) + GRAPH_NODE_IN, sizeof *maker->blocks,
                           &maker->blocks);
    if (status == STATUS_OK)
        status = mem_alloc(n_values + 1, sizeof *maker->dtypes, &maker->dtypes);
    if (status == STATUS_OK && maker->target)
        status = make_copies(maker, n_values, plan);
    if (status == STATUS_OK) {
        plan->extents = extents;
        status = make_plan(maker, choices, plan);
    }
    mem_free(maker->shapes);
    mem_free(maker->places);
    mem_free(maker->blocks);
    mem_free(maker->dtypes);
    mem_free(maker->copies);
    mem_free(maker->has_copy);
    if (status != STATUS_OK) {
        plan_destroy(plan);
        return status;
    }
    *out = plan;
    return STATUS_OK;
}

enum status plan_create(const struct graph *graph, const struct graph *places_of,
                        struct extents extents, const struct plan_buckets *buckets,
                        const struct plan_factors *factors, const struct plan_gathers *gathers,
                        const struct kernel_choices *choices, struct plan **out)
{
    struct maker maker = { .graph = graph,
                           .places_of = places_of,
                           .buckets = buckets,
                           .factors = factors,
                           .gathers = gathers };
    return create(&maker, extents, choices, out);
}

enum status plan_create_on(const struct plan_target *target, const struct graph *graph,
                           const struct graph *places_of, struct extents extents,
                           const struct plan_buckets *buckets,
                           const struct plan_gathers *gathers,
                           const struct kernel_choices *choices, struct plan **out)
{
    static const struct plan_factors no_factors;
    struct maker maker = { .graph = graph,
                           .places_of = places_of,
                           .buckets = buckets,
                           .factors = &no_factors,
                           .gathers = gathers,
                           .target = target };
    return create(&maker, extents, choices, out);
}

enum status plan_create_given(const struct graph *graph, struct extents extents,
                              const struct plan_given *given, int n_given,
                              const struct kernel_choices *choices, struct plan **out)
{
    static const struct plan_buckets no_buckets;
    static const struct plan_factors no_factors;
    static const struct plan_gathers no_gathers;
    struct maker maker = { .graph = graph,
                           .places_of = graph,
                           .buckets = &no_buckets,
                           .factors = &no_factors,
                           .gathers = &no_gathers,
                           .given = given,
                           .n_given = n_given };
    return create(&maker, extents, choices, out);
}

void plan_destroy(struct plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; plan->instructions && i < plan->n_instructions; i++) {
        struct instruction *made = &plan->instructions[i];
        if (made->state && made->kernel->release)
            made->kernel->release(made->state);
    }
    mem_free(plan->instructions);
    mem_free(plan->converts);
    mem_free(plan->ranges);
    mem_free(plan);
}
