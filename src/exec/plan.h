/* SPDX-License-Identifier: MIT */
/* plan.h - what a lane runs for a shard of given extents: instructions in order, with
 * every buffer placed in one arena by how long it lives. Private to exec/. */
#ifndef EXEC_PLAN_H
#define EXEC_PLAN_H

#include <stdint.h>

#include "graph/graph.h"
#include "kernel/device.h"
#include "pass/pass.h"
#include "pass/schedule.h"

/* What an operand's address is counted from; the lane keeps the addresses. */
enum base {
    BASE_ARENA,
    BASE_PARAM,   /* all buckets' parameters, one after the other */
    BASE_GRAD,    /* likewise: the gradients of the shard that runs, unless buckets pass */
    BASE_INPUT,   /* the shard's samples */
    BASE_SECOND,  /* what its decoder sees */
    BASE_TARGET,  /* and labels */
    BASE_LOSS,    /* one number */
    BASE_CORRECT, /* one number */
    BASE_FACTOR,  /* the shard's factors of gradients, which every rank sees */
    BASE_TABLE,   /* what shards give each other in the middle of a step */
    BASE_KEPT,    /* parameters of other stages, as they came at the beginning of the step */
    BASE_OUTBOX,  /* what a shard sends to other stages (pipe.h) */
    BASE_HALF,    /* all parameters in bf16, in the order of BASE_PARAM; on a device */
    BASE_COUNT    /* from here on: the memory of plan_create_given's values */
};

struct operand {
    enum base base;
    size_t offset; /* bytes */
};
/* While a plan is made, an offset in the arena is a block's number, from this bit on, and an offset in that block. */
enum { BLOCK_SHIFT = 40 };

/* What a kernel wants in another type of elements than it lies in, or a filter that is to lie otherwise. */
struct plan_convert {
    struct operand from, to;
    enum dtype from_dtype, to_dtype;
    size_t count;
    size_t rows; /* it is turned across, a matrix of so many rows; 0: it is not */
};

struct instruction {
    const struct node *node;
    const struct kernel *kernel; /* NULL: it is between ranks (pipe.h, talk.h) */
    struct kernel_problem problem;
    struct operand in[KERNEL_IN], out[KERNEL_OUT];
    size_t scratch; /* offset in the arena, if it has any */
    bool has_scratch;
    void *state;     /* of the kernel, for this call site */
    uint64_t after;  /* buckets (bits) whose gradients are final, and parameters no longer read,
                       after it */
    uint64_t begins; /* buckets that this is the first to write gradients of */
    /* Buckets that are held in parts: this is the first, and the last, to read parameters of them in forward or
     * in backward. */
    uint64_t takes, leaves;
    int awaits;   /* gathers below this number must have met before it */
    int fills;    /* 1 + number of the gather that it makes this shard's table of; 0: none */
    size_t bytes; /* of what is sent or received */
    int number;   /* among this plan's sends, or receives */
    size_t at;    /* where the sender has it: in a shard's box, or among what it sends once */
    struct plan_convert *converts; /* to be made first, on a device */
    int n_converts;
    struct plan_convert gives; /* to be made after it; of no elements: nothing */
    bool
        with_next; /* on a device: neither this nor the next needs the other (device_face.run_both) */
    /* On a device with two streams (aside.h): it runs on the second. 1 + number of the signal that it gives there, or follows on
     * the first; 0: none. */
    bool is_aside;
    int follows, signals;
};

/* Instructions [begin, end). */
struct plan_range {
    int begin, end;
};

struct plan {
    struct extents extents;
    int n_instructions;
    struct instruction *instructions;
    int n_forward;         /* those before backward */
    struct operand output; /* the graph's, if it has one: whole after an evaluation */
    int64_t output_floats; /* of a sample of it */
    enum dtype output_dtype;
    struct plan_convert *converts; /* of all instructions */
    size_t arena_bytes;
    int n_signals;             /* of instructions aside */
    struct plan_range *ranges; /* for training on lanes: of each task of the step program */
    /* Of a pipeline's stage: what is sent or received once a step comes first, then forward of chunk 0, 1, ..., then
     * backward of the last, ..., 0. Segment s is instructions [segment[s], segment[s + 1]). */
    int segment[2 * PIPE_CHUNKS + 1];
    int n_sends, n_receives;
    size_t outbox_bytes, kept_bytes; /* of a shard; of what comes once a step */
    size_t once_bytes;               /* of what goes once a step */
    size_t gradients[GRAPH_NODE_IN]; /* with plan_buckets.pass: of each bucket, in the arena */
};

/* Where bucket b begins in the flat vectors, in elements; bucket_begin[n_buckets] is the end. */
struct plan_buckets {
    int count;
    int64_t begin[GRAPH_NODE_IN + 1];
    /* Nobody but the lane reads its gradients, and it updates by a bucket as soon as that and all before
     * it are final: they lie in the arena, from the first that is written to the update. */
    bool pass;
    struct pass_pipeline pipeline; /* whose nodes are this rank's (pass_is_local) */
    uint64_t
        held; /* buckets (bits) whose parameters are here only while they are read (hold.h) */
};

/* Values that other lanes read as factors of a gradient, so that they lie where all can. */
enum { PLAN_FACTORS = 2 * GRAPH_NODE_IN };
struct plan_factor {
    const struct value *value; /* not a view */
    size_t offset;             /* bytes, in a shard's record */
    uint64_t buckets;          /* that are made from it */
    bool is_joint;             /* made by all lanes together, before the shards run */
};
struct plan_factors {
    int count;
    struct plan_factor item[PLAN_FACTORS];
};

/* Where shards meet in the middle of a step: each has made its table, and reads those of all, which lie
 * one after the other. A lane that meets has one shard. */
struct plan_gather {
    const struct node *node;
    size_t offset, bytes; /* of the first table, and of each */
};
struct plan_gathers {
    int count;
    struct plan_gather *item; /* in running order */
    int64_t shard;            /* that the plan is for */
};

/* places_of: the training graph, where every parameter has its place; may be `graph` itself. */
MUST_CHECK enum status plan_create(const struct graph *graph, const struct graph *places_of,
                                   struct extents extents, const struct plan_buckets *buckets,
                                   const struct plan_factors *factors,
                                   const struct plan_gathers *gathers,
                                   const struct kernel_choices *choices, struct plan **out);

/* A device that kernels run on, and what they compute in: f32, or bf16 or f16 as kernel/precision.h has it. */
struct plan_target {
    const struct device_face *face;
    enum dtype precision;
    bool rounds; /* of f32: products may round operands (kernel_problem.rounds) */
};
/* The same for a device. A table's gradient has all rows there, also where the graph has row_sum: the
 * instruction stands where ids are sorted elsewhere, and has that node. Nothing is a factor, and what goes between ranks has
 * no scratch. */
MUST_CHECK enum status plan_create_on(const struct plan_target *target,
                                      const struct graph *graph, const struct graph *places_of,
                                      struct extents extents,
                                      const struct plan_buckets *buckets,
                                      const struct plan_gathers *gathers,
                                      const struct kernel_choices *choices, struct plan **out);

/* A value whose place the caller knows: a parameter, an input, or a result that is wanted. */
struct plan_given {
    const struct value *value;
    struct operand operand; /* its base may be BASE_COUNT or more */
};
/* A plan for a graph that is no part of a step: all its parameters and inputs are given, and the
 * results that shall be whole after it ran. None of these is a view. */
MUST_CHECK enum status plan_create_given(const struct graph *graph, struct extents extents,
                                         const struct plan_given *given, int n_given,
                                         const struct kernel_choices *choices,
                                         struct plan **out);
void plan_destroy(struct plan *plan); /* NULL is allowed */

/* What a node asks of a kernel, with shapes[value id]. */
void plan_problem(const struct node *node, const struct shape *shapes,
                  struct kernel_problem *problem);

/* The buckets (bits) whose parameters a node reads; places_of as in plan_create. */
uint64_t plan_reads(const struct node *node, const struct graph *places_of);
/* Number of the bucket that a flat value "bucketN...." belongs to. */
int plan_bucket_of(const struct value *flat);

#endif /* EXEC_PLAN_H */
