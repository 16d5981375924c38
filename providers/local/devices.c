/* SPDX-License-Identifier: Apache-2.0 */
/* Which devices of the machine a node gets: the usual few, its share of the GPUs, InfiniBand. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define GPUS_MAX 256

/* Numbers of the /dev/nvidiaN that exist, ascending. */
static int gpu_numbers(int *ret) {
    int n = 0;
    for (int i = 0; i < GPUS_MAX; i++) {
        struct stat st;
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        if (stat(path, &st) == 0 && S_ISCHR(st.st_mode)) ret[n++] = i;
    }
    return n;
}

int local_gpu_count(void) {
    int numbers[GPUS_MAX];
    return gpu_numbers(numbers);
}

/* Same numbers, mode and owner as the machine's; a bind where devices cannot be made (no root). */
static int copy_device(const struct holder *h, const char *at, const char *path, struct gp_error *err) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISCHR(st.st_mode)) return 0;
    GP_AUTO_FREE char *to = xasprintf("%s%s", at, path + strlen("/dev"));
    GP_AUTO_FREE char *folder = xstrdup(to);
    *strrchr(folder, '/') = '\0';
    int r = fs_mkdirs(folder, 0755, err);
    if (r != 0) return r;
    if (h->cfg.userns) {
        int fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd >= 0) close(fd);
        if (fd >= 0 && mount(path, to, NULL, MS_BIND, NULL) == 0) return 0;
    } else if (mknod(to, S_IFCHR | 0600, st.st_rdev) == 0 && chown(to, st.st_uid, st.st_gid) == 0 &&
               chmod(to, st.st_mode & 07777) == 0) {
        return 0;
    }
    return gp_fail_errno(err, GP_EENV, errno, "could not create '%s'", path);
}

static int copy_matching(const struct holder *h, const char *at, const char *pattern, struct gp_error *err) {
    glob_t g = {0};
    int r = 0;
    if (glob(pattern, 0, NULL, &g) == 0)
        for (size_t i = 0; r == 0 && i < g.gl_pathc; i++) r = copy_device(h, at, g.gl_pathv[i], err);
    globfree(&g);
    return r;
}

static int copy_gpus(const struct holder *h, const struct local_node *n, const char *at, struct gp_error *err) {
    static const char *const shared[] = {"/dev/nvidiactl", "/dev/nvidia-*", "/dev/nvidia-caps/*",
                                         "/dev/nvidia-caps-imex-channels/*", "/dev/dri/*"};
    int numbers[GPUS_MAX];
    int have = gpu_numbers(numbers), first = n->slot * n->gpus;
    if (first + n->gpus > have)
        return gp_fail(err, GP_EUSAGE, "requires GPUs %d to %d, this machine has %d", first, first + n->gpus - 1, have);
    int r = 0;
    for (int i = first; r == 0 && i < first + n->gpus; i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/nvidia%d", numbers[i]);
        r = copy_device(h, at, path, err);
    }
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(shared); i++) r = copy_matching(h, at, shared[i], err);
    return r;
}

static int links(const char *at, struct gp_error *err) {
    static const char *const link[][2] = {
        {"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"fd/0", "stdin"}, {"fd/1", "stdout"}, {"fd/2", "stderr"}};
    for (size_t i = 0; i < GP_ARRAY_LEN(link); i++) {
        GP_AUTO_FREE char *to = fs_join(at, link[i][1]);
        if (symlink(link[i][0], to) != 0)
            return gp_fail_errno(err, GP_EENV, errno, "could not create '/dev/%s'", link[i][1]);
    }
    return 0;
}

int node_devices(const struct holder *h, const struct local_node *n, const char *at, struct gp_error *err) {
    static const char *const usual[] = {"null", "zero", "full", "random", "urandom", "tty"};
    GP_AUTO_FREE char *pts = fs_join(at, "pts");
    GP_AUTO_FREE char *shm = fs_join(at, "shm");
    int r = 0;
    for (size_t i = 0; r == 0 && i < GP_ARRAY_LEN(usual); i++) {
        char path[32];
        snprintf(path, sizeof path, "/dev/%s", usual[i]);
        r = copy_device(h, at, path, err);
    }
    if (r == 0 && n->gpus > 0) r = copy_gpus(h, n, at, err);
    if (r == 0) r = copy_matching(h, at, "/dev/infiniband/*", err);
    if (r == 0) r = fs_mkdirs(pts, 0755, err);
    if (r == 0) r = fs_mkdirs(shm, 0755, err);
    if (r == 0 &&
        mount("devpts", pts, "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620,gid=5") != 0)
        r = gp_fail_errno(err, GP_EENV, errno, "could not mount /dev/pts");
    if (r == 0 && mount("shm", shm, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777") != 0)
        r = gp_fail_errno(err, GP_EENV, errno, "could not mount /dev/shm");
    return r == 0 ? links(at, err) : r;
}
