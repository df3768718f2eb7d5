/* SPDX-License-Identifier: MIT */
/* rails.c - lines at the left of a table of layers.
 *
 * Layers stand below each other in the order in which they run, and most read the one above. What a
 * layer gives to others further down leaves it in a column of its own, the lowest that is free, and
 * ends at the last that reads it:
 *
 *   ●─╮      a        read by b and e, and below by f
 *   ●─┼─╮    b        read by c and f
 *   ● │ │    c
 *     │ │             c is read further down, d does not read it
 */
#include "base/mem.h"
#include "graph/layers.h"

static bool reads(const struct graph_layers *layers, int i, int source)
{
    for (int s = 0; s < layers->layer[i].n_sources; s++) {
        if (layers->layer[i].sources[s] == source)
            return true;
    }
    return false;
}

/* Is a column taken at layer i by what an earlier layer gives? */
static bool is_taken(const struct graph_rails *rails, int column, int i)
{
    for (int s = 0; s < i; s++) {
        if (rails->column[s] == column && rails->end[s] >= i)
            return true;
    }
    return false;
}

static int free_column(const struct graph_rails *rails, int i)
{
    for (int column = 0; column < GRAPH_RAILS; column++) {
        if (!is_taken(rails, column, i))
            return column;
    }
    return -1;
}

enum status graph_rails_make(const struct graph_layers *layers, struct graph_rails *out)
{
    struct graph_rails rails = { .layers = layers };
    const size_t count = (size_t)layers->count;

    TRY(mem_alloc(count, sizeof *rails.column, &rails.column));
    enum status status = mem_alloc(count, sizeof *rails.end, &rails.end);
    if (status != STATUS_OK) {
        graph_rails_release(&rails);
        return status;
    }
    for (int i = 0; i < layers->count; i++) {
        int n_skips = 0;
        rails.column[i] = -1;
        for (int later = i + 2; later < layers->count; later++) {
            if (!reads(layers, later, i))
                continue;
            rails.end[i] = later;
            n_skips++;
        }
        if (n_skips == 0)
            continue;
        rails.column[i] = free_column(&rails, i);
        if (rails.column[i] < 0)
            rails.left_out += n_skips;
        if (rails.column[i] >= rails.columns)
            rails.columns = rails.column[i] + 1;
    }
    *out = rails;
    return STATUS_OK;
}

void graph_rails_release(struct graph_rails *rails)
{
    mem_free(rails->column);
    mem_free(rails->end);
    *rails = (struct graph_rails){ 0 };
}

bool graph_rails_has_gap(const struct graph_rails *rails, int i)
{
    return i > 0 && !reads(rails->layers, i, i - 1);
}

/* What a column is at a layer's line. */
struct crossing {
    bool from_above, to_below, is_met; /* is_met: the layer reads it, or begins it */
};

static struct crossing crossing_at(const struct graph_rails *rails, int column, int i)
{
    struct crossing crossing = { 0 };

    for (int s = 0; s <= i; s++) {
        if (rails->column[s] != column || rails->end[s] < i)
            continue;
        crossing.from_above = crossing.from_above || s < i;
        crossing.to_below = crossing.to_below || rails->end[s] > i;
        crossing.is_met =
            crossing.is_met || s == i || (s < i - 1 && reads(rails->layers, i, s));
    }
    return crossing;
}

/* A character by the sides it has lines to: above 1, below 2, right 4; left where it is met. */
static const char *crossing_text(struct crossing crossing, bool goes_on, bool utf8)
{
    static const char *const lines[] = { " ",      "\u2502", "\u2502", "\u2502",
                                         "\u2500", "\u253c", "\u253c", "\u253c" };
    static const char *const met[] = { "\u2500", "\u256f", "\u256e", "\u2524",
                                       "\u2500", "\u2534", "\u252c", "\u253c" };
    static const char *const plain[] = { " ", "|", "|", "|", "-", "+", "+", "+" };
    const int sides = crossing.from_above + 2 * crossing.to_below + 4 * goes_on;

    if (!utf8)
        return crossing.is_met ? "+" : plain[sides];
    return crossing.is_met ? met[sides] : lines[sides];
}

void graph_rails_print(const struct graph_rails *rails, int i, bool gap, bool utf8,
                       struct strbuf *out)
{
    int last_met = -1;

    for (int c = 0; c < rails->columns && !gap; c++) {
        if (crossing_at(rails, c, i).is_met)
            last_met = c;
    }
    strbuf_add(out, gap ? " " : utf8 ? "\u25cf" : "o");
    for (int c = 0; c < rails->columns; c++) {
        struct crossing crossing = crossing_at(rails, c, i);
        if (gap) /* what comes to the layer below from above passes by */
            crossing = (struct crossing){ crossing.from_above, crossing.from_above, false };
        strbuf_add(out, c <= last_met ? (utf8 ? "\u2500" : "-") : " ");
        strbuf_add(out, crossing_text(crossing, c < last_met, utf8));
    }
}
