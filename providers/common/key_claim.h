/* SPDX-License-Identifier: Apache-2.0 */
/* The claim of a stack where the cloud keeps no name unique: an SSH key that nobody can log in with. Its name has a
 * hash of owner and stack, the uid and the time, its comment has the tags. Two runs agree while a list lags less than
 * half of wait_ms behind a creation. Keys cannot be changed, so that new times are a new key. Blocks on the network
 * through the table only. One thread. */
#ifndef GP_COMMON_KEY_CLAIM_H
#define GP_COMMON_KEY_CLAIM_H

#include "base/secret.h"
#include "model/tags.h"
#include "providers/provider.h"

/* A cloud's requests. No slot may be NULL. */
struct key_claim_ops {
    const char *provider;
    int64_t pause_ms; /* before a key that is not listed yet is searched again */
    int (*new_key)(const char *comment, struct secret *ret_private, char **ret_public,
                   struct gp_error *err); /* ssh.h */
    /* Calls each for every SSH key of the account: its id, name and public line, foreign texts. */
    int (*list)(void *ctx, void (*each)(void *arg, const char *id, const char *name, const char *line), void *arg,
                struct gp_error *err);
    /* Adds a key; *ret_id: caller frees. -GP_EUNKNOWN: the outcome is unknown. */
    int (*add)(void *ctx, const char *name, const char *line, char **ret_id, struct gp_error *err);
    int (*remove)(void *ctx, const char *id, struct gp_error *err); /* a missing key is success */
};
/* Of an open provider. */
struct key_claimer {
    const struct key_claim_ops *ops;
    void *ctx; /* of ops */
    struct provider *p;
    struct journal *journal;
    struct gp_cancel *cancel;
    int64_t wait_ms;       /* between a creation and the read that decides */
    char *uid, *name, *id; /* the last claim that was taken; owned, private */
};
void key_claimer_clear(struct key_claimer *k);

struct key_claim {
    char *id, *name;
    char *home;      /* region of the claim; "" where the comment does not decode */
    int64_t since_s; /* when the first key of this uid was requested, by the cloud's clock */
    struct tags tags;
};
struct key_claims {
    VEC_OF(struct key_claim) list;
};
void key_claims_clear(struct key_claims *c);
#define GP_AUTO_KEY_CLAIMS GP_CLEANUP(key_claims_clear)

/* Appends every key that has the name of a claim, also those of other owners. Their tags may be bad. */
int key_claims_read(struct key_claimer *k, struct key_claims *ret, struct gp_error *err);
void key_claim_resource(const struct key_claimer *k, const struct key_claim *c, struct resource *ret);
/* Names begin so for one owner and stack. Caller frees. */
char *key_claim_prefix(const char *owner, const char *stack);
/* A key for this stack (uid and times set): its name and a public line whose private key is dropped. */
int key_claim_build(const struct key_claimer *k, const struct stack *s, int64_t since_s, char **ret_name,
                    char **ret_line, struct gp_error *err);

/* provider_ops.prepare for a stack without machines; req->stack->region is set. */
int key_claim_take(struct key_claimer *k, const struct prepare_req *req, struct gp_error *err);
/* Finds the stack's claim: k->name and k->id. */
int key_claim_of(struct key_claimer *k, const struct stack *s, struct gp_error *err);
void key_claim_ended(struct key_claimer *k, const char *uid); /* its key was deleted */

#endif
