/* SPDX-License-Identifier: MIT */
/* device_ranks.c - several ranks of a machine on devices: they read each other's memory, and their
 * streams wait for each other.
 *
 * Every rank's block of device memory is laid out alike, and open to all others. In a step a rank
 * runs its shards; when its gradients of a group of buckets are final, there follow, on a stream
 * beside the other if there are several groups:
 *
 *   signal ready, await all ready   gradients, losses and marks of all ranks are final
 *   sum and update its part         partial sums along the tree of shards, read where they lie
 *   signal done, await all done     all parameters are new, and nobody reads gradients of this step any more
 *   take the others' parts          of the parameters
 *
 * State is there where it is updated. Where the norm of all gradients is needed before, each keeps
 * the sums of its parts and, when all have their squares (device_squares.c), updates all groups,
 * with one meeting more behind that:
 *
 *   signal ready, await all ready   of each group
 *   sum its part and its squares
 *   signal done, await all done     nobody reads the group's gradients any more; of the last one: squares of all are there
 *   update all parts
 *   signal updated, await all       all parameters are new
 *
 * Where norms of parameters are needed, or so many ranks cannot tell each other squares, each rank
 * sums and updates everything, the same way, and takes nothing. A rank writes to its own block
 * alone, but for words of others, which it makes 1. Why two meetings are enough: gradients are
 * written again after done of all groups, parameters after the next ready, when all have taken
 * them; a word is made 1 again after the other one of its pair has come back.
 *
 * Shards that exchange batch statistics meet once for each gather, on the way: a table is written
 * again after done. What happens when a rank is lost: device_watch.c. Ranks whose devices do not
 * reach each other's memory send each other what is needed of it instead (device_team.c).
 */
#include <string.h>

#include "base/mem.h"
#include "exec/device_side.h"

enum { LINE = DEVICE_LINE, PART_UNIT = 64 };
enum meeting { READY, DONE, MEETINGS };

/* A partial sum that some rank holds when its shards have run. */
struct held {
    int rank, buffer;
};

/* What ranks tell each other before they share. */
struct introduction {
    struct device_handle handle;
    char name[DEVICE_TEXT];
    uint64_t bytes; /* of what is laid out alike: all but the feed */
    uint64_t precision;
};

struct device_ranks {
    char *block[DEVICE_PEERS]; /* of each rank, as this process sees it */
    struct introduction *known;
    struct held *held; /* from left to right */
    struct tree_node *nodes;
    int n_held;
    struct tree_addition *additions; /* n_held - 1 */
    int n_scratch, result;
    size_t scratch_each; /* elements of a vector of scratch */
    float *scratch;
    /* Of each group MEETINGS, then one for each gather, then that of all updates. */
    int n_meetings;
    char *words; /* of this rank: of each meeting a line for each rank */
    struct device_words *out, *in;
};

/* What is whose --------------------------------------------------------------------------- */

bool ranks_update_all(const struct exec *exec)
{
    return exec->layout.facts.rule.adapts ||
           (sums_need_norm(&exec->sums) && exec->topology.ranks > JOINT_RANKS);
}

static size_t common_multiple(size_t a, size_t b)
{
    size_t x = a, y = b;

    while (y > 0) {
        const size_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Elements that one rank has: whole rows of tables, and whole pieces that squares are summed of. */
static size_t unit_of(const struct exec *exec, const struct device_stretch *stretch)
{
    const size_t width = stretch->table >= 0 ? (size_t)stretch->bucket->width : 1;

    if (norms_are_used(&exec->sums))
        return common_multiple(width, DEVICE_PIECE);
    return stretch->table >= 0 ? width : PART_UNIT;
}

struct device_part ranks_share(const struct exec *exec, const struct device_stretch *stretch,
                               int r)
{
    const size_t unit = unit_of(exec, stretch);
    const size_t units = (stretch->count + unit - 1) / unit,
                 ranks = (size_t)exec->topology.ranks;
    const size_t begin = units * (size_t)r / ranks * unit;
    const size_t end = units * ((size_t)r + 1) / ranks * unit;

    return (struct device_part){ stretch->at + begin,
                                 (end < stretch->count ? end : stretch->count) - begin };
}

struct device_part ranks_part(const struct exec *exec, const struct device_stretch *stretch,
                              int r)
{
    if (ranks_update_all(exec))
        return (struct device_part){ stretch->at, stretch->count };
    return ranks_share(exec, stretch, r);
}

int ranks_buffers(const struct exec *exec)
{
    int most = 0;

    for (int r = 0; r < exec->topology.ranks; r++) {
        int64_t first, count;
        exec_lane_row(exec, r, &first, &count);
        const int buffers =
            tree_buffers(exec->topology.tree_shards, exec->topology.tree_first + first, count);
        most = buffers > most ? buffers : most;
    }
    return most;
}

/* Notes the partial sums that rank r ends with. */
static void find_held(const struct exec *exec, struct device_ranks *ranks, int r)
{
    struct tree_stack stack;
    int64_t first, count;

    exec_lane_row(exec, r, &first, &count);
    tree_stack_init(&stack, exec->topology.tree_shards);
    for (int64_t v = first; v < first + count; v++) {
        tree_stack_push(&stack, exec->topology.tree_first + v);
        while (tree_stack_can_add(&stack))
            tree_stack_add(&stack);
    }
    for (int i = 0; i < stack.count; i++) {
        ranks->held[ranks->n_held] = (struct held){ r, i };
        ranks->nodes[ranks->n_held++] = stack.node[i];
    }
}

void ranks_held(const struct exec *exec, int r, int *first, int *count)
{
    const struct device_ranks *ranks = exec->device->ranks;

    for (*first = 0; ranks->held[*first].rank != r; ++*first)
        continue;
    for (*count = 0; *first + *count < ranks->n_held; ++*count) {
        if (ranks->held[*first + *count].rank != r)
            return;
    }
}

/* The largest part of a stretch, or all of the vector. */
static size_t largest_part(const struct exec *exec)
{
    size_t most = 0;

    if (ranks_update_all(exec))
        return exec->layout.vector;
    for (int i = 0; i < exec->device->n_stretches; i++) {
        for (int r = 0; r < exec->topology.ranks; r++) {
            const size_t count = ranks_part(exec, &exec->device->stretches[i], r).count;
            most = count > most ? count : most;
        }
    }
    return (most + PART_UNIT - 1) / PART_UNIT * PART_UNIT;
}

/* Making ----------------------------------------------------------------------------------- */

enum status ranks_create(struct exec *exec)
{
    const size_t most = (size_t)exec->topology.ranks * 2 * TREE_DEPTH;
    struct device_side *side = exec->device;
    struct device_ranks *ranks;

    TRY(mem_alloc(1, sizeof *ranks, &ranks));
    side->ranks = ranks;
    TRY(mem_alloc(most, sizeof *ranks->held, &ranks->held));
    TRY(mem_alloc(most, sizeof *ranks->nodes, &ranks->nodes));
    TRY(mem_alloc(most, sizeof *ranks->additions, &ranks->additions));
    for (int r = 0; r < exec->topology.ranks; r++)
        find_held(exec, ranks, r);
    ranks->n_scratch = tree_additions(ranks->nodes, ranks->n_held, exec->topology.tree_shards,
                                      ranks->additions, &ranks->result);
    ranks->scratch_each = largest_part(exec);
    TRY(team_choose(exec));
    ranks->n_meetings =
        side->team ? 0 : side->n_groups * MEETINGS + exec->layout.gathers.count + 1;
    TRY(mem_alloc((size_t)ranks->n_meetings, sizeof *ranks->out, &ranks->out));
    return mem_alloc((size_t)ranks->n_meetings, sizeof *ranks->in, &ranks->in);
}

size_t ranks_words_bytes(const struct exec *exec)
{
    if (exec->device->team)
        return team_bytes(exec);
    return (size_t)exec->device->ranks->n_meetings * (size_t)exec->topology.ranks * LINE;
}

size_t ranks_scratch_bytes(const struct exec *exec)
{
    const struct device_ranks *ranks = exec->device->ranks;

    return (size_t)ranks->n_scratch * ranks->scratch_each * sizeof(float);
}

void ranks_place(struct device_side *side, void *words, void *scratch)
{
    struct device_ranks *ranks = side->ranks;

    ranks->words = words;
    if (side->team)
        team_place(side, words);
    ranks->scratch = scratch;
    if (scratch)
        side->sum =
            ranks->scratch + (size_t)(ranks->result - ranks->n_held) * ranks->scratch_each;
}

void *ranks_theirs(const struct device_side *side, int r, const void *mine)
{
    return side->ranks->block[r] + ((const char *)mine - side->memory);
}

/* The word by which `from` tells the owner of these that it is there. */
static uint32_t *word_of(const struct exec *exec, char *words, int meeting, int from)
{
    return (uint32_t *)(words + (size_t)(meeting * exec->topology.ranks + from) * LINE);
}

/* Words of others that this rank makes 1, and its own that they do. */
static void find_words(const struct exec *exec, int meeting)
{
    const struct device_side *side = exec->device;
    struct device_ranks *ranks = side->ranks;
    struct device_words *out = &ranks->out[meeting], *in = &ranks->in[meeting];

    for (int r = 0; r < exec->topology.ranks; r++) {
        if (r == exec->topology.rank)
            continue;
        char *words = ranks_theirs(side, r, ranks->words);
        out->word[out->count++] = word_of(exec, words, meeting, exec->topology.rank);
        in->word[in->count++] = word_of(exec, ranks->words, meeting, r);
    }
}

static enum status introduce(const struct exec *exec, const struct device_handle *own,
                             struct introduction *all)
{
    const struct device_side *side = exec->device;
    struct introduction mine = { .handle = *own,
                                 .bytes = (uint64_t)(side->feed - side->memory),
                                 .precision = 2 * (uint64_t)side->config.precision +
                                              side->config.rounds };
    struct device_info info;

    TRY(side->config.face->describe(side->config.number, &info));
    memcpy(mine.name, info.name, sizeof mine.name);
    TRY(comm_all_gather(exec->config.comm, &mine, all, sizeof mine / sizeof(int64_t),
                        DTYPE_I64));
    for (int r = 0; r < exec->topology.ranks; r++) {
        if (strcmp(all[r].name, mine.name) != 0 || all[r].precision != mine.precision)
            return FAIL(STATUS_MISMATCH,
                        "device %s: rank %d runs on %s, rank %d on %s: their bits would differ",
                        side->config.face->name, exec->topology.rank, mine.name, r,
                        all[r].name);
        if (all[r].bytes != mine.bytes)
            return FAIL(STATUS_MISMATCH,
                        "device %s: rank %d lays out %llu bytes, rank %d %llu: run the same "
                        "version with the same options on all",
                        side->config.face->name, exec->topology.rank,
                        (unsigned long long)mine.bytes, r, (unsigned long long)all[r].bytes);
    }
    return STATUS_OK;
}

static enum status open_blocks(const struct exec *exec)
{
    const struct device_side *side = exec->device;
    struct device_ranks *ranks = side->ranks;

    for (int r = 0; r < exec->topology.ranks; r++) {
        void *block = side->memory;
        if (r != exec->topology.rank)
            TRY(side->config.face->share->open(side->config.device, &ranks->known[r].handle,
                                               &block));
        ranks->block[r] = block;
    }
    return STATUS_OK;
}

enum status ranks_open(struct exec *exec, const struct device_handle *own)
{
    struct device_ranks *ranks = exec->device->ranks;

    TRY(mem_alloc((size_t)exec->topology.ranks, sizeof *ranks->known, &ranks->known));
    TRY(introduce(exec, own, ranks->known));
    if (exec->device->team)
        TRY(team_open(exec));
    else
        TRY(open_blocks(exec));
    for (int m = 0; m < ranks->n_meetings; m++)
        find_words(exec, m);
    device_watch_words(exec->device, WATCH_RANKS, ranks->in, ranks->n_meetings);
    /* Nobody goes away before all have opened what is there. */
    return comm_barrier(exec->config.comm);
}

void ranks_destroy(struct exec *exec)
{
    struct device_side *side = exec->device;
    struct device_ranks *ranks = side->ranks;

    if (!ranks)
        return;
    for (int r = 0; r < exec->topology.ranks; r++) {
        if (!side->team && r != exec->topology.rank && ranks->block[r])
            side->config.face->share->close(side->config.device, &ranks->known[r].handle,
                                            ranks->block[r]);
    }
    if (side->team && transport_check(exec->transport) != STATUS_OK)
        team_give_up(side); /* nobody is there to take leave of */
    team_destroy(side);
    mem_free(ranks->out);
    mem_free(ranks->in);
    mem_free(ranks->known);
    mem_free(ranks->held);
    mem_free(ranks->nodes);
    mem_free(ranks->additions);
    mem_free(ranks);
    side->ranks = NULL;
}

/* A step ------------------------------------------------------------------------------------ */

static void meet(const struct exec *exec, int number)
{
    const struct device_side *side = exec->device;
    const struct device_share_ops *share = side->config.face->share;

    share->signal(side->sums, &side->ranks->out[number]);
    share->await(side->sums, &side->ranks->in[number]);
}

static int number_of_gather(const struct device_side *side, int g)
{
    return side->n_groups * MEETINGS + g;
}

void ranks_give_table(const struct exec *exec, int g)
{
    const struct device_side *side = exec->device;

    if (side->team)
        return; /* it goes when others' are taken */
    side->config.face->share->signal(side->stream,
                                     &side->ranks->out[number_of_gather(side, g)]);
}

/* Every rank has one shard. */
enum status ranks_take_tables(const struct exec *exec, int g)
{
    const struct device_side *side = exec->device;
    const struct plan_gather *gather = &exec->layout.gathers.item[g];

    if (side->team)
        return team_swap_tables(exec, g);
    side->config.face->share->await(side->stream, &side->ranks->in[number_of_gather(side, g)]);
    for (int r = 0; r < exec->topology.ranks; r++) {
        char *table = side->tables + gather->offset + (size_t)r * gather->bytes;
        if (r != exec->topology.rank)
            TRY(side->config.face->memory->copy(side->stream, table,
                                                ranks_theirs(side, r, table), gather->bytes));
    }
    return STATUS_OK;
}

/* Losses and labels met of rank r's shards. */
static enum status take_results(const struct exec *exec, int r)
{
    const struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    int64_t first, count;

    exec_lane_row(exec, r, &first, &count);
    for (int part = 0; part < 2; part++) {
        float *mine = side->results + part * exec->topology.shards + first;
        TRY(memory->copy(side->sums, mine, ranks_theirs(side, r, mine),
                         (size_t)count * sizeof(float)));
    }
    return STATUS_OK;
}

static void join_marks(const struct exec *exec, int bucket)
{
    const struct device_side *side = exec->device;
    const uint8_t *own = side->marks[bucket], *joined = own;
    uint8_t *out = side->joined_marks + (own - side->all_marks);

    for (int r = 0; r < exec->topology.ranks; r++) {
        if (r == exec->topology.rank)
            continue;
        side->config.face->join_marks(side->sums, out, joined, ranks_theirs(side, r, own),
                                      (size_t)exec->layout.row_sums[bucket].rows);
        joined = out;
    }
}

enum status ranks_meet(const struct exec *exec, int group)
{
    const struct device_group *of = &exec->device->groups[group];
    const bool is_last = group == exec->device->n_groups - 1;

    if (exec->device->team)
        return team_meet(exec, group);
    meet(exec, group * MEETINGS + READY);
    for (int b = of->first; b < of->end; b++) {
        if (bucket_is_table(&exec->layout, b))
            join_marks(exec, b);
    }
    for (int r = 0; r < exec->topology.ranks && is_last; r++) {
        if (r != exec->topology.rank)
            TRY(take_results(exec, r));
    }
    return STATUS_OK;
}

/* Of a part of the flat vector: what a rank holds, the result, or a vector of scratch, which is
 * whole where all of the sum is needed. */
static float *operand_of(const struct exec *exec, int number, struct device_part part,
                         float *result)
{
    const struct device_side *side = exec->device;
    const struct device_ranks *ranks = side->ranks;

    if (number == ranks->result)
        return result;
    if (number >= ranks->n_held)
        return ranks->scratch + (size_t)(number - ranks->n_held) * ranks->scratch_each +
               (ranks_update_all(exec) ? part.at : 0);
    const struct held *held = &ranks->held[number];
    if (side->team && held->rank != exec->topology.rank)
        return team_received(exec, number, part);
    float *own = parts_gradient(exec, held->buffer, part.at);
    return held->rank == exec->topology.rank ? own : ranks_theirs(side, held->rank, own);
}

void ranks_add(const struct exec *exec, struct device_part part, float *out)
{
    const struct device_side *side = exec->device;

    for (int i = 0; i < side->ranks->n_held - 1; i++) {
        const struct tree_addition *add = &side->ranks->additions[i];
        side->config.face->add(side->sums, operand_of(exec, add->out, part, out),
                               operand_of(exec, add->left, part, out),
                               operand_of(exec, add->right, part, out), part.count);
    }
}

enum status ranks_end_sums(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;

    if (side->team)
        return group == side->n_groups - 1 ? team_swap_squares(exec) : STATUS_OK;
    meet(exec, group * MEETINGS + DONE);
    return STATUS_OK;
}

/* Copies what rank r has updated of a stretch. */
static enum status take_part(const struct exec *exec, const struct device_stretch *stretch,
                             int r)
{
    const struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    const struct device_part part = ranks_part(exec, stretch, r);
    const size_t at = parts_param(side, part.at);
    float *param = side->param + at;

    if (part.count == 0 || parts_hold(side, stretch->group)) /* else it comes when it is read */
        return STATUS_OK;
    TRY(memory->copy(side->sums, param, ranks_theirs(side, r, param),
                     part.count * sizeof *param));
    if (!side->half)
        return STATUS_OK;
    uint16_t *half = side->half + at;
    return memory->copy(side->sums, half, ranks_theirs(side, r, half),
                        part.count * sizeof *half);
}

enum status ranks_take_params(const struct exec *exec, int first, int end)
{
    const struct device_side *side = exec->device;

    for (int group = first; group < end && side->team; group++)
        TRY(team_swap_params(exec, group));
    if (side->team)
        return STATUS_OK;
    meet(exec, side->part_sums ? side->ranks->n_meetings - 1 : first * MEETINGS + DONE);
    for (int i = 0; i < side->n_stretches && !ranks_update_all(exec); i++) {
        const struct device_stretch *s = &side->stretches[i];
        for (int r = 0; r < exec->topology.ranks; r++) {
            if (r != exec->topology.rank && s->group >= first && s->group < end)
                TRY(take_part(exec, s, r));
        }
    }
    return STATUS_OK;
}
