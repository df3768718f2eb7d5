/* SPDX-License-Identifier: MIT */
/* memory.c - resident bytes of a rank.
 *
 * What is measured is by how much a process grew at most since just before its executor was made, without
 * pages of files: program, libraries and data are not training's. The prediction is the executor's, and what rank 0 needs to
 * write checkpoints: a copy of all, for which state comes from other machines, or nothing if it streams.
 */
#include "train/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* A line of /proc/self/status, in bytes; 0: it is not there. */
static int64_t read_status(const char *name)
{
    FILE *file = fopen("/proc/self/status", "r");
    const size_t length = strlen(name);
    char line[128];
    int64_t bytes = 0;

    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, name, length) == 0 && line[length] == ':')
            bytes = strtoll(line + length + 1, NULL, 10) * 1024;
    }
    if (file)
        (void)fclose(file);
    return bytes;
}

void memory_begin(struct memory_mark *mark)
{
    mark->resident = read_status("VmRSS") - read_status("RssFile");
}

int64_t memory_grown(const struct memory_mark *mark)
{
    const int64_t grown = memory_peak() - read_status("RssFile") - mark->resident;
    return grown > 0 ? grown : 0;
}

int64_t memory_peak(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

int64_t memory_predict(const struct exec *exec, struct memory_use use)
{
    const struct exec_memory m = exec_memory(exec);
    const size_t quiet = m.params + m.state + m.activations + m.other;
    size_t most = quiet + m.gradients;

    if (use.is_first && !use.streams)
        most += m.collected +
                exec_vector_length(exec) * sizeof(float) * (size_t)(1 + exec_own_states(exec));
    if (use.is_first && use.speaks && quiet + m.joined > most)
        most = quiet + m.joined; /* no gradients are there then */
    return (int64_t)most;
}

const char *memory_print(const struct exec *exec, int zero, char out[MEMORY_TEXT])
{
    const struct exec_memory m = exec_memory(exec);

    snprintf(
        out, MEMORY_TEXT,
        "a rank holds %.3g MB of parameters, %.3g MB of gradients, %.3g MB of state, %.3g MB "
        "of activations, %.3g MB more (zero=%d)",
        (double)m.params * 1e-6, (double)m.gradients * 1e-6, (double)m.state * 1e-6,
        (double)m.activations * 1e-6, (double)m.other * 1e-6, zero);
    return out;
}
