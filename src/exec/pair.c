/* SPDX-License-Identifier: MIT */
/* pair.c - finds instructions that a device may run in one launch with the next one.
 *
 * Neither may touch what the other writes, and what both use must be there for both, so this comes before blocks have places. The second
 * one's parameters are there already, and so is room for its gradients.
 */
#include "exec/pair.h"

#include "graph/op.h"

/* The block of an operand; -1: it lies elsewhere. */
static int block_of(const struct operand *operand)
{
    return operand->base == BASE_ARENA ? (int)(operand->offset >> BLOCK_SHIFT) : -1;
}

/* Is anything that one writes read or written by the other? Gradients are written once. */
static bool touches(const struct instruction *writer, const struct instruction *other)
{
    for (int o = 0; o < writer->problem.n_out; o++) {
        const int block = block_of(&writer->out[o]);
        for (int i = 0; i < other->problem.n_in; i++) {
            if (other->in[i].base == BASE_GRAD ||
                (block >= 0 && block_of(&other->in[i]) == block))
                return true;
        }
        for (int i = 0; i < other->problem.n_out; i++) {
            if (block >= 0 && block_of(&other->out[i]) == block)
                return true;
        }
    }
    return false;
}

/* What an operand of an instruction lies in is there from instruction `first` to `last`. */
static void hold(struct place_block *blocks, const struct operand *operand, int first, int last)
{
    const int block = block_of(operand);

    if (block < 0)
        return;
    struct place_block *of = &blocks[block];
    of->first = of->first < first ? of->first : first;
    of->last = of->last > last ? of->last : last;
}

static void hold_all(struct place_block *blocks, const struct instruction *made, int first,
                     int last)
{
    const struct operand scratch = { BASE_ARENA, made->scratch };

    for (int i = 0; i < made->problem.n_in; i++)
        hold(blocks, &made->in[i], first, last);
    for (int i = 0; i < made->problem.n_out; i++)
        hold(blocks, &made->out[i], first, last);
    if (made->has_scratch)
        hold(blocks, &scratch, first, last);
}

/* Is its kernel all of it, so that it may run with another? */
static bool is_plain(const struct instruction *made)
{
    return made->kernel && !made->fills && made->gives.count == 0 &&
           made->node->op != &op_row_sum;
}

void pair_instructions(struct plan *plan, const struct device_face *face,
                       struct place_block *blocks)
{
    for (int n = 0; face->go_together && n + 1 < plan->n_instructions; n++) {
        struct instruction *one = &plan->instructions[n], *next = one + 1;
        if (n + 1 == plan->n_forward || !is_plain(one) || !is_plain(next) || next->awaits ||
            next->n_converts || next->takes || next->begins ||
            !face->go_together(one->kernel, next->kernel) || touches(one, next) ||
            touches(next, one))
            continue;
        one->with_next = true;
        hold_all(blocks, one, n, n + 1);
        hold_all(blocks, next, n, n + 1);
        n++;
    }
}
