/* SPDX-License-Identifier: MIT */
/* accountant.h - how much privacy rounds have spent, and the ledger that refuses one too many.
 *
 * Renyi differential privacy of the Gaussian mechanism on a random sample of participants, added over rounds order by
 * order, then converted to (epsilon, delta) at the best of them: 1.1 to 10.9 by tenths, 11 to 64, some up to 1024.
 *
 * Sampling is a part of what is claimed:
 *   POISSON  each participant takes part with probability q, by itself; adding or removing one (Mironov, Talwar, Zhang 2019)
 *   FIXED    so many are drawn without replacement, q their share; replacing one, which moves a sum twice as far
 *            (Wang, Balle, Kasiviswanathan 2019, an upper bound)
 *   ALL      everybody, or chosen in a way that others may know or influence: nothing is gained; adding or removing one
 */
#ifndef FED_ACCOUNTANT_H
#define FED_ACCOUNTANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"

enum sampling { SAMPLING_POISSON, SAMPLING_FIXED, SAMPLING_ALL };
const char *sampling_name(enum sampling sampling);
/* STATUS_USAGE if `text` is none of the names. */
MUST_CHECK enum status sampling_parse(const char *text, enum sampling *out);

/* CLASSIC: Mironov 2017. IMPROVED: Canonne, Kamath, Steinke 2020 (never larger). */
enum conversion { CONVERSION_CLASSIC, CONVERSION_IMPROVED };

/* Of one release, at one order > 1. q in [0, 1]; noise: the multiplier; 0 gives infinity. */
double accountant_rdp(enum sampling sampling, double q, double noise, double order);
/* Epsilon at delta of an RDP value at one order; at least 0. */
double accountant_epsilon(double order, double rdp, double delta, enum conversion conversion);

/* An entry of the ledger: what one round released, as realized. */
struct ledger_entry {
    uint64_t round;
    enum sampling sampling;
    double q;
    double noise; /* multiplier that was really there, all releases of the round together */
    uint64_t releases;  /* 1 a round; steps if each of them was released (DP-SGD) */
    uint32_t survivors; /* participants in the sum; not used by the arithmetic */
};

struct ledger;

/* budget epsilon at delta, both > 0; epsilon may be infinite: then it only counts. */
MUST_CHECK enum status ledger_create(double epsilon, double delta, struct ledger **out);
void ledger_destroy(struct ledger *ledger); /* NULL is allowed */
/* Spent so far (improved conversion), 0 without entries; after `entry` too if it is not NULL. */
double ledger_epsilon(const struct ledger *ledger, const struct ledger_entry *entry);
/* Before a round: would it stay within the budget? STATUS_STOPPED with the numbers if not. Plan with the least noise that the
 * round may end with. */
MUST_CHECK enum status ledger_allows(const struct ledger *ledger,
                                     const struct ledger_entry *entry);
/* After a round: counts it, whatever it spent. Rounds ascend; the last one again with the same numbers has no effect. */
MUST_CHECK enum status ledger_add(struct ledger *ledger, const struct ledger_entry *entry);
uint64_t ledger_rounds(const struct ledger *ledger); /* entries so far */

/* An entry as one JSON object without line end, and back: the numbers are the same bits. STATUS_CORRUPT if it is not one. */
void ledger_entry_write(const struct ledger_entry *entry, struct strbuf *out);
MUST_CHECK enum status ledger_entry_read(const char *text, size_t length,
                                         struct ledger_entry *out);

/* The smallest noise multiplier with which `rounds` rounds stay within epsilon at delta; for `tutti fed` to propose. STATUS_USAGE
 * where none up to 10^4 does. */
MUST_CHECK enum status accountant_noise(enum sampling sampling, double q, uint64_t rounds,
                                        double epsilon, double delta, double *out);

#endif /* FED_ACCOUNTANT_H */
