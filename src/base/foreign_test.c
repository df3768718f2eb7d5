/* SPDX-License-Identifier: MIT */
/* foreign_test.c - files of other programs are named, others are not. */
#include "base/foreign.h"

#include <string.h>

#include "base/test.h"

#define KIND(bytes) foreign_kind(bytes, sizeof(bytes) - 1)
#define ZIP "PK\3\4\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"

static void test_files_are_known_by_how_they_begin(void)
{
    CHECK_TEXT("a PyTorch file", KIND(ZIP "\x0e\0\0\0model/data.pkl"));
    CHECK_TEXT("a NumPy archive (npz)", KIND(ZIP "\x0b\0\0\0weights.npy"));
    CHECK_TEXT("a Keras model", KIND(ZIP "\x0d\0\0\0metadata.json"));
    CHECK_TEXT("a zip archive", KIND("PK\3\4"));
    /* A name that is told to be longer than what is there. */
    CHECK_TEXT("a zip archive", KIND(ZIP "\xff\xff\0\0name"));
    CHECK_TEXT("a PyTorch file",
               KIND("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."));
    CHECK_TEXT("a Python pickle", KIND("\x80\x04\x95"));
    CHECK_TEXT("an HDF5 file (Keras .h5)", KIND("\x89HDF\r\n\x1a\n"));
    CHECK_TEXT("a GGUF file", KIND("GGUF\3\0\0\0"));
    CHECK_TEXT("an ONNX model", KIND("\x08\x07\x12\x07pytorch"));
}

static void test_others_are_not(void)
{
    CHECK(!KIND(""));
    CHECK(!KIND("\x80"));
    CHECK(!KIND("a,b,c\n1,2,3\n"));
    CHECK(!KIND("\x38\0\0\0\0\0\0\0{\"w\":"));
    CHECK(!foreign_kind_of_file("/no/such/file"));
    CHECK(!foreign_kind_of_file("/"));
}

const struct test tests[] = {
    { .name = "files are known by how they begin",
      .run = test_files_are_known_by_how_they_begin },
    { .name = "other files are not", .run = test_others_are_not },
    { 0 },
};
