/* SPDX-License-Identifier: MIT */
/* file.h - a model that is a text: its forward graph and what it learns from, as JSON.
 *
 * Such a text is what a machine gives another to train (docs/formats.md, "Graph files"). It is read
 * as what may be hostile: graph/file.h says what is refused.
 *
 * Threads: a file that was read is not changed; any thread.
 */
#ifndef MODEL_FILE_H
#define MODEL_FILE_H

#include "base/strbuf.h"
#include "model/model.h"

enum { MODEL_FILE_BYTES = 16 << 20 }; /* of a text */

struct model_file;

/* Adds the text of the model as it is with this configuration: with the shapes, classes and vocabulary
 * of some data. batch, training and label_smoothing are not looked at. */
MUST_CHECK enum status model_file_print(const struct model *model,
                                        const struct model_config *config, struct strbuf *out);

/* Reads text[0..length). Failure: STATUS_CORRUPT and the reason. */
MUST_CHECK enum status model_file_parse(const char *text, size_t length,
                                        struct model_file **out);
void model_file_destroy(struct model_file *file); /* NULL is allowed */
/* As a model of the zoo: for job_create, model_build. It has no options, and its shapes are fixed: data
 * that do not fit are refused as the graph is built. Valid as long as the file. */
const struct model *model_file_model(const struct model_file *file);

/* For model_build. */
MUST_CHECK enum status model_file_build(const struct model_file *file,
                                        const struct model_config *config, struct graph **out);

#endif /* MODEL_FILE_H */
