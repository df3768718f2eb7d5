/* SPDX-License-Identifier: MIT */
/* trust.h - who somebody is, by a certificate of the federation's authority.
 *
 * A certificate of the authority says a name, a role, and (of participants) the public half of
 * the Ed25519 key that signs in secure aggregation, in a subject alternative name
 * `urn:tutti:ed25519:HEX`. Signature, dates, role and the list of revoked certificates are checked
 * here; TLS shows only that the peer has the certificate's key.
 *
 * Threads: any; guarded by a lock inside.
 */
#ifndef FED_TRUST_H
#define FED_TRUST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/status.h"
#include "fed/message.h"

enum {
    FED_SERIAL_TEXT = 48, /* hexadecimal, with NUL */
    FED_SIGN_PUBLIC = 32, /* Ed25519 */
    FED_SIGN_SEED = 32,
    FED_CERTIFICATE_MOST = 1 << 16, /* bytes of one that is accepted */
};

enum fed_role { FED_ROLE_COORDINATOR, FED_ROLE_PARTICIPANT, FED_ROLE_VIEWER, FED_ROLES };

struct fed_identity {
    char name[FED_NAME];
    enum fed_role role;
    char serial[FED_SERIAL_TEXT];
    time_t from, until;
    bool is_revoked;
    bool has_sign; /* participants */
    uint8_t sign[FED_SIGN_PUBLIC];
};

const char *fed_role_name(enum fed_role role);

struct fed_trust;

/* The authority's certificate, and its list of revoked ones (NULL: none). The list is read again whenever its
 * file changes; one that is not signed by the authority is refused, and so is everybody until it is. */
MUST_CHECK enum status fed_trust_create(const char *authority_path, const char *revoked_path,
                                        struct fed_trust **out);
void fed_trust_destroy(struct fed_trust *trust);

/* *out is another number than before if the list of revoked certificates is another one. Fails if the list cannot be
 * read: then everybody is refused until it can. */
MUST_CHECK enum status fed_trust_changes(struct fed_trust *trust, int *out);

#define FED_ANY_TIME ((time_t)-1)

/* Is this certificate (DER) the authority's, in date at `now` (FED_ANY_TIME: whenever), not revoked? Then who it names. Refusals are
 * STATUS_MISMATCH with the reason; what is no certificate is STATUS_CORRUPT. Then *out has what was learnt before, for the
 * log: name "" and role FED_ROLES where the authority did not sign them. */
MUST_CHECK enum status fed_trust_check(struct fed_trust *trust, const void *der, size_t length,
                                       time_t now, struct fed_identity *out);

/* The first certificate of a PEM file as DER (mem_free), to be given to others. */
MUST_CHECK enum status fed_certificate_read(const char *path, uint8_t **out,
                                            size_t *out_length);
/* Is it the private key of the first certificate in a file? STATUS_USAGE names both files. */
MUST_CHECK enum status fed_pair_check(const char *cert_path, const char *key_path);
/* The seed of an Ed25519 key in a PEM file. */
MUST_CHECK enum status fed_sign_key_read(const char *path, uint8_t seed[FED_SIGN_SEED]);

/* A file beside another: "a/b/cert.pem", "key.pem" gives "a/b/key.pem" (mem_free). */
MUST_CHECK enum status fed_beside(const char *path, const char *name, char **out);

#endif /* FED_TRUST_H */
