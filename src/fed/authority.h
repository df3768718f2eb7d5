/* SPDX-License-Identifier: MIT */
/* authority.h - the federation's own certificate authority: a folder.
 *
 *   authority.pem       its certificate, which everybody gets
 *   authority-key.pem   its key, which nobody else gets (mode 0600)
 *   revoked.pem         the list of revoked certificates, signed
 *   issued/NAME.pem     the last certificate of each name
 *   NAME/               what a member is given: cert.pem, authority.pem, and where the keys were made here
 *                       key.pem (TLS) and, of participants, identity.pem (Ed25519)
 *   coordinator/        the same for the coordinator, with a copy of revoked.pem
 *
 * Keys of TLS are ECDSA P-256, which browsers take too. A member who does not want the authority to have its
 * keys makes them itself (fed_request) and gives the request to fed_enrol.
 */
#ifndef FED_AUTHORITY_H
#define FED_AUTHORITY_H

#include "base/status.h"
#include "fed/trust.h"

#define FED_COORDINATOR "coordinator" /* its name */

/* Makes the authority in `folder`, which must not have one, and the coordinator's certificate for these host names
 * and addresses (ended by NULL). */
MUST_CHECK enum status fed_authority_create(const char *folder, const char *const *hosts,
                                            int days);

struct fed_enrolment {
    const char *name;
    enum fed_role role;  /* participant or viewer */
    int days;            /* it is valid */
    const char *request; /* file of fed_request; NULL: keys are made here */
};
/* Issues a certificate. A name that has a valid one is refused: revoke it first. */
MUST_CHECK enum status fed_enrol(const char *folder, const struct fed_enrolment *enrolment);
/* Revokes the certificate of a name; STATUS_NOT_FOUND if it has none. */
MUST_CHECK enum status fed_revoke(const char *folder, const char *name);

/* Makes keys in `folder` (key.pem, identity.pem), and request.pem to be given to the authority. */
MUST_CHECK enum status fed_request(const char *folder, const char *name, enum fed_role role);

/* Calls visit with every issued certificate, sorted by name; `why` is "" of a valid one, else why it is not. */
MUST_CHECK enum status
fed_authority_list(const char *folder,
                   void (*visit)(void *arg, const struct fed_identity *who, const char *why),
                   void *arg);

#endif /* FED_AUTHORITY_H */
