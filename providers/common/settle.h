/* SPDX-License-Identifier: Apache-2.0 */
/* A launch from its committed intent to a known outcome, for any cloud: a lost reply is looked for by the tags before
 * the same is sent again, ids are on disk before the caller has them, and while nobody knows, the intent stays open.
 * One thread. */
#ifndef GP_COMMON_SETTLE_H
#define GP_COMMON_SETTLE_H

#include "providers/provider.h"

struct cloud_launch {
    struct journal *journal;
    const struct gp_cancel *cancel;
    const struct intent *in; /* committed */
    const char *account;     /* that the machines are in; NULL: no accounts there */
    double price_usd_per_h;  /* of the offer; negative: not known */
    int gpus;                /* negative: not known */
    int64_t resend_s;        /* how long the cloud knows in->token, so that the same again makes nothing twice; 0: it
                                knows no tokens, and what was sent once is not sent again */
    int64_t settle_ms;       /* how long a list may lag behind a create (provider_ops) */
    int64_t read_every_ms;   /* pause between two reads; 0: 1 s */
    void *ctx;
    /* One create call with in->token and in->body. 0: made holds the slot_count machines. -GP_EUNKNOWN: the outcome is
       not known. Else a refusal; *ret_other_run: because another run launched the same, which the tags show. */
    int (*send)(void *ctx, const struct intent *in, struct resource_list *made, bool *ret_other_run,
                struct gp_error *err);
    /* What the intent made, by its tags; appended. Nothing is no error, and proves nothing. */
    int (*find)(void *ctx, const struct intent *in, struct resource_list *made, struct gp_error *err);
};

/* Right after the intent was committed. 0: the machines are in the journal and in ret. -GP_EUNKNOWN: the intent stays
 * open. -GP_EBILLED: launched, but not written down; ret holds them. Else refused, and the intent has ended. */
int cloud_launch_run(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err);
/* The same for an intent of an earlier call whose outcome is not known. */
int cloud_launch_replay(const struct cloud_launch *l, struct resource_list *ret, struct gp_error *err);

/* --- things that are no nodes: groups, keys; their name is their token, so they are read back and never resent --- */

/* Ends a thing's intent after its create call: result 0: made is in the journal; a refusal: failed; -GP_EUNKNOWN: it
 * stays open. Returns result, or why the journal did not take it; why: of the call, borrowed. */
int cloud_thing_created(struct journal *j, const struct intent *in, int result, const struct resource *made,
                        const struct gp_error *why, struct gp_error *err);
/* Ends every open intent of this kind, place and name by what is there: done where its uid is the thing's, failed
 * where another claim won. */
int cloud_thing_settle(struct journal *j, const struct resource *there, const char *name, struct gp_error *err);

#endif
