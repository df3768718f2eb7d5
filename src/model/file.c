/* SPDX-License-Identifier: MIT */
/* file.c - models that are texts: what a model learns from, around a graph of graph/file.h. */
#include "model/file.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "graph/file.h"

enum { VERSION = 1, CLASSES_MOST = 1 << 20, TOKENS_MOST = 1 << 30 };

static const char format[] = "tutti graph";

static const char *const task_names[] = {
    [MODEL_IMAGES] = "images",
    [MODEL_TEXT_CLASSES] = "text-classes",
    [MODEL_TRANSLATION] = "translation",
    [MODEL_NEXT_TOKEN] = "next-token",
    [MODEL_MASKED_TOKEN] = "masked-token",
    [MODEL_TABLE] = "table",
    "statistics",
};
enum { N_TASKS = sizeof task_names / sizeof *task_names };

struct model_file {
    struct json *json;
    const struct json_value *graph;
    struct model model; /* its texts are the document's */
};

static bool has_ids(enum model_task task)
{
    return task != MODEL_IMAGES && task != MODEL_TABLE;
}

static bool predicts_tokens(enum model_task task)
{
    return task == MODEL_TRANSLATION || task == MODEL_NEXT_TOKEN || task == MODEL_MASKED_TOKEN;
}

/* Writing -------------------------------------------------------------------------------- */

/* Is it a name, not a path or anything else? */
static bool is_plain_name(const char *name)
{
    return name && *name &&
           name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_")] == '\0' &&
           strlen(name) < 32;
}

/* What images or labels are, as columns are in a table's schema. */
static void print_data(const struct model *model, const struct model_config *config,
                       struct strbuf *out)
{
    const bool has_names = config->class_names && model->classes && !config->table &&
                           !predicts_tokens(model->task);

    for (int i = 0; has_names && i < config->classes; i++) {
        strbuf_add(out, i ? ", " : ",\n  \"class_names\": [");
        strbuf_add_json(out, config->class_names[i]);
    }
    if (has_names)
        strbuf_add(out, "]");
    if (config->normalize && model->task == MODEL_IMAGES && !model->unit_pixels)
        strbuf_printf(out, ", \"normalize\": \"%s\"", config->normalize);
}

static void print_head(const struct model *model, const struct model_config *config,
                       struct strbuf *out)
{
    strbuf_printf(out, "{ \"format\": \"%s\", \"version\": %d,\n  \"task\": \"%s\"", format,
                  VERSION, task_names[model->task]);
    if (!predicts_tokens(model->task) && model->classes)
        strbuf_printf(out, ", \"classes\": %d", config->classes);
    if (has_ids(model->task))
        strbuf_printf(out, ", \"vocab\": [%lld, %lld], \"length\": [%lld, %lld]",
                      (long long)config->vocab[0], (long long)config->vocab[1],
                      (long long)config->length[0], (long long)config->length[1]);
    if (model->unit_pixels)
        strbuf_add(out, ", \"unit_pixels\": true");
    print_data(model, config, out);
    if (config->table)
        strbuf_printf(out, ",\n  \"table\": %s", config->table);
    if (config->table && config->statistics)
        strbuf_printf(out, ",\n  \"statistics\": %s", config->statistics);
    if (is_plain_name(model->optimizer))
        strbuf_printf(out, ", \"optimizer\": \"%s\"", model->optimizer);
    if (is_plain_name(model->data))
        strbuf_printf(out, ", \"data\": \"%s\"", model->data);
}

enum status model_file_print(const struct model *model, const struct model_config *config,
                             struct strbuf *out)
{
    struct model_config plain = *config;
    struct graph *graph;

    plain.batch = 1;
    plain.training = true;
    plain.label_smoothing = 0;
    plain.whole = true;
    TRY(model_build(model, &plain, &graph));
    print_head(model, &plain, out);
    strbuf_add(out, ",\n  \"graph\": ");
    enum status status = graph_file_print(graph, out);
    graph_destroy(graph);
    TRY(status);
    strbuf_add(out, " }\n");
    return strbuf_status(out);
}

/* Reading -------------------------------------------------------------------------------- */

static enum status check_members(const struct json_value *root)
{
    static const char *const members[] = { "format",      "version",   "task",
                                           "classes",     "vocab",     "length",
                                           "optimizer",   "data",      "table",
                                           "statistics",  "graph",     "unit_pixels",
                                           "class_names", "normalize", NULL };

    if (root->kind != JSON_OBJECT || strcmp(json_text(root, "format", ""), format) != 0)
        return FAIL(STATUS_CORRUPT, "this is no graph file: its format is not \"%s\"", format);
    if (json_integer(root, "version", 0) != VERSION)
        return FAIL(STATUS_CORRUPT, "its version is not %d: a newer tutti wrote it", VERSION);
    for (size_t m = 0; m < root->count; m++) {
        bool is_known = false;
        for (int i = 0; members[i]; i++)
            is_known |= strcmp(root->keys[m], members[i]) == 0;
        if (!is_known)
            return FAIL(STATUS_CORRUPT, "member %zu is unknown", m);
    }
    return STATUS_OK;
}

/* A member of up to two numbers in 0 to `most`; absent: zeros. */
static enum status read_pair(const struct json_value *root, const char *key, int64_t most,
                             int64_t pair[2])
{
    const struct json_value *list = json_get(root, key);

    if (!list)
        return STATUS_OK;
    if (list->kind != JSON_ARRAY || list->count != 2)
        return FAIL(STATUS_CORRUPT, "%s is no pair", key);
    for (int i = 0; i < 2; i++) {
        if (!list->items[i].is_integer || list->items[i].integer < 0 ||
            list->items[i].integer > most)
            return FAIL(STATUS_CORRUPT, "%s is not in 0 to %lld", key, (long long)most);
        pair[i] = list->items[i].integer;
    }
    return STATUS_OK;
}

static enum status read_word(const struct json_value *root, const char *key, const char **out)
{
    const struct json_value *value = json_get(root, key);

    if (!value)
        return STATUS_OK;
    if (value->kind != JSON_STRING || !is_plain_name(value->text))
        return FAIL(STATUS_CORRUPT, "%s is no name", key);
    *out = value->text;
    return STATUS_OK;
}

static enum status read_task(const struct json_value *root, enum model_task *out)
{
    const char *name = json_text(root, "task", "");

    for (int i = 0; i < N_TASKS; i++) {
        if (strcmp(name, task_names[i]) == 0) {
            *out = (enum model_task)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_CORRUPT, "its task is none that is known");
}

/* What the texts mean is checked by who opens the data. */
static enum status read_data(struct model *model, const struct json_value *root)
{
    const struct json_value *names = json_get(root, "class_names");
    const struct json_value *normalize = json_get(root, "normalize");

    if (names && (names->kind != JSON_ARRAY || (int64_t)names->count != model->classes ||
                  model->task == MODEL_TABLE || predicts_tokens(model->task)))
        return FAIL(STATUS_CORRUPT, "class_names is no list of a name for each class");
    for (size_t i = 0; names && i < names->count; i++) {
        if (names->items[i].kind != JSON_STRING)
            return FAIL(STATUS_CORRUPT, "class_names: number %zu is no text", i);
    }
    if (normalize && (normalize->kind != JSON_STRING || model->task != MODEL_IMAGES))
        return FAIL(STATUS_CORRUPT, "normalize is no text about images");
    model->class_names = names;
    model->normalize = normalize ? normalize->text : NULL;
    return STATUS_OK;
}

static enum status read_head(struct model_file *file, const struct json_value *root)
{
    struct model *model = &file->model;
    const int64_t classes = json_integer(root, "classes", 0);

    TRY(check_members(root));
    TRY(read_task(root, &model->task));
    if (classes < 0 || classes > CLASSES_MOST)
        return FAIL(STATUS_CORRUPT, "classes are not in 0 to %d", CLASSES_MOST);
    model->classes = (int)classes;
    TRY(read_pair(root, "vocab", TOKENS_MOST, model->vocab));
    TRY(read_pair(root, "length", TOKENS_MOST, model->length));
    TRY(read_word(root, "optimizer", &model->optimizer));
    TRY(read_word(root, "data", &model->data));
    model->unit_pixels = json_bool(root, "unit_pixels", false);
    model->table = json_get(root, "table");
    model->statistics = model->table ? json_get(root, "statistics") : NULL;
    if (model->table && model->task != MODEL_TABLE)
        return FAIL(STATUS_CORRUPT, "its task %s has no table", task_names[model->task]);
    TRY(read_data(model, root));
    file->graph = json_get(root, "graph");
    if (!file->graph)
        return FAIL(STATUS_CORRUPT, "it has no graph");
    model->name = json_text(file->graph, "name", "");
    model->summary = "a model from a file";
    return STATUS_OK;
}

/* The graph's inputs are those that the task has. */
static enum status check_inputs(const struct model_file *file,
                                const struct model_config *config, struct graph *graph)
{
    struct model_config as_is = *config;
    struct graph *expected;

    if (!has_ids(file->model.task)) {
        const struct shape *input = &graph_roles(graph)->input->shape;
        as_is.sample = (struct shape){ .rank = input->rank - 1 };
        for (int i = 1; i < input->rank; i++)
            as_is.sample.dim[i - 1] = input->dim[i];
    }
    TRY(graph_create("expected", &expected));
    model_add_inputs(expected, file->model.task, &as_is);
    const struct graph_roles *a = graph_roles(graph), *b = graph_roles(expected);
    const struct value *const pairs[][2] = { { a->input, b->input },
                                             { a->second, b->second },
                                             { a->target, b->target } };
    enum status status = graph_status(expected);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && status == STATUS_OK; i++) {
        const struct value *is = pairs[i][0], *should = pairs[i][1];
        if ((is == NULL) != (should == NULL) ||
            (is &&
             (is->kind != VALUE_INPUT || is->dtype != should->dtype ||
              is->sequence != should->sequence || !shape_equal(&is->shape, &should->shape))))
            status = FAIL(STATUS_CORRUPT, "its inputs are not those of the task %s",
                          task_names[file->model.task]);
    }
    graph_destroy(expected);
    return status;
}

static enum status build(const struct model_file *file, const struct model_config *config,
                         struct graph **out)
{
    const struct model *model = &file->model;
    const int last = model->task == MODEL_TRANSLATION;
    const struct graph_file_config how = {
        .extents = { .rows = config->batch,
                     .length = { config->length[0], config->length[1] } },
        .training = config->training,
        .below_input = has_ids(model->task) ? model->vocab[0] : 0,
        .below_second = last ? model->vocab[1] : 0,
        .below_target = predicts_tokens(model->task) ? model->vocab[last] : model->classes,
    };
    struct graph *graph;

    TRY(graph_file_build(file->graph, &how, &graph));
    enum status status = check_inputs(file, config, graph);
    if (status != STATUS_OK) {
        graph_destroy(graph);
        return status;
    }
    *out = graph;
    return STATUS_OK;
}

/* Builds both graphs of a sample, so that what cannot be built is no file. */
static enum status try_building(struct model_file *file)
{
    struct model_config config = model_defaults(&file->model);

    for (int i = 0; i < 2; i++) {
        struct graph *graph;
        config.training = i == 0;
        TRY(build(file, &config, &graph));
        if (!has_ids(file->model.task)) {
            const struct shape *input = &graph_roles(graph)->input->shape;
            file->model.sample.rank = input->rank - 1;
            for (int d = 1; d < input->rank; d++)
                file->model.sample.dim[d - 1] = input->dim[d];
        }
        graph_destroy(graph);
    }
    return STATUS_OK;
}

enum status model_file_parse(const char *text, size_t length, struct model_file **out)
{
    struct model_file *file;

    if (length > MODEL_FILE_BYTES)
        return FAIL(STATUS_CORRUPT, "a graph file of %zu bytes: at most %d are read", length,
                    MODEL_FILE_BYTES);
    TRY(mem_alloc(1, sizeof *file, &file));
    enum status status = json_parse(text, length, &file->json);
    if (status == STATUS_OK)
        status = read_head(file, json_root(file->json));
    if (status == STATUS_OK)
        status = try_building(file);
    if (status != STATUS_OK) {
        model_file_destroy(file);
        return status;
    }
    file->model.file = file;
    *out = file;
    return STATUS_OK;
}

void model_file_destroy(struct model_file *file)
{
    if (!file)
        return;
    json_destroy(file->json);
    mem_free(file);
}

const struct model *model_file_model(const struct model_file *file)
{
    return &file->model;
}

enum status model_file_build(const struct model_file *file, const struct model_config *config,
                             struct graph **out)
{
    const struct model *model = &file->model;
    char is[SHAPE_TEXT], should[SHAPE_TEXT];

    if (!has_ids(model->task) && !shape_equal(&config->sample, &model->sample))
        return FAIL(STATUS_MISMATCH, "graph %s is for samples of %s, the data have %s",
                    model->name, shape_print(&model->sample, should),
                    shape_print(&config->sample, is));
    if (model->classes && config->classes > model->classes)
        return FAIL(STATUS_MISMATCH, "graph %s tells %d classes, the data have %d", model->name,
                    model->classes, config->classes);
    for (int i = 0; i < 2; i++) {
        if (config->vocab[i] > model->vocab[i])
            return FAIL(STATUS_MISMATCH,
                        "graph %s has %lld tokens, the data have %lld: use --vocab %lld",
                        model->name, (long long)model->vocab[i], (long long)config->vocab[i],
                        (long long)model->vocab[i]);
    }
    return build(file, config, out);
}
