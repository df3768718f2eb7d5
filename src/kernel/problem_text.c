/* SPDX-License-Identifier: MIT */
/* problem_text.c - a problem as a line of text and back: "conv2d 64x3x32x32 16x3x3x3 16 stride 1x1 pad 1x1 relu". */
#include "kernel/problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

PRINTF_LIKE(2, 3) static void add_text(char text[KERNEL_TEXT], const char *format, ...)
{
    const size_t length = strlen(text);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text + length, KERNEL_TEXT - length, format, args);
    va_end(args);
}

/* Does a linear layer's weight, or its gradient, lie plain? */
static bool is_plain(const struct problem_form *form, const struct kernel_problem *problem)
{
    for (int i = 0; i < problem->n_in; i++) {
        if (problem_may_lie_plain(form->op, form->in[i]))
            return problem->in[i].layout == LAYOUT_PLAIN;
    }
    return problem_may_lie_plain(form->op, form->out[0]) &&
           problem->out[0].layout == LAYOUT_PLAIN;
}

static void add_pair(char text[KERNEL_TEXT], const char *name, const int pair[2])
{
    if (pair[0] != 0 || pair[1] != 0)
        add_text(text, " %s %dx%d", name, pair[0], pair[1]);
}

const char *kernel_print(const struct kernel_problem *problem, char text[KERNEL_TEXT])
{
    const struct problem_form *form = problem_form_of(problem->op);
    const struct attrs *attrs = &problem->attrs;
    char shape[SHAPE_TEXT];

    text[0] = '\0';
    add_text(text, "%s", problem->op);
    for (int i = 0; i < problem->n_in; i++)
        add_text(text, " %s", shape_print(&problem->in[i].shape, shape));
    if (problem_is_gradient(problem->op)) {
        add_text(text, " ->");
        for (int i = 0; i < problem->n_out; i++)
            add_text(text, " %s", shape_print(&problem->out[i].shape, shape));
    }
    if (strcmp(problem->op, "reorder") == 0)
        add_text(text, " %s %s", layout_name(problem->in[0].layout),
                 layout_name(problem->out[0].layout));
    if (form != NULL && is_plain(form, problem))
        add_text(text, " %s", layout_name(LAYOUT_PLAIN));
    add_pair(text, "stride", attrs->stride);
    add_pair(text, "pad", attrs->pad);
    add_pair(text, "window", attrs->window);
    if (attrs->groups > 1)
        add_text(text, " groups %d", attrs->groups);
    if (attrs->period > 0)
        add_text(text, " period %d", attrs->period);
    if (attrs->heads > 0)
        add_text(text, " heads %d%s", attrs->heads, attrs->causal ? " causal" : "");
    if (strcmp(problem->op, "conv2d_transpose") == 0 || strcmp(problem->op, "columns") == 0 ||
        (strncmp(problem->op, "conv1d", 6) == 0 &&
         strstr(problem->op, "grad_weight") != NULL) ||
        strcmp(problem->op, "positions_grad") == 0) /* the others' follow from their shapes */
        add_pair(text, "extent", attrs->extent);
    if (strcmp(problem->op, "rows_sort") == 0)
        add_text(text, " rows %lld%s", (long long)attrs->rows,
                 attrs->by_sample ? " by_sample" : "");
    if (attrs->activation != ACTIVATION_NONE)
        add_text(text, " %s", activation_name(attrs->activation));
    return text;
}

/* Reads "3x4x5"; false if it is something else. */
static bool read_dims(const char *word, int maximum, int64_t *dims, int *out_count)
{
    int count = 0;

    for (;;) {
        int64_t value = 0;
        int digits = 0;
        for (; *word >= '0' && *word <= '9' && digits < 10; word++, digits++)
            value = value * 10 + (*word - '0');
        if (digits == 0 || digits == 10 || count == maximum)
            return false;
        dims[count++] = value;
        if (*word == '\0')
            break;
        if (*word++ != 'x')
            return false;
    }
    *out_count = count;
    return true;
}

static bool read_layout(const char *word, enum layout *out)
{
    for (int i = LAYOUT_PLAIN; i <= LAYOUT_IO; i++) {
        if (strcmp(word, layout_name((enum layout)i)) == 0) {
            *out = (enum layout)i;
            return true;
        }
    }
    return false;
}

/* The words of a line, cut at single spaces. */
struct words {
    char text[KERNEL_TEXT];
    const char *word[KERNEL_TEXT / 2 + 1];
    int count;
};

static enum status cut_words(const char *text, struct words *out)
{
    const size_t length = strlen(text);

    if (length == 0 || length >= KERNEL_TEXT)
        return FAIL(STATUS_CORRUPT, "a problem's text has %zu bytes", length);
    memcpy(out->text, text, length + 1);
    out->count = 0;
    out->word[out->count++] = out->text;
    for (char *c = out->text; *c != '\0'; c++) {
        if (*c == ' ') {
            *c = '\0';
            if (out->count <= KERNEL_TEXT / 2)
                out->word[out->count++] = c + 1;
        }
    }
    return STATUS_OK;
}

/* Reads shapes from word `at` on; returns the first word that is none. */
static int read_shapes(const struct words *words, int at, int maximum,
                       struct kernel_tensor *tensors, int *out_count)
{
    int count = 0;

    for (; at < words->count && count < maximum; at++, count++) {
        struct shape shape = { 0 };
        if (!read_dims(words->word[at], SHAPE_MAX, shape.dim, &shape.rank))
            break;
        tensors[count].shape = shape;
    }
    *out_count = count;
    return at;
}

static bool read_activation(const char *word, enum activation *out)
{
    for (int i = ACTIVATION_RELU; i <= ACTIVATION_GELU_TANH; i++) {
        if (strcmp(word, activation_name((enum activation)i)) == 0) {
            *out = (enum activation)i;
            return true;
        }
    }
    return false;
}

static bool read_attribute(const struct words *words, int *at, struct attrs *attrs)
{
    const char *word = words->word[*at];
    int *pair = strcmp(word, "stride") == 0   ? attrs->stride
                : strcmp(word, "pad") == 0    ? attrs->pad
                : strcmp(word, "window") == 0 ? attrs->window
                : strcmp(word, "extent") == 0 ? attrs->extent
                                              : NULL;
    int64_t dims[2];
    int count;

    if (read_activation(word, &attrs->activation)) {
        /* one word is all */
    } else if (strcmp(word, "causal") == 0 && attrs->heads > 0) {
        attrs->causal = 1;
    } else if (strcmp(word, "period") == 0 && *at + 1 < words->count &&
               read_dims(words->word[*at + 1], 1, dims, &count) && dims[0] > 0 &&
               dims[0] <= 0xffff) {
        attrs->period = (int)dims[0];
        *at += 1;
    } else if (strcmp(word, "heads") == 0 && *at + 1 < words->count &&
               read_dims(words->word[*at + 1], 1, dims, &count) && dims[0] > 0 &&
               dims[0] <= 0xffff) {
        attrs->heads = (int)dims[0];
        *at += 1;
    } else if (strcmp(word, "groups") == 0 && *at + 1 < words->count &&
               read_dims(words->word[*at + 1], 1, dims, &count) && dims[0] > 1 &&
               dims[0] <= 0xffff) {
        attrs->groups = (int)dims[0];
        *at += 1;
    } else if (strcmp(word, "rows") == 0 && *at + 1 < words->count &&
               read_dims(words->word[*at + 1], 1, dims, &count)) {
        attrs->rows = dims[0];
        *at += 1;
    } else if (strcmp(word, "by_sample") == 0) {
        attrs->by_sample = 1;
    } else if (pair != NULL && *at + 1 < words->count &&
               read_dims(words->word[*at + 1], 2, dims, &count) && count == 2 &&
               dims[0] <= 0xffff && dims[1] <= 0xffff) {
        pair[0] = (int)dims[0];
        pair[1] = (int)dims[1];
        *at += 1;
    } else {
        return false;
    }
    *at += 1;
    return true;
}

enum status kernel_parse(const char *text, struct kernel_problem *out)
{
    struct kernel_problem problem = { 0 };
    struct shape shapes[KERNEL_OUT];
    struct words words;
    bool plain_weight = false;
    int at;

    TRY(cut_words(text, &words));
    const struct problem_form *form = problem_form_of(words.word[0]);
    if (form == NULL)
        return FAIL(STATUS_NOT_FOUND, "no kernel is called %s", words.word[0]);
    problem.op = form->op;

    at = read_shapes(&words, 1, KERNEL_IN, problem.in, &problem.n_in);
    if (at < words.count && problem_is_gradient(form->op) && strcmp(words.word[at], "->") == 0)
        at = read_shapes(&words, at + 1, KERNEL_OUT, problem.out, &problem.n_out);
    if (strcmp(form->op, "reorder") == 0 && at + 1 < words.count &&
        read_layout(words.word[at], &problem.in[0].layout) &&
        read_layout(words.word[at + 1], &problem.out[0].layout))
        at += 2;
    if (strncmp(form->op, "linear", 6) == 0 && at < words.count &&
        strcmp(words.word[at], layout_name(LAYOUT_PLAIN)) == 0) {
        plain_weight = true;
        at++;
    }
    while (at < words.count) {
        if (!read_attribute(&words, &at, &problem.attrs))
            return FAIL(STATUS_CORRUPT, "\"%s\" is not understood in \"%s\"", words.word[at],
                        text);
    }

    problem_set_roles(form->in, problem.n_in, plain_weight, problem.in);
    if (!problem_is_gradient(form->op)) {
        if (problem.n_in < form->n_in || problem.n_in > (int)strlen(form->in))
            return FAIL(STATUS_USAGE, "%s: %d inputs", form->op, problem.n_in);
        for (int i = 0; i < problem.n_in; i++)
            TRY(problem_check_tensor(form->op, form->in[i], &problem.in[i]));
        TRY(problem_out_shapes(&problem, shapes));
        problem.n_out = form->n_out;
        for (int i = 0; i < form->n_out; i++)
            problem.out[i].shape = shapes[i];
    }
    problem_set_roles(form->out, problem.n_out, plain_weight, problem.out);
    TRY(kernel_check(&problem));
    *out = problem;
    return STATUS_OK;
}
