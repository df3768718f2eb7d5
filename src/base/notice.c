/* SPDX-License-Identifier: MIT */
/* notice.c - one line about something that takes long. */
#include "base/notice.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"

static const double QUIET_SECONDS = 2, REDRAW_SECONDS = 0.2;

void notice_begin(struct notice *notice, const char *what)
{
    const char *quiet = getenv("TUTTI_NOTICE_AFTER"); /* for tests */

    *notice = (struct notice){ .what = what,
                               .began = clock_seconds(),
                               .quiet = quiet ? strtod(quiet, NULL) : QUIET_SECONDS,
                               .is_terminal = isatty(STDERR_FILENO) };
}

static void tell(struct notice *notice, double done, double total, double now)
{
    const double share = total > 0 ? 100 * done / total : 100;

    if (notice->is_terminal) {
        if (now - notice->told < REDRAW_SECONDS)
            return;
        fprintf(stderr, "\r%s: %.0f%% \x1b[K", notice->what, share);
    } else if (notice->told == 0) {
        fprintf(stderr, "%s: %.0f%% after %.0f s\n", notice->what, share, now - notice->began);
    }
    notice->told = now;
}

void notice_at(struct notice *notice, double done, double total)
{
    const double now = clock_seconds();

    if (now - notice->began < notice->quiet || atomic_exchange(&notice->is_writing, true))
        return;
    tell(notice, done, total, now);
    atomic_store(&notice->is_writing, false);
}

void notice_end(struct notice *notice)
{
    if (notice->told > 0 && notice->is_terminal)
        fputs("\r\x1b[K", stderr);
}
