/* SPDX-License-Identifier: MIT */
/* trace_test.c - events are kept while a trace is on, dropped beyond their room, and told as JSON. */
#include "base/trace.h"

#include <pthread.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/test.h"

/* Events of a row, of kind "X", in what trace_print gives. */
static size_t count_events(const char *text, const char *name)
{
    size_t count = 0;

    for (const char *at = text; (at = strstr(at, name)); at += strlen(name))
        count++;
    return count;
}

static void test_events_are_kept_while_the_trace_is_on(void)
{
    struct trace *trace;
    struct trace_row *row;
    struct strbuf text;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_add_row(trace, "lane 0", 4, &row));
    trace_end(row, trace_begin(row), TRACE_COMPUTE, "before", NULL);
    trace_end(row, trace_begin_rare(row), TRACE_CHECKPOINT, "seldom", NULL);
    trace_switch(trace, true);
    row->step = 7;
    trace_end(row, trace_begin(row), TRACE_COMPUTE, "conv1", "own");
    trace_switch(trace, false);
    trace_end(row, trace_begin(row), TRACE_COMPUTE, "after", NULL);

    strbuf_init(&text, 1 << 20);
    CHECK_INT(0, trace_print(trace, 3, "rank 3", trace_origin(trace), &text));
    CHECK_OK(strbuf_status(&text));
    CHECK_INT(0, count_events(text.text, "before"));
    CHECK_INT(0, count_events(text.text, "after"));
    CHECK_INT(1, count_events(text.text, "seldom"));
    CHECK_INT(1, count_events(text.text, "conv1"));
    strbuf_release(&text);
    trace_destroy(trace);
}

struct seen {
    int count;
    struct trace_event of[4];
};

static void see(void *arg, const struct trace_event *event)
{
    struct seen *seen = arg;

    seen->of[seen->count++] = *event;
}

static void test_events_are_told_row_by_row(void)
{
    struct seen seen = { 0 };
    struct trace *trace;
    struct trace_row *first, *second;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_add_row(trace, "lane 0", 4, &first));
    CHECK_OK(trace_add_row(trace, "net 0", 4, &second));
    trace_switch(trace, true);
    second->step = 3;
    trace_end(second, trace_begin(second), TRACE_TASK, "update", "5");
    trace_end(first, trace_begin(first), TRACE_COMPUTE, "conv1", NULL);
    trace_end(second, trace_begin(second), TRACE_TASK, "all_gather", "6");
    trace_each(trace, see, &seen);
    CHECK_INT(3, seen.count);
    CHECK_TEXT("conv1", seen.of[0].name);
    CHECK_TEXT("update", seen.of[1].name);
    CHECK_TEXT("6", seen.of[2].detail);
    CHECK(seen.of[1].kind == TRACE_TASK && seen.of[1].step == 3);
    CHECK(seen.of[1].begin <= seen.of[1].end && seen.of[1].end <= seen.of[2].end);
    trace_destroy(trace);
}

static void test_a_trace_is_json_with_rank_row_time_and_kernel(void)
{
    struct trace *trace;
    struct trace_row *first, *second;
    struct strbuf text;
    struct json *json;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_add_row(trace, "lane \"0\"", 4, &first));
    CHECK_OK(trace_add_row(trace, "wire", 4, &second));
    trace_switch(trace, true);
    second->step = 12;
    const int64_t begin = trace_begin(second);
    clock_sleep_ms(2);
    trace_end(second, begin, TRACE_COMPUTE, "fc\\1", "blas");
    strbuf_init(&text, 1 << 20);
    strbuf_add(&text, "[");
    (void)trace_print(trace, 1, "rank 1", begin - 5000, &text);
    strbuf_add(&text, "]");
    CHECK_OK(json_parse(text.text, text.length, &json));

    const struct json_value *last = &json_root(json)->items[json_root(json)->count - 1];
    CHECK_TEXT("fc\\1", json_text(last, "name", ""));
    CHECK_TEXT("compute", json_text(last, "cat", ""));
    CHECK_TEXT("X", json_text(last, "ph", ""));
    CHECK_INT(1, json_integer(last, "pid", -1));
    CHECK_INT(1, json_integer(last, "tid", -1));
    CHECK_CLOSE(5, json_number(last, "ts", -1), 1e-6);
    CHECK(json_number(last, "dur", -1) >= 2000);
    CHECK_INT(12, json_integer(json_get(last, "args"), "step", -1));
    CHECK_TEXT("blas", json_text(json_get(last, "args"), "kernel", ""));
    json_destroy(json);
    strbuf_release(&text);
    trace_destroy(trace);
}

static void test_a_task_may_overlap_others_of_its_thread(void)
{
    struct trace *trace;
    struct trace_row *row;
    struct strbuf text;
    struct json *json;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_add_row(trace, "net", 4, &row));
    trace_switch(trace, true);
    row->step = 3;
    const int64_t begin = trace_begin(row);
    trace_end(row, begin, TRACE_TASK, "norm", "17");
    strbuf_init(&text, 1 << 20);
    strbuf_add(&text, "[");
    (void)trace_print(trace, 2, "rank 2", begin - 5000, &text);
    strbuf_add(&text, "]");
    CHECK_OK(json_parse(text.text, text.length, &json));
    const struct json_value *array = json_root(json);
    for (int i = 0; i < 2; i++) {
        const struct json_value *event = &array->items[array->count - 2 + (size_t)i];
        CHECK_TEXT("norm", json_text(event, "name", ""));
        CHECK_TEXT("task", json_text(event, "cat", ""));
        CHECK_TEXT(i == 0 ? "b" : "e", json_text(event, "ph", ""));
        CHECK_TEXT("2.0.17", json_text(event, "id", ""));
        CHECK(json_number(event, "ts", -1) >= 5 - 1e-6);
        CHECK_INT(3, json_integer(json_get(event, "args"), "step", -1));
        CHECK_INT(17, json_integer(json_get(event, "args"), "task", -1));
    }
    json_destroy(json);
    strbuf_release(&text);
    trace_destroy(trace);
}

static void test_a_full_row_drops_and_counts(void)
{
    struct trace *trace;
    struct trace_row *row;
    struct strbuf text;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_add_row(trace, "lane 0", 3, &row));
    trace_switch(trace, true);
    const uint64_t allocations = mem_count();
    for (int i = 0; i < 10; i++)
        trace_end(row, trace_begin(row), TRACE_WAIT, i < 3 ? "kept" : "late", NULL);
    CHECK_INT((long long)allocations, (long long)mem_count());
    strbuf_init(&text, 1 << 20);
    CHECK_INT(7, trace_print(trace, 0, "rank 0", 0, &text));
    CHECK_INT(3, count_events(text.text, "kept"));
    CHECK_INT(0, count_events(text.text, "late"));
    strbuf_release(&text);
    trace_destroy(trace);
}

static void test_no_trace_has_no_rows(void)
{
    struct trace_row *row;

    CHECK_OK(trace_add_row(NULL, "lane 0", 0, &row));
    CHECK(!row);
    CHECK_INT(0, trace_begin(row));
    CHECK_INT(0, trace_begin_rare(row));
    trace_end(row, 0, TRACE_STEP, "nothing", NULL);
    trace_switch(NULL, true);
    trace_destroy(NULL);
}

static void *record(void *arg)
{
    struct trace_row *row = arg;

    for (int i = 0; i < 2000; i++)
        trace_end(row, trace_begin_rare(row), TRACE_LOAD, "read", NULL);
    return NULL;
}

static void test_a_row_is_printed_while_it_is_written(void)
{
    struct trace *trace;
    struct trace_row *row;
    struct strbuf text;
    pthread_t thread;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_add_row(trace, "loader 0", 1000, &row));
    CHECK_INT(0, pthread_create(&thread, NULL, record, row));
    strbuf_init(&text, 1 << 22);
    for (int i = 0; i < 5; i++) {
        strbuf_clear(&text);
        (void)trace_print(trace, 0, "rank 0", 0, &text);
        CHECK_OK(strbuf_status(&text));
    }
    CHECK_INT(0, pthread_join(thread, NULL));
    strbuf_clear(&text);
    CHECK_INT(1000, trace_print(trace, 0, "rank 0", 0, &text));
    strbuf_release(&text);
    trace_destroy(trace);
}

/* Its writer may change the text. */
static void test_a_name_is_kept_as_long_as_the_trace(void)
{
    char name[] = "push slice 0";
    const char *kept, *other;
    struct trace *trace;

    CHECK_OK(trace_create(&trace));
    CHECK_OK(trace_keep(trace, name, &kept));
    name[0] = 'P';
    CHECK_OK(trace_keep(trace, name, &other));
    CHECK_TEXT("push slice 0", kept);
    CHECK_TEXT("Push slice 0", other);
    trace_destroy(trace);
}

const struct test tests[] = {
    { .name = "a name is kept as long as the trace",
      .run = test_a_name_is_kept_as_long_as_the_trace },
    { .name = "events are kept while the trace is on",
      .run = test_events_are_kept_while_the_trace_is_on },
    { .name = "events are told row by row", .run = test_events_are_told_row_by_row },
    { .name = "a trace is JSON with rank, row, time and kernel",
      .run = test_a_trace_is_json_with_rank_row_time_and_kernel },
    { .name = "a task may overlap others of its thread",
      .run = test_a_task_may_overlap_others_of_its_thread },
    { .name = "a full row drops and counts", .run = test_a_full_row_drops_and_counts },
    { .name = "no trace has no rows", .run = test_no_trace_has_no_rows },
    { .name = "a row is printed while it is written",
      .run = test_a_row_is_printed_while_it_is_written },
    { 0 },
};
