/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up a reached node by the spec: a table of steps {probe, apply, verify}, each a
 * POSIX sh fragment from templates/bootstrap/. One round trip probes all; only missing steps are
 * applied; every step reports progress in lines; a second run changes nothing. Blocks on SSH. */
#ifndef GP_BOOTSTRAP_H
#define GP_BOOTSTRAP_H

#include "base/clock.h"
#include "base/error.h"
#include "base/secret.h"
#include "model/event.h"
#include "spec/spec.h"
#include "ssh/link.h"

struct bootstrap_secret {
    const char *env;
    struct secret value;
};
/* A package cache that the nodes of one run share. */
struct bootstrap_cache {
    /* Returns its address for this node, "http://10.0.0.5:40123"; NULL: none, which it has reported. Called once,
     * before the first step that installs packages; blocks until the cache can be used. prepare(of) puts the agent on
     * this node: it is called when this node is to run the cache. Caller frees. NULL: no cache. */
    char *(*use)(void *ctx, int (*prepare)(void *of, struct gp_error *err), void *of);
    void *ctx;
};
/* The steps of one run, by their names. Borrowed. */
struct bootstrap_pick {
    const struct strv *only; /* NULL or empty: all */
    const char *from;        /* this step and the later ones; NULL: all */
    bool dry_run;            /* only probe */
};
struct bootstrap_req {
    const struct bootstrap_pick *pick; /* NULL: all steps are probed and applied */
    const struct spec *spec;
    const char *stack, *uid;
    bool launched;          /* gpuprov made the node: its clock and its timers are ours */
    bool wait_cloud_init;   /* the node was created with user-data */
    bool container;         /* it has no kernel, driver, init or mounts of its own: steps about those are left out */
    bool ends_itself;       /* the deadline unit is required on it */
    const char *end_script; /* the template by which the unit ends it; NULL: a poweroff terminates it */
    int64_t expires_s;      /* its deadline: wall, the cloud's clock */
    int64_t ttl_s;          /* time left until the deadline */
    int64_t idle_s, controller_s; /* as in deadline_req */
    bool packages_allowed;        /* false: a package step is refused with packages_refusal */
    const char *packages_refusal;
    struct bootstrap_cache cache;
    const char *image_name; /* for "no driver: image X has none" */
    const struct bootstrap_secret *secrets;
    size_t n_secrets;
    int64_t deadline_ms;
    int64_t reboot_ms; /* how long a reboot that a step needs may take; 0: the default */
};
/* The output of a step, as its node kept it: the first MiB and the last 64 KiB. Foreign text, cleaned by str_add_clean;
 * registered secrets are replaced. */
struct bootstrap_output {
    char *step, *node_path; /* NULL: none */
    struct str text;
};
void bootstrap_output_clear(struct bootstrap_output *o);
/* Reads it from a connected node. -GP_ENOTFOUND: the step has not run there. */
int bootstrap_output_read(struct node_link *l, const char *step, struct bootstrap_output *ret, struct gp_error *err);

struct bootstrap_result {
    char boot_id[64];
    struct strv steps;              /* names of those that changed the node; dry_run: of those that would run */
    int applied;                    /* steps that changed the node; 0 the second time */
    char arch[32];                  /* uname -m */
    bool nvidia;                    /* /dev/nvidiactl is there */
    bool root;                      /* the user is root or may use "sudo -n" */
    struct bootstrap_output failed; /* of the step that failed, set on an error where it could be read */
};
void bootstrap_result_clear(struct bootstrap_result *r);
/* -GP_EUSAGE, with "did you mean", unless a step of the table or of the spec has that name. */
int bootstrap_step_known(const struct spec *spec, const char *name, struct gp_error *err);
/* One step as an sh script with the arguments probe, apply and verify. It has no secret, and nothing that only a node
 * knows. os: the system of that node, such as "ubuntu-24.04"; NULL: the one that the spec's image names, if any. */
int bootstrap_print_script(const struct spec *spec, const char *name, const char *os, struct str *out,
                           struct gp_error *err);

/* Steps in order: facts (arch, boot_id, user, sudo), cloud-init finished, packages, user steps with
 * secrets in their environment (over stdin, never argv or a file that others read), gpu driver
 * present, agents uploaded to ~/.gpuprov/agent (mode 0700). Survives a lost connection and a reboot in
 * any step. Errors: GP_EBOOTSTRAP "llm/1: step 'packages': apt-get reported: ..."; a driver that is
 * missing: GP_EBOOTSTRAP "no driver: image X has none". */
int bootstrap_run(struct node_link *l, const struct bootstrap_req *req, struct bootstrap_result *ret,
                  struct gp_error *err);

/* Host key rotation for nodes whose first key came with user-data. The node makes its own key;
 * commit(ctx, next_public) must put it on disk before sshd switches; afterwards the session is new,
 * l->target.host_keys holds only the new key and *ret_key is its line. Resumable at any point. */
int bootstrap_rotate_host_key(struct node_link *l, int64_t deadline_ms,
                              int (*commit)(void *ctx, const char *next_public, struct gp_error *err), void *ctx,
                              char **ret_key, struct gp_error *err);

/* The right of a node to end itself, and its deadline. */
struct bootstrap_end {
    const char *uid;                 /* of the stack */
    const char *script;              /* the template that ends the node with the credential */
    const struct secret *credential; /* the text of the file that the script reads */
    int64_t expires_s, ttl_s;        /* as in bootstrap_req */
    int64_t idle_s, controller_s;    /* likewise */
};
/* Hands it over: the node stores it in memory, tries it, and runs the unit that will use it. Idempotent. The host key
 * must have been replaced before. -GP_EBOOTSTRAP: it does not work there. */
int bootstrap_hand_over(struct node_link *l, const struct bootstrap_end *end, int64_t deadline_ms,
                        struct gp_error *err);

/* Another deadline for a node that ends itself. */
struct bootstrap_move {
    const char *uid;              /* of the stack */
    const char *run;              /* 16 hex digits: of all its steps */
    int64_t expires_s, left_s;    /* wall, and from now on: the cloud's clock */
    int64_t idle_s, controller_s; /* as in deadline_req */
};
enum deadline_action {
    DEADLINE_PREPARE, /* writes it beside the one in force: a node that cannot fails before any deadline moves */
    DEADLINE_COMMIT,  /* puts it in force, and waits until it is */
    DEADLINE_RESTORE, /* undoes both */
    DEADLINE_FINISH   /* forgets the earlier one */
};
/* One step of it, over SSH. ret_was_s (may be NULL): of PREPARE, the deadline in force; 0: not known. Idempotent.
 * -GP_EBOOTSTRAP: the node did not take it, with its reason. */
int bootstrap_move_deadline(struct node_link *l, const struct bootstrap_move *m, enum deadline_action action,
                            int64_t *ret_was_s, int64_t deadline_ms, struct gp_error *err);

char *boot_image_name(const char *image); /* "docker.io/library/busybox:1" of "busybox:1"; caller frees */

/* The script that starts the package cache on a node, or renews its lease; `end`: that ends it. It prints
 * "::cache PORT". */
struct bootstrap_cache_place {
    const char *uid;   /* of the stack: names its folder */
    const char *bind;  /* the node's private address */
    const char *peers; /* the addresses that it answers, one a line */
    const struct spec *spec;
};
int bootstrap_cache_script(const struct bootstrap_cache_place *p, bool end, struct str *out, struct gp_error *err);
/* What a node has, as its image records it; "": none, or not one word. */
struct bootstrap_clean {
    char arch[32], driver[32], cuda[32];
};
/* Removes from the node what must not be in an image: its identity, logins, files with secrets, output of steps
 * (templates/bootstrap/run/bake.sh has the list). Nobody can log in again afterwards: a lost connection is an error. */
int bootstrap_clean(struct node_link *l, struct bootstrap_clean *ret, struct gp_error *err);

/* Unpacks an agent from this program: "gpuprov-agent", "gpuprov-agent-cuda". Caller frees *ret.
 * -GP_ENOTFOUND: this build contains none. */
int bootstrap_agent(const char *name, void **ret, size_t *ret_n, struct gp_error *err);

/* Path of the agent folder on a node, for sh: "$HOME/.gpuprov". */
#define GP_NODE_DIR "\"$HOME\"/.gpuprov"

#endif
