/* SPDX-License-Identifier: MIT */
/* fills.cu - memory that is filled in a captured step.
 *
 * A step's graph is a chain of kernels, each of which is under way before the last one has ended. Filling memory, as libraries do
 * with a few words before some of their kernels, interrupts that for longer than it takes; so in a graph that is ready a
 * kernel stands in its place.
 */
#include "kernel/cuda/device.cuh"

#include "base/mem.h"

enum { MOST_BLOCKS = 256, MOST_EDGES = 16 };
enum { MOST_BYTES = 1 << 20 }; /* what is longer is left as it is */

#if CUDART_VERSION >= 13000
#define EDGE_DATA NULL,
#else
#define EDGE_DATA
#endif

/* A fill as words. */
struct fill {
    uint32_t *to;
    uint32_t word;
    unsigned count;
};

__global__ void fill_words(struct fill fill)
{
    for (unsigned i = (unsigned)thread_number(); i < fill.count; i += THREADS * gridDim.x)
        fill.to[i] = fill.word;
}

/* False: it is not one of words, or too long. */
static bool read_fill(const cudaMemsetParams *params, struct fill *out)
{
    const size_t bytes = params->width * params->elementSize;
    const uint32_t value = params->value;

    if (params->height != 1 || bytes == 0 || bytes > MOST_BYTES ||
        (bytes | (uintptr_t)params->dst) % sizeof(uint32_t) != 0)
        return false;
    out->to = (uint32_t *)params->dst;
    out->count = (unsigned)(bytes / sizeof(uint32_t));
    out->word = params->elementSize == 1   ? (value & 0xff) * 0x1010101U
                : params->elementSize == 2 ? (value & 0xffff) * 0x10001U
                                           : value;
    return true;
}

static cudaError_t replace(cudaGraph_t graph, cudaGraphNode_t node, struct fill fill,
                           int priority)
{
    cudaGraphNode_t before[MOST_EDGES], after[MOST_EDGES], made;
    size_t n_before = MOST_EDGES, n_after = MOST_EDGES;
    void *arguments[] = { &fill };
    const unsigned blocks = blocks_of(fill.count, THREADS);
    cudaKernelNodeParams kernel = {};
    cudaLaunchAttributeValue attribute = {};

    kernel.func = (void *)fill_words;
    kernel.gridDim = dim3(blocks < MOST_BLOCKS ? blocks : MOST_BLOCKS);
    kernel.blockDim = dim3(THREADS);
    kernel.kernelParams = arguments;
    attribute.priority = priority;
    cudaError_t error = cudaGraphNodeGetDependencies(node, before, EDGE_DATA & n_before);
    if (error == cudaSuccess)
        error = cudaGraphNodeGetDependentNodes(node, after, EDGE_DATA & n_after);
    if (n_before == MOST_EDGES || n_after == MOST_EDGES)
        return error; /* there may be more */
    if (error == cudaSuccess)
        error = cudaGraphAddKernelNode(&made, graph, before, n_before, &kernel);
    if (error == cudaSuccess)
        error = cudaGraphKernelNodeSetAttribute(made, cudaLaunchAttributePriority, &attribute);
    for (size_t i = 0; i < n_after && error == cudaSuccess; i++)
        error = cudaGraphAddDependencies(graph, &made, &after[i], EDGE_DATA 1);
    return error == cudaSuccess ? cudaGraphDestroyNode(node) : error;
}

static cudaError_t replace_all(cudaGraph_t graph, const cudaGraphNode_t *nodes, size_t count)
{
    int last, first; /* priorities */
    cudaError_t error = cudaDeviceGetStreamPriorityRange(&last, &first);

    for (size_t i = 0; i < count && error == cudaSuccess; i++) {
        cudaMemsetParams params = {};
        cudaGraphNodeType type;
        struct fill fill;

        error = cudaGraphNodeGetType(nodes[i], &type);
        if (error != cudaSuccess || type != cudaGraphNodeTypeMemset)
            continue;
        error = cudaGraphMemsetNodeGetParams(nodes[i], &params);
        if (error == cudaSuccess && read_fill(&params, &fill))
            error = replace(graph, nodes[i], fill, first);
    }
    return error;
}

enum status cuda_replace_fills(cudaGraph_t graph)
{
    cudaGraphNode_t *nodes;
    size_t count = 0;

    TRY_CUDA(cudaGraphGetNodes(graph, NULL, &count));
    TRY(mem_alloc(count + 1, sizeof *nodes, &nodes));
    cudaError_t error = cudaGraphGetNodes(graph, nodes, &count);
    if (error == cudaSuccess)
        error = replace_all(graph, nodes, count);
    mem_free(nodes);
    TRY_CUDA(error);
    return STATUS_OK;
}
