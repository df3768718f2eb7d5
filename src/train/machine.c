/* SPDX-License-Identifier: MIT */
/* machine.c - cluster files, and what this machine is. */
#include "train/machine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "comm/probe.h"
#include "exec/pages.h"
#include "transport/launch.h"

const struct cost_link machine_usual_network = { .latency = 5e-5,
                                                 .message = 5e-6,
                                                 .bandwidth = 1.25e9 };

/* Reading --------------------------------------------------------------------------------- */

struct member {
    const char *name;
    double least, most, usual; /* usual NaN: it has to be there */
    double scale;              /* what a field holds is the number times this */
    size_t offset;             /* of a double of struct numbers, or of struct cost_link */
};

struct numbers {
    double nodes, ranks, speed, memory, flops, bytes;
};

static const struct member machine_members[] = {
    { "nodes", 1, MACHINE_RANKS, NAN, 1, offsetof(struct numbers, nodes) },
    { "ranks_per_node", 1, MACHINE_RANKS, NAN, 1, offsetof(struct numbers, ranks) },
    { "speed", 1e-6, 1e6, 1, 1, offsetof(struct numbers, speed) },
    { "memory", 1, 1e18, 0, 1, offsetof(struct numbers, memory) },
    { "flops", 1e3, 1e18, 0, 1, offsetof(struct numbers, flops) },
    { "bytes_per_s", 1e3, 1e18, 0, 1, offsetof(struct numbers, bytes) },
};

static const struct member link_members[] = {
    { "latency_us", 0, 1e9, NAN, 1e-6, offsetof(struct cost_link, latency) },
    { "message_us", 0, 1e9, 0, 1e-6, offsetof(struct cost_link, message) },
    { "gb_per_s", 1e-6, 1e9, NAN, 1e9, offsetof(struct cost_link, bandwidth) },
    { "cpu", 0, 1, 0, 1, offsetof(struct cost_link, cpu) },
};
enum {
    MACHINE_MEMBERS = sizeof machine_members / sizeof *machine_members,
    LINK_MEMBERS = sizeof link_members / sizeof *link_members
};

/* An object's members into a struct of doubles. `where` is what people call the object. */
static enum status read_members(const struct json_value *object, const char *where,
                                const struct member *members, int count, void *out)
{
    for (int i = 0; i < count; i++) {
        const struct member *m = &members[i];
        const struct json_value *value = json_get(object, m->name);
        double number = m->usual;
        if (!value && isnan(m->usual))
            return FAIL(STATUS_USAGE, "%s%s is missing", where, m->name);
        if (value && (value->kind != JSON_NUMBER || !(value->number >= m->least) ||
                      !(value->number <= m->most)))
            return FAIL(STATUS_USAGE, "%s%s must be a number from %.15g to %.15g", where,
                        m->name, m->least, m->most);
        if (value)
            number = value->number;
        number *= m->scale;
        memcpy((char *)out + m->offset, &number, sizeof number);
    }
    return STATUS_OK;
}

static bool is_member(const char *key, const struct member *members, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(members[i].name, key) == 0)
            return true;
    }
    return false;
}

/* A word that is no member is a mistake in writing, and would be missed in silence. */
static enum status check_members(const struct json_value *object, const char *where,
                                 const struct member *members, int count,
                                 const char *const *others)
{
    for (size_t i = 0; i < object->count; i++) {
        bool known = is_member(object->keys[i], members, count);
        for (int k = 0; others && others[k]; k++)
            known |= strcmp(others[k], object->keys[i]) == 0;
        if (!known)
            return FAIL(STATUS_USAGE, "%s%s is no member of a cluster file", where,
                        object->keys[i]);
    }
    return STATUS_OK;
}

static enum status read_link(const struct json_value *root, const char *name,
                             struct cost_link *out)
{
    const struct json_value *object = json_get(root, name);
    char where[32];

    if (!object || object->kind != JSON_OBJECT)
        return FAIL(STATUS_USAGE,
                    "%s must be an object like {\"latency_us\": 20, \"gb_per_s\": 3}", name);
    snprintf(where, sizeof where, "%s.", name);
    TRY(check_members(object, where, link_members, LINK_MEMBERS, NULL));
    return read_members(object, where, link_members, LINK_MEMBERS, out);
}

static enum status read_machine(const struct json_value *root, struct machine *out)
{
    static const char *const links[] = { "within", "between", NULL };
    struct numbers n = { 0 };
    struct machine machine = { .cluster = { .crowding = 1, .shares = true } };
    struct cost_cluster *c = &machine.cluster;

    if (root->kind != JSON_OBJECT)
        return FAIL(STATUS_USAGE, "a cluster file is a JSON object with nodes, ranks_per_node, "
                                  "within and between");
    TRY(check_members(root, "", machine_members, MACHINE_MEMBERS, links));
    TRY(read_members(root, "", machine_members, MACHINE_MEMBERS, &n));
    if (n.nodes != floor(n.nodes) || n.ranks != floor(n.ranks))
        return FAIL(STATUS_USAGE, "nodes and ranks_per_node must be whole numbers");
    if (n.nodes * n.ranks > MACHINE_RANKS)
        return FAIL(STATUS_USAGE, "%.0f nodes of %.0f ranks are more than %d ranks", n.nodes,
                    n.ranks, MACHINE_RANKS);
    c->nodes = (int)n.nodes;
    c->ranks = (int)n.ranks;
    c->speed = n.speed;
    c->memory = n.memory;
    machine.flops = n.flops;
    machine.bytes = n.bytes;
    TRY(read_link(root, "within", &c->within));
    if (c->nodes > 1 || json_get(root, "between"))
        TRY(read_link(root, "between", &c->between));
    else
        c->between = c->within;
    *out = machine;
    return STATUS_OK;
}

enum status machine_parse(const char *text, size_t length, struct machine *out)
{
    struct json *json;

    if (json_parse(text, length, &json) != STATUS_OK)
        return FAIL(STATUS_USAGE, "not a cluster file: %s", status_message());
    enum status status = read_machine(json_root(json), out);
    json_destroy(json);
    return status;
}

enum status machine_load(const char *path, struct machine *out)
{
    char *text;
    size_t length;

    TRY(file_read(path, 1 << 20, &text, &length));
    enum status status = machine_parse(text, length, out);
    mem_free(text);
    return status == STATUS_OK ? status : FAIL(status, "%s: %s", path, status_message());
}

/* This machine --------------------------------------------------------------------------- */

/* Bytes of addresses that this process has already; 0: not known. */
static double address_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long long pages = 0;

    if (!file)
        return 0;
    if (fscanf(file, "%lld", &pages) != 1)
        pages = 0;
    (void)fclose(file);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

/* What a limit on the process leaves; infinite without one. */
static double left_of(int kind, double taken)
{
    struct rlimit limit;

    if (getrlimit((unsigned)kind, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return INFINITY;
    return fmax((double)limit.rlim_cur - taken, 0);
}

double machine_memory(int ranks, double most)
{
    const double all = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    double bytes = all / ranks;

    bytes = fmin(bytes, left_of(RLIMIT_AS, address_bytes()));
    bytes = fmin(bytes, left_of(RLIMIT_DATA, 0));
    return most > 0 ? fmin(bytes, most) : bytes;
}

enum { PAGES_BYTES = 1 << 20, PAGES_ROUNDS = 7 };

struct probing {
    struct probe probe;
    double pages;
    char *memory; /* PAGES_BYTES of each rank, and no other use */
};

/* One writes its part, then reads its neighbour's, then gives its own back, if it does, and all the others beside it. */
static enum status use_pages(struct comm *comm, char *memory, bool gives_back, double *out)
{
    const int rank = comm_rank(comm), size = comm_size(comm);
    char *own = memory + (size_t)rank * PAGES_BYTES;
    volatile const char *next = memory + (size_t)((rank + 1) % size) * PAGES_BYTES;

    TRY(comm_barrier(comm));
    const double began = clock_seconds();
    memset(own, 1, PAGES_BYTES);
    TRY(comm_barrier(comm));
    /* Of a gradient each rank adds a part. */
    for (size_t i = 0; i < PAGES_BYTES / (size_t)size; i += 64)
        (void)next[i];
    TRY(comm_barrier(comm));
    if (gives_back)
        pages_release(own, PAGES_BYTES);
    *out = clock_seconds() - began;
    return STATUS_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds that giving back adds to a byte, of the slowest rank. */
static enum status time_pages(struct comm *comm, char *memory, double *out)
{
    double runs[2][PAGES_ROUNDS];
    double kept;

    pages_keep_small(memory + (size_t)comm_rank(comm) * PAGES_BYTES, PAGES_BYTES);
    TRY(use_pages(comm, memory, false, &kept)); /* its memory comes */
    for (int i = 0; i < PAGES_ROUNDS; i++)
        TRY(use_pages(comm, memory, false, &runs[0][i]));
    TRY(use_pages(comm, memory, true, &kept));
    for (int i = 0; i < PAGES_ROUNDS; i++)
        TRY(use_pages(comm, memory, true, &runs[1][i]));
    for (int i = 0; i < 2; i++)
        qsort(runs[i], PAGES_ROUNDS, sizeof runs[i][0], compare);
    *out = fmax(runs[1][PAGES_ROUNDS / 2] - runs[0][PAGES_ROUNDS / 2], 0) / PAGES_BYTES;
    return comm_all_reduce(comm, out, 1, DTYPE_F64, COMM_OP_MAX);
}

static enum status probe_body(struct transport *transport, void *arg)
{
    struct probing *shared = arg;
    struct comm *comm;
    struct probe probe;
    double pages;

    TRY(comm_create(transport, NULL, &comm));
    enum status status = probe_nodes(comm, 1, &probe);
    if (status == STATUS_OK)
        status = time_pages(comm, shared->memory, &pages);
    if (status == STATUS_OK && comm_rank(comm) == 0) {
        shared->probe = probe;
        shared->pages = pages;
    }
    comm_destroy(comm);
    return status;
}

static void *map_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory == MAP_FAILED ? NULL : memory;
}

enum status machine_probe(int ranks, struct cost_link *out, double *pages)
{
    const struct launch_config config = { .size = ranks, .flat = true };
    const size_t bytes = (size_t)ranks * PAGES_BYTES;
    struct probing *shared = map_shared(sizeof *shared);
    char *memory = map_shared(bytes);
    enum status status = STATUS_OK;

    if (!shared || !memory)
        status = FAIL(STATUS_NO_MEMORY, "shared memory is refused");
    if (status == STATUS_OK) {
        shared->memory = memory;
        status = launch_ranks(&config, probe_body, shared);
    }
    if (status == STATUS_OK) {
        const double each = shared->probe.us_per_byte * 1e-6 / (ranks - 1);
        *out = (struct cost_link){ .latency = shared->probe.us * 1e-6,
                                   .bandwidth = each > 0 ? 1 / each : 1e12,
                                   .cpu = 1 };
        *pages = shared->pages;
    }
    if (shared)
        munmap(shared, sizeof *shared);
    if (memory)
        munmap(memory, bytes);
    return status;
}
