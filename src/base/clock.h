/* SPDX-License-Identifier: MIT */
/* clock.h - monotonic time. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

int64_t clock_ns(void);     /* since some fixed moment of this boot */
double clock_seconds(void); /* the same in seconds */
void clock_sleep_ms(int ms);

#endif /* BASE_CLOCK_H */
