/* SPDX-License-Identifier: MIT */
/* bleu.c - counts of matching n-grams, and the score made of them.
 *
 * 13a cuts off every ASCII symbol but apostrophe, hyphen, full stop and comma; these last two
 * unless digits stand on both sides; a hyphen after a digit. Its rules are substitutions that run over the
 * whole line one after the other, each from left to right without looking back at what it
 * has written, and "a.,b" shows that this matters: hence one pass a rule here too. Bytes do for
 * characters, as no rule looks into one beyond ASCII.
 *
 * Matches of n-grams: words become numbers, equal if the words are; the n-grams of both
 * texts are sorted, and a walk through both lists counts what they have in common.
 */
#include "train/bleu.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "data/unicode.h"

enum { SEGMENT_MAX = 64 << 20 };

/* Bytes of the white space that starts `text`, as Unicode defines it (and Python's split); 0: none. */
static size_t space_span(const char *text, size_t length)
{
    const unsigned char *b = (const unsigned char *)text;
    const size_t span = utf8_span(text, length);

    if (span == 1)
        return b[0] == ' ' || (b[0] >= '\t' && b[0] <= '\r') || (b[0] >= 0x1c && b[0] <= 0x1f);
    if (span == 2)
        return b[0] == 0xc2 && (b[1] == 0x85 || b[1] == 0xa0) ? 2 : 0;
    if (span != 3)
        return 0;
    const unsigned code = (b[0] & 0xfu) << 12 | (b[1] & 0x3fu) << 6 | (b[2] & 0x3fu);
    const bool is_space = code == 0x1680 || (code >= 0x2000 && code <= 0x200a) ||
                          code == 0x2028 || code == 0x2029 || code == 0x202f ||
                          code == 0x205f || code == 0x3000;
    return is_space ? 3 : 0;
}

/* Length without white space at the end. */
static size_t trimmed_length(const char *text)
{
    const size_t length = strlen(text);
    size_t end = 0;

    for (size_t at = 0; at < length;) {
        const size_t space = space_span(text + at, length - at);
        at += space ? space : 1;
        if (!space)
            end = at;
    }
    return end;
}

static void add_lower(struct strbuf *out, const char *text)
{
    const size_t length = strlen(text);
    char lower[UNICODE_LOWER_BYTES];

    for (size_t at = 0; at < length;) {
        const size_t bytes = unicode_lower_at(text, length, &at, lower);
        strbuf_add_bytes(out, lower, bytes);
    }
}

/* The tokenizer ------------------------------------------------------------------------- */

/* Adds text[0..length) with every `old` replaced. */
static void add_replaced(struct strbuf *out, const char *text, size_t length, const char *old,
                         const char *by)
{
    const size_t old_length = strlen(old);

    for (size_t at = 0; at < length;) {
        if (length - at >= old_length && memcmp(text + at, old, old_length) == 0) {
            strbuf_add(out, by);
            at += old_length;
        } else {
            strbuf_add_bytes(out, text + at++, 1);
        }
    }
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_point(char c)
{
    return c == '.' || c == ',';
}

static bool is_symbol(char c)
{
    return (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') || c == '/' ||
           (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

static void add_spaced(struct strbuf *out, const char *c)
{
    strbuf_add(out, " ");
    strbuf_add_bytes(out, c, 1);
    strbuf_add(out, " ");
}

/* A rule looks at the character at `at` and the one after it, writes what becomes of them and says
 * how many it took; 0: the rule is not about them. The last character has none after it. */
typedef size_t cut_rule(const char *at, bool has_next, struct strbuf *out);

static size_t cut_symbols(const char *at, bool has_next, struct strbuf *out)
{
    (void)has_next;
    if (!is_symbol(at[0]))
        return 0;
    add_spaced(out, at);
    return 1;
}

static size_t cut_points_after_no_digit(const char *at, bool has_next, struct strbuf *out)
{
    if (!has_next || is_digit(at[0]) || !is_point(at[1]))
        return 0;
    strbuf_add_bytes(out, at, 1);
    add_spaced(out, at + 1);
    return 2;
}

static size_t cut_points_before_no_digit(const char *at, bool has_next, struct strbuf *out)
{
    if (!has_next || !is_point(at[0]) || is_digit(at[1]))
        return 0;
    add_spaced(out, at);
    strbuf_add_bytes(out, at + 1, 1);
    return 2;
}

static size_t cut_hyphens_after_digit(const char *at, bool has_next, struct strbuf *out)
{
    if (!has_next || !is_digit(at[0]) || at[1] != '-')
        return 0;
    strbuf_add_bytes(out, at, 1);
    add_spaced(out, at + 1);
    return 2;
}

static void apply_rule(cut_rule *rule, const struct strbuf *in, struct strbuf *out)
{
    strbuf_clear(out);
    for (size_t at = 0; at < in->length;) {
        const size_t taken = rule(in->text + at, at + 1 < in->length, out);
        if (!taken)
            strbuf_add_bytes(out, in->text + at, 1);
        at += taken ? taken : 1;
    }
}

/* One space between words, none around them. */
static void add_joined(struct strbuf *out, const char *text, size_t length)
{
    const char *between = "";

    for (size_t at = 0; at < length;) {
        size_t end = at, space = 0;
        while (end < length && !(space = space_span(text + end, length - end)))
            end++;
        if (end > at) {
            strbuf_add(out, between);
            strbuf_add_bytes(out, text + at, end - at);
            between = " ";
        }
        at = end + space;
    }
}

static void swap(struct strbuf *a, struct strbuf *b)
{
    const struct strbuf kept = *a;
    *a = *b;
    *b = kept;
}

enum status bleu_tokenize(const char *segment, struct strbuf *out)
{
    static const char *const replaced[][2] = {
        { "<skipped>", "" }, { "-\n", "" },   { "\n", " " },   { "&quot;", "\"" },
        { "&amp;", "&" },    { "&lt;", "<" }, { "&gt;", ">" },
    };
    static cut_rule *const rules[] = { cut_symbols, cut_points_after_no_digit,
                                       cut_points_before_no_digit, cut_hyphens_after_digit };
    struct strbuf line, next;

    strbuf_init(&line, SEGMENT_MAX);
    strbuf_init(&next, SEGMENT_MAX);
    strbuf_add_bytes(&line, segment, trimmed_length(segment));
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++) {
        strbuf_clear(&next);
        add_replaced(&next, line.text, line.length, replaced[i][0], replaced[i][1]);
        swap(&line, &next);
    }
    strbuf_clear(&next);
    strbuf_printf(&next, " %s ", line.text);
    swap(&line, &next);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        apply_rule(rules[i], &line, &next);
        swap(&line, &next);
    }
    enum status status = strbuf_status(&line);
    if (status == STATUS_OK)
        status = strbuf_status(&next);
    if (status == STATUS_OK) {
        add_joined(out, line.text, line.length);
        status = strbuf_status(out);
    }
    strbuf_release(&line);
    strbuf_release(&next);
    return status;
}

/* Counting ------------------------------------------------------------------------------- */

struct word {
    const char *text; /* ended by a NUL */
    size_t place;     /* among the words of both texts */
};

/* As many words as the order says; the rest is zero. */
struct gram {
    int32_t word[BLEU_ORDER];
};

/* Two texts as numbers of words: those of the hypothesis first. */
struct pair {
    size_t n_hypothesis, n_reference;
    int32_t *numbers;
    struct gram *grams; /* room for as many */
};

static int compare_words(const void *a, const void *b)
{
    return strcmp(((const struct word *)a)->text, ((const struct word *)b)->text);
}

static int compare_grams(const void *a, const void *b)
{
    const struct gram *x = a, *y = b;

    for (int i = 0; i < BLEU_ORDER; i++) {
        if (x->word[i] != y->word[i])
            return x->word[i] < y->word[i] ? -1 : 1;
    }
    return 0;
}

/* Words of a joined text, cut in place. */
static size_t cut_words(struct strbuf *text, struct word *words, size_t place)
{
    size_t count = 0;

    for (char *rest = text->length ? text->text : NULL, *word; (word = strsep(&rest, " "));
         count++)
        words[count] = (struct word){ word, place + count };
    return count;
}

static size_t count_words(const struct strbuf *text)
{
    size_t count = text->length > 0;

    for (size_t i = 0; i < text->length; i++)
        count += text->text[i] == ' ';
    return count;
}

static void number_words(struct word *words, size_t count, int32_t *numbers)
{
    int32_t number = 0;

    qsort(words, count, sizeof *words, compare_words);
    for (size_t i = 0; i < count; i++) {
        number += i > 0 && strcmp(words[i].text, words[i - 1].text) != 0;
        numbers[words[i].place] = number;
    }
}

/* The n-grams of a text, sorted. */
static size_t make_grams(const int32_t *numbers, size_t count, size_t n, struct gram *grams)
{
    const size_t made = count >= n ? count - n + 1 : 0;

    for (size_t i = 0; i < made; i++) {
        grams[i] = (struct gram){ { 0 } };
        memcpy(grams[i].word, numbers + i, n * sizeof *numbers);
    }
    qsort(grams, made, sizeof *grams, compare_grams);
    return made;
}

static int64_t count_common(const struct gram *a, size_t n_a, const struct gram *b, size_t n_b)
{
    int64_t common = 0;

    for (size_t i = 0, j = 0; i < n_a && j < n_b;) {
        const int order = compare_grams(&a[i], &b[j]);
        common += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    return common;
}

static void count_pair(struct bleu *bleu, const struct pair *pair)
{
    struct gram *reference = pair->grams + pair->n_hypothesis;

    bleu->hypothesis_words += (int64_t)pair->n_hypothesis;
    bleu->reference_words += (int64_t)pair->n_reference;
    for (size_t n = 1; n <= BLEU_ORDER; n++) {
        const size_t n_h = make_grams(pair->numbers, pair->n_hypothesis, n, pair->grams);
        const size_t n_r =
            make_grams(pair->numbers + pair->n_hypothesis, pair->n_reference, n, reference);
        bleu->total[n - 1] += (int64_t)n_h;
        bleu->correct[n - 1] += count_common(pair->grams, n_h, reference, n_r);
    }
}

static enum status add_tokenized(struct bleu *bleu, struct strbuf *hypothesis,
                                 struct strbuf *reference)
{
    const size_t most = count_words(hypothesis) + count_words(reference);
    struct pair pair = { .numbers = NULL, .grams = NULL };
    struct word *words = NULL;

    enum status status = mem_alloc(most, sizeof *words, &words);
    if (status == STATUS_OK)
        status = mem_alloc(most, sizeof *pair.numbers, &pair.numbers);
    if (status == STATUS_OK)
        status = mem_alloc(most, sizeof *pair.grams, &pair.grams);
    if (status == STATUS_OK) {
        pair.n_hypothesis = cut_words(hypothesis, words, 0);
        pair.n_reference = cut_words(reference, words + pair.n_hypothesis, pair.n_hypothesis);
        number_words(words, most, pair.numbers);
        count_pair(bleu, &pair);
    }
    mem_free(words);
    mem_free(pair.numbers);
    mem_free(pair.grams);
    return status;
}

static enum status tokenize_as(const struct bleu *bleu, const char *segment, struct strbuf *out)
{
    struct strbuf lower;

    if (!bleu->is_lower_case)
        return bleu_tokenize(segment, out);
    strbuf_init(&lower, SEGMENT_MAX);
    add_lower(&lower, segment);
    enum status status = strbuf_status(&lower);
    if (status == STATUS_OK)
        status = bleu_tokenize(lower.text, out);
    strbuf_release(&lower);
    return status;
}

enum status bleu_add(struct bleu *bleu, const char *hypothesis, const char *reference)
{
    struct strbuf h, r;

    strbuf_init(&h, SEGMENT_MAX);
    strbuf_init(&r, SEGMENT_MAX);
    enum status status = tokenize_as(bleu, hypothesis, &h);
    if (status == STATUS_OK)
        status = tokenize_as(bleu, reference, &r);
    if (status == STATUS_OK)
        status = add_tokenized(bleu, &h, &r);
    strbuf_release(&h);
    strbuf_release(&r);
    return status;
}

/* The score ------------------------------------------------------------------------------ */

static bool has_match(const struct bleu *bleu)
{
    for (int n = 0; n < BLEU_ORDER; n++) {
        if (bleu->correct[n])
            return true;
    }
    return false;
}

struct bleu_score bleu_score(const struct bleu *bleu)
{
    const double h = (double)bleu->hypothesis_words, r = (double)bleu->reference_words;
    struct bleu_score out = { .brevity_penalty = h >= r ? 1 : h > 0 ? exp(1 - r / h) : 0 };
    double halved = 1, logs = 0;

    if (!has_match(bleu))
        return out;
    for (int n = 0; n < BLEU_ORDER && bleu->total[n]; n++) {
        if (bleu->correct[n])
            out.precision[n] = 100 * (double)bleu->correct[n] / (double)bleu->total[n];
        else
            out.precision[n] = 100 / ((halved *= 2) * (double)bleu->total[n]);
    }
    for (int n = 0; n < BLEU_ORDER; n++) /* the log of 0 makes the score 0 */
        logs += log(out.precision[n]);
    out.score = out.brevity_penalty * exp(logs / BLEU_ORDER);
    return out;
}

const char *bleu_signature(const struct bleu *bleu)
{
    return bleu->is_lower_case ? "nrefs:1|case:lc|eff:no|tok:13a|smooth:exp"
                               : "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp";
}
