/* SPDX-License-Identifier: Apache-2.0 */
/* What of the machine a node is a clone of: an allow list of top-level folders, and the real file
 * systems and bind-mounted files inside them. Internal to providers/local. */
#ifndef GP_LOCAL_ROOTFS_H
#define GP_LOCAL_ROOTFS_H

#include "base/error.h"
#include "base/vec.h"

/* True for the name of a top-level folder that nodes see a clone of: usr etc var opt bin lib* ... */
bool rootfs_takes(const char *name);

struct rootfs_mount {
    char *path;   /* on the machine: "/usr", "/var/lib/docker" */
    bool is_file; /* a file bound over a file (container runtimes do so with drivers) */
};
struct rootfs_mounts {
    VEC_OF(struct rootfs_mount) list;
};
/* Every folder that needs an overlay of its own, parents before children: taken top-level folders,
 * and real file systems mounted below them; also files bound below /usr and /opt. */
int rootfs_mounts(struct rootfs_mounts *ret, struct gp_error *err);
void rootfs_mounts_clear(struct rootfs_mounts *m);
#define GP_AUTO_ROOTFS GP_CLEANUP(rootfs_mounts_clear)

#endif
