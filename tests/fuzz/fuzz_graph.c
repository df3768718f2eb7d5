/* SPDX-License-Identifier: MIT */
/* fuzz_graph.c - a graph file that is accepted gives the same text when it is written and read again, builds for
 * training and evaluation, and passes make a step of it or say why not. */
#include <string.h>

#include "fuzz.h"
#include "model/file.h"
#include "optim/optim.h"
#include "pass/strategy.h"

enum { BATCH = 6, SHARDS = 2, TEXT_MOST = 64 << 20 };

static void run_passes(struct graph *graph)
{
    const struct pass_config config = {
        .batch = BATCH,
        .shards = SHARDS,
        .ranks = 1,
        .bucket_bytes = 1 << 20,
        .factors = true,
        .optim = { .optimizer = optim_find("sgd") },
    };

    if (pass_run(graph, strategy_find("single")->passes, &config, NULL) != STATUS_OK)
        BUG_ON(!*status_message());
}

static void build_both(const struct model *model)
{
    for (int training = 0; training < 2; training++) {
        struct model_config config = model_defaults(model);
        struct graph *graph;

        config.batch = BATCH;
        config.training = training;
        if (model_build(model, &config, &graph) != STATUS_OK) {
            BUG_ON(!*status_message());
            continue;
        }
        if (training)
            run_passes(graph);
        graph_destroy(graph);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_file *file, *again;
    struct strbuf text, second;

    if (model_file_parse((const char *)data, size, &file) != STATUS_OK) {
        BUG_ON(!*status_message());
        return 0;
    }
    const struct model *model = model_file_model(file);
    const struct model_config config = model_defaults(model);
    build_both(model);
    strbuf_init(&text, TEXT_MOST);
    strbuf_init(&second, TEXT_MOST);
    BUG_ON(model_file_print(model, &config, &text) != STATUS_OK);
    BUG_ON(model_file_parse(text.text, text.length, &again) != STATUS_OK);
    BUG_ON(model_file_print(model_file_model(again), &config, &second) != STATUS_OK);
    BUG_ON(strcmp(text.text, second.text) != 0);
    model_file_destroy(again);
    model_file_destroy(file);
    strbuf_release(&text);
    strbuf_release(&second);
    return 0;
}
