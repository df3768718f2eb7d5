/* SPDX-License-Identifier: MIT */
/* pool.c - fork and join over threads that spin shortly, then sleep.
 *
 * The caller publishes the work and raises `run`, the number of the run; a
 * worker that sees a new number works and then lowers `left`; the caller
 * works too and waits until `left` is 0. Both words are futexes. A waiter
 * counts itself as a sleeper before it looks at the word for the last time, and
 * a changer changes the word before it looks for sleepers, both in the one order of
 * sequentially consistent atomics: one of them sees the other, so no wake-up
 * is lost, and none costs a system call while everybody spins.
 *
 * All that threads share is atomic or ordered by `run` and `left`.
 */
#include "base/pool.h"

#include "base/clock.h"
#include "base/mem.h"

#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SIZE_LIMIT = 4096, SPIN_NS = 100000, PAUSES_PER_LOOK = 16 };

struct signal_word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic uint32_t sleepers;
};

struct worker {
    struct pool *pool;
    int index;
    pthread_t thread;
};

struct pool {
    struct signal_word run;  /* number of runs begun; wraps */
    struct signal_word left; /* workers that have not finished the run */
    int size;
    bool spins;    /* there is a core for every thread */
    bool stopping; /* written before `run` is raised, as are fn and arg */
    pool_fn *fn;
    void *arg;
    atomic_flag busy;        /* a run is under way */
    struct worker workers[]; /* size - 1; workers[i].index is i + 1 */
};

_Static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "a futex is a plain 32-bit word");

static void pause_core(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Returns the word's value once it is another than `old`. */
static uint32_t wait_for_change(struct signal_word *word, uint32_t old, bool spin)
{
    uint32_t value = atomic_load_explicit(&word->value, memory_order_acquire);

    if (spin && value == old) {
        const int64_t end = clock_ns() + SPIN_NS;
        do {
            for (int i = 0; i < PAUSES_PER_LOOK && value == old; i++) {
                pause_core();
                value = atomic_load_explicit(&word->value, memory_order_acquire);
            }
        } while (value == old && clock_ns() < end);
    }
    if (value != old)
        return value;

    atomic_fetch_add(&word->sleepers, 1);
    while ((value = atomic_load(&word->value)) == old)
        syscall(SYS_futex, &word->value, FUTEX_WAIT_PRIVATE, old, NULL, NULL, 0);
    atomic_fetch_sub(&word->sleepers, 1);
    return value;
}

/* To be called after the word was changed by a sequentially consistent operation. */
static void wake_sleepers(struct signal_word *word)
{
    if (atomic_load(&word->sleepers) > 0)
        syscall(SYS_futex, &word->value, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

static void *work(void *arg)
{
    const struct worker *self = arg;
    struct pool *pool = self->pool;

    for (uint32_t run = 0;;) {
        run = wait_for_change(&pool->run, run, pool->spins);
        if (pool->stopping)
            return NULL;
        pool->fn(pool->arg, self->index);
        if (atomic_fetch_sub(&pool->left.value, 1) == 1)
            wake_sleepers(&pool->left);
    }
}

/* Signals go to the threads of the program, not to the workers: those block all. */
static enum status start_worker(struct pool *pool, int index)
{
    struct worker *worker = &pool->workers[index - 1];
    sigset_t all, before;

    *worker = (struct worker){ .pool = pool, .index = index };
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return FAIL(STATUS_NO_MEMORY, "cannot start thread %d of %d: %s", index + 1, pool->size,
                    strerror(error));
    return STATUS_OK;
}

static void stop_workers(struct pool *pool, int n_workers)
{
    pool->stopping = true;
    atomic_fetch_add(&pool->run.value, 1);
    wake_sleepers(&pool->run);
    for (int i = 0; i < n_workers; i++)
        pthread_join(pool->workers[i].thread, NULL);
}

static int count_cores(void)
{
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return INT_MAX; /* more than a set holds */
    return CPU_COUNT(&set);
}

enum status pool_create(int size, struct pool **out)
{
    struct pool *pool;

    if (size < 1 || size > SIZE_LIMIT)
        return FAIL(STATUS_USAGE, "a pool has 1 to %d threads, not %d", SIZE_LIMIT, size);
    TRY(mem_alloc(1, sizeof *pool + (size_t)(size - 1) * sizeof(struct worker), &pool));
    pool->size = size;
    pool->spins = size <= count_cores();
    atomic_flag_clear(&pool->busy);

    for (int index = 1; index < size; index++) {
        const enum status status = start_worker(pool, index);
        if (status != STATUS_OK) {
            stop_workers(pool, index - 1);
            mem_free(pool);
            return status;
        }
    }
    *out = pool;
    return STATUS_OK;
}

void pool_destroy(struct pool *pool)
{
    if (!pool)
        return;
    stop_workers(pool, pool->size - 1);
    mem_free(pool);
}

int pool_size(const struct pool *pool)
{
    return pool->size;
}

void pool_run(struct pool *pool, pool_fn *fn, void *arg)
{
    if (pool->size == 1) {
        fn(arg, 0);
        return;
    }
    BUG_ON(atomic_flag_test_and_set_explicit(&pool->busy, memory_order_acquire));

    pool->fn = fn;
    pool->arg = arg;
    atomic_store_explicit(&pool->left.value, (uint32_t)(pool->size - 1), memory_order_relaxed);
    atomic_fetch_add(&pool->run.value, 1);
    wake_sleepers(&pool->run);

    fn(arg, 0);
    for (uint32_t left = atomic_load(&pool->left.value); left > 0;)
        left = wait_for_change(&pool->left, left, pool->spins);
    atomic_flag_clear_explicit(&pool->busy, memory_order_release);
}

struct loop {
    _Alignas(64) _Atomic size_t next;
    size_t count, slots;
    pool_slot_task *task;
    void *arg;
};

static void run_tasks(void *arg, int index)
{
    struct loop *loop = arg;

    if ((size_t)index >= loop->slots)
        return;
    for (size_t i;
         (i = atomic_fetch_add_explicit(&loop->next, 1, memory_order_relaxed)) < loop->count;)
        loop->task(loop->arg, i, (size_t)index);
}

void pool_for_slots(struct pool *pool, size_t count, size_t slots, pool_slot_task *task,
                    void *arg)
{
    if (!pool || pool->size == 1 || count <= 1) {
        for (size_t i = 0; i < count; i++)
            task(arg, i, 0);
        return;
    }

    struct loop loop = { .count = count, .slots = slots, .task = task, .arg = arg };
    pool_run(pool, run_tasks, &loop);
}

struct plain {
    pool_task *task;
    void *arg;
};

static void run_plain(void *arg, size_t i, size_t slot)
{
    const struct plain *plain = arg;

    (void)slot;
    plain->task(plain->arg, i);
}

void pool_for(struct pool *pool, size_t count, pool_task *task, void *arg)
{
    struct plain plain = { .task = task, .arg = arg };

    pool_for_slots(pool, count, SIZE_MAX, run_plain, &plain);
}
