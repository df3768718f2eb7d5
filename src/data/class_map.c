/* SPDX-License-Identifier: MIT */
/* class_map.c - names looked up in a sorted list. */
#include "data/class_map.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/strbuf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const char *name;
    int32_t index;
};

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const int order = strcmp(x->name, y->name);

    return order ? order : (x->index > y->index) - (x->index < y->index);
}

static int compare_name(const void *name, const void *entry)
{
    return strcmp(name, ((const struct entry *)entry)->name);
}

/* Are the names "0", "1", "2" and so on? */
static bool are_positions(const struct class_list *list)
{
    char number[16];

    for (int i = 0; i < list->count; i++) {
        snprintf(number, sizeof number, "%d", i);
        if (strcmp(list->name[i], number) != 0)
            return false;
    }
    return true;
}

/* "cat, dog, owl", or the first of many. */
static enum status fail(const struct class_source *own, int class, const struct class_list *run)
{
    enum { SHOWN = 10, TEXT_MOST = 4096 };
    struct strbuf names;

    strbuf_init(&names, TEXT_MOST);
    for (int i = 0; i < run->count && i < SHOWN; i++)
        strbuf_printf(&names, "%s%.64s", i ? ", " : "", run->name[i]);
    if (run->count > SHOWN)
        strbuf_printf(&names, " and %d more", run->count - SHOWN);
    enum status status = strbuf_status(&names);
    if (status == STATUS_OK && class < 0)
        status = FAIL(STATUS_MISMATCH, "%s: labels go up to %d, the run has %d classes: %s",
                      own->path, own->count - 1, run->count, names.text);
    else if (status == STATUS_OK)
        status = FAIL(STATUS_MISMATCH,
                      "%s: class %.64s is none of the run's: %s: rename or remove it",
                      own->path, own->name[class], names.text);
    strbuf_release(&names);
    return status;
}

static enum status map_names(const struct class_source *own, const struct class_list *run,
                             int32_t *map)
{
    struct entry *entry;

    TRY(mem_alloc((size_t)run->count, sizeof *entry, &entry));
    for (int i = 0; i < run->count; i++)
        entry[i] = (struct entry){ run->name[i], i };
    qsort(entry, (size_t)run->count, sizeof *entry, compare_entries);
    int missing = -1;
    for (int i = 0; i < own->count && missing < 0; i++) {
        const struct entry *found =
            bsearch(own->name[i], entry, (size_t)run->count, sizeof *entry, compare_name);
        if (found)
            map[i] = found->index;
        else
            missing = i;
    }
    mem_free(entry);
    return missing < 0 ? STATUS_OK : fail(own, missing, run);
}

static bool are_same(const struct class_source *own, const struct class_list *run)
{
    if (own->count != run->count)
        return false;
    for (int i = 0; i < own->count; i++)
        if (strcmp(own->name[i], run->name[i]) != 0)
            return false;
    return true;
}

/* Numbers may mean another order of the classes than the run's: files do not say. */
static void warn_of_positions(const struct class_source *own, const struct class_list *run)
{
    enum { SHOWN = 3 };
    char text[SHOWN * 80];
    size_t length = 0;

    for (int i = 0; i < own->count && i < SHOWN; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%d is %.64s",
                                   i ? ", " : "", i, run->name[i]);
    log_line(
        LOG_WARNING,
        "%s: its classes are numbers without names and are taken in the order of the run's: "
        "%s%s",
        own->path, text, own->count > SHOWN ? " and so on" : "");
}

enum status class_map(const struct class_source *own, const struct class_list *run,
                      int32_t *map)
{
    const bool by_position =
        !own->name || (own->are_numbers && are_positions(run)) || are_same(own, run);

    if (!by_position)
        return map_names(own, run, map);
    if (own->count > run->count)
        return fail(own, -1, run);
    for (int i = 0; i < own->count; i++)
        map[i] = i;
    if (own->warns && !own->name && !are_positions(run))
        warn_of_positions(own, run);
    return STATUS_OK;
}
