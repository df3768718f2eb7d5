/* SPDX-License-Identifier: MIT */
/* server_privacy.c - what rounds spend, noise of the coordinator's own, the clip that moves. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fed/server_state.h"

enum status server_start_privacy(struct fed_server *server)
{
    const struct fed_terms *terms = server->terms;

    if (!*terms->dp)
        return STATUS_OK;
    server->dp = (struct dp_config){
        .place = strcmp(terms->dp, "central") == 0 ? DP_CENTRAL : DP_DISTRIBUTED,
        .clip = terms->clip,
        .noise = terms->noise,
        .adaptive = terms->clip_quantile > 0,
        .quantile = terms->clip_quantile,
        .rate = terms->clip_lr,
        .epsilon = terms->epsilon > 0 ? terms->epsilon : (double)INFINITY,
        .delta = terms->delta,
    };
    server->clip = terms->clip;
    TRY(dp_check(&server->dp));
    return ledger_create(server->dp.epsilon, terms->delta, &server->ledger);
}

/* What a round claims. Who is chosen by a share of those that are there is one of a sample; if all are, nothing is gained.
 * All rounds are for the same neighbours: with a fixed number one is replaced, also where no more than these were there. */
static struct ledger_entry entry_of(const struct fed_server *server, double chance,
                                    double multiplier, int participants)
{
    const bool fixed = server->terms->per_round > 0;

    return (struct ledger_entry){ .round = (uint64_t)server->round,
                                  .sampling = fixed         ? SAMPLING_FIXED
                                              : chance >= 1 ? SAMPLING_ALL
                                                            : SAMPLING_POISSON,
                                  .q = chance >= 1 ? 1 : chance,
                                  .noise = multiplier,
                                  .releases = 1,
                                  .survivors = (uint32_t)participants };
}

/* The refusal, and with how much noise all rounds would have stayed within the budget. */
static enum status advise(const struct fed_server *server, const struct ledger_entry *entry)
{
    const struct fed_terms *terms = server->terms;
    char refusal[FED_WHY];
    double noise;

    snprintf(refusal, sizeof refusal, "%s", status_message());
    if (accountant_noise(entry->sampling, entry->q, (uint64_t)terms->rounds, terms->epsilon,
                         terms->delta, &noise) != STATUS_OK)
        return FAIL(STATUS_STOPPED, "%s", refusal);
    return FAIL(STATUS_STOPPED, "%s; %lld rounds need --dp-noise %.3g", refusal,
                (long long)terms->rounds, noise);
}

enum status server_check_budget(struct fed_server *server, double chance, int participants)
{
    if (!server->ledger)
        return STATUS_OK;
    const struct ledger_entry entry =
        entry_of(server, chance, server->terms->noise, participants);
    const enum status status = ledger_allows(server->ledger, &entry);
    return status == STATUS_STOPPED ? advise(server, &entry) : status;
}

enum status server_spend(struct fed_server *server, double multiplier, int participants)
{
    const struct ledger_entry entry =
        entry_of(server, server->chance, multiplier, participants);

    TRY(ledger_add(server->ledger, &entry));
    ledger_entry_write(&entry, &server->ledger_text);
    strbuf_add(&server->ledger_text, "\n");
    return strbuf_status(&server->ledger_text);
}

/* By how much a step of a secure round's sum moves a vector of so many values at most: stochastic rounding moves each by less
 * than a step. 0: nothing is rounded. */
static double rounding(const struct fed_server *server, size_t length)
{
    return server->terms->secure ? server->shape.quantize.step * sqrt((double)length) : 0;
}

enum status server_add_noise(struct fed_server *server, double *sum, size_t length, double bits,
                             int participants)
{
    uint8_t key[NOISE_KEY];
    struct noise source;

    TRY(server->config.entropy(server->config.arg, key, sizeof key));
    noise_init(&source, key);
    enum status status = dp_add(&source, server->clip + rounding(server, length),
                                dp_multiplier(&server->dp), sum, length);
    if (status == STATUS_OK && server->dp.adaptive) /* bits went as shares of the range */
        status = dp_add(&source, 0.5 + rounding(server, 1) / server->terms->range,
                        dp_bit_multiplier(&server->dp), &bits, 1);
    noise_release(&source);
    TRY(status);
    if (server->dp.adaptive)
        server->clip = dp_adapt(&server->dp, server->clip, bits, server->expected);
    return server_spend(server, server->dp.noise, participants);
}
