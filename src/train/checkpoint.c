/* SPDX-License-Identifier: MIT */
/* checkpoint.c - generations on disk, each put in place by one rename.
 *
 * Names in a checkpoint folder, and what a crash may leave of them:
 *
 *   step-000000000020           a complete generation; nothing writes into it any more
 *   step-000000000020.old       the one it replaced, moved aside for the instant before
 *                               the rename; loading takes it if the other is missing
 *   step-000000000020.tmp-4711  being written or removed by process 4711; loading ignores it,
 *                               the next save removes it once that process is gone
 *
 * manifest.json is written last:
 *
 *   {"format":"tutti checkpoint","version":1,"step":20,
 *    "files":{"weights.safetensors":{"bytes":128,"sha256":"..."}, ...}}
 */
#include "train/checkpoint.h"

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/strbuf.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VERSION = 1,
    NAME_BYTES = 48,
    REASON_BYTES = 1024,
    MANIFEST_MAX = 1 << 16,
    STATE_MAX = 1 << 28,
    PIECE_BYTES = 1 << 18,
    SCANS = 100, /* of a folder whose generations are removed while they are looked at */
};

static const char format_name[] = "tutti checkpoint";
static const char manifest_name[] = "manifest.json";

enum part { PART_WEIGHTS, PART_OPTIMIZER, PART_STATE, PART_COUNT };
static const char *const part_names[PART_COUNT] = {
    [PART_WEIGHTS] = "weights.safetensors",
    [PART_OPTIMIZER] = "optimizer.safetensors",
    [PART_STATE] = "state.json",
};

struct digest {
    uint64_t bytes;
    char sha256[SHA256_HEX];
};

struct generation {
    uint64_t step;
    bool is_old; /* moved aside by a save of the same step */
};

struct checkpoint {
    uint64_t step;
    char *path, *state;
    struct file_map maps[PART_STATE]; /* of the parts that are tensors */
    struct safetensors *tensors[PART_STATE];
};

static enum status fail_with_errno(const char *action, const char *path)
{
    const int error = errno;
    const enum status status = error == ENOENT   ? STATUS_NOT_FOUND
                               : error == ENOMEM ? STATUS_NO_MEMORY
                                                 : STATUS_IO;

    return FAIL(status, "cannot %s %s: %s", action, path, strerror(error));
}

/* Names */

static const char *print_name(const struct generation *generation, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "step-%012" PRIu64 "%s", generation->step,
             generation->is_old ? ".old" : "");
    return out;
}

/* Only the names that print_name makes. */
static bool parse_name(const char *name, struct generation *out)
{
    struct generation generation = { 0 };
    char again[NAME_BYTES];
    char *end;

    if (strncmp(name, "step-", 5) != 0)
        return false;
    generation.step = strtoull(name + 5, &end, 10);
    generation.is_old = *end != '\0';
    if (strcmp(print_name(&generation, again), name) != 0)
        return false;
    *out = generation;
    return true;
}

/* Whether the name is that of a folder which no living process writes or removes. This process
 * counts as none: it is between two saves. */
static bool is_leftover(const char *name)
{
    const char *mark = strstr(name, ".tmp-");
    char *end;

    if (strncmp(name, "step-", 5) != 0 || !mark)
        return false;
    const long pid = strtol(mark + 5, &end, 10);
    if (pid <= 0 || pid > INT32_MAX || *end)
        return false;
    return pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH);
}

/* The folder's contents */

/* Newest first; of one step, the one moved aside last. */
static int compare_generations(const void *a, const void *b)
{
    const struct generation *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return x->is_old - y->is_old;
}

static enum status open_folder(const char *folder, DIR **out)
{
    *out = opendir(folder);
    return *out ? STATUS_OK : fail_with_errno("open folder", folder);
}

/* Gives the name of the next entry; NULL at the end. */
static enum status next_name(DIR *stream, const char *folder, const char **out)
{
    errno = 0;
    const struct dirent *entry = readdir(stream);
    if (!entry && errno != 0)
        return fail_with_errno("read folder", folder);
    *out = entry ? entry->d_name : NULL;
    return STATUS_OK;
}

static enum status read_generations(DIR *stream, const char *folder, struct generation **list,
                                    size_t *count)
{
    size_t capacity = 0;
    const char *name = NULL;

    for (;;) {
        struct generation generation;

        TRY(next_name(stream, folder, &name));
        if (!name)
            return STATUS_OK;
        if (!parse_name(name, &generation))
            continue;
        if (*count == capacity) {
            const size_t larger = capacity > 0 ? capacity * 2 : 16;
            TRY(mem_grow(list, capacity, larger, sizeof **list));
            capacity = larger;
        }
        (*list)[(*count)++] = generation;
    }
}

/* All generations, newest first. Caller frees *out with mem_free. */
static enum status list_generations(const char *folder, struct generation **out,
                                    size_t *out_count)
{
    struct generation *list = NULL;
    size_t count = 0;
    DIR *stream = NULL;

    TRY(open_folder(folder, &stream));
    const enum status status = read_generations(stream, folder, &list, &count);
    closedir(stream);
    if (status != STATUS_OK) {
        mem_free(list);
        return status;
    }
    if (count > 0)
        qsort(list, count, sizeof *list, compare_generations);
    *out = list;
    *out_count = count;
    return STATUS_OK;
}

/* Removal that may fail without failing the save. */
static void remove_or_warn(const char *path)
{
    if (file_remove_tree(path) != STATUS_OK)
        log_line(LOG_WARNING, "%s", status_message());
}

static enum status sweep_stream(DIR *stream, const char *folder)
{
    const char *name = NULL;
    char *path;

    for (;;) {
        TRY(next_name(stream, folder, &name));
        if (!name)
            return STATUS_OK;
        if (!is_leftover(name))
            continue;
        TRY(file_join(folder, name, &path));
        remove_or_warn(path);
        mem_free(path);
    }
}

/* Removes what killed processes left. */
static enum status sweep_leftovers(const char *folder)
{
    DIR *stream = NULL;

    TRY(open_folder(folder, &stream));
    const enum status status = sweep_stream(stream, folder);
    closedir(stream);
    return status;
}

static enum status sync_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_with_errno("open folder", folder);

    /* EINVAL and ENOTSUP: this file system has no sync for folders. */
    enum status status = STATUS_OK;
    if (fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        status = fail_with_errno("sync folder", folder);
    close(fd);
    return status;
}

/* Saving */

static enum status check_contents(const struct checkpoint_contents *contents, int keep)
{
    struct json *state;

    if (keep < 1)
        return FAIL(STATUS_USAGE, "cannot keep %d checkpoints; at least 1", keep);
    if (contents->step > INT64_MAX)
        return FAIL(STATUS_USAGE, "step %" PRIu64 " is too large", contents->step);
    const size_t length = strlen(contents->state);
    if (length > STATE_MAX)
        return FAIL(STATUS_USAGE, "state of %zu bytes exceeds %d", length, STATE_MAX);

    enum status status = json_parse(contents->state, length, &state);
    if (status != STATUS_OK)
        return status == STATUS_CORRUPT ? FAIL(STATUS_USAGE, "state: %s", status_message())
                                        : status;
    if (json_root(state)->kind != JSON_OBJECT)
        status = FAIL(STATUS_USAGE, "state is not a JSON object");
    json_destroy(state);
    return status;
}

/* Makes the folder last through a crash where it is new. */
static enum status make_folder(const char *folder)
{
    char *parent;

    if (file_is_folder(folder))
        return STATUS_OK;
    TRY(file_make_folder(folder));
    TRY(file_join(folder, "..", &parent));
    const enum status status = sync_folder(parent);
    mem_free(parent);
    return status;
}

static enum status write_tensors(const char *path, const struct safetensors_entry *entries,
                                 size_t count, const struct safetensors_source *source,
                                 struct digest *out)
{
    /* What Hugging Face's loaders ask for; it says whose conventions the names follow. */
    static const struct safetensors_pair metadata[] = { { "format", "pt" } };
    struct stat about;

    TRY(safetensors_write_from(path, entries, count, metadata, 1, source, out->sha256));
    if (stat(path, &about) != 0)
        return fail_with_errno("examine", path);
    out->bytes = (uint64_t)about.st_size;
    return STATUS_OK;
}

static enum status write_state(const char *path, const char *state, struct digest *out)
{
    const size_t length = strlen(state);
    struct sha256 hash;

    TRY(file_replace(path, state, length));
    sha256_init(&hash);
    sha256_add(&hash, state, length);
    sha256_end_hex(&hash, out->sha256);
    out->bytes = length;
    return STATUS_OK;
}

static enum status write_part(const char *folder, enum part part,
                              const struct checkpoint_contents *contents, struct digest *out)
{
    enum status status = STATUS_OK;
    char *path;

    TRY(file_join(folder, part_names[part], &path));
    switch (part) {
    case PART_WEIGHTS:
        status =
            write_tensors(path, contents->weights, contents->n_weights, contents->source, out);
        break;
    case PART_OPTIMIZER:
        status = write_tensors(path, contents->optimizer, contents->n_optimizer,
                               contents->source, out);
        break;
    case PART_STATE:
        status = write_state(path, contents->state, out);
        break;
    case PART_COUNT:
        break;
    }
    mem_free(path);
    return status;
}

static enum status write_manifest(const char *folder, uint64_t step,
                                  const struct digest digests[PART_COUNT])
{
    struct strbuf text;
    char *path;

    TRY(file_join(folder, manifest_name, &path));
    strbuf_init(&text, MANIFEST_MAX);
    strbuf_printf(&text, "{\"format\":\"%s\",\"version\":%d,\"step\":%" PRIu64 ",\"files\":{",
                  format_name, VERSION, step);
    for (int i = 0; i < PART_COUNT; i++)
        strbuf_printf(&text, "%s\"%s\":{\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"}",
                      i > 0 ? "," : "", part_names[i], digests[i].bytes, digests[i].sha256);
    strbuf_add(&text, "}}\n");

    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = file_replace(path, text.text, text.length);
    strbuf_release(&text);
    mem_free(path);
    return status;
}

static enum status write_generation(const char *folder,
                                    const struct checkpoint_contents *contents)
{
    struct digest digests[PART_COUNT];

    TRY(file_make_folder(folder));
    for (int i = 0; i < PART_COUNT; i++)
        TRY(write_part(folder, (enum part)i, contents, &digests[i]));
    return write_manifest(folder, contents->step, digests); /* which syncs the folder, too */
}

/* Where a generation is written, where it belongs, where a former one of the step waits. */
struct places {
    char *temporary, *place, *aside;
};

static void release_places(struct places *places)
{
    mem_free(places->temporary);
    mem_free(places->place);
    mem_free(places->aside);
}

static enum status join_places(const char *folder, uint64_t step, struct places *out)
{
    const struct generation place = { .step = step }, aside = { .step = step, .is_old = true };
    char name[NAME_BYTES], temporary[NAME_BYTES + 32];

    TRY(file_join(folder, print_name(&place, name), &out->place));
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", name, (long)getpid());
    TRY(file_join(folder, temporary, &out->temporary));
    return file_join(folder, print_name(&aside, name), &out->aside);
}

static void rename_or_warn(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        log_line(LOG_WARNING, "cannot rename %s: %s", from, strerror(errno));
}

static enum status put_in_place(const struct places *places, const char *folder)
{
    const bool has_former = file_exists(places->place);
    enum status status;

    if (has_former) {
        TRY(file_remove_tree(places->aside)); /* its successor is complete */
        if (rename(places->place, places->aside) != 0)
            return fail_with_errno("rename", places->place);
    }
    if (rename(places->temporary, places->place) != 0) {
        status = fail_with_errno("rename", places->temporary);
        goto restore_former;
    }
    status = sync_folder(folder);
    if (status == STATUS_OK)
        return STATUS_OK;

    rename_or_warn(places->place, places->temporary);
restore_former:
    if (has_former)
        rename_or_warn(places->aside, places->place);
    return status;
}

static enum status write_and_place(const struct places *places, const char *folder,
                                   const struct checkpoint_contents *contents)
{
    enum status status = write_generation(places->temporary, contents);
    if (status == STATUS_OK)
        status = put_in_place(places, folder);
    if (status == STATUS_OK)
        return STATUS_OK;

    char reason[REASON_BYTES]; /* what the caller is to read, whatever the removal says */
    snprintf(reason, sizeof reason, "%s", status_message());
    remove_or_warn(places->temporary);
    return status_set(status, reason);
}

/* Renames first, so that a crash leaves no half of a generation under its name. */
static void discard(const char *folder, const struct generation *generation)
{
    char name[NAME_BYTES], temporary[NAME_BYTES + 32];
    char *from = NULL, *to = NULL;

    print_name(generation, name);
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", name, (long)getpid());
    if (file_join(folder, name, &from) != STATUS_OK ||
        file_join(folder, temporary, &to) != STATUS_OK)
        log_line(LOG_WARNING, "cannot remove %s/%s: %s", folder, name, status_message());
    else
        remove_or_warn(rename(from, to) == 0 ? to : from);
    mem_free(from);
    mem_free(to);
}

/* Keeps the newest `keep` up to `step`. Later ones belong to a course that was given up:
 * loading passed them over, or the run began again. */
static void prune(const char *folder, uint64_t step, int keep)
{
    struct generation *list = NULL;
    size_t count = 0;
    int kept = 0;

    if (list_generations(folder, &list, &count) != STATUS_OK) {
        log_line(LOG_WARNING, "earlier checkpoints stay: %s", status_message());
        return;
    }
    for (size_t i = 0; i < count; i++) {
        const bool is_replaced = i > 0 && list[i - 1].step == list[i].step;

        if (list[i].step <= step && !is_replaced && kept < keep)
            kept++;
        else
            discard(folder, &list[i]);
    }
    mem_free(list);
}

enum status checkpoint_save(const char *folder, const struct checkpoint_contents *contents,
                            int keep)
{
    struct places places = { 0 };

    TRY(check_contents(contents, keep));
    TRY(make_folder(folder));
    TRY(sweep_leftovers(folder));
    enum status status = join_places(folder, contents->step, &places);
    if (status == STATUS_OK)
        status = write_and_place(&places, folder, contents);
    if (status == STATUS_OK)
        prune(folder, contents->step, keep);
    release_places(&places);
    return status;
}

/* Loading */

static enum status hash_stream(int fd, const char *path, uint8_t *buffer, struct digest *out)
{
    struct sha256 hash;

    sha256_init(&hash);
    out->bytes = 0;
    for (;;) {
        const ssize_t got = read(fd, buffer, PIECE_BYTES);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_with_errno("read", path);
        if (got == 0)
            break;
        sha256_add(&hash, buffer, (size_t)got);
        out->bytes += (uint64_t)got;
    }
    sha256_end_hex(&hash, out->sha256);
    return STATUS_OK;
}

/* Reads instead of mapping: a disk that fails gives an error here, a signal there. */
static enum status hash_file(const char *path, struct digest *out)
{
    uint8_t *buffer;

    TRY(mem_alloc(PIECE_BYTES, 1, &buffer));
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    enum status status;
    if (fd < 0) {
        status = fail_with_errno("open", path);
    } else {
        status = hash_stream(fd, path, buffer, out);
        close(fd);
    }
    mem_free(buffer);
    return status;
}

static enum status read_manifest(const char *path, struct json **out)
{
    char *text;
    size_t length = 0;

    TRY(file_read(path, MANIFEST_MAX, &text, &length));
    enum status status = json_parse(text, length, out);
    if (status == STATUS_CORRUPT)
        status = FAIL(status, "%s: %s", path, status_message());
    mem_free(text);
    return status;
}

static enum status check_manifest(const char *path, const struct json_value *manifest,
                                  uint64_t step)
{
    if (strcmp(json_text(manifest, "format", ""), format_name) != 0)
        return FAIL(STATUS_CORRUPT, "%s: not a manifest of a tutti checkpoint", path);
    const int64_t version = json_integer(manifest, "version", -1);
    if (version != VERSION)
        return FAIL(STATUS_CORRUPT, "%s: format version %" PRId64 "; this program reads %d",
                    path, version, VERSION);
    const int64_t written = json_integer(manifest, "step", -1);
    if (written < 0 || (uint64_t)written != step)
        return FAIL(STATUS_CORRUPT, "%s: step %" PRId64 " instead of the folder's %" PRIu64,
                    path, written, step);
    return STATUS_OK;
}

static enum status check_part(const char *path, const struct json_value *expected)
{
    const int64_t bytes = json_integer(expected, "bytes", -1);
    const char *sha256 = json_text(expected, "sha256", NULL);
    struct digest digest = { 0 };

    if (bytes < 0 || !sha256)
        return FAIL(STATUS_CORRUPT, "%s: its length or checksum is not in the manifest", path);
    TRY(hash_file(path, &digest));
    if (digest.bytes != (uint64_t)bytes)
        return FAIL(STATUS_CORRUPT, "%s: %" PRIu64 " bytes instead of %" PRId64, path,
                    digest.bytes, bytes);
    if (strcmp(digest.sha256, sha256) != 0)
        return FAIL(STATUS_CORRUPT, "%s: the checksum does not hold; the contents are damaged",
                    path);
    return STATUS_OK;
}

static enum status open_tensors(struct checkpoint *checkpoint, enum part part, const char *path)
{
    struct file_map *map = &checkpoint->maps[part];

    TRY(file_map(path, map));
    const enum status status =
        safetensors_parse(map->data, map->length, &checkpoint->tensors[part]);
    if (status == STATUS_CORRUPT || status == STATUS_UNSUPPORTED)
        return FAIL(status, "%s: %s", path, status_message());
    return status;
}

static enum status read_state(struct checkpoint *checkpoint, const char *path)
{
    struct json *json;
    size_t length = 0;

    TRY(file_read(path, STATE_MAX, &checkpoint->state, &length));
    enum status status = json_parse(checkpoint->state, length, &json);
    if (status == STATUS_CORRUPT)
        status = FAIL(status, "%s: %s", path, status_message());
    TRY(status);
    if (json_root(json)->kind != JSON_OBJECT)
        status = FAIL(STATUS_CORRUPT, "%s: not a JSON object", path);
    json_destroy(json);
    return status;
}

static enum status load_part(struct checkpoint *checkpoint, enum part part,
                             const struct json_value *files)
{
    char *path;

    TRY(file_join(checkpoint->path, part_names[part], &path));
    enum status status = check_part(path, json_get(files, part_names[part]));
    if (status == STATUS_OK)
        status = part == PART_STATE ? read_state(checkpoint, path)
                                    : open_tensors(checkpoint, part, path);
    mem_free(path);
    return status;
}

static enum status load_parts(struct checkpoint *checkpoint)
{
    struct json *manifest = NULL;
    char *path;

    TRY(file_join(checkpoint->path, manifest_name, &path));
    enum status status = read_manifest(path, &manifest);
    if (status == STATUS_OK)
        status = check_manifest(path, json_root(manifest), checkpoint->step);
    for (int i = 0; i < PART_COUNT && status == STATUS_OK; i++)
        status = load_part(checkpoint, (enum part)i, json_get(json_root(manifest), "files"));
    json_destroy(manifest);
    mem_free(path);
    return status;
}

static enum status load_generation(const char *folder, const struct generation *generation,
                                   struct checkpoint **out)
{
    struct checkpoint *checkpoint;
    char name[NAME_BYTES];

    TRY(mem_alloc(1, sizeof *checkpoint, &checkpoint));
    checkpoint->step = generation->step;
    enum status status = file_join(folder, print_name(generation, name), &checkpoint->path);
    if (status == STATUS_OK)
        status = load_parts(checkpoint);
    if (status == STATUS_OK)
        *out = checkpoint;
    else
        checkpoint_close(checkpoint);
    return status;
}

/* Which folder stands under the generation's name; 0 for none. */
static enum status identify(const char *folder, const struct generation *generation, ino_t *out)
{
    char name[NAME_BYTES], *path;
    struct stat about;

    TRY(file_join(folder, print_name(generation, name), &path));
    *out = stat(path, &about) == 0 ? about.st_ino : 0;
    mem_free(path);
    return STATUS_OK;
}

/* The first of the list that loads. Others are reported, and `reason` keeps the first report;
 * *vanished says that one was removed or replaced meanwhile, by a save of another process. */
static enum status load_first(const char *folder, const struct generation *list, size_t count,
                              struct checkpoint **out, char reason[REASON_BYTES],
                              bool *vanished)
{
    *vanished = false;
    reason[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        ino_t before = 0, after = 0;

        TRY(identify(folder, &list[i], &before));
        const enum status status = load_generation(folder, &list[i], out);
        if (status == STATUS_OK || status == STATUS_NO_MEMORY)
            return status;

        char text[REASON_BYTES];
        snprintf(text, sizeof text, "%s", status_message());
        TRY(identify(folder, &list[i], &after));
        if (after != before || after == 0) {
            *vanished = true;
            continue;
        }
        if (!reason[0])
            snprintf(reason, REASON_BYTES, "%s", text);
        log_line(LOG_WARNING, "checkpoint passed over: %s", text);
    }
    return STATUS_CORRUPT;
}

enum status checkpoint_load(const char *folder, struct checkpoint **out)
{
    char reason[REASON_BYTES] = "";
    bool vanished = true;

    for (int scan = 0; scan < SCANS && vanished; scan++) {
        struct generation *list = NULL;
        size_t count = 0;

        TRY(list_generations(folder, &list, &count));
        if (count == 0 && scan == 0)
            continue; /* a listing may miss a folder that is renamed meanwhile */
        if (count == 0)
            return FAIL(STATUS_NOT_FOUND, "no checkpoint in %s", folder);
        const enum status status = load_first(folder, list, count, out, reason, &vanished);
        mem_free(list);
        if (status != STATUS_CORRUPT)
            return status;
    }
    return FAIL(STATUS_CORRUPT, "no good checkpoint in %s: %s", folder,
                reason[0] ? reason : "others are removed faster than they can be read");
}

void checkpoint_close(struct checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int i = 0; i < PART_STATE; i++) {
        safetensors_close(checkpoint->tensors[i]);
        file_unmap(&checkpoint->maps[i]);
    }
    mem_free(checkpoint->state);
    mem_free(checkpoint->path);
    mem_free(checkpoint);
}

uint64_t checkpoint_step(const struct checkpoint *checkpoint)
{
    return checkpoint->step;
}

const struct safetensors *checkpoint_weights(const struct checkpoint *checkpoint)
{
    return checkpoint->tensors[PART_WEIGHTS];
}

const struct safetensors *checkpoint_optimizer(const struct checkpoint *checkpoint)
{
    return checkpoint->tensors[PART_OPTIMIZER];
}

const char *checkpoint_state(const struct checkpoint *checkpoint)
{
    return checkpoint->state;
}

const char *checkpoint_path(const struct checkpoint *checkpoint)
{
    return checkpoint->path;
}
