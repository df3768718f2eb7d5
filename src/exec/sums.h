/* SPDX-License-Identifier: MIT */
/* sums.h - sums of gradients and updates, a thread's part at a time. Private to exec/.
 *
 * reduce.c sums dense buckets and factors, rows.c tables, columns.c layers whose columns belong to
 * lanes, privacy.c adds noise. Called by lanes and by the inter-node thread, each for its own part.
 */
#ifndef EXEC_SUMS_H
#define EXEC_SUMS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "exec/sum_worker.h"
#include "kernel/tree.h"
#include "kernel/update.h"

struct clip;
struct exact_sum;
struct exec_config;
struct exec_layout;
struct exec_model;
struct exec_now;
struct exec_rows;
struct exec_shared;
struct exec_topology;
struct norms;
struct remote;
struct rows_packet;
struct trace_row;

/* Parts of an executor that sums and updates need. The pointers are constant after creation. */
struct sums {
    const struct exec_config *config;
    const struct exec_topology *topology;
    const struct exec_model *model;
    const struct exec_layout *layout;
    const struct exec_shared *memory;
    const struct exec_now *now;
    const struct norms *norms;
    struct clip *clip;
    struct remote *remote; /* or NULL */
    int threads;           /* of each lane */
    uint32_t beside_tag;   /* of what is told; the next is of what is added */
};

MUST_CHECK enum status columns_create(struct sum_worker *worker);
void columns_destroy(struct sum_worker *worker);
/* Bytes of scratch that a lane needs for columns_compute. */
size_t columns_scratch(const struct sums *sums);
/* Computes this lane's columns of the layer of bucket b for all shards. */
void columns_compute(const struct sum_worker *worker, int b, struct trace_row *trace);
/* Puts them back to the flat vectors. */
void columns_return(const struct sum_worker *worker);

/* The shard of this record has no samples, so gives nothing to bucket b. */
void rows_leave_empty(const struct exec_layout *layout, int b, char *record);
/* Bytes of scratch that a thread needs for rows_update. */
size_t rows_scratch(const struct sums *sums);
/* How many rows of a shard's ids there are in bucket b, those that occur twice counted twice. */
int64_t rows_entries(const struct sums *sums, int b, int64_t shard);
/* Sums and updates this lane's range of the rows of bucket b that occur, or, where norms are needed
 * before, keeps the sums with their squares, and updates by what was kept. */
void rows_update(const struct sum_worker *worker, int b,
                 const struct kernel_update_step *numbers);
void rows_keep(const struct sum_worker *worker, int b);
void rows_update_kept(const struct sum_worker *worker, int b,
                      const struct kernel_update_step *numbers);
/* Sums them into sums->remote; when every lane has, rows_join closes the gaps of a sum's list. */
void rows_give(const struct sum_worker *worker, int b);
struct exec_rows rows_join(const struct sums *sums, int b, int sum);
/* Threads of all lanes that put rows together. */
int rows_threads(const struct sums *sums);

/* The sums over some shards, all in memory, of the rows of bucket b that occur, added to the packet
 * of their owner: id modulo owners. */
void rows_merge(const struct sum_worker *worker, int b, struct tree_node shards, int owners,
                struct rows_packet *out);
/* Adds packets of all shards along the tree and updates the table by that; gives the new rows. */
void rows_update_packets(const struct sum_worker *worker, int b,
                         const struct rows_packet *packets, int count,
                         const struct kernel_update_step *numbers, struct rows_packet *out);
/* The same in two, where norms are needed between: gives the sums, with their squares; then, of
 * these, the new rows. */
void rows_sum_packets(const struct sum_worker *worker, int b, const struct rows_packet *packets,
                      int count, struct rows_packet *out, struct exact_sum *squares);
void rows_update_packet(const struct sum_worker *worker, int b,
                        const struct kernel_update_step *numbers, struct rows_packet *packet);

/* privacy.c: what config.privacy asks for. */
MUST_CHECK enum status privacy_check(const struct exec_config *config,
                                     const struct exec_topology *topology,
                                     const struct exec_layout *layout);
/* Scales the gradients of one shard, all buckets, to a norm of at most `most`. */
void privacy_clip(const struct exec_layout *layout, float *gradients, double most);
/* A copy of elements [at, at + count) of the sum with noise, in `out`, which is returned. */
const float *privacy_noise(const struct sums *sums, int bucket, const float *sum, size_t at,
                           size_t count, float *out);

/* Bytes of scratch that a thread needs for reduce_bucket. */
size_t reduce_scratch(const struct sum_worker *worker);

enum reduce_what { SUM_AND_UPDATE, SUM_AND_KEEP, SUM_AND_GIVE, DIRECT, UPDATE };
/* Works on this lane's part of a bucket. passing: its gradients, if they lie in the lane's arena;
 * else NULL. */
void reduce_bucket(const struct sum_worker *worker, int b, enum reduce_what what,
                   float *passing, const struct kernel_update_step *numbers);
/* Bytes of bucket b that this rank reads in a step and other ranks have written. */
int64_t reduce_bytes(const struct sums *sums, int b);
/* Stretches of bucket b. */
int64_t reduce_stretches(const struct sums *sums, int b);
/* Works on stretches [begin, end) of a bucket that has a gradient. sum: the bucket's, if it is made
 * already; else NULL. */
void reduce_stretches_of(const struct sum_worker *worker, int b, int64_t begin, int64_t end,
                         enum reduce_what what, const float *sum,
                         const struct kernel_update_step *numbers);
/* Makes what lies between the gradients of a bucket zero. */
void reduce_clear_gaps(const struct sums *sums, int b, float *gradients);
/* The factor by which gradients of this step (since creation) are scaled so that their norm is not
 * over the limit; all squares are there. Lanes and the inter-node thread may ask; where there are
 * ranks beside it waits for them, once a step. */
MUST_CHECK enum status reduce_clip_scale(const struct sums *sums, uint32_t step, float *out);

#endif /* EXEC_SUMS_H */
