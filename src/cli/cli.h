/* SPDX-License-Identifier: MIT */
/* cli.h - commands: one file each, a row each in main.c. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"
#include "data/dataset.h"
#include "train/settings.h"
#include "transport/cluster.h"

/* The arguments after the command's name. */
struct args {
    int count;
    char **word;
};

struct command {
    const char *name, *usage, *summary;
    enum status (*run)(const struct args *args);
    void (*help)(void);
    const struct command *const *parts; /* commands of its own, ended by NULL; NULL: none */
};

extern const struct command command_train, command_eval, command_generate, command_graph,
    command_bench, command_data, command_models, command_strategies, command_report,
    command_compare, command_devices, command_plan, command_fed;
/* Parts of command_fed, where it was built. */
extern const struct command command_fed_simulate, command_fed_coordinator, command_fed_join,
    command_fed_status, command_fed_keys;

/* A flag that belongs to one command, besides the settings. */
struct flag {
    const char *name, *argument, *help;
    bool *is_set;      /* for flags without argument */
    const char **text; /* for those with one; both: the argument may be left out */
};

struct parse {
    const struct args *args;
    const struct flag *flags;   /* the command's own, ended by a NULL name */
    struct settings *settings;  /* NULL: the command takes no settings */
    const char *const *allowed; /* settings it takes, ended by NULL; NULL: all */
    const char **words;         /* receives what is no flag */
    int max_words;
    int n_words;
    /* Options of the model, kept until the model is known. Private. */
    struct {
        char name[64];
        const char *text;
    } later[MODEL_OPTIONS];
    int n_later;
};

/* Walks the arguments: --name value, --name=value, -n value, --switch, --no-switch. A flag that is
 * neither of the command's nor a setting may be an option of the model. Unknown flags are refused with the nearest name. */
MUST_CHECK enum status cli_parse(struct parse *parse);

/* The value of a command's own flag: a whole number from 0 to `most`. */
MUST_CHECK enum status cli_whole_number(const char *flag, const char *text, long long most,
                                        long long *out);

/* Help texts from the tables. */
void cli_print_flags(const char *heading, const struct flag *flags);
/* defaults NULL: those of settings_init. */
void cli_print_settings(const char *const *allowed, const struct settings *defaults);

/* tutti bench data: a command of its own in all but name. */
MUST_CHECK enum status cli_bench_data(const struct args *args);
void cli_bench_data_help(void);

/* tutti bench comm. Lists of names or numbers, separated by commas; NULL: the usual ones. */
struct bench_comm_flags {
    const char *sizes, *ops, *algorithms, *codecs;
};
/* elsewhere: the arguments, if the ranks are to be started by mpirun; else NULL. */
MUST_CHECK enum status cli_bench_comm(const struct bench_comm_flags *flags, bool json,
                                      struct settings *settings, const struct args *elsewhere);
/* tutti bench scale: likewise. */
MUST_CHECK enum status cli_bench_scale(const struct args *args);
void cli_bench_scale_help(void);

/* Ranks on other machines, for commands that start ranks. Before flags are read: who started this
 * process; the number of ranks is that of the job. */
MUST_CHECK enum status cli_join(struct settings *settings, struct cluster *cluster);
/* After: --hosts and -n go together, and with who started us; ranks and threads are decided. */
MUST_CHECK enum status cli_place(struct settings *settings, const struct cluster *cluster);
/* Are the ranks to be started by mpirun? Then the process becomes it: `name` is the command's. */
bool cli_is_elsewhere(const struct settings *settings, const struct cluster *cluster);
MUST_CHECK enum status cli_start_elsewhere(const char *name, const struct args *args,
                                           struct settings *settings);

/* A model by name, compiled and loaded from a C file, or read from a graph file (.json). *out stays valid
 * until the end. */
MUST_CHECK enum status cli_find_model(const char *name, const struct model **out);
/* The model of a run whose settings were read: its own copy, where it keeps one. */
MUST_CHECK enum status cli_find_run_model(const struct settings *settings,
                                          const struct model **out);

/* Writes the page about a data set (report/data_page.h). */
MUST_CHECK enum status cli_write_data_page(const struct dataset *train,
                                           const struct dataset *test, const char *path);

/* tutti data info of text. */
MUST_CHECK enum status cli_show_text(const char *name, bool json);
/* tutti data info of a table. */
MUST_CHECK enum status cli_show_table(const char *name, bool json);

/* "222k", "1.2M", "64": returns `text`. */
const char *cli_human(double number, char text[32]);
/* Prints lines that have texts of others, such as a coordinator: without control characters, which
 * a terminal would obey. */
void cli_print_lines(FILE *file, const char *text);

#endif /* CLI_CLI_H */
