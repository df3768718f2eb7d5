/* SPDX-License-Identifier: MIT */
/* checkpoint_testing.c - a small model that is saved and loaded, and system calls that fail.
 *
 * Defines write, fsync, rename, remove and mkdir for the whole program, so that every such call of a save can be made to
 * fail in turn; elsewhere they do what the system's do.
 */
#include "train/checkpoint_testing.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { COUNT = 3000 };

/* Failing system calls */

struct save_fault save_fault = { .after = -1 };

struct strbuf *save_events;

static bool must_fail(enum save_call call)
{
    if (save_fault.after < 0 || save_fault.call != call || save_fault.after-- > 0)
        return false;
    errno = save_fault.error;
    return true;
}

ssize_t write(int fd, const void *data, size_t length)
{
    if (fd > STDERR_FILENO) {
        if (must_fail(CALL_WRITE))
            return -1;
        if (save_fault.writes_halves && length > 1)
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
    if (save_events)
        strbuf_printf(save_events, "sync %.*s\n", (int)length, path);
    return 0;
}

int rename(const char *from, const char *to)
{
    if (must_fail(CALL_RENAME))
        return -1;
    if (save_events)
        strbuf_printf(save_events, "rename %s %s\n", from, to);
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

int remove(const char *path)
{
    if (save_fault.removes_nothing) {
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

const char *run_folder(void)
{
    static char path[512];

    snprintf(path, sizeof path, "%s/run/checkpoint", test_folder());
    return path;
}

static float value_of(uint64_t step, size_t i)
{
    return (float)(step % 1000 * 4 + i % 4);
}

enum status generation_save_with(const char *folder, uint64_t step, int keep, const char *state)
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

enum status generation_save(const char *folder, uint64_t step, int keep)
{
    char state[64];

    snprintf(state, sizeof state, "{\"step\": %" PRIu64 "}", step);
    return generation_save_with(folder, step, keep, state);
}

bool generation_holds(const struct safetensors *file, const char *name, uint64_t step,
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

void generation_check(const struct checkpoint *checkpoint)
{
    const uint64_t step = checkpoint_step(checkpoint);
    char state[64];

    snprintf(state, sizeof state, "{\"step\": %" PRIu64 "}", step);
    CHECK_TEXT(state, checkpoint_state(checkpoint));
    CHECK(generation_holds(checkpoint_weights(checkpoint), "layer.weight", step, 1));
    CHECK(
        generation_holds(checkpoint_optimizer(checkpoint), "layer.weight.momentum", step, -1));
    CHECK_INT(2, safetensors_count(checkpoint_weights(checkpoint)));
    CHECK_TEXT("pt", safetensors_metadata(checkpoint_weights(checkpoint), "format"));
}

enum status generation_load_and_listen(const char *folder, struct checkpoint **out,
                                       char **out_said)
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

enum status generation_load_quietly(const char *folder, struct checkpoint **out)
{
    char *said;
    const enum status status = generation_load_and_listen(folder, out, &said);

    mem_free(said);
    return status;
}

void generation_check_loads(const char *folder, uint64_t step)
{
    struct checkpoint *checkpoint;

    CHECK_OK(generation_load_quietly(folder, &checkpoint));
    CHECK_INT(step, checkpoint_step(checkpoint));
    generation_check(checkpoint);
    checkpoint_close(checkpoint);
}

const char *generation_path(const char *folder, uint64_t step, const char *name)
{
    static char path[768];

    snprintf(path, sizeof path, "%s/step-%012" PRIu64 "%s%s", folder, step, name[0] ? "/" : "",
             name);
    return path;
}

int folder_count(const char *folder, const char *part)
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
void put_file(const char *path, const void *bytes, size_t length)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

    CHECK(fd >= 0);
    CHECK_INT(length, write(fd, bytes, length));
    CHECK_INT(0, ftruncate(fd, (off_t)length));
    close(fd);
}

void put_text(const char *path, const char *text)
{
    put_file(path, text, strlen(text));
}
