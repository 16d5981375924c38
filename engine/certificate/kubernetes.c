/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the condition GPUValidated of a Kubernetes node from inside a pod: reads the node, then patches its status.
 * Uses the service account's token and CA, and the API's address in the pod's environment. Changes nothing else of the
 * node: taints and cordons are left to controllers that watch conditions. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/certificate/kubernetes.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/json.h"
#include "output/report_forms.h"
#include "providers/http.h"

#define ACCOUNT "/var/run/secrets/kubernetes.io/serviceaccount"
#define CONDITION "GPUValidated"
#define MESSAGE_MAX 1024

enum { CALL_MS = 10000, ALL_MS = 60000, CONFLICTS = 4 };

struct kube {
    struct http *http;
    struct http_fields headers;
    char *base; /* "https://10.0.0.1:443/api/v1/nodes/" + name */
    const char *node;
    int64_t deadline_ms;
};

static void kube_clear(struct kube *k) {
    http_close(k->http);
    http_fields_clear(&k->headers);
    free(k->base);
}

static int read_token(struct kube *k, struct gp_error *err) {
    GP_AUTO_STR struct str token = {0};
    int r = fs_read(ACCOUNT "/token", 65536, &token, err);
    if (r != 0) return gp_wrap(err, "the pod has no service account token (automountServiceAccountToken)");
    GP_AUTO_FREE char *value = xasprintf("Bearer %s", str_trim(token.s));
    explicit_bzero(token.s, token.len);
    http_fields_add(&k->headers, "Authorization", value);
    explicit_bzero(value, strlen(value));
    return 0;
}

static int kube_open(struct kube *k, const char *node, const struct gp_cancel *cancel, struct gp_error *err) {
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    if (host == NULL || host[0] == '\0' || port == NULL || port[0] == '\0')
        return gp_fail(err, GP_EENV, "not in a pod: KUBERNETES_SERVICE_HOST and _PORT are not set");
    int64_t number = 0; /* the token is sent to this address */
    if (!form_host(host) || strchr(host, '%') != NULL || !str_to_i64(port, 1, 65535, &number))
        return gp_fail(err, GP_EENV, "KUBERNETES_SERVICE_HOST '%.80s' or _PORT '%.20s' is not a host or port", host,
                       port);
    bool ipv6 = strchr(host, ':') != NULL;
    GP_AUTO_STR struct str url = {0};
    str_addf(&url, "https://%s%s%s:%s/api/v1/nodes/", ipv6 ? "[" : "", host, ipv6 ? "]" : "", port);
    http_encode(&url, node);
    k->base = str_steal(&url);
    k->node = node;
    k->deadline_ms = clock_deadline(ALL_MS);
    int r = read_token(k, err);
    return r == 0 ? http_open(&(struct http_options){.cancel = cancel, .ca_bundle = ACCOUNT "/ca.crt"}, &k->http, err)
                  : r;
}

/* A 500 is retried too, because reading and repeating the patch are harmless. */
static enum http_verdict judge(void *ctx, const struct http_resp *resp) {
    (void)ctx;
    return resp->status == 429 || resp->status >= 500 ? HTTP_TROUBLE : HTTP_DONE;
}

/* The reason is in the API's Status object. */
static int refused(const struct kube *k, const struct http_resp *resp, const char *what, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    const char *why = "";
    if (json_parse(resp->body.s != NULL ? resp->body.s : "", resp->body.len, "it", &j, NULL) == 0)
        why = json_str(j, "message", "");
    enum gp_code code = resp->status == 401 || resp->status == 403 ? GP_EAUTH
                        : resp->status == 404                      ? GP_ENOTFOUND
                        : resp->status == 409                      ? GP_EEXISTS
                        : resp->status == 422                      ? GP_EPROTO
                                                                   : GP_EENDPOINT;
    const char *advice = resp->status == 401   ? " (the token is not accepted)"
                         : resp->status == 403 ? " (the service account needs get on nodes and patch on nodes/status)"
                                               : "";
    return gp_fail(err, code, "node '%s': could not %s: HTTP %d%s%s%s", k->node, what, resp->status,
                   why[0] != '\0' ? ": " : "", why, advice);
}

static int call(struct kube *k, const char *method, const char *suffix, const char *body, const char *what,
                struct http_resp *resp, struct gp_error *err) {
    GP_AUTO_FREE char *url = xasprintf("%s%s", k->base, suffix);
    GP_AUTO_FREE char *label = xasprintf("kubernetes node '%s': %s", k->node, what);
    struct http_req req = {.what = label,
                           .method = method,
                           .url = url,
                           .body = body,
                           .body_len = body != NULL ? strlen(body) : 0,
                           .headers = &k->headers,
                           .judge = judge,
                           .repeatable = true,
                           .no_proxy = true,
                           .tries = 4,
                           .timeout_ms = CALL_MS,
                           .connect_ms = CALL_MS,
                           .deadline_ms = k->deadline_ms};
    int r = http_call(k->http, &req, resp, err);
    if (r != 0) return r;
    return resp->status / 100 == 2 ? 0 : refused(k, resp, what, err);
}

/* --- the condition --- */

static const json_t *condition_of(const json_t *node) {
    const json_t *list = json_at(node, "status.conditions");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (strcmp(json_str(json_array_get(list, i), "type", ""), CONDITION) == 0) return json_array_get(list, i);
    return NULL;
}

static json_t *condition_json(const struct report *r, enum node_check verdict, const json_t *before) {
    static const char *const statuses[] = {"True", "True", "False", "Unknown"};
    static const char *const reasons[] = {"Validated", "Degraded", "ValidationFailed", "CouldNotTell"};
    char now[32];
    time_format_utc(now, sizeof now, clock_wall_s());
    GP_AUTO_STR struct str line = {.max = MESSAGE_MAX};
    report_line(r, &line);
    const char *since = json_str(before, "lastTransitionTime", now);
    if (strcmp(json_str(before, "status", ""), statuses[verdict]) != 0) since = now;
    json_t *c =
        json_pack("{s:s, s:s, s:s}", "type", CONDITION, "status", statuses[verdict], "reason", reasons[verdict]);
    json_object_set_new(c, "message", json_any_text(line.s));
    json_object_set_new(c, "lastHeartbeatTime", json_string(now));
    json_object_set_new(c, "lastTransitionTime", json_string(since));
    return json_pack("{s:{s:[o]}}", "status", "conditions", c);
}

static int write_once(struct kube *k, const struct report *r, enum node_check verdict, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp got = {0}, patched = {0};
    GP_AUTO_JSON json_t *node = NULL;
    int rc = call(k, "GET", "", NULL, "read it", &got, err);
    if (rc == 0) rc = json_parse(got.body.s != NULL ? got.body.s : "", got.body.len, "the API's node", &node, err);
    if (rc != 0) return rc;
    GP_AUTO_JSON json_t *patch = condition_json(r, verdict, condition_of(node));
    GP_AUTO_FREE char *body = json_text(patch, 0);
    return call(k, "PATCH", "/status", body, "patch its status", &patched, err);
}

int kubernetes_condition(const char *node, const struct report *r, enum node_check verdict,
                         const struct gp_cancel *cancel, struct gp_error *err) {
    GP_CLEANUP(kube_clear) struct kube k = {0};
    struct gp_error why = {0};
    int rc = kube_open(&k, node, cancel, &why);
    http_fields_add(&k.headers, "Content-Type", "application/strategic-merge-patch+json");
    http_fields_add(&k.headers, "Accept", "application/json");
    for (int i = 0; rc == 0 && i < CONFLICTS; i++) {
        gp_error_clear(&why);
        rc = write_once(&k, r, verdict, &why);
        if (rc != -GP_EEXISTS) break; /* a concurrent write: the node is read again */
        rc = i + 1 < CONFLICTS ? 0 : rc;
    }
    if (rc != 0 && err != NULL) *err = why;
    return rc;
}
