/* SPDX-License-Identifier: MIT */
/* idx_folder.h - the format of folders that hold four IDX files. Private to data/.
 *
 * train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
 * t10k-labels-idx1-ubyte, each plain or with the ending .gz. One NAME- before all of them is
 * allowed, and test for t10k.
 */
#ifndef DATA_IDX_FOLDER_H
#define DATA_IDX_FOLDER_H

#include "data/format.h"

extern const struct format format_idx;

#endif /* DATA_IDX_FOLDER_H */
