/* SPDX-License-Identifier: MIT */
/* start.h - starts the libraries that federated learning uses.
 *
 * Threads: any; what a library must do once is done once.
 */
#ifndef FED_START_H
#define FED_START_H

#include "base/status.h"

/* Before anything else of this folder that signs, masks, draws secrets or talks. Cheap when repeated. */
MUST_CHECK enum status fed_start(void);

#endif /* FED_START_H */
