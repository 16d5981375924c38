/* SPDX-License-Identifier: Apache-2.0 */
/* A cloud whose every reply is the fuzzer's input: these are the functions of providers/http.c, and what a target of a
 * provider does with it. One thread.
 *
 * An input is blocks, each "### STATUS METHOD CALL" and then the body of the replies to that call, in order; the last one
 * is repeated. CALL: the path of the URL, and the action where all actions have one path. Text before the first block
 * answers every other call with status 200. A file of a corpus that begins with "yields 3 offers, 4 resources" is held to
 * that when it is replayed, so that a target which reads nothing any more is noticed. */
#ifndef GP_FUZZ_CLOUD_REPLIES_H
#define GP_FUZZ_CLOUD_REPLIES_H

#include "base/form.h"
#include "base/fs.h"
#include "providers/bucket/bucket.h"
#include "providers/http.h"
#include "providers/provider.h"
#include "tests/unit/folder.h"
#include "validate/validate.h"

#include <math.h>

#define FUZZ GP_UNUSED static
extern const bool fuzz_replays __attribute__((weak)); /* replay_main.c has it, libFuzzer does not */
#define CALLS_MAX 300                                 /* of one input: a list without an end would go on for ever */
#define BLOCKS_MAX 64

struct block {
    const char *head, *body; /* head: "200 GET /path", without its end */
    size_t head_len, body_len;
    bool used;
};
static struct {
    struct block blocks[BLOCKS_MAX];
    size_t n;
    const char *other;
    size_t other_len;
    int calls;
} replies;

struct http {
    int unused;
};

FUZZ void must(bool holds, const char *what, const char *value) {
    if (holds) return;
    fprintf(stderr, "%s: '%s'\n", what, value);
    abort();
}

FUZZ void replies_set(const char *data, size_t size) {
    const char *p = data, *end = data + size;
    memset(&replies, 0, sizeof replies);
    replies.other = p;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p)), *next = nl != NULL ? nl + 1 : end;
        bool head = end - p > 4 && memcmp(p, "### ", 4) == 0 && replies.n < BLOCKS_MAX;
        if (head) {
            struct block b = {.head = p + 4, .head_len = (size_t)((nl != NULL ? nl : end) - p) - 4, .body = next};
            replies.blocks[replies.n++] = b;
        } else if (replies.n > 0) {
            replies.blocks[replies.n - 1].body_len = (size_t)(next - replies.blocks[replies.n - 1].body);
        } else {
            replies.other_len = (size_t)(next - replies.other);
        }
        p = next;
    }
}

/* "GET /path", with " Action" where a header names one. */
FUZZ char *call_name(const struct http_req *req, const struct http_fields *more) {
    const char *host = strstr(req->url, "://"), *path = host != NULL ? strchr(host + 3, '/') : NULL;
    const char *action = http_fields_get(more, "x-acs-action");
    if (path == NULL) path = "/";
    return xasprintf("%s %.*s%s%s", req->method, (int)strcspn(path, "?"), path, action != NULL ? " " : "",
                     action != NULL ? action : "");
}

int http_open(const struct http_options *opt, struct http **ret, struct gp_error *err) {
    (void)opt;
    (void)err;
    *ret = xcalloc(1, sizeof **ret);
    return 0;
}
void http_close(struct http *h) { free(h); }
void http_cleanup(struct http **h) { http_close(*h); }
bool http_over(const struct http *h) { return h == NULL; }

int http_call(struct http *h, const struct http_req *req, struct http_resp *ret, struct gp_error *err) {
    GP_AUTO_FIELDS struct http_fields signature = {0};
    struct block *found = NULL;
    (void)h;
    /* what was read from earlier replies became a part of this request */
    for (const char *p = req->url; *p != '\0'; p++)
        must((unsigned char)*p > ' ' && (unsigned char)*p < 0x7f, "a character in a URL", req->url);
    must(strstr(req->url, "/../") == NULL, "a URL that climbs", req->url);
    for (size_t i = 0; req->headers != NULL && i < req->headers->list.len; i++)
        must(strpbrk(req->headers->list.items[i].value, "\r\n") == NULL, "a line in a header", req->url);
    int r = req->sign != NULL ? req->sign(req->ctx, &signature, err) : 0;
    for (size_t i = 0; i < signature.list.len; i++)
        must(strpbrk(signature.list.items[i].value, "\r\n") == NULL, "a line in a header", req->url);
    if (r != 0) return r;
    GP_AUTO_FREE char *name = call_name(req, &signature);
    if (++replies.calls > CALLS_MAX) return gp_fail(err, GP_EENDPOINT, "%s: no more replies", req->what);
    for (size_t i = 0; i < replies.n && (found == NULL || found->used); i++) {
        struct block *b = &replies.blocks[i];
        if (b->head_len == strlen(name) + 4 && memcmp(b->head + 4, name, b->head_len - 4) == 0) found = b;
    }
    ret->attempts = 1;
    ret->sent = true;
    ret->retry_after_s = -1;
    ret->status = 200;
    str_add_mem(&ret->body, found != NULL ? found->body : replies.other,
                found != NULL ? found->body_len : replies.other_len);
    if (found != NULL) {
        int64_t status = 0;
        GP_AUTO_FREE char *number = xstrndup(found->head, 3);
        if (str_to_i64(number, 100, 599, &status)) ret->status = (int)status;
        found->used = true;
    }
    http_fields_add(&ret->headers, "X-Subject-Token", "token"); /* OpenStack's, beside the body */
    if (req->judge != NULL) (void)req->judge(req->ctx, ret);
    return 0;
}

void http_call_many(struct http *h, const struct http_req *reqs, size_t n, size_t at_once, struct http_result *ret) {
    (void)at_once;
    for (size_t i = 0; i < n; i++) ret[i].rc = http_call(h, &reqs[i], &ret[i].resp, &ret[i].err);
}

/* --- what came out --- */

static char home[256];

static void remove_home(void) { (void)fs_remove_tree(home, NULL); }

/* A home without files, and nothing of the person's own in the environment. */
FUZZ void fuzz_home(void) {
    must(make_folder(home, sizeof home, "fuzz-cloud") != NULL && atexit(remove_home) == 0, "no folder", home);
    setenv("HOME", home, 1);
    setenv("GPUPROV_STATE_DIR", home, 1);
    setenv("GPUPROV_OWNER", "tester", 1);
}

/* May become a part of a path or a line of a terminal: no blanks, no control characters, nothing that climbs. */
FUZZ bool is_plain(const char *s) {
    for (const char *p = s; *p != '\0'; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7f || strchr("'\"\\`$;|<>", *p) != NULL) return false;
    return strstr(s, "..") == NULL;
}

/* A name that people chose, as flavors of OpenStack have: one line. */
FUZZ bool is_text(const char *s) {
    for (; *s != '\0'; s++)
        if ((unsigned char)*s < ' ' || (unsigned char)*s >= 0x7f) return false;
    return true;
}

FUZZ void look_at_resource(const struct resource *r) {
    must(r->id[0] != '\0' && is_plain(r->id), "id", r->id);
    must(is_plain(r->region) && is_plain(r->zone), "region", r->region);
    must(is_text(r->instance_type), "instance type", r->instance_type);
    must(r->public_ip[0] == '\0' || form_host(r->public_ip), "public address", r->public_ip);
    must(r->private_ip[0] == '\0' || form_address(r->private_ip), "private address", r->private_ip);
    bool who = r->uid[0] != '\0';
    must(!who || (form_uid(r->uid) && form_owner(r->owner) && form_stack(r->stack)), "identity", r->uid);
    must(r->spec_hash[0] == '\0' || form_spec_hash(r->spec_hash), "spec hash", r->spec_hash);
    must(r->user[0] == '\0' || form_login(r->user), "user", r->user);
    must(r->host_keys[0] == '\0' || form_fingerprint(r->host_keys), "host key", r->host_keys);
    must(r->slot >= -1 && r->attempt >= 0 && r->gpus >= -1 && r->expires_s >= 0 && r->created_s >= 0, "number", r->id);
    must(!isnan(r->price_usd_per_h) && !isinf(r->price_usd_per_h), "price", r->id);
    must(strpbrk(r->state_reason, "\n\r\x1b\x07") == NULL, "state", r->state_reason);
    must(strpbrk(r->unreadable, "\n\r\x1b\x07") == NULL, "unreadable", r->unreadable);
}

FUZZ void look_at_offer(const struct offer *o) {
    must(o->region != NULL && is_plain(o->region) && (o->zone == NULL || is_plain(o->zone)), "region", o->region);
    must(o->instance_type != NULL && o->instance_type[0] != '\0' && is_text(o->instance_type), "type",
         o->instance_type);
    must(!isnan(o->price_usd_per_h) && !isinf(o->price_usd_per_h), "price", o->instance_type);
    must(!isnan(o->memory_gib) && o->memory_gib >= 0 && !isinf(o->memory_gib), "memory", o->instance_type);
    must(o->gpus >= 0 && o->vcpus >= 0 && o->max_count >= 0 && o->disk_gib >= 0, "number", o->instance_type);
}

FUZZ void look_at_error(int r, const struct gp_error *err) {
    must((r != 0) == (err->code != GP_OK) && (r != 0) == (err->msg[0] != '\0'), "an error without a text", err->msg);
    for (const char *p = err->msg; *p != '\0'; p++)
        must((unsigned char)*p >= ' ' && *p != 0x7f, "a control character in an error", err->msg);
}

FUZZ void look_at_list(struct provider *p, const char *stack, size_t *ret_n) {
    GP_AUTO_RESOURCES struct resource_list found = {0};
    struct gp_error err = {0};
    struct coverage looked = {0};
    struct list_req req = {.owner = "tester", .stack = stack, .looked = &looked};
    for (size_t k = 0; k < replies.n; k++) replies.blocks[k].used = false;
    int r = p->ops->list(p, &req, &found, &err);
    look_at_error(r, &err);
    for (size_t k = 0; k < found.list.len; k++) look_at_resource(&found.list.items[k]);
    *ret_n += found.list.len;
    coverage_clear(&looked);
}

FUZZ void look_at_offers(struct provider *p, const struct spec *spec, size_t *ret_n) {
    GP_AUTO_OFFERS struct offer_list offers = {0};
    struct gp_error err = {0};
    int r = p->ops->offers(p, spec, 0, &offers, &err);
    look_at_error(r, &err);
    for (size_t i = 0; i < offers.list.len; i++) look_at_offer(&offers.list.items[i]);
    *ret_n = offers.list.len;
}

FUZZ const struct spec *fuzz_spec(const char *text) {
    static struct spec *spec;
    struct spec_problems problems = {0};
    struct gp_error err = {0};
    if (spec != NULL) return spec;
    provider_specs_register();
    int r = spec_load_text("fuzz.yaml", text, strlen(text), validate_names(), &spec, &problems, &err);
    must(r == 0, "the spec", r != 0 && problems.list.len > 0 ? problems.list.items[0].message : err.msg);
    spec_problems_clear(&problems);
    return spec;
}

FUZZ void look_at_yield(const char *data, size_t size, size_t offers, size_t resources) {
    GP_AUTO_FREE char *yields = xasprintf("yields %zu offers, %zu resources\n", offers, resources);
    if (&fuzz_replays == NULL || size < 7 || memcmp(data, "yields ", 7) != 0) return;
    must(size > strlen(yields) && memcmp(data, yields, strlen(yields)) == 0, "another yield than the corpus says",
         yields);
}

/* Opens the provider, reads its offers, lists everything and then the stack "far". spec: one offer of that provider. */
FUZZ void fuzz_provider(const struct provider_ops *ops, const char *spec_text, const uint8_t *data, size_t size) {
    const struct spec *spec = fuzz_spec(spec_text);
    struct gp_error err = {0};
    struct gp_cancel cancel;
    size_t offers = 0, resources = 0;
    replies_set((const char *)data, size);
    must(gp_cancel_init(&cancel, &err) == 0, "cancel", err.msg);
    struct provider_env env = {.cancel = &cancel, .state_dir = home, .owner = "tester", .spec = spec};
    struct provider *p = NULL;
    int r = ops->open(&env, &p, &err);
    look_at_error(r, &err);
    if (r == 0) {
        look_at_offers(p, spec, &offers);
        look_at_list(p, NULL, &resources);
        look_at_list(p, "far", &resources);
    }
    look_at_yield((const char *)data, size, offers, resources);
    ops->close(p);
    gp_cancel_clear(&cancel);
}

#endif
