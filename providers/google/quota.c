// SPDX-License-Identifier: Apache-2.0
/* Quotas of GPUs, read before the first create: those of the region and the one of all regions. A metric that the API
 * does not list is left to the create call. One thread. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/clock.h"

#define COUNT_MAX 1e9        /* of a quota that is shown */
#define FRESH_MS (60 * 1000) /* from the offers to the launch */

static const json_t *metric(const json_t *reply, const char *name) {
    const json_t *quota = NULL;
    size_t i = 0;
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

static bool is_fresh(const struct google_cache *c, const char *region) {
    return c->region != NULL && strcmp(c->region, region) == 0 && clock_left_ms(c->read_until_ms) > 0;
}

int google_region_read(struct google *g, const char *region, const json_t **ret, struct gp_error *err) {
    struct google_cache *c = g->cache;
    *ret = c->of_region;
    if (is_fresh(c, region)) return 0;
    struct rest_result results[2] = {0};
    GP_AUTO_FREE char *region_url = google_url(g, "regions/%s", region);
    GP_AUTO_FREE char *project_url = xasprintf("%sprojects/%s", g->endpoint, g->project);
    const struct rest_call calls[2] = {{.what = "google regions.get", .method = "GET", .url = region_url},
                                       {.what = "google projects.get", .method = "GET", .url = project_url}};
    rest_call_many(&g->rest, calls, 2, 0, results);
    resource_set(&c->region, region);
    json_decref(c->of_region);
    json_decref(c->of_project);
    c->of_region = results[0].rc == 0 ? json_incref(results[0].reply.json) : NULL;
    c->of_project = results[1].rc == 0 ? json_incref(results[1].reply.json) : NULL;
    c->read_until_ms = results[0].rc == 0 && results[1].rc == 0 ? clock_deadline(FRESH_MS) : 0;
    rest_reply_clear(&results[0].reply);
    rest_reply_clear(&results[1].reply);
    *ret = c->of_region;
    if (results[0].rc != 0 && err != NULL) *err = results[0].err;
    return results[0].rc;
}

/* The quota of a region that counts those GPUs, and its name. NULL: the reply has none. Caller frees the name. */
static const json_t *quota_of(const json_t *region, const struct google_gpu *gpu, enum spec_market market,
                              char **ret_name) {
    *ret_name = xasprintf("%s%s", market == MARKET_SPOT ? "PREEMPTIBLE_" : "", gpu->quota);
    const json_t *found = metric(region, *ret_name);
    if (found != NULL || market != MARKET_SPOT) return found;
    resource_set(ret_name, gpu->quota); /* without one of its own, spot counts as on-demand */
    return metric(region, gpu->quota);
}

static int check_region(const struct offer *o, const json_t *region, int wanted, struct gp_error *err) {
    const struct google_gpu *gpu = google_gpu_find(o->gpu_model);
    if (gpu == NULL || gpu->quota == NULL) return 0;
    GP_AUTO_FREE char *name = NULL;
    const json_t *found = quota_of(region, gpu, o->market, &name);
    return check(found, name, o->region, wanted, GP_SCOPE_REGION, err);
}

char *google_quota_text(const struct google *g, const char *region, const char *accelerator, enum spec_market market) {
    const struct google_gpu *gpu = google_gpu_find(accelerator);
    GP_AUTO_FREE char *name = NULL;
    if (gpu == NULL || gpu->quota == NULL || !is_fresh(g->cache, region)) return xstrdup("");
    const json_t *found = quota_of(g->cache->of_region, gpu, market, &name);
    double limit = json_num(found, "limit", -1), usage = json_num(found, "usage", -1);
    bool known = limit >= 0 && limit < COUNT_MAX && usage >= 0 && usage < COUNT_MAX;
    return known ? xasprintf("%.0f of %.0f GPUs used", usage, limit) : xstrdup("");
}

/* A project whose own quotas may not be read is left to the create call. */
int google_quota_check(struct google *g, const struct offer *o, int count, struct gp_error *err) {
    const json_t *region = NULL;
    int wanted = o->gpus * count;
    GP_AUTO_FREE char *key = xasprintf("%s/%s/%d/%d", o->region, o->gpu_model, (int)o->market, wanted);
    if (wanted <= 0 || strv_has(&g->cache->quotas_ok, key)) return 0;
    int r = google_region_read(g, o->region, &region, err);
    if (r == 0)
        r = check(metric(g->cache->of_project, "GPUS_ALL_REGIONS"), "GPUS_ALL_REGIONS", "(all regions)", wanted,
                  GP_SCOPE_PROVIDER, err);
    if (r == 0) r = check_region(o, region, wanted, err);
    if (r == 0) strv_add(&g->cache->quotas_ok, key);
    return r;
}
