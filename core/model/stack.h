/* SPDX-License-Identifier: Apache-2.0 */
/* A stack, its nodes and the resources that a provider made for it: plain data. */
#ifndef GP_MODEL_STACK_H
#define GP_MODEL_STACK_H

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

/* Identity of a stack; all strings owned. */
struct stack {
    char *owner, *name;
    char *uid;                    /* 16 random hex digits, kept in the cloud's claim; NULL: not claimed yet */
    char *spec_hash;              /* 64 hex digits */
    char *unit;                   /* the folder of specs that it belongs to; "" or NULL: none. Not in the journal */
    char *provider, *region;      /* home: the place of the claim */
    int64_t created_s, expires_s; /* wall, cloud's clock */
    int64_t moving_s;             /* the deadline to which a run began to move it; 0: none did. Only in the journal */
};
void stack_clear(struct stack *s);
/* The copies below clear what was in `to` (zeroed or valid) first. */
void stack_copy(struct stack *to, const struct stack *from);

enum resource_kind {
    RES_INSTANCE,
    RES_GROUP, /* security group; the claim is one */
    RES_KEY_PAIR,
    RES_VOLUME,
    RES_HOLDER,    /* local: the process that holds a stack */
    RES_HOST,      /* ssh: a machine that existed before; destroy releases it */
    RES_IMAGE,     /* baked by gpuprov: it outlives its stack (model/image.h) */
    RES_SNAPSHOT,  /* the disk of such an image */
    RES_PLACEMENT, /* nodes of it are close to each other in the cloud's network */
    RES_ADDRESS,   /* a public address that outlives its node */
    RES_NETWORK,   /* a VPC of the stack's own */
    RES_SUBNET,    /* in such a network */
    RES_NIC,       /* left behind by its instance */
    RES_GRANT,     /* a right of one node at the cloud, such as to delete itself */
    RES_KIND_MAX = RES_GRANT
};
enum resource_state {
    RES_PENDING, /* accepted, not running yet */
    RES_RUNNING,
    RES_STOPPING, /* on its way to gone */
    RES_STOPPED,  /* off, but not terminated (may still be billed) */
    RES_GONE      /* terminal */
};
const char *resource_kind_name(enum resource_kind k); /* "instance", "group", ... */
bool resource_kind_parse(const char *name, enum resource_kind *ret);
const char *resource_state_name(enum resource_state s); /* "pending", ... */
bool resource_state_parse(const char *name, enum resource_state *ret);

/* Why a resource counts as the stack's, in order of certainty. */
enum resource_ours {
    OURS_NOT,     /* its tags claim it, and everybody who may tag can write those */
    OURS_PROVEN,  /* its proof holds (proof.h) */
    OURS_LAUNCHED /* the cloud's reply to a create call of this journal named it, or its list is this machine's own */
};

/* Anything that a provider created (or borrowed: RES_HOST). All strings owned, "" when unknown. */
struct resource {
    enum resource_kind kind;
    char *provider, *region, *zone;
    char *id;
    char *owner, *stack, *uid, *spec_hash; /* from its tags */
    char *unit;                            /* likewise; "": none. Not in the journal */
    int slot;                              /* instances and hosts: the node's index; -1 otherwise */
    int attempt;
    enum resource_state state;
    char *state_reason; /* the cloud's own text; "" */
    bool billed;
    bool claim; /* this is the stack's claim */
    char *instance_type;
    double price_usd_per_h;       /* negative: not known */
    int64_t created_s, expires_s; /* 0: not known */
    int64_t gone_s;               /* when the journal noted RES_GONE; 0: it did not */
    char *private_ip, *public_ip;
    uint16_t ssh_port; /* 0: 22 */
    char *dial_socket; /* local: the holder's socket; "" elsewhere */
    char *user;        /* login name; "" : gpuprov */
    char *host_keys;   /* trusted keys: lines "ssh-ed25519 AAAA.." or "SHA256:.."; "" */
    /* What its tags prove (proof.h); "": no such tag. Not in the journal. */
    char *launch;               /* the launch that made it... */
    int slot_first, slot_count; /* ...and the slots of that launch; -1, 0: not known */
    char *proof;                /* the machine with its host key, or the baked image with its facts */
    char *deadline;             /* expires_s */
    enum resource_ours ours;    /* in the journal; never from a tag */
    char *bastion;              /* "user@host[:port]"; "" */
    char *login_key;            /* ssh: private key path from the hosts file; "" */
    char *known_hosts;          /* ssh: path; "" */
    char *image;      /* of an image and its snapshots: what it has (model/image.h); of a node: the baked image that it
                          was made from. "" */
    char *snapshots;  /* of an image: the ids of its snapshots as the cloud has them, "a b"; "". Not in the journal */
    char *of_image;   /* of a snapshot: the image that the cloud states it was made for; "". Not in the journal */
    char *account;    /* its account at the cloud; "" where there is none, or unknown */
    char *regions;    /* of a claim: regions of the stack's resources (tags.h); "": unknown */
    char *unreadable; /* why its tags did not decode, one line; "": they did. Without owner, stack
                              and uid it has no owner: it is reported, never used, destroyed or recorded */
    int rdma;         /* RDMA devices that the cloud gives it; -1: unknown. Not in the journal */
    bool ends_itself; /* the cloud shows that this node may delete itself at its deadline. Not in the journal */
    char *ingress;    /* of a group: who may connect, besides its own members, one rule a line: "tcp 22 10.0.0.0/8",
                          "all 0.0.0.0/0"; "none": nobody; "": unknown. Not in the journal */
    char *market;     /* "on-demand", "spot"; "": unknown. Not in the journal */
    int gpus;         /* GPUs of the node's offer; -1: unknown */
    bool other_run;   /* launched by another run at the same time: it has that run's
                              first-contact key */
};
struct resource_list {
    VEC_OF(struct resource) list;
};
void resource_init(struct resource *r, enum resource_kind kind, const char *provider); /* "" everywhere */
void resource_fill(struct resource *r);             /* strings that are NULL become "" */
void resource_set(char **field, const char *value); /* frees, copies; NULL becomes "" */
void resource_clear(struct resource *r);
void resource_copy(struct resource *to, const struct resource *from);
void resource_list_add(struct resource_list *to, const struct resource *r); /* a copy */
/* One thing at a provider: ids of different kinds may be alike where users choose one of them. */
bool resource_same(const struct resource *a, const struct resource *b);
bool resource_list_has(const struct resource_list *l, const struct resource *r);
void resource_list_clear(struct resource_list *l);
/* Whether a stack's claim can be of this kind: anybody can tag anything as one. */
bool resource_may_claim(enum resource_kind k);
/* A node's machine: an instance, or a host that existed before. */
bool resource_is_machine(const struct resource *r);
#define GP_AUTO_RESOURCES GP_CLEANUP(resource_list_clear)

/* The phase of a node, in order of progress; a phase only moves forward,
 * except to NODE_FAILED, NODE_ENDING and NODE_GONE, and from FAILED back to LAUNCHING by a replacement. */
enum node_phase {
    NODE_PLANNED,
    NODE_LAUNCHING,
    NODE_REACHING,
    NODE_BOOTSTRAPPING,
    NODE_CHECKING, /* node checks */
    NODE_WAITING,  /* at the barrier */
    NODE_GANG,     /* gang checks */
    NODE_READY,
    NODE_FAILED,
    NODE_ENDING, /* its termination was requested; not yet gone */
    NODE_GONE,   /* complete lists of its region no longer show it */
    NODE_PHASE_MAX = NODE_GONE
};
const char *node_phase_name(enum node_phase p); /* "launch", "reach", "bootstrap", ... "ready" */
bool node_phase_parse(const char *name, enum node_phase *ret);
bool node_phase_legal(enum node_phase from, enum node_phase to);

#endif
