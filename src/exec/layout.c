/* SPDX-License-Identifier: MIT */
/* layout.c - places in the shards' records: factors of gradients, ids and dy of tables. */
#include "exec/layout.h"

#include "exec/topology.h"

enum status layout_place_factor(struct exec_layout *layout, const struct value *value,
                                int bucket, size_t *out_offset)
{
    const struct value *source = facts_source(value);
    struct plan_factors *factors = &layout->factors;

    for (int i = 0; i < factors->count; i++) {
        if (factors->item[i].value == source) {
            factors->item[i].buckets |= UINT64_C(1) << bucket;
            *out_offset = factors->item[i].offset;
            return STATUS_OK;
        }
    }
    if (factors->count == PLAN_FACTORS)
        return FAIL(STATUS_UNSUPPORTED, "more than %d factors", PLAN_FACTORS);
    factors->item[factors->count++] = (struct plan_factor){ .value = source,
                                                            .offset = layout->record,
                                                            .buckets = UINT64_C(1) << bucket };
    *out_offset = layout->record;
    const size_t count =
        layout->largest ? (size_t)shape_count(&layout->largest[source->id]) : 0;
    const size_t bytes = count * dtype_size(source->dtype);
    layout->record += (bytes + 63) / 64 * 64;
    return STATUS_OK;
}

static enum status place_factored(struct exec_layout *layout, const struct exec_model *model,
                                  int b)
{
    const struct node *node = layout->facts.buckets[b].sum;
    struct factored *f = &layout->factored[b];

    f->k = node->in[0]->shape.dim[1];
    f->n = node->in[1]->shape.dim[1];
    for (int i = 0; i < model->count; i++) {
        if (plan_bucket_of(model->params[i]->flat) == b && model->params[i]->offset > 0)
            f->bias = model->params[i]->offset;
    }
    TRY(layout_place_factor(layout, node->in[0], b, &f->x));
    TRY(layout_place_factor(layout, node->in[1], b, &f->dy));
    return columns_find(layout, b);
}

/* Places in records for the factors, and for the ids and dy of tables, that sums are made from. */
enum status layout_place_records(struct exec_layout *layout, const struct exec_model *model,
                                 int64_t shards)
{
    const struct step_facts *facts = &layout->facts;

    for (int b = 0; b < facts->n_buckets; b++) {
        if (bucket_is_factored(layout, b))
            TRY(place_factored(layout, model, b));
        else if (bucket_is_table(layout, b))
            TRY(rows_find(layout, shards, b));
    }
    return STATUS_OK;
}
