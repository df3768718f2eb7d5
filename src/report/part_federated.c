/* SPDX-License-Identifier: MIT */
/* part_federated.c - a federation: how rounds went, and which labels each participant has.
 *
 * The picture has a column a participant and a row a label: the stronger a cell's colour, the larger the label's share of
 * what the participant has. Alike columns are alike data. The bars below are the participants' samples.
 */
#include <math.h>
#include <stdio.h>

#include "report/frame.h"
#include "report/number.h"
#include "report/page.h"
#include "report/part.h"

enum {
    LABELS_MAX = 128, /* more are not drawn */
    WIDTH = 1120,
    CELL_MOST = 22, /* height of a row */
    BARS = 60,      /* height of the bars */
};

static const struct json_value *federated_of(const struct report *report)
{
    const struct json_value *value =
        report->run->summary ? json_get(json_root(report->run->summary), "federated") : NULL;

    return value && value->kind == JSON_OBJECT ? value : NULL;
}

static double count_of(const struct json_value *row, size_t label)
{
    const struct json_value *value = &row->items[label];

    return value->kind == JSON_NUMBER && isfinite(value->number) && value->number > 0
               ? fmin(value->number, 1e15)
               : 0;
}

static double samples_of(const struct json_value *row)
{
    double sum = 0;

    for (size_t k = 0; k < row->count; k++)
        sum += count_of(row, k);
    return sum;
}

/* Rows of as many numbers, one a label. */
static const struct json_value *labels_of(const struct json_value *federated)
{
    const struct json_value *labels = json_get(federated, "labels");

    if (!labels || labels->kind != JSON_ARRAY || labels->count == 0)
        return NULL;
    for (size_t i = 0; i < labels->count; i++) {
        const struct json_value *row = &labels->items[i];
        if (row->kind != JSON_ARRAY || row->count == 0 || row->count > LABELS_MAX ||
            row->count != labels->items[0].count)
            return NULL;
    }
    return labels;
}

struct picture {
    struct strbuf *out;
    const struct json_value *labels;
    double left, top, width, height; /* of a cell */
    double most;                     /* samples of one participant */
};

static void write_cell(const struct picture *p, size_t participant, size_t label, double share)
{
    strbuf_printf(p->out,
                  "<g class=\"bar\"><title>participant %zu, label %zu: %.0f samples (%.0f%%)"
                  "</title><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" "
                  "fill-opacity=\"%.2f\"",
                  participant, label, count_of(&p->labels->items[participant], label),
                  100 * share, p->left + p->width * (double)participant,
                  p->top + p->height * (double)label, fmax(p->width - 0.4, 0.3),
                  fmax(p->height - 0.4, 0.3), fmax(sqrt(share), 0.05));
    frame_fill(p->out, PART_BLUE);
    strbuf_add(p->out, "/></g>\n");
}

static void write_column(const struct picture *p, size_t participant)
{
    const struct json_value *row = &p->labels->items[participant];
    const double sum = samples_of(row), bar = p->most > 0 ? BARS * sum / p->most : 0;
    const double bottom = p->top + p->height * (double)row->count + 8 + BARS;

    for (size_t k = 0; k < row->count && sum > 0; k++) {
        if (count_of(row, k) > 0)
            write_cell(p, participant, k, count_of(row, k) / sum);
    }
    strbuf_printf(p->out,
                  "<g class=\"bar\"><title>participant %zu: %.0f samples</title><rect "
                  "x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"",
                  participant, sum, p->left + p->width * (double)participant, bottom - bar,
                  fmax(p->width - 0.4, 0.3), bar);
    frame_fill(p->out, PART_GREEN);
    strbuf_add(p->out, "/></g>\n");
}

static void write_labels(struct report *report, const struct json_value *labels)
{
    const size_t n_labels = labels->items[0].count;
    const struct plot plot = { .title = "Labels of participants", .width = WIDTH };
    const struct frame_entry entries[] = {
        { .name = "label's share of a participant's samples",
          .colour = PART_BLUE,
          .key = FRAME_KEY_BOX },
        { .name = "samples", .colour = PART_GREEN, .key = FRAME_KEY_BOX },
    };
    struct frame frame;

    frame_init(&frame, &plot, entries, 2);
    struct picture p = { .out = report->out,
                         .labels = labels,
                         .left = frame.left + 34,
                         .top = frame.top,
                         .height = fmin(CELL_MOST, 400.0 / (double)n_labels) };
    p.width = (frame.right - p.left) / (double)labels->count;
    for (size_t i = 0; i < labels->count; i++)
        p.most = fmax(p.most, samples_of(&labels->items[i]));
    frame.bottom = p.top + p.height * (double)n_labels + 8 + BARS;
    frame.height = frame.bottom + 30;
    page_plot_begin(report->out, true);
    frame_begin(report->out, &frame, entries, 2);
    for (size_t i = 0; i < labels->count; i++)
        write_column(&p, i);
    for (size_t k = 0; k < n_labels && p.height > 9; k++) {
        char text[32];
        snprintf(text, sizeof text, "%zu", k);
        frame_text(report->out, p.left - 8, p.top + p.height * ((double)k + 0.5) + 4, FRAME_END,
                   text);
    }
    frame_text(report->out, (p.left + frame.right) / 2, frame.height - 8, FRAME_MIDDLE,
               "participants");
    frame_end(report->out);
    page_plot_end(report->out);
}

static void write_card(struct report *report, const char *name, double value,
                       enum number_format format, const char *remark)
{
    char text[NUMBER_TEXT];

    if (!isfinite(value))
        return;
    number_print(text, value, format, 0);
    page_card(report->out, name, text, remark, NULL);
}

void part_federated(struct report *report)
{
    const struct json_value *federated = federated_of(report);

    if (!federated)
        return;
    const struct json_value *labels = labels_of(federated);
    page_section_begin(report->out, "Federation");
    page_cards_begin(report->out);
    write_card(report, "participants", json_number(federated, "participants", NAN),
               NUMBER_PLAIN, json_text(federated, "partition", NULL));
    write_card(report, "rounds", json_number(federated, "rounds", NAN), NUMBER_PLAIN, NULL);
    write_card(report, "rounds to the accuracy asked for",
               json_number(federated, "reached_in", NAN), NUMBER_PLAIN, NULL);
    write_card(report, "label skew", json_number(federated, "label_skew", NAN), NUMBER_PERCENT,
               "distance from the labels of all, on average");
    write_card(report, "epsilon", json_number(federated, "epsilon", NAN), NUMBER_PLAIN,
               "privacy spent");
    write_card(report, "bytes to the coordinator", json_number(federated, "bytes_in", NAN),
               NUMBER_SI, NULL);
    page_cards_end(report->out);
    if (labels) {
        page_plots_begin(report->out);
        write_labels(report, labels);
        page_plots_end(report->out);
    }
    page_section_end(report->out);
}
