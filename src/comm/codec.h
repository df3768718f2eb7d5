/* SPDX-License-Identifier: MIT */
/* codec.h - gradients made smaller for the wire, with error feedback.
 *
 * A codec turns a flat vector of floats, one bucket of a node, into a payload of fewer bytes.
 * All nodes' payloads are gathered, and every node decodes all of them in the order of nodes:
 * so all have the same sum, to the last bit. What a node could not send it keeps as its
 * error and adds to the next step's gradient; over steps nothing is lost (Seide et al. 2014,
 * Karimireddy et al. 2019): sum of what was decoded + errors = sum of gradients.
 *
 * A step has rounds: most codecs one, powersgd two. The caller does in each
 *
 *   bytes = codec_encode(state, round, gradient, payload);
 *   ... payloads of all nodes are gathered ...
 *   codec_decode(state, round, payloads, bytes, n_nodes, sum);
 *
 * and after the last one `sum` is there. Nothing here knows ranks or messages.
 *
 * What is not a number is sent, never hidden: a NaN in the gradient is one in the sum.
 *
 * Threads: one at a time a state.
 * Errors:  codec_parse STATUS_USAGE; codec_decode STATUS_CORRUPT if a payload is not one of
 *          this codec, which leaves `sum` and the state as they were.
 * Buffers: borrowed for the call; payloads are aligned to 4 bytes. Numbers in payloads have the
 *          machine's byte order.
 */
#ifndef COMM_CODEC_H
#define COMM_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct codec;                              /* a row of the table */
extern const struct codec *const codecs[]; /* ended by NULL */
const char *codec_name(const struct codec *codec);
const char *codec_summary(const struct codec *codec);

struct codec_config {
    const struct codec *codec;
    double amount; /* topk: share of the elements; powersgd: rank; int8, onebit: block */
    uint64_t seed; /* powersgd: of the first Q */
};

/* Reads "bf16", "int8", "topk:0.01", "powersgd:4": a name, and its number if another than the
 * usual one is meant. The seed becomes 0. */
MUST_CHECK enum status codec_parse(const char *text, struct codec_config *out);

/* A matrix within the flat vector: rows * cols elements from `offset` on, row by row. */
struct codec_matrix {
    size_t offset, rows, cols;
};
/* Matrices in the order of their offsets, none over another; what no matrix holds is sent by
 * powersgd as it is. The other codecs do not look. NULL for no matrix. */
struct codec_layout {
    const struct codec_matrix *matrices;
    size_t n_matrices;
};

/* A bucket's state: its error and, for powersgd, Q. */
struct codec_state;

MUST_CHECK enum status codec_create(const struct codec_config *config,
                                    const struct codec_layout *layout, size_t count,
                                    struct codec_state **out);
void codec_destroy(struct codec_state *state); /* NULL is allowed */

int codec_rounds(const struct codec_state *state);
/* Bytes of a payload; the same on every node, for every gradient. */
size_t codec_max_bytes(const struct codec_state *state, int round);

/* Adds the error to the gradient, in the first round, and writes what is sent; after the last
 * round the error is what was not. Returns codec_max_bytes. */
size_t codec_encode(struct codec_state *state, int round, const float *gradient, void *payload);
/* Payloads of all nodes in their order, the own one among them; sum: `count` floats, written in
 * the last round only (NULL is allowed in others). */
MUST_CHECK enum status codec_decode(struct codec_state *state, int round,
                                    const void *const payloads[], const size_t bytes[], int n,
                                    float *sum);

/* What a checkpoint holds of a state. To save, read them; to load, write them.
 *
 * "error" has the bucket's length, element i belonging to the gradient's element i. It is each
 * node's own. Where a run goes on with another number of nodes, the errors of all nodes are
 * added and node 0 has the sum, the others zeros: what was not sent yet is sent by somebody.
 * "q" (powersgd) is the same on every node; without it the next steps begin as the first did. */
struct codec_vector {
    const char *name;
    float *data;
    size_t count;
};
enum { CODEC_VECTORS = 2 };
/* Fills at most CODEC_VECTORS; returns how many there are. */
int codec_vectors(struct codec_state *state, struct codec_vector *out);

#endif /* COMM_CODEC_H */
