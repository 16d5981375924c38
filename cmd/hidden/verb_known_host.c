/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov __known_host SHA256:... -- HOST TYPE BASE64: OpenSSH's KnownHostsCommand for host keys of which only the
 * fingerprint is known. Prints the known_hosts line if the shown key has one of the fingerprints. Hidden. */
#include "base/gp_base.h"

#include "cmd/verbs.h"

#include "ssh/ssh.h"

static int run(struct invocation *inv, struct gp_error *err) {
    int n = inv->n_args - 4; /* fingerprints; "--", HOST, TYPE and BASE64 follow them */
    if (n < 1 || strcmp(inv->args[n], "--") != 0)
        return gp_fail(err, GP_EUSAGE, "__known_host takes FINGERPRINT... -- HOST TYPE BASE64");
    char *const *shown = inv->args + n + 1;
    GP_AUTO_STR struct str line = {0};
    int r = ssh_known_host((const char *const *)inv->args, (size_t)n, shown[0], shown[1], shown[2], &line, err);
    if (r == 0 && line.len > 0) fputs(line.s, stdout);
    return r;
}

const struct verb verb_known_host = {
    .name = "__known_host",
    .argspec = "FINGERPRINT... -- HOST TYPE BASE64",
    .help = "prints a known_hosts line for a host key with a known fingerprint",
    .run = run,
    .flags = VERB_HIDDEN | VERB_PLAIN | VERB_RAW,
};
