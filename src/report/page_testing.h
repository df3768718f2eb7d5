/* SPDX-License-Identifier: MIT */
/* page_testing.h - for tests of pages. */
#ifndef REPORT_PAGE_TESTING_H
#define REPORT_PAGE_TESTING_H

/* Every element is closed in order, attributes are quoted, and nothing says nan or inf. */
void page_testing_check(const char *page);

#endif /* REPORT_PAGE_TESTING_H */
