/* SPDX-License-Identifier: MIT */
/* main.c - the program: finds the command, runs it, prints its failure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/suggest.h"
#include "cli/cli.h"
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

int main(int argc, char **argv)
{
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
    if (launch_reports(status)) /* of several ranks one does */
        fprintf(stderr, "tutti: %s\n", status_message());
    return status == STATUS_USAGE ? 2 : 1;
}
