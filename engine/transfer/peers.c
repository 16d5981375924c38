/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of the agent for copies from node to node: a request on stdin, one answer on stdout; stdin stays open while
 * the agent shall go on. In the node's thread. */
#include "base/gp_base.h"

#include "engine/transfer/peers.h"
#include "engine/transfer/transfer.h"

#define ANSWER_MAX ((size_t)128 << 10)
#define PING_MS 10000

struct talk {
    const struct peer_ask *ask;
    void *request;
    size_t request_n, sent; /* of request and list */
    struct str in;
    bool answered, late;
    int64_t answer_by_ms;
    uint64_t value;
    int rc;
    struct gp_error err;
};

static bool is_late(struct talk *t) {
    t->late = t->late || (!t->answered && clock_left_ms(t->answer_by_ms) == 0);
    return t->late;
}

static enum ssh_pull pull(void *ctx, const void **ret, size_t *ret_n) {
    struct talk *t = ctx;
    const struct peer_ask *a = t->ask;
    if (is_late(t)) return SSH_PULL_STOP;
    if (t->sent < t->request_n) {
        *ret = (const char *)t->request + t->sent;
        *ret_n = t->request_n - t->sent;
    } else if (t->sent < t->request_n + a->list_n) {
        *ret = (const char *)a->list + (t->sent - t->request_n);
        *ret_n = t->request_n + a->list_n - t->sent;
    } else if (t->answered && a->ready == NULL) return SSH_PULL_EOF;
    return SSH_PULL_WAIT;
}

static void pulled(void *ctx, size_t n) {
    struct talk *t = ctx;
    t->sent += n;
}

static bool on_data(void *ctx, const void *p, size_t n) {
    struct talk *t = ctx;
    if (is_late(t)) return false;
    if (t->answered) return t->ask->ready != NULL; /* a sign of life, of one that shares */
    bool fits = str_add_mem(&t->in, p, n);
    t->rc = tree_answer_get(t->in.s, t->in.len, &t->answered, &t->value, &t->err);
    if (t->rc == 0 && !fits) t->rc = gp_fail(&t->err, GP_EPROTO, "the agent's answer is too long");
    if (t->rc == 0 && t->answered && t->ask->ready != NULL) t->ask->ready(t->ask->ctx, t->value);
    return t->rc == 0;
}

/* 0: the agent answered. */
static int ask(const struct peer_ask *a, uint64_t *ret, struct gp_error *err) {
    struct talk t = {.ask = a, .answer_by_ms = clock_deadline(a->answer_ms)};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    const char *label = a->link->target.label;
    struct gp_error why = {0};
    str_init(&t.in, ANSWER_MAX);
    t.request = tree_request_bytes(a->request, &t.request_n);
    struct ssh_exec_opts opts = {.pull = pull,
                                 .pulled = pulled,
                                 .on_data = on_data,
                                 .ctx = &t,
                                 .deadline_ms = a->deadline_ms,
                                 .silent_ms = TREE_SILENT_MS,
                                 .max_output = 8192,
                                 .cancel = a->cancel};
    int rc = ssh_exec(a->link->session, TREE_AGENT, &opts, &r, &why);
    explicit_bzero(t.request, t.request_n);
    free(t.request);
    str_clear(&t.in);
    if (t.rc != 0) return gp_fail(err, t.err.code, "%s: %s", label, t.err.msg);
    if (rc != 0) {
        if (err != NULL) *err = why;
        return rc;
    }
    if (t.answered && a->ready == NULL) {
        *ret = t.value;
        return 0;
    }
    if (r.end == SSH_LOST) return gp_fail(err, GP_ELOST, "%s: %s", label, ssh_lost_why(a->link->session));
    if (r.end == SSH_TIMED_OUT)
        return gp_fail(err, GP_ETIMEOUT, "%s: %s", label,
                       t.late                              ? "it did not finish in time, though its agent is alive"
                       : clock_left_ms(a->deadline_ms) > 0 ? "its agent does not answer"
                                                           : "it did not finish in time");
    if (!t.answered) return gp_fail(err, GP_EIO, "%s: the agent ended with status %d", label, r.status);
    *ret = t.value;
    return 0;
}

int peer_share(const struct peer_ask *a, struct gp_error *err) {
    uint64_t port = 0;
    struct gp_error why = {0};
    int r = ask(a, &port, &why);
    if (r == -GP_ECANCELLED) return 0;
    if (r == 0) return gp_fail(err, GP_EIO, "%s: the agent stopped sharing", a->link->target.label);
    if (err != NULL) *err = why;
    return r;
}

int peer_fetch(const struct peer_ask *a, uint64_t *ret_bytes, struct gp_error *err) { return ask(a, ret_bytes, err); }
