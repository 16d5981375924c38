/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov __dial SOCKET HOST PORT: OpenSSH's ProxyCommand (ProxyUseFdpass) for local nodes: gets a
 * connected descriptor from a holder's dial socket and passes it on. Hidden. */
#include "base/gp_base.h"

#include "cmd/verbs.h"

#include "ssh/ssh.h"

static int run(struct invocation *inv, struct gp_error *err) {
    int64_t port = 0;
    if (inv->n_args != 3 || !str_to_i64(inv->args[2], 1, 65535, &port))
        return gp_fail(err, GP_EUSAGE, "__dial takes SOCKET HOST PORT");
    return ssh_dial_pass(inv->args[0], inv->args[1], (uint16_t)port, err);
}

const struct verb verb_dial = {
    .name = "__dial",
    .argspec = "SOCKET HOST PORT",
    .help = "passes a descriptor from a dial socket to ssh",
    .run = run,
    .flags = VERB_HIDDEN | VERB_PLAIN | VERB_RAW,
};
