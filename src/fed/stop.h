/* SPDX-License-Identifier: MIT */
/* stop.h - Ctrl-C, SIGTERM and SIGHUP for commands that run until they are told to stop.
 *
 * The first asks, the second ends the process at once: nothing is lost by that.
 */
#ifndef FED_STOP_H
#define FED_STOP_H

#include <stdbool.h>

#include "base/status.h"

void fed_stop_begin(void); /* from now on they ask */
void fed_stop_end(void);   /* as it was before */
bool fed_stop_asked(void);
/* STATUS_STOPPED after Ctrl-C, else STATUS_PREEMPTED: what a command that was asked returns. */
enum status fed_stop_status(void);
/* Sleeps so long, or until asked to stop: then false. */
bool fed_stop_sleep(double seconds);

#endif /* FED_STOP_H */
