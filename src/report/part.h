/* SPDX-License-Identifier: MIT */
/* part.h - the parts of the page about a run, and what they share. Private to report/.
 *
 * Each part writes itself or, if the run has nothing for it, nothing.
 */
#ifndef REPORT_PART_H
#define REPORT_PART_H

#include "base/strbuf.h"
#include "report/plot.h"
#include "report/run.h"

/* Colours mean the same in all plots: training and computing are blue, validation and
 * communication vermilion. */
enum { PART_BLUE, PART_VERMILION, PART_GREEN, PART_ORANGE, PART_PURPLE };

enum { PART_ROWS = 400 }; /* of a table; longer ones are cut or thinned out */

struct report {
    struct strbuf *out;
    const struct run *run;
    enum run_column x; /* against which to plot: epochs or, for a run shorter than one, steps */
    enum status status; /* of allocations made on the way */
};

void part_header(struct report *report);
void part_notes(struct report *report);
void part_cards(struct report *report);
void part_learning(struct report *report);
void part_classes(struct report *report);
void part_reconstructions(struct report *report);
void part_samples(struct report *report);
void part_time(struct report *report);
void part_servers(struct report *report);
void part_pipeline(struct report *report);
void part_federated(struct report *report);
void part_graph(struct report *report);
void part_configuration(struct report *report);
void part_repeat(struct report *report);

/* One column against another; without points if either holds no number. */
struct plot_series part_series(const struct run_table *table, enum run_column x,
                               enum run_column y, const char *name, int colour,
                               enum plot_style style);
/* A plot of those that have points; none if none has. Moves them to the front. */
void part_lines(struct report *report, const struct plot *plot, struct plot_series *series,
                size_t n_series);
struct plot_axis part_progress_axis(const struct report *report); /* for columns report->x */
struct plot_axis part_time_axis(const struct run *run);           /* for RUN_SECONDS */
/* A cell of a table. */
void part_cell(struct report *report, double value, enum number_format format);

#endif /* REPORT_PART_H */
