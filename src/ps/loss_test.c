/* SPDX-License-Identifier: MIT */
/* loss_test.c - servers and workers that are killed, as real processes. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/test.h"
#include "ps/ps_testing.h"
#include "transport/launch.h"

/* What the ranks and the test share. */
struct shared {
    _Atomic int gate;
    struct ps_stats stats;
    _Atomic uint64_t ticked[TOY_WORKERS];
    float final[1 << 16];
};

static struct shared *make_shared(void)
{
    void *memory = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

/* A job of which one server dies at its nth meeting. */
struct victim {
    struct toy *toy;
    int server, meetings; /* server: its rank */
};

static void die_at_meeting(void *arg, const char *point)
{
    struct victim *victim = arg;

    (void)point;
    if (--victim->meetings == 0)
        (void)kill(getpid(), SIGKILL);
}

static enum status rank_body(struct transport *transport, void *arg)
{
    struct victim *victim = arg;

    if (transport_rank(transport) == victim->server) {
        victim->toy->config.at_meeting = die_at_meeting;
        victim->toy->config.at_meeting_arg = victim;
    }
    return toy_rank(transport, victim->toy);
}

static void make(struct toy *toy, struct rng *rng, int workers)
{
    toy_make_whole(toy, rng, workers);
    toy->config.servers = 2 + (int)rng_below(rng, 2);
    toy->config.replicas = 2;
    toy->clocks = 8;
    while (ps_check(&toy->config) != STATUS_OK) {
        toy_make_whole(toy, rng, workers);
        toy->config.servers = 2;
        toy->config.replicas = 2;
        toy->clocks = 8;
    }
}

static const enum ps_policy policies[] = { PS_STEP, PS_ASYNC, PS_BOUNDED };

static void test_a_killed_server_loses_no_push(struct rng *rng)
{
    struct shared *shared = make_shared();
    struct toy toy;
    struct victim victim = { .toy = &toy };

    make(&toy, rng, 1 << rng_below(rng, 3));
    toy.config.policy = policies[rng_below(rng, 3)];
    toy.config.bound = 2;
    const bool clips = toy.config.policy == PS_STEP && rng_below(rng, 2);
    if (clips)
        toy_clip(&toy, 2);
    if (toy.config.policy == PS_STEP) {
        toy.config.optim.schedule.lr = 1;
        CHECK_OK(toy_expect(&toy));
    }
    toy.stats = &shared->stats;
    toy.final = shared->final;
    toy.ticked = shared->ticked;
    toy.uses_room = rng_below(rng, 2);
    victim.server = toy.config.workers + (int)rng_below(rng, (uint64_t)toy.config.servers);
    victim.meetings = 1 + (int)rng_below(rng, 200);
    const struct launch_config launch = { .size = toy.config.workers + toy.config.servers,
                                          .flat = rng_below(rng, 2),
                                          .shared_bytes = (size_t)256 << 20 };
    CHECK_OK(launch_ranks(&launch, rank_body, &victim));
    for (int w = 0; w < toy.config.workers; w++)
        CHECK_INT(toy.clocks, shared->ticked[w]);
    if (!clips) /* else workers have compared what they got with toy.expected */
        toy_check_all_applied(&toy, shared->final);
    toy_release(&toy);
    munmap(shared, sizeof(*shared));
}

static void test_a_killed_worker_leaves_the_others(struct rng *rng)
{
    struct shared *shared = make_shared();
    struct toy toy;
    struct victim victim = { .toy = &toy, .server = -1 };

    make(&toy, rng, 4);
    toy.config.replicas = 1;
    toy.config.policy = rng_below(rng, 2) ? PS_ASYNC : PS_BOUNDED;
    toy.config.bound = 1;
    toy.stats = &shared->stats;
    toy.ticked = shared->ticked;
    toy.dies = 1 + (int)rng_below(rng, 3);
    toy.dies_at = rng_below(rng, toy.clocks);
    const struct launch_config launch = { .size = toy.config.workers + toy.config.servers,
                                          .flat = rng_below(rng, 2),
                                          .shared_bytes = (size_t)256 << 20 };
    CHECK_OK(launch_ranks(&launch, rank_body, &victim));
    for (int w = 0; w < toy.config.workers; w++) {
        CHECK_INT(w == toy.dies ? toy.dies_at : toy.clocks, shared->ticked[w]);
        CHECK(shared->stats.lost[w] == (w == toy.dies));
    }
    munmap(shared, sizeof(*shared));
}

/* A server that does nothing from the moment that a worker is about to die until it is dead. */
struct holder {
    struct toy *toy;
    struct transport *transport;
};

static void hold_server(void *arg, const char *point)
{
    const struct holder *holder = arg;
    int ready = GATE_READY;

    (void)point;
    if (!atomic_compare_exchange_strong(holder->toy->gate, &ready, GATE_HELD))
        return;
    while (!transport_lost(holder->transport, holder->toy->dies, NULL))
        (void)usleep(100);
}

static enum status held_rank(struct transport *transport, void *arg)
{
    struct holder *holder = arg;
    struct toy *toy = holder->toy;

    holder->transport = transport;
    if (transport_rank(transport) >= toy->config.workers) {
        toy->config.at_meeting = hold_server;
        toy->config.at_meeting_arg = holder;
    }
    return toy_rank(transport, toy);
}

/* The server learns of the pushes and of the loss in one look. */
static void test_a_worker_killed_after_its_pushes_holds_nobody_up(struct rng *rng)
{
    struct shared *shared = make_shared();
    struct toy toy;
    struct holder holder = { .toy = &toy };

    toy_make_whole(&toy, rng, 2);
    toy.config.policy = rng_below(rng, 2) ? PS_ASYNC : PS_BOUNDED;
    toy.config.bound = 2;
    toy.config.stall_timeout = 2;
    toy.clocks = 8;
    toy.ticked = shared->ticked;
    toy.dies = 1;
    toy.dies_at = 1 + rng_below(rng, 4);
    toy.gate = &shared->gate;
    toy.uses_room = rng_below(rng, 2);
    const struct launch_config launch = { .size = 3,
                                          .flat = rng_below(rng, 2),
                                          .shared_bytes = (size_t)256 << 20 };
    CHECK_OK(launch_ranks(&launch, held_rank, &holder));
    CHECK_INT(toy.clocks, shared->ticked[0]);
    CHECK_INT(toy.dies_at, shared->ticked[1]);
    munmap(shared, sizeof(*shared));
}

static void test_a_spare_takes_the_place_of_a_lost_worker(struct rng *rng)
{
    struct shared *shared = make_shared();
    struct toy toy;
    struct victim victim = { .toy = &toy, .server = -1 };

    make(&toy, rng, 4);
    toy.config.policy = rng_below(rng, 2) ? PS_ASYNC : PS_BOUNDED;
    toy.config.bound = 2;
    toy.config.spares = 1 + (int)rng_below(rng, 2);
    toy.config.workers += toy.config.spares;
    toy.stats = &shared->stats;
    toy.ticked = shared->ticked;
    toy.clocks = 40;
    toy.most_delay_us = 300;
    toy.dies = (int)rng_below(rng, 4); /* 0: nobody */
    toy.dies_at = rng_below(rng, 20);
    const int spare = 4 + (toy.dies > 0 ? (toy.dies - 1) % toy.config.spares : 0);
    toy.awaited = toy.dies > 0 ? spare : 0; /* a loss may be noticed when the others are done */
    const struct launch_config launch = { .size = toy.config.workers + toy.config.servers,
                                          .flat = rng_below(rng, 2),
                                          .shared_bytes = (size_t)256 << 20 };
    CHECK_OK(launch_ranks(&launch, rank_body, &victim));
    for (int w = 0; w < toy.config.workers; w++) {
        const bool stands = w >= 4 && !(toy.dies > 0 && w == spare);
        const bool dies = toy.dies > 0 && w == toy.dies;
        CHECK(shared->stats.standing[w] == stands);
        CHECK(shared->stats.lost[w] == dies);
        CHECK_INT(dies ? toy.dies_at : stands ? 0 : toy.clocks, shared->stats.clock[w]);
    }
    if (toy.config.policy == PS_BOUNDED)
        CHECK(shared->stats.largest_spread <= 2);
    munmap(shared, sizeof(*shared));
}

static void test_a_server_without_replica_is_named(void)
{
    struct toy toy;
    struct victim victim = { .toy = &toy, .meetings = 9 };
    struct rng rng;

    rng_init(&rng, 5, 5);
    make(&toy, &rng, 2);
    toy.config.replicas = 1;
    victim.server = 3;
    const struct launch_config launch = { .size = toy.config.workers + toy.config.servers,
                                          .shared_bytes = (size_t)256 << 20 };
    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&launch, rank_body, &victim));
    CHECK_MESSAGE("rank 3");
    CHECK_MESSAGE("parameter server 1");
}

static void test_a_worker_that_stalls_is_named(void)
{
    struct toy toy;
    struct victim victim = { .toy = &toy, .server = -1 };
    struct rng rng;

    rng_init(&rng, 6, 6);
    make(&toy, &rng, 2);
    toy.config.replicas = 1;
    toy.config.stall_timeout = 0.3;
    toy.slow = 1;
    toy.slow_us = 60 * 1000 * 1000;
    const struct launch_config launch = { .size = toy.config.workers + toy.config.servers,
                                          .grace_ms = 100,
                                          .shared_bytes = (size_t)256 << 20 };
    CHECK_STATUS(STATUS_PEER_LOST, launch_ranks(&launch, rank_body, &victim));
    CHECK_MESSAGE("rank 1 has pushed nothing for 0.3 s");
}

const struct test tests[] = {
    { "a worker that stalls is named", .run = test_a_worker_that_stalls_is_named },
    { "a server without replica is named", .run = test_a_server_without_replica_is_named },
    { "a killed server loses no push", .property = test_a_killed_server_loses_no_push },
    { "a killed worker leaves the others", .property = test_a_killed_worker_leaves_the_others },
    { "a worker killed after its pushes holds nobody up",
      .property = test_a_worker_killed_after_its_pushes_holds_nobody_up },
    { "a spare takes the place of a lost worker",
      .property = test_a_spare_takes_the_place_of_a_lost_worker },
    { 0 },
};
