/* SPDX-License-Identifier: MIT */
/* suggest.c - edit distance with insertion, deletion, replacement and the swap of two
 * neighbours.
 *
 * This is the "optimal string alignment" distance: cell (i, j) of a table is the
 * distance between the first i characters of one word and the first j of the
 * other, made from the cells above, to the left, and diagonally one or two away.
 */
#include "base/suggest.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 }; /* longer words are not names */

static int lower(const char *text, size_t i)
{
    return tolower((unsigned char)text[i]);
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Both words have at most LONGEST characters. */
static size_t distance(const char *a, const char *b)
{
    const size_t rows = strlen(a), columns = strlen(b);
    size_t table[LONGEST + 1][LONGEST + 1];

    for (size_t j = 0; j <= columns; j++)
        table[0][j] = j;
    for (size_t i = 1; i <= rows; i++) {
        table[i][0] = i;
        for (size_t j = 1; j <= columns; j++) {
            const size_t differ = lower(a, i - 1) != lower(b, j - 1);
            size_t best = least(table[i - 1][j], table[i][j - 1]) + 1;

            best = least(best, table[i - 1][j - 1] + differ);
            if (i > 1 && j > 1 && lower(a, i - 1) == lower(b, j - 2) &&
                lower(a, i - 2) == lower(b, j - 1))
                best = least(best, table[i - 2][j - 2] + 1);
            table[i][j] = best;
        }
    }
    return table[rows][columns];
}

/* How far `name` is from what was typed. Somebody who stopped early is one mistake away. */
static size_t mistakes(const char *word, size_t length, const char *name)
{
    const size_t far = distance(word, name);

    return length >= 3 && strncasecmp(word, name, length) == 0 ? least(far, 1) : far;
}

const char *suggest_nearest(const char *word, const char *const *names)
{
    const size_t length = strlen(word);
    const char *nearest = NULL;

    if (length == 0 || length > LONGEST)
        return NULL;

    size_t least_far = length / 3 + 1; /* a third of the word may be wrong */
    for (; *names; names++) {
        if (strlen(*names) > LONGEST)
            continue;
        const size_t far = mistakes(word, length, *names);
        if (far < least_far) {
            nearest = *names;
            least_far = far;
        }
    }
    return nearest;
}
