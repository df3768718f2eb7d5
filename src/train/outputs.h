/* SPDX-License-Identifier: MIT */
/* outputs.h - what a model gives for every sample, as a file. Private to train/. */
#ifndef TRAIN_OUTPUTS_H
#define TRAIN_OUTPUTS_H

#include "data/dataset.h"
#include "tensor/shape.h"

/* Which file a path asks for: a table in CSV, else safetensors. */
bool outputs_are_csv(const char *path);

/* Writes the outputs of all samples of `source`, shape->dim[0] of them, which `outputs` has in
 * the source's order, in the order of its files, with their ids and the names of classes
 * (docs/formats.md). As CSV outputs are `classes` numbers a sample. */
MUST_CHECK enum status outputs_write(const char *path, const struct source *source,
                                     const struct shape *shape, const float *outputs,
                                     int classes);

#endif /* TRAIN_OUTPUTS_H */
