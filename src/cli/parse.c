/* SPDX-License-Identifier: MIT */
/* parse.c - the command line, from tables. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/suggest.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "train/words.h"

static bool is_allowed(const struct parse *parse, const struct setting *setting)
{
    if (!parse->settings)
        return false;
    for (int i = 0; parse->allowed; i++) {
        if (!parse->allowed[i])
            return false;
        if (strcmp(parse->allowed[i], setting->name) == 0)
            return true;
    }
    return true;
}

static const struct setting *setting_of_letter(char letter)
{
    for (const struct setting *s = settings_table; s->name; s++) {
        if (s->letter == letter)
            return s;
    }
    return NULL;
}

/* The model is one of the words, or that of the run that is resumed. */
static const struct model *named_model(const struct parse *parse)
{
    for (int i = 0; i < parse->n_words; i++) {
        if (model_find(parse->words[i]))
            return model_find(parse->words[i]);
    }
    return model_find(parse->settings->model);
}

/* Does the command take the flag that an advice begins with? */
static bool takes(const struct parse *parse, const char *advice)
{
    char name[64];
    const size_t dashes = strspn(advice, "-"), length = strcspn(advice + dashes, " ,;=");

    snprintf(name, sizeof name, "%.*s", (int)length, advice + dashes);
    for (const struct flag *f = parse->flags; f && f->name; f++) {
        if (strcmp(f->name, name) == 0)
            return true;
    }
    const struct setting *setting = settings_find(name);
    return setting && is_allowed(parse, setting);
}

static enum status unknown_flag(const struct parse *parse, const char *name)
{
    const char *names[128] = { NULL };
    const char *here = words_here(WORDS_FLAG, name);
    int n = 0;

    if (strcmp(name, "model") == 0 && parse->max_words > 0)
        return FAIL(
            STATUS_USAGE,
            "unknown flag --model: the model is a word of its own, as in tutti train mlp");
    if (here && takes(parse, here))
        return FAIL(STATUS_USAGE, "unknown flag --%s: here it is %s", name, here);

    for (const struct flag *f = parse->flags; f && f->name && n < 60; f++)
        names[n++] = f->name;
    for (const struct setting *s = settings_table; s->name && n < 126 - MODEL_OPTIONS; s++) {
        if (is_allowed(parse, s))
            names[n++] = s->name;
    }
    const struct model *model = parse->settings ? named_model(parse) : NULL;
    for (int i = 0; model && i < MODEL_OPTIONS && model->options[i].name && n < 126; i++)
        names[n++] = model->options[i].name;
    const char *near = suggest_nearest(name, names);
    if (near)
        return FAIL(STATUS_USAGE, "unknown flag --%s: did you mean --%s?", name, near);
    if (model && model->options[0].name)
        return FAIL(STATUS_USAGE,
                    "unknown flag --%s: see --help, and tutti models %s for its own options",
                    name, model->name);
    return FAIL(STATUS_USAGE, "unknown flag --%s: see --help", name);
}

/* Does any model have an option of this name? */
static bool is_model_option(const char *name)
{
    for (int m = 0; model_table[m]; m++) {
        for (int i = 0; i < MODEL_OPTIONS && model_table[m]->options[i].name; i++) {
            if (strcmp(model_table[m]->options[i].name, name) == 0)
                return true;
        }
    }
    return false;
}

/* Sets an option of the model; refuses one that it does not have. */
static enum status model_option(const struct parse *parse, const char *name, const char *text)
{
    const struct model *model = named_model(parse);

    for (int i = 0; model && i < MODEL_OPTIONS && model->options[i].name; i++) {
        const struct model_option *option = &model->options[i];
        if (strcmp(option->name, name) != 0)
            continue;
        return model_option_parse(option, text, &parse->settings->options[i]);
    }
    return unknown_flag(parse, name);
}

/* One flag; `value` is what followed '=' or NULL, `next` the next word or NULL. *used says whether
 * that was taken. */
static enum status take_flag(struct parse *parse, const char *name, const char *value,
                             const char *next, bool *used)
{
    const char *text = value ? value : next;

    *used = false;
    for (const struct flag *f = parse->flags; f && f->name; f++) {
        if (strcmp(f->name, name) != 0)
            continue;
        if (f->is_set && f->text) { /* the next word is its argument unless it is a flag */
            *f->is_set = true;
            if (value || (next && next[0] != '-')) {
                *f->text = text;
                *used = !value;
            }
            return STATUS_OK;
        }
        if (f->is_set) {
            if (value)
                return FAIL(STATUS_USAGE, "--%s takes no value", name);
            *f->is_set = true;
            return STATUS_OK;
        }
        if (!text)
            return FAIL(STATUS_USAGE, "--%s needs a value", name);
        *f->text = text;
        *used = !value;
        return STATUS_OK;
    }
    const bool negated = strncmp(name, "no-", 3) == 0;
    const struct setting *setting = settings_find(negated ? name + 3 : name);
    if (setting && is_allowed(parse, setting) &&
        (!negated || setting->kind == SETTING_SWITCH)) {
        if (setting->kind == SETTING_SWITCH) {
            if (value)
                return FAIL(STATUS_USAGE, "--%s takes no value", name);
            return settings_set(parse->settings, setting, negated ? "false" : "true");
        }
        if (!text)
            return FAIL(STATUS_USAGE, "--%s needs a value (%s)", name, setting->argument);
        *used = !value;
        return settings_set(parse->settings, setting, text);
    }
    if (!parse->settings || !is_model_option(name))
        return unknown_flag(parse, name);
    if (!text)
        return FAIL(STATUS_USAGE, "--%s needs a value", name);
    if (parse->n_later == MODEL_OPTIONS)
        return FAIL(STATUS_USAGE, "--%s: too many options of a model", name);
    snprintf(parse->later[parse->n_later].name, sizeof parse->later[0].name, "%s", name);
    parse->later[parse->n_later++].text = text;
    *used = !value;
    return STATUS_OK;
}

/* Is it "data=mnist"? */
static bool is_assignment(const struct parse *parse, const char *word)
{
    return strchr(word, '=') && takes(parse, word);
}

/* A flag of one dash; it may be a word with too few. */
static enum status unknown_letter(const struct parse *parse, const char *word)
{
    const char *here = words_here(WORDS_FLAG, word + 1);

    if (here && takes(parse, here))
        return FAIL(STATUS_USAGE, "unknown flag %s: here it is %s", word, here);
    return FAIL(STATUS_USAGE, "unknown flag %s: see --help", word);
}

enum status cli_parse(struct parse *parse)
{
    bool flags_end = false;

    for (int i = 0; i < parse->args->count; i++) {
        char *word = parse->args->word[i];
        const char *next = i + 1 < parse->args->count ? parse->args->word[i + 1] : NULL;
        bool used = false;

        if (flags_end || word[0] != '-' || word[1] == '\0') {
            if (parse->n_words == parse->max_words && is_assignment(parse, word))
                return FAIL(STATUS_USAGE, "%s is one word too many: write --%s", word, word);
            if (parse->n_words == parse->max_words)
                return FAIL(STATUS_USAGE, "%s is one word too many: see --help", word);
            parse->words[parse->n_words++] = word;
        } else if (strcmp(word, "--") == 0) {
            flags_end = true;
        } else if (word[1] == '-') {
            char name[64];
            const char *equals = strchr(word, '=');
            const size_t length = equals ? (size_t)(equals - word - 2) : strlen(word + 2);
            if (length >= sizeof name)
                return FAIL(STATUS_USAGE, "unknown flag %.60s...: see --help", word);
            memcpy(name, word + 2, length);
            name[length] = '\0';
            TRY(take_flag(parse, name, equals ? equals + 1 : NULL, next, &used));
        } else {
            const struct setting *setting = setting_of_letter(word[1]);
            if (word[2] && (!setting || !is_allowed(parse, setting)) &&
                settings_find(word + 1)) /* -lr 0.1 */
                return FAIL(STATUS_USAGE, "unknown flag %s: did you mean -%s?", word, word);
            if (!setting || !is_allowed(parse, setting))
                return unknown_letter(parse, word);
            const char *text = word[2] ? word + 2 : next; /* -n4 and -n 4 */
            if (!text)
                return FAIL(STATUS_USAGE, "-%c needs a value (%s)", word[1], setting->argument);
            used = !word[2];
            TRY(settings_set(parse->settings, setting, text));
        }
        i += used;
    }
    for (int i = 0; i < parse->n_later; i++)
        TRY(model_option(parse, parse->later[i].name, parse->later[i].text));
    return STATUS_OK;
}

enum status cli_whole_number(const char *flag, const char *text, long long most, long long *out)
{
    char *end;

    errno = 0;
    const long long number = strtoll(text, &end, 10);
    if (end == text || *end || errno || number < 0 || number > most)
        return FAIL(STATUS_USAGE, "--%s %s: a whole number up to %lld", flag, text, most);
    *out = number;
    return STATUS_OK;
}

/* Help ---------------------------------------------------------------------------------- */

/* A flag too long for its column has a line of its own. */
static void print_left(const char *left)
{
    enum { WIDTH = 26 };

    if (strlen(left) > WIDTH)
        printf("  %s\n%*s", left, WIDTH + 3, "");
    else
        printf("  %-*s ", WIDTH, left);
}

void cli_print_flags(const char *heading, const struct flag *flags)
{
    printf("\n%s\n", heading);
    for (const struct flag *f = flags; f->name; f++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", f->name, f->argument ? " " : "",
                 f->argument ? f->argument : "");
        print_left(left);
        printf("%s\n", f->help);
    }
}

static void print_default(const struct setting *s, const struct settings *defaults)
{
    int64_t whole;
    double number;

    const char *field = (const char *)defaults + s->offset;
    switch (s->kind) {
    case SETTING_TEXT:
        if (*field)
            printf(" (%s)", field);
        break;
    case SETTING_INTEGER:
    case SETTING_UNSIGNED:
        memcpy(&whole, field, sizeof whole);
        if (whole)
            printf(" (%lld)", (long long)whole);
        break;
    case SETTING_NUMBER:
        memcpy(&number, field, sizeof number);
        if (!isnan(number) && number != 0)
            printf(" (%g)", number);
        break;
    case SETTING_SWITCH:
    default:
        if (*(const bool *)field)
            printf(" (on; --no-%s)", s->name);
    }
}

void cli_print_settings(const char *const *allowed, const struct settings *defaults)
{
    struct settings usual;
    const struct parse parse = { .settings = &usual, .allowed = allowed };
    const char *group = "";

    settings_init(&usual);
    defaults = defaults ? defaults : &usual;

    for (const struct setting *s = settings_table; s->name; s++) {
        char left[64];
        if (!is_allowed(&parse, s))
            continue;
        if (strcmp(group, s->group) != 0)
            printf("\n%s\n", s->group);
        group = s->group;
        if (s->letter)
            snprintf(left, sizeof left, "-%c, --%s %s", s->letter, s->name, s->argument);
        else
            snprintf(left, sizeof left, "--%s%s%s", s->name, s->argument ? " " : "",
                     s->argument ? s->argument : "");
        print_left(left);
        printf("%s", s->help);
        print_default(s, defaults);
        printf("\n");
    }
}

const char *cli_human(double number, char text[32])
{
    static const char *const units[] = { "", "k", "M", "G", "T" };
    int unit = 0;

    while (fabs(number) >= 1000 && unit < 4) {
        number /= 1000;
        unit++;
    }
    snprintf(text, 32, unit && number < 100 ? "%.1f%s" : "%.0f%s", number, units[unit]);
    return text;
}

void cli_print_lines(FILE *file, const char *text)
{
    enum { MOST = 4096 };
    char line[MOST];

    while (*text) {
        const size_t length = strcspn(text, "\n");
        const size_t kept = length < MOST ? length : MOST;
        memcpy(line, text, kept);
        utf8_blank_controls(line, kept);
        fprintf(file, "%.*s\n", (int)kept, line);
        text += length + (text[length] == '\n');
    }
}
