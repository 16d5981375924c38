/* SPDX-License-Identifier: Apache-2.0 */
/* A client of ssh-agent: lists and signs. libssh2's client blocks on the agent's socket, and an
 * agent may hang or prompt its user; this one obeys deadlines and cancellation. Any thread. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REQUEST_IDENTITIES = 11, IDENTITIES_ANSWER = 12, SIGN_REQUEST = 13, SIGN_RESPONSE = 14 };
enum { SIGN_SHA256 = 2, SIGN_SHA512 = 4 };
#define ANSWER_MAX ((uint32_t)256 << 10)

static int agent_io(struct ssh_agent *a, bool writing, void *buf, size_t n, struct gp_error *err) {
    char *p = buf;
    while (n > 0) {
        ssize_t did = writing ? send(a->fd, p, n, MSG_NOSIGNAL) : recv(a->fd, p, n, 0);
        if (did > 0) {
            p += did;
            n -= (size_t)did;
            continue;
        }
        if (did == 0) return gp_fail(err, GP_ELOST, "ssh-agent closed the connection");
        if (errno == EINTR) continue;
        if (errno != EAGAIN) return gp_fail_errno(err, GP_ELOST, errno, "the connection to ssh-agent failed");
        struct gp_error waited = {0};
        int r = gp_wait_fd(a->fd, writing ? POLLOUT : POLLIN, a->deadline_ms, a->cancel, NULL, &waited);
        if (r == -GP_ETIMEOUT) return gp_fail(err, GP_ETIMEOUT, "ssh-agent did not answer in time");
        if (r != 0) return gp_fail(err, waited.code, "%s", waited.msg);
    }
    return 0;
}

/* Sends one request, reads one answer: its type and the rest. */
static int agent_call(struct ssh_agent *a, const struct str *request, unsigned char want, struct str *answer,
                      struct gp_error *err) {
    GP_AUTO_STR struct str out = {0};
    ssh_put_string(&out, request->s, request->len);
    int r = agent_io(a, true, out.s, out.len, err);
    unsigned char head[4];
    if (r == 0) r = agent_io(a, false, head, sizeof head, err);
    if (r != 0) return r;
    const unsigned char *p = head;
    uint32_t n = 0;
    ssh_read_u32(&p, head + 4, &n);
    if (n == 0 || n > ANSWER_MAX) return gp_fail(err, GP_EPROTO, "ssh-agent sent a malformed answer");
    GP_AUTO_FREE char *body = xmalloc(n);
    r = agent_io(a, false, body, n, err);
    if (r != 0) return r;
    if ((unsigned char)body[0] != want)
        return gp_fail(err, GP_EAUTH, "ssh-agent refused the request: check with 'ssh-add -l' whether it is locked");
    str_add_mem(answer, body + 1, n - 1);
    return 0;
}

static int agent_list(struct ssh_agent *a, struct gp_error *err) {
    GP_AUTO_STR struct str ask = {0}, answer = {0};
    str_addc(&ask, (char)REQUEST_IDENTITIES);
    int r = agent_call(a, &ask, IDENTITIES_ANSWER, &answer, err);
    if (r != 0) return r;
    const unsigned char *p = (const unsigned char *)answer.s, *end = p + answer.len;
    uint32_t n = 0;
    bool ok = ssh_read_u32(&p, end, &n) && n <= 4096;
    for (uint32_t i = 0; ok && i < n; i++) {
        const unsigned char *blob = NULL, *comment = NULL, *type = NULL;
        size_t blob_n = 0, comment_n = 0, type_n = 0;
        ok = ssh_read_string(&p, end, &blob, &blob_n) && ssh_read_string(&p, end, &comment, &comment_n);
        const unsigned char *b = blob;
        if (!ok || !ssh_read_string(&b, blob + blob_n, &type, &type_n)) break;
        struct ssh_agent_key key = {.type = xstrndup((const char *)type, type_n),
                                    .comment = xstrndup((const char *)comment, comment_n)};
        str_add_mem(&key.blob, blob, blob_n);
        vec_push(&a->keys, key);
    }
    return ok ? 0 : gp_fail(err, GP_EPROTO, "ssh-agent sent a malformed list of keys");
}

int ssh_agent_open(struct ssh_agent *a, int64_t deadline_ms, const struct gp_cancel *cancel, struct gp_error *err) {
    const char *path = getenv("SSH_AUTH_SOCK");
    if (path == NULL || path[0] == '\0')
        return gp_fail(err, GP_ENOTFOUND, "no ssh-agent is running (SSH_AUTH_SOCK is not set)");
    a->deadline_ms = deadline_ms;
    a->cancel = cancel;
    struct gp_error why = {0};
    if (ssh_unix_connect(path, "ssh-agent", &a->fd, &why) != 0) return gp_fail(err, GP_ENOTFOUND, "%s", why.msg);
    return agent_list(a, err);
}

void ssh_agent_close(struct ssh_agent *a) {
    if (a->fd >= 0) close(a->fd);
    a->fd = -1;
    for (size_t i = 0; i < a->keys.len; i++) {
        str_clear(&a->keys.items[i].blob);
        free(a->keys.items[i].type);
        free(a->keys.items[i].comment);
    }
    vec_free(&a->keys);
}

static uint32_t sign_flags(const char *algorithm) {
    if (strcmp(algorithm, "rsa-sha2-256") == 0) return SIGN_SHA256;
    return strcmp(algorithm, "rsa-sha2-512") == 0 ? SIGN_SHA512 : 0;
}

int ssh_agent_sign(struct ssh_agent *a, const struct ssh_agent_key *key, const unsigned char *data, size_t n,
                   struct str *ret_sig, struct gp_error *err) {
    char name[64] = "";
    ssh_sign_algorithm(data, n, name, sizeof name);
    return ssh_agent_sign_as(a, key, name, data, n, ret_sig, NULL, err);
}

int ssh_agent_sign_as(struct ssh_agent *a, const struct ssh_agent_key *key, const char *algorithm,
                      const unsigned char *data, size_t n, struct str *ret_sig, char **ret_algorithm,
                      struct gp_error *err) {
    GP_AUTO_STR struct str ask = {0}, answer = {0};
    str_addc(&ask, (char)SIGN_REQUEST);
    ssh_put_string(&ask, key->blob.s, key->blob.len);
    ssh_put_string(&ask, data, n);
    ssh_put_u32(&ask, sign_flags(algorithm));
    int r = agent_call(a, &ask, SIGN_RESPONSE, &answer, err);
    if (r != 0) return r;
    const unsigned char *p = (const unsigned char *)answer.s, *end = p + answer.len;
    const unsigned char *whole = NULL, *part = NULL;
    size_t whole_n = 0, part_n = 0;
    if (!ssh_read_string(&p, end, &whole, &whole_n) || !ssh_read_string(&whole, whole + whole_n, &part, &part_n))
        return gp_fail(err, GP_EPROTO, "ssh-agent sent a malformed signature");
    GP_AUTO_FREE char *used = xstrndup((const char *)part, part_n);
    const unsigned char *sig_end = (const unsigned char *)answer.s + 4 + whole_n;
    if (!ssh_read_string(&whole, sig_end, &part, &part_n))
        return gp_fail(err, GP_EPROTO, "ssh-agent sent a malformed signature");
    str_add_mem(ret_sig, part, part_n);
    if (ret_algorithm != NULL) *ret_algorithm = GP_STEAL(used);
    return 0;
}

int ssh_agent_public(char **ret_line, struct gp_error *err) {
    GP_AUTO_SSH_AGENT struct ssh_agent a = {.fd = -1};
    struct gp_error why = {0};
    int r = ssh_agent_open(&a, clock_deadline(5000), NULL, &why);
    if (r != 0) return gp_fail(err, GP_ENOTFOUND, "%s", why.msg);
    for (size_t i = 0; i < a.keys.len; i++) {
        if (ssh_keytype_usable("", a.keys.items[i].type, NULL) != 0) continue;
        char *line = ssh_blob_line(a.keys.items[i].blob.s, a.keys.items[i].blob.len);
        if (line == NULL) continue;
        *ret_line = line;
        return 0;
    }
    return gp_fail(err, GP_ENOTFOUND,
                   a.keys.len == 0 ? "ssh-agent holds no key (ssh-add adds one)"
                                   : "ssh-agent holds no key that can be used; add an ed25519 one");
}
