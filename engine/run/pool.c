/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded pool: one thread per piece of work in progress, with blocking code. Returns when every thread is joined. */
#include "base/gp_base.h"

#include "engine/run/pool.h"

#include "engine/run/run_node.h"

#include <errno.h>
#include <stdatomic.h>

#define STACK_BYTES ((size_t)2 << 20) /* of memory that is not used until it is needed */

struct pool {
    void (*work)(void *ctx, size_t i);
    void *ctx;
    size_t n;
    atomic_size_t next;
};

static void *worker(void *arg) {
    struct pool *pool = arg;
    for (;;) {
        size_t i = atomic_fetch_add(&pool->next, 1);
        if (i >= pool->n) return NULL;
        pool->work(pool->ctx, i);
    }
}

/* Returns how many threads were started; *ret_rc: why none was. Fewer threads do the same work, more slowly. */
static size_t start_pool(struct pool *pool, size_t threads, pthread_t *ids, int *ret_rc) {
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    size_t started = 0;
    int rc = 0;
    while (started < threads && rc == 0) {
        rc = pthread_create(&ids[started], &attr, worker, pool);
        if (rc == 0) started++;
    }
    pthread_attr_destroy(&attr);
    *ret_rc = started > 0 ? 0 : rc;
    return started;
}

/* Returns 0, or the error number if no thread could be started. */
static int run_pool(struct pool *pool, size_t threads) {
    pthread_t *ids = xcalloc(GP_MAX(threads, (size_t)1), sizeof *ids);
    int rc = 0;
    size_t started = start_pool(pool, threads, ids, &rc);
    for (size_t i = 0; i < started; i++) pthread_join(ids[i], NULL);
    free(ids);
    return rc;
}

struct over_nodes {
    struct run *run;
    void (*work)(struct run_node *n);
};

static void on_node(void *ctx, size_t i) {
    const struct over_nodes *o = ctx;
    if (!o->run->nodes[i].skip) o->work(&o->run->nodes[i]);
}

int pool_run(struct run *run, void (*work)(struct run_node *n), struct gp_error *err) {
    struct over_nodes over = {run, work};
    struct pool pool = {.work = on_node, .ctx = &over, .n = (size_t)run->n_nodes};
    atomic_init(&pool.next, 0);
    int rc = run_pool(&pool, (size_t)GP_MAX(GP_MIN(run->e->opts.jobs, run->n_nodes), 0));
    return rc == 0 ? 0 : gp_fail_errno(err, GP_EENV, rc, "could not start a thread");
}

void pool_some(size_t n, size_t most, void (*work)(void *ctx, size_t i), void *ctx) {
    struct pool pool = {.work = work, .ctx = ctx, .n = n};
    atomic_init(&pool.next, 0);
    if (n == 1 || run_pool(&pool, GP_MIN(n, most)) != 0) worker(&pool);
}

void pool_each(size_t n, void (*work)(void *ctx, size_t i), void *ctx) { pool_some(n, n, work, ctx); }

/* Work whose ends the caller's thread follows. */
struct followed {
    const struct pool_follow *by;
    void *ctx;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t more;
    size_t *over, n_over; /* in the order of their ends */
};

static void on_followed(void *ctx, size_t i) {
    struct followed *f = ctx;
    f->by->work(f->ctx, i);
    pthread_mutex_lock(&f->lock);
    f->over[f->n_over++] = i;
    pthread_cond_signal(&f->more);
    pthread_mutex_unlock(&f->lock);
}

static struct timespec in_ms(int64_t ms) {
    int64_t at_ms = clock_deadline(ms);
    return (struct timespec){.tv_sec = (time_t)(at_ms / 1000), .tv_nsec = (long)(at_ms % 1000) * 1000000};
}

/* Waits until more than `k` are over. False: none was for the whole time. */
static bool wait_more(struct followed *f, size_t k, size_t *ret_i) {
    struct timespec until = in_ms(f->by->every_ms);
    int rc = 0;
    pthread_mutex_lock(&f->lock);
    while (f->n_over <= k && rc == 0) rc = pthread_cond_timedwait(&f->more, &f->lock, &until);
    bool more = f->n_over > k;
    if (more) *ret_i = f->over[k];
    pthread_mutex_unlock(&f->lock);
    return more;
}

void pool_each_followed(size_t n, const struct pool_follow *by, void *ctx) {
    struct followed f = {.by = by, .ctx = ctx, .over = xcalloc(n + 1, sizeof *f.over)};
    struct pool pool = {.work = on_followed, .ctx = &f, .n = n};
    pthread_t *ids = xcalloc(n + 1, sizeof *ids);
    pthread_condattr_t attr;
    int rc = 0;
    atomic_init(&pool.next, 0);
    pthread_mutex_init(&f.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&f.more, &attr);
    pthread_condattr_destroy(&attr);
    size_t started = start_pool(&pool, n, ids, &rc);
    if (started == 0) worker(&pool);
    for (size_t k = 0, i = 0; k < n;) {
        if (!wait_more(&f, k, &i)) {
            by->waiting(ctx);
            continue;
        }
        by->over(ctx, i);
        k++;
    }
    for (size_t i = 0; i < started; i++) pthread_join(ids[i], NULL);
    pthread_cond_destroy(&f.more);
    pthread_mutex_destroy(&f.lock);
    free(ids);
    free(f.over);
}
