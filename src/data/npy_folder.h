/* SPDX-License-Identifier: MIT */
/* npy_folder.h - the format of folders that hold four NumPy arrays. Private to data/.
 *
 * x_train.npy, y_train.npy, x_test.npy and y_test.npy. Images are bytes of shape (N, H, W), (N, H,
 * W, C) or (N, C, H, W) with 1 or 3 channels, which say where C is (if two dimensions could be it,
 * the second, with a warning, unless a layout is given); labels are integers of any type, of shape
 * (N) or (N, 1). classes.txt, a name a line, may be there too. Planes, (N, C, H, W) and what has
 * one channel, are mapped; (N, H, W, 3) becomes planes when opened, in the process's own copies of
 * the mapped pages.
 */
#ifndef DATA_NPY_FOLDER_H
#define DATA_NPY_FOLDER_H

#include "data/format.h"

extern const struct format format_npy;

/* Writes an open split as x_....npy and y_....npy to the folder `target`, as planes. */
MUST_CHECK enum status npy_folder_write(const struct format_data *data,
                                        enum dataset_split split, const char *target);
/* Writes classes.txt, if the data set knows names. */
MUST_CHECK enum status npy_folder_write_names(const struct format_data *data,
                                              const char *target);

#endif /* DATA_NPY_FOLDER_H */
