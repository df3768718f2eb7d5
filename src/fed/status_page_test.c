/* SPDX-License-Identifier: MIT */
/* status_page_test.c - pages of any status are whole, and texts in them are texts. */
#include "fed/status_page.h"

#include <string.h>

#include "base/test.h"

static const char full[] =
    "{\"time\": 1, \"federation\": \"0123\", \"model\": \"mlp\", \"algorithm\": \"fedavg\", "
    "\"now\": {\"round\": 3, \"done\": 2, \"rounds\": 10, \"stage\": \"train\", \"why\": \"\", "
    "\"bytes_in\": 2048, \"bytes_out\": 4096, \"epsilon\": 1.5, \"budget\": 8, \"delta\": "
    "1e-5, "
    "\"participants\": [{\"name\": \"a\", \"samples\": 100, \"state\": \"working\", "
    "\"seen_s\": "
    "1.5, \"last_round\": 1, \"labels\": [75, 0, 25]}, {\"name\": \"b\", \"samples\": 7, "
    "\"state\": \"gave\", "
    "\"seen_s\": "
    "null, \"last_round\": -1}]}, "
    "\"history\": [{\"round\": 1, \"train_loss\": 2, \"val_accuracy\": 0.5, \"val_loss\": "
    "1.25}, "
    "{\"round\": 2, \"train_loss\": 1, \"val_accuracy\": 0.75, \"val_loss\": 1.125}], "
    "\"audit\": [{\"time\": 5, \"round\": 0, \"client\": \"a\", \"what\": \"<script>x\"}]}";

static void print(const char *text, struct strbuf *page, struct strbuf *lines)
{
    struct json *json;

    strbuf_init(page, 1 << 22);
    strbuf_init(lines, 1 << 16);
    CHECK_OK(json_parse(text, strlen(text), &json));
    CHECK_OK(status_page_print(json_root(json), page));
    status_text_print(json_root(json), lines);
    json_destroy(json);
    CHECK_OK(strbuf_status(page));
    CHECK_OK(strbuf_status(lines));
}

static void test_everything_is_shown(void)
{
    static const char *const parts[] = {
        "2 of 10",    "train, 1 lost",    "75%",
        "KiB",        "of a budget of 8", "<svg",
        ">Loss<",     ">Accuracy<",       "working",
        "1970-01-01", "&lt;script&gt;x",  "label 2: 25 samples (25%)",
        "not told"
    };
    struct strbuf page, lines;

    print(full, &page, &lines);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (!strstr(page.text, parts[i]))
            test_fail(__FILE__, __LINE__, "no '%s' in the page", parts[i]);
    }
    CHECK(!strstr(page.text, "<script"));
    CHECK(!strstr(page.text, "src=") && !strstr(page.text, "href="));
    CHECK(strstr(lines.text, "accuracy      0.7500") != NULL);
    CHECK(strstr(lines.text, "epsilon 1.5 of 8") != NULL);
    strbuf_release(&page);
    strbuf_release(&lines);
}

static void test_a_beginning_has_a_page(void)
{
    struct strbuf page, lines;

    print("{}", &page, &lines);
    CHECK(strstr(page.text, "No round is done yet") != NULL);
    CHECK(strstr(page.text, "</html>") != NULL);
    strbuf_release(&page);
    strbuf_release(&lines);
}

const struct test tests[] = {
    { .name = "everything is shown", .run = test_everything_is_shown },
    { .name = "a beginning has a page", .run = test_a_beginning_has_a_page },
    { 0 },
};
