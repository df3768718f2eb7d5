/* SPDX-License-Identifier: MIT */
/* status_page.c - rounds, participants, curves, bytes, budget; drawn by report/'s plots. */
#include "fed/status_page.h"

#include <math.h>
#include <stdio.h>
#include <time.h>

#include "base/mem.h"
#include "report/page.h"
#include "report/plot.h"

enum { SERIES_MOST = 3, TEXT = 160, STRIP_WIDTH = 160, STRIP_HEIGHT = 12, LABELS_DRAWN = 32 };

static void add_time(struct strbuf *out, int64_t seconds)
{
    const time_t when = (time_t)seconds;
    struct tm tm;
    char text[32];

    if (gmtime_r(&when, &tm) && strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &tm))
        strbuf_add(out, text);
}

/* The last value of the history that has this member. */
static double last_of(const struct json_value *history, const char *key)
{
    for (size_t i = history ? history->count : 0; i > 0; i--) {
        const double number = json_number(&history->items[i - 1], key, NAN);
        if (!isnan(number))
            return number;
    }
    return NAN;
}

/* Head ------------------------------------------------------------------------------------- */

static bool is_done(const struct json_value *now)
{
    return *json_text(now, "why", "") ||
           json_integer(now, "done", 0) >= json_integer(now, "rounds", 1);
}

static void write_header(const struct json_value *status, struct strbuf *out)
{
    const struct json_value *now = json_get(status, "now");
    const char *why = json_text(now, "why", "");

    strbuf_add(out, "<header>\n<p class=\"mark\"><b>tutti</b>");
    strbuf_printf(out, "<span class=\"badge %s\">%s</span></p>\n<h1>",
                  is_done(now) ? "good" : "warn", is_done(now) ? "done" : "training");
    strbuf_add_xml(out, json_text(status, "model", "?"));
    strbuf_add(out, " <i>by ");
    strbuf_add_xml(out, json_text(status, "algorithm", "?"));
    strbuf_add(out, "</i></h1>\n<p class=\"facts\"><span>federation ");
    strbuf_add_xml(out, json_text(status, "federation", "?"));
    strbuf_add(out, "</span><span>");
    add_time(out, json_integer(status, "time", 0));
    strbuf_add(out, " UTC</span>");
    if (*why) {
        strbuf_add(out, "<span>");
        strbuf_add_xml(out, why);
        strbuf_add(out, "</span>");
    }
    strbuf_add(out, "</p>\n</header>\n");
}

static void write_number_card(const struct json_value *history, const char *key,
                              const char *name, enum number_format format, struct strbuf *out)
{
    char figure[NUMBER_TEXT];
    const double value = last_of(history, key);

    if (isnan(value))
        return;
    number_print(figure, value, format, 0);
    page_card(out, name, figure, NULL, NULL);
}

static void write_rounds_card(const struct json_value *now, struct strbuf *out)
{
    char figure[TEXT], remark[TEXT];
    const int64_t done = json_integer(now, "done", 0),
                  lost = json_integer(now, "round", 0) - done;

    snprintf(figure, sizeof figure, "%lld of %lld", (long long)done,
             (long long)json_integer(now, "rounds", 0));
    if (lost > 0)
        snprintf(remark, sizeof remark, "%s, %lld lost", json_text(now, "stage", ""),
                 (long long)lost);
    else
        snprintf(remark, sizeof remark, "%s", json_text(now, "stage", ""));
    page_card(out, "Rounds", figure, remark, NULL);
}

static void write_bytes_card(const struct json_value *now, struct strbuf *out)
{
    char in[NUMBER_TEXT], sent[NUMBER_TEXT], remark[TEXT];

    number_bytes(in, json_number(now, "bytes_in", 0));
    number_bytes(sent, json_number(now, "bytes_out", 0));
    snprintf(remark, sizeof remark, "%s sent", sent);
    page_card(out, "Received", in, remark, NULL);
}

static void write_privacy_card(const struct json_value *now, struct strbuf *out)
{
    char spent[NUMBER_TEXT], budget[NUMBER_TEXT], remark[TEXT] = "";

    if (!json_get(now, "epsilon"))
        return;
    number_print(spent, json_number(now, "epsilon", NAN), NUMBER_PLAIN, 0);
    number_print(budget, json_number(now, "budget", 0), NUMBER_PLAIN, 0);
    if (json_number(now, "budget", 0) > 0)
        snprintf(remark, sizeof remark, "of a budget of %s", budget);
    page_card(out, "Privacy spent, \xce\xb5", spent, *remark ? remark : NULL, NULL);
}

static void write_cards(const struct json_value *status, struct strbuf *out)
{
    const struct json_value *now = json_get(status, "now"),
                            *history = json_get(status, "history"),
                            *participants = json_get(now, "participants");
    char figure[TEXT];

    page_cards_begin(out);
    write_rounds_card(now, out);
    snprintf(figure, sizeof figure, "%zu", participants ? participants->count : 0);
    page_card(out, "Participants", figure, NULL, NULL);
    write_number_card(history, "val_accuracy", "Accuracy", NUMBER_PERCENT, out);
    write_number_card(history, "val_loss", "Loss", NUMBER_PLAIN, out);
    write_bytes_card(now, out);
    write_privacy_card(now, out);
    page_cards_end(out);
}

/* Curves ------------------------------------------------------------------------------------- */

struct curve {
    const char *key, *name;
};

static const struct chart {
    const char *title, *label;
    struct curve
        curves[SERIES_MOST]; /* of the rounds' metrics; those that no round has are left out */
    enum number_format format;
    bool from_zero;
} charts[] = {
    { "Loss",
      NULL,
      { { "train_loss", "training" }, { "val_loss", "validation" } },
      NUMBER_PLAIN,
      false },
    { "Accuracy",
      NULL,
      { { "train_accuracy", "training" }, { "val_accuracy", "validation" } },
      NUMBER_PERCENT,
      false },
    { "Bytes a round",
      NULL,
      { { "bytes_in", "received" }, { "bytes_out", "sent" } },
      NUMBER_SI,
      true },
    { "Participants of a round", NULL, { { "participants", NULL } }, NUMBER_PLAIN, true },
    { "Privacy spent", "epsilon", { { "epsilon", NULL } }, NUMBER_PLAIN, true },
    { "Norm of updates",
      NULL,
      { { "update_norm", "update" }, { "clip", "clip" } },
      NUMBER_PLAIN,
      true },
};

/* Points of a curve into x and y; returns how many. */
static size_t take_points(const struct json_value *history, const char *key, double *x,
                          double *y)
{
    size_t n = 0;

    for (size_t i = 0; i < history->count; i++) {
        const double value = json_number(&history->items[i], key, NAN);
        if (isnan(value))
            continue;
        x[n] = json_number(&history->items[i], "round", (double)i + 1);
        y[n++] = value;
    }
    return n;
}

static void write_chart(const struct json_value *history, const struct chart *chart,
                        double *numbers, struct strbuf *out)
{
    const struct plot plot = {
        .title = chart->title,
        .x = { .label = "round", .whole = true },
        .y = { .label = chart->label, .format = chart->format, .from_zero = chart->from_zero }
    };
    struct plot_series series[SERIES_MOST];
    size_t n = 0;

    for (int i = 0; i < SERIES_MOST && chart->curves[i].key; i++) {
        double *x = numbers + 2 * (size_t)i * history->count, *y = x + history->count;
        const size_t count = take_points(history, chart->curves[i].key, x, y);
        if (count > 0)
            series[n++] = (struct plot_series){ .name = chart->curves[i].name,
                                                .x = x,
                                                .y = y,
                                                .count = count,
                                                .colour = i,
                                                .tell_last = true };
    }
    if (n == 0)
        return;
    page_plot_begin(out, false);
    plot_lines(out, &plot, series, n);
    page_plot_end(out);
}

static enum status write_charts(const struct json_value *history, struct strbuf *out)
{
    double *numbers;

    if (!history || history->count == 0) {
        page_note(out, "No round is done yet.");
        return STATUS_OK;
    }
    TRY(mem_alloc(history->count, 2 * SERIES_MOST * sizeof *numbers, &numbers));
    page_section_begin(out, "Rounds");
    page_plots_begin(out);
    for (size_t i = 0; i < sizeof charts / sizeof charts[0]; i++)
        write_chart(history, &charts[i], numbers, out);
    page_plots_end(out);
    page_section_end(out);
    mem_free(numbers);
    return STATUS_OK;
}

/* Tables --------------------------------------------------------------------------------------- */

/* A strip with a piece a label, as wide as its share of the samples; what is left is of labels that are not drawn. */
static void write_labels(const struct json_value *labels, struct strbuf *out)
{
    double sum = 0, x = 0;

    for (size_t i = 0; i < labels->count; i++)
        sum += fmax(labels->items[i].number, 0);
    if (!(sum > 0))
        return;
    strbuf_printf(out, "<svg class=\"strip\" width=\"%d\" height=\"%d\" role=\"img\">",
                  STRIP_WIDTH, STRIP_HEIGHT);
    for (size_t i = 0; i < labels->count && i < LABELS_DRAWN; i++) {
        const double count = fmax(labels->items[i].number, 0);
        const double width = STRIP_WIDTH * count / sum;
        if (count > 0)
            strbuf_printf(out,
                          "<g><title>label %zu: %.0f samples (%.0f%%)</title><rect x=\"%.2f\" "
                          "width=\"%.2f\" height=\"%d\" fill=\"hsl(%.0f,55%%,55%%)\"/></g>",
                          i, count, 100 * count / sum, x, width, STRIP_HEIGHT,
                          360.0 * (double)i / (double)labels->count);
        x += width;
    }
    strbuf_add(out, "</svg>");
}

static void write_participants(const struct json_value *list, struct strbuf *out)
{
    if (!list || list->count == 0)
        return;
    page_section_begin(out, "Participants");
    strbuf_add(out, "<div class=\"box scroll\"><table>\n<tr><th>name</th><th>samples</th><th>"
                    "state</th><th>last round</th><th>last seen</th><th>labels</th></tr>\n");
    for (size_t i = 0; i < list->count; i++) {
        const struct json_value *one = &list->items[i];
        const double seen = json_number(one, "seen_s", NAN);
        char samples[NUMBER_TEXT], ago[NUMBER_TEXT];
        number_whole(samples, json_number(one, "samples", 0));
        number_duration(ago, seen);
        strbuf_add(out, "<tr><td>");
        strbuf_add_xml(out, json_text(one, "name", ""));
        strbuf_printf(out, "</td><td>%s</td><td>", samples);
        strbuf_add_xml(out, json_text(one, "state", ""));
        const int64_t last = json_integer(one, "last_round", -1);
        if (last >= 0)
            strbuf_printf(out, "</td><td>%lld</td><td>", (long long)last + 1);
        else
            strbuf_add(out, "</td><td>\xe2\x80\x93</td><td>");
        strbuf_add(out, isnan(seen) ? "not since the start" : ago);
        strbuf_add(out, isnan(seen) ? "</td><td>" : " ago</td><td>");
        const struct json_value *labels = json_get(one, "labels");
        if (labels && labels->kind == JSON_ARRAY)
            write_labels(labels, out);
        else
            strbuf_add(out, "not told");
        strbuf_add(out, "</td></tr>\n");
    }
    strbuf_add(out, "</table></div>\n");
    page_section_end(out);
}

static void write_audit(const struct json_value *list, struct strbuf *out)
{
    if (!list || list->count == 0)
        return;
    page_section_begin(out, "Audit log, the newest first");
    strbuf_add(out, "<div class=\"box scroll\"><table>\n<tr><th>time (UTC)</th><th>round</th>"
                    "<th>who</th><th>what</th></tr>\n");
    for (size_t i = 0; i < list->count; i++) {
        const struct json_value *one = &list->items[i];
        strbuf_add(out, "<tr><td>");
        add_time(out, json_integer(one, "time", 0));
        strbuf_printf(out, "</td><td>%lld</td><td>",
                      (long long)json_integer(one, "round", 0) + 1);
        strbuf_add_xml(out, json_text(one, "client", ""));
        strbuf_add(out, "</td><td>");
        strbuf_add_xml(out, json_text(one, "what", ""));
        strbuf_add(out, "</td></tr>\n");
    }
    strbuf_add(out, "</table></div>\n");
    page_section_end(out);
}

enum status status_page_print(const struct json_value *status, struct strbuf *out)
{
    page_begin(out, "tutti federation");
    write_header(status, out);
    write_cards(status, out);
    TRY(write_charts(json_get(status, "history"), out));
    write_participants(json_get(json_get(status, "now"), "participants"), out);
    write_audit(json_get(status, "audit"), out);
    page_end(out, "Participants' data never come here. This page loads itself anew.");
    return STATUS_OK;
}

/* Text ------------------------------------------------------------------------------------------- */

void status_text_print(const struct json_value *status, struct strbuf *out)
{
    const struct json_value *now = json_get(status, "now"),
                            *history = json_get(status, "history"),
                            *list = json_get(now, "participants");
    const double accuracy = last_of(history, "val_accuracy"),
                 loss = last_of(history, "val_loss");

    strbuf_printf(out, "%s by %s, federation %s\n", json_text(status, "model", "?"),
                  json_text(status, "algorithm", "?"), json_text(status, "federation", "?"));
    strbuf_printf(
        out, "rounds        %lld of %lld, %s\n", (long long)json_integer(now, "done", 0),
        (long long)json_integer(now, "rounds", 0),
        *json_text(now, "why", "") ? json_text(now, "why", "") : json_text(now, "stage", ""));
    if (!isnan(accuracy))
        strbuf_printf(out, "accuracy      %.4f\n", accuracy);
    if (!isnan(loss))
        strbuf_printf(out, "loss          %.4f\n", loss);
    strbuf_printf(out, "bytes         %.0f received, %.0f sent\n",
                  json_number(now, "bytes_in", 0), json_number(now, "bytes_out", 0));
    if (json_get(now, "epsilon"))
        strbuf_printf(out, "privacy       epsilon %.4g of %.4g, delta %g\n",
                      json_number(now, "epsilon", NAN), json_number(now, "budget", NAN),
                      json_number(now, "delta", NAN));
    for (size_t i = 0; list && i < list->count; i++) {
        const struct json_value *one = &list->items[i];
        strbuf_printf(out, "%s%-20s %8lld samples  %s\n",
                      i ? "              " : "participants  ", json_text(one, "name", ""),
                      (long long)json_integer(one, "samples", 0), json_text(one, "state", ""));
    }
}
