/* SPDX-License-Identifier: Apache-2.0 */
/* The head of a request to the package proxy: one strict form, everything else is refused. Pure; any
 * thread. Internal to providers/local. */
#ifndef GP_LOCAL_PROXY_REQUEST_H
#define GP_LOCAL_PROXY_REQUEST_H

#include "base/str.h"

struct proxy_upstream;

struct proxy_request {
    char method[8]; /* GET, HEAD or CONNECT */
    bool connect;
    char host[256], port[6]; /* letters, digits and .-_ ; 1 to 65535 */
    char *path;              /* of the target, "/" at least; "" for CONNECT */
    struct strv headers;     /* "Name: value" that go on: no Host, nothing of this connection alone */
};
void proxy_request_clear(struct proxy_request *q);
#define GP_AUTO_PROXY_REQUEST GP_CLEANUP(proxy_request_clear)

/* Bytes of the head with its empty line; 0: not whole yet. *ret_bad: a byte that no head may hold (a
 * control character; LF without CR, CR without LF), so there is nothing to wait for. */
size_t proxy_head_size(const char *data, size_t n, bool *ret_bad);
/* head: n bytes that end with the empty line. False: *ret_status ("400 Bad Request", "405 ...") and
 * *ret_why are the answer, both static; *ret stays as it was. */
bool proxy_request_parse(const char *head, size_t n, struct proxy_request *ret, const char **ret_status,
                         const char **ret_why);
/* The head as it goes on: to the server by path, to a proxy (up->host not "") by whole address. The
 * Host is always the target's. */
void proxy_request_build(const struct proxy_request *q, const struct proxy_upstream *up, struct str *out);

/* The status, 101 or 200 to 999, of the final reply in n bytes from a proxy of the machine; 0: its head is not whole
 * yet. Skips interim replies (1xx) before it, and does not look at bytes behind it. A line may end with LF alone: such
 * a reply goes on as it came. *ret_bad: no HTTP/1 reply, so there is nothing to wait for. */
int proxy_reply_status(const char *data, size_t n, bool *ret_bad);

/* A name or IPv4 address; a port without sign, blank or leading zero. */
bool proxy_host_ok(const char *s);
bool proxy_port_ok(const char *s);

#endif
