/* SPDX-License-Identifier: MIT */
/* packet_test.c - rows from another node: every field that can be wrong is refused, with the reason. */
#include <string.h>

#include "base/rng.h"
#include "base/test.h"
#include "exec/packet.h"

enum { FROM = 2, ROWS = 23, OWNERS = 4, OWNER = 3 }; /* rows 3, 7, 11, 15, 19 */

static const struct packet_owner owner = { ROWS, OWNERS, OWNER };

static void check_wrong(const struct rows_pair *pairs, int64_t count, const char *text)
{
    struct rows_pair copy[8];
    const struct rows_packet packet = { .pairs = copy, .count = count };

    memcpy(copy, pairs, (size_t)count * sizeof *pairs);
    CHECK_STATUS(STATUS_CORRUPT, packet_check(&packet, &owner, FROM));
    CHECK_MESSAGE("node 2");
    CHECK_MESSAGE(text);
}

static void test_counts_that_cannot_be_are_refused(void)
{
    static const int64_t wrong[] = {
        -1,        6,         INT32_MAX,         (int64_t)1 << 32,
        INT64_MAX, INT64_MIN, INT64_MAX / 8 + 1, ((int64_t)1 << 32) + 5
    };
    struct rows_packet packet = { .count = 77 };

    CHECK_INT(5, packet_most(&owner));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(STATUS_CORRUPT, packet_take_count(&packet, wrong[i], 5, FROM));
        CHECK_MESSAGE("node 2 says that");
        CHECK_INT(77, packet.count);
    }
    for (int64_t count = 0; count <= 5; count++) {
        CHECK_OK(packet_take_count(&packet, count, 5, FROM));
        CHECK_INT(count, packet.count);
    }
}

static void test_each_wrong_field_is_refused(void)
{
    struct rows_pair good[] = { { 3, 0 }, { 11, 1 }, { 15, 2 }, { 19, 3 } };
    const struct rows_packet packet = { .pairs = good, .count = 4 };
    const struct rows_packet nothing = { .count = 0 };

    CHECK_OK(packet_check(&packet, &owner, FROM));
    CHECK_OK(packet_check(&nothing, &owner, FROM));
    check_wrong((struct rows_pair[]){ { -1, 0 } }, 1, "row -1 of a table of 23");
    check_wrong((struct rows_pair[]){ { INT32_MIN, 0 } }, 1, "of a table of 23");
    check_wrong((struct rows_pair[]){ { 3, 0 }, { 23, 1 } }, 2, "row 23 of a table of 23");
    check_wrong((struct rows_pair[]){ { INT32_MAX, 0 } }, 1, "of a table of 23");
    check_wrong((struct rows_pair[]){ { 4, 0 } }, 1, "row 4, which is not node 3's");
    check_wrong((struct rows_pair[]){ { 11, 0 }, { 3, 1 } }, 2, "row 3 after row 11");
    check_wrong((struct rows_pair[]){ { 11, 0 }, { 11, 1 } }, 2, "row 11 after row 11");
    check_wrong((struct rows_pair[]){ { 3, 1 } }, 1, "place 1 instead of 0");
    check_wrong((struct rows_pair[]){ { 3, 0 }, { 7, 0 } }, 2, "place 0 instead of 1");
    check_wrong((struct rows_pair[]){ { 3, 0 }, { 7, -1 } }, 2, "place -1 instead of 1");
    check_wrong((struct rows_pair[]){ { 3, 0 }, { 7, INT32_MAX } }, 2, "instead of 1");
}

/* A table of fewer rows than nodes: some own none, and may get none. */
static void test_owners_of_nothing_get_nothing(void)
{
    const struct packet_owner none = { .rows = 2, .owners = 4, .owner = 3 };
    struct rows_packet packet = { 0 };

    CHECK_INT(0, packet_most(&none));
    CHECK_OK(packet_take_count(&packet, 0, packet_most(&none), FROM));
    CHECK_STATUS(STATUS_CORRUPT, packet_take_count(&packet, 1, packet_most(&none), FROM));
}

/* One number of a good packet is changed: it is refused, or it is another good packet. */
static void test_what_passes_is_in_order_and_in_the_table(struct rng *rng)
{
    struct rows_pair pairs[5];
    const struct rows_packet packet = { .pairs = pairs, .count = 5 };
    int32_t last = -1;

    for (int i = 0; i < 5; i++)
        pairs[i] = (struct rows_pair){ OWNER + i * OWNERS, i };
    struct rows_pair *changed = &pairs[rng_below(rng, 5)];
    *(rng_below(rng, 2) ? &changed->id : &changed->row) = (int32_t)rng_below(rng, 60) - 20;
    if (packet_check(&packet, &owner, FROM) != STATUS_OK)
        return;
    for (int i = 0; i < 5; i++) {
        CHECK(pairs[i].id > last && pairs[i].id < ROWS && pairs[i].row == i);
        last = pairs[i].id;
    }
}

const struct test tests[] = {
    { "counts that cannot be are refused", .run = test_counts_that_cannot_be_are_refused },
    { "each wrong field is refused", .run = test_each_wrong_field_is_refused },
    { "owners of nothing get nothing", .run = test_owners_of_nothing_get_nothing },
    { "what passes is in order and in the table",
      .property = test_what_passes_is_in_order_and_in_the_table },
    { 0 },
};
