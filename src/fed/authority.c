/* SPDX-License-Identifier: MIT */
/* authority.c - certificates made, listed and revoked.
 *
 * A command runs to its end or leaves the folder as it was: every file is replaced as a whole, and the one that
 * makes a change count (issued/NAME.pem, revoked.pem) is written before what depends on it. Commands of one folder
 * are made one at a time by a lock on it.
 */
#include "fed/authority.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/mem.h"
#include "fed/gnutls.h"
#include "fed/start.h"

enum {
    SERIAL_BYTES = 16,
    AUTHORITY_DAYS = 3650,
    DAY = 86400,
    SKEW_SECONDS = 300, /* clocks of members may be so far behind */
};

/* Files ---------------------------------------------------------------------------------- */

static enum status write_text(const char *folder, const char *name, const void *text,
                              size_t length)
{
    char *path;

    TRY(file_join(folder, name, &path));
    const enum status status = file_replace(path, text, length);
    mem_free(path);
    return status;
}

/* A file that its owner alone reads, from its first byte on. */
static enum status write_secret(const char *folder, const char *name, const void *text,
                                size_t length)
{
    const mode_t before = umask(077);
    const enum status status = write_text(folder, name, text, length);

    umask(before);
    return status;
}

static enum status write_key(const char *folder, const char *name, gnutls_x509_privkey_t key)
{
    gnutls_datum_t pem;

    TRY_GNUTLS(gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL,
                                                 GNUTLS_PKCS_PLAIN, &pem));
    const enum status status = write_secret(folder, name, pem.data, pem.size);
    sodium_memzero(pem.data, pem.size);
    gnutls_free(pem.data);
    return status;
}

static enum status write_crt(const char *folder, const char *name, gnutls_x509_crt_t crt)
{
    gnutls_datum_t pem;

    TRY_GNUTLS(gnutls_x509_crt_export2(crt, GNUTLS_X509_FMT_PEM, &pem));
    const enum status status = write_text(folder, name, pem.data, pem.size);
    gnutls_free(pem.data);
    return status;
}

static enum status make_folder(const char *path)
{
    const mode_t before = umask(077);
    const enum status status = file_make_folder(path);

    umask(before);
    return status;
}

/* One command at a time. */
static enum status lock_folder(const char *folder, int *out)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return FAIL(STATUS_NOT_FOUND, "%s: no authority is there: tutti fed keys init", folder);
    if (flock(fd, LOCK_EX) != 0) {
        close(fd);
        return FAIL(STATUS_IO, "%s: cannot be locked", folder);
    }
    *out = fd;
    return STATUS_OK;
}

/* Certificates ------------------------------------------------------------------------------ */

/* The authority, opened. */
struct authority {
    const char *folder;
    gnutls_x509_crt_t crt;
    gnutls_x509_privkey_t key;
    int lock;
};

static void close_authority(struct authority *authority)
{
    if (authority->crt)
        gnutls_x509_crt_deinit(authority->crt);
    if (authority->key)
        gnutls_x509_privkey_deinit(authority->key);
    if (authority->lock >= 0)
        close(authority->lock);
}

static enum status read_authority(struct authority *authority)
{
    char *crt = NULL, *key = NULL;
    enum status status = file_join(authority->folder, "authority.pem", &crt);

    if (status == STATUS_OK)
        status = file_join(authority->folder, "authority-key.pem", &key);
    if (status == STATUS_OK)
        status = fed_crt_read(crt, &authority->crt);
    if (status == STATUS_OK)
        status = fed_key_read(key, &authority->key);
    mem_free(crt);
    mem_free(key);
    return status;
}

static enum status open_authority(const char *folder, struct authority *out)
{
    struct authority authority = { .folder = folder, .lock = -1 };

    TRY(fed_start());
    enum status status = lock_folder(folder, &authority.lock);
    if (status == STATUS_OK)
        status = read_authority(&authority);
    if (status != STATUS_OK) {
        close_authority(&authority);
        return status;
    }
    *out = authority;
    return STATUS_OK;
}

static enum status make_key(gnutls_pk_algorithm_t kind, gnutls_ecc_curve_t curve,
                            gnutls_x509_privkey_t *out)
{
    gnutls_x509_privkey_t key;

    TRY_GNUTLS(gnutls_x509_privkey_init(&key));
    const int code = gnutls_x509_privkey_generate(key, kind, GNUTLS_CURVE_TO_BITS(curve), 0);
    if (code < 0) {
        gnutls_x509_privkey_deinit(key);
        TRY_GNUTLS(code);
    }
    *out = key;
    return STATUS_OK;
}

static enum status make_tls_key(gnutls_x509_privkey_t *out)
{
    return make_key(GNUTLS_PK_ECDSA, GNUTLS_ECC_CURVE_SECP256R1, out);
}

static enum status set_common(gnutls_x509_crt_t crt, const char *name, const char *unit,
                              int days)
{
    unsigned char serial[SERIAL_BYTES], id[64];
    size_t id_length = sizeof id;
    const time_t now = time(NULL);

    randombytes_buf(serial, sizeof serial);
    serial[0] = (unsigned char)((serial[0] & 0x3f) | 0x40); /* positive, of full length */
    TRY_GNUTLS(gnutls_x509_crt_set_version(crt, 3));
    TRY_GNUTLS(gnutls_x509_crt_set_serial(crt, serial, sizeof serial));
    TRY_GNUTLS(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                             (unsigned)strlen(name)));
    TRY_GNUTLS(gnutls_x509_crt_set_dn_by_oid(crt, GNUTLS_OID_X520_ORGANIZATIONAL_UNIT_NAME, 0,
                                             unit, (unsigned)strlen(unit)));
    TRY_GNUTLS(gnutls_x509_crt_set_activation_time(crt, now - SKEW_SECONDS));
    TRY_GNUTLS(gnutls_x509_crt_set_expiration_time(crt, now + (time_t)days * DAY));
    TRY_GNUTLS(gnutls_x509_crt_get_key_id(crt, 0, id, &id_length));
    TRY_GNUTLS(gnutls_x509_crt_set_subject_key_id(crt, id, id_length));
    return STATUS_OK;
}

static enum status set_authority(gnutls_x509_crt_t crt, gnutls_x509_privkey_t key)
{
    TRY_GNUTLS(gnutls_x509_crt_set_key(crt, key));
    TRY(set_common(crt, "federation authority", "authority", AUTHORITY_DAYS));
    TRY_GNUTLS(gnutls_x509_crt_set_basic_constraints(crt, 1, 0));
    TRY_GNUTLS(
        gnutls_x509_crt_set_key_usage(crt, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
    TRY_GNUTLS(gnutls_x509_crt_sign2(crt, crt, key, GNUTLS_DIG_SHA256, 0));
    return STATUS_OK;
}

static enum status sign_member(const struct authority *authority, gnutls_x509_crt_t crt,
                               const char *purpose)
{
    unsigned char id[64];
    size_t length = sizeof id;

    TRY_GNUTLS(gnutls_x509_crt_set_basic_constraints(crt, 0, -1));
    TRY_GNUTLS(gnutls_x509_crt_set_key_usage(crt, GNUTLS_KEY_DIGITAL_SIGNATURE));
    TRY_GNUTLS(gnutls_x509_crt_set_key_purpose_oid(crt, purpose, 0));
    TRY_GNUTLS(gnutls_x509_crt_get_subject_key_id(authority->crt, id, &length, NULL));
    TRY_GNUTLS(gnutls_x509_crt_set_authority_key_id(crt, id, length));
    TRY_GNUTLS(
        gnutls_x509_crt_sign2(crt, authority->crt, authority->key, GNUTLS_DIG_SHA256, 0));
    return STATUS_OK;
}

static enum status add_host(gnutls_x509_crt_t crt, const char *host)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, host, address) == 1)
        TRY_GNUTLS(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, address, 4,
                                                        GNUTLS_FSAN_APPEND));
    else if (inet_pton(AF_INET6, host, address) == 1)
        TRY_GNUTLS(gnutls_x509_crt_set_subject_alt_name(crt, GNUTLS_SAN_IPADDRESS, address, 16,
                                                        GNUTLS_FSAN_APPEND));
    else
        TRY_GNUTLS(gnutls_x509_crt_set_subject_alt_name(
            crt, GNUTLS_SAN_DNSNAME, host, (unsigned)strlen(host), GNUTLS_FSAN_APPEND));
    return STATUS_OK;
}

static enum status set_coordinator(const struct authority *authority, gnutls_x509_crt_t crt,
                                   gnutls_x509_privkey_t key, const char *const *hosts,
                                   int days)
{
    TRY_GNUTLS(gnutls_x509_crt_set_key(crt, key));
    TRY(set_common(crt, FED_COORDINATOR, fed_role_name(FED_ROLE_COORDINATOR), days));
    for (int i = 0; hosts[i]; i++)
        TRY(add_host(crt, hosts[i]));
    return sign_member(authority, crt, GNUTLS_KP_TLS_WWW_SERVER);
}

/* The list of revoked certificates ---------------------------------------------------------- */

static enum status sign_revoked(const struct authority *authority, gnutls_x509_crl_t list)
{
    const time_t now = time(NULL);
    unsigned char id[64], number[8];
    size_t length = sizeof id;

    for (int i = 0; i < 8; i++)
        number[i] = (unsigned char)((uint64_t)now >> (56 - 8 * i));
    TRY_GNUTLS(gnutls_x509_crl_set_version(list, 2));
    TRY_GNUTLS(gnutls_x509_crl_set_this_update(list, now));
    TRY_GNUTLS(gnutls_x509_crl_set_next_update(list, now + (time_t)AUTHORITY_DAYS * DAY));
    TRY_GNUTLS(gnutls_x509_crl_set_number(list, number, sizeof number));
    TRY_GNUTLS(gnutls_x509_crt_get_subject_key_id(authority->crt, id, &length, NULL));
    TRY_GNUTLS(gnutls_x509_crl_set_authority_key_id(list, id, length));
    TRY_GNUTLS(
        gnutls_x509_crl_sign2(list, authority->crt, authority->key, GNUTLS_DIG_SHA256, 0));
    return STATUS_OK;
}

/* Beside the authority's key, and in the coordinator's folder where that is here. */
static enum status write_revoked(const struct authority *authority, gnutls_x509_crl_t list)
{
    gnutls_datum_t pem;
    char *coordinator;

    TRY(sign_revoked(authority, list));
    TRY(file_join(authority->folder, FED_COORDINATOR, &coordinator));
    const int code = gnutls_x509_crl_export2(list, GNUTLS_X509_FMT_PEM, &pem);
    enum status status = code < 0
                             ? FAIL(STATUS_IO, "certificates: %s", gnutls_strerror(code))
                             : write_text(authority->folder, "revoked.pem", pem.data, pem.size);
    if (status == STATUS_OK && file_is_folder(coordinator))
        status = write_text(coordinator, "revoked.pem", pem.data, pem.size);
    if (code >= 0)
        gnutls_free(pem.data);
    mem_free(coordinator);
    return status;
}

/* Creation ------------------------------------------------------------------------------------ */

static enum status make_authority(struct authority *authority)
{
    TRY(make_tls_key(&authority->key));
    TRY_GNUTLS(gnutls_x509_crt_init(&authority->crt));
    TRY(set_authority(authority->crt, authority->key));
    TRY(write_key(authority->folder, "authority-key.pem", authority->key));
    return write_crt(authority->folder, "authority.pem", authority->crt);
}

static enum status make_coordinator(const struct authority *authority, const char *folder,
                                    const char *const *hosts, int days)
{
    gnutls_x509_privkey_t key;
    gnutls_x509_crt_t crt;

    TRY(make_tls_key(&key));
    enum status status = gnutls_x509_crt_init(&crt) < 0
                             ? FAIL(STATUS_NO_MEMORY, "certificates: no memory")
                             : STATUS_OK;
    if (status == STATUS_OK) {
        status = set_coordinator(authority, crt, key, hosts, days);
        if (status == STATUS_OK)
            status = write_key(folder, "key.pem", key);
        if (status == STATUS_OK)
            status = write_crt(folder, "cert.pem", crt);
        gnutls_x509_crt_deinit(crt);
    }
    if (status == STATUS_OK)
        status = write_crt(folder, "authority.pem", authority->crt);
    gnutls_x509_privkey_deinit(key);
    return status;
}

static enum status fill_folder(struct authority *authority, const char *const *hosts, int days)
{
    char *coordinator = NULL, *issued = NULL;
    gnutls_x509_crl_t list;

    enum status status = file_join(authority->folder, FED_COORDINATOR, &coordinator);
    if (status == STATUS_OK)
        status = file_join(authority->folder, "issued", &issued);
    if (status == STATUS_OK)
        status = make_folder(issued);
    if (status == STATUS_OK)
        status = make_folder(coordinator);
    if (status == STATUS_OK)
        status = make_authority(authority);
    if (status == STATUS_OK)
        status = make_coordinator(authority, coordinator, hosts, days);
    if (status == STATUS_OK && gnutls_x509_crl_init(&list) >= 0) {
        status = write_revoked(authority, list);
        gnutls_x509_crl_deinit(list);
    }
    mem_free(coordinator);
    mem_free(issued);
    return status;
}

enum status fed_authority_create(const char *folder, const char *const *hosts, int days)
{
    struct authority authority = { .folder = folder, .lock = -1 };
    char *path;

    TRY(fed_start());
    TRY(file_join(folder, "authority.pem", &path));
    const bool there = file_exists(path);
    mem_free(path);
    if (there)
        return FAIL(STATUS_USAGE, "%s: has an authority already; it is not replaced", folder);
    TRY(make_folder(folder));
    enum status status = lock_folder(folder, &authority.lock);
    if (status == STATUS_OK)
        status = fill_folder(&authority, hosts, days);
    close_authority(&authority);
    return status;
}

/* Enrolment ------------------------------------------------------------------------------------ */

static enum status print_sign_uri(gnutls_x509_privkey_t sign,
                                  char uri[sizeof FED_SIGN_URI + 2 * FED_SIGN_PUBLIC])
{
    gnutls_ecc_curve_t curve;
    gnutls_datum_t x, k;
    char hex[2 * FED_SIGN_PUBLIC + 1];

    TRY_GNUTLS(gnutls_x509_privkey_export_ecc_raw(sign, &curve, &x, NULL, &k));
    BUG_ON(x.size != FED_SIGN_PUBLIC);
    sodium_bin2hex(hex, sizeof hex, x.data, x.size);
    snprintf(uri, sizeof FED_SIGN_URI + 2 * FED_SIGN_PUBLIC, "%s%s", FED_SIGN_URI, hex);
    sodium_memzero(k.data, k.size);
    gnutls_free(k.data);
    gnutls_free(x.data);
    return STATUS_OK;
}

/* A member's public keys on their way into a certificate. */
struct member {
    gnutls_x509_crt_t crt;
    char uri[sizeof FED_SIGN_URI + 2 * FED_SIGN_PUBLIC]; /* "": no key to sign with */
};

/* Makes a member's keys in its folder. */
static enum status make_member_keys(const char *folder, enum fed_role role,
                                    gnutls_x509_privkey_t *out, char *uri)
{
    gnutls_x509_privkey_t tls, sign;

    TRY(make_tls_key(&tls));
    enum status status = write_key(folder, "key.pem", tls);
    if (status == STATUS_OK && role == FED_ROLE_PARTICIPANT) {
        status = make_key(GNUTLS_PK_EDDSA_ED25519, GNUTLS_ECC_CURVE_ED25519, &sign);
        if (status == STATUS_OK) {
            status = print_sign_uri(sign, uri);
            if (status == STATUS_OK)
                status = write_key(folder, "identity.pem", sign);
            gnutls_x509_privkey_deinit(sign);
        }
    }
    if (status != STATUS_OK) {
        gnutls_x509_privkey_deinit(tls);
        return status;
    }
    *out = tls;
    return STATUS_OK;
}

static enum status take_made_keys(struct member *member, const char *folder, enum fed_role role)
{
    gnutls_x509_privkey_t key;

    TRY(make_member_keys(folder, role, &key, member->uri));
    const int code = gnutls_x509_crt_set_key(member->crt, key);
    gnutls_x509_privkey_deinit(key);
    TRY_GNUTLS(code);
    return STATUS_OK;
}

/* Reads the key to sign with from a request; name and role are what the authority says. */
static enum status read_request_uri(gnutls_x509_crq_t request, const char *path,
                                    struct member *member)
{
    for (unsigned i = 0;; i++) {
        char uri[256];
        size_t length = sizeof uri - 1;
        unsigned kind;
        const int code =
            gnutls_x509_crq_get_subject_alt_name(request, i, uri, &length, &kind, NULL);
        if (code == GNUTLS_E_SHORT_MEMORY_BUFFER)
            continue;
        if (code < 0)
            return FAIL(STATUS_CORRUPT,
                        "%s: no key to sign with: make the request by tutti fed keys request",
                        path);
        uri[length] = '\0';
        if (kind != GNUTLS_SAN_URI || length != sizeof member->uri - 1 ||
            strncmp(uri, FED_SIGN_URI, strlen(FED_SIGN_URI)) != 0)
            continue;
        memcpy(member->uri, uri, sizeof member->uri);
        return STATUS_OK;
    }
}

/* Its key, and nothing else: who it says it is does not matter. */
static int take_public_key(gnutls_x509_crt_t crt, gnutls_x509_crq_t request)
{
    gnutls_pubkey_t key;
    int code = gnutls_pubkey_init(&key);

    if (code < 0)
        return code;
    code = gnutls_pubkey_import_x509_crq(key, request, 0);
    if (code >= 0)
        code = gnutls_x509_crt_set_pubkey(crt, key);
    gnutls_pubkey_deinit(key);
    return code;
}

static enum status take_request(struct member *member, const char *path, enum fed_role role)
{
    gnutls_x509_crq_t request;
    char *text;
    size_t length;

    TRY(file_read(path, FED_CERTIFICATE_MOST, &text, &length));
    const gnutls_datum_t pem = { (unsigned char *)text, (unsigned)length };
    int code = gnutls_x509_crq_init(&request);
    if (code >= 0) {
        code = gnutls_x509_crq_import(request, &pem, GNUTLS_X509_FMT_PEM);
        if (code >= 0)
            code = gnutls_x509_crq_verify(request, 0); /* it is signed by its own key */
        if (code >= 0)
            code = take_public_key(member->crt, request);
    }
    mem_free(text);
    enum status status = code < 0 ? FAIL(STATUS_CORRUPT, "%s: no request for a certificate: %s",
                                         path, gnutls_strerror(code))
                                  : STATUS_OK;
    if (status == STATUS_OK && role == FED_ROLE_PARTICIPANT)
        status = read_request_uri(request, path, member);
    gnutls_x509_crq_deinit(request);
    return status;
}

static enum status set_member(const struct authority *authority, struct member *member,
                              const struct fed_enrolment *enrolment, const char *folder)
{
    if (enrolment->request)
        TRY(take_request(member, enrolment->request, enrolment->role));
    else
        TRY(take_made_keys(member, folder, enrolment->role));
    TRY(set_common(member->crt, enrolment->name, fed_role_name(enrolment->role),
                   enrolment->days));
    if (member->uri[0])
        TRY_GNUTLS(gnutls_x509_crt_set_subject_alt_name(
            member->crt, GNUTLS_SAN_URI, member->uri, (unsigned)strlen(member->uri), 0));
    return sign_member(authority, member->crt, GNUTLS_KP_TLS_WWW_CLIENT);
}

static enum status issued_path(const char *folder, const char *name, char **out)
{
    char *issued, file[FED_NAME + 8];

    TRY(file_join(folder, "issued", &issued));
    snprintf(file, sizeof file, "%s.pem", name);
    const enum status status = file_join(issued, file, out);
    mem_free(issued);
    return status;
}

static enum status open_trust(const char *folder, struct fed_trust **out)
{
    char *authority = NULL, *revoked = NULL;
    enum status status = file_join(folder, "authority.pem", &authority);

    if (status == STATUS_OK)
        status = file_join(folder, "revoked.pem", &revoked);
    if (status == STATUS_OK)
        status = fed_trust_create(authority, revoked, out);
    mem_free(authority);
    mem_free(revoked);
    return status;
}

/* Judges the last certificate of a name: STATUS_NOT_FOUND if there is none. */
static enum status judge_issued(const char *folder, const char *name, struct fed_identity *out)
{
    struct fed_trust *trust;
    uint8_t *der;
    size_t length;
    char *path;

    TRY(issued_path(folder, name, &path));
    enum status status = fed_certificate_read(path, &der, &length);
    mem_free(path);
    TRY(status);
    status = open_trust(folder, &trust);
    if (status == STATUS_OK) {
        status = fed_trust_check(trust, der, length, time(NULL), out);
        fed_trust_destroy(trust);
    }
    mem_free(der);
    return status;
}

static enum status issue(const struct authority *authority,
                         const struct fed_enrolment *enrolment, const char *folder)
{
    struct member member = { 0 };
    char file[FED_NAME + 16];

    TRY_GNUTLS(gnutls_x509_crt_init(&member.crt));
    enum status status = set_member(authority, &member, enrolment, folder);
    snprintf(file, sizeof file, "issued/%s.pem", enrolment->name);
    if (status == STATUS_OK)
        status = write_crt(authority->folder, file, member.crt);
    if (status == STATUS_OK)
        status = write_crt(folder, "cert.pem", member.crt);
    if (status == STATUS_OK)
        status = write_crt(folder, "authority.pem", authority->crt);
    gnutls_x509_crt_deinit(member.crt);
    return status;
}

static enum status check_name(const char *name)
{
    if (!fed_name_is_good(name))
        return FAIL(
            STATUS_USAGE,
            "%s: a name has up to %d letters, digits, - _ . and begins with none of - .", name,
            FED_NAME - 1);
    if (strcmp(name, FED_COORDINATOR) == 0 || strcmp(name, "issued") == 0)
        return FAIL(STATUS_USAGE, "%s: this name is taken", name);
    return STATUS_OK;
}

enum status fed_enrol(const char *folder, const struct fed_enrolment *enrolment)
{
    struct authority authority;
    struct fed_identity there;
    char *member;

    TRY(check_name(enrolment->name));
    TRY(open_authority(folder, &authority));
    enum status status = judge_issued(folder, enrolment->name, &there);
    if (status == STATUS_OK)
        status = FAIL(STATUS_USAGE, "%s: is enrolled; tutti fed keys revoke %s comes first",
                      enrolment->name, enrolment->name);
    else if (status == STATUS_NOT_FOUND || status == STATUS_MISMATCH)
        status = file_join(folder, enrolment->name, &member);
    if (status == STATUS_OK) {
        status = make_folder(member);
        if (status == STATUS_OK)
            status = issue(&authority, enrolment, member);
        mem_free(member);
    }
    close_authority(&authority);
    return status;
}

/* Requests ------------------------------------------------------------------------------------- */

static enum status set_request(gnutls_x509_crq_t request, gnutls_x509_privkey_t key,
                               const char *name, const char *uri)
{
    TRY_GNUTLS(gnutls_x509_crq_set_version(request, 1));
    TRY_GNUTLS(gnutls_x509_crq_set_dn_by_oid(request, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                             (unsigned)strlen(name)));
    TRY_GNUTLS(gnutls_x509_crq_set_key(request, key));
    if (uri[0])
        TRY_GNUTLS(gnutls_x509_crq_set_subject_alt_name(request, GNUTLS_SAN_URI, uri,
                                                        (unsigned)strlen(uri), 0));
    TRY_GNUTLS(gnutls_x509_crq_sign2(request, key, GNUTLS_DIG_SHA256, 0));
    return STATUS_OK;
}

static enum status write_request(const char *folder, const char *name,
                                 gnutls_x509_privkey_t key, const char *uri)
{
    gnutls_x509_crq_t request;
    gnutls_datum_t pem;

    TRY_GNUTLS(gnutls_x509_crq_init(&request));
    enum status status = set_request(request, key, name, uri);
    const int code =
        status == STATUS_OK ? gnutls_x509_crq_export2(request, GNUTLS_X509_FMT_PEM, &pem) : 0;
    gnutls_x509_crq_deinit(request);
    TRY(status);
    TRY_GNUTLS(code);
    status = write_text(folder, "request.pem", pem.data, pem.size);
    gnutls_free(pem.data);
    return status;
}

enum status fed_request(const char *folder, const char *name, enum fed_role role)
{
    char uri[sizeof FED_SIGN_URI + 2 * FED_SIGN_PUBLIC] = "", *path;
    gnutls_x509_privkey_t key;

    TRY(check_name(name));
    TRY(fed_start());
    TRY(file_join(folder, "key.pem", &path));
    const bool there = file_exists(path);
    mem_free(path);
    if (there)
        return FAIL(STATUS_USAGE, "%s: has a key.pem already; it is not replaced", folder);
    TRY(make_folder(folder));
    TRY(make_member_keys(folder, role, &key, uri));
    const enum status status = write_request(folder, name, key, uri);
    gnutls_x509_privkey_deinit(key);
    return status;
}

/* Revocation ------------------------------------------------------------------------------------ */

static enum status add_revoked(const struct authority *authority, const char *name)
{
    gnutls_x509_crt_t crt;
    gnutls_x509_crl_t list;
    char *path;

    TRY(issued_path(authority->folder, name, &path));
    enum status status = fed_crt_read(path, &crt);
    mem_free(path);
    TRY(status);
    status = file_join(authority->folder, "revoked.pem", &path);
    if (status == STATUS_OK) {
        status = fed_crl_read(path, &list);
        mem_free(path);
    }
    if (status == STATUS_OK) {
        const int code = gnutls_x509_crl_set_crt(list, crt, time(NULL));
        status = code < 0 ? FAIL(STATUS_IO, "certificates: %s", gnutls_strerror(code))
                          : write_revoked(authority, list);
        gnutls_x509_crl_deinit(list);
    }
    gnutls_x509_crt_deinit(crt);
    return status;
}

enum status fed_revoke(const char *folder, const char *name)
{
    struct authority authority;
    struct fed_identity who;

    TRY(check_name(name));
    TRY(open_authority(folder, &authority));
    enum status status = judge_issued(folder, name, &who);
    if (status == STATUS_OK)
        status = add_revoked(&authority, name);
    else if (status == STATUS_NOT_FOUND)
        status = FAIL(STATUS_NOT_FOUND, "%s: is not enrolled in %s", name, folder);
    close_authority(&authority);
    return status;
}

/* List -------------------------------------------------------------------------------------------- */

struct names {
    char (*name)[FED_NAME];
    size_t count, room;
};

/* Adds NAME of NAME.pem; other files are none of ours. */
static enum status add_name(struct names *names, const char *file)
{
    const size_t length = strlen(file);

    if (length <= 4 || length - 4 >= FED_NAME || strcmp(file + length - 4, ".pem") != 0)
        return STATUS_OK;
    if (names->count == names->room) {
        const size_t room = names->room ? 2 * names->room : 16;
        TRY(mem_grow(&names->name, names->room, room, sizeof *names->name));
        names->room = room;
    }
    memcpy(names->name[names->count++], file, length - 4);
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(a, b);
}

static enum status read_names(const char *folder, struct names *out)
{
    enum status status = STATUS_OK;
    struct dirent *entry;
    char *issued;

    TRY(file_join(folder, "issued", &issued));
    DIR *stream = opendir(issued);
    if (!stream)
        status = FAIL(STATUS_IO, "%s: cannot be read", issued);
    while (stream && status == STATUS_OK && (entry = readdir(stream)))
        status = add_name(out, entry->d_name);
    if (stream)
        closedir(stream);
    mem_free(issued);
    if (out->count)
        qsort(out->name, out->count, sizeof *out->name, compare_names);
    return status;
}

static enum status
list_one(const char *folder, const char *name, struct fed_trust *trust,
         void (*visit)(void *arg, const struct fed_identity *who, const char *why), void *arg)
{
    struct fed_identity who = { 0 };
    uint8_t *der;
    size_t length;
    char *path;

    TRY(issued_path(folder, name, &path));
    enum status status = fed_certificate_read(path, &der, &length);
    mem_free(path);
    if (status == STATUS_OK) {
        status = fed_trust_check(trust, der, length, time(NULL), &who);
        mem_free(der);
    }
    snprintf(who.name, sizeof who.name, "%s", name);
    visit(arg, &who, status == STATUS_OK ? "" : status_message());
    return STATUS_OK;
}

enum status fed_authority_list(const char *folder,
                               void (*visit)(void *arg, const struct fed_identity *who,
                                             const char *why),
                               void *arg)
{
    struct names names = { 0 };
    struct fed_trust *trust;

    TRY(open_trust(folder, &trust));
    enum status status = read_names(folder, &names);
    for (size_t i = 0; status == STATUS_OK && i < names.count; i++)
        status = list_one(folder, names.name[i], trust, visit, arg);
    mem_free(names.name);
    fed_trust_destroy(trust);
    return status;
}
