/* SPDX-License-Identifier: Apache-2.0 */
/* Creates pods: one request each, after its intent. RunPod has no tokens: a request whose reply was lost is searched
 * for by the pods' variables, and sent once more when it left nothing. A pod that has no host yet counts as accepted,
 * not as created. One thread. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/form.h"
#include "base/hash.h"
#include "model/labels.h"
#include "providers/common/intents.h"
#include "providers/common/launch/slot_create.h"

/* The script is in base64, so that no quotes of it meet those of RunPod's way to a command line. */
#define ARGS "sh -c 'eval \"$(printf %s \"$" RUNPOD_START "\" | base64 -d)\"'"
#define PLACEMENT_MS (3 * 60 * 1000)

/* --- the body --- */

static json_t *environment(const struct create_req *req, int slot) {
    GP_AUTO_LABELS struct label_list labels = {0};
    GP_AUTO_FREE char *script = base64_text(req->user_data, strlen(req->user_data));
    struct tags tags;
    json_t *env = json_object();
    cloud_launch_tags(req, slot, 1, &tags);
    labels_write(&labels_runpod, &tags, &labels);
    for (size_t i = 0; i < labels.list.len; i++)
        json_object_set_new(env, labels.list.items[i].key, json_string(labels.list.items[i].value));
    tags_clear(&tags);
    json_object_set_new(env, RUNPOD_REGION, json_string(req->offer->region));
    json_object_set_new(env, RUNPOD_START, json_string(script));
    return env;
}

static json_t *compute(const struct create_req *req) {
    const struct offer *o = req->offer;
    char cuda[16];
    if (o->gpus == 0) return json_pack("{s:s, s:i}", "id", o->instance_type, "vcpuCount", o->vcpus);
    json_t *gpu = json_pack("{s:s, s:i}", "id", o->gpu_model, "count", o->gpus);
    runpod_minimum_cuda(req->spec, o->spec_index, cuda, sizeof cuda);
    if (cuda[0] != '\0') json_object_set_new(gpu, "minCudaVersion", json_string(cuda));
    return gpu;
}

static int body(void *ctx, const struct create_req *req, int slot, const char *token, struct str *out,
                struct gp_error *err) {
    const struct offer *o = req->offer;
    bool gpu = o->gpus > 0;
    (void)ctx, (void)token;
    if (strlen(req->user_data) > provider_runpod.user_data_max)
        return gp_fail(err, GP_EINTERNAL, "the start script has %zu bytes, at most %zu are allowed",
                       strlen(req->user_data), provider_runpod.user_data_max);
    GP_AUTO_FREE char *name = xasprintf("gpuprov-%s-%d-%s-a%d", req->stack->name, slot, req->stack->uid, req->attempt);
    GP_AUTO_JSON json_t *j = json_pack("{s:s, s:s, s:s, s:o, s:i, s:[s], s:o, s:s}", "name", name, "image", o->image,
                                       "cloud", str_ends(o->zone, "-" RUNPOD_COMMUNITY) ? "COMMUNITY" : "SECURE",
                                       gpu ? "gpu" : "cpu", compute(req), "disk", runpod_disk_gb(req->spec, o->gpus),
                                       "ports", "22/tcp", "env", environment(req, slot), "args", ARGS);
    if (j == NULL) return gp_fail(err, GP_EUSAGE, "runpod: the name of the image is not valid UTF-8: correct image.id");
    if (strcmp(o->region, RUNPOD_ANYWHERE) != 0) json_object_set_new(j, "dataCenterIds", json_pack("[s]", o->region));
    if (req->spec->nodes > 1) json_object_set_new(j, "globalNetworking", json_true());
    GP_AUTO_FREE char *text = json_text_exact(j, 0);
    str_add(out, text);
    return 0;
}

/* --- outcomes --- */

/* A pod of a reply: of this slot, or nothing that can be relied on. */
static void take_pod(const struct intent *in, const json_t *pod, struct slot_outcome *ret) {
    struct runpod_pod p;
    struct gp_error why = {0};
    int rc = runpod_pod_read(pod, &p, &why);
    bool same = rc == 0 && p.ours && str_eq(p.res.uid, in->uid) && p.res.slot == in->slot_first &&
                p.res.attempt == in->attempt && p.res.unreadable[0] == '\0';
    if (!same) {
        ret->state = SLOT_UNKNOWN; /* the list settles it */
        gp_fail(&ret->err, GP_EUNKNOWN, "runpod: the reply does not name the pod that was requested");
        runpod_pod_clear(&p);
        return;
    }
    resource_clear(&ret->made);
    ret->made = p.res; /* moves it */
    tags_clear(&p.tags);
    ret->state = p.failed ? SLOT_REFUSED : p.placed ? SLOT_MADE : SLOT_ACCEPTED;
    if (!p.failed) return;
    gp_fail(&ret->err, GP_ECAPACITY, "runpod: pod %s was accepted and got no host (%s)", ret->made.id,
            ret->made.state == RES_GONE ? "TERMINATED" : "ERROR");
    ret->err.domain = GP_D_CLOUD;
    ret->err.scope = GP_SCOPE_ZONE;
    str_put(ret->err.detail, sizeof ret->err.detail, "accepted, then failed");
}

static void send(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct runpod *r = ctx;
    GP_AUTO_FREE char *url = xasprintf("%s/pods", r->url);
    struct rest_call *calls = xcalloc(n + 1, sizeof *calls);
    struct rest_result *results = xcalloc(n + 1, sizeof *results);
    for (size_t i = 0; i < n; i++)
        calls[i] = (struct rest_call){
            .what = "runpod create pod", .method = "POST", .url = url, .body = in[i]->body, .flags = REST_ONCE};
    rest_call_many(&r->rest, calls, n, RUNPOD_AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        if (results[i].rc == 0) {
            take_pod(in[i], results[i].reply.json, &ret[i]);
        } else {
            ret[i].state = results[i].rc == -GP_EUNKNOWN ? SLOT_UNKNOWN : SLOT_REFUSED;
            ret[i].err = results[i].err;
        }
        rest_reply_clear(&results[i].reply);
    }
    free(results);
    free(calls);
}

/* A list may lag behind a create, so a pod that is not found is not known to be gone. */
static void poll_pods(void *ctx, const struct intent *const *in, size_t n, struct slot_outcome *ret) {
    struct runpod *r = ctx;
    for (size_t i = 0; i < n; i++) {
        GP_AUTO_REST struct rest_reply reply = {0};
        struct gp_error why = {0};
        GP_AUTO_FREE char *path = xasprintf("/pods/%s", ret[i].made.id);
        int rc = runpod_call(r, "runpod get pod", "GET", path, NULL, REST_MISSING, &reply, &why);
        if (rc == 0 && reply.status != 404) take_pod(in[i], reply.json, &ret[i]);
    }
}

static int list(void *ctx, const char *region, const char *uid, struct resource_list *ret, struct gp_error *err) {
    (void)region;
    return runpod_list_uid(ctx, uid, ret, err);
}

static int destroy(void *ctx, const struct resource_list *what, struct gp_error *err) {
    struct runpod *r = ctx;
    return runpod_destroy(&r->base, what, err);
}

static const struct slot_ops ops = {.provider = "runpod",
                                    .settle_ms = 10 * 1000,
                                    .poll_ms = 1000,
                                    .placement_ms = PLACEMENT_MS,
                                    .replay_max_s = 0,
                                    .repeat_max_s = 10 * 60,
                                    .body = body,
                                    .send = send,
                                    .poll = poll_pods,
                                    .list = list,
                                    .destroy = destroy};

/* --- rivals --- */

static bool is_before(const struct resource *a, const struct resource *b) {
    if (b == NULL || a->created_s != b->created_s) return b == NULL || a->created_s < b->created_s;
    return strcmp(a->id, b->id) < 0;
}

/* Two runs may have launched one stack under two uids: that of the oldest pod stays, the other one ends its pods. A pod
 * without the proof of a launch with this login key is somebody else's: nothing is ended because of it. */
static int yield_to_older(struct runpod *r, const struct create_req *req, struct resource_list *made,
                          struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct gp_error why = {0};
    const struct resource *first = NULL;
    if (runpod_list_stack(r, req->stack->owner, req->stack->name, &all, &why) != 0)
        return 0; /* the next look finds them */
    for (size_t i = 0; i < made->list.len; i++)
        if (is_before(&made->list.items[i], first)) first = &made->list.items[i];
    for (size_t i = 0; i < all.list.len; i++)
        if (proof_launch_holds(req->proof, &all.list.items[i]) && is_before(&all.list.items[i], first))
            first = &all.list.items[i];
    if (first == NULL || str_eq(first->uid, req->stack->uid)) return 0;
    int rc = runpod_destroy(&r->base, made, &why);
    if (rc != 0)
        return gp_fail(err, GP_EBILLED,
                       "runpod: another run launched '%s' first, and the pods of this one could not be "
                       "terminated: %.200s: run 'gpuprov down %s'",
                       req->stack->name, why.msg, req->stack->name);
    rc = gp_fail(err, GP_EEXISTS,
                 "runpod: another run launched '%s' first (pod %s), and the pods of this one were terminated: run "
                 "'gpuprov up' again",
                 req->stack->name, first->id);
    for (size_t i = 0; i < made->list.len; i++) made->list.items[i].state = RES_GONE;
    return rc;
}

int runpod_create(struct provider *p, const struct create_req *req, struct resource_list *ret, struct gp_error *err) {
    struct runpod *r = runpod_of(p);
    struct slot_create c = {
        .ops = &ops, .ctx = r, .account = r->base.account, .journal = r->journal, .cancel = r->cancel};
    int rc = slot_create(&c, req, ret, err);
    return rc == 0 && req->replay == NULL ? yield_to_older(r, req, ret, err) : rc;
}
