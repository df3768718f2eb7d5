/* SPDX-License-Identifier: MIT */
/* ps.h - parameter servers: ranks that hold slices of the parameters with their optimizer state.
 *
 * A job has `workers` workers, which are its first ranks, and `servers` servers, its last. The flat
 * vector of all buckets is cut into slices, dealt to servers by bytes. A worker pushes a bucket's
 * gradient as soon as it is final and goes on; its own thread (the client's) tells the servers,
 * which add, update with the optimizer's kernels and say so; the client's thread brings the new
 * values into the worker's own vector, where the worker waits for them just before it reads them.
 * What a server does with a push, and when a worker gets values, is the policy:
 *
 *   PS_STEP     all workers' pushes of a clock (less the `backup` last ones) are added along the tree over
 *               all shards and make one update: the bits of one rank with as many shards. With clipping servers tell
 *               each other the squares of their sums before.
 *   PS_ASYNC    a push is applied when it comes, with learning rate times the worker's share of the batch.
 *   PS_BOUNDED  the same, but values for clock c are given when the slowest worker has ticked c - bound.
 *   PS_CENTER   elastic averaging: a push is the worker's parameters x; d = alpha (x - center) is added to
 *               the center and given back. The worker subtracts it.
 *
 * A clock is one round of pushes of every bucket, ended by a tick. The order of calls of a worker:
 *
 *   ps_join, (ps_room), ps_attach
 *   a spare: ps_stand, which says where it begins, or that nobody needs it, and then ps_leave
 *   worker 0: ps_put of parameters (state -1) and, if they are not zero, of states
 *   ps_begin(step)                         values of all buckets are asked for
 *   each clock:  ps_await(b) before b is read; ps_push(b) or ps_push_rows(b) once for every b; ps_tick
 *   ps_meet                                everybody has come to the end: nothing changes any more
 *   ps_get, ps_collect as wanted; ps_leave
 *
 * Ranks of one machine share memory: neither gradients nor values pass through messages. To others
 * they go in frames (frame.h).
 *
 * Threads: ps_push, ps_push_rows and ps_await may be called by several threads at once, for
 * different
 *          buckets; everything else by one thread, while none of those runs.
 * Errors: STATUS_PEER_LOST as transport.h has it, and when a server is lost whose slices nobody
 * else has: the
 *          text names it. A worker that is lost ends the job under PS_STEP; else the others go on without
 *          it, unless it is worker 0.
 */
#ifndef PS_PS_H
#define PS_PS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/trace.h"
#include "kernel/tree.h"
#include "kernel/update.h"
#include "optim/optim.h"
#include "transport/transport.h"

struct ps_client;
struct program; /* sched/program.h */

/* The flat vector, as exec has it. Borrowed as long as the server or client lives. */
struct ps_table {
    int64_t rows, width; /* row i begins at begin[b] + i * width; width 0: a dense bucket */
    int64_t
        most; /* rows that one worker pushes of it in a clock, at most; 0: as many as there are */
};
struct ps_update {
    const struct kernel_update *kernel;
    struct attrs attrs;
    bool is_average; /* not trained: has no state */
};
struct ps_param { /* one that is trained */
    int bucket;
    int64_t at, count; /* elements from the bucket's first, and how many */
};
struct ps_layout {
    int buckets;
    const int64_t *begin;            /* [buckets + 1]; each a multiple of 16 */
    const struct ps_table *tables;   /* [buckets] */
    const struct ps_update *updates; /* [buckets] */
    int n_states;                    /* optim_states */
    /* With clipping: all, in the order in which their squares are added. Each begins at a multiple
     * of TREE_STRETCH. */
    const struct ps_param *params;
    int n_params;
};

enum ps_policy { PS_STEP, PS_ASYNC, PS_BOUNDED, PS_CENTER };

/* Tasks of servers whose clock is in [begin, end) are traced. */
struct ps_trace {
    struct trace *trace; /* outlives the server; NULL: none */
    uint64_t begin, end;
};

/* All ranks of a job have the same, but for transport, room and trace. */
struct ps_config {
    struct transport *transport; /* the job's; borrowed */
    int workers, servers;
    /* Of the workers the last ones: each stands by until one that it may stand in for is lost
     * (ps_stand). PS_ASYNC and PS_BOUNDED alone, and all rows are as long. */
    int spares;
    int replicas; /* servers that have each slice: 1 or 2 */
    struct ps_layout layout;
    /* Clipping is for PS_STEP, and LARS and LAMB are refused: they need norms of whole parameters. */
    struct optim_config optim;
    int64_t shards; /* V, of the job */
    const int64_t
        *rows; /* [workers - spares + 1]: worker w has shards [rows[w], rows[w + 1]) */
    enum ps_policy policy;
    int bound;  /* PS_BOUNDED: 1 or more. bounded:0 is PS_STEP, since it sums whole steps */
    int backup; /* PS_STEP: pushes of a clock that are not waited for; below `workers` */
    bool
        staleness_lr; /* PS_ASYNC, PS_BOUNDED: a push that k others overtook counts 1/(1+k) at most */
    double alpha; /* PS_CENTER */
    /* Seconds that others may wait for a worker, or a worker for servers, before it is named and
     * the job ends; 0: any. */
    double stall_timeout;
    size_t room; /* bytes of shared memory that this worker wants for itself: ps_room */
    /* For tests of faults: called with a name where ranks meet: by a server, and by a worker before
     * it pushes or asks. NULL: none. */
    void (*at_meeting)(void *arg, const char *point);
    void *at_meeting_arg;
    struct ps_trace trace; /* of a server */
};

/* Is it possible? STATUS_USAGE with the reason if not: more servers than slices, backup without
 * PS_STEP, bound 0, replicas without a second server, ... Looks at nothing but the config;
 * transport may be NULL. */
MUST_CHECK enum status ps_check(const struct ps_config *config);

/* What a worker says with a tick, and sums of it. */
struct ps_tick {
    double loss, correct;    /* sums over the samples, or whatever the caller adds up */
    int64_t samples, weight; /* likewise */
    uint32_t bits;           /* added bit by bit */
};

/* Statistics ------------------------------------------------------------------------------------ */

enum { PS_STALE = 64, PS_SPREAD = 256, PS_WORKERS = 256, PS_SERVERS = 64 };

struct ps_spread {  /* clocks that workers are at, at one moment */
    double seconds; /* since the first tick */
    uint64_t low, high;
};
struct ps_server_stats {
    double busy, idle; /* seconds: of a core that it used; that it waited */
    int64_t bytes_in,
        bytes_out;    /* gradients that it read, values that it or workers brought from it */
    int64_t updates;  /* of slices */
    int64_t dropped;  /* pushes that came too late (backup) */
    int64_t refused;  /* messages that were not understood */
    int64_t elements; /* of its slices */
};
struct ps_stats {
    int workers, servers;
    struct ps_server_stats server[PS_SERVERS];
    /* Pushes applied, by how many updates of the same slice by others lay between the values that
     * the worker had and its push; the last counts PS_STALE - 1 and more. All servers together. */
    int64_t stale[PS_STALE];
    double wait[PS_WORKERS];    /* seconds that each worker's ps_await and ps_tick took */
    uint64_t clock[PS_WORKERS]; /* clocks that each has ticked */
    bool lost[PS_WORKERS];
    bool standing[PS_WORKERS]; /* spares that nobody has needed so far */
    struct ps_tick all;        /* of all clocks and workers since ps_begin */
    uint64_t largest_spread; /* between the clock that a worker begins and the slowest one's */
    struct ps_spread spread[PS_SPREAD]; /* over time, evenly thinned out */
    int n_spread;
};

/* Servers --------------------------------------------------------------------------------------- */

/* Collective with every worker's ps_join. A server's whole life: returns when all workers have
 * left, or are lost where that is allowed. `out` may be NULL. */
MUST_CHECK enum status ps_serve(const struct ps_config *config, struct ps_stats *out);

/* The program of server 0, 1, ...: the tasks of a clock, verified. Any rank may call it. Without a
 * transport all ranks share memory. */
MUST_CHECK enum status ps_lower(const struct ps_config *config, int server,
                                struct program **out);

/* Workers --------------------------------------------------------------------------------------- */

/* Collective with every server's ps_serve and every other worker's ps_join. Starts the client's
 * thread. */
MUST_CHECK enum status ps_join(const struct ps_config *config, struct ps_client **out);
/* config->room bytes, zeroed, aligned to 64, that servers of this machine see. Gradients that lie
 * there are read in place; others are copied by the client's thread. Lives as long as the client. */
void *ps_room(struct ps_client *client);

struct ps_memory {
    float *params; /* flat vector: values come here. PS_CENTER: d comes here */
    /* This worker's partial sums from left to right, which ps_push says are final: flat vectors.
     * PS_STEP: nodes of the tree over all V shards that cover this worker's row. Else: nodes of a
     * tree over its own shards, numbered from 0. PS_CENTER: one, {0, 1}, whose data are the
     * worker's parameters. */
    const struct tree_part *parts;
    int n_parts;
    int64_t shards; /* leaves of that tree: V; the worker's own; 1 */
};
/* Once, before anything is pushed or asked for. The memory is borrowed until ps_leave. */
MUST_CHECK enum status ps_attach(struct ps_client *client, const struct ps_memory *memory);

/* Whole vectors between servers and flat memory of this worker: parameters (PS_CENTER: the center)
 * if state is -1, else that state. Put before ps_begin, by worker 0 alone. Get any time; exact when
 * nothing changes: after ps_meet, or under PS_STEP after ps_await of all buckets and before the
 * first push. */
MUST_CHECK enum status ps_put(struct ps_client *client, int state, const float *vector);
MUST_CHECK enum status ps_get(struct ps_client *client, int state, float *vector);

/* A spare, in the place of ps_begin: waits until a worker that it may stand in for is lost, takes
 * its place, and has values of all buckets; or until the others have come to the end. *out_worker:
 * whose place it has, or -1: nothing is left to do. *out_step: the next clock, no earlier than
 * `first`, with which workers begin, and that of the slowest who is there: it is nobody they would
 * have to wait for. Clocks end before `end`.
 * Spare k of K stands in for the workers 1 + k, 1 + k + K, ... */
MUST_CHECK enum status ps_stand(struct ps_client *client, uint64_t first, uint64_t end,
                                int *out_worker, uint64_t *out_step);

/* The next clock is `step` (which schedules and corrections are of); all workers say the same.
 * Servers give values once worker 0 has said so. */
MUST_CHECK enum status ps_begin(struct ps_client *client, uint64_t step);

/* Bucket b's gradient of this clock is final in memory.parts. Returns at once. The gradient may be
 * written again, and b's params are written, before ps_await(b) of the next clock returns. */
MUST_CHECK enum status ps_push(struct ps_client *client, int bucket);

/* Rows of a table's gradient, merged along the tree inside one of its nodes; ids ascend and are
 * unique. */
struct ps_rows {
    /* As in ps_memory: one list for each largest node in the worker's row, from left to right. */
    struct tree_node node;
    const int32_t *ids;
    const float *rows; /* count * width */
    int64_t count;
};
/* The same for a table. The lists are copied at once. */
MUST_CHECK enum status ps_push_rows(struct ps_client *client, int bucket,
                                    const struct ps_rows *lists, int n_lists);

/* Waits until bucket b's values for this clock are in memory.params. Does nothing the second time. */
MUST_CHECK enum status ps_await(struct ps_client *client, int bucket);

struct ps_heard {
    uint64_t
        clock; /* the worker goes on with. With backup it may have jumped: it was too late */
    struct ps_tick sum; /* PS_STEP: of this clock, all workers that came in time */
    /* Of all clocks and workers since ps_begin, as far as it is known here; PS_STEP: that came in
     * time. */
    struct ps_tick all;
    uint64_t low,
        high; /* clocks ticked by the slowest and the fastest worker, as far as it is known */
    int lost; /* workers */
};
/* Ends a clock; every bucket has been pushed. PS_STEP: waits for the others' ticks of this clock
 * (less backup). Else returns at once with what was heard last. */
MUST_CHECK enum status ps_tick(struct ps_client *client, const struct ps_tick *tick,
                               struct ps_heard *out);

/* Waits until every worker that is not lost has come here, and all that they pushed is applied. */
MUST_CHECK enum status ps_meet(struct ps_client *client);
/* Statistics of all servers and workers, as known now. */
MUST_CHECK enum status ps_collect(struct ps_client *client, struct ps_stats *out);

/* Seconds and bytes of this worker so far. Any time. */
struct ps_times {
    double wait;  /* in ps_await and ps_tick */
    double move;  /* that the client's thread copied, added and sent */
    double bytes; /* of gradients and values, pushed and brought */
};
struct ps_times ps_times(const struct ps_client *client);

/* Says goodbye and frees the client. After a failure it says nothing. NULL is allowed. */
void ps_leave(struct ps_client *client);

#endif /* PS_PS_H */
