/* SPDX-License-Identifier: Apache-2.0 */
/* One poll loop over the commands of one or many sessions, in the calling thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <errno.h>
#include <poll.h>

static void cancel_all(struct ssh_task **tasks, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (tasks[i]->phase != TASK_DONE) ssh_task_cancel(tasks[i]);
}

/* Steps the tasks that are ready and ends late ones. Returns how many continue; sets when to wake and whether
 * a task can continue at once. */
static size_t step_all(struct ssh_task **tasks, size_t n, const struct pollfd *ready, int64_t *ret_wake_ms,
                       bool *ret_again) {
    size_t going = 0;
    *ret_wake_ms = GP_NEVER;
    *ret_again = false;
    for (size_t i = 0; i < n; i++) {
        struct ssh_task *t = tasks[i];
        if (t->phase == TASK_DONE) continue;
        ssh_task_nudge(t);
        bool late = clock_left_ms(ssh_task_deadline(t)) == 0;
        if (ready == NULL || ready[i].revents != 0 || t->again || late || t->session->dead) ssh_task_step(t);
        if (t->phase != TASK_DONE && ssh_task_late(t)) ssh_task_timeout(t);
        if (t->phase == TASK_DONE) continue;
        going++;
        *ret_wake_ms = GP_MIN(*ret_wake_ms, ssh_task_deadline(t));
        if (t->again) *ret_again = true;
    }
    return going;
}

static void fill(struct pollfd *p, struct ssh_task **tasks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        struct ssh_session *s = tasks[i]->session;
        bool on = tasks[i]->phase != TASK_DONE;
        p[i] = (struct pollfd){.fd = on ? s->fd : -1, .events = on ? ssh_wait_events(s) : (short)0};
        if (on) ssh_quick_ack(s);
    }
}

int ssh_tasks_run(struct ssh_task **tasks, size_t n, const struct gp_cancel *cancel) {
    struct pollfd *p = xcalloc(n + 1, sizeof *p);
    bool first = true, again = false;
    int r = 0;
    for (;;) {
        if (gp_cancelled(cancel)) {
            cancel_all(tasks, n);
            r = -(int)GP_ECANCELLED;
            break;
        }
        int64_t wake = GP_NEVER;
        if (step_all(tasks, n, first ? NULL : p, &wake, &again) == 0) break;
        first = false;
        fill(p, tasks, n);
        p[n] = (struct pollfd){.fd = cancel != NULL ? cancel->efd : -1, .events = POLLIN};
        int64_t left = again ? 0 : clock_left_ms(wake);
        int got = poll(p, (nfds_t)n + 1, left > 3600000 ? 3600000 : (int)left);
        if (got < 0 && errno != EINTR)
            for (size_t i = 0; i < n; i++) p[i].revents = POLLIN; /* each task checks by itself */
    }
    free(p);
    return r;
}

int ssh_exec_many(struct ssh_job *jobs, size_t n, const struct gp_cancel *cancel, struct gp_error *err) {
    struct ssh_task *tasks = xcalloc(n + 1, sizeof *tasks);
    struct ssh_task **list = xcalloc(n + 1, sizeof(struct ssh_task *));
    for (size_t i = 0; i < n; i++) {
        ssh_task_init(&tasks[i], jobs[i].session, jobs[i].command, &jobs[i].opts, &jobs[i].result);
        list[i] = &tasks[i];
    }
    int r = ssh_tasks_run(list, n, cancel);
    for (size_t i = 0; i < n; i++) {
        jobs[i].rc = tasks[i].rc;
        jobs[i].err = tasks[i].err;
        ssh_task_clear(&tasks[i]);
    }
    free(list);
    free(tasks);
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "cancelled while commands ran");
    return 0;
}
