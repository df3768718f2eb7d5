/* SPDX-License-Identifier: MIT */
/* part_samples.c - what a model of language said during its training.
 *
 * A line of kind "sample" has `texts`, an array of objects with `output` and either `prompt`, which the
 * model went on from, or `source` and `reference`, which it translated. The same ones stand at the same
 * places of all lines, so that the first and the last can be compared.
 */
#include "report/number.h"
#include "report/page.h"
#include "report/part.h"

#include <math.h>
#include <stdio.h>

enum { SHOWN_TEXTS = 8, TEXT_BYTES = 4000, WHEN = 2 * NUMBER_TEXT + 20 };

static const struct json_value *texts_of(const struct run *run, size_t line)
{
    const struct json_value *texts = json_get(json_root(run->samples.line[line]), "texts");

    return texts && texts->kind == JSON_ARRAY && texts->count > 0 ? texts : NULL;
}

static const struct json_value *text_at(const struct run *run, size_t line, size_t i)
{
    const struct json_value *texts = texts_of(run, line);

    return texts && i < texts->count ? &texts->items[i] : NULL;
}

/* "epoch 3, step 600" */
static void print_when(char out[WHEN], const struct run *run, size_t line)
{
    const struct json_value *record = json_root(run->samples.line[line]);
    const double epoch = json_number(record, "epoch", NAN);
    char step_text[NUMBER_TEXT], epoch_text[NUMBER_TEXT];

    number_whole(step_text, json_number(record, "step", 0));
    number_print(epoch_text, epoch, NUMBER_PLAIN, 0);
    if (isnan(epoch))
        snprintf(out, WHEN, "step %s", step_text);
    else
        snprintf(out, WHEN, "epoch %s, step %s", epoch_text, step_text);
}

/* A long text is cut: the file has all of it. Never within a character. */
static void add_text(struct strbuf *out, const char *text)
{
    char kept[TEXT_BYTES + 1];
    size_t length = (size_t)snprintf(kept, sizeof kept, "%s", text);

    if (length >= sizeof kept) {
        length = TEXT_BYTES;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
        kept[length] = '\0';
    }
    strbuf_add_xml(out, kept);
}

/* A text that went on from a prompt. */
static void write_said(struct report *report, size_t line, size_t i)
{
    const struct json_value *text = text_at(report->run, line, i);
    struct strbuf *out = report->out;
    char when[WHEN];

    if (!text)
        return;
    print_when(when, report->run, line);
    strbuf_add(out, "<figure><figcaption>");
    strbuf_add_xml(out, when);
    strbuf_add(out, "</figcaption><p><b>");
    add_text(out, json_text(text, "prompt", ""));
    strbuf_add(out, "</b>");
    add_text(out, json_text(text, "output", ""));
    strbuf_add(out, "</p></figure>\n");
}

static void write_row(struct strbuf *out, const char *name, const char *class, const char *text)
{
    strbuf_add(out, "<div><dt>");
    strbuf_add_xml(out, name);
    strbuf_printf(out, "</dt><dd%s>", class);
    add_text(out, text);
    strbuf_add(out, "</dd></div>");
}

/* A sentence, its translation by people, and the model's: at first and at last. */
static void write_pair(struct report *report, size_t i)
{
    const struct run *run = report->run;
    const size_t last = run->samples.count - 1;
    const struct json_value *now = text_at(run, last, i), *first = text_at(run, 0, i);
    char when[WHEN];

    strbuf_add(report->out, "<dl class=\"box pair\">");
    write_row(report->out, "source", "", json_text(now, "source", ""));
    write_row(report->out, "reference", "", json_text(now, "reference", ""));
    if (first && last > 0) {
        print_when(when, run, 0);
        write_row(report->out, when, "", json_text(first, "output", ""));
    }
    print_when(when, run, last);
    write_row(report->out, when, " class=\"last\"", json_text(now, "output", ""));
    strbuf_add(report->out, "</dl>\n");
}

/* The first, one in the middle, the last. */
static void write_progress(struct report *report)
{
    const size_t count = report->run->samples.count;

    strbuf_add(report->out, "<div class=\"said\">\n");
    write_said(report, 0, 0);
    if (count > 3)
        write_said(report, (count - 1) / 2, 0);
    if (count > 1)
        write_said(report, count - 1, 0);
    strbuf_add(report->out, "</div>\n");
}

void part_samples(struct report *report)
{
    const struct run *run = report->run;
    const struct json_value *last =
        run->samples.count > 0 ? texts_of(run, run->samples.count - 1) : NULL;

    if (!last)
        return;
    const bool is_translation = json_text(&last->items[0], "source", NULL) != NULL;
    page_section_begin(report->out, is_translation ? "Translations" : "What it writes");
    if (!is_translation)
        write_progress(report);
    for (size_t i = 0; is_translation && i < last->count && i < SHOWN_TEXTS; i++)
        write_pair(report, i);
    page_section_end(report->out);
}
