/* SPDX-License-Identifier: MIT */
/* strategy_test.c - texts of split, sync and meet are read, or refused with the reason. */
#include "pass/strategy.h"

#include <math.h>
#include <string.h>

#include "base/test.h"

static struct axes axes_of(const char *strategy, int ranks, const char *sync, const char *meet)
{
    struct axes axes;

    CHECK_OK(strategy_check(strategy_find(strategy), ranks, NULL, sync, meet, &axes));
    return axes;
}

/* Copies of a model that ranks share meet at servers, at every step. */
static void test_copies_in_a_grid_may_meet_at_servers(void)
{
    const struct strategy *hybrid = strategy_find("hybrid");
    struct axes axes;

    CHECK_OK(strategy_check(hybrid, 4, "dp=2,pp=2", NULL, "ps:2", &axes));
    CHECK(axes.meet == MEET_PS && axes.servers == 2 && axes.sync == SYNC_STEP);
    CHECK(strategy_passes(hybrid, &axes, false) == hybrid->served);
    CHECK_OK(strategy_check(hybrid, 4, "dp=2,pp=2", NULL, NULL, &axes));
    CHECK(strategy_passes(hybrid, &axes, false) == hybrid->passes);
    static const char *const syncs[] = { "async", "bounded:2", "elastic:4", "local:2" };
    for (int i = 0; i < 4; i++) {
        CHECK_STATUS(STATUS_USAGE,
                     strategy_check(hybrid, 4, "dp=2,pp=2", syncs[i], "ps:2", &axes));
        CHECK_MESSAGE("use --sync step");
    }
    CHECK_STATUS(STATUS_USAGE,
                 strategy_check(hybrid, 4, "dp=2,pp=2,zero=3", NULL, "ps:2", &axes));
    CHECK_MESSAGE("leave zero out");
}

static void test_presets_are_what_their_texts_say(void)
{
    for (int i = 0; strategy_table[i]; i++) {
        const struct strategy *s = strategy_table[i];
        const struct axes axes = axes_of(s->name, 1, NULL, NULL);
        const struct axes given = axes_of(s->name, 1, s->sync, s->meet);

        CHECK(memcmp(&axes.sync, &given.sync, sizeof axes.sync) == 0);
        CHECK(s->syncs >> axes.sync & 1 && s->meets >> axes.meet & 1);
        CHECK(axes.meet == given.meet && axes.servers == given.servers && axes.dp == 1);
        CHECK(axes.interval == given.interval && axes.bound == given.bound);
        CHECK((axes.servers > 0) == (axes.meet == MEET_PS));
    }
}

static bool are_same(const struct pass *const *a, const struct pass *const *b)
{
    for (; *a && *a == *b; a++)
        b++;
    return *a == *b;
}

/* Strategies that differ by name differ by their passes: nothing else tells them apart. */
static void test_every_preset_has_passes_of_its_own(void)
{
    for (int i = 0; strategy_table[i]; i++) {
        for (int k = 0; k < i; k++)
            CHECK(!are_same(strategy_table[i]->passes, strategy_table[k]->passes));
    }
}

static const struct pass *const *passes_of(const char *strategy, const char *sync, bool apart)
{
    const struct axes axes = axes_of(strategy, 4, sync, NULL);

    return strategy_passes(strategy_find(strategy), &axes, apart);
}

static const struct pass *last_of(const struct pass *const *passes)
{
    while (passes[1])
        passes++;
    return *passes;
}

static void test_the_degree_of_synchrony_picks_the_last_pass(void)
{
    CHECK(last_of(passes_of("ps", NULL, false)) == &pass_step);
    CHECK(last_of(passes_of("ps", "async", false)) == &pass_async);
    CHECK(last_of(passes_of("ps", "bounded:2", false)) == &pass_bounded);
    CHECK(last_of(passes_of("asgd", NULL, false)) == &pass_async);
    CHECK(last_of(passes_of("ssp", NULL, true)) == &pass_bounded);
    CHECK(passes_of("ps", "async", false) == strategy_find("asgd")->passes);
    CHECK(passes_of("ssp", "bounded:0", false) == strategy_find("ps")->passes);
    CHECK(last_of(passes_of("easgd", NULL, false)) == &pass_elastic);
}

/* --flat: each rank counts as a node, whatever the strategy. */
static void test_ranks_apart_have_the_level_between_nodes(void)
{
    static const char *const crossing[] = { "mirrored", "multiworker", "zero", "parallax",
                                            "hybrid" };

    for (int i = 0; i < 5; i++)
        CHECK(last_of(passes_of(crossing[i], NULL, true)) == &pass_hierarchy);
    CHECK(last_of(passes_of("mirrored", NULL, false)) == &pass_mirror);
    CHECK(last_of(passes_of("central", NULL, true)) == &pass_central);
    CHECK(last_of(passes_of("central", NULL, false)) == &pass_central);
}

static void test_what_is_given_is_read(void)
{
    struct axes axes = axes_of("ssp", 4, "bounded:0", "ps:3");

    CHECK(axes.sync == SYNC_BOUNDED && axes.bound == 0 && axes.servers == 3 && axes.dp == 4);
    axes = axes_of("easgd", 4, "elastic:100,0.25", NULL);
    CHECK(axes.sync == SYNC_ELASTIC && axes.interval == 100 && axes.alpha == 0.25);
    axes = axes_of("easgd", 3, NULL, "ps");
    CHECK(fabs(axes.alpha - 0.3) < 1e-12 && axes.servers == 1 && !axes.is_auto);
    axes = axes_of("easgd", 3, "elastic:auto,0", NULL);
    CHECK(axes.is_auto && axes.alpha == 0 && axes.interval > 0);
    axes = axes_of("localsgd", 2, "local:auto", NULL);
    CHECK(axes.sync == SYNC_LOCAL && axes.is_auto && axes.meet == MEET_ALLREDUCE);
    axes = axes_of("localsgd", 2, "local:1", NULL);
    CHECK(axes.interval == 1 && axes_are_private(&axes));
    axes = axes_of("gossip", 4, NULL, NULL);
    CHECK(axes.sync == SYNC_GOSSIP && axes.neighbors == NEIGHBORS_RING &&
          axes_are_private(&axes));
    axes = axes_of("gossip", 4, "gossip:exponential", NULL);
    CHECK(axes.neighbors == NEIGHBORS_EXPONENTIAL && axes.meet == MEET_NONE);
    axes = axes_of("ps", 2, NULL, NULL);
    CHECK(axes.sync == SYNC_STEP && axes_are_private(&axes));
    axes = axes_of("mirrored", 2, NULL, NULL);
    CHECK(!axes_are_private(&axes));
    CHECK_OK(strategy_check(strategy_find("mirrored"), 2, "dp=2", "step", "allreduce", &axes));
    CHECK_INT(0, axes.zero);
    CHECK_OK(strategy_check(strategy_find("mirrored"), 2, "zero=2,dp=2", NULL, NULL, &axes));
    CHECK_INT(2, axes.zero);
    CHECK_INT(3, axes_of("zero", 4, NULL, NULL).zero);
    CHECK_OK(strategy_check(strategy_find("zero"), 4, "zero=1", NULL, NULL, &axes));
    CHECK(axes.zero == 1 && axes.dp == 4);
    CHECK_STATUS(STATUS_USAGE,
                 strategy_check(strategy_find("zero"), 4, "dp=4,zero=4", NULL, NULL, &axes));
    CHECK_MESSAGE("from 0 to 3");
    CHECK_STATUS(STATUS_USAGE,
                 strategy_check(strategy_find("ps"), 4, "dp=4,zero=1", NULL, NULL, &axes));
    CHECK_MESSAGE("use --strategy zero");
}

static struct axes grid_of(const char *strategy, int ranks, const char *split)
{
    struct axes axes;

    CHECK_OK(strategy_check(strategy_find(strategy), ranks, split, NULL, NULL, &axes));
    return axes;
}

static void test_ranks_form_a_grid(void)
{
    struct axes axes = grid_of("hybrid", 4, NULL);
    CHECK(axes.dp == 2 && axes.pp == 2 && axes.tp == 1);
    axes = grid_of("hybrid", 6, "pp=3");
    CHECK(axes.dp == 2 && axes.pp == 3);
    axes = grid_of("hybrid", 4, "pp=2,zero=1");
    CHECK(axes.dp == 2 && axes.zero == 1);
    axes = grid_of("pipeline", 3, NULL);
    CHECK(axes.dp == 1 && axes.pp == 3 && axes_are_a_grid(&axes));
    CHECK(axes.pipeline == PIPE_1F1B && axes.chunks == 1);
    CHECK_OK(strategy_read_pipeline("interleaved:3", &axes));
    CHECK(axes.pipeline == PIPE_INTERLEAVED && axes.chunks == 3);
    CHECK_OK(strategy_read_pipeline(NULL, &axes));
    CHECK_STATUS(STATUS_USAGE, strategy_read_pipeline("interleaved:1", &axes));
    CHECK_STATUS(STATUS_USAGE, strategy_read_pipeline("gpipe:2", &axes));
    CHECK_STATUS(STATUS_USAGE, strategy_read_pipeline("zigzag", &axes));
    CHECK_MESSAGE("must be gpipe, 1f1b or interleaved:V");
    axes = grid_of("mirrored", 2, NULL);
    CHECK_STATUS(STATUS_USAGE, strategy_read_pipeline("gpipe", &axes));
    CHECK_MESSAGE("there is no pipeline");
    CHECK_STATUS(STATUS_USAGE,
                 strategy_check(strategy_find("mirrored"), 4, "dp=2,pp=2", NULL, NULL, &axes));
    CHECK_MESSAGE("use --strategy hybrid");
    CHECK_STATUS(STATUS_USAGE,
                 strategy_check(strategy_find("hybrid"), 6, "dp=2,pp=2", NULL, NULL, &axes));
    CHECK_MESSAGE("use -n 4");
    CHECK_TEXT("hybrid", strategy_pick(4, false, "dp=2,pp=2", NULL, "ps:2")->name);
    CHECK_TEXT("pipeline", strategy_pick(2, false, "pp=2", NULL, NULL)->name);
    CHECK_TEXT("hybrid", strategy_pick(4, false, "dp=2,pp=2", NULL, NULL)->name);
}

static void test_every_rank_has_one_place(struct rng *rng)
{
    const struct axes axes = { .dp = 1 + (int)rng_below(rng, 4),
                               .tp = 1 + (int)rng_below(rng, 4),
                               .pp = 1 + (int)rng_below(rng, 4) };
    const int ranks = axes.dp * axes.tp * axes.pp;
    int members[AXES_RANKS];

    for (int r = 0; r < ranks; r++) {
        const struct axes_place place = axes_place_of(&axes, r);
        CHECK(place.dp < axes.dp && place.tp < axes.tp && place.pp < axes.pp);
        CHECK_INT(r, axes_rank_at(&axes, place));
        CHECK_INT(axes.dp, axes_group(&axes, r, AXIS_DP, members));
        CHECK_INT(r, members[place.dp]);
        CHECK_INT(axes.pp, axes_group(&axes, r, AXIS_PP, members));
        CHECK_INT(r, members[place.pp]);
        CHECK_INT(axes.tp * axes.pp, axes_group(&axes, r, AXIS_TP | AXIS_PP, members));
        CHECK_INT(r, members[place.pp * axes.tp + place.tp]);
    }
}

static void test_a_preset_is_picked_from_the_axes(void)
{
    CHECK_TEXT("single", strategy_pick(1, false, NULL, NULL, NULL)->name);
    CHECK_TEXT("mirrored", strategy_pick(2, false, NULL, "step", "allreduce")->name);
    CHECK_TEXT("multiworker", strategy_pick(2, true, NULL, NULL, NULL)->name);
    CHECK_TEXT("ps", strategy_pick(2, false, NULL, NULL, "ps:2")->name);
    CHECK_TEXT("ps", strategy_pick(2, false, NULL, "step", "ps:2")->name);
    CHECK_TEXT("asgd", strategy_pick(2, false, NULL, "async", NULL)->name);
    CHECK_TEXT("ssp", strategy_pick(2, true, NULL, "bounded:2", "ps:1")->name);
    CHECK_TEXT("easgd", strategy_pick(1, false, NULL, "elastic:4", NULL)->name);
    CHECK_TEXT("localsgd", strategy_pick(1, false, NULL, "local:auto", NULL)->name);
    CHECK_TEXT("gossip", strategy_pick(2, false, NULL, "gossip:exponential", NULL)->name);
    CHECK_TEXT("mirrored", strategy_pick(2, false, NULL, "now and then", NULL)->name);
}

static void test_what_is_impossible_is_refused_with_the_reason(void)
{
    static const struct {
        const char *strategy;
        int ranks;
        const char *split, *sync, *meet, *text;
    } cases[] = {
        { "single", 2, NULL, NULL, NULL, "mirrored" },
        { "mirrored", 0, NULL, NULL, NULL, "at least one" },
        { "mirrored", 2, "dp=4", NULL, NULL, "use -n 4" },
        { "mirrored", 2, "dp=0", NULL, NULL, "from 1 to 256" },
        { "mirrored", 2, "dp=2,dp=2", NULL, NULL, "twice" },
        { "mirrored", 2, "dp", NULL, NULL, "like dp=4" },
        { "mirrored", 2, "dp=2,", NULL, NULL, "like dp=4" },
        { "mirrored", 2, "dp=2x", NULL, NULL, "whole number" },
        { "mirrored", 2, NULL, "async", "ps:1", "works with sync step: use --strategy asgd" },
        { "mirrored", 2, NULL, "async", NULL, "works with sync step: use --strategy asgd" },
        { "mirrored", 2, NULL, NULL, "ps:2", "use --strategy ps" },
        { "mirrored", 2, NULL, "local:4", NULL, "use --strategy localsgd" },
        { "ssp", 2, NULL, "bounded:-1", NULL, "K steps from 0 on" },
        { "ssp", 2, NULL, "bounded", NULL, "bounded:K" },
        { "ssp", 2, NULL, "bounded:2x", NULL, "bounded:K" },
        { "ssp", 2, NULL, "bounded:99999999999999999999", NULL, "bounded:K" },
        { "ssp", 2, NULL, "step", NULL, "works with sync bounded:3" },
        { "asgd", 2, NULL, "async:3", NULL, "must be async" },
        { "asgd", 2, NULL, NULL, "allreduce", "only servers" },
        { "asgd", 2, NULL, NULL, "ps:0", "servers from 1" },
        { "asgd", 2, NULL, NULL, "ps:two", "servers from 1" },
        { "asgd", 2, NULL, NULL, "somewhere", "allreduce, ps:S, central or parallax" },
        { "easgd", 2, NULL, "elastic:0", NULL, "steps from 1 on" },
        { "easgd", 2, NULL, "elastic:4,", NULL, "0 to 1" },
        { "easgd", 2, NULL, "elastic:4,1.5", NULL, "0 to 1" },
        { "easgd", 2, NULL, "elastic:4,nan", NULL, "0 to 1" },
        { "easgd", 2, NULL, "elastic:4,0.5x", NULL, "0 to 1" },
        { "localsgd", 2, NULL, "local:0", NULL, "steps from 1 on" },
        { "gossip", 2, NULL, "gossip:star", NULL, "gossip:ring or gossip:exponential" },
        { "gossip", 2, NULL, NULL, "ps:1", "works with meet none" },
        { "localsgd", 2, NULL, "local:automatic", NULL, "local:H" },
        { "localsgd", 2, NULL, NULL, "ps:1", "use --meet allreduce" },
        { "localsgd", 2, NULL, NULL, "none", "works with meet allreduce" },
        { "localsgd", 2, NULL, "now and then", NULL, "must be step, async" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct axes axes = { .dp = -7 };
        CHECK_STATUS(STATUS_USAGE,
                     strategy_check(strategy_find(cases[i].strategy), cases[i].ranks,
                                    cases[i].split, cases[i].sync, cases[i].meet, &axes));
        CHECK_MESSAGE(cases[i].text);
        CHECK(axes.dp == -7);
    }
}

const struct test tests[] = {
    { .name = "copies in a grid may meet at servers",
      .run = test_copies_in_a_grid_may_meet_at_servers },
    { .name = "ranks form a grid", .run = test_ranks_form_a_grid },
    { .name = "every rank has one place", .property = test_every_rank_has_one_place },
    { .name = "presets are what their texts say",
      .run = test_presets_are_what_their_texts_say },
    { .name = "every preset has passes of its own",
      .run = test_every_preset_has_passes_of_its_own },
    { .name = "the degree of synchrony picks the last pass",
      .run = test_the_degree_of_synchrony_picks_the_last_pass },
    { .name = "ranks apart have the level between nodes",
      .run = test_ranks_apart_have_the_level_between_nodes },
    { .name = "what is given is read", .run = test_what_is_given_is_read },
    { .name = "a preset is picked from the axes",
      .run = test_a_preset_is_picked_from_the_axes },
    { .name = "what is impossible is refused with the reason",
      .run = test_what_is_impossible_is_refused_with_the_reason },
    { 0 },
};
