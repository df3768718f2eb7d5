/* SPDX-License-Identifier: MIT */
/* aside_test.c - which instructions go aside, and which of them the chain follows. */
#include "exec/aside.h"

#include "base/test.h"

enum { MOST = 9, BLOCKS = 6, BLOCK = 256, END = 99 };

/* Blocks of the arena are called a to f; where they lie a case says. Gradients are called A to F, a float each. */
struct line {
    const char *stream; /* "chain" or "aside"; NULL ends */
    const char *reads, *writes;
    int follows; /* number of a line; -1: none */
};

static struct operand operand_of(char name)
{
    if (name >= 'a')
        return (struct operand){ BASE_ARENA, (size_t)(name - 'a') << BLOCK_SHIFT };
    return (struct operand){ BASE_GRAD, (size_t)(name - 'A') * sizeof(float) };
}

static const struct kernel any_kernel, large_kernel;

static void make_line(const struct line *line, struct instruction *out)
{
    const struct kernel_tensor number = { .dtype = DTYPE_F32, .shape = { 1, { 1 } } };
    struct kernel_problem *problem = &out->problem;

    *out = (struct instruction){ .kernel = &any_kernel, .is_aside = line->stream[0] == 'a' };
    for (const char *name = line->reads; *name; name++) {
        problem->in[problem->n_in] = number;
        out->in[problem->n_in++] = operand_of(*name);
    }
    for (const char *name = line->writes; *name; name++) {
        problem->out[problem->n_out] = number;
        out->out[problem->n_out++] = operand_of(*name);
    }
}

/* Returns how many there are. */
static int make_lines(const struct line *lines, struct instruction *out)
{
    int count = 0;

    for (; lines[count].stream; count++)
        make_line(&lines[count], &out[count]);
    return count;
}

/* The line that gives the signal; -1: none. */
static int followed(const struct plan *plan, const struct instruction *made)
{
    for (int n = 0; n < plan->n_instructions && made->follows; n++) {
        if (plan->instructions[n].signals == made->follows)
            return n;
    }
    return made->follows ? END : -1;
}

static void test_what_follows_what(void)
{
    static const struct {
        const char *about;
        size_t at[BLOCKS]; /* of a to f */
        int signals;
        struct line lines[MOST];
    } cases[] = {
        { "what is read was written",
          { 0, 256 },
          1,
          { { "chain", "", "a", -1 },
            { "aside", "a", "b", -1 },
            { "chain", "a", "A", -1 },
            { "chain", "b", "B", 1 } } },
        { "what is written was read",
          { 0, 256 },
          1,
          { { "chain", "", "a", -1 },
            { "aside", "a", "A", -1 },
            { "chain", "", "b", -1 },
            { "chain", "b", "a", 1 } } },
        { "what is written was written",
          { 0 },
          1,
          { { "chain", "", "A", -1 }, { "aside", "", "A", -1 }, { "chain", "", "A", 1 } } },
        { "two blocks have one place",
          { 0, 256, 0 },
          1,
          { { "chain", "", "a", -1 },
            { "aside", "a", "A", -1 },
            { "chain", "", "b", -1 },
            { "chain", "b", "c", 1 } } },
        { "two blocks lie on each other in part",
          { 0, 256, 128 },
          1,
          { { "chain", "", "b", -1 }, { "aside", "b", "A", -1 }, { "chain", "", "c", 1 } } },
        { "both read",
          { 0 },
          0,
          { { "chain", "a", "A", -1 }, { "aside", "a", "B", -1 }, { "chain", "a", "C", -1 } } },
        { "the last is enough",
          { 0, 256, 512 },
          1,
          { { "aside", "a", "A", -1 },
            { "aside", "b", "B", -1 },
            { "aside", "c", "C", -1 },
            { "chain", "", "ab", 1 },
            { "chain", "", "a", -1 } } },
        { "one that was waited for is not waited for again, a later one is",
          { 0, 256 },
          2,
          { { "aside", "a", "A", -1 },
            { "chain", "", "a", 0 },
            { "aside", "b", "B", -1 },
            { "chain", "", "a", -1 },
            { "chain", "", "ab", 2 } } },
        { "gradients beside each other",
          { 0 },
          0,
          { { "chain", "", "aA", -1 },
            { "aside", "a", "B", -1 },
            { "chain", "a", "AC", -1 } } },
        { "a gradient that is added to",
          { 0, 256 },
          1,
          { { "chain", "", "a", -1 },
            { "aside", "a", "A", -1 },
            { "chain", "A", "b", 1 },
            { "aside", "b", "B", -1 } } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct instruction made[MOST];
        struct place_block blocks[BLOCKS];
        struct plan plan = { .instructions = made };

        plan.n_instructions = make_lines(cases[i].lines, made);
        for (int b = 0; b < BLOCKS; b++)
            blocks[b] = (struct place_block){ .bytes = BLOCK, .at = cases[i].at[b] };
        CHECK_OK(aside_link(&plan, blocks));
        CHECK_INT(cases[i].signals, plan.n_signals);
        for (int n = 0; n < plan.n_instructions; n++) {
            const int found = followed(&plan, &made[n]);
            if (found != cases[i].lines[n].follows)
                test_fail(__FILE__, __LINE__, "%s: line %d follows %d", cases[i].about, n,
                          found);
        }
    }
}

/* Line 0 is forward, the last one has nothing to be beside. */
static const struct line backward[MOST] = {
    { "chain", "", "aA", -1 },  { "aside", "a", "B", -1 },  { "chain", "a", "b", -1 },
    { "chain", "b", "C", -1 },  { "aside", "c", "DE", -1 }, { "aside", "D", "F", -1 },
    { "chain", "bC", "c", -1 }, { "chain", "c", "G", -1 },
};

static bool all_leave_room(const struct kernel *kernel)
{
    return kernel == &any_kernel;
}

static const struct device_face face = { .leaves_room = all_leave_room };

static void check_aside(struct plan *plan, struct place_block *blocks, const char *expected)
{
    CHECK_OK(aside_choose(plan, &face, blocks));
    for (int n = 0; n < plan->n_instructions; n++)
        CHECK_INT(expected[n] == 'x', plan->instructions[n].is_aside);
}

static void test_what_makes_gradients_alone_goes_aside(void)
{
    struct instruction made[MOST];
    struct place_block blocks[BLOCKS] = { 0 };
    struct plan plan = { .instructions = made, .n_forward = 1 };

    plan.n_instructions = make_lines(backward, made);
    check_aside(&plan, blocks, ".x..xx..");
    made[4].with_next = true; /* one launch with the next */
    check_aside(&plan, blocks, ".x......");
    made[4].with_next = false;
    made[1].in[0].base = BASE_HALF; /* reads parameters */
    check_aside(&plan, blocks, "....xx..");
    made[4].gives =
        (struct plan_convert){ .from = operand_of('d'), .to = made[4].out[0], .count = 1 };
    made[4].out[0] = operand_of('d'); /* turned after it: still D */
    check_aside(&plan, blocks, "....xx..");
    made[6].in[0] = operand_of('D'); /* which the chain needs */
    check_aside(&plan, blocks, ".....x..");
    made[6].in[0] = operand_of('b');
    made[4].kernel = &large_kernel; /* leaves no room */
    check_aside(&plan, blocks, ".....x..");
    made[4].kernel = &any_kernel;
    made[5].kernel = NULL; /* between ranks: the chain needs D then */
    check_aside(&plan, blocks, "........");
}

static void test_what_is_aside_has_memory_for_longer(void)
{
    enum { SCRATCH = 3, MORE = 4, NEXT = 5 };
    struct instruction made[MOST];
    struct place_block blocks[BLOCKS] = { 0 };
    struct plan plan = { .instructions = made, .n_forward = 1 };

    plan.n_instructions = make_lines(backward, made);
    made[1].has_scratch = made[6].has_scratch = made[4].has_scratch = true;
    made[1].scratch = (size_t)SCRATCH << BLOCK_SHIFT;
    made[6].scratch = (size_t)MORE << BLOCK_SHIFT;
    made[4].scratch = (size_t)NEXT << BLOCK_SHIFT;
    blocks[0] = (struct place_block){ .bytes = BLOCK, .first = 0, .last = 2 };
    blocks[1] = (struct place_block){ .bytes = BLOCK, .first = 2, .last = 6 };
    blocks[SCRATCH] = (struct place_block){ .bytes = BLOCK, .first = 1, .last = 1 };
    blocks[MORE] = (struct place_block){ .bytes = BLOCK, .first = 6, .last = 6 };
    blocks[NEXT] = (struct place_block){ .bytes = 2 * BLOCK, .first = 4, .last = 4 };
    CHECK_OK(aside_choose(&plan, &face, blocks));
    CHECK_INT(1 + ASIDE_LAG, blocks[0].last);
    CHECK_INT(6, blocks[1].last); /* the chain alone has it */
    CHECK_INT(6, blocks[MORE].last);
    CHECK_INT(made[1].scratch, made[4].scratch); /* one at a time */
    CHECK_INT(2 * BLOCK, blocks[SCRATCH].bytes);
    CHECK_INT(0, blocks[NEXT].bytes);
    CHECK_INT(4 + ASIDE_LAG, blocks[SCRATCH].last);
}

const struct test tests[] = {
    { .name = "what follows what", .run = test_what_follows_what },
    { .name = "what makes gradients alone goes aside",
      .run = test_what_makes_gradients_alone_goes_aside },
    { .name = "what is aside has memory for longer",
      .run = test_what_is_aside_has_memory_for_longer },
    { 0 },
};
