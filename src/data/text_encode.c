/* SPDX-License-Identifier: MIT */
/* text_encode.c - documents to numbers, by several threads.
 *
 * Documents are handed out in pieces of about PIECE bytes. While a vocabulary is counted each thread
 * numbers the tokens as it meets them; then the counts are added up, the vocabulary is chosen, and the numbers
 * are replaced. So the result is the same whoever had which piece.
 *
 * Memory, a byte of text: until all pieces are there 1 to 4 bytes a token (as few as a piece's largest number
 * takes), then 4 bytes a token more for the whole. Pages of the file are given back before.
 *
 * A stream is one document; it is cut where no tokenizer has a token across: after a line end, or for
 * GPT-2's before one that follows a visible character.
 */
#include "data/text_encode.h"

#include "base/mem.h"
#include "base/notice.h"
#include "base/pool.h"
#include "base/room.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 18, THREADS_MOST = 16, LINE_END = -2 /* becomes <eos> */ };

/* Documents [first, end), and their numbers less LINE_END, in as few bytes as the largest takes. */
struct piece {
    int64_t first, end;
    size_t slot; /* whose encoder made them */
    void *id;    /* uint8_t, uint16_t or uint32_t */
    int width;   /* bytes of one */
    size_t count;
};

struct work {
    struct encode_config config;
    struct text_span *cuts; /* of a stream, or NULL */
    struct piece *piece;
    size_t n_pieces;
    int64_t *kept; /* numbers of each document */
    struct encoder encoder[THREADS_MOST];
    struct encoder rest;           /* counts that of the config */
    int64_t tokens[THREADS_MOST];  /* met by each */
    int32_t *number[THREADS_MOST]; /* what an encoder's tokens are in the vocabulary */
    struct pool *pool;
    int threads;
    struct notice notice;
    _Atomic size_t n_done; /* pieces */
};

/* Pieces -------------------------------------------------------------------------------- */

/* Where the stream may be cut next, at `at` or behind. */
static size_t next_cut(const struct text_span *stream, size_t at, bool before_line_end)
{
    const char *bytes = stream->bytes, *end = bytes + stream->length;

    for (const char *line_end = bytes + at;
         line_end < end && (line_end = memchr(line_end, '\n', (size_t)(end - line_end)));
         line_end++) {
        if (!before_line_end)
            return (size_t)(line_end - bytes) + 1;
        if (line_end > bytes && line_end[-1] > ' ') /* ASCII, and seen */
            return (size_t)(line_end - bytes);
    }
    return stream->length;
}

static enum status cut_stream(struct work *work)
{
    const struct text_span stream = work->config.span[0];
    const bool before_line_end = work->config.tokenizer->has_own_vocab;
    const size_t most = stream.length / PIECE + 2;
    int64_t count = 0;

    TRY(mem_alloc(most, sizeof *work->cuts, &work->cuts));
    for (size_t at = 0; at < stream.length;) {
        const size_t end = stream.length - at <= PIECE
                               ? stream.length
                               : next_cut(&stream, at + PIECE, before_line_end);
        work->cuts[count++] = (struct text_span){ stream.bytes + at, end - at };
        at = end;
    }
    work->config.span = work->cuts;
    work->config.count = count;
    return STATUS_OK;
}

static enum status make_pieces(struct work *work)
{
    const struct encode_config *config = &work->config;
    int64_t first = 0;
    size_t bytes = 0;

    TRY(mem_alloc((size_t)config->count, sizeof *work->kept, &work->kept));
    TRY(mem_alloc((size_t)config->count, sizeof *work->piece, &work->piece));
    for (int64_t i = 0; i < config->count; i++) {
        bytes += config->span[i].length;
        if (bytes < PIECE && i + 1 < config->count)
            continue;
        work->piece[work->n_pieces++] = (struct piece){ .first = first, .end = i + 1 };
        first = i + 1;
        bytes = 0;
    }
    return STATUS_OK;
}

/* Numbers ------------------------------------------------------------------------------- */

static void encode_lines(struct encoder *encoder, struct text_span span)
{
    const char *at = span.bytes, *end = at + span.length;

    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        encoder_add(encoder, at, (size_t)((line_end ? line_end : end) - at));
        if (line_end)
            encoder_push(encoder, LINE_END);
        at = line_end ? line_end + 1 : end;
    }
}

/* Takes the encoder's numbers over. */
static enum status keep_numbers(struct encoder *encoder, struct piece *piece)
{
    uint32_t largest = 0;

    for (size_t i = 0; i < encoder->count; i++) {
        const uint32_t number = (uint32_t)(encoder->id[i] - LINE_END);
        largest = number > largest ? number : largest;
    }
    piece->width = largest <= UINT8_MAX ? 1 : largest <= UINT16_MAX ? 2 : 4;
    piece->count = encoder->count;
    TRY(mem_alloc(encoder->count, (size_t)piece->width, &piece->id));
    for (size_t i = 0; i < encoder->count; i++) {
        const uint32_t number = (uint32_t)(encoder->id[i] - LINE_END);
        if (piece->width == 1)
            ((uint8_t *)piece->id)[i] = (uint8_t)number;
        else if (piece->width == 2)
            ((uint16_t *)piece->id)[i] = (uint16_t)number;
        else
            ((uint32_t *)piece->id)[i] = number;
    }
    encoder_cut(encoder, 0);
    return STATUS_OK;
}

static int32_t number_at(const struct piece *piece, size_t i)
{
    const uint32_t number = piece->width == 1   ? ((const uint8_t *)piece->id)[i]
                            : piece->width == 2 ? ((const uint16_t *)piece->id)[i]
                                                : ((const uint32_t *)piece->id)[i];
    return (int32_t)number + LINE_END;
}

static void encode_piece(void *arg, size_t i, size_t slot)
{
    struct work *work = arg;
    const struct encode_config *config = &work->config;
    struct encoder *encoder = &work->encoder[slot];
    struct piece *piece = &work->piece[i];

    piece->slot = slot;
    for (int64_t d = piece->first; d < piece->end && encoder->status == STATUS_OK; d++) {
        const size_t before = encoder->count;
        if (config->is_stream && config->tokenizer->ends_lines)
            encode_lines(encoder, config->span[d]);
        else
            encoder_add(encoder, config->span[d].bytes, config->span[d].length);
        work->tokens[slot] += (int64_t)(encoder->count - before);
        if (config->length > 0 && !config->is_stream)
            encoder_cut(encoder, before + (size_t)config->length);
        work->kept[d] = (int64_t)(encoder->count - before);
    }
    if (encoder->status == STATUS_OK)
        encoder->status = keep_numbers(encoder, piece);
    notice_at(&work->notice, (double)atomic_fetch_add(&work->n_done, 1),
              (double)work->n_pieces);
}

/* Those after the first. */
static void encode_other(void *arg, size_t i, size_t slot)
{
    encode_piece(arg, i + 1, slot);
}

/* As many tokens a byte as the first piece has. */
static enum status check_room(const struct work *work)
{
    const struct encode_config *config = &work->config;
    const struct piece *first = &work->piece[0];
    double bytes = 0, all = 0;

    for (int64_t d = 0; d < config->count; d++) {
        all += (double)config->span[d].length;
        if (d < first->end)
            bytes += (double)config->span[d].length;
    }
    if (work->n_pieces < 2 || bytes <= 0)
        return STATUS_OK;
    const double tokens = (double)first->count * (all / bytes);
    return room_check(tokens * (first->width + (double)sizeof(int32_t)), config->file->path,
                      "holding its tokens",
                      "take a part of it, or --tokenizer words or gpt2 for fewer tokens");
}

/* A token that the given vocabulary lacks, with no <unk> for it: says where it is. */
static enum status fail_stranger(const struct work *work, const struct encoder *encoder)
{
    const struct text_file *file = work->config.file;
    const char *at =
        memmem(file->bytes, file->length, encoder->stranger, encoder->stranger_bytes);
    char stranger[STRANGER_TEXT];

    return FAIL(STATUS_MISMATCH,
                "%s:%" PRId64 ": %s is not in the vocabulary of %d %s, which has no <unk>; "
                "training with --min-count 2 makes one",
                file->path, at ? text_file_line(file, at) : 1,
                encoder_stranger(encoder, stranger), vocab_size(encoder->vocab),
                work->config.tokenizer->name);
}

static enum status check_encoders(const struct work *work)
{
    for (int i = 0; i < work->threads; i++) {
        const struct encoder *encoder = &work->encoder[i];
        if (encoder->status != STATUS_OK)
            return FAIL(encoder->status, "%s: no memory for its tokens",
                        work->config.file->path);
        if (encoder->stranger_end > 0)
            return fail_stranger(work, encoder);
    }
    return STATUS_OK;
}

/* Counting ------------------------------------------------------------------------------ */

/* Tokens of the rest that no document has, after those of all. */
static enum status add_rest(const struct encoder *rest, struct token_map *all, int64_t *counts)
{
    const int32_t known = all->count;

    for (int32_t i = 0; i < rest->seen.count; i++) {
        size_t length;
        int32_t number;
        const char *token = token_map_at(&rest->seen, i, &length);
        TRY(token_map_add(all, token, length, &number));
        if (number >= known)
            counts[number] = rest->counts[i];
    }
    return STATUS_OK;
}

/* Adds all threads' tokens up: `number` becomes what each thread's tokens are in `all`. */
static enum status add_counts(struct work *work, struct token_map *all, int64_t **counts)
{
    size_t most = 0;

    for (int t = 0; t < work->threads; t++)
        most += (size_t)work->encoder[t].seen.count;
    most += (size_t)work->rest.seen.count;
    TRY(mem_alloc(most, sizeof **counts, counts));
    for (int t = 0; t < work->threads; t++) {
        const struct encoder *encoder = &work->encoder[t];
        TRY(mem_alloc((size_t)encoder->seen.count, sizeof *work->number[t], &work->number[t]));
        for (int32_t i = 0; i < encoder->seen.count; i++) {
            size_t length;
            const char *token = token_map_at(&encoder->seen, i, &length);
            TRY(token_map_add(all, token, length, &work->number[t][i]));
            (*counts)[work->number[t][i]] += encoder->counts[i];
        }
    }
    return add_rest(&work->rest, all, *counts);
}

static enum status choose_vocab(struct work *work, struct vocab **out)
{
    struct token_map all = { 0 };
    int64_t *counts = NULL;
    int32_t *chosen = NULL;

    enum status status = add_counts(work, &all, &counts);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)all.count, sizeof *chosen, &chosen);
    if (status == STATUS_OK)
        status =
            vocab_choose(work->config.tokenizer, &work->config.rule, &all, counts, chosen, out);
    for (int t = 0; status == STATUS_OK && t < work->threads; t++)
        for (int32_t i = 0; i < work->encoder[t].seen.count; i++)
            work->number[t][i] = chosen[work->number[t][i]];
    mem_free(chosen);
    mem_free(counts);
    token_map_release(&all);
    return status;
}

static enum status count_rest(struct work *work)
{
    const struct text_span rest = work->config.rest;

    if (!work->config.rule.special[VOCAB_UNKNOWN])
        encoder_add(&work->rest, rest.bytes, rest.length);
    return work->rest.status == STATUS_OK
               ? STATUS_OK
               : FAIL(work->rest.status, "%s: no memory for its tokens",
                      work->config.file->path);
}

/* All together -------------------------------------------------------------------------- */

/* Numbers of the vocabulary in the place of a thread's own, and <eos> in the place of line ends. */
static void copy_piece(const struct work *work, const struct piece *piece, size_t first,
                       size_t count, int32_t line_end, int32_t *to)
{
    const int32_t *number = work->number[piece->slot];

    for (size_t i = 0; i < count; i++) {
        const int32_t id = number_at(piece, first + i);
        to[i] = id == LINE_END ? line_end : number ? number[id] : id;
    }
}

static enum status join(struct work *work, struct encoded *out)
{
    const int64_t count = work->config.count;
    const struct vocab *vocab = out->vocab ? out->vocab : work->config.vocab;
    const int32_t line_end = vocab_special(vocab, VOCAB_END);
    int64_t all = 0, at = 0;

    for (int64_t i = 0; i < count; i++)
        all += work->config.is_stream || work->kept[i] > 0 ? work->kept[i] : 1;
    TRY(mem_alloc((size_t)all, sizeof *out->id, &out->id));
    TRY(mem_alloc((size_t)count + 2, sizeof *out->start,
                  &out->start)); /* a stream may be empty */
    for (size_t p = 0; p < work->n_pieces; p++) {
        struct piece *piece = &work->piece[p];
        size_t first = 0;
        for (int64_t d = piece->first; d < piece->end; d++) {
            copy_piece(work, piece, first, (size_t)work->kept[d], line_end, out->id + at);
            first += (size_t)work->kept[d];
            at += work->config.is_stream || work->kept[d] > 0 ? work->kept[d] : 1;
            out->start[d + 1] = at;
        }
        mem_free(piece->id);
        piece->id = NULL;
    }
    if (work->config.is_stream)
        out->start[1] = at;
    for (int t = 0; t < work->threads; t++)
        out->tokens += work->tokens[t];
    return STATUS_OK;
}

static int pick_threads(const struct encode_config *config)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const int threads = config->threads > 0 ? config->threads : (int)processors;

    return threads < 1 ? 1 : threads > THREADS_MOST ? THREADS_MOST : threads;
}

static enum status run(struct work *work, struct encoded *out)
{
    if (work->config.is_stream)
        TRY(cut_stream(work));
    TRY(make_pieces(work));
    TRY(pool_create(work->threads, &work->pool));
    notice_begin(&work->notice, work->config.file->path);
    if (work->n_pieces > 0) {
        encode_piece(work, 0, 0);
        TRY(check_encoders(work));
        TRY(check_room(work));
        pool_for_slots(work->pool, work->n_pieces - 1, (size_t)work->threads, encode_other,
                       work);
    }
    notice_end(&work->notice);
    TRY(check_encoders(work));
    if (!work->config.vocab) {
        TRY(count_rest(work));
        TRY(choose_vocab(work, &out->vocab));
    }
    for (int t = 0; t < work->threads; t++) {
        size_t count;
        mem_free(encoder_hand_over(&work->encoder[t], &count));
    }
    file_map_forget(&work->config.file->map);
    return join(work, out);
}

enum status text_encode(const struct encode_config *config, struct encoded *out)
{
    struct encoded encoded = { 0 };
    struct work *work;

    TRY(mem_alloc(1, sizeof *work, &work));
    work->config = *config;
    work->threads = pick_threads(config);
    for (int t = 0; t < work->threads; t++)
        encoder_init(&work->encoder[t], config->tokenizer, config->vocab);
    encoder_init(&work->rest, config->tokenizer, NULL);
    const enum status status = run(work, &encoded);
    encoder_release(&work->rest);
    pool_destroy(work->pool);
    for (size_t i = 0; i < work->n_pieces; i++)
        mem_free(work->piece[i].id);
    for (int t = 0; t < work->threads; t++) {
        encoder_release(&work->encoder[t]);
        mem_free(work->number[t]);
    }
    mem_free(work->piece);
    mem_free(work->kept);
    mem_free(work->cuts);
    mem_free(work);
    if (status != STATUS_OK) {
        encoded_release(&encoded);
        return status;
    }
    *out = encoded;
    return STATUS_OK;
}

void encoded_release(struct encoded *encoded)
{
    mem_free(encoded->id);
    mem_free(encoded->start);
    vocab_destroy(encoded->vocab);
    *encoded = (struct encoded){ 0 };
}
