/* SPDX-License-Identifier: MIT */
/* message.c - tagged messages over shared memory.
 *
 * Each ordered pair of ranks has a ring of bytes. A message is a header and its
 * bytes; one longer than the ring streams through it in pieces. The receiving
 * rank takes whatever is in the ring: into the buffer of a receive that asked
 * for that tag, else into memory of its own, kept until someone asks. So a message
 * of one tag never blocks one of another.
 *
 * Two ranks may send each other more than a ring holds before either receives: a
 * sender that finds no room takes in what has arrived for its own rank, from every peer.
 *
 * Whoever changes a ring raises the other rank's bell. A waiter reads its bell, looks
 * at the rings, and sleeps only while the bell has not changed since.
 */
#include <string.h>

#include "base/mem.h"
#include "transport/region.h"

struct header {
    uint64_t length;
    uint32_t tag, unused;
};

/* A message that arrived before it was asked for. */
struct message {
    struct message *next;
    size_t length;
    uint32_t tag;
    bool done; /* all of it is here */
    char data[];
};

/* A receive that waits; lives on the stack of its caller, listed in struct incoming. */
struct posted {
    struct posted *next;
    void *data;
    size_t bytes, length; /* asked for; of the message that came */
    uint32_t tag;
    bool done; /* all of it is here, or it has another length */
};

static const size_t kept_maximum = (size_t)1 << 30; /* unasked bytes kept a peer */

enum status message_init(struct transport *transport)
{
    const size_t size = (size_t)transport->size;

    TRY(mem_alloc(size, sizeof(*transport->incoming), &transport->incoming));
    const enum status status =
        mem_alloc(size, sizeof(*transport->send_lock), &transport->send_lock);
    if (status != STATUS_OK) {
        mem_free(transport->incoming);
        return status;
    }
    for (size_t peer = 0; peer < size; peer++) {
        pthread_mutex_init(&transport->incoming[peer].lock, NULL);
        pthread_mutex_init(&transport->send_lock[peer], NULL);
    }
    return STATUS_OK;
}

void message_release(struct transport *transport)
{
    for (int peer = 0; peer < transport->size; peer++) {
        struct incoming *in = &transport->incoming[peer];

        while (in->first) {
            struct message *next = in->first->next;
            mem_free(in->first);
            in->first = next;
        }
        pthread_mutex_destroy(&in->lock);
        pthread_mutex_destroy(&transport->send_lock[peer]);
    }
    mem_free(transport->send_lock);
    mem_free(transport->incoming);
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

static void remove_posted(struct incoming *in, const struct posted *posted)
{
    for (struct posted **at = &in->posted; *at; at = &(*at)->next) {
        if (*at == posted) {
            *at = posted->next;
            return;
        }
    }
}

/* The first waiting receive of that tag, told of the message's length; NULL if there is none
 * or its length differs (then it fails and the message is kept). */
static struct posted *take_posted(struct incoming *in, const struct header *header)
{
    for (struct posted *posted = in->posted; posted; posted = posted->next) {
        if (posted->tag != header->tag)
            continue;
        remove_posted(in, posted);
        posted->length = header->length;
        posted->done = posted->bytes != posted->length;
        return posted->done ? NULL : posted;
    }
    return NULL;
}

static enum status keep(struct transport *transport, int peer, const struct header *header,
                        struct message **out)
{
    struct incoming *in = &transport->incoming[peer];

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
    struct incoming *in = &transport->incoming[peer];
    struct posted *posted = take_posted(in, header);

    if (posted) {
        in->target = posted->data;
        in->done = &posted->done;
    } else {
        struct message *message;
        TRY(keep(transport, peer, header, &message));
        in->target = message->data;
        in->done = &message->done;
    }
    in->left = header->length;
    in->arriving = true;
    return STATUS_OK;
}

/* Takes all that peer's ring holds; the caller holds the lock. *out_moved: anything taken. */
static enum status take_in(struct transport *transport, int peer, bool *out_moved)
{
    struct region *region = transport->region;
    struct incoming *in = &transport->incoming[peer];
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
        if (in->left == 0) {
            *in->done = true;
            in->arriving = false;
        } else if (bytes == 0) {
            break;
        }
    }
    *out_moved = at != start;
    if (at != start) {
        atomic_store_explicit(&ring->read, at, memory_order_release);
        transport_raise(&region->slots[peer].bell, 1);
    }
    return status;
}

/* What a sender without room does: takes in from every peer that no other thread serves. */
static enum status take_in_all(struct transport *transport, bool *out_moved)
{
    enum status status = STATUS_OK;

    *out_moved = false;
    for (int peer = 0; peer < transport->size && status == STATUS_OK; peer++) {
        struct incoming *in = &transport->incoming[peer];
        bool moved = false;

        if (pthread_mutex_trylock(&in->lock) != 0)
            continue;
        status = take_in(transport, peer, &moved);
        pthread_mutex_unlock(&in->lock);
        *out_moved |= moved;
    }
    return status;
}

/* Sending ------------------------------------------------------------------------------- */

/* Writes between `least` and `most` bytes as soon as there is room for the least. */
static enum status put_some(struct transport *transport, int peer, const void *data,
                            size_t least, size_t most, size_t *out_bytes)
{
    struct region *region = transport->region;
    struct ring *ring = region_ring(region, transport->rank, peer);
    struct transport_counter *bell = &region->slots[transport->rank].bell;

    for (;;) {
        const uint32_t seen = atomic_load_explicit(&bell->value, memory_order_acquire);
        const bool ended = region_has_ended(region, peer);
        const uint32_t read = atomic_load_explicit(&ring->read, memory_order_acquire);
        const uint32_t written = atomic_load_explicit(&ring->written, memory_order_relaxed);
        const size_t room = region->ring_bytes - (written - read);

        if (room >= least) {
            *out_bytes = room < most ? room : most;
            ring_put(ring, region->ring_bytes, written, data, *out_bytes);
            atomic_store_explicit(&ring->written, written + (uint32_t)*out_bytes,
                                  memory_order_release);
            transport_raise(&region->slots[peer].bell, 1);
            return STATUS_OK;
        }
        if (ended)
            return FAIL(STATUS_PEER_LOST, "rank %d has ended while rank %d sends to it", peer,
                        transport->rank);
        bool moved;
        TRY(take_in_all(transport, &moved));
        if (!moved)
            TRY(transport_wait(transport, bell, seen + 1, "send"));
    }
}

static enum status send_locked(struct transport *transport, int peer, uint32_t tag,
                               const char *data, size_t bytes)
{
    const struct header header = { .length = bytes, .tag = tag };
    const size_t piece = transport->region->ring_bytes / 4; /* so that both ends copy at once */
    size_t done;

    TRY(put_some(transport, peer, &header, sizeof(header), sizeof(header), &done));
    while (bytes > 0) {
        TRY(put_some(transport, peer, data, 1, bytes < piece ? bytes : piece, &done));
        data += done;
        bytes -= done;
    }
    return STATUS_OK;
}

static enum status check_peer(const struct transport *transport, int peer)
{
    if (peer < 0 || peer >= transport->size)
        return FAIL(STATUS_USAGE, "rank %d is not between 0 and %d", peer, transport->size - 1);
    return STATUS_OK;
}

enum status transport_send(struct transport *transport, int peer, uint32_t tag,
                           const void *data, size_t bytes)
{
    TRY(check_peer(transport, peer));
    pthread_mutex_lock(&transport->send_lock[peer]);
    const enum status status = send_locked(transport, peer, tag, data, bytes);
    pthread_mutex_unlock(&transport->send_lock[peer]);
    return status;
}

/* Receiving ------------------------------------------------------------------------------ */

/* Takes in until *done, letting go of the lock while it waits. */
static enum status take_in_until(struct transport *transport, int peer, const bool *done)
{
    struct region *region = transport->region;
    struct incoming *in = &transport->incoming[peer];
    struct transport_counter *bell = &region->slots[transport->rank].bell;

    for (;;) {
        const uint32_t seen = atomic_load_explicit(&bell->value, memory_order_acquire);
        const bool ended = region_has_ended(region, peer);
        bool moved = false;

        if (*done)
            return STATUS_OK;
        TRY(take_in(transport, peer, &moved));
        if (*done)
            return STATUS_OK;
        if (moved)
            continue;
        if (ended)
            return FAIL(STATUS_PEER_LOST,
                        "rank %d has ended while rank %d waits for a message from it", peer,
                        transport->rank);
        pthread_mutex_unlock(&in->lock);
        const enum status status = transport_wait(transport, bell, seen + 1, "receive");
        pthread_mutex_lock(&in->lock);
        if (status != STATUS_OK)
            return status;
    }
}

static enum status other_length(const struct transport *transport, int peer, size_t sent,
                                size_t asked)
{
    return FAIL(STATUS_MISMATCH,
                "rank %d sent a message of %zu bytes while rank %d expected %zu bytes", peer,
                sent, transport->rank, asked);
}

static enum status receive_kept(struct transport *transport, int peer, struct message *message,
                                void *data, size_t bytes)
{
    if (message->length != bytes)
        return other_length(transport, peer, message->length, bytes);
    TRY(take_in_until(transport, peer, &message->done));
    memcpy(data, message->data, bytes);
    remove_kept(&transport->incoming[peer], message);
    return STATUS_OK;
}

static enum status receive_locked(struct transport *transport, int peer, uint32_t tag,
                                  void *data, size_t bytes)
{
    struct incoming *in = &transport->incoming[peer];
    struct message *message = find_kept(in, tag);
    struct posted posted = { .data = data, .bytes = bytes, .tag = tag };
    struct posted **end = &in->posted;

    if (message)
        return receive_kept(transport, peer, message, data, bytes);
    while (*end)
        end = &(*end)->next;
    *end = &posted;
    const enum status status = take_in_until(transport, peer, &posted.done);
    remove_posted(in, &posted);
    if (status != STATUS_OK && in->arriving && in->done == &posted.done)
        in->broken = true; /* the peer is gone: nothing may follow into `data` */
    if (status == STATUS_OK && posted.length != bytes)
        return other_length(transport, peer, posted.length, bytes);
    return status;
}

enum status transport_receive(struct transport *transport, int peer, uint32_t tag, void *data,
                              size_t bytes)
{
    struct incoming *in;

    TRY(check_peer(transport, peer));
    in = &transport->incoming[peer];
    pthread_mutex_lock(&in->lock);
    const enum status status = receive_locked(transport, peer, tag, data, bytes);
    pthread_mutex_unlock(&in->lock);
    return status;
}
