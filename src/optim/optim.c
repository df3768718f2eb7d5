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

static const struct optimizer lars = {
    .name = "lars",
    .summary =
        "SGD with a rate a layer, for large batches: trust ||w|| / (||g|| + decay ||w||)",
    .op = &op_lars_update,
    .n_states = 1,
    .state_names = { "momentum" },
    .defaults = { .momentum = 0.9F, .weight_decay = 1e-4F, .trust = 1e-3F },
    .default_lr = 2,
};

static const struct optimizer lamb = {
    .name = "lamb",
    .summary = "AdamW with a rate a layer, for large batches: ||w|| / ||direction||",
    .op = &op_lamb_update,
    .n_states = 2,
    .state_names = { "m", "v" },
    .defaults = { .beta1 = 0.9F,
                  .beta2 = 0.999F,
                  .epsilon = 1e-6F,
                  .weight_decay = 0.01F,
                  .decoupled = 1 },
    .default_lr = 5e-3,
};

const struct optimizer *const optim_table[] = { &sgd, &adam, &adamw, &lars, &lamb, NULL };

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
    if (optim_has_momentum(config->optimizer) && config->attrs.momentum == 0)
        return 0;
    return config->optimizer->n_states;
}

bool optim_has_momentum(const struct optimizer *optimizer)
{
    return optimizer->op == &op_sgd_update || optimizer->op == &op_lars_update;
}

bool optim_adapts(const struct optimizer *optimizer)
{
    return optimizer->op == &op_lars_update || optimizer->op == &op_lamb_update;
}

bool optim_needs_norms(const struct optim_config *config)
{
    return config->attrs.max_norm > 0 || optim_adapts(config->optimizer);
}

/* A node of the update of a bucket. */
static struct value *add_node(struct graph *graph, const struct op *op, const char *what,
                              struct value *const *in, int n, const struct attrs *attrs)
{
    char name[32];

    snprintf(name, sizeof name, "bucket%d.%s", attrs->bucket, what);
    struct node *node = graph_add(graph, op, name, in, n, attrs);
    return node ? node->out[0] : NULL;
}

/* A trust ratio for each parameter of the bucket. */
static struct value *add_trust(struct graph *graph, const struct attrs *update,
                               struct value *params, struct value *moves, struct value *scale)
{
    struct value *const in[] = { params, moves, scale };
    struct attrs attrs = { .bucket = update->bucket,
                           .trust = update->trust,
                           .adapts_all = update->adapts_all };
    int64_t count = 0;

    for (int i = 0; params && i < graph_value_count(graph); i++)
        count += graph_value(graph, i)->flat == params;
    attrs.sample = shape_1(count);
    return add_node(graph, &op_trust_ratio, "trust", in, scale ? 3 : 2, &attrs);
}

struct value *optim_add_update(struct graph *graph, const struct optim_config *config,
                               struct value *params, struct value *gradients,
                               struct value *const *states, struct value *scale, int bucket)
{
    struct value *in[2 + KERNEL_STATES + 2] = { params, gradients };
    const struct op *op = config->optimizer->op;
    struct attrs attrs = config->attrs;
    int n = 2;

    for (int i = 0; i < optim_states(config); i++)
        in[n++] = states[i];
    attrs.bucket = bucket;
    attrs.max_norm = 0;
    if (op == &op_lars_update)
        in[n++] = add_trust(graph, &attrs, params, gradients, scale);
    if (scale)
        in[n++] = scale;
    if (op == &op_lamb_update) {
        in[1] = add_node(graph, &op_lamb_direction, "direction", in, n, &attrs);
        in[2] = add_trust(graph, &attrs, params, in[1], NULL);
        n = 3;
    }
    return add_node(graph, op, "update", in, n, &attrs);
}

struct kernel_update_step optim_step(const struct optim_config *config, uint64_t step)
{
    const struct attrs *a = &config->attrs;
    const double t = (double)step + 1;

    struct kernel_update_step numbers = {
        .lr = (float)schedule_lr(&config->schedule, step),
        .scale = 1,
        .trust = 1,
        .correction1 = 1,
        .correction2 = 1,
        .first = step == 0,
    };
    if (!optim_has_momentum(config->optimizer)) {
        numbers.correction1 = (float)(1 / (1 - pow((double)a->beta1, t)));
        numbers.correction2 = (float)(1 / (1 - pow((double)a->beta2, t)));
    }
    return numbers;
}
