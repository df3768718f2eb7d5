/* SPDX-License-Identifier: MIT */
/* fuzz.h - what every fuzz program defines: one parser, given bytes that may be anything.
 *
 * A broken promise of the parser ends the program with BUG_ON; a refusal is no failure.
 */
#ifndef FUZZ_FUZZ_H
#define FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* libFuzzer's entry point; returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif /* FUZZ_FUZZ_H */
