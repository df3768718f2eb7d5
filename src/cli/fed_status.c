/* SPDX-License-Identifier: MIT */
/* fed_status.c - tutti fed status */
#include <stdio.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "fed/https_client.h"
#include "fed/status_page.h"
#include "fed/trust.h"

enum { SILENT_SECONDS = 30, STATUS_BYTES = 1 << 24 };

static const char *cert, *key, *authority;
static bool json;

static const struct flag flags[] = {
    { "cert", "FILE", "a certificate of the federation: of a participant or a viewer", NULL,
      &cert },
    { "key", "FILE", "its key (key.pem beside the certificate)", NULL, &key },
    { "authority", "FILE", "the federation's authority (authority.pem beside it)", NULL,
      &authority },
    { "json", NULL, "as a JSON object: with all rounds and the audit's last lines", &json,
      NULL },
    { 0 },
};

static void help(void)
{
    puts("\nThe same address shows a page in a browser that has the certificate.");
    cli_print_flags("Flags", flags);
}

static enum status show(const struct fed_buffer *reply)
{
    struct json *parsed;
    struct strbuf text;

    TRY(json_parse((const char *)reply->data, reply->length, &parsed));
    if (json) { /* which has no control characters, as it could be parsed */
        printf("%.*s\n", (int)reply->length, (const char *)reply->data);
        json_destroy(parsed);
        return STATUS_OK;
    }
    strbuf_init(&text, STATUS_BYTES);
    status_text_print(json_root(parsed), &text);
    const enum status status = strbuf_status(&text);
    if (status == STATUS_OK)
        cli_print_lines(stdout, text.text);
    strbuf_release(&text);
    json_destroy(parsed);
    return status;
}

static enum status ask(const char *url, const char *key_path, const char *authority_path)
{
    const struct https_client_config config = { .url = url,
                                                .cert = cert,
                                                .key = key_path,
                                                .authority = authority_path,
                                                .silent_s = SILENT_SECONDS,
                                                .reply_most = STATUS_BYTES };
    struct https_client *client;
    struct fed_buffer reply;

    TRY(https_client_create(&config, &client));
    fed_buffer_init(&reply, STATUS_BYTES);
    enum status status = https_client_ask(client, "/status.json", NULL, 0, &reply);
    if (status == STATUS_OK)
        status = show(&reply);
    fed_buffer_release(&reply);
    https_client_destroy(client);
    return status;
}

static enum status run(const struct args *args)
{
    const char *words[1];
    struct parse parse = { .args = args, .flags = flags, .words = words, .max_words = 1 };
    char *beside_key = NULL, *beside_authority = NULL;

    TRY(cli_parse(&parse));
    if (parse.n_words == 0 || !cert)
        return FAIL(STATUS_USAGE, "tutti fed status URL --cert FILE");
    enum status status = fed_beside(cert, "key.pem", &beside_key);
    if (status == STATUS_OK)
        status = fed_beside(cert, "authority.pem", &beside_authority);
    if (status == STATUS_OK)
        status =
            ask(words[0], key ? key : beside_key, authority ? authority : beside_authority);
    mem_free(beside_key);
    mem_free(beside_authority);
    return status;
}

const struct command command_fed_status = {
    .name = "status",
    .usage = "fed status URL --cert FILE [FLAGS]",
    .summary = "show where a federation stands",
    .run = run,
    .help = help,
};
