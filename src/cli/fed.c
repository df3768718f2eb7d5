/* SPDX-License-Identifier: MIT */
/* fed.c - tutti fed: the table of its commands, one file each (fed_NAME.c). */
#include "cli/cli.h"

#ifdef HAVE_FED

static const struct command *const parts[] = {
    &command_fed_simulate, &command_fed_coordinator, &command_fed_join,
    &command_fed_status,   &command_fed_keys,        NULL,
};

static enum status run(const struct args *args)
{
    (void)args;
    return FAIL(STATUS_USAGE, "fed: which of its commands? tutti fed --help lists them");
}

#else

static const struct command *const parts[] = { NULL };

static enum status run(const struct args *args)
{
    (void)args;
    return FAIL(STATUS_UNSUPPORTED,
                "fed: this program was built without federated learning: " FED_REMEDY
                " and build again");
}

#endif

const struct command command_fed = {
    .name = "fed",
    .usage = "fed COMMAND ...",
    .summary = "train together with others who keep their data",
    .run = run,
    .parts = parts,
};
