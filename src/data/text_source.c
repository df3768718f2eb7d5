/* SPDX-License-Identifier: MIT */
/* text_source.c - samples of the four tasks (text.h).
 *
 * A document of 5 tokens in a batch whose longest has 7 (padding is .):
 *
 *      classes   x  a b c d e . . .        y  1
 *      pairs     x  a b c d e . . .        x2 <bos> A B C      y  A B C <eos>
 *
 * A stream of 11 tokens in blocks of 4, which begin at 2 in this epoch; what comes before is left out, and the
 * last block may be shorter:
 *
 *      stream    a b c d e f g h i j k     x  c d e f   y  d e f g
 *                                          x  g h i j   y  h i j k
 */
#include "data/text_source.h"

#include "base/rng.h"

#include <string.h>

/* Keep these numbers apart from others of the same seed. */
enum { PHASE_STREAM = 0x7e47, MASK_STREAM = 0x3a5c };

static const struct text *text_of(const struct source *source)
{
    return (const struct text *)source;
}

/* Writes `count` ids and fills up to `length`. */
static void put(int32_t *to, const int32_t *id, int64_t count, int64_t length)
{
    memcpy(to, id, (size_t)count * sizeof *to);
    for (int64_t i = count; i < length; i++)
        to[i] = SOURCE_PADDING;
}

static const int32_t *ids_of(const struct text *text, int64_t index, int side)
{
    return text->side[side].id + text->side[side].start[index];
}

/* Documents ----------------------------------------------------------------------------- */

int64_t text_length_of(const struct text *text, int64_t index, int side)
{
    const int64_t *start = text->side[side].start + index;
    /* A target has <bos> before it or <eos> behind it. */
    const int64_t count = start[1] - start[0] + side, most = text->length[side];

    return most > 0 && count > most ? most : count;
}

static void extend(const struct source *source, const int64_t *index, int64_t count,
                   int64_t length[SOURCE_SEQUENCES])
{
    const struct text *text = text_of(source);
    const int sides = text->config.task == TEXT_PAIRS ? 2 : 1;

    for (int side = 0; side < sides; side++)
        for (int64_t i = 0; i < count; i++) {
            const int64_t own = text_length_of(text, index[i], side);
            length[side] = own > length[side] ? own : length[side];
        }
}

static void read_classes(const struct source *source, const struct source_how *how,
                         const int64_t *index, int64_t count,
                         const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2,
                         int32_t *y)
{
    const struct text *text = text_of(source);
    int32_t *to = x;

    (void)how;
    (void)x2;
    for (int64_t i = 0; i < count; i++, to += length[0]) {
        put(to, ids_of(text, index[i], 0), text_length_of(text, index[i], 0), length[0]);
        y[i] = text->data.label[index[i]];
    }
}

static int32_t label_classes(const struct source *source, int64_t index)
{
    return text_of(source)->data.label[index];
}

static int64_t weigh_pairs(const struct source *source, const struct source_how *how,
                           const int64_t *index, int64_t count)
{
    int64_t weight = 0;

    (void)how;
    for (int64_t i = 0; i < count; i++)
        weight += text_length_of(text_of(source), index[i], 1);
    return weight;
}

/* A target that is cut ends with its next token instead of <eos>. */
static void read_target(const struct text *text, int64_t index, int64_t length, int32_t *x2,
                        int32_t *y)
{
    const int32_t *id = ids_of(text, index, 1);
    const int64_t *start = text->side[1].start + index;
    const int64_t whole = start[1] - start[0], count = text_length_of(text, index, 1);

    x2[0] = vocab_special(text->vocab[1], VOCAB_BEGIN);
    put(x2 + 1, id, count - 1, length - 1);
    put(y, id, count <= whole ? count : whole, length);
    if (count > whole)
        y[whole] = vocab_special(text->vocab[1], VOCAB_END);
}

static void read_pairs(const struct source *source, const struct source_how *how,
                       const int64_t *index, int64_t count,
                       const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2, int32_t *y)
{
    const struct text *text = text_of(source);
    int32_t *to = x;

    (void)how;
    for (int64_t i = 0; i < count; i++) {
        put(to + i * length[0], ids_of(text, index[i], 0), text_length_of(text, index[i], 0),
            length[0]);
        read_target(text, index[i], length[1], x2 + i * length[1], y + i * length[1]);
    }
}

static int64_t place_of_line(const struct source *source, int64_t index)
{
    return text_of(source)->data.line[index];
}

static void name_line(const struct source *source, int64_t index, struct strbuf *out)
{
    strbuf_printf(out, "%lld", (long long)text_of(source)->data.line[index]);
}

static int32_t no_label(const struct source *source, int64_t index)
{
    (void)source;
    (void)index;
    return SOURCE_PADDING;
}

/* Streams ------------------------------------------------------------------------------- */

/* Tokens that blocks are cut from: the last one has none to be guessed from it. */
int64_t text_stream_length(const struct text *text)
{
    return text->side[0].start[1] - (text->config.task == TEXT_NEXT_TOKEN);
}

int64_t text_block_count(const struct text *text)
{
    const int64_t tokens = text_stream_length(text), block = text->length[0];

    return text->split == TEXT_TRAIN ? tokens / block : (tokens + block - 1) / block;
}

/* Block `index` of the epoch: where it begins and how many tokens it has. */
static int64_t find_block(const struct text *text, const struct source_how *how, int64_t index,
                          int64_t *out_count)
{
    const int64_t tokens = text_stream_length(text), block = text->length[0];
    int64_t begin = index * block;

    if (how && text->split == TEXT_TRAIN && tokens > block) {
        struct rng rng;
        rng_init(&rng, how->seed ^ PHASE_STREAM, (uint64_t)how->epoch);
        begin += (int64_t)rng_below(&rng, (uint64_t)block);
    }
    *out_count = tokens - begin < block ? tokens - begin : block;
    return begin;
}

static void extend_stream(const struct source *source, const int64_t *index, int64_t count,
                          int64_t length[SOURCE_SEQUENCES])
{
    (void)index;
    (void)count;
    length[0] = text_of(source)->length[0];
}

static int64_t weigh_next(const struct source *source, const struct source_how *how,
                          const int64_t *index, int64_t count)
{
    int64_t weight = 0, own;

    for (int64_t i = 0; i < count; i++) {
        find_block(text_of(source), how, index[i], &own);
        weight += own;
    }
    return weight;
}

static void read_next(const struct source *source, const struct source_how *how,
                      const int64_t *index, int64_t count,
                      const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2, int32_t *y)
{
    const struct text *text = text_of(source);
    int32_t *to = x;

    (void)x2;
    for (int64_t i = 0; i < count; i++) {
        int64_t own;
        const int32_t *id = text->side[0].id + find_block(text, how, index[i], &own);
        put(to + i * length[0], id, own, length[0]);
        put(y + i * length[0], id + 1, own, length[0]);
    }
}

/* Masks --------------------------------------------------------------------------------- */

/* What becomes of one position, drawn from its number. */
static struct rng_block draw(const struct source_how *how, int64_t sample, int64_t position)
{
    const uint64_t seed = how ? how->seed : 0;
    const uint32_t counter[4] = { (uint32_t)position, (uint32_t)sample,
                                  how ? (uint32_t)how->epoch : UINT32_MAX, MASK_STREAM };

    return rng_philox(seed, counter);
}

static bool is_chosen(struct rng_block drawn)
{
    return rng_to_float(drawn.word[0]) < 0.15f;
}

/* Of a block in which none was chosen one is, so that each has something to guess. */
static int64_t forced_position(const struct source_how *how, int64_t sample, int64_t count)
{
    return (int64_t)(draw(how, sample, -1).word[0] % (uint64_t)count);
}

static int64_t weigh_masked(const struct source *source, const struct source_how *how,
                            const int64_t *index, int64_t count)
{
    int64_t weight = 0, own;

    for (int64_t i = 0; i < count; i++) {
        int64_t chosen = 0;
        find_block(text_of(source), how, index[i], &own);
        for (int64_t t = 0; t < own; t++)
            chosen += is_chosen(draw(how, index[i], t));
        weight += chosen > 0 ? chosen : 1;
    }
    return weight;
}

/* Hides one token of x: 80 % become <mask>, 10 % any token. */
static void hide(const struct vocab *vocab, struct rng_block drawn, int32_t *x)
{
    const float kind = rng_to_float(drawn.word[1]);

    if (kind < 0.8f)
        *x = vocab_special(vocab, VOCAB_MASK);
    else if (kind < 0.9f)
        *x = (int32_t)((uint64_t)drawn.word[2] * (uint64_t)vocab_size(vocab) >> 32);
}

static void read_masked(const struct source *source, const struct source_how *how,
                        const int64_t *index, int64_t count,
                        const int64_t length[SOURCE_SEQUENCES], void *x, int32_t *x2,
                        int32_t *y)
{
    const struct text *text = text_of(source);
    int32_t *to = x;

    (void)x2;
    for (int64_t i = 0; i < count; i++, to += length[0], y += length[0]) {
        int64_t own, chosen = 0;
        const int32_t *id = text->side[0].id + find_block(text, how, index[i], &own);
        put(to, id, own, length[0]);
        put(y, id, 0, length[0]);
        for (int64_t t = 0; t < own; t++) {
            const struct rng_block drawn = draw(how, index[i], t);
            if (!is_chosen(drawn))
                continue;
            y[t] = id[t];
            hide(text->vocab[0], drawn, &to[t]);
            chosen++;
        }
        if (chosen == 0) {
            const int64_t t = forced_position(how, index[i], own);
            y[t] = id[t];
            hide(text->vocab[0], draw(how, index[i], t), &to[t]);
        }
    }
}

const struct source_kind text_kinds[TEXT_TASKS] = {
    [TEXT_CLASSES] = { .extents = extend,
                       .read = read_classes,
                       .label = label_classes,
                       .place = place_of_line,
                       .name = name_line },
    [TEXT_PAIRS] = { .extents = extend,
                     .weight = weigh_pairs,
                     .read = read_pairs,
                     .label = no_label },
    [TEXT_NEXT_TOKEN] = { .extents = extend_stream,
                          .weight = weigh_next,
                          .read = read_next,
                          .label = no_label },
    [TEXT_MASKED_TOKEN] = { .extents = extend_stream,
                            .weight = weigh_masked,
                            .read = read_masked,
                            .label = no_label },
};
