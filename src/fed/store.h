/* SPDX-License-Identifier: MIT */
/* store.h - what a coordinator keeps, as a table of functions; in memory here, in SQLite elsewhere.
 *
 * The server engine is a function of the last commit and of the records appended since, in their order: who
 * opens a store again goes on where the last one was. So a record is durable when append returns (the message
 * is acknowledged after that), and a commit is all there or not at all, with the records of the round then
 * free to be dropped (NET keeps them, or their hashes, as the audit asks).
 *
 * Threads: one, or the caller locks.
 */
#ifndef FED_STORE_H
#define FED_STORE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* A message that was accepted, or a decision of the server (client ""). */
struct fed_record {
    int64_t round; /* that runs; -1: it holds for all rounds (a participant's hello) */
    int kind;      /* enum fed_stage, or the server's own numbers from 100 on */
    const char *client;
    const void *bytes;
    size_t length;
    const char *
        what; /* its line of the audit log, durable with it; NULL: none, and when it is replayed */
};

/* The end of a round. */
struct fed_commit {
    int64_t round;     /* rounds that are over, 1 after the first; lost ones count */
    const void *state; /* the engine's, opaque: model, optimizer, ledger */
    size_t state_length;
    const char
        *metrics; /* a JSON object in one line: what the status page and the report draw */
    const char *ledger; /* privacy spent, a JSON object; "" without differential privacy */
};

struct fed_store {
    void *arg;
    MUST_CHECK enum status (*append)(void *arg, const struct fed_record *record);
    /* Calls visit with every record of round -1 and of `round`, in the order they were appended; a failure
     * of visit ends it and is returned. */
    MUST_CHECK enum status (*replay)(void *arg, int64_t round,
                                     enum status (*visit)(void *arg,
                                                          const struct fed_record *record),
                                     void *visit_arg);
    /* In one transaction. */
    MUST_CHECK enum status (*commit)(void *arg, const struct fed_commit *commit);
    /* The last commit; borrowed until the next call. STATUS_NOT_FOUND: none yet. */
    MUST_CHECK enum status (*last)(void *arg, struct fed_commit *out);
    /* Calls visit with the metrics of every round, the oldest first. */
    MUST_CHECK enum status (*history)(void *arg,
                                      enum status (*visit)(void *arg, const char *metrics),
                                      void *visit_arg);
    /* A line of the audit log; "" is the server itself. The store adds the time. */
    MUST_CHECK enum status (*audit)(void *arg, int64_t round, const char *client,
                                    const char *what);
};

/* In memory: for simulations and tests. It can be given to a new engine after the old one was destroyed. */
struct fed_memory_store;
MUST_CHECK enum status fed_memory_store_create(struct fed_memory_store **out);
void fed_memory_store_destroy(struct fed_memory_store *store); /* NULL is allowed */
struct fed_store fed_memory_store(struct fed_memory_store *store);
/* From now on records of rounds are not kept: for who never begins again. */
void fed_memory_store_forget(struct fed_memory_store *store);
/* For tests: lines of the audit so far, "ROUND CLIENT WHAT\n" each. */
const char *fed_memory_store_audit(const struct fed_memory_store *store);

#endif /* FED_STORE_H */
