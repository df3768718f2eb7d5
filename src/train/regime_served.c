/* SPDX-License-Identifier: MIT */
/* regime_served.c - workers push gradients to parameter servers, which update (served.h, ps/).
 *
 * A rank is a server, which only serves, or a worker with a private executor. Worker 0 alone tells
 * and saves what the servers have, and all meet at the end. Workers that wait for each other share
 * evaluations; else worker 0 evaluates. In a grid the ranks of the first copy of the model do all
 * that together, and the flags of a rank go to the ranks of its copy before they go to servers.
 */
#include "train/regime_served.h"

#include "base/mem.h"

static bool is_for(const struct job *job, uint64_t step)
{
    (void)step;
    return job->axes.servers > 0 && job->axes.sync != SYNC_ELASTIC;
}

static struct served *served_of(const struct rank *rank)
{
    return ((const struct worker *)rank->own)->served;
}

/* Start ---------------------------------------------------------------------------------- */

/* Groups take tags of the job, so servers make one, too. */
static enum status join_evaluators(struct rank *rank)
{
    struct worker *worker = rank->own;
    const int workers = (int)rank->job->settings.ranks;
    const int first = rank->role.is_server ? workers : 0;
    const int count = rank->role.is_server ? rank->job->axes.servers : workers;
    int members[PS_WORKERS];

    for (int i = 0; i < count; i++)
        members[i] = first + i;
    TRY(transport_group_create(rank->transport, members, count, &worker->group));
    return rank->role.is_server ? STATUS_OK
                                : comm_create(worker->group, NULL, &worker->evaluators);
}

enum status worker_join(struct rank *rank)
{
    struct worker *worker;

    TRY(mem_alloc(1, sizeof *worker, &worker));
    rank->own = worker;
    worker->tag = transport_new_tags(rank->transport, 1);
    rank->role.is_server = served_is_server(rank->job, rank->transport);
    return served_evaluates_together(rank->job) ? join_evaluators(rank) : STATUS_OK;
}

void worker_describe(const struct job *job, int rank, struct exec_config *config)
{
    const bool is_grid = axes_are_a_grid(&job->axes);

    config->rows = NULL;
    config->part = served_part_of(job, is_grid ? axes_place_of(&job->axes, rank).dp : rank);
}

static void describe(const struct job *job, int rank, struct exec_config *config)
{
    static const struct exec_remote pretended = { 0 };

    worker_describe(job, rank, config);
    config->remote = &pretended;
}

enum status worker_create(struct rank *rank, bool pushes)
{
    struct worker *worker = rank->own;
    struct exec_config config = rank_exec_config(rank);

    TRY(private_comm_create(&worker->comm));
    TRY(served_create(rank->job, rank->run->hooks, rank->transport, &worker->served));
    TRY(grid_create(rank->job, rank->transport, &rank->grid));
    grid_configure(rank->grid, &config);
    rank->role.leads = rank->grid ? grid_leads(rank->grid) : rank->is_first;
    rank->role.evaluates = rank->role.leads || worker->evaluators;
    config.comm = worker->comm.comm;
    config.rows = NULL;
    config.part = served_part(worker->served);
    config.remote = pushes ? served_remote(worker->served) : NULL;
    config.evaluators = worker->evaluators;
    TRY(exec_create(&config, &rank->exec));
    return served_verify(worker->served, exec_program(rank->exec));
}

static enum status create(struct rank *rank)
{
    return worker_create(rank, true);
}

static enum status begin(struct rank *rank)
{
    struct served *served = served_of(rank);

    TRY(served_begin(served, rank->exec, rank->run->first_step, &rank->begins));
    rank->role.is_unneeded = served_place(served) < 0;
    return STATUS_OK;
}

void worker_leave(struct rank *rank)
{
    struct worker *worker = rank->own;

    if (!worker)
        return;
    served_destroy(worker->served);
    worker->served = NULL;
}

void worker_destroy(struct rank *rank)
{
    struct worker *worker = rank->own;

    if (!worker)
        return;
    comm_destroy(worker->evaluators);
    transport_group_destroy(worker->group);
    private_comm_destroy(&worker->comm);
    mem_free(worker);
}

/* Steps ---------------------------------------------------------------------------------- */

enum status worker_step(struct rank *rank, const struct batch *batch, struct exec_result *out)
{
    transport_note(rank->transport, rank->step, "a step of its own");
    if (rank->grid)
        exec_say(rank->exec, rank_wishes(rank));
    return exec_step(rank->exec, batch, out);
}

/* Results of a worker are heard of with ticks. */
static enum status late_result(struct rank *rank, const struct exec_result *result,
                               double seconds)
{
    (void)seconds;
    return rank_check_loss(rank, result);
}

/* Worker 0 tells nobody that it is time for a checkpoint. */
void worker_hear(struct rank *rank, const struct served_heard *heard, uint32_t wish,
                 struct exec_result *result)
{
    struct worker *worker = rank->own;

    *result = heard->result;
    rank->counts.samples += heard->count.samples;
    rank->counts.tokens += heard->count.weight;
    rank->heard = heard->result.heard | (wish & SAVE);
    rank->next = heard->next;
    worker->spread = (double)(heard->high - heard->low);
}

static enum status after_step(struct rank *rank, const struct batch *batch,
                              struct exec_result *result)
{
    const uint32_t wish = rank->grid ? result->heard : rank_wishes(rank);
    struct served_heard heard;

    TRY(served_tick(served_of(rank), batch, result, wish & (STOP | BY_HAND), &heard));
    worker_hear(rank, &heard, wish, result);
    return STATUS_OK;
}

enum status worker_meet(struct rank *rank)
{
    TRY(served_meet(served_of(rank)));
    if (!rank->is_first)
        return STATUS_OK;
    const struct served_count rest = served_rest(served_of(rank));
    rank->counts.samples += rest.samples;
    rank->counts.tokens += rest.weight;
    return STATUS_OK;
}

/* What the servers have is the result. */
static enum status end(struct rank *rank)
{
    TRY(worker_meet(rank));
    return rank->role.leads ? served_collect(served_of(rank)) : STATUS_OK;
}

/* Metrics -------------------------------------------------------------------------------- */

/* What servers tell comes late and in lumps: the rate is that of the last two intervals. */

void worker_add_metrics(struct rank *rank, struct metrics *m)
{
    struct worker *worker = rank->own;
    const struct served_times now = served_times(worker->served), then = worker->at_line;

    if (rank->line.tally.seconds > 0) {
        m->wait_share += (now.wait - then.wait) / rank->line.tally.seconds;
        m->wait_share = watch_share(m->wait_share, 1);
        m->wire_share = watch_share(now.move - then.move, rank->line.tally.seconds);
    }
    m->bytes_sent = now.bytes - then.bytes;
    m->clock_spread = worker->spread;
    worker->at_line = now;
}

void worker_print_summary(const struct rank *rank, struct strbuf *out)
{
    served_print(served_of(rank), out);
}

/* A worker's times, at the number that the job has for its part of the work. */
static enum status receive_times(const struct rank *rank, int w, struct rank_times *all)
{
    const uint32_t tag = ((const struct worker *)rank->own)->tag;
    int64_t place;

    TRY(transport_receive(rank->transport, w, tag, &place, sizeof place));
    if (place == -1)
        return STATUS_OK; /* a spare that nobody needed */
    if (place < 1 || place >= rank->job->settings.ranks)
        return FAIL(STATUS_CORRUPT, "rank %d says it is worker %lld", w, (long long)place);
    return transport_receive(rank->transport, w, tag, &all[place], sizeof *all);
}

static enum status send_times(const struct rank *rank, const struct rank_times *times)
{
    const struct worker *worker = rank->own;
    const int64_t place =
        rank->grid ? transport_rank(rank->transport) : served_place(worker->served);

    served_note_meeting(worker->served, "place");
    TRY(transport_send(rank->transport, 0, worker->tag, &place, sizeof place));
    if (!times)
        return STATUS_OK;
    served_note_meeting(worker->served, "times");
    return transport_send(rank->transport, 0, worker->tag, times, sizeof *times);
}

/* A worker that is lost, also after its last step, has none. What a client of servers does is no
 * work of a lane's, but for ticks. */
enum status worker_gather_times(struct rank *rank, struct rank_times *times,
                                struct rank_times *all)
{
    const struct served *served = served_of(rank);
    const struct settings *s = &rank->job->settings;

    if (times) {
        const struct served_times own = served_times(served);
        times->wait += own.wait;
        times->wire = own.move;
        times->bytes = own.bytes;
    }
    if (!rank->is_first)
        return send_times(rank, times);
    BUG_ON(!times); /* worker 0 is always needed */
    all[0] = *times;
    for (int w = 1; w < s->ranks + s->spares; w++) {
        if (!served_hears_from(served, w))
            continue;
        const enum status status = receive_times(rank, w, all);
        if (status != STATUS_PEER_LOST || !transport_lost(rank->transport, w, NULL))
            TRY(status);
    }
    return STATUS_OK;
}

/* Worker 0 has what servers have. */
enum status worker_hash(struct rank *rank, char out[65])
{
    if (rank->grid)
        return grid_hash(rank->grid, rank->exec, out);
    return rank->is_first ? exec_hash(rank->exec, out) : STATUS_OK;
}

/* Checkpoints ---------------------------------------------------------------------------- */

static enum status gather(struct rank *rank, struct tally *epoch)
{
    (void)epoch;
    TRY(served_collect(served_of(rank)));
    rank_take_copy(rank);
    return STATUS_OK;
}

const struct regime regime_served = {
    .is_for = is_for,
    .is_private = true,
    .join = worker_join,
    .describe = describe,
    .create = create,
    .begin = begin,
    .step = worker_step,
    .late_result = late_result,
    .after_step = after_step,
    .end = end,
    .leave = worker_leave,
    .destroy = worker_destroy,
    .rate = rank_rate,
    .add_metrics = worker_add_metrics,
    .print_summary = worker_print_summary,
    .gather_times = worker_gather_times,
    .hash = worker_hash,
    .evaluate = rank_evaluate,
    .gather = gather,
};
