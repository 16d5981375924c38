/* SPDX-License-Identifier: Apache-2.0 */
/* The strict parser of the package proxy's requests, and the status of another proxy's reply. Two programs that read
 * one request differently can be played against each other, so whatever RFC 9112 leaves to a reader's kindness is
 * refused here: bare LF, folded lines, blanks before a colon, bodies where none belongs, a second Host. Pure; any
 * thread. */
#include "base/gp_base.h"

#include "providers/local/proxy/proxy_request.h"

#include "base/form.h"
#include "providers/local/proxy/proxy.h"

#include <strings.h>

#define TCHAR "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

void proxy_request_clear(struct proxy_request *q) {
    free(q->path);
    strv_clear(&q->headers);
    *q = (struct proxy_request){0};
}

bool proxy_host_ok(const char *s) { return form_host(s) && strpbrk(s, ":%") == NULL; }

bool proxy_port_ok(const char *s) {
    int64_t port = 0;
    size_t n = strspn(s, "0123456789");
    return n > 0 && n <= 5 && s[n] == '\0' && s[0] != '0' && str_to_i64(s, 1, 65535, &port);
}

size_t proxy_head_size(const char *data, size_t n, bool *ret_bad) {
    *ret_bad = false;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)data[i];
        if (c == '\r' && i + 1 == n) return 0;
        bool line_end = c == '\r' && data[i + 1] == '\n';
        if ((c < ' ' || c == 127) && !line_end) {
            *ret_bad = true;
            return 0;
        }
        if (!line_end) continue;
        i++;
        if (i >= 3 && memcmp(data + i - 3, "\r\n\r\n", 4) == 0) return i + 1;
    }
    return 0;
}

static const char *set_authority(struct proxy_request *q, const char *text, const char *port) {
    GP_AUTO_FREE char *host = xstrdup(text);
    if (strchr(host, '@') != NULL) return "a target with a user name";
    if (host[0] == '[') return "a target that is an IPv6 address: package sources are taken by name";
    char *colon = strchr(host, ':');
    if (colon != NULL) *colon = '\0';
    if (colon != NULL) port = colon + 1;
    if (!proxy_host_ok(host) || !str_put(q->host, sizeof q->host, host)) return "no host's name in the target";
    if (port == NULL || !proxy_port_ok(port) || !str_put(q->port, sizeof q->port, port))
        return "no port from 1 to 65535 in the target";
    return NULL;
}

/* "GET http://host[:port]/path" or "CONNECT host:port". */
static const char *set_target(struct proxy_request *q, const char *target) {
    if (q->connect) {
        q->path = xstrdup("");
        return set_authority(q, target, NULL);
    }
    if (strncasecmp(target, "http://", 7) != 0) return "a target that is not http://";
    target += 7;
    size_t n = strcspn(target, "/");
    GP_AUTO_FREE char *where = xstrndup(target, n);
    for (const char *p = target + n; *p != '\0'; p++)
        if (*p <= ' ' || *p > '~' || *p == '#') return "a path with a character that belongs escaped";
    q->path = xstrdup(target[n] != '\0' ? target + n : "/");
    return set_authority(q, where, "80");
}

static const char *set_request_line(struct proxy_request *q, char *line, bool *ret_method) {
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    *ret_method = true;
    if (version == NULL) return "a request line without method, target and version";
    *target++ = *version++ = '\0';
    if (line[0] == '\0' || line[strspn(line, TCHAR)] != '\0') return "no method";
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0)
        return "a version that is neither HTTP/1.0 nor HTTP/1.1";
    *ret_method = strcmp(line, "GET") == 0 || strcmp(line, "HEAD") == 0 || strcmp(line, "CONNECT") == 0;
    if (!*ret_method) return "gpuprov's package proxy only fetches";
    str_put(q->method, sizeof q->method, line);
    q->connect = strcmp(line, "CONNECT") == 0;
    return set_target(q, target);
}

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcasecmp(name, *list) == 0) return true;
    return false;
}

static const char *add_header(struct proxy_request *q, char *line, int *hosts) {
    static const char *const body[] = {"Content-Length", "Transfer-Encoding", NULL};
    static const char *const own[] = {"Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect", "Host", NULL};
    size_t n = strspn(line, TCHAR);
    if (n == 0 || line[n] != ':') return "a line that is not 'name: value'";
    line[n] = '\0';
    char *value = str_trim(line + n + 1);
    if (is_one_of(line, body)) return "a body";
    if (strcasecmp(line, "Host") == 0 && ++*hosts > 1) return "a second Host";
    if (is_one_of(line, own) || strncasecmp(line, "Proxy-", 6) == 0) return NULL;
    strv_take(&q->headers, xasprintf("%s: %s", line, value));
    return NULL;
}

bool proxy_request_parse(const char *head, size_t n, struct proxy_request *ret, const char **ret_status,
                         const char **ret_why) {
    GP_AUTO_PROXY_REQUEST struct proxy_request q = {0};
    bool bad = false, method = true;
    int hosts = 0;
    *ret_status = "400 Bad Request";
    *ret_why = "a control character, or a line that does not end with CR LF";
    if (proxy_head_size(head, n, &bad) != n || n < 4) return false;
    GP_AUTO_FREE char *text = xstrndup(head, n - 2); /* no NUL in it: each line ends with CR LF */
    char *line = text, *end = strstr(text, "\r\n");
    *ret_why = "no request line";
    if (end == NULL) return false;
    *end = '\0';
    *ret_why = set_request_line(&q, line, &method);
    if (!method) *ret_status = "405 Method Not Allowed";
    for (line = end + 2; *ret_why == NULL && *line != '\0'; line = end + 2) {
        end = strstr(line, "\r\n");
        if (end == NULL) break;
        *end = '\0';
        *ret_why = add_header(&q, line, &hosts);
    }
    if (*ret_why != NULL) return false;
    *ret = q;
    q = (struct proxy_request){0};
    return true;
}

void proxy_request_build(const struct proxy_request *q, const struct proxy_upstream *up, struct str *out) {
    bool through = up->host[0] != '\0';
    const char *plain = strcmp(q->port, "80") == 0 && !q->connect ? "" : q->port;
    const char *colon = plain[0] != '\0' ? ":" : "";
    if (q->connect) str_addf(out, "CONNECT %s:%s HTTP/1.1\r\n", q->host, q->port);
    else if (through) str_addf(out, "%s http://%s:%s%s HTTP/1.1\r\n", q->method, q->host, q->port, q->path);
    else str_addf(out, "%s %s HTTP/1.1\r\n", q->method, q->path);
    str_addf(out, "Host: %s%s%s\r\n", q->host, colon, plain);
    if (!q->connect) str_add(out, "Connection: close\r\n");
    if (through && up->authorization[0] != '\0') str_addf(out, "Proxy-Authorization: Basic %s\r\n", up->authorization);
    for (size_t i = 0; !q->connect && i < q->headers.n; i++) str_addf(out, "%s\r\n", q->headers.v[i]);
    str_add(out, "\r\n");
}

/* Bytes up to and with the first empty line behind another; 0: there is none yet. */
static size_t reply_head_size(const char *data, size_t n) {
    for (size_t i = 0; i + 1 < n; i++) {
        if (data[i] != '\n') continue;
        size_t next = i + 1;
        if (data[next] == '\r' && next + 1 < n) next++;
        if (data[next] == '\n') return next + 1;
    }
    return 0;
}

/* "HTTP/1.x NNN", then a blank or the line's end; 0: anything else. */
static int status_of(const char *head, size_t n) {
    static const char digits[] = "0123456789";
    char s[14] = "";
    if (n < sizeof s - 1) return 0;
    memcpy(s, head, sizeof s - 1);
    if (!str_starts(s, "HTTP/1.") || strspn(s + 7, digits) != 1 || s[8] != ' ' || strspn(s + 9, digits) != 3 ||
        (s[12] != ' ' && s[12] != '\r' && s[12] != '\n'))
        return 0;
    int status = (s[9] - '0') * 100 + (s[10] - '0') * 10 + s[11] - '0';
    return status >= 100 ? status : 0;
}

int proxy_reply_status(const char *data, size_t n, bool *ret_bad) {
    *ret_bad = false;
    for (size_t at = 0, size = 0; (size = reply_head_size(data + at, n - at)) > 0; at += size) {
        int status = status_of(data + at, size);
        *ret_bad = status == 0;
        if (status == 0 || status == 101 || status >= 200) return status;
    }
    return 0;
}
