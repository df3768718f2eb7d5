/* SPDX-License-Identifier: MIT */
/* optim.c - the optimizers' table and the numbers of a step. */
#include "optim/optim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/op.h"

static const struct optimizer sgd = {
    .name = "sgd",
    .summary = "stochastic gradient descent with momentum",
    .op = &op_sgd_update,
    .n_states = 1,
    .state_names = { "momentum" },
    .defaults = { .momentum = 0.9F },
    .default_lr = 0.05,
};

static const struct optimizer adam = {
    .name = "adam",
    .summary = "Adam; weight decay is added to the gradient",
    .op = &op_adam_update,
    .n_states = 2,
    .state_names = { "m", "v" },
    .defaults = { .beta1 = 0.9F, .beta2 = 0.999F, .epsilon = 1e-8F },
    .default_lr = 1e-3,
};

static const struct optimizer adamw = {
    .name = "adamw",
    .summary = "Adam with decoupled weight decay",
    .op = &op_adam_update,
    .n_states = 2,
    .state_names = { "m", "v" },
    .defaults = { .beta1 = 0.9F,
                  .beta2 = 0.999F,
                  .epsilon = 1e-8F,
                  .weight_decay = 0.01F,
                  .decoupled = 1 },
    .default_lr = 1e-3,
};

const struct optimizer *const optim_table[] = { &sgd, &adam, &adamw, NULL };

const struct optimizer *optim_find(const char *name)
{
    for (int i = 0; optim_table[i]; i++) {
        if (strcmp(optim_table[i]->name, name) == 0)
            return optim_table[i];
    }
    return NULL;
}

int optim_states(const struct optim_config *config)
{
    if (config->optimizer->op == &op_sgd_update && config->attrs.momentum == 0)
        return 0;
    return config->optimizer->n_states;
}

struct value *optim_add_update(struct graph *graph, const struct optim_config *config,
                               struct value *params, struct value *gradients,
                               struct value *const *states, struct value *scale, int bucket)
{
    struct value *in[2 + KERNEL_STATES + 1] = { params, gradients };
    struct attrs attrs = config->attrs;
    char name[32];
    int n = 2;

    for (int i = 0; i < optim_states(config); i++)
        in[n++] = states[i];
    if (scale)
        in[n++] = scale;
    attrs.bucket = bucket;
    attrs.max_norm = 0;
    snprintf(name, sizeof name, "bucket%d.update", bucket);
    struct node *node = graph_add(graph, config->optimizer->op, name, in, n, &attrs);
    return node ? node->out[0] : NULL;
}

struct kernel_update_step optim_step(const struct optim_config *config, uint64_t step)
{
    const struct attrs *a = &config->attrs;
    const double t = (double)step + 1;

    struct kernel_update_step numbers = {
        .lr = (float)schedule_lr(&config->schedule, step),
        .scale = 1,
        .correction1 = 1,
        .correction2 = 1,
        .first = step == 0,
    };
    if (config->optimizer->op == &op_adam_update) {
        numbers.correction1 = (float)(1 / (1 - pow((double)a->beta1, t)));
        numbers.correction2 = (float)(1 / (1 - pow((double)a->beta2, t)));
    }
    return numbers;
}
