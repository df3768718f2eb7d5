/* SPDX-License-Identifier: MIT */
/* data_page.h - a data set as one HTML page: classes, pixel values, samples.
 *
 * report/ does not know data sets: who does fills in what is to be shown.
 */
#ifndef REPORT_DATA_PAGE_H
#define REPORT_DATA_PAGE_H

#include <stdint.h>

#include "base/status.h"
#include "report/pixmap.h"

enum { DATA_PAGE_CHANNELS = 3, DATA_PAGE_VALUES = 256 };

struct data_page {
    const char *name, *title, *folder, *format, *fingerprint;
    int width, height, channels; /* of a sample; 1 or 3 channels */
    int64_t train, test;         /* samples */

    size_t classes;
    const char *const *class_names;
    const double *class_samples; /* [split * classes + class]: training, then test */

    /* Of the training split: how often each value occurs in each channel. */
    const uint64_t (*values)[DATA_PAGE_VALUES];
    /* What is subtracted and divided by before training, of pixels in [0, 1]. */
    const float *mean, *deviation;

    const struct pixmap *averages; /* of each class; pixels NULL: none */
    size_t per_class;              /* samples shown */
    const struct pixmap *samples;  /* [class * per_class + i]; pixels NULL: there are fewer */
};

/* Writes the page to `path`, replaced as a whole. */
MUST_CHECK enum status data_page_write(const struct data_page *page, const char *path);

#endif /* REPORT_DATA_PAGE_H */
