/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded pool: one thread per node in progress, with blocking code. Returns when every thread is joined. */
#include "base/gp_base.h"

#include "engine/proof/pool.h"

#include "engine/run/run_node.h"

#include <errno.h>
#include <stdatomic.h>

#define STACK_BYTES ((size_t)512 * 1024)

struct pool {
    struct run *run;
    void (*work)(struct run_node *n);
    atomic_int next;
};

static void *worker(void *arg) {
    struct pool *pool = arg;
    for (;;) {
        int i = atomic_fetch_add(&pool->next, 1);
        if (i >= pool->run->n_nodes) return NULL;
        if (!pool->run->nodes[i].skip) pool->work(&pool->run->nodes[i]);
    }
}

int pool_run(struct run *run, void (*work)(struct run_node *n), struct gp_error *err) {
    struct pool pool = {.run = run, .work = work};
    atomic_init(&pool.next, 0);
    int threads = GP_MIN(run->e->opts.jobs, run->n_nodes);
    pthread_t *ids = xcalloc((size_t)GP_MAX(threads, 1), sizeof *ids);
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int started = 0, rc = 0;
    while (started < threads && rc == 0) {
        rc = pthread_create(&ids[started], &attr, worker, &pool);
        if (rc == 0) started++;
    }
    pthread_attr_destroy(&attr);
    if (started > 0) rc = 0; /* fewer threads do the same work, more slowly */
    for (int i = 0; i < started; i++) pthread_join(ids[i], NULL);
    free(ids);
    return rc == 0 ? 0 : gp_fail_errno(err, GP_EENV, rc, "could not start a thread");
}
