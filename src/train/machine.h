/* SPDX-License-Identifier: MIT */
/* machine.h - machines that a plan is for: read from a file, or this one, measured. Private to train/ but for tests.
 *
 * A cluster file is a JSON object (docs/formats.md):
 *
 *   { "nodes": 16, "ranks_per_node": 8, "speed": 2, "memory": 32e9,
 *     "within":  { "latency_us": 1, "gb_per_s": 10 },
 *     "between": { "latency_us": 20, "message_us": 2, "gb_per_s": 3 } }
 */
#ifndef TRAIN_MACHINE_H
#define TRAIN_MACHINE_H

#include "base/status.h"
#include "sched/cost.h"

enum { MACHINE_RANKS = 10000 };

struct machine {
    struct cost_cluster cluster;
    double
        flops; /* of a rank, a second; 0: a rank is as this machine's, or cluster.speed times as fast */
    double bytes; /* that it moves in its memory, a second; 0: as is usual for that */
};

/* Reads a cluster file. STATUS_USAGE: the file, the member and what would be right. */
MUST_CHECK enum status machine_load(const char *path, struct machine *out);
MUST_CHECK enum status machine_parse(const char *text, size_t length, struct machine *out);

/* Bytes that a process of this machine may use, where so many share it out among them: the least of its memory, of limits
 * on the process, and of `most` unless that is 0. */
double machine_memory(int ranks, double most);

/* What `ranks` processes of this machine take for messages to each other, and for a byte of shared memory that one writes, another
 * reads, and the first gives back to the system, as gradients with zero=2 are. Starts them for some tenths of a second. */
MUST_CHECK enum status machine_probe(int ranks, struct cost_link *out, double *pages);
/* A network that is usual for machines of our time. */
extern const struct cost_link machine_usual_network;

#endif /* TRAIN_MACHINE_H */
