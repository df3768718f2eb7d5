/* SPDX-License-Identifier: MIT */
/* fuzz_cifar.c - a CIFAR file that is accepted has whole records with labels in range; so has a
 * list of names, lines of text. */
#include "data/cifar.h"
#include "data/names.h"
#include "fuzz.h"

#include <string.h>

/* Reads every byte, so that a sanitizer sees one that is not there. */
static void parse_records(const struct cifar_kind *kind, const uint8_t *data, size_t size,
                          int classes)
{
    enum { PIXELS = 3072 };
    struct format_part part;
    volatile uint8_t seen = 0;

    if (cifar_parse(kind, "fuzz", data, size, classes, &part) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    BUG_ON(part.count <= 0);
    for (int64_t i = 0; i < part.count; i++) {
        BUG_ON(part.labels[(size_t)i * part.label_stride] >= classes);
        for (size_t p = 0; p < PIXELS; p++)
            seen = seen ^ part.pixels[(size_t)i * part.pixel_stride + p];
    }
}

static void parse_names(const uint8_t *data, size_t size)
{
    struct names names;

    if (names_parse("fuzz", (const char *)data, size, &names) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return;
    }
    BUG_ON(names.count <= 0);
    for (int i = 0; i < names.count; i++)
        BUG_ON(!names_is_line(names.name[i], strlen(names.name[i])));
    names_release(&names);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    parse_records(&cifar_10, data, size, 10);
    parse_records(&cifar_100, data, size, 100);
    parse_names(data, size);
    return 0;
}
