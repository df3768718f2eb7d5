/* SPDX-License-Identifier: MIT */
/* library.c - the public interface, tutti.h, over the inside. */
#include "tutti.h"

#include <string.h>

#include "base/mem.h"
#include "graph/build.h"
#include "graph/file.h"
#include "train/folder.h"
#include "train/library.h"
#include "train/train.h"

/* Set while a user's function runs, in the thread that runs it. */
static _Thread_local bool training;
static _Thread_local tutti_model_fn *user_function;

/* The public types are the inner ones under other names; only this file looks through. */
static struct graph *inner(struct tutti_graph *graph)
{
    return (struct graph *)graph;
}

static struct value *inner_value(struct tutti_value *value)
{
    return (struct value *)value;
}

static struct tutti_value *outer(struct value *value)
{
    return (struct tutti_value *)value;
}

const char *tutti_error(void)
{
    return status_message();
}

const char *tutti_version(void)
{
    return TUTTI_VERSION;
}

struct tutti_value *tutti_linear(struct tutti_graph *graph, const char *name,
                                 struct tutti_value *x, int64_t outputs)
{
    return outer(build_linear(inner(graph), name, inner_value(x), outputs));
}

struct tutti_value *tutti_conv2d(struct tutti_graph *graph, const char *name,
                                 struct tutti_value *x, int64_t channels, int kernel,
                                 int stride, int pad)
{
    const struct build_conv conv = {
        .channels = channels, .kernel = kernel, .stride = stride, .pad = pad
    };
    return outer(build_conv2d(inner(graph), name, inner_value(x), conv));
}

struct tutti_value *tutti_conv2d_grouped(struct tutti_graph *graph, const char *name,
                                         struct tutti_value *x, int64_t channels, int kernel,
                                         int stride, int pad, int groups)
{
    const struct build_conv conv = {
        .channels = channels, .kernel = kernel, .stride = stride, .pad = pad, .groups = groups
    };
    return outer(build_conv2d(inner(graph), name, inner_value(x), conv));
}

struct tutti_value *tutti_conv2d_transpose(struct tutti_graph *graph, const char *name,
                                           struct tutti_value *x, int64_t channels, int kernel,
                                           int stride, int pad, int output_pad)
{
    const struct build_conv conv = { .channels = channels,
                                     .kernel = kernel,
                                     .stride = stride,
                                     .pad = pad,
                                     .output_pad = output_pad };
    return outer(build_conv2d_transpose(inner(graph), name, inner_value(x), conv));
}

struct tutti_value *tutti_relu(struct tutti_graph *graph, const char *name,
                               struct tutti_value *x)
{
    return outer(build_relu(inner(graph), name, inner_value(x)));
}

struct tutti_value *tutti_relu6(struct tutti_graph *graph, const char *name,
                                struct tutti_value *x)
{
    return outer(build_relu6(inner(graph), name, inner_value(x)));
}

struct tutti_value *tutti_sigmoid(struct tutti_graph *graph, const char *name,
                                  struct tutti_value *x)
{
    return outer(build_sigmoid(inner(graph), name, inner_value(x)));
}

struct tutti_value *tutti_max_pool(struct tutti_graph *graph, const char *name,
                                   struct tutti_value *x, int window, int stride, int pad)
{
    return outer(build_max_pool(inner(graph), name, inner_value(x), window, stride, pad));
}

struct tutti_value *tutti_avg_pool(struct tutti_graph *graph, const char *name,
                                   struct tutti_value *x, int window, int stride, int pad)
{
    return outer(build_avg_pool(inner(graph), name, inner_value(x), window, stride, pad));
}

struct tutti_value *tutti_flatten(struct tutti_graph *graph, const char *name,
                                  struct tutti_value *x)
{
    return outer(build_flatten(inner(graph), name, inner_value(x)));
}

struct tutti_value *tutti_add(struct tutti_graph *graph, const char *name,
                              struct tutti_value *a, struct tutti_value *b)
{
    return outer(build_add(inner(graph), name, inner_value(a), inner_value(b)));
}

struct tutti_value *tutti_dropout(struct tutti_graph *graph, const char *name,
                                  struct tutti_value *x, float rate)
{
    return outer(build_dropout(inner(graph), name, inner_value(x), training ? rate : 0));
}

struct tutti_value *tutti_reconstruction(struct tutti_graph *graph, struct tutti_value *output)
{
    build_reconstruction_loss(inner(graph), inner_value(output));
    return output;
}

/* A user's function as a model of the zoo ----------------------------------------------- */

/* Refuses values that are empty or too large, before passes and kernels reckon with them. */
static enum status check_sizes(const struct graph *graph)
{
    const int64_t rows = graph_extents(graph).rows;
    char shape[SHAPE_TEXT];

    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const int64_t count = shape_count(&value->shape);
        const int64_t own = value->kind == VALUE_PARAM ? count : count / rows;
        if (count < 1)
            return FAIL(STATUS_USAGE, "%s has shape %s: a layer has at least one output",
                        value->name, shape_print(&value->shape, shape));
        if (own >= GRAPH_FILE_ELEMENTS)
            return FAIL(STATUS_USAGE, "%s has shape %s, more than %lld elements%s", value->name,
                        shape_print(&value->shape, shape), (long long)GRAPH_FILE_ELEMENTS - 1,
                        value->kind == VALUE_PARAM ? "" : " a sample");
    }
    return STATUS_OK;
}

/* Logits are one for each class: a label is a place in a row of them. */
static enum status check_logits(const struct value *output, int classes)
{
    const int64_t own = output->shape.dim[output->shape.rank - 1];

    if (output->shape.rank == 2 && own != classes) /* of other ranks the loss complains */
        return FAIL(STATUS_USAGE,
                    "the model's function returns %lld outputs a sample for %d classes: end it "
                    "with tutti_linear(graph, name, x, classes)",
                    (long long)own, classes);
    return STATUS_OK;
}

static void build_user(struct graph *graph, const struct model_config *config,
                       struct value *input, struct value *target)
{
    training = config->training;
    struct tutti_value *output =
        user_function((struct tutti_graph *)graph, outer(input), config->classes);
    if (graph_status(graph) != STATUS_OK)
        return;
    if (!output) {
        graph_fail(graph, FAIL(STATUS_USAGE, "the model's function returned no value"));
        return;
    }
    enum status status = check_sizes(graph);
    if (status == STATUS_OK && !graph_roles(graph)->loss)
        status = check_logits(inner_value(output), config->classes);
    if (status != STATUS_OK)
        graph_fail(graph, status);
    else if (!graph_roles(graph)->loss)
        build_classifier_loss(graph, inner_value(output), target);
}

struct model library_model(const char *name, tutti_model_fn *function)
{
    user_function = function;
    return (struct model){
        .name = name,
        .summary = "user's model",
        .sample = { .rank = 3, .dim = { 1, 28, 28 } },
        .classes = 10,
        .build = build_user,
    };
}

/* Training ------------------------------------------------------------------------------ */

struct tutti_settings {
    struct settings settings;
};

int tutti_settings_create(struct tutti_settings **out)
{
    struct tutti_settings *settings;

    TRY(mem_alloc(1, sizeof *settings, &settings));
    settings_init(&settings->settings);
    *out = settings;
    return 0;
}

void tutti_settings_destroy(struct tutti_settings *settings)
{
    mem_free(settings);
}

int tutti_settings_set(struct tutti_settings *settings, const char *name, const char *value)
{
    const struct setting *setting = settings_find(name);

    if (strcmp(name, "model") == 0) {
        if (strlen(value) >= sizeof settings->settings.model)
            return FAIL(STATUS_USAGE, "model %s: too long", value);
        memcpy(settings->settings.model, value, strlen(value) + 1);
        return 0;
    }
    if (!setting)
        return FAIL(STATUS_USAGE, "unknown setting %s: tutti train --help lists them", name);
    return settings_set(&settings->settings, setting, value);
}

/* A function may be given a name; that of another model would say that the run is of that. */
static enum status check_name(const char *name)
{
    if (model_find(name))
        return FAIL(STATUS_USAGE,
                    "model %s is one of the zoo: give the function another name, or NULL "
                    "instead of a function",
                    name);
    if (folder_is_source(name) || folder_is_graph_file(name))
        return FAIL(STATUS_USAGE, "model %s: a function's name is not that of a file", name);
    return STATUS_OK;
}

int tutti_train(const struct tutti_settings *settings, tutti_model_fn *model,
                struct tutti_result *out)
{
    struct settings chosen = settings->settings;
    const struct train_hooks hooks = { 0 };
    struct train_result result = { 0 };
    struct model user;
    struct job *job;

    if (model) {
        TRY(check_name(chosen.model));
        user = library_model(*chosen.model ? chosen.model : "model", model);
        if (!*chosen.model)
            memcpy(chosen.model, "model", sizeof "model");
    }
    TRY(job_create(&chosen, model ? &user : NULL, JOB_TRAIN, &job));
    enum status status = train_run(job, &hooks, &result);
    job_destroy(job);
    TRY(status);
    *out = (struct tutti_result){
        .train_loss = result.train_loss,
        .train_accuracy = result.train_accuracy,
        .val_loss = result.val_loss,
        .val_accuracy = result.val_accuracy,
        .seconds = result.seconds,
        .samples_per_s = result.samples_per_s,
        .steps = result.steps,
    };
    memcpy(out->folder, result.folder, sizeof out->folder);
    memcpy(out->weights_sha256, result.weights_sha256, sizeof out->weights_sha256);
    return 0;
}
