/* SPDX-License-Identifier: MIT */
/* file.c - whole files over POSIX calls. */
#include "base/file.h"

#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sorts the system's reason by what the caller can do about it. */
static enum status fail_with_errno(const char *action, const char *path)
{
    const int error = errno;
    const enum status status = error == ENOENT || error == ENOTDIR ? STATUS_NOT_FOUND
                               : error == ENOMEM                   ? STATUS_NO_MEMORY
                                                                   : STATUS_IO;

    return FAIL(status, "cannot %s %s: %s", action, path, strerror(error));
}

/* Opens a regular file for reading. */
static enum status open_regular(const char *path, int *out_fd, size_t *out_length)
{
    /* O_NONBLOCK: a FIFO in place of the file is refused below instead of waited for. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_with_errno("open", path);

    struct stat about;
    enum status status = STATUS_OK;
    if (fstat(fd, &about) != 0)
        status = fail_with_errno("examine", path);
    else if (!S_ISREG(about.st_mode))
        status = FAIL(STATUS_IO, "cannot read %s: not a regular file", path);
    if (status != STATUS_OK) {
        close(fd);
        return status;
    }
    *out_fd = fd;
    *out_length = (size_t)about.st_size;
    return STATUS_OK;
}

/* Reads to the end, wherever that is: the file may grow meanwhile, and files under /proc say
 * that they are empty. *text is the caller's to free, even on failure. */
static enum status read_all(int fd, const char *path, size_t expected, size_t maximum,
                            char **text, size_t *out_length)
{
    size_t length = 0, capacity = 0;

    for (;;) {
        if (length > maximum)
            return FAIL(STATUS_CORRUPT, "%s is larger than %zu bytes", path, maximum);
        if (capacity - length < 2) { /* a byte to see the end by, and the NUL */
            const size_t larger = capacity == 0 ? expected + 2 : capacity * 2;
            TRY(mem_grow(text, capacity, larger, 1));
            capacity = larger;
        }

        const ssize_t got = read(fd, *text + length, capacity - length - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_with_errno("read", path);
        if (got == 0)
            break;
        length += (size_t)got;
    }
    (*text)[length] = '\0';
    *out_length = length;
    return STATUS_OK;
}

enum status file_read(const char *path, size_t maximum, char **out, size_t *out_length)
{
    int fd;
    size_t expected;

    TRY(open_regular(path, &fd, &expected));

    char *text = NULL;
    enum status status;
    if (expected > maximum)
        status = FAIL(STATUS_CORRUPT, "%s is %zu bytes, more than the %zu allowed", path,
                      expected, maximum);
    else
        status = read_all(fd, path, expected, maximum, &text, out_length);
    close(fd);
    if (status != STATUS_OK) {
        mem_free(text);
        return status;
    }
    *out = text;
    return STATUS_OK;
}

enum status file_map(const char *path, struct file_map *out)
{
    static const uint8_t nothing[1]; /* a pointer to compute with: mmap refuses length 0 */
    int fd;
    size_t length;

    TRY(open_regular(path, &fd, &length));
    if (length == 0) {
        close(fd);
        *out = (struct file_map){ .data = nothing };
        return STATUS_OK;
    }

    void *data = mmap(NULL, length, PROT_READ, MAP_PRIVATE, fd, 0);
    const enum status status = data == MAP_FAILED ? fail_with_errno("map", path) : STATUS_OK;
    close(fd);
    TRY(status);
    *out = (struct file_map){ .data = data, .length = length };
    return STATUS_OK;
}

enum status file_map_scratch(const char *path, size_t length, void **out_data,
                             struct file_map *out)
{
    const size_t bytes = strlen(path) + 32;
    char *name;

    TRY(mem_alloc(bytes, 1, &name));
    snprintf(name, bytes, "%s.scratch-%ld", path, (long)getpid());
    const int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        const enum status status = fail_with_errno("create", name);
        mem_free(name);
        return status;
    }
    unlink(name);
    mem_free(name);
    enum status status = STATUS_OK;
    /* A page without a block on the disk would be a fatal signal where it is written. */
    if ((errno = posix_fallocate(fd, 0, length > 0 ? (off_t)length : 1)) != 0)
        status = fail_with_errno("make room for what is written to", path);
    void *data = MAP_FAILED;
    if (status == STATUS_OK) {
        data = mmap(NULL, length > 0 ? length : 1, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        status = data == MAP_FAILED ? fail_with_errno("map", path) : STATUS_OK;
    }
    close(fd);
    TRY(status);
    *out = (struct file_map){ .data = data, .length = length > 0 ? length : 1 };
    *out_data = data;
    return STATUS_OK;
}

void file_unmap(struct file_map *map)
{
    if (map->length > 0)
        munmap((void *)(uintptr_t)map->data, map->length);
    *map = (struct file_map){ 0 };
}

enum status file_map_own(struct file_map *map, const char *path, uint8_t **out)
{
    void *data = (void *)(uintptr_t)map->data;

    if (map->length > 0 && mprotect(data, map->length, PROT_READ | PROT_WRITE) != 0)
        return errno == ENOMEM ? FAIL(STATUS_NO_MEMORY, "%s: no memory for its %zu bytes", path,
                                      map->length)
                               : fail_with_errno("map", path);
    *out = data;
    return STATUS_OK;
}

void file_map_forget(const struct file_map *map)
{
    if (map->length > 0)
        (void)madvise((void *)(uintptr_t)map->data, map->length, MADV_DONTNEED);
}

enum status file_replace(const char *path, const void *data, size_t length)
{
    struct file_writer writer;

    TRY(file_writer_begin(&writer, path));
    const enum status status = file_writer_add(&writer, data, length);
    if (status != STATUS_OK) {
        file_writer_cancel(&writer);
        return status;
    }
    return file_writer_commit(&writer);
}

static void release_writer(struct file_writer *writer)
{
    mem_free(writer->path);
    mem_free(writer->temporary);
    *writer = (struct file_writer){ .fd = -1 };
}

/* Renaming over a device, a FIFO or what /dev/stdout leads to would destroy it. */
static enum status check_replaceable(const char *path)
{
    struct stat about;

    if (stat(path, &about) == 0 && !S_ISREG(about.st_mode))
        return FAIL(STATUS_IO, "cannot replace %s: not a regular file", path);
    return STATUS_OK;
}

enum status file_writer_begin(struct file_writer *writer, const char *path)
{
    *writer = (struct file_writer){ .fd = -1 };
    TRY(check_replaceable(path));

    const size_t bytes = strlen(path) + 32;
    enum status status = mem_strdup(path, &writer->path);
    if (status == STATUS_OK)
        status = mem_alloc(bytes, 1, &writer->temporary);
    if (status != STATUS_OK)
        goto release;

    /* Truncates what a killed process of the same number may have left. */
    snprintf(writer->temporary, bytes, "%s.tmp-%ld", path, (long)getpid());
    writer->fd =
        open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (writer->fd < 0) {
        status = fail_with_errno("create", writer->temporary);
        goto release;
    }
    return STATUS_OK;

release:
    release_writer(writer);
    return status;
}

enum status file_writer_add(struct file_writer *writer, const void *data, size_t length)
{
    const char *from = data;

    while (length > 0) {
        const ssize_t done = write(writer->fd, from, length);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return fail_with_errno("write", writer->path);
        from += done;
        length -= (size_t)done;
        writer->length += (uint64_t)done;
    }
    return STATUS_OK;
}

/* Makes the rename itself last through a crash. */
static enum status sync_folder_of(char *path)
{
    char *slash = strrchr(path, '/');
    const char *folder = slash == path ? "/" : slash ? path : ".";

    if (slash)
        *slash = '\0';
    enum status status = STATUS_OK;
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A folder that may be written but not read cannot be synced; some file systems have no
     * sync for folders and say EINVAL. */
    if (fd < 0 && errno != EACCES)
        status = fail_with_errno("open folder", folder);
    else if (fd >= 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = fail_with_errno("sync folder", folder);
    if (fd >= 0)
        close(fd);
    if (slash)
        *slash = '/';
    return status;
}

enum status file_writer_commit(struct file_writer *writer)
{
    if (fsync(writer->fd) != 0 && errno != EINVAL) { /* EINVAL: this kind has no sync */
        const enum status status = fail_with_errno("sync", writer->temporary);
        file_writer_cancel(writer);
        return status;
    }

    const int fd = writer->fd;
    writer->fd = -1; /* closed even when close fails */
    enum status status = STATUS_OK;
    if (close(fd) != 0)
        status = fail_with_errno("close", writer->temporary);
    else if (rename(writer->temporary, writer->path) != 0)
        status = fail_with_errno("replace", writer->path);
    if (status != STATUS_OK) {
        file_writer_cancel(writer);
        return status;
    }
    status = sync_folder_of(writer->path);
    release_writer(writer);
    return status;
}

void file_writer_cancel(struct file_writer *writer)
{
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->temporary && unlink(writer->temporary) != 0 && errno != ENOENT)
        log_line(LOG_WARNING, "cannot remove %s: %s", writer->temporary, strerror(errno));
    release_writer(writer);
}

bool file_exists(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0;
}

bool file_is_folder(const char *path)
{
    struct stat about;

    return stat(path, &about) == 0 && S_ISDIR(about.st_mode);
}

/* Another process may make the folder at the same time, so "it exists" is looked at last. */
static enum status make_one_folder(const char *path)
{
    if (mkdir(path, 0777) == 0)
        return STATUS_OK;
    if (errno == EEXIST && file_is_folder(path))
        return STATUS_OK;
    return fail_with_errno("make folder", path);
}

enum status file_make_folder(const char *path)
{
    char *part;

    if (file_is_folder(path))
        return STATUS_OK;
    TRY(mem_strdup(path, &part));

    enum status status = STATUS_OK;
    for (char *slash = part; status == STATUS_OK && (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        status = file_is_folder(part) ? STATUS_OK : make_one_folder(part);
        *slash = '/';
    }
    if (status == STATUS_OK)
        status = make_one_folder(part);
    mem_free(part);
    return status;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    if (remove(path) == 0 || errno == ENOENT)
        return 0;
    (void)fail_with_errno("remove", path);
    return 1;
}

enum status file_remove_tree(const char *path)
{
    enum { OPEN_FOLDERS = 16 };
    const int result = nftw(path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);

    if (result == 0 || (result < 0 && errno == ENOENT))
        return STATUS_OK;
    return result > 0 ? STATUS_IO : fail_with_errno("remove", path);
}

enum status file_join(const char *folder, const char *name, char **out)
{
    const size_t length = strlen(folder), bytes = length + strlen(name) + 2;
    const char *between = length == 0 || folder[length - 1] == '/' ? "" : "/";

    TRY(mem_alloc(bytes, 1, out));
    snprintf(*out, bytes, "%s%s%s", folder, between, name);
    return STATUS_OK;
}
