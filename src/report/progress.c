/* SPDX-License-Identifier: MIT */
/* progress.c - the progress line.
 *
 * The line is made of pieces. Each has a rank: where the terminal is too narrow
 * for all, those of the highest rank go first; what room is left belongs to the
 * bar. A line is written by one call, so that it does not flicker. The cursor waits
 * at its beginning: a terminal that becomes narrower breaks the line into several,
 * and all of these are below the cursor, to be cleared before the next.
 */
#include "report/progress.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "report/number.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static const double redraw_s = 0.1;      /* between redraws of a terminal's line */
static const double first_line_s = 2;    /* until the first plain line */
static const double between_lines_s = 5; /* from then on */
static const double mark_s = 1;          /* between the moments that the rate is taken from */

enum { BAR_LEAST = 8, BAR_MOST = 40, USUAL_WIDTH = 80, PIECE = 80, PIECES = 8 };

static void write_all(int fd, const char *text, size_t length)
{
    while (length > 0) {
        const ssize_t wrote = write(fd, text, length);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return;
        text += wrote;
        length -= (size_t)wrote;
    }
}

static int terminal_width(int fd)
{
    struct winsize size;

    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return USUAL_WIDTH;
    return size.ws_col;
}

/* Steps a second over the last moments. */
static double recent_rate(const struct progress *progress, double now)
{
    const int oldest = progress->n_marks < PROGRESS_MARKS ? 0 : progress->next_mark;
    const double seconds = now - progress->marks[oldest].time;
    const uint64_t from = progress->marks[oldest].step;

    if (seconds <= 0 || progress->step <= from)
        return NAN;
    return (double)(progress->step - from) / seconds;
}

static void remember(struct progress *progress, double now)
{
    const int last = (progress->next_mark + PROGRESS_MARKS - 1) % PROGRESS_MARKS;

    if (progress->n_marks > 0 && now - progress->marks[last].time < mark_s)
        return;
    progress->marks[progress->next_mark].time = now;
    progress->marks[progress->next_mark].step = progress->step;
    progress->next_mark = (progress->next_mark + 1) % PROGRESS_MARKS;
    if (progress->n_marks < PROGRESS_MARKS)
        progress->n_marks++;
}

static double done_part(const struct progress *progress)
{
    const uint64_t total = progress->config.total;

    if (total == 0)
        return 0;
    return progress->step >= total ? 1 : (double)progress->step / (double)total;
}

/* Empty if it is not known. */
static void print_left(char out[PIECE], const struct progress *progress, double now)
{
    const uint64_t total = progress->config.total;
    char text[NUMBER_TEXT];

    out[0] = '\0';
    if (total == 0)
        return;
    if (progress->step >= total) {
        number_clock(text, now - progress->began);
        snprintf(out, PIECE, "in %s", text);
        return;
    }
    number_clock(text, (double)(total - progress->step) / recent_rate(progress, now));
    snprintf(out, PIECE, "%s left", text);
}

/* Four digits; a loss that is not a number is news, not a gap. */
static void print_loss(char out[PIECE], double loss)
{
    const double size = fabs(loss);

    if (!isfinite(loss))
        snprintf(out, PIECE, "loss %s", isnan(loss) ? "nan" : "inf");
    else
        snprintf(out, PIECE,
                 size != 0 && (size < 1e-3 || size >= 1e5) ? "loss %.3e" : "loss %.4f", loss);
}

/* 51200 as 51.2k; ASCII, unlike number_print. */
static void print_rate(char out[NUMBER_TEXT], double rate)
{
    if (!isfinite(rate) || rate < 0)
        snprintf(out, NUMBER_TEXT, "-");
    else if (rate < 10)
        snprintf(out, NUMBER_TEXT, "%.2f", rate);
    else if (rate < 1000)
        snprintf(out, NUMBER_TEXT, "%.0f", rate);
    else if (rate < 1e6)
        snprintf(out, NUMBER_TEXT, "%.1fk", rate / 1e3);
    else
        snprintf(out, NUMBER_TEXT, "%.3gM", rate / 1e6);
}

/* What the mean loss of a token says: among how many tokens the model is in doubt. */
static void print_perplexity(char out[PIECE], const struct progress *progress, const char *name)
{
    const double perplexity = exp(progress->loss);

    out[0] = '\0';
    if (progress->config.counts_tokens && isfinite(perplexity))
        snprintf(out, PIECE, perplexity < 1000 ? "%s %.2f" : "%s %.4g", name, perplexity);
}

static void print_plain(struct progress *progress, double now)
{
    char line[PROGRESS_LINE], loss[PIECE], left[PIECE], rate[NUMBER_TEXT], steps[PIECE];
    char accuracy[PIECE] = "", perplexity[PIECE];

    print_loss(loss, progress->loss);
    print_perplexity(perplexity, progress, "perplexity");
    print_left(left, progress, now);
    print_rate(rate, progress->rate);
    if (progress->config.total > 0)
        snprintf(steps, sizeof steps, "step %llu/%llu (%.0f%%)",
                 (unsigned long long)progress->step, (unsigned long long)progress->config.total,
                 floor(done_part(progress) * 100));
    else
        snprintf(steps, sizeof steps, "step %llu", (unsigned long long)progress->step);
    if (isfinite(progress->accuracy))
        snprintf(accuracy, sizeof accuracy, "  accuracy %.2f%%", progress->accuracy * 100);
    const int length = snprintf(
        line, sizeof line, "%s  epoch %.2f  %s%s%s%s  %s %s/s%s%s\n", steps, progress->epoch,
        loss, *perplexity ? "  " : "", perplexity, accuracy, rate,
        progress->config.counts_tokens ? "tokens" : "samples", *left ? "  " : "", left);
    write_all(progress->config.fd, line, (size_t)length);
}

/* Text being gathered into a fixed line; what does not fit is cut. */
struct line {
    char text[PROGRESS_LINE];
    size_t length;
};

static void add(struct line *line, const char *text)
{
    const size_t length = strlen(text);

    if (length < sizeof line->text - line->length) {
        memcpy(line->text + line->length, text, length + 1);
        line->length += length;
    }
}

static void add_repeated(struct line *line, const char *text, int times)
{
    for (int i = 0; i < times; i++)
        add(line, text);
}

static void add_bar(struct line *line, const struct progress *progress, int width)
{
    const double part = done_part(progress);
    const bool colour = progress->has_colour;

    if (!progress->is_utf8) {
        const int full = (int)floor(part * (width - 2));
        add(line, "[");
        add_repeated(line, "#", full);
        add_repeated(line, ".", width - 2 - full);
        add(line, "]");
        return;
    }
    const int halves = (int)floor(part * width * 2);
    const int full = halves / 2, half = halves % 2;
    add(line, colour ? "\x1b[36m" : "");
    add_repeated(line, "\u2501", full); /* heavy line, then its left half */
    add_repeated(line, "\u2578", half);
    add(line, colour ? "\x1b[39;2m" : "");
    add_repeated(line, colour ? "\u2501" : "\u2500", width - full - half);
    add(line, colour ? "\x1b[0m" : "");
}

/* What stands beside the bar, all ASCII. */
struct piece {
    char text[PIECE]; /* empty: not shown */
    int rank;         /* the highest goes first; 0 stays */
};

static int total_width(const struct piece *pieces)
{
    int width = 0;

    for (int i = 0; i < PIECES; i++)
        width += *pieces[i].text ? (int)strlen(pieces[i].text) + (width > 0 ? 2 : 0) : 0;
    return width;
}

static void drop_least_needed(struct piece *pieces)
{
    int worst = 0;

    for (int i = 1; i < PIECES; i++) {
        if (*pieces[i].text && (!*pieces[worst].text || pieces[i].rank > pieces[worst].rank))
            worst = i;
    }
    pieces[worst].text[0] = '\0';
}

enum { EPOCH, PERCENT, LOSS, PERPLEXITY, ACCURACY, RATE, LEFT, STEP };

static void make_pieces(const struct progress *progress, double now, struct piece *pieces)
{
    char rate[NUMBER_TEXT];

    if (progress->config.epochs > 0)
        snprintf(pieces[EPOCH].text, PIECE, "epoch %.2f/%.4g", progress->epoch,
                 progress->config.epochs);
    else
        snprintf(pieces[EPOCH].text, PIECE, "epoch %.2f", progress->epoch);
    if (progress->config.total > 0)
        snprintf(pieces[PERCENT].text, PIECE, "%3.0f%%", floor(done_part(progress) * 100));
    else
        snprintf(pieces[STEP].text, PIECE, "step %llu", (unsigned long long)progress->step);
    print_loss(pieces[LOSS].text, progress->loss);
    print_perplexity(pieces[PERPLEXITY].text, progress, "ppl");
    if (isfinite(progress->accuracy))
        snprintf(pieces[ACCURACY].text, PIECE, "acc %.1f%%", progress->accuracy * 100);
    print_rate(rate, progress->rate);
    snprintf(pieces[RATE].text, PIECE, progress->config.counts_tokens ? "%s tok/s" : "%s/s",
             rate);
    print_left(pieces[LEFT].text, progress, now);
}

/* The bar stands between epoch and percent. */
static void add_pieces(struct line *line, const struct progress *progress,
                       const struct piece *pieces, int bar)
{
    const char *gap = "";

    for (int i = 0; i < PIECES; i++) {
        if (i == PERCENT && bar > 0) {
            add(line, *gap ? " " : "");
            add_bar(line, progress, bar);
            gap = " ";
        }
        if (!*pieces[i].text)
            continue;
        add(line, gap);
        add(line, pieces[i].text);
        gap = "  ";
    }
}

static void draw(struct progress *progress, double now)
{
    struct piece pieces[PIECES] = {
        [EPOCH] = { .rank = 6 },    [PERCENT] = { .rank = 0 },    [LOSS] = { .rank = 1 },
        [ACCURACY] = { .rank = 4 }, [RATE] = { .rank = 5 },       [LEFT] = { .rank = 2 },
        [STEP] = { .rank = 0 },     [PERPLEXITY] = { .rank = 3 },
    };
    struct line line = { .length = 0 };
    /* The last column stays free: some terminals wrap as soon as it is filled. */
    const int room = terminal_width(progress->config.fd) - 1;

    make_pieces(progress, now, pieces);
    while (total_width(pieces) > room && total_width(pieces) > 0)
        drop_least_needed(pieces);
    int bar = room - total_width(pieces) - 2;
    bar = progress->config.total == 0 || bar < BAR_LEAST ? 0 : bar > BAR_MOST ? BAR_MOST : bar;

    add(&line, "\r");
    add_pieces(&line, progress, pieces, bar);
    add(&line, "\x1b[J\r");
    write_all(progress->config.fd, line.text, line.length);
    progress->is_drawn = true;
}

static void show(struct progress *progress, double now)
{
    if (progress->is_terminal)
        draw(progress, now);
    else
        print_plain(progress, now);
    progress->shown_at = now;
    progress->is_new = false;
    progress->n_shown++;
}

static double time_now(const struct progress *progress)
{
    return progress->config.clock ? progress->config.clock() : clock_seconds();
}

void progress_begin(struct progress *progress, const struct progress_config *config)
{
    const char *terminal = getenv("TERM"), *no_colour = getenv("NO_COLOR");

    *progress = (struct progress){ .config = *config, .accuracy = NAN, .loss = NAN };
    if (progress->config.fd == 0)
        progress->config.fd = STDERR_FILENO;
    progress->is_terminal =
        isatty(progress->config.fd) && !(terminal && strcmp(terminal, "dumb") == 0);
    progress->is_utf8 = utf8_is_wanted();
    progress->has_colour = !(no_colour && *no_colour);
    progress->step = config->start;
    progress->began = time_now(progress);
    progress->shown_at = -INFINITY;
    remember(progress, progress->began);
}

void progress_update(struct progress *progress, uint64_t step, double epoch, double loss,
                     double accuracy, double rate)
{
    const double now = time_now(progress);

    progress->step = step;
    progress->epoch = epoch;
    progress->loss = loss;
    progress->accuracy = accuracy;
    progress->rate = rate;
    progress->is_new = true;
    remember(progress, now);

    const bool is_due = progress->is_terminal    ? now - progress->shown_at >= redraw_s
                        : progress->n_shown == 0 ? now - progress->began >= first_line_s
                                                 : now - progress->shown_at >= between_lines_s;
    if (is_due)
        show(progress, now);
}

void progress_note(struct progress *progress, const char *text)
{
    const int fd = progress->config.fd;
    char line[PROGRESS_LINE];
    const size_t length = strlen(text);

    if (length + 8 < sizeof line) { /* in one write, so that lines of others stay apart */
        const int bytes =
            snprintf(line, sizeof line, "%s%s\n", progress->is_drawn ? "\r\x1b[J" : "", text);
        write_all(fd, line, (size_t)bytes);
    } else {
        if (progress->is_drawn)
            write_all(fd, "\r\x1b[J", 4);
        write_all(fd, text, length);
        write_all(fd, "\n", 1);
    }
    if (progress->is_drawn)
        draw(progress, time_now(progress));
}

void progress_end(struct progress *progress)
{
    /* In a log, a run too short for a line stays silent to its end. */
    if (progress->is_new && (progress->is_terminal || progress->n_shown > 0))
        show(progress, time_now(progress));
    else if (progress->is_drawn)
        draw(progress, time_now(progress)); /* whole, whatever became of the terminal */
    if (progress->is_drawn)
        write_all(progress->config.fd, "\n", 1);
    progress->is_drawn = false;
    progress->is_new = false;
}
