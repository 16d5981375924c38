/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for plain and JSON progress while no event arrives, so that a log shows that work goes on, since when, until
 * when at most, and the reason of the wait. One line for all nodes in the same phase and step. A thread of its own;
 * events may come from any thread. */
#include "base/gp_base.h"

#include "output.h"

#include "progress_priv.h"

#include <errno.h>
#include <time.h>

enum { TEXT_MAX = 200, REASONS_MAX = 3, RANGES_MAX = 5, TICK_MS = 1000 };

struct waiting {
    bool active;
    enum node_phase phase;
    int64_t phase_ms, step_ms; /* when they began */
    int64_t said_ms;           /* the last line about it */
    int64_t limit_ms;          /* of the phase; 0: unknown */
    char step[64], text[TEXT_MAX];
};
struct waits {
    struct progress *p;
    waits_say *say;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool stop;
    VEC_OF(struct waiting) list; /* the whole stack, then its nodes */
    char run[32], *owner;        /* of the last event that has them: lines about a wait are of the same run */
};

static bool same_group(const struct waiting *a, const struct waiting *b) {
    return b->active && a->phase == b->phase && strcmp(a->step, b->step) == 0;
}

/* "llm", "llm/3", "llm/0-7,9", or "57 nodes of llm". */
static void add_label(const struct waits *w, size_t first, struct str *out) {
    GP_AUTO_STR struct str ranges = {0};
    size_t n = 0, pieces = 0;
    str_add(&ranges, w->p->stack);
    for (size_t i = GP_MAX(first, (size_t)1); first > 0 && i < w->list.len; i++) {
        if (!same_group(&w->list.items[first], &w->list.items[i])) continue;
        size_t last = i;
        while (last + 1 < w->list.len && same_group(&w->list.items[first], &w->list.items[last + 1])) last++;
        str_addf(&ranges, "%s%zu", pieces++ == 0 ? "/" : ",", i - 1);
        if (last > i) str_addf(&ranges, "-%zu", last - 1);
        n += last - i + 1;
        i = last;
    }
    if (pieces <= RANGES_MAX) str_add(out, ranges.s);
    else str_addf(out, "%zu nodes of %s", n, w->p->stack);
}

struct reason {
    const char *text;
    size_t nodes;
};

/* "connection refused", "100 connection refused, 28 no route". Nothing where each node has its own text. */
static void add_reasons(const struct waits *w, size_t first, struct str *out) {
    struct reason found[REASONS_MAX] = {0};
    size_t n = 0, others = 0;
    for (size_t i = first; i < w->list.len; i++) {
        const struct waiting *x = &w->list.items[i];
        if (!same_group(&w->list.items[first], x) || x->text[0] == '\0') continue;
        size_t k = 0;
        while (k < n && strcmp(found[k].text, x->text) != 0) k++;
        if (k == n && n < REASONS_MAX) found[n++] = (struct reason){.text = x->text};
        if (k == REASONS_MAX) others++;
        else found[k].nodes++;
    }
    if (n == 0 || others > 0) return;
    str_add(out, ": ");
    for (size_t k = 0; k < n; k++) {
        str_add(out, k > 0 ? ", " : "");
        if (n > 1) str_addf(out, "%zu ", found[k].nodes);
        str_add(out, found[k].text);
    }
}

static void say_group(struct waits *w, size_t first, int64_t now) {
    const struct waiting *x = &w->list.items[first];
    GP_AUTO_STR struct str label = {0}, text = {0};
    int64_t since = x->limit_ms > 0 ? x->phase_ms : x->step_ms;
    int64_t alone = 0;
    for (size_t i = first; i < w->list.len; i++) {
        const struct waiting *y = &w->list.items[i];
        if (!same_group(x, y)) continue;
        since = GP_MIN(since, x->limit_ms > 0 ? y->phase_ms : y->step_ms);
        alone++;
    }
    char took[32], limit[32];
    progress_elapsed(took, sizeof took, now - since);
    duration_format(limit, sizeof limit, x->limit_ms);
    bool runs = x->phase == NODE_BOOTSTRAPPING || x->phase == NODE_CHECKING || x->phase == NODE_GANG;
    str_addf(&text, "still %s [%s elapsed%s%s]", runs ? "running" : "waiting", took, x->limit_ms > 0 ? ", limit " : "",
             x->limit_ms > 0 ? limit : "");
    add_reasons(w, first, &text);
    add_label(w, first, &label);
    struct event e = {.wall_ms = clock_wall_s() * 1000,
                      .node = first > 0 && alone == 1 ? (int)first - 1 : -1,
                      .phase = x->phase,
                      .status = EVENT_PROGRESS,
                      .step = x->step,
                      .text = text.s,
                      .owner = w->owner,
                      .run = w->run[0] != '\0' ? w->run : NULL};
    w->say(w->p, label.s, &e);
}

/* Prints a line for each group that was not mentioned for a while. Called with the lock. */
static void beat(struct waits *w) {
    int64_t now = clock_ms();
    for (size_t i = 0; i < w->list.len; i++) {
        struct waiting *x = &w->list.items[i];
        if (!x->active || now - x->said_ms < w->p->beat_ms) continue;
        say_group(w, i, now);
        for (size_t k = i; k < w->list.len; k++)
            if (same_group(x, &w->list.items[k])) w->list.items[k].said_ms = now;
    }
}

static bool is_active(const struct event *e) {
    switch (e->phase) {
    case NODE_WAITING: /* for nodes that have lines of their own */
    case NODE_READY:
    case NODE_FAILED:
    case NODE_GONE: return false;
    case NODE_PLANNED:
    case NODE_LAUNCHING:
    case NODE_REACHING:
    case NODE_BOOTSTRAPPING:
    case NODE_CHECKING:
    case NODE_GANG:
    case NODE_ENDING: break;
    }
    if (e->node >= 0) return e->status != EVENT_FAIL || e->step[0] != '\0';
    return e->status == EVENT_START || e->status == EVENT_PROGRESS;
}

static void note(struct waits *w, const struct event *e, bool printed) {
    int64_t now = clock_ms();
    size_t index = (size_t)e->node + 1; /* -1 becomes 0 */
    while (w->list.len <= index) vec_push(&w->list, (struct waiting){.said_ms = now});
    struct waiting *x = &w->list.items[index];
    bool began = !x->active || x->phase != e->phase;
    if (began) x->phase_ms = x->step_ms = now;
    if (began || strcmp(x->step, e->step) != 0) x->step_ms = now;
    if (began || e->limit_ms > 0) x->limit_ms = e->limit_ms;
    x->active = is_active(e);
    x->phase = e->phase;
    str_put(x->step, sizeof x->step, e->step);
    str_put(x->text, sizeof x->text, e->text);
    if (printed) x->said_ms = now;
    if (e->run != NULL) str_put(w->run, sizeof w->run, e->run);
    if (e->owner != NULL && !str_eq(w->owner, e->owner)) {
        free(w->owner);
        w->owner = xstrdup(e->owner);
    }
    if (e->node >= 0) w->list.items[0].active = false; /* the text of the whole stack is outdated */
}

bool waits_news(struct waits *w, const struct event *e) {
    pthread_mutex_lock(&w->lock);
    const struct waiting *x = e->node < 0 && w->list.len > 0 ? &w->list.items[0] : NULL;
    bool same = x != NULL && x->active && strcmp(x->step, e->step) == 0 && str_starts(e->text, x->text);
    pthread_mutex_unlock(&w->lock);
    return e->status != EVENT_PROGRESS || (e->node < 0 && !same);
}

void waits_event(struct waits *w, const struct event *e, bool printed) {
    if (e->node < -1 || e->node >= 100000) return;
    pthread_mutex_lock(&w->lock);
    note(w, e, printed);
    if (!printed) beat(w);
    pthread_mutex_unlock(&w->lock);
}

static void *beat_main(void *arg) {
    struct waits *w = arg;
    pthread_mutex_lock(&w->lock);
    while (!w->stop) {
        int64_t at = clock_ms() + GP_MIN((int64_t)TICK_MS, w->p->beat_ms);
        struct timespec tick = {.tv_sec = (time_t)(at / 1000), .tv_nsec = (long)(at % 1000) * 1000000};
        (void)pthread_cond_timedwait(&w->wake, &w->lock, &tick);
        if (!w->stop) beat(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void waits_free(struct waits *w) {
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    vec_free(&w->list);
    free(w->owner);
    free(w);
}

int waits_start(struct progress *p, waits_say *say, struct waits **ret, struct gp_error *err) {
    struct waits *w = xcalloc(1, sizeof *w);
    w->p = p;
    w->say = say;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wake, &attr);
    pthread_condattr_destroy(&attr);
    int e = pthread_create(&w->thread, NULL, beat_main, w);
    if (e != 0) {
        waits_free(w);
        return gp_fail_errno(err, GP_EENV, e, "could not start the progress thread");
    }
    *ret = w;
    return 0;
}

void waits_stop(struct waits *w) {
    if (w == NULL) return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    waits_free(w);
}
