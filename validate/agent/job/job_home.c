/* SPDX-License-Identifier: Apache-2.0 */
/* The folders of jobs: paths, the lock, reading states, and the end of jobs that lost their supervisor. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/proc.h"
#include "validate/agent/base/rank_dir.h"
#include "validate/agent/job/job.h"
#include "validate/agent/job/job_procs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define LOCK_MS 30000
#define KILL_MS 5000

/* As NODE_DIR in templates/bootstrap/run/lib.sh. */
static char *node_name(void) {
    struct utsname u = {0};
    GP_AUTO_STR struct str id = {0};
    uname(&u);
    (void)fs_read("/etc/machine-id", 256, &id, NULL);
    char *name = xasprintf("%s-%s", u.nodename, id.s != NULL ? str_trim(id.s) : "");
    for (char *p = name; *p != '\0'; p++)
        if (*p == '/') *p = '_';
    return name;
}

int job_home_open(struct job_home *ret, bool make, struct gp_error *err) {
    const char *home = getenv("HOME");
    *ret = (struct job_home){.lock = -1};
    if (home == NULL || home[0] != '/') return gp_fail(err, GP_EENV, "HOME is not the path of a folder");
    GP_AUTO_FREE char *name = node_name();
    GP_AUTO_FREE char *own = fs_join(home, ".gpuprov");
    ret->root = xasprintf("%s/nodes/%s/jobs", own, name);
    if (!make) return 0;
    if (mkdir(own, 0700) != 0 && errno != EEXIST)
        return gp_fail_errno(err, GP_EIO, errno, "cannot make the folder '%s'", own);
    return fs_mkdirs(ret->root, 0700, err);
}

int job_home_lock(struct job_home *h, struct gp_error *err) {
    if (h->lock >= 0) return 0;
    GP_AUTO_FREE char *path = fs_join(h->root, "lock");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    /* also on a disk that became read-only: jobs are ended and reported there too */
    if (fd < 0 && errno == EROFS) fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot write '%s'", path);
    for (int64_t end = clock_deadline(LOCK_MS); flock(fd, LOCK_EX | LOCK_NB) != 0;) {
        if (errno != EWOULDBLOCK && errno != EINTR) break;
        if (clock_left_ms(end) == 0) {
            close(fd);
            return gp_fail(err, GP_EBUSY, "another call of 'gpuprov-agent job' holds '%s'; try again", path);
        }
        gp_sleep(20, NULL, NULL);
    }
    h->lock = fd;
    return 0;
}

void job_home_close(struct job_home *h) {
    free(h->root);
    if (h->lock >= 0) close(h->lock);
    *h = (struct job_home){.lock = -1};
}

char *job_path(const struct job_home *h, const char *id, const char *file) {
    return file != NULL ? xasprintf("%s/%s/%s", h->root, id, file) : xasprintf("%s/%s", h->root, id);
}

void job_ids(const struct job_home *h, struct strv *ret) {
    DIR *d = opendir(h->root);
    if (d == NULL) return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (job_id_ok(e->d_name)) strv_add(ret, e->d_name);
    closedir(d);
}

int64_t job_log_bytes(const struct job_home *h, const char *id) {
    struct log_head head;
    GP_AUTO_FREE char *dir = job_path(h, id, NULL);
    return job_log_head(dir, &head, NULL) == 0 ? head.total : 0;
}

char *job_stop_reason(const char *dir) {
    GP_AUTO_FREE char *path = fs_join(dir, "stop");
    GP_AUTO_STR struct str s = {0};
    if (slots_get(path, &s, NULL) != 0 || s.s == NULL || !str_starts(s.s, "stop")) return NULL;
    str_one_line(s.s);
    return xstrdup(str_trim(s.s + 4));
}

int job_look(const struct job_home *h, const char *id, struct job *ret, struct gp_error *err) {
    struct rank_owner o;
    GP_AUTO_FREE char *dir = job_path(h, id, NULL), *path = job_path(h, id, "state");
    GP_AUTO_STR struct str s = {0};
    *ret = (struct job){.st.exit = -1};
    /* first: a supervisor writes the end before it ends */
    ret->alive = rank_owner_read(dir, &o, NULL) == 0 && rank_owner_alive(&o);
    ret->pid = ret->alive ? o.pid : 0;
    int r = slots_get(path, &s, err);
    if (r == 0) r = job_state_parse(s.s != NULL ? s.s : "", s.len, &ret->st, err);
    /* it only tidies up: another job may start */
    if (r == 0 && ret->st.phase == JOB_ENDED) ret->alive = false;
    if (r == 0 && !str_eq(ret->st.id, id)) r = gp_fail(err, GP_EPROTO, "it is the state of job %s", ret->st.id);
    return r == 0 ? 0 : gp_wrap(err, "job %s", id);
}

/* What the supervisor would have done. */
static void end_lost(const struct job_home *h, struct job *j) {
    struct job_state *st = &j->st;
    GP_AUTO_FREE char *dir = job_path(h, st->id, NULL), *pid = job_path(h, st->id, "pid");
    GP_AUTO_FREE char *state = job_path(h, st->id, "state"), *stop = job_stop_reason(dir);
    char boot[40];
    int killed = 0;
    struct job_log log;
    struct slots slot = {.fd = -1};
    GP_AUTO_STR struct str s = {0};
    proc_boot_id(boot);
    bool rebooted = !str_eq(boot, st->boot);
    if (!rebooted) {
        killed = job_marked_signal(st->id, SIGKILL);
        st->left = killed;
        for (int64_t end = clock_deadline(KILL_MS); st->left > 0 && clock_left_ms(end) > 0;) {
            gp_sleep(20, NULL, NULL);
            st->left = job_marked_signal(st->id, SIGKILL);
        }
    }
    GP_AUTO_FREE char *text =
        rebooted
            ? xasprintf("the node rebooted while %s ran", st->in)
            : xasprintf("the job's supervisor was killed while %s ran; %d of its processes still ran and were killed",
                        st->in, killed);
    job_state_lost(st, clock_wall_s(), text);
    if (stop != NULL) str_put(st->reason, sizeof st->reason, "stopped"); /* not to be started again */
    job_state_json(st, -1, &s);
    /* Where nothing can be written, the next call finds the same again. */
    if (slots_open(state, &slot, NULL) == 0) {
        (void)slots_put(&slot, s.s, true);
        close(slot.fd);
    }
    unlink(pid);
    if (job_log_open(&log, dir, false, false, NULL) == 0) job_log_close(&log);
}

int job_settle(struct job_home *h, const char *id, struct job *ret, struct gp_error *err) {
    bool locked = h->lock >= 0;
    int r = job_look(h, id, ret, err);
    if (r != 0 || ret->alive || ret->st.phase == JOB_ENDED) return r;
    r = job_home_lock(h, err); /* a job that is being started has no supervisor yet */
    if (r == 0) r = job_look(h, id, ret, err);
    if (r == 0 && !ret->alive && ret->st.phase != JOB_ENDED) end_lost(h, ret);
    if (!locked && h->lock >= 0) {
        close(h->lock);
        h->lock = -1;
    }
    return r;
}

static int newer(const void *a, const void *b) {
    const struct job *x = a, *y = b;
    return (x->st.number < y->st.number) - (x->st.number > y->st.number);
}

int job_all(struct job_home *h, struct job **ret, size_t *ret_n, struct gp_error *err) {
    GP_AUTO_STRV struct strv ids = {0};
    job_ids(h, &ids);
    *ret = xcalloc(ids.n + 1, sizeof **ret);
    *ret_n = 0;
    for (size_t i = 0; i < ids.n; i++) {
        struct gp_error why = {0};
        int r = job_settle(h, ids.v[i], &(*ret)[*ret_n], &why);
        if (r == -GP_EBUSY) {
            if (err != NULL) *err = why;
            return r;
        }
        if (r == 0) ++*ret_n;
    }
    if (*ret_n > 0) qsort(*ret, *ret_n, sizeof **ret, newer);
    return 0;
}

int job_newest(struct job_home *h, struct job *ret, struct gp_error *err) {
    GP_AUTO_FREE struct job *all = NULL;
    size_t n = 0;
    int r = job_all(h, &all, &n, err);
    if (r != 0) return r;
    if (n == 0) return gp_fail(err, GP_ENOTFOUND, "this node has no job");
    *ret = all[0];
    return 0;
}
