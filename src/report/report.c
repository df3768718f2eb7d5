/* SPDX-License-Identifier: MIT */
/* report.c - a run's folder in, one HTML page out. */
#include "report/report.h"

#include "base/file.h"
#include "base/mem.h"
#include "report/page.h"
#include "report/part.h"

#include <math.h>
#include <stdio.h>

static const size_t page_maximum = (size_t)256 << 20;

/* From top to bottom. */
static void (*const parts[])(struct report *report) = {
    part_header,   part_notes,           part_cards,         part_learning, part_federated,
    part_classes,  part_reconstructions, part_samples,       part_time,     part_servers,
    part_pipeline, part_graph,           part_configuration, part_repeat,
};

static enum status write_page(const struct run *run, struct strbuf *out)
{
    const double epochs =
        fmax(run_last(&run->train, RUN_EPOCH), run_last(&run->eval, RUN_EPOCH));
    struct report report = { .out = out, .run = run, .x = epochs >= 1 ? RUN_EPOCH : RUN_STEP };
    const char *version = run->config ? json_text(json_root(run->config), "tutti", NULL) : NULL;
    char title[200], footer[200];

    snprintf(title, sizeof title, "%.80s %.80s \u2013 tutti",
             run_text(run, "model", "training run"), run_text(run, "data", ""));
    snprintf(footer, sizeof footer,
             "Made by tutti%s%.40s from the files beside this page. Point at a plot for its "
             "values. Pale lines are values as logged, strong ones their smoothed course.",
             version ? " " : "", version ? version : "");
    page_begin(out, title);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        parts[i](&report);
    page_end(out, footer);
    TRY(report.status);
    return strbuf_status(out);
}

enum status report_write(const char *folder)
{
    struct run *run;
    struct strbuf page;
    char *path = NULL;

    TRY(run_read(folder, &run));
    strbuf_init(&page, page_maximum);
    enum status status = write_page(run, &page);
    if (status == STATUS_OK)
        status = file_join(folder, "report.html", &path);
    if (status == STATUS_OK)
        status = file_replace(path, page.text, page.length);
    mem_free(path);
    strbuf_release(&page);
    run_destroy(run);
    return status;
}
