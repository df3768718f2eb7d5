/* SPDX-License-Identifier: MIT */
/* inproc.c - threads of one process as ranks, over the same region as processes use; on one
 * node or on several pretended ones.
 *
 * The link between pretended nodes lists the sends and the receives that wait for their
 * counterpart. Whoever comes second copies the bytes, so a send is done when it is received:
 * a link that holds nothing back is the strictest one to test with.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "transport/region.h"

/* Address space for transport_share: little, as tests make and drop regions by the hundred. */
static const size_t heap_bytes = (size_t)4 << 30;

/* What the nodes of a job have in common. Guarded by lock, but for what is never changed. */
struct meeting {
    int n_nodes, size;
    int *node_first; /* [n_nodes + 1] */
    struct region **regions;
    struct inproc_link *links; /* one a rank */
    pthread_mutex_t lock;
    struct transport_request **waiting; /* [from][to] sends, then receives likewise */
};

struct inproc_link {
    struct link link;
    struct meeting *meeting;
    int rank;
};

/* The link ---------------------------------------------------------------------------------- */

static struct transport_request **list_of(struct meeting *meeting, enum request_kind kind,
                                          int from, int to)
{
    const size_t size = (size_t)meeting->size;
    const size_t at = (size_t)from * size + (size_t)to;

    return &meeting->waiting[kind == REQUEST_SEND ? at : size * size + at];
}

static struct transport_request *take_first(struct transport_request **list, uint32_t tag)
{
    for (; *list; list = &(*list)->next) {
        struct transport_request *request = *list;
        if (request->tag == tag) {
            *list = request->next;
            return request;
        }
    }
    return NULL;
}

static void hand_over(struct transport_request *send, struct transport_request *receive)
{
    memcpy(receive->data, send->data,
           send->bytes < receive->bytes ? send->bytes : receive->bytes);
    receive->length = send->bytes;
    send->done = receive->done = true;
}

static enum status start(struct link *link, struct transport_request *request)
{
    const struct inproc_link *own = (struct inproc_link *)link;
    struct meeting *meeting = own->meeting;
    const bool sends = request->kind == REQUEST_SEND;
    const int from = sends ? own->rank : request->peer, to = sends ? request->peer : own->rank;

    pthread_mutex_lock(&meeting->lock);
    struct transport_request *other = take_first(
        list_of(meeting, sends ? REQUEST_RECEIVE : REQUEST_SEND, from, to), request->tag);
    if (other) {
        hand_over(sends ? request : other, sends ? other : request);
    } else {
        struct transport_request **end = list_of(meeting, request->kind, from, to);
        while (*end)
            end = &(*end)->next;
        request->next = NULL;
        *end = request;
    }
    pthread_mutex_unlock(&meeting->lock);
    return STATUS_OK;
}

/* Whoever came second has done it all. */
static enum status test(struct link *link, struct transport_request *request, bool *out_done)
{
    struct meeting *meeting = ((struct inproc_link *)link)->meeting;

    pthread_mutex_lock(&meeting->lock);
    *out_done = request->done;
    pthread_mutex_unlock(&meeting->lock);
    return STATUS_OK;
}

static void cancel(struct link *link, struct transport_request *request)
{
    struct meeting *meeting = ((struct inproc_link *)link)->meeting;
    const size_t n_lists = 2 * (size_t)meeting->size * (size_t)meeting->size;

    pthread_mutex_lock(&meeting->lock);
    for (size_t i = 0; i < n_lists; i++) {
        struct transport_request **at = &meeting->waiting[i];
        while (*at && *at != request)
            at = &(*at)->next;
        if (*at)
            *at = request->next;
    }
    pthread_mutex_unlock(&meeting->lock);
}

static void fail(struct link *link, int rank, const char *text)
{
    const struct meeting *meeting = ((struct inproc_link *)link)->meeting;

    for (int node = 0; node < meeting->n_nodes; node++)
        region_fail(meeting->regions[node], rank, text);
}

static const struct link_ops inproc_ops = {
    .start = start,
    .test = test,
    .cancel = cancel,
    .fail = fail,
};

/* Ends -------------------------------------------------------------------------------------- */

static void destroy_meeting(struct meeting *meeting)
{
    if (!meeting)
        return;
    for (int node = 0; meeting->regions && node < meeting->n_nodes; node++)
        region_destroy(meeting->regions[node]);
    pthread_mutex_destroy(&meeting->lock);
    mem_free(meeting->waiting);
    mem_free(meeting->links);
    mem_free(meeting->regions);
    mem_free(meeting->node_first);
    mem_free(meeting);
}

static enum status fill_meeting(struct meeting *meeting)
{
    const size_t size = (size_t)meeting->size;

    pthread_mutex_init(&meeting->lock, NULL);
    TRY(mem_alloc((size_t)meeting->n_nodes + 1, sizeof(int), &meeting->node_first));
    TRY(mem_alloc((size_t)meeting->n_nodes, sizeof(*meeting->regions), &meeting->regions));
    TRY(mem_alloc(size, sizeof(*meeting->links), &meeting->links));
    TRY(mem_alloc(2 * size * size, sizeof(*meeting->waiting), &meeting->waiting));
    for (int node = 0; node < meeting->n_nodes; node++) {
        const int first = node * meeting->size / meeting->n_nodes;
        const int end = (node + 1) * meeting->size / meeting->n_nodes;
        meeting->node_first[node + 1] = end;
        const struct region_config config = { .first = first,
                                              .size = end - first,
                                              .job_size = meeting->size,
                                              .bytes = heap_bytes,
                                              .fd = -1 };
        TRY(region_create_as(&config, &meeting->regions[node]));
        meeting->regions[node]->can_lose = true;
    }
    for (int rank = 0; rank < meeting->size; rank++)
        meeting->links[rank] =
            (struct inproc_link){ .link.ops = &inproc_ops, .meeting = meeting, .rank = rank };
    return STATUS_OK;
}

static enum status attach(struct meeting *meeting, int rank, struct transport **out)
{
    const struct place place = {
        .rank = rank,
        .name = "inproc",
        .n_nodes = meeting->n_nodes,
        .node_first = meeting->node_first,
        .link = meeting->n_nodes > 1 ? &meeting->links[rank].link : NULL,
    };
    int node = 0;

    while (meeting->node_first[node + 1] <= rank)
        node++;
    TRY(region_attach(meeting->regions[node], &place, out));
    (*out)->owner = meeting;
    return STATUS_OK;
}

enum status transport_inproc_create_nodes(int size, int nodes, struct transport **ends)
{
    struct meeting *meeting;
    int n_attached = 0;

    if (size < 1 || size > REGION_RANKS)
        return FAIL(STATUS_USAGE, "%d ranks are not between 1 and %d", size, REGION_RANKS);
    if (nodes < 1 || nodes > size)
        return FAIL(STATUS_USAGE, "%d nodes are not between 1 and %d", nodes, size);
    TRY(mem_alloc(1, sizeof(*meeting), &meeting));
    meeting->size = size;
    meeting->n_nodes = nodes;
    enum status status = fill_meeting(meeting);
    while (status == STATUS_OK && n_attached < size) {
        status = attach(meeting, n_attached, &ends[n_attached]);
        n_attached += status == STATUS_OK;
    }
    if (status != STATUS_OK) {
        while (n_attached-- > 0)
            region_detach(ends[n_attached]);
        destroy_meeting(meeting);
    }
    return status;
}

enum status transport_inproc_create(int size, struct transport **ends)
{
    return transport_inproc_create_nodes(size, 1, ends);
}

void transport_inproc_lose(struct transport *end)
{
    const struct meeting *meeting = end->owner;
    char text[64];

    (void)snprintf(text, sizeof(text), "rank %d was lost", end->rank);
    BUG_ON(!region_give_up(end->region, end->rank, text));
    for (int node = 0; node < meeting->n_nodes; node++) {
        if (!region_holds(meeting->regions[node], end->rank))
            region_lose_far(meeting->regions[node], end->rank);
    }
}

void transport_inproc_destroy(struct transport **ends, int size)
{
    struct meeting *meeting = ends[0]->owner;

    for (int rank = 0; rank < size; rank++)
        region_detach(ends[rank]);
    destroy_meeting(meeting);
}
