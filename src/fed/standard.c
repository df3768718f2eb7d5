/* SPDX-License-Identifier: MIT */
/* standard.c - statistics of tables as part of the vector of parameters. */
#include "fed/standard.h"

#include <string.h>

#include "base/mem.h"
#include "data/schema.h"

/* How many there are, also where the table itself is not here. */
static enum status count_statistics(const struct job *job, size_t *out)
{
    struct schema *schema;

    *out = (size_t)job_statistics_count(job);
    if (*out > 0)
        return STATUS_OK;
    if (job_model(job)->task != MODEL_TABLE)
        return FAIL(STATUS_USAGE, "--standardize is for models of tables; %s is none",
                    job_model(job)->name);
    if (!job_model(job)->table)
        return FAIL(STATUS_USAGE, "--standardize: what columns there are is not known: give "
                                  "--data, or a graph file that was made with it");
    TRY(schema_read(job_model(job)->table, &schema));
    *out = (size_t)schema_statistics(schema);
    schema_destroy(schema);
    return STATUS_OK;
}

enum status fed_standard_init(struct fed_standard *standard, struct job *job,
                              const struct fed_terms *terms)
{
    *standard = (struct fed_standard){ .job = job };
    pthread_mutex_init(&standard->lock, NULL);
    return terms->standardize ? count_statistics(job, &standard->count) : STATUS_OK;
}

void fed_standard_release(struct fed_standard *standard)
{
    pthread_mutex_destroy(&standard->lock);
    mem_free(standard->known);
}

/* The first statistic is the number of rows. */
bool fed_standard_is_asked(const struct fed_standard *standard, const struct fed_work *work)
{
    return standard->count > 0 && work->vector[0][0] == 0;
}

enum status fed_standard_answer(const struct fed_standard *standard,
                                const struct fed_work *work, const int64_t *index,
                                int64_t count, float *out)
{
    /* A gradient is a summand of what parameters are moved against, by the rate. */
    const double by = work->whole ? -1 / ((double)work->whole * work->lr) : 1 / (double)count;

    if (work->whole)
        memset(out, 0, work->length * sizeof *out);
    else
        memcpy(out, work->vector[0], work->length * sizeof *out);
    TRY(job_statistics(standard->job, index, count, out));
    for (size_t i = 0; i < standard->count; i++)
        out[i] = (float)((double)out[i] * by);
    return STATUS_OK;
}

/* They come once and stay: whoever reads rows has been here before. */
enum status fed_standard_apply(struct fed_standard *standard, const float *vector)
{
    const size_t bytes = standard->count * sizeof *vector;
    enum status status = STATUS_OK;

    if (standard->count == 0 || vector[0] == 0 || job_statistics_count(standard->job) == 0)
        return STATUS_OK;
    pthread_mutex_lock(&standard->lock);
    if (!standard->known || memcmp(standard->known, vector, bytes) != 0) {
        if (!standard->known)
            status = mem_alloc(standard->count, sizeof *vector, &standard->known);
        if (status == STATUS_OK) {
            memcpy(standard->known, vector, bytes);
            job_standardize(standard->job, vector);
        }
    }
    pthread_mutex_unlock(&standard->lock);
    return status;
}
