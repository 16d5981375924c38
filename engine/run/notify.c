/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of notifications and their threads: one per receiver that has something to send, so that one that hangs
 * delays no other, and one that looks at money and deadlines. */
#include "base/gp_base.h"

#include "engine/run/notify.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/internal.h"
#include "engine/run/eventlog.h"
#include "engine/run/notify_priv.h"
#include "engine/run/owner.h"

#include <time.h>

#define TICK_S 30
#define SETTLE_MS 10000
#define SETTLE_STOPPED_MS 2000 /* after Ctrl-C */
#define LEAVE_MS 1000 /* for a thread that waits for a name server, or for a command that hangs in the kernel */
#define POLL_MS 20

/* --- messages --- */

void notify_message_free(struct notify_message *m) {
    if (m == NULL) return;
    free(m->body);
    free(m->uid);
    free(m->once);
    free(m);
}

/* A message about the same fact has the same id in every process. */
static void make_id(char dst[33], enum notify_kind kind, const char *uid, const char *once) {
    char sum[65];
    if (once == NULL && fs_random_hex(dst, 16, NULL) == 0) return;
    GP_AUTO_FREE char *text = xasprintf("%s\n%s\n%s\n%lld", spec_notify_kinds[kind], uid != NULL ? uid : "",
                                        once != NULL ? once : "", (long long)(once != NULL ? 0 : clock_ms()));
    sha256_hex(text, strlen(text), sum);
    snprintf(dst, 33, "%.32s", sum);
}

static char *make_body(const char *id, enum notify_kind kind, const struct event *e) {
    char t[40];
    GP_AUTO_FREE char *text = log_redacted(e->text != NULL ? e->text : "");
    str_one_line(text);
    time_format_utc(t, sizeof t, e->wall_ms / 1000);
    GP_AUTO_JSON json_t *j = json_pack(
        "{s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "schema", "gpuprov-notify/v1", "id", id, "kind",
        spec_notify_kinds[kind], "t", t, "stack", json_any_text(e->stack), "owner", json_any_text(e->owner), "run",
        json_any_text(e->run), "node", e->node >= 0 ? json_integer(e->node) : json_null(), "text", json_any_text(text));
    return json_text(j, 0);
}

/* --- queues: under the lock --- */

static void add_warning(struct notify *n, const char *stack, char *text) {
    struct notify_warning w = {.stack = xstrdup(stack), .text = text};
    vec_push(&n->warnings, w);
}

/* Makes room for one: the oldest of the same kind goes, so that a flood of one kind leaves the others. */
static void drop_one(struct notify_receiver *r, enum notify_kind kind) {
    size_t at = 0;
    while (at < r->len && r->queue[at]->kind != kind) at++;
    if (at == r->len) at = 0;
    notify_message_free(r->queue[at]);
    memmove(&r->queue[at], &r->queue[at + 1], (r->len - at - 1) * sizeof r->queue[0]);
    r->len--;
    r->dropped++;
}

static void *receiver_main(void *arg);

static void add(struct notify_receiver *r, struct notify_message *m) {
    struct notify *n = r->of->n;
    if (!r->started && pthread_create(&r->thread, NULL, receiver_main, r) != 0) {
        r->dropped++;
        notify_message_free(m);
        return;
    }
    r->started = true;
    if (r->len == NOTIFY_QUEUE) drop_one(r, m->kind);
    r->queue[r->len++] = m;
    pthread_cond_broadcast(&n->changed);
}

static void push(struct notify_stack *s, enum notify_kind kind, const struct event *e, const char *uid,
                 const char *once) {
    char id[33];
    GP_AUTO_FREE char *body = NULL;
    if (s->n->stop) return;
    for (size_t i = 0; i < s->receivers.len; i++) {
        struct notify_receiver *r = s->receivers.items[i];
        if (!spec_notify_wants(&r->def, kind)) continue;
        if (body == NULL) {
            make_id(id, kind, uid, once);
            body = make_body(id, kind, e);
        }
        struct notify_message *m = xcalloc(1, sizeof *m);
        m->kind = kind;
        memcpy(m->id, id, sizeof m->id);
        m->body = xstrdup(body);
        m->uid = xstrdup(uid);
        m->once = xstrdup(once);
        add(r, m);
    }
}

/* --- the thread of a receiver --- */

/* Waits for a message; NULL: the end. Takes the lock, and leaves it taken. */
static struct notify_message *next(struct notify_receiver *r) {
    struct notify *n = r->of->n;
    while (r->len == 0 && !n->stop) pthread_cond_wait(&n->changed, &n->lock);
    if (n->stop) return NULL;
    struct notify_message *m = r->queue[0];
    memmove(&r->queue[0], &r->queue[1], (r->len - 1) * sizeof r->queue[0]);
    r->len--;
    r->busy = true;
    return m;
}

/* Under the lock. One warning for each receiver: more would hide what the run reports. */
static void note_result(struct notify_receiver *r, const struct notify_message *m, int rc, const struct gp_error *err) {
    struct notify *n = r->of->n;
    if (rc == 0) return;
    if (rc == -GP_ECANCELLED && n->stop) {
        r->unsent++;
        return;
    }
    if (r->warned) return;
    r->warned = true;
    add_warning(n, r->of->name,
                xasprintf("%s: '%s' was not delivered: %s; its further failures are not reported", r->label,
                          spec_notify_kinds[m->kind], err->msg));
}

/* False: the engine is gone. */
static bool handle(struct notify_receiver *r, const struct notify_message *m) {
    struct notify *n = r->of->n;
    struct gp_error err = {0};
    bool done = notify_was_sent(r, m);
    pthread_mutex_lock(&n->lock);
    r->away = true;
    pthread_mutex_unlock(&n->lock);
    int rc = done ? 0 : notify_deliver(r, m, &err);
    pthread_mutex_lock(&n->lock);
    r->away = false;
    bool left = n->abandoned;
    if (!left) note_result(r, m, rc, &err);
    pthread_mutex_unlock(&n->lock);
    if (!left && rc == 0 && !done) notify_note_sent(r, m);
    return !left;
}

static void *receiver_main(void *arg) {
    struct notify_receiver *r = arg;
    struct notify *n = r->of->n;
    struct notify_message *m = NULL;
    pthread_mutex_lock(&n->lock);
    while ((m = next(r)) != NULL) {
        pthread_mutex_unlock(&n->lock);
        if (!handle(r, m)) return NULL;
        notify_message_free(m);
        pthread_mutex_lock(&n->lock);
        r->busy = false;
    }
    pthread_mutex_unlock(&n->lock);
    notify_receiver_close(r);
    pthread_mutex_lock(&n->lock);
    r->over = true;
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* --- money and deadlines --- */

static void *ticker_main(void *arg) {
    struct notify *n = arg;
    pthread_mutex_lock(&n->lock);
    while (!n->stop) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += TICK_S;
        while (!n->stop && pthread_cond_timedwait(&n->changed, &n->lock, &until) == 0) continue;
        bool stop = n->stop;
        pthread_mutex_unlock(&n->lock);
        if (!stop) notify_limits(n);
        pthread_mutex_lock(&n->lock);
    }
    pthread_mutex_unlock(&n->lock);
    return NULL;
}

/* --- stacks: under the lock --- */

static void copy_def(struct spec_notify *to, const struct spec_notify *from) {
    to->url = xstrdup(from->url);
    to->secret = xstrdup(from->secret);
    to->command = xstrdup(from->command);
    strv_copy(&to->on, &from->on);
}

static bool has_command(const struct spec *spec, const char *command) {
    for (size_t i = 0; spec != NULL && i < spec->notify.len; i++)
        if (spec->notify.items[i].command != NULL && str_eq(spec->notify.items[i].command, command)) return true;
    return false;
}

/* launched: the spec with the commands that may run; NULL: none. */
static void add_stack(struct notify *n, const struct spec *spec, const struct spec *launched) {
    GP_AUTO_STR struct str refused = {0};
    struct notify_stack *s = xcalloc(1, sizeof *s);
    s->n = n;
    s->name = xstrdup(spec->name);
    s->ttl_s = spec->ttl_ms / 1000;
    s->max_cost = spec->max_cost;
    for (size_t i = 0; i < spec->notify.len; i++) {
        const char *command = spec->notify.items[i].command;
        if (command != NULL && !has_command(launched, command)) {
            GP_AUTO_FREE char *clean = log_redacted(command);
            char shown[100];
            str_one_line(clean);
            str_put(shown, sizeof shown, clean);
            str_addf(&refused, "%snotify[%zu] (%s)", refused.len > 0 ? ", " : "", i, shown);
            continue;
        }
        struct notify_receiver *r = xcalloc(1, sizeof *r);
        r->of = s;
        copy_def(&r->def, &spec->notify.items[i]);
        snprintf(r->label, sizeof r->label, "notify[%d]", (int)i);
        vec_push(&s->receivers, r);
    }
    vec_push(&n->stacks, s);
    if (refused.len > 0)
        add_warning(n, spec->name,
                    xasprintf("commands that are not run, because by this machine's journal '%s' was launched without "
                              "them: %s; 'gpuprov up SPEC' shows and approves them",
                              spec->name, refused.s));
}

/* The stack of that name and owner; NULL: it has no receivers. */
static struct notify_stack *stack_of(struct notify *n, const char *name, const char *owner, const char *run) {
    struct notify_stack *s = NULL;
    for (size_t i = 0; i < n->stacks.len && s == NULL; i++) {
        struct notify_stack *one = n->stacks.items[i];
        bool same = owner == NULL || one->owner == NULL || strcmp(owner, one->owner) == 0;
        if (same && strcmp(one->name, name) == 0) s = one;
    }
    if (s == NULL) return NULL;
    if (owner != NULL && s->owner == NULL) s->owner = xstrdup(owner);
    if (run != NULL && !str_eq(run, s->run)) {
        free(s->run);
        s->run = xstrdup(run);
    }
    if (!n->ticking) n->ticking = pthread_create(&n->ticker, NULL, ticker_main, n) == 0;
    return s;
}

/* --- notifications of a run --- */

/* The first warning that nobody has seen; false: none. The caller frees both. */
static bool take_warning(struct notify *n, struct notify_warning *ret) {
    pthread_mutex_lock(&n->lock);
    bool any = n->warnings.len > 0;
    if (any) {
        *ret = n->warnings.items[0];
        n->warnings.len--;
        memmove(&n->warnings.items[0], &n->warnings.items[1], n->warnings.len * sizeof n->warnings.items[0]);
    }
    pthread_mutex_unlock(&n->lock);
    return any;
}

static void warning_free(struct notify_warning *w) {
    free(w->stack);
    free(w->text);
}

static bool concerns(const struct run *run) {
    const struct engine *e = run->e;
    return e->notifies && e->notify != NULL && run->stack.name != NULL && run->stack.name[0] != '\0';
}

/* The journal's spec of a run's stack; NULL: it has none that can be read. */
static struct spec *recalled(const struct run *run) {
    struct stack found = {0}, known = {0};
    struct spec *spec = NULL;
    struct spec_problems problems = {0};
    GP_AUTO_FREE char *text = NULL;
    int r = owner_find_stack(run->e->journal, run->stack.name, run->owner, &found, NULL);
    if (r == 0) r = journal_stack_get(run->e->journal, found.owner, run->stack.name, &known, &text, NULL);
    bool same = r == 0 && (run->stack.uid == NULL || str_eq(known.uid, run->stack.uid));
    if (same && text != NULL && text[0] != '\0')
        (void)spec_load_text("(journal)", text, strlen(text), NULL, &spec, &problems, NULL);
    spec_problems_clear(&problems);
    stack_clear(&found);
    stack_clear(&known);
    return spec;
}

/* Adds the run's stack with the receivers of its spec, if it is not known. A verb that shows no plan runs only commands
 * that the stack was launched with. journals: the spec is the journal's. Reads the journal. */
static void make_known(struct run *run, const struct spec *spec, bool journals) {
    struct notify *n = run->e->notify;
    pthread_mutex_lock(&n->lock);
    if (n->journal == NULL) n->journal = run->e->journal;
    if (n->state_dir == NULL) n->state_dir = xstrdup(run->e->state_dir);
    bool known = stack_of(n, run->stack.name, run->owner, run->id) != NULL;
    pthread_mutex_unlock(&n->lock);
    if (known || spec == NULL || spec->notify.len == 0 || strcmp(spec->name, run->stack.name) != 0) return;
    bool approved = run->e->shows_plan || journals;
    GP_AUTO_SPEC struct spec *launched = approved ? NULL : recalled(run);
    pthread_mutex_lock(&n->lock);
    if (!n->stop && stack_of(n, run->stack.name, run->owner, run->id) == NULL)
        add_stack(n, spec, approved ? spec : launched);
    pthread_mutex_unlock(&n->lock);
}

void notify_event(struct run *run, const struct event *e) {
    struct notify *n = run->e->notify;
    struct notify_warning w = {0};
    if (!concerns(run)) return;
    enum notify_kind kind = notify_kind_of(e);
    make_known(run, run->spec, run->spec == run->spec_owned);
    pthread_mutex_lock(&n->lock);
    struct notify_stack *s = stack_of(n, run->stack.name, run->owner, run->id);
    if (s != NULL && kind != NOTIFY_NONE) push(s, kind, e, NULL, NULL);
    pthread_mutex_unlock(&n->lock);
    if (!take_warning(n, &w)) return;
    event_emit(&run->sink, -1, NODE_PLANNED, EVENT_WARN, "notify", "%s", w.text); /* which takes the next one */
    warning_free(&w);
}

void notify_fact(struct run *run, enum notify_kind kind, int node, const char *fmt, ...) {
    char text[GP_ERROR_MSG_MAX];
    struct notify *n = run->e->notify;
    va_list ap;
    if (!concerns(run)) return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const struct event e = {.wall_ms = clock_wall_s() * 1000,
                            .node = node,
                            .text = text,
                            .stack = run->stack.name,
                            .owner = run->owner,
                            .run = run->id};
    make_known(run, run->spec, run->spec == run->spec_owned);
    pthread_mutex_lock(&n->lock);
    struct notify_stack *s = stack_of(n, run->stack.name, run->owner, run->id);
    if (s != NULL) push(s, kind, &e, NULL, NULL);
    pthread_mutex_unlock(&n->lock);
}

void notify_ready(struct run *run) {
    int n = run->spec != NULL ? run->spec->nodes : run->n_nodes;
    notify_fact(run, NOTIFY_READY, -1, "%d node%s validated", n, n == 1 ? " is" : "s are");
}

void notify_ended(struct run *run, int r, const struct gp_error *why, int destroyed) {
    if (r == 0)
        notify_fact(run, NOTIFY_GONE, -1, "its deadline has passed: %d resource%s destroyed, nothing is left",
                    destroyed, destroyed == 1 ? "" : "s");
    else if (r != -GP_ECANCELLED)
        notify_fact(run, why->code == GP_EBILLED ? NOTIFY_LEAKED : NOTIFY_FAILED, -1, "%s", why->msg);
}

bool notify_has_new_command(const struct run *run) {
    GP_AUTO_SPEC struct spec *launched = recalled(run);
    for (size_t i = 0; i < run->spec->notify.len; i++) {
        const char *command = run->spec->notify.items[i].command;
        if (command != NULL && !has_command(launched, command)) return true;
    }
    return false;
}

bool notify_open(struct run *run) {
    struct notify *n = run->e->notify;
    if (!concerns(run)) return false;
    GP_AUTO_SPEC struct spec *spec = run->spec == NULL ? recalled(run) : NULL;
    if (spec != NULL) make_known(run, spec, true);
    else make_known(run, run->spec, run->spec == run->spec_owned);
    pthread_mutex_lock(&n->lock);
    bool any = stack_of(n, run->stack.name, run->owner, run->id) != NULL;
    pthread_mutex_unlock(&n->lock);
    return any;
}

void engine_job_ended(struct engine *e, const char *stack, const char *text) {
    struct notify *n = e->notify;
    if (!e->notifies || n == NULL) return;
    pthread_mutex_lock(&n->lock);
    struct notify_stack *s = stack_of(n, stack, NULL, NULL);
    const struct event one = {.wall_ms = clock_wall_s() * 1000,
                              .node = -1,
                              .text = text,
                              .stack = stack,
                              .owner = s != NULL ? s->owner : NULL,
                              .run = s != NULL ? s->run : NULL};
    if (s != NULL) push(s, NOTIFY_JOB, &one, NULL, NULL);
    pthread_mutex_unlock(&n->lock);
}

/* --- the end --- */

#define EACH_RECEIVER(n, r)                                                  \
    for (size_t i_ = 0; i_ < (n)->stacks.len; i_++)                          \
        for (size_t k_ = 0; k_ < (n)->stacks.items[i_]->receivers.len; k_++) \
            for (struct notify_receiver *r = (n)->stacks.items[i_]->receivers.items[k_]; r != NULL; r = NULL)

static bool is_idle(struct notify *n) {
    bool idle = true;
    pthread_mutex_lock(&n->lock);
    EACH_RECEIVER(n, r) idle = idle && r->len == 0 && !r->busy;
    pthread_mutex_unlock(&n->lock);
    return idle;
}

/* Whether every thread has ended, or delivers. */
static bool has_ended(struct notify *n, bool or_away) {
    bool all = true;
    pthread_mutex_lock(&n->lock);
    EACH_RECEIVER(n, r) all = all && (!r->started || r->over || (or_away && r->away));
    pthread_mutex_unlock(&n->lock);
    return all;
}

static void stop(struct notify *n) {
    pthread_mutex_lock(&n->lock);
    bool first = !n->stop;
    n->stop = true;
    pthread_cond_broadcast(&n->changed);
    pthread_mutex_unlock(&n->lock);
    if (!first) return;
    gp_cancel_set(&n->cancel);
    if (n->ticking) pthread_join(n->ticker, NULL);
    n->ticking = false;
    int64_t deadline = clock_deadline(LEAVE_MS);
    while (!has_ended(n, clock_left_ms(deadline) == 0)) (void)gp_sleep(POLL_MS, NULL, NULL);
    pthread_mutex_lock(&n->lock);
    EACH_RECEIVER(n, r) n->abandoned = n->abandoned || (r->started && !r->over);
    pthread_mutex_unlock(&n->lock);
    EACH_RECEIVER(n, r) {
        if (!r->started) continue;
        if (r->over) pthread_join(r->thread, NULL);
        else pthread_detach(r->thread);
    }
}

/* What was not delivered, and not yet reported. */
static void sum_up(struct notify *n) {
    pthread_mutex_lock(&n->lock);
    EACH_RECEIVER(n, r) {
        size_t left = r->len + r->unsent + (r->started && !r->over ? 1 : 0);
        if (left > 0)
            add_warning(n, r->of->name,
                        xasprintf("%s: %zu event%s not delivered before the end of this run", r->label, left,
                                  left == 1 ? " was" : "s were"));
        if (r->dropped > 0)
            add_warning(n, r->of->name,
                        xasprintf("%s: %zu event%s dropped, because %d were waiting already", r->label, r->dropped,
                                  r->dropped == 1 ? " was" : "s were", NOTIFY_QUEUE));
        r->unsent = r->dropped = 0;
    }
    pthread_mutex_unlock(&n->lock);
}

static void report(const struct engine *e, const struct notify_warning *w) {
    struct event_log log = {0};
    struct event one = {.wall_ms = clock_wall_s() * 1000,
                        .node = -1,
                        .status = EVENT_WARN,
                        .step = "notify",
                        .text = w->text,
                        .stack = w->stack};
    event_send(&e->sink, one);
    if (e->opts.scratch) return;
    event_log_init(&log, e->state_dir, w->stack);
    (void)event_log_add(&log, &one, NULL);
    event_log_clear(&log);
}

void engine_settle(struct engine *e) {
    struct notify *n = e->notify;
    struct notify_warning w = {0};
    if (n == NULL || n->stacks.len == 0 || n->stop) return;
    bool stopped = gp_cancelled(&e->cancel);
    int64_t deadline = clock_deadline(stopped ? SETTLE_STOPPED_MS : SETTLE_MS);
    notify_limits(n);
    while (!is_idle(n) && clock_left_ms(deadline) > 0)
        if (gp_sleep(POLL_MS, stopped ? NULL : &e->cancel, NULL) != 0) break;
    stop(n);
    sum_up(n);
    while (take_warning(n, &w)) {
        report(e, &w);
        warning_free(&w);
    }
}

struct notify *notify_new(void) {
    struct notify *n = xcalloc(1, sizeof *n);
    n->push = push;
    pthread_condattr_t attr;
    pthread_mutex_init(&n->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&n->changed, &attr);
    pthread_condattr_destroy(&attr);
    n->cancel.efd = -1;
    (void)gp_cancel_init(&n->cancel, NULL);
    return n;
}

static void receiver_free(struct notify_receiver *r) {
    for (size_t i = 0; i < r->len; i++) notify_message_free(r->queue[i]);
    free(r->def.url);
    free(r->def.secret);
    free(r->def.command);
    strv_clear(&r->def.on);
    free(r);
}

static void stack_free(struct notify_stack *s) {
    for (size_t i = 0; i < s->receivers.len; i++) receiver_free(s->receivers.items[i]);
    vec_free(&s->receivers);
    free(s->looked[0]);
    free(s->looked[1]);
    free(s->name);
    free(s->owner);
    free(s->run);
    free(s);
}

void notify_free(struct notify *n) {
    if (n == NULL) return;
    stop(n);
    if (n->abandoned) return; /* its thread still uses it; the process is about to end */
    for (size_t i = 0; i < n->stacks.len; i++) stack_free(n->stacks.items[i]);
    vec_free(&n->stacks);
    for (size_t i = 0; i < n->warnings.len; i++) warning_free(&n->warnings.items[i]);
    vec_free(&n->warnings);
    free(n->state_dir);
    gp_cancel_clear(&n->cancel);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}
