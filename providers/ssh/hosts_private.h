/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of a host: the table that decodes a hosts file and documents it. */
#ifndef GP_PROVIDERS_SSH_HOSTS_PRIVATE_H
#define GP_PROVIDERS_SSH_HOSTS_PRIVATE_H

#include "base/yaml.h"
#include "providers/ssh/hosts.h"

struct hosts_decode;
struct hosts_key {
    const char *name;
    void (*take)(struct hosts_decode *d, struct ssh_host *h, const struct yaml_node *v);
    bool list;     /* takes one value or a list of them; the others take one value */
    bool own;      /* of one host, so not among the defaults */
    bool required; /* so own, too */
    const char *form, *def, *doc, *example;
    const char *pattern; /* of the JSON Schema; NULL: any text that is not empty */
    int64_t min, max;    /* a number; both 0: text */
};
extern const struct hosts_key hosts_keys[]; /* name NULL ends */

/* Decodes {hosts: LIST} that is not from a file: messages are "NAME[I]: ..."; the line of every node in the list is the
 * place of its host in it, from 1. Paths are relative to the folder of base. */
int ssh_hosts_outputs(const char *name, const char *base, const struct yaml_node *root, struct ssh_host_list *ret,
                      struct gp_error *err);
/* path: "terraform:DIR" or "terraform:FILE". */
int ssh_hosts_terraform(const char *path, const struct gp_cancel *cancel, struct ssh_host_list *ret,
                        struct gp_error *err);

#endif
