/* SPDX-License-Identifier: Apache-2.0 */
/* Writes certificates and recognises their keys. Needs no open engine, because a node that only verifies has no
 * journal. Blocks on local files only. */
#ifndef GP_ENGINE_CERTIFY_H
#define GP_ENGINE_CERTIFY_H

#include "model/certificate.h"

struct certified {
    struct strv paths;      /* written */
    struct strv refused;    /* per node without a certificate: the reason */
    struct sign_public key; /* that signed them */
};
void certified_clear(struct certified *c);
#define GP_AUTO_CERTIFIED GP_CLEANUP(certified_clear)
/* Writes a certificate for each ready node of the report: to/STACK-SLOT.certificate.json, or `to` itself if it ends in
 * .json (one node only). Removes the older certificate of a node that is not ready. The key is the stack's (made at
 * first use, 0600, in the stack's folder), else this machine's own. The caller initialises ret with {0} and frees it
 * with certified_clear. -GP_EUSAGE, -GP_EIO. */
int certify(const char *state_dir, const struct report *r, const char *to, int64_t ttl_ms, struct certified *ret,
            struct gp_error *err);
/* Whether the certificate's key was made on this machine: the stack's own, or the machine's. */
bool certify_known(const char *state_dir, const struct certificate *c);

#endif
