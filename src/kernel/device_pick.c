/* SPDX-License-Identifier: MIT */
/* device_pick.c - the CPU as a device makes samples of images that it holds as bytes.
 *
 * A pixel of the result shows one of the image, moved and mirrored, or black beside it: byte 0, before its table says what that
 * stands for. What is cut out becomes 0 behind the table.
 */
#include "kernel/device_rows.h"

/* The pixel that the result shows at row y, column x; -1: none. */
static int64_t shown(const struct device_images *images, const struct pick *pick, int64_t y,
                     int64_t x)
{
    const int64_t row = y + pick->down;
    const int64_t column = (pick->flip ? images->width - 1 - x : x) + pick->right;

    if (row < 0 || row >= images->height || column < 0 || column >= images->width)
        return -1;
    return row * images->width + column;
}

static bool is_cut_out(const struct pick *pick, int64_t y, int64_t x)
{
    return y >= pick->top && y < pick->bottom && x >= pick->left && x < pick->end;
}

static void make_sample(const struct device_images *images, const struct pick *pick, float *out)
{
    const int64_t plane = images->height * images->width;
    const uint8_t *pixels = images->pixels + pick->sample * plane * images->channels;

    for (int64_t y = 0; y < images->height; y++) {
        for (int64_t x = 0; x < images->width; x++) {
            const int64_t from = shown(images, pick, y, x);
            for (int64_t c = 0; c < images->channels; c++) {
                const uint8_t byte = from < 0 ? 0 : pixels[c * plane + from];
                *out++ = is_cut_out(pick, y, x) ? 0 : images->values[c * DEVICE_BYTES + byte];
            }
        }
    }
}

void device_pick_cpu(struct device_stream *stream, const struct device_images *images,
                     const struct pick *picks, size_t rows, float *x, int32_t *y)
{
    const int64_t numbers = images->height * images->width * images->channels;

    (void)stream;
    for (size_t i = 0; i < rows; i++) {
        make_sample(images, &picks[i], x + (int64_t)i * numbers);
        if (y)
            y[i] = images->labels[picks[i].sample];
    }
}
