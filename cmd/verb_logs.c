/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov logs STACK[/N]: prints the events of a stack or a node, newest last. */
#include "base/gp_base.h"

#include "app.h"

static int run(struct invocation *inv, struct gp_error *err) {
    GP_AUTO_FREE char *name = NULL;
    int slot = -1;
    int r = app_stack_slot(inv->args[0], &name, &slot, err);
    if (r != 0) return r;
    struct engine *e = NULL;
    if ((r = app_engine(inv, &e, err)) != 0) return r;
    return engine_logs(e, name, slot, stdout, inv->common->json, err);
}

const struct verb verb_logs = {
    .name = "logs",
    .argspec = "STACK[/N]",
    .help = "prints the events of a stack or of one node",
    .examples = "  gpuprov logs try                   # every event of the stack\n"
                "  gpuprov logs --json try/1          # those of node 1, for scripts\n",
    .run = run,
    .min_args = 1,
    .max_args = 1,
};
