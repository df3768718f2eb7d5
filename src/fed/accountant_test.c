/* SPDX-License-Identifier: MIT */
/* accountant_test.c - published values of epsilon, laws of the divergences, and a ledger that says no. */
#include "fed/accountant.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

/* Epsilon of so many steps at the best order of [first, last] in steps of `by`. */
static double best(double q, double noise, double steps, double delta,
                   enum conversion conversion, double first, double last, double by)
{
    double least = INFINITY;

    for (int i = 0; first + i * by <= last + 1e-9; i++) {
        const double order = first + i * by;
        least = fmin(
            least,
            accountant_epsilon(order, steps * accountant_rdp(SAMPLING_POISSON, q, noise, order),
                               delta, conversion));
    }
    return least;
}

/* DP-SGD on 60000 samples, batches of 256, delta 1e-5; whole orders, recomputed independently. */
static void test_known_values_of_whole_orders(void)
{
    static const struct {
        double noise, steps, classic, improved;
    } cases[] = {
        { 1.12, 14062, 2.9222, 2.5215 }, { 0.6, 7031, 9.7734, 8.8186 },
        { 1.2, 2343, 1.1982, 0.9316 },   { 1.1, 14062, 3.0091, 2.5970 },
        { 1.3, 3515, 1.1921, 0.9544 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const double q = 256.0 / 60000;
        CHECK_CLOSE(
            cases[i].classic,
            best(q, cases[i].noise, cases[i].steps, 1e-5, CONVERSION_CLASSIC, 2, 256, 1), 1e-4);
        CHECK_CLOSE(
            cases[i].improved,
            best(q, cases[i].noise, cases[i].steps, 1e-5, CONVERSION_IMPROVED, 2, 256, 1),
            1e-4);
    }
}

/* Opacus' tests have 7.32911117143. The second is numerical integration of the definition. */
static void test_known_values_of_fractional_orders(void)
{
    CHECK_CLOSE(7.32911117143, best(0.04, 1.5, 2250, 1e-5, CONVERSION_IMPROVED, 1.1, 10.9, 0.1),
                1e-10);
    CHECK_CLOSE(9.75272002943,
                best(256.0 / 60000, 0.6, 7031, 1e-5, CONVERSION_CLASSIC, 1.1, 10.9, 0.1),
                1e-10);
}

/* By hand, for q = 0.1 and noise 2, where e(j) = j / 2: order 2 has log(1 + q^2 2 e), order 3 the half of
 * log(1 + 3 q^2 2 e + q^3 2 e^3). */
static void test_known_values_of_fixed_sizes(void)
{
    const double second = 0.01 * 2 * exp(1), third = 0.001 * 2 * exp(3);

    CHECK_CLOSE(log(1 + second), accountant_rdp(SAMPLING_FIXED, 0.1, 2, 2), 1e-12);
    CHECK_CLOSE(log(1 + 3 * second + third) / 2, accountant_rdp(SAMPLING_FIXED, 0.1, 2, 3),
                1e-12);
    CHECK_CLOSE((log(1 + second) + log(1 + 3 * second + third)) / 2 / 1.5,
                accountant_rdp(SAMPLING_FIXED, 0.1, 2, 2.5), 1e-12);
}

/* The integral of fractional orders meets the sum of whole ones. */
static void property_fractional_orders_lie_between_whole_ones(struct rng *rng)
{
    const double q = exp(-6 * rng_float(rng) - 0.01), noise = 0.5 + 3 * rng_float(rng);
    const int order = 2 + (int)rng_below(rng, 30);
    const double low = accountant_rdp(SAMPLING_POISSON, q, noise, order);
    const double near = accountant_rdp(SAMPLING_POISSON, q, noise, order + 1e-7);
    const double half = accountant_rdp(SAMPLING_POISSON, q, noise, order + 0.5);
    const double high = accountant_rdp(SAMPLING_POISSON, q, noise, order + 1);

    CHECK(fabs(near - low) <= 1e-5 * low + 1e-12);
    CHECK(low <= half * (1 + 1e-9) && half <= high * (1 + 1e-9));
}

/* Sampling gains privacy, more noise gains, higher orders lose; without sampling it is order / 2 noise^2. */
static void property_divergences_are_monotone(struct rng *rng)
{
    static const enum sampling kinds[] = { SAMPLING_POISSON, SAMPLING_FIXED };
    const enum sampling kind = kinds[rng_below(rng, 2)];
    const double q = 0.001 + 0.9 * rng_float(rng), noise = 0.5 + 3 * rng_float(rng);
    const double order = 1.1 + 30 * rng_float(rng);
    const double here = accountant_rdp(kind, q, noise, order);
    const double slack = 1e-9 + 1e-9 * here;

    CHECK(here >= 0 && isfinite(here));
    CHECK(accountant_rdp(kind, q / 2, noise, order) <= here + slack);
    CHECK(accountant_rdp(kind, q, noise * 1.5, order) <= here + slack);
    CHECK(here <= accountant_rdp(kind, 1, noise, order) + slack);
    CHECK_CLOSE(order / (2 * noise * noise), accountant_rdp(SAMPLING_ALL, q, noise, order),
                1e-12);
    CHECK(accountant_rdp(kind, 0, noise, order) == 0);
    CHECK(isinf(accountant_rdp(kind, q, 0, order)));
    CHECK(accountant_epsilon(order, here, 1e-6, CONVERSION_IMPROVED) <=
          accountant_epsilon(order, here, 1e-6, CONVERSION_CLASSIC));
}

static struct ledger_entry entry_of(uint64_t round, double noise)
{
    return (struct ledger_entry){ .round = round,
                                  .sampling = SAMPLING_POISSON,
                                  .q = 0.1,
                                  .noise = noise,
                                  .releases = 1,
                                  .survivors = 70 };
}

static void test_a_ledger_stops_at_its_budget(void)
{
    struct ledger *ledger;
    uint64_t round = 0;

    CHECK_OK(ledger_create(2, 1e-5, &ledger));
    CHECK(ledger_epsilon(ledger, NULL) == 0);
    for (;; round++) {
        const struct ledger_entry entry = entry_of(round, 2);
        const double after = ledger_epsilon(ledger, &entry);
        if (ledger_allows(ledger, &entry) != STATUS_OK)
            break;
        CHECK_OK(ledger_add(ledger, &entry));
        CHECK(ledger_epsilon(ledger, NULL) == after && after <= 2);
        CHECK_OK(ledger_add(ledger, &entry)); /* a second time has no effect */
        CHECK(ledger_epsilon(ledger, NULL) == after);
    }
    CHECK_MESSAGE("above the budget of 2");
    CHECK(round > 3 && round < 60);
    CHECK_INT(round, ledger_rounds(ledger));
    const struct ledger_entry loud = entry_of(round, 20);
    CHECK_OK(ledger_allows(ledger, &loud)); /* with more noise one more would do */
    const struct ledger_entry old = entry_of(0, 2), none = entry_of(round, 0);
    CHECK_STATUS(STATUS_MISMATCH, ledger_add(ledger, &old));
    CHECK_OK(ledger_add(ledger, &none)); /* what happened is counted, even too much */
    CHECK(isinf(ledger_epsilon(ledger, NULL)));
    CHECK_STATUS(STATUS_STOPPED, ledger_allows(ledger, &loud));
    ledger_destroy(ledger);
}

/* Written and read again, entry by entry, a ledger has the same numbers to the last bit. */
static void property_a_ledger_survives_restarts(struct rng *rng)
{
    struct ledger *ledger, *again;

    CHECK_OK(ledger_create(INFINITY, 1e-6, &ledger));
    CHECK_OK(ledger_create(INFINITY, 1e-6, &again));
    for (uint64_t round = 0; round < 2; round++) {
        const struct ledger_entry entry = { .round = 3 * round + 1,
                                            .sampling = (enum sampling)rng_below(rng, 3),
                                            .q = rng_float(rng),
                                            .noise = 1 + exp(rng_normal(rng)),
                                            .releases = 1 + rng_below(rng, 5),
                                            .survivors = rng_u32(rng) };
        struct ledger_entry back;
        struct strbuf text;

        strbuf_init(&text, 4096);
        ledger_entry_write(&entry, &text);
        CHECK_OK(strbuf_status(&text));
        CHECK_OK(ledger_entry_read(text.text, text.length, &back));
        CHECK_INT(entry.survivors, back.survivors);
        CHECK_OK(ledger_add(ledger, &entry));
        CHECK_OK(ledger_add(again, &back));
        strbuf_release(&text);
    }
    CHECK(ledger_epsilon(ledger, NULL) == ledger_epsilon(again, NULL));
    ledger_destroy(ledger);
    ledger_destroy(again);
}

static void test_wrong_entries_are_refused(void)
{
    static const char *const wrong[] = {
        "",
        "[]",
        "{\"round\":1}",
        "{\"round\":1,\"sampling\":\"poisson\",\"q\":2,\"noise\":1,\"releases\":1,"
        "\"survivors\":1}",
        "{\"round\":1,\"sampling\":\"often\",\"q\":1,\"noise\":1,\"releases\":1,\"survivors\":"
        "1}",
        "{\"round\":1,\"sampling\":\"poisson\",\"q\":1,\"noise\":-1,\"releases\":1,"
        "\"survivors\":1}",
        "{\"round\":1,\"sampling\":\"poisson\",\"q\":1,\"noise\":1,\"releases\":0,"
        "\"survivors\":1}",
        "{\"round\":-1,\"sampling\":\"poisson\",\"q\":1,\"noise\":1,\"releases\":1,"
        "\"survivors\":1}",
        "{\"round\":1,\"sampling\":\"all\",\"q\":1,\"noise\":null,\"releases\":1,\"survivors\":"
        "1}",
    };
    struct ledger_entry entry;
    struct ledger *ledger;

    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        CHECK_STATUS(STATUS_CORRUPT, ledger_entry_read(wrong[i], strlen(wrong[i]), &entry));
    CHECK_STATUS(STATUS_USAGE, ledger_create(0, 1e-5, &ledger));
    CHECK_STATUS(STATUS_USAGE, ledger_create(1, 0, &ledger));
}

/* The noise that is proposed is enough, and a little less is not. */
static void test_noise_for_a_budget_is_the_least(void)
{
    static const enum sampling kinds[] = { SAMPLING_POISSON, SAMPLING_FIXED, SAMPLING_ALL };

    for (int i = 0; i < 3; i++) {
        for (int more = 0; more < 2; more++) {
            struct ledger *ledger;
            double noise;

            CHECK_OK(accountant_noise(kinds[i], 0.05, 100, 3, 1e-5, &noise));
            CHECK_OK(ledger_create(3, 1e-5, &ledger));
            const struct ledger_entry entry = { .sampling = kinds[i],
                                                .q = 0.05,
                                                .noise = more ? noise * 0.999 : noise,
                                                .releases = 100 };
            CHECK_STATUS(more ? STATUS_STOPPED : STATUS_OK, ledger_allows(ledger, &entry));
            ledger_destroy(ledger);
        }
    }
    double noise;
    CHECK_STATUS(STATUS_USAGE, accountant_noise(SAMPLING_ALL, 1, 1, 1e-9, 1e-12, &noise));
    CHECK_STATUS(STATUS_USAGE, accountant_noise(SAMPLING_ALL, 0, 1, 1, 1e-5, &noise));
}

static void test_names_are_read_back(void)
{
    enum sampling sampling;

    for (int i = 0; i < 3; i++) {
        CHECK_OK(sampling_parse(sampling_name((enum sampling)i), &sampling));
        CHECK_INT(i, sampling);
    }
    CHECK_STATUS(STATUS_USAGE, sampling_parse("some", &sampling));
}

const struct test tests[] = {
    { "known values of whole orders", test_known_values_of_whole_orders, NULL },
    { "known values of fractional orders", test_known_values_of_fractional_orders, NULL },
    { "known values of fixed sizes", test_known_values_of_fixed_sizes, NULL },
    { "fractional orders lie between whole ones", NULL,
      property_fractional_orders_lie_between_whole_ones },
    { "divergences are monotone", NULL, property_divergences_are_monotone },
    { "a ledger stops at its budget", test_a_ledger_stops_at_its_budget, NULL },
    { "a ledger survives restarts", NULL, property_a_ledger_survives_restarts },
    { "wrong entries are refused", test_wrong_entries_are_refused, NULL },
    { "noise for a budget is the least", test_noise_for_a_budget_is_the_least, NULL },
    { "names are read back", test_names_are_read_back, NULL },
    { 0 },
};
