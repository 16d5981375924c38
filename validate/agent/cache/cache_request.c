/* SPDX-License-Identifier: Apache-2.0 */
/* The strict parser of the package cache. It takes one form of request and refuses every other. */
#include "base/gp_base.h"

#include "validate/agent/cache/cache_request.h"

#include <arpa/inet.h>
#include <strings.h>

#define PATH_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+%/:@,=^!"
#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"

size_t cache_head_size(const char *data, size_t n) {
    const char *end = memmem(data, n, "\r\n\r\n", 4);
    return end != NULL ? (size_t)(end - data) + 4 : 0;
}

/* "host" or "host:port" as "host:port". */
static bool set_origin(char *dst, size_t size, const char *text, size_t n, const char *usual) {
    GP_AUTO_FREE char *host = xstrndup(text, n);
    char *colon = strchr(host, ':');
    const char *port = usual;
    int64_t number = 0;
    if (colon != NULL) {
        *colon = '\0';
        port = colon + 1;
        if (port[0] == '0' || strspn(port, "0123456789") != strlen(port)) return false;
    }
    size_t len = strlen(host);
    if (len == 0 || len > 253 || strspn(host, HOST_CHARS) != len || host[0] == '-' || host[0] == '.') return false;
    if (!str_to_i64(port, 1, 65535, &number)) return false;
    for (char *p = host; *p != '\0'; p++)
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
    snprintf(dst, size, "%s:%s", host, port);
    return true;
}

/* Segments that climb are refused also when they are escaped; every '%' has two hexadecimal digits and is no control
 * character, slash or percent sign. */
static bool path_ok(const char *path) {
    char plain[2048] = "";
    size_t n = 0;
    if (path[0] == '\0' || strspn(path, PATH_CHARS) != strlen(path)) return false;
    for (const char *p = path; *p != '\0' && n + 1 < sizeof plain; p++, n++) {
        plain[n] = *p;
        if (*p != '%') continue;
        unsigned c = 0;
        char tail = 0, hex[3] = {p[1], p[1] != '\0' ? p[2] : '\0', '\0'};
        if (strspn(hex, "0123456789abcdefABCDEF") != 2 || sscanf(hex, "%2x%c", &c, &tail) != 1) return false;
        if (c < ' ' || c > '~' || c == '/' || c == '%' || c == '\\') return false;
        plain[n] = (char)c;
        p += 2;
    }
    plain[n] = '\0';
    for (const char *p = plain; p != NULL; p = strchr(p, '/')) {
        if (*p == '/') p++;
        if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0')) return false;
    }
    return true;
}

static const char *set_target(struct cache_request *q, const char *target) {
    size_t hex = 0;
    if (target[0] != '/') return "a target that is not /SHA256/SIZE/SCHEME/HOST/PATH";
    target++;
    while (hex < 64 && ((target[hex] >= '0' && target[hex] <= '9') || (target[hex] >= 'a' && target[hex] <= 'f')))
        hex++;
    if (hex != 64 || target[64] != '/') return "a target without a SHA-256";
    memcpy(q->sha256, target, 64);
    q->sha256[64] = '\0';
    target += 65;
    size_t digits = strspn(target, "0123456789");
    GP_AUTO_FREE char *size = xstrndup(target, digits);
    if (target[digits] != '/' || size[0] == '0' || !str_to_i64(size, 1, CACHE_SIZE_MAX, &q->size))
        return "a target without a size";
    target += digits + 1;
    bool https = str_starts(target, "https/");
    if (!https && !str_starts(target, "http/")) return "a scheme that is neither http nor https";
    target += https ? 6 : 5;
    size_t n = strcspn(target, "/");
    if (!set_origin(q->origin, sizeof q->origin, target, n, https ? "443" : "80")) return "a host or port with no form";
    if (target[n] != '/' || !path_ok(target + n + 1)) return "a path that climbs or has characters without an escape";
    int len = snprintf(q->url, sizeof q->url, "%s://%s%s", https ? "https" : "http", q->origin, target + n);
    return len > 0 && (size_t)len < sizeof q->url ? NULL : "a target that is too long";
}

static const char *header_why(const char *line, int *hosts) {
    size_t n = strcspn(line, ":");
    if (line[n] != ':' || n == 0 || strcspn(line, " \t") < n) return "a line that is not 'name: value'";
    if (n == 4 && strncasecmp(line, "Host", 4) == 0 && ++*hosts > 1) return "a second Host";
    if ((n == 14 && strncasecmp(line, "Content-Length", n) == 0) ||
        (n == 17 && strncasecmp(line, "Transfer-Encoding", n) == 0))
        return "a body";
    return NULL;
}

bool cache_request_parse(const char *head, size_t n, struct cache_request *ret, const char **ret_status,
                         const char **ret_why) {
    *ret_status = "400 Bad Request";
    *ret_why = "no complete head";
    if (n < 4 || n > CACHE_HEAD_MAX || cache_head_size(head, n) != n) return false;
    *ret_why = "a control character, or a line that does not end with CR LF";
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)head[i];
        bool end = (c == '\r' && i + 1 < n && head[i + 1] == '\n') || (c == '\n' && i > 0 && head[i - 1] == '\r');
        if ((c < ' ' || c == 127) && !end) return false;
    }
    GP_AUTO_FREE char *text = xstrndup(head, n - 2);
    char *end = strstr(text, "\r\n"), *target = NULL, *version = NULL;
    *end = '\0';
    target = strchr(text, ' ');
    version = target != NULL ? strchr(target + 1, ' ') : NULL;
    *ret_why = "a request line without method, target and version";
    if (version == NULL) return false;
    *target++ = *version++ = '\0';
    if (strcmp(version, "HTTP/1.1") != 0 && strcmp(version, "HTTP/1.0") != 0) return false;
    if (strcmp(text, "GET") != 0) {
        *ret_status = "405 Method Not Allowed";
        *ret_why = "the cache answers GET only";
        return false;
    }
    struct cache_request q = {0};
    *ret_why = set_target(&q, target);
    int hosts = 0;
    for (char *line = end + 2; *ret_why == NULL && *line != '\0'; line = end + 2) {
        end = strstr(line, "\r\n");
        *end = '\0';
        *ret_why = header_why(line, &hosts);
    }
    if (*ret_why != NULL) return false;
    *ret = q;
    return true;
}

static bool in_net(uint32_t address, uint32_t net, int bits) { return (address ^ net) >> (32 - bits) == 0; }

bool cache_origin_refused(const char *origin) {
    char host[300];
    struct in_addr a;
    str_put(host, sizeof host, origin);
    host[strcspn(host, ":")] = '\0';
    size_t n = strlen(host);
    while (n > 0 && host[n - 1] == '.') host[--n] = '\0';
    if (strcmp(host, "localhost") == 0 || str_ends(host, ".localhost")) return true;
    if (strcmp(host, "metadata.google.internal") == 0) return true;
    /* a number in any form that resolvers take, such as 0x7f.1 or 2852039166 */
    const char *last = strrchr(host, '.');
    last = last != NULL ? last + 1 : host;
    if (last[0] < '0' || last[0] > '9') return false;
    if (inet_pton(AF_INET, host, &a) != 1) return true;
    static const struct {
        uint32_t net;
        int bits;
    } nets[] = {
        {0x00000000, 8},  {0x7f000000, 8},  {0xa9fe0000, 16}, /* this network, loopback, link-local and metadata */
        {0x646464c8, 32}, {0xc00000c0, 32}, {0xa83f8110, 32}, /* metadata of Alibaba Cloud, Oracle Cloud, Azure */
        {0xe0000000, 3},                                      /* multicast, reserved, broadcast */
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(nets); i++)
        if (in_net(ntohl(a.s_addr), nets[i].net, nets[i].bits)) return true;
    return false;
}

static void origin_add(struct strv *origins, const char *p, const char *port) {
    char origin[300];
    const char *end = p + strcspn(p, "/ \t\r\n\"']"), *at = memchr(p, '@', (size_t)(end - p));
    if (at != NULL) p = at + 1;
    if (!set_origin(origin, sizeof origin, p, (size_t)(end - p), port)) return;
    if (!strv_has(origins, origin)) strv_add(origins, origin);
}

void cache_origins_add(struct strv *origins, const char *text) {
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, text, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        const char *line = str_trim(lines.v[i]);
        if (line[0] == '#' || line[0] == ';') continue;
        for (const char *p = line; (p = strstr(p, "://")) != NULL; p += strcspn(p, " \t")) {
            if (p - line >= 5 && strncasecmp(p - 5, "https", 5) == 0) origin_add(origins, p + 3, "443");
            else if (p - line >= 4 && strncasecmp(p - 4, "http", 4) == 0) origin_add(origins, p + 3, "80");
        }
    }
}

bool cache_peer_known(const char *peers, const char *address) {
    GP_AUTO_STRV struct strv list = {0};
    if (strncasecmp(address, "::ffff:", 7) == 0) address += 7;
    strv_split(&list, peers, " \n");
    return strv_has(&list, address);
}
