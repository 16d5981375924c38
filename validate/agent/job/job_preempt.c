/* SPDX-License-Identifier: Apache-2.0 */
/* Runs the text `preempt` of a job. */
#include "base/gp_base.h"

#include "validate/agent/job/job_preempt.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/worker.h"
#include "validate/agent/job/job.h"

#include <signal.h>

#define LIMIT_S 90
#define SPARE_S 30 /* left to the job to end, and to whoever fetches its results */

int64_t job_preempt_limit_s(int64_t when_s, int64_t now_s) {
    int64_t left = when_s - now_s;
    if (left <= 0) return LIMIT_S;
    return GP_MIN(left - GP_MIN((int64_t)SPARE_S, left - left / 2), (int64_t)LIMIT_S);
}

static void add(struct job_preempt *p, const char *text) {
    size_t n = strlen(p->text);
    snprintf(p->text + n, sizeof p->text - n, "; preempt %s", text);
}

void job_preempt_begin(struct job_preempt *p, const struct job_request *q, const char *dir, int64_t when_s, int out) {
    char when[40] = "";
    struct gp_error err = {0};
    GP_AUTO_FREE char *file = fs_join(dir, "preempt");
    GP_AUTO_FREE char *more = xasprintf("GPUPROV_PREEMPT_AT=%lld", (long long)when_s);
    if (p->noticed) return;
    p->noticed = true;
    if (when_s > 0) time_format_utc(when, sizeof when, when_s);
    snprintf(p->text, sizeof p->text, "the cloud takes this node back%s%s", when_s > 0 ? " at " : "", when);
    if (q->preempt == NULL) return;
    p->limit_s = job_preempt_limit_s(when_s, clock_wall_s());
    if (p->limit_s == 0) {
        add(p, "did not run: there was no time");
        return;
    }
    pid_t pid = job_spawn(q, "preempt", file, more, out, &err);
    if (pid <= 0) {
        add(p, "did not run: no process");
        return;
    }
    p->pid = pid;
    p->end_at = clock_deadline(p->limit_s * 1000);
}

void job_preempt_tick(struct job_preempt *p) {
    if (p->end_at == GP_NEVER || clock_left_ms(p->end_at) > 0) return;
    char text[48];
    snprintf(text, sizeof text, "was ended after %lld s", (long long)p->limit_s);
    add(p, text);
    kill(-p->pid, SIGKILL);
    p->killed = true;
    p->end_at = GP_NEVER;
}

void job_preempt_hurry(struct job_preempt *p) {
    if (!job_preempt_runs(p)) return;
    kill(-p->pid, SIGKILL);
    p->killed = true;
    p->end_at = GP_NEVER;
}

void job_preempt_reaped(struct job_preempt *p, int status) {
    char how[96];
    worker_status_text(how, sizeof how, status);
    if (!p->killed && status != 0) add(p, how);
    p->pid = 0;
    p->end_at = GP_NEVER;
}

bool job_preempt_runs(const struct job_preempt *p) { return p->pid > 0 && !p->killed; }

bool job_preempt_due(const struct job_preempt *p) { return p->noticed && !job_preempt_runs(p); }
