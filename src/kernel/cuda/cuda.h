/* SPDX-License-Identifier: MIT */
/* cuda.h - private to the plug-in: streams, failures of CUDA, and the arrays of rows. */
#ifndef KERNEL_CUDA_CUDA_H
#define KERNEL_CUDA_CUDA_H

#include <cuda_runtime_api.h>

#include "kernel/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Blocks of a launch that find out who of them is last need no more than this. */
enum { STREAM_COUNTERS = 2048 };

struct device_stream {
    cudaStream_t cuda;
    struct device *device;
    unsigned *counters; /* on the device: zero between launches, of which one runs at a time */
    enum status status; /* of the first thing that could not be enqueued */
    char text[256];
};

/* Keeps what failed to be enqueued until somebody waits. `what` is a constant. */
void stream_note(struct device_stream *stream, const char *what, const char *reason);
/* The launch before this went well, or is noted. */
void stream_check(struct device_stream *stream, const char *what);

static inline cudaStream_t stream_of(const struct kernel_call *call)
{
    return call->stream->cuda;
}

/* Of the device, as CUDA counts them. */
int cuda_number(const struct device *device);
/* Where there is NCCL (nccl.c). */
extern const struct device_team_ops cuda_team_ops;

/* Fails with CUDA's text. */
#define TRY_CUDA(call)                                                                         \
    do {                                                                                       \
        const cudaError_t try_error_ = (call);                                                 \
        if (try_error_ != cudaSuccess)                                                         \
            return cuda_failed(try_error_, __FILE__, __LINE__, #call);                         \
    } while (0)
enum status cuda_failed(cudaError_t error, const char *file, int line, const char *call);

/* The most shared memory that a block may ask for on the device that was opened first, and its compute capability, ten times:
 * what rows can run, and their scratch, does not change after that. */
extern size_t cuda_shared_bytes;
extern int cuda_capability;
enum { CAPABILITY_HOPPER = 90 }; /* what hopper.cuh is for */

/* The first row for a problem, as a device's user would find it; NULL: there is none. */
const struct kernel *cuda_find(const struct kernel_problem *problem);
/* device_face.takes_inward */
bool cuda_takes_inward(const struct kernel *kernel);

/* Rows, each array ended by a NULL op. */
extern const struct kernel cuda_cudnn_rows[], cuda_cudnn_attention_rows[],
    cuda_attention_hopper_rows[], cuda_attention_hopper_grad_rows[], cuda_attention_long_rows[],
    cuda_attention_tile_rows[], cuda_attention_mma_rows[], cuda_elementwise_rows[],
    cuda_linear_rows[], cuda_linear_hopper_rows[], cuda_conv_hopper_rows[], cuda_conv_rows[],
    cuda_conv1d_max_rows[], cuda_depthwise_rows[], cuda_thin_rows[], cuda_thin_pool_rows[],
    cuda_narrow_rows[], cuda_conv_whole_rows[], cuda_shallow_rows[], cuda_small_rows[],
    cuda_pool_rows[], cuda_norm_rows[], cuda_batch_norm_rows[], cuda_norm_depthwise_rows[],
    cuda_conv_stats_rows[], cuda_loss_rows[], cuda_head_rows[], cuda_column_sums_rows[],
    cuda_through_rows[], cuda_embedding_rows[], cuda_attention_rows[], cuda_recurrent_rows[];
extern const struct device_update cuda_updates[];
extern const struct device_joint_ops cuda_joint_ops;
void cuda_add(struct device_stream *stream, float *out, const float *a, const float *b,
              size_t count);
/* out[i] = parts[i] + parts[apart + i] + ..., in that order, for i < count. */
void cuda_add_parts(struct device_stream *stream, float *out, const float *parts,
                    size_t n_parts, size_t count, size_t apart);
/* Another matrix of bf16 with the elements of one, whole rows apart of each other; where it has more rows or
 * longer ones, zeros. */
void cuda_repack(struct device_stream *stream, void *to, int64_t to_row, int64_t to_rows,
                 const void *from, int64_t from_row, int64_t from_rows);
void cuda_convert(struct device_stream *stream, void *to, enum dtype to_dtype, const void *from,
                  enum dtype from_dtype, size_t count);
void cuda_sum_squares(struct device_stream *stream, const float *data, size_t count,
                      double *out, void *scratch);
size_t cuda_sum_squares_bytes(size_t count);
void cuda_square_pieces(struct device_stream *stream, const float *data,
                        const struct device_piece *pieces, size_t count, double *out);
void cuda_add_squares(struct device_stream *stream, const struct joint_parts *places,
                      const struct device_squared *params, size_t count, double *out);
void cuda_clip(struct device_stream *stream, const struct joint_parts *squares, size_t count,
               float max_norm, struct kernel_update_step *numbers);
void cuda_trust(struct device_stream *stream, const struct device_trust *trust,
                const double *params, const double *moves, size_t count,
                const struct kernel_update_step *numbers, struct kernel_update_step *out);
void cuda_scale_losses(struct device_stream *stream, const struct device_scaling *scaling,
                       const struct kernel_step *steps, size_t count, struct kernel_step *out);
void cuda_unscale(struct device_stream *stream, const struct joint_parts *squares, size_t count,
                  float max_norm, struct device_scaling *scaling,
                  struct kernel_update_step *numbers);
void cuda_mark_rows(struct device_stream *stream, const int32_t *ids, size_t count, size_t rows,
                    uint8_t *marks);
void cuda_join_marks(struct device_stream *stream, uint8_t *out, const uint8_t *a,
                     const uint8_t *b, size_t count);
bool cuda_go_together(const struct kernel *one, const struct kernel *other);
void cuda_run_both(const struct kernel *const kernel[2], const struct kernel_call call[2]);
void cuda_pick(struct device_stream *stream, const struct device_images *images,
               const struct pick *picks, size_t rows, float *x, int32_t *y);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_CUDA_CUDA_H */
