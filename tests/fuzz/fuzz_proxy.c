/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a request to the package proxy: refused with a status, or a request whose parts have their
 * forms and whose own head, as it goes on, has exactly one end, one Host, and is taken again. The same bytes as
 * another proxy's reply: a status, or none. */
#include "base/gp_base.h"

#include "providers/local/proxy/proxy.h"
#include "providers/local/proxy/proxy_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void again(const struct proxy_request *q, const char *host) {
    GP_AUTO_STR struct str out = {0};
    GP_AUTO_PROXY_REQUEST struct proxy_request second = {0};
    struct proxy_upstream up = {.port = "3128"};
    const char *status = NULL, *why = NULL;
    bool bad = false;
    str_put(up.host, sizeof up.host, host);
    proxy_request_build(q, &up, &out);
    if (proxy_head_size(out.s, out.len, &bad) != out.len || bad) abort();
    if (host[0] == '\0' && !q->connect) return; /* by path: a server's form, not a proxy's */
    if (!proxy_request_parse(out.s, out.len, &second, &status, &why)) abort();
    if (strcmp(second.host, q->host) != 0 || strcmp(second.port, q->port) != 0 || strcmp(second.path, q->path) != 0 ||
        (!q->connect && second.headers.n != q->headers.n))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_PROXY_REQUEST struct proxy_request q = {0};
    const char *head = (const char *)data, *status = NULL, *why = NULL;
    bool bad = false;
    size_t n = proxy_head_size(head, size, &bad);
    if (n > size || (n > 0 && bad)) abort();
    int reply = proxy_reply_status(head, size, &bad);
    if (reply != 0 && (bad || (reply != 101 && (reply < 200 || reply > 999)))) abort();
    if (!proxy_request_parse(head, n > 0 ? n : size, &q, &status, &why)) {
        if (status == NULL || why == NULL || q.path != NULL) abort();
        return 0;
    }
    if (n == 0 || !proxy_host_ok(q.host) || !proxy_port_ok(q.port)) abort();
    if (!q.connect && q.path[0] != '/') abort();
    again(&q, "");
    again(&q, "cache");
    return 0;
}
