/* SPDX-License-Identifier: Apache-2.0 */
/* The nodes of a stack as other programs need them: plain data for the forms of `gpuprov export`. */
#ifndef GP_MODEL_EXPORT_H
#define GP_MODEL_EXPORT_H

#include "base/gp_base.h"
#include "base/str.h"
#include "base/vec.h"

/* All strings owned. */
struct export_node {
    int slot;
    char *name;            /* "llm-0", also its alias in the ssh config */
    char *id;              /* the provider's id */
    char *place;           /* "aws us-east-2a" */
    char *type;            /* the provider's instance type; "" */
    char *address;         /* where this machine connects to it */
    char *peer_address;    /* where the other nodes connect to it */
    char *hostname;        /* its own, as its last validation read it; "": unknown */
    char *user;            /* login name */
    char *key_path;        /* private key file; NULL: the keys of the SSH agent */
    char *known_hosts;     /* OpenSSH's file; NULL: none */
    char *bastion;         /* "[user@]host[:port]"; NULL: none */
    char *gpu_model;       /* "H100"; "": it has no GPU */
    struct strv host_keys; /* "ssh-ed25519 AAAA..." or "SHA256:..." */
    uint16_t port;         /* never 0 */
    bool socket;           /* reached through a socket of this machine: no other program can connect to `address` */
    bool ready;            /* validated */
    int gpus;              /* 0: none, or unknown */
    int cpus, memory_mib;  /* as its last validation measured them; 0: unknown */
};
struct export_stack {
    char *name, *owner;
    char *config_path, *config; /* the OpenSSH config of all nodes: its path, its text */
    int wanted;                 /* nodes of its spec; 0: unknown */
    VEC_OF(struct export_node) nodes;
};
void export_stack_clear(struct export_stack *s);
#define GP_AUTO_EXPORT GP_CLEANUP(export_stack_clear)

#endif
