/* SPDX-License-Identifier: MIT */
/* spending.c - a participant's own record of the privacy that it has spent. */
#include "fed/spending.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "fed/dp_sgd.h"

enum {
    FILE_MOST = 1 << 26,
    PATH_MOST = 1 << 12,
    KEYS_MOST = 16,
    NAME_MOST = FED_TEXT + 1 + KEYS_MOST
};

static const char *const kinds[2] = { "updates", "records" };

/* Text ---------------------------------------------------------------------------------- */

struct line {
    bool is_record;
    char name[NAME_MOST]; /* FEDERATION or FEDERATION/KEYS */
    struct ledger_entry entry;
};

static enum status read_line(const char *text, size_t length, struct line *out)
{
    const char *end = text + length;
    const char *space = memchr(text, ' ', length);
    const char *next = space ? memchr(space + 1, ' ', (size_t)(end - space - 1)) : NULL;

    if (!next || next - space > NAME_MOST)
        return FAIL(STATUS_CORRUPT, "is no release");
    const size_t kind = (size_t)(space - text), name = (size_t)(next - space - 1);
    out->is_record = kind == strlen(kinds[1]) && memcmp(text, kinds[1], kind) == 0;
    if (!out->is_record && (kind != strlen(kinds[0]) || memcmp(text, kinds[0], kind) != 0))
        return FAIL(STATUS_CORRUPT, "is neither of updates nor of records");
    memcpy(out->name, space + 1, name);
    out->name[name] = '\0';
    return ledger_entry_read(next + 1, (size_t)(end - next - 1), &out->entry);
}

static void print_name(const struct fed_release *release, char out[NAME_MOST])
{
    snprintf(out, NAME_MOST, "%s%s%s", release->federation, release->keys ? "/" : "",
             release->keys ? release->keys : "");
}

/* What is recorded of the release's federation. */
struct earlier {
    bool again;    /* this round, with these keys */
    uint64_t next; /* after the last round */
};

static void find_release(const struct line *line, const struct fed_release *release,
                         struct earlier *earlier)
{
    const size_t length = strlen(release->federation);
    char name[NAME_MOST];

    if (strncmp(line->name, release->federation, length) != 0 ||
        (line->name[length] && line->name[length] != '/'))
        return;
    print_name(release, name);
    earlier->again |=
        line->entry.round == release->entry.round && strcmp(line->name, name) == 0;
    if (line->entry.round >= earlier->next)
        earlier->next = line->entry.round + 1;
}

/* Adds all releases of a kind to the ledger. */
static enum status add_lines(const char *text, size_t length, bool is_record,
                             const struct fed_release *release, struct ledger *ledger,
                             struct earlier *earlier)
{
    uint64_t count = 0;

    *earlier = (struct earlier){ 0 };

    for (size_t at = 0, number = 1; at < length; number++) {
        const char *end = memchr(text + at, '\n', length - at);
        const size_t bytes = end ? (size_t)(end - (text + at)) : length - at;
        struct line line;
        if (read_line(text + at, bytes, &line) != STATUS_OK)
            return FAIL(STATUS_CORRUPT, "line %zu is no release of privacy", number);
        at += bytes + 1;
        if (line.is_record != is_record)
            continue;
        if (release)
            find_release(&line, release, earlier);
        line.entry.round = count++; /* of all federations, one after the other */
        TRY(ledger_add(ledger, &line.entry));
    }
    return STATUS_OK;
}

enum status fed_spending_epsilon(const char *text, size_t length, bool is_record, double delta,
                                 double *out)
{
    struct earlier earlier;
    struct ledger *ledger;

    TRY(ledger_create(INFINITY, delta, &ledger));
    const enum status status = add_lines(text, length, is_record, NULL, ledger, &earlier);
    if (status == STATUS_OK)
        *out = ledger_epsilon(ledger, NULL);
    ledger_destroy(ledger);
    return status;
}

/* The file ------------------------------------------------------------------------------ */

/* Reads the file; an absent one is an empty text. */
static enum status read_file(const char *path, char **text, size_t *length)
{
    struct stat about;

    *text = NULL;
    *length = 0;
    if (stat(path, &about) == 0)
        return file_read(path, FILE_MOST, text, length);
    return errno == ENOENT
               ? STATUS_OK
               : FAIL(STATUS_IO, "%s: the record of privacy spent cannot be read: %s", path,
                      strerror(errno));
}

static enum status write_file(const char *path, const char *text, size_t length,
                              const struct fed_release *release)
{
    char name[NAME_MOST];
    struct strbuf out;

    print_name(release, name);
    strbuf_init(&out, FILE_MOST);
    strbuf_add_bytes(&out, text ? text : "", length);
    if (text && length > 0 && text[length - 1] != '\n')
        strbuf_add(&out, "\n");
    strbuf_printf(&out, "%s %s ", kinds[release->is_record], name);
    ledger_entry_write(&release->entry, &out);
    strbuf_add(&out, "\n");
    enum status status = strbuf_status(&out);
    const mode_t before = umask(077);
    if (status == STATUS_OK)
        status = file_replace(path, out.text, out.length);
    umask(before);
    strbuf_release(&out);
    return status;
}

/* Would it stay within what the policy allows? */
static enum status judge(const struct ledger *ledger, const struct fed_release *release)
{
    struct ledger_entry entry = release->entry;

    entry.round = ledger_rounds(ledger);
    const double epsilon = ledger_epsilon(ledger, &entry);
    if (epsilon <= release->epsilon)
        return STATUS_OK;
    return FAIL(
        STATUS_STOPPED,
        "the privacy of %s would be spent: epsilon %.3g at delta %g with this round, of "
        "%g that the policy allows over all federations",
        release->is_record ? "records" : "updates", epsilon, release->delta, release->epsilon);
}

/* Rounds whose draw left this participant out are part of what chance gives. */
static void count_draws(const struct earlier *earlier, struct ledger_entry *entry)
{
    if (entry->sampling == SAMPLING_POISSON && entry->round >= earlier->next)
        entry->releases = entry->round - earlier->next + 1;
}

static enum status add(const char *path, const struct fed_release *asked)
{
    struct fed_release release = *asked;
    struct ledger *ledger;
    struct earlier earlier;
    char *text;
    size_t length;

    TRY(read_file(path, &text, &length));
    enum status status = ledger_create(INFINITY, release.delta, &ledger);
    if (status != STATUS_OK) {
        mem_free(text);
        return status;
    }
    status = add_lines(text, length, release.is_record, &release, ledger, &earlier);
    if (status == STATUS_CORRUPT)
        status = FAIL(STATUS_CORRUPT,
                      "%s: is damaged: mend it, or start a new one knowing that "
                      "what was spent counts no more",
                      path);
    const bool is_counted = earlier.again && !release.is_record;
    if (status == STATUS_OK)
        count_draws(&earlier, &release.entry);
    if (status == STATUS_OK && !is_counted)
        status = judge(ledger, &release);
    if (status == STATUS_OK && !is_counted)
        status = write_file(path, text, length, &release);
    ledger_destroy(ledger);
    mem_free(text);
    return status;
}

/* One that a line holds as it is, and that is read back. */
static bool is_name(const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '/')
            return false;
    }
    return length > 0 && length < FED_TEXT;
}

enum status fed_spending_add(const char *path, const struct fed_release *release)
{
    struct strbuf lock;

    BUG_ON(release->keys && strlen(release->keys) > KEYS_MOST);
    if (!is_name(release->federation) || release->entry.round > INT32_MAX)
        return FAIL(STATUS_MISMATCH,
                    "a federation or a round that no record of privacy can "
                    "name: its id has printable characters without ' ' and '/'");
    strbuf_init(&lock, PATH_MOST);
    strbuf_printf(&lock, "%s.lock", path);
    enum status status = strbuf_status(&lock);
    const int file =
        status == STATUS_OK ? open(lock.text, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (status == STATUS_OK && (file < 0 || flock(file, LOCK_EX) != 0))
        status = FAIL(STATUS_IO, "%s: the record of privacy spent cannot be kept there: %s",
                      path, strerror(errno));
    if (status == STATUS_OK)
        status = add(path, release);
    if (file >= 0)
        close(file);
    strbuf_release(&lock);
    return status;
}

/* Terms --------------------------------------------------------------------------------- */

bool fed_release_of(const struct fed_terms *terms, bool is_record, uint64_t passes,
                    struct ledger_entry *out)
{
    double clip, noise;

    *out = (struct ledger_entry){ .sampling = SAMPLING_ALL, .q = 1, .releases = 1 };
    if (is_record) {
        if (!*terms->dp_sgd || fed_dp_sgd_parse(terms->dp_sgd, &clip, &noise) != STATUS_OK)
            return false;
        out->noise = noise;
        out->releases = passes;
        return true;
    }
    if (!*terms->dp)
        return false;
    out->noise = terms->noise;
    if (strcmp(terms->dp, "central") == 0 && terms->per_round == 0 && terms->fraction < 1) {
        out->sampling = SAMPLING_POISSON;
        out->q = terms->fraction;
    }
    return true;
}

enum status fed_terms_epsilon(const struct fed_terms *terms, bool is_record, uint64_t passes,
                              double delta, double *out)
{
    struct ledger_entry entry;
    struct ledger *ledger;

    *out = (double)INFINITY;
    if (!fed_release_of(terms, is_record, passes, &entry) || entry.noise <= 0)
        return STATUS_OK;
    entry.releases *= (uint64_t)terms->rounds;
    TRY(ledger_create(INFINITY, delta, &ledger));
    *out = ledger_epsilon(ledger, &entry);
    ledger_destroy(ledger);
    return STATUS_OK;
}
