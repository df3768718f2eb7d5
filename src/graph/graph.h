/* SPDX-License-Identifier: MIT */
/* graph.h - one step's program: values, and nodes that make values from values.
 *
 * A graph is built for one device by a model, then rewritten by passes. Nothing in
 * it knows ranks or kernels. Nodes stand in the order in which they run; a value is
 * made by exactly one node, or is an input, a parameter or state. Everything lives in the
 * graph's arena and dies with it.
 *
 * Shapes are written as PyTorch writes them. A batched value has the samples along its first
 * extent, a sequence its places along the second; the same graph serves every batch size and every
 * length (graph_infer).
 *
 * Threads: one thread at a time while it is being changed.
 * Errors:  adding to a graph never fails at once: the first failure is kept, later additions
 *          do nothing and give NULL, which every function accepts; graph_status tells.
 */
#ifndef GRAPH_GRAPH_H
#define GRAPH_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/strbuf.h"
#include "tensor/attr.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/slice.h"

enum { GRAPH_IN = 12, GRAPH_OUT = 8, GRAPH_NODE_IN = 64 };

struct graph;
struct node;
struct op;

enum value_kind {
    VALUE_INPUT,   /* comes with the batch */
    VALUE_PARAM,   /* trained */
    VALUE_STATE,   /* kept between steps: optimizer state */
    VALUE_AVERAGE, /* kept between steps: a running average of what forward sees; saved with the
                      parameters */
    VALUE_FLAT,    /* memory that other values lie in: see `flat` */
    VALUE_RESULT,  /* made by a node */
    VALUE_UNUSED /* a parameter or average that the loss does not need: no node reads it, and it is
                      saved as it began */
};

/* How the gradient of a value is held. */
enum value_form {
    VALUE_DENSE,
    VALUE_ROWS /* some rows of a matrix, by number: gradients of embeddings */
};

/* What a shard's copy of a value is to the whole step's. */
enum value_part {
    PART_WHOLE, /* the same in every shard */
    PART_ROWS,  /* this shard's samples */
    PART_SUM,   /* a summand: the whole is the sum over shards */
    PART_SHARD  /* this shard's own: batch statistics that its backward needs */
};

enum phase { PHASE_FORWARD, PHASE_BACKWARD, PHASE_REDUCE, PHASE_UPDATE };

struct value {
    int id;
    const char *name;
    enum value_kind kind;
    enum value_form form;
    enum value_part part; /* set by the pass that splits the batch */
    enum dtype dtype;
    enum layout layout;
    struct shape shape;
    bool batched; /* inputs only: extent 0 is the batch */
    int sequence; /* inputs only: extent 1 is the batch's length number sequence-1; 0: no sequence */
    struct node *maker; /* VALUE_RESULT */
    struct value *flat; /* the flat value this one lies in, or NULL */
    int64_t offset;     /* elements from the beginning of `flat` */
    struct value
        *gradient;        /* VALUE_PARAM: set by autodiff. VALUE_AVERAGE: what this step saw of
                               it, a summand over shards; NULL in a graph that only reads it */
    float initial;        /* VALUE_PARAM, VALUE_AVERAGE: initial values are this ... */
    float init_bound;     /* VALUE_PARAM: ... plus a number uniform in +-bound */
    float init_deviation; /* VALUE_PARAM: ... plus a normal number of this deviation */
    bool is_turned;       /* VALUE_PARAM (out, in), LAYOUT_IO: files hold (in, out) */
    struct shape_slice slice; /* what of it this rank has, where ranks share layers */
    bool sums_gradient; /* VALUE_PARAM: each of these ranks has a summand of its gradient */
    int stage;          /* VALUE_PARAM, VALUE_AVERAGE: that has it (pass/cut.c); -1: all */
};

struct node {
    int id;
    const char *name;
    const struct op *op;
    struct attrs attrs;
    enum phase phase;
    int stage; /* of a pipeline that runs it (pass/cut.c); -1: all */
    int n_in, n_out;
    struct value **in;
    struct value *out[GRAPH_OUT];
};

MUST_CHECK enum status graph_create(const char *name, struct graph **out);
void graph_destroy(struct graph *graph); /* NULL is allowed */
MUST_CHECK enum status graph_status(const struct graph *graph);
const char *graph_name(const struct graph *graph);

/* Values ------------------------------------------------------------------------------- */

struct value *graph_input(struct graph *graph, const char *name, enum dtype dtype,
                          struct shape shape); /* batched */
/* A batched input whose extent 1 is the batch's length number `which`. */
struct value *graph_sequence(struct graph *graph, const char *name, enum dtype dtype,
                             struct shape shape, int which);
/* Initial values: uniform in +-bound, drawn from the seed and the parameter's number. */
struct value *graph_param(struct graph *graph, const char *name, struct shape shape,
                          float bound);
/* The same for a parameter whose elements all begin with one number. */
struct value *graph_param_constant(struct graph *graph, const char *name, struct shape shape,
                                   float initial);
/* The rows of a table, each contiguous: an embedding. Normal numbers of a deviation. */
struct value *graph_param_table(struct graph *graph, const char *name, struct shape shape,
                                float deviation);
/* What files call the shape of a parameter or an average, and what of that this rank has: all, if
 * its count is 0. */
struct shape graph_saved_shape(const struct value *value);
struct shape_slice graph_saved_slice(const struct value *value);
/* The shape that files have: of the slices of all ranks together. */
struct shape graph_whole_shape(const struct value *value);
/* A running average; its `gradient` is set by the layer that sees what is averaged. */
struct value *graph_average(struct graph *graph, const char *name, struct shape shape,
                            float initial);
struct value *graph_state(struct graph *graph, const char *name, struct shape shape);
struct value *graph_flat(struct graph *graph, const char *name, int64_t count);

int graph_value_count(const struct graph *graph);
struct value *graph_value(const struct graph *graph, int id);
struct value *graph_find_value(const struct graph *graph, const char *name); /* or NULL */
/* The values a run is about; NULL where absent. */
struct graph_roles {
    struct value *input, *target; /* samples; labels, or what the output should be */
    struct value *second;         /* what a decoder sees */
    struct value *output;         /* logits or reconstruction */
    struct value *loss, *correct; /* per shard; correct may be absent */
};
struct graph_roles *graph_roles(struct graph *graph);

/* Nodes -------------------------------------------------------------------------------- */

/* Adds a node at the end: checks arity, infers shapes, makes its outputs. `in` may end with
 * NULLs for optional inputs that are absent. Returns the node, or NULL. */
struct node *graph_add(struct graph *graph, const struct op *op, const char *name,
                       struct value *const *in, int n_in, const struct attrs *attrs);
/* The same by an op's name, for one output. */
struct value *graph_apply(struct graph *graph, const char *op, const char *name,
                          struct value *a, struct value *b, struct value *c,
                          const struct attrs *attrs);
/* Nodes added from now on belong to this phase. */
void graph_set_phase(struct graph *graph, enum phase phase);
/* And to this stage of a pipeline; -1, as at first: to none. */
void graph_set_stage(struct graph *graph, int stage);

int graph_node_count(const struct graph *graph);
struct node *graph_node(const struct graph *graph, int i); /* in running order */
/* Replaces the running order by `nodes`, which may leave nodes out; values made by a node that
 * is left out may no longer be used. For passes. */
MUST_CHECK enum status graph_set_order(struct graph *graph, struct node *const *nodes,
                                       int count);
/* Every node, role and average that used `old` uses `by`. */
void graph_replace(struct graph *graph, const struct value *old, struct value *by);
/* Takes out the nodes that loss, output and count do not need, if any of them reads a parameter, and makes
 * parameters and averages that no other node needs VALUE_UNUSED. Numbers of values stay. */
MUST_CHECK enum status graph_take_out_unused(struct graph *graph);
/* How often a value is used: as an input of nodes, as an output of the graph, by an average. */
int graph_uses(const struct graph *graph, const struct value *value);
/* Memory that lives as long as the graph. NULL on failure, which the graph keeps. */
void *graph_alloc(struct graph *graph, size_t count, size_t size);
/* Keeps a failure; for op code that finds one. Returns it. */
enum status graph_fail(struct graph *graph, enum status status);

/* The extents that the graph's shapes have now. */
struct extents graph_extents(const struct graph *graph);
/* Shapes of every value for other extents: shapes[value id]. */
MUST_CHECK enum status graph_infer(const struct graph *graph, struct extents extents,
                                   struct shape *shapes);

/* Checks that the graph is legal: every input is made before it is used, once; arity, shapes,
 * types and layouts agree with the op's rule; values that lie in a flat one fit and do not
 * overlap; a summand is used only where summands may be; what an average sees is made. The text
 * names the node. */
MUST_CHECK enum status graph_verify(const struct graph *graph);

/* Totals for `rows` samples of the lengths that the graph has now: floating-point operations,
 * parameters (whole ones, where ranks have slices). */
double graph_flops(const struct graph *graph, int64_t rows);
double graph_node_flops(const struct node *node); /* for the rows that the graph has now */
int64_t graph_param_count(const struct graph *graph);

/* Pictures ----------------------------------------------------------------------------- */

void graph_print_text(const struct graph *graph, struct strbuf *out);
void graph_print_dot(const struct graph *graph, struct strbuf *out);
void graph_print_svg(const struct graph *graph, struct strbuf *out);
const char *phase_name(enum phase phase);

#endif /* GRAPH_GRAPH_H */
