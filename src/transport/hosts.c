/* SPDX-License-Identifier: MIT */
/* hosts.c - reads lists of machines.
 *
 * "r[1-2]n[1-4]" is a tree: each number of the first brackets with each of the second. A leaf
 * is a machine. Leaves are counted, also those of a machine that is there already, so that no
 * text takes long.
 */
#include "transport/hosts.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { SLOTS_MAX = 1 << 20, SHOWN = 80 };

bool hosts_whole_number(const char *text, size_t length, int most, int *out)
{
    long long number = 0;

    if (length == 0)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = 10 * number + (text[i] - '0');
        if (number > most)
            return false;
    }
    *out = (int)number;
    return true;
}

/* Machines ------------------------------------------------------------------------------ */

struct reader {
    struct hosts *hosts;
    const char *begin, *end; /* the entry that is read, for messages */
    char name[HOST_NAME];    /* of the machine, as far as it is known */
    int slots;
    int n_leaves;
};

static enum status refuse(const struct reader *r, const char *why)
{
    const long long length = r->end - r->begin;

    return FAIL(STATUS_USAGE, "hosts: %.*s: %s", (int)(length < SHOWN ? length : SHOWN),
                r->begin, why);
}

static bool is_name_character(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '-' || c == '.' || c == '_';
}

static enum status add_host(struct reader *r)
{
    struct hosts *hosts = r->hosts;

    if (r->name[0] == '\0' || r->name[0] == '-')
        return refuse(r, "a machine's name begins with a letter or a digit");
    if (++r->n_leaves > HOSTS_MAX)
        return refuse(r, "more machines than 4096");
    for (int i = 0; i < hosts->count; i++) {
        struct host *host = &hosts->host[i];
        if (strcmp(host->name, r->name) != 0)
            continue;
        host->slots = (host->slots ? host->slots : 1) + (r->slots ? r->slots : 1);
        return host->slots > SLOTS_MAX ? refuse(r, "more slots than make sense") : STATUS_OK;
    }
    if ((hosts->count & (hosts->count - 1)) == 0) { /* full: 0, 1, 2, 4, ... */
        const size_t count = (size_t)hosts->count;
        TRY(mem_grow(&hosts->host, count, count ? 2 * count : 1, sizeof *hosts->host));
    }
    struct host *host = &hosts->host[hosts->count++];
    memcpy(host->name, r->name, sizeof host->name);
    host->slots = r->slots;
    host->ranks = 0;
    return STATUS_OK;
}

static enum status append(struct reader *r, size_t *length, const char *text, size_t bytes)
{
    if (*length + bytes >= HOST_NAME)
        return refuse(r, "a machine's name is too long");
    memcpy(r->name + *length, text, bytes);
    *length += bytes;
    r->name[*length] = '\0';
    return STATUS_OK;
}

static enum status expand(struct reader *r, size_t length, const char *text, const char *end);

/* "01-03" or "7": a machine for each number, as wide as the first is written. */
static enum status expand_range(struct reader *r, size_t length, const char *text,
                                const char *end, const char *rest, const char *rest_end)
{
    const char *dash = memchr(text, '-', (size_t)(end - text));
    const char *low_end = dash ? dash : end;
    const char *high_text = dash ? dash + 1 : text;
    int low, high;

    if (low_end - text > 9 ||
        !hosts_whole_number(text, (size_t)(low_end - text), 999999999, &low) ||
        !hosts_whole_number(high_text, (size_t)(end - high_text), 999999999, &high) ||
        high < low)
        return refuse(r, "brackets hold numbers and ranges, such as [1-3,7]");
    for (int number = low; number <= high; number++) {
        char digits[16];
        const int n = snprintf(digits, sizeof digits, "%0*d", (int)(low_end - text), number);
        size_t longer = length;
        TRY(append(r, &longer, digits, (size_t)n));
        TRY(expand(r, longer, rest, rest_end));
    }
    return STATUS_OK;
}

/* All machines whose names begin with the first `length` bytes of r->name and go on with the
 * text. */
static enum status expand(struct reader *r, size_t length, const char *text, const char *end)
{
    while (text < end && *text != '[') {
        if (!is_name_character(*text))
            return refuse(
                r, "names have letters, digits, '-', '.' and '_'; see hosts in tutti(1)");
        TRY(append(r, &length, text++, 1));
    }
    if (text == end)
        return add_host(r);
    const char *close = memchr(text, ']', (size_t)(end - text));
    if (!close)
        return refuse(r, "a bracket is not closed");
    for (const char *range = text + 1; range <= close;) {
        const char *comma = memchr(range, ',', (size_t)(close - range));
        const char *range_end = comma ? comma : close;
        TRY(expand_range(r, length, range, range_end, close + 1, end));
        r->name[length] = '\0';
        range = range_end + 1;
    }
    return STATUS_OK;
}

/* One entry: "n[1-3]:2". */
static enum status read_entry(struct reader *r, const char *text, const char *end, int slots)
{
    const char *colon = memchr(text, ':', (size_t)(end - text));

    r->begin = text;
    r->end = end;
    r->slots = slots;
    r->name[0] = '\0';
    if (colon) {
        if (slots ||
            !hosts_whole_number(colon + 1, (size_t)(end - colon - 1), SLOTS_MAX, &r->slots) ||
            r->slots == 0)
            return refuse(r, "a number of ranks follows the colon, such as a:2");
        end = colon;
    }
    return expand(r, 0, text, end);
}

/* Where the entry that begins here ends: the next comma outside brackets. */
static const char *entry_end(const char *text)
{
    bool inside = false;

    for (; *text && (inside || *text != ','); text++)
        inside = *text == '[' || (inside && *text != ']');
    return text;
}

static enum status read_list(struct reader *r, const char *text)
{
    for (;;) {
        const char *end = entry_end(text);
        TRY(read_entry(r, text, end, 0));
        if (!*end)
            return STATUS_OK;
        text = end + 1;
    }
}

enum status hosts_parse(const char *text, struct hosts *out)
{
    struct hosts hosts = { NULL, 0 };
    struct reader reader = { .hosts = &hosts };
    const enum status status = read_list(&reader, text);

    if (status != STATUS_OK) {
        hosts_release(&hosts);
        return status;
    }
    *out = hosts;
    return STATUS_OK;
}

/* Host files ----------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word of a line, or false. */
static bool next_word(const char **at, const char *end, const char **word,
                      const char **word_end)
{
    while (*at < end && is_blank(**at))
        (*at)++;
    *word = *at;
    while (*at < end && !is_blank(**at))
        (*at)++;
    *word_end = *at;
    return *word < *word_end;
}

/* "a", "a:2" or "a slots=2". */
static enum status read_line(struct reader *r, const char *at, const char *end)
{
    static const char key[] = "slots=";
    const char *name, *name_end, *word, *word_end;
    int slots = 0;

    r->begin = at;
    r->end = end;
    if (!next_word(&at, end, &name, &name_end))
        return STATUS_OK;
    if (next_word(&at, end, &word, &word_end)) {
        const size_t length = sizeof key - 1;
        if ((size_t)(word_end - word) <= length || memcmp(word, key, length) != 0 ||
            !hosts_whole_number(word + length, (size_t)(word_end - word) - length, SLOTS_MAX,
                                &slots) ||
            slots == 0)
            return refuse(r, "slots=N may follow the name");
        if (next_word(&at, end, &word, &word_end))
            return refuse(r, "one word too many");
    }
    return read_entry(r, name, name_end, slots);
}

static enum status read_lines(struct reader *r, const char *text)
{
    while (*text) {
        const char *end = text + strcspn(text, "\n");
        const char *comment = memchr(text, '#', (size_t)(end - text));

        TRY(read_line(r, text, comment ? comment : end));
        text = *end ? end + 1 : end;
    }
    return r->hosts->count ? STATUS_OK : FAIL(STATUS_USAGE, "hosts: the file names no machine");
}

enum status hosts_parse_file(const char *text, struct hosts *out)
{
    struct hosts hosts = { NULL, 0 };
    struct reader reader = { .hosts = &hosts };
    const enum status status = read_lines(&reader, text);

    if (status != STATUS_OK) {
        hosts_release(&hosts);
        return status;
    }
    *out = hosts;
    return STATUS_OK;
}

/* Slurm ---------------------------------------------------------------------------------- */

static enum status refuse_counts(const char *text)
{
    return FAIL(STATUS_USAGE, "tasks per node %.60s: counts such as 2(x3),1 are meant", text);
}

/* "2(x3)" or "1"; *at moves behind it. */
static bool read_count(const char **at, int *tasks, int *nodes)
{
    const size_t digits = strspn(*at, "0123456789");

    *nodes = 1;
    if (!hosts_whole_number(*at, digits, SLOTS_MAX, tasks))
        return false;
    *at += digits;
    if (strncmp(*at, "(x", 2) != 0)
        return true;
    *at += 2;
    const size_t times = strspn(*at, "0123456789");
    if (!hosts_whole_number(*at, times, HOSTS_MAX, nodes) || *nodes == 0 || (*at)[times] != ')')
        return false;
    *at += times + 1;
    return true;
}

enum status task_counts_parse(const char *text, struct task_counts *out)
{
    const char *at = text;
    struct task_counts counts = { .n_nodes = 0 };

    for (;;) {
        int tasks, nodes;
        if (!read_count(&at, &tasks, &nodes) || counts.n_nodes + nodes > HOSTS_MAX ||
            counts.n_tasks > INT32_MAX - tasks * (long long)nodes)
            return refuse_counts(text);
        counts.n_tasks += tasks * nodes;
        while (nodes-- > 0)
            counts.tasks[counts.n_nodes++] = tasks;
        if (!*at)
            break;
        if (*at++ != ',')
            return refuse_counts(text);
    }
    *out = counts;
    return STATUS_OK;
}

enum status hosts_parse_slurm(const char *nodes, const char *tasks, struct hosts *out)
{
    struct task_counts counts;
    struct hosts hosts;

    TRY(task_counts_parse(tasks, &counts));
    TRY(hosts_parse(nodes, &hosts));
    if (hosts.count != counts.n_nodes) {
        hosts_release(&hosts);
        return FAIL(STATUS_USAGE, "hosts: %.60s are not the %d nodes of %.60s", nodes,
                    counts.n_nodes, tasks);
    }
    for (int i = 0; i < hosts.count; i++)
        hosts.host[i].slots = counts.tasks[i] ? counts.tasks[i] : 1;
    *out = hosts;
    return STATUS_OK;
}

void hosts_release(struct hosts *hosts)
{
    mem_free(hosts->host);
    *hosts = (struct hosts){ NULL, 0 };
}

/* Ranks ---------------------------------------------------------------------------------- */

int hosts_room(const struct hosts *hosts)
{
    long long room = 0;

    for (int i = 0; i < hosts->count; i++)
        room += hosts->host[i].slots ? hosts->host[i].slots : 1;
    return room < SLOTS_MAX ? (int)room : SLOTS_MAX;
}

enum status hosts_assign(struct hosts *hosts, int ranks)
{
    int left = ranks, before;

    for (int i = 0; i < hosts->count; i++)
        hosts->host[i].ranks = 0;
    do {
        before = left;
        for (int i = 0; i < hosts->count && left > 0; i++) {
            struct host *host = &hosts->host[i];
            if (host->slots && host->ranks == host->slots)
                continue;
            host->ranks++;
            left--;
        }
    } while (left > 0 && left < before);
    if (left > 0)
        return FAIL(STATUS_USAGE, "%d ranks do not fit the hosts: they have %d slots", ranks,
                    hosts_room(hosts));
    return STATUS_OK;
}
