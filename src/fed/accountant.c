/* SPDX-License-Identifier: MIT */
/* accountant.c - Renyi differential privacy of sampled Gaussian noise, and the ledger.
 *
 * For Poisson sampling with rate q and noise of deviation s (times the sensitivity) the Renyi divergence of order a is
 * log A(a) / (a - 1), with A(a) = E[(1 - q + q exp((2z - 1) / 2 s^2))^a] over z ~ N(0, s^2). A whole order has the binomial sum
 *
 *   A(a) = sum_k C(a, k) (1 - q)^(a-k) q^k exp((k^2 - k) / 2 s^2)
 *
 * another one is integrated as it stands: the integrand is analytic and falls off as a Gaussian does, so that some hundred equal
 * steps are exact to a double (Mironov, Talwar and Zhang 2019 have two series instead, whose terms fall slowly). Sums are of
 * logarithms, so that nothing overflows. */
#include "fed/accountant.h"

#include <math.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

#define LEAST_NOISE 0.1 /* below, sampling is taken to gain nothing */
#define MOST_NOISE 1e4

/* Logarithms ---------------------------------------------------------------------------- */

/* log(exp(a) + exp(b)) */
static double log_add(double a, double b)
{
    const double high = fmax(a, b), low = fmin(a, b);

    return isinf(high) ? high : high + log1p(exp(low - high));
}

static double log_choose(double n, double k)
{
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1);
}

/* Divergences --------------------------------------------------------------------------- */

static double log_moment_whole(double q, double noise, int order)
{
    double sum = -INFINITY;

    for (int k = 0; k <= order; k++)
        sum = log_add(sum, log_choose(order, k) + k * log(q) + (order - k) * log1p(-q) +
                               (k * (double)k - k) / (2 * noise * noise));
    return sum;
}

/* log((1 + x)^a - 1 - a x) for x = q (exp(w) - 1): what is left of the integrand without the part whose mean is known. */
static double log_excess(double q, double w, double a)
{
    if (w + log(q) > 200)
        return a * (w + log(q)); /* all else is lost beside it */
    const double x = q * expm1(w);
    if (fabs(x) < 1e-3) /* the binomial series, from its third term */
        return log(a * (a - 1) / 2) + 2 * log(fabs(x)) +
               log1p(x * (a - 2) / 3 * (1 + x * (a - 3) / 4 * (1 + x * (a - 4) / 5)));
    const double power = a * log1p(x);
    return power > 200 ? power : log(expm1(power) - a * x);
}

/* The nearest singularity is pi noise^2 beside the real axis; the integrand has its weight around 0 and around the order. */
static double log_moment_fraction(double q, double noise, double order)
{
    const double variance = noise * noise;
    const double step = fmin(0.5 * noise, 0.4 * variance);
    const double begin = -12 * noise, end = order + 12 * noise;
    double sum = -INFINITY;

    for (double i = 0; begin + i * step <= end; i++) {
        const double z = begin + i * step;
        sum = log_add(sum, log_excess(q, (2 * z - 1) / (2 * variance), order) -
                               z * z / (2 * variance));
    }
    sum += log(step / (noise * sqrt(2 * M_PI)));
    return sum > 30 ? sum : log1p(exp(sum));
}

static double rdp_poisson(double q, double noise, double order)
{
    const double moment = order == floor(order) ? log_moment_whole(q, noise, (int)order)
                                                : log_moment_fraction(q, noise, order);

    return fmax(0, moment / (order - 1));
}

/* Theorem 9 of Wang, Balle and Kasiviswanathan, for whole orders; one that is replaced moves the sum by two clips, so e(j) =
 * 2 j / noise^2. Between whole orders (order - 1) times the divergence is convex: it lies below the straight line. */
static double log_moment_fixed(double q, double noise, int order)
{
    const double unit = 2 / (noise * noise);
    const double second = fmin(log(4) + log(expm1(2 * unit)), log(2) + 2 * unit);
    double sum = 0; /* log 1 */

    for (int j = 2; j <= order; j++)
        sum = log_add(sum, log_choose(order, j) + j * log(q) +
                               (j == 2 ? second : log(2) + (j - 1) * (double)j * unit));
    return sum;
}

static double rdp_fixed(double q, double noise, double order)
{
    const double plain = 2 * order / (noise * noise); /* sampling never costs more */
    const double low = floor(order), part = order - low;
    double moment = log_moment_fixed(q, noise, (int)low); /* 0 at order 1 */

    if (part > 0)
        moment = (1 - part) * moment + part * log_moment_fixed(q, noise, (int)low + 1);
    return fmin(plain, moment / (order - 1));
}

double accountant_rdp(enum sampling sampling, double q, double noise, double order)
{
    if (q <= 0)
        return 0;
    if (!(noise > 0))
        return INFINITY;
    if (sampling == SAMPLING_FIXED)
        return q < 1 ? rdp_fixed(q, noise, order) : 2 * order / (noise * noise);
    if (sampling == SAMPLING_ALL || q >= 1 || noise < LEAST_NOISE)
        return order / (2 * noise * noise);
    return rdp_poisson(q, noise, order);
}

double accountant_epsilon(double order, double rdp, double delta, enum conversion conversion)
{
    const double epsilon =
        conversion == CONVERSION_CLASSIC
            ? rdp - log(delta) / (order - 1)
            : rdp + log1p(-1 / order) - (log(delta) + log(order)) / (order - 1);

    return fmax(0, epsilon);
}

/* Orders -------------------------------------------------------------------------------- */

enum { TENTHS = 99, WHOLE = 54, LARGE = 13, ORDERS = TENTHS + WHOLE + LARGE };

static double order_at(int i)
{
    static const double large[LARGE] = { 72,  80,  96,  112, 128, 160, 192,
                                         256, 320, 384, 512, 768, 1024 };

    if (i < TENTHS)
        return 1 + (i + 1) / 10.0;
    return i < TENTHS + WHOLE ? 11 + (i - TENTHS) : large[i - TENTHS - WHOLE];
}

static double least_epsilon(const double *rdp, double delta)
{
    double least = INFINITY;

    for (int i = 0; i < ORDERS; i++)
        least =
            fmin(least, accountant_epsilon(order_at(i), rdp[i], delta, CONVERSION_IMPROVED));
    return least;
}

static void add_release(enum sampling sampling, double q, double noise, uint64_t releases,
                        double *rdp)
{
    for (int i = 0; i < ORDERS; i++)
        rdp[i] += (double)releases * accountant_rdp(sampling, q, noise, order_at(i));
}

static double epsilon_of(enum sampling sampling, double q, double noise, uint64_t rounds,
                         double delta)
{
    double rdp[ORDERS] = { 0 };

    add_release(sampling, q, noise, rounds, rdp);
    return least_epsilon(rdp, delta);
}

/* By halving the interval of its logarithm: epsilon falls as noise grows. */
enum status accountant_noise(enum sampling sampling, double q, uint64_t rounds, double epsilon,
                             double delta, double *out)
{
    double low = log(LEAST_NOISE), high = log(MOST_NOISE);

    if (!(q > 0) || !(q <= 1) || rounds == 0 || !(epsilon > 0) || !(delta > 0) || !(delta < 1))
        return FAIL(STATUS_USAGE,
                    "no noise for epsilon %g at delta %g in %llu rounds with a share of %g",
                    epsilon, delta, (unsigned long long)rounds, q);
    if (!(epsilon_of(sampling, q, MOST_NOISE, rounds, delta) <= epsilon))
        return FAIL(
            STATUS_USAGE,
            "no noise multiplier up to %g keeps %llu rounds within epsilon %g at delta %g",
            MOST_NOISE, (unsigned long long)rounds, epsilon, delta);
    while (high - low > 1e-4) {
        const double middle = 0.5 * (low + high);
        if (epsilon_of(sampling, q, exp(middle), rounds, delta) <= epsilon)
            high = middle;
        else
            low = middle;
    }
    *out = exp(high);
    return STATUS_OK;
}

/* The ledger ---------------------------------------------------------------------------- */

struct ledger {
    double epsilon, delta;
    double rdp[ORDERS]; /* of all entries */
    uint64_t entries;
    struct ledger_entry last; /* if entries > 0 */
};

static const char *const names[] = {
    [SAMPLING_POISSON] = "poisson", [SAMPLING_FIXED] = "fixed", [SAMPLING_ALL] = "all"
};

const char *sampling_name(enum sampling sampling)
{
    return names[sampling];
}

enum status sampling_parse(const char *text, enum sampling *out)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        if (strcmp(names[i], text) == 0) {
            *out = (enum sampling)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_USAGE,
                "no way of sampling is called %s: there are poisson, fixed and all", text);
}

enum status ledger_create(double epsilon, double delta, struct ledger **out)
{
    struct ledger *ledger;

    if (!(epsilon > 0) || !(delta > 0) || !(delta < 1))
        return FAIL(
            STATUS_USAGE,
            "a budget of epsilon %g at delta %g: epsilon is above 0, delta between 0 and 1",
            epsilon, delta);
    TRY(mem_alloc(1, sizeof(*ledger), &ledger));
    ledger->epsilon = epsilon;
    ledger->delta = delta;
    *out = ledger;
    return STATUS_OK;
}

void ledger_destroy(struct ledger *ledger)
{
    mem_free(ledger);
}

uint64_t ledger_rounds(const struct ledger *ledger)
{
    return ledger->entries;
}

double ledger_epsilon(const struct ledger *ledger, const struct ledger_entry *entry)
{
    double rdp[ORDERS];

    if (ledger->entries == 0 && !entry)
        return 0;
    memcpy(rdp, ledger->rdp, sizeof(rdp));
    if (entry)
        add_release(entry->sampling, entry->q, entry->noise, entry->releases, rdp);
    return least_epsilon(rdp, ledger->delta);
}

enum status ledger_allows(const struct ledger *ledger, const struct ledger_entry *entry)
{
    const double after = ledger_epsilon(ledger, entry);

    if (!(after <= ledger->epsilon))
        return FAIL(
            STATUS_STOPPED,
            "round %llu would bring epsilon from %.4g to %.4g at delta %g, above the budget of "
            "%g",
            (unsigned long long)entry->round, ledger_epsilon(ledger, NULL), after,
            ledger->delta, ledger->epsilon);
    return STATUS_OK;
}

static bool is_same_entry(const struct ledger_entry *a, const struct ledger_entry *b)
{
    return a->round == b->round && a->sampling == b->sampling && a->q == b->q &&
           a->noise == b->noise && a->releases == b->releases && a->survivors == b->survivors;
}

static enum status check_entry(const struct ledger_entry *entry)
{
    if (!(entry->q >= 0) || !(entry->q <= 1) || !(entry->noise >= 0) || entry->releases == 0)
        return FAIL(
            STATUS_CORRUPT,
            "a ledger entry of round %llu with a share of %g, noise of %g and %llu releases",
            (unsigned long long)entry->round, entry->q, entry->noise,
            (unsigned long long)entry->releases);
    return STATUS_OK;
}

enum status ledger_add(struct ledger *ledger, const struct ledger_entry *entry)
{
    TRY(check_entry(entry));
    if (ledger->entries > 0) {
        if (is_same_entry(&ledger->last, entry))
            return STATUS_OK;
        if (entry->round <= ledger->last.round)
            return FAIL(STATUS_MISMATCH, "the ledger has round %llu already, and gets %llu",
                        (unsigned long long)ledger->last.round,
                        (unsigned long long)entry->round);
    }
    add_release(entry->sampling, entry->q, entry->noise, entry->releases, ledger->rdp);
    ledger->last = *entry;
    ledger->entries++;
    return STATUS_OK;
}

void ledger_entry_write(const struct ledger_entry *entry, struct strbuf *out)
{
    strbuf_printf(out, "{\"round\":%llu,\"sampling\":\"%s\",\"q\":",
                  (unsigned long long)entry->round, sampling_name(entry->sampling));
    strbuf_add_number(out, entry->q);
    strbuf_add(out, ",\"noise\":");
    strbuf_add_number(out, entry->noise);
    strbuf_printf(out, ",\"releases\":%llu,\"survivors\":%u}",
                  (unsigned long long)entry->releases, entry->survivors);
}

static enum status read_entry(const struct json_value *root, struct ledger_entry *out)
{
    const int64_t round = json_integer(root, "round", -1);
    const int64_t releases = json_integer(root, "releases", -1);
    const int64_t survivors = json_integer(root, "survivors", -1);
    struct ledger_entry entry = { .q = json_number(root, "q", -1),
                                  .noise = json_number(root, "noise", -1) };

    if (!root || root->kind != JSON_OBJECT || root->count != 6 || round < 0 || releases < 0 ||
        survivors < 0 || survivors > UINT32_MAX ||
        sampling_parse(json_text(root, "sampling", ""), &entry.sampling) != STATUS_OK)
        return FAIL(
            STATUS_CORRUPT,
            "a ledger entry lacks one of round, sampling, q, noise, releases, survivors");
    entry.round = (uint64_t)round;
    entry.releases = (uint64_t)releases;
    entry.survivors = (uint32_t)survivors;
    TRY(check_entry(&entry));
    *out = entry;
    return STATUS_OK;
}

enum status ledger_entry_read(const char *text, size_t length, struct ledger_entry *out)
{
    struct json *json;

    TRY(json_parse(text, length, &json));
    const enum status status = read_entry(json_root(json), out);
    json_destroy(json);
    return status;
}
