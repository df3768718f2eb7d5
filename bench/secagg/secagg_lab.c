/* SPDX-License-Identifier: MIT */
/* secagg_lab.c - what secure aggregation costs over sending updates as they are.
 *
 *     secagg_lab [participants [parameters [dropped]]]        100 1000000 0
 *
 * One whole round, all participants in turn in this process, `dropped` of them gone before they give a vector. Bytes are
 * payloads; the plain round sends each participant's floats up. Times are processor time in one thread, so that others on the
 * machine count little: of one participant (median over all) and of the coordinator (all together); the plain round's are
 * copying the vector and adding it. The sum is checked. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/rng.h"
#include "fed/quantize.h"
#include "fed/secagg_testing.h"

struct lab {
    struct secagg_federation federation;
    struct quantize quantize;
    uint32_t dropped;
    size_t count;
    float *update; /* all participants have the same */
    uint32_t *words;
    struct fed_buffer task, answer;
    double *times; /* of participants, in the stage at hand */
    double client_s, server_s;
    size_t up, down; /* bytes of participant 0, without the vector itself */
};

static double processor_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return values[n / 2];
}

static enum status run_participant(struct lab *lab, enum secagg_stage stage, uint32_t i,
                                   double *client_s, double *server_s)
{
    struct secagg_federation *federation = &lab->federation;
    const double begin = processor_seconds();

    TRY(secagg_federation_task(federation, i, &lab->task));
    const double tasked = processor_seconds();
    fed_buffer_clear(&lab->answer);
    if (stage == SECAGG_MASKED)
        quantize_encode(&lab->quantize, lab->update, lab->count, NULL, lab->words);
    TRY(secagg_client_answer(federation->clients[i], stage, lab->task.data, lab->task.length,
                             lab->words, NULL, &lab->answer));
    const double answered = processor_seconds();
    TRY(secagg_server_hear(federation->server, federation->numbers[i], stage, lab->answer.data,
                           lab->answer.length));
    const double heard = processor_seconds();
    *client_s = answered - tasked;
    *server_s += tasked - begin + heard - answered;
    return STATUS_OK;
}

static enum status run_stage(struct lab *lab, enum secagg_stage stage)
{
    struct secagg_federation *federation = &lab->federation;
    double server_s = 0;
    size_t n = 0;

    for (uint32_t i = 0; i < federation->n; i++) {
        if (stage >= SECAGG_MASKED && i >= federation->n - lab->dropped)
            continue;
        TRY(run_participant(lab, stage, i, &lab->times[n++], &server_s));
        if (i == 0) {
            lab->up += lab->answer.length;
            lab->down += lab->task.length;
        }
    }
    const double begin = processor_seconds();
    TRY(secagg_server_close(federation->server));
    server_s += processor_seconds() - begin;
    const double client_s = median(lab->times, n);
    printf("%-14s participant %9.3f ms   coordinator %9.1f ms   up %9zu B   down %9zu B\n",
           secagg_stage_name(stage), 1e3 * client_s, 1e3 * server_s, lab->answer.length,
           lab->task.length);
    lab->client_s += client_s;
    lab->server_s += server_s;
    return STATUS_OK;
}

static enum status run_sum(struct lab *lab)
{
    const double begin = processor_seconds();
    double worst = 0, *values;

    TRY(secagg_server_sum(lab->federation.server, NULL, lab->words));
    const double took = processor_seconds() - begin;
    lab->server_s += took;
    printf("%-14s %41s coordinator %9.1f ms\n", "sum", "", 1e3 * took);
    TRY(mem_alloc(lab->count, sizeof(*values), &values));
    quantize_decode(&lab->quantize, lab->words, lab->count, values);
    const double n = lab->federation.n - lab->dropped;
    for (size_t i = 0; i < lab->count; i++)
        worst = fmax(worst, fabs(values[i] - n * lab->update[i]));
    mem_free(values);
    if (!(worst <= n * lab->quantize.step * 0.501))
        return FAIL(STATUS_MISMATCH, "the sum is off by %g", worst);
    printf("the sum of %g is right within %.2g, %g steps\n", n, worst,
           worst / lab->quantize.step);
    return STATUS_OK;
}

/* The same without protection: a copy to send, and an addition. */
static enum status run_plain(const struct lab *lab, double *client_s, double *server_s)
{
    enum { TURNS = 20 };
    double copies[TURNS], sums[TURNS];
    float *copy, *sum;

    TRY(mem_alloc(lab->count, sizeof(*copy), &copy));
    const enum status status = mem_alloc(lab->count, sizeof(*sum), &sum);
    if (status != STATUS_OK) {
        mem_free(copy);
        return status;
    }
    for (int turn = 0; turn < TURNS; turn++) {
        const double begin = processor_seconds();
        memcpy(copy, lab->update, lab->count * sizeof(*copy));
        const double copied = processor_seconds();
        for (size_t i = 0; i < lab->count; i++)
            sum[i] += copy[i];
        copies[turn] = copied - begin;
        sums[turn] = processor_seconds() - copied;
    }
    *client_s = median(copies, TURNS);
    *server_s = median(sums, TURNS) * (lab->federation.n - lab->dropped);
    mem_free(copy);
    mem_free(sum);
    return STATUS_OK;
}

static enum status run(struct lab *lab)
{
    const size_t plain = lab->count * sizeof(float);
    double client_s, server_s;
    struct rng rng;

    rng_init(&rng, 1, 1);
    for (size_t i = 0; i < lab->count; i++)
        lab->update[i] = (float)fmax(-1, fmin(1, 0.1 * rng_normal(&rng)));
    for (int stage = 0; stage < SECAGG_STAGES; stage++)
        TRY(run_stage(lab, (enum secagg_stage)stage));
    TRY(run_sum(lab));
    TRY(run_plain(lab, &client_s, &server_s));
    printf(
        "participant    %.3f s, plain %.4f s; up %zu B, %.3f times the plain %zu B; down %zu B "
        "beside the model\n",
        lab->client_s, client_s, lab->up, (double)lab->up / (double)plain, plain, lab->down);
    printf("up and down    %.3f times the plain %zu B (model down, update up)\n",
           (double)(lab->up + lab->down + plain) / (double)(2 * plain), 2 * plain);
    printf("coordinator    %.3f s, plain %.3f s\n", lab->server_s, server_s);
    return STATUS_OK;
}

static enum status begin_lab(struct lab *lab, uint32_t n)
{
    TRY(quantize_init(32, n, 1, 0, &lab->quantize));
    TRY(mem_alloc(lab->count, sizeof(*lab->update), &lab->update));
    TRY(mem_alloc(lab->count, sizeof(*lab->words), &lab->words));
    TRY(mem_alloc(n, sizeof(*lab->times), &lab->times));
    return secagg_federation_create(n, secagg_default_threshold(n), 32, lab->count, 1,
                                    &lab->federation);
}

int main(int argc, char **argv)
{
    static struct lab lab;
    long numbers[] = { 100, 1000000, 0 };

    for (int i = 1; i < argc && i <= 3; i++)
        numbers[i - 1] = strtol(argv[i], NULL, 10);
    if (numbers[0] < 2 || numbers[0] > SECAGG_TEST_MOST || numbers[1] < 1 || numbers[2] < 0 ||
        numbers[2] >= numbers[0]) {
        fprintf(stderr, "usage: secagg_lab [participants, 2 to %d [parameters [dropped]]]\n",
                SECAGG_TEST_MOST);
        return 2;
    }
    lab.count = (size_t)numbers[1];
    lab.dropped = (uint32_t)numbers[2];
    fed_buffer_init(&lab.task, SIZE_MAX / 2);
    fed_buffer_init(&lab.answer, SIZE_MAX / 2);
    enum status status = begin_lab(&lab, (uint32_t)numbers[0]);
    if (status == STATUS_OK)
        status = run(&lab);
    if (status != STATUS_OK)
        fprintf(stderr, "secagg_lab: %s\n", status_message());
    secagg_federation_destroy(&lab.federation);
    fed_buffer_release(&lab.task);
    fed_buffer_release(&lab.answer);
    mem_free(lab.update);
    mem_free(lab.words);
    mem_free(lab.times);
    return status == STATUS_OK ? 0 : 1;
}
