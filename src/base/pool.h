/* SPDX-License-Identifier: MIT */
/* pool.h - a fixed set of threads that run one function together.
 *
 * pool_run starts fn(arg, index) on every thread, index 0 on the caller's own,
 * and returns when all are done. Threads spin shortly, then sleep, between runs.
 * Threads: one caller at a time.
 */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include <stddef.h>

#include "base/status.h"

struct pool;
typedef void pool_fn(void *arg, int index);

/* `size` threads in all, the caller's included; size >= 1. */
MUST_CHECK enum status pool_create(int size, struct pool **out);
void pool_destroy(struct pool *pool); /* NULL is allowed */
int pool_size(const struct pool *pool);
void pool_run(struct pool *pool, pool_fn *fn, void *arg);

/* Runs task(arg, i) for i in [0, count), spread over the pool; NULL pool runs them in turn.
 * Which thread runs which task must not matter to the result. */
typedef void pool_task(void *arg, size_t i);
void pool_for(struct pool *pool, size_t count, pool_task *task, void *arg);

/* The same for tasks that need room to work in: the slot, below `slots`, is that of no other
 * thread, and a thread keeps it from task to task, so that what lies there stays in its cache.
 * No more than `slots` threads take part. */
typedef void pool_slot_task(void *arg, size_t i, size_t slot);
void pool_for_slots(struct pool *pool, size_t count, size_t slots, pool_slot_task *task,
                    void *arg);

#endif /* BASE_POOL_H */
