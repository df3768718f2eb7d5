/* SPDX-License-Identifier: MIT */
/* frame.c - what makes a frame legal. Nothing in it is believed before it has passed here. */
#include "ps/frame.h"

#include <string.h>

#include "ps/clip.h"

enum sender { WORKER = 1, SERVER = 2 };
enum payload {
    NOTHING,
    PARTS,       /* struct frame_part of each partial sum */
    ELEMENTS,    /* floats: elements [at, at + count) of the slice */
    ROWS,        /* count ids and rows; ids are those of the slice */
    COPIED_ROWS, /* count ids, and rows of the parameters and every state */
    SQUARES,     /* words [at, at + count) of the slice's squares */
    TICK,
    HEARD,
    STATS,
};

static const struct rule {
    const char *name;
    enum sender sender;
    bool has_slice;
    enum payload payload;
} rules[FRAME_KINDS] = {
    [FRAME_HELLO] = { "hello", WORKER, false, PARTS },
    [FRAME_PUT] = { "put", WORKER, true, ELEMENTS },
    [FRAME_BEGIN] = { "begin", WORKER, false, NOTHING },
    [FRAME_PULL] = { "pull", WORKER, true, NOTHING },
    [FRAME_DATA] = { "data", WORKER, true, ELEMENTS },
    [FRAME_ROWS] = { "rows", WORKER, true, ROWS },
    [FRAME_PUSH] = { "push", WORKER, true, NOTHING },
    [FRAME_TOOK] = { "took", WORKER, true, NOTHING },
    [FRAME_TICK] = { "tick", WORKER, false, TICK },
    [FRAME_MEET] = { "meet", WORKER, false, NOTHING },
    [FRAME_GET] = { "get", WORKER, true, NOTHING },
    [FRAME_ASK] = { "ask", WORKER, false, NOTHING },
    [FRAME_BYE] = { "bye", WORKER, false, NOTHING },
    [FRAME_VALUES] = { "values", SERVER, true, ELEMENTS },
    [FRAME_ROW_VALUES] = { "row values", SERVER, true, ROWS },
    [FRAME_FRESH] = { "fresh", SERVER, true, NOTHING },
    [FRAME_HEARD] = { "heard", SERVER, false, HEARD },
    [FRAME_MET] = { "met", SERVER, false, NOTHING },
    [FRAME_GOT] = { "got", SERVER, true, ELEMENTS },
    [FRAME_STATS] = { "stats", SERVER, false, STATS },
    [FRAME_COPY_DATA] = { "copied values", SERVER, true, ELEMENTS },
    [FRAME_COPY_ROWS] = { "copied rows", SERVER, true, COPIED_ROWS },
    [FRAME_COPY] = { "copy", SERVER, true, NOTHING },
    [FRAME_COPIED] = { "copied", SERVER, true, NOTHING },
    [FRAME_SQUARES] = { "squares", SERVER, true, SQUARES },
    [FRAME_CLOSE] = { "close", SERVER, false, NOTHING },
};

const char *frame_name(uint32_t kind)
{
    return kind > 0 && kind < FRAME_KINDS ? rules[kind].name : "nothing known";
}

bool frame_is_small(uint32_t kind)
{
    switch (rules[kind].payload) {
    case NOTHING:
    case TICK:
    case HEARD:
        return true;
    default:
        return false;
    }
}

int64_t frame_rows(const struct slice *slice, int vectors)
{
    return FRAME_PAYLOAD / ((int64_t)sizeof(float) * (1 + vectors * slice->width));
}

int64_t frame_payload(const struct slices *slices, const struct frame *frame)
{
    if (frame->kind == 0 || frame->kind >= FRAME_KINDS)
        return -1;
    const struct rule *rule = &rules[frame->kind];
    if (rule->has_slice && (frame->slice < 0 || frame->slice >= slices->count))
        return -1;
    const struct slice *slice = rule->has_slice ? &slices->slice[frame->slice] : NULL;
    const int64_t end = slice ? slice->count : 0;

    switch (rule->payload) {
    case NOTHING:
        return 0;
    case PARTS:
        return frame->part < 1 || frame->part > FRAME_PARTS
                   ? -1
                   : frame->part * (int64_t)sizeof(struct frame_part);
    case ELEMENTS:
        if (frame->count < 1 || frame->count > FRAME_FLOATS || frame->at < 0 ||
            frame->at > end - frame->count)
            return -1;
        return frame->count * (int64_t)sizeof(float);
    case ROWS:
    case COPIED_ROWS: {
        const int vectors = rule->payload == ROWS ? 1 : 1 + slices->config.layout.n_states;
        if (!slice || !slice->is_table || frame->count < 1 ||
            frame->count > frame_rows(slice, vectors) || frame->at < 0 ||
            frame->at > slice->most + slice->rows)
            return -1;
        return frame->count * (int64_t)sizeof(float) * (1 + vectors * slice->width);
    }
    case SQUARES:
        if (!slice || frame->count < 1 || frame->count > FRAME_WORDS || frame->at < 0 ||
            frame->at > clip_words(slice) - frame->count)
            return -1;
        return frame->count * (int64_t)sizeof(double);
    case TICK:
        return (int64_t)sizeof(struct frame_tick);
    case HEARD:
        return (int64_t)sizeof(struct frame_heard);
    case STATS:
        return (int64_t)sizeof(struct ps_stats);
    }
    return -1;
}

/* Ids of rows are those of the slice; of a push they ascend. */
static bool has_good_ids(const struct slice *slice, const void *payload, int64_t count,
                         bool ascends)
{
    int32_t last = -1;

    for (int64_t i = 0; i < count; i++) {
        int32_t id;
        memcpy(&id, (const char *)payload + i * (int64_t)sizeof(id), sizeof(id));
        if (id < 0 || id >= slice->rows || (ascends && id <= last))
            return false;
        last = id;
    }
    return true;
}

/* The meaning of `part`, by kind. */
static bool has_good_part(const struct slices *slices, int from_worker,
                          const struct frame *frame)
{
    switch (frame->kind) {
    case FRAME_DATA:
    case FRAME_ROWS:
        return frame->part >= 0 && frame->part < slices->n_nodes[from_worker];
    case FRAME_PUT:
    case FRAME_GET:
    case FRAME_GOT:
    case FRAME_COPY_DATA:
        return frame->part >= -1 && frame->part < slices->config.layout.n_states;
    case FRAME_COPY:
        return frame->part >= -1 && frame->part < slices->config.workers;
    default:
        return true;
    }
}

enum status frame_check(const struct slices *slices, int from_worker, const void *message,
                        size_t bytes, struct frame *out)
{
    if (bytes < sizeof(*out))
        return FAIL(STATUS_CORRUPT, "a message of %zu bytes is no frame", bytes);
    memcpy(out, message, sizeof(*out));
    if (out->magic != FRAME_MAGIC || out->kind == 0 || out->kind >= FRAME_KINDS)
        return FAIL(STATUS_CORRUPT, "a message of kind %u is no frame", out->kind);
    const struct rule *rule = &rules[out->kind];
    if (rule->sender != (from_worker >= 0 ? WORKER : SERVER))
        return FAIL(STATUS_CORRUPT, "a %s does not send a %s frame",
                    from_worker >= 0 ? "worker" : "server", rule->name);
    if (rule->has_slice && (out->slice < 0 || out->slice >= slices->count))
        return FAIL(STATUS_CORRUPT, "a %s frame of slice %d of %d", rule->name, out->slice,
                    slices->count);
    if (!has_good_part(slices, from_worker, out))
        return FAIL(STATUS_CORRUPT, "a %s frame of part %d", rule->name, out->part);
    const int64_t expected = frame_payload(slices, out);
    if (expected < 0 || (uint64_t)expected != out->bytes || bytes != sizeof(*out) + out->bytes)
        return FAIL(STATUS_CORRUPT, "a %s frame of %zu bytes, at %lld, of %lld", rule->name,
                    bytes, (long long)out->at, (long long)out->count);
    if (rule->payload == ROWS || rule->payload == COPIED_ROWS) {
        if (!has_good_ids(&slices->slice[out->slice], (const char *)message + sizeof(*out),
                          out->count, out->kind == FRAME_ROWS))
            return FAIL(STATUS_CORRUPT, "a %s frame has wrong row numbers", rule->name);
    }
    return STATUS_OK;
}
