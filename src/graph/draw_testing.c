/* SPDX-License-Identifier: MIT */
/* draw_testing.c - reads a drawing back. */
#include "graph/draw_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/test.h"
#include "base/utf8.h"

enum { DEPTH = 16, NAME_BYTES = 32 };

struct rect {
    double x, y, width, height;
};

struct drawing {
    const char *text;
    double width, height;
    struct rect *rects; /* boxes and pills, the legend's included */
    int n_rects, max_rects;
};

/* Well-formedness ------------------------------------------------------------------------ */

/* "&lt;" and the like; nothing else may follow an ampersand. */
static bool is_entity(const char *text)
{
    static const char *const known[] = { "&lt;", "&gt;", "&amp;", "&quot;", "&apos;", "&#39;" };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strncmp(text, known[i], strlen(known[i])) == 0)
            return true;
    }
    return false;
}

static void check_characters(const char *text)
{
    size_t left = strlen(text);

    while (left > 0) {
        const size_t span = utf8_span(text, left);
        if (span == 0 || ((unsigned char)*text < 0x20 && *text != '\n') ||
            (*text == '&' && !is_entity(text)))
            test_fail(__FILE__, __LINE__, "no XML: %.40s", text);
        text += span;
        left -= span;
    }
}

/* strstr, which under sanitizers reads all that follows: for words that are found again and again. */
static const char *find(const char *text, const char *word)
{
    const size_t length = strlen(word);

    for (const char *c = text; (c = strchr(c, word[0])); c++) {
        if (strncmp(c, word, length) == 0)
            return c;
    }
    return NULL;
}

/* One tag: <name a="..." b="...">; returns what follows it. */
static const char *check_tag(const char *tag, char name[NAME_BYTES], bool *out_is_empty)
{
    const char *c = tag + 1 + (tag[1] == '/');
    const size_t length = strspn(c, "abcdefghijklmnopqrstuvwxyz");

    CHECK(length > 0 && length < NAME_BYTES);
    memcpy(name, c, length);
    name[length] = '\0';
    for (c += length; *c == ' ';) {
        c += 1 + strcspn(c + 1, "=");
        CHECK(c[0] == '=' && c[1] == '"');
        c = strchr(c + 2, '"');
        CHECK(c);
        c++;
    }
    *out_is_empty = *c == '/';
    c += *c == '/';
    if (*c != '>')
        test_fail(__FILE__, __LINE__, "malformed tag %.60s", tag);
    return c + 1;
}

static void check_elements(const char *text)
{
    char open[DEPTH][NAME_BYTES];
    int depth = 0;

    CHECK(strncmp(text, "<svg ", 5) == 0);
    for (const char *c = text; (c = strchr(c, '<'));) {
        char name[NAME_BYTES];
        const bool is_end = c[1] == '/';
        bool is_empty;

        c = check_tag(c, name, &is_empty);
        if (is_end) {
            if (depth == 0 || strcmp(open[depth - 1], name) != 0)
                test_fail(__FILE__, __LINE__, "</%s> closes nothing", name);
            depth--;
            CHECK(depth > 0 || strcmp(c, "\n") == 0); /* nothing after the picture */
        } else if (!is_empty) {
            CHECK(depth < DEPTH);
            memcpy(open[depth++], name, sizeof name);
        }
    }
    CHECK_INT(0, depth);
}

/* Every word of every class begins with "tg-", and so do ids and what refers to them. */
static void check_names(const char *text)
{
    for (const char *c = text; (c = find(c, "class=\""));) {
        for (c += strlen("class=\""); *c != '"'; c += strcspn(c, " \"") + (*c == ' ')) {
            c += *c == ' ';
            CHECK(strncmp(c, "tg-", 3) == 0);
        }
    }
    for (const char *c = text; (c = find(c, " id=\"")); c++)
        CHECK(strncmp(c, " id=\"tg-", 8) == 0);
    for (const char *c = text; (c = find(c, "url(")); c++)
        CHECK(strncmp(c, "url(#tg-", 8) == 0);
}

/* Places --------------------------------------------------------------------------------- */

/* A number of the tag at `tag`. */
static double number(const char *tag, const char *name)
{
    char key[NAME_BYTES];
    const char *end = strchr(tag, '>');

    snprintf(key, sizeof key, " %s=\"", name);
    const char *at = find(tag, key);
    CHECK(at && at < end);
    return strtod(at + strlen(key), NULL);
}

static void read_rects(struct drawing *d)
{
    static const char *const classes[] = { "<rect class=\"tg-box\"",
                                           "<rect class=\"tg-pill\"" };

    for (int kind = 0; kind < 2; kind++) {
        for (const char *c = d->text; (c = find(c, classes[kind])); c++) {
            if (d->n_rects == d->max_rects) {
                const int more = d->max_rects ? 2 * d->max_rects : 256;
                CHECK_OK(
                    mem_grow(&d->rects, (size_t)d->max_rects, (size_t)more, sizeof *d->rects));
                d->max_rects = more;
            }
            d->rects[d->n_rects++] = (struct rect){ number(c, "x"), number(c, "y"),
                                                    number(c, "width"), number(c, "height") };
        }
    }
}

static void check_rects(const struct drawing *d)
{
    for (int i = 0; i < d->n_rects; i++) {
        const struct rect *a = &d->rects[i];

        CHECK(a->width > 0 && a->height > 0 && a->x >= 0 && a->y >= 0);
        CHECK(a->x + a->width <= d->width && a->y + a->height <= d->height);
        for (int j = 0; j < i; j++) {
            const struct rect *b = &d->rects[j];
            const bool apart = a->x + a->width <= b->x || b->x + b->width <= a->x ||
                               a->y + a->height <= b->y || b->y + b->height <= a->y;
            if (!apart)
                test_fail(__FILE__, __LINE__, "things at %g,%g and %g,%g lie on each other",
                          a->x, a->y, b->x, b->y);
        }
    }
}

static void check_nodes(const struct drawing *d, const struct graph *graph)
{
    int count = 0;

    for (const char *c = d->text; (c = find(c, " id=\"tg-n")); c++)
        count++;
    CHECK_INT(graph_node_count(graph), count);
    for (int n = 0; n < graph_node_count(graph); n++) {
        char id[NAME_BYTES];
        snprintf(id, sizeof id, " id=\"tg-n%d\"", graph_node(graph, n)->id);
        CHECK(strstr(d->text, id));
    }
}

/* Does a point lie outside of the picture, or well inside of a box or a pill? */
static bool is_misplaced(const struct drawing *d, double x, double y)
{
    if (x < 0 || y < 0 || x > d->width || y > d->height)
        return true;
    for (int i = 0; i < d->n_rects; i++) {
        const struct rect *r = &d->rects[i];
        if (x > r->x + 2 && x < r->x + r->width - 2 && y > r->y + 2 && y < r->y + r->height - 2)
            return true;
    }
    return false;
}

/* Follows the cubic curves of one path: "M0 0C1 1 2 2 3 3C...". */
static bool is_path_clear(const struct drawing *d, const char *path)
{
    enum { STEPS = 24 };
    double p[8];
    char *c;

    p[0] = strtod(path + 1, &c);
    p[1] = strtod(c, &c);
    while (*c == 'C') {
        c++;
        for (int i = 2; i < 8; i++)
            p[i] = strtod(c, &c);
        for (int s = 0; s <= STEPS; s++) {
            const double t = (double)s / STEPS, u = 1 - t;
            const double w[4] = { u * u * u, 3 * u * u * t, 3 * u * t * t, t * t * t };
            if (is_misplaced(d, w[0] * p[0] + w[1] * p[2] + w[2] * p[4] + w[3] * p[6],
                             w[0] * p[1] + w[1] * p[3] + w[2] * p[5] + w[3] * p[7]))
                return false;
        }
        p[0] = p[6];
        p[1] = p[7];
    }
    CHECK(*c == '"');
    return true;
}

static int check_edges(const struct drawing *d)
{
    int count = 0;

    for (const char *c = d->text; (c = find(c, "marker-end=\"url(#tg-arrow)\" d=\"")); c++) {
        const char *path = find(c, " d=\"") + 4;
        CHECK(*path == 'M');
        if (!is_path_clear(d, path))
            test_fail(__FILE__, __LINE__, "an edge runs through something: %.90s", path);
        count++;
    }
    return count;
}

int draw_testing_check(const struct graph *graph)
{
    struct strbuf text;
    struct drawing d = { 0 };

    strbuf_init(&text, 64 << 20);
    graph_print_svg(graph, &text);
    CHECK_OK(strbuf_status(&text));
    d.text = text.text;
    check_characters(d.text);
    check_elements(d.text);
    check_names(d.text);
    d.width = number(d.text, "width");
    d.height = number(d.text, "height");
    read_rects(&d);
    check_rects(&d);
    check_nodes(&d, graph);
    const int n_edges = check_edges(&d);
    mem_free(d.rects);
    strbuf_release(&text);
    return n_edges;
}
