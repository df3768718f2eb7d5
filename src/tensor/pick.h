/* SPDX-License-Identifier: MIT */
/* pick.h - an image of a data set, and what augmentation does to it: what a device that holds the data set has to be
 * told of a sample. Plain numbers of one layout, as they are copied to devices. */
#ifndef TENSOR_PICK_H
#define TENSOR_PICK_H

#include <stdint.h>

struct pick {
    int32_t sample;
    int16_t down, right;            /* the window's place, seen from the image */
    int16_t top, bottom, left, end; /* rows [top, bottom), columns [left, end) become 0 */
    int16_t flip;                   /* 1: mirrored left to right */
    int16_t unused;
};
enum { PICK_SIDE = INT16_MAX }; /* pixels of an image's side at most */

#endif /* TENSOR_PICK_H */
