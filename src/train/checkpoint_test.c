/* SPDX-License-Identifier: MIT */
/* checkpoint_test.c - whatever happens to a save, a good generation can be loaded.
 *
 * The program defines write, fsync, rename, remove and mkdir itself, so that every such call of
 * a save can be made to fail in turn; elsewhere they do what the system's do.
 */
#include "train/checkpoint.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 3000, MAX_FILE = 1 << 20 };

/* Failing system calls */

enum call { CALL_WRITE, CALL_FSYNC, CALL_RENAME, CALL_MKDIR, CALL_COUNT };

static struct {
    enum call call;
    int after;          /* how many calls work before the one that fails; < 0: all work */
    int error;          /* its errno */
    bool writes_halves; /* every write takes half of what it is given */
    bool removes_nothing;
} fault = { .after = -1 };

static struct strbuf *events; /* where syncs and renames are noted, if not NULL */

static bool must_fail(enum call call)
{
    if (fault.after < 0 || fault.call != call || fault.after-- > 0)
        return false;
    errno = fault.error;
    return true;
}

ssize_t write(int fd, const void *data, size_t length)
{
    if (fd > STDERR_FILENO) {
        if (must_fail(CALL_WRITE))
            return -1;
        if (fault.writes_halves && length > 1)
            length /= 2;
    }
    return syscall(SYS_write, fd, data, length);
}

/* Does not go to the disk, which takes long: no test pulls the plug. */
int fsync(int fd)
{
    char link[32], path[512];

    if (must_fail(CALL_FSYNC))
        return -1;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t length = readlink(link, path, sizeof path);
    if (length < 0) {
        errno = EBADF;
        return -1;
    }
    if (events)
        strbuf_printf(events, "sync %.*s\n", (int)length, path);
    return 0;
}

int rename(const char *from, const char *to)
{
    if (must_fail(CALL_RENAME))
        return -1;
    if (events)
        strbuf_printf(events, "rename %s %s\n", from, to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int remove(const char *path)
{
    if (fault.removes_nothing) {
        errno = EBUSY;
        return -1;
    }
    return (int)syscall(SYS_unlinkat, AT_FDCWD, path, file_is_folder(path) ? AT_REMOVEDIR : 0);
}

int mkdir(const char *path, mode_t mode)
{
    return must_fail(CALL_MKDIR) ? -1 : (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode);
}

/* A small model whose numbers follow from the step */

static const char *folder_of_run(void)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/run/checkpoint", test_folder());
    return path;
}

static float value_of(uint64_t step, size_t i)
{
    return (float)(step % 1000 * 4 + i % 4);
}

static enum status save_with(const char *folder, uint64_t step, int keep, const char *state)
{
    static float weight[COUNT], bias[4], momentum[COUNT];
    const struct safetensors_entry weights[] = {
        { "layer.weight", DTYPE_F32, { 2, { COUNT / 4, 4 } }, weight },
        { "layer.bias", DTYPE_F32, { 1, { 4 } }, bias },
    };
    const struct safetensors_entry optimizer[] = {
        { "layer.weight.momentum", DTYPE_F32, { 2, { COUNT / 4, 4 } }, momentum },
    };
    const struct checkpoint_contents contents = {
        .step = step,
        .weights = weights,
        .n_weights = 2,
        .optimizer = optimizer,
        .n_optimizer = 1,
        .state = state,
    };

    for (size_t i = 0; i < COUNT; i++) {
        weight[i] = value_of(step, i);
        momentum[i] = -value_of(step, i);
    }
    return checkpoint_save(folder, &contents, keep);
}

static enum status save(const char *folder, uint64_t step, int keep)
{
    char state[64];

    snprintf(state, sizeof state, "{\"step\": %" PRIu64 "}", step);
    return save_with(folder, step, keep, state);
}

static bool holds_values(const struct safetensors *file, const char *name, uint64_t step,
                         float sign)
{
    const struct safetensors_entry *entry = safetensors_find(file, name);
    float value;

    if (!entry || entry->dtype != DTYPE_F32 || shape_count(&entry->shape) != COUNT)
        return false;
    for (size_t i = 0; i < COUNT; i++) {
        memcpy(&value, (const char *)entry->data + i * sizeof value, sizeof value);
        if (value != sign * value_of(step, i))
            return false;
    }
    return true;
}

static void check_contents(const struct checkpoint *checkpoint)
{
    const uint64_t step = checkpoint_step(checkpoint);
    char state[64];

    snprintf(state, sizeof state, "{\"step\": %" PRIu64 "}", step);
    CHECK_TEXT(state, checkpoint_state(checkpoint));
    CHECK(holds_values(checkpoint_weights(checkpoint), "layer.weight", step, 1));
    CHECK(holds_values(checkpoint_optimizer(checkpoint), "layer.weight.momentum", step, -1));
    CHECK_INT(2, safetensors_count(checkpoint_weights(checkpoint)));
    CHECK_TEXT("pt", safetensors_metadata(checkpoint_weights(checkpoint), "format"));
}

/* Loads with standard error in a file, and gives what was written there. */
static enum status load_and_listen(const char *folder, struct checkpoint **out, char **out_said)
{
    struct stat about;

    const int kept = dup(STDERR_FILENO), file = memfd_create("stderr", MFD_CLOEXEC);
    CHECK(kept >= 0 && file >= 0);
    dup2(file, STDERR_FILENO);
    const enum status status = checkpoint_load(folder, out);
    dup2(kept, STDERR_FILENO);
    close(kept);

    CHECK_INT(0, fstat(file, &about));
    CHECK_OK(mem_alloc((size_t)about.st_size + 1, 1, out_said));
    CHECK_INT(about.st_size, pread(file, *out_said, (size_t)about.st_size, 0));
    close(file);
    return status;
}

/* The same for those who do not care what is said. */
static enum status load_quietly(const char *folder, struct checkpoint **out)
{
    char *said;
    const enum status status = load_and_listen(folder, out, &said);

    mem_free(said);
    return status;
}

static void check_loads(const char *folder, uint64_t step)
{
    struct checkpoint *checkpoint;

    CHECK_OK(load_quietly(folder, &checkpoint));
    CHECK_INT(step, checkpoint_step(checkpoint));
    check_contents(checkpoint);
    checkpoint_close(checkpoint);
}

static const char *path_in(const char *folder, uint64_t step, const char *name)
{
    static char path[768];

    snprintf(path, sizeof path, "%s/step-%012" PRIu64 "%s%s", folder, step, name[0] ? "/" : "",
             name);
    return path;
}

/* How many names in the folder hold `part`. */
static int count_names(const char *folder, const char *part)
{
    int count = 0;
    DIR *stream = opendir(folder);

    CHECK(stream);
    for (const struct dirent *entry; (entry = readdir(stream));)
        count += entry->d_name[0] != '.' && strstr(entry->d_name, part);
    closedir(stream);
    return count;
}

/* Writes over what is there: ext4 syncs a file that was emptied first. */
static void put_file(const char *path, const void *bytes, size_t length)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

    CHECK(fd >= 0);
    CHECK_INT(length, write(fd, bytes, length));
    CHECK_INT(0, ftruncate(fd, (off_t)length));
    close(fd);
}

static void put_text(const char *path, const char *text)
{
    put_file(path, text, strlen(text));
}

/* Ordinary life */

static const char *const files[] = { "weights.safetensors", "optimizer.safetensors",
                                     "state.json", "manifest.json" };
enum { N_FILES = 4 };

static void test_what_is_saved_loads(void)
{
    const char *folder = folder_of_run();
    struct checkpoint *checkpoint;

    CHECK_OK(save(folder, 1234, 2));
    CHECK_INT(1, count_names(folder, ""));
    CHECK_OK(checkpoint_load(folder, &checkpoint));
    CHECK_INT(1234, checkpoint_step(checkpoint));
    CHECK_TEXT(path_in(folder, 1234, ""), checkpoint_path(checkpoint));
    check_contents(checkpoint);
    checkpoint_close(checkpoint);
    checkpoint_close(NULL);
    CHECK_INT(4, count_names(path_in(folder, 1234, ""), ""));
}

/* Where the line stands in the text; it must be there. */
static size_t place_of(const struct strbuf *text, const char *format, ...) PRINTF_LIKE(2, 3);
static size_t place_of(const struct strbuf *text, const char *format, ...)
{
    char line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *found = strstr(text->text, line);
    if (!found)
        test_fail(__FILE__, __LINE__, "no %s in %s", line, text->text);
    return (size_t)(found - text->text);
}

static void test_everything_is_synced_before_it_is_renamed(void)
{
    const char *folder = folder_of_run();
    const long pid = (long)getpid();
    struct strbuf text;
    char temporary[1024];

    strbuf_init(&text, MAX_FILE);
    events = &text;
    const enum status status = save(folder, 3, 1);
    events = NULL;
    CHECK_OK(status);
    CHECK_OK(strbuf_status(&text));

    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path_in(folder, 3, ""), pid);
    const size_t in_place =
        place_of(&text, "rename %s %s\n", temporary, path_in(folder, 3, ""));
    for (int i = 0; i < N_FILES; i++) {
        const size_t synced = place_of(&text, "sync %s/%s.tmp-%ld\n", temporary, files[i], pid);
        const size_t renamed = place_of(&text, "rename %s/%s.tmp-%ld %s/%s\n", temporary,
                                        files[i], pid, temporary, files[i]);
        CHECK(synced < renamed && renamed < in_place);
    }
    CHECK(place_of(&text, "sync %s\n", temporary) < in_place);
    CHECK(place_of(&text, "sync %s\n", folder) > in_place);
    strbuf_release(&text);
}

/* An old one is renamed first, so that no crash leaves half of it under its name. */
static void test_the_newest_generations_are_kept(void)
{
    const char *folder = folder_of_run();
    struct strbuf text;

    strbuf_init(&text, MAX_FILE);
    for (uint64_t step = 1; step <= 6; step++)
        CHECK_OK(save(folder, step * 500000000000, 3)); /* more than 12 digits, too */
    CHECK_INT(3, count_names(folder, ""));
    check_loads(folder, 3000000000000);
    events = &text;
    const enum status status = save(folder, 3500000000000, 1);
    events = NULL;
    CHECK_OK(status);
    CHECK_INT(1, count_names(folder, ""));
    check_loads(folder, 3500000000000);
    for (uint64_t step = 4; step <= 6; step++)
        place_of(&text, "rename %s/step-%" PRIu64 " %s/step-%" PRIu64 ".tmp-%ld\n", folder,
                 step * 500000000000, folder, step * 500000000000, (long)getpid());
    strbuf_release(&text);
}

static void test_a_step_saved_again_is_replaced(void)
{
    const char *folder = folder_of_run();
    struct checkpoint *checkpoint;

    CHECK_OK(save_with(folder, 7, 1, "{\"first\": true}"));
    CHECK_OK(checkpoint_load(folder, &checkpoint));
    CHECK_OK(save(folder, 7, 1));
    CHECK_INT(1, count_names(folder, ""));
    CHECK_TEXT("{\"first\": true}", checkpoint_state(checkpoint)); /* unharmed */
    CHECK(holds_values(checkpoint_weights(checkpoint), "layer.weight", 7, 1));
    checkpoint_close(checkpoint);
    check_loads(folder, 7);
}

/* As a crash between the two renames leaves it. */
static void test_a_generation_moved_aside_is_used(void)
{
    const char *folder = folder_of_run();
    char aside[1024];

    CHECK_OK(save(folder, 6, 2));
    CHECK_OK(save(folder, 7, 2));
    snprintf(aside, sizeof aside, "%s.old", path_in(folder, 7, ""));
    CHECK_INT(0, rename(path_in(folder, 7, ""), aside));
    check_loads(folder, 7);

    CHECK_OK(save(folder, 8, 2)); /* it counts as a generation */
    CHECK(file_is_folder(aside));
    CHECK(!file_exists(path_in(folder, 6, "")));
    CHECK_OK(save(folder, 7, 3)); /* it is replaced */
    CHECK(!file_exists(aside));
    check_loads(folder, 7);
}

static void test_later_generations_are_given_up(void)
{
    const char *folder = folder_of_run();

    CHECK_OK(save(folder, 10, 1));
    put_text(path_in(folder, 10, "weights.safetensors"), "damaged");
    CHECK_OK(save(folder, 5, 1));
    CHECK_INT(1, count_names(folder, ""));
    check_loads(folder, 5);
}

static void test_no_generation_is_not_found(void)
{
    const char *folder = folder_of_run();
    static const char *const strange[] = { "step-5",
                                           "step-0000000000005",
                                           "step-00000000000x",
                                           "step-000000000005.older",
                                           "step-99999999999999999999999",
                                           "step--00000000005",
                                           "step-000000000005.tmp-1" };
    struct checkpoint *checkpoint;
    char path[768];

    CHECK_STATUS(STATUS_NOT_FOUND, checkpoint_load(folder, &checkpoint));
    CHECK_OK(file_make_folder(folder));
    CHECK_STATUS(STATUS_NOT_FOUND, checkpoint_load(folder, &checkpoint));
    CHECK_MESSAGE("no checkpoint in");
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, strange[i]);
        CHECK_OK(file_make_folder(path));
    }
    CHECK_STATUS(STATUS_NOT_FOUND, checkpoint_load(folder, &checkpoint));
}

static void test_wrong_arguments_are_refused(void)
{
    const char *folder = folder_of_run();
    static const float number = 1;
    const struct safetensors_entry twice[2] = { { "w", DTYPE_F32, { 0, { 0 } }, &number },
                                                { "w", DTYPE_F32, { 0, { 0 } }, &number } };
    struct checkpoint_contents contents = { .step = 2, .state = "{}" };

    CHECK_OK(save(folder, 1, 1));
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 0));
    contents.state = "{";
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    contents.state = "[]";
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    contents.state = "{}";
    contents.step = UINT64_MAX;
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    contents.step = 2;
    contents.optimizer = twice;
    contents.n_optimizer = 2;
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    CHECK_INT(1, count_names(folder, ""));
    check_loads(folder, 1);
}

static void test_a_file_in_place_of_the_folder_is_refused(void)
{
    char path[512];
    struct checkpoint *checkpoint;

    snprintf(path, sizeof path, "%s/file", test_folder());
    put_text(path, "x");
    CHECK(save(path, 1, 1) != STATUS_OK);
    CHECK(checkpoint_load(path, &checkpoint) != STATUS_OK);
    CHECK(!file_is_folder(path) && file_exists(path));
}

/* Damage */

enum damage { TRUNCATED, EMPTY, FLIPPED, LONGER, MISSING, FOREIGN, A_FOLDER, N_DAMAGES };

static void damage_file(const char *path, enum damage damage)
{
    char *bytes;
    size_t length;

    CHECK_OK(file_read(path, MAX_FILE, &bytes, &length)); /* a NUL follows: one byte more */
    switch (damage) {
    case TRUNCATED:
        put_file(path, bytes, length - length / 3 - 1);
        break;
    case EMPTY:
        put_file(path, bytes, 0);
        break;
    case FLIPPED:
        bytes[length / 2] ^= 4;
        put_file(path, bytes, length);
        break;
    case LONGER:
        put_file(path, bytes, length + 1);
        break;
    case MISSING:
        CHECK_INT(0, unlink(path));
        break;
    case FOREIGN:
        put_text(path, "{\"some\": \"other file\"}");
        break;
    case A_FOLDER:
        CHECK_INT(0, unlink(path));
        CHECK_INT(0, mkdir(path, 0777));
        break;
    case N_DAMAGES:
        break;
    }
    mem_free(bytes);
}

static void test_a_damaged_newest_generation_is_passed_over(void)
{
    const char *folder = folder_of_run();
    struct checkpoint *checkpoint;
    char *said;

    CHECK_OK(save(folder, 1, 2));
    for (int file = 0; file < N_FILES; file++) {
        for (int damage = 0; damage < N_DAMAGES; damage++) {
            CHECK_OK(save(folder, 2, 2));
            damage_file(path_in(folder, 2, files[file]), (enum damage)damage);
            CHECK_OK(load_and_listen(folder, &checkpoint, &said));
            if (checkpoint_step(checkpoint) != 1)
                test_fail(__FILE__, __LINE__, "%s: damage %d was not seen", files[file],
                          damage);
            check_contents(checkpoint);
            checkpoint_close(checkpoint);
            CHECK(strstr(said, "checkpoint passed over: "));
            CHECK(strstr(said, path_in(folder, 2, files[file])));
            CHECK(strchr(said, '\n') == said + strlen(said) - 1); /* one line */
            mem_free(said);
        }
    }
}

static void test_only_damaged_generations_are_corrupt(void)
{
    const char *folder = folder_of_run();
    struct checkpoint *checkpoint;

    for (uint64_t step = 1; step <= 3; step++)
        CHECK_OK(save(folder, step, 3));
    damage_file(path_in(folder, 1, "state.json"), MISSING);
    damage_file(path_in(folder, 2, "weights.safetensors"), FLIPPED);
    damage_file(path_in(folder, 3, "optimizer.safetensors"), TRUNCATED);
    CHECK_STATUS(STATUS_CORRUPT, load_quietly(folder, &checkpoint));
    CHECK_MESSAGE("step-000000000003/optimizer.safetensors");
    CHECK_MESSAGE(" bytes instead of ");
}

/* Puts `text` in the newest manifest instead of `part`; the reason for refusing it holds
 * `reason`, or it is accepted if that is NULL. */
static void check_edited_manifest(const char *part, const char *text, const char *reason)
{
    const char *folder = folder_of_run();
    struct checkpoint *checkpoint;
    struct strbuf edited;
    char *manifest, *at;
    size_t length;

    CHECK_OK(save(folder, 1, 1));
    CHECK_OK(file_read(path_in(folder, 1, "manifest.json"), MAX_FILE, &manifest, &length));
    at = strstr(manifest, part);
    CHECK(at);
    strbuf_init(&edited, MAX_FILE);
    strbuf_add_bytes(&edited, manifest, (size_t)(at - manifest));
    strbuf_add(&edited, text);
    strbuf_add(&edited, at + strlen(part));
    CHECK_OK(strbuf_status(&edited));
    put_text(path_in(folder, 1, "manifest.json"), edited.text);
    strbuf_release(&edited);
    mem_free(manifest);

    if (reason) {
        CHECK_STATUS(STATUS_CORRUPT, load_quietly(folder, &checkpoint));
        CHECK_MESSAGE(reason);
    } else {
        check_loads(folder, 1);
    }
}

static void test_foreign_manifests_are_refused(void)
{
    check_edited_manifest("\"version\":1", "\"version\":2",
                          "format version 2; this program reads 1");
    check_edited_manifest("\"version\":1", "\"version\":\"1\"", "format version -1");
    check_edited_manifest("tutti checkpoint", "other format", "not a manifest");
    check_edited_manifest("\"step\":1", "\"step\":3", "step 3 instead of the folder's 1");
    check_edited_manifest("\"files\"", "\"other\"", "not in the manifest");
    check_edited_manifest("\"bytes\"", "\"octets\"", "not in the manifest");
    check_edited_manifest("\"sha256\"", "\"md5\"", "not in the manifest");
    check_edited_manifest("\"bytes\":", "\"bytes\":9", "instead of 9");
    check_edited_manifest("\"sha256\":\"", "\"sha256\":\"0", "checksum");
    check_edited_manifest("{", "[", "json");
    check_edited_manifest("\"files\":{", "\"note\":\"\",\"files\":{\"x.bin\":{\"bytes\":1},",
                          NULL);
}

/* Tensors that nobody asks for are no damage, nor are files that the manifest does not name. */
static void test_extra_contents_are_fine(void)
{
    const char *folder = folder_of_run();
    static const float number = 1;
    const struct safetensors_entry extra[] = {
        { "w", DTYPE_F32, { 0, { 0 } }, &number },
        { "unknown", DTYPE_F32, { 0, { 0 } }, &number }
    };
    const struct checkpoint_contents contents = {
        .step = 1, .weights = extra, .n_weights = 2, .state = "{\"unknown\": 1}"
    };
    struct checkpoint *checkpoint;

    CHECK_OK(checkpoint_save(folder, &contents, 1));
    put_text(path_in(folder, 1, "notes.txt"), "mine");
    CHECK_OK(checkpoint_load(folder, &checkpoint));
    CHECK(safetensors_find(checkpoint_weights(checkpoint), "w"));
    CHECK_INT(0, safetensors_count(checkpoint_optimizer(checkpoint)));
    checkpoint_close(checkpoint);
}

static void test_every_flipped_bit_of_a_manifest_is_noticed(void)
{
    const char *folder = folder_of_run();
    char *bytes;
    size_t length;

    CHECK_OK(save(folder, 1, 2));
    CHECK_OK(save(folder, 2, 2));
    CHECK_OK(file_read(path_in(folder, 2, "manifest.json"), MAX_FILE, &bytes, &length));
    for (size_t bit = 0; bit < (length - 1) * 8; bit++) { /* the last is a line break */
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        put_file(path_in(folder, 2, "manifest.json"), bytes, length);
        bytes[bit / 8] ^= (char)(1 << bit % 8);

        struct checkpoint *checkpoint;
        CHECK_OK(load_quietly(folder, &checkpoint));
        if (checkpoint_step(checkpoint) != 1)
            test_fail(__FILE__, __LINE__, "bit %zu of %s", bit, bytes);
        checkpoint_close(checkpoint);
    }
    mem_free(bytes);
}

/* Failing saves */

static void test_leftovers_of_dead_processes_are_removed(void)
{
    const char *folder = folder_of_run();
    char dead[1024], living[1024];
    const pid_t child = fork();

    if (child == 0)
        _exit(0);
    CHECK(child > 0 && waitpid(child, NULL, 0) == child);
    snprintf(dead, sizeof dead, "%s.tmp-%ld", path_in(folder, 9, ""), (long)child);
    snprintf(living, sizeof living, "%s.tmp-%ld", path_in(folder, 8, ""), (long)getppid());
    CHECK_OK(file_make_folder(dead));
    CHECK_OK(file_make_folder(living));
    snprintf(dead + strlen(dead), 32, "/weights");
    put_text(dead, "half");

    CHECK_OK(save(folder, 1, 1));
    CHECK(!file_exists(dead));
    CHECK(file_is_folder(living));
    CHECK_INT(2, count_names(folder, ""));
    check_loads(folder, 1);
}

/* Each call of a save fails in turn, with each reason: the save fails with one line of text and
 * leaves nothing, or does not need the call and succeeds. */
static void test_every_failing_call_leaves_the_previous_generation(void)
{
    enum { N_ERRORS = 4 };
    static const int errors[N_ERRORS] = { ENOSPC, EDQUOT, EIO, EROFS };
    static const char *const names[CALL_COUNT] = { "write", "fsync", "rename", "mkdir" };
    const char *folder = folder_of_run();
    int n_failed[CALL_COUNT] = { 0 };

    for (int call = 0; call < CALL_COUNT; call++) {
        uint64_t newest = 1;
        CHECK_OK(file_remove_tree(folder));
        CHECK_OK(save(folder, newest, 2));
        for (int after = 0, used = 1; used; after++) {
            for (size_t i = 0; i < 2 * N_ERRORS; i++) {
                /* every second save is of the step that is there: it has more to undo */
                const uint64_t step = newest + i % 2;
                fault.call = (enum call)call;
                fault.error = errors[i / 2];
                fault.after = after;
                const enum status status = save(folder, step, 2);
                used = fault.after < 0;
                fault.after = -1;

                CHECK(status == STATUS_OK || status == STATUS_IO);
                if (status == STATUS_OK) {
                    newest = step;
                } else {
                    n_failed[call]++;
                    CHECK_MESSAGE(strerror(errors[i / 2]));
                    CHECK(!strchr(status_message(), '\n'));
                }
                CHECK_INT(0, count_names(folder, ".tmp-"));
                CHECK_INT(0, count_names(folder, ".old"));
                check_loads(folder, newest);
            }
        }
    }
    for (int call = 0; call < CALL_COUNT; call++)
        if (n_failed[call] == 0)
            test_fail(__FILE__, __LINE__, "no failing %s was noticed", names[call]);
}

static void test_the_reason_survives_a_failing_removal(void)
{
    const char *folder = folder_of_run();

    CHECK_OK(save(folder, 1, 1));
    fault.call = CALL_WRITE;
    fault.error = ENOSPC;
    fault.after = 0;
    fault.removes_nothing = true;
    const enum status status = save(folder, 2, 1);
    fault.removes_nothing = false;
    CHECK_INT(STATUS_IO, status);
    CHECK_MESSAGE(strerror(ENOSPC));
    CHECK_INT(1, count_names(folder, ".tmp-"));
    check_loads(folder, 1);

    CHECK_OK(save(folder, 2, 1)); /* removes it, too */
    CHECK_INT(1, count_names(folder, ""));
    check_loads(folder, 2);
}

static void test_short_writes_are_continued(void)
{
    fault.writes_halves = true;
    const enum status status = save(folder_of_run(), 1, 1);
    fault.writes_halves = false;
    CHECK_OK(status);
    check_loads(folder_of_run(), 1);
}

static void test_a_file_size_limit_leaves_the_previous_generation(void)
{
    const char *folder = folder_of_run();
    struct rlimit limit, lower;

    CHECK_OK(save(folder, 1, 1));
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &limit));
    void (*former)(int) = signal(SIGXFSZ, SIG_IGN);
    lower = limit;
    for (rlim_t bytes = 0; bytes < 16384; bytes += 1000) {
        lower.rlim_cur = bytes;
        CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &lower));
        const enum status status = save(folder, 2, 1);
        CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &limit));
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_IO, status);
        CHECK_INT(1, count_names(folder, ""));
        check_loads(folder, 1);
    }
    signal(SIGXFSZ, former);
    check_loads(folder, 2);
}

/* A file system of its own in the run's folder, in a mount namespace that ends with this
 * program. */
static void mount_small(const char *folder, const char *options)
{
    static bool is_private;

    if (!is_private &&
        (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0))
        test_skip("cannot make a mount namespace; needs root");
    is_private = true;
    CHECK_OK(file_make_folder(folder));
    if (mount("tmpfs", folder, "tmpfs", 0, options) != 0)
        test_skip("cannot mount a tmpfs; needs root");
}

static void fill_file(const char *path, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    CHECK(fd >= 0);
    CHECK_INT(0, posix_fallocate(fd, 0, (off_t)bytes));
    close(fd);
}

/* The disk has room for 0, 1, 2, ... pages more than the first generation took, until the
 * second one fits. */
static void test_a_full_disk_leaves_the_previous_generation(void)
{
    enum { SIZE = 256 * 1024, PAGE = 4096 };
    const char *folder = folder_of_run();
    char ballast[768];
    int n_failed = 0;
    enum status status = STATUS_IO;

    mount_small(folder, "size=256k");
    snprintf(ballast, sizeof ballast, "%s/ballast", folder);
    CHECK_OK(save(folder, 1, 1));
    for (size_t used = SIZE - 10 * PAGE; status != STATUS_OK; used -= PAGE) {
        fill_file(ballast, used);
        status = save(folder, 2, 1);
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_IO, status);
        CHECK_MESSAGE(strerror(ENOSPC));
        CHECK_INT(2, count_names(folder, "")); /* with the ballast */
        check_loads(folder, 1);
        n_failed++;
        CHECK_INT(0, unlink(ballast));
        CHECK(used >= PAGE);
    }
    CHECK(n_failed >= 4);
    CHECK_INT(2, count_names(folder, ""));
    check_loads(folder, 2);
    CHECK_INT(0, umount2(folder, MNT_DETACH));
}

static void test_no_inode_leaves_the_previous_generation(void)
{
    const char *folder = folder_of_run();
    char path[768];

    mount_small(folder, "nr_inodes=40");
    CHECK_OK(save(folder, 1, 1));
    int n_files = 0;
    for (;; n_files++) { /* takes what there is */
        snprintf(path, sizeof path, "%s/file-%d", folder, n_files);
        const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    for (int n_free = 0; n_free < 5; n_free++) { /* a folder and four files are needed */
        CHECK_STATUS(STATUS_IO, save(folder, 2, 1));
        CHECK_MESSAGE(strerror(ENOSPC));
        CHECK_INT(1, count_names(folder, "step-"));
        check_loads(folder, 1);
        snprintf(path, sizeof path, "%s/file-%d", folder, --n_files);
        CHECK_INT(0, unlink(path));
    }
    CHECK_OK(save(folder, 2, 1));
    check_loads(folder, 2);
    CHECK_INT(0, umount2(folder, MNT_DETACH));
}

static void test_a_read_only_folder_is_refused_and_loads(void)
{
    const char *folder = folder_of_run();

    mount_small(folder, "size=256k");
    CHECK_OK(save(folder, 1, 1));
    CHECK_INT(0, mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    CHECK_STATUS(STATUS_IO, save(folder, 2, 1));
    CHECK_MESSAGE(strerror(EROFS));
    check_loads(folder, 1);
    CHECK_INT(0, umount2(folder, MNT_DETACH));
}

static void test_failed_allocations_leave_the_previous_generation(void)
{
    const char *folder = folder_of_run();
    uint64_t newest = 1;
    struct checkpoint *checkpoint = NULL;

    CHECK_OK(save(folder, newest, 1));
    for (int step = 1; step <= 2; step++) { /* the same step again, and the next one */
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            const uint64_t before = mem_count();
            mem_fail_at(n);
            const enum status status = save(folder, (uint64_t)step, 1);
            mem_fail_at(0);
            failed = mem_count() - before >= n; /* else there was no nth */
            CHECK(status == STATUS_NO_MEMORY || status == STATUS_OK);
            if (status == STATUS_OK)
                newest = (uint64_t)step;
            CHECK_INT(0, count_names(folder, ".tmp-"));
            check_loads(folder, newest);
        }
    }

    enum status status = STATUS_NO_MEMORY;
    for (uint64_t n = 1; status != STATUS_OK; n++) {
        mem_fail_at(n);
        status = checkpoint_load(folder, &checkpoint);
        mem_fail_at(0);
        CHECK(status == STATUS_OK || (status == STATUS_NO_MEMORY && !checkpoint));
    }
    check_contents(checkpoint);
    checkpoint_close(checkpoint);
}

/* Other processes */

/* Saves step after step, each twice, and tells which are done; never returns. */
static void save_for_ever(const char *folder, uint64_t step, int keep, int pipe_end)
{
    for (;; step++) {
        for (int i = 0; i < 2; i++)
            if (save(folder, step, keep) != STATUS_OK)
                _exit(1);
        if (write(pipe_end, &step, sizeof step) != sizeof step)
            _exit(1);
    }
}

static pid_t start_saving(const char *folder, uint64_t step, int keep, int *out_pipe_end)
{
    int ends[2];

    CHECK_INT(0, pipe(ends));
    fflush(NULL);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        close(ends[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* not for ever, if a check fails */
        save_for_ever(folder, step, keep, ends[1]);
    }
    close(ends[1]);
    *out_pipe_end = ends[0];
    return child;
}

static void test_a_killed_process_leaves_a_good_generation(void)
{
    enum { ROUNDS = 50, LATEST_US = 10000 };
    const char *folder = folder_of_run();
    struct rng rng;
    uint64_t step = 1;

    rng_init(&rng, 1, 1);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t done = 0;
        int ends, status;
        const pid_t child = start_saving(folder, step, 1 + round % 2, &ends);

        CHECK_INT(sizeof done, read(ends, &done, sizeof done));
        /* Not a wait for something to happen: the moment is to be a random one. */
        nanosleep(&(struct timespec){ .tv_nsec = 1000 * (long)rng_below(&rng, LATEST_US) },
                  NULL);
        kill(child, SIGKILL);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        while (read(ends, &done, sizeof done) == sizeof done)
            ;
        close(ends);

        struct checkpoint *checkpoint;
        CHECK_OK(load_quietly(folder, &checkpoint));
        check_contents(checkpoint);
        step = checkpoint_step(checkpoint);
        CHECK(step == done || step == done + 1);
        checkpoint_close(checkpoint);
        step++;
    }
    CHECK_OK(save(folder, step, 1));
    CHECK_INT(1, count_names(folder, ""));
}

/* `keep` 1 removes a generation as soon as the next is there. */
static void test_loading_works_while_another_process_saves(void)
{
    const char *folder = folder_of_run();
    enum status status = STATUS_OK;
    uint64_t done, last = 0;
    int ends;
    const pid_t child = start_saving(folder, 1, 1, &ends);

    CHECK_INT(sizeof done, read(ends, &done, sizeof done));
    for (int i = 0; i < 200 && status == STATUS_OK; i++) {
        struct checkpoint *checkpoint;

        status = load_quietly(folder, &checkpoint);
        if (status == STATUS_OK) {
            CHECK(checkpoint_step(checkpoint) >= last);
            last = checkpoint_step(checkpoint);
            check_contents(checkpoint);
            checkpoint_close(checkpoint);
        }
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(ends);
    CHECK_OK(status);
}

const struct test tests[] = {
    { .name = "what is saved loads", .run = test_what_is_saved_loads },
    { .name = "everything is synced before it is renamed",
      .run = test_everything_is_synced_before_it_is_renamed },
    { .name = "the newest generations are kept", .run = test_the_newest_generations_are_kept },
    { .name = "a step saved again is replaced", .run = test_a_step_saved_again_is_replaced },
    { .name = "a generation moved aside is used",
      .run = test_a_generation_moved_aside_is_used },
    { .name = "later generations are given up", .run = test_later_generations_are_given_up },
    { .name = "no generation is not found", .run = test_no_generation_is_not_found },
    { .name = "wrong arguments are refused", .run = test_wrong_arguments_are_refused },
    { .name = "a file in place of the folder is refused",
      .run = test_a_file_in_place_of_the_folder_is_refused },
    { .name = "a damaged newest generation is passed over",
      .run = test_a_damaged_newest_generation_is_passed_over },
    { .name = "only damaged generations are corrupt",
      .run = test_only_damaged_generations_are_corrupt },
    { .name = "foreign manifests are refused", .run = test_foreign_manifests_are_refused },
    { .name = "extra contents are fine", .run = test_extra_contents_are_fine },
    { .name = "every flipped bit of a manifest is noticed",
      .run = test_every_flipped_bit_of_a_manifest_is_noticed },
    { .name = "leftovers of dead processes are removed",
      .run = test_leftovers_of_dead_processes_are_removed },
    { .name = "every failing call leaves the previous generation",
      .run = test_every_failing_call_leaves_the_previous_generation },
    { .name = "the reason survives a failing removal",
      .run = test_the_reason_survives_a_failing_removal },
    { .name = "short writes are continued", .run = test_short_writes_are_continued },
    { .name = "a file size limit leaves the previous generation",
      .run = test_a_file_size_limit_leaves_the_previous_generation },
    { .name = "a full disk leaves the previous generation",
      .run = test_a_full_disk_leaves_the_previous_generation },
    { .name = "no inode leaves the previous generation",
      .run = test_no_inode_leaves_the_previous_generation },
    { .name = "a read-only folder is refused and loads",
      .run = test_a_read_only_folder_is_refused_and_loads },
    { .name = "failed allocations leave the previous generation",
      .run = test_failed_allocations_leave_the_previous_generation },
    { .name = "a killed process leaves a good generation",
      .run = test_a_killed_process_leaves_a_good_generation },
    { .name = "loading works while another process saves",
      .run = test_loading_works_while_another_process_saves },
    { 0 },
};
