/* SPDX-License-Identifier: MIT */
/* file.h - files: read whole, mapped, or replaced as a whole.
 *
 * Failure text names the path and the system's reason.
 */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads a regular file of at most `maximum` bytes; a NUL follows the contents. Caller frees
 * *out with mem_free. STATUS_NOT_FOUND if absent, STATUS_CORRUPT if larger. */
MUST_CHECK enum status file_read(const char *path, size_t maximum, char **out,
                                 size_t *out_length);

/* A file mapped for reading. */
struct file_map {
    const uint8_t *data;
    size_t length;
};
MUST_CHECK enum status file_map(const char *path, struct file_map *out);
void file_unmap(struct file_map *map);
/* Lets this process write to its own copies of the pages; the file stays as it is. A page takes memory
 * from its first write on. */
MUST_CHECK enum status file_map_own(struct file_map *map, const char *path, uint8_t **out);
/* Says that contents are not needed soon: what was read of the file is given back. */
void file_map_forget(const struct file_map *map);

/* Memory of `length` bytes, zeroed, that lies in a file without a name beside `path`: what does not fit
 * into RAM goes to that disk. Fails, without touching `path`, where the disk has no room for it.
 * Released by file_unmap. */
MUST_CHECK enum status file_map_scratch(const char *path, size_t length, void **out_data,
                                        struct file_map *out);

/* Replaces `path` so that a crash at any instant leaves the old or the new contents: writes
 * path.tmp-PID, syncs, renames, syncs the folder. Removes the temporary file on failure. */
MUST_CHECK enum status file_replace(const char *path, const void *data, size_t length);

/* The same in pieces. begin opens the temporary file, add writes, commit syncs and renames,
 * cancel removes it. One of commit and cancel ends it; commit cancels on failure. */
struct file_writer {
    char *path, *temporary;
    int fd;
    uint64_t length;
};
MUST_CHECK enum status file_writer_begin(struct file_writer *writer, const char *path);
MUST_CHECK enum status file_writer_add(struct file_writer *writer, const void *data,
                                       size_t length);
MUST_CHECK enum status file_writer_commit(struct file_writer *writer);
void file_writer_cancel(struct file_writer *writer);

bool file_exists(const char *path);
bool file_is_folder(const char *path);
/* Makes a folder and its parents; fine if it is there. */
MUST_CHECK enum status file_make_folder(const char *path);
/* Removes a file or a folder with all it holds; fine if absent. */
MUST_CHECK enum status file_remove_tree(const char *path);
/* "folder/name"; caller frees with mem_free. */
MUST_CHECK enum status file_join(const char *folder, const char *name, char **out);

#endif /* BASE_FILE_H */
