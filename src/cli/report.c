/* SPDX-License-Identifier: MIT */
/* report.c - tutti report */
#include <stdio.h>

#include "cli/cli.h"
#include "report/report.h"

static enum status run(const struct args *args)
{
    const char *words[1];
    struct parse parse = { .args = args, .words = words, .max_words = 1 };

    TRY(cli_parse(&parse));
    if (!parse.n_words)
        return FAIL(STATUS_USAGE, "no run: tutti report DIR");
    TRY(report_write(words[0]));
    printf("%s/report.html\n", words[0]);
    return STATUS_OK;
}

const struct command command_report = {
    .name = "report",
    .usage = "report DIR",
    .summary = "write a run's report.html anew, finished or not",
    .run = run,
};
