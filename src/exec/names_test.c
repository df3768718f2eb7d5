/* SPDX-License-Identifier: MIT */
/* names_test.c - files of Hugging Face's names are found, and what says nothing is passed over. */
#include <stdio.h>

#include "base/test.h"
#include "exec/names.h"

static const float table[4] = { 1, 2, 3, 4 }, other[4] = { 1, 2, 3, 5 };

/* An open file of these tensors, each (2, 2). */
static struct safetensors *file_of(const char *const *names, const float *const *data, size_t n)
{
    struct safetensors_entry entries[8];
    struct safetensors *file;
    char path[512];

    snprintf(path, sizeof path, "%s/names.safetensors", test_folder());
    for (size_t i = 0; i < n; i++)
        entries[i] = (struct safetensors_entry){ names[i], DTYPE_F32, shape_2(2, 2), data[i] };
    CHECK_OK(safetensors_write(path, entries, n, NULL, 0, NULL));
    CHECK_OK(safetensors_open(path, &file));
    return file;
}

static void a_name_may_have_a_prefix(void)
{
    static const char *const names[] = { "transformer.wte.weight", "ln_f.weight" };
    static const float *const data[] = { table, other };
    struct safetensors *file = file_of(names, data, 2);

    CHECK(names_find(file, "wte.weight") == safetensors_find(file, "transformer.wte.weight"));
    CHECK(names_find(file, "ln_f.weight") == safetensors_find(file, "ln_f.weight"));
    CHECK(!names_find(file, "wpe.weight"));
    CHECK_TEXT("wte.weight", names_bare("transformer.wte.weight"));
    CHECK_TEXT("h.0.ln_1.bias", names_bare("h.0.ln_1.bias"));
    safetensors_close(file);
}

static void masks_counts_and_tied_heads_say_nothing(void)
{
    static const char *const names[] = { "transformer.wte.weight",     "lm_head.weight",
                                         "transformer.h.11.attn.bias", "h.0.attn.masked_bias",
                                         "bn1.num_batches_tracked",    "h.0.attn.c_attn.bias" };
    static const float *const data[] = { table, table, other, other, other, other };
    struct safetensors *file = file_of(names, data, 6);

    for (size_t i = 1; i < 5; i++)
        CHECK(names_is_spare(file, safetensors_find(file, names[i])));
    CHECK(!names_is_spare(file, safetensors_find(file, "h.0.attn.c_attn.bias")));
    CHECK(!names_is_spare(file, safetensors_find(file, "transformer.wte.weight")));
    safetensors_close(file);
}

static void a_head_of_its_own_is_not_passed_over(void)
{
    static const char *const names[] = { "wte.weight", "lm_head.weight" };
    static const float *const data[] = { table, other };
    struct safetensors *file = file_of(names, data, 2);

    CHECK(!names_is_spare(file, safetensors_find(file, "lm_head.weight")));
    safetensors_close(file);
}

const struct test tests[] = {
    { .name = "a name may have a prefix", .run = a_name_may_have_a_prefix },
    { .name = "masks, counts and tied heads say nothing",
      .run = masks_counts_and_tied_heads_say_nothing },
    { .name = "a head of its own is not passed over",
      .run = a_head_of_its_own_is_not_passed_over },
    { 0 },
};
