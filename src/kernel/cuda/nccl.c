/* SPDX-License-Identifier: MIT */
/* nccl.c - bytes between GPUs that do not open each other's memory, of one machine or several: NCCL.
 *
 * The library is opened when a team is first asked for, so that the plug-in opens where it is absent. Of NCCL messages and
 * broadcasts are used, not its sums, whose order is its own.
 *
 * Calls of a communicator return at once and are looked after until they are done, so that nobody is stuck in one whose
 * peer is gone. Who aborts may be another thread: the lock is held from begin to end, while NCCL keeps what is put, and the
 * communicator is not touched any more once `gives_up` is set.
 */
#include <dlfcn.h>
#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "kernel/cuda/cuda.h"

enum { LOOK_NS = 20 * 1000, LEAVE_LOOKS = 25 * 1000 /* two seconds */ };

struct device_team {
    ncclComm_t comm;
    struct device_stream *stream; /* between begin and end */
    pthread_mutex_t lock;
    bool gives_up; /* guarded by lock */
    pthread_t aborter;
    bool aborts; /* there is that thread */
};

/* The library ------------------------------------------------------------------------------- */

static struct {
    ncclResult_t (*get_version)(int *);
    ncclResult_t (*get_id)(ncclUniqueId *);
    ncclResult_t (*init)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
    ncclResult_t (*finalize)(ncclComm_t);
    ncclResult_t (*destroy)(ncclComm_t);
    ncclResult_t (*abort)(ncclComm_t);
    ncclResult_t (*get_async_error)(ncclComm_t, ncclResult_t *);
    const char *(*error_string)(ncclResult_t);
    const char *(*last_error)(ncclComm_t);
    ncclResult_t (*group_start)(void);
    ncclResult_t (*group_end)(void);
    ncclResult_t (*send)(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*receive)(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
    ncclResult_t (*broadcast)(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
                              cudaStream_t);
} nccl;

static const struct {
    const char *name;
    void *slot; /* of a function's address */
} symbols[] = {
    { "ncclGetVersion", &nccl.get_version },
    { "ncclGetUniqueId", &nccl.get_id },
    { "ncclCommInitRankConfig", &nccl.init },
    { "ncclCommFinalize", &nccl.finalize },
    { "ncclCommDestroy", &nccl.destroy },
    { "ncclCommAbort", &nccl.abort },
    { "ncclCommGetAsyncError", &nccl.get_async_error },
    { "ncclGetErrorString", &nccl.error_string },
    { "ncclGetLastError", &nccl.last_error },
    { "ncclGroupStart", &nccl.group_start },
    { "ncclGroupEnd", &nccl.group_end },
    { "ncclSend", &nccl.send },
    { "ncclRecv", &nccl.receive },
    { "ncclBroadcast", &nccl.broadcast },
};

static pthread_mutex_t library_lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open; /* guarded by it */

static enum status open_library(void)
{
    static const char *const names[] = { "libnccl.so.2", NCCL_FILE };
    void *library = NULL;
    char why[256] = "";

    for (size_t i = 0; i < sizeof names / sizeof *names && !library; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        if (!library && i == 0)
            (void)snprintf(why, sizeof why, "%s", dlerror());
    }
    if (!library)
        return FAIL(STATUS_UNSUPPORTED,
                    "nccl: %s: install NCCL, or name its folder in LD_LIBRARY_PATH", why);
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
        void *found = dlsym(library, symbols[i].name);
        if (!found)
            return FAIL(STATUS_UNSUPPORTED,
                        "nccl: libnccl.so.2 has no %s: install a newer NCCL", symbols[i].name);
        memcpy(symbols[i].slot, &found, sizeof found);
    }
    is_open = true;
    return STATUS_OK;
}

static enum status need_library(void)
{
    pthread_mutex_lock(&library_lock);
    const enum status status = is_open ? STATUS_OK : open_library();
    pthread_mutex_unlock(&library_lock);
    return status;
}

static enum status describe(char out[DEVICE_TEXT])
{
    int version = 0;

    TRY(need_library());
    if (nccl.get_version(&version) != ncclSuccess)
        return FAIL(STATUS_UNSUPPORTED, "nccl: it does not tell its version");
    (void)snprintf(out, DEVICE_TEXT, "NCCL %d.%d.%d", version / 10000, version / 100 % 100,
                   version % 100);
    return STATUS_OK;
}

/* Failures ---------------------------------------------------------------------------------- */

/* In one line; NCCL keeps what happened last. */
static enum status failed(ncclResult_t result, const char *what)
{
    const char *more = nccl.last_error(NULL);
    const int length = more ? (int)strcspn(more, "\n") : 0;

    if (length && strstr(more, "Duplicate GPU"))
        return FAIL(
            STATUS_UNSUPPORTED,
            "nccl: two ranks have one GPU, of which it takes one each: use as many ranks "
            "as there are GPUs, or, on one machine, leave out --flat");
    return FAIL(STATUS_IO, "nccl: %s: %s%s%.*s", what, nccl.error_string(result),
                length ? ": " : "", length, length ? more : "");
}

static enum status given_up(void)
{
    return FAIL(STATUS_PEER_LOST, "nccl: what devices send each other was given up");
}

/* What the last call has become. */
static enum status look(struct device_team *team, ncclResult_t *out)
{
    enum status status = STATUS_OK;

    pthread_mutex_lock(&team->lock);
    if (team->gives_up)
        status = given_up();
    else if (nccl.get_async_error(team->comm, out) != ncclSuccess)
        *out = ncclInternalError;
    pthread_mutex_unlock(&team->lock);
    return status;
}

static void nap(void)
{
    const struct timespec little = { .tv_nsec = LOOK_NS };

    (void)nanosleep(&little, NULL);
}

static bool never_ends(void *arg)
{
    (void)arg;
    return false;
}

/* Until a call that goes on is done. */
static enum status follow(struct device_team *team, const struct device_patience *patience,
                          const char *what)
{
    ncclResult_t result = ncclInProgress;

    for (;;) {
        TRY(look(team, &result));
        if (result != ncclInProgress)
            return result == ncclSuccess ? STATUS_OK : failed(result, what);
        if (patience->ends(patience->arg))
            return FAIL(STATUS_PEER_LOST, "nccl: %s: not all ranks have come", what);
        nap();
    }
}

/* Groups ------------------------------------------------------------------------------------ */

static enum status make_id(struct device *device, int count, struct device_team_id *out)
{
    ncclUniqueId id;

    (void)count;
    _Static_assert(sizeof id == sizeof *out, "an id is NCCL's");
    TRY(need_library());
    TRY_CUDA(cudaSetDevice(cuda_number(device)));
    const ncclResult_t result = nccl.get_id(&id);
    if (result != ncclSuccess)
        return failed(result, "a new team");
    memcpy(out, &id, sizeof *out);
    return STATUS_OK;
}

static void *abort_comm(void *arg)
{
    (void)nccl.abort(((struct device_team *)arg)->comm);
    return NULL;
}

/* By any thread, once. NCCL may have to wait for graphs to go: nobody else waits for that, as another team, or other words,
 * may be what a stream is stuck in. */
static void give_up(struct device_team *team)
{
    pthread_mutex_lock(&team->lock);
    const bool is_first = !team->gives_up;
    team->gives_up = true;
    pthread_mutex_unlock(&team->lock);
    if (!is_first || !team->comm)
        return;
    team->aborts = pthread_create(&team->aborter, NULL, abort_comm, team) == 0;
    if (!team->aborts)
        (void)nccl.abort(team->comm);
}

/* Lets what is on its way to others arrive. */
static void leave(struct device_team *team)
{
    ncclResult_t result = nccl.finalize(team->comm);

    for (int i = 0; i < LEAVE_LOOKS && result == ncclInProgress; i++) {
        nap();
        if (nccl.get_async_error(team->comm, &result) != ncclSuccess)
            result = ncclInternalError;
    }
    (void)(result == ncclSuccess ? nccl.destroy(team->comm) : nccl.abort(team->comm));
}

static void destroy(struct device_team *team)
{
    if (!team)
        return;
    if (team->aborts)
        (void)pthread_join(team->aborter, NULL);
    if (team->comm && !team->gives_up)
        leave(team);
    pthread_mutex_destroy(&team->lock);
    mem_free(team);
}

/* NCCL takes ranks to be on one machine whose host has the same name, and refuses two of them on one GPU. Here nodes say
 * what is a machine, so that with --flat each rank is one. Whoever has set the name keeps it. */
static void name_host(int node)
{
    char name[32];

    (void)snprintf(name, sizeof name, "tutti-node-%d", node);
    (void)setenv("NCCL_HOSTID", name, 0);
}

static enum status join(struct device_team *team, const struct device_team_id *made,
                        const struct device_member *member,
                        const struct device_patience *patience)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;

    memcpy(&id, made, sizeof id);
    config.blocking = 0;
    name_host(member->node);
    const ncclResult_t result =
        nccl.init(&team->comm, member->count, id, member->rank, &config);
    if (result != ncclSuccess && result != ncclInProgress)
        return failed(result, "a team of GPUs");
    return follow(team, patience, "a team of GPUs");
}

static enum status create(struct device *device, const struct device_team_id *id,
                          const struct device_member *member,
                          const struct device_patience *patience, struct device_team **out)
{
    struct device_team *team;

    TRY(need_library());
    TRY_CUDA(cudaSetDevice(cuda_number(device)));
    TRY(mem_alloc(1, sizeof *team, &team));
    pthread_mutex_init(&team->lock, NULL);
    const enum status status = join(team, id, member, patience);
    if (status != STATUS_OK) {
        give_up(team);
        destroy(team);
        return status;
    }
    *out = team;
    return STATUS_OK;
}

static enum status check(struct device_team *team)
{
    ncclResult_t result = ncclSuccess;

    TRY(look(team, &result));
    return result == ncclSuccess || result == ncclInProgress
               ? STATUS_OK
               : failed(result, "GPUs that exchange bytes");
}

/* Messages ---------------------------------------------------------------------------------- */

static enum status begin(struct device_team *team, struct device_stream *stream)
{
    pthread_mutex_lock(&team->lock);
    team->stream = stream;
    if (!team->gives_up)
        (void)nccl.group_start();
    return STATUS_OK;
}

/* What NCCL says to a message between begin and end. */
static enum status said(ncclResult_t result, const char *what)
{
    return result == ncclSuccess || result == ncclInProgress ? STATUS_OK : failed(result, what);
}

static enum status put_send(struct device_team *team, const void *data, size_t bytes, int peer)
{
    if (team->gives_up)
        return given_up();
    return said(nccl.send(data, bytes, ncclUint8, peer, team->comm, team->stream->cuda),
                "send");
}

static enum status put_receive(struct device_team *team, void *data, size_t bytes, int peer)
{
    if (team->gives_up)
        return given_up();
    return said(nccl.receive(data, bytes, ncclUint8, peer, team->comm, team->stream->cuda),
                "receive");
}

static enum status put_broadcast(struct device_team *team, void *data, size_t bytes, int root)
{
    if (team->gives_up)
        return given_up();
    return said(
        nccl.broadcast(data, data, bytes, ncclUint8, root, team->comm, team->stream->cuda),
        "broadcast");
}

/* A first message between two ranks makes their connection, which takes a while. */
static enum status end(struct device_team *team)
{
    static const struct device_patience any = { .ends = never_ends };
    const bool gives_up = team->gives_up;
    const ncclResult_t result = gives_up ? ncclSuccess : nccl.group_end();

    pthread_mutex_unlock(&team->lock);
    if (gives_up)
        return given_up();
    return result == ncclInProgress ? follow(team, &any, "messages") : said(result, "messages");
}

const struct device_team_ops cuda_team_ops = {
    .describe = describe,
    .make_id = make_id,
    .create = create,
    .abort = give_up,
    .destroy = destroy,
    .check = check,
    .begin = begin,
    .send = put_send,
    .receive = put_receive,
    .broadcast = put_broadcast,
    .end = end,
};
