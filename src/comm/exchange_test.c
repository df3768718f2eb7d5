/* SPDX-License-Identifier: MIT */
/* exchange_test.c - lists of transfers match: what one sends another receives, and everyone has
 * all. */
#include "comm/exchange.h"

#include <string.h>

#include "base/test.h"

enum { MEMBERS = 9, SUMS = 4, ELEMENTS = 40, TRANSFERS = 2 * MEMBERS * SUMS };

/* A group, and the lists of all its members. */
struct group {
    int n;
    struct exchange_member members[MEMBERS];
    struct exchange_transfer list[MEMBERS][TRANSFERS];
    int count[MEMBERS];
};

/* Parts of random size, some of them empty, that cover the vector. */
static void draw_group(struct rng *rng, struct group *group)
{
    size_t at = 0;

    memset(group, 0, sizeof *group);
    group->n = 1 + (int)rng_below(rng, MEMBERS);
    for (int m = 0; m < group->n; m++) {
        const size_t left = ELEMENTS - at;
        const size_t count = m + 1 == group->n ? left : rng_below(rng, left / 2 + 1);
        group->members[m] =
            (struct exchange_member){ at, count, 1 + (int)rng_below(rng, SUMS) };
        at += count;
    }
}

static void check_order(const struct group *group, int own)
{
    const struct exchange_transfer *list = group->list[own];
    bool sends = false;

    for (int i = 0; i < group->count[own]; i++) {
        CHECK(list[i].count > 0 && list[i].member != own);
        CHECK(list[i].is_send || !sends); /* receives stand first */
        if (list[i].is_send && !sends)
            CHECK_INT(0, list[i].sum);
        sends |= list[i].is_send;
    }
}

static int next_between(const struct group *group, int own, int member, bool is_send, int from)
{
    while (from < group->count[own] && (group->list[own][from].member != member ||
                                        group->list[own][from].is_send != is_send))
        from++;
    return from;
}

/* Messages of a pair arrive in the order of sends: the k-th of them is the k-th receive. */
static void check_pair(const struct group *group, int sender, int receiver)
{
    int s = next_between(group, sender, receiver, true, 0);
    int r = next_between(group, receiver, sender, false, 0);

    for (; s < group->count[sender] && r < group->count[receiver];
         s = next_between(group, sender, receiver, true, s + 1),
         r = next_between(group, receiver, sender, false, r + 1)) {
        const struct exchange_transfer *a = &group->list[sender][s];
        const struct exchange_transfer *b = &group->list[receiver][r];
        CHECK(a->at == b->at && a->count == b->count && a->sum == b->sum);
    }
    CHECK(s == group->count[sender] && r == group->count[receiver]);
}

static void check_lists(const struct group *group)
{
    for (int m = 0; m < group->n; m++) {
        check_order(group, m);
        for (int other = 0; other < group->n; other++)
            check_pair(group, m, other);
    }
}

/* How often member `own` has each element after it has received, its own ones `sums` times. */
static void count_elements(const struct group *group, int own, int sums, int out[ELEMENTS])
{
    memset(out, 0, ELEMENTS * sizeof *out);
    for (size_t i = 0; i < group->members[own].count; i++)
        out[group->members[own].at + i] = sums;
    for (int i = 0; i < group->count[own]; i++) {
        const struct exchange_transfer *x = &group->list[own][i];
        for (size_t k = x->at; k < x->at + x->count && !x->is_send; k++)
            out[k]++;
    }
}

static void test_every_owner_has_all_partial_sums(struct rng *rng)
{
    struct group group;
    int has[ELEMENTS], all = 0;

    draw_group(rng, &group);
    for (int m = 0; m < group.n; m++) {
        all += group.members[m].sums;
        group.count[m] = exchange_reduce_scatter(group.members, group.n, m, group.list[m]);
        CHECK(group.count[m] <= exchange_most(group.members, group.n, m));
    }
    check_lists(&group);
    for (int m = 0; m < group.n; m++) {
        const struct exchange_member *own = &group.members[m];
        count_elements(&group, m, own->sums, has);
        for (size_t i = 0; i < ELEMENTS; i++)
            CHECK_INT(i >= own->at && i < own->at + own->count ? all : 0, has[i]);
    }
}

static void test_everyone_has_all_parts(struct rng *rng)
{
    struct group group;
    int has[ELEMENTS];

    draw_group(rng, &group);
    for (int m = 0; m < group.n; m++) {
        group.count[m] = exchange_all_gather(group.members, group.n, m, group.list[m]);
        CHECK(group.count[m] <= 2 * (group.n - 1));
    }
    check_lists(&group);
    for (int m = 0; m < group.n; m++) {
        count_elements(&group, m, 1, has);
        for (int i = 0; i < ELEMENTS; i++)
            CHECK_INT(1, has[i]);
    }
}

static void test_nobody_is_sent_to_by_all_first(void)
{
    enum { N = 4 };
    const struct exchange_member members[N] = {
        { 0, 1, 1 }, { 1, 1, 1 }, { 2, 1, 1 }, { 3, 1, 1 }
    };
    struct exchange_transfer list[2 * N];

    for (int m = 0; m < N; m++) {
        CHECK_INT(2 * (N - 1), exchange_reduce_scatter(members, N, m, list));
        for (int i = 0; i < N - 1; i++) {
            CHECK_INT((m + N - 1 - i) % N, list[i].member);
            CHECK_INT((m + 1 + i) % N, list[N - 1 + i].member);
        }
    }
}

const struct test tests[] = {
    { .name = "every owner has all partial sums",
      .property = test_every_owner_has_all_partial_sums },
    { .name = "everyone has all parts", .property = test_everyone_has_all_parts },
    { .name = "nobody is sent to by all first", .run = test_nobody_is_sent_to_by_all_first },
    { 0 },
};
