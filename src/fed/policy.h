/* SPDX-License-Identifier: MIT */
/* policy.h - what a participant lets a coordinator ask of it: a JSON file of its own.
 *
 *   { "max_epochs": 5, "min_participants": 3, "secure": true, "max_epsilon": 8 }
 *
 * A member that is absent demands nothing; one that is unknown is refused, as a demand that is not understood is one
 * that nobody keeps. fed_policy_rules lists them.
 */
#ifndef FED_POLICY_H
#define FED_POLICY_H

#include "base/json.h"
#include "base/status.h"
#include "fed/terms.h"

struct fed_policy;

struct fed_identity;

/* One member: its name, what it demands, and whether terms keep it. */
struct fed_rule {
    const char *name, *help;
    enum json_kind kind; /* of its value; JSON_ARRAY: of texts */
    /* STATUS_MISMATCH says what the terms have instead. */
    enum status (*check)(const struct json_value *value, const struct fed_terms *terms);
};
extern const struct fed_rule fed_policy_rules[]; /* ended by a NULL name */

/* STATUS_CORRUPT names a member that is unknown or of another kind. */
MUST_CHECK enum status fed_policy_parse(const char *text, size_t length,
                                        struct fed_policy **out);
MUST_CHECK enum status fed_policy_read(const char *path, struct fed_policy **out);
void fed_policy_destroy(struct fed_policy *policy); /* NULL is allowed */

/* Delta at which a participant counts what it spends: that of the terms, at most 1e-5. */
double fed_policy_delta(const struct fed_terms *terms);
/* Epsilon that updates (max_epsilon) or records (max_record_epsilon) may spend in all; INFINITY: the policy does not say.
 * policy may be NULL. */
double fed_policy_epsilon(const struct fed_policy *policy, bool is_record);
/* Schedules of which each record is in `passes` local steps a round; known once the data are. */
MUST_CHECK enum status fed_policy_check_records(const struct fed_policy *policy,
                                                const struct fed_terms *terms, uint64_t passes);
/* May this participant be in a secure round with the policy's owner? Its row `peers` lists names, or names with the key
 * that signs: "berlin" or "berlin:HEX", 64 hexadecimal digits. STATUS_MISMATCH names the stranger. */
MUST_CHECK enum status fed_policy_check_peer(const struct fed_policy *policy,
                                             const struct fed_identity *peer);

/* Are the terms within it? STATUS_MISMATCH names the first demand that they do not keep. */
MUST_CHECK enum status fed_policy_check(const struct fed_policy *policy,
                                        const struct fed_terms *terms);

#endif /* FED_POLICY_H */
