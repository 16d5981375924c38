/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's folder, and the verbs that use it from later connections: follow and stop. Reads /proc; accepts a pid
 * only with its start time and this boot's id. One thread. */
#include "base/gp_base.h"

#include "rank_dir.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/proc.h"
#include "validate/agent/verbs.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

int rank_owner_write(const char *dir, pid_t pid, struct gp_error *err) {
    struct proc st;
    char boot[40];
    if (!proc_read(pid, &st)) return gp_fail(err, GP_EENV, "cannot read /proc/%d/stat", (int)pid);
    proc_boot_id(boot);
    GP_AUTO_FREE char *path = fs_join(dir, "pid");
    GP_AUTO_FREE char *text = xasprintf("%d %lld %s\n", (int)pid, (long long)st.start_ticks, boot);
    return fs_write_atomic(path, text, strlen(text), 0600, err);
}

int rank_owner_read(const char *dir, struct rank_owner *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, "pid");
    GP_AUTO_STR struct str s = {0};
    int r = fs_read(path, 256, &s, err);
    if (r != 0) return r;
    int pid = 0;
    long long start = 0;
    char boot[40] = "";
    if (s.s == NULL || sscanf(s.s, "%d %lld %39s", &pid, &start, boot) < 2 || pid <= 1)
        return gp_fail(err, GP_EPROTO, "'%s' is not a rank's pid file", path);
    *ret = (struct rank_owner){.pid = (pid_t)pid, .start_ticks = start};
    str_put(ret->boot_id, sizeof ret->boot_id, boot);
    return 0;
}

static bool same_boot(const struct rank_owner *o) {
    char boot[40];
    proc_boot_id(boot);
    return str_eq(boot, o->boot_id);
}

bool rank_owner_alive(const struct rank_owner *o) {
    struct proc st;
    return same_boot(o) && proc_read(o->pid, &st) && st.start_ticks == o->start_ticks && st.state != 'Z' &&
           st.state != 'X';
}

int rank_session_count(const struct rank_owner *o, bool kill_them) {
    struct proc st;
    if (!same_boot(o)) return 0;
    /* another process has this pid by now: the rank's session is over too */
    if (proc_read(o->pid, &st) && st.start_ticks != o->start_ticks) return 0;
    DIR *d = opendir("/proc");
    int n = 0;
    if (d == NULL) return 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        int64_t pid = 0;
        if (!str_to_i64(e->d_name, 2, INT32_MAX, &pid) || !proc_read((pid_t)pid, &st)) continue;
        if (st.session != o->pid || st.state == 'Z' || st.state == 'X') continue;
        n++;
        if (kill_them) kill((pid_t)pid, SIGKILL);
    }
    closedir(d);
    return n;
}

/* --- follow --- */

/* Passes on whole lines from *offset; an unfinished last line waits. */
static int pass_on(int fd, int64_t *offset, struct gp_error *err) {
    GP_AUTO_STR struct str s = {0};
    str_init(&s, (size_t)1 << 20);
    char buf[16384];
    for (;;) {
        ssize_t n = pread(fd, buf, sizeof buf, (off_t)*offset + (off_t)s.len);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot read the rank's lines");
        if (n > 0 && !str_add_mem(&s, buf, (size_t)n))
            return gp_fail(err, GP_EPROTO, "the rank wrote a line that does not end");
        char *last = s.len > 0 ? memrchr(s.s, '\n', s.len) : NULL;
        size_t whole = last != NULL ? (size_t)(last - s.s) + 1 : 0;
        if (whole > 0 && fs_write_all(STDOUT_FILENO, s.s, whole) != 0)
            return gp_fail(err, GP_EIO,
                           "cannot write to "
                           "stdout: no reader");
        memmove(s.s, s.s + whole, s.len - whole);
        s.len -= whole;
        *offset += (int64_t)whole;
        if (n == 0) return 0;
    }
}

int verb_follow(int argc, char **argv) {
    const char *dir = NULL;
    int64_t from = 0, wait_ms = 0;
    struct gp_error err = {0};
    struct rank_owner o = {0};
    const struct arg args[] = {{"--dir", ARG_TEXT, true, &dir},
                               {"--from", ARG_INT, false, &from},
                               {"--wait", ARG_INT, false, &wait_ms},
                               {.name = NULL}};
    int r = args_parse(argc, argv, args, &err);
    if (r == 0 && from < 0) r = gp_fail(&err, GP_EUSAGE, "--from is negative");
    if (r == 0) r = rank_owner_read(dir, &o, &err);
    GP_AUTO_FREE char *path = fs_join(dir != NULL ? dir : ".", "rank.jsonl");
    GP_AUTO_FD int fd = r == 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (r == 0 && fd < 0) r = gp_fail_errno(&err, GP_EIO, errno, "cannot read '%s'", path);
    int64_t end = clock_deadline(wait_ms), first = from;
    bool alive = true;
    while (r == 0) {
        alive = rank_owner_alive(&o); /* before the read, so that lines written before its end are read */
        r = pass_on(fd, &from, &err);
        if (r != 0 || !alive || from > first || clock_left_ms(end) == 0) break;
        gp_sleep(20, NULL, NULL);
    }
    if (r == 0) {
        GP_AUTO_FREE char *t =
            xasprintf("{\"type\":\"at\",\"offset\":%lld,\"alive\":%s}\n", (long long)from, alive ? "true" : "false");
        if (fs_write_all(STDOUT_FILENO, t, strlen(t)) == 0) return 0;
    }
    fprintf(stderr, "gpuprov-agent follow: %s\n", err.msg);
    return NODE_CHECK_UNKNOWN;
}

/* --- stop --- */

int verb_stop(int argc, char **argv) {
    const char *dir = NULL;
    struct gp_error err = {0};
    struct rank_owner o = {0};
    const struct arg args[] = {{"--dir", ARG_TEXT, true, &dir}, {.name = NULL}};
    int r = args_parse(argc, argv, args, &err);
    if (r == 0) r = rank_owner_read(dir, &o, &err);
    if (r == -GP_ENOTFOUND) {
        printf("{\"type\":\"stopped\",\"killed\":0,\"left\":0}\n");
        return 0;
    }
    if (r != 0) {
        fprintf(stderr, "gpuprov-agent stop: %s\n", err.msg);
        return NODE_CHECK_UNKNOWN;
    }
    int killed = rank_session_count(&o, true), left = killed;
    for (int64_t end = clock_deadline(2000); left > 0 && clock_left_ms(end) > 0;) {
        gp_sleep(20, NULL, NULL);
        left = rank_session_count(&o, true);
    }
    printf("{\"type\":\"stopped\",\"killed\":%d,\"left\":%d}\n", killed, left);
    if (left == 0) return 0;
    fprintf(stderr, "gpuprov-agent stop: cannot end %d processes of session %d: driver hang\n", left, (int)o.pid);
    return 2;
}
