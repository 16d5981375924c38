/* SPDX-License-Identifier: Apache-2.0 */
/* What of the machine a node is a clone of: an allow list of top-level folders, and how each of them
 * and of the file systems inside them is shown. Internal to providers/local. */
#ifndef GP_LOCAL_ROOTFS_H
#define GP_LOCAL_ROOTFS_H

#include "base/error.h"
#include "base/vec.h"

/* True for the name of a top-level folder that nodes see a clone of: usr etc var opt bin lib* ... */
bool rootfs_takes(const char *name);

enum rootfs_kind {
    ROOTFS_LIVE,    /* programs (/usr, /bin, /lib*): the overlay's lower layer is the folder itself */
    ROOTFS_GUARDED, /* live too, seen through a guard: the kernel refuses what the world may not read */
    ROOTFS_COPIED,  /* /etc and /var: a copy made when the stack starts (snapshot.c) */
    ROOTFS_WITHIN,  /* a file system below a copied folder: copied with it, no overlay of its own */
    ROOTFS_FILE     /* a file bound over a file (container runtimes do so with drivers) */
};
struct rootfs_mount {
    char *path; /* on the machine: "/usr", "/var/lib/dpkg" */
    enum rootfs_kind kind;
};
struct rootfs_mounts {
    VEC_OF(struct rootfs_mount) list;
};
/* Parents before children: taken top-level folders, /usr/local, the package data below /var, real file
 * systems mounted inside all of these, and world-readable files bound below /usr and /opt. */
int rootfs_mounts(struct rootfs_mounts *ret, struct gp_error *err);
void rootfs_mounts_clear(struct rootfs_mounts *m);
#define GP_AUTO_ROOTFS GP_CLEANUP(rootfs_mounts_clear)

/* A path of the list that is a folder, or NULL. */
const struct rootfs_mount *rootfs_find(const struct rootfs_mounts *m, const char *path);

#endif
