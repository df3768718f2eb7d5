/* SPDX-License-Identifier: MIT */
/* report.h - a run's folder as one HTML page. */
#ifndef REPORT_REPORT_H
#define REPORT_REPORT_H

#include "base/status.h"

/* Reads what there is of config.json, metrics.jsonl, summary.json, graph.svg and
 * reconstructions.png, and writes folder/report.html, replaced as a whole. Parts that are absent or damaged are left out, and
 * the page says so; an unfinished run gives a page of what it has so far.
 * STATUS_NOT_FOUND if the folder is absent or holds none of a run's files. */
MUST_CHECK enum status report_write(const char *folder);

#endif /* REPORT_REPORT_H */
