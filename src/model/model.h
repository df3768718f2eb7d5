/* SPDX-License-Identifier: MIT */
/* model.h - the zoo: functions that add nodes, and nothing else.
 *
 * A model knows its layers. It does not know ranks, shards, devices or optimizers.
 * Parameter names and definitions are those of torchvision or of plain PyTorch code.
 */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "graph/graph.h"

enum { MODEL_OPTIONS = 10, MODEL_WORDS = 8 };

/* What a model learns, which says what its inputs are. */
enum model_task {
    MODEL_IMAGES,       /* input (N, C, H, W); target: labels (N) */
    MODEL_TEXT_CLASSES, /* input: ids (N, T); target: labels (N) */
    MODEL_TRANSLATION,  /* input: ids (N, S); second: ids (N, T); target: the next ids (N, T) */
    MODEL_NEXT_TOKEN,   /* input: ids (N, T); target: the next ids (N, T) */
    MODEL_MASKED_TOKEN, /* input: ids (N, T), some hidden; target: what was hidden (N, T) */
    MODEL_TABLE,        /* input: a row's numbers (N, columns); target: labels (N) */
};

struct model_file;
struct json_value;

struct model_option {
    const char *name, *summary;
    double value; /* default */
    double minimum, maximum;
    bool is_whole;                      /* a whole number */
    const char *words[MODEL_WORDS + 1]; /* if any: the value is the number of one of these */
};

/* The row of the option that most classifiers have. */
#define MODEL_OPTION_CLASSES                                                                   \
    {                                                                                          \
        .name = "classes", .summary = "outputs; 0: as many as the data has classes",           \
        .maximum = 1000000, .is_whole = true                                                   \
    }

struct model_config {
    int64_t batch;
    struct shape sample; /* images: C, H, W; tables: columns */
    int classes;         /* of a classifier */
    int64_t vocab[2];    /* text: how many tokens there are, of the input and of the output */
    int64_t length[2];   /* text: places of input and second */
    bool training;       /* false: no dropout, statistics as learnt */
    bool whole; /* with what the loss does not need (graph_take_out_unused): for files */
    float label_smoothing;          /* in training: share of a label that is spread evenly */
    double options[MODEL_OPTIONS];  /* in the order of the model's table */
    const char *table, *statistics; /* for files: JSON of what its table has of them, or NULL */
    /* For files: `classes` names and the normalization (data/scale.h) of the data; NULL: none */
    const char *const *class_names;
    const char *normalize;
};

struct model {
    const char *name, *summary;
    const char *data;      /* the data set it is usually trained on */
    const char *optimizer; /* and how; NULL: sgd */
    enum model_task task;
    struct shape sample;         /* what that gives: C, H, W, or columns */
    int64_t vocab[2], length[2]; /* or, of text, with the settings' defaults */
    int classes;                 /* 0: it has none, and its loss does not look at labels */
    bool unit_pixels; /* input is in [0, 1] instead of normalized: models that reconstruct it */
    struct model_option options[MODEL_OPTIONS]; /* ended by a NULL name, or full */
    /* Adds the model to a graph that holds input and target (labels, which it may leave unused), and
     * in its roles the second input of a translation; sets the loss roles. */
    void (*build)(struct graph *graph, const struct model_config *config, struct value *input,
                  struct value *target);
    const struct model_file *file; /* a model that was read (model/file.h), instead of build */
    /* What the columns of its tables are, and what to standardize by (data/schema.h); NULL: as the data have them. */
    const struct json_value *table, *statistics;
    /* An array of `classes` texts, and how pixels are normalized (data/scale.h); NULL likewise. */
    const struct json_value *class_names;
    const char *normalize;
};

extern const struct model *const model_table[];   /* ended by NULL */
const struct model *model_find(const char *name); /* NULL if unknown */

/* The model's own data shape and default options, batch 1, training. */
struct model_config model_defaults(const struct model *model);
/* A value as a user writes it: a number or one of the words. */
MUST_CHECK enum status model_option_parse(const struct model_option *option, const char *text,
                                          double *out);
/* The word of a value; NULL if the option is a number. */
const char *model_option_word(const struct model_option *option, double value);
/* Outputs of a classifier with MODEL_OPTION_CLASSES at `option`; never fewer than the data needs. */
int64_t model_outputs(const struct model_config *config, int option);
/* Sets an option by name; STATUS_NOT_FOUND if the model has none of that name, STATUS_USAGE if the
 * value is out of range. */
MUST_CHECK enum status model_set_option(const struct model *model, struct model_config *config,
                                        const char *name, double value);
/* Adds the inputs of a task and sets their roles. */
void model_add_inputs(struct graph *graph, enum model_task task,
                      const struct model_config *config);
/* The forward graph with its loss. */
MUST_CHECK enum status model_build(const struct model *model, const struct model_config *config,
                                   struct graph **out);

#endif /* MODEL_MODEL_H */
