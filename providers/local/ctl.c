/* SPDX-License-Identifier: Apache-2.0 */
/* The holder's control socket, one request line per connection:
 *   dial HOST PORT   ok + a connected descriptor, or error TEXT
 *   list             {"nodes": [...]}
 *   create JSON      {"nodes": [...]} once every slot of the gang runs, or {"code": N, "error": TEXT}
 *   end ID           ok
 *   save ID RECORD   ok, or {"code": N, "error": TEXT}: ends the node and keeps its files as an image (save.c)
 * Only the holder's one thread runs this; nothing here blocks. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "providers/local/local_claim.h"
#include "providers/local/ns/netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define REQUEST_MAX ((size_t)64 << 10)
#define REQUEST_MS 10000
#define DIAL_MS 5000
#define CREATE_MS 20000
#define CLIENTS_MAX 2048

int ctl_listen(struct holder *h, struct gp_error *err) {
    /* a name relative to the stack's folder, so that its path may be longer than sun_path */
    struct sockaddr_un sa = {.sun_family = AF_UNIX, .sun_path = "ctl"};
    h->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(077);
    int r = h->listen_fd < 0 ? -1 : bind(h->listen_fd, (const struct sockaddr *)&sa, sizeof sa);
    int e = errno;
    umask(before);
    if (r == 0 && listen(h->listen_fd, 512) == 0) return 0;
    return gp_fail_errno(err, GP_EIO, r == 0 ? errno : e, "could not create '%s/ctl'", h->cfg.dir);
}

void ctl_accept(struct holder *h) {
    while (h->clients.len < CLIENTS_MAX) {
        int fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) return;
        struct holder_client *c = xcalloc(1, sizeof *c);
        c->fd = fd;
        c->dial_fd = -1;
        c->save_fd = -1;
        c->in.max = REQUEST_MAX;
        c->deadline_ms = clock_deadline(REQUEST_MS);
        vec_push(&h->clients, c);
    }
}

void ctl_wait(const struct holder_client *c, int *ret_fd, short *ret_events) {
    *ret_fd = c->dial_fd >= 0 ? c->dial_fd : c->fd;
    *ret_events = c->dial_fd >= 0 || c->out.len > 0 ? POLLOUT : POLLIN;
    if (c->creating) *ret_fd = -1; /* woken by the nodes' own descriptors */
    if (c->save_fd >= 0) *ret_fd = c->save_fd;
    if (c->save_fd >= 0) *ret_events = POLLIN;
}

static void say(struct holder_client *c, const char *text) {
    str_add(&c->out, text);
    c->done = true;
}

static void say_error(struct holder_client *c, const char *text) {
    str_addf(&c->out, "error %s\n", text);
    c->done = true;
}

static void say_json(struct holder_client *c, json_t *j) {
    GP_AUTO_FREE char *text = json_text(j, 0);
    json_decref(j);
    str_addf(&c->out, "%s\n", text);
    c->done = true;
}

static void say_failure(struct holder_client *c, const struct gp_error *err) {
    say_json(c, json_pack("{s:i, s:s}", "code", (int)err->code, "error", err->msg));
}

/* --- dial --- */

static void hand_over(struct holder_client *c) {
    (void)fs_send_fd(c->fd, "ok\n", 3, c->dial_fd);
    close(c->dial_fd);
    c->dial_fd = -1;
    c->done = true;
}

static void dial_failed(struct holder_client *c, const char *why) {
    if (c->dial_fd >= 0) close(c->dial_fd);
    c->dial_fd = -1;
    say_error(c, why);
}

static void dial_start(struct holder *h, struct holder_client *c, const char *host, int64_t port) {
    struct local_node *n = NULL;
    for (size_t i = 0; i < h->nodes.len; i++) {
        struct local_node *o = h->nodes.items[i];
        if (o->state != LOCAL_ENDED && (strcmp(o->ip, host) == 0 || strcmp(o->name, host) == 0)) n = o;
    }
    if (n == NULL) {
        say_error(c, "no node has this address");
        return;
    }
    if (n->state == LOCAL_OFF || n->state == LOCAL_FAILED) {
        say_error(c, n->state == LOCAL_OFF ? "the node is powered off" : n->why);
        return;
    }
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    inet_aton(n->ip, &to.sin_addr);
    c->dial_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    c->deadline_ms = clock_deadline(DIAL_MS);
    if (c->dial_fd < 0) {
        dial_failed(c, strerror(errno));
        return;
    }
    setsockopt(c->dial_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(c->dial_fd, (const struct sockaddr *)&to, sizeof to) == 0) hand_over(c);
    else if (errno != EINPROGRESS) dial_failed(c, strerror(errno));
}

static void dial_step(struct holder_client *c) {
    struct pollfd p = {.fd = c->dial_fd, .events = POLLOUT};
    if (poll(&p, 1, 0) != 1) {
        if (clock_left_ms(c->deadline_ms) == 0) dial_failed(c, "connection timed out");
        return;
    }
    int e = 0;
    socklen_t n = sizeof e;
    if (getsockopt(c->dial_fd, SOL_SOCKET, SO_ERROR, &e, &n) != 0) e = errno;
    if (e == 0) hand_over(c);
    else dial_failed(c, strerror(e));
}

/* --- create --- */

static void create_start(struct holder *h, struct holder_client *c, const char *text) {
    GP_AUTO_JSON json_t *req = NULL;
    struct gp_error err = {0};
    int r = json_parse(text, strlen(text), "the create request", &req, &err);
    if (r == 0) r = nodes_create(h, req, &err);
    if (r != 0) {
        say_failure(c, &err);
        return;
    }
    c->creating = true;
    c->slot_first = (int)json_int(req, "slot_first", 0);
    c->slot_count = (int)json_int(req, "slot_count", 0);
    c->deadline_ms = clock_deadline(CREATE_MS);
}

/* All or none: one node that cannot be set up ends its whole gang. */
static void create_failed(struct holder *h, struct holder_client *c, const char *why) {
    struct gp_error err = {0};
    gp_fail(&err, GP_EENV, "%s", why);
    for (int s = c->slot_first; s < c->slot_first + c->slot_count; s++) {
        struct local_node *n = nodes_at(h, s);
        if (n != NULL) nodes_end(h, n);
    }
    c->creating = false;
    say_failure(c, &err);
}

static void create_step(struct holder *h, struct holder_client *c) {
    bool all = true;
    char why[400];
    for (int s = c->slot_first; s < c->slot_first + c->slot_count; s++) {
        struct local_node *n = nodes_at(h, s);
        if (n == NULL || n->state == LOCAL_FAILED) {
            snprintf(why, sizeof why, "node %d: %s", s, n ? n->why : "was destroyed meanwhile");
            create_failed(h, c, why);
            return;
        }
        if (n->state == LOCAL_STARTING) all = false;
    }
    if (all) {
        c->creating = false;
        say_json(c, json_pack("{s:o}", "nodes", nodes_json(h)));
    } else if (clock_left_ms(c->deadline_ms) == 0) {
        create_failed(h, c, "the nodes took longer than 20 s to start: check the load of the machine");
    }
}

/* --- save --- */

static void save_start(struct holder *h, struct holder_client *c, const char *text) {
    struct gp_error err = {0};
    GP_AUTO_FREE char *id = xstrndup(text, strcspn(text, " "));
    const char *record = text + strlen(id);
    struct local_node *n = nodes_by_id(h, id);
    int r = n != NULL ? nodes_save(h, n, record + (*record == ' '), &c->save_fd, &err)
                      : gp_fail(&err, GP_ENOTFOUND, "there is no node '%.100s'", id);
    if (r != 0) say_failure(c, &err);
    str_reset(&c->in);
}

/* What the saving process reports is collected in c->in, which nothing else uses by now. */
static void save_step(struct holder_client *c) {
    char buf[512];
    struct pollfd p = {.fd = c->save_fd, .events = POLLIN};
    if (poll(&p, 1, 0) != 1) return;
    ssize_t n = read(c->save_fd, buf, sizeof buf);
    if (n > 0 && c->in.len < 2048) {
        str_add_mem(&c->in, buf, (size_t)n);
        return;
    }
    if (n < 0 && errno == EINTR) return;
    close(c->save_fd);
    c->save_fd = -1;
    const char *said = c->in.s != NULL ? c->in.s : "";
    struct gp_error err = {0};
    c->deadline_ms = clock_deadline(REQUEST_MS);
    if (str_starts(said, "ok")) {
        say(c, "ok\n");
        return;
    }
    gp_fail(&err, GP_EIO, "%.400s",
            str_starts(said, "error ") ? str_trim(c->in.s + 6) : "the process that saves the image died");
    say_failure(c, &err);
}

/* --- requests --- */

/* The record first: nodes never outlive the deadline that can be read. */
static void move_deadline(struct holder *h, struct holder_client *c, int64_t expires_s) {
    struct gp_error err = {0};
    if (local_claim_move(h->cfg.dir, expires_s, &err) != 0) {
        say_failure(c, &err);
        return;
    }
    holder_end_at(h, expires_s);
    say(c, "ok\n");
}

static void answer(struct holder *h, struct holder_client *c) {
    char *line = c->in.s;
    line[strcspn(line, "\r\n")] = '\0';
    if (str_starts(line, "create ")) {
        create_start(h, c, line + 7);
        return;
    }
    if (str_starts(line, "save ")) {
        save_start(h, c, line + 5);
        return;
    }
    GP_AUTO_STRV struct strv w = {0};
    int64_t port = 0, expires_s = 0;
    strv_split(&w, line, " ");
    if (w.n == 3 && strcmp(w.v[0], "dial") == 0 && str_to_i64(w.v[2], 1, 65535, &port)) {
        dial_start(h, c, w.v[1], port);
    } else if (w.n == 1 && strcmp(w.v[0], "list") == 0) {
        say_json(c, json_pack("{s:o}", "nodes", nodes_json(h)));
    } else if (w.n == 2 && strcmp(w.v[0], "end") == 0) {
        struct local_node *n = nodes_by_id(h, w.v[1]);
        if (n != NULL) nodes_end(h, n);
        say(c, "ok\n");
    } else if (w.n == 2 && strcmp(w.v[0], "deadline") == 0 && str_to_i64(w.v[1], 1, INT64_MAX / 1000, &expires_s)) {
        move_deadline(h, c, expires_s);
    } else {
        say_error(c, "unknown request");
    }
}

static void read_request(struct holder *h, struct holder_client *c) {
    char buf[4096];
    for (;;) {
        ssize_t n = read(c->fd, buf, sizeof buf);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (n <= 0) {
            c->done = true;
            return;
        }
        str_add_mem(&c->in, buf, (size_t)n);
        if (memchr(buf, '\n', (size_t)n) != NULL) {
            answer(h, c);
            return;
        }
        if (c->in.truncated) break;
    }
    if (c->in.truncated || clock_left_ms(c->deadline_ms) == 0) c->done = true;
}

static void write_answer(struct holder_client *c) {
    ssize_t n = send(c->fd, c->out.s, c->out.len, MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        if (clock_left_ms(c->deadline_ms) == 0) str_reset(&c->out);
        return;
    }
    if (n <= 0) {
        str_reset(&c->out);
        return;
    }
    memmove(c->out.s, c->out.s + n, c->out.len - (size_t)n + 1);
    c->out.len -= (size_t)n;
}

void ctl_step(struct holder *h) {
    size_t kept = 0;
    for (size_t i = 0; i < h->clients.len; i++) {
        struct holder_client *c = h->clients.items[i];
        if (c->creating) create_step(h, c);
        else if (c->save_fd >= 0) save_step(c);
        else if (c->dial_fd >= 0) dial_step(c);
        else if (!c->done) read_request(h, c);
        if (c->creating) create_step(h, c);
        if (c->out.len > 0) write_answer(c);
        if (!c->done || c->out.len > 0) {
            h->clients.items[kept++] = c;
            continue;
        }
        close(c->fd);
        str_clear(&c->in);
        str_clear(&c->out);
        free(c);
    }
    h->clients.len = kept;
}
