/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps the files of a node as an image: its uppers and its own root are moved below BASE/.images/UID, and the record
 * is written last. A folder ".new-UID" is being saved, or was cut. The holder ends the node; a process of its own moves
 * the files, so that the holder goes on. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/fs.h"
#include "providers/local/local_images.h"
#include "providers/local/ns/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Uppers in memory are on another file system: then they are copied. */
static int move(const char *from, const char *to, struct gp_error *err) {
    if (rename(from, to) == 0) return 0;
    if (errno != EXDEV) return gp_fail_errno(err, GP_EIO, errno, "could not move '%s' to '%s'", from, to);
    GP_AUTO_FREE char *source = xstrdup(from), *target = xstrdup(to);
    char *argv[] = {(char[]){"/bin/cp"}, (char[]){"-a"}, (char[]){"-T"}, source, target, NULL};
    GP_AUTO_STR struct str out = {.max = 400};
    int status = 0;
    int r = ns_run(argv, &out, &status, err);
    if (r != 0 || status == 0) return r;
    str_one_line(out.s);
    return gp_fail(err, GP_EIO, "could not copy the node's files: %s", out.len > 0 ? out.s : "no reason given");
}

static int build(const char *node, const char *fresh, const char *image, const char *record, struct gp_error *err) {
    static const char *const parts[] = {"root", "u"};
    GP_AUTO_FREE char *file = fs_join(fresh, LOCAL_IMAGE_RECORD);
    int r = fs_remove_tree(fresh, err);
    if (r == 0) r = fs_mkdirs(fresh, 0755, err); /* the record is 0600; nodes of a user namespace mount the rest */
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(parts); i++) {
        GP_AUTO_FREE char *from = fs_join(node, parts[i]);
        GP_AUTO_FREE char *to = fs_join(fresh, parts[i]);
        r = move(from, to, err);
    }
    if (r == 0) r = fs_write_atomic(file, record, strlen(record), 0600, err);
    if (r == 0 && rename(fresh, image) != 0) r = gp_fail_errno(err, GP_EIO, errno, "could not create '%s'", image);
    return r;
}

/* A repeated request waits for the first one's process. Released by its end. */
static int take_turn(const char *base, const char *uid, struct gp_error *err) {
    GP_AUTO_FREE char *dir = fs_join(base, ".images");
    GP_AUTO_FREE char *path = xasprintf("%s/.lock-%s", dir, uid);
    int r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || flock(fd, LOCK_EX) != 0) return gp_fail_errno(err, GP_EIO, errno, "could not lock '%s'", path);
    return 0;
}

static _Noreturn void save_main(const struct holder *h, const char *node, const char *record, int say) {
    struct gp_error err = {0};
    GP_AUTO_FREE char *image = local_image_dir(h->cfg.base, h->cfg.uid);
    GP_AUTO_FREE char *fresh = local_image_new(h->cfg.base, h->cfg.uid);
    signal(SIGCHLD, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int r = take_turn(h->cfg.base, h->cfg.uid, &err);
    if (r == 0 && !fs_exists(image)) r = build(node, fresh, image, record, &err);
    if (r != 0) (void)fs_remove_tree(fresh, NULL);
    if (r == 0) dprintf(say, "ok\n");
    else dprintf(say, "error %s\n", err.msg);
    _exit(r == 0 ? 0 : 1);
}

int nodes_save(struct holder *h, struct local_node *n, const char *record, int *ret_fd, struct gp_error *err) {
    GP_AUTO_FREE char *image = local_image_dir(h->cfg.base, h->cfg.uid);
    int p[2];
    if (n->dir[0] == '\0' && !fs_exists(image))
        return gp_fail(err, GP_ENOTFOUND, "node %s was destroyed: no image can be made of it", n->id);
    if (pipe2(p, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe");
    if (n->pid > 0) { /* its mounts end with it */
        kill(n->pid, SIGKILL);
        waitpid(n->pid, NULL, 0);
        n->pid = 0;
    }
    if (n->state != LOCAL_ENDED) {
        n->state = LOCAL_OFF;
        str_put(n->why, sizeof n->why, "an image is made of it");
    }
    GP_AUTO_FREE char *node = xasprintf("%s/nodes/%s", h->cfg.dir, n->dir[0] != '\0' ? n->dir : "-");
    pid_t pid = fork();
    if (pid == 0) {
        close(p[0]);
        save_main(h, node, record, p[1]);
    }
    close(p[1]);
    if (pid < 0) {
        close(p[0]);
        return gp_fail_errno(err, GP_EENV, errno, "could not start a process");
    }
    *ret_fd = p[0];
    return 0;
}
