/* SPDX-License-Identifier: MIT */
/* weights.c - parameters and state between the executor's flat vectors and named tensors. */
#include "train/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "exec/names.h"

struct weights_copy {
    struct arena *arena;                           /* names */
    int n_params, n_states;                        /* tensors */
    struct safetensors_entry *weights, *optimizer; /* data point into `numbers` */
    float *numbers;
};

enum status weights_copy_create(const struct exec *exec, struct weights_copy **out)
{
    const int n_params = exec_param_count(exec);
    struct weights_copy *copy;
    int64_t total = 0;
    int n_states = 0;

    TRY(mem_alloc(1, sizeof *copy, &copy));
    copy->n_params = n_params;
    for (int i = 0; i < n_params; i++) {
        total += shape_count(&exec_param(exec, i)->shape) * (1 + exec_state_count(exec, i));
        n_states += exec_state_count(exec, i);
    }
    enum status status = arena_create(&copy->arena);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)n_params, sizeof *copy->weights, &copy->weights);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)n_states, sizeof *copy->optimizer, &copy->optimizer);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)total, sizeof(float), &copy->numbers);
    float *next = copy->numbers;
    for (int i = 0; i < n_params && status == STATUS_OK; i++) {
        const struct value *value = exec_param(exec, i);
        const struct shape saved = graph_saved_shape(value);
        const int64_t count = shape_count(&saved);
        copy->weights[i] = (struct safetensors_entry){ value->name, DTYPE_F32, saved, next };
        next += count;
        for (int k = 0; k < exec_state_count(exec, i); k++) {
            char state[EXEC_STATE_NAME];
            exec_state_name(exec, k, state);
            const char *name = arena_printf(copy->arena, "%s.%s", value->name, state);
            if (!name)
                status = STATUS_NO_MEMORY;
            copy->optimizer[copy->n_states++] =
                (struct safetensors_entry){ name, DTYPE_F32, saved, next };
            next += count;
        }
    }
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

enum status weights_copy_save(const struct weights_copy *copy, const char *folder,
                              uint64_t step, const char *state, int keep)
{
    const struct checkpoint_contents contents = {
        .step = step,
        .weights = copy->weights,
        .n_weights = (size_t)copy->n_params,
        .optimizer = copy->optimizer,
        .n_optimizer = (size_t)copy->n_states,
        .state = state,
    };
    return checkpoint_save(folder, &contents, keep);
}

void weights_copy_destroy(struct weights_copy *copy)
{
    if (!copy)
        return;
    arena_destroy(copy->arena);
    mem_free(copy->weights);
    mem_free(copy->optimizer);
    mem_free(copy->numbers);
    mem_free(copy);
}

static enum status check_entry(const struct safetensors_entry *entry, const char *name,
                               const struct value *value)
{
    const struct shape shape = graph_saved_shape(value);
    char is[SHAPE_TEXT], wanted[SHAPE_TEXT];

    if (!entry)
        return FAIL(STATUS_MISMATCH, "tensor %s is missing", name);
    if (entry->dtype != DTYPE_F32 || !shape_equal(&entry->shape, &shape))
        return FAIL(STATUS_MISMATCH, "tensor %s is %s %s, the model needs f32 %s", name,
                    dtype_name(entry->dtype), shape_print(&entry->shape, is),
                    shape_print(&shape, wanted));
    return STATUS_OK;
}

static bool is_saved(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

static const struct value *find_saved(const struct graph *graph, const char *name)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (is_saved(value) && strcmp(value->name, name) == 0)
            return value;
    }
    return NULL;
}

enum status weights_check(const struct graph *graph, const struct safetensors *file)
{
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (is_saved(value))
            TRY(check_entry(names_find(file, value->name), value->name, value));
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

/* What is read from a file need not be aligned. */
static float float_at(const void *data, int64_t i)
{
    float number;

    memcpy(&number, (const char *)data + i * (int64_t)sizeof number, sizeof number);
    return number;
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

enum status weights_load(struct exec *exec, const struct safetensors *weights,
                         const struct safetensors *optimizer)
{
    for (int i = 0; i < exec_param_count(exec); i++) {
        const struct value *value = exec_param(exec, i);
        const struct safetensors_entry *entry = names_find(weights, value->name);

        TRY(check_entry(entry, value->name, value));
        exec_set(exec, i, -1, entry->data);
        for (int k = 0; optimizer && k < exec_own_states(exec) && k < exec_state_count(exec, i);
             k++) {
            char name[512];
            entry = find_state(exec, optimizer, i, k, name, sizeof name);
            TRY(check_entry(entry, name, value));
            exec_set(exec, i, k, entry->data);
        }
        if (optimizer)
            TRY(load_errors(exec, optimizer, i));
    }
    return STATUS_OK;
}
