/* SPDX-License-Identifier: MIT */
/* replay.c - main of the fuzz programs where there is no libFuzzer.
 *
 * Gives the files named on the command line, and those in folders named there, to the parser:
 * each as it is and each of its beginnings.
 */
#include "base/file.h"
#include "base/mem.h"
#include "fuzz.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

enum { MAX_FILE = 1 << 20, MAX_BEGINNINGS = 4096 };

/* A copy that ends where the input does, so that a sanitizer sees a read past it. */
static enum status feed(const char *bytes, size_t length)
{
    uint8_t *copy;

    TRY(mem_alloc(length, 1, &copy));
    memcpy(copy, bytes, length);
    LLVMFuzzerTestOneInput(copy, length);
    mem_free(copy);
    return STATUS_OK;
}

static enum status replay_file(const char *path, int *count)
{
    char *bytes;
    size_t length;

    TRY(file_read(path, MAX_FILE, &bytes, &length));
    enum status status = feed(bytes, length);
    for (size_t i = 0; i < length && i < MAX_BEGINNINGS && status == STATUS_OK; i++)
        status = feed(bytes, i);
    mem_free(bytes);
    (*count)++;
    return status;
}

static enum status replay_folder(const char *path, int *count)
{
    DIR *stream = opendir(path);
    enum status status = STATUS_OK;

    if (!stream)
        return FAIL(STATUS_IO, "cannot open %s", path);
    for (const struct dirent *entry; status == STATUS_OK && (entry = readdir(stream));) {
        char *file;

        if (entry->d_name[0] == '.')
            continue;
        status = file_join(path, entry->d_name, &file);
        if (status != STATUS_OK)
            break;
        status = replay_file(file, count);
        mem_free(file);
    }
    closedir(stream);
    return status;
}

int main(int argc, char **argv)
{
    int count = 0;

    for (int i = 1; i < argc; i++) {
        const enum status status = file_is_folder(argv[i]) ? replay_folder(argv[i], &count)
                                                           : replay_file(argv[i], &count);
        if (status != STATUS_OK) {
            fprintf(stderr, "%s: %s\n", argv[0], status_message());
            return 1;
        }
    }
    printf("%d files replayed\n", count);
    return count > 0 ? 0 : 1;
}
