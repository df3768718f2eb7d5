/* SPDX-License-Identifier: MIT */
/* device_side.h - what an executor keeps on a device, if it runs on one. Private to exec/.
 *
 * The whole step runs there: parameters, state, gradients and activations are in the device's
 * memory, and the flat vectors of state.h are copies of it, made when somebody asks for them
 * (device_fetch) and given back when they were written (device_is_stale). A rank has one lane,
 * whose shards run one after the other; their gradients are added along the tree, and ranges of
 * buckets are updated in one launch each. Several ranks of a machine, on one device or on several,
 * read each other's block of memory: those that hold the same (device_ranks.c), that share layers
 * (device_tensor.c), or are stages of a pipeline (device_pipe.c). Those of several machines, and
 * those whose devices cannot do that, send messages (device_team.c).
 *
 * A step is captured as a graph the second time that its extents come, and launched from then on.
 * What differs from step to step is read from a *feed*, a block of device memory that comes from
 * the host:
 *
 *   numbers of the update | kernel_step of each shard | x, x2, y of each shard, aligned
 *
 * Of samples that the device holds (device_feed.c), picks come in their place, and x and y are made
 * behind them there, on the stream of copies.
 *
 * There are two feeds in turn, with a graph each, so that one is filled while the step before reads
 * the other, and nothing but steps is on their stream:
 *
 *   copies    feed of k+1, when step k-1's results are back
 *   stream    step k, when its feed is there
 *   returns   results of k, when it is done
 *
 * A step may itself go to two more streams: sums and updates of several ranks, beside backward, and
 * gradients of weights (device_aside.c).
 *
 * Steps are not waited for. A step has a slot: memory of the host that its feed is copied from, and
 * that its results come back to. The results of a step are taken when they are there
 * (exec_take_result); as soon as all slots are taken, the oldest is waited for.
 */
#ifndef EXEC_DEVICE_SIDE_H
#define EXEC_DEVICE_SIDE_H

#include "exec/lane.h"
#include "exec/net_face.h"
#include "exec/norms.h"
#include "exec/packet.h"
#include "exec/pipe.h"
#include "exec/release.h"
#include "exec/remote.h"
#include "exec/state.h"
#include "exec/talk.h"
#include "kernel/device.h"

enum {
    DEVICE_SLOTS = 8,
    DEVICE_FEEDS = 2,
    DEVICE_GRAPHS = PLANS_MAX,
    DEVICE_GROUPS = 8,
    DEVICE_KEPT = 2,
    DEVICE_LOCKED = 2
};
enum { DEVICE_LINE = 128 }; /* bytes from a word of memory that ranks share to the next */

/* Where a shard's samples are in a feed, in bytes. */
struct feed_place {
    size_t x, x2, y;
};

struct device_slot {
    char *host;
    float *results; /* of the host: losses of shards, then their labels met */
    struct device_event *copied, *ran, *done;
    struct exec_result result; /* what of it is known before */
};

/* Of a step. */
struct device_extents {
    int64_t samples, length[SOURCE_SEQUENCES];
};

/* What a step reads and reports, of the device. */
struct device_feed {
    char *memory;
    float *results;            /* as a slot has them */
    struct device_extents fed; /* of the samples that lie there; samples 0: none */
};

/* Of a step of these extents. */
struct device_captured {
    struct device_extents extents;
    int64_t uses;                             /* for who goes first */
    struct device_graph *graph[DEVICE_FEEDS]; /* NULL: it has run once, or with another feed */
};

/* Buckets in a row, which are final one after the other: of several ranks, each group is summed,
 * updated and taken as soon as it is, while backward goes on for the others. */
struct device_group {
    int first, end; /* buckets */
    size_t at, count;
    struct device_event *final;
    struct device_event *done; /* all ranks have summed it, if its gradients are in a window */
};

/* A stretch of the flat vector that one launch updates: of several ranks, each a part of it. */
struct device_stretch {
    const struct device_update *update;
    const struct bucket *bucket; /* the first */
    size_t at, count;
    int group;
    int table;       /* the bucket, if it is a table of which rows are marked; else -1 */
    size_t state_at; /* where this rank's part begins in the vectors of state */
};

/* Elements of the flat vector. */
struct device_part {
    size_t at, count;
};

/* A parameter of which LARS and LAMB need the norm. */
struct device_norm {
    size_t at, count;
    const struct device_update *update;
    const struct bucket *bucket;
    bool is_adapted;
};

/* Of a forward of a plan, on samples that were copied or picked. */
struct device_forward {
    const struct plan *plan;
    const struct source *picked;
    int64_t uses;
    struct device_graph *graph; /* NULL: it has run once, as it is */
};

/* Samples of an evaluation, and what it gives. */
struct device_samples {
    struct pick picks[EVAL_ROWS]; /* of the host */
    const struct source *picked;  /* NULL: samples are copied */
    struct device_forward forwards[DEVICE_GRAPHS];
    int n_forwards;
    char *there; /* numbers of the step, picks, samples */
    size_t bytes;
    float *output; /* of the host */
    char *widened; /* of the device: as much, in f32 */
    size_t output_bytes;
};

/* A data set that lies in the device's memory. */
struct device_kept {
    const struct source *source;
    char *memory;
    size_t bytes;
    struct device_images images;
};

struct device_side {
    struct exec_device config;
    struct plan_target target;
    struct device_stream *stream, *copies, *returns;
    char *memory; /* one block: all that follows up to feeds, which are last */
    size_t memory_bytes;
    float *param;
    float *state[KERNEL_STATES];    /* of what this rank updates */
    size_t state_count;             /* elements of each */
    uint16_t *half;                 /* the parameters in bf16 or f16; NULL: not computed with */
    struct device_origin *origins;  /* of parameters, where updates draw; else NULL */
    struct device_scaling *scaling; /* of losses in f16; else NULL */
    struct kernel_step *scaled;     /* of each shard, for gradients of losses; else NULL */
    float *gradients;               /* n_buffers vectors: partial sums that are held at once */
    int n_buffers;
    uint8_t *marks[GRAPH_NODE_IN];
    size_t marks_bytes; /* of all, which lie in a row from the first one on */
    uint8_t *all_marks;
    uint8_t *joined_marks; /* those of all ranks, laid out likewise; of one rank, the same */
    float *results;        /* of the step that is put, of all shards: its feed's */
    float *counted;        /* of an evaluation: a loss, labels met */
    /* The step's gradient; of several ranks a part, or whole where each updates all. Where the norm
     * is needed before, sums of this rank's parts, laid out as its state is; else NULL. */
    float *sum, *part_sums;
    double *param_squares, *move_squares;
    void *squares_scratch;
    struct kernel_update_step *trusted; /* a parameter each */
    char *tables; /* of gathers: what all shards give in the middle of a step */
    struct device_feed feeds[DEVICE_FEEDS];
    int turn;     /* which of them is that of the step that is put */
    char *feed;   /* this one */
    char *arena;  /* of the shard that runs now */
    char *arenas; /* as many as the pipeline has shards under way; else it is the one */
    char *bases[BASE_COUNT];

    struct device_watch *watch;     /* NULL: there is nobody to wait for */
    struct device_ranks *ranks;     /* NULL: there is one */
    struct ranks_team *team;        /* NULL: they read each other's memory */
    uint32_t *said;                 /* with a team: by each rank, with a step */
    struct device_tensor *tensor;   /* NULL: layers are whole */
    struct device_pipe *pipe;       /* NULL: there are no stages */
    struct device_parts *parts;     /* NULL: gradients and parameters are whole */
    struct device_squares *squares; /* NULL: nobody needs the norm of all gradients */
    struct device_group groups[DEVICE_GROUPS];
    int n_groups;
    struct device_stream *sums; /* of several groups: what ranks do with them; else `stream` */
    struct device_event *joined;
    struct device_aside *aside; /* where gradients of parameters are made, beside `stream` */

    struct device_stretch stretches[GRAPH_NODE_IN];
    int n_stretches;
    struct device_norm *norms; /* of parameters, for LARS and LAMB */
    int n_norms;

    size_t feed_bytes;         /* at most */
    struct feed_place *places; /* one a shard */
    size_t picks_at;           /* in a feed that has them */
    struct device_kept kept[DEVICE_KEPT];
    int n_kept;
    struct device_slot slots[DEVICE_SLOTS];
    uint32_t taken; /* steps whose results were taken */
    struct device_captured captured[DEVICE_GRAPHS];
    int n_captured;
    int64_t uses;
    struct device_samples eval;

    void *locked[DEVICE_LOCKED]; /* memory of the host that is copied often */
    int n_locked;
    uint8_t *given_marks; /* of the host: marks of a step whose rows go to servers; else NULL */
    bool is_newer, has_newer_state; /* than the flat vectors of the host */
    bool is_stale, has_stale_state; /* older than these */
};

/* Refuses what a device cannot run. */
MUST_CHECK enum status device_check(const struct exec *exec);
/* Makes all but plans. */
MUST_CHECK enum status device_create(struct exec *exec);
void device_destroy(struct exec *exec); /* NULL is allowed */

/* A plan for these extents. */
MUST_CHECK enum status device_plan(const struct exec *exec, struct extents extents,
                                   bool evaluation, struct plan **out);
/* There is room for what a plan needs; of a new one, ranks that layers are split among agree on it. */
MUST_CHECK enum status device_make_room(struct exec *exec, const struct plan *plan,
                                        bool is_new);
/* Steps that are put from now on read and report there. */
void device_point_to_feed(struct device_side *side, int number);
/* Captured steps and evaluations are forgotten: a plan goes, or the arena moves. Only the latter. */
void device_forget_graphs(struct device_side *side);
void device_forget_forwards(struct device_side *side);

/* The flat vectors of the host are those of the device: the parameters; these and, with all ranks
 * together, the state. device_give: the other way round, as far as it is stale; collective if it
 * is. */
MUST_CHECK enum status device_fetch_params(const struct exec *exec);
MUST_CHECK enum status device_fetch(const struct exec *exec);
MUST_CHECK enum status device_give(struct exec *exec);
MUST_CHECK enum status device_wait(const struct exec *exec);
/* What a wait gave; a rank that was lost meanwhile is the cause of whatever it was. */
MUST_CHECK enum status device_blame(const struct exec *exec, enum status status);

/* Parameters that servers keep (device_remote.c). A step is put: its sums come here and are given. */
MUST_CHECK enum status device_give_sums(struct exec *exec);
/* The parameters for the next step are here; and there, too, before what comes on side->stream. */
MUST_CHECK enum status device_await_params(struct exec *exec);
MUST_CHECK enum status device_take_params(struct exec *exec);

/* Several ranks (device_ranks.c) ---------------------------------------------------------------- */

/* What they are and will need; then, when the block of memory has been laid out, their blocks are
 * opened. Both are collective. */
MUST_CHECK enum status ranks_create(struct exec *exec);
MUST_CHECK enum status ranks_open(struct exec *exec, const struct device_handle *own);
void ranks_destroy(struct exec *exec);
/* Of the block: words of ranks, scratch of their sums. The same on every rank. */
size_t ranks_words_bytes(const struct exec *exec);
size_t ranks_scratch_bytes(const struct exec *exec);
void ranks_place(struct device_side *side, void *words, void *scratch);
/* Partial sums that a rank holds at once, at most. */
int ranks_buffers(const struct exec *exec);
/* Does each rank sum and update all, as norms are needed before that nobody tells it? */
bool ranks_update_all(const struct exec *exec);
/* Where rank r has what this rank has there, in its block. */
void *ranks_theirs(const struct device_side *side, int r, const void *mine);
/* What rank r updates of a stretch. */
struct device_part ranks_part(const struct exec *exec, const struct device_stretch *stretch,
                              int r);
/* The same if parts were updated where all is. */
struct device_part ranks_share(const struct exec *exec, const struct device_stretch *stretch,
                               int r);
/* Which partial sums rank r ends with, of those of all ranks from left to right. */
void ranks_held(const struct exec *exec, int r, int *first, int *count);
/* In the middle of a step, on side->stream: this rank's table of gather g is made; those of all
 * others come here. */
void ranks_give_table(const struct exec *exec, int g);
MUST_CHECK enum status ranks_take_tables(const struct exec *exec, int g);
/* What these put goes on side->sums. This rank's gradients of the group are final, and so are all
 * others'; marks of its tables come here, and with the last group results. */
MUST_CHECK enum status ranks_meet(const struct exec *exec, int group);
/* The sum of all ranks' gradients of a part. */
void ranks_add(const struct exec *exec, struct device_part part, float *out);
/* Where nothing is updated before the norm is known: all have summed their parts of the group;
 * after the last one, the squares of all ranks are there. */
MUST_CHECK enum status ranks_end_sums(const struct exec *exec, int group);
/* All have updated their parts of groups [first, end), which come here: one, or all where they wait
 * for the norm. */
MUST_CHECK enum status ranks_take_params(const struct exec *exec, int first, int end);

/* The norm of all gradients (device_squares.c) --------------------------------------------------- */

/* When stretches are known. Makes nothing if nobody needs the norm. */
MUST_CHECK enum status squares_create(struct exec *exec);
void squares_destroy(struct exec *exec);
/* Of the block, the same on every rank that holds the same. */
size_t squares_bytes(const struct exec *exec);
void squares_place(struct exec *exec, void *room);
/* Collective, when the block is there. */
MUST_CHECK enum status squares_open(struct exec *exec);
/* On side->sums. This rank's sums of a group are there; of a team, where every rank's squares are. */
void squares_take(const struct exec *exec, int group);
double *squares_of_rank(const struct exec *exec, int r, size_t *out_bytes);
/* Those of every rank that holds the same are there: of each parameter of the model, what every
 * rank beside has of it. */
void squares_join(const struct exec *exec, struct joint_parts *out);

/* Losses that are scaled (device_scale.c): for the step that begins; of the gradients' sum, whose
 * squares are there, taken back. */
void scale_losses(const struct exec *exec);
void unscale(const struct exec *exec, const struct joint_parts *squares,
             struct kernel_update_step *numbers);
/* What gradients of losses read in place of `step`. */
const struct kernel_step *scaled_step(const struct device_side *side,
                                      const struct instruction *instruction,
                                      const struct kernel_step *step);
/* As it is in the beginning. */
MUST_CHECK enum status scale_begin(const struct exec *exec);

/* Ranks that send each other what they need (device_team.c) ------------------------------------- */

/* Collective: do they? Then side->team is made. */
MUST_CHECK enum status team_choose(struct exec *exec);
/* Of the block: room for what comes from others. */
size_t team_bytes(const struct exec *exec);
void team_place(struct device_side *side, void *room);
/* Collective, when the block is there. */
MUST_CHECK enum status team_open(struct exec *exec);
/* By the thread that looks after others. False: messages have failed, and who is lost, if anybody
 * is, is known; or the job was ended for that. */
bool team_is_well(const struct exec *exec);
void team_give_up(struct device_side *side);
void team_destroy(struct device_side *side);
/* In the middle of a step, on side->stream: this rank's table of gather g is made; it goes to all,
 * and theirs come. */
MUST_CHECK enum status team_swap_tables(const struct exec *exec, int g);
/* On side->sums: partial sums of a group of buckets go to who updates them, with marks of tables,
 * the last also with results. Where all update everything, the sum is made and comes to all. */
MUST_CHECK enum status team_meet(const struct exec *exec, int group);
/* Where what came of partial sum `number` is: a part of this rank's. */
float *team_received(const struct exec *exec, int number, struct device_part part);
/* Squares of all ranks' parts go to all. */
MUST_CHECK enum status team_swap_squares(const struct exec *exec);
/* New parameters of a group of buckets go to all. */
MUST_CHECK enum status team_swap_params(const struct exec *exec, int group);

/* Several machines, between steps (device_nodes.c). Collective. */

/* What rank 0's machine has of bucket b goes to the others. */
MUST_CHECK enum status device_publish(struct exec *exec, int b, int what);
/* State of it that others own comes to rank 0's machine. */
MUST_CHECK enum status device_collect(struct exec *exec, int b);
/* All hosts have put the step on their streams: what all said with it. */
MUST_CHECK enum status device_meet_machines(struct exec *exec, uint32_t *out_heard);

/* Ranks that are lost (device_watch.c) ----------------------------------------------------------- */

/* Words that streams of this rank await. */
enum watch_kind { WATCH_RANKS, WATCH_TENSOR, WATCH_PIPE, WATCH_SQUARES, WATCH_KINDS };

MUST_CHECK enum status device_watch_create(struct exec *exec);
/* In place of those of that kind before; borrowed until the next call. */
void device_watch_words(struct device_side *side, enum watch_kind kind,
                        const struct device_words *words, int count);
/* From now on streams do not wait for others, until device_watch_end, after which nobody touches
 * the words. NULL watch is allowed. */
void device_watch_give_up(struct device_side *side);
/* The same, if streams would else wait for ranks that have nothing more to say. */
void device_watch_leave(struct device_side *side);
void device_watch_end(struct device_side *side);
void device_watch_destroy(struct device_side *side);

/* Memory that grows (device_circle.c) ------------------------------------------------------------ */

enum { CIRCLE_NUMBERS = 4 };
/* Blocks of some ranks, as long on each. */
struct device_circle {
    struct transport *transport;
    int ranks, rank;
    uint32_t tag;
    char *memory; /* this rank's; NULL: there are none yet */
    size_t bytes;
    char *block[DEVICE_PEERS]; /* of each rank, as this process sees it */
    struct device_handle known[DEVICE_PEERS];
};

/* All are collective over the circle's ranks, but release. */
MUST_CHECK enum status circle_create(const struct exec *exec, struct transport *transport,
                                     struct device_circle *out);
/* Each number becomes the largest of all ranks'. */
MUST_CHECK enum status circle_agree(struct device_circle *circle, size_t *numbers, int count);
/* Blocks of so many bytes, all 0, in place of those there are. */
MUST_CHECK enum status circle_make(const struct exec *exec, struct device_circle *circle,
                                   size_t bytes);
void circle_release(const struct exec *exec, struct device_circle *circle);

/* Parts and windows (device_parts.c) ------------------------------------------------------------- */

enum parts_kind { PARTS_FORWARD, PARTS_BACKWARD, PARTS_EVALUATION, PARTS_KINDS };

/* When groups and stretches are known. Makes nothing if all is whole, and the rest needs not ask
 * then. */
MUST_CHECK enum status parts_create(struct exec *exec);
void parts_destroy(struct device_side *side);
/* Elements: of a vector of gradients; of the parts of parameters that a rank owns; of a vector of
 * parameters. */
size_t parts_gradients(const struct exec *exec);
size_t parts_own(const struct device_side *side);
size_t parts_window(const struct exec *exec);
/* The block has been laid out. */
void parts_place(struct device_side *side, float *own);
/* Elements of a packed part of a stretch, so many that the next is aligned. */
size_t device_packed(const struct exec *exec, const struct device_stretch *stretch, int r);

/* Where an element of the flat vector lies: of a buffer of gradients; in side->param and
 * side->half. */
float *parts_gradient(const struct exec *exec, int buffer, size_t element);
size_t parts_param(const struct device_side *side, size_t element);
char *parts_address(const struct device_side *side, const struct operand *operand);
/* Has each rank its part alone? Where rank r has its own of a stretch. */
bool parts_hold(const struct device_side *side, int group);
float *parts_owned(const struct exec *exec, const struct device_stretch *stretch, int r);

/* A shard's forward begins, or an evaluation's. Before an instruction: what it reads is here, what
 * it writes may be written. A group was summed by all. */
void parts_begin(const struct device_side *side, enum parts_kind kind);
MUST_CHECK enum status parts_before(const struct exec *exec, const struct plan *plan,
                                    int number);
MUST_CHECK enum status parts_begin_gradients(const struct exec *exec, int group);
MUST_CHECK enum status parts_end_group(const struct exec *exec, int group);

/* Ranks that share layers (device_tensor.c) ------------------------------------------------------- */

MUST_CHECK enum status tensor_create(struct exec *exec);
void tensor_destroy(struct exec *exec);
/* Collective: there is room for what a new plan says. */
MUST_CHECK enum status tensor_prepare(struct exec *exec, const struct plan *plan);
/* Puts an op between ranks on the stream. */
MUST_CHECK enum status tensor_run(const struct device_side *side, const struct op *op,
                                  const struct kernel_call *call);
/* A step, or a batch that is evaluated, is over: the next one begins as this one did. */
void tensor_end(const struct device_side *side);

/* Stages of a pipeline (device_pipe.c) ------------------------------------------------------------ */

MUST_CHECK enum status device_pipe_create(struct exec *exec);
void device_pipe_destroy(struct exec *exec);
/* Collective: there is room for what a new plan sends and keeps. */
MUST_CHECK enum status device_pipe_prepare(struct exec *exec, const struct plan *plan);
size_t device_pipe_bytes(const struct device_side *side);
/* Puts all shards of a step on the stream. */
MUST_CHECK enum status device_pipe_step(const struct exec *exec);
/* The pieces of it, for evaluations: what goes once; a segment for shard or batch number `number`;
 * the end. */
MUST_CHECK enum status device_pipe_move_once(const struct exec *exec, const struct plan *plan);
MUST_CHECK enum status device_pipe_run(const struct exec *exec, const struct plan *plan,
                                       int segment, int64_t number,
                                       const struct kernel_step *step);
void device_pipe_end(const struct device_side *side);

/* A second stream (device_aside.c) ---------------------------------------------------------------- */

MUST_CHECK enum status aside_create(struct device_side *side);
void aside_destroy(struct device_side *side); /* when nothing is under way */
/* There are events for a plan's signals. */
MUST_CHECK enum status aside_prepare(struct device_side *side, const struct plan *plan);
/* Until all there is done; fails with what went wrong. */
MUST_CHECK enum status aside_wait(const struct device_side *side);
/* Where an instruction runs. */
struct device_stream *aside_stream(const struct device_side *side,
                                   const struct instruction *instruction);
/* One that is aside will be put. Others are, between these two. */
void aside_hold(const struct device_side *side, const struct instruction *instruction,
                const struct kernel_step *step);
MUST_CHECK enum status aside_before(const struct device_side *side,
                                    const struct instruction *instruction);
MUST_CHECK enum status aside_after(const struct device_side *side);
/* What comes there follows all that is on side->stream by now. */
MUST_CHECK enum status aside_leave(const struct device_side *side);
/* What comes on a stream follows all that is aside by now. */
MUST_CHECK enum status aside_join(const struct device_side *side, struct device_stream *with);

/* Puts a step on the stream; plans are there. */
MUST_CHECK enum status device_step(struct exec *exec, const struct batch *batch,
                                   struct exec_result *out);
/* Data sets that the device holds (device_feed.c): this one's images, NULL if it does not. */
const struct device_images *device_kept(const struct exec *exec, const struct source *source);
void device_forget_kept(struct device_side *side);

/* Puts an instruction of a plan on its stream, as it is, or in its turn. `step` is the device's. */
MUST_CHECK enum status device_put(const struct device_side *side,
                                  const struct instruction *instruction,
                                  const struct kernel_step *step);
MUST_CHECK enum status device_run(const struct device_side *side,
                                  const struct instruction *instruction,
                                  const struct kernel_step *step);
/* The pieces of a step. Kernels work on shard v from now on; its numbers, on the device. */
const struct kernel_step *device_point_to_shard(const struct exec *exec, int64_t v,
                                                float *gradients);
/* Adds, on a stream, what the tree adds of these elements when the shard that ran last is final. */
void device_add_along_tree(const struct exec *exec, struct device_stream *stream,
                           const struct tree_stack *stack, struct device_part part);
/* This rank's gradients of a group are final: sums and updates, beside what backward still has to
 * do. */
MUST_CHECK enum status device_end_group(const struct exec *exec, const struct tree_stack *stack,
                                        int group);

/* Reads samples of an evaluation to where the lane has them, or what there is to be known of those
 * that the device holds. */
void device_read_samples(struct lane *lane, const int64_t *index, int64_t rows,
                         const int64_t length[SOURCE_SEQUENCES]);
/* Runs a plan on the samples that were read: its loss and count come to where the lane's bases say,
 * its output to eval.output if that is wanted. */
MUST_CHECK enum status device_run_samples(struct lane *lane, const struct plan *plan,
                                          const struct kernel_step *step, bool wants_output);
/* The same in a pipeline: an action of an evaluation. */
MUST_CHECK enum status device_run_batch(struct lane *lane, const struct pipe_evaluation *e,
                                        const struct pipe_action *a);

#endif /* EXEC_DEVICE_SIDE_H */
