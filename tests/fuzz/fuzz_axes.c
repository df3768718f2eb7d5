/* SPDX-License-Identifier: MIT */
/* fuzz_axes.c - texts of --split, --sync, --meet and --slow, a line each, after a byte that picks the strategy: they
 * are refused with a reason, or mean something that a job can be. */
#include <string.h>

#include "fuzz.h"
#include "pass/strategy.h"
#include "train/slow.h"

enum { BYTES = 256, RANKS = 4 };

static void check(const struct strategy *strategy, const char *split, const char *sync,
                  const char *meet)
{
    struct axes axes;

    if (strategy_check(strategy, RANKS, split, sync, meet, &axes) != STATUS_OK) {
        BUG_ON(!*status_message());
        return;
    }
    BUG_ON(axes.dp * axes.tp * axes.pp != RANKS || axes.chunks != 1 || axes.bound < 0 ||
           axes.servers < 0);
    BUG_ON((axes.meet == MEET_PS) != (axes.servers > 0));
    BUG_ON((axes.sync == SYNC_LOCAL || axes.sync == SYNC_ELASTIC) && axes.interval < 1);
    BUG_ON(axes.sync == SYNC_ELASTIC && !(axes.alpha >= 0 && axes.alpha <= 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[BYTES + 1], *rest = text, *line[4];
    struct slow slow;
    int at = 0;

    if (size < 1 || size > BYTES)
        return 0;
    while (strategy_table[at + 1] && at < data[0] % 16)
        at++;
    memcpy(text, data + 1, size - 1);
    text[size - 1] = '\0';
    for (int i = 0; i < 4; i++) {
        line[i] = strsep(&rest, "\n");
        if (line[i] && !*line[i])
            line[i] = NULL;
    }
    check(strategy_table[at], line[0], line[1], line[2]);
    BUG_ON(!strategy_pick(RANKS, false, line[0], line[1], line[2]));
    struct axes axes = { .dp = 1, .tp = 1, .pp = RANKS };
    if (line[3] && strategy_read_pipeline(line[3], &axes) == STATUS_OK)
        BUG_ON(axes.chunks < 1 || axes.chunks > PIPE_CHUNKS || axes.pipeline >= PIPE_KINDS);
    if (line[3] && slow_parse(line[3], RANKS, &slow) == STATUS_OK)
        BUG_ON(slow.rank < 0 || slow.rank >= RANKS || !(slow.factor >= 1) || !(slow.all >= 1));
    return 0;
}
