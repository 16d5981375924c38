/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs run and exec: a job from its definition to its end. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_bucket.h"
#include "engine/job/job_deadline.h"
#include "engine/job/job_drive.h"
#include "engine/job/job_earlier.h"
#include "engine/job/job_fault.h"
#include "engine/job/job_recover.h"

#include "engine/run/lock.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/run/stack_dir.h"

#define OTHER_MS 500 /* between two tries to take over from another gpuprov */

static void stage(const struct job_session *s, enum job_stage stage) {
    if (s->opts->stage != NULL) s->opts->stage(s->opts->ctx, stage);
}

/* --- a job that is there already --- */

static bool all_ready(const struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_node *j = &s->all.items[i];
        if (j->n->rec.phase != NODE_READY || j->n->rc != 0 || !str_eq(j->look.boot, j->n->rec.boot_id)) return false;
    }
    return true;
}

/* On some nodes only: the gpuprov that started it was killed meanwhile. A node whose machine is gone had it: the job is
 * followed, and the rules of recovery decide. */
static bool is_partial(const struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        bool used = (i == 0 || !s->def.rank0) && !s->all.items[i].gone;
        if (used && strcmp(s->all.items[i].state.id, s->found.id) != 0) return true;
    }
    return false;
}

/* It has failed where it is, and cannot go on elsewhere. */
static bool is_dead(const struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_state *st = &s->all.items[i].state;
        bool its = strcmp(st->id, s->found.id) == 0;
        if (its && st->phase == JOB_ENDED && !job_state_ok(st)) return !s->found.running;
    }
    return false;
}

/* A node that lacks it is younger: `up` has launched it since, and the job's files are not there. */
static bool is_replaced(const struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_node *j = &s->all.items[i];
        bool lacks = (i == 0 || !s->def.rank0) && !j->gone && strcmp(j->state.id, s->found.id) != 0;
        for (size_t k = 0; lacks && k < s->all.len; k++) {
            const struct job_state *st = &s->all.items[k].state;
            if (strcmp(st->id, s->found.id) == 0 && st->started_s > 0 && j->n->res.created_s > st->started_s)
                return true;
        }
    }
    return false;
}

/* Ends a job that is on some nodes only, and gives its broken nodes back, so that `up` and a new job follow. */
static int settle(struct job_whole *w, struct gp_error *err) {
    struct job_session *s = &w->s;
    struct gp_error why = {0};
    bool left = false;
    char uid[17];
    w->ours = true; /* as a job that is found on all nodes */
    job_say(s, EVENT_WARN, "a job that is on some nodes only is stopped: it is started again");
    for (size_t i = 0; i < s->all.len; i++) s->all.items[i].used = i == 0 || !s->def.rank0;
    if (s->found.running) job_session_stop(s, "it was not started on every node");
    int r = job_session_fetch(s, &left, &why);
    if (left) {
        job_say_left(w, false);
        if (err != NULL) *err = why;
        return r;
    }
    r = job_recover_give_back(s, uid, err);
    if (r == 0 && uid[0] == '\0' && job_recover_is_needed(s))
        return gp_fail(err, GP_EJOB, "'%s': the job failed because of a node, which was not replaced", w->spec->name);
    if (r == 0) job_mark_collected(&s->all, s->ret->id);
    return r;
}

/* The job that an earlier `run` finished but for the nodes: its result is taken over, and the rest is destroyed. If
 * nodes still have files, w->end has it. */
static int look_for_end(struct job_whole *w, struct gp_error *err) {
    struct job_session *s = &w->s;
    struct job_end end = {0};
    bool there = false;
    const char *name = w->spec->name;
    int r = job_end_read(s->e, &s->run->stack, &end, &there, err);
    if (r != 0 || !there) return r;
    bool same = strcmp(end.job.key, s->def.key) == 0, owed = end.owed.list.len > 0;
    if (!same || s->opts->no_down) {
        r = gp_fail(err, GP_EBUSY,
                    "'%s': job %s%s has ended%s: 'gpuprov down %s' destroys the rest, then this command runs its job%s",
                    name, end.job.id, same ? "" : ", another one,",
                    owed ? ", and outputs of it are still on its nodes"
                         : " with its outputs here, and gpuprov was killed before it had destroyed the nodes",
                    name,
                    !same  ? ""
                    : owed ? "; without --no-down it fetches them and reports that job's result"
                           : "; without --no-down it destroys them and reports that job's result");
        job_end_clear(&end);
        return r;
    }
    if (job_end_check_same(&end, s->run, err) != 0) {
        job_end_clear(&end);
        return -(int)GP_EBUSY;
    }
    if (owed) {
        w->end = end;
        return 0;
    }
    job_result_clear(s->ret);
    *s->ret = end.job;
    end.job = (struct job_result){0};
    w->its = end.why;
    job_end_clear(&end);
    w->resumed = w->ours = true;
    GP_AUTO_FREE char *text =
        xasprintf("job %s has ended, its outputs are here, and gpuprov was killed before it had destroyed the nodes: "
                  "this one destroys them, and reports that job's result",
                  s->ret->id);
    job_say(s, EVENT_WARN, text);
    return 0;
}

/* Whether a stack of this name has the result of an ended job, by this machine's state alone. */
static bool has_end(const struct job_whole *w) {
    const struct engine *e = w->s.e;
    struct stack_list all = {0};
    bool has = journal_stacks(e->journal, &all, NULL) != 0;
    for (size_t i = 0; i < all.list.len && !has; i++) {
        struct job_end end = {0};
        bool there = false;
        if (!str_eq(all.list.items[i].name, w->spec->name) || all.list.items[i].uid == NULL) continue;
        has = job_end_read(e, &all.list.items[i], &end, &there, NULL) != 0 || there;
        job_end_clear(&end);
    }
    stack_list_clear(&all);
    return has;
}

/* Looks for the job of this definition before `up`: a validation would disturb it. *ret_found: it is there, and the
 * session is open. w->resumed: it is over but for the nodes. Trouble with nodes is not an error, because `up` meets it
 * too, and names it. */
static int look_first(struct job_whole *w, bool *ret_found, struct gp_error *err) {
    struct job_session *s = &w->s;
    struct gp_error why = {0};
    *ret_found = false;
    int r = job_session_open_stack(s, NULL, w->spec, false, &why);
    if (r != 0 && r != -GP_ENOTFOUND && s->guard != NULL && has_end(w)) { /* `up` would forget it, and run it again */
        if (err != NULL) *err = why;
        return r;
    }
    if (r == 0 && s->guard != NULL) {
        int b = look_for_end(w, err);
        if (b != 0 || job_is_over(w)) return b;
    }
    if (r == 0) r = job_session_open_nodes(s, &why);
    if (r == 0) r = job_session_find(s, s->def.key, &why);
    bool found = r == 0 && s->found.id[0] != '\0';
    w->none = r == -GP_ENOTFOUND;
    if (r == 0 && !found) (void)job_nodes_missing(&s->all, &why);
    w->unseen = r == -GP_ENOTFOUND || found ? (struct gp_error){0} : why;
    if (found && s->guard != NULL && !s->found.ended && is_partial(s) &&
        (!all_ready(s) || is_dead(s) || is_replaced(s))) {
        int b = settle(w, err);
        if (b != 0) return b;
        found = false;
    }
    *ret_found = found;
    if (found) return 0;
    job_session_close(s);
    s->found = (struct job_found){0};
    s->ret->id[0] = s->ret->key[0] = '\0';
    s->ret->stopped = false;
    job_outcome_clear(&s->ret->outcome);
    if (r != -GP_EBUSY && r != -GP_ECANCELLED) return 0;
    if (err != NULL) *err = why;
    return r;
}

/* --- the job --- */

static void say_detached(const struct job_session *s) {
    const char *name = s->run->stack.name;
    run_event(s->run, -1, NODE_READY, EVENT_INFO, "job",
              "job %s goes on by itself: 'gpuprov attach %s' follows it, 'gpuprov cancel %s' ends it; the nodes end at "
              "their deadline",
              s->ret->id, name, name);
}

/* A follower only prints: the other process on this machine fetches the outputs and destroys the nodes. */
static int follow_other(struct job_session *s, struct gp_error *err) {
    job_say(s, EVENT_INFO, "another gpuprov on this machine runs this job: only its log is printed here");
    s->ret->attached = true;
    int r = job_session_follow(s, false, err);
    if (r == -GP_ECANCELLED) job_session_left(s, err);
    return r == 0 ? job_session_verdict(s, err) : r;
}

/* After the job that another gpuprov drives has ended: waits until that one has done the rest, and takes over if it
 * could not. After a failure it does not wait: the exit code is that of the failure. */
static int wait_for_other(struct job_session *s, int verdict, struct gp_error *err) {
    for (bool said = false; s->guard == NULL;) {
        struct gp_error why = {0};
        int r = job_session_guard(s, s->run->stack.name, &why);
        if (r != 0) {
            if (verdict != 0) return verdict;
            if (err != NULL) *err = why;
            return r;
        }
        if (s->guard != NULL) break;
        if (!said)
            job_say(s, EVENT_INFO,
                    "the other gpuprov fetches the outputs and destroys the nodes: 'gpuprov run' takes over "
                    "if it does not");
        said = true;
        if (verdict != 0) return verdict;
        r = gp_sleep(OTHER_MS, &s->e->cancel, err);
        if (r != 0) return r;
    }
    return verdict;
}

/* Another gpuprov drives the job: follows it. *ret_over: r is the result. Else that one is gone and has left the job to
 * this one, which holds the guard, and *ret_found is that of look_first. */
static int follow_then(struct job_whole *w, bool *ret_over, bool *ret_found, struct gp_error *err) {
    struct job_session *s = &w->s;
    struct gp_error first = {0};
    char id[17], key[65];
    int v = follow_other(s, &first);
    *ret_over = true;
    if (v != -GP_ECANCELLED) v = wait_for_other(s, v, &first);
    if (s->guard == NULL || v == -GP_ECANCELLED) {
        if (v != 0 && err != NULL) *err = first;
        return v;
    }
    struct job_outcome done = s->ret->outcome;
    s->ret->outcome = (struct job_outcome){.failed = -1};
    memcpy(id, s->ret->id, sizeof id);
    memcpy(key, s->ret->key, sizeof key);
    job_session_close(s);
    s->found = (struct job_found){0};
    int r = look_first(w, ret_found, err);
    if (r == 0 && !*ret_found && !job_is_over(w)) { /* all is done */
        memcpy(s->ret->id, id, sizeof id);
        memcpy(s->ret->key, key, sizeof key);
        job_outcome_clear(&s->ret->outcome);
        s->ret->outcome = done;
        if (v == 0 && w->unseen.code != GP_OK)
            return gp_fail(err, w->unseen.code,
                           "'%s': the other gpuprov has ended, and whether its outputs were fetched is not known: "
                           "repeat 'gpuprov run': %.250s",
                           w->spec->name, w->unseen.msg);
        if (v != 0 && err != NULL) *err = first;
        return v;
    }
    job_outcome_clear(&done);
    if (r != 0) return r;
    *ret_over = false;
    if (job_is_over(w)) return 0;
    w->seen = strcmp(s->found.id, id) == 0;
    job_say(s, EVENT_WARN, "the other gpuprov has ended without its outputs: this one goes on");
    return 0;
}

/* -d starts a job and fetches nothing, so it is of no use for one that has ended. */
static int check_detach(const struct job_session *s, struct gp_error *err) {
    if (!s->opts->detach || s->found.id[0] == '\0' || !s->found.ended) return 0;
    return gp_fail(err, GP_EUSAGE,
                   "'%s': this job has ended (%s), and its results were not fetched: repeat this command without "
                   "--detach to fetch them",
                   s->run->stack.name, s->found.id);
}

static int run_job(struct job_whole *w, struct gp_error *err) {
    struct job_session *s = &w->s;
    bool found = false, over = false;
    int r = look_first(w, &found, err);
    if (r == 0 && s->guard == NULL && found) {
        r = follow_then(w, &over, &found, err);
        if (over) return r;
    }
    if (r != 0) return r;
    if (w->resumed) {
        *err = w->its;
        return -(int)w->its.code;
    }
    if (job_is_over(w)) return job_finish(w, err);
    if (s->guard == NULL)
        return gp_fail(err, GP_EBUSY, "'%s': another gpuprov runs a job on it: repeat this when it has ended",
                       w->spec->name);
    if (found && (r = check_detach(s, err)) != 0) return r;
    if (w->none) r = job_bucket_left(s, &over, err);
    if (over) return r;
    w->ours = found;
    if (r == 0 && !found) r = job_bucket_check(s, err);
    if (r == 0 && !found) r = job_bucket_bring(s, err);
    if (r == 0 && !found) r = job_get_nodes(w, err);
    if (r == 0 && !found) r = job_session_open(s, NULL, w->spec, true, err);
    bool left = false;
    if (r == 0 && !found) r = job_earlier_fetch(s, &left, err);
    if (left) job_say_left(w, false);
    if (r == 0 && !found && !s->opts->detach) r = job_deadline_room(s->run, err);
    if (r == 0) r = job_session_begin(s, err);
    if (r == -GP_EBUSY) job_leave_busy(w);
    if (r != 0) return r;
    if (!s->opts->detach) return job_drive_all(w, err);
    say_detached(s);
    s->ret->running = true;
    w->ours = false;
    return 0;
}

/* --- the end --- */

/* Keeps the nodes after a failure, at most until their deadline, which ends them too. Ctrl-C ends the wait. */
static void keep(struct job_whole *w, const struct gp_error *why) {
    const struct job_session *s = &w->s;
    int64_t ms = job_keep_ms(w);
    struct gp_error ignored = {0};
    char time[32], when[32];
    if (ms <= 0) return;
    const struct run *run = s->run;
    int64_t ends_s = run != NULL ? run->stack.expires_s : s->ret->up.view.stack.expires_s;
    int64_t left_ms = ends_s > 0 ? GP_MAX((ends_s - clock_wall_s()) * 1000, (int64_t)0) : ms;
    ms = GP_MIN(ms, left_ms);
    duration_format(time, sizeof time, ms);
    time_format_utc(when, sizeof when, clock_wall_s() + ms / 1000);
    GP_AUTO_FREE char *text =
        xasprintf("%.250s: the nodes stay for %s, until %s ('gpuprov ssh %s'); Ctrl-C destroys them now",
                  why != NULL ? why->msg : "it failed", time, when, w->spec->name);
    job_say(s, EVENT_WARN, text);
    if (gp_sleep(ms, &s->e->cancel, &ignored) != 0) engine_go_on(s->e);
}

/* Of --no-down. After a failure before the job `up` has reported it. */
static void say_stay(const struct job_whole *w) {
    const struct run *run = w->s.run;
    const char *name = w->spec->name;
    char when[32];
    if (run == NULL) return;
    time_format_utc(when, sizeof when, run->stack.expires_s);
    GP_AUTO_FREE char *text =
        xasprintf("the nodes stay%s%s: 'gpuprov exec %s' runs another job on them, 'gpuprov down %s' destroys them",
                  run->stack.expires_s > 0 ? " until " : "", run->stack.expires_s > 0 ? when : "", name, name);
    job_say(&w->s, EVENT_INFO, text);
}

/* `up` left something that may be billed, and `down` has shown that nothing is left of it. */
static int settled(bool cancelled, struct gp_error *err) {
    struct gp_error why = {0};
    if (err != NULL) why = *err;
    if (err != NULL) gp_error_clear(err);
    if (cancelled) return gp_fail(err, GP_ECANCELLED, "cancelled during the launch: nothing is left of it");
    return gp_fail(err, GP_EREACH, "the launch failed, and nothing is left of it: %.300s", why.msg);
}

/* Of the stack that this run launched or found; NULL: it has none. Borrowed. */
static const char *own_uid(const struct job_whole *w) {
    const struct job_session *s = &w->s;
    if (w->uid[0] != '\0') return w->uid;
    return s->run != NULL && s->run->stack.uid != NULL ? s->run->stack.uid : s->ret->up.view.stack.uid;
}

/* `down` removes it with the stack, unless something unbilled is left to `gc`. */
static void forget_result(const struct job_session *s, const char *uid) {
    struct gp_error why = {0};
    if (stack_dir_forget_job_end(s->e, uid, &why) != 0) job_say(s, EVENT_WARN, why.msg);
}

static int destroy(struct job_whole *w, int r, struct gp_error *err) {
    struct job_session *s = &w->s;
    struct gp_error why = {0};
    const char *own = own_uid(w);
    GP_AUTO_FREE char *uid = own != NULL ? xstrdup(own) : NULL;
    struct down_req req = {.spec = w->spec, .yes = true, .uid = uid};
    bool cancelled = r == -GP_ECANCELLED || gp_cancelled(&s->e->cancel);
    if (gp_cancelled(&s->e->cancel)) engine_go_on(s->e);
    job_keep_result(w, err);
    job_session_close(s);
    int d = engine_down(s->e, &req, &s->ret->down, &why);
    s->ret->destroyed = true;
    if (d == 0) forget_result(s, uid);
    if (d == 0 && (r == -GP_EUNKNOWN || r == -GP_EBILLED)) return settled(cancelled, err);
    if (d == 0) return r;
    if (r == 0 || gp_exit_worst(gp_exit_code((enum gp_code) - d), gp_exit_code((enum gp_code) - r)) ==
                      gp_exit_code((enum gp_code) - d)) {
        if (r != 0 && err != NULL) event_emit(&s->e->sink, -1, NODE_FAILED, EVENT_FAIL, "job", "%s", err->msg);
        if (err != NULL) *err = why;
        return d;
    }
    event_emit(&s->e->sink, -1, NODE_FAILED, EVENT_FAIL, "down", "%s", why.msg);
    return r;
}

int engine_run(struct engine *e, const struct spec *spec, const struct job_opts *opts, struct job_result *ret,
               struct gp_error *err) {
    struct job_whole w = {.s = {.e = e, .opts = opts, .ret = ret}, .spec = spec};
    ret->outcome.failed = -1;
    w.s.ends = true;
    int r = job_def_make(spec, opts->cmd, opts->n_cmd, &w.s.def, err);
    if (r == 0) r = job_session_guard(&w.s, spec->name, err);
    if (r == 0) r = run_job(&w, err);
    if (opts->no_down || !w.ours) job_fault_record(&w.s);
    if (!w.resumed) stage(&w.s, JOB_STAGE_END); /* else the receivers of notices know how the job ended */
    if (!w.resumed && r != 0 && w.s.run != NULL) run_event_end(w.s.run, err);
    bool failed = r != 0 && r != -GP_ECANCELLED && !w.resumed;
    if (w.ours && !opts->no_down && failed) keep(&w, err);
    if (w.ours && opts->no_down && !w.resumed) say_stay(&w);
    if (w.ours && !opts->no_down) r = destroy(&w, r, err);
    job_session_clear(&w.s);
    job_end_clear(&w.end);
    return r;
}

/* --- exec --- */

static int exec_job(struct job_session *s, const char *name, const struct spec *spec, struct gp_error *err) {
    int r = job_session_guard(s, spec != NULL ? spec->name : name, err);
    if (r == 0) r = job_session_open(s, name, spec, s->guard != NULL, err);
    if (r == 0 && s->run->spec == NULL)
        r = gp_fail(err, GP_EUSAGE,
                    "the spec of '%s' is not in this machine's journal: give the spec file instead of "
                    "the name",
                    s->run->stack.name);
    if (r == 0) r = job_def_make(s->run->spec, s->opts->cmd, s->opts->n_cmd, &s->def, err);
    if (r == 0) r = job_session_find(s, s->def.key, err);
    if (r != 0) return r;
    if (s->guard == NULL && s->found.id[0] != '\0') return follow_other(s, err);
    if (s->guard == NULL)
        return gp_fail(err, GP_EBUSY, "'%s': another gpuprov runs a job on it: repeat this when it has ended",
                       s->run->stack.name);
    bool left = false;
    bool new = s->found.id[0] == '\0';
    r = check_detach(s, err);
    if (r == 0 && new) r = job_bucket_check(s, err);
    if (r == 0 && new) r = job_bucket_bring(s, err);
    if (r == 0 && new) r = job_earlier_fetch(s, &left, err);
    if (r == 0) r = job_session_begin(s, err);
    run_unlock(s->run);
    if (r != 0) return r;
    if (!s->opts->detach) {
        r = job_drive(s, NULL, &left, err);
        job_recover_note(s);
        job_fault_record(s);
        return r;
    }
    say_detached(s);
    s->ret->running = true;
    return 0;
}

int engine_exec(struct engine *e, const char *name, const struct spec *spec, const struct job_opts *opts,
                struct job_result *ret, struct gp_error *err) {
    struct job_session s = {.e = e, .opts = opts, .ret = ret};
    ret->outcome.failed = -1;
    int r = exec_job(&s, name, spec, err);
    stage(&s, JOB_STAGE_END);
    if (r != 0 && s.run != NULL && err != NULL) run_event_end(s.run, err);
    job_session_clear(&s);
    return r;
}
