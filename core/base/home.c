/* SPDX-License-Identifier: Apache-2.0 */
/* The user's folders: home and state. Apart from fs.c because getpwuid_r may not be linked into the
 * static agent. Any thread; getenv is only read. */
#include "base/gp_base.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

static char *home_dir(void) {
    const char *home = getenv("HOME");
    if (home != NULL && home[0] == '/') return xstrdup(home);
    struct passwd pw, *found = NULL;
    char buf[4096];
    if (getpwuid_r(getuid(), &pw, buf, sizeof buf, &found) == 0 && found != NULL) return xstrdup(pw.pw_dir);
    return xstrdup("/");
}

char *fs_expand_home(const char *path) {
    if (path[0] != '~' || (path[1] != '/' && path[1] != '\0')) return xstrdup(path);
    GP_AUTO_FREE char *home = home_dir();
    return xasprintf("%s%s", home, path + 1);
}

char *fs_relative_to(const char *base_file, const char *rel) {
    if (rel[0] == '/') return xstrdup(rel);
    if (rel[0] == '~') return fs_expand_home(rel);
    const char *slash = strrchr(base_file, '/');
    if (slash == NULL) return xstrdup(rel);
    return xasprintf("%.*s%s", (int)(slash - base_file + 1), base_file, rel);
}

static int state_path(char **ret, bool *ret_named, struct gp_error *err) {
    const char *own = getenv("GPUPROV_STATE_DIR");
    const char *xdg = getenv("XDG_STATE_HOME");
    bool named = own != NULL && own[0] != '\0';
    *ret_named = named;
    /* a relative path would give another journal in another folder, and billed machines would be lost */
    if (named && own[0] != '/')
        return gp_fail(err, GP_EUSAGE,
                       "GPUPROV_STATE_DIR '%.200s' is not an absolute path: set it to a path that "
                       "begins with '/'",
                       own);
    GP_AUTO_FREE char *home = named ? NULL : home_dir();
    if (named) *ret = xstrdup(own);
    else *ret = xdg != NULL && xdg[0] == '/' ? fs_join(xdg, "gpuprov") : fs_join(home, ".local/state/gpuprov");
    return 0;
}

int fs_state_path(char **ret, struct gp_error *err) {
    bool named = false;
    return state_path(ret, &named, err);
}

/* Whoever can rename the journal decides what is destroyed, and which files this user writes. The folder's mode is
 * never changed: it may be /tmp. */
static int check_state_dir(const char *dir, const struct stat *st, struct gp_error *err) {
    if (!S_ISDIR(st->st_mode)) return gp_fail_errno(err, GP_EIO, ENOTDIR, "could not use '%s'", dir);
    if (st->st_uid != geteuid())
        return gp_fail(err, GP_EENV,
                       "'%s' belongs to user %u, and this is user %u: run gpuprov as that user (without sudo, or with "
                       "'sudo -H'), or set GPUPROV_STATE_DIR to a folder of this user",
                       dir, (unsigned)st->st_uid, (unsigned)geteuid());
    if (!(st->st_mode & (S_IWOTH | S_IWGRP))) return 0;
    return gp_fail(err, GP_EENV,
                   "'%s' can be written by %s (mode %04o): run 'chmod 700 %s', or set GPUPROV_STATE_DIR to a "
                   "folder below it",
                   dir, st->st_mode & S_IWOTH ? "every user" : "its group", (unsigned)(st->st_mode & 07777), dir);
}

static int check_kept(const char *path, const struct stat *st, struct gp_error *err) {
    const char *what = S_ISLNK(st->st_mode)      ? "a link"
                       : !S_ISREG(st->st_mode)   ? "no regular file"
                       : st->st_uid != geteuid() ? "a file of another user"
                       : st->st_nlink > 1        ? "a second name of another file"
                                                 : NULL;
    if (what == NULL) return 0;
    return gp_fail(err, GP_EENV, "'%s' is %s, and gpuprov makes none in its state folder: remove it", path, what);
}

int fs_check_kept(const char *path, struct gp_error *err) {
    struct stat st;
    return lstat(path, &st) == 0 ? check_kept(path, &st, err) : 0;
}

int fs_open_kept(const char *path, int flags, int *ret_fd, struct gp_error *err) {
    GP_AUTO_FD int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    int opened = errno;
    struct stat st;
    if (fd < 0) {
        int r = fs_check_kept(path, err);
        return r != 0 ? r : gp_fail_errno(err, GP_EIO, opened, "could not open '%s'", path);
    }
    if (fstat(fd, &st) != 0) return gp_fail_errno(err, GP_EIO, errno, "could not open '%s'", path);
    int r = check_kept(path, &st, err);
    if (r != 0) return r;
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int fs_state_dir(char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    bool named = false;
    int r = state_path(&dir, &named, err);
    if (r != 0 || dir == NULL) return r;
    r = fs_mkdirs(dir, 0700, err);
    struct stat st;
    if (r == 0 && stat(dir, &st) == 0) r = check_state_dir(dir, &st, err);
    if (r == 0 && access(dir, R_OK | W_OK | X_OK) != 0)
        r = gp_fail_errno(err, GP_EIO, errno, "could not use '%s'", dir);
    if (r != 0)
        return gp_wrap(err, "the state folder (%s)",
                       named ? "GPUPROV_STATE_DIR names it" : "set XDG_STATE_HOME to move it");
    *ret = GP_STEAL(dir);
    return 0;
}
