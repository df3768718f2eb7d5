/* SPDX-License-Identifier: MIT */
/* fed_keys.c - tutti fed keys init|enrol|request|revoke|list */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "cli/cli.h"
#include "fed/authority.h"

enum { HOSTS_MOST = 32, DAYS = 730, DAYS_MOST = 36500 };

static const char *folder, *hosts, *days_text, *request;
static bool viewer, json;

static const struct flag flags[] = {
    { "folder", "DIR", "the authority's (federation); of request: where keys go (NAME)", NULL,
      &folder },
    { "host", "NAMES", "init: names and addresses of the coordinator (localhost,127.0.0.1)",
      NULL, &hosts },
    { "days", "N", "init, enrol: how long the certificate is valid (730)", NULL, &days_text },
    { "viewer", NULL, "enrol, request: of somebody who sees the status page alone", &viewer,
      NULL },
    { "request", "FILE", "enrol: for keys that the participant made itself", NULL, &request },
    { "json", NULL, "list: one JSON object a line", &json, NULL },
    { 0 },
};

static void help(void)
{
    puts("\n  keys init            make an authority, and the coordinator's certificate\n"
         "  keys enrol NAME      make keys and a certificate for a participant\n"
         "  keys request NAME    at the participant: make keys, and a request to be enrolled\n"
         "  keys revoke NAME     its certificate is refused from now on\n"
         "  keys list            who is enrolled\n\n"
         "What a member needs lies in its folder then: federation/NAME, and\n"
         "federation/coordinator. Keys that were made there are for its eyes alone.");
    cli_print_flags("Flags", flags);
}

static const char *authority(void)
{
    return folder ? folder : "federation";
}

static enum fed_role role(void)
{
    return viewer ? FED_ROLE_VIEWER : FED_ROLE_PARTICIPANT;
}

static enum status init(int days)
{
    const char *names[HOSTS_MOST + 1] = { NULL };
    char *text, *rest, *name;
    int n = 0;

    TRY(mem_strdup(hosts ? hosts : "localhost,127.0.0.1", &text));
    rest = text;
    while ((name = strsep(&rest, ",")) && n < HOSTS_MOST) {
        if (*name)
            names[n++] = name;
    }
    enum status status = STATUS_OK;
    if (n == 0 || name)
        status = FAIL(STATUS_USAGE, "--host %s: 1 to %d names, separated by commas",
                      hosts ? hosts : "", HOSTS_MOST);
    if (status == STATUS_OK)
        status = fed_authority_create(authority(), names, days);
    mem_free(text);
    TRY(status);
    printf("%s/coordinator is the coordinator's, %s/authority-key.pem nobody's but yours\n",
           authority(), authority());
    return STATUS_OK;
}

static enum status enrol(const char *name, int days)
{
    const struct fed_enrolment enrolment = {
        .name = name, .role = role(), .days = days, .request = request
    };

    TRY(fed_enrol(authority(), &enrolment));
    printf("%s/%s is for %s\n", authority(), name, name);
    return STATUS_OK;
}

static enum status ask(const char *name)
{
    const char *where = folder ? folder : name;

    TRY(fed_request(where, name, role()));
    printf("%s/request.pem is for the authority; cert.pem and authority.pem it gives back "
           "belong beside it\n",
           where);
    return STATUS_OK;
}

static enum status revoke(const char *name)
{
    TRY(fed_revoke(authority(), name));
    printf("%s is revoked; %s/revoked.pem belongs into the coordinator's folder\n", name,
           authority());
    return STATUS_OK;
}

static void print_date(time_t when, char out[16])
{
    struct tm tm;

    if (!when || !gmtime_r(&when, &tm) || !strftime(out, 16, "%Y-%m-%d", &tm))
        snprintf(out, 16, "-");
}

static void show(void *arg, const struct fed_identity *who, const char *why)
{
    char until[16];

    (void)arg;
    print_date(who->until, until);
    if (json) {
        struct strbuf line;
        strbuf_init(&line, 4096);
        strbuf_add(&line, "{\"name\": ");
        strbuf_add_json(&line, who->name);
        strbuf_printf(&line,
                      ", \"role\": \"%s\", \"serial\": \"%s\", \"until\": \"%s\", \"valid\": "
                      "%s, \"why\": ",
                      fed_role_name(who->role), who->serial, until, *why ? "false" : "true");
        strbuf_add_json(&line, why);
        if (strbuf_status(&line) == STATUS_OK)
            printf("%s}\n", line.text);
        strbuf_release(&line);
        return;
    }
    printf("%-20s %-12s %-11s %s\n", who->name, fed_role_name(who->role), until,
           *why ? why : "valid");
}

static enum status run(const struct args *args)
{
    const char *words[2];
    struct parse parse = { .args = args, .flags = flags, .words = words, .max_words = 2 };
    long long days = DAYS;

    TRY(cli_parse(&parse));
    if (days_text)
        TRY(cli_whole_number("days", days_text, DAYS_MOST, &days));
    if (days < 1)
        return FAIL(STATUS_USAGE, "--days %s: at least 1", days_text);
    const char *what = parse.n_words ? words[0] : "";
    if (strcmp(what, "init") == 0 && parse.n_words == 1)
        return init((int)days);
    if (strcmp(what, "enrol") == 0 && parse.n_words == 2)
        return enrol(words[1], (int)days);
    if (strcmp(what, "request") == 0 && parse.n_words == 2)
        return ask(words[1]);
    if (strcmp(what, "revoke") == 0 && parse.n_words == 2)
        return revoke(words[1]);
    if (strcmp(what, "list") == 0 && parse.n_words == 1)
        return fed_authority_list(authority(), show, NULL);
    return FAIL(STATUS_USAGE,
                "fed keys %s: init, enrol NAME, request NAME, revoke NAME or list", what);
}

const struct command command_fed_keys = {
    .name = "keys",
    .usage = "fed keys init | enrol NAME | request NAME | revoke NAME | list [FLAGS]",
    .summary = "the federation's certificates: make, enrol, revoke",
    .run = run,
    .help = help,
};
