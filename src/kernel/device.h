/* SPDX-License-Identifier: MIT */
/* device.h - where arithmetic runs: the table of devices, and what each of them offers.
 *
 * A device has memory of its own, streams that do one thing after the other, events on them, graphs of
 * what was captured from a stream, and kernels. The CPU is one: its memory is the program's, its streams
 * do a thing when they are told to, and it has no graphs. CUDA is a plug-in, tutti-cuda.so beside the
 * program, that is opened by whoever first asks for the device (cuda/face.h).
 *
 * Kernels solve the problems of kernel.h and are rows of the same table form; a call has pointers into the
 * device's memory: in, out, scratch, and also step, so that a captured graph reads the numbers of
 * the step that it is launched for. A call says its stream; `run` only enqueues.
 *
 * Bits: as kernel.h has it, for one device and version of the libraries. No order of additions depends
 * on which block or thread came first.
 *
 * Threads: one thread at a time for a stream and what runs on it; several streams may have several threads.
 * Errors:  of work that a stream does, the first is kept and comes from device_stream_wait.
 */
#ifndef KERNEL_DEVICE_H
#define KERNEL_DEVICE_H

#include "kernel/joint.h"
#include "kernel/kernel.h"
#include "kernel/update.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DEVICE_VERSION = 4,
    DEVICE_TEXT = 128,
    DEVICE_STATES = KERNEL_STATES,
    DEVICE_PEERS = JOINT_RANKS, /* ranks of a machine that share memory, at most */
};

struct device; /* an open one */
struct device_stream;
struct device_event;
struct device_graph;

struct device_info {
    char name[DEVICE_TEXT];   /* "NVIDIA H200" */
    char driver[DEVICE_TEXT]; /* "driver 13.0, compute capability 9.0", "avx512" */
    uint64_t memory, free_memory;
    int units; /* multiprocessors, or cores */
};

/* Memory of the device, and memory of the host from which it copies quickly. */
struct device_memory_ops {
    /* At least as long as asked for and aligned to 64 bytes; contents undefined. */
    MUST_CHECK enum status (*create)(struct device *device, size_t bytes, void **out);
    void (*destroy)(struct device *device, void *memory); /* NULL is allowed */
    MUST_CHECK enum status (*create_host)(struct device *device, size_t bytes, void **out);
    void (*destroy_host)(struct device *device, void *memory);
    /* Any direction. Memory of the host that create_host did not make may be read before the call
     * returns or later: leave it alone until the stream was waited for. */
    MUST_CHECK enum status (*copy)(struct device_stream *stream, void *to, const void *from,
                                   size_t bytes);
    MUST_CHECK enum status (*fill)(struct device_stream *stream, void *to, uint8_t byte,
                                   size_t bytes);
    /* `rows` times `width` bytes of the device, which begin so many bytes apart in both. */
    MUST_CHECK enum status (*copy_rows)(struct device_stream *stream, void *to, size_t to_apart,
                                        const void *from, size_t from_apart, size_t width,
                                        size_t rows);
};

struct device_stream_ops {
    MUST_CHECK enum status (*create)(struct device *device, struct device_stream **out);
    void (*destroy)(struct device_stream *stream);
    /* Until all of it is done. Fails with what went wrong on it since the last wait. */
    MUST_CHECK enum status (*wait)(struct device_stream *stream);
    MUST_CHECK enum status (*event_create)(struct device *device, struct device_event **out);
    void (*event_destroy)(struct device_event *event);
    /* The event happens when what is on the stream by now is done. */
    MUST_CHECK enum status (*record)(struct device_stream *stream, struct device_event *event);
    /* What comes on the stream waits for the event. */
    MUST_CHECK enum status (*wait_event)(struct device_stream *stream,
                                         struct device_event *event);
    /* Until the event has happened, or at once if it was never recorded. What went wrong on the stream comes from
     * its own wait. */
    MUST_CHECK enum status (*event_wait)(struct device_event *event);
    /* Milliseconds between two events that have happened. */
    MUST_CHECK enum status (*elapsed)(struct device_event *begin, struct device_event *end,
                                      double *out_ms);
};

/* NULL where a device has none. */
struct device_graph_ops {
    /* What is put on the stream from now on, and on streams that wait for its events, is noted, not
     * done. */
    MUST_CHECK enum status (*begin)(struct device_stream *stream);
    /* Ready to be launched. Fails with what went wrong meanwhile. */
    MUST_CHECK enum status (*end)(struct device_stream *stream, struct device_graph **out);
    MUST_CHECK enum status (*launch)(struct device_graph *graph, struct device_stream *stream);
    void (*destroy)(struct device_graph *graph);
};

/* What another process of this machine opens memory by: plain bytes, to be sent there. */
struct device_handle {
    uint64_t word[16];
};

/* Words that processes hand over to each other, 0 at first: who signals makes it 1, who awaits makes it 0 again. Each has one
 * process that signals and one that awaits; who awaits may also signal, to give up. */
struct device_words {
    uint32_t *word[DEVICE_PEERS];
    int count;
};

/* Memory that ranks of a machine read of each other, and how their streams wait for each other. NULL where a device has
 * none. */
struct device_share_ops {
    /* Memory as memory->create makes it, and the handle by which others open it while it lives. */
    MUST_CHECK enum status (*create)(struct device *device, size_t bytes, void **out,
                                     struct device_handle *out_handle);
    void (*destroy)(struct device *device, void *memory); /* NULL is allowed */
    /* Where this process sees memory that one of this machine made; on another device if that reaches it. */
    MUST_CHECK enum status (*open)(struct device *device, const struct device_handle *handle,
                                   void **out);
    /* Also when it is gone there. NULL is allowed. */
    void (*close)(struct device *device, const struct device_handle *handle, void *memory);
    /* When what is on the stream by now is done and visible to all devices, makes the words 1. By any thread. */
    void (*signal)(struct device_stream *stream, const struct device_words *words);
    /* What comes on the stream waits until all words are 1, and makes them 0. To end it, somebody else signals them. Both may
     * be captured, as all that is put on a stream. */
    void (*await)(struct device_stream *stream, const struct device_words *words);
};

/* What ranks that share layers make of what each of them has; see joint.h. */
struct device_joint_ops {
    void (*sum)(struct device_stream *stream, void *out, const struct joint_parts *parts,
                enum dtype dtype, const struct joint_rows *rows);
    void (*ids)(struct device_stream *stream, int32_t *out, const int32_t *ids, size_t count,
                int64_t begin, int64_t end);
    /* call->step is of the device, as all that the call points to. */
    void (*note_losses)(const struct kernel_call *call, float *numbers);
    void (*join_losses)(const struct kernel_call *call, const struct joint_parts *numbers);
    void (*note_answers)(const struct kernel_call *call, struct joint_answer *answers);
    void (*join_answers)(const struct kernel_call *call, const struct joint_parts *answers);
};

/* A flat range that is updated, in the device's memory; see update.h. */
struct device_range {
    float *param;
    const float *grad;
    float *state[DEVICE_STATES];
    float *out; /* lamb_direction: what it makes; may be grad */
    uint16_t
        *half; /* the new param in bf16, for kernels that compute with it; NULL: not wanted */
    size_t count;
    /* Of a table: rows of `width` elements whose mark is 0 stay as they are. NULL: none does. */
    const uint8_t *marks;
    size_t width;
};

/* What LARS (of the gradient's norm) and LAMB (of the direction's) make of norms: see update.h. */
struct device_trust {
    float coefficient, weight_decay;
    bool of_gradient;
};

/* An update over a flat range, in one launch; `step` lies in the device's memory. */
struct device_update {
    const char *op; /* "sgd_update", ..., "lamb_direction" */
    void (*run)(struct device_stream *stream, const struct device_range *range,
                const struct attrs *attrs, const struct kernel_update_step *step);
};

/* What a device offers; a row of the table. */
struct device_face {
    uint32_t version; /* DEVICE_VERSION */
    const char *name; /* "cpu", "cuda" */
    MUST_CHECK enum status (*count)(int *out);
    MUST_CHECK enum status (*describe)(int number, struct device_info *out);
    MUST_CHECK enum status (*open)(int number, struct device **out);
    void (*close)(struct device *device); /* NULL is allowed */

    const struct device_memory_ops *memory;
    const struct device_stream_ops *stream;
    const struct device_graph_ops *graph;
    const struct device_share_ops *share;
    const struct device_joint_ops *joint;

    /* The i-th kernel, NULL past the last. */
    const struct kernel *(*kernel_at)(size_t i);
    const struct device_update *updates; /* ended by a NULL op */
    /* out[i] = a[i] + b[i]; out may be a or b. */
    void (*add)(struct device_stream *stream, float *out, const float *a, const float *b,
                size_t count);
    /* Elements of one type, f32 or bf16, to the other, to the nearest. */
    void (*convert)(struct device_stream *stream, void *to, enum dtype to_dtype,
                    const void *from, enum dtype from_dtype, size_t count);
    /* Sum of squares in double, by a fixed order of additions; scratch of sum_squares_bytes. */
    void (*sum_squares)(struct device_stream *stream, const float *data, size_t count,
                        double *out, void *scratch);
    size_t (*sum_squares_bytes)(size_t count);
    /* numbers->scale becomes what scales gradients of these sums of squares, added in their order, to a norm of
     * max_norm at most. */
    void (*clip)(struct device_stream *stream, const double *squares, size_t count,
                 float max_norm, struct kernel_update_step *numbers);
    /* out[i] = numbers with the trust ratio of parameter i, by sums of squares of it and of how it moves. */
    void (*trust)(struct device_stream *stream, const struct device_trust *trust,
                  const double *params, const double *moves, size_t count,
                  const struct kernel_update_step *numbers, struct kernel_update_step *out);
    /* marks[id] = 1 for each of the ids in [0, rows). */
    void (*mark_rows)(struct device_stream *stream, const int32_t *ids, size_t count,
                      size_t rows, uint8_t *marks);
    /* out[i] = a[i] | b[i]: marks of either; out may be a or b. */
    void (*join_marks)(struct device_stream *stream, uint8_t *out, const uint8_t *a,
                       const uint8_t *b, size_t count);
};

/* Names of the devices that this program knows, ended by NULL. */
extern const char *const device_names[];

/* What a device of that name offers. Fails with one line that says why there is none: no such name, no
 * plug-in, no driver, no GPU. */
MUST_CHECK enum status device_find(const char *name, const struct device_face **out);

/* A face's first kernel that can run a problem, or an update; NULL if there is none. */
const struct kernel *device_kernel(const struct device_face *face,
                                   const struct kernel_problem *problem);
const struct device_update *device_update(const struct device_face *face, const char *op);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_DEVICE_H */
