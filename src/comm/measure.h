/* SPDX-License-Identifier: MIT */
/* measure.h - how long a collective takes here. */
#ifndef COMM_MEASURE_H
#define COMM_MEASURE_H

#include "comm/comm.h"

struct comm_measurement {
    double us_median, us_p90; /* of one call, on rank 0 */
    const char *algorithm;    /* of all_reduce; "" for the others */
    int iterations;
};

/* Names for comm_measure, ended by NULL. */
extern const char *const comm_measured_ops[];

/* Collective; takes about half a second. bytes: what one rank brings (reduce_scatter: its
 * whole vector; all_gather: its part; ping: a message from rank 0 to 1 and back). Buffers lie
 * in shared memory where there is some, but for "all_reduce_private". All ranks get the same
 * numbers. */
MUST_CHECK enum status comm_measure(struct comm *comm, const char *op, size_t bytes,
                                    struct comm_measurement *out);
/* The same in about so many seconds; at least five calls. */
MUST_CHECK enum status comm_measure_briefly(struct comm *comm, const char *op, size_t bytes,
                                            double seconds, struct comm_measurement *out);

#endif /* COMM_MEASURE_H */
