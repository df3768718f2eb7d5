/* SPDX-License-Identifier: MIT */
/* machine_test.c - cluster files, right and wrong. */
#include "train/machine.h"

#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"

static const char good[] =
    "{\"nodes\": 4, \"ranks_per_node\": 8, \"speed\": 2, \"memory\": 32e9,"
    " \"within\": {\"latency_us\": 1, \"gb_per_s\": 10},"
    " \"between\": {\"latency_us\": 20, \"message_us\": 2, \"gb_per_s\": 3}}";

static void test_a_cluster_file_says_what_machines_there_are(void)
{
    struct machine m;

    CHECK_OK(machine_parse(good, strlen(good), &m));
    CHECK_INT(4, m.cluster.nodes);
    CHECK_INT(8, m.cluster.ranks);
    CHECK(m.cluster.shares && m.flops == 0);
    CHECK_CLOSE(2, m.cluster.speed, 1e-12);
    CHECK_CLOSE(32e9, m.cluster.memory, 1e-12);
    CHECK_CLOSE(1, m.cluster.within.latency * 1e6, 1e-9);
    CHECK_CLOSE(2, m.cluster.between.message * 1e6, 1e-9);
    CHECK_CLOSE(3e9, m.cluster.between.bandwidth, 1e-12);
}

static void test_one_machine_needs_no_network(void)
{
    static const char text[] = "{\"nodes\": 1, \"ranks_per_node\": 2, \"flops\": 1e12,"
                               " \"within\": {\"latency_us\": 1, \"gb_per_s\": 10}}";
    struct machine m;

    CHECK_OK(machine_parse(text, strlen(text), &m));
    CHECK_CLOSE(m.cluster.within.bandwidth, m.cluster.between.bandwidth, 1e-12);
    CHECK_CLOSE(1, m.flops * 1e-12, 1e-12);
}

static void test_what_is_no_cluster_file_is_refused_with_the_reason(void)
{
#define LINKS                                                                                  \
    "\"within\": {\"latency_us\": 1, \"gb_per_s\": 10}, \"between\": {\"latency_us\": 1, "     \
    "\"gb_per_s\": 1}"
    static const struct {
        const char *text, *why;
    } wrong[] = {
        { "", "not a cluster file" },
        { "[]", "a cluster file is a JSON object" },
        { "{}", "nodes is missing" },
        { "{\"nodes\": 2, " LINKS "}", "ranks_per_node is missing" },
        { "{\"nodes\": \"2\", \"ranks_per_node\": 1, " LINKS "}", "nodes must be a number" },
        { "{\"nodes\": 0, \"ranks_per_node\": 1, " LINKS "}", "nodes must be a number from 1" },
        { "{\"nodes\": 1.5, \"ranks_per_node\": 1, " LINKS "}", "whole numbers" },
        { "{\"nodes\": 5000, \"ranks_per_node\": 3, " LINKS "}", "more than 10000 ranks" },
        { "{\"nodes\": 2, \"ranks_per_node\": 1, \"sped\": 2, " LINKS "}",
          "sped is no member of a cluster file" },
        { "{\"nodes\": 2, \"ranks_per_node\": 1, \"within\": 3}", "within must be an object" },
        { "{\"nodes\": 2, \"ranks_per_node\": 1, \"within\": {\"latency_us\": 1}}",
          "within.gb_per_s is missing" },
        { "{\"nodes\": 2, \"ranks_per_node\": 1, \"within\": {\"latency_us\": -1, "
          "\"gb_per_s\": "
          "1}}",
          "within.latency_us must be a number from 0" },
        { "{\"nodes\": 2, \"ranks_per_node\": 1, \"within\": {\"latency_us\": 1, \"gb_per_s\": "
          "1}}",
          "between must be an object" },
    };
#undef LINKS

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct machine m;
        CHECK_STATUS(STATUS_USAGE, machine_parse(wrong[i].text, strlen(wrong[i].text), &m));
        CHECK_MESSAGE(wrong[i].why);
    }
}

static void test_a_failure_names_the_file(void)
{
    struct machine m;
    char *path;

    CHECK_OK(file_join(test_folder(), "c.json", &path));
    CHECK(machine_load(path, &m) != STATUS_OK);
    CHECK_MESSAGE("c.json");
    CHECK_OK(file_replace(path, "{}", 2));
    CHECK_STATUS(STATUS_USAGE, machine_load(path, &m));
    CHECK_MESSAGE("c.json: nodes is missing");
    CHECK_OK(file_replace(path, good, strlen(good)));
    CHECK_OK(machine_load(path, &m));
    mem_free(path);
}

static void test_memory_is_shared_out_and_limited(void)
{
    const double all = machine_memory(1, 0);

    CHECK(all > 1e6);
    CHECK_CLOSE(1e6, machine_memory(1, 1e6), 1e-12);
    CHECK(machine_memory(4, 0) <= all);
}

const struct test tests[] = {
    { .name = "a cluster file says what machines there are",
      .run = test_a_cluster_file_says_what_machines_there_are },
    { .name = "one machine needs no network", .run = test_one_machine_needs_no_network },
    { .name = "what is no cluster file is refused with the reason",
      .run = test_what_is_no_cluster_file_is_refused_with_the_reason },
    { .name = "a failure names the file", .run = test_a_failure_names_the_file },
    { .name = "memory is shared out and limited",
      .run = test_memory_is_shared_out_and_limited },
    { 0 },
};
