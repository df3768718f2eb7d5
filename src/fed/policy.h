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

/* Are the terms within it? STATUS_MISMATCH names the first demand that they do not keep. */
MUST_CHECK enum status fed_policy_check(const struct fed_policy *policy,
                                        const struct fed_terms *terms);

#endif /* FED_POLICY_H */
