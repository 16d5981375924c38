// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the lambda provider, sends its calls and lists its slots. open calls nothing: Lambda has no call
 * that names the account. One thread at a time. */
#include "base/gp_base.h"

#include "providers/lambda/lambda_int.h"

#include "providers/common/ownership.h"

#define ENDPOINT "https://cloud.lambda.ai"
#define PACE_MS 1000          /* of the API description: one request per second */
#define CLAIM_WAIT_MIN_MS 600 /* at the pace of a test; at Lambda's it is 6 s */

static void lambda_close(struct provider *p) {
    struct lambda *l = p != NULL ? lambda_of(p) : NULL;
    if (l == NULL) return;
    http_close(l->rest.http);
    api_key_clear(&l->key);
    strv_clear(&l->regions);
    free(l->endpoint);
    strv_clear(&l->accounts);
    key_claimer_clear(&l->claims);
    free(l->base.owner);
    free(l);
}

static const char *const variables[] = {"LAMBDA_API_KEY", "LAMBDALABS_API_KEY", NULL};
static const struct api_key_rules key_rules = {"lambda", variables, "~/.lambda_cloud/lambda_keys", "api_key"};

static int ensure(void *ctx, bool force, struct gp_error *err) {
    struct lambda *l = ctx;
    int r = force ? api_key_renew(&key_rules, &l->key, err) : 0; /* a key does not expire by itself */
    if (r == 0 && force) api_key_account(&l->accounts, &l->key.key, &l->base);
    return r;
}

static int authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    struct lambda *l = ctx;
    (void)call;
    (void)err;
    char *value = xasprintf("Bearer %s", secret_reveal(&l->key.key));
    http_fields_add(add, "Authorization", value);
    explicit_bzero(value, strlen(value));
    free(value);
    return 0;
}

static const char *const hidden[] = {"user_data", NULL};

static int lambda_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct lambda *l = xcalloc(1, sizeof *l);
    l->base.ops = &provider_lambda;
    l->base.owner = env->owner != NULL ? xstrdup(env->owner) : owner_of_login();
    l->cancel = env->cancel;
    l->journal = env->journal;
    l->sink = env->sink;
    GP_AUTO_FREE char *base = NULL;
    bool other = false;
    l->pace_ms = PACE_MS;
    int r = api_endpoint("GPUPROV_LAMBDA_ENDPOINT", ENDPOINT, &base, &other, err);
    if (r == 0) r = api_pace("GPUPROV_LAMBDA_PACE_MS", other, &l->pace_ms, err);
    if (r == 0) r = api_key_load(&key_rules, &l->key, err);
    l->endpoint = xasprintf("%s/api/v1", r == 0 ? base : "");
    struct http_options opt = {.cancel = env->cancel, .min_interval_ms = l->pace_ms, .backoff_min_ms = l->pace_ms};
    if (r == 0) r = http_open(&opt, &l->rest.http, err);
    if (r != 0) {
        lambda_close(&l->base);
        return r;
    }
    api_key_account(&l->accounts, &l->key.key, &l->base);
    if (l->key.warning != NULL) event_emit(l->sink, -1, NODE_PLANNED, EVENT_WARN, "credentials", "%s", l->key.warning);
    l->rest.provider = &l->base;
    l->rest.ctx = l;
    l->rest.ensure = ensure;
    l->rest.authorize = authorize;
    l->rest.said = lambda_said;
    l->rest.rows = lambda_errors;
    l->rest.row_count = lambda_error_count;
    l->rest.hidden = hidden;
    l->claims = (struct key_claimer){.ops = &lambda_claim_ops,
                                     .ctx = l,
                                     .p = &l->base,
                                     .journal = l->journal,
                                     .cancel = l->cancel,
                                     .wait_ms = GP_MAX(6 * l->pace_ms, (int64_t)CLAIM_WAIT_MIN_MS)};
    *ret = &l->base;
    return 0;
}

int lambda_call(struct lambda *l, const char *method, const char *path, const json_t *body, unsigned flags,
                struct rest_reply *reply, json_t **ret_data, struct gp_error *err) {
    GP_AUTO_FREE char *url = xasprintf("%s%s", l->endpoint, path);
    GP_AUTO_FREE char *what = xasprintf("lambda %s %s", method, path);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct rest_call call = {.what = what, .method = method, .url = url, .body = text, .flags = flags & ~LAMBDA_LIST};
    int r = rest_call(&l->rest, &call, reply, err);
    free(text);
    if (r != 0) return r;
    *ret_data = json_at(reply->json, "data");
    bool form = flags & LAMBDA_LIST ? json_is_array(*ret_data) : json_is_object(*ret_data);
    if (form || ((flags & REST_MISSING) && reply->status == 404)) return 0;
    return gp_fail(err, flags & REST_ONCE ? GP_EUNKNOWN : GP_EPROTO,
                   "%s: the reply has no %s 'data': run the same command again", what,
                   flags & LAMBDA_LIST ? "list" : "object");
}

int lambda_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *data = NULL;
    *ret_usable = false;
    int r = provider_lambda.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r == 0) r = lambda_call(lambda_of(p), "GET", "/instances", NULL, LAMBDA_LIST, &reply, &data, &why);
    if (r == 0) {
        const struct lambda *l = lambda_of(p);
        str_addf(text, "API key of %s\nowner %s\n%zu instances in the account", l->key.source, l->base.owner,
                 json_array_size(data));
        if (l->key.warning != NULL) str_addf(text, "\n%s", l->key.warning);
        *ret_usable = true;
    } else {
        if (p != NULL && r == -GP_EAUTH) gp_wrap(&why, "API key of %s", lambda_of(p)->key.source);
        if (err != NULL) *err = why;
    }
    provider_lambda.close(p);
    return r;
}

static int64_t boot_timeout(const char *instance_type, int gpus) {
    (void)instance_type;
    return gpus >= 8 ? 30 * 60 * 1000 : 0;
}

const struct provider_ops provider_lambda = {
    .name = "lambda",
    .summary = "Lambda Cloud: on-demand GPU instances",
    .spec = &lambda_spec,
    .note = "lambda: the cloud has no deadline, and a shutdown does not end the bill: 'gpuprov gc' has to run to "
            "terminate nodes at their deadline",
    .ends = ENDS_GC_ONLY,
    .guest_end = GUEST_NOTHING,
    .node_shape = NODE_VM,
    .user_data_max = 1000000,
    .poll_ms = 5000,
    .replay_max_s = 0, /* no tokens: create searches by tags, and sends once more what left nothing */
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 20 * 60 * 1000,
    .settle_ms = 10 * 1000,
    .image_refusal = "Lambda's API makes no images",
    .policy_refusal = "Lambda's API keys have all rights of the account",
    .doctor = lambda_doctor,
    .boot_timeout = boot_timeout,
    .open = lambda_open,
    .close = lambda_close,
    .offers = lambda_offers,
    .prepare = lambda_prepare,
    .create = lambda_create,
    .list = lambda_list,
    .destroy = lambda_destroy,
    .tag = lambda_tag,
};
