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
#include "tensor/pick.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    DEVICE_VERSION = 8,
    DEVICE_TEXT = 128,
    DEVICE_STATES = KERNEL_STATES,
    DEVICE_PEERS = JOINT_RANKS, /* ranks of a machine that share memory, at most */
};

struct device; /* an open one */
struct device_stream;
struct device_event;
struct device_graph;
struct device_team;

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
    /* Memory of the host that somebody else made is copied as quickly until unlock_host, which is before it goes. False: it
     * is copied as it was, and there is nothing to unlock. */
    bool (*lock_host)(struct device *device, void *memory, size_t bytes);
    void (*unlock_host)(struct device *device, void *memory);
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
    /* One whose work goes beside that of others, and waits where both want the same room. */
    MUST_CHECK enum status (*create_beside)(struct device *device, struct device_stream **out);
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

/* What a team of devices is made by: plain bytes, of its first rank, to be sent to all others. */
struct device_team_id {
    uint64_t word[16];
};

/* Asked again and again while others are waited for: shall that end? */
struct device_patience {
    bool (*ends)(void *arg);
    void *arg;
};

/* Who a device is in a team. Ranks of another node are reached as those of other machines are, also where they are on this
 * one. */
struct device_member {
    int rank, count;
    int node;
};

/* Bytes between devices that need not reach each other's memory, of one machine or several, each a rank of the team. What
 * is put between begin and end goes on its way together, on the stream, and may be captured. Between a pair messages are
 * matched in their order, each by one of the same length; broadcasts have an order of their own, the same on all ranks.
 * Nothing is added on the way. NULL where a device has none. */
struct device_team_ops {
    /* What does it, with its version; or fails with why it is not there. */
    MUST_CHECK enum status (*describe)(char out[DEVICE_TEXT]);
    /* By the first rank of a team of `count`, once for each. */
    MUST_CHECK enum status (*make_id)(struct device *device, int count,
                                      struct device_team_id *out);
    /* Collective: returns when all are there. */
    MUST_CHECK enum status (*create)(struct device *device, const struct device_team_id *id,
                                     const struct device_member *member,
                                     const struct device_patience *patience,
                                     struct device_team **out);
    /* By any thread: what is under way ends anyhow, what comes fails. It may return only when graphs that it was captured in
     * are gone. */
    void (*abort)(struct device_team *team);
    /* When what was put is done and graphs that it was captured in are gone. NULL is allowed. */
    void (*destroy)(struct device_team *team);
    /* By any thread: fails with what went wrong by itself, as when another rank is gone; streams wait on until it is
     * aborted. */
    MUST_CHECK enum status (*check)(struct device_team *team);
    MUST_CHECK enum status (*begin)(struct device_team *team, struct device_stream *stream);
    /* The memory stays as it is until the stream has done it. peer may be the own rank. */
    MUST_CHECK enum status (*send)(struct device_team *team, const void *data, size_t bytes,
                                   int peer);
    MUST_CHECK enum status (*receive)(struct device_team *team, void *data, size_t bytes,
                                      int peer);
    /* What the root has there comes to all. */
    MUST_CHECK enum status (*broadcast)(struct device_team *team, void *data, size_t bytes,
                                        int root);
    /* Also after one of these has failed. */
    MUST_CHECK enum status (*end)(struct device_team *team);
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

/* Where a parameter begins in the flat vector, and its number in the model. */
struct device_origin {
    uint64_t at;
    uint32_t parameter;
};

/* A flat range that is updated, in the device's memory; see update.h. */
struct device_range {
    float *param;
    const float *grad;
    float *state[DEVICE_STATES];
    float *out; /* lamb_direction: what it makes; may be grad */
    uint16_t
        *half; /* the new param in 16 bits, for kernels that compute so; NULL: not wanted */
    enum dtype half_dtype;
    size_t count;
    /* Of a table: rows of `width` elements whose mark is 0 stay as they are. NULL: none does. */
    const uint8_t *marks;
    size_t width;
    /* Where steps draw: the range's own place in the flat vector, and who is there, in order; of the device, too. */
    size_t at;
    const struct device_origin *origins;
    size_t n_origins;
};

/* A piece of a vector, and the place of the sum of its squares. At most DEVICE_PIECE elements. */
struct device_piece {
    uint64_t at;
    uint32_t count, place;
};
enum { DEVICE_PIECE = 2048 };

/* A parameter whose pieces have places in a row, and its number in the model. */
struct device_squared {
    uint32_t first, count, number;
};

/* What LARS (of the gradient's norm) and LAMB (of the direction's) make of norms: see update.h. */
struct device_trust {
    float coefficient, weight_decay;
    bool of_gradient;
};

/* How gradients of losses are scaled while a step computes in f16, so that small ones are not lost: twice as much after
 * DEVICE_SCALE_STEPS steps whose gradients were finite, half after one whose were not, which is skipped. */
struct device_scaling {
    float scale;
    int32_t good;    /* steps in a row since it was changed */
    int64_t skipped; /* of all */
};
enum { DEVICE_SCALE_STEPS = 2000 };

/* An update over a flat range, in one launch; `step` lies in the device's memory. */
struct device_update {
    const char *op; /* "sgd_update", ..., "lamb_direction" */
    void (*run)(struct device_stream *stream, const struct device_range *range,
                const struct attrs *attrs, const struct kernel_update_step *step);
};

/* A data set of images, whole in the device's memory. */
struct device_images {
    const uint8_t *pixels; /* of each sample C planes of H x W bytes */
    const int32_t *labels;
    const float *values; /* what a byte of each channel stands for: C tables of DEVICE_BYTES */
    int64_t channels, height, width;
};
enum { DEVICE_BYTES = 256 };

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
    const struct device_team_ops *team;
    const struct device_joint_ops *joint;

    /* The i-th kernel, NULL past the last. */
    const struct kernel *(*kernel_at)(size_t i);
    /* Can calls of these kernels, neither of which needs the other, be one launch? run_both is it. NULL: none can. */
    bool (*go_together)(const struct kernel *one, const struct kernel *other);
    void (*run_both)(const struct kernel *const kernel[2], const struct kernel_call call[2]);
    /* Does the kernel also take, or make, filters that lie ohwi and whose channels come in eights? NULL: none does. */
    bool (*takes_inward)(const struct kernel *kernel);
    /* Does a kernel leave room, so that others run beside it on another stream and both gain? NULL: none does. */
    bool (*leaves_room)(const struct kernel *kernel);
    const struct device_update *updates; /* ended by a NULL op */
    /* out[i] = a[i] + b[i]; out may be a or b. */
    void (*add)(struct device_stream *stream, float *out, const float *a, const float *b,
                size_t count);
    /* Elements of one type, f32, bf16 or f16, to another, of which one is f32 or both are the same, to the nearest. */
    void (*convert)(struct device_stream *stream, void *to, enum dtype to_dtype,
                    const void *from, enum dtype from_dtype, size_t count);
    /* to (columns, rows) = from (rows, columns), of one type. */
    void (*turn)(struct device_stream *stream, void *to, const void *from, enum dtype dtype,
                 size_t rows, size_t columns);
    /* Sum of squares in double, by a fixed order of additions; scratch of sum_squares_bytes. */
    void (*sum_squares)(struct device_stream *stream, const float *data, size_t count,
                        double *out, void *scratch);
    size_t (*sum_squares_bytes)(size_t count);
    /* out[place] = the sum of squares of each piece, in double, by an order of additions that its count alone decides. */
    void (*square_pieces)(struct device_stream *stream, const float *data,
                          const struct device_piece *pieces, size_t count, double *out);
    /* out[number] = the sum of each parameter's places: of each, of all ranks in their order, where it is 0 but for those who have
     * some of the piece. The order of places depends on their number alone. */
    void (*add_squares)(struct device_stream *stream, const struct joint_parts *places,
                        const struct device_squared *params, size_t count, double *out);
    /* numbers->scale becomes what scales gradients of these sums of squares to a norm of max_norm at most. Each is added over
     * ranks as above, then all by an order that their count alone decides. */
    void (*clip)(struct device_stream *stream, const struct joint_parts *squares, size_t count,
                 float max_norm, struct kernel_update_step *numbers);
    /* out[i] = numbers with the trust ratio of parameter i, by sums of squares of it and of how it moves. */
    void (*trust)(struct device_stream *stream, const struct device_trust *trust,
                  const double *params, const double *moves, size_t count,
                  const struct kernel_update_step *numbers, struct kernel_update_step *out);
    /* out[i] = steps[i] for gradients of losses: inv_batch times the scale. */
    void (*scale_losses)(struct device_stream *stream, const struct device_scaling *scaling,
                         const struct kernel_step *steps, size_t count,
                         struct kernel_step *out);
    /* By sums of squares of gradients that are scaled: what clip does (max_norm 0: without a limit), and takes the scale back; of
     * sums that are not finite, numbers->skips becomes 1. Then the scale is the next step's. */
    void (*unscale)(struct device_stream *stream, const struct joint_parts *squares,
                    size_t count, float max_norm, struct device_scaling *scaling,
                    struct kernel_update_step *numbers);
    /* marks[id] = 1 for each of the ids in [0, rows). */
    void (*mark_rows)(struct device_stream *stream, const int32_t *ids, size_t count,
                      size_t rows, uint8_t *marks);
    /* out[i] = a[i] | b[i]: marks of either; out may be a or b. */
    void (*join_marks)(struct device_stream *stream, uint8_t *out, const uint8_t *a,
                       const uint8_t *b, size_t count);
    /* x (rows, H, W, C) and y (rows; NULL: not wanted) of samples that were picked, which lie in the device's memory, too:
     * what data/ makes of them by itself, bit by bit. */
    void (*pick)(struct device_stream *stream, const struct device_images *images,
                 const struct pick *picks, size_t rows, float *x, int32_t *y);
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

/* How a problem is called in a table of choices: "bf16 linear 64x784 ...". precision: what the device computes in. */
enum { KERNEL_KEY = KERNEL_TEXT + 8 };
const char *kernel_key(const struct kernel_problem *problem, enum dtype precision,
                       char out[KERNEL_KEY]);
/* The kernel of a line of the table, if that is the device's, else the first that can run the problem. Fails if there is no
 * such kernel. */
MUST_CHECK enum status kernel_choose_on(const struct kernel_choices *choices,
                                        const struct device_face *face, enum dtype precision,
                                        const struct kernel_problem *problem,
                                        const struct kernel **out);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_DEVICE_H */
