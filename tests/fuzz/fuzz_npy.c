/* SPDX-License-Identifier: MIT */
/* fuzz_npy.c - a NumPy file that is accepted has all the elements that it claims to have. */
#include "data/npy.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct npy npy;
    char type[NPY_TYPE_TEXT];
    volatile int64_t seen = 0;

    if (npy_parse("fuzz", data, size, &npy) != STATUS_OK) {
        BUG_ON(!status_message()[0]);
        return 0;
    }
    const int64_t count = shape_count(&npy.shape);
    BUG_ON(npy.data + (size_t)count * (size_t)npy.size != data + size);
    BUG_ON(!npy_type(&npy, type)[0]);
    for (int64_t i = 0; i < count && (npy.kind == 'u' || npy.kind == 'i'); i++)
        seen = seen ^ npy_integer(&npy, i);
    npy_release(&npy);
    return 0;
}
