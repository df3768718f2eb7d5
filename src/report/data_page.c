/* SPDX-License-Identifier: MIT */
/* data_page.c - the page about a data set. */
#include "report/data_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "report/number.h"
#include "report/page.h"
#include "report/plot.h"

enum {
    WIDE_FROM = 21, /* classes: bars take the whole width */
    SIDE = 52,      /* of a sample on the screen */
    THUMB = 96,     /* larger samples are made smaller, so that the page stays small */
};

static const size_t page_maximum = (size_t)256 << 20;

/* How channels are called and drawn; the last three are those of a coloured sample. */
static const struct {
    const char *name;
    int colour;
} channels[] = { { "grey", PLOT_GREY }, { "red", 1 }, { "green", 2 }, { "blue", 0 } };

struct maker {
    struct strbuf *out;
    const struct data_page *page;
    enum status status; /* of allocations made on the way */
};

static int channel_row(const struct data_page *page, int channel)
{
    return page->channels == 1 ? 0 : 1 + channel;
}

static void add_fact(struct strbuf *out, const char *text)
{
    strbuf_add(out, "<span>");
    strbuf_add_xml(out, text);
    strbuf_add(out, "</span>");
}

static void write_header(struct maker *maker)
{
    const struct data_page *page = maker->page;
    struct strbuf *out = maker->out;

    strbuf_add(out, "<header>\n<p class=\"mark\"><b>tutti</b><span class=\"badge\">data set"
                    "</span></p>\n<h1>");
    strbuf_add_xml(out, page->name);
    strbuf_add(out, "</h1>\n<p class=\"facts\">");
    if (strcmp(page->title, page->folder) != 0)
        add_fact(out, page->title);
    add_fact(out, page->format);
    add_fact(out, page->folder);
    strbuf_add(out, "</p>\n</header>\n");
}

static void write_count_card(struct strbuf *out, const char *name, double count)
{
    char text[NUMBER_TEXT];

    number_whole(text, count);
    page_card(out, name, text, NULL, NULL);
}

static void write_cards(struct maker *maker)
{
    const struct data_page *page = maker->page;
    char size[80], brief[16];

    page_cards_begin(maker->out);
    write_count_card(maker->out, "Training samples", (double)page->train);
    write_count_card(maker->out, "Test samples", (double)page->test);
    write_count_card(maker->out, "Classes", (double)page->classes);
    snprintf(size, sizeof size, "%d \u00d7 %d", page->height, page->width);
    page_card(maker->out, "Pixels", size, page->channels == 1 ? "grey" : "colour", NULL);
    snprintf(brief, sizeof brief, "%.8s", page->fingerprint);
    page_card(maker->out, "Fingerprint", brief, "SHA-256", page->fingerprint);
    page_cards_end(maker->out);
}

static void write_class_bars(struct maker *maker)
{
    static const char *const names[] = { "training", "test" };
    const struct data_page *page = maker->page;
    const struct plot_bars bars = { .categories = page->class_names,
                                    .n_categories = page->classes,
                                    .names = names,
                                    .n_series = 2,
                                    .values = page->class_samples,
                                    .all_names = true };
    const struct plot plot = { .title = "Samples of each class",
                               .width = page->classes >= WIDE_FROM ? 1120 : 0,
                               .y = { .format = NUMBER_SI, .whole = true } };

    page_plot_begin(maker->out, page->classes >= WIDE_FROM);
    plot_bars(maker->out, &plot, &bars);
    page_plot_end(maker->out);
}

static double sum_of(const uint64_t values[DATA_PAGE_VALUES])
{
    double sum = 0;

    for (int v = 0; v < DATA_PAGE_VALUES; v++)
        sum += (double)values[v];
    return sum;
}

/* Whether one value, black mostly, is so frequent that the others would lie on the axis. */
static bool needs_log(const double *shares, size_t count)
{
    double largest = 0, sum = 0;

    for (size_t i = 0; i < count; i++) {
        largest = fmax(largest, shares[i]);
        sum += shares[i];
    }
    return largest > 10 * sum / (double)count;
}

static void write_densities(struct maker *maker)
{
    const struct data_page *page = maker->page;
    double x[DATA_PAGE_VALUES], shares[DATA_PAGE_CHANNELS][DATA_PAGE_VALUES];
    struct plot_series series[DATA_PAGE_CHANNELS] = { 0 };

    for (int c = 0; c < page->channels; c++) {
        const double sum = sum_of(page->values[c]);
        const int row = channel_row(page, c);
        for (int v = 0; v < DATA_PAGE_VALUES; v++) {
            x[v] = v;
            shares[c][v] = sum > 0 ? (double)page->values[c][v] / sum : 0;
        }
        series[c] =
            (struct plot_series){ .name = page->channels > 1 ? channels[row].name : NULL,
                                  .x = x,
                                  .y = shares[c],
                                  .count = DATA_PAGE_VALUES,
                                  .colour = page->channels > 1 ? channels[row].colour : 0 };
    }
    const bool log = needs_log(&shares[0][0], (size_t)page->channels * DATA_PAGE_VALUES);
    const struct plot plot = {
        .title = log ? "Pixel values (logarithmic)" : "Pixel values",
        .width = page->classes >= WIDE_FROM ? 1120 : 0,
        .x = { .label = "value", .whole = true },
        .y = { .format = NUMBER_PERCENT, .log = log, .from_zero = true },
    };
    page_plot_begin(maker->out, page->classes >= WIDE_FROM);
    plot_lines(maker->out, &plot, series, (size_t)page->channels);
    page_plot_end(maker->out);
}

static void add_cell(struct strbuf *out, double value)
{
    strbuf_printf(out, "<td>%.4f</td>", value);
}

/* Mean and deviation as they are, and as training uses them. */
static void write_channels(struct maker *maker)
{
    const struct data_page *page = maker->page;

    strbuf_add(maker->out,
               "<div class=\"box scroll\" style=\"margin-top:16px\"><table>\n<tr><th>channel"
               "</th><th>mean</th><th>deviation</th><th>mean used in training</th>"
               "<th>deviation used</th></tr>\n");
    for (int c = 0; c < page->channels; c++) {
        const double sum = sum_of(page->values[c]);
        double mean = 0, squares = 0;
        for (int v = 0; v < DATA_PAGE_VALUES && sum > 0; v++) {
            const double value = v / 255.0, share = (double)page->values[c][v] / sum;
            mean += value * share;
            squares += value * value * share;
        }
        strbuf_printf(maker->out, "<tr><td>%s</td>", channels[channel_row(page, c)].name);
        add_cell(maker->out, mean);
        add_cell(maker->out, sqrt(fmax(squares - mean * mean, 0)));
        add_cell(maker->out, (double)page->mean[c]);
        add_cell(maker->out, (double)page->deviation[c]);
        strbuf_add(maker->out, "</tr>\n");
    }
    strbuf_add(maker->out, "</table></div>\n<p class=\"under\">Of pixels in [0, 1], over the "
                           "training split.</p>\n");
}

/* The mean of the square of `by` pixels' side that begins at (left, top), as far as it lies inside. */
static uint8_t mean_of_square(const struct pixmap *image, int channel, int left, int top,
                              int by)
{
    const size_t width = (size_t)image->width, height = (size_t)image->height;
    const uint8_t *plane = image->pixels + (size_t)channel * width * height;
    uint32_t sum = 0, count = 0;

    for (size_t y = (size_t)top; y < (size_t)(top + by) && y < height; y++) {
        for (size_t x = (size_t)left; x < (size_t)(left + by) && x < width; x++, count++)
            sum += plane[y * width + x];
    }
    if (count == 0)
        return 0;
    return (uint8_t)((sum + count / 2) / count);
}

/* A sample, made smaller by a whole number if it is large. */
static enum status add_sample(struct strbuf *out, const struct pixmap *image,
                              const char *caption)
{
    const int larger = image->width > image->height ? image->width : image->height;
    const int by = (larger + THUMB - 1) / THUMB;
    struct pixmap small = *image;
    uint8_t *pixels;

    if (by <= 1) {
        pixmap_add(out, image, caption, SIDE);
        return STATUS_OK;
    }
    small.width = image->width / by > 0 ? image->width / by : 1;
    small.height = image->height / by > 0 ? image->height / by : 1;
    TRY(mem_alloc((size_t)small.width * (size_t)small.height, (size_t)image->channels,
                  &pixels));
    uint8_t *to = pixels;
    for (int c = 0; c < image->channels; c++)
        for (int y = 0; y < small.height; y++)
            for (int x = 0; x < small.width; x++)
                *to++ = mean_of_square(image, c, x * by, y * by, by);
    small.pixels = pixels;
    pixmap_add(out, &small, caption, SIDE);
    mem_free(pixels);
    return STATUS_OK;
}

static enum status write_class_row(struct maker *maker, size_t class)
{
    const struct data_page *page = maker->page;
    const char *name = page->class_names[class];
    char caption[200];

    strbuf_add(maker->out, "<div class=\"row\"><b>");
    strbuf_add_xml(maker->out, name);
    strbuf_add(maker->out, "</b>");
    if (page->averages[class].pixels) {
        strbuf_add(maker->out, "<span class=\"average\">");
        snprintf(caption, sizeof caption, "%.160s: the mean of all", name);
        TRY(add_sample(maker->out, &page->averages[class], caption));
        strbuf_add(maker->out, "</span>");
    }
    for (size_t i = 0; i < page->per_class; i++) {
        const struct pixmap *sample = &page->samples[class * page->per_class + i];
        if (sample->pixels)
            TRY(add_sample(maker->out, sample, name));
    }
    strbuf_add(maker->out, "</div>\n");
    return STATUS_OK;
}

static void write_samples(struct maker *maker)
{
    const struct data_page *page = maker->page;

    page_section_begin(maker->out, "Samples");
    strbuf_printf(maker->out, "<div class=\"box rows%s\">\n",
                  page->classes >= WIDE_FROM ? " two" : "");
    for (size_t c = 0; c < page->classes && maker->status == STATUS_OK; c++)
        maker->status = write_class_row(maker, c);
    strbuf_add(maker->out, "</div>\n<p class=\"under\">First the mean of the class's training "
                           "samples, then its first samples.</p>\n");
    page_section_end(maker->out);
}

static void write_page(struct maker *maker)
{
    char title[200];

    snprintf(title, sizeof title, "%.160s \u2013 tutti", maker->page->name);
    page_begin(maker->out, title);
    write_header(maker);
    write_cards(maker);
    page_section_begin(maker->out, "Classes and pixels");
    page_plots_begin(maker->out);
    write_class_bars(maker);
    write_densities(maker);
    page_plots_end(maker->out);
    write_channels(maker);
    page_section_end(maker->out);
    write_samples(maker);
    page_end(
        maker->out,
        "Made by tutti from the data set's files. Point at a plot for its values, at a picture "
        "for its class.");
}

enum status data_page_write(const struct data_page *page, const char *path)
{
    struct strbuf out;
    struct maker maker = { .out = &out, .page = page };

    if (page->channels != 1 && page->channels != DATA_PAGE_CHANNELS)
        return FAIL(STATUS_UNSUPPORTED, "%s: samples of %d channels cannot be shown",
                    page->folder, page->channels);
    strbuf_init(&out, page_maximum);
    write_page(&maker);
    enum status status = maker.status == STATUS_OK ? strbuf_status(&out) : maker.status;
    if (status == STATUS_OK)
        status = file_replace(path, out.text, out.length);
    strbuf_release(&out);
    return status;
}
