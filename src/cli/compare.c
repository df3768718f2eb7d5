/* SPDX-License-Identifier: MIT */
/* compare.c - tutti compare: runs side by side. */
#include <math.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "report/compare.h"

enum { WORDS = 1024 };

static bool json;
static const char *page;

static const struct flag flags[] = {
    { .name = "out",
      .argument = "FILE",
      .help = "also write a page with plots, as report.html",
      .text = &page },
    { .name = "json", .help = "one object a line for each group of runs", .is_set = &json },
    { .name = NULL },
};

/* Columns of a terminal that a text takes: bytes that begin a character. */
static int width_of(const char *text)
{
    int width = 0;

    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_padded(const char *text, int width)
{
    printf("%s%*s", text, width > width_of(text) ? width - width_of(text) : 0, "");
}

static void print_figure(const struct compare_group *group, int metric, bool is_base)
{
    const struct compare_figure *figure = &group->figures[metric];
    char text[2 * NUMBER_TEXT];

    if (figure->moments.count == 0)
        return;
    compare_print(text, metric, &figure->moments);
    printf("    ");
    print_padded(compare_rows[metric].name, 22);
    print_padded(text, 26);
    if (!is_base)
        printf("%s", figure->verdict == COMPARE_UNKNOWN
                         ? "? (one seed: the noise is unknown)"
                         : compare_verdict_names[figure->verdict]);
    if (!is_base && metric == COMPARE_EPOCH_SECONDS && isfinite(group->speedup))
        printf("  %.2fx", group->speedup);
    printf("\n");
}

static void print_ranking(const struct compare_section *section)
{
    const struct compare_group *group;

    if (section->count < 2 || section->ranked_by == COMPARE_METRICS)
        return;
    printf("  rank by %s\n", compare_rows[section->ranked_by].name);
    for (size_t rank = 1; (group = compare_ranked(section, rank)); rank++) {
        char text[2 * NUMBER_TEXT];
        compare_print(text, section->ranked_by, &group->figures[section->ranked_by].moments);
        printf("    %2zu  ", rank);
        print_padded(text, 18);
        printf("  %s%s\n", group->label,
               compare_is_tied(group) ? " (within the noise of the best)" : "");
    }
}

static void print_section(const struct compare_section *section)
{
    printf("%s on %s\n", section->model, section->data);
    for (size_t g = 0; g < section->count; g++) {
        const struct compare_group *group = &section->groups[g];
        printf("  %s (%zu %s%s", group->label, group->count, group->count == 1 ? "run" : "runs",
               group->n_failed == group->count ? ", failed" : "");
        if (group->n_failed > 0 && group->n_failed < group->count)
            printf(", of which %zu failed", group->n_failed);
        printf("%s)\n", g == 0                ? "; the others are measured against it"
                        : group->same_weights ? "; the same weights to the last bit"
                                              : "");
        for (int m = 0; m < COMPARE_METRICS; m++)
            print_figure(group, m, g == 0);
    }
    print_ranking(section);
}

static enum status tell(const struct compare *compare)
{
    struct strbuf lines;

    if (!json) {
        for (size_t k = 0; k < compare->n_sections; k++)
            print_section(&compare->sections[k]);
        if (compare->notes.length > 0)
            fputs(compare->notes.text, stderr);
        return STATUS_OK;
    }
    strbuf_init(&lines, 16 << 20);
    compare_add_json(&lines, compare);
    const enum status status = strbuf_status(&lines);
    if (status == STATUS_OK)
        fputs(lines.text, stdout);
    strbuf_release(&lines);
    return status;
}

static enum status run(const struct args *args)
{
    static const char *words[WORDS];
    struct parse parse = { .args = args, .flags = flags, .words = words, .max_words = WORDS };
    struct compare *compare;

    TRY(cli_parse(&parse));
    if (parse.n_words < 2)
        return FAIL(STATUS_USAGE, "nothing to compare: tutti compare DIR DIR...");
    TRY(compare_read(words, (size_t)parse.n_words, &compare));
    enum status status = tell(compare);
    if (status == STATUS_OK && page)
        status = compare_write_page(compare, page);
    if (status == STATUS_OK && page && !json)
        printf("page     %s\n", page);
    compare_destroy(compare);
    return status;
}

static void help(void)
{
    fputs("\nRuns that differ in nothing but their seed are one group; NAME=DIR puts runs into "
          "groups by "
          "hand. The\nfirst group of each model and data set is what the others are measured "
          "against. "
          "\"Better\" and \"worse\"\nare differences beyond the noise among seeds (Welch's "
          "test at "
          "5%), so each group needs two seeds at least.\n",
          stdout);
    cli_print_flags("\nflags", flags);
}

const struct command command_compare = {
    .name = "compare",
    .usage = "compare [NAME=]DIR [NAME=]DIR... [--out FILE] [--json]",
    .summary = "runs side by side: accuracy, loss, time; better, same or worse",
    .run = run,
    .help = help,
};
