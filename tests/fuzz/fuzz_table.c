/* SPDX-License-Identifier: MIT */
/* fuzz_table.c - after a byte that picks the parser: a CSV or LIBSVM file is cut into cells and, if a schema is
 * found in it, gives features that are numbers; a schema that is accepted gives the same when it is written and read. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/schema_parts.h"
#include "fuzz.h"

enum { BYTES = 1 << 16, TEXT_MOST = 16 << 20 };

static void check_schema(const struct schema *schema)
{
    struct strbuf first, second;
    struct schema *again;

    strbuf_init(&first, TEXT_MOST);
    strbuf_init(&second, TEXT_MOST);
    schema_print(schema, &first);
    BUG_ON(schema_copy(schema, &again) != STATUS_OK);
    schema_print(again, &second);
    BUG_ON(strcmp(first.text, second.text) != 0);
    BUG_ON(schema_features(schema) != schema_features(again));
    schema_destroy(again);
    strbuf_release(&first);
    strbuf_release(&second);
}

/* All rows, as a table that is opened would have them. */
static void encode(const struct schema *schema, const struct cells *cells)
{
    const size_t columns = (size_t)schema->n_columns;
    double *row, *mean, *factor, *sums;
    float *features;
    int *at;

    BUG_ON(mem_alloc(3 * columns, sizeof *row, &row) != STATUS_OK);
    BUG_ON(mem_alloc(columns, sizeof *at, &at) != STATUS_OK);
    const int64_t n_features = schema_features(schema);
    BUG_ON(mem_alloc((size_t)n_features, sizeof *features, &features) != STATUS_OK);
    const size_t count = (size_t)schema_statistics(schema);
    BUG_ON(mem_alloc(count, sizeof *sums, &sums) != STATUS_OK);
    mean = row + columns;
    factor = mean + columns;
    BUG_ON(schema_match(schema, "fuzz", cells, at) != STATUS_OK);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t i = 0; i < cells->rows; i++) {
            bool is_read = true;
            for (int c = 0; c < schema->n_columns; c++)
                is_read &=
                    schema_value(schema, c, "fuzz", i, cells->cell[i * cells->columns + at[c]],
                                 &row[c]) == STATUS_OK;
            if (!is_read)
                continue;
            if (pass == 0) {
                schema_add_statistics(schema, row, sums);
                continue;
            }
            schema_encode(schema, row, mean, factor, features);
            for (int64_t f = 0; f < n_features; f++)
                BUG_ON(!isfinite(features[f]));
        }
        schema_scales(schema, sums, mean, factor);
    }
    mem_free(row);
    mem_free(at);
    mem_free(features);
    mem_free(sums);
}

static void parse_table(bool is_libsvm, const char *text, size_t length)
{
    const struct schema_hints hints = { .label = is_libsvm ? "label" : "",
                                        .is_plain = is_libsvm };
    struct schema *schema;
    struct cells cells;
    char *copy;

    BUG_ON(mem_alloc(length + 1, 1, &copy) != STATUS_OK);
    memcpy(copy, text, length);
    if ((is_libsvm ? libsvm_parse("fuzz", copy, length, 2, &cells)
                   : csv_parse("fuzz", copy, length, &cells)) != STATUS_OK) {
        BUG_ON(!*status_message());
        return;
    }
    for (int64_t i = 0; i < cells.rows * cells.columns; i++)
        BUG_ON(strlen(cells.cell[i]) > length + 1);
    if (schema_find("fuzz", &cells, &hints, &schema) == STATUS_OK) {
        check_schema(schema);
        encode(schema, &cells);
        schema_destroy(schema);
    }
    cells_release(&cells);
}

static void parse_schema(const char *text, size_t length)
{
    struct schema *schema;
    struct json *json;

    if (json_parse(text, length, &json) != STATUS_OK)
        return;
    if (schema_read(json_root(json), &schema) == STATUS_OK) {
        check_schema(schema);
        schema_destroy(schema);
    }
    json_destroy(json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1 || size > BYTES)
        return 0;
    if (data[0] == 'j')
        parse_schema((const char *)data + 1, size - 1);
    else
        parse_table(data[0] == 's', (const char *)data + 1, size - 1);
    return 0;
}
