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
