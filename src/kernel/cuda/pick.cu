/* SPDX-License-Identifier: MIT */
/* pick.cu - samples made of images that lie here as bytes: moved, mirrored, looked up, cut out.
 *
 * Traffic: a byte read and four written a number. A thread has a pixel, so that bytes of a plane are read in a row, and few
 * wait for memory more often than a pick, a pixel and its number take.
 */
#include "kernel/cuda/device.cuh"

struct view {
    const uint8_t *pixels;
    const int32_t *labels;
    const float *values;
    int channels, height, width;
};

__global__ void pick_samples(struct view images, const struct pick *picks, float *x, int32_t *y)
{
    const struct pick pick = picks[blockIdx.x];
    const int first = (int)(blockIdx.y * blockDim.x + threadIdx.x);
    const int width = images.width, plane = images.height * width;
    const int64_t numbers = (int64_t)plane * images.channels;
    const uint8_t *pixels = images.pixels + pick.sample * numbers;
    float *out = x + blockIdx.x * numbers;

    for (int i = first; i < plane; i += (int)(gridDim.y * blockDim.x)) {
        const int down = i / width, right = i % width;
        const int row = down + pick.down;
        const int column = (pick.flip ? width - 1 - right : right) + pick.right;
        const bool shows = row >= 0 && row < images.height && column >= 0 && column < width;
        const bool is_cut_out =
            down >= pick.top && down < pick.bottom && right >= pick.left && right < pick.end;

        for (int c = 0; c < images.channels; c++) {
            const int byte = shows ? pixels[(int64_t)c * plane + row * width + column] : 0;
            out[(int64_t)i * images.channels + c] =
                is_cut_out ? 0.0f : images.values[c * DEVICE_BYTES + byte];
        }
    }
    if (first == 0 && y)
        y[blockIdx.x] = images.labels[pick.sample];
}

extern "C" void cuda_pick(struct device_stream *stream, const struct device_images *images,
                          const struct pick *picks, size_t rows, float *x, int32_t *y)
{
    const struct view view = { images->pixels,        images->labels,      images->values,
                               (int)images->channels, (int)images->height, (int)images->width };

    enum { MOST = 64 }; /* blocks a sample */
    const unsigned blocks = blocks_of(images->height * images->width, THREADS);
    const dim3 grid((unsigned)rows, blocks < MOST ? blocks : MOST);

    if (rows == 0)
        return;
    pick_samples<<<grid, THREADS, 0, stream->cuda>>>(view, picks, x, y);
    stream_check(stream, "pick");
}
