/* SPDX-License-Identifier: MIT */
/* foreign.c - what other programs' files begin with.
 *
 * PyTorch writes a zip archive whose first entry is FOLDER/data.pkl (before 1.6: a pickle of a number of
 * its own), Keras one with metadata.json or config.json first, NumPy one of NAME.npy. A zip archive has
 * "PK\3\4", 22 bytes, the lengths of the entry's name and of more (two bytes each), then the name. */
#include "base/foreign.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static bool begins(const uint8_t *bytes, size_t length, const char *with, size_t count)
{
    return length >= count && memcmp(bytes, with, count) == 0;
}
#define BEGINS(with) begins(bytes, length, with, sizeof(with) - 1)

static bool ends(const char *name, size_t length, const char *with)
{
    const size_t count = strlen(with);

    return length >= count && memcmp(name + length - count, with, count) == 0;
}

static const char *kind_of_zip(const uint8_t *bytes, size_t length)
{
    enum { LENGTH_AT = 26, NAME_AT = 30 };

    if (length < NAME_AT)
        return "a zip archive";
    const char *name = (const char *)bytes + NAME_AT;
    const size_t told = bytes[LENGTH_AT] + 256U * bytes[LENGTH_AT + 1];
    const size_t there = length - NAME_AT;
    const size_t count = told < there ? told : there;

    if (ends(name, count, "/data.pkl") || ends(name, count, "/.format_version"))
        return "a PyTorch file";
    if (ends(name, count, ".npy"))
        return "a NumPy archive (npz)";
    if (ends(name, count, "metadata.json") || ends(name, count, "config.json") ||
        ends(name, count, ".weights.h5"))
        return "a Keras model";
    return "a zip archive";
}

/* Protobuf: field 1, the version of its format, then the producer's name, its version or the graph. */
static bool is_onnx(const uint8_t *bytes, size_t length)
{
    enum { VERSION_TAG = 0x08, VERSIONS = 32, PRODUCER_TAG = 0x12, GRAPH_TAG = 0x3a };

    return length > 2 && bytes[0] == VERSION_TAG && bytes[1] > 0 && bytes[1] < VERSIONS &&
           (bytes[2] == PRODUCER_TAG || bytes[2] == GRAPH_TAG);
}

const char *foreign_kind(const void *data, size_t length)
{
    enum { PICKLE = 0x80, OLDEST = 2, NEWEST = 5 };
    const uint8_t *bytes = data;

    if (BEGINS("PK\3\4"))
        return kind_of_zip(bytes, length);
    if (BEGINS("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"))
        return "a PyTorch file";
    if (length > 1 && bytes[0] == PICKLE && bytes[1] >= OLDEST && bytes[1] <= NEWEST)
        return "a Python pickle";
    if (BEGINS("\x89HDF\r\n\x1a\n"))
        return "an HDF5 file (Keras .h5)";
    if (BEGINS("GGUF"))
        return "a GGUF file";
    if (BEGINS("\x93NUMPY"))
        return "a NumPy array";
    return is_onnx(bytes, length) ? "an ONNX model" : NULL;
}

const char *foreign_kind_of_file(const char *path)
{
    uint8_t bytes[FOREIGN_BYTES];
    FILE *file = fopen(path, "rb");

    if (!file)
        return NULL;
    const size_t length = fread(bytes, 1, sizeof bytes, file);
    const bool failed = ferror(file);
    (void)fclose(file);
    return failed ? NULL : foreign_kind(bytes, length);
}
