/* SPDX-License-Identifier: MIT */
/* pages.h - memory that is given back to the system while its addresses stay. Private to exec/.
 *
 * Flat vectors keep their places whatever is resident of them. What nobody needs for a while is
 * released and costs nothing then; who writes there again finds zeros. Memory goes by whole pages: what
 * shares a page with something else stays.
 *
 * Threads: any; nobody may read or write what is released meanwhile.
 */
#ifndef EXEC_PAGES_H
#define EXEC_PAGES_H

#include <stddef.h>

/* Releases the whole pages of `bytes` from `data` on, for every process that shares them. */
void pages_release(void *data, size_t bytes);
/* Asks for pages of the smallest size, so that little is kept because of its neighbours. */
void pages_keep_small(void *data, size_t bytes);

#endif /* EXEC_PAGES_H */
