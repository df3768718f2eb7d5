/* SPDX-License-Identifier: MIT */
/* progress_test.c - progress in a log and on terminals of several widths, by a clock of its
 * own. */
#include "base/mem.h"
#include "base/test.h"
#include "base/utf8.h"
#include "report/progress.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

static double now;

static double test_clock(void)
{
    return now;
}

/* What was written to a pipe or a terminal, read back. */
struct screen {
    int read_fd, write_fd;
    char text[1 << 16];
};

static void open_pipe(struct screen *screen)
{
    int fds[2];

    CHECK(pipe(fds) == 0);
    screen->read_fd = fds[0];
    screen->write_fd = fds[1];
    CHECK(fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0);
}

static void set_width(struct screen *screen, int width)
{
    const struct winsize size = { .ws_row = 24, .ws_col = (unsigned short)width };

    CHECK(ioctl(screen->write_fd, TIOCSWINSZ, &size) == 0);
}

static void open_terminal(struct screen *screen, int width)
{
    struct termios raw;

    screen->read_fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (screen->read_fd < 0 || grantpt(screen->read_fd) != 0 ||
        unlockpt(screen->read_fd) != 0) {
        test_skip("there are no pseudo terminals");
        return;
    }
    screen->write_fd = open(ptsname(screen->read_fd), O_RDWR | O_NOCTTY);
    CHECK(screen->write_fd >= 0);
    CHECK(tcgetattr(screen->write_fd, &raw) == 0);
    cfmakeraw(&raw); /* newlines arrive as written */
    CHECK(tcsetattr(screen->write_fd, TCSANOW, &raw) == 0);
    CHECK(fcntl(screen->read_fd, F_SETFL, O_NONBLOCK) == 0);
    set_width(screen, width);
}

static void close_screen(struct screen *screen)
{
    close(screen->read_fd);
    close(screen->write_fd);
}

/* What came since the last call. */
static const char *read_screen(struct screen *screen)
{
    size_t length = 0;
    ssize_t got;

    while ((got = read(screen->read_fd, screen->text + length,
                       sizeof screen->text - 1 - length)) > 0)
        length += (size_t)got;
    screen->text[length] = '\0';
    return screen->text;
}

static void begin(struct progress *progress, const struct screen *screen, uint64_t total)
{
    const struct progress_config config = {
        .total = total, .epochs = 10, .fd = screen->write_fd, .clock = test_clock
    };

    progress_begin(progress, &config);
}

static int count_lines(const char *text)
{
    int lines = 0;

    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static void set_locale(const char *name)
{
    CHECK(setenv("LC_ALL", name, 1) == 0);
    CHECK(setenv("TERM", "xterm", 1) == 0);
}

/* Columns that a drawn line takes: escapes take none, a character one. */
static int columns_of(const char *line)
{
    int columns = 0;

    while (*line) {
        if (*line == '\x1b') {
            line += strcspn(line, "mKJ") + 1;
        } else if (*line == '\r') {
            line++;
        } else {
            const size_t span = utf8_span(line, strlen(line));
            CHECK(span > 0);
            line += span;
            columns++;
        }
    }
    return columns;
}

static void test_a_log_gets_a_line_now_and_then(void)
{
    struct screen screen;
    struct progress progress;

    now = 100;
    open_pipe(&screen);
    begin(&progress, &screen, 2000);
    int lines = 0;
    for (int step = 1; step <= 1000; step++) { /* 100 steps a second, 10 seconds */
        now += 0.01;
        progress_update(&progress, (uint64_t)step, step / 200.0, 0.4123, 0.852, 51234);
        if (step == 199)
            CHECK_TEXT("", read_screen(&screen));
        if (step == 202) {
            CHECK_TEXT("step 200/2000 (10%)  epoch 1.00  loss 0.4123  accuracy 85.20%  51.2k "
                       "samples/s  0:18 left\n",
                       read_screen(&screen));
            lines++;
        }
    }
    lines += count_lines(read_screen(&screen));
    CHECK_INT(2, lines); /* at 2 s and at 7 s */
    progress_note(&progress, "epoch 1: accuracy 85%");
    CHECK_TEXT("epoch 1: accuracy 85%\n", read_screen(&screen));
    progress_end(&progress);
    CHECK(strncmp(read_screen(&screen), "step 1000/2000 (50%)", 20) == 0);
    CHECK(strchr(screen.text, '\x1b') == NULL && strchr(screen.text, '\r') == NULL);
    close_screen(&screen);
}

static void test_tokens_have_a_perplexity(void)
{
    struct screen screen;
    struct progress progress;
    const struct progress_config config = { .total = 100, .counts_tokens = true };

    now = 0;
    open_pipe(&screen);
    struct progress_config piped = config;
    piped.fd = screen.write_fd;
    piped.clock = test_clock;
    progress_begin(&progress, &piped);
    now = 3;
    progress_update(&progress, 50, 1, 1.654321, 0.512, 12345);
    CHECK_TEXT("step 50/100 (50%)  epoch 1.00  loss 1.6543  perplexity 5.23  accuracy 51.20%  "
               "12.3k tokens/s  0:03 left\n",
               read_screen(&screen));
    close_screen(&screen);

    open_terminal(&screen, 100);
    set_locale("C");
    piped.fd = screen.write_fd;
    progress_begin(&progress, &piped);
    now += 1;
    progress_update(&progress, 50, 1, 9.5, NAN, 12345);
    const char *line = read_screen(&screen);
    CHECK(strstr(line, "loss 9.5000  ppl 1.336e+04  12.3k tok/s") != NULL);
    close_screen(&screen);
}

static void test_a_short_run_leaves_a_log_silent(void)
{
    struct screen screen;
    struct progress progress;

    open_pipe(&screen);
    begin(&progress, &screen, 10);
    for (int step = 1; step <= 10; step++) {
        now += 0.1;
        progress_update(&progress, (uint64_t)step, 1, 0.5, NAN, 100);
    }
    progress_end(&progress);
    CHECK_TEXT("", read_screen(&screen));
    close_screen(&screen);
}

static void test_what_is_unknown_is_left_out_and_nan_is_told(void)
{
    struct screen screen;
    struct progress progress;

    open_pipe(&screen);
    begin(&progress, &screen, 0);
    now += 3;
    progress_update(&progress, 7, 0.5, NAN, NAN, NAN);
    CHECK_TEXT("step 7  epoch 0.50  loss nan  - samples/s\n", read_screen(&screen));
    progress_end(&progress);
    close_screen(&screen);
}

static void test_a_terminal_line_fits_any_width(void)
{
    static const char *const locales[] = { "C", "en_US.UTF-8" };
    struct screen screen;
    struct progress progress;

    open_terminal(&screen, 80);
    for (int l = 0; l < 2; l++) {
        set_locale(locales[l]);
        for (int width = 1; width <= 200; width++) {
            set_width(&screen, width);
            begin(&progress, &screen, 2000);
            now += 1;
            progress_update(&progress, 640, 3.2, 0.4123, 0.852, 51234);
            const char *line = read_screen(&screen);
            CHECK(line[0] == '\r' && strcmp(line + strlen(line) - 4, "\x1b[J\r") == 0);
            CHECK(columns_of(line) < width);
            CHECK((strstr(line, "32%") != NULL) == (width > 4));
            CHECK((strstr(line, "loss 0.4123") != NULL) == (width > 17));
            CHECK((strstr(line, "left") != NULL) == (width > 28));
            if (width > 75)
                CHECK(strstr(line, "epoch 3.20/10") && strstr(line, "acc 85.2%") &&
                      strstr(line, "51.2k/s"));
            if (width > 90)
                CHECK(strstr(line, l == 0 ? "[###" : "\u2501\u2501\u2501"));
            CHECK(l == 1 || strstr(line, "\u2501") == NULL);
            progress_end(&progress);
            read_screen(&screen);
        }
    }
    close_screen(&screen);
}

static void test_a_terminal_is_redrawn_ten_times_a_second_at_most(void)
{
    struct screen screen;
    struct progress progress;
    int redraws = 0;

    set_locale("C");
    open_terminal(&screen, 80);
    begin(&progress, &screen, 10000);
    const uint64_t allocations = mem_count();
    for (int step = 1; step <= 5000; step++) { /* 5 seconds */
        now += 0.001;
        progress_update(&progress, (uint64_t)step, 1, 0.5, 0.5, 1e6);
        if (step % 50 == 0) {
            for (const char *at = strstr(read_screen(&screen), "\x1b[J"); at;
                 at = strstr(at + 1, "\x1b[J"))
                redraws++;
        }
    }
    CHECK(redraws >= 45 && redraws <= 51);
    CHECK_INT(allocations, mem_count());
    progress_end(&progress);
    close_screen(&screen);
}

static void test_a_resized_terminal_is_followed(void)
{
    struct screen screen;
    struct progress progress;

    set_locale("C");
    open_terminal(&screen, 120);
    begin(&progress, &screen, 100);
    for (int width = 120; width >= 20; width -= 20) {
        set_width(&screen, width);
        now += 1;
        progress_update(&progress, 50, 3.2, 0.4123, 0.852, 51234);
        CHECK(columns_of(read_screen(&screen)) < width);
    }
    progress_end(&progress);
    close_screen(&screen);
}

/* A terminal that breaks lines anew when its width changes, as most do: lines as they were written, broken where they
 * are longer than the width. The cursor is at a place in a line, and keeps it. */
struct reflowing {
    int width, n_lines, line, at;
    char text[64][256];
};

/* Writes bytes as a terminal in the C locale does; notes no colours. */
static void feed(struct reflowing *t, const char *bytes)
{
    for (; *bytes; bytes++) {
        char *line = t->text[t->line];
        const int length = (int)strlen(line), row = t->at / t->width * t->width;
        if (*bytes == '\r') {
            t->at = row;
        } else if (*bytes == '\n') {
            t->at = row + t->width;
            if (t->at >= length) { /* it was the line's last row */
                t->at = 0;
                t->line++;
                t->n_lines = t->line < t->n_lines ? t->n_lines : t->line + 1;
                CHECK(t->line < 64);
            }
        } else if (*bytes == '\x1b') {
            const size_t escape = strcspn(bytes, "mKJ");
            if (bytes[escape] == 'K')
                for (int i = t->at; i < length && i < row + t->width; i++)
                    line[i] = ' ';
            if (bytes[escape] == 'J') {
                memset(line + t->at, 0, sizeof t->text[0] - (size_t)t->at);
                for (; t->n_lines > t->line + 1; t->n_lines--)
                    t->text[t->n_lines - 1][0] = '\0';
            }
            bytes += escape;
        } else {
            for (int i = length; i < t->at; i++)
                line[i] = ' ';
            line[t->at++] = *bytes;
        }
    }
}

static int count_bars(const struct reflowing *t)
{
    int bars = 0;

    for (int i = 0; i < t->n_lines; i++) {
        for (const char *at = t->text[i]; (at = strstr(at, "loss ")); at++)
            bars++;
    }
    return bars;
}

static void test_a_narrower_terminal_keeps_no_fragments_of_the_bar(void)
{
    static const int widths[] = { 120, 60, 59, 30, 119, 40, 20, 100, 33 };
    struct screen screen;
    struct progress progress;
    struct reflowing terminal = { .width = 120, .n_lines = 1 };

    set_locale("C");
    CHECK(setenv("NO_COLOR", "1", 1) == 0);
    open_terminal(&screen, 120);
    begin(&progress, &screen, 100);
    for (int i = 0; i < 9; i++) {
        terminal.width = widths[i];
        set_width(&screen, widths[i]);
        now += 1;
        progress_update(&progress, (uint64_t)i, 3.2, 0.4123, 0.852, 51234);
        feed(&terminal, read_screen(&screen));
        CHECK_INT(1, terminal.n_lines);
        CHECK_INT(1, count_bars(&terminal));
        CHECK((int)strlen(terminal.text[0]) < widths[i]);
    }
    terminal.width = 20;
    set_width(&screen, 20);
    progress_note(&progress, "a note");
    feed(&terminal, read_screen(&screen));
    CHECK_TEXT("a note", terminal.text[0]);
    CHECK_INT(2, terminal.n_lines);
    terminal.width = 15;
    set_width(&screen, 15);
    progress_end(&progress);
    feed(&terminal, read_screen(&screen));
    CHECK_INT(3, terminal.n_lines); /* the note, the bar, and where the next line begins */
    CHECK((int)strlen(terminal.text[1]) < 15);
    CHECK_TEXT("", terminal.text[2]);
    CHECK(unsetenv("NO_COLOR") == 0);
    close_screen(&screen);
}

static void test_a_note_stands_above_the_bar(void)
{
    struct screen screen;
    struct progress progress;

    set_locale("C");
    open_terminal(&screen, 60);
    begin(&progress, &screen, 100);
    progress_note(&progress, "before");
    CHECK_TEXT("before\n", read_screen(&screen));
    now += 1;
    progress_update(&progress, 50, 1, 0.5, NAN, 10);
    read_screen(&screen);
    progress_note(&progress, "epoch 1: accuracy 85%");
    const char *text = read_screen(&screen);
    CHECK(strncmp(text, "\r\x1b[Jepoch 1: accuracy 85%\n\r", 27) == 0);
    CHECK(strstr(text, "50%") != NULL);
    now += 0.01;
    progress_update(&progress, 100, 1, 0.5, NAN, 10);
    CHECK_TEXT("", read_screen(&screen));
    progress_end(&progress); /* shows the last update though it came soon */
    text = read_screen(&screen);
    CHECK(strstr(text, "100%") != NULL && text[strlen(text) - 1] == '\n');
    close_screen(&screen);
}

static void test_time_left_follows_the_recent_rate(void)
{
    struct screen screen;
    struct progress progress;

    open_pipe(&screen);
    begin(&progress, &screen, 10000);
    uint64_t step = 0;
    for (int i = 0; i < 100; i++) { /* 10 steps a second at first */
        now += 1;
        step += 10;
        progress_update(&progress, step, 1, 0.5, NAN, 10);
    }
    for (int i = 0; i < 60; i++) { /* then 100 a second */
        now += 1;
        step += 100;
        progress_update(&progress, step, 1, 0.5, NAN, 10);
    }
    CHECK_INT(7000, step);
    now += 5;
    read_screen(&screen);
    progress_update(&progress, step + 500, 1, 0.5, NAN, 10);
    CHECK(strstr(read_screen(&screen), "0:25 left") != NULL);
    progress_end(&progress);
    close_screen(&screen);
}

static void test_a_resumed_run_does_not_count_what_was_done(void)
{
    struct screen screen;
    struct progress progress;
    struct progress_config config = { .total = 1000, .start = 900, .clock = test_clock };

    open_pipe(&screen);
    config.fd = screen.write_fd;
    progress_begin(&progress, &config);
    now += 4;
    progress_update(&progress, 920, 1, 0.5, NAN, 10);
    CHECK(strstr(read_screen(&screen), "0:16 left") != NULL);
    progress_end(&progress);
    close_screen(&screen);
}

const struct test tests[] = {
    { .name = "tokens have a perplexity", .run = test_tokens_have_a_perplexity },
    { .name = "a log gets a line now and then", .run = test_a_log_gets_a_line_now_and_then },
    { .name = "a short run leaves a log silent", .run = test_a_short_run_leaves_a_log_silent },
    { .name = "what is unknown is left out and nan is told",
      .run = test_what_is_unknown_is_left_out_and_nan_is_told },
    { .name = "a terminal line fits any width", .run = test_a_terminal_line_fits_any_width },
    { .name = "a terminal is redrawn ten times a second at most",
      .run = test_a_terminal_is_redrawn_ten_times_a_second_at_most },
    { .name = "a resized terminal is followed", .run = test_a_resized_terminal_is_followed },
    { .name = "a narrower terminal keeps no fragments of the bar",
      .run = test_a_narrower_terminal_keeps_no_fragments_of_the_bar },
    { .name = "a note stands above the bar", .run = test_a_note_stands_above_the_bar },
    { .name = "time left follows the recent rate",
      .run = test_time_left_follows_the_recent_rate },
    { .name = "a resumed run does not count what was done",
      .run = test_a_resumed_run_does_not_count_what_was_done },
    { 0 },
};
