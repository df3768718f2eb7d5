/* SPDX-License-Identifier: MIT */
/* report_test.c - the page about a run: its parts, and that no run's files break it. */
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"
#include "report/page_testing.h"
#include "report/pixmap.h"
#include "report/report.h"
#include "report/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char config[] =
    "{\"format\":1,\"tutti\":\"0.1.0\",\"model\":\"cnn\",\"data\":\"fashion-mnist\","
    "\"strategy\":"
    "\"mirrored\",\"ranks\":2,\"threads\":3,\"batch\":64,\"seed\":7,\"optimizer\":{\"name\":"
    "\"sgd\",\"lr\":0.05,\"nested\":{\"deep\":true,\"none\":null,\"list\":[1,2.5,\"x\"],"
    "\"blank\":[null,null],\"objects\":[{\"a\":1}]}},\"device\":\"cpu\",\"command\":[\"tutti\","
    "\"train\",\"cnn\","
    "\"--out\",\"my run's\"]}";

static const char summary[] =
    "{\"status\":\"done\",\"model\":\"cnn\",\"strategy\":\"mirrored\",\"ranks\":2,\"threads\":"
    "3,"
    "\"steps\":1876,\"epochs\":2,\"samples\":120000,\"seconds\":24.5,\"samples_per_s\":50420,"
    "\"train_loss\":0.4,\"train_accuracy\":0.85,\"val_loss\":0.38,\"val_accuracy\":0.8712,"
    "\"val_top5_accuracy\":0.9731,\"class_names\":[\"cat\",\"dog\",\"<ox>\"],"
    "\"class_accuracy\":[0.9,0.625,null],\"confusion\":[[9,1,0],[3,5,0],[0,0,0]],"
    "\"weights_sha256\":\"00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\","
    "\"peak_bytes\":104857600,\"parameters\":206922,\"rank_times\":[{\"rank\":0,\"compute_s\":"
    "20,"
    "\"comm_s\":2,\"wait_s\":1,\"load_s\":0.5,\"eval_s\":1,\"other_s\":0,\"hidden_share\":0.25,"
    "\"bytes_sent\":2097152,"
    "\"made_wait_s\":5},{\"rank\":1,"
    "\"compute_s\":15,\"comm_s\":2,\"wait_s\":5,\"load_s\":0.5,\"eval_s\":1,\"other_s\":1.5}]}";

static const char train_line[] =
    "{\"kind\":\"train\",\"step\":%d,\"epoch\":%.3f,\"samples\":%d,\"train_loss\":%s,"
    "\"train_accuracy\":0.7,\"lr\":0.05,\"seconds\":%d,\"samples_per_s\":51200,\"comm_share\":"
    "0.03,\"wait_share\":0.01,\"load_share\":0}\n";
static const char eval_line[] =
    "{\"kind\":\"eval\",\"step\":%d,\"epoch\":%d,\"samples\":%d,\"train_loss\":0.5,"
    "\"train_accuracy\":0.81,\"val_loss\":0.41,\"val_accuracy\":0.85,\"seconds\":%d,"
    "\"epoch_seconds\":11.9,\"eval_seconds\":0.4,\"samples_per_s\":50420}\n";

static void put(const char *name, const char *text)
{
    char *path;

    CHECK_OK(file_join(test_folder(), name, &path));
    CHECK_OK(file_replace(path, text, strlen(text)));
    mem_free(path);
}

static void add_metrics(struct strbuf *out, int from, int steps, const char *loss)
{
    for (int step = from; step <= steps; step += 10) {
        strbuf_printf(out, train_line, step, step / 100.0, step * 64, loss, step / 10);
        if (step % 100 == 0)
            strbuf_printf(out, eval_line, step, step / 100, step * 64, step / 10);
    }
}

static void put_metrics(int steps, const char *loss)
{
    struct strbuf text;

    strbuf_init(&text, 1 << 24);
    add_metrics(&text, 10, steps, loss);
    CHECK_OK(strbuf_status(&text));
    put("metrics.jsonl", text.text);
    strbuf_release(&text);
}

static void put_picture(void)
{
    const uint8_t pixels[] = { 0, 255, 128, 255 };
    const struct pixmap image = { .width = 2, .height = 1, .channels = 2, .pixels = pixels };
    struct strbuf png;
    char *path;

    strbuf_init(&png, 1 << 16);
    pixmap_png(&png, &image);
    CHECK_OK(strbuf_status(&png));
    CHECK_OK(file_join(test_folder(), "reconstructions.png", &path));
    CHECK_OK(file_replace(path, png.text, png.length));
    mem_free(path);
    strbuf_release(&png);
}

/* The page of this test's folder; the caller frees it. */
static char *make_page(void)
{
    char *path, *page;
    size_t length;

    CHECK_OK(report_write(test_folder()));
    CHECK_OK(file_join(test_folder(), "report.html", &path));
    CHECK_OK(file_read(path, (size_t)1 << 28, &page, &length));
    CHECK_INT(strlen(page), length);
    mem_free(path);
    return page;
}

static void check_has(const char *page, const char *part)
{
    if (!strstr(page, part))
        test_fail(__FILE__, __LINE__, "the page does not hold: %s", part);
}

static void test_a_whole_run_has_all_parts(void)
{
    static const char *const expected[] = {
        "<h1>cnn <i>on</i> fashion-mnist</h1>",
        ">done<",
        "2 ranks \u00d7 3 threads",
        " UTC",
        "Validation accuracy",
        "87.12%",
        "97.31%",
        "aria-label=\"Accuracy of each class\"",
        "aria-label=\"What was taken for what\"",
        "cat: 90.00%", /* under the pointer */
        "<title>dog taken for cat: 3 (37.50%)</title>",
        "<title>cat known as such: 9 (90.00%)</title>",
        "&lt;ox&gt;",
        "<td>dog</td><td>cat</td><td>3</td><td>37.50%</td>",
        "<img class=\"pixels\" alt=\"validation samples above",
        "0.3800",
        "24.5 s",
        "50,420",
        "206,922",
        "100 MiB",
        ">00112233<",
        "title=\"00112233445566778899aabbccddeeff",
        "aria-label=\"Accuracy\"",
        "aria-label=\"Loss\"",
        "aria-label=\"Time per epoch\"",
        "aria-label=\"Throughput\"",
        "aria-label=\"Learning rate\"",
        "aria-label=\"Where the time went\"",
        "aria-label=\"Whom the other ranks waited for\"",
        "<td>25.00%</td><td>2 MiB</td><td>5.00 s</td>",
        "aria-label=\"Time not spent computing\"",
        "<td>81.63%</td>", /* compute of rank 0: 20 of 24.5 s */
        "<dt>optimizer.nested.deep</dt><dd>yes</dd>",
        "<dt>optimizer.nested.list</dt><dd>1, 2.5, x</dd>",
        "<dt>optimizer.nested.none</dt><dd>\u2013</dd>",
        "<dt>optimizer.nested.blank</dt><dd>\u2013</dd>",
        "<dt>optimizer.nested.objects.0.a</dt><dd>1</dd>",
        "tutti train cnn --out &#39;my run&#39;\\&#39;&#39;s&#39;",
        "prefers-color-scheme:dark",
        "default-src 'none'",
        "id=\"drawn\"",
    };

    put("config.json", config);
    put("summary.json", summary);
    put("graph.svg", "<?xml version=\"1.0\"?><svg><g id=\"drawn\"/></svg>");
    put_metrics(200, "0.5");
    put_picture();
    char *page = make_page();
    page_testing_check(page);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        check_has(page, expected[i]);
    CHECK(strstr(page, "<script") == NULL &&
          strstr(page, "http://") == strstr(page, "http://www.w3"));
    mem_free(page);
}

static void test_servers_have_a_part(void)
{
    static const char *const expected[] = {
        "Parameter servers",
        "aria-label=\"How late gradients came\"",
        "0: 75.00%", /* under the pointer */
        "aria-label=\"How long workers waited\"",
        "aria-label=\"How far workers were apart\"",
        "<tr><td>rank 2</td><td>1.5k</td><td>40</td><td>25.00%</td><td>1 MiB</td>",
    };

    put("config.json", config);
    put("summary.json",
        "{\"status\":\"done\",\"servers\":[{\"rank\":2,\"busy_s\":1,\"idle_s\":3,"
        "\"elements\":1500,\"updates\":40,\"bytes_in\":1048576,\"bytes_out\":2097152,"
        "\"dropped\":1,\"refused\":0}],\"workers\":[{\"rank\":0,\"steps\":20,\"wait_s\":0.5,"
        "\"lost\":false},{\"rank\":1,\"steps\":20,\"wait_s\":1.5,\"lost\":true}],"
        "\"staleness\":[30,10],\"largest_spread\":2,\"clocks\":[[0.1,0,1],[0.2,3,5]]}");
    char *page = make_page();
    page_testing_check(page);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        check_has(page, expected[i]);
    mem_free(page);

    /* Whatever there is instead of numbers. */
    put("summary.json",
        "{\"servers\":[5,null,{\"busy_s\":-1e400}],\"workers\":[[],{}],"
        "\"staleness\":[\"<b>\",-3,1e308,1e308],\"clocks\":[3,[1,2],[\"a\",1,2]]}");
    page = make_page();
    page_testing_check(page);
    mem_free(page);
}

static void test_pipelines_have_a_part(void)
{
    static const char *const expected[] = {
        "1f1b, 2 shards through 2 stages of 1 pieces each",
        "33.33%",
        "36.00% with each action&#39;s own",
        "medians of the last 9 steps",
        "The last step, as measured",
        "backward of shard 1, 5.000 to 6.000 ms",
        "The schedule, with the pieces",
    };

    put("config.json", config);
    put("summary.json",
        "{\"status\":\"done\",\"pipeline\":{\"schedule\":\"1f1b\",\"stages\":2,\"chunks\":1,"
        "\"shards\":2,\"bubble_formula\":0.3333,\"bubble_planned\":0.35,\"bubble_paced\":0.36,"
        "\"bubble_measured\":0.4,\"steps\":9,"
        "\"planned\":[[0,0,0,0,0,1],[1,0,0,0,1,2]],\"measured\":[[0,0,0,0,0,1.5],"
        "[1,0,1,1,5,6]]}}");
    char *page = make_page();
    page_testing_check(page);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        check_has(page, expected[i]);
    mem_free(page);

    /* Whatever there is instead. */
    put("summary.json",
        "{\"pipeline\":{\"schedule\":\"<b>\",\"stages\":2,\"planned\":[[0,0,0],5,null,"
        "[7,0,0,0,1,2],[0,0,0,0,3,1],[0,0,0,0,\"a\",1e308]],\"measured\":{}}}");
    page = make_page();
    page_testing_check(page);
    mem_free(page);
    put("summary.json", "{\"pipeline\":{\"stages\":1e300,\"planned\":[[0,0,0,0,0,1]]}}");
    page = make_page();
    page_testing_check(page);
    mem_free(page);
}

static void test_each_file_may_be_missing(void)
{
    for (int present = 1; present < 8; present++) {
        char *path, *page;
        static const char *const names[] = { "config.json", "summary.json", "metrics.jsonl" };
        for (int i = 0; i < 3; i++) {
            CHECK_OK(file_join(test_folder(), names[i], &path));
            CHECK_OK(file_remove_tree(path));
            mem_free(path);
        }
        if (present & 1)
            put("config.json", config);
        if (present & 2)
            put("summary.json", summary);
        if (present & 4)
            put_metrics(200, "0.5");
        page = make_page();
        page_testing_check(page);
        check_has(page, present & 2 ? ">done<" : ">unfinished<");
        mem_free(page);
    }
}

static void test_a_folder_without_a_run_is_refused(void)
{
    CHECK_STATUS(STATUS_NOT_FOUND, report_write(test_folder()));
    CHECK_MESSAGE("holds no run");
    CHECK_STATUS(STATUS_NOT_FOUND, report_write("/nonexistent/run"));
}

static void test_hostile_names_are_escaped(void)
{
    put("config.json", "{\"model\":\"<script>alert(1)</script>\",\"data\":\"\\\"><img src=x "
                       "onerror=alert(2)>\",\"strategy\":\"</style></main>\","
                       "\"<b onclick=\\\"x\\\">\":{\"</dt>\":\"<script src='http://e/'>\"},"
                       "\"tutti\":\"<i>\",\"command\":\"x </pre><script>y</script>\"}");
    put("summary.json", "{\"status\":\"<u>\",\"error\":\"</p><script>\",\"weights_sha256\":"
                        "\"\\\"><script>\",\"rank_times\":[{\"rank\":\"<b>\"},5,null]}");
    put_metrics(20, "0.5");
    char *page = make_page();
    page_testing_check(page);
    CHECK(strstr(page, "<script") == NULL && strstr(page, "<img") == NULL);
    CHECK(strstr(page, "<u>") == NULL && strstr(page, "<b onclick") == NULL);
    check_has(page, "&lt;script&gt;alert(1)");
    mem_free(page);
}

static void test_a_hostile_graph_is_left_out(void)
{
    put("config.json", config);
    put("graph.svg", "<svg></details></main><script>alert(1)</script></svg>");
    char *page = make_page();
    page_testing_check(page);
    CHECK(strstr(page, "<script") == NULL);
    check_has(page, "graph.svg was left out");
    mem_free(page);
}

static void test_a_file_that_is_no_picture_is_left_out(void)
{
    put("config.json", config);
    put("reconstructions.png", "\"/><script>alert(1)</script>, longer than a PNG's header is");
    char *page = make_page();
    page_testing_check(page);
    CHECK(strstr(page, "<script") == NULL && strstr(page, "Reconstructions") == NULL);
    check_has(page, "reconstructions.png was left out");
    mem_free(page);
}

/* Names, accuracies and counts that do not fit together are not drawn. */
static void test_classes_that_do_not_fit_are_left_out(void)
{
    static const char *const wrong[] = {
        "{\"class_names\":[\"a\",\"b\"],\"class_accuracy\":[1],\"confusion\":[[1,0],[0,1]]}",
        "{\"class_names\":[\"a\",\"b\"],\"class_accuracy\":[1,1],\"confusion\":[[1,0],[0]]}",
        "{\"class_names\":[\"a\",\"b\"],\"class_accuracy\":[1,1],\"confusion\":[[1,0]]}",
        "{\"class_names\":[\"a\",7],\"class_accuracy\":[1,1],\"confusion\":[[1,0],[0,1]]}",
        "{\"class_names\":[\"a\"],\"class_accuracy\":[1],\"confusion\":[3]}",
        "{\"class_names\":[],\"class_accuracy\":[],\"confusion\":[]}",
        "{\"class_names\":\"a\",\"class_accuracy\":1,\"confusion\":{}}",
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put("summary.json", wrong[i]);
        char *page = make_page();
        page_testing_check(page);
        CHECK(strstr(page, "Accuracy of each class") == NULL);
        mem_free(page);
    }
    put("summary.json", "{\"class_names\":[\"a\",\"b\"],\"class_accuracy\":[-1e300,\"x\"],"
                        "\"confusion\":[[1e308,1e308],[null,-5]]}");
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "Accuracy of each class");
    mem_free(page);
}

/* A summary of `n` classes with confusion_cells: class i is right, but every tenth is taken for the next. */
static void put_many_classes(int n, const char *one_more_cell)
{
    struct strbuf text;

    strbuf_init(&text, 8 << 20);
    strbuf_add(&text, "{\"class_names\":[");
    for (int i = 0; i < n; i++)
        strbuf_printf(&text, "%s\"class-%d\"", i ? "," : "", i);
    strbuf_add(&text, "],\"class_samples\":[");
    for (int i = 0; i < n; i++)
        strbuf_printf(&text, "%s%d", i ? "," : "", i == 77 ? 0 : 4);
    strbuf_add(&text, "],\"class_accuracy\":[");
    for (int i = 0; i < n; i++)
        strbuf_printf(&text, "%s%s", i ? "," : "",
                      i == 77       ? "null"
                      : i % 10 == 0 ? "0.25"
                                    : "1");
    strbuf_add(&text, "],\"confusion_cells\":[");
    for (int i = 0; i < n; i++) {
        if (i == 77)
            continue;
        strbuf_printf(&text, i % 10 == 0 ? "%s[%d,%d,1],[%d,%d,3]" : "%s[%d,%d,4]",
                      i ? "," : "", i, i, i, (i + 1) % n);
    }
    strbuf_printf(&text, "%s]}", one_more_cell);
    CHECK_OK(strbuf_status(&text));
    put("summary.json", text.text);
    strbuf_release(&text);
}

static void test_very_many_classes_are_told_by_the_worst(void)
{
    put_many_classes(20000, "");
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "Classes by accuracy");
    check_has(page, "The classes with the lowest accuracy");
    check_has(page, "<td>class-10</td><td>4</td><td>25.00%</td><td>class-11</td>");
    check_has(page, "<td>class-10</td><td>class-11</td><td>3</td><td>75.00%</td>");
    CHECK(strstr(page, "What was taken for what") == NULL);
    CHECK(strstr(page, ">class-12<") == NULL); /* it is right */
    CHECK(strlen(page) < 100000);
    mem_free(page);

    static const char *const wrong[] = { ",[20000,0,1]", ",[0,-1,1]", ",[0,1.5,1]",
                                         ",[0,1]",       ",7",        ",[\"0\",1,1]" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_many_classes(20000, wrong[i]);
        page = make_page();
        page_testing_check(page);
        CHECK(strstr(page, "Classes by accuracy") == NULL);
        mem_free(page);
    }
}

/* Cells may come of few classes, too, and counts may not fit the number of samples. */
static void test_cells_of_few_classes_are_drawn(void)
{
    put("summary.json", "{\"class_names\":[\"a\",\"b\"],\"class_accuracy\":[1,0],"
                        "\"class_samples\":[0,-1],\"confusion_cells\":[[0,0,2],[1,0,5]]}");
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "What was taken for what");
    CHECK(strstr(page, "inf") == NULL && strstr(page, "-500%") == NULL);
    mem_free(page);
}

/* Workers of servers and stages of a pipeline do not wait for each other in the account of ranks. */
static void test_no_plot_is_empty_where_nobody_waited(void)
{
    for (int waited = 0; waited < 2; waited++) {
        char ranks[400];
        (void)snprintf(ranks, sizeof ranks,
                       "{\"status\":\"done\",\"rank_times\":[{\"rank\":0,\"compute_s\":1,"
                       "\"wait_s\":1,\"made_wait_s\":0},{\"rank\":1,\"compute_s\":1,"
                       "\"wait_s\":1,\"made_wait_s\":%d}]}",
                       waited);
        put("summary.json", ranks);
        char *page = make_page();
        page_testing_check(page);
        CHECK((strstr(page, "Whom the other ranks waited for") != NULL) == waited);
        CHECK((strstr(page, "others waited") != NULL) == waited);
        CHECK(strstr(page, "nothing to show yet") == NULL);
        mem_free(page);
    }
}

static void test_a_run_without_classes_has_no_accuracy(void)
{
    put("summary.json", "{\"status\":\"done\",\"train_loss\":0.2,\"val_loss\":0.1}");
    put("metrics.jsonl",
        "{\"kind\":\"train\",\"step\":1,\"train_loss\":0.2,\"seconds\":1}\n"
        "{\"kind\":\"eval\",\"step\":1,\"train_loss\":0.2,\"val_loss\":0.1,\"seconds\":1}\n");
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "validation loss");
    CHECK(strstr(page, "ccuracy") == NULL);
    mem_free(page);
}

static void test_a_last_line_cut_off_is_ignored(void)
{
    struct strbuf text;
    struct run *run;

    strbuf_init(&text, 1 << 20);
    add_metrics(&text, 10, 90, "0.5");
    strbuf_add(&text, "{\"kind\":\"train\",\"step\":100,\"epo");
    put("metrics.jsonl", text.text);
    CHECK_OK(run_read(test_folder(), &run));
    CHECK_INT(9, run->train.count);
    CHECK_INT(0, run->notes.length);
    run_destroy(run);

    strbuf_add(&text, "\n{\"kind\":\"news\",\"step\":1}\n\n{\"kind\":\"train\",\"step\":110}");
    put("metrics.jsonl", text.text);
    CHECK_OK(run_read(test_folder(), &run));
    CHECK_INT(10, run->train.count); /* whole, though no newline ends it */
    CHECK(isnan(run->train.column[RUN_LR][9]));
    CHECK(strstr(run->notes.text, "1 of 13 lines could not be read, the first is line 10"));
    run_destroy(run);
    strbuf_release(&text);
}

static void test_a_resumed_run_takes_back_what_was_lost(void)
{
    struct strbuf text;
    struct run *run;

    strbuf_init(&text, 1 << 20);
    add_metrics(&text, 10, 230, "0.5");
    add_metrics(&text, 160, 300, "0.25"); /* from the checkpoint at step 150 */
    put("metrics.jsonl", text.text);
    CHECK_OK(run_read(test_folder(), &run));
    CHECK_INT(30, run->train.count);
    CHECK_INT(3, run->eval.count);
    for (size_t i = 0; i < 30; i++) {
        CHECK_INT(10 * (i + 1), run->train.column[RUN_STEP][i]);
        CHECK(run->train.column[RUN_TRAIN_LOSS][i] == (i < 15 ? 0.5 : 0.25));
    }
    run_destroy(run);

    strbuf_clear(&text);
    add_metrics(&text, 10, 230, "0.5");
    add_metrics(&text, 160, 190, "0.25");
    put("metrics.jsonl", text.text);
    CHECK_OK(run_read(test_folder(), &run));
    CHECK_INT(19, run->train.count);
    CHECK_INT(1, run->eval.count); /* that of step 200 is yet to come again */
    run_destroy(run);
    strbuf_release(&text);
}

static const char token_eval[] =
    "{\"kind\":\"eval\",\"step\":%d,\"epoch\":%d,\"val_loss\":%g,\"perplexity\":%g,\"bleu\":%g,"
    "\"seconds\":%d,\"tokens_per_s\":12345}\n";

static void test_a_model_of_language_shows_what_it_writes(void)
{
    static const char *const expected[] = {
        "<p>Perplexity</p><p class=\"figure\">4.500</p>",
        "<p>Tokens/s</p><p class=\"figure\">12,345</p>",
        "aria-label=\"Perplexity\"",
        "tokens a second",
        "What it writes",
        "<figcaption>epoch 1, step 100</figcaption><p><b>ROMEO:</b>first &lt;b&gt;</p>",
        "<figcaption>epoch 2, step 200</figcaption><p><b>ROMEO:</b>second",
        "<figcaption>epoch 4, step 400</figcaption><p><b>ROMEO:</b>last",
        "<td>4.500</td>",
    };
    static const char *const said[] = { "first <b>", "second", "third", "last" };
    struct strbuf text;

    strbuf_init(&text, 1 << 20);
    strbuf_add(&text, "{\"kind\":\"train\",\"step\":10,\"epoch\":0.1,\"train_loss\":2,"
                      "\"seconds\":1,\"tokens_per_s\":12345}\n");
    for (int i = 1; i <= 4; i++) {
        strbuf_printf(&text, token_eval, 100 * i, i, 2.0 / i, 8.5 - i, 1.0, i);
        strbuf_printf(&text,
                      "{\"kind\":\"sample\",\"step\":%d,\"epoch\":%d,\"texts\":[{\"prompt\":"
                      "\"ROMEO:\",\"output\":\"%s\"}]}\n",
                      100 * i, i, said[i - 1]);
    }
    put("metrics.jsonl", text.text);
    char *page = make_page();
    page_testing_check(page);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        check_has(page, expected[i]);
    CHECK(strstr(page, "third") == NULL);
    mem_free(page);
    strbuf_release(&text);
}

static void test_translations_stand_beside_those_of_people(void)
{
    static const char line[] =
        "{\"kind\":\"sample\",\"step\":%d,\"epoch\":%d,\"texts\":[{\"source\":\"ein Hund\","
        "\"reference\":\"a dog\",\"output\":\"%s\"},{\"source\":\"zwei\",\"reference\":\"two\","
        "\"output\":\"2\"}]}\n";
    struct strbuf text;

    strbuf_init(&text, 1 << 20);
    strbuf_printf(&text, token_eval, 10, 1, 2.0, 8.0, 31.25, 1);
    strbuf_printf(&text, line, 10, 1, "a a a");
    strbuf_printf(&text, line, 30, 3, "never");
    strbuf_printf(&text, line, 20, 2,
                  "a dog!"); /* the run was resumed: step 30 is taken back */
    put("metrics.jsonl", text.text);
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "Translations");
    check_has(page, "<p>BLEU</p><p class=\"figure\">31.25</p>");
    check_has(page, "<dt>source</dt><dd>ein Hund</dd>");
    check_has(page, "<dt>reference</dt><dd>a dog</dd>");
    check_has(page, "<dt>epoch 1, step 10</dt><dd>a a a</dd>");
    check_has(page, "<dt>epoch 2, step 20</dt><dd class=\"last\">a dog!</dd>");
    CHECK(strstr(page, "never") == NULL);
    mem_free(page);
    strbuf_release(&text);
}

static void test_odd_samples_never_break_the_page(void)
{
    put("metrics.jsonl",
        "{\"kind\":\"sample\",\"step\":1,\"texts\":[5,null,{\"output\":7}]}\n"
        "{\"kind\":\"sample\",\"step\":2,\"texts\":{}}\n"
        "{\"kind\":\"sample\",\"step\":3,\"texts\":[{\"source\":\"\"},{},[]]}\n");
    char *page = make_page();
    page_testing_check(page);
    mem_free(page);
}

static void test_losses_that_are_no_numbers(void)
{
    put("config.json", config);
    put_metrics(2000, "null");
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "200 of 200 logged training losses are not finite numbers, the first at "
                    "step 10.");
    mem_free(page);
}

static void test_huge_and_odd_values(void)
{
    static const char *const losses[] = { "1e308", "-1e308", "5e-324", "0", "true", "\"x\"" };

    put("config.json",
        "{\"model\":7,\"ranks\":1e300,\"threads\":-1,\"seed\":1e19,\"data\":null}");
    put("summary.json", "{\"status\":3,\"seconds\":-1,\"samples_per_s\":1e300,\"peak_bytes\":"
                        "1e300,\"parameters\":-5,\"val_loss\":1e300,\"val_accuracy\":1e300}");
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        put_metrics(1000, losses[i]);
        char *page = make_page();
        page_testing_check(page);
        mem_free(page);
    }
}

static void test_documents_that_are_damaged_are_noted(void)
{
    put("config.json", "{\"model\":");
    put("summary.json", "[1,2]");
    put_metrics(100, "0.5");
    char *page = make_page();
    page_testing_check(page);
    check_has(page, "config.json could not be read");
    mem_free(page);
}

static void test_many_points_make_a_page_of_bounded_size(void)
{
    put("config.json", config);
    put_metrics(200000, "0.5");
    char *page = make_page();
    page_testing_check(page);
    CHECK(strlen(page) < 2000000);
    mem_free(page);
}

/* Damages bytes of a good run's files: any result but a crash or a broken page will do. */
static void test_damaged_files_never_break_the_page(struct rng *rng)
{
    static const char *const names[] = { "config.json", "summary.json", "metrics.jsonl" };
    struct strbuf texts[3];

    for (int i = 0; i < 3; i++)
        strbuf_init(&texts[i], 1 << 20);
    strbuf_add(&texts[0], config);
    strbuf_add(&texts[1], summary);
    add_metrics(&texts[2], 10, 200, "0.5");
    for (int i = 0; i < 3; i++) {
        for (uint64_t n = rng_below(rng, 6); n > 0; n--)
            texts[i].text[rng_below(rng, texts[i].length)] = (char)(32 + rng_below(rng, 95));
        put(names[i], texts[i].text);
        strbuf_release(&texts[i]);
    }
    char *page = make_page();
    page_testing_check(page);
    mem_free(page);
}

static void test_every_allocation_may_fail(void)
{
    put("config.json", config);
    put("summary.json", summary);
    put("graph.svg", "<svg/>");
    put_metrics(100, "0.5");
    put_picture();
    for (uint64_t nth = 1;; nth++) {
        mem_fail_at(nth);
        const enum status status = report_write(test_folder());
        mem_fail_at(0);
        if (status == STATUS_OK) {
            CHECK(nth > 20);
            return;
        }
        CHECK_INT(STATUS_NO_MEMORY, status);
    }
}

const struct test tests[] = {
    { .name = "a whole run has all parts", .run = test_a_whole_run_has_all_parts },
    { .name = "servers have a part", .run = test_servers_have_a_part },
    { .name = "pipelines have a part", .run = test_pipelines_have_a_part },
    { .name = "each file may be missing", .run = test_each_file_may_be_missing },
    { .name = "a folder without a run is refused",
      .run = test_a_folder_without_a_run_is_refused },
    { .name = "hostile names are escaped", .run = test_hostile_names_are_escaped },
    { .name = "a hostile graph is left out", .run = test_a_hostile_graph_is_left_out },
    { .name = "a file that is no picture is left out",
      .run = test_a_file_that_is_no_picture_is_left_out },
    { .name = "classes that do not fit are left out",
      .run = test_classes_that_do_not_fit_are_left_out },
    { .name = "no plot is empty where nobody waited",
      .run = test_no_plot_is_empty_where_nobody_waited },
    { .name = "very many classes are told by the worst",
      .run = test_very_many_classes_are_told_by_the_worst },
    { .name = "cells of few classes are drawn", .run = test_cells_of_few_classes_are_drawn },
    { .name = "a run without classes has no accuracy",
      .run = test_a_run_without_classes_has_no_accuracy },
    { .name = "a last line cut off is ignored", .run = test_a_last_line_cut_off_is_ignored },
    { .name = "a resumed run takes back what was lost",
      .run = test_a_resumed_run_takes_back_what_was_lost },
    { .name = "a model of language shows what it writes",
      .run = test_a_model_of_language_shows_what_it_writes },
    { .name = "translations stand beside those of people",
      .run = test_translations_stand_beside_those_of_people },
    { .name = "odd samples never break the page",
      .run = test_odd_samples_never_break_the_page },
    { .name = "losses that are no numbers", .run = test_losses_that_are_no_numbers },
    { .name = "huge and odd values", .run = test_huge_and_odd_values },
    { .name = "documents that are damaged are noted",
      .run = test_documents_that_are_damaged_are_noted },
    { .name = "many points make a page of bounded size",
      .run = test_many_points_make_a_page_of_bounded_size },
    { .name = "damaged files never break the page",
      .property = test_damaged_files_never_break_the_page },
    { .name = "every allocation may fail", .run = test_every_allocation_may_fail },
    { 0 },
};
