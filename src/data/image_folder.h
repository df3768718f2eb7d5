/* SPDX-License-Identifier: MIT */
/* image_folder.h - the format of folders with a folder of images a class. Private to data/.
 *
 * train/CLASS/FILE and test/CLASS/FILE (or val for test), PNG and JPEG. All images have the
 * size of the first one; where that is in colour, grey ones become three equal planes. They
 * are decoded when the split is opened and kept in memory.
 */
#ifndef DATA_IMAGE_FOLDER_H
#define DATA_IMAGE_FOLDER_H

#include "data/format.h"

extern const struct format format_images;

#endif /* DATA_IMAGE_FOLDER_H */
