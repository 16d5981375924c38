/* SPDX-License-Identifier: Apache-2.0 */
/* What a spec needs on this machine before any provider is contacted. Blocks on local files, or on the SSH agent. The
 * verb's thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "engine/proof/run_baseline.h"
#include "engine/run/login_key.h"
#include "providers/ssh/hosts.h"
#include "validate/validate.h"

static int check_hosts(const struct engine *e, const struct spec *spec, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < spec->offers.len; i++) {
        GP_AUTO_SSH_HOSTS struct ssh_host_list hosts = {0};
        const char *path = spec->offers.items[i].hosts;
        if (path != NULL) r = ssh_hosts_load(path, e != NULL ? &e->cancel : NULL, &hosts, err);
    }
    return r;
}

int engine_preflight(const struct engine *e, const struct spec *spec, struct validate_plan *ret, struct gp_error *err) {
    static const struct engine stateless = {.opts = {.scratch = true}};
    GP_CLEANUP(baseline_clear) struct baseline baseline = {0};
    GP_AUTO_FREE char *pubkey = NULL;
    int r = validate_choose(spec, ret, err);
    if (r == 0) r = run_baseline_open(e != NULL ? e : &stateless, spec, &baseline, err);
    if (r == 0) r = login_key_named(spec, &pubkey, err);
    return r == 0 ? check_hosts(e, spec, err) : r;
}
