/* SPDX-License-Identifier: MIT */
/* measure.h - how long a collective takes here, and a codec. */
#ifndef COMM_MEASURE_H
#define COMM_MEASURE_H

#include <stdbool.h>

#include "comm/codec.h"
#include "comm/comm.h"

struct comm_measurement {
    double us_median, us_p90; /* of one call, on the rank that takes longest */
    const char *algorithm;    /* "" for barrier and ping */
    int iterations;           /* calls that were timed */
    double bytes_sent;        /* by the rank that sent most, in one call */
    double optimum;           /* the least that such a call can do with */
    /* Bytes that cross a rank's link one after the other in a call: over its time that is the bus
     * bandwidth, which nccl-tests prints, too: all_reduce 2 (n - 1) / n of its bytes. 0: one rank. */
    double bus_bytes;
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

/* Does the algorithm that comm_create was told do that call itself, not another in its place?
 * True if it was told none. */
bool comm_measures(const struct comm *comm, const char *op, size_t bytes);

/* Collective: measures how long messages take, between nodes if there are several, and sets
 * comm_network accordingly; the same on every rank. Some milliseconds. */
MUST_CHECK enum status comm_probe_network(struct comm *comm);

struct codec_measurement {
    double encode_us, decode_us; /* medians of all rounds of a step */
    size_t payload_bytes;        /* that a node sends in a step */
};
/* Encodes a gradient of `bytes` bytes and decodes payloads of `nodes` nodes, for about so many
 * seconds; here, on one core. powersgd sees it as one matrix, about square. */
MUST_CHECK enum status codec_measure(const struct codec_config *config, size_t bytes, int nodes,
                                     double seconds, struct codec_measurement *out);

#endif /* COMM_MEASURE_H */
