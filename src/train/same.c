/* SPDX-License-Identifier: MIT */
/* same.c - what must be the same on every rank, as texts that are compared (transport/agree.h). */
#include "train/same.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/strbuf.h"
#include "transport/agree.h"

enum { FACTS_MAX = 160 };

/* Machines may have these their own way; what matters of them is compared by contents. */
static const char *const own_way[] = {
    "data",           "init",  "out",          "kernels", "threads",
    "loader-threads", "hosts", "launch-agent", "mpirun",
};

struct facts {
    struct agree_fact fact[FACTS_MAX];
    int count;
};

static char *add(struct facts *facts, const char *name)
{
    BUG_ON(facts->count == FACTS_MAX);
    facts->fact[facts->count].name = name;
    return facts->fact[facts->count++].text;
}

static void hash_text(const char *text, char out[AGREE_TEXT])
{
    struct sha256 hash;

    sha256_init(&hash);
    sha256_add(&hash, text, strlen(text));
    sha256_end_hex(&hash, out);
}

/* Long texts by their hash. */
static void add_text(struct facts *facts, const char *name, const char *text)
{
    char *out = add(facts, name);

    if (strlen(text) < AGREE_TEXT)
        snprintf(out, AGREE_TEXT, "%s", text);
    else
        hash_text(text, out);
}

/* As short as it can be without another number being meant. */
static void print_number(double number, char out[AGREE_TEXT])
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, AGREE_TEXT, "%.*g", digits, number);
        if (strtod(out, NULL) == number)
            return;
    }
}

static bool is_compared(const struct setting *setting)
{
    for (size_t i = 0; i < sizeof own_way / sizeof *own_way; i++) {
        if (strcmp(setting->name, own_way[i]) == 0)
            return false;
    }
    return true;
}

static void add_setting(struct facts *facts, const struct setting *setting,
                        const struct settings *settings)
{
    const char *field = (const char *)settings + setting->offset;

    switch (setting->kind) {
    case SETTING_TEXT:
        add_text(facts, setting->name, field);
        break;
    case SETTING_INTEGER:
    case SETTING_UNSIGNED:
        snprintf(add(facts, setting->name), AGREE_TEXT, "%lld", *(const long long *)field);
        break;
    case SETTING_NUMBER:
        print_number(*(const double *)field, add(facts, setting->name));
        break;
    case SETTING_SWITCH:
        snprintf(add(facts, setting->name), AGREE_TEXT, "%s",
                 *(const bool *)field ? "on" : "off");
        break;
    }
}

static enum status add_model(struct facts *facts, const struct job *job)
{
    struct strbuf text;

    strbuf_init(&text, 64 << 20);
    graph_print_text(job->graph, &text);
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        hash_text(text.text, add(facts, "model"));
    strbuf_release(&text);
    return status;
}

enum status same_check(const struct job *job, uint64_t first_step, struct transport *transport)
{
    struct facts facts = { .count = 0 };

    TRY(agree_program(add(&facts, "program")));
    add_text(&facts, "instruction set", kernel_isa());
    add_text(&facts, "table of kernels", kernel_choices_hash(job->choices));
    for (const struct setting *setting = settings_table; setting->name; setting++) {
        if (is_compared(setting))
            add_setting(&facts, setting, &job->settings);
    }
    TRY(add_model(&facts, job));
    add_text(&facts, "data set", job->train->fingerprint);
    snprintf(add(&facts, "step to begin with"), AGREE_TEXT, "%llu",
             (unsigned long long)first_step);
    return agree(transport, facts.fact, facts.count);
}
