/* SPDX-License-Identifier: MIT */
/* samples.c - a text or some translations after an evaluation.
 *
 * The beginning is the same every time, and so are the numbers that tokens are drawn by; what
 * changes is the model. How long a text is depends on nothing but the kind of its tokens.
 */
#include "train/samples.h"

#include "base/mem.h"
#include "data/tokenize.h"
#include "train/folder.h"
#include "train/generate.h"
#include "train/sample.h"
#include "train/score.h"
#include "train/tidy.h"
#include "train/translate.h"

enum { LINE_MOST = 4 << 20, PAIRS = 4 };

/* Characters say less than words. */
static int64_t prompt_tokens(const struct vocab *vocab)
{
    return vocab_tokenizer(vocab) == &tokenizer_characters ? 40 : 12;
}

static int64_t written_tokens(const struct vocab *vocab)
{
    return vocab_tokenizer(vocab) == &tokenizer_characters ? 240 : 60;
}

/* Going on --------------------------------------------------------------------------------- */

/* The first tokens of the first sample; how many there are. */
static enum status read_beginning(const struct text *text, int32_t **out, int64_t *out_count)
{
    const struct source *source = text_as_source(text);
    const int64_t first = 0, most = prompt_tokens(text_vocab(text, 0));
    int64_t length[SOURCE_SEQUENCES], count = 0;
    int32_t *labels;

    source_extents(source, &first, 1, length);
    TRY(mem_alloc((size_t)length[0], sizeof **out, out));
    enum status status = mem_alloc((size_t)length[0], sizeof *labels, &labels);
    if (status != STATUS_OK) {
        mem_free(*out);
        return status;
    }
    source_read(source, NULL, &first, 1, length, *out, NULL, labels);
    mem_free(labels);
    while (count < length[0] && count < most && (*out)[count] >= 0)
        count++;
    *out_count = count;
    return STATUS_OK;
}

static enum status write_tokens(struct generator *generator, struct sample *sample,
                                const int32_t *prompt, int64_t n_prompt, int64_t count,
                                int32_t *out)
{
    const float *logits;

    TRY(generator_feed(generator, prompt, n_prompt, &logits));
    for (int64_t i = 0; i < count; i++) {
        TRY(sample_next(sample, logits, (uint64_t)i, &out[i]));
        if (i + 1 < count)
            TRY(generator_feed(generator, &out[i], 1, &logits));
    }
    return STATUS_OK;
}

/* Text of tokens as a JSON string; `before` precedes them. */
static void add_text(struct strbuf *line, const struct vocab *vocab, int32_t before,
                     const int32_t *tokens, int64_t count)
{
    struct strbuf text;

    strbuf_init(&text, LINE_MOST);
    vocab_decode(vocab, before, tokens, (size_t)count, &text);
    strbuf_add_json(line, text.text);
    strbuf_release(&text);
}

static enum status go_on(const struct usable *usable, const struct job *job,
                         const struct text *text, struct strbuf *line)
{
    const struct vocab *vocab = text_vocab(text, 0);
    const struct sample_config config = { .temperature = 0.8,
                                          .top_p = 1,
                                          .seed = job->settings.seed };
    const int64_t count = written_tokens(vocab);
    struct generator *generator = NULL;
    struct sample *sample = NULL;
    int32_t *prompt = NULL, *written = NULL;
    int64_t n_prompt;

    enum status status = read_beginning(text, &prompt, &n_prompt);
    if (status == STATUS_OK)
        status = mem_alloc((size_t)count, sizeof *written, &written);
    if (status == STATUS_OK)
        status = generator_create(usable, &generator);
    if (status == STATUS_OK)
        status = sample_create(&config, vocab_size(vocab), &sample);
    if (status == STATUS_OK && n_prompt > 0)
        status = write_tokens(generator, sample, prompt, n_prompt, count, written);
    if (status == STATUS_OK && n_prompt > 0) {
        strbuf_add(line, "{\"prompt\": ");
        add_text(line, vocab, -1, prompt, n_prompt);
        strbuf_add(line, ", \"output\": ");
        add_text(line, vocab, prompt[n_prompt - 1], written, count);
        strbuf_add(line, "}");
    }
    generator_destroy(generator);
    sample_destroy(sample);
    mem_free(prompt);
    mem_free(written);
    return status;
}

/* Translating ------------------------------------------------------------------------------- */

struct telling {
    const struct text *text;
    struct strbuf *line;
};

static void add_line_of(struct strbuf *out, const struct text *text, int64_t index, int side)
{
    struct strbuf copy;
    size_t length;

    const char *bytes = text_line(text, index, side, &length);
    strbuf_init(&copy, LINE_MOST);
    strbuf_add_bytes(&copy, bytes, length);
    strbuf_add_json(out, copy.text);
    strbuf_release(&copy);
}

static enum status tell_pair(void *arg, int64_t i, const char *translation)
{
    const struct telling *t = arg;

    strbuf_add(t->line, i > 0 ? ", {\"source\": " : "{\"source\": ");
    add_line_of(t->line, t->text, i, 0);
    strbuf_add(t->line, ", \"reference\": ");
    add_line_of(t->line, t->text, i, 1);
    strbuf_add(t->line, ", \"output\": ");
    strbuf_add_json(t->line, translation);
    strbuf_add(t->line, "}");
    return strbuf_status(t->line);
}

static enum status translate_first(const struct usable *usable, const struct text *text,
                                   struct strbuf *line)
{
    const struct translate_config config = score_config(text, 1);
    const int64_t there = source_count(text_as_source(text));
    const struct telling telling = { text, line };
    int64_t index[PAIRS];
    struct translator *translator;

    for (int64_t i = 0; i < PAIRS; i++)
        index[i] = i;
    TRY(translator_create(usable, &config, &translator));
    enum status status = score_some(translator, text, index, there < PAIRS ? there : PAIRS,
                                    tell_pair, (void *)&telling);
    translator_destroy(translator);
    return status;
}

/* The line ---------------------------------------------------------------------------------- */

static enum status say(const struct job *job, const struct exec *exec, const struct text *text,
                       struct strbuf *line)
{
    struct usable_exec usable;

    TRY(usable_exec_init(&usable, job, exec));
    enum status status = job->model->task == MODEL_TRANSLATION
                             ? translate_first(&usable.usable, text, line)
                             : go_on(&usable.usable, job, text, line);
    usable_exec_release(&usable);
    return status;
}

bool samples_are_made(const struct job *job)
{
    const struct model *model = job->model;

    return job->test_text && (generator_is_for(model) || translator_is_for(model)) &&
           source_count(text_as_source(job->test_text)) > 0;
}

enum status samples_add(const struct job *job, const struct exec *exec,
                        const struct train_hooks *hooks, uint64_t step, double epoch)
{
    const struct text *text = job->test_text;
    struct strbuf line;

    if (!samples_are_made(job))
        return STATUS_OK;
    strbuf_init(&line, LINE_MOST);
    strbuf_printf(
        &line, "{\"kind\": \"sample\", \"step\": %llu, \"epoch\": ", (unsigned long long)step);
    strbuf_add_number(&line, epoch);
    strbuf_add(&line, ", \"texts\": [");
    enum status status = say(job, exec, text, &line);
    strbuf_add(&line, "]}\n");
    if (status == STATUS_OK)
        status = folder_add_line(job, hooks, &line);
    strbuf_release(&line);
    return status;
}
