/* SPDX-License-Identifier: MIT */
/* sha256_block.h - the compression functions behind sha256.h; private, for tests to compare. */
#ifndef BASE_SHA256_BLOCK_H
#define BASE_SHA256_BLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Takes `count` blocks of 64 bytes into the state. */
typedef void sha256_block_fn(uint32_t state[8], const uint8_t *blocks, size_t count);

sha256_block_fn sha256_blocks_portable;
/* The one that uses the processor's instructions; NULL where it has none. */
sha256_block_fn *sha256_blocks_native(void);

#endif /* BASE_SHA256_BLOCK_H */
