/* SPDX-License-Identifier: MIT */
/* names.h - tensors of weight files that others wrote, under the names that models have here.
 *
 * Hugging Face writes a bare GPT-2 as it is called here and one with a head with "transformer." before
 * each name; some files also hold what follows from other tensors or is no parameter at all.
 */
#ifndef EXEC_NAMES_H
#define EXEC_NAMES_H

#include <stdbool.h>

#include "tensor/safetensors.h"

/* The tensor of a parameter's name, with or without "transformer." before it; NULL if absent. */
const struct safetensors_entry *names_find(const struct safetensors *file, const char *name);

/* What a tensor of a file is called here: the name without "transformer.". */
const char *names_bare(const char *name);

/* May a tensor that is no parameter be left alone? So may counts of batch norms, masks and places of
 * attention, and a head that is the same as the table which it is tied to. */
bool names_is_spare(const struct safetensors *file, const struct safetensors_entry *entry);

#endif /* EXEC_NAMES_H */
