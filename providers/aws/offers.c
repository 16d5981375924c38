// SPDX-License-Identifier: Apache-2.0
/* Offers: types x zones x prices x image, for one entry of the spec's offers. Buys
 * nothing. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/catalog/catalog.h"
#include "providers/common/refusal.h"
#include "providers/common/ssh_from.h"

#define TYPES_MAX 12 /* sizes of one GPU: g4dn.xlarge to 16xlarge */

void aws_subnets_clear(struct aws_subnets *s) {
    for (size_t i = 0; i < s->list.len; i++) {
        free(s->list.items[i].id);
        free(s->list.items[i].zone);
        free(s->list.items[i].vpc);
    }
    vec_free(&s->list);
}

const struct aws_subnet *aws_subnet_seen(const struct aws *a, const char *region, const char *id) {
    for (size_t i = 0; i < a->cache->subnets.list.len; i++) {
        const struct aws_subnet *s = &a->cache->subnets.list.items[i];
        if (strcmp(a->cache->subnet_regions.v[i], region) == 0 && (id != NULL ? strcmp(s->id, id) == 0 : s->is_default))
            return s;
    }
    return NULL;
}

static void remember_subnets(struct aws *a, const char *region, const struct aws_subnets *found) {
    for (size_t i = 0; i < found->list.len; i++) {
        const struct aws_subnet *s = &found->list.items[i];
        if (aws_subnet_seen(a, region, s->id) != NULL) continue;
        struct aws_subnet copy = {.id = xstrdup(s->id),
                                  .zone = xstrdup(s->zone),
                                  .vpc = xstrdup(s->vpc),
                                  .is_default = s->is_default,
                                  .ipv6_only = s->ipv6_only};
        vec_push(&a->cache->subnets.list, copy);
        strv_add(&a->cache->subnet_regions, region);
    }
}

int aws_subnet_read(const struct xml_node *item, struct aws_subnet *ret, struct gp_error *err) {
    const char *id = xml_str(item, "subnetId", ""), *vpc = xml_str(item, "vpcId", "");
    const char *zone = xml_str(item, "availabilityZone", "");
    if (!form_ec2_id(id, "subnet-") || !form_ec2_id(vpc, "vpc-") || !form_word(zone))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeSubnets: an entry without the ids of a subnet and a VPC, "
                       "and a zone: run the same command again");
    *ret = (struct aws_subnet){.id = xstrdup(id),
                               .zone = xstrdup(zone),
                               .vpc = xstrdup(vpc),
                               .is_default = strcmp(xml_str(item, "defaultForAz", ""), "true") == 0,
                               .ipv6_only = strcmp(xml_str(item, "ipv6Native", ""), "true") == 0};
    return 0;
}

static int on_subnet(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct aws_subnets *all = ctx;
    struct aws_subnet s = {0};
    int r = aws_subnet_read(item, &s, err);
    if (r == 0) vec_push(&all->list, s);
    return r;
}

static int read_subnets(struct aws *a, const char *region, const char *id, struct aws_subnets *ret,
                        struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeSubnets");
    if (id != NULL && id[0] != '\0') aws_param(&body, "SubnetId.1", id);
    else aws_filter(&body, 1, "default-for-az", "true");
    return aws_describe(a, region, "DescribeSubnets", &body, 0, "subnetSet", on_subnet, ret, err);
}

int aws_subnets_find(struct aws *a, const char *region, const char *id, struct aws_subnets *ret, struct gp_error *err) {
    int r = read_subnets(a, region, id, ret, err);
    if (r == 0) remember_subnets(a, region, ret);
    return r;
}

/* One region of an offer. What does not depend on each other is read side by side, in two rounds. */
struct search {
    struct aws *a;
    const struct spec *spec;
    const struct spec_offer *want;
    struct spec_offer named; /* the same, with the type of the reserved capacity; strings borrowed */
    size_t index;
    const char *region;
    struct aws_subnets subnets;
    struct aws_types types;
    size_t n_types;   /* of them that are considered */
    struct strv sold; /* "type/zone" */
    struct aws_spots spots;
    struct aws_image_ahead image;
    struct aws_quota quota;
    enum aws_way way;                       /* of nodes without a public address */
    const struct aws_reservation *reserved; /* NULL: none */
    struct offer_list *out;
    int r; /* its outcome so far */
    struct gp_error err;
};

static double spot_in(const struct aws_spots *spots, const char *type, const char *zone) {
    for (size_t i = 0; i < spots->list.len; i++) {
        const struct aws_spot *s = &spots->list.items[i];
        if (strcmp(s->zone, zone) == 0 && strcmp(s->type, type) == 0) return s->usd_per_h;
    }
    return -1;
}

static bool wanted_in(const struct search *s, const struct aws_type *t, const char *zone) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", t->name, zone);
    if (s->reserved != NULL && strcmp(s->reserved->zone, zone) != 0) return false;
    return strv_has(&s->sold, key) && (s->want->zones.n == 0 || strv_has(&s->want->zones, zone));
}

static char *price_source(struct search *s, double price) {
    char day[32];
    if (s->reserved != NULL && s->reserved->block) return xasprintf("paid with Capacity Block %s", s->reserved->id);
    if (price < 0) return xstrdup("");
    if (s->want->market != MARKET_SPOT) return xasprintf("catalogue %s", catalog_aws_date);
    time_format_utc(day, sizeof day, aws_now_s(s->a));
    return xasprintf("spot price history %.10s", day);
}

static char *fabric_of(const struct search *s, const struct aws_type *t) {
    struct aws_nics chosen = {0};
    aws_fabric_choose(s->spec, t->name, &t->nics, &chosen, NULL);
    const struct aws_reservation *r = s->reserved;
    GP_AUTO_FREE char *group = r != NULL && r->placement[0] ? xasprintf("placement group %s", r->placement) : NULL;
    return aws_fabric_text(s->spec, &t->nics, &chosen,
                           group != NULL ? group
                           : r == NULL   ? "a cluster placement group"
                           : r->block    ? "close together by the Capacity Block"
                                         : "no placement group: the capacity reservation has none");
}

static void remember_nics(struct search *s, const struct aws_type *t) {
    GP_AUTO_FREE char *key = xasprintf("%s/%s", s->region, t->name);
    if (strv_has(&s->a->cache->nics_of, key)) return;
    strv_add(&s->a->cache->nics_of, key);
    vec_push(&s->a->cache->nics, t->nics);
}

/* The price of a disk that the spec asks for. Negative: not known. */
static double disk_price(const struct search *s, const struct aws_image *image) {
    if (s->spec->disk_gib == 0) return 0;
    return catalog_aws_disk_price(GP_MAX(image->root_gib, s->spec->disk_gib), s->region);
}

/* Of a node with its disk. Negative: one of both is not known. */
static double with_disk(double price, double disk) { return price < 0 || disk < 0 ? -1 : price + disk; }

static void add_offer(struct search *s, const struct aws_type *t, const struct aws_subnet *subnet,
                      const struct aws_image *image, double price) {
    remember_nics(s, t);
    struct offer o = {
        .spec_index = s->index,
        .provider = xstrdup("aws"),
        .region = xstrdup(s->region),
        .zone = xstrdup(subnet->zone),
        .instance_type = xstrdup(t->name),
        .market = s->want->market,
        .image = xstrdup(image->id),
        .image_name = xstrdup(image->name[0] ? image->name : image->id),
        .subnet = xstrdup(subnet->id),
        .gpu_model = xstrdup(t->gpu_name),
        .gpus = t->gpus,
        .vcpus = t->vcpus,
        .memory_gib = t->memory_mib / 1024.0,
        .disk_gib = aws_disk_gib(s->spec, image, t->gpus),
        .disk_usd_per_h = GP_MAX(disk_price(s, image), 0.0),
        .price_usd_per_h = with_disk(price, disk_price(s, image)),
        .price_source = price_source(s, price),
        .fabric = fabric_of(s, t),
        .max_count = s->reserved != NULL ? s->reserved->free_nodes : 0,
    };
    vec_push(&s->out->list, o);
}

static int offers_of_type(struct search *s, const struct aws_type *t, struct gp_error *err) {
    const struct aws_image *image = NULL;
    bool any = false;
    for (size_t i = 0; i < s->subnets.list.len; i++) any = any || wanted_in(s, t, s->subnets.list.items[i].zone);
    if (!any) return 0;
    int r = aws_image_find(s->a, s->region, s->spec, s->index, t, &image, err);
    if (r == 0 && strcmp(image->arch, t->arch) != 0)
        r = gp_fail(err, GP_EUSAGE, "aws %s: image %s is for %s, but %s is %s", s->region, image->id, image->arch,
                    t->name, t->arch);
    if (r == 0 && s->spec->disk_gib > 0 && s->spec->disk_gib < image->root_gib)
        r = gp_fail(err, GP_EUSAGE, "aws %s: image %s needs a root disk of %d GiB, but 'disk' is %d GiB", s->region,
                    image->id, image->root_gib, s->spec->disk_gib);
    for (size_t i = 0; r == 0 && i < s->subnets.list.len; i++) {
        const struct aws_subnet *subnet = &s->subnets.list.items[i];
        if (!wanted_in(s, t, subnet->zone)) continue;
        double price = s->want->market == MARKET_SPOT              ? spot_in(&s->spots, t->name, subnet->zone)
                       : s->reserved != NULL && s->reserved->block ? 0
                                                                   : catalog_aws_price(t->name, s->region);
        add_offer(s, t, subnet, image, price);
    }
    return r;
}

static int check_zones(struct search *s, struct gp_error *err) {
    for (size_t i = 0; i < s->want->zones.n; i++) {
        const char *zone = s->want->zones.v[i];
        bool found = !str_starts(zone, s->region); /* it may be another region's */
        for (size_t k = 0; k < s->subnets.list.len && !found; k++)
            found = strcmp(s->subnets.list.items[k].zone, zone) == 0;
        if (!found)
            return gp_fail(err, GP_EUSAGE,
                           "aws %s: zone '%s' does not exist, or has no default subnet: "
                           "correct zones, or give a subnet",
                           s->region, zone);
    }
    return 0;
}

/* Drops the types whose fabric this gang cannot use. None is left: the reason of the last one. */
static int keep_usable(struct search *s, struct aws_types *types, struct gp_error *err) {
    struct gp_error why = {0};
    struct aws_types fit = {0}, not = {0};
    for (size_t i = 0; i < types->list.len; i++) {
        struct aws_type *t = &types->list.items[i];
        struct aws_nics chosen;
        if (aws_fabric_choose(s->spec, t->name, &t->nics, &chosen, &why) == 0) vec_push(&fit.list, *t);
        else vec_push(&not .list, *t);
    }
    vec_free(&types->list);
    *types = fit;
    bool none = fit.list.len == 0 && not .list.len > 0;
    aws_types_clear(&not );
    if (none && err != NULL) *err = why;
    return none ? -(int)why.code : 0;
}

/* --- the first round: what the spec alone determines --- */

static int task_subnets(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    aws_subnets_clear(&s->subnets);
    return read_subnets(a, s->region, s->want->subnet, &s->subnets, err);
}

static int task_types(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    aws_types_clear(&s->types);
    return aws_types_find(a, s->region, s->spec, &s->named, &s->types, err);
}

static int task_image(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    (void)err; /* aws_image_find reads it again, and fails with the reason */
    aws_image_ahead_clear(&s->image);
    aws_image_ahead_first(a, s->region, s->spec, s->index, &s->image);
    return 0;
}

static int no_subnet(const struct search *s, struct gp_error *err) {
    int r = gp_fail(err, GP_EUSAGE, "aws %s has no default subnet: give a subnet in the offer", s->region);
    if (err != NULL) err->scope = GP_SCOPE_REGION;
    return r;
}

/* The reserved capacity, which names the type. */
static int find_reserved(struct search *s, struct gp_error *err) {
    int r = aws_reservation_find(s->a, s->region, s->want->reservation, true, &s->reserved, err);
    if (r == 0) r = aws_reservation_check(s->reserved, s->spec, s->want, aws_now_s(s->a), err);
    if (r == 0) s->named.instance_type = s->reserved->type;
    return r;
}

static void judge_first(struct search *s, const struct aws_task *subnets, const struct aws_task *types) {
    const struct aws_task *failed = subnets->r != 0 ? subnets : types->r != 0 ? types : NULL;
    if (subnets->r == 0) remember_subnets(s->a, s->region, &s->subnets);
    aws_image_ahead_keep(s->a, &s->image);
    if (subnets->r == 0 && s->subnets.list.len == 0) s->r = no_subnet(s, &s->err);
    if (s->r == 0 && subnets->r == 0) s->r = check_zones(s, &s->err);
    if (s->r == 0 && failed != NULL) {
        s->r = failed->r;
        s->err = failed->err;
    }
    if (s->r == 0) s->r = keep_usable(s, &s->types, &s->err);
    s->n_types = s->r == 0 ? GP_MIN(s->types.list.len, (size_t)TYPES_MAX) : 0;
}

static void first_round(struct search *all, size_t n) {
    enum { EACH = 3 };
    struct aws_task *tasks = xcalloc(n * EACH + 1, sizeof *tasks);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        struct search *s = &all[i];
        if (s->r == 0 && s->want->reservation != NULL) s->r = find_reserved(s, &s->err);
        if (s->r != 0) continue;
        tasks[used++] = (struct aws_task){.run = task_subnets, .ctx = s};
        tasks[used++] = (struct aws_task){.run = task_types, .ctx = s};
        tasks[used++] = (struct aws_task){.run = task_image, .ctx = s};
    }
    aws_run_tasks(all[0].a, tasks, used);
    for (size_t i = 0; i < used; i += EACH) judge_first(tasks[i].ctx, &tasks[i], &tasks[i + 1]);
    free(tasks);
}

/* --- the second round: what depends on the types --- */

static int task_zones(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    strv_clear(&s->sold);
    return aws_type_zones(a, s->region, s->types.list.items, s->n_types, &s->sold, err);
}

static int task_spots(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    aws_spots_clear(&s->spots);
    return aws_spot_prices(a, s->region, s->types.list.items, s->n_types, &s->spots, err);
}

static int task_image_again(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    (void)err;
    aws_image_ahead_second(a, &s->image);
    return 0;
}

static int task_quota(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    (void)err; /* one that cannot be read is unknown */
    aws_quota_read(a, s->region, aws_quota_code(s->types.list.items[0].name, s->want->market), &s->quota);
    return 0;
}

static int task_way(struct aws *a, void *ctx, struct gp_error *err) {
    struct search *s = ctx;
    (void)err;
    s->way = aws_way_out(a, s->region, &s->subnets.list.items[0]);
    return 0;
}

/* Nodes of IPv6-only subnets have public addresses. */
static bool is_private(const struct search *s) {
    return !s->spec->access.public_ip && s->subnets.list.len > 0 && !s->subnets.list.items[0].ipv6_only;
}

static void second_round(struct search *all, size_t n) {
    enum { EACH = 5 };
    struct aws_task *tasks = xcalloc(n * EACH + 1, sizeof *tasks);
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        struct search *s = &all[i];
        if (s->r != 0 || s->n_types == 0) continue;
        tasks[used++] = (struct aws_task){.run = task_zones, .ctx = s};
        if (s->want->market == MARKET_SPOT) tasks[used++] = (struct aws_task){.run = task_spots, .ctx = s};
        if (is_private(s)) tasks[used++] = (struct aws_task){.run = task_way, .ctx = s};
        if (aws_image_ahead_pending(&s->image)) tasks[used++] = (struct aws_task){.run = task_image_again, .ctx = s};
        if (!aws_quota_known(s->a, s->region, aws_quota_code(s->types.list.items[0].name, s->want->market)))
            tasks[used++] = (struct aws_task){.run = task_quota, .ctx = s};
    }
    aws_run_tasks(all[0].a, tasks, used);
    for (size_t i = 0; i < used; i++) {
        struct search *s = tasks[i].ctx;
        if (s->r == 0 && tasks[i].r != 0) {
            s->r = tasks[i].r;
            s->err = tasks[i].err;
        }
    }
    for (size_t i = 0; i < n; i++) {
        aws_image_ahead_keep(all[i].a, &all[i].image);
        aws_quota_keep(all[i].a, &all[i].quota);
    }
    free(tasks);
}

static int check_private(const struct search *s, struct gp_error *err) {
    if (!is_private(s)) return 0;
    int r = ssh_from_check_private("aws", s->spec, s->index, err);
    if (r != 0) return r;
    if (s->way == AWS_WAY_NONE || s->way == AWS_WAY_PUBLIC_ONLY)
        event_emit(s->a->sink, -1, NODE_PLANNED, EVENT_WARN, "access",
                   "aws %s: %s %s, so nodes without a public address cannot reach the internet: give a subnet with a "
                   "NAT gateway, or an image that needs no packages",
                   s->region, s->subnets.list.items[0].id,
                   s->way == AWS_WAY_NONE ? "has no default route" : "routes to an internet gateway");
    return 0;
}

static int offers_of_region(struct search *s, struct gp_error *err) {
    size_t before = s->out->list.len;
    int r = check_private(s, err);
    for (size_t i = 0; r == 0 && i < s->n_types; i++) {
        r = offers_of_type(s, &s->types.list.items[i], err);
        /* Without a GPU and a type one small type is enough. */
        bool small = s->spec->gpu.model == NULL && s->want->instance_type == NULL;
        if (small && s->out->list.len > before) break;
    }
    if (r == 0 && s->out->list.len == before) {
        r = gp_fail(err, GP_EUSAGE, "aws %s: %s is not sold in %s", s->region,
                    s->named.instance_type ? s->named.instance_type
                    : s->spec->gpu.model   ? s->spec->gpu.model
                                           : "a small type",
                    s->want->zones.n > 0 ? "the requested zones" : "any zone that has a subnet");
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    return r;
}

static void search_clear(struct search *s) {
    aws_types_clear(&s->types);
    aws_subnets_clear(&s->subnets);
    strv_clear(&s->sold);
    aws_spots_clear(&s->spots);
    aws_image_ahead_clear(&s->image);
}

static void offers_of_all(struct search *all, size_t n, struct regions_result *result) {
    first_round(all, n);
    second_round(all, n);
    for (size_t i = 0; i < n; i++) {
        struct search *s = &all[i];
        if (s->r == 0) s->r = offers_of_region(s, &s->err);
        if (s->r != 0 && regions_failed(result, &s->err)) break;
    }
}

int aws_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
               struct gp_error *err) {
    struct aws *a = aws_of(p);
    const struct spec_offer *want = &spec->offers.items[index];
    GP_AUTO_STRV struct strv regions = {0};
    strv_copy(&regions, &want->regions);
    if (regions.n == 0 && a->cfg.region != NULL) strv_add(&regions, a->cfg.region);
    if (regions.n == 0) {
        int r = gp_fail(err, GP_EUSAGE, "aws: no region: give regions, or set AWS_REGION");
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return r;
    }
    struct regions_result result = {.sink = a->sink, .regions = regions.n};
    size_t before = ret->list.len;
    struct search *all = xcalloc(regions.n, sizeof *all);
    for (size_t i = 0; i < regions.n; i++) {
        struct search *s = &all[i];
        *s = (struct search){
            .a = a, .spec = spec, .want = want, .named = *want, .index = index, .region = regions.v[i], .out = ret};
        if (!aws_region_valid(s->region)) s->r = gp_fail(&s->err, GP_EUSAGE, "aws: '%s' is not a region", s->region);
    }
    offers_of_all(all, regions.n, &result);
    for (size_t i = 0; i < regions.n; i++) search_clear(&all[i]);
    free(all);
    return regions_end(&result, ret->list.len > before, err);
}
