/* SPDX-License-Identifier: MIT */
/* dp_sgd.c - noise for single samples: each piece of each step has a key of its own, so that lanes need not share a stream. */
#include "fed/dp_sgd.h"

#include <math.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "fed/accountant.h"
#include "fed/dp.h"
#include "fed/secagg.h"

enum { PIECE = 512 };

enum status fed_dp_sgd_parse(const char *text, double *clip, double *noise)
{
    char *end;
    const double first = strtod(text, &end);

    if (end != text && *end == ',') {
        const char *rest = end + 1;
        const double second = strtod(rest, &end);
        if (end != rest && *end == '\0' && first > 0 && isfinite(first) && second >= 0 &&
            second <= 1e4) {
            *clip = first;
            *noise = second;
            return STATUS_OK;
        }
    }
    return FAIL(
        STATUS_USAGE,
        "--dp-sgd %s: give the norm that gradients of samples are clipped to, above 0, and the "
        "noise multiplier, 0 or more: 1.0,0.8",
        text);
}

static void derive(const uint8_t secret[NOISE_KEY], uint64_t first, uint64_t second,
                   uint8_t out[NOISE_KEY])
{
    const uint64_t numbers[] = { first, second };

    crypto_generichash(out, NOISE_KEY, (const uint8_t *)numbers, sizeof(numbers), secret,
                       NOISE_KEY);
}

/* The sum is of gradients that are divided by the weight: so is the clip. */
static void add_noise(void *arg, uint64_t step, int64_t weight, size_t at, float *sum,
                      size_t count)
{
    const struct fed_dp_sgd *sgd = arg;
    const double grid = dp_grid(sgd->privacy.clip / (double)weight, sgd->noise, sgd->length);
    uint8_t key[NOISE_KEY];
    struct noise source;

    if (sgd->noise == 0)
        return;
    derive(sgd->key, step, at, key);
    noise_init(&source, key);
    for (size_t begin = 0; begin < count; begin += PIECE) {
        const size_t n = count - begin < PIECE ? count - begin : PIECE;
        double piece[PIECE];

        for (size_t i = 0; i < n; i++)
            piece[i] = (double)sum[begin + i];
        dp_add_grid(&source, grid, piece, n);
        for (size_t i = 0; i < n; i++)
            sum[begin + i] = (float)piece[i];
    }
    noise_release(&source);
    sodium_memzero(key, sizeof(key));
}

enum status fed_dp_sgd_init(struct fed_dp_sgd *sgd, const char *text)
{
    double clip, noise;

    TRY(fed_dp_sgd_parse(text, &clip, &noise));
    *sgd = (struct fed_dp_sgd){ .privacy = { .clip = clip, .arg = sgd, .add = add_noise },
                                .noise = noise };
    return secagg_seed(sgd->secret);
}

void fed_dp_sgd_release(struct fed_dp_sgd *sgd)
{
    sodium_memzero(sgd, sizeof(*sgd));
}

void fed_dp_sgd_simulate(struct fed_dp_sgd *sgd, uint64_t seed)
{
    memset(sgd->secret, 0, sizeof(sgd->secret));
    memcpy(sgd->secret, &seed, sizeof(seed));
    sgd->simulated = true;
}

void fed_dp_sgd_begin(struct fed_dp_sgd *sgd, uint64_t seed)
{
    derive(sgd->secret, seed, sgd->simulated ? 0 : ++sgd->uses, sgd->key);
}

enum status fed_dp_sgd_epsilon(const char *text, uint64_t passes, double delta, double *out)
{
    struct ledger_entry entry = { .sampling = SAMPLING_ALL, .q = 1, .releases = passes };
    struct ledger *ledger;
    double clip;

    TRY(fed_dp_sgd_parse(text, &clip, &entry.noise));
    TRY(ledger_create((double)INFINITY, delta, &ledger));
    *out = passes > 0 ? ledger_epsilon(ledger, &entry) : 0;
    ledger_destroy(ledger);
    return STATUS_OK;
}
