/* SPDX-License-Identifier: MIT */
/* tar_test.c - archives are read to their end; what is damaged or no file is refused. */
#include "data/tar.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "data/data_testing.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK = 512 };

static uint8_t archive[16 * BLOCK];
static size_t used;

/* Adds an entry, all of whose bytes are `value`. */
static uint8_t *add(const char *name, char kind, size_t size, uint8_t value)
{
    uint8_t *header = archive + used;

    data_testing_tar_header(header, name, kind, size);
    memset(header + BLOCK, value, size);
    used += BLOCK + (size + BLOCK - 1) / BLOCK * BLOCK;
    return header;
}

static void make_archive(void)
{
    memset(archive, 0, sizeof archive);
    used = 0;
    add("set/", '5', 0, 0);
    add("set/first.bin", '0', 600, 'a');
    add("remarks", 'x', 20, 'r');
    add("second.bin", '\0', 512, 'b');
    add("set/.hidden", '0', 3, 'h');
    add("../../../third.bin", '0', 0, 0);
    used += (size_t)2 * BLOCK;
}

/* What was taken, as text. */
static char taken[256];

static enum status take(void *arg, const char *name, const uint8_t *data, size_t length)
{
    const size_t at = strlen(taken);

    (void)arg;
    for (size_t i = 0; i < length; i++)
        CHECK_INT(data[0], data[i]);
    snprintf(taken + at, sizeof taken - at, "%s %zu %c; ", name, length,
             length > 0 ? data[0] : '-');
    return STATUS_OK;
}

static void test_files_are_taken_without_folders(void)
{
    make_archive();
    taken[0] = '\0';
    CHECK_OK(tar_read("x", archive, used, take, NULL));
    CHECK_TEXT("first.bin 600 a; second.bin 512 b; third.bin 0 -; ", taken);
}

static void check_refused(size_t length, const char *part)
{
    CHECK_STATUS(STATUS_CORRUPT, tar_read("x.tar", archive, length, take, NULL));
    CHECK_MESSAGE("x.tar: is no tar archive or damaged at byte ");
    CHECK_MESSAGE(part);
}

static void test_wrong_archives_are_refused(void)
{
    make_archive();
    for (size_t length = 0; length + 2 * (size_t)BLOCK < used; length++) {
        taken[0] = '\0';
        check_refused(length, "");
    }
    archive[BLOCK + 3] ^= 1;
    check_refused(used, "byte 512: the checksum of an entry is wrong");

    static const struct {
        char kind;
        const char *name, *size, *part;
    } CASES[] = {
        { '2', "link", "0", "an entry is no file" }, { '0', "a/", "0", "an entry has no name" },
        { '0', "a", "x", "an entry has no size" },   { '0', "a", "", "an entry has no size" },
        { '0', "a", "77777777777", "longer than" },  { '0', "a", "12 8", "longer than" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        used = 0;
        memset(archive, 0, sizeof archive);
        uint8_t *header = add(CASES[i].name, CASES[i].kind, 0, 0);
        memset(header + 124, 0, 12);
        snprintf((char *)header + 124, 12, "%s", CASES[i].size);
        data_testing_tar_sum(header);
        check_refused(BLOCK, CASES[i].part);
    }
}

static void test_packed_archives_are_unpacked(void)
{
    struct data_testing_file file = { .length = 0 };
    char path[2100], *bytes;
    const char *folder = test_folder();
    size_t length;

    if (!data_testing_has_zlib())
        test_skip("built without zlib");
    make_archive();
    file.length = used;
    CHECK_OK(mem_alloc(used, 1, &file.bytes));
    memcpy(file.bytes, archive, used);
    data_testing_pack(&file);
    data_testing_write(folder, "set.tar.gz", file.bytes, file.length);
    snprintf(path, sizeof path, "%s/set.tar.gz", folder);
    CHECK_OK(tar_unpack(path, folder));
    CHECK_OK(file_read(data_testing_path(folder, "first.bin"), 1000, &bytes, &length));
    CHECK_INT(600, length);
    CHECK_INT('a', bytes[599]);
    mem_free(bytes);
    CHECK(file_exists(data_testing_path(folder, "third.bin")));

    for (size_t cut = 0; cut < file.length; cut += 7) {
        data_testing_write(folder, "set.tar.gz", file.bytes, cut);
        CHECK_STATUS(STATUS_CORRUPT, tar_unpack(path, folder));
        CHECK_MESSAGE(path);
    }
    mem_free(file.bytes);
}

const struct test tests[] = {
    { .name = "files are taken without folders", .run = test_files_are_taken_without_folders },
    { .name = "wrong archives are refused", .run = test_wrong_archives_are_refused },
    { .name = "packed archives are unpacked", .run = test_packed_archives_are_unpacked },
    { 0 },
};
