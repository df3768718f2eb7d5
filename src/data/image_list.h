/* SPDX-License-Identifier: MIT */
/* image_list.h - the files of a folder of images. Private to data/.
 *
 * FOLDER/train/CLASS/FILE and FOLDER/test/CLASS/FILE, or val for test. Classes are the names
 * of train's folders in the order of their bytes. Hidden files are passed over; anything else
 * that does not belong is refused.
 */
#ifndef DATA_IMAGE_LIST_H
#define DATA_IMAGE_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/status.h"
#include "data/dataset.h"

struct image_entry {
    const char *path;
    int32_t label;
    int32_t turn; /* its place among the files of its class */
};

struct image_list {
    struct arena *arena; /* of all text */
    const char **class_names;
    int classes;
    /* By split: the first file of every class, then the second of every class, and so on, so
     * that the first N samples hold all classes. A test split that is absent is empty. */
    struct image_entry *entry[2];
    size_t count[2];
};

MUST_CHECK enum status image_list_read(const char *folder, struct image_list *out);
void image_list_release(struct image_list *list);

/* The folder of a split, or NULL if it is not there; valid until the next call in this
 * thread. */
const char *image_list_folder(const char *folder, enum dataset_split split);

#endif /* DATA_IMAGE_LIST_H */
