// SPDX-License-Identifier: Apache-2.0
/* Creates nodes, one request each: intent first, no tokens, so that a lost reply is settled by tags, and a request
 * that left nothing in the lists is sent once more. A node counts when its cloud has placed it and the deadline that
 * was sent can be read back. One thread. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/hash.h"
#include "providers/common/account_list.h"
#include "providers/common/intents.h"
#include "providers/common/launch/slot_send.h"

#define AT_ONCE 8 /* beside the pace of requests */

struct launching {
    struct shade *s;
    const struct stack *stack;
};

/* --- the request --- */

static json_t *tags_json(const struct create_req *req, int slot) {
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags tags;
    cloud_launch_tags(req, slot, 1, &tags);
    bool whole = labels_write(&labels_shadeform, &tags, &labels);
    tags_clear(&tags);
    if (!whole) return NULL;
    json_t *all = json_array();
    for (size_t i = 0; i < labels.list.len; i++)
        json_array_append_new(all, json_sprintf("%s=%s", labels.list.items[i].key, labels.list.items[i].value));
    return all;
}

static int body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                struct gp_error *err) {
    const struct launching *c = ctx;
    const struct offer *o = req->offer;
    GP_AUTO_STR struct str script = {0};
    char deadline[32];
    (void)token;
    int r = key_claim_of(&c->s->claims, req->stack, err);
    if (r != 0) return r;
    const char *dot = strchr(o->region, '.');
    if (dot == NULL) return gp_fail(err, GP_EUSAGE, "shadeform: '%s' is not CLOUD.REGION: correct regions", o->region);
    shade_script(req, &script);
    if (script.len > provider_shadeform.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "shadeform: the startup script has %zu bytes", script.len);
    json_t *tags = tags_json(req, slot);
    if (tags == NULL) return gp_fail(err, GP_EUSAGE, "shadeform: the tags are too long: use a shorter --owner");
    GP_AUTO_FREE char *cloud = xstrndup(o->region, (size_t)(dot - o->region));
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s-%d", req->stack->name, slot);
    GP_AUTO_FREE char *coded = base64_text(script.s, script.len);
    time_format_utc(deadline, sizeof deadline, req->stack->expires_s);
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s,s:s,s:s,s:b,s:s,s:s,s:s,s:o,s:{s:s},s:{s:s,s:{s:s}}}", "cloud", cloud, "region", dot + 1,
                  "shade_instance_type", o->instance_type, "shade_cloud", 1, "name", name, "os", o->image, "ssh_key_id",
                  c->s->claims.id, "tags", tags, "auto_delete", "date_threshold", deadline, "launch_configuration",
                  "type", "script", "script_configuration", "base64_script", coded);
    if (j == NULL) return gp_fail(err, GP_EINTERNAL, "shadeform: the request is not UTF-8: report this as a bug");
    char *text = json_dumps(j, JSON_COMPACT);
    str_add(out, text != NULL ? text : "");
    free(text);
    return 0;
}

/* --- sending --- */

static int launch(void *ctx, const struct intent *in, struct slot_outcome *ret) {
    struct shade *s = ctx;
    GP_AUTO_REST struct rest_reply reply = {0};
    GP_AUTO_JSON json_t *request = NULL;
    int r = json_parse(in->body, strlen(in->body), "the request", &request, &ret->err);
    if (r == 0) r = shade_call(s, "POST", "/instances/create", request, REST_ONCE, NULL, &reply, NULL, &ret->err);
    if (r != 0) return r;
    const char *id = json_str(reply.json, "id", "");
    if (!form_word(id))
        return gp_fail(&ret->err, GP_EUNKNOWN, "shadeform create in %s: the reply has no id of an instance",
                       in->region);
    resource_set(&ret->made.id, id);
    return 0;
}

static void send(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    const struct launching *c = ctx;
    slot_send_each(c->stack, in, n, ret, launch, c->s);
}

/* --- placement --- */

static void refuse(struct slot_outcome *ret, enum gp_code code, const struct intent *in, const char *why) {
    gp_fail(&ret->err, code, "shadeform create in %s: %.200s: %s", in->region, ret->made.id, why);
    ret->err.domain = GP_D_CLOUD;
    ret->err.scope = GP_SCOPE_REGION;
    ret->state = SLOT_REFUSED;
}

/* The deadline in the reply is the one of the request, to the minute. */
static bool has_deadline(const json_t *info, int64_t expires_s) {
    int64_t at = 0;
    return time_parse_utc(json_str(info, "auto_delete.date_threshold", ""), &at) && llabs(at - expires_s) <= 60;
}

static bool is_placing(const char *status) { return str_eq(status, "creating") || str_eq(status, "pending_provider"); }

/* Decides by the reply of /info, which alone has the deadline. */
static void judge(const struct intent *in, const struct rest_result *res, struct slot_outcome *ret) {
    struct gp_error why = {0};
    struct resource r;
    if (res->rc != 0 || res->reply.status == 404) return; /* read again; it may not be there yet */
    int rc = shade_instance_read(res->reply.json, &r, &why);
    bool same = rc == 0 && str_eq(r.id, ret->made.id); /* its tags may have been edited since */
    const char *status = json_str(res->reply.json, "status", "");
    if (same && (r.state == RES_STOPPED || r.state == RES_STOPPING || r.state == RES_GONE)) {
        GP_AUTO_FREE char *text = xasprintf("it is %.160s", r.state_reason);
        refuse(ret, GP_ECAPACITY, in, text);
    } else if (same && !has_deadline(res->reply.json, in->deadline_s)) {
        refuse(ret, GP_EPROTO, in, "its deadline (auto_delete) cannot be read back: offer another provider");
    } else if (same && (str_eq(status, "pending") || r.state == RES_RUNNING)) {
        resource_clear(&ret->made);
        ret->made = r;
        ret->state = SLOT_MADE;
        return;
    }
    resource_clear(&r);
}

/* Ids that the account's list shows as not placed yet: one request instead of one for each. None when it fails. */
static void read_placing(struct shade *s, struct strv *ret) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *all = NULL, *one = NULL;
    struct gp_error why = {0};
    size_t i = 0;
    if (shade_call(s, "GET", "/instances", NULL, 0, "instances", &reply, &all, &why) != 0) return;
    json_array_foreach(all, i, one) {
        const char *id = json_str(one, "id", "");
        if (form_word(id) && is_placing(json_str(one, "status", ""))) strv_add(ret, id);
    }
}

/* The machines that are not known to be waiting are read side by side. */
static void poll(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    const struct launching *c = ctx;
    struct rest_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    size_t *which = xcalloc(n + 1, sizeof *which), reads = 0;
    GP_AUTO_STRV struct strv placing = {0}, texts = {0};
    if (n > 1) read_placing(c->s, &placing);
    for (size_t i = 0; i < n; i++) {
        const char *id = ret[i].made.id;
        if (!form_word(id) || strv_has(&placing, id)) continue;
        char *url = xasprintf("%s/instances/%s/info", c->s->endpoint, id);
        char *what = xasprintf("shadeform GET /instances/%s/info", id);
        strv_take(&texts, url);
        strv_take(&texts, what);
        calls[reads] = (struct rest_call){.what = what, .method = "GET", .url = url, .flags = REST_MISSING};
        which[reads++] = i;
    }
    rest_call_many(&c->s->rest, calls, reads, AT_ONCE, results);
    for (size_t k = 0; k < reads; k++) {
        judge(in[which[k]], &results[k], &ret[which[k]]);
        rest_reply_clear(&results[k].reply);
    }
    free(calls);
    free(results);
    free(which);
}

static int list(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err) {
    const struct launching *c = ctx;
    struct resource_list all = {0};
    int r = shade_instances(c->s, NULL, &all, err);
    account_list_take(&all, region, uid, ret);
    return r;
}

static int destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    const struct launching *c = ctx;
    return shade_delete_instances(c->s, what, err);
}

int shade_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct shade *s = shade_of(p);
    const struct slot_ops ops = {.provider = "shadeform",
                                 .settle_ms = provider_shadeform.settle_ms,
                                 .poll_ms = GP_MAX(4 * s->pace_ms, (int64_t)100),
                                 .placement_ms = 10 * 60 * 1000,
                                 .replay_max_s = provider_shadeform.replay_max_s,
                                 .repeat_max_s = 10 * 60,
                                 .one_by_one = true,
                                 .body = body,
                                 .send = send,
                                 .poll = poll,
                                 .list = list,
                                 .destroy = destroy};
    struct launching ctx = {s, req->stack};
    struct slot_create c = {
        .ops = &ops, .ctx = &ctx, .account = s->base.account, .journal = s->journal, .cancel = s->cancel};
    return slot_create(&c, req, ret, err);
}
