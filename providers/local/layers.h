/* SPDX-License-Identifier: Apache-2.0 */
/* The layers that all nodes of a stack share, on one tmpfs in the holder's mount namespace, DIR/mask:
 *   copy/etc, copy/var   what a node sees of /etc and /var: copied when the stack starts
 *   guard/%opt, ...      read-only overlays of live folders, mounted with the rights of nobody
 *   hide/...             lies over live folders: whiteouts, empty folders, replaced files
 *   none, blank          an empty folder, an empty file
 * Internal to providers/local; the holder's one thread. */
#ifndef GP_LOCAL_LAYERS_H
#define GP_LOCAL_LAYERS_H

#include "base/error.h"
#include "providers/local/holder.h"
#include "providers/local/rootfs.h"

struct layers {
    const struct holder *h;
    const char *dir; /* DIR/mask */
    struct rootfs_mounts mounts;
};

/* "/var/lib" becomes "%var%lib", one name for each path; caller frees. */
char *layer_flat(const char *path);
/* Whether nodes see this folder empty, whatever its mode: other people's mail, logs, containers, jobs. */
bool layer_emptied(const char *path);

/* --- snapshot.c --- */
/* copy/etc or copy/var from what the world may read there: folders, links, regular files. Never follows
 * a link, enters no other kind of file system, stays within the limits in snapshot.c and prints to
 * stderr what it left out. */
int layer_copy(const struct layers *l, const char *folder, struct gp_error *err);

/* --- guard.c --- */
/* Mounts a guard for every ROOTFS_GUARDED folder. Where overlays cannot be stacked (the folder's file
 * system is one itself) nodes see the folder without a guard, below hide/; a mere file system inside
 * such a folder they do not get. */
int layer_guard(const struct layers *l, struct gp_error *err);
enum guard_state {
    GUARD_NONE, /* nodes do not get that folder: it was not there at the start */
    GUARD_ON,
    GUARD_IMPOSSIBLE /* seen without one */
};
/* mask: DIR/mask, or its name from the stack's folder. */
enum guard_state guard_state(const char *mask, const char *path);

/* --- hide.c --- */
/* Hides what the world may not read below a live folder, as far as it looks. */
int layer_hide(const struct layers *l, const char *folder, struct gp_error *err);
int layer_whiteout(const struct layers *l, const char *path, struct gp_error *err);
/* The nodes' own file at path, in copy/ or hide/, whichever shows it. */
int layer_put(const struct layers *l, const char *path, mode_t mode, const char *text, struct gp_error *err);

#endif
