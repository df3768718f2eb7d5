/* SPDX-License-Identifier: MIT */
/* device_side.c - an executor's memory on a device: what lies there, how it comes and goes. */
#include "exec/device_side.h"

#include <stdlib.h>

#include "base/mem.h"
#include "graph/op.h"

enum { ALIGN = 256, GROUP_BYTES = 32 << 20 };

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* What cannot run there --------------------------------------------------------------------- */

enum status device_check(const struct exec *exec)
{
    const char *name = exec->config.device->face->name;

    if (exec->config.compress.codec)
        return FAIL(STATUS_UNSUPPORTED, "device %s: gradients are not compressed there", name);
    if (exec->topology.nodes > 1 && (exec->config.tensor || exec->config.pipeline.stages > 1 ||
                                     exec->config.beside.transport || exec->config.zero > 1))
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: ranks of several machines split neither layers nor parameters "
                    "there",
                    name);
    if (exec->config.zero > 1 && exec->topology.ranks > 1 &&
        (exec->layout.facts.rule.adapts || exec->config.pipeline.stages > 1))
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: gradients and parameters are not in parts in a pipeline, or "
                    "where norms of parameters are needed: every rank has all of them: use "
                    "zero=1",
                    name);
    if (exec->layout.facts.rule.anchors || exec->config.privacy)
        return FAIL(STATUS_UNSUPPORTED,
                    "device %s: updates are neither drawn to an anchor nor made private there "
                    "yet",
                    name);
    if (exec->config.remote && (sums_scale_losses(&exec->sums) || exec->config.device->draws))
        return FAIL(
            STATUS_UNSUPPORTED,
            "device %s: servers take gradients that are not scaled, and have parameters "
            "in f32: use bf16, rounded to the nearest",
            name);
    for (int b = 0; b < exec->layout.buckets.count; b++) {
        if (bucket_is_factored(&exec->layout, b) || bucket_is_served(&exec->layout, b) ||
            bucket_is_held(&exec->hold, b))
            return FAIL(STATUS_UNSUPPORTED,
                        "device %s: gradients are not made from factors, nor are rows or "
                        "parameters of bucket %d held by some alone",
                        name, b);
    }
    return STATUS_OK;
}

/* Updates ----------------------------------------------------------------------------------- */

/* Can one launch update both? Their attributes, as far as updates look at them, are the same. */
static bool are_alike(const struct bucket *a, const struct bucket *b)
{
    const struct attrs *x = &a->attrs, *y = &b->attrs;

    return a->kernel == b->kernel && a->rows == 0 && b->rows == 0 &&
           x->momentum == y->momentum && x->weight_decay == y->weight_decay &&
           x->beta1 == y->beta1 && x->beta2 == y->beta2 && x->epsilon == y->epsilon &&
           x->nesterov == y->nesterov && x->decoupled == y->decoupled;
}

static enum status find_update(const struct exec *exec, const struct bucket *bucket,
                               const struct device_update **out)
{
    const struct device_face *face = exec->config.device->face;

    *out = device_update(face, bucket->kernel->op);
    return *out ? STATUS_OK
                : FAIL(STATUS_UNSUPPORTED, "device %s has no %s", face->name,
                       bucket->kernel->op);
}

/* Elements of each state that rank r has for a stretch; so many that the next is aligned. */
size_t device_packed(const struct exec *exec, const struct device_stretch *stretch, int r)
{
    return aligned(ranks_part(exec, stretch, r).count * sizeof(float)) / sizeof(float);
}

/* Of all stretches, for the rank that has most. */
static size_t most_state(const struct exec *exec)
{
    size_t most = 0;

    for (int r = 0; r < exec->topology.ranks; r++) {
        size_t count = 0;
        for (int i = 0; i < exec->device->n_stretches; i++)
            count += device_packed(exec, &exec->device->stretches[i], r);
        most = count > most ? count : most;
    }
    return most;
}

/* Of one rank, or if each updates all, there is one group. */
static void find_groups(struct exec *exec)
{
    struct device_side *side = exec->device;
    const size_t wish = side->config.group_bytes ? side->config.group_bytes : GROUP_BYTES;
    const size_t even = exec->layout.vector / DEVICE_GROUPS, some = wish / sizeof(float);
    const bool is_one = exec->topology.ranks == 1 || ranks_update_all(exec);
    const size_t least = is_one ? exec->layout.vector : some > even ? some : even;

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const size_t begin = (size_t)exec->layout.buckets.begin[b];
        const size_t end = (size_t)exec->layout.buckets.begin[b + 1];
        struct device_group *group = &side->groups[side->n_groups ? side->n_groups - 1 : 0];

        const bool differs =
            !is_one && b > 0 &&
            (exec->layout.buckets.held >> b & 1) != (exec->layout.buckets.held >> (b - 1) & 1);
        if (side->n_groups == 0 ||
            ((group->count > least || differs) && side->n_groups < DEVICE_GROUPS)) {
            group = &side->groups[side->n_groups++];
            *group = (struct device_group){ .first = b, .at = begin };
        }
        group->end = b + 1;
        group->count = end - group->at;
    }
}

static int group_of(const struct device_side *side, int bucket)
{
    int group = 0;

    while (bucket >= side->groups[group].end)
        group++;
    return group;
}

static enum status find_stretches(struct exec *exec)
{
    struct device_side *side = exec->device;
    const bool is_whole = exec->topology.ranks == 1 || ranks_update_all(exec);

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        const struct bucket *bucket = &exec->layout.updates[b];
        const size_t at = (size_t)exec->layout.buckets.begin[b];
        const size_t count = (size_t)exec->layout.buckets.begin[b + 1] - at;
        struct device_stretch *last =
            side->n_stretches > 0 ? &side->stretches[side->n_stretches - 1] : NULL;

        const int group = group_of(side, b);

        if (last && last->group == group && are_alike(last->bucket, bucket)) {
            last->count += count;
            continue;
        }
        struct device_stretch *next = &side->stretches[side->n_stretches++];
        *next = (struct device_stretch){
            .bucket = bucket, .at = at, .count = count, .group = group, .table = -1
        };
        TRY(find_update(exec, bucket, &next->update));
        if (bucket_is_table(&exec->layout, b)) {
            next->table = b;
            next->count = (size_t)(bucket->rows * bucket->width);
        }
    }
    side->state_count = exec->remote ? 0 : is_whole ? exec->layout.vector : most_state(exec);
    size_t state_at = 0;
    for (int i = 0; i < side->n_stretches; i++) {
        struct device_stretch *stretch = &side->stretches[i];
        stretch->state_at = is_whole ? stretch->at : state_at;
        state_at += device_packed(exec, stretch, exec->topology.rank);
    }
    return STATUS_OK;
}

/* Parameters with norms of their own, which are those that are trained. */
static enum status find_norms(struct exec *exec)
{
    struct device_side *side = exec->device;

    if (!exec->layout.facts.rule.adapts)
        return STATUS_OK;
    TRY(mem_alloc((size_t)exec->model.count, sizeof *side->norms, &side->norms));
    for (int p = 0; p < exec->model.count; p++) {
        const struct value *param = exec->model.params[p];
        const struct bucket *bucket = &exec->layout.updates[plan_bucket_of(param->flat)];

        if (bucket->is_average)
            continue;
        struct device_norm *next = &side->norms[side->n_norms++];
        *next = (struct device_norm){ .at = exec_place(exec, p),
                                      .count = (size_t)shape_count(&param->shape),
                                      .bucket = bucket,
                                      .is_adapted =
                                          bucket->attrs.adapts_all || param->shape.rank > 1 };
        TRY(find_update(exec, bucket, &next->update));
    }
    return STATUS_OK;
}

/* Memory ------------------------------------------------------------------------------------ */

/* Hands out pieces of one block; with base NULL it only counts. */
struct carver {
    char *base;
    size_t used;
};

static void *carve(struct carver *carver, size_t bytes)
{
    void *piece = carver->base ? carver->base + carver->used : NULL;
    carver->used += aligned(bytes);
    return piece;
}

/* Marks of all tables; `marks` (may be NULL) gets each one's. */
static uint8_t *carve_marks(const struct exec *exec, struct carver *carver, uint8_t **marks,
                            size_t *out_bytes)
{
    const size_t before = carver->used;
    uint8_t *all = carver->base ? (uint8_t *)carver->base + before : NULL;

    for (int b = 0; b < exec->layout.buckets.count; b++) {
        uint8_t *piece = bucket_is_table(&exec->layout, b)
                             ? carve(carver, (size_t)exec->layout.row_sums[b].rows)
                             : NULL;
        if (marks)
            marks[b] = piece;
    }
    *out_bytes = carver->used - before;
    return all;
}

void device_point_to_feed(struct device_side *side, int number)
{
    side->turn = number;
    side->feed = side->feeds[number].memory;
    side->results = side->feeds[number].results;
}

/* What ranks need of each other. */
static void lay_out_ranks(struct exec *exec, struct carver *carver)
{
    struct device_side *side = exec->device;

    side->joined_marks = side->all_marks;
    side->sum = side->gradients;
    if (!side->ranks)
        return;
    void *words = carve(carver, ranks_words_bytes(exec));
    void *scratch = carve(carver, ranks_scratch_bytes(exec));
    side->joined_marks = carve_marks(exec, carver, NULL, &side->marks_bytes);
    ranks_place(side, words, scratch);
}

static void lay_out(struct exec *exec, struct carver *carver)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;
    const size_t params = (size_t)exec->model.count;
    const size_t params_bytes = parts_window(exec) * sizeof(float);

    side->param = carve(carver, params_bytes);
    side->half = side->config.precision == DTYPE_F32 ? NULL : carve(carver, params_bytes / 2);
    parts_place(side, carve(carver, parts_own(side) * sizeof(float)));
    if (side->config.draws)
        side->origins = carve(carver, params * sizeof *side->origins);
    if (sums_scale_losses(&exec->sums)) {
        side->scaling = carve(carver, sizeof *side->scaling);
        side->scaled = carve(carver, (size_t)exec->topology.shards * sizeof *side->scaled);
    }
    for (int i = 0; i < exec->layout.n_states && exec->config.batch && !exec->remote; i++)
        side->state[i] = carve(carver, side->state_count * sizeof(float));
    side->n_buffers = exec->config.batch ? ranks_buffers(exec) : 0;
    side->gradients =
        carve(carver, (size_t)side->n_buffers * parts_gradients(exec) * sizeof(float));
    side->all_marks = carve_marks(exec, carver, side->marks, &side->marks_bytes);
    for (int i = 0; i < DEVICE_FEEDS; i++)
        side->feeds[i].results =
            carve(carver, 2 * (size_t)exec->topology.shards * sizeof(float));
    side->counted = carve(carver, 2 * sizeof(float));
    if (side->ranks && sums_need_norm(&exec->sums) && !ranks_update_all(exec))
        side->part_sums = carve(carver, side->state_count * sizeof(float));
    squares_place(exec, carve(carver, squares_bytes(exec)));
    if (exec->layout.facts.rule.adapts) {
        side->param_squares = carve(carver, params * sizeof(double));
        side->move_squares = carve(carver, params * sizeof(double));
        side->squares_scratch = carve(carver, face->sum_squares_bytes(exec->layout.vector));
        side->trusted = carve(carver, params * sizeof *side->trusted);
    }
    side->tables = carve(carver, exec->layout.tables_bytes);
    lay_out_ranks(exec, carver);
    for (int i = 0; i < DEVICE_FEEDS; i++)
        side->feeds[i].memory = carve(carver, side->feed_bytes);
    device_point_to_feed(side, 0);
}

/* The most that a step's feed has: every shard's numbers and samples of the largest extents. */
static size_t most_fed(const struct exec *exec)
{
    const struct graph_roles *roles = graph_roles((struct graph *)exec->config.train);
    const struct value *const parts[] = { roles->input, roles->second, roles->target };
    const size_t shards = (size_t)exec->lanes[0].count;
    size_t bytes = ALIGN + aligned(shards * sizeof(struct kernel_step));

    for (int i = 0; i < 3 && exec->layout.largest; i++) {
        if (parts[i])
            bytes +=
                shards * aligned((size_t)shape_count(&exec->layout.largest[parts[i]->id]) * 4);
    }
    if (exec->layout.largest && roles->input && !roles->input->sequence)
        bytes += aligned(shards * (size_t)exec->layout.largest[roles->input->id].dim[0] *
                         sizeof(struct pick));
    return bytes;
}

/* Of the memory of the device and of what is on it. */
static enum status no_room(const struct exec *exec, const char *what, size_t bytes)
{
    const struct device_side *side = exec->device;

    return FAIL(STATUS_NO_MEMORY,
                "%s (of each of %d ranks: %zu MiB for %s, %zu MiB for parameters, state and "
                "gradients)",
                status_message(), exec->topology.ranks, bytes >> 20, what,
                side->memory_bytes >> 20);
}

static int compare_origins(const void *a, const void *b)
{
    const uint64_t at = ((const struct device_origin *)a)->at;
    const uint64_t other = ((const struct device_origin *)b)->at;

    return at < other ? -1 : at > other;
}

/* Which parameters lie in the flat vector, in their order there. */
static enum status write_origins(const struct exec *exec)
{
    const struct device_side *side = exec->device;
    const size_t count = (size_t)exec->model.count;
    struct device_origin *origins;

    if (!side->origins)
        return STATUS_OK;
    TRY(mem_alloc(count + 1, sizeof *origins, &origins));
    for (size_t i = 0; i < count; i++)
        origins[i] = (struct device_origin){ .at = exec_place(exec, (int)i),
                                             .parameter = (uint32_t)exec->model.numbers[i] };
    qsort(origins, count, sizeof *origins, compare_origins);
    enum status status = side->config.face->memory->copy(side->stream, side->origins, origins,
                                                         count * sizeof *origins);
    if (status == STATUS_OK)
        status = device_wait(exec);
    mem_free(origins);
    return status;
}

/* Of several ranks it is memory that the others can open. */
static enum status create_block(struct exec *exec, struct device_handle *out_handle)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;

    if (side->ranks && !side->team)
        return face->share->create(side->config.device, side->memory_bytes,
                                   (void **)&side->memory, out_handle);
    return face->memory->create(side->config.device, side->memory_bytes,
                                (void **)&side->memory);
}

static enum status make_memory(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    struct carver carver = { 0 };
    struct device_handle handle;

    side->feed_bytes = most_fed(exec);
    lay_out(exec, &carver);
    side->memory_bytes = carver.used;
    const enum status status = create_block(exec, &handle);
    if (status != STATUS_OK)
        return status == STATUS_NO_MEMORY ? no_room(exec, "a step's samples", side->feed_bytes)
                                          : status;
    TRY(memory->fill(side->stream, side->memory, 0, carver.used));
    carver = (struct carver){ .base = side->memory };
    lay_out(exec, &carver);
    TRY(write_origins(exec));
    if (exec->remote && side->marks_bytes)
        TRY(memory->create_host(side->config.device, side->marks_bytes,
                                (void **)&side->given_marks));
    if (!side->ranks)
        return STATUS_OK;
    TRY(device_wait(exec)); /* words are 0 */
    return ranks_open(exec, &handle);
}

/* Of several groups: a stream beside the other, and where it begins and ends. */
static enum status make_groups(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct device_stream_ops *stream = side->config.face->stream;

    side->sums = side->stream;
    if (side->n_groups == 1)
        return STATUS_OK;
    side->sums = NULL;
    TRY(stream->create(side->config.device, &side->sums));
    TRY(stream->event_create(side->config.device, &side->joined));
    for (int g = 0; g < side->n_groups; g++) {
        TRY(stream->event_create(side->config.device, &side->groups[g].final));
        TRY(stream->event_create(side->config.device, &side->groups[g].done));
    }
    return STATUS_OK;
}

static void lock(struct device_side *side, void *memory, size_t bytes)
{
    if (side->config.face->memory->lock_host(side->config.device, memory, bytes))
        side->locked[side->n_locked++] = memory;
}

/* Parameters of a worker of its own come and go all the time, and sums of one with servers. */
static void lock_vectors(const struct exec *exec)
{
    const struct lane *lane = &exec->lanes[0];

    if (exec->config.part.count)
        lock(exec->device, exec->memory.param, exec->layout.vector * sizeof(float));
    if (exec->remote)
        lock(exec->device, lane->gradients,
             (size_t)lane->n_buffers * exec->layout.vector * sizeof(float));
}

static enum status make_slot(struct exec *exec, struct device_slot *slot)
{
    struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device *device = side->config.device;

    TRY(memory->create_host(device, side->feed_bytes, (void **)&slot->host));
    TRY(memory->create_host(device, 2 * (size_t)exec->topology.shards * sizeof(float),
                            (void **)&slot->results));
    TRY(stream->event_create(device, &slot->copied));
    TRY(stream->event_create(device, &slot->ran));
    return stream->event_create(device, &slot->done);
}

enum status device_create(struct exec *exec)
{
    struct device_side *side;

    TRY(mem_alloc(1, sizeof *side, &side));
    exec->device = side;
    side->config = *exec->config.device;
    side->target =
        (struct plan_target){ side->config.face, side->config.precision, side->config.rounds };
    side->is_stale = true;
    TRY(side->config.face->stream->create(side->config.device, &side->stream));
    TRY(side->config.face->stream->create_beside(side->config.device, &side->copies));
    TRY(side->config.face->stream->create(side->config.device, &side->returns));
    TRY(aside_create(side));
    TRY(mem_alloc((size_t)exec->lanes[0].count, sizeof *side->places, &side->places));
    find_groups(exec);
    TRY(find_stretches(exec));
    TRY(find_norms(exec));
    TRY(make_groups(exec));
    TRY(parts_create(exec));
    if (exec->topology.ranks > 1 || exec->config.tensor || exec->config.pipeline.stages > 1)
        TRY(device_watch_create(exec));
    if (exec->topology.ranks > 1)
        TRY(ranks_create(exec));
    TRY(squares_create(exec));
    TRY(make_memory(exec));
    TRY(squares_open(exec));
    if (exec->config.tensor)
        TRY(tensor_create(exec));
    if (exec->config.pipeline.stages > 1)
        TRY(device_pipe_create(exec));
    lock_vectors(exec);
    for (int i = 0; i < DEVICE_SLOTS && exec->config.batch; i++)
        TRY(make_slot(exec, &side->slots[i]));
    return sums_scale_losses(&exec->sums) ? scale_begin(exec) : STATUS_OK;
}

void device_forget_graphs(struct device_side *side)
{
    for (int i = 0; i < side->n_captured; i++) {
        struct device_captured *captured = &side->captured[i];
        for (int f = 0; f < DEVICE_FEEDS; f++) {
            if (captured->graph[f])
                side->config.face->graph->destroy(captured->graph[f]);
        }
        *captured = (struct device_captured){ 0 };
    }
    side->n_captured = 0;
    device_forget_forwards(side);
}

/* Until what steps are put on is done, as much of it as there is; fails with what went wrong on
 * any. */
static enum status wait_for_streams(const struct device_side *side)
{
    const struct device_stream_ops *stream = side->config.face->stream;
    const enum status status = side->stream ? stream->wait(side->stream) : STATUS_OK;
    const enum status beside =
        side->sums && side->sums != side->stream ? stream->wait(side->sums) : STATUS_OK;

    const enum status aside = aside_wait(side);
    const enum status copied = side->copies ? stream->wait(side->copies) : STATUS_OK;
    const enum status returned = side->returns ? stream->wait(side->returns) : STATUS_OK;

    TRY(beside);
    TRY(aside);
    TRY(status);
    TRY(copied);
    return returned;
}

void device_destroy(struct exec *exec)
{
    struct device_side *side = exec->device;

    if (!side)
        return;
    const struct device_memory_ops *memory = side->config.face->memory;
    const struct device_stream_ops *stream = side->config.face->stream;
    struct device *device = side->config.device;
    device_watch_leave(side);
    const enum status left = wait_for_streams(side);
    (void)left;                 /* nobody asks how it went */
    device_forget_graphs(side); /* who gives up a team waits for that */
    device_watch_end(side);
    for (int g = 0; g < side->n_groups; g++) {
        stream->event_destroy(side->groups[g].final);
        stream->event_destroy(side->groups[g].done);
    }
    stream->event_destroy(side->joined);
    if (side->sums != side->stream)
        stream->destroy(side->sums);
    for (int i = 0; i < DEVICE_SLOTS; i++) {
        struct device_slot *slot = &side->slots[i];
        memory->destroy_host(device, slot->host);
        memory->destroy_host(device, slot->results);
        stream->event_destroy(slot->copied);
        stream->event_destroy(slot->ran);
        stream->event_destroy(slot->done);
    }
    device_forget_kept(side);
    for (int i = 0; i < side->n_locked; i++)
        memory->unlock_host(device, side->locked[i]);
    memory->destroy_host(device, side->given_marks);
    memory->destroy_host(device, side->eval.output);
    memory->destroy(device, side->eval.there);
    memory->destroy(device, side->eval.widened);
    memory->destroy(device, side->arenas);
    tensor_destroy(exec);
    device_pipe_destroy(exec);
    squares_destroy(exec);
    const bool is_shared = side->ranks && !side->team;
    ranks_destroy(exec); /* closes what is others' before this rank's own goes */
    if (is_shared)
        side->config.face->share->destroy(device, side->memory);
    else
        memory->destroy(device, side->memory);
    aside_destroy(side);
    stream->destroy(side->stream);
    stream->destroy(side->copies);
    stream->destroy(side->returns);
    device_watch_destroy(side);
    mem_free(side->places);
    mem_free(side->norms);
    parts_destroy(side);
    mem_free(side);
    exec->device = NULL;
}

/* Plans ------------------------------------------------------------------------------------- */

enum status device_plan(const struct exec *exec, struct extents extents, bool evaluation,
                        struct plan **out)
{
    struct plan_gathers gathers =
        evaluation ? (struct plan_gathers){ 0 } : exec->layout.gathers;

    gathers.shard = exec->lanes[0].first;
    return plan_create_on(&exec->device->target,
                          evaluation ? exec->config.eval : exec->config.train,
                          exec->config.train, extents, &exec->layout.buckets, &gathers,
                          exec->config.choices, out);
}

/* The arena has room for so many bytes. */
static enum status grow(struct exec *exec, size_t bytes)
{
    struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;

    if (bytes <= exec->arena_bytes)
        return STATUS_OK;
    TRY(device_wait(exec));
    device_forget_graphs(side);
    memory->destroy(side->config.device, side->arenas);
    side->arenas = side->arena = NULL;
    exec->arena_bytes = 0;
    const size_t all = bytes * (size_t)pipe_arenas(exec);
    if (memory->create(side->config.device, all, (void **)&side->arenas) != STATUS_OK)
        return no_room(exec, "activations", all);
    exec->arena_bytes = bytes;
    side->arena = side->arenas;
    side->bases[BASE_ARENA] = side->arena;
    side->bases[BASE_PARAM] = (char *)side->param;
    side->bases[BASE_HALF] = (char *)side->half;
    return STATUS_OK;
}

enum status device_make_room(struct exec *exec, const struct plan *plan, bool is_new)
{
    TRY(grow(exec, plan->arena_bytes));
    TRY(aside_prepare(exec->device, plan));
    if (is_new && exec->device->tensor)
        TRY(tensor_prepare(exec, plan));
    return is_new && exec->device->pipe ? device_pipe_prepare(exec, plan) : STATUS_OK;
}

/* Vectors ----------------------------------------------------------------------------------- */

enum status device_blame(const struct exec *exec, enum status status)
{
    if (exec->device->watch)
        TRY(transport_check(exec->transport));
    return status;
}

enum status device_wait(const struct exec *exec)
{
    return device_blame(exec, wait_for_streams(exec->device));
}

/* Copies parameters between the device and the flat vector of the host: groups that are whole; of
 * others all ranks' parts, which nobody changes now, or this rank's own. */
static enum status move_params(const struct exec *exec, bool fetches)
{
    const struct device_side *side = exec->device;
    const struct device_memory_ops *memory = side->config.face->memory;

    for (int g = 0; g < side->n_groups; g++) {
        const struct device_group *group = &side->groups[g];
        float *here = exec->memory.param + group->at,
              *there = side->param + parts_param(side, group->at);
        if (!parts_hold(side, g))
            TRY(memory->copy(side->stream, fetches ? here : there, fetches ? there : here,
                             group->count * sizeof(float)));
    }
    for (int i = 0; i < side->n_stretches; i++) {
        const struct device_stretch *stretch = &side->stretches[i];
        for (int r = 0; r < exec->topology.ranks && parts_hold(side, stretch->group); r++) {
            const struct device_part part = ranks_part(exec, stretch, r);
            float *here = exec->memory.param + part.at, *there = parts_owned(exec, stretch, r);
            if (fetches || r == exec->topology.rank)
                TRY(memory->copy(side->stream, fetches ? here : there, fetches ? there : here,
                                 part.count * sizeof(float)));
        }
    }
    return STATUS_OK;
}

enum status device_fetch_params(const struct exec *exec)
{
    struct device_side *side = exec->device;

    if (!side->is_newer)
        return STATUS_OK;
    TRY(move_params(exec, true));
    TRY(device_wait(exec));
    side->is_newer = false;
    return STATUS_OK;
}

/* Copies this rank's parts of a state between the device and the flat vector of the host. */
static enum status move_state(const struct exec *exec, int state, bool fetches)
{
    const struct device_side *side = exec->device;

    for (int i = 0; i < side->n_stretches; i++) {
        const struct device_stretch *stretch = &side->stretches[i];
        const struct device_part part = ranks_part(exec, stretch, exec->topology.rank);
        float *here = exec->memory.state[state] + part.at;
        float *there = side->state[state] + stretch->state_at;
        TRY(side->config.face->memory->copy(side->stream, fetches ? here : there,
                                            fetches ? there : here,
                                            part.count * sizeof(float)));
    }
    return STATUS_OK;
}

enum status device_fetch(const struct exec *exec)
{
    struct device_side *side = exec->device;
    const bool is_first =
        exec->topology.rank == transport_node_first(exec->transport, exec->topology.node);
    const bool is_needed = is_first || !ranks_update_all(exec);

    if (is_first)
        TRY(device_fetch_params(exec));
    for (int i = 0; i < exec->layout.n_states && is_needed && side->has_newer_state; i++)
        TRY(move_state(exec, i, true));
    TRY(device_wait(exec));
    side->is_newer = side->has_newer_state =
        false; /* a machine's first rank has fetched for all */
    return STATUS_OK;
}

enum status device_give(struct exec *exec)
{
    struct device_side *side = exec->device;
    const struct device_face *face = side->config.face;

    if (!side->is_stale && !side->has_stale_state)
        return STATUS_OK;
    if (side->is_stale)
        TRY(move_params(exec, false));
    for (int i = 0; i < exec->layout.n_states && side->has_stale_state && side->state[i]; i++)
        TRY(move_state(exec, i, false));
    if (side->half && side->is_stale)
        face->convert(side->stream, side->half, side->config.precision, side->param, DTYPE_F32,
                      parts_window(exec));
    TRY(device_wait(exec)); /* the vectors are the caller's again */
    side->is_stale = side->has_stale_state = false;
    return parts_own(side) ? exec_settle(exec) : STATUS_OK; /* others will read this rank's */
}
