/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates on disk and the machine that this program runs on. Needs no open engine: a node that only
 * verifies has no journal. Blocks on local files alone. */
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

/* From /proc: the boot, NVIDIA's driver and its GPUs. -GP_EENV: the boot cannot be read. */
int machine_read(struct machine *ret, struct gp_error *err);
#define GP_AUTO_MACHINE GP_CLEANUP(machine_clear)
/* /dev/nvidiaN there are; with none, NVIDIA GPUs on the PCI bus. Asks no driver. */
int machine_gpu_count(void);

#endif
