/* SPDX-License-Identifier: Apache-2.0 */
/* The thread of nccl_caller.h. The owner puts tasks and polls; the thread alone calls NCCL. */
#include "base/gp_base.h"

#include "nccl_caller.h"

#include "base/clock.h"

#include <time.h>

enum { NCCL_SUM = 0, NO_COLOR = -1 };

static int64_t now_ns(clockid_t clock, int64_t later_ns, struct timespec *ret) {
    clock_gettime(clock, ret);
    int64_t ns = (int64_t)ret->tv_sec * 1000000000 + ret->tv_nsec + later_ns;
    *ret = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    return ns;
}

/* --- in the thread --- */

static void *at(dev_addr p) { return (void *)(uintptr_t)p; }

static nccl_result all_to_all(struct nccl_caller *k, const struct nccl_call *a, int type) {
    size_t bytes = a->count * comm_type_bytes(a->type);
    nccl_result r = k->api->group_start();
    for (int i = 0; i < k->size && r == NCCL_OK; i++) {
        r = k->api->send(at(a->send + (size_t)i * bytes), a->count, type, i, k->h, k->stream);
        if (r == NCCL_OK) r = k->api->recv(at(a->recv + (size_t)i * bytes), a->count, type, i, k->h, k->stream);
    }
    nccl_result end = k->api->group_end();
    return r != NCCL_OK ? r : end;
}

static nccl_result collective(struct nccl_caller *k, const struct nccl_call *a, int type) {
    switch (a->op) {
    case NCCL_ALL_REDUCE:
        return k->api->all_reduce(at(a->send), at(a->recv), a->count, type, NCCL_SUM, k->h, k->stream);
    case NCCL_ALL_GATHER: return k->api->all_gather(at(a->send), at(a->recv), a->count, type, k->h, k->stream);
    case NCCL_REDUCE_SCATTER:
        return k->api->reduce_scatter(at(a->send), at(a->recv), a->count, type, NCCL_SUM, k->h, k->stream);
    case NCCL_BROADCAST: return k->api->broadcast(at(a->send), at(a->recv), a->count, type, a->root, k->h, k->stream);
    case NCCL_ALL_TO_ALL: return all_to_all(k, a, type);
    case NCCL_OPS: break;
    }
    return NCCL_INVALID_ARGUMENT;
}

static nccl_result perform(struct nccl_caller *k, const struct nccl_task *t, cu_result *ret_cuda) {
    struct timespec now;
    nccl_result r = NCCL_OK;
    switch (t->kind) {
    case NCCL_TASK_INIT: k->size = t->size; return k->api->init(&k->h, t->size, t->id, t->rank, &k->config);
    case NCCL_TASK_SPLIT:
        return k->api->split(k->h, t->child == NULL ? NO_COLOR : t->color, t->rank,
                             t->child == NULL ? &k->none : &t->child->h, &k->config);
    case NCCL_TASK_CALL: return collective(k, &t->call, t->type);
    case NCCL_TASK_MARK:
        *ret_cuda = k->cu->event_record(t->event, k->stream);
        k->marked_ns[t->which] = now_ns(CLOCK_MONOTONIC, 0, &now);
        return NCCL_OK;
    case NCCL_TASK_END: r = k->api->finalize(k->h); return r == NCCL_OK ? k->api->destroy(k->h) : k->api->abort(k->h);
    case NCCL_TASK_ABORT: return k->api->abort(k->h);
    }
    return r;
}

static void keep(struct nccl_caller *k, const struct nccl_task *t, nccl_result r, cu_result cuda) {
    if (t->kind == NCCL_TASK_CALL) k->calls++;
    if ((r == NCCL_OK && cuda == 0) || k->what != NULL) return;
    k->result = r;
    k->cuda = cuda;
    k->what = t->what;
}

static void *caller_main(void *arg) {
    struct nccl_caller *k = arg;
    cu_result bound = k->cu->context_use(k->context);
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (k->put == k->done && !k->ending) pthread_cond_wait(&k->more, &k->lock);
        if (k->put == k->done) break;
        const struct nccl_task *t = &k->tasks[k->done % GP_ARRAY_LEN(k->tasks)];
        bool last = t->kind == NCCL_TASK_END || t->kind == NCCL_TASK_ABORT, wanted = last || k->what == NULL;
        pthread_mutex_unlock(&k->lock);
        cu_result cuda = bound;
        nccl_result r = wanted && bound == 0 ? perform(k, t, &cuda) : NCCL_OK;
        pthread_mutex_lock(&k->lock);
        if (wanted) keep(k, t, r, cuda);
        k->done++;
        pthread_cond_signal(&k->less);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* --- the owner --- */

struct nccl_caller *nccl_caller_new(const struct nccl_api *api, const struct cuda_api *cu, cu_context context,
                                    cu_stream stream, const struct nccl_config *config) {
    struct nccl_caller *k = xcalloc(1, sizeof *k);
    pthread_condattr_t clock;
    k->api = api;
    k->cu = cu;
    k->context = context;
    k->stream = stream;
    k->config = *config;
    pthread_mutex_init(&k->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&k->more, &clock);
    pthread_cond_init(&k->less, &clock);
    pthread_condattr_destroy(&clock);
    return k;
}

int nccl_caller_put(struct nccl_caller *k, const struct nccl_task *task, struct gp_error *err) {
    pthread_mutex_lock(&k->lock);
    bool room = k->put - k->done < GP_ARRAY_LEN(k->tasks);
    if (room) {
        k->tasks[k->put % GP_ARRAY_LEN(k->tasks)] = *task;
        k->put++;
    }
    if (task->child != NULL) task->child->awaited = true;
    int r = k->started ? 0 : pthread_create(&k->thread, NULL, caller_main, k);
    k->started = k->started || r == 0;
    pthread_cond_signal(&k->more);
    pthread_mutex_unlock(&k->lock);
    if (r != 0) return gp_fail_errno(err, GP_EENV, r, "cannot start a thread for NCCL");
    return room ? 0 : gp_fail(err, GP_EINTERNAL, "more than %zu calls of NCCL are queued", GP_ARRAY_LEN(k->tasks));
}

bool nccl_caller_idle(struct nccl_caller *k, long wait_us) {
    struct timespec until;
    now_ns(CLOCK_MONOTONIC, (int64_t)wait_us * 1000, &until);
    pthread_mutex_lock(&k->lock);
    while (k->put != k->done && wait_us > 0)
        if (pthread_cond_timedwait(&k->less, &k->lock, &until) != 0) break;
    bool idle = k->put == k->done;
    pthread_mutex_unlock(&k->lock);
    return idle;
}

uint64_t nccl_caller_calls(struct nccl_caller *k) {
    pthread_mutex_lock(&k->lock);
    uint64_t n = k->calls;
    pthread_mutex_unlock(&k->lock);
    return n;
}

bool nccl_caller_free(struct nccl_caller *k, enum nccl_task_kind last, int64_t limit_ms) {
    struct nccl_task end = {.kind = last, .what = "end NCCL"};
    bool idle = nccl_caller_idle(k, 0); /* what waits in a call must not lose its communicator meanwhile */
    if (idle && !k->awaited && k->h != NULL)
        idle = nccl_caller_put(k, &end, NULL) == 0 && nccl_caller_idle(k, (long)limit_ms * 1000);
    pthread_mutex_lock(&k->lock);
    k->ending = true;
    pthread_cond_signal(&k->more);
    pthread_mutex_unlock(&k->lock);
    if (k->started && !idle) pthread_detach(k->thread);
    if (!idle) return false;
    if (k->started) pthread_join(k->thread, NULL);
    if (k->awaited) return true;
    pthread_mutex_destroy(&k->lock);
    pthread_cond_destroy(&k->more);
    pthread_cond_destroy(&k->less);
    free(k);
    return true;
}
