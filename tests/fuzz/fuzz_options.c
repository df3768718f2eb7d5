/* SPDX-License-Identifier: MIT */
/* fuzz_options.c - a command line of any words, one a line of the input. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "cli/cli.h"

#include "fuzz.h"

enum { WORDS = 32, BYTES = 1024 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_set;
    static const char *text;
    static const struct flag flags[] = {
        { "json", NULL, "", &is_set, NULL },
        { "resume", "DIR", "", NULL, &text },
        { 0 },
    };
    char bytes[BYTES + 1], *words[WORDS], *rest = bytes, *word;
    const char *others[2];
    struct settings settings;
    struct args args = { 0, words };
    struct parse parse = {
        .args = &args, .flags = flags, .settings = &settings, .words = others, .max_words = 2
    };

    if (size > BYTES)
        return 0;
    memcpy(bytes, data, size);
    bytes[size] = '\0';
    while (args.count < WORDS && (word = strsep(&rest, "\n")))
        words[args.count++] = word;
    settings_init(&settings);
    if (cli_parse(&parse) != STATUS_OK && !*status_message())
        __builtin_trap(); /* a refusal says why */
    return 0;
}
