/* SPDX-License-Identifier: MIT */
/* rows.c - tables of embeddings, of which a step touches some rows: their sums and updates.
 *
 * A shard leaves its ids in ascending order, each with the number of its row of dy, and dy itself in
 * its record (pass/split_batch.c). When all lanes have announced the bucket, each takes a range of
 * ids, walks all shards' lists at once, and for each id that occurs adds its rows of dy, shard by shard in
 * the order of their places, then over the shards along their tree, and updates that row of the
 * table and of its state at once. Rows that do not occur stay as they are, state included.
 *
 *   shard 0   1 1 4 9       id 1: (dy0 + dy0) + dy1       id 4: dy0 + (dy2 + dy2)
 *   shard 1   1 7           id 7: dy1                     id 9: dy0
 *   shard 2   4 4
 *
 * A shard without the id is left out of the tree, which is as good as adding its zero: sums begin with
 * +0, so that none is -0. The bits are those of the dense gradient's sum.
 *
 * Ranges are cut so that adding and updating take all lanes about as long: a row that occurs costs
 * as much as some additions. How many different ids a range has is not known but bounded by its length
 * and by how often they occur, for each of the ROWS_BLOCKS blocks that rows_sort notes. The cuts
 * are a function of the lists, so that all lanes find the same; they never change a bit.
 */
#include <string.h>

#include "exec/state.h"
#include "graph/op.h"
#include "kernel/update.h"

enum {
    FETCH_AHEAD =
        16,   /* places of a list by which a table's rows are asked for before they are used */
    LINE = 16 /* floats */
};

/* An id and its row of dy, as rows_sort gives them. */
struct pair {
    int32_t id, row;
};

/* What one shard gives to a bucket. */
struct list {
    const struct pair *pairs;
    const int32_t *begin; /* of each block of ids */
    const float *dy;
};

static struct list list_of(const struct exec *exec, const struct row_sum *r, int64_t shard)
{
    const char *record = exec->records + (size_t)shard * exec->record;

    return (struct list){ (const struct pair *)(record + r->order),
                          (const int32_t *)(record + r->begin),
                          (const float *)(record + r->dy) };
}

enum status rows_find(struct exec *exec, const struct node *node)
{
    const int b = node->attrs.bucket;
    struct row_sum *r = &exec->row_sums[b];

    r->is_used = true;
    r->rows = node->attrs.rows;
    r->width = node->in[2]->shape.dim[node->in[2]->shape.rank - 1];
    if (exec->largest)
        r->most = shape_count(&exec->largest[exec_source_of(node->in[0])->id]) / 2;
    TRY(exec_place_factor(exec, node->in[0], b, &r->order));
    TRY(exec_place_factor(exec, node->in[1], b, &r->begin));
    return exec_place_factor(exec, node->in[2], b, &r->dy);
}

void rows_leave_empty(const struct lane *lane, int b)
{
    const struct row_sum *r = &lane->exec->row_sums[b];

    memset(lane->bases[BASE_FACTOR] + r->begin, 0, (ROWS_BLOCKS + 1) * sizeof(int32_t));
}

int64_t rows_entries(const struct exec *exec, int b, int64_t shard)
{
    return list_of(exec, &exec->row_sums[b], shard).begin[ROWS_BLOCKS];
}

/* Ranges ----------------------------------------------------------------------------------- */

/* First of pairs[low..high) whose id is not below `id`. */
static int32_t first_from(const struct pair *pairs, int32_t low, int32_t high, int64_t id)
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

/* What `entries` additions to at most `ids` rows cost, in additions of a row. */
static int64_t cost_of(const struct exec *exec, int64_t entries, int64_t ids)
{
    return entries + (entries < ids ? entries : ids) * (3 + 3 * exec->n_states);
}

static int64_t block_length(const struct row_sum *r)
{
    return (r->rows + ROWS_BLOCKS - 1) / ROWS_BLOCKS;
}

/* How often ids of block k below `end` occur, in all shards. */
static int64_t entries_below(const struct exec *exec, const struct row_sum *r, int64_t k,
                             int64_t end)
{
    int64_t entries = 0;

    for (int64_t v = 0; v < exec->shards; v++) {
        const struct list list = list_of(exec, r, v);
        entries +=
            first_from(list.pairs, list.begin[k], list.begin[k + 1], end) - list.begin[k];
    }
    return entries;
}

static int64_t entries_of(const struct exec *exec, const struct row_sum *r, int64_t k)
{
    int64_t entries = 0;

    for (int64_t v = 0; v < exec->shards; v++) {
        const struct list list = list_of(exec, r, v);
        entries += list.begin[k + 1] - list.begin[k];
    }
    return entries;
}

/* The largest id below which `target`, at most the cost of the whole, is not passed. */
static int64_t cut_at(const struct exec *exec, const struct row_sum *r, int64_t target)
{
    const int64_t length = block_length(r);
    int64_t k = 0, spent = 0;

    for (; k < ROWS_BLOCKS; k++) {
        const int64_t cost = cost_of(exec, entries_of(exec, r, k), length);
        if (spent + cost > target)
            break;
        spent += cost;
    }
    if (k == ROWS_BLOCKS)
        return r->rows;
    int64_t low = k * length, high = low + length; /* low does not pass the target, high does */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        const int64_t entries = entries_below(exec, r, k, middle);
        if (spent + cost_of(exec, entries, middle - k * length) > target)
            high = middle;
        else
            low = middle;
    }
    return low;
}

/* Work ------------------------------------------------------------------------------------- */

/* A shard's list while it is walked. */
struct cursor {
    const struct pair *next, *end;
    const float *dy;
};

struct work {
    struct lane *lane;
    int bucket;
    const struct kernel_update_step *numbers;
    int64_t parts,
        first;      /* the range of ids is cut into so many; those of this lane begin here */
    int64_t cost;   /* of the whole */
    size_t scratch; /* bytes of a thread */
    bool gives;     /* sums go to exec->remote, not to an update */
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

size_t rows_scratch(const struct exec *exec)
{
    const size_t shards = (size_t)exec->shards;
    size_t most = 0;

    for (int b = 0; b < exec->buckets.count; b++) {
        if (exec->row_sums[b].is_used && row_floats(&exec->row_sums[b]) > most)
            most = row_floats(&exec->row_sums[b]);
    }
    return most == 0 ? 0 : TREE_DEPTH * most * sizeof(float) + shards * ROOM_BYTES;
}

/* A table and its state, which a row of has the same place in. */
struct table {
    float *vectors[1 + KERNEL_STATES];
    int n_vectors;
    size_t width;
};

static struct table table_of(const struct exec *exec, int b)
{
    const size_t begin = (size_t)exec->buckets.begin[b];
    struct table table = { .vectors = { exec->param + begin },
                           .n_vectors = 1 + exec->n_states,
                           .width = (size_t)exec->row_sums[b].width };

    for (int i = 0; i < exec->n_states; i++)
        table.vectors[1 + i] = exec->state[i] + begin;
    return table;
}

/* Rows of the table that were asked for lately: several lists have an id. */
enum { NOTES = 256 };
struct fetched {
    int32_t id[NOTES];
};

/* The end of the pairs of the first one's id. Asks for rows of the table on the way. */
static const struct pair *run_end(const struct table *table, const struct cursor *cursor,
                                  struct fetched *fetched)
{
    const struct pair *pair = cursor->next;
    const int32_t id = pair->id;

    for (; pair < cursor->end && pair->id == id; pair++) {
        const struct pair *ahead = pair + FETCH_AHEAD;
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
    const struct pair *begin = cursor->next;

    cursor->next = run_end(table, cursor, fetched);
    return (struct kernel_row_list){ .table = cursor->dy,
                                     .number = &begin->row,
                                     .count = (size_t)(cursor->next - begin),
                                     .listed = (size_t)(cursor->end - begin) };
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

/* Sums the rows of all ids in the cursors' lists, of shards [from, to), and updates them or gives
 * them. */
static void walk(const struct work *work, const struct room *room, int64_t from, int64_t to,
                 struct tree_sums *sums, struct given *given)
{
    const struct exec *exec = work->lane->exec;
    const struct bucket *update = &exec->updates[work->bucket];
    struct table table = table_of(exec, work->bucket);
    struct fetched fetched;

    if (given)
        table.n_vectors = 0; /* nothing of it is touched */
    memset(&fetched, -1, sizeof fetched);
    for (;;) {
        float *state[KERNEL_STATES] = { NULL };
        int32_t id = INT32_MAX;
        int count = 0;

        for (int64_t v = from; v < to; v++)
            id = room->heads[v] < id ? room->heads[v] : id;
        if (id == INT32_MAX)
            return;
        for (int64_t v = from; v < to; v++) {
            struct cursor *cursor = &room->cursors[v];
            if (room->heads[v] != id)
                continue;
            room->lists[count] = take_run(&table, cursor, &fetched);
            room->shards[count++] = exec->tree_first + v;
            room->heads[v] = cursor->next < cursor->end ? cursor->next->id : INT32_MAX;
        }
        sum_lists(room->lists, room->shards, count, sums);
        if (given) {
            put(given, id, sums);
            continue;
        }
        const size_t at = (size_t)id * table.width;
        for (int i = 0; i < exec->n_states; i++)
            state[i] = table.vectors[1 + i] + at;
        update->kernel->run(table.vectors[0] + at, sums->data, state, table.width,
                            &update->attrs, work->numbers);
    }
}

/* Sets cursors to the ids of a span; returns how many pairs of its shards come before. */
static int64_t set_cursors(const struct exec *exec, const struct row_sum *r,
                           const struct span_of_ids *span, const struct room *room)
{
    const int64_t length = block_length(r);
    const int64_t first = span->begin / length, last = (span->end - 1) / length;
    int64_t before = 0;

    for (int64_t v = span->from; v < span->to; v++) {
        const struct list list = list_of(exec, r, v);
        struct cursor *cursor = &room->cursors[v];

        cursor->dy = list.dy;
        cursor->next = list.pairs + first_from(list.pairs, list.begin[first],
                                               list.begin[first + 1], span->begin);
        cursor->end = list.pairs +
                      first_from(list.pairs, list.begin[last], list.begin[last + 1], span->end);
        room->heads[v] = cursor->next < cursor->end ? cursor->next->id : INT32_MAX;
        before += cursor->next - list.pairs;
    }
    return before;
}

/* Puts together what one thread has of every sum: each at as many rows from the sum's first as there
 * are pairs before, so that no two threads' places meet. */
static void give_range(const struct work *work, struct span_of_ids span, int64_t thread,
                       const struct room *room, struct tree_sums *sums)
{
    const struct exec *exec = work->lane->exec;
    const struct row_sum *r = &exec->row_sums[work->bucket];
    struct remote *remote = exec->remote;

    for (int i = 0; i < remote->n_sums; i++) {
        struct row_range *range = &remote->ranges[work->bucket][i * work->parts + thread];
        span.from = remote->sums[i].node.begin - exec->tree_first;
        span.to = span.from + remote->sums[i].node.length;
        span.to = span.to < exec->shards ? span.to : exec->shards;
        *range = (struct row_range){ 0 };
        if (span.begin >= span.end)
            continue;
        range->at = set_cursors(exec, r, &span, room);
        const int64_t at = span.from * r->most + range->at;
        struct given given = { remote->ids[work->bucket] + at,
                               remote->rows[work->bucket] + at * r->width, 0 };
        walk(work, room, span.from, span.to, sums, &given);
        range->count = given.count;
    }
}

/* One thread's range of ids. */
static void do_range(void *arg, size_t i)
{
    const struct work *work = arg;
    const struct exec *exec = work->lane->exec;
    const struct row_sum *r = &exec->row_sums[work->bucket];
    const int64_t shards = exec->shards, part = work->first + (int64_t)i;
    const struct span_of_ids span = {
        .begin = cut_at(exec, r, work->cost * part / work->parts),
        .end = part + 1 == work->parts ? r->rows
                                       : cut_at(exec, r, work->cost * (part + 1) / work->parts),
        .to = shards,
    };
    struct tree_sums sums = { .data =
                                  (float *)((char *)work->lane->scratch + i * work->scratch),
                              .floats = row_floats(r),
                              .width = (size_t)r->width };
    struct room room = { .cursors = (struct cursor *)(sums.data + TREE_DEPTH * sums.floats) };

    room.lists = (struct kernel_row_list *)(room.cursors + shards);
    room.shards = (int64_t *)(room.lists + shards);
    room.heads = (int32_t *)(room.shards + shards);
    if (work->gives) {
        give_range(work, span, part, &room, &sums);
    } else if (span.begin < span.end) {
        (void)set_cursors(exec, r, &span, &room);
        walk(work, &room, 0, shards, &sums, NULL);
    }
}

/* numbers: NULL where sums go to servers. */
static void work_on_rows(struct lane *lane, int b, const struct kernel_update_step *numbers)
{
    const struct exec *exec = lane->exec;
    const struct row_sum *r = &exec->row_sums[b];
    const int threads = lane->pool ? pool_size(lane->pool) : 1;
    struct work work = { .lane = lane,
                         .bucket = b,
                         .numbers = numbers,
                         .parts = (int64_t)exec->all_lanes * threads,
                         .first = (int64_t)lane->number * threads,
                         .scratch = reduce_scratch(lane),
                         .gives = numbers == NULL };

    for (int64_t k = 0; k < ROWS_BLOCKS; k++)
        work.cost += cost_of(exec, entries_of(exec, r, k), block_length(r));
    pool_for(lane->pool, (size_t)threads, do_range, &work);
}

void rows_update(struct lane *lane, int b, const struct kernel_update_step *numbers)
{
    work_on_rows(lane, b, numbers);
}

/* Servers ---------------------------------------------------------------------------------- */

int rows_threads(const struct exec *exec)
{
    const struct lane *lane = exec->lanes;

    return exec->all_lanes * (lane->pool ? pool_size(lane->pool) : 1);
}

void rows_give(struct lane *lane, int b)
{
    work_on_rows(lane, b, NULL);
}

struct exec_rows rows_join(struct exec *exec, int b, int sum)
{
    const struct row_sum *r = &exec->row_sums[b];
    const int threads = rows_threads(exec);
    const struct tree_node node = exec->remote->sums[sum].node;
    const struct row_range *ranges = exec->remote->ranges[b] + (ptrdiff_t)sum * threads;
    const int64_t first = (node.begin - exec->tree_first) * r->most;
    int32_t *ids = exec->remote->ids[b] + first;
    float *rows = exec->remote->rows[b] + first * r->width;
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
