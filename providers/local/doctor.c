/* SPDX-License-Identifier: Apache-2.0 */
/* Whether local nodes work here: every step is really done, in a throw-away child whose namespaces
 * end with it. Flags and sysctls alone mislead. local_doctor: any thread. */
#include "base/gp_base.h"

#include "providers/local/doctor.h"

#include "base/clock.h"
#include "providers/local/local.h"
#include "providers/local/local_claim.h"
#include "providers/local/ns/netns.h"
#include "providers/local/ns/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DOCTOR_MS 15000

/* Where the child builds: any folder that exists everywhere and is covered by a tmpfs at once. */
#define AT "/tmp"

/* Says what failed and what to do, and ends the child. */
static _Noreturn void failed(const char *way, const char *step, int e, const char *advice) {
    const char *name = strerrorname_np(e);
    printf("%s: could not %s: %s (%s)%s%s\n", way, step, strerror(e), name ? name : "?", advice[0] ? "; " : "", advice);
    fflush(stdout);
    _exit(1);
}

/* r < 0: errno says why. */
static void must(const char *way, const char *step, int r, const char *advice) {
    if (r < 0) failed(way, step, errno, advice);
}

static int folder(const char *path) { return mkdir(path, 0755); }

static int veth(void) {
    int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0 || unshare(CLONE_NEWNET) != 0) return -1;
    int node = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (node < 0 || setns(home, CLONE_NEWNET) != 0) return -1;
    int r = net_bridge_add();
    if (r == 0) r = net_veth_add("node0", 0, node);
    if (r == 0 && setns(node, CLONE_NEWNET) != 0) r = -errno;
    if (r == 0) r = net_addr_add("eth0", "10.91.0.2");
    if (r < 0) errno = -r;
    return r < 0 ? -1 : 0;
}

static void build(const char *way, bool user) {
    static const char container[] = "in a container give it CAP_SYS_ADMIN and no seccomp or "
                                    "AppArmor confinement (docker run --privileged)";
    struct gp_error err = {0};
    if (user && ns_become_root(&err) != 0) failed(way, "become root of a user namespace", EPERM, err.msg);
    const char *what = "";
    int e = ns_private_mounts(&what);
    errno = -e;
    must(way, what, e,
         user ? "the system forbids user namespaces to mount: on Ubuntu 'sysctl "
                "kernel.apparmor_restrict_unprivileged_userns=0', or run as root"
              : container);
    must(way, "mount a tmpfs", mount("doctor", AT, "tmpfs", 0, "mode=755"), container);
    must(way, "make folders",
         folder(AT "/u") | folder(AT "/w") | folder(AT "/m") | folder(AT "/p") | folder(AT "/s") | folder(AT "/d"), "");
    must(way, "mount an overlay of /etc",
         mount("doctor", AT "/m", "overlay", 0,
               user ? "lowerdir=/etc,upperdir=" AT "/u,workdir=" AT "/w,userxattr"
                    : "lowerdir=/etc,upperdir=" AT "/u,workdir=" AT "/w"),
         user ? "mounts inside /etc, or a kernel before 5.11 (overlay) or 6.6 (tmpfs attributes)"
              : "is the kernel's overlay module there ('modprobe overlay')?");
    must(way, "mount proc", mount("proc", AT "/p", "proc", 0, NULL),
         "a container runtime has covered parts of /proc: run outside, or docker run --privileged");
    must(way, "make a network namespace", unshare(CLONE_NEWNET), container);
    must(way, "mount sysfs", mount("sysfs", AT "/s", "sysfs", MS_RDONLY, NULL), container);
    must(way, "mount devpts", mount("devpts", AT "/d", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5"),
         container);
    uint32_t refuse = SECCOMP_RET_ERRNO;
    must(way, "filter system calls", (int)syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &refuse),
         "the kernel lacks CONFIG_SECCOMP_FILTER");
    int bridge = veth();
    must(way, "make a bridge with a veth pair", bridge,
         errno == EPERM ? "in a container give it CAP_NET_ADMIN (docker run --privileged)"
                        : "are the kernel's bridge and veth modules there ('modprobe -a bridge veth')?");
    if (access("/usr/sbin/sshd", X_OK) != 0 || access("/usr/bin/ssh-keygen", X_OK) != 0)
        failed(way, "find OpenSSH's server", ENOENT,
               "'systemctl mask ssh; apt-get install openssh-server' (dnf: openssh-server)");
}

int doctor_main(const char *way) {
    bool user = strcmp(way, "user") == 0;
    way = user ? "user namespace" : "root";
    struct gp_error err = {0};
    int pair[2], status = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return 1;
    pid_t pid =
        ns_clone((unsigned long)(user ? CLONE_NEWUSER : 0) | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS);
    if (pid == 0) {
        char go = 0;
        close(pair[0]);
        if (read(pair[1], &go, 1) != 1) _exit(1);
        build(way, user);
        _exit(0);
    }
    close(pair[1]);
    if (pid < 0) {
        printf("%s: could not create namespaces: %s (%s); %s\n", way, strerror(-pid), strerrorname_np(-pid),
               user ? "user namespaces are forbidden or used up here (user.max_user_namespaces, a chroot)"
                    : "root does not have CAP_SYS_ADMIN here");
        fflush(stdout);
        return 1;
    }
    if (user && ns_map_ids(pid, &err) != 0) printf("%s: %s\n", way, err.msg);
    else (void)send(pair[0], "g", 1, MSG_NOSIGNAL);
    close(pair[0]);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (status == 0) printf("%s: usable\nok\n", way);
    fflush(stdout);
    return status == 0 ? 0 : 1;
}

int local_doctor(struct str *report, bool *ret_usable, struct gp_error *err) {
    struct gp_error why = {0};
    enum ns_way way = NS_USER;
    bool may = ns_way(&way, &why) == 0;
    *ret_usable = false;
    str_add(report, "");
    if (geteuid() == 0) {
        int r = local_spawn("doctor", "root", "", clock_deadline(DOCTOR_MS), NULL, report, ret_usable, err);
        if (r != 0 || *ret_usable || !may) return r;
    }
    if (may && way == NS_USER) {
        int r = local_spawn("doctor", "user", "", clock_deadline(DOCTOR_MS), NULL, report, ret_usable, err);
        if (r != 0) return r;
        if (*ret_usable) str_add(report, "without root: packages cannot be installed in nodes\n");
    } else if (!may) {
        str_addf(report, "%s\n", why.msg);
    }
    return 0;
}
