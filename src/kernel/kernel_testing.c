/* SPDX-License-Identifier: MIT */
/* kernel_testing.c - writes a random line as kernel_print would, and has it parsed. */
#include "kernel/kernel_testing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/test.h"

enum { WORK_MAX = 600000 }; /* multiply-adds */

static int between(struct rng *rng, int low, int high)
{
    return low + (int)rng_below(rng, (uint64_t)(high - low + 1));
}

static bool chance(struct rng *rng, int percent)
{
    return (int)rng_below(rng, 100) < percent;
}

/* Half the time an extent that vectors or tiles like, or one off it. */
static int extent(struct rng *rng, int most)
{
    static const int usual[] = { 1, 4, 8, 10, 16, 32, 48, 64, 96, 128, 256 };
    int value = between(rng, 1, most < 24 ? most : 24);

    if (chance(rng, 50)) {
        value = usual[rng_below(rng, sizeof usual / sizeof usual[0])] + between(rng, -1, 1);
        if (chance(rng, 50))
            value = value / 4 * 4;
    }
    return value < 1 ? 1 : value > most ? most : value;
}

PRINTF_LIKE(2, 3) static void say(char text[KERNEL_TEXT], const char *format, ...)
{
    const size_t length = strlen(text);
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text + length, KERNEL_TEXT - length, format, args);
    va_end(args);
}

static void say_linear(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    int m, n, k;

    do {
        m = extent(rng, 70);
        n = extent(rng, 260);
        k = extent(rng, 260);
    } while (m * n * k > WORK_MAX);
    if (strcmp(op, "linear_token_loss") == 0) {
        say(text, " %dx%d %dx%d %d plain", m, k, n, k, m);
        return;
    }
    if (strstr(op, "grad") == NULL) {
        say(text, " %dx%d %dx%d", m, k, n, k);
        if (strcmp(op, "linear") != 0 || chance(rng, 60))
            say(text, " %d", n);
        if (strcmp(op, "linear_add") == 0)
            say(text, " %dx%d", m, n);
    } else if (strcmp(op, "linear_grad_input") == 0) {
        say(text, " %dx%d %dx%d -> %dx%d", m, n, n, k, m, k);
    } else if (strcmp(op, "linear_grad_through") == 0) {
        say(text, " %dx%d %dx%d %dx%d -> %dx%d", m, n, n, k, m, k, m, k);
        if (chance(rng, 40))
            say(text, " %d", k);
    } else {
        say(text, " %dx%d %dx%d -> %dx%d", m, k, m, n, n, k);
        if (chance(rng, 60))
            say(text, " %d", n);
    }
    if (chance(rng, 40))
        say(text, " plain");
    if (strcmp(op, "linear_grad_through") == 0)
        say(text, chance(rng, 50) ? " relu" : " gelu_tanh");
    else if (strcmp(op, "linear") == 0 && chance(rng, 50))
        say(text, " relu");
}

/* Extents of a convolution or a pooling; o, window, stride and pad by dimension. */
struct image {
    int n, c, h, w, o;
    int window[2], stride[2], pad[2];
    int oh, ow;
};

static void window_over(struct rng *rng, struct image *g)
{
    const int usual = between(rng, 0, 3);
    const int *size[2] = { &g->h, &g->w };
    int *out[2] = { &g->oh, &g->ow };

    for (int i = 0; i < 2; i++) {
        g->window[i] = usual == 0   ? 3
                       : usual == 1 ? 2 * between(rng, 0, 2) + 1
                                    : between(rng, 1, 5);
        g->stride[i] = usual < 2 ? 1 : between(rng, 1, 3);
        g->pad[i] = usual < 2 ? g->window[i] / 2 : between(rng, 0, g->window[i] - 1);
        if (g->window[i] > *size[i] + 2 * g->pad[i])
            g->window[i] = *size[i] + 2 * g->pad[i];
        if (g->pad[i] >= g->window[i])
            g->pad[i] = 0;
        if (g->window[i] > *size[i] + 2 * g->pad[i])
            g->window[i] = *size[i];
        *out[i] = (*size[i] + 2 * g->pad[i] - g->window[i]) / g->stride[i] + 1;
    }
}

static struct image random_image(struct rng *rng)
{
    struct image g = { .n = between(rng, 1, 3),
                       .c = extent(rng, 34),
                       .h = between(rng, 1, 12),
                       .w = between(rng, 1, 20),
                       .o = extent(rng, 66) };

    if (chance(rng, 15)) /* kernels of its own */
        g.c = 1;
    window_over(rng, &g);
    if (chance(rng, 10)) { /* the window is the whole image */
        g.window[0] = g.h;
        g.window[1] = g.w;
        g.pad[0] = g.pad[1] = 0;
        g.oh = g.ow = 1;
    }
    return g;
}

static void say_windows(const struct image *g, char text[KERNEL_TEXT])
{
    say(text, " stride %dx%d pad %dx%d", g->stride[0], g->stride[1], g->pad[0], g->pad[1]);
}

static void say_image(char text[KERNEL_TEXT], int n, int c, int h, int w)
{
    say(text, " %dx%dx%dx%d", n, c, h, w);
}

/* conv2d_transpose or one of its gradients: y is the image that conv2d would see. */
static void say_transpose(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    static const char *const activations[] = { "", "", " relu", " relu6", " sigmoid" };
    struct image g = random_image(rng);

    while ((int64_t)g.n * g.oh * g.ow * g.c * g.window[0] * g.window[1] * g.o > WORK_MAX)
        g = random_image(rng);
    if (strstr(op, "grad_input") == NULL)
        say_image(text, g.n, g.o, g.oh, g.ow);
    if (strstr(op, "grad") != NULL)
        say_image(text, g.n, g.c, g.h, g.w);
    if (strstr(op, "grad_weight") != NULL)
        say(text, " ->");
    say_image(text, g.o, g.c, g.window[0], g.window[1]);
    if (strstr(op, "grad_input") != NULL) {
        say(text, " ->");
        say_image(text, g.n, g.o, g.oh, g.ow);
    } else if (chance(rng, 60)) {
        say(text, " %d", g.c); /* the bias, or its gradient */
    }
    say_windows(&g, text);
    if (strstr(op, "grad") == NULL)
        say(text, " extent %dx%d%s", g.h, g.w, activations[rng_below(rng, 5)]);
}

/* In a third of the problems the channels are in groups, often of one. */
static int split_channels(struct rng *rng, struct image *g)
{
    if (chance(rng, 67))
        return 1;
    const int groups = extent(rng, 66);
    g->c = groups * (chance(rng, 60) ? 1 : between(rng, 1, 3));
    g->o = chance(rng, 60) ? g->c : groups * between(rng, 1, 3);
    return groups;
}

/* conv2d or conv2d_pool, or one of their gradients. */
static void say_conv(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const bool pooled = strncmp(op, "conv2d_pool", 11) == 0;
    const bool forward = strstr(op, "grad") == NULL;
    const bool input = strstr(op, "grad_input") != NULL;
    struct image g;
    int pool[2] = { 1, 1 }, groups;

    do {
        g = random_image(rng);
        groups = pooled ? 1 : split_channels(rng, &g);
    } while ((int64_t)g.n * g.oh * g.ow * g.c * g.window[0] * g.window[1] * (g.o / groups) >
             WORK_MAX);
    if (pooled) {
        const bool usual = g.oh >= 2 && g.ow >= 2 && chance(rng, 60);
        pool[0] = usual ? 2 : between(rng, 1, g.oh < 4 ? g.oh : 4);
        pool[1] = usual ? 2 : between(rng, 1, g.ow < 4 ? g.ow : 4);
    }

    if (!input)
        say_image(text, g.n, g.c, g.h, g.w);
    for (int i = 0; !forward && i < (pooled ? 2 : 1); i++) /* dy, index */
        say_image(text, g.n, g.o, g.oh / pool[0], g.ow / pool[1]);
    if (!forward && !input)
        say(text, " ->");
    say_image(text, g.o, g.c / groups, g.window[0], g.window[1]);
    if (input) {
        say(text, " ->");
        say_image(text, g.n, g.c, g.h, g.w);
    } else if (chance(rng, 60)) {
        say(text, " %d", g.o); /* the bias, or its gradient */
    }
    say_windows(&g, text);
    if (pooled)
        say(text, " window %dx%d", pool[0], pool[1]);
    if (groups > 1)
        say(text, " groups %d", groups);
    if (forward && chance(rng, 50))
        say(text, pooled || chance(rng, 50) ? " relu" : " relu6");
}

/* A convolution with norms around it: 1x1 or depthwise, which have kernels of their own, or any. */
static void say_norm_conv(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    static const char *const activations[] = { "", " relu", " relu6" };
    const bool has_norm = strncmp(op, "norm_", 5) == 0, is_back = strstr(op, "grad") != NULL;
    const bool has_stats = strstr(op, "_stats") != NULL;
    const int kind = between(rng, 0, 4);
    struct image g;
    int groups;

    do {
        g = random_image(rng);
        groups = 1;
        if (kind < 2) {
            g.window[0] = g.window[1] = g.stride[0] = g.stride[1] = 1;
            g.pad[0] = g.pad[1] = 0;
            g.oh = g.h;
            g.ow = g.w;
        } else if (kind < 4) {
            g.o = groups = g.c;
        } else {
            groups = split_channels(rng, &g);
        }
    } while ((int64_t)g.n * g.oh * g.ow * g.c * g.window[0] * g.window[1] * (g.o / groups) >
                 WORK_MAX ||
             (kind >= 2 && kind < 4 && g.c == 1) ||
             (has_stats && g.n * g.oh * g.ow < 16)); /* else rounding may be all the variance */
    say_image(text, g.n, is_back ? g.o : g.c, is_back ? g.oh : g.h, is_back ? g.ow : g.w);
    say_image(text, g.o, g.c / groups, g.window[0], g.window[1]);
    if (is_back)
        say_image(text, g.n, g.c, g.h, g.w);
    if (has_norm)
        say(text, " %d %d 2x%d", g.c, g.c, g.c);
    if (is_back && has_stats) {
        say_image(text, g.n, g.o, g.oh, g.ow);
        say(text, " 2x%d 2x%d", g.o, g.o);
    }
    if (is_back) {
        say(text, " ->");
        say_image(text, g.n, g.c, g.h, g.w);
        say_image(text, g.o, g.c / groups, g.window[0], g.window[1]);
        if (has_norm)
            say(text, " %d %d 2x%d", g.c, g.c, g.c);
    }
    say_windows(&g, text);
    if (groups > 1)
        say(text, " groups %d", groups);
    if (has_norm)
        say(text, "%s", activations[between(rng, 0, 2)]);
}

static bool is_norm_conv(const char *op)
{
    return strncmp(op, "norm_conv2d", 11) == 0 || strncmp(op, "conv2d_stats", 12) == 0;
}

static void say_pool(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    struct image g = random_image(rng);

    if (chance(rng, 40)) { /* 2 x 2 side by side, with and without a rest */
        g.h = between(rng, 2, 13);
        g.w = between(rng, 2, 13);
        for (int i = 0; i < 2; i++) {
            g.window[i] = g.stride[i] = 2;
            g.pad[i] = 0;
        }
        g.oh = g.h / 2;
        g.ow = g.w / 2;
    }
    if (strstr(op, "grad") == NULL)
        say(text, " %dx%dx%dx%d", g.n, g.c, g.h, g.w);
    else
        say(text, " %dx%dx%dx%d", g.n, g.c, g.oh, g.ow);
    if (strcmp(op, "max_pool_grad") == 0)
        say(text, " %dx%dx%dx%d", g.n, g.c, g.oh, g.ow);
    if (strstr(op, "grad") != NULL)
        say(text, " -> %dx%dx%dx%d", g.n, g.c, g.h, g.w);
    say_windows(&g, text);
    say(text, " window %dx%d", g.window[0], g.window[1]);
}

/* Any shape, as text; *out_last is the extent that lies innermost. */
static void any_shape(struct rng *rng, char text[SHAPE_TEXT], int *out_last)
{
    if (chance(rng, 50)) {
        const int c = extent(rng, 70);
        (void)snprintf(text, SHAPE_TEXT, "%dx%dx%dx%d", between(rng, 1, 4), c,
                       between(rng, 1, 20), between(rng, 1, 20));
        *out_last = c;
    } else {
        *out_last = extent(rng, 300);
        (void)snprintf(text, SHAPE_TEXT, "%dx%d", extent(rng, 260), *out_last);
    }
}

static void say_elementwise(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    char shape[SHAPE_TEXT];
    int last;

    any_shape(rng, shape, &last);
    say(text, " %s", shape);
    if (strcmp(op, "bias") == 0)
        say(text, " %d", last);
    if (strcmp(op, "bias_grad") == 0)
        say(text, " -> %d", last);
    if (strcmp(op, "add") == 0 || strcmp(op, "mse") == 0)
        say(text, " %s", shape);
    if (strcmp(op, "bias_grad") != 0 && strstr(op, "_grad") != NULL)
        say(text, " %s -> %s", shape, shape);
}

/* A part of a batch norm of images `x` of c channels. */
static void say_norm_part(struct rng *rng, const char *op, const char *x, int c, bool active,
                          char text[KERNEL_TEXT])
{
    const char *gap = active ? " " : "", *y = active ? x : "";

    if (strcmp(op, "batch_norm_normalize") == 0)
        say(text, " %s %d %d 2x%d", x, c, c, c);
    else if (strcmp(op, "batch_norm_grad_sums") == 0)
        say(text, " %s %s 2x%d%s%s -> %d %d 3x%d", x, x, c, gap, y, c, c, c);
    else
        say(text, " %s %s %d 2x%d %dx3x%d%s%s -> %s", x, x, c, c, between(rng, 1, 9), c, gap, y,
            x);
}

static bool is_norm_part(const char *op)
{
    return strcmp(op, "batch_norm") != 0 && strcmp(op, "batch_norm_grad") != 0 &&
           strcmp(op, "batch_norm_apply") != 0;
}

static void say_batch_norm(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    static const char *const activations[] = { "", " relu", " relu6" };
    const int active = between(rng, 0, 2), c = extent(rng, 300);
    const bool apply = strcmp(op, "batch_norm_apply") == 0;
    bool by_beta = false;
    char x[SHAPE_TEXT];

    /* At times more rows than a part's blocks, at times hardly any. */
    (void)snprintf(x, sizeof x, "%dx%dx%dx%d", between(rng, 1, 4), c,
                   between(rng, 1, chance(rng, 20) ? 60 : 9),
                   between(rng, 1, chance(rng, 20) && c < 64 ? 60 : 9));
    if (strcmp(op, "batch_norm_stats") == 0) {
        say(text, " %s", x);
        return;
    }
    if (strcmp(op, "batch_norm_join") == 0) {
        say(text, " %dx3x%d 3x%d", between(rng, 1, 9), c, c);
        return;
    }
    if (is_norm_part(op)) {
        say_norm_part(rng, op, x, c, active, text);
    } else if (strcmp(op, "batch_norm_grad") == 0) {
        by_beta = active && chance(rng, 40);
        say(text, " %s %s %d 2x%d", x, x, c, c);
        if (by_beta)
            say(text, " %d", c);
        else if (active)
            say(text, " %s", x);
        if (active && chance(rng, 40))
            say(text, " %s", x); /* the second summand of dy */
        say(text, " -> %s %d %d", x, c, c);
    } else {
        say(text, " %s %d %d", x, c, c);
        if (apply)
            say(text, " %d %d", c, c);
    }
    if (chance(rng, 50) && !by_beta && strcmp(op, "batch_norm_grad_spread") != 0)
        say(text, " %s", x); /* the residual, or its gradient */
    say(text, "%s", activations[active]);
}

static void say_reorder(struct rng *rng, char text[KERNEL_TEXT])
{
    static const char *const ways[][2] = {
        { "nhwc", "plain" }, { "plain", "nhwc" }, { "hwio", "plain" },
        { "plain", "hwio" }, { "io", "plain" },   { "plain", "io" },
    };
    const size_t way = rng_below(rng, 6);

    if (way < 4)
        say(text, " %dx%dx%dx%d", between(rng, 1, 4), extent(rng, 70), between(rng, 1, 14),
            between(rng, 1, 14));
    else
        say(text, " %dx%d", extent(rng, 260), extent(rng, 260));
    say(text, " %s %s", ways[way][0], ways[way][1]);
}

static void say_loss(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const int m = extent(rng, 260),
              c = chance(rng, 20) ? between(rng, 1000, 2000) : extent(rng, 120);

    say(text, " %dx%d", m, c);
    if (strcmp(op, "token_cross_entropy_grad") == 0)
        say(text, " %dx1", m);
    say(text, " %d", m);
    if (strstr(op, "grad") != NULL)
        say(text, " -> %dx%d", m, c);
}

/* Smooth activations, layer norm, softmax, positions and attention. */
static void say_rows(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const int m = extent(rng, 260), n = extent(rng, 400);
    char base[SHAPE_TEXT];

    (void)snprintf(base, sizeof base, " %dx%d", m, n);
    if (strcmp(op, "layer_norm") == 0)
        say(text, " %dx%d %d %d", m, n, n, n);
    else if (strcmp(op, "layer_norm_grad") == 0)
        say(text, " %dx%d %dx%d %d %dx2%s -> %dx%d %d %d", m, n, m, n, n, m,
            chance(rng, 50) ? base : "", m, n, n, n);
    if (strcmp(op, "layer_norm_grad") == 0 && chance(rng, 50))
        say(text, " %d", n);
    if (strcmp(op, "softmax") == 0 || strcmp(op, "sum_rows") == 0)
        say(text, " %dx%d", m, n);
    else if (strcmp(op, "softmax_grad") == 0)
        say(text, " %dx%d %dx%d -> %dx%d", m, n, m, n, m, n);
}

static void say_positions(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const int n = between(rng, 1, 4), t = extent(rng, 40), d = extent(rng, 100);
    const int period = chance(rng, 30) ? between(rng, 1, t + 1) : 0;
    const int more = (period && period < t ? period : t) + between(rng, 0, 3);

    if (strcmp(op, "positions_grad") == 0)
        say(text, " %dx%dx%d -> %dx%d", n, t, d, more, d);
    else if (chance(rng, 70))
        say(text, " %dx%dx%d %dx%d", n, t, d, more, d);
    else
        say(text, " %dx%dx%d %dx%d %d", n, t, d, more, d, n);
    if (period)
        say(text, " period %d", period);
    if (strcmp(op, "positions_grad") == 0)
        say(text, " extent %dx0", more);
}

static void say_attention(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    static const int sizes[] = { 1, 4, 8, 16, 24, 32, 64, 65, 128 };
    const int n = between(rng, 1, 3), heads = between(rng, 1, 3);
    const int t = chance(rng, 75) ? between(rng, 1, 20) : between(rng, 20, 70);
    const int d = heads * sizes[rng_below(rng, sizeof sizes / sizeof sizes[0])];
    const bool masked = chance(rng, 40);

    if (strcmp(op, "attention_step") == 0) {
        say(text, " %dx%dx%d %dx%dx%d %d heads %d", n, t, 3 * d, n, t + between(rng, 0, 40),
            2 * d, n, heads);
        return;
    }
    if (strcmp(op, "attention_grad") == 0)
        say(text, " %dx%dx%d %dx%dx%d %dx%dx%d %dx%dx%d", n, t, d, n, t, 3 * d, n, t, d, n, t,
            heads);
    else
        say(text, " %dx%dx%d", n, t, 3 * d);
    if (masked)
        say(text, " %dx%d", n, t);
    if (strcmp(op, "attention_grad") == 0)
        say(text, " -> %dx%dx%d", n, t, 3 * d);
    say(text, " heads %d%s", heads, chance(rng, 60) ? " causal" : "");
}

/* An op about rows of a table: at times many ids of few rows. */
static void say_embedding(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const int n = between(rng, 1, 9), t = extent(rng, chance(rng, 10) ? 260 : 40);
    const int rows = chance(rng, 10) ? between(rng, 250, 1100) : extent(rng, 70);
    const int d = extent(rng, 260);

    if (strcmp(op, "rows_sort") == 0) {
        say(text, " %dx%d rows %d%s", n, t, rows, chance(rng, 50) ? " by_sample" : "");
    } else if (strcmp(op, "embedding_mean_grad") == 0) {
        say(text, " %dx%d %dx%d -> %dx%d", n, d, n, t, n, d);
    } else if (strcmp(op, "embedding_grad") == 0) {
        if (chance(rng, 50))
            say(text, " %dx%dx%d %dx%d", n, t, d, n, t);
        else
            say(text, " %dx%d %dx%d", n, d, n, t);
        if (chance(rng, 50))
            say(text, " %dx%d", rows, d);
        say(text, " -> %dx%d", rows, d);
    } else {
        say(text, " %dx%d %dx%d", n, t, rows, d);
    }
}

/* lstm_attend or its gradient. */
static void say_attend(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const int n = between(rng, 1, 12), t = between(rng, 1, 5), s = between(rng, 1, 30);
    const int h = extent(rng, 40), g = 4 * h, a = extent(rng, 40), e = extent(rng, 40);

    say(text, " %dx%dx%d %dx%d", n, t, g, g, h);
    if (strcmp(op, "lstm_attend") == 0) {
        say(text, " %d %dx%d %dx%d %dx%d %dx%d %d %dx%dx%d %dx%dx%d %dx%d", g, n, t, n, 2 * h,
            g, e, a, h, a, n, s, a, n, s, e, n, s);
        return;
    }
    say(text, " %dx%d %dx%dx%d %dx%d %dx%d %d %dx%dx%d %dx%dx%d %dx%dx%d %dx%dx%d %dx%dx%d", n,
        t, n, t, h, g, e, a, h, a, n, s, a, n, s, e, n, t, a, n, t, s, n, t, h);
    say(text, " -> %dx%dx%d %dx%d %dx%dx%d %dx%dx%d %dx%dx%d %d", n, t, g, n, 2 * h, n, s, a, n,
        s, e, n, t, a, a);
}

/* lstm, gru, or one of their gradients. */
static void say_recurrent(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const bool is_lstm = strncmp(op, "lstm", 4) == 0, forward = strstr(op, "grad") == NULL;
    const int n = between(rng, 1, 20), t = between(rng, 1, 6);
    const int h = extent(rng, 70), g = (is_lstm ? 4 : 3) * h, s = (is_lstm ? 2 : 1) * h;

    say(text, " %dx%dx%d %dx%d", n, t, g, g, h);
    if (forward) {
        say(text, " %d %dx%d", g, n, t);
        if (chance(rng, 50))
            say(text, " %dx%d", n, s);
        return;
    }
    const int flow = between(rng, 1, 3);
    say(text, " %dx%d", n, t);
    for (int i = is_lstm ? 1 : 0; i < 2; i++) /* kept, before */
        say(text, " %dx%dx%d", n, t, h);
    if (flow & 1)
        say(text, " %dx%dx%d", n, t, h);
    if (flow & 2)
        say(text, " %dx%d", n, s);
    say(text, " -> %dx%dx%d", n, t, g);
    if (!is_lstm)
        say(text, " %dx%dx%d", n, t, g);
    if (chance(rng, 50))
        say(text, " %dx%d", n, s);
}

/* conv1d, conv1d_max or max_over_time, or one of their gradients. */
static void say_conv1d(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const bool largest = strstr(op, "max_") != NULL || strcmp(op, "conv1d_max") == 0;
    const bool weight = strstr(op, "grad_weight") != NULL, grad = strstr(op, "grad") != NULL;
    int n, t, c, o, k;

    do {
        n = between(rng, 1, 4);
        t = chance(rng, 70) ? between(rng, 1, 20) : between(rng, 20, 150);
        c = extent(rng, 70);
        o = extent(rng, 70);
        k = chance(rng, 70) ? between(rng, 2, 5) : between(rng, 1, 9);
    } while (n * t * c * o * k > WORK_MAX);
    const int places = t < k ? 1 : t - k + 1;

    if (!grad || weight)
        say(text, " %dx%dx%d", n, t, c);
    if (grad && largest)
        say(text, " %dx%d %dx%d", n, strncmp(op, "conv1d", 6) == 0 ? o : c, n,
            strncmp(op, "conv1d", 6) == 0 ? o : c);
    else if (grad)
        say(text, " %dx%dx%d", n, places, o);
    if (weight)
        say(text, " ->");
    if (strncmp(op, "conv1d", 6) == 0)
        say(text, " %dx%dx%d", o, c, k);
    if (grad && !weight) {
        say(text, " %dx%dx%d", n, t, c);
        if (strcmp(op, "conv1d_max_grad_input") == 0 && chance(rng, 50))
            say(text, " %dx%dx%d", n, t, c);
        say(text, " -> %dx%dx%d", n, t, c);
    } else if (strncmp(op, "conv1d", 6) == 0 && chance(rng, 60)) {
        say(text, " %d", o);
    }
    if (weight)
        say(text, " extent %dx0", k);
    if (strncmp(op, "conv1d", 6) == 0 && !grad && chance(rng, 50))
        say(text, " relu");
}

static void say_columns(struct rng *rng, const char *op, char text[KERNEL_TEXT])
{
    const int m = extent(rng, 260);

    if (strcmp(op, "columns") == 0) {
        const int n = extent(rng, 300), first = between(rng, 0, n - 1);
        say(text, " %dx%d extent %dx%d", m, n, first, between(rng, 1, n - first));
        return;
    }
    for (int i = between(rng, 1, 8); i > 0; i--)
        say(text, " %dx%d", m, extent(rng, 70));
}

/* What a rank has of something that is as long on all of them along an axis. */
static void draw_slice(struct rng *rng, const struct shape *local, struct shape_slice *out)
{
    out->count = 2 + (int)rng_below(rng, 2);
    out->index = (int)rng_below(rng, (uint64_t)out->count);
    out->axis = 1 + (int)rng_below(rng, (uint64_t)local->rank - 1);
    out->whole = local->dim[out->axis] * out->count;
}

void kernel_testing_problem(struct rng *rng, const char *op, struct kernel_problem *out)
{
    char text[KERNEL_TEXT] = "";

    say(text, "%s", op);
    if (strncmp(op, "linear", 6) == 0)
        say_linear(rng, op, text);
    else if (strncmp(op, "lstm_attend", 11) == 0)
        say_attend(rng, op, text);
    else if (strncmp(op, "lstm", 4) == 0 || strncmp(op, "gru", 3) == 0)
        say_recurrent(rng, op, text);
    else if (strncmp(op, "conv2d_transpose", 16) == 0)
        say_transpose(rng, op, text);
    else if (is_norm_conv(op))
        say_norm_conv(rng, op, text);
    else if (strncmp(op, "conv2d", 6) == 0)
        say_conv(rng, op, text);
    else if (strncmp(op, "conv1d", 6) == 0 || strncmp(op, "max_over", 8) == 0)
        say_conv1d(rng, op, text);
    else if (strcmp(op, "concat") == 0 || strcmp(op, "columns") == 0)
        say_columns(rng, op, text);
    else if (strncmp(op, "max_pool", 8) == 0 || strncmp(op, "avg_pool", 8) == 0)
        say_pool(rng, op, text);
    else if (strncmp(op, "batch_norm", 10) == 0)
        say_batch_norm(rng, op, text);
    else if (strncmp(op, "embedding", 9) == 0 || strcmp(op, "rows_sort") == 0)
        say_embedding(rng, op, text);
    else if (strcmp(op, "reorder") == 0)
        say_reorder(rng, text);
    else if (strncmp(op, "layer_norm", 10) == 0 || strcmp(op, "softmax") == 0 ||
             strcmp(op, "softmax_grad") == 0 || strcmp(op, "sum_rows") == 0)
        say_rows(rng, op, text);
    else if (strstr(op, "positions") != NULL)
        say_positions(rng, op, text);
    else if (strncmp(op, "attention", 9) == 0)
        say_attention(rng, op, text);
    else if (strncmp(op, "softmax", 7) == 0 || strncmp(op, "token_", 6) == 0 ||
             strcmp(op, "accuracy") == 0)
        say_loss(rng, op, text);
    else
        say_elementwise(rng, op, text);
    CHECK_OK(kernel_parse(text, out));
    if (strcmp(op, "dropout") == 0) {
        out->attrs.rate = chance(rng, 20) ? 0 : rng_float(rng);
        out->attrs.stream = rng_u32(rng);
    }
    if ((strcmp(op, "dropout") == 0 || strcmp(op, "token_cross_entropy_grad") == 0) &&
        out->in[0].shape.rank > 1 && chance(rng, 30))
        draw_slice(rng, &out->in[0].shape, &out->attrs.slice);
    if (strncmp(op, "batch_norm", 10) == 0 || strcmp(op, "layer_norm") == 0 || is_norm_conv(op))
        out->attrs.epsilon = 1e-5F;
    if ((strstr(op, "cross_entropy") != NULL || strstr(op, "_loss") != NULL) && chance(rng, 50))
        out->attrs.smoothing = rng_float(rng);
    if (strstr(op, "accuracy") != NULL && chance(rng, 50))
        out->out[0].dtype = DTYPE_I32;
}

bool kernel_testing_is_smooth(const char *op)
{
    static const char *const ops[] = {
        "tanh",           "gelu",         "gelu_grad",           "gelu_tanh",
        "softmax",        "softmax_grad", "layer_norm",          "layer_norm_grad",
        "gelu_tanh_grad", "linear_gelu",  "linear_grad_through", "linear_token_loss",
        "softmax_loss"
    };

    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        if (strcmp(op, ops[i]) == 0)
            return true;
    }
    return strncmp(op, "attention", 9) == 0 || strncmp(op, "lstm", 4) == 0 ||
           strncmp(op, "gru", 3) == 0;
}

double kernel_testing_tolerance(const struct kernel_problem *problem)
{
    static const struct {
        const char *op;
        double tolerance;
    } table[] = {
        { "linear", 2e-5 },
        { "conv2d", 2e-5 },
        { "norm_conv2d_grad", 1e-4 }, /* sums over places of products by two bf16 may cancel */
        { "norm_conv2d_stats_grad", 1e-4 },
        { "norm_conv2d", 2e-5 },
        { "conv1d", 2e-5 },
        { "bias_grad", 1e-5 },
        { "sum_rows", 1e-5 },
        { "softmax_cross_entropy", 2e-6 },
        { "softmax_loss", 2e-6 },
        { "token_cross_entropy", 2e-6 },
        { "mse", 2e-6 },
        { "batch_norm", 5e-6 },
        { "sigmoid", 4e-7 },
        { "tanh", 4e-7 },
        { "gelu", 4e-7 },
        { "gelu_grad", 6e-7 },
        { "gelu_tanh", 4e-7 },
        { "gelu_tanh_grad", 6e-7 },
        { "softmax", 5e-7 },
        { "softmax_grad", 2e-6 },
        { "layer_norm", 5e-6 },
        { "layer_norm_grad", 2e-5 },
        { "positions_grad", 1e-6 },
        { "attention", 2e-5 },
        { "lstm", 1e-4 },
        { "gru", 1e-4 },
        { "embedding_grad", 1e-5 },
        { "embedding_mean", 2e-6 },
        { "embedding_mean_grad", 2e-7 },
    };

    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const char *op = table[i].op;
        const bool family = strcmp(op, "linear") == 0 || strcmp(op, "conv2d") == 0 ||
                            strcmp(op, "conv1d") == 0 || strcmp(op, "batch_norm") == 0 ||
                            strcmp(op, "norm_conv2d") == 0 || strcmp(op, "attention") == 0 ||
                            strcmp(op, "lstm") == 0 || strcmp(op, "gru") == 0 ||
                            strcmp(op, "token_cross_entropy") == 0;
        if (family ? strncmp(problem->op, op, strlen(op)) == 0 : strcmp(problem->op, op) == 0)
            return table[i].tolerance;
    }
    return 0;
}

const char *const kernel_testing_large[] = {
    "linear 64x784 250x784 250 relu",
    "linear_grad_input 64x250 250x784 -> 64x784",
    "linear_grad_weight 64x784 64x250 -> 250x784 250",
    "linear 500x96 300x96 300 relu",
    "linear_grad_input 200x300 300x500 -> 200x500",
    "linear_grad_input 4096x257 257x260 -> 4096x260",
    "linear_grad_weight 3000x40 3000x70 -> 70x40 70",
    "linear_grad_weight 300x200 300x300 -> 300x200 300",
    "linear_gelu 300x96 320x96 320",
    "linear_gelu 70x96 257x96 257 plain",
    "linear_add 300x96 320x96 320 300x320",
    "linear_add 70x33 57x33 57 70x57",
    "linear_grad_through 200x96 96x320 200x320 -> 200x320 gelu_tanh",
    "linear_grad_through 70x33 33x257 70x257 -> 70x257 plain gelu_tanh",
    "linear_grad_through 64x100 100x250 64x250 -> 64x250 relu",
    "linear_grad_through 700x96 96x320 700x320 -> 700x320 320 gelu_tanh",
    "linear_grad_through 700x33 33x257 700x257 -> 700x257 257 gelu_tanh",
    "linear_grad_through 200x96 96x320 200x320 -> 200x320 320 relu",
    "linear 130x1100 10x1100 10 relu",
    "linear 35x1024 14x1024",
    "linear_grad_input 130x10 10x1100 -> 130x1100",
    "linear_grad_through 35x14 14x1024 35x1024 -> 35x1024 relu",
    "linear 40x300 700x300 plain",
    "linear 150x300 257x300 257 plain relu",
    "linear_grad_input 150x257 257x300 -> 150x300 plain",
    "linear_grad_weight 150x300 150x257 -> 257x300 257 plain",
    "conv2d 12x16x28x28 32x16x3x3 32 stride 2x2 pad 1x1 relu",
    "conv2d_grad_input 12x32x14x14 32x16x3x3 -> 12x16x28x28 stride 2x2 pad 1x1",
    "conv2d_grad_weight 12x16x28x28 12x32x14x14 -> 32x16x3x3 32 stride 2x2 pad 1x1",
    "conv2d_grad_weight 70x20x13x13 70x36x13x13 -> 36x20x3x3 36 stride 1x1 pad 1x1",
    "conv2d_grad_weight 40x130x4x4 40x70x4x4 -> 70x130x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 6x32x12x13 32x24x3x3 -> 6x24x12x13 stride 1x1 pad 1x1",
    "conv2d_grad_input 6x32x10x11 32x24x3x3 -> 6x24x12x13 stride 1x1",
    "conv2d_grad_input 12x20x31x32 20x36x3x3 -> 12x36x31x32 stride 1x1 pad 1x1",
    "conv2d_grad_input 4x512x4x4 512x256x3x3 -> 4x256x4x4 stride 1x1 pad 1x1",
    "conv2d 2x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 2x64x32x32 64x64x3x3 -> 2x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 2x64x32x32 2x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 2x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 2x128x16x16 128x128x3x3 -> 2x128x16x16 stride 1x1 pad 1x1",
    "conv2d_grad_weight 2x128x16x16 2x128x16x16 -> 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d 8x6x14x14 16x6x5x5 16 stride 1x1 pad 2x2 relu",
    "conv2d_grad_input 8x16x14x14 16x6x5x5 -> 8x6x14x14 stride 1x1 pad 2x2",
    "conv2d_grad_weight 8x6x14x14 8x16x14x14 -> 16x6x5x5 16 stride 1x1 pad 2x2",
    "conv2d 8x40x15x15 40x1x3x3 40 stride 1x1 pad 1x1 groups 40 relu6",
    "conv2d 8x40x15x15 40x1x3x3 40 stride 2x2 pad 1x1 groups 40 relu",
    "conv2d 8x40x15x15 20x10x3x3 20 stride 1x1 pad 1x1 groups 4",
    "conv2d_grad_input 8x40x15x15 40x1x3x3 -> 8x40x15x15 stride 1x1 pad 1x1 groups 40",
    "conv2d_grad_input 8x40x8x8 40x1x3x3 -> 8x40x15x15 stride 2x2 pad 1x1 groups 40",
    "conv2d_grad_weight 8x40x15x15 8x40x15x15 -> 40x1x3x3 40 stride 1x1 pad 1x1 groups 40",
    "conv2d_grad_weight 8x40x15x15 8x40x8x8 -> 40x1x3x3 stride 2x2 pad 1x1 groups 40",
    "conv2d 8x24x32x32 40x24x1x1 40 stride 1x1 relu",
    "conv2d_grad_input 8x40x32x32 40x24x1x1 -> 8x24x32x32 stride 1x1",
    "conv2d_grad_weight 8x24x32x32 8x40x32x32 -> 40x24x1x1 40 stride 1x1",
    "conv2d 32x1x28x28 20x1x3x3 20 stride 2x2 pad 1x1 relu6",
    "conv2d_grad_weight 32x1x28x28 32x20x14x14 -> 20x1x3x3 20 stride 2x2 pad 1x1",
    "conv2d 5x3x15x15 64x3x3x3 64 stride 1x1 pad 1x1 relu",
    "conv2d_grad_weight 5x3x15x15 5x64x15x15 -> 64x3x3x3 64 stride 1x1 pad 1x1",
    "conv2d 2x3x40x150 32x3x3x3 32 stride 1x1 pad 1x1 relu",
    "conv2d_grad_weight 2x3x40x150 2x32x40x150 -> 32x3x3x3 32 stride 1x1 pad 1x1",
    "conv2d 7x1x28x28 16x1x3x3 16 stride 2x2 pad 1x1",
    "conv2d_grad_weight 7x1x28x28 7x32x28x28 -> 32x1x3x3 32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 9x32x14x14 9x64x14x14 -> 64x32x3x3 64 stride 1x1 pad 1x1",
    "conv2d_grad_weight 140x16x14x15 140x32x14x15 -> 32x16x3x3 stride 1x1 pad 1x1",
    "conv2d 70x32x7x7 64x32x7x7 64 stride 1x1 relu",
    "conv2d_grad_input 70x64x1x1 64x32x7x7 -> 70x32x7x7 stride 1x1",
    "conv2d_grad_weight 70x32x7x7 70x64x1x1 -> 64x32x7x7 64 stride 1x1",
    "conv2d_transpose 70x64x1x1 64x32x7x7 32 stride 1x1 extent 7x7 relu",
    "conv2d_transpose_grad_input 70x32x7x7 64x32x7x7 -> 70x64x1x1 stride 1x1",
    "conv2d_transpose_grad_weight 70x64x1x1 70x32x7x7 -> 64x32x7x7 32 stride 1x1",
    "conv2d_transpose 8x16x14x14 16x1x3x3 1 stride 2x2 pad 1x1 extent 28x28 relu",
    "conv2d_transpose 5x32x7x7 32x3x3x3 3 stride 1x1 pad 1x1 extent 7x7",
    "conv2d_transpose_grad_input 8x1x28x28 16x1x3x3 -> 8x16x14x14 stride 2x2 pad 1x1",
    "conv2d_transpose_grad_weight 8x16x14x14 8x1x28x28 -> 16x1x3x3 1 stride 2x2 pad 1x1",
    "conv2d_transpose 8x32x7x7 32x16x3x3 16 stride 2x2 pad 1x1 extent 14x14 relu",
    "conv2d_transpose 8x16x14x14 16x1x3x3 1 stride 2x2 pad 1x1 extent 28x28 sigmoid",
    "conv2d_transpose_grad_input 8x16x14x14 32x16x3x3 -> 8x32x7x7 stride 2x2 pad 1x1",
    "conv2d_transpose_grad_weight 8x32x7x7 8x16x14x14 -> 32x16x3x3 16 stride 2x2 pad 1x1",
    "conv2d_pool 8x6x14x14 16x6x5x5 16 stride 1x1 pad 2x2 window 2x2 relu",
    "conv2d_pool_grad_input 8x16x7x7 8x16x7x7 16x6x5x5 -> 8x6x14x14 stride 1x1 pad 2x2 window "
    "2x2",
    "conv2d_pool_grad_weight 8x6x14x14 8x16x7x7 8x16x7x7 -> 16x6x5x5 16 stride 1x1 pad 2x2 "
    "window 2x2",
    "conv2d_pool 5x3x12x14 64x3x3x3 64 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d_pool 3x3x64x62 32x3x3x3 32 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d_pool_grad_weight 5x3x12x14 5x64x6x7 5x64x6x7 -> 64x3x3x3 64 stride 1x1 pad 1x1 "
    "window 2x2",
    "conv2d_pool_grad_weight 3x3x64x62 3x32x32x31 3x32x32x31 -> 32x3x3x3 32 stride 1x1 pad 1x1 "
    "window 2x2",
    "conv1d 6x70x40 30x40x4 30 relu",
    "conv1d_grad_input 6x67x30 30x40x4 6x70x40 -> 6x70x40",
    "conv1d_grad_weight 6x70x40 6x67x30 -> 30x40x4 30 extent 4x0",
    "conv1d_max 20x70x40 100x40x4 100 relu",
    "conv1d_max_grad_input 20x100 20x100 100x40x4 20x70x40 20x70x40 -> 20x70x40",
    "conv1d_max_grad_weight 20x70x40 20x100 20x100 -> 100x40x4 100 extent 4x0",
    "max_over_time 20x70x100",
    "max_over_time_grad 20x100 20x100 20x70x100 -> 20x70x100",
    "concat 300x1001 300x17 300x100",
    "columns 300x1001 extent 17x500",
    "max_pool 32x64x28x28 stride 2x2 window 2x2",
    "max_pool 8x32x29x29 stride 2x2 pad 1x1 window 3x3",
    "max_pool_grad 32x64x14x14 32x64x14x14 -> 32x64x28x28 stride 2x2 window 2x2",
    "max_pool_grad 8x32x15x15 8x32x15x15 -> 8x32x29x29 stride 2x2 pad 1x1 window 3x3",
    "avg_pool 32x512x7x7 stride 7x7 window 7x7",
    "avg_pool_grad 32x512x1x1 -> 32x512x7x7 stride 7x7 window 7x7",
    "avg_pool_grad 8x20x3x4 -> 8x20x6x8 stride 2x2 window 2x2",
    "bias 25088x64 64",
    "bias_grad 25088x64 -> 64",
    "bias_grad 4096x6 -> 6",
    "bias_grad 3000x144 -> 144",
    "bias_grad 1100x576 -> 576",
    "bias_grad 512x4099 -> 4099",
    "sum_rows 25088x64",
    "sum_rows 4096x6",
    "sum_rows 1030x4099",
    "sum_rows 70x4096",
    "relu 300x1001",
    "relu_grad 300x1001 300x1001 -> 300x1001",
    "add 300x1001 300x1001",
    "relu6 300x1001",
    "relu6_grad 300x1001 300x1001 -> 300x1001",
    "sigmoid 300x1001",
    "sigmoid_grad 300x1001 300x1001 -> 300x1001",
    "tanh 300x1001",
    "tanh_grad 300x1001 300x1001 -> 300x1001",
    "gelu 300x1001",
    "gelu_grad 300x1001 300x1001 -> 300x1001",
    "gelu_tanh 300x1001",
    "gelu_tanh_grad 300x1001 300x1001 -> 300x1001",
    "layer_norm 700x384 384 384",
    "layer_norm 300x1001 1001 1001",
    "layer_norm_grad 700x384 700x384 384 700x2 -> 700x384 384 384",
    "layer_norm_grad 300x1001 300x1001 1001 300x2 -> 300x1001 1001 1001",
    "layer_norm_grad 700x384 700x384 384 700x2 700x384 -> 700x384 384 384",
    "layer_norm_grad 300x1001 300x1001 1001 300x2 300x1001 -> 300x1001 1001 1001",
    "layer_norm_grad 700x384 700x384 384 700x2 700x384 -> 700x384 384 384 384",
    "layer_norm_grad 131x1600 131x1600 1600 131x2 131x1600 -> 131x1600 1600 1600 1600",
    "layer_norm_grad 300x1001 300x1001 1001 300x2 -> 300x1001 1001 1001 1001",
    "softmax 300x1001",
    "softmax_grad 300x1001 300x1001 -> 300x1001",
    "add_positions 7x100x96 120x96",
    "positions_grad 7x100x96 -> 120x96 extent 120x0",
    "attention 3x70x384 heads 2 causal",
    "attention 2x130x192 2x130 heads 4",
    "attention_grad 3x70x128 3x70x384 3x70x128 3x70x2 -> 3x70x384 heads 2 causal",
    "attention_grad 2x130x64 2x130x192 2x130x64 2x130x4 2x130 -> 2x130x192 heads 4",
    "attention 2x192x384 heads 2 causal",
    "attention_grad 2x192x128 2x192x384 2x192x128 2x192x2 -> 2x192x384 heads 2 causal",
    "attention_step 3x1x384 3x200x256 3 heads 2",
    "attention_step 2x40x192 2x64x128 2 heads 4",
    "batch_norm 16x24x33x31 24 24 relu6",
    "batch_norm 16x64x16x16 64 64 16x64x16x16 relu",
    "batch_norm 64x325x4x4 325 325",
    "batch_norm_grad 16x24x33x31 16x24x33x31 24 2x24 16x24x33x31 -> 16x24x33x31 24 24 relu6",
    "batch_norm_grad 16x64x16x16 16x64x16x16 64 2x64 16x64x16x16 -> 16x64x16x16 64 64 "
    "16x64x16x16 relu",
    "batch_norm_grad 64x325x4x4 64x325x4x4 325 2x325 -> 64x325x4x4 325 325",
    "batch_norm_grad 16x24x33x31 16x24x33x31 24 2x24 24 -> 16x24x33x31 24 24 relu6",
    "batch_norm_grad 16x64x33x31 16x64x33x31 64 2x64 64 16x64x33x31 -> 16x64x33x31 64 64 relu",
    "batch_norm_grad 16x64x33x31 16x64x33x31 64 2x64 16x64x33x31 16x64x33x31 -> 16x64x33x31 64 "
    "64 "
    "16x64x33x31 relu",
    /* Whose statistics are by tiles on a GPU, and sums of gradients are not. */
    "batch_norm_grad 2x64x32x32 2x64x32x32 64 2x64 64 -> 2x64x32x32 64 64 relu",
    "batch_norm_grad 2x128x16x16 2x128x16x16 128 2x128 128 -> 2x128x16x16 128 128 relu",
    "batch_norm_grad_sums 2x64x32x32 2x64x32x32 2x64 2x64x32x32 -> 64 64 3x64 relu",
    "batch_norm_grad_sums 2x128x16x16 2x128x16x16 2x128 2x128x16x16 -> 128 128 3x128 relu",
    "batch_norm 91x24x31x31 24 24 91x24x31x31 relu6", /* so large that y passes the caches */
    "batch_norm_grad 91x24x31x31 91x24x31x31 24 2x24 91x24x31x31 -> 91x24x31x31 24 24 relu6",
    "batch_norm_apply 16x24x33x31 24 24 24 24 16x24x33x31 relu6",
    "batch_norm_stats 16x24x33x31",
    "conv2d_stats 20x24x17x17 144x24x1x1 stride 1x1",
    "conv2d_stats 2x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_stats 2x128x16x16 128x128x3x3 stride 1x1 pad 1x1",
    "conv2d_pool 37x1x28x28 32x1x3x3 32 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d_pool 300x1x17x31 64x1x3x3 stride 1x1 pad 1x1 window 2x2",
    "conv2d_pool_grad_weight 37x1x28x28 37x32x14x14 37x32x14x14 -> 32x1x3x3 32 stride 1x1 pad "
    "1x1 window "
    "2x2",
    "conv2d_pool_grad_weight 300x1x17x31 300x64x8x15 300x64x8x15 -> 64x1x3x3 stride 1x1 pad "
    "1x1 window 2x2",
    "norm_conv2d 20x144x17x17 24x144x1x1 144 144 2x144 stride 1x1 relu6",
    "norm_conv2d_stats 9x40x15x15 40x1x3x3 40 40 2x40 stride 2x2 pad 1x1 groups 40 relu6",
    "norm_conv2d_stats 150x16x31x31 16x1x3x3 16 16 2x16 stride 1x1 pad 1x1 groups 16 relu6",
    "norm_conv2d 37x96x17x15 96x1x3x3 96 96 2x96 stride 1x1 pad 1x1 groups 96 relu6",
    "norm_conv2d 19x300x13x18 300x1x3x3 300 300 2x300 stride 2x2 pad 1x1 groups 300 relu",
    "norm_conv2d_grad 37x96x17x15 96x1x3x3 37x96x17x15 96 96 2x96 -> 37x96x17x15 96x1x3x3 96 "
    "96 2x96 "
    "stride 1x1 pad 1x1 groups 96 relu6",
    "norm_conv2d_grad 19x300x7x9 300x1x3x3 19x300x13x18 300 300 2x300 -> 19x300x13x18 "
    "300x1x3x3 300 300 "
    "2x300 stride 2x2 pad 1x1 groups 300 relu",
    "conv2d_stats_grad 20x144x17x17 144x24x1x1 20x24x17x17 20x144x17x17 2x144 2x144 -> "
    "20x24x17x17 144x24x1x1 stride 1x1",
    "norm_conv2d_grad 40x96x8x8 96x200x1x1 40x200x8x8 200 200 2x200 -> 40x200x8x8 96x200x1x1 "
    "200 200 2x200 stride 1x1 relu6",
    /* The last rows of a part are fewer, and their product needs more room. */
    "norm_conv2d_grad 61x2048x2x2 2048x96x1x1 61x96x2x2 96 96 2x96 -> 61x96x2x2 2048x96x1x1 96 "
    "96 2x96 stride 1x1",
    "norm_conv2d_stats_grad 9x40x8x8 40x1x3x3 9x40x15x15 40 40 2x40 9x40x8x8 2x40 2x40 -> "
    "9x40x15x15 40x1x3x3 40 40 2x40 stride 2x2 pad 1x1 groups 40 relu6",
    "norm_conv2d_stats_grad 150x16x31x31 16x1x3x3 150x16x31x31 16 16 2x16 150x16x31x31 2x16 "
    "2x16 -> 150x16x31x31 16x1x3x3 16 16 2x16 stride 1x1 pad 1x1 groups 16 relu",
    "batch_norm_join 65x3x512 3x512",
    "batch_norm_normalize 16x64x16x16 64 64 2x64 16x64x16x16 relu",
    "batch_norm_grad_sums 16x24x33x31 16x24x33x31 2x24 16x24x33x31 -> 24 24 3x24 relu6",
    "batch_norm_grad_sums 16x64x16x16 16x64x16x16 2x64 16x64x16x16 -> 64 64 3x64 16x64x16x16 "
    "relu",
    "batch_norm_grad_spread 16x24x33x31 16x24x33x31 24 2x24 4x3x24 16x24x33x31 -> 16x24x33x31 "
    "relu6",
    "batch_norm_grad_spread 64x325x4x4 64x325x4x4 325 2x325 3x3x325 -> 64x325x4x4",
    "reorder 32x64x7x7 nhwc plain",
    "reorder 32x64x7x7 plain nhwc",
    "dropout 300x1001",
    "dropout 300x1004",
    "softmax_cross_entropy 300x1001 300",
    "softmax_cross_entropy_grad 300x1001 300 -> 300x1001",
    "softmax_loss 300x1001 300",
    "softmax_loss 512x10 512",
    "softmax_loss 2048x32 2048",
    "softmax_loss 2049x17 2049",
    "mse 300x1001 300x1001",
    "mse_grad 300x1001 300x1001 -> 300x1001",
    "accuracy 300x1001 300",
    "lstm 33x7x260 260x65 260 33x7 33x130",
    "lstm_attend 33x7x260 260x65 260 33x7 33x130 260x50 70x65 70 33x11x70 33x11x50 33x11",
    "lstm_attend_grad 33x7x260 260x65 33x7 33x7x65 260x50 70x65 70 33x11x70 33x11x50 33x7x70 "
    "33x7x11 33x7x65 -> 33x7x260 33x130 33x11x70 33x11x50 33x7x70 70",
    "lstm_grad 33x7x260 260x65 33x7 33x7x65 33x7x65 33x130 -> 33x7x260 33x130",
    "gru 33x7x195 195x65 195 33x7 33x65",
    "gru_grad 33x7x195 195x65 33x7 33x7x65 33x7x65 33x7x65 33x65 -> 33x7x195 33x7x195 33x65",
    "token_cross_entropy 300x1001 300",
    "token_cross_entropy_grad 300x1001 300x1 300 -> 300x1001",
    "token_accuracy 300x1001 300",
    "token_cross_entropy 40x2048 40",
    "token_cross_entropy_grad 40x2048 40x1 40 -> 40x2048",
    "token_accuracy 40x2048 40",
    "linear_token_loss 300x96 1001x96 300 plain",
    "linear_token_loss 130x72 2048x72 130 plain",
    "linear_token_loss 37x33 4099x33 37 plain",
    "linear_token_loss 2048x96 65x96 2048 plain", /* an odd table, whose gradient is made in parts */
    "linear_token_loss 8192x16 24x16 8192 plain", /* so many rows that they come in parts */
    "embedding 32x100 500x100",
    "embedding_grad 32x100x100 32x100 -> 500x100",
    "embedding_grad 64x70 64x200 333x70 -> 333x70",
    "embedding_grad 50x40x24 50x40 -> 5x24",
    "embedding_mean 128x64 500x100",
    "embedding_mean_grad 512x100 512x64 -> 512x100",
    "rows_sort 256x256 rows 25000 by_sample",
    "rows_sort 100x250 rows 70000",
    "rows_sort 20x30 rows 20000000",
    NULL,
};
