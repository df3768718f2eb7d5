/* SPDX-License-Identifier: MIT */
/* tutti.h - distributed deep-learning training: the public interface.
 *
 * Anything that is not in this header is not supported. Functions that can fail return 0 or a
 * negative number; tutti_error() then gives one line of text for this thread.
 *
 * A model is a function that adds layers to a graph:
 *
 *     #include <tutti.h>
 *
 *     static struct tutti_value *my_model(struct tutti_graph *g, struct tutti_value *x, int classes)
 *     {
 *         x = tutti_relu(g, "relu1", tutti_linear(g, "fc1", x, 64));
 *         return tutti_linear(g, "fc2", x, classes);
 *     }
 *     TUTTI_MODEL(my_model)
 *
 * `tutti train my_model.c --data fashion-mnist` compiles and trains it. A program can train by
 * itself: see tutti_train and examples/.
 */
#ifndef TUTTI_H
#define TUTTI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_VERSION "0.1.0"

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

/* Text of this thread's last failure. */
TUTTI_API const char *tutti_error(void);
TUTTI_API const char *tutti_version(void);

/* Models ------------------------------------------------------------------------------- */

struct tutti_graph;
struct tutti_value;

/* Layers. Parameters are named "NAME.weight" and "NAME.bias" and start with PyTorch's default
 * values. A NULL value in gives NULL out, so a model needs no checks. Parameters, and a sample of what a layer
 * gives, have 1 to 2^31 - 1 elements. */
TUTTI_API struct tutti_value *tutti_linear(struct tutti_graph *graph, const char *name,
                                           struct tutti_value *x, int64_t outputs);
TUTTI_API struct tutti_value *tutti_conv2d(struct tutti_graph *graph, const char *name,
                                           struct tutti_value *x, int64_t channels, int kernel,
                                           int stride, int pad);
/* The channels of input and output are in `groups` equal parts; each part of the output sees its
 * part of the input alone. groups = channels of the input = `channels` is a depthwise layer. */
TUTTI_API struct tutti_value *tutti_conv2d_grouped(struct tutti_graph *graph, const char *name,
                                                   struct tutti_value *x, int64_t channels,
                                                   int kernel, int stride, int pad, int groups);
/* To (rows - 1) * stride - 2 * pad + kernel + output_pad rows, and so for the columns. */
TUTTI_API struct tutti_value *tutti_conv2d_transpose(struct tutti_graph *graph,
                                                     const char *name, struct tutti_value *x,
                                                     int64_t channels, int kernel, int stride,
                                                     int pad, int output_pad);
TUTTI_API struct tutti_value *tutti_relu(struct tutti_graph *graph, const char *name,
                                         struct tutti_value *x);
TUTTI_API struct tutti_value *tutti_relu6(struct tutti_graph *graph, const char *name,
                                          struct tutti_value *x);
TUTTI_API struct tutti_value *tutti_sigmoid(struct tutti_graph *graph, const char *name,
                                            struct tutti_value *x);
TUTTI_API struct tutti_value *tutti_max_pool(struct tutti_graph *graph, const char *name,
                                             struct tutti_value *x, int window, int stride,
                                             int pad);
TUTTI_API struct tutti_value *tutti_avg_pool(struct tutti_graph *graph, const char *name,
                                             struct tutti_value *x, int window, int stride,
                                             int pad);
TUTTI_API struct tutti_value *tutti_flatten(struct tutti_graph *graph, const char *name,
                                            struct tutti_value *x);
TUTTI_API struct tutti_value *tutti_add(struct tutti_graph *graph, const char *name,
                                        struct tutti_value *a, struct tutti_value *b);
/* Does nothing during evaluation. */
TUTTI_API struct tutti_value *tutti_dropout(struct tutti_graph *graph, const char *name,
                                            struct tutti_value *x, float rate);

/* Makes a model that gives its input back: its loss is the mean squared difference between `output` and
 * the input, which is flattened if the output is. Returns the output, for the function to return. */
TUTTI_API struct tutti_value *tutti_reconstruction(struct tutti_graph *graph,
                                                   struct tutti_value *output);

/* Adds a model to the graph: input is a batch of images (channels, height, width). A classifier returns
 * its logits, `classes` a sample; another model what tutti_reconstruction gave. Called once for
 * training and once for evaluation. */
typedef struct tutti_value *tutti_model_fn(struct tutti_graph *graph, struct tutti_value *input,
                                           int classes);

/* In a model file: makes `function` the model that `tutti train FILE.c` trains. */
#define TUTTI_MODEL(function)                                                                  \
    TUTTI_API tutti_model_fn *tutti_model_entry(void);                                         \
    TUTTI_API tutti_model_fn *tutti_model_entry(void)                                          \
    {                                                                                          \
        return function;                                                                       \
    }

/* Training ----------------------------------------------------------------------------- */

struct tutti_settings;

/* Defaults; every setting has the name of its flag (`tutti train --help`). */
TUTTI_API int tutti_settings_create(struct tutti_settings **out);
TUTTI_API void tutti_settings_destroy(struct tutti_settings *settings); /* NULL is allowed */
/* tutti_settings_set(s, "batch", "64"); switches take "true" and "false". */
TUTTI_API int tutti_settings_set(struct tutti_settings *settings, const char *name,
                                 const char *value);

struct tutti_result {
    char folder[1024]; /* the run's folder */
    char weights_sha256[65];
    double train_loss, train_accuracy, val_loss, val_accuracy; /* NaN where unknown */
    double seconds, samples_per_s;
    int64_t steps;
};

/* Trains as `tutti train` does. model: NULL trains the one that the setting "model" names; with a
 * function the setting is a name for it ("model" by default), which no model of the zoo may have. The
 * run's folder keeps the function's graph, so that `tutti eval` and `tutti train --resume` know the
 * model. Ranks are processes forked from this one: call it before starting threads. */
TUTTI_API int tutti_train(const struct tutti_settings *settings, tutti_model_fn *model,
                          struct tutti_result *out);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_H */
