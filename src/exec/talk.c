/* SPDX-License-Identifier: MIT */
/* talk.c - the ops between ranks that share layers (graph/op_tensor.c), and how they go by
 * messages.
 *
 * A sum of `count` elements over n ranks is made in parts: each rank gets all summands of its part,
 * adds them in the order of ranks, and gives the result to all others, so it sends 2 (n-1)/n of the
 * elements. A short one goes whole to all, who add it themselves: one way instead of two. The order
 * is the same, so are the bits, on all ranks.
 *
 * Slices are put together and cut apart in the order in which a value lies in memory: channels of
 * images are innermost there.
 */
#include "exec/talk.h"

#include <string.h>

#include "base/mem.h"
#include "exec/exec.h"
#include "exec/lane.h"
#include "exec/topology.h"
#include "graph/op.h"
#include "sched/verify.h"
#include "sched/work.h"

enum { ALIGN = 64 };

/* What goes to, or comes from, each rank; nothing where bytes is 0. */
struct pieces {
    struct {
        void *data;
        size_t bytes;
    } of[TALK_RANKS];
};

/* Messages -------------------------------------------------------------------------------- */

static void cancel_all(const struct talk *talk, struct transport_request *requests)
{
    for (int r = 0; r < talk->ranks; r++)
        transport_cancel(talk->transport, &requests[r]);
}

static enum status start_all(const struct talk *talk, const struct pieces *out,
                             const struct pieces *in, struct transport_request *sends,
                             struct transport_request *receives)
{
    for (int i = 1; i < talk->ranks; i++) {
        const int r = (talk->rank + i) % talk->ranks;
        if (in->of[r].bytes > 0)
            TRY(transport_start_receive(talk->transport, r, talk->tag, in->of[r].data,
                                        in->of[r].bytes, &receives[r]));
        if (out->of[r].bytes > 0)
            TRY(transport_start_send(talk->transport, r, talk->tag, out->of[r].data,
                                     out->of[r].bytes, &sends[r]));
        talk->clock->times.bytes += (int64_t)out->of[r].bytes;
    }
    return STATUS_OK;
}

/* Sends and receives pieces; what is this rank's own is not touched. */
static enum status exchange(const struct talk *talk, const struct pieces *out,
                            const struct pieces *in)
{
    struct transport_request sends[TALK_RANKS] = { 0 }, receives[TALK_RANKS] = { 0 };
    enum status status = start_all(talk, out, in, sends, receives);

    for (int r = 0; r < talk->ranks && status == STATUS_OK; r++)
        status = transport_wait_for(talk->transport, &receives[r], talk->call->problem->op);
    for (int r = 0; r < talk->ranks && status == STATUS_OK; r++)
        status = transport_wait_for(talk->transport, &sends[r], talk->call->problem->op);
    if (status != STATUS_OK) {
        cancel_all(talk, receives);
        cancel_all(talk, sends);
    }
    return status;
}

/* Sums ------------------------------------------------------------------------------------- */

void talk_add_in_order(const float *const *summands, int n, float *out, size_t count)
{
    const struct joint_rows row = { .width = count, .rows = 1 };
    struct joint_parts parts = { .count = n };

    BUG_ON(!summands[0]);
    for (int k = 0; k < n; k++)
        parts.of[k] = summands[k];
    joint_sum(out, &parts, DTYPE_F32, &row);
}

/* Elements of x that rank r adds. */
static size_t part_begin(const struct talk *talk, size_t count, int r)
{
    return (size_t)slice_begin((int64_t)count, r, talk->ranks);
}

/* Everybody gets all of it. */
static enum status sum_short(const struct talk *talk, const float *x, size_t count, float *y)
{
    const float *summands[TALK_RANKS] = { NULL };
    struct pieces out = { 0 }, in = { 0 };
    float *scratch = talk->call->scratch;

    for (int r = 0; r < talk->ranks; r++) {
        float *place = scratch + (size_t)r * count;
        summands[r] = r == talk->rank ? x : place;
        out.of[r].data = (void *)x;
        in.of[r].data = place;
        out.of[r].bytes = in.of[r].bytes = r == talk->rank ? 0 : count * sizeof *x;
    }
    TRY(exchange(talk, &out, &in));
    talk_add_in_order(summands, talk->ranks, y, count);
    return STATUS_OK;
}

static enum status sum_in_parts(const struct talk *talk, const float *x, size_t count, float *y)
{
    const size_t mine = part_begin(talk, count, talk->rank);
    const size_t own = part_begin(talk, count, talk->rank + 1) - mine;
    const float *summands[TALK_RANKS] = { NULL };
    struct pieces parts = { 0 }, in = { 0 }, results = { 0 }, others = { 0 };
    float *scratch = talk->call->scratch;

    for (int r = 0; r < talk->ranks; r++) {
        const size_t begin = part_begin(talk, count, r);
        const size_t bytes = (part_begin(talk, count, r + 1) - begin) * sizeof *x;
        float *place = scratch + (size_t)r * own;
        summands[r] = r == talk->rank ? x + mine : place;
        parts.of[r].data = (void *)(x + begin);
        in.of[r].data = place;
        results.of[r].data = y + mine;
        others.of[r].data = y + begin;
        if (r == talk->rank)
            continue;
        parts.of[r].bytes = others.of[r].bytes = bytes;
        in.of[r].bytes = results.of[r].bytes = own * sizeof *x;
    }
    TRY(exchange(talk, &parts, &in));
    talk_add_in_order(summands, talk->ranks, y + mine, own);
    return exchange(talk, &results, &others);
}

static bool shares_memory(const struct talk *talk)
{
    return talk->own->config->tensor_memory != NULL;
}

static bool is_short(size_t count)
{
    return count * sizeof(float) <= WORK_SHORT_SUM;
}

static enum status run_sum(const struct talk *talk)
{
    const size_t count = (size_t)shape_count(&talk->call->problem->in[0].shape);
    const float *x = talk->call->in[0];
    float *y = talk->call->out[0];

    if (shares_memory(talk))
        return shared_sum(talk, x, count, y);
    return is_short(count) ? sum_short(talk, x, count, y) : sum_in_parts(talk, x, count, y);
}

/* Slices ----------------------------------------------------------------------------------- */

struct talk_lying talk_lying_of(const struct kernel_tensor *tensor,
                                const struct shape_slice *slice)
{
    struct talk_lying lying = { tensor->shape, *slice };
    const int64_t *d = tensor->shape.dim;

    if (tensor->layout == LAYOUT_NHWC) {
        static const int place[] = { 0, 3, 1, 2 };
        lying.shape = shape_4(d[0], d[2], d[3], d[1]);
        lying.slice.axis = place[slice->axis];
    }
    return lying;
}

struct shape talk_shape_of(struct talk_lying *whole, int r)
{
    whole->slice.index = r;
    return slice_shape(&whole->slice, &whole->shape);
}

struct talk_rows talk_rows_of(const struct shape_slice *slice)
{
    const bool is_last = slice->index == slice->count - 1;

    return (struct talk_rows){
        slice_begin(slice->whole, slice->index, slice->count),
        is_last ? INT64_MAX : slice_begin(slice->whole, slice->index + 1, slice->count)
    };
}

static enum status run_slice(const struct talk *talk)
{
    const struct kernel_problem *p = talk->call->problem;
    const struct talk_lying own = talk_lying_of(&p->out[0], &p->attrs.slice);

    slice_cut(&own.slice, &own.shape, dtype_size(p->in[0].dtype), talk->call->in[0],
              talk->call->out[0]);
    return STATUS_OK;
}

/* Everybody gets everybody's piece; this rank's is there already. */
static enum status gather_pieces(const struct talk *talk, const struct talk_pieces *pieces)
{
    const struct talk_piece *own = &pieces->of[talk->rank];
    struct pieces out = { 0 }, in = { 0 };

    if (shares_memory(talk))
        return shared_gather(talk, pieces);
    for (int r = 0; r < talk->ranks; r++) {
        if (r == talk->rank)
            continue;
        out.of[r].data = own->data;
        out.of[r].bytes = own->count * sizeof(float);
        in.of[r].data = pieces->of[r].data;
        in.of[r].bytes = pieces->of[r].count * sizeof(float);
    }
    return exchange(talk, &out, &in);
}

static enum status run_gather(const struct talk *talk)
{
    const struct kernel_problem *p = talk->call->problem;
    struct talk_lying whole = talk_lying_of(&p->out[0], &p->attrs.slice);
    struct talk_pieces pieces = { 0 };
    float *scratch = talk->call->scratch;

    for (int r = 0; r < talk->ranks; r++) {
        const struct shape shape = talk_shape_of(&whole, r);
        pieces.of[r].count = (size_t)shape_count(&shape);
        pieces.of[r].data = r == talk->rank ? (float *)talk->call->in[0] : scratch;
        scratch += r == talk->rank ? 0 : pieces.of[r].count;
    }
    TRY(gather_pieces(talk, &pieces));
    for (int r = 0; r < talk->ranks; r++) {
        const struct shape shape = talk_shape_of(&whole, r);
        slice_put(&whole.slice, &shape, sizeof(float), pieces.of[r].data, talk->call->out[0]);
    }
    return STATUS_OK;
}

static enum status run_sum_slice(const struct talk *talk)
{
    const struct kernel_problem *p = talk->call->problem;
    struct talk_lying whole = talk_lying_of(&p->in[0], &p->attrs.slice);
    const size_t own = (size_t)shape_count(&p->out[0].shape);
    const float *summands[TALK_RANKS] = { NULL };
    struct talk_pieces pieces = { 0 };
    struct pieces out = { 0 }, in = { 0 };
    float *scratch = talk->call->scratch;

    for (int r = 0; r < talk->ranks; r++) {
        const struct shape shape = talk_shape_of(&whole, r);
        const size_t count = (size_t)shape_count(&shape);
        pieces.of[r] = (struct talk_piece){ scratch, count };
        slice_cut(&whole.slice, &shape, sizeof(float), talk->call->in[0], scratch);
        out.of[r].data = scratch;
        out.of[r].bytes = r == talk->rank ? 0 : count * sizeof(float);
        summands[r] = scratch;
        scratch += count;
    }
    if (shares_memory(talk))
        return shared_sum_slices(talk, &pieces, talk->call->out[0]);
    for (int r = 0; r < talk->ranks; r++) {
        if (r == talk->rank)
            continue;
        in.of[r].data = scratch;
        in.of[r].bytes = own * sizeof(float);
        summands[r] = scratch;
        scratch += own;
    }
    TRY(exchange(talk, &out, &in));
    talk_add_in_order(summands, talk->ranks, talk->call->out[0], own);
    return STATUS_OK;
}

/* Rows of a table that this rank has. A number past the table stays one, for the last rank, so that
 * it is noticed. */
static enum status run_ids(const struct talk *talk)
{
    const struct kernel_problem *p = talk->call->problem;
    const struct talk_rows rows = talk_rows_of(&p->attrs.slice);

    joint_ids(talk->call->out[0], talk->call->in[0], (size_t)shape_count(&p->in[0].shape),
              rows.begin, rows.end);
    return STATUS_OK;
}

/* Losses over slices of the classes -------------------------------------------------------- */

/* Everybody gets everybody's numbers, which lie in scratch one rank after the other; this rank's
 * are there already. */
static enum status gather_numbers(const struct talk *talk, size_t count,
                                  struct joint_parts *out)
{
    struct talk_pieces pieces = { 0 };

    *out = (struct joint_parts){ .count = talk->ranks };
    for (int r = 0; r < talk->ranks; r++) {
        float *place = (float *)talk->call->scratch + (size_t)r * count;
        pieces.of[r] = (struct talk_piece){ place, count };
        out->of[r] = place;
    }
    return gather_pieces(talk, &pieces);
}

static enum status run_token_loss(const struct talk *talk)
{
    const size_t each = (size_t)talk->call->problem->in[0].shape.dim[0] * JOINT_LOSS_NUMBERS;
    struct joint_parts numbers;

    joint_note_losses(talk->call, (float *)talk->call->scratch + (size_t)talk->rank * each);
    TRY(gather_numbers(talk, each, &numbers));
    joint_join_losses(talk->call, &numbers);
    return STATUS_OK;
}

static enum status run_token_accuracy(const struct talk *talk)
{
    const size_t rows = (size_t)talk->call->problem->in[0].shape.dim[0];
    struct joint_answer *all = talk->call->scratch;
    struct joint_parts answers;

    joint_note_answers(talk->call, all + (size_t)talk->rank * rows);
    TRY(gather_numbers(talk, rows * (sizeof *all / sizeof(float)), &answers));
    joint_join_answers(talk->call, &answers);
    return STATUS_OK;
}

/* The table -------------------------------------------------------------------------------- */

static size_t floats_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * sizeof(float);
}

static size_t sum_scratch(const struct kernel_problem *p)
{
    /* Each rank's summands of a part, or of all if that is short. */
    return TALK_RANKS * WORK_SHORT_SUM + floats_of(&p->in[0]) + TALK_RANKS * ALIGN;
}

static size_t gather_scratch(const struct kernel_problem *p)
{
    return floats_of(&p->out[0]);
}

static size_t sum_slice_scratch(const struct kernel_problem *p)
{
    return floats_of(&p->in[0]) + (size_t)p->attrs.slice.count * floats_of(&p->out[0]);
}

static size_t numbers_scratch(const struct kernel_problem *p)
{
    return (size_t)p->attrs.slice.count * (size_t)p->in[0].shape.dim[0] * JOINT_LOSS_NUMBERS *
           sizeof(float);
}

static const struct talk_row {
    const struct op *op;
    size_t (*scratch)(const struct kernel_problem *problem); /* NULL: none */
    MUST_CHECK enum status (*run)(const struct talk *talk);
} rows[] = {
    { &op_tp_sum, sum_scratch, run_sum },
    { &op_tp_slice, NULL, run_slice },
    { &op_tp_gather, gather_scratch, run_gather },
    { &op_tp_sum_slice, sum_slice_scratch, run_sum_slice },
    { &op_tp_ids, NULL, run_ids },
    { &op_tp_token_loss, numbers_scratch, run_token_loss },
    { &op_tp_token_accuracy, numbers_scratch, run_token_accuracy },
};

static const struct talk_row *row_of(const struct kernel_problem *problem)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(rows[i].op->name, problem->op) == 0)
            return &rows[i];
    }
    BUG_ON(true); /* every op that talks has a row */
    return NULL;
}

size_t talk_scratch(const struct kernel_problem *problem)
{
    const struct talk_row *row = row_of(problem);

    return row->scratch ? row->scratch(problem) : 0;
}

enum status lane_talk(struct lane *lane, const struct kernel_call *call)
{
    struct transport *transport = lane->tensor.config->tensor;
    const struct talk talk = {
        .own = &lane->tensor,
        .clock = &lane->clock,
        .call = call,
        .transport = transport,
        .ranks = transport_size(transport),
        .rank = transport_rank(transport),
        .tag = lane->tensor.tag,
    };

    if (!lane->clock.computes) /* an evaluation */
        return row_of(call->problem)->run(&talk);
    const struct span span = clock_begin_comm(&lane->clock);
    const enum status status = row_of(call->problem)->run(&talk);
    clock_end_comm(&lane->clock, span, call->problem->op, NULL);
    return status;
}

/* Making ----------------------------------------------------------------------------------- */

/* What ranks that share layers must have in common. */
struct common {
    int64_t shards, first_shard, count, batch, lanes, nodes;
};

static bool has_talks(const struct graph *graph)
{
    for (int n = 0; graph && n < graph_node_count(graph); n++) {
        if (graph_node(graph, n)->op->talks)
            return true;
    }
    return false;
}

static enum status compare(const struct exec_config *config,
                           const struct exec_topology *topology, uint32_t tag)
{
    struct transport *transport = config->tensor;
    const struct common own = {
        .shards = config->shards,
        .first_shard = topology_own_first(topology),
        .count = topology_own_end(topology) - topology_own_first(topology),
        .batch = config->batch,
        .lanes = topology->n_lanes,
        .nodes = graph_node_count(config->train),
    };
    const int rank = transport_rank(transport);

    for (int r = 0; r < transport_size(transport); r++) {
        struct common theirs;
        if (r == rank)
            continue;
        TRY(transport_send(transport, r, tag, &own, sizeof own));
        TRY(transport_receive(transport, r, tag, &theirs, sizeof theirs));
        if (memcmp(&own, &theirs, sizeof own) != 0)
            return FAIL(STATUS_MISMATCH,
                        "ranks that share layers differ: %lld lanes for shards %lld to %lld "
                        "here, %lld for %lld to %lld there: give all of them as many threads",
                        (long long)own.lanes, (long long)own.first_shard,
                        (long long)(own.first_shard + own.count), (long long)theirs.lanes,
                        (long long)theirs.first_shard,
                        (long long)(theirs.first_shard + theirs.count));
    }
    return STATUS_OK;
}

enum status talk_create(const struct exec_config *config, const struct exec_topology *topology,
                        bool adapts, uint32_t *tags)
{
    struct transport *transport = config->tensor;

    if (!transport) {
        if (has_talks(config->train) || has_talks(config->eval))
            return FAIL(STATUS_MISMATCH, "graph %s is for ranks that share layers",
                        graph_name(config->train));
        return STATUS_OK;
    }
    if (transport_size(transport) > TALK_RANKS)
        return FAIL(STATUS_USAGE, "tp=%d: at most %d ranks share layers",
                    transport_size(transport), TALK_RANKS);
    if (adapts)
        return FAIL(STATUS_UNSUPPORTED, "norms of parameters that are cut are on no rank");
    *tags = transport_new_tags(transport, (uint32_t)topology->n_lanes);
    transport_set_waiters(transport, topology->n_lanes);
    return compare(config, topology, *tags);
}

/* One rank's list goes to another, and its own comes here. */
static enum status compare_lists(struct transport *transport, int rank, uint32_t tag,
                                 const struct tensor_exchange *own, int n_own)
{
    struct transport_request request = { 0 };
    struct tensor_exchange *theirs;
    int count = n_own, n_theirs;

    TRY(transport_send(transport, rank, tag, &count, sizeof count));
    TRY(transport_receive(transport, rank, tag, &n_theirs, sizeof n_theirs));
    TRY(mem_alloc((size_t)n_theirs + 1, sizeof *theirs, &theirs));
    enum status status = STATUS_OK;
    if (n_own > 0)
        status = transport_start_send(transport, rank, tag, own, (size_t)n_own * sizeof *own,
                                      &request);
    if (status == STATUS_OK && n_theirs > 0)
        status =
            transport_receive(transport, rank, tag, theirs, (size_t)n_theirs * sizeof *theirs);
    if (status == STATUS_OK && n_own > 0)
        status = transport_wait_for(transport, &request, "the order of joint layers");
    transport_cancel(transport, &request);
    if (status == STATUS_OK)
        status = tensor_verify(own, n_own, theirs, n_theirs, rank);
    mem_free(theirs);
    return status;
}

enum status talk_verify(const struct program *program, const struct exec_config *config,
                        uint32_t tag)
{
    struct transport *transport = config->tensor;
    struct tensor_exchange *own;
    enum status status = STATUS_OK;

    if (!transport)
        return STATUS_OK;
    TRY(mem_alloc((size_t)program->n_tasks + 1, sizeof *own, &own));
    const int count = tensor_list(program, config->train, own);
    for (int r = 0; r < transport_size(transport) && status == STATUS_OK; r++) {
        if (r != transport_rank(transport))
            status = compare_lists(transport, r, tag, own, count);
    }
    mem_free(own);
    return status;
}
