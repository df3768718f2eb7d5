/* SPDX-License-Identifier: MIT */
/* deflate.h - bytes packed as zlib does (RFC 1950, 1951). Private to report/. */
#ifndef REPORT_DEFLATE_H
#define REPORT_DEFLATE_H

#include <stddef.h>
#include <stdint.h>

#include "base/strbuf.h"

/* Adds data[0..length) as a zlib stream. Repetitions become short; what has none grows by at most
 * an eighth. */
void deflate_add(struct strbuf *out, const uint8_t *data, size_t length);

#endif /* REPORT_DEFLATE_H */
