/* SPDX-License-Identifier: MIT */
/* agree.h - do all ranks of a job run the same? Ranks that a fork made do; those that mpirun
 * started may have another program, other data or other flags on another machine, and would
 * compute nonsense together, or wait for each other for ever.
 */
#ifndef TRANSPORT_AGREE_H
#define TRANSPORT_AGREE_H

#include "transport/transport.h"

enum { AGREE_TEXT = 72 }; /* a SHA-256 in hexadecimal fits */

/* Something that must be the same everywhere. */
struct agree_fact {
    const char *name;      /* "data", "--lr"; the same on every rank */
    char text[AGREE_TEXT]; /* what this rank has, or its hash */
};

/* Collective: compares every rank's facts with those of rank 0, which must be as many. Where they
 * differ, every rank fails with STATUS_MISMATCH and a text that names the first rank and fact. */
MUST_CHECK enum status agree(struct transport *transport, const struct agree_fact *facts,
                             int count);

/* A hash of the program, and of the library that holds this code if that is another file. */
MUST_CHECK enum status agree_program(char out[AGREE_TEXT]);

#endif /* TRANSPORT_AGREE_H */
