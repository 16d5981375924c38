/* SPDX-License-Identifier: Apache-2.0 */
/* A session's transport and life: the bytes between libssh2 and the descriptor, waiting, one attempt
 * to open (connect, handshake, host key, login) and a close that cannot block. open.c retries.
 * One session belongs to one thread at a time. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#define BANNER_MS 15000
#define HANDSHAKE_MS 45000
#define OUT_MAX ((size_t)1 << 20)
#define EARLY_MAX ((size_t)256 << 10)
#define GOODBYE_MS 100

int64_t ssh_part_deadline(const struct ssh_attempt *a, int64_t ms) {
    return GP_MIN(a->deadline_ms, clock_deadline(ms));
}

static void lost(struct ssh_session *s, int errnum) {
    if (!s->dead) s->lost_errno = errnum;
    s->dead = true;
}

static ssize_t transport_recv(libssh2_socket_t fd, void *buffer, size_t length, int flags, void **abstract) {
    struct ssh_session *s = *abstract;
    if (s->dead) return -ECONNRESET;
    ssize_t n = recv(fd, buffer, length, flags);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return -EAGAIN;
    if (n <= 0) {
        lost(s, n < 0 ? errno : 0);
        return -ECONNRESET;
    }
    s->heard_ms = clock_ms();
    if (!s->ready && (s->early_bytes += (size_t)n) > EARLY_MAX) {
        lost(s, EMSGSIZE);
        return -ECONNRESET;
    }
    return n;
}

static ssize_t transport_send(libssh2_socket_t fd, const void *buffer, size_t length, int flags, void **abstract) {
    struct ssh_session *s = *abstract;
    (void)flags;
    if (s->dead) return -EPIPE;
    if (s->out.len - s->out_off + length > OUT_MAX) return -EAGAIN;
    size_t sent = 0;
    if (ssh_flushed(s)) {
        ssize_t n = send(fd, buffer, length, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            lost(s, errno);
            return -EPIPE;
        }
        sent = n > 0 ? (size_t)n : 0;
    }
    if (sent < length) str_add_mem(&s->out, (const char *)buffer + sent, length - sent);
    return (ssize_t)length;
}

bool ssh_flushed(const struct ssh_session *s) { return s->out_off == s->out.len; }

void ssh_flush(struct ssh_session *s) {
    while (!s->dead && !ssh_flushed(s)) {
        ssize_t n = send(s->fd, s->out.s + s->out_off, s->out.len - s->out_off, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n < 0) {
            lost(s, errno);
            break;
        }
        s->out_off += (size_t)n;
    }
    if (ssh_flushed(s)) {
        str_reset(&s->out);
        s->out_off = 0;
    }
}

void ssh_quick_ack(const struct ssh_session *s) {
    /* Not sticky: the kernel falls back to delaying, and sshd without a terminal keeps Nagle on, so
     * that every small answer would wait 40 ms. */
    int one = 1;
    if (s->tcp) setsockopt(s->fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one);
}

short ssh_wait_events(const struct ssh_session *s) { return (short)(ssh_flushed(s) ? POLLIN : POLLIN | POLLOUT); }

int ssh_wait(struct ssh_session *s, int64_t deadline_ms, const struct gp_cancel *cancel, struct gp_error *err) {
    ssh_quick_ack(s);
    int r = gp_wait_fd(s->fd, ssh_wait_events(s), deadline_ms, cancel, NULL, err);
    if (r == 0) ssh_flush(s);
    return r;
}

const char *ssh_lost_why(const struct ssh_session *s) {
    switch (s->lost_errno) {
    case 0: return "closed by the other side";
    case ECONNRESET: return "connection reset";
    case EPIPE: return "broken pipe";
    case ETIMEDOUT: return "no answer for 30 s";
    case EMSGSIZE: return "the other side sent too much before the login";
    case EHOSTUNREACH:
    case ENETUNREACH: return "no route";
    default: return "network error";
    }
}

int ssh_fail_detail(struct gp_error *err, enum gp_code code, const char *detail, const char *fmt, ...) {
    if (err == NULL) return -(int)code;
    char msg[GP_ERROR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    int r = gp_fail(err, code, "%s", msg);
    err->domain = GP_D_SSH;
    str_put(err->detail, sizeof err->detail, detail);
    return r;
}

int ssh_fail_lib(struct ssh_session *s, struct gp_error *err, enum gp_code code, const char *fmt, ...) {
    if (err == NULL) return -(int)code;
    char msg[GP_ERROR_MSG_MAX], *words = NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    int n = 0;
    libssh2_session_last_error(s->lib, &words, &n, 0);
    int r = gp_fail(err, code, "%s: %.*s", msg, n, words != NULL ? words : "");
    err->domain = GP_D_SSH;
    return r;
}

/* libssh2 takes its callbacks as untyped pointers up to 1.11.0. */
static void set_callbacks(LIBSSH2_SESSION *lib) {
#if LIBSSH2_VERSION_NUM >= 0x010b01
    libssh2_session_callback_set2(lib, LIBSSH2_CALLBACK_RECV, (libssh2_cb_generic *)transport_recv);
    libssh2_session_callback_set2(lib, LIBSSH2_CALLBACK_SEND, (libssh2_cb_generic *)transport_send);
#else
    ssize_t (*in)(libssh2_socket_t, void *, size_t, int, void **) = transport_recv;
    ssize_t (*out)(libssh2_socket_t, const void *, size_t, int, void **) = transport_send;
    void *p = NULL;
    memcpy(&p, &in, sizeof p);
    libssh2_session_callback_set(lib, LIBSSH2_CALLBACK_RECV, p);
    memcpy(&p, &out, sizeof p);
    libssh2_session_callback_set(lib, LIBSSH2_CALLBACK_SEND, p);
#endif
}

int ssh_prefer(struct ssh_session *s, int method, const char *list, struct gp_error *err) {
    /* Only what this libssh2 knows is passed on: 1.10 takes unknown names out of the list with a
     * memcpy that overlaps itself. */
    const char **known = NULL;
    int n = libssh2_session_supported_algs(s->lib, method, &known);
    GP_AUTO_STRV struct strv want = {0};
    GP_AUTO_STR struct str have = {0};
    strv_split(&want, list, ",");
    for (size_t w = 0; w < want.n; w++)
        for (int i = 0; i < n; i++)
            if (strcmp(want.v[w], known[i]) == 0) str_addf(&have, "%s%s", have.len > 0 ? "," : "", known[i]);
    if (known != NULL) libssh2_free(s->lib, known);
    if (have.len == 0 || libssh2_session_method_pref(s->lib, method, have.s) != 0)
        return gp_fail(err, GP_EENV, "libssh2 %s has none of: %s", libssh2_version(0), list);
    return 0;
}

static const char ciphers[] = "aes128-ctr,aes256-ctr,aes192-ctr,aes128-gcm@openssh.com,"
                              "aes256-gcm@openssh.com,chacha20-poly1305@openssh.com";

static struct ssh_session *session_new(const struct ssh_attempt *a, int fd, struct gp_error *err) {
    struct ssh_session *s = xcalloc(1, sizeof *s);
    s->fd = fd;
    s->label = xstrdup(a->target->label != NULL ? a->target->label : a->where);
    s->where = xstrdup(a->where);
    s->heard_ms = clock_ms();
    str_init(&s->out, 2 * OUT_MAX);
    s->lib = libssh2_session_init_ex(NULL, NULL, NULL, s);
    if (s->lib == NULL) {
        gp_fail(err, GP_EENV, "libssh2 could not create a session");
        ssh_close(s);
        return NULL;
    }
    libssh2_session_set_blocking(s->lib, 0);
    set_callbacks(s->lib);
    int domain = 0;
    socklen_t n = sizeof domain;
    s->tcp = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) == 0 && domain != AF_UNIX;
    if (s->tcp) ssh_tune_tcp(fd);
    if (ssh_prefer(s, LIBSSH2_METHOD_CRYPT_CS, ciphers, err) == 0 &&
        ssh_prefer(s, LIBSSH2_METHOD_CRYPT_SC, ciphers, err) == 0)
        return s;
    ssh_close(s);
    return NULL;
}

static int retryable(struct gp_error *err, int r) {
    if (err != NULL) err->retryable = true;
    return r;
}

/* The other side has sent an SSH banner. */
static bool greeted(const struct ssh_session *s) {
    const char *banner = libssh2_session_banner_get(s->lib);
    return banner != NULL && str_starts(banner, "SSH-");
}

static int handshake_failed(const struct ssh_attempt *a, struct ssh_session *s, int lib_rc, struct gp_error *err) {
    if (s->dead && !greeted(s))
        return retryable(err, ssh_fail_detail(err, GP_EREACH, "BANNER",
                                              "%s accepted the connection but sent no SSH banner (%s)", a->where,
                                              ssh_lost_why(s)));
    if (s->dead)
        return retryable(err, ssh_fail_detail(err, GP_EREACH, "HANDSHAKE",
                                              "lost the connection to %s during the handshake (%s)", a->where,
                                              ssh_lost_why(s)));
    if (lib_rc == LIBSSH2_ERROR_KEX_FAILURE || lib_rc == LIBSSH2_ERROR_KEY_EXCHANGE_FAILURE)
        return ssh_fail_detail(err, GP_EREACH, "KEX",
                               "%s and libssh2 %s have no algorithms in common: a server with only an "
                               "RSA host key needs libssh2 1.11, or an ed25519 key of its own "
                               "(ssh-keygen -A there)",
                               a->where, libssh2_version(0));
    return retryable(err, ssh_fail_lib(s, err, GP_EREACH, "the handshake with %s failed", a->where));
}

static int handshake(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err) {
    int64_t start = clock_ms();
    for (;;) {
        int rc = libssh2_session_handshake(s->lib, s->fd);
        if (rc == 0) return 0;
        if (rc != LIBSSH2_ERROR_EAGAIN) return handshake_failed(a, s, rc, err);
        bool banner = greeted(s);
        int64_t limit = start + (banner ? HANDSHAKE_MS : BANNER_MS);
        struct gp_error waited = {0};
        int r = ssh_wait(s, GP_MIN(limit, a->deadline_ms), a->cancel, &waited);
        if (r == 0) continue;
        s->dead = true;
        /* Called again: libssh2 frees the key exchange's memory only when that call itself fails. */
        libssh2_session_handshake(s->lib, s->fd);
        if (r != -GP_ETIMEOUT) return gp_fail(err, waited.code, "%s", waited.msg);
        long long took = (long long)(clock_ms() - start);
        return retryable(err, ssh_fail_detail(err, GP_EREACH, banner ? "HANDSHAKE" : "BANNER",
                                              banner ? "%s did not finish the SSH handshake in %lld ms"
                                                     : "%s accepts connections but sent no SSH banner in %lld ms: "
                                                       "check that sshd listens there",
                                              a->where, took));
    }
}

int ssh_open_once(const struct ssh_attempt *a, struct ssh_session **ret, struct gp_error *err) {
    const struct ssh_target *t = a->target;
    GP_AUTO_FD int fd = -1;
    struct ssh_tunnel *tunnel = NULL;
    int r = t->bastion != NULL ? ssh_tunnel_open(a, &tunnel, &fd, err)
            : t->dial_socket != NULL
                ? ssh_dial(t->dial_socket, t->host, ssh_port(t), a->deadline_ms, a->cancel, &fd, err)
                : ssh_connect(a, t->host, ssh_port(t), &fd, err);
    if (r != 0) return r;
    int own = fd;
    fd = -1;
    struct ssh_session *made = session_new(a, own, err);
    if (made == NULL) {
        ssh_tunnel_close(tunnel);
        return -(int)GP_EENV;
    }
    GP_AUTO_SSH struct ssh_session *s = made;
    s->tunnel = tunnel;
    r = ssh_hostkey_prefer(a, s, err);
    if (r == 0) r = handshake(a, s, err);
    if (r == 0) r = ssh_hostkey_check(a, s, err);
    if (r == 0) r = ssh_login(a, s, err);
    if (r != 0) return r;
    s->ready = true;
    libssh2_keepalive_config(s->lib, 1, 5);
    log_trace(LOG_SSH, "%s: logged in at %s", s->label, s->where);
    *ret = GP_STEAL(s);
    return 0;
}

void ssh_close(struct ssh_session *s) {
    if (s == NULL) return;
    int64_t limit = clock_deadline(GOODBYE_MS);
    if (s->lib != NULL && s->ready && !s->dead) {
        libssh2_session_disconnect(s->lib, "done");
        while (!s->dead && !ssh_flushed(s)) {
            struct gp_error waited = {0};
            if (gp_wait_fd(s->fd, POLLOUT, limit, NULL, NULL, &waited) != 0) break;
            ssh_flush(s);
        }
    }
    s->dead = true; /* from here on every call of libssh2 fails at once instead of waiting */
    if (s->lib != NULL)
        for (int tries = 0; libssh2_session_free(s->lib) == LIBSSH2_ERROR_EAGAIN && tries < 100;) tries++;
    if (s->fd >= 0) close(s->fd);
    ssh_tunnel_close(s->tunnel);
    str_clear(&s->out);
    free(s->label);
    free(s->where);
    free(s->host_key);
    free(s);
}

void ssh_cleanup(struct ssh_session **s) {
    ssh_close(*s);
    *s = NULL;
}

const char *ssh_host_key(const struct ssh_session *s) { return s->host_key; }
