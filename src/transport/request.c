/* SPDX-License-Identifier: MIT */
/* request.c - sends and receives of any kind: over a ring if the peer is in the region, else
 * over the link.
 *
 * transport_send may return before the peer receives, also over a link that begins to move a
 * message only when somebody asks for it: the bytes are copied then and looked after by later
 * calls, so that two ranks may send to each other before either receives.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "transport/region.h"

enum { YIELD_NS = 2 * 1000 * 1000, NAP_NS = 50 * 1000, SLICE_NS = 100 * 1000 * 1000 };

static const size_t left_maximum = (size_t)256 << 20; /* bytes of sends left to themselves */

/* A send over the link that its caller did not wait for. */
struct left_send {
    struct left_send *next;
    struct transport_request request;
    char data[];
};

static bool is_in_region(const struct transport *transport, int peer)
{
    return region_holds(transport->region, peer);
}

static enum status start(struct transport *transport, struct transport_request *request)
{
    if (is_in_region(transport, request->peer))
        return message_start(transport, request);
    return transport->link->ops->start(transport->link, request);
}

/* Sends that were left --------------------------------------------------------------------- */

/* Looks once at every send that was left. The caller holds the lock. */
static enum status look_after_left(struct transport *transport)
{
    struct left_send **at = &transport->left.first;
    enum status status = STATUS_OK;

    while (*at) {
        struct left_send *left = *at;
        bool done = false;
        const enum status tested =
            transport->link->ops->test(transport->link, &left->request, &done);

        if (tested != STATUS_OK)
            status = tested;
        if (tested == STATUS_OK && !done) {
            at = &left->next;
            continue;
        }
        *at = left->next;
        transport->left.bytes -= left->request.bytes;
        atomic_fetch_sub_explicit(&transport->left.count, 1, memory_order_relaxed);
        mem_free(left);
    }
    return status;
}

/* Moves what this rank has under way, whoever asked for it. */
enum status request_progress(struct transport *transport)
{
    bool moved = false;

    if (atomic_load_explicit(&transport->left.count, memory_order_relaxed) > 0 &&
        pthread_mutex_trylock(&transport->left.lock) == 0) {
        const enum status status = look_after_left(transport);
        pthread_mutex_unlock(&transport->left.lock);
        TRY(status);
    }
    return message_progress(transport, &moved);
}

void request_release(struct transport *transport)
{
    while (transport->left.first) {
        struct left_send *left = transport->left.first;

        transport->left.first = left->next;
        transport->link->ops->cancel(transport->link, &left->request);
        mem_free(left);
    }
}

/* Testing and waiting ---------------------------------------------------------------------- */

static enum status other_length(const struct transport *transport,
                                const struct transport_request *request)
{
    return FAIL(STATUS_MISMATCH,
                "rank %d sent a message of %zu bytes while rank %d expected %zu bytes",
                request->peer, request->length, transport->rank, request->bytes);
}

/* Looks once. *out_moved: it is worth looking again at once. */
static enum status look(struct transport *transport, struct transport_request *request,
                        bool *out_done, bool *out_moved)
{
    const bool failed = region_has_failed(transport->region);

    *out_done = *out_moved = false;
    if (is_in_region(transport, request->peer)) {
        TRY(message_test(transport, request, out_done, out_moved));
    } else {
        TRY(transport->link->ops->test(transport->link, request, out_done));
    }
    if (*out_done) {
        const bool differs = request->kind == REQUEST_RECEIVE &&
                             request->length != request->bytes &&
                             !(request->may_be_shorter && request->length < request->bytes);
        request->kind = REQUEST_NONE;
        return differs ? other_length(transport, request) : STATUS_OK;
    }
    if (transport->link)
        TRY(request_progress(transport));
    return failed && !*out_moved ? transport_check(transport) : STATUS_OK;
}

enum status transport_test(struct transport *member, struct transport_request *request,
                           bool *out_done)
{
    struct transport *transport = member->job;
    bool moved;

    *out_done = request->kind == REQUEST_NONE;
    if (*out_done)
        return STATUS_OK;
    const enum status status = look(transport, request, out_done, &moved);
    if (status != STATUS_OK)
        transport_cancel(transport, request);
    return status;
}

/* A link raises no bell: who waits for it looks again and again, and leaves the core to others
 * in between. */
static void pause_for(int64_t since_ns)
{
    const struct timespec nap = { .tv_nsec = NAP_NS };

    if (clock_ns() - since_ns < YIELD_NS)
        (void)sched_yield();
    else
        (void)nanosleep(&nap, NULL);
}

static bool has_link_work(const struct transport *transport)
{
    return atomic_load_explicit(&transport->left.count, memory_order_relaxed) > 0;
}

void transport_set_patience(struct transport *transport, double seconds)
{
    atomic_store_explicit(&transport->job->patience_ns, (int64_t)(seconds * 1e9),
                          memory_order_relaxed);
}

/* Ends the job because the peer neither sends nor takes what this rank waits for. */
static enum status lose_patience(struct transport *transport,
                                 const struct transport_request *request, const char *what,
                                 int64_t patience_ns)
{
    char text[REGION_TEXT], note[REGION_TEXT / 2] = "";

    if (is_in_region(transport, request->peer))
        region_note(transport->region, request->peer, note, sizeof(note));
    (void)snprintf(
        text, sizeof(text), "rank %d has %s rank %d in %s for %.15g s (--stall-timeout)%s%s",
        request->peer, request->kind == REQUEST_SEND ? "taken nothing from" : "sent nothing to",
        transport->rank, what, (double)patience_ns * 1e-9, *note ? ": it was last seen" : "",
        note);
    transport_abort(transport, text);
    return transport_check(transport);
}

/* How long nothing has moved. What is between two looks is bounded: if it is long, the process was
 * stopped. */
struct patience {
    int64_t waited_ns, last_ns;
};

static void count_wait(struct patience *patience, bool moved)
{
    const int64_t now_ns = clock_ns(), passed_ns = now_ns - patience->last_ns;

    patience->last_ns = now_ns;
    patience->waited_ns =
        moved ? 0 : patience->waited_ns + (passed_ns < SLICE_NS ? passed_ns : SLICE_NS);
}

/* Waits until it rings, or for a while if patience may end. */
static enum status wait_for_bell(struct transport *transport, struct transport_counter *bell,
                                 uint32_t target, const char *what)
{
    bool rang;

    if (atomic_load_explicit(&transport->patience_ns, memory_order_relaxed) == 0)
        return transport_wait(transport, bell, target, what);
    return transport_wait_within(transport, bell, target, SLICE_NS, what, &rang);
}

static enum status wait_until_done(struct transport *transport,
                                   struct transport_request *request, const char *what)
{
    struct transport_counter *bell = &region_slot(transport->region, transport->rank)->bell;
    const bool sleeps = is_in_region(transport, request->peer);
    const int64_t patience_ns =
        atomic_load_explicit(&transport->patience_ns, memory_order_relaxed);
    const int64_t start_ns = clock_ns();
    struct patience patience = { .last_ns = start_ns };

    for (;;) {
        const uint32_t seen = atomic_load_explicit(&bell->value, memory_order_acquire);
        bool done, moved;

        TRY(look(transport, request, &done, &moved));
        if (done)
            return STATUS_OK;
        if (patience_ns > 0)
            count_wait(&patience, moved);
        if (moved)
            continue;
        if (patience.waited_ns > patience_ns)
            return lose_patience(transport, request, what, patience_ns);
        if (sleeps && !has_link_work(transport))
            TRY(wait_for_bell(transport, bell, seen + 1, what));
        else
            pause_for(start_ns);
    }
}

enum status transport_wait_for(struct transport *member, struct transport_request *request,
                               const char *what)
{
    struct transport *transport = member->job;

    if (request->kind == REQUEST_NONE)
        return STATUS_OK;
    const enum status status = wait_until_done(transport, request, what);
    if (status != STATUS_OK)
        transport_cancel(transport, request);
    return status;
}

uint32_t transport_bell(const struct transport *transport)
{
    const struct transport *job = transport->job;

    return atomic_load_explicit(&region_slot(job->region, job->rank)->bell.value,
                                memory_order_acquire);
}

void transport_ring(struct transport *transport)
{
    transport_raise(&region_slot(transport->region, transport->job->rank)->bell, 1);
}

enum status transport_wait_bell(struct transport *member, uint32_t seen, int64_t ns,
                                const char *what)
{
    struct transport *transport = member->job;
    struct transport_counter *bell = &region_slot(transport->region, transport->rank)->bell;
    const struct timespec nap = { .tv_nsec = NAP_NS };
    bool rang;

    if (!transport->link)
        return transport_wait_within(transport, bell, seen + 1, ns, what, &rang);
    if (!transport_reached(bell, seen + 1))
        (void)nanosleep(&nap, NULL);
    return transport_check(transport);
}

void transport_cancel(struct transport *member, struct transport_request *request)
{
    struct transport *transport = member->job;

    if (request->kind == REQUEST_NONE)
        return;
    if (is_in_region(transport, request->peer))
        message_cancel(transport, request);
    else
        transport->link->ops->cancel(transport->link, request);
    request->kind = REQUEST_NONE;
}

/* Public functions ------------------------------------------------------------------------- */

/* Begins a request whose peer is numbered as in a group or in the job. */
static enum status begin(struct transport *transport, struct transport_request *request)
{
    enum status status;

    if (request->peer < 0 || request->peer >= transport->size) {
        status = FAIL(STATUS_USAGE, "rank %d is not between 0 and %d", request->peer,
                      transport->size - 1);
    } else {
        request->member = request->peer;
        request->peer = job_rank(transport, request->peer);
        status = start(transport->job, request);
    }
    if (status != STATUS_OK)
        request->kind = REQUEST_NONE;
    return status;
}

enum status transport_start_send(struct transport *transport, int peer, uint32_t tag,
                                 const void *data, size_t bytes,
                                 struct transport_request *request)
{
    *request = (struct transport_request){
        .kind = REQUEST_SEND, .peer = peer, .tag = tag, .data = (char *)data, .bytes = bytes
    };
    return begin(transport, request);
}

enum status transport_start_receive(struct transport *transport, int peer, uint32_t tag,
                                    void *data, size_t bytes, struct transport_request *request)
{
    *request = (struct transport_request){
        .kind = REQUEST_RECEIVE, .peer = peer, .tag = tag, .data = data, .bytes = bytes
    };
    return begin(transport, request);
}

enum status transport_start_receive_most(struct transport *transport, int peer, uint32_t tag,
                                         void *data, size_t bytes,
                                         struct transport_request *request)
{
    *request = (struct transport_request){ .kind = REQUEST_RECEIVE,
                                           .peer = peer,
                                           .tag = tag,
                                           .data = data,
                                           .bytes = bytes,
                                           .may_be_shorter = true };
    return begin(transport, request);
}

/* Sends a copy over the link and leaves it to later calls if it does not go at once. */
static enum status send_copy(struct transport *transport, int peer, uint32_t tag,
                             const void *data, size_t bytes)
{
    struct left_sends *all = &transport->left;
    struct left_send *left;

    TRY(mem_alloc(1, sizeof(*left) + bytes, &left));
    memcpy(left->data, data, bytes);
    pthread_mutex_lock(&all->lock);
    enum status status =
        transport_start_send(transport, peer, tag, left->data, bytes, &left->request);
    if (status == STATUS_OK) {
        struct left_send **end = &all->first;
        while (*end)
            end = &(*end)->next;
        *end = left;
        all->bytes += bytes;
        atomic_fetch_add_explicit(&all->count, 1, memory_order_relaxed);
        status = look_after_left(transport);
    } else {
        mem_free(left);
    }
    pthread_mutex_unlock(&all->lock);
    return status;
}

static size_t left_bytes(struct transport *transport)
{
    pthread_mutex_lock(&transport->left.lock);
    const size_t bytes = transport->left.bytes;
    pthread_mutex_unlock(&transport->left.lock);
    return bytes;
}

enum status transport_send(struct transport *member, int number, uint32_t tag, const void *data,
                           size_t bytes)
{
    struct transport *transport = member->job;
    const int peer = number < member->size ? job_rank(member, number) : -1;
    struct transport_request request;

    if (peer >= 0 && peer < transport->size && !is_in_region(transport, peer) &&
        bytes + left_bytes(transport) <= left_maximum)
        return send_copy(transport, peer, tag, data, bytes);
    TRY(transport_start_send(transport, peer, tag, data, bytes, &request));
    return transport_wait_for(transport, &request, "send");
}

enum status transport_receive(struct transport *transport, int peer, uint32_t tag, void *data,
                              size_t bytes)
{
    struct transport_request request;

    TRY(transport_start_receive(transport, peer, tag, data, bytes, &request));
    return transport_wait_for(transport, &request, "receive");
}

enum status request_flush(struct transport *transport)
{
    const int64_t start_ns = clock_ns();

    while (has_link_work(transport)) {
        TRY(request_progress(transport));
        TRY(transport_check(transport));
        pause_for(start_ns);
    }
    return STATUS_OK;
}
