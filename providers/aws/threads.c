// SPDX-License-Identifier: Apache-2.0
/* Calls to many regions in parallel, so that listing all takes about as long as the slowest region. Each
 * thread has a copy of the open provider with its own HTTP client. Credentials are borrowed and were
 * refreshed before; the copy has no cache. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS_MAX 8

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

void aws_side_by_side(struct aws *a, size_t n, void (*work)(struct aws *a, size_t i, void *ctx), void *ctx) {
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
