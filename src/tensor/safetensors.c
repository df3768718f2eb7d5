/* SPDX-License-Identifier: MIT */
/* safetensors.c - the safetensors format, written and read.
 *
 * A file with one 2x2 tensor "w" of f32 and no metadata:
 *
 *   byte 0    38 00 00 00 00 00 00 00                                   56: the header's length
 *   byte 8    {"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}} and spaces up to byte
 * 64 byte 64   16 bytes of data; data_offsets count from here
 *
 * The format lets no byte of the data be unused or used twice, so the tensors sorted by where
 * they start must follow each other without a gap; that is checked once for the whole file.
 */
#include "tensor/safetensors.h"

#include "base/file.h"
#include "base/foreign.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    LENGTH_BYTES = 8,
    HEADER_MAX = 100000000, /* the reference implementation's limit */
    DATA_ALIGN = 64,
    PIECE_BYTES = 1 << 20, /* hashed and written while it is in the cache */
};

static const char metadata_key[] = "__metadata__"; /* the one name that is no tensor's */

struct safetensors {
    struct file_map map; /* empty unless the object opened the file itself */
    struct json *json;   /* owns names and metadata */
    size_t count;
    struct safetensors_entry *entries;        /* in the header's order */
    const struct safetensors_entry **by_name; /* the same, sorted */
    const struct json_value *metadata;        /* NULL if there is none */
};

/* Bytes of a tensor. False if an extent is negative or the others than 0 multiply to too much,
 * so that shape_count is safe on every shape that passes. */
static bool count_bytes(const struct shape *shape, enum dtype dtype, size_t *out)
{
    int64_t bytes = (int64_t)dtype_size(dtype);
    bool is_empty = false;

    if (shape->rank < 0 || shape->rank > SHAPE_MAX)
        return false;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0)
            return false;
        if (shape->dim[i] == 0)
            is_empty = true;
        else if (__builtin_mul_overflow(bytes, shape->dim[i], &bytes))
            return false;
    }
    *out = is_empty ? 0 : (size_t)bytes;
    return true;
}

/* The same of an entry that passed. */
static size_t entry_bytes(const struct safetensors_entry *entry)
{
    return (size_t)shape_count(&entry->shape) * dtype_size(entry->dtype);
}

static int compare_entry_names(const void *a, const void *b)
{
    const struct safetensors_entry *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

/* By start, then by size, so that empty tensors come before the one that starts there. */
static int compare_entry_places(const void *a, const void *b)
{
    const struct safetensors_entry *const *x = a, *const *y = b;
    const uintptr_t start_x = (uintptr_t)(*x)->data, start_y = (uintptr_t)(*y)->data;
    const size_t bytes_x = entry_bytes(*x), bytes_y = entry_bytes(*y);

    if (start_x != start_y)
        return start_x < start_y ? -1 : 1;
    return (bytes_x > bytes_y) - (bytes_x < bytes_y);
}

static enum status list_entries(const struct safetensors_entry *entries, size_t count,
                                const struct safetensors_entry ***out)
{
    TRY(mem_alloc(count, sizeof **out, out));
    for (size_t i = 0; i < count; i++)
        (*out)[i] = &entries[i];
    return STATUS_OK;
}

/* Writing */

static bool is_utf8(const char *text)
{
    for (size_t left = strlen(text), span; left > 0; text += span, left -= span) {
        span = utf8_span(text, left);
        if (span == 0)
            return false;
    }
    return true;
}

static enum status check_metadata(const struct safetensors_pair *metadata, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!is_utf8(metadata[i].key) || !is_utf8(metadata[i].text))
            return FAIL(STATUS_USAGE, "metadata %zu of a safetensors file is not UTF-8", i);
        for (size_t j = 0; j < i; j++)
            if (strcmp(metadata[i].key, metadata[j].key) == 0)
                return FAIL(STATUS_USAGE, "metadata \"%.200s\" is given twice",
                            metadata[i].key);
    }
    return STATUS_OK;
}

static enum status check_entries(const struct safetensors_entry *entries, size_t count,
                                 const struct safetensors_source *source)
{
    const struct safetensors_entry **by_name;
    enum status status = STATUS_OK;

    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *entry = &entries[i];
        size_t bytes;

        if (!is_utf8(entry->name))
            return FAIL(STATUS_USAGE, "the name of tensor %zu is not UTF-8", i);
        if (strcmp(entry->name, metadata_key) == 0)
            return FAIL(STATUS_USAGE, "a tensor may not be named %s", metadata_key);
        if (!count_bytes(&entry->shape, entry->dtype, &bytes))
            return FAIL(STATUS_USAGE, "tensor \"%.200s\" has an impossible shape", entry->name);
        BUG_ON(!source && !entry->data && bytes > 0);
    }

    TRY(list_entries(entries, count, &by_name));
    qsort(by_name, count, sizeof *by_name, compare_entry_names);
    for (size_t i = 1; i < count && status == STATUS_OK; i++)
        if (strcmp(by_name[i - 1]->name, by_name[i]->name) == 0)
            status = FAIL(STATUS_USAGE, "tensor \"%.200s\" is given twice", by_name[i]->name);
    mem_free(by_name);
    return status;
}

static void add_entry(struct strbuf *header, const struct safetensors_entry *entry,
                      uint64_t begin)
{
    strbuf_add_json(header, entry->name);
    strbuf_printf(header, ":{\"dtype\":\"%s\",\"shape\":[", dtype_safetensors(entry->dtype));
    for (int i = 0; i < entry->shape.rank; i++)
        strbuf_printf(header, "%s%" PRId64, i > 0 ? "," : "", entry->shape.dim[i]);
    strbuf_printf(header, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", begin,
                  begin + entry_bytes(entry));
}

static enum status print_header(struct strbuf *header, const struct safetensors_entry *entries,
                                size_t n_entries, const struct safetensors_pair *metadata,
                                size_t n_metadata)
{
    const char *separator = "{";
    uint64_t begin = 0;

    if (n_metadata > 0) {
        strbuf_printf(header, "{\"%s\":", metadata_key);
        for (size_t i = 0; i < n_metadata; i++) {
            strbuf_add(header, i > 0 ? "," : "{");
            strbuf_add_json(header, metadata[i].key);
            strbuf_add(header, ":");
            strbuf_add_json(header, metadata[i].text);
        }
        strbuf_add(header, "}");
        separator = ",";
    }
    for (size_t i = 0; i < n_entries; i++) {
        strbuf_add(header, separator);
        add_entry(header, &entries[i], begin);
        begin += entry_bytes(&entries[i]);
        separator = ",";
    }
    strbuf_add(header, n_metadata + n_entries > 0 ? "}" : "{}");
    while ((LENGTH_BYTES + header->length) % DATA_ALIGN != 0 &&
           strbuf_status(header) == STATUS_OK)
        strbuf_add(header, " ");
    return strbuf_status(header);
}

static enum status add_hashed(struct file_writer *writer, struct sha256 *hash, const void *data,
                              size_t length)
{
    const uint8_t *bytes = data;

    while (length > 0) {
        const size_t piece = length < PIECE_BYTES ? length : PIECE_BYTES;

        sha256_add(hash, bytes, piece);
        TRY(file_writer_add(writer, bytes, piece));
        bytes += piece;
        length -= piece;
    }
    return STATUS_OK;
}

static enum status write_parts(struct file_writer *writer, struct sha256 *hash,
                               const struct strbuf *header,
                               const struct safetensors_entry *entries, size_t n_entries,
                               const struct safetensors_source *source)
{
    uint8_t length[LENGTH_BYTES];

    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (uint8_t)((uint64_t)header->length >> (8 * i));
    TRY(add_hashed(writer, hash, length, sizeof length));
    TRY(add_hashed(writer, hash, header->text, header->length));
    for (size_t i = 0; i < n_entries; i++) {
        const void *data = entries[i].data;
        if (source)
            TRY(source->read(source->arg, &entries[i], &data));
        TRY(add_hashed(writer, hash, data, entry_bytes(&entries[i])));
    }
    return STATUS_OK;
}

enum status safetensors_write(const char *path, const struct safetensors_entry *entries,
                              size_t n_entries, const struct safetensors_pair *metadata,
                              size_t n_metadata, char out_sha256[SHA256_HEX])
{
    return safetensors_write_from(path, entries, n_entries, metadata, n_metadata, NULL,
                                  out_sha256);
}

enum status safetensors_write_from(const char *path, const struct safetensors_entry *entries,
                                   size_t n_entries, const struct safetensors_pair *metadata,
                                   size_t n_metadata, const struct safetensors_source *source,
                                   char out_sha256[SHA256_HEX])
{
    struct file_writer writer;
    struct strbuf header;
    struct sha256 hash;

    TRY(check_metadata(metadata, n_metadata));
    TRY(check_entries(entries, n_entries, source));

    strbuf_init(&header, HEADER_MAX);
    enum status status = print_header(&header, entries, n_entries, metadata, n_metadata);
    if (status != STATUS_OK)
        goto release_header;
    status = file_writer_begin(&writer, path);
    if (status != STATUS_OK)
        goto release_header;

    sha256_init(&hash);
    status = write_parts(&writer, &hash, &header, entries, n_entries, source);
    if (status == STATUS_OK)
        status = file_writer_commit(&writer);
    else
        file_writer_cancel(&writer);
    if (status == STATUS_OK && out_sha256)
        sha256_end_hex(&hash, out_sha256);

release_header:
    strbuf_release(&header);
    return status;
}

/* Reading */

/* Where the header lies; the data is what follows it. */
static enum status find_header(const uint8_t *bytes, size_t length, size_t *out_header)
{
    uint64_t header = 0;

    if (length < LENGTH_BYTES)
        return FAIL(STATUS_CORRUPT, "%zu bytes are too few for a safetensors file", length);
    for (int i = 0; i < LENGTH_BYTES; i++)
        header |= (uint64_t)bytes[i] << (8 * i);
    if (header > HEADER_MAX)
        return FAIL(STATUS_CORRUPT, "header length %" PRIu64 " exceeds %d; no safetensors file",
                    header, HEADER_MAX);
    if (header > length - LENGTH_BYTES)
        return FAIL(STATUS_CORRUPT, "header length %" PRIu64 " exceeds the file's %zu bytes",
                    header, length);
    if (header == 0 || bytes[LENGTH_BYTES] != '{')
        return FAIL(STATUS_CORRUPT, "the header does not start with {; no safetensors file");
    *out_header = (size_t)header;
    return STATUS_OK;
}

static enum status read_dtype(const char *name, const char *text, enum dtype *out)
{
    for (int i = 0; i < DTYPE_COUNT; i++) {
        if (strcmp(text, dtype_safetensors((enum dtype)i)) == 0) {
            *out = (enum dtype)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_UNSUPPORTED, "tensor \"%.200s\" has the unknown element type %.32s",
                name, text);
}

static bool is_array(const struct json_value *value)
{
    return value && value->kind == JSON_ARRAY;
}

static bool is_size(const struct json_value *value)
{
    return value->kind == JSON_NUMBER && value->is_integer && value->integer >= 0;
}

static enum status read_shape(const char *name, const struct json_value *value,
                              struct shape *out)
{
    int64_t dims[SHAPE_MAX];

    if (value->count > SHAPE_MAX)
        return FAIL(STATUS_UNSUPPORTED, "tensor \"%.200s\" has %zu dimensions; at most %d work",
                    name, value->count, SHAPE_MAX);
    for (size_t i = 0; i < value->count; i++) {
        if (!is_size(&value->items[i]))
            return FAIL(STATUS_CORRUPT, "tensor \"%.200s\" has a dimension that is no size",
                        name);
        dims[i] = value->items[i].integer;
    }
    *out = shape_of((int)value->count, dims);
    return STATUS_OK;
}

static enum status read_entry(const char *name, const struct json_value *value,
                              const uint8_t *data, size_t data_bytes,
                              struct safetensors_entry *out)
{
    const char *dtype = json_text(value, "dtype", NULL);
    const struct json_value *shape = json_get(value, "shape");
    const struct json_value *offsets = json_get(value, "data_offsets");
    struct safetensors_entry entry = { .name = name };
    size_t bytes;

    if (!dtype || !is_array(shape) || !is_array(offsets) || offsets->count != 2 ||
        !is_size(&offsets->items[0]) || !is_size(&offsets->items[1]))
        return FAIL(STATUS_CORRUPT, "tensor \"%.200s\" lacks its dtype, shape or data_offsets",
                    name);
    TRY(read_dtype(name, dtype, &entry.dtype));
    TRY(read_shape(name, shape, &entry.shape));

    const int64_t begin = offsets->items[0].integer, end = offsets->items[1].integer;
    if (begin > end || (uint64_t)end > data_bytes)
        return FAIL(STATUS_CORRUPT,
                    "tensor \"%.200s\" lies at %" PRId64 " to %" PRId64 " of %zu data bytes",
                    name, begin, end, data_bytes);
    if (!count_bytes(&entry.shape, entry.dtype, &bytes) || bytes != (uint64_t)(end - begin))
        return FAIL(STATUS_CORRUPT,
                    "tensor \"%.200s\" has %" PRId64 " bytes, which do not fit its shape", name,
                    end - begin);
    entry.data = data + begin;
    *out = entry;
    return STATUS_OK;
}

static enum status check_metadata_value(const struct json_value *value)
{
    bool good = value->kind == JSON_OBJECT;

    for (size_t i = 0; good && i < value->count; i++)
        good = value->items[i].kind == JSON_STRING;
    return good ? STATUS_OK
                : FAIL(STATUS_CORRUPT, "%s does not map text to text", metadata_key);
}

static enum status read_entries(struct safetensors *file, const struct json_value *root,
                                const uint8_t *data, size_t data_bytes)
{
    TRY(mem_alloc(root->count, sizeof *file->entries, &file->entries));
    for (size_t i = 0; i < root->count; i++) {
        if (strcmp(root->keys[i], metadata_key) == 0) {
            TRY(check_metadata_value(&root->items[i]));
            file->metadata = &root->items[i];
        } else {
            TRY(read_entry(root->keys[i], &root->items[i], data, data_bytes,
                           &file->entries[file->count]));
            file->count++;
        }
    }
    return STATUS_OK;
}

/* The entries, sorted by place, cover the data without gap and overlap. */
static enum status check_cover(const struct safetensors_entry *const *by_place, size_t count,
                               const uint8_t *data, size_t data_bytes)
{
    size_t covered = 0;

    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *entry = by_place[i];

        if (entry->data != data + covered)
            return FAIL(STATUS_CORRUPT,
                        "tensor \"%.200s\" starts at data byte %zu instead of %zu", entry->name,
                        (size_t)((const uint8_t *)entry->data - data), covered);
        covered += entry_bytes(entry);
    }
    if (covered != data_bytes)
        return FAIL(STATUS_CORRUPT, "the tensors cover %zu of %zu data bytes", covered,
                    data_bytes);
    return STATUS_OK;
}

static enum status read_file(struct safetensors *file, const uint8_t *bytes, size_t length)
{
    size_t header = 0;

    TRY(find_header(bytes, length, &header));
    TRY(json_parse((const char *)bytes + LENGTH_BYTES, header, &file->json));

    const uint8_t *data = bytes + LENGTH_BYTES + header;
    const size_t data_bytes = length - LENGTH_BYTES - header;
    TRY(read_entries(file, json_root(file->json), data, data_bytes));
    TRY(list_entries(file->entries, file->count, &file->by_name));
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_entry_places);
    TRY(check_cover(file->by_name, file->count, data, data_bytes));
    qsort(file->by_name, file->count, sizeof *file->by_name, compare_entry_names);
    return STATUS_OK;
}

enum status safetensors_open(const char *path, struct safetensors **out)
{
    struct file_map map;

    TRY(file_map(path, &map));
    enum status status = safetensors_parse(map.data, map.length, out);
    const char *foreign = status == STATUS_OK ? NULL : foreign_kind(map.data, map.length);
    if (status == STATUS_OK) {
        (*out)->map = map;
        return STATUS_OK;
    }
    if (foreign)
        status =
            FAIL(STATUS_CORRUPT,
                 "%s is %s, weights are read from safetensors: convert it (man tutti, FILES "
                 "OF OTHER PROGRAMS)",
                 path, foreign);
    else if (status == STATUS_CORRUPT || status == STATUS_UNSUPPORTED)
        status = FAIL(status, "%s: %s", path, status_message());
    file_unmap(&map);
    return status;
}

enum status safetensors_parse(const void *bytes, size_t length, struct safetensors **out)
{
    struct safetensors *file;

    TRY(mem_alloc(1, sizeof *file, &file));
    const enum status status = read_file(file, bytes, length);
    if (status == STATUS_OK)
        *out = file;
    else
        safetensors_close(file);
    return status;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    mem_free(file->by_name);
    mem_free(file->entries);
    json_destroy(file->json);
    file_unmap(&file->map);
    mem_free(file);
}

size_t safetensors_count(const struct safetensors *file)
{
    return file->count;
}

const struct safetensors_entry *safetensors_at(const struct safetensors *file, size_t i)
{
    BUG_ON(i >= file->count);
    return &file->entries[i];
}

const struct safetensors_entry *safetensors_find(const struct safetensors *file,
                                                 const char *name)
{
    const struct safetensors_entry wanted = { .name = name }, *key = &wanted;
    const struct safetensors_entry **found =
        bsearch(&key, file->by_name, file->count, sizeof *file->by_name, compare_entry_names);

    return found ? *found : NULL;
}

const char *safetensors_metadata(const struct safetensors *file, const char *key)
{
    return json_text(file->metadata, key, NULL);
}
