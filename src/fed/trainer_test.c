/* SPDX-License-Identifier: MIT */
/* trainer_test.c - the trainer of a participant: what is drawn to an anchor, what is shifted, what a gradient is. */
#include "fed/local.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/strbuf.h"
#include "base/test.h"
#include "model/model.h"

enum { SAMPLES = 64, HIDDEN = 1024 };
static const double LR = 0.25;

struct fixture {
    struct fed_terms terms;
    struct fed_job *job;
    struct fed_local *local;
    struct fed_part part;
    int64_t index[SAMPLES];
    size_t length;
    float *initial;
};

static const char *dp_sgd = ""; /* of the terms of the fixtures that begin */

/* A table of rows of five numbers, whose label is whether their sum is large. Returns its path. */
static const char *write_table(void)
{
    static char path[512];
    struct strbuf text;
    struct rng rng;

    strbuf_init(&text, 1 << 16);
    strbuf_add(&text, "a,b,c,d,e,large\n");
    rng_init(&rng, 1, 1);
    for (int i = 0; i < 2 * SAMPLES; i++) {
        double sum = 0;
        for (int k = 0; k < 5; k++) {
            const double number = rng_normal(&rng);
            strbuf_printf(&text, "%.4f,", number);
            sum += number;
        }
        strbuf_printf(&text, "%s\n", sum > 0 ? "yes" : "no");
    }
    CHECK_OK(strbuf_status(&text));
    snprintf(path, sizeof path, "%s/table.csv", test_folder());
    CHECK_OK(file_replace(path, text.text, text.length));
    strbuf_release(&text);
    return path;
}

static void begin(struct fixture *f, const char *algorithm, int64_t steps, double mu)
{
    fed_terms_init(&f->terms);
    snprintf(f->terms.model, sizeof f->terms.model, "tabular");
    snprintf(f->terms.algorithm, sizeof f->terms.algorithm, "%s", algorithm);
    f->terms.batch = 16;
    f->terms.steps = steps;
    f->terms.lr = LR;
    f->terms.mu = mu;
    snprintf(f->terms.dp_sgd, sizeof f->terms.dp_sgd, "%s", dp_sgd);
    double options[MODEL_OPTIONS] = { HIDDEN };
    for (int i = 1; i < MODEL_OPTIONS; i++)
        options[i] = NAN;
    struct fed_job_config config = { .terms = &f->terms,
                                     .options = options,
                                     .model = model_find("tabular"),
                                     .data = write_table(),
                                     .limit = SAMPLES };
    CHECK_OK(fed_job_create(&config, &f->job));
    CHECK_OK(fed_job_print_graph(f->job, &f->terms.graph));
    fed_job_destroy(f->job);
    config.model = NULL; /* as a participant has it: from the text */
    CHECK_OK(fed_job_create(&config, &f->job));
    CHECK_OK(fed_local_create(f->job, 1, &f->local));
    for (int64_t i = 0; i < SAMPLES; i++)
        f->index[i] = i;
    fed_part_init(&f->part, fed_job_train(f->job), f->index, SAMPLES);
    f->length = fed_local_length(f->local);
    CHECK_OK(mem_alloc(f->length, sizeof(float), &f->initial));
    CHECK_OK(fed_local_initial(f->local, 3, f->initial));
}

static void end(struct fixture *f)
{
    fed_local_destroy(f->local);
    fed_job_destroy(f->job);
    fed_terms_release(&f->terms);
    mem_free(f->initial);
}

/* Parameters after local training; caller frees. */
static float *train(struct fixture *f, const float *shift, uint64_t whole)
{
    const struct fed_work work = { .seed = 5,
                                   .lr = LR,
                                   .whole = whole,
                                   .n_vectors = 1,
                                   .vector = { f->initial },
                                   .length = f->length };
    struct fed_tally tally;
    float *out;

    CHECK_OK(mem_alloc(f->length, sizeof *out, &out));
    CHECK_OK(fed_local_train(f->local, &f->part, 1, &work, shift, out, &tally));
    CHECK_INT(f->terms.steps, tally.steps);
    return out;
}

static void test_shift(void)
{
    struct fixture f;
    float *shift;

    begin(&f, "scaffold", 1, 0);
    CHECK_OK(mem_alloc(f.length, sizeof *shift, &shift));
    for (size_t i = 0; i < f.length; i++)
        shift[i] = (float)(i % 7) / 8;
    float *plain = train(&f, NULL, 0), *shifted = train(&f, shift, 0);
    for (size_t i = 0; i < f.length; i++)
        CHECK_CLOSE((double)plain[i] - LR * (double)shift[i], shifted[i], 1e-6);
    mem_free(plain);
    mem_free(shifted);
    mem_free(shift);
    end(&f);
}

/* w2 = w1 - lr (g(w1) + mu (w1 - w0)). */
static void test_anchor(void)
{
    enum { STEPS = 2 };
    const double mu = 0.5;
    float *after[3];

    for (int i = 0; i < 3; i++) {
        struct fixture f;
        begin(&f, "fedprox", i == 0 ? 1 : STEPS, i == 2 ? mu : 0);
        after[i] = train(&f, NULL, 0);
        if (i == 2) {
            double moved = 0;
            for (size_t k = 0; k < f.length; k++) {
                const double way = (double)after[0][k] - (double)f.initial[k];
                CHECK_CLOSE((double)after[1][k] - LR * mu * way, after[2][k], 1e-6);
                moved += fabs(way);
            }
            CHECK(moved > 0);
        }
        end(&f);
    }
    for (int i = 0; i < 3; i++)
        mem_free(after[i]);
}

/* Without a pull and a shift an anchored step has the bits of a plain one. */
static void test_anchored_by_nothing(void)
{
    struct fixture plain, anchored;

    begin(&plain, "fedavg", 3, 0);
    begin(&anchored, "fedprox", 3, 0);
    float *a = train(&plain, NULL, 0), *b = train(&anchored, NULL, 0);
    CHECK(memcmp(a, b, plain.length * sizeof *a) == 0);
    mem_free(a);
    mem_free(b);
    end(&plain);
    end(&anchored);
}

static void check_again(struct fixture *f)
{
    float *first = train(f, NULL, 0), *second = train(f, NULL, 0);

    CHECK(memcmp(first, second, f->length * sizeof *first) == 0);
    CHECK(memcmp(first, f->initial, f->length * sizeof *first) != 0);
    mem_free(first);
    mem_free(second);
}

static void check_head(struct fixture *f)
{
    const struct fed_range *averages;
    float *head;

    CHECK_INT(HIDDEN * 2 + 2, fed_local_head(f->local));
    CHECK_INT(0, fed_local_averages(f->local, &averages));
    CHECK_OK(mem_alloc(fed_local_head(f->local), sizeof *head, &head));
    CHECK_OK(fed_local_initial_head(f->local, 3, head));
    CHECK(memcmp(head, f->initial + f->length - fed_local_head(f->local),
                 fed_local_head(f->local) * sizeof *head) == 0);
    mem_free(head);
}

static void check_parts(struct fixture *f)
{
    struct fed_tally whole = { 0 }, sum = { 0 };

    CHECK_OK(fed_local_evaluate(f->local, fed_job_train(f->job), f->initial, &whole));
    for (int64_t i = 0; i < 4; i++) {
        struct fed_part part;
        struct fed_tally tally = { 0 };
        fed_part_init(&part, fed_job_train(f->job), f->index + 16 * i, 16);
        CHECK_OK(fed_local_evaluate(f->local, &part.source, f->initial, &tally));
        sum.val_loss += tally.val_loss;
        sum.val_correct += tally.val_correct;
        sum.val_seen += tally.val_seen;
    }
    CHECK(whole.val_seen == SAMPLES && sum.val_seen == SAMPLES);
    CHECK(whole.val_correct == sum.val_correct);
    CHECK_CLOSE(whole.val_loss, sum.val_loss, 1e-5);
}

static void test_plain_training(void)
{
    struct fixture f;

    begin(&f, "fedavg", 3, 0);
    check_again(&f);
    check_head(&f);
    check_parts(&f);
    end(&f);
}

/* Length of the way from the initial parameters after one step, over the rate. */
static double way_of(const char *text, bool simulated)
{
    struct fixture f;
    double squares = 0;

    dp_sgd = text;
    begin(&f, "fedavg", 1, 0);
    dp_sgd = "";
    if (simulated)
        fed_local_simulate(f.local, 9);
    float *first = train(&f, NULL, 0), *again = train(&f, NULL, 0);
    for (size_t i = 0; i < f.length; i++)
        squares += pow((double)first[i] - (double)f.initial[i], 2);
    CHECK((memcmp(first, again, f.length * sizeof *first) == 0) == simulated);
    mem_free(first);
    mem_free(again);
    end(&f);
    return sqrt(squares) / LR;
}

/* The mean of 16 clipped gradients is no longer than the clip; noise has its length, and is new for every training but a
 * simulated one. */
static void test_samples_are_private(void)
{
    const double free = way_of("100,0", true), clipped = way_of("0.01,0", true);

    CHECK(free > 0.1);
    const struct fed_terms epochs = { .batch = 10, .epochs = 3 },
                           some = { .batch = 10, .steps = 4 };
    CHECK_INT(3, fed_local_passes(&epochs, 25));
    CHECK_INT(2, fed_local_passes(&some, 25)); /* of three steps an epoch */
    CHECK(clipped > 0.001 && clipped <= 0.01);
    struct fixture f;
    begin(&f, "fedavg", 1, 0);
    const double noise = 0.01 * 3 / 16 * sqrt((double)f.length);
    end(&f);
    CHECK_CLOSE(1, way_of("0.01,3", true) / noise, 0.05);
    CHECK_CLOSE(1, way_of("0.01,3", false) / noise, 0.05);
}

const struct test tests[] = {
    { .name =
          "a round leaves nothing to the next; the last layer is the head; parts are sources",
      .run = test_plain_training },
    { .name = "steps are shifted", .run = test_shift },
    { .name = "steps are drawn to where they began", .run = test_anchor },
    { .name = "an anchor without pull is none", .run = test_anchored_by_nothing },
    { "gradients of samples are clipped and noisy", test_samples_are_private, NULL },
    { 0 },
};
