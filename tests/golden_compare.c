/* SPDX-License-Identifier: MIT */
/* golden_compare.c - tensors of a run against what tests/golden/vision.json says of PyTorch's.
 *
 *      golden_compare GOLDEN MODEL begin FILE              writes the weights that training begins with
 *      golden_compare GOLDEN MODEL evaluation FILE         writes the weights that are evaluated
 *      golden_compare GOLDEN MODEL gradients FILE LIMIT    FILE: optimizer.safetensors of step 1
 *      golden_compare GOLDEN MODEL averages FILE LIMIT     FILE: weights.safetensors
 *      golden_compare GOLDEN MODEL outputs FILE LIMIT      FILE: what tutti eval --outputs wrote
 *
 * Of a tensor g the golden has its norm and sums of g times signs. With independent signs s the mean
 * of (s.g - s.h)^2 is the square of the norm of g - h; the mean of eight such squares estimates it,
 * with a deviation of a half (of a quarter for its root). The error is the larger of this estimate and
 * the difference of the norms, over the golden's scale. Exits 1 if one is above LIMIT.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tensor/safetensors.h"

enum { INIT_STREAM = 0x1717, SIGN_STREAM = 0x5160, SIGNS = 8, GOLDEN_MAX = 16 << 20 };

struct fingerprint {
    double norm, sums[SIGNS];
};

/* Four words for elements 4 * block ... of tensor `number`. */
static struct rng_block words_of(uint64_t seed, int64_t block, int64_t number, uint32_t stream)
{
    const uint32_t counter[4] = { (uint32_t)block, (uint32_t)((uint64_t)block >> 32),
                                  (uint32_t)number, stream };
    return rng_philox(seed, counter);
}

static struct fingerprint take_fingerprint(const struct safetensors_entry *entry,
                                           int64_t number)
{
    const int64_t count = shape_count(&entry->shape);
    const char *from = entry->data;
    struct fingerprint f = { 0 };
    struct rng_block words = { { 0 } };
    double squares = 0;

    for (int64_t i = 0; i < count; i++) {
        float value;
        if (i % 4 == 0)
            words = words_of(0, i / 4, number, SIGN_STREAM);
        memcpy(&value, from + (size_t)i * sizeof value, sizeof value);
        squares += (double)value * (double)value;
        for (int k = 0; k < SIGNS; k++)
            f.sums[k] += words.word[i % 4] >> k & 1 ? -(double)value : (double)value;
    }
    f.norm = sqrt(squares);
    return f;
}

/* NaN where something is no number: then it is above no limit and below none. */
static double error_of(const struct fingerprint *f, const struct json_value *golden)
{
    const struct json_value *sums = json_get(golden, "sums");
    const double scale = json_number(golden, "scale", (double)NAN);
    double squares = 0;

    if (!sums || sums->count != SIGNS)
        return (double)NAN;
    for (int k = 0; k < SIGNS; k++)
        squares += pow(f->sums[k] - sums->items[k].number, 2);
    const double estimate = sqrt(squares / SIGNS);
    const double difference = fabs(f->norm - json_number(golden, "norm", (double)NAN));
    return (isnan(difference) || difference > estimate ? difference : estimate) / scale;
}

static enum status compare(const struct json_value *model, const char *section,
                           const char *suffix, const char *path, double limit)
{
    const struct json_value *goldens = json_get(model, section);
    struct safetensors *file;
    double worst = 0;
    const char *where = "none";

    if (!goldens)
        return FAIL(STATUS_USAGE, "the golden has no %s", section);
    TRY(safetensors_open(path, &file));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < goldens->count && status == STATUS_OK; i++) {
        char name[256];
        snprintf(name, sizeof name, "%s%s", goldens->keys[i], suffix);
        const struct safetensors_entry *entry = safetensors_find(file, name);
        if (!entry || entry->dtype != DTYPE_F32) {
            status = FAIL(STATUS_MISMATCH, "%s has no tensor %s of f32", path, name);
            break;
        }
        const struct json_value *golden = &goldens->items[i];
        const struct fingerprint f = take_fingerprint(entry, json_integer(golden, "number", 0));
        const double error = error_of(&f, golden);
        if (!(error <= worst)) {
            worst = error;
            where = goldens->keys[i];
        }
        if (!(error <= limit))
            printf("  %s: error %.1e\n", name, error);
    }
    if (status == STATUS_OK) {
        printf("  %s: %zu tensors, largest error %.1e (%s)\n", section, goldens->count, worst,
               where);
        if (!(worst <= limit))
            status = FAIL(STATUS_MISMATCH, "%s differ by %.1e, more than %.0e", section, worst,
                          limit);
    }
    safetensors_close(file);
    return status;
}

/* Element i is center + (2u - 1) bound, u made of word i % 4 of block i / 4. */
static enum status draw_tensor(struct arena *arena, const char *name,
                               const struct json_value *golden, const char *use, uint64_t seed,
                               struct safetensors_entry *out)
{
    const struct json_value *extents = json_get(golden, "shape"),
                            *range = json_get(golden, use);
    struct shape shape = { .rank = 0 };

    if (!extents || extents->count > SHAPE_MAX || !range || range->count != 2)
        return FAIL(STATUS_USAGE, "the golden has no shape or range of %s", name);
    for (size_t d = 0; d < extents->count; d++)
        shape.dim[shape.rank++] = extents->items[d].integer;
    const float center = (float)range->items[0].number, bound = (float)range->items[1].number;
    const int64_t count = shape_count(&shape), number = json_integer(golden, "number", 0);
    float *values = arena_alloc(arena, (size_t)count, sizeof *values);
    if (!values)
        return STATUS_NO_MEMORY;
    struct rng_block words = { { 0 } };
    for (int64_t i = 0; i < count; i++) {
        if (i % 4 == 0)
            words = words_of(seed, i / 4, number, INIT_STREAM);
        values[i] = center + (2 * rng_to_float(words.word[i % 4]) - 1) * bound;
    }
    *out = (struct safetensors_entry){ name, DTYPE_F32, shape, values };
    return STATUS_OK;
}

/* The drawn tensors and, as PyTorch writes them, how often averages were updated. */
static enum status draw(const struct json_value *model, struct arena *arena, const char *use,
                        const char *path)
{
    static const int64_t updates = 20;
    const struct json_value *tensors = json_get(model, "tensors");
    const struct json_value *counts = json_get(model, "counts");
    const int64_t seed = json_integer(json_get(model, use), "seed", -1);

    if (!tensors || !counts || seed < 0)
        return FAIL(STATUS_USAGE, "the golden draws no weights for %s", use);
    struct safetensors_entry *entries =
        arena_alloc(arena, tensors->count + counts->count, sizeof *entries);
    if (!entries)
        return STATUS_NO_MEMORY;
    for (size_t i = 0; i < tensors->count; i++)
        TRY(draw_tensor(arena, tensors->keys[i], &tensors->items[i], use, (uint64_t)seed,
                        &entries[i]));
    for (size_t i = 0; i < counts->count; i++)
        entries[tensors->count + i] = (struct safetensors_entry){
            counts->items[i].text, DTYPE_I64, { .rank = 0 }, &updates
        };
    return safetensors_write(path, entries, tensors->count + counts->count, NULL, 0, NULL);
}

static enum status run(const struct json_value *model, struct arena *arena, char **argv)
{
    const char *what = argv[3], *path = argv[4];
    const double limit = argv[5] ? strtod(argv[5], NULL) : 0;

    if (!model)
        return FAIL(STATUS_USAGE, "the golden has no model %s", argv[2]);
    if (strcmp(what, "begin") == 0 || strcmp(what, "evaluation") == 0)
        return draw(model, arena, what, path);
    if (strcmp(what, "outputs") == 0)
        return compare(json_get(model, "evaluation"), what, "", path, limit);
    return compare(model, what, strcmp(what, "gradients") == 0 ? ".momentum" : "", path, limit);
}

static enum status open_and_run(char **argv)
{
    struct arena *arena;
    struct json *json;
    char *text;
    size_t length;

    TRY(file_read(argv[1], GOLDEN_MAX, &text, &length));
    enum status status = json_parse(text, length, &json);
    mem_free(text);
    TRY(status);
    status = arena_create(&arena);
    if (status == STATUS_OK) {
        status = run(json_get(json_get(json_root(json), "models"), argv[2]), arena, argv);
        arena_destroy(arena);
    }
    json_destroy(json);
    return status;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 6) {
        fprintf(stderr, "golden_compare GOLDEN MODEL begin|evaluation FILE\n"
                        "golden_compare GOLDEN MODEL gradients|averages|outputs FILE LIMIT\n");
        return 2;
    }
    if (open_and_run(argv) == STATUS_OK)
        return 0;
    fprintf(stderr, "golden_compare: %s: %s\n", argv[2], status_message());
    return 1;
}
