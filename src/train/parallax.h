/* SPDX-License-Identifier: MIT */
/* parallax.h - what the strategy parallax decides by: the network, and how many rows of tables occur. */
#ifndef TRAIN_PARALLAX_H
#define TRAIN_PARALLAX_H

#include "comm/comm.h"
#include "pass/pass.h"

struct job;

enum { PARALLAX_TABLES = 8 };

struct parallax {
    enum pass_way way; /* --tables; PASS_WAYS: the cheapest */
    struct pass_network network;
    struct pass_table tables[PARALLAX_TABLES];
    int n_tables;
    struct pass_choices chosen;
};

/* What --tables says; until something is measured, every rank is a machine on a usual network. */
MUST_CHECK enum status parallax_parse(const char *text, int ranks, struct parallax *out);
/* Collective, before exec_create: if the job's strategy is parallax, measures the network between its machines and
 * counts rows in the data; every rank then makes its graph again by what rank 0 found. */
MUST_CHECK enum status parallax_measure(struct job *job, struct comm *comm);

/* What was decided, in a line. */
void parallax_print(const struct job *job, char *out, size_t size);

#endif /* TRAIN_PARALLAX_H */
