/* SPDX-License-Identifier: MIT */
/* slices.h - private: which server has what, and where it lies in a node's shared memory.
 *
 * Every rank works all of this out from the config alone, so that messages need no more than a
 * slice's number. A slice is a range of a dense bucket, or of a table the rows first, first + step,
 * ...: rows that occur often are neighbours in most vocabularies, so they are dealt like cards. A
 * server has one slice of a bucket at most. With two replicas the next server has a copy of it.
 *
 * Shared memory of a node (block.c), an area a rank:
 *
 *   server   of each slice that it has, or has a copy of: parameters, each state, and of a table a list of
 *            rows for each worker (those that changed since it got values) and one for the copy
 *   worker   its room; its staged partial sums, one flat vector a node of the tree (and for PS_CENTER one for
 *            d); of each slice of a table the rows it pushes
 */
#ifndef PS_SLICES_H
#define PS_SLICES_H

#include "ps/ps.h"

enum {
    PS_LINE = 64,    /* bytes that things in shared memory are aligned to */
    PS_WIDTH = 4096, /* widest row of a table */
};

struct slice {
    int bucket;
    int server, partner; /* partner -1: there is no copy */
    bool is_table;
    int64_t at;    /* dense: its first element in the flat vector. Table: that of its bucket */
    int64_t count; /* elements */
    int64_t rows, width; /* of a table: its own */
    int64_t first, step; /* row i of the slice is row first + i * step of the table */
    int64_t most;        /* rows that a worker pushes of it, over all lists */
};

struct slices {
    struct ps_config config;
    int64_t vector; /* elements of the flat vector */
    int count;
    struct slice *slice; /* by bucket, then by server */
    int *of_bucket;      /* [buckets + 1]: the first slice of each */
    /* What a worker stages: nodes of the tree that its row is covered by, and that tree's leaves. */
    int *n_nodes;
    struct tree_node (*nodes)[2 * TREE_DEPTH];
    int64_t *leaves;
    /* Bytes from the beginning of a server's area, [server][slice]; 0 where it has none of it:
     * nothing begins there. */
    size_t *held;
    size_t *server_bytes; /* [server] */
    size_t *table; /* [slice]: of a worker's staged rows, from the beginning of its tables */
    size_t table_bytes;
};

MUST_CHECK enum status slices_create(const struct ps_config *config, struct slices **out);
void slices_destroy(struct slices *slices); /* NULL is allowed */

/* Has the server this slice, or a copy of it? */
bool slices_holds(const struct slices *slices, int server, int slice);
/* The slice that row `id` of a table belongs to. */
int slices_of_row(const struct slices *slices, int bucket, int32_t id);
/* Is it one that stands by? */
bool slices_is_spare(const struct ps_config *config, int worker);
/* Shards of a worker. */
int64_t slices_row(const struct ps_config *config, int worker);
/* The worker's part of the batch. */
double slices_share(const struct slices *slices, int worker);

/* Do workers that share memory say when they have copied values (TOOK)? Yes, where updates and
 * pulls take turns. */
bool slices_says_took(const struct ps_config *config);

int slices_rank(const struct slices *slices, int server); /* in the job */
/* Do two ranks of the job see the same memory? */
bool slices_are_near(const struct slices *slices, int rank, int other);

/* Places in a server's area. */
float *slices_param(const struct slices *slices, char *area, int server, int slice);
float *slices_state(const struct slices *slices, char *area, int server, int slice, int state);
/* Rows of a table that `worker` lacks; worker == workers: those that the copy lacks. */
int32_t *slices_list(const struct slices *slices, char *area, int server, int slice,
                     int worker);

/* Places in a worker's area, behind its room. */
size_t slices_staged_bytes(const struct slices *slices, int worker);
float *slices_staged(const struct slices *slices, char *area, int node);
/* Rows of a slice of a table that a worker pushes: counts[node], then ids and rows of all lists,
 * one after the other. */
struct staged_rows {
    int64_t *counts;
    int32_t *ids;
    float *rows;
};
struct staged_rows slices_staged_rows(const struct slices *slices, char *area, int worker,
                                      int slice);

#endif /* PS_SLICES_H */
