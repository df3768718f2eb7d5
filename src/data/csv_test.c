/* SPDX-License-Identifier: MIT */
/* csv_test.c - cells come out of CSV and LIBSVM files as they went in; what is no table is refused by line. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"
#include "data/cells.h"

static enum status parse(const char *text, struct cells *out)
{
    char *copy;

    CHECK_OK(mem_strdup(text, &copy));
    return csv_parse("t.csv", copy, strlen(text), out);
}

static enum status parse_libsvm(const char *text, int least, struct cells *out)
{
    char *copy;

    CHECK_OK(mem_strdup(text, &copy));
    return libsvm_parse("t.svm", copy, strlen(text), least, out);
}

/* Rows between bars, cells between slashes. */
static void check_cells(const struct cells *cells, const char *expected)
{
    struct strbuf text;

    strbuf_init(&text, 1 << 16);
    for (int i = 0; cells->names && i < cells->columns; i++)
        strbuf_printf(&text, "%s%s", i ? "/" : "", cells->names[i]);
    for (int64_t i = 0; i < cells->rows * cells->columns; i++)
        strbuf_printf(&text, "%s%s",
                      i % cells->columns        ? "/"
                      : i == 0 && !cells->names ? ""
                                                : "|",
                      cells->cell[i]);
    CHECK_TEXT(expected, text.text);
    strbuf_release(&text);
}

static void test_files_are_cut_into_cells(void)
{
    static const struct {
        const char *text, *cells;
    } cases[] = {
        { "1,2\n3,4\n", "1/2|3/4" },
        { "1,2\r\n3,4", "1/2|3/4" },
        { "a,b\n1,2\n", "a/b|1/2" },
        { "a;b\n1,5;2\n", "a/b|1,5/2" },
        { "a\tb\n1\t2\n", "a/b|1/2" },
        { "1, 2 ,?\n\n ,\"x, \"\"y\"\"\nz\" , 3\n", "1/2/?|/x, \"y\"\nz/3" },
        { "\xef\xbb\xbf"
          "a,b\n1,2",
          "a/b|1/2" },
        { "1,\n,2\n", "1/|/2" },
        { ",a,b\n0,1,x\n1,?,y\n", "c1/a/b|0/1/x|1/?/y" }, /* as pandas writes it */
        { "NA,a\n0,1\n", "NA/a|0/1" },
        { "x,s,n\ny,s,w\nx,t,n\n",
          "x/s/n|y/s/w|x/t/n" },   /* texts that occur again are no names */
        { ",a\n0,b\n", "/a|0/b" }, /* nothing shows that the first row has names */
        { "a,?\nb,1\n", "a/?|b/1" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct cells cells;
        CHECK_OK(parse(cases[i].text, &cells));
        check_cells(&cells, cases[i].cells);
        cells_release(&cells);
    }
}

static void test_lines_are_those_of_the_file(void)
{
    struct cells cells;

    CHECK_OK(parse("a,b\n\"1\n1\",2\n\n3,4\n", &cells));
    CHECK_INT(2, cells.rows);
    CHECK_INT(2, cells.line[0]);
    CHECK_INT(5, cells.line[1]);
    cells_release(&cells);
}

static void test_what_is_no_table_is_refused(void)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        { "", "has no rows" },
        { "\n \n", "has no rows" },
        { "1,2\n3\n", "t.csv:2: 1 columns, the first line has 2" },
        { "1,\"2\n", "t.csv:1: a quote has no end" },
        { "1,\"2\"x\n", "t.csv:1: text after the end of a quote" },
        { "a,a\n1,2\n", "both called a" },
        { "a,b\r1,2\r", "lines end with carriage returns alone" },
    };
    struct cells cells;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_STATUS(STATUS_CORRUPT, parse(cases[i].text, &cells));
        CHECK_MESSAGE(cases[i].why);
    }
    char *zero;
    CHECK_OK(mem_strdup("1,2\n3,4\n", &zero));
    zero[3] = '\0';
    CHECK_STATUS(STATUS_CORRUPT, csv_parse("t.csv", zero, 8, &cells));
    CHECK_STATUS(STATUS_CORRUPT, parse("1,\xe9\n", &cells));
    CHECK_MESSAGE("byte 2 is not UTF-8");
}

/* Cells of any bytes but zero, written in quotes, are read back. */
static void test_quoted_cells_are_read_back(struct rng *rng)
{
    enum { ROWS = 5, COLUMNS = 3, MOST = 6 };
    char cell[ROWS][COLUMNS][MOST + 1];
    struct strbuf text;
    struct cells cells;

    strbuf_init(&text, 1 << 12);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        char *c = cell[i / COLUMNS][i % COLUMNS];
        const int length = (int)rng_below(rng, MOST + 1);
        strbuf_add(&text, i % COLUMNS ? ",\"" : "\"");
        for (int k = 0; k < length; k++) {
            c[k] = (char)(1 + rng_below(rng, 126));
            if (rng_below(rng, 3) == 0)
                c[k] = ",\"\n\r; "[rng_below(rng, 6)];
            strbuf_add_bytes(&text, &c[k], 1);
            strbuf_add(&text, c[k] == '"' ? "\"" : "");
        }
        c[length] = '\0';
        strbuf_add(&text, i % COLUMNS == COLUMNS - 1 ? "\"\n" : "\"");
    }
    CHECK_OK(parse(text.text, &cells));
    CHECK_INT(COLUMNS, cells.columns);
    CHECK_INT(ROWS, cells.rows + (cells.names != NULL));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const bool is_name = cells.names && i < COLUMNS;
        CHECK_TEXT(cell[i / COLUMNS][i % COLUMNS],
                   is_name ? cells.names[i] : cells.cell[i - (cells.names ? COLUMNS : 0)]);
    }
    cells_release(&cells);
    strbuf_release(&text);
}

static void test_libsvm_is_read(void)
{
    struct cells cells;

    CHECK_OK(parse_libsvm("+1 2:0.5 # note\n\n-1 1:1 3:2\n", 2, &cells));
    check_cells(&cells, "label/1/2/3|+1/0/0.5/0|-1/1/0/2");
    cells_release(&cells);
    CHECK_OK(parse_libsvm("1 1:1\n", 2, &cells));
    check_cells(&cells, "label/1/2|1/1/0");
    cells_release(&cells);
    static const char *const wrong[] = {
        "1 0:1\n",   "1 2:1 2:1\n", "1 2:1 1:1\n", "1 a:1\n",        "1 1\n", "2:1 3:1\n",
        "1,2 1:1\n", "1 1:x\n",     "1 1:nan\n",   "1 99999999:1\n", "",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        CHECK_STATUS(STATUS_CORRUPT, parse_libsvm(wrong[i], 0, &cells));
}

static void test_numbers_and_gaps(void)
{
    static const char *const numbers[] = { "0", "-1.5", "+2", ".5", "1e3", "63." };
    static const char *const others[] = {
        "", "?", "1,5", "0x1", "inf", "nan", "1e999", "-", "e"
    };
    double number;

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        CHECK(cell_number(numbers[i], &number));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        CHECK(!cell_number(others[i], &number));
    CHECK(cell_is_missing("") && cell_is_missing("?") && !cell_is_missing("0"));
    CHECK(cells_are_same("1", "1.0") && cells_are_same("0.1", "1e-1") &&
          cells_are_same("a", "a") && !cells_are_same("1", "a"));
    CHECK(cells_are_same("1e18", "1000000000000000000"));
    CHECK(!cells_are_same("9007199254740992", "9007199254740993")); /* one double */
}

const struct test tests[] = {
    { .name = "files are cut into cells", .run = test_files_are_cut_into_cells },
    { .name = "lines are those of the file", .run = test_lines_are_those_of_the_file },
    { .name = "what is no table is refused", .run = test_what_is_no_table_is_refused },
    { .name = "quoted cells are read back", .property = test_quoted_cells_are_read_back },
    { .name = "LIBSVM is read", .run = test_libsvm_is_read },
    { .name = "numbers and gaps", .run = test_numbers_and_gaps },
    { 0 },
};
