/* SPDX-License-Identifier: MIT */
/* strategy.c - the presets, each a list of passes read top to bottom. */
#include "pass/strategy.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pass/axes.h"

/* Shared by the lists below, read top to bottom. */
#define GRADIENTS                                                                              \
    &pass_autodiff,     /* gradients of ops as they are fused */                               \
        &pass_join,     /* activations' to the products before, where a device has that */     \
        &pass_inward,   /* how filters lie there */                                            \
        &pass_delay,    /* as late as memory gains by it */                                    \
        &pass_recompute /* activations that backward makes again, if asked */
#define UPDATE                                                                                 \
    &pass_bucket,          /* gradients get their places in flat ranges */                     \
        &pass_split_batch, /* one shard's graph, and the sums over shards */                   \
        &pass_update       /* the whole step for one device */

/* Workers with steps of their own: what they fuse is differentiated as one op. */
#define WORKER &pass_fuse, GRADIENTS, UPDATE
/* All shards are in step, so statistics may be of all of them: they are differentiated as such. */
#define IN_STEP &pass_fuse, &pass_sync_norm, GRADIENTS, UPDATE

static const struct pass *const single_passes[] = { IN_STEP,
                                                    &pass_anchor, /* FedProx, SCAFFOLD */
                                                    NULL };

/* Layers that ranks share are divided while ops are simple. */
static const struct pass *const tensor_passes[] = { &pass_tensor, IN_STEP, NULL };

static const struct pass *const mirrored_passes[] = { IN_STEP, &pass_mirror, NULL };

static const struct pass *const multiworker_passes[] = { IN_STEP, &pass_mirror, &pass_hierarchy,
                                                         NULL };

static const struct pass *const zero_passes[] = {
    IN_STEP,         &pass_mirror, &pass_zero, /* parameters in parts, with zero=3 */
    &pass_hierarchy, NULL,
};

static const struct pass *const central_passes[] = { IN_STEP, &pass_central, NULL };

static const struct pass *const parallax_passes[] = {
    &pass_fuse,     &pass_sync_norm, GRADIENTS,
    &pass_parallax, /* before buckets: sparse gradients have buckets of their own */
    UPDATE,         &pass_mirror,    &pass_hierarchy,
    NULL,
};

static const struct pass *const ps_passes[] = { WORKER, &pass_serve, &pass_step, NULL };
static const struct pass *const asgd_passes[] = { WORKER, &pass_serve, &pass_async, NULL };
static const struct pass *const ssp_passes[] = { WORKER, &pass_serve, &pass_bounded, NULL };

static const struct pass *const elastic_passes[] = { WORKER, &pass_elastic, NULL };
static const struct pass *const local_passes[] = { WORKER, &pass_average, NULL };
static const struct pass *const gossip_passes[] = { WORKER, &pass_gossip, NULL };

/* A pipeline's step. Every rank has the whole graph, whose nodes belong to stages. cut runs before
 * autodiff, so that backward nodes belong to the stage of what they differentiate. Buckets and all
 * after them are of this rank's stage alone. */
static const struct pass *const staged_passes[] = { &pass_fuse,  &pass_cut, GRADIENTS,
                                                    &pass_stage, UPDATE,    NULL };

static const struct pass *const staged_mirrored_passes[] = {
    &pass_tensor,   &pass_fuse, &pass_sync_norm, &pass_cut,  GRADIENTS,       &pass_stage,
    &pass_parallax, UPDATE,     &pass_mirror,    &pass_zero, &pass_hierarchy, NULL,
};

/* Servers have each stage's and slice's. */
static const struct pass *const staged_served_passes[] = {
    &pass_tensor, &pass_fuse,  &pass_cut,  GRADIENTS, &pass_stage,
    UPDATE,       &pass_serve, &pass_step, NULL,
};

#define SYNC(kind) (1U << SYNC_##kind)
#define MEET(kind) (1U << MEET_##kind)

static const struct strategy single = {
    .name = "single",
    .summary = "one process, as many threads as you like",
    .known_as = "one device",
    .split = "dp=1",
    .sync = "step",
    .meet = "none",
    .syncs = SYNC(STEP),
    .meets = MEET(NONE),
    .passes = single_passes,
};

static const struct strategy mirrored = {
    .name = "mirrored",
    .summary = "ranks of one machine, gradients summed every step",
    .known_as = "TF MirroredStrategy, PyTorch DDP on one node",
    .split = "dp=n",
    .sync = "step",
    .meet = "allreduce",
    .syncs = SYNC(STEP),
    .meets = MEET(ALLREDUCE),
    .many_ranks = true,
    .passes = mirrored_passes,
    .apart = multiworker_passes,
    .sharded = zero_passes,
};

static const struct strategy multiworker = {
    .name = "multiworker",
    .summary = "ranks of many machines, gradients summed every step, within a machine first",
    .known_as = "TF MultiWorkerMirroredStrategy, PyTorch DDP, Horovod",
    .split = "dp=n",
    .sync = "step",
    .meet = "allreduce",
    .syncs = SYNC(STEP),
    .meets = MEET(ALLREDUCE),
    .many_ranks = true,
    .many_nodes = true,
    .passes = multiworker_passes,
    .sharded = zero_passes,
};

/* Parameters and their state exist once a machine anyway, and lanes of all ranks reduce gradients
 * into them. */
static const struct strategy zero = {
    .name = "zero",
    .summary = "as multiworker, but machines hold state, gradients and parameters in parts",
    .known_as = "ZeRO, FSDP; zero=1 state, zero=2 gradients, zero=3 parameters, too",
    .split = "dp=n,zero=3",
    .sync = "step",
    .meet = "allreduce",
    .syncs = SYNC(STEP),
    .meets = MEET(ALLREDUCE),
    .zero = 3,
    .many_ranks = true,
    .many_nodes = true,
    .passes = zero_passes,
    .sharded = zero_passes,
};

static const struct strategy central = {
    .name = "central",
    .summary = "ranks of one machine, one copy of the parameters that all of them map and "
               "update in parts",
    .known_as = "TF CentralStorageStrategy",
    .split = "dp=n",
    .sync = "step",
    .meet = "central",
    .syncs = SYNC(STEP),
    .meets = MEET(CENTRAL),
    .many_ranks = true,
    .passes = central_passes,
    .sharded = central_passes, /* machines hold parts, and there is one */
};

static const struct strategy parallax = {
    .name = "parallax",
    .summary = "ranks of many machines; each table's gradient goes the cheapest way, rows to "
               "their owners",
    .known_as = "Parallax, AutoDist",
    .split = "dp=n",
    .sync = "step",
    .meet = "parallax",
    .syncs = SYNC(STEP),
    .meets = MEET(PARALLAX),
    .many_ranks = true,
    .many_nodes = true,
    .passes = parallax_passes,
};

static const struct strategy ps = {
    .name = "ps",
    .summary = "servers sum the workers' gradients and update, every step",
    .known_as = "TF ParameterServerStrategy, DistBelief, ps-lite",
    .split = "dp=n",
    .sync = "step",
    .meet = "ps:1",
    .syncs = SYNC(STEP) | SYNC(ASYNC) | SYNC(BOUNDED),
    .meets = MEET(PS),
    .many_ranks = true,
    .many_nodes = true,
    .passes = ps_passes,
};

static const struct strategy asgd = {
    .name = "asgd",
    .summary = "servers update whenever a worker pushes; nobody waits",
    .known_as = "Downpour SGD, Hogwild across processes",
    .split = "dp=n",
    .sync = "async",
    .meet = "ps:1",
    .syncs = SYNC(ASYNC),
    .meets = MEET(PS),
    .many_ranks = true,
    .many_nodes = true,
    .passes = asgd_passes,
};

static const struct strategy ssp = {
    .name = "ssp",
    .summary = "as asgd, but no worker is more than K steps ahead of the slowest",
    .known_as = "stale synchronous parallel",
    .split = "dp=n",
    .sync = "bounded:3",
    .meet = "ps:1",
    .syncs = SYNC(BOUNDED),
    .meets = MEET(PS),
    .many_ranks = true,
    .many_nodes = true,
    .passes = ssp_passes,
};

static const struct strategy easgd = {
    .name = "easgd",
    .summary = "workers train alone and are pulled to a center, which is pulled to them",
    .known_as = "elastic averaging SGD, EAMSGD with momentum",
    .split = "dp=n",
    .sync = "elastic:10",
    .meet = "ps:1",
    .syncs = SYNC(ELASTIC),
    .meets = MEET(PS),
    .many_ranks = true,
    .many_nodes = true,
    .passes = elastic_passes,
};

static const struct strategy localsgd = {
    .name = "localsgd",
    .summary = "workers train alone and take the average of all every H steps",
    .known_as = "local SGD, post-local SGD, DiLoCo",
    .split = "dp=n",
    .sync = "local:10",
    .meet = "allreduce",
    .syncs = SYNC(LOCAL),
    .meets = MEET(ALLREDUCE),
    .many_ranks = true,
    .many_nodes = true,
    .passes = local_passes,
};

static const struct strategy gossip = {
    .name = "gossip",
    .summary = "workers train alone and average with their neighbors after every step",
    .known_as = "decentralized SGD, D-PSGD",
    .split = "dp=n",
    .sync = "gossip:ring",
    .meet = "none",
    .syncs = SYNC(GOSSIP),
    .meets = MEET(NONE),
    .many_ranks = true,
    .many_nodes = true,
    .passes = gossip_passes,
};

static const struct strategy pipeline = {
    .name = "pipeline",
    .summary = "each rank has some layers; shards go through the ranks one behind the other",
    .known_as = "layer-wise model parallelism, GPipe, PipeDream-Flush (1F1B)",
    .split = "pp=n",
    .sync = "step",
    .meet = "none",
    .splits = AXIS_PP,
    .syncs = SYNC(STEP),
    .meets = MEET(NONE),
    .many_ranks = true,
    .many_nodes = true,
    .passes = staged_passes,
};

static const struct strategy tensor = {
    .name = "tensor",
    .summary = "ranks share the work of each layer; each has slices of the parameters",
    .known_as = "Megatron-LM",
    .split = "tp=n",
    .sync = "step",
    .meet = "none",
    .splits = AXIS_TP,
    .syncs = SYNC(STEP),
    .meets = MEET(NONE),
    .many_ranks = true,
    .many_nodes = true,
    .passes = tensor_passes,
};

static const struct strategy hybrid = {
    .name = "hybrid",
    .summary = "any product: groups of ranks share layers, or have some of them, on samples of "
               "their own",
    .known_as = "DDP+DMP, 3D parallelism",
    .split = "dp=n/2,pp=2",
    .sync = "step",
    .meet = "allreduce",
    .splits = AXIS_DP | AXIS_TP | AXIS_PP,
    .syncs = SYNC(STEP),
    .meets = MEET(ALLREDUCE) | MEET(PARALLAX) | MEET(PS),
    .many_ranks = true,
    .many_nodes = true,
    .passes = staged_mirrored_passes,
    .sharded = staged_mirrored_passes,
    .served = staged_served_passes,
};

const struct strategy *const strategy_table[] = {
    &single, &mirrored, &multiworker, &zero,   &central,  &parallax, &ps,     &asgd,
    &ssp,    &easgd,    &localsgd,    &gossip, &pipeline, &tensor,   &hybrid, NULL,
};

const struct strategy *strategy_find(const char *name)
{
    for (int i = 0; strategy_table[i]; i++) {
        if (strcmp(strategy_table[i]->name, name) == 0)
            return strategy_table[i];
    }
    return NULL;
}

/* Passes of workers with servers; NULL: each strategy has its own. */
static const struct pass *const *served_passes(const struct strategy *strategy,
                                               const struct axes *axes)
{
    if (axes->meet != MEET_PS || axes->sync == SYNC_ELASTIC)
        return NULL;
    if (strategy->served)
        return strategy->served;
    if (axes->sync == SYNC_ASYNC)
        return asgd_passes;
    /* With bound 0 nobody begins a step before all have ended the last. */
    return axes->sync == SYNC_BOUNDED && axes->bound > 0 ? ssp_passes : ps_passes;
}

const struct pass *const *strategy_passes(const struct strategy *strategy,
                                          const struct axes *axes, bool apart)
{
    const struct pass *const *served = served_passes(strategy, axes);

    return served                     ? served
           : axes->zero > 0           ? strategy->sharded
           : apart && strategy->apart ? strategy->apart
                                      : strategy->passes;
}

bool strategy_has_pass(const struct strategy *strategy, const struct pass *pass)
{
    for (int i = 0; strategy->passes[i]; i++) {
        if (strategy->passes[i] == pass)
            return true;
    }
    return false;
}

int axes_neighbors(const struct axes *axes)
{
    int offsets[ATTR_OFFSETS];

    return axes->sync == SYNC_GOSSIP ? pass_neighbors_of(axes->neighbors, axes->dp, offsets)
                                     : 0;
}

/* The preset that divides work along these axes. */
static const struct strategy *pick_split(const struct axes *axes)
{
    const unsigned along = (axes->dp > 1 ? AXIS_DP : 0) | (axes->tp > 1 ? AXIS_TP : 0) |
                           (axes->pp > 1 ? AXIS_PP : 0);

    for (int i = 0; strategy_table[i]; i++) {
        if (strategy_table[i]->splits == along)
            return strategy_table[i];
    }
    return &hybrid;
}

const struct strategy *strategy_pick(int ranks, bool apart, const char *split, const char *sync,
                                     const char *meet)
{
    struct axes axes = { .dp = 1, .tp = 1, .pp = 1 };
    unsigned given;

    if (split && axes_read_split(split, &axes, &given) == STATUS_OK && axes_are_a_grid(&axes))
        return pick_split(&axes);

    if (sync && axes_read_sync(sync, &axes) == STATUS_OK && axes.sync != SYNC_STEP) {
        for (int i = 0; strategy_table[i]; i++) {
            if (strategy_table[i]->syncs == 1U << axes.sync)
                return strategy_table[i];
        }
    }
    if (meet && axes_read_meet(meet, &axes) == STATUS_OK && axes.meet > MEET_ALLREDUCE)
        return axes.meet == MEET_PS ? &ps : axes.meet == MEET_CENTRAL ? &central : &parallax;
    return ranks == 1 ? &single : apart ? &multiworker : &mirrored;
}

int strategy_servers(const char *strategy, const char *sync, const char *meet)
{
    const struct strategy *preset =
        strategy ? strategy_find(strategy) : strategy_pick(1, false, NULL, sync, meet);
    struct axes axes = { 0 };

    if (!preset || axes_read_meet(meet ? meet : preset->meet, &axes) != STATUS_OK)
        return 0;
    return axes.servers;
}

/* Combinations that nothing can run, whatever the preset; the preset's own are none of them. */
static enum status check_together(const struct axes *axes, const char *sync, const char *meet)
{
    const bool alone =
        axes->sync == SYNC_ASYNC || axes->sync == SYNC_BOUNDED || axes->sync == SYNC_ELASTIC;

    if (axes_are_a_grid(axes) && axes->sync != SYNC_STEP)
        return FAIL(STATUS_USAGE,
                    "--sync %s: ranks that share a model's layers are at the same step, so "
                    "copies of it meet at every step: use --sync step",
                    sync);
    if (alone && axes->meet != MEET_PS)
        return FAIL(STATUS_USAGE,
                    "--sync %s --meet %s: only servers can be met at any time: use --meet ps:1",
                    sync, meet);
    if (axes->sync == SYNC_LOCAL && axes->meet == MEET_PS)
        return FAIL(STATUS_USAGE,
                    "--sync %s --meet %s: workers average among themselves, servers would have "
                    "nothing to do: use --meet allreduce, or --sync elastic:T",
                    sync, meet);
    if (axes->zero > 0 && axes->meet == MEET_PS)
        return FAIL(STATUS_USAGE,
                    "zero=%d and --meet %s: servers hold state in parts, and workers have all "
                    "of the parameters that they read: leave zero out",
                    axes->zero, meet);
    return STATUS_OK;
}

/* What a preset is not for: names the preset that is. */
static enum status refuse_axis(const struct strategy *strategy, const char *axis,
                               const char *asked, const char *own, const struct strategy *other)
{
    if (other && other != strategy)
        return FAIL(STATUS_USAGE, "--%s %s: strategy %s works with %s %s: use --strategy %s",
                    axis, asked, strategy->name, axis, own, other->name);
    return FAIL(STATUS_USAGE, "--%s %s: strategy %s works with %s %s alone", axis, asked,
                strategy->name, axis, own);
}

/* How ranks are divided along the axes: as the text says (NULL: not given), and the rest of them
 * along the preset's own axis. */
static enum status read_split(const struct strategy *strategy, int ranks, const char *split,
                              struct axes *axes)
{
    const unsigned splits = strategy->splits ? strategy->splits : AXIS_DP;
    unsigned given = 0;

    if (split)
        TRY(axes_read_split(split, axes, &given));
    /* A pipeline of two stages, if it is one of several and nothing is said. */
    if (!given && splits & AXIS_DP && splits & AXIS_PP && ranks % 2 == 0)
        axes->pp = 2;
    const int known = axes->dp * axes->tp * axes->pp;
    int *const rest = splits & AXIS_DP ? &axes->dp : splits & AXIS_PP ? &axes->pp : &axes->tp;
    const unsigned axis = splits & AXIS_DP ? AXIS_DP : splits & AXIS_PP ? AXIS_PP : AXIS_TP;
    if (!(given & axis) && ranks % known == 0)
        *rest = ranks / known;
    if (axes->dp * axes->tp * axes->pp != ranks)
        return FAIL(STATUS_USAGE, "--split %s: there are %d ranks: use -n %d",
                    split ? split : strategy->split, ranks, axes->dp * axes->tp * axes->pp);
    if ((axes->dp > 1 && !(splits & AXIS_DP)) || (axes->tp > 1 && !(splits & AXIS_TP)) ||
        (axes->pp > 1 && !(splits & AXIS_PP))) {
        return refuse_axis(strategy, "split", split, strategy->split, pick_split(axes));
    }
    return STATUS_OK;
}

enum status strategy_read_pipeline(const char *text, struct axes *axes)
{
    if (text && axes->pp == 1)
        return FAIL(STATUS_USAGE,
                    "--pipeline %s: there is no pipeline: use --strategy pipeline or hybrid",
                    text);
    return axes_read_pipeline(text ? text : pipe_kind_names[PIPE_1F1B], axes);
}

enum status strategy_check(const struct strategy *strategy, int ranks, const char *split,
                           const char *sync, const char *meet, struct axes *out)
{
    struct axes axes = { .dp = 1,
                         .tp = 1,
                         .pp = 1,
                         .zero = strategy->zero,
                         .pipeline = PIPE_1F1B,
                         .chunks = 1,
                         .alpha = NAN };
    const char *sync_is = sync ? sync : strategy->sync;
    const char *meet_is = meet ? meet : strategy->meet;

    if (ranks < 1)
        return FAIL(STATUS_USAGE, "-n %d: at least one rank is needed", ranks);
    if (ranks > 1 && !strategy->many_ranks)
        return FAIL(STATUS_USAGE,
                    "strategy %s runs on one rank, not on %d: use --strategy mirrored",
                    strategy->name, ranks);
    TRY(read_split(strategy, ranks, split, &axes));
    if (axes.zero > 0 && !strategy->sharded)
        return FAIL(STATUS_USAGE,
                    "--split %s: strategy %s holds nothing in parts: use --strategy zero",
                    split, strategy->name);
    TRY(axes_read_sync(sync_is, &axes));
    TRY(axes_read_meet(meet_is, &axes));
    if (axes_are_a_grid(&axes))
        TRY(check_together(&axes, sync_is, meet_is));
    if (!(strategy->syncs & 1U << axes.sync))
        return refuse_axis(strategy, "sync", sync_is, strategy->sync,
                           strategy_pick(ranks, strategy->many_nodes, NULL, sync, meet));
    TRY(check_together(&axes, sync_is, meet_is));
    if (!(strategy->meets & 1U << axes.meet))
        return refuse_axis(strategy, "meet", meet_is, strategy->meet,
                           strategy_pick(ranks, strategy->many_nodes, NULL, sync, meet));
    /* As Zhang, Choromanska and LeCun 2015 have it: beta = 0.9, shared out among the workers. */
    if (axes.sync == SYNC_ELASTIC && isnan(axes.alpha))
        axes.alpha = 0.9 / ranks;
    *out = axes;
    return STATUS_OK;
}
