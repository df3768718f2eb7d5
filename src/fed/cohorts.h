/* SPDX-License-Identifier: MIT */
/* cohorts.h - which sets of participants were summed, so that no two sums differ by a few
 * participants' updates.
 *
 * Two sums over sets that differ by one participant give away, by subtraction, what this
 * participant gave (almost: the model has moved between the rounds). So sets of any two rounds
 * are equal, or differ by at least `least` members. A participant keeps the sets that it has
 * signed and signs no other; the coordinator keeps the same record, to ask for nothing that
 * would be refused. Rounds of statistics and rounds of training are compared among themselves.
 *
 *   cohorts_check(log, kind, ids, n, least)    refuses a set that is too near an earlier one
 *   cohorts_add(log, kind, ids, n)             remembers it
 *
 * Threads: one at a time. Memory: 32 bytes a participant, a bit a participant and set; equal
 * sets are kept once.
 */
#ifndef FED_COHORTS_H
#define FED_COHORTS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "fed/wire.h"

enum {
    COHORTS_ID = 32,         /* bytes: a participant's public key, or a hash of its name */
    COHORTS_BYTES = 1 << 28, /* that cohorts_write adds at most */
};
#define COHORTS_ONE UINT32_MAX /* as `least`: all sets of the kind are equal */

struct cohorts;

MUST_CHECK enum status cohorts_create(struct cohorts **out);
void cohorts_destroy(struct cohorts *cohorts); /* NULL is allowed */

/* ids are read only (C has no way to say it of arrays). STATUS_MISMATCH if the set differs from
 * an earlier one of the same kind by 1 to least - 1 members. kind: 0 to 255. */
MUST_CHECK enum status cohorts_check(const struct cohorts *cohorts, uint8_t kind,
                                     uint8_t (*ids)[COHORTS_ID], uint32_t n, uint32_t least);
/* The set must have at most 65,536 members. STATUS_USAGE if the record is full. */
MUST_CHECK enum status cohorts_add(struct cohorts *cohorts, uint8_t kind,
                                   uint8_t (*ids)[COHORTS_ID], uint32_t n);

void cohorts_write(const struct cohorts *cohorts, struct fed_buffer *out);
/* Replaces what is there. A reader that holds no record has failed. */
MUST_CHECK enum status cohorts_read(struct cohorts *cohorts, struct fed_reader *reader);

#endif /* FED_COHORTS_H */
