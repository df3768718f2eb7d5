/* SPDX-License-Identifier: MIT */
/* evaluate.c - forward over a data set, shared by all lanes of all ranks; forward of some samples.
 *
 * The data set is cut into batches of EVAL_ROWS or fewer, whatever the number of ranks; lane i of p
 * takes batches i, i+p, ... Each batch's loss and count, and each sample's answer, go to a place of
 * their own; losses are added in the order of batches, so the result has the same bits on any
 * number of ranks. What is counted of answers is whole numbers.
 */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/device_side.h"

/* Tokens, and their logits, of an evaluation's batch at most. */
enum { TOP = 5, EVAL_TOKENS = 4096, EVAL_LOGITS = 1 << 24 };

static const struct graph_roles *eval_roles(const struct exec *exec)
{
    return graph_roles((struct graph *)exec->config.eval);
}

static const float *output_of(const struct lane *lane, const struct plan *plan)
{
    if (lane->exec->device)
        return lane->exec->device->eval.output;
    return (const float *)(lane->bases[plan->output.base] + plan->output.offset);
}

static int32_t first_largest(const float *logits, int classes)
{
    int32_t largest = 0;

    for (int c = 1; c < classes; c++) {
        if (logits[c] > logits[largest])
            largest = c;
    }
    return largest;
}

/* How many logits come before the label's: larger, or equal and earlier. One that is no number
 * comes before all others and after none. */
static int32_t place_of(const float *logits, int classes, int32_t label)
{
    const float own = logits[label];
    int32_t place = 0;

    for (int c = 0; c < label; c++)
        place += !(logits[c] < own);
    for (int c = label + 1; c < classes; c++)
        place += !(logits[c] <= own);
    return place;
}

/* How sure the answer is: see exec_answer. */
static float score_of(const float *logits, int classes, int32_t answer)
{
    float sum = 0;

    if (classes == 2)
        return logits[1] - logits[0];
    for (int c = 0; c < classes; c++)
        sum += expf(logits[c] - logits[answer]);
    return 1 / sum;
}

/* Most answers are right, which the place alone tells: the search is for the others. */
static struct answer answer_of(const float *logits, int classes, int32_t label)
{
    struct answer answer = { .class = label, .place = classes };

    if (label >= 0 && label < classes)
        answer.place = place_of(logits, classes, label);
    if (answer.place > 0)
        answer.class = first_largest(logits, classes);
    answer.score = score_of(logits, classes, answer.class);
    return answer;
}

static void note_answers(const struct lane *lane, const struct plan *plan, const int64_t *index)
{
    const struct exec *exec = lane->exec;
    const float *logits = output_of(lane, plan);

    for (int64_t i = 0; i < plan->extents.rows; i++)
        exec->eval.answers[index[i]] =
            answer_of(logits + i * exec->eval.classes, exec->eval.classes, lane->samples.y[i]);
}

/* Those of a batch of these samples. */
static struct extents extents_of(const struct source *source, const int64_t *index,
                                 int64_t rows)
{
    struct extents extents = { .rows = rows };

    source_extents(source, index, rows, extents.length);
    return extents;
}

/* Does somebody look at what the samples give, not at the loss alone? */
static bool wants_output(const struct exec *exec)
{
    return exec->eval.classes || exec->eval.outputs || exec->eval.predict_out;
}

/* Reads samples; gives the plan for them. */
static const struct plan *read_samples(struct lane *lane, const int64_t *index, int64_t rows)
{
    const struct source *source = lane->exec->eval.data;
    const struct extents extents = extents_of(source, index, rows);

    if (lane->exec->device)
        device_read_samples(lane, index, rows, extents.length);
    else
        source_read(source, NULL, index, rows, extents.length, lane->samples.x,
                    lane->samples.x2, lane->samples.y);
    lane->bases[BASE_INPUT] = (char *)lane->samples.x;
    lane->bases[BASE_SECOND] = (char *)lane->samples.x2;
    lane->bases[BASE_TARGET] = (char *)lane->samples.y;
    return lane_plan(lane, extents, true);
}

/* Reads the samples and runs the forward graph on them; NULL: the lane has failed. */
static const struct plan *run_samples(struct lane *lane, const int64_t *index, int64_t rows)
{
    const struct plan *plan = read_samples(lane, index, rows);
    const struct kernel_step step = { .seed = lane->exec->config.seed, .inv_batch = 1 };

    if (lane->exec->device) {
        lane->status = device_run_samples(lane, plan, &step, wants_output(lane->exec));
        return lane->status == STATUS_OK ? plan : NULL;
    }
    for (int i = 0; i < plan->n_instructions; i++) {
        const struct instruction *next = &plan->instructions[i];
        if (next->takes)
            lane->status = hold_take(lane, next->takes);
        if (lane->status != STATUS_OK)
            return NULL;
        lane->status = lane_run(lane, next, &step);
        if (lane->status != STATUS_OK)
            return NULL;
        if (next->leaves)
            hold_leave(lane, next->leaves);
    }
    return plan;
}

/* Numbers that a sample's output has at most. */
static int64_t output_floats(const struct exec *exec)
{
    const struct shape *s = &eval_roles(exec)->output->shape;
    return shape_count(s) / s->dim[0];
}

/* A sample's output of `floats` numbers, which lies as `value` does, in plain order. */
static void copy_plain(const struct value *value, int64_t floats, const float *from, float *to)
{
    const struct shape *s = &value->shape;

    if (value->layout != LAYOUT_NHWC) {
        memcpy(to, from, (size_t)floats * sizeof *to);
        return;
    }
    const int64_t channels = s->dim[1], plane = s->dim[2] * s->dim[3];
    for (int64_t c = 0; c < channels; c++)
        for (int64_t p = 0; p < plane; p++)
            to[c * plane + p] = from[p * channels + c];
}

/* The plan's output of its row i, in plain order. */
static void copy_output(const struct lane *lane, const struct plan *plan, int64_t i, float *to)
{
    const struct value *output = eval_roles(lane->exec)->output;

    copy_plain(output, plan->output_floats, output_of(lane, plan) + i * plan->output_floats,
               to);
}

/* The batches of an evaluation: how many samples each has, whatever the number of ranks. A token
 * model's have fewer, as each sample has many outputs. */
static int64_t rows_at_once(const struct exec *exec, const struct source *source)
{
    const struct graph_roles *roles = eval_roles(exec);

    if (!roles->target || !roles->target->sequence)
        return EVAL_ROWS;
    const struct shape *output = &roles->output->shape;
    const int64_t by_logits = EVAL_LOGITS / output->dim[output->rank - 1];
    const int64_t tokens = by_logits < EVAL_TOKENS ? by_logits : EVAL_TOKENS;
    const int64_t longest = (int64_t)(source_row_bytes(source, SOURCE_Y) / sizeof(int32_t));
    const int64_t rows = tokens / (longest > 0 ? longest : 1);
    return rows < 1 ? 1 : rows > EVAL_ROWS ? EVAL_ROWS : rows;
}

static int64_t batch_count(const struct exec *exec, const struct source *source)
{
    const int64_t rows = rows_at_once(exec, source);
    return (source_count(source) + rows - 1) / rows;
}

/* The samples of batch b; returns how many. */
static int64_t batch_samples(const struct exec *exec, const struct source *source, int64_t b,
                             int64_t index[EVAL_ROWS])
{
    const int64_t at_once = rows_at_once(exec, source), first = b * at_once;
    const int64_t left = source_count(source) - first;
    const int64_t rows = left < at_once ? left : at_once;

    for (int64_t i = 0; i < rows; i++)
        index[i] = source_at(source, first + i);
    return rows;
}

/* Of parts that share the work, batches first go around among them. */
static bool is_mine(const struct lane *lane, int64_t b)
{
    const struct exec *exec = lane->exec;
    const struct comm *parts = exec->config.evaluators;

    if (parts && b % comm_size(parts) != comm_rank(parts))
        return false;
    return (parts ? b / comm_size(parts) : b) % exec->topology.job_lanes ==
           exec->topology.first_lane + lane->worker.number;
}

/* What a batch gives goes to its places. */
static void point_to_results(struct lane *lane, int64_t b)
{
    lane->bases[BASE_LOSS] = (char *)&lane->exec->eval.losses[b];
    lane->bases[BASE_CORRECT] = (char *)&lane->exec->eval.corrects[b];
}

/* A batch has run here, and the output is, too, unless another stage has it. */
static void note_batch(const struct lane *lane, const struct plan *plan, const int64_t *index)
{
    const struct exec *exec = lane->exec;

    if (!plan->output_floats)
        return;
    if (exec->eval.classes)
        note_answers(lane, plan, index);
    for (int64_t i = 0; exec->eval.outputs && i < plan->extents.rows; i++)
        copy_output(lane, plan, i, exec->eval.outputs + index[i] * output_floats(exec));
}

static void run_batches(struct lane *lane)
{
    struct exec *exec = lane->exec;
    const int64_t begin = clock_ns();
    int64_t index[EVAL_ROWS], round = 0;

    for (int64_t b = exec->eval.begin; b < exec->eval.end; b++) {
        if (!is_mine(lane, b))
            continue;
        const int64_t rows = batch_samples(exec, exec->eval.data, b, index);
        point_to_results(lane, b);
        hold_enter_round(lane, round++);
        const struct plan *plan = run_samples(lane, index, rows);
        if (!plan)
            return;
        note_batch(lane, plan, index);
    }
    lane->clock.times.evaluate += clock_ns() - begin;
}

/* In a pipeline --------------------------------------------------------------------------- */

/* Batches of this lane from eval_begin on: how many there are before eval_end; which one is number
 * i. */
static int64_t count_mine(const struct lane *lane)
{
    int64_t count = 0;

    for (int64_t b = lane->exec->eval.begin; b < lane->exec->eval.end; b++)
        count += is_mine(lane, b);
    return count;
}

static int64_t find_mine(const struct lane *lane, int64_t number)
{
    int64_t b = lane->exec->eval.begin;

    for (; !is_mine(lane, b) || number-- > 0; b++)
        ;
    return b;
}

static const struct plan *begin_batch(struct lane *lane, int64_t number)
{
    const int64_t b = find_mine(lane, number);
    int64_t index[EVAL_ROWS];
    const int64_t rows = batch_samples(lane->exec, lane->exec->eval.data, b, index);

    point_to_results(lane, b);
    return read_samples(lane, index, rows);
}

static void end_batch(struct lane *lane, const struct plan *plan, int64_t number)
{
    int64_t index[EVAL_ROWS];

    batch_samples(lane->exec, lane->exec->eval.data, find_mine(lane, number), index);
    note_batch(lane, plan, index);
}

static void run_pipeline(struct lane *lane)
{
    const struct pipe_evaluation evaluation = { count_mine(lane), wants_output(lane->exec),
                                                begin_batch, end_batch };
    const int64_t begin = clock_ns();

    lane->status = pipe_evaluate(lane, &evaluation);
    lane->clock.times.evaluate += clock_ns() - begin;
}

/* Copies of a stage hear the same, each from its own pipeline: the first of a node puts it where
 * all of them look. */
static enum status tell(struct exec *exec, void *data, size_t bytes)
{
    const bool is_first =
        exec->topology.rank == transport_node_first(exec->transport, exec->topology.node);
    const struct exec_beside *beside = &exec->config.beside;
    char *dropped = NULL;

    if (is_first || transport_rank(beside->transport) == beside->teller)
        return beside_tell(exec, data, bytes);
    TRY(mem_alloc(bytes + 1, 1, &dropped));
    const enum status status = beside_tell(exec, dropped, bytes);
    mem_free(dropped);
    return status;
}

/* Stages before the last learn what it has found. */
static enum status tell_results(struct exec *exec, int64_t n_batches)
{
    const size_t batches = (size_t)n_batches;
    const size_t samples = exec->eval.classes ? (size_t)source_count(exec->eval.data) : 0;

    if (!exec->config.beside.transport)
        return STATUS_OK;
    TRY(tell(exec, exec->eval.losses, batches * sizeof *exec->eval.losses));
    TRY(tell(exec, exec->eval.corrects, batches * sizeof *exec->eval.corrects));
    TRY(tell(exec, exec->eval.answers, samples * sizeof *exec->eval.answers));
    return exec_settle(exec);
}

/* Buffers for samples, made when they are first needed, and again for a source of longer ones. */
static enum status make_samples(struct lane *lane, const struct source *source)
{
    void *const buffer[] = { &lane->samples.x, &lane->samples.x2, &lane->samples.y };

    for (int part = 0; part < SOURCE_PARTS; part++) {
        const size_t there = lane->samples.bytes[part], bytes = source_row_bytes(source, part);
        if (bytes <= there)
            continue;
        TRY(mem_grow(buffer[part], there, bytes, EVAL_ROWS));
        lane->samples.bytes[part] = bytes;
    }
    return STATUS_OK;
}

/* Buffers for results likewise. */
static enum status make_room(struct exec *exec, const struct source *source, int64_t n_batches)
{
    const struct graph_roles *roles = eval_roles(exec);

    if (roles->correct && roles->output->shape.rank == 2)
        exec->eval.classes = (int)roles->output->shape.dim[1];
    if (n_batches > exec->eval.capacity) {
        const size_t batches = (size_t)n_batches;
        const size_t samples = exec->eval.classes ? batches * EVAL_ROWS : 0;
        void *block;
        TRY(transport_share(exec->transport,
                            batches * 2 * sizeof(float) + samples * sizeof(struct answer),
                            &block));
        exec->eval.losses = block;
        exec->eval.corrects = exec->eval.losses + n_batches;
        exec->eval.answers = (struct answer *)(exec->eval.corrects + n_batches);
        exec->eval.capacity = n_batches;
    }
    for (int i = 0; i < exec->topology.n_lanes; i++)
        TRY(make_samples(&exec->lanes[i], source));
    return STATUS_OK;
}

/* Samples of another shape than the model's would be read as something else, or past their end. */
static enum status check_samples(const struct exec *exec, const struct source *source)
{
    if (!exec->config.eval)
        return FAIL(STATUS_USAGE, "graph %s comes without one for evaluation",
                    graph_name(exec->config.train));
    const struct value *value = eval_roles(exec)->input;
    const struct shape *input = &value->shape;
    const struct shape wanted = shape_of(input->rank - 1, input->dim + 1);
    char there[SHAPE_TEXT], here[SHAPE_TEXT];

    if (value->sequence ? source_has_sequences(source) : shape_equal(&source->sample, &wanted))
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "%s: samples are %s, the model takes %s", source->path,
                shape_print(&source->sample, there), shape_print(&wanted, here));
}

static int64_t count_top5(const struct exec *exec, const struct source *source)
{
    int64_t top5 = 0;

    for (int64_t i = 0; exec->eval.classes && i < source_count(source); i++) {
        const int32_t label = source_label(source, i);
        top5 += label >= 0 && label < exec->eval.classes && exec->eval.answers[i].place < TOP;
    }
    return top5;
}

/* Of all samples, in the order of evaluation. */
static int64_t weigh(const struct source *source)
{
    int64_t weight = 0;

    for (int64_t i = 0; i < source_count(source); i++)
        weight += source_weight(source, NULL, &i, 1);
    return weight;
}

/* Makes plans for batches from eval_begin on, as many as there is room for; sets eval_end. */
static enum status prepare_batches(struct exec *exec, const struct source *source)
{
    int64_t index[EVAL_ROWS];
    int n_plans = 0;

    for (exec->eval.end = exec->eval.begin;
         exec->eval.end < batch_count(exec, source) && n_plans < PLANS_MAX; exec->eval.end++) {
        const int64_t rows = batch_samples(exec, source, exec->eval.end, index);
        const struct extents extents = extents_of(source, index, rows);
        n_plans +=
            exec->eval.end == exec->eval.begin || !extents_equal(extents, exec->eval.extents);
        exec->eval.extents = extents;
        TRY(exec_prepare(exec, extents, true));
    }
    return STATUS_OK;
}

/* Which node has evaluated a batch, and a sample of one. */
static int maker_of_batch(const struct exec *exec, size_t b)
{
    const int lane = (int)(b % (size_t)exec->topology.job_lanes);
    return transport_node_of(exec->transport, lane / exec->topology.n_lanes);
}

static int maker_of_sample(const struct exec *exec, size_t at)
{
    return maker_of_batch(exec, at / (size_t)rows_at_once(exec, exec->eval.data));
}

/* What other nodes have evaluated comes here. Answers stand by the number of a sample, which need
 * not be its place in the order of evaluation: those are put in that order for the way. */
static enum status merge_results(struct exec *exec, int64_t n_batches)
{
    const struct source *source = exec->eval.data;
    const int64_t samples = exec->eval.classes ? source_count(source) : 0;
    struct answer *ordered;

    TRY(net_merge(exec, exec->eval.losses, (size_t)n_batches, sizeof *exec->eval.losses,
                  maker_of_batch));
    TRY(net_merge(exec, exec->eval.corrects, (size_t)n_batches, sizeof *exec->eval.corrects,
                  maker_of_batch));
    if (samples == 0)
        return STATUS_OK;
    TRY(mem_alloc((size_t)samples, sizeof *ordered, &ordered));
    for (int64_t i = 0; i < samples; i++)
        ordered[i] = exec->eval.answers[source_at(source, i)];
    enum status status =
        net_merge(exec, ordered, (size_t)samples, sizeof *ordered, maker_of_sample);
    for (int64_t i = 0; status == STATUS_OK && i < samples; i++)
        exec->eval.answers[source_at(source, i)] = ordered[i];
    mem_free(ordered);
    return status;
}

/* Parameters that are held in parts come while lanes go through the batches that are evaluated now. */
static enum status begin_walk(struct exec *exec)
{
    if (!exec->hold.buckets)
        return STATUS_OK;
    hold_begin(exec, &(struct hold_walk){ .is_evaluation = true,
                                          .begin = exec->eval.begin,
                                          .end = exec->eval.end });
    return net_begin(exec, (struct extents){ 0 });
}

/* Of parts that share the work: what each has made comes to all. What another one makes is zero
 * until then. */
static void forget_results(struct exec *exec, int64_t n_batches)
{
    const size_t samples = exec->eval.classes ? (size_t)source_count(exec->eval.data) : 0;

    memset(exec->eval.losses, 0, (size_t)n_batches * sizeof *exec->eval.losses);
    memset(exec->eval.corrects, 0, (size_t)n_batches * sizeof *exec->eval.corrects);
    if (samples)
        memset(exec->eval.answers, 0, samples * sizeof *exec->eval.answers);
}

static enum status join_results(struct exec *exec, int64_t n_batches)
{
    struct comm *parts = exec->config.evaluators;
    const size_t samples = exec->eval.classes ? (size_t)source_count(exec->eval.data) : 0;

    TRY(comm_all_reduce(parts, exec->eval.losses, (size_t)n_batches, DTYPE_F32, COMM_OP_SUM));
    TRY(comm_all_reduce(parts, exec->eval.corrects, (size_t)n_batches, DTYPE_F32, COMM_OP_SUM));
    return comm_all_reduce(parts, exec->eval.answers,
                           samples * (sizeof(struct answer) / sizeof(int32_t)), DTYPE_I32,
                           COMM_OP_SUM);
}

enum status exec_evaluate(struct exec *exec, const struct source *source,
                          struct exec_result *out)
{
    const int64_t n_batches = exec->config.eval ? batch_count(exec, source) : 0;
    struct exec_result result = { .samples = source_count(source), .weight = weigh(source) };

    TRY(check_samples(exec, source));
    TRY(exec_settle(exec));
    if (exec->device)
        TRY(device_give(exec));
    TRY(make_room(exec, source, n_batches));
    exec->eval.data = source;
    if (exec->config.evaluators)
        forget_results(exec, n_batches);
    for (exec->eval.begin = 0; exec->eval.begin < n_batches;
         exec->eval.begin = exec->eval.end) {
        TRY(prepare_batches(exec, source));
        TRY(begin_walk(exec));
        TRY(exec_on_lanes(exec, exec->pipe ? run_pipeline : run_batches));
        hold_end(exec);
    }
    exec_meet(exec, "evaluated");
    const int evaluated = exec->program->barrier[BARRIER_EVALUATE];
    clock_signal(&exec->lanes[0].clock, evaluated);
    TRY(clock_wait_until(&exec->lanes[0].clock, evaluated,
                         account_target(&exec->account, evaluated, exec->eval.count++),
                         "all_reduce of the evaluation"));
    if (exec->topology.nodes > 1) {
        if (exec->topology.rank == transport_node_first(exec->transport, exec->topology.node))
            TRY(merge_results(exec, n_batches));
        TRY(exec_settle(exec)); /* the node's first rank has brought it */
    }
    if (exec->config.evaluators)
        TRY(join_results(exec, n_batches));
    TRY(tell_results(exec, n_batches));
    for (int64_t b = 0; b < n_batches; b++) {
        result.loss += (double)exec->eval.losses[b];
        result.correct += (double)exec->eval.corrects[b];
    }
    result.loss = result.weight ? result.loss / (double)result.weight : 0;
    result.top5 = count_top5(exec, source);
    *out = result;
    /* Nobody may write new results before all have read these. */
    return exec_settle(exec);
}

void exec_keep_outputs(struct exec *exec, float *out)
{
    exec->eval.outputs = out;
}

int exec_classes(const struct exec *exec)
{
    return exec->eval.classes;
}

int32_t exec_answer(const struct exec *exec, int64_t sample, float *out_score)
{
    *out_score = exec->eval.answers[sample].score;
    return exec->eval.answers[sample].class;
}

/* Some samples -------------------------------------------------------------------------- */

static void predict(struct lane *lane)
{
    const struct exec *exec = lane->exec;

    if (lane != exec->lanes)
        return;                                            /* one lane is enough for so few */
    lane->bases[BASE_LOSS] = (char *)lane->worker.scratch; /* nobody asks for these */
    lane->bases[BASE_CORRECT] = (char *)(lane->worker.scratch + 1);
    const struct plan *plan =
        run_samples(lane, exec->eval.predict_index, exec->eval.predict_count);
    if (!plan)
        return; /* a device has failed */
    for (int64_t i = 0; i < exec->eval.predict_count; i++)
        copy_output(lane, plan, i, exec->eval.predict_out + i * output_floats(exec));
}

enum status exec_predict(struct exec *exec, const struct source *source, const int64_t *index,
                         int64_t count, float *out)
{
    BUG_ON(count < 0 || count > EXEC_PREDICT);
    TRY(check_samples(exec, source));
    if (count == 0)
        return STATUS_OK;
    TRY(make_samples(&exec->lanes[0], source));
    TRY(exec_prepare(exec, extents_of(source, index, count), true));
    exec->eval.data = source;
    exec->eval.predict_index = index;
    exec->eval.predict_count = count;
    exec->eval.predict_out = out;
    if (exec->device)
        TRY(device_give(exec));
    const enum status status = exec_on_lanes(exec, predict);
    exec->eval.predict_out = NULL;
    return status;
}
