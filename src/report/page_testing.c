/* SPDX-License-Identifier: MIT */
/* page_testing.c - what every page must be. */
#include "report/page_testing.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/test.h"

void page_testing_check(const char *page)
{
    enum { DEPTH = 40, NAME = 32 };
    char open[DEPTH][NAME];
    int depth = 0;

    CHECK(strncmp(page, "<!DOCTYPE html>", 15) == 0);
    for (const char *at = strchr(page + 1, '<'); at; at = strchr(at, '<')) {
        char name[NAME] = "";
        const bool is_end = at[1] == '/';
        at += is_end ? 2 : 1;
        CHECK(sscanf(at, "%31[a-zA-Z0-9]", name) == 1);
        bool in_quotes = false;
        for (; *at && (in_quotes || *at != '>'); at++) {
            in_quotes = *at == '"' ? !in_quotes : in_quotes;
            CHECK(*at != '<');
        }
        CHECK(*at == '>');
        const bool is_empty = at[-1] == '/' || strcmp(name, "meta") == 0;
        if (is_end) {
            CHECK(depth > 0);
            CHECK_TEXT(open[--depth], name);
        } else if (!is_empty) {
            CHECK(depth < DEPTH);
            snprintf(open[depth++], NAME, "%s", name);
        }
        if (!is_end && strcmp(name, "style") == 0)
            at = strstr(at, "</style>");
        if (depth == 0)
            break;
    }
    CHECK_INT(0, depth);
    for (const char *at = strstr(page, "nan"); at; at = strstr(at + 1, "nan"))
        CHECK(isalpha((unsigned char)at[-1]) || isalpha((unsigned char)at[3]));
    CHECK(strstr(page, "\"inf") == NULL && strstr(page, " inf") == NULL);
}
