/* SPDX-License-Identifier: MIT */
/* bench_comm.c - tutti bench comm: what a step does with a bucket, collectives between ranks, or
 * codecs on one core */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "comm/codec.h"
#include "comm/comm.h"
#include "comm/measure.h"
#include "train/train.h"
#include "transport/launch.h"

enum { LIST_MAX = 64, NAME_BYTES = 32, LIST_BYTES = 4096 };

#define AUTO "auto" /* comm/ chooses an algorithm by size */

struct names {
    char name[LIST_MAX][NAME_BYTES];
    int n;
};

struct comm_bench {
    size_t bytes[LIST_MAX];
    int n_bytes;
    struct names ops, codecs;
    struct names
        algorithms; /* of comm/; none: what a step of training runs, where it does the op */
    const struct settings *settings;
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

/* The place of a name in a list that ends with NULL; -1: it is not there. */
static int place_of(const char *const *list, const char *name)
{
    for (int i = 0; list[i]; i++) {
        if (strcmp(list[i], name) == 0)
            return i;
    }
    return -1;
}

static enum status check_op(const struct comm_bench *bench, const char *op)
{
    const bool is_chosen = bench->algorithms.n > 0; /* then comm/ does it */
    char names[256] = "";

    if (place_of(comm_measured_ops, op) >= 0 ||
        (!is_chosen && place_of(bench_bucket_ops, op) >= 0))
        return STATUS_OK;
    for (int i = 0; comm_measured_ops[i]; i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 comm_measured_ops[i]);
    return FAIL(STATUS_USAGE, "--op %s: there are%s%s", op, names,
                is_chosen ? "" : " and, without --algorithm, update");
}

static enum status read_ops(const char *text, struct comm_bench *bench)
{
    TRY(read_names("op", text ? text : "all_reduce", &bench->ops));
    for (int i = 0; i < bench->ops.n; i++)
        TRY(check_op(bench, bench->ops.name[i]));
    return STATUS_OK;
}

static enum status check_algorithm(const char *name)
{
    char names[256] = "";

    for (int i = 0; comm_algorithms[i]; i++) {
        if (strcmp(comm_algorithm_name(comm_algorithms[i]), name) == 0)
            return STATUS_OK;
        snprintf(names + strlen(names), sizeof names - strlen(names), " %s",
                 comm_algorithm_name(comm_algorithms[i]));
    }
    return strcmp(name, AUTO) == 0
               ? STATUS_OK
               : FAIL(STATUS_USAGE, "--algorithm %s: there are%s and %s", name, names, AUTO);
}

static enum status read_algorithms(const char *text, struct comm_bench *bench)
{
    const bool all = text && strcmp(text, "all") == 0;

    for (int i = 0; comm_algorithms[i] && all; i++)
        TRY(read_names("algorithm", comm_algorithm_name(comm_algorithms[i]),
                       &bench->algorithms));
    if (text && !all)
        TRY(read_names("algorithm", text, &bench->algorithms));
    for (int i = 0; i < bench->algorithms.n; i++)
        TRY(check_algorithm(bench->algorithms.name[i]));
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

/* A line ---------------------------------------------------------------------------------- */

/* A line of the output, of the engine's tasks or of a collective. */
struct line {
    const char *op, *algorithm;
    size_t bytes;
    double us, us_p90, sent, optimum, bus;
    int calls;
};

/* Nothing crosses between ranks where there is one, and in a barrier nothing that is counted. */
static const char *print_bandwidth(const struct line *line, char text[32])
{
    if (line->bus > 0 && line->us > 0)
        snprintf(text, 32, "bus %7.2f GB/s", line->bus / line->us * 1e-3);
    else
        snprintf(text, 32, "bus %7s     ", "-");
    return text;
}

static void print_line(const struct comm_bench *bench, const struct transport *transport,
                       const struct line *line)
{
    char text[32];

    if (transport_rank(transport) != 0)
        return;
    if (bench->json)
        printf("{\"bench\": \"comm\", \"op\": \"%s\", \"transport\": \"%s\", "
               "\"algorithm\": \"%s\", \"bytes\": %zu, \"ranks\": %d, \"nodes\": %d, "
               "\"us\": %.3f, \"us_p90\": %.3f, \"calls\": %d, \"bytes_sent\": %.0f, "
               "\"optimum\": %.0f, \"bus_bytes\": %.0f}\n",
               line->op, transport_name(transport), line->algorithm, line->bytes,
               transport_size(transport), transport_nodes(transport), line->us, line->us_p90,
               line->calls, line->sent, line->optimum, line->bus);
    else
        printf("%-16s %12zu bytes  %12.2f us  (p90 %.2f)  %s  %s\n", line->op, line->bytes,
               line->us, line->us_p90, print_bandwidth(line, text), line->algorithm);
    fflush(stdout);
}

/* The tasks of a training step ------------------------------------------------------------- */

static enum status time_bucket(const struct comm_bench *bench, struct transport *transport,
                               size_t bytes)
{
    const struct bench_bucket what = { .settings = bench->settings, .bytes = bytes };
    struct bench_op ops[BENCH_BUCKET_OPS];

    TRY(train_time_bucket(&what, transport, ops));
    for (int i = 0; i < bench->ops.n; i++) {
        const int at = place_of(bench_bucket_ops, bench->ops.name[i]);
        const struct bench_op *op = at < 0 ? NULL : &ops[at];
        if (!op || !*op->tasks) /* compressed gradients have no reduce_scatter */
            continue;
        print_line(bench, transport,
                   &(struct line){ .op = bench->ops.name[i],
                                   .algorithm = op->tasks,
                                   .bytes = bytes,
                                   .us = op->us,
                                   .us_p90 = op->us_p90,
                                   .sent = op->sent,
                                   .optimum = op->optimum,
                                   .bus = op->optimum,
                                   .calls = op->steps });
    }
    return STATUS_OK;
}

static bool is_of_step(const struct comm_bench *bench, const char *op)
{
    return bench->algorithms.n == 0 && place_of(bench_bucket_ops, op) >= 0;
}

static bool has_steps(const struct comm_bench *bench)
{
    bool has = false;

    for (int i = 0; i < bench->ops.n; i++)
        has |= is_of_step(bench, bench->ops.name[i]);
    return has;
}

/* Collectives ----------------------------------------------------------------------------- */

/* What an algorithm that was asked for cannot do is left out. */
static enum status measure_op(const struct comm_bench *bench, struct comm *comm, const char *op,
                              size_t bytes)
{
    struct comm_measurement m;

    if (!comm_measures(comm, op, bytes))
        return STATUS_OK;
    TRY(comm_measure(comm, op, bytes, &m));
    print_line(bench, comm_transport(comm),
               &(struct line){ .op = op,
                               .algorithm = m.algorithm,
                               .bytes = bytes,
                               .us = m.us_median,
                               .us_p90 = m.us_p90,
                               .sent = m.bytes_sent,
                               .optimum = m.optimum,
                               .bus = m.bus_bytes,
                               .calls = m.iterations });
    return STATUS_OK;
}

static enum status measure_all(const struct comm_bench *bench, struct comm *comm)
{
    for (int at = 0; at < bench->ops.n; at++) {
        for (int i = 0; i < bench->n_bytes && !is_of_step(bench, bench->ops.name[at]); i++)
            TRY(measure_op(bench, comm, bench->ops.name[at], bench->bytes[i]));
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

    for (int i = 0; i < bench->n_bytes && has_steps(bench); i++)
        TRY(time_bucket(bench, transport, bench->bytes[i]));
    if (bench->algorithms.n == 0)
        return measure_algorithm(bench, transport, NULL);
    for (int i = 0; i < bench->algorithms.n; i++) {
        const char *name = bench->algorithms.name[i];
        /* Of several, those that need shared memory where there is none are left out. */
        const enum status status =
            measure_algorithm(bench, transport, strcmp(name, AUTO) == 0 ? NULL : name);
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
    struct comm_bench bench = { .json = json, .settings = settings };

    TRY(read_sizes(flags->sizes, &bench));
    TRY(read_algorithms(flags->algorithms, &bench));
    TRY(read_ops(flags->ops, &bench));
    TRY(read_codecs(flags->codecs, &bench));
    if (bench.codecs.n > 0)
        return measure_codecs(&bench, (int)settings->ranks);
    if (has_steps(&bench))
        TRY(train_check_bucket(settings, &settings->flat));
    if (elsewhere)
        return cli_start_elsewhere("bench", elsewhere, settings);
    const struct launch_config config = { .size = (int)settings->ranks,
                                          .flat = settings->flat,
                                          .stuck_ms = (int)(1000 * settings->lost_after) };
    return launch_ranks(&config, body, &bench);
}
