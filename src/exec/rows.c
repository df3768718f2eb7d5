/* SPDX-License-Identifier: MIT */
/* rows.c - tables of embeddings, of which a step touches some rows: their sums and updates.
 *
 * A shard leaves its ids in ascending order, each with the number of its row of dy, and dy itself
 * in its record (pass/split_batch.c). When all lanes have announced the bucket, each takes a range
 * of ids, walks all shards' lists at once, and for each id that occurs adds its rows of dy, shard
 * by shard in the order of their places, then over the shards along their tree, and updates that
 * row of the table and of its state at once. Rows that do not occur stay as they are, state
 * included.
 *
 *   shard 0   1 1 4 9       id 1: (dy0 + dy0) + dy1       id 4: dy0 + (dy2 + dy2)
 *   shard 1   1 7           id 7: dy1                     id 9: dy0
 *   shard 2   4 4
 *
 * A shard without the id is left out of the tree, which is as good as adding its zero: sums begin
 * with +0, so that none is -0. The bits are those of the dense gradient's sum.
 *
 * Ranges are cut so that adding and updating take all lanes about as long: a row that occurs costs
 * as much as some additions. How many different ids a range has is not known but bounded by its
 * length and by how often they occur, for each of the ROWS_BLOCKS blocks that rows_sort notes. The
 * cuts are a function of the lists, so that all lanes find the same; they never change a bit.
 *
 * Where the norm of all gradients must be known before an update, a lane walks twice: it keeps the
 * sums in their places of sums->memory->sum and adds up their squares (norms.c), then updates the
 * same rows by what was kept.
 */
#include <string.h>

#include "exec/exec.h"
#include "exec/layout.h"
#include "exec/norms.h"
#include "exec/packet.h"
#include "exec/remote.h"
#include "exec/shared.h"
#include "exec/sums.h"
#include "exec/topology.h"
#include "graph/op.h"
#include "kernel/update.h"

enum {
    FETCH_AHEAD =
        16,    /* places of a list by which a table's rows are asked for before they are used */
    LINE = 16, /* floats */
    NEAR_FLOATS =
        128 << 10 /* of all shards' dy: so few stay in L2, and asking for them costs more */
};

/* What one shard gives to a bucket. */
struct list {
    const struct rows_pair *pairs;
    const int32_t *begin; /* of each block of ids */
    const float *dy;
};

static struct list list_of(const struct sums *sums, const struct row_sum *r, int64_t shard)
{
    const char *record = sums->memory->records + (size_t)shard * sums->layout->record;

    return (struct list){ (const struct rows_pair *)(record + r->order),
                          (const int32_t *)(record + r->begin),
                          (const float *)(record + r->dy) };
}

enum status rows_find(struct exec_layout *layout, int64_t shards, int b)
{
    const struct node *node = layout->facts.buckets[b].sum;
    struct row_sum *r = &layout->row_sums[b];

    r->rows = node->attrs.rows;
    r->width = node->in[2]->shape.dim[node->in[2]->shape.rank - 1];
    if (layout->largest) {
        const struct shape *dy = &layout->largest[facts_source(node->in[2])->id];
        r->most = shape_count(&layout->largest[facts_source(node->in[0])->id]) / 2;
        r->is_near = shards * shape_count(dy) <= NEAR_FLOATS;
    }
    TRY(layout_place_factor(layout, node->in[0], b, &r->order));
    TRY(layout_place_factor(layout, node->in[1], b, &r->begin));
    return layout_place_factor(layout, node->in[2], b, &r->dy);
}

void rows_leave_empty(const struct exec_layout *layout, int b, char *record)
{
    const struct row_sum *r = &layout->row_sums[b];

    memset(record + r->begin, 0, (ROWS_BLOCKS + 1) * sizeof(int32_t));
}

int64_t rows_entries(const struct sums *sums, int b, int64_t shard)
{
    return list_of(sums, &sums->layout->row_sums[b], shard).begin[ROWS_BLOCKS];
}

/* Ranges ----------------------------------------------------------------------------------- */

/* First of pairs[low..high) whose id is not below `id`. */
static int32_t first_from(const struct rows_pair *pairs, int32_t low, int32_t high, int64_t id)
{
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (pairs[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* How many of `ids` occur among so many entries, if all were as frequent: about
 * ids (1 - exp(-x)) with x = entries / ids. Nothing but what all machines round alike. */
static int64_t rows_among(int64_t entries, int64_t ids)
{
    const double x = ids > 0 ? (double)entries / (double)ids : 0;

    return x < 3 ? (int64_t)((double)entries / (1 + x / 2 + x * x / 12)) : ids;
}

/* What `entries` additions to rows among `ids` cost, in additions of a row. */
static int64_t cost_of(const struct sums *sums, int64_t entries, int64_t ids)
{
    return entries + rows_among(entries, ids) * (6 + 6 * sums->layout->n_states);
}

static int64_t block_length(const struct row_sum *r)
{
    return (r->rows + ROWS_BLOCKS - 1) / ROWS_BLOCKS;
}

/* How often ids of block k below `end` occur, in all shards. */
static int64_t entries_below(const struct sums *sums, const struct row_sum *r, int64_t k,
                             int64_t end)
{
    int64_t entries = 0;

    for (int64_t v = 0; v < sums->topology->shards; v++) {
        const struct list list = list_of(sums, r, v);
        entries +=
            first_from(list.pairs, list.begin[k], list.begin[k + 1], end) - list.begin[k];
    }
    return entries;
}

static int64_t entries_of(const struct sums *sums, const struct row_sum *r, int64_t k)
{
    int64_t entries = 0;

    for (int64_t v = 0; v < sums->topology->shards; v++) {
        const struct list list = list_of(sums, r, v);
        entries += list.begin[k + 1] - list.begin[k];
    }
    return entries;
}

/* The largest id below which `target`, at most the cost of the whole, is not passed. */
static int64_t cut_at(const struct sums *sums, const struct row_sum *r, int64_t target)
{
    const int64_t length = block_length(r);
    int64_t k = 0, spent = 0;

    for (; k < ROWS_BLOCKS; k++) {
        const int64_t cost = cost_of(sums, entries_of(sums, r, k), length);
        if (spent + cost > target)
            break;
        spent += cost;
    }
    if (k == ROWS_BLOCKS)
        return r->rows;
    int64_t low = k * length, high = low + length; /* low does not pass the target, high does */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t entries = entries_below(sums, r, k, middle);
        if (spent + cost_of(sums, entries, middle - k * length) > target)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* Work ------------------------------------------------------------------------------------- */

/* A shard's list while it is walked. */
struct cursor {
    const struct rows_pair *next, *end;
    const float *dy;
    bool is_near;  /* dy is in L2 */
    int64_t shard; /* that it is of, or one of those */
};

struct work {
    const struct sum_worker *worker;
    int bucket;
    enum reduce_what what;
    const struct kernel_update_step *numbers; /* of an update */
    int64_t parts,
        first;      /* the range of ids is cut into so many; those of this lane begin here */
    int64_t cost;   /* of the whole */
    size_t scratch; /* bytes of a thread */
};

/* What a thread works on: ids [begin, end) of shards [from, to). */
struct span_of_ids {
    int64_t begin, end, from, to;
};

/* Where sums are put that go to servers. */
struct given {
    int32_t *ids;
    float *rows;
    int64_t count;
};

/* A thread's room to work in; all of it one a shard. */
struct room {
    struct cursor *cursors;
    struct kernel_row_list *lists; /* of one id: the shards that have it */
    int64_t *shards;               /* which these are */
    int32_t *heads;                /* the next id of each shard; INT32_MAX: none */
};
static const size_t ROOM_BYTES =
    sizeof(struct cursor) + sizeof(struct kernel_row_list) + sizeof(int64_t) + sizeof(int32_t);

static size_t row_floats(const struct row_sum *r)
{
    return (size_t)(r->width + LINE - 1) / LINE * LINE;
}

size_t rows_scratch(const struct sums *sums)
{
    const size_t shards = (size_t)sums->topology->shards;
    size_t most = 0;

    for (int b = 0; b < sums->layout->buckets.count; b++) {
        if (bucket_is_table(sums->layout, b) && row_floats(&sums->layout->row_sums[b]) > most)
            most = row_floats(&sums->layout->row_sums[b]);
    }
    return most == 0 ? 0 : TREE_DEPTH * most * sizeof(float) + shards * ROOM_BYTES;
}

/* A table and its state, which a row of has the same place in. */
struct table {
    float *vectors[1 + KERNEL_STATES];
    int n_vectors;
    size_t width;
};

static struct table table_of(const struct sums *sums, int b)
{
    const size_t begin = (size_t)sums->layout->buckets.begin[b];
    struct table table = { .vectors = { sums->memory->param + begin },
                           .n_vectors = 1 + sums->layout->n_states,
                           .width = (size_t)sums->layout->row_sums[b].width };

    for (int i = 0; i < sums->layout->n_states; i++)
        table.vectors[1 + i] = sums->memory->state[i] + begin;
    return table;
}

/* Rows of the table that were asked for lately: several lists have an id. */
enum { NOTES = 256 };
struct fetched {
    int32_t id[NOTES];
};

/* The end of the pairs of the first one's id. Asks for rows of the table on the way. */
static const struct rows_pair *run_end(const struct table *table, const struct cursor *cursor,
                                       struct fetched *fetched)
{
    const struct rows_pair *pair = cursor->next;
    const int32_t id = pair->id;

    for (; pair < cursor->end && pair->id == id; pair++) {
        const struct rows_pair *ahead = pair + FETCH_AHEAD;
        if (ahead < cursor->end && fetched->id[(uint32_t)ahead->id % NOTES] != ahead->id) {
            fetched->id[(uint32_t)ahead->id % NOTES] = ahead->id;
            kernel_fetch_to_write(table->vectors, table->n_vectors,
                                  (size_t)ahead->id * table->width, table->width);
        }
    }
    return pair;
}

/* The rows of dy of this id in one shard's list, which goes on behind them. */
static struct kernel_row_list take_run(const struct table *table, struct cursor *cursor,
                                       struct fetched *fetched)
{
    const struct rows_pair *begin = cursor->next;

    cursor->next = run_end(table, cursor, fetched);
    return (struct kernel_row_list){ .table = cursor->dy,
                                     .number = &begin->row,
                                     .count = (size_t)(cursor->next - begin),
                                     .listed =
                                         cursor->is_near ? 0 : (size_t)(cursor->end - begin) };
}

/* The sum over all lists, each of its own shard, along the tree: at the beginning of sums->data. */
static void sum_lists(const struct kernel_row_list *lists, const int64_t *shards, int count,
                      struct tree_sums *sums)
{
    if (count <= 2) {
        kernel_sum_rows(lists, count, sums->width, sums->data);
        return;
    }
    sums->count = 0;
    for (int i = 0; i < count; i++)
        kernel_sum_rows(&lists[i], 1, sums->width, tree_sums_push(sums, shards[i]));
    tree_sums_end(sums);
}

static void put(struct given *given, int32_t id, const struct tree_sums *sums)
{
    given->ids[given->count] = id;
    memcpy(given->rows + (size_t)given->count * sums->width, sums->data,
           sums->width * sizeof(float));
    given->count++;
}

/* Lists that are walked together, each of its own shard or subtree of shards. */
struct walk {
    int64_t lists;
    struct room room;
    struct tree_sums sums;
    struct table table;
    struct fetched fetched;
};

/* Room for a walk over so many lists at most in a thread's scratch. */
static void walk_init(struct walk *walk, const struct sums *sums, int b, int64_t lists,
                      void *scratch)
{
    const struct row_sum *r = &sums->layout->row_sums[b];

    walk->lists = 0;
    walk->sums = (struct tree_sums){ .data = scratch,
                                     .floats = row_floats(r),
                                     .width = (size_t)r->width };
    walk->table = table_of(sums, b);
    walk->room.cursors = (struct cursor *)(walk->sums.data + TREE_DEPTH * walk->sums.floats);
    walk->room.lists = (struct kernel_row_list *)(walk->room.cursors + lists);
    walk->room.shards = (int64_t *)(walk->room.lists + lists);
    walk->room.heads = (int32_t *)(walk->room.shards + lists);
    memset(&walk->fetched, -1, sizeof walk->fetched);
}

/* One more list, to the right of those there are. */
static void walk_add(struct walk *walk, struct cursor cursor)
{
    walk->room.cursors[walk->lists] = cursor;
    walk->room.heads[walk->lists++] = cursor.next < cursor.end ? cursor.next->id : INT32_MAX;
}

/* The lowest id that is left, which is gone then; room.lists has what each list has of it. How many
 * lists that are; 0: nothing is left. */
static int walk_next(struct walk *walk, int32_t *out_id)
{
    const struct room *room = &walk->room;
    int32_t id = INT32_MAX;
    int count = 0;

    for (int64_t i = 0; i < walk->lists; i++)
        id = room->heads[i] < id ? room->heads[i] : id;
    *out_id = id;
    if (id == INT32_MAX)
        return 0;
    for (int64_t i = 0; i < walk->lists; i++) {
        struct cursor *cursor = &room->cursors[i];
        if (room->heads[i] != id)
            continue;
        room->lists[count] = take_run(&walk->table, cursor, &walk->fetched);
        room->shards[count++] = cursor->shard;
        room->heads[i] = cursor->next < cursor->end ? cursor->next->id : INT32_MAX;
    }
    return count;
}

/* The same; the sum is at the beginning of sums.data. False: there is none. */
static bool walk_on(struct walk *walk, int32_t *out_id)
{
    const int count = walk_next(walk, out_id);

    if (count > 0)
        sum_lists(walk->room.lists, walk->room.shards, count, &walk->sums);
    return count > 0;
}

/* Updates a row of the table and of its state by its summed gradient. */
static void update_row(const struct sums *sums, int b, const struct table *table, int32_t id,
                       const float *gradient, const struct kernel_update_step *numbers)
{
    const struct bucket *update = &sums->layout->updates[b];
    const size_t at = (size_t)id * table->width;
    float *state[KERNEL_STATES] = { NULL };

    for (int i = 0; i < sums->layout->n_states; i++)
        state[i] = table->vectors[1 + i] + at;
    update->kernel->run(table->vectors[0] + at, gradient, state, table->width, &update->attrs,
                        numbers);
}

/* Adds the ids of a span; returns how many pairs of its shards come before. */
static int64_t walk_add_span(struct walk *walk, const struct sums *sums, int b,
                             const struct span_of_ids *span)
{
    const struct row_sum *r = &sums->layout->row_sums[b];
    const int64_t length = block_length(r);
    const int64_t first = span->begin / length, last = (span->end - 1) / length;
    int64_t before = 0;

    for (int64_t v = span->from; v < span->to; v++) {
        const struct list list = list_of(sums, r, v);
        const struct cursor cursor = {
            .next = list.pairs + first_from(list.pairs, list.begin[first],
                                            list.begin[first + 1], span->begin),
            .end = list.pairs +
                   first_from(list.pairs, list.begin[last], list.begin[last + 1], span->end),
            .dy = list.dy,
            .is_near = r->is_near,
            .shard = sums->topology->tree_first + v,
        };
        walk_add(walk, cursor);
        before += cursor.next - list.pairs;
    }
    return before;
}

/* Puts together what one thread has of every sum: each at as many rows from the sum's first as
 * there are pairs before, so that no two threads' places meet. */
static void give_range(const struct work *work, struct span_of_ids span, int64_t thread,
                       void *scratch)
{
    const struct sums *sums = work->worker->sums;
    const struct row_sum *r = &sums->layout->row_sums[work->bucket];
    struct remote *remote = sums->remote;

    for (int i = 0; i < remote->n_sums; i++) {
        struct row_range *range = &remote->ranges[work->bucket][i * work->parts + thread];
        struct walk walk;
        int32_t id;

        span.from = remote->sums[i].node.begin - sums->topology->tree_first;
        span.to = span.from + remote->sums[i].node.length;
        span.to = span.to < sums->topology->shards ? span.to : sums->topology->shards;
        *range = (struct row_range){ 0 };
        if (span.begin >= span.end)
            continue;
        walk_init(&walk, sums, work->bucket, sums->topology->shards, scratch);
        walk.table.n_vectors = 0; /* nothing of it is touched */
        range->at = walk_add_span(&walk, sums, work->bucket, &span);
        const int64_t at = span.from * r->most + range->at;
        struct given given = { remote->ids[work->bucket] + at,
                               remote->rows[work->bucket] + at * r->width, 0 };
        while (walk_on(&walk, &id))
            put(&given, id, &walk.sums);
        range->count = given.count;
    }
}

/* Sums the rows of a walk, keeps them in the places of the table's rows, and adds up their squares. */
static void keep_rows(const struct sums *sums, int b, struct walk *walk,
                      struct exact_sum *squares)
{
    float *kept = sums->memory->sum + sums->layout->buckets.begin[b];
    const size_t width = walk->table.width;
    int32_t id;

    while (walk_on(walk, &id)) {
        memcpy(kept + (size_t)id * width, walk->sums.data, width * sizeof *kept);
        exact_sum_add(squares, kernel_sum_squares(walk->sums.data, width));
    }
}

/* Does what is to be done with the rows of a walk; part: which range of ids it is. */
static void work_on_walk(const struct work *work, struct walk *walk, int64_t part)
{
    const struct sums *sums = work->worker->sums;
    const int b = work->bucket;
    const float *kept =
        sums->memory->sum ? sums->memory->sum + sums->layout->buckets.begin[b] : NULL;
    int32_t id;

    if (work->what == SUM_AND_KEEP) {
        walk->table.n_vectors = 0; /* nothing of it is touched */
        keep_rows(sums, b, walk,
                  &sums->norms->rows[(size_t)b * norms_row_sums(sums) + (size_t)part]);
    } else if (work->what == UPDATE) {
        while (walk_next(walk, &id) > 0)
            update_row(sums, b, &walk->table, id, kept + (size_t)id * walk->table.width,
                       work->numbers);
    } else {
        while (walk_on(walk, &id))
            update_row(sums, b, &walk->table, id, walk->sums.data, work->numbers);
    }
}

/* One thread's range of ids. */
static void do_range(void *arg, size_t i)
{
    const struct work *work = arg;
    const struct sums *sums = work->worker->sums;
    const struct row_sum *r = &sums->layout->row_sums[work->bucket];
    const int64_t part = work->first + (int64_t)i;
    const struct span_of_ids span = {
        .begin = cut_at(sums, r, work->cost * part / work->parts),
        .end = part + 1 == work->parts ? r->rows
                                       : cut_at(sums, r, work->cost * (part + 1) / work->parts),
        .to = sums->topology->shards,
    };
    void *scratch = (char *)work->worker->scratch + i * work->scratch;
    struct walk walk;

    if (work->what == SUM_AND_GIVE) {
        give_range(work, span, part, scratch);
        return;
    }
    if (work->what == SUM_AND_KEEP) /* squares of the last step are there */
        memset(&sums->norms->rows[(size_t)work->bucket * norms_row_sums(sums) + (size_t)part],
               0, sizeof *sums->norms->rows);
    if (span.begin >= span.end)
        return;
    walk_init(&walk, sums, work->bucket, sums->topology->shards, scratch);
    (void)walk_add_span(&walk, sums, work->bucket, &span);
    work_on_walk(work, &walk, part);
}

static void work_on_rows(const struct sum_worker *worker, int b, enum reduce_what what,
                         const struct kernel_update_step *numbers)
{
    const struct sums *sums = worker->sums;
    const struct row_sum *r = &sums->layout->row_sums[b];
    const int threads = worker->pool ? pool_size(worker->pool) : 1;
    struct work work = { .worker = worker,
                         .bucket = b,
                         .what = what,
                         .numbers = numbers,
                         .parts = (int64_t)sums->topology->all_lanes * threads,
                         .first = (int64_t)worker->number * threads,
                         .scratch = reduce_scratch(worker) };

    for (int64_t k = 0; k < ROWS_BLOCKS; k++)
        work.cost += cost_of(sums, entries_of(sums, r, k), block_length(r));
    pool_for(worker->pool, (size_t)threads, do_range, &work);
}

void rows_update(const struct sum_worker *worker, int b,
                 const struct kernel_update_step *numbers)
{
    work_on_rows(worker, b, SUM_AND_UPDATE, numbers);
}

void rows_keep(const struct sum_worker *worker, int b)
{
    work_on_rows(worker, b, SUM_AND_KEEP, NULL);
}

void rows_update_kept(const struct sum_worker *worker, int b,
                      const struct kernel_update_step *numbers)
{
    work_on_rows(worker, b, UPDATE, numbers);
}

/* Servers ---------------------------------------------------------------------------------- */

int rows_threads(const struct sums *sums)
{
    return sums->topology->all_lanes * sums->threads;
}

void rows_give(const struct sum_worker *worker, int b)
{
    work_on_rows(worker, b, SUM_AND_GIVE, NULL);
}

struct exec_rows rows_join(const struct sums *sums, int b, int sum)
{
    const struct row_sum *r = &sums->layout->row_sums[b];
    const int threads = rows_threads(sums);
    const struct tree_node node = sums->remote->sums[sum].node;
    const struct row_range *ranges = sums->remote->ranges[b] + (ptrdiff_t)sum * threads;
    const int64_t first = (node.begin - sums->topology->tree_first) * r->most;
    int32_t *ids = sums->remote->ids[b] + first;
    float *rows = sums->remote->rows[b] + first * r->width;
    int64_t count = 0;

    for (int i = 0; i < threads; count += ranges[i++].count) {
        if (ranges[i].at == count || ranges[i].count == 0)
            continue;
        memmove(ids + count, ids + ranges[i].at, (size_t)ranges[i].count * sizeof *ids);
        memmove(rows + count * r->width, rows + ranges[i].at * r->width,
                (size_t)(ranges[i].count * r->width) * sizeof *rows);
    }
    return (struct exec_rows){ node, ids, rows, count };
}

/* Rows that have an owner ------------------------------------------------------------------- */

void rows_merge(const struct sum_worker *worker, int b, struct tree_node shards, int owners,
                struct rows_packet *out)
{
    const struct sums *sums = worker->sums;
    const struct row_sum *r = &sums->layout->row_sums[b];
    const int64_t end = shards.begin + shards.length;
    const struct span_of_ids span = { .end = r->rows,
                                      .from = shards.begin,
                                      .to = end < sums->topology->shards
                                                ? end
                                                : sums->topology->shards };
    struct walk walk;
    int32_t id;

    walk_init(&walk, sums, b, sums->topology->shards, worker->scratch);
    walk.table.n_vectors = 0; /* nothing of it is touched */
    (void)walk_add_span(&walk, sums, b, &span);
    while (walk_on(&walk, &id)) {
        struct rows_packet *packet = &out[id % owners];
        const int64_t n = packet->count++;
        packet->pairs[n] = (struct rows_pair){ .id = id, .row = (int32_t)n };
        memcpy(packet->rows + n * r->width, walk.sums.data, walk.sums.width * sizeof(float));
    }
}

static void walk_packets(struct walk *walk, const struct sum_worker *worker, int b,
                         const struct rows_packet *packets, int count)
{
    walk_init(walk, worker->sums, b, worker->sums->topology->shards, worker->scratch);
    for (int i = 0; i < count; i++)
        walk_add(walk, (struct cursor){ .next = packets[i].pairs,
                                        .end = packets[i].pairs + packets[i].count,
                                        .dy = packets[i].rows,
                                        .shard = packets[i].shard });
}

/* One more row of a packet. */
static void add_row(struct rows_packet *packet, int32_t id, const float *row, size_t width)
{
    const int64_t n = packet->count++;

    packet->pairs[n] = (struct rows_pair){ .id = id, .row = (int32_t)n };
    memcpy(packet->rows + (size_t)n * width, row, width * sizeof *row);
}

void rows_update_packets(const struct sum_worker *worker, int b,
                         const struct rows_packet *packets, int count,
                         const struct kernel_update_step *numbers, struct rows_packet *out)
{
    const struct sums *sums = worker->sums;
    struct walk walk;
    int32_t id;

    walk_packets(&walk, worker, b, packets, count);
    const struct table *table = &walk.table;
    out->count = 0;
    while (walk_on(&walk, &id)) {
        update_row(sums, b, table, id, walk.sums.data, numbers);
        add_row(out, id, table->vectors[0] + (size_t)id * table->width, table->width);
    }
}

void rows_sum_packets(const struct sum_worker *worker, int b, const struct rows_packet *packets,
                      int count, struct rows_packet *out, struct exact_sum *squares)
{
    struct walk walk;
    int32_t id;

    walk_packets(&walk, worker, b, packets, count);
    walk.table.n_vectors = 0; /* nothing of it is touched */
    out->count = 0;
    *squares = (struct exact_sum){ .infinite = 0 };
    while (walk_on(&walk, &id)) {
        add_row(out, id, walk.sums.data, walk.sums.width);
        exact_sum_add(squares, kernel_sum_squares(walk.sums.data, walk.sums.width));
    }
}

void rows_update_packet(const struct sum_worker *worker, int b,
                        const struct kernel_update_step *numbers, struct rows_packet *packet)
{
    const struct sums *sums = worker->sums;
    const struct table table = table_of(sums, b);

    for (int64_t i = 0; i < packet->count; i++) {
        const int32_t id = packet->pairs[i].id;
        float *row = packet->rows + (size_t)i * table.width;
        update_row(sums, b, &table, id, row, numbers);
        memcpy(row, table.vectors[0] + (size_t)id * table.width, table.width * sizeof *row);
    }
}
