/* SPDX-License-Identifier: Apache-2.0 */
/* TCP connections that never block. Names are looked up in a thread of their own, because a resolver
 * that hangs obeys neither a deadline nor a cancellation; the thread is detached then and ends by
 * itself. Sends no data. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_MS 5000 /* per address; a fresh attempt sends a fresh SYN */
#define LOOKUP_MS 20000
#define USER_TIMEOUT_MS 30000

struct lookup {
    atomic_int refs; /* the caller's and the thread's */
    atomic_int done;
    int efd;
    char *host, *port;
    int rc;
    struct addrinfo *found;
};

static void lookup_unref(struct lookup *l) {
    if (atomic_fetch_sub(&l->refs, 1) != 1) return;
    if (l->found != NULL) freeaddrinfo(l->found);
    close(l->efd);
    free(l->host);
    free(l->port);
    free(l);
}

static void lookup_cleanup(struct lookup **l) {
    if (*l != NULL) lookup_unref(*l);
}

static int lookup_now(struct lookup *l, int flags) {
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    return getaddrinfo(l->host, l->port, &hints, &l->found);
}

static void *lookup_thread(void *arg) {
    struct lookup *l = arg;
    l->rc = lookup_now(l, AI_ADDRCONFIG);
    atomic_store(&l->done, 1);
    uint64_t one = 1;
    ssize_t n = write(l->efd, &one, sizeof one);
    (void)n;
    lookup_unref(l);
    return NULL;
}

static int lookup_start(struct lookup *l, struct gp_error *err) {
    pthread_attr_t attr;
    pthread_t thread = 0;
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, 512 * 1024);
    atomic_fetch_add(&l->refs, 1);
    int r = pthread_create(&thread, &attr, lookup_thread, l);
    pthread_attr_destroy(&attr);
    if (r == 0) return 0;
    atomic_fetch_sub(&l->refs, 1);
    return gp_fail_errno(err, GP_EENV, r, "could not start a thread to look up '%s'", l->host);
}

static int lookup_result(const struct lookup *l, struct gp_error *err) {
    if (l->rc == 0) return 0;
    int r = gp_fail(err, GP_EREACH, "could not look up '%s': %s; check the name, or give an address", l->host,
                    gai_strerror(l->rc));
    if (err != NULL) {
        err->retryable = l->rc == EAI_AGAIN || l->rc == EAI_SYSTEM;
        str_put(err->detail, sizeof err->detail, "DNS");
    }
    return r;
}

static int lookup_host(const struct ssh_attempt *a, const char *host, uint16_t port, struct lookup **ret,
                       struct gp_error *err) {
    struct lookup *l = xcalloc(1, sizeof *l);
    GP_CLEANUP(lookup_cleanup) struct lookup *own = l;
    atomic_init(&l->refs, 1);
    atomic_init(&l->done, 0);
    l->efd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    l->host = xstrdup(host);
    l->port = xasprintf("%u", (unsigned)port);
    if (l->efd < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create an eventfd");
    l->rc = lookup_now(l, AI_NUMERICHOST);
    if (l->rc != 0) {
        int r = lookup_start(l, err);
        if (r != 0) return r;
        struct gp_error waited = {0};
        r = gp_wait_fd(l->efd, POLLIN, ssh_part_deadline(a, LOOKUP_MS), a->cancel, NULL, &waited);
        if (atomic_load(&l->done) == 0 && r == -GP_ETIMEOUT) {
            r = gp_fail(err, GP_EREACH, "the name server did not answer for '%s'", host);
            if (err != NULL) err->retryable = true;
            return r;
        }
        if (atomic_load(&l->done) == 0) return gp_fail(err, waited.code, "%s", waited.msg);
        r = lookup_result(l, err);
        if (r != 0) return r;
    }
    *ret = GP_STEAL(own);
    return 0;
}

void ssh_tune_tcp(int fd) {
    /* All options are optional: a kernel that refuses one still connects. */
    int one = 1, idle = 10, every = 5, count = 4;
    unsigned user_timeout = USER_TIMEOUT_MS;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout, sizeof user_timeout);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

static const char *connect_advice(int errnum) {
    switch (errnum) {
    case ECONNREFUSED: return "nothing listens there (yet): check that sshd is running and that the port is right";
    case ETIMEDOUT: return "no answer: check that the machine is up and that no firewall drops the packets";
    case EHOSTUNREACH:
    case ENETUNREACH: return "no route: check that the machine is up and that this network is connected";
    default: return "check the address and the network";
    }
}

static int connect_failed(const char *where, int errnum, struct gp_error *err) {
    bool local = errnum == EMFILE || errnum == ENFILE || errnum == ENOBUFS || errnum == ENOMEM;
    int r = gp_fail_errno(err, local ? GP_EENV : GP_EREACH, errnum, "could not connect to %s", where);
    if (err != NULL && !local) {
        size_t n = strlen(err->msg);
        snprintf(err->msg + n, sizeof err->msg - n, " (%s)", connect_advice(errnum));
        err->retryable = true;
    }
    return r;
}

static int connect_address(const struct ssh_attempt *a, const struct addrinfo *ai, int *ret_fd, struct gp_error *err) {
    GP_AUTO_FD int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) return connect_failed(a->where, errno, err);
    ssh_tune_tcp(fd);
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) != 0) {
        if (errno != EINPROGRESS) return connect_failed(a->where, errno, err);
        struct gp_error waited = {0};
        int r = gp_wait_fd(fd, POLLOUT, ssh_part_deadline(a, CONNECT_MS), a->cancel, NULL, &waited);
        if (r == -GP_ETIMEOUT) return connect_failed(a->where, ETIMEDOUT, err);
        if (r != 0) return gp_fail(err, waited.code, "%s", waited.msg);
        int soerr = 0;
        socklen_t len = sizeof soerr;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &soerr, &len) != 0) soerr = errno;
        if (soerr != 0) return connect_failed(a->where, soerr, err);
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

int ssh_connect(const struct ssh_attempt *a, const char *host, uint16_t port, int *ret_fd, struct gp_error *err) {
    GP_CLEANUP(lookup_cleanup) struct lookup *l = NULL;
    int r = lookup_host(a, host, port, &l, err);
    if (r != 0) return r;
    struct gp_error first = {0};
    for (const struct addrinfo *ai = l != NULL ? l->found : NULL; ai != NULL; ai = ai->ai_next) {
        struct gp_error why = {0};
        r = connect_address(a, ai, ret_fd, &why);
        if (r == 0) return 0;
        if (r != -GP_EREACH || first.code == GP_OK) first = why;
        if (r != -GP_EREACH || clock_left_ms(a->deadline_ms) == 0) break;
    }
    if (first.code == GP_OK) return gp_fail(err, GP_EREACH, "'%s' has no address", host);
    if (err != NULL) *err = first;
    return -(int)first.code;
}
