/* SPDX-License-Identifier: MIT */
/* device_circle.c - memory of devices that some ranks of a machine see of each other, and that grows.
 *
 * Ranks that share layers, and stages of a pipeline, exchange what plans say; plans are made when batches of other extents
 * come. So blocks of a circle are made anew when a plan needs more: all ranks of it make plans for the same extents at the same
 * time, and agree on numbers then. Nobody makes a block go before all have closed it.
 */
#include <string.h>

#include "exec/device_side.h"

/* What a rank tells the others of its block. */
struct shown {
    struct device_handle handle;
    char name[DEVICE_TEXT];
    int64_t precision;
};

enum status circle_create(const struct exec *exec, struct transport *transport,
                          struct device_circle *out)
{
    const struct device_side *side = exec->device;
    struct device_info info;

    *out = (struct device_circle){ .transport = transport,
                                   .ranks = transport_size(transport),
                                   .rank = transport_rank(transport) };
    if (out->ranks > DEVICE_PEERS || !transport_is_one_machine(transport))
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: layers are split among at most %d ranks of one machine",
                    side->config.face->name, DEVICE_PEERS);
    if (!side->config.face->share || !side->config.face->joint)
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: ranks cannot share its memory: layers are not split there",
                    side->config.face->name);
    out->tag = transport_new_tags(transport, 1);
    TRY(side->config.face->describe(side->config.number, &info));
    struct shown own = { .precision = side->config.precision }, theirs;
    memcpy(own.name, info.name, sizeof own.name);
    for (int r = 0; r < out->ranks; r++) {
        if (r != out->rank)
            TRY(transport_send(transport, r, out->tag, &own, sizeof own));
    }
    for (int r = 0; r < out->ranks; r++) {
        if (r == out->rank)
            continue;
        TRY(transport_receive(transport, r, out->tag, &theirs, sizeof theirs));
        if (strcmp(own.name, theirs.name) != 0 || own.precision != theirs.precision)
            return FAIL(STATUS_MISMATCH,
                        "device %s: rank %d runs on %s, rank %d on %s: their bits would differ",
                        side->config.face->name, transport_job_rank(transport, out->rank),
                        own.name, transport_job_rank(transport, r), theirs.name);
    }
    return STATUS_OK;
}

enum status circle_agree(struct device_circle *circle, size_t *numbers, int count)
{
    size_t theirs[CIRCLE_NUMBERS], most[CIRCLE_NUMBERS];
    const size_t bytes = (size_t)count * sizeof *numbers;

    BUG_ON(count > CIRCLE_NUMBERS);
    memcpy(most, numbers, bytes);
    for (int r = 0; r < circle->ranks; r++) {
        if (r != circle->rank)
            TRY(transport_send(circle->transport, r, circle->tag, numbers, bytes));
    }
    for (int r = 0; r < circle->ranks; r++) {
        if (r == circle->rank)
            continue;
        TRY(transport_receive(circle->transport, r, circle->tag, theirs, bytes));
        for (int i = 0; i < count; i++)
            most[i] = theirs[i] > most[i] ? theirs[i] : most[i];
    }
    memcpy(numbers, most, bytes);
    return STATUS_OK;
}

/* All have come here. */
static enum status meet(struct device_circle *circle)
{
    size_t nothing = 0;

    return circle_agree(circle, &nothing, 1);
}

static void close_blocks(const struct exec *exec, struct device_circle *circle)
{
    const struct device_side *side = exec->device;

    for (int r = 0; r < circle->ranks; r++) {
        if (r != circle->rank && circle->block[r])
            side->config.face->share->close(side->config.device, &circle->known[r],
                                            circle->block[r]);
        circle->block[r] = NULL;
    }
}

static enum status open_blocks(const struct exec *exec, struct device_circle *circle)
{
    const struct device_side *side = exec->device;

    for (int r = 0; r < circle->ranks; r++) {
        if (r != circle->rank)
            TRY(transport_send(circle->transport, r, circle->tag, &circle->known[circle->rank],
                               sizeof *circle->known));
    }
    circle->block[circle->rank] = circle->memory;
    for (int r = 0; r < circle->ranks; r++) {
        void *block;
        if (r == circle->rank)
            continue;
        TRY(transport_receive(circle->transport, r, circle->tag, &circle->known[r],
                              sizeof *circle->known));
        TRY(side->config.face->share->open(side->config.device, &circle->known[r], &block));
        circle->block[r] = block;
    }
    return meet(circle); /* nobody goes away before all have opened what is there */
}

enum status circle_make(const struct exec *exec, struct device_circle *circle, size_t bytes)
{
    const struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;
    void *memory;

    TRY(device_wait(exec));
    TRY(meet(circle)); /* nobody reads this rank's block any more */
    close_blocks(exec, circle);
    TRY(meet(circle)); /* nor has it open */
    face->share->destroy(side->config.device, circle->memory);
    circle->memory = NULL;
    circle->bytes = 0;
    TRY(face->share->create(side->config.device, bytes, &memory, &circle->known[circle->rank]));
    circle->memory = memory;
    circle->bytes = bytes;
    TRY(face->memory->fill(side->stream, memory, 0, bytes));
    TRY(device_wait(exec)); /* words are 0 */
    return open_blocks(exec, circle);
}

void circle_release(const struct exec *exec, struct device_circle *circle)
{
    const struct device_side *side = exec->device;

    close_blocks(exec, circle); /* before this rank's own goes */
    if (circle->memory)
        side->config.face->share->destroy(side->config.device, circle->memory);
    circle->memory = NULL;
}
