/* SPDX-License-Identifier: MIT */
/* gpt.h - what generation needs of the model gpt beside the zoo's table: its graph for some tokens
 * more.
 *
 * model_build makes the graph that looks at whole sequences. The one here takes T tokens that come
 * after others and looks at these through caches of their keys and values, so that a token costs one
 * token's work. It has the same parameters under the same names, and serves any N and T <= context
 * (T is length 0 of the extents): a prompt at once, then token by token.
 *
 * A run changes no cache. After it, whoever runs it copies of each layer the last 2D of the 3D
 * numbers of every token in `fresh` to that token's place in `cache`:
 *
 *   cache[n][first[n] + t][0 .. 2D)  =  fresh[n][t][D .. 3D)
 */
#ifndef MODEL_GPT_H
#define MODEL_GPT_H

#include "model/model.h"

enum { GPT_LAYERS = 64 };

struct gpt_step {
    struct value *input;  /* input "input": ids (N, T) */
    struct value *first;  /* input "first": i32 (N), how many tokens are in the caches */
    struct value *output; /* logits (N, T, vocabulary) */
    int n_layers;
    int64_t context, width;          /* most tokens of a sequence; D */
    struct value *cache[GPT_LAYERS]; /* inputs "cache.0" ...: (N, context, 2D) */
    struct value *fresh[GPT_LAYERS]; /* made: queries, keys and values (N, T, 3D) */
};

extern const struct model model_gpt;

/* The graph for some tokens more of a gpt of these options; `config` as for model_build, and
 * training is ignored. */
MUST_CHECK enum status gpt_build_step(const struct model_config *config,
                                      struct graph **out_graph, struct gpt_step *out);

#endif /* MODEL_GPT_H */
