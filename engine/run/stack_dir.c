/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of one stack below the state folder. */
#include "base/gp_base.h"

#include "engine/run/stack_dir.h"

#include "base/form.h"
#include "base/fs.h"

#include <errno.h>
#include <unistd.h>

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

int stack_dir_forget_job_end(const struct engine *e, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    if (uid == NULL) return 0;
    int r = stack_dir_path(e, uid, &dir, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *path = fs_join(dir, STACK_DIR_JOB_END);
    if (unlink(path) == 0 || errno == ENOENT) return 0;
    return gp_fail_errno(err, GP_EIO, errno, "could not remove '%s'", path);
}
