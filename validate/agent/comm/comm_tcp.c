/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over tcp links. The ring's order of additions is fixed: chunk k is summed as ((x_k + x_k+1) + x_k+2) +
 * ... (ranks modulo size), once, and then distributed, so that all ranks have the same bits. One thread. */
#include "base/gp_base.h"

#include "comm_tcp.h"

#include "base/clock.h"
#include "validate/agent/agent.h"

static int tcp_init(const struct comm_setup *s, struct comm **ret, struct gp_error *err) {
    if (s->size < 1 || s->rank < 0 || s->rank >= s->size || s->size > 1024)
        return gp_fail(err, GP_EUSAGE, "rank %d of %d is not valid", s->rank, s->size);
    if (s->token_len < 16) return gp_fail(err, GP_EUSAGE, "the token is shorter than 16 bytes");
    struct comm *c = xcalloc(1, sizeof *c);
    c->rank = s->rank;
    c->size = s->size;
    c->dev_ops = s->dev_ops;
    c->dev = s->dev;
    c->deadline_ms = s->deadline_ms;
    c->stall_ms = s->stall_ms;
    c->meet_ms = s->meet_ms;
    c->links = xcalloc((size_t)s->size, sizeof *c->links);
    c->scratch = xmalloc(COMM_SCRATCH);
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->state, NULL);
    for (int i = 0; i < s->size; i++) {
        c->links[i].fd = -1;
        str_init(&c->links[i].ctl, 1 << 20);
        str_init(&c->links[i].control, 2048);
    }
    int r = comm_meet(c, s, err);
    if (r != 0) {
        comm_tcp.abort(c, err != NULL ? err->msg : "failed", err != NULL ? comm_culprit(err) : -1);
        return r;
    }
    comm_pulse_start(c);
    *ret = c;
    return 0;
}

int comm_tcp_alone(const struct device_ops *dev_ops, struct device *dev, int64_t deadline_ms, struct comm **ret,
                   struct gp_error *err) {
    static const unsigned char token[16]; /* nobody else can come to a gang of one */
    struct comm_setup s = {.size = 1,
                           .bind_ip = "127.0.0.1",
                           .rendezvous = "",
                           .token = token,
                           .token_len = sizeof token,
                           .deadline_ms = deadline_ms,
                           .meet_ms = 1000,
                           .stall_ms = 1000,
                           .dev_ops = dev_ops,
                           .dev = dev};
    return tcp_init(&s, ret, err);
}

static void tcp_abort(struct comm *c, const char *reason, int culprit) {
    if (c == NULL) return;
    comm_pulse_stop(c);
    for (int i = 0; i < c->size; i++) {
        if (reason == NULL) {
            comm_control(c, i, FRAME_BYE, "", 0);
            continue;
        }
        struct {
            struct abort_words words;
            char text[500];
        } m = {.words = {.culprit = culprit, .late = c->late, .relayed = c->relayed}};
        str_put(m.text, sizeof m.text, reason);
        comm_control(c, i, FRAME_ABORT, &m, sizeof m.words + strlen(m.text) + 1);
    }
    comm_flush_and_close(c, 1000);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->state);
    free(c->scratch);
    free(c->links);
    free(c->host_a);
    free(c->host_b);
    free(c->ring);
    free(c);
}

/* --- buffers: the host device's are used in place, others are staged --- */

static bool in_place(const struct comm *c) { return c->dev_ops == &device_host || c->dev_ops == NULL; }

static void stage(struct comm *c, size_t n) {
    if (c->host_n < n) {
        c->host_a = xrealloc(c->host_a, n);
        c->host_b = xrealloc(c->host_b, n);
        c->host_n = n;
    }
}

static int fetch(struct comm *c, dev_addr from, void *to, size_t n, struct gp_error *err) {
    struct copy_args a = {.kind = COPY_FROM_DEVICE, .dev = from, .host = to, .bytes = n};
    return c->dev_ops->copy(c->dev, &a, err);
}

static int store(struct comm *c, dev_addr to, void *from, size_t n, struct gp_error *err) {
    struct copy_args a = {.kind = COPY_TO_DEVICE, .dev = to, .host = from, .bytes = n};
    return c->dev_ops->copy(c->dev, &a, err);
}

/* --- all_reduce --- */

static size_t chunk_at(size_t count, int size, int chunk) { return count * (size_t)chunk / (size_t)size; }

static int wrap(int i, int n) { return (i % n + n) % n; }

static int ring_step(struct comm *c, const struct all_reduce_args *a, float *buf, int step, struct gp_error *err) {
    int n = c->size, next = wrap(c->rank + 1, n), prev = wrap(c->rank - 1, n);
    bool adding = step < n - 1;
    int out = wrap(c->rank - step, n), in = wrap(out - 1, n);
    size_t out_at = chunk_at(a->count, n, out), in_at = chunk_at(a->count, n, in);
    size_t out_n = chunk_at(a->count, n, out + 1) - out_at, in_n = chunk_at(a->count, n, in + 1) - in_at;
    int r = comm_exchange(c, next, buf + out_at, out_n * sizeof *buf, prev, c->ring, in_n * sizeof *buf, err);
    if (r != 0) return r;
    if (a->partial != NULL) a->partial(a->ctx, in, in, adding ? step + 1 : n, in_at, c->ring, in_n);
    if (adding)
        for (size_t i = 0; i < in_n; i++) buf[in_at + i] = c->ring[i] + buf[in_at + i];
    else memcpy(buf + in_at, c->ring, in_n * sizeof *buf);
    if (adding && in_n > 0 && agent_fault("reduce", c->rank, step)) buf[in_at] += 1.0f;
    return 0;
}

static int tcp_all_reduce(struct comm *c, const struct all_reduce_args *a, struct gp_error *err) {
    size_t n = a->count * sizeof(float);
    float *buf = (float *)(uintptr_t)a->buf;
    int r = 0;
    if (c->size == 1) return 0;
    if (!in_place(c)) {
        stage(c, n);
        buf = (float *)(void *)c->host_a;
        r = fetch(c, a->buf, buf, n, err);
    }
    size_t most = a->count / (size_t)c->size + 1;
    if (c->ring_n < most) {
        c->ring = xrealloc(c->ring, most * sizeof *c->ring);
        c->ring_n = most;
    }
    for (int step = 0; step < 2 * (c->size - 1) && r == 0; step++) r = ring_step(c, a, buf, step, err);
    if (r == 0 && !in_place(c)) r = store(c, a->buf, buf, n, err);
    return r;
}

/* --- other operations --- */

static int tcp_broadcast(struct comm *c, dev_addr buf, size_t bytes, int root, struct gp_error *err) {
    char *p = (char *)(uintptr_t)buf;
    int r = 0;
    if (!in_place(c)) {
        stage(c, bytes);
        p = c->host_a;
        if (c->rank == root) r = fetch(c, buf, p, bytes, err);
    }
    for (int k = 0; k < c->size && r == 0 && c->rank == root; k++)
        if (k != root) r = comm_exchange(c, k, p, bytes, -1, NULL, 0, err);
    if (r == 0 && c->rank != root) r = comm_exchange(c, -1, NULL, 0, root, p, bytes, err);
    if (r == 0 && c->rank != root && !in_place(c)) r = store(c, buf, p, bytes, err);
    return r;
}

static int ring_gather(struct comm *c, const char *own, char *all, size_t bytes, struct gp_error *err) {
    int n = c->size, next = wrap(c->rank + 1, n), prev = wrap(c->rank - 1, n), r = 0;
    memmove(all + (size_t)c->rank * bytes, own, bytes);
    for (int step = 0; step < n - 1 && r == 0; step++) {
        size_t out = (size_t)wrap(c->rank - step, n), in = (size_t)wrap(c->rank - step - 1, n);
        r = comm_exchange(c, next, all + out * bytes, bytes, prev, all + in * bytes, bytes, err);
    }
    return r;
}

static int tcp_all_gather(struct comm *c, dev_addr send, dev_addr recv, size_t bytes, struct gp_error *err) {
    if (in_place(c)) return ring_gather(c, (const char *)(uintptr_t)send, (char *)(uintptr_t)recv, bytes, err);
    size_t n = bytes * (size_t)c->size;
    stage(c, n);
    int r = fetch(c, send, c->host_b, bytes, err);
    if (r == 0) r = ring_gather(c, c->host_b, c->host_a, bytes, err);
    return r == 0 ? store(c, recv, c->host_a, n, err) : r;
}

static int tcp_barrier(struct comm *c, struct gp_error *err) {
    char *all = xcalloc((size_t)c->size, 1);
    char one = 1;
    int r = ring_gather(c, &one, all, 1, err);
    free(all);
    return r;
}

/* Every all_reduce has ended when it returns. */
static int tcp_flush(struct comm *c, int64_t deadline_ms, struct gp_error *err) {
    (void)c, (void)deadline_ms, (void)err;
    return 0;
}

const struct comm_ops comm_tcp = {.name = "tcp",
                                  .init = tcp_init,
                                  .all_reduce = tcp_all_reduce,
                                  .broadcast = tcp_broadcast,
                                  .all_gather = tcp_all_gather,
                                  .barrier = tcp_barrier,
                                  .flush = tcp_flush,
                                  .abort = tcp_abort};
