/* SPDX-License-Identifier: MIT */
/* message.c - tagged messages over shared memory.
 *
 * Each ordered pair of ranks has a ring of bytes. A message is a header and its
 * bytes; one longer than the ring streams through it in pieces. The receiving
 * rank takes whatever is in the ring: into the buffer of a receive that asked
 * for that tag, else into memory of its own, kept until someone asks. So a message
 * of one tag never blocks one of another.
 *
 * Sends of a pair stand in a line; whoever has time writes what there is room for. Nobody waits
 * here. Who waits calls message_test again and again, and that moves all that its rank has
 * under way, so any number of requests may cross each other. A sender that finds no room also
 * takes in what has arrived for its own rank, asked for or not: two ranks may send each
 * other more than a ring holds before either receives.
 *
 * Whoever changes a ring raises the other rank's bell. A waiter reads its bell, looks
 * at the rings, and sleeps only while the bell has not changed since.
 */
#include <string.h>

#include "base/mem.h"
#include "transport/region.h"

enum { PIECE = 64 << 10 };

struct header {
    uint64_t length;
    uint32_t tag, unused;
};

/* A message that arrived before it was asked for. */
struct message {
    struct message *next;
    size_t length;
    uint32_t tag;
    char data[];
};

static const size_t kept_maximum = (size_t)1 << 30; /* unasked bytes kept a peer */

enum status message_init(struct transport *transport)
{
    const size_t size = (size_t)transport->region->size;

    TRY(mem_alloc(size, sizeof(*transport->incoming), &transport->incoming));
    for (size_t at = 0; at < size; at++)
        pthread_mutex_init(&transport->incoming[at].lock, NULL);
    TRY(mem_alloc(size, sizeof(*transport->outgoing), &transport->outgoing));
    for (size_t at = 0; at < size; at++)
        pthread_mutex_init(&transport->outgoing[at].lock, NULL);
    return STATUS_OK;
}

void message_release(struct transport *transport)
{
    for (int at = 0; transport->incoming && at < transport->region->size; at++) {
        struct incoming *in = &transport->incoming[at];

        while (in->first) {
            struct message *next = in->first->next;
            mem_free(in->first);
            in->first = next;
        }
        pthread_mutex_destroy(&in->lock);
    }
    for (int at = 0; transport->outgoing && at < transport->region->size; at++)
        pthread_mutex_destroy(&transport->outgoing[at].lock);
    mem_free(transport->outgoing);
    mem_free(transport->incoming);
}

static struct incoming *incoming_of(const struct transport *transport, int peer)
{
    return &transport->incoming[peer - transport->region->first];
}

static struct outgoing *outgoing_of(const struct transport *transport, int peer)
{
    return &transport->outgoing[peer - transport->region->first];
}

/* Lists of requests ----------------------------------------------------------------------- */

static void append(struct transport_request **list, struct transport_request *request)
{
    while (*list)
        list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

static void take_out(struct transport_request **list, const struct transport_request *request)
{
    for (; *list; list = &(*list)->next) {
        if (*list == request) {
            *list = request->next;
            return;
        }
    }
}

/* The ring's bytes ---------------------------------------------------------------------- */

static void ring_put(struct ring *ring, size_t capacity, uint32_t at, const void *from,
                     size_t bytes)
{
    const size_t start = at & (capacity - 1);
    const size_t head = bytes < capacity - start ? bytes : capacity - start;

    memcpy(ring->data + start, from, head);
    memcpy(ring->data, (const char *)from + head, bytes - head);
}

static void ring_get(const struct ring *ring, size_t capacity, uint32_t at, void *to,
                     size_t bytes)
{
    const size_t start = at & (capacity - 1);
    const size_t head = bytes < capacity - start ? bytes : capacity - start;

    memcpy(to, ring->data + start, head);
    memcpy((char *)to + head, ring->data, bytes - head);
}

/* Taking in ----------------------------------------------------------------------------- */

static struct message *find_kept(const struct incoming *in, uint32_t tag)
{
    struct message *message = in->first;

    while (message && message->tag != tag)
        message = message->next;
    return message;
}

static void remove_kept(struct incoming *in, struct message *message)
{
    struct message *before = NULL;

    for (struct message *at = in->first; at != message; at = at->next)
        before = at;
    *(before ? &before->next : &in->first) = message->next;
    if (in->last == message)
        in->last = before;
    in->kept_bytes -= message->length;
    mem_free(message);
}

static void finish_receive(struct transport *transport, struct transport_request *request,
                           size_t length)
{
    request->length = length;
    request->done = true;
    atomic_fetch_sub_explicit(&transport->n_receives, 1, memory_order_relaxed);
}

static bool fits(const struct transport_request *request, size_t length)
{
    return length == request->bytes || (request->may_be_shorter && length < request->bytes);
}

/* The first waiting receive of that tag; NULL if there is none, or its length differs (then it
 * is over and the message is kept). */
static struct transport_request *take_posted(struct transport *transport, struct incoming *in,
                                             const struct header *header)
{
    struct transport_request *request = in->posted;

    while (request && request->tag != header->tag)
        request = request->next;
    if (!request)
        return NULL;
    take_out(&in->posted, request);
    if (fits(request, header->length)) {
        request->length = header->length;
        return request;
    }
    finish_receive(transport, request, header->length);
    return NULL;
}

static enum status keep(struct transport *transport, int peer, const struct header *header,
                        struct message **out)
{
    struct incoming *in = incoming_of(transport, peer);

    if (header->length > kept_maximum - in->kept_bytes)
        return FAIL(STATUS_NO_MEMORY,
                    "rank %d sent more than %zu bytes that rank %d does not receive", peer,
                    kept_maximum, transport->rank);
    TRY(mem_alloc(1, sizeof(struct message) + header->length, out));
    struct message *message = *out;
    message->tag = header->tag;
    message->length = header->length;
    in->kept_bytes += message->length;
    *(in->last ? &in->last->next : &in->first) = message;
    in->last = message;
    return STATUS_OK;
}

/* Finds where the next message goes. */
static enum status begin_message(struct transport *transport, int peer,
                                 const struct header *header)
{
    struct incoming *in = incoming_of(transport, peer);

    in->message = NULL;
    in->request = take_posted(transport, in, header);
    if (in->request) {
        in->target = in->request->data;
    } else {
        TRY(keep(transport, peer, header, &in->message));
        in->target = in->message->data;
    }
    in->left = header->length;
    in->arriving = true;
    return STATUS_OK;
}

static void end_message(struct transport *transport, struct incoming *in)
{
    if (in->request)
        finish_receive(transport, in->request, in->request->length);
    in->request = NULL;
    in->message = NULL;
    in->arriving = false;
}

/* Takes all that peer's ring holds; the caller holds the lock. *out_moved: anything taken. */
static enum status take_in(struct transport *transport, int peer, bool *out_moved)
{
    struct region *region = transport->region;
    struct incoming *in = incoming_of(transport, peer);
    struct ring *ring = region_ring(region, peer, transport->rank);
    const uint32_t written = atomic_load_explicit(&ring->written, memory_order_acquire);
    const uint32_t start = atomic_load_explicit(&ring->read, memory_order_relaxed);
    uint32_t at = start;
    enum status status = STATUS_OK;

    if (in->broken)
        return FAIL(STATUS_PEER_LOST, "a message from rank %d was cut short", peer);
    while (at != written || (in->arriving && in->left == 0)) {
        if (!in->arriving) { /* a header is written as a whole */
            struct header header;
            ring_get(ring, region->ring_bytes, at, &header, sizeof(header));
            status = begin_message(transport, peer, &header);
            if (status != STATUS_OK)
                break;
            at += (uint32_t)sizeof(header);
        }
        const size_t here = written - at;
        const size_t bytes = in->left < here ? in->left : here;
        ring_get(ring, region->ring_bytes, at, in->target, bytes);
        at += (uint32_t)bytes;
        in->target += bytes;
        in->left -= bytes;
        if (in->left == 0)
            end_message(transport, in);
        else if (bytes == 0)
            break;
    }
    if (at != start) {
        *out_moved = true;
        atomic_store_explicit(&ring->read, at, memory_order_release);
        transport_raise(&region_slot(region, peer)->bell, 1);
    }
    return status;
}

/* From every peer that no other thread serves; asked_only: from those with a receive posted. */
static enum status take_in_all(struct transport *transport, bool asked_only, bool *out_moved)
{
    const int first = transport->region->first;
    enum status status = STATUS_OK;

    for (int at = 0; at < transport->region->size && status == STATUS_OK; at++) {
        struct incoming *in = &transport->incoming[at];

        if (pthread_mutex_trylock(&in->lock) != 0)
            continue;
        /* What a dead rank left half-way concerns only who asks for it. */
        if (!in->broken && (!asked_only || in->posted || in->request))
            status = take_in(transport, first + at, out_moved);
        pthread_mutex_unlock(&in->lock);
    }
    return status;
}

/* Sending ------------------------------------------------------------------------------- */

/* Writes the next piece of a send: its header if that is still to come, and then bytes. False
 * if there is no room. */
static bool put_piece(struct transport *transport, struct transport_request *request)
{
    struct region *region = transport->region;
    struct ring *ring = region_ring(region, transport->rank, request->peer);
    const size_t quarter = region->ring_bytes / 4;
    const size_t piece = quarter < PIECE ? quarter : PIECE; /* so that both ends copy at once */
    const uint32_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
    const uint32_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
    size_t room = region->ring_bytes - (written - read);
    uint32_t at = written;

    if (room < sizeof(struct header)) /* then it waits for more than a few bytes anyway */
        return false;
    if (!request->handle[0]) {
        const struct header header = { .length = request->bytes, .tag = request->tag };
        ring_put(ring, region->ring_bytes, at, &header, sizeof(header));
        at += (uint32_t)sizeof(header);
        room -= sizeof(header);
        request->handle[0] = 1;
    }
    size_t bytes = request->bytes - request->moved;
    bytes = bytes < room ? bytes : room;
    bytes = bytes < piece ? bytes : piece;
    ring_put(ring, region->ring_bytes, at, request->data + request->moved, bytes);
    request->moved += bytes;
    atomic_store_explicit(&ring->written, at + (uint32_t)bytes, memory_order_release);
    transport_raise(&region_slot(region, request->peer)->bell, 1);
    return true;
}

/* Writes what there is room for; the caller holds the lock. */
static void put_all(struct transport *transport, struct outgoing *out, bool *out_moved)
{
    while (out->first && put_piece(transport, out->first)) {
        struct transport_request *request = out->first;

        *out_moved = true;
        if (request->moved < request->bytes)
            continue;
        out->first = request->next;
        request->done = true;
        atomic_fetch_sub_explicit(&transport->n_sends, 1, memory_order_relaxed);
    }
}

/* Requests ------------------------------------------------------------------------------ */

static enum status start_send(struct transport *transport, struct transport_request *request)
{
    struct outgoing *out = outgoing_of(transport, request->peer);
    bool moved, broken;

    request->handle[0] = 0; /* the header is to come */
    pthread_mutex_lock(&out->lock);
    broken = out->broken;
    if (!broken) {
        append(&out->first, request);
        atomic_fetch_add_explicit(&transport->n_sends, 1, memory_order_relaxed);
        put_all(transport, out, &moved);
    }
    pthread_mutex_unlock(&out->lock);
    if (broken)
        return FAIL(STATUS_PEER_LOST, "a message to rank %d was cut short", request->peer);
    return STATUS_OK;
}

/* Lets the receive have what is kept: all of it, or what has arrived and then the rest. */
static void receive_kept(struct transport *transport, struct incoming *in,
                         struct message *message, struct transport_request *request)
{
    const bool is_arriving = in->message == message;
    const size_t here = is_arriving ? message->length - in->left : message->length;

    if (!fits(request, message->length)) {
        finish_receive(transport, request, message->length);
        return;
    }
    request->length = message->length;
    memcpy(request->data, message->data, here);
    remove_kept(in, message);
    if (is_arriving) {
        in->message = NULL;
        in->request = request;
        in->target = request->data + here;
    } else {
        finish_receive(transport, request, here);
    }
}

static void start_receive(struct transport *transport, struct transport_request *request)
{
    struct incoming *in = incoming_of(transport, request->peer);

    atomic_fetch_add_explicit(&transport->n_receives, 1, memory_order_relaxed);
    pthread_mutex_lock(&in->lock);
    struct message *message = find_kept(in, request->tag);
    if (message)
        receive_kept(transport, in, message, request);
    else
        append(&in->posted, request);
    pthread_mutex_unlock(&in->lock);
}

enum status message_start(struct transport *transport, struct transport_request *request)
{
    if (request->kind == REQUEST_SEND)
        return start_send(transport, request);
    start_receive(transport, request);
    return STATUS_OK;
}

static enum status test_receive(struct transport *transport, struct transport_request *request,
                                bool *out_done, bool *out_moved)
{
    struct incoming *in = incoming_of(transport, request->peer);
    enum status status = STATUS_OK;

    pthread_mutex_lock(&in->lock);
    if (!request->done)
        status = take_in(transport, request->peer, out_moved);
    *out_done = request->done;
    pthread_mutex_unlock(&in->lock);
    return *out_done ? STATUS_OK : status;
}

static enum status test_send(struct transport *transport, struct transport_request *request,
                             bool *out_done, bool *out_moved)
{
    struct outgoing *out = outgoing_of(transport, request->peer);

    pthread_mutex_lock(&out->lock);
    put_all(transport, out, out_moved);
    *out_done = request->done;
    pthread_mutex_unlock(&out->lock);
    if (*out_done || *out_moved)
        return STATUS_OK;
    return take_in_all(transport, false, out_moved);
}

enum status message_progress(struct transport *transport, bool *out_moved)
{
    const int n_sends = atomic_load_explicit(&transport->n_sends, memory_order_relaxed);

    for (int at = 0; n_sends > 0 && at < transport->region->size; at++) {
        struct outgoing *out = &transport->outgoing[at];

        if (pthread_mutex_trylock(&out->lock) != 0)
            continue;
        put_all(transport, out, out_moved);
        pthread_mutex_unlock(&out->lock);
    }
    if (atomic_load_explicit(&transport->n_receives, memory_order_relaxed) == 0)
        return STATUS_OK;
    return take_in_all(transport, true, out_moved);
}

enum status message_test(struct transport *transport, struct transport_request *request,
                         bool *out_done, bool *out_moved)
{
    const bool ended = region_has_ended(transport->region, request->peer);
    const bool sends = request->kind == REQUEST_SEND;

    *out_moved = false;
    TRY((sends ? test_send : test_receive)(transport, request, out_done, out_moved));
    if (*out_done || *out_moved)
        return STATUS_OK;
    const int others = atomic_load_explicit(&transport->n_sends, memory_order_relaxed) +
                       atomic_load_explicit(&transport->n_receives, memory_order_relaxed);
    if (others > 1)
        TRY(message_progress(transport, out_moved));
    if (*out_moved || !ended)
        return STATUS_OK;
    return FAIL(STATUS_PEER_LOST,
                sends ? "rank %d has ended while rank %d sends to it"
                      : "rank %d has ended while rank %d waits for a message from it",
                request->peer, transport->rank);
}

void message_cancel(struct transport *transport, struct transport_request *request)
{
    if (request->kind == REQUEST_SEND) {
        struct outgoing *out = outgoing_of(transport, request->peer);

        pthread_mutex_lock(&out->lock);
        if (!request->done) {
            out->broken |= request->handle[0] != 0; /* the peer waits for the rest */
            take_out(&out->first, request);
            atomic_fetch_sub_explicit(&transport->n_sends, 1, memory_order_relaxed);
        }
        pthread_mutex_unlock(&out->lock);
    } else {
        struct incoming *in = incoming_of(transport, request->peer);

        pthread_mutex_lock(&in->lock);
        if (!request->done) {
            in->broken |= in->request == request; /* nothing may follow into its data */
            take_out(&in->posted, request);
            atomic_fetch_sub_explicit(&transport->n_receives, 1, memory_order_relaxed);
        }
        pthread_mutex_unlock(&in->lock);
    }
}
