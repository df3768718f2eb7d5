/* draw.c - graphs as SVG. */
#include "graph/graph.h"

void graph_print_svg(const struct graph *graph, struct strbuf *out)
{
    strbuf_printf(out, "<svg xmlns=\"http://www.w3.org/2000/svg\"><title>%s</title></svg>",
                  graph_name(graph));
}
