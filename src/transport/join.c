/* SPDX-License-Identifier: MIT */
/* join.c - the ranks of an MPI job: where they are, what they share, and how each learns that
 * another is gone.
 *
 * Ranks are numbered anew: nodes in the order of their lowest MPI rank, within a node in that of
 * MPI. The first rank of a node makes the region in a file in memory; the others open it
 * through /proc and map it at the same address, for which some are tried.
 *
 * Every rank has a monitor, a thread. It looks whether ranks of its node are gone or stopped, and
 * says to the first rank of every other node that its own is there. Those note who has been
 * silent for too long. Whoever learns of a failure puts it into the region, where every waiter
 * of the node looks, and tells the first ranks of the other nodes. Bodies that end are made known
 * the same way.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "transport/region.h"
#include "transport/world.h"

enum {
    DEFAULT_STUCK_MS = 2000,
    HOST_BYTES = 64,
    TICK_MS = 20,     /* how often a monitor looks for messages */
    BUSY_TICK_MS = 5, /* and with requests under way, which MPI moves only when it is called */
    WATCH_MS = 100,   /* how often at the ranks of its node */
    BEAT_MS = 200,    /* how often it tells that it is there */
    ENDED_MS = 1000,  /* a message of a rank that has ended may take that long */
    ERROR_MS = 2500,  /* an error of MPI may take that long to be explained by a lost rank */
    TELL_MS = 1000,   /* how long a rank stays to tell others of a failure */
    HURRY_MS = 700,   /* after a hint: how long a far rank may be silent, or nothing be known */
    LINGER_MS = 300,  /* ranks leave after the one that reports: launchers kill who is left */
    WATCHED = 8,      /* ranks of its node that a monitor looks at */
    N_ADDRESSES = 8,
};

/* What ranks tell each other before anything else. */
struct hello {
    int32_t lowest; /* MPI rank on its machine */
    int32_t pid;
    char host[HOST_BYTES];
    cpu_set_t cpus;
};

/* How ranks of a node find the region. */
struct offer {
    uint64_t address, bytes; /* 0: not made */
    int32_t pid, fd;
    char text[160];
};

struct peer {
    int mpi_rank, pid;
    char host[HOST_BYTES];
    /* The monitor's alone: */
    int64_t heard_ms;   /* when a far rank was heard of last */
    int64_t stopped_ms; /* how long a near one has been stopped */
};

enum control_kind { CONTROL_BEAT, CONTROL_FAILED, CONTROL_ENDED };

struct control {
    int32_t kind, rank, status;
    char text[REGION_TEXT];
};

/* A message to the first rank of another node. */
struct notice {
    struct notice *next;
    struct mpi_message message;
    struct control control;
};

struct joined {
    struct link link;
    struct world *world;
    struct region *region;
    struct transport *transport;
    int rank, size, n_nodes, node;
    int *node_first;    /* [n_nodes + 1] */
    struct peer *peers; /* by rank */
    int stuck_ms;
    _Atomic int n_open;             /* requests over the link */
    struct pollfd watched[WATCHED]; /* the ranks of the node that come next; -1: not */
    pthread_t monitor;
    bool monitor_runs, is_listening;
    _Atomic bool is_ending;
    _Atomic bool has_told; /* of the failure */
    /* Guarded by world->lock: */
    struct notice *notices;
    struct mpi_message control_message;
    struct control control;
};

static bool the_rank_reports = true; /* of the last job; read after it */

/* A launcher that has lost a process signals the others before it kills them: Open MPI's by
 * SIGCONT at once and SIGTERM a second later, MPICH's, told to keep them, by SIGUSR1. */
static const int hints[] = { SIGCONT, SIGUSR1, SIGTERM };
enum { N_HINTS = sizeof(hints) / sizeof(hints[0]) };
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
    for (int i = 0; i < N_HINTS; i++) {
        (void)sigaction(hints[i], NULL, &old[i]);
        if (old[i].sa_handler == SIG_DFL)
            (void)sigaction(hints[i], &note, NULL);
    }
}

static void give_back_hints(const struct sigaction *old)
{
    for (int i = 0; i < N_HINTS; i++)
        (void)sigaction(hints[i], &old[i], NULL);
}

static int64_t now_ms(void)
{
    return clock_ns() / 1000000;
}

static bool is_first_of_node(const struct joined *joined)
{
    return joined->rank == joined->node_first[joined->node];
}

static enum status mpi_failed(const char *text)
{
    return FAIL(STATUS_PEER_LOST, "MPI: %s", text);
}

/* The link ------------------------------------------------------------------------------------ */

_Static_assert(sizeof(struct mpi_message) <= sizeof(((struct transport_request *)0)->handle),
               "a message fits a request");

static struct mpi_message *message_of(struct transport_request *request)
{
    return (struct mpi_message *)request->handle;
}

/* An error of MPI is most often a rank that is gone: its monitor will say which. */
static enum status explain(struct joined *joined, const char *text)
{
    const int64_t end = now_ms() + ERROR_MS;

    while (!region_has_failed(joined->region) && now_ms() < end)
        clock_sleep_ms(1);
    TRY(transport_check(joined->transport));
    return mpi_failed(text);
}

static enum status link_start(struct link *link, struct transport_request *request)
{
    struct joined *joined = (struct joined *)link;
    const struct mpi_face *face = joined->world->face;
    const int peer = joined->peers[request->peer].mpi_rank;
    char text[MPI_FACE_TEXT];
    int failed;

    pthread_mutex_lock(&joined->world->lock);
    if (request->kind == REQUEST_SEND)
        failed = face->send(MPI_CHANNEL_DATA, peer, request->tag, request->data, request->bytes,
                            message_of(request), text);
    else
        failed = face->receive(MPI_CHANNEL_DATA, peer, request->tag, request->data,
                               request->bytes, message_of(request), text);
    pthread_mutex_unlock(&joined->world->lock);
    if (failed)
        return explain(joined, text);
    atomic_fetch_add_explicit(&joined->n_open, 1, memory_order_relaxed);
    return STATUS_OK;
}

static enum status link_test(struct link *link, struct transport_request *request,
                             bool *out_done)
{
    struct joined *joined = (struct joined *)link;
    const bool ended = region_has_ended(joined->region, request->peer);
    char text[MPI_FACE_TEXT];
    size_t bytes = 0;
    int done = 0;

    pthread_mutex_lock(&joined->world->lock);
    const int failed = joined->world->face->test(message_of(request), &done, &bytes, text);
    pthread_mutex_unlock(&joined->world->lock);
    if (failed)
        return explain(joined, text);
    *out_done = done;
    if (done) {
        request->length = bytes;
        atomic_fetch_sub_explicit(&joined->n_open, 1, memory_order_relaxed);
        return STATUS_OK;
    }
    if (!ended) /* `moved` is when it was seen to have ended, as it is of no other use here */
        return STATUS_OK;
    if (request->moved == 0)
        request->moved = (size_t)now_ms();
    if ((size_t)now_ms() - request->moved < ENDED_MS)
        return STATUS_OK;
    return FAIL(STATUS_PEER_LOST,
                request->kind == REQUEST_SEND
                    ? "rank %d has ended while rank %d sends to it"
                    : "rank %d has ended while rank %d waits for a message from it",
                request->peer, joined->rank);
}

static void link_cancel(struct link *link, struct transport_request *request)
{
    struct joined *joined = (struct joined *)link;

    if (request->kind == REQUEST_RECEIVE) {
        pthread_mutex_lock(&joined->world->lock);
        joined->world->face->cancel(message_of(request));
        pthread_mutex_unlock(&joined->world->lock);
    }
    atomic_fetch_sub_explicit(&joined->n_open, 1, memory_order_relaxed);
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
        memcpy(&notice->control, control, bytes);
        pthread_mutex_lock(&joined->world->lock);
        if (joined->world->face->send(MPI_CHANNEL_CONTROL, to, 0, &notice->control, bytes,
                                      &notice->message, text) == 0) {
            notice->next = joined->notices;
            joined->notices = notice;
            notice = NULL;
        }
        pthread_mutex_unlock(&joined->world->lock);
        mem_free(notice);
    }
}

static void tell_failure(struct joined *joined)
{
    struct control control = { .kind = CONTROL_FAILED };

    (void)snprintf(control.text, sizeof(control.text), "%s", region_failure(joined->region));
    control.rank = joined->region->failed_rank;
    tell(joined, &control);
}

/* The monitor will tell: it looks every few milliseconds. */
static void link_fail(struct link *link, int rank, const char *text)
{
    (void)link;
    (void)rank;
    (void)text;
}

static const struct link_ops mpi_ops = {
    .start = link_start,
    .test = link_test,
    .cancel = link_cancel,
    .fail = link_fail,
};

/* Forgets notices that have gone; how many have not. The caller has the lock. */
static int forget_notices(struct joined *joined)
{
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
            n_left++;
        }
    }
    return n_left;
}

/* Hearing from other nodes ---------------------------------------------------------------------- */

static void take_control(struct joined *joined, const struct control *control)
{
    if (control->rank < 0 || control->rank >= joined->size)
        return;
    joined->peers[control->rank].heard_ms = now_ms();
    if (control->kind == CONTROL_FAILED)
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

    pthread_mutex_lock(&joined->world->lock);
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
    pthread_mutex_unlock(&joined->world->lock);
}

/* The monitor ----------------------------------------------------------------------------------- */

static void lose(struct joined *joined, int rank, const char *fate)
{
    const struct peer *peer = &joined->peers[rank];
    char text[REGION_TEXT], note[2 * TRANSPORT_NOTE] = "";

    if (region_holds(joined->region, rank))
        region_note(joined->region, rank, note, sizeof(note));
    (void)snprintf(text, sizeof(text), "rank %d (pid %d on %s) %s%s", rank, peer->pid,
                   peer->host, fate, note);
    region_fail(joined->region, rank, text);
}

/* 'R' and the like as in proc(5); 'X' if there is none. */
static char state_of_process(int pid)
{
    char path[64], line[512] = "";

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 'X';
    const ssize_t length = read(fd, line, sizeof(line) - 1);
    (void)close(fd);
    const char *after_name = length > 0 ? strrchr(line, ')') : NULL;
    return after_name && after_name[1] == ' ' ? after_name[2] : 'X';
}

/* passed_ms is bounded, so that a stop of the whole job does not count. */
static void watch(struct joined *joined, int rank, int64_t passed_ms)
{
    struct peer *peer = &joined->peers[rank];
    char fate[64];

    if (region_has_ended(joined->region, rank))
        return;
    const char state = state_of_process(peer->pid);
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
    for (int at = 0; at < WATCHED && watched_rank(joined, at) >= 0; at++)
        watch(joined, watched_rank(joined, at), passed_ms);
}

/* Where the kernel can tell at once that a process ends, it shall: a launcher may leave no more
 * than some milliseconds. Else watch_node notices. */
static void begin_watching(struct joined *joined)
{
    for (int at = 0; at < WATCHED; at++) {
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
    if (poll(joined->watched, WATCHED, ms) <= 0)
        return;
    for (int at = 0; at < WATCHED; at++) {
        if (joined->watched[at].fd < 0 || joined->watched[at].revents == 0)
            continue;
        watch(joined, watched_rank(joined, at), 0);
        stop_watching(joined, at);
    }
}

/* Who of the other nodes has been silent? Time in which this monitor was not running does not
 * count either. */
static void check_far(struct joined *joined, int64_t passed_ms)
{
    const int64_t limit_ms = got_hint ? HURRY_MS : joined->stuck_ms * 7 / 10;
    char fate[64];

    for (int rank = 0; rank < joined->size; rank++) {
        struct peer *peer = &joined->peers[rank];

        if (region_holds(joined->region, rank) || region_has_ended(joined->region, rank))
            continue;
        if (passed_ms > 3 * WATCH_MS)
            peer->heard_ms += passed_ms;
        const int64_t silent_ms = now_ms() - peer->heard_ms;
        if (silent_ms < limit_ms)
            continue;
        (void)snprintf(fate, sizeof(fate), "has not been heard of for %lld ms",
                       (long long)silent_ms);
        lose(joined, rank, fate);
    }
}

/* SIGTERM that nothing explains was meant for this rank. */
static void heed_term(struct joined *joined, int64_t *since_ms)
{
    char text[REGION_TEXT];

    if (!got_term)
        return;
    if (*since_ms == 0)
        *since_ms = now_ms();
    if (now_ms() - *since_ms < HURRY_MS)
        return;
    (void)snprintf(text, sizeof(text), "rank %d (pid %d on %s) was ended by SIGTERM",
                   joined->rank, (int)getpid(), joined->peers[joined->rank].host);
    region_fail(joined->region, joined->rank, text);
}

static void *run_monitor(void *arg)
{
    struct joined *joined = arg;
    const struct control beat = { .kind = CONTROL_BEAT, .rank = joined->rank };
    int64_t watched_ms = now_ms(), beaten_ms = 0, term_ms = 0;

    begin_watching(joined);
    while (!atomic_load(&joined->is_ending)) {
        const int64_t at_ms = now_ms();

        if (joined->n_nodes > 1)
            listen_once(joined);
        if (at_ms - watched_ms >= WATCH_MS) {
            watch_node(joined, at_ms - watched_ms);
            if (is_first_of_node(joined))
                check_far(joined, at_ms - watched_ms);
            watched_ms = at_ms;
        }
        heed_term(joined, &term_ms);
        if (region_has_failed(joined->region) && !atomic_load(&joined->has_told)) {
            tell_failure(joined);
            atomic_store(&joined->has_told, true);
        }
        if (at_ms - beaten_ms >= BEAT_MS) {
            beaten_ms = at_ms;
            tell(joined, &beat);
        }
        sleep_watching(joined, atomic_load_explicit(&joined->n_open, memory_order_relaxed) > 0
                                   ? BUSY_TICK_MS
                                   : TICK_MS);
    }
    for (int at = 0; at < WATCHED; at++)
        stop_watching(joined, at);
    return NULL;
}

/* Numbers ------------------------------------------------------------------------------------- */

static enum status gather(struct world *world, const void *mine, size_t bytes, void *all)
{
    char text[MPI_FACE_TEXT];

    return world->face->gather(mine, bytes, all, text) == 0 ? STATUS_OK : mpi_failed(text);
}

static enum status say_hello(struct joined *joined, bool is_flat, struct hello *all)
{
    struct hello mine = { .lowest = joined->world->rank, .pid = (int32_t)getpid() };
    char text[MPI_FACE_TEXT];
    int lowest;

    if (joined->world->face->lowest_of_node(&lowest, text) != 0)
        return mpi_failed(text);
    if (!is_flat)
        mine.lowest = lowest;
    if (gethostname(mine.host, sizeof(mine.host) - 1) != 0)
        (void)snprintf(mine.host, sizeof(mine.host), "%s", "a machine");
    (void)sched_getaffinity(0, sizeof(mine.cpus), &mine.cpus);
    return gather(joined->world, &mine, sizeof(mine), all);
}

/* Numbers the ranks anew and writes down where they are. */
static void number_ranks(struct joined *joined, const struct hello *all)
{
    int rank = 0;

    for (int lowest = 0; lowest < joined->size; lowest++) {
        const int first = rank;

        for (int at = lowest; at < joined->size; at++) {
            struct peer *peer = &joined->peers[rank];

            if (all[at].lowest != lowest)
                continue;
            peer->mpi_rank = at;
            peer->pid = all[at].pid;
            peer->heard_ms = now_ms();
            (void)snprintf(peer->host, sizeof(peer->host), "%s", all[at].host);
            if (at == joined->world->rank) {
                joined->rank = rank;
                joined->node = joined->n_nodes;
            }
            rank++;
        }
        if (rank > first)
            joined->node_first[++joined->n_nodes] = rank;
    }
}

static int count_cores(const struct joined *joined, const struct hello *all)
{
    cpu_set_t together;

    CPU_ZERO(&together);
    for (int rank = joined->node_first[joined->node];
         rank < joined->node_first[joined->node + 1]; rank++)
        CPU_OR(&together, &together, &all[joined->peers[rank].mpi_rank].cpus);
    return CPU_COUNT(&together);
}

/* The region ------------------------------------------------------------------------------------ */

/* Places where programs seldom have anything, then wherever the kernel likes. */
static void *address_of(int attempt)
{
    const uintptr_t start = (uintptr_t)1 << 45, apart = (uintptr_t)1 << 42;

    return attempt < N_ADDRESSES / 2 ? (void *)(start + apart * (uintptr_t)attempt) : NULL;
}

/* The node's first rank makes the region; *out_fd stays open for the others. */
static void make_region(struct joined *joined, size_t bytes, int attempt, struct offer *out,
                        int *out_fd)
{
    const int fd = memfd_create("tutti", MFD_CLOEXEC);
    const struct region_config config = {
        .first = joined->node_first[joined->node],
        .size = joined->node_first[joined->node + 1] - joined->node_first[joined->node],
        .job_size = joined->size,
        .bytes = bytes,
        .fd = fd,
        .address = address_of(attempt),
    };

    if (fd < 0) {
        (void)snprintf(out->text, sizeof(out->text), "no file in memory: %s", strerror(errno));
    } else if (region_create_as(&config, &joined->region) != STATUS_OK) {
        (void)snprintf(out->text, sizeof(out->text), "%.150s", status_message());
    } else {
        out->address = (uint64_t)(uintptr_t)joined->region;
        out->bytes = joined->region->bytes;
    }
    out->pid = (int32_t)getpid();
    out->fd = fd;
    *out_fd = fd;
}

/* The others open it. */
static void open_region(struct joined *joined, const struct offer *offer, struct offer *out)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", offer->pid, offer->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        (void)snprintf(out->text, sizeof(out->text), "%s: %s", path, strerror(errno));
        return;
    }
    joined->region = region_open(fd, (void *)(uintptr_t)offer->address, offer->bytes);
    (void)close(fd);
    if (joined->region)
        out->bytes = offer->bytes;
    else
        (void)snprintf(out->text, sizeof(out->text), "0x%llx is taken: %s",
                       (unsigned long long)offer->address, strerror(errno));
}

/* One attempt. Every rank of the job learns whether all succeeded; if not, whose text it is. */
static enum status try_address(struct joined *joined, size_t bytes, int attempt,
                               struct offer *offers)
{
    const int first = joined->node_first[joined->node];
    struct offer mine = { 0 };
    enum status status;
    int fd = -1;

    if (is_first_of_node(joined))
        make_region(joined, bytes, attempt, &mine, &fd);
    status = gather(joined->world, &mine, sizeof(mine), offers);
    const struct offer *made = &offers[joined->peers[first].mpi_rank];
    if (status == STATUS_OK && !is_first_of_node(joined) && made->bytes > 0)
        open_region(joined, made, &mine);
    if (status == STATUS_OK)
        status = gather(joined->world, &mine, sizeof(mine), offers);
    if (fd >= 0)
        (void)close(fd);
    for (int rank = 0; rank < joined->size && status == STATUS_OK; rank++) {
        const struct offer *theirs = &offers[joined->peers[rank].mpi_rank];
        if (theirs->bytes == 0 && *theirs->text)
            status =
                FAIL(STATUS_NO_MEMORY, "rank %d has no shared memory: %s", rank, theirs->text);
    }
    if (status != STATUS_OK) {
        if (joined->region)
            munmap(joined->region, made->bytes);
        joined->region = NULL;
    }
    return status;
}

static enum status share_region(struct joined *joined, size_t bytes)
{
    enum status status = STATUS_OK;
    struct offer *offers;

    TRY(mem_alloc((size_t)joined->size, sizeof(*offers), &offers));
    for (int attempt = 0; attempt < N_ADDRESSES; attempt++) {
        status = try_address(joined, bytes, attempt, offers);
        if (status != STATUS_NO_MEMORY)
            break;
    }
    mem_free(offers);
    return status;
}

/* A job ----------------------------------------------------------------------------------------- */

static enum status find_place(struct joined *joined, const struct launch_config *config)
{
    struct hello *all;

    TRY(mem_alloc((size_t)joined->size, sizeof(*all), &all));
    enum status status = say_hello(joined, config->flat, all);
    if (status == STATUS_OK) {
        number_ranks(joined, all);
        status = share_region(joined, config->shared_bytes);
    }
    BUG_ON(status == STATUS_OK && !joined->region);
    if (status == STATUS_OK && is_first_of_node(joined))
        joined->region->cores = count_cores(joined, all);
    mem_free(all);
    return status;
}

static enum status begin(struct joined *joined, const struct launch_config *config)
{
    char text[MPI_FACE_TEXT];

    TRY(mem_alloc((size_t)joined->size + 1, sizeof(int), &joined->node_first));
    TRY(mem_alloc((size_t)joined->size, sizeof(*joined->peers), &joined->peers));
    if (joined->world->face->begin(text) != 0)
        return mpi_failed(text);
    TRY(find_place(joined, config));
    const struct place place = {
        .rank = joined->rank,
        .name = "mpi",
        .n_nodes = joined->n_nodes,
        .node_first = joined->node_first,
        .link = joined->n_nodes > 1 ? &joined->link : NULL,
    };
    atomic_store(&region_slot(joined->region, joined->rank)->pid, (int)getpid());
    TRY(region_attach(joined->region, &place, &joined->transport));
    if (joined->n_nodes > 1 && listen_again(joined, text) != 0)
        return mpi_failed(text);
    joined->is_listening = joined->n_nodes > 1;
    const int error = pthread_create(&joined->monitor, NULL, run_monitor, joined);
    joined->monitor_runs = error == 0;
    return error == 0 ? STATUS_OK : FAIL(STATUS_IO, "no thread: %s", strerror(error));
}

/* The end of a job ------------------------------------------------------------------------------- */

static bool all_have_ended(const struct joined *joined)
{
    for (int rank = 0; rank < joined->size; rank++) {
        if (!region_has_ended(joined->region, rank))
            return false;
    }
    return true;
}

static bool all_is_told(struct joined *joined)
{
    pthread_mutex_lock(&joined->world->lock);
    const int n_left = forget_notices(joined);
    pthread_mutex_unlock(&joined->world->lock);
    return n_left == 0;
}

/* Stays until every rank has ended, or until the others can know of a failure. */
static void wait_for_others(struct joined *joined)
{
    while (!all_have_ended(joined) && !region_has_failed(joined->region))
        clock_sleep_ms(1);
    if (joined->n_nodes == 1)
        return;
    const int64_t end = now_ms() + TELL_MS;
    while (region_has_failed(joined->region) && !atomic_load(&joined->has_told) &&
           now_ms() < end)
        clock_sleep_ms(1);
    while (!all_is_told(joined) && now_ms() < end)
        clock_sleep_ms(1);
}

/* Will that rank get to report the failure? */
static bool is_there(const struct joined *joined, int rank)
{
    const int lost = joined->region->failed_rank;

    if (region_has_ended(joined->region, rank))
        return true;
    if (region_holds(joined->region, rank))
        return strchr("XZT", state_of_process(joined->peers[rank].pid)) == NULL;
    return transport_node_of(joined->transport, rank) !=
           transport_node_of(joined->transport, lost);
}

/* The lowest rank that is there reports; the others leave it time to. */
static bool is_reporter(const struct joined *joined)
{
    if (joined->rank == 0)
        return true;
    clock_sleep_ms(LINGER_MS);
    for (int rank = 0; rank < joined->rank; rank++) {
        if (is_there(joined, rank))
            return false;
    }
    return true;
}

/* Launchers wait for ranks that are stopped. */
static void kill_stopped(const struct joined *joined)
{
    const struct region *region = joined->region;

    for (int rank = region->first; rank < region->first + region->size; rank++) {
        if (rank != joined->rank && state_of_process(joined->peers[rank].pid) == 'T')
            (void)kill(joined->peers[rank].pid, SIGKILL);
    }
}

/* What the job as a whole came to; own: what this rank's body returned. */
static enum status outcome(const struct joined *joined, enum status own, const char *text)
{
    const int stopped = region_stopped(joined->region);

    if (region_has_failed(joined->region)) {
        if (launch_is_failure(own) && own != STATUS_PEER_LOST)
            return status_set(own, text);
        return status_set(STATUS_PEER_LOST, region_failure(joined->region));
    }
    if (own == STATUS_STOPPED)
        return status_set(own, text);
    return stopped < 0 ? STATUS_OK : FAIL(STATUS_STOPPED, "rank %d was asked to stop", stopped);
}

static enum status end(struct joined *joined, enum status own)
{
    struct control control = { .kind = CONTROL_ENDED, .rank = joined->rank };
    char text[REGION_TEXT];

    launch_name_rank(joined->rank, own == STATUS_OK ? "" : status_message(), text,
                     sizeof(text));
    /* Who misses a rank that stopped before it did has not failed. */
    if (own == STATUS_PEER_LOST && region_stopped(joined->region) >= 0 &&
        !region_has_failed(joined->region))
        own = STATUS_OK;
    if (!launch_is_failure(own) && request_flush(joined->transport) != STATUS_OK) {
        own = STATUS_PEER_LOST;
        launch_name_rank(joined->rank, status_message(), text, sizeof(text));
    }
    if (launch_is_failure(own))
        region_fail(joined->region, joined->rank, text);
    region_end(joined->region, joined->rank, own, text);
    control.status = own;
    tell(joined, &control);
    wait_for_others(joined);
    const bool failed = region_has_failed(joined->region);
    the_rank_reports = failed ? is_reporter(joined) : joined->rank == 0;
    if (failed && !the_rank_reports)
        kill_stopped(joined);
    joined->world->is_lost |= failed;
    return outcome(joined, own, text);
}

/* After a failure MPI may still hold what a request of ours pointed to: that stays until the
 * process ends, which is soon. */
static void release(struct joined *joined)
{
    if (joined->monitor_runs) {
        atomic_store(&joined->is_ending, true);
        pthread_join(joined->monitor, NULL);
    }
    if (!joined->world->is_lost) {
        if (joined->is_listening)
            joined->world->face->cancel(&joined->control_message);
        region_detach(joined->transport);
        region_destroy(joined->region);
        mem_free(joined->peers);
        mem_free(joined->node_first);
        mem_free(joined);
    }
}

bool join_reports(void)
{
    return the_rank_reports;
}

enum status join_ranks(const struct launch_config *config, launch_body *body, void *arg)
{
    struct sigaction old[N_HINTS];
    struct joined *joined;
    struct world *world;

    TRY(world_open(&world));
    if (config->size != world->size)
        return FAIL(STATUS_USAGE, "%d ranks are asked for, but %d processes were started",
                    config->size, world->size);
    TRY(mem_alloc(1, sizeof(*joined), &joined));
    joined->link.ops = &mpi_ops;
    joined->world = world;
    joined->size = world->size;
    joined->stuck_ms = config->stuck_ms > 0 ? config->stuck_ms : DEFAULT_STUCK_MS;
    the_rank_reports = world->rank == 0;
    take_hints(old);
    enum status status = begin(joined, config);
    if (status == STATUS_OK)
        status = end(joined, body(joined->transport, arg));
    else
        world->is_lost = true;
    release(joined);
    give_back_hints(old);
    return status;
}
