/* SPDX-License-Identifier: Apache-2.0 */
/* A certificate: the signed result of one node's validation, with its machine and its expiry. It is a DSSE
 * envelope (secure-systems-lab/dsse) of one JSON payload, so the signature covers exactly the bytes that are
 * read: {"payloadType", "payload": base64, "signatures": [{"keyid": fingerprint, "sig": base64}]}.
 * Pure; any thread. */
#ifndef GP_MODEL_CERTIFICATE_H
#define GP_MODEL_CERTIFICATE_H

#include "base/error.h"
#include "base/sign.h"
#include "base/str.h"
#include "model/report.h"

#define CERTIFICATE_SCHEMA "gpuprov/certificate/v1"
#define CERTIFICATE_TYPE "application/vnd.gpuprov.certificate.v1+json"
#define CERTIFICATE_MAX ((size_t)4 << 20) /* bytes of the file */

struct certificate {
    char *stack, *uid, *run, *instance, *host, *boot_id, *driver, *gpuprov;
    int node;
    enum verdict verdict;           /* pass or degraded: no other verdict is certified */
    struct strv gpus;               /* UUIDs, in the driver's order */
    int64_t validated_s, expires_s; /* wall seconds */
    struct sign_public key;         /* the key in the certificate; the caller decides whether to trust it */
    json_t *payload;                /* the whole payload */
};
void certificate_clear(struct certificate *c);
#define GP_AUTO_CERTIFICATE GP_CLEANUP(certificate_clear)

/* The file's text for node i of the report, valid for ttl_s from the start of the validation. Caller
 * frees. -GP_EVALIDATE: the node is not ready. */
int certificate_make(const struct report *r, size_t i, int64_t ttl_s, const struct sign_key *key, char **ret,
                     struct gp_error *err);
/* The envelope around an unchanged payload. Caller frees. */
int certificate_sign(const char *payload, size_t n, const struct sign_key *key, char **ret, struct gp_error *err);
/* Decodes and checks the signature with the key in the certificate itself.
 * -GP_EPROTO: cut short, not a certificate, of another version, or (detail "SIGNATURE") changed since
 * it was signed. Checks neither expiry nor trust in the key. */
int certificate_read(const char *text, size_t n, struct certificate *ret, struct gp_error *err);

/* The machine that this program runs on, as its kernel reports it. */
struct machine {
    char boot_id[40];
    char driver[40];  /* "" without an NVIDIA driver */
    struct strv gpus; /* UUIDs */
};
void machine_clear(struct machine *m);
/* -GP_EVALIDATE: another boot, other GPUs or another driver; the message names it. -GP_EENV: the driver
 * does not report its GPUs' UUIDs yet. */
int certificate_same_machine(const struct certificate *c, const struct machine *m, struct gp_error *err);

#endif
