/* SPDX-License-Identifier: MIT */
/* frame.c - title, legend, axes and colours of a plot.
 *
 * Colours are attributes, so that a plot cut out of its page looks the same; the
 * style sheet overrides them where a page is dark. The legend stands between
 * title and data, wrapped into as many rows as it takes: it never covers data.
 */
#include "report/frame.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    TITLE_HEIGHT = 30,
    TITLE_SIZE = 15,
    LEGEND_ROW = 20,
    LEGEND_KEY = 26, /* the line or box before a name */
    TEXT_SIZE = 12,
};

struct colour {
    const char *light, *dark;
};

/* Okabe and Ito (2008), "Color universal design"; on dark ground the same hues, lighter. */
static const struct colour palette[PLOT_COLOURS] = {
    { "#0072b2", "#5ab4ec" }, { "#d55e00", "#ff8f4d" }, { "#009e73", "#3fcf9f" },
    { "#e69f00", "#f5bf45" }, { "#b0609a", "#dd97cb" }, { "#56b4e9", "#9fd6f7" },
    { "#8c6d46", "#c9a97f" }, { "#8d939c", "#8b919b" },
};
static const struct colour text_colour = { "#1c2128", "#e6e9ee" };
static const struct colour muted_colour = { "#5b6470", "#a3abb7" };
static const struct colour grid_colour = { "#e4e7eb", "#30363f" };
static const struct colour axis_colour = { "#9aa2ad", "#6b7480" };

static int colour_index(int colour)
{
    return (colour % PLOT_COLOURS + PLOT_COLOURS) % PLOT_COLOURS;
}

void frame_fill(struct strbuf *out, int colour)
{
    const int i = colour_index(colour);

    strbuf_printf(out, " class=\"f%d\" fill=\"%s\"", i, palette[i].light);
}

void frame_stroke(struct strbuf *out, int colour)
{
    const int i = colour_index(colour);

    strbuf_printf(out, " class=\"s%d\" stroke=\"%s\"", i, palette[i].light);
}

void plot_style(struct strbuf *out)
{
    strbuf_add(out, ".plot .tip{opacity:0}.plot .hit:hover .tip{opacity:1}"
                    ".plot .bar:hover{filter:brightness(1.12)}\n"
                    "@media screen and (prefers-color-scheme:dark){");
    for (int i = 0; i < PLOT_COLOURS; i++)
        strbuf_printf(out, ".plot .f%d{fill:%s}.plot .s%d{stroke:%s}", i, palette[i].dark, i,
                      palette[i].dark);
    strbuf_printf(out,
                  ".plot .ink{fill:%s}.plot .soft{fill:%s}.plot .grid{stroke:%s}"
                  ".plot .axis{stroke:%s}.plot .over{fill:#12151a}}\n",
                  text_colour.dark, muted_colour.dark, grid_colour.dark, axis_colour.dark);
}

/* Widths of Helvetica's characters in classes, as parts of the size. */
static double character_width(unsigned char c)
{
    if (strchr("ijl.,:;|!'", c))
        return 0.26;
    if (strchr("ftrI()[]/ -", c))
        return 0.33;
    if (strchr("mwMW%@", c))
        return 0.86;
    if (c >= 'A' && c <= 'Z')
        return 0.69;
    return 0.56;
}

/* How many bytes of a text fit into a width; *out_width: what these take. */
static size_t fitting_bytes(const char *text, double size, double most, double *out_width)
{
    const size_t length = strlen(text);
    double width = 0;
    size_t at = 0;

    while (at < length) {
        const size_t span = utf8_span(text + at, length - at);
        const double next = (span == 1 ? character_width((unsigned char)text[at]) : 0.6) * size;
        if (width + next > most)
            break;
        width += next;
        at += span > 0 ? span : 1;
    }
    *out_width = width;
    return at;
}

double frame_text_width(const char *text, double size)
{
    double width;

    fitting_bytes(text, size, INFINITY, &width);
    return width;
}

/* The text, or its beginning and an ellipsis, with the whole as a title. */
static void add_within(struct strbuf *out, const char *text, double most)
{
    char part[512];
    double width;

    if (FRAME_FONTS * frame_text_width(text, TEXT_SIZE) <= most + 2.5) {
        strbuf_add_xml(out, text);
        return;
    }
    const size_t fits =
        fitting_bytes(text, TEXT_SIZE, fmax(most - TEXT_SIZE, 0) / FRAME_FONTS, &width);
    strbuf_add(out, "<title>");
    strbuf_add_xml(out, text);
    strbuf_add(out, "</title>");
    (void)snprintf(part, sizeof part, "%.*s", (int)(fits < 500 ? fits : 0), text);
    strbuf_add_xml(out, part);
    strbuf_add(out, "\u2026");
}

static double key_width(enum frame_key key)
{
    return key == FRAME_KEY_BOX ? 12 + 6 : LEGEND_KEY + 3;
}

/* most: the picture's width, which no name leaves. */
static double entry_width(const struct frame_entry *entry, double most)
{
    return fmin(key_width(entry->key) + frame_text_width(entry->name, TEXT_SIZE) + 16, most);
}

static int count_legend_rows(const struct frame_entry *entries, size_t n_entries, double width)
{
    double x = 0;
    int rows = 0;

    for (size_t i = 0; i < n_entries; i++) {
        if (!entries[i].name)
            continue;
        const double wide = entry_width(&entries[i], width);
        if (rows == 0 || x + wide > width) {
            rows++;
            x = 0;
        }
        x += wide;
    }
    return rows;
}

void frame_init(struct frame *frame, const struct plot *plot, const struct frame_entry *entries,
                size_t n_entries)
{
    const double width = plot->width > 0 ? plot->width : 540;
    const double height = plot->height > 0 ? plot->height : 330;
    const int rows = count_legend_rows(entries, n_entries, width);

    *frame = (struct frame){
        .plot = plot,
        .width = width,
        .height = height,
        .left = 8,
        .right = width - 16,
        .top = (plot->title ? TITLE_HEIGHT : 4) + rows * LEGEND_ROW + 12,
        .bottom = height - 26 - (plot->x.label ? 18 : 0),
    };
}

static void write_key(struct strbuf *out, const struct frame_entry *entry, double x, double y)
{
    if (entry->key == FRAME_KEY_BOX) {
        strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" rx=\"2.5\"",
                      x, y - 6);
        frame_fill(out, entry->colour);
        strbuf_add(out, "/>");
        return;
    }
    if (entry->key != FRAME_KEY_POINTS) {
        strbuf_printf(out, "<path d=\"M%.1f %.1fh%d\" fill=\"none\" stroke-width=\"2\"%s", x, y,
                      LEGEND_KEY - 4, entry->dashed ? " stroke-dasharray=\"6 4\"" : "");
        frame_stroke(out, entry->colour);
        strbuf_add(out, "/>");
    }
    if (entry->key != FRAME_KEY_PLAIN)
        frame_mark(out, entry->colour, x + (LEGEND_KEY - 4) / 2.0, y, 7);
}

static void write_legend(struct strbuf *out, const struct frame *frame,
                         const struct frame_entry *entries, size_t n_entries)
{
    double x = 0, y = (frame->plot->title ? TITLE_HEIGHT : 4) + LEGEND_ROW / 2.0;

    for (size_t i = 0; i < n_entries; i++) {
        if (!entries[i].name)
            continue;
        const double wide = entry_width(&entries[i], frame->width);
        if (x > 0 && x + wide > frame->width) {
            x = 0;
            y += LEGEND_ROW;
        }
        write_key(out, &entries[i], x, y);
        strbuf_printf(out, "<text class=\"ink\" x=\"%.1f\" y=\"%.1f\" fill=\"%s\">",
                      x + key_width(entries[i].key), y + 4, text_colour.light);
        add_within(out, entries[i].name, frame->width - key_width(entries[i].key));
        strbuf_add(out, "</text>\n");
        x += wide;
    }
}

void frame_begin(struct strbuf *out, const struct frame *frame,
                 const struct frame_entry *entries, size_t n_entries)
{
    const char *title = frame->plot->title;

    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" "
                  "viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" "
                  "aria-label=\"",
                  frame->width, frame->height, frame->width, frame->height);
    strbuf_add_xml(out, title ? title : "plot");
    strbuf_printf(out,
                  "\" font-family=\"system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica "
                  "Neue',Arial,sans-serif\" font-size=\"%d\">\n",
                  TEXT_SIZE);
    if (title) {
        strbuf_printf(out,
                      "<text class=\"ink\" x=\"0\" y=\"17\" font-size=\"%d\" "
                      "font-weight=\"600\" fill=\"%s\">",
                      TITLE_SIZE, text_colour.light);
        strbuf_add_xml(out, title);
        strbuf_add(out, "</text>\n");
    }
    write_legend(out, frame, entries, n_entries);
}

void frame_end(struct strbuf *out)
{
    strbuf_add(out, "</svg>\n");
}

double frame_ticks_width(const struct scale *scale, const struct plot_axis *axis)
{
    double widest = 0;

    for (int i = 0; i < scale->n_ticks; i++) {
        char text[NUMBER_TEXT];
        number_print(text, scale->ticks[i], axis->format, scale->step);
        widest = fmax(widest, frame_text_width(text, TEXT_SIZE));
    }
    return widest;
}

/* What is far outside is as good as at ten times the frame's size, and short to write. */
static double limited_place(const struct scale *scale, double value)
{
    const double place = scale_place(scale, value);

    return isnan(place) ? NAN : fmin(fmax(place, -10), 10);
}

double frame_x(const struct frame *frame, double value)
{
    const double place = limited_place(&frame->x, value / frame_unit(&frame->plot->x));

    return frame->left + place * (frame->right - frame->left);
}

double frame_y(const struct frame *frame, double value)
{
    const double place = limited_place(&frame->y, value / frame_unit(&frame->plot->y));

    return frame->bottom - place * (frame->bottom - frame->top);
}

bool frame_holds_y(const struct frame *frame, double y)
{
    return y >= frame->top - 1 && y <= frame->bottom + 1;
}

void frame_text(struct strbuf *out, double x, double y, enum frame_anchor anchor,
                const char *text)
{
    frame_text_within(out, x, y, anchor, text, INFINITY);
}

void frame_text_within(struct strbuf *out, double x, double y, enum frame_anchor anchor,
                       const char *text, double width)
{
    static const char *const anchors[] = { "", " text-anchor=\"middle\"",
                                           " text-anchor=\"end\"" };

    strbuf_printf(out, "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\"%s fill=\"%s\">", x, y,
                  anchors[anchor], muted_colour.light);
    add_within(out, text, width);
    strbuf_add(out, "</text>\n");
}

void frame_text_upright(struct strbuf *out, double x, double y, double size, const char *text)
{
    strbuf_printf(out,
                  "<text class=\"soft\" transform=\"translate(%.1f %.1f) rotate(-90)\" "
                  "text-anchor=\"end\" font-size=\"%.1f\" fill=\"%s\">",
                  x, y, size, muted_colour.light);
    strbuf_add_xml(out, text);
    strbuf_add(out, "</text>\n");
}

static void write_grid_line(struct strbuf *out, double x, double y, char direction,
                            double length)
{
    strbuf_printf(out, "<path class=\"grid\" d=\"M%.1f %.1f%c%.1f\" stroke=\"%s\"/>\n", x, y,
                  direction, length, grid_colour.light);
}

void frame_x_axis(struct strbuf *out, const struct frame *frame, bool grid)
{
    double free_from = -1e9; /* labels that would touch the one before are left out */

    for (int i = 0; i < frame->x.n_ticks; i++) {
        const double place = scale_place(&frame->x, frame->x.ticks[i]);
        const double x = frame->left + place * (frame->right - frame->left);
        char text[NUMBER_TEXT];
        number_print(text, frame->x.ticks[i], frame->plot->x.format, frame->x.step);
        if (grid)
            write_grid_line(out, x, frame->top, 'V', frame->bottom);
        const double half = frame_text_width(text, TEXT_SIZE) / 2;
        if (x - half < free_from)
            continue;
        frame_text(out, x, frame->bottom + 18, FRAME_MIDDLE, text);
        free_from = x + half + 8;
    }
    frame_x_label(out, frame);
}

void frame_y_axis(struct strbuf *out, const struct frame *frame)
{
    for (int i = 0; i < frame->y.n_ticks; i++) {
        const double place = scale_place(&frame->y, frame->y.ticks[i]);
        const double y = frame->bottom - place * (frame->bottom - frame->top);
        char text[NUMBER_TEXT];
        number_print(text, frame->y.ticks[i], frame->plot->y.format, frame->y.step);
        write_grid_line(out, frame->left, y, 'H', frame->right);
        frame_text(out, frame->left - 8, y + 4, FRAME_END, text);
    }
    frame_y_label(out, frame);
}

void frame_x_label(struct strbuf *out, const struct frame *frame)
{
    if (frame->plot->x.label)
        frame_text(out, (frame->left + frame->right) / 2, frame->bottom + 38, FRAME_MIDDLE,
                   frame->plot->x.label);
}

void frame_y_label(struct strbuf *out, const struct frame *frame)
{
    if (!frame->plot->y.label)
        return;
    const double y = (frame->top + frame->bottom) / 2;
    strbuf_printf(out,
                  "<text class=\"soft\" transform=\"translate(11 %.1f) rotate(-90)\" "
                  "text-anchor=\"middle\" fill=\"%s\">",
                  y, muted_colour.light);
    strbuf_add_xml(out, frame->plot->y.label);
    strbuf_add(out, "</text>\n");
}

void frame_base(struct strbuf *out, const struct frame *frame, bool vertical)
{
    strbuf_printf(out, "<path class=\"axis\" d=\"M%.1f %.1f%c%.1f\" stroke=\"%s\"/>\n",
                  frame->left, frame->bottom, vertical ? 'V' : 'H',
                  vertical ? frame->top : frame->right, axis_colour.light);
}

void frame_nothing(struct strbuf *out, const struct frame *frame)
{
    frame_text(out, (frame->left + frame->right) / 2, (frame->top + frame->bottom) / 2 + 4,
               FRAME_MIDDLE, "nothing to show yet");
}

void frame_mark(struct strbuf *out, int colour, double x, double y, double size)
{
    const double r = size / 2;

    switch (colour_index(colour) % 4) {
    case 0:
        strbuf_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", x, y, r);
        break;
    case 1:
        strbuf_printf(out, "<path d=\"M%.1f %.1fh%.1fv%.1fh-%.1fz\"", x - r * 0.9, y - r * 0.9,
                      r * 1.8, r * 1.8, r * 1.8);
        break;
    case 2:
        strbuf_printf(out, "<path d=\"M%.1f %.1fl%.1f %.1fh-%.1fz\"", x, y - r * 1.15, r * 1.15,
                      r * 2, r * 2.3);
        break;
    default:
        strbuf_printf(out, "<path d=\"M%.1f %.1fl%.1f %.1fl-%.1f %.1fl-%.1f -%.1fz\"", x,
                      y - r * 1.25, r * 1.25, r * 1.25, r * 1.25, r * 1.25, r * 1.25, r * 1.25);
        break;
    }
    frame_fill(out, colour);
    strbuf_add(out, "/>");
}
