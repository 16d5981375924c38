/* SPDX-License-Identifier: Apache-2.0 */
/* The holder: pid 1 of a stack's own pid namespace, parent of its nodes, one thread, one poll loop.
 * Internal to providers/local. */
#ifndef GP_LOCAL_HOLDER_H
#define GP_LOCAL_HOLDER_H

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "base/vec.h"

#include <sys/resource.h>
#include <sys/types.h>

/* What a holder is told when it starts; the JSON on the starter's stdin. */
struct holder_config {
    char *base, *dir, *uid, *name;
    int64_t created_s, expires_s;              /* wall */
    int nodes;                                 /* of the spec: names for /etc/hosts */
    char *http_proxy, *https_proxy, *no_proxy; /* of the controller's environment; "" */
    struct strv indexes;                       /* URLs of the spec's Python indexes */
    bool userns;                               /* held without root */
    char *args; /* this process's own arguments, which its nodes overwrite: ps shows them */
    size_t args_size;
    struct rlimit files; /* as the controller had it: nodes get it back */
};

enum local_state {
    LOCAL_STARTING,
    LOCAL_RUNNING,
    LOCAL_OFF,    /* powered off from inside */
    LOCAL_FAILED, /* set-up failed, or its init died */
    LOCAL_ENDED
};

struct local_node {
    int slot, attempt, gpus;
    char id[64], name[64], ip[20];
    char dir[24]; /* below nodes/; "" once removed */
    char token[72];
    char image[20];     /* uid of the baked image that it was made from; "": none */
    char host_key[256]; /* public, pinned at the first start */
    int64_t created_s;
    enum local_state state;
    char why[300]; /* of FAILED and OFF */
    int net_fd;    /* its network namespace; -1 */
    int ready_fd;  /* while STARTING: what the node's set-up says; -1 */
    struct str said;
    pid_t pid; /* its init, as the holder sees it; 0 */
    int boots;
    int64_t ended_ms;
};

/* One connection to the control socket. */
struct holder_client {
    int fd;
    struct str in, out;
    int dial_fd; /* being connected; -1 */
    int64_t deadline_ms;
    bool creating; /* waits for the slots below */
    int slot_first, slot_count;
    int save_fd; /* of the process that saves an image; -1 */
    bool done;   /* close once out is written */
};

struct holder {
    struct holder_config cfg;
    int64_t end_mono_ms; /* the deadline on the clock that also counts suspended time */
    int home_net;        /* the holder's own network namespace */
    int listen_fd, signal_fd;
    bool upper_in_memory;
    pid_t proxy_pid;
    VEC_OF(struct local_node *) nodes;
    VEC_OF(struct holder_client *) clients;
};

/* --- holder.c --- */
/* Body of the holder process after it may begin. go_fd: says "ok\n" or "error CODE TEXT\n" there
 * once. Never returns. */
_Noreturn void holder_run(struct holder_config *cfg, int go_fd);
/* Sets the deadline on both clocks. */
void holder_end_at(struct holder *h, int64_t expires_s);

/* --- ctl.c --- */
int ctl_listen(struct holder *h, struct gp_error *err); /* DIR/ctl, 0600 */
void ctl_accept(struct holder *h);
/* Reads, answers, writes, times out; frees clients that are done. Called once per round. */
void ctl_step(struct holder *h);
/* For poll: which descriptor a client waits on and for what. */
void ctl_wait(const struct holder_client *c, int *ret_fd, short *ret_events);

/* --- nodes of the holder: holder_nodes.c --- */
/* Starts the gang in the slots, all or none; on error nothing of it is left. Their set-up goes on in
 * their own processes (LOCAL_STARTING). */
int nodes_create(struct holder *h, const json_t *req, struct gp_error *err);
void nodes_end(struct holder *h, struct local_node *n);
void nodes_reap(struct holder *h);                        /* after SIGCHLD */
void nodes_heard(struct holder *h, struct local_node *n); /* ready_fd is readable */
struct local_node *nodes_at(struct holder *h, int slot);  /* not ENDED, or NULL */
struct local_node *nodes_by_id(struct holder *h, const char *id);
json_t *nodes_json(const struct holder *h); /* new reference: array */

/* --- save.c --- */
/* Ends the node and starts a process that keeps its files as the image of this stack, below BASE/.images. *ret_fd gets
 * "ok\n" or "error TEXT\n" when it has ended. */
int nodes_save(struct holder *h, struct local_node *n, const char *record, int *ret_fd, struct gp_error *err);

/* --- mask.c --- */
/* Builds the layers below DIR/mask (layers.h): the copies of /etc and /var, the guards of live folders,
 * what hides in them what the world may not read, and what is replaced. */
int mask_build(const struct holder *h, struct gp_error *err);

/* --- node.c --- */
/* In the node's fresh namespaces: builds its root, becomes its init. Says "ready KEY\n" or "error
 * CODE TEXT\n" to n->ready_fd's other end `say`. Never returns. */
_Noreturn void node_main(const struct holder *h, struct local_node *n, int say, bool first_boot);
/* The folders of a new node, below DIR/nodes, and the files in them that belong to it alone. */
int node_prepare(const struct holder *h, const struct local_node *n, const char *login_pubkey, struct gp_error *err);
/* Names of the slots from `first` on, for a node that was there before them. */
void node_learn_hosts(const struct holder *h, const struct local_node *n, int first);

/* --- devices.c --- */
/* Fills the node's /dev (a fresh tmpfs at `at`): the usual few, GPUs by slot, InfiniBand, DRI. */
int node_devices(const struct holder *h, const struct local_node *n, const char *at, struct gp_error *err);
/* How many /dev/nvidiaN there are. Any thread. */
int local_gpu_count(void);

/* --- init.c --- */
/* pid 1 of a node: runs sshd, reaps, reboots on TERM, powers off on USR2. Says "ready KEY\n" to `say`
 * once sshd listens, or "error TEXT\n" when it does not come up, and closes it. Never returns. */
_Noreturn void init_run(int say, const char *host_key);

#endif
