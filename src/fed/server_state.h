/* SPDX-License-Identifier: MIT */
/* server_state.h - what the coordinator's engine is made of. Private to fed/server*.c.
 *
 * A round goes from idle (nobody is chosen yet) through its stages to its end, which is a commit. `round` counts all
 * that were begun, lost ones too; `done` those that moved the model.
 */
#ifndef FED_SERVER_STATE_H
#define FED_SERVER_STATE_H

#include "fed/accountant.h"
#include "fed/algorithm.h"
#include "fed/cohorts.h"
#include "fed/dp.h"
#include "fed/secure.h"
#include "fed/server.h"

/* Kinds of records that are the server's own decisions. */
enum { RECORD_HELLO = 100, RECORD_COHORT, RECORD_CLOSE };

/* A participant that said hello. Sorted by name. */
struct member {
    char name[FED_NAME];
    uint64_t samples;
    char *labels; /* "[12, 0]": how often each occurs there; owned; NULL: it does not tell */
    double seen;  /* when it was last heard; -INFINITY: not since the start */
    int64_t last_given; /* round of its last update that counted; -1: none */
    bool is_away;       /* fedbuff: it has a task */
    bool is_gone;       /* dismissed: not waited for */
    /* Of the running round. */
    int place;     /* in the cohort, by name; -1: not in it */
    uint8_t *gift; /* of the stage train; owned; NULL: none yet */
    size_t gift_length;
    uint64_t gift_samples; /* that it was made from */
    int64_t gift_round;    /* fedbuff: of the parameters that it is an update of */
    double gift_norm;
    int64_t
        refused; /* the last round in which its update was refused: it is not asked again; -1: none */
};

/* What a round is remembered by. */
struct round_score {
    int participants; /* whose updates counted */
    uint64_t samples;
    double loss, accuracy;         /* training; NaN: unknown */
    double val_loss, val_accuracy; /* of participants */
    double norm;                   /* of the mean update */
    double
        cut_off; /* secure rounds: share of the elements of updates that were cut off at the range */
    double clip;
};

struct fed_server {
    struct fed_server_config config;
    const struct fed_terms *terms;
    const struct fed_algorithm *algorithm;
    struct fed_aggregation aggregation;
    struct codec_state *codec; /* decodes updates; NULL: not compressed */
    char *text;                /* the terms, as they are sent */
    uint8_t terms_hash[32];
    size_t length;     /* of the vector that crosses: without a personal head */
    float *parameters; /* `config.length` */
    float *control;    /* SCAFFOLD's c; NULL: none */
    float *state[FED_STATES];
    struct fed_range *averages;
    int n_averages;
    float *statistics;   /* NULL: not known, or not asked for */
    float *ranges;       /* of secure sums over rows; NULL: not known, or not needed */
    size_t n_statistics; /* 0: not asked for */

    struct member *members;
    int n_members, capacity;

    int64_t round, done;
    bool is_running;
    enum fed_stage stage;
    int *cohort; /* members that take part, by name */
    int n_cohort;
    double chance;   /* by which members were chosen, for the accountant */
    double expected; /* participants, whoever comes */
    double stage_since;
    double created;
    double round_since;
    struct secagg_server *secagg; /* of a secure round */
    struct secure_shape shape;
    struct cohorts *cohorts; /* sets of members whose sums were asked for */
    bool is_replaying;
    bool
        closes; /* replaying: the open stage was closed by its deadline, after what was replayed so far */

    struct dp_config dp;
    double clip; /* of this round; adaptive ones move */
    struct ledger *ledger;
    struct strbuf ledger_text; /* a line an entry */

    char why[FED_WHY];  /* why it ended; "": it goes on, or all rounds are done */
    int64_t n_lost;     /* rounds, since the start */
    char lost[FED_WHY]; /* why the last of them was */
    char
        waits[FED_WHY]; /* why no round begins, though enough are there; "": nothing is wrong */
    enum status failure; /* the first of its own; STATUS_OK: none */
    char failure_why[FED_WHY];
    uint64_t whole,
        most; /* samples of the cohort and of its largest member, as the round began */
    double bytes_in, bytes_out;
    double round_in, round_out; /* of the running round */
};

/* server.c */
struct member *server_member(const struct fed_server *server, const char *name);
MUST_CHECK enum status server_audit(struct fed_server *server, const char *client,
                                    const char *format, ...) PRINTF_LIKE(3, 4);
/* A record and its line of the audit log. */
MUST_CHECK enum status server_append(struct fed_server *server, int kind, const char *client,
                                     const struct fed_buffer *bytes, const char *format, ...)
    PRINTF_LIKE(5, 6);

/* server_round.c: choosing, aggregating, moving. */
bool server_is_live(const struct fed_server *server, const struct member *member);
int server_live(const struct fed_server *server);
/* Begins a round if enough participants are there and the budget allows it. */
MUST_CHECK enum status server_begin(struct fed_server *server);
void server_begin_buffered(struct fed_server *server);
/* Asynchronous: could a round whose buffer is not full count? */
bool server_has_enough(const struct fed_server *server);
/* Has it started so lately that those it has not heard may still be at work? */
bool server_may_come_back(const struct fed_server *server);
MUST_CHECK enum status server_take_cohort(struct fed_server *server, const void *bytes,
                                          size_t length);
/* Numbers of the round's local training. */
void server_fill_work(const struct fed_server *server, struct fed_work *work);
/* Is this a legal update of the round? Then its norm. */
MUST_CHECK enum status server_check_gift(struct fed_server *server, const void *bytes,
                                         size_t length, double *norm);
/* The stage train of a plain round is over. */
MUST_CHECK enum status server_end_plain(struct fed_server *server);
/* Moves the model by the mean of updates, and of changes of control variates. */
MUST_CHECK enum status server_move(struct fed_server *server, const float *update,
                                   const float *control, struct round_score *score);
/* Is it asynchronous: not one that is about statistics? */
bool server_is_buffered(const struct fed_server *server);
/* Is the round that runs, or comes next, about statistics? */
bool server_asks_statistics(const struct fed_server *server);
/* Who wants to know hears them. */
void server_tell_statistics(struct fed_server *server);
/* They are known: the sum of `values` times `by`. */
MUST_CHECK enum status server_take_statistics(struct fed_server *server, const double *values,
                                              double by);
/* The round is lost: it changes nothing. */
MUST_CHECK enum status server_lose(struct fed_server *server, const char *why);

/* server_state.c: commits and what is read back from them. */
MUST_CHECK enum status server_commit(struct fed_server *server, const struct round_score *score,
                                     const char *lost);
MUST_CHECK enum status server_load(struct fed_server *server, const struct fed_commit *commit);

/* server_privacy.c */
MUST_CHECK enum status server_start_privacy(struct fed_server *server);
/* May a round begin? STATUS_STOPPED if the budget does not allow it. */
MUST_CHECK enum status server_check_budget(struct fed_server *server, double chance,
                                           int participants);
/* Central: noise on a sum of clipped updates of so many participants, what that spends, and the clip of the next round. bits: sum
 * of dp_bit. */
MUST_CHECK enum status server_add_noise(struct fed_server *server, double *sum, size_t length,
                                        double bits, int participants);
/* The entry of a round that is over. multiplier: the noise that really was there. */
MUST_CHECK enum status server_spend(struct fed_server *server, double multiplier,
                                    int participants);

/* server_secure.c */
/* What a round of so many would be like. STATUS_USAGE with the reason if there can be none. */
MUST_CHECK enum status server_secure_shape(const struct fed_server *server,
                                           uint32_t participants, struct secure_shape *out);
MUST_CHECK enum status server_begin_secure(struct fed_server *server);
/* May the live members that are marked be summed, beside the sums of earlier rounds? STATUS_MISMATCH: not, with the
 * reason. */
MUST_CHECK enum status server_check_chosen(const struct fed_server *server, const bool *chosen);
/* The task of the open stage for a member; appended. */
MUST_CHECK enum status server_secure_task(struct fed_server *server,
                                          const struct member *member, struct fed_buffer *out);
/* Is somebody expected to give something in the open stage? */
bool server_secure_expects(const struct fed_server *server, const struct member *member);
/* Has it given its answer of a stage? */
bool server_secure_has(const struct fed_server *server, const struct member *member,
                       enum fed_stage stage);
MUST_CHECK enum status server_secure_hear(struct fed_server *server,
                                          const struct member *member, enum fed_stage stage,
                                          const void *bytes, size_t length);
/* Ends the open stage; the last one ends the round. */
MUST_CHECK enum status server_secure_close(struct fed_server *server);
bool server_secure_is_complete(const struct fed_server *server);

#endif /* FED_SERVER_STATE_H */
