/* SPDX-License-Identifier: MIT */
/* file.c - a forward graph as JSON, and back.
 *
 *   { "name": "mlp",
 *     "items": [
 *       { "id": 0, "input": "input", "dtype": "f32", "sample": [1, 28, 28] },
 *       { "id": 3, "param": "fc1.weight", "shape": [250, 784], "uniform": 0.0357 },
 *       { "id": 5, "op": "linear", "name": "fc1", "in": [2, 3] }, ... ],
 *     "roles": { "input": 0, "target": 1, "output": 12, "loss": 14, "correct": 13 } }
 *
 * Items stand in the order in which the graph was made; "id" is the number of the item's first value,
 * and numbers have no holes. The table of ops says what a node may take: 'x' rows of samples that are
 * computed with, 'p' a parameter, 'i' ids or labels, which come with the batch. So every result has
 * the samples along its first extent.
 */
#include "graph/file.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "graph/op.h"

enum { NAME_MOST = 127, NUMBER_MOST = 1 << 20 };

/* Attributes ----------------------------------------------------------------------------- */

enum attr_kind { ATTR_INT, ATTR_PAIR, ATTR_NUMBER, ATTR_STREAM, ATTR_SHAPE, ATTR_LAYOUT };

enum {
    STRIDE = 1 << 0,
    PAD = 1 << 1,
    WINDOW = 1 << 2,
    EXTENT = 1 << 3,
    GROUPS = 1 << 4,
    HEADS = 1 << 5,
    CAUSAL = 1 << 6,
    PERIOD = 1 << 7,
    SAMPLE = 1 << 8,
    LAYOUT = 1 << 9,
    RATE = 1 << 10,
    STREAM = 1 << 11,
    EPSILON = 1 << 12,
};

static const struct attr_row {
    const char *name;
    unsigned bit;
    enum attr_kind kind;
    size_t offset;
} attr_rows[] = {
    { "window", WINDOW, ATTR_PAIR, offsetof(struct attrs, window) },
    { "stride", STRIDE, ATTR_PAIR, offsetof(struct attrs, stride) },
    { "pad", PAD, ATTR_PAIR, offsetof(struct attrs, pad) },
    { "extent", EXTENT, ATTR_PAIR, offsetof(struct attrs, extent) },
    { "groups", GROUPS, ATTR_INT, offsetof(struct attrs, groups) },
    { "heads", HEADS, ATTR_INT, offsetof(struct attrs, heads) },
    { "causal", CAUSAL, ATTR_INT, offsetof(struct attrs, causal) },
    { "period", PERIOD, ATTR_INT, offsetof(struct attrs, period) },
    { "sample", SAMPLE, ATTR_SHAPE, offsetof(struct attrs, sample) },
    { "layout", LAYOUT, ATTR_LAYOUT, offsetof(struct attrs, layout) },
    { "rate", RATE, ATTR_NUMBER, offsetof(struct attrs, rate) },
    { "stream", STREAM, ATTR_STREAM, offsetof(struct attrs, stream) },
    { "epsilon", EPSILON, ATTR_NUMBER, offsetof(struct attrs, epsilon) },
};
enum { N_ATTRS = sizeof attr_rows / sizeof *attr_rows };

/* What a file may hold; the loss of a graph is made by one of those whose row says so. */
static const struct op_row {
    const struct op *op;
    const char *in; /* what each input is; at the end '*': more of the last */
    unsigned attrs;
    bool is_loss;
} op_rows[] = {
    { &op_linear, "xp", 0, false },
    { &op_bias, "xp", 0, false },
    { &op_conv2d, "xp", STRIDE | PAD | GROUPS, false },
    { &op_conv2d_transpose, "xp", STRIDE | PAD | GROUPS | EXTENT, false },
    { &op_conv1d, "xp", 0, false },
    { &op_max_over_time, "x", 0, false },
    { &op_max_pool, "x", WINDOW | STRIDE | PAD, false },
    { &op_avg_pool, "x", WINDOW | STRIDE | PAD, false },
    { &op_concat, "x*", 0, false },
    { &op_relu, "x", 0, false },
    { &op_relu6, "x", 0, false },
    { &op_sigmoid, "x", 0, false },
    { &op_tanh, "x", 0, false },
    { &op_gelu, "x", 0, false },
    { &op_gelu_tanh, "x", 0, false },
    { &op_softmax, "x", 0, false },
    { &op_add, "xx", 0, false },
    { &op_dropout, "x", RATE | STREAM, false },
    { &op_reshape, "x", SAMPLE, false },
    { &op_reorder, "x", LAYOUT, false },
    { &op_layer_norm, "xpp", EPSILON, false },
    { &op_batch_norm, "xpp", EPSILON, false },
    { &op_add_positions, "xp", PERIOD, false },
    { &op_attention, "xi", HEADS | CAUSAL, false },
    { &op_embedding, "ip", 0, false },
    { &op_embedding_mean, "ip", 0, false },
    { &op_lstm, "xppix", 0, false },
    { &op_gru, "xppix", 0, false },
    { &op_lstm_attend, "xppixpppxxi", 0, false },
    { &op_accuracy, "xi", 0, false },
    { &op_token_accuracy, "xi", 0, false },
    { &op_softmax_cross_entropy, "xi", 0, true },
    { &op_token_cross_entropy, "xi", 0, true },
    { &op_mse, "xx", 0, true },
};

static const struct op_row *find_row(const struct op *op)
{
    for (size_t i = 0; op && i < sizeof op_rows / sizeof *op_rows; i++) {
        if (op_rows[i].op == op)
            return &op_rows[i];
    }
    return NULL;
}

static const struct {
    const char *name;
    size_t offset;
} role_rows[] = {
    { "input", offsetof(struct graph_roles, input) },
    { "second", offsetof(struct graph_roles, second) },
    { "target", offsetof(struct graph_roles, target) },
    { "output", offsetof(struct graph_roles, output) },
    { "loss", offsetof(struct graph_roles, loss) },
    { "correct", offsetof(struct graph_roles, correct) },
};
enum { N_ROLES = sizeof role_rows / sizeof *role_rows };

static struct value **role_of(struct graph_roles *roles, int i)
{
    return (struct value **)(void *)((char *)roles + role_rows[i].offset);
}

/* Writing -------------------------------------------------------------------------------- */

static void print_extents(struct strbuf *out, const char *name, const struct shape *shape,
                          int first)
{
    strbuf_printf(out, ", \"%s\": [", name);
    for (int i = first; i < shape->rank; i++)
        strbuf_printf(out, "%s%lld", i > first ? ", " : "", (long long)shape->dim[i]);
    strbuf_add(out, "]");
}

static void print_number(struct strbuf *out, const char *name, float number)
{
    if (number == 0)
        return;
    strbuf_printf(out, ", \"%s\": ", name);
    strbuf_add_number(out, (double)number);
}

static void print_attr(struct strbuf *out, const struct attr_row *row,
                       const struct attrs *attrs)
{
    const void *field = (const char *)attrs + row->offset;
    const int *pair = field;

    switch (row->kind) {
    case ATTR_INT:
        if (*pair)
            strbuf_printf(out, ", \"%s\": %d", row->name, *pair);
        break;
    case ATTR_PAIR:
        if (pair[0] || pair[1])
            strbuf_printf(out, ", \"%s\": [%d, %d]", row->name, pair[0], pair[1]);
        break;
    case ATTR_NUMBER:
        print_number(out, row->name, *(const float *)field);
        break;
    case ATTR_STREAM:
        strbuf_printf(out, ", \"%s\": %lu", row->name, (unsigned long)*(const uint32_t *)field);
        break;
    case ATTR_SHAPE:
        print_extents(out, row->name, field, 0);
        break;
    case ATTR_LAYOUT:
        strbuf_printf(out, ", \"%s\": \"%s\"", row->name,
                      layout_name(*(const enum layout *)field));
        break;
    }
}

static void print_named(struct strbuf *out, const char *kind, const struct value *value)
{
    strbuf_printf(out, "\"%s\": ", kind);
    strbuf_add_json(out, value->name);
}

static enum status print_value(const struct value *value, struct strbuf *out)
{
    if (value->kind == VALUE_INPUT) {
        print_named(out, "input", value);
        strbuf_printf(out, ", \"dtype\": \"%s\"", dtype_name(value->dtype));
        print_extents(out, "sample", &value->shape, 1);
        if (value->sequence)
            strbuf_printf(out, ", \"sequence\": %d", value->sequence);
        return STATUS_OK;
    }
    if (value->kind != VALUE_PARAM && value->kind != VALUE_AVERAGE)
        return FAIL(STATUS_UNSUPPORTED, "value %s is not of a model alone", value->name);
    print_named(out, value->kind == VALUE_PARAM ? "param" : "average", value);
    print_extents(out, "shape", &value->shape, 0);
    print_number(out, "initial", value->initial);
    print_number(out, "uniform", value->init_bound);
    print_number(out, "normal", value->init_deviation);
    if (value->kind == VALUE_PARAM && value->shape.rank == 2 && value->layout == LAYOUT_PLAIN)
        strbuf_add(out, ", \"table\": true");
    if (value->is_turned)
        strbuf_add(out, ", \"turned\": true");
    return STATUS_OK;
}

/* The averages that see what a node makes, in the order of what they see. */
static void print_averages(const struct graph *graph, const struct node *node,
                           struct strbuf *out)
{
    int count = 0;

    for (int o = 0; o < node->n_out; o++) {
        for (int i = 0; i < graph_value_count(graph); i++) {
            const struct value *value = graph_value(graph, i);
            if (value->kind == VALUE_AVERAGE && value->gradient == node->out[o])
                strbuf_printf(out, "%s%d", count++ ? ", " : ", \"averages\": [", i);
        }
    }
    strbuf_add(out, count ? "]" : "");
}

static enum status print_node(const struct graph *graph, const struct node *node,
                              struct strbuf *out)
{
    const struct op_row *row = find_row(node->op);

    if (!row || node->phase != PHASE_FORWARD)
        return FAIL(STATUS_UNSUPPORTED, "node %s: files hold no %s", node->name,
                    node->op->name);
    strbuf_printf(out, "\"op\": \"%s\", \"name\": ", node->op->name);
    strbuf_add_json(out, node->name);
    strbuf_add(out, ", \"in\": [");
    for (int i = 0; i < node->n_in; i++)
        strbuf_printf(out, "%s%d", i ? ", " : "", node->in[i]->id);
    strbuf_add(out, "]");
    for (int i = 0; i < N_ATTRS; i++) {
        if (row->attrs & attr_rows[i].bit)
            print_attr(out, &attr_rows[i], &node->attrs);
    }
    print_averages(graph, node, out);
    return STATUS_OK;
}

enum status graph_file_print(struct graph *graph, struct strbuf *out)
{
    struct graph_roles *roles = graph_roles(graph);
    bool is_first = true;

    TRY(graph_status(graph));
    strbuf_add(out, "{ \"name\": ");
    strbuf_add_json(out, graph_name(graph));
    strbuf_add(out, ",\n  \"items\": [");
    for (int i = 0; i < graph_value_count(graph); i++) {
        const struct value *value = graph_value(graph, i);
        if (value->maker && value != value->maker->out[0])
            continue;
        strbuf_printf(out, "%s\n    { \"id\": %d, ", is_first ? "" : ",", i);
        is_first = false;
        TRY(value->maker ? print_node(graph, value->maker, out) : print_value(value, out));
        strbuf_add(out, " }");
    }
    strbuf_add(out, " ],\n  \"roles\": {");
    is_first = true;
    for (int i = 0; i < N_ROLES; i++) {
        if (!*role_of(roles, i))
            continue;
        strbuf_printf(out, "%s \"%s\": %d", is_first ? "" : ",", role_rows[i].name,
                      (*role_of(roles, i))->id);
        is_first = false;
    }
    strbuf_add(out, " } }");
    return strbuf_status(out);
}

/* Reading -------------------------------------------------------------------------------- */

struct reader {
    const struct graph_file_config *config;
    struct graph *graph;
    struct value **values; /* by their numbers in the file; NULL: no value of this graph */
    int n_values;          /* numbers that items had so far */
    int max_values;
    int64_t elements; /* of all parameters */
};

/* Only members of these names. */
static enum status check_members(const struct json_value *object, const char *const *names,
                                 unsigned attrs)
{
    if (!object || object->kind != JSON_OBJECT)
        return FAIL(STATUS_CORRUPT, "is no object");
    for (size_t m = 0; m < object->count; m++) {
        bool is_known = false;
        for (int i = 0; names[i] && !is_known; i++)
            is_known = strcmp(object->keys[m], names[i]) == 0;
        for (int i = 0; i < N_ATTRS && !is_known; i++)
            is_known =
                (attrs & attr_rows[i].bit) && strcmp(object->keys[m], attr_rows[i].name) == 0;
        if (!is_known)
            return FAIL(STATUS_CORRUPT, "has a member that is not its own");
    }
    return STATUS_OK;
}

static enum status read_name(const struct json_value *object, const char *key, const char **out)
{
    const char *name = json_text(object, key, NULL);
    size_t length = 0;

    while (name && name[length] > 0x20 && name[length] < 0x7f)
        length++;
    if (!name || name[length] || length == 0 || length > NAME_MOST)
        return FAIL(STATUS_CORRUPT, "%s is no name of at most %d letters", key, NAME_MOST);
    *out = name;
    return STATUS_OK;
}

static enum status read_integer(const struct json_value *value, int64_t most, int64_t *out)
{
    if (!value || value->kind != JSON_NUMBER || !value->is_integer || value->integer < 0 ||
        value->integer > most)
        return FAIL(STATUS_CORRUPT, "a number is not whole, or not in 0 to %lld",
                    (long long)most);
    *out = value->integer;
    return STATUS_OK;
}

/* Extents after the first `given` ones, each at least 1, with a product within the limit. */
static enum status read_extents(const struct json_value *list, int given, struct shape *shape)
{
    int64_t count;

    if (!list || list->kind != JSON_ARRAY || list->count > (size_t)(SHAPE_MAX - given))
        return FAIL(STATUS_CORRUPT, "has no list of at most %d extents", SHAPE_MAX - given);
    shape->rank = given + (int)list->count;
    for (size_t i = 0; i < list->count; i++) {
        int64_t *extent = &shape->dim[given + (int)i];
        TRY(read_integer(&list->items[i], GRAPH_FILE_ELEMENTS, extent));
        if (*extent == 0)
            return FAIL(STATUS_CORRUPT, "an extent is 0");
    }
    if (shape_checked_count(shape, &count) != STATUS_OK || count > GRAPH_FILE_ELEMENTS)
        return FAIL(STATUS_CORRUPT, "is larger than %lld elements",
                    (long long)GRAPH_FILE_ELEMENTS);
    return STATUS_OK;
}

/* A number of a parameter or of an op: finite, and 0 if it is not there. */
static enum status read_number(const struct json_value *object, const char *key, float *out)
{
    const struct json_value *value = json_get(object, key);

    *out = 0;
    if (!value)
        return STATUS_OK;
    if (value->kind != JSON_NUMBER || !isfinite((float)value->number))
        return FAIL(STATUS_CORRUPT, "%s is no number", key);
    *out = (float)value->number;
    return STATUS_OK;
}

static enum status read_layout(const struct json_value *value, enum layout *out)
{
    static const enum layout allowed[] = { LAYOUT_PLAIN, LAYOUT_NHWC };

    for (size_t i = 0; value->kind == JSON_STRING && i < 2; i++) {
        if (strcmp(value->text, layout_name(allowed[i])) == 0) {
            *out = allowed[i];
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_CORRUPT, "layout is neither plain nor nhwc");
}

static enum status read_attr(const struct json_value *object, const struct attr_row *row,
                             struct attrs *attrs)
{
    const struct json_value *value = json_get(object, row->name);
    void *field = (char *)attrs + row->offset;
    int64_t number = 0;

    if (!value)
        return STATUS_OK;
    switch (row->kind) {
    case ATTR_INT:
        TRY(read_integer(value, NUMBER_MOST, &number));
        *(int *)field = (int)number;
        return STATUS_OK;
    case ATTR_PAIR:
        if (value->kind != JSON_ARRAY || value->count != 2)
            return FAIL(STATUS_CORRUPT, "%s is no pair", row->name);
        for (int i = 0; i < 2; i++) {
            TRY(read_integer(&value->items[i], NUMBER_MOST, &number));
            ((int *)field)[i] = (int)number;
        }
        return STATUS_OK;
    case ATTR_NUMBER:
        return read_number(object, row->name, field);
    case ATTR_STREAM:
        TRY(read_integer(value, UINT32_MAX, &number));
        *(uint32_t *)field = (uint32_t)number;
        return STATUS_OK;
    case ATTR_SHAPE:
        /* One extent less than there may be: samples come first. */
        if (value->kind == JSON_ARRAY && value->count >= SHAPE_MAX)
            return FAIL(STATUS_CORRUPT, "%s has too many extents", row->name);
        return read_extents(value, 0, field);
    case ATTR_LAYOUT:
        return read_layout(value, field);
    }
    return STATUS_OK;
}

/* The next item's values are numbered from here on. */
static enum status take_numbers(struct reader *r, struct value *const *values, int count)
{
    if (r->n_values + count > r->max_values)
        return FAIL(STATUS_CORRUPT, "values are more than %d", r->max_values);
    for (int i = 0; i < count; i++)
        r->values[r->n_values++] = values[i];
    return STATUS_OK;
}

static enum status add_input(struct reader *r, const struct json_value *item)
{
    static const char *const members[] = { "id", "input", "dtype", "sample", "sequence", NULL };
    const struct extents *extents = &r->config->extents;
    const char *name, *dtype = json_text(item, "dtype", "");
    struct shape shape = { .rank = 1, .dim = { 1 } };
    int64_t sequence = 0;

    TRY(check_members(item, members, 0));
    TRY(read_name(item, "input", &name));
    TRY(read_extents(json_get(item, "sample"), 1, &shape));
    if (json_get(item, "sequence"))
        TRY(read_integer(json_get(item, "sequence"), 2, &sequence));
    const bool is_ids = strcmp(dtype, dtype_name(DTYPE_I32)) == 0;
    if (!is_ids && strcmp(dtype, dtype_name(DTYPE_F32)) != 0)
        return FAIL(STATUS_CORRUPT, "input %s is neither f32 nor i32", name);
    if (sequence && shape.rank < 2)
        return FAIL(STATUS_CORRUPT, "input %s has no extent that is a length", name);
    shape.dim[0] = extents->rows;
    if (sequence && extents->length[sequence - 1])
        shape.dim[1] = extents->length[sequence - 1];
    struct value *value = graph_input(r->graph, name, is_ids ? DTYPE_I32 : DTYPE_F32, shape);
    if (value)
        value->sequence = (int)sequence;
    return value ? take_numbers(r, &value, 1) : graph_status(r->graph);
}

static enum status add_saved(struct reader *r, const struct json_value *item, bool is_average)
{
    static const char *const members[] = { "id",      "param",  "average", "shape",  "initial",
                                           "uniform", "normal", "table",   "turned", NULL };
    const char *name;
    struct shape shape = { 0 };
    float initial, bound, deviation;

    TRY(check_members(item, members, 0));
    TRY(read_name(item, is_average ? "average" : "param", &name));
    TRY(read_extents(json_get(item, "shape"), 0, &shape));
    TRY(read_number(item, "initial", &initial));
    TRY(read_number(item, "uniform", &bound));
    TRY(read_number(item, "normal", &deviation));
    const bool is_table = json_bool(item, "table", false);
    const bool is_turned = json_bool(item, "turned", false);
    if (shape.rank < 1 || ((is_table || is_turned) && shape.rank != 2) ||
        (is_table && is_turned))
        return FAIL(STATUS_CORRUPT, "%s has a shape that cannot be", name);
    if (is_average && (is_table || is_turned || bound != 0 || deviation != 0))
        return FAIL(STATUS_CORRUPT, "average %s begins with more than a number", name);
    r->elements += shape_count(&shape);
    if (r->elements > GRAPH_FILE_ELEMENTS)
        return FAIL(STATUS_CORRUPT, "parameters have more than %lld elements",
                    (long long)GRAPH_FILE_ELEMENTS);
    struct value *value = is_average ? graph_average(r->graph, name, shape, initial)
                          : is_table ? graph_param_table(r->graph, name, shape, deviation)
                                     : graph_param_constant(r->graph, name, shape, initial);
    if (!value)
        return graph_status(r->graph);
    value->initial = initial;
    value->init_bound = bound;
    value->init_deviation = deviation;
    value->is_turned = is_turned;
    return take_numbers(r, &value, 1);
}

/* The value of a number. */
static enum status find_value(const struct reader *r, const struct json_value *number,
                              struct value **out)
{
    int64_t id;

    TRY(read_integer(number, r->n_values - 1, &id));
    if (!r->values[id])
        return FAIL(STATUS_CORRUPT, "value %lld is for training alone", (long long)id);
    *out = r->values[id];
    return STATUS_OK;
}

/* Is the value what the op takes there? */
static bool is_wanted(char wanted, const struct value *value)
{
    const bool is_param = value->kind == VALUE_PARAM;
    const bool is_ids = value->kind == VALUE_INPUT && value->dtype == DTYPE_I32;
    const bool is_rows = (value->kind == VALUE_INPUT || value->kind == VALUE_RESULT) &&
                         value->dtype == DTYPE_F32;

    return wanted == 'p' ? is_param : wanted == 'i' ? is_ids : is_rows;
}

static enum status read_inputs(const struct reader *r, const struct json_value *item,
                               const struct op_row *row, struct value **in, int *n_in)
{
    const struct json_value *list = json_get(item, "in");
    const size_t known = strcspn(row->in, "*");

    if (!list || list->kind != JSON_ARRAY || list->count == 0 || list->count > GRAPH_IN ||
        (list->count > known && !row->in[known]))
        return FAIL(STATUS_CORRUPT, "has no inputs, or too many");
    for (size_t i = 0; i < list->count; i++) {
        TRY(find_value(r, &list->items[i], &in[i]));
        if (!is_wanted(row->in[i < known ? i : known - 1], in[i]))
            return FAIL(STATUS_CORRUPT, "input %zu, %s, is nothing that it takes", i,
                        in[i]->name);
    }
    *n_in = (int)list->count;
    return STATUS_OK;
}

/* Numbers of a batch never lead out of a table, or out of a row of logits. */
static enum status check_numbers(const struct reader *r, const struct op_row *row,
                                 struct value *const *in)
{
    const struct graph_file_config *c = r->config;
    const bool is_lookup = row->in[0] == 'i';
    const bool has_labels = !is_lookup && row->in[1] == 'i' && row->op != &op_attention;

    if (!is_lookup && !has_labels)
        return STATUS_OK;
    const struct value *numbers = in[is_lookup ? 0 : 1], *of = in[is_lookup ? 1 : 0];
    const int64_t room = of->shape.dim[is_lookup ? 0 : of->shape.rank - 1];
    /* Inputs have the names of their roles: see check_input_names. */
    const int64_t below = strcmp(numbers->name, "input") == 0    ? c->below_input
                          : strcmp(numbers->name, "second") == 0 ? c->below_second
                          : strcmp(numbers->name, "target") == 0 ? c->below_target
                                                                 : 0;
    if (below < 1 || below > room)
        return FAIL(STATUS_CORRUPT, "has %lld places for numbers below %lld of %s",
                    (long long)room, (long long)below, numbers->name);
    return STATUS_OK;
}

/* Batch norm: in training its averages see what it makes; in evaluation it reads them. */
static enum status read_averages(const struct reader *r, const struct json_value *item,
                                 struct value **mean, struct value **variance)
{
    const struct json_value *list = json_get(item, "averages");

    if (!list || list->kind != JSON_ARRAY || list->count != 2)
        return FAIL(STATUS_CORRUPT, "has no two averages");
    TRY(find_value(r, &list->items[0], mean));
    TRY(find_value(r, &list->items[1], variance));
    if ((*mean)->kind != VALUE_AVERAGE || (*variance)->kind != VALUE_AVERAGE ||
        *mean == *variance || (*mean)->gradient || (*variance)->gradient)
        return FAIL(STATUS_CORRUPT, "its averages are none, or another's");
    return STATUS_OK;
}

static enum status add_batch_norm(struct reader *r, const struct json_value *item,
                                  const char *name, struct value **in, int n_in,
                                  const struct attrs *attrs, struct node **out)
{
    const bool training = r->config->training;

    if (n_in != 3)
        return FAIL(STATUS_CORRUPT, "takes three inputs");
    TRY(read_averages(r, item, &in[3], &in[4]));
    struct node *node = graph_add(r->graph, training ? &op_batch_norm : &op_batch_norm_apply,
                                  name, in, training ? 3 : 5, attrs);
    if (!node)
        return graph_status(r->graph);
    if (training) {
        in[3]->gradient = node->out[2];
        in[4]->gradient = node->out[3];
    }
    *out = node;
    return STATUS_OK;
}

static enum status check_results(const struct reader *r, const struct node *node)
{
    for (int i = 0; i < node->n_out; i++) {
        int64_t count;
        if (shape_checked_count(&node->out[i]->shape, &count) != STATUS_OK || count < 1 ||
            count / r->config->extents.rows > GRAPH_FILE_ELEMENTS)
            return FAIL(STATUS_CORRUPT, "makes nothing, or more than %lld elements a sample",
                        (long long)GRAPH_FILE_ELEMENTS);
    }
    return STATUS_OK;
}

static enum status add_node(struct reader *r, const struct json_value *item)
{
    static const char *const members[] = { "id", "op", "name", "in", "averages", NULL };
    const struct op_row *row = find_row(graph_find_op(json_text(item, "op", "")));
    struct value *in[GRAPH_IN], *out[GRAPH_OUT] = { NULL };
    struct attrs attrs = { 0 };
    struct node *node = NULL;
    const char *name;
    int n_in;

    if (!row)
        return FAIL(STATUS_CORRUPT, "its op is none that a file may have");
    TRY(read_name(item, "name", &name));
    TRY(check_members(item, members, row->attrs));
    TRY(read_inputs(r, item, row, in, &n_in));
    for (int i = 0; i < N_ATTRS; i++) {
        if (row->attrs & attr_rows[i].bit)
            TRY(read_attr(item, &attr_rows[i], &attrs));
    }
    if (row->op == &op_dropout && !r->config->training)
        return take_numbers(r, in, 1);
    if (row->op == &op_batch_norm) {
        TRY(add_batch_norm(r, item, name, in, n_in, &attrs, &node));
    } else {
        if (json_get(item, "averages"))
            return FAIL(STATUS_CORRUPT, "%s has no averages", row->op->name);
        node = graph_add(r->graph, row->op, name, in, n_in, &attrs);
        if (!node)
            return graph_status(r->graph);
        TRY(check_numbers(r, row, in));
    }
    TRY(check_results(r, node));
    for (int i = 0; i < node->n_out; i++)
        out[i] = node->out[i];
    /* What evaluation does not make has a number all the same. */
    return take_numbers(r, out, row->op->min_out);
}

static enum status add_item(struct reader *r, const struct json_value *item)
{
    int64_t id;

    TRY(read_integer(json_get(item, "id"), GRAPH_FILE_ITEMS * GRAPH_OUT, &id));
    if (id != r->n_values)
        return FAIL(STATUS_CORRUPT, "its id is %lld, expected %d", (long long)id, r->n_values);
    if (json_get(item, "input"))
        return add_input(r, item);
    if (json_get(item, "param") || json_get(item, "average"))
        return add_saved(r, item, json_get(item, "param") == NULL);
    return add_node(r, item);
}

/* An input that a role is about has its name, and there are no others. */
static enum status check_input_names(struct reader *r)
{
    const struct graph_roles *roles = graph_roles(r->graph);

    for (int i = 0; i < graph_value_count(r->graph); i++) {
        const struct value *value = graph_value(r->graph, i);
        const struct value *role = strcmp(value->name, "input") == 0    ? roles->input
                                   : strcmp(value->name, "second") == 0 ? roles->second
                                   : strcmp(value->name, "target") == 0 ? roles->target
                                                                        : NULL;
        if (value->kind == VALUE_INPUT && role != value)
            return FAIL(STATUS_CORRUPT, "input %s has no role", value->name);
    }
    return STATUS_OK;
}

static enum status read_roles(struct reader *r, const struct json_value *object)
{
    struct graph_roles *roles = graph_roles(r->graph);
    const char *names[N_ROLES + 1] = { NULL };

    for (int i = 0; i < N_ROLES; i++)
        names[i] = role_rows[i].name;
    TRY(check_members(object, names, 0));
    for (int i = 0; i < N_ROLES; i++) {
        const struct json_value *number = json_get(object, role_rows[i].name);
        if (number)
            TRY(find_value(r, number, role_of(roles, i)));
    }
    if (!roles->input || !roles->target || !roles->output || !roles->loss)
        return FAIL(STATUS_CORRUPT, "input, target, output or loss is missing");
    return check_input_names(r);
}

/* The loss is made of the output; what it is compared with is the target, but for reconstructions; what is
 * counted right is counted of the same. */
static enum status check_ends(struct reader *r)
{
    const struct graph_roles *roles = graph_roles(r->graph);
    const struct node *loss = roles->loss->maker;
    const struct node *correct = roles->correct ? roles->correct->maker : NULL;
    const struct op_row *row = loss ? find_row(loss->op) : NULL;

    if (!row || !row->is_loss || roles->loss != loss->out[0] || loss->in[0] != roles->output ||
        (loss->op != &op_mse && loss->in[1] != roles->target))
        return FAIL(STATUS_CORRUPT, "the loss is none of output and target");
    const struct op *counted = loss->op == &op_softmax_cross_entropy ? &op_accuracy
                               : loss->op == &op_token_cross_entropy ? &op_token_accuracy
                                                                     : NULL;
    if ((roles->correct && !correct) || (correct ? correct->op : NULL) != counted ||
        (correct && (roles->correct != correct->out[0] || correct->in[0] != roles->output ||
                     correct->in[1] != roles->target)))
        return FAIL(STATUS_CORRUPT, "what is right is not counted of output and target");
    for (int n = 0; n < graph_node_count(r->graph); n++) {
        const struct node *node = graph_node(r->graph, n);
        if (find_row(node->op) && find_row(node->op)->is_loss && node != loss)
            return FAIL(STATUS_CORRUPT, "node %s is a second loss", node->name);
    }
    return STATUS_OK;
}

static enum status read_graph(struct reader *r, const struct json_value *object)
{
    static const char *const members[] = { "name", "items", "roles", NULL };
    const struct json_value *items = json_get(object, "items");

    TRY(check_members(object, members, 0));
    if (!items || items->kind != JSON_ARRAY || items->count > GRAPH_FILE_ITEMS)
        return FAIL(STATUS_CORRUPT, "items is no list of at most %d", GRAPH_FILE_ITEMS);
    for (size_t i = 0; i < items->count; i++) {
        if (add_item(r, &items->items[i]) != STATUS_OK)
            return FAIL(STATUS_CORRUPT, "item %zu: %s", i, status_message());
    }
    if (read_roles(r, json_get(object, "roles")) != STATUS_OK)
        return FAIL(STATUS_CORRUPT, "roles: %s", status_message());
    TRY(check_ends(r));
    return graph_verify(r->graph);
}

enum status graph_file_build(const struct json_value *object,
                             const struct graph_file_config *config, struct graph **out)
{
    struct reader r = { .config = config, .max_values = GRAPH_FILE_ITEMS * GRAPH_OUT };
    const char *name;

    BUG_ON(config->extents.rows < 1);
    if (read_name(object, "name", &name) != STATUS_OK)
        return FAIL(STATUS_CORRUPT, "graph: %s", status_message());
    TRY(graph_create(name, &r.graph));
    enum status status = mem_alloc((size_t)r.max_values, sizeof *r.values, &r.values);
    if (status == STATUS_OK && read_graph(&r, object) != STATUS_OK)
        status = FAIL(STATUS_CORRUPT, "graph %s: %s", name, status_message());
    mem_free(r.values);
    if (status != STATUS_OK) {
        graph_destroy(r.graph);
        return status;
    }
    *out = r.graph;
    return STATUS_OK;
}
