/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates on disk. Needs no open engine: a node that only verifies has no journal. Blocks on local files
 * alone. */
#ifndef GP_ENGINE_CERTIFY_H
#define GP_ENGINE_CERTIFY_H

#include "model/certificate.h"

struct certified {
    struct strv paths;      /* written */
    struct strv refused;    /* why a node got none */
    struct sign_public key; /* they are signed with it */
};
void certified_clear(struct certified *c);
#define GP_AUTO_CERTIFIED GP_CLEANUP(certified_clear)
/* A certificate for each ready node of the report: to/STACK-SLOT.certificate.json, or `to` itself where
 * that ends in .json (one node only). A node that is not ready loses the file it may have there. The key
 * is the stack's (made at first use, 0600, in the stack's folder), else this machine's own. */
int certify(const char *state_dir, const struct report *r, const char *to, int64_t ttl_ms, struct certified *ret,
            struct gp_error *err);
/* Its key was made here: the stack's own, or this machine's. */
bool certify_known(const char *state_dir, const struct certificate *c);

#endif
