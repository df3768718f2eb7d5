/* SPDX-License-Identifier: MIT */
/* fuzz_codec.c - a node's payload may be anything: it is refused, or decoded within bounds.
 *
 * The first byte picks the codec, the second and third the length of the bucket, the rest is what
 * the other node sent in the first round; what follows that is its second. With a first byte
 * that is no codec's the rest is a codec's name. */
#include <string.h>

#include "base/mem.h"
#include "comm/codec.h"
#include "fuzz.h"

enum { HEADER = 3, TEXT = 64, NODES = 2 };

static void parse(const uint8_t *data, size_t size)
{
    struct codec_config config;
    char text[TEXT + 1] = "";

    memcpy(text, data, size < TEXT ? size : TEXT);
    if (codec_parse(text, &config) != STATUS_OK)
        BUG_ON(!status_message()[0]);
    else
        BUG_ON(!(config.amount >= 0));
}

static void *copy_of(const uint8_t *data, size_t size, size_t room)
{
    char *copy;

    if (mem_alloc(room, 1, &copy) != STATUS_OK)
        return NULL;
    if (size > 0)
        memcpy(copy, data, size < room ? size : room);
    return copy;
}

/* Our own payload and theirs: `data` as long as it is, then filled up with zeros. Returns how much
 * of data was used. */
static size_t decode_round(struct codec_state *state, int round, const float *gradient,
                           const uint8_t *data, size_t size, float *sum)
{
    const size_t most = codec_max_bytes(state, round);
    const size_t used = size < most ? size : most;
    void *mine = copy_of(NULL, 0, most), *theirs = copy_of(data, used, used);
    void *padded = copy_of(data, used, most);
    const void *payloads[NODES] = { mine, theirs };
    size_t bytes[NODES] = { most, used };

    if (mine && theirs && padded) {
        bytes[0] = codec_encode(state, round, gradient, mine);
        BUG_ON(codec_decode(state, round, payloads, bytes, NODES, sum) == STATUS_OK &&
               used != most);
        payloads[1] = padded;
        bytes[1] = most;
        if (codec_decode(state, round, payloads, bytes, NODES, sum) != STATUS_OK)
            BUG_ON(!status_message()[0]);
    }
    mem_free(mine);
    mem_free(theirs);
    mem_free(padded);
    return used;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct codec_matrix matrices[] = { { 0, 8, 16 }, { 130, 7, 5 } };
    const struct codec_layout layout = { matrices, 2 };
    struct codec_config config;
    struct codec_state *state;
    float *gradient, *sum;
    int at = 0;

    if (size < HEADER)
        return 0;
    while (codecs[at] && at < data[0])
        at++;
    if (!codecs[at]) {
        parse(data + 1, size - 1);
        return 0;
    }
    const size_t count =
        200u + data[2] + (data[1] == 255 ? 1u << 16 : 0); /* topk: two groups */
    if (codec_parse(codec_name(codecs[at]), &config) != STATUS_OK ||
        codec_create(&config, &layout, count, &state) != STATUS_OK)
        return 0;
    if (mem_alloc(count, sizeof(float), &gradient) == STATUS_OK) {
        if (mem_alloc(count, sizeof(float), &sum) == STATUS_OK) {
            data += HEADER;
            size -= HEADER;
            for (int round = 0; round < codec_rounds(state); round++) {
                const size_t used = decode_round(state, round, gradient, data, size, sum);
                data += used;
                size -= used;
            }
            mem_free(sum);
        }
        mem_free(gradient);
    }
    codec_destroy(state);
    return 0;
}
