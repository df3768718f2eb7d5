/* SPDX-License-Identifier: MIT */
/* cifar.h - the binary version of CIFAR-10 and CIFAR-100. Private to data/.
 *
 * A file is records without a header. CIFAR-10: a label, then planes R, G, B of 32 x 32
 * bytes. CIFAR-100: two labels, the superclass's (coarse) and the class's (fine, which is
 * used), then the planes. Files are mapped; a sample is used where it lies.
 */
#ifndef DATA_CIFAR_H
#define DATA_CIFAR_H

#include <stddef.h>
#include <stdint.h>

#include "data/format.h"

struct cifar_kind; /* CIFAR-10 or CIFAR-100 */
extern const struct cifar_kind cifar_10, cifar_100;

/* Checks a file in memory: whole records, all labels below `classes`. `path` is named in
 * messages. *out points into `bytes`. */
MUST_CHECK enum status cifar_parse(const struct cifar_kind *kind, const char *path,
                                   const uint8_t *bytes, size_t length, int classes,
                                   struct format_part *out);

/* data_batch_1.bin to data_batch_5.bin, test_batch.bin, names in batches.meta.txt. */
extern const struct format format_cifar_10;
/* train.bin, test.bin, names in fine_label_names.txt. */
extern const struct format format_cifar_100;

#endif /* DATA_CIFAR_H */
