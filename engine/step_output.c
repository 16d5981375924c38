/* SPDX-License-Identifier: Apache-2.0 */
/* The verb logs --step: prints the output of a step of a node. A failed step's was kept on this machine; any other is
 * read from the node. Changes no resource. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/json.h"
#include "base/log.h"
#include "engine/proof/node_connect.h"
#include "engine/proof/step_output.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reconcile.h"

#define CONNECT_MS 20000

static int from_here(struct engine *e, const char *name, int slot, const char *step, struct str *ret,
                     struct gp_error *err) {
    struct run *run = NULL;
    int r = run_open_remembered(e, NULL, name, &run, err);
    if (r == 0)
        r = run->stack.uid != NULL ? step_output_kept(run, slot, step, ret, err)
                                   : step_output_of_gone(e, name, slot, step, ret, err);
    run_close(run);
    return r;
}

/* The user's own script may have printed a secret. One that cannot be read any more is not known here. */
static void redact_secrets(const struct spec *spec) {
    for (size_t i = 0; spec != NULL && i < spec->secrets.len; i++) {
        struct secret value = {0};
        struct gp_error ignored = {0};
        if (spec_secret_read(&spec->secrets.items[i], spec->path, &value, &ignored) == 0) log_redact(&value);
        secret_clear(&value);
    }
}

static int from_node(struct engine *e, const char *name, int slot, const char *step, struct str *ret,
                     struct gp_error *err) {
    struct run *run = NULL;
    struct bootstrap_output o = {0};
    int r = run_open_known(e, NULL, name, &run, err);
    if (r == 0) r = reconcile(run, NULL, err);
    if (r == 0) r = node_connect(run, slot, CONNECT_MS, err);
    if (r == 0) redact_secrets(run->spec);
    if (r == 0) r = bootstrap_output_read(&run->nodes[slot].link, step, &o, err);
    if (r == 0) str_add_mem(ret, o.text.s, o.text.len);
    bootstrap_output_clear(&o);
    run_close(run);
    return r;
}

int engine_step_output(struct engine *e, const char *name, int slot, const char *step, struct str *ret,
                       struct gp_error *err) {
    struct gp_error why = {0};
    int r = from_here(e, name, slot, step, ret, &why);
    if (r == -GP_ENOTFOUND) return from_node(e, name, slot, step, ret, err);
    if (r != 0 && err != NULL) *err = why;
    return r;
}
