/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and signals the processes of a job. */
#include "base/gp_base.h"

#include "validate/agent/job/job_procs.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/command.h"
#include "validate/agent/base/proc.h"
#include "validate/agent/job/job_request.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#define SUDO_MS 5000
#define SUDO_PIDS 200

struct found {
    struct node {
        pid_t pid, parent, group;
        bool ours, ended, spared;
    } * v;
    size_t n, cap;
};

static void found_clear(struct found *f) { free(f->v); }

/* kill_children: a child of this process gets SIGKILL when it is seen. One that forks and ends all the time would be
 * gone after the whole of /proc was read. */
static void scan(struct found *f, bool kill_children, const struct job_spared *spared) {
    DIR *d = opendir("/proc");
    if (d == NULL) return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int64_t pid = 0;
        struct proc st;
        if (!str_to_i64(e->d_name, 2, INT32_MAX, &pid) || !proc_read((pid_t)pid, &st)) continue;
        bool spare = spared != NULL && spared->session != 0 && st.session == spared->session &&
                     st.start_ticks <= spared->until_ticks;
        if (kill_children && !spare && st.parent == getpid()) kill((pid_t)pid, SIGKILL);
        if (f->n == f->cap) {
            f->cap = f->cap > 0 ? 2 * f->cap : 256;
            f->v = xrealloc(f->v, f->cap * sizeof *f->v);
        }
        f->v[f->n++] = (struct node){.pid = (pid_t)pid,
                                     .parent = st.parent,
                                     .group = st.group,
                                     .ended = st.state == 'Z' || st.state == 'X',
                                     .spared = spare};
    }
    closedir(d);
}

static int by_pid(const void *a, const void *b) {
    const struct node *x = a, *y = b;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

/* Marks the descendants of `root`: a child may have a lower pid than its parent, so until nothing changes. */
static void mark_descendants(struct found *f, pid_t root) {
    if (f->n > 0) qsort(f->v, f->n, sizeof *f->v, by_pid);
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < f->n; i++) {
            struct node key = {.pid = f->v[i].parent};
            if (f->v[i].ours) continue;
            const struct node *up = bsearch(&key, f->v, f->n, sizeof *f->v, by_pid);
            if (f->v[i].parent != root && (up == NULL || !up->ours)) continue;
            f->v[i].ours = more = true;
        }
    }
}

/* Processes of other users, such as those that sudo started. */
static void signal_as_root(const struct strv *pids, int sig) {
    const char *argv[4 + SUDO_PIDS + 1] = {"sudo", "-n", "kill", sig == SIGKILL ? "-KILL" : "-TERM"};
    GP_AUTO_STR struct str out = {0};
    int status = 0;
    if (pids->n == 0 || (sig != SIGKILL && sig != SIGTERM)) return;
    for (size_t i = 0; i < GP_MIN(pids->n, (size_t)SUDO_PIDS); i++) argv[4 + i] = pids->v[i];
    (void)command_run(argv, clock_deadline(SUDO_MS), &out, &status, NULL); /* the caller looks who is left */
}

static int signal_found(const struct found *f, int sig, pid_t except) {
    GP_AUTO_STRV struct strv refused = {0};
    int n = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (!f->v[i].ours || f->v[i].ended || f->v[i].spared) continue;
        n++;
        if (f->v[i].group == except || kill(f->v[i].pid, sig) == 0 || errno != EPERM) continue;
        strv_take(&refused, xasprintf("%d", (int)f->v[i].pid));
    }
    signal_as_root(&refused, sig);
    return n;
}

int job_procs_signal(int sig, pid_t except, const struct job_spared *spared) {
    GP_CLEANUP(found_clear) struct found f = {0};
    scan(&f, sig == SIGKILL, spared);
    mark_descendants(&f, getpid());
    return signal_found(&f, sig, except);
}

bool job_procs_only(const struct job_spared *spared) {
    GP_CLEANUP(found_clear) struct found f = {0};
    size_t n = 0, kept = 0;
    scan(&f, false, spared);
    mark_descendants(&f, getpid());
    for (size_t i = 0; i < f.n; i++) {
        if (!f.v[i].ours || f.v[i].ended) continue;
        n++;
        kept += f.v[i].spared;
    }
    return n > 0 && n == kept;
}

/* Whether the environment has "NAME=ID". It is read in pieces: it may be large, and its size is not known. */
static bool has_mark(pid_t pid, const char *mark) {
    GP_AUTO_FREE char *path = xasprintf("/proc/%d/environ", (int)pid);
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    GP_AUTO_STR struct str s = {0};
    char buf[16384];
    str_addc(&s, '\0');
    for (ssize_t n = 0; fd >= 0 && (n = read(fd, buf, sizeof buf)) > 0;)
        if (!str_add_mem(&s, buf, (size_t)n)) break;
    size_t size = strlen(mark) + 2; /* a NUL before and behind it */
    GP_AUTO_FREE char *want = xmalloc(size);
    want[0] = '\0';
    memcpy(want + 1, mark, size - 1);
    return memmem(s.s, s.len + 1, want, size) != NULL;
}

int job_marked_signal(const char *id, int sig) {
    GP_CLEANUP(found_clear) struct found f = {0};
    GP_AUTO_FREE char *mark = xasprintf(JOB_MARK "=%s", id);
    scan(&f, false, NULL);
    for (size_t i = 0; i < f.n; i++)
        f.v[i].ours = !f.v[i].ended && f.v[i].pid != getpid() && has_mark(f.v[i].pid, mark);
    return signal_found(&f, sig, 0);
}
