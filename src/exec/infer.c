/* SPDX-License-Identifier: MIT */
/* infer.c - parameters by name, plans for extents, and the walk through a plan. */
#include "exec/infer.h"

#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "exec/device_side.h"
#include "exec/names.h"
#include "exec/plan.h"
#include "kernel/float_mode.h"

enum { KEPT_PLANS = 64, ALIGN_FLOATS = MEM_ALIGN / sizeof(float) };

/* Parameters ---------------------------------------------------------------------------- */

struct weight {
    const char *name;
    struct shape shape;
    enum layout layout;
    size_t offset; /* elements */
};

struct infer_weights {
    struct arena *arena; /* names */
    int count;
    struct weight *items;
    float *own;          /* NULL: they are an executor's */
    const float *memory; /* where offsets are counted from */
};

static bool is_kept(const struct value *value)
{
    return value->kind == VALUE_PARAM || value->kind == VALUE_AVERAGE;
}

static enum status create_weights(int most, struct infer_weights **out)
{
    struct infer_weights *weights;

    TRY(mem_alloc(1, sizeof *weights, &weights));
    enum status status = arena_create(&weights->arena);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)most, sizeof *weights->items, &weights->items);
    if (status != STATUS_OK) {
        infer_weights_destroy(weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

void infer_weights_destroy(struct infer_weights *weights)
{
    if (!weights)
        return;
    arena_destroy(weights->arena);
    mem_free(weights->items);
    mem_free(weights->own);
    mem_free(weights);
}

static enum status add_weight(struct infer_weights *weights, const struct value *value,
                              size_t offset)
{
    const char *name = arena_strdup(weights->arena, value->name);

    if (!name)
        return STATUS_NO_MEMORY;
    weights->items[weights->count++] =
        (struct weight){ name, value->shape, value->layout, offset };
    return STATUS_OK;
}

/* A tensor of the file, in the order in which the graph's kernels want it. */
static enum status load_weight(const struct value *value, const struct safetensors *file,
                               float *out)
{
    const struct safetensors_entry *entry = names_find(file, value->name);
    const struct shape saved = graph_saved_shape(value);
    const enum layout layout = value->is_turned ? LAYOUT_PLAIN : value->layout;

    if (!entry || entry->dtype != DTYPE_F32 || !shape_equal(&entry->shape, &saved))
        return FAIL(STATUS_MISMATCH, "tensor %s is missing or of another shape", value->name);
    layout_from_plain(layout, &value->shape, sizeof(float), entry->data, out);
    return STATUS_OK;
}

static size_t aligned_floats(const struct value *value)
{
    const size_t count = (size_t)shape_count(&value->shape);
    return (count + ALIGN_FLOATS - 1) / ALIGN_FLOATS * ALIGN_FLOATS;
}

static enum status load_all(struct infer_weights *weights, const struct graph *model,
                            const struct safetensors *file)
{
    size_t total = 0, at = 0;

    for (int i = 0; i < graph_value_count(model); i++) {
        const struct value *value = graph_value(model, i);
        total += is_kept(value) ? aligned_floats(value) : 0;
    }
    TRY(mem_alloc(total, sizeof *weights->own, &weights->own));
    weights->memory = weights->own;
    for (int i = 0; i < graph_value_count(model); i++) {
        const struct value *value = graph_value(model, i);
        if (!is_kept(value))
            continue;
        TRY(load_weight(value, file, weights->own + at));
        TRY(add_weight(weights, value, at));
        at += aligned_floats(value);
    }
    return STATUS_OK;
}

enum status infer_weights_load(const struct graph *model, const struct safetensors *file,
                               struct infer_weights **out)
{
    struct infer_weights *weights;

    TRY(create_weights(graph_value_count(model), &weights));
    enum status status = load_all(weights, model, file);
    if (status != STATUS_OK) {
        infer_weights_destroy(weights);
        return status;
    }
    *out = weights;
    return STATUS_OK;
}

enum status infer_weights_of(const struct exec *exec, struct infer_weights **out)
{
    struct infer_weights *weights;

    if (exec->device)
        TRY(device_fetch_params(exec));
    TRY(create_weights(exec->model.count, &weights));
    weights->memory = exec->memory.param;
    for (int i = 0; i < exec->model.count; i++) {
        const struct value *value = exec->model.params[i];
        const int64_t begin = exec->layout.buckets.begin[plan_bucket_of(value->flat)];
        enum status status = add_weight(weights, value, (size_t)(begin + value->offset));
        if (status != STATUS_OK) {
            infer_weights_destroy(weights);
            return status;
        }
    }
    *out = weights;
    return STATUS_OK;
}

static const struct weight *find_weight(const struct infer_weights *weights, const char *name)
{
    for (int i = 0; i < weights->count; i++) {
        if (strcmp(weights->items[i].name, name) == 0)
            return &weights->items[i];
    }
    return NULL;
}

/* Graphs -------------------------------------------------------------------------------- */

struct infer {
    struct infer_config config;
    struct value **ports;     /* inputs, then outputs */
    struct plan_given *given; /* ports, then parameters */
    int n_given;
    struct plan *plans[KEPT_PLANS]; /* the one used last is the first */
    int n_plans;
    char *arena;
    size_t arena_bytes;
    char **bases; /* BASE_COUNT of a step's, then a port each */
};

static enum status give_weight(struct infer *infer, const struct value *value)
{
    const struct weight *weight = find_weight(infer->config.weights, value->name);

    if (!weight)
        return FAIL(STATUS_MISMATCH, "parameter %s of graph %s is not among the weights",
                    value->name, graph_name(infer->config.graph));
    if (!shape_equal(&weight->shape, &value->shape) || weight->layout != value->layout) {
        char here[SHAPE_TEXT], there[SHAPE_TEXT];
        return FAIL(STATUS_MISMATCH, "parameter %s is %s in graph %s and %s among the weights",
                    value->name, shape_print(&value->shape, here),
                    graph_name(infer->config.graph), shape_print(&weight->shape, there));
    }
    infer->given[infer->n_given++] =
        (struct plan_given){ value, { BASE_PARAM, weight->offset * sizeof(float) } };
    return STATUS_OK;
}

static bool is_port(const struct infer *infer, const struct value *value)
{
    for (int i = 0; i < infer->config.n_in; i++) {
        if (infer->ports[i] == value)
            return true;
    }
    return false;
}

static enum status give_all(struct infer *infer)
{
    const struct infer_config *config = &infer->config;

    for (int i = 0; i < config->n_in + config->n_out; i++)
        infer->given[infer->n_given++] =
            (struct plan_given){ infer->ports[i], { (enum base)(BASE_COUNT + i), 0 } };
    for (int i = 0; i < graph_value_count(config->graph); i++) {
        const struct value *value = graph_value(config->graph, i);
        if (is_kept(value))
            TRY(give_weight(infer, value));
        else if (value->kind == VALUE_INPUT && !is_port(infer, value))
            return FAIL(STATUS_MISMATCH, "input %s of graph %s is not given", value->name,
                        graph_name(config->graph));
    }
    return STATUS_OK;
}

static void flush_denormals(void *arg, int index)
{
    (void)arg;
    if (index > 0) /* the caller's own thread has its mode changed for a call alone */
        kernel_flush_denormals();
}

static enum status fill(struct infer *infer)
{
    struct infer_config *config = &infer->config;
    const size_t n_ports = (size_t)(config->n_in + config->n_out);

    TRY(graph_status(config->graph));
    TRY(mem_alloc(n_ports, sizeof *infer->ports, &infer->ports));
    TRY(mem_alloc(BASE_COUNT + n_ports, sizeof *infer->bases, &infer->bases));
    TRY(mem_alloc(n_ports + (size_t)graph_value_count(config->graph), sizeof *infer->given,
                  &infer->given));
    for (int i = 0; i < config->n_in; i++)
        infer->ports[i] = config->in[i];
    for (int i = 0; i < config->n_out; i++)
        infer->ports[config->n_in + i] = config->out[i];
    config->in = infer->ports;
    config->out = infer->ports + config->n_in;
    if (config->pool)
        pool_run(config->pool, flush_denormals, NULL);
    return give_all(infer);
}

enum status infer_create(const struct infer_config *config, struct infer **out)
{
    struct infer *infer;

    TRY(mem_alloc(1, sizeof *infer, &infer));
    infer->config = *config;
    enum status status = fill(infer);
    if (status != STATUS_OK) {
        infer_destroy(infer);
        return status;
    }
    *out = infer;
    return STATUS_OK;
}

void infer_destroy(struct infer *infer)
{
    if (!infer)
        return;
    for (int i = 0; i < infer->n_plans; i++)
        plan_destroy(infer->plans[i]);
    mem_free(infer->ports);
    mem_free(infer->given);
    mem_free(infer->arena);
    mem_free(infer->bases);
    mem_free(infer);
}

enum status infer_shape(const struct infer *infer, struct extents extents,
                        const struct value *value, struct shape *out)
{
    struct shape *shapes;

    TRY(mem_alloc((size_t)graph_value_count(infer->config.graph), sizeof *shapes, &shapes));
    enum status status = graph_infer(infer->config.graph, extents, shapes);
    if (status == STATUS_OK)
        *out = shapes[value->id];
    mem_free(shapes);
    return status;
}

/* Moves plan i to the front. */
static struct plan *use_plan(struct infer *infer, int i)
{
    struct plan *plan = infer->plans[i];

    memmove(&infer->plans[1], &infer->plans[0], (size_t)i * sizeof *infer->plans);
    infer->plans[0] = plan;
    return plan;
}

static enum status make_plan(struct infer *infer, struct extents extents, struct plan **out)
{
    struct plan *plan;

    TRY(plan_create_given(infer->config.graph, extents, infer->given, infer->n_given,
                          infer->config.choices, &plan));
    if (plan->arena_bytes > infer->arena_bytes) {
        char *arena;
        enum status status = mem_alloc(plan->arena_bytes, 1, &arena);
        if (status != STATUS_OK) {
            plan_destroy(plan);
            return status;
        }
        mem_free(infer->arena);
        infer->arena = arena;
        infer->arena_bytes = plan->arena_bytes;
    }
    if (infer->n_plans == KEPT_PLANS)
        plan_destroy(infer->plans[--infer->n_plans]);
    infer->plans[infer->n_plans] = plan;
    *out = use_plan(infer, infer->n_plans++);
    return STATUS_OK;
}

static enum status find_plan(struct infer *infer, struct extents extents, struct plan **out)
{
    for (int i = 0; i < infer->n_plans; i++) {
        if (extents_equal(infer->plans[i]->extents, extents)) {
            *out = use_plan(infer, i);
            return STATUS_OK;
        }
    }
    return make_plan(infer, extents, out);
}

static void run_instruction(const struct infer *infer, const struct instruction *instruction,
                            const struct kernel_step *step)
{
    struct kernel_call call = {
        .problem = &instruction->problem,
        .scratch = infer->arena + instruction->scratch,
        .state = instruction->state,
        .pool = infer->config.pool,
        .step = step,
    };

    for (int i = 0; i < instruction->problem.n_in; i++)
        call.in[i] = infer->bases[instruction->in[i].base] + instruction->in[i].offset;
    for (int i = 0; i < instruction->problem.n_out; i++)
        call.out[i] = infer->bases[instruction->out[i].base] + instruction->out[i].offset;
    instruction->kernel->run(&call);
}

enum status infer_run(struct infer *infer, struct extents extents, const void *const *in,
                      void *const *out)
{
    const struct infer_config *config = &infer->config;
    const struct kernel_step step = { .inv_batch = 1 };
    struct plan *plan;

    TRY(find_plan(infer, extents, &plan));
    infer->bases[BASE_ARENA] = infer->arena;
    infer->bases[BASE_PARAM] = (char *)config->weights->memory;
    for (int i = 0; i < config->n_in; i++)
        infer->bases[BASE_COUNT + i] = (char *)in[i];
    for (int i = 0; i < config->n_out; i++)
        infer->bases[BASE_COUNT + config->n_in + i] = out[i];
    const unsigned mode = kernel_flush_denormals();
    for (int i = 0; i < plan->n_instructions; i++)
        run_instruction(infer, &plan->instructions[i], &step);
    kernel_restore_float_mode(mode);
    return STATUS_OK;
}
