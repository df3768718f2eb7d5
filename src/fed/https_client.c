/* SPDX-License-Identifier: MIT */
/* https_client.c - requests by libcurl. */
#include "fed/https_client.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "fed/start.h"
#include "fed/stop.h"

enum { CONNECT_SECONDS = 10, URL_MOST = 1024 };

struct https_client {
    CURL *curl;
    char url[URL_MOST];
    size_t reply_most;
    struct fed_buffer *reply; /* of the request that runs */
    char error[CURL_ERROR_SIZE];
};

/* libcurl's write callback: anything but `count` ends the transfer. */
static size_t receive(char *data, size_t size, size_t count, void *arg)
{
    struct https_client *client = arg;

    if (size * count > client->reply_most - client->reply->length)
        return 0;
    fed_put(client->reply, data, size * count);
    return fed_buffer_status(client->reply) == STATUS_OK ? count : 0;
}

/* libcurl's progress callback. Not 0 ends the transfer. */
static int look(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total,
                curl_off_t up_now)
{
    (void)arg, (void)total, (void)now, (void)up_total, (void)up_now;
    return fed_stop_asked();
}

static void set_options(struct https_client *client, const struct https_client_config *config)
{
    CURL *curl = client->curl;

    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, client->error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, client);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tutti");
    curl_easy_setopt(curl, CURLOPT_NOPROXY, "*"); /* addresses are meant as they are written */
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)CURLPROTO_HTTPS);
#endif
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)config->silent_s);
    curl_easy_setopt(curl, CURLOPT_SSLCERT, config->cert);
    curl_easy_setopt(curl, CURLOPT_SSLKEY, config->key);
    curl_easy_setopt(curl, CURLOPT_CAINFO, config->authority);
    curl_easy_setopt(curl, CURLOPT_CAPATH, NULL); /* this authority and no other */
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, 2L);
}

static enum status check_config(const struct https_client_config *config)
{
    const char *const files[] = { config->cert, config->key, config->authority };

    if (strncmp(config->url, "https://", 8) != 0)
        return FAIL(STATUS_USAGE, "%s: an address begins with https://", config->url);
    if (strlen(config->url) > URL_MOST / 2)
        return FAIL(STATUS_USAGE, "%.40s...: the address is too long", config->url);
    for (int i = 0; i < 3; i++) {
        if (!file_exists(files[i]))
            return FAIL(STATUS_NOT_FOUND, "%s: no such file", files[i]);
    }
    return STATUS_OK;
}

enum status https_client_create(const struct https_client_config *config,
                                struct https_client **out)
{
    struct https_client *client;

    TRY(fed_start());
    TRY(check_config(config));
    TRY(mem_alloc(1, sizeof *client, &client));
    snprintf(client->url, sizeof client->url, "%s", config->url);
    client->reply_most = config->reply_most;
    client->curl = curl_easy_init();
    if (!client->curl) {
        mem_free(client);
        return FAIL(STATUS_NO_MEMORY, "libcurl does not start");
    }
    set_options(client, config);
    *out = client;
    return STATUS_OK;
}

void https_client_destroy(struct https_client *client)
{
    if (!client)
        return;
    curl_easy_cleanup(client->curl);
    mem_free(client);
}

/* What a transfer that did not come to its end means. */
static enum status transfer_status(const struct https_client *client, CURLcode code)
{
    const char *why = client->error[0] ? client->error : curl_easy_strerror(code);

    switch (code) {
    case CURLE_ABORTED_BY_CALLBACK:
        return FAIL(fed_stop_status(), "%s: stopped", client->url);
    case CURLE_WRITE_ERROR:
        return FAIL(STATUS_MISMATCH, "%s: its reply is larger than any that may come",
                    client->url);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_URL_MALFORMAT:
        return FAIL(STATUS_MISMATCH, "%s: %s", client->url, why);
    default:
        /* TLS 1.3 tells of a refused certificate after the handshake, so by any code. */
        if (strstr(why, "fatal alert"))
            return FAIL(STATUS_MISMATCH,
                        "%s: the coordinator refuses this certificate; is it expired, revoked, "
                        "or of another federation? (%s)",
                        client->url, why);
        return FAIL(STATUS_PEER_LOST, "%s: %s", client->url, why);
    }
}

static enum status http_status(const struct https_client *client, long code,
                               const struct fed_buffer *reply, size_t before)
{
    const size_t length = reply->length - before;
    const char *text = (const char *)reply->data + before;
    const int line = length ? (int)strcspn(text, "\n") : 0;

    if (code == 200)
        return STATUS_OK;
    if (code >= 500)
        return FAIL(STATUS_PEER_LOST, "%s: %.*s (HTTP %ld)", client->url, line, text, code);
    return FAIL(STATUS_MISMATCH, "%s: %.*s (HTTP %ld)", client->url, line, text, code);
}

enum status https_client_ask(struct https_client *client, const char *path, const void *body,
                             size_t length, struct fed_buffer *reply)
{
    const size_t before = reply->length;
    char url[URL_MOST];
    struct curl_slist *headers = NULL;
    long code = 0;

    snprintf(url, sizeof url, "%s%s", client->url, path);
    client->reply = reply;
    client->error[0] = '\0';
    curl_easy_setopt(client->curl, CURLOPT_URL, url);
    if (body) {
        headers = curl_slist_append(NULL, "Content-Type: application/octet-stream");
        headers = curl_slist_append(headers, "Expect:"); /* no wait for permission */
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(client->curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)length);
    } else {
        curl_easy_setopt(client->curl, CURLOPT_HTTPGET, 1L);
    }
    curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
    const CURLcode result = curl_easy_perform(client->curl);
    curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_slist_free_all(headers);

    if (result != CURLE_OK) {
        reply->length = before;
        return transfer_status(client, result);
    }
    TRY(fed_buffer_status(reply));
    /* A NUL behind the text for http_status, and away again. */
    fed_put_u8(reply, 0);
    TRY(fed_buffer_status(reply));
    reply->length--;
    const enum status status = http_status(client, code, reply, before);
    if (status != STATUS_OK)
        reply->length = before;
    return status;
}
