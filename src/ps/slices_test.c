/* SPDX-License-Identifier: MIT */
/* slices_test.c - every element belongs to one server, and servers have about as much; frames that are wrong
 * are refused. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "ps/frame.h"
#include "ps/line.h"
#include "ps/ps_testing.h"

static void test_every_element_has_one_server(struct rng *rng)
{
    struct slices *slices;
    struct toy toy;
    uint8_t *seen;

    toy_make(&toy, rng, 1 + (int)rng_below(rng, TOY_BUCKETS), "adam");
    toy.config.servers = 1 + (int)rng_below(rng, 4);
    toy.config.replicas = toy.config.servers > 1 ? 2 : 1;
    while (ps_check(&toy.config) != STATUS_OK) {
        toy.config.servers--;
        toy.config.replicas = 1;
    }
    CHECK_OK(slices_create(&toy.config, &slices));
    CHECK_OK(mem_alloc((size_t)slices->vector, 1, &seen));
    for (int i = 0; i < slices->count; i++) {
        const struct slice *slice = &slices->slice[i];
        CHECK(slice->server >= 0 && slice->server < toy.config.servers);
        CHECK(slice->partner != slice->server);
        CHECK(i >= slices->of_bucket[slice->bucket] &&
              i < slices->of_bucket[slice->bucket + 1]);
        for (int64_t k = 0; k < slice->count; k++) {
            const int64_t row = slice->is_table ? k / slice->width : 0;
            const int64_t at = slice->is_table
                                   ? slice->at +
                                         (slice->first + row * slice->step) * slice->width +
                                         k % slice->width
                                   : slice->at + k;
            CHECK(!seen[at]);
            seen[at] = 1;
            if (slice->is_table)
                CHECK_INT(i, slices_of_row(slices, slice->bucket,
                                           (int32_t)(slice->first + row * slice->step)));
        }
    }
    for (int b = 0; b < toy.config.layout.buckets; b++) {
        const struct ps_table *table = &toy.tables[b];
        const int64_t end =
            table->width ? toy.begin[b] + table->rows * table->width : toy.begin[b + 1];
        for (int64_t at = toy.begin[b]; at < end; at++)
            CHECK(seen[at]);
    }
    mem_free(seen);
    slices_destroy(slices);
}

/* A model as they are: some large buckets and many small ones. */
static void test_servers_have_about_as_much(void)
{
    static const int64_t counts[] = { 400000, 64,   1000000, 512,  90000,
                                      30000,  4096, 16,      2048, 70000 };
    enum { BUCKETS = sizeof(counts) / sizeof(*counts) };
    int64_t begin[BUCKETS + 1] = { 0 };
    struct ps_table tables[BUCKETS] = { [2] = { .rows = 10000, .width = 100 } };
    struct ps_update updates[BUCKETS] = { { 0 } };
    struct toy toy;
    struct rng rng;

    rng_init(&rng, 1, 1);
    toy_make(&toy, &rng, 1, "sgd");
    for (int b = 0; b < BUCKETS; b++)
        begin[b + 1] = begin[b] + counts[b];
    toy.config.layout = (struct ps_layout){
        .buckets = BUCKETS, .begin = begin, .tables = tables, .updates = updates
    };
    for (toy.config.servers = 1; toy.config.servers <= 8; toy.config.servers++) {
        int64_t load[8] = { 0 };
        struct slices *slices;

        CHECK_OK(slices_create(&toy.config, &slices));
        for (int i = 0; i < slices->count; i++)
            load[slices->slice[i].server] += slices->slice[i].count;
        for (int s = 0; s < toy.config.servers; s++)
            CHECK_CLOSE((double)begin[BUCKETS] / toy.config.servers, load[s], 0.1);
        slices_destroy(slices);
    }
}

/* Frames ------------------------------------------------------------------------------------------- */

struct message {
    struct frame head;
    unsigned char payload[256];
};

static void check_refused(const struct slices *slices, const struct message *message, int from,
                          size_t bytes, const char *text)
{
    struct frame out;

    CHECK_STATUS(STATUS_CORRUPT, frame_check(slices, from, message, bytes, &out));
    CHECK_MESSAGE(text);
}

/* One slice that is dense, and one of a table of 7 rows of 3. */
static void make_slices(struct toy *toy, struct slices **out)
{
    static const struct ps_table tables[2] = { { 0 }, { .rows = 7, .width = 3 } };
    static const int64_t begin[3] = { 0, 32, 64 };
    struct rng rng;

    rng_init(&rng, 1, 1);
    toy_make(toy, &rng, 2, "adam");
    toy->config.layout.begin = begin;
    toy->config.layout.tables = tables;
    CHECK_OK(slices_create(&toy->config, out));
}

static void test_wrong_frames_are_refused(void)
{
    struct message good = { .head = { .magic = FRAME_MAGIC, .kind = FRAME_PUT, .count = 4 } };
    const size_t bytes = sizeof(struct frame) + 16;
    struct message wrong;
    struct slices *slices;
    struct frame out;
    struct toy toy;

    make_slices(&toy, &slices);
    good.head.bytes = 16;
    CHECK_OK(frame_check(slices, 0, &good, bytes, &out));

    check_refused(slices, &good, 0, 10, "10 bytes");
    check_refused(slices, &good, 0, bytes - 1, "put frame");
    check_refused(slices, &good, -1, bytes, "server does not send a put");
    wrong = good;
    wrong.head.magic = 5;
    check_refused(slices, &wrong, 0, bytes, "no frame");
    wrong = good;
    wrong.head.kind = FRAME_KINDS;
    check_refused(slices, &wrong, 0, bytes, "no frame");
    wrong = good;
    wrong.head.slice = 2;
    check_refused(slices, &wrong, 0, bytes, "slice 2 of 2");
    wrong = good;
    wrong.head.part = 2;
    check_refused(slices, &wrong, 0, bytes, "part 2");
    wrong = good;
    wrong.head.at = 29;
    check_refused(slices, &wrong, 0, bytes, "at 29");
    wrong.head.at = INT64_MAX;
    check_refused(slices, &wrong, 0, bytes, "put frame");

    const int32_t id = 6;
    struct message rows = { .head = { .magic = FRAME_MAGIC,
                                      .kind = FRAME_ROWS,
                                      .slice = 1,
                                      .count = 1,
                                      .bytes = 16 } };
    memcpy(rows.payload, &id, sizeof(id));
    CHECK_OK(frame_check(slices, 0, &rows, bytes, &out));
    rows.payload[0] = 7;
    check_refused(slices, &rows, 0, bytes, "row numbers");
    rows.head.slice = 0;
    check_refused(slices, &rows, 0, bytes, "rows frame");
    slices_destroy(slices);
}

/* Each field of rows, and of squares. */
static void test_wrong_rows_and_squares_are_refused(void)
{
    const struct frame head = {
        .magic = FRAME_MAGIC, .kind = FRAME_ROWS, .slice = 1, .count = 2, .bytes = 32
    };
    const size_t bytes = sizeof(struct frame) + 32;
    static const int32_t wrong_ids[][2] = { { 3, 3 },  { 4, 2 },         { 5, 7 },
                                            { -1, 2 }, { 0, INT32_MIN }, { INT32_MAX, 1 } };
    static const int64_t wrong_counts[] = {
        0, -2, 1, 3, INT64_MAX, INT64_MIN, (int64_t)1 << 32, ((int64_t)1 << 62) + 2
    };
    struct message good = { .head = head }, wrong;
    struct slices *slices;
    struct frame out;
    struct toy toy;

    make_slices(&toy, &slices);
    memcpy(good.payload, (const int32_t[]){ 2, 6 }, 8);
    CHECK_OK(frame_check(slices, 0, &good, bytes, &out));
    for (size_t cut = 0; cut < bytes; cut++) /* truncated anywhere */
        CHECK_STATUS(STATUS_CORRUPT, frame_check(slices, 0, &good, cut, &out));
    for (size_t i = 0; i < sizeof(wrong_ids) / sizeof(*wrong_ids); i++) {
        wrong = good;
        memcpy(wrong.payload, wrong_ids[i], sizeof(*wrong_ids));
        check_refused(slices, &wrong, 0, bytes, "row numbers");
    }
    for (size_t i = 0; i < sizeof(wrong_counts) / sizeof(*wrong_counts); i++) {
        wrong = good;
        wrong.head.count = wrong_counts[i];
        check_refused(slices, &wrong, 0, bytes, "a rows frame");
    }
    wrong = good;
    wrong.head.at = -1;
    check_refused(slices, &wrong, 0, bytes, "at -1");
    wrong.head.at = INT64_MAX;
    check_refused(slices, &wrong, 0, bytes, "a rows frame");
    wrong = good;
    wrong.head.part = slices->n_nodes[0];
    check_refused(slices, &wrong, 0, bytes, "part");
    wrong.head.part = -1;
    check_refused(slices, &wrong, 0, bytes, "part -1");
    wrong = good;
    wrong.head.bytes = 31;
    check_refused(slices, &wrong, 0, bytes, "a rows frame");
    wrong.head.bytes = UINT32_MAX;
    check_refused(slices, &wrong, 0, bytes, "a rows frame");
    check_refused(slices, &good, -1, bytes, "a server does not send a rows frame");

    struct message squares = {
        .head = { .magic = FRAME_MAGIC, .kind = FRAME_SQUARES, .count = 1, .bytes = 8 }
    };
    CHECK_OK(frame_check(slices, -1, &squares, sizeof(struct frame) + 8, &out));
    check_refused(slices, &squares, 0, sizeof(struct frame) + 8, "a worker does not send");
    squares.head.at = 1;
    check_refused(slices, &squares, -1, sizeof(struct frame) + 8, "a squares frame");
    squares.head.slice = 1; /* a table's are 22 words */
    CHECK_OK(frame_check(slices, -1, &squares, sizeof(struct frame) + 8, &out));
    squares.head.at = 22;
    check_refused(slices, &squares, -1, sizeof(struct frame) + 8, "a squares frame");
    squares.head.at = INT64_MAX;
    check_refused(slices, &squares, -1, sizeof(struct frame) + 8, "a squares frame");
    slices_destroy(slices);
}

static void test_kinds_have_names(void)
{
    for (uint32_t kind = 1; kind < FRAME_KINDS; kind++)
        CHECK(frame_name(kind) && frame_name(kind)[0]);
    CHECK_TEXT("nothing known", frame_name(FRAME_KINDS));
}

/* Lines -------------------------------------------------------------------------------------------- */

/* Small frames and large ones have tags of their own; they come in the order in which they were sent. */
static void test_frames_come_in_order_and_wrong_ones_are_counted(void)
{
    enum { FRAMES = 40 };
    static float values[32];
    struct transport *ends[2];
    struct line lines[2];
    struct slices *slices[2];
    struct toy toy;
    struct rng rng;
    int came = 0;

    rng_init(&rng, 1, 1);
    toy_make(&toy, &rng, 1, "sgd");
    toy.tables[0] = (struct ps_table){ 0 };
    toy.begin[1] = 32;
    CHECK_OK(transport_inproc_create(2, ends));
    for (int i = 0; i < 2; i++) {
        toy.config.transport = ends[i];
        CHECK_OK(slices_create(&toy.config, &slices[i]));
        CHECK_OK(line_open(&lines[i], slices[i], 1 - i, 0, 8));
    }
    for (int i = 0; i < FRAMES; i++) {
        struct job *job = line_add(&lines[0], i % 3 ? FRAME_PUSH : FRAME_PUT, 0);
        CHECK(job);
        job->head.clock = (uint64_t)i;
        job->head.part = i == 7 ? 99 : -1; /* of a push it does not matter */
        if (i % 3 == 0) {
            job->fill = line_fill_floats;
            job->arg = values;
            job->end = 32;
            job->head.part = i == 9 ? 5 : -1; /* no such state */
        }
    }
    for (int tries = 0; came < FRAMES - 1 && tries < 10000; tries++) {
        const void *payload;
        struct frame frame;
        bool moved, is;

        CHECK_OK(line_send(&lines[0], &moved));
        CHECK_OK(line_receive(&lines[1], &frame, &payload, &is));
        if (!is)
            continue;
        came += came == 9; /* that one is missing */
        CHECK_INT(came, frame.clock);
        came++;
    }
    CHECK_INT(1, lines[1].refused);
    CHECK(line_is_idle(&lines[0]));
    for (int i = 0; i < 2; i++) {
        line_close(&lines[i]);
        slices_destroy(slices[i]);
    }
    transport_inproc_destroy(ends, 2);
}

const struct test tests[] = {
    { "every element has one server", .property = test_every_element_has_one_server },
    { "servers have about as much", .run = test_servers_have_about_as_much },
    { "wrong frames are refused", .run = test_wrong_frames_are_refused },
    { "wrong rows and squares are refused", .run = test_wrong_rows_and_squares_are_refused },
    { "kinds have names", .run = test_kinds_have_names },
    { "frames come in order, and wrong ones are counted",
      .run = test_frames_come_in_order_and_wrong_ones_are_counted },
    { 0 },
};
