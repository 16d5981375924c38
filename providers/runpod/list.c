/* SPDX-License-Identifier: Apache-2.0 */
/* Pods as resources. A pod's identity is in variables of its environment; GET /v2/pods returns all pods of the account
 * at once. Everything in a reply is checked before it is used. One thread at a time. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "model/labels.h"

void runpod_pod_clear(struct runpod_pod *p) {
    resource_clear(&p->res);
    tags_clear(&p->tags);
}

static const char *word_or(const char *text, const char *other) { return form_word(text) ? text : other; }

/* --- one pod --- */

/* A variable that is not text makes the pod unreadable. */
static void read_identity(const json_t *env, struct runpod_pod *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)(uintptr_t)env, key, value) {
        if (!str_starts(key, RUNPOD_TAG)) continue;
        ret->ours = true;
        labels_add(&labels, key, json_is_string(value) ? json_string_value(value) : "");
    }
    labels_read(&labels_runpod, &labels, &ret->tags);
    tags_to_resource(&ret->tags, 0, &ret->res);
}

/* A stopped pod keeps its disk, which is billed, and its place on the host. */
static void read_state(const json_t *pod, struct runpod_pod *ret) {
    const char *status = json_str(pod, "status", "");
    struct resource *r = &ret->res;
    if (strcmp(status, "RUNNING") == 0) {
        r->state = RES_RUNNING;
    } else if (strcmp(status, "TERMINATED") == 0) {
        r->state = RES_GONE;
    } else if (strcmp(status, "EXITED") == 0) {
        r->state = RES_STOPPED;
        resource_set(&r->state_reason, "EXITED: its container ended, and its disk is still billed");
    } else if (strcmp(status, "ERROR") == 0) {
        r->state = RES_STOPPED;
        resource_set(&r->state_reason, "ERROR: RunPod could not run its container");
        ret->failed = true;
    } else {
        r->state = RES_PENDING; /* PROVISIONING, STARTING, and states that are new: not gone */
    }
    r->billed = r->state != RES_GONE;
    ret->failed = ret->failed || r->state == RES_GONE;
    bool has_host = json_str(pod, "dataCenterId", "")[0] != '\0';
    ret->placed = has_host || (strcmp(status, "PROVISIONING") != 0 && !ret->failed);
}

static void set_port(struct resource *r, const char *host, int64_t port) {
    if (!form_host(host) || port < 1 || port > 65535) return;
    resource_set(&r->public_ip, host);
    r->ssh_port = (uint16_t)port;
}

/* SSH is at a mapped port: until there is one, the pod has no address. */
static void read_addresses(const json_t *pod, struct resource *r) {
    const json_t *ports = json_at(pod, "runtime.ports"), *one = NULL;
    size_t i = 0;
    const char *private_ip = json_str(pod, "globalNetworking.ip", "");
    resource_set(&r->private_ip, form_address(private_ip) ? private_ip : "");
    set_port(r, json_str(pod, "ssh.direct.host", ""), json_int(pod, "ssh.direct.port", 0));
    json_array_foreach(ports, i, one) {
        bool ssh = json_int(one, "private", 0) == 22 && strcmp(json_str(one, "type", ""), "tcp") == 0;
        if (ssh && r->public_ip[0] == '\0') set_port(r, json_str(one, "ip", ""), json_int(one, "public", 0));
    }
    resource_set(&r->user, "root");
    /* a private address alone cannot be reached from here, and has no mapped port */
    if (r->public_ip[0] == '\0') resource_set(&r->private_ip, "");
}

static void read_type(const json_t *pod, struct resource *r) {
    char type[80];
    const char *gpu = json_str(pod, "gpu.id", ""), *cpu = json_str(pod, "cpu.id", "");
    int64_t gpus = json_int(pod, "gpu.count", 1);
    str_put(type, sizeof type, gpu[0] != '\0' ? gpu : cpu);
    for (char *c = type; *c != '\0'; c++)
        if (*c == ' ') *c = '-';
    resource_set(&r->instance_type, word_or(type, ""));
    r->gpus = gpu[0] == '\0' ? 0 : gpus >= 1 && gpus <= 64 ? (int)gpus : -1;
}

int runpod_pod_read(const json_t *pod, struct runpod_pod *ret, struct gp_error *err) {
    *ret = (struct runpod_pod){0};
    resource_init(&ret->res, RES_INSTANCE, "runpod");
    struct resource *r = &ret->res;
    const char *id = json_str(pod, "id", ""), *created = json_str(pod, "createdAt", "");
    if (!form_word(id))
        return gp_fail(err, GP_EPROTO, "runpod: a reply has a pod without an id: run the command again");
    resource_set(&r->id, id);
    read_identity(json_at(pod, "env"), ret);
    read_state(pod, ret);
    read_addresses(pod, r);
    read_type(pod, r);
    const char *planned = word_or(json_str(pod, "env." RUNPOD_REGION, ""), RUNPOD_ANYWHERE);
    resource_set(&r->region, word_or(json_str(pod, "dataCenterId", ""), planned));
    bool community = strcmp(json_str(pod, "cloud", ""), "COMMUNITY") == 0;
    GP_AUTO_FREE char *zone = xasprintf("%s-%s", r->region, community ? RUNPOD_COMMUNITY : RUNPOD_SECURE);
    resource_set(&r->zone, zone);
    double cost = json_num(pod, "cost", 0);
    if (r->price_usd_per_h < 0 && cost > 0 && cost < 100000) r->price_usd_per_h = cost;
    if (!time_parse_utc(created, &r->created_s)) r->created_s = 0;
    return 0;
}

/* --- the list --- */

/* Calls each for every pod of the account that has variables of gpuprov or is known. */
static int every_pod(struct runpod *r, bool (*wanted)(const void *ctx, const struct runpod_pod *p), const void *ctx,
                     struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    json_t *pods = NULL, *pod = NULL;
    size_t i = 0;
    int rc = runpod_call(r, "runpod list pods", "GET", "/pods", NULL, 0, &reply, err);
    if (rc != 0) return rc;
    pods = json_at(reply.json, "pods");
    if (!json_is_array(pods))
        return gp_fail(err, GP_EPROTO, "runpod list pods: the reply has no list 'pods': check RUNPOD_API_BASE_URL");
    json_array_foreach(pods, i, pod) {
        struct runpod_pod p;
        rc = runpod_pod_read(pod, &p, err);
        if (rc == 0 && wanted(ctx, &p)) {
            vec_push(&ret->list, p.res); /* moves it */
            tags_clear(&p.tags);
            continue;
        }
        runpod_pod_clear(&p);
        if (rc != 0) return rc;
    }
    return 0;
}

struct of_stack {
    const char *owner, *stack;
};
static bool is_of_stack(const void *ctx, const struct runpod_pod *p) {
    const struct of_stack *w = ctx;
    return p->ours && p->res.state != RES_GONE && p->res.unreadable[0] == '\0' && str_eq(p->res.owner, w->owner) &&
           str_eq(p->res.stack, w->stack);
}
int runpod_list_stack(struct runpod *r, const char *owner, const char *stack, struct resource_list *ret,
                      struct gp_error *err) {
    struct of_stack w = {owner, stack};
    return every_pod(r, is_of_stack, &w, ret, err);
}

static bool has_uid(const void *ctx, const struct runpod_pod *p) {
    return p->ours && p->res.unreadable[0] == '\0' && str_eq(p->res.uid, ctx);
}
int runpod_list_uid(struct runpod *r, const char *uid, struct resource_list *ret, struct gp_error *err) {
    return every_pod(r, has_uid, uid, ret, err);
}

static bool is_known(const struct resource_list *known, const struct resource *r) {
    for (size_t i = 0; known != NULL && i < known->list.len; i++)
        if (str_eq(known->list.items[i].id, r->id)) return true;
    return false;
}

/* By the single tags: a pod whose other tags were changed is listed as unreadable, not hidden. */
static bool is_wanted(const void *ctx, const struct runpod_pod *p) {
    const struct list_req *req = ctx;
    const struct tags *t = &p->tags;
    if (is_known(req->known, &p->res)) return true;
    if (!p->ours || !str_eq(t->owner, req->owner)) return false;
    return req->stack == NULL || str_eq(t->stack, req->stack) || (req->uid != NULL && str_eq(t->uid, req->uid));
}

/* One call lists the whole account, so every place that was asked for is covered, and all others. */
int runpod_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct gp_error why = {0};
    if (req->images) return 0;
    int r = every_pod(runpod_of(p), is_wanted, req, ret, &why);
    if (req->looked != NULL) {
        coverage_put(req->looked, "runpod", "", req->owner, true, r != 0 ? &why : NULL);
        for (size_t i = 0; req->regions != NULL && i < req->regions->n; i++)
            coverage_put(req->looked, "runpod", req->regions->v[i], req->owner, true, r != 0 ? &why : NULL);
    }
    if (r != 0 && err != NULL) *err = why;
    return r != 0 ? gp_wrap(err, "listing the pods of '%s'", req->owner) : 0;
}
