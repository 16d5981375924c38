/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of the table about the operating system: its clock and its own upgrades. No I/O; the node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#define BEHIND_MOST_S 600 /* signatures of repositories are not valid yet; the check host.clock finds less */
#define AHEAD_MOST_S 3600 /* more than a script can wait for a connection after its NOW was written */

bool boot_want_package_locks(const struct boot *b) { return b->req->launched && b->req->packages_allowed; }

void boot_clock_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    str_addf(out, "NOW=%lld BEHIND=%d AHEAD=%d\n", (long long)clock_wall_s(), BEHIND_MOST_S, AHEAD_MOST_S);
    boot_var(out, "OURS", b->req->launched ? "yes" : "no");
}
