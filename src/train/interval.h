/* SPDX-License-Identifier: MIT */
/* interval.h - how many steps workers train alone before they meet, chosen while they train. Private to
 * train/.
 *
 * After AdaComm (Wang and Joshi 2018). The error at a given time is bounded by
 *
 *   2 F / (lr T) (Y + C / H)  +  lr L s2 / n  +  lr^2 L^2 s2 (H - 1)
 *
 * with the loss F, seconds T, a step Y, a meeting C, and the noise of gradients s2; the best H goes as
 * sqrt(F C / (lr^3 s2)). The variance of parameters among workers grows by about lr^2 s2 a step, which
 * is measured: so noise needs no guess, and L cancels in ratios to the first round. That round's H comes from
 * the clock: meetings shall take a tenth of the time.
 */
#ifndef TRAIN_INTERVAL_H
#define TRAIN_INTERVAL_H

#include <stdint.h>

enum { INTERVAL_MOST = 1000 };

/* What a round showed. */
struct interval_seen {
    double comm_s, step_s; /* seconds of a meeting, without waiting for others; of a step */
    double growth;         /* of the variance of parameters, a step */
    double loss, lr;
};

/* Numbers, no pointers: they go to checkpoints as they are. */
struct interval {
    int64_t now;                      /* steps until the next meeting */
    int64_t base;                     /* of the first round; 0: there was none yet */
    struct interval_seen first, last; /* last: smoothed */
};

/* What has been seen decides how long the next round is: interval->now. */
void interval_next(struct interval *interval, const struct interval_seen *seen);

#endif /* TRAIN_INTERVAL_H */
