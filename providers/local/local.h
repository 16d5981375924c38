/* SPDX-License-Identifier: Apache-2.0 */
/* What the rest of the program needs of the local provider beside its ops (providers/provider.h):
 * the doctor, the word on packages, and the hidden verb that is the holder's own main. */
#ifndef GP_LOCAL_H
#define GP_LOCAL_H

#include "base/error.h"
#include "base/str.h"

/* Really makes, in a throw-away child, everything that a node needs (namespaces, tmpfs, overlay,
 * proc, sysfs, bridge and veth, sshd), as root first, then in a user namespace. report: one line per
 * way that was tried; a way that failed names its first failing step, the errno and what to do.
 * *ret_usable: at least one way works. Blocks for well under a second. -GP_EENV when the child could
 * not be started at all. */
int local_doctor(struct str *report, bool *ret_usable, struct gp_error *err);

/* False where packages cannot be installed in a node: without root the machine's files belong to an
 * id that the node does not have. *ret_why (may be NULL): one line, static. */
bool local_packages_ok(const char **ret_why);

/* The hidden verb `__holder`: argv[0] "__holder", argv[1] what to be (start, doctor, remove). Must be
 * called while the process has one thread; does not return for a holder. Returns the exit status. */
int local_holder_main(int argc, char **argv);

#endif
