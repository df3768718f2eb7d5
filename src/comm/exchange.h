/* SPDX-License-Identifier: MIT */
/* exchange.h - who sends what to whom, where each member of a group owns a part of a vector.
 *
 * reduce_scatter: everyone has partial sums of the whole vector, one or several, and sends those of
 * each part to its owner, who adds what came. all_gather: everyone sends its own part to all
 * others. With three members of one partial sum each, a b c, and parts 0 1 2:
 *
 *   part      start      after reduce_scatter     sums          all_gather
 *    0      a0  b0  c0   member 0: a0 b0 c0    (a0+b0)+c0      everyone has
 *    1      a1  b1  c1   member 1: a1 b1 c1    (a1+b1)+c1      all three
 *    2      a2  b2  c2   member 2: a2 b2 c2    (a2+b2)+c2
 *
 * These functions make lists. The caller begins the transfers, all at once or some later; the order
 * of additions is that of kernel/tree.h.
 *
 * In a list receives stand before sends, and member m's first send is to m + 1, so that not all
 * send to one first. Empty parts are left out. Between two members transfers of both lists stand in
 * one order: by partial sum.
 */
#ifndef COMM_EXCHANGE_H
#define COMM_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>

struct exchange_member {
    size_t at, count; /* its part of the vector, in any unit */
    int sums; /* partial sums that it has of every part; of an all_gather not looked at */
};

struct exchange_transfer {
    int member; /* the other one */
    bool is_send;
    int sum;          /* of the sender's; of an all_gather 0 */
    size_t at, count; /* of the vector */
};

/* Fill `out` with what member `own` of `n` does, and return how many that are: at most
 * exchange_most of reduce_scatter, 2 (n - 1) of all_gather. */
int exchange_reduce_scatter(const struct exchange_member *members, int n, int own,
                            struct exchange_transfer *out);
int exchange_all_gather(const struct exchange_member *members, int n, int own,
                        struct exchange_transfer *out);
int exchange_most(const struct exchange_member *members, int n, int own);

#endif /* COMM_EXCHANGE_H */
