/* SPDX-License-Identifier: MIT */
/* seq2seq.h - the two graphs that translate with a trained seq2seq.
 *
 * Training runs encoder and decoder over whole sentences in one graph (model_build). Translation
 * runs the encoder once, then the decoder one token at a time, the states of its layers going in
 * and coming out. Both graphs have the parameters of the trained one, under the same names, and
 * nothing of training: no dropout, no loss.
 *
 * Inputs and outputs are values with the names below; the struct holds the same ones. A state is
 * (N, 2H) for LSTM, h then c, and (N, H) for GRU.
 *
 *   encoder   in   "source"  ids (N,S), i32, -1 where a sentence is over
 *             out  "state0", "state1", ... of the layers after the last token
 *                  with attention: "memory" (N,S,H), what the last layer says of each token, and
 *                  "keys" (N,S,H), which the decoder compares its state with
 *   decoder   in   "token"   ids (N,1): the last token of each sentence, <bos> first
 *                  "state0", "state1", ... from the encoder, then from the last step
 *                  with attention: "source", "memory", "keys" as above
 *             out  "logits"  (N,1,V) of the next token
 *                  "next0", "next1", ... the states after this token
 *
 * N is the number of rows: sentences, or the hypotheses of a beam. All rows of a call are
 * independent of each other, so a beam may gather and repeat rows of states, memory, keys and source.
 */
#ifndef MODEL_SEQ2SEQ_H
#define MODEL_SEQ2SEQ_H

#include "model/model.h"

enum { SEQ2SEQ_LAYERS = 8 };

struct seq2seq_encoder {
    struct graph *graph; /* owns the values */
    int layers;
    struct value *source;
    struct value *state[SEQ2SEQ_LAYERS];
    struct value *memory, *keys; /* NULL without attention */
};

struct seq2seq_decoder {
    struct graph *graph;
    int layers;
    struct value *token, *state[SEQ2SEQ_LAYERS];
    struct value *source, *memory, *keys; /* NULL without attention */
    struct value *logits, *next[SEQ2SEQ_LAYERS];
};

/* `config` is that of the trained model (options, vocab); batch and length are what the values'
 * shapes say at first, which graph_infer changes. The caller destroys out->graph. */
MUST_CHECK enum status seq2seq_build_encoder(const struct model_config *config,
                                             struct seq2seq_encoder *out);
MUST_CHECK enum status seq2seq_build_decoder_step(const struct model_config *config,
                                                  struct seq2seq_decoder *out);

#endif /* MODEL_SEQ2SEQ_H */
