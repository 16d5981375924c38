/* SPDX-License-Identifier: Apache-2.0 */
/* Links of the tcp communicator: frames out and in, control frames between them. Every wait serves all links;
 * comm_pulse.c judges the awaited peers. The caller's thread and the heartbeat thread, apart by comm.lock. */
#include "base/gp_base.h"

#include "comm_tcp.h"

#include "base/clock.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FRAME_MAGIC 0x31465047u /* "GPF1" */
#define FRAME_DATA_MAX ((size_t)256 << 10)
#define FRAME_CONTROL_MAX 1024
#define QUEUE_MAX ((size_t)64 << 20)

struct frame {
    uint32_t magic, kind;
    uint64_t len, zero;
};
_Static_assert(sizeof(struct frame) == 24, "frame head");

int comm_blame(struct gp_error *err, int rank) {
    if (err == NULL) return 0;
    snprintf(err->detail, sizeof err->detail, "rank %d", rank);
    return -(int)err->code;
}

int comm_culprit(const struct gp_error *err) {
    int64_t rank = 0;
    if (!str_starts(err->detail, "rank ")) return -1;
    return str_to_i64(err->detail + 5, 0, 1 << 20, &rank) ? (int)rank : -1;
}

int comm_lost(struct comm *c, int rank, const char *what, struct gp_error *err) {
    gp_fail(err, GP_ELOST, "rank %d (%s) %s", rank, c->links[rank].addr, what);
    comm_blame(err, rank);
    return -GP_ELOST;
}

/* --- sending --- */

void comm_control(struct comm *c, int to, enum frame_kind kind, const void *p, size_t n) {
    struct link *l = &c->links[to];
    if (l->fd < 0 || l->gone || l->ctl.len > 65536) return;
    struct frame f = {.magic = FRAME_MAGIC, .kind = (uint32_t)kind, .len = n};
    str_add_mem(&l->ctl, &f, sizeof f);
    str_add_mem(&l->ctl, p, n);
}

static bool wants_send(const struct link *l) {
    return l->ctl.len > 0 || l->out_head_left > 0 || l->frame_left > 0 || l->out_left > 0;
}

/* 1: sent some, 0: would block, -1: the link is broken. */
static int send_some(struct link *l, const void *p, size_t n, size_t *ret_n) {
    ssize_t w = send(l->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (w >= 0) {
        *ret_n = (size_t)w;
        return 1;
    }
    *ret_n = 0;
    return errno == EAGAIN || errno == EINTR ? 0 : -1;
}

static int link_send(struct comm *c, struct link *l) {
    while (wants_send(l)) {
        size_t n = 0;
        int r = 0;
        bool inside = l->out_head_left > 0 || l->frame_left > 0;
        if (!inside && l->ctl.len > 0) {
            r = send_some(l, l->ctl.s, l->ctl.len, &n);
            memmove(l->ctl.s, l->ctl.s + n, l->ctl.len - n);
            l->ctl.len -= n;
            /* the rest of a control frame must go before anything else: it stays in front */
            if (r > 0 && l->ctl.len > 0) continue;
        } else if (!inside) {
            struct frame f = {.magic = FRAME_MAGIC, .kind = FRAME_DATA, .len = GP_MIN(l->out_left, FRAME_DATA_MAX)};
            memcpy(l->out_head, &f, sizeof f);
            l->out_head_left = sizeof f;
            l->frame_left = f.len;
            continue;
        } else if (l->out_head_left > 0) {
            r = send_some(l, l->out_head + sizeof l->out_head - l->out_head_left, l->out_head_left, &n);
            l->out_head_left -= n;
        } else {
            r = send_some(l, l->out, l->frame_left, &n);
            l->out += n;
            l->out_left -= n;
            l->frame_left -= n;
            c->bytes_sent += n;
            if (n > 0) l->quiet_ms = l->idle_ms = 0;
        }
        if (r <= 0) return r;
    }
    return 0;
}

/* --- receiving --- */

static void queue_add(struct link_queue *q, const void *p, size_t n) {
    if (q->off + q->len + n > q->cap) {
        if (q->len > 0) memmove(q->p, q->p + q->off, q->len);
        q->off = 0;
        while (q->len + n > q->cap) q->cap = q->cap ? q->cap * 2 : 65536;
        q->p = xrealloc(q->p, q->cap);
    }
    memcpy(q->p + q->off + q->len, p, n);
    q->len += n;
}

static size_t queue_take(struct link_queue *q, void *p, size_t n) {
    n = GP_MIN(n, q->len);
    if (n > 0) memcpy(p, q->p + q->off, n);
    q->off += n;
    q->len -= n;
    if (q->len == 0) q->off = 0;
    return n;
}

/* One sentence, however many ranks passed it on. */
static int ended_by(struct comm *c, int rank, struct gp_error *err) {
    const struct link *l = &c->links[rank];
    struct abort_words w;
    memcpy(&w, l->control.s, sizeof w);
    const char *text = l->control.s + sizeof w;
    bool own = !w.relayed && (w.culprit < 0 || w.culprit == rank);
    enum gp_code code = w.late ? GP_ETIMEOUT : GP_ELOST;
    if (w.late || !own) gp_fail(err, code, "%s", text);
    else
        gp_fail(err, code, "rank %d (%s) %s: %s", rank, l->addr, w.culprit == rank ? "failed" : "ended the gang", text);
    c->relayed = true;
    c->late = w.late;
    if (w.culprit >= 0 && w.culprit < c->size) comm_blame(err, w.culprit);
    return -(int)code;
}

static int control_frame(struct comm *c, int rank, struct gp_error *err) {
    struct link *l = &c->links[rank];
    switch ((enum frame_kind)l->kind) {
    case FRAME_PING: {
        struct pulse own = comm_pulse_own(c);
        comm_control(c, rank, FRAME_PONG, &own, sizeof own);
        link_send(c, l);
        return 0;
    }
    case FRAME_PONG: {
        struct pulse p;
        if (l->control.len != sizeof p) break;
        memcpy(&p, l->control.s, sizeof p);
        comm_pulse_heard(l, &p);
        return 0;
    }
    case FRAME_BYE: l->bye = true; return 0;
    case FRAME_ABORT:
        if (l->control.len <= sizeof(struct abort_words)) break;
        return ended_by(c, rank, err);
    case FRAME_DATA: break;
    }
    gp_fail(err, GP_EPROTO, "rank %d (%s) sent an invalid frame", rank, l->addr);
    comm_blame(err, rank);
    return -GP_EPROTO;
}

/* The head is complete. */
static int frame_begin(struct comm *c, int rank, struct gp_error *err) {
    struct link *l = &c->links[rank];
    struct frame f;
    memcpy(&f, l->head, sizeof f);
    bool data = f.kind == FRAME_DATA;
    if (f.magic != FRAME_MAGIC || f.len > (data ? FRAME_DATA_MAX : FRAME_CONTROL_MAX)) {
        gp_fail(err, GP_EPROTO, "rank %d (%s) sent an invalid frame", rank, l->addr);
        comm_blame(err, rank);
        return -GP_EPROTO;
    }
    l->kind = f.kind;
    l->payload_left = f.len;
    str_reset(&l->control);
    if (!data && f.len == 0) {
        l->head_have = 0;
        return control_frame(c, rank, err);
    }
    return 0;
}

/* Destination and number of the link's next bytes. Data to be queued goes to scratch. */
static size_t read_target(struct link *l, char *scratch, size_t scratch_n, char **ret_dst) {
    if (l->head_have < sizeof l->head) {
        *ret_dst = (char *)l->head + l->head_have;
        return sizeof l->head - l->head_have;
    }
    if (l->kind == FRAME_DATA && l->post_left > 0 && l->queue.len == 0) {
        *ret_dst = l->post;
        return (size_t)GP_MIN(l->payload_left, l->post_left);
    }
    *ret_dst = scratch;
    return (size_t)GP_MIN(l->payload_left, scratch_n);
}

static int took_bytes(struct comm *c, int rank, const char *p, size_t n, struct gp_error *err) {
    struct link *l = &c->links[rank];
    if (l->head_have < sizeof l->head) {
        l->head_have += n;
        return l->head_have == sizeof l->head ? frame_begin(c, rank, err) : 0;
    }
    l->payload_left -= n;
    if (l->payload_left == 0) l->head_have = 0;
    l->heard = l->heard || !c->meeting;
    if (l->kind != FRAME_DATA) {
        str_add_mem(&l->control, p, n);
        return l->payload_left == 0 ? control_frame(c, rank, err) : 0;
    }
    if (p == l->post) {
        l->post += n;
        l->post_left -= n;
        l->idle_ms = 0;
    } else {
        queue_add(&l->queue, p, n);
    }
    return 0;
}

static int link_recv(struct comm *c, int rank, struct gp_error *err) {
    struct link *l = &c->links[rank];
    for (int turns = 0; turns < 64; turns++) {
        char *dst = NULL;
        size_t room = read_target(l, c->scratch, COMM_SCRATCH, &dst);
        ssize_t n = recv(l->fd, dst, room, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
        if (n <= 0) {
            l->gone = true;
            return l->bye ? 0 : comm_lost(c, rank, "is gone: its connection ended", err);
        }
        l->quiet_ms = 0;
        int r = took_bytes(c, rank, dst, (size_t)n, err);
        if (r != 0) return r;
    }
    return 0;
}

/* --- waiting --- */

static bool posted(const struct comm *c) {
    for (int i = 0; i < c->size; i++)
        if (c->links[i].post_left > 0 || c->links[i].out_left > 0) return true;
    return false;
}

int comm_serve(struct comm *c, int timeout_ms, struct gp_error *err) {
    struct pollfd *p = xcalloc((size_t)c->size, sizeof *p);
    for (int i = 0; i < c->size; i++) {
        const struct link *l = &c->links[i];
        p[i].fd = l->fd >= 0 && !l->gone ? l->fd : -1;
        p[i].events = (short)((l->queue.len < QUEUE_MAX ? POLLIN : 0) | (wants_send(l) ? POLLOUT : 0));
    }
    int r = 0, n = poll(p, (nfds_t)c->size, timeout_ms);
    for (int i = 0; i < c->size && n > 0 && r == 0; i++) {
        if (p[i].fd < 0 || p[i].revents == 0) continue;
        if (p[i].revents & (POLLIN | POLLHUP | POLLERR)) r = link_recv(c, i, err);
        if (r == 0 && !c->links[i].gone && (p[i].revents & POLLOUT) && link_send(c, &c->links[i]) < 0) {
            /* its last message is more useful than the broken pipe */
            r = link_recv(c, i, err);
            if (r == 0) r = comm_lost(c, i, "is gone: its connection broke", err);
        }
    }
    free(p);
    return r;
}

/* After a failure the caller's buffers must not be used: half-sent frames keep a copy of their rest, and received
 * data is queued. */
static void let_go(struct comm *c) {
    for (int i = 0; i < c->size; i++) {
        struct link *l = &c->links[i];
        l->post = NULL;
        l->post_left = 0;
        size_t rest = l->out_head_left > 0 || l->frame_left > 0 ? l->frame_left : 0;
        char *copy = rest > 0 ? xmalloc(rest) : NULL;
        if (rest > 0) memcpy(copy, l->out, rest);
        free(l->spill);
        l->spill = copy;
        l->out = copy;
        l->out_left = rest;
    }
}

static void post(struct comm *c, int rank) {
    struct link *l = &c->links[rank];
    l->quiet_ms = l->idle_ms = 0;
    l->ping_ms = 0;
}

static int begin(struct comm *c, int to, const void *s, size_t sn, int from, void *r, size_t rn, struct gp_error *err) {
    if (to >= 0 && sn > 0) {
        struct link *l = &c->links[to];
        if (l->gone || l->fd < 0) return comm_lost(c, to, "is gone", err);
        l->out = s;
        l->out_left = sn;
        post(c, to);
        link_send(c, l); /* a broken link is detected when it is served */
    }
    if (from >= 0 && rn > 0) {
        struct link *l = &c->links[from];
        size_t had = queue_take(&l->queue, r, rn);
        l->heard = l->heard || had > 0;
        l->post = (char *)r + had;
        l->post_left = rn - had;
        if (l->post_left > 0 && (l->gone || l->fd < 0)) return comm_lost(c, from, "is gone", err);
        post(c, from);
        if (l->post_left > 0) return link_recv(c, from, err);
    }
    return 0;
}

static int exchange(struct comm *c, struct gp_error *err) {
    int rc = 0;
    int64_t began = clock_ms(), seen = began;
    while (rc == 0 && posted(c)) {
        for (int i = 0; i < c->size && rc == 0; i++)
            if (c->links[i].gone && (c->links[i].post_left > 0 || c->links[i].out_left > 0))
                rc = comm_lost(c, i, "ended before the others", err);
        if (rc == 0) rc = comm_serve(c, (int)GP_MIN(comm_look_ms(c), GP_MAX(1, clock_left_ms(c->deadline_ms))), err);
        int64_t now = clock_ms();
        if (rc == 0 && posted(c)) rc = comm_judge(c, now - seen, err);
        seen = now;
    }
    c->slowest_ms = GP_MAX(c->slowest_ms, seen - began);
    return rc;
}

int comm_exchange(struct comm *c, int to, const void *s, size_t sn, int from, void *r, size_t rn,
                  struct gp_error *err) {
    pthread_mutex_lock(&c->lock);
    comm_pulse_mark(c, true);
    int rc = -(int)c->told.code;
    if (rc != 0 && err != NULL) *err = c->told;
    if (rc == 0) rc = begin(c, to, s, sn, from, r, rn, err);
    if (rc == 0) rc = exchange(c, err);
    if (rc != 0) let_go(c);
    comm_pulse_mark(c, false);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

int comm_tcp_serve(struct comm *c, struct gp_error *err) {
    pthread_mutex_lock(&c->lock);
    int rc = -(int)c->told.code;
    if (rc != 0 && err != NULL) *err = c->told;
    if (rc == 0) rc = comm_serve(c, 0, err);
    comm_pulse_mark(c, false);
    pthread_mutex_unlock(&c->lock);
    return rc;
}

void comm_flush_and_close(struct comm *c, int64_t ms) {
    int64_t end = clock_deadline(ms);
    bool shut = false;
    for (bool more = true; more && clock_left_ms(end) > 0;) {
        bool sending = false;
        more = false;
        for (int i = 0; i < c->size; i++) {
            struct link *l = &c->links[i];
            if (l->fd < 0 || l->gone) continue;
            if (!shut && link_send(c, l) < 0) l->gone = true;
            sending = sending || (!l->gone && wants_send(l));
            more = more || !l->gone;
        }
        if (!shut && !sending) {
            for (int i = 0; i < c->size; i++)
                if (c->links[i].fd >= 0) shutdown(c->links[i].fd, SHUT_WR);
            shut = true; /* peers read all data and then the end; a reset would drop the data */
        }
        struct gp_error ignored = {0};
        if (more) comm_serve(c, 20, &ignored);
    }
    for (int i = 0; i < c->size; i++) {
        struct link *l = &c->links[i];
        if (l->fd >= 0) close(l->fd);
        l->fd = -1;
        free(l->queue.p);
        free(l->spill);
        str_clear(&l->control);
        str_clear(&l->ctl);
    }
}
