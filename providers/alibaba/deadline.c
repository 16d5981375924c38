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

int ali_release_verify(struct ali *a, const char *region, const struct resource_list *machines, int64_t expires_s,
                       struct gp_error *err) {
    int64_t release_s = ali_release_s(a, expires_s);
    int r = 0;
    for (int i = 0; i < READS; i++) {
        struct seen s = {.expires_s = expires_s, .release_s = release_s};
        struct gp_error e = {0};
        r = read_back(a, region, machines, &s, &e);
        bool all = s.right.n == machines->list.len;
        bool given_up = r == 0 && s.wrong.n > 0 && i == READS - 1;
        if (given_up)
            r = gp_fail(&e, GP_EPROTO,
                        "alibaba: %s does not show the AutoReleaseTime that it was given, so the cloud "
                        "would not release it at its deadline",
                        s.wrong.v[0]);
        for (size_t k = 0; r == 0 && k < s.wrong.n; k++) r = set_one(a, region, s.wrong.v[k], release_s, &e);
        strv_clear(&s.right);
        strv_clear(&s.wrong);
        if (r == 0 && all) return 0;
        if (given_up || r == -GP_ECANCELLED) {
            if (err != NULL) *err = e;
            return r;
        }
        if (i < READS - 1 && gp_sleep(GP_MIN(200 << i, 2000), a->cancel, NULL) != 0)
            return gp_fail(err, GP_ECANCELLED, "cancelled");
    }
    /* Not listed yet, or the list failed: the request had the time, but nobody saw it. */
    event_emit(a->sink, -1, NODE_LAUNCHING, EVENT_WARN, "deadline",
               "alibaba: the AutoReleaseTime of the nodes could not be read back yet; 'gpuprov gc' terminates nodes "
               "that the cloud does not release");
    return 0;
}

int ali_release_move(struct ali *a, const struct stack *stack, const struct resource_list *known,
                     struct gp_error *err) {
    GP_AUTO_STRV struct strv regions = {0};
    struct ali_wanted w = {.owner = stack->owner, .uid = stack->uid};
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (str_eq(k->provider, "alibaba") && ali_region_valid(k->region) && !strv_has(&regions, k->region))
            strv_add(&regions, k->region);
    }
    for (size_t i = 0; i < regions.n; i++) {
        GP_AUTO_RESOURCES struct resource_list all = {0}, live = {0};
        int r = ali_list_instances(a, regions.v[i], &w, &all, err);
        for (size_t k = 0; r == 0 && k < all.list.len; k++)
            if (all.list.items[k].state != RES_STOPPING) resource_list_add(&live, &all.list.items[k]);
        if (r == 0 && live.list.len > 0) r = ali_release_verify(a, regions.v[i], &live, stack->expires_s, err);
        if (r != 0) return r;
    }
    return 0;
}
