/* SPDX-License-Identifier: MIT */
/* codec_topk.c - the elements of largest magnitude, a given share of them.
 *
 * Of n elements the k = ceil(share n) largest are sent; of equal ones those that come first.
 * The magnitudes' bits compare as the magnitudes do, so the k-th largest is found digit by
 * digit, by counting: first how many elements have which upper 11 bits, from the largest down
 * until k are reached; then, of those with the digit where that happened, which next 10 bits;
 * then the last 10. Four passes over the vector, of which three skip most of it:
 *
 *   1  add the gradient to the error, count upper digits
 *   2  count middle digits of those with the upper digit found
 *   3  count lower digits of those with both
 *   4  send what is larger than the number found, and as many equal ones as are still missing
 *
 * From one step to the next that number changes little. So with the first pass the places of
 * elements that nearly reach the last one are noted; if these are k or more, but not too many, all
 * that is sent is among them, and counting and sending look at nothing else. The result is the
 * same either way.
 *
 * Payload: how many elements of each 65536 are sent (4 bytes each), the elements (4 bytes), and
 * where they are within their 65536 (2 bytes), in ascending order. What was sent leaves the
 * error, which for these elements is 0.
 */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "comm/codec_row.h"
#include "comm/wide.h"

enum { GROUP = 1 << 16 };
enum { UPPER_SHIFT = 20, MIDDLE_SHIFT = 10, UPPER_DIGITS = 1 << 11, DIGITS = 1 << 10 };

static inline uint32_t magnitude(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return bits & 0x7fffffff;
}

/* Steps over elements of less magnitude, LANES at a time: where larger ones begin, or where fewer
 * are left. */
WIDEST static size_t skip_small(const float *restrict x, size_t at, size_t end, uint32_t least)
{
    for (; at + LANES <= end; at += LANES) {
        const lanes_int bits = (lanes_int)LANES_AT(x + at) & 0x7fffffff;
        const lanes_int is_large = bits >= (int)least;
        uint64_t any[LANES / 2];

        memcpy(any, &is_large, sizeof(any));
        for (int width = LANES / 4; width > 0; width /= 2)
            for (int i = 0; i < width; i++)
                any[i] |= any[i + width];
        if (any[0])
            return at;
    }
    return at;
}

/* Finding the threshold ---------------------------------------------------------------- */

/* Two tables in turn: neighbours often have the same digit, and an addition to the same place
 * waits for the one before. */
static void count_upper(const struct codec_state *state, uint32_t *digits)
{
    uint32_t other[UPPER_DIGITS] = { 0 };

    memset(digits, 0, sizeof(other));
    for (size_t i = 0; i + 1 < state->count; i += 2) {
        digits[magnitude(state->error[i]) >> UPPER_SHIFT]++;
        other[magnitude(state->error[i + 1]) >> UPPER_SHIFT]++;
    }
    if (state->count % 2 == 1)
        digits[magnitude(state->error[state->count - 1]) >> UPPER_SHIFT]++;
    for (int digit = 0; digit < UPPER_DIGITS; digit++)
        digits[digit] += other[digit];
}

/* Of the elements that begin with `prefix` above `shift` + 10 bits, counts the next digits. */
static void count_next(const struct codec_state *state, uint32_t prefix, int shift,
                       uint32_t *digits)
{
    const uint32_t least = prefix << (shift + MIDDLE_SHIFT);
    size_t at = 0;

    memset(digits, 0, DIGITS * sizeof(*digits));
    while ((at = skip_small(state->error, at, state->count, least)) < state->count) {
        const size_t end = codec_smaller(at + LANES, state->count);

        for (; at < end; at++) {
            const uint32_t bits = magnitude(state->error[at]);
            if (bits >> (shift + MIDDLE_SHIFT) == prefix)
                digits[bits >> shift & (DIGITS - 1)]++;
        }
    }
}

/* The same of the n noted elements; of all of them if nothing is above the digit. */
static void count_noted(const struct codec_state *state, size_t n, uint32_t prefix, int shift,
                        uint32_t *digits)
{
    const int above = shift == UPPER_SHIFT ? 31 : shift + MIDDLE_SHIFT;
    const uint32_t n_digits = shift == UPPER_SHIFT ? UPPER_DIGITS : DIGITS;

    memset(digits, 0, n_digits * sizeof(*digits));
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = magnitude(state->error[state->noted[i]]);
        if (bits >> above == prefix)
            digits[bits >> shift & (n_digits - 1)]++;
    }
}

/* The digit with which, counted from the largest, `wanted` elements are reached; those with
 * larger digits are taken off `wanted`. */
static uint32_t find_digit(const uint32_t *digits, uint32_t n_digits, size_t *wanted)
{
    uint32_t digit = n_digits - 1;

    while (digits[digit] < *wanted) {
        *wanted -= digits[digit];
        BUG_ON(digit == 0);
        digit--;
    }
    return digit;
}

/* The magnitude of the k-th largest element; *ties: how many of that magnitude are sent. */
static uint32_t find_threshold(const struct codec_state *state, size_t *ties)
{
    uint32_t digits[UPPER_DIGITS], prefix;

    *ties = state->n_sent;
    count_upper(state, digits);
    prefix = find_digit(digits, UPPER_DIGITS, ties);
    count_next(state, prefix, MIDDLE_SHIFT, digits);
    prefix = prefix << MIDDLE_SHIFT | find_digit(digits, DIGITS, ties);
    count_next(state, prefix, 0, digits);
    return prefix << MIDDLE_SHIFT | find_digit(digits, DIGITS, ties);
}

/* The same among n noted elements. */
static uint32_t find_noted_threshold(const struct codec_state *state, size_t n, size_t *ties)
{
    uint32_t digits[UPPER_DIGITS], prefix;

    *ties = state->n_sent;
    count_noted(state, n, 0, UPPER_SHIFT, digits);
    prefix = find_digit(digits, UPPER_DIGITS, ties);
    count_noted(state, n, prefix, MIDDLE_SHIFT, digits);
    prefix = prefix << MIDDLE_SHIFT | find_digit(digits, DIGITS, ties);
    count_noted(state, n, prefix, 0, digits);
    return prefix << MIDDLE_SHIFT | find_digit(digits, DIGITS, ties);
}

/* Notes which elements of [at, end) have at least that magnitude, behind n others; there is room
 * for all. */
static size_t note_large(struct codec_state *state, size_t at, size_t end, uint32_t least,
                         size_t n)
{
    while ((at = skip_small(state->error, at, end, least)) < end) {
        const size_t stop = codec_smaller(at + LANES, end);

        for (; at < stop; at++) {
            state->noted[n] = (uint32_t)at;
            n += magnitude(state->error[at]) >= least;
        }
    }
    return n;
}

/* Adds the gradient and notes large elements. Returns how many; 0 if these are not all, or fewer
 * than are sent. The next guess is nearer to the threshold after too many, and farther after too
 * few. */
static size_t add_and_note(struct codec_state *state, const float *gradient)
{
    bool has_room = state->guess > 0;
    size_t n = 0;

    for (size_t at = 0; at < state->count; at += CODEC_STRETCH) {
        const size_t count = codec_smaller(CODEC_STRETCH, state->count - at);

        codec_add(state->error + at, gradient + at, count);
        has_room = has_room && n + count < state->max_noted;
        if (has_room)
            n = note_large(state, at, at + count, state->guess, n);
    }
    if (has_room && n >= state->n_sent)
        return n;
    if (state->guess > 0)
        state->margin =
            has_room ? fmaxf(0.5f, state->margin - 0.1f) : fminf(0.95f, state->margin + 0.05f);
    return 0;
}

/* That share of a magnitude; 0, which is no guess, of one that is not finite. */
static uint32_t share_of(uint32_t threshold, float share)
{
    float number;

    memcpy(&number, &threshold, sizeof(number));
    return threshold < 0x7f800000 ? magnitude(share * number) : 0;
}

/* The payload -------------------------------------------------------------------------- */

struct parts {
    uint32_t *counts; /* one a group */
    float *values;
    uint16_t *places;
};

static struct parts lay_out(const struct codec_state *state, void *payload)
{
    struct parts parts = { .counts = payload };

    parts.values = (void *)(parts.counts + codec_blocks(state->count, GROUP));
    parts.places = (void *)(parts.values + state->n_sent);
    return parts;
}

static size_t bytes(const struct codec_state *state, int round)
{
    (void)round;
    return codec_blocks(state->count, GROUP) * sizeof(uint32_t) +
           state->n_sent * (sizeof(float) + sizeof(uint16_t));
}

/* Takes an element of at least the threshold into the payload, and out of the error. */
static inline void send_one(float *error, size_t place, uint32_t threshold, size_t *ties,
                            struct parts *to)
{
    const uint32_t bits = magnitude(*error);

    if (bits < threshold || (bits == threshold && *ties == 0))
        return;
    *ties -= bits == threshold;
    *to->values++ = *error;
    *to->places++ = (uint16_t)(place % GROUP);
    to->counts[place / GROUP]++;
    *error = 0;
}

static void send_all(struct codec_state *state, uint32_t threshold, size_t ties,
                     struct parts *to)
{
    size_t at = 0;

    while ((at = skip_small(state->error, at, state->count, threshold)) < state->count) {
        const size_t end = codec_smaller(at + LANES, state->count);

        for (; at < end; at++)
            send_one(&state->error[at], at, threshold, &ties, to);
    }
}

static void send_noted(struct codec_state *state, size_t n, uint32_t threshold, size_t ties,
                       struct parts *to)
{
    for (size_t i = 0; i < n; i++)
        send_one(&state->error[state->noted[i]], state->noted[i], threshold, &ties, to);
}

static void encode(struct codec_state *state, int round, const float *gradient, void *payload)
{
    struct parts parts = lay_out(state, payload);
    uint32_t threshold;
    size_t ties;

    (void)round;
    if (state->count == 0)
        return;
    memset(parts.counts, 0, codec_blocks(state->count, GROUP) * sizeof(uint32_t));
    const size_t n = add_and_note(state, gradient);
    if (n > 0) {
        threshold = find_noted_threshold(state, n, &ties);
        send_noted(state, n, threshold, ties, &parts);
    } else {
        threshold = find_threshold(state, &ties);
        send_all(state, threshold, ties, &parts);
    }
    state->guess = share_of(threshold, state->margin);
}

static enum status check(const struct codec_state *state, const void *payload)
{
    const struct parts parts = lay_out(state, (void *)payload);
    const size_t n_groups = codec_blocks(state->count, GROUP);
    size_t seen = 0;

    for (size_t group = 0; group < n_groups; group++) {
        const size_t length = codec_smaller(GROUP, state->count - group * GROUP);
        const uint32_t n = parts.counts[group];

        if (n > length || n > state->n_sent - seen)
            return FAIL(STATUS_CORRUPT, "topk: %u elements of group %zu", (unsigned)n, group);
        for (size_t i = seen; i < seen + n; i++) {
            if (parts.places[i] >= length ||
                (i > seen && parts.places[i] <= parts.places[i - 1]))
                return FAIL(STATUS_CORRUPT, "topk: place %u in group %zu",
                            (unsigned)parts.places[i], group);
        }
        seen += n;
    }
    if (seen != state->n_sent)
        return FAIL(STATUS_CORRUPT, "topk: %zu elements instead of %zu", seen, state->n_sent);
    return STATUS_OK;
}

static void decode(struct codec_state *state, int round, const void *const payloads[], int n,
                   float *sum)
{
    const size_t n_groups = codec_blocks(state->count, GROUP);

    (void)round;
    if (state->count > 0)
        memset(sum, 0, state->count * sizeof(float));
    for (int node = 0; node < n; node++) {
        struct parts parts = lay_out(state, (void *)payloads[node]);

        for (size_t group = 0; group < n_groups; group++) {
            float *to = sum + group * GROUP;
            for (uint32_t i = 0; i < parts.counts[group]; i++)
                to[parts.places[i]] += parts.values[i];
            parts.values += parts.counts[group];
            parts.places += parts.counts[group];
        }
    }
}

static enum status create(struct codec_state *state, const struct codec_layout *layout)
{
    const double wanted = ceil(state->config.amount * (double)state->count);

    (void)layout;
    BUG_ON(state->count > UINT32_MAX);
    state->n_sent = codec_smaller((size_t)wanted, state->count);
    state->max_noted = codec_smaller(4 * state->n_sent, state->count) + 2 * CODEC_STRETCH;
    state->margin = 0.85f;
    return mem_alloc(state->max_noted, sizeof(*state->noted), &state->noted);
}

static void release(struct codec_state *state)
{
    mem_free(state->noted);
}

const struct codec codec_topk = {
    .name = "topk",
    .summary = "the largest elements, a share of them: 1.5 times that share of the bytes",
    .amount = { "share", 0.01, 1e-6, 1, false },
    .rounds = 1,
    .create = create,
    .release = release,
    .bytes = bytes,
    .encode = encode,
    .check = check,
    .decode = decode,
};
