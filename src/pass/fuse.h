/* SPDX-License-Identifier: MIT */
/* fuse.h - the parts of the pass `fuse`, in the order in which it runs them: fuse.c, fuse_norm.c. */
#ifndef PASS_FUSE_H
#define PASS_FUSE_H

#include "pass/pass.h"

/* Joins batch norms to the convolutions on both sides. */
MUST_CHECK enum status fuse_norms(struct graph *graph, const struct pass_config *config);

#endif /* PASS_FUSE_H */
