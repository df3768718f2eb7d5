/* SPDX-License-Identifier: MIT */
/* main.c - the program: finds the command, runs it, prints its failure. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/suggest.h"
#include "cli/cli.h"
#include "model/model.h"
#include "train/words.h"
#include "transport/launch.h"
#include "tutti.h"

static const struct command *const commands[] = {
    &command_train,    &command_eval,
    &command_generate, &command_graph,
    &command_plan,     &command_bench,
    &command_report,   &command_compare,
    &command_models,   &command_strategies,
    &command_data,     &command_devices,
    &command_fed,      NULL,
};

static void print_usage(FILE *out)
{
    fputs("tutti trains deep-learning models, on one device or many.\n\n"
          "usage: tutti COMMAND [ARGUMENTS]\n\n",
          out);
    for (int i = 0; commands[i]; i++)
        fprintf(out, "  %-11s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n"
          "  tutti COMMAND --help   what a command takes\n"
          "  tutti --version\n\n"
          "Begin with:  tutti train mlp --data fashion-mnist\n",
          out);
}

static const struct command *find_command(const struct command *const *table, const char *name)
{
    for (int i = 0; table[i]; i++) {
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    }
    return NULL;
}

/* `above`: the command whose part it should be, or NULL. */
static enum status unknown_command(const struct command *above, const char *name)
{
    const struct command *const *table = above ? above->parts : commands;
    const char *names[32] = { NULL };

    for (int i = 0; table[i]; i++)
        names[i] = table[i]->name;
    const char *here = above ? NULL : words_here(WORDS_COMMAND, name);
    if (!above && model_find(name))
        return FAIL(STATUS_USAGE, "%s is a model, not a command: tutti train %s", name, name);
    if (here)
        return FAIL(STATUS_USAGE, "unknown command %s: here it is %s", name, here);
    const char *near = suggest_nearest(name, names);
    if (near)
        return FAIL(STATUS_USAGE, "unknown command %s: did you mean %s?", name, near);
    return FAIL(STATUS_USAGE, "unknown command %s: tutti %s%s--help lists them", name,
                above ? above->name : "", above ? " " : "");
}

static bool asks_for_help(const struct args *args)
{
    for (int i = 0; i < args->count; i++) {
        if (strcmp(args->word[i], "--help") == 0 || strcmp(args->word[i], "-h") == 0)
            return true;
    }
    return false;
}

static void print_command_help(const struct command *command)
{
    printf("%s\n\nusage: tutti %s\n", command->summary, command->usage);
    for (int i = 0; command->parts && command->parts[i]; i++)
        printf("%s  %-11s %s\n", i ? "" : "\n", command->parts[i]->name,
               command->parts[i]->summary);
    if (command->help)
        command->help();
}

/* The command that the first words name; *used of them. */
static enum status choose_command(const struct args *words, const struct command **out,
                                  int *used)
{
    const struct command *const *table = commands;

    for (*used = 0, *out = NULL; table && *table && *used < words->count; ++*used) {
        const char *name = words->word[*used];
        if (*out && name[0] == '-')
            return STATUS_OK;
        const struct command *command = find_command(table, name);
        if (!command)
            return unknown_command(*out, name);
        *out = command;
        table = command->parts;
    }
    return STATUS_OK;
}

static enum status run(int argc, char **argv)
{
    if (argc < 2) {
        print_usage(stderr);
        return FAIL(STATUS_USAGE, "no command");
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("tutti %s\n", tutti_version());
        return STATUS_OK;
    }
    const bool wants_help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                            strcmp(argv[1], "help") == 0;
    if (wants_help && (argc < 3 || argv[2][0] == '-')) {
        print_usage(stdout);
        return STATUS_OK;
    }
    const int skip = wants_help ? 2 : 1;
    const struct args words = { argc - skip, argv + skip };
    const struct command *command;
    int used;
    TRY(choose_command(&words, &command, &used));
    const struct args args = { words.count - used, words.word + used };
    if (wants_help || asks_for_help(&args)) {
        print_command_help(command);
        return STATUS_OK;
    }
    return command->run(&args);
}

/* What a caller can do about it: docs/decisions/0006. */
static int exit_code(enum status status)
{
    switch ((int)status) {
    case STATUS_USAGE:
        return 2;
    case STATUS_PEER_LOST:
    case STATUS_PREEMPTED:
        return 3;
    case STATUS_STOPPED:
        return 128 + SIGINT;
    default:
        return 1;
    }
}

/* A shell ends its loops after Ctrl-C if what it waits for died of it. A starter of ranks would
 * complain. */
static void end_by_hand(void)
{
    int rank, size;

    (void)fflush(NULL);
    if (launch_world(&rank, &size))
        return;
    (void)signal(SIGINT, SIG_DFL);
    (void)raise(SIGINT);
}

/* OpenBLAS starts a thread a core as it is loaded, each of which takes 128 MiB of addresses, and where they are refused tries
 * again for ever: then the process cannot end. One thread a call is all that kernels use, and it cannot be told so later. */
static void load_blas_without_threads(char **argv)
{
    const char *threads = getenv("OPENBLAS_NUM_THREADS");
    struct rlimit limit;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        (threads && strcmp(threads, "1") == 0) || setenv("OPENBLAS_NUM_THREADS", "1", 1) != 0)
        return;
    (void)execv("/proc/self/exe", argv);
}

/* Memory is refused where addresses are few, however much there is. */
static void print_limit(enum status status)
{
    struct rlimit limit;

    if (status == STATUS_NO_MEMORY && getrlimit(RLIMIT_AS, &limit) == 0 &&
        limit.rlim_cur != RLIM_INFINITY)
        fprintf(stderr, ": a process may have %llu KiB of addresses here (ulimit -v): raise it",
                (unsigned long long)limit.rlim_cur >> 10);
}

int main(int argc, char **argv)
{
    load_blas_without_threads(argv);
    const char *level = getenv("TUTTI_LOG");

    if (level)
        log_set_level(strcmp(level, "debug") == 0  ? LOG_DEBUG
                      : strcmp(level, "info") == 0 ? LOG_INFO
                                                   : LOG_WARNING);
    const enum status status = run(argc, argv);
    if (status == STATUS_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        fputs("tutti: standard output cannot be written\n", stderr);
        return 1;
    }
    if (status == STATUS_OK)
        return 0;
    if (launch_reports(status)) { /* of several ranks one does */
        fprintf(stderr, "tutti: %s", status_message());
        print_limit(status);
        fputs("\n", stderr);
    }
    if (status == STATUS_STOPPED)
        end_by_hand();
    return exit_code(status);
}
