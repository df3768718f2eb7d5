/* SPDX-License-Identifier: MIT */
/* device_watch.c - streams that wait for other ranks' words must end when one of these is lost.
 *
 * A thread looks whether a rank was lost, and makes this rank's words 1 itself then, on a stream of its own, again and
 * again: what this rank's streams wait for comes, they run to their end with what is there, and whoever waits for
 * them finds the loss. A rank makes its own words 1, never another's. Of a team (device_team.c) it also looks whether messages
 * still come, and gives the team up.
 */
#include <time.h>

#include "base/mem.h"
#include "exec/device_side.h"

enum { LOOK_NS = 20 * 1000 * 1000, AGAIN_NS = 1000 * 1000 };

struct device_watch {
    const struct exec *exec;
    pthread_t thread;
    bool is_started;
    struct device_stream *rescue; /* the thread's */
    pthread_mutex_t lock;         /* a leaf; guards what follows */
    pthread_cond_t changes;
    bool gives_up, is_over;
    bool has_ranks; /* ranks that hold the same have met: a team, if they are one, is there */
    struct {
        const struct device_words *words; /* borrowed */
        int count;
    } of[WATCH_KINDS];
};

/* Waited for by a clock that nobody sets. */
static void make_changes(pthread_cond_t *changes)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(changes, &attr);
    pthread_condattr_destroy(&attr);
}

/* Lets the streams pass what they wait for now; they may wait again. With the lock. */
static void let_pass(const struct device_watch *watch)
{
    const struct device_share_ops *share = watch->exec->device->config.face->share;

    for (int kind = 0; kind < WATCH_KINDS; kind++) {
        for (int i = 0; i < watch->of[kind].count; i++)
            share->signal(watch->rescue, &watch->of[kind].words[i]);
    }
}

/* Until it is time to look again; false: it is over. */
static bool waits_on(struct device_watch *watch)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += watch->gives_up ? AGAIN_NS : LOOK_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (!watch->is_over)
        pthread_cond_timedwait(&watch->changes, &watch->lock, &until);
    return !watch->is_over;
}

/* Without the lock: it may last. */
static bool is_lost(const struct device_watch *watch, bool gives_up, bool has_ranks)
{
    const struct exec *exec = watch->exec;

    if (!gives_up)
        gives_up =
            transport_check(exec->transport) != STATUS_OK || (has_ranks && !team_is_well(exec));
    if (gives_up && has_ranks && exec->device->team)
        team_give_up(exec->device);
    return gives_up;
}

static void *look(void *arg)
{
    struct device_watch *watch = arg;

    pthread_mutex_lock(&watch->lock);
    while (waits_on(watch)) {
        const bool gave_up = watch->gives_up, has_ranks = watch->has_ranks;
        pthread_mutex_unlock(&watch->lock);
        const bool gives_up = is_lost(watch, gave_up, has_ranks);
        pthread_mutex_lock(&watch->lock);
        watch->gives_up |= gives_up;
        if (watch->gives_up)
            let_pass(watch);
    }
    pthread_mutex_unlock(&watch->lock);
    return NULL;
}

enum status device_watch_create(struct exec *exec)
{
    struct device_side *side = exec->device;
    struct device_watch *watch;

    TRY(mem_alloc(1, sizeof *watch, &watch));
    side->watch = watch;
    watch->exec = exec;
    pthread_mutex_init(&watch->lock, NULL);
    make_changes(&watch->changes);
    TRY(side->config.face->stream->create(side->config.device, &watch->rescue));
    if (pthread_create(&watch->thread, NULL, look, watch) != 0)
        return FAIL(STATUS_NO_MEMORY, "there is no thread to look after other ranks");
    watch->is_started = true;
    return STATUS_OK;
}

void device_watch_words(struct device_side *side, enum watch_kind kind,
                        const struct device_words *words, int count)
{
    struct device_watch *watch = side->watch;

    pthread_mutex_lock(&watch->lock);
    watch->of[kind].words = words;
    watch->of[kind].count = count;
    watch->has_ranks |= kind == WATCH_RANKS;
    pthread_mutex_unlock(&watch->lock);
}

void device_watch_give_up(struct device_side *side)
{
    if (!side->watch)
        return;
    pthread_mutex_lock(&side->watch->lock);
    side->watch->gives_up = true;
    pthread_cond_signal(&side->watch->changes);
    pthread_mutex_unlock(&side->watch->lock);
}

void device_watch_leave(struct device_side *side)
{
    /* Of a team nothing is given up as long as nobody is lost: others wait for what is on its way. */
    if (!side->team)
        device_watch_give_up(side);
}

void device_watch_end(struct device_side *side)
{
    struct device_watch *watch = side->watch;

    if (!watch || !watch->is_started)
        return;
    pthread_mutex_lock(&watch->lock);
    watch->is_over = true;
    pthread_cond_signal(&watch->changes);
    pthread_mutex_unlock(&watch->lock);
    pthread_join(watch->thread, NULL);
    watch->is_started = false;
    const enum status left = side->config.face->stream->wait(watch->rescue);
    (void)left; /* nobody asks how it went */
}

void device_watch_destroy(struct device_side *side)
{
    struct device_watch *watch = side->watch;

    if (!watch)
        return;
    side->config.face->stream->destroy(watch->rescue);
    pthread_mutex_destroy(&watch->lock);
    pthread_cond_destroy(&watch->changes);
    mem_free(watch);
    side->watch = NULL;
}
