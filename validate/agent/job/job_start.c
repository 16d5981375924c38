/* SPDX-License-Identifier: Apache-2.0 */
/* `job start` and `job again`: make the job's folder, and start its supervisor. Sent again with the same ID they
 * report what there is. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/proc.h"
#include "validate/agent/job/job.h"
#include "validate/agent/job/job_health.h"
#include "validate/agent/job/job_procs.h"
#include "validate/agent/verbs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_MS 60000
#define READY_MS 60000
#define KEEP 4 /* jobs that ended and whose outputs were fetched */

/* --- the request --- */

static int read_stdin(struct str *ret, struct gp_error *err) {
    char buf[65536];
    str_init(ret, JOB_REQUEST_MAX);
    for (int64_t end = clock_deadline(READ_MS);;) {
        if (gp_wait_fd(STDIN_FILENO, POLLIN, end, NULL, NULL, NULL) != 0)
            return gp_fail(err, GP_ETIMEOUT, "the request on stdin does not end");
        ssize_t n = read(STDIN_FILENO, buf, sizeof buf);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "cannot read the request on stdin");
        if (n == 0) return 0;
        bool fits = str_add_mem(ret, buf, (size_t)n);
        explicit_bzero(buf, (size_t)n);
        if (!fits) return gp_fail(err, GP_EPROTO, "the request on stdin has more than %zu bytes", JOB_REQUEST_MAX);
    }
}

static int read_request(const char *id, struct job_request *ret, struct gp_error *err) {
    GP_AUTO_STR struct str s = {0};
    int r = read_stdin(&s, err);
    if (r == 0) r = job_request_parse(s.s, s.len, ret, err);
    if (s.s != NULL) explicit_bzero(s.s, s.cap);
    if (r == -GP_EPROTO) return gp_wrap(err, "the request of job %s", id);
    if (r == 0 && !str_eq(ret->id, id)) r = gp_fail(err, GP_EPROTO, "the request on stdin is for job %s", ret->id);
    return r;
}

/* --- its folder --- */

static int write_file(const struct job_home *h, const char *id, const char *name, const char *text,
                      struct gp_error *err) {
    GP_AUTO_FREE char *path = job_path(h, id, name);
    return fs_write_atomic(path, text, strlen(text), 0600, err);
}

static int create_slots(const struct job_home *h, const char *id, const char *name, const char *text,
                        struct gp_error *err) {
    GP_AUTO_FREE char *path = job_path(h, id, name);
    return slots_create(path, text, err);
}

/* The state comes last: a folder without one is half of a job, and is made anew. */
static int make_job(const struct job_home *h, const struct job_request *q, struct job_state *st, struct gp_error *err) {
    GP_AUTO_FREE char *dir = job_path(h, q->id, NULL), *cwd = job_cwd(q);
    GP_AUTO_STR struct str request = {0}, state = {0};
    str_init(&request, 8 * JOB_REQUEST_MAX);
    int r = fs_remove_tree(dir, err);
    if (r == 0 && mkdir(dir, 0700) != 0) r = gp_fail_errno(err, GP_EIO, errno, "cannot make the folder '%s'", dir);
    if (r == 0) r = fs_mkdirs(cwd, 0755, err);
    if (r == 0) r = write_file(h, q->id, "run", q->run, err);
    if (r == 0 && q->setup != NULL) r = write_file(h, q->id, "setup", q->setup, err);
    if (r == 0 && q->preempt != NULL) r = write_file(h, q->id, "preempt", q->preempt, err);
    if (r == 0 && q->restart > 0 && q->secrets.n == 0) {
        job_request_json(q, &request);
        r = write_file(h, q->id, "request", request.s, err);
        st->unit = r == 0 && job_unit_install();
    }
    if (r == 0) r = create_slots(h, q->id, "stop", "-", err);
    if (r == 0) r = job_log_create(dir, err);
    if (r == 0 && q->watch) r = health_create(dir, err);
    job_state_json(st, -1, &state);
    if (r == 0) r = create_slots(h, q->id, "state", state.s, err);
    return r;
}

static void first_state(const struct job_request *q, int64_t number, struct job_state *st) {
    *st = (struct job_state){.rank = q->rank, .ranks = q->ranks, .attempt = 1, .restart = q->restart, .exit = -1};
    str_put(st->id, sizeof st->id, q->id);
    str_put(st->key, sizeof st->key, q->key);
    st->number = number;
    st->started_s = clock_wall_s();
}

static void begin_attempt(const struct job_request *q, struct job_state *st) {
    st->phase = q->setup != NULL ? JOB_SETUP : JOB_RUNNING;
    str_put(st->in, sizeof st->in, q->setup != NULL ? "setup" : "run");
    st->attempt_s = clock_wall_s();
    st->ended_s = 0;
    st->exit = -1;
    st->signal[0] = st->reason[0] = st->text[0] = '\0';
    st->preempted = false;
    proc_boot_id(st->boot);
}

static int put_state(const struct job_home *h, const struct job_state *st, struct gp_error *err) {
    GP_AUTO_FREE char *path = job_path(h, st->id, "state");
    GP_AUTO_STR struct str s = {0};
    struct slots slot;
    int r = slots_open(path, &slot, err);
    if (r != 0) return r;
    job_state_json(st, -1, &s);
    r = slots_put(&slot, s.s, true);
    close(slot.fd);
    return r == 0 ? 0 : gp_fail_errno(err, GP_EIO, -r, "cannot write '%s'", path);
}

/* --- the supervisor --- */

static int wait_ready(int fd, pid_t pid, const char *id, struct gp_error *err) {
    char text[GP_ERROR_MSG_MAX] = "";
    size_t n = 0;
    for (int64_t end = clock_deadline(READY_MS); n + 1 < sizeof text && memchr(text, '\0', n) == NULL;) {
        int r = gp_wait_fd(fd, POLLIN, end, NULL, NULL, NULL);
        ssize_t got = r == 0 ? read(fd, text + n, sizeof text - 1 - n) : 0;
        if (got <= 0) {
            kill(pid, SIGKILL); /* a supervisor without a record must not run */
            waitpid(pid, NULL, 0);
            (void)job_marked_signal(id, SIGKILL);
            return gp_fail(err, GP_EENV, "job %s: its supervisor did not start", id);
        }
        n += (size_t)got;
    }
    if (text[0] == '\0') return 0;
    waitpid(pid, NULL, 0);
    return gp_fail(err, GP_EENV, "%s", text);
}

static int launch(struct job_home *h, const struct job_request *q, const struct job_state *st, bool rebooted,
                  struct gp_error *err) {
    GP_AUTO_FREE char *dir = job_path(h, st->id, NULL);
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) return gp_fail_errno(err, GP_EENV, errno, "job %s: cannot create a pipe", st->id);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        job_supervise(dir, q, st, rebooted, fds[1], h->lock);
        _exit(0);
    }
    int e = errno;
    close(fds[1]);
    int r = pid > 0 ? wait_ready(fds[0], pid, st->id, err)
                    : gp_fail_errno(err, GP_EENV, e, "job %s: cannot start its supervisor", st->id);
    close(fds[0]);
    return r;
}

/* --- start --- */

/* Logs are large: of jobs that nobody needs any more, only the newest stay. */
static void drop_old(struct job_home *h, const struct job *all, size_t n) {
    for (size_t i = 0, kept = 0; i < n; i++) {
        if (all[i].alive || all[i].st.phase != JOB_ENDED || !all[i].st.collected || ++kept <= KEEP) continue;
        GP_AUTO_FREE char *dir = job_path(h, all[i].st.id, NULL);
        (void)fs_remove_tree(dir, NULL);
    }
}

static int start_new(struct job_home *h, const struct job_request *q, int64_t number, struct job *j,
                     struct gp_error *err) {
    GP_AUTO_FREE char *dir = job_path(h, q->id, NULL);
    first_state(q, number, &j->st);
    begin_attempt(q, &j->st);
    int r = make_job(h, q, &j->st, err);
    if (r == 0) r = launch(h, q, &j->st, false, err);
    if (r == 0) return 0;
    if (j->st.unit) job_unit_remove();
    (void)fs_remove_tree(dir, NULL); /* nothing of it ran */
    return r;
}

static int start_again(struct job_home *h, const struct job_request *q, struct job *j, struct gp_error *err) {
    struct job_state *st = &j->st;
    char boot[40];
    proc_boot_id(boot);
    bool rebooted = !str_eq(boot, st->boot);
    st->attempt++;
    begin_attempt(q, st);
    int r = put_state(h, st, err);
    if (r == 0) r = launch(h, q, st, rebooted, err);
    if (r == 0) return 0;
    st->attempt--; /* nothing of it ran */
    job_state_lost(st, clock_wall_s(), err->msg);
    (void)put_state(h, st, NULL);
    return r;
}

/* Under the lock. *ret_word: the answer. */
static int start(struct job_home *h, const struct job_request *q, struct job *ret, const char **ret_word,
                 struct gp_error *err) {
    GP_AUTO_FREE struct job *all = NULL;
    struct job *own = NULL;
    size_t n = 0;
    GP_AUTO_STRV struct strv ids = {0};
    job_ids(h, &ids);
    for (size_t i = 0; i < ids.n; i++) { /* one whose state cannot be read may run too */
        struct gp_error why = {0};
        struct job j;
        if (job_look(h, ids.v[i], &j, &why) != 0 && j.alive) {
            *err = why;
            return gp_wrap(err, "it runs, but its state cannot be read");
        }
    }
    int r = job_all(h, &all, &n, err);
    if (r != 0) return r;
    for (size_t i = 0; i < n; i++) {
        if (str_eq(all[i].st.id, q->id)) own = &all[i];
        if (!all[i].alive || str_eq(all[i].st.id, q->id)) continue;
        *ret = all[i];
        *ret_word = "busy";
        return 0;
    }
    *ret_word = "started";
    if (own == NULL) {
        drop_old(h, all, n);
        return start_new(h, q, n > 0 ? all[0].st.number + 1 : 1, ret, err);
    }
    *ret = *own;
    if (!str_eq(own->st.key, q->key))
        return gp_fail(err, GP_EEXISTS, "job %s exists on this node with another definition; use a new ID", q->id);
    if (own->alive || !job_state_again(&own->st)) {
        *ret_word = own->alive ? "running" : "ended";
        return 0;
    }
    return start_again(h, q, ret, err);
}

int job_start(const char *id, int argc, char **argv) {
    GP_CLEANUP(job_request_clear) struct job_request q = {0};
    GP_CLEANUP(job_home_close) struct job_home h = {.lock = -1};
    const struct arg none[] = {{.name = NULL}};
    const char *word = "";
    struct gp_error err = {0};
    struct job j;
    int r = args_parse(argc, argv, none, &err);
    if (r == 0) r = read_request(id, &q, &err);
    if (r == 0) r = job_home_open(&h, true, &err);
    if (r == 0) r = job_home_lock(&h, &err);
    if (r == 0) r = start(&h, &q, &j, &word, &err);
    if (r != 0) return job_failed("start", &err);
    job_print(&h, &j, word);
    return 0;
}

/* --- again --- */

static int stored_request(const struct job_home *h, const char *id, struct job_request *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = job_path(h, id, "request");
    GP_AUTO_STR struct str s = {0};
    str_init(&s, 8 * JOB_REQUEST_MAX);
    int r = fs_read(path, 8 * JOB_REQUEST_MAX, &s, err);
    if (r == 0) r = job_request_parse(s.s, s.len, ret, err);
    if (r == 0 && !str_eq(ret->id, id)) r = gp_fail(err, GP_EPROTO, "'%s' is the request of job %s", path, ret->id);
    return r;
}

/* For the unit: starts the job that a reboot ended, if it may run again. */
int job_again(int argc, char **argv) {
    GP_CLEANUP(job_request_clear) struct job_request q = {0};
    GP_CLEANUP(job_home_close) struct job_home h = {.lock = -1};
    const struct arg none[] = {{.name = NULL}};
    struct gp_error err = {0};
    struct job j;
    int r = args_parse(argc, argv, none, &err);
    if (r == 0) r = job_home_open(&h, true, &err);
    if (r == 0) r = job_home_lock(&h, &err);
    if (r == 0) r = job_newest(&h, &j, &err);
    if (r == -GP_ENOTFOUND || (r == 0 && !j.alive && !(j.st.unit && job_state_again(&j.st)))) {
        job_unit_remove(); /* nothing to start, now or later */
        return 0;
    }
    if (r == 0 && !j.alive) r = stored_request(&h, j.st.id, &q, &err);
    if (r == 0 && !j.alive) r = start_again(&h, &q, &j, &err);
    if (r != 0) return job_failed("again", &err);
    job_print(&h, &j, "started");
    return 0;
}
