/* SPDX-License-Identifier: MIT */
/* cudnn_graph.c - descriptors, the choice of a plan, and its run: see cudnn_graph.h. */
#include "kernel/cuda/cudnn_graph.h"

#include <pthread.h>

/* cuDNN 9.8 and older need the handle in descriptors; newer ones call that deprecated. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

enum { ALIGN = 16 };
static const int64_t WORKSPACE_MAX = (int64_t)512 << 20;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cudnnHandle_t the_handle; /* guarded by lock */

#define TRY_DNN(call)                                                                          \
    do {                                                                                       \
        const cudnnStatus_t try_dnn_ = (call);                                                 \
        if (try_dnn_ != CUDNN_STATUS_SUCCESS)                                                  \
            return FAIL(STATUS_UNSUPPORTED, "cudnn: %s: %s", cudnnGetErrorString(try_dnn_),    \
                        #call);                                                                \
    } while (0)

void dnn_lock(void)
{
    pthread_mutex_lock(&lock);
}

void dnn_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

bool dnn_is_there(void)
{
    return the_handle != NULL || cudnnCreate(&the_handle) == CUDNN_STATUS_SUCCESS;
}

/* Descriptors -------------------------------------------------------------------------- */

enum status dnn_make(struct dnn_pile *pile, cudnnBackendDescriptorType_t type,
                     cudnnBackendDescriptor_t *out)
{
    BUG_ON(pile->count == DNN_PILE);
    TRY_DNN(cudnnBackendCreateDescriptor(type, out));
    pile->item[pile->count++] = *out;
    return STATUS_OK;
}

void dnn_drop(struct dnn_pile *pile)
{
    while (pile->count > 0)
        (void)cudnnBackendDestroyDescriptor(pile->item[--pile->count]);
}

enum status dnn_set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                    cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
    TRY_DNN(cudnnBackendSetAttribute(descriptor, name, type, count, value));
    return STATUS_OK;
}

enum status dnn_finish(cudnnBackendDescriptor_t descriptor)
{
    TRY_DNN(cudnnBackendFinalize(descriptor));
    return STATUS_OK;
}

enum status dnn_make_tensor(struct dnn_pile *pile, const struct dnn_tensor *tensor,
                            cudnnBackendDescriptor_t *out)
{
    const int64_t align = tensor->is_by_value ? (int64_t)sizeof(float) : ALIGN;

    TRY(dnn_make(pile, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &tensor->type));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, tensor->dim));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, tensor->stride));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &tensor->id));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                &tensor->is_virtual));
    TRY(dnn_set(*out, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                &tensor->is_by_value));
    return dnn_finish(*out);
}

enum status dnn_make_pointwise(struct dnn_pile *pile, cudnnPointwiseMode_t mode,
                               cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
                               cudnnBackendDescriptor_t y, cudnnBackendDescriptor_t *out)
{
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what;

    TRY(dnn_make(pile, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &what));
    TRY(dnn_set(what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    TRY(dnn_set(what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TRY(dnn_finish(what));
    TRY(dnn_make(pile, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, part, 1, &what));
    TRY(dnn_set(*out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, part, 1, &x));
    if (b != NULL)
        TRY(dnn_set(*out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, part, 1, &b));
    TRY(dnn_set(*out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, part, 1, &y));
    return dnn_finish(*out);
}

enum status dnn_make_graph(struct dnn_pile *pile, cudnnBackendDescriptor_t *ops, int count,
                           cudnnBackendDescriptor_t *out)
{
    TRY(dnn_make(pile, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &the_handle));
    TRY(dnn_set(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count,
                ops));
    return dnn_finish(*out);
}

/* Plans -------------------------------------------------------------------------------- */

/* Is an engine's code part of cuDNN? */
static bool is_compiled(cudnnBackendDescriptor_t engine)
{
    cudnnBackendBehaviorNote_t notes[CUDNN_BEHAVIOR_NOTE_TYPE_COUNT];
    int64_t count = 0;

    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                 CUDNN_TYPE_BEHAVIOR_NOTE, CUDNN_BEHAVIOR_NOTE_TYPE_COUNT,
                                 &count, notes) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (notes[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION)
            return false;
    }
    return true;
}

bool dnn_is_wanted(cudnnBackendDescriptor_t config, bool compiles, bool by_tensor_cores)
{
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine;
    int64_t count = 0;
    bool wanted = false, has_tensor_cores = false;

    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                 &engine) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT,
                                 &count, notes) == CUDNN_STATUS_SUCCESS) {
        wanted = compiles || is_compiled(engine);
        for (int64_t i = 0; i < count; i++) {
            wanted = wanted && (notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE ||
                                notes[i] == CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP);
            has_tensor_cores |= notes[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
        }
        wanted = wanted && (has_tensor_cores || !by_tensor_cores);
    }
    (void)cudnnBackendDestroyDescriptor(engine);
    return wanted;
}

bool dnn_take(cudnnBackendDescriptor_t config, struct dnn_plan *plan)
{
    cudnnBackendDescriptor_t made;
    int64_t count = 0;

    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &made) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnnBackendSetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &the_handle) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(made) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count,
                                 &plan->workspace) == CUDNN_STATUS_SUCCESS &&
        plan->workspace <= WORKSPACE_MAX) {
        plan->cudnn = made;
        return true;
    }
    (void)cudnnBackendDestroyDescriptor(made);
    return false;
}

enum status dnn_make_config(struct dnn_pile *pile, cudnnBackendDescriptor_t graph,
                            const struct dnn_choice *choice, cudnnBackendDescriptor_t *out)
{
    const cudnnBackendAttributeType_t part = CUDNN_TYPE_BACKEND_DESCRIPTOR;
    cudnnBackendDescriptor_t engine, knobs[DNN_KNOBS];

    TRY(dnn_make(pile, CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine));
    TRY(dnn_set(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, part, 1, &graph));
    TRY(dnn_set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &choice->engine));
    TRY(dnn_finish(engine));
    for (int i = 0; i < choice->count; i++) {
        const cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)choice->knob[i].type;
        TRY(dnn_make(pile, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &knobs[i]));
        TRY(dnn_set(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                    &type));
        TRY(dnn_set(knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                    &choice->knob[i].value));
        TRY(dnn_finish(knobs[i]));
    }
    TRY(dnn_make(pile, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, out));
    TRY(dnn_set(*out, CUDNN_ATTR_ENGINECFG_ENGINE, part, 1, &engine));
    if (choice->count > 0)
        TRY(dnn_set(*out, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, part, choice->count, knobs));
    return dnn_finish(*out);
}

enum status dnn_choose(struct dnn_pile *pile, cudnnBackendDescriptor_t graph, bool compiles,
                       struct dnn_plan *out)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t heuristics, configs[DNN_PROPOSALS];
    int64_t count = 0;

    TRY(dnn_make(pile, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristics));
    TRY(dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph));
    TRY(dnn_set(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode));
    TRY(dnn_finish(heuristics));
    for (int i = 0; i < DNN_PROPOSALS; i++)
        TRY(dnn_make(pile, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[i]));
    TRY_DNN(cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, DNN_PROPOSALS, &count,
                                     configs));
    /* What is proposed first for some windows of one pixel works without tensor cores, through copies in another layout. */
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < count && i < DNN_PROPOSALS; i++) {
            if (dnn_is_wanted(configs[i], compiles, round == 0) && dnn_take(configs[i], out))
                return STATUS_OK;
        }
    }
    return STATUS_OK;
}

/* The handle has one stream at a time. */
void dnn_run(struct device_stream *stream, const struct dnn_plan *plan,
             const struct dnn_data *data, void *workspace)
{
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);

    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                          CUDNN_TYPE_INT64, data->count, data->id);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                          CUDNN_TYPE_VOID_PTR, data->count, data->at);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                          CUDNN_TYPE_VOID_PTR, 1, &workspace);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendFinalize(pack);
    dnn_lock();
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnSetStream(the_handle, stream->cuda);
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnnBackendExecute(the_handle, plan->cudnn, pack);
    dnn_unlock();
    if (status != CUDNN_STATUS_SUCCESS)
        stream_note(stream, "cudnn", cudnnGetErrorString(status));
    if (pack != NULL)
        (void)cudnnBackendDestroyDescriptor(pack);
}
