/* SPDX-License-Identifier: MIT */
/* scale.c - the normalization of pixels, read from words or numbers and printed as numbers. */
#include "data/scale.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3 };
static const float DEVIATION_MOST = 1e6f;

static const struct preset {
    const char *name;
    int channels; /* 0: any */
    struct pixel_scale scale;
} PRESETS[] = {
    { "none", 0, { .deviation = { 1.0f / 255, 1.0f / 255, 1.0f / 255 } } },
    { "scale", 0, { .deviation = { 1, 1, 1 } } },
    { "imagenet",
      CHANNELS,
      { .mean = { 0.485f, 0.456f, 0.406f }, .deviation = { 0.229f, 0.224f, 0.225f } } },
};

static bool is_of_images(const struct dataset_info *info)
{
    return info && info->sample.rank == CHANNELS && info->deviation[0] > 0;
}

static enum status check_channels(const char *text, int own, int channels)
{
    if (!own || own == channels)
        return STATUS_OK;
    return FAIL(STATUS_USAGE, "\"%s\" is for images of %d channels, these have %d", text, own,
                channels);
}

/* Reads numbers with commas between them up to `end`; how many there are, 0: something else is
 * there. */
static int read_numbers(const char *text, const char *end, float out[CHANNELS])
{
    for (int n = 0; n < CHANNELS; n++) {
        char *after;

        if (text == end || (*text != '.' && (*text < '0' || *text > '9')))
            return 0;
        out[n] = strtof(text, &after);
        if (!isfinite(out[n]))
            return 0;
        if (after == end)
            return n + 1;
        if (after > end || *after != ',')
            return 0;
        text = after + 1;
    }
    return 0;
}

static enum status check_numbers(const struct pixel_scale *scale, int channels)
{
    for (int c = 0; c < channels; c++) {
        if (scale->mean[c] > 1)
            return FAIL(STATUS_USAGE,
                        "mean %g is above 1: it is of pixels from 0 to 1: divide by 255",
                        (double)scale->mean[c]);
        if (!(scale->deviation[c] > 1 / DEVIATION_MOST) || scale->deviation[c] > DEVIATION_MOST)
            return FAIL(STATUS_USAGE, "std %g: must be greater than 0, from 1e-6 to 1e6",
                        (double)scale->deviation[c]);
    }
    return STATUS_OK;
}

/* One number holds for all channels. */
static bool spread(float *number, int count, int channels)
{
    for (int c = 1; c < channels && count == 1; c++)
        number[c] = number[0];
    return count == 1 || count == channels;
}

static enum status parse_numbers(const char *text, int channels, struct pixel_scale *out)
{
    static const char mean[] = "mean:", std[] = "/std:";
    const char *middle = strstr(text, std);
    struct pixel_scale scale = { .deviation = { 1, 1, 1 } };

    const int means = middle ? read_numbers(text + strlen(mean), middle, scale.mean) : 0;
    const char *rest = middle ? middle + strlen(std) : text;
    const int deviations =
        middle ? read_numbers(rest, rest + strlen(rest), scale.deviation) : 0;
    if (!means || !deviations)
        return FAIL(STATUS_USAGE,
                    "\"%s\": write mean:0.5/std:0.25, or a number a channel: "
                    "mean:0.5,0.5,0.4/std:0.2,0.2,0.3",
                    text);
    if (!spread(scale.mean, means, channels) || !spread(scale.deviation, deviations, channels))
        return FAIL(STATUS_USAGE, "\"%s\": give one number, or one for each of %d channels",
                    text, channels);
    TRY(check_numbers(&scale, channels));
    *out = scale;
    return STATUS_OK;
}

enum status scale_parse(const char *text, int channels, struct pixel_scale *out)
{
    const struct dataset_info *info = dataset_find(text);

    for (size_t i = 0; i < sizeof PRESETS / sizeof *PRESETS; i++) {
        if (strcmp(PRESETS[i].name, text) != 0)
            continue;
        TRY(check_channels(text, PRESETS[i].channels, channels));
        *out = PRESETS[i].scale;
        return STATUS_OK;
    }
    if (strncmp(text, "mean:", 5) == 0)
        return parse_numbers(text, channels, out);
    if (!is_of_images(info))
        return FAIL(STATUS_USAGE,
                    "\"%.80s\" is none of none, scale, dataset, imagenet, mean:M/std:S and the "
                    "names of data sets of images",
                    text);
    TRY(check_channels(text, (int)info->sample.dim[0], channels));
    *out = (struct pixel_scale){ .deviation = { 1, 1, 1 } };
    memcpy(out->mean, info->mean, (size_t)channels * sizeof *out->mean);
    memcpy(out->deviation, info->deviation, (size_t)channels * sizeof *out->deviation);
    return STATUS_OK;
}

/* As few digits as read back as the same float. */
static int print_number(float number, char *out, size_t room)
{
    int length = 0;

    for (int digits = 4; digits <= 9; digits++) {
        length = snprintf(out, room, "%.*g", digits, (double)number);
        if (strtof(out, NULL) == number)
            break;
    }
    return length;
}

static int print_numbers(const float *number, int channels, char *out, size_t room)
{
    int length = print_number(number[0], out, room);
    bool all_same = true;

    for (int c = 1; c < channels; c++)
        all_same = all_same && number[c] == number[0];
    for (int c = 1; c < channels && !all_same; c++) {
        out[length++] = ',';
        length += print_number(number[c], out + length, room - (size_t)length);
    }
    return length;
}

const char *scale_print(const struct pixel_scale *scale, int channels, char out[SCALE_TEXT])
{
    enum { HALF = SCALE_TEXT / 2 };
    char mean[HALF], deviation[HALF];

    print_numbers(scale->mean, channels, mean, sizeof mean);
    print_numbers(scale->deviation, channels, deviation, sizeof deviation);
    snprintf(out, SCALE_TEXT, "mean:%.70s/std:%.70s", mean, deviation);
    return out;
}
