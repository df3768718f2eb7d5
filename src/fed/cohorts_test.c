/* SPDX-License-Identifier: MIT */
/* cohorts_test.c - sets of participants that are too near to each other are noticed, also after
 * a restart. */
#include "fed/cohorts.h"

#include <string.h>

#include "base/rng.h"
#include "base/test.h"

enum { MOST = 20 };

/* A letter is a participant. */
static uint32_t make_set(const char *letters, uint8_t (*ids)[COHORTS_ID])
{
    const uint32_t n = (uint32_t)strlen(letters);

    memset(ids, 0, (size_t)n * COHORTS_ID);
    for (uint32_t i = 0; i < n; i++)
        ids[i][7] = (uint8_t)letters[i];
    return n;
}

static enum status check_set(const struct cohorts *cohorts, uint8_t kind, const char *letters,
                             uint32_t least)
{
    uint8_t ids[MOST][COHORTS_ID];

    return cohorts_check(cohorts, kind, ids, make_set(letters, ids), least);
}

static void add_set(struct cohorts *cohorts, uint8_t kind, const char *letters)
{
    uint8_t ids[MOST][COHORTS_ID];

    CHECK_OK(cohorts_add(cohorts, kind, ids, make_set(letters, ids)));
}

static void restart(struct cohorts *cohorts)
{
    struct fed_buffer bytes;

    fed_buffer_init(&bytes, 1 << 20);
    cohorts_write(cohorts, &bytes);
    CHECK_OK(fed_buffer_status(&bytes));
    struct fed_reader reader = fed_reader(bytes.data, bytes.length);
    CHECK_OK(cohorts_read(cohorts, &reader));
    CHECK_OK(fed_reader_end(&reader, "cohorts"));
    for (size_t cut = 0; cut < bytes.length; cut++) { /* half a record is none */
        struct cohorts *other;
        CHECK_OK(cohorts_create(&other));
        reader = fed_reader(bytes.data, cut);
        CHECK_OK(cohorts_read(other, &reader));
        CHECK_STATUS(STATUS_CORRUPT, fed_reader_end(&reader, "cohorts"));
        cohorts_destroy(other);
    }
    fed_buffer_release(&bytes);
}

static void test_near_sets_are_refused(void)
{
    static const struct {
        const char *set;
        uint32_t least;
        bool fine;
    } cases[] = {
        { "abcd", 9, true },           /* the same */ { "dcba", 9, true },
        { "abc", 2, false },           /* one left */ { "abc", 1, true },
        { "abcde", 2, false },         /* one came */ { "ab", 2, true },
        { "abce", 2, true },           /* one for one */ { "abce", 3, false },
        { "efgh", 8, true },           { "efgh", 9, false },
        { "abcd", COHORTS_ONE, true },
    };
    struct cohorts *cohorts;

    CHECK_OK(cohorts_create(&cohorts));
    CHECK_OK(check_set(cohorts, 0, "abc", 3)); /* the first */
    add_set(cohorts, 0, "abcd");
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const enum status status = check_set(cohorts, 0, cases[i].set, cases[i].least);
            CHECK_INT(cases[i].fine ? STATUS_OK : STATUS_MISMATCH, status);
            if (!cases[i].fine)
                CHECK_MESSAGE("the difference gives away");
            CHECK_OK(check_set(cohorts, 1, cases[i].set, cases[i].least)); /* another kind */
        }
        restart(cohorts);
    }
    add_set(cohorts, 0, "efgh"); /* members that the first set did not know */
    CHECK_STATUS(STATUS_MISMATCH, check_set(cohorts, 0, "efg", 2));
    CHECK_STATUS(STATUS_MISMATCH, check_set(cohorts, 0, "abc", 2));
    CHECK_OK(check_set(cohorts, 0, "efgh", 2));
    CHECK_STATUS(STATUS_MISMATCH, check_set(cohorts, 0, "efgh", COHORTS_ONE));
    CHECK_MESSAGE("one set of participants");
    CHECK_OK(check_set(cohorts, 1, "efgh", COHORTS_ONE));
    cohorts_destroy(cohorts);
}

/* Differences of random sets, by counting. */
static void test_differences_are_counted(struct rng *rng)
{
    bool sets[12][MOST] = { 0 };
    struct cohorts *cohorts;

    CHECK_OK(cohorts_create(&cohorts));
    for (int s = 0; s < 12; s++) {
        uint8_t ids[MOST][COHORTS_ID] = { 0 };
        uint32_t n = 0, nearest = UINT32_MAX;
        for (uint32_t i = 0; i < MOST; i++) {
            sets[s][i] = rng_below(rng, 2);
            if (sets[s][i])
                ids[n++][5] = (uint8_t)(i + 1);
        }
        for (int t = 0; t < s; t++) {
            uint32_t by = 0;
            for (int i = 0; i < MOST; i++)
                by += sets[s][i] != sets[t][i];
            nearest = by > 0 && by < nearest ? by : nearest;
        }
        if (nearest < UINT32_MAX) {
            CHECK_OK(cohorts_check(cohorts, 0, ids, n, nearest));
            CHECK_STATUS(STATUS_MISMATCH, cohorts_check(cohorts, 0, ids, n, nearest + 1));
        }
        CHECK_OK(cohorts_add(cohorts, 0, ids, n));
    }
    restart(cohorts);
    cohorts_destroy(cohorts);
}

const struct test tests[] = {
    { .name = "sets that are too near are refused", .run = test_near_sets_are_refused },
    { .name = "differences are counted", .property = test_differences_are_counted },
    { 0 },
};
