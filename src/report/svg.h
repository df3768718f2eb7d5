/* SPDX-License-Identifier: MIT */
/* svg.h - whether a picture may stand inside a page. Private to report/. */
#ifndef REPORT_SVG_H
#define REPORT_SVG_H

/* The <svg> element of a file's text: past an XML declaration, a document type and comments,
 * up to the end of the text. NULL, with the reason, if there is none, if its tags are not
 * balanced (it would break the page around it), or if it holds script or foreign content. */
const char *svg_element(const char *text, const char **out_reason);

#endif /* REPORT_SVG_H */
