/* SPDX-License-Identifier: MIT */
/* fuzz_known.c - dataset.json as a stranger may have written it, and the same bytes as a
 * normalization. What is read prints and is read back as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "data/known.h"

#include "fuzz.h"

static void check_scale(const char *text, int channels)
{
    struct pixel_scale scale = { .deviation = { 1, 1, 1 } }, again = scale;
    char printed[SCALE_TEXT];

    if (scale_parse(text, channels, &scale) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    scale_print(&scale, channels, printed);
    BUG_ON(scale_parse(printed, channels, &again) != STATUS_OK);
    for (int c = 0; c < channels; c++)
        BUG_ON(scale.mean[c] != again.mean[c] || scale.deviation[c] != again.deviation[c] ||
               !(scale.deviation[c] > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum { TEXT_MOST = 4096 };
    struct known known = { 0 };
    char text[TEXT_MOST + 1];

    if (size > TEXT_MOST)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (known_parse(text, size, &known) != STATUS_OK)
        BUG_ON(!status_message()[0]);
    else if (*known.normalize)
        check_scale(known.normalize, 3);
    check_scale(text, 1);
    check_scale(text, 3);
    return 0;
}
