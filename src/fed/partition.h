/* SPDX-License-Identifier: MIT */
/* partition.h - a data set dealt out to the participants of a simulation, evenly or as data differ in life.
 *
 *   iid           a random order, cut into equal parts
 *   blocks        the data set's own order, cut into equal parts: what shards of one step are
 *   dirichlet:A   of each label a share drawn from a Dirichlet distribution; the smaller A, the fewer labels each has
 *   label:K       sorted by label and cut into K pieces a participant, which are dealt out (McMahan et al. 2017)
 *   size:A        a random order, cut into parts whose sizes are drawn from a Dirichlet distribution
 *
 * Everybody has FED_LEAST samples at least: they are taken from who has most.
 */
#ifndef FED_PARTITION_H
#define FED_PARTITION_H

#include "base/status.h"
#include "base/strbuf.h"
#include "data/source.h"

enum { FED_LEAST = 2 };

struct fed_parts {
    int participants;
    int64_t *begin; /* participants + 1 of them, into index */
    int64_t *index;
};

/* Refuses (STATUS_USAGE) unknown names, numbers out of range, and more participants than samples allow. */
MUST_CHECK enum status fed_partition_check(const char *text);
MUST_CHECK enum status fed_partition(const char *text, const struct source *source,
                                     int participants, uint64_t seed, struct fed_parts *out);
void fed_parts_release(struct fed_parts *parts);

/* How many samples of each of `classes` labels a participant has. */
void fed_parts_labels(const struct fed_parts *parts, const struct source *source,
                      int participant, int classes, int64_t *out);
/* How far labels are from being the same everywhere: the mean over participants of half the sum over labels of the difference
 * between its share and that of all (total variation distance): 0 alike, near 1 for one of many labels each. */
double fed_parts_skew(const struct fed_parts *parts, const struct source *source, int classes);

#endif /* FED_PARTITION_H */
