/* SPDX-License-Identifier: MIT */
/* settings.c - the table of settings, and reading and writing them. */
#include "train/settings.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(field) offsetof(struct settings, field), sizeof(((struct settings *)0)->field)
#define HUGE_COUNT 1e15

/* clang-format off: a row a line */
const struct setting settings_table[] = {
    { "data", 0, "NAME|PATH", "data set; default: the model's usual", "What", SETTING_TEXT,
      FIELD(data), 0, 0 },
    { "init", 0, "FILE", "start from these weights (safetensors)", "What", SETTING_TEXT,
      FIELD(init), 0, 0 },
    { "limit", 0, "N", "use the first N samples of each split; 0 is all", "What",
      SETTING_INTEGER, FIELD(limit), 0, HUGE_COUNT },
    { "layout", 0, "nchw|nhwc",
      "where .npy images have channels, if their shape leaves it open", "What", SETTING_TEXT,
      FIELD(layout), 0, 0 },

    { "normalize", 0, "HOW",
      "pixels: none, scale, dataset, imagenet, NAME or mean:M/std:S; default: the data set's",
      "Images", SETTING_TEXT, FIELD(normalize), 0, 0 },

    { "tokenizer", 0, "NAME|DIR", "characters, words or gpt2; default: the data set's usual",
      "Text", SETTING_TEXT, FIELD(tokenizer), 0, 0 },
    { "min-count", 0, "N", "a word must occur so often to be in the vocabulary; 0 picks",
      "Text", SETTING_INTEGER, FIELD(min_count), 0, 1e9 },
    { "vocab", 0, "N", "tokens in a vocabulary at most; 0: any number", "Text", SETTING_INTEGER,
      FIELD(vocab), 0, 1e8 },
    { "length", 0, "N", "tokens of a sample at most; 0 picks", "Text", SETTING_INTEGER,
      FIELD(length), 0, 1e6 },

    { "label", 0, "COLUMN", "target column, by name or number; default: the last", "Tables",
      SETTING_TEXT, FIELD(label), 0, 0 },
    { "skip-columns", 0, "LIST", "columns that are no features: names or numbers, with commas",
      "Tables", SETTING_TEXT, FIELD(skip_columns), 0, 0 },
    { "categories", 0, "LIST", "columns whose numbers are names, not amounts", "Tables",
      SETTING_TEXT, FIELD(categories), 0, 0 },
    { "fold", 0, "K/N", "rows of fold K of N are for testing (1/5)", "Tables", SETTING_TEXT,
      FIELD(fold), 0, 0 },

    { "epochs", 0, "E", "passes over the data", "How long", SETTING_INTEGER, FIELD(epochs), 1,
      1e9 },
    { "steps", 0, "K", "train for K steps, whatever --epochs says; 0: for --epochs", "How long",
      SETTING_INTEGER, FIELD(steps), 0, HUGE_COUNT },
    { "batch", 0, "B", "samples a step, over all ranks", "How long", SETTING_INTEGER,
      FIELD(batch), 1, 1e9 },
    { "shuffle", 0, NULL, "a new order of samples every epoch", "How long", SETTING_SWITCH,
      FIELD(shuffle), 0, 0 },
    { "drop-last", 0, NULL, "leave out the last, smaller batch of an epoch", "How long",
      SETTING_SWITCH, FIELD(drop_last), 0, 0 },
    { "seed", 0, "N", "initial weights, order of samples, augmentation, dropout", "How long",
      SETTING_UNSIGNED, FIELD(seed), 0, 1.8446744073709552e19 },

    { "crop", 0, "N", "shift images by up to N pixels, black beside them", "Augmentation",
      SETTING_INTEGER, FIELD(crop), 0, 1e6 },
    { "flip", 0, NULL, "mirror each image left to right with probability 1/2", "Augmentation",
      SETTING_SWITCH, FIELD(flip), 0, 0 },
    { "cutout", 0, "N",
      "set a square of N x N pixels of each image, centred anywhere, to the mean",
      "Augmentation", SETTING_INTEGER, FIELD(cutout), 0, 1e6 },

    { "strategy", 0, "NAME", "how training is distributed: see tutti strategies",
      "Distribution", SETTING_TEXT, FIELD(strategy), 0, 0 },
    { "split", 0, "dp=N,tp=N,pp=N,zero=K", "how the work is divided, and what is held in parts",
      "Distribution", SETTING_TEXT, FIELD(split), 0, 0 },
    { "pipeline", 0, "ORDER", "of a pipeline: gpipe, 1f1b or interleaved:V", "Distribution",
      SETTING_TEXT, FIELD(pipeline), 0, 0 },
    { "cut", 0, "LAYERS",
      "of a pipeline: layers that its stages begin with, but the first; measured; none: by "
      "kernels' times",
      "Distribution", SETTING_TEXT, FIELD(cut), 0, 0 },
    { "sync", 0, "WHEN",
      "when copies agree: step, async, bounded:K, elastic:T, local:H or gossip:ring",
      "Distribution", SETTING_TEXT, FIELD(sync), 0, 0 },
    { "meet", 0, "WHERE", "where copies meet: allreduce, ps:SERVERS, central or parallax",
      "Distribution", SETTING_TEXT, FIELD(meet), 0, 0 },
    { "ranks", 'n', "RANKS", "worker processes", "Distribution", SETTING_INTEGER, FIELD(ranks),
      1, 256 },
    { "flat", 0, NULL, "ranks share no memory, as if each were on a machine of its own",
      "Distribution", SETTING_SWITCH, FIELD(flat), 0, 0 },
    { "backup", 0, "K", "with servers: a step goes on without its K slowest workers",
      "Distribution", SETTING_INTEGER, FIELD(backup), 0, 255 },
    { "replicas", 0, "1|2", "with servers: how many of them have each slice of the parameters",
      "Distribution", SETTING_INTEGER, FIELD(replicas), 1, 2 },
    { "spares", 0, "K", "with servers: K workers stand by for others that are lost",
      "Distribution", SETTING_INTEGER, FIELD(spares), 0, 64 },
    { "staleness-lr", 0, NULL,
      "with servers: a gradient that k others overtook counts 1 / (1 + k)", "Distribution",
      SETTING_SWITCH, FIELD(staleness_lr), 0, 0 },
    { "tables", 0, "WAY",
      "with --strategy parallax: auto, dense, gather or serve for tables of embeddings",
      "Distribution", SETTING_TEXT, FIELD(tables), 0, 0 },
    { "compress", 0, "CODEC",
      "gradients between machines: bf16, int8, topk:0.01, onebit, powersgd:4", "Distribution",
      SETTING_TEXT, FIELD(compress), 0, 0 },
    { "compress-after", 0, "STEPS",
      "with --compress: gradients of so many steps go as they are", "Distribution",
      SETTING_INTEGER, FIELD(compress_after), 0, HUGE_COUNT },
    { "rails", 0, "WHO",
      "between machines: leaders, one rank each, or pairs, every rank; default: measured",
      "Distribution", SETTING_TEXT, FIELD(rails), 0, 0 },
    { "hosts", 0, "LIST|FILE", "machines to run on: a,b:2, n[1-4]; a file has a slash; slurm",
      "Distribution", SETTING_TEXT, FIELD(hosts), 0, 0 },
    { "launch-agent", 0, "PROGRAM", "with --hosts: runs a command on a machine, instead of ssh",
      "Distribution", SETTING_TEXT, FIELD(launch_agent), 0, 0 },
    { "mpirun", 0, "PROGRAM", "with --hosts: Open MPI's mpirun or MPICH's mpiexec",
      "Distribution", SETTING_TEXT, FIELD(mpirun), 0, 0 },
    { "threads", 0, "T", "threads a rank; 0: cores / ranks", "Distribution", SETTING_INTEGER,
      FIELD(threads), 0, 1024 },
    { "loader-threads", 0, "N",
      "threads a rank that read samples ahead; 0: as many as it takes", "Distribution",
      SETTING_INTEGER, FIELD(loader_threads), 0, 64 },
    { "shards", 0, "V",
      "logical shards of a step; 0: ranks x threads; ranks with batch norm, large models, GPUs",
      "Distribution", SETTING_INTEGER, FIELD(shards), 0, 1e6 },
    { "accumulate", 0, "K", "K times as many shards, one after the other: as --shards does",
      "Distribution", SETTING_INTEGER, FIELD(accumulate), 0, 1e6 },
    { "balance", 0, "auto|W,W..", "shards a rank by its speed: measured at start, or given",
      "Distribution", SETTING_TEXT, FIELD(balance), 0, 0 },
    { "local-after", 0, "STEP", "sync local: sum gradients every step before that one",
      "Distribution", SETTING_INTEGER, FIELD(local_after), 0, HUGE_COUNT },
    { "outer-lr", 0, "RATE", "sync local: rate of the outer optimizer; 1: the average itself",
      "Distribution", SETTING_NUMBER, FIELD(outer_lr), 0, 1e6 },
    { "outer-momentum", 0, "M", "sync local: Nesterov's momentum of the outer optimizer",
      "Distribution", SETTING_NUMBER, FIELD(outer_momentum), 0, 1 },
    { "slow", 0, "rank=R,factor=F", "testing aid: steps of one rank take F times as long",
      "Distribution", SETTING_TEXT, FIELD(slow), 0, 0 },
    { "device", 0, "cpu|cuda", "where arithmetic runs; ranks take GPUs in turn", "Distribution",
      SETTING_TEXT, FIELD(device), 0, 0 },
    { "precision", 0, "f32|tf32|bf16|fp16",
      "what a device computes in; usually bf16, the cpu f32", "Distribution", SETTING_TEXT,
      FIELD(precision), 0, 0 },
    { "rounding", 0, "nearest|stochastic",
      "stochastic: weights are bf16 alone, and updates round them by chance", "Distribution",
      SETTING_TEXT, FIELD(rounding), 0, 0 },
    { "data-on", 0, "auto|host|device",
      "where images lie; auto: on a device, as bytes, if they need little of it",
      "Distribution", SETTING_TEXT, FIELD(data_on), 0, 0 },
    { "bucket-mib", 0, "M", "size of a gradient bucket; 0 picks", "Distribution",
      SETTING_NUMBER, FIELD(bucket_mib), 0, 1e6 },
    { "memory", 0, "BYTES",
      "that a rank may need: what needs more is refused; 0: the machine's", "Distribution",
      SETTING_INTEGER, FIELD(memory), 0, HUGE_COUNT },
    { "sequence-parallel", 0, NULL,
      "with tp: norms and dropouts between shared layers are shared, too, by places of "
      "sequences",
      "Distribution", SETTING_SWITCH, FIELD(sequence_parallel), 0, 0 },
    { "recompute", 0, NULL, "make activations again for backward: less memory, more time",
      "Distribution", SETTING_SWITCH, FIELD(recompute), 0, 0 },
    { "sync-batch-norm", 0, NULL,
      "batch norm by the statistics of the whole step, not of a shard", "Distribution",
      SETTING_SWITCH, FIELD(sync_batch_norm), 0, 0 },
    { "factors", 0, NULL, "exchange activations instead of gradients where those are smaller",
      "Distribution", SETTING_SWITCH, FIELD(factors), 0, 0 },
    { "kernels", 0, "FILE", "table of kernel choices (tutti bench tune); none: built in",
      "Distribution", SETTING_TEXT, FIELD(kernels), 0, 0 },
    { "dense", 0, NULL,
      "update all rows of embeddings in each step, not those alone that occur", "Distribution",
      SETTING_SWITCH, FIELD(dense), 0, 0 },
    { "lost-after", 0, "SECONDS",
      "a rank that stands still, or a machine that is silent, for so long is lost",
      "Distribution", SETTING_NUMBER, FIELD(lost_after), 0.5, 1e6 },
    { "stall-timeout", 0, "SECONDS",
      "give up on a rank that others have waited for so long; 0: never", "Distribution",
      SETTING_NUMBER, FIELD(stall_timeout), 0, 1e9 },
    { "exact", 0, NULL, "no kernels that round more than plain sums do", "Distribution",
      SETTING_SWITCH, FIELD(exact), 0, 0 },

    { "optimizer", 0, "NAME", "sgd, adam, adamw, lars or lamb; default: the model's usual",
      "Optimizer", SETTING_TEXT, FIELD(optimizer), 0, 0 },
    { "lr", 0, "RATE", "learning rate; sgd 0.05, adam, adamw 0.001, lars 2, lamb 0.005",
      "Optimizer", SETTING_NUMBER, FIELD(lr), 0, 1e6 },
    { "momentum", 0, "M", "sgd, lars: 0.9", "Optimizer", SETTING_NUMBER, FIELD(momentum), 0,
      1 },
    { "nesterov", 0, NULL, "sgd, lars: Nesterov's form", "Optimizer", SETTING_SWITCH,
      FIELD(nesterov), 0, 0 },
    { "weight-decay", 0, "D", "pull towards zero; adamw, lamb 0.01, lars 0.0001, else 0",
      "Optimizer", SETTING_NUMBER, FIELD(weight_decay), 0, 1e6 },
    { "beta1", 0, "B", "adam, adamw, lamb: 0.9", "Optimizer", SETTING_NUMBER, FIELD(beta1), 0,
      0.999999 },
    { "beta2", 0, "B", "adam, adamw, lamb: 0.999", "Optimizer", SETTING_NUMBER, FIELD(beta2), 0,
      0.999999 },
    { "epsilon", 0, "E", "adam, adamw 1e-8, lamb 1e-6", "Optimizer", SETTING_NUMBER,
      FIELD(epsilon), 0, 1 },
    { "trust", 0, "T", "lars: trust coefficient, 0.001", "Optimizer", SETTING_NUMBER,
      FIELD(trust), 0, 1e6 },
    { "adapt-all", 0, NULL, "lars, lamb: biases and norms have a trust ratio and decay, too",
      "Optimizer", SETTING_SWITCH, FIELD(adapt_all), 0, 0 },
    { "clip", 0, "NORM", "scale a gradient with a larger norm down to this one; 0 is off",
      "Optimizer", SETTING_NUMBER, FIELD(clip), 0, 1e30 },
    { "label-smoothing", 0, "S", "share of each label spread evenly over the classes",
      "Optimizer", SETTING_NUMBER, FIELD(label_smoothing), 0, 1 },
    { "schedule", 0, "NAME", "constant, step or cosine", "Optimizer", SETTING_TEXT,
      FIELD(schedule), 0, 0 },
    { "warmup", 0, "STEPS", "rise linearly to the rate over these steps", "Optimizer",
      SETTING_INTEGER, FIELD(warmup), 0, HUGE_COUNT },
    { "scale-lr", 0, NULL, "multiply rates by batch / base-batch; warm up from the rate given",
      "Optimizer", SETTING_SWITCH, FIELD(scale_lr), 0, 0 },
    { "base-batch", 0, "N", "with --scale-lr: the batch that --lr is for; 0: 256", "Optimizer",
      SETTING_INTEGER, FIELD(base_batch), 0, 1e9 },
    { "decay-every", 0, "STEPS", "schedule step: multiply by gamma every so often", "Optimizer",
      SETTING_INTEGER, FIELD(decay_every), 0, HUGE_COUNT },
    { "gamma", 0, "G", "schedule step: factor", "Optimizer", SETTING_NUMBER, FIELD(gamma), 0,
      1 },
    { "final-lr", 0, "RATE", "schedule cosine: where it ends", "Optimizer", SETTING_NUMBER,
      FIELD(final_lr), 0, 1e6 },

    { "out", 0, "DIR", "folder of results; train makes a new one under runs/ without",
      "Results", SETTING_TEXT, FIELD(out), 0, 0 },
    { "log-every", 0, "STEPS", "steps between lines of metrics.jsonl", "Results",
      SETTING_INTEGER, FIELD(log_every), 1, HUGE_COUNT },
    { "eval-every", 0, "EPOCHS", "epochs between evaluations; 0: at the end only", "Results",
      SETTING_INTEGER, FIELD(eval_every), 0, 1e9 },
    { "checkpoint-every", 0, "STEPS",
      "steps between checkpoints; 0: after every epoch and every minute", "Results",
      SETTING_INTEGER, FIELD(checkpoint_every), 0, HUGE_COUNT },
    { "keep", 0, "N", "checkpoints kept", "Results", SETTING_INTEGER, FIELD(keep), 1, 1e6 },
    { "trace", 0, NULL, "write trace.json: what every thread of every rank did when", "Results",
      SETTING_SWITCH, FIELD(trace), 0, 0 },
    { "trace-steps", 0, "A:B", "steps of the trace; default: ten, after the first ten",
      "Results", SETTING_TEXT, FIELD(trace_steps), 0, 0 },
    { NULL, 0, NULL, NULL, NULL, SETTING_TEXT, 0, 0, 0, 0 },
};
/* clang-format on */

void settings_init(struct settings *settings)
{
    *settings = (struct settings){
        .strategy = "",
        .device = "cpu",
        .data_on = "auto",
        .rounding = "nearest",
        .ranks = 1,
        .replicas = 1,
        .batch = 64,
        .epochs = 3,
        .schedule = "constant",
        .lr = NAN,
        .momentum = NAN,
        .weight_decay = NAN,
        .beta1 = NAN,
        .beta2 = NAN,
        .epsilon = NAN,
        .trust = NAN,
        .gamma = 0.1,
        .outer_lr = 1,
        .seed = 1,
        .shuffle = true,
        .factors = true,
        .log_every = 50,
        .eval_every = 1,
        .keep = 2,
        .lost_after = 2,
        .stall_timeout = 600,
    };
    for (int i = 0; i < MODEL_OPTIONS; i++)
        settings->options[i] = NAN;
}

const struct setting *settings_find(const char *name)
{
    for (const struct setting *s = settings_table; s->name; s++) {
        if (strcmp(s->name, name) == 0)
            return s;
    }
    return NULL;
}

void settings_reset(struct settings *settings, const char *const *names)
{
    struct settings usual;

    settings_init(&usual);
    for (; *names; names++) {
        const struct setting *setting = settings_find(*names);
        BUG_ON(!setting);
        memcpy((char *)settings + setting->offset, (char *)&usual + setting->offset,
               setting->size);
    }
}

static enum status refuse(const struct setting *setting, const char *text, const char *why)
{
    return FAIL(STATUS_USAGE, "--%s %s: %s", setting->name, text, why);
}

/* Numbers out of range are refused with the range; texts that are no numbers as such. */
static enum status parse_number(const struct setting *setting, const char *text, double *out)
{
    char *end, why[128];

    errno = 0;
    const double number = strtod(text, &end);
    if (end == text || *end || errno == ERANGE || !isfinite(number))
        return refuse(setting, text, "not a number");
    if (number < setting->minimum || number > setting->maximum) {
        snprintf(why, sizeof why, "must lie between %.15g and %.15g", setting->minimum,
                 setting->maximum);
        return refuse(setting, text, why);
    }
    *out = number;
    return STATUS_OK;
}

static enum status parse_unsigned(const struct setting *setting, const char *text,
                                  uint64_t *out)
{
    char *end;

    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (end == text || *end || errno == ERANGE || strchr(text, '-'))
        return refuse(setting, text, "not a whole number from 0 to 18446744073709551615");
    *out = number;
    return STATUS_OK;
}

enum status settings_set(struct settings *settings, const struct setting *setting,
                         const char *text)
{
    char *field = (char *)settings + setting->offset;
    double number = 0;

    switch (setting->kind) {
    case SETTING_TEXT:
        if (strlen(text) >= setting->size)
            return refuse(setting, text, "too long");
        snprintf(field, setting->size, "%s", text);
        return STATUS_OK;
    case SETTING_UNSIGNED: {
        uint64_t whole = 0;
        TRY(parse_unsigned(setting, text, &whole));
        memcpy(field, &whole, sizeof whole);
        return STATUS_OK;
    }
    case SETTING_INTEGER: {
        TRY(parse_number(setting, text, &number));
        const int64_t whole = (int64_t)number;
        if ((double)whole != number)
            return refuse(setting, text, "not a whole number");
        memcpy(field, &whole, sizeof whole);
        return STATUS_OK;
    }
    case SETTING_NUMBER:
        TRY(parse_number(setting, text, &number));
        memcpy(field, &number, sizeof number);
        return STATUS_OK;
    case SETTING_SWITCH:
    default: {
        const bool on = strcmp(text, "true") == 0;
        if (!on && strcmp(text, "false") != 0)
            return refuse(setting, text, "true or false");
        memcpy(field, &on, sizeof on);
        return STATUS_OK;
    }
    }
}

/* "checkpoint-every" is "checkpoint_every" in JSON. */
static void json_key(const struct setting *setting, char key[64])
{
    snprintf(key, 64, "%s", setting->name);
    for (char *c = key; *c; c++)
        *c = *c == '-' ? '_' : *c;
}

void settings_print(const struct settings *settings, struct strbuf *out)
{
    strbuf_add(out, "\"model\": ");
    strbuf_add_json(out, settings->model);
    for (const struct setting *s = settings_table; s->name; s++) {
        const char *field = (const char *)settings + s->offset;
        char key[64];
        double number;
        int64_t whole;
        uint64_t big;

        json_key(s, key);
        if (strcmp(key, "out") == 0)
            continue; /* a run's folder may be moved */
        strbuf_printf(out, ",\n  \"%s\": ", key);
        switch (s->kind) {
        case SETTING_TEXT:
            strbuf_add_json(out, field);
            break;
        case SETTING_INTEGER:
            memcpy(&whole, field, sizeof whole);
            strbuf_printf(out, "%lld", (long long)whole);
            break;
        case SETTING_UNSIGNED: /* as text where a JSON number may not hold it */
            memcpy(&big, field, sizeof big);
            strbuf_printf(out, big >> 53 ? "\"%llu\"" : "%llu", (unsigned long long)big);
            break;
        case SETTING_NUMBER:
            memcpy(&number, field, sizeof number);
            strbuf_add_number(out, number);
            break;
        case SETTING_SWITCH:
        default:
            strbuf_add(out, *(const bool *)field ? "true" : "false");
        }
    }
    const struct model *model = model_find(settings->model);
    strbuf_add(out, ",\n  \"model_options\": {");
    for (int i = 0, n = 0; model && i < MODEL_OPTIONS && model->options[i].name; i++) {
        if (isnan(settings->options[i]))
            continue;
        const char *word = model_option_word(&model->options[i], settings->options[i]);
        strbuf_printf(out, "%s\"%s\": ", n++ ? ", " : "", model->options[i].name);
        if (word)
            strbuf_add_json(out, word);
        else
            strbuf_add_number(out, settings->options[i]);
    }
    strbuf_add(out, "}");
}

enum status settings_read(struct settings *settings, const struct json_value *object)
{
    const char *model = json_text(object, "model", "");

    if (!*model || strlen(model) >= sizeof settings->model)
        return FAIL(STATUS_CORRUPT, "no model is named");
    snprintf(settings->model, sizeof settings->model, "%s", model);
    for (const struct setting *s = settings_table; s->name; s++) {
        char key[64], text[64];
        json_key(s, key);
        const struct json_value *member = json_get(object, key);
        if (!member || member->kind == JSON_NULL)
            continue;
        const char *value = member->text;
        if (member->kind == JSON_NUMBER) {
            if (member->is_integer)
                snprintf(text, sizeof text, "%lld", (long long)member->integer);
            else
                snprintf(text, sizeof text, "%.17g", member->number);
            value = text;
        } else if (member->kind == JSON_BOOL) {
            value = member->boolean ? "true" : "false";
        } else if (member->kind != JSON_STRING) {
            return FAIL(STATUS_CORRUPT, "member %s has the wrong kind", key);
        }
        if (settings_set(settings, s, value) != STATUS_OK)
            return FAIL(STATUS_CORRUPT, "%s", status_message());
    }
    const struct json_value *options = json_get(object, "model_options");
    const struct model *zoo = model_find(settings->model);
    for (int i = 0; zoo && i < MODEL_OPTIONS && zoo->options[i].name; i++) {
        const struct model_option *option = &zoo->options[i];
        const char *word = json_text(options, option->name, NULL);
        settings->options[i] = json_number(options, option->name, NAN);
        if (word && model_option_parse(option, word, &settings->options[i]) != STATUS_OK)
            return FAIL(STATUS_CORRUPT, "%s", status_message());
    }
    return STATUS_OK;
}
