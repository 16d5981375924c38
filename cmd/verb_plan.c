/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov plan [SPEC]: prints the changes that `up` would make, their price per hour, and who enforces the deadline.
 * Exits 2 if there are changes. */
#include "base/gp_base.h"

#include "show/plan_show.h"

struct opts {
    bool accept_new_host_key;
};
static const struct opt options[] = {{.name = "accept-new-host-key",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, accept_new_host_key),
                                      .help = "ssh: plan with hosts whose key 'gpuprov up' would accept, too"},
                                     {0}};

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    inv->app->engine_opts.accept_new_host_key = o->accept_new_host_key;
    GP_AUTO_SPEC struct spec *spec = NULL;
    int r = app_spec_secrets(inv, inv->n_args > 0 ? inv->args[0] : NULL, &spec, err);
    if (r != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    struct plan plan = {0};
    r = engine_plan(e, spec, &plan, err);
    if (r == 0) {
        inv->exit_code = plan.changes ? 2 : 0;
        if (!plan.changes) r = look_gap_error(&plan.looked, "nothing to do in the places looked at", err);
        if (inv->common->json) {
            json_t *j = plan_json(spec, &plan);
            if (r != 0) result_error(inv, j, err);
            print_json(j);
        } else {
            plan_show(spec, &plan, stdout);
        }
    }
    plan_clear(&plan);
    return r;
}

const struct verb verb_plan = {
    .name = "plan",
    .argspec = "[SPEC]",
    .help = "lists the changes 'up' would make and their price; exit 2 on changes",
    .details = VERB_SPEC_DETAILS,
    .examples = "  gpuprov plan gpuprov.yaml\n"
                "  gpuprov plan --json gpuprov.yaml   # exit code 2: there are changes\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .max_args = 1,
};
