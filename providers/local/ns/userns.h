/* SPDX-License-Identifier: Apache-2.0 */
/* New namespaces, with or without root, and the id map that lets an ordinary user own them. For the
 * single-threaded processes of this folder (start, doctor, remove, the holder) only, except where
 * said. */
#ifndef GP_LOCAL_USERNS_H
#define GP_LOCAL_USERNS_H

#include "base/error.h"
#include "base/str.h"

#include <sys/types.h>

/* How a stack is held on this machine. */
enum ns_way {
    NS_ROOT, /* root with CAP_SYS_ADMIN */
    NS_USER  /* one user namespace around the holder, ids from /etc/subuid */
};
/* What this process may do. -GP_EENV (one line: what is missing, what to do) when neither way is
 * open. Any thread; makes nothing. */
int ns_way(enum ns_way *ret, struct gp_error *err);

/* fork with new namespaces: returns like fork; -errno on failure. */
pid_t ns_clone(unsigned long flags);

/* Gives the namespaces of `pid` the ids: 0 is this user, 1.. come from /etc/subuid and subgid. */
int ns_map_ids(pid_t pid, struct gp_error *err);

/* In the new user namespace, once mapped: become its root, without the user's other groups. */
int ns_become_root(struct gp_error *err);

/* In a new mount namespace: makes all mounts private, and in a chroot without a mount point at "/" makes one, for
 * pivot_root. 0 or -errno; *ret_step: what failed. Changes the working folder to "/". */
int ns_private_mounts(const char **ret_step);

/* Starts argv[0] (absolute), waits for it; its stdout and stderr go to out (capped). 0 when it ran
 * at all: see *ret_status (128 + signal when killed). */
int ns_run(char *const argv[], struct str *out, int *ret_status, struct gp_error *err);

#endif
