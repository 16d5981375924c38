/* SPDX-License-Identifier: Apache-2.0 */
/* Provider `runpod`: pods of RunPod's REST API v2, which are containers with an SSH port mapped to a public address. No
 * call of the API names the account, so the login name is the owner. One thread at a time. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "providers/common/api_key.h"
#include "providers/common/ownership.h"

#define API "https://api.runpod.io"

struct runpod *runpod_of(struct provider *p) {
    return (struct runpod *)p;
}

/* --- credentials --- */

static int authorize(void *ctx, const struct rest_call *call, struct http_fields *add, struct gp_error *err) {
    const struct runpod *r = ctx;
    (void)call, (void)err;
    GP_AUTO_STR struct str value = {0};
    str_addf(&value, "Bearer %s", secret_reveal(&r->key.value));
    http_fields_add(add, "Authorization", value.s);
    explicit_bzero(value.s, value.len);
    return 0;
}

/* force: the key was refused; a person may have replaced it since. */
static int ensure(void *ctx, bool force, struct gp_error *err) {
    struct runpod *r = ctx;
    struct runpod_key now = {0};
    if (!force) return 0;
    int rc = runpod_key_find(&now, err);
    if (rc == 0 && secret_equal(&r->key.value, secret_reveal(&now.value), now.value.len))
        rc = gp_fail(err, GP_EAUTH, "runpod: the API key of %s is the one that was refused", now.source);
    if (rc != 0) {
        runpod_key_clear(&now);
        return rc;
    }
    runpod_key_clear(&r->key);
    r->key = now;
    api_key_account(&r->accounts, &r->key.value, &r->base);
    return 0;
}

/* --- calls --- */

int runpod_call(struct runpod *r, const char *what, const char *method, const char *path, const char *body,
                unsigned flags, struct rest_reply *ret, struct gp_error *err) {
    GP_AUTO_FREE char *url = xasprintf("%s%s", r->url, path);
    struct rest_call call = {.what = what, .method = method, .url = url, .body = body, .flags = flags};
    return rest_call(&r->rest, &call, ret, err);
}

/* --- open, close --- */

static int find_url(struct runpod *r, struct gp_error *err) {
    GP_AUTO_FREE char *base = NULL;
    bool other = false;
    int rc = api_endpoint("RUNPOD_API_BASE_URL", API, &base, &other, err);
    if (rc == 0) r->url = xasprintf("%s/v2", base);
    return rc;
}

static void runpod_close(struct provider *p) {
    if (p == NULL) return;
    struct runpod *r = runpod_of(p);
    http_close(r->http);
    runpod_key_clear(&r->key);
    free(r->url);
    strv_clear(&r->accounts);
    free(p->owner);
    free(r);
}

static int runpod_open(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    /* script: the keys of a node; bodies carry it */
    static const char *const hidden[] = {RUNPOD_START, NULL};
    struct runpod *r = xcalloc(1, sizeof *r);
    struct http_options opt = {.cancel = env->cancel};
    r->base.ops = &provider_runpod;
    r->base.owner = env->owner != NULL ? xstrdup(env->owner) : owner_of_login();
    r->cancel = env->cancel;
    r->journal = env->journal;
    r->rest = (struct rest){.provider = &r->base,
                            .ctx = r,
                            .ensure = ensure,
                            .authorize = authorize,
                            .said = runpod_said,
                            .rows = runpod_errors,
                            .row_count = runpod_error_count,
                            .hidden = hidden};
    int rc = runpod_key_find(&r->key, err);
    if (rc == 0) rc = find_url(r, err);
    if (rc == 0) rc = http_open(&opt, &r->http, err);
    if (rc != 0) {
        runpod_close(&r->base);
        return rc;
    }
    api_key_account(&r->accounts, &r->key.value, &r->base);
    r->rest.http = r->http;
    *ret = &r->base;
    return 0;
}

const struct provider_ops provider_runpod = {
    .name = "runpod",
    .summary = "RunPod: pods, which are containers, on demand",
    .spec = &runpod_spec,
    .note = "runpod: nodes are containers; nobody but 'gpuprov gc' terminates them at their deadline",
    .ends = ENDS_GC_ONLY,
    .guest_end = GUEST_NOTHING,
    .node_shape = NODE_CONTAINER,
    .user_data_max = 32768,
    .poll_ms = 5000,
    .replay_max_s = 0, /* no tokens: create searches for it, and sends once more what left nothing */
    .unique_claim = false,
    .user_data = true,
    .key_rotation = true,
    .billed = true,
    .boot_timeout_ms = 20 * 60 * 1000, /* a host without the image fetches tens of gigabytes */
    .settle_ms = 10 * 1000,
    .image_refusal = "RunPod cannot make an image of a pod",
    .policy_refusal = "RunPod's API keys have no permissions for single pods",
    .doctor = runpod_doctor,
    .open = runpod_open,
    .close = runpod_close,
    .offers = runpod_offers,
    .prepare = runpod_prepare,
    .create = runpod_create,
    .list = runpod_list,
    .destroy = runpod_destroy,
    .tag = NULL, /* a pod's variables change only with a restart, and that brings its first host key back */
    .console = NULL,
};
