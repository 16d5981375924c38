/* SPDX-License-Identifier: Apache-2.0 */
/* The provider seam: what every cloud can do for gpuprov. One folder per provider, one row in
 * PROVIDER_ROWS. All calls may block on the network, hear env->cancel at once, and are called from one
 * thread at a time per open provider. Errors: GP_ECAPACITY/GP_EQUOTA/GP_EAUTH... with err->scope and
 * the cloud's own code in err->detail. */
#ifndef GP_PROVIDER_H
#define GP_PROVIDER_H

#include "base/clock.h"
#include "base/error.h"
#include "journal/journal.h"
#include "model/coverage.h"
#include "model/event.h"
#include "model/offer.h"
#include "model/spec.h"
#include "model/spec_provider.h"
#include "model/stack.h"

/* What a node can do about its own deadline. */
enum guest_end {
    GUEST_NOTHING,  /* a poweroff stops the node, not the bill */
    GUEST_POWEROFF, /* a poweroff terminates it: its own unit is installed and must run */
};
/* What a node is: containers have no kernel, driver or init of their own. */
enum node_shape { NODE_VM, NODE_CONTAINER };

struct provider_env {
    struct gp_cancel *cancel;
    struct journal *journal;       /* every create commits an intent here first */
    const char *state_dir;         /* absolute; providers/local keeps its stacks below state_dir/local */
    const char *owner;             /* NULL: the cloud principal decides */
    const struct spec *spec;       /* NULL for gc; ssh needs its hosts files */
    bool accept_new_host_key;      /* ssh: a host without a known key may be reached, said aloud */
    const struct event_sink *sink; /* may be NULL */
};

struct provider_ops;
/* Base of every open provider; implementations embed it first. */
struct provider {
    const struct provider_ops *ops;
    char *owner;          /* set by open: env->owner or the cloud principal's short form; owned */
    const char *account;  /* which account the credentials are for, set by open; NULL: no accounts there */
    int64_t clock_skew_s; /* cloud's clock minus ours, as last seen */
};

struct prepare_req {
    struct stack *stack; /* in: owner, name, spec_hash, region (home), expires_s, uid (NULL: a new one is
                            made, set: a claim with it may be there).
                            out: uid, region and the times. The times of a claim that was there
                            already are taken over only when another run of the same spec made it a moment
                            ago; else the spec's are written to the claim: nobody else's deadline, spec or
                            access counts for machines that are not there yet. */
    const struct spec *spec;
    bool further; /* the stack is claimed at another provider: the claim here bears that uid */
    /* NULL, or all that is known of a stack that has machines: nothing is claimed then. What the spec may
       change under machines is applied: who may reach them. Borrowed. */
    const struct resource_list *known;
};

struct create_req {
    const struct stack *stack;
    const struct spec *spec;
    const struct offer *offer;
    int slot_first, slot_count; /* the gang: all or none of them where the cloud can promise that */
    int attempt;
    const char *login_pubkey;     /* one authorized_keys line */
    const char *user_data;        /* rendered cloud-init; "" where there is none */
    const char *host_key_private; /* first-contact key in OpenSSH PEM; "" where not used */
    const char *host_key_public;
    const struct intent *replay; /* not NULL: an earlier intent whose outcome is unknown: replay its
                                     token and body exactly */
};

struct list_req {
    const char *owner;          /* never NULL */
    const char *stack;          /* NULL: every stack of the owner */
    const char *uid;            /* NULL, or: the owner's machines with this uid too, whatever stack their tags name */
    const struct strv *regions; /* NULL: every region the provider can see (gc) */
    bool everywhere;            /* every region the provider can see, and `regions` in any case */
    /* What the journal knows of it, or NULL: machines that the tags no longer show (somebody changed them) are
       looked for by id, and listed with whatever tags they have. Borrowed. */
    const struct resource_list *known;
    bool nodes_only;         /* a poll of nodes: what is no RES_INSTANCE or RES_HOST may be left out */
    struct coverage *looked; /* out, may be NULL: each region, whether it was listed wholly or why not */
};

/* At most 8 slots. Unless said otherwise a slot is never NULL. */
struct provider_ops {
    const char *name;
    const char *summary;              /* one line for `gpuprov providers` */
    const struct spec_provider *spec; /* what a spec may say of it: the row that the spec language gets */
    const char *note;                 /* what `plan` prints with its offers; NULL: nothing */
    enum offer_ends ends;             /* of its offers, unless one says otherwise (offer.ends) */
    enum guest_end guest_end;
    enum node_shape node_shape;
    size_t user_data_max;    /* bytes; 0: it takes none */
    int64_t poll_ms;         /* pause between two lists while nodes start: the shortest that its rate limits bear */
    int64_t replay_max_s;    /* how long a repeated token is answered with what it made first; 0: never repeated,
                                only looked for */
    bool principal;          /* the cloud knows whose credentials these are; else the login name is the owner */
    bool unique_claim;       /* the cloud keeps a stack's name unique; false: single writer only */
    bool user_data;          /* create wants rendered cloud-init and a first-contact host key */
    bool lent;               /* its machines exist without us: destroy releases them, gc ends none */
    bool key_rotation;       /* the host key came with user-data and must be replaced */
    bool billed;             /* nodes cost money */
    int64_t boot_timeout_ms; /* from create to an SSH banner */
    int64_t settle_ms;       /* how long a tag list may lag behind a create */

    /* Facts that need this machine or an account. NULL: packages can be installed; there is no policy. Not counted
       among the slots: neither acts in the cloud. */
    bool (*packages)(const char **ret_why);                                  /* *ret_why: the refusal, static */
    int (*policy)(const char *owner, char **ret_json, struct gp_error *err); /* least permissions of one owner */

    /* Finds credentials and endpoint. Makes at most one call (who am I). -GP_EAUTH, -GP_EENV. */
    int (*open)(const struct provider_env *env, struct provider **ret, struct gp_error *err);
    void (*close)(struct provider *p); /* accepts NULL */
    /* Everything of spec->offers[index] that could be bought now for one gang of spec->nodes, best
     * first by the cloud's own knowledge. Buys nothing. None fits: -GP_ECAPACITY with the reason. */
    int (*offers)(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err);
    /* Claims the stack (see prepare_req). Idempotent. */
    int (*prepare)(struct provider *p, const struct prepare_req *req, struct gp_error *err);
    /* Creates the gang, after its intent (one per machine where a call makes one: common/slot_create.h). Returns once
     * placement is decided, with ids known and committed (appended to ret); never waits for boot. A request that the
     * cloud accepted and then failed is a refusal, with the scope of its cause. -GP_EUNKNOWN: the outcome is not
     * known; the intent stays open. On a refusal or an unknown outcome ret has what was made all the same, committed.
     * Makes per-region things (group, key) that it needs, each after its own intent. */
    int (*create)(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
    /* Resources of EVERY kind the provider makes, by tag, the claim included. An empty list proves
     * nothing: callers read twice. Terminal ones may be listed as RES_GONE for a while. On an error
     * ret holds what could be read: that is there, and what is not in it proves nothing; req->looked
     * tells which places were read wholly. Tags are decoded (model/tags.h): what is not understood comes
     * with `unreadable`, never with a made-up identity. */
    int (*list)(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
    /* Starts the end of every resource given (instances before groups); missing ones are success.
     * Does not wait for the end; a group still in use is left alone without error (list shows it).
     * Tries all even when one fails; err is the first failure. */
    int (*destroy)(struct provider *p, const struct resource_list *what, struct gp_error *err);
    /* Sets one late tag on instances ("hostkey"). May be NULL where trust needs none. */
    int (*tag)(struct provider *p, const struct resource_list *what, const char *key, const char *value,
               struct gp_error *err);
};

/* One row per provider: its folder defines struct provider_ops provider_NAME. */
#define PROVIDER_ROWS(row) row(local) row(ssh) row(aws)
#define PROVIDER_DECLARE(name) extern const struct provider_ops provider_##name;
PROVIDER_ROWS(PROVIDER_DECLARE)
extern const struct provider_ops *const provider_registry[]; /* the rows; NULL ends */
const struct provider_ops *provider_find(const char *name);  /* NULL when unknown */

/* Before the first spec is read: shows all rows' `spec` to the spec language. */
void provider_specs_register(void);

/* alone in its file: tests with another provider of that name use it */
extern const struct spec_provider aws_spec;

#endif
