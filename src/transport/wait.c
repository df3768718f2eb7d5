/* SPDX-License-Identifier: MIT */
/* wait.c - counters in shared memory and how to wait for one.
 *
 * A waiter spins for some microseconds if the job has a core for every waiter, then lets
 * others run, then sleeps in the kernel. It sleeps in slices, so that a failure of the
 * job reaches it even if nobody raises its counter any more.
 *
 * No wake is lost: the waiter announces itself in `sleepers` before the kernel compares
 * `value` with what it saw, the raiser changes `value` before it looks at `sleepers`, and
 * all four accesses are sequentially consistent.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "transport/region.h"

enum {
    SPIN_MOST_NS = 50 * 1000,
    SPIN_LEAST_NS = 2 * 1000,
    YIELD_NS = 200 * 1000,
    SLICE_NS = 20 * 1000 * 1000,
    SPINS_PER_LOOK = 32, /* looks at the counter for each look at the clock */
};

static void pause_core(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void transport_set_waiters(struct transport *transport, int waiters)
{
    /* A group's other ranks are not alone on this machine. */
    const int others = transport->members ? transport->region->size : 1;

    atomic_store_explicit(&transport->may_spin, transport->region->cores >= waiters * others,
                          memory_order_relaxed);
    atomic_store_explicit(&transport->spin_ns, SPIN_MOST_NS / 2, memory_order_relaxed);
}

void transport_raise(struct transport_counter *counter, uint32_t by)
{
    atomic_fetch_add(&counter->value, by);
    if (atomic_load(&counter->sleepers) != 0)
        (void)syscall(SYS_futex, &counter->value, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool transport_reached(const struct transport_counter *counter, uint32_t target)
{
    const uint32_t value = atomic_load_explicit(&counter->value, memory_order_acquire);

    return (int32_t)(value - target) >= 0;
}

/* Spinning that leads to nothing (the peer computes on, or waits for this very core) is
 * worth less next time: the limit halves; success doubles it. */
static void adapt_spinning(struct transport *transport, bool was_worth_it, int32_t spin_ns)
{
    const int32_t next = was_worth_it ? spin_ns * 2 : spin_ns / 2;

    if (next >= SPIN_LEAST_NS && next <= SPIN_MOST_NS)
        atomic_store_explicit(&transport->spin_ns, next, memory_order_relaxed);
}

static bool spin(struct transport *transport, const struct transport_counter *counter,
                 uint32_t target)
{
    const int32_t spin_ns = atomic_load_explicit(&transport->spin_ns, memory_order_relaxed);
    int64_t end = 0;

    for (;;) {
        for (int i = 0; i < SPINS_PER_LOOK; i++) {
            if (transport_reached(counter, target)) {
                adapt_spinning(transport, true, spin_ns);
                return true;
            }
            pause_core();
        }
        const int64_t now = clock_ns();
        if (end == 0) {
            end = now + spin_ns;
        } else if (now > end) {
            adapt_spinning(transport, false, spin_ns);
            return false;
        }
    }
}

static bool yield(const struct transport_counter *counter, uint32_t target)
{
    const int64_t end = clock_ns() + YIELD_NS;

    do {
        if (transport_reached(counter, target))
            return true;
        (void)sched_yield();
    } while (clock_ns() < end);
    return false;
}

/* Sleeps until someone raises the counter, a slice is over or a signal came. */
static void sleep_slice(struct transport_counter *counter, uint32_t target)
{
    const struct timespec slice = { .tv_nsec = SLICE_NS };

    atomic_fetch_add(&counter->sleepers, 1);
    const uint32_t seen = atomic_load(&counter->value);
    if ((int32_t)(seen - target) < 0)
        (void)syscall(SYS_futex, &counter->value, FUTEX_WAIT, seen, &slice, NULL, 0);
    atomic_fetch_sub(&counter->sleepers, 1);
}

/* Waits for a counter of `rank` (-1: of all), or until so many nanoseconds were waited. What one
 * slice takes is bounded: if it is long, the process was stopped. */
static enum status wait_for(struct transport *transport, struct transport_counter *counter,
                            uint32_t target, int rank, int64_t most_ns, const char *what,
                            bool *out_reached)
{
    const struct region *region = transport->region;
    int64_t waited_ns = 0, last_ns = clock_ns();

    *out_reached = true;

    if (transport_reached(counter, target))
        return STATUS_OK;
    if (atomic_load_explicit(&transport->may_spin, memory_order_relaxed) &&
        spin(transport, counter, target))
        return STATUS_OK;
    if (yield(counter, target))
        return STATUS_OK;
    for (;;) {
        /* Both are looked at before the counter: what was raised before them is not missed. */
        const bool failed = region_has_failed(region);
        const bool ended = rank >= 0 && region_has_ended(region, rank);

        if (transport_reached(counter, target))
            return STATUS_OK;
        if (failed)
            return transport_check(transport);
        if (ended)
            return FAIL(STATUS_PEER_LOST, "rank %d has ended while rank %d waits for it in %s",
                        rank, transport->rank, what);
        if (waited_ns >= most_ns) {
            *out_reached = false;
            return STATUS_OK;
        }
        sleep_slice(counter, target);
        const int64_t now_ns = clock_ns(), passed_ns = now_ns - last_ns;
        waited_ns += passed_ns < 5 * SLICE_NS ? passed_ns : 5 * SLICE_NS;
        last_ns = now_ns;
    }
}

enum status transport_wait_rank(struct transport *transport, struct transport_counter *counter,
                                uint32_t target, int rank, const char *what)
{
    bool reached;
    return wait_for(transport, counter, target, job_rank(transport, rank), INT64_MAX, what,
                    &reached);
}

enum status transport_wait_within(struct transport *transport,
                                  struct transport_counter *counter, uint32_t target,
                                  int64_t ns, const char *what, bool *out_reached)
{
    return wait_for(transport, counter, target, -1, ns, what, out_reached);
}

enum status transport_wait(struct transport *transport, struct transport_counter *counter,
                           uint32_t target, const char *what)
{
    return transport_wait_rank(transport, counter, target, -1, what);
}
