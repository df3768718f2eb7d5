/* SPDX-License-Identifier: MIT */
/* aside.c - what a device runs beside the chain of backward.
 *
 * A parameter's gradient is read by nobody before sums and updates: an instruction that makes nothing else goes
 * *aside*, to a second stream, where it fills what the chain leaves free. There it follows all of the chain that comes before it, and one more
 * (device_aside.c). The chain follows only where memory says so: the last instruction aside that writes what it uses or uses
 * what it writes, unless it has waited for that one, or a later one, before.
 *
 * Blocks of the arena are used again as soon as the order of one stream allows, which would have the chain wait at every
 * turn. So what an instruction aside uses lives ASIDE_LAG instructions longer, and their scratch, of which one is needed at a
 * time, is a block that nobody else has.
 */
#include "exec/aside.h"

#include "base/mem.h"
#include "graph/op.h"

/* Memory that an instruction uses. */
struct piece {
    enum base base;
    size_t begin, end;
};

struct uses {
    int n_reads, n_writes;
    struct piece reads[2 * KERNEL_IN + 1], writes[KERNEL_OUT + KERNEL_IN + 2];
};

static bool overlap(const struct piece *a, const struct piece *b)
{
    return a->base == b->base && a->begin < b->end && b->begin < a->end;
}

/* Is any of these among those? */
static bool any_overlap(const struct piece *a, int n_a, const struct piece *b, int n_b)
{
    for (int i = 0; i < n_a; i++) {
        for (int k = 0; k < n_b; k++) {
            if (overlap(&a[i], &b[k]))
                return true;
        }
    }
    return false;
}

/* Must one of them come after the other? */
static bool collide(const struct uses *a, const struct uses *b)
{
    return any_overlap(a->writes, a->n_writes, b->writes, b->n_writes) ||
           any_overlap(a->writes, a->n_writes, b->reads, b->n_reads) ||
           any_overlap(a->reads, a->n_reads, b->writes, b->n_writes);
}

/* Of the arena a whole block: of blocks without places, its number alone. */
static struct piece piece_of(const struct operand *operand, size_t bytes,
                             const struct place_block *placed)
{
    const size_t block = operand->offset >> BLOCK_SHIFT;

    if (operand->base != BASE_ARENA)
        return (struct piece){ operand->base, operand->offset, operand->offset + bytes };
    if (!placed)
        return (struct piece){ BASE_ARENA, block, block + 1 };
    return (struct piece){ BASE_ARENA, placed[block].at,
                           placed[block].at + placed[block].bytes };
}

/* What is sent or received has no tensor. */
static size_t bytes_of(const struct instruction *made, const struct kernel_tensor *tensor)
{
    return made->bytes ? made->bytes
                       : (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

static void add_convert(const struct plan_convert *c, const struct place_block *placed,
                        struct uses *out)
{
    out->reads[out->n_reads++] =
        piece_of(&c->from, c->count * dtype_size(c->from_dtype), placed);
    out->writes[out->n_writes++] = piece_of(&c->to, c->count * dtype_size(c->to_dtype), placed);
}

static void find_uses(const struct instruction *made, const struct place_block *placed,
                      struct uses *out)
{
    const struct kernel_problem *problem = &made->problem;
    const struct operand scratch = { BASE_ARENA, made->scratch };

    for (int i = 0; i < problem->n_in; i++)
        out->reads[out->n_reads++] =
            piece_of(&made->in[i], bytes_of(made, &problem->in[i]), placed);
    for (int i = 0; i < problem->n_out; i++)
        out->writes[out->n_writes++] =
            piece_of(&made->out[i], bytes_of(made, &problem->out[i]), placed);
    for (int i = 0; i < made->n_converts; i++)
        add_convert(&made->converts[i], placed, out);
    if (made->gives.count > 0)
        add_convert(&made->gives, placed, out);
    if (made->has_scratch)
        out->writes[out->n_writes++] = piece_of(&scratch, 0, placed);
}

static enum status find_all_uses(const struct plan *plan, const struct place_block *placed,
                                 struct uses **out)
{
    struct uses *uses;

    TRY(mem_alloc((size_t)plan->n_instructions + 1, sizeof *uses, &uses));
    for (int n = 0; n < plan->n_instructions; n++)
        find_uses(&plan->instructions[n], placed, &uses[n]);
    *out = uses;
    return STATUS_OK;
}

/* Does it make gradients of parameters and nothing else, by itself? What reads parameters stays where they are brought and updated. */
static bool makes_gradients_alone(const struct plan *plan, int n)
{
    const struct instruction *made = &plan->instructions[n];

    if (n < plan->n_forward || !made->kernel || made->fills || made->awaits ||
        made->with_next || (n > 0 && made[-1].with_next))
        return false;
    for (int i = 0; i < made->problem.n_in; i++) {
        if (made->in[i].base == BASE_PARAM || made->in[i].base == BASE_HALF)
            return false;
    }
    for (int i = 0; i < made->problem.n_out; i++) {
        const bool is_turned = i == 0 && made->gives.count > 0;
        if ((is_turned ? made->gives.to : made->out[i]).base != BASE_GRAD)
            return false;
    }
    return true;
}

/* Does the chain need what instruction n writes? */
static bool is_needed(const struct plan *plan, const struct uses *uses, int n)
{
    for (int later = n + 1; later < plan->n_instructions; later++) {
        if (!plan->instructions[later].is_aside &&
            any_overlap(uses[n].writes, uses[n].n_writes, uses[later].reads,
                        uses[later].n_reads))
            return true;
    }
    return false;
}

static void lengthen(struct place_block *blocks, const struct piece *pieces, int count,
                     int last)
{
    for (int i = 0; i < count; i++) {
        if (pieces[i].base == BASE_ARENA && blocks[pieces[i].begin].last < last)
            blocks[pieces[i].begin].last = last;
    }
}

/* All scratch of instructions aside becomes the first one's. */
static void share_scratch(struct plan *plan, struct place_block *blocks)
{
    struct place_block *shared = NULL;
    size_t scratch = 0;

    for (int n = 0; n < plan->n_instructions; n++) {
        struct instruction *made = &plan->instructions[n];
        if (!made->is_aside || !made->has_scratch)
            continue;
        struct place_block *own = &blocks[made->scratch >> BLOCK_SHIFT];
        if (!shared) {
            shared = own;
            scratch = made->scratch;
            continue;
        }
        shared->bytes = own->bytes > shared->bytes ? own->bytes : shared->bytes;
        shared->last = own->last;
        own->bytes = 0;
        made->scratch = scratch;
    }
}

enum status aside_choose(struct plan *plan, const struct device_face *face,
                         struct place_block *blocks)
{
    bool chain_goes_on = false; /* else there is nothing to be beside */
    struct uses *uses;

    if (!face->leaves_room)
        return STATUS_OK;
    TRY(find_all_uses(plan, NULL, &uses));
    for (int n = plan->n_instructions - 1; n >= 0; n--) {
        struct instruction *made = &plan->instructions[n];
        made->is_aside = chain_goes_on && makes_gradients_alone(plan, n) &&
                         face->leaves_room(made->kernel) && !is_needed(plan, uses, n);
        if (!made->is_aside) {
            chain_goes_on = true;
            continue;
        }
        lengthen(blocks, uses[n].reads, uses[n].n_reads, n + ASIDE_LAG);
        lengthen(blocks, uses[n].writes, uses[n].n_writes, n + ASIDE_LAG);
    }
    share_scratch(plan, blocks);
    mem_free(uses);
    return STATUS_OK;
}

enum status aside_link(struct plan *plan, const struct place_block *blocks)
{
    int seen = -1; /* what the chain has waited for */
    struct uses *uses;

    TRY(find_all_uses(plan, blocks, &uses));
    for (int n = 0; n < plan->n_instructions; n++) {
        struct instruction *made = &plan->instructions[n];
        int o = n - 1;

        if (made->is_aside)
            continue;
        while (o > seen && !(plan->instructions[o].is_aside && collide(&uses[o], &uses[n])))
            o--;
        if (o <= seen)
            continue;
        seen = o;
        plan->instructions[o].signals = made->follows = ++plan->n_signals;
    }
    mem_free(uses);
    return STATUS_OK;
}
