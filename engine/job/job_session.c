/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a verb on the job of a stack. The verb's thread. */
#include "base/gp_base.h"

#include "engine/job/job_session.h"

#include "engine/job/job_backup.h"
#include "engine/job/job_bucket.h"
#include "engine/job/job_files.h"
#include "engine/job/seen/job_seen.h"
#include "engine/run/lock.h"
#include "engine/run/run_event.h"
#include "engine/run/run_provider.h"
#include "engine/run/stack_dir.h"
#include "engine/stack/adopt.h"
#include "engine/stack/open_known.h"
#include "engine/stack/reconcile.h"

#include <ctype.h>

#define CONNECT_MS 30000
#define STOPPED_AWAY_MS 20000 /* a node that does not answer after a stop is not waited for */

void job_fetched_clear(struct job_fetched *f) {
    free(f->path);
    free(f->to);
    free(f->error);
    strv_clear(&f->notes);
}

void job_result_clear(struct job_result *r) {
    for (size_t i = 0; i < r->fetched.len; i++) job_fetched_clear(&r->fetched.items[i]);
    vec_free(&r->fetched);
    for (size_t i = 0; i < r->stored.len; i++) {
        free(r->stored.items[i].to);
        free(r->stored.items[i].error);
        strv_clear(&r->stored.items[i].notes);
    }
    vec_free(&r->stored);
    vec_free(&r->health);
    vec_free(&r->replaced);
    job_outcome_clear(&r->outcome);
    up_result_clear(&r->up);
    down_result_clear(&r->down);
    *r = (struct job_result){0};
}

void job_session_close(struct job_session *s) {
    job_nodes_clear(&s->all);
    run_close(s->run);
    s->run = NULL;
}

void job_session_clear(struct job_session *s) {
    job_session_close(s);
    job_def_clear(&s->def);
    run_close(s->guard);
    s->guard = NULL;
}

/* A lock of its own, because that of the stack is free while the job runs: `down` and `cancel` must not wait for it. */
int job_session_guard(struct job_session *s, const char *stack, struct gp_error *err) {
    struct run *guard = NULL;
    struct gp_error why = {0};
    int64_t usual = s->e->opts.lock_timeout_ms;
    int r = run_open(s->e, NULL, NULL, &guard, err);
    if (r != 0) return r;
    guard->stack.name = xasprintf("job of %s", stack);
    s->e->opts.lock_timeout_ms = -1;
    r = run_lock(guard, &why);
    s->e->opts.lock_timeout_ms = usual;
    if (r == 0) {
        s->guard = guard;
        return 0;
    }
    run_close(guard);
    if (r == -GP_EBUSY) return 0;
    if (err != NULL) *err = why;
    return r;
}

int job_session_open_stack(struct job_session *s, const char *name, const struct spec *spec, bool locked,
                           struct gp_error *err) {
    int r = run_open_known(s->e, spec, name, &s->run, err);
    if (r == 0 && locked) r = adopt_existing(s->run, err);
    if (r == 0 && !locked) r = reconcile(s->run, NULL, err);
    if (r == 0 && s->run->stack.uid == NULL)
        r = gp_fail(err, GP_ENOTFOUND, "there is no stack '%s': 'gpuprov status' lists the stacks", s->run->stack.name);
    return r;
}

int job_session_open_nodes(struct job_session *s, struct gp_error *err) {
    int r = job_nodes_open(s->run, CONNECT_MS, &s->all, err);
    if (r == 0) r = job_nodes_look(&s->all, err);
    struct job_found ignored;
    if (r == 0 && s->def.spec != NULL) r = job_find(&s->all, s->def.key, &ignored, err);
    return r;
}

int job_session_open(struct job_session *s, const char *name, const struct spec *spec, bool locked,
                     struct gp_error *err) {
    int r = job_session_open_stack(s, name, spec, locked, err);
    return r == 0 ? job_session_open_nodes(s, err) : r;
}

int job_session_find(struct job_session *s, const char *key, struct gp_error *err) {
    int r = job_find(&s->all, key, &s->found, err);
    if (r != 0) return r;
    memcpy(s->ret->id, s->found.id, sizeof s->ret->id);
    for (size_t i = 0; i < s->all.len; i++)
        if (strcmp(s->all.items[i].state.id, s->ret->id) == 0)
            str_put(s->ret->key, sizeof s->ret->key, s->all.items[i].state.key);
    return 0;
}

/* Which nodes run the job: by its definition, or where this verb has none, those that have it. */
static void choose_nodes(struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        struct job_node *j = &s->all.items[i];
        if (s->def.spec != NULL) j->used = i == 0 || !s->def.rank0;
        else j->used = s->ret->id[0] == '\0' || strcmp(j->state.id, s->ret->id) == 0 || j->n->rc != 0;
    }
}

/* The nodes that the definition uses and that lack the job which was found on others. One whose machine is gone had it:
 * its follower reports the loss, and the rules of recovery decide. */
static bool lacks_any(const struct job_session *s) {
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_node *j = &s->all.items[i];
        if (j->used && !j->gone && strcmp(j->state.id, s->found.id) != 0) return true;
    }
    return false;
}

int job_session_begin(struct job_session *s, struct gp_error *err) {
    struct run *run = s->run;
    choose_nodes(s);
    str_put(s->ret->key, sizeof s->ret->key, s->def.key);
    s->ret->attached = s->found.id[0] != '\0';
    if (s->ret->attached && (s->found.ended || !lacks_any(s))) {
        run_event(run, -1, NODE_READY, EVENT_INFO, "job", "continues with job %s, which %s", s->found.id,
                  s->found.ended ? "has ended: its outputs were not fetched" : "runs");
        return 0;
    }
    int r = run_is_locked(run) ? 0 : run_lock(run, err);
    if (r == 0 && run->secrets == NULL) r = run_read_secrets(run, err);
    if (r == 0) r = job_begin_check(&s->all, err);
    if (r == 0) r = stack_dir_forget_job_end(s->e, run->stack.uid, err);
    if (r == 0 && !s->ret->attached) r = job_bucket_bring(s, err);
    if (r == 0 && !s->ret->attached) r = job_files_send(&s->all, &s->def.spec->job, err);
    if (r == 0) r = job_begin(&s->all, &s->def, s->ret->id, err);
    if (r == 0) job_session_seen(s, false);
    if (r == 0)
        run_event(run, -1, NODE_READY, EVENT_START, "job", "job %s runs on %d node%s", s->ret->id,
                  s->def.rank0 ? 1 : (int)s->all.len, s->def.rank0 || s->all.len == 1 ? "" : "s");
    run_unlock(run);
    return r;
}

/* The same job may be followed twice, and then reports everything again. */
static void keep_health(struct job_result *ret, const struct job_rank_health *h) {
    for (size_t i = 0; i < ret->health.len; i++) {
        const struct job_rank_health *k = &ret->health.items[i];
        if (k->rank == h->rank && k->found.n == h->found.n && strcmp(k->id, h->id) == 0) return;
    }
    vec_push(&ret->health, *h);
}

/* away_ms 0: the job goes on, and the deadline counts. Else it was asked to end. */
static int follow(struct job_session *s, bool drive, int64_t away_ms, struct gp_error *err) {
    struct job_deadline deadline;
    job_deadline_init(&deadline, s->run, drive && s->ends);
    struct job_follow f = {.all = &s->all,
                           .id = s->ret->id,
                           .def = drive && s->def.spec != NULL ? &s->def : NULL,
                           .keep_others = !drive,
                           .stopped = away_ms > 0,
                           .silent = s->opts->text == NULL,
                           .deadline = away_ms == 0 ? &deadline : NULL,
                           .away_ms = away_ms,
                           .text = s->opts->text,
                           .pause = s->opts->pause,
                           .ctx = s->opts->ctx};
    job_outcome_clear(&s->ret->outcome);
    int r = job_follow(&f, &s->ret->outcome, err);
    for (size_t i = 0; i < s->ret->outcome.health.len; i++) keep_health(s->ret, &s->ret->outcome.health.items[i]);
    return r;
}

int job_session_follow(struct job_session *s, bool drive, struct gp_error *err) {
    struct job_backup *backup = NULL;
    struct gp_error why = {0};
    choose_nodes(s);
    if (drive && s->def.spec != NULL && job_backup_start(&s->all, &s->def.spec->job, &backup, &why) != 0)
        run_event(s->run, -1, NODE_READY, EVENT_WARN, "files", "no checkpoints are fetched: %s", why.msg);
    for (size_t i = 0; i < s->all.len; i++)
        if (s->all.items[i].used) run_event(s->run, (int)i, NODE_READY, EVENT_PROGRESS, "job", "job %s", s->ret->id);
    if (s->opts->stage != NULL) s->opts->stage(s->opts->ctx, JOB_STAGE_LOG);
    int r = follow(s, drive, 0, err);
    job_backup_stop(backup);
    if (s->opts->stage != NULL) s->opts->stage(s->opts->ctx, JOB_STAGE_END);
    s->ret->running = r == -GP_ECANCELLED;
    job_session_seen(s, false);
    return r;
}

void job_session_stop(struct job_session *s, const char *reason) {
    struct gp_error ignored = {0};
    if (s->run == NULL || s->ret->id[0] == '\0') return;
    run_event(s->run, -1, NODE_READY, EVENT_WARN, "job", "stopping job %s", s->ret->id);
    (void)job_stop(&s->all, s->ret->id, reason, NULL, &ignored);
    s->ret->stopped = true;
    gp_error_clear(&ignored);
    const struct job_opts *usual = s->opts;
    struct job_opts quiet = *usual;
    quiet.text = NULL; /* the end of its log would come behind the reader's Ctrl-C */
    s->opts = &quiet;
    (void)follow(s, false, STOPPED_AWAY_MS, &ignored);
    s->opts = usual;
    s->ret->running = false;
    job_session_seen(s, false);
}

/* "", or what is known of the first node on which it may still run. Caller frees. */
static char *still_runs(const struct job_session *s) {
    for (size_t i = 0; i < s->ret->outcome.len; i++) {
        const struct job_rank_end *e = &s->ret->outcome.ranks[i];
        if (e->lost && !e->gone) return xasprintf("it may still run on node %zu: %.200s", i, e->why);
    }
    return xstrdup("");
}

int job_session_check_stopped(const struct job_session *s, struct gp_error *err) {
    GP_AUTO_FREE char *where = still_runs(s);
    const char *name = s->run->stack.name;
    if (where[0] == '\0') return 0;
    return gp_fail(err, GP_EREACH,
                   "'%s': job %s was asked to end, and %s: 'gpuprov cancel %s' asks again, 'gpuprov down %s' destroys "
                   "the nodes",
                   name, s->ret->id, where, name, name);
}

int job_session_fetch(struct job_session *s, bool *ret_left, struct gp_error *err) {
    struct gp_error why = {0};
    *ret_left = s->unsent = s->unkept = false;
    if (s->def.spec == NULL) return 0;
    int r = job_files_fetch(&s->all, &s->def.spec->job, s->opts->fetch_ms, s->ret, ret_left, err);
    if (r == -GP_ECANCELLED) return r;
    int sent = job_bucket_send(s, *ret_left, r == 0 ? err : &why);
    if (r != 0 && sent != 0) run_event(s->run, -1, NODE_READY, EVENT_WARN, "files", "%s", why.msg);
    return r != 0 ? r : sent;
}

static bool is_plain(const char *path) {
    for (const char *c = path; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._/-+", *c) == NULL) return false;
    return true;
}

/* What to do about a file that cannot be copied. Its note comes from the node, as "'PATH': WHY": commands are written
 * out only for a path that a shell takes as it is. */
static void left_out_advice(const char *node, const struct job_fetched *f, struct str *to) {
    const char *note = f->notes.n > 0 ? f->notes.v[0] : "", *end = strstr(note, "': ");
    GP_AUTO_FREE char *name =
        note[0] == '\'' && end != NULL ? xstrndup(note + 1, (size_t)(end - note - 1)) : xstrdup("");
    if (name[0] != '\0' && strlen(name) + strlen(f->path) < 80 && is_plain(name) && is_plain(f->path))
        str_addf(to, "remove it ('gpuprov ssh %s -- rm %s/%s'), or copy it before ('gpuprov cp %s:%s/%s .')", node,
                 f->path, name, node, f->path, name);
    else str_addf(to, "remove it ('gpuprov ssh %s'), or copy it before ('gpuprov cp')", node);
}

int job_session_whole(const struct job_session *s, size_t from, struct gp_error *err) {
    uint64_t n = 0;
    const struct job_fetched *first = NULL;
    for (size_t i = from; i < s->ret->fetched.len; i++) {
        const struct job_fetched *f = &s->ret->fetched.items[i];
        if (first == NULL && f->left_out > 0) first = f;
        n += f->left_out;
    }
    if (first == NULL) return 0;
    GP_AUTO_FREE char *node = xasprintf("%s/%d", s->run->stack.name, first->rank);
    GP_AUTO_STR struct str advice = {0};
    left_out_advice(node, first, &advice);
    return gp_fail(
        err, GP_EIO,
        "'%s': the job succeeded, but its outputs are incomplete: %llu file%s not fetched, first in %.100s of "
        "%s: %.200s; %s",
        s->run->stack.name, (unsigned long long)n, n == 1 ? " was" : "s were", first->path, node,
        first->notes.n > 0 ? first->notes.v[0] : "a file", advice.s);
}

static bool ended_by_deadline(const struct job_session *s) {
    const struct job_outcome *o = &s->ret->outcome;
    const struct run *run = s->run;
    if (o->failed < 0) return false;
    const struct job_rank_end *e = &o->ranks[o->failed];
    bool over = e->gone && run->stack.expires_s > 0 && run_cloud_s(run, run->stack.provider) >= run->stack.expires_s;
    return over || (o->deadline && (e->lost || strcmp(e->state.reason, "stopped") == 0));
}

int job_session_verdict(const struct job_session *s, struct gp_error *err) {
    const struct job_outcome *o = &s->ret->outcome;
    if (o->failed < 0) return 0;
    const struct job_rank_end *e = &o->ranks[o->failed];
    s->ret->deadline = ended_by_deadline(s);
    if (s->ret->deadline) {
        char when[40];
        time_format_utc(when, sizeof when, s->run->stack.expires_s);
        return gp_fail(
            err, GP_EJOB,
            "'%s': the deadline of the stack, %s, ended the job%s: a longer limits.ttl gives it more time, and "
            "'gpuprov extend' while it runs",
            s->run->stack.name, when, e->gone ? " and its nodes before its files were fetched" : "");
    }
    return gp_fail(err, GP_EJOB, "%s/%d: the job failed: %s%s", s->run->stack.name, o->failed, e->lost ? "lost: " : "",
                   e->why);
}

static int64_t started_s(const struct job_session *s) {
    int64_t first = 0;
    for (size_t i = 0; i < s->all.len; i++) {
        const struct job_state *st = &s->all.items[i].state;
        if (strcmp(st->id, s->ret->id) != 0 || st->started_s == 0) continue;
        first = first == 0 ? st->started_s : GP_MIN(first, st->started_s);
    }
    return first != 0 ? first : clock_wall_s();
}

void job_session_seen(const struct job_session *s, bool fetched) {
    const struct job_outcome *o = &s->ret->outcome;
    struct gp_error why = {0};
    struct job_seen seen = {.started_s = started_s(s), .fetched = fetched};
    const char *state = "running";
    if (s->run == NULL || s->run->stack.uid == NULL || s->ret->id[0] == '\0') return;
    if (s->ret->stopped) state = "stopped";
    else if (o->len > 0 && o->failed >= 0) state = o->ranks[o->failed].lost ? "lost" : "failed";
    else if (o->len > 0 && !s->ret->running) state = "succeeded";
    str_put(seen.id, sizeof seen.id, s->ret->id);
    str_put(seen.state, sizeof seen.state, state);
    if (o->len > 0 && o->failed >= 0) str_put(seen.why, sizeof seen.why, o->ranks[o->failed].why);
    for (size_t i = 0; i < s->all.len; i++) seen.nodes += s->all.items[i].used;
    seen.nodes = GP_MAX(seen.nodes, 1);
    struct job_seen before = {0};
    if (job_seen_read(s->e, s->run->stack.uid, &before, NULL) == 0 && strcmp(before.id, seen.id) == 0)
        seen.fetched = seen.fetched || before.fetched; /* `attach` fetches nothing, and does not undo it either */
    if (job_seen_write(s->e, s->run->stack.uid, &seen, &why) != 0)
        run_event(s->run, -1, NODE_READY, EVENT_WARN, "job", "'gpuprov status' does not know this job: %s", why.msg);
}

void job_session_say_success(const struct job_session *s) {
    int64_t from_s = 0, to_s = 0;
    char took[40] = "";
    for (size_t i = 0; i < s->ret->outcome.len; i++) {
        const struct job_rank_end *e = &s->ret->outcome.ranks[i];
        if (!e->ended) continue;
        from_s = from_s == 0 ? e->state.started_s : GP_MIN(from_s, e->state.started_s);
        to_s = GP_MAX(to_s, e->state.ended_s);
    }
    if (from_s > 0 && to_s > from_s) duration_format(took, sizeof took, (to_s - from_s) * 1000);
    run_event(s->run, -1, NODE_READY, EVENT_DONE, "job", "job %s has succeeded%s%s", s->ret->id,
              took[0] != '\0' ? " after " : "", took);
}

void job_session_left(const struct job_session *s, struct gp_error *err) {
    const char *name = s->run->stack.name;
    if (err == NULL) return;
    gp_error_clear(err);
    (void)gp_fail(
        err, GP_ECANCELLED,
        "'%s': stopped following; job %s goes on: 'gpuprov attach %s' follows it, 'gpuprov cancel %s' ends it", name,
        s->ret->id, name, name);
}

void job_session_stopped(const struct job_session *s, bool nodes_stay, struct gp_error *err) {
    const struct stack *st = &s->run->stack;
    char until[32];
    if (err == NULL) return;
    gp_error_clear(err);
    time_format_utc(until, sizeof until, st->expires_s);
    GP_AUTO_FREE char *where = still_runs(s);
    const char *how = where[0] != '\0' ? "was asked to end, and " : "was stopped";
    if (nodes_stay && st->expires_s > 0)
        (void)gp_fail(err, GP_ECANCELLED, "'%s': job %s %s%s; the nodes stay until %s: 'gpuprov down %s' destroys them",
                      st->name, s->ret->id, how, where, until, st->name);
    else (void)gp_fail(err, GP_ECANCELLED, "'%s': job %s %s%s", st->name, s->ret->id, how, where);
}
