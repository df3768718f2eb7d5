/* SPDX-License-Identifier: MIT */
/* store_sqlite.c - a store in SQLite.
 *
 * A row of `record` is an accepted message or a decision of the server, in the order of their numbers; `round_state`
 * has a row for each commit, the last with the engine's state. All statements are prepared once.
 */
#include "fed/store_sqlite.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "fed/start.h"

enum { VERSION = 1, APPLICATION = 0x74666564 /* "tfed" */ };

static const char file_name[] = "federation.sqlite3";
static const char schema[] =
    "CREATE TABLE value (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
    "CREATE TABLE record (number INTEGER PRIMARY KEY, time INTEGER NOT NULL, round INTEGER NOT "
    "NULL, kind INTEGER NOT NULL, client TEXT NOT NULL, length INTEGER NOT NULL, sha256 TEXT "
    "NOT NULL, bytes BLOB);"
    "CREATE INDEX record_of_round ON record (round);"
    "CREATE TABLE round_state (round INTEGER PRIMARY KEY, time INTEGER NOT NULL, state BLOB, "
    "metrics TEXT NOT NULL, ledger TEXT NOT NULL);"
    "CREATE TABLE audit (number INTEGER PRIMARY KEY, time INTEGER NOT NULL, round INTEGER NOT "
    "NULL, client TEXT NOT NULL, what TEXT NOT NULL);"
    "CREATE TABLE participant (name TEXT PRIMARY KEY, certificate BLOB NOT NULL, first INTEGER "
    "NOT NULL, last INTEGER NOT NULL);";

enum statement {
    APPEND,
    REPLAY,
    COMMIT,
    FORGET_STATES,
    FORGET_BYTES,
    LAST,
    HISTORY,
    ADD_AUDIT,
    GET_AUDIT,
    SET_VALUE,
    GET_VALUE,
    SET_CERTIFICATE,
    GET_CERTIFICATE,
    STATEMENTS
};

static const char *const texts[STATEMENTS] = {
    [APPEND] = "INSERT INTO record (time, round, kind, client, length, sha256, bytes) VALUES "
               "(?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    [REPLAY] = "SELECT round, kind, client, bytes, length FROM record WHERE round = -1 OR "
               "round = ?1 ORDER BY number",
    [COMMIT] = "INSERT INTO round_state (time, round, state, metrics, ledger) VALUES (?1, ?2, "
               "?3, ?4, ?5)",
    [FORGET_STATES] = "UPDATE round_state SET state = NULL WHERE round < ?1 AND state IS NOT "
                      "NULL",
    [FORGET_BYTES] = "UPDATE record SET bytes = NULL WHERE round >= 0 AND round < ?1 AND bytes "
                     "IS NOT NULL",
    [LAST] = "SELECT round, state, metrics, ledger FROM round_state ORDER BY round DESC LIMIT "
             "1",
    [HISTORY] = "SELECT metrics FROM round_state ORDER BY round",
    [ADD_AUDIT] = "INSERT INTO audit (time, round, client, what) VALUES (?1, ?2, ?3, ?4)",
    [GET_AUDIT] = "SELECT time, round, client, what FROM audit ORDER BY number DESC LIMIT ?1",
    [SET_VALUE] = "INSERT INTO value (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO "
                  "UPDATE SET value = ?2",
    [GET_VALUE] = "SELECT value FROM value WHERE name = ?1",
    [SET_CERTIFICATE] = "INSERT INTO participant (name, certificate, first, last) VALUES (?1, "
                        "?2, ?3, ?3) ON CONFLICT (name) DO UPDATE SET certificate = ?2, last = "
                        "?3",
    [GET_CERTIFICATE] = "SELECT certificate FROM participant WHERE name = ?1",
};

struct fed_sqlite {
    char *path;
    int lock; /* of the folder */
    sqlite3 *db;
    sqlite3_stmt *statement[STATEMENTS];
    /* The last commit, as `last` gave it out. */
    char *metrics, *ledger;
    uint8_t *state;
};

static enum status fail_sqlite(const struct fed_sqlite *store, const char *what)
{
    return FAIL(STATUS_IO, "%s: %s: %s", store->path, what,
                store->db ? sqlite3_errmsg(store->db) : "no memory");
}

static enum status run_text(struct fed_sqlite *store, const char *text)
{
    if (sqlite3_exec(store->db, text, NULL, NULL, NULL) != SQLITE_OK)
        return fail_sqlite(store, "cannot be written");
    return STATUS_OK;
}

/* Statements: bind, step, rest ----------------------------------------------------------------- */

static sqlite3_stmt *begin(struct fed_sqlite *store, enum statement which)
{
    sqlite3_stmt *statement = store->statement[which];

    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return statement;
}

static void bind_text(sqlite3_stmt *statement, int at, const char *text)
{
    sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC);
}

static void bind_bytes(sqlite3_stmt *statement, int at, const void *bytes, size_t length)
{
    sqlite3_bind_blob64(statement, at, length ? bytes : "", length, SQLITE_STATIC);
}

/* Runs a statement that gives no rows. */
static enum status finish(struct fed_sqlite *store, sqlite3_stmt *statement)
{
    const int code = sqlite3_step(statement);

    if (code == SQLITE_DONE) {
        sqlite3_reset(statement);
        return STATUS_OK;
    }
    const enum status status = fail_sqlite(store, "cannot be written");
    sqlite3_reset(statement);
    return status;
}

/* *there: whether a row has come. */
static enum status next_row(struct fed_sqlite *store, sqlite3_stmt *statement, bool *there)
{
    const int code = sqlite3_step(statement);

    *there = code == SQLITE_ROW;
    if (code == SQLITE_ROW || code == SQLITE_DONE)
        return STATUS_OK;
    return fail_sqlite(store, "cannot be read");
}

static const char *text_at(sqlite3_stmt *statement, int column)
{
    const char *text = (const char *)sqlite3_column_text(statement, column);

    return text ? text : "";
}

static enum status copy_bytes(sqlite3_stmt *statement, int column, uint8_t **out,
                              size_t *length)
{
    const void *bytes = sqlite3_column_blob(statement, column);
    const size_t count = (size_t)sqlite3_column_bytes(statement, column);

    TRY(mem_alloc(count, 1, out));
    if (count)
        memcpy(*out, bytes, count);
    *length = count;
    return STATUS_OK;
}

/* The store's functions ---------------------------------------------------------------------------- */

static enum status add_audit(void *arg, int64_t round, const char *client, const char *what)
{
    struct fed_sqlite *store = arg;
    sqlite3_stmt *statement = begin(store, ADD_AUDIT);

    sqlite3_bind_int64(statement, 1, time(NULL));
    sqlite3_bind_int64(statement, 2, round);
    bind_text(statement, 3, client);
    bind_text(statement, 4, what);
    return finish(store, statement);
}

static enum status write_record(struct fed_sqlite *store, const struct fed_record *record)
{
    sqlite3_stmt *statement = begin(store, APPEND);
    struct sha256 hash;
    char digits[SHA256_HEX];

    sha256_init(&hash);
    sha256_add(&hash, record->bytes, record->length);
    sha256_end_hex(&hash, digits);
    sqlite3_bind_int64(statement, 1, time(NULL));
    sqlite3_bind_int64(statement, 2, record->round);
    sqlite3_bind_int(statement, 3, record->kind);
    bind_text(statement, 4, record->client);
    sqlite3_bind_int64(statement, 5, (sqlite3_int64)record->length);
    bind_text(statement, 6, digits);
    bind_bytes(statement, 7, record->bytes, record->length);
    TRY(finish(store, statement));
    return record->what ? add_audit(store, record->round, record->client, record->what)
                        : STATUS_OK;
}

/* Ends what BEGIN began: all of it is there, or nothing. */
static enum status end_transaction(struct fed_sqlite *store, enum status status)
{
    if (status == STATUS_OK)
        status = run_text(store, "COMMIT");
    if (status != STATUS_OK && !sqlite3_get_autocommit(store->db))
        sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
    return status;
}

static enum status append(void *arg, const struct fed_record *record)
{
    struct fed_sqlite *store = arg;

    TRY(run_text(store, "BEGIN IMMEDIATE"));
    return end_transaction(store, write_record(store, record));
}

static enum status replay(void *arg, int64_t round,
                          enum status (*visit)(void *arg, const struct fed_record *record),
                          void *visit_arg)
{
    struct fed_sqlite *store = arg;
    sqlite3_stmt *statement;
    enum status status;
    bool there;

    /* A statement of its own: visit may append. */
    if (sqlite3_prepare_v2(store->db, texts[REPLAY], -1, &statement, NULL) != SQLITE_OK)
        return fail_sqlite(store, "cannot be read");
    sqlite3_bind_int64(statement, 1, round);
    while ((status = next_row(store, statement, &there)) == STATUS_OK && there) {
        const size_t length = (size_t)sqlite3_column_bytes(statement, 3);
        const struct fed_record record = { .round = sqlite3_column_int64(statement, 0),
                                           .kind = sqlite3_column_int(statement, 1),
                                           .client = text_at(statement, 2),
                                           .bytes =
                                               length ? sqlite3_column_blob(statement, 3) : "",
                                           .length = length };
        status = visit(visit_arg, &record);
        if (status != STATUS_OK)
            break;
    }
    sqlite3_finalize(statement);
    return status;
}

static enum status write_commit(struct fed_sqlite *store, const struct fed_commit *commit)
{
    sqlite3_stmt *statement = begin(store, COMMIT);

    sqlite3_bind_int64(statement, 1, time(NULL));
    sqlite3_bind_int64(statement, 2, commit->round);
    bind_bytes(statement, 3, commit->state, commit->state_length);
    bind_text(statement, 4, commit->metrics);
    bind_text(statement, 5, commit->ledger);
    TRY(finish(store, statement));
    statement = begin(store, FORGET_STATES);
    sqlite3_bind_int64(statement, 1, commit->round);
    TRY(finish(store, statement));
    statement = begin(store, FORGET_BYTES);
    sqlite3_bind_int64(statement, 1, commit->round);
    return finish(store, statement);
}

static enum status commit_round(void *arg, const struct fed_commit *commit)
{
    struct fed_sqlite *store = arg;

    TRY(run_text(store, "BEGIN IMMEDIATE"));
    return end_transaction(store, write_commit(store, commit));
}

static void forget_last(struct fed_sqlite *store)
{
    mem_free(store->metrics);
    mem_free(store->ledger);
    mem_free(store->state);
    store->metrics = store->ledger = NULL;
    store->state = NULL;
}

static enum status last(void *arg, struct fed_commit *out)
{
    struct fed_sqlite *store = arg;
    sqlite3_stmt *statement = begin(store, LAST);
    size_t length = 0;
    bool there;

    TRY(next_row(store, statement, &there));
    if (!there)
        return FAIL(STATUS_NOT_FOUND, "%s: no round is done yet", store->path);
    forget_last(store);
    const int64_t round = sqlite3_column_int64(statement, 0);
    enum status status = copy_bytes(statement, 1, &store->state, &length);
    if (status == STATUS_OK)
        status = mem_strdup(text_at(statement, 2), &store->metrics);
    if (status == STATUS_OK)
        status = mem_strdup(text_at(statement, 3), &store->ledger);
    sqlite3_reset(statement);
    TRY(status);
    *out = (struct fed_commit){ .round = round,
                                .state = store->state,
                                .state_length = length,
                                .metrics = store->metrics,
                                .ledger = store->ledger };
    return STATUS_OK;
}

static enum status history(void *arg, enum status (*visit)(void *arg, const char *metrics),
                           void *visit_arg)
{
    struct fed_sqlite *store = arg;
    sqlite3_stmt *statement = begin(store, HISTORY);
    enum status status;
    bool there;

    while ((status = next_row(store, statement, &there)) == STATUS_OK && there) {
        status = visit(visit_arg, text_at(statement, 0));
        if (status != STATUS_OK)
            break;
    }
    sqlite3_reset(statement);
    return status;
}

struct fed_store fed_sqlite_store(struct fed_sqlite *store)
{
    return (struct fed_store){ .arg = store,
                               .append = append,
                               .replay = replay,
                               .commit = commit_round,
                               .last = last,
                               .history = history,
                               .audit = add_audit };
}

/* What the carrier keeps ------------------------------------------------------------------------------ */

enum status fed_sqlite_set(struct fed_sqlite *store, const char *name, const char *value)
{
    sqlite3_stmt *statement = begin(store, SET_VALUE);

    bind_text(statement, 1, name);
    bind_text(statement, 2, value);
    return finish(store, statement);
}

enum status fed_sqlite_get(struct fed_sqlite *store, const char *name, char **out)
{
    sqlite3_stmt *statement = begin(store, GET_VALUE);
    bool there;

    bind_text(statement, 1, name);
    TRY(next_row(store, statement, &there));
    *out = NULL;
    const enum status status = there ? mem_strdup(text_at(statement, 0), out) : STATUS_OK;
    sqlite3_reset(statement);
    return status;
}

enum status fed_sqlite_set_certificate(struct fed_sqlite *store, const char *client,
                                       const void *der, size_t length)
{
    sqlite3_stmt *statement = begin(store, SET_CERTIFICATE);

    bind_text(statement, 1, client);
    bind_bytes(statement, 2, der, length);
    sqlite3_bind_int64(statement, 3, time(NULL));
    return finish(store, statement);
}

enum status fed_sqlite_certificate(struct fed_sqlite *store, const char *client, uint8_t **out,
                                   size_t *out_length)
{
    sqlite3_stmt *statement = begin(store, GET_CERTIFICATE);
    bool there;

    bind_text(statement, 1, client);
    TRY(next_row(store, statement, &there));
    const enum status status =
        there ? copy_bytes(statement, 0, out, out_length)
              : FAIL(STATUS_NOT_FOUND, "%s: has not been here yet", client);
    sqlite3_reset(statement);
    return status;
}

enum status fed_sqlite_audit(struct fed_sqlite *store, int count,
                             void (*visit)(void *arg, int64_t time, int64_t round,
                                           const char *client, const char *what),
                             void *arg)
{
    sqlite3_stmt *statement = begin(store, GET_AUDIT);
    enum status status;
    bool there;

    sqlite3_bind_int(statement, 1, count);
    while ((status = next_row(store, statement, &there)) == STATUS_OK && there)
        visit(arg, sqlite3_column_int64(statement, 0), sqlite3_column_int64(statement, 1),
              text_at(statement, 2), text_at(statement, 3));
    sqlite3_reset(statement);
    return status;
}

/* Life --------------------------------------------------------------------------------------------- */

static enum status lock_state(const char *folder, int *out)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return FAIL(STATUS_IO, "%s: cannot be opened", folder);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        close(fd);
        return FAIL(STATUS_USAGE, "%s: another coordinator runs on this state", folder);
    }
    *out = fd;
    return STATUS_OK;
}

static enum status read_number(struct fed_sqlite *store, const char *text, int *out)
{
    sqlite3_stmt *statement;
    bool there;

    if (sqlite3_prepare_v2(store->db, text, -1, &statement, NULL) != SQLITE_OK)
        return FAIL(STATUS_CORRUPT, "%s: is no state of a coordinator: %s", store->path,
                    sqlite3_errmsg(store->db));
    const enum status status = next_row(store, statement, &there);
    *out = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return status;
}

/* A new database gets its tables, an old one is looked at: it may be somebody else's. */
static enum status check_schema(struct fed_sqlite *store)
{
    int version, application, tables;
    char text[2048];

    TRY(read_number(store, "PRAGMA user_version", &version));
    TRY(read_number(store, "PRAGMA application_id", &application));
    TRY(read_number(store, "SELECT count(*) FROM sqlite_schema", &tables));
    if (version == 0 && application == 0 && tables == 0) {
        snprintf(text, sizeof text,
                 "BEGIN IMMEDIATE; %s PRAGMA user_version = %d; PRAGMA application_id = %d; "
                 "COMMIT",
                 schema, VERSION, APPLICATION);
        return run_text(store, text);
    }
    if (application != APPLICATION || version != VERSION)
        return FAIL(STATUS_CORRUPT, "%s: is no state of a coordinator of this version",
                    store->path);
    return STATUS_OK;
}

static enum status open_database(struct fed_sqlite *store)
{
    static const char settings[] = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; "
                                   "PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF";

    if (sqlite3_open_v2(store->path, &store->db,
                        SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX,
                        NULL) != SQLITE_OK)
        return fail_sqlite(store, "cannot be opened");
    sqlite3_busy_timeout(store->db, 5000);
    TRY(check_schema(store));
    TRY(run_text(store, settings));
    for (int i = 0; i < STATEMENTS; i++) {
        if (sqlite3_prepare_v2(store->db, texts[i], -1, &store->statement[i], NULL) !=
            SQLITE_OK)
            return fail_sqlite(store, "cannot be used");
    }
    return STATUS_OK;
}

bool fed_sqlite_exists(const char *folder)
{
    char *path;

    if (file_join(folder, file_name, &path) != STATUS_OK)
        return false;
    const bool exists = file_exists(path);
    mem_free(path);
    return exists;
}

enum status fed_sqlite_open(const char *folder, struct fed_sqlite **out)
{
    struct fed_sqlite *store;
    const mode_t before = umask(077); /* updates of others, while a round runs */

    enum status status = fed_start();
    if (status == STATUS_OK)
        status = file_make_folder(folder);
    if (status == STATUS_OK)
        status = mem_alloc(1, sizeof *store, &store);
    if (status == STATUS_OK) {
        store->lock = -1;
        status = lock_state(folder, &store->lock);
        if (status == STATUS_OK)
            status = file_join(folder, file_name, &store->path);
        if (status == STATUS_OK)
            status = open_database(store);
        if (status != STATUS_OK)
            fed_sqlite_close(store);
    }
    umask(before);
    if (status == STATUS_OK)
        *out = store;
    return status;
}

void fed_sqlite_close(struct fed_sqlite *store)
{
    if (!store)
        return;
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(store->statement[i]);
    sqlite3_close(store->db);
    forget_last(store);
    if (store->lock >= 0)
        close(store->lock);
    mem_free(store->path);
    mem_free(store);
}
