/* SPDX-License-Identifier: Apache-2.0 */
/* One call to the JSON API of Cloud Storage: token, reply, error. http.c repeats; new credentials are tried once here.
 * One thread at a time. */
#include "base/gp_base.h"

#include "providers/google/gcs_int.h"

#define REPLY_MAX ((size_t)16 << 20)
#define TIMEOUT_MS (10 * 60 * 1000) /* of one attempt: a part over a slow line */
#define ADVICE_RIGHTS                                                                                                \
    "give this principal storage.objects.list, get, create and delete on the bucket (the role Storage Object User; " \
    "docs/jobs.md)"

static const struct cloud_error rows[] = {
    {"forbidden", GP_EAUTH, GP_SCOPE_NONE, CLOUD_NO, ADVICE_RIGHTS},
    {"notFound", GP_ENOTFOUND, GP_SCOPE_NONE, CLOUD_NO, "create the bucket, or correct its name"},
    {"backendError", GP_EPROTO, GP_SCOPE_NONE, CLOUD_TROUBLE, "try again later"},
    {"internalError", GP_EPROTO, GP_SCOPE_NONE, CLOUD_TROUBLE, "try again later"},
    {"invalid", GP_EPROTO, GP_SCOPE_NONE, CLOUD_NO, ""},
    {"conditionNotMet", GP_EPROTO, GP_SCOPE_NONE, CLOUD_NO, "the object changed meanwhile: try again"},
};

static const struct cloud_error *row_of(const struct cloud_said *said) {
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].code, said->code) == 0) return &rows[i];
    return cloud_error_find(google_errors, google_error_count, said);
}

char *gcs_url(const struct gcs *s, const char *key, const char *query) {
    struct str url = {0};
    str_addf(&url, "%s/storage/v1/b/%s", s->root, s->base.name);
    if (key != NULL) {
        str_add(&url, "/o/");
        http_encode(&url, key);
    }
    if (query != NULL) str_addf(&url, "%s", query);
    return str_steal(&url);
}

struct attempt {
    struct gcs *s;
    const struct gcs_call *call;
    json_t *json; /* of an error */
    struct cloud_said said;
};

static int on_sign(void *ctx, struct http_fields *add, struct gp_error *err) {
    const struct attempt *t = ctx;
    const struct http_fields *more = t->call->headers;
    (void)err;
    GP_AUTO_FREE char *bearer = xasprintf("Bearer %s", secret_reveal(&t->s->g.cred.token));
    http_fields_add(add, "Authorization", bearer);
    explicit_bzero(bearer, strlen(bearer));
    if (t->call->body != NULL)
        http_fields_add(add, "Content-Type", t->call->type != NULL ? t->call->type : "application/octet-stream");
    for (size_t i = 0; more != NULL && i < more->list.len; i++)
        http_fields_add(add, more->list.items[i].name, more->list.items[i].value);
    return 0;
}

static bool success(const struct http_resp *resp) { return resp->status / 100 == 2 || resp->status == 308; }

static enum http_verdict on_judge(void *ctx, const struct http_resp *resp) {
    struct attempt *t = ctx;
    if (t->json != NULL) json_decref(t->json);
    t->json = NULL;
    t->said = (struct cloud_said){"", "", ""};
    if (success(resp)) return HTTP_DONE;
    if (resp->body.len > 0) (void)json_parse(resp->body.s, resp->body.len, "the reply", &t->json, NULL);
    if (t->json != NULL) google_said(resp, t->json, &t->said);
    if (t->said.code[0] == '\0' && resp->status == 401) t->said.code = "authError"; /* media have no JSON */
    if (t->said.code[0] == '\0' && resp->status == 403) t->said.code = "forbidden";
    if (t->said.code[0] == '\0' && resp->status == 404) t->said.code = "notFound";
    return cloud_judge(resp, t->said.code[0] != '\0' ? row_of(&t->said) : NULL, false);
}

static int once(struct attempt *t, const char *what, struct http_resp *resp, struct gp_error *err) {
    const struct gcs_call *call = t->call;
    struct http_req req = {.what = what,
                           .method = call->method,
                           .url = call->url,
                           .body = call->body,
                           .body_len = call->body_len,
                           .sign = on_sign,
                           .judge = on_judge,
                           .ctx = t,
                           .repeatable = !call->once,
                           .tries = call->once ? 1 : 0,
                           .timeout_ms = TIMEOUT_MS,
                           .max_body = call->max_body > 0 ? call->max_body : REPLY_MAX};
    http_resp_clear(resp);
    int r = http_call(t->s->g.http, &req, resp, err);
    if (r != 0 || success(resp)) return r;
    if (t->said.code[0] != '\0') return cloud_fail(err, what, &t->said, row_of(&t->said));
    return cloud_fail_status(err, what, resp, "JSON");
}

int gcs_call(struct gcs *s, const struct gcs_call *call, struct http_resp *resp, struct gp_error *err) {
    GP_AUTO_FREE char *what = xasprintf("gcs %s of '%s'", call->action, s->base.text);
    for (bool renewed = false;;) {
        struct attempt t = {.s = s, .call = call, .said = {"", "", ""}};
        struct gp_error why = {0};
        int r = google_creds_ensure(&s->g, false, err);
        if (r != 0) return r;
        r = once(&t, what, resp, &why);
        bool stale = r != 0 && t.said.code[0] != '\0' && row_of(&t.said)->class == CLOUD_STALE;
        if (t.json != NULL) json_decref(t.json);
        if (stale && !renewed && google_creds_ensure(&s->g, true, NULL) == 0) {
            renewed = true;
            continue;
        }
        if (r != 0 && err != NULL) *err = why;
        return r;
    }
}

int gcs_json(struct gcs *s, const struct gcs_call *call, json_t **ret, struct gp_error *err) {
    GP_AUTO_RESP struct http_resp resp = {0};
    int r = gcs_call(s, call, &resp, err);
    if (r != 0) return r;
    if (json_parse(resp.body.s != NULL ? resp.body.s : "", resp.body.len, "the reply", ret, NULL) == 0) return 0;
    return gp_fail(err, GP_EPROTO, "gcs %s of '%s': the reply is not JSON: check the endpoint", call->action,
                   s->base.text);
}
