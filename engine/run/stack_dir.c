/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one stack below the state folder. */
#include "base/gp_base.h"

#include "engine/run/stack_dir.h"

#include "base/form.h"
#include "base/fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define OUTPUTS_KEEP_S ((int64_t)30 * 86400)

int stack_dir_in(const char *state_dir, const char *uid, char **ret, struct gp_error *err) {
    if (!form_uid(uid)) /* it may come from a journal that somebody else wrote */
        return gp_fail(err, GP_EENV, "'%.80s' is not a stack's uid: its folder is not touched", uid ? uid : "");
    *ret = xasprintf("%s/stacks/%s", state_dir, uid);
    return 0;
}

int stack_dir_path(const struct engine *e, const char *uid, char **ret, struct gp_error *err) {
    return stack_dir_in(e->state_dir, uid, ret, err);
}

int stack_dir_remove(const struct engine *e, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    if (!form_uid(uid)) return 0;
    int r = stack_dir_path(e, uid, &dir, err);
    return r == 0 ? fs_remove_tree(dir, err) : r;
}

static char *outputs_name(const char *name, const char *owner) {
    char *file = xasprintf("%s@%s", name, owner != NULL ? owner : "");
    for (char *c = file; *c; c++)
        if (*c == '/') *c = '_';
    return file;
}

void stack_dir_keep_outputs(const struct engine *e, const struct stack *s) {
    GP_AUTO_FREE char *dir = NULL;
    if (!form_stack(s->name) || stack_dir_path(e, s->uid, &dir, NULL) != 0) return;
    GP_AUTO_FREE char *from = fs_join(dir, "output");
    GP_AUTO_FREE char *all = fs_join(e->state_dir, "outputs");
    GP_AUTO_FREE char *file = outputs_name(s->name, s->owner);
    GP_AUTO_FREE char *to = fs_join(all, file);
    if (!fs_exists(from) || fs_mkdirs(all, 0700, NULL) != 0 || fs_remove_tree(to, NULL) != 0) return;
    if (rename(from, to) == 0) (void)utimensat(AT_FDCWD, to, NULL, 0);
}

char *stack_dir_kept_outputs(const struct engine *e, const char *name, const char *owner) {
    GP_AUTO_FREE char *all = fs_join(e->state_dir, "outputs");
    GP_AUTO_FREE char *wanted = outputs_name(name, owner);
    DIR *d = form_stack(name) ? opendir(all) : NULL;
    char *found = NULL;
    time_t when = 0;
    if (d == NULL) return NULL;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        struct stat st;
        bool its = owner != NULL ? strcmp(f->d_name, wanted) == 0 : str_starts(f->d_name, wanted);
        if (!its || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISDIR(st.st_mode)) continue;
        if (found != NULL && st.st_mtime <= when) continue;
        free(found);
        found = fs_join(all, f->d_name);
        when = st.st_mtime;
    }
    closedir(d);
    return found;
}

void stack_dir_tidy_outputs(const char *state_dir, int64_t now_s) {
    GP_AUTO_FREE char *all = fs_join(state_dir, "outputs");
    DIR *d = opendir(all);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        struct stat st;
        if (strchr(f->d_name, '@') == NULL || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        GP_AUTO_FREE char *path = fs_join(all, f->d_name);
        if (now_s - (int64_t)st.st_mtime > OUTPUTS_KEEP_S) (void)fs_remove_tree(path, NULL);
    }
    closedir(d);
}

int stack_dir_forget_job_end(const struct engine *e, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    if (uid == NULL) return 0;
    int r = stack_dir_path(e, uid, &dir, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = fs_join(dir, STACK_DIR_JOB_END);
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    return gp_fail_errno(err, GP_EIO, errno, "could not remove '%s'", path);
}
