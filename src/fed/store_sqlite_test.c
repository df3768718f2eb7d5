/* SPDX-License-Identifier: MIT */
/* store_sqlite_test.c - what was returned from is there after any end of the process. */
#include "fed/store_sqlite.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"

static struct strbuf lines;

static enum status print_record(void *arg, const struct fed_record *record)
{
    (void)arg;
    strbuf_printf(&lines, "%lld %d %s %.*s;", (long long)record->round, record->kind,
                  record->client, (int)record->length, (const char *)record->bytes);
    return STATUS_OK;
}

static enum status print_metrics(void *arg, const char *metrics)
{
    (void)arg;
    strbuf_printf(&lines, "%s;", metrics);
    return STATUS_OK;
}

static void print_audit(void *arg, int64_t time, int64_t round, const char *client,
                        const char *what)
{
    (void)arg;
    CHECK(time > 0);
    strbuf_printf(&lines, "%lld %s %s;", (long long)round, client, what);
}

static struct fed_record record_of(int64_t round, int kind, const char *client,
                                   const char *bytes)
{
    return (struct fed_record){
        .round = round, .kind = kind, .client = client, .bytes = bytes, .length = strlen(bytes)
    };
}

static void check_replay(struct fed_store *store, int64_t round, const char *expected)
{
    strbuf_init(&lines, 1 << 16);
    CHECK_OK(store->replay(store->arg, round, print_record, NULL));
    CHECK_TEXT(expected, lines.text);
    strbuf_release(&lines);
}

static void test_a_round_is_read_back(void)
{
    const char *folder = test_folder();
    struct fed_sqlite *sqlite;
    struct fed_commit commit;

    CHECK_OK(fed_sqlite_open(folder, &sqlite));
    struct fed_store store = fed_sqlite_store(sqlite);
    CHECK_STATUS(STATUS_NOT_FOUND, store.last(store.arg, &commit));
    const struct fed_record one = record_of(-1, 7, "a", "hello"),
                            two = record_of(0, 2, "b", "update"),
                            three = record_of(0, 100, "", "");
    CHECK_OK(store.append(store.arg, &one));
    CHECK_OK(store.append(store.arg, &two));
    CHECK_OK(store.append(store.arg, &three));
    fed_sqlite_close(sqlite);

    CHECK_OK(fed_sqlite_open(folder, &sqlite));
    store = fed_sqlite_store(sqlite);
    check_replay(&store, 0, "-1 7 a hello;0 2 b update;0 100  ;");
    commit = (struct fed_commit){
        .round = 1, .state = "state", .state_length = 5, .metrics = "{1}", .ledger = "{}"
    };
    CHECK_OK(store.commit(store.arg, &commit));
    CHECK(store.commit(store.arg, &commit) != STATUS_OK); /* a round is committed once */
    check_replay(&store, 1, "-1 7 a hello;");
    commit.round = 2;
    commit.metrics = "{2}";
    CHECK_OK(store.commit(store.arg, &commit));
    fed_sqlite_close(sqlite);

    CHECK_OK(fed_sqlite_open(folder, &sqlite));
    store = fed_sqlite_store(sqlite);
    CHECK_OK(store.last(store.arg, &commit));
    CHECK_INT(2, commit.round);
    CHECK_INT(5, commit.state_length);
    CHECK(memcmp(commit.state, "state", 5) == 0);
    CHECK_TEXT("{2}", commit.metrics);
    strbuf_init(&lines, 1 << 16);
    CHECK_OK(store.history(store.arg, print_metrics, NULL));
    CHECK_TEXT("{1};{2};", lines.text);
    strbuf_release(&lines);
    fed_sqlite_close(sqlite);
}

/* Of a round that is over nobody finds an update in the files. */
static void test_updates_are_erased_with_their_round(void)
{
    const char *folder = test_folder();
    struct fed_sqlite *sqlite;
    char path[4096], *text;
    size_t length;

    CHECK_OK(fed_sqlite_open(folder, &sqlite));
    struct fed_store store = fed_sqlite_store(sqlite);
    const struct fed_record update = record_of(0, 2, "b", "what nobody may read later on");
    CHECK_OK(store.append(store.arg, &update));
    const struct fed_commit commit = {
        .round = 1, .state = "s", .state_length = 1, .metrics = "", .ledger = ""
    };
    CHECK_OK(store.commit(store.arg, &commit));
    check_replay(&store, 0, "0 2 b ;");
    fed_sqlite_close(sqlite); /* the write-ahead log goes with it */
    snprintf(path, sizeof path, "%s/federation.sqlite3", folder);
    CHECK_OK(file_read(path, 1 << 24, &text, &length));
    CHECK(memmem(text, length, "nobody may read", 15) == NULL);
    mem_free(text);
    snprintf(path, sizeof path, "%s/federation.sqlite3-wal", folder);
    CHECK(!file_exists(path));
}

static void test_certificates_values_and_audit_are_kept(void)
{
    struct fed_sqlite *sqlite;
    uint8_t *der;
    size_t length;
    char *text;

    CHECK_OK(fed_sqlite_open(test_folder(), &sqlite));
    struct fed_store store = fed_sqlite_store(sqlite);
    CHECK_OK(fed_sqlite_get(sqlite, "terms", &text));
    CHECK(!text);
    CHECK_OK(fed_sqlite_set(sqlite, "terms", "one"));
    CHECK_OK(fed_sqlite_set(sqlite, "terms", "two"));
    CHECK_OK(fed_sqlite_get(sqlite, "terms", &text));
    CHECK_TEXT("two", text);
    mem_free(text);
    CHECK_STATUS(STATUS_NOT_FOUND, fed_sqlite_certificate(sqlite, "a", &der, &length));
    CHECK_OK(fed_sqlite_set_certificate(sqlite, "a", "der", 3));
    CHECK_OK(fed_sqlite_certificate(sqlite, "a", &der, &length));
    CHECK(length == 3 && memcmp(der, "der", 3) == 0);
    mem_free(der);
    CHECK_OK(store.audit(store.arg, 3, "a", "first"));
    CHECK_OK(store.audit(store.arg, 4, "", "second"));
    strbuf_init(&lines, 1 << 16);
    CHECK_OK(fed_sqlite_audit(sqlite, 1, print_audit, NULL));
    CHECK_OK(fed_sqlite_audit(sqlite, 9, print_audit, NULL));
    CHECK_TEXT("4  second;4  second;3 a first;", lines.text);
    strbuf_release(&lines);
    fed_sqlite_close(sqlite);
}

static void test_one_coordinator_and_its_own_files(void)
{
    const char *folder = test_folder();
    struct fed_sqlite *one, *two;
    char path[4096];

    CHECK_OK(fed_sqlite_open(folder, &one));
    CHECK_STATUS(STATUS_USAGE, fed_sqlite_open(folder, &two));
    CHECK_MESSAGE("another coordinator");
    fed_sqlite_close(one);
    snprintf(path, sizeof path, "%s/federation.sqlite3", folder);
    CHECK_OK(file_replace(path, "this is no database, but it is long enough for one", 50));
    CHECK(fed_sqlite_open(folder, &two) != STATUS_OK);
}

static void count_line(void *arg, int64_t when, int64_t round, const char *client,
                       const char *what)
{
    (void)when, (void)round, (void)client, (void)what;
    ++*(int *)arg;
}

/* A process appends until it is killed: what it said it had appended is there, and the audit log has it. */
static void test_what_was_appended_survives_kill(void)
{
    const char *folder = test_folder();
    struct fed_sqlite *sqlite;
    int channel[2], said = 0, number;

    CHECK(pipe(channel) == 0);
    const pid_t child = fork();
    if (child == 0) {
        if (fed_sqlite_open(folder, &sqlite) != STATUS_OK)
            _exit(1);
        struct fed_store store = fed_sqlite_store(sqlite);
        for (int i = 1;; i++) {
            char text[32];
            snprintf(text, sizeof text, "%d", i);
            struct fed_record record = record_of(0, 2, "a", text);
            record.what = "gave";
            if (store.append(store.arg, &record) != STATUS_OK ||
                write(channel[1], &i, sizeof i) != sizeof i)
                _exit(1);
        }
    }
    close(channel[1]);
    while (said < 20 && read(channel[0], &number, sizeof number) == sizeof number)
        said = number;
    kill(child, SIGKILL);
    while (read(channel[0], &number, sizeof number) == sizeof number)
        said = number;
    waitpid(child, NULL, 0);
    close(channel[0]);
    CHECK(said >= 20);

    CHECK_OK(fed_sqlite_open(folder, &sqlite));
    struct fed_store store = fed_sqlite_store(sqlite);
    strbuf_init(&lines, 1 << 24);
    CHECK_OK(store.replay(store.arg, 0, print_record, NULL));
    char expected[64];
    for (int i = 1; i <= said; i++) {
        snprintf(expected, sizeof expected, "0 2 a %d;", i);
        CHECK(strstr(lines.text, expected) != NULL);
    }
    int records = 0, audited = 0;
    for (const char *at = lines.text; (at = strchr(at, ';')); at++)
        records++;
    CHECK_OK(fed_sqlite_audit(sqlite, INT_MAX, count_line, &audited));
    CHECK_INT(records, audited);
    strbuf_release(&lines);
    fed_sqlite_close(sqlite);
}

const struct test tests[] = {
    { .name = "a round is read back", .run = test_a_round_is_read_back },
    { .name = "updates are erased with their round",
      .run = test_updates_are_erased_with_their_round },
    { .name = "certificates, values and audit are kept",
      .run = test_certificates_values_and_audit_are_kept },
    { .name = "one coordinator, and its own files",
      .run = test_one_coordinator_and_its_own_files },
    { .name = "what was appended survives kill", .run = test_what_was_appended_survives_kill },
    { 0 },
};
