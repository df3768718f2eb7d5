/* SPDX-License-Identifier: MIT */
/* notice.h - tells a user what a program is busy with, if it is busy for long.
 *
 * Nothing is written for two seconds. Then a terminal gets a line that is redrawn in place and is
 * gone at the end; anything else gets one plain line, once.
 *
 * Threads: notice_at from any thread, begin and end from one.
 */
#ifndef BASE_NOTICE_H
#define BASE_NOTICE_H

#include <stdatomic.h>
#include <stdbool.h>

struct notice {
    const char *what;    /* "reading /data/x_train.npy": borrowed */
    double began, quiet; /* seconds */
    bool is_terminal;
    _Atomic bool is_writing; /* some thread is */
    double told;             /* 0: not yet; its owner is who writes */
};

void notice_begin(struct notice *notice, const char *what);
/* `done` of `total` are done, in any unit. Looks at the clock, and seldom writes. */
void notice_at(struct notice *notice, double done, double total);
void notice_end(struct notice *notice);

#endif /* BASE_NOTICE_H */
