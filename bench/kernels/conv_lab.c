/* SPDX-License-Identifier: MIT */
/* conv_lab.c - what cuDNN has for the convolutions of the models, and how fast each way is.
 *
 *     conv_lab [--batch N] [--dtype bf16|f16] [part of a problem's line ...]
 *
 * For each problem all engine configurations that add plainly and in a fixed order are timed: those that heuristics propose, every engine
 * as it comes, and each knob of the engines that were proposed turned on its own. Runs go round several sets of images, so that the cache
 * is as cold as in a step. Printed are what the plug-in takes without its table, what it takes by that, and the best, each as engine and knobs (type:value), as
 * a row of kernel/cuda/cudnn_table.c has them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "kernel/cuda/cudnn_conv.h"
#include "kernel/precision.h"

/* Descriptors' handles are deprecated in some versions and needed in others. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { SETS = 3, RUNS = 30, MOST = 512, ASKED = 48, VALUES_MAX = 64, BEST = 6 };

static const size_t FILTER_BYTES = (size_t)512 * 512 * 9 * sizeof(float);

struct layer {
    const char *model;
    enum conv_kind kind;
    int64_t c, size, o, k, stride; /* size: of x */
    bool with_bias;                /* and relu */
};

#define ALL(model, c, size, o, k, stride, bias)                                                \
    { model, KIND_FORWARD, c, size, o, k, stride, bias },                                      \
        { model, KIND_INPUT, c, size, o, k, stride, false },                                   \
    {                                                                                          \
        model, KIND_WEIGHT, c, size, o, k, stride, false                                       \
    }

static const struct layer layers[] = {
    ALL("resnet18", 64, 32, 64, 3, 1, false),
    ALL("resnet18", 64, 32, 128, 3, 2, false),
    ALL("resnet18", 128, 16, 128, 3, 1, false),
    ALL("resnet18", 128, 16, 256, 3, 2, false),
    ALL("resnet18", 256, 8, 256, 3, 1, false),
    ALL("resnet18", 256, 8, 512, 3, 2, false),
    ALL("resnet18", 512, 4, 512, 3, 1, false),
    ALL("resnet18", 64, 32, 128, 1, 2, false),
    ALL("resnet18", 128, 16, 256, 1, 2, false),
    ALL("resnet18", 256, 8, 512, 1, 2, false),
    ALL("vgg11", 64, 16, 128, 3, 1, true),
    ALL("vgg11", 128, 8, 256, 3, 1, true),
    { "vgg11", KIND_FORWARD, 256, 8, 256, 3, 1, true },
    ALL("vgg11", 256, 4, 512, 3, 1, true),
    { "vgg11", KIND_FORWARD, 512, 4, 512, 3, 1, true },
    ALL("vgg11", 512, 2, 512, 3, 1, true),
};

/* What cudnn_graph.c and cudnn_table.c want of a plug-in. */
int cuda_capability;

void stream_note(struct device_stream *stream, const char *what, const char *reason)
{
    stream->status = STATUS_IO;
    (void)snprintf(stream->text, sizeof stream->text, "%s: %s", what, reason);
}

enum status cuda_failed(cudaError_t error, const char *file, int line, const char *call)
{
    return status_fail(STATUS_IO, file, line, "%s: %s", cudaGetErrorString(error), call);
}

struct lab {
    struct device_stream stream;
    cudaEvent_t begin, end;
    void *x[SETS], *y[SETS], *w[SETS], *bias, *workspace;
    void *numbers; /* that all of these begin with */
    int64_t batch;
    enum dtype dtype;
};

/* Of the largest. */
static size_t images_bytes(const struct lab *lab)
{
    const size_t bytes = (size_t)lab->batch * 64 * 32 * 32 * sizeof(uint16_t);

    return bytes > FILTER_BYTES ? bytes : FILTER_BYTES;
}

static struct conv conv_of(const struct lab *lab, const struct layer *l)
{
    const int64_t size = (l->size - 1) / l->stride + 1;

    return (struct conv){ .kind = l->kind,
                          .n = lab->batch,
                          .c = l->c,
                          .h = l->size,
                          .w = l->size,
                          .o = l->o,
                          .kh = l->k,
                          .kw = l->k,
                          .oh = size,
                          .ow = size,
                          .stride = { l->stride, l->stride },
                          .pad = { l->k / 2, l->k / 2 },
                          .dtype = lab->dtype,
                          .into = lab->dtype,
                          .real_c = l->c,
                          .real_o = l->o,
                          .with_bias = l->with_bias,
                          .relu = l->with_bias };
}

/* Choices ------------------------------------------------------------------------------ */

static bool get(cudnnBackendDescriptor_t of, cudnnBackendAttributeName_t name,
                cudnnBackendAttributeType_t type, int64_t most, int64_t *count, void *out)
{
    return cudnnBackendGetAttribute(of, name, type, most, count, out) == CUDNN_STATUS_SUCCESS;
}

/* Several descriptors of one type, to be filled in. */
static enum status make_many(struct dnn_pile *pile, cudnnBackendDescriptorType_t type,
                             int count, cudnnBackendDescriptor_t *out)
{
    for (int i = 0; i < count; i++)
        TRY(dnn_make(pile, type, &out[i]));
    return STATUS_OK;
}

static bool read_choice(cudnnBackendDescriptor_t config, struct dnn_choice *out)
{
    struct dnn_pile pile = { .count = 0 };
    cudnnBackendDescriptor_t engine, knobs[DNN_KNOBS];
    int64_t count = 0, one = 0;
    bool read = false;

    *out = (struct dnn_choice){ .engine = -1 };
    if (dnn_make(&pile, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == STATUS_OK &&
        make_many(&pile, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, DNN_KNOBS, knobs) == STATUS_OK &&
        get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
            &engine) &&
        get(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &one, &out->engine)) {
        read = true;
        if (!get(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                 DNN_KNOBS, &count, knobs))
            count = 0;
        for (int64_t i = 0; i < count && i < DNN_KNOBS; i++) {
            cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
            int64_t value = 0;
            if (get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                    &type) &&
                get(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &one,
                    &value)) {
                out->knob[out->count].type = type;
                out->knob[out->count++].value = value;
            }
        }
    }
    dnn_drop(&pile);
    return read;
}

static bool is_same(const struct dnn_choice *a, const struct dnn_choice *b)
{
    bool same = a->engine == b->engine && a->count == b->count;

    for (int i = 0; same && i < a->count; i++)
        same = a->knob[i].type == b->knob[i].type && a->knob[i].value == b->knob[i].value;
    return same;
}

struct found {
    struct dnn_choice choice;
    bool is_wanted, was_proposed, is_of_table;
    double us; /* 0: does not run */
};

struct list {
    struct found item[MOST];
    int count;
};

/* The item of this choice, put there if it is new; NULL: there is no room. */
static struct found *add(struct list *list, const struct dnn_choice *choice, bool was_proposed)
{
    for (int i = 0; i < list->count; i++) {
        if (is_same(&list->item[i].choice, choice))
            return &list->item[i];
    }
    if (list->count == MOST)
        return NULL;
    list->item[list->count] = (struct found){ .choice = *choice, .was_proposed = was_proposed };
    return &list->item[list->count++];
}

/* What heuristics of a mode propose, in their order. */
static enum status add_proposals(struct list *list, cudnnBackendDescriptor_t graph,
                                 cudnnBackendHeurMode_t mode)
{
    struct dnn_pile pile = { .count = 0 };
    cudnnBackendDescriptor_t heuristics, configs[ASKED];
    int64_t count = 0;

    TRY(dnn_make(&pile, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
    enum status status = dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
    if (status == STATUS_OK)
        status =
            dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (status == STATUS_OK)
        status = dnn_finish(heuristics);
    if (status == STATUS_OK)
        status = make_many(&pile, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, ASKED, configs);
    if (status == STATUS_OK && get(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, ASKED, &count, configs)) {
        for (int64_t i = 0; i < count && i < ASKED; i++) {
            struct dnn_choice choice;
            if (read_choice(configs[i], &choice))
                add(list, &choice, true);
        }
    }
    dnn_drop(&pile);
    return status;
}

/* Each knob of an engine that was proposed, turned on its own. */
static void add_turned(struct list *list, cudnnBackendDescriptor_t graph,
                       const struct dnn_choice *from)
{
    const struct dnn_choice plain = { .engine = from->engine };
    struct dnn_pile pile = { .count = 0 };
    cudnnBackendDescriptor_t config, engine, infos[DNN_KNOBS];
    int64_t count = 0, one;

    if (dnn_make_config(&pile, graph, &plain, &config) == STATUS_OK &&
        dnn_make(&pile, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) == STATUS_OK &&
        make_many(&pile, CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR, DNN_KNOBS, infos) == STATUS_OK &&
        get(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &one,
            &engine) &&
        get(engine, CUDNN_ATTR_ENGINE_KNOB_INFO, CUDNN_TYPE_BACKEND_DESCRIPTOR, DNN_KNOBS,
            &count, infos)) {
        for (int64_t i = 0; i < count && i < DNN_KNOBS; i++) {
            cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
            int64_t least = 0, most = -1, step = 1;
            if (!get(infos[i], CUDNN_ATTR_KNOB_INFO_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &one,
                     &type) ||
                !get(infos[i], CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE, CUDNN_TYPE_INT64, 1, &one,
                     &least) ||
                !get(infos[i], CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE, CUDNN_TYPE_INT64, 1, &one,
                     &most) ||
                !get(infos[i], CUDNN_ATTR_KNOB_INFO_STRIDE, CUDNN_TYPE_INT64, 1, &one, &step))
                continue;
            step = step > 0 ? step : 1;
            for (int64_t v = least; v <= most && (v - least) / step < VALUES_MAX; v += step) {
                struct dnn_choice turned = *from;
                int at = 0;
                while (at < turned.count && turned.knob[at].type != (int64_t)type)
                    at++;
                if (at == DNN_KNOBS)
                    continue;
                turned.knob[at].type = type;
                turned.knob[at].value = v;
                turned.count = at == turned.count ? at + 1 : turned.count;
                add(list, &turned, false);
            }
        }
    }
    dnn_drop(&pile);
}

/* Times -------------------------------------------------------------------------------- */

static enum status run_once(struct lab *lab, const struct dnn_plan *plan, bool with_bias, int i)
{
    const struct dnn_data data = { { ID_X, ID_W, ID_Y, ID_BIAS },
                                   { lab->x[i % SETS], lab->w[i % SETS], lab->y[i % SETS],
                                     lab->bias },
                                   with_bias ? 4 : 3 };

    lab->stream.status = STATUS_OK;
    dnn_run(&lab->stream, plan, &data, lab->workspace);
    return lab->stream.status == STATUS_OK ? STATUS_OK
                                           : FAIL(lab->stream.status, "%s", lab->stream.text);
}

static enum status time_plan(struct lab *lab, const struct dnn_plan *plan, bool with_bias,
                             int runs, double *out_us)
{
    float ms = 0;

    TRY(run_once(lab, plan, with_bias, 0));
    TRY_CUDA(cudaEventRecord(lab->begin, lab->stream.cuda));
    for (int i = 1; i <= runs; i++)
        TRY(run_once(lab, plan, with_bias, i));
    TRY_CUDA(cudaEventRecord(lab->end, lab->stream.cuda));
    TRY_CUDA(cudaEventSynchronize(lab->end));
    TRY_CUDA(cudaEventElapsedTime(&ms, lab->begin, lab->end));
    *out_us = 1e3 * (double)ms / runs;
    return STATUS_OK;
}

/* us stays 0 where a choice is not wanted or does not run. */
static void time_choice(struct lab *lab, cudnnBackendDescriptor_t graph, const struct conv *c,
                        double best, struct found *found)
{
    struct dnn_pile pile = { .count = 0 };
    struct dnn_plan plan = { .cudnn = NULL };
    cudnnBackendDescriptor_t config;
    double us = 0;

    if (dnn_make_config(&pile, graph, &found->choice, &config) == STATUS_OK &&
        dnn_is_wanted(config, false, true) && dnn_take(config, &plan)) {
        found->is_wanted = true;
        if (time_plan(lab, &plan, c->with_bias, 1, &us) == STATUS_OK &&
            (best == 0 || us < 2 * best + 20) &&
            time_plan(lab, &plan, c->with_bias, RUNS, &us) == STATUS_OK)
            found->us = us;
        (void)cudnnBackendDestroyDescriptor(plan.cudnn);
    }
    dnn_drop(&pile);
}

static void print_choice(const struct found *found, double flops)
{
    printf("  %7.1f us %4.0f TF/s  engine %lld", found->us, flops / found->us * 1e-6,
           (long long)found->choice.engine);
    for (int i = 0; i < found->choice.count; i++)
        printf(" %lld:%lld", (long long)found->choice.knob[i].type,
               (long long)found->choice.knob[i].value);
    printf("\n");
}

static void report(struct list *list, const char *line, double flops)
{
    int first = -1, timed = 0, of_table = -1;

    for (int i = list->count - 1; i >= 0; i--) {
        of_table = list->item[i].is_of_table ? i : of_table;
        if (list->item[i].is_wanted && list->item[i].was_proposed)
            first = i;
        timed += list->item[i].us > 0;
    }
    printf("%s: %d choices, %d timed\n", line, list->count, timed);
    if (first >= 0 && list->item[first].us > 0) {
        printf(" as proposed:");
        print_choice(&list->item[first], flops);
    }
    if (of_table >= 0 && list->item[of_table].us > 0) {
        printf(" by the table:");
        print_choice(&list->item[of_table], flops);
    }
    for (int n = 0; n < BEST; n++) {
        struct found *best = NULL;
        for (int i = 0; i < list->count; i++) {
            if (list->item[i].us > 0 && (!best || list->item[i].us < best->us))
                best = &list->item[i];
        }
        if (best) {
            print_choice(best, flops);
            best->us = 0;
        }
    }
    (void)fflush(stdout);
}

/* Random numbers of either sign around 1: what a multiplication costs in power, and so in time, depends on its bits. */
static enum status make_numbers(struct lab *lab, size_t bytes)
{
    static uint16_t some[1 << 16];
    struct rng rng;

    rng_init(&rng, 1, 0);
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        const float number = (rng_float(&rng) + 0.5F) * (rng_below(&rng, 2) ? 1 : -1);
        some[i] = lab->dtype == DTYPE_BF16 ? kernel_to_bf16(number) : kernel_to_f16(number);
    }
    for (size_t at = 0; at < bytes; at += sizeof some) {
        const size_t left = bytes - at;
        TRY_CUDA(cudaMemcpy((char *)lab->numbers + at, some,
                            left < sizeof some ? left : sizeof some, cudaMemcpyHostToDevice));
    }
    return STATUS_OK;
}

static enum status fill(struct lab *lab, size_t images, size_t filter)
{
    for (int i = 0; i < SETS; i++) {
        TRY_CUDA(cudaMemcpy(lab->x[i], lab->numbers, images, cudaMemcpyDeviceToDevice));
        TRY_CUDA(cudaMemcpy(lab->y[i], lab->numbers, images, cudaMemcpyDeviceToDevice));
        TRY_CUDA(cudaMemcpy(lab->w[i], lab->numbers, filter, cudaMemcpyDeviceToDevice));
    }
    return STATUS_OK;
}

static void try_layer(struct lab *lab, const struct layer *layer, const char *line)
{
    static struct list list;
    static const cudnnBackendHeurMode_t modes[] = { CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                    CUDNN_HEUR_MODE_FALLBACK };
    struct dnn_pile pile = { .count = 0 };
    struct conv c = conv_of(lab, layer);
    struct dnn_choice choice;
    cudnnBackendDescriptor_t graph;
    int64_t engines = 0, one = 0;
    double best = 0;

    list.count = 0;
    if (fill(lab, images_bytes(lab), FILTER_BYTES) != STATUS_OK ||
        conv_graph(&pile, &c, &graph) != STATUS_OK) {
        printf("%s: %s\n", line, status_message());
        dnn_drop(&pile);
        return;
    }
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (add_proposals(&list, graph, modes[i]) != STATUS_OK)
            printf("%s: %s\n", line, status_message());
    }
    const int proposed = list.count;
    if (get(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT, CUDNN_TYPE_INT64, 1, &one,
            &engines)) {
        for (int64_t e = 0; e < engines; e++)
            (void)add(&list, &(struct dnn_choice){ .engine = e }, false);
    }
    if (conv_choice(&c, &choice)) {
        struct found *own = add(&list, &choice, false);
        if (own)
            own->is_of_table = true;
    }
    for (int i = 0; i < list.count; i++) {
        time_choice(lab, graph, &c, best, &list.item[i]);
        if (list.item[i].us > 0 && (best == 0 || list.item[i].us < best))
            best = list.item[i].us;
        /* Knobs are turned once proposals are timed, of those that are not far from the best. */
        for (int p = 0; i == proposed - 1 && p < proposed; p++) {
            if (list.item[p].us > 0 && list.item[p].us < 1.15 * best)
                add_turned(&list, graph, &list.item[p].choice);
        }
    }
    report(&list, line, 2.0 * (double)(c.n * c.oh * c.ow * c.o) * (double)(c.c * c.kh * c.kw));
    dnn_drop(&pile);
}

static enum status prepare(struct lab *lab)
{
    const size_t images = images_bytes(lab), filter = FILTER_BYTES;
    struct cudaDeviceProp p;

    TRY_CUDA(cudaGetDeviceProperties(&p, 0));
    cuda_capability = 10 * p.major + p.minor;
    TRY_CUDA(cudaStreamCreate(&lab->stream.cuda));
    TRY_CUDA(cudaEventCreate(&lab->begin));
    TRY_CUDA(cudaEventCreate(&lab->end));
    for (int i = 0; i < SETS; i++) {
        TRY_CUDA(cudaMalloc(&lab->x[i], images));
        TRY_CUDA(cudaMalloc(&lab->y[i], images));
        TRY_CUDA(cudaMalloc(&lab->w[i], filter));
    }
    TRY_CUDA(cudaMalloc(&lab->numbers, images));
    TRY(make_numbers(lab, images));
    TRY_CUDA(cudaMalloc(&lab->bias, 4096));
    TRY_CUDA(cudaMemset(lab->bias, 0, 4096));
    TRY_CUDA(cudaMalloc(&lab->workspace, (size_t)512 << 20));
    return dnn_is_there() ? STATUS_OK : FAIL(STATUS_UNSUPPORTED, "there is no cuDNN");
}

int main(int argc, char **argv)
{
    static const char *const kinds[] = { "forward", "input", "weight" };
    static struct lab lab = { .batch = 512, .dtype = DTYPE_BF16 };
    int first = 1;

    for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
        if (strcmp(argv[first], "--batch") == 0)
            lab.batch = strtoll(argv[first + 1], NULL, 10);
        else if (strcmp(argv[first], "--dtype") == 0 && strcmp(argv[first + 1], "f16") == 0)
            lab.dtype = DTYPE_F16;
        else if (strcmp(argv[first], "--dtype") != 0 || strcmp(argv[first + 1], "bf16") != 0) {
            fprintf(stderr, "conv_lab: %s %s: --batch N or --dtype bf16|f16\n", argv[first],
                    argv[first + 1]);
            return 2;
        }
    }
    if (lab.batch < 1 || prepare(&lab) != STATUS_OK) {
        fprintf(stderr, "conv_lab: %s\n",
                lab.batch < 1 ? "--batch: a number" : status_message());
        return 1;
    }
    printf("cuDNN %zu\n", cudnnGetVersion());
    for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) {
        const struct layer *l = &layers[i];
        char line[128];
        bool wanted = first == argc;
        (void)snprintf(line, sizeof line,
                       "%s %s %lldx%lldx%lld to %lld window %lld stride %lld%s", l->model,
                       kinds[l->kind], (long long)l->c, (long long)l->size, (long long)l->size,
                       (long long)l->o, (long long)l->k, (long long)l->stride,
                       l->with_bias ? " bias relu" : "");
        for (int a = first; a < argc; a++)
            wanted = wanted || strstr(line, argv[a]);
        if (wanted)
            try_layer(&lab, l, line);
    }
    return 0;
}
