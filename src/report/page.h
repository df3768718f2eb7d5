/* SPDX-License-Identifier: MIT */
/* page.h - the common frame of tutti's HTML pages.
 *
 * A page is one file that opens from disk: the style is inside, there is no
 * script, and its content security policy keeps it so: nothing in it can run or
 * reach the network, whatever a run's files held. It follows the reader's choice of
 * light or dark and prints in light.
 *
 * Texts are escaped here. Errors are the buffer's and sticky.
 */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include <stdbool.h>

#include "base/json.h"
#include "base/strbuf.h"

void page_begin(struct strbuf *out, const char *title);
void page_end(struct strbuf *out, const char *footer);

void page_section_begin(struct strbuf *out, const char *heading); /* NULL: without one */
void page_section_end(struct strbuf *out);

/* Cards stand in a row: a large figure with its name. `remark` and `hover` may be NULL. */
void page_cards_begin(struct strbuf *out);
void page_card(struct strbuf *out, const char *name, const char *figure, const char *remark,
               const char *hover);
void page_cards_end(struct strbuf *out);

/* Plots stand two in a row where there is room, a wide one alone; add one <svg> between begin and
 * end. */
void page_plots_begin(struct strbuf *out);
void page_plot_begin(struct strbuf *out, bool wide);
void page_plot_end(struct strbuf *out);
void page_plots_end(struct strbuf *out);

/* A part that the reader may open. */
void page_details_begin(struct strbuf *out, const char *summary);
void page_details_begin_open(struct strbuf *out, const char *summary); /* and may close */
void page_details_end(struct strbuf *out);

void page_note(struct strbuf *out, const char *text); /* set off by a coloured border */
void page_code(struct strbuf *out, const char *text); /* one click selects all of it */

/* A table with one row a member, names of nested ones joined by dots; members named in `without`,
 * which ends with NULL, are left out. */
void page_settings(struct strbuf *out, const struct json_value *object,
                   const char *const *without);

#endif /* REPORT_PAGE_H */
