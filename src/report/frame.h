/* SPDX-License-Identifier: MIT */
/* frame.h - what all plots share: title, legend, axes, colours. Private to report/. */
#ifndef REPORT_FRAME_H
#define REPORT_FRAME_H

#include "report/plot.h"
#include "report/scale.h"

enum frame_key {
    FRAME_KEY_LINE,   /* with a mark */
    FRAME_KEY_PLAIN,  /* a line alone */
    FRAME_KEY_POINTS, /* a mark alone */
    FRAME_KEY_BOX,
};

struct frame_entry {  /* of the legend */
    const char *name; /* NULL: left out */
    int colour;
    enum frame_key key;
    bool dashed;
};

struct frame {
    const struct plot *plot;
    double width, height;            /* of the picture */
    double left, right, top, bottom; /* of the data; top < bottom, as SVG counts */
    struct scale x, y;
};

/* The picture's size, and where the data would begin below title and legend. */
void frame_init(struct frame *frame, const struct plot *plot, const struct frame_entry *entries,
                size_t n_entries);
/* Opens the <svg> element; writes title and legend. */
void frame_begin(struct strbuf *out, const struct frame *frame,
                 const struct frame_entry *entries, size_t n_entries);
void frame_end(struct strbuf *out);

/* How wide the widest tick of a scale is when written. */
double frame_ticks_width(const struct scale *scale, const struct plot_axis *axis);
/* Ticks, grid lines across the data, label. */
void frame_x_axis(struct strbuf *out, const struct frame *frame, bool grid);
void frame_y_axis(struct strbuf *out, const struct frame *frame);
void frame_x_label(struct strbuf *out, const struct frame *frame);
void frame_y_label(struct strbuf *out, const struct frame *frame);
/* The line that bars stand on and lines rest on. */
void frame_base(struct strbuf *out, const struct frame *frame, bool vertical);
/* Says in the middle of the data that there is nothing to show. */
void frame_nothing(struct strbuf *out, const struct frame *frame);

/* Places in the picture. NaN has none. */
double frame_x(const struct frame *frame, double value);
double frame_y(const struct frame *frame, double value);
/* Whether place y is among the data; see curve_narrow for what is not. */
bool frame_holds_y(const struct frame *frame, double y);

/* Attributes for a palette colour, as ` class=".." fill=".."`. */
void frame_fill(struct strbuf *out, int colour);
void frame_stroke(struct strbuf *out, int colour);
/* The mark that goes with a colour, `size` across. */
void frame_mark(struct strbuf *out, int colour, double x, double y, double size);

enum frame_anchor { FRAME_START, FRAME_MIDDLE, FRAME_END };
/* Grey text for ticks and remarks. */
void frame_text(struct strbuf *out, double x, double y, enum frame_anchor anchor,
                const char *text);
/* The same; a text that is wider is cut, and whole under the pointer. */
void frame_text_within(struct strbuf *out, double x, double y, enum frame_anchor anchor,
                       const char *text, double width);
/* The same, turned to be read from below: it ends at (x, y). */
void frame_text_upright(struct strbuf *out, double x, double y, double size, const char *text);
/* About how wide a text is, in the sans-serif fonts that browsers have. */
/* Some fonts are wider by this: what must not be cut has so much more room. */
#define FRAME_FONTS 1.16
double frame_text_width(const char *text, double size);

static inline double frame_unit(const struct plot_axis *axis)
{
    return axis->unit > 0 ? axis->unit : 1;
}

#endif /* REPORT_FRAME_H */
