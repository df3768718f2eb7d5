/* SPDX-License-Identifier: MIT */
/* plugin.c - the plug-in's side of face.h: devices, memory, streams, events and graphs of CUDA.
 *
 * The CUDA runtime is linked in and itself opens the driver, so that the plug-in opens on machines that
 * have none, and says so.
 */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cuda.h>

#include "base/mem.h"
#include "kernel/cuda/across.h"
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/face.h"

static const struct cuda_host *the_host;

/* What the plug-in's own sources call of base/ ------------------------------------------ */

enum status status_fail(enum status status, const char *file, int line, const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    the_host->fail(status, file, line, text);
    return status;
}

void status_bug(const char *file, int line, const char *condition)
{
    the_host->bug(file, line, condition);
    __builtin_unreachable();
}

enum status mem_alloc(size_t count, size_t size, void *out)
{
    return the_host->mem_alloc(count, size, out);
}

void mem_free(void *block)
{
    the_host->mem_free(block);
}

/* Failures ----------------------------------------------------------------------------- */

enum status cuda_failed(cudaError_t error, const char *file, int line, const char *call)
{
    const enum status status =
        error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_IO;

    (void)cudaGetLastError(); /* what can be forgotten is */
    return status_fail(status, file, line, "cuda: %s: %.*s", cudaGetErrorString(error),
                       (int)strcspn(call, "("), call);
}

void stream_note(struct device_stream *stream, const char *what, const char *reason)
{
    if (stream->status != STATUS_OK)
        return;
    stream->status = STATUS_IO;
    (void)snprintf(stream->text, sizeof stream->text, "cuda: %s: %s", what, reason);
}

void stream_check(struct device_stream *stream, const char *what)
{
    const cudaError_t error = cudaGetLastError();

    if (error != cudaSuccess)
        stream_note(stream, what, cudaGetErrorString(error));
}

static enum status noted(struct device_stream *stream)
{
    const enum status status = stream->status;

    stream->status = STATUS_OK;
    return status == STATUS_OK ? STATUS_OK : FAIL(status, "%s", stream->text);
}

/* Devices ------------------------------------------------------------------------------ */

/* Operations on memory that a stream does by itself, which only the driver's own interface has. */
typedef CUresult batch_fn(CUstream stream, unsigned count, CUstreamBatchMemOpParams *ops,
                          unsigned flags);
struct device {
    int number;
    batch_fn *batch; /* once memory is shared */
};

size_t cuda_shared_bytes;
int cuda_capability;

int cuda_number(const struct device *device)
{
    return device->number;
}

static enum status count_devices(int *out)
{
    int count = 0, driver = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);

    if (error != cudaSuccess)
        (void)cudaGetLastError();
    if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0)
        return FAIL(STATUS_UNSUPPORTED, "cuda: this machine has no NVIDIA driver");
    if (error == cudaErrorInsufficientDriver)
        return FAIL(
            STATUS_UNSUPPORTED,
            "cuda: the driver knows CUDA %d.%d, this build needs %d.%d: install a newer "
            "driver",
            driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
            CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return FAIL(STATUS_UNSUPPORTED, "cuda: there is a driver but no GPU");
    TRY_CUDA(error);
    *out = count;
    return STATUS_OK;
}

static enum status check_number(int number)
{
    int count = 0;

    TRY(count_devices(&count));
    if (number < 0 || number >= count)
        return FAIL(STATUS_NOT_FOUND, "cuda: there is no device %d: this machine has %d",
                    number, count);
    return STATUS_OK;
}

static enum status describe(int number, struct device_info *out)
{
    struct device_info info = { .memory = 0 };
    struct cudaDeviceProp p;
    size_t free_bytes, bytes;
    int driver;

    TRY(check_number(number));
    TRY_CUDA(cudaGetDeviceProperties(&p, number));
    TRY_CUDA(cudaDriverGetVersion(&driver));
    TRY_CUDA(cudaSetDevice(number));
    TRY_CUDA(cudaMemGetInfo(&free_bytes, &bytes));
    (void)snprintf(info.name, sizeof info.name, "%.100s", p.name);
    (void)snprintf(info.driver, sizeof info.driver,
                   "driver for CUDA %d.%d, built with %d.%d, compute capability %d.%d",
                   driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                   CUDART_VERSION % 1000 / 10, p.major, p.minor);
    info.memory = bytes;
    info.free_memory = free_bytes;
    info.units = p.multiProcessorCount;
    *out = info;
    return STATUS_OK;
}

static enum status open_device(int number, struct device **out)
{
    struct cudaDeviceProp p;
    struct device *device;

    TRY(check_number(number));
    TRY_CUDA(cudaGetDeviceProperties(&p, number));
    if (p.major < 8)
        return FAIL(STATUS_UNSUPPORTED,
                    "cuda: %s has compute capability %d.%d, this build needs 8.0", p.name,
                    p.major, p.minor);
    if (cuda_capability && cuda_capability != 10 * p.major + p.minor)
        return FAIL(STATUS_UNSUPPORTED,
                    "cuda: %s has compute capability %d.%d, one that was opened before %d.%d",
                    p.name, p.major, p.minor, cuda_capability / 10, cuda_capability % 10);
    TRY_CUDA(cudaSetDevice(number));
    TRY_CUDA(cudaFree(NULL)); /* makes the context, or says why it cannot be made */
    TRY(mem_alloc(1, sizeof *device, &device));
    device->number = number;
    if (cuda_shared_bytes == 0) {
        cuda_shared_bytes = p.sharedMemPerBlockOptin;
        cuda_capability = 10 * p.major + p.minor;
    }
    *out = device;
    return STATUS_OK;
}

static void close_device(struct device *device)
{
    mem_free(device);
}

/* Memory ------------------------------------------------------------------------------- */

static enum status memory_create(struct device *device, size_t bytes, void **out)
{
    size_t free_bytes = 0, all = 0;

    TRY_CUDA(cudaSetDevice(device->number));
    const cudaError_t error = cudaMalloc(out, bytes ? bytes : 1);
    if (error != cudaErrorMemoryAllocation) {
        TRY_CUDA(error);
        return STATUS_OK;
    }
    (void)cudaGetLastError();
    (void)cudaMemGetInfo(&free_bytes, &all);
    return FAIL(STATUS_NO_MEMORY,
                "cuda: %zu MiB were asked for, %zu of %zu MiB are free: use a smaller --batch",
                bytes >> 20, free_bytes >> 20, all >> 20);
}

static void memory_destroy(struct device *device, void *memory)
{
    (void)device;
    (void)cudaFree(memory);
}

static enum status memory_create_host(struct device *device, size_t bytes, void **out)
{
    TRY_CUDA(cudaSetDevice(device->number));
    TRY_CUDA(cudaMallocHost(out, bytes ? bytes : 1));
    return STATUS_OK;
}

static void memory_destroy_host(struct device *device, void *memory)
{
    (void)device;
    (void)cudaFreeHost(memory);
}

static bool memory_lock_host(struct device *device, void *memory, size_t bytes)
{
    if (cudaSetDevice(device->number) == cudaSuccess &&
        cudaHostRegister(memory, bytes, cudaHostRegisterDefault) == cudaSuccess)
        return true;
    (void)cudaGetLastError(); /* nobody is to find it later */
    return false;
}

static void memory_unlock_host(struct device *device, void *memory)
{
    (void)device;
    (void)cudaHostUnregister(memory);
}

static enum status memory_copy(struct device_stream *stream, void *to, const void *from,
                               size_t bytes)
{
    TRY_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->cuda));
    return STATUS_OK;
}

static enum status memory_fill(struct device_stream *stream, void *to, uint8_t byte,
                               size_t bytes)
{
    TRY_CUDA(cudaMemsetAsync(to, byte, bytes, stream->cuda));
    return STATUS_OK;
}

static enum status memory_copy_rows(struct device_stream *stream, void *to, size_t to_apart,
                                    const void *from, size_t from_apart, size_t width,
                                    size_t rows)
{
    if (rows == 1 || (to_apart == width && from_apart == width))
        return memory_copy(stream, to, from, rows * width);
    TRY_CUDA(cudaMemcpy2DAsync(to, to_apart, from, from_apart, width, rows,
                               cudaMemcpyDeviceToDevice, stream->cuda));
    return STATUS_OK;
}

static const struct device_memory_ops memory_ops = {
    .create = memory_create,
    .destroy = memory_destroy,
    .create_host = memory_create_host,
    .destroy_host = memory_destroy_host,
    .lock_host = memory_lock_host,
    .unlock_host = memory_unlock_host,
    .copy = memory_copy,
    .fill = memory_fill,
    .copy_rows = memory_copy_rows,
};

/* Memory of other processes ------------------------------------------------------------- */

/* What a handle holds. */
struct opened_by {
    int64_t process;
    int64_t number; /* of the device */
    cudaIpcMemHandle_t cuda;
};

/* A handle is of a whole block of the driver's, of which small memory would be a piece. */
enum { SHARED_BLOCK = 2 << 20 };

/* Streams wait for words of memory by themselves: a kernel that spins would keep the GPU from other processes on it for as
 * long as its turn lasts. */
enum { BATCH_CUDA = 12000 }; /* the version of that interface */

static enum status find_batch(batch_fn **out)
{
    enum cudaDriverEntryPointQueryResult result;
    union {
        void *object;
        batch_fn *function;
    } symbol = { NULL };

    TRY_CUDA(cudaGetDriverEntryPointByVersion("cuStreamBatchMemOp", &symbol.object, BATCH_CUDA,
                                              cudaEnableDefault, &result));
    if (result != cudaDriverEntryPointSuccess || !symbol.object)
        return FAIL(STATUS_UNSUPPORTED, "cuda: the driver has no operations on memory");
    *out = symbol.function;
    return STATUS_OK;
}

static enum status share_create(struct device *device, size_t bytes, void **out,
                                struct device_handle *out_handle)
{
    struct opened_by by = { .process = getpid(), .number = device->number };
    void *memory;

    static_assert(sizeof by <= sizeof *out_handle, "a handle has room");
    TRY(find_batch(&device->batch));
    TRY(memory_create(device, (bytes / SHARED_BLOCK + 1) * SHARED_BLOCK, &memory));
    const cudaError_t error = cudaIpcGetMemHandle(&by.cuda, memory);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        (void)cudaFree(memory);
        return FAIL(STATUS_UNSUPPORTED,
                    "cuda: memory of device %d cannot be shared with other processes (%s): use "
                    "-n 1",
                    device->number, cudaGetErrorString(error));
    }
    memcpy(out_handle, &by, sizeof by);
    *out = memory;
    return STATUS_OK;
}

static enum status share_open(struct device *device, const struct device_handle *handle,
                              void **out)
{
    struct opened_by by;

    memcpy(&by, handle, sizeof by);
    if (by.process == getpid())
        return FAIL(STATUS_UNSUPPORTED,
                    "cuda: ranks that share a device are processes, not threads");
    TRY_CUDA(cudaSetDevice(device->number));
    const cudaError_t error =
        cudaIpcOpenMemHandle(out, by.cuda, cudaIpcMemLazyEnablePeerAccess);
    if (error == cudaSuccess)
        return STATUS_OK;
    (void)cudaGetLastError();
    return FAIL(STATUS_UNSUPPORTED,
                "cuda: device %d cannot open memory that process %lld has on device %lld (%s): "
                "use -n 1",
                device->number, (long long)by.process, (long long)by.number,
                cudaGetErrorString(error));
}

static void share_close(struct device *device, const struct device_handle *handle, void *memory)
{
    (void)device;
    (void)handle;
    if (memory)
        (void)cudaIpcCloseMemHandle(memory);
}

/* They are done in their order. */
static void put_batch(struct device_stream *stream, CUstreamBatchMemOpParams *ops, int count,
                      const char *what)
{
    (void)cudaSetDevice(stream->device->number); /* any thread may ask */
    if (stream->device->batch(stream->cuda, (unsigned)count, ops, 0) != CUDA_SUCCESS)
        stream_note(stream, what, "the driver refuses an operation on memory");
}

static CUstreamBatchMemOpParams write_of(uint32_t *word, uint32_t value)
{
    return (
        CUstreamBatchMemOpParams){ .writeValue = { .operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                   .address = (CUdeviceptr)word,
                                                   .value = value } };
}

static void share_signal(struct device_stream *stream, const struct device_words *words)
{
    CUstreamBatchMemOpParams ops[DEVICE_PEERS];

    for (int i = 0; i < words->count; i++)
        ops[i] = write_of(words->word[i], 1);
    put_batch(stream, ops, words->count, "signal");
}

/* All are waited for before the first is written. */
static void share_await(struct device_stream *stream, const struct device_words *words)
{
    CUstreamBatchMemOpParams ops[2 * DEVICE_PEERS];

    for (int i = 0; i < words->count; i++) {
        ops[i] = (CUstreamBatchMemOpParams){ .waitValue = {
                                                 .operation = CU_STREAM_MEM_OP_WAIT_VALUE_32,
                                                 .address = (CUdeviceptr)words->word[i],
                                                 .value = 1,
                                                 .flags = CU_STREAM_WAIT_VALUE_EQ } };
        ops[words->count + i] = write_of(words->word[i], 0);
    }
    put_batch(stream, ops, 2 * words->count, "await");
}

static const struct device_share_ops share_ops = {
    .create = share_create,
    .destroy = memory_destroy,
    .open = share_open,
    .close = share_close,
    .signal = share_signal,
    .await = share_await,
};

/* Streams and events ------------------------------------------------------------------- */

struct device_event {
    cudaEvent_t cuda;
};

static void stream_destroy(struct device_stream *stream)
{
    if (stream == NULL)
        return;
    if (stream->cuda != NULL)
        (void)cudaStreamDestroy(stream->cuda);
    (void)cudaFree(stream->counters);
    mem_free(stream);
}

static enum status fill_stream(struct device_stream *stream, bool is_beside)
{
    const size_t bytes = STREAM_COUNTERS * sizeof *stream->counters;
    int last, first;

    TRY_CUDA(cudaDeviceGetStreamPriorityRange(&last, &first));
    TRY_CUDA(cudaStreamCreateWithPriority(&stream->cuda, cudaStreamNonBlocking,
                                          is_beside ? last : first));
    TRY_CUDA(cudaMalloc((void **)&stream->counters, bytes));
    TRY_CUDA(cudaMemsetAsync(stream->counters, 0, bytes, stream->cuda));
    return STATUS_OK;
}

static enum status make_stream(struct device *device, bool is_beside,
                               struct device_stream **out)
{
    struct device_stream *stream;

    TRY_CUDA(cudaSetDevice(device->number));
    TRY(mem_alloc(1, sizeof *stream, &stream));
    stream->device = device;
    const enum status status = fill_stream(stream, is_beside);
    if (status != STATUS_OK)
        stream_destroy(stream);
    else
        *out = stream;
    return status;
}

static enum status stream_create(struct device *device, struct device_stream **out)
{
    return make_stream(device, false, out);
}

static enum status stream_create_beside(struct device *device, struct device_stream **out)
{
    return make_stream(device, true, out);
}

static enum status stream_wait(struct device_stream *stream)
{
    const cudaError_t error = cudaStreamSynchronize(stream->cuda);

    TRY(noted(stream)); /* what could not be enqueued comes first */
    TRY_CUDA(error);
    return STATUS_OK;
}

static enum status event_create(struct device *device, struct device_event **out)
{
    struct device_event *event;
    cudaEvent_t cuda;

    TRY_CUDA(cudaSetDevice(device->number));
    TRY_CUDA(cudaEventCreate(&cuda));
    const enum status status = mem_alloc(1, sizeof *event, &event);
    if (status != STATUS_OK) {
        (void)cudaEventDestroy(cuda);
        return status;
    }
    event->cuda = cuda;
    *out = event;
    return STATUS_OK;
}

static void event_destroy(struct device_event *event)
{
    if (event == NULL)
        return;
    (void)cudaEventDestroy(event->cuda);
    mem_free(event);
}

static enum status record(struct device_stream *stream, struct device_event *event)
{
    TRY_CUDA(cudaEventRecord(event->cuda, stream->cuda));
    return STATUS_OK;
}

static enum status wait_event(struct device_stream *stream, struct device_event *event)
{
    TRY_CUDA(cudaStreamWaitEvent(stream->cuda, event->cuda, 0));
    return STATUS_OK;
}

static enum status event_wait(struct device_event *event)
{
    TRY_CUDA(cudaEventSynchronize(event->cuda));
    return STATUS_OK;
}

static enum status elapsed(struct device_event *begin, struct device_event *end, double *out_ms)
{
    float ms;

    TRY_CUDA(cudaEventElapsedTime(&ms, begin->cuda, end->cuda));
    *out_ms = (double)ms;
    return STATUS_OK;
}

static const struct device_stream_ops stream_ops = {
    .create = stream_create,
    .create_beside = stream_create_beside,
    .destroy = stream_destroy,
    .wait = stream_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .record = record,
    .wait_event = wait_event,
    .event_wait = event_wait,
    .elapsed = elapsed,
};

/* Graphs ------------------------------------------------------------------------------- */

struct device_graph {
    cudaGraphExec_t cuda;
};

static enum status graph_begin(struct device_stream *stream)
{
    TRY_CUDA(cudaStreamBeginCapture(stream->cuda, cudaStreamCaptureModeThreadLocal));
    return STATUS_OK;
}

static enum status instantiate(cudaGraph_t captured, struct device_graph **out)
{
    struct device_graph *graph;
    cudaGraphExec_t exec;

    TRY_CUDA(cudaGraphInstantiate(&exec, captured, 0));
    const enum status status = mem_alloc(1, sizeof *graph, &graph);
    if (status != STATUS_OK) {
        (void)cudaGraphExecDestroy(exec);
        return status;
    }
    graph->cuda = exec;
    *out = graph;
    return STATUS_OK;
}

static enum status graph_end(struct device_stream *stream, struct device_graph **out)
{
    cudaGraph_t captured = NULL;
    const cudaError_t error = cudaStreamEndCapture(stream->cuda, &captured);
    enum status status = noted(stream);

    if (status == STATUS_OK && error != cudaSuccess)
        status = cuda_failed(error, __FILE__, __LINE__, "cudaStreamEndCapture");
    if (status == STATUS_OK)
        status = instantiate(captured, out);
    if (captured != NULL)
        (void)cudaGraphDestroy(captured);
    return status;
}

static enum status graph_launch(struct device_graph *graph, struct device_stream *stream)
{
    TRY_CUDA(cudaGraphLaunch(graph->cuda, stream->cuda));
    return STATUS_OK;
}

static void graph_destroy(struct device_graph *graph)
{
    if (graph == NULL)
        return;
    (void)cudaGraphExecDestroy(graph->cuda);
    mem_free(graph);
}

static const struct device_graph_ops graph_ops = {
    .begin = graph_begin,
    .end = graph_end,
    .launch = graph_launch,
    .destroy = graph_destroy,
};

/* The table ---------------------------------------------------------------------------- */

/* Of several rows of an op the first that can run is taken. */
static const struct kernel *const parts[] = {
    cuda_thin_pool_rows,
    cuda_thin_rows,
    cuda_conv_whole_rows,
    cuda_narrow_rows,
    cuda_conv_hopper_rows,
    cuda_attention_hopper_rows,
#ifdef HAVE_CUDNN
    cuda_cudnn_rows,
    cuda_cudnn_attention_rows,
#endif
    cuda_attention_hopper_grad_rows, /* behind cuDNN's until a GPU has seen steps end with them */
    cuda_attention_long_rows,        /* likewise, and has timed them */
    cuda_attention_tile_rows,
    cuda_attention_mma_rows,
    cuda_elementwise_rows,
    cuda_shallow_rows,
    cuda_small_rows,
    cuda_linear_rows,
    cuda_depthwise_rows,
    cuda_conv_rows,
    cuda_conv1d_max_rows,
    cuda_pool_rows,
    cuda_norm_rows,
    cuda_batch_norm_rows,
    cuda_norm_depthwise_rows,
    cuda_conv_stats_rows,
    cuda_loss_rows,
    cuda_head_rows,
    cuda_column_sums_rows,
    cuda_through_rows,
    cuda_linear_hopper_rows, /* behind the others until a GPU has timed them */
    cuda_embedding_rows,
    cuda_attention_rows,
    cuda_recurrent_rows,
};

static const struct kernel *cuda_kernel_at(size_t i)
{
    for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++) {
        for (const struct kernel *row = parts[part]; row->op != NULL; row++) {
            if (i-- == 0)
                return row;
        }
    }
    return NULL;
}

const struct kernel *cuda_find(const struct kernel_problem *problem)
{
    const struct kernel *row;

    for (size_t i = 0; (row = cuda_kernel_at(i)) != NULL; i++) {
        if (strcmp(row->op, problem->op) == 0 &&
            (row->can_run == NULL || row->can_run(problem)))
            return row;
    }
    return NULL;
}

/* Rows whose kernels take filters as the problem says that they lie. */
bool cuda_takes_inward(const struct kernel *kernel)
{
    static const char *const names[] = { "cudnn", "narrow", "hopper" };

    if (strcmp(kernel->op, "conv2d_stats") == 0) /* whichever row is inside */
        return true;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(kernel->name, names[i]) == 0)
            return true;
    }
    return false;
}

static void turn(struct device_stream *stream, void *to, const void *from, enum dtype dtype,
                 size_t rows, size_t columns)
{
    turn_across(stream, to, dtype, from, dtype, (int64_t)rows, (int64_t)columns);
}

/* Convolutions: gradients of weights by cuDNN have 60 to 117 blocks on a device of 132 multiprocessors. Products of matrices
 * fill it: what runs beside them waits for longer than both gain. */
static bool leaves_room(const struct kernel *kernel)
{
    return strcmp(kernel->name, "cudnn") == 0 ||
           strcmp(kernel->op, "conv1d_max_grad_weight") == 0;
}

static const struct device_face face = {
    .version = DEVICE_VERSION,
    .name = "cuda",
    .count = count_devices,
    .describe = describe,
    .open = open_device,
    .close = close_device,
    .memory = &memory_ops,
    .stream = &stream_ops,
    .graph = &graph_ops,
    .share = &share_ops,
#ifdef HAVE_NCCL
    .team = &cuda_team_ops,
#endif
    .joint = &cuda_joint_ops,
    .kernel_at = cuda_kernel_at,
    .takes_inward = cuda_takes_inward,
    .updates = cuda_updates,
    .add = cuda_add,
    .convert = cuda_convert,
    .turn = turn,
    .sum_squares = cuda_sum_squares,
    .sum_squares_bytes = cuda_sum_squares_bytes,
    .square_pieces = cuda_square_pieces,
    .add_squares = cuda_add_squares,
    .clip = cuda_clip,
    .trust = cuda_trust,
    .scale_losses = cuda_scale_losses,
    .unscale = cuda_unscale,
    .mark_rows = cuda_mark_rows,
    .join_marks = cuda_join_marks,
    .pick = cuda_pick,
    .go_together = cuda_go_together,
    .run_both = cuda_run_both,
    .leaves_room = leaves_room,
};

__attribute__((visibility("default"))) cuda_face_fn tutti_cuda_face;
const struct device_face *tutti_cuda_face(const struct cuda_host *host, uint32_t version,
                                          size_t bytes)
{
    if (version != DEVICE_VERSION || bytes != sizeof face)
        return NULL;
    the_host = host;
    return &face;
}
