/* SPDX-License-Identifier: MIT */
/* loss_scale.c - the scale of losses in checkpoints and metrics. */
#include "train/loss_scale.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

enum status loss_scale_print(const struct exec *exec, struct strbuf *state)
{
    struct device_scaling now;

    TRY(exec_scaling(exec, &now));
    if (now.scale > 0) {
        strbuf_add(state, ", \"loss_scale\": ");
        strbuf_add_number(state, (double)now.scale);
        strbuf_printf(state, ", \"scaled_steps\": %d, \"skipped_steps\": %lld", (int)now.good,
                      (long long)now.skipped);
    }
    return STATUS_OK;
}

/* A run that was saved in another precision begins as a new one does. */
enum status loss_scale_read(struct exec *exec, const char *state)
{
    struct device_scaling saved;
    struct json *json;

    TRY(json_parse(state, strlen(state), &json));
    const struct json_value *root = json_root(json);
    saved = (struct device_scaling){
        .scale = (float)json_number(root, "loss_scale", 0),
        .good = (int32_t)json_integer(root, "scaled_steps", 0),
        .skipped = json_integer(root, "skipped_steps", 0),
    };
    json_destroy(json);
    if (saved.scale == 0)
        return STATUS_OK;
    if (!(saved.scale >= 1) || !isfinite(saved.scale) || saved.good < 0 ||
        saved.good >= DEVICE_SCALE_STEPS)
        return FAIL(STATUS_CORRUPT,
                    "the checkpoint's loss_scale %g or scaled_steps %d cannot be",
                    (double)saved.scale, (int)saved.good);
    return exec_set_scaling(exec, &saved);
}

enum status loss_scale_tell(const struct exec *exec, struct metrics *out)
{
    struct device_scaling now;

    TRY(exec_scaling(exec, &now));
    if (now.scale > 0) {
        out->loss_scale = (double)now.scale;
        out->skipped_steps = (double)now.skipped;
    }
    return STATUS_OK;
}
