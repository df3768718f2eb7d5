/* SPDX-License-Identifier: MIT */
/* device_share.c - memory of the CPU as a device that processes share, and words that they hand over.
 *
 * It is a file in memory without a name, which others open through the process that made it, and begins with a page of what
 * is known of it. Threads of one process see it where it is.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kernel/device_rows.h"

enum { PAGE = 4096 };

/* At the beginning of the file, for who made it; what follows the page is handed out. */
struct block {
    size_t bytes; /* page included */
    int fd;
};

/* What a handle holds. */
struct opened_by {
    int64_t process;
    int64_t fd;
    size_t bytes;
    void *memory; /* there */
};

static struct block *block_of(void *memory)
{
    return (struct block *)((char *)memory - PAGE);
}

static enum status map(int fd, size_t bytes, struct block **out)
{
    void *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (block == MAP_FAILED)
        return FAIL(STATUS_NO_MEMORY, "%zu bytes that ranks share are refused: %s", bytes,
                    strerror(errno));
    *out = block;
    return STATUS_OK;
}

static enum status share_create(struct device *device, size_t bytes, void **out,
                                struct device_handle *out_handle)
{
    const int fd = memfd_create("tutti device", MFD_CLOEXEC);
    struct block *block;

    (void)device;
    bytes += PAGE;
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 || map(fd, bytes, &block) != STATUS_OK) {
        const int error = errno;
        if (fd >= 0)
            (void)close(fd);
        return FAIL(STATUS_NO_MEMORY, "%zu bytes that ranks share are refused: %s", bytes,
                    strerror(error));
    }
    *block = (struct block){ .bytes = bytes, .fd = fd };
    *out = (char *)block + PAGE;
    const struct opened_by by = { getpid(), fd, bytes, *out };
    memcpy(out_handle, &by, sizeof by);
    return STATUS_OK;
}

bool device_share_is_here(const struct device_handle *handle)
{
    struct opened_by by;

    memcpy(&by, handle, sizeof by);
    return by.process == getpid();
}

static void share_destroy(struct device *device, void *memory)
{
    (void)device;
    if (!memory)
        return;
    struct block *block = block_of(memory);
    const int fd = block->fd;
    (void)munmap(block, block->bytes);
    (void)close(fd);
}

static enum status share_open(struct device *device, const struct device_handle *handle,
                              void **out)
{
    struct opened_by by;
    struct block *block;
    char path[64];

    (void)device;
    memcpy(&by, handle, sizeof by);
    if (device_share_is_here(handle)) {
        *out = by.memory;
        return STATUS_OK;
    }
    (void)snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)by.process,
                   (long long)by.fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return FAIL(STATUS_IO, "memory of process %lld cannot be opened: %s",
                    (long long)by.process, strerror(errno));
    const enum status status = map(fd, by.bytes, &block);
    (void)close(fd);
    TRY(status);
    *out = (char *)block + PAGE;
    return STATUS_OK;
}

static void share_close(struct device *device, const struct device_handle *handle, void *memory)
{
    struct opened_by by;

    (void)device;
    memcpy(&by, handle, sizeof by);
    if (memory && !device_share_is_here(handle))
        (void)munmap(block_of(memory), by.bytes);
}

static void signal_words(struct device_stream *stream, const struct device_words *words)
{
    (void)stream;
    for (int i = 0; i < words->count; i++)
        __atomic_store_n(words->word[i], 1, __ATOMIC_RELEASE);
}

/* Others may need this very core. */
static void await_words(struct device_stream *stream, const struct device_words *words)
{
    (void)stream;
    for (int i = 0; i < words->count; i++) {
        while (__atomic_load_n(words->word[i], __ATOMIC_ACQUIRE) == 0)
            (void)sched_yield();
        __atomic_store_n(words->word[i], 0, __ATOMIC_RELAXED);
    }
}

const struct device_share_ops device_share_cpu = {
    .create = share_create,
    .destroy = share_destroy,
    .open = share_open,
    .close = share_close,
    .signal = signal_words,
    .await = await_words,
};
