/* SPDX-License-Identifier: MIT */
/* schedule.c - learning rate over time. */
#include <math.h>
#include <string.h>

#include "optim/optim.h"

static const char *const names[] = { "constant", "step", "cosine" };

enum status schedule_parse(const char *name, enum schedule_kind *out)
{
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (strcmp(names[i], name) == 0) {
            *out = (enum schedule_kind)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_USAGE, "unknown schedule %s: there are constant, step and cosine", name);
}

const char *schedule_name(enum schedule_kind kind)
{
    return names[kind];
}

double schedule_lr(const struct schedule *schedule, uint64_t step)
{
    const double pi = 3.14159265358979323846;

    if (step < schedule->warmup)
        return schedule->start_lr + (schedule->lr - schedule->start_lr) * (double)(step + 1) /
                                        (double)schedule->warmup;
    switch (schedule->kind) {
    case SCHEDULE_STEP: {
        const uint64_t times = schedule->every ? step / schedule->every : 0;
        return schedule->lr * pow(schedule->gamma, (double)times);
    }
    case SCHEDULE_COSINE: {
        const uint64_t span =
            schedule->total > schedule->warmup ? schedule->total - schedule->warmup : 1;
        const uint64_t at = step - schedule->warmup < span ? step - schedule->warmup : span;
        return schedule->final_lr + (schedule->lr - schedule->final_lr) * 0.5 *
                                        (1 + cos(pi * (double)at / (double)span));
    }
    case SCHEDULE_CONSTANT:
    default:
        return schedule->lr;
    }
}
