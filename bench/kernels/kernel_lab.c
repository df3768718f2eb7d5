/* SPDX-License-Identifier: MIT */
/* kernel_lab.c - how fast each kernel solves the problems of the models, in one thread.
 *
 *     kernel_lab [part of a problem's line ...]
 *
 * One line a problem: GFLOP/s (median, and the best in parentheses) of every kernel that can
 * run it, how far its result is from "reference" (where that takes less than a second or so),
 * and the best kernel's share of the processor's multiply-add peak measured in the same
 * minute. Operations are those of the plain sum, so "winograd" may pass the peak. Kernels
 * take turns, so that a disturbance hits all of them. What the built-in table of choices
 * says comes from here; TUTTI_ISA=avx2 measures the other instruction set.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernel/kernel.h"
#include "kernel/measure.h"
#include "kernels/peak.h"

enum { ROUNDS = 25, MOST_KERNELS = 6 };
static const double SAMPLE_NS = 2e6, CHECK_FLOPS = 1e9;

/* Lines as kernel_parse reads them, by model. A line that begins with # is a heading. */
static const char *const problems[] = {
    "# mlp, shard of 32",
    "linear 32x784 250x784 250 relu",
    "linear 32x250 100x250 100 relu",
    "linear 32x100 10x100 10",
    "linear_grad_weight 32x784 32x250 -> 250x784 250",
    "linear_grad_weight 32x250 32x100 -> 100x250 100",
    "linear_grad_weight 32x100 32x10 -> 10x100 10",
    "linear_grad_input 32x100 100x250 -> 32x250",
    "linear_grad_input 32x10 10x100 -> 32x100",
    "# mlp, shard of 64",
    "linear 64x784 250x784 250 relu",
    "linear_grad_weight 64x784 64x250 -> 250x784 250",
    "linear_grad_input 64x100 100x250 -> 64x250",
    "# mlp, shard of 256",
    "linear 256x784 250x784 250 relu",
    "linear 256x250 100x250 100 relu",
    "linear 256x100 10x100 10",
    "linear_grad_weight 256x784 256x250 -> 250x784 250",
    "linear_grad_weight 256x250 256x100 -> 100x250 100",
    "linear_grad_weight 256x100 256x10 -> 10x100 10",
    "linear_grad_input 256x100 100x250 -> 256x250",
    "linear_grad_input 256x10 10x100 -> 256x100",
    "# cnn, shard of 32",
    "conv2d_pool 32x1x28x28 32x1x3x3 32 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d 32x1x28x28 32x1x3x3 32 stride 1x1 pad 1x1 relu",
    "conv2d_pool 32x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d 32x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 relu",
    "linear 32x3136 128x3136 128 relu",
    "linear 32x128 10x128 10",
    "conv2d_grad_weight 32x1x28x28 32x32x28x28 -> 32x1x3x3 32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x32x14x14 32x64x14x14 -> 64x32x3x3 64 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x64x14x14 64x32x3x3 -> 32x32x14x14 stride 1x1 pad 1x1",
    "conv2d_pool_grad_weight 32x1x28x28 32x32x14x14 32x32x14x14 -> 32x1x3x3 32 "
    "stride 1x1 pad 1x1 window 2x2",
    "conv2d_pool_grad_weight 32x32x14x14 32x64x7x7 32x64x7x7 -> 64x32x3x3 64 "
    "stride 1x1 pad 1x1 window 2x2",
    "conv2d_pool_grad_input 32x64x7x7 32x64x7x7 64x32x3x3 -> 32x32x14x14 "
    "stride 1x1 pad 1x1 window 2x2",
    "linear_grad_weight 32x3136 32x128 -> 128x3136 128",
    "linear_grad_input 32x128 128x3136 -> 32x3136",
    "# vgg11 on 32x32, shard of 32",
    "conv2d 32x3x32x32 64x3x3x3 64 stride 1x1 pad 1x1 relu",
    "conv2d 32x64x16x16 128x64x3x3 128 stride 1x1 pad 1x1 relu",
    "conv2d 32x256x8x8 256x256x3x3 256 stride 1x1 pad 1x1 relu",
    "conv2d 32x512x4x4 512x512x3x3 512 stride 1x1 pad 1x1 relu",
    "conv2d 32x512x2x2 512x512x3x3 512 stride 1x1 pad 1x1 relu",
    "conv2d_grad_weight 32x3x32x32 32x64x32x32 -> 64x3x3x3 64 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x64x16x16 32x128x16x16 -> 128x64x3x3 128 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x256x8x8 32x256x8x8 -> 256x256x3x3 256 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x512x4x4 32x512x4x4 -> 512x512x3x3 512 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x512x2x2 32x512x2x2 -> 512x512x3x3 512 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x128x16x16 128x64x3x3 -> 32x64x16x16 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x256x8x8 256x256x3x3 -> 32x256x8x8 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x512x4x4 512x512x3x3 -> 32x512x4x4 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x512x2x2 512x512x3x3 -> 32x512x2x2 stride 1x1 pad 1x1",
    "# lenet, shard of 64",
    "conv2d_pool 64x1x28x28 6x1x5x5 6 stride 1x1 pad 0x0 window 2x2 relu",
    "conv2d_pool 64x6x12x12 16x6x5x5 16 stride 1x1 pad 0x0 window 2x2 relu",
    "conv2d_pool_grad_weight 64x1x28x28 64x6x12x12 64x6x12x12 -> 6x1x5x5 6 "
    "stride 1x1 pad 0x0 window 2x2",
    "conv2d_pool_grad_weight 64x6x12x12 64x16x4x4 64x16x4x4 -> 16x6x5x5 16 "
    "stride 1x1 pad 0x0 window 2x2",
    "conv2d_pool_grad_input 64x16x4x4 64x16x4x4 16x6x5x5 -> 64x6x12x12 "
    "stride 1x1 pad 0x0 window 2x2",
    "# resnet18, shard of 32",
    "conv2d 32x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 32x64x32x32 128x64x3x3 stride 2x2 pad 1x1",
    "conv2d 32x64x32x32 128x64x1x1 stride 2x2 pad 0x0",
    "conv2d_grad_weight 32x64x32x32 32x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_weight 32x64x32x32 32x128x16x16 -> 128x64x3x3 stride 2x2 pad 1x1",
    "conv2d_grad_weight 32x64x32x32 32x128x16x16 -> 128x64x1x1 stride 2x2 pad 0x0",
    "conv2d_grad_input 32x64x32x32 64x64x3x3 -> 32x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_input 32x128x16x16 128x64x3x3 -> 32x64x32x32 stride 2x2 pad 1x1",
    "conv2d_grad_input 32x128x16x16 128x64x1x1 -> 32x64x32x32 stride 2x2 pad 0x0",
    "# gpt",
    "linear 1536x384 1152x384 1152",
    "linear 1536x1536 384x1536 384",
    "linear 256x768 3072x768 3072",
    "linear_grad_weight 1536x384 1536x1152 -> 1152x384 1152",
    "linear_grad_weight 1536x1536 1536x384 -> 384x1536 384",
    "linear_grad_weight 256x768 256x3072 -> 3072x768 3072",
    "linear_grad_input 1536x1152 1152x384 -> 1536x384",
    "linear_grad_input 1536x384 384x1536 -> 1536x1536",
    "linear_grad_input 256x3072 3072x768 -> 256x768",
    "linear 1024x1024 1024x1024 1024",
};

/* Multiply-adds are two operations. */
static double flops_of(const struct kernel_problem *problem)
{
    const struct shape *a = &problem->in[0].shape, *b = &problem->in[1].shape;
    const struct shape *out = &problem->out[0].shape;
    const int *window = problem->attrs.window;

    if (strncmp(problem->op, "linear", 6) == 0)
        return strcmp(problem->op, "linear_grad_weight") == 0
                   ? 2.0 * (double)shape_count(a) * (double)b->dim[1]
                   : 2.0 * (double)shape_count(a) * (double)shape_count(b) / (double)a->dim[1];
    /* Pixels of dy or y (before pooling) times what one of them takes. */
    const bool is_weight = strstr(problem->op, "grad_weight") != NULL;
    const bool is_input = strstr(problem->op, "grad_input") != NULL;
    const struct shape *w = out, *y = is_weight ? b : is_input ? a : out;
    for (int i = 0; i < problem->n_in; i++) {
        if (problem->in[i].layout == LAYOUT_HWIO)
            w = &problem->in[i].shape;
    }
    const double pool = window[0] > 0 ? window[0] * window[1] : 1;
    return 2.0 * pool * (double)(y->dim[0] * y->dim[2] * y->dim[3]) * (double)shape_count(w);
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

struct entry {
    const struct kernel *kernel;
    struct kernel_trial *trial;
    double difference; /* from the reference, over the largest value; 0 if not compared */
    double ns[ROUNDS];
};

/* Time this thread has run: other programs on the machine do not count. */
static double busy_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void time_entry(struct entry *entry, int round, double flops)
{
    const double guess = flops / 100.0;
    const int count = guess > SAMPLE_NS ? 1 : (int)(SAMPLE_NS / guess) + 1;
    const double begin = busy_ns();

    for (int i = 0; i < count; i++)
        kernel_trial_run(entry->trial);
    entry->ns[round] = (busy_ns() - begin) / count;
}

/* All kernels for the problem but the reference; its result is compared with theirs. */
static int make_entries(const struct kernel_problem *problem, double flops,
                        struct entry entries[MOST_KERNELS])
{
    struct kernel_trial *reference = NULL;
    const struct kernel *kernel;
    int n = 0;

    if (flops < CHECK_FLOPS &&
        kernel_trial_create(kernel_find(problem->op, "reference"), problem, KERNEL_FILL_NORMAL,
                            1, &reference) == STATUS_OK)
        kernel_trial_run(reference);
    for (size_t i = 0; (kernel = kernel_at(i)) != NULL && n < MOST_KERNELS; i++) {
        if (strcmp(kernel->op, problem->op) != 0 || strcmp(kernel->name, "reference") == 0)
            continue;
        if (kernel_trial_create(kernel, problem, KERNEL_FILL_NORMAL, 1, &entries[n].trial) !=
            STATUS_OK)
            continue;
        entries[n].kernel = kernel;
        kernel_trial_run(entries[n].trial);
        if (kernel_trial_check(entries[n].trial) != STATUS_OK)
            printf("%s writes where it must not\n", kernel->name);
        if (reference != NULL)
            entries[n].difference = kernel_trial_difference(reference, entries[n].trial, 0);
        n++;
    }
    kernel_trial_destroy(reference);
    return n;
}

static void measure(const char *line)
{
    struct kernel_problem problem;
    struct entry entries[MOST_KERNELS] = { 0 };

    if (kernel_parse(line, &problem) != STATUS_OK) {
        printf("%s: %s\n", line, status_message());
        return;
    }
    const double flops = flops_of(&problem);
    const int n = make_entries(&problem, flops, entries);
    const double peak = peak_gflops(kernel_isa());
    double most = 0;

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < n; i++)
            time_entry(&entries[i], round, flops);
    }
    printf("%-82s", line);
    for (int i = 0; i < n; i++) {
        qsort(entries[i].ns, ROUNDS, sizeof entries[i].ns[0], compare);
        const double median = flops / entries[i].ns[ROUNDS / 2],
                     best = flops / entries[i].ns[0];
        printf(" %s %.0f (%.0f)", entries[i].kernel->name, median, best);
        if (entries[i].difference > 0)
            printf(" %.0e", entries[i].difference);
        most = best > most ? best : most;
        kernel_trial_destroy(entries[i].trial);
    }
    printf("  %.0f%% of %.0f\n", 100 * most / peak, peak);
    fflush(stdout);
}

static bool is_wanted(const char *line, int argc, char **argv)
{
    if (argc < 2)
        return true;
    for (int i = 1; i < argc; i++) {
        if (strstr(line, argv[i]) != NULL)
            return line[0] != '#';
    }
    return false;
}

int main(int argc, char **argv)
{
    printf("%s, GFLOP/s: median (best)\n", kernel_isa());
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        if (!is_wanted(problems[i], argc, argv))
            continue;
        if (problems[i][0] == '#')
            puts(problems[i]);
        else
            measure(problems[i]);
    }
    return 0;
}
