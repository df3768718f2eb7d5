/* SPDX-License-Identifier: MIT */
/* device_scale.c - losses that are scaled while a device computes in f16.
 *
 * Gradients of a loss are made of inv_batch times the scale, and everything behind them is as
 * large; the loss itself, and statistics of batches, are not. When all gradients are summed, their
 * squares tell whether any is not finite: then nothing is updated, on the device and by its own
 * decision, and the next step's scale is half. Every rank adds the squares of all, so all decide
 * alike (device_squares.c).
 */
#include "exec/device_side.h"
#include "kernel/precision.h"

enum { FIRST_SCALE = 65536 };

/* Of the feed: they follow the numbers of the update. */
enum { STEPS_AT = 256 };

void scale_losses(const struct exec *exec)
{
    const struct device_side *side = exec->device;

    side->config.face->scale_losses(side->stream, side->scaling,
                                    (const struct kernel_step *)(side->feed + STEPS_AT),
                                    (size_t)exec->lanes[0].count, side->scaled);
}

void unscale(const struct exec *exec, const struct joint_parts *squares,
             struct kernel_update_step *numbers)
{
    const struct device_side *side = exec->device;

    side->config.face->unscale(side->sums, squares, (size_t)exec->model.total,
                               exec->layout.facts.rule.clips ? exec->config.optim.attrs.max_norm
                                                             : 0,
                               side->scaling, numbers);
}

const struct kernel_step *scaled_step(const struct device_side *side,
                                      const struct instruction *instruction,
                                      const struct kernel_step *step)
{
    const struct kernel_step *first = (const struct kernel_step *)(side->feed + STEPS_AT);

    return side->scaling && kernel_begins_backward(instruction->problem.op)
               ? side->scaled + (step - first)
               : step;
}

enum status scale_begin(const struct exec *exec)
{
    return exec_set_scaling((struct exec *)exec,
                            &(struct device_scaling){ .scale = FIRST_SCALE });
}

enum status exec_scaling(const struct exec *exec, struct device_scaling *out)
{
    const struct device_side *side = exec->device;

    *out = (struct device_scaling){ 0 };
    if (!side || !side->scaling)
        return STATUS_OK;
    TRY(side->config.face->memory->copy(side->stream, out, side->scaling, sizeof *out));
    return device_wait(exec);
}

enum status exec_set_scaling(struct exec *exec, const struct device_scaling *scaling)
{
    const struct device_side *side = exec->device;

    if (!side || !side->scaling)
        return STATUS_OK;
    TRY(side->config.face->memory->copy(side->stream, side->scaling, scaling, sizeof *scaling));
    return device_wait(exec);
}
