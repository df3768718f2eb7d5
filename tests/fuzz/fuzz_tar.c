/* SPDX-License-Identifier: MIT */
/* fuzz_tar.c - what is taken from a tar archive lies in it and has a name that leads nowhere
 * else. */
#include "data/tar.h"
#include "fuzz.h"

#include <string.h>

static enum status take(void *arg, const char *name, const uint8_t *data, size_t length)
{
    volatile uint8_t seen = 0;

    (void)arg;
    BUG_ON(!name[0] || name[0] == '.' || strchr(name, '/'));
    for (size_t i = 0; i < length; i++)
        seen = seen ^ data[i];
    return STATUS_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (tar_read("fuzz", data, size, take, NULL) != STATUS_OK)
        BUG_ON(!status_message()[0]);
    return 0;
}
