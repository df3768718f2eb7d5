/* SPDX-License-Identifier: MIT */
/* sha256.h - FIPS 180-4 SHA-256; uses the processor's instructions where it has them. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_HEX = 65 };

struct sha256 {
    uint32_t state[8];
    uint64_t length;
    uint8_t block[64];
};

void sha256_init(struct sha256 *hash);
void sha256_add(struct sha256 *hash, const void *bytes, size_t length);
void sha256_end(struct sha256 *hash, uint8_t out[SHA256_BYTES]);
/* Ends the hash as 64 hexadecimal digits and NUL. */
void sha256_end_hex(struct sha256 *hash, char out[SHA256_HEX]);

#endif /* BASE_SHA256_H */
