// SPDX-License-Identifier: Apache-2.0
/* Opens and closes the shadeform provider, sends its calls, claims by SSH keys and lists its slots. open calls nothing:
 * Shadeform has no call that names the account. One thread at a time. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#include "base/form.h"
#include "providers/common/ownership.h"
#include "ssh/ssh.h"

#define ENDPOINT "https://api.shadeform.ai"
#define PACE_MS 500 /* no limit is documented */
#define CLAIM_WAIT_MIN_MS 600

/* --- open and close --- */

static void shade_close(struct provider *p) {
    struct shade *s = p != NULL ? shade_of(p) : NULL;
    if (s == NULL) return;
    http_close(s->rest.http);
    api_key_clear(&s->key);
    key_claimer_clear(&s->claims);
    free(s->endpoint);
    strv_clear(&s->accounts);
    free(s->base.owner);
    free(s);
}

static const char *const variables[] = {"SHADEFORM_API_KEY", NULL};
static const struct api_key_rules key_rules = {"shadeform", variables, "~/.shadeform/api_key", NULL};

static int ensure(void *ctx, bool force, struct gp_error *err) {
    struct shade *s = ctx;
    int r = force ? api_key_renew(&key_rules, &s->key, err) : 0;
    if (r == 0 && force) api_key_account(&s->accounts, &s->key.key, &s->base);
    return r;
}

static int authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    struct shade *s = ctx;
    (void)call;
    (void)err;
    http_fields_add(add, "X-API-KEY", secret_reveal(&s->key.key));
    return 0;
}

static const char *const hidden[] = {"base64_script", NULL};

static int shade_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    struct shade *s = xcalloc(1, sizeof *s);
    GP_AUTO_FREE char *base = NULL;
    bool other = false;
    s->base.ops = &provider_shadeform;
    s->base.owner = env->owner != NULL ? xstrdup(env->owner) : owner_of_login();
    s->cancel = env->cancel;
    s->journal = env->journal;
    s->sink = env->sink;
    s->pace_ms = PACE_MS;
    int r = api_endpoint("GPUPROV_SHADEFORM_ENDPOINT", ENDPOINT, &base, &other, err);
    if (r == 0) r = api_pace("GPUPROV_SHADEFORM_PACE_MS", other, &s->pace_ms, err);
    if (r == 0) r = api_key_load(&key_rules, &s->key, err);
    struct http_options opt = {.cancel = env->cancel, .min_interval_ms = s->pace_ms, .backoff_min_ms = s->pace_ms};
    if (r == 0) r = http_open(&opt, &s->rest.http, err);
    if (r != 0) {
        shade_close(&s->base);
        return r;
    }
    api_key_account(&s->accounts, &s->key.key, &s->base);
    if (s->key.warning != NULL) event_emit(s->sink, -1, NODE_PLANNED, EVENT_WARN, "credentials", "%s", s->key.warning);
    s->endpoint = xasprintf("%s/v1", base);
    s->rest.provider = &s->base;
    s->rest.ctx = s;
    s->rest.ensure = ensure;
    s->rest.authorize = authorize;
    s->rest.said = shade_said;
    s->rest.rows = shade_errors;
    s->rest.row_count = shade_error_count;
    s->rest.hidden = hidden;
    s->claims = (struct key_claimer){.ops = &shade_claim_ops,
                                     .ctx = s,
                                     .p = &s->base,
                                     .journal = s->journal,
                                     .cancel = s->cancel,
                                     .wait_ms = GP_MAX(10 * s->pace_ms, (int64_t)CLAIM_WAIT_MIN_MS)};
    *ret = &s->base;
    return 0;
}

int shade_call(struct shade *s, const char *method, const char *path, const json_t *body, unsigned flags,
               const char *list, struct rest_reply *reply, json_t **ret_list, struct gp_error *err) {
    GP_AUTO_FREE char *url = xasprintf("%s%s", s->endpoint, path);
    GP_AUTO_FREE char *what = xasprintf("shadeform %s %s", method, path);
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    struct rest_call call = {.what = what, .method = method, .url = url, .body = text, .flags = flags};
    int r = rest_call(&s->rest, &call, reply, err);
    free(text);
    if (r != 0 || list == NULL) return r;
    *ret_list = json_at(reply->json, list);
    if (json_is_array(*ret_list)) return 0;
    return gp_fail(err, GP_EPROTO, "%s: the reply has no list '%s': run the same command again", what, list);
}

/* --- the claim --- */

static int list_keys(void *ctx, void (*each)(void *arg, const char *id, const char *name, const char *line), void *arg,
                     struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *all = NULL, *key = NULL;
    size_t i = 0;
    int r = shade_call(ctx, "GET", "/sshkeys", NULL, 0, "ssh_keys", &reply, &all, err);
    if (r != 0) return r;
    json_array_foreach(all, i, key)
        each(arg, json_str(key, "id", ""), json_str(key, "name", ""), json_str(key, "public_key", ""));
    return 0;
}

static int add_key(void *ctx, const char *name, const char *line, char **ret_id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *body = json_pack("{s:s,s:s}", "name", name, "public_key", line);
    int r = shade_call(ctx, "POST", "/sshkeys/add", body, REST_ONCE, NULL, &reply, NULL, err);
    *ret_id = xstrdup(json_str(reply.json, "id", ""));
    return r;
}

static int remove_key(void *ctx, const char *id, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_FREE char *path = xasprintf("/sshkeys/%s/delete", id);
    if (!form_word(id)) return gp_fail(err, GP_EUSAGE, "shadeform: '%.80s' is not the id of an SSH key", id);
    return shade_call(ctx, "POST", path, NULL, REST_MISSING, NULL, &reply, NULL, err);
}

const struct key_claim_ops shade_claim_ops = {.provider = "shadeform",
                                              .pause_ms = 500,
                                              .new_key = ssh_key_make,
                                              .list = list_keys,
                                              .add = add_key,
                                              .remove = remove_key};

static int shade_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct shade *s = shade_of(p);
    if (req->known != NULL) return 0; /* Shadeform has no firewall in its API */
    if (req->stack->region == NULL || req->stack->region[0] == '\0') resource_set(&req->stack->region, "shadeform");
    return key_claim_take(&s->claims, req, err);
}

/* --- doctor --- */

static int shade_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *all = NULL;
    *ret_usable = false;
    int r = provider_shadeform.open(&env, &p, &why);
    if (r != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    if (r == 0) r = shade_call(shade_of(p), "GET", "/instances", NULL, 0, "instances", &reply, &all, &why);
    if (r == 0) {
        const struct shade *s = shade_of(p);
        str_addf(text, "API key of %s\nowner %s\n%zu instances in the account", s->key.source, s->base.owner,
                 json_array_size(all));
        if (s->key.warning != NULL) str_addf(text, "\n%s", s->key.warning);
        *ret_usable = true;
    } else {
        if (p != NULL && r == -GP_EAUTH) gp_wrap(&why, "API key of %s", shade_of(p)->key.source);
        if (err != NULL) *err = why;
    }
    provider_shadeform.close(p);
    return r;
}

const struct provider_ops provider_shadeform = {
    .name = "shadeform",
    .summary = "Shadeform: GPU machines of many clouds with one key",
    .spec = &shadeform_spec,
    .note = "shadeform: the service deletes a node at its deadline; a node whose deadline could not be read back after "
            "its launch is not used",
    .ends = ENDS_SERVER,
    .guest_end = GUEST_NOTHING,
    .node_shape = NODE_VM,
    .user_data_max = 16384,
    .poll_ms = 5000,
    .replay_max_s = 0, /* no tokens: create searches by tags, and sends once more what left nothing */
    .unique_claim = true,
    .user_data = true,
    .key_rotation = true,
    .late_host_key = true,
    .billed = true,
    .boot_timeout_ms = 30 * 60 * 1000,
    .settle_ms = 10 * 1000,
    .image_refusal = "Shadeform's API makes no images",
    .policy_refusal = "Shadeform's API keys have all rights of the account",
    .doctor = shade_doctor,
    .open = shade_open,
    .close = shade_close,
    .offers = shade_offers,
    .prepare = shade_prepare,
    .create = shade_create,
    .list = shade_list,
    .destroy = shade_destroy,
    .tag = shade_tag,
};
