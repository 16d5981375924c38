/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are copied to or rendered for a node. Every file below templates/ (but .c, .h) and the two
 * agents are embedded at build time under their path relative to the project ("bootstrap/x.sh" for
 * templates/bootstrap/x.sh; "agent/gpuprov-agent.gz", "agent/gpuprov-agent-cuda.gz"). */
#ifndef GP_TEMPLATES_H
#define GP_TEMPLATES_H

#include "base/error.h"
#include "base/str.h"

struct template_file {
    const char *name;
    const unsigned char *data;
    size_t size;
};
/* NULL when there is no such file (an agent that this build does not contain). */
const struct template_file *template_find(const char *name);

struct template_var {
    const char *name, *value;
};
/* Replaces @@NAME@@ by the value (as is), @@q:NAME@@ by it quoted for sh, @@b64:NAME@@ by base64.
 * An unknown or unclosed name is -GP_EINTERNAL naming it; vars end with {NULL, NULL}. */
int template_render(const char *name, const struct template_var *vars, struct str *out, struct gp_error *err);
int template_render_text(const char *what, const char *text, size_t n, const struct template_var *vars, struct str *out,
                         struct gp_error *err);

/* A node's own deadline: a unit that counts its time across reboots, then powers off where that terminates a node, or
 * runs a script that deletes it. */
struct deadline_req {
    const char *uid;        /* of the stack */
    int64_t expires_s;      /* wall */
    int64_t ttl_s;          /* of use; the node adds grace_s */
    int64_t grace_s;        /* 0: 300 */
    int64_t tick_s;         /* the node checks this often; 0: 30 */
    int64_t idle_s;         /* it ends when unused for so long; 0: no such limit */
    int64_t controller_s;   /* it ends when no gpuprov has connected for so long; 0: no such limit */
    const char *end_script; /* the template that ends the node ("cloud-init/end-azure.sh"); NULL: a poweroff does */
};
/* A line for sh, run as root, that installs and starts the unit. Run again it keeps the counted time.
 * -GP_EUSAGE: no deadline, or a malformed uid. */
int template_deadline(const struct deadline_req *req, struct str *out, struct gp_error *err);
/* The script of that unit without its comments and indentation: some clouds take 16 KiB of user-data. Caller frees. */
char *template_deadline_script(void);

/* cloud-init user-data for a node: user gpuprov (sudo), its login key, the first-contact host key, and the node's
 * own deadline, which bootcmd installs before sshd. */
struct cloud_init_req {
    const char *login_pubkey;
    const char *host_key_private, *host_key_public; /* first contact only; replaced afterwards */
    const char *stack, *uid;
    const struct deadline_req *deadline; /* NULL: the node has no deadline of its own */
    size_t max;                          /* most bytes that the cloud takes */
};
/* -GP_EUSAGE: a malformed key or name. */
int template_cloud_init(const struct cloud_init_req *req, struct str *out, struct gp_error *err);

/* The start script of a container, which is its only process: it allows the login key, installs the first-contact host
 * key unless the node made its own already, and becomes sshd. */
struct container_start_req {
    const char *login_pubkey;
    const char *host_key_private, *host_key_public; /* first contact only; replaced afterwards */
    size_t max;                                     /* most bytes that the cloud takes */
};
/* -GP_EUSAGE: a malformed key. */
int template_container_start(const struct container_start_req *req, struct str *out, struct gp_error *err);

#endif
