/* SPDX-License-Identifier: MIT */
/* text_test.c - text files to samples, in each of the four ways; what is refused, and how. */
#include "data/text.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"
#include "data/dataset.h"
#include "data/fetch.h"
#include "data/loader.h"
#include "data/tokenize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not synced, as there are many. */
static void write_text(const char *name, const char *text)
{
    FILE *file = fopen(data_testing_path(test_folder(), name), "w");

    CHECK(file != NULL);
    CHECK_INT(strlen(text), fwrite(text, 1, strlen(text), file));
    CHECK_INT(0, fclose(file));
}

static struct text *open_text(enum text_split split, const struct text_config *config)
{
    struct text *text;

    CHECK_OK(text_open(test_folder(), split, config, &text));
    return text;
}

static void check_refused(enum status status, const struct text_config *config,
                          enum text_split split, const char *part)
{
    struct text *text;

    CHECK_STATUS(status, text_open(test_folder(), split, config, &text));
    CHECK_MESSAGE(part);
}

static void check_ids(const int32_t *expected, const int32_t *actual, size_t count)
{
    for (size_t i = 0; i < count; i++)
        CHECK_INT(expected[i], actual[i]);
}

/* Classes -------------------------------------------------------------------------------- */

static const struct text_config classes = { .task = TEXT_CLASSES };

static void test_labelled_text_is_read(void)
{
    /* <unk> 0, then by count and bytes: b 1, a 2, c 3, d 4 */
    static const int32_t x[] = { 2, 1, 3, -1, 1, 1, 2, 4 };
    struct text *train, *test;
    struct text_config given = classes;
    int64_t length[SOURCE_SEQUENCES];
    int32_t ids[8], y[2];
    char room[24];

    write_text("train.tsv", "0\ta b\tc\n1\tb B a d\n");
    write_text("test.tsv", "1\td x\n");
    train = open_text(TEXT_TRAIN, &classes);
    const struct source *source = text_as_source(train);
    CHECK_INT(2, source_count(source));
    CHECK_INT(2, text_classes(train));
    CHECK_TEXT("1", text_class_name(train, 1, room));
    CHECK_INT(5, vocab_size(text_vocab(train, 0)));
    CHECK_INT(7, text_tokens(train, 0));
    CHECK_INT(4, text_longest(train, 0));
    source_extents(source, (const int64_t[]){ 0, 1 }, 2, length);
    CHECK(length[0] == 4 && length[1] == 0);
    source_read(source, NULL, (const int64_t[]){ 0, 1 }, 2, length, ids, NULL, y);
    check_ids(x, ids, 8);
    CHECK(y[0] == 0 && y[1] == 1);
    CHECK_INT(2, source_weight(source, NULL, (const int64_t[]){ 0, 1 }, 2));
    CHECK_INT(1, source_label(source, 1));

    given.vocab[0] = text_vocab(train, 0);
    test = open_text(TEXT_TEST, &given);
    source = text_as_source(test);
    CHECK_INT(1, source_count(source));
    source_extents(source, (const int64_t[]){ 0 }, 1, length);
    source_read(source, NULL, (const int64_t[]){ 0 }, 1, length, ids, NULL, y);
    check_ids((const int32_t[]){ 4, 0, -1, -1 }, ids, 4);
    CHECK(strcmp(source->fingerprint, text_as_source(train)->fingerprint) != 0);
    text_close(test);
    text_close(train);
}

static void test_documents_are_cut_to_the_length(void)
{
    struct text_config config = { .task = TEXT_CLASSES, .length = { 3 } };
    int64_t length[SOURCE_SEQUENCES];

    write_text("train.tsv", "0\ta b c d e f g\n1\ta\n");
    struct text *text = open_text(TEXT_TRAIN, &config);
    const struct source *source = text_as_source(text);
    CHECK_INT(8, text_tokens(text, 0)); /* all are counted */
    CHECK_INT(8, vocab_size(text_vocab(text, 0)));
    CHECK_INT(3, text_longest(text, 0));
    source_extents(source, (const int64_t[]){ 0, 1 }, 2, length);
    CHECK_INT(3, length[0]);
    source_extents(source, (const int64_t[]){ 1 }, 1, length);
    CHECK_INT(3, length[0]); /* 1, rounded up to 4, but no more than 3 */
    CHECK_INT(3 * sizeof(int32_t), source_row_bytes(source, SOURCE_X));
    text_close(text);
}

/* Labels may be words; classes come in turn; the row of IMDB has columns between. */
static void test_labels_may_be_words(void)
{
    char room[24];

    write_text("train.tsv",
               "pos\tone\npos\ttwo\npos\tthree\nneg\tfour\nneg\tfive\nmixed\tsix\n");
    struct text *text = open_text(TEXT_TRAIN, &classes);
    const struct source *source = text_as_source(text);
    CHECK_INT(3, text_classes(text));
    CHECK_TEXT("mixed", text_class_name(text, 0, room));
    CHECK_TEXT("pos", text_class_name(text, 2, room));
    for (int64_t i = 0; i < 6; i++)
        CHECK_INT("\0\1\2\1\2\2"[i], source_label(source, i));
    text_close(text);
}

static void test_imdbs_columns_are_known(void)
{
    write_text("train.tsv", "0\t3\t17\tbad film\n1\t9\t18\tgood\tfilm\n");
    struct text *text = open_text(TEXT_TRAIN, &classes);
    CHECK_INT(4, text_tokens(text, 0));
    text_close(text);
    write_text("train.tsv", "0\t3\t17\tbad film\n1\tgood film\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "train.tsv:2: not a label, a rating");
}

static void test_a_file_keeps_every_tenth_line_for_testing(void)
{
    struct text_config config = classes;
    struct text *train, *test;
    char path[1024];

    write_text("mine.tsv",
               "0\ta\n1\tb\n0\tc\n1\td\n0\te\n1\tf\n0\tg\n1\th\n0\ti\n1\tj\n0\tk\n");
    snprintf(path, sizeof path, "%s/mine.tsv", test_folder());
    CHECK_OK(text_open(path, TEXT_TRAIN, &config, &train));
    config.vocab[0] = text_vocab(train, 0);
    CHECK_OK(text_open(path, TEXT_TEST, &config, &test));
    CHECK_INT(10, source_count(text_as_source(train)));
    CHECK_INT(1, source_count(text_as_source(test)));
    CHECK_INT(1, source_label(text_as_source(test), 0));
    text_close(test);
    text_close(train);
}

static void test_wrong_labelled_text_is_refused(void)
{
    write_text("train.tsv", "");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "train.tsv: is empty");
    write_text("train.tsv", "0\ta\nno tab\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "train.tsv:2: not a label");
    write_text("train.tsv", "0\ta\n\tb\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "train.tsv:2: not a label");
    write_text("train.tsv", "0\ta\n1\t\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "train.tsv:2: not a label");
    write_text("train.tsv", "0\ta\n0\tb\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "all labels are the same");
    write_text("train.tsv", "0\ta\n99999999\tb\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN, "more than 65536 classes");
    write_text("train.tsv", "0\ta\n1\tb \xff\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TRAIN,
                  "train.tsv:2: not UTF-8: byte 8 of the file is 0xff");
    write_text("train.tsv", "0\ta\n1\tb\n");
    check_refused(STATUS_NOT_FOUND, &classes, TEXT_TEST, "has no test.tsv");
    write_text("test.tsv", "0\ta\n7\tb\n");
    check_refused(STATUS_CORRUPT, &classes, TEXT_TEST,
                  "test.tsv:2: label \"7\" is none of the 2");
}

/* Pairs ---------------------------------------------------------------------------------- */

static const struct text_config pairs = { .task = TEXT_PAIRS, .min_count = 1 };

static void write_pairs(void)
{
    write_text("train.de", "der hund\nhund\r\n");
    write_text("train.en", "the dog runs\ndog");
    write_text("val.de", "der\n");
    write_text("val.en", "the\n");
}

static void test_pairs_are_read(void)
{
    /* <unk> <bos> <eos>, then hund der, and dog runs the */
    static const int32_t x[] = { 4, 3, -1, -1, 3, -1, -1, -1 };
    static const int32_t x2[] = { 1, 5, 3, 4, 1, 3, -1, -1 };
    static const int32_t y[] = { 5, 3, 4, 2, 3, 2, -1, -1 };
    int64_t length[SOURCE_SEQUENCES];
    int32_t source_ids[8], target[8], labels[8];
    size_t bytes;

    write_pairs();
    struct text *text = open_text(TEXT_TRAIN, &pairs);
    const struct source *source = text_as_source(text);
    source_extents(source, (const int64_t[]){ 0, 1 }, 2, length);
    CHECK(length[0] == 4 && length[1] == 4);
    CHECK_INT(6, source_weight(source, NULL, (const int64_t[]){ 0, 1 }, 2));
    source_read(source, NULL, (const int64_t[]){ 0, 1 }, 2, length, source_ids, target, labels);
    check_ids(x, source_ids, 8);
    check_ids(x2, target, 8);
    check_ids(y, labels, 8);
    CHECK_INT(-1, source_label(source, 0));
    CHECK(memcmp(text_line(text, 1, 0, &bytes), "hund", 4) == 0 && bytes == 4);

    struct text_config given = pairs;
    given.vocab[0] = text_vocab(text, 0);
    given.vocab[1] = text_vocab(text, 1);
    struct text *test = open_text(TEXT_TEST, &given); /* val stands in for it */
    CHECK_INT(1, source_count(text_as_source(test)));
    text_close(test);
    given.vocab[1] = NULL;
    check_refused(STATUS_MISMATCH, &given, TEXT_TEST, "one vocabulary");
    text_close(text);
}

/* A target that is too long loses its end, and with it its <eos>. */
static void test_long_pairs_are_cut(void)
{
    struct text_config config = pairs;
    int64_t length[SOURCE_SEQUENCES];
    int32_t x[4], x2[4], y[4];

    write_pairs();
    config.length[0] = 1;
    config.length[1] = 2;
    struct text *text = open_text(TEXT_TRAIN, &config);
    source_extents(text_as_source(text), (const int64_t[]){ 0 }, 1, length);
    CHECK(length[0] == 1 && length[1] == 2);
    source_read(text_as_source(text), NULL, (const int64_t[]){ 0 }, 1, length, x, x2, y);
    CHECK_INT(4, x[0]);
    CHECK(x2[0] == 1 && x2[1] == 5);
    CHECK(y[0] == 5 && y[1] == 3);
    text_close(text);
}

static void test_pairs_of_different_length_are_refused(void)
{
    write_pairs();
    write_text("train.en", "one\ntwo\nthree\n");
    check_refused(STATUS_CORRUPT, &pairs, TEXT_TRAIN, "has 2 lines");
    check_refused(STATUS_CORRUPT, &pairs, TEXT_TRAIN, "has 3: they do not belong together");
    write_text("train.fr", "un\n");
    check_refused(STATUS_NOT_FOUND, &pairs, TEXT_TRAIN, "no data set there");
}

static void test_packed_text_is_read(void)
{
    static const char text[] = "der hund\nhund\n";
    struct text_config config = pairs;
    struct data_testing_file file = { .length = sizeof text - 1 };
    struct text *plain, *packed;
    char path[1024];

    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    write_pairs();
    plain = open_text(TEXT_TRAIN, &config);
    CHECK_OK(mem_alloc(file.length, 1, &file.bytes));
    memcpy(file.bytes, text, file.length);
    data_testing_pack(&file);
    snprintf(path, sizeof path, "%s/train.de", test_folder());
    remove(path);
    data_testing_write(test_folder(), "train.de.gz", file.bytes, file.length);
    packed = open_text(TEXT_TRAIN, &config);
    CHECK_TEXT(text_as_source(plain)->fingerprint, text_as_source(packed)->fingerprint);
    text_close(packed);
    text_close(plain);
    for (size_t cut = 0; cut < file.length; cut++) {
        data_testing_write(test_folder(), "train.de.gz", file.bytes, cut);
        check_refused(STATUS_CORRUPT, &config, TEXT_TRAIN, "train.de.gz: is ");
    }
    data_testing_write(test_folder(), "train.de.gz", (const uint8_t *)text, sizeof text);
    check_refused(STATUS_CORRUPT, &config, TEXT_TRAIN, "is not a gzip file");
    mem_free(file.bytes);
}

/* Streams -------------------------------------------------------------------------------- */

static void test_the_last_tenth_is_for_testing(void)
{
    struct text_config config = { .task = TEXT_NEXT_TOKEN, .length = { 4 } };
    int64_t length[SOURCE_SEQUENCES];
    int32_t x[12], y[12];

    /* 25 characters, one of two bytes: 22 are for training. */
    write_text("input.txt", "abcdefghijklmnopqrstu\xc3\xa4uuu");
    struct text *train = open_text(TEXT_TRAIN, &config);
    CHECK_INT(22, text_tokens(train, 0));
    CHECK_INT(22, vocab_size(text_vocab(train, 0)));
    CHECK_INT(5, source_count(text_as_source(train)));
    config.vocab[0] = text_vocab(train, 0);
    struct text *test = open_text(TEXT_VALIDATION, &config);
    CHECK_INT(3, text_tokens(test, 0));
    CHECK_INT(1, source_count(text_as_source(test)));
    source_extents(text_as_source(test), (const int64_t[]){ 0 }, 1, length);
    CHECK_INT(2, length[0]); /* there are no more */
    source_read(text_as_source(test), NULL, (const int64_t[]){ 0 }, 1, length, x, NULL, y);
    const int32_t u = vocab_find(text_vocab(train, 0), "u", 1);
    check_ids((const int32_t[]){ u, u }, x, 2);
    check_ids((const int32_t[]){ u, u }, y, 2);
    CHECK_INT(2, source_weight(text_as_source(test), NULL, (const int64_t[]){ 0 }, 1));
    text_close(test);
    text_close(train);
}

/* Characters that only the last tenth has are in the vocabulary; it is the same where there are none. */
static void test_a_files_vocabulary_has_all_its_characters(void)
{
    struct text_config config = { .task = TEXT_NEXT_TOKEN, .length = { 4 } };
    int64_t length[SOURCE_SEQUENCES], zero = 0;
    int32_t x[4], y[4];

    write_text("input.txt", "aaaaabbbaaaaabbbaa\n\xc3\xa4");
    struct text *train = open_text(TEXT_TRAIN, &config);
    const struct vocab *vocab = text_vocab(train, 0);
    CHECK_INT(4, vocab_size(vocab));
    CHECK_INT(2, vocab_find(vocab, "\n", 1)); /* counted there, so after the others */
    CHECK_INT(3, vocab_find(vocab, "\xc3\xa4", 2));
    config.vocab[0] = vocab;
    struct text *test = open_text(TEXT_TEST, &config);
    source_extents(text_as_source(test), &zero, 1, length);
    source_read(text_as_source(test), NULL, &zero, 1, length, x, NULL, y);
    CHECK(length[0] == 1 && x[0] == 2 && y[0] == 3);
    text_close(test);
    text_close(train);
    config.vocab[0] = NULL;
    config.most = 3; /* too few for all */
    train = open_text(TEXT_TRAIN, &config);
    CHECK_INT(3, vocab_size(text_vocab(train, 0)));
    CHECK_INT(0, vocab_special(text_vocab(train, 0), VOCAB_UNKNOWN));
    text_close(train);

    char known[65];
    config.most = 0;
    write_text("input.txt", "aaaaabbbaaaaabbbaabb");
    train = open_text(TEXT_TRAIN, &config);
    memcpy(known, vocab_fingerprint(text_vocab(train, 0)), sizeof known);
    text_close(train);
    write_text("train.txt", "aaaaabbbaaaaabbbaa");
    write_text("test.txt", "cc");
    train = open_text(TEXT_TRAIN, &config); /* files of their own are not looked at for it */
    CHECK_TEXT(known, vocab_fingerprint(text_vocab(train, 0)));
    text_close(train);
}

/* Counts, in blocks that begin anywhere, go up by one; every epoch sees all but the ends. */
static void test_blocks_follow_each_other(struct rng *rng)
{
    enum { TOKENS = 90, BLOCK_MOST = 40 };
    const int64_t block = 1 + (int64_t)rng_below(rng, BLOCK_MOST);
    struct text_config config = { .task = TEXT_NEXT_TOKEN, .length = { block } };
    const struct source_how how = { .seed = rng_u64(rng), .epoch = (int64_t)rng_below(rng, 9) };
    int32_t x[BLOCK_MOST], y[BLOCK_MOST], next = -1;
    int64_t length[SOURCE_SEQUENCES], weight = 0;
    char text[2 * TOKENS + 1];

    for (int i = 0; i < TOKENS; i++) /* tokens whose numbers are their places */
        snprintf(text + i, 2, "%c", ' ' + i);
    write_text("train.txt", text);
    write_text("test.txt", text);
    struct text *open = open_text(TEXT_TRAIN, &config);
    const struct source *source = text_as_source(open);
    CHECK_INT(TOKENS, vocab_size(text_vocab(open, 0)));
    for (int64_t i = 0; i < source_count(source); i++) {
        int64_t seen = 0;
        source_extents(source, &i, 1, length);
        CHECK_INT(block, length[0]);
        source_read(source, &how, &i, 1, length, x, NULL, y);
        next = next < 0 ? x[0] : next;
        for (int64_t t = 0; t < block; t++) {
            CHECK((x[t] < 0) == (y[t] < 0));
            if (x[t] < 0)
                continue;
            CHECK_INT(next++, x[t]);
            CHECK_INT(next, y[t]);
            seen++;
        }
        CHECK(seen > 0);
        CHECK_INT(seen, source_weight(source, &how, &i, 1));
        weight += seen;
    }
    CHECK(weight > TOKENS - 1 - 2 * block && weight < TOKENS);
    text_close(open);
}

static void test_epochs_begin_elsewhere(void)
{
    struct text_config config = { .task = TEXT_NEXT_TOKEN, .length = { 16 } };
    struct source_how how = { .seed = 1 };
    bool seen[64] = { false };
    int64_t length[SOURCE_SEQUENCES], zero = 0;
    int32_t x[16], y[16];
    char text[65];
    int places = 0;

    for (int i = 0; i < 64; i++)
        text[i] = (char)('0' + i);
    text[64] = '\0';
    write_text("train.txt", text);
    write_text("test.txt", text);
    struct text *open = open_text(TEXT_TRAIN, &config);
    source_extents(text_as_source(open), &zero, 1, length);
    for (how.epoch = 0; how.epoch < 200; how.epoch++) {
        source_read(text_as_source(open), &how, &zero, 1, length, x, NULL, y);
        places += !seen[x[0]];
        seen[x[0]] = true;
    }
    CHECK_INT(16, places);
    source_read(text_as_source(open), NULL, &zero, 1, length, x, NULL, y);
    CHECK_INT(0, x[0]); /* evaluation begins at the beginning */
    text_close(open);
}

/* Line ends of words are <eos>, whatever the pieces are that threads take. */
static void test_lines_of_words_end(void)
{
    struct text_config config = {
        .task = TEXT_NEXT_TOKEN, .length = { 5 }, .tokenizer = "words", .threads = 3
    };
    int64_t length[SOURCE_SEQUENCES], zero = 0;
    int32_t x[5], y[5];

    write_text("train.txt", "a b\n\nb\n");
    write_text("test.txt", "a");
    struct text *text = open_text(TEXT_TRAIN, &config);
    CHECK_INT(4, vocab_size(text_vocab(text, 0)));
    CHECK_INT(1, vocab_special(text_vocab(text, 0), VOCAB_END));
    CHECK_INT(6, text_tokens(text, 0));
    source_extents(text_as_source(text), &zero, 1, length);
    source_read(text_as_source(text), NULL, &zero, 1, length, x, NULL, y);
    /* b is more frequent than a */
    CHECK_INT(3, x[0]);
    CHECK_INT(2, x[1]);
    check_ids((const int32_t[]){ 1, 1, 2 }, x + 2, 3);
    struct strbuf back;
    strbuf_init(&back, 100);
    vocab_decode(text_vocab(text, 0), -1, x, 5, &back);
    CHECK_TEXT("a b\n\nb", back.text);
    strbuf_release(&back);
    text_close(text);
}

static void test_wrong_plain_text_is_refused(void)
{
    struct text_config config = { .task = TEXT_NEXT_TOKEN, .length = { 4 } };

    write_text("train.txt", "a");
    write_text("test.txt", "abc");
    check_refused(STATUS_CORRUPT, &config, TEXT_TRAIN, "has 1 tokens, too few");
    write_text("train.txt", "ab");
    struct text *train = open_text(TEXT_TRAIN, &config);
    config.vocab[0] = text_vocab(train, 0);
    check_refused(STATUS_MISMATCH, &config, TEXT_TEST,
                  "test.txt:1: \"c\" is not in the vocabulary of 2 characters");
    write_text("test.txt", "abba\n");
    check_refused(STATUS_MISMATCH, &config, TEXT_TEST,
                  "\"\\x0a\" is not in the vocabulary of 2 characters, which has no <unk>; "
                  "training with --min-count 2 makes one");
    text_close(train);
    write_text("train.txt", "abab"); /* and it does, also where all occur so often */
    config = (struct text_config){ .task = TEXT_NEXT_TOKEN, .min_count = 2 };
    train = open_text(TEXT_TRAIN, &config);
    config.vocab[0] = text_vocab(train, 0);
    text_close(open_text(TEXT_TEST, &config));
    text_close(train);
    config.min_count = 0;
    config.vocab[0] = NULL;
    train = open_text(TEXT_TRAIN, &config);
    config.vocab[0] = text_vocab(train, 0);
    config.tokenizer = "words";
    check_refused(STATUS_MISMATCH, &config, TEXT_TEST, "--tokenizer words asks for another");
    config.tokenizer = NULL;
    config.task = TEXT_MASKED_TOKEN;
    check_refused(STATUS_MISMATCH, &config, TEXT_TEST, "the vocabulary has no <mask>");
    text_close(train);
    config = (struct text_config){ .task = TEXT_CLASSES };
    check_refused(STATUS_USAGE, &config, TEXT_TRAIN, "is running text; the model learns from");
    config = (struct text_config){ .task = TEXT_NEXT_TOKEN, .tokenizer = "wrods" };
    check_refused(STATUS_USAGE, &config, TEXT_TRAIN, "unknown tokenizer \"wrods\"");
    config = (struct text_config){ .task = TEXT_NEXT_TOKEN, .most = 1 };
    check_refused(STATUS_USAGE, &config, TEXT_TRAIN, "a vocabulary of 1 token");
}

static void test_images_are_no_text(void)
{
    const struct data_testing_set set = {
        .train = 2, .test = 1, .rows = 3, .columns = 4, .classes = 2
    };
    struct dataset *dataset;
    struct rng rng;

    rng_init(&rng, 1, 1);
    data_testing_make(&rng, test_folder(), &set);
    check_refused(STATUS_USAGE, &classes, TEXT_TRAIN, "is a set of images");
    char path[1024];
    write_text("some.txt", "text");
    snprintf(path, sizeof path, "%s/some.txt", test_folder());
    CHECK_STATUS(STATUS_USAGE, dataset_open(path, DATASET_TRAIN, &dataset));
    CHECK_MESSAGE("is text, not images");
}

/* Masks ---------------------------------------------------------------------------------- */

/* A stream of `count` random letters. */
static void write_letters(struct rng *rng, int count)
{
    char *text;

    CHECK_OK(mem_alloc((size_t)count + 1, 1, &text));
    for (int i = 0; i < count; i++)
        text[i] = (char)('a' + rng_below(rng, 20));
    write_text("train.txt", text);
    write_text("test.txt", text);
    mem_free(text);
}

static void test_masks_are_berts(void)
{
    enum { TOKENS = 40000, BLOCK = 100 };
    struct text_config config = { .task = TEXT_MASKED_TOKEN, .length = { BLOCK } };
    const struct source_how how = { .seed = 3, .epoch = 1 };
    int64_t length[SOURCE_SEQUENCES], chosen = 0, masked = 0, kept = 0, weight = 0;
    int32_t x[BLOCK], y[BLOCK];
    struct rng rng;

    rng_init(&rng, 1, 1);
    write_letters(&rng, TOKENS);
    struct text *text = open_text(TEXT_TRAIN, &config);
    const struct source *source = text_as_source(text);
    const int32_t mask = vocab_special(text_vocab(text, 0), VOCAB_MASK);
    CHECK_INT(0, mask);
    CHECK_INT(21, vocab_size(text_vocab(text, 0)));
    for (int64_t i = 0; i < source_count(source); i++) {
        source_extents(source, &i, 1, length);
        source_read(source, &how, &i, 1, length, x, NULL, y);
        weight += source_weight(source, &how, &i, 1);
        for (int t = 0; t < BLOCK; t++) {
            const int32_t plain = y[t] < 0 ? x[t] : y[t];
            CHECK(plain > 0 || (plain < 0 && i == source_count(source) - 1));
            CHECK(plain < 21);
            chosen += y[t] >= 0;
            masked += y[t] >= 0 && x[t] == mask;
            kept += y[t] >= 0 && x[t] == y[t];
        }
    }
    CHECK_INT(chosen, weight);
    CHECK_CLOSE(0.15, (double)chosen / TOKENS, 0.01);
    CHECK_CLOSE(0.8, (double)masked / (double)chosen, 0.03);
    CHECK_CLOSE(0.1 + 0.1 / 21, (double)kept / (double)chosen, 0.02);
    text_close(text);
}

/* Every block has something to guess, however short; draws depend on sample and epoch. */
static void test_every_block_has_a_mask(struct rng *rng)
{
    enum { BLOCK_MOST = 8 };
    const int64_t block = 1 + (int64_t)rng_below(rng, BLOCK_MOST);
    struct text_config config = { .task = TEXT_MASKED_TOKEN, .length = { block } };
    const struct source_how how = { .seed = rng_u64(rng), .epoch = 2 };
    int64_t length[SOURCE_SEQUENCES];
    int32_t x[BLOCK_MOST], y[BLOCK_MOST];

    write_letters(rng, 100);
    struct text *text = open_text(TEXT_TRAIN, &config);
    const struct source *source = text_as_source(text);
    for (int64_t i = 0; i < source_count(source); i++) {
        int64_t chosen = 0;
        source_extents(source, &i, 1, length);
        source_read(source, &how, &i, 1, length, x, NULL, y);
        for (int64_t t = 0; t < block; t++)
            chosen += y[t] >= 0;
        CHECK(chosen > 0);
        CHECK_INT(chosen, source_weight(source, &how, &i, 1));
    }
    text_close(text);
}

/* All of them ---------------------------------------------------------------------------- */

/* Some lines of random words. */
static void write_words(struct rng *rng, const char *name, int lines, bool has_labels)
{
    struct strbuf text;

    strbuf_init(&text, 1 << 24);
    for (int i = 0; i < lines; i++) {
        if (has_labels)
            strbuf_printf(&text, "%d\t", i < 2 ? i : (int)rng_below(rng, 2));
        strbuf_printf(&text, "w%d", (int)rng_below(rng, 300));
        for (uint64_t left = rng_below(rng, 30); left > 0; left--)
            strbuf_printf(&text, " w%d", (int)rng_below(rng, 300));
        strbuf_add(&text, "\n");
    }
    CHECK_OK(strbuf_status(&text));
    write_text(name, text.text);
    strbuf_release(&text);
}

static void test_threads_do_not_matter(void)
{
    enum { LINES = 20000 };
    struct text_config config = { .task = TEXT_CLASSES, .length = { 16 }, .most = 200 };
    struct rng rng;

    rng_init(&rng, 2, 2);
    write_words(&rng, "train.tsv", LINES, true);
    config.threads = 1;
    struct text *one = open_text(TEXT_TRAIN, &config);
    for (int threads = 2; threads < 6; threads++) {
        config.threads = threads;
        struct text *many = open_text(TEXT_TRAIN, &config);
        CHECK_TEXT(text_as_source(one)->fingerprint, text_as_source(many)->fingerprint);
        CHECK_INT(text_tokens(one, 0), text_tokens(many, 0));
        text_close(many);
    }
    text_close(one);
}

static void test_a_limit_is_kept(void)
{
    struct text_config config = { .task = TEXT_CLASSES };
    bool seen[10] = { false };
    char all[65];
    struct rng rng;

    rng_init(&rng, 2, 2);
    write_words(&rng, "train.tsv", 50, true);
    struct text *text = open_text(TEXT_TRAIN, &config);
    const struct source *source = text_as_source(text);
    snprintf(all, sizeof all, "%s", source->fingerprint);
    text_limit(text, 10);
    CHECK_INT(10, source_count(source));
    CHECK(strcmp(all, source->fingerprint) != 0);
    for (int64_t i = 0; i < 10; i++) {
        const int64_t at = source_at(source, i);
        CHECK(at >= 0 && at < 10 && !seen[at]);
        seen[at] = true;
        CHECK(i == 0 || source->key[source_at(source, i - 1)] <= source->key[at]);
    }
    text_limit(text, 0);
    CHECK_TEXT(all, source->fingerprint);
    text_close(text);
}

/* Ranks see batches of the same lengths and weight, and together all their rows. */
static void test_ranks_agree_on_lengths(struct rng *rng)
{
    static const enum text_task tasks[] = { TEXT_CLASSES, TEXT_PAIRS, TEXT_MASKED_TOKEN };
    enum { RANKS = 3, STEPS = 12 };
    struct text_config config = { .task = tasks[rng_below(rng, 3)],
                                  .tokenizer = "words",
                                  .length = { 24, 20 } };
    struct loader *loaders[RANKS], *whole;
    const struct batch *all, *part;

    write_words(rng,
                config.task == TEXT_CLASSES ? "train.tsv"
                : config.task == TEXT_PAIRS ? "train.aa"
                                            : "train.txt",
                60, config.task == TEXT_CLASSES);
    write_words(rng, config.task == TEXT_PAIRS ? "train.bb" : "test.txt", 60, false);
    struct text *text = open_text(TEXT_TRAIN, &config);
    const struct source *source = text_as_source(text);
    struct loader_config loader = {
        .source = source,
        .sampler = { .key = source->key,
                     .count = source_count(source),
                     .batch = 1 + (int64_t)rng_below(rng, 20),
                     .seed = rng_u64(rng),
                     .shuffle = true },
        .shards = 7,
        .n_shards = 7,
        .end_step = STEPS,
    };
    CHECK_OK(loader_create(&loader, &whole));
    for (int rank = 0; rank < RANKS; rank++) {
        loader.first_shard = loader.shards * rank / RANKS;
        loader.n_shards = loader.shards * (rank + 1) / RANKS - loader.first_shard;
        CHECK_OK(loader_create(&loader, &loaders[rank]));
    }
    for (int step = 0; step < STEPS; step++) {
        CHECK_OK(loader_next(whole, &all));
        int64_t counted = 0, labels = all->rows;
        if (config.task != TEXT_CLASSES)
            labels *= all->length[config.task == TEXT_PAIRS];
        for (int64_t i = 0; i < labels; i++)
            counted += all->y[i] >= 0;
        CHECK_INT(counted, all->weight);
        CHECK((all->x2 != NULL) == (config.task == TEXT_PAIRS));
        for (int rank = 0; rank < RANKS; rank++) {
            CHECK_OK(loader_next(loaders[rank], &part));
            CHECK_INT(all->weight, part->weight);
            CHECK(memcmp(all->length, part->length, sizeof all->length) == 0);
            const size_t row = (size_t)all->length[0] * sizeof(int32_t);
            CHECK(memcmp((const char *)all->x + (size_t)part->first * row, part->x,
                         (size_t)part->rows * row) == 0);
            loader_done(loaders[rank], part);
        }
        loader_done(whole, all);
    }
    for (int rank = 0; rank < RANKS; rank++)
        loader_destroy(loaders[rank]);
    loader_destroy(whole);
    text_close(text);
}

static void test_opening_survives_lack_of_memory(void)
{
    struct text_config config = { .task = TEXT_PAIRS, .threads = 1, .min_count = 1 };
    enum status status = STATUS_NO_MEMORY;
    struct text *text = NULL;
    char folder[1024];

    write_pairs();
    snprintf(folder, sizeof folder, "%s", test_folder());
    for (uint64_t nth = 1; status != STATUS_OK; nth++) {
        mem_fail_at(nth);
        status = text_open(folder, TEXT_TRAIN, &config, &text);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || status == STATUS_NO_MEMORY ||
              status == STATUS_NOT_FOUND); /* a probe that finds nothing */
    }
    text_close(text);
    text_close(NULL);
}

static void test_text_is_imported(void)
{
    struct text_config config = pairs;
    char root[1024], *folder;
    struct text *text;

    write_pairs();
    snprintf(root, sizeof root, "%s/root", test_folder());
    CHECK_OK(file_make_folder(root));
    setenv("TUTTI_DATA", root, 1);
    CHECK_OK(dataset_import(test_folder(), "mine", &folder));
    mem_free(folder);
    CHECK_OK(text_open("mine", TEXT_VALIDATION, &config, &text));
    CHECK_INT(1, source_count(text_as_source(text)));
    text_close(text);
}

static void check_real(const char *name, enum text_task task, int64_t count, int64_t tokens,
                       int32_t vocabulary)
{
    const struct text_config config = { .task = task, .min_count = 1 };
    struct text *text;

    CHECK_OK(text_open(name, TEXT_TRAIN, &config, &text));
    CHECK_INT(count, source_count(text_as_source(text)));
    CHECK_INT(tokens, text_tokens(text, 0));
    CHECK_INT(vocabulary, vocab_size(text_vocab(text, 0)));
    text_close(text);
}

static void test_shakespeare_is_what_it_is(void)
{
    if (!test_data("shakespeare"))
        test_skip("no shakespeare here");
    check_real("shakespeare", TEXT_NEXT_TOKEN, 3921, 1003854, 65);
}

static void test_multi30k_is_what_it_is(void)
{
    if (!test_data("multi30k"))
        test_skip("no multi30k here");
    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    check_real("multi30k", TEXT_PAIRS, 29000, 360313, 18756);
}

const struct test tests[] = {
    { .name = "labelled text is read", .run = test_labelled_text_is_read },
    { .name = "documents are cut to the length", .run = test_documents_are_cut_to_the_length },
    { .name = "labels may be words", .run = test_labels_may_be_words },
    { .name = "IMDB's columns are known", .run = test_imdbs_columns_are_known },
    { .name = "a file keeps every tenth line for testing",
      .run = test_a_file_keeps_every_tenth_line_for_testing },
    { .name = "wrong labelled text is refused", .run = test_wrong_labelled_text_is_refused },
    { .name = "pairs are read", .run = test_pairs_are_read },
    { .name = "long pairs are cut", .run = test_long_pairs_are_cut },
    { .name = "pairs of different length are refused",
      .run = test_pairs_of_different_length_are_refused },
    { .name = "packed text is read", .run = test_packed_text_is_read },
    { .name = "the last tenth is for testing", .run = test_the_last_tenth_is_for_testing },
    { .name = "a file's vocabulary has all its characters",
      .run = test_a_files_vocabulary_has_all_its_characters },
    { .name = "blocks follow each other", .property = test_blocks_follow_each_other },
    { .name = "epochs begin elsewhere", .run = test_epochs_begin_elsewhere },
    { .name = "lines of words end", .run = test_lines_of_words_end },
    { .name = "wrong plain text is refused", .run = test_wrong_plain_text_is_refused },
    { .name = "images are no text", .run = test_images_are_no_text },
    { .name = "masks are BERT's", .run = test_masks_are_berts },
    { .name = "every block has a mask", .property = test_every_block_has_a_mask },
    { .name = "threads do not matter", .run = test_threads_do_not_matter },
    { .name = "a limit is kept", .run = test_a_limit_is_kept },
    { .name = "ranks agree on lengths", .property = test_ranks_agree_on_lengths },
    { .name = "opening survives lack of memory", .run = test_opening_survives_lack_of_memory },
    { .name = "Shakespeare is what it is", .run = test_shakespeare_is_what_it_is },
    { .name = "Multi30k is what it is", .run = test_multi30k_is_what_it_is },
    { .name = "text is imported", .run = test_text_is_imported },
    { 0 },
};
