/* SPDX-License-Identifier: Apache-2.0 */
/* Connections through a bastion: an outer session to it, one channel to the target, and a thread that copies
 * between that channel and a socketpair, so that the inner session has an ordinary descriptor. At
 * most 8 handshakes at once go to one bastion (sshd's MaxStartups drops more). */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define HANDSHAKES 8
#define STACK_BYTES ((size_t)256 << 10)
#define CHUNK ((size_t)32 << 10)
#define TARGET_MS 30000 /* how long a target that refuses is retried over one outer session */

/* --- gates: a counting semaphore per bastion, as an eventfd so that a wait can be cancelled --- */

struct gate {
    char *where;
    int efd;
};
static pthread_mutex_t gates_lock = PTHREAD_MUTEX_INITIALIZER;
static VEC_OF(struct gate) gates; /* kept until ssh_global_exit; bastions are few */

static int gate_get(const char *where, int *ret_fd, struct gp_error *err) {
    int fd = -1, errnum = 0;
    pthread_mutex_lock(&gates_lock);
    for (size_t i = 0; i < gates.len && fd < 0; i++)
        if (strcmp(gates.items[i].where, where) == 0) fd = gates.items[i].efd;
    if (fd < 0) {
        fd = eventfd(HANDSHAKES, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
        errnum = errno;
        struct gate g = {.where = xstrdup(where), .efd = fd};
        if (fd >= 0) vec_push(&gates, g);
        else free(g.where);
    }
    pthread_mutex_unlock(&gates_lock);
    if (fd < 0) return gp_fail_errno(err, GP_EENV, errnum, "could not create an eventfd");
    *ret_fd = fd;
    return 0;
}

static int gate_enter(const struct ssh_attempt *a, int fd, struct gp_error *err) {
    for (;;) {
        uint64_t one = 0;
        if (read(fd, &one, sizeof one) == (ssize_t)sizeof one) return 0;
        struct gp_error waited = {0};
        int r = gp_wait_fd(fd, POLLIN, a->deadline_ms, a->cancel, NULL, &waited);
        if (r == 0) continue;
        if (r != -GP_ETIMEOUT) return gp_fail(err, waited.code, "%s", waited.msg);
        r = gp_fail(err, GP_EREACH, "too many connections to the bastion are in progress");
        if (err != NULL) err->retryable = true;
        return r;
    }
}

static void gate_leave(int fd) {
    uint64_t one = 1;
    ssize_t n = write(fd, &one, sizeof one);
    (void)n;
}

void ssh_gates_clear(void) {
    pthread_mutex_lock(&gates_lock);
    for (size_t i = 0; i < gates.len; i++) {
        close(gates.items[i].efd);
        free(gates.items[i].where);
    }
    vec_free(&gates);
    pthread_mutex_unlock(&gates_lock);
}

/* --- the pump --- */

struct ssh_tunnel {
    struct ssh_session *outer;
    LIBSSH2_CHANNEL *channel;
    int pair; /* the pump's end */
    int stop; /* eventfd */
    bool running;
    pthread_t thread;
    char up[CHUNK], down[CHUNK]; /* towards the target, towards the inner session */
    size_t up_off, up_len, down_off, down_len;
};

/* Copies from the inner session to the channel. False: finished. */
static bool pump_up(struct ssh_tunnel *t) {
    while (!t->outer->dead) {
        if (t->up_off == t->up_len) {
            ssize_t n = recv(t->pair, t->up, sizeof t->up, MSG_DONTWAIT);
            if (n < 0) return errno == EAGAIN || errno == EINTR;
            if (n == 0) return false;
            t->up_off = 0;
            t->up_len = (size_t)n;
        }
        if (!ssh_flushed(t->outer)) return true;
        ssize_t w = libssh2_channel_write(t->channel, t->up + t->up_off, t->up_len - t->up_off);
        if (w == LIBSSH2_ERROR_EAGAIN || w == 0) return true;
        if (w < 0) return false;
        t->up_off += (size_t)w;
    }
    return false;
}

/* Copies from the channel to the inner session. False: finished. */
static bool pump_down(struct ssh_tunnel *t) {
    for (;;) {
        if (t->down_off == t->down_len) {
            ssize_t n = libssh2_channel_read(t->channel, t->down, sizeof t->down);
            if (n == LIBSSH2_ERROR_EAGAIN) return !t->outer->dead;
            if (n <= 0) return false;
            t->down_off = 0;
            t->down_len = (size_t)n;
        }
        ssize_t w = send(t->pair, t->down + t->down_off, t->down_len - t->down_off, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (w < 0) return errno == EAGAIN || errno == EINTR;
        t->down_off += (size_t)w;
    }
}

static bool pump_wait(struct ssh_tunnel *t) {
    bool up_full = t->up_off < t->up_len, down_full = t->down_off < t->down_len;
    /* Reading may have widened the window that sending waited for. */
    if (up_full && ssh_flushed(t->outer) && libssh2_channel_window_write(t->channel) > 0) return true;
    ssh_quick_ack(t->outer);
    struct pollfd p[3] = {
        {.fd = t->outer->fd, .events = ssh_wait_events(t->outer)},
        {.fd = t->pair, .events = (short)((up_full ? 0 : POLLIN) | (down_full ? POLLOUT : 0))},
        {.fd = t->stop, .events = POLLIN},
    };
    if (poll(p, 3, -1) < 0) return errno == EINTR;
    if (p[2].revents != 0 || (p[1].revents & (POLLERR | POLLNVAL)) != 0) return false;
    /* The inner session closed and has no more data: the rest is not needed. */
    if ((p[1].revents & POLLHUP) != 0 && up_full) return false;
    ssh_flush(t->outer);
    return true;
}

static void *pump(void *arg) {
    struct ssh_tunnel *t = arg;
    while (pump_up(t) && pump_down(t) && pump_wait(t)) {
    }
    shutdown(t->pair, SHUT_RDWR); /* the inner session reads end of file */
    return NULL;
}

void ssh_tunnel_close(struct ssh_tunnel *t) {
    if (t == NULL) return;
    if (t->running) {
        uint64_t one = 1;
        ssize_t n = write(t->stop, &one, sizeof one);
        (void)n;
        pthread_join(t->thread, NULL);
    }
    ssh_close(t->outer); /* frees the channel */
    if (t->pair >= 0) close(t->pair);
    if (t->stop >= 0) close(t->stop);
    free(t);
}

static int pump_start(struct ssh_tunnel *t, int *ret_fd, struct gp_error *err) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create a socketpair");
    t->pair = pair[0];
    GP_AUTO_FD int inner = pair[1];
    t->stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (t->stop < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create an eventfd");
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    int r = pthread_create(&t->thread, &attr, pump, t);
    pthread_attr_destroy(&attr);
    if (r != 0) return gp_fail_errno(err, GP_EENV, r, "could not start a thread for the bastion");
    t->running = true;
    *ret_fd = inner;
    inner = -1;
    return 0;
}

/* --- opening --- */

static int outer_open(const struct ssh_attempt *a, struct ssh_session **ret, struct gp_error *err) {
    const struct ssh_target *b = a->target->bastion;
    GP_AUTO_FREE char *where = ssh_where(b->host, ssh_port(b));
    struct ssh_attempt outer = *a;
    outer.target = b;
    outer.where = where;
    int gate = -1;
    int r = gate_get(where, &gate, err);
    if (r == 0) r = gate_enter(a, gate, err);
    if (r != 0) return r;
    r = ssh_open_once(&outer, ret, err);
    gate_leave(gate);
    if (r != 0 && err != NULL && err->code != GP_ECANCELLED) return gp_wrap(err, "bastion");
    return r;
}

/* One attempt. -GP_EREACH retryable with detail TARGET: the bastion could not reach the target. */
static int channel_open(const struct ssh_attempt *a, struct ssh_tunnel *t, struct gp_error *err) {
    const struct ssh_target *to = a->target;
    LIBSSH2_SESSION *lib = t->outer->lib;
    int64_t limit = ssh_part_deadline(a, TARGET_MS);
    for (;;) {
        t->channel = libssh2_channel_direct_tcpip(lib, to->host, ssh_port(to));
        if (t->channel != NULL) return 0;
        if (libssh2_session_last_errno(lib) != LIBSSH2_ERROR_EAGAIN || t->outer->dead) break;
        struct gp_error waited = {0};
        int r = ssh_wait(t->outer, limit, a->cancel, &waited);
        if (r == 0) continue;
        t->outer->dead = true;
        if (r != -GP_ETIMEOUT) return gp_fail(err, waited.code, "%s", waited.msg);
        r = ssh_fail_detail(err, GP_EREACH, "TUNNEL", "the bastion %s did not connect to %s in time", t->outer->where,
                            a->where);
        if (err != NULL) err->retryable = true;
        return r;
    }
    char *words = NULL;
    int n = 0;
    libssh2_session_last_error(lib, &words, &n, 0);
    bool forbidden = words != NULL && strstr(words, "prohibited") != NULL;
    int r = t->outer->dead ? ssh_fail_detail(err, GP_EREACH, "TUNNEL", "lost the connection to the bastion %s (%s)",
                                             t->outer->where, ssh_lost_why(t->outer))
            : forbidden    ? ssh_fail_detail(err, GP_EREACH, "FORWARDING",
                                             "the bastion %s does not allow connections to %s: check "
                                                "AllowTcpForwarding and PermitOpen in its sshd_config",
                                             t->outer->where, a->where)
                           : ssh_fail_detail(err, GP_EREACH, "TARGET",
                                             "the bastion %s could not connect to %s: check that sshd is running there",
                                             t->outer->where, a->where);
    if (err != NULL) err->retryable = !forbidden;
    return r;
}

int ssh_tunnel_open(const struct ssh_attempt *a, struct ssh_tunnel **ret, int *ret_fd, struct gp_error *err) {
    struct ssh_tunnel *t = xcalloc(1, sizeof *t);
    t->pair = t->stop = -1;
    int r = outer_open(a, &t->outer, err);
    int64_t limit = ssh_part_deadline(a, TARGET_MS), pause = 200;
    while (r == 0) {
        struct gp_error why = {0};
        r = channel_open(a, t, &why);
        if (r == 0) break;
        bool again = strcmp(why.detail, "TARGET") == 0 && clock_left_ms(limit) > pause;
        if (again && a->waiting != NULL) a->waiting(a->ctx, ssh_reason(&why));
        if (again && gp_sleep(pause, a->cancel, NULL) == 0) {
            pause = GP_MIN(pause * 2, (int64_t)2000);
            r = 0;
            continue;
        }
        if (err != NULL) *err = why;
    }
    if (r == 0) r = pump_start(t, ret_fd, err);
    if (r != 0) {
        ssh_tunnel_close(t);
        return r;
    }
    *ret = t;
    return 0;
}
