/* SPDX-License-Identifier: MIT */
/* trust.c - certificates, read and judged.
 *
 * The list of revoked certificates is a file that the authority replaces. Its state (time, size, inode) is looked at
 * before every judgement, so that a revocation holds from the next request on, also for those who are connected.
 */
#include "fed/trust.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "fed/gnutls.h"
#include "fed/start.h"

enum { PEM_MOST = 1 << 20, REVOKED_MOST = 1 << 26, URI_MOST = 256, KEY_ID = 32 };

static const char *const role_names[FED_ROLES] = { "coordinator", "participant", "viewer" };

const char *fed_role_name(enum fed_role role)
{
    return role < FED_ROLES ? role_names[role] : "nobody";
}

enum status fed_beside(const char *path, const char *name, char **out)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0, length = strlen(name);
    char *text;

    TRY(mem_alloc(folder + length + 1, 1, &text));
    memcpy(text, path, folder);
    memcpy(text + folder, name, length + 1);
    *out = text;
    return STATUS_OK;
}

/* Files ---------------------------------------------------------------------------------- */

static enum status read_datum(const char *path, size_t most, gnutls_datum_t *out)
{
    char *text;
    size_t length;

    TRY(fed_start());
    TRY(file_read(path, most, &text, &length));
    *out = (gnutls_datum_t){ (unsigned char *)text, (unsigned)length };
    return STATUS_OK;
}

enum status fed_crt_read(const char *path, gnutls_x509_crt_t *out)
{
    gnutls_datum_t pem;
    gnutls_x509_crt_t crt;

    TRY(read_datum(path, PEM_MOST, &pem));
    int code = gnutls_x509_crt_init(&crt);
    if (code >= 0) {
        code = gnutls_x509_crt_import(crt, &pem, GNUTLS_X509_FMT_PEM);
        if (code < 0)
            gnutls_x509_crt_deinit(crt);
    }
    mem_free(pem.data);
    if (code < 0)
        return FAIL(STATUS_CORRUPT, "%s: no certificate in PEM: %s", path,
                    gnutls_strerror(code));
    *out = crt;
    return STATUS_OK;
}

enum status fed_key_read(const char *path, gnutls_x509_privkey_t *out)
{
    gnutls_datum_t pem;
    gnutls_x509_privkey_t key;

    TRY(read_datum(path, PEM_MOST, &pem));
    int code = gnutls_x509_privkey_init(&key);
    if (code >= 0) {
        code = gnutls_x509_privkey_import2(key, &pem, GNUTLS_X509_FMT_PEM, NULL, 0);
        if (code < 0)
            gnutls_x509_privkey_deinit(key);
    }
    sodium_memzero(pem.data, pem.size);
    mem_free(pem.data);
    if (code < 0)
        return FAIL(STATUS_CORRUPT, "%s: no private key in PEM: %s", path,
                    gnutls_strerror(code));
    *out = key;
    return STATUS_OK;
}

enum status fed_crl_read(const char *path, gnutls_x509_crl_t *out)
{
    gnutls_datum_t pem;
    gnutls_x509_crl_t crl;

    TRY(read_datum(path, REVOKED_MOST, &pem));
    int code = gnutls_x509_crl_init(&crl);
    if (code >= 0) {
        code = gnutls_x509_crl_import(crl, &pem, GNUTLS_X509_FMT_PEM);
        if (code < 0)
            gnutls_x509_crl_deinit(crl);
    }
    mem_free(pem.data);
    if (code < 0)
        return FAIL(STATUS_CORRUPT, "%s: no list of revoked certificates in PEM: %s", path,
                    gnutls_strerror(code));
    *out = crl;
    return STATUS_OK;
}

enum status fed_certificate_read(const char *path, uint8_t **out, size_t *out_length)
{
    gnutls_x509_crt_t crt;
    gnutls_datum_t der;
    uint8_t *bytes;

    TRY(fed_crt_read(path, &crt));
    const int code = gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_DER, &der);
    gnutls_x509_crt_deinit(crt);
    TRY_GNUTLS(code);
    const enum status status = mem_alloc(der.size, 1, &bytes);
    if (status == STATUS_OK) {
        memcpy(bytes, der.data, der.size);
        *out = bytes;
        *out_length = der.size;
    }
    gnutls_free(der.data);
    return status;
}

enum status fed_pair_check(const char *cert_path, const char *key_path)
{
    unsigned char of_cert[KEY_ID], of_key[KEY_ID];
    size_t cert_length = sizeof of_cert, key_length = sizeof of_key;
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;

    TRY(fed_crt_read(cert_path, &crt));
    int code = gnutls_x509_crt_get_key_id(crt, GNUTLS_KEYID_USE_SHA256, of_cert, &cert_length);
    gnutls_x509_crt_deinit(crt);
    TRY_GNUTLS(code);
    TRY(fed_key_read(key_path, &key));
    code = gnutls_x509_privkey_get_key_id(key, GNUTLS_KEYID_USE_SHA256, of_key, &key_length);
    gnutls_x509_privkey_deinit(key);
    TRY_GNUTLS(code);
    if (cert_length != key_length || memcmp(of_cert, of_key, key_length) != 0)
        return FAIL(STATUS_USAGE, "%s: is not the key of %s", key_path, cert_path);
    return STATUS_OK;
}

enum status fed_sign_key_read(const char *path, uint8_t seed[FED_SIGN_SEED])
{
    gnutls_x509_privkey_t key;
    gnutls_ecc_curve_t curve;
    gnutls_datum_t x, k;

    TRY(fed_key_read(path, &key));
    const int code = gnutls_x509_privkey_export_ecc_raw(key, &curve, &x, NULL, &k);
    gnutls_x509_privkey_deinit(key);
    if (code < 0)
        return FAIL(STATUS_CORRUPT, "%s: no Ed25519 key: %s", path, gnutls_strerror(code));
    const bool fits = curve == GNUTLS_ECC_CURVE_ED25519 && k.size == FED_SIGN_SEED;
    if (fits)
        memcpy(seed, k.data, FED_SIGN_SEED);
    sodium_memzero(k.data, k.size);
    gnutls_free(k.data);
    gnutls_free(x.data);
    if (!fits)
        return FAIL(STATUS_CORRUPT, "%s: no Ed25519 key", path);
    return STATUS_OK;
}

/* Judgement ------------------------------------------------------------------------------- */

struct fed_trust {
    gnutls_x509_crt_t authority;
    char *revoked_path; /* or NULL */
    pthread_mutex_t lock;
    /* Guarded by lock: */
    gnutls_x509_crl_t revoked; /* NULL: none read yet */
    struct stat state;         /* of the file it was read from */
    int changes;
};

static bool is_same_file(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static enum status read_revoked(struct fed_trust *trust)
{
    struct stat now;
    gnutls_x509_crl_t list;
    unsigned verify = 0;

    if (!trust->revoked_path)
        return STATUS_OK;
    if (stat(trust->revoked_path, &now) != 0)
        return FAIL(STATUS_NOT_FOUND, "%s: no list of revoked certificates is there",
                    trust->revoked_path);
    if (trust->revoked && is_same_file(&now, &trust->state))
        return STATUS_OK;
    TRY(fed_crl_read(trust->revoked_path, &list));
    const int code = gnutls_x509_crl_verify(list, &trust->authority, 1,
                                            GNUTLS_VERIFY_DISABLE_TIME_CHECKS, &verify);
    if (code < 0 || verify) {
        gnutls_x509_crl_deinit(list);
        return FAIL(STATUS_MISMATCH, "%s: is not signed by the federation's authority",
                    trust->revoked_path);
    }
    if (trust->revoked)
        gnutls_x509_crl_deinit(trust->revoked);
    trust->revoked = list;
    trust->state = now;
    trust->changes++;
    return STATUS_OK;
}

enum status fed_trust_create(const char *authority_path, const char *revoked_path,
                             struct fed_trust **out)
{
    struct fed_trust *trust;

    TRY(mem_alloc(1, sizeof *trust, &trust));
    pthread_mutex_init(&trust->lock, NULL);
    enum status status = fed_crt_read(authority_path, &trust->authority);
    if (status == STATUS_OK && revoked_path)
        status = mem_strdup(revoked_path, &trust->revoked_path);
    if (status == STATUS_OK)
        status = read_revoked(trust);
    if (status != STATUS_OK) {
        fed_trust_destroy(trust);
        return status;
    }
    *out = trust;
    return STATUS_OK;
}

void fed_trust_destroy(struct fed_trust *trust)
{
    if (!trust)
        return;
    if (trust->authority)
        gnutls_x509_crt_deinit(trust->authority);
    if (trust->revoked)
        gnutls_x509_crl_deinit(trust->revoked);
    pthread_mutex_destroy(&trust->lock);
    mem_free(trust->revoked_path);
    mem_free(trust);
}

enum status fed_trust_changes(struct fed_trust *trust, int *out)
{
    pthread_mutex_lock(&trust->lock);
    const enum status status = read_revoked(trust);
    *out = trust->changes;
    pthread_mutex_unlock(&trust->lock);
    return status;
}

static enum status read_serial(gnutls_x509_crt_t crt, char out[FED_SERIAL_TEXT])
{
    unsigned char serial[(FED_SERIAL_TEXT - 1) / 2];
    size_t length = sizeof serial;

    if (gnutls_x509_crt_get_serial(crt, serial, &length) < 0)
        return FAIL(STATUS_CORRUPT, "certificate: its serial number is missing or too long");
    sodium_bin2hex(out, FED_SERIAL_TEXT, serial, length);
    return STATUS_OK;
}

static enum status read_names(gnutls_x509_crt_t crt, struct fed_identity *who)
{
    char role[16], name[FED_NAME];
    size_t length = sizeof name, second = 0;

    if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, 0, name, &length) <
            0 ||
        gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 1, 0, NULL, &second) !=
            GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE ||
        !fed_name_is_good(name))
        return FAIL(STATUS_MISMATCH, "certificate: it names nobody of a federation");
    memcpy(who->name, name, sizeof name);
    length = sizeof role;
    if (gnutls_x509_crt_get_dn_by_oid(crt, GNUTLS_OID_X520_ORGANIZATIONAL_UNIT_NAME, 0, 0, role,
                                      &length) < 0)
        return FAIL(STATUS_MISMATCH, "certificate of %s: it names no role", who->name);
    for (int i = 0; i < FED_ROLES; i++) {
        if (strcmp(role, role_names[i]) == 0) {
            who->role = (enum fed_role)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_MISMATCH, "certificate of %s: unknown role %s", who->name, role);
}

/* The key in one of the alternative names, if there is one. */
static void read_sign(gnutls_x509_crt_t crt, struct fed_identity *who)
{
    const size_t prefix = strlen(FED_SIGN_URI);

    for (unsigned i = 0;; i++) {
        char uri[URI_MOST];
        size_t length = sizeof uri - 1, used;
        const int kind = gnutls_x509_crt_get_subject_alt_name(crt, i, uri, &length, NULL);
        if (kind == GNUTLS_E_SHORT_MEMORY_BUFFER)
            continue;
        if (kind < 0)
            return;
        if (kind != GNUTLS_SAN_URI || length != prefix + 2 * FED_SIGN_PUBLIC ||
            memcmp(uri, FED_SIGN_URI, prefix) != 0)
            continue;
        who->has_sign = sodium_hex2bin(who->sign, sizeof who->sign, uri + prefix,
                                       length - prefix, NULL, &used, NULL) == 0 &&
                        used == sizeof who->sign;
        return;
    }
}

static enum status check_purpose(gnutls_x509_crt_t crt, const struct fed_identity *who)
{
    const char *purpose =
        who->role == FED_ROLE_COORDINATOR ? GNUTLS_KP_TLS_WWW_SERVER : GNUTLS_KP_TLS_WWW_CLIENT;

    if (!gnutls_x509_crt_check_key_purpose(crt, purpose, 0))
        return FAIL(STATUS_MISMATCH, "certificate of %s: is not for a %s", who->name,
                    role_names[who->role]);
    return STATUS_OK;
}

static enum status check_revoked(struct fed_trust *trust, gnutls_x509_crt_t crt,
                                 struct fed_identity *who)
{
    int revoked = 0;

    pthread_mutex_lock(&trust->lock);
    const enum status status = read_revoked(trust);
    if (status == STATUS_OK && trust->revoked)
        revoked = gnutls_x509_crt_check_revocation(crt, &trust->revoked, 1);
    pthread_mutex_unlock(&trust->lock);
    TRY(status);
    if (revoked < 0)
        return FAIL(STATUS_CORRUPT,
                    "certificate of %s: cannot be held against the list of revoked ones: %s",
                    who->name, gnutls_strerror(revoked));
    who->is_revoked = revoked > 0;
    if (who->is_revoked)
        return FAIL(STATUS_MISMATCH, "certificate of %s: has been revoked (serial %s)",
                    who->name, who->serial);
    return STATUS_OK;
}

/* An authority's certificate is nobody's; one that does not say whether it is such is a member's, one that says it in a way
 * that cannot be read is refused. */
static enum status check_member(gnutls_x509_crt_t crt)
{
    const int authority = gnutls_x509_crt_get_ca_status(crt, NULL);

    if (authority > 0)
        return FAIL(STATUS_MISMATCH, "certificate: is one of an authority, not of a member");
    if (authority < 0 && authority != GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE)
        return FAIL(STATUS_CORRUPT, "certificate: cannot tell whether it is an authority's: %s",
                    gnutls_strerror(authority));
    return STATUS_OK;
}

static enum status judge(struct fed_trust *trust, gnutls_x509_crt_t crt, time_t now,
                         struct fed_identity *who)
{
    unsigned verify = 0;

    TRY(check_member(crt));
    if (gnutls_x509_crt_verify(crt, &trust->authority, 1, GNUTLS_VERIFY_DISABLE_TIME_CHECKS,
                               &verify) < 0 ||
        verify)
        return FAIL(STATUS_MISMATCH, "certificate: is not of this federation's authority");
    TRY(read_serial(crt, who->serial));
    TRY(read_names(crt, who));
    TRY(check_purpose(crt, who));
    who->from = gnutls_x509_crt_get_activation_time(crt);
    who->until = gnutls_x509_crt_get_expiration_time(crt);
    if (who->from == (time_t)-1 || who->until == (time_t)-1)
        return FAIL(STATUS_CORRUPT, "certificate of %s: its dates cannot be read", who->name);
    if (now != FED_ANY_TIME && now < who->from)
        return FAIL(STATUS_MISMATCH, "certificate of %s: is not valid yet; is a clock wrong?",
                    who->name);
    if (now != FED_ANY_TIME && now > who->until)
        return FAIL(STATUS_MISMATCH, "certificate of %s: has expired; enrol it anew",
                    who->name);
    read_sign(crt, who);
    return check_revoked(trust, crt, who);
}

enum status fed_trust_check(struct fed_trust *trust, const void *der, size_t length, time_t now,
                            struct fed_identity *out)
{
    gnutls_datum_t datum = { (void *)der, (unsigned)length };
    gnutls_x509_crt_t crt;

    *out = (struct fed_identity){ .role = FED_ROLES };
    if (length > FED_CERTIFICATE_MOST)
        return FAIL(STATUS_CORRUPT, "certificate: %zu bytes are too many", length);
    TRY_GNUTLS(gnutls_x509_crt_init(&crt));
    const int code = gnutls_x509_crt_import(crt, &datum, GNUTLS_X509_FMT_DER);
    const enum status status =
        code < 0 ? FAIL(STATUS_CORRUPT, "certificate: %s", gnutls_strerror(code))
                 : judge(trust, crt, now, out);
    gnutls_x509_crt_deinit(crt);
    return status;
}
