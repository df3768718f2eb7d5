/* SPDX-License-Identifier: MIT */
/* recorded.h - what a run keeps of its data, so that it is used on other data as on its own.
 * Private to train/.
 *
 * config.json has the normalization and the size of images, classes.txt the names of classes.
 * Runs of older versions lack both: their normalization followed from the name of their data,
 * the names of their classes are in summary.json.
 */
#ifndef TRAIN_RECORDED_H
#define TRAIN_RECORDED_H

#include "data/class_map.h"
#include "data/dataset.h"
#include "data/names.h"
#include "model/model.h"

struct recorded {
    char data[1024];     /* the data set's name or path */
    bool has_normalize;  /* else the run is older, and has that of recorded_scale */
    struct shape sample; /* of images; rank 0: not known */
    struct names names;
    struct class_list classes; /* count 0: not known */
};

/* Reads the run in `folder`. STATUS_CORRUPT names the file. */
MUST_CHECK enum status recorded_read(const char *folder, struct recorded *out);
/* A run that begins with a graph file has the classes that the file names. */
MUST_CHECK enum status recorded_take(const struct model *model, struct recorded *out);
void recorded_release(struct recorded *recorded);

/* How older versions normalized the pixels of data of this name or path: as the known data set
 * that its last part names. */
struct pixel_scale recorded_old_scale(const char *data, int channels);

/* Writes folder/classes.txt; nothing where there are no classes. */
MUST_CHECK enum status recorded_write_classes(const char *folder,
                                              const struct dataset_info *info);

#endif /* TRAIN_RECORDED_H */
