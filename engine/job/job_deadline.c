/* SPDX-License-Identifier: Apache-2.0 */
/* The deadline of the stack while a job is followed. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_deadline.h"

#include "engine/run/run_event.h"
#include "engine/run/run_node.h"
#include "engine/run/run_provider.h"

enum {
    WARN_S = 15 * 60, /* at most a quarter of the stack's life */
    STOP_S = 5 * 60,  /* at most a tenth of it: on SIGTERM a job has 10 s, the rest is for its files */
    STOP_LEAST_S = 30,
    FRESH_S = 60,   /* so long before the stop it is read for it, at most: a cloud that hangs must not delay the stop */
    LOOK_S = 5 * 60 /* between two readings */
};

struct marks {
    int64_t warn_s, stop_s; /* before the deadline */
};

static struct marks marks_of(const struct stack *s) {
    int64_t life_s = s->created_s > 0 && s->expires_s > s->created_s ? s->expires_s - s->created_s : 86400;
    struct marks m = {.stop_s = GP_MIN((int64_t)STOP_S, GP_MAX(life_s / 10, (int64_t)STOP_LEAST_S))};
    m.warn_s = GP_MAX(GP_MIN((int64_t)WARN_S, life_s / 4), 2 * m.stop_s);
    return m;
}

static int64_t left_s(const struct job_deadline *d) {
    return d->run->stack.expires_s - run_cloud_s(d->run, d->run->stack.provider);
}

static int64_t fresh_s(const struct marks *m) { return GP_MIN((int64_t)FRESH_S, m->stop_s / 2); }

int job_deadline_room(const struct run *run, struct gp_error *err) {
    struct marks m = marks_of(&run->stack);
    int64_t left = run->stack.expires_s - run_cloud_s(run, run->stack.provider);
    const struct provider_ops *ops = provider_find(run->stack.provider);
    enum offer_ends ends = run_nodes_end(run);
    char text[32];
    if (ends == ENDS_BY_PROVIDER && ops != NULL) ends = ops->ends;
    if (run->stack.expires_s <= 0 || ends == ENDS_NEVER || left > m.stop_s) return 0;
    duration_format(text, sizeof text, GP_MAX(left, (int64_t)0) * 1000);
    return gp_fail(err, GP_EUSAGE,
                   "'%s': the deadline is in %s, and a job would be stopped at once: run 'gpuprov extend %s 2h' first",
                   run->stack.name, text, run->stack.name);
}

/* When the next mark is passed, or the deadline has to be read again. */
static void plan_look(struct job_deadline *d) {
    struct marks m = marks_of(&d->run->stack);
    int64_t left = left_s(d), next = LOOK_S, to_stop = left - m.stop_s;
    if (d->warned_s != d->run->stack.expires_s) next = GP_MIN(next, left - m.warn_s);
    if (d->stops) next = GP_MIN(next, to_stop > fresh_s(&m) ? to_stop - fresh_s(&m) : to_stop);
    d->look_at_ms = clock_deadline(GP_MAX(next, (int64_t)1) * 1000);
}

void job_deadline_init(struct job_deadline *d, struct run *run, bool stops) {
    *d = (struct job_deadline){.run = run, .stops = stops, .look_at_ms = GP_NEVER};
    if (run->stack.expires_s > 0) plan_look(d);
}

int64_t job_deadline_due_ms(const struct job_deadline *d) { return clock_left_ms(d->look_at_ms); }

/* False: nothing ends the nodes at it. What cannot be read stays as it was. */
static bool read_again(struct job_deadline *d) {
    struct stack_view_list found = {0};
    struct gp_error ignored = {0};
    struct run *run = d->run;
    bool ends = true;
    (void)engine_status(run->e, run->stack.name, run->spec, true, &found, &ignored);
    d->read_ms = clock_ms();
    for (size_t i = 0; i < found.list.len; i++) {
        const struct stack_view *v = &found.list.items[i];
        if (!str_eq(v->stack.uid, run->stack.uid)) continue;
        if (v->stack.expires_s > 0) run->stack.expires_s = v->stack.expires_s;
        ends = !str_eq(v->ends, "never");
    }
    stack_view_list_clear(&found);
    return ends;
}

static void warn(struct job_deadline *d, const struct marks *m) {
    const struct stack *s = &d->run->stack;
    char left[32], when[40], before[32];
    duration_format(left, sizeof left, GP_MAX(left_s(d), (int64_t)0) * 1000);
    duration_format(before, sizeof before, m->stop_s * 1000);
    time_format_utc(when, sizeof when, s->expires_s);
    GP_AUTO_FREE char *then = d->stops ? xasprintf("the job is stopped %s before, and its files are fetched", before)
                                       : xstrdup("the nodes end then, and the job with them");
    run_event(d->run, -1, NODE_READY, EVENT_WARN, "job",
              "the deadline is in %s, at %s: %s; 'gpuprov extend %s +1h' moves it", left, when, then, s->name);
    d->warned_s = s->expires_s;
}

bool job_deadline_look(struct job_deadline *d) {
    if (job_deadline_due_ms(d) > 0) return false;
    struct marks m = marks_of(&d->run->stack);
    bool fresh = d->read_ms != 0 && clock_ms() - d->read_ms <= 2 * fresh_s(&m) * 1000;
    if (d->stops && fresh && left_s(d) <= m.stop_s) return true;
    bool ends = read_again(d);
    m = marks_of(&d->run->stack);
    int64_t left = left_s(d);
    if (!ends) {
        d->look_at_ms = GP_NEVER;
        return false;
    }
    if (d->stops && left <= m.stop_s) return true;
    if (d->warned_s != d->run->stack.expires_s && left <= m.warn_s) warn(d, &m);
    plan_look(d);
    return false;
}
