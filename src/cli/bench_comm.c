/* SPDX-License-Identifier: MIT */
/* bench_comm.c - tutti bench comm: collectives between ranks, or codecs on one core */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "comm/codec.h"
#include "comm/comm.h"
#include "comm/measure.h"
#include "transport/launch.h"

enum { LIST_MAX = 64, NAME_BYTES = 32, LIST_BYTES = 4096 };

struct names {
    char name[LIST_MAX][NAME_BYTES];
    int n;
};

struct comm_bench {
    size_t bytes[LIST_MAX];
    int n_bytes;
    struct names ops, algorithms, codecs; /* no algorithm: chosen by size */
    bool json;
};

/* Reading flags -------------------------------------------------------------------------- */

/* Adds what a list separated by commas has. */
static enum status read_names(const char *flag, const char *text, struct names *out)
{
    char list[LIST_BYTES], *rest = list, *item;

    snprintf(list, sizeof list, "%s", text);
    while ((item = strsep(&rest, ","))) {
        if (out->n == LIST_MAX || strlen(item) >= NAME_BYTES)
            return FAIL(STATUS_USAGE, "--%s %.60s: a list of at most %d names", flag, text,
                        (int)LIST_MAX);
        snprintf(out->name[out->n++], NAME_BYTES, "%s", item);
    }
    return STATUS_OK;
}

static enum status read_sizes(const char *text, struct comm_bench *bench)
{
    static const char usual[] = "8,64,512,4096,16384,65536,262144,1048576,4194304,16777216,"
                                "67108864,268435456";
    struct names sizes = { .n = 0 };

    TRY(read_names("bytes", text ? text : usual, &sizes));
    for (int i = 0; i < sizes.n; i++) {
        long long number;
        TRY(cli_whole_number("bytes", sizes.name[i], (long long)1 << 34, &number));
        if (number % 4)
            return FAIL(STATUS_USAGE, "--bytes %s: a multiple of 4, sums are of f32",
                        sizes.name[i]);
        bench->bytes[bench->n_bytes++] = (size_t)number;
    }
    return STATUS_OK;
}

static enum status read_ops(const char *text, struct comm_bench *bench)
{
    TRY(read_names("op", text ? text : "all_reduce", &bench->ops));
    for (int at = 0; at < bench->ops.n; at++) {
        char names[256] = "";
        bool known = false;

        for (int i = 0; comm_measured_ops[i]; i++) {
            known |= strcmp(comm_measured_ops[i], bench->ops.name[at]) == 0;
            snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                     comm_measured_ops[i]);
        }
        if (!known)
            return FAIL(STATUS_USAGE, "--op %s: there are%s", bench->ops.name[at], names);
    }
    return STATUS_OK;
}

static enum status read_algorithms(const char *text, struct comm_bench *bench)
{
    const bool all = text && strcmp(text, "all") == 0;

    for (int i = 0; comm_algorithms[i] && all; i++)
        TRY(read_names("algorithm", comm_algorithm_name(comm_algorithms[i]),
                       &bench->algorithms));
    if (text && !all)
        TRY(read_names("algorithm", text, &bench->algorithms));
    for (int at = 0; at < bench->algorithms.n; at++) {
        const char *name = bench->algorithms.name[at];
        char names[256] = "";
        bool known = false;

        for (int i = 0; comm_algorithms[i]; i++) {
            known |= strcmp(comm_algorithm_name(comm_algorithms[i]), name) == 0;
            snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                     comm_algorithm_name(comm_algorithms[i]));
        }
        if (!known)
            return FAIL(STATUS_USAGE, "--algorithm %s: there are%s", name, names);
    }
    return STATUS_OK;
}

static enum status read_codecs(const char *text, struct comm_bench *bench)
{
    const bool all = text && strcmp(text, "all") == 0;

    for (int i = 0; codecs[i] && all; i++)
        TRY(read_names("codec", codec_name(codecs[i]), &bench->codecs));
    if (text && !all)
        TRY(read_names("codec", text, &bench->codecs));
    for (int at = 0; at < bench->codecs.n; at++) {
        struct codec_config config;
        TRY(codec_parse(bench->codecs.name[at], &config));
    }
    return STATUS_OK;
}

/* Collectives ----------------------------------------------------------------------------- */

/* Nothing crosses between ranks where there is one, and in a barrier nothing that is counted. */
static const char *print_bandwidth(const struct comm_measurement *m, char text[32])
{
    if (m->bus_bytes > 0 && m->us_median > 0)
        snprintf(text, 32, "bus %7.2f GB/s", m->bus_bytes / m->us_median * 1e-3);
    else
        snprintf(text, 32, "bus %7s     ", "-");
    return text;
}

static void print_collective(const struct comm_bench *bench, const struct comm *comm,
                             const char *op, size_t bytes, const struct comm_measurement *m)
{
    const struct transport *transport = comm_transport(comm);
    char text[32];

    if (bench->json)
        printf("{\"bench\": \"comm\", \"op\": \"%s\", \"transport\": \"%s\", "
               "\"algorithm\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"nodes\": %d, "
               "\"us\": %.3f, \"us_p90\": %.3f, \"calls\": %d, \"bytes_sent\": %.0f, "
               "\"optimum\": %.0f, \"bus_bytes\": %.0f}\n",
               op, transport_name(transport), m->algorithm, bytes, comm_size(comm),
               transport_nodes(transport), m->us_median, m->us_p90, m->iterations,
               m->bytes_sent, m->optimum, m->bus_bytes);
    else
        printf("%-16s %12zu bytes  %12.2f us  (p90 %.2f)  %s  %s\n", op, bytes, m->us_median,
               m->us_p90, print_bandwidth(m, text), m->algorithm);
    fflush(stdout);
}

/* What an algorithm that was asked for cannot do is left out. */
static enum status measure_all(const struct comm_bench *bench, struct comm *comm)
{
    for (int at = 0; at < bench->ops.n; at++) {
        const char *op = bench->ops.name[at];

        for (int i = 0; i < bench->n_bytes; i++) {
            struct comm_measurement m;

            if (!comm_measures(comm, op, bench->bytes[i]))
                continue;
            TRY(comm_measure(comm, op, bench->bytes[i], &m));
            if (comm_rank(comm) == 0)
                print_collective(bench, comm, op, bench->bytes[i], &m);
        }
    }
    return STATUS_OK;
}

static enum status measure_algorithm(const struct comm_bench *bench,
                                     struct transport *transport, const char *algorithm)
{
    struct comm *comm;

    TRY(comm_create(transport, algorithm, &comm));
    enum status status = algorithm ? STATUS_OK : comm_probe_network(comm);
    if (status == STATUS_OK)
        status = measure_all(bench, comm);
    comm_destroy(comm);
    return status;
}

static enum status body(struct transport *transport, void *arg)
{
    const struct comm_bench *bench = arg;

    if (bench->algorithms.n == 0)
        return measure_algorithm(bench, transport, NULL);
    for (int i = 0; i < bench->algorithms.n; i++) {
        /* Of several, those that need shared memory where there is none are left out. */
        const enum status status =
            measure_algorithm(bench, transport, bench->algorithms.name[i]);
        if (status == STATUS_UNSUPPORTED && bench->algorithms.n > 1)
            continue;
        TRY(status);
    }
    return STATUS_OK;
}

/* Codecs ---------------------------------------------------------------------------------- */

static enum status measure_codecs(const struct comm_bench *bench, int nodes)
{
    for (int at = 0; at < bench->codecs.n; at++) {
        for (int i = 0; i < bench->n_bytes; i++) {
            const double bytes = (double)bench->bytes[i];
            struct codec_config config;
            struct codec_measurement m;

            TRY(codec_parse(bench->codecs.name[at], &config));
            TRY(codec_measure(&config, bench->bytes[i], nodes, 0.4, &m));
            if (bench->json)
                printf("{\"bench\": \"codec\", \"codec\": \"%s\", \"bytes\": %zu, "
                       "\"nodes\": %d, \"payload_bytes\": %zu, \"encode_us\": %.3f, "
                       "\"decode_us\": %.3f}\n",
                       bench->codecs.name[at], bench->bytes[i], nodes, m.payload_bytes,
                       m.encode_us, m.decode_us);
            else
                printf("%-16s %12zu bytes  %12zu sent  encode %10.2f us %6.2f GB/s  decode "
                       "%10.2f us %6.2f GB/s\n",
                       bench->codecs.name[at], bench->bytes[i], m.payload_bytes, m.encode_us,
                       bytes / m.encode_us * 1e-3, m.decode_us, bytes / m.decode_us * 1e-3);
            fflush(stdout);
        }
    }
    return STATUS_OK;
}

enum status cli_bench_comm(const struct bench_comm_flags *flags, bool json,
                           struct settings *settings, const struct args *elsewhere)
{
    const struct launch_config config = { .size = (int)settings->ranks,
                                          .flat = settings->flat,
                                          .stuck_ms = (int)(1000 * settings->lost_after) };
    struct comm_bench bench = { .json = json };

    TRY(read_sizes(flags->sizes, &bench));
    TRY(read_ops(flags->ops, &bench));
    TRY(read_algorithms(flags->algorithms, &bench));
    TRY(read_codecs(flags->codecs, &bench));
    if (bench.codecs.n > 0)
        return measure_codecs(&bench, (int)settings->ranks);
    if (elsewhere)
        return cli_start_elsewhere("bench", elsewhere, settings);
    return launch_ranks(&config, body, &bench);
}
