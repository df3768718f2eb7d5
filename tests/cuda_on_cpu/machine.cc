/* SPDX-License-Identifier: MIT */
/* machine.cc - threads as fibers, and who goes on when. */
#include "machine.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <vector>

#include <vector_types.h>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace
{

enum {
    TEAM_THREADS = 4 * WARP_LANES,
    STACK_BYTES = 256 << 10,
    MOST_THREADS = 1024,
    NAMED = 16,
    MOST_GROUPS = 64,
    GUARD = 256
};
enum { POISON = 0xFF, GUARD_BYTE = 0xA7 }; /* poison is NaN in every type */

/* Fibers ------------------------------------------------------------------------------------- */

/* Saves what calls keep, and goes on where another left off. */
extern "C" void machine_switch(void **from, void *to);
asm(".text\n"
    ".p2align 4\n"
    ".hidden machine_switch\n"
    ".globl machine_switch\n"
    ".type machine_switch, @function\n"
    "machine_switch:\n"
    "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
    "    mov %rsp, (%rdi)\n"
    "    mov %rsi, %rsp\n"
    "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
    "    ret\n"
    ".size machine_switch, . - machine_switch\n");

enum state { READY, WAITS, ENDED };

/* Work in the order in which it was asked for; `ends` says where groups end. */
struct queue {
    std::vector<std::function<void()>> work;
    std::vector<size_t> ends; /* of groups: how much work was put by then, of all */
    size_t put, done;
};

struct thread {
    void *sp;
    char *stack;
    enum state state;
    uint3 index;
    std::function<bool()> ready;
    const char *what; /* it waits for */
    struct queue queues[MACHINE_KINDS];
};

/* Products of four warps: parts of its threads, in the order in which they were put. */
struct team {
    std::deque<std::vector<std::function<void()>>> products;
    size_t done; /* before the first of these */
};

struct warp {
    unsigned alive, arrived, mask;
    unsigned turn; /* how often all came */
    void *mine[WARP_LANES];
    machine_act *act;
};

struct named {
    int arrived, threads;
    unsigned turn;
};

std::mutex lock;
uint64_t launches; /* so far, and what is drawn of it */
uint64_t random_state;
const struct machine_launch *launch;
std::vector<std::unique_ptr<struct thread>> threads;
struct warp warps[MOST_THREADS / WARP_LANES];
struct team teams[MOST_THREADS / TEAM_THREADS];
struct named barriers[NAMED];
std::vector<std::function<void()>> engines;
std::vector<void *> statics; /* that the block has come to */
int n_threads, n_alive;
struct thread *current;
void *scheduler;
bool hastes; /* engines and groups work at once */
char *shared_memory;

uint64_t draw()
{
    random_state += 0x9E3779B97F4A7C15U;
    uint64_t x = random_state;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9U;
    x = (x ^ x >> 27) * 0x94D049BB133111EBU;
    return x ^ x >> 31;
}

int number_of(const struct thread *t)
{
    return (int)(t->index.x + launch->block[0] * (t->index.y + launch->block[1] * t->index.z));
}

/* Threads ------------------------------------------------------------------------------------ */

void finish_warp(struct warp *w)
{
    machine_act *act = w->act;
    const unsigned arrived = w->arrived;

    if (act)
        act(w->mine, arrived);
    w->arrived = 0;
    w->turn++;
}

void finish_barrier(struct named *b)
{
    b->arrived = 0;
    b->turn++;
}

/* Who is gone is not waited for, by its warp and by the whole block. */
void leave(struct thread *t)
{
    struct warp *w = &warps[number_of(t) / WARP_LANES];

    if (t->queues[KIND_STORES].done < t->queues[KIND_STORES].put)
        machine_fail("a thread ends before its stores are done");
    if (teams[number_of(t) / TEAM_THREADS].done < t->queues[KIND_PRODUCTS].put)
        machine_fail("a thread ends before its products are done");
    w->alive &= ~(1U << number_of(t) % WARP_LANES);
    n_alive--;
    if (w->arrived && (w->mask & w->alive & ~w->arrived) == 0)
        finish_warp(w);
    if (barriers[0].arrived && barriers[0].threads == 0 && barriers[0].arrived == n_alive)
        finish_barrier(&barriers[0]);
}

[[noreturn]] void begin()
{
    launch->body();
    leave(current);
    current->state = ENDED;
    machine_switch(&current->sp, scheduler);
    abort();
}

void prepare_stack(struct thread *t)
{
    if (!t->stack) {
        void *memory = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED)
            abort();
        (void)mprotect(memory, 4096,
                       PROT_NONE); /* whoever has too much on it falls down here */
        t->stack = (char *)memory;
    }
    void **top = (void **)(t->stack + STACK_BYTES) - 2; /* as a call would find it */
    *top = (void *)begin;
    top -= 6; /* registers */
    t->sp = top;
}

void go_on(struct thread *t)
{
    current = t;
    threadIdx = t->index;
    machine_switch(&scheduler, t->sp);
    current = NULL;
}

void fill_block()
{
    n_threads = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    n_alive = n_threads;
    memset(warps, 0, sizeof warps);
    memset(barriers, 0, sizeof barriers);
    for (struct team &team : teams)
        team = { {}, 0 };
    while ((int)threads.size() < n_threads) {
        threads.emplace_back(new struct thread());
        threads.back()->stack = NULL;
    }
    for (int i = 0; i < n_threads; i++) {
        struct thread *t = threads[(size_t)i].get();
        const unsigned n = (unsigned)i;

        t->index = { n % launch->block[0], n / launch->block[0] % launch->block[1],
                     n / launch->block[0] / launch->block[1] };
        t->state = READY;
        for (struct queue &q : t->queues)
            q = queue();
        prepare_stack(t);
        warps[i / WARP_LANES].alive |= 1U << i % WARP_LANES;
    }
    statics.clear();
    memset(shared_memory, POISON, launch->shared);
    memset(shared_memory + launch->shared, GUARD_BYTE, GUARD);
}

void check_guard()
{
    for (int i = 0; i < GUARD; i++) {
        if ((unsigned char)shared_memory[launch->shared + (size_t)i] != GUARD_BYTE)
            machine_fail("wrote behind its %zu bytes of shared memory", launch->shared);
    }
}

/* One of the engines' works, in any order. */
bool run_engine()
{
    if (engines.empty())
        return false;
    const size_t i = draw() % engines.size();
    const std::function<void()> work = engines[i];

    engines[i] = engines.back();
    engines.pop_back();
    work();
    return true;
}

[[noreturn]] void nobody_goes_on()
{
    for (int i = 0, told = -1; i < n_threads; i++) {
        const struct thread *t = threads[(size_t)i].get();
        if (t->state != WAITS || i / WARP_LANES == told)
            continue;
        told = i / WARP_LANES;
        (void)fprintf(stderr, "  warp %d waits for %s\n", told, t->what);
    }
    machine_fail("nobody can go on");
}

/* Threads [first, first + count), from any on, forward or backward, as far as each goes. Did one of them move? */
bool run_threads(int first, int count, bool backward)
{
    const int at = (int)(draw() % (uint64_t)count);
    bool moved = false;

    for (int k = 0; k < count; k++) {
        const int i = first + (at + (backward ? count - k : k)) % count;
        struct thread *t = threads[(size_t)i].get();

        if (t->state == WAITS && t->ready())
            t->state = READY;
        if (t->state != READY)
            continue;
        go_on(t);
        moved = true;
    }
    return moved;
}

/* The first of the warps that can move, in an order that is kept for long: those behind are late by as much as waits
 * allow. */
bool run_by_rank(std::vector<int> &order, bool backward)
{
    if (draw() % 256 == 0)
        std::swap(order[draw() % order.size()], order[draw() % order.size()]);
    for (const int w : order) {
        const int first = w * WARP_LANES;
        if (warps[w].alive &&
            run_threads(first, std::min((int)WARP_LANES, n_threads - first), backward))
            return true;
    }
    return false;
}

/* All warps alike, or some before others. */
void run_block()
{
    const bool backward = draw() % 2, fair = draw() % 2;
    std::vector<int> order;

    for (int w = 0; w * WARP_LANES < n_threads; w++) {
        order.push_back(w);
        std::swap(order.back(), order[draw() % order.size()]);
    }
    hastes = draw() % 2;
    while (n_alive > 0) {
        bool moved = fair ? run_threads(0, n_threads, backward) : run_by_rank(order, backward);

        if (draw() % 4 == 0)
            moved = run_engine() || moved;
        if (!moved && n_alive > 0 && !run_engine())
            nobody_goes_on();
    }
    if (!engines.empty())
        machine_fail("nobody has waited for the copy engine");
    check_guard();
}

/* Work up to the `until`-th is done. */
void do_queue(struct queue *q, size_t until)
{
    for (; q->done < until; q->done++) {
        const std::function<void()> work = q->work[q->done];
        work();
    }
    if (q->done == q->put) {
        q->work.clear();
        q->put = q->done = 0;
        for (size_t &end : q->ends)
            end = 0;
    }
}

bool is_put(const struct team *team, size_t product)
{
    return product < team->done ||
           (product - team->done < team->products.size() &&
            team->products[product - team->done].size() == TEAM_THREADS);
}

void do_products(struct team *team, size_t until)
{
    const uint3 self = threadIdx;

    for (; team->done < until; team->done++) {
        for (const std::function<void()> &part : team->products.front())
            part();
        team->products.pop_front();
    }
    threadIdx = self;
}

void put_product(const std::function<void()> &work)
{
    struct team *team = &teams[number_of(current) / TEAM_THREADS];
    const size_t product = current->queues[KIND_PRODUCTS].put++;
    const uint3 self = threadIdx;

    while (team->products.size() <= product - team->done)
        team->products.emplace_back();
    team->products[product - team->done].push_back([self, work] {
        threadIdx = self;
        work();
    });
    if (hastes && is_put(team, product))
        do_products(team, product + 1);
}

void await_products(size_t until)
{
    struct team *team = &teams[number_of(current) / TEAM_THREADS];

    if (until == 0)
        return;
    machine_wait([=] { return is_put(team, until - 1); }, "its four warps");
    do_products(team, until);
}

} // namespace

void machine_run(const struct machine_launch &of)
{
    const std::lock_guard<std::mutex> guard(lock);
    const char *seed = getenv("TUTTI_CUDA_SEED");

    if (!shared_memory)
        shared_memory =
            (char *)aligned_alloc(1024, (SHARED_BYTES + GUARD + 1023) / 1024 * 1024);
    launch = &of;
    random_state = seed ? strtoull(seed, NULL, 10) : 1;
    random_state = draw() ^ ++launches;
    blockDim = dim3(of.block[0], of.block[1], of.block[2]);
    gridDim = dim3(of.grid[0], of.grid[1], of.grid[2]);
    const uint64_t blocks = (uint64_t)of.grid[0] * of.grid[1] * of.grid[2];
    const bool backward = draw() % 2;
    for (uint64_t k = 0; k < blocks; k++) {
        const uint64_t i = backward ? blocks - 1 - k : k;
        blockIdx = { (unsigned)(i % of.grid[0]), (unsigned)(i / of.grid[0] % of.grid[1]),
                     (unsigned)(i / of.grid[0] / of.grid[1]) };
        fill_block();
        run_block();
    }
}

char *machine_shared()
{
    return shared_memory;
}

void machine_static(void *memory, size_t bytes)
{
    if (std::find(statics.begin(), statics.end(), memory) != statics.end())
        return;
    statics.push_back(memory);
    memset(memory, POISON, bytes);
}

uint32_t machine_address(const void *shared)
{
    const ptrdiff_t at = (const char *)shared - shared_memory;

    if (at < 0 || at > (ptrdiff_t)launch->shared)
        machine_fail("an address that is not of shared memory");
    return (uint32_t)at + SHARED_BASE;
}

char *machine_at(uint32_t address)
{
    if (address < SHARED_BASE || address - SHARED_BASE >= launch->shared)
        machine_fail("address %u is outside of its shared memory", address);
    return shared_memory + (address - SHARED_BASE);
}

void machine_fail(const char *format, ...)
{
    va_list args;

    (void)fprintf(stderr, "cuda on a cpu: %s: block %u,%u,%u", launch->name, blockIdx.x,
                  blockIdx.y, blockIdx.z);
    if (current)
        (void)fprintf(stderr, " thread %d", number_of(current));
    (void)fprintf(stderr, ": ");
    va_start(args, format);
    (void)vfprintf(stderr, format, args);
    va_end(args);
    (void)fprintf(stderr, "\n");
    abort();
}

void machine_wait(const std::function<bool()> &ready, const char *what)
{
    struct thread *self = current;

    if (ready())
        return;
    self->ready = ready;
    self->what = what;
    self->state = WAITS;
    machine_switch(&self->sp, scheduler);
}

void machine_together(unsigned mask, void *mine, machine_act *act)
{
    const int number = number_of(current), lane = number % WARP_LANES;
    struct warp *w = &warps[number / WARP_LANES];
    const unsigned turn = w->turn;

    if (w->arrived && (w->mask != mask || w->act != act))
        machine_fail("lanes of a warp do different things together");
    if (!(mask >> lane & 1))
        machine_fail("a lane is not in the mask that it names");
    w->mask = mask;
    w->act = act;
    w->mine[lane] = mine;
    w->arrived |= 1U << lane;
    if ((w->mask & w->alive & ~w->arrived) == 0)
        finish_warp(w);
    else
        machine_wait([w, turn] { return w->turn != turn; }, "its warp");
}

void machine_meet(int id, int count, bool waits)
{
    if (id < 0 || id >= NAMED || count % WARP_LANES != 0)
        machine_fail("barrier %d of %d threads", id, count);
    struct named *b = &barriers[id];
    const unsigned turn = b->turn;

    if (b->arrived && b->threads != count)
        machine_fail("barrier %d is for %d threads and for %d", id, b->threads, count);
    b->threads = count;
    if (++b->arrived == (count ? count : n_alive))
        finish_barrier(b);
    else if (waits)
        machine_wait([b, turn] { return b->turn != turn; }, id ? "a barrier" : "its block");
}

void machine_engine(const std::function<void()> &work)
{
    if (hastes)
        work();
    else
        engines.push_back(work);
}

void machine_put(enum machine_kind kind, const std::function<void()> &work)
{
    struct queue *q = &current->queues[kind];

    if (kind == KIND_PRODUCTS) {
        put_product(work);
        return;
    }
    q->work.push_back(work);
    q->put++;
    if (hastes)
        do_queue(q, q->put);
}

void machine_end(enum machine_kind kind)
{
    struct queue *q = &current->queues[kind];

    if (q->ends.size() == MOST_GROUPS)
        q->ends.erase(q->ends.begin(), q->ends.begin() + MOST_GROUPS / 2);
    q->ends.push_back(q->put);
}

void machine_await(enum machine_kind kind, int left)
{
    struct queue *q = &current->queues[kind];

    if (q->ends.size() <= (size_t)left)
        return;
    const size_t until = q->ends[q->ends.size() - 1 - (size_t)left];
    if (kind == KIND_PRODUCTS)
        await_products(until);
    else
        do_queue(q, until);
}

/* Barriers of shared memory: arrivals expected, arrivals and bytes that are to come in this phase, its parity. */
namespace
{
struct counted {
    uint16_t expected, to_come;
    int32_t bytes : 31;
    uint32_t parity : 1;
};
static_assert(sizeof(struct counted) == sizeof(uint64_t), "as large as CUDA's");

void step(struct counted *b)
{
    if (b->to_come == 0 && b->bytes == 0) {
        b->parity ^= 1;
        b->to_come = b->expected;
    }
}
} // namespace

void machine_barrier_make(uint64_t *barrier, int arrivals)
{
    struct counted *b = (struct counted *)barrier;

    *b = counted();
    b->expected = b->to_come = (uint16_t)arrivals;
}

void machine_barrier_arrive(uint64_t *barrier, int arrivals, int bytes_to_come)
{
    struct counted *b = (struct counted *)barrier;

    if (arrivals > b->to_come)
        machine_fail("more arrive at a barrier than it is for");
    b->to_come = (uint16_t)(b->to_come - arrivals);
    b->bytes = b->bytes + bytes_to_come;
    step(b);
}

void machine_barrier_wait(uint64_t *barrier, uint32_t parity)
{
    const struct counted *b = (const struct counted *)barrier;

    if (b->expected == (POISON << 8 | POISON))
        machine_fail("a barrier that nobody made");
    machine_wait([b, parity] { return b->parity != parity; }, "a barrier of shared memory");
}
