/* SPDX-License-Identifier: MIT */
/* partition.c - a data set dealt out to the participants of a simulation. */
#include "fed/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { LABELS_MOST = 1 << 16, PIECES_MOST = 1 << 16 };

/* What a partition works on. */
struct deal {
    const struct source *source;
    int64_t count;
    int participants, labels;
    double number; /* after the colon */
    struct rng rng;
    int64_t *order; /* samples */
    int64_t *owner; /* of each place in `order` */
};

static void shuffle(struct rng *rng, int64_t *items, int64_t count)
{
    for (int64_t i = count - 1; i > 0; i--) {
        const int64_t j = (int64_t)rng_below(rng, (uint64_t)i + 1), moved = items[i];
        items[i] = items[j];
        items[j] = moved;
    }
}

/* A number from the gamma distribution (Marsaglia and Tsang 2000). */
static double draw_gamma(struct rng *rng, double shape)
{
    if (shape < 1) { /* the boost for small shapes */
        const double u = 1 - (double)rng_float(rng);
        return draw_gamma(rng, shape + 1) * pow(u, 1 / shape);
    }
    const double d = shape - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (;;) {
        const double x = rng_normal(rng), v = pow(1 + c * x, 3);
        const double u = 1 - (double)rng_float(rng);
        if (v > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v;
    }
}

/* Cuts [begin, end) of the order by shares from a Dirichlet distribution. */
static enum status cut_by_shares(struct deal *deal, int64_t begin, int64_t end)
{
    double *share, sum = 0, before = 0;

    TRY(mem_alloc((size_t)deal->participants, sizeof *share, &share));
    for (int p = 0; p < deal->participants; p++)
        sum += share[p] = draw_gamma(&deal->rng, deal->number);
    for (int p = 0; p < deal->participants; p++) {
        const int64_t count = end - begin;
        const int64_t first = begin + (int64_t)((double)count * before / sum);
        before += share[p];
        const int64_t last =
            p == deal->participants - 1 ? end : begin + (int64_t)((double)count * before / sum);
        for (int64_t i = first; i < last; i++)
            deal->owner[i] = p;
    }
    mem_free(share);
    return STATUS_OK;
}

static void cut_evenly(struct deal *deal)
{
    for (int p = 0; p < deal->participants; p++) {
        for (int64_t i = p * deal->count / deal->participants;
             i < (p + 1) * deal->count / deal->participants; i++)
            deal->owner[i] = p;
    }
}

static enum status deal_iid(struct deal *deal)
{
    shuffle(&deal->rng, deal->order, deal->count);
    cut_evenly(deal);
    return STATUS_OK;
}

static enum status deal_blocks(struct deal *deal)
{
    cut_evenly(deal);
    return STATUS_OK;
}

static enum status deal_size(struct deal *deal)
{
    shuffle(&deal->rng, deal->order, deal->count);
    return cut_by_shares(deal, 0, deal->count);
}

/* Sorts the order by label; those of a label keep theirs. */
static enum status sort_by_label(struct deal *deal)
{
    int64_t *sorted, *next;

    TRY(mem_alloc((size_t)deal->count, sizeof *sorted, &sorted));
    const enum status status = mem_alloc((size_t)deal->labels + 1, sizeof *next, &next);
    if (status != STATUS_OK) {
        mem_free(sorted);
        return status;
    }
    for (int64_t i = 0; i < deal->count; i++)
        next[source_label(deal->source, deal->order[i]) + 1]++;
    for (int k = 0; k < deal->labels; k++)
        next[k + 1] += next[k];
    for (int64_t i = 0; i < deal->count; i++)
        sorted[next[source_label(deal->source, deal->order[i])]++] = deal->order[i];
    memcpy(deal->order, sorted, (size_t)deal->count * sizeof *sorted);
    mem_free(sorted);
    mem_free(next);
    return STATUS_OK;
}

static enum status deal_dirichlet(struct deal *deal)
{
    shuffle(&deal->rng, deal->order, deal->count);
    TRY(sort_by_label(deal));
    for (int64_t begin = 0, end; begin < deal->count; begin = end) {
        const int32_t label = source_label(deal->source, deal->order[begin]);
        for (end = begin; end < deal->count; end++) {
            if (source_label(deal->source, deal->order[end]) != label)
                break;
        }
        TRY(cut_by_shares(deal, begin, end));
    }
    return STATUS_OK;
}

static enum status deal_labels(struct deal *deal)
{
    const int64_t pieces = (int64_t)deal->number * deal->participants;
    int64_t *owner;

    if (pieces > deal->count)
        return FAIL(STATUS_USAGE, "--partition label: %lld pieces of %lld samples",
                    (long long)pieces, (long long)deal->count);
    shuffle(&deal->rng, deal->order, deal->count);
    TRY(sort_by_label(deal));
    TRY(mem_alloc((size_t)pieces, sizeof *owner, &owner));
    for (int64_t i = 0; i < pieces; i++)
        owner[i] = i % deal->participants;
    shuffle(&deal->rng, owner, pieces);
    for (int64_t k = 0; k < pieces; k++) {
        for (int64_t i = k * deal->count / pieces; i < (k + 1) * deal->count / pieces; i++)
            deal->owner[i] = owner[k];
    }
    mem_free(owner);
    return STATUS_OK;
}

static const struct kind {
    const char *name;
    bool has_number, needs_labels;
    double least, most;
    enum status (*run)(struct deal *deal);
} kinds[] = {
    { "iid", false, false, 0, 0, deal_iid },
    { "blocks", false, false, 0, 0, deal_blocks },
    { "dirichlet", true, true, 1e-3, 1e6, deal_dirichlet },
    { "label", true, true, 1, PIECES_MOST, deal_labels },
    { "size", true, false, 1e-3, 1e6, deal_size },
};

static enum status parse(const char *text, const struct kind **out, double *number)
{
    const char *colon = strchr(text, ':');
    const size_t length = colon ? (size_t)(colon - text) : strlen(text);
    char *end = NULL;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct kind *kind = &kinds[i];
        if (strncmp(kind->name, text, length) != 0 || kind->name[length] ||
            kind->has_number != (colon != NULL))
            continue;
        *number = colon ? strtod(colon + 1, &end) : 0;
        if (colon &&
            (end == colon + 1 || *end || !(*number >= kind->least) || *number > kind->most))
            return FAIL(STATUS_USAGE, "--partition %s: a number from %g to %g after the colon",
                        text, kind->least, kind->most);
        *out = kind;
        return STATUS_OK;
    }
    return FAIL(STATUS_USAGE,
                "--partition %s: iid, blocks, dirichlet:ALPHA, label:K or size:ALPHA", text);
}

enum status fed_partition_check(const char *text)
{
    const struct kind *kind;
    double number;

    return parse(text, &kind, &number);
}

/* Everybody has a few: they come from who has most. */
static void even_out(struct deal *deal, int64_t *sizes)
{
    for (int p = 0; p < deal->participants; p++) {
        while (sizes[p] < FED_LEAST) {
            int richest = 0;
            for (int q = 1; q < deal->participants; q++)
                richest = sizes[q] > sizes[richest] ? q : richest;
            int64_t i = 0;
            while (deal->owner[i] != richest)
                i++;
            deal->owner[i] = p;
            sizes[richest]--;
            sizes[p]++;
        }
    }
}

/* From owners to lists. */
static enum status make_lists(struct deal *deal, struct fed_parts *out)
{
    const size_t n = (size_t)deal->participants;
    struct fed_parts parts = { .participants = deal->participants };
    int64_t *sizes;

    TRY(mem_alloc(n + 1, sizeof *sizes, &sizes));
    enum status status = mem_alloc(n + 1, sizeof *parts.begin, &parts.begin);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)deal->count, sizeof *parts.index, &parts.index);
    if (status == STATUS_OK) {
        for (int64_t i = 0; i < deal->count; i++)
            sizes[deal->owner[i]]++;
        even_out(deal, sizes);
        for (size_t p = 0; p < n; p++) {
            parts.begin[p + 1] = parts.begin[p] + sizes[p];
            sizes[p] = parts.begin[p];
        }
        for (int64_t i = 0; i < deal->count; i++)
            parts.index[sizes[deal->owner[i]]++] = deal->order[i];
        *out = parts;
    } else {
        fed_parts_release(&parts);
    }
    mem_free(sizes);
    return status;
}

/* One more than the greatest label; 0 where samples have none. */
static enum status count_labels(const struct source *source, int *out)
{
    *out = 0;
    for (int64_t i = 0; i < source_count(source); i++) {
        const int32_t label = source_label(source, i);
        if (label < 0 || label >= LABELS_MOST) {
            *out = 0;
            return STATUS_OK;
        }
        *out = label >= *out ? label + 1 : *out;
    }
    return STATUS_OK;
}

static enum status run(struct deal *deal, const struct kind *kind, struct fed_parts *out)
{
    TRY(mem_alloc((size_t)deal->count, sizeof *deal->order, &deal->order));
    TRY(mem_alloc((size_t)deal->count, sizeof *deal->owner, &deal->owner));
    for (int64_t i = 0; i < deal->count; i++)
        deal->order[i] = i;
    TRY(kind->run(deal));
    return make_lists(deal, out);
}

enum status fed_partition(const char *text, const struct source *source, int participants,
                          uint64_t seed, struct fed_parts *out)
{
    enum { STREAM = 0x70617274 };
    const struct kind *kind;
    struct deal deal = { .source = source,
                         .count = source_count(source),
                         .participants = participants };

    TRY(parse(text, &kind, &deal.number));
    TRY(count_labels(source, &deal.labels));
    if (kind->needs_labels && deal.labels == 0)
        return FAIL(STATUS_USAGE,
                    "--partition %s: samples have no labels: use iid or size:ALPHA", text);
    if (participants < 1 || deal.count < (int64_t)FED_LEAST * participants)
        return FAIL(
            STATUS_USAGE,
            "%d participants and %lld samples: each needs %d at least, and there is one "
            "at least",
            participants, (long long)deal.count, FED_LEAST);
    rng_init(&deal.rng, seed, STREAM);
    const enum status status = run(&deal, kind, out);
    mem_free(deal.order);
    mem_free(deal.owner);
    return status;
}

void fed_parts_release(struct fed_parts *parts)
{
    mem_free(parts->begin);
    mem_free(parts->index);
    *parts = (struct fed_parts){ 0 };
}

void fed_parts_labels(const struct fed_parts *parts, const struct source *source,
                      int participant, int classes, int64_t *out)
{
    memset(out, 0, (size_t)classes * sizeof *out);
    for (int64_t i = parts->begin[participant]; i < parts->begin[participant + 1]; i++) {
        const int32_t label = source_label(source, parts->index[i]);
        if (label >= 0 && label < classes)
            out[label]++;
    }
}

double fed_parts_skew(const struct fed_parts *parts, const struct source *source, int classes)
{
    int64_t *all, *own;
    double sum = 0;

    if (classes < 1 || mem_alloc(2 * (size_t)classes, sizeof *all, &all) != STATUS_OK)
        return NAN;
    own = all + classes;
    for (int p = 0; p < parts->participants; p++) {
        fed_parts_labels(parts, source, p, classes, own);
        for (int k = 0; k < classes; k++)
            all[k] += own[k];
    }
    const double count = (double)parts->begin[parts->participants];
    for (int p = 0; p < parts->participants; p++) {
        const double size = (double)(parts->begin[p + 1] - parts->begin[p]);
        fed_parts_labels(parts, source, p, classes, own);
        for (int k = 0; k < classes; k++)
            sum += fabs((double)own[k] / size - (double)all[k] / count) / 2;
    }
    mem_free(all);
    return sum / parts->participants;
}
