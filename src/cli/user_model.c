/* SPDX-License-Identifier: MIT */
/* user_model.c - models from files: in C, compiled with the system's compiler and loaded; or a graph. */
#include <dlfcn.h>
#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "model/file.h"
#include "train/library.h"

/* Where tutti.h lies, seen from the program: beside its build folder, or installed. */
static enum status find_include(char folder[SETTINGS_TEXT])
{
    static const char *const places[] = { "../include", "include", "../../include" };
    char program[SETTINGS_TEXT];
    const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);

    if (length <= 0)
        return FAIL(STATUS_IO, "the program does not find itself: %s", strerror(errno));
    program[length] = '\0';
    const char *home = dirname(program);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char header[2 * SETTINGS_TEXT];
        snprintf(folder, SETTINGS_TEXT, "%.900s/%s", home, places[i]);
        snprintf(header, sizeof header, "%s/tutti.h", folder);
        if (file_exists(header))
            return STATUS_OK;
    }
    return FAIL(STATUS_NOT_FOUND, "tutti.h is not found near %s", home);
}

static enum status compile(const char *source, const char *object)
{
    const char *compiler = getenv("CC");
    char include[SETTINGS_TEXT], include_flag[SETTINGS_TEXT + 2];
    int state;

    if (!compiler || !*compiler)
        compiler = "cc";
    TRY(find_include(include));
    snprintf(include_flag, sizeof include_flag, "-I%s", include);
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        return FAIL(STATUS_IO, "no process for the compiler: %s", strerror(errno));
    if (child == 0) {
        execlp(compiler, compiler, "-std=c17", "-O2", "-Wall", "-fPIC", "-shared", include_flag,
               "-o", object, source, (char *)NULL);
        fprintf(stderr, "%s: %s\n", compiler, strerror(errno));
        _exit(127);
    }
    while (waitpid(child, &state, 0) < 0) {
        if (errno != EINTR)
            return FAIL(STATUS_IO, "the compiler is lost: %s", strerror(errno));
    }
    if (WIFEXITED(state) && WEXITSTATUS(state) == 127)
        return FAIL(STATUS_UNSUPPORTED,
                    "no C compiler %s: install one (apt install gcc) or set CC", compiler);
    if (!WIFEXITED(state) || WEXITSTATUS(state) != 0)
        return FAIL(STATUS_USAGE, "%s does not compile (see above)", source);
    return STATUS_OK;
}

static enum status load(const char *object, const char *source, tutti_model_fn **out)
{
    void *library = dlopen(object, RTLD_NOW | RTLD_LOCAL); /* stays until the end */
    if (!library)
        return FAIL(STATUS_USAGE, "%s: %s", source, dlerror());
    tutti_model_fn *(*entry)(void);
    void *symbol = dlsym(library, "tutti_model_entry");
    if (!symbol)
        return FAIL(STATUS_USAGE, "%s has no model: end it with TUTTI_MODEL(your_function)",
                    source);
    memcpy(&entry, &symbol, sizeof entry);
    *out = entry();
    return STATUS_OK;
}

static enum status load_user_model(const char *source, const struct model **out)
{
    static struct model model;
    static char name[SETTINGS_TEXT];
    char folder[] = "/tmp/tutti-model-XXXXXX";
    tutti_model_fn *function = NULL;
    char *object;

    if (!file_exists(source))
        return FAIL(STATUS_USAGE, "model file %s is not there", source);
    if (!mkdtemp(folder))
        return FAIL(STATUS_IO, "%s: %s", folder, strerror(errno));
    enum status status = file_join(folder, "model.so", &object);
    if (status == STATUS_OK) {
        status = compile(source, object);
        if (status == STATUS_OK)
            status = load(object, source, &function);
        mem_free(object);
    }
    char reason[512];
    snprintf(reason, sizeof reason, "%s", status_message());
    if (file_remove_tree(folder) != STATUS_OK && status == STATUS_OK)
        return FAIL(STATUS_IO, "%s cannot be removed", folder);
    if (status != STATUS_OK)
        return status_set(status, reason);
    /* my_model.c is called my_model. */
    snprintf(name, sizeof name, "%s", source);
    const char *base = strrchr(name, '/') ? strrchr(name, '/') + 1 : name;
    char *dot = strrchr(name, '.');
    *dot = '\0';
    model = library_model(base, function);
    *out = &model;
    return STATUS_OK;
}

static enum status load_graph_file(const char *path, const struct model **out)
{
    static struct model_file *file; /* stays until the end */
    size_t length;
    char *text;

    if (!file_exists(path))
        return FAIL(STATUS_USAGE, "graph file %s is not there", path);
    TRY(file_read(path, MODEL_FILE_BYTES, &text, &length));
    enum status status = model_file_parse(text, length, &file);
    mem_free(text);
    if (status != STATUS_OK)
        return FAIL(status, "%s: %s", path, status_message());
    *out = model_file_model(file);
    return STATUS_OK;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t length = strlen(name), more = strlen(end);
    return length > more && strcmp(name + length - more, end) == 0;
}

enum status cli_find_model(const char *name, const struct model **out)
{
    const char *names[64] = { NULL };

    if (ends_with(name, ".c"))
        return load_user_model(name, out);
    if (ends_with(name, ".json"))
        return load_graph_file(name, out);
    *out = model_find(name);
    if (*out)
        return STATUS_OK;
    for (int i = 0; model_table[i] && i < 63; i++)
        names[i] = model_table[i]->name;
    const char *near = suggest_nearest(name, names);
    if (near)
        return FAIL(STATUS_USAGE, "unknown model %s: did you mean %s?", name, near);
    return FAIL(STATUS_USAGE, "unknown model %s: tutti models lists what there is", name);
}
