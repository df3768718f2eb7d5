/* SPDX-License-Identifier: MIT */
/* link_mpi.c - the link to ranks of other nodes by MPI. */
#include "transport/joined.h"

enum {
    ENDED_MS = 1000, /* a message of a rank that has ended may take that long */
    ERROR_MS = 2500, /* an error of MPI may take that long to be explained by a lost rank */
};

_Static_assert(sizeof(struct mpi_message) <= sizeof(((struct transport_request *)0)->handle),
               "a message fits a request");

static struct mpi_message *message_of(struct transport_request *request)
{
    return (struct mpi_message *)request->handle;
}

/* An error of MPI is most often a rank that is gone: its monitor will say which. */
static enum status explain(struct joined *joined, const char *text)
{
    const int64_t end = joined_now_ms() + ERROR_MS;

    while (!region_has_failed(joined->region) && joined_now_ms() < end)
        clock_sleep_ms(1);
    TRY(transport_check(joined->transport));
    return joined_mpi_failed(text);
}

static enum status link_start(struct link *link, struct transport_request *request)
{
    struct joined *joined = (struct joined *)link;
    const struct mpi_face *face = joined->world->face;
    const int peer = joined->peers[request->peer].mpi_rank;
    char text[MPI_FACE_TEXT];
    int failed;

    world_lock(joined->world);
    if (request->kind == REQUEST_SEND)
        failed = face->send(MPI_CHANNEL_DATA, peer, request->tag, request->data, request->bytes,
                            message_of(request), text);
    else
        failed = face->receive(MPI_CHANNEL_DATA, peer, request->tag, request->data,
                               request->bytes, message_of(request), text);
    world_unlock(joined->world);
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

    world_lock(joined->world);
    const int failed = joined->world->face->test(message_of(request), &done, &bytes, text);
    world_unlock(joined->world);
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
        request->moved = (size_t)joined_now_ms();
    if ((size_t)joined_now_ms() - request->moved < ENDED_MS)
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
        world_lock(joined->world);
        joined->world->face->cancel(message_of(request));
        world_unlock(joined->world);
    }
    atomic_fetch_sub_explicit(&joined->n_open, 1, memory_order_relaxed);
}

/* The monitor will tell: it looks every few milliseconds. */
static void link_fail(struct link *link, int rank, const char *text)
{
    (void)link;
    (void)rank;
    (void)text;
}

const struct link_ops link_mpi_ops = {
    .start = link_start,
    .test = link_test,
    .cancel = link_cancel,
    .fail = link_fail,
};
