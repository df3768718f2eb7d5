/* SPDX-License-Identifier: MIT */
/* store_sqlite.h - what a coordinator keeps, in a folder: federation.sqlite3.
 *
 * Whatever a function returned from is on the disk (write-ahead log, synchronous FULL). Of a round that is over
 * the messages' bytes are erased, their length and SHA-256 stay: the audit can say what came, nobody can read it.
 * A second coordinator on the same folder is refused.
 *
 * Threads: one, or the caller locks.
 */
#ifndef FED_STORE_SQLITE_H
#define FED_STORE_SQLITE_H

#include <stdbool.h>

#include "fed/store.h"

struct fed_sqlite;

/* Opens the folder's state, or begins one. */
MUST_CHECK enum status fed_sqlite_open(const char *folder, struct fed_sqlite **out);
/* Does the folder have a state? */
bool fed_sqlite_exists(const char *folder);
void fed_sqlite_close(struct fed_sqlite *store); /* NULL is allowed */
struct fed_store fed_sqlite_store(struct fed_sqlite *store);

/* Values by name, for what begins with the federation: its terms. *out is NULL if there is none (mem_free). */
MUST_CHECK enum status fed_sqlite_set(struct fed_sqlite *store, const char *name,
                                      const char *value);
MUST_CHECK enum status fed_sqlite_get(struct fed_sqlite *store, const char *name, char **out);

/* The certificate that a participant showed last. */
MUST_CHECK enum status fed_sqlite_set_certificate(struct fed_sqlite *store, const char *client,
                                                  const void *der, size_t length);
/* STATUS_NOT_FOUND: it has never been here (mem_free). */
MUST_CHECK enum status fed_sqlite_certificate(struct fed_sqlite *store, const char *client,
                                              uint8_t **out, size_t *out_length);

/* Calls visit with the newest `count` lines of the audit, the newest first. */
MUST_CHECK enum status fed_sqlite_audit(struct fed_sqlite *store, int count,
                                        void (*visit)(void *arg, int64_t time, int64_t round,
                                                      const char *client, const char *what),
                                        void *arg);

#endif /* FED_STORE_SQLITE_H */
