/* SPDX-License-Identifier: MIT */
/* exchange.c - lists of transfers, by rounds: in round i from member m - i, and to member m + i. */
#include "comm/exchange.h"

static int before(int n, int own, int round)
{
    return (own - round + n) % n;
}

static int after(int n, int own, int round)
{
    return (own + round) % n;
}

/* Adds a transfer of the part that `owner` owns, once for each of `sums`. */
static int add(const struct exchange_member *owner, int member, bool is_send, int sums,
               struct exchange_transfer *out)
{
    for (int sum = 0; sum < sums && owner->count > 0; sum++)
        out[sum] = (struct exchange_transfer){ member, is_send, sum, owner->at, owner->count };
    return owner->count > 0 ? sums : 0;
}

int exchange_reduce_scatter(const struct exchange_member *members, int n, int own,
                            struct exchange_transfer *out)
{
    int count = 0;

    for (int i = 1; i < n; i++) {
        const int from = before(n, own, i);
        count += add(&members[own], from, false, members[from].sums, out + count);
    }
    for (int i = 1; i < n; i++) {
        const int to = after(n, own, i);
        count += add(&members[to], to, true, members[own].sums, out + count);
    }
    return count;
}

int exchange_all_gather(const struct exchange_member *members, int n, int own,
                        struct exchange_transfer *out)
{
    int count = 0;

    for (int i = 1; i < n; i++) {
        const int from = before(n, own, i);
        count += add(&members[from], from, false, 1, out + count);
    }
    for (int i = 1; i < n; i++)
        count += add(&members[own], after(n, own, i), true, 1, out + count);
    return count;
}

int exchange_most(const struct exchange_member *members, int n, int own)
{
    int most = (n - 1) * members[own].sums;

    for (int m = 0; m < n; m++)
        most += m == own ? 0 : members[m].sums;
    return most;
}
