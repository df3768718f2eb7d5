/* SPDX-License-Identifier: MIT */
/* pick.cu - samples made of images that lie here as bytes: moved, mirrored, looked up, cut out.
 *
 * Traffic: a byte read and four written a number. It runs beside a step, which should not notice: blocks are short, so that those of
 * the step's kernels, which go first, soon have their room.
 */
#include "kernel/cuda/device.cuh"

struct view {
    const uint8_t *pixels;
    const int32_t *labels;
    const float *values;
    int channels, height, width;
};

enum { PICK_AHEAD = 4 }; /* bytes of a thread that are on their way */

/* Where pixel i of a sample comes from in a plane; -1: from beside the image. */
__device__ __forceinline__ int source_of(const struct view &images, const struct pick &pick,
                                         int i)
{
    const int down = i / images.width, right = i % images.width, row = down + pick.down;
    const int column = (pick.flip ? images.width - 1 - right : right) + pick.right;

    return row >= 0 && row < images.height && column >= 0 && column < images.width
               ? row * images.width + column
               : -1;
}

__device__ __forceinline__ bool is_cut_out(const struct view &images, const struct pick &pick,
                                           int i)
{
    const int down = i / images.width, right = i % images.width;

    return down >= pick.top && down < pick.bottom && right >= pick.left && right < pick.end;
}

/* A block has a sample. */
__global__ void __launch_bounds__(THREADS)
    pick_samples(struct view images, const struct pick *picks, float *x, int32_t *y)
{
    const int plane = images.height * images.width, channels = images.channels;
    const int64_t row = blockIdx.x, numbers = (int64_t)plane * channels;
    const struct pick pick = picks[row];
    const uint8_t *pixels = images.pixels + pick.sample * numbers;
    float *out = x + row * numbers;

    for (int i0 = threadIdx.x; i0 < plane; i0 += PICK_AHEAD * THREADS) {
        for (int c = 0; c < channels; c++) {
            int byte[PICK_AHEAD];
#pragma unroll
            for (int k = 0; k < PICK_AHEAD; k++) {
                const int from = source_of(images, pick, i0 + k * THREADS);
                byte[k] = from >= 0 ? pixels[(int64_t)c * plane + from] : 0;
            }
#pragma unroll
            for (int k = 0; k < PICK_AHEAD; k++) {
                const int i = i0 + k * THREADS;
                if (i < plane)
                    out[(int64_t)i * channels + c] =
                        is_cut_out(images, pick, i) ? 0.0F
                                                    : images.values[c * DEVICE_BYTES + byte[k]];
            }
        }
    }
    if (threadIdx.x == 0 && y)
        y[row] = images.labels[pick.sample];
}

extern "C" void cuda_pick(struct device_stream *stream, const struct device_images *images,
                          const struct pick *picks, size_t rows, float *x, int32_t *y)
{
    const struct view view = { images->pixels,        images->labels,      images->values,
                               (int)images->channels, (int)images->height, (int)images->width };

    if (rows == 0)
        return;
    pick_samples<<<(unsigned)rows, THREADS, 0, stream->cuda>>>(view, picks, x, y);
    stream_check(stream, "pick");
}
