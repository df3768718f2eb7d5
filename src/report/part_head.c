/* SPDX-License-Identifier: MIT */
/* part_head.c - the top of the page: which run it was, what came of it. */
#include "report/number.h"
#include "report/page.h"
#include "report/part.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static void add_fact(struct strbuf *out, const char *text)
{
    strbuf_add(out, "<span>");
    strbuf_add_xml(out, text);
    strbuf_add(out, "</span>");
}

/* "seed 7"; a seed may be a text, where a JSON number would not hold it. */
static void add_named_fact(struct report *report, const char *key)
{
    const double value = run_number(report->run, key, NAN);
    const char *digits = run_text(report->run, key, NULL);
    char text[60];

    if (digits)
        snprintf(text, sizeof text, "%s %.24s", key, digits);
    else if (fabs(value) < 1e20)
        snprintf(text, sizeof text, "%s %.0f", key, value);
    else
        return;
    add_fact(report->out, text);
}

static void write_badge(struct report *report)
{
    static const char *const classes[][2] = { { "done", "good" }, { "failed", "bad" } };
    const char *state = run_text(report->run, "status", "unfinished"), *class = "warn";

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (strcmp(state, classes[i][0]) == 0)
            class = classes[i][1];
    }
    strbuf_printf(report->out, "<span class=\"badge %s\">", class);
    strbuf_add_xml(report->out, state);
    strbuf_add(report->out, "</span>");
}

void part_header(struct report *report)
{
    struct strbuf *out = report->out;
    const struct run *run = report->run;
    const char *data = run_text(run, "data", NULL);
    char date[64];
    struct tm utc;

    strbuf_add(out, "<header>\n<p class=\"mark\"><b>tutti</b>");
    write_badge(report);
    strbuf_add(out, "</p>\n<h1>");
    strbuf_add_xml(out, run_text(run, "model", "A training run"));
    if (data) {
        strbuf_add(out, " <i>on</i> ");
        strbuf_add_xml(out, data);
    }
    strbuf_add(out, "</h1>\n<p class=\"facts\">");
    if (run_text(run, "strategy", NULL))
        add_fact(out, run_text(run, "strategy", NULL));
    const double ranks = run_number(run, "ranks", NAN),
                 threads = run_number(run, "threads", NAN);
    if (!isnan(ranks) && !isnan(threads)) {
        char text[160], left[NUMBER_TEXT], right[NUMBER_TEXT];
        number_whole(left, ranks);
        number_whole(right, threads);
        snprintf(text, sizeof text, "%s rank%s \u00d7 %s thread%s", left, ranks == 1 ? "" : "s",
                 right, threads == 1 ? "" : "s");
        add_fact(out, text);
    }
    if (run_text(run, "device", NULL))
        add_fact(out, run_text(run, "device", NULL));
    add_named_fact(report, "batch");
    add_named_fact(report, "seed");
    if (run->ended != 0 && gmtime_r(&run->ended, &utc) &&
        strftime(date, sizeof date, "%d %B %Y, %H:%M UTC", &utc) > 0)
        add_fact(out, date + (date[0] == '0'));
    strbuf_add(out, "</p>\n</header>\n");
}

static void write_nan_note(struct report *report)
{
    const struct run_table *train = &report->run->train;
    size_t count = 0, first = 0;
    char text[200], step[NUMBER_TEXT];

    for (size_t i = 0; i < train->count; i++) {
        if (isfinite(train->column[RUN_TRAIN_LOSS][i]))
            continue;
        first = count == 0 ? i : first;
        count++;
    }
    if (count == 0)
        return;
    number_whole(step, train->column[RUN_STEP][first]);
    snprintf(text, sizeof text,
             "%zu of %zu logged training losses are not finite numbers, the first at step %s.",
             count, train->count, step);
    page_note(report->out, text);
}

void part_notes(struct report *report)
{
    const struct run *run = report->run;
    const char *error = run->summary ? json_text(json_root(run->summary), "error", NULL) : NULL;

    if (error)
        page_note(report->out, error);
    for (const char *line = run->notes.text; *line;) {
        const size_t length = strcspn(line, "\n");
        char text[400];
        snprintf(text, sizeof text, "%.*s", (int)(length < 399 ? length : 399), line);
        page_note(report->out, text);
        line += length + (line[length] == '\n');
    }
    write_nan_note(report);
}

/* A figure of the summary or, if there is none, the last of a column. */
static double figure_of(const struct run *run, const char *key, const struct run_table *table,
                        enum run_column column)
{
    const double value =
        run->summary ? json_number(json_root(run->summary), key, NAN) : (double)NAN;

    return isnan(value) ? run_last(table, column) : value;
}

/* "best 91.42% at epoch 8" if an earlier evaluation was better than the last. */
static bool print_best(char *out, size_t size, const struct run_table *eval,
                       enum run_column column, bool greater_is_better,
                       enum number_format format)
{
    const double *values = eval->column[column];
    size_t best = eval->count;
    char figure[NUMBER_TEXT], epoch[NUMBER_TEXT];

    for (size_t i = 0; i < eval->count; i++) {
        if (isfinite(values[i]) &&
            (best == eval->count ||
             (greater_is_better ? values[i] > values[best] : values[i] < values[best])))
            best = i;
    }
    if (best == eval->count || values[best] == run_last(eval, column))
        return false;
    number_print(figure, values[best], format, 0);
    number_print(epoch, eval->column[RUN_EPOCH][best], NUMBER_PLAIN, 0);
    snprintf(out, size, "best %s, epoch %s", figure, epoch);
    return true;
}

/* The card of accuracy or loss: the validation's if there was one, else the training's. */
static void write_score_card(struct report *report, const char *what, bool is_accuracy)
{
    const struct run *run = report->run;
    const enum number_format format = is_accuracy ? NUMBER_PERCENT : NUMBER_PLAIN;
    const enum run_column val_column = is_accuracy ? RUN_VAL_ACCURACY : RUN_VAL_LOSS;
    const double val =
        figure_of(run, is_accuracy ? "val_accuracy" : "val_loss", &run->eval, val_column);
    double train = figure_of(run, is_accuracy ? "train_accuracy" : "train_loss", &run->eval,
                             is_accuracy ? RUN_TRAIN_ACCURACY : RUN_TRAIN_LOSS);
    char name[64], figure[NUMBER_TEXT], other[NUMBER_TEXT], remark[160];

    if (isnan(train))
        train = run_last(&run->train, is_accuracy ? RUN_TRAIN_ACCURACY : RUN_TRAIN_LOSS);
    if (isnan(val) && isnan(train))
        return;
    number_print(other, train, format, 0);
    if (isnan(val)) {
        snprintf(name, sizeof name, "Training %s", what);
        page_card(report->out, name, other, NULL, NULL);
        return;
    }
    snprintf(name, sizeof name, "Validation %s", what);
    number_print(figure, val, format, 0);
    if (!print_best(remark, sizeof remark, &run->eval, val_column, is_accuracy, format))
        snprintf(remark, sizeof remark, "training %s", other);
    page_card(
        report->out, name, figure, remark,
        "on samples that training does not learn from: of text the validation split, else "
        "the test split");
}

static void write_top5_card(struct report *report)
{
    const struct run *run = report->run;
    const double top5 = figure_of(run, "val_top5_accuracy", &run->eval, RUN_VAL_TOP5_ACCURACY);
    char figure[NUMBER_TEXT];

    if (isnan(top5))
        return;
    number_print(figure, top5, NUMBER_PERCENT, 0);
    page_card(report->out, "Top-5 accuracy", figure, NULL,
              "samples whose class is among the five most likely");
}

/* A card of a number that only some models have. */
static void write_number_card(struct report *report, const char *name, const char *key,
                              enum run_column column, const char *hover)
{
    const struct run *run = report->run;
    const double value = figure_of(run, key, &run->eval, column);
    char figure[NUMBER_TEXT], remark[160];

    if (isnan(value))
        return;
    number_print(figure, value, NUMBER_PLAIN, 0);
    const bool has_best = print_best(remark, sizeof remark, &run->eval, column,
                                     column == RUN_BLEU || column == RUN_VAL_AUC, NUMBER_PLAIN);
    page_card(report->out, name, figure, has_best ? remark : NULL, hover);
}

static void write_rate_card(struct report *report, const char *name, double rate,
                            const char *remark)
{
    char figure[NUMBER_TEXT];

    if (rate < 1000)
        number_print(figure, rate, NUMBER_PLAIN, 0);
    else
        number_whole(figure, rate);
    page_card(report->out, name, figure, remark, NULL);
}

static void write_time_cards(struct report *report)
{
    const struct run *run = report->run;
    const double seconds = fmax(figure_of(run, "seconds", &run->train, RUN_SECONDS),
                                run_last(&run->eval, RUN_SECONDS));
    const double rate = figure_of(run, "samples_per_s", &run->train, RUN_SAMPLES_PER_S);
    const double tokens = figure_of(run, "tokens_per_s", &run->train, RUN_TOKENS_PER_S);
    const double steps = figure_of(run, "steps", &run->train, RUN_STEP);
    const double samples = figure_of(run, "samples", &run->train, RUN_SAMPLES);
    char figure[NUMBER_TEXT], count[NUMBER_TEXT], remark[NUMBER_TEXT + 20];

    if (!isnan(seconds)) {
        number_duration(figure, seconds);
        number_whole(count, steps);
        snprintf(remark, sizeof remark, "%s steps", count);
        page_card(report->out, "Time", figure, isnan(steps) ? NULL : remark, NULL);
    }
    number_print(count, samples, NUMBER_SI, 0);
    snprintf(remark, sizeof remark, "%s samples", count);
    if (!isnan(tokens))
        write_rate_card(report, "Tokens/s", tokens, isnan(samples) ? NULL : remark);
    else if (!isnan(rate))
        write_rate_card(report, "Samples/s", rate, isnan(samples) ? NULL : remark);
}

static void write_size_cards(struct report *report)
{
    const double parameters = run_number(report->run, "parameters", NAN);
    const double peak = run_number(report->run, "peak_bytes", NAN);
    char figure[NUMBER_TEXT], exact[NUMBER_TEXT], hover[NUMBER_TEXT + 20];

    if (!isnan(parameters)) {
        number_whole(exact, parameters);
        snprintf(hover, sizeof hover, "%s parameters", exact);
        if (parameters < 1e7)
            number_whole(figure, parameters);
        else
            number_print(figure, parameters, NUMBER_SI, 0);
        page_card(report->out, "Parameters", figure, NULL, hover);
    }
    if (!isnan(peak)) {
        number_bytes(figure, peak);
        number_whole(exact, peak);
        snprintf(hover, sizeof hover, "%s bytes", exact);
        page_card(report->out, "Peak memory", figure, NULL, hover);
    }
}

void part_cards(struct report *report)
{
    const char *weights = run_text(report->run, "weights_sha256", NULL);

    page_cards_begin(report->out);
    write_score_card(report, "accuracy", true);
    write_top5_card(report);
    write_score_card(report, "loss", false);
    write_number_card(report, "AUC", "val_auc", RUN_VAL_AUC,
                      "share of pairs of samples of both classes that are in the right order");
    write_number_card(report, "Perplexity", "perplexity", RUN_PERPLEXITY,
                      "of a token of the validation data: e to the power of its mean loss");
    write_number_card(report, "BLEU", "bleu", RUN_BLEU, "as sacreBLEU computes it");
    write_time_cards(report);
    write_size_cards(report);
    if (weights) {
        char brief[16];
        snprintf(brief, sizeof brief, "%.8s", weights);
        page_card(report->out, "Weights", brief, "SHA-256", weights);
    }
    page_cards_end(report->out);
}
