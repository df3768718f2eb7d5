/* SPDX-License-Identifier: MIT */
/* runtime.cc - as much of the CUDA runtime as the plug-in asks for.
 *
 * What is put on a stream is done at once or some time later, as is drawn, or noted in a graph. Work that has to wait for an event, or for
 * a word of memory, holds up its stream and nobody else. Whoever calls does the work; a thread does what is left while nobody calls.
 */
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cuda.h>
#include <deque>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

#include "enqueue.h"
#include "map.h"

enum { UNWRITTEN = 0xFF }; /* NaN: whoever reads what nobody wrote shows it */
enum { DRIVER = 13000, MOST_BLOCK = 1024, MOST_YZ = 65535, ALIGNED = 256 };
static const size_t MEMORY = (size_t)8 << 30;

/* Something to do; false if it has to wait. */
typedef std::function<bool()> work;

struct CUgraph_st {
    std::vector<work> noted;
};
struct CUgraphExec_st {
    std::vector<work> noted;
};
struct CUstream_st {
    struct CUgraph_st *noting; /* NULL: it is not captured */
    std::deque<work> to_do;
};
struct happened {
    bool is;
    double ms;
};
struct CUevent_st {
    struct CUgraph_st *noting;
    std::shared_ptr<struct happened> last; /* of its last record; NULL: there was none */
};

static std::mutex lock;
static std::map<const void *, size_t> allowed;    /* shared memory of kernels */
static std::vector<struct CUstream_st *> streams; /* of all threads */
static thread_local cudaError_t last_error;

static cudaError_t fails(cudaError_t error)
{
    last_error = error;
    return error;
}

/* Streams' work, as far as it goes. The lock is held. */
static void go_on(struct CUstream_st *stream)
{
    while (!stream->to_do.empty() && stream->to_do.front()())
        stream->to_do.pop_front();
}

/* By TUTTI_CUDA_SEED, as a launch is. The lock is held. */
static uint64_t draw()
{
    static uint64_t state =
        getenv("TUTTI_CUDA_SEED") ? strtoull(getenv("TUTTI_CUDA_SEED"), NULL, 10) : 1;

    state = state * 6364136223846793005U + 1442695040888963407U;
    return state >> 33;
}

static void go_on_all()
{
    const size_t first = streams.empty() ? 0 : draw() % streams.size();

    for (size_t i = 0; i < streams.size(); i++)
        go_on(streams[(first + i) % streams.size()]);
}

/* Other processes may be what is waited for. */
static void until(const std::function<bool()> &is_done)
{
    std::unique_lock<std::mutex> guard(lock);

    for (go_on_all(); !is_done(); go_on_all()) {
        guard.unlock();
        (void)usleep(20);
        guard.lock();
    }
}

/* Streams go on by themselves, too. */
struct driver {
    std::atomic<bool> ends{ false };
    std::thread thread;
    driver() : thread([this] { drive(); })
    {
    }
    ~driver()
    {
        ends = true;
        thread.join();
    }
    void drive()
    {
        while (!ends) {
            {
                const std::lock_guard<std::mutex> guard(lock);
                go_on_all();
            }
            (void)usleep(500);
        }
    }
};

static void put(cudaStream_t stream, const work &item)
{
    const std::lock_guard<std::mutex> guard(lock);

    if (stream->noting) {
        stream->noting->noted.push_back(item);
        return;
    }
    stream->to_do.push_back(item);
    if (draw() % 2) /* now, or later */
        go_on(stream);
}

void enqueue(cudaStream_t stream, const std::function<void()> &item)
{
    put(stream, [item] {
        item();
        return true;
    });
}

/* Kernels -------------------------------------------------------------------------------------- */

void machine_enqueue(cudaStream_t stream, const struct machine_launch &launch)
{
    enqueue(stream, [launch] { machine_run(launch); });
}

bool machine_may_launch(const void *kernel, dim3 grid, dim3 block, size_t shared)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = allowed.find(kernel);
    const size_t most = found == allowed.end() ? (size_t)SHARED_FREE : found->second;
    const uint64_t threads = (uint64_t)block.x * block.y * block.z;

    if (threads == 0 || threads > MOST_BLOCK || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.y > MOST_YZ || grid.z > MOST_YZ || shared > most) {
        (void)fails(cudaErrorInvalidConfiguration);
        return false;
    }
    return true;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute,
                                 int value)
{
    const std::lock_guard<std::mutex> guard(lock);

    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        value > SHARED_BYTES)
        return fails(cudaErrorInvalidValue);
    allowed[kernel] = std::max((size_t)value, (size_t)SHARED_FREE);
    return cudaSuccess;
}

/* Devices -------------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");

    *count = !visible || atoi(visible) >= 0;
    if (*count == 0)
        return fails(cudaErrorNoDevice);
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *version)
{
    *version = DRIVER;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int)
{
    memset(p, 0, sizeof *p);
    (void)snprintf(p->name, sizeof p->name, "a CPU that runs CUDA");
    p->major = 9;
    p->minor = 0;
    p->multiProcessorCount = 2;
    p->sharedMemPerBlockOptin = SHARED_BYTES;
    p->totalGlobalMem = MEMORY;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *all)
{
    *free_bytes = *all = MEMORY;
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;

    last_error = cudaSuccess;
    return error;
}
const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess                     ? "no error"
           : error == cudaErrorMemoryAllocation     ? "out of memory"
           : error == cudaErrorInvalidConfiguration ? "invalid configuration argument"
           : error == cudaErrorNotSupported         ? "operation not supported"
                                                    : "invalid argument";
}

/* Memory --------------------------------------------------------------------------------------- */

/* Memory is of files without a name, which other processes open by the number that they have here. */
struct block {
    int file;
    size_t bytes;
};
struct handle {
    int64_t process;
    int32_t file;
    uint64_t bytes;
};
static_assert(sizeof(struct handle) <= sizeof(cudaIpcMemHandle_t), "there is room");

static std::map<void *, struct block> blocks;

static void *map_file(int file, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

static cudaError_t share_block(void **out, size_t bytes)
{
    const std::lock_guard<std::mutex> guard(lock);
    const int file = memfd_create("cuda", MFD_CLOEXEC);
    void *memory =
        file >= 0 && ftruncate(file, (off_t)bytes) == 0 ? map_file(file, bytes) : NULL;

    if (!memory && file >= 0)
        (void)close(file);
    if (!memory)
        return fails(cudaErrorMemoryAllocation);
    memset(memory, UNWRITTEN, bytes);
    blocks[memory] = { file, bytes };
    *out = memory;
    return cudaSuccess;
}

/* Small blocks are the heap's: nobody shares these. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    enum { SHARED = 2 << 20 };

    *out = NULL;
    if (bytes > MEMORY)
        return fails(cudaErrorMemoryAllocation);
    if (bytes >= SHARED)
        return share_block(out, bytes);
    *out = aligned_alloc(ALIGNED, (bytes + ALIGNED) / ALIGNED * ALIGNED);
    if (!*out)
        return fails(cudaErrorMemoryAllocation);
    memset(*out, UNWRITTEN, bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = blocks.find(memory);

    go_on_all(); /* what may still use it */
    if (found == blocks.end()) {
        free(memory);
        return cudaSuccess;
    }
    (void)munmap(memory, found->second.bytes);
    if (found->second.file >= 0)
        (void)close(found->second.file);
    blocks.erase(found);
    return cudaSuccess;
}
cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}
cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}
cudaError_t cudaHostRegister(void *, size_t, unsigned int)
{
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *)
{
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind,
                            cudaStream_t stream)
{
    enqueue(stream, [=] { memmove(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_apart, const void *from, size_t from_apart,
                              size_t width, size_t rows, enum cudaMemcpyKind,
                              cudaStream_t stream)
{
    enqueue(stream, [=] {
        for (size_t i = 0; i < rows; i++)
            memmove((char *)to + i * to_apart, (const char *)from + i * from_apart, width);
    });
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    enqueue(stream, [=] { memset(to, byte, bytes); });
    return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *memory)
{
    const std::lock_guard<std::mutex> guard(lock);
    const auto found = blocks.find(memory);

    if (found == blocks.end())
        return fails(cudaErrorNotSupported);
    const struct handle handle = { getpid(), found->second.file, found->second.bytes };
    memset(out, 0, sizeof *out);
    memcpy(out, &handle, sizeof handle);
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t of, unsigned)
{
    const std::lock_guard<std::mutex> guard(lock);
    struct handle handle;
    char path[64];

    memcpy(&handle, &of, sizeof handle);
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%d", (long long)handle.process,
                   handle.file);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    void *memory = file >= 0 ? map_file(file, handle.bytes) : NULL;
    if (file >= 0)
        (void)close(file);
    if (!memory)
        return fails(cudaErrorNotSupported);
    blocks[memory] = { -1, handle.bytes };
    *out = memory;
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    return cudaFree(memory);
}

/* Streams, events, graphs ------------------------------------------------------------------------ */

cudaError_t cudaDeviceGetStreamPriorityRange(int *last, int *first)
{
    *last = 0;
    *first = -1;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int)
{
    static struct driver driver; /* gone before all that was there before it */
    const std::lock_guard<std::mutex> guard(lock);

    *out = new CUstream_st();
    streams.push_back(*out);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    until([stream] { return stream->to_do.empty(); });
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)cudaStreamSynchronize(stream);
    const std::lock_guard<std::mutex> guard(lock);

    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = new CUevent_st();
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const std::shared_ptr<struct happened> now(new struct happened());

    event->noting = stream->noting;
    if (stream->noting)
        return cudaSuccess;
    event->last = now;
    enqueue(stream, [now] {
        struct timespec time;
        (void)clock_gettime(CLOCK_MONOTONIC, &time);
        now->ms = (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
        now->is = true;
    });
    return cudaSuccess;
}
/* A stream that waits for one that is captured is captured, too. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    const std::shared_ptr<struct happened> last = event->last;

    if (event->noting)
        stream->noting = event->noting;
    else if (last)
        put(stream, [last] { return last->is; });
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const std::shared_ptr<struct happened> last = event->last;

    if (last)
        until([last] { return last->is; });
    return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = (float)(end->last->ms - begin->last->ms);
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode)
{
    stream->noting = new CUgraph_st();
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    const std::lock_guard<std::mutex> guard(lock);
    struct CUgraph_st *graph = stream->noting;

    for (struct CUstream_st *other : streams) {
        if (other->noting == graph)
            other->noting = NULL;
    }
    *out = graph;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long)
{
    *out = new CUgraphExec_st{ graph->noted };
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    for (const work &item : graph->noted)
        put(stream, item);
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    delete graph;
    return cudaSuccess;
}

/* The driver ------------------------------------------------------------------------------------- */

static CUresult encode(CUtensorMap *out, CUtensorMapDataType type, cuuint32_t rank,
                       void *tensor, const cuuint64_t *extents, const cuuint64_t *apart,
                       const cuuint32_t *box, const cuuint32_t *steps, CUtensorMapInterleave,
                       CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                       CUtensorMapFloatOOBfill)
{
    struct tensor_map m = {};

    if (type != CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 || swizzle != CU_TENSOR_MAP_SWIZZLE_128B ||
        rank < 1 || rank > MAP_RANK || (uintptr_t)tensor % 16 || box[0] * 2 > 128)
        return CUDA_ERROR_INVALID_VALUE;
    m.tensor = tensor;
    m.rank = (uint16_t)rank;
    m.magic = MAP_MAGIC;
    for (cuuint32_t i = 0; i < rank; i++) {
        if (extents[i] == 0 || extents[i] > UINT32_MAX || box[i] == 0 || box[i] > 256 ||
            steps[i] != 1 || (i > 0 && apart[i - 1] % 16))
            return CUDA_ERROR_INVALID_VALUE;
        m.extent[i] = (uint32_t)extents[i];
        m.box[i] = (uint16_t)box[i];
        m.apart[i] = i > 0 ? apart[i - 1] : 2;
    }
    memcpy(out, &m, sizeof m);
    return CUDA_SUCCESS;
}

static CUresult batch(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops, unsigned)
{
    for (unsigned i = 0; i < count; i++) {
        const CUstreamBatchMemOpParams op = ops[i];

        if (op.operation == CU_STREAM_MEM_OP_WAIT_VALUE_32)
            put(stream, [op] {
                return __atomic_load_n((uint32_t *)op.waitValue.address, __ATOMIC_ACQUIRE) ==
                       op.waitValue.value;
            });
        else
            enqueue(stream, [op] {
                __atomic_store_n((uint32_t *)op.writeValue.address, op.writeValue.value,
                                 __ATOMIC_RELEASE);
            });
    }
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **out, unsigned,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    *out = strcmp(name, "cuTensorMapEncodeTiled") == 0 ? (void *)encode
           : strcmp(name, "cuStreamBatchMemOp") == 0   ? (void *)batch
                                                       : NULL;
    *result = *out ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
