/* SPDX-License-Identifier: MIT */
/* progress.h - how far a run is, on a terminal or in a log.
 *
 * On a terminal one line is redrawn in place: a bar and the figures that fit its
 * width, which may change at any time. Elsewhere a plain line appears now and then:
 *
 *   epoch 3.20/10 ━━━━━━━━━━━━╸──────────  32%  loss 0.4123  acc 85.2%  51.2k/s  1:23 left
 *   step 600/1876 (32%)  epoch 3.20  loss 0.4123  accuracy 85.20%  51.2k samples/s  1:23 left
 *
 * Of a model that predicts tokens they say "ppl 5.23" and tokens a second.
 *
 * Nothing here allocates or fails: what cannot be written is not worth a run.
 * Threads: one thread at a time. While a bar is on the screen, other text for the
 *          terminal goes through progress_note.
 */
#ifndef REPORT_PROGRESS_H
#define REPORT_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef double progress_clock(void); /* seconds since some moment */

struct progress_config {
    uint64_t total;        /* steps at the end; 0: unknown */
    uint64_t start;        /* steps already done, by a run that is resumed */
    double epochs;         /* at the end; 0: unknown */
    bool counts_tokens;    /* the loss is one a token, and so is the rate */
    int fd;                /* where to; 0: standard error */
    progress_clock *clock; /* NULL: the monotonic clock */
};

enum { PROGRESS_MARKS = 16, PROGRESS_LINE = 1024 };

/* Private: use the functions. */
struct progress {
    struct progress_config config;
    bool is_terminal, is_utf8, has_colour;
    bool is_drawn; /* the cursor stands at the beginning of a drawn line */
    bool is_new;   /* there is an update that was not shown */
    int n_shown;
    double began, shown_at; /* times */
    uint64_t step;
    double epoch, loss, accuracy, rate;
    /* Recent moments, a ring, for the time left. */
    struct {
        double time;
        uint64_t step;
    } marks[PROGRESS_MARKS];
    int n_marks, next_mark;
};

void progress_begin(struct progress *progress, const struct progress_config *config);

/* Cheap enough for every step: most calls only look at the clock. NaN for an accuracy that
 * the model does not have; rate: samples or tokens a second. */
void progress_update(struct progress *progress, uint64_t step, double epoch, double loss,
                     double accuracy, double rate);

/* Prints a line of its own, above the bar. */
void progress_note(struct progress *progress, const char *text);

/* Shows the last update and leaves the line. */
void progress_end(struct progress *progress);

#endif /* REPORT_PROGRESS_H */
