/* SPDX-License-Identifier: MIT */
/* sample.c - top-k and top-p without sorting a vocabulary: tokens lie in a heap whose root is the most
 * probable, and only as many are taken out as stay. */
#include "train/sample.h"

#include <math.h>
#include <stdbool.h>

#include "base/mem.h"
#include "base/rng.h"

/* Part of the counter of draws, so that they share no numbers with others of the same seed. */
enum { SAMPLE_STREAM = 0x7057 };

struct candidate {
    float logit;
    int32_t token;
};

struct sample {
    struct sample_config config;
    int64_t vocabulary;
    struct candidate *heap; /* after taking n out, those are the last n, the first at the end */
    double *weights;        /* of candidates in the order in which they are walked */
};

enum status sample_check(const struct sample_config *config)
{
    if (!(config->temperature >= 0 && config->temperature <= 1000))
        return FAIL(STATUS_USAGE,
                    "temperature %g: a number from 0 (always the most probable "
                    "token) to 1000",
                    config->temperature);
    if (config->top_k < 0)
        return FAIL(STATUS_USAGE, "top-k %lld: a whole number, 0 for all tokens",
                    (long long)config->top_k);
    if (!(config->top_p > 0 && config->top_p <= 1))
        return FAIL(STATUS_USAGE, "top-p %g: a number above 0, at most 1 (all tokens)",
                    config->top_p);
    return STATUS_OK;
}

enum status sample_create(const struct sample_config *config, int64_t vocabulary,
                          struct sample **out)
{
    struct sample *sample;

    BUG_ON(vocabulary < 1);
    TRY(sample_check(config));
    TRY(mem_alloc(1, sizeof *sample, &sample));
    *sample = (struct sample){ .config = *config, .vocabulary = vocabulary };
    enum status status = mem_alloc((size_t)vocabulary, sizeof *sample->heap, &sample->heap);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)vocabulary, sizeof *sample->weights, &sample->weights);
    if (status != STATUS_OK) {
        sample_destroy(sample);
        return status;
    }
    *out = sample;
    return STATUS_OK;
}

void sample_destroy(struct sample *sample)
{
    if (!sample)
        return;
    mem_free(sample->heap);
    mem_free(sample->weights);
    mem_free(sample);
}

int32_t sample_largest(const float *logits, int64_t count)
{
    int32_t largest = 0;

    for (int64_t i = 0; i < count; i++) {
        if (isnan(logits[i]))
            return -1;
        if (logits[i] > logits[largest])
            largest = (int32_t)i;
    }
    return largest;
}

/* The heap ------------------------------------------------------------------------------- */

static bool comes_first(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

static void sift_down(struct candidate *heap, int64_t at, int64_t count)
{
    const struct candidate moved = heap[at];

    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && comes_first(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_first(&heap[child], &moved))
            break;
        heap[at] = heap[child];
    }
    heap[at] = moved;
}

static void fill_heap(struct sample *sample, const float *logits)
{
    for (int64_t i = 0; i < sample->vocabulary; i++)
        sample->heap[i] = (struct candidate){ logits[i], (int32_t)i };
    for (int64_t i = sample->vocabulary / 2; i-- > 0;)
        sift_down(sample->heap, i, sample->vocabulary);
}

/* Takes out the most probable of the first `count`; it lies behind the rest then. */
static void take_first(struct candidate *heap, int64_t count)
{
    const struct candidate first = heap[0];

    heap[0] = heap[count - 1];
    heap[count - 1] = first;
    sift_down(heap, 0, count - 1);
}

/* Drawing -------------------------------------------------------------------------------- */

static double weight_of(const struct sample *sample, float logit, float largest)
{
    return exp(((double)logit - (double)largest) / sample->config.temperature);
}

/* Takes out those that stay, with their weights; returns how many. */
static int64_t keep_most_probable(struct sample *sample, const float *logits, float largest)
{
    const int64_t count = sample->vocabulary;
    const bool has_k = sample->config.top_k > 0 && sample->config.top_k < count;
    const int64_t most = has_k ? sample->config.top_k : count;
    double all = 0, reached = 0;
    int64_t kept = 0;

    fill_heap(sample, logits);
    if (has_k) { /* probabilities are those among the k */
        for (; kept < most; kept++) {
            take_first(sample->heap, count - kept);
            sample->weights[kept] =
                weight_of(sample, sample->heap[count - 1 - kept].logit, largest);
            all += sample->weights[kept];
        }
    } else {
        for (int64_t i = 0; i < count; i++)
            all += weight_of(sample, logits[i], largest);
    }
    for (int64_t i = 0; i < most; i++) {
        if (i == kept) {
            take_first(sample->heap, count - i);
            sample->weights[i] = weight_of(sample, sample->heap[count - 1 - i].logit, largest);
            kept++;
        }
        reached += sample->weights[i];
        if (reached >= sample->config.top_p * all)
            return i + 1;
    }
    return most;
}

/* Which of `count` weights the draw at `position` falls on. */
static int64_t draw(const struct sample *sample, int64_t count, uint64_t position)
{
    const uint32_t counter[4] = { (uint32_t)position, (uint32_t)(position >> 32), 0,
                                  SAMPLE_STREAM };
    const struct rng_block words = rng_philox(sample->config.seed, counter);
    const uint64_t bits = ((uint64_t)words.word[0] << 32 | words.word[1]) >> 11;
    double sum = 0, below = 0;
    int64_t last = 0;

    for (int64_t i = 0; i < count; i++)
        sum += sample->weights[i];
    const double target = (double)bits * 0x1p-53 * sum;
    for (int64_t i = 0; i < count; i++) {
        if (sample->weights[i] > 0)
            last = i;
        below += sample->weights[i];
        if (below > target)
            return i;
    }
    return last; /* rounding */
}

enum status sample_next(struct sample *sample, const float *logits, uint64_t position,
                        int32_t *out)
{
    const struct sample_config *config = &sample->config;
    const int64_t count = sample->vocabulary;
    const int32_t largest = sample_largest(logits, count);

    if (largest < 0 || !isfinite(logits[largest]))
        return FAIL(STATUS_MISMATCH, "the model gives no finite numbers: its weights are "
                                     "broken, or training diverged");
    if (config->temperature == 0 || config->top_k == 1) {
        *out = largest;
        return STATUS_OK;
    }
    if (config->top_p == 1 && (config->top_k == 0 || config->top_k >= count)) {
        for (int64_t i = 0; i < count; i++)
            sample->weights[i] = weight_of(sample, logits[i], logits[largest]);
        *out = (int32_t)draw(sample, count, position);
        return STATUS_OK;
    }
    const int64_t kept = keep_most_probable(sample, logits, logits[largest]);
    *out = sample->heap[count - 1 - draw(sample, kept, position)].token;
    return STATUS_OK;
}
