/* SPDX-License-Identifier: MIT */
/* suggest.h - the name that somebody who mistyped may have meant. */
#ifndef BASE_SUGGEST_H
#define BASE_SUGGEST_H

/* The name nearest to `word`, the first of several equally near; NULL if none is near enough to
 * be meant. `names` ends with NULL. Upper and lower case count as the same. */
const char *suggest_nearest(const char *word, const char *const *names);

#endif /* BASE_SUGGEST_H */
