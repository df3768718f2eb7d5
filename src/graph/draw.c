/* SPDX-License-Identifier: MIT */
/* draw.c - graphs as SVG: one element, complete by itself, for a browser or inside a page.
 *
 * Colours come from Okabe and Ito's palette, which most people tell apart; shape says the same
 * once more: collectives have bars at both ends, updates a heavy border. A stage of a pipeline has a stripe of
 * its colour and its number at the left of its nodes; parameters of which a rank has a slice have a broken border in the colour of the axis they are cut along. Every class and id
 * begins with "tg-", so that a page's own styles and these do not meet. Colours are no variables of CSS: most
 * programs that show SVG, but for browsers, know none and would paint all black.
 */
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "graph/op.h"
#include "graph/picture/picture.h"
#include "graph/print.h"

static const char style[] =
    "<style>\n"
    ".tg-graph{background:#fff;font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
    "'Helvetica Neue',Arial,sans-serif}\n"
    ".tg-paper{fill:#fff}\n"
    ".tg-graph text{fill:#1b1f24;font-size:11px}\n"
    ".tg-graph .tg-heading{font-size:16px;font-weight:600}\n"
    ".tg-graph .tg-count{font-size:11px;font-weight:400;fill:#59636e}\n"
    ".tg-graph .tg-op{font-size:13px;font-weight:600}\n"
    ".tg-graph .tg-soft{fill:#59636e}\n"
    ".tg-graph .tg-small{font-size:10px}\n"
    ".tg-box{stroke-width:1.2}\n"
    ".tg-forward .tg-box{fill:#dcecf8;stroke:#0072b2}\n"
    ".tg-backward .tg-box{fill:#fdeccc;stroke:#c77d00}\n"
    ".tg-reduce .tg-box{fill:#d6f0e6;stroke:#00805d}\n"
    ".tg-update .tg-box{fill:#f6e1ed;stroke:#b0568b;stroke-width:2.6}\n"
    ".tg-bar{fill:none;stroke:#00805d;stroke-width:1.2}\n"
    ".tg-pill{fill:#f1f3f5;stroke:#a8b1ba;stroke-width:.8}\n"
    ".tg-slice{stroke-dasharray:3 2;stroke-width:1.6;fill-opacity:.25}\n"
    ".tg-graph .tg-number{font-size:10px;font-weight:700;fill:#fff}\n"
    ".tg-edge{fill:none;stroke:#8c959f;stroke-width:1.3}\n"
    ".tg-saved{stroke-dasharray:4 3;stroke-width:1;opacity:.8}\n"
    ".tg-head{fill:#8c959f}\n"
    "@media screen and (prefers-color-scheme:dark){\n"
    ".tg-graph{background:#1a1e25}\n"
    ".tg-paper{fill:#1a1e25}\n"
    ".tg-graph text{fill:#e8ebef}\n"
    ".tg-graph .tg-count,.tg-graph .tg-soft{fill:#a9b2bd}\n"
    ".tg-forward .tg-box{fill:#12344d;stroke:#56b4e9}\n"
    ".tg-backward .tg-box{fill:#453212;stroke:#e69f00}\n"
    ".tg-reduce .tg-box{fill:#10392e;stroke:#2fc79a}\n"
    ".tg-update .tg-box{fill:#43273a;stroke:#e08bbb}\n"
    ".tg-bar{stroke:#2fc79a}\n"
    ".tg-pill{fill:#262c34;stroke:#5d6772}\n"
    ".tg-edge{stroke:#79838f}\n"
    ".tg-head{fill:#79838f}}\n"
    ".tg-axis0{fill:#cc79a7;stroke:#a83f7f}\n"
    ".tg-axis1{fill:#009e73;stroke:#00805d}\n"
    ".tg-axis2{fill:#e69f00;stroke:#b37a00}\n"
    ".tg-node:hover .tg-box{stroke-width:3}\n"
    "</style>\n";

/* At most `most` characters, the last an ellipsis if there were more. */
static void add_text(struct strbuf *out, const char *text, int most)
{
    size_t left = strlen(text);

    for (int count = 0; left > 0; count++) {
        const size_t valid = utf8_span(text, left), span = valid ? valid : 1;
        char one[5] = { 0 };

        if (count == most - 1 && left > span) {
            strbuf_add(out, "\xE2\x80\xA6");
            return;
        }
        memcpy(one, text, span);
        strbuf_add_xml(out, one);
        text += span;
        left -= span;
    }
}

/* At most the last `most` characters, an ellipsis before them if there were more: the box beside a pill
 * has the begin of its name, "weight" or "bias" is at the end. */
static void add_text_end(struct strbuf *out, const char *text, int most)
{
    size_t left = strlen(text);
    int count = 0;

    for (size_t i = 0; i < left; count++)
        i += utf8_span(text + i, left - i) ? utf8_span(text + i, left - i) : 1;
    if (count > most) {
        strbuf_add(out, "\xE2\x80\xA6");
        for (; count >= most; count--) {
            const size_t span = utf8_span(text, left);
            text += span ? span : 1;
            left -= span ? span : 1;
        }
    }
    add_text(out, text, most);
}

/* "64x784" with the sign that people write. */
static void add_shape(struct strbuf *out, const struct shape *shape)
{
    char text[SHAPE_TEXT];

    for (const char *c = shape_print(shape, text); *c; c++) {
        if (*c == 'x')
            strbuf_add(out, "\xC3\x97");
        else
            strbuf_add_bytes(out, c, 1);
    }
}

static void add_value_line(struct strbuf *out, const struct value *value)
{
    if (value->slice.count > 1)
        strbuf_printf(out, "slice %d of %d of ", value->slice.index, value->slice.count);
    strbuf_add_xml(out, value->name);
    strbuf_printf(out, "  %s ", dtype_name(value->dtype));
    add_shape(out, &value->shape);
    if (value->layout != LAYOUT_PLAIN)
        strbuf_printf(out, " %s", layout_name(value->layout));
    if (value->flat) {
        strbuf_add(out, " in ");
        strbuf_add_xml(out, value->flat->name);
    }
}

/* Everything there is to say of a node, for the pointer that rests on it. */
static void add_node_title(struct strbuf *out, const struct node *node)
{
    struct strbuf attrs;

    strbuf_add(out, "<title>");
    strbuf_printf(out, "%s: ", node->op->name);
    strbuf_add_xml(out, node->op->summary);
    strbuf_printf(out, "\n%s ", phase_name(node->phase));
    strbuf_add_xml(out, node->name);
    strbuf_init(&attrs, 4096);
    graph_print_attrs(node, &attrs);
    strbuf_add(out, attrs.length ? "\n" : "");
    strbuf_add_xml(out, attrs.length ? attrs.text + 1 : "");
    strbuf_release(&attrs);
    for (int i = 0; i < node->n_in; i++) {
        strbuf_add(out, "\nin   ");
        add_value_line(out, node->in[i]);
    }
    for (int i = 0; i < node->n_out; i++) {
        strbuf_add(out, "\nout  ");
        add_value_line(out, node->out[i]);
    }
    strbuf_add(out, "</title>");
}

/* Numbers of an SVG need no more than a tenth of a pixel. */
static void add_number(struct strbuf *out, double number)
{
    char text[32];
    int length = snprintf(text, sizeof text, "%.1f", number);

    if (length > 2 && strcmp(text + length - 2, ".0") == 0)
        text[length - 2] = '\0';
    strbuf_add(out, strcmp(text, "-0") == 0 ? "0" : text);
}

static void add_attribute(struct strbuf *out, const char *name, double number)
{
    strbuf_printf(out, " %s=\"", name);
    add_number(out, number);
    strbuf_add(out, "\"");
}

static void add_rect(struct strbuf *out, const char *class, double x, double y, double width,
                     double height, double radius)
{
    strbuf_printf(out, "<rect class=\"%s\"", class);
    add_attribute(out, "x", x);
    add_attribute(out, "y", y);
    add_attribute(out, "width", width);
    add_attribute(out, "height", height);
    add_attribute(out, "rx", radius);
    strbuf_add(out, "/>");
}

static void begin_text(struct strbuf *out, const char *class, double x, double y, bool middle)
{
    strbuf_printf(out, "<text class=\"%s\"", class);
    add_attribute(out, "x", x);
    add_attribute(out, "y", y);
    strbuf_add(out, middle ? " text-anchor=\"middle\">" : ">");
}

/* The parts ------------------------------------------------------------------------------ */

static bool is_collective(const struct op *op)
{
    return op == &op_shard_sum || op == &op_factor_sum || op == &op_row_sum ||
           op == &op_all_reduce || op == &op_reduce_scatter || op == &op_all_gather ||
           op == &op_push || op == &op_pull || op == &op_worker_mean || op == &op_center_pull ||
           op == &op_send || op == &op_receive || op->talks;
}

/* Stages in turn, all dark enough for white numbers. */
static const char *stage_colour(int stage)
{
    static const char *const colours[] = { "#0072b2", "#b34700", "#00805d", "#8a5a83",
                                           "#7a6a00", "#3d5a80", "#a23b4a", "#4d4d4d" };

    return colours[stage % (int)(sizeof colours / sizeof *colours)];
}

static void add_stripe(struct strbuf *out, int stage, double x, double y, double height)
{
    strbuf_printf(out, "<g class=\"tg-stage\"><title>stage %d</title><rect fill=\"%s\"", stage,
                  stage_colour(stage));
    add_attribute(out, "x", x);
    add_attribute(out, "y", y);
    add_attribute(out, "width", 16);
    add_attribute(out, "height", height);
    strbuf_add(out, " rx=\"4\"/>");
    begin_text(out, "tg-number", x + 8, y + height / 2 + 4, true);
    strbuf_printf(out, "%d</text></g>", stage);
}

/* Collectives are of the colour of reduction, whenever they run. */
static const char *class_of(const struct node *node)
{
    return is_collective(node->op) ? phase_name(PHASE_REDUCE) : phase_name(node->phase);
}

static void add_bars(struct strbuf *out, double x, double y, double width, double height)
{
    strbuf_add(out, "<path class=\"tg-bar\" d=\"M");
    add_number(out, x + 6);
    strbuf_add(out, " ");
    add_number(out, y);
    strbuf_add(out, "v");
    add_number(out, height);
    strbuf_add(out, "M");
    add_number(out, x + width - 6);
    strbuf_add(out, " ");
    add_number(out, y);
    strbuf_add(out, "v");
    add_number(out, height);
    strbuf_add(out, "\"/>");
}

static void add_box(struct strbuf *out, const struct picture_box *box)
{
    const struct node *node = box->node;
    const double x = box->x + box->width / 2;

    strbuf_printf(out, "<g class=\"tg-node tg-%s\" id=\"tg-n%d\">", class_of(node), node->id);
    add_node_title(out, node);
    add_rect(out, "tg-box", box->x, box->y, box->width, box->height, 6);
    if (is_collective(node->op))
        add_bars(out, box->x, box->y, box->width, box->height);
    if (node->stage >= 0)
        add_stripe(out, node->stage, box->x - 8, box->y + 4, box->height - 8);
    begin_text(out, "tg-op", x, box->y + 18, true);
    add_text(out, node->op->name, PICTURE_TEXT_MAX);
    strbuf_add(out, "</text>");
    begin_text(out, "tg-name", x, box->y + 33, true);
    add_text(out, node->name, PICTURE_TEXT_MAX);
    strbuf_add(out, "</text>");
    begin_text(out, "tg-soft", x, box->y + 47, true);
    add_shape(out, &node->out[0]->shape);
    strbuf_add(out, "</text></g>\n");
}

/* Of a pill: whole, or cut along an axis; those after the first two have one colour. */
enum { SLICE_AXES = 3 };

static int slice_axis(const struct value *value)
{
    return value->slice.axis < SLICE_AXES ? value->slice.axis : SLICE_AXES - 1;
}

static const char *pill_class(const struct value *value)
{
    static const char *const classes[SLICE_AXES] = { "tg-pill tg-slice tg-axis0",
                                                     "tg-pill tg-slice tg-axis1",
                                                     "tg-pill tg-slice tg-axis2" };

    return value->slice.count > 1 ? classes[slice_axis(value)] : "tg-pill";
}

static void add_pill(struct strbuf *out, const struct picture_pill *pill)
{
    strbuf_add(out, "<g><title>");
    add_value_line(out, pill->value);
    strbuf_add(out, "</title>");
    add_rect(out, pill_class(pill->value), pill->x, pill->y, pill->width, PICTURE_PILL_HEIGHT,
             PICTURE_PILL_HEIGHT / 2.0);
    begin_text(out, "tg-small", pill->x + pill->width / 2, pill->y + 11.5, true);
    add_text_end(out, pill->value->name, PICTURE_PILL_TEXT_MAX);
    strbuf_add(out, "</text></g>\n");
}

static void add_point(struct strbuf *out, struct picture_point point)
{
    add_number(out, point.x);
    strbuf_add(out, " ");
    add_number(out, point.y);
}

static void add_edge(struct strbuf *out, const struct picture_edge *edge)
{
    strbuf_printf(out, "<path class=\"tg-edge%s\" marker-end=\"url(#tg-arrow)\" d=\"M",
                  edge->is_saved ? " tg-saved" : "");
    add_point(out, edge->points[0]);
    for (int i = 1; i < edge->n_points; i++) {
        strbuf_add(out, i % 3 == 1 ? "C" : " ");
        add_point(out, edge->points[i]);
    }
    strbuf_add(out, "\"><title>");
    add_value_line(out, edge->value);
    strbuf_add(out, "</title></path>\n");
}

/* A pill stands beside its box; in the last lane below it, where no line is needed. */
static void add_pill_line(struct strbuf *out, const struct picture_box *box,
                          const struct picture_pill *pill)
{
    if (pill->x >= box->x)
        return;
    strbuf_add(out, "<path class=\"tg-edge\" d=\"M");
    add_number(out, pill->x + pill->width);
    strbuf_add(out, " ");
    add_number(out, pill->y + PICTURE_PILL_HEIGHT / 2.0);
    strbuf_add(out, "H");
    add_number(out, box->x);
    strbuf_add(out, "\"/>\n");
}

static bool has_class(const struct picture *picture, const char *class)
{
    for (int b = 0; b < picture->n_boxes; b++) {
        if (strcmp(class_of(picture->boxes[b].node), class) == 0)
            return true;
    }
    return false;
}

static bool has_saved(const struct picture *picture)
{
    for (int e = 0; e < picture->n_edges; e++) {
        if (picture->edges[e].is_saved)
            return true;
    }
    return false;
}

static int count_stages(const struct picture *picture)
{
    int count = 0;

    for (int b = 0; b < picture->n_boxes; b++) {
        const int stage = picture->boxes[b].node->stage;
        count = stage + 1 > count ? stage + 1 : count;
    }
    return count;
}

/* A value that is cut along that axis; NULL: there is none. */
static const struct value *find_slice(const struct picture *picture, int axis)
{
    for (int b = 0; b < picture->n_boxes; b++) {
        for (int p = 0; p < picture->boxes[b].n_pills; p++) {
            const struct value *value = picture->boxes[b].pills[p].value;
            if (value->slice.count > 1 && slice_axis(value) == axis)
                return value;
        }
    }
    return NULL;
}

static double add_slice_legend(struct strbuf *out, const struct picture *picture, double x,
                               double y)
{
    static const char *const texts[SLICE_AXES] = { "ranks share its rows",
                                                   "ranks share its columns",
                                                   "ranks share a further axis" };

    for (int axis = 0; axis < SLICE_AXES; axis++) {
        const struct value *value = find_slice(picture, axis);
        if (!value)
            continue;
        add_rect(out, pill_class(value), x, y - 11, 26, 14, 7);
        begin_text(out, "tg-soft", x + 33, y, false);
        strbuf_printf(out, "%s</text>\n", texts[axis]);
        x += 33 + 6.2 * (double)strlen(texts[axis]) + PICTURE_MARGIN;
    }
    return x;
}

/* What grids of ranks have beside that; returns where it ends. */
static double add_grid_legend(struct strbuf *out, const struct picture *picture, double x,
                              double y)
{
    const int stages = count_stages(picture);

    for (int s = 0; s < stages && s < 8; s++) {
        add_stripe(out, s, x, y - 13, 18);
        x += 22;
    }
    if (stages > 0) {
        begin_text(out, "tg-soft", x + 4, y, false);
        strbuf_add(out, "stages of a pipeline</text>\n");
        x += 4 + 6.2 * 20 + 20;
    }
    return add_slice_legend(out, picture, x, y);
}

/* One sample of each kind of thing that there is, from left to right; returns where that ends. */
static double add_legend(struct strbuf *out, const struct picture *picture, double y)
{
    static const struct {
        const char *class, *text;
    } kinds[] = { { "forward", "forward" },
                  { "backward", "backward" },
                  { "reduce", "sums, exchange between ranks" },
                  { "update", "update" } };
    double x = PICTURE_MARGIN;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!has_class(picture, kinds[i].class))
            continue;
        strbuf_printf(out, "<g class=\"tg-node tg-%s\">", kinds[i].class);
        add_rect(out, "tg-box", x, y - 11, 26, 15, 4);
        if (i == 2)
            add_bars(out, x, y - 11, 26, 15);
        begin_text(out, "tg-soft", x + 33, y, false);
        strbuf_printf(out, "%s</text></g>\n", kinds[i].text);
        x += 33 + 6.2 * (double)strlen(kinds[i].text) + 20;
    }
    add_rect(out, "tg-pill", x, y - 11, 26, 14, 7);
    begin_text(out, "tg-soft", x + 33, y, false);
    strbuf_add(out, "given: samples, parameters, state</text>\n");
    x = add_grid_legend(out, picture, x + 33 + 6.2 * 33 + PICTURE_MARGIN, y);
    if (!has_saved(picture))
        return x;
    strbuf_add(out, "<path class=\"tg-edge tg-saved\" d=\"M");
    add_number(out, x);
    strbuf_add(out, " ");
    add_number(out, y - 4);
    strbuf_add(out, "h26\"/>");
    begin_text(out, "tg-soft", x + 33, y, false);
    strbuf_add(out, "kept for backward</text>\n");
    return x + 33 + 6.2 * 17 + PICTURE_MARGIN;
}

void graph_print_svg(const struct graph *graph, struct strbuf *out)
{
    struct strbuf legend;
    struct picture *picture;
    const enum status status = picture_create(graph, &picture);

    if (status != STATUS_OK) {
        out->status = out->status == STATUS_OK ? status : out->status;
        return;
    }
    strbuf_init(&legend, 1 << 16);
    const double legend_width = add_legend(&legend, picture, 66);
    const double width = picture->width > legend_width ? picture->width : legend_width;

    strbuf_add(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tg-graph\" role=\"img\"");
    add_attribute(out, "width", width);
    add_attribute(out, "height", picture->height);
    strbuf_add(out, " viewBox=\"0 0 ");
    add_point(out, (struct picture_point){ width, picture->height });
    strbuf_add(out, "\">\n<title>graph ");
    strbuf_add_xml(out, graph_name(graph));
    strbuf_add(out, "</title>\n");
    strbuf_add(out, style);
    strbuf_add(out, "<defs><marker id=\"tg-arrow\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" "
                    "markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" "
                    "orient=\"auto\"><path class=\"tg-head\" d=\"M0 .8L8 4L0 7.2z\"/></marker>"
                    "</defs>\n");
    add_rect(out, "tg-paper", 0, 0, width, picture->height, 0);
    begin_text(out, "tg-heading", PICTURE_MARGIN, 34, false);
    add_text(out, graph_name(graph), 64);
    strbuf_printf(
        out, "<tspan class=\"tg-count\" dx=\"14\">%d nodes, %lld parameters</tspan></text>\n",
        picture->n_boxes, (long long)graph_param_count(graph));
    strbuf_add(out, legend.text);
    strbuf_release(&legend);

    for (int e = 0; e < picture->n_edges; e++)
        add_edge(out, &picture->edges[e]);
    for (int b = 0; b < picture->n_boxes; b++) {
        const struct picture_box *box = &picture->boxes[b];
        for (int p = 0; p < box->n_pills; p++) {
            add_pill_line(out, box, &box->pills[p]);
            add_pill(out, &box->pills[p]);
        }
        add_box(out, box);
    }
    strbuf_add(out, "</svg>\n");
    picture_destroy(picture);
}
