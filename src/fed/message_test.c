/* SPDX-License-Identifier: MIT */
/* message_test.c - what is written is read; what is anything else is refused. */
#include "fed/message.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"

static struct fed_message any_message(struct rng *rng, uint8_t *payload, size_t room)
{
    struct fed_message message = { .type = (enum fed_type)(1 + rng_below(rng, FED_TYPES - 1)),
                                   .samples = rng_below(rng, 1000),
                                   .round = (int64_t)rng_below(rng, 1000),
                                   .stage = (enum fed_stage)rng_below(rng, FED_STAGES),
                                   .seconds = (double)rng_below(rng, 60),
                                   .payload = payload,
                                   .payload_length = rng_below(rng, room) };

    snprintf(message.client, sizeof message.client, "clinic-%u.north_2", rng_u32(rng) % 100);
    snprintf(message.why, sizeof message.why, "because %u", rng_u32(rng) % 100);
    for (size_t i = 0; i < message.payload_length; i++)
        payload[i] = (uint8_t)rng_u32(rng);
    return message;
}

static void test_written_is_read(struct rng *rng)
{
    uint8_t payload[200];
    const struct fed_message message = any_message(rng, payload, sizeof payload);
    struct fed_buffer bytes, again;
    struct fed_message read;

    fed_buffer_init(&bytes, 1 << 16);
    fed_buffer_init(&again, 1 << 16);
    fed_message_write(&message, &bytes);
    CHECK_OK(fed_buffer_status(&bytes));
    CHECK_OK(fed_message_read(bytes.data, bytes.length, &read));
    CHECK_INT(message.type, read.type);
    fed_message_write(&read, &again);
    CHECK_INT(bytes.length, again.length);
    CHECK(memcmp(bytes.data, again.data, bytes.length) == 0);
    for (size_t length = 0; length < bytes.length; length++)
        CHECK_STATUS(STATUS_CORRUPT, fed_message_read(bytes.data, length, &read));
    fed_put_u8(&bytes, 0);
    CHECK_STATUS(STATUS_CORRUPT, fed_message_read(bytes.data, bytes.length, &read));
    fed_buffer_release(&bytes);
    fed_buffer_release(&again);
}

static void test_names(void)
{
    CHECK(fed_name_is_good("a"));
    CHECK(fed_name_is_good("St.Mary_2-x"));
    static const char *const bad[] = {
        "", "a b", "../x", ".x", "-x", "a/b", "\xc3\xa4", "a\n"
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!fed_name_is_good(bad[i]));
    char longest[FED_NAME + 1];
    memset(longest, 'a', FED_NAME);
    longest[FED_NAME] = '\0';
    CHECK(!fed_name_is_good(longest));
    CHECK(fed_name_is_good(longest + 1));
}

static void test_updates(struct rng *rng)
{
    enum { LENGTH = 70 };
    static const char *const names[] = { "", "bf16", "int8", "topk:0.2" };
    const char *codec_text = names[rng_below(rng, 4)];
    float first[LENGTH], second[LENGTH];
    struct fed_update update = { .tally = { .samples = 3, .steps = 2, .loss = 1.5, .seen = 3 },
                                 .n_vectors = 2,
                                 .vector = { first, second },
                                 .length = LENGTH };
    struct codec_state *writes = NULL, *reads = NULL;
    struct codec_config config;
    struct fed_buffer bytes;
    struct fed_update read;

    for (int i = 0; i < LENGTH; i++) {
        first[i] = (float)rng_normal(rng);
        second[i] = (float)rng_normal(rng);
    }
    if (*codec_text) {
        CHECK_OK(codec_parse(codec_text, &config));
        CHECK_OK(codec_create(&config, &(struct codec_layout){ 0 }, LENGTH, &writes));
        CHECK_OK(codec_create(&config, &(struct codec_layout){ 0 }, LENGTH, &reads));
    }
    fed_buffer_init(&bytes, 1 << 16);
    CHECK_OK(fed_update_write(&update, writes, &bytes));
    CHECK_OK(fed_update_read(bytes.data, bytes.length, reads, LENGTH, 2, &read));
    CHECK_INT(3, read.tally.samples);
    CHECK(read.tally.loss == 1.5);
    CHECK(memcmp(read.vector[1], second, sizeof second) == 0);
    CHECK(*codec_text || memcmp(read.vector[0], first, sizeof first) == 0);
    fed_update_release(&read);
    for (size_t length = 0; length < bytes.length; length += 1 + length / 8)
        CHECK_STATUS(STATUS_CORRUPT,
                     fed_update_read(bytes.data, length, reads, LENGTH, 2, &read));
    CHECK_STATUS(STATUS_CORRUPT,
                 fed_update_read(bytes.data, bytes.length, reads, LENGTH, 1, &read));
    CHECK_STATUS(STATUS_CORRUPT,
                 fed_update_read(bytes.data, bytes.length, NULL, LENGTH - 1, 2, &read));
    fed_buffer_release(&bytes);
    codec_destroy(writes);
    codec_destroy(reads);
}

static void test_numbers_that_are_none(void)
{
    float vector[4] = { 0, 1, NAN, 3 };
    struct fed_update update = { .n_vectors = 1, .vector = { vector }, .length = 4 };
    struct fed_work work = { .lr = 0.1, .n_vectors = 1, .vector = { vector }, .length = 4 };
    struct fed_buffer bytes;

    fed_buffer_init(&bytes, 1 << 10);
    CHECK_OK(fed_update_write(&update, NULL, &bytes));
    CHECK_STATUS(STATUS_CORRUPT,
                 fed_update_read(bytes.data, bytes.length, NULL, 4, 1, &update));
    fed_buffer_clear(&bytes);
    fed_work_write(&work, &bytes);
    CHECK_STATUS(STATUS_CORRUPT, fed_work_read(bytes.data, bytes.length, 4, &work));
    vector[2] = 2;
    work = (struct fed_work){ .lr = 0.1, .n_vectors = 1, .vector = { vector }, .length = 4 };
    fed_buffer_clear(&bytes);
    fed_work_write(&work, &bytes);
    CHECK_OK(fed_work_read(bytes.data, bytes.length, 4, &work));
    CHECK(work.vector[0][2] == 2);
    fed_work_release(&work);
    CHECK_STATUS(STATUS_CORRUPT, fed_work_read(bytes.data, bytes.length, 5, &work));
    fed_buffer_release(&bytes);
}

static void test_buffers_have_a_maximum(void)
{
    struct fed_buffer bytes;

    fed_buffer_init(&bytes, 10);
    fed_put(&bytes, "0123456789", 10);
    CHECK_OK(fed_buffer_status(&bytes));
    fed_put_u8(&bytes, 1);
    CHECK_STATUS(STATUS_NO_MEMORY, fed_buffer_status(&bytes));
    CHECK_INT(10, bytes.length);
    fed_buffer_clear(&bytes);
    fed_put_u8(&bytes, 1);
    CHECK_OK(fed_buffer_status(&bytes));
    fed_buffer_release(&bytes);
}

const struct test tests[] = {
    { .name = "what is written is read, no more and no less",
      .property = test_written_is_read },
    { .name = "names are good or not", .run = test_names },
    { .name = "updates with and without codec", .property = test_updates },
    { .name = "numbers that are none are refused", .run = test_numbers_that_are_none },
    { .name = "buffers have a maximum", .run = test_buffers_have_a_maximum },
    { 0 },
};
