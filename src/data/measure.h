/* SPDX-License-Identifier: MIT */
/* measure.h - how fast a loader makes batches here, and how fast memory lets it. */
#ifndef DATA_MEASURE_H
#define DATA_MEASURE_H

#include "data/loader.h"

enum { DATA_WINDOWS = 1000 }; /* at most */

struct data_measurement {
    double samples_per_s, samples_per_s_p10, samples_per_s_p90; /* over windows; the median */
    double
        write_bytes_per_s; /* of as many threads that write the same buffers and nothing else */
    int threads;           /* that read in the end */
};

/* Takes batches as fast as they come, in windows of about a quarter of a second, after one that
 * does not count. The steps of the configuration do not matter. `tell`, which may be NULL, is
 * called after each window. */
MUST_CHECK enum status data_measure(const struct loader_config *config, int windows,
                                    void (*tell)(int window), struct data_measurement *out);

#endif /* DATA_MEASURE_H */
