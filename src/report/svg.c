/* SPDX-License-Identifier: MIT */
/* svg.c - a scanner of tags, enough to tell whether elements are balanced.
 *
 * It is stricter than XML where that is simpler: no CDATA, no processing
 * instructions inside, no "<" in attributes. The page forbids scripts by itself,
 * too; this is what keeps a strange picture from closing the page's own elements.
 */
#include "report/svg.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { DEPTH = 64 };

struct tag {
    const char *name;
    size_t length;
};

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == ':' || c == '-' || c == '_' || c == '.';
}

static struct tag name_at(const char *text)
{
    struct tag tag = { .name = text };

    while (is_name(text[tag.length]))
        tag.length++;
    return tag;
}

static bool is_called(struct tag tag, const char *name)
{
    return tag.length == strlen(name) && strncasecmp(tag.name, name, tag.length) == 0;
}

/* Past the end of `mark`, or NULL if it does not come. */
static const char *past(const char *text, const char *mark)
{
    const char *at = strstr(text, mark);

    return at ? at + strlen(mark) : NULL;
}

/* Past the ">" that ends the tag whose inside `text` is; quotes may hold one. */
static const char *past_tag(const char *text, bool *out_is_empty)
{
    char quote = '\0';

    for (; *text; text++) {
        if (quote) {
            quote = *text == quote ? '\0' : quote;
        } else if (*text == '"' || *text == '\'') {
            quote = *text;
        } else if (*text == '<') {
            return NULL;
        } else if (*text == '>') {
            *out_is_empty = text[-1] == '/';
            return text + 1;
        }
    }
    return NULL;
}

static const char *skip_prolog(const char *text)
{
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3;
    while (text) {
        text += strspn(text, " \t\r\n");
        if (strncmp(text, "<?", 2) == 0)
            text = past(text, "?>");
        else if (strncmp(text, "<!--", 4) == 0)
            text = past(text, "-->");
        else if (strncasecmp(text, "<!doctype", 9) == 0)
            text = past(text, ">");
        else
            return text;
    }
    return NULL;
}

/* NULL if the element at `text` is balanced and alone, else what is wrong. */
static const char *check_balance(const char *text)
{
    static const char *const refused[] = { "script", "foreignObject", "iframe", "object",
                                           "embed",  "base",          "link",   "meta" };
    struct tag open[DEPTH];
    int depth = 0;

    do {
        const char *at = strchr(text, '<');
        if (!at)
            return "an element is not closed";
        if (strncmp(at, "<!--", 4) == 0) {
            text = past(at, "-->");
            if (!text)
                return "a comment is not closed";
            continue;
        }
        const bool is_end = at[1] == '/';
        const struct tag tag = name_at(at + (is_end ? 2 : 1));
        bool is_empty = false;
        text = past_tag(tag.name, &is_empty);
        if (tag.length == 0 || !text)
            return "a tag is malformed";
        for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
            if (is_called(tag, refused[i]))
                return "it holds an element that a picture does not need";
        }
        if (is_end) {
            if (depth == 0 || open[depth - 1].length != tag.length ||
                memcmp(open[depth - 1].name, tag.name, tag.length) != 0)
                return "its tags are not balanced";
            depth--;
        } else if (!is_empty) {
            if (depth == DEPTH)
                return "it is nested too deeply";
            open[depth++] = tag;
        }
    } while (depth > 0);
    return text[strspn(text, " \t\r\n")] ? "something follows the picture" : NULL;
}

const char *svg_element(const char *text, const char **out_reason)
{
    const char *element = skip_prolog(text);

    *out_reason = "there is no <svg> element";
    if (!element || strncmp(element, "<svg", 4) != 0 || is_name(element[4]))
        return NULL;
    *out_reason = check_balance(element);
    return *out_reason ? NULL : element;
}
