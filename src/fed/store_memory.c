/* SPDX-License-Identifier: MIT */
/* store_memory.c - what a coordinator keeps, in memory: for simulations and tests. */
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "fed/store.h"

enum { AUDIT_MOST = 1 << 26 };

struct kept {
    struct fed_record record; /* client and bytes are owned */
    struct kept *next;
};

struct fed_memory_store {
    struct kept *first, **end;
    struct fed_commit last; /* its parts are owned; round -1: none */
    char **metrics;         /* of each commit */
    size_t n_metrics, capacity;
    struct strbuf audit;
    bool forgets;
};

static void free_kept(struct kept *kept)
{
    mem_free((void *)kept->record.client);
    mem_free((void *)kept->record.bytes);
    mem_free(kept);
}

static enum status fill_kept(struct kept *kept, const struct fed_record *record)
{
    char *client;
    void *bytes;

    kept->record = (struct fed_record){ .round = record->round, .kind = record->kind };
    TRY(mem_strdup(record->client, &client));
    kept->record.client = client;
    TRY(mem_alloc(record->length + 1, 1, &bytes));
    if (record->length)
        memcpy(bytes, record->bytes, record->length);
    kept->record.bytes = bytes;
    kept->record.length = record->length;
    return STATUS_OK;
}

static enum status audit(void *arg, int64_t round, const char *client, const char *what)
{
    struct fed_memory_store *store = arg;

    strbuf_printf(&store->audit, "%" PRId64 " %s %s\n", round, *client ? client : "-", what);
    return strbuf_status(&store->audit);
}

static enum status append(void *arg, const struct fed_record *record)
{
    struct fed_memory_store *store = arg;
    struct kept *kept;

    if (record->what)
        TRY(audit(store, record->round, record->client, record->what));
    if (store->forgets && record->round >= 0)
        return STATUS_OK;
    TRY(mem_alloc(1, sizeof *kept, &kept));
    const enum status status = fill_kept(kept, record);
    if (status != STATUS_OK) {
        free_kept(kept);
        return status;
    }
    *store->end = kept;
    store->end = &kept->next;
    return STATUS_OK;
}

static enum status replay(void *arg, int64_t round,
                          enum status (*visit)(void *arg, const struct fed_record *record),
                          void *visit_arg)
{
    const struct fed_memory_store *store = arg;

    for (const struct kept *kept = store->first; kept; kept = kept->next) {
        if (kept->record.round == round || kept->record.round == -1)
            TRY(visit(visit_arg, &kept->record));
    }
    return STATUS_OK;
}

/* Records of rounds that are over are not needed any more. */
static void drop_records(struct fed_memory_store *store)
{
    struct kept **link = &store->first;

    while (*link) {
        struct kept *kept = *link;
        if (kept->record.round == -1) {
            link = &kept->next;
            continue;
        }
        *link = kept->next;
        free_kept(kept);
    }
    store->end = link;
}

static void free_commit(struct fed_commit *commit)
{
    mem_free((void *)commit->state);
    mem_free((void *)commit->ledger);
    *commit = (struct fed_commit){ .round = -1 };
}

static enum status copy_commit(const struct fed_commit *commit, struct fed_commit *copy)
{
    char *ledger;
    void *state;

    *copy = (struct fed_commit){ .round = commit->round };
    TRY(mem_alloc(commit->state_length + 1, 1, &state));
    memcpy(state, commit->state, commit->state_length);
    copy->state = state;
    copy->state_length = commit->state_length;
    TRY(mem_strdup(commit->ledger, &ledger));
    copy->ledger = ledger;
    return STATUS_OK;
}

static enum status commit(void *arg, const struct fed_commit *commit)
{
    struct fed_memory_store *store = arg;
    struct fed_commit copy;

    if (store->n_metrics == store->capacity) {
        const size_t more = 2 * store->capacity + 16;
        TRY(mem_grow(&store->metrics, store->capacity, more, sizeof *store->metrics));
        store->capacity = more;
    }
    enum status status = copy_commit(commit, &copy);
    if (status == STATUS_OK)
        status = mem_strdup(commit->metrics, &store->metrics[store->n_metrics]);
    if (status != STATUS_OK) {
        free_commit(&copy);
        return status;
    }
    free_commit(&store->last);
    store->last = copy;
    store->last.metrics = store->metrics[store->n_metrics++];
    drop_records(store);
    return STATUS_OK;
}

static enum status last(void *arg, struct fed_commit *out)
{
    const struct fed_memory_store *store = arg;

    if (store->last.round < 0)
        return FAIL(STATUS_NOT_FOUND, "nothing was committed yet");
    *out = store->last;
    return STATUS_OK;
}

static enum status history(void *arg, enum status (*visit)(void *arg, const char *metrics),
                           void *visit_arg)
{
    const struct fed_memory_store *store = arg;

    for (size_t i = 0; i < store->n_metrics; i++)
        TRY(visit(visit_arg, store->metrics[i]));
    return STATUS_OK;
}

enum status fed_memory_store_create(struct fed_memory_store **out)
{
    struct fed_memory_store *store;

    TRY(mem_alloc(1, sizeof *store, &store));
    store->end = &store->first;
    store->last.round = -1;
    strbuf_init(&store->audit, AUDIT_MOST);
    *out = store;
    return STATUS_OK;
}

void fed_memory_store_destroy(struct fed_memory_store *store)
{
    if (!store)
        return;
    for (struct kept *kept = store->first, *next; kept; kept = next) {
        next = kept->next;
        free_kept(kept);
    }
    free_commit(&store->last);
    for (size_t i = 0; i < store->n_metrics; i++)
        mem_free(store->metrics[i]);
    mem_free(store->metrics);
    strbuf_release(&store->audit);
    mem_free(store);
}

struct fed_store fed_memory_store(struct fed_memory_store *store)
{
    return (struct fed_store){ .arg = store,
                               .append = append,
                               .replay = replay,
                               .commit = commit,
                               .last = last,
                               .history = history,
                               .audit = audit };
}

void fed_memory_store_forget(struct fed_memory_store *store)
{
    store->forgets = true;
}

const char *fed_memory_store_audit(const struct fed_memory_store *store)
{
    return store->audit.text;
}
