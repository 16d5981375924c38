/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov __holder: the process that holds a stack of local nodes (providers/local). Hidden. */
#include "base/gp_base.h"

#include "cmd/verbs.h"

#include "providers/local/local.h"

static int run(struct invocation *inv, struct gp_error *err) {
    (void)err;
    inv->exit_code = local_holder_main(inv->n_args + 1, inv->args - 1);
    return 0;
}

const struct verb verb_holder = {
    .name = "__holder",
    .argspec = "...",
    .help = "holds a stack of local nodes",
    .run = run,
    .flags = VERB_HIDDEN | VERB_PLAIN | VERB_RAW,
};
