/* SPDX-License-Identifier: Apache-2.0 */
/* Follows a job on all its nodes. One loop runs rounds of `gpuprov-agent job follow` over the open connections. A round
 * ends after ROUND_S, or as soon as something else has to be done. Connections that were lost are opened by one thread
 * each, which does nothing else. */
#include "base/gp_base.h"

#include "engine/job/job_follow.h"

#include "engine/run/run_event.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    ROUND_S = 10,
    ROUND_SLACK_MS = 8000, /* a node that has not ended its round by then is away */
    OPEN_MS = 20000,       /* one attempt to reconnect */
    OPEN_PAUSE_MS = 1000,
    IDLE_MS = 100,
    POLL_MS = 2000,       /* between two looks at the states */
    NOW_MIN_BYTES = 5000, /* of a log that is read to where it was: what a round has to bring */
    NOW_SLOW_MAX = 12,    /* rounds in a row that bring less, before the rest is given up */
    TROUBLE_MAX = 5,      /* replies in a row that are none, before the rank counts as lost */
    AGAIN_MS = 5 * 60000, /* until a job that its node starts again after a reboot must run */
    TELL_MS = 60000,      /* a node that is silent so long is reported */
    GONE_MS = 15000,      /* a node that is away so long may have no machine any more: its provider is queried */
    GONE_AGAIN_MS = 30000,
    STOPPED_MS = 60000 /* until a rank must have ended that was asked to */
};

enum rank_state { RANK_UNUSED, RANK_FOLLOWED, RANK_AWAY, RANK_OVER };

struct follow;
struct rank {
    struct follow *f;
    struct job_node *node;
    enum rank_state state;
    struct job_stream stream;
    bool marked;         /* of the running command: its own output has begun */
    bool replied;        /* it printed a line that is one */
    char said[200];      /* the last line of its stderr */
    struct gp_error bad; /* a line that is none */
    int troubles;
    int64_t came_before;    /* bytes of the log, when the running round began */
    int slow;               /* rounds in a row that brought little, of a log that is read to where it was */
    int64_t heard_ms;       /* monotonic: the agent's last line; a connection is no sign of the job */
    bool told;              /* its silence was reported */
    char gone[16];          /* the state of its machine, where the provider has ended it */
    int64_t again_until_ms; /* 0: it is not waited for after a reboot */
    /* the thread that opens the connection */
    bool opening;
    int64_t open_at_ms;
    pthread_t thread;
    atomic_bool opened; /* the thread has ended */
    int open_rc;
    struct gp_error open_err;
};
struct follow {
    const struct job_follow *req;
    struct run *run;
    struct rank *ranks;
    size_t len;
    struct job_outcome *out;
    struct gp_cancel quit; /* of the threads */
    bool round_over;       /* the running round has to end */
    bool stopping;
    bool stop_again; /* a node came back that had not been stopped */
    int64_t stop_by_ms, query_at_ms;
    struct str line; /* cleaned */
};

void job_outcome_clear(struct job_outcome *o) {
    free(o->ranks);
    vec_free(&o->health);
    *o = (struct job_outcome){.failed = -1};
}

static const char *label(const struct rank *k) { return k->node->n->link.target.label; }

/* --- the end of a rank --- */

static void failed(struct follow *f, const struct rank *k) {
    if (f->out->failed < 0) f->out->failed = k->node->n->slot;
    f->round_over = true;
}

static void rank_over(struct rank *k) {
    struct job_rank_end *e = &k->f->out->ranks[k->node->n->slot];
    k->state = RANK_OVER;
    k->node->state = k->stream.end;
    e->ended = true;
    e->state = k->stream.end;
    if (job_state_ok(&e->state)) return;
    job_state_why(&e->state, e->why, sizeof e->why);
    failed(k->f, k);
}

static void rank_lost(struct rank *k, const char *why) {
    struct job_rank_end *e = &k->f->out->ranks[k->node->n->slot];
    k->state = RANK_OVER;
    e->lost = true;
    str_put(e->why, sizeof e->why, why);
    run_event(k->f->run, k->node->n->slot, NODE_READY, EVENT_WARN, "job", "%s", why);
    failed(k->f, k);
}

/* --- what a rank prints --- */

static void take_text(void *ctx, const char *text, size_t n) {
    struct rank *k = ctx;
    struct follow *f = k->f;
    if (f->req->text == NULL) return;
    GP_AUTO_FREE char *copy = xstrndup(text, n);
    str_reset(&f->line);
    str_add_clean(&f->line, copy);
    f->req->text(f->req->ctx, k->node->n->slot, f->line.s, f->line.len);
}

static void take_note(void *ctx, const char *text) {
    const struct rank *k = ctx;
    run_event(k->f->run, k->node->n->slot, NODE_READY, EVENT_WARN, "job", "%s", text);
}

static void take_health(void *ctx, const struct job_health *h) {
    const struct rank *k = ctx;
    struct job_rank_health one = {.rank = k->node->n->slot, .found = *h};
    char text[600];
    str_put(one.id, sizeof one.id, k->f->req->id);
    vec_push(&k->f->out->health, one);
    job_health_text(h, text, sizeof text);
    run_event(k->f->run, one.rank, NODE_READY, EVENT_WARN, "job.health", "%s: %s", job_health_name(h->kind), text);
}

static bool any_opened(const struct follow *f) {
    for (size_t i = 0; i < f->len; i++)
        if (f->ranks[i].opening && atomic_load(&f->ranks[i].opened)) return true;
    return false;
}

static void take_state(struct rank *k, const char *line, size_t len) {
    struct job_state s = {0};
    if (job_state_parse(line, len, &s, &k->bad) != 0) return;
    k->stream.ended = s.phase == JOB_ENDED;
    k->stream.end = s;
}

static void heard(struct rank *k) {
    k->replied = true;
    k->troubles = 0;
    k->heard_ms = clock_ms();
    if (k->told) run_event(k->f->run, k->node->n->slot, NODE_READY, EVENT_INFO, "job", "the node answers again");
    k->told = false;
}

/* False ends the command. */
static bool hear(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct rank *k = ctx;
    struct follow *f = k->f;
    const struct job_sink sink = {.text = take_text, .note = take_note, .health = take_health, .ctx = k};
    if (is_stderr) {
        if (len > 0) str_put(k->said, sizeof k->said, line);
        return true;
    }
    if (!k->marked) {
        k->marked = strcmp(line, JOB_MARK) == 0;
        return true;
    }
    if (f->req->silent) take_state(k, line, len);
    else (void)job_stream_line(&k->stream, &sink, line, len, &k->bad);
    if (k->bad.code != GP_OK) return false;
    heard(k);
    if (k->stream.ended && !job_state_ok(&k->stream.end)) f->round_over = true; /* the others have to be stopped */
    if (line[0] != '@') return true;
    if (f->req->pause != NULL) f->req->pause(f->req->ctx);
    if (f->req->until_now && k->stream.offset >= k->node->state.log_bytes) k->stream.ended = true;
    if (any_opened(f)) f->round_over = true;
    return !f->round_over && !(f->req->until_now && k->stream.ended);
}

/* --- connections --- */

static void *open_main(void *arg) {
    struct rank *k = arg;
    struct node_link *l = &k->node->n->link;
    struct ssh_open_opts opts = {.deadline_ms = clock_deadline(OPEN_MS), .cancel = &k->f->quit};
    gp_error_clear(&k->open_err);
    k->open_rc = ssh_open(&l->target, &opts, &l->session, &k->open_err);
    atomic_store(&k->opened, true);
    return NULL;
}

static void went_away(struct rank *k, const char *why) {
    node_link_close(&k->node->n->link);
    str_put(k->said, sizeof k->said, why);
    k->state = RANK_AWAY;
    k->node->away = true;
    k->open_at_ms = 0;
    run_event(k->f->run, k->node->n->slot, NODE_READY, EVENT_PROGRESS, "job", "%s, reconnects", why);
}

static void take_opened(struct rank *k) {
    struct gp_error why = k->open_err;
    if (!k->opening || !atomic_load(&k->opened)) return;
    pthread_join(k->thread, NULL);
    k->opening = false;
    if (k->open_rc == 0) {
        k->state = RANK_FOLLOWED;
        k->node->away = false;
        k->f->stop_again = k->f->stopping;
        return;
    }
    k->open_at_ms = clock_deadline(OPEN_PAUSE_MS);
    str_put(k->said, sizeof k->said, why.msg);
}

static size_t count(const struct follow *f, enum rank_state s) {
    size_t n = 0;
    for (size_t i = 0; i < f->len; i++) n += f->ranks[i].state == s;
    return n;
}

static void open_next(struct follow *f) {
    int going = 0;
    for (size_t i = 0; i < f->len; i++) going += f->ranks[i].opening;
    for (size_t i = 0; i < f->len && going < f->run->e->opts.jobs; i++) {
        struct rank *k = &f->ranks[i];
        if (k->state != RANK_AWAY || k->opening || clock_left_ms(k->open_at_ms) > 0) continue;
        atomic_store(&k->opened, false);
        k->opening = pthread_create(&k->thread, NULL, open_main, k) == 0;
        going += k->opening;
    }
}

static void close_all(struct follow *f) {
    gp_cancel_set(&f->quit);
    for (size_t i = 0; i < f->len; i++) {
        if (f->ranks[i].opening) pthread_join(f->ranks[i].thread, NULL);
        f->ranks[i].node->away = false;
        job_stream_clear(&f->ranks[i].stream);
    }
    free(f->ranks);
    str_clear(&f->line);
    gp_cancel_clear(&f->quit);
}

/* --- rounds --- */

/* Ended by a reboot: its node starts it again, or this gpuprov does, or the one that started it. */
static void start_again(struct rank *k) {
    struct follow *f = k->f;
    struct gp_error why = {0};
    if (k->again_until_ms == 0) {
        k->again_until_ms = clock_deadline(AGAIN_MS);
        run_event(f->run, k->node->n->slot, NODE_READY, EVENT_WARN, "job",
                  "the node was rebooted during the job, which runs again (job.restart)");
    }
    k->stream.ended = false;
    if (clock_left_ms(k->again_until_ms) == 0) {
        rank_lost(k, "the job was not started again after a reboot of the node");
        return;
    }
    k->node->state = k->stream.end;
    if (f->req->def == NULL || k->stream.end.unit) return;
    if (job_begin_again(f->req->all, f->req->def, f->req->id, k->node, &why) == 0) return;
    if (why.code == GP_EJOB || why.code == GP_EBUSY) rank_lost(k, why.msg);
    else went_away(k, why.msg);
}

/* The log that it announced does not come: the follower does not wait for it without end. */
static bool gives_up(struct rank *k) {
    k->slow = k->stream.came - k->came_before < NOW_MIN_BYTES ? k->slow + 1 : 0;
    if (!k->f->req->until_now || k->slow < NOW_SLOW_MAX) return false;
    run_event(k->f->run, k->node->n->slot, NODE_READY, EVENT_WARN, "job",
              "the node has announced %lld bytes of the log, and %lld came: not waiting for the rest",
              (long long)k->node->state.log_bytes, (long long)k->stream.came);
    k->state = RANK_OVER;
    return true;
}

static void rank_round(struct rank *k, const struct ssh_job *job) {
    const struct ssh_result *r = &job->result;
    char why[300];
    if (k->bad.code != GP_OK) {
        snprintf(why, sizeof why, "%s: %.250s", label(k), k->bad.msg);
    } else if (job->rc < 0 || r->end == SSH_LOST || r->end == SSH_SIGNALED || (r->end == SSH_TIMED_OUT && !r->status)) {
        bool silent = job->rc == 0 && r->end == SSH_TIMED_OUT;
        went_away(k, silent ? "its agent does not answer, though its sshd does" : "the connection was lost");
        return;
    } else if (r->end == SSH_EXITED && r->status != 0) {
        str_one_line(k->said);
        snprintf(why, sizeof why, "%s: the agent on the node failed (exit status %d): %.200s", label(k), r->status,
                 k->said);
    } else if (!k->replied && clock_ms() - k->heard_ms >= TELL_MS) { /* a short round may have nothing to print */
        went_away(k, "its agent prints nothing");
        return;
    } else {
        const struct job_sink sink = {.text = take_text, .note = take_note, .ctx = k};
        bool waits = k->stream.ended && k->stream.end.again && !k->f->stopping && !k->f->req->until_now;
        if (!waits && k->stream.ended) job_stream_flush(&k->stream, &sink);
        if (waits) start_again(k);
        else if (k->stream.ended && k->f->req->until_now) k->state = RANK_OVER;
        else if (k->stream.ended) rank_over(k);
        else if (!gives_up(k)) k->again_until_ms = 0;
        return;
    }
    if (++k->troubles >= TROUBLE_MAX) rank_lost(k, why);
}

/* The round that is running must not hide a mark of the deadline. */
static int round_s(const struct follow *f) {
    const struct job_deadline *d = f->req->deadline;
    if (d == NULL || f->stopping) return ROUND_S;
    return (int)GP_MIN((int64_t)ROUND_S, job_deadline_due_ms(d) / 1000 + 1);
}

static void job_words(const struct follow *f, const struct rank *k, struct str *to) {
    GP_AUTO_FREE char *words = f->req->silent ? xasprintf("job state %s", f->req->id)
                                              : xasprintf("job follow %s --from %lld --seconds %d", f->req->id,
                                                          (long long)k->stream.offset, round_s(f));
    job_command(to, words);
}

static int round_of(struct follow *f, struct gp_error *err) {
    struct ssh_job *jobs = xcalloc(f->len + 1, sizeof *jobs);
    struct str *commands = xcalloc(f->len + 1, sizeof *commands);
    struct rank **who = xcalloc(f->len + 1, sizeof(struct rank *));
    size_t n = 0;
    f->round_over = false;
    for (size_t i = 0; i < f->len; i++) {
        struct rank *k = &f->ranks[i];
        if (k->state != RANK_FOLLOWED) continue;
        k->marked = k->replied = false;
        k->came_before = k->stream.came;
        k->said[0] = '\0';
        gp_error_clear(&k->bad);
        job_words(f, k, &commands[n]);
        jobs[n] = (struct ssh_job){.session = k->node->n->link.session, .command = commands[n].s};
        jobs[n].opts = (struct ssh_exec_opts){.deadline_ms = clock_deadline(ROUND_S * 1000 + ROUND_SLACK_MS),
                                              .max_output = 256,
                                              .on_line = hear,
                                              .ctx = k};
        who[n++] = k;
    }
    int r = ssh_exec_many(jobs, n, &f->run->e->cancel, err);
    for (size_t i = 0; i < n; i++) {
        if (r == 0) rank_round(who[i], &jobs[i]);
        else if (jobs[i].rc < 0) node_link_close(&who[i]->node->n->link);
        ssh_result_clear(&jobs[i].result);
        str_clear(&commands[i]);
    }
    free(jobs);
    free(commands);
    free(who);
    if (f->req->pause != NULL) f->req->pause(f->req->ctx);
    return r;
}

/* --- the loop --- */

static int stop_others(struct follow *f, struct gp_error *err) {
    GP_AUTO_FREE char *reason =
        f->out->deadline ? xstrdup("the deadline of the stack is near") : xasprintf("rank %d failed", f->out->failed);
    bool first = !f->stopping;
    f->stopping = true;
    f->stop_again = false;
    if (first) f->stop_by_ms = clock_deadline(STOPPED_MS);
    if (count(f, RANK_FOLLOWED) + count(f, RANK_AWAY) == 0) return 0;
    if (first && f->out->deadline)
        run_event(f->run, -1, NODE_READY, EVENT_WARN, "job",
                  "the deadline is near: stopping the job, so that its files can be fetched before");
    else if (first)
        run_event(f->run, -1, NODE_READY, EVENT_WARN, "job", "rank %d %s: stopping the other ranks", f->out->failed,
                  f->out->ranks[f->out->failed].why);
    return job_stop(f->req->all, f->req->id, reason, &f->run->e->cancel, err);
}

static int64_t away_most(const struct follow *f) { return f->req->away_ms > 0 ? f->req->away_ms : JOB_AWAY_MS; }

/* Names the node that is waited for. */
static void tell_silent(struct follow *f) {
    for (size_t i = 0; i < f->len; i++) {
        struct rank *k = &f->ranks[i];
        int64_t silent_ms = clock_ms() - k->heard_ms;
        char time[32], most[32];
        if (k->state != RANK_AWAY || k->told || silent_ms < TELL_MS || silent_ms >= away_most(f)) continue;
        k->told = true;
        duration_format(time, sizeof time, silent_ms / 1000 * 1000);
        duration_format(most, sizeof most, away_most(f));
        run_event(f->run, k->node->n->slot, NODE_READY, EVENT_WARN, "job",
                  "the node has not answered for %s: %.200s; it counts as lost after %s", time,
                  k->said[0] != '\0' ? k->said : "the connection was lost", most);
    }
}

static void give_up_late(struct follow *f) {
    int64_t most = away_most(f);
    for (size_t i = 0; i < f->len; i++) {
        struct rank *k = &f->ranks[i];
        char why[300], time[32];
        if (k->state != RANK_AWAY || k->opening) continue;
        if (k->gone[0] != '\0') {
            snprintf(why, sizeof why, "its machine is %s", k->gone);
            k->node->gone = f->out->ranks[k->node->n->slot].gone = true;
            rank_lost(k, why);
            continue;
        }
        bool late = clock_ms() - k->heard_ms >= most;
        if (!late && !(f->stopping && clock_left_ms(f->stop_by_ms) == 0)) continue;
        duration_format(time, sizeof time, (clock_ms() - k->heard_ms) / 1000 * 1000);
        snprintf(why, sizeof why, "its node has not answered for %s: %.200s", time,
                 k->said[0] != '\0' ? k->said : "the connection was lost");
        rank_lost(k, why);
    }
}

/* A machine that its provider has ended does not come back: the others must not wait and be paid for that long. */
static void query_provider(struct follow *f) {
    struct stack_view_list found = {0};
    struct gp_error ignored = {0};
    bool any = false, reboots = f->run->spec != NULL && f->run->spec->job.restart > 0;
    for (size_t i = 0; i < f->len; i++)
        any = any || (f->ranks[i].state == RANK_AWAY && clock_ms() - f->ranks[i].heard_ms >= GONE_MS);
    if (!any || clock_left_ms(f->query_at_ms) > 0) return;
    (void)engine_status(f->run->e, f->run->stack.name, f->run->spec, true, &found, &ignored);
    f->query_at_ms = clock_deadline(GONE_AGAIN_MS);
    for (size_t v = 0; v < found.list.len; v++)
        for (size_t i = 0; i < found.list.items[v].nodes.len; i++) {
            const struct node_view *n = &found.list.items[v].nodes.items[i];
            struct rank *k = n->slot >= 0 && (size_t)n->slot < f->len ? &f->ranks[n->slot] : NULL;
            bool ended =
                str_eq(n->state, "gone") || (!reboots && (str_eq(n->state, "stopping") || str_eq(n->state, "stopped")));
            if (k != NULL && k->state == RANK_AWAY && ended) str_put(k->gone, sizeof k->gone, n->state);
        }
    stack_view_list_clear(&found);
}

/* A rank that was asked to end has done so by SIGKILL at the latest, unless it hangs in the kernel or its node lies. */
static void give_up_stopped(struct follow *f) {
    for (size_t i = 0; f->stopping && clock_left_ms(f->stop_by_ms) == 0 && i < f->len; i++)
        if (f->ranks[i].state == RANK_FOLLOWED) rank_lost(&f->ranks[i], "the job could not be stopped on its node");
}

static int step(struct follow *f, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; i < f->len; i++) take_opened(&f->ranks[i]);
    query_provider(f);
    tell_silent(f);
    give_up_late(f);
    give_up_stopped(f);
    if (f->req->deadline != NULL && !f->stopping && job_deadline_look(f->req->deadline)) f->out->deadline = true;
    bool stop = f->out->failed >= 0 || f->out->deadline;
    if (stop && (!f->stopping || f->stop_again) && !f->req->keep_others) r = stop_others(f, err);
    open_next(f);
    if (r != 0) return r;
    if (count(f, RANK_FOLLOWED) > 0) r = round_of(f, err);
    bool waits = false;
    for (size_t i = 0; i < f->len; i++) {
        const struct rank *k = &f->ranks[i];
        bool mute = k->state == RANK_FOLLOWED && !k->replied;
        waits = waits || k->again_until_ms != 0 || k->troubles > 0 || mute;
    }
    if (r == 0 && f->req->silent && count(f, RANK_FOLLOWED) > 0) return gp_sleep(POLL_MS, &f->run->e->cancel, err);
    if (r == 0 && (waits || count(f, RANK_FOLLOWED) == 0)) return gp_sleep(IDLE_MS, &f->run->e->cancel, err);
    return r;
}

static int follow_open(struct follow *f, struct gp_error *err) {
    f->ranks = xcalloc(f->len + 1, sizeof *f->ranks);
    f->out->ranks = xcalloc(f->len + 1, sizeof *f->out->ranks);
    f->out->len = f->len;
    f->out->failed = -1;
    f->stopping = f->req->stopped;
    f->stop_by_ms = clock_deadline(STOPPED_MS);
    for (size_t i = 0; i < f->len; i++) {
        struct rank *k = &f->ranks[i];
        struct job_node *j = &f->req->all->items[i];
        k->f = f;
        k->node = j;
        k->heard_ms = clock_ms();
        k->stream.end.exit = -1;
        k->state = !j->used ? RANK_UNUSED : j->n->link.session != NULL ? RANK_FOLLOWED : RANK_AWAY;
        j->away = k->state == RANK_AWAY;
        if (j->gone) str_put(k->gone, sizeof k->gone, "gone"); /* nothing to wait for */
    }
    return gp_cancel_init(&f->quit, err);
}

int job_follow(const struct job_follow *req, struct job_outcome *ret, struct gp_error *err) {
    struct follow f = {.req = req, .run = req->all->run, .len = req->all->len, .out = ret, .quit = {.efd = -1}};
    int r = follow_open(&f, err);
    while (r == 0 && count(&f, RANK_FOLLOWED) + count(&f, RANK_AWAY) > 0) r = step(&f, err);
    close_all(&f);
    return r;
}
