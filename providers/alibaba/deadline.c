// SPDX-License-Identifier: Apache-2.0
/* AutoReleaseTime, at which the cloud itself releases an instance. It counts only when the cloud shows it: it is read
 * back after a launch, and set a second time where it is missing. One thread. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

#include "base/clock.h"
#include "providers/common/cloud_clock.h"

#define LEAST_S (31 * 60) /* the cloud takes nothing below 30 minutes; a minute for the way */
#define READS 6
#define IDS_MAX 100

int64_t ali_release_s(const struct ali *a, int64_t expires_s) {
    int64_t at = GP_MAX(expires_s, cloud_now_s(&a->base) + LEAST_S);
    return (at + 59) / 60 * 60; /* the cloud cuts seconds off */
}

struct seen {
    int64_t expires_s, release_s;
    struct strv right, wrong; /* ids */
};

static int on_instance(void *ctx, const json_t *item, struct gp_error *err) {
    struct seen *s = ctx;
    const char *id = json_str(item, "InstanceId", "");
    int64_t at = ali_time(json_str(item, "AutoReleaseTime", ""));
    (void)err;
    if (!ali_id(id, "i-")) return 0;
    /* a deadline within the next half hour has a later release, which depends on when it was set */
    strv_add(at >= s->expires_s - 59 && at <= s->release_s + 60 ? &s->right : &s->wrong, id);
    return 0;
}

static int set_one(struct ali *a, const char *region, const char *id, int64_t release_s, struct gp_error *err) {
    GP_AUTO_STR struct str query = {0};
    GP_AUTO_REST struct rest_reply reply = {0};
    char when[32];
    time_format_utc(when, sizeof when, release_s);
    ali_begin(&query, region);
    ali_param(&query, "InstanceId", id);
    ali_param(&query, "AutoReleaseTime", when);
    return ali_call(a, ALI_ECS, region, "ModifyInstanceAutoReleaseTime", &query, 0, &reply, err);
}

static int read_back(struct ali *a, const char *region, const struct resource_list *machines, struct seen *s,
                     struct gp_error *err) {
    for (size_t at = 0; at < machines->list.len; at += IDS_MAX) {
        GP_AUTO_STR struct str ids = {0};
        struct ali_list l = {.service = ALI_ECS,
                             .region = region,
                             .action = "DescribeInstances",
                             .items = "Instances.Instance",
                             .page = IDS_MAX,
                             .each = on_instance,
                             .ctx = s};
        for (size_t i = at; i < machines->list.len && i < at + IDS_MAX; i++)
            str_addf(&ids, "%s\"%s\"", i > at ? "," : "[", machines->list.items[i].id);
        str_addc(&ids, ']');
        ali_begin(&l.query, region);
        ali_param(&l.query, "InstanceIds", ids.s);
        int r = ali_list_one(a, &l, err);
        if (r != 0) return r;
    }
    return 0;
}

static void seen_clear(struct seen *s) {
    strv_clear(&s->right);
    strv_clear(&s->wrong);
}

/* The first machine that was not seen with its release; NULL: all were. */
static const struct resource *not_right(const struct resource_list *machines, const struct seen *s) {
    for (size_t i = 0; i < machines->list.len; i++)
        if (!strv_has(&s->right, machines->list.items[i].id)) return &machines->list.items[i];
    return NULL;
}

/* What is left to say after the last read. */
struct outcome {
    const struct resource *left; /* it was not seen with its release; NULL: all were */
    bool refused;                /* it was seen, with another one */
};

static int set_all(struct ali *a, const char *region, const struct seen *s, struct gp_error *err) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->wrong.n; i++) r = set_one(a, region, s->wrong.v[i], s->release_s, err);
    return r;
}

/* Sets the release of each machine until all have shown it. 0: they did, or the last list lacks out->left. */
static int set_and_read(struct ali *a, const char *region, const struct resource_list *machines, int64_t expires_s,
                        struct outcome *out, struct gp_error *err) {
    int64_t release_s = ali_release_s(a, expires_s);
    int r = 0;
    for (int i = 0; i < READS; i++) {
        struct seen s = {.expires_s = expires_s, .release_s = release_s};
        if (i > 0 && gp_sleep(GP_MIN(100 << i, 2000), a->cancel, NULL) != 0)
            return gp_fail(err, GP_ECANCELLED, "cancelled");
        gp_error_clear(err);
        r = read_back(a, region, machines, &s, err);
        out->left = not_right(machines, &s);
        out->refused = r == 0 && i == READS - 1 && s.wrong.n > 0;
        if (r == 0 && !out->refused) r = set_all(a, region, &s, err);
        seen_clear(&s);
        if (r == -GP_ECANCELLED || (r == 0 && out->left == NULL)) return r;
    }
    return r;
}

int ali_release_verify(struct ali *a, const char *region, const struct resource_list *machines, int64_t expires_s,
                       struct gp_error *err) {
    struct outcome out = {0};
    struct gp_error why = {0};
    int r = set_and_read(a, region, machines, expires_s, &out, &why);
    if (r == 0 && out.left == NULL) return 0;
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", why.msg);
    if (out.refused)
        return gp_fail(err, GP_EPROTO,
                       "alibaba: %s does not show the AutoReleaseTime that it was given, so the cloud would not "
                       "release it at its deadline",
                       out.left->id);
    /* Not listed yet, or the list failed: the request had the time, but nobody saw it. */
    event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "deadline",
               "alibaba: the AutoReleaseTime of the nodes could not be read back yet; 'gpuprov gc' terminates nodes "
               "that the cloud does not release");
    return 0;
}

/* The stack's machines there, by their ids: tags may have been edited, or copied to others. */
static void machines_in(const char *region, const char *uid, const struct resource_list *known,
                        struct resource_list *ret) {
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        bool lives = k->state != RES_STOPPING && k->state != RES_GONE;
        bool its = k->kind == RES_INSTANCE && k->ours != OURS_NOT && str_eq(k->uid, uid);
        if (its && lives && str_eq(k->provider, "alibaba") && str_eq(k->region, region) && ali_id(k->id, "i-"))
            resource_list_add(ret, k);
    }
}

static int move_in(struct ali *a, const char *region, const struct stack *stack, const struct resource_list *known,
                   struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list its = {0};
    struct outcome out = {0};
    struct gp_error why = {0};
    machines_in(region, stack->uid, known, &its);
    int r = its.list.len > 0 ? set_and_read(a, region, &its, stack->expires_s, &out, &why) : 0;
    if (r == 0 && out.left == NULL) return 0;
    if (r == -GP_ECANCELLED) return gp_fail(err, GP_ECANCELLED, "%s", why.msg);
    const char *reason = r != 0 ? why.msg : out.refused ? "it does not show the new one" : "it is not listed";
    r = gp_fail(err,
                r != 0        ? why.code
                : out.refused ? GP_EPROTO
                              : GP_EUNKNOWN,
                "alibaba: node %d (%s) may keep its former AutoReleaseTime: %.250s: run 'gpuprov status %s', then the "
                "same command again",
                out.left != NULL ? out.left->slot : its.list.items[0].slot,
                out.left != NULL ? out.left->id : its.list.items[0].id, reason, stack->name);
    if (err != NULL && why.code != GP_OK) {
        err->domain = why.domain;
        str_put(err->detail, sizeof err->detail, why.detail);
    }
    return r;
}

int ali_release_move(struct ali *a, const struct stack *stack, const struct resource_list *known,
                     struct gp_error *err) {
    GP_AUTO_STRV struct strv regions = {0};
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (str_eq(k->provider, "alibaba") && ali_region_valid(k->region) && !strv_has(&regions, k->region))
            strv_add(&regions, k->region);
    }
    int r = 0;
    for (size_t i = 0; r == 0 && i < regions.n; i++) r = move_in(a, regions.v[i], stack, known, err);
    return r;
}
