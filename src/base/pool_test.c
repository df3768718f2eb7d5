/* SPDX-License-Identifier: MIT */
/* pool_test.c - every thread and every task runs once a run, and no wake-up is lost.
 *
 * The counters are plain memory on purpose: the pool alone orders the accesses
 * to them, which ThreadSanitizer checks.
 */
#include "base/pool.h"

#include "base/mem.h"
#include "base/test.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum { MAX_TASKS = 300, MAX_SIZE = 9 };

struct job {
    int factor;
    int result[MAX_TASKS];
    _Atomic int n_calls;
};

static void fill_one(void *arg, size_t i)
{
    struct job *job = arg;

    job->result[i] += job->factor * (int)(i + 1);
    atomic_fetch_add_explicit(&job->n_calls, 1, memory_order_relaxed);
}

/* Sizes up to 4, and some that no machine of ours has the cores for. */
static int draw_size(struct rng *rng)
{
    return 1 + (int)rng_below(rng, rng_below(rng, 4) == 0 ? MAX_SIZE : 4);
}

static void check_tasks(struct pool *pool, size_t count, int factor)
{
    struct job job = { .factor = factor };

    pool_for(pool, count, fill_one, &job);
    CHECK_INT(count, atomic_load(&job.n_calls));
    for (size_t i = 0; i < MAX_TASKS; i++)
        CHECK_INT(i < count ? factor * (int)(i + 1) : 0, job.result[i]);
}

static void test_each_task_runs_once(struct rng *rng)
{
    struct pool *pool;
    const int size = draw_size(rng);

    CHECK_OK(pool_create(size, &pool));
    CHECK_INT(size, pool_size(pool));
    for (int round = 0; round < 20; round++)
        check_tasks(pool, rng_below(rng, MAX_TASKS + 1), round + 1);
    check_tasks(pool, 0, 1);
    check_tasks(pool, 1, 1);
    pool_destroy(pool);
    check_tasks(NULL, 7, 1);
}

/* What a thread writes to its slot is plain memory: two in one slot would race. */
struct slots {
    size_t count;
    struct {
        _Alignas(64) int n_tasks, in_use;
    } slot[MAX_SIZE];
    _Atomic int n_wrong;
};

static void use_slot(void *arg, size_t i, size_t slot)
{
    struct slots *slots = arg;

    (void)i;
    if (slot >= slots->count || slots->slot[slot].in_use)
        slots->n_wrong++;
    slots->slot[slot].in_use = 1;
    sched_yield();
    slots->slot[slot].n_tasks++;
    slots->slot[slot].in_use = 0;
}

static void check_slots(struct pool *pool, size_t count, size_t n_slots)
{
    struct slots slots = { .count = n_slots };
    int n_tasks = 0;

    pool_for_slots(pool, count, n_slots, use_slot, &slots);
    for (size_t i = 0; i < MAX_SIZE; i++)
        n_tasks += slots.slot[i].n_tasks;
    CHECK_INT(count, n_tasks);
    CHECK_INT(0, slots.n_wrong);
}

static void test_no_two_threads_share_a_slot(struct rng *rng)
{
    struct pool *pool;

    CHECK_OK(pool_create(draw_size(rng), &pool));
    for (int round = 0; round < 20; round++)
        check_slots(pool, rng_below(rng, MAX_TASKS + 1), 1 + rng_below(rng, MAX_SIZE));
    pool_destroy(pool);
    check_slots(NULL, 7, 1);
}

static void count_one(void *arg, size_t i)
{
    ((unsigned char *)arg)[i]++;
}

/* Tasks so short that threads often ask for the next one at the same time. */
static void test_each_of_many_short_tasks_runs_once(void)
{
    enum { TASKS = 200000, ROUNDS = 10 };
    static unsigned char n_runs[TASKS];
    struct pool *pool;

    CHECK_OK(pool_create(4, &pool));
    memset(n_runs, 0, sizeof n_runs);
    for (int round = 0; round < ROUNDS; round++)
        pool_for(pool, TASKS, count_one, n_runs);
    pool_destroy(pool);
    for (size_t i = 0; i < TASKS; i++)
        if (n_runs[i] != ROUNDS)
            test_fail(__FILE__, __LINE__, "task %zu ran %d times", i, n_runs[i]);
}

struct turns {
    int n_runs[MAX_SIZE];
    int sum;
};

static void take_turn(void *arg, int index)
{
    struct turns *turns = arg;

    turns->n_runs[index]++;
    if (index == 0)
        turns->sum++;
}

static void test_each_thread_runs_once_a_run(struct rng *rng)
{
    struct pool *pool;
    struct turns turns = { 0 };
    const int size = draw_size(rng), n_runs = (int)rng_below(rng, 200);

    CHECK_OK(pool_create(size, &pool));
    for (int run = 1; run <= n_runs; run++) {
        pool_run(pool, take_turn, &turns);
        for (int i = 0; i < MAX_SIZE; i++)
            CHECK_INT(i < size ? run : 0, turns.n_runs[i]);
    }
    CHECK_INT(n_runs, turns.sum);
    pool_destroy(pool);
}

/* With one core to share nobody spins, so each run takes wake-ups; a lost one would hang. */
static void test_no_wake_up_is_lost_on_one_core(void)
{
    cpu_set_t before, one;
    struct turns turns = { 0 };

    CHECK(sched_getaffinity(0, sizeof before, &before) == 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; i++)
        if (CPU_ISSET(i, &before))
            CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    struct pool *pool;
    const enum status status = pool_create(4, &pool);
    for (int i = 0; status == STATUS_OK && i < 2000; i++)
        pool_run(pool, take_turn, &turns);
    if (status == STATUS_OK)
        pool_destroy(pool);
    CHECK(sched_setaffinity(0, sizeof before, &before) == 0);
    CHECK_OK(status);
    for (int i = 0; i < 4; i++)
        CHECK_INT(2000, turns.n_runs[i]);
}

static void test_no_wake_up_is_lost_on_all_cores(void)
{
    struct turns turns = { 0 };

    for (int size = 2; size <= MAX_SIZE; size++) {
        struct pool *pool;
        CHECK_OK(pool_create(size, &pool));
        memset(&turns, 0, sizeof turns);
        for (int i = 0; i < 2000; i++)
            pool_run(pool, take_turn, &turns);
        for (int i = 0; i < size; i++)
            CHECK_INT(2000, turns.n_runs[i]);
        pool_destroy(pool);
    }
}

static void run_long(void *arg, int index)
{
    const long n_turns = *(const long *)arg * (index + 1) * 10000;

    for (volatile long i = 0; i < n_turns; i = i + 1)
        ;
}

/* Threads of one run end far apart, so that some and then the caller go to sleep. */
static void test_threads_of_unequal_length_are_waited_for(void)
{
    struct pool *pool;
    long length = 5;

    CHECK_OK(pool_create(3, &pool));
    for (int i = 0; i < 20; i++)
        pool_run(pool, run_long, &length);
    pool_destroy(pool);
}

static void test_a_run_allocates_nothing(void)
{
    static struct job job;
    struct pool *pool;

    CHECK_OK(pool_create(3, &pool));
    const uint64_t before = mem_count();
    for (int i = 0; i < 10; i++)
        pool_for(pool, MAX_TASKS, fill_one, &job);
    CHECK_INT(before, mem_count());
    pool_destroy(pool);
}

static void test_wrong_sizes_are_refused(void)
{
    struct pool *pool = NULL;

    CHECK_STATUS(STATUS_USAGE, pool_create(0, &pool));
    CHECK_STATUS(STATUS_USAGE, pool_create(-1, &pool));
    CHECK_STATUS(STATUS_USAGE, pool_create(1000000, &pool));
    mem_fail_at(1);
    CHECK_STATUS(STATUS_NO_MEMORY, pool_create(2, &pool));
    CHECK(!pool);
    pool_destroy(NULL);
}

const struct test tests[] = {
    { .name = "each task runs once", .property = test_each_task_runs_once },
    { .name = "no two threads share a slot", .property = test_no_two_threads_share_a_slot },
    { .name = "each of many short tasks runs once",
      .run = test_each_of_many_short_tasks_runs_once },
    { .name = "each thread runs once a run", .property = test_each_thread_runs_once_a_run },
    { .name = "no wake-up is lost on one core", .run = test_no_wake_up_is_lost_on_one_core },
    { .name = "no wake-up is lost on all cores", .run = test_no_wake_up_is_lost_on_all_cores },
    { .name = "threads of unequal length are waited for",
      .run = test_threads_of_unequal_length_are_waited_for },
    { .name = "a run allocates nothing", .run = test_a_run_allocates_nothing },
    { .name = "wrong sizes are refused", .run = test_wrong_sizes_are_refused },
    { 0 },
};
