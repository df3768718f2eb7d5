/* SPDX-License-Identifier: MIT */
/* slices.c - the vector is cut into slices, and these are dealt to servers by bytes.
 *
 * A bucket that is a good part of what a server may have is cut over all of them: a dense one at
 * multiples of TREE_STRETCH elements, a table by rows in turn. The others stay whole and go, the
 * largest first, to whoever has least. For two servers and buckets of 100, 20, 14 and 6 stretches:
 *
 *   server 0   [0, 50) of the first, and the second
 *   server 1   [50, 100) of the first, the third and the fourth
 */
#include "ps/slices.h"

#include "base/mem.h"

enum { LARGE_PART = 8 }; /* a bucket is large from this part of a server's share on */

static int64_t round_up(int64_t number, int64_t unit)
{
    return (number + unit - 1) / unit * unit;
}

static bool is_table(const struct ps_config *config, int bucket)
{
    return config->policy != PS_CENTER && config->layout.tables[bucket].width > 0;
}

/* Cutting ----------------------------------------------------------------------------------------- */

/* What can be apart: stretches, or rows. */
static int64_t units_of(const struct ps_config *config, int b)
{
    const struct ps_layout *layout = &config->layout;

    if (is_table(config, b))
        return layout->tables[b].rows;
    return round_up(layout->begin[b + 1] - layout->begin[b], TREE_STRETCH) / TREE_STRETCH;
}

static int64_t elements_of(const struct ps_config *config, int b)
{
    const struct ps_layout *layout = &config->layout;

    return is_table(config, b) ? layout->tables[b].rows * layout->tables[b].width
                               : layout->begin[b + 1] - layout->begin[b];
}

static bool is_cut(const struct ps_config *config, int b)
{
    const int64_t all = config->layout.begin[config->layout.buckets];

    return config->servers > 1 && units_of(config, b) > 1 &&
           elements_of(config, b) * config->servers * LARGE_PART >= all;
}

static int pieces_of(const struct ps_config *config, int b)
{
    const int64_t units = units_of(config, b);

    if (!is_cut(config, b))
        return 1;
    return units < config->servers ? (int)units : config->servers;
}

/* Piece i of bucket b. */
static struct slice piece(const struct ps_config *config, int b, int i, int pieces)
{
    const struct ps_layout *layout = &config->layout;
    const struct ps_table *table = &layout->tables[b];
    struct slice slice = { .bucket = b,
                           .at = layout->begin[b],
                           .is_table = is_table(config, b) };

    if (!slice.is_table) {
        const int64_t units = units_of(config, b);
        const int64_t end = (i + 1) * units / pieces * TREE_STRETCH;
        slice.at += i * units / pieces * TREE_STRETCH;
        slice.count =
            (i + 1 == pieces ? layout->begin[b + 1] : layout->begin[b] + end) - slice.at;
        return slice;
    }
    slice.first = i;
    slice.step = pieces;
    slice.width = table->width;
    slice.rows = (table->rows - i + pieces - 1) / pieces;
    slice.count = slice.rows * slice.width;
    return slice;
}

static int least_loaded(const int64_t *load, int servers)
{
    int least = 0;

    for (int s = 1; s < servers; s++)
        least = load[s] < load[least] ? s : least;
    return least;
}

/* The largest bucket that is not dealt; -1: none. */
static int next_whole(const struct ps_config *config, const int *server_of)
{
    int best = -1;

    for (int b = 0; b < config->layout.buckets; b++) {
        if (server_of[b] < 0 && !is_cut(config, b) &&
            (best < 0 || elements_of(config, b) > elements_of(config, best)))
            best = b;
    }
    return best;
}

/* Whole buckets to servers, after those that are cut over all. Cut buckets with fewer pieces than
 * there are servers go to the first ones that have least. */
static void deal(const struct ps_config *config, int *server_of, int64_t *load)
{
    for (int b = 0; b < config->layout.buckets; b++) {
        server_of[b] = -1;
        if (!is_cut(config, b))
            continue;
        const int pieces = pieces_of(config, b);
        server_of[b] = pieces < config->servers ? least_loaded(load, config->servers) : 0;
        for (int i = 0; i < pieces; i++)
            load[(server_of[b] + i) % config->servers] += piece(config, b, i, pieces).count;
    }
    for (int b = next_whole(config, server_of); b >= 0; b = next_whole(config, server_of)) {
        server_of[b] = least_loaded(load, config->servers);
        load[server_of[b]] += elements_of(config, b);
    }
}

static enum status cut(struct slices *slices)
{
    const struct ps_config *config = &slices->config;
    const int buckets = config->layout.buckets;
    int *server_of;
    int64_t *load;

    for (int b = 0; b < buckets; b++)
        slices->count += pieces_of(config, b);
    TRY(mem_alloc((size_t)slices->count, sizeof(*slices->slice), &slices->slice));
    TRY(mem_alloc((size_t)buckets + 1, sizeof(int), &slices->of_bucket));
    TRY(mem_alloc((size_t)buckets, sizeof(int), &server_of));
    const enum status status = mem_alloc((size_t)config->servers, sizeof(*load), &load);
    if (status != STATUS_OK) {
        mem_free(server_of);
        return status;
    }
    deal(config, server_of, load);
    int n = 0;
    for (int b = 0; b < buckets; b++) {
        const int pieces = pieces_of(config, b);
        slices->of_bucket[b] = n;
        for (int i = 0; i < pieces; i++, n++) {
            slices->slice[n] = piece(config, b, i, pieces);
            slices->slice[n].server = (server_of[b] + i) % config->servers;
            slices->slice[n].partner =
                config->replicas > 1 ? (slices->slice[n].server + 1) % config->servers : -1;
        }
    }
    slices->of_bucket[buckets] = n;
    mem_free(server_of);
    mem_free(load);
    return STATUS_OK;
}

/* What workers stage ------------------------------------------------------------------------------ */

static enum status cover_rows(struct slices *slices)
{
    const struct ps_config *config = &slices->config;
    const size_t workers = (size_t)config->workers;

    TRY(mem_alloc(workers, sizeof(int), &slices->n_nodes));
    TRY(mem_alloc(workers, sizeof(*slices->nodes), &slices->nodes));
    TRY(mem_alloc(workers, sizeof(*slices->leaves), &slices->leaves));
    for (int w = 0; w < config->workers; w++) {
        const bool sums = config->policy == PS_STEP;
        const int64_t own = slices_row(config, w);
        slices->leaves[w] = sums ? config->shards : config->policy == PS_CENTER ? 1 : own;
        slices->n_nodes[w] = tree_row(slices->leaves[w], sums ? config->rows[w] : 0,
                                      config->policy == PS_CENTER ? 1 : own, slices->nodes[w]);
    }
    for (int i = 0; i < slices->count; i++) {
        struct slice *slice = &slices->slice[i];
        int most = 0;
        for (int w = 0; slice->is_table && w < config->workers; w++)
            most = slices->n_nodes[w] > most ? slices->n_nodes[w] : most;
        slice->most = slice->rows * most;
        const int64_t said = slice->is_table ? config->layout.tables[slice->bucket].most : 0;
        if (said > 0 && said < slice->most)
            slice->most = said;
    }
    return STATUS_OK;
}

/* Shared memory ----------------------------------------------------------------------------------- */

static size_t vector_bytes(int64_t count)
{
    return (size_t)round_up(count * (int64_t)sizeof(float), PS_LINE);
}

static size_t held_bytes(const struct slices *slices, const struct slice *slice)
{
    const size_t vectors = (size_t)(1 + slices->config.layout.n_states);
    const size_t lists = slice->is_table ? (size_t)slices->config.workers + 1 : 0;

    return vectors * vector_bytes(slice->count) + lists * vector_bytes(slice->rows);
}

static size_t counts_bytes(void)
{
    return (size_t)round_up((int64_t)(2 * TREE_DEPTH * sizeof(int64_t)), PS_LINE);
}

static enum status place(struct slices *slices)
{
    const int servers = slices->config.servers;

    TRY(mem_alloc((size_t)servers * (size_t)slices->count, sizeof(size_t), &slices->held));
    TRY(mem_alloc((size_t)servers, sizeof(size_t), &slices->server_bytes));
    TRY(mem_alloc((size_t)slices->count, sizeof(size_t), &slices->table));
    for (int s = 0; s < servers; s++) {
        size_t at = PS_LINE;
        for (int i = 0; i < slices->count; i++) {
            if (!slices_holds(slices, s, i))
                continue;
            slices->held[s * slices->count + i] = at;
            at += held_bytes(slices, &slices->slice[i]);
        }
        slices->server_bytes[s] = at;
    }
    for (int i = 0; i < slices->count; i++) {
        const struct slice *slice = &slices->slice[i];
        slices->table[i] = slices->table_bytes;
        if (slice->is_table)
            slices->table_bytes += counts_bytes() + vector_bytes(slice->most) +
                                   vector_bytes(slice->most * slice->width);
    }
    return STATUS_OK;
}

bool slices_holds(const struct slices *slices, int server, int slice)
{
    return slices->slice[slice].server == server || slices->slice[slice].partner == server;
}

int slices_of_row(const struct slices *slices, int bucket, int32_t id)
{
    const int first = slices->of_bucket[bucket];

    return first + (int)(id % (slices->of_bucket[bucket + 1] - first));
}

bool slices_is_spare(const struct ps_config *config, int worker)
{
    return worker >= config->workers - config->spares;
}

int64_t slices_row(const struct ps_config *config, int worker)
{
    const int as = slices_is_spare(config, worker) ? 0 : worker; /* all rows are as long */

    return config->rows[as + 1] - config->rows[as];
}

double slices_share(const struct slices *slices, int worker)
{
    const struct ps_config *config = &slices->config;

    return (double)slices_row(config, worker) / (double)config->shards;
}

bool slices_says_took(const struct ps_config *config)
{
    return config->policy == PS_ASYNC || config->policy == PS_BOUNDED || config->backup > 0;
}

int slices_rank(const struct slices *slices, int server)
{
    return slices->config.workers + server;
}

bool slices_are_near(const struct slices *slices, int rank, int other)
{
    const struct transport *transport = slices->config.transport;

    return transport_node_of(transport, rank) == transport_node_of(transport, other);
}

float *slices_param(const struct slices *slices, char *area, int server, int slice)
{
    return (float *)(area + slices->held[server * slices->count + slice]);
}

float *slices_state(const struct slices *slices, char *area, int server, int slice, int state)
{
    return slices_param(slices, area, server, slice) +
           (size_t)(1 + state) * vector_bytes(slices->slice[slice].count) / sizeof(float);
}

int32_t *slices_list(const struct slices *slices, char *area, int server, int slice, int worker)
{
    float *behind = slices_state(slices, area, server, slice, slices->config.layout.n_states);

    return (int32_t *)behind +
           (size_t)worker * vector_bytes(slices->slice[slice].rows) / sizeof(int32_t);
}

static size_t staged_vectors(const struct slices *slices, int worker)
{
    const bool gives_back = slices->config.policy == PS_CENTER;

    return (size_t)(slices->n_nodes[worker] + gives_back) * vector_bytes(slices->vector);
}

size_t slices_staged_bytes(const struct slices *slices, int worker)
{
    return staged_vectors(slices, worker) + slices->table_bytes;
}

float *slices_staged(const struct slices *slices, char *area, int node)
{
    return (float *)(area + (size_t)node * vector_bytes(slices->vector));
}

struct staged_rows slices_staged_rows(const struct slices *slices, char *area, int worker,
                                      int slice)
{
    char *at = area + staged_vectors(slices, worker) + slices->table[slice];

    return (struct staged_rows){
        .counts = (int64_t *)at,
        .ids = (int32_t *)(at + counts_bytes()),
        .rows = (float *)(at + counts_bytes() + vector_bytes(slices->slice[slice].most)),
    };
}

/* Making and checking ------------------------------------------------------------------------------ */

enum status slices_create(const struct ps_config *config, struct slices **out)
{
    struct slices *slices;

    TRY(ps_check(config));
    TRY(mem_alloc(1, sizeof(*slices), &slices));
    slices->config = *config;
    if (config->policy == PS_CENTER)
        slices->config.layout.n_states = 0; /* workers have their own */
    slices->vector = config->layout.begin[config->layout.buckets];
    enum status status = cut(slices);
    if (status == STATUS_OK)
        status = cover_rows(slices);
    if (status == STATUS_OK)
        status = place(slices);
    if (status != STATUS_OK) {
        slices_destroy(slices);
        return status;
    }
    *out = slices;
    return STATUS_OK;
}

void slices_destroy(struct slices *slices)
{
    if (!slices)
        return;
    mem_free(slices->slice);
    mem_free(slices->of_bucket);
    mem_free(slices->n_nodes);
    mem_free(slices->nodes);
    mem_free(slices->leaves);
    mem_free(slices->held);
    mem_free(slices->server_bytes);
    mem_free(slices->table);
    mem_free(slices);
}

static enum status check_counts(const struct ps_config *config)
{
    if (config->workers < 1 || config->workers > PS_WORKERS)
        return FAIL(STATUS_USAGE, "%d workers are not between 1 and %d", config->workers,
                    PS_WORKERS);
    if (config->servers < 1 || config->servers > PS_SERVERS)
        return FAIL(STATUS_USAGE, "%d servers are not between 1 and %d", config->servers,
                    PS_SERVERS);
    if (config->replicas != 1 && config->replicas != 2)
        return FAIL(STATUS_USAGE, "%d replicas: a slice is on 1 or 2 servers",
                    config->replicas);
    if (config->replicas > config->servers)
        return FAIL(STATUS_USAGE, "2 replicas need 2 servers or more: use --meet ps:2");
    if (config->transport &&
        transport_size(config->transport) != config->workers + config->servers)
        return FAIL(STATUS_USAGE, "%d workers and %d servers are not the job's %d ranks",
                    config->workers, config->servers, transport_size(config->transport));
    return STATUS_OK;
}

static enum status check_policy(const struct ps_config *config)
{
    if (config->policy == PS_BOUNDED && config->bound < 1)
        return FAIL(STATUS_USAGE, "bounded:%d: the bound is 1 or more (0 is --sync step)",
                    config->bound);
    if (config->backup != 0 && config->policy != PS_STEP)
        return FAIL(STATUS_USAGE, "--backup needs --sync step: otherwise nobody waits");
    if (config->backup < 0 || config->backup >= config->workers)
        return FAIL(STATUS_USAGE, "--backup %d: of %d workers at most %d can be left behind",
                    config->backup, config->workers, config->workers - 1);
    if (config->staleness_lr && config->policy != PS_ASYNC && config->policy != PS_BOUNDED)
        return FAIL(STATUS_USAGE, "--staleness-lr needs --sync async or bounded:K");
    if (config->policy == PS_CENTER && !(config->alpha >= 0 && config->alpha <= 1))
        return FAIL(STATUS_USAGE, "elastic averaging with alpha %.9g: it is between 0 and 1",
                    config->alpha);
    const bool is_alone = config->policy == PS_ASYNC || config->policy == PS_BOUNDED;
    if (is_alone && config->optim.attrs.max_norm > 0)
        return FAIL(STATUS_USAGE,
                    "--clip %.6g: a push is applied slice by slice, before its norm is known: "
                    "use --sync step, or leave it out",
                    (double)config->optim.attrs.max_norm);
    if (config->policy != PS_CENTER && optim_adapts(config->optim.optimizer))
        return FAIL(STATUS_USAGE,
                    "LARS and LAMB need norms of whole parameters, which no server has: use "
                    "another optimizer, or --meet allreduce");
    return STATUS_OK;
}

static enum status check_spares(const struct ps_config *config)
{
    const int others = config->workers - config->spares;

    if (config->spares == 0)
        return STATUS_OK;
    if (config->spares < 0 || others < 2)
        return FAIL(STATUS_USAGE,
                    "--spares %d: worker 0 cannot be replaced, and there is no other: use -n 2",
                    config->spares);
    if (config->policy != PS_ASYNC && config->policy != PS_BOUNDED)
        return FAIL(STATUS_USAGE, "--spares needs --sync async or bounded:K: the others do not "
                                  "go on without a worker");
    for (int w = 1; w < others; w++) {
        if (slices_row(config, w) != slices_row(config, 0))
            return FAIL(STATUS_USAGE,
                        "--spares: workers have unequal parts of %lld shards: use a multiple "
                        "of %d, without --balance",
                        (long long)config->shards, others);
    }
    return STATUS_OK;
}

enum status ps_check(const struct ps_config *config)
{
    TRY(check_counts(config));
    TRY(check_policy(config));
    for (int w = 0; w < config->workers - config->spares; w++) {
        if (config->rows[w + 1] <= config->rows[w])
            return FAIL(STATUS_USAGE, "worker %d has no shard: %lld shards for %d workers", w,
                        (long long)config->shards, config->workers);
    }
    TRY(check_spares(config));
    for (int b = 0; b < config->layout.buckets; b++) {
        if (is_table(config, b) && config->layout.tables[b].width > PS_WIDTH)
            return FAIL(STATUS_USAGE,
                        "a table with rows of %lld numbers: servers take %d at most",
                        (long long)config->layout.tables[b].width, PS_WIDTH);
    }
    int pieces = 0;
    for (int b = 0; b < config->layout.buckets; b++)
        pieces += pieces_of(config, b);
    if (pieces < config->servers)
        return FAIL(
            STATUS_USAGE,
            "%d servers are more than the model's %d slices (of %d parameters each): use "
            "--meet ps:%d",
            config->servers, pieces, TREE_STRETCH, pieces);
    return STATUS_OK;
}
