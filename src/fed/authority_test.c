/* SPDX-License-Identifier: MIT */
/* authority_test.c - certificates made by an authority, judged by its members. */
#include "fed/authority.h"

#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/test.h"
#include "fed/start.h"
#include "fed/trust.h"

static const char *const hosts[] = { "localhost", "127.0.0.1", "::1", NULL };

static const char *in(const char *folder, const char *name)
{
    static char path[2][8192];
    static int n;

    n = !n;
    snprintf(path[n], sizeof path[n], "%s/%s", folder, name);
    return path[n];
}

static enum status enrol(const char *folder, const char *name)
{
    const struct fed_enrolment one = { .name = name, .role = FED_ROLE_PARTICIPANT, .days = 2 };

    return fed_enrol(folder, &one);
}

static enum status judge(struct fed_trust *trust, const char *path, time_t now,
                         struct fed_identity *out)
{
    uint8_t *der;
    size_t length;

    TRY(fed_certificate_read(path, &der, &length));
    const enum status status = fed_trust_check(trust, der, length, now, out);
    mem_free(der);
    return status;
}

static struct fed_trust *trust_of(const char *folder)
{
    struct fed_trust *trust;
    char authority[4096];

    snprintf(authority, sizeof authority, "%s/authority.pem", folder);
    CHECK_OK(fed_trust_create(authority, in(folder, "revoked.pem"), &trust));
    return trust;
}

static void test_members_are_known_until_they_expire(void)
{
    const char *folder = test_folder();
    const time_t now = time(NULL);
    struct fed_identity who;
    uint8_t seed[FED_SIGN_SEED];
    struct stat state;

    CHECK_OK(fed_authority_create(folder, hosts, 2));
    CHECK_OK(enrol(folder, "hospital-1"));
    struct fed_trust *trust = trust_of(folder);
    CHECK_OK(judge(trust, in(folder, "hospital-1/cert.pem"), now, &who));
    CHECK_TEXT("hospital-1", who.name);
    CHECK_INT(FED_ROLE_PARTICIPANT, who.role);
    CHECK(who.has_sign);
    CHECK_OK(fed_sign_key_read(in(folder, "hospital-1/identity.pem"), seed));
    CHECK_OK(judge(trust, in(folder, "coordinator/cert.pem"), now, &who));
    CHECK_INT(FED_ROLE_COORDINATOR, who.role);
    CHECK(!who.has_sign);

    CHECK_STATUS(STATUS_MISMATCH,
                 judge(trust, in(folder, "hospital-1/cert.pem"), now + 3 * 86400, &who));
    CHECK_MESSAGE("expired");
    CHECK_TEXT("hospital-1", who.name);
    CHECK_STATUS(STATUS_MISMATCH,
                 judge(trust, in(folder, "hospital-1/cert.pem"), now - 86400, &who));
    CHECK_MESSAGE("not valid yet");
    CHECK_STATUS(STATUS_MISMATCH, judge(trust, in(folder, "authority.pem"), now, &who));
    CHECK_STATUS(STATUS_CORRUPT, fed_trust_check(trust, "none", 4, now, &who));
    fed_trust_destroy(trust);

    CHECK(stat(in(folder, "hospital-1/key.pem"), &state) == 0);
    CHECK_INT(0600, state.st_mode & 0777);
    CHECK(stat(in(folder, "authority-key.pem"), &state) == 0);
    CHECK_INT(0600, state.st_mode & 0777);
}

static void test_a_revocation_holds_at_once(void)
{
    const char *folder = test_folder();
    struct fed_identity who;

    CHECK_OK(fed_authority_create(folder, hosts, 2));
    CHECK_OK(enrol(folder, "a"));
    CHECK_OK(enrol(folder, "b"));
    struct fed_trust *trust = trust_of(folder);
    CHECK_OK(judge(trust, in(folder, "a/cert.pem"), time(NULL), &who));
    CHECK_STATUS(STATUS_USAGE, enrol(folder, "a"));
    CHECK_OK(fed_revoke(folder, "a"));
    CHECK_STATUS(STATUS_MISMATCH, judge(trust, in(folder, "a/cert.pem"), time(NULL), &who));
    CHECK_MESSAGE("revoked");
    CHECK_OK(judge(trust, in(folder, "b/cert.pem"), time(NULL), &who));
    CHECK_STATUS(STATUS_MISMATCH, fed_revoke(folder, "a"));
    CHECK_STATUS(STATUS_NOT_FOUND, fed_revoke(folder, "nobody"));

    CHECK_OK(enrol(folder, "a")); /* anew */
    CHECK_OK(judge(trust, in(folder, "a/cert.pem"), time(NULL), &who));
    CHECK_OK(fed_revoke(folder, "b"));
    CHECK_STATUS(STATUS_MISMATCH, judge(trust, in(folder, "b/cert.pem"), time(NULL), &who));
    CHECK(file_exists(in(folder, "coordinator/revoked.pem")));

    /* A list that somebody else wrote: nobody is let in. */
    CHECK_OK(file_replace(in(folder, "revoked.pem"), "nothing", 7));
    CHECK_STATUS(STATUS_CORRUPT, judge(trust, in(folder, "a/cert.pem"), time(NULL), &who));
    fed_trust_destroy(trust);
}

static void import_crt(const char *path, gnutls_x509_crt_t crt)
{
    gnutls_datum_t pem;

    CHECK_INT(0, gnutls_load_file(path, &pem));
    CHECK_INT(0, gnutls_x509_crt_import(crt, &pem, GNUTLS_X509_FMT_PEM));
    gnutls_free(pem.data);
}

/* The certificate of a member, signed once more by the authority in `folder`, whose extension `oid` is no ASN.1. */
static enum status judge_with_junk(const char *folder, struct fed_trust *trust, const char *oid)
{
    static const uint8_t junk[] = { 0x30, 0x7f, 0x01 };
    struct fed_identity who;
    gnutls_x509_crt_t member, authority;
    gnutls_x509_privkey_t key;
    gnutls_datum_t pem, der;

    CHECK_INT(0, gnutls_x509_crt_init(&member));
    CHECK_INT(0, gnutls_x509_crt_init(&authority));
    CHECK_INT(0, gnutls_x509_privkey_init(&key));
    import_crt(in(folder, "hospital-1/cert.pem"), member);
    import_crt(in(folder, "authority.pem"), authority);
    CHECK_INT(0, gnutls_load_file(in(folder, "authority-key.pem"), &pem));
    CHECK_INT(0, gnutls_x509_privkey_import(key, &pem, GNUTLS_X509_FMT_PEM));
    CHECK_INT(0, gnutls_x509_crt_set_extension_by_oid(member, oid, junk, sizeof junk, 0));
    CHECK_INT(0, gnutls_x509_crt_sign2(member, authority, key, GNUTLS_DIG_SHA256, 0));
    CHECK_INT(0, gnutls_x509_crt_export2(member, GNUTLS_X509_FMT_DER, &der));
    const enum status status = fed_trust_check(trust, der.data, der.size, time(NULL), &who);
    gnutls_free(pem.data);
    gnutls_free(der.data);
    gnutls_x509_privkey_deinit(key);
    gnutls_x509_crt_deinit(authority);
    gnutls_x509_crt_deinit(member);
    return status;
}

static void test_what_cannot_be_read_is_refused(void)
{
    const char *folder = test_folder();

    CHECK_OK(fed_authority_create(folder, hosts, 2));
    CHECK_OK(enrol(folder, "hospital-1"));
    struct fed_trust *trust = trust_of(folder);
    CHECK_OK(judge_with_junk(folder, trust, "1.3.6.1.4.1.99999.1"));
    CHECK_STATUS(STATUS_CORRUPT, judge_with_junk(folder, trust, "2.5.29.19"));
    CHECK_MESSAGE("authority's");
    fed_trust_destroy(trust);
}

static void test_another_authority_is_not_ours(void)
{
    char ours[4096], theirs[4096];
    struct fed_identity who;

    snprintf(ours, sizeof ours, "%s", in(test_folder(), "ours"));
    snprintf(theirs, sizeof theirs, "%s", in(test_folder(), "theirs"));
    CHECK_OK(fed_authority_create(ours, hosts, 2));
    CHECK_OK(fed_authority_create(theirs, hosts, 2));
    CHECK_OK(enrol(theirs, "a"));
    struct fed_trust *trust = trust_of(ours);
    CHECK_STATUS(STATUS_MISMATCH, judge(trust, in(theirs, "a/cert.pem"), time(NULL), &who));
    CHECK_TEXT("", who.name);
    fed_trust_destroy(trust);
    CHECK_STATUS(STATUS_MISMATCH, fed_trust_create(in(ours, "authority.pem"),
                                                   in(theirs, "revoked.pem"), &trust));
    CHECK_STATUS(STATUS_USAGE, fed_authority_create(ours, hosts, 2));
}

/* A member asks for its own keys to be signed; the name is the one that the authority gives. */
static void test_requests_bring_keys_and_no_names(void)
{
    const char *folder = test_folder();
    char member[4096], request[4200];
    struct fed_identity who;

    snprintf(member, sizeof member, "%s", in(folder, "elsewhere"));
    snprintf(request, sizeof request, "%s/request.pem", member);
    CHECK_OK(fed_authority_create(folder, hosts, 2));
    CHECK_OK(fed_request(member, "mallory", FED_ROLE_PARTICIPANT));
    CHECK_STATUS(STATUS_USAGE, fed_request(member, "mallory", FED_ROLE_PARTICIPANT));
    const struct fed_enrolment one = {
        .name = "alice", .role = FED_ROLE_PARTICIPANT, .days = 2, .request = request
    };
    CHECK_OK(fed_enrol(folder, &one));
    CHECK(!file_exists(in(folder, "alice/key.pem")));
    struct fed_trust *trust = trust_of(folder);
    CHECK_OK(judge(trust, in(folder, "alice/cert.pem"), time(NULL), &who));
    CHECK_TEXT("alice", who.name);
    CHECK(who.has_sign);
    fed_trust_destroy(trust);
}

static void test_names_are_no_paths(void)
{
    CHECK_STATUS(STATUS_USAGE, enrol(test_folder(), "../x"));
    CHECK_STATUS(STATUS_USAGE, enrol(test_folder(), "coordinator"));
    CHECK_STATUS(STATUS_NOT_FOUND, enrol("/nonexistent", "x"));
}

const struct test tests[] = {
    { .name = "members are known until they expire",
      .run = test_members_are_known_until_they_expire },
    { .name = "a revocation holds at once", .run = test_a_revocation_holds_at_once },
    { .name = "what cannot be read is refused", .run = test_what_cannot_be_read_is_refused },
    { .name = "another authority is not ours", .run = test_another_authority_is_not_ours },
    { .name = "requests bring keys and no names",
      .run = test_requests_bring_keys_and_no_names },
    { .name = "names are no paths", .run = test_names_are_no_paths },
    { 0 },
};
