/* SPDX-License-Identifier: MIT */
/* evaluate.c - forward over a data set, shared by all lanes of all ranks.
 *
 * The data set is cut into batches of EVAL_ROWS, whatever the number of ranks; lane i of p takes
 * batches i, i+p, ... Each batch's loss and count go to a place of their own and are
 * added in the order of batches, so the result has the same bits on any number of ranks.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "exec/state.h"

static void run_batches(struct lane *lane)
{
    struct exec *exec = lane->exec;
    const struct dataset *data = exec->eval_data;
    const int64_t count = dataset_count(data), n_batches = (count + EVAL_ROWS - 1) / EVAL_ROWS;
    const struct kernel_step step = { .seed = exec->config.seed, .inv_batch = 1 };
    const int64_t begin = clock_ns();
    int64_t index[EVAL_ROWS];

    for (int64_t b = lane->number; b < n_batches; b += exec->all_lanes) {
        const int64_t first = b * EVAL_ROWS;
        const int64_t rows = count - first < EVAL_ROWS ? count - first : EVAL_ROWS;
        const struct plan *plan = lane_plan(lane, rows, true);

        for (int64_t i = 0; i < rows; i++)
            index[i] = first + i;
        dataset_read(data, index, rows, lane->eval_x, lane->eval_y);
        lane->bases[BASE_INPUT] = (char *)lane->eval_x;
        lane->bases[BASE_TARGET] = (char *)lane->eval_y;
        lane->bases[BASE_LOSS] = (char *)&exec->eval_losses[b];
        lane->bases[BASE_CORRECT] = (char *)&exec->eval_corrects[b];
        for (int i = 0; i < plan->n_instructions; i++)
            lane_run(lane, &plan->instructions[i], &step);
    }
    transport_raise(exec->evaluated, 1);
    lane->times.evaluate += clock_ns() - begin;
}

/* Buffers for results and samples, made when they are first needed. */
static enum status make_room(struct exec *exec, const struct dataset *data, int64_t n_batches)
{
    const struct shape sample = dataset_sample(data);

    if (n_batches > exec->eval_capacity) {
        void *block;
        TRY(transport_share(exec->transport, (size_t)n_batches * 2 * sizeof(float), &block));
        exec->eval_losses = block;
        exec->eval_corrects = exec->eval_losses + n_batches;
        exec->eval_capacity = n_batches;
    }
    for (int i = 0; i < exec->n_lanes; i++) {
        struct lane *lane = &exec->lanes[i];
        if (lane->eval_x)
            continue;
        TRY(mem_alloc((size_t)(EVAL_ROWS * shape_count(&sample)), sizeof(float),
                      &lane->eval_x));
        TRY(mem_alloc(EVAL_ROWS, sizeof(int32_t), &lane->eval_y));
    }
    return STATUS_OK;
}

/* Samples of another shape than the model's would be read as something else, or past their end. */
static enum status check_samples(const struct exec *exec, const struct dataset *dataset)
{
    if (!exec->config.eval)
        return FAIL(STATUS_USAGE, "graph %s comes without one for evaluation",
                    graph_name(exec->config.train));
    const struct shape *input = &graph_roles((struct graph *)exec->config.eval)->input->shape;
    const struct shape wanted = shape_of(input->rank - 1, input->dim + 1);
    const struct shape sample = dataset_sample(dataset);
    char there[SHAPE_TEXT], here[SHAPE_TEXT];

    if (shape_equal(&sample, &wanted))
        return STATUS_OK;
    return FAIL(STATUS_MISMATCH, "%s: samples are %s, the model takes %s",
                dataset_path(dataset), shape_print(&sample, there), shape_print(&wanted, here));
}

enum status exec_evaluate(struct exec *exec, const struct dataset *dataset,
                          struct exec_result *out)
{
    const int64_t count = dataset_count(dataset);
    const int64_t n_batches = (count + EVAL_ROWS - 1) / EVAL_ROWS;
    double loss = 0, correct = 0;

    TRY(check_samples(exec, dataset));
    TRY(exec_settle(exec));
    TRY(make_room(exec, dataset, n_batches));
    if (count >= EVAL_ROWS)
        TRY(exec_prepare(exec, EVAL_ROWS, true));
    TRY(exec_prepare(exec, count % EVAL_ROWS, true));
    exec->eval_data = dataset;
    TRY(exec_on_lanes(exec, run_batches));
    exec_meet(exec, "evaluated");
    exec->evaluations++;
    TRY(exec_wait(exec, &exec->lanes[0], exec->evaluated,
                  exec->evaluations * (uint32_t)exec->all_lanes,
                  "all_reduce of the evaluation"));
    for (int64_t b = 0; b < n_batches; b++) {
        loss += (double)exec->eval_losses[b];
        correct += (double)exec->eval_corrects[b];
    }
    *out = (struct exec_result){ .loss = count ? loss / (double)count : 0,
                                 .correct = correct,
                                 .samples = count };
    /* Nobody may write new results before all have read these. */
    return exec_settle(exec);
}
