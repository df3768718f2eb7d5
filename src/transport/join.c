/* SPDX-License-Identifier: MIT */
/* join.c - the ranks of an MPI job: where they are, what they share, how they begin and end.
 *
 * Ranks are numbered anew: nodes in the order of their lowest MPI rank, within a node in that of
 * MPI. The first rank of a node makes the region in a file in memory; the others open it
 * through /proc and map it at the same address, for which some are tried.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"
#include "transport/guard.h"
#include "transport/joined.h"
#include "transport/starter.h"

enum {
    DEFAULT_STUCK_MS = 2000,
    TELL_MS = 300, /* how long a rank stays to tell others of a failure */
    N_ADDRESSES = 8,
};

/* What ranks tell each other before anything else. */
struct hello {
    int32_t lowest; /* MPI rank on its machine */
    int32_t pid;
    char host[JOINED_HOST];
    cpu_set_t cpus;
};

/* How ranks of a node find the region. */
struct offer {
    uint64_t address, bytes; /* 0: not made */
    int32_t pid, fd;
    char text[160];
};

static bool the_rank_reports = true; /* of the last job; read after it */
static bool has_begun;

/* Numbers ------------------------------------------------------------------------------------- */

static enum status gather(struct world *world, const void *mine, size_t bytes, void *all)
{
    char text[MPI_FACE_TEXT];

    return world->face->gather(mine, bytes, all, text) == 0 ? STATUS_OK
                                                            : joined_mpi_failed(text);
}

static enum status say_hello(struct joined *joined, bool is_flat, struct hello *all)
{
    struct hello mine = { .lowest = joined->world->rank, .pid = (int32_t)getpid() };
    char text[MPI_FACE_TEXT];
    int lowest;

    if (joined->world->face->lowest_of_node(&lowest, text) != 0)
        return joined_mpi_failed(text);
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
            peer->heard_ms = joined_now_ms();
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
static void make_region(struct joined *joined, const struct launch_config *launch, int attempt,
                        struct offer *out, int *out_fd)
{
    const int fd = memfd_create("tutti", MFD_CLOEXEC);
    const struct region_config config = {
        .first = joined->node_first[joined->node],
        .size = joined->node_first[joined->node + 1] - joined->node_first[joined->node],
        .job_size = joined->size,
        .bytes = launch->shared_bytes,
        .message_bytes = launch->message_bytes,
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
static enum status try_address(struct joined *joined, const struct launch_config *launch,
                               int attempt, struct offer *offers)
{
    const int first = joined->node_first[joined->node];
    struct offer mine = { 0 };
    enum status status;
    int fd = -1;

    if (joined_is_first_of_node(joined))
        make_region(joined, launch, attempt, &mine, &fd);
    status = gather(joined->world, &mine, sizeof(mine), offers);
    const struct offer *made = &offers[joined->peers[first].mpi_rank];
    if (status == STATUS_OK && !joined_is_first_of_node(joined) && made->bytes > 0)
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

static enum status share_region(struct joined *joined, const struct launch_config *launch)
{
    enum status status = STATUS_OK;
    struct offer *offers;

    TRY(mem_alloc((size_t)joined->size, sizeof(*offers), &offers));
    for (int attempt = 0; attempt < N_ADDRESSES; attempt++) {
        status = try_address(joined, launch, attempt, offers);
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
        status = share_region(joined, config);
    }
    BUG_ON(status == STATUS_OK && !joined->region);
    if (status == STATUS_OK && joined_is_first_of_node(joined))
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
        return joined_mpi_failed(text);
    TRY(find_place(joined, config));
    TRY(mem_alloc((size_t)joined->n_nodes * (size_t)joined->n_nodes, sizeof(int64_t),
                  &joined->missed_ms));
    const struct place place = {
        .rank = joined->rank,
        .name = "mpi",
        .n_nodes = joined->n_nodes,
        .node_first = joined->node_first,
        .link = joined->n_nodes > 1 ? &joined->link : NULL,
    };
    atomic_store(&region_slot(joined->region, joined->rank)->pid, (int)getpid());
    TRY(region_attach(joined->region, &place, &joined->transport));
    guard_set_deadline(joined->stuck_ms);
    return monitor_begin(joined);
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

/* Stays until every rank has ended, or until the others can know of a failure. */
static void wait_for_others(struct joined *joined)
{
    while (!all_have_ended(joined) && !region_has_failed(joined->region))
        clock_sleep_ms(1);
    const int64_t end = joined_now_ms() + TELL_MS;
    while (!monitor_has_told(joined) && joined_now_ms() < end)
        clock_sleep_ms(1);
}

/* Will that rank get to report the failure? */
static bool is_there(const struct joined *joined, int rank)
{
    const int lost = joined->region->failed_rank;

    if (region_has_ended(joined->region, rank))
        return true;
    if (region_holds(joined->region, rank))
        return strchr("XZT", starter_state_of(joined->peers[rank].pid)) == NULL;
    return transport_node_of(joined->transport, rank) !=
           transport_node_of(joined->transport, lost);
}

/* The lowest rank that is there reports, unless it is the one that the others lost. */
static int find_reporter(const struct joined *joined, enum status own)
{
    for (int rank = 0; rank < joined->rank; rank++) {
        if (is_there(joined, rank))
            return rank;
    }
    const bool is_lost = joined->region->failed_rank == joined->rank && own == STATUS_PEER_LOST;
    return is_lost ? -1 : joined->rank;
}

/* Of a rank that was lost every other one reports: nobody else may have seen it. What a rank
 * failed of itself, and a stop, is said once. */
static bool reports(const struct joined *joined, enum status own)
{
    if (!region_has_failed(joined->region))
        return joined->rank == 0;
    if (joined->region->failed_is_loss)
        return joined->region->failed_rank != joined->rank || joined->is_cut_off;
    return find_reporter(joined, own) == joined->rank;
}

/* What the job as a whole came to; own: what this rank's body returned. */
static enum status outcome(const struct joined *joined, enum status own, const char *text)
{
    const int stopped = region_stopped(joined->region);

    if (region_has_failed(joined->region)) {
        if (launch_is_failure(own) && own != STATUS_PEER_LOST)
            return status_set(own, text);
        if (joined->region->failed_is_loss)
            return FAIL(STATUS_PEER_LOST, "rank %d: %s", joined->rank,
                        region_failure(joined->region));
        return status_set(STATUS_PEER_LOST, region_failure(joined->region));
    }
    if (own == STATUS_STOPPED || own == STATUS_PREEMPTED)
        return status_set(own, text);
    return stopped < 0 ? STATUS_OK : FAIL(STATUS_STOPPED, "rank %d was asked to stop", stopped);
}

static enum status end(struct joined *joined, enum status own)
{
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
    monitor_tell_end(joined, own);
    wait_for_others(joined);
    the_rank_reports = reports(joined, own);
    if (region_has_failed(joined->region)) {
        joined->world->is_lost = true;
        guard_note_failure();
    }
    return outcome(joined, own, text);
}

/* After a failure MPI may still hold what a request of ours pointed to: that stays until the
 * process ends, which is soon. */
static void release(struct joined *joined)
{
    monitor_end(joined);
    if (!joined->world->is_lost) {
        guard_set_deadline(0);
        region_detach(joined->transport);
        region_destroy(joined->region);
        mem_free(joined->missed_ms);
        mem_free(joined->peers);
        mem_free(joined->node_first);
        mem_free(joined);
    }
}

bool join_has_begun(void)
{
    return has_begun;
}

bool join_reports(void)
{
    return the_rank_reports;
}

enum status join_ranks(const struct launch_config *config, launch_body *body, void *arg)
{
    struct joined *joined;
    struct world *world;

    TRY(world_open(&world));
    if (config->size != world->size)
        return FAIL(STATUS_USAGE, "%d ranks are asked for, but %d processes were started",
                    config->size, world->size);
    TRY(mem_alloc(1, sizeof(*joined), &joined));
    joined->link.ops = &link_mpi_ops;
    joined->world = world;
    joined->size = world->size;
    joined->stuck_ms = config->stuck_ms > 0 ? config->stuck_ms : DEFAULT_STUCK_MS;
    the_rank_reports = world->rank == 0;
    guard_note_waiting(true);
    enum status status = begin(joined, config);
    guard_note_waiting(false);
    has_begun |= status == STATUS_OK;
    if (status == STATUS_OK)
        status = end(joined, body(joined->transport, arg));
    else
        world->is_lost = true;
    release(joined);
    return status;
}
