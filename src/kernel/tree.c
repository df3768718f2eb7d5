/* SPDX-License-Identifier: MIT */
/* tree.c - sums along the tree of shards: of vectors, of rows that occur, of losses. */
#include "kernel/tree.h"

#include "base/status.h"
#include "kernel/update.h"

static int64_t padded(int64_t shards)
{
    int64_t size = 1;
    while (size < shards)
        size *= 2;
    return size;
}

void tree_stack_init(struct tree_stack *stack, int64_t shards)
{
    stack->shards = shards;
    stack->count = 0;
}

int tree_stack_push(struct tree_stack *stack, int64_t v)
{
    BUG_ON(stack->count >= 2 * TREE_DEPTH);
    stack->node[stack->count] = (struct tree_node){ v, 1 };
    return stack->count++;
}

/* A node at the right edge stands for its ancestors too, where all their other leaves are absent. */
static struct tree_node widened(struct tree_node node, int64_t shards)
{
    const int64_t size = padded(shards);

    while (node.length < size && node.begin % (2 * node.length) == 0 &&
           node.begin + node.length >= shards)
        node.length *= 2;
    return node;
}

bool tree_stack_can_add(const struct tree_stack *stack)
{
    if (stack->count < 2)
        return false;
    const struct tree_node left = stack->node[stack->count - 2];
    const struct tree_node right = widened(stack->node[stack->count - 1], stack->shards);
    return right.length >= left.length && left.begin % (2 * left.length) == 0 &&
           left.begin + left.length == right.begin && right.length == left.length;
}

void tree_stack_add(struct tree_stack *stack)
{
    stack->count--;
    stack->node[stack->count - 1].length *= 2;
}

int tree_buffers(int64_t shards, int64_t first, int64_t count)
{
    struct tree_stack stack;
    int most = 0;

    tree_stack_init(&stack, shards);
    for (int64_t v = first; v < first + count; v++) {
        tree_stack_push(&stack, v);
        most = stack.count > most ? stack.count : most;
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    return most;
}

int tree_row(int64_t shards, int64_t first, int64_t count, struct tree_node *out)
{
    struct tree_stack stack;

    tree_stack_init(&stack, shards);
    for (int64_t v = first; v < first + count; v++) {
        tree_stack_push(&stack, v);
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    for (int i = 0; i < stack.count; i++)
        out[i] = stack.node[i];
    return stack.count;
}

struct combine {
    const struct tree_part *parts;
    int n_parts;
    int64_t shards;
    size_t at, count;
    float *scratch;
    bool may_miss; /* leaves that no part has */
};

/* Sum over the leaves of [begin, begin + length); NULL if all are absent. Level counts scratch. */
static const float *combine_node(const struct combine *c, int64_t begin, int64_t length,
                                 int level)
{
    if (begin >= c->shards)
        return NULL;
    for (int i = 0; i < c->n_parts; i++) {
        const struct tree_node part = c->parts[i].node;
        if (part.begin == begin && widened(part, c->shards).length >= length &&
            part.length <= length)
            return c->parts[i].data + c->at;
    }
    if (length == 1 && c->may_miss)
        return NULL;
    BUG_ON(length == 1 || level >= TREE_DEPTH);
    const float *left = combine_node(c, begin, length / 2, level + 1);
    /* The left sum may lie in scratch of the level below: keep it before the right one comes. */
    float *mine = c->scratch + (size_t)level * TREE_STRETCH;
    const float *right;
    if (left >= c->scratch && left < c->scratch + TREE_SCRATCH) {
        for (size_t i = 0; i < c->count; i++)
            mine[i] = left[i];
        left = mine;
    }
    right = combine_node(c, begin + length / 2, length / 2, level + 1);
    if (!right || !left)
        return right ? right : left;
    kernel_add(mine, left, right, c->count);
    return mine;
}

const float *tree_combine(const struct tree_part *parts, int n_parts, int64_t shards, size_t at,
                          size_t count, float *scratch)
{
    const struct combine c = { parts, n_parts, shards, at, count, scratch, false };

    if (n_parts == 1)
        return parts[0].data + at;
    if (n_parts == 2) {
        kernel_add(scratch, parts[0].data + at, parts[1].data + at, count);
        return scratch;
    }
    return combine_node(&c, 0, padded(shards), 0);
}

const float *tree_combine_some(const struct tree_part *parts, int n_parts, int64_t shards,
                               size_t at, size_t count, float *scratch)
{
    const struct combine c = { parts, n_parts, shards, at, count, scratch, true };

    return combine_node(&c, 0, padded(shards), 0);
}

const float *tree_combine_node(const struct tree_part *parts, int n_parts, int64_t shards,
                               struct tree_node node, size_t at, size_t count, float *scratch)
{
    const struct combine c = { parts, n_parts, shards, at, count, scratch, false };

    return combine_node(&c, node.begin, node.length, 0);
}

/* Additions as a list ------------------------------------------------------------------------ */

struct lister {
    const struct tree_node *parts;
    int n_parts;
    int64_t shards;
    struct tree_addition *next;
    int scratch; /* vectors */
};

/* The operand that has the sum of a node's leaves, -1 if all are absent. Vectors of scratch below
 * `level` are taken. */
static int list_node(struct lister *l, int64_t begin, int64_t length, int level)
{
    if (begin >= l->shards)
        return -1;
    for (int i = 0; i < l->n_parts; i++) {
        const struct tree_node part = l->parts[i];
        if (part.begin == begin && widened(part, l->shards).length >= length &&
            part.length <= length)
            return i;
    }
    BUG_ON(length == 1);
    const int left = list_node(l, begin, length / 2, level);
    const bool is_taken = left == l->n_parts + level;
    const int right = list_node(l, begin + length / 2, length / 2, level + is_taken);
    if (right < 0)
        return left;
    *l->next++ = (struct tree_addition){ left, right, l->n_parts + level };
    l->scratch = level + 1 > l->scratch ? level + 1 : l->scratch;
    return l->n_parts + level;
}

int tree_additions(const struct tree_node *parts, int n_parts, int64_t shards,
                   struct tree_addition *out, int *out_result)
{
    struct lister lister = { parts, n_parts, shards, out, 0 };

    *out_result = list_node(&lister, 0, padded(shards), 0);
    BUG_ON(lister.next != out + n_parts - 1);
    return lister.scratch;
}

/* Rows that some shards have -------------------------------------------------------------- */

/* Levels above the leaves at which two shards come together. */
static int meeting(int64_t a, int64_t b)
{
    return a == b ? 0 : 64 - __builtin_clzll((unsigned long long)(a ^ b));
}

static void add_last_two(struct tree_sums *sums)
{
    float *left = sums->data + (size_t)(sums->count - 2) * sums->floats;

    kernel_add(left, left, left + sums->floats, sums->width);
    sums->count--;
}

/* Each partial sum is known by some shard that it is the sum of; what meets below is added first. */
float *tree_sums_push(struct tree_sums *sums, int64_t shard)
{
    while (sums->count > 1 &&
           meeting(sums->shard[sums->count - 2], sums->shard[sums->count - 1]) <
               meeting(sums->shard[sums->count - 1], shard))
        add_last_two(sums);
    BUG_ON(sums->count == TREE_DEPTH);
    sums->shard[sums->count] = shard;
    return sums->data + (size_t)sums->count++ * sums->floats;
}

void tree_sums_end(struct tree_sums *sums)
{
    while (sums->count > 1)
        add_last_two(sums);
}

static double sum_node(const float *numbers, int64_t count, int64_t begin, int64_t length)
{
    if (length == 1)
        return (double)numbers[begin];
    double sum = sum_node(numbers, count, begin, length / 2);
    if (begin + length / 2 < count)
        sum += sum_node(numbers, count, begin + length / 2, length / 2);
    return sum;
}

double tree_sum(const float *numbers, int64_t count)
{
    return count > 0 ? sum_node(numbers, count, 0, padded(count)) : 0;
}
