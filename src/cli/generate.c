/* SPDX-License-Identifier: MIT */
/* generate.c - tutti generate: a trained model goes on with a text, or translates it. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "data/tokenize.h"
#include "train/sample.h"
#include "train/tidy.h"
#include "train/train.h"
#include "train/translate.h"
#include "train/use.h"

enum { LENGTH = 256, TRANSLATION_LENGTH = 100, LENGTH_MOST = 1 << 20, BEAM_MOST = 256 };
enum { PROMPT_MOST = 16 << 20, ANSWER_MOST = 64 << 20 };

static bool json;
static const char *prompt, *temperature, *top_k, *top_p, *seed, *length, *beam, *weights;

static const char *const allowed[] = { "threads", "kernels", "exact", NULL };
static const struct flag flags[] = {
    { "prompt", "TEXT", "what to go on with, or to translate (standard input)", NULL, &prompt },
    { "length", "N", "tokens to write at most (256; of a translation 100)", NULL, &length },
    { "temperature", "T", "below 1 more likely tokens, 0 always the likeliest (0.8)", NULL,
      &temperature },
    { "top-k", "K", "draw among the K likeliest tokens; 0 is all (0)", NULL, &top_k },
    { "top-p", "P", "among the fewest whose probabilities reach P; 1 is all (1)", NULL,
      &top_p },
    { "seed", "N", "the same seed writes the same text (1)", NULL, &seed },
    { "beam", "K", "translate by K hypotheses side by side; 1 is greedy (1)", NULL, &beam },
    { "weights", "FILE", "use these (safetensors) instead of the checkpoint", NULL, &weights },
    { "json", NULL, "the result as a JSON object, one a translated line", &json, NULL },
    { 0 },
};

static void help(void)
{
    cli_print_settings(allowed, NULL);
    cli_print_flags("Writing", flags);
    puts("\nWithout --prompt, text comes from standard input; a model that translates takes a "
         "sentence a line.");
}

/* Flags ---------------------------------------------------------------------------------- */

static enum status number_of(const char *flag, const char *text, double fallback, double *out)
{
    char *end;

    *out = fallback;
    if (!text)
        return STATUS_OK;
    *out = strtod(text, &end);
    return end != text && !*end ? STATUS_OK
                                : FAIL(STATUS_USAGE, "--%s %s: not a number", flag, text);
}

static enum status whole_of(const char *flag, const char *text, int64_t fallback,
                            long long most, int64_t *out)
{
    long long number = fallback;

    if (text)
        TRY(cli_whole_number(flag, text, most, &number));
    *out = number;
    return STATUS_OK;
}

static enum status read_length(int64_t fallback, int64_t *out)
{
    TRY(whole_of("length", length, fallback, LENGTH_MOST, out));
    return *out > 0 ? STATUS_OK : FAIL(STATUS_USAGE, "--length 0: at least 1");
}

static enum status read_sampling(struct sample_config *out)
{
    int64_t number;

    TRY(number_of("temperature", temperature, 0.8, &out->temperature));
    TRY(number_of("top-p", top_p, 1, &out->top_p));
    TRY(whole_of("top-k", top_k, 0, INT32_MAX, &out->top_k));
    TRY(whole_of("seed", seed, 1, INT64_MAX, &number));
    out->seed = (uint64_t)number;
    return sample_check(out);
}

/* Flags that the model has no use for are mistakes. */
static enum status check_flags(const struct model *model)
{
    const struct {
        const char *name, *text;
        enum model_task task;
    } of_one[] = {
        { "temperature", temperature, MODEL_NEXT_TOKEN },
        { "top-k", top_k, MODEL_NEXT_TOKEN },
        { "top-p", top_p, MODEL_NEXT_TOKEN },
        { "seed", seed, MODEL_NEXT_TOKEN },
        { "beam", beam, MODEL_TRANSLATION },
    };

    for (size_t i = 0; i < sizeof of_one / sizeof *of_one; i++) {
        if (of_one[i].text && of_one[i].task != model->task)
            return FAIL(STATUS_USAGE, "--%s: %s %s", of_one[i].name, model->name,
                        model->task == MODEL_TRANSLATION
                            ? "translates and draws nothing: use --beam"
                            : "does not translate: use --temperature, --top-k or --top-p");
    }
    return STATUS_OK;
}

/* Texts ---------------------------------------------------------------------------------- */

/* All of standard input. */
static enum status read_input(struct strbuf *out)
{
    char buffer[4096];
    size_t got;

    if (isatty(STDIN_FILENO))
        return FAIL(STATUS_USAGE, "no prompt: --prompt TEXT, or a text on standard input");
    while ((got = fread(buffer, 1, sizeof buffer, stdin)) > 0)
        strbuf_add_bytes(out, buffer, got);
    if (ferror(stdin))
        return FAIL(STATUS_IO, "standard input: %s", strerror(errno));
    if (out->length > 0 && out->text[out->length - 1] == '\n') /* the end of the last line */
        out->text[--out->length] = '\0';
    return strbuf_status(out);
}

/* Numbers of a text that somebody typed. */
static enum status encode(const struct vocab *vocab, const char *text, size_t bytes,
                          int32_t **out, size_t *out_count)
{
    const enum status status = vocab_encode(vocab, text, bytes, out, out_count);

    if (status == STATUS_CORRUPT || status == STATUS_MISMATCH)
        return FAIL(STATUS_USAGE, "prompt: %s", status_message());
    return status;
}

/* Text that comes token by token and is shown as it comes, whole characters only. */
struct stream {
    struct strbuf text; /* all of it */
    size_t shown;       /* bytes */
    bool is_silent;
};

static void show(struct stream *stream, bool is_over)
{
    const char *from = stream->text.text + stream->shown;
    const size_t there = stream->text.length - stream->shown;
    const size_t kept = is_over ? 0 : utf8_unfinished(from, there);
    const size_t end = there - kept;

    for (size_t at = 0; at < end && !stream->is_silent;) {
        const size_t span = utf8_span(from + at, end - at);
        if (span > 0)
            fwrite(from + at, 1, span, stdout);
        else
            fputs("\uFFFD", stdout);
        at += span > 0 ? span : 1;
    }
    stream->shown += end;
    if (!stream->is_silent)
        fflush(stdout);
}

static void tell_speed(int64_t tokens, double seconds)
{
    char rate[32];

    fprintf(stderr, "%lld tokens in %.2f s, %s tokens/s\n", (long long)tokens, seconds,
            cli_human(seconds > 0 ? (double)tokens / seconds : 0, rate));
}

/* Going on ------------------------------------------------------------------------------- */

struct writing {
    const struct use *use;
    struct generator *generator;
    struct sample *sample;
    int64_t most;
    int32_t *prompt;
    size_t prompt_count;
    int64_t written;
    double prompt_seconds, seconds;
    struct stream stream;
};

/* GPT-2's <|endoftext|> ends a text; of words <eos> is the end of a line. */
static bool ends_text(const struct vocab *vocab, int32_t token)
{
    return token == vocab_special(vocab, VOCAB_END) && !vocab_tokenizer(vocab)->ends_lines;
}

static enum status write_tokens(struct writing *w)
{
    const struct vocab *vocab = w->use->vocab[0];
    int32_t last = w->prompt[w->prompt_count - 1], token;
    const float *logits;
    const double begin = clock_seconds();

    TRY(generator_feed(w->generator, w->prompt, (int64_t)w->prompt_count, &logits));
    w->prompt_seconds = clock_seconds() - begin;
    while (w->written < w->most) {
        TRY(sample_next(w->sample, logits, (uint64_t)w->written, &token));
        if (ends_text(vocab, token))
            break;
        vocab_decode(vocab, last, &token, 1, &w->stream.text);
        TRY(strbuf_status(&w->stream.text));
        show(&w->stream, false);
        last = token;
        if (++w->written < w->most)
            TRY(generator_feed(w->generator, &token, 1, &logits));
    }
    show(&w->stream, true);
    w->seconds = clock_seconds() - begin - w->prompt_seconds;
    return STATUS_OK;
}

static enum status print_written(const struct writing *w, const struct sample_config *config,
                                 const char *text)
{
    struct strbuf line;

    strbuf_init(&line, ANSWER_MOST);
    strbuf_add(&line, "{\"prompt\": ");
    strbuf_add_json(&line, text);
    strbuf_add(&line, ", \"text\": ");
    strbuf_add_json(&line, w->stream.text.text);
    strbuf_printf(&line, ", \"prompt_tokens\": %zu, \"tokens\": %lld, \"temperature\": ",
                  w->prompt_count, (long long)w->written);
    strbuf_add_number(&line, config->temperature);
    strbuf_printf(&line, ", \"top_k\": %lld, \"top_p\": ", (long long)config->top_k);
    strbuf_add_number(&line, config->top_p);
    strbuf_printf(&line, ", \"seed\": %llu, \"step\": %lld, \"prompt_seconds\": ",
                  (unsigned long long)config->seed, (long long)w->use->step);
    strbuf_add_number(&line, w->prompt_seconds);
    strbuf_add(&line, ", \"seconds\": ");
    strbuf_add_number(&line, w->seconds);
    strbuf_add(&line, ", \"tokens_per_s\": ");
    strbuf_add_number(&line, (double)w->written / w->seconds);
    strbuf_add(&line, "}\n");
    enum status status = strbuf_status(&line);
    if (status == STATUS_OK)
        fputs(line.text, stdout);
    strbuf_release(&line);
    return status;
}

static enum status go_on(const struct use *use, const char *text, size_t bytes)
{
    struct writing w = { .use = use, .stream.is_silent = json };
    struct sample_config config;

    TRY(read_sampling(&config));
    TRY(read_length(LENGTH, &w.most));
    TRY(encode(use->vocab[0], text, bytes, &w.prompt, &w.prompt_count));
    strbuf_init(&w.stream.text, ANSWER_MOST);
    enum status status = w.prompt_count > 0
                             ? generator_create(&use->usable, &w.generator)
                             : FAIL(STATUS_USAGE, "prompt: there is no token in it");
    if (status == STATUS_OK)
        status = sample_create(&config, vocab_size(use->vocab[0]), &w.sample);
    if (status == STATUS_OK && !json)
        fwrite(text, 1, bytes, stdout);
    if (status == STATUS_OK)
        status = write_tokens(&w);
    if (status == STATUS_OK && json)
        status = print_written(&w, &config, text);
    if (status == STATUS_OK && !json) {
        puts("");
        fflush(stdout);
        tell_speed(w.written, w.seconds);
    }
    generator_destroy(w.generator);
    sample_destroy(w.sample);
    mem_free(w.prompt);
    strbuf_release(&w.stream.text);
    return status;
}

/* Translating ----------------------------------------------------------------------------- */

struct translating {
    const struct use *use;
    struct translator *translator;
    int64_t tokens;
    double seconds;
};

static enum status print_translation(const char *source, const char *text,
                                     const struct beam_text *found, double seconds)
{
    struct strbuf line;

    if (!json) {
        puts(text);
        fflush(stdout);
        return STATUS_OK;
    }
    strbuf_init(&line, ANSWER_MOST);
    strbuf_add(&line, "{\"source\": ");
    strbuf_add_json(&line, source);
    strbuf_add(&line, ", \"translation\": ");
    strbuf_add_json(&line, text);
    strbuf_printf(&line, ", \"tokens\": %lld, \"score\": ", (long long)found->count);
    strbuf_add_number(&line, found->score);
    strbuf_add(&line, ", \"seconds\": ");
    strbuf_add_number(&line, seconds);
    strbuf_add(&line, "}\n");
    enum status status = strbuf_status(&line);
    if (status == STATUS_OK) {
        fputs(line.text, stdout);
        fflush(stdout);
    }
    strbuf_release(&line);
    return status;
}

/* Tokens of a sentence, to a whole number of places, as batches of training have them. */
static enum status pad(int32_t **tokens, size_t count, int64_t *out_length)
{
    const size_t padded = (count + SOURCE_ROUND - 1) / SOURCE_ROUND * SOURCE_ROUND;

    TRY(mem_grow(tokens, count, padded, sizeof **tokens));
    for (size_t i = count; i < padded; i++)
        (*tokens)[i] = SOURCE_PADDING;
    *out_length = (int64_t)padded;
    return STATUS_OK;
}

static enum status translate_tokens(struct translating *t, const char *line, int32_t **tokens,
                                    size_t count)
{
    const double begin = clock_seconds();
    struct beam_text found;
    struct strbuf text;
    int64_t places;

    if (count == 0 && prompt)
        return FAIL(STATUS_USAGE, "prompt: there is no word in it");
    if (count == 0) /* a line for a line, so that they can be laid side by side */
        return print_translation(line, "", &(const struct beam_text){ 0 }, 0);
    TRY(pad(tokens, count, &places));
    TRY(translator_run(t->translator, *tokens, 1, places, &found));
    const double seconds = clock_seconds() - begin;
    strbuf_init(&text, ANSWER_MOST);
    tidy_decode(t->use->vocab[1], found.tokens, (size_t)found.count, &text);
    enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        status = print_translation(line, text.text, &found, seconds);
    t->tokens += found.count;
    t->seconds += seconds;
    strbuf_release(&text);
    beam_release(&found, 1);
    return status;
}

static enum status translate_line(struct translating *t, const char *line, size_t bytes)
{
    int32_t *tokens;
    size_t count;

    TRY(encode(t->use->vocab[0], line, bytes, &tokens, &count));
    enum status status = translate_tokens(t, line, &tokens, count);
    mem_free(tokens);
    return status;
}

/* A line of standard input, without its end. STATUS_NOT_FOUND after the last. */
static enum status read_line(struct strbuf *line)
{
    int byte;

    strbuf_clear(line);
    while ((byte = getc(stdin)) != EOF && byte != '\n') {
        const char c = (char)byte;
        strbuf_add_bytes(line, &c, 1);
    }
    if (ferror(stdin))
        return FAIL(STATUS_IO, "standard input: %s", strerror(errno));
    if (byte == EOF && line->length == 0)
        return STATUS_NOT_FOUND;
    if (line->length > 0 && line->text[line->length - 1] == '\r')
        line->text[--line->length] = '\0';
    return strbuf_status(line);
}

/* Lines of standard input, each as it comes. */
static enum status translate_input(struct translating *t)
{
    struct strbuf line;
    enum status status;

    strbuf_init(&line, PROMPT_MOST);
    while ((status = read_line(&line)) == STATUS_OK) {
        status = translate_line(t, line.text, line.length);
        if (status != STATUS_OK)
            break;
    }
    strbuf_release(&line);
    return status == STATUS_NOT_FOUND ? STATUS_OK : status;
}

static enum status translate(const struct use *use)
{
    struct translating t = { .use = use };
    struct translate_config config = {
        .begin = vocab_special(use->vocab[1], VOCAB_BEGIN),
        .end = vocab_special(use->vocab[1], VOCAB_END),
    };

    TRY(whole_of("beam", beam, 1, BEAM_MOST, &config.width));
    TRY(read_length(TRANSLATION_LENGTH, &config.longest));
    if (config.width < 1)
        return FAIL(STATUS_USAGE, "--beam 0: at least 1");
    TRY(translator_create(&use->usable, &config, &t.translator));
    enum status status =
        prompt ? translate_line(&t, prompt, strlen(prompt)) : translate_input(&t);
    translator_destroy(t.translator);
    if (status == STATUS_OK && !json)
        tell_speed(t.tokens, t.seconds);
    return status;
}

/* The command ------------------------------------------------------------------------------ */

static enum status go_on_with_prompt(const struct use *use)
{
    struct strbuf text;

    strbuf_init(&text, PROMPT_MOST);
    if (prompt)
        strbuf_add(&text, prompt);
    enum status status = prompt ? strbuf_status(&text) : read_input(&text);
    if (status == STATUS_OK && text.length == 0)
        status = FAIL(STATUS_USAGE, "the prompt is empty: give the model something to go on "
                                    "with");
    if (status == STATUS_OK)
        status = go_on(use, text.text, text.length);
    strbuf_release(&text);
    return status;
}

static enum status read_settings(const struct args *args, struct settings *settings)
{
    const char *words[1];
    struct parse parse = { .args = args,
                           .flags = flags,
                           .settings = settings,
                           .allowed = allowed,
                           .words = words,
                           .max_words = 1 };

    /* Flags change the run's settings, so the run is read first: its folder is the one word. */
    settings_init(settings);
    TRY(cli_parse(&parse));
    if (!parse.n_words)
        return FAIL(STATUS_USAGE, "no run: tutti generate DIR --prompt TEXT");
    TRY(train_read_settings(words[0], settings));
    settings->threads = 0;
    parse.n_words = parse.n_later = 0;
    return cli_parse(&parse);
}

static enum status run(const struct args *args)
{
    struct settings settings;
    const struct model *model;
    struct use *use;

    TRY(read_settings(args, &settings));
    TRY(cli_find_run_model(&settings, &model));
    TRY(use_check_task(model, settings.out));
    TRY(check_flags(model));
    if (prompt && !*prompt)
        return FAIL(STATUS_USAGE, "the prompt is empty");
    TRY(use_open(&settings, model, weights, &use));
    enum status status =
        model->task == MODEL_TRANSLATION ? translate(use) : go_on_with_prompt(use);
    use_close(use);
    return status;
}

const struct command command_generate = {
    .name = "generate",
    .usage = "generate DIR [--prompt TEXT] [FLAGS]",
    .summary = "let a trained run go on with a text, or translate it",
    .run = run,
    .help = help,
};
