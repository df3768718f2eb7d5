/* SPDX-License-Identifier: MIT */
/* spending.h - a participant's own record of the privacy that its updates have spent, over all
 * federations and restarts.
 *
 * A coordinator's ledger is its own claim. A participant counts for itself:
 * before an update is made, the release is added to a file, and refused if all releases
 * together would go past the policy's epsilon.
 *
 *   updates: one participant's updates are hidden (terms' --dp). A round counts once, however
 *            often it is asked for, as long as it has the same keys. Where chance draws the
 *            participants, all rounds since the last recorded one count with it: `releases` of
 *            the line.
 *   records: one record's part in them is hidden (--dp-sgd). Every training counts.
 *
 * The file has a line a release: `updates FEDERATION/KEYS {entry}` (accountant.h), without keys
 * `updates FEDERATION {entry}`. It is replaced as a whole and belongs to one process at a time
 * (FILE.lock).
 */
#ifndef FED_SPENDING_H
#define FED_SPENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "fed/accountant.h"
#include "fed/terms.h"

struct fed_release {
    const char *federation;
    const char
        *keys; /* that its noise comes from, 16 characters at most; NULL: they have no name */
    bool is_record;
    struct ledger_entry entry; /* round: of the federation */
    double epsilon, delta;     /* that all together may reach; epsilon INFINITY: any */
};

/* Adds the release to the file. STATUS_MISMATCH: the federation has no name that a line can hold,
 * printable characters without ' ' and '/', up to 63. STATUS_STOPPED with the numbers if it would go
 * past epsilon: then the file is as it was. */
MUST_CHECK enum status fed_spending_add(const char *path, const struct fed_release *release);
/* Epsilon of the text of such a file at delta, over one kind of release. STATUS_CORRUPT names
 * the line. */
MUST_CHECK enum status fed_spending_epsilon(const char *text, size_t length, bool is_record,
                                            double delta, double *out);

/* The release of a round of these terms as a participant must take it: it believes that updates
 * are drawn by chance where the coordinator adds the noise, who is trusted with it, and nothing
 * of the kind otherwise. passes: in how many local steps of the round a record is. Returns
 * false if the terms have no noise of that kind. */
bool fed_release_of(const struct fed_terms *terms, bool is_record, uint64_t passes,
                    struct ledger_entry *out);
/* Epsilon at delta of all rounds of the terms; INFINITY without noise. */
MUST_CHECK enum status fed_terms_epsilon(const struct fed_terms *terms, bool is_record,
                                         uint64_t passes, double delta, double *out);

#endif /* FED_SPENDING_H */
