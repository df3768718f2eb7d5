/* SPDX-License-Identifier: MIT */
/* reconstruct.c - samples of the test split above what the model makes of them, as a PNG.
 *
 * Cells stand apart by one pixel of the samples, which is transparent; all is enlarged by a whole number,
 * so that pixels stay square and the picture can be looked at by itself.
 */
#include "train/reconstruct.h"

#include <math.h>

#include "base/mem.h"
#include "report/pixmap.h"
#include "train/folder.h"

enum { COLUMNS = 8, CELL = 64 }; /* about how many pixels of the picture a sample's side has */

struct sheet {
    int width, height, channels; /* of a sample */
    int zoom, columns;
    int row_bytes;
    uint8_t *pixels; /* channels and alpha, side by side */
};

/* One sample a class, as far as there are so many, then whichever come first. */
static int pick_samples(const struct dataset *data, int64_t index[COLUMNS])
{
    bool seen[COLUMNS] = { false };
    int count = 0;

    for (int64_t i = 0; i < dataset_count(data) && count < COLUMNS; i++) {
        const int32_t label = dataset_label(data, i);
        if (label >= 0 && label < COLUMNS && !seen[label]) {
            seen[label] = true;
            index[count++] = i;
        }
    }
    for (int64_t i = 0; i < dataset_count(data) && count < COLUMNS; i++) {
        bool taken = false;
        for (int c = 0; c < count; c++)
            taken = taken || index[c] == i;
        if (!taken)
            index[count++] = i;
    }
    return count;
}

/* Puts C planes of a sample into a cell. */
static void put_cell(const struct sheet *sheet, int column, int row, const uint8_t *planes)
{
    const int plane = sheet->width * sheet->height;
    const int left = column * (sheet->width + 1) * sheet->zoom;
    const int top = row * (sheet->height + 1) * sheet->zoom;

    for (int y = 0; y < sheet->height * sheet->zoom; y++) {
        uint8_t *to =
            sheet->pixels + (top + y) * sheet->row_bytes + left * (sheet->channels + 1);
        for (int x = 0; x < sheet->width * sheet->zoom; x++) {
            const int from = y / sheet->zoom * sheet->width + x / sheet->zoom;
            for (int c = 0; c < sheet->channels; c++)
                *to++ = planes[c * plane + from];
            *to++ = 255;
        }
    }
}

/* C planes of what the model takes and gives, which is normalized or in [0, 1], as pixels. */
static void to_pixels(const struct job *job, const float *planes, uint8_t *pixels)
{
    const struct pixel_scale used = dataset_scale(job->test_images);
    const struct shape sample = dataset_sample(job->test_images);
    const int64_t plane = sample.dim[1] * sample.dim[2];

    for (int64_t p = 0; p < sample.dim[0] * plane; p++) {
        const float value = planes[p] * used.deviation[p / plane] + used.mean[p / plane];
        pixels[p] = value > 0 ? (uint8_t)lroundf(255 * fminf(value, 1)) : 0;
    }
}

static enum status fill_sheet(const struct job *job, struct exec *exec, struct sheet *sheet,
                              const int64_t *index)
{
    const size_t floats = (size_t)(sheet->width * sheet->height * sheet->channels);
    float *outputs = NULL;
    uint8_t *pixels = NULL;

    enum status status = mem_alloc((size_t)sheet->columns * floats, sizeof *outputs, &outputs);
    if (status == STATUS_OK)
        status = mem_alloc(floats, 1, &pixels);
    if (status == STATUS_OK)
        status = exec_predict(exec, job->test, index, sheet->columns, outputs);
    for (int i = 0; i < sheet->columns && status == STATUS_OK; i++) {
        put_cell(sheet, i, 0, dataset_pixels(job->test_images, index[i]));
        to_pixels(job, outputs + (size_t)i * floats, pixels);
        put_cell(sheet, i, 1, pixels);
    }
    mem_free(outputs);
    mem_free(pixels);
    return status;
}

static enum status write_sheet(const struct job *job, const struct sheet *sheet, int width,
                               int height)
{
    const struct pixmap image = { .width = width,
                                  .height = height,
                                  .channels = sheet->channels + 1,
                                  .pixels = sheet->pixels };
    struct strbuf png;

    strbuf_init(&png, 64 << 20);
    pixmap_png(&png, &image);
    enum status status = folder_write_picture(job, FOLDER_RECONSTRUCTIONS, &png);
    strbuf_release(&png);
    return status;
}

/* Whether the output can be seen as a sample: grey or coloured, and as large. */
static bool is_reconstruction(const struct graph_roles *roles)
{
    const struct shape *in = &roles->input->shape;
    const struct shape *out = roles->output ? &roles->output->shape : NULL;

    return !roles->correct && out && in->rank == 4 && (in->dim[1] == 1 || in->dim[1] == 3) &&
           shape_count(in) / in->dim[0] == shape_count(out) / out->dim[0];
}

bool reconstructions_are_made(const struct job *job)
{
    return is_reconstruction(graph_roles(job->eval_graph));
}

enum status write_reconstructions(const struct job *job, struct exec *exec)
{
    int64_t index[COLUMNS] = { 0 };

    if (!reconstructions_are_made(job))
        return STATUS_OK;
    const struct shape sample = dataset_sample(job->test_images);
    const int columns = pick_samples(job->test_images, index);
    if (columns == 0)
        return STATUS_OK;
    struct sheet sheet = { .width = (int)sample.dim[2],
                           .height = (int)sample.dim[1],
                           .channels = (int)sample.dim[0],
                           .columns = columns };
    sheet.zoom = sheet.width < CELL ? (CELL + sheet.width - 1) / sheet.width : 1;
    const int width = (columns * (sheet.width + 1) - 1) * sheet.zoom;
    const int height = (2 * sheet.height + 1) * sheet.zoom;
    if (width > PIXMAP_SIDE || height > PIXMAP_SIDE)
        return STATUS_OK;
    sheet.row_bytes = width * (sheet.channels + 1);
    TRY(mem_alloc((size_t)sheet.row_bytes, (size_t)height, &sheet.pixels));
    enum status status = fill_sheet(job, exec, &sheet, index);
    if (status == STATUS_OK)
        status = write_sheet(job, &sheet, width, height);
    mem_free(sheet.pixels);
    return status;
}
