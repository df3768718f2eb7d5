/* SPDX-License-Identifier: MIT */
/* axes.c - reads the texts of --split, --pipeline, --sync and --meet, a table of words each; the grid
 * of ranks. */
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
    unsigned axis; /* AXIS_..., or none */
} split_keys[] = {
    { "dp", offsetof(struct axes, dp), 1, AXES_RANKS, AXIS_DP },
    { "tp", offsetof(struct axes, tp), 1, AXES_RANKS, AXIS_TP },
    { "pp", offsetof(struct axes, pp), 1, PIPE_STAGES, AXIS_PP },
    { "zero", offsetof(struct axes, zero), 0, 3, 0 },
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

enum status axes_read_split(const char *text, struct axes *out, unsigned *out_given)
{
    unsigned seen = 0;
    const char *rest = text;

    *out_given = 0;
    for (;;) {
        const int i = take_key(&rest);
        long long number;
        if (i < 0)
            return FAIL(STATUS_USAGE, "--split %s: must be like dp=4, dp=2,pp=2 or dp=4,zero=3",
                        text);
        if (seen & 1U << i)
            return FAIL(STATUS_USAGE, "--split %s: %s is given twice", text,
                        split_keys[i].name);
        if (!take_number(&rest, split_keys[i].least, split_keys[i].most, &number) ||
            (*rest && *rest != ','))
            return FAIL(STATUS_USAGE, "--split %s: %s must be a whole number from %d to %d",
                        text, split_keys[i].name, split_keys[i].least, split_keys[i].most);
        seen |= 1U << i;
        *out_given |= split_keys[i].axis;
        const int value = (int)number;
        memcpy((char *)out + split_keys[i].offset, &value, sizeof value);
        if (!*rest)
            return STATUS_OK;
        rest++;
    }
}

/* Pipeline ------------------------------------------------------------------------------- */

enum status axes_read_pipeline(const char *text, struct axes *out)
{
    for (int kind = 0; kind < PIPE_KINDS; kind++) {
        const char *rest = after_word(text, pipe_kind_names[kind]);
        long long chunks = 1;

        if (!rest)
            continue;
        if (kind == PIPE_INTERLEAVED ? !take_number(&rest, 2, PIPE_CHUNKS, &chunks) || *rest
                                     : *rest != '\0')
            break;
        out->pipeline = (enum pipe_kind)kind;
        out->chunks = (int)chunks;
        return STATUS_OK;
    }
    return FAIL(STATUS_USAGE,
                "--pipeline %s: must be gpipe, 1f1b or interleaved:V, chunks a stage from 2 to "
                "%d",
                text, PIPE_CHUNKS);
}

/* Grid ----------------------------------------------------------------------------------- */

struct axes_place axes_place_of(const struct axes *axes, int rank)
{
    return (struct axes_place){ .tp = rank % axes->tp,
                                .dp = rank / axes->tp % axes->dp,
                                .pp = rank / axes->tp / axes->dp };
}

int axes_rank_at(const struct axes *axes, struct axes_place place)
{
    return (place.pp * axes->dp + place.dp) * axes->tp + place.tp;
}

int axes_group(const struct axes *axes, int rank, unsigned along, int members[AXES_RANKS])
{
    const struct axes_place own = axes_place_of(axes, rank);
    int count = 0;

    for (int r = 0; r < axes->dp * axes->tp * axes->pp; r++) {
        const struct axes_place place = axes_place_of(axes, r);
        if ((place.dp == own.dp || along & AXIS_DP) &&
            (place.tp == own.tp || along & AXIS_TP) && (place.pp == own.pp || along & AXIS_PP))
            members[count++] = r;
    }
    return count;
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

static bool read_neighbors(const char *rest, struct axes *out)
{
    for (int kind = 0; kind < NEIGHBORS_KINDS; kind++) {
        if (strcmp(rest, pass_neighbors_names[kind]) == 0) {
            out->neighbors = (enum pass_neighbors)kind;
            out->interval = 1;
            return true;
        }
    }
    return false;
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
    { "gossip", SYNC_GOSSIP, read_neighbors, "gossip:ring or gossip:exponential" },
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
    return FAIL(STATUS_USAGE,
                "--sync %s: must be step, async, bounded:K, elastic:T, local:H or gossip:ring",
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
