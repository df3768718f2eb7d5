/* SPDX-License-Identifier: MIT */
/* device_squares.c - the norm of all gradients, on devices: for clipping, and to know whether all
 * are finite.
 *
 * As norms.c has it: every parameter is cut into pieces of DEVICE_PIECE elements, whose squares are
 * summed; a parameter's pieces are added, then all parameters in the model's order. So the norm
 * does not depend on who has which gradients.
 *
 *   squares_take   each rank sums squares of the pieces that it has summed, each to its place
 *                  (ranks that hold the same meet: device_ranks.c, device_team.c)
 *   squares_join   places of all these ranks become a number for each parameter of the model, of those that this rank has;
 *                  ranks beside, which have other layers or other slices, meet; and each adds what all have
 *
 * A place that another rank has is 0 here, and so is a parameter that another stage has: adding 0
 * changes nothing. Parameters begin with pieces where the norm is needed to the last bit
 * (pass/bucket.c), and ranks' parts with pieces then; where it need only be finite, two ranks may
 * have parts of one piece, which are added.
 *
 * Ranks beside have two buffers in turn, which all of them see, and two words for each other: a
 * step uses those of its feed. Why step s does not overwrite what somebody still reads, that of s -
 * 2: this rank has awaited s - 1 of all, which each signals after it has read s - 2.
 */
#include "base/mem.h"
#include "exec/device_side.h"

enum { TURNS = DEVICE_FEEDS, ALIGN = 256 };

struct device_squares {
    struct device_piece *pieces; /* of this rank, by groups */
    struct device_squared *params;
    size_t n_pieces, n_params, n_places;
    size_t group_end[DEVICE_GROUPS]; /* pieces up to there are of this group or those before */
    /* Of the block. */
    struct device_piece *pieces_there;
    struct device_squared *params_there;
    double *places;   /* of this rank; of a team, of all */
    double *of_model; /* a number a parameter, if there is nobody beside */

    struct device_circle circle; /* of ranks beside; ranks 0: nobody is */
    struct device_words out[TURNS], in[TURNS];
};

/* Pieces ------------------------------------------------------------------------------------ */

static size_t pieces_of(const struct value *param)
{
    return ((size_t)shape_count(&param->shape) + DEVICE_PIECE - 1) / DEVICE_PIECE;
}

/* What this rank has of a parameter, [place, place + count) of the flat vector: of a part of it
 * that lies at `at` of the vector of sums. */
static void add_pieces(const struct exec *exec, const struct device_squared *param,
                       size_t place, size_t count, struct device_part part, size_t at)
{
    struct device_squares *squares = exec->device->squares;
    const size_t last = place + count, part_end = part.at + part.count;

    for (uint32_t i = 0; i < param->count; i++) {
        const size_t first = place + (size_t)i * DEVICE_PIECE;
        const size_t end = first + DEVICE_PIECE < last ? first + DEVICE_PIECE : last;
        const size_t own = first > part.at ? first : part.at;
        const size_t own_end = end < part_end ? end : part_end;

        if (own >= own_end)
            continue;
        BUG_ON(exec->layout.facts.rule.clips && (own > first || own_end < end));
        squares->pieces[squares->n_pieces++] =
            (struct device_piece){ .at = at + (own - part.at),
                                   .count = (uint32_t)(own_end - own),
                                   .place = param->first + i };
    }
}

static void find_pieces(const struct exec *exec, struct device_squares *squares)
{
    const struct device_side *side = exec->device;
    const bool keeps = exec->topology.ranks > 1 && !ranks_update_all(exec);

    for (int i = 0; i < side->n_stretches; i++) {
        const struct device_stretch *s = &side->stretches[i];
        const struct device_part part = ranks_part(exec, s, exec->topology.rank);
        for (int p = 0, n = 0; p < exec->model.count; p++) {
            const size_t place = exec_place(exec, p);
            if (!norms_count(&exec->config, exec->model.params[p]))
                continue;
            const struct device_squared *param = &squares->params[n++];
            if (place >= s->at && place < s->at + s->count)
                add_pieces(exec, param, place,
                           (size_t)shape_count(&exec->model.params[p]->shape), part,
                           keeps ? s->state_at : part.at);
        }
        for (int g = s->group; g < side->n_groups; g++)
            squares->group_end[g] = squares->n_pieces;
    }
}

enum status squares_create(struct exec *exec)
{
    struct device_squares *squares;

    if (!sums_need_norm(&exec->sums))
        return STATUS_OK;
    TRY(mem_alloc(1, sizeof *squares, &squares));
    exec->device->squares = squares;
    TRY(mem_alloc((size_t)exec->model.count + 1, sizeof *squares->params, &squares->params));
    for (int p = 0; p < exec->model.count; p++) {
        const struct value *param = exec->model.params[p];
        if (!norms_count(&exec->config, param))
            continue;
        squares->params[squares->n_params++] =
            (struct device_squared){ .first = (uint32_t)squares->n_places,
                                     .count = (uint32_t)pieces_of(param),
                                     .number = (uint32_t)exec->model.numbers[p] };
        squares->n_places += pieces_of(param);
    }
    TRY(mem_alloc(squares->n_places + 1, sizeof *squares->pieces, &squares->pieces));
    find_pieces(exec, squares);
    struct transport *beside = exec->config.beside.transport;
    return beside && transport_size(beside) > 1 ? circle_create(exec, beside, &squares->circle)
                                                : STATUS_OK;
}

void squares_destroy(struct exec *exec)
{
    struct device_squares *squares = exec->device->squares;

    if (!squares)
        return;
    circle_release(exec, &squares->circle);
    mem_free(squares->pieces);
    mem_free(squares->params);
    mem_free(squares);
    exec->device->squares = NULL;
}

/* Memory ------------------------------------------------------------------------------------ */

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Ranks whose places lie in a rank's block. */
static size_t sharers(const struct exec *exec)
{
    return exec->device->team ? (size_t)exec->topology.ranks : 1;
}

/* Ranks have other pieces, but no more than there are places. */
size_t squares_bytes(const struct exec *exec)
{
    const struct device_squares *squares = exec->device->squares;

    if (!squares)
        return 0;
    return aligned(squares->n_places * sizeof *squares->pieces) +
           aligned(squares->n_params * sizeof *squares->params) +
           aligned(sharers(exec) * squares->n_places * sizeof(double)) +
           aligned((size_t)exec->model.total * sizeof(double));
}

void squares_place(struct exec *exec, void *room)
{
    struct device_squares *squares = exec->device->squares;
    char *at = room;

    if (!squares || !room)
        return;
    squares->pieces_there = (struct device_piece *)at;
    at += aligned(squares->n_places * sizeof *squares->pieces);
    squares->params_there = (struct device_squared *)at;
    at += aligned(squares->n_params * sizeof *squares->params);
    squares->places = (double *)at;
    at += aligned(sharers(exec) * squares->n_places * sizeof(double));
    squares->of_model = (double *)at;
}

/* The word by which `from` tells rank `to` that it is there. */
static uint32_t *word_of(const struct device_circle *circle, int to, int turn, int from)
{
    return (uint32_t *)(circle->block[to] +
                        (size_t)(turn * circle->ranks + from) * DEVICE_LINE);
}

static size_t buffer_bytes(const struct exec *exec)
{
    return aligned((size_t)exec->model.total * sizeof(double));
}

/* Where rank r beside has its numbers of a step. */
static double *numbers_of(const struct exec *exec, int r)
{
    const struct device_circle *circle = &exec->device->squares->circle;

    return (double *)(circle->block[r] +
                      aligned((size_t)(TURNS * circle->ranks) * DEVICE_LINE) +
                      (size_t)exec->device->turn * buffer_bytes(exec));
}

static enum status open_circle(struct exec *exec)
{
    struct device_squares *squares = exec->device->squares;
    struct device_circle *circle = &squares->circle;

    TRY(circle_make(exec, circle,
                    aligned((size_t)(TURNS * circle->ranks) * DEVICE_LINE) +
                        TURNS * buffer_bytes(exec)));
    for (int turn = 0; turn < TURNS; turn++) {
        struct device_words *out = &squares->out[turn], *in = &squares->in[turn];
        for (int r = 0; r < circle->ranks; r++) {
            if (r == circle->rank)
                continue;
            out->word[out->count++] = word_of(circle, r, turn, circle->rank);
            in->word[in->count++] = word_of(circle, circle->rank, turn, r);
        }
    }
    device_watch_words(exec->device, WATCH_SQUARES, squares->in, TURNS);
    return STATUS_OK;
}

enum status squares_open(struct exec *exec)
{
    const struct device_side *side = exec->device;
    struct device_squares *squares = side->squares;
    const struct device_memory_ops *memory = side->config.face->memory;

    if (!squares)
        return STATUS_OK;
    TRY(memory->copy(side->stream, squares->pieces_there, squares->pieces,
                     squares->n_pieces * sizeof *squares->pieces));
    TRY(memory->copy(side->stream, squares->params_there, squares->params,
                     squares->n_params * sizeof *squares->params));
    TRY(device_wait(exec));
    return squares->circle.ranks ? open_circle(exec) : STATUS_OK;
}

/* A step ------------------------------------------------------------------------------------ */

double *squares_of_rank(const struct exec *exec, int r, size_t *out_bytes)
{
    const struct device_side *side = exec->device;
    const struct device_squares *squares = side->squares;

    *out_bytes = squares->n_places * sizeof(double);
    if (side->team)
        return squares->places + (size_t)r * squares->n_places;
    return r == exec->topology.rank ? squares->places : ranks_theirs(side, r, squares->places);
}

void squares_take(const struct exec *exec, int group)
{
    const struct device_side *side = exec->device;
    const struct device_squares *squares = side->squares;
    const size_t begin = group > 0 ? squares->group_end[group - 1] : 0;
    size_t bytes;

    side->config.face->square_pieces(side->sums, side->part_sums ? side->part_sums : side->sum,
                                     squares->pieces_there + begin,
                                     squares->group_end[group] - begin,
                                     squares_of_rank(exec, exec->topology.rank, &bytes));
}

/* Places of all ranks that have some: where each updates all, it has all itself. */
static void find_places(const struct exec *exec, struct joint_parts *out)
{
    const struct device_side *side = exec->device;
    size_t bytes;

    out->count = 0;
    for (int r = 0; r < exec->topology.ranks; r++) {
        if (side->part_sums || r == exec->topology.rank)
            out->of[out->count++] = squares_of_rank(exec, r, &bytes);
    }
}

void squares_join(const struct exec *exec, struct joint_parts *out)
{
    const struct device_side *side = exec->device;
    const struct device_squares *squares = side->squares;
    const struct device_circle *circle = &squares->circle;
    const struct device_share_ops *share = side->config.face->share;
    struct joint_parts places;
    double *own = circle->ranks ? numbers_of(exec, circle->rank) : squares->of_model;

    find_places(exec, &places);
    side->config.face->add_squares(side->sums, &places, squares->params_there,
                                   squares->n_params, own);
    *out = (struct joint_parts){ .of = { own }, .count = 1 };
    if (!circle->ranks)
        return;
    share->signal(side->sums, &squares->out[side->turn]);
    share->await(side->sums, &squares->in[side->turn]);
    for (int r = 0; r < circle->ranks; r++)
        out->of[r] = numbers_of(exec, r);
    out->count = circle->ranks;
}
