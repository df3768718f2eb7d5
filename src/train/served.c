/* SPDX-License-Identifier: MIT */
/* served.c - joins a worker's executor with a client of the parameter servers. */
#include "train/served.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "exec/vectors.h"
#include "graph/op.h"
#include "sched/verify.h"
#include "train/folder.h"
#include "train/grid.h"
#include "train/on_device.h"

enum { GROUP_TAGS = 4 }; /* of what ps/ takes */

/* What servers and workers agree on, made from the job alone, so that all have the same. */
struct agreement {
    struct vectors vectors;
    struct ps_table tables[GRAPH_NODE_IN];
    struct ps_update updates[GRAPH_NODE_IN];
    int64_t rows[PS_WORKERS + 1];
    struct ps_param *params; /* of the model, for their norm */
    int n_params;
    struct ps_config config;
};

struct served {
    const struct job *job;
    const struct train_hooks *hooks;
    struct transport *transport; /* of the job */
    struct transport *group;     /* of this place's workers and all servers, or NULL: that */
    uint32_t tag;                /* of statistics */
    struct agreement agreement;
    struct ps_client *client; /* when joined */
    struct exec *exec;
    bool has_begun;
    int place; /* among the workers; -1: it was not needed */
    struct exec_remote remote;
    struct ps_tick heard;  /* of all clocks, when workers were last heard of */
    double waited;         /* seconds, for others at ticks and exchanges */
    struct ps_stats stats; /* worker 0, after served_meet */
};

/* The job as servers see it -------------------------------------------------------------- */

/* How workers and servers wait for each other: as the step's pushes and pulls say. */
struct synchrony {
    enum ps_policy policy;
    int bound; /* PS_BOUNDED */
};

/* Every node of a kind says the same (pass/synchrony.c). NULL: there is none. */
static const struct node *first_node(const struct graph *graph, const struct op *op)
{
    for (int n = 0; n < graph_node_count(graph); n++) {
        if (graph_node(graph, n)->op == op)
            return graph_node(graph, n);
    }
    return NULL;
}

static struct synchrony synchrony_of(const struct graph *graph)
{
    const struct node *push = first_node(graph, &op_push), *pull = first_node(graph, &op_pull);

    if (first_node(graph, &op_center_pull)) /* workers update */
        return (struct synchrony){ .policy = PS_CENTER };
    if (!push || !pull) /* a stage of a pipeline without parameters */
        return (struct synchrony){ .policy = PS_STEP };
    BUG_ON(push->attrs.when == WHEN_UNSTATED || pull->attrs.when == WHEN_UNSTATED);
    return (struct synchrony){ .policy = push->attrs.when == WHEN_STEP      ? PS_STEP
                                         : pull->attrs.when == WHEN_BOUNDED ? PS_BOUNDED
                                                                            : PS_ASYNC,
                               .bound = pull->attrs.bound };
}

/* Worker w's first shard, as exec_create shares them out. */
static int64_t first_shard(const struct job *job, int w)
{
    const int64_t workers = job->axes.dp;

    BUG_ON(workers < 1);
    return job->balance.is_used ? job->balance.rows[w] : w * job->settings.shards / workers;
}

/* Lists of rows that a row of `count` shards makes at most: one a node of the tree. */
static int64_t lists_of(int64_t count)
{
    int64_t lists = 1;

    for (; count > 1; count = (count + 1) / 2)
        lists += 2;
    return lists;
}

/* Rows of a table that a worker pushes at most. */
static int64_t most_rows(const struct job *job, const struct bucket *bucket)
{
    int64_t shards = 0;

    for (int w = 0; w < job->axes.dp; w++) {
        const int64_t own = first_shard(job, w + 1) - first_shard(job, w);
        shards = own > shards ? own : shards;
    }
    const int64_t by_ids = bucket->most * shards, by_rows = bucket->rows * lists_of(shards);
    return by_ids < by_rows ? by_ids : by_rows;
}

static enum status list_params(const struct graph *graph, struct agreement *out)
{
    struct vectors_param *params;

    TRY(vectors_list_params(graph, &params, &out->n_params));
    const enum status status =
        mem_alloc((size_t)out->n_params + 1, sizeof *out->params, &out->params);
    for (int i = 0; i < out->n_params && status == STATUS_OK; i++)
        out->params[i] = (struct ps_param){ params[i].bucket, params[i].at, params[i].count };
    mem_free(params);
    return status;
}

static void release_agreement(struct agreement *agreement)
{
    mem_free(agreement->params);
    agreement->params = NULL;
}

/* Places of a grid whose ranks hold different parameters; 1: all hold the same. */
static int count_places(const struct job *job)
{
    return axes_are_a_grid(&job->axes) ? job->axes.tp * job->axes.pp : 1;
}

static struct axes_place place_at(const struct job *job, int number)
{
    return (struct axes_place){ .tp = number % job->axes.tp, .pp = number / job->axes.tp };
}

/* graph: of the place whose workers these are. */
static enum status agree(const struct job *job, const struct graph *graph,
                         struct transport *transport, struct agreement *out)
{
    const struct settings *s = &job->settings;
    const struct synchrony synchrony = synchrony_of(graph);
    struct vectors *vectors = &out->vectors;

    TRY(vectors_read(graph, &job->optim, vectors));
    TRY(list_params(graph, out));
    for (int b = 0; b < vectors->count; b++) {
        const struct bucket *bucket = &vectors->buckets[b];
        out->tables[b] = (struct ps_table){ .rows = bucket->rows, .width = bucket->width };
        if (bucket->width)
            out->tables[b].most = most_rows(job, bucket);
        out->updates[b] =
            (struct ps_update){ bucket->kernel, bucket->attrs, bucket->is_average };
    }
    for (int w = 0; w <= job->axes.dp; w++)
        out->rows[w] = first_shard(job, w);
    out->config = (struct ps_config){
        .transport = transport,
        .workers = job->axes.dp + (int)s->spares,
        .spares = (int)s->spares,
        .servers = job->axes.servers,
        .replicas = (int)s->replicas,
        .layout = { .buckets = vectors->count,
                    .begin = vectors->begin,
                    .tables = out->tables,
                    .updates = out->updates,
                    .n_states = vectors->n_states,
                    .params = out->params,
                    .n_params = out->n_params },
        .optim = job->optim,
        .shards = s->shards,
        .rows = out->rows,
        .policy = synchrony.policy,
        .bound = synchrony.bound,
        .backup = (int)s->backup,
        .staleness_lr = s->staleness_lr,
        .alpha = job->axes.alpha,
        .stall_timeout = s->stall_timeout,
    };
    return STATUS_OK;
}

/* The same, with the graph of a place. */
static enum status agree_at(const struct job *job, int place, struct transport *transport,
                            struct agreement *out)
{
    struct graph *graph;

    if (!axes_are_a_grid(&job->axes))
        return agree(job, job->graph, transport, out);
    TRY(job_graph_at(job, place_at(job, place), &graph));
    const enum status status = agree(job, graph, transport, out);
    graph_destroy(graph);
    return status;
}

enum status served_check(const struct job *job)
{
    struct agreement *agreement;
    enum status status = STATUS_OK;

    if (job->settings.ranks + job->settings.spares > PS_WORKERS)
        return FAIL(STATUS_USAGE, "-n %lld: at most %d workers have servers, spares included",
                    (long long)job->settings.ranks, PS_WORKERS);
    TRY(mem_alloc(1, sizeof *agreement, &agreement));
    for (int place = 0; place < count_places(job) && status == STATUS_OK; place++) {
        status = agree_at(job, place, NULL, agreement);
        if (status == STATUS_OK)
            status = ps_check(&agreement->config);
        release_agreement(agreement);
    }
    mem_free(agreement);
    return status;
}

/* Groups --------------------------------------------------------------------------------- */

/* Collective, of all ranks: the group of a place's workers and the servers, in that order, if this
 * rank is in it; else NULL. */
static enum status make_group(const struct job *job, int place, struct transport *transport,
                              struct transport **out)
{
    const struct axes *axes = &job->axes;
    const int workers = axes->dp * axes->tp * axes->pp, own = transport_rank(transport);
    int members[AXES_RANKS + PS_SERVERS];
    bool is_in = false;

    *out = NULL;
    const int first = axes_rank_at(axes, place_at(job, place));
    const int n_workers = axes_group(axes, first, AXIS_DP, members);
    for (int s = 0; s < axes->servers; s++)
        members[n_workers + s] = workers + s;
    for (int i = 0; i < n_workers + axes->servers; i++)
        is_in |= members[i] == own;
    if (is_in)
        return transport_group_create_small(transport, members, n_workers + axes->servers,
                                            GROUP_TAGS, out);
    (void)transport_new_tags(transport, GROUP_TAGS);
    return STATUS_OK;
}

/* Servers -------------------------------------------------------------------------------- */

bool served_is_server(const struct job *job, const struct transport *transport)
{
    return transport_rank(transport) >= job->settings.ranks + job->settings.spares;
}

bool served_evaluates_together(const struct job *job)
{
    return job->axes.servers > 0 && !axes_are_a_grid(&job->axes) &&
           synchrony_of(job->graph).policy == PS_STEP && job->settings.backup == 0 &&
           job->settings.ranks > 1;
}

/* What a server is to one place's workers. */
struct post {
    struct transport *group; /* NULL: of all ranks */
    struct agreement agreement;
    pthread_t thread;
    bool has_thread;
    enum status status;
    char failure[256];
};

static void release_post(struct post *post)
{
    release_agreement(&post->agreement);
    transport_group_destroy(post->group);
}

static void *man_post(void *arg)
{
    struct post *post = arg;

    post->status = ps_serve(&post->agreement.config, NULL);
    if (post->status != STATUS_OK) {
        snprintf(post->failure, sizeof post->failure, "%s", status_message());
        transport_abort(post->agreement.config.transport, post->failure);
    }
    return NULL;
}

/* All posts but the first have a thread. */
static enum status man_posts(struct post *posts, int count)
{
    enum status status = STATUS_OK;

    for (int i = 1; i < count && status == STATUS_OK; i++) {
        if (pthread_create(&posts[i].thread, NULL, man_post, &posts[i]) != 0)
            status = FAIL(STATUS_NO_MEMORY, "a thread is refused");
        posts[i].has_thread = status == STATUS_OK;
    }
    if (status == STATUS_OK)
        man_post(&posts[0]);
    else
        transport_abort(posts[0].agreement.config.transport, status_message());
    for (int i = 0; i < count; i++) {
        if (posts[i].has_thread)
            pthread_join(posts[i].thread, NULL);
        if (status == STATUS_OK && posts[i].status != STATUS_OK)
            status = status_set(posts[i].status, posts[i].failure);
    }
    return status;
}

/* With a center the clocks of servers are exchanges. */
static struct ps_trace trace_of(const struct job *job, const struct ps_trace *trace,
                                uint64_t first)
{
    const uint64_t apart = (uint64_t)job->axes.interval;
    struct ps_trace out = *trace;

    if (synchrony_of(job->graph).policy != PS_CENTER || apart == 0)
        return out;
    out.begin = (trace->begin > first ? trace->begin - first + apart - 1 : 0) / apart;
    out.end = (trace->end > first ? trace->end - first + apart - 1 : 0) / apart;
    return out;
}

enum status served_serve(const struct job *job, struct transport *transport,
                         const struct ps_trace *trace, uint64_t first)
{
    const bool is_grid = axes_are_a_grid(&job->axes);
    const int count = count_places(job);
    enum status status = STATUS_OK;
    struct post *posts;

    TRY(mem_alloc((size_t)count, sizeof *posts, &posts));
    for (int i = 0; i < count && is_grid && status == STATUS_OK; i++)
        status = make_group(job, i, transport, &posts[i].group);
    if (is_grid && status == STATUS_OK) {
        (void)transport_new_tags(transport, 1); /* of statistics, which workers send */
        status = grid_stand_by(job, transport);
    }
    for (int i = 0; i < count && status == STATUS_OK; i++)
        status =
            agree_at(job, i, posts[i].group ? posts[i].group : transport, &posts[i].agreement);
    if (!is_grid) /* else tasks of several programs would have the same numbers */
        posts[0].agreement.config.trace = trace_of(job, trace, first);
    if (status == STATUS_OK)
        status = man_posts(posts, count);
    for (int i = 0; i < count; i++)
        release_post(&posts[i]);
    mem_free(posts);
    return status;
}

enum status served_lower(const struct job *job, int server, struct transport *transport,
                         struct program **out)
{
    struct agreement *agreement;

    if (axes_are_a_grid(&job->axes))
        return FAIL(STATUS_USAGE,
                    "--after lower: a server of a grid has a program for each place: give the "
                    "rank of a worker");
    TRY(mem_alloc(1, sizeof *agreement, &agreement));
    enum status status = agree(job, job->graph, transport, agreement);
    if (status == STATUS_OK)
        status = ps_lower(&agreement->config, server, out);
    release_agreement(agreement);
    mem_free(agreement);
    return status;
}

enum status served_verify(const struct served *served, const struct program *program)
{
    const struct ps_config *config = &served->agreement.config;
    struct program *servers[PS_SERVERS];
    enum status status = STATUS_OK;
    int n = 0;

    if (transport_rank(config->transport) != 0 || on_device(served->job))
        return STATUS_OK;
    while (n < config->servers && status == STATUS_OK) {
        status = ps_lower(config, n, &servers[n]);
        n += status == STATUS_OK;
    }
    if (status == STATUS_OK)
        status = program_verify_servers(program, (const struct program *const *)servers, n);
    while (n-- > 0)
        program_destroy(servers[n]);
    return status;
}

/* Between executor and client ------------------------------------------------------------ */

/* The executor says how much memory servers should see, so it is only now that the worker can join
 * them. */
static enum status join(void *arg, size_t bytes, void **out)
{
    struct served *served = arg;

    served->agreement.config.room = bytes;
    TRY(ps_join(&served->agreement.config, &served->client));
    *out = ps_room(served->client);
    return STATUS_OK;
}

static enum status push(void *arg, int bucket)
{
    return ps_push(((struct served *)arg)->client, bucket);
}

static enum status push_rows(void *arg, int bucket, const struct exec_rows *lists, int n_lists)
{
    struct ps_rows same[2 * TREE_DEPTH];

    for (int i = 0; i < n_lists; i++)
        same[i] =
            (struct ps_rows){ lists[i].node, lists[i].ids, lists[i].rows, lists[i].count };
    return ps_push_rows(((struct served *)arg)->client, bucket, same, n_lists);
}

static enum status await(void *arg, int bucket)
{
    struct served *served = arg;

    /* Before training begins parameters are what the worker sets. */
    return served->has_begun ? ps_await(served->client, bucket) : STATUS_OK;
}

/* Workers -------------------------------------------------------------------------------- */

/* Those of this rank's place. */
static enum status find_servers(struct served *served)
{
    const struct job *job = served->job;
    const int own = transport_rank(served->transport);
    int number = 0;

    if (axes_are_a_grid(&job->axes)) {
        const struct axes_place place = axes_place_of(&job->axes, own);
        number = place.pp * job->axes.tp + place.tp;
        for (int i = 0; i < count_places(job); i++) {
            struct transport *group;
            TRY(make_group(job, i, served->transport, &group));
            served->group = group ? group : served->group;
        }
        served->tag = transport_new_tags(served->transport, 1);
    }
    return agree_at(job, number, served->group ? served->group : served->transport,
                    &served->agreement);
}

void served_note_meeting(const struct served *served, const char *point)
{
    const struct train_hooks *hooks = served->hooks;

    if (hooks->at_meeting)
        hooks->at_meeting(hooks->at_meeting_arg, transport_rank(served->transport), point);
}

static void note_meeting(void *arg, const char *point)
{
    served_note_meeting(arg, point);
}

enum status served_create(const struct job *job, const struct train_hooks *hooks,
                          struct transport *transport, struct served **out)
{
    struct served *served;

    TRY(mem_alloc(1, sizeof *served, &served));
    served->job = job;
    served->hooks = hooks;
    served->transport = transport;
    const enum status status = find_servers(served);
    if (status != STATUS_OK) {
        served_destroy(served);
        return status;
    }
    served->agreement.config.at_meeting = note_meeting;
    served->agreement.config.at_meeting_arg = served;
    served->remote = (struct exec_remote){
        .arg = served, .memory = join, .give = push, .give_rows = push_rows, .await = await
    };
    *out = served;
    return STATUS_OK;
}

void served_destroy(struct served *served)
{
    if (!served)
        return;
    ps_leave(served->client);
    release_agreement(&served->agreement);
    transport_group_destroy(served->group);
    mem_free(served);
}

const struct exec_remote *served_remote(const struct served *served)
{
    return &served->remote;
}

static bool is_spare(const struct served *served)
{
    return transport_rank(served->agreement.config.transport) >= served->job->axes.dp;
}

struct exec_part served_part_of(const struct job *job, int worker)
{
    const int w =
        worker < job->axes.dp ? worker : 0; /* a spare's part is worker 0's at first */

    return (struct exec_part){ .first = first_shard(job, w),
                               .count = first_shard(job, w + 1) - first_shard(job, w),
                               .with_others = synchrony_of(job->graph).policy == PS_STEP };
}

struct exec_part served_part(const struct served *served)
{
    return served_part_of(served->job, transport_rank(served->agreement.config.transport));
}

/* Worker 0's parameters and state are everybody's. */
static enum status put_all(struct served *served)
{
    for (int state = -1; state < served->agreement.vectors.n_states; state++)
        TRY(ps_put(served->client, state, exec_vector(served->exec, state)));
    return STATUS_OK;
}

enum status served_join(struct served *served, struct exec *exec, size_t room,
                        struct ps_client **out)
{
    struct ps_config *config = &served->agreement.config;

    served->exec = exec;
    served->place = transport_rank(config->transport);
    config->room = room;
    TRY(ps_join(config, &served->client));
    *out = served->client;
    return STATUS_OK;
}

int served_buckets(const struct served *served)
{
    return served->agreement.vectors.count;
}

/* A spare waits until it is needed. */
static enum status stand_by(struct served *served, uint64_t first, uint64_t *out_step)
{
    const struct ps_config *config = &served->agreement.config;
    const uint64_t end = (uint64_t)served->job->total_steps;

    transport_note(config->transport, 0, "standing by");
    TRY(ps_stand(served->client, first, end, &served->place, out_step));
    if (served->place < 0)
        return STATUS_OK;
    exec_move_part(served->exec, config->rows[served->place]);
    log_line(LOG_WARNING, "rank %d takes the place of rank %d at step %llu",
             transport_rank(config->transport), served->place, (unsigned long long)*out_step);
    return STATUS_OK;
}

enum status served_begin(struct served *served, struct exec *exec, uint64_t step,
                         uint64_t *out_step)
{
    served->exec = exec;
    served->place = transport_rank(served->agreement.config.transport);
    struct ps_memory memory = { .params = exec_vector(exec, -1),
                                .shards = exec_tree_shards(exec) };
    memory.n_parts = exec_sums(exec, &memory.parts);
    TRY(ps_attach(served->client, &memory));
    if (transport_rank(served->agreement.config.transport) == 0)
        TRY(put_all(served));
    served->has_begun = true;
    if (is_spare(served))
        return stand_by(served, step, out_step);
    *out_step = step;
    return ps_begin(served->client, step);
}

/* What is new of a sum that grows. */
static struct exec_result news(const struct ps_tick *now, const struct ps_tick *then)
{
    const int64_t weight = now->weight - then->weight;

    return (struct exec_result){
        .loss = weight > 0 ? (now->loss - then->loss) / (double)weight : 0,
        .correct = now->correct - then->correct,
        .samples = now->samples - then->samples,
        .weight = weight,
        .heard = now->bits,
    };
}

static struct served_count count_since(const struct ps_tick *now, const struct ps_tick *then)
{
    return (struct served_count){ now->samples - then->samples, now->weight - then->weight };
}

void served_hear(struct served *served, const struct ps_heard *heard, struct served_heard *out)
{
    *out = (struct served_heard){
        .result = news(&heard->all, &served->heard),
        .next = heard->clock,
        .low = heard->low,
        .high = heard->high,
        .count = count_since(&heard->all, &served->heard),
    };
    served->heard = heard->all;
}

void served_add_wait(struct served *served, double seconds)
{
    served->waited += seconds;
}

enum status served_tick(struct served *served, const struct batch *batch,
                        const struct exec_result *own, uint32_t says, struct served_heard *out)
{
    static const struct ps_tick nothing;

    const struct ps_tick tick = { .loss = own->loss * (double)own->weight,
                                  .correct = own->correct,
                                  .samples = batch->rows,
                                  .weight = batch->own_weight,
                                  .bits = says };
    const double begin = clock_seconds();
    struct ps_heard heard;

    TRY(ps_tick(served->client, &tick, &heard));
    served_add_wait(served, clock_seconds() - begin);
    served_hear(served, &heard, out);
    if (served->agreement.config.policy == PS_STEP)
        out->result = news(&heard.sum, &nothing);
    return STATUS_OK;
}

struct served_count served_rest(const struct served *served)
{
    return count_since(&served->stats.all, &served->heard);
}

enum status served_collect(struct served *served)
{
    for (int state = -1; state < served->agreement.vectors.n_states; state++)
        TRY(ps_get(served->client, state, exec_vector(served->exec, state)));
    exec_wrote_params(served->exec);
    return STATUS_OK;
}

/* Adds what servers did for the workers of another place, whose statistics these are. */
static void add_stats(struct ps_stats *all, const struct ps_stats *more)
{
    for (int i = 0; i < all->servers; i++) {
        struct ps_server_stats *server = &all->server[i];
        server->busy += more->server[i].busy;
        server->idle += more->server[i].idle;
        server->bytes_in += more->server[i].bytes_in;
        server->bytes_out += more->server[i].bytes_out;
        server->updates += more->server[i].updates;
        server->dropped += more->server[i].dropped;
        server->refused += more->server[i].refused;
        server->elements += more->server[i].elements;
    }
    for (int i = 0; i < PS_STALE; i++)
        all->stale[i] += more->stale[i];
}

/* Of a grid, rank 0 has statistics of all places, and of workers by the numbers that the job has
 * for them. */
static enum status bring_stats(struct served *served)
{
    const struct job *job = served->job;
    const struct axes *axes = &job->axes;
    enum status status = STATUS_OK;
    struct ps_stats *all;

    if (transport_rank(served->transport) != 0)
        return transport_send(served->transport, 0, served->tag, &served->stats,
                              sizeof served->stats);
    TRY(mem_alloc(2, sizeof *all, &all));
    struct ps_stats *next = all + 1;
    *all = *next = served->stats;
    all->workers = (int)job->settings.ranks;
    for (int i = 0; i < count_places(job) && status == STATUS_OK; i++) {
        struct axes_place place = place_at(job, i);
        const int first = axes_rank_at(axes, place);
        if (first != 0) {
            status =
                transport_receive(served->transport, first, served->tag, next, sizeof *next);
            add_stats(all, next);
        }
        for (place.dp = 0; place.dp < axes->dp; place.dp++) {
            const int rank = axes_rank_at(axes, place);
            all->wait[rank] = next->wait[place.dp];
            all->clock[rank] = next->clock[place.dp];
        }
    }
    served->stats = *all;
    mem_free(all);
    return status;
}

enum status served_meet(struct served *served)
{
    TRY(exec_settle(served->exec));
    TRY(ps_meet(served->client));
    if (transport_rank(served->agreement.config.transport) != 0)
        return STATUS_OK;
    TRY(ps_collect(served->client, &served->stats));
    return served->group ? bring_stats(served) : STATUS_OK;
}

struct served_times served_times(const struct served *served)
{
    const struct ps_times times = ps_times(served->client);

    return (struct served_times){ .wait = served->waited,
                                  .move = times.move,
                                  .bytes = times.bytes };
}

int served_place(const struct served *served)
{
    return served->place;
}

bool served_hears_from(const struct served *served, int w)
{
    return !served->stats.lost[w];
}

/* Summary -------------------------------------------------------------------------------- */

static void print_servers(const struct ps_stats *stats, int first, struct strbuf *out)
{
    strbuf_add(out, ",\n  \"servers\": [");
    for (int i = 0; i < stats->servers; i++) {
        const struct ps_server_stats *server = &stats->server[i];
        strbuf_printf(out, "%s\n    {\"rank\": %d, \"busy_s\": ", i ? "," : "", first + i);
        strbuf_add_number(out, server->busy);
        strbuf_add(out, ", \"idle_s\": ");
        strbuf_add_number(out, server->idle);
        strbuf_printf(out,
                      ", \"elements\": %lld, \"updates\": %lld, \"bytes_in\": %lld, "
                      "\"bytes_out\": %lld, \"dropped\": %lld, \"refused\": %lld}",
                      (long long)server->elements, (long long)server->updates,
                      (long long)server->bytes_in, (long long)server->bytes_out,
                      (long long)server->dropped, (long long)server->refused);
    }
    strbuf_add(out, "\n  ]");
}

/* With a center clocks are exchanges. */
static void print_workers(const struct ps_stats *stats, int regular, bool exchanges,
                          struct strbuf *out)
{
    const char *clocks = exchanges ? "exchanges" : "steps";

    strbuf_add(out, ",\n  \"workers\": [");
    for (int w = 0; w < stats->workers; w++) {
        strbuf_printf(out, "%s\n    {\"rank\": %d, \"%s\": %llu, \"wait_s\": ", w ? "," : "", w,
                      clocks, (unsigned long long)stats->clock[w]);
        strbuf_add_number(out, stats->wait[w]);
        strbuf_printf(out, ", \"lost\": %s", stats->lost[w] ? "true" : "false");
        if (w >= regular)
            strbuf_printf(out, ", \"spare\": \"%s\"", stats->standing[w] ? "unused" : "used");
        strbuf_add(out, "}");
    }
    strbuf_add(out, "\n  ]");
}

/* How many gradients met parameters that so many updates by others had changed. */
static void print_staleness(const struct ps_stats *stats, struct strbuf *out)
{
    int count = PS_STALE;

    while (count > 1 && stats->stale[count - 1] == 0)
        count--;
    strbuf_add(out, ",\n  \"staleness\": [");
    for (int i = 0; i < count; i++)
        strbuf_printf(out, "%s%lld", i ? ", " : "", (long long)stats->stale[i]);
    strbuf_add(out, "]");
}

/* Seconds, steps of the slowest and of the fastest worker. */
static void print_spread(const struct ps_stats *stats, struct strbuf *out)
{
    strbuf_printf(out, ",\n  \"largest_spread\": %llu,\n  \"clocks\": [",
                  (unsigned long long)stats->largest_spread);
    for (int i = 0; i < stats->n_spread; i++) {
        strbuf_add(out, i ? ", [" : "[");
        strbuf_add_number(out, stats->spread[i].seconds);
        strbuf_printf(out, ", %llu, %llu]", (unsigned long long)stats->spread[i].low,
                      (unsigned long long)stats->spread[i].high);
    }
    strbuf_add(out, "]");
}

void served_print(const struct served *served, struct strbuf *out)
{
    const struct ps_stats *stats = &served->stats;

    print_servers(stats, (int)(served->job->settings.ranks + served->job->settings.spares),
                  out);
    print_workers(stats, (int)served->job->settings.ranks,
                  served->agreement.config.policy == PS_CENTER, out);
    print_staleness(stats, out);
    print_spread(stats, out);
}
