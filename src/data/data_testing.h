/* SPDX-License-Identifier: MIT */
/* data_testing.h - small data sets for the tests of data/, and of folders above it. */
#ifndef DATA_DATA_TESTING_H
#define DATA_DATA_TESTING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "data/idx.h"

/* Can packed files be read? If not they are refused with STATUS_UNSUPPORTED. */
bool data_testing_has_zlib(void);
bool data_testing_has_curl(void);
/* The same for images. */
bool data_testing_has_png(void);
bool data_testing_has_jpeg(void);

/* A file in memory; `bytes` is the caller's to free with mem_free. */
struct data_testing_file {
    uint8_t *bytes;
    size_t length;
};

/* An IDX file with the header of these dimensions and elements below `limit`. */
struct data_testing_file data_testing_idx(struct rng *rng, enum idx_kind kind,
                                          const int64_t *dim, int limit);
/* Packed by zlib's deflate; *file is freed and replaced. Without zlib the bytes stay. */
void data_testing_pack(struct data_testing_file *file);
void data_testing_write(const char *folder, const char *name, const uint8_t *bytes,
                        size_t length);

/* Writes the dataset.json that says which known data set the folder is. */
void data_testing_call(const char *folder, const char *name);

/* What goes into a folder of four IDX files. */
struct data_testing_set {
    int64_t train, test; /* samples */
    int64_t rows, columns;
    int classes;
    bool packed;
};
void data_testing_make(struct rng *rng, const char *folder, const struct data_testing_set *set);

/* The 512 bytes before an entry of a tar archive; kind '0' is a file. */
void data_testing_tar_header(uint8_t *header, const char *name, char kind, size_t size);
/* Puts the header's checksum right. */
void data_testing_tar_sum(uint8_t *header);

/* An image to be encoded: height x width x channels values, interleaved. */
struct data_testing_image {
    int width, height;
    int channels;    /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA; for JPEG 4 is CMYK */
    int bits;        /* PNG: 16 has two bytes a value; below 8, the low bits of a byte */
    bool interlaced; /* PNG; JPEG: progressive */
    bool palette; /* PNG: values are grey levels, and entry i of the palette is i, 255 - i, 7 */
    const uint8_t *value; /* rows one after the other */
};
struct data_testing_file data_testing_png(const struct data_testing_image *image);
struct data_testing_file data_testing_jpeg(const struct data_testing_image *image);

/* "folder/name" in a buffer that the next call overwrites. */
const char *data_testing_path(const char *folder, const char *name);

#endif /* DATA_DATA_TESTING_H */
