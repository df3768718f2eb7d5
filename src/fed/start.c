/* SPDX-License-Identifier: MIT */
/* start.c - libsodium, GnuTLS and libcurl want to be started before threads use them. */
#include "fed/start.h"

#include <curl/curl.h>
#include <gnutls/gnutls.h>
#include <pthread.h>
#include <sodium.h>
#include <sqlite3.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *failed; /* the library that did not start; written once */

static void start_libraries(void)
{
    if (sodium_init() < 0)
        failed = "libsodium";
    else if (gnutls_global_init() != GNUTLS_E_SUCCESS)
        failed = "GnuTLS";
    else if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        failed = "libcurl";
    else if (sqlite3_initialize() != SQLITE_OK)
        failed = "SQLite";
}

enum status fed_start(void)
{
    pthread_once(&once, start_libraries);
    if (failed)
        return FAIL(STATUS_UNSUPPORTED, "%s cannot be started on this machine", failed);
    return STATUS_OK;
}
