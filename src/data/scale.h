/* SPDX-License-Identifier: MIT */
/* scale.h - the normalization of pixels as text: what --normalize and dataset.json say.
 *
 *   none           bytes as they are, 0 to 255
 *   scale          0 to 1
 *   imagenet       mean 0.485, 0.456, 0.406, deviation 0.229, 0.224, 0.225: torchvision's weights
 *   NAME           that of a data set of images that tutti knows, such as cifar-10
 *   mean:M/std:S   (x - M) / S of pixels from 0 to 1: one number each, or one a channel, with
 *                  commas
 *
 * "dataset" is no such text: somebody measures it (dataset_measure_scale).
 */
#ifndef DATA_SCALE_H
#define DATA_SCALE_H

#include "data/dataset.h"

enum { SCALE_TEXT = 160 };

/* STATUS_USAGE says what would be right; it begins with `text` in quotes, or is a sentence
 * about it. */
MUST_CHECK enum status scale_parse(const char *text, int channels, struct pixel_scale *out);
/* "mean:0.286/std:0.353", the shortest numbers that scale_parse reads as the same floats; one
 * where all channels have the same. Returns `out`. */
const char *scale_print(const struct pixel_scale *scale, int channels, char out[SCALE_TEXT]);

#endif /* DATA_SCALE_H */
