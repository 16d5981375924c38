/* SPDX-License-Identifier: Apache-2.0 */
/* A job of `run` from its start to its files. */
#include "base/gp_base.h"

#include "engine/job/job_drive.h"

#include "engine/job/job_bucket.h"
#include "engine/job/job_owed.h"
#include "engine/job/job_recover.h"

#include "engine/run/run_event.h"

void job_say(const struct job_session *s, enum event_status status, const char *text) {
    if (s->run != NULL) run_event(s->run, -1, NODE_READY, status, "job", "%s", text);
    else event_emit(&s->e->sink, -1, NODE_READY, status, "job", "%s", text);
}

static int approve(void *ctx, const struct plan *plan, struct gp_error *err) {
    struct job_whole *w = ctx;
    int r = w->approve != NULL ? w->approve(w->approve_ctx, plan, err) : 0;
    w->ours = r == 0;
    return r;
}

int job_get_nodes(struct job_whole *w, struct gp_error *err) {
    struct engine *e = w->s.e;
    bool first = w->uid[0] == '\0';
    w->approve = e->approve;
    w->approve_ctx = e->approve_ctx;
    e->approve = first ? approve : NULL; /* launches within the limits of a spec that was approved are too */
    e->approve_ctx = w;
    e->continues = first ? NULL : w->uid;
    up_result_clear(&w->s.ret->up);
    e->destroys = !w->s.opts->no_down;
    int r = engine_up(e, w->spec, &w->s.ret->up, err);
    e->destroys = false;
    e->continues = NULL;
    e->approve = w->approve;
    e->approve_ctx = w->approve_ctx;
    return r;
}

void job_say_left(struct job_whole *w, bool never) {
    GP_AUTO_FREE char *who = job_owed_text(&w->s);
    GP_AUTO_FREE char *text =
        xasprintf("%s outputs that %s, 'gpuprov down %s' destroys %s", who,
                  never ? "cannot be copied as they are: when none is left there, the same 'gpuprov run' goes on"
                        : "are not here: the same 'gpuprov run' fetches them",
                  w->spec->name, str_starts(who, "node ") ? "it" : "them");
    job_say(&w->s, EVENT_FAIL, text);
    w->ours = false;
}

void job_leave_busy(struct job_whole *w) {
    const struct run *run = w->s.run;
    char until[40];
    w->ours = false;
    if (run == NULL || run->stack.uid == NULL || !run_any_exists(run)) return;
    time_format_utc(until, sizeof until, run->stack.expires_s);
    GP_AUTO_FREE char *text = xasprintf(
        "the nodes stay%s%s, because a node reports that another job runs on it: 'gpuprov down %s' destroys them",
        run->stack.expires_s > 0 ? " until " : "", run->stack.expires_s > 0 ? until : "", w->spec->name);
    job_say(&w->s, EVENT_FAIL, text);
}

bool job_is_over(const struct job_whole *w) { return w->resumed || w->end.owed.list.len > 0; }

void job_keep_result(const struct job_whole *w, const struct gp_error *why) {
    const struct job_session *s = &w->s;
    struct gp_error unwritten = {0};
    if (!w->ended || w->resumed || s->opts->no_down || s->run == NULL || s->run->stack.uid == NULL) return;
    const struct job_owed_list none = {0};
    if (job_end_write(s->run, s->ret, why, &none, &unwritten) == 0) return;
    GP_AUTO_FREE char *text = xasprintf("if gpuprov is killed before the nodes are gone, another 'gpuprov run' begins "
                                        "the job anew: %s",
                                        unwritten.msg);
    job_say(s, EVENT_WARN, text);
}

/* From the outcome of a job to its files and its result. r: of following it; v: why it failed, -(code of *its), with
 * *its. */
static int conclude(struct job_session *s, struct job_whole *w, int r, const struct gp_error *its, bool *ret_left,
                    struct gp_error *err) {
    int v = -(int)its->code;
    struct gp_error files = {0};
    size_t from = s->ret->fetched.len;
    int c = job_session_fetch(s, ret_left, &files);
    if (r == 0 && v != 0 && !*ret_left && w != NULL && !job_is_over(w)) {
        int b = job_recover_give_back(s, w->uid, err);
        if (b != 0 || w->uid[0] != '\0') return b;
    }
    if (r == 0 && v == 0 && c == 0) {
        c = job_session_whole(s, from, &files);
        *ret_left = c != 0;
        if (c != 0 && w == NULL) job_mark_collected(&s->all, s->ret->id); /* exec: the next one is a new job */
    }
    if (c == 0 && w != NULL && w->lost.code != GP_OK) {
        files = w->lost;
        c = -(int)files.code;
    }
    if (r == 0 && v == 0 && (s->unsent || s->unkept)) { /* a part that is not here either comes first */
        struct gp_error parts = {0};
        bool whole = job_session_whole(s, from, &parts) == 0;
        if (!whole && !s->unsent) files = parts;
        *ret_left = *ret_left || !whole;
        if (!*ret_left && s->unsent) job_bucket_note(s);
        if (!whole && !s->unsent && w == NULL) job_mark_collected(&s->all, s->ret->id);
    }
    if (r == 0 && v != 0) {
        r = v;
        *err = *its;
        if (s->unsent || s->unkept) job_say(s, EVENT_FAIL, files.msg);
    } else if (r == 0 && c != 0) {
        r = c;
        *err = files;
    } else if (c != 0) {
        job_say(s, EVENT_FAIL, files.msg);
    }
    if (c != 0 && !(s->unkept && !s->unsent && !*ret_left)) return r;
    if (w != NULL) job_keep_result(w, err);
    job_mark_collected(&s->all, s->ret->id);
    job_bucket_done(s);
    job_session_seen(s, true);
    if (r == 0) job_session_say_success(s);
    return r;
}

int job_drive(struct job_session *s, struct job_whole *w, bool *ret_left, struct gp_error *err) {
    int r = job_session_follow(s, true, err);
    if (r == -GP_ECANCELLED) {
        engine_go_on(s->e);
        job_session_stop(s, "gpuprov was interrupted");
        job_session_stopped(s, w == NULL, err);
    }
    struct gp_error why = {0};
    (void)job_session_verdict(s, &why);
    if (w != NULL) {
        w->ended = r == 0 || r == -GP_ECANCELLED;
        w->judged = r == 0;
        w->its = why;
    }
    return conclude(s, w, r, &why, ret_left, err);
}

/* The nodes that were given back are launched again, and the job starts anew under another id. */
static int begin_anew(struct job_whole *w, struct gp_error *err) {
    struct job_session *s = &w->s;
    job_session_close(s);
    s->found = (struct job_found){0};
    int r = job_get_nodes(w, err);
    if (r == 0) r = job_session_open(s, NULL, w->spec, true, err);
    if (r != 0) return r;
    s->ret->id[0] = '\0';
    return job_session_begin(s, err);
}

int64_t job_keep_ms(const struct job_whole *w) {
    return w->s.opts->keep_ms > 0 ? w->s.opts->keep_ms : w->spec->job.keep_ms;
}

/* Nodes have files that are not here. The others are destroyed, unless the same command may still need them: to look at
 * a failure, or to run the job again. r: what is returned; from: where ret->fetched begins. */
static void leave(struct job_whole *w, int r, size_t from) {
    struct job_session *s = &w->s;
    bool never = r == -GP_EIO && job_session_whole(s, from, NULL) != 0;
    bool failed = w->its.code != GP_OK;
    bool needed = s->opts->no_down || (failed && job_keep_ms(w) > 0) || job_recover_may_follow(s);
    bool stopped = r == -GP_ECANCELLED || gp_cancelled(&s->e->cancel);
    if (w->judged && !needed && !stopped && w->lost.code == GP_OK) job_owed_end_others(s, &w->its);
    job_say_left(w, never);
}

int job_finish(struct job_whole *w, struct gp_error *err) {
    struct job_session *s = &w->s;
    bool left = false;
    w->its = w->end.why;
    int r = job_owed_open(s, &w->end, &w->lost, err);
    if (r != 0) return r;
    w->ours = w->ended = w->judged = true;
    job_say(s, EVENT_INFO, "the job has ended, and this fetches its outputs that were left on nodes");
    size_t from = s->ret->fetched.len;
    r = conclude(s, w, 0, &w->end.why, &left, err);
    if (left) leave(w, r, from);
    return r;
}

int job_drive_all(struct job_whole *w, struct gp_error *err) {
    for (;;) {
        bool left = false;
        size_t from = w->s.ret->fetched.len;
        w->uid[0] = '\0';
        const struct job_opts *usual = w->s.opts;
        struct job_opts quiet = *usual;
        quiet.text = NULL;
        if (w->seen) w->s.opts = &quiet;
        int r = job_drive(&w->s, w, &left, err);
        w->s.opts = usual;
        w->seen = false;
        if (left) leave(w, r, from);
        if (r != 0 || w->uid[0] == '\0') return r;
        w->ended = false;
        r = begin_anew(w, err);
        if (r == -GP_EBUSY) job_leave_busy(w);
        if (r != 0) return r;
    }
}
