/* SPDX-License-Identifier: MIT */
/* checkpoint_test.c - generations of a checkpoint: what is saved loads, older ones go, damaged and foreign ones are passed
 * over.
 */
#include "base/file.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"
#include "train/checkpoint_testing.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILE = 1 << 20 };

/* Ordinary life */

static const char *const files[] = { "weights.safetensors", "optimizer.safetensors",
                                     "state.json", "manifest.json" };
enum { N_FILES = 4 };

static void test_what_is_saved_loads(void)
{
    const char *folder = run_folder();
    struct checkpoint *checkpoint;

    CHECK_OK(generation_save(folder, 1234, 2));
    CHECK_INT(1, folder_count(folder, ""));
    CHECK_OK(checkpoint_load(folder, &checkpoint));
    CHECK_INT(1234, checkpoint_step(checkpoint));
    CHECK_TEXT(generation_path(folder, 1234, ""), checkpoint_path(checkpoint));
    generation_check(checkpoint);
    checkpoint_close(checkpoint);
    checkpoint_close(NULL);
    CHECK_INT(4, folder_count(generation_path(folder, 1234, ""), ""));
}

/* Where the line stands in the text; it must be there. */
static size_t place_of(const struct strbuf *text, const char *format, ...) PRINTF_LIKE(2, 3);
static size_t place_of(const struct strbuf *text, const char *format, ...)
{
    char line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    const char *found = strstr(text->text, line);
    if (!found)
        test_fail(__FILE__, __LINE__, "no %s in %s", line, text->text);
    return (size_t)(found - text->text);
}

static void test_everything_is_synced_before_it_is_renamed(void)
{
    const char *folder = run_folder();
    const long pid = (long)getpid();
    struct strbuf text;
    char temporary[1024];

    strbuf_init(&text, MAX_FILE);
    save_events = &text;
    const enum status status = generation_save(folder, 3, 1);
    save_events = NULL;
    CHECK_OK(status);
    CHECK_OK(strbuf_status(&text));

    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", generation_path(folder, 3, ""), pid);
    const size_t in_place =
        place_of(&text, "rename %s %s\n", temporary, generation_path(folder, 3, ""));
    for (int i = 0; i < N_FILES; i++) {
        const size_t synced = place_of(&text, "sync %s/%s.tmp-%ld\n", temporary, files[i], pid);
        const size_t renamed = place_of(&text, "rename %s/%s.tmp-%ld %s/%s\n", temporary,
                                        files[i], pid, temporary, files[i]);
        CHECK(synced < renamed && renamed < in_place);
    }
    CHECK(place_of(&text, "sync %s\n", temporary) < in_place);
    CHECK(place_of(&text, "sync %s\n", folder) > in_place);
    strbuf_release(&text);
}

/* An old one is renamed first, so that no crash leaves half of it under its name. */
static void test_the_newest_generations_are_kept(void)
{
    const char *folder = run_folder();
    struct strbuf text;

    strbuf_init(&text, MAX_FILE);
    for (uint64_t step = 1; step <= 6; step++)
        CHECK_OK(
            generation_save(folder, step * 500000000000, 3)); /* more than 12 digits, too */
    CHECK_INT(3, folder_count(folder, ""));
    generation_check_loads(folder, 3000000000000);
    save_events = &text;
    const enum status status = generation_save(folder, 3500000000000, 1);
    save_events = NULL;
    CHECK_OK(status);
    CHECK_INT(1, folder_count(folder, ""));
    generation_check_loads(folder, 3500000000000);
    for (uint64_t step = 4; step <= 6; step++)
        place_of(&text, "rename %s/step-%" PRIu64 " %s/step-%" PRIu64 ".tmp-%ld\n", folder,
                 step * 500000000000, folder, step * 500000000000, (long)getpid());
    strbuf_release(&text);
}

static void test_a_step_saved_again_is_replaced(void)
{
    const char *folder = run_folder();
    struct checkpoint *checkpoint;

    CHECK_OK(generation_save_with(folder, 7, 1, "{\"first\": true}"));
    CHECK_OK(checkpoint_load(folder, &checkpoint));
    CHECK_OK(generation_save(folder, 7, 1));
    CHECK_INT(1, folder_count(folder, ""));
    CHECK_TEXT("{\"first\": true}", checkpoint_state(checkpoint)); /* unharmed */
    CHECK(generation_holds(checkpoint_weights(checkpoint), "layer.weight", 7, 1));
    checkpoint_close(checkpoint);
    generation_check_loads(folder, 7);
}

/* As a crash between the two renames leaves it. */
static void test_a_generation_moved_aside_is_used(void)
{
    const char *folder = run_folder();
    char aside[1024];

    CHECK_OK(generation_save(folder, 6, 2));
    CHECK_OK(generation_save(folder, 7, 2));
    snprintf(aside, sizeof aside, "%s.old", generation_path(folder, 7, ""));
    CHECK_INT(0, rename(generation_path(folder, 7, ""), aside));
    generation_check_loads(folder, 7);

    CHECK_OK(generation_save(folder, 8, 2)); /* it counts as a generation */
    CHECK(file_is_folder(aside));
    CHECK(!file_exists(generation_path(folder, 6, "")));
    CHECK_OK(generation_save(folder, 7, 3)); /* it is replaced */
    CHECK(!file_exists(aside));
    generation_check_loads(folder, 7);
}

static void test_later_generations_are_given_up(void)
{
    const char *folder = run_folder();

    CHECK_OK(generation_save(folder, 10, 1));
    put_text(generation_path(folder, 10, "weights.safetensors"), "damaged");
    CHECK_OK(generation_save(folder, 5, 1));
    CHECK_INT(1, folder_count(folder, ""));
    generation_check_loads(folder, 5);
}

static void test_no_generation_is_not_found(void)
{
    const char *folder = run_folder();
    static const char *const strange[] = { "step-5",
                                           "step-0000000000005",
                                           "step-00000000000x",
                                           "step-000000000005.older",
                                           "step-99999999999999999999999",
                                           "step--00000000005",
                                           "step-000000000005.tmp-1" };
    struct checkpoint *checkpoint;
    char path[768];

    CHECK_STATUS(STATUS_NOT_FOUND, checkpoint_load(folder, &checkpoint));
    CHECK_OK(file_make_folder(folder));
    CHECK_STATUS(STATUS_NOT_FOUND, checkpoint_load(folder, &checkpoint));
    CHECK_MESSAGE("no checkpoint in");
    for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, strange[i]);
        CHECK_OK(file_make_folder(path));
    }
    CHECK_STATUS(STATUS_NOT_FOUND, checkpoint_load(folder, &checkpoint));
}

static void test_wrong_arguments_are_refused(void)
{
    const char *folder = run_folder();
    static const float number = 1;
    const struct safetensors_entry twice[2] = { { "w", DTYPE_F32, { 0, { 0 } }, &number },
                                                { "w", DTYPE_F32, { 0, { 0 } }, &number } };
    struct checkpoint_contents contents = { .step = 2, .state = "{}" };

    CHECK_OK(generation_save(folder, 1, 1));
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 0));
    contents.state = "{";
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    contents.state = "[]";
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    contents.state = "{}";
    contents.step = UINT64_MAX;
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    contents.step = 2;
    contents.optimizer = twice;
    contents.n_optimizer = 2;
    CHECK_STATUS(STATUS_USAGE, checkpoint_save(folder, &contents, 1));
    CHECK_INT(1, folder_count(folder, ""));
    generation_check_loads(folder, 1);
}

static void test_a_file_in_place_of_the_folder_is_refused(void)
{
    char path[512];
    struct checkpoint *checkpoint;

    snprintf(path, sizeof path, "%s/file", test_folder());
    put_text(path, "x");
    CHECK(generation_save(path, 1, 1) != STATUS_OK);
    CHECK(checkpoint_load(path, &checkpoint) != STATUS_OK);
    CHECK(!file_is_folder(path) && file_exists(path));
}

/* Damage */

enum damage { TRUNCATED, EMPTY, FLIPPED, LONGER, MISSING, FOREIGN, A_FOLDER, N_DAMAGES };

static void damage_file(const char *path, enum damage damage)
{
    char *bytes;
    size_t length;

    CHECK_OK(file_read(path, MAX_FILE, &bytes, &length)); /* a NUL follows: one byte more */
    switch (damage) {
    case TRUNCATED:
        put_file(path, bytes, length - length / 3 - 1);
        break;
    case EMPTY:
        put_file(path, bytes, 0);
        break;
    case FLIPPED:
        bytes[length / 2] ^= 4;
        put_file(path, bytes, length);
        break;
    case LONGER:
        put_file(path, bytes, length + 1);
        break;
    case MISSING:
        CHECK_INT(0, unlink(path));
        break;
    case FOREIGN:
        put_text(path, "{\"some\": \"other file\"}");
        break;
    case A_FOLDER:
        CHECK_INT(0, unlink(path));
        CHECK_INT(0, mkdir(path, 0777));
        break;
    case N_DAMAGES:
        break;
    }
    mem_free(bytes);
}

static void test_a_damaged_newest_generation_is_passed_over(void)
{
    const char *folder = run_folder();
    struct checkpoint *checkpoint;
    char *said;

    CHECK_OK(generation_save(folder, 1, 2));
    for (int file = 0; file < N_FILES; file++) {
        for (int damage = 0; damage < N_DAMAGES; damage++) {
            CHECK_OK(generation_save(folder, 2, 2));
            damage_file(generation_path(folder, 2, files[file]), (enum damage)damage);
            CHECK_OK(generation_load_and_listen(folder, &checkpoint, &said));
            if (checkpoint_step(checkpoint) != 1)
                test_fail(__FILE__, __LINE__, "%s: damage %d was not seen", files[file],
                          damage);
            generation_check(checkpoint);
            checkpoint_close(checkpoint);
            CHECK(strstr(said, "checkpoint passed over: "));
            CHECK(strstr(said, generation_path(folder, 2, files[file])));
            CHECK(strchr(said, '\n') == said + strlen(said) - 1); /* one line */
            mem_free(said);
        }
    }
}

static void test_only_damaged_generations_are_corrupt(void)
{
    const char *folder = run_folder();
    struct checkpoint *checkpoint;

    for (uint64_t step = 1; step <= 3; step++)
        CHECK_OK(generation_save(folder, step, 3));
    damage_file(generation_path(folder, 1, "state.json"), MISSING);
    damage_file(generation_path(folder, 2, "weights.safetensors"), FLIPPED);
    damage_file(generation_path(folder, 3, "optimizer.safetensors"), TRUNCATED);
    CHECK_STATUS(STATUS_CORRUPT, generation_load_quietly(folder, &checkpoint));
    CHECK_MESSAGE("step-000000000003/optimizer.safetensors");
    CHECK_MESSAGE(" bytes instead of ");
}

/* Puts `text` in the newest manifest instead of `part`; the reason for refusing it holds
 * `reason`, or it is accepted if that is NULL. */
static void check_edited_manifest(const char *part, const char *text, const char *reason)
{
    const char *folder = run_folder();
    struct checkpoint *checkpoint;
    struct strbuf edited;
    char *manifest, *at;
    size_t length;

    CHECK_OK(generation_save(folder, 1, 1));
    CHECK_OK(
        file_read(generation_path(folder, 1, "manifest.json"), MAX_FILE, &manifest, &length));
    at = strstr(manifest, part);
    CHECK(at);
    strbuf_init(&edited, MAX_FILE);
    strbuf_add_bytes(&edited, manifest, (size_t)(at - manifest));
    strbuf_add(&edited, text);
    strbuf_add(&edited, at + strlen(part));
    CHECK_OK(strbuf_status(&edited));
    put_text(generation_path(folder, 1, "manifest.json"), edited.text);
    strbuf_release(&edited);
    mem_free(manifest);

    if (reason) {
        CHECK_STATUS(STATUS_CORRUPT, generation_load_quietly(folder, &checkpoint));
        CHECK_MESSAGE(reason);
    } else {
        generation_check_loads(folder, 1);
    }
}

static void test_foreign_manifests_are_refused(void)
{
    check_edited_manifest("\"version\":1", "\"version\":2",
                          "format version 2; this program reads 1");
    check_edited_manifest("\"version\":1", "\"version\":\"1\"", "format version -1");
    check_edited_manifest("tutti checkpoint", "other format", "not a manifest");
    check_edited_manifest("\"step\":1", "\"step\":3", "step 3 instead of the folder's 1");
    check_edited_manifest("\"files\"", "\"other\"", "not in the manifest");
    check_edited_manifest("\"bytes\"", "\"octets\"", "not in the manifest");
    check_edited_manifest("\"sha256\"", "\"md5\"", "not in the manifest");
    check_edited_manifest("\"bytes\":", "\"bytes\":9", "instead of 9");
    check_edited_manifest("\"sha256\":\"", "\"sha256\":\"0", "checksum");
    check_edited_manifest("{", "[", "json");
    check_edited_manifest("\"files\":{", "\"note\":\"\",\"files\":{\"x.bin\":{\"bytes\":1},",
                          NULL);
}

/* Tensors that nobody asks for are no damage, nor are files that the manifest does not name. */
static void test_extra_contents_are_fine(void)
{
    const char *folder = run_folder();
    static const float number = 1;
    const struct safetensors_entry extra[] = {
        { "w", DTYPE_F32, { 0, { 0 } }, &number },
        { "unknown", DTYPE_F32, { 0, { 0 } }, &number }
    };
    const struct checkpoint_contents contents = {
        .step = 1, .weights = extra, .n_weights = 2, .state = "{\"unknown\": 1}"
    };
    struct checkpoint *checkpoint;

    CHECK_OK(checkpoint_save(folder, &contents, 1));
    put_text(generation_path(folder, 1, "notes.txt"), "mine");
    CHECK_OK(checkpoint_load(folder, &checkpoint));
    CHECK(safetensors_find(checkpoint_weights(checkpoint), "w"));
    CHECK_INT(0, safetensors_count(checkpoint_optimizer(checkpoint)));
    checkpoint_close(checkpoint);
}

static void test_every_flipped_bit_of_a_manifest_is_noticed(void)
{
    const char *folder = run_folder();
    char *bytes;
    size_t length;

    CHECK_OK(generation_save(folder, 1, 2));
    CHECK_OK(generation_save(folder, 2, 2));
    CHECK_OK(file_read(generation_path(folder, 2, "manifest.json"), MAX_FILE, &bytes, &length));
    for (size_t bit = 0; bit < (length - 1) * 8; bit++) { /* the last is a line break */
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        put_file(generation_path(folder, 2, "manifest.json"), bytes, length);
        bytes[bit / 8] ^= (char)(1 << bit % 8);

        struct checkpoint *checkpoint;
        CHECK_OK(generation_load_quietly(folder, &checkpoint));
        if (checkpoint_step(checkpoint) != 1)
            test_fail(__FILE__, __LINE__, "bit %zu of %s", bit, bytes);
        checkpoint_close(checkpoint);
    }
    mem_free(bytes);
}

const struct test tests[] = {
    { .name = "what is saved loads", .run = test_what_is_saved_loads },
    { .name = "everything is synced before it is renamed",
      .run = test_everything_is_synced_before_it_is_renamed },
    { .name = "the newest generations are kept", .run = test_the_newest_generations_are_kept },
    { .name = "a step saved again is replaced", .run = test_a_step_saved_again_is_replaced },
    { .name = "a generation moved aside is used",
      .run = test_a_generation_moved_aside_is_used },
    { .name = "later generations are given up", .run = test_later_generations_are_given_up },
    { .name = "no generation is not found", .run = test_no_generation_is_not_found },
    { .name = "wrong arguments are refused", .run = test_wrong_arguments_are_refused },
    { .name = "a file in place of the folder is refused",
      .run = test_a_file_in_place_of_the_folder_is_refused },
    { .name = "a damaged newest generation is passed over",
      .run = test_a_damaged_newest_generation_is_passed_over },
    { .name = "only damaged generations are corrupt",
      .run = test_only_damaged_generations_are_corrupt },
    { .name = "foreign manifests are refused", .run = test_foreign_manifests_are_refused },
    { .name = "extra contents are fine", .run = test_extra_contents_are_fine },
    { .name = "every flipped bit of a manifest is noticed",
      .run = test_every_flipped_bit_of_a_manifest_is_noticed },
    { 0 },
};
