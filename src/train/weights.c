/* SPDX-License-Identifier: MIT */
/* weights.c - parameters and state between the executor's flat vectors and named tensors. */
#include "train/weights.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "exec/names.h"

static const char outer_name[] = "outer_momentum", own_name[] = "own";

/* Tensors of the optimizer's part: of each parameter the state of worker 0, then of each parameter the
 * states of worker 1, ..., then the outer momentum, then of each parameter that of worker 0, ... */
struct weights_copy {
    struct arena *arena;              /* names */
    int n_params, n_states, n_unused; /* tensors; unused ones follow the parameters */
    struct safetensors_entry *weights, *optimizer; /* data point into `numbers` */
    float *numbers;                                /* NULL: they stream */
    float *unused;                                 /* what no training changes */
    float *plain;                                  /* then one tensor of them */
    int own_states;                                /* tensors of one worker */
    int outer_states;                              /* tensors of the outer momentum */
    int first_outer, first_own;                    /* of `optimizer` */
    struct grid *grid;                             /* who has them, or NULL: the executor */
};

/* What is saved: the whole model's parameters, or the executor's. */
static int param_count(const struct grid *grid, const struct exec *exec)
{
    return grid ? grid_param_count(grid) : exec_param_count(exec);
}

static const struct value *param_at(const struct grid *grid, const struct exec *exec, int i)
{
    return grid ? grid_param(grid, i) : exec_param(exec, i);
}

static int state_count(const struct grid *grid, const struct exec *exec, int i)
{
    return grid ? grid_state_count(grid, i) : exec_state_count(exec, i);
}

static int outer_count(const struct exec *exec, int param)
{
    return exec_param(exec, param)->kind == VALUE_PARAM;
}

/* Adds an entry of the optimizer's part; its numbers are at *next. */
static enum status add_state(struct weights_copy *copy, const struct value *value,
                             const char *state, int worker, float **next)
{
    const struct shape saved = graph_saved_shape(value);
    const char *name =
        worker ? arena_printf(copy->arena, "%s.%s.worker%d", value->name, state, worker)
               : arena_printf(copy->arena, "%s.%s", value->name, state);

    if (!name)
        return STATUS_NO_MEMORY;
    copy->optimizer[copy->n_states++] =
        (struct safetensors_entry){ name, DTYPE_F32, saved, *next };
    if (*next)
        *next += shape_count(&saved);
    return STATUS_OK;
}

static enum status add_states(struct weights_copy *copy, const struct exec *exec, int param,
                              int worker, float **next)
{
    for (int k = 0; k < state_count(copy->grid, exec, param); k++) {
        char state[EXEC_STATE_NAME];
        exec_state_name(exec, k, state);
        TRY(add_state(copy, param_at(copy->grid, exec, param), state, worker, next));
    }
    return STATUS_OK;
}

static enum status fill_copy(struct weights_copy *copy, const struct exec *exec,
                             struct weights_extra extra)
{
    float *next = copy->numbers;

    for (int i = 0; i < copy->n_params; i++) {
        const struct value *value = param_at(copy->grid, exec, i);
        const struct shape saved = graph_saved_shape(value);
        copy->weights[i] = (struct safetensors_entry){ value->name, DTYPE_F32, saved, next };
        if (next)
            next += shape_count(&saved);
        TRY(add_states(copy, exec, i, 0, &next));
    }
    for (int w = 1; w < extra.workers; w++) {
        for (int i = 0; i < copy->n_params; i++)
            TRY(add_states(copy, exec, i, w, &next));
    }
    for (int i = 0; extra.has_outer && i < copy->n_params; i++) {
        if (outer_count(exec, i))
            TRY(add_state(copy, exec_param(exec, i), outer_name, 0, &next));
    }
    for (int w = 0; extra.has_own && w < extra.workers; w++) {
        for (int i = 0; i < copy->n_params; i++)
            TRY(add_state(copy, exec_param(exec, i), own_name, w, &next));
    }
    return STATUS_OK;
}

static enum status check_entry(const struct safetensors_entry *entry, const char *name,
                               const struct value *value)
{
    const struct shape shape = graph_whole_shape(value);
    char is[SHAPE_TEXT], wanted[SHAPE_TEXT];

    if (!entry)
        return FAIL(STATUS_MISMATCH, "tensor %s is missing", name);
    if (entry->dtype != DTYPE_F32 || !shape_equal(&entry->shape, &shape))
        return FAIL(STATUS_MISMATCH, "tensor %s is %s %s, the model needs f32 %s", name,
                    dtype_name(entry->dtype), shape_print(&entry->shape, is),
                    shape_print(&shape, wanted));
    return STATUS_OK;
}

/* Numbers of a tensor that is not used: those of the file, if it has it so. */
static enum status find_unused(const struct weights_extra *extra, const struct value *value,
                               int index, float *out)
{
    const struct safetensors_entry *entry =
        extra->file ? names_find(extra->file, value->name) : NULL;

    if (!entry) {
        exec_draw_unused(extra->seed, index, value, out);
        return STATUS_OK;
    }
    TRY(check_entry(entry, value->name, value));
    memcpy(out, entry->data, (size_t)shape_count(&value->shape) * sizeof *out);
    return STATUS_OK;
}

/* Adds what is not used to the entries, which have room for it. */
static enum status fill_unused(struct weights_copy *copy, const struct weights_extra *extra,
                               int64_t total)
{
    float *next;

    TRY(mem_alloc((size_t)total, sizeof *copy->unused, &copy->unused));
    next = copy->unused;
    for (int i = 0, index = 0; i < graph_value_count(extra->graph); i++) {
        const struct value *value = graph_value(extra->graph, i);
        if (value->kind != VALUE_UNUSED)
            continue;
        TRY(find_unused(extra, value, index++, next));
        copy->weights[copy->n_params + copy->n_unused++] =
            (struct safetensors_entry){ value->name, DTYPE_F32, graph_saved_shape(value),
                                        next };
        next += shape_count(&value->shape);
    }
    return STATUS_OK;
}

static int count_unused(const struct graph *graph, int64_t *out_total)
{
    int count = 0;

    *out_total = 0;
    for (int i = 0; graph && i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->kind != VALUE_UNUSED)
            continue;
        *out_total += shape_count(&value->shape);
        count++;
    }
    return count;
}

enum status weights_copy_create(const struct exec *exec, struct weights_extra extra,
                                struct weights_copy **out)
{
    const int n_params = param_count(extra.grid, exec);
    struct weights_copy *copy;
    int64_t total = 0, largest = 0, unused_total;
    const int n_unused = count_unused(extra.graph, &unused_total);

    TRY(mem_alloc(1, sizeof *copy, &copy));
    copy->n_params = n_params;
    copy->grid = extra.grid;
    for (int i = 0; i < n_params; i++) {
        const int64_t count = shape_count(&param_at(extra.grid, exec, i)->shape);
        largest = count > largest ? count : largest;
        const int states = state_count(extra.grid, exec, i);
        const int outer = extra.has_outer ? outer_count(exec, i) : 0;
        const int own = extra.has_own ? extra.workers : 0;
        total += count * (1 + (int64_t)states * extra.workers + outer + own);
        copy->own_states += states;
        copy->outer_states += outer;
    }
    copy->first_outer = copy->own_states * extra.workers;
    copy->first_own = copy->first_outer + copy->outer_states;
    const int n_states = copy->first_own + (extra.has_own ? n_params * extra.workers : 0);
    enum status status = arena_create(&copy->arena);
    if (status == STATUS_OK)
        status =
            mem_alloc((size_t)(n_params + n_unused), sizeof *copy->weights, &copy->weights);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)n_states, sizeof *copy->optimizer, &copy->optimizer);
    if (status == STATUS_OK)
        status = extra.streams ? mem_alloc((size_t)largest, sizeof(float), &copy->plain)
                               : mem_alloc((size_t)total, sizeof(float), &copy->numbers);
    if (status == STATUS_OK)
        status = fill_copy(copy, exec, extra);
    if (status == STATUS_OK && n_unused)
        status = fill_unused(copy, &extra, unused_total);
    if (status != STATUS_OK) {
        weights_copy_destroy(copy);
        return status;
    }
    *out = copy;
    return STATUS_OK;
}

void weights_copy_take(struct weights_copy *copy, const struct exec *exec)
{
    float *next = copy->numbers;

    for (int i = 0; i < copy->n_params; i++) {
        for (int k = -1; k < exec_state_count(exec, i); k++) {
            exec_get(exec, i, k, next);
            next += shape_count(&copy->weights[i].shape);
        }
    }
}

void weights_copy_take_state(struct weights_copy *copy, const struct exec *exec, int worker,
                             int state, const float *vector)
{
    const struct safetensors_entry *entry = copy->optimizer + worker * copy->own_states;

    for (int i = 0; i < copy->n_params; i++) {
        if (state < exec_state_count(exec, i))
            exec_get_from(exec, i, vector, (float *)entry[state].data);
        entry += exec_state_count(exec, i);
    }
}

void weights_copy_take_outer(struct weights_copy *copy, const struct exec *exec,
                             const float *vector)
{
    const struct safetensors_entry *entry = copy->optimizer + copy->first_outer;

    for (int i = 0; i < copy->n_params; i++) {
        if (outer_count(exec, i))
            exec_get_from(exec, i, vector, (float *)(entry++)->data);
    }
}

void weights_copy_take_own(struct weights_copy *copy, const struct exec *exec, int worker,
                           const float *vector)
{
    const struct safetensors_entry *entry =
        copy->optimizer + copy->first_own + worker * copy->n_params;

    for (int i = 0; i < copy->n_params; i++)
        exec_get_from(exec, i, vector, (float *)entry[i].data);
}

static enum status write_copy(const struct weights_copy *copy, const char *folder,
                              uint64_t step, const char *state, int keep,
                              const struct safetensors_source *source)
{
    const struct checkpoint_contents contents = {
        .step = step,
        .weights = copy->weights,
        .n_weights = (size_t)(copy->n_params + copy->n_unused),
        .optimizer = copy->optimizer,
        .n_optimizer = (size_t)copy->n_states,
        .state = state,
        .source = source,
    };
    return checkpoint_save(folder, &contents, keep);
}

enum status weights_copy_save(const struct weights_copy *copy, const char *folder,
                              uint64_t step, const char *state, int keep)
{
    return write_copy(copy, folder, step, state, keep, NULL);
}

/* Streaming ------------------------------------------------------------------------------- */

/* What rank 0 has of other machines at the moment. All ranks move on in the same way. */
struct stream {
    struct weights_copy *copy;
    struct exec *exec;
    int group, what; /* group -1: none */
};

static enum status bring(struct stream *stream, int group, int what)
{
    if (stream->group == group && stream->what == what)
        return STATUS_OK;
    if (stream->group >= 0)
        exec_forget_group(stream->exec, stream->group);
    stream->group = group;
    stream->what = what;
    return group < 0 ? STATUS_OK : exec_collect_group(stream->exec, group, what);
}

/* The parameter and state of an entry of the optimizer's part. */
static void find_param(const struct stream *stream, const struct safetensors_entry *entry,
                       int *out_param, int *out_state)
{
    int left = (int)(entry - stream->copy->optimizer);

    *out_param = 0;
    while (left >= state_count(stream->copy->grid, stream->exec, *out_param))
        left -= state_count(stream->copy->grid, stream->exec, (*out_param)++);
    *out_state = left;
}

static enum status read_entry(void *arg, const struct safetensors_entry *entry,
                              const void **out_data)
{
    struct stream *stream = arg;
    const struct safetensors_entry *weights = stream->copy->weights;
    const bool is_weight = entry >= weights && entry < weights + stream->copy->n_params;
    const bool is_unused = !is_weight && entry >= weights &&
                           entry < weights + stream->copy->n_params + stream->copy->n_unused;
    int param = is_weight ? (int)(entry - weights) : 0, state = -1;

    if (is_unused) {
        *out_data = entry->data;
        return STATUS_OK;
    }
    if (!is_weight)
        find_param(stream, entry, &param, &state);
    *out_data = stream->copy->plain;
    if (stream->copy->grid)
        return grid_fetch(stream->copy->grid, stream->exec, param, state, stream->copy->plain);
    TRY(bring(stream, exec_group_of(stream->exec, param),
              is_weight ? EXEC_PARAMS : EXEC_STATES));
    exec_get(stream->exec, param, state, stream->copy->plain);
    return STATUS_OK;
}

/* What the others do meanwhile. */
static enum status follow(struct stream *stream)
{
    for (int what = EXEC_PARAMS; what <= EXEC_STATES; what++) {
        for (int i = 0; i < exec_param_count(stream->exec); i++) {
            if (what == EXEC_PARAMS || exec_state_count(stream->exec, i) > 0)
                TRY(bring(stream, exec_group_of(stream->exec, i), what));
        }
    }
    return STATUS_OK;
}

enum status weights_stream(struct weights_copy *copy, struct exec *exec, const char *folder,
                           uint64_t step, const char *state, int keep)
{
    struct stream stream = { .copy = copy, .exec = exec, .group = -1 };
    const struct safetensors_source source = { read_entry, &stream };

    if (!copy)
        TRY(follow(&stream));
    else
        TRY(write_copy(copy, folder, step, state, keep, &source));
    return copy && copy->grid ? grid_end(copy->grid, exec) : bring(&stream, -1, 0);
}

void weights_copy_destroy(struct weights_copy *copy)
{
    if (!copy)
        return;
    arena_destroy(copy->arena);
    mem_free(copy->weights);
    mem_free(copy->optimizer);
    mem_free(copy->numbers);
    mem_free(copy->unused);
    mem_free(copy->plain);
    mem_free(copy);
}

static bool is_saved(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

static const struct value *find_saved(const struct graph *graph, const char *name)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if ((is_saved(value) || value->kind == VALUE_UNUSED) && strcmp(value->name, name) == 0)
            return value;
    }
    return NULL;
}

/* What is read from a file need not be aligned. */
static float float_at(const void *data, int64_t i)
{
    float number;

    memcpy(&number, (const char *)data + i * (int64_t)sizeof number, sizeof number);
    return number;
}

/* Looks at exponents, which compilers do to many at once. */
static bool are_finite(const void *data, int64_t count)
{
    const uint32_t exponent = 0x7f800000;
    uint32_t found = 0;

    for (int64_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)data + i * (int64_t)sizeof bits, sizeof bits);
        found |= (bits & exponent) == exponent;
    }
    return !found;
}

/* A model that has other numbers gives nothing but such, which would be blamed on the learning
 * rate. */
static enum status check_numbers(const struct safetensors_entry *entry)
{
    const int64_t count = shape_count(&entry->shape);

    if (are_finite(entry->data, count))
        return STATUS_OK;
    for (int64_t i = 0; i < count; i++) {
        const float number = float_at(entry->data, i);
        if (!isfinite(number))
            return FAIL(STATUS_MISMATCH,
                        "tensor %s has %f at element %lld of %lld: use weights that are finite",
                        entry->name, (double)number, (long long)i, (long long)count);
    }
    return STATUS_OK;
}

enum status weights_check(const struct graph *graph, const struct safetensors *file)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        const struct safetensors_entry *entry = names_find(file, value->name);
        if (!is_saved(value) && !(value->kind == VALUE_UNUSED && entry))
            continue;
        TRY(check_entry(entry, value->name, value));
        TRY(check_numbers(entry));
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        if (!find_saved(graph, names_bare(entry->name)) && !names_is_spare(file, entry))
            return FAIL(STATUS_MISMATCH, "tensor %s is of another model: %s has none",
                        entry->name, graph_name(graph));
    }
    return STATUS_OK;
}

static const struct safetensors_entry *find_state(const struct exec *exec,
                                                  const struct safetensors *file, int param,
                                                  int state, char *name, size_t size)
{
    char text[EXEC_STATE_NAME];

    exec_state_name(exec, state, text);
    snprintf(name, size, "%s.%s", exec_param(exec, param)->name, text);
    return safetensors_find(file, name);
}

/* What compression kept of a parameter, if the file has it: errors of as many nodes as there are now; else
 * their sum goes to the first, so that what was not sent yet is sent by somebody. */
static enum status load_errors(struct exec *exec, const struct safetensors *file, int param)
{
    const struct value *value = exec_param(exec, param);
    const int basis = exec_own_states(exec), first = basis + 1;
    const int64_t count = shape_count(&value->shape);
    const struct safetensors_entry *entry;
    char name[512];
    int saved = 0;
    float *sum;

    if (exec_state_count(exec, param) <= basis)
        return STATUS_OK;
    TRY(mem_alloc((size_t)count, sizeof *sum, &sum));
    enum status status = STATUS_OK;
    while (status == STATUS_OK &&
           (entry = find_state(exec, file, param, first + saved, name, sizeof name))) {
        status = check_entry(entry, name, value);
        for (int64_t i = 0; status == STATUS_OK && i < count; i++)
            sum[i] += float_at(entry->data, i);
        saved++;
    }
    const bool as_many = first + saved == exec_state_count(exec, param);
    for (int k = first; status == STATUS_OK && as_many && k < first + saved; k++)
        exec_set(exec, param, k, find_state(exec, file, param, k, name, sizeof name)->data);
    if (status == STATUS_OK && !as_many)
        exec_set(exec, param, first, sum);
    entry = find_state(exec, file, param, basis, name, sizeof name);
    if (status == STATUS_OK && entry)
        status = check_entry(entry, name, value);
    if (status == STATUS_OK && entry)
        exec_set(exec, param, basis, entry->data);
    mem_free(sum);
    return status;
}

/* Of a whole tensor, what the executor has of it. */
static enum status set_own(struct exec *exec, int param, int state, const void *whole)
{
    const struct shape saved = graph_saved_shape(exec_param(exec, param));
    const struct shape_slice slice = graph_saved_slice(exec_param(exec, param));
    float *own;

    if (slice.count == 0) {
        exec_set(exec, param, state, whole);
        return STATUS_OK;
    }
    TRY(mem_alloc((size_t)shape_count(&saved) + 1, sizeof *own, &own));
    slice_cut(&slice, &saved, sizeof *own, whole, own);
    exec_set(exec, param, state, own);
    mem_free(own);
    return STATUS_OK;
}

static enum status load_param(struct exec *exec, const struct safetensors *weights,
                              const struct safetensors *optimizer, int i)
{
    const struct value *value = exec_param(exec, i);
    const struct safetensors_entry *entry = names_find(weights, value->name);

    TRY(check_entry(entry, value->name, value));
    TRY(set_own(exec, i, -1, entry->data));
    for (int k = 0; optimizer && k < exec_own_states(exec) && k < exec_state_count(exec, i);
         k++) {
        char name[512];
        entry = find_state(exec, optimizer, i, k, name, sizeof name);
        TRY(check_entry(entry, name, value));
        TRY(set_own(exec, i, k, entry->data));
    }
    return optimizer ? load_errors(exec, optimizer, i) : STATUS_OK;
}

bool weights_have_state(const struct exec *exec, const struct safetensors *optimizer)
{
    char name[512];

    for (int i = 0; i < exec_param_count(exec); i++) {
        for (int k = 0; k < exec_own_states(exec) && k < exec_state_count(exec, i); k++) {
            if (!find_state(exec, optimizer, i, k, name, sizeof name))
                return false;
        }
    }
    return true;
}

enum status weights_load_group(struct exec *exec, const struct safetensors *weights,
                               const struct safetensors *optimizer, int group)
{
    for (int i = 0; i < exec_param_count(exec); i++) {
        if (exec_group_of(exec, i) == group)
            TRY(load_param(exec, weights, optimizer, i));
    }
    return STATUS_OK;
}

enum status weights_load(struct exec *exec, const struct safetensors *weights,
                         const struct safetensors *optimizer)
{
    for (int i = 0; i < exec_param_count(exec); i++)
        TRY(load_param(exec, weights, optimizer, i));
    return STATUS_OK;
}

static enum status load_own_state(struct exec *exec, const struct safetensors *file, int param,
                                  int worker)
{
    const struct value *value = exec_param(exec, param);

    for (int k = 0; k < exec_own_states(exec) && k < exec_state_count(exec, param); k++) {
        char name[512], state[EXEC_STATE_NAME];
        exec_state_name(exec, k, state);
        snprintf(name, sizeof name, "%s.%s.worker%d", value->name, state, worker);
        const struct safetensors_entry *entry = safetensors_find(file, name);
        if (!entry)
            continue;
        TRY(check_entry(entry, name, value));
        exec_set(exec, param, k, entry->data);
    }
    return STATUS_OK;
}

enum status weights_load_worker(struct exec *exec, const struct safetensors *optimizer,
                                int worker, float *outer)
{
    for (int i = 0; i < exec_param_count(exec); i++) {
        const struct value *value = exec_param(exec, i);
        char name[512];

        TRY(load_own_state(exec, optimizer, i, worker));
        snprintf(name, sizeof name, "%s.%s", value->name, outer_name);
        const struct safetensors_entry *entry = safetensors_find(optimizer, name);
        if (!outer || !entry)
            continue;
        TRY(check_entry(entry, name, value));
        exec_set_in(exec, i, outer, entry->data);
    }
    return STATUS_OK;
}

enum status weights_load_own(struct exec *exec, const struct safetensors *optimizer, int worker)
{
    for (int i = 0; i < exec_param_count(exec); i++) {
        const struct value *value = exec_param(exec, i);
        char name[512];

        if (worker)
            snprintf(name, sizeof name, "%s.%s.worker%d", value->name, own_name, worker);
        else
            snprintf(name, sizeof name, "%s.%s", value->name, own_name);
        const struct safetensors_entry *entry = safetensors_find(optimizer, name);
        if (!entry)
            continue;
        TRY(check_entry(entry, name, value));
        exec_set(exec, i, -1, entry->data);
    }
    return STATUS_OK;
}
