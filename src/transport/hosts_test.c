/* SPDX-License-Identifier: MIT */
/* hosts_test.c - lists of machines: read, refused, dealt ranks. */
#include "transport/hosts.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/test.h"

/* "a b:2": what was read; with ranks "a=3 b:2=1" once they are dealt. */
static void print(const struct hosts *hosts, struct strbuf *out)
{
    strbuf_clear(out);
    for (int i = 0; i < hosts->count; i++) {
        const struct host *host = &hosts->host[i];
        strbuf_printf(out, "%s%s", i ? " " : "", host->name);
        if (host->slots)
            strbuf_printf(out, ":%d", host->slots);
        if (host->ranks)
            strbuf_printf(out, "=%d", host->ranks);
    }
}

static void check(const struct hosts *hosts, const char *expected)
{
    struct strbuf text;

    strbuf_init(&text, 1 << 20);
    print(hosts, &text);
    CHECK_TEXT(expected, text.text);
    strbuf_release(&text);
}

static void test_lists(void)
{
    static const char *const lists[][2] = {
        { "a", "a" },
        { "a,b:2", "a b:2" },
        { "10.0.0.1,node-7.example.org:16", "10.0.0.1 node-7.example.org:16" },
        { "n[1-3,7],m02", "n1 n2 n3 n7 m02" },
        { "n[08-11]", "n08 n09 n10 n11" },
        { "n[8-11]", "n8 n9 n10 n11" },
        { "r[1-2]n[1-2]:4", "r1n1:4 r1n2:4 r2n1:4 r2n2:4" },
        { "n[1]x,n[0003]", "n1x n0003" },
        { "a,b,a,b:3", "a:2 b:4" },
    };
    struct hosts hosts;

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        CHECK_OK(hosts_parse(lists[i][0], &hosts));
        check(&hosts, lists[i][1]);
        hosts_release(&hosts);
    }
}

static void test_wrong_lists(void)
{
    static const char *const lists[][2] = {
        { "", "begins with a letter" },
        { "a,", "begins with a letter" },
        { "a,,b", "begins with a letter" },
        { "-oProxyCommand=x", "names have letters" },
        { "-x", "begins with a letter" },
        { "a:0", "follows the colon" },
        { "a:", "follows the colon" },
        { "a:2:3", "follows the colon" },
        { "a:-1", "follows the colon" },
        { "a:99999999", "follows the colon" },
        { "a b", "names have letters" },
        { "a;rm", "names have letters" },
        { "n[1-3", "not closed" },
        { "n]", "names have letters" },
        { "n[]", "brackets hold" },
        { "n[3-1]", "brackets hold" },
        { "n[a-b]", "brackets hold" },
        { "n[1-2-3]", "brackets hold" },
        { "n[1,]", "brackets hold" },
        { "n[0-4096]", "more machines than 4096" },
        { "n[1,1][1-9][1-9][1-9][1-9]", "more machines than 4096" },
        { "n[0-9999999999]", "brackets hold" },
    };
    struct hosts hosts;

    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        CHECK_STATUS(STATUS_USAGE, hosts_parse(lists[i][0], &hosts));
        CHECK_MESSAGE(lists[i][1]);
    }
    char name[400];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    CHECK_STATUS(STATUS_USAGE, hosts_parse(name, &hosts));
    CHECK_MESSAGE("too long");
    CHECK_STATUS(STATUS_USAGE,
                 hosts_parse("n[1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1]"
                             "[1,1,1,1,1,1,1,1][1,1,1,1,1,1,1,1]",
                             &hosts));
    CHECK_MESSAGE("more machines than 4096");
}

static void test_files(void)
{
    struct hosts hosts;

    CHECK_OK(hosts_parse_file("# ours\n a  slots=2\r\n\nb:3 # the old one\n\tc", &hosts));
    check(&hosts, "a:2 b:3 c");
    hosts_release(&hosts);
    CHECK_STATUS(STATUS_USAGE, hosts_parse_file("\n# nobody\n", &hosts));
    CHECK_MESSAGE("names no machine");
    CHECK_STATUS(STATUS_USAGE, hosts_parse_file("a\nb cpus=2\n", &hosts));
    CHECK_MESSAGE("b cpus=2: slots=N may follow");
    CHECK_STATUS(STATUS_USAGE, hosts_parse_file("a slots=0", &hosts));
    CHECK_STATUS(STATUS_USAGE, hosts_parse_file("a slots=", &hosts));
    CHECK_STATUS(STATUS_USAGE, hosts_parse_file("a slots=2 b", &hosts));
    CHECK_MESSAGE("one word too many");
    CHECK_STATUS(STATUS_USAGE, hosts_parse_file("a:2 slots=2", &hosts));
}

static void test_slurm(void)
{
    struct hosts hosts;
    struct task_counts counts;

    CHECK_OK(hosts_parse_slurm("n[1-3,7]", "2(x3),1", &hosts));
    check(&hosts, "n1:2 n2:2 n3:2 n7:1");
    hosts_release(&hosts);
    CHECK_STATUS(STATUS_USAGE, hosts_parse_slurm("n[1-3]", "2(x3),1", &hosts));
    CHECK_MESSAGE("not the 4 nodes");
    CHECK_OK(task_counts_parse("16(x2),3,1(x2)", &counts));
    CHECK_INT(5, counts.n_nodes);
    CHECK_INT(37, counts.n_tasks);
    CHECK_INT(3, counts.tasks[2]);
    static const char *const wrong[] = {
        "",       ",",          "2,", "2(x",        "2(x0)",         "2(3)",
        "2(x3)1", "2(x999999)", "x",  "1(x4096),1", "1048576(x4096)"
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_STATUS(STATUS_USAGE, task_counts_parse(wrong[i], &counts));
        CHECK_MESSAGE("counts such as");
    }
}

static void test_assign(void)
{
    static const struct {
        const char *hosts;
        int ranks;
        const char *expected;
    } cases[] = {
        { "a,b", 4, "a=2 b=2" },         { "a,b", 5, "a=3 b=2" },
        { "a,b:1", 4, "a=3 b:1=1" },     { "a,b,c", 2, "a=1 b=1 c" },
        { "b:2,a:2", 3, "b:2=2 a:2=1" },
    };
    struct hosts hosts;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(hosts_parse(cases[i].hosts, &hosts));
        CHECK_OK(hosts_assign(&hosts, cases[i].ranks));
        check(&hosts, cases[i].expected);
        hosts_release(&hosts);
    }
    CHECK_OK(hosts_parse("a:2,b:1", &hosts));
    CHECK_INT(3, hosts_room(&hosts));
    CHECK_STATUS(STATUS_USAGE, hosts_assign(&hosts, 4));
    CHECK_MESSAGE("4 ranks do not fit the hosts: they have 3 slots");
    hosts_release(&hosts);
}

static void test_memory(void)
{
    struct hosts hosts;

    for (int n = 1;; n++) {
        mem_fail_at((uint64_t)n);
        const enum status status = hosts_parse("n[1-5]", &hosts);
        mem_fail_at(0);
        if (status == STATUS_OK)
            break;
        CHECK_INT(STATUS_NO_MEMORY, status);
    }
    hosts_release(&hosts);
}

const struct test tests[] = {
    { .name = "lists of machines are read", .run = test_lists },
    { .name = "wrong lists are refused", .run = test_wrong_lists },
    { .name = "host files are read", .run = test_files },
    { .name = "what Slurm writes is read", .run = test_slurm },
    { .name = "ranks are dealt to machines", .run = test_assign },
    { .name = "memory may be refused", .run = test_memory },
    { 0 },
};
