/* SPDX-License-Identifier: MIT */
/* import.h - the part of an import that a fetch shares. Private to data/. */
#ifndef DATA_IMPORT_H
#define DATA_IMPORT_H

#include "base/status.h"
#include "data/dataset.h"

/* Checks the data set in the folder `path`, as one called `name`, and writes its files,
 * unpacked, to the folder `target`. */
MUST_CHECK enum status import_files(const char *path, const char *name,
                                    enum dataset_layout layout, const char *target);

#endif /* DATA_IMPORT_H */
