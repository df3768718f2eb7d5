/* SPDX-License-Identifier: MIT */
/* kernel.h - code for ops on a device: the table, the choice, the call.
 *
 * A problem is an op's name, the types, shapes and layouts of its tensors and its
 * attributes. Several kernels may solve a problem ("reference", "own", "onednn",
 * "openblas"); which one runs comes from a table of choices, never from timing
 * inside a run. kernel/ knows nothing of graphs: exec/ joins the two.
 *
 * Bits: for one kernel, problem and instruction set the result is a function of
 * the inputs alone: not of addresses, of the pool's size or of the time of day.
 * A task given to the pool computes its part of the output wholly.
 *
 * Layouts (tensor/shape.h): images are NHWC, convolution weights HWIO or WIO, linear
 * weights IO, or plain where an embedding shares them; everything else is plain. Some kernels of devices take convolution
 * weights OHWI, too (device_face.takes_inward). The ops, inputs ->
 * outputs, [optional]:
 *
 *   linear              x (m,k), w (n,k) IO or plain, [b (n)] -> y (m,n); attrs.activation
 *   linear_grad_input   dy (m,n), w (n,k) IO or plain      -> dx (m,k)
 *   linear_grad_weight  x (m,k), dy (m,n)                  -> dw (n,k) IO or plain, [db (n)]
 *   linear_gelu         x (m,k), w (n,k), b (n)            -> y (m,n), pre (m,n): y = gelu_tanh of pre
 *   linear_add          x (m,k), w (n,k), b (n), residual (m,n) -> y (m,n)
 *   linear_grad_through dy (m,n), w (n,k), kept (m,k)      -> dx (m,k) times the slope of attrs.activation:
 *                       relu, of which kept is y, or gelu_tanh, of which it is x; [sums (k): of dx over rows]
 *   conv2d              x (N,C,H,W), w (O,C,kh,kw), [b (O)] -> y (N,O,oh,ow);
 *                       stride, pad, activation
 *                       (with groups g > 1: w is (O,C/g,kh,kw), output channel o sees the
 *                       input channels of group o / (O/g); groups = C = O is depthwise)
 *   conv2d_grad_input   dy, w                              -> dx; stride, pad, groups
 *   conv2d_grad_weight  x, dy                              -> dw, [db]; stride, pad, groups
 *   conv2d_transpose    x (N,C,h,w), w (C,O,kh,kw) HWIO, [b (O)] -> y (N,O,H,W); stride, pad,
 *                       activation; extent = H, W: what conv2d_grad_input makes of x and w
 *   conv2d_transpose_grad_input   dy, w                    -> dx: conv2d of dy
 *   conv2d_transpose_grad_weight  x, dy                    -> dw, [db]
 *   conv2d_pool         x, w, [b] -> y, index: conv2d with stride, pad and activation, then
 *                       max pool by attrs.window, stride = window, no padding; index as max_pool
 *   conv2d_pool_grad_input   dy, index, w                  -> dx; stride, pad, window
 *   conv2d_pool_grad_weight  x, dy, index                  -> dw, [db]; stride, pad, window
 *   conv1d              x (N,T,C), w (O,C,k) WIO, [b (O)] -> y (N,T-k+1,O); activation. Where T < k,
 *                       y is (N,1,O) and zeros follow x
 *   conv1d_grad_input   dy, w, x (for its shape)           -> dx
 *   conv1d_grad_weight  x, dy                              -> dw, [db]; extent = k
 *   conv1d_max          x, w, [b] -> y (N,O), index i32 (N,O): conv1d with activation, then
 *                       max_over_time; index is -1 where relu left nothing, or no sum is a number
 *   conv1d_max_grad_input   dy, index, w, x (for its shape), [base] -> dx, added to base, which may
 *                       be dx's memory; index -1 sends nothing
 *   conv1d_max_grad_weight  x, dy, index                   -> dw, [db]; extent = k
 *   max_over_time       x (N,T,C) -> y (N,C), index i32 (N,C): the first largest along T
 *   max_over_time_grad  dy, index, x (for its shape)       -> dx
 *   concat              (m,a), (m,b), ...                  -> (m,a+b+...)
 *   columns             x (m,n) -> y (m,j): columns i to i+j of x; extent = i, j
 *   max_pool            x -> y, index (u8, shape of y: position in the window, row-major, of the
 *                       first largest; 255 if y <= 0 came out of a relu in conv2d_pool);
 *                       attrs.window, stride, pad
 *   max_pool_grad       dy, index                          -> dx (255 sends nothing)
 *   avg_pool            x -> y (window, stride, pad; padding counts as zeros, divisor = window)
 *   avg_pool_grad       dy                                 -> dx
 *   bias                x (m,n) or NHWC, b                 -> y
 *   bias_grad           dy                                 -> db
 *   sum_rows            x (m,n)                            -> sums (n), in the order of those that linear_grad_through
 *                       and layer_norm_grad give besides, which are of what they store
 *   relu                x -> y
 *   relu_grad           dy, y                              -> dx
 *   relu6, relu6_grad, sigmoid, sigmoid_grad: likewise
 *   add                 a, b                               -> y
 *   tanh                x -> y
 *   tanh_grad           dy, y                              -> dx
 *   gelu, gelu_tanh     x -> y = x Phi(x), or x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3)))
 *   gelu_grad, gelu_tanh_grad  dy, x                       -> dx
 *   layer_norm          x (m,D), gamma (D), beta (D)       -> y (m,D), saved (m,2):
 *                       y = gamma * (x - mean) * rstd + beta with each row's own mean and rstd =
 *                       1/sqrt(variance + epsilon), which are saved
 *   layer_norm_grad     dy, x, gamma, saved, [base]        -> dx, dgamma, dbeta, [sums (D): of dx over rows]; dx is
 *                       added to base, which may be dx's memory
 *   softmax             x (m,D)                            -> y: exp(x) over the row's sum of it
 *   softmax_grad        dy, y                              -> dx
 *   add_positions       x (N,T,D), p (C,D), [first i32 (N)] -> y = x + p[first + t]; C >= T, and a
 *                       place past the last row of p counts as the last. With period P: of t and C
 *                       that is t % P and C >= min(P,T)
 *   positions_grad      dy (N,T,D)                         -> dp (C,D); period, extent = C, 0: sums over
 *                       the sequences, 0 from row T on, or from row P on
 *   attention           qkv (N,T,3D), [ids i32 (N,T)]      -> y (N,T,D), lse (N,T,H); heads H,
 *                       causal. A token's numbers are query, key and value, each of H parts of
 *                       D/H; in each head y_i = sum_j p_ij v_j, p_ij = exp(s_ij - lse_i), s_ij =
 *                       q_i k_j / sqrt(D/H), lse_i = log sum_j exp(s_ij), over j with ids >= 0
 *                       and, if causal, j <= i; where there is none, y is 0 and lse FLT_MAX
 *   attention_grad      dy, qkv, y, lse, [ids]             -> dqkv
 *   attention_step      qkv (N,T,3D), cache (N,C,2D), first i32 (N) -> y (N,T,D); heads: causal
 *                       attention of T tokens to first[n] before them, whose keys and values (2D
 *                       numbers a token) are the first rows of the cache, and to themselves. The
 *                       cache is not changed
 *   batch_norm          x (N,C,H,W), gamma (C), beta (C), [residual as x]
 *                       -> y, saved (2,C), seen_mean (C), seen_variance (C):
 *                       y = activation(gamma * (x - mean) * rstd + beta [+ residual]) with the
 *                       mean and variance of each channel over this call's n = N*H*W places and
 *                       rstd = 1/sqrt(variance + epsilon); saved is mean, rstd; seen is mean and
 *                       variance * n/(n-1), times N * step->inv_batch: a summand over shards
 *   batch_norm_grad     dy, x, gamma, saved, [y, if there is an activation]
 *                       -> dx, dgamma, dbeta, [dresidual = dy through the activation]
 *   batch_norm_apply    x, gamma, beta, mean (C), variance (C), [residual] -> y: as learnt
 *   batch_norm_stats    x -> stats (3,C) of this call: mean, sum of squares around it, and the
 *                       number of places, the same for every channel
 *   batch_norm_join     stats of all shards (V,3,C), of this one (3,C)
 *                       -> saved (2,C), seen_mean (C), seen_variance (C): as batch_norm has them,
 *                       over the places of all shards; seen times this shard's share of the places.
 *                       Shards are joined two by two along their tree; one without places counts not
 *   batch_norm_normalize  x, gamma, beta, saved (2,C), [residual] -> y: as batch_norm has it
 *   batch_norm_grad_sums  dy, x, saved, [y, if there is an activation]
 *                       -> dgamma, dbeta, sums (3,C) = dgamma, dbeta, number of places,
 *                       [dresidual = dy through the activation]
 *   batch_norm_grad_spread  dy, x, gamma, saved, sums of all shards (V,3,C),
 *                       [y, if there is an activation] -> dx of batch_norm over all shards
 *   conv2d_stats        x, w -> z, saved (2,O), seen_mean (O), seen_variance (O): conv2d without bias and
 *                       activation, and what batch_norm would have of z; stride, pad, groups, epsilon
 *   norm_conv2d         x, w, gamma (C), beta (C), saved (2,C) -> z: conv2d of activation(gamma *
 *                       (x - mean) * rstd + beta), which lies nowhere
 *   norm_conv2d_stats   as norm_conv2d -> z and the others, as conv2d_stats
 *   conv2d_stats_grad   dz, w, x, z, saved, dsaved (2,O)   -> dx, dw: dz is with z's statistics held,
 *                       dsaved what flows back into these
 *   norm_conv2d_grad    dz, w, x, gamma, beta, saved       -> dx, dw, dgamma, dbeta, dsaved (2,C): dx with
 *                       x's statistics held
 *   norm_conv2d_stats_grad  dz, w, x, gamma, beta, saved; z, its saved, its dsaved -> likewise
 *   reorder             x -> y: same shape, other layout (NHWC to plain and back)
 *   dropout             x -> y: kept elements times 1/(1-rate); also its own gradient
 *   softmax_cross_entropy       logits (m,c), labels i32 (m) -> loss (1), probs (m,c)
 *   softmax_cross_entropy_grad  probs, labels              -> dlogits
 *   softmax_loss        logits, labels -> loss (1), correct (1), dlogits (m,c): what softmax_cross_entropy, its gradient
 *                       and accuracy make, bit by bit
 *   mse                 x, target                          -> loss (1)
 *   mse_grad            x, target                          -> dx
 *   accuracy            logits, labels                     -> correct (1): how many rows' first
 *                                                             largest is the label
 *   token_cross_entropy       logits (m,c), labels i32 (m) -> loss (1), lse (m,1): log of the sum
 *                       of the row's exponentials
 *   token_cross_entropy_grad  logits, lse, labels          -> dlogits
 *   token_accuracy      logits, labels                     -> correct (1)
 *   linear_token_loss   x (m,k), w (n,k) plain, labels i32 (m) -> loss (1), correct (1), dx (m,k), dw (n,k) plain:
 *                       of logits x w', and what flows back from the loss
 *   embedding           ids i32 (N,T), w (V,D)             -> y (N,T,D): rows of w; zeros for an
 *                       id below 0, NaN for one from V on
 *   embedding_mean      ids, w                             -> y (N,D): mean of the rows of ids from
 *                       0 on; zeros if there are none
 *   embedding_mean_grad dy (N,D), ids                      -> share (N,D): dy by the number of ids
 *                       that count: what each of their rows gets; zeros if there are none
 *   embedding_grad      dy (N,T,D), or (N,D): a row a sample, ids, [base (V,D)]
 *                       -> dw (V,D): base plus, in the ids' order, each id's row of dy. base may be
 *                       dw's own buffer
 *   rows_sort           ids -> order i32 (N,T,2), begin i32 (ROWS_BLOCKS + 1): pairs of an id in
 *                       [0, attrs.rows) and its row of dy (its place n*T+t; with by_sample n), by id,
 *                       then by place; pairs (-1,-1) for all other ids come last. begin[b] is where
 *                       ids from b * (rows divided by ROWS_BLOCKS, rounded up) on begin, the last
 *                       one how many pairs there are
 *   lstm                gates (N,T,4H), w (4H,H) IO, b (4H), ids i32 (N,T), [state (N,2H)]
 *                       -> y (N,T,H), last (N,2H), acts (N,T,4H), kept (N,T,H), before (N,T,H): a
 *                       layer's steps, given what its input says to the gates i, f, g, o; a state is
 *                       h, then c. A step whose id is negative leaves the state and gives y = 0. For
 *                       backward: acts are the gates as they come out, kept and before the c and the
 *                       h that a step begins with. acts may be gates' own buffer
 *   lstm_grad           acts, w, ids, kept, [dy (N,T,H)], [dlast (N,2H)], at least one of them
 *                       -> dgates (N,T,4H), [dstate (N,2H)]; w's gradient is that of a linear layer,
 *                       of `before` and dgates. dgates may be acts' own buffer
 *   gru                 gates (N,T,3H), w (3H,H) IO, b (3H), ids, [state (N,H)] -> as lstm: gates
 *                       r, z, n; kept is the hidden part of n
 *   gru_grad            acts, w, ids, kept, before, [dy], [dlast (N,H)] -> dgates, dhidden (N,T,3H):
 *                       for the input's part and for the hidden one, [dstate (N,H)]
 *   lstm_attend         as lstm with a state: gates, w, b, ids, state; w_context (4H,E) IO,
 *                       w_query (A,H) IO, v (A), keys (N,S,A), memory (N,S,E), source ids i32 (N,S)
 *                       -> y, last, acts, kept, before as lstm; context (N,T,E), weights (N,T,S),
 *                       query (N,T,A): before each step, of the h it begins with, query = w_query h,
 *                       weights = softmax over the places s whose source id is not negative of
 *                       v . tanh(query + keys_s) (all 0 if there are none), context = sum of
 *                       weights_s memory_s; w_context context is added to the gates
 *   lstm_attend_grad    acts, w, ids, kept, w_context, w_query, v, keys, memory, query, weights, dy
 *                       -> dgates, dstate, dkeys, dmemory, dquery (N,T,A), dv (A); gradients of the
 *                       weights are those of linear layers, of before, context and before
 *   sgd_update          see kernel/update.h (runs over flat ranges)
 *   adam_update, lars_update, lamb_direction, lamb_update   likewise
 *
 * Cross entropies with smoothing s: the label's class weighs 1-s+s/c, every other s/c.
 * loss is the sum over the rows of this call times step->inv_batch; gradients of a
 * loss carry the same factor. mse of a row is the mean over its elements. A row whose
 * label is not a class makes the loss NaN. correct may be f32 or i32. The token ops leave rows with a
 * label below 0 out, whose lse and dlogits are 0.
 * dropout's element e of row r (memory order within the row) is kept if
 * rng_to_float(word) >= rate, word = e%4 of rng_philox(step->seed, { e/4, stream,
 * low 32 bits of position, high 32 bits of position }), position = step->first_sample + r.
 * With attrs.slice x is that slice, and e counts in the whole row.
 * token_cross_entropy with attrs.slice has that slice of the classes: lse is of it, loss means nothing;
 * its gradient takes the lse of all classes.
 */
#ifndef KERNEL_KERNEL_H
#define KERNEL_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/status.h"
#include "tensor/attr.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { KERNEL_IN = 12, KERNEL_OUT = 8, KERNEL_TEXT = 256 };

struct kernel_tensor {
    enum dtype dtype;
    enum layout layout;
    struct shape shape;
};

struct kernel_problem {
    const char *op;
    int n_in, n_out; /* optional ones that are absent at the end are not counted */
    struct kernel_tensor in[KERNEL_IN], out[KERNEL_OUT];
    struct attrs attrs;
    bool
        rounds; /* of a step in bf16 or tf32: where tensors are f32, products may round operands to 10 bits */
};

/* What changes from step to step. */
struct kernel_step {
    uint64_t seed;
    uint64_t first_sample; /* number, since the start of training, of row 0 of this call */
    float inv_batch;       /* 1 / samples of the whole step */
    float scale; /* what inv_batch is multiplied by, in steps of f16's gradients; 0: nothing */
};

/* 1 / samples of the whole step, also of a scaled one: scales are powers of two. */
static inline double kernel_inv_batch(const struct kernel_step *step)
{
    return (double)step->inv_batch / (step->scale > 0 ? (double)step->scale : 1);
}

struct device_stream; /* device.h */

struct kernel_call {
    const struct kernel_problem *problem;
    const void *in[KERNEL_IN];
    void *out[KERNEL_OUT];
    void *scratch;     /* kernel's scratch_bytes, aligned to 64; contents undefined */
    void *state;       /* what prepare made, or NULL */
    struct pool *pool; /* threads to share the work, or NULL: run in this thread alone */
    const struct kernel_step *step;
    struct device_stream *stream; /* on a device: what to run on; NULL on the CPU */
};

struct kernel {
    const char *op;
    const char *name; /* "reference", "own", "amx", "winograd", "onednn", ... */
    /* Can this kernel solve the problem, on this processor? NULL: every legal problem. */
    bool (*can_run)(const struct kernel_problem *problem);
    /* Bytes of scratch a call needs. NULL: none. */
    size_t (*scratch_bytes)(const struct kernel_problem *problem);
    /* Makes what is worth keeping between calls (library primitives). Each call site of each
     * thread has its own state. NULL: nothing. */
    MUST_CHECK enum status (*prepare)(const struct kernel_problem *problem, void **out_state);
    void (*release)(void *state);
    /* Runs. Inputs and outputs do not overlap, except that where an output has the same type
     * and shape as input 0 in an elementwise op (bias, activations and their
     * gradients, add, add_positions, dropout) or token_cross_entropy_grad they may be the same buffer, and so may
     * the output and the base of embedding_grad, conv1d_max_grad_input and layer_norm_grad. Must not allocate. */
    void (*run)(const struct kernel_call *call);
};

/* The i-th kernel of the CPU for kernel_isa(), NULL past the last: every op has "reference". */
const struct kernel *kernel_at(size_t i);

/* By op and name; NULL if there is none. */
const struct kernel *kernel_find(const char *op, const char *name);

/* "amx", "avx512", "avx2" or "generic": what this processor offers, or less if TUTTI_ISA says so. */
const char *kernel_isa(void);
/* Are there quick kernels of convolutions that do batch norms? The reference is slower than the parts. */
bool kernel_joins_norms(void);

/* The problem in one line, the key of the table of choices: op, shapes of the inputs, "->" and
 * those of the outputs if the op is a gradient, attributes. Such as
 * "linear 32x784 250x784 250 relu", "linear 32x768 50257x768 plain" and
 * "conv2d_grad_input 8x16x14x14 16x6x5x5 -> 8x6x14x14 stride 1x1 pad 2x2". Returns `text`. */
const char *kernel_print(const struct kernel_problem *problem, char text[KERNEL_TEXT]);
/* Reads such a line and works out types, layouts and outputs; refuses an illegal problem with
 * the reason. out->op points to a constant. What is not in the line (rate, stream, epsilon, smoothing) is
 * zero. */
MUST_CHECK enum status kernel_parse(const char *text, struct kernel_problem *out);
/* Is the problem one of the list above, its shapes in agreement? */
MUST_CHECK enum status kernel_check(const struct kernel_problem *problem);

/* The same problem with every sequence (samples, places, features) as a matrix of rows, and labels of
 * places as a list: for ops to which rows are rows. Images stay. */
void kernel_as_matrices(struct kernel_problem *problem);

/* The choice --------------------------------------------------------------------------- */

struct kernel_choices; /* the table of choices; immutable once made */

/* The built-in table with the lines of `path` (written by `tutti bench tune`) laid over it;
 * path NULL is the built-in table alone. A file for another instruction set is ignored. */
MUST_CHECK enum status kernel_choices_load(const char *path, struct kernel_choices **out);
/* The same without kernels that compute something other than plain sums and round more, whatever
 * rules and lines say: "winograd", whose results are off by some 1e-5 of the largest value. */
MUST_CHECK enum status kernel_choices_load_exact(const char *path, struct kernel_choices **out);
/* The same with lines of a device (device.h) over what it does by itself; here they change nothing. A file for another
 * device, or a processor, is ignored. */
MUST_CHECK enum status kernel_choices_load_device(const char *device, const char *path,
                                                  struct kernel_choices **out);
void kernel_choices_destroy(struct kernel_choices *choices);
/* SHA-256 over everything that decides a choice, 64 hexadecimal digits. */
const char *kernel_choices_hash(const struct kernel_choices *choices);
/* The kernel for a problem: the user's line, else the built-in rule, else the first that can
 * run in the order own, onednn, openblas, reference. Fails only for an unknown op. */
MUST_CHECK enum status kernel_choose(const struct kernel_choices *choices,
                                     const struct kernel_problem *problem,
                                     const struct kernel **out);

#ifdef __cplusplus
}
#endif

#endif /* KERNEL_KERNEL_H */
