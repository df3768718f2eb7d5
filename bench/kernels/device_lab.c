/* SPDX-License-Identifier: MIT */
/* device_lab.c - how fast a device's kernels solve the problems of the models.
 *
 *     device_lab [--device NAME] [--rows] [part of a problem's line ...]
 *
 * One line a problem, in f32 and then in mixed precision: microseconds of a run (median of graphs of 20, so launches follow each other without the
 * host), the rate at which it reads its inputs and writes its outputs once with its share of what a large copy
 * reaches on the same device, and for products the rate of their operations. What fits the device's cache may pass
 * the copy. First comes the ceiling, a copy of 1 GiB counting both ways. With --rows every kernel that can run a problem in mixed precision
 * follows, with its name; the first of them is the one that is taken.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/device_measure.h"
#include "kernel/precision.h"

/* Lines as kernel_parse reads them, by model. A line that begins with # is a heading. */
static const char *const problems[] = {
    "# mlp, batch of 512",
    "linear 512x784 250x784 250 relu",
    "linear_grad_weight 512x784 512x250 -> 250x784 250",
    "linear_grad_input 512x100 100x250 -> 512x250",
    "softmax_cross_entropy 512x10 512",
    "# cnn, batch of 512",
    "conv2d_pool 512x1x28x28 32x1x3x3 32 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d_pool 512x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 window 2x2 relu",
    "conv2d_pool_grad_input 512x64x7x7 512x64x7x7 64x32x3x3 -> 512x32x14x14 stride 1x1 pad 1x1 "
    "window 2x2",
    "conv2d_pool_grad_weight 512x32x14x14 512x64x7x7 512x64x7x7 -> 64x32x3x3 64 stride 1x1 pad "
    "1x1 window 2x2",
    "dropout 512x3136",
    "# resnet18 and vgg11 on 32x32, batch of 512",
    "conv2d 512x64x32x32 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 512x64x32x32 64x64x3x3 -> 512x64x32x32 stride 1x1 pad 1x1",
    "conv2d_grad_weight 512x64x32x32 512x64x32x32 -> 64x64x3x3 stride 1x1 pad 1x1",
    "conv2d 512x256x8x8 256x256x3x3 stride 1x1 pad 1x1",
    "conv2d_grad_input 512x256x8x8 256x256x3x3 -> 512x256x8x8 stride 1x1 pad 1x1",
    "conv2d_grad_weight 512x256x8x8 512x256x8x8 -> 256x256x3x3 stride 1x1 pad 1x1",
    "batch_norm 512x64x32x32 64 64 relu",
    "batch_norm 512x64x32x32 64 64 512x64x32x32 relu",
    "batch_norm_grad 512x64x32x32 512x64x32x32 64 2x64 512x64x32x32 -> 512x64x32x32 64 64 relu",
    "max_pool 512x64x32x32 stride 2x2 window 2x2",
    "max_pool_grad 512x64x16x16 512x64x16x16 -> 512x64x32x32 stride 2x2 window 2x2",
    "avg_pool 512x512x4x4 stride 4x4 window 4x4",
    "relu 512x64x32x32",
    "add 512x64x32x32 512x64x32x32",
    "# mobilenet_v2 on 32x32, batch of 512",
    "conv2d 512x144x32x32 144x1x3x3 stride 1x1 pad 1x1 groups 144",
    "conv2d_grad_input 512x144x32x32 144x1x3x3 -> 512x144x32x32 stride 1x1 pad 1x1 groups 144",
    "conv2d_grad_weight 512x144x32x32 512x144x32x32 -> 144x1x3x3 stride 1x1 pad 1x1 groups 144",
    "conv2d 512x24x32x32 144x24x1x1 stride 1x1",
    "# conv_autoencoder, batch of 512",
    "conv2d_transpose 512x32x7x7 32x16x3x3 16 stride 2x2 pad 1x1 extent 14x14 relu",
    "mse 512x784 512x784",
    "# nbow and textcnn",
    "embedding_mean 512x256 25000x64",
    "rows_sort 512x256 rows 25000 by_sample",
    "embedding_grad 512x64 512x256 -> 25000x64",
    "conv1d_max 64x256x100 100x100x4 100 relu",
    "conv1d_max_grad_input 64x100 64x100 100x100x4 64x256x100 -> 64x256x100",
    "conv1d_max_grad_weight 64x256x100 64x100 64x100 -> 100x100x4 100 extent 4x0",
    "# seq2seq, batch of 128",
    "gru 128x24x768 768x256 768 128x24",
    "lstm 128x24x1024 1024x256 1024 128x24",
    "lstm_grad 128x24x1024 1024x256 128x24 128x24x256 128x24x256 -> 128x24x1024",
    "lstm_attend 128x24x1024 1024x256 1024 128x24 128x512 1024x256 256x256 256 128x24x256 "
    "128x24x256 128x24",
    "# gpt, 64 sequences of 256",
    "linear_gelu 16384x384 1536x384 1536",
    "linear_grad_through 16384x384 384x1536 16384x1536 -> 16384x1536 1536 gelu_tanh",
    "# gpt 124m, 8 sequences of 1024",
    "linear 8192x768 3072x768 3072",
    "linear_grad_input 8192x3072 3072x768 -> 8192x768",
    "linear_grad_weight 8192x768 8192x3072 -> 3072x768 3072",
    "layer_norm 8192x768 768 768",
    "layer_norm_grad 8192x768 8192x768 768 8192x2 -> 8192x768 768 768",
    "gelu_tanh 8192x3072",
    "gelu_tanh_grad 8192x3072 8192x3072 -> 8192x3072",
    "attention 64x256x1152 heads 6 causal",
    "attention_grad 64x256x384 64x256x1152 64x256x384 64x256x6 -> 64x256x1152 heads 6 causal",
    "attention 8x1024x2304 heads 12 causal",
    "attention_grad 8x1024x768 8x1024x2304 8x1024x768 8x1024x12 -> 8x1024x2304 heads 12 causal",
    "attention_step 8x1x2304 8x1024x1536 8 heads 12",
    "token_cross_entropy 1024x50257 1024",
    "token_cross_entropy_grad 1024x50257 1024x1 1024 -> 1024x50257",
    "embedding 8x1024 50257x768",
    "embedding_grad 8x1024x768 8x1024 -> 50257x768",
    "add_positions 8x1024x768 1024x768",
    "positions_grad 8x1024x768 -> 1024x768 extent 1024x0",
};

static double bytes_of(const struct kernel_problem *p)
{
    double bytes = 0;

    for (int i = 0; i < p->n_in; i++)
        bytes += (double)shape_count(&p->in[i].shape) * (double)dtype_size(p->in[i].dtype);
    for (int i = 0; i < p->n_out; i++)
        bytes += (double)shape_count(&p->out[i].shape) * (double)dtype_size(p->out[i].dtype);
    return bytes;
}

static double count_of(const struct kernel_tensor *tensor)
{
    return (double)shape_count(&tensor->shape);
}

/* Operations of products, 0 for what memory bounds. */
static double flops_of(const struct kernel_problem *p)
{
    const char *op = p->op;

    if (strncmp(op, "linear", 6) == 0) /* each of the three shapes lacks one of m, n, k */
        return 2 * (double)p->in[0].shape.dim[0] * (double)p->in[0].shape.dim[1] *
               (strcmp(op, "linear_grad_weight") == 0 ? (double)p->in[1].shape.dim[1]
                                                      : (double)p->out[0].shape.dim[1]);
    if (strncmp(op, "conv2d", 6) == 0 || strncmp(op, "conv1d", 6) == 0) {
        /* The filter, once at each place of the convolution's output, before any pool. */
        const bool weight = strstr(op, "grad_weight") != NULL;
        const bool input = strstr(op, "grad_input") != NULL;
        const bool transposed = strncmp(op, "conv2d_transpose", 16) == 0;
        const bool pooled = strncmp(op, "conv2d_pool", 11) == 0;
        const struct kernel_tensor *w = weight            ? &p->out[0]
                                        : input && pooled ? &p->in[2]
                                        : input && strncmp(op, "conv1d_max", 10) == 0
                                            ? &p->in[2]
                                            : &p->in[1];
        const struct kernel_tensor *y = transposed ? &p->in[0]
                                        : weight   ? &p->in[1]
                                        : input    ? &p->in[0]
                                                   : &p->out[0];
        const double window =
            pooled ? (double)p->attrs.window[0] * (double)p->attrs.window[1] : 1;
        if (strncmp(op, "conv1d_max", 10) == 0)
            return 0;
        return 2 * count_of(w) * window * count_of(y) / (double)y->shape.dim[1];
    }
    if (strncmp(op, "attention", 9) == 0 && strcmp(op, "attention_step") != 0) {
        const bool grad = strcmp(op, "attention_grad") == 0;
        const struct shape *qkv = &p->in[grad ? 1 : 0].shape;
        const double all = 4 * (double)qkv->dim[0] * (double)qkv->dim[1] * (double)qkv->dim[1] *
                           (double)qkv->dim[2] / 3;
        return (grad ? 2.5 : 1) * all / (p->attrs.causal ? 2 : 1);
    }
    return 0;
}

static enum status time_kernel(const struct device_place *place, const struct kernel *kernel,
                               const struct kernel_problem *problem,
                               const struct kernel_problem *there, double *out_seconds)
{
    struct kernel_trial *trial;

    if (!kernel)
        return FAIL(STATUS_UNSUPPORTED, "no kernel");
    TRY(kernel_trial_create(kernel_find(problem->op, "reference"), problem, KERNEL_FILL_NORMAL,
                            1, &trial));
    const enum status status =
        device_measure(place, kernel, there, kernel_trial_call(trial), out_seconds);
    kernel_trial_destroy(trial);
    return status;
}

/* Bytes a second of a large copy within the device, both ways counted. */
static enum status copy_rate(const struct device_place *place, double *out)
{
    const size_t bytes = (size_t)1 << 30;
    const struct device_face *f = place->face;
    struct device_event *begin, *end;
    void *from, *to;
    double ms;

    TRY(f->memory->create(place->device, bytes, &from));
    TRY(f->memory->create(place->device, bytes, &to));
    TRY(f->stream->event_create(place->device, &begin));
    TRY(f->stream->event_create(place->device, &end));
    TRY(f->memory->fill(place->stream, from, 1, bytes));
    TRY(f->memory->copy(place->stream, to, from, bytes));
    TRY(f->stream->record(place->stream, begin));
    for (int i = 0; i < 10; i++)
        TRY(f->memory->copy(place->stream, to, from, bytes));
    TRY(f->stream->record(place->stream, end));
    TRY(f->stream->wait(place->stream));
    TRY(f->stream->elapsed(begin, end, &ms));
    *out = 20 * (double)bytes / (ms * 1e-3);
    f->stream->event_destroy(begin);
    f->stream->event_destroy(end);
    f->memory->destroy(place->device, from);
    f->memory->destroy(place->device, to);
    return STATUS_OK;
}

/* One column of numbers: of f32, or of mixed precision. */
static enum status report_one(const struct device_place *place,
                              const struct kernel_problem *problem,
                              const struct kernel_problem *there, double copy)
{
    double seconds;

    TRY(time_kernel(place, device_kernel(place->face, there), problem, there, &seconds));
    const double rate = bytes_of(there) / seconds, flops = flops_of(there);
    printf("%9.1f us %5.0f GB/s %3.0f%%", seconds * 1e6, rate / 1e9, 100 * rate / copy);
    if (flops > 0)
        printf(" %6.1f TF/s", flops / seconds * 1e-12);
    else
        printf(" %11s", "");
    return STATUS_OK;
}

/* Every kernel that can run it. */
static void report_rows(const struct device_place *place, const struct kernel_problem *problem,
                        const struct kernel_problem *there)
{
    const struct kernel *row;
    double seconds;

    for (size_t i = 0; (row = place->face->kernel_at(i)) != NULL; i++) {
        if (strcmp(row->op, there->op) != 0 || (row->can_run && !row->can_run(there)))
            continue;
        if (time_kernel(place, row, problem, there, &seconds) == STATUS_OK)
            printf("%9.1f us  %s\n", seconds * 1e6, row->name);
        else
            printf("  %s: %s\n", row->name, status_message());
    }
}

static enum status report(const struct device_place *place, const char *line, double copy,
                          bool rows)
{
    struct kernel_problem problem, there;

    TRY(kernel_parse(line, &problem));
    if (strcmp(problem.op, "dropout") == 0)
        problem.attrs.rate = 0.5F;
    there = problem;
    kernel_as_bf16(&there);
    TRY(report_one(place, &problem, &problem, copy));
    printf(" |");
    TRY(report_one(place, &problem, &there, copy));
    printf("  %s\n", line);
    if (rows)
        report_rows(place, &problem, &there);
    return STATUS_OK;
}

static enum status report_all(const struct device_place *place, bool rows, int n_words,
                              char **words)
{
    double copy;

    TRY(copy_rate(place, &copy));
    printf("copy: %.0f GB/s\n", copy / 1e9);
    for (size_t i = 0; i < sizeof problems / sizeof problems[0]; i++) {
        bool wanted = n_words == 0;
        for (int w = 0; w < n_words; w++)
            wanted = wanted || strstr(problems[i], words[w]);
        if (problems[i][0] == '#')
            printf("%s\n", problems[i]);
        else if (wanted && report(place, problems[i], copy, rows) != STATUS_OK)
            printf("  %s: %s\n", problems[i], status_message());
        (void)fflush(stdout);
    }
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    const bool named = argc > 2 && strcmp(argv[1], "--device") == 0;
    const int flag = named ? 3 : 1;
    const bool rows = argc > flag && strcmp(argv[flag], "--rows") == 0;
    const int first = flag + rows;
    struct device_place place;
    struct device_info info;

    if (device_place_open(named ? argv[2] : "cuda", &place) != STATUS_OK ||
        place.face->describe(0, &info) != STATUS_OK) {
        fprintf(stderr, "device_lab: %s\n", status_message());
        return 1;
    }
    printf("%s, %s\n", info.name, info.driver);
    const enum status status = report_all(&place, rows, argc - first, argv + first);
    if (status != STATUS_OK)
        fprintf(stderr, "device_lab: %s\n", status_message());
    device_place_close(&place);
    return status == STATUS_OK ? 0 : 1;
}
