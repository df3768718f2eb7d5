/* SPDX-License-Identifier: MIT */
/* agree.c - rank 0 collects what the others have, compares, and tells everybody. */
#include "transport/agree.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"

/* What rank 0 tells. */
struct verdict {
    uint32_t differs;
    char text[256];
};

static void compare(const struct agree_fact *facts, const char (*theirs)[AGREE_TEXT], int count,
                    int rank, struct verdict *verdict)
{
    for (int i = 0; i < count && !verdict->differs; i++) {
        if (memcmp(facts[i].text, theirs[i], AGREE_TEXT) == 0)
            continue;
        verdict->differs = 1;
        (void)snprintf(verdict->text, sizeof(verdict->text),
                       "rank %d has another %s than rank 0: %.20s, not %.20s", rank,
                       facts[i].name, theirs[i], facts[i].text);
    }
}

/* What rank 0 does about one of the others. Whose facts are another number has another program,
 * and what they are is left unread. */
static enum status hear(struct transport *transport, uint32_t tag, int rank,
                        const struct agree_fact *facts, int count, char (*theirs)[AGREE_TEXT],
                        struct verdict *verdict)
{
    int32_t n;

    TRY(transport_receive(transport, rank, tag, &n, sizeof(n)));
    if (n != count) {
        if (!verdict->differs)
            (void)snprintf(verdict->text, sizeof(verdict->text),
                           "rank %d has another program than rank 0", rank);
        verdict->differs = 1;
        return STATUS_OK;
    }
    TRY(transport_receive(transport, rank, tag + 1, theirs, (size_t)count * AGREE_TEXT));
    compare(facts, (const char(*)[AGREE_TEXT])theirs, count, rank, verdict);
    return STATUS_OK;
}

static enum status judge(struct transport *transport, uint32_t tag,
                         const struct agree_fact *facts, int count, char (*texts)[AGREE_TEXT],
                         struct verdict *verdict)
{
    const int size = transport_size(transport);

    for (int rank = 1; rank < size; rank++)
        TRY(hear(transport, tag, rank, facts, count, texts, verdict));
    for (int rank = 1; rank < size; rank++)
        TRY(transport_send(transport, rank, tag + 2, verdict, sizeof(*verdict)));
    return STATUS_OK;
}

static enum status submit(struct transport *transport, uint32_t tag,
                          const struct agree_fact *facts, int count, char (*texts)[AGREE_TEXT],
                          struct verdict *verdict)
{
    const int32_t n = count;

    for (int i = 0; i < count; i++)
        memcpy(texts[i], facts[i].text, AGREE_TEXT);
    TRY(transport_send(transport, 0, tag, &n, sizeof(n)));
    TRY(transport_send(transport, 0, tag + 1, texts, (size_t)count * AGREE_TEXT));
    return transport_receive(transport, 0, tag + 2, verdict, sizeof(*verdict));
}

enum status agree(struct transport *transport, const struct agree_fact *facts, int count)
{
    const uint32_t tag = transport_new_tags(transport, 3);
    struct verdict verdict = { 0 };
    char(*texts)[AGREE_TEXT];

    TRY(mem_alloc((size_t)count, sizeof(*texts), &texts));
    const enum status status = (transport_rank(transport) == 0 ? judge : submit)(
        transport, tag, facts, count, texts, &verdict);
    mem_free(texts);
    TRY(status);
    verdict.text[sizeof(verdict.text) - 1] = '\0';
    return verdict.differs ? FAIL(STATUS_MISMATCH, "%s", verdict.text) : STATUS_OK;
}

static enum status add_file(struct sha256 *hash, const char *path)
{
    struct file_map map;

    TRY(file_map(path, &map));
    sha256_add(hash, map.data, map.length);
    file_unmap(&map);
    return STATUS_OK;
}

enum status agree_program(char out[AGREE_TEXT])
{
    struct sha256 hash;
    Dl_info here;

    memset(out, 0, AGREE_TEXT);
    sha256_init(&hash);
    TRY(add_file(&hash, "/proc/self/exe"));
    if (dladdr(__extension__(void *) agree, &here) != 0 && here.dli_fname &&
        strstr(here.dli_fname, ".so"))
        TRY(add_file(&hash, here.dli_fname));
    sha256_end_hex(&hash, out);
    return STATUS_OK;
}
