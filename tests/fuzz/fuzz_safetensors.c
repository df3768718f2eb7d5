/* SPDX-License-Identifier: MIT */
/* fuzz_safetensors.c - the tensors of an accepted file lie in it, fill it, and are found.
 *
 * The input is read twice: as a file, and as header, NUL and data that are made a file with the
 * right header length, which a random change would hardly ever keep right.
 */
#include "base/foreign.h"
#include "base/mem.h"
#include "base/status.h"
#include "fuzz.h"
#include "tensor/safetensors.h"

#include <string.h>

enum { LENGTH_BYTES = 8 };

static void check_file(const struct safetensors *file, const uint8_t *data, size_t size)
{
    uint64_t header = 0;
    size_t total = 0;
    volatile uint8_t sum = 0; /* so that every byte is read */

    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        const size_t bytes = (size_t)shape_count(&entry->shape) * dtype_size(entry->dtype);
        const uint8_t *tensor = entry->data;

        BUG_ON(safetensors_find(file, entry->name) != entry);
        BUG_ON(tensor < data || bytes > (size_t)(data + size - tensor));
        for (size_t j = 0; j < bytes; j++)
            sum ^= tensor[j];
        total += bytes;
    }
    (void)sum;
    (void)safetensors_metadata(file, "format");

    for (int i = 0; i < LENGTH_BYTES; i++)
        header |= (uint64_t)data[i] << (8 * i);
    BUG_ON(total != size - LENGTH_BYTES - header);
}

static void parse(const uint8_t *data, size_t size)
{
    struct safetensors *file = NULL;
    const enum status status = safetensors_parse(data, size, &file);

    if (status == STATUS_OK) {
        check_file(file, data, size);
        safetensors_close(file);
        return;
    }
    BUG_ON(status != STATUS_CORRUPT && status != STATUS_UNSUPPORTED);
    BUG_ON(file || !status_message()[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t header = end ? (size_t)(end - data) : size;
    const size_t rest = end ? size - header - 1 : 0;
    uint8_t *file;

    parse(data, size);
    (void)foreign_kind(data, size); /* that is asked what a file is which is refused */

    if (mem_alloc(LENGTH_BYTES + header + rest, 1, &file) != STATUS_OK)
        return 0;
    for (int i = 0; i < LENGTH_BYTES; i++)
        file[i] = (uint8_t)((uint64_t)header >> (8 * i));
    if (header > 0)
        memcpy(file + LENGTH_BYTES, data, header);
    if (rest > 0)
        memcpy(file + LENGTH_BYTES + header, end + 1, rest);
    parse(file, LENGTH_BYTES + header + rest);
    mem_free(file);
    return 0;
}
