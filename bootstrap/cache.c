/* SPDX-License-Identifier: Apache-2.0 */
/* The package cache as seen by one node's steps, and the script that keeps it on the node that runs it. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#define LEASE "60s" /* the run renews it every few seconds; without the run the cache ends by itself */
#define NVIDIA "https://developer.download.nvidia.com"

static int put_agent(void *of, struct gp_error *err) {
    bool sent = false;
    return boot_agents_put(of, NULL, &sent, err);
}

void boot_cache(struct boot *b, const struct boot_item *it) {
    const struct bootstrap_cache *c = &b->req->cache;
    if (!it->step->packages || b->cache_asked || c->use == NULL) return;
    b->cache_asked = true;
    b->cache = c->use(c->ctx, put_agent, b);
}

/* The source of packages that the driver's step adds to each node, as "host:port": another node may need it before the
 * cache's own node has it. */
static void add_allowed(const struct spec *spec, struct str *out) {
    const char *source = spec->software.driver.source, *at = NVIDIA;
    if (source && str_starts(source, "http")) at = source;
    bool https = str_starts(at, "https");
    at = strstr(at, "://");
    if (!at) return;
    at += 3;
    size_t n = strcspn(at, "/#"), host = strcspn(at, ":/#");
    str_addf(out, "%.*s%s", (int)n, at, host < n ? "" : https ? ":443" : ":80");
}

int bootstrap_cache_script(const struct bootstrap_cache_place *p, bool end, struct str *out, struct gp_error *err) {
    GP_AUTO_STR struct str fetch = {0}, allow = {0};
    GP_AUTO_FREE char *dir = xasprintf("/var/tmp/gpuprov-cache-%s", p->uid);
    int rc = boot_file("cache/fetch", &fetch, err);
    add_allowed(p->spec, &allow);
    str_add(out, "echo\n"); /* ends a line that a start-up file printed without a newline */
    if (rc == 0) rc = boot_file("run/lib", out, err);
    boot_var(out, "DIR", dir);
    boot_var(out, "BIND", p->bind);
    boot_var(out, "PEERS", p->peers);
    boot_var(out, "LEASE", LEASE);
    boot_var(out, "ALLOW", allow.s);
    boot_var(out, "FETCH", fetch.s);
    boot_var(out, "END", end ? "yes" : "");
    return rc == 0 ? boot_file("cache/keep", out, err) : rc;
}
