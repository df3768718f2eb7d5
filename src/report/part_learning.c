/* SPDX-License-Identifier: MIT */
/* part_learning.c - accuracy, loss and learning rate: what the run learned. */
#include "report/number.h"
#include "report/page.h"
#include "report/part.h"

#include <math.h>
#include <stdio.h>

/* Whether values differ so much that a linear axis would hide most of them. */
static bool needs_log(const struct plot_series *series, size_t n_series)
{
    double lo = INFINITY, hi = 0;

    for (size_t s = 0; s < n_series; s++) {
        for (size_t i = 0; i < series[s].count; i++) {
            const double value = series[s].y[i];
            if (!isfinite(value))
                continue;
            if (value <= 0)
                return false;
            lo = fmin(lo, value);
            hi = fmax(hi, value);
        }
    }
    return hi > 50 * lo;
}

/* Training as it was logged or, if it was not, as means of epochs; and validation. */
static void gather_series(const struct report *report, enum run_column train,
                          enum run_column val, struct plot_series series[2])
{
    const struct run *run = report->run;

    series[0] = part_series(&run->train, report->x, train, "training", PART_BLUE, PLOT_NOISY);
    if (series[0].count == 0)
        series[0] = part_series(&run->eval, report->x, train, "training", PART_BLUE, PLOT_LINE);
    series[1] =
        part_series(&run->eval, report->x, val, "validation", PART_VERMILION, PLOT_LINE);
    series[0].tell_last = series[1].tell_last = true;
}

static void write_accuracy(struct report *report)
{
    struct plot_series series[3];
    const struct plot plot = { .title = "Accuracy",
                               .x = part_progress_axis(report),
                               .y = { .format = NUMBER_PERCENT } };

    gather_series(report, RUN_TRAIN_ACCURACY, RUN_VAL_ACCURACY, series);
    series[2] = part_series(&report->run->eval, report->x, RUN_VAL_TOP5_ACCURACY,
                            "validation, top-5", PART_PURPLE, PLOT_LINE);
    series[2].tell_last = series[2].dashed = true;
    if (run_last(&report->run->eval, RUN_VAL_TOP5_ACCURACY) > 0.98)
        series[2].count = 0; /* it tells nothing any more, and presses the others together */
    part_lines(report, &plot, series, 3);
}

static void write_loss(struct report *report)
{
    struct plot_series series[2];

    gather_series(report, RUN_TRAIN_LOSS, RUN_VAL_LOSS, series);
    const bool log = needs_log(series, 2);
    const struct plot plot = { .title = log ? "Loss (logarithmic)" : "Loss",
                               .x = part_progress_axis(report),
                               .y = { .log = log } };
    part_lines(report, &plot, series, 2);
}

/* Of models of two classes. */
static void write_auc(struct report *report)
{
    struct plot_series series[] = {
        part_series(&report->run->eval, report->x, RUN_VAL_AUC, "validation", PART_VERMILION,
                    PLOT_LINE),
    };
    const struct plot plot = { .title = "AUC",
                               .x = part_progress_axis(report),
                               .y = { .share = true } };

    series[0].tell_last = true;
    part_lines(report, &plot, series, 1);
}

/* Of models that predict tokens. */
static void write_perplexity(struct report *report)
{
    struct plot_series series[] = {
        part_series(&report->run->eval, report->x, RUN_PERPLEXITY, "validation", PART_VERMILION,
                    PLOT_LINE),
    };
    const bool log = needs_log(series, 1);
    const struct plot plot = { .title = log ? "Perplexity (logarithmic)" : "Perplexity",
                               .x = part_progress_axis(report),
                               .y = { .log = log } };

    series[0].tell_last = true;
    part_lines(report, &plot, series, 1);
}

static void write_accuracy_over_time(struct report *report)
{
    const struct run *run = report->run;
    struct plot_series series[] = {
        part_series(&run->eval, RUN_SECONDS, RUN_TRAIN_ACCURACY, "training", PART_BLUE,
                    PLOT_LINE),
        part_series(&run->eval, RUN_SECONDS, RUN_VAL_ACCURACY, "validation", PART_VERMILION,
                    PLOT_LINE),
    };
    const struct plot plot = { .title = "Accuracy over time",
                               .x = part_time_axis(run),
                               .y = { .format = NUMBER_PERCENT } };

    series[0].tell_last = series[1].tell_last = true;
    /* Of models that predict tokens perplexity tells more. */
    if (run_has(&run->eval, RUN_VAL_ACCURACY) && !run_has(&run->eval, RUN_PERPLEXITY) &&
        run->eval.count > 1)
        part_lines(report, &plot, series, 2);
}

static void write_learning_rate(struct report *report)
{
    const struct run *run = report->run;
    struct plot_series series[] = {
        part_series(&run->train, report->x, RUN_LR, NULL, PART_GREEN, PLOT_LINE),
    };
    const struct plot plot = { .title = "Learning rate",
                               .x = part_progress_axis(report),
                               .y = { .from_zero = true } };

    part_lines(report, &plot, series, 1);
}

/* Columns of the table of evaluations. */
static const struct {
    enum run_column column;
    const char *name;
    enum number_format format;
} eval_columns[] = {
    { RUN_EPOCH, "epoch", NUMBER_PLAIN },
    { RUN_STEP, "step", NUMBER_PLAIN },
    { RUN_TRAIN_LOSS, "training loss", NUMBER_PLAIN },
    { RUN_VAL_LOSS, "validation loss", NUMBER_PLAIN },
    { RUN_PERPLEXITY, "perplexity", NUMBER_PLAIN },
    { RUN_BLEU, "BLEU", NUMBER_PLAIN },
    { RUN_TRAIN_ACCURACY, "training accuracy", NUMBER_PERCENT },
    { RUN_VAL_ACCURACY, "validation accuracy", NUMBER_PERCENT },
    { RUN_VAL_TOP5_ACCURACY, "top-5", NUMBER_PERCENT },
    { RUN_EPOCH_SECONDS, "training, s", NUMBER_PLAIN },
    { RUN_EVAL_SECONDS, "evaluation, s", NUMBER_PLAIN },
    { RUN_SAMPLES_PER_S, "samples/s", NUMBER_PLAIN },
    { RUN_TOKENS_PER_S, "tokens/s", NUMBER_PLAIN },
};
enum { EVAL_COLUMNS = sizeof eval_columns / sizeof *eval_columns };

static void write_eval_table(struct report *report)
{
    const struct run_table *eval = &report->run->eval;
    const size_t stride = eval->count / PART_ROWS + 1;
    char summary[80];

    if (eval->count == 0)
        return;
    snprintf(summary, sizeof summary, "Evaluations as a table (%zu)", eval->count);
    page_details_begin(report->out, summary);
    strbuf_add(report->out, "<div class=\"scroll\"><table>\n<tr>");
    for (int c = 0; c < EVAL_COLUMNS; c++) {
        if (run_has(eval, eval_columns[c].column))
            strbuf_printf(report->out, "<th>%s</th>", eval_columns[c].name);
    }
    strbuf_add(report->out, "</tr>\n");
    for (size_t i = (eval->count - 1) % stride; i < eval->count; i += stride) {
        strbuf_add(report->out, "<tr>");
        for (int c = 0; c < EVAL_COLUMNS; c++) {
            if (run_has(eval, eval_columns[c].column))
                part_cell(report, eval->column[eval_columns[c].column][i],
                          eval_columns[c].format);
        }
        strbuf_add(report->out, "</tr>\n");
    }
    strbuf_add(report->out, "</table></div>\n");
    page_details_end(report->out);
}

void part_learning(struct report *report)
{
    const struct run *run = report->run;

    page_section_begin(report->out, "Learning");
    if (run->train.count == 0 && run->eval.count == 0)
        page_note(report->out, "No metrics have been logged yet.");
    page_plots_begin(report->out);
    write_accuracy(report);
    write_loss(report);
    write_auc(report);
    write_perplexity(report);
    write_accuracy_over_time(report);
    write_learning_rate(report);
    page_plots_end(report->out);
    write_eval_table(report);
    page_section_end(report->out);
}
