/* SPDX-License-Identifier: MIT */
/* gnutls.h - GnuTLS at the border of this folder: its codes become ours. Private. */
#ifndef FED_GNUTLS_H
#define FED_GNUTLS_H

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "base/status.h"

/* For calls that fail only for want of memory, entropy, or by a fault of ours. */
#define TRY_GNUTLS(call)                                                                       \
    do {                                                                                       \
        const int code_ = (call);                                                              \
        if (code_ < 0)                                                                         \
            return FAIL(STATUS_IO, "certificates: %s", gnutls_strerror(code_));                \
    } while (0)

/* Where a URI holds the public half of an Ed25519 key. */
#define FED_SIGN_URI "urn:tutti:ed25519:"

/* Reads a PEM file with certificates (the first), a private key, or a list of revoked certificates. */
MUST_CHECK enum status fed_crt_read(const char *path, gnutls_x509_crt_t *out);
MUST_CHECK enum status fed_key_read(const char *path, gnutls_x509_privkey_t *out);
MUST_CHECK enum status fed_crl_read(const char *path, gnutls_x509_crl_t *out);

#endif /* FED_GNUTLS_H */
