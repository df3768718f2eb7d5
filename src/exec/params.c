/* SPDX-License-Identifier: MIT */
/* params.c - parameters and optimizer state in and out of the flat vectors. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "base/sha256.h"
#include "exec/device_side.h"
#include "kernel/precision.h"

/* Part of the counter of initial values, so that they share no numbers with other draws. */
enum { INIT_STREAM = 0x1717 };

int exec_param_count(const struct exec *exec)
{
    return exec->model.count;
}

const struct value *exec_param(const struct exec *exec, int i)
{
    return exec->model.params[i];
}

int exec_param_number(const struct exec *exec, int i)
{
    return exec->model.numbers[i];
}

int exec_state_count(const struct exec *exec, int param)
{
    const struct value *value = exec->model.params[param];

    if (value->kind != VALUE_PARAM)
        return 0;
    return exec->layout.n_states +
           (bucket_is_compressed(&exec->layout, plan_bucket_of(value->flat)) ? net_states(exec)
                                                                             : 0);
}

void exec_state_name(const struct exec *exec, int state, char out[EXEC_STATE_NAME])
{
    const int node = state - exec->layout.n_states - NET_BASIS - 1;

    if (state < exec->layout.n_states)
        snprintf(out, EXEC_STATE_NAME, "%s", exec->config.optim.optimizer->state_names[state]);
    else if (node < 0)
        snprintf(out, EXEC_STATE_NAME, "compress_basis");
    else
        snprintf(out, EXEC_STATE_NAME, "compress_error_%d", node);
}

int exec_own_states(const struct exec *exec)
{
    return exec->layout.n_states;
}

size_t exec_vector_length(const struct exec *exec)
{
    return exec->layout.vector;
}

size_t exec_place(const struct exec *exec, int param)
{
    const struct value *value = exec->model.params[param];

    return (size_t)(exec->layout.buckets.begin[plan_bucket_of(value->flat)] + value->offset);
}

static float *place_of(const struct exec *exec, int param, int state)
{
    float *vector = state < 0 ? exec->memory.param
                    : state < exec->layout.n_states
                        ? exec->memory.state[state]
                        : net_state(exec, state - exec->layout.n_states);
    return vector + exec_place(exec, param);
}

float *exec_vector(struct exec *exec, int state)
{
    BUG_ON(state >= exec->layout.n_states);
    return state < 0 ? exec->memory.param : exec->memory.state[state];
}

/* Of vectors that the device takes before it needs them. */
static void note_written(struct exec *exec, int what)
{
    if (!exec->device)
        return;
    exec->device->is_stale |= (what & EXEC_PARAMS) != 0;
    exec->device->has_stale_state |= (what & EXEC_STATES) != 0;
}

enum status exec_fetch_params(struct exec *exec)
{
    TRY(exec_settle(exec));
    return exec->device ? device_fetch_params(exec) : STATUS_OK;
}

void exec_wrote_params(struct exec *exec)
{
    note_written(exec, EXEC_PARAMS);
    if (exec->device)
        exec->device->is_newer = false;
}

/* What lies in memory as files have it needs no other order: a turned weight is that. */
static enum layout file_layout(const struct value *value)
{
    return value->is_turned ? LAYOUT_PLAIN : value->layout;
}

static void to_plain(const struct value *value, const float *place, float *out)
{
    layout_to_plain(file_layout(value), &value->shape, sizeof(float), place, out);
}

static void from_plain(const struct value *value, const float *plain, float *place)
{
    layout_from_plain(file_layout(value), &value->shape, sizeof(float), plain, place);
}

void exec_get(const struct exec *exec, int param, int state, float *out)
{
    to_plain(exec->model.params[param], place_of(exec, param, state), out);
}

/* Where updates leave parameters in bf16, they are so from the beginning. */
static void round_param(const struct exec *exec, int param)
{
    const struct value *value = exec->model.params[param];
    float *place = place_of(exec, param, -1);

    if (!exec->device || !exec->device->config.draws || value->kind != VALUE_PARAM)
        return;
    for (int64_t i = 0; i < shape_count(&value->shape); i++)
        place[i] = kernel_from_bf16(kernel_to_bf16(place[i]));
}

void exec_set(struct exec *exec, int param, int state, const float *plain)
{
    from_plain(exec->model.params[param], plain, place_of(exec, param, state));
    if (state < 0)
        round_param(exec, param);
    if (exec->device) {
        /* What it has would be lost. */
        BUG_ON(exec->device->is_newer || exec->device->has_newer_state);
        note_written(exec, state < 0 ? EXEC_PARAMS : EXEC_STATES);
    }
}

void exec_get_from(const struct exec *exec, int param, const float *vector, float *out)
{
    to_plain(exec->model.params[param], vector + exec_place(exec, param), out);
}

void exec_set_in(const struct exec *exec, int param, float *vector, const float *plain)
{
    from_plain(exec->model.params[param], plain, vector + exec_place(exec, param));
}

/* Two normal numbers from two words (Box and Muller, in double). */
static void draw_normal(const uint32_t word[2], float out[2])
{
    const double radius = sqrt(-2 * log(((double)word[0] + 0.5) * 0x1p-32));
    const double angle = 2 * 3.14159265358979323846 * ((double)word[1] * 0x1p-32);

    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

/* Elements [begin, begin + count) of parameter p. Element i: word i%4 of Philox(seed, { i/4 low,
 * i/4 high, p, INIT_STREAM }), or a normal number made of the words of i%4/2. */
static void draw(uint64_t seed, int p, const struct value *value, int64_t begin, int64_t count,
                 float *out)
{
    const int64_t end = begin + count;

    for (int64_t i = begin / 4 * 4; i < end; i += 4) {
        const uint64_t block = (uint64_t)i / 4;
        const uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)p,
                                      INIT_STREAM };
        const struct rng_block words = rng_philox(seed, counter);
        float normal[4] = { 0 };
        if (value->init_deviation > 0) {
            draw_normal(words.word, normal);
            draw_normal(words.word + 2, normal + 2);
        }
        for (int64_t j = i < begin ? begin - i : 0; j < 4 && i + j < end; j++)
            out[i + j - begin] = value->initial +
                                 (2 * rng_to_float(words.word[j]) - 1) * value->init_bound +
                                 normal[j] * value->init_deviation;
    }
}

/* A slice has what the whole parameter has there. */
static void draw_param(uint64_t seed, int p, const struct value *value, float *out)
{
    const struct shape saved = graph_saved_shape(value);
    const struct shape_slice slice = graph_saved_slice(value);

    for (int64_t i = 0; i < slice_runs(&slice, &saved); i++) {
        const struct slice_run run = slice_run(&slice, &saved, i);
        draw(seed, p, value, run.whole, run.count, out + run.local);
    }
}

void exec_draw_unused(uint64_t seed, int index, const struct value *value, float *out)
{
    enum { FIRST = 1 << 24 }; /* no parameter that is trained has such a number */

    draw_param(seed, FIRST + index, value, out);
}

static int64_t largest_param(const struct exec *exec)
{
    int64_t largest = 0;

    for (int i = 0; i < exec->model.count; i++) {
        const int64_t count = shape_count(&exec->model.params[i]->shape);
        largest = count > largest ? count : largest;
    }
    return largest;
}

int exec_group_count(const struct exec *exec)
{
    return exec->layout.buckets.count;
}

int exec_group_of(const struct exec *exec, int param)
{
    return plan_bucket_of(exec->model.params[param]->flat);
}

static enum status publish_group(struct exec *exec, int group, int what)
{
    if (exec->topology.nodes == 1)
        return STATUS_OK;
    if (exec->device)
        return device_publish(exec, group, what);
    TRY(net_publish(exec, group, what));
    exec_forget_group(exec, group);
    return STATUS_OK;
}

enum status exec_publish_group(struct exec *exec, int group)
{
    note_written(exec, EXEC_PARAMS | EXEC_STATES); /* by rank 0 */
    return publish_group(exec, group, EXEC_PARAMS | EXEC_STATES);
}

enum status exec_collect_group(struct exec *exec, int group, int what)
{
    if (exec->device && exec->topology.nodes > 1)
        return what & EXEC_STATES ? device_collect(exec, group) : STATUS_OK;
    if (exec->device) { /* all groups come at once */
        TRY(device_fetch(exec));
        return exec_settle(exec);
    }
    return exec->topology.nodes == 1 ? STATUS_OK : net_collect(exec, group, what);
}

void exec_forget_group(struct exec *exec, int group)
{
    if (exec->topology.rank == 0 && exec->net)
        net_forget(exec, group);
}

enum status exec_init_params(struct exec *exec)
{
    float *plain;

    TRY(exec_settle(exec));
    TRY(mem_alloc((size_t)largest_param(exec), sizeof *plain, &plain));
    enum status status = STATUS_OK;
    for (int g = 0; g < exec->layout.buckets.count && status == STATUS_OK; g++) {
        for (int i = 0; i < exec->model.count && exec->topology.rank == 0; i++) {
            const struct value *value = exec->model.params[i];
            if (exec_group_of(exec, i) != g)
                continue;
            draw_param(exec->config.seed, exec->model.numbers[i], value, plain);
            exec_set(exec, i, -1, plain);
        }
        status = publish_group(exec, g, EXEC_PARAMS);
    }
    mem_free(plain);
    TRY(status);
    note_written(exec, EXEC_PARAMS | EXEC_STATES); /* by rank 0 */
    return exec_settle(exec);
}

enum status exec_publish(struct exec *exec)
{
    note_written(exec, EXEC_PARAMS | EXEC_STATES); /* by rank 0 */
    TRY(exec_settle(exec));
    if (exec->topology.nodes == 1)
        return STATUS_OK;
    for (int g = 0; g < exec->layout.buckets.count; g++)
        TRY(exec_publish_group(exec, g));
    TRY(net_move_vectors(exec, true));
    return exec_settle(exec);
}

enum status exec_collect(struct exec *exec)
{
    TRY(exec_settle(exec));
    if (exec->device) {
        TRY(device_fetch(exec));
        TRY(exec_settle(exec)); /* all have brought what is theirs */
    }
    if (exec->topology.nodes == 1)
        return STATUS_OK;
    for (int g = 0; g < exec->layout.buckets.count; g++)
        TRY(exec_collect_group(exec, g, EXEC_PARAMS | EXEC_STATES));
    TRY(net_move_vectors(exec, false));
    return exec_settle(exec);
}

bool exec_is_in_parts(const struct exec *exec)
{
    return exec->hold.buckets != 0;
}

enum status exec_make_whole(struct exec *exec)
{
    if (!exec_is_in_parts(exec))
        return STATUS_OK;
    TRY(exec_settle(exec));
    for (int g = 0; g < exec->layout.buckets.count; g++)
        TRY(net_collect(exec, g, EXEC_PARAMS));
    return exec_settle(exec);
}

enum status exec_make_parts(struct exec *exec)
{
    if (!exec_is_in_parts(exec))
        return STATUS_OK;
    for (int g = 0; g < exec->layout.buckets.count; g++)
        exec_forget_group(exec, g);
    return exec_settle(exec);
}

/* Puts the lanes' columns of this rank back to the flat vectors. */
static void return_columns(struct exec *exec)
{
    for (int i = 0; i < exec->topology.n_lanes && exec->now.columns_taken; i++)
        columns_return(&exec->lanes[i].worker);
    exec->now.columns_taken = false;
}

enum status exec_settle(struct exec *exec)
{
    struct lane *lane = &exec->lanes[0];

    if (exec->device)
        TRY(device_wait(exec));
    if (exec->device && exec->remote)
        TRY(device_await_params(exec));
    if (exec->device && exec->topology.ranks == 1)
        return STATUS_OK;
    for (int b = 0; b < exec->layout.buckets.count && !exec->device; b++) {
        if (exec->remote)
            TRY(remote_await(exec->config.remote, &lane->clock, b));
        else
            TRY(clock_wait_last(&lane->clock, exec->program->fresh[b],
                                "all_gather of parameters"));
    }
    return_columns(exec);
    exec_meet(exec, "settle");
    const int settled = exec->program->barrier[BARRIER_SETTLE];
    clock_signal(&lane->clock, settled);
    TRY(clock_wait_until(&lane->clock, settled,
                         account_target(&exec->account, settled, exec->settles++), "barrier"));
    if (exec->topology.nodes == 1)
        return STATUS_OK;
    return exec->net ? net_barrier(exec) : comm_barrier(exec->config.comm);
}

/* As files hold it. */
void exec_hash_add(struct sha256 *hash, const struct value *value, const float *plain)
{
    const struct shape saved = graph_saved_shape(value);
    char text[256], shape[SHAPE_TEXT];
    const int length =
        snprintf(text, sizeof text, "%s %s\n", value->name, shape_print(&saved, shape));

    sha256_add(hash, text, (size_t)length);
    sha256_add(hash, plain, (size_t)shape_count(&value->shape) * sizeof *plain);
}

static void hash_param(const struct exec *exec, int i, float *plain, struct sha256 *hash)
{
    exec_get(exec, i, -1, plain);
    exec_hash_add(hash, exec->model.params[i], plain);
}

/* In the model's order, in which the parameters of a group stand together. */
static enum status hash_params(struct exec *exec, float *plain, struct sha256 *hash)
{
    const bool in_parts = exec_is_in_parts(exec);
    int group = -1;

    for (int i = 0; i < exec->model.count; i++) {
        const int next = exec_group_of(exec, i);
        if (in_parts && next != group) {
            if (group >= 0)
                exec_forget_group(exec, group);
            TRY(net_collect(exec, next, EXEC_PARAMS));
            group = next;
        }
        if (!in_parts || exec->topology.rank == 0)
            hash_param(exec, i, plain, hash);
    }
    return in_parts ? exec_make_parts(exec) : STATUS_OK;
}

enum status exec_hash(struct exec *exec, char out[65])
{
    enum { DIGITS = 64 };
    struct sha256 hash;
    float *plain;

    if (exec->device)
        TRY(device_fetch_params(exec));
    TRY(mem_alloc((size_t)largest_param(exec), sizeof *plain, &plain));
    sha256_init(&hash);
    const enum status status = hash_params(exec, plain, &hash);
    mem_free(plain);
    TRY(status);
    sha256_end_hex(&hash, out);
    if (exec_is_in_parts(exec))
        TRY(comm_broadcast(exec->config.comm, out, DIGITS / sizeof(int64_t), DTYPE_I64, 0));
    return STATUS_OK;
}

float *exec_anchor(struct exec *exec)
{
    return exec->memory.anchor;
}

float *exec_shift(struct exec *exec)
{
    return exec->memory.shift;
}

void exec_keep_gradient(struct exec *exec, float *out)
{
    exec->memory.kept = out;
}

void exec_begin_again(struct exec *exec, uint64_t seed, double lr)
{
    BUG_ON(exec->remote || exec->config.compress.codec);
    return_columns(exec);
    exec->config.seed = seed;
    exec->config.optim.schedule = (struct schedule){ .kind = SCHEDULE_CONSTANT, .lr = lr };
    for (int i = 0; i < exec->layout.n_states; i++)
        memset(exec->memory.state[i], 0, exec->layout.vector * sizeof(float));
}
