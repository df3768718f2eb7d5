/* SPDX-License-Identifier: MIT */
/* part_setup.c - the end of the page: what was run, and how to run it again. */
#include "report/page.h"
#include "report/part.h"

#include <string.h>

void part_graph(struct report *report)
{
    if (!report->run->graph)
        return;
    page_section_begin(report->out, NULL);
    page_details_begin(report->out, "Graph: what a rank runs in a step");
    strbuf_add(report->out, "<div class=\"graph scroll\">\n");
    strbuf_add(report->out, report->run->graph);
    strbuf_add(report->out, "</div>\n");
    page_details_end(report->out);
    page_section_end(report->out);
}

void part_configuration(struct report *report)
{
    const struct run *run = report->run;

    if (!run->config && !run->summary)
        return;
    page_section_begin(report->out, run->config ? "Configuration" : "Results");
    if (run->config) {
        strbuf_add(report->out, "<div class=\"box\">\n");
        static const char *const shown_below[] = { "command", NULL };
        page_settings(report->out, json_root(run->config), shown_below);
        strbuf_add(report->out, "</div>\n");
    }
    if (run->summary) {
        page_details_begin(report->out, "All figures of the summary");
        strbuf_add(report->out, "<div>\n");
        static const char *const shown_above[] = { "rank_times",     "class_names",
                                                   "class_accuracy", "class_samples",
                                                   "confusion",      "confusion_cells",
                                                   "calibration",    NULL };
        page_settings(report->out, json_root(run->summary), shown_above);
        strbuf_add(report->out, "</div>\n");
        page_details_end(report->out);
    }
    page_section_end(report->out);
}

/* An argument as a shell reads it back. */
static void add_argument(struct strbuf *out, const char *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";

    if (*text && strspn(text, plain) == strlen(text)) {
        strbuf_add(out, text);
        return;
    }
    strbuf_add(out, "'");
    for (; *text; text++) {
        if (*text == '\'')
            strbuf_add(out, "'\\''");
        else
            strbuf_add_bytes(out, text, 1);
    }
    strbuf_add(out, "'");
}

/* The command line: a text as it is, or an array of arguments. */
static void add_command(struct strbuf *out, const struct json_value *command)
{
    if (command->kind == JSON_STRING)
        strbuf_add(out, command->text);
    for (size_t i = 0; command->kind == JSON_ARRAY && i < command->count; i++) {
        strbuf_add(out, i > 0 ? " " : "");
        if (command->items[i].kind == JSON_STRING)
            add_argument(out, command->items[i].text);
    }
}

void part_repeat(struct report *report)
{
    const struct run *run = report->run;
    const struct json_value *command =
        run->config ? json_get(json_root(run->config), "command") : NULL;
    const char *weights = run_text(run, "weights_sha256", NULL);
    struct strbuf line;

    if (!command)
        return;
    strbuf_init(&line, 1 << 20);
    add_command(&line, command);
    if (line.length > 0 && strbuf_status(&line) == STATUS_OK) {
        page_section_begin(report->out, "How to repeat it");
        page_code(report->out, line.text);
        if (weights) {
            strbuf_add(report->out,
                       "<p class=\"under\">A repeat can be checked by its weights: "
                       "SHA-256 ");
            strbuf_add_xml(report->out, weights);
            strbuf_add(report->out, "</p>\n");
        }
        page_section_end(report->out);
    } else {
        report->status = strbuf_status(&line);
    }
    strbuf_release(&line);
}
