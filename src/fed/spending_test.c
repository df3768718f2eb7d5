/* SPDX-License-Identifier: MIT */
/* spending_test.c - a participant's own count of privacy: what it refuses, and what a restart
 * leaves of it. */
#include "fed/spending.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/test.h"
#include "fed/policy.h"

/* Another way to epsilon: the Gaussian mechanism, q = 1, composed as one release of noise z /
 * sqrt(rounds). Its exact (epsilon, delta) curve by Balle and Wang 2018: delta = Phi(-e z +
 * 1/(2z)) - exp(e) Phi(-e z - 1/(2z)). */
static double exact_delta(double epsilon, double z)
{
    const double a = 1 / (2 * z) - epsilon * z, b = -1 / (2 * z) - epsilon * z;

    return 0.5 * erfc(-a / sqrt(2)) - exp(epsilon) * 0.5 * erfc(-b / sqrt(2));
}

static double exact_epsilon(double noise, int64_t rounds, double delta)
{
    const double z = noise / sqrt((double)rounds);
    double low = 0, high = 1e4;

    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        *(exact_delta(middle, z) > delta ? &low : &high) = middle;
    }
    return high;
}

/* Schedules that spend more than 1 are refused, whatever budget the coordinator promises to
 * keep. */
static void test_policies_count_themselves(struct rng *rng)
{
    static const char text[] = "{\"max_epsilon\": 1}";
    struct fed_policy *policy;
    int refused = 0;

    CHECK_OK(fed_policy_parse(text, strlen(text), &policy));
    for (int i = 0; i < 50; i++) {
        struct fed_terms terms;
        fed_terms_init(&terms);
        snprintf(terms.model, sizeof terms.model, "mlp");
        snprintf(terms.dp, sizeof terms.dp, rng_below(rng, 2) ? "central" : "distributed");
        terms.rounds = 1 + (int64_t)rng_below(rng, 100);
        terms.noise = 0.5 + (double)rng_below(rng, 4000) / 50;
        terms.delta = rng_below(rng, 2) ? 1e-5 : 1e-7;
        terms.epsilon = rng_below(rng, 2) ? 0.5 : 0;
        const double exact = exact_epsilon(terms.noise, terms.rounds, terms.delta);
        const enum status status = fed_policy_check(policy, &terms);
        if (exact > 1)
            CHECK_STATUS(STATUS_MISMATCH, status);
        else if (exact < 0.75) /* the accountant is an upper bound, not far off */
            CHECK_OK(status);
        refused += status != STATUS_OK;
    }
    CHECK(refused > 5 && refused < 45);
    fed_policy_destroy(policy);
}

static struct fed_release release_of(const char *federation, uint64_t round, bool is_record)
{
    return (struct fed_release){ .federation = federation,
                                 .is_record = is_record,
                                 .entry = { .round = round,
                                            .sampling = SAMPLING_ALL,
                                            .q = 1,
                                            .noise = 10,
                                            .releases = 1 },
                                 .epsilon = 2,
                                 .delta = 1e-5 };
}

static double spent(const char *path, bool is_record)
{
    double epsilon;
    size_t length;
    char *text;

    CHECK_OK(file_read(path, 1 << 20, &text, &length));
    CHECK_OK(fed_spending_epsilon(text, length, is_record, 1e-5, &epsilon));
    mem_free(text);
    return epsilon;
}

/* Two federations share one record; a round that is asked for again costs nothing, a training
 * of records always does. */
static void test_federations_share_a_record(void)
{
    char path[512];
    int rounds = 0;

    snprintf(path, sizeof path, "%s/ledger", test_folder());
    for (uint64_t round = 0; round < 1000; round++) {
        const struct fed_release release = release_of(round % 2 ? "a" : "b", round / 2, false);
        const enum status status = fed_spending_add(path, &release);
        if (status != STATUS_OK) {
            CHECK_STATUS(STATUS_STOPPED, status);
            CHECK_MESSAGE("of 2 that the policy allows over all federations");
            break;
        }
        CHECK_OK(fed_spending_add(path, &release));
        rounds++;
    }
    CHECK(rounds > 10 && rounds < 100);
    CHECK(spent(path, false) <= 2);
    CHECK(spent(path, false) > 1.9);
    CHECK_CLOSE(spent(path, false), exact_epsilon(10, rounds, 1e-5), 0.3);
    CHECK(spent(path, true) == 0);
    const struct fed_release record = release_of("a", 0, true);
    CHECK_OK(fed_spending_add(path, &record));
    const double once = spent(path, true);
    CHECK_OK(fed_spending_add(path, &record));
    CHECK(spent(path, true) > once);
}

/* A participant that is drawn by chance learns of its own rounds only. All rounds since the last
 * one were draws, too, or a draw of one in ten would cost a tenth of what it does. */
static void test_rounds_without_it_are_counted(void)
{
    struct fed_terms terms;
    double all;
    char path[512];

    fed_terms_init(&terms);
    snprintf(terms.dp, sizeof terms.dp, "central");
    terms.fraction = 0.1;
    terms.noise = 2;
    terms.rounds = 100;
    CHECK_OK(fed_terms_epsilon(&terms, false, 0, 1e-5, &all));
    snprintf(path, sizeof path, "%s/ledger", test_folder());
    struct fed_release release = release_of("a", 0, false);
    release.epsilon = INFINITY;
    CHECK(fed_release_of(&terms, false, 0, &release.entry));
    for (uint64_t round = 9; round < 100; round += 10) {
        release.entry.round = round;
        CHECK_OK(fed_spending_add(path, &release));
        CHECK_OK(fed_spending_add(path, &release));
    }
    CHECK_CLOSE(all, spent(path, false), 1e-6);
    release.epsilon = spent(path, false) + 0.05; /* a draw fits, ten rounds do not */
    release.entry.round = 109;
    CHECK_STATUS(STATUS_STOPPED, fed_spending_add(path, &release));
    release.federation = "b"; /* of its own: one round */
    release.entry.round = 0;
    CHECK_OK(fed_spending_add(path, &release));
}

/* A round that is run again with other secrets has other noise. A coordinator brings that about: a
 * participant that joins another federation in between forgets its state. */
static void test_the_same_round_with_other_keys_counts(void)
{
    char path[512];

    snprintf(path, sizeof path, "%s/ledger", test_folder());
    struct fed_release release = release_of("a", 0, false);
    release.keys = "00112233";
    CHECK_OK(fed_spending_add(path, &release));
    const double once = spent(path, false);
    CHECK_OK(fed_spending_add(path, &release));
    CHECK(spent(path, false) == once);
    release.keys = "44556677";
    CHECK_OK(fed_spending_add(path, &release));
    CHECK(spent(path, false) > once);
    release.keys = NULL;
    CHECK_OK(fed_spending_add(path, &release));
    CHECK_CLOSE(exact_epsilon(10, 3, 1e-5), spent(path, false), 0.3);
}

/* The coordinator names the federation: its name must not end the record. */
static void test_names_do_not_damage_the_record(void)
{
    static const char *const names[] = { "", "a b", "a\nupdates b", "a\n", "\x01", "a/0" };
    char path[512];

    snprintf(path, sizeof path, "%s/ledger", test_folder());
    const struct fed_release good = release_of("a", 0, false);
    CHECK_OK(fed_spending_add(path, &good));
    const double before = spent(path, false);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct fed_release release = release_of(names[i], 1, false);
        CHECK_STATUS(STATUS_MISMATCH, fed_spending_add(path, &release));
        CHECK(spent(path, false) == before);
    }
}

static void test_damaged_records_are_refused(void)
{
    static const char *const texts[] = { "updates a", "nothing a {}", "updates a {}\n", "\n",
                                         "records a {\"round\": 1}" };
    const struct fed_release release = release_of("a", 1, false);
    char path[512];

    snprintf(path, sizeof path, "%s/ledger", test_folder());
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        CHECK_OK(file_replace(path, texts[i], strlen(texts[i])));
        CHECK_STATUS(STATUS_CORRUPT, fed_spending_add(path, &release));
        CHECK_MESSAGE("is damaged");
    }
    CHECK_OK(file_replace(path, "", 0));
    CHECK_OK(fed_spending_add(path, &release));
    snprintf(path, sizeof path, "%s/none/ledger", test_folder());
    CHECK_STATUS(STATUS_IO, fed_spending_add(path, &release));
}

const struct test tests[] = {
    { .name = "policies count for themselves", .property = test_policies_count_themselves },
    { .name = "federations share a record", .run = test_federations_share_a_record },
    { .name = "rounds without it are counted", .run = test_rounds_without_it_are_counted },
    { .name = "the same round with other keys counts",
      .run = test_the_same_round_with_other_keys_counts },
    { .name = "names do not damage the record", .run = test_names_do_not_damage_the_record },
    { .name = "damaged records are refused", .run = test_damaged_records_are_refused },
    { 0 },
};
