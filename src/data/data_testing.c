/* SPDX-License-Identifier: MIT */
/* data_testing.c - makes IDX files with random contents. */
#include "data/data_testing.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"

#include <stdio.h>
#include <string.h>

#ifdef HAVE_ZLIB
#include <zlib.h>
#endif

bool data_testing_has_zlib(void)
{
#ifdef HAVE_ZLIB
    return true;
#else
    return false;
#endif
}

bool data_testing_has_curl(void)
{
#ifdef HAVE_CURL
    return true;
#else
    return false;
#endif
}

struct data_testing_file data_testing_idx(struct rng *rng, enum idx_kind kind,
                                          const int64_t *dim, int limit)
{
    const size_t header = 4 + 4 * (size_t)kind;
    struct data_testing_file file = { .length = header };
    size_t count = 1;

    for (int i = 0; i < (int)kind; i++)
        count *= (size_t)dim[i];
    file.length += count;
    CHECK_OK(mem_alloc(file.length, 1, &file.bytes));
    file.bytes[2] = 0x08;
    file.bytes[3] = (uint8_t)kind;
    for (int i = 0; i < (int)kind; i++)
        for (int byte = 0; byte < 4; byte++)
            file.bytes[4 + 4 * i + byte] = (uint8_t)(dim[i] >> (24 - 8 * byte));
    for (size_t i = header; i < file.length; i++)
        file.bytes[i] = (uint8_t)rng_below(rng, (uint64_t)limit);
    return file;
}

void data_testing_pack(struct data_testing_file *file)
{
#ifdef HAVE_ZLIB
    const size_t most = compressBound((uLong)file->length) + 32; /* gzip's header is longer */
    z_stream z = { .next_in = file->bytes, .avail_in = (uInt)file->length };
    uint8_t *packed;

    CHECK_OK(mem_alloc(most, 1, &packed));
    CHECK(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    z.next_out = packed;
    z.avail_out = (uInt)most;
    CHECK(deflate(&z, Z_FINISH) == Z_STREAM_END);
    deflateEnd(&z);
    mem_free(file->bytes);
    *file = (struct data_testing_file){ packed, most - z.avail_out };
#else
    (void)file;
#endif
}

const char *data_testing_path(const char *folder, const char *name)
{
    static char path[2048];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

void data_testing_write(const char *folder, const char *name, const uint8_t *bytes,
                        size_t length)
{
    CHECK_OK(file_make_folder(folder));
    CHECK_OK(file_replace(data_testing_path(folder, name), bytes, length));
}

static void make_file(struct rng *rng, const char *folder, const char *name, enum idx_kind kind,
                      const int64_t *dim, int limit, bool packed)
{
    struct data_testing_file file = data_testing_idx(rng, kind, dim, limit);
    char full[64];

    if (packed)
        data_testing_pack(&file);
    snprintf(full, sizeof full, "%s%s", name, packed ? ".gz" : "");
    data_testing_write(folder, full, file.bytes, file.length);
    mem_free(file.bytes);
}

void data_testing_make(struct rng *rng, const char *folder, const struct data_testing_set *set)
{
    const int64_t train[] = { set->train, set->rows, set->columns };
    const int64_t test[] = { set->test, set->rows, set->columns };

    make_file(rng, folder, "train-images-idx3-ubyte", IDX_IMAGES, train, 256, set->packed);
    make_file(rng, folder, "train-labels-idx1-ubyte", IDX_LABELS, train, set->classes,
              set->packed);
    make_file(rng, folder, "t10k-images-idx3-ubyte", IDX_IMAGES, test, 256, set->packed);
    make_file(rng, folder, "t10k-labels-idx1-ubyte", IDX_LABELS, test, set->classes,
              set->packed);
}
