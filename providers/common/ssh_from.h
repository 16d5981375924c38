/* SPDX-License-Identifier: Apache-2.0 */
/* The networks that may open SSH to the nodes of a provider, by access.ssh_from of the spec. One thread. */
#ifndef GP_COMMON_SSH_FROM_H
#define GP_COMMON_SSH_FROM_H

#include "providers/http.h"
#include "spec/spec.h"

struct ssh_from {
    struct http *http;
    const struct spec *spec;
    const char *provider;
    const char *region; /* NULL: the rules count in every region */
    const char *home;   /* the region of offers without regions; may be NULL */
    char **public_cidr; /* this controller's address as a network; *public_cidr: owned by the caller, NULL: not read */
};

/* Appends the networks of each offer that may use the region, each once; without such an offer those of the stack. An
 * empty access.ssh_from stands for this controller's public address (GPUPROV_CHECKIP_URL returns it). -GP_EENV: that
 * could not be read. */
int ssh_from_read(const struct ssh_from *f, struct strv *ret, struct gp_error *err);

/* SSH to nodes without a public address comes from a private one, which nothing here can know. -GP_EUSAGE in the scope
 * of the offer: access.public_ip is false and the offer has no access.ssh_from. */
int ssh_from_check_private(const char *provider, const struct spec *spec, size_t index, struct gp_error *err);

/* True if both are the same network, whatever their form: clouds shorten it, and set the bits of the host to 0. An
 * address is a network of one. */
bool ssh_from_same(const char *x, const char *y);

#endif
