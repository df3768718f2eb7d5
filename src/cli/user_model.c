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
#include "base/strbuf.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "model/file.h"
#include "train/library.h"
#include "train/words.h"

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

enum { WORDS_MOST = 32 };

/* Runs the compiler with these words after its name, ended by NULL; what it says goes to standard error. */
static enum status run_compiler(const char *const *words, bool *out_succeeded)
{
    const char *compiler = getenv("CC");
    const char *all[WORDS_MOST] = { NULL };
    int state;

    if (!compiler || !*compiler)
        compiler = "cc";
    all[0] = compiler;
    for (int i = 0; words[i] && i < WORDS_MOST - 2; i++)
        all[i + 1] = words[i];
    fflush(NULL);
    const pid_t child = fork();
    if (child < 0)
        return FAIL(STATUS_IO, "no process for the compiler: %s", strerror(errno));
    if (child == 0) {
        execvp(compiler, (char *const *)all);
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
    *out_succeeded = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    return STATUS_OK;
}

/* What a model file is built through, in a folder of its own. */
struct build {
    const char *source;
    char include[SETTINGS_TEXT];
    char folder[32];
    char object[64], library[64], stubs[64], tried[64];
};

/* A function that is not declared is an error here, with its place and the name that may have been meant: a warning would
 * leave it to the loader, which knows no lines. */
static enum status compile(const struct build *build)
{
    char include_flag[SETTINGS_TEXT + 2];
    bool succeeded = false;

    snprintf(include_flag, sizeof include_flag, "-I%s", build->include);
    const char *const words[] = { "-std=c17",
                                  "-O2",
                                  "-g",
                                  "-Wall",
                                  "-Werror=implicit-function-declaration",
                                  "-Werror=implicit-int",
                                  "-Werror=int-conversion",
                                  "-Werror=incompatible-pointer-types",
                                  "-Werror=return-type",
                                  "-fPIC",
                                  include_flag,
                                  "-c",
                                  "-o",
                                  build->object,
                                  build->source,
                                  NULL };
    const char *const link[] = { "-shared", "-o", build->library, build->object, "-lm", NULL };
    TRY(run_compiler(words, &succeeded));
    if (succeeded)
        TRY(run_compiler(link, &succeeded));
    return succeeded ? STATUS_OK
                     : FAIL(STATUS_USAGE, "%s does not compile (see above)", build->source);
}

/* Writes a C file with an empty function of each name that tutti.h declares. */
static enum status write_stubs(const struct build *build)
{
    char header[2 * SETTINGS_TEXT], *text;
    struct strbuf stubs;
    size_t length;

    snprintf(header, sizeof header, "%s/tutti.h", build->include);
    TRY(file_read(header, MODEL_FILE_BYTES, &text, &length));
    strbuf_init(&stubs, MODEL_FILE_BYTES);
    for (const char *at = strstr(text, "TUTTI_API "); at; at = strstr(at + 1, "TUTTI_API ")) {
        const char *name = strstr(at, "tutti_"), *open = strchr(at, '(');
        while (name && open && name < open) { /* the last such word before '(' is the name */
            const size_t letters = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
            if (name + letters == open && strncmp(name, "tutti_model_entry", letters) != 0)
                strbuf_printf(&stubs, "void %.*s(void) {}\n", (int)letters, name);
            name = strstr(name + letters, "tutti_");
        }
    }
    mem_free(text);
    enum status status = strbuf_status(&stubs);
    if (status == STATUS_OK)
        status = file_replace(build->stubs, stubs.text, stubs.length);
    strbuf_release(&stubs);
    return status;
}

/* Has the linker say what the loader misses, with file and line. `why`: the loader's words, if it finds nothing. */
static enum status explain_load(const struct build *build, const char *why)
{
    const char *const words[] = { "-shared",     "-Wl,-z,defs", "-o",  build->tried,
                                  build->object, build->stubs,  "-lm", NULL };
    char loader[512];
    bool succeeded = false;

    snprintf(loader, sizeof loader, "%s", why);
    TRY(write_stubs(build));
    TRY(run_compiler(words, &succeeded));
    if (succeeded)
        return FAIL(STATUS_USAGE, "%s: %s", build->source, loader);
    return FAIL(STATUS_USAGE,
                "%s uses what no file defines (see above): define it there, or take a function "
                "of tutti.h",
                build->source);
}

static enum status load(const struct build *build, tutti_model_fn **out)
{
    const char *source = build->source;
    void *library = dlopen(build->library, RTLD_NOW | RTLD_LOCAL); /* stays until the end */
    if (!library)
        return explain_load(build, dlerror());
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
    struct build build = { .source = source, .folder = "/tmp/tutti-model-XXXXXX" };
    tutti_model_fn *function = NULL;

    if (!file_exists(source))
        return FAIL(STATUS_USAGE, "model file %s is not there", source);
    TRY(find_include(build.include));
    if (!mkdtemp(build.folder))
        return FAIL(STATUS_IO, "%s: %s", build.folder, strerror(errno));
    const char *folder = build.folder;
    snprintf(build.object, sizeof build.object, "%s/model.o", folder);
    snprintf(build.library, sizeof build.library, "%s/model.so", folder);
    snprintf(build.stubs, sizeof build.stubs, "%s/stubs.c", folder);
    snprintf(build.tried, sizeof build.tried, "%s/tried.so", folder);
    enum status status = compile(&build);
    if (status == STATUS_OK)
        status = load(&build, &function);
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

    if (file_is_folder(name) && !model_find(name))
        return FAIL(
            STATUS_USAGE,
            "%s is a folder, a model is a name, a C file or a graph file; a run goes on "
            "with tutti train --resume DIR",
            name);
    if (ends_with(name, ".c"))
        return load_user_model(name, out);
    if (ends_with(name, ".json"))
        return load_graph_file(name, out);
    *out = model_find(name);
    if (*out)
        return STATUS_OK;
    for (int i = 0; model_table[i] && i < 63; i++)
        names[i] = model_table[i]->name;
    const char *here = words_here(WORDS_MODEL, name);
    if (here)
        return FAIL(STATUS_USAGE, "unknown model %s: the nearest here is %s (tutti models)",
                    name, here);
    const char *near = suggest_nearest(name, names);
    if (near)
        return FAIL(STATUS_USAGE, "unknown model %s: did you mean %s?", name, near);
    if (strchr(name, '.') || strchr(name, '/'))
        return FAIL(STATUS_USAGE,
                    "unknown model %s: a model is a name that tutti models lists, a C file "
                    "(NAME.c) or a graph file (NAME.json)",
                    name);
    return FAIL(STATUS_USAGE, "unknown model %s: tutti models lists what there is", name);
}

enum status cli_find_run_model(const struct settings *settings, const struct model **out)
{
    if (!*settings->model_file)
        return cli_find_model(settings->model, out);
    if (!file_exists(settings->model_file))
        return FAIL(STATUS_NOT_FOUND,
                    "%s is not there, and the run in %s needs it: copy the whole folder",
                    settings->model_file, settings->out);
    return cli_find_model(settings->model_file, out);
}
