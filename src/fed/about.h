/* SPDX-License-Identifier: MIT */
/* about.h - what a participant tells about its data when it says hello: {"labels": [12, 0, 7]}, or {}. */
#ifndef FED_ABOUT_H
#define FED_ABOUT_H

#include <stddef.h>

#include "base/status.h"

enum { FED_LABELS = 1024 /* most labels that are told */ };

/* The counts as the text of a JSON array, "[12, 0, 7]"; NULL if it tells none. The caller frees it. Bytes are a stranger's:
 * STATUS_CORRUPT with the reason for what is no such object. */
MUST_CHECK enum status fed_about_labels(const void *bytes, size_t length, char **out);

#endif /* FED_ABOUT_H */
