/* SPDX-License-Identifier: MIT */
/* device_face_test.c - the face of devices but for what computes: their names, the plug-in where it or a GPU is absent,
 * memory, words that streams hand over, samples that are picked of images.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "kernel/device_check_testing.h"
#include "kernel/device_rows.h"

static void what_is_no_device_is_refused(void)
{
    const struct device_face *face;

    CHECK_STATUS(STATUS_USAGE, device_find("tpu", &face));
    CHECK_MESSAGE("unknown device tpu");
    CHECK_OK(device_find("cpu", &face));
    CHECK_TEXT("cpu", face->name);
}

static void a_plugin_that_is_not_there_is_named(void)
{
    const char *set = getenv("TUTTI_CUDA");
    char before[PATH_MAX] = "";
    const struct device_face *face;

    (void)snprintf(before, sizeof before, "%s", set ? set : "");
    CHECK(setenv("TUTTI_CUDA", "/nowhere/tutti-cuda.so", 1) == 0);
    CHECK_STATUS(STATUS_NOT_FOUND, device_find("cuda", &face));
    CHECK_MESSAGE("/nowhere/tutti-cuda.so");
    CHECK(setenv("TUTTI_CUDA", before, 1) == 0); /* empty: as if it were not set */
}

static void a_machine_without_a_gpu_says_so(void)
{
    const struct device_face *face;
    struct device *device;
    int count;

    if (device_load_cuda(&face) != STATUS_OK)
        test_skip(status_message());
    if (face->count(&count) == STATUS_OK) {
        CHECK(count > 0);
        CHECK_STATUS(STATUS_NOT_FOUND, face->open(count, &device));
        CHECK_MESSAGE("there is no device");
        return;
    }
    CHECK_MESSAGE("cuda: ");
    CHECK_STATUS(STATUS_UNSUPPORTED, device_find("cuda", &face));
}

static void memory_that_is_not_there_is_refused(void)
{
    const struct device_place *place = device_gpu();
    void *memory;

    CHECK_STATUS(STATUS_NO_MEMORY,
                 place->face->memory->create(place->device, (size_t)1 << 45, &memory));
    CHECK_MESSAGE("MiB are free");
    CHECK_OK(place->face->memory->create_host(place->device, 100, &memory));
    place->face->memory->destroy_host(place->device, memory);
}

/* What comes back is what went there, whether the memory could be locked or not. */
static void check_locked(struct rng *rng, const struct device_place *place)
{
    enum { BYTES = 3 * 4096 };
    const struct device_memory_ops *memory = place->face->memory;
    char *here, *back;
    void *there;

    CHECK_OK(mem_alloc(BYTES, 1, &here));
    CHECK_OK(mem_alloc(BYTES, 1, &back));
    CHECK_OK(memory->create(place->device, BYTES, &there));
    for (int i = 0; i < BYTES; i++)
        here[i] = (char)rng_below(rng, 256);
    for (int turn = 0; turn < 2; turn++) { /* locked again where it was unlocked */
        const bool locks = memory->lock_host(place->device, here, BYTES);
        const bool locks_back = memory->lock_host(place->device, back, BYTES);
        memset(back, 0, BYTES);
        CHECK_OK(memory->copy(place->stream, there, here, BYTES));
        CHECK_OK(memory->copy(place->stream, back, there, BYTES));
        CHECK_OK(place->face->stream->wait(place->stream));
        CHECK(memcmp(here, back, BYTES) == 0);
        if (locks)
            memory->unlock_host(place->device, here);
        if (locks_back)
            memory->unlock_host(place->device, back);
    }
    memory->destroy(place->device, there);
    mem_free(here);
    mem_free(back);
}

static void locked_memory_is_copied(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_locked(rng, &cpu);
    device_place_close(&cpu);
}

static void locked_memory_is_copied_on_the_gpu(struct rng *rng)
{
    check_locked(rng, device_gpu());
}

/* Words that are handed over between streams; on a GPU whoever awaits may be first. */
static void check_words(struct rng *rng, const struct device_place *place)
{
    enum { WORDS = 5, MARKS = 300 };
    const struct device_face *face = place->face;
    const bool is_first = strcmp(face->name, "cpu") != 0 && rng_below(rng, 2);
    const size_t bytes = WORDS * sizeof(uint32_t) + 2 * MARKS;
    struct device_words words = { .count = WORDS };
    struct device_stream *other;
    struct device_handle handle;
    uint32_t *there, after[WORDS];
    uint8_t marks[2 * MARKS], joined[MARKS];

    CHECK_OK(face->stream->create(place->device, &other));
    CHECK_OK(face->share->create(place->device, bytes, (void **)&there, &handle));
    CHECK_OK(face->memory->fill(place->stream, there, 0, bytes));
    CHECK_OK(face->stream->wait(place->stream));
    for (int i = 0; i < WORDS; i++)
        words.word[i] = there + i;
    if (!is_first)
        face->share->signal(other, &words);
    face->share->await(place->stream, &words);
    if (is_first)
        face->share->signal(other, &words);
    CHECK_OK(face->stream->wait(place->stream));
    CHECK_OK(face->memory->copy(place->stream, after, there, sizeof after));
    CHECK_OK(face->stream->wait(place->stream));
    for (int i = 0; i < WORDS; i++)
        CHECK_INT(0, after[i]);
    uint8_t *marks_there = (uint8_t *)(there + WORDS);
    for (int i = 0; i < 2 * MARKS; i++)
        marks[i] = (uint8_t)rng_below(rng, 2);
    CHECK_OK(face->memory->copy(place->stream, marks_there, marks, sizeof marks));
    face->join_marks(place->stream, marks_there, marks_there, marks_there + MARKS, MARKS);
    CHECK_OK(face->memory->copy(place->stream, joined, marks_there, sizeof joined));
    CHECK_OK(face->stream->wait(place->stream));
    for (int i = 0; i < MARKS; i++)
        CHECK_INT(marks[i] | marks[MARKS + i], joined[i]);
    face->share->destroy(place->device, there);
    face->stream->destroy(other);
}

static void streams_hand_words_over(struct rng *rng)
{
    struct device_place cpu;

    CHECK_OK(device_place_open("cpu", &cpu));
    check_words(rng, &cpu);
    device_place_close(&cpu);
}

static void streams_hand_words_over_on_the_gpu(struct rng *rng)
{
    check_words(rng, device_gpu());
}

/* Samples of images there, beside those that the CPU makes: looked up, so the same bits. */
static void samples_are_picked_alike_on_the_gpu(struct rng *rng)
{
    enum { IMAGES = 9, SIDE = 40, ROWS = 20 };
    static struct {
        uint8_t pixels[IMAGES * 3 * SIDE * SIDE];
        int32_t labels[IMAGES];
        float values[3 * DEVICE_BYTES];
        struct pick picks[ROWS];
        float x[ROWS * 3 * SIDE * SIDE];
        int32_t y[ROWS];
    } here, back, *there;
    const struct device_place *place = device_gpu();
    const struct device_memory_ops *memory = place->face->memory;
    struct device_images images = { .pixels = here.pixels,
                                    .labels = here.labels,
                                    .values = here.values,
                                    .channels = 1 + 2 * (int64_t)rng_below(rng, 2),
                                    .height = 1 + (int64_t)rng_below(rng, SIDE),
                                    .width = 1 + (int64_t)rng_below(rng, SIDE) };
    const size_t rows = 1 + rng_below(rng, ROWS);

    for (size_t i = 0; i < sizeof here.pixels; i++)
        here.pixels[i] = (uint8_t)rng_below(rng, DEVICE_BYTES);
    for (int i = 0; i < 3 * DEVICE_BYTES; i++)
        here.values[i] = rng_float(rng);
    for (int i = 0; i < IMAGES; i++)
        here.labels[i] = (int32_t)rng_below(rng, 1000);
    for (int i = 0; i < ROWS; i++)
        here.picks[i] = (struct pick){ .sample = (int32_t)rng_below(rng, IMAGES),
                                       .down = (int16_t)(rng_below(rng, 9) - 4),
                                       .right = (int16_t)(rng_below(rng, 9) - 4),
                                       .top = (int16_t)rng_below(rng, SIDE),
                                       .bottom = (int16_t)rng_below(rng, SIDE),
                                       .left = (int16_t)rng_below(rng, SIDE),
                                       .end = (int16_t)rng_below(rng, SIDE),
                                       .flip = (int16_t)rng_below(rng, 2) };
    memset(here.x, 0, sizeof here.x);
    memset(here.y, 0, sizeof here.y);
    CHECK_OK(memory->create(place->device, sizeof here, (void **)&there));
    CHECK_OK(memory->copy(place->stream, there, &here, sizeof here));
    device_pick_cpu(NULL, &images, here.picks, rows, here.x, here.y);
    images.pixels = there->pixels;
    images.labels = there->labels;
    images.values = there->values;
    place->face->pick(place->stream, &images, there->picks, rows, there->x, there->y);
    CHECK_OK(memory->copy(place->stream, &back, there, sizeof back));
    CHECK_OK(place->face->stream->wait(place->stream));
    CHECK(memcmp(&here, &back, sizeof here) == 0);
    memory->destroy(place->device, there);
}

const struct test tests[] = {
    { .name = "what is no device is refused", .run = what_is_no_device_is_refused },
    { .name = "a plug-in that is not there is named",
      .run = a_plugin_that_is_not_there_is_named },
    { .name = "a machine without a GPU says so", .run = a_machine_without_a_gpu_says_so },
    { .name = "memory that is not there is refused",
      .run = memory_that_is_not_there_is_refused },
    { .name = "locked memory is copied", .property = locked_memory_is_copied },
    { .name = "locked memory is copied on the GPU",
      .property = locked_memory_is_copied_on_the_gpu },
    { .name = "streams hand words over", .property = streams_hand_words_over },
    { .name = "streams hand words over on the GPU",
      .property = streams_hand_words_over_on_the_gpu },
    { .name = "samples are picked alike on the GPU",
      .property = samples_are_picked_alike_on_the_gpu },
    { 0 },
};
