/* SPDX-License-Identifier: MIT */
/* data.c - tutti data list|info|fetch|import */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "data/dataset.h"
#include "data/fetch.h"
#include "data/scale.h"
#include "data/search.h"
#include "data/tabular.h"
#include "data/text.h"

static bool json, report;
static const char *mirror, *report_file, *layout_text;
static enum dataset_layout layout;

static const struct flag flags[] = {
    { "json", NULL, "data list, info: as JSON objects, one a line", &json, NULL },
    { "report", "[FILE]", "data info: a page about it, with pictures (NAME.html)", &report,
      &report_file },
    { "from", "ADDRESS", "data fetch: from this mirror", NULL, &mirror },
    { "layout", "nchw|nhwc",
      "data info, import: where .npy images have channels, if their shape leaves it open", NULL,
      &layout_text },
    { 0 },
};

static void help(void)
{
    puts("\n  data list               the data sets known here, and where they are\n"
         "  data info NAME|PATH     what a data set holds\n"
         "  data fetch NAME         download it from its public address, checked\n"
         "  data import PATH NAME   check a folder and copy it to where data lives\n\n"
         "Read are IDX, CIFAR's binary and NumPy files, and folders of PNG and JPEG images;\n"
         "text with labels (.tsv), in two languages, or plain; tables (.csv, LIBSVM's .svm).\n"
         "Data sets are looked for in $TUTTI_DATA, ~/.local/share/tutti and "
         "/usr/share/datasets.");
    cli_print_flags("Flags", flags);
}

/* What is known of a data set, and its folder; NULL: it is not here. */
static void print_row(const struct dataset_info *info, const char *folder)
{
    char shape[SHAPE_TEXT];

    printf("%-23s ", info->name);
    if (info->train_count)
        printf("%6lld + %5lld  ", (long long)info->train_count, (long long)info->test_count);
    else
        printf("%16s", "");
    printf("%-10s ", info->sample.rank ? shape_print(&info->sample, shape) : info->format);
    if (info->classes)
        printf("%3d classes  ", info->classes);
    else
        printf("%13s", "");
    if (folder)
        puts(folder);
    else if (info->source)
        printf("not here: tutti data fetch %s\n", info->name);
    else
        puts("not here");
}

/* A number; null where it is not known. */
static void add_count(struct strbuf *text, const char *key, int64_t count)
{
    if (count)
        strbuf_printf(text, ", \"%s\": %lld", key, (long long)count);
    else
        strbuf_printf(text, ", \"%s\": null", key);
}

static enum status print_json_row(const struct dataset_info *info, const char *folder)
{
    enum { TEXT_MOST = 1 << 16 };
    struct strbuf text;

    strbuf_init(&text, TEXT_MOST);
    strbuf_add(&text, "{\"name\": ");
    strbuf_add_json(&text, info->name);
    strbuf_printf(&text, ", \"format\": \"%s\"", info->format);
    add_count(&text, "train", info->train_count);
    add_count(&text, "test", info->train_count ? info->test_count : 0);
    strbuf_add(&text, ", \"sample\": ");
    for (int i = 0; i < info->sample.rank; i++)
        strbuf_printf(&text, "%s%lld", i ? ", " : "[", (long long)info->sample.dim[i]);
    strbuf_add(&text, info->sample.rank ? "]" : "null");
    add_count(&text, "classes", info->classes);
    strbuf_add(&text, ", \"folder\": ");
    if (folder)
        strbuf_add_json(&text, folder);
    else
        strbuf_add(&text, "null");
    strbuf_printf(&text, ", \"can_fetch\": %s}", info->source ? "true" : "false");
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        puts(text.text);
    strbuf_release(&text);
    return status;
}

static enum status show_row(const struct dataset_info *info, const char *folder)
{
    if (json)
        return print_json_row(info, folder);
    print_row(info, folder);
    return STATUS_OK;
}

/* Those of the table, then the user's. */
static enum status list(void)
{
    struct search_own *own;
    size_t count;
    enum status status = STATUS_OK;

    for (int i = 0; dataset_table[i] && status == STATUS_OK; i++) {
        char *folder = NULL;
        const bool here = search_find(dataset_table[i]->name, &folder) == STATUS_OK;
        status = show_row(dataset_table[i], here ? folder : NULL);
        mem_free(folder);
    }
    TRY(status);
    TRY(search_list(&own, &count));
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const struct dataset_info info = { .name = own[i].name, .format = own[i].format };
        status = show_row(&info, own[i].folder);
    }
    search_release(own, count);
    return status;
}

static void count_classes(const struct dataset *data, int64_t *counts)
{
    for (int64_t i = 0; i < dataset_count(data); i++)
        counts[dataset_label(data, i)]++;
}

static enum status print_json(const struct dataset *train, const struct dataset *test,
                              const char *page)
{
    enum { TEXT_MOST = 1 << 16 };
    const struct shape sample = dataset_sample(train);
    const struct pixel_scale used = dataset_scale(train);
    char scale[SCALE_TEXT];
    struct strbuf text;

    strbuf_init(&text, TEXT_MOST);
    strbuf_add(&text, "{\"name\": ");
    strbuf_add_json(&text, dataset_info(train)->name);
    strbuf_printf(&text,
                  ", \"format\": \"%s\", \"train\": %lld, \"test\": %lld, "
                  "\"sample\": [%lld, %lld, %lld], \"classes\": %d, \"normalize\": \"%s\", "
                  "\"fingerprint\": \"%s\"",
                  dataset_format(train), (long long)dataset_count(train),
                  (long long)dataset_count(test), (long long)sample.dim[0],
                  (long long)sample.dim[1], (long long)sample.dim[2], dataset_classes(train),
                  scale_print(&used, (int)sample.dim[0], scale), dataset_fingerprint(train));
    if (page) {
        strbuf_add(&text, ", \"report\": ");
        strbuf_add_json(&text, page);
    }
    strbuf_add(&text, "}");
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        puts(text.text);
    strbuf_release(&text);
    return status;
}

static enum status print_text(const struct dataset *train, const struct dataset *test)
{
    const struct dataset_info *about = dataset_info(train);
    const struct shape sample = dataset_sample(train);
    const int classes = dataset_classes(train);
    const struct pixel_scale used = dataset_scale(train);
    char shape[SHAPE_TEXT], scale[SCALE_TEXT];
    int64_t *counts; /* of training, then of test */

    TRY(mem_alloc((size_t)classes, 2 * sizeof *counts, &counts));
    count_classes(train, counts);
    count_classes(test, counts + classes);
    printf("%s: %s\n\n", about->name, about->title);
    printf("  folder       %s\n  format       %s\n", dataset_path(train),
           dataset_format(train));
    printf("  samples      %lld training, %lld test\n", (long long)dataset_count(train),
           (long long)dataset_count(test));
    printf("  sample       %s (channels, height, width)\n", shape_print(&sample, shape));
    printf("  normalize    %s\n  fingerprint  %s\n\n",
           scale_print(&used, (int)sample.dim[0], scale), dataset_fingerprint(train));
    for (int i = 0; i < classes; i++)
        printf("  class %-3d %-14s %6lld %6lld\n", i,
               about->class_names ? about->class_names[i] : "", (long long)counts[i],
               (long long)counts[classes + i]);
    mem_free(counts);
    return STATUS_OK;
}

static enum status show(const struct dataset *train, const struct dataset *test)
{
    char page[SETTINGS_TEXT];

    if (report) {
        snprintf(page, sizeof page, "%s%s",
                 report_file ? report_file : dataset_info(train)->name,
                 report_file ? "" : ".html");
        TRY(cli_write_data_page(train, test, page));
    }
    if (json)
        return print_json(train, test, report ? page : NULL);
    if (!report)
        return print_text(train, test);
    puts(page);
    return STATUS_OK;
}

static enum status refuse_layout(const char *name, const char *what)
{
    return FAIL(STATUS_USAGE, "--layout is for images in NumPy arrays; %s is %s", name, what);
}

static enum status info(const char *name)
{
    struct dataset *train, *test;
    enum text_kind kind;
    bool is_text, is_table;

    TRY(tabular_is(name, &is_table));
    if (is_table && report)
        return FAIL(STATUS_USAGE, "%s: is a table, --report draws images", name);
    if (is_table && layout)
        return refuse_layout(name, "a table");
    if (is_table)
        return cli_show_table(name, json);
    TRY(text_kind_of(name, &is_text, &kind));
    if (is_text && report)
        return FAIL(STATUS_USAGE, "%s: is text, --report draws images", name);
    if (is_text && layout)
        return refuse_layout(name, "text");
    if (is_text)
        return cli_show_text(name, json);
    TRY(dataset_open_layout(name, DATASET_TRAIN, layout, &train));
    enum status status = dataset_open_layout(name, DATASET_TEST, layout, &test);
    if (status == STATUS_OK) {
        status = show(train, test);
        dataset_close(test);
    }
    dataset_close(train);
    return status;
}

static bool tell_fetch(void *arg, const char *file, int64_t done, int64_t total)
{
    (void)arg;
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%-32s %5.1f%% of %.1f MB ", file,
                total ? 100.0 * (double)done / (double)total : 100, (double)total * 1e-6);
    if (done == total)
        fputs(isatty(STDERR_FILENO) ? "\n" : "", stderr);
    return true;
}

static enum status fetch(const char *name)
{
    const struct fetch_options options = { .address = mirror, .progress = tell_fetch };
    char *folder;

    TRY(dataset_fetch(name, &options, &folder));
    printf("%s is in %s\n", name, folder);
    mem_free(folder);
    return STATUS_OK;
}

static enum status import(const char *path, const char *name)
{
    char *folder;

    TRY(dataset_import_layout(path, name, layout, &folder));
    printf("%s is in %s\n", name, folder);
    mem_free(folder);
    return STATUS_OK;
}

/* Flags that are another subcommand's are mistakes. */
static enum status check_flags(const char *what)
{
    const struct {
        const char *name, *of[3];
        bool is_given;
    } rows[] = {
        { "json", { "list", "info" }, json },
        { "report", { "info" }, report },
        { "from", { "fetch" }, mirror != NULL },
        { "layout", { "info", "import" }, layout_text != NULL },
    };

    char list[32];

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool is_taken = !rows[i].is_given;
        for (int k = 0; rows[i].of[k]; k++)
            is_taken = is_taken || strcmp(rows[i].of[k], what) == 0;
        snprintf(list, sizeof list, "%s%s%s", rows[i].of[0], rows[i].of[1] ? " and " : "",
                 rows[i].of[1] ? rows[i].of[1] : "");
        if (!is_taken)
            return FAIL(STATUS_USAGE, "data %s takes no --%s: it is a flag of data %s", what,
                        rows[i].name, list);
    }
    return STATUS_OK;
}

static enum status run(const struct args *args)
{
    static const char *const parts[] = { "list", "info", "fetch", "import" };
    static const char *const arguments[] = { "", " NAME", " NAME", " PATH NAME" };
    const char *words[3];
    struct parse parse = { .args = args, .flags = flags, .words = words, .max_words = 3 };

    TRY(cli_parse(&parse));
    TRY(dataset_layout_parse(layout_text ? layout_text : "", &layout));
    const char *what = parse.n_words ? words[0] : "";
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(parts[i], what) == 0)
            TRY(check_flags(what));
    if (strcmp(what, "list") == 0 && parse.n_words == 1)
        return list();
    if (strcmp(what, "info") == 0 && parse.n_words == 2)
        return info(words[1]);
    if (strcmp(what, "fetch") == 0 && parse.n_words == 2)
        return fetch(words[1]);
    if (strcmp(what, "import") == 0 && parse.n_words == 3)
        return import(words[1], words[2]);
    if (strcmp(what, "info") == 0 && report_file)
        return FAIL(STATUS_USAGE, "data info: NAME comes before --report %s", report_file);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i], what) == 0)
            return FAIL(STATUS_USAGE, "usage: tutti data %s%s", what, arguments[i]);
    }
    if (!*what)
        return FAIL(STATUS_USAGE, "data: list, info NAME, fetch NAME or import PATH NAME");
    return FAIL(STATUS_USAGE, "data %s: list, info NAME, fetch NAME or import PATH NAME", what);
}

const struct command command_data = {
    .name = "data",
    .usage = "data list | info NAME | fetch NAME | import PATH NAME",
    .summary = "list, show and bring in data sets",
    .run = run,
    .help = help,
};
