/* SPDX-License-Identifier: MIT */
/* axes.c - reads the texts of --split, --sync and --meet: a table of words each. */
#include "pass/axes.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A whole number in a range at the beginning of *text, which moves behind it. */
static bool take_number(const char **text, long long least, long long most, long long *out)
{
    char *end;

    errno = 0;
    const long long number = strtoll(*text, &end, 10);
    if (**text < '0' || **text > '9' || errno == ERANGE || number < least || number > most)
        return false;
    *out = number;
    *text = end;
    return true;
}

/* What follows "name" in "name:rest": the rest; "" if there is none; NULL if it is another word. */
static const char *after_word(const char *text, const char *name)
{
    const size_t length = strlen(name);

    if (strncmp(text, name, length) != 0)
        return NULL;
    return text[length] == ':' && text[length + 1] ? text + length + 1
           : text[length] == '\0'                  ? text + length
                                                   : NULL;
}

/* Split ---------------------------------------------------------------------------------- */

static const struct split_key {
    const char *name;
    size_t offset; /* of an int of struct axes */
    int least, most;
} split_keys[] = {
    { "dp", offsetof(struct axes, dp), 1, 256 },
};
enum { SPLIT_KEYS = sizeof split_keys / sizeof *split_keys };

/* Index of the key that "key=..." begins with, which *text moves behind; -1: none. */
static int take_key(const char **text)
{
    for (int i = 0; i < SPLIT_KEYS; i++) {
        const size_t length = strlen(split_keys[i].name);
        if (strncmp(*text, split_keys[i].name, length) == 0 && (*text)[length] == '=') {
            *text += length + 1;
            return i;
        }
    }
    return -1;
}

enum status axes_read_split(const char *text, struct axes *out)
{
    unsigned seen = 0;
    const char *rest = text;

    for (;;) {
        const int i = take_key(&rest);
        long long number;
        if (i < 0)
            return FAIL(STATUS_USAGE, "--split %s: must be like dp=4", text);
        if (seen & 1U << i)
            return FAIL(STATUS_USAGE, "--split %s: %s is given twice", text,
                        split_keys[i].name);
        if (!take_number(&rest, split_keys[i].least, split_keys[i].most, &number) ||
            (*rest && *rest != ','))
            return FAIL(STATUS_USAGE, "--split %s: %s must be a whole number from %d to %d",
                        text, split_keys[i].name, split_keys[i].least, split_keys[i].most);
        seen |= 1U << i;
        const int value = (int)number;
        memcpy((char *)out + split_keys[i].offset, &value, sizeof value);
        if (!*rest)
            return STATUS_OK;
        rest++;
    }
}

/* Sync ----------------------------------------------------------------------------------- */

static bool read_bound(const char *rest, struct axes *out)
{
    long long bound;

    if (!take_number(&rest, 0, AXES_MOST, &bound) || *rest)
        return false;
    out->bound = (int)bound;
    return true;
}

/* "H" or "auto", which *rest moves behind. */
static bool take_interval(const char **rest, struct axes *out)
{
    long long interval = AXES_INTERVAL;

    out->is_auto = strncmp(*rest, "auto", 4) == 0;
    if (out->is_auto)
        *rest += 4;
    else if (!take_number(rest, 1, AXES_MOST, &interval))
        return false;
    out->interval = interval;
    return true;
}

static bool read_interval(const char *rest, struct axes *out)
{
    return take_interval(&rest, out) && !*rest;
}

static bool read_elastic(const char *rest, struct axes *out)
{
    char *end;

    if (!take_interval(&rest, out))
        return false;
    if (!*rest)
        return true;
    if (*rest != ',' || !rest[1])
        return false;
    out->alpha = strtod(rest + 1, &end);
    return !*end && out->alpha >= 0 && out->alpha <= 1;
}

static const struct sync_word {
    const char *name;
    enum axes_sync sync;
    bool (*read)(const char *rest, struct axes *out); /* NULL: nothing follows */
    const char *form;                                 /* of what follows */
} sync_words[] = {
    { "step", SYNC_STEP, NULL, NULL },
    { "async", SYNC_ASYNC, NULL, NULL },
    { "bounded", SYNC_BOUNDED, read_bound,
      "bounded:K, K steps from 0 on that a worker may be ahead" },
    { "elastic", SYNC_ELASTIC, read_elastic,
      "elastic:T or elastic:T,ALPHA, steps from 1 on or auto, and 0 to 1" },
    { "local", SYNC_LOCAL, read_interval, "local:H, steps from 1 on or auto" },
};

enum status axes_read_sync(const char *text, struct axes *out)
{
    for (size_t i = 0; i < sizeof sync_words / sizeof *sync_words; i++) {
        const struct sync_word *word = &sync_words[i];
        const char *rest = after_word(text, word->name);
        if (!rest)
            continue;
        if (word->read ? !word->read(rest, out) : *rest != '\0')
            return FAIL(STATUS_USAGE, "--sync %s: must be %s", text,
                        word->read ? word->form : word->name);
        out->sync = word->sync;
        return STATUS_OK;
    }
    return FAIL(STATUS_USAGE, "--sync %s: must be step, async, bounded:K, elastic:T or local:H",
                text);
}

/* Meet ----------------------------------------------------------------------------------- */

enum status axes_read_meet(const char *text, struct axes *out)
{
    static const struct {
        const char *name;
        enum axes_meet meet;
    } words[] = { { "none", MEET_NONE },
                  { "allreduce", MEET_ALLREDUCE },
                  { "central", MEET_CENTRAL },
                  { "parallax", MEET_PARALLAX } };
    const char *rest = after_word(text, "ps");
    long long servers = 1;

    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].name) == 0) {
            out->meet = words[i].meet;
            out->servers = 0;
            return STATUS_OK;
        }
    }
    if (!rest)
        return FAIL(STATUS_USAGE, "--meet %s: must be allreduce, ps:S, central or parallax",
                    text);
    if (*rest && (!take_number(&rest, 1, AXES_SERVERS, &servers) || *rest))
        return FAIL(STATUS_USAGE, "--meet %s: must be ps:S, servers from 1 to %d", text,
                    AXES_SERVERS);
    out->meet = MEET_PS;
    out->servers = (int)servers;
    return STATUS_OK;
}
