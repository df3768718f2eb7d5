/* SPDX-License-Identifier: MIT */
/* device_tensor.c - the ops between ranks that share layers (graph/op_tensor.c), on devices.
 *
 * Each rank has two buffers in turn, which all others see. An op copies what it says there, and streams meet:
 *
 *   write to buffer s % 2 | signal all, await all | read what they wrote, where it lies
 *
 * Why number s does not overwrite what somebody still reads: that would be number s - 2. This rank has awaited number s - 1 of all,
 * which each signals after it has read s - 2. For the same reason two words in turn are enough. A run, of a step or of a batch that is
 * evaluated, has an even number of them, so that it is the same every time and may be captured.
 *
 * Sums are in the order of ranks, as those of lanes (talk.c).
 */
#include "base/mem.h"
#include "exec/device_side.h"
#include "graph/op.h"

enum { TURNS = 2, ALIGN = 256 };

struct device_tensor {
    struct device_circle circle;
    size_t buffer_bytes;
    struct device_words out[TURNS], in[TURNS];
    int said; /* in the run that goes on */
};

/* An op that runs: its call, the buffer that this rank writes, those of all. */
struct tensor_call {
    const struct device_side *side;
    struct device_tensor *tensor;
    const struct kernel_call *call;
    void *own;
    struct joint_parts all;
};

/* Memory ------------------------------------------------------------------------------------ */

static size_t words_bytes(const struct device_tensor *tensor)
{
    return (size_t)(TURNS * tensor->circle.ranks) * DEVICE_LINE;
}

/* The word by which `from` tells rank `to` that it is there. */
static uint32_t *word_of(const struct device_tensor *tensor, int to, int turn, int from)
{
    return (uint32_t *)(tensor->circle.block[to] +
                        (size_t)(turn * tensor->circle.ranks + from) * DEVICE_LINE);
}

static void find_words(struct device_tensor *tensor, int turn)
{
    const int own = tensor->circle.rank;
    struct device_words *out = &tensor->out[turn], *in = &tensor->in[turn];

    out->count = in->count = 0;
    for (int r = 0; r < tensor->circle.ranks; r++) {
        if (r == own)
            continue;
        out->word[out->count++] = word_of(tensor, r, turn, own);
        in->word[in->count++] = word_of(tensor, own, turn, r);
    }
}

enum status tensor_create(struct exec *exec)
{
    struct device_tensor *tensor;

    TRY(mem_alloc(1, sizeof *tensor, &tensor));
    exec->device->tensor = tensor;
    return circle_create(exec, exec->config.tensor, &tensor->circle);
}

void tensor_destroy(struct exec *exec)
{
    struct device_side *side = exec->device;

    if (!side->tensor)
        return;
    circle_release(exec, &side->tensor->circle);
    mem_free(side->tensor);
    side->tensor = NULL;
}

/* What an op says, in bytes. */
static size_t said_by(const struct instruction *next)
{
    const struct kernel_problem *p = &next->problem;
    const size_t rows = (size_t)p->in[0].shape.dim[0];

    if (next->node->op == &op_tp_token_loss)
        return rows * JOINT_LOSS_NUMBERS * sizeof(float);
    if (next->node->op == &op_tp_token_accuracy)
        return rows * sizeof(struct joint_answer);
    return (size_t)shape_count(&p->in[0].shape) * dtype_size(p->in[0].dtype);
}

enum status tensor_prepare(struct exec *exec, const struct plan *plan)
{
    struct device_side *side = exec->device;
    struct device_tensor *tensor = side->tensor;
    size_t most = tensor->buffer_bytes;

    for (int i = 0; i < plan->n_instructions; i++) {
        const struct instruction *next = &plan->instructions[i];
        if (next->node->op->talks && said_by(next) > most)
            most = said_by(next);
    }
    TRY(circle_agree(&tensor->circle, &most, 1));
    if (tensor->circle.memory && most <= tensor->buffer_bytes)
        return STATUS_OK;
    device_forget_graphs(side);
    device_watch_words(side, WATCH_TENSOR, NULL, 0);
    tensor->buffer_bytes = (most + ALIGN - 1) / ALIGN * ALIGN;
    TRY(circle_make(exec, &tensor->circle, words_bytes(tensor) + TURNS * tensor->buffer_bytes));
    for (int turn = 0; turn < TURNS; turn++)
        find_words(tensor, turn);
    device_watch_words(side, WATCH_TENSOR, tensor->in, TURNS);
    return STATUS_OK;
}

/* Meetings ---------------------------------------------------------------------------------- */

/* What this rank has to say lies in its buffer: so does what all others say. */
static void meet(const struct device_side *side, struct device_tensor *tensor)
{
    const int turn = tensor->said++ % TURNS;

    side->config.face->share->signal(side->stream, &tensor->out[turn]);
    side->config.face->share->await(side->stream, &tensor->in[turn]);
}

void tensor_end(const struct device_side *side)
{
    struct device_tensor *tensor = side->tensor;

    if (!tensor)
        return;
    if (tensor->said % TURNS != 0)
        meet(side, tensor);
    tensor->said = 0;
}

static void find_buffers(struct tensor_call *t)
{
    const struct device_tensor *tensor = t->tensor;
    const size_t at =
        words_bytes(tensor) + (size_t)(tensor->said % TURNS) * tensor->buffer_bytes;

    t->own = tensor->circle.memory + at;
    t->all.count = tensor->circle.ranks;
    for (int r = 0; r < tensor->circle.ranks; r++)
        t->all.of[r] = tensor->circle.block[r] + at;
}

static size_t bytes_of(const struct kernel_tensor *tensor)
{
    return (size_t)shape_count(&tensor->shape) * dtype_size(tensor->dtype);
}

/* Says the op's input. */
static enum status say_input(struct tensor_call *t)
{
    TRY(t->side->config.face->memory->copy(t->side->stream, t->own, t->call->in[0],
                                           bytes_of(&t->call->problem->in[0])));
    meet(t->side, t->tensor);
    return STATUS_OK;
}

/* Ops --------------------------------------------------------------------------------------- */

static enum status run_sum(struct tensor_call *t)
{
    const struct kernel_tensor *x = &t->call->problem->in[0];
    const struct joint_rows row = { .width = (size_t)shape_count(&x->shape), .rows = 1 };

    TRY(say_input(t));
    t->side->config.face->joint->sum(t->side->stream, t->call->out[0], &t->all, x->dtype, &row);
    return STATUS_OK;
}

/* The part number p of a slice: rows that lie evenly, in the slice and in the whole value. */
struct even {
    size_t local, whole;             /* elements before the first */
    size_t local_apart, whole_apart; /* from one to the next */
    size_t width, rows;
};

static int parts_of(const struct shape_slice *slice)
{
    return slice->parts > 1 ? slice->parts : 1;
}

static struct even even_of(const struct shape_slice *slice, const struct shape *local, int p)
{
    const int parts = parts_of(slice);
    const struct slice_run first = slice_run(slice, local, p);
    struct even even = { .local = (size_t)first.local,
                         .whole = (size_t)first.whole,
                         .width = (size_t)first.count,
                         .rows = (size_t)(slice_runs(slice, local) / parts) };

    if (even.rows > 1) {
        const struct slice_run next = slice_run(slice, local, p + parts);
        even.local_apart = (size_t)(next.local - first.local);
        even.whole_apart = (size_t)(next.whole - first.whole);
    }
    return even;
}

/* Copies between a slice and the whole value. */
static enum status copy_slice(const struct device_side *side, const struct shape_slice *slice,
                              const struct shape *local, size_t size, const char *from,
                              char *to, bool cuts)
{
    for (int p = 0; p < parts_of(slice); p++) {
        const struct even e = even_of(slice, local, p);
        const size_t from_at = cuts ? e.whole : e.local, to_at = cuts ? e.local : e.whole;
        const size_t from_apart = cuts ? e.whole_apart : e.local_apart;
        const size_t to_apart = cuts ? e.local_apart : e.whole_apart;
        if (e.width * e.rows > 0)
            TRY(side->config.face->memory->copy_rows(
                side->stream, to + to_at * size, to_apart * size, from + from_at * size,
                from_apart * size, e.width * size, e.rows));
    }
    return STATUS_OK;
}

static enum status run_slice(struct tensor_call *t)
{
    const struct kernel_problem *p = t->call->problem;
    const struct talk_lying own = talk_lying_of(&p->out[0], &p->attrs.slice);

    return copy_slice(t->side, &own.slice, &own.shape, dtype_size(p->in[0].dtype),
                      t->call->in[0], t->call->out[0], true);
}

static enum status run_gather(struct tensor_call *t)
{
    const struct kernel_problem *p = t->call->problem;
    struct talk_lying whole = talk_lying_of(&p->out[0], &p->attrs.slice);

    TRY(say_input(t));
    for (int r = 0; r < t->all.count; r++) {
        const struct shape shape = talk_shape_of(&whole, r);
        TRY(copy_slice(t->side, &whole.slice, &shape, dtype_size(p->in[0].dtype), t->all.of[r],
                       t->call->out[0], false));
    }
    return STATUS_OK;
}

static enum status run_sum_slice(struct tensor_call *t)
{
    const struct kernel_problem *p = t->call->problem;
    const size_t size = dtype_size(p->in[0].dtype);
    struct talk_lying whole = talk_lying_of(&p->in[0], &p->attrs.slice);
    const struct shape shape = talk_shape_of(&whole, t->tensor->circle.rank);

    TRY(say_input(t));
    for (int part = 0; part < parts_of(&whole.slice); part++) {
        const struct even e = even_of(&whole.slice, &shape, part);
        const struct joint_rows rows = {
            .width = e.width, .rows = e.rows, .apart = e.whole_apart, .out_apart = e.local_apart
        };
        struct joint_parts there = { .count = t->all.count };
        for (int r = 0; r < t->all.count; r++)
            there.of[r] = (const char *)t->all.of[r] + e.whole * size;
        t->side->config.face->joint->sum(t->side->stream,
                                         (char *)t->call->out[0] + e.local * size, &there,
                                         p->in[0].dtype, &rows);
    }
    return STATUS_OK;
}

static enum status run_ids(struct tensor_call *t)
{
    const struct kernel_problem *p = t->call->problem;
    const struct talk_rows rows = talk_rows_of(&p->attrs.slice);

    t->side->config.face->joint->ids(t->side->stream, t->call->out[0], t->call->in[0],
                                     (size_t)shape_count(&p->in[0].shape), rows.begin,
                                     rows.end);
    return STATUS_OK;
}

static enum status run_token_loss(struct tensor_call *t)
{
    t->side->config.face->joint->note_losses(t->call, t->own);
    meet(t->side, t->tensor);
    t->side->config.face->joint->join_losses(t->call, &t->all);
    return STATUS_OK;
}

static enum status run_token_accuracy(struct tensor_call *t)
{
    t->side->config.face->joint->note_answers(t->call, t->own);
    meet(t->side, t->tensor);
    t->side->config.face->joint->join_answers(t->call, &t->all);
    return STATUS_OK;
}

static const struct {
    const struct op *op;
    MUST_CHECK enum status (*run)(struct tensor_call *t);
} rows[] = {
    { &op_tp_sum, run_sum },
    { &op_tp_slice, run_slice },
    { &op_tp_gather, run_gather },
    { &op_tp_sum_slice, run_sum_slice },
    { &op_tp_ids, run_ids },
    { &op_tp_token_loss, run_token_loss },
    { &op_tp_token_accuracy, run_token_accuracy },
};

enum status tensor_run(const struct device_side *side, const struct op *op,
                       const struct kernel_call *call)
{
    struct tensor_call t = { .side = side, .tensor = side->tensor, .call = call };
    size_t i = 0;

    while (rows[i].op != op) {
        i++;
        BUG_ON(i == sizeof rows / sizeof *rows); /* every op that talks has a row */
    }
    find_buffers(&t);
    return rows[i].run(&t);
}
