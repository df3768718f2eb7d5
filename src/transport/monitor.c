/* SPDX-License-Identifier: MIT */
/* monitor.c - how a rank of an MPI job learns that another is gone.
 *
 * Every rank has a monitor, a thread. It looks whether ranks of its node are gone or stopped, and
 * says to the first rank of every other node that its own is there. Those note who has been
 * silent for too long. Whoever learns of a failure puts it into the region, where every waiter
 * of the node looks, and tells the first ranks of the other nodes. Bodies that end are made known
 * the same way.
 *
 * Who misses another node does not know which of the two is cut off. So it tells all whom it misses, and waits a moment for
 * what they say. The node that is in most pairs that cannot talk is lost; it may be its own. If there is one such pair among
 * three nodes or more, the link between the two is.
 *
 *   c is cut off:  a misses c, b misses c, c misses a and b: c is in four, a and b in two each
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/mem.h"
#include "transport/guard.h"
#include "transport/joined.h"
#include "transport/starter.h"

enum {
    TICK_MS = 20,     /* how often a monitor looks for messages */
    BUSY_TICK_MS = 5, /* and with requests under way, which MPI moves only when it is called */
    WATCH_MS = 100,   /* how often at the ranks of its node */
    BEAT_MS = 200,    /* how often it tells that it is there */
    HURRY_MS = 700,   /* after a hint: how long a far rank may be silent, or nothing be known */
    HINT_MS = 5000,   /* how long a hint holds */
    MISSES_MS = 1000, /* and that a node misses another, of which it tells twice as often */
};

/* Shares of the deadline: how long a far rank may be silent, and then how long machines compare whom they miss. */
static const double silent_share = 0.6, compare_share = 0.15, silent_share_of_two = 0.7;

/* A message to the first rank of another node. */
struct notice {
    struct notice *next;
    int to; /* of MPI's ranks */
    struct mpi_message message;
    struct control control;
};

/* A launcher that has lost a process signals the others before it kills them: Open MPI's by
 * SIGCONT at once and SIGTERM a second later, MPICH's, told to keep them, by SIGUSR1. The kernel
 * does by SIGPIPE, if MPI writes to the lost process by a socket. */
static const int hints[] = { SIGCONT, SIGUSR1, SIGTERM, SIGPIPE };
_Static_assert(sizeof(hints) / sizeof(hints[0]) == JOINED_HINTS, "as many as are kept");
static volatile sig_atomic_t got_hint, got_term;

static void note_hint(int number)
{
    got_hint = 1;
    if (number == SIGTERM)
        got_term = 1;
}

/* Takes those signals that would do as they do by default. */
static void take_hints(struct sigaction *old)
{
    const struct sigaction note = { .sa_handler = note_hint, .sa_flags = SA_RESTART };

    got_hint = got_term = 0;
    for (int i = 0; i < JOINED_HINTS; i++) {
        (void)sigaction(hints[i], NULL, &old[i]);
        if (old[i].sa_handler == SIG_DFL)
            (void)sigaction(hints[i], &note, NULL);
    }
}

static void give_back_hints(const struct sigaction *old)
{
    for (int i = 0; i < JOINED_HINTS; i++)
        (void)sigaction(hints[i], &old[i], NULL);
}

/* Telling other nodes -------------------------------------------------------------------------- */

/* To the first rank of every other node. What cannot be sent is not: that node is gone. */
static void tell(struct joined *joined, const struct control *control)
{
    const size_t bytes = offsetof(struct control, text) + strlen(control->text) + 1;
    char text[MPI_FACE_TEXT];

    for (int node = 0; node < joined->n_nodes; node++) {
        const int to = joined->peers[joined->node_first[node]].mpi_rank;
        struct notice *notice;

        if (node == joined->node || mem_alloc(1, sizeof(*notice), &notice) != STATUS_OK)
            continue;
        notice->to = to;
        memcpy(&notice->control, control, bytes);
        if (!world_lock_first(joined->world)) {
            mem_free(notice);
            continue;
        }
        if (joined->world->face->send(MPI_CHANNEL_CONTROL, to, 0, &notice->control, bytes,
                                      &notice->message, text) == 0) {
            notice->next = joined->notices;
            joined->notices = notice;
            notice = NULL;
        }
        world_unlock(joined->world);
        mem_free(notice);
    }
}

static void tell_failure(struct joined *joined)
{
    struct control control = { .kind = CONTROL_FAILED };

    (void)snprintf(control.text, sizeof(control.text), "%s", region_failure(joined->region));
    control.rank = joined->region->failed_rank;
    control.status = joined->region->failed_is_loss ? STATUS_PEER_LOST : STATUS_OK;
    tell(joined, &control);
}

/* Forgets notices that have gone; how many have not, but for those to the rank that the job has
 * lost. The caller has the lock. */
static int forget_notices(struct joined *joined)
{
    const int lost = region_has_failed(joined->region)
                         ? joined->peers[joined->region->failed_rank].mpi_rank
                         : -1;
    int n_left = 0;

    for (struct notice **at = &joined->notices; *at;) {
        struct notice *notice = *at;
        char text[MPI_FACE_TEXT];
        size_t bytes;
        int done = 0;

        if (joined->world->face->test(&notice->message, &done, &bytes, text) != 0 || done) {
            *at = notice->next;
            mem_free(notice);
        } else {
            at = &notice->next;
            n_left += notice->to != lost;
        }
    }
    return n_left;
}

/* Hearing from other nodes ---------------------------------------------------------------------- */

/* A rank's node misses that of another. */
static void note_missing(struct joined *joined, int by, int missed)
{
    if (missed < 0 || missed >= joined->size)
        return;
    const int from = transport_node_of(joined->transport, by);
    const int to = transport_node_of(joined->transport, missed);
    joined->missed_ms[from * joined->n_nodes + to] = joined_now_ms();
}

static void take_control(struct joined *joined, const struct control *control)
{
    if (control->rank < 0 || control->rank >= joined->size)
        return;
    struct peer *peer = &joined->peers[control->rank];
    peer->heard_ms = joined_now_ms();
    if (control->kind == CONTROL_MISSES) {
        note_missing(joined, control->rank, control->status);
        return;
    }
    if (control->kind == CONTROL_BEAT)
        memcpy(peer->note, control->text, sizeof(peer->note) - 1);
    else if (control->kind == CONTROL_FAILED && control->status == STATUS_PEER_LOST) {
        joined->is_cut_off |= control->rank == joined->rank;
        region_lose(joined->region, control->rank, control->text);
    } else if (control->kind == CONTROL_FAILED)
        region_fail(joined->region, control->rank, control->text);
    else if (control->kind == CONTROL_ENDED)
        region_end_far(joined->region, control->rank, control->status);
}

/* Begins to listen; the caller has the lock. */
static int listen_again(struct joined *joined, char *text)
{
    memset(&joined->control, 0, sizeof(joined->control));
    return joined->world->face->receive(MPI_CHANNEL_CONTROL, MPI_FACE_ANY, 0, &joined->control,
                                        sizeof(joined->control) - 1, &joined->control_message,
                                        text);
}

static void listen_once(struct joined *joined)
{
    char text[MPI_FACE_TEXT];
    size_t bytes;
    int done = 1;

    if (!world_lock_first(joined->world)) {
        if (joined->stuck_since_ms == 0)
            joined->stuck_since_ms = joined_now_ms();
        return;
    }
    joined->stuck_since_ms = 0;
    (void)forget_notices(joined);
    while (done) {
        done = 0;
        if (joined->world->face->test(&joined->control_message, &done, &bytes, text) != 0)
            break;
        if (done) {
            take_control(joined, &joined->control);
            if (listen_again(joined, text) != 0)
                break;
        }
    }
    world_unlock(joined->world);
}

/* The monitor ----------------------------------------------------------------------------------- */

static void lose(struct joined *joined, int rank, const char *fate)
{
    const struct peer *peer = &joined->peers[rank];
    char text[REGION_TEXT], note[sizeof(peer->note)];

    if (region_holds(joined->region, rank))
        region_note(joined->region, rank, note, sizeof(note));
    else
        memcpy(note, peer->note, sizeof(note));
    (void)snprintf(text, sizeof(text), "rank %d (pid %d on %s) %s%s", rank, peer->pid,
                   peer->host, fate, note);
    region_lose(joined->region, rank, text);
}

/* passed_ms is bounded, so that a stop of the whole job does not count. */
static void watch(struct joined *joined, int rank, int64_t passed_ms)
{
    struct peer *peer = &joined->peers[rank];
    char fate[64];

    if (region_has_ended(joined->region, rank))
        return;
    const char state = starter_state_of(peer->pid);
    if (state == 'X' || state == 'Z') {
        lose(joined, rank, "died");
        return;
    }
    peer->stopped_ms = state == 'T' ? peer->stopped_ms + passed_ms : 0;
    if (peer->stopped_ms < joined->stuck_ms * 6 / 10)
        return;
    (void)snprintf(fate, sizeof(fate), "has been stopped for %lld ms",
                   (long long)peer->stopped_ms);
    lose(joined, rank, fate);
}

/* The at-th rank that this one watches, or -1. */
static int watched_rank(const struct joined *joined, int at)
{
    const int first = joined->region->first, size = joined->region->size;

    return at + 1 < size ? first + (joined->rank - first + at + 1) % size : -1;
}

static void watch_node(struct joined *joined, int64_t passed_ms)
{
    if (passed_ms > 2 * WATCH_MS)
        passed_ms = 2 * WATCH_MS;
    for (int at = 0; at < JOINED_WATCHED && watched_rank(joined, at) >= 0; at++)
        watch(joined, watched_rank(joined, at), passed_ms);
}

/* Where the kernel can tell at once that a process ends, it shall: a launcher may leave no more
 * than some milliseconds. Else watch_node notices. */
static void begin_watching(struct joined *joined)
{
    for (int at = 0; at < JOINED_WATCHED; at++) {
        const int rank = watched_rank(joined, at);

        joined->watched[at] = (struct pollfd){ .fd = -1, .events = POLLIN };
        if (rank >= 0)
            joined->watched[at].fd = (int)syscall(SYS_pidfd_open, joined->peers[rank].pid, 0);
    }
}

static void stop_watching(struct joined *joined, int at)
{
    if (joined->watched[at].fd >= 0)
        (void)close(joined->watched[at].fd);
    joined->watched[at].fd = -1;
}

/* Sleeps until a watched rank is gone, or for that long. */
static void sleep_watching(struct joined *joined, int ms)
{
    if (poll(joined->watched, JOINED_WATCHED, ms) <= 0)
        return;
    for (int at = 0; at < JOINED_WATCHED; at++) {
        if (joined->watched[at].fd < 0 || joined->watched[at].revents == 0)
            continue;
        watch(joined, watched_rank(joined, at), 0);
        stop_watching(joined, at);
    }
}

/* Has node `from` said lately that it misses the other? */
static bool misses(const struct joined *joined, int from, int to)
{
    const int64_t at_ms = joined->missed_ms[from * joined->n_nodes + to];

    return at_ms != 0 && joined_now_ms() - at_ms < MISSES_MS;
}

/* Pairs with this node of which one misses the other, each way by itself. */
static int count_missing(const struct joined *joined, int node)
{
    int count = 0;

    for (int other = 0; other < joined->n_nodes; other++)
        count += misses(joined, node, other) + misses(joined, other, node);
    return count;
}

static bool misses_all(const struct joined *joined)
{
    for (int node = 0; node < joined->n_nodes; node++) {
        if (node != joined->node && !misses(joined, joined->node, node))
            return false;
    }
    return true;
}

/* The machine of `rank` is silent. Is it that one, this one, a third, or the link between the two that is lost? */
static void blame(struct joined *joined, int rank, int64_t silent_ms)
{
    const long long ms = (long long)silent_ms;
    int lost = transport_node_of(joined->transport, rank), in_pairs = 0;
    char fate[160];

    for (int node = 0; node < joined->n_nodes; node++) {
        in_pairs += count_missing(joined, node) > 0;
        if (node != joined->node && misses(joined, joined->node, node) &&
            count_missing(joined, node) > count_missing(joined, lost))
            lost = node;
    }
    if (misses_all(joined)) {
        (void)snprintf(fate, sizeof(fate),
                       "has heard of no other machine for %lld ms: its network is cut", ms);
        joined->is_cut_off = true;
        lose(joined, joined->rank, fate);
    } else if (in_pairs == 2) {
        (void)snprintf(
            fate, sizeof(fate),
            "has not been heard of for %lld ms on %s alone: the link between the two is "
            "cut",
            ms, joined->peers[joined->rank].host);
        lose(joined, rank, fate);
    } else {
        (void)snprintf(fate, sizeof(fate), "has not been heard of for %lld ms", ms);
        lose(joined, joined->node_first[lost], fate);
    }
}

/* Tells all that this node misses that of a rank. */
static void tell_missing(struct joined *joined, int rank)
{
    const struct control control = { .kind = CONTROL_MISSES,
                                     .rank = joined->rank,
                                     .status = rank };
    const int node = transport_node_of(joined->transport, rank);

    const int64_t told_ms = joined->missed_ms[joined->node * joined->n_nodes + node];

    if (joined_now_ms() - told_ms < MISSES_MS / 2)
        return;
    note_missing(joined, joined->rank, rank);
    tell(joined, &control);
}

/* Compares, a moment after this node has missed another, with what others miss. */
static void miss(struct joined *joined, int rank, int64_t silent_ms)
{
    if (joined->n_nodes == 2 ||
        joined->stuck_since_ms != 0) { /* there is nobody to ask, or it cannot be heard */
        char fate[64];
        (void)snprintf(fate, sizeof(fate), "has not been heard of for %lld ms",
                       (long long)silent_ms);
        lose(joined, rank, fate);
        return;
    }
    if (joined->misses_since_ms == 0)
        joined->misses_since_ms = joined_now_ms();
    if (joined_now_ms() - joined->misses_since_ms >=
        (int64_t)(compare_share * joined->stuck_ms))
        blame(joined, rank, silent_ms);
}

/* Who of the other nodes has been silent? Time in which this monitor was not running does not
 * count either. */
static void check_far(struct joined *joined, int64_t passed_ms)
{
    const double share = joined->n_nodes > 2 ? silent_share : silent_share_of_two;
    const int64_t limit_ms = got_hint ? HURRY_MS : (int64_t)(share * joined->stuck_ms);
    int first = -1;
    int64_t first_ms = 0;

    for (int rank = 0; rank < joined->size; rank++) {
        struct peer *peer = &joined->peers[rank];

        if (region_holds(joined->region, rank) || region_has_ended(joined->region, rank))
            continue;
        if (passed_ms > 3 * WATCH_MS)
            peer->heard_ms += passed_ms;
        const int64_t silent_ms = joined_now_ms() - peer->heard_ms;
        if (silent_ms < limit_ms)
            continue;
        if (joined->n_nodes > 2)
            tell_missing(joined, rank);
        if (first < 0) {
            first = rank;
            first_ms = silent_ms;
        }
    }
    if (first >= 0)
        miss(joined, first, first_ms);
    else
        joined->misses_since_ms = 0;
}

/* A hint that nothing came of is forgotten: the job may have been stopped and continued. */
static void forget_hint(int64_t *since_ms)
{
    if (!got_hint)
        *since_ms = 0;
    else if (*since_ms == 0)
        *since_ms = joined_now_ms();
    else if (joined_now_ms() - *since_ms > HINT_MS)
        got_hint = 0;
}

/* SIGTERM that nothing explains was meant for this rank. */
static void heed_term(struct joined *joined, int64_t *since_ms)
{
    char text[REGION_TEXT];

    if (!got_term)
        return;
    if (*since_ms == 0)
        *since_ms = joined_now_ms();
    if (joined_now_ms() - *since_ms < HURRY_MS)
        return;
    (void)snprintf(text, sizeof(text), "rank %d (pid %d on %s) was ended by SIGTERM",
                   joined->rank, (int)getpid(), joined->peers[joined->rank].host);
    region_fail(joined->region, joined->rank, text);
}

/* The job has failed and MPI does not return: the thread that called it never will, nor who waits for that
 * thread. Nobody but this one can say why the rank ends, and end it. */
static void end_stuck(struct joined *joined)
{
    if (joined->stuck_since_ms == 0 || !region_has_failed(joined->region) ||
        joined_now_ms() - joined->stuck_since_ms < HURRY_MS)
        return;
    guard_note_failure();
    (void)dprintf(STDERR_FILENO, "tutti: rank %d: %s\n", joined->rank,
                  region_failure(joined->region));
    _exit(joined->region->failed_is_loss ? 3 : 1); /* as cli/main.c has it */
}

static void *run_monitor(void *arg)
{
    struct joined *joined = arg;
    struct control beat = { .kind = CONTROL_BEAT, .rank = joined->rank };
    int64_t watched_ms = joined_now_ms(), beaten_ms = 0, term_ms = 0, hint_ms = 0;

    begin_watching(joined);
    while (!atomic_load(&joined->is_ending)) {
        const int64_t at_ms = joined_now_ms();

        if (joined->n_nodes > 1)
            listen_once(joined);
        if (at_ms - watched_ms >= WATCH_MS) {
            watch_node(joined, at_ms - watched_ms);
            if (joined_is_first_of_node(joined))
                check_far(joined, at_ms - watched_ms);
            watched_ms = at_ms;
        }
        end_stuck(joined);
        heed_term(joined, &term_ms);
        forget_hint(&hint_ms);
        if (region_has_failed(joined->region) && !atomic_load(&joined->has_told)) {
            tell_failure(joined);
            atomic_store(&joined->has_told, true);
        }
        if (at_ms - beaten_ms >= BEAT_MS && joined->stuck_since_ms == 0) {
            beaten_ms = at_ms;
            region_note(joined->region, joined->rank, beat.text, 2 * TRANSPORT_NOTE);
            tell(joined, &beat);
        }
        sleep_watching(joined, atomic_load_explicit(&joined->n_open, memory_order_relaxed) > 0
                                   ? BUSY_TICK_MS
                                   : TICK_MS);
    }
    for (int at = 0; at < JOINED_WATCHED; at++)
        stop_watching(joined, at);
    return NULL;
}

/* For join.c ------------------------------------------------------------------------------------ */

enum status monitor_begin(struct joined *joined)
{
    char text[MPI_FACE_TEXT];

    if (joined->n_nodes > 1) {
        if (listen_again(joined, text) != 0)
            return joined_mpi_failed(text);
        joined->is_listening = true;
    }
    take_hints(joined->old);
    const int error = pthread_create(&joined->monitor, NULL, run_monitor, joined);
    joined->monitor_runs = error == 0;
    return error == 0 ? STATUS_OK : FAIL(STATUS_IO, "no thread: %s", strerror(error));
}

void monitor_end(struct joined *joined)
{
    if (joined->monitor_runs) {
        atomic_store(&joined->is_ending, true);
        pthread_join(joined->monitor, NULL);
        give_back_hints(joined->old);
    }
    if (joined->is_listening && !joined->world->is_lost)
        joined->world->face->cancel(&joined->control_message);
}

void monitor_tell_end(struct joined *joined, enum status status)
{
    const struct control control = { .kind = CONTROL_ENDED,
                                     .rank = joined->rank,
                                     .status = status };

    tell(joined, &control);
}

bool monitor_has_told(struct joined *joined)
{
    if (joined->n_nodes == 1)
        return true;
    if (region_has_failed(joined->region) && !atomic_load(&joined->has_told))
        return false;
    if (!world_lock_first(joined->world))
        return false;
    const int n_left = forget_notices(joined);
    world_unlock(joined->world);
    return n_left == 0;
}
