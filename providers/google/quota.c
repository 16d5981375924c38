// SPDX-License-Identifier: Apache-2.0
/* Quotas of GPUs, read before the first create: those of the region and the one of all regions. A metric that the API
 * does not list is left to the create call. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

static const json_t *metric(const json_t *reply, const char *name) {
    const json_t *quota;
    size_t i;
    json_array_foreach(json_at(reply, "quotas"), i,
                       quota) if (strcmp(json_str(quota, "metric", ""), name) == 0) return quota;
    return NULL;
}

static int check(const json_t *quota, const char *name, const char *place, int wanted, enum gp_scope scope,
                 struct gp_error *err) {
    double limit = json_num(quota, "limit", -1), usage = json_num(quota, "usage", 0);
    if (quota == NULL || limit < 0 || limit - usage >= wanted) return 0;
    int r = gp_fail(err, GP_EQUOTA,
                    "google %s: the quota %s is %.0f, %.0f of it in use, and the nodes need %d: ask for more on the "
                    "page 'IAM & Admin > Quotas', or offer another region",
                    place, name, limit, usage, wanted);
    if (err != NULL) {
        err->domain = GP_D_CLOUD;
        err->scope = scope;
        str_put(err->detail, sizeof err->detail, "quotaExceeded");
    }
    return r;
}

static int check_region(struct google *g, const struct offer *o, int wanted, struct gp_error *err) {
    const struct google_gpu *gpu = google_gpu_find(o->gpu_model);
    GP_AUTO_REST struct rest_reply reply = {0};
    if (gpu == NULL || gpu->quota == NULL) return 0;
    GP_AUTO_FREE char *name = xasprintf("%s%s", o->market == MARKET_SPOT ? "PREEMPTIBLE_" : "", gpu->quota);
    GP_AUTO_FREE char *url = google_url(g, "regions/%s", o->region);
    int r = google_call(g, "google regions.get", "GET", url, NULL, 0, &reply, err);
    if (r != 0) return r;
    const json_t *found = metric(reply.json, name);
    if (found == NULL && o->market == MARKET_SPOT) { /* without one of its own, spot counts as on-demand */
        found = metric(reply.json, gpu->quota);
        return check(found, gpu->quota, o->region, wanted, GP_SCOPE_REGION, err);
    }
    return check(found, name, o->region, wanted, GP_SCOPE_REGION, err);
}

int google_quota_check(struct google *g, const struct offer *o, int count, struct gp_error *err) {
    GP_AUTO_REST struct rest_reply reply = {0};
    int wanted = o->gpus * count;
    GP_AUTO_FREE char *key = xasprintf("%s/%s/%d/%d", o->region, o->gpu_model, (int)o->market, wanted);
    if (wanted <= 0 || strv_has(&g->cache->quotas_ok, key)) return 0;
    GP_AUTO_FREE char *url = xasprintf("%sprojects/%s", g->endpoint, g->project);
    int r = google_call(g, "google projects.get", "GET", url, NULL, 0, &reply, err);
    if (r == 0)
        r = check(metric(reply.json, "GPUS_ALL_REGIONS"), "GPUS_ALL_REGIONS", "(all regions)", wanted,
                  GP_SCOPE_PROVIDER, err);
    if (r == 0) r = check_region(g, o, wanted, err);
    if (r == 0) strv_add(&g->cache->quotas_ok, key);
    return r;
}
