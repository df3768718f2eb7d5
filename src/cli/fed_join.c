/* SPDX-License-Identifier: MIT */
/* fed_join.c - tutti fed join */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "fed/about.h"
#include "fed/join.h"
#include "fed/local.h"
#include "fed/stop.h"
#include "fed/trust.h"

static const char *cert, *key, *identity, *authority, *policy_path, *state, *ledger, *part,
    *give_up, *out_path;
static bool quiet, tell_labels;

static const struct flag flags[] = {
    { "cert", "FILE", "this participant's certificate", NULL, &cert },
    { "key", "FILE", "its key (key.pem beside the certificate)", NULL, &key },
    { "identity", "FILE", "the key it signs with (identity.pem beside it)", NULL, &identity },
    { "authority", "FILE", "the federation's authority (authority.pem beside it)", NULL,
      &authority },
    { "policy", "FILE", "what may be asked of this participant, JSON; without: anything", NULL,
      &policy_path },
    { "state", "FILE", "what must survive a restart (state beside the certificate)", NULL,
      &state },
    { "ledger", "FILE",
      "the privacy spent in all federations on these data (ledger beside the certificate)",
      NULL, &ledger },
    { "part", "K/N", "train on the Kth of N parts of the data alone", NULL, &part },
    { "tell-labels", NULL, "tell the coordinator how often each label occurs here",
      &tell_labels, NULL },
    { "out", "FILE", "where the last model goes (safetensors); without: nowhere", NULL,
      &out_path },
    { "give-up", "S", "seconds without a word of the coordinator; 0: never (0)", NULL,
      &give_up },
    { "quiet", NULL, "no lines about what happens", &quiet, NULL },
    { 0 },
};

static const char *const allowed[] = { "data", "limit", "fold", "layout", "threads", NULL };

static void help(void)
{
    puts("\nTrains on data that stay here, in every round that the coordinator at URL asks "
         "for, and\n"
         "sends updates alone.\n\n"
         "Members of a policy");
    for (const struct fed_rule *rule = fed_policy_rules; rule->name; rule++)
        printf("  %-26s %s\n", rule->name, rule->help);
    cli_print_flags("Participant", flags);
    cli_print_settings(allowed, NULL);
}

/* Everything of a run of the command. */
struct session {
    struct settings settings;
    char *files[6]; /* paths that were left out */
    int n_files;
    struct fed_policy *policy;
    struct fed_job *job;
    struct fed_local *local;
    struct fed_alone *alone;
    struct strbuf about;
};

static void release(struct session *s)
{
    fed_alone_destroy(s->alone);
    fed_local_destroy(s->local);
    fed_job_destroy(s->job);
    fed_policy_destroy(s->policy);
    strbuf_release(&s->about);
    for (int i = 0; i < s->n_files; i++)
        mem_free(s->files[i]);
}

static void tell(void *arg, const char *line)
{
    (void)arg;
    if (!quiet)
        cli_print_lines(stderr, line);
}

/* Every Nth sample, from the Kth on. */
static enum status take_part_of_data(struct session *s)
{
    const struct source *train = fed_job_train(s->job);
    int64_t count = 0;
    int k, n, used = 0;

    if (!part)
        return STATUS_OK;
    if (sscanf(part, "%d/%d%n", &k, &n, &used) != 2 || part[used] || k < 1 || n < k)
        return FAIL(STATUS_USAGE, "--part %s: K/N, with K from 1 to N", part);
    for (int64_t i = k - 1; i < source_count(train); i += n)
        s->alone->index[count++] = i;
    if (count == 0)
        return FAIL(STATUS_USAGE, "--part %s: no sample is left", part);
    fed_part_init(&s->alone->part, train, s->alone->index, count);
    return STATUS_OK;
}

/* How often each label occurs: {"labels": [12, 0, 7]}. */
static enum status print_labels(struct session *s)
{
    const struct source *train = fed_job_train(s->job);
    int64_t counts[FED_LABELS] = { 0 };
    int classes = 0;

    for (int64_t i = 0; i < source_count(&s->alone->part.source); i++) {
        const int32_t label = train->kind->label(train, s->alone->index[i]);
        if (label < 0 || label >= FED_LABELS)
            return FAIL(STATUS_USAGE, "--tell-labels: these data have no labels to count");
        counts[label]++;
        classes = label >= classes ? label + 1 : classes;
    }
    strbuf_add(&s->about, "\"labels\": [");
    for (int i = 0; i < classes; i++)
        strbuf_printf(&s->about, "%s%lld", i ? ", " : "", (long long)counts[i]);
    strbuf_add(&s->about, "]");
    return STATUS_OK;
}

static enum status print_about(struct session *s)
{
    strbuf_add(&s->about, "{");
    if (tell_labels)
        TRY(print_labels(s));
    strbuf_add(&s->about, "}");
    return strbuf_status(&s->about);
}

/* Random numbers of participants differ by their names. */
static uint64_t number_of(const char *name)
{
    struct sha256 hash;
    uint8_t bytes[SHA256_BYTES];
    uint64_t number = 0;

    sha256_init(&hash);
    sha256_add(&hash, name, strlen(name));
    sha256_end(&hash, bytes);
    for (int i = 0; i < 8; i++)
        number = number << 8 | bytes[i];
    return number;
}

static enum status open_data(void *arg, const char *name, const struct fed_terms *terms,
                             struct fed_trainer *trainer, uint64_t *samples, const char **about)
{
    struct session *s = arg;
    const struct fed_job_config config = { .terms = terms,
                                           .data = s->settings.data,
                                           .table = &s->settings,
                                           .limit = s->settings.limit };
    const int threads = s->settings.threads > 0 ? (int)s->settings.threads : 1;

    TRY(fed_job_create(&config, &s->job));
    TRY(fed_local_create(s->job, threads, &s->local));
    TRY(fed_alone_create(s->job, s->local, number_of(name), &s->alone, trainer));
    TRY(take_part_of_data(s));
    TRY(print_about(s));
    *samples = (uint64_t)source_count(&s->alone->part.source);
    *about = s->about.text;
    return STATUS_OK;
}

static enum status keep_model(void *arg, const float *parameters)
{
    struct session *s = arg;

    if (out_path)
        TRY(fed_local_save(s->local, parameters, out_path));
    return STATUS_OK;
}

/* A file beside the certificate, unless one was named. */
static enum status beside(struct session *s, const char *given, const char *name,
                          const char **out)
{
    if (given) {
        *out = given;
        return STATUS_OK;
    }
    TRY(fed_beside(cert, name, &s->files[s->n_files]));
    *out = s->files[s->n_files++];
    return STATUS_OK;
}

/* A file that cannot be written is better known before the first round than after the last. */
static enum status check_out(void)
{
    struct file_writer writer;

    if (!out_path)
        return STATUS_OK;
    if (file_writer_begin(&writer, out_path) != STATUS_OK)
        return FAIL(STATUS_USAGE, "--out %s: %s", out_path, status_message());
    file_writer_cancel(&writer);
    return STATUS_OK;
}

static enum status join(struct session *s, const char *url)
{
    struct fed_join_config config = { .url = url,
                                      .cert = cert,
                                      .arg = s,
                                      .open = open_data,
                                      .tell = tell,
                                      .on_end = keep_model };
    long long seconds = 0;

    TRY(beside(s, key, "key.pem", &config.key));
    TRY(beside(s, identity, "identity.pem", &config.identity));
    TRY(beside(s, authority, "authority.pem", &config.authority));
    TRY(beside(s, state, "state", &config.state));
    TRY(beside(s, ledger, "ledger", &config.ledger));
    if (give_up)
        TRY(cli_whole_number("give-up", give_up, 1 << 30, &seconds));
    config.give_up_s = (double)seconds;
    if (policy_path)
        TRY(fed_policy_read(policy_path, &s->policy));
    config.policy = s->policy;
    TRY(check_out());
    fed_stop_begin();
    const enum status status = fed_join_run(&config);
    fed_stop_end();
    return status;
}

static enum status run(const struct args *args)
{
    struct session s = { .n_files = 0 };
    const char *words[1];
    struct parse parse = { .args = args,
                           .flags = flags,
                           .settings = &s.settings,
                           .allowed = allowed,
                           .words = words,
                           .max_words = 1 };

    settings_init(&s.settings);
    strbuf_init(&s.about, FED_ABOUT);
    TRY(cli_parse(&parse));
    if (parse.n_words == 0 || !cert)
        return FAIL(STATUS_USAGE, "tutti fed join URL --cert FILE --data NAME");
    const enum status status = join(&s, words[0]);
    release(&s);
    return status;
}

const struct command command_fed_join = {
    .name = "join",
    .usage = "fed join URL --data NAME|PATH --cert FILE [FLAGS]",
    .summary = "take part in a federation with data that stay here",
    .run = run,
    .help = help,
};
