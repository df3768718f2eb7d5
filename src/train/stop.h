/* SPDX-License-Identifier: MIT */
/* stop.h - the signals that end a run: SIGINT, SIGTERM, and SIGHUP unless it is ignored. Private to
 * train/.
 *
 * The first asks: the run stops after a step and saves. One that comes a second later or more ends
 * the process at once, after a line that says what is saved. What comes sooner is the same wish:
 * who signals a process and its group, as timeout(1) does, reaches a rank beside its supervisor,
 * which hands on what it gets.
 *
 * Threads: begin, end and the texts by one thread; the handler in any.
 */
#ifndef TRAIN_STOP_H
#define TRAIN_STOP_H

#include <signal.h>

enum { STOP_SIGNALS = 3 };

/* How the signals were handled before. */
struct stop_before {
    struct sigaction action[STOP_SIGNALS];
};
void stop_begin(struct stop_before *before);
void stop_end(const struct stop_before *before);

/* Signals that came before do not count. */
void stop_forget(void);
/* The signal that asked, or 0. */
int stop_asked(void);

/* What this process says of what is saved where a second signal ends it; NULL: nothing, as its
 * supervisor does. */
void stop_say(const char *line);

#endif /* TRAIN_STOP_H */
