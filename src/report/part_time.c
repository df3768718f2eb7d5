/* SPDX-License-Identifier: MIT */
/* part_time.c - where the time went: per epoch, over the run, per rank. */
#include "report/number.h"
#include "report/page.h"
#include "report/part.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    EPOCH_BARS = 60, /* more epochs are drawn as lines */
    RANK_BARS = 64,  /* more ranks are not drawn, and said to be left out */
};

static void write_epoch_lines(struct report *report)
{
    const struct run_table *eval = &report->run->eval;
    struct plot_series series[] = {
        part_series(eval, report->x, RUN_EPOCH_SECONDS, "training", PART_BLUE, PLOT_LINE),
        part_series(eval, report->x, RUN_EVAL_SECONDS, "evaluation", PART_PURPLE, PLOT_LINE),
    };
    const struct plot plot = { .title = "Time per epoch",
                               .x = part_progress_axis(report),
                               .y = { .label = "seconds", .from_zero = true } };

    part_lines(report, &plot, series, 2);
}

/* Bars for each epoch; values and names are gathered for the call. */
static void write_epoch_bars(struct report *report)
{
    const struct run_table *eval = &report->run->eval;
    char epochs[EPOCH_BARS][NUMBER_TEXT];
    const char *categories[EPOCH_BARS];
    double values[2 * EPOCH_BARS];
    static const char *const names[] = { "training", "evaluation" };
    static const int colours[] = { PART_BLUE, PART_PURPLE };

    for (size_t i = 0; i < eval->count; i++) {
        number_print(epochs[i], eval->column[report->x][i], NUMBER_PLAIN, 0);
        categories[i] = epochs[i];
        values[i] = eval->column[RUN_EPOCH_SECONDS][i];
        values[eval->count + i] = eval->column[RUN_EVAL_SECONDS][i];
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = eval->count,
                                    .names = names,
                                    .colours = colours,
                                    .n_series = 2,
                                    .values = values,
                                    .stacked = true };
    const struct plot plot = { .title = "Time per epoch",
                               .x = { .label = report->x == RUN_EPOCH ? "epoch" : "step" },
                               .y = { .label = "seconds" } };
    page_plot_begin(report->out, false);
    plot_bars(report->out, &plot, &bars);
    page_plot_end(report->out);
}

static void write_throughput(struct report *report)
{
    const struct run *run = report->run;
    const bool tokens =
        run_has(&run->train, RUN_TOKENS_PER_S) || run_has(&run->eval, RUN_TOKENS_PER_S);
    const enum run_column rate = tokens ? RUN_TOKENS_PER_S : RUN_SAMPLES_PER_S;
    struct plot_series series[] = {
        part_series(&run->train, RUN_SECONDS, rate, NULL, PART_BLUE, PLOT_NOISY),
        part_series(&run->eval, RUN_SECONDS, rate, NULL, PART_BLUE, PLOT_LINE),
    };
    const struct plot plot = { .title = "Throughput",
                               .x = part_time_axis(run),
                               .y = { .label = tokens ? "tokens a second" : "samples a second",
                                      .format = NUMBER_SI,
                                      .from_zero = true } };

    /* The mean of an epoch is only of interest where nothing finer was logged. */
    part_lines(report, &plot, series[0].count > 0 ? &series[0] : &series[1], 1);
}

static void write_shares(struct report *report)
{
    const struct run *run = report->run;
    struct plot_series series[] = {
        part_series(&run->train, RUN_SECONDS, RUN_COMM_SHARE, "communication", PART_VERMILION,
                    PLOT_NOISY),
        part_series(&run->train, RUN_SECONDS, RUN_WAIT_SHARE, "waiting", PART_ORANGE,
                    PLOT_NOISY),
        part_series(&run->train, RUN_SECONDS, RUN_LOAD_SHARE, "loading", PART_GREEN,
                    PLOT_NOISY),
    };
    const struct plot plot = { .title = "Time not spent computing",
                               .x = part_time_axis(run),
                               .y = { .format = NUMBER_PERCENT, .from_zero = true } };

    part_lines(report, &plot, series, 3);
}

/* Where some was hidden; on shared memory with a lane a rank none ever is. */
static void write_hidden(struct report *report)
{
    const struct run *run = report->run;
    struct plot_series series[] = {
        part_series(&run->train, RUN_SECONDS, RUN_HIDDEN_SHARE, NULL, PART_GREEN, PLOT_NOISY),
    };
    const struct plot plot = { .title = "Communication hidden behind computing",
                               .x = part_time_axis(run),
                               .y = { .format = NUMBER_PERCENT, .from_zero = true } };
    bool any = false;

    for (size_t i = 0; i < series[0].count; i++)
        any |= series[0].y[i] > 0;
    if (any)
        part_lines(report, &plot, series, 1);
}

/* What ranks spend time on; in stacking order. */
static const struct {
    const char *key, *name;
    int colour;
} uses[] = {
    { "compute_s", "compute", PART_BLUE },   { "comm_s", "communication", PART_VERMILION },
    { "wait_s", "waiting", PART_ORANGE },    { "load_s", "loading", PART_GREEN },
    { "eval_s", "evaluation", PART_PURPLE }, { "other_s", "other", PLOT_GREY },
};
enum { USES = sizeof uses / sizeof *uses };

/* Shares of a rank's time, and the time itself; false if it has none. */
static bool read_rank(const struct json_value *rank, double shares[USES], double *out_seconds)
{
    double sum = 0;

    for (int u = 0; u < USES; u++) {
        const double seconds = json_number(rank, uses[u].key, 0);
        shares[u] = isfinite(seconds) && seconds > 0 ? fmin(seconds, 1e300) : 0;
        sum += shares[u];
    }
    for (int u = 0; u < USES && sum > 0; u++)
        shares[u] /= sum;
    *out_seconds = sum;
    return sum > 0;
}

static void print_rank(char out[NUMBER_TEXT], const struct json_value *rank, size_t i)
{
    snprintf(out, NUMBER_TEXT, "rank %lld", (long long)json_integer(rank, "rank", (int64_t)i));
}

static void write_rank_bars(struct report *report, const struct json_value *ranks)
{
    char texts[RANK_BARS][NUMBER_TEXT];
    const char *categories[RANK_BARS], *names[USES];
    double values[USES * RANK_BARS], shares[USES], seconds;
    int colours[USES];
    const size_t count = ranks->count < RANK_BARS ? ranks->count : RANK_BARS;
    char title[80];

    for (size_t i = 0; i < count; i++) {
        print_rank(texts[i], &ranks->items[i], i);
        categories[i] = texts[i];
        read_rank(&ranks->items[i], shares, &seconds);
        for (int u = 0; u < USES; u++)
            values[(size_t)u * count + i] = shares[u];
    }
    for (int u = 0; u < USES; u++) {
        names[u] = uses[u].name;
        colours[u] = uses[u].colour;
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .colours = colours,
                                    .n_series = USES,
                                    .values = values,
                                    .stacked = true,
                                    .horizontal = true };
    if (count < ranks->count)
        snprintf(title, sizeof title, "Where the time went (%zu of %zu ranks)", count,
                 ranks->count);
    else
        snprintf(title, sizeof title, "Where the time went");
    const struct plot plot = {
        .title = title, .x = { .format = NUMBER_PERCENT, .label = "share of the time" }
    };
    page_plot_begin(report->out, false);
    plot_bars(report->out, &plot, &bars);
    page_plot_end(report->out);
}

static const char waited_key[] = "made_wait_s";

/* Does any rank have such a number? Where none waited for another, as servers' workers and stages of a
 * pipeline, whose waits are told elsewhere, zeros say nothing. */
static bool ranks_have(const struct json_value *ranks, const char *key)
{
    for (size_t i = 0; i < ranks->count; i++) {
        const double value = json_number(&ranks->items[i], key, NAN);
        if (isfinite(value) && (value > 0 || strcmp(key, waited_key) != 0))
            return true;
    }
    return false;
}

/* Who the others waited for: of several ranks alone. */
static void write_made_wait(struct report *report, const struct json_value *ranks)
{
    char texts[RANK_BARS][NUMBER_TEXT];
    const char *categories[RANK_BARS];
    double values[RANK_BARS];
    static const char *const names[] = { "others waited" };
    static const int colours[] = { PART_ORANGE };
    const size_t count = ranks->count < RANK_BARS ? ranks->count : RANK_BARS;

    if (count < 2 || !ranks_have(ranks, waited_key))
        return;
    for (size_t i = 0; i < count; i++) {
        const double seconds = json_number(&ranks->items[i], waited_key, 0);
        print_rank(texts[i], &ranks->items[i], i);
        categories[i] = texts[i];
        values[i] = isfinite(seconds) && seconds > 0 ? fmin(seconds, 1e300) : 0;
    }
    const struct plot_bars bars = { .categories = categories,
                                    .n_categories = count,
                                    .names = names,
                                    .colours = colours,
                                    .n_series = 1,
                                    .values = values,
                                    .horizontal = true,
                                    .tell = true };
    const struct plot plot = { .title = "Whom the other ranks waited for",
                               .x = { .label = "seconds, of all others together" } };
    page_plot_begin(report->out, false);
    plot_bars(report->out, &plot, &bars);
    page_plot_end(report->out);
}

/* What else a rank's row may tell; a column that no rank has is left out. */
static const struct {
    const char *key, *name;
    enum { CELL_SHARE, CELL_BYTES, CELL_SECONDS } kind;
} extras[] = {
    { "hidden_share", "hidden", CELL_SHARE },
    { "bytes_sent", "sent", CELL_BYTES },
    { waited_key, "others waited", CELL_SECONDS },
};
enum { EXTRAS = sizeof extras / sizeof *extras };

static void write_extra(struct report *report, const struct json_value *rank, int e)
{
    const double value = json_number(rank, extras[e].key, NAN);
    char text[NUMBER_TEXT];

    if (extras[e].kind == CELL_BYTES)
        number_bytes(text, value);
    else if (extras[e].kind == CELL_SECONDS)
        number_duration(text, value);
    else
        number_print(text, value, NUMBER_PERCENT, 0);
    strbuf_printf(report->out, "<td>%s</td>", text);
}

static void write_rank_table(struct report *report, const struct json_value *ranks)
{
    double shares[USES], seconds;
    char text[NUMBER_TEXT];

    strbuf_add(report->out, "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n"
                            "<tr><th>rank</th>");
    for (int u = 0; u < USES; u++)
        strbuf_printf(report->out, "<th>%s</th>", uses[u].name);
    for (int e = 0; e < EXTRAS; e++) {
        if (ranks_have(ranks, extras[e].key))
            strbuf_printf(report->out, "<th>%s</th>", extras[e].name);
    }
    strbuf_add(report->out, "<th>time</th></tr>\n");
    for (size_t i = 0; i < ranks->count && i < PART_ROWS; i++) {
        read_rank(&ranks->items[i], shares, &seconds);
        strbuf_printf(report->out, "<tr><td>%lld</td>",
                      (long long)json_integer(&ranks->items[i], "rank", (int64_t)i));
        for (int u = 0; u < USES; u++)
            part_cell(report, shares[u], NUMBER_PERCENT);
        for (int e = 0; e < EXTRAS; e++) {
            if (ranks_have(ranks, extras[e].key))
                write_extra(report, &ranks->items[i], e);
        }
        number_duration(text, seconds);
        strbuf_printf(report->out, "<td>%s</td></tr>\n", text);
    }
    strbuf_add(report->out, "</table></div>\n");
}

static const struct json_value *ranks_of(const struct run *run)
{
    const struct json_value *ranks =
        run->summary ? json_get(json_root(run->summary), "rank_times") : NULL;

    return ranks && ranks->kind == JSON_ARRAY && ranks->count > 0 ? ranks : NULL;
}

void part_time(struct report *report)
{
    const struct run_table *eval = &report->run->eval;
    const struct json_value *ranks = ranks_of(report->run);
    const bool has_epochs = run_has(eval, RUN_EPOCH_SECONDS) || run_has(eval, RUN_EVAL_SECONDS);

    if (!ranks && !has_epochs && report->run->train.count == 0)
        return;
    page_section_begin(report->out, "Time");
    page_plots_begin(report->out);
    if (has_epochs && eval->count <= EPOCH_BARS)
        write_epoch_bars(report);
    else if (has_epochs)
        write_epoch_lines(report);
    write_throughput(report);
    if (ranks)
        write_rank_bars(report, ranks);
    if (ranks)
        write_made_wait(report, ranks);
    write_shares(report);
    write_hidden(report);
    page_plots_end(report->out);
    if (ranks)
        write_rank_table(report, ranks);
    page_section_end(report->out);
}
