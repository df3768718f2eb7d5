/* SPDX-License-Identifier: MIT */
/* library.h - a user's model function as a model, for the public interface and the CLI. */
#ifndef TRAIN_LIBRARY_H
#define TRAIN_LIBRARY_H

#include "model/model.h"
#include "tutti.h"

/* A model made of the function; one at a time in a thread. `name` is borrowed. */
struct model library_model(const char *name, tutti_model_fn *function);

#endif /* TRAIN_LIBRARY_H */
