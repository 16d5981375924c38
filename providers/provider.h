/* SPDX-License-Identifier: Apache-2.0 */
/* The provider interface: the operations of a cloud or other source of nodes. One folder per provider, one row in
 * PROVIDER_ROWS. All calls may block on the network and return at once when env->cancel is set. One thread at a
 * time calls an open provider. Errors: GP_ECAPACITY/GP_EQUOTA/GP_EAUTH... with err->scope and
 * the cloud's own code in err->detail. */
#ifndef GP_PROVIDER_H
#define GP_PROVIDER_H

#include "base/clock.h"
#include "base/error.h"
#include "base/secret.h"
#include "journal/journal.h"
#include "model/coverage.h"
#include "model/event.h"
#include "model/offer.h"
#include "model/proof.h"
#include "model/stack.h"
#include "spec/spec.h"
#include "spec/spec_provider.h"

#define PROVIDER_NO_CREDENTIALS "NoCredentials"
/* Whether this machine has no credentials at all for a provider. A service's own code may be the same word. */
static inline bool provider_no_credentials(const struct gp_error *why) {
    return why->domain != GP_D_CLOUD && strcmp(why->detail, PROVIDER_NO_CREDENTIALS) == 0;
}

/* The effect of a node's poweroff, which decides whether the node can enforce its own deadline. */
enum guest_end {
    GUEST_NOTHING,  /* a poweroff stops the node, not the bill */
    GUEST_POWEROFF, /* a poweroff terminates it: bootstrap requires the deadline unit on it */
    GUEST_DELETES,  /* a poweroff does not, but a node with the right to (offer.ends, resource.ends_itself) deletes
                       itself: its deadline unit runs end_script */
};
/* The kind of a node. A container of a cloud has no kernel, driver, init or mounts of its own: bootstrap takes only the
 * steps that need none, user_data is the script that starts its sshd, and its spec_provider has `container` set. A
 * clone of this machine shares what the machine has. */
enum node_shape { NODE_VM, NODE_CONTAINER, NODE_CLONE };

struct provider_env {
    struct gp_cancel *cancel;
    struct journal *journal; /* every create commits an intent here first */
    const char *state_dir;   /* absolute; providers/local keeps its stacks below state_dir/local */
    const char *owner;       /* NULL: derived from the cloud principal */
    const struct spec *spec; /* NULL for gc; ssh reads its hosts files */
    /* The key of the owner's signing key (model/image_key.h): baked images count only with their proof, or if this
     * journal made them. Known, or NULL: this machine has no signing key. Borrowed for the call of open. */
    const struct proof_key *image_key;
    bool accept_new_host_key;      /* ssh: accept a host without a known key; the caller reports it */
    const struct event_sink *sink; /* may be NULL */
};

struct provider_ops;
/* Base of every open provider; implementations embed it first. */
struct provider {
    const struct provider_ops *ops;
    char *owner;         /* set by open: env->owner or the cloud principal's short form; owned */
    const char *account; /* the account of the credentials, set by open; NULL: the provider has none */
    /* No call of the cloud names the account, so `account` stands for the API key (api_key_account). Another key may be
       of the same account: a list with it counts once it has shown a resource that the journal has. */
    bool account_is_key;
    const char
        *principal_owner; /* the owner that the credentials stand for, set by open; NULL: the provider has none */
    int64_t clock_skew_s; /* cloud's clock minus ours, as last seen */
    /* When the credentials of this machine end without renewal (wall, the cloud's clock), set by open where that is
       certain. 0: never, or not known. */
    int64_t credentials_until_s;
};

struct prepare_req {
    struct stack *stack; /* in: owner, name, spec_hash, region (home), expires_s, uid (NULL: a new one is
                            created; set: a claim with it may exist).
                            out: uid, region and the times. The times of an existing claim are kept only
                            if another run of the same spec created it a moment ago. Otherwise the spec's
                            times are written to the claim, because deadline, spec and access of another
                            run do not apply to machines that do not exist yet. */
    const struct spec *spec;
    bool further; /* the stack is claimed at another provider: the claim here has that uid */
    /* NULL, or all known resources of a stack that has machines. Then nothing is claimed, and only changes that
       running machines allow are applied: the networks that may reach them and, with spec->moves_deadline,
       the deadline stack->expires_s. Machines of a launch that was cut are completed, and their
       ends_itself is set. Borrowed. */
    struct resource_list *known;
};

struct create_req {
    const struct stack *stack;
    const struct spec *spec;
    const struct offer *offer;
    int slot_first, slot_count; /* the gang: all or none, where the cloud guarantees that */
    int attempt;
    /* Known. For the launch's token and its tags (tags_of_launch), and to check what a list shows of a launch whose
       reply was lost: machines count only if their launch is proven and none has a rival. */
    const struct proof_key *proof;
    const char *login_pubkey;     /* one authorized_keys line */
    const char *user_data;        /* rendered cloud-init or start script; "" where there is none */
    const char *host_key_private; /* first-contact key in OpenSSH PEM; "" where not used */
    const char *host_key_public;
    /* Not NULL: an earlier intent whose outcome is unknown: replay its token and body exactly. The offer then has only
       the intent's provider, region and zone: everything else is in the body. */
    const struct intent *replay;
};

/* A tag that is written after the create call. */
struct late_tag {
    const char *key, *value;
};

struct list_req {
    const char *owner;          /* never NULL */
    const char *stack;          /* NULL: every stack of the owner */
    const char *uid;            /* not NULL: also the owner's machines with this uid, whatever stack their tags name */
    const struct strv *regions; /* NULL: every enabled region (gc) */
    bool everywhere;            /* every enabled region, and `regions` in any case */
    /* The stack's resources in the journal, or NULL. Machines whose tags were changed are found by id and listed
       with the tags that they have. Borrowed. */
    const struct resource_list *known;
    bool nodes_only;         /* a poll of nodes: only RES_INSTANCE and RES_HOST are required */
    bool images;             /* baked images and their snapshots, and nothing else: they outlive their stacks, so no
                                other list has them. stack and uid NULL */
    struct coverage *looked; /* out, may be NULL: each region, and whether its list is complete or why not */
};

/* Makes an image of a node that was bootstrapped, validated and cleaned for it. */
struct image_req {
    const struct stack *stack; /* of the node: its uid is the image's, and one uid has one image */
    const struct resource *node;
    const char *name;  /* the spec's name: the image's tag `stack` */
    const char *facts; /* model/image.h */
    /* Not NULL: an earlier intent (RES_IMAGE) whose outcome is unknown. The node may be NULL then: nothing is
     * requested, and -GP_ENOTFOUND means that nothing came of it. */
    const struct intent *replay;
};
/* Images outlive their stacks: list (list_req.images) lists them, with `ours` of those that this journal made or whose
 * proof holds (model/image.h). destroy removes an image with its snapshots. */
struct image_ops {
    /* Commits an intent, stops the node and requests the image, with all tags but the proof in that call. A second
     * request of the same stack returns the first one's image. ret: the image, which is ours and may be pending or
     * failed later: list shows it. The journal has its record (image_record) and the intent stays open, with the image
     * as its operation, until the caller ends it. */
    int (*make)(struct provider *p, const struct image_req *req, struct resource *ret, struct gp_error *err);
    /* Writes the tag `proof` of one image or snapshot, and in the same call the tag `image`, which it proves. NULL
     * where nobody else can write an image's record. */
    int (*prove)(struct provider *p, const struct resource *what, const char *proof, struct gp_error *err);
};

/* The right of a node to end itself with a credential that it gets over SSH. A node that has it and has used it is
 * listed with ends_itself. */
struct self_end_ops {
    /* Makes the credential of one node after its intent, and reads it back. An earlier one of the node is removed. ret:
     * the text of the file for the node; empty: the spec does not want it. */
    int (*make)(struct provider *p, const struct stack *stack, const struct spec *spec, const struct resource *node,
                struct secret *ret, struct gp_error *err);
    /* The node has used it: from now on list shows ends_itself. */
    int (*confirm)(struct provider *p, const struct resource *node, struct gp_error *err);
};

/* At most 9 function slots. A slot is never NULL unless its comment allows it. */
struct provider_ops {
    const char *name;
    const char *summary;              /* one line for `gpuprov providers` */
    const struct spec_provider *spec; /* its row of the spec language */
    const char *note;                 /* `plan` prints it with the offers; NULL: none */
    enum offer_ends ends;             /* default of its offers (offer.ends) */
    enum guest_end guest_end;
    const char *end_script; /* GUEST_DELETES: the template (templates/) with which a node deletes itself; else NULL */
    enum node_shape node_shape;
    size_t user_data_max;    /* bytes; 0: not supported */
    int64_t poll_ms;         /* pause between two lists while nodes start: the shortest that its rate limits allow */
    int64_t replay_max_s;    /* how long a repeated token returns the machines of its first request; 0: never
                                repeated, only searched by tags */
    bool principal;          /* the cloud identifies the credentials' principal; else the login name is the owner */
    bool unique_claim;       /* the cloud enforces unique stack names; false: a single writer is required */
    bool user_data;          /* create requires user-data (cloud-init, or the start script of a container) with a
                                first-contact host key */
    bool lent;               /* its machines exist without gpuprov: destroy releases them, gc destroys none */
    bool key_rotation;       /* the host key came with user-data and must be replaced */
    bool own_list;           /* this machine alone decides what the list has (state folder, hosts file): nothing in it
                                was written by somebody else */
    bool late_host_key;      /* sshd runs before the startup script has replaced the host keys of the image */
    bool billed;             /* nodes cost money */
    const char *notices;     /* its name for the agent's `watch --notices`; NULL: its nodes get no notice that they are
                                taken back */
    int64_t boot_timeout_ms; /* from create to a login */
    int64_t settle_ms;       /* longest lag of a tag list behind a create */

    /* Facts that depend on this machine, an account or a type. NULL: packages can be installed; there is no policy;
       boot_timeout_ms is that of every type. They are not counted as slots, because none calls the cloud. */
    bool (*packages)(const char **ret_why);                                       /* *ret_why: the refusal, static */
    int (*policy)(const char *owner, char **ret_json, struct gp_error *err);      /* least permissions of an owner */
    int (*node_policy)(const char *owner, char **ret_json, struct gp_error *err); /* rights of a node itself, or NULL */
    const char *policy_refusal; /* policy NULL: the reason, a clause without a full stop */
    /* For the verb doctor: tries the account from here, creates nothing, costs nothing. text: facts, one a line.
     * usable false: it is not configured, and text has the reason. Negative: it is configured and does not work. */
    int (*doctor)(struct str *text, bool *ret_usable, struct gp_error *err);
    /* What happened to the node that can be the cause of any failure on it; NULL: nothing known. Caller frees. */
    char *(*trouble)(const struct resource *node);

    const struct self_end_ops *self_end; /* NULL: a node gets no credential over SSH */
    const struct image_ops *images;      /* NULL: no images can be made here; image_refusal has the reason */
    const char *image_refusal;

    int64_t (*boot_timeout)(const char *instance_type, int gpus); /* of types that are known to be slow; 0: no such */

    /* Finds credentials and endpoint. Makes at most one call (who am I). -GP_EAUTH (with the detail
       PROVIDER_NO_CREDENTIALS if this machine has none at all), -GP_EENV. */
    int (*open)(const struct provider_env *env, struct provider **ret, struct gp_error *err);
    void (*close)(struct provider *p); /* accepts NULL */
    /* All offers of spec->offers[index] for one gang of spec->nodes, best first by
     * the provider's own order. Buys nothing. None fits: -GP_ECAPACITY with the reason. */
    int (*offers)(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                  struct gp_error *err);
    /* Claims the stack (see prepare_req). Idempotent. */
    int (*prepare)(struct provider *p, const struct prepare_req *req, struct gp_error *err);
    /* Creates the gang after its intent; one intent per machine where a call creates one (common/slot_create.h).
     * Returns once placement is decided, with all ids committed and appended to ret; never waits for boot. A request
     * that the cloud accepted and then failed is a refusal, with the scope of its cause. -GP_EUNKNOWN: the outcome is
     * unknown; the intent stays open. On a refusal or an unknown outcome ret has the machines that were created
     * nevertheless, committed. Creates required per-region resources (group, key), each after its own intent. */
    int (*create)(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err);
    /* Lists resources of EVERY kind that the provider creates, by tag, including the claim. An empty list does not
     * prove absence: callers read twice. Terminated resources may be listed as RES_GONE for a while. On an error
     * ret has the resources that could be read; others may exist. req->looked has the places whose list is
     * complete. Tags are decoded (model/tags.h): a resource whose tags do not decode has
     * `unreadable` set and no identity. */
    int (*list)(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err);
    /* Starts the destruction of all given resources (instances before groups); missing ones are success.
     * Does not wait for it. A group still in use is kept without an error (list shows it).
     * Tries all even when one fails; err is the first failure. */
    int (*destroy)(struct provider *p, const struct resource_list *what, struct gp_error *err);
    /* Sets n later tags on instances, in as few calls as the cloud allows: "hostkey" with "proof", or "expires" with
     * "deadline" (model/proof.h). A proof is never written without what it proves. NULL where trust does not depend on
     * a tag. */
    int (*tag)(struct provider *p, const struct resource_list *what, const struct late_tag *tags, size_t n,
               struct gp_error *err);
    /* Appends the last part of a machine's console, at most 64 KiB, as the cloud has it: foreign text, any bytes but
       NUL. Empty: the cloud has none yet. NULL where machines have no console that can be read. */
    int (*console)(struct provider *p, const struct resource *machine, struct str *ret, struct gp_error *err);
};

/* One row per provider: its folder defines struct provider_ops provider_NAME. */
/* clang-format off */
#define PROVIDER_ROWS(row) \
    row(local) row(ssh) row(aws) row(alibaba) row(google) \
    row(azure) row(openstack) row(lambda) row(runpod) row(shadeform)
/* clang-format on */
#define PROVIDER_DECLARE(name) extern const struct provider_ops provider_##name;
PROVIDER_ROWS(PROVIDER_DECLARE)
extern const struct provider_ops *const provider_registry[]; /* the rows; NULL ends */
const struct provider_ops *provider_find(const char *name);  /* NULL when unknown */

/* Registers all rows' `spec` with the spec language. Call it once, before the first spec is read. */
void provider_specs_register(void);

/* in a file of its own, because tests use it with another provider of that name */
extern const struct spec_provider aws_spec;

#endif
