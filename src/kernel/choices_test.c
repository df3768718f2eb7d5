/* SPDX-License-Identifier: MIT */
/* choices_test.c - the table of choices: built in, overridden by a file, hashed, refused. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "kernel/device.h"

/* Writes a choices file into the test's folder; returns its path. */
static const char *write_file(const char *text)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/choices.json", test_folder());
    CHECK_OK(file_replace(path, text, strlen(text)));
    return path;
}

/* A file for this processor with the given choices, a JSON object. */
static const char *write_choices(const char *choices)
{
    char text[1024];

    (void)snprintf(text, sizeof text, "{ \"isa\": \"%s\", \"choices\": %s }", kernel_isa(),
                   choices);
    return write_file(text);
}

static const char *chosen(const struct kernel_choices *choices, const char *text)
{
    struct kernel_problem problem;
    const struct kernel *kernel;

    CHECK_OK(kernel_parse(text, &problem));
    CHECK_OK(kernel_choose(choices, &problem, &kernel));
    CHECK_TEXT(problem.op, kernel->op);
    return kernel->name;
}

static void own_kernels_come_first(void)
{
    struct kernel_choices *choices;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_TEXT("own", chosen(choices, "relu 3x4"));
    CHECK_TEXT("own", chosen(choices, "reorder 2x3x4x5 nhwc plain"));
    CHECK_TEXT("reference", chosen(choices, "reorder 2x3x4x5 hwio plain")); /* own cannot */
    CHECK_INT(64, strlen(kernel_choices_hash(choices)));
    kernel_choices_destroy(choices);
    kernel_choices_destroy(NULL);
}

/* A rule looks at the weights' extents, however they lie. */
static void plain_weights_are_judged_as_others(void)
{
    static const char *const texts[][2] = {
        { "linear 64x512 2000x512", "linear 64x512 2000x512 plain" },
        { "linear_grad_input 64x2000 2000x512 -> 64x512",
          "linear_grad_input 64x2000 2000x512 -> 64x512 plain" },
        { "linear_grad_weight 64x512 64x2000 -> 2000x512",
          "linear_grad_weight 64x512 64x2000 -> 2000x512 plain" },
        { "linear 64x512 10x512", "linear 64x512 10x512 plain" },
    };
    struct kernel_choices *choices;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        CHECK_TEXT(chosen(choices, texts[i][0]), chosen(choices, texts[i][1]));
    kernel_choices_destroy(choices);
}

/* Which of the fast kernels are built in and run here differs; the rule prefers, never insists.
 */
static void rules_prefer_what_windows_suit(void)
{
    static const char text[] = "conv2d 8x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 relu";
    static const char pixels[] = "conv2d 1x512x4x4 512x512x3x3 stride 1x1 pad 1x1";
    struct kernel_choices *choices;
    struct kernel_problem problem;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_OK(kernel_parse(text, &problem));
    const struct kernel *winograd = kernel_find("conv2d", "winograd");
    if (winograd != NULL && winograd->can_run(&problem))
        CHECK_TEXT("winograd", chosen(choices, text));
    CHECK(strcmp("winograd", chosen(choices, pixels)) != 0);
    CHECK(strcmp("winograd", chosen(choices, "conv2d 8x1x9x9 4x1x3x3 stride 1x1")) != 0);
    static const struct {
        const char *kernel, *text;
    } windows[] = {
        { "depthwise", "conv2d 4x32x8x8 32x1x3x3 stride 1x1 pad 1x1 groups 32" },
        { "grey", "conv2d 4x1x8x8 16x1x3x3 stride 2x2 pad 1x1" },
        { "grey", "conv2d_transpose 4x16x4x4 16x1x3x3 stride 2x2 pad 1x1 extent 8x8" },
        { "winograd", "conv2d 8x64x8x8 128x64x3x3 stride 2x2 pad 1x1" },
        { "winograd", "conv2d_grad_input 8x128x4x4 128x64x3x3 -> 8x64x8x8 stride 2x2 pad 1x1" },
        { "winograd",
          "conv2d_grad_weight 8x64x8x8 8x128x4x4 -> 128x64x3x3 stride 2x2 pad 1x1" },
        { "own", "conv2d_grad_weight 8x16x8x8 8x32x4x4 -> 32x16x3x3 stride 2x2 pad 1x1" },
        { "own", "conv2d_grad_weight 4x64x8x8 4x128x4x4 -> 128x64x3x3 stride 2x2 pad 1x1" },
        { "amx_pairs", "conv2d 32x64x8x8 64x64x3x3 stride 1x1 pad 1x1" },
        { "amx_pairs",
          "conv2d_grad_weight 56x64x8x8 56x128x4x4 -> 128x64x3x3 stride 2x2 pad 1x1" },
        { "winograd", "conv2d 40x64x8x8 64x64x3x3 stride 1x1 pad 1x1" }, /* 40 of 64 */
        { "amx_pairs", "conv2d 32x64x8x8 384x64x1x1 stride 1x1 pad 0x0" },
        { "amx_pairs",
          "conv2d_grad_input 32x64x8x8 64x384x1x1 -> 32x384x8x8 stride 1x1 pad 0x0" },
        { "onednn",
          "conv2d_grad_weight 32x64x8x8 32x384x8x8 -> 384x64x1x1 stride 1x1 pad 0x0" },
        { "amx_pairs",
          "conv2d_grad_weight 32x160x4x4 32x320x4x4 -> 320x160x1x1 stride 1x1 pad 0x0" },
        { "amx", "conv2d_grad_input 64x512x4x4 512x256x1x1 -> 64x256x8x8 stride 2x2 pad 0x0" },
        { "amx", "linear 512x256 300x256" }, /* gradients alone are rough */
        { "amx_pairs", "linear_grad_input 512x300 300x256 -> 512x256" },
        { "amx_pairs", "linear_grad_weight 512x256 512x300 -> 300x256" },
        { "matrix", "conv2d_grad_input 4x64x1x1 64x32x7x7 -> 4x32x7x7 stride 1x1" },
        { "matrix", "conv2d_transpose 4x64x1x1 64x32x7x7 stride 1x1 extent 7x7" },
    };
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        CHECK_OK(kernel_parse(windows[i].text, &problem));
        const struct kernel *kernel = kernel_find(problem.op, windows[i].kernel);
        if (kernel != NULL && kernel->can_run(&problem))
            CHECK_TEXT(windows[i].kernel, chosen(choices, windows[i].text));
    }
    kernel_choices_destroy(choices);
}

static void exact_choices_have_no_rough_kernel(void)
{
    static const char text[] = "conv2d 32x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 relu";
    static const char product[] = "linear_grad_input 512x300 300x256 -> 512x256";
    struct kernel_choices *usual, *exact;
    struct kernel_problem problem;

    CHECK_OK(kernel_choices_load(NULL, &usual));
    CHECK_OK(kernel_choices_load_exact(NULL, &exact));
    CHECK(strcmp(kernel_choices_hash(usual), kernel_choices_hash(exact)) != 0);
    CHECK(strcmp("winograd", chosen(exact, text)) != 0);
    CHECK(strcmp("amx_pairs", chosen(exact, text)) != 0);
    CHECK(strcmp("amx_pairs", chosen(exact, product)) != 0);
    CHECK_TEXT("own", chosen(exact, "relu 3x4"));
    kernel_choices_destroy(exact);
    CHECK_OK(kernel_parse(text, &problem));
    const struct kernel *winograd = kernel_find("conv2d", "winograd");
    if (winograd != NULL && winograd->can_run(&problem)) { /* a line does not help it */
        CHECK_OK(kernel_choices_load_exact(
            write_choices("{ \"conv2d 32x32x14x14 64x32x3x3 64 stride 1x1 pad 1x1 relu\": "
                          "\"winograd\" }"),
            &exact));
        CHECK(strcmp("winograd", chosen(exact, text)) != 0);
        kernel_choices_destroy(exact);
    }
    kernel_choices_destroy(usual);
}

static void a_line_of_the_file_overrides(void)
{
    struct kernel_choices *built_in, *choices;

    CHECK_OK(kernel_choices_load(NULL, &built_in));
    CHECK_OK(kernel_choices_load(write_choices("{ \"relu 3x4\": \"reference\","
                                               "  \"add 3x4 3x4\": \"own\" }"),
                                 &choices));
    CHECK_TEXT("reference", chosen(choices, "relu 3x4"));
    CHECK_TEXT("own", chosen(choices, "relu 3x5"));
    CHECK_TEXT("own", chosen(choices, "add 3x4 3x4"));
    CHECK(strcmp(kernel_choices_hash(built_in), kernel_choices_hash(choices)) != 0);
    kernel_choices_destroy(choices);
    kernel_choices_destroy(built_in);
}

static void the_hash_tells_choices_apart(void)
{
    static const char *const files[] = {
        "{}",
        "{ \"relu 3x4\": \"reference\" }",
        "{ \"relu 3x4\": \"own\" }",
        "{ \"relu 3x5\": \"own\" }",
        "{ \"relu 3x4\": \"own\", \"relu 3x5\": \"own\" }",
    };
    enum { FILES = sizeof files / sizeof files[0] };
    struct kernel_choices *choices[FILES], *again;

    for (int i = 0; i < FILES; i++) {
        CHECK_OK(kernel_choices_load(write_choices(files[i]), &choices[i]));
        for (int j = 0; j < i; j++)
            CHECK(strcmp(kernel_choices_hash(choices[i]), kernel_choices_hash(choices[j])) !=
                  0);
    }
    /* Neither the order of lines nor an empty file changes what is chosen. */
    CHECK_OK(kernel_choices_load(
        write_choices("{ \"relu 3x5\": \"own\", \"relu 3x4\": \"own\" }"), &again));
    CHECK_TEXT(kernel_choices_hash(choices[FILES - 1]), kernel_choices_hash(again));
    kernel_choices_destroy(again);
    CHECK_OK(kernel_choices_load(NULL, &again));
    CHECK_TEXT(kernel_choices_hash(choices[0]), kernel_choices_hash(again));
    kernel_choices_destroy(again);
    for (int i = 0; i < FILES; i++)
        kernel_choices_destroy(choices[i]);
}

static void a_file_for_another_instruction_set_is_ignored(void)
{
    const char *other = strcmp(kernel_isa(), "avx2") == 0 ? "generic" : "avx2";
    struct kernel_choices *choices;
    char text[256];

    (void)snprintf(text, sizeof text,
                   "{ \"isa\": \"%s\", \"choices\": { \"relu 3x4\": \"reference\" } }", other);
    CHECK_OK(kernel_choices_load(write_file(text), &choices));
    CHECK_TEXT("own", chosen(choices, "relu 3x4"));
    kernel_choices_destroy(choices);
}

static void malformed_files_are_refused_with_the_reason(void)
{
    static const struct {
        const char *choices, *reason;
    } cases[] = {
        { "[]", "\"choices\" is not an object" },
        { "{ \"relu 3x4\": 1 }", "is not a name" },
        { "{ \"relu 3x4\": \"fastest\" }", "relu has no kernel called fastest" },
        { "{ \"sinh 3x4\": \"own\" }", "no kernel is called sinh" },
        { "{ \"relu\": \"own\" }", "0 inputs" },
        { "{ \"linear 2x3 4x5\": \"reference\" }", "disagree" },
        { "{ \"reorder 2x3x4x5 hwio plain\": \"own\" }", "own cannot run" },
        { "{ \"relu 3x4\": \"own\", \"relu 3x4\": \"own\" }", "duplicate key" },
    };
    struct kernel_choices *choices = NULL;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        CHECK(kernel_choices_load(write_choices(cases[i].choices), &choices) < 0);
        CHECK_MESSAGE(cases[i].reason);
        CHECK_MESSAGE("choices.json");
    }
    CHECK_STATUS(STATUS_CORRUPT, kernel_choices_load(write_file("{"), &choices));
    CHECK_STATUS(STATUS_CORRUPT, kernel_choices_load(write_file("[]"), &choices));
    CHECK_STATUS(STATUS_CORRUPT,
                 kernel_choices_load(write_file("{ \"choices\": {} }"), &choices));
    CHECK_STATUS(
        STATUS_CORRUPT,
        kernel_choices_load(write_file("{ \"isa\": \"sse9\", \"choices\": {} }"), &choices));
    CHECK_STATUS(STATUS_NOT_FOUND, kernel_choices_load("/nonexistent/choices.json", &choices));
    CHECK(choices == NULL);
}

static void an_unknown_op_is_refused(void)
{
    const struct kernel_problem problem = { .op = "sinh",
                                            .n_in = 1,
                                            .in = { { .shape = { 1, { 3 } } } } };
    struct kernel_choices *choices;
    const struct kernel *kernel = NULL;

    CHECK_OK(kernel_choices_load(NULL, &choices));
    CHECK_STATUS(STATUS_NOT_FOUND, kernel_choose(choices, &problem, &kernel));
    CHECK(kernel == NULL);
    kernel_choices_destroy(choices);
}

/* Every allocation of a load fails once: it must be reported, and nothing may leak. */
static void a_failed_allocation_is_reported(void)
{
    const char *path = write_choices("{ \"relu 3x4\": \"reference\" }");
    struct kernel_choices *choices;
    uint64_t nth = 1;

    for (;; nth++) {
        mem_fail_at(nth);
        const enum status status = kernel_choices_load(path, &choices);
        mem_fail_at(0);
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_NO_MEMORY, status);
    }
    CHECK(nth > 2);
    kernel_choices_destroy(choices);
}

/* The CPU is a device, too: its lines are a device's. */
static void lines_of_a_device_are_its_own(void)
{
    static const char file[] = "{ \"device\": \"cpu\", \"choices\": { \"f32 relu 3x4\": "
                               "\"reference\", \"bf16 relu 5x4\": \"reference\", "
                               "\"f32 relu 6x4\": \"nobody\" } }";
    struct kernel_choices *choices, *none;
    const struct device_face *face;
    const struct kernel *kernel;
    struct kernel_problem problem;

    CHECK_OK(device_find("cpu", &face));
    CHECK_OK(kernel_choices_load_device("cpu", NULL, &none));
    CHECK_OK(kernel_choices_load_device("cpu", write_file(file), &choices));
    CHECK(strcmp(kernel_choices_hash(none), kernel_choices_hash(choices)) != 0);
    CHECK_OK(kernel_parse("relu 3x4", &problem));
    CHECK_OK(kernel_choose_on(choices, face, DTYPE_F32, &problem, &kernel));
    CHECK_TEXT("reference", kernel->name);
    CHECK_OK(kernel_choose_on(none, face, DTYPE_F32, &problem, &kernel));
    CHECK(kernel == device_kernel(face, &problem));
    CHECK_TEXT("own", chosen(choices, "relu 3x4")); /* they are not this processor's */
    CHECK_OK(kernel_parse("relu 5x4", &problem));
    CHECK_OK(kernel_choose_on(choices, face, DTYPE_F32, &problem, &kernel));
    CHECK(kernel == device_kernel(face, &problem)); /* another precision's */
    CHECK_OK(kernel_choose_on(choices, face, DTYPE_BF16, &problem, &kernel));
    CHECK_TEXT("reference", kernel->name);
    CHECK_OK(kernel_parse("relu 6x4", &problem));
    CHECK_STATUS(STATUS_UNSUPPORTED,
                 kernel_choose_on(choices, face, DTYPE_F32, &problem, &kernel));
    CHECK_MESSAGE("nobody");
    kernel_choices_destroy(choices);
    CHECK_OK(kernel_choices_load_device("cuda", write_file(file), &choices)); /* ignored */
    CHECK_TEXT(kernel_choices_hash(none), kernel_choices_hash(choices));
    kernel_choices_destroy(choices);
    kernel_choices_destroy(none);
    CHECK_STATUS(STATUS_USAGE, kernel_choices_load_device("rocm", NULL, &choices));
}

const struct test tests[] = {
    { .name = "lines of a device are its own", .run = lines_of_a_device_are_its_own },
    { .name = "own kernels come first", .run = own_kernels_come_first },
    { .name = "plain weights are judged as others", .run = plain_weights_are_judged_as_others },
    { .name = "exact choices have no rough kernel", .run = exact_choices_have_no_rough_kernel },
    { .name = "rules prefer what windows suit", .run = rules_prefer_what_windows_suit },
    { .name = "a line of the file overrides", .run = a_line_of_the_file_overrides },
    { .name = "the hash tells choices apart", .run = the_hash_tells_choices_apart },
    { .name = "a file for another instruction set is ignored",
      .run = a_file_for_another_instruction_set_is_ignored },
    { .name = "malformed files are refused with the reason",
      .run = malformed_files_are_refused_with_the_reason },
    { .name = "an unknown op is refused", .run = an_unknown_op_is_refused },
    { .name = "a failed allocation is reported", .run = a_failed_allocation_is_reported },
    { 0 },
};
