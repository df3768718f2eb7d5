/* SPDX-License-Identifier: MIT */
/* matrix.c - a square of cells: what was what, and what it was taken for.
 *
 * Right answers are most of a row, so that wrong ones would be pale beside them: the diagonal is blue
 * and shows its share of the row, the rest is vermilion and shows its share of the largest error. A
 * cell's colour is laid over the ground with that opacity, so it suits light and dark pages. Empty
 * cells are not drawn: a hundred classes have ten thousand cells, but few that hold something.
 */
#include "report/frame.h"

#include <math.h>
#include <stdio.h>

enum {
    RIGHT = 0, /* colours of the palette */
    WRONG = 1,
    NUMBERS_UP_TO = 20, /* classes: with more, cells hold no numbers */
};

/* Where the square lies, and what its colours are relative to. */
struct square {
    const struct plot_matrix *matrix;
    double left, top, side; /* of a cell */
    double text;            /* size of names */
    double largest_error;   /* share of its row */
};

static double count_at(const struct plot_matrix *matrix, size_t row, size_t column)
{
    const double count = matrix->counts[row * matrix->n + column];

    return isfinite(count) && count > 0 ? fmin(count, 1e300) : 0;
}

static double row_sum(const struct plot_matrix *matrix, size_t row)
{
    double sum = 0;

    for (size_t c = 0; c < matrix->n; c++)
        sum += count_at(matrix, row, c);
    return sum;
}

static double largest_error(const struct plot_matrix *matrix)
{
    double largest = 0;

    for (size_t r = 0; r < matrix->n; r++) {
        const double sum = row_sum(matrix, r);
        for (size_t c = 0; c < matrix->n && sum > 0; c++) {
            if (c != r)
                largest = fmax(largest, count_at(matrix, r, c) / sum);
        }
    }
    return largest;
}

static void write_number(struct strbuf *out, const struct square *square, double x, double y,
                         double count, bool is_strong)
{
    char text[NUMBER_TEXT];
    const double size = fmin(12, square->side * 0.34);

    number_print(text, count, count < 10000 ? NUMBER_PLAIN : NUMBER_SI, 0);
    strbuf_printf(out,
                  "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\" "
                  "font-size=\"%.1f\" fill=\"%s\" pointer-events=\"none\">%s</text>",
                  is_strong ? "over" : "ink", x + square->side / 2,
                  y + square->side / 2 + size * 0.35, size, is_strong ? "#fff" : "#1c2128",
                  text);
}

static void write_cell(struct strbuf *out, const struct square *square, size_t row,
                       size_t column, double sum)
{
    const struct plot_matrix *matrix = square->matrix;
    const double count = count_at(matrix, row, column), share = count / sum;
    const bool is_right = row == column;
    /* The root makes rare errors visible, and still tells them from frequent ones. */
    const double strength = is_right ? share : sqrt(share / square->largest_error) * 0.85;
    const double x = square->left + square->side * (double)column,
                 y = square->top + square->side * (double)row;
    const double gap = square->side > 12 ? 1 : 0.3;
    char share_text[NUMBER_TEXT], count_text[NUMBER_TEXT];

    number_print(share_text, share, NUMBER_PERCENT, 0);
    number_whole(count_text, count);
    strbuf_add(out, "<g class=\"bar\"><title>");
    strbuf_add_xml(out, matrix->names[row]);
    strbuf_add(out, is_right ? " known as such" : " taken for ");
    strbuf_add_xml(out, is_right ? "" : matrix->names[column]);
    strbuf_printf(out,
                  ": %s (%s)</title><rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" "
                  "height=\"%.2f\"%s fill-opacity=\"%.2f\"",
                  count_text, share_text, x + gap / 2, y + gap / 2, square->side - gap,
                  square->side - gap, square->side > 20 ? " rx=\"3\"" : "",
                  fmax(strength, 0.06));
    frame_fill(out, is_right ? RIGHT : WRONG);
    strbuf_add(out, "/>");
    if (matrix->n <= NUMBERS_UP_TO)
        write_number(out, square, x, y, count, strength > 0.6);
    strbuf_add(out, "</g>\n");
}

static void write_names(struct strbuf *out, const struct square *square, double bottom)
{
    for (size_t i = 0; i < square->matrix->n; i++) {
        const double middle = square->side * ((double)i + 0.5);
        strbuf_printf(out,
                      "<text class=\"soft\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" "
                      "font-size=\"%.1f\" fill=\"#5b6470\">",
                      square->left - 7, square->top + middle + square->text * 0.35,
                      square->text);
        strbuf_add_xml(out, square->matrix->names[i]);
        strbuf_add(out, "</text>\n");
        frame_text_upright(out, square->left + middle + square->text * 0.35, bottom + 7,
                           square->text, square->matrix->names[i]);
    }
}

/* The ground that cells lie on, so that empty ones are seen. */
static void write_ground(struct strbuf *out, const struct square *square)
{
    const double side = square->side * (double)square->matrix->n;

    strbuf_printf(out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"%d\"",
                  square->left, square->top, side, side, square->side > 20 ? 4 : 0);
    frame_fill(out, PLOT_GREY);
    strbuf_add(out, " fill-opacity=\"0.07\"/>\n");
}

static double widest_name(const struct plot_matrix *matrix, double size)
{
    double widest = 0;

    for (size_t i = 0; i < matrix->n; i++)
        widest = fmax(widest, frame_text_width(matrix->names[i], size));
    return widest;
}

void plot_matrix(struct strbuf *out, const struct plot *plot, const struct plot_matrix *matrix)
{
    const struct frame_entry entries[] = {
        { .name = "right, share of the row", .colour = RIGHT, .key = FRAME_KEY_BOX },
        { .name = "wrong, relative to the most frequent error",
          .colour = WRONG,
          .key = FRAME_KEY_BOX },
    };
    const double n = (double)(matrix->n > 0 ? matrix->n : 1);
    struct square square = { .matrix = matrix, .largest_error = largest_error(matrix) };
    struct frame frame;

    frame_init(&frame, plot, entries, 2);
    square.text = fmin(12, fmax(4, (frame.width * 0.86) / n - 1));
    const double names = fmin(widest_name(matrix, square.text), frame.width / 3);
    square.left = frame.left + names + 8 + (plot->y.label ? 18 : 0);
    square.top = frame.top;
    square.side = fmax((frame.right - square.left) / n, 1);
    frame.left = square.left;
    frame.bottom = square.top + square.side * n;
    frame.height = frame.bottom + names + 16 + (plot->x.label ? 20 : 0);

    frame_begin(out, &frame, entries, 2);
    write_ground(out, &square);
    for (size_t r = 0; r < matrix->n; r++) {
        const double sum = row_sum(matrix, r);
        for (size_t c = 0; c < matrix->n; c++) {
            if (count_at(matrix, r, c) > 0)
                write_cell(out, &square, r, c, sum);
        }
    }
    write_names(out, &square, frame.bottom);
    frame_y_label(out, &frame);
    if (plot->x.label)
        frame_text(out, (frame.left + frame.right) / 2, frame.height - 6, FRAME_MIDDLE,
                   plot->x.label);
    if (matrix->n == 0)
        frame_nothing(out, &frame);
    frame_end(out);
}
