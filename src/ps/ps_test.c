/* SPDX-License-Identifier: MIT */
/* ps_test.c - jobs with servers, threads as ranks: what workers see, by policy. */
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "ps/ps_testing.h"
#include "ps/slices.h"
#include "sched/program.h"

static const char *const optimizers[] = { "sgd", "adam" };

static void make_random(struct toy *toy, struct rng *rng, enum ps_policy policy)
{
    toy_make(toy, rng, 1 + (int)rng_below(rng, TOY_BUCKETS), optimizers[rng_below(rng, 2)]);
    const int workers = 1 + (int)rng_below(rng, 5);
    toy_share(toy, workers, workers + (int64_t)rng_below(rng, TOY_SHARDS - 5));
    toy->lanes = 1 + (int)rng_below(rng, 3);
    toy->uses_room = rng_below(rng, 2);
    toy->config.policy = policy;
    toy->config.bound = 2;
    toy->config.servers = 1 + (int)rng_below(rng, 4);
    toy->config.replicas = toy->config.servers > 1 ? 1 + (int)rng_below(rng, 2) : 1;
    toy->step = rng_below(rng, 2) * 5;
    while (toy->config.servers > 1 && ps_check(&toy->config) != STATUS_OK) {
        toy->config.servers--;
        toy->config.replicas = 1;
    }
}

static int random_nodes(const struct toy *toy, struct rng *rng)
{
    const int ranks = toy->config.workers + toy->config.servers;

    return rng_below(rng, 2) ? 1 : 1 + (int)rng_below(rng, (uint64_t)ranks);
}

static void test_steps_have_the_bits_of_one_rank(struct rng *rng)
{
    struct toy toy;

    make_random(&toy, rng, PS_STEP);
    CHECK_OK(toy_expect(&toy));
    CHECK_OK(toy_run(&toy, random_nodes(&toy, rng)));
    toy_release(&toy);
}

/* However servers share the gradient, they find its norm; sometimes it is below the limit. */
static void test_clipped_steps_have_the_bits_of_one_rank(struct rng *rng)
{
    struct toy toy;

    make_random(&toy, rng, PS_STEP);
    toy_clip(&toy, rng_below(rng, 4) ? 0.5F : 1e6F);
    CHECK_OK(toy_expect(&toy));
    CHECK_OK(toy_run(&toy, random_nodes(&toy, rng)));
    toy_release(&toy);
}

static void test_async_with_one_worker_is_single(struct rng *rng)
{
    struct toy toy;

    make_random(&toy, rng, rng_below(rng, 2) ? PS_ASYNC : PS_BOUNDED);
    toy_share(&toy, 1, 1 + (int64_t)rng_below(rng, 8));
    CHECK_OK(toy_expect(&toy));
    CHECK_OK(toy_run(&toy, random_nodes(&toy, rng)));
    toy_release(&toy);
}

/* Pushes that are whole numbers ---------------------------------------------------------------------- */

static void check_stats(const struct toy *toy, const struct ps_stats *stats)
{
    int64_t pushes = 0, elements = 0;

    for (int s = 0; s < toy->config.servers; s++) {
        CHECK_INT(0, stats->server[s].refused);
        CHECK(stats->server[s].updates > 0);
        elements += stats->server[s].elements;
    }
    for (int i = 0; i < PS_STALE; i++)
        pushes += stats->stale[i];
    CHECK(pushes >= (int64_t)toy->clocks * toy->config.workers * toy->config.layout.buckets);
    CHECK(elements > 0 && elements <= toy_vector(toy));
    for (int w = 0; w < toy->config.workers; w++)
        CHECK_INT(toy->clocks, stats->clock[w]);
    CHECK(stats->n_spread > 0);
}

static void run_whole(struct toy *toy, struct rng *rng)
{
    static struct ps_stats stats;
    float *final;

    toy->config.servers = 1 + (int)rng_below(rng, 3);
    toy->config.replicas = toy->config.servers > 1 ? 1 + (int)rng_below(rng, 2) : 1;
    while (toy->config.servers > 1 && ps_check(&toy->config) != STATUS_OK) {
        toy->config.servers--;
        toy->config.replicas = 1;
    }
    CHECK_OK(mem_alloc((size_t)toy_vector(toy), sizeof(float), &final));
    toy->stats = &stats;
    toy->final = final;
    CHECK_OK(toy_run(toy, random_nodes(toy, rng)));
    toy_check_all_applied(toy, final);
    check_stats(toy, &stats);
    if (toy->config.policy == PS_BOUNDED)
        CHECK(stats.largest_spread <= (uint64_t)toy->config.bound);
    mem_free(final);
}

static void test_async_applies_every_push_once(struct rng *rng)
{
    struct toy toy;

    toy_make_whole(&toy, rng, 1 << rng_below(rng, 3));
    toy.config.policy = PS_ASYNC;
    toy.clocks = 20;
    run_whole(&toy, rng);
}

static void test_bounded_applies_every_push_once(struct rng *rng)
{
    struct toy toy;

    toy_make_whole(&toy, rng, 2 << rng_below(rng, 2));
    toy.config.policy = PS_BOUNDED;
    toy.config.bound = 1 + (int)rng_below(rng, 4);
    toy.clocks = 20;
    toy.most_delay_us = 300;
    run_whole(&toy, rng);
}

static void test_clocks_stay_within_the_bound(void)
{
    static struct ps_stats stats;
    struct toy toy;
    struct rng rng;

    rng_init(&rng, 7, 7);
    toy_make_whole(&toy, &rng, 4);
    toy.config.layout.buckets = 1;
    toy.tables[0] = (struct ps_table){ 0 };
    toy.begin[1] = 16;
    toy.config.policy = PS_BOUNDED;
    toy.config.bound = 3;
    toy.clocks = 1000;
    toy.most_delay_us = 100;
    toy.stats = &stats;
    CHECK_OK(toy_run(&toy, 1));
    CHECK(stats.largest_spread <= 3 && stats.largest_spread > 0);
    CHECK_INT(4 * 1000, stats.server[0].updates);
    for (int i = 0; i < stats.n_spread; i++)
        CHECK(stats.spread[i].high - stats.spread[i].low <= 3);
}

/* Backup workers ------------------------------------------------------------------------------------- */

static void leave_behind(bool clips)
{
    static struct ps_stats stats;
    _Atomic uint64_t ticked[TOY_WORKERS] = { 0 };
    struct toy toy;
    struct rng rng;

    rng_init(&rng, 8, 8);
    toy_make_whole(&toy, &rng, 4);
    toy.config.backup = 1;
    toy.config.servers = clips ? 2 : 1;
    if (clips)
        toy_clip(&toy, 1);
    toy.clocks = 60;
    toy.slow = 2;
    toy.slow_us = 4000;
    toy.stats = &stats;
    toy.ticked = ticked;
    CHECK_OK(toy_run(&toy, 1));
    CHECK(stats.server[0].dropped > 0);
    CHECK(ticked[2] < 60); /* it jumped; on a busy machine others may have, too */
}

static void test_backup_workers_are_left_behind(void)
{
    leave_behind(false);
    leave_behind(true);
}

/* Elastic averaging ------------------------------------------------------------------------------------ */

/* Two parameters, one worker, alpha 0.25, x = 8 and -4 from a center of 0, after each exchange x
 * moves by -1:
 *   d = 2, -1    center 2, -1         x = 8 - 1 - 2 = 5       -4 - 1 + 1 = -4
 *   d = .75, -.75      2.75, -1.75    x = 5 - 1 - .75 = 3.25  -4 - 1 + .75 = -4.25
 *   d = .125, -.625    2.875, -2.375 */
static enum status exchange(struct transport *transport, void *arg)
{
    static const float expected[3][2] = { { 2, -1 }, { 0.75F, -0.75F }, { 0.125F, -0.625F } };
    struct toy *toy = arg;
    struct ps_config config = toy->config;
    struct ps_client *client;
    struct ps_heard heard;
    float x[16] = { 8, -4 }, d[16] = { 0 }, center[16] = { 0 };
    const struct tree_part part = { { 0, 1 }, x };
    const struct ps_memory memory = { .params = d, .parts = &part, .n_parts = 1, .shards = 1 };

    config.transport = transport;
    if (transport_rank(transport) > 0)
        return ps_serve(&config, NULL);
    TRY(ps_join(&config, &client));
    TRY(ps_attach(client, &memory));
    TRY(ps_put(client, -1, center));
    TRY(ps_begin(client, 0));
    for (int i = 0; i < 3; i++) {
        TRY(ps_await(client, 0));
        TRY(ps_push(client, 0));
        TRY(ps_tick(client, &(struct ps_tick){ 0 }, &heard));
        TRY(ps_await(client, 0));
        for (int k = 0; k < 2; k++) {
            if (d[k] != expected[i][k])
                return FAIL(STATUS_MISMATCH, "d %d of exchange %d is %.9g", k, i, (double)d[k]);
            x[k] = x[k] - 1 - d[k];
        }
    }
    TRY(ps_get(client, -1, center));
    ps_leave(client);
    if (center[0] != 2.875F || center[1] != -2.375F)
        return FAIL(STATUS_MISMATCH, "the center is %.9g, %.9g", (double)center[0],
                    (double)center[1]);
    return STATUS_OK;
}

static void test_exchanges_are_those_worked_out_by_hand(void)
{
    for (int nodes = 1; nodes <= 2; nodes++) {
        struct toy toy;
        struct rng rng;

        rng_init(&rng, 9, 9);
        toy_make_whole(&toy, &rng, 1);
        toy.config.layout.buckets = 1;
        toy.tables[0] = (struct ps_table){ 0 };
        toy.begin[1] = 16;
        toy.config.policy = PS_CENTER;
        toy.config.alpha = 0.25;
        toy.body = exchange;
        CHECK_OK(toy_run(&toy, nodes));
    }
}

/* Several workers that exchange what they like: what the center has moved is the sum of what they
 * were told. */
struct exchanges {
    double *told[TOY_WORKERS];
    float *center;
};
static struct exchanges exchanges;

static enum status exchange_all(struct ps_client *client, const struct toy *toy, int worker,
                                float *x, float *d)
{
    const int64_t vector = toy_vector(toy);
    const struct tree_part part = { { 0, 1 }, x };
    const struct ps_memory memory = { .params = d, .parts = &part, .n_parts = 1, .shards = 1 };
    struct ps_heard heard;

    TRY(ps_attach(client, &memory));
    for (int64_t at = 0; at < vector; at++)
        x[at] = toy_initial(toy, at);
    if (worker == 0)
        TRY(ps_put(client, -1, x));
    TRY(ps_begin(client, 0));
    for (uint64_t c = 0; c < toy->clocks; c++) {
        for (int b = 0; b < toy->config.layout.buckets; b++)
            TRY(ps_await(client, b));
        for (int64_t at = 0; at < vector; at++) {
            if (c > 0)
                exchanges.told[worker][at] += (double)d[at];
            x[at] += toy_gradient(toy, worker, c, at) - (c > 0 ? d[at] : 0);
        }
        for (int b = 0; b < toy->config.layout.buckets; b++)
            TRY(ps_push(client, b));
        TRY(ps_tick(client, &(struct ps_tick){ 0 }, &heard));
    }
    TRY(ps_meet(client));
    for (int64_t at = 0; at < vector; at++)
        exchanges.told[worker][at] += (double)d[at];
    return worker == 0 ? ps_get(client, -1, exchanges.center) : STATUS_OK;
}

static enum status center_body(struct transport *transport, void *arg)
{
    const struct toy *toy = arg;
    struct ps_config config = toy->config;
    const int rank = transport_rank(transport);
    struct ps_client *client;
    float *x, *d;

    config.transport = transport;
    if (rank >= config.workers)
        return ps_serve(&config, NULL);
    TRY(mem_alloc((size_t)toy_vector(toy), sizeof(float), &x));
    TRY(mem_alloc((size_t)toy_vector(toy), sizeof(float), &d));
    TRY(ps_join(&config, &client));
    const enum status status = exchange_all(client, toy, rank, x, d);
    ps_leave(client);
    mem_free(x);
    mem_free(d);
    return status;
}

static void test_the_center_moves_by_what_workers_are_told(struct rng *rng)
{
    struct toy toy;

    make_random(&toy, rng, PS_CENTER);
    toy.config.alpha = rng_below(rng, 4) ? 0.3 : 0;
    toy.body = center_body;
    const size_t vector = (size_t)toy_vector(&toy);
    CHECK_OK(mem_alloc(vector, sizeof(float), &exchanges.center));
    for (int w = 0; w < toy.config.workers; w++)
        CHECK_OK(mem_alloc(vector, sizeof(double), &exchanges.told[w]));
    CHECK_OK(toy_run(&toy, random_nodes(&toy, rng)));
    for (size_t at = 0; at < vector; at++) {
        double expected = (double)toy_initial(&toy, (int64_t)at);
        for (int w = 0; w < toy.config.workers; w++)
            expected += exchanges.told[w][at];
        CHECK_CLOSE(expected, exchanges.center[at], toy.config.alpha > 0 ? 1e-5 : 0);
    }
    for (int w = 0; w < toy.config.workers; w++)
        mem_free(exchanges.told[w]);
    mem_free(exchanges.center);
}

/* Memory ----------------------------------------------------------------------------------------------- */

static void test_clocks_allocate_nothing(void)
{
    for (int policy = PS_STEP; policy <= PS_BOUNDED; policy++) {
        uint64_t allocations[2] = { 0 };
        struct toy toy;
        struct rng rng;

        rng_init(&rng, 4, 4);
        toy_make(&toy, &rng, TOY_BUCKETS, "adam");
        toy_share(&toy, 3, 7);
        toy.config.servers = 2;
        toy.config.replicas = 2;
        toy.config.policy = (enum ps_policy)policy;
        toy.config.bound = 2;
        toy.clocks = 12;
        toy.allocations = allocations;
        CHECK_OK(toy_run(&toy, 1));
        CHECK_INT(allocations[0], allocations[1]);
    }
}

/* Wrong input ------------------------------------------------------------------------------------------ */

static void check_refused(const struct toy *toy, const char *text)
{
    CHECK_STATUS(STATUS_USAGE, ps_check(&toy->config));
    CHECK_MESSAGE(text);
}

static void test_impossible_jobs_are_refused(void)
{
    struct toy toy, changed;
    struct rng rng;

    rng_init(&rng, 3, 3);
    toy_make(&toy, &rng, 2, "sgd");
    toy_share(&toy, 2, 4);
    CHECK_OK(ps_check(&toy.config));
    changed = toy;
    changed.config.servers = 40;
    check_refused(&changed, "slices");
    changed = toy;
    changed.config.replicas = 2;
    check_refused(&changed, "2 servers");
    changed = toy;
    changed.config.policy = PS_BOUNDED;
    check_refused(&changed, "bounded:0");
    changed.config.bound = -1;
    check_refused(&changed, "bounded:-1");
    changed = toy;
    changed.config.backup = 2;
    check_refused(&changed, "at most 1");
    changed.config.policy = PS_ASYNC;
    check_refused(&changed, "--sync step");
    changed = toy;
    changed.config.staleness_lr = true;
    check_refused(&changed, "--staleness-lr");
    changed = toy;
    changed.config.policy = PS_CENTER;
    changed.config.alpha = 2;
    check_refused(&changed, "alpha");
    changed = toy;
    changed.config.optim.attrs.max_norm = 1;
    CHECK_OK(ps_check(&changed.config));
    changed.config.policy = PS_ASYNC;
    check_refused(&changed, "--clip 1: a push is applied slice by slice");
    changed = toy;
    changed.config.optim.optimizer = optim_find("lars");
    check_refused(&changed, "norms");
    changed = toy;
    changed.rows[1] = 0;
    changed.config.rows = changed.rows;
    check_refused(&changed, "no shard");
}

/* Programs ------------------------------------------------------------------------------------------------ */

static bool has_turns(const struct program *program)
{
    for (int i = 0; i < program->n_waits; i++) {
        const struct wait *wait = &program->waits[i];
        if (wait->is_apart && program->tasks[wait->task].kind == TASK_PULL)
            return true;
    }
    return false;
}

/* An update that waits for the end of pulls would wait for ever for workers that do not say it. */
static void test_workers_say_when_they_have_copied_what_a_task_waits_for(struct rng *rng)
{
    struct toy toy;
    struct program *program;

    make_random(&toy, rng, (enum ps_policy)rng_below(rng, 4));
    toy.config.alpha = 0.5;
    if (toy.config.policy == PS_STEP && toy.config.workers > 1)
        toy.config.backup = (int)rng_below(rng, 2);
    for (int s = 0; s < toy.config.servers; s++) {
        CHECK_OK(ps_lower(&toy.config, s, &program));
        CHECK_INT(slices_says_took(&toy.config), has_turns(program));
        CHECK_INT(s, program->server);
        program_destroy(program);
    }
}

const struct test tests[] = {
    { "workers say when they have copied what a task waits for",
      .property = test_workers_say_when_they_have_copied_what_a_task_waits_for },
    { "impossible jobs are refused", .run = test_impossible_jobs_are_refused },
    { "exchanges are those worked out by hand",
      .run = test_exchanges_are_those_worked_out_by_hand },
    { "clocks allocate nothing", .run = test_clocks_allocate_nothing },
    { "the center moves by what workers are told",
      .property = test_the_center_moves_by_what_workers_are_told },
    { "clocks stay within the bound", .run = test_clocks_stay_within_the_bound },
    { "backup workers are left behind", .run = test_backup_workers_are_left_behind },
    { "async applies every push once", .property = test_async_applies_every_push_once },
    { "bounded applies every push once", .property = test_bounded_applies_every_push_once },
    { "steps have the bits of one rank", .property = test_steps_have_the_bits_of_one_rank },
    { "clipped steps have the bits of one rank",
      .property = test_clipped_steps_have_the_bits_of_one_rank },
    { "async with one worker is single", .property = test_async_with_one_worker_is_single },
    { 0 },
};
