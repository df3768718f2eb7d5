/* SPDX-License-Identifier: MIT */
/* pass.c - running a list of passes. */
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

const struct pass *const pass_evaluation[] = { &pass_tensor, &pass_fuse,        &pass_cut,
                                               &pass_stage,  &pass_split_batch, NULL };

enum status pass_run(struct graph *graph, const struct pass *const *passes,
                     const struct pass_config *config, const char *last)
{
    for (int i = 0; passes[i]; i++) {
        enum status status = passes[i]->run(graph, config);
        if (status == STATUS_OK)
            status = graph_verify(graph);
        if (status != STATUS_OK)
            return FAIL(status, "pass %s: %s", passes[i]->name, status_message());
        if (last && strcmp(last, passes[i]->name) == 0)
            break;
    }
    return STATUS_OK;
}

struct value *pass_bucket_value(const struct graph *graph, int bucket, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "bucket%d.%s", bucket, what);
    return graph_find_value(graph, name);
}

int pass_bucket_count(const struct graph *graph)
{
    int count = 0;
    while (pass_bucket_value(graph, count, "param"))
        count++;
    return count;
}

bool pass_bucket_is_average(const struct graph *graph, int bucket)
{
    const struct value *flat = pass_bucket_value(graph, bucket, "param");

    for (int i = 0; i < graph_value_count(graph); i++) {
        if (graph_value(graph, i)->kind == VALUE_AVERAGE && graph_value(graph, i)->flat == flat)
            return true;
    }
    return false;
}
