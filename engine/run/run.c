/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing one run over one stack. The verb's thread. */
#include "base/gp_base.h"

#include "engine/run/run.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/log.h"
#include "engine/run/lock.h"
#include "engine/run/look.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"

#include <assert.h>

int run_open(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err) {
    if (name != NULL && !form_stack(name)) /* it becomes part of paths */
        return gp_fail(err, GP_EUSAGE, "'%.80s' is not a valid stack name", name);
    struct run *run = xcalloc(1, sizeof *run);
    run->e = e;
    run->spec = spec;
    run->lock.fd = -1;
    run->end_ms = (int64_t)20 * 60 * 1000;
    run->blind_ms = (int64_t)60 * 1000;
    run->stack.name = xstrdup(name);
    run_events_init(run, name);
    if (spec != NULL) run->stack.spec_hash = xstrdup(spec->hash);
    run->owner = xstrdup(e->opts.owner);
    int r = fs_random_hex(run->id, 8, err);
    if (r != 0) {
        run_close(run);
        return r;
    }
    run_say_damaged(e, &run->sink);
    *ret = run;
    return 0;
}

void run_close(struct run *run) {
    if (run == NULL) return;
    assert(run->watch == NULL); /* work.c stops it */
    run_nodes_free(run);
    for (size_t i = 0; i < run->providers.len; i++) run->providers.items[i]->ops->close(run->providers.items[i]);
    vec_free(&run->providers);
    offer_list_clear(&run->offers);
    resource_list_clear(&run->others);
    resource_list_clear(&run->unproven);
    strv_clear(&run->said_unproven);
    strv_clear(&run->early);
    proof_key_clear(&run->proof);
    look_clear(&run->look);
    stack_clear(&run->stack);
    spec_changes_clear(&run->changes);
    secret_clear(&run->login.key);
    free(run->login.key_path);
    free(run->login.pubkey);
    for (size_t i = 0; i < run->n_secrets; i++) secret_clear(&run->secrets[i].value);
    free(run->secrets);
    validate_plan_clear(&run->validation.plan);
    baseline_clear(&run->validation.baseline);
    spec_free(run->spec_owned);
    free(run->owner);
    run_unlock(run);
    run_events_clear(run);
    free(run);
}

int run_read_secrets(struct run *run, struct gp_error *err) {
    run->secrets = xcalloc(run->spec->secrets.len + 1, sizeof *run->secrets);
    for (size_t i = 0; i < run->spec->secrets.len; i++) {
        const struct spec_secret *s = &run->spec->secrets.items[i];
        run->secrets[i].env = s->env;
        run->n_secrets = i + 1;
        int r = spec_secret_read(s, run->spec->path, &run->secrets[i].value, err);
        if (r != 0) return r;
        log_redact(&run->secrets[i].value); /* the node gets it: its replies are foreign */
    }
    return 0;
}
