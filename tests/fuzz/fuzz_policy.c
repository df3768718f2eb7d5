/* SPDX-License-Identifier: MIT */
/* fuzz_policy.c - a participant's policy file, held against terms. */
#include <stddef.h>
#include <stdint.h>

#include "fed/policy.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fed_policy *policy;
    struct fed_terms terms;

    if (fed_policy_parse((const char *)data, size, &policy) != STATUS_OK)
        return 0;
    fed_terms_init(&terms);
    for (int secure = 0; secure < 2; secure++) {
        terms.secure = secure;
        terms.steps = secure;
        terms.dp[0] = secure ? 'c' : '\0';
        if (fed_policy_check(policy, &terms) == STATUS_OK)
            continue;
    }
    fed_terms_release(&terms);
    fed_policy_destroy(policy);
    return 0;
}
