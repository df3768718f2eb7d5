/* SPDX-License-Identifier: MIT */
/* status_page.h - where a federation stands, as a page and as lines of text, from /status.json.
 *
 * The page has no script and asks for nothing: the browser loads it anew every few seconds.
 */
#ifndef FED_STATUS_PAGE_H
#define FED_STATUS_PAGE_H

#include "base/json.h"
#include "base/strbuf.h"

enum { STATUS_PAGE_SECONDS = 3 }; /* between loads */

/* status: the object that /status.json has. Whatever is missing is left out. */
MUST_CHECK enum status status_page_print(const struct json_value *status, struct strbuf *out);
/* For a terminal. */
void status_text_print(const struct json_value *status, struct strbuf *out);

#endif /* FED_STATUS_PAGE_H */
