/* SPDX-License-Identifier: MIT */
/* cohorts.c - which sets of participants were summed.
 *
 * Every participant ever seen has an index; a set is a bitmap over indices. The difference of
 * two sets is the number of bits in their exclusive or. */
#include "fed/cohorts.h"

#include <string.h>

#include "base/mem.h"

/* Limits on what a saved record may claim, and on what a coordinator can make a participant
 * keep. */
enum { MEMBERS_MOST = 1 << 16, SETS_MOST = 1 << 16 };

struct set {
    uint8_t kind;
    uint32_t bytes; /* of bits; the rest is zeros */
    uint8_t *bits;
};

struct cohorts {
    uint8_t (*ids)[COHORTS_ID];
    uint32_t n, capacity;
    struct set *sets;
    uint32_t n_sets, set_capacity;
};

enum status cohorts_create(struct cohorts **out)
{
    return mem_alloc(1, sizeof **out, out);
}

static void clear(struct cohorts *cohorts)
{
    for (uint32_t i = 0; i < cohorts->n_sets; i++)
        mem_free(cohorts->sets[i].bits);
    mem_free(cohorts->sets);
    mem_free(cohorts->ids);
    *cohorts = (struct cohorts){ 0 };
}

void cohorts_destroy(struct cohorts *cohorts)
{
    if (!cohorts)
        return;
    clear(cohorts);
    mem_free(cohorts);
}

/* Index of a participant, or n if it was never seen. */
static uint32_t find(const struct cohorts *cohorts, const uint8_t id[COHORTS_ID])
{
    uint32_t i = 0;

    while (i < cohorts->n && memcmp(cohorts->ids[i], id, COHORTS_ID) != 0)
        i++;
    return i;
}

static bool has(const struct set *set, uint32_t index)
{
    return index / 8 < set->bytes && set->bits[index / 8] >> index % 8 & 1;
}

static uint32_t size_of(const struct set *set)
{
    uint32_t size = 0;

    for (uint32_t i = 0; i < 8 * set->bytes; i++)
        size += has(set, i);
    return size;
}

/* Members that are in one of two sets only. indices: of the other set's n members. */
static uint32_t difference(const struct set *set, const uint32_t *indices, uint32_t n)
{
    uint32_t common = 0;

    for (uint32_t i = 0; i < n; i++)
        common += has(set, indices[i]);
    return size_of(set) - common + n - common;
}

/* Indices of participants, allocated; n of the record for those that were never seen. */
static enum status find_all(const struct cohorts *cohorts, uint8_t (*ids)[COHORTS_ID],
                            uint32_t n, uint32_t **out)
{
    TRY(mem_alloc((size_t)n + 1, sizeof **out, out));
    for (uint32_t i = 0; i < n; i++)
        (*out)[i] = find(cohorts, ids[i]);
    return STATUS_OK;
}

/* The smallest difference to an earlier set that is not 0; UINT32_MAX: none. *again: one is
 * equal. */
static uint32_t nearest(const struct cohorts *cohorts, uint8_t kind, const uint32_t *indices,
                        uint32_t n, bool *again)
{
    uint32_t least = UINT32_MAX;

    *again = false;
    for (uint32_t i = 0; i < cohorts->n_sets; i++) {
        if (cohorts->sets[i].kind != kind)
            continue;
        const uint32_t by = difference(&cohorts->sets[i], indices, n);
        *again |= by == 0;
        least = by > 0 && by < least ? by : least;
    }
    return least;
}

enum status cohorts_check(const struct cohorts *cohorts, uint8_t kind,
                          uint8_t (*ids)[COHORTS_ID], uint32_t n, uint32_t least)
{
    uint32_t *indices;
    bool again;

    TRY(find_all(cohorts, ids, n, &indices));
    const uint32_t by = nearest(cohorts, kind, indices, n, &again);
    mem_free(indices);
    if (by >= least)
        return STATUS_OK;
    if (least == COHORTS_ONE)
        return FAIL(
            STATUS_MISMATCH,
            "a sum over these %u participants differs from an earlier one by %u of them, "
            "and what is summed is the same each time: it is asked of one set of "
            "participants alone",
            n, by);
    return FAIL(STATUS_MISMATCH,
                "a sum over these %u participants differs from an earlier one by %u of them, "
                "whose updates the difference gives away: cohorts differ by none or by at "
                "least %u (--cohort-difference)",
                n, by, least);
}

static enum status add_id(struct cohorts *cohorts, const uint8_t id[COHORTS_ID])
{
    if (cohorts->n == MEMBERS_MOST)
        return FAIL(STATUS_USAGE, "a record of sums holds at most %d participants",
                    MEMBERS_MOST);
    if (cohorts->n == cohorts->capacity) {
        const uint32_t capacity = 2 * cohorts->capacity + 16;
        TRY(mem_grow(&cohorts->ids, cohorts->capacity, capacity, COHORTS_ID));
        cohorts->capacity = capacity;
    }
    memcpy(cohorts->ids[cohorts->n++], id, COHORTS_ID);
    return STATUS_OK;
}

static enum status add_set(struct cohorts *cohorts, uint8_t kind, uint32_t bytes,
                           struct set **out)
{
    if (cohorts->n_sets == SETS_MOST)
        return FAIL(STATUS_USAGE, "a record of sums holds at most %d sets of participants",
                    SETS_MOST);
    if (cohorts->n_sets == cohorts->set_capacity) {
        const uint32_t capacity = 2 * cohorts->set_capacity + 16;
        TRY(mem_grow(&cohorts->sets, cohorts->set_capacity, capacity, sizeof *cohorts->sets));
        cohorts->set_capacity = capacity;
    }
    struct set *set = &cohorts->sets[cohorts->n_sets];
    *set = (struct set){ .kind = kind, .bytes = bytes };
    TRY(mem_alloc(bytes + 1, 1, &set->bits));
    cohorts->n_sets++;
    *out = set;
    return STATUS_OK;
}

enum status cohorts_add(struct cohorts *cohorts, uint8_t kind, uint8_t (*ids)[COHORTS_ID],
                        uint32_t n)
{
    struct set *set;
    uint32_t *indices;
    bool again;

    TRY(find_all(cohorts, ids, n, &indices));
    (void)nearest(cohorts, kind, indices, n, &again);
    mem_free(indices);
    if (again)
        return STATUS_OK;
    for (uint32_t i = 0; i < n; i++) {
        if (find(cohorts, ids[i]) == cohorts->n)
            TRY(add_id(cohorts, ids[i]));
    }
    TRY(add_set(cohorts, kind, (cohorts->n + 7) / 8, &set));
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = find(cohorts, ids[i]);
        set->bits[index / 8] |= (uint8_t)(1 << index % 8);
    }
    return STATUS_OK;
}

/* Restarts ------------------------------------------------------------------------------ */

void cohorts_write(const struct cohorts *cohorts, struct fed_buffer *out)
{
    fed_put_u32(out, cohorts->n);
    fed_put(out, cohorts->ids, (size_t)cohorts->n * COHORTS_ID);
    fed_put_u32(out, cohorts->n_sets);
    for (uint32_t i = 0; i < cohorts->n_sets; i++) {
        fed_put_u8(out, cohorts->sets[i].kind);
        fed_put_bytes(out, cohorts->sets[i].bits, cohorts->sets[i].bytes);
    }
}

static enum status read_sets(struct cohorts *cohorts, struct fed_reader *reader)
{
    const uint32_t n = fed_take_u32(reader);

    for (uint32_t i = 0; i < n && !reader->failed; i++) {
        const uint8_t kind = fed_take_u8(reader);
        size_t bytes;
        const uint8_t *bits = fed_take_bytes(reader, &bytes);
        struct set *set;
        if (!bits || bytes > (cohorts->n + 7) / 8) {
            reader->failed = true;
            break;
        }
        TRY(add_set(cohorts, kind, (uint32_t)bytes, &set));
        memcpy(set->bits, bits, bytes);
    }
    return STATUS_OK;
}

enum status cohorts_read(struct cohorts *cohorts, struct fed_reader *reader)
{
    clear(cohorts);
    const uint32_t n = fed_take_u32(reader);
    for (uint32_t i = 0; i < n && !reader->failed; i++) {
        const uint8_t *id = fed_take(reader, COHORTS_ID);
        if (id)
            TRY(add_id(cohorts, id));
    }
    return read_sets(cohorts, reader);
}
