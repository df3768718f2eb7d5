/* SPDX-License-Identifier: MIT */
/* settings.h - everything a run can be told, once: flags, their help, defaults, config.json.
 *
 * A setting is a row of settings_table. The command line, --help, the man page's check, config.json
 * and --resume all walk that table.
 */
#ifndef TRAIN_SETTINGS_H
#define TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "base/strbuf.h"
#include "model/model.h"

enum { SETTINGS_TEXT = 1024 };

struct settings {
    char model[SETTINGS_TEXT]; /* a name of the zoo, or a path to a C file */
    /* The file of its model that the run being read keeps; "": it keeps none. No flag. */
    char model_file[SETTINGS_TEXT];
    char data[SETTINGS_TEXT];                         /* "" is the model's usual */
    char strategy[32], split[64], sync[64], meet[64]; /* "" is not given */
    char pipeline[32];       /* the order of shards in a pipeline; "" is not given */
    char cut[SETTINGS_TEXT]; /* layers that its stages begin with; "": balanced */
    char device[32];
    char data_on[16];               /* where samples lie: "": auto */
    char precision[16];             /* what kernels compute in; "": the device's usual */
    char rounding[16];              /* of new weights in bf16 */
    int64_t ranks, threads, shards; /* 0 picks */
    int64_t shard_threads;          /* of which shards are picked; 0: threads. No flag */
    bool anchored; /* updates see sum + mu (param - anchor) + shift. No flag, nor has mu */
    double mu;
    bool flat;          /* every rank is a node */
    int64_t accumulate; /* shards that a thread has one after the other; 0: not given */
    int64_t backup;     /* with servers: workers of a step that are not waited for */
    int64_t replicas;   /* with servers: how many have each slice */
    int64_t spares;     /* with servers: workers that stand by */
    bool staleness_lr;  /* with servers: late gradients count less */
    char tables[16];    /* the way of tables of embeddings between machines; "" is not given */
    char compress[SETTINGS_TEXT];    /* gradients between machines; "": not */
    int64_t compress_after;          /* steps whose gradients still go as they are */
    char rails[32];                  /* who talks between them: leaders, pairs; "": measured */
    char balance[SETTINGS_TEXT];     /* "": ranks have as many shards; auto; or weights */
    int64_t local_after;             /* sync local: steps that are synchronous before */
    double outer_lr, outer_momentum; /* sync local: of the outer optimizer; 1 and 0: none */
    char slow[64];                   /* rank=R,factor=F; "": none */
    int64_t batch, epochs, steps;    /* steps 0: epochs decide */
    char hosts[SETTINGS_TEXT]; /* machines to run on: a list, a file, "slurm"; "": this one */
    char launch_agent[SETTINGS_TEXT], mpirun[SETTINGS_TEXT]; /* programs; "": ssh, mpirun */
    int64_t limit;       /* samples used of each split; 0 is all */
    char layout[8];      /* of image arrays: nchw, nhwc; "": as their shape says */
    char normalize[160]; /* of images: what scale_parse reads, or dataset; "": its own */
    char tokenizer[SETTINGS_TEXT];    /* of text; "" is the data set's usual */
    int64_t min_count, vocab, length; /* of text; 0 picks */
    char label[SETTINGS_TEXT];        /* of tables: a column; "": the last */
    char skip_columns[SETTINGS_TEXT], categories[SETTINGS_TEXT]; /* lists of columns */
    char fold[32]; /* of tables: "K/N"; "": 1/5, unless a file is for testing */
    char optimizer[32], schedule[32]; /* optimizer "": the model's usual */
    double lr;                        /* NaN here and below: the optimizer's default */
    double momentum, weight_decay, beta1, beta2, epsilon;
    bool nesterov;
    double trust;       /* of LARS */
    bool adapt_all;     /* LARS, LAMB: biases and norms, too */
    bool scale_lr;      /* rates are for base_batch samples a step */
    int64_t base_batch; /* 0 picks, if rates are scaled */
    double gamma, final_lr;
    int64_t decay_every, warmup; /* steps */
    double clip;                 /* 0 is off */
    double label_smoothing;      /* share of a label that is spread evenly; 0 is off */
    uint64_t seed;
    bool shuffle, drop_last;
    int64_t crop, cutout; /* augmentation of training samples, pixels; 0 is none */
    bool flip;
    int64_t loader_threads;        /* 0 picks */
    int64_t log_every, eval_every; /* steps; epochs (0: never) */
    int64_t checkpoint_every;      /* steps; 0: at the end of an epoch and once a minute */
    int64_t keep;                  /* checkpoints kept */
    bool sequence_parallel;        /* with tp: places of sequences are shared between layers */
    bool recompute;                /* activations are made again for backward */
    bool sync_batch_norm;          /* batch statistics of the whole step, not of each shard */
    bool factors;                  /* exchange factors of gradients where they are smaller */
    bool dense;                    /* gradients of embeddings have all rows */
    double bucket_mib;             /* 0 picks */
    int64_t memory;                /* bytes that a rank may need; 0: what the machine has */
    bool trace;                    /* writes trace.json */
    char trace_steps[64];          /* "A:B"; "" picks */
    double lost_after;             /* seconds: launch_config.stuck_ms */
    double stall_timeout;          /* seconds; 0: ranks wait for others for ever */
    char init[SETTINGS_TEXT];      /* safetensors file with initial weights, or "" */
    char out[SETTINGS_TEXT];       /* run folder; "" makes a new one under runs/ */
    char
        kernels[SETTINGS_TEXT]; /* table of choices, or "" for the user's own if there is one */
    bool exact;                 /* leave out kernels that round more than plain sums */
    double options[MODEL_OPTIONS]; /* the model's own; NaN: default */
};

enum setting_kind {
    SETTING_TEXT,
    SETTING_INTEGER,
    SETTING_UNSIGNED,
    SETTING_NUMBER,
    SETTING_SWITCH
};

struct setting {
    const char *name;     /* as a flag without the dashes; '-' becomes '_' in JSON */
    char letter;          /* short flag, or 0 */
    const char *argument; /* what help calls the value: "N", "RATE" */
    const char *help;
    const char *group; /* heading in help */
    enum setting_kind kind;
    size_t offset, size; /* of the field; size of a text field */
    double minimum, maximum;
};
extern const struct setting settings_table[]; /* ended by a NULL name */

void settings_init(struct settings *settings); /* defaults */

/* Sets a field from text, as typed. Failure (STATUS_USAGE) names the flag, the value and what would
 * be right. A switch takes "true" and "false"; on the command line --NAME and --no-NAME. */
MUST_CHECK enum status settings_set(struct settings *settings, const struct setting *setting,
                                    const char *text);
const struct setting *settings_find(const char *name); /* NULL if unknown */
/* Makes those of these names, ended by NULL, what settings_init makes them. */
void settings_reset(struct settings *settings, const char *const *names);

/* Members of config.json: `"model": "mlp", "batch": 64, ...` without braces. */
void settings_print(const struct settings *settings, struct strbuf *out);
/* Reads the same back; unknown members are left alone. */
MUST_CHECK enum status settings_read(struct settings *settings,
                                     const struct json_value *object);

#endif /* TRAIN_SETTINGS_H */
