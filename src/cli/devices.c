/* SPDX-License-Identifier: MIT */
/* devices.c - tutti devices */
#include <stdio.h>

#include "cli/cli.h"
#include "kernel/device.h"

static void help(void)
{
    puts("\nExamples\n"
         "  tutti devices");
}

static enum status show(const struct device_face *face)
{
    int count;

    TRY(face->count(&count));
    for (int i = 0; i < count; i++) {
        struct device_info info;
        char memory[32], free_memory[32];
        TRY(face->describe(i, &info));
        printf("%-5s %d  %s: %d %s, %sB of memory, %sB free (%s)\n", face->name, i, info.name,
               info.units, face->graph ? "multiprocessors" : "cores",
               cli_human((double)info.memory, memory),
               cli_human((double)info.free_memory, free_memory), info.driver);
    }
    return STATUS_OK;
}

/* What carries bytes between GPUs of several machines. */
static void show_team(const struct device_face *face)
{
    char text[DEVICE_TEXT];

    if (!face->graph) /* the cpu: others are reached by the job's own messages */
        return;
    if (!face->team)
        printf("%-5s -  NCCL: not in this build; several machines need it\n", face->name);
    else if (face->team->describe(text) == STATUS_OK)
        printf("%-5s -  %s, between machines\n", face->name, text);
    else
        printf("%-5s -  %s\n", face->name, status_message());
}

/* A device that is not there is no failure of this command: it says why. */
static enum status run_devices(const struct args *args)
{
    struct parse parse = { .args = args };

    TRY(cli_parse(&parse));
    for (int i = 0; device_names[i]; i++) {
        const struct device_face *face;
        if (device_find(device_names[i], &face) != STATUS_OK || show(face) != STATUS_OK)
            printf("%-5s -  %s\n", device_names[i], status_message());
        else
            show_team(face);
    }
    return STATUS_OK;
}

const struct command command_devices = {
    .name = "devices",
    .usage = "devices",
    .summary = "list what arithmetic can run on",
    .run = run_devices,
    .help = help,
};
