/* SPDX-License-Identifier: MIT */
/* trace_file_test.c - the steps of a trace, clocks of other machines, one file for all ranks. */
#include "train/trace_file.h"

#include <pthread.h>
#include <stdio.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"
#include "comm/comm_testing.h"

static void check_window(const char *text, uint64_t first, uint64_t end, uint64_t from,
                         uint64_t to)
{
    struct trace_window window;

    CHECK_OK(trace_window_read(text, first, end, &window));
    CHECK_INT((long long)from, (long long)window.begin);
    CHECK_INT((long long)to, (long long)window.end);
}

static void test_ten_steps_are_traced_unless_told_otherwise(void)
{
    check_window("", 0, 1000, 10, 20);
    check_window("", 500, 1000, 510, 520);
    check_window("", 0, 20, 10, 20);
    check_window("", 0, 15, 5, 15);
    check_window("", 0, 4, 0, 10);
    check_window("0:3", 0, 4, 0, 3);
    check_window("100:250", 0, 4, 100, 250);
}

static void test_a_window_that_is_none_is_refused(void)
{
    static const char *const wrong[] = { "5",   ":",    "5:",   ":5",   "5:5", "6:5",
                                         "a:b", "5:6x", "-1:5", "1:-5", "1;5" };
    struct trace_window window;

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(STATUS_USAGE, trace_window_read(wrong[i], 0, 9, &window));
        CHECK_MESSAGE("--trace-steps");
    }
}

static int64_t fast_clock(void)
{
    return clock_ns() + 5000000000;
}

static enum status compare_clocks(struct comm *comm, void *arg)
{
    struct transport *transport = comm_transport(comm);
    const uint32_t tag = transport_new_tags(transport, 1);

    if (comm_rank(comm) == 1)
        return trace_tell_time(transport, tag, fast_clock);
    return trace_ask_time(transport, 1, tag, clock_ns, arg);
}

static void test_a_clock_that_is_ahead_is_found_out(void)
{
    int64_t ahead = 0;

    CHECK_OK(comm_testing_threads(2, NULL, compare_clocks, &ahead));
    CHECK(ahead > 5000000000 - 5000000 && ahead < 5000000000 + 5000000);
}

enum { RANKS = 3, EVENTS = 20000 /* more than one message */ };

static enum status trace_a_little(struct transport *transport, const char *path)
{
    struct trace *trace;
    struct trace_row *row;

    TRY(trace_create(&trace));
    enum status status = trace_add_row(trace, "lane 0", 0, &row);
    trace_switch(trace, true);
    for (int i = 0; i < EVENTS && status == STATUS_OK; i++)
        trace_end(row, trace_begin(row), TRACE_COMPUTE, "conv1", "reference");
    if (status == STATUS_OK)
        status = trace_file_write(trace, transport, path);
    trace_destroy(trace);
    return status;
}

static enum status trace_on_one_node(struct comm *comm, void *arg)
{
    return trace_a_little(comm_transport(comm), arg);
}

struct rank {
    struct transport *transport;
    const char *path;
    enum status status;
};

static void *run_rank(void *arg)
{
    struct rank *rank = arg;

    rank->status = trace_a_little(rank->transport, rank->path);
    return NULL;
}

static void check_file(const char *path)
{
    char *text;
    size_t length, events[RANKS] = { 0 };
    struct json *json;

    CHECK_OK(file_read(path, (size_t)64 << 20, &text, &length));
    CHECK_OK(json_parse(text, length, &json));
    const struct json_value *all = json_get(json_root(json), "traceEvents");
    CHECK(all && all->kind == JSON_ARRAY);
    for (size_t i = 0; i < all->count; i++) {
        const struct json_value *event = &all->items[i];
        const int64_t rank = json_integer(event, "pid", -1);
        CHECK(rank >= 0 && rank < RANKS);
        if (json_text(event, "ph", "")[0] != 'X')
            continue;
        events[rank]++;
        CHECK(json_number(event, "ts", -1e9) > -1e6 && json_number(event, "ts", 1e99) < 60e6);
    }
    for (int r = 0; r < RANKS; r++)
        CHECK_INT(EVENTS, events[r]);
    CHECK_INT(0, json_integer(json_get(json_root(json), "otherData"), "dropped_events", -1));
    json_destroy(json);
    mem_free(text);
}

static void test_all_ranks_are_in_one_file(void)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/trace.json", test_folder());
    CHECK_OK(comm_testing_threads(RANKS, NULL, trace_on_one_node, path));
    check_file(path);
}

static void test_ranks_of_other_nodes_are_in_it_too(void)
{
    struct transport *ends[RANKS];
    struct rank ranks[RANKS];
    pthread_t threads[RANKS];
    char path[256];

    (void)snprintf(path, sizeof path, "%s/trace.json", test_folder());
    CHECK_OK(transport_inproc_create_nodes(RANKS, 2, ends));
    for (int r = 0; r < RANKS; r++) {
        ranks[r] = (struct rank){ .transport = ends[r], .path = path };
        CHECK_INT(0, pthread_create(&threads[r], NULL, run_rank, &ranks[r]));
    }
    for (int r = 0; r < RANKS; r++)
        CHECK_INT(0, pthread_join(threads[r], NULL));
    transport_inproc_destroy(ends, RANKS);
    for (int r = 0; r < RANKS; r++)
        CHECK_INT(STATUS_OK, ranks[r].status);
    check_file(path);
}

const struct test tests[] = {
    { .name = "ten steps are traced unless told otherwise",
      .run = test_ten_steps_are_traced_unless_told_otherwise },
    { .name = "a window that is none is refused",
      .run = test_a_window_that_is_none_is_refused },
    { .name = "a clock that is ahead is found out",
      .run = test_a_clock_that_is_ahead_is_found_out },
    { .name = "all ranks are in one file", .run = test_all_ranks_are_in_one_file },
    { .name = "ranks of other nodes are in it too",
      .run = test_ranks_of_other_nodes_are_in_it_too },
    { 0 },
};
