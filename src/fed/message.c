/* SPDX-License-Identifier: MIT */
/* message.c - what coordinator and participants say to each other, as bytes.
 *
 * Which fields a type has is a row of `forms`; writer and reader walk it.
 */
#include "fed/message.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static const char magic[4] = { 't', 'f', 'e', 'd' };
enum { VERSION = 2, SECONDS_MOST = 3600 };

enum field {
    CLIENT = 1,
    SAMPLES = 2,
    ROUND = 4, /* and stage */
    SECONDS = 8,
    WHY = 16,
    PAYLOAD = 32
};

static const struct {
    const char *name;
    unsigned fields;
} forms[FED_TYPES] = {
    [FED_HELLO] = { "hello", CLIENT | SAMPLES | PAYLOAD },
    [FED_TERMS] = { "terms", PAYLOAD },
    [FED_ASK] = { "ask", CLIENT },
    [FED_WAIT] = { "wait", SECONDS },
    [FED_TASK] = { "task", ROUND | PAYLOAD },
    [FED_DONE] = { "done", PAYLOAD },
    [FED_GIVE] = { "give", CLIENT | ROUND | PAYLOAD },
    [FED_OK] = { "ok", 0 },
    [FED_REFUSED] = { "refused", WHY },
};

static const char *const stage_names[FED_STAGES] = {
    [FED_KEYS] = "keys",     [FED_SHARES] = "shares",
    [FED_TRAIN] = "train",   [FED_CONSISTENCY] = "consistency",
    [FED_UNMASK] = "unmask",
};

const char *fed_type_name(enum fed_type type)
{
    return type > 0 && type < FED_TYPES ? forms[type].name : "unknown";
}

const char *fed_stage_name(enum fed_stage stage)
{
    return (int)stage >= 0 && stage < FED_STAGES ? stage_names[stage] : "unknown";
}

bool fed_name_is_good(const char *name)
{
    const size_t length = strlen(name);

    return length > 0 && length < FED_NAME && name[0] != '.' && name[0] != '-' &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
               length;
}

void fed_message_write(const struct fed_message *message, struct fed_buffer *out)
{
    const unsigned fields = forms[message->type].fields;

    fed_put(out, magic, sizeof magic);
    fed_put_u8(out, VERSION);
    fed_put_u8(out, (uint8_t)message->type);
    if (fields & CLIENT)
        fed_put_text(out, message->client);
    if (fields & SAMPLES)
        fed_put_u64(out, message->samples);
    if (fields & ROUND) {
        fed_put_u64(out, (uint64_t)message->round);
        fed_put_u8(out, (uint8_t)message->stage);
    }
    if (fields & SECONDS)
        fed_put_f64(out, message->seconds);
    if (fields & WHY)
        fed_put_text(out, message->why);
    if (fields & PAYLOAD)
        fed_put_bytes(out, message->payload, message->payload_length);
}

/* A reason is shown to people: one line of text. */
static bool is_one_line(const char *text)
{
    for (; *text; text++) {
        if ((unsigned char)*text < ' ' || *text == 127)
            return false;
    }
    return true;
}

static void read_fields(struct fed_reader *reader, unsigned fields, struct fed_message *out)
{
    if (fields & CLIENT) {
        fed_take_text(reader, out->client, sizeof out->client);
        reader->failed |= !fed_name_is_good(out->client);
    }
    if (fields & SAMPLES) {
        out->samples = fed_take_u64(reader);
        reader->failed |= out->samples > (uint64_t)1 << 40;
    }
    if (fields & ROUND) {
        const uint64_t round = fed_take_u64(reader);
        const uint8_t stage = fed_take_u8(reader);
        reader->failed |= round > INT32_MAX || stage >= FED_STAGES;
        out->round = (int64_t)(round & INT32_MAX);
        out->stage = stage < FED_STAGES ? (enum fed_stage)stage : FED_KEYS;
    }
    if (fields & SECONDS) {
        out->seconds = fed_take_f64(reader);
        reader->failed |= out->seconds < 0 || out->seconds > SECONDS_MOST;
    }
    if (fields & WHY) {
        fed_take_text(reader, out->why, sizeof out->why);
        reader->failed |= !is_one_line(out->why);
    }
    if (fields & PAYLOAD)
        out->payload = fed_take_bytes(reader, &out->payload_length);
}

enum status fed_message_read(const void *data, size_t length, struct fed_message *out)
{
    struct fed_reader reader = fed_reader(data, length);
    struct fed_message message = { 0 };

    const uint8_t *head = fed_take(&reader, sizeof magic);
    if (!head || memcmp(head, magic, sizeof magic) != 0)
        return FAIL(STATUS_CORRUPT, "message: it does not begin as one");
    const uint8_t version = fed_take_u8(&reader), type = fed_take_u8(&reader);
    if (version != VERSION)
        return FAIL(STATUS_CORRUPT, "message: version %d, this program speaks %d", version,
                    VERSION);
    if (type < FED_HELLO || type >= FED_TYPES)
        return FAIL(STATUS_CORRUPT, "message: unknown type %d", type);
    message.type = (enum fed_type)type;
    read_fields(&reader, forms[type].fields, &message);
    TRY(fed_reader_end(&reader, forms[type].name));
    *out = message;
    return STATUS_OK;
}

/* Tasks --------------------------------------------------------------------------------------- */

void fed_work_write(const struct fed_work *work, struct fed_buffer *out)
{
    fed_put_u64(out, work->seed);
    fed_put_f64(out, work->lr);
    fed_put_f64(out, work->clip);
    fed_put_u64(out, work->whole);
    fed_put_u64(out, work->most);
    fed_put_u8(out, (uint8_t)work->n_vectors);
    for (int i = 0; i < work->n_vectors; i++)
        fed_put_floats(out, work->vector[i], work->length);
    fed_put_u8(out, work->asks_statistics);
    fed_put_u32(out, (uint32_t)work->n_statistics);
    fed_put_floats(out, work->statistics, work->n_statistics);
    fed_put_bytes(out, work->secure, work->secure_length);
}

/* `n` vectors of `length` floats from the reader. */
static enum status take_vectors(struct fed_reader *reader, float **vector, int n, size_t length)
{
    for (int i = 0; i < n; i++) {
        TRY(mem_alloc(length, sizeof(float), &vector[i]));
        fed_take_floats(reader, vector[i], length);
    }
    return STATUS_OK;
}

/* What standardizes tables, if there is something. */
static enum status take_statistics(struct fed_reader *reader, struct fed_work *work)
{
    const uint8_t asks = fed_take_u8(reader);

    work->asks_statistics = asks == 1;
    work->n_statistics = fed_take_u32(reader);
    if (asks > 1 || work->n_statistics * sizeof(float) > reader->length - reader->at)
        reader->failed = true;
    if (reader->failed)
        return STATUS_OK;
    if (work->n_statistics)
        TRY(mem_alloc(work->n_statistics, sizeof(float), &work->statistics));
    fed_take_floats(reader, work->statistics, work->n_statistics);
    return STATUS_OK;
}

enum status fed_work_read(const void *data, size_t bytes, size_t length, struct fed_work *out)
{
    struct fed_reader reader = fed_reader(data, bytes);
    struct fed_work work = { .length = length };

    work.seed = fed_take_u64(&reader);
    work.lr = fed_take_f64(&reader);
    work.clip = fed_take_f64(&reader);
    work.whole = fed_take_u64(&reader);
    work.most = fed_take_u64(&reader);
    work.n_vectors = fed_take_u8(&reader);
    reader.failed |= work.lr <= 0 || work.clip < 0 || work.n_vectors > FED_VECTORS ||
                     bytes < (size_t)work.n_vectors * length * sizeof(float);
    enum status status =
        reader.failed ? STATUS_OK : take_vectors(&reader, work.vector, work.n_vectors, length);
    if (status == STATUS_OK)
        status = take_statistics(&reader, &work);
    reader.failed |= (work.n_vectors == 0) != work.asks_statistics;
    if (status == STATUS_OK) {
        work.secure = fed_take_bytes(&reader, &work.secure_length);
        status = fed_reader_end(&reader, "task");
    }
    if (status != STATUS_OK) {
        fed_work_release(&work);
        return status;
    }
    *out = work;
    return STATUS_OK;
}

void fed_work_release(struct fed_work *work)
{
    for (int i = 0; i < FED_VECTORS; i++)
        mem_free(work->vector[i]);
    mem_free(work->statistics);
    *work = (struct fed_work){ 0 };
}

/* Updates -------------------------------------------------------------------------------------- */

/* Numbers of a tally, in their order on the wire. */
static const size_t tally_numbers[] = {
    offsetof(struct fed_tally, loss),        offsetof(struct fed_tally, correct),
    offsetof(struct fed_tally, seen),        offsetof(struct fed_tally, val_loss),
    offsetof(struct fed_tally, val_correct), offsetof(struct fed_tally, val_seen),
};
enum { TALLY_NUMBERS = sizeof tally_numbers / sizeof *tally_numbers };

static void put_tally(struct fed_buffer *out, const struct fed_tally *tally)
{
    fed_put_u64(out, tally->samples);
    fed_put_u64(out, tally->steps);
    for (int i = 0; i < TALLY_NUMBERS; i++) {
        double number;
        memcpy(&number, (const char *)tally + tally_numbers[i], sizeof number);
        fed_put_f64(out, number);
    }
}

static void take_tally(struct fed_reader *reader, struct fed_tally *tally)
{
    tally->samples = fed_take_u64(reader);
    tally->steps = fed_take_u64(reader);
    reader->failed |= tally->samples > (uint64_t)1 << 40 || tally->steps > (uint64_t)1 << 40;
    for (int i = 0; i < TALLY_NUMBERS; i++) {
        const double number = fed_take_f64(reader);
        memcpy((char *)tally + tally_numbers[i], &number, sizeof number);
    }
    reader->failed |= tally->seen < 0 || tally->val_seen < 0;
}

enum status fed_update_write(const struct fed_update *update, struct codec_state *codec,
                             struct fed_buffer *out)
{
    put_tally(out, &update->tally);
    fed_put_u8(out, (uint8_t)update->n_vectors);
    for (int i = 0; i < update->n_vectors; i++) {
        if (i > 0 || !codec) {
            fed_put_floats(out, update->vector[i], update->length);
            continue;
        }
        const size_t bytes = codec_max_bytes(codec, 0);
        float *payload;
        TRY(mem_alloc(bytes, 1, &payload));
        codec_encode(codec, 0, update->vector[0], payload);
        fed_put_bytes(out, payload, bytes);
        mem_free(payload);
    }
    return fed_buffer_status(out);
}

/* A vector that was compressed. The payload is copied to where it is aligned. */
static enum status take_compressed(struct fed_reader *reader, struct codec_state *codec,
                                   float *out, size_t length)
{
    size_t bytes;
    const uint8_t *taken = fed_take_bytes(reader, &bytes);
    void *payload;

    if (!taken || bytes > codec_max_bytes(codec, 0)) {
        reader->failed = true;
        return STATUS_OK;
    }
    TRY(mem_alloc(bytes, 1, &payload));
    memcpy(payload, taken, bytes);
    const void *const payloads[] = { payload };
    const enum status status = codec_decode(codec, 0, payloads, &bytes, 1, out);
    mem_free(payload);
    for (size_t i = 0; status == STATUS_OK && i < length; i++)
        reader->failed |= !isfinite(out[i]);
    return status;
}

static enum status take_update(struct fed_reader *reader, struct codec_state *codec,
                               struct fed_update *update, int n_vectors)
{
    take_tally(reader, &update->tally);
    update->n_vectors = fed_take_u8(reader);
    if (reader->failed || update->n_vectors != n_vectors)
        return FAIL(STATUS_CORRUPT, "update: numbers of it are none that they may be");
    if (!codec)
        return take_vectors(reader, update->vector, n_vectors, update->length);
    TRY(mem_alloc(update->length, sizeof(float), &update->vector[0]));
    TRY(take_compressed(reader, codec, update->vector[0], update->length));
    return take_vectors(reader, update->vector + 1, n_vectors - 1, update->length);
}

enum status fed_update_read(const void *data, size_t bytes, struct codec_state *codec,
                            size_t length, int n_vectors, struct fed_update *out)
{
    struct fed_reader reader = fed_reader(data, bytes);
    struct fed_update update = { .length = length };

    enum status status = take_update(&reader, codec, &update, n_vectors);
    if (status == STATUS_OK)
        status = fed_reader_end(&reader, "update");
    if (status != STATUS_OK) {
        fed_update_release(&update);
        return status;
    }
    *out = update;
    return STATUS_OK;
}

void fed_update_release(struct fed_update *update)
{
    for (int i = 0; i < FED_VECTORS; i++)
        mem_free(update->vector[i]);
    *update = (struct fed_update){ 0 };
}
