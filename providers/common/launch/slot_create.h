/* SPDX-License-Identifier: Apache-2.0 */
/* A gang at a cloud whose create request creates one machine. Each slot has one intent, token and body, all
 * committed before the first request. Each id is committed as soon as the cloud returns it. Lost replies
 * are settled by repeated requests where names or tokens are exclusive, else by proofs in tags (launched.h).
 * Placement is decided before the call returns. A provider supplies the table of its requests. Blocks on the
 * network through that table only. One thread. */
#ifndef GP_PROVIDERS_SLOT_CREATE_H
#define GP_PROVIDERS_SLOT_CREATE_H

#include "providers/provider.h"

enum slot_state {
    SLOT_UNKNOWN,  /* it may or may not have been created: err has the cause */
    SLOT_MADE,     /* placed: `made` has its id and place */
    SLOT_ACCEPTED, /* accepted, not placed yet: `operation` and, if already known, made.id */
    SLOT_REFUSED   /* not created, or created and failed: err; made.id when it must be removed */
};
/* Of one intent. Zeroed with resource_init(&made, RES_INSTANCE, provider) before each use. */
struct slot_outcome {
    enum slot_state state;
    /* Of send: refused because a machine has its name. `made` is that machine by its tags, with the state that it would
     * have as ours. No id: SLOT_REFUSED: it has the tags of another stack or launch; else it could not be read. */
    bool exists;
    struct resource made; /* which node of which stack it is says its intent, never a tag */
    char *operation;      /* the cloud's operation; owned; NULL: poll by made.id or by tags */
    struct gp_error err;
};

/* A cloud's requests. No slot may be NULL. */
struct slot_ops {
    const char *provider;
    int64_t settle_ms;    /* longest lag of its list behind a create */
    int64_t poll_ms;      /* pause between two polls of accepted requests */
    int64_t placement_ms; /* time after which a placement counts as undecided */
    int64_t replay_max_s; /* how long a repeated token returns its first machine; 0: never */
    /* Of a cloud without tokens: a request that left nothing in the lists is sent once more while its intent is
       younger. 0: never, it counts as refused. */
    int64_t repeat_max_s;
    /* The create request of one slot, as it is sent (kept in the journal). */
    int (*body)(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                struct gp_error *err);
    /* send gets one intent at a time, and its id is committed before the next one is sent. A refusal of the account,
       the type or the place is that of all further intents, which are not sent; neither are they after an id that could
       not be recorded. */
    bool one_by_one;
    /* Sends the bodies of n intents, in parallel where the cloud allows it; ret[i] belongs to in[i]. */
    void (*send)(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret);
    /* Polls n accepted requests: on entry ret[i] has the operation and id known so far, state SLOT_ACCEPTED. */
    void (*poll)(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret);
    /* Machines with this uid in the region, by tags: candidates. */
    int (*list)(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err);
    /* Starts the termination of machines; missing ones are success. */
    int (*destroy)(void *ctx, const struct resource_list *what, struct gp_error *err);
};

struct slot_create {
    const struct slot_ops *ops;
    void *ctx;           /* of ops */
    const char *account; /* the account of the credentials: part of each token */
    struct journal *journal;
    struct gp_cancel *cancel; /* may be NULL */
};

/* provider_ops.create: makes slots [slot_first, slot_first + slot_count), or settles req->replay (one slot).
 * 0: all of them are in ret. Otherwise ret has those that were created nevertheless, committed, and the worst of
 * the others decides:
 *   -GP_EUNKNOWN   some may or may not have been created: their intents stay open
 *   -GP_EBILLED    a failed machine could not be removed, or an id could not be recorded: its id is
 *                  in err
 *   -GP_ECANCELLED cancelled before the first request
 *   -GP_EREACH     another run has the name of a machine, and that has no proof (launched_by_other_run)
 *   -GP_EINTERNAL  no proof key
 *   the cloud's refusal (err->scope as usual), intents ended */
int slot_create(const struct slot_create *c, const struct create_req *req, struct resource_list *ret,
                struct gp_error *err);

#endif
