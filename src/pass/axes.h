/* SPDX-License-Identifier: MIT */
/* axes.h - reads the texts of --split, --pipeline, --sync and --meet. Private to pass/.
 *
 * Each sets its fields of *out alone. Failure (STATUS_USAGE) names the flag, the text and what would
 * be right.
 */
#ifndef PASS_AXES_H
#define PASS_AXES_H

#include "pass/strategy.h"

enum { AXES_INTERVAL = 10, AXES_MOST = 1000000000, AXES_SERVERS = 255 };

/* "dp=2,pp=2": keys with values, separated by commas, each once. out_given: bits AXIS_... of those that are
 * there. */
MUST_CHECK enum status axes_read_split(const char *text, struct axes *out, unsigned *out_given);
/* gpipe, 1f1b, interleaved:V: sets pipeline and chunks. */
MUST_CHECK enum status axes_read_pipeline(const char *text, struct axes *out);
/* step, async, bounded:K, elastic:T[,ALPHA], elastic:auto, local:H, local:auto, gossip:ring, gossip:exponential. Alpha is left alone if
 * it is not given. */
MUST_CHECK enum status axes_read_sync(const char *text, struct axes *out);
/* none, allreduce, ps:S */
MUST_CHECK enum status axes_read_meet(const char *text, struct axes *out);

#endif /* PASS_AXES_H */
