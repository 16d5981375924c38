/* SPDX-License-Identifier: Apache-2.0 */
/* One row per cloud: what to request from its metadata service, and what the answer means. Requests are HTTP/1.0 to one
 * fixed address, without a proxy. One thread. GPUPROV_METADATA (HOST:PORT, IPv4) replaces the address, for tests. */
#include "base/gp_base.h"

#include "validate/agent/watch/preempt.h"

#include "base/clock.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REPLY_MAX ((size_t)65536)
#define STEP_MS 4000

struct reply {
    int status; /* of HTTP */
    struct str text;
    const char *body;
};

struct preempt_source {
    const char *cloud, *address;
    const char *token_path, *token_header, *send_token_as; /* NULL: no token is needed */
    const char *header;                                    /* of every request; NULL: none */
    const char *name_path;                                 /* the node's own name; NULL: not needed */
    const char *path;
    /* 0: *ret and *ret_when_s are set; -1: not understood. name: the node's own; NULL: not requested. */
    int (*judge)(const struct reply *r, const char *name, enum preempt_state *ret, int64_t *ret_when_s);
};

/* --- what the answers mean --- */

/* The string that follows "key": at or after `from`, before `end`. */
static bool member(const char *from, const char *end, const char *key, char *dst, size_t n) {
    GP_AUTO_FREE char *quoted = xasprintf("\"%s\"", key);
    const char *at = from;
    while ((at = strstr(at, quoted)) != NULL && at < end) {
        at += strlen(quoted);
        const char *p = at + strspn(at, " \t\r\n");
        if (*p != ':') continue;
        p += 1 + strspn(p + 1, " \t\r\n");
        size_t len = *p == '"' ? strcspn(p + 1, "\"\\") : 0;
        if (*p != '"' || p[1 + len] != '"' || len >= n || p + len >= end) return false;
        memcpy(dst, p + 1, len);
        dst[len] = '\0';
        return true;
    }
    return false;
}

/* EC2: 404, or {"action": "terminate", "time": "2026-11-26T08:22:00Z"}. */
static int judge_aws(const struct reply *r, const char *name, enum preempt_state *ret, int64_t *ret_when_s) {
    char action[32], when[40];
    const char *end = r->body + strlen(r->body);
    (void)name;
    if (r->status == 404) return 0;
    if (r->status != 200 || !member(r->body, end, "action", action, sizeof action)) return -1;
    *ret = PREEMPT_NOTICED;
    if (member(r->body, end, "time", when, sizeof when)) time_parse_utc(when, ret_when_s);
    return 0;
}

/* ECS: 404, or the time alone. */
static int judge_alibaba(const struct reply *r, const char *name, enum preempt_state *ret, int64_t *ret_when_s) {
    char when[40];
    (void)name;
    if (r->status == 404) return 0;
    size_t n = strcspn(r->body, " \r\n");
    if (r->status != 200 || n >= sizeof when) return -1;
    memcpy(when, r->body, n);
    when[n] = '\0';
    if (!time_parse_utc(when, ret_when_s)) return -1;
    *ret = PREEMPT_NOTICED;
    return 0;
}

/* Compute Engine: TRUE or FALSE. */
static int judge_google(const struct reply *r, const char *name, enum preempt_state *ret, int64_t *ret_when_s) {
    (void)name, (void)ret_when_s;
    if (r->status != 200) return -1;
    if (str_starts(r->body, "TRUE")) *ret = PREEMPT_NOTICED;
    return str_starts(r->body, "TRUE") || str_starts(r->body, "FALSE") ? 0 : -1;
}

/* "Mon, 19 Sep 2016 18:29:47 GMT" */
static int64_t rfc1123(const char *text) {
    struct tm tm = {0};
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    return end != NULL && *end == '\0' ? (int64_t)timegm(&tm) : 0;
}

/* Azure: {"Events": [{"EventType": "Preempt", "Resources": ["NAME"], "NotBefore": "..."}]}. Events of other machines of
 * the same set are listed too. An event has no object inside. */
static int judge_azure(const struct reply *r, const char *name, enum preempt_state *ret, int64_t *ret_when_s) {
    if (r->status != 200 || strstr(r->body, "\"Events\"") == NULL) return -1;
    GP_AUTO_FREE char *own = xasprintf("\"%s\"", name);
    for (const char *at = strchr(r->body, '{'); at != NULL && (at = strchr(at + 1, '{')) != NULL;) {
        const char *end = strchr(at, '}');
        if (end == NULL) return -1;
        char type[32] = "", when[48] = "";
        const char *mine = strstr(at, own);
        if (!member(at, end, "EventType", type, sizeof type)) return -1;
        if ((!str_eq(type, "Preempt") && !str_eq(type, "Terminate")) || mine == NULL || mine > end) continue;
        *ret = PREEMPT_NOTICED;
        if (member(at, end, "NotBefore", when, sizeof when)) *ret_when_s = rfc1123(when);
        return 0;
    }
    return 0;
}

/* Sources: the clouds' own documentation of their metadata services. */
static const struct preempt_source sources[] = {
    {.cloud = "aws",
     .address = "169.254.169.254",
     .token_path = "/latest/api/token",
     .token_header = "X-aws-ec2-metadata-token-ttl-seconds: 300",
     .send_token_as = "X-aws-ec2-metadata-token",
     .path = "/latest/meta-data/spot/instance-action",
     .judge = judge_aws},
    {.cloud = "google",
     .address = "169.254.169.254",
     .header = "Metadata-Flavor: Google",
     .path = "/computeMetadata/v1/instance/preempted",
     .judge = judge_google},
    {.cloud = "azure",
     .address = "169.254.169.254",
     .header = "Metadata: true",
     .name_path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text",
     .path = "/metadata/scheduledevents?api-version=2020-07-01",
     .judge = judge_azure},
    {.cloud = "alibaba",
     .address = "100.100.100.200",
     .token_path = "/latest/api/token",
     .token_header = "X-aliyun-ecs-metadata-token-ttl-seconds: 300",
     .send_token_as = "X-aliyun-ecs-metadata-token",
     .path = "/latest/meta-data/instance/spot/termination-time",
     .judge = judge_alibaba},
};

const struct preempt_source *preempt_source_find(const char *cloud) {
    for (size_t i = 0; i < GP_ARRAY_LEN(sources); i++)
        if (str_eq(sources[i].cloud, cloud)) return &sources[i];
    return NULL;
}

/* --- requests --- */

static int address_of(const struct preempt_source *s, struct sockaddr_in *ret, struct gp_error *err) {
    const char *own = getenv("GPUPROV_METADATA");
    char host[64];
    int64_t port = 80;
    str_put(host, sizeof host, own != NULL ? own : s->address);
    char *colon = strchr(host, ':');
    if (colon != NULL) {
        *colon = '\0';
        if (!str_to_i64(colon + 1, 1, 65535, &port)) return gp_fail(err, GP_EUSAGE, "GPUPROV_METADATA: no such port");
    }
    *ret = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &ret->sin_addr) != 1)
        return gp_fail(err, GP_EUSAGE, "GPUPROV_METADATA: '%s' is no IPv4 address", host);
    return 0;
}

static int exchange(int fd, const struct sockaddr_in *to, const struct str *request, int64_t deadline_ms,
                    struct str *ret, struct gp_error *err) {
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) != 0 && errno != EINPROGRESS)
        return gp_fail_errno(err, GP_EREACH, errno, "no connection");
    int r = gp_wait_fd(fd, POLLOUT, deadline_ms, NULL, NULL, err);
    if (r != 0) return r;
    /* a request is shorter than a socket's buffer */
    if (send(fd, request->s, request->len, MSG_NOSIGNAL) != (ssize_t)request->len)
        return gp_fail_errno(err, GP_EREACH, errno, "the request cannot be sent");
    for (;;) {
        char buf[4096];
        if ((r = gp_wait_fd(fd, POLLIN, deadline_ms, NULL, NULL, err)) != 0) return r;
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
        if (n < 0) return gp_fail_errno(err, GP_EREACH, errno, "the reply cannot be read");
        if (n == 0) return 0;
        if (ret->len + (size_t)n > REPLY_MAX) return gp_fail(err, GP_EREACH, "the reply is too long");
        str_add_mem(ret, buf, (size_t)n);
    }
}

static int request(const struct preempt_source *s, const char *verb, const char *path, const char *header,
                   int64_t deadline_ms, struct reply *ret, struct gp_error *err) {
    struct sockaddr_in to;
    int64_t status = 0;
    int r = address_of(s, &to, err);
    if (r != 0) return r;
    GP_AUTO_STR struct str text = {0};
    str_addf(&text, "%s %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n", verb, path, s->address);
    if (s->header != NULL) str_addf(&text, "%s\r\n", s->header);
    if (header != NULL) str_addf(&text, "%s\r\n", header);
    str_add(&text, "\r\n");
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return gp_fail_errno(err, GP_EENV, errno, "no socket");
    r = exchange(fd, &to, &text, GP_MIN(deadline_ms, clock_deadline(STEP_MS)), &ret->text, err);
    close(fd);
    if (r != 0) return r == -GP_ETIMEOUT ? -GP_EREACH : r;
    const char *body = ret->text.s != NULL ? strstr(ret->text.s, "\r\n\r\n") : NULL;
    char code[4] = "";
    if (body != NULL && strlen(ret->text.s) > 12) memcpy(code, ret->text.s + 9, 3);
    if (body == NULL || !str_starts(ret->text.s, "HTTP/1.") || !str_to_i64(code, 100, 599, &status))
        return gp_fail(err, GP_EREACH, "the metadata service does not answer in HTTP");
    ret->status = (int)status;
    ret->body = body + 4;
    return 0;
}

/* One word of a reply: a token, a name. */
static int word(const struct preempt_source *s, const char *verb, const char *path, const char *header,
                int64_t deadline_ms, char **ret, struct gp_error *err) {
    struct reply reply = {0};
    int r = request(s, verb, path, header, deadline_ms, &reply, err);
    size_t n = r == 0 ? strcspn(reply.body, " \t\r\n") : 0;
    if (r == 0 && (reply.status != 200 || n == 0 || n > 512))
        r = gp_fail(err, GP_EREACH, "the metadata service answers %s with status %d", path, reply.status);
    if (r == 0) *ret = xstrndup(reply.body, n);
    str_clear(&reply.text);
    return r;
}

int preempt_look(const struct preempt_source *s, int64_t deadline_ms, enum preempt_state *ret, int64_t *ret_when_s,
                 struct gp_error *err) {
    GP_AUTO_FREE char *token = NULL, *name = NULL, *header = NULL;
    struct reply reply = {0};
    enum preempt_state state = PREEMPT_NONE;
    int64_t when_s = 0;
    int r = s->token_path != NULL ? word(s, "PUT", s->token_path, s->token_header, deadline_ms, &token, err) : 0;
    if (token != NULL) header = xasprintf("%s: %s", s->send_token_as, token);
    if (r == 0 && s->name_path != NULL) r = word(s, "GET", s->name_path, NULL, deadline_ms, &name, err);
    if (r == 0) r = request(s, "GET", s->path, header, deadline_ms, &reply, err);
    if (r == 0 && s->judge(&reply, name, &state, &when_s) != 0)
        r = gp_fail(err, GP_EREACH, "the metadata service answers %s with status %d and unknown text", s->path,
                    reply.status);
    str_clear(&reply.text);
    if (r != 0) return r;
    *ret = state;
    *ret_when_s = when_s;
    return 0;
}
