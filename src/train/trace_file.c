/* SPDX-License-Identifier: MIT */
/* trace_file.c - gathers the events of all ranks and writes trace.json. */
#include "train/trace_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { PINGS = 16, PIECE = 1 << 20, WINDOW_STEPS = 10 };

static const size_t text_maximum = (size_t)1 << 30;

/* What rank 0 tells another before that prints, and what it answers. */
struct question {
    int64_t origin; /* time 0 of the file, by that rank's clock */
};
struct answer {
    uint64_t bytes, dropped;
};

enum status trace_window_read(const char *text, uint64_t first, uint64_t end,
                              struct trace_window *out)
{
    char *colon, *rest;

    if (!*text) {
        const uint64_t steps = end > first ? end - first : 0;
        const uint64_t skipped = steps < 2 * WINDOW_STEPS
                                     ? (steps > WINDOW_STEPS ? steps - WINDOW_STEPS : 0)
                                     : WINDOW_STEPS;
        *out = (struct trace_window){ first + skipped, first + skipped + WINDOW_STEPS };
        return STATUS_OK;
    }
    const unsigned long long a = strtoull(text, &colon, 10);
    const unsigned long long b = *colon == ':' ? strtoull(colon + 1, &rest, 10) : 0;
    if (*colon != ':' || colon == text || rest == colon + 1 || *rest || strchr(text, '-') ||
        a >= b)
        return FAIL(STATUS_USAGE, "--trace-steps %s: A:B traces steps A to B - 1, as in 10:20",
                    text);
    *out = (struct trace_window){ a, b };
    return STATUS_OK;
}

/* Clocks --------------------------------------------------------------------------------- */

enum status trace_ask_time(struct transport *transport, int peer, uint32_t tag,
                           trace_clock *clock, int64_t *out_ahead)
{
    int64_t quickest = INT64_MAX;

    for (int i = 0; i < PINGS; i++) {
        const int64_t begin = clock();
        int64_t theirs;
        TRY(transport_send(transport, peer, tag, &begin, sizeof begin));
        TRY(transport_receive(transport, peer, tag, &theirs, sizeof theirs));
        const int64_t took = clock() - begin;
        if (took < quickest) {
            quickest = took;
            *out_ahead = theirs - (begin + took / 2);
        }
    }
    return STATUS_OK;
}

enum status trace_tell_time(struct transport *transport, uint32_t tag, trace_clock *clock)
{
    for (int i = 0; i < PINGS; i++) {
        int64_t time;
        TRY(transport_receive(transport, 0, tag, &time, sizeof time));
        time = clock();
        TRY(transport_send(transport, 0, tag, &time, sizeof time));
    }
    return STATUS_OK;
}

/* Ranks of one machine have one clock. */
static bool has_other_clock(const struct transport *transport, int rank)
{
    return transport_node_of(transport, rank) != transport_node_of(transport, 0);
}

/* Text ------------------------------------------------------------------------------------- */

static uint64_t print_rank(const struct trace *trace, int rank, int64_t origin,
                           struct strbuf *out)
{
    char name[32];

    (void)snprintf(name, sizeof name, "rank %d", rank);
    return trace_print(trace, rank, name, origin, out);
}

/* Another rank's part; one that had no memory for its text sends none. */
static enum status send_events(const struct trace *trace, struct transport *transport,
                               uint32_t tag)
{
    struct question question;
    struct answer answer;
    struct strbuf text;

    if (has_other_clock(transport, transport_rank(transport)))
        TRY(trace_tell_time(transport, tag, clock_ns));
    TRY(transport_receive(transport, 0, tag, &question, sizeof question));
    strbuf_init(&text, text_maximum);
    answer.dropped = print_rank(trace, transport_rank(transport), question.origin, &text);
    answer.bytes = strbuf_status(&text) == STATUS_OK ? text.length : 0;
    enum status status = transport_send(transport, 0, tag, &answer, sizeof answer);
    for (size_t at = 0; at < answer.bytes && status == STATUS_OK; at += PIECE) {
        const size_t left = answer.bytes - at;
        status = transport_send(transport, 0, tag, text.text + at, left < PIECE ? left : PIECE);
    }
    strbuf_release(&text);
    return status;
}

static enum status receive_text(struct transport *transport, int peer, uint32_t tag,
                                uint64_t bytes, struct strbuf *out)
{
    char *piece;

    TRY(mem_alloc(1, PIECE, &piece));
    enum status status = STATUS_OK;
    for (uint64_t at = 0; at < bytes && status == STATUS_OK; at += PIECE) {
        const size_t length = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        status = transport_receive(transport, peer, tag, piece, length);
        if (status == STATUS_OK)
            strbuf_add_bytes(out, piece, length);
    }
    mem_free(piece);
    return status;
}

/* Rank 0's side of send_events. */
static enum status receive_events(const struct trace *trace, struct transport *transport,
                                  int peer, uint32_t tag, uint64_t *dropped, struct strbuf *out)
{
    struct question question = { .origin = trace_origin(trace) };
    struct answer answer;
    int64_t ahead = 0;

    if (has_other_clock(transport, peer))
        TRY(trace_ask_time(transport, peer, tag, clock_ns, &ahead));
    question.origin += ahead;
    TRY(transport_send(transport, peer, tag, &question, sizeof question));
    TRY(transport_receive(transport, peer, tag, &answer, sizeof answer));
    *dropped += answer.dropped;
    return receive_text(transport, peer, tag, answer.bytes, out);
}

/* A rank that the job has lost and can do without has no events in the file, whenever it died. */
static enum status add_events(const struct trace *trace, struct transport *transport, int peer,
                              uint32_t tag, uint64_t *dropped, struct strbuf *out)
{
    struct strbuf text;

    strbuf_init(&text, text_maximum);
    const enum status status = receive_events(trace, transport, peer, tag, dropped, &text);
    if (status == STATUS_OK && text.length > 0) {
        strbuf_add(out, ",\n");
        strbuf_add_bytes(out, text.text, text.length);
    }
    strbuf_release(&text);
    const bool is_lost = status == STATUS_PEER_LOST && transport_lost(transport, peer, NULL);
    return is_lost ? STATUS_OK : status;
}

enum status trace_file_write(const struct trace *trace, struct transport *transport,
                             const char *path)
{
    const uint32_t tag = transport_new_tags(transport, 1);
    struct strbuf text;

    if (transport_rank(transport) != 0)
        return send_events(trace, transport, tag);
    strbuf_init(&text, text_maximum);
    strbuf_add(&text, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    uint64_t dropped = print_rank(trace, 0, trace_origin(trace), &text);
    enum status status = STATUS_OK;
    for (int peer = 1; peer < transport_size(transport) && status == STATUS_OK; peer++)
        status = add_events(trace, transport, peer, tag, &dropped, &text);
    strbuf_printf(&text,
                  "\n], \"otherData\": {\"program\": \"tutti\", \"dropped_events\": %llu}}\n",
                  (unsigned long long)dropped);
    if (status == STATUS_OK)
        status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = file_replace(path, text.text, text.length);
    strbuf_release(&text);
    return status;
}
