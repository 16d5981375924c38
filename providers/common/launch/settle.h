/* SPDX-License-Identifier: Apache-2.0 */
/* A launch from its committed intent to a known outcome, for any cloud. After a lost reply the request is repeated with
 * its token, and the answer names the machines. Where that is not possible any more, they are searched in a list, and
 * count only with their proofs (launched.h). Ids are on disk before the caller has them. While the outcome is unknown,
 * the intent stays open. Blocks on the network. One thread. */
#ifndef GP_COMMON_SETTLE_H
#define GP_COMMON_SETTLE_H

#include "providers/provider.h"

struct cloud_launch {
    struct journal *journal;
    const struct gp_cancel *cancel;
    const struct intent *in; /* committed */
    const struct proof_key *proof;
    const char *stack;      /* its name, for errors */
    const char *account;    /* of the machines; NULL: the cloud has no accounts */
    double price_usd_per_h; /* of the offer; negative: unknown */
    int gpus;               /* negative: unknown */
    int64_t resend_s;       /* how long the cloud keeps in->token, so that a repeated request creates nothing; 0: it
                                has no tokens, and a request is never repeated */
    bool own_names;        /* "taken" is about names that have part of in->token: after an earlier request of the intent
                                they are its own */
    int64_t settle_ms;     /* how long a list may lag behind a create (provider_ops) */
    int64_t read_every_ms; /* pause between two reads; 0: 1 s */
    void *ctx;
    /* One create call with in->token and in->body. 0: made has the slot_count machines. -GP_EUNKNOWN: the outcome is
       unknown. Else a refusal; *ret_taken: the token or a name is taken by a request that is not this one. */
    int (*send)(void *ctx, const struct intent *in, struct resource_list *made, bool *ret_taken, struct gp_error *err);
    /* Whether the last refusal is the end of all sends: what they had made is removed. NULL: it never is. */
    bool (*is_over)(const void *ctx);
    /* Appends what claims to be the intent's machines, by tags. An empty list is not an error and proves nothing. */
    int (*find)(void *ctx, const struct intent *in, struct resource_list *seen, struct gp_error *err);
};

/* Call it right after the intent was committed. 0: the machines are in the journal and in ret. -GP_EUNKNOWN: the
 * intent stays open. -GP_EBILLED: launched, but not recorded; ret has them. Else refused, and the intent has ended.
 * -GP_EREACH among them: another run has the token, and its machines have no proof. -GP_EINTERNAL: no proof key. */
int cloud_launch_run(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err);
/* The same for an intent of an earlier call whose outcome is unknown. */
int cloud_launch_replay(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err);

/* --- groups and keys: their name is their token, so they are read back and never resent --- */

/* Ends a resource's intent after its create call: result 0: made is in the journal; a refusal: failed; -GP_EUNKNOWN:
 * it stays open. Returns result, or the error of the journal. why: the call's error, borrowed. */
int cloud_thing_created(struct journal *j, const struct intent *in, int result, const struct resource *made,
                        const struct gp_error *why, struct gp_error *err);
/* Ends every open intent of this kind, place and name: done where its uid is that of the existing resource, failed
 * where another claim won. */
int cloud_thing_settle(struct journal *j, const struct resource *there, const char *name, struct gp_error *err);

#endif
