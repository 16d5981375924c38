/* SPDX-License-Identifier: Apache-2.0 */
/* The package proxy of a stack: its process, where it may go, and through what. Internal to providers/local. */
#ifndef GP_LOCAL_PROXY_H
#define GP_LOCAL_PROXY_H

#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

#include <sys/types.h>

struct proxy_setup {
    const char *http_proxy, *https_proxy, *no_proxy; /* of the controller's environment; "" */
    const struct strv *indexes;                      /* URLs of the spec's Python indexes */
    bool userns;                                     /* held without root */
};
/* Forks the forward proxy while still in the machine's network namespace. It starts to serve when it
 * is given its listening socket. */
int proxy_fork(const struct proxy_setup *setup, pid_t *ret_pid, int *ret_sock, struct gp_error *err);
int proxy_give_listener(int sock, struct gp_error *err);

/* A proxy of the machine; host "" means: direct. */
struct proxy_upstream {
    char host[256], port[8];
    char authorization[600]; /* base64 of user:password, or "" */
};
struct proxy_rule {
    bool https; /* for https (CONNECT) */
    char *host; /* only for this host; "" for all */
    char *url;  /* "http://..." or "DIRECT" */
};
struct proxy_config {
    struct strv allowed;             /* "host:port" */
    VEC_OF(struct proxy_rule) rules; /* in falling priority */
    struct strv no_proxy;            /* host suffixes that the environment wants direct */
    int64_t reply_ms;                /* how long a proxy of the machine may take to answer a CONNECT */
};

/* Reads apt's and dnf's sources, the proxy settings of apt, dnf and pip, and the set-up. Runs apt-config when it is
 * there. */
void proxy_configure(struct proxy_config *cfg, const struct proxy_setup *setup);
/* Adds what package source text (sources.list, .sources, .repo, mirror lists) names to `allowed`. */
void proxy_add_hosts(struct proxy_config *cfg, const char *text);
/* Adds the rules in the output of `apt-config dump Acquire`. */
void proxy_add_apt_rules(struct proxy_config *cfg, const char *dump);
/* connect: a tunnel. One to port 443 may go to every host, because an index of Python packages names others. */
bool proxy_allows(const struct proxy_config *cfg, const char *host, const char *port, bool connect);
void proxy_upstream_for(const struct proxy_config *cfg, const char *host, bool https, struct proxy_upstream *ret);
void proxy_config_clear(struct proxy_config *cfg);
/* Serves one connection of a node to its end; the caller closes it. Blocks; a process of its own, SIGPIPE ignored. */
void proxy_serve(const struct proxy_config *cfg, int client);

#endif
