/* SPDX-License-Identifier: MIT */
/* standard_test.c - statistics of participants: what they give first adds up to what all rows have, and stays. */
#include "fed/standard.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "fed/local.h"

enum { STATISTICS = 1 + 3 + 3, PARAMETERS = 2 * 2 + 2, LENGTH = STATISTICS + PARAMETERS };

static const char *const rows =
    "a,b,sick\n1,10,no\n2,30,yes\n4,20,no\n7,40,yes\n5,60,no\n3,5,yes\n"
    "8,15,no\n6,25,yes\n2,35,no\n9,45,yes\n";

struct fixture {
    struct fed_terms terms;
    struct fed_job *job;
    struct fed_local *local;
    int64_t count;
};

static void begin(struct fixture *f)
{
    char path[512];

    snprintf(path, sizeof path, "%s/t.csv", test_folder());
    CHECK_OK(file_replace(path, rows, strlen(rows)));
    fed_terms_init(&f->terms);
    snprintf(f->terms.model, sizeof f->terms.model, "logistic");
    f->terms.batch = 2;
    f->terms.epochs = 1;
    f->terms.lr = 0.5;
    f->terms.standardize = true;
    const struct fed_job_config config = { .terms = &f->terms,
                                           .model = model_find("logistic"),
                                           .data = path };
    CHECK_OK(fed_job_create(&config, &f->job));
    CHECK_OK(fed_local_create(f->job, 1, &f->local));
    CHECK_INT(LENGTH, fed_local_length(f->local));
    f->count = source_count(fed_job_train(f->job));
}

static void end(struct fixture *f)
{
    fed_local_destroy(f->local);
    fed_job_destroy(f->job);
    fed_terms_release(&f->terms);
}

/* What a participant with these rows makes of a vector. */
static void train(struct fixture *f, const int64_t *index, int64_t count, uint64_t whole,
                  float *vector, float *out)
{
    const struct fed_work work = {
        .lr = 0.5, .whole = whole, .n_vectors = 1, .vector = { vector }, .length = LENGTH
    };
    struct fed_tally tally;
    struct fed_part part;

    fed_part_init(&part, fed_job_train(f->job), index, count);
    CHECK_OK(fed_local_train(f->local, &part, 1, &work, NULL, out, &tally));
    CHECK_INT(count, tally.samples);
}

static void test_means_of_statistics_are_those_of_all(struct rng *rng)
{
    struct fixture f = { 0 };
    int64_t part[2][16], n[2] = { 0, 0 };
    float initial[LENGTH], whole[LENGTH], of_part[2][LENGTH];

    begin(&f);
    CHECK_OK(fed_local_initial(f.local, 3, initial));
    for (int i = 0; i < STATISTICS; i++)
        CHECK(initial[i] == 0);
    for (int64_t i = 0; i < f.count; i++) {
        const int to = i < 2 ? (int)i : (int)rng_below(rng, 2); /* nobody has none */
        part[to][n[to]++] = i;
    }
    for (int p = 0; p < 2; p++)
        train(&f, part[p], n[p], 0, initial, of_part[p]);
    CHECK_OK(job_statistics(fed_job_base(f.job), NULL, 0, whole));
    for (int i = 0; i < STATISTICS; i++) {
        const double mean =
            ((double)of_part[0][i] * (double)n[0] + (double)of_part[1][i] * (double)n[1]) /
            (double)f.count;
        CHECK_CLOSE((double)whole[i] / (double)f.count, mean, 1e-6);
    }
    CHECK(memcmp(of_part[0] + STATISTICS, initial + STATISTICS, PARAMETERS * sizeof(float)) ==
          0);
    end(&f);
}

static void test_statistics_stay_while_parameters_are_trained(void)
{
    static const int64_t some[] = { 0, 1, 2 };
    struct fixture f = { 0 };
    float vector[LENGTH], first[LENGTH], trained[LENGTH];

    begin(&f);
    CHECK_OK(fed_local_initial(f.local, 3, vector));
    train(&f, some, 3, 0, vector, first);
    CHECK_CLOSE(1, first[0], 1e-6);
    train(&f, some, 3, 0, first, trained);
    CHECK(memcmp(first, trained, STATISTICS * sizeof(float)) == 0);
    CHECK(memcmp(first + STATISTICS, trained + STATISTICS, PARAMETERS * sizeof(float)) != 0);
    end(&f);
}

/* Rows are read by what the vector says, not by the statistics of who reads them. */
static void test_rows_are_standardized_by_what_came(void)
{
    const int64_t length[SOURCE_SEQUENCES] = { 0 }, first = 0;
    struct fixture f = { 0 };
    struct fed_tally tally;
    float vector[LENGTH], own[2], other[2];
    int32_t y;

    begin(&f);
    const struct source *source = fed_job_train(f.job);
    CHECK_OK(fed_local_initial(f.local, 3, vector));
    source_read(source, NULL, &first, 1, length, own, NULL, &y);
    CHECK_OK(job_statistics(fed_job_base(f.job), NULL, 0, vector));
    for (int i = 0; i < STATISTICS; i++) /* a factor does no harm */
        vector[i] *= 0.125F;
    CHECK_OK(fed_local_evaluate(f.local, source, vector, &tally));
    source_read(source, NULL, &first, 1, length, other, NULL, &y);
    CHECK_CLOSE(own[0], other[0], 1e-5);
    vector[2] += vector[1]; /* the mean of a is one scale more */
    CHECK_OK(fed_local_evaluate(f.local, source, vector, &tally));
    source_read(source, NULL, &first, 1, length, other, NULL, &y);
    CHECK(other[0] != own[0] && other[1] == own[1]);
    end(&f);
}

static void test_a_model_of_images_has_no_statistics(void)
{
    struct fed_terms terms;
    struct fed_job *job;

    fed_terms_init(&terms);
    snprintf(terms.model, sizeof terms.model, "mlp");
    terms.standardize = true;
    const struct fed_job_config config = { .terms = &terms, .model = model_find("mlp") };
    CHECK_STATUS(STATUS_USAGE, fed_job_create(&config, &job));
    CHECK_MESSAGE("--standardize is for models of tables");
    fed_terms_release(&terms);
}

const struct test tests[] = {
    { .name = "means of statistics are those of all",
      .property = test_means_of_statistics_are_those_of_all },
    { .name = "statistics stay while parameters are trained",
      .run = test_statistics_stay_while_parameters_are_trained },
    { .name = "rows are standardized by what came",
      .run = test_rows_are_standardized_by_what_came },
    { .name = "a model of images has no statistics",
      .run = test_a_model_of_images_has_no_statistics },
    { 0 },
};
