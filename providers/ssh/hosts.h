/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes a hosts file: machines that exist already, and the login for each. YAML:
 *   defaults: {user: ops, key: ~/.ssh/id_ed25519, known_hosts: fleet.known_hosts, bastion: ops@gate}
 *   hosts:
 *     - {address: 10.0.0.5, gpu: H100:8, host_key: ssh-ed25519 AAAA...}
 *     - 10.0.0.6 */
#ifndef GP_PROVIDERS_SSH_HOSTS_H
#define GP_PROVIDERS_SSH_HOSTS_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

/* All strings owned; paths are absolute or relative to the working folder, ~ expanded. */
struct ssh_host {
    char *address;
    uint16_t port;         /* never 0 */
    char *user;            /* never NULL: the local user's name when the file has none */
    char *key;             /* private key file, or NULL */
    struct strv host_keys; /* lines "ssh-ed25519 AAAA..." or "SHA256:..." */
    char *known_hosts;     /* or NULL */
    char *bastion;         /* "[user@]host[:port]", or NULL */
    char *gpu_model;       /* "H100", or NULL: not given */
    int gpus;              /* -1: not given */
};
struct ssh_host_list {
    VEC_OF(struct ssh_host) list;
};
void ssh_host_list_clear(struct ssh_host_list *l);
void ssh_host_list_copy(struct ssh_host_list *to, const struct ssh_host_list *from); /* adds copies */
#define GP_AUTO_SSH_HOSTS GP_CLEANUP(ssh_host_list_clear)

/* Reads and checks a hosts file, or with "terraform:DIR" and "terraform:FILE" the output of Terraform
 * (hosts_terraform.c): then it runs `terraform output -json` in DIR, at most two minutes; cancel may be NULL. The first
 * error is "FILE:LINE:COLUMN: ..." with -GP_EUSAGE (and how many more
 * there are); an unreadable file -GP_EUSAGE too. Opens no other file. */
int ssh_hosts_load(const char *path, const struct gp_cancel *cancel, struct ssh_host_list *ret, struct gp_error *err);
int ssh_hosts_parse(const char *path, const char *text, size_t n, struct ssh_host_list *ret, struct gp_error *err);

/* The same place, independent of the working folder. Caller frees. */
char *ssh_hosts_absolute(const char *path);

/* From the same table: docs/hosts.md and the JSON Schema of a hosts file. Caller frees. */
char *ssh_hosts_markdown(void);
char *ssh_hosts_json_schema(void);

#endif
