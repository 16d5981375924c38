/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that only look at a stack's job or end it: attach, wait, cancel, logs --job. They take no lock and need no
 * spec. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_session.h"

#include "engine/run/run_event.h"

static void begin(struct job_session *s, struct engine *e, const struct job_opts *opts, struct job_result *ret) {
    *s = (struct job_session){.e = e, .opts = opts, .ret = ret};
    ret->outcome.failed = -1;
}

/* Opens the stack and finds its newest job. */
static int open_newest(struct job_session *s, const char *name, const struct spec *spec, struct gp_error *err) {
    int r = job_session_open(s, name, spec, false, err);
    if (r == 0) r = job_session_find(s, NULL, err);
    if (r != 0 || s->ret->id[0] != '\0') return r;
    r = job_nodes_missing(&s->all, err);
    if (r != 0) return r;
    return gp_fail(err, GP_ENOTFOUND, "'%s' has no job: 'gpuprov exec %s -- CMD' runs one", s->run->stack.name,
                   s->run->stack.name);
}

int engine_attach(struct engine *e, const char *name, const struct spec *spec, const struct job_opts *opts,
                  struct job_result *ret, struct gp_error *err) {
    struct job_session s;
    begin(&s, e, opts, ret);
    int r = open_newest(&s, name, spec, err);
    ret->attached = r == 0;
    if (r == 0)
        run_event(s.run, -1, NODE_READY, EVENT_INFO, "job", "job %s %s", ret->id,
                  s.found.running ? "runs" : "has ended");
    if (r == 0) {
        r = job_session_follow(&s, false, err);
        if (r == -GP_ECANCELLED) job_session_left(&s, err);
    }
    if (r == 0) r = job_session_verdict(&s, err);
    if (r == 0) job_session_say_success(&s);
    job_session_clear(&s);
    return r;
}

int engine_cancel_job(struct engine *e, const char *name, const struct spec *spec, struct job_result *ret,
                      struct gp_error *err) {
    struct job_session s;
    const struct job_opts none = {0};
    begin(&s, e, &none, ret);
    int r = job_session_open(&s, name, spec, false, err);
    if (r == 0) r = job_session_find(&s, NULL, err);
    if (r == 0 && !s.found.running) {
        ret->id[0] = '\0';
        r = job_nodes_missing(&s.all, err);
    } else if (r == 0) {
        for (size_t i = 0; i < s.all.len; i++) s.all.items[i].used = strcmp(s.all.items[i].state.id, ret->id) == 0;
        job_session_stop(&s, "it was cancelled");
        r = job_session_check_stopped(&s, err);
    }
    job_session_clear(&s);
    return r;
}

/* What the log of one node has now. */
static int print_one(struct job_session *s, size_t i, struct gp_error *err) {
    struct job_node *j = &s->all.items[i];
    if (j->n->rc != 0) {
        if (err != NULL) *err = j->n->err;
        return j->n->rc;
    }
    if (strcmp(j->state.id, s->ret->id) != 0 || j->state.log_bytes == 0) return 0;
    for (size_t k = 0; k < s->all.len; k++) s->all.items[k].used = k == i;
    struct job_follow f = {.all = &s->all,
                           .id = s->ret->id,
                           .keep_others = true,
                           .until_now = true,
                           .away_ms = 1,
                           .text = s->opts->text,
                           .pause = s->opts->pause,
                           .ctx = s->opts->ctx};
    job_outcome_clear(&s->ret->outcome);
    int r = job_follow(&f, &s->ret->outcome, err);
    return r == 0 ? job_session_verdict(s, err) : r;
}

int engine_job_log(struct engine *e, const char *name, const struct spec *spec, const struct job_opts *opts,
                   struct job_result *ret, struct gp_error *err) {
    struct job_session s;
    begin(&s, e, opts, ret);
    int r = open_newest(&s, name, spec, err);
    if (r == 0 && opts->slot >= (int)s.all.len)
        r = gp_fail(err, GP_ENOTFOUND, "%s/%d: there is no such node: 'gpuprov status %s' lists the nodes",
                    s.run->stack.name, opts->slot, s.run->stack.name);
    if (r == 0 && opts->stage != NULL) opts->stage(opts->ctx, JOB_STAGE_LOG);
    if (r == 0 && opts->follow) {
        for (size_t i = 0; i < s.all.len; i++) {
            struct job_node *j = &s.all.items[i];
            j->used = (opts->slot < 0 || (int)i == opts->slot) && strcmp(j->state.id, ret->id) == 0;
        }
        struct job_follow f = {.all = &s.all,
                               .id = ret->id,
                               .keep_others = true,
                               .text = opts->text,
                               .pause = opts->pause,
                               .ctx = opts->ctx};
        r = job_follow(&f, &ret->outcome, err);
    }
    for (size_t i = 0; r == 0 && !opts->follow && i < s.all.len; i++)
        if (opts->slot < 0 || (int)i == opts->slot) r = print_one(&s, i, err);
    job_session_clear(&s);
    return r;
}
