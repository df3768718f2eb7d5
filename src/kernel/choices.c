/* SPDX-License-Identifier: MIT */
/* choices.c - which kernel runs for a problem: built-in rules, and a user's file over them.
 *
 * The file, as `tutti bench tune` writes it:
 *
 *   { "isa": "avx512",
 *     "choices": { "linear 32x784 250x784 250 relu": "onednn", ... } }
 *
 * A line is refused when the file is read, not when it is used: its key is parsed back to
 * a problem, and the kernel must exist and be able to run it.
 *
 * That of a device has its name in place of the instruction set, and keys begin with the precision:
 *
 *   { "device": "cuda",
 *     "choices": { "bf16 attention_grad 64x256x1152 ... heads 6 causal": "hopper", ... } }
 *
 * Who reads it need not have opened the device; whether it has the kernel shows when a plan is made.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "kernel/device.h"
#include "kernel/kernel.h"

enum { FILE_MAX = 16 << 20 };

/* The first rule that fits a problem and whose kernel is built in and can run it, decides;
 * where none does, `order`. Measured on one core of a Xeon of 2023, with AVX-512 and AVX2:
 * Winograd's 3x3 convolution takes 0.25 to 0.75 of the time of the others, unless there are few
 * channels or so few pixels (one or two small images) that the transform of the weights weighs
 * more. With few channels oneDNN takes 0.4 to 0.8 of the time of our own. Of matrix products our
 * own are as quick as oneDNN's or quicker (0.85 to 1.03 of its time), but where few rows meet large
 * weights and packing these is not worth it: there oneDNN takes 0.8 to 0.95 (0.45 for a gradient of
 * 4096 x 4096 from 32 rows). Products by AMX take 0.55 to 0.65 of the time of our own from 256 rows
 * on; fewer may be made from factors (pass/bucket.c), whose bits are those of our own. Gradients by two bf16 a
 * float take 0.65 of that. */
struct rule {
    const char *op;
    int64_t channels_from, channels_below; /* the fewer of input and output; 0: no limit */
    int64_t rows_from;                     /* pixels of y, or rows of a linear layer; 0: any */
    const char *kernel;
};

static const struct rule rules[] = {
    { "linear", 256, 0, 256, "amx" },
    { "linear_grad_input", 256, 0, 256, "amx_pairs" },
    { "linear_grad_weight", 256, 0, 256, "amx_pairs" },
    { "linear_grad_input", 256, 0, 256, "amx" },
    { "linear_grad_weight", 256, 0, 256, "amx" },
    { "lstm", 128, 0, 16384, "amx" }, /* here rows times units, below rows times gates */
    { "gru", 128, 0, 16384, "amx" },
    { "lstm_grad", 128, 0, 65536, "amx" },
    { "gru_grad", 128, 0, 49152, "amx" },
    { "linear", 256, 0, 1024, "own" },
    { "linear", 4096, 0, 24, "own" },
    { "linear", 384, 0, 32, "onednn" },
    { "linear_grad_weight", 512, 0, 512, "own" },
    { "linear_grad_weight", 512, 0, 32, "onednn" },
    { "conv2d", 8, 0, 32, "winograd" },
    { "conv2d", 0, 8, 0, "onednn" },
    { "conv2d_grad_input", 8, 0, 32, "winograd" },
    { "conv2d_grad_input", 0, 8, 0, "onednn" },
    { "conv2d_grad_weight", 8, 0, 32, "winograd" },
    { "conv2d_grad_weight", 0, 8, 0, "onednn" },
    { "conv2d_pool", 8, 0, 8, "winograd" },
    { "conv2d_pool_grad_input", 8, 0, 32, "winograd" },
    { "conv2d_pool_grad_weight", 8, 0, 8, "winograd" },
    { 0 },
};

enum window { WINDOW_ANY, WINDOW_ONE, WINDOW_STRIDED, WINDOW_ONE_STRIDED };

/* Rules by the window of a convolution, which go before the others. "depthwise", "grey" and
 * "matrix" run nothing but what they are best at; for windows of one pixel, though, oneDNN takes
 * 0.75 to 0.95 of the time of the others, and so with a stride, unless there are many channels
 * (256, oneDNN takes 1.35 of our own), or gradients of the input go to many. Winograd's phases take
 * 0.6 to 0.95 of the better one's, given some channels and pixels: those of dx for gradients of
 * the input, four times as many as of dy. Where 32 channels and images fill tile registers, sums by
 * AMX of two bf16 a float take 0.55 to 0.95 of the time of Winograd's and are as exact (1e-5 of the largest
 * value at most), those of three 0.6 of the time of other plain sums, which is what exact choices have. Of one
 * pixel, from 64 channels on, two bf16 take 0.45 to 0.7 of oneDNN's time and three 0.65 to 0.9; gradients of
 * weights are packed from both sides, so two take 0.55 to 0.8 of it from 128 channels on, three gain nothing. */
struct window_rule {
    const char *op;
    enum window window;
    int64_t channels_from, channels_below; /* as in struct rule */
    int64_t rows_from;
    const char *kernel;
    bool fills; /* images make up three quarters of blocks of 32, or more */
};

static const struct window_rule window_rules[] = {
    { "conv2d", WINDOW_ONE_STRIDED, 128, 0, 256, "amx", true },
    { "conv2d_grad_input", WINDOW_ONE_STRIDED, 128, 0, 256, "amx", true },
    { "conv2d_grad_weight", WINDOW_ONE_STRIDED, 128, 0, 256, "amx", true },
    { "conv2d", WINDOW_ANY, 0, 0, 0, "depthwise", false },
    { "conv2d_grad_input", WINDOW_ANY, 0, 0, 0, "depthwise", false },
    { "conv2d_grad_weight", WINDOW_ANY, 0, 0, 0, "depthwise", false },
    { "conv2d", WINDOW_ANY, 0, 0, 0, "grey", false },
    { "conv2d_grad_input", WINDOW_ANY, 0, 0, 0, "grey", false },
    { "conv2d_grad_weight", WINDOW_ANY, 0, 0, 0, "grey", false },
    { "conv2d_transpose", WINDOW_ANY, 0, 0, 0, "grey", false },
    { "conv2d_transpose_grad_input", WINDOW_ANY, 0, 0, 0, "grey", false },
    { "conv2d_transpose_grad_weight", WINDOW_ANY, 0, 0, 0, "grey", false },
    { "conv2d", WINDOW_ONE, 64, 0, 256, "amx_pairs", true },
    { "conv2d_grad_input", WINDOW_ONE, 64, 0, 256, "amx_pairs", true },
    { "conv2d_grad_weight", WINDOW_ONE, 128, 0, 256, "amx_pairs", true },
    { "conv2d", WINDOW_ONE, 64, 0, 256, "amx", true },
    { "conv2d_grad_input", WINDOW_ONE, 64, 0, 256, "amx", true },
    { "conv2d_stats", WINDOW_ONE, 64, 0, 0, "amx_pairs", false },
    { "norm_conv2d", WINDOW_ONE, 64, 0, 0, "amx_pairs", false },
    { "conv2d_stats_grad", WINDOW_ONE, 64, 0, 0, "amx_pairs", false },
    { "norm_conv2d_grad", WINDOW_ONE, 64, 0, 0, "amx_pairs", false },
    { "norm_conv2d_stats", WINDOW_ONE, 64, 0, 0, "amx_pairs", false },
    { "norm_conv2d_stats_grad", WINDOW_ONE, 64, 0, 0, "amx_pairs", false },
    { "conv2d", WINDOW_ONE, 0, 0, 0, "onednn", false },
    { "conv2d_grad_input", WINDOW_ONE, 0, 0, 0, "onednn", false },
    { "conv2d_grad_weight", WINDOW_ONE, 0, 0, 0, "onednn", false },
    { "conv2d", WINDOW_ANY, 0, 0, 0, "matrix", false },
    { "conv2d_grad_input", WINDOW_ANY, 0, 0, 0, "matrix", false },
    { "conv2d_grad_weight", WINDOW_ANY, 0, 0, 0, "matrix", false },
    { "conv2d_transpose", WINDOW_ANY, 0, 0, 0, "matrix", false },
    { "conv2d_transpose_grad_input", WINDOW_ANY, 0, 0, 0, "matrix", false },
    { "conv2d_transpose_grad_weight", WINDOW_ANY, 0, 0, 0, "matrix", false },
    { "conv2d", WINDOW_ANY, 32, 0, 256, "amx_pairs", true },
    { "conv2d_grad_input", WINDOW_ANY, 32, 0, 256, "amx_pairs", true },
    { "conv2d_grad_weight", WINDOW_ANY, 32, 0, 256, "amx_pairs", true },
    { "conv2d", WINDOW_ANY, 32, 0, 256, "amx", true },
    { "conv2d_grad_input", WINDOW_ANY, 32, 0, 256, "amx", true },
    { "conv2d_grad_weight", WINDOW_ANY, 32, 0, 256, "amx", true },
    { "conv2d", WINDOW_STRIDED, 48, 0, 128, "winograd", false },
    { "conv2d", WINDOW_STRIDED, 0, 256, 0, "onednn", false },
    { "conv2d", WINDOW_STRIDED, 0, 0, 0, "own", false },
    { "conv2d_grad_input", WINDOW_STRIDED, 48, 0, 512, "winograd", false },
    { "conv2d_grad_input", WINDOW_STRIDED, 0, 64, 0, "onednn", false },
    { "conv2d_grad_input", WINDOW_STRIDED, 0, 0, 0, "own", false },
    { "conv2d_grad_weight", WINDOW_STRIDED, 48, 0, 128, "winograd", false },
    { "conv2d_grad_weight", WINDOW_STRIDED, 0, 0, 0, "own", false },
    { "conv2d_transpose", WINDOW_STRIDED, 0, 64, 0, "onednn", false },
    { "conv2d_transpose_grad_input", WINDOW_STRIDED, 0, 0, 0, "onednn", false },
    { "conv2d_transpose_grad_weight", WINDOW_STRIDED, 0, 0, 0, "onednn", false },
    { 0 },
};

/* Kernels that round more than plain sums do. */
static const char *const rough[] = { "winograd", "amx_pairs" };

static const char *const order[] = { "own", "onednn", "openblas", "reference" };

struct line {
    const char *problem;         /* as kernel_print writes it; a device's, behind a precision */
    const struct kernel *kernel; /* NULL: a device's */
    const char *name;            /* of the kernel */
};

struct kernel_choices {
    struct arena *arena; /* the keys */
    struct line *lines;  /* sorted by problem */
    size_t n_lines;
    const char *device; /* whose lines they are; NULL: this processor's */
    bool exact;         /* no rough kernels */
    char hash[SHA256_HEX];
};

static bool can_run(const struct kernel *kernel, const struct kernel_problem *problem)
{
    return kernel != NULL && (kernel->can_run == NULL || kernel->can_run(problem));
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(((const struct line *)a)->problem, ((const struct line *)b)->problem);
}

/* Reading ------------------------------------------------------------------------------ */

static const char *const precisions[] = { "f32", "tf32", "bf16", "fp16" };

/* What follows a precision; NULL: there is none. */
static const char *skip_precision(const char *key)
{
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        const size_t length = strlen(precisions[i]);
        if (strncmp(key, precisions[i], length) == 0 && key[length] == ' ')
            return key + length + 1;
    }
    return NULL;
}

/* The kernel of this processor. */
static enum status find_here(const char *path, const char *key, const char *name,
                             const struct kernel_problem *problem, const struct kernel **out)
{
    const struct kernel *kernel = kernel_find(problem->op, name);

    if (kernel == NULL)
        return FAIL(STATUS_NOT_FOUND, "%s: %s has no kernel called %s in this build", path,
                    problem->op, name);
    if (!can_run(kernel, problem))
        return FAIL(STATUS_UNSUPPORTED, "%s: kernel %s cannot run \"%s\"", path, name, key);
    *out = kernel;
    return STATUS_OK;
}

static enum status read_line(const char *path, const char *key, const struct json_value *value,
                             const struct kernel_choices *choices, struct line *out)
{
    const char *text = choices->device ? skip_precision(key) : key;
    struct kernel_problem problem;

    if (value->kind != JSON_STRING)
        return FAIL(STATUS_CORRUPT, "%s: the choice for \"%s\" is not a name", path, key);
    if (text == NULL)
        return FAIL(STATUS_CORRUPT, "%s: \"%s\" does not begin with f32, tf32, bf16 or fp16",
                    path, key);
    if (kernel_parse(text, &problem) != STATUS_OK) {
        char reason[KERNEL_TEXT];
        (void)snprintf(reason, sizeof reason, "%s", status_message());
        return FAIL(STATUS_CORRUPT, "%s: \"%s\" is no problem: %s", path, key, reason);
    }
    *out = (struct line){ .problem = arena_strdup(choices->arena, key),
                          .name = arena_strdup(choices->arena, value->text) };
    if (!choices->device)
        TRY(find_here(path, key, value->text, &problem, &out->kernel));
    return out->problem != NULL && out->name != NULL ? STATUS_OK : STATUS_NO_MEMORY;
}

static bool is_isa(const char *name)
{
    return strcmp(name, "generic") == 0 || strcmp(name, "avx2") == 0 ||
           strcmp(name, "avx512") == 0 || strcmp(name, "amx") == 0;
}

static bool is_device(const char *name)
{
    for (int i = 0; device_names[i]; i++) {
        if (strcmp(name, device_names[i]) == 0)
            return true;
    }
    return false;
}

/* Whose the file is. */
static enum status read_owner(const char *path, const struct json_value *root, const char **out)
{
    const char *isa = json_text(root, "isa", NULL), *device = json_text(root, "device", NULL);

    if (device != NULL && (isa != NULL || !is_device(device)))
        return FAIL(STATUS_CORRUPT, "%s: \"device\" is not cuda", path);
    if (device == NULL && (isa == NULL || !is_isa(isa)))
        return FAIL(STATUS_CORRUPT, "%s: \"isa\" is not generic, avx2, avx512 or amx", path);
    *out = device != NULL ? device : isa;
    return STATUS_OK;
}

static enum status read_lines(const char *path, const struct json_value *root,
                              struct kernel_choices *choices)
{
    const char *own = choices->device ? choices->device : kernel_isa(), *owner;
    const struct json_value *lines = json_get(root, "choices");

    TRY(read_owner(path, root, &owner));
    if (lines == NULL || lines->kind != JSON_OBJECT)
        return FAIL(STATUS_CORRUPT, "%s: \"choices\" is not an object", path);
    if (strcmp(owner, own) != 0) {
        log_line(LOG_INFO, "%s is for %s, not for %s: ignored", path, owner, own);
        return STATUS_OK;
    }
    TRY(mem_alloc(lines->count, sizeof *choices->lines, &choices->lines));
    for (size_t i = 0; i < lines->count; i++)
        TRY(read_line(path, lines->keys[i], &lines->items[i], choices, &choices->lines[i]));
    choices->n_lines = lines->count;
    qsort(choices->lines, choices->n_lines, sizeof *choices->lines, compare_lines);
    return STATUS_OK;
}

static enum status read_file(const char *path, struct kernel_choices *choices)
{
    char *text;
    size_t length;
    struct json *json;

    TRY(file_read(path, FILE_MAX, &text, &length));
    enum status status = json_parse(text, length, &json);
    if (status != STATUS_OK) {
        char reason[KERNEL_TEXT];
        (void)snprintf(reason, sizeof reason, "%s", status_message());
        status = FAIL(status, "%s: %s", path, reason);
        goto free_text;
    }
    status = read_lines(path, json_root(json), choices);
    json_destroy(json);
free_text:
    mem_free(text);
    return status;
}

/* The hash ----------------------------------------------------------------------------- */

static void hash_text(struct sha256 *hash, const char *text)
{
    sha256_add(hash, text, strlen(text) + 1); /* with its NUL, which parts it from the next */
}

/* Everything that decides: instruction set, kernels there are, rules, order, lines, whether rough
 * ones may run. */
static void hash_choices(struct kernel_choices *choices)
{
    const struct kernel *kernel;
    struct sha256 hash;
    char numbers[96];

    sha256_init(&hash);
    hash_text(&hash, kernel_isa());
    for (size_t i = 0; (kernel = kernel_at(i)) != NULL; i++) {
        hash_text(&hash, kernel->op);
        hash_text(&hash, kernel->name);
    }
    hash_text(&hash, "rules");
    for (const struct rule *rule = rules; rule->op != NULL; rule++) {
        (void)snprintf(numbers, sizeof numbers, "%lld %lld %lld",
                       (long long)rule->channels_from, (long long)rule->channels_below,
                       (long long)rule->rows_from);
        hash_text(&hash, rule->op);
        hash_text(&hash, numbers);
        hash_text(&hash, rule->kernel);
    }
    for (const struct window_rule *rule = window_rules; rule->op != NULL; rule++) {
        (void)snprintf(numbers, sizeof numbers, "window %d %lld %lld %lld %d",
                       (int)rule->window, (long long)rule->channels_from,
                       (long long)rule->channels_below, (long long)rule->rows_from,
                       (int)rule->fills);
        hash_text(&hash, rule->op);
        hash_text(&hash, numbers);
        hash_text(&hash, rule->kernel);
    }
    hash_text(&hash, "order");
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        hash_text(&hash, order[i]);
    hash_text(&hash, "lines");
    for (size_t i = 0; i < choices->n_lines; i++) {
        hash_text(&hash, choices->lines[i].problem);
        hash_text(&hash, choices->lines[i].name);
    }
    if (choices->device && choices->n_lines > 0)
        hash_text(&hash, choices->device);
    if (choices->exact)
        hash_text(&hash, "exact");
    sha256_end_hex(&hash, choices->hash);
}

/* Life --------------------------------------------------------------------------------- */

static enum status load(const char *path, const char *device, bool exact,
                        struct kernel_choices **out)
{
    struct kernel_choices *choices;

    TRY(mem_alloc(1, sizeof *choices, &choices));
    choices->device = device;
    choices->exact = exact;
    enum status status = arena_create(&choices->arena);
    if (status == STATUS_OK && path != NULL)
        status = read_file(path, choices);
    if (status != STATUS_OK) {
        kernel_choices_destroy(choices);
        return status;
    }
    hash_choices(choices);
    *out = choices;
    return STATUS_OK;
}

enum status kernel_choices_load(const char *path, struct kernel_choices **out)
{
    return load(path, NULL, false, out);
}

enum status kernel_choices_load_exact(const char *path, struct kernel_choices **out)
{
    return load(path, NULL, true, out);
}

enum status kernel_choices_load_device(const char *device, const char *path,
                                       struct kernel_choices **out)
{
    for (int i = 0; device_names[i]; i++) {
        if (strcmp(device_names[i], device) == 0)
            return load(path, device_names[i], false, out);
    }
    return FAIL(STATUS_USAGE, "there is no device %s", device);
}

void kernel_choices_destroy(struct kernel_choices *choices)
{
    if (choices == NULL)
        return;
    mem_free(choices->lines);
    arena_destroy(choices->arena);
    mem_free(choices);
}

const char *kernel_choices_hash(const struct kernel_choices *choices)
{
    return choices->hash;
}

/* The choice --------------------------------------------------------------------------- */

static bool is_rough(const struct kernel *kernel)
{
    for (size_t i = 0; i < sizeof rough / sizeof rough[0]; i++) {
        if (strcmp(kernel->name, rough[i]) == 0)
            return true;
    }
    return false;
}

static bool may_run(const struct kernel_choices *choices, const struct kernel *kernel,
                    const struct kernel_problem *problem)
{
    return can_run(kernel, problem) && !(choices->exact && is_rough(kernel));
}

static const struct line *find_line(const struct kernel_choices *choices, const char *text)
{
    const struct line key = { .problem = text };

    return choices->n_lines > 0
               ? bsearch(&key, choices->lines, choices->n_lines, sizeof key, compare_lines)
               : NULL;
}

static const struct kernel *choose_by_line(const struct kernel_choices *choices,
                                           const struct kernel_problem *problem)
{
    char text[KERNEL_TEXT];
    const struct line *line =
        choices->device ? NULL : find_line(choices, kernel_print(problem, text));

    return line != NULL && may_run(choices, line->kernel, problem) ? line->kernel : NULL;
}

/* What rules look at. */
struct sizes {
    int64_t fewer;  /* of the channels of input and output */
    int64_t pixels; /* of y, the whole batch; rows of a linear layer */
};

/* The weights, or their gradient. */
static const struct shape *weights_of(const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].layout == LAYOUT_HWIO || problem->in[i].layout == LAYOUT_IO)
            return &problem->in[i].shape;
    }
    const bool forward = strcmp(problem->op, "linear") == 0;
    return forward || strcmp(problem->op, "linear_grad_input") == 0 ? &problem->in[1].shape
                                                                    : &problem->out[0].shape;
}

static struct sizes extents_of(const struct kernel_problem *problem)
{
    const struct shape *w = weights_of(problem), *y = &problem->out[0].shape;

    if (w == y) /* ..._grad_weight: x, dy -> dw */
        y = &problem->in[1].shape;
    return (struct sizes){ .fewer = w->dim[0] < w->dim[1] ? w->dim[0] : w->dim[1],
                           .pixels = shape_count(y) / (y->dim[1] > 0 ? y->dim[1] : 1) };
}

static bool extents_fit(const struct kernel_problem *problem, int64_t channels_from,
                        int64_t channels_below, int64_t rows_from)
{
    const struct sizes extents = extents_of(problem);

    return extents.fewer >= channels_from &&
           (channels_below == 0 || extents.fewer < channels_below) &&
           extents.pixels >= rows_from;
}

static bool rule_fits(const struct rule *rule, const struct kernel_problem *problem)
{
    return strcmp(rule->op, problem->op) == 0 &&
           extents_fit(problem, rule->channels_from, rule->channels_below, rule->rows_from);
}

static bool images_fill(const struct kernel_problem *problem)
{
    const int64_t images = problem->in[0].shape.dim[0];

    return images * 4 >= (images + 31) / 32 * 32 * 3;
}

static bool window_fits(const struct window_rule *rule, const struct kernel_problem *problem)
{
    const struct shape *w = weights_of(problem);
    const int *stride = problem->attrs.stride;
    const bool is_one = w->dim[2] == 1 && w->dim[3] == 1;
    const bool is_strided = stride[0] > 1 || stride[1] > 1;

    if (!extents_fit(problem, rule->channels_from, rule->channels_below, rule->rows_from) ||
        (rule->fills && !images_fill(problem)))
        return false;
    switch (rule->window) {
    case WINDOW_ONE:
        return is_one;
    case WINDOW_STRIDED:
        return is_strided;
    case WINDOW_ONE_STRIDED:
        return is_one && is_strided;
    default:
        return true;
    }
}

static const struct kernel *choose_by_rule(const struct kernel_choices *choices,
                                           const struct kernel_problem *problem)
{
    for (const struct window_rule *rule = window_rules; rule->op != NULL; rule++) {
        if (strcmp(rule->op, problem->op) != 0 || !window_fits(rule, problem))
            continue;
        const struct kernel *kernel = kernel_find(problem->op, rule->kernel);
        if (may_run(choices, kernel, problem))
            return kernel;
    }
    for (const struct rule *rule = rules; rule->op != NULL; rule++) {
        if (!rule_fits(rule, problem))
            continue;
        const struct kernel *kernel = kernel_find(problem->op, rule->kernel);
        if (may_run(choices, kernel, problem))
            return kernel;
    }
    return NULL;
}

enum status kernel_choose(const struct kernel_choices *choices,
                          const struct kernel_problem *problem, const struct kernel **out)
{
    const struct kernel *kernel = choose_by_line(choices, problem);

    if (kernel == NULL)
        kernel = choose_by_rule(choices, problem);
    for (size_t i = 0; kernel == NULL && i < sizeof order / sizeof order[0]; i++) {
        const struct kernel *next = kernel_find(problem->op, order[i]);
        if (may_run(choices, next, problem))
            kernel = next;
    }
    if (kernel == NULL)
        return FAIL(STATUS_NOT_FOUND, "no kernel is called %s", problem->op);
    *out = kernel;
    return STATUS_OK;
}

/* A device's --------------------------------------------------------------------------- */

const char *kernel_key(const struct kernel_problem *problem, enum dtype precision,
                       char out[KERNEL_KEY])
{
    char text[KERNEL_TEXT];
    const char *word = precision == DTYPE_BF16  ? "bf16"
                       : precision == DTYPE_F16 ? "fp16"
                       : problem->rounds        ? "tf32"
                                                : "f32";

    (void)snprintf(out, KERNEL_KEY, "%s %s", word, kernel_print(problem, text));
    return out;
}

enum status kernel_choose_on(const struct kernel_choices *choices,
                             const struct device_face *face, enum dtype precision,
                             const struct kernel_problem *problem, const struct kernel **out)
{
    const bool is_theirs = choices->device && strcmp(choices->device, face->name) == 0;
    char key[KERNEL_KEY];
    const struct line *line =
        is_theirs ? find_line(choices, kernel_key(problem, precision, key)) : NULL;
    const struct kernel *kernel = device_kernel(face, problem);

    for (size_t i = 0; line != NULL && (kernel = face->kernel_at(i)) != NULL; i++) {
        if (strcmp(kernel->op, problem->op) == 0 && strcmp(kernel->name, line->name) == 0 &&
            can_run(kernel, problem))
            break;
    }
    if (kernel == NULL && line != NULL)
        return FAIL(
            STATUS_UNSUPPORTED,
            "the table of kernels has %s for \"%s\", which device %s cannot do so: make "
            "it again by tutti bench tune, or use --kernels none",
            line->name, line->problem, face->name);
    if (kernel == NULL)
        return FAIL(STATUS_UNSUPPORTED, "device %s has no kernel for %s", face->name,
                    kernel_key(problem, precision, key));
    *out = kernel;
    return STATUS_OK;
}
