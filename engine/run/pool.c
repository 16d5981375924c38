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

/* Returns 0, or the error number if no thread could be started. Fewer threads do the same work, more slowly. */
static int run_pool(struct pool *pool, size_t threads) {
    pthread_t *ids = xcalloc(GP_MAX(threads, (size_t)1), sizeof *ids);
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
    if (started > 0) rc = 0;
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
