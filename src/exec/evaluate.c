/* SPDX-License-Identifier: MIT */
/* evaluate.c - forward over a data set, shared by all lanes of all ranks; forward of some samples.
 *
 * The data set is cut into batches of EVAL_ROWS, whatever the number of ranks; lane i of p takes
 * batches i, i+p, ... Each batch's loss and count, and each sample's answer, go to a place of their
 * own; losses are added in the order of batches, so the result has the same bits on any number of
 * ranks. What is counted of answers is whole numbers.
 */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/state.h"

enum { TOP = 5 };

static const struct graph_roles *eval_roles(const struct exec *exec)
{
    return graph_roles((struct graph *)exec->config.eval);
}

static const float *output_of(const struct lane *lane, const struct plan *plan)
{
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

/* How many logits come before the label's: larger, or equal and earlier. One that is no number comes
 * before all others and after none. */
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

/* Most answers are right, which the place alone tells: the search is for the others. */
static struct answer answer_of(const float *logits, int classes, int32_t label)
{
    struct answer answer = { label, classes };

    if (label >= 0 && label < classes)
        answer.place = place_of(logits, classes, label);
    if (answer.place > 0)
        answer.class = first_largest(logits, classes);
    return answer;
}

static void note_answers(const struct lane *lane, const struct plan *plan, int64_t first)
{
    const struct exec *exec = lane->exec;
    const float *logits = output_of(lane, plan);

    for (int64_t i = 0; i < plan->extents.rows; i++)
        exec->eval_answers[first + i] =
            answer_of(logits + i * exec->classes, exec->classes, lane->eval_y[i]);
}

static void run_plan(struct lane *lane, const struct plan *plan)
{
    const struct kernel_step step = { .seed = lane->exec->config.seed, .inv_batch = 1 };

    lane->bases[BASE_INPUT] = (char *)lane->eval_x;
    lane->bases[BASE_TARGET] = (char *)lane->eval_y;
    for (int i = 0; i < plan->n_instructions; i++)
        lane_run(lane, &plan->instructions[i], &step);
}

/* Numbers that a sample's output has. */
static int64_t output_floats(const struct exec *exec)
{
    const struct shape *s = &eval_roles(exec)->output->shape;
    return shape_count(s) / s->dim[0];
}

/* A sample's output, which lies as `value` does, in plain order. */
static void copy_plain(const struct value *value, const float *from, float *to)
{
    const struct shape *s = &value->shape;

    if (value->layout != LAYOUT_NHWC) {
        memcpy(to, from, (size_t)(shape_count(s) / s->dim[0]) * sizeof *to);
        return;
    }
    const int64_t channels = s->dim[1], plane = s->dim[2] * s->dim[3];
    for (int64_t c = 0; c < channels; c++)
        for (int64_t p = 0; p < plane; p++)
            to[c * plane + p] = from[p * channels + c];
}

/* All rows of the plan's output, in plain order. */
static void copy_outputs(const struct lane *lane, const struct plan *plan, float *to)
{
    const struct value *output = eval_roles(lane->exec)->output;
    const int64_t floats = output_floats(lane->exec);

    for (int64_t i = 0; i < plan->extents.rows; i++)
        copy_plain(output, output_of(lane, plan) + i * floats, to + i * floats);
}

static void run_batches(struct lane *lane)
{
    struct exec *exec = lane->exec;
    const struct dataset *data = exec->eval_data;
    const int64_t count = dataset_count(data), n_batches = (count + EVAL_ROWS - 1) / EVAL_ROWS;
    const int64_t begin = clock_ns();
    int64_t index[EVAL_ROWS];

    for (int64_t b = lane->number; b < n_batches; b += exec->all_lanes) {
        const int64_t first = b * EVAL_ROWS;
        const int64_t rows = count - first < EVAL_ROWS ? count - first : EVAL_ROWS;
        const struct plan *plan = lane_plan(lane, (struct extents){ .rows = rows }, true);

        for (int64_t i = 0; i < rows; i++)
            index[i] = first + i;
        dataset_read(data, index, rows, lane->eval_x, lane->eval_y);
        lane->bases[BASE_LOSS] = (char *)&exec->eval_losses[b];
        lane->bases[BASE_CORRECT] = (char *)&exec->eval_corrects[b];
        run_plan(lane, plan);
        if (exec->classes)
            note_answers(lane, plan, first);
        if (exec->eval_outputs)
            copy_outputs(lane, plan, exec->eval_outputs + first * output_floats(exec));
    }
    transport_raise(exec->evaluated, 1);
    lane->times.evaluate += clock_ns() - begin;
}

/* Buffers for samples, made when they are first needed. */
static enum status make_samples(struct lane *lane, const struct dataset *data)
{
    const struct shape sample = dataset_sample(data);

    if (lane->eval_x)
        return STATUS_OK;
    TRY(mem_alloc((size_t)(EVAL_ROWS * shape_count(&sample)), sizeof(float), &lane->eval_x));
    return mem_alloc(EVAL_ROWS, sizeof(int32_t), &lane->eval_y);
}

/* Buffers for results likewise. */
static enum status make_room(struct exec *exec, const struct dataset *data, int64_t n_batches)
{
    const struct graph_roles *roles = eval_roles(exec);

    if (!exec->confusion && roles->correct && roles->output->shape.rank == 2) {
        const size_t classes = (size_t)roles->output->shape.dim[1];
        TRY(mem_alloc(classes * classes, sizeof *exec->confusion, &exec->confusion));
        exec->classes = (int)classes;
    }
    if (n_batches > exec->eval_capacity) {
        const size_t batches = (size_t)n_batches;
        const size_t samples = exec->classes ? batches * EVAL_ROWS : 0;
        void *block;
        TRY(transport_share(exec->transport,
                            batches * 2 * sizeof(float) + samples * sizeof(struct answer),
                            &block));
        exec->eval_losses = block;
        exec->eval_corrects = exec->eval_losses + n_batches;
        exec->eval_answers = (struct answer *)(exec->eval_corrects + n_batches);
        exec->eval_capacity = n_batches;
    }
    for (int i = 0; i < exec->n_lanes; i++)
        TRY(make_samples(&exec->lanes[i], data));
    return STATUS_OK;
}

/* Samples of another shape than the model's would be read as something else, or past their end. */
static enum status check_samples(const struct exec *exec, const struct dataset *dataset)
{
    if (!exec->config.eval)
        return FAIL(STATUS_USAGE, "graph %s comes without one for evaluation",
                    graph_name(exec->config.train));
    const struct shape *input = &eval_roles(exec)->input->shape;
    const struct shape wanted = shape_of(input->rank - 1, input->dim + 1);
    const struct shape sample = dataset_sample(dataset);
    char there[SHAPE_TEXT], here[SHAPE_TEXT];

    if (shape_equal(&sample, &wanted))
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "%s: samples are %s, the model takes %s",
                dataset_path(dataset), shape_print(&sample, there), shape_print(&wanted, here));
}

static void count_answers(struct exec *exec, const struct dataset *dataset, int64_t *out_top5)
{
    const size_t classes = (size_t)exec->classes;

    if (!classes)
        return;
    memset(exec->confusion, 0, classes * classes * sizeof *exec->confusion);
    for (int64_t i = 0; i < dataset_count(dataset); i++) {
        const struct answer *answer = &exec->eval_answers[i];
        const int32_t label = dataset_label(dataset, i);
        if (label < 0 || label >= exec->classes)
            continue;
        exec->confusion[(size_t)label * classes + (size_t)answer->class]++;
        *out_top5 += answer->place < TOP;
    }
}

enum status exec_evaluate(struct exec *exec, const struct dataset *dataset,
                          struct exec_result *out)
{
    const int64_t count = dataset_count(dataset);
    const int64_t n_batches = (count + EVAL_ROWS - 1) / EVAL_ROWS;
    struct exec_result result = { .samples = count };

    TRY(check_samples(exec, dataset));
    TRY(exec_settle(exec));
    TRY(make_room(exec, dataset, n_batches));
    if (count >= EVAL_ROWS)
        TRY(exec_prepare(exec, (struct extents){ .rows = EVAL_ROWS }, true));
    TRY(exec_prepare(exec, (struct extents){ .rows = count % EVAL_ROWS }, true));
    exec->eval_data = dataset;
    TRY(exec_on_lanes(exec, run_batches));
    exec_meet(exec, "evaluated");
    exec->evaluations++;
    TRY(exec_wait(exec, &exec->lanes[0], exec->evaluated,
                  exec->evaluations * (uint32_t)exec->all_lanes,
                  "all_reduce of the evaluation"));
    for (int64_t b = 0; b < n_batches; b++) {
        result.loss += (double)exec->eval_losses[b];
        result.correct += (double)exec->eval_corrects[b];
    }
    result.loss = count ? result.loss / (double)count : 0;
    count_answers(exec, dataset, &result.top5);
    *out = result;
    /* Nobody may write new results before all have read these. */
    return exec_settle(exec);
}

void exec_keep_outputs(struct exec *exec, float *out)
{
    exec->eval_outputs = out;
}

const int64_t *exec_confusion(const struct exec *exec, int *out_classes)
{
    *out_classes = exec->classes;
    return exec->confusion;
}

/* Some samples -------------------------------------------------------------------------- */

static void predict(struct lane *lane)
{
    const struct exec *exec = lane->exec;

    if (lane != exec->lanes)
        return; /* one lane is enough for so few */
    const struct plan *plan =
        lane_plan(lane, (struct extents){ .rows = exec->predict_count }, true);
    dataset_read(exec->eval_data, exec->predict_index, plan->extents.rows, lane->eval_x,
                 lane->eval_y);
    lane->bases[BASE_LOSS] = (char *)lane->scratch; /* nobody asks for these */
    lane->bases[BASE_CORRECT] = (char *)(lane->scratch + 1);
    run_plan(lane, plan);
    copy_outputs(lane, plan, exec->predict_out);
}

enum status exec_predict(struct exec *exec, const struct dataset *dataset, const int64_t *index,
                         int64_t count, float *out)
{
    BUG_ON(count < 0 || count > EXEC_PREDICT);
    TRY(check_samples(exec, dataset));
    if (count == 0)
        return STATUS_OK;
    TRY(make_samples(&exec->lanes[0], dataset));
    TRY(exec_prepare(exec, (struct extents){ .rows = count }, true));
    exec->eval_data = dataset;
    exec->predict_index = index;
    exec->predict_count = count;
    exec->predict_out = out;
    return exec_on_lanes(exec, predict);
}
