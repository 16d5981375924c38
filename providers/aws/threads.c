// SPDX-License-Identifier: Apache-2.0
/* Calls that do not need each other's results, in parallel: many regions, many kinds, the reads of a launch. Each
 * thread has a copy of the open provider with its own HTTP client. Credentials are borrowed and were
 * refreshed before; the copy has no cache. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS_MAX 32

struct share {
    struct aws *a;
    size_t n;
    atomic_size_t next;
    void (*work)(struct aws *a, size_t i, void *ctx);
    void *ctx;
};

struct worker {
    struct share *share;
    struct aws mine;
    pthread_t thread;
    bool started;
};

static void work_on(struct share *s, struct aws *a) {
    for (size_t i = atomic_fetch_add(&s->next, 1); i < s->n; i = atomic_fetch_add(&s->next, 1)) s->work(a, i, s->ctx);
}

static void *run(void *arg) {
    struct worker *w = arg;
    work_on(w->share, &w->mine);
    return NULL;
}

/* False: no further thread could be started; the others do its part. */
static bool start(struct worker *w) {
    w->mine = *w->share->a;
    w->mine.http = NULL;
    w->mine.cache = NULL;
    w->mine.borrowed = true;
    if (aws_http_open(&w->mine, &w->mine.http, NULL) != 0) return false;
    w->started = pthread_create(&w->thread, NULL, run, w) == 0;
    if (!w->started) http_close(w->mine.http);
    return w->started;
}

static void side_by_side(struct aws *a, size_t n, void (*work)(struct aws *a, size_t i, void *ctx), void *ctx) {
    struct share s = {.a = a, .n = n, .work = work, .ctx = ctx};
    struct worker workers[THREADS_MAX - 1] = {0};
    size_t extra = n > 1 ? GP_MIN(n - 1, GP_ARRAY_LEN(workers)) : 0;
    for (size_t i = 0; i < extra; i++) {
        workers[i].share = &s;
        if (!start(&workers[i])) break;
    }
    bool borrowed = a->borrowed;
    a->borrowed = true; /* a refresh would change the credentials of the others */
    work_on(&s, a);
    a->borrowed = borrowed;
    for (size_t i = 0; i < extra && workers[i].started; i++) {
        pthread_join(workers[i].thread, NULL);
        http_close(workers[i].mine.http);
    }
}

struct tasks {
    struct aws_task *list;
    bool again; /* only those that failed because the credentials had expired */
};

static bool is_stale(const struct aws_task *t) {
    return t->r != 0 && aws_error_row(t->err.detail)->class == CLOUD_STALE;
}

static void run_task(struct aws *a, size_t i, void *ctx) {
    const struct tasks *all = ctx;
    struct aws_task *t = &all->list[i];
    if (all->again && !is_stale(t)) return;
    gp_error_clear(&t->err);
    t->r = t->run(a, t->ctx, &t->err);
}

void aws_run_tasks(struct aws *a, struct aws_task *list, size_t n) {
    struct tasks all = {.list = list};
    struct gp_error err = {0};
    int r = n > 0 ? aws_creds_ensure(a, false, &err) : 0;
    for (size_t i = 0; i < n && r != 0; i++) {
        list[i].r = r;
        list[i].err = err;
    }
    if (n == 0 || r != 0) return;
    side_by_side(a, n, run_task, &all);
    bool stale = false;
    for (size_t i = 0; i < n; i++) stale = stale || is_stale(&list[i]);
    if (!stale || aws_creds_ensure(a, true, NULL) != 0) return;
    all.again = true; /* they expired meanwhile: try once more */
    side_by_side(a, n, run_task, &all);
}
