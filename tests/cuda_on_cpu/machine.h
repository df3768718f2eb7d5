/* SPDX-License-Identifier: MIT */
/* machine.h - a GPU's threads on a CPU: blocks, warps, barriers, and engines that work beside them.
 *
 * Blocks of a launch run one after the other, threads of a block are fibers that run until they wait. Which thread goes first, and when an
 * engine does what it was asked for, at once or as late as waits allow, is drawn anew for each block: a kernel that forgets to wait, or waits for
 * what never comes, shows it in some of them. What cannot go on is named and ends the program. Draws depend on TUTTI_CUDA_SEED and the
 * number of launches alone.
 *
 * All of it is behind one lock, taken by machine_run: one launch at a time in a process.
 */
#ifndef CUDA_ON_CPU_MACHINE_H
#define CUDA_ON_CPU_MACHINE_H

#include <functional>
#include <stddef.h>
#include <stdint.h>

enum { WARP_LANES = 32, SHARED_BYTES = 227 << 10, SHARED_FREE = 48 << 10, SHARED_BASE = 1024 };

/* Runs a kernel. `body` is called once in each thread. */
struct machine_launch {
    const char *name;
    unsigned grid[3], block[3];
    size_t shared;
    std::function<void()> body;
};
void machine_run(const struct machine_launch &launch);

/* By threads of the kernel ------------------------------------------------------------------- */

/* Dynamic shared memory; its address as engines have it, and back. Other shared memory is a static of the kernel: what it was
 * before this block is taken from it when the first thread comes there. */
char *machine_shared();
void machine_static(void *memory, size_t bytes);
uint32_t machine_address(const void *shared);
char *machine_at(uint32_t address);

/* What cannot be: says which kernel, block and thread, and ends the program. */
[[noreturn]] void machine_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Until `ready` is true. */
void machine_wait(const std::function<bool()> &ready, const char *what);

/* All lanes of `mask` that have not ended are here with `mine`; the last one does `act` for all. */
typedef void machine_act(void *const mine[WARP_LANES], unsigned mask);
void machine_together(unsigned mask, void *mine, machine_act *act);

/* Barrier `id` of the block: 0 of all its threads (threads 0), or of so many. */
void machine_meet(int id, int threads, bool waits);

/* An engine's work: done some time, at the latest when nobody else can go on. */
void machine_engine(const std::function<void()> &work);

/* Groups of work of this thread of one kind: put into the group that is open, ended, and waited for, all groups but
 * the last `left`. What is put may be done at once. Products are of four warps: none is done before all of these have put it, and
 * who has waited for one knows that it is done for all. */
enum machine_kind { KIND_COPIES, KIND_STORES, KIND_PRODUCTS, MACHINE_KINDS };
void machine_put(enum machine_kind kind, const std::function<void()> &work);
void machine_end(enum machine_kind kind);
void machine_await(enum machine_kind kind, int left);

/* A barrier in shared memory that counts arrivals and bytes. */
void machine_barrier_make(uint64_t *barrier, int arrivals);
void machine_barrier_arrive(uint64_t *barrier, int arrivals, int bytes_to_come);
void machine_barrier_wait(uint64_t *barrier, uint32_t parity);

#endif /* CUDA_ON_CPU_MACHINE_H */
