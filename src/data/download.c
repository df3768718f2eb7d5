/* SPDX-License-Identifier: MIT */
/* download.c - HTTP and HTTPS by libcurl; bytes are hashed as they arrive. */
#include "data/download.h"

#ifdef HAVE_CURL

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/sha256.h"

#include <curl/curl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    CONNECT_SECONDS = 20,
    SILENT_SECONDS = 60, /* a server that sends nothing for so long is given up */
    REDIRECTS = 5,
    PROGRESS_MS = 100,
};

struct download {
    const struct dataset_file *file;
    const char *url;
    fetch_progress *progress;
    void *arg;
    struct file_writer writer;
    struct sha256 hash;
    int64_t done;
    int64_t told_ns;    /* when progress was last told */
    enum status status; /* why `receive` refused */
};

static enum status tell_progress(struct download *download)
{
    if (download->progress && !download->progress(download->arg, download->file->name,
                                                  download->done, download->file->bytes))
        return FAIL(STATUS_STOPPED, "%s: stopped", download->url);
    download->told_ns = clock_ns();
    return STATUS_OK;
}

static enum status take(struct download *download, const char *data, size_t length)
{
    if ((int64_t)length > download->file->bytes - download->done)
        return FAIL(STATUS_CORRUPT, "%s: is longer than the %" PRId64 " bytes it should have",
                    download->url, download->file->bytes);
    TRY(file_writer_add(&download->writer, data, length));
    sha256_add(&download->hash, data, length);
    download->done += (int64_t)length;
    if (clock_ns() - download->told_ns < PROGRESS_MS * INT64_C(1000000))
        return STATUS_OK;
    return tell_progress(download);
}

/* libcurl's write callback: anything but `count` ends the transfer. */
static size_t receive(char *data, size_t size, size_t count, void *arg)
{
    struct download *download = arg;

    download->status = take(download, data, size * count);
    return download->status == STATUS_OK ? count : 0;
}

/* libcurl's progress callback; it also comes while nothing arrives. Not 0 ends the transfer. */
static int look(void *arg, curl_off_t total, curl_off_t now, curl_off_t up_total,
                curl_off_t up_now)
{
    struct download *download = arg;

    (void)total, (void)now, (void)up_total, (void)up_now;
    if (clock_ns() - download->told_ns < PROGRESS_MS * INT64_C(1000000))
        return 0;
    download->status = tell_progress(download);
    return download->status != STATUS_OK;
}

static void set_options(CURL *curl, struct download *download, char *error)
{
    curl_easy_setopt(curl, CURLOPT_URL, download->url);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, receive);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, download);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, look);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, download);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, (long)REDIRECTS);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, (long)SILENT_SECONDS);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "tutti");
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
}

static enum status transfer(struct download *download)
{
    char error[CURL_ERROR_SIZE] = "";
    CURL *curl = curl_easy_init();

    if (!curl)
        return FAIL(STATUS_NO_MEMORY, "libcurl does not start");
    set_options(curl, download, error);
    const CURLcode code = curl_easy_perform(curl);
    curl_easy_cleanup(curl);

    if (download->status != STATUS_OK)
        return download->status;
    if (code != CURLE_OK)
        return FAIL(STATUS_IO, "%s: %s", download->url,
                    error[0] ? error : curl_easy_strerror(code));
    return STATUS_OK;
}

static enum status check(struct download *download)
{
    const struct dataset_file *file = download->file;
    char digits[SHA256_HEX];

    sha256_end_hex(&download->hash, digits);
    if (download->done != file->bytes)
        return FAIL(STATUS_CORRUPT, "%s: has %" PRId64 " bytes instead of %" PRId64,
                    download->url, download->done, file->bytes);
    if (strcmp(digits, file->sha256) != 0)
        return FAIL(STATUS_CORRUPT, "%s: has SHA-256 %s instead of %s", download->url, digits,
                    file->sha256);
    return tell_progress(download);
}

enum status download_file(const char *address, const struct dataset_file *file,
                          const char *path, fetch_progress *progress, void *arg)
{
    struct download download = { .file = file, .progress = progress, .arg = arg };
    char *url;

    TRY(file_join(address, file->name, &url));
    download.url = url;
    sha256_init(&download.hash);
    enum status status = file_writer_begin(&download.writer, path);
    if (status != STATUS_OK)
        goto free_url;

    status = transfer(&download);
    if (status == STATUS_OK)
        status = check(&download);
    if (status == STATUS_OK)
        status = file_writer_commit(&download.writer);
    else
        file_writer_cancel(&download.writer);

free_url:
    mem_free(url);
    return status;
}

#else /* no libcurl */

enum status download_file(const char *address, const struct dataset_file *file,
                          const char *path, fetch_progress *progress, void *arg)
{
    (void)file, (void)path, (void)progress, (void)arg;
    return FAIL(
        STATUS_UNSUPPORTED,
        "this program was built without libcurl and cannot download; install "
        "libcurl4-gnutls-dev and build again, or get the files from %s yourself and run: "
        "tutti data import FOLDER NAME",
        address);
}

#endif
