/* SPDX-License-Identifier: MIT */
/* data_table.c - tutti data info about a table: its features, how often they are there, its classes. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "data/tabular.h"

struct splits {
    struct tabular *train, *test;
};

static enum status open_splits(const char *name, struct splits *out)
{
    struct tabular_config config = { 0 };

    TRY(tabular_open(name, DATASET_TRAIN, &config, &out->train));
    config.schema = tabular_schema(out->train);
    const enum status status = tabular_open(name, DATASET_TEST, &config, &out->test);
    if (status != STATUS_OK)
        tabular_close(out->train);
    return status;
}

static void count_classes(const struct tabular *table, int64_t *counts)
{
    const struct source *source = tabular_as_source(table);

    for (int64_t i = 0; i < source_count(source); i++)
        counts[source_label(source, i)]++;
}

/* Columns with what they are and how many training rows have them. */
static enum status print_columns(const struct tabular *table)
{
    const struct schema *schema = tabular_schema(table);
    double *statistics;

    TRY(mem_alloc((size_t)schema_statistics(schema), sizeof *statistics, &statistics));
    tabular_statistics(table, NULL, 0, statistics);
    for (int i = 0; i < schema_columns(schema); i++) {
        struct schema_summary about;
        schema_summarize(schema, i, statistics, &about);
        printf("  column %-3d %-18s %-9s", i + 1, schema_column_name(schema, i), about.kind);
        if (about.features)
            printf(" %7.0f there", about.there);
        if (!isnan(about.mean))
            printf("   mean %-10.4g deviation %.4g", about.mean, about.deviation);
        else if (about.features)
            printf("   %d different", about.features);
        puts("");
    }
    mem_free(statistics);
    return STATUS_OK;
}

static enum status print_text(const struct splits *s)
{
    const struct source *train = tabular_as_source(s->train),
                        *test = tabular_as_source(s->test);
    const struct schema *schema = tabular_schema(s->train);
    const int classes = schema_classes(schema);
    int64_t *counts; /* of training, then of test */

    TRY(mem_alloc((size_t)classes, 2 * sizeof *counts, &counts));
    count_classes(s->train, counts);
    count_classes(s->test, counts + classes);
    printf("%s: %s\n\n", train->info->name, train->info->title);
    printf("  path         %s\n  format       %s\n", train->path, train->info->format);
    printf("  rows         %lld training, %lld test\n  features     %lld\n",
           (long long)source_count(train), (long long)source_count(test),
           (long long)schema_features(schema));
    printf("  fingerprint  %s\n\n", train->fingerprint);
    const enum status status = print_columns(s->train);
    puts("");
    for (int i = 0; i < classes; i++)
        printf("  class %-3d %-18s %6lld %6lld\n", i, schema_class_names(schema)[i],
               (long long)counts[i], (long long)counts[classes + i]);
    mem_free(counts);
    return status;
}

static enum status print_json(const struct splits *s)
{
    const struct source *train = tabular_as_source(s->train),
                        *test = tabular_as_source(s->test);
    const struct schema *schema = tabular_schema(s->train);
    struct strbuf text;

    strbuf_init(&text, 64 << 20);
    strbuf_add(&text, "{\"name\": ");
    strbuf_add_json(&text, train->info->name);
    strbuf_add(&text, ", \"path\": ");
    strbuf_add_json(&text, train->path);
    strbuf_printf(&text,
                  ", \"format\": \"%s\", \"train\": %lld, \"test\": %lld, \"features\": %lld, "
                  "\"classes\": %d, \"fingerprint\": \"%s\", \"schema\": ",
                  train->info->format, (long long)source_count(train),
                  (long long)source_count(test), (long long)schema_features(schema),
                  schema_classes(schema), train->fingerprint);
    schema_print(schema, &text);
    strbuf_add(&text, "}");
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        puts(text.text);
    strbuf_release(&text);
    return status;
}

enum status cli_show_table(const char *name, bool json)
{
    struct splits splits;

    TRY(open_splits(name, &splits));
    tabular_warn(splits.train);
    const enum status status = json ? print_json(&splits) : print_text(&splits);
    tabular_close(splits.train);
    tabular_close(splits.test);
    return status;
}
