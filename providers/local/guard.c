/* SPDX-License-Identifier: Apache-2.0 */
/* Guards of live folders: read-only overlays, mounted by a child with the rights of nobody. The kernel
 * reads an overlay's lower layer with the rights of whoever mounted it, so root of a node, whose own
 * overlay lies over the guard, gets from the folder what nobody may read and no more: also of files
 * that are made, or lose their mode, long after the stack started. */
#include "base/gp_base.h"

#include "providers/local/layers.h"

#include "base/fs.h"

#include <errno.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

/* Where a short id map has no nobody, its first id that is not root's. A change of the file system ids
 * away from root also takes the rights to pass over modes. */
static bool become_nobody(void) {
    static const unsigned ids[] = {NOBODY, 1};
    for (size_t i = 0; i < GP_ARRAY_LEN(ids); i++) {
        setfsgid(ids[i]);
        setfsuid(ids[i]);
        if ((unsigned)setfsuid((uid_t)-1) == ids[i] && (unsigned)setfsgid((gid_t)-1) == ids[i]) return true;
    }
    return false;
}

/* In DIR/mask, which everybody may enter, unlike the state folder above it. */
static _Noreturn void mount_guards(const struct layers *l) {
    if (chdir(l->dir) != 0 || setgroups(0, NULL) != 0 || !become_nobody()) _exit(1);
    for (size_t i = 0; i < l->mounts.list.len; i++) {
        const struct rootfs_mount *m = &l->mounts.list.items[i];
        if (m->kind != ROOTFS_GUARDED || strpbrk(m->path, ":,\\") != NULL) continue;
        GP_AUTO_FREE char *name = layer_flat(m->path);
        GP_AUTO_FREE char *at = xasprintf("guard/%s", name);
        GP_AUTO_FREE char *o = xasprintf("lowerdir=none:%s,index=off,metacopy=off%s", m->path,
                                         l->h->cfg.userns ? ",userxattr" : ",redirect_dir=off");
        /* one that fails is noticed by try_guards */
        (void)mount("gpuprov", at, "overlay", MS_RDONLY | MS_NODEV, o);
    }
    _exit(0);
}

enum guard_state guard_state(const char *mask, const char *path) {
    struct stat here, above;
    GP_AUTO_FREE char *name = layer_flat(path);
    GP_AUTO_FREE char *at = xasprintf("%s/guard/%s", mask, name);
    GP_AUTO_FREE char *up = fs_join(mask, "guard");
    if (stat(at, &here) != 0 || stat(up, &above) != 0) return GUARD_NONE;
    return here.st_dev != above.st_dev ? GUARD_ON : GUARD_IMPOSSIBLE;
}

/* Whether a node's overlay can lie over a guard: file systems stack two deep at most. It is tried. */
static bool can_stack(const struct layers *l, const char *guard) {
    GP_AUTO_FREE char *at = xasprintf("%s/nodes/probe/m", l->h->cfg.dir);
    GP_AUTO_FREE char *o = xasprintf("lowerdir=mask/guard/%s,upperdir=nodes/probe/u,workdir=nodes/probe/w%s", guard,
                                     l->h->cfg.userns ? ",userxattr" : "");
    bool fits = mount("gpuprov", at, "overlay", 0, o) == 0;
    if (fits) umount2(at, MNT_DETACH);
    return fits;
}

/* A file system mounted inside a folder that has a guard can do without: nodes do not get it then. */
static bool is_essential(const char *path) {
    return strchr(path + 1, '/') == NULL || strcmp(path, "/usr/local") == 0 || str_starts(path, "/var/");
}

/* Keeps the guards that work. */
static void try_guards(const struct layers *l) {
    for (size_t i = 0; i < l->mounts.list.len; i++) {
        const struct rootfs_mount *m = &l->mounts.list.items[i];
        GP_AUTO_FREE char *name = layer_flat(m->path);
        GP_AUTO_FREE char *at = xasprintf("%s/guard/%s", l->dir, name);
        if (m->kind != ROOTFS_GUARDED) continue;
        if (guard_state(l->dir, m->path) == GUARD_ON && can_stack(l, name)) continue;
        umount2(at, MNT_DETACH);
        if (!is_essential(m->path)) rmdir(at);
        else
            fprintf(stderr,
                    "no guard for '%s', since overlays cannot be stacked there: what the world may "
                    "no longer read after the start stays readable for nodes\n",
                    m->path);
    }
}

static int make_dirs(const struct layers *l, struct gp_error *err) {
    static const char *const probe[] = {"u", "w", "m", NULL};
    int r = 0;
    for (size_t i = 0; r == 0 && probe[i] != NULL; i++) {
        GP_AUTO_FREE char *at = xasprintf("%s/nodes/probe/%s", l->h->cfg.dir, probe[i]);
        r = fs_mkdirs(at, 0755, err);
    }
    for (size_t i = 0; r == 0 && i < l->mounts.list.len; i++) {
        GP_AUTO_FREE char *name = layer_flat(l->mounts.list.items[i].path);
        GP_AUTO_FREE char *at = xasprintf("%s/guard/%s", l->dir, name);
        if (l->mounts.list.items[i].kind == ROOTFS_GUARDED) r = fs_mkdirs(at, 0755, err);
    }
    return r;
}

int layer_guard(const struct layers *l, struct gp_error *err) {
    int r = make_dirs(l, err);
    if (r != 0) return r;
    pid_t pid = fork();
    if (pid == 0) mount_guards(l);
    if (pid < 0) return gp_fail_errno(err, GP_EENV, errno, "could not start a process");
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) continue;
    try_guards(l);
    GP_AUTO_FREE char *probe = xasprintf("%s/nodes/probe", l->h->cfg.dir);
    return fs_remove_tree(probe, err);
}
