/* SPDX-License-Identifier: MIT */
/* score.c - a text's pairs in batches of like length, translated and compared. */
#include "train/score.h"

#include "base/mem.h"
#include "data/tokenize.h"
#include "train/tidy.h"

enum { BATCH = 64, LONGEST = 100, TEXT_MOST = 16 << 20 };

struct translate_config score_config(const struct text *text, int64_t width)
{
    const struct vocab *target = text_vocab(text, 1);

    return (struct translate_config){
        .begin = vocab_special(target, VOCAB_BEGIN),
        .end = vocab_special(target, VOCAB_END),
        .width = width,
        .longest = LONGEST,
    };
}

/* The numbers of a batch's sources; the caller frees them. */
static enum status read_sources(const struct text *text, const int64_t *index, int64_t count,
                                int64_t length[SOURCE_SEQUENCES], int32_t **out)
{
    const struct source *source = text_as_source(text);
    int32_t *second, *labels;

    source_extents(source, index, count, length);
    const size_t targets = (size_t)(count * length[1]);
    TRY(mem_alloc((size_t)(count * length[0]), sizeof **out, out));
    enum status status = mem_alloc(2 * targets, sizeof *second, &second);
    if (status != STATUS_OK) {
        mem_free(*out);
        return status;
    }
    labels = second + targets;
    source_read(source, NULL, index, count, length, *out, second, labels);
    mem_free(second);
    return STATUS_OK;
}

static enum status tell_all(const struct text *text, const struct beam_text *found,
                            int64_t count, score_tell *tell, void *arg)
{
    struct strbuf translation;
    enum status status = STATUS_OK;

    strbuf_init(&translation, TEXT_MOST);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++) {
        strbuf_clear(&translation);
        tidy_decode(text_vocab(text, 1), found[i].tokens, (size_t)found[i].count, &translation);
        status = strbuf_status(&translation);
        if (status == STATUS_OK)
            status = tell(arg, i, translation.text);
    }
    strbuf_release(&translation);
    return status;
}

enum status score_some(struct translator *translator, const struct text *text,
                       const int64_t *index, int64_t count, score_tell *tell, void *arg)
{
    struct beam_text found[BATCH];
    int64_t length[SOURCE_SEQUENCES];
    int32_t *sources;

    BUG_ON(count > BATCH);
    TRY(read_sources(text, index, count, length, &sources));
    enum status status = translator_run(translator, sources, count, length[0], found);
    mem_free(sources);
    TRY(status);
    status = tell_all(text, found, count, tell, arg);
    beam_release(found, count);
    return status;
}

/* Scoring --------------------------------------------------------------------------------- */

struct scoring {
    const struct text *text;
    const int64_t *index;
    struct bleu *bleu;
};

static enum status compare(void *arg, int64_t i, const char *translation)
{
    const struct scoring *s = arg;
    struct strbuf line;
    size_t length;

    const char *reference = text_line(s->text, s->index[i], 1, &length);
    strbuf_init(&line, TEXT_MOST);
    strbuf_add_bytes(&line, reference, length);
    enum status status = strbuf_status(&line);
    if (status == STATUS_OK)
        status = bleu_add(s->bleu, translation, line.text);
    strbuf_release(&line);
    return status;
}

enum status score_text(const struct usable *usable, const struct text *text, int64_t width,
                       struct bleu *out)
{
    const struct translate_config config = score_config(text, width);
    const struct source *source = text_as_source(text);
    const bool is_lower = vocab_tokenizer(text_vocab(text, 1)) == &tokenizer_words;
    struct bleu bleu = { .is_lower_case = is_lower };
    struct translator *translator;
    int64_t index[BATCH];
    const struct scoring scoring = { text, index, &bleu };
    enum status status = STATUS_OK;

    TRY(translator_create(usable, &config, &translator));
    for (int64_t at = 0; at < source_count(source) && status == STATUS_OK; at += BATCH) {
        const int64_t left = source_count(source) - at, count = left < BATCH ? left : BATCH;
        for (int64_t i = 0; i < count; i++)
            index[i] = source_at(source, at + i);
        status = score_some(translator, text, index, count, compare, (void *)&scoring);
    }
    translator_destroy(translator);
    if (status == STATUS_OK)
        *out = bleu;
    return status;
}

/* The model of a job ---------------------------------------------------------------------- */

enum status usable_exec_init(struct usable_exec *usable, const struct job *job,
                             const struct exec *exec)
{
    const int threads = (int)job->settings.threads;

    *usable = (struct usable_exec){ .config = job->model_config };
    usable->config.training = false;
    usable->usable = (struct usable){ .model = job->model,
                                      .config = &usable->config,
                                      .choices = job->choices };
    TRY(infer_weights_of(exec, &usable->weights));
    usable->usable.weights = usable->weights;
    enum status status = threads > 1 ? pool_create(threads, &usable->usable.pool) : STATUS_OK;
    if (status != STATUS_OK)
        usable_exec_release(usable);
    return status;
}

void usable_exec_release(struct usable_exec *usable)
{
    pool_destroy(usable->usable.pool);
    infer_weights_destroy(usable->weights);
}

enum status score_exec(const struct job *job, const struct exec *exec, const struct text *text,
                       int64_t width, struct bleu *out)
{
    struct usable_exec usable;

    TRY(usable_exec_init(&usable, job, exec));
    enum status status = score_text(&usable.usable, text, width, out);
    usable_exec_release(&usable);
    return status;
}
