/* SPDX-License-Identifier: MIT */
/* fuzz_cluster.c - lists of machines, host files, and environments ("NAME=value" a line). */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/status.h"
#include "transport/cluster.h"
#include "transport/hosts.h"

#include "fuzz.h"

enum { BYTES = 1024, LINES = 16 };

struct lines {
    char *line[LINES];
    int count;
};

static const char *find(void *arg, const char *name)
{
    const struct lines *lines = arg;
    const size_t length = strlen(name);

    for (int i = 0; i < lines->count; i++) {
        if (strncmp(lines->line[i], name, length) == 0 && lines->line[i][length] == '=')
            return lines->line[i] + length + 1;
    }
    return NULL;
}

/* Whatever was read can be used, and no rank is lost when it is dealt. */
static void use(struct hosts *hosts)
{
    int ranks = 0;

    BUG_ON(hosts->count < 1 || hosts->count > HOSTS_MAX);
    const int room = hosts_room(hosts) < 10000 ? hosts_room(hosts) : 10000;
    BUG_ON(hosts_assign(hosts, room) != STATUS_OK);
    for (int i = 0; i < hosts->count; i++) {
        BUG_ON(!hosts->host[i].name[0] || hosts->host[i].name[0] == '-');
        ranks += hosts->host[i].ranks;
    }
    BUG_ON(ranks != room);
    hosts_release(hosts);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[BYTES + 1], *rest = text, *line;
    struct lines lines = { .count = 0 };
    struct task_counts counts;
    struct cluster cluster;
    struct hosts hosts;

    if (size > BYTES)
        return 0;
    memcpy(text, data, size);
    text[size] = '\0';
    if (hosts_parse(text, &hosts) == STATUS_OK)
        use(&hosts);
    if (hosts_parse_file(text, &hosts) == STATUS_OK)
        use(&hosts);
    if (task_counts_parse(text, &counts) == STATUS_OK)
        BUG_ON(counts.n_nodes < 1 || counts.n_tasks < 0);
    while (lines.count < LINES && (line = strsep(&rest, "\n")))
        lines.line[lines.count++] = line;
    const struct environment environment = { find, &lines };
    if (cluster_discover(&environment, &cluster) == STATUS_OK)
        BUG_ON(cluster.size && cluster.rank >= cluster.size);
    if (lines.count > 1 && hosts_parse_slurm(lines.line[0], lines.line[1], &hosts) == STATUS_OK)
        use(&hosts);
    return 0;
}
