// SPDX-License-Identifier: Apache-2.0
/* Offers: types x zones x prices x image, for one entry of the spec's offers. Buys
 * nothing. One thread at a time. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "providers/catalog/catalog.h"

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

static void remember(struct aws *a, const char *region, const struct aws_subnets *found) {
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

int aws_subnets_find(struct aws *a, const char *region, const char *id, struct aws_subnets *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeSubnets");
    if (id != NULL && id[0] != '\0') aws_param(&body, "SubnetId.1", id);
    else aws_filter(&body, 1, "default-for-az", "true");
    int r = aws_describe(a, region, "DescribeSubnets", &body, 0, "subnetSet", on_subnet, ret, err);
    if (r == 0) remember(a, region, ret);
    return r;
}

struct search {
    struct aws *a;
    const struct spec *spec;
    const struct spec_offer *want;
    size_t index;
    const char *region;
    struct aws_subnets subnets;
    struct strv sold; /* "type/zone" */
    struct aws_spots spots;
    const struct aws_reservation *reserved; /* NULL: none */
    struct offer_list *out;
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

/* The reserved capacity, which names the type. */
static int find_reserved(struct search *s, struct spec_offer *named, struct gp_error *err) {
    int r = aws_reservation_find(s->a, s->region, s->want->reservation, true, &s->reserved, err);
    if (r == 0) r = aws_reservation_check(s->reserved, s->spec, s->want, aws_now_s(s->a), err);
    if (r == 0) named->instance_type = s->reserved->type;
    return r;
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

static int offers_of_region(struct search *s, struct gp_error *err) {
    struct aws_types types = {0};
    struct spec_offer named = *s->want;
    s->reserved = NULL;
    int r = aws_subnets_find(s->a, s->region, s->want->subnet, &s->subnets, err);
    if (r == 0 && s->subnets.list.len == 0) {
        r = gp_fail(err, GP_EUSAGE, "aws %s has no default subnet: give a subnet in the offer", s->region);
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    if (r == 0) r = check_zones(s, err);
    if (r == 0 && s->want->reservation != NULL) r = find_reserved(s, &named, err);
    if (r == 0) r = aws_types_find(s->a, s->region, s->spec, &named, &types, err);
    if (r == 0) r = keep_usable(s, &types, err);
    size_t before = s->out->list.len, n = GP_MIN(types.list.len, (size_t)TYPES_MAX);
    if (r == 0) r = aws_type_zones(s->a, s->region, types.list.items, n, &s->sold, err);
    if (r == 0 && s->want->market == MARKET_SPOT && s->sold.n > 0)
        r = aws_spot_prices(s->a, s->region, types.list.items, n, &s->spots, err);
    for (size_t i = 0; r == 0 && i < n; i++) {
        r = offers_of_type(s, &types.list.items[i], err);
        /* Without a GPU and a type one small type is enough. */
        bool small = s->spec->gpu.model == NULL && s->want->instance_type == NULL;
        if (small && s->out->list.len > before) break;
    }
    if (r == 0 && s->out->list.len == before) {
        r = gp_fail(err, GP_EUSAGE, "aws %s: %s is not sold in %s", s->region,
                    named.instance_type  ? named.instance_type
                    : s->spec->gpu.model ? s->spec->gpu.model
                                         : "a small type",
                    s->want->zones.n > 0 ? "the requested zones" : "any zone that has a subnet");
        if (err != NULL) err->scope = GP_SCOPE_REGION;
    }
    aws_types_clear(&types);
    aws_subnets_clear(&s->subnets);
    strv_clear(&s->sold);
    aws_spots_clear(&s->spots);
    return r;
}

int aws_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
               struct gp_error *err) {
    struct aws *a = aws_of(p);
    const struct spec_offer *want = &spec->offers.items[index];
    struct search s = {.a = a, .spec = spec, .want = want, .index = index, .out = ret};
    GP_AUTO_STRV struct strv regions = {0};
    strv_copy(&regions, &want->regions);
    if (regions.n == 0 && a->cfg.region != NULL) strv_add(&regions, a->cfg.region);
    if (regions.n == 0) {
        int r = gp_fail(err, GP_EUSAGE, "offers[%zu]: no region: give regions, or set AWS_REGION", index);
        if (err != NULL) err->scope = GP_SCOPE_OFFER;
        return r;
    }
    struct gp_error worst = {0};
    int worst_exit = 0;
    size_t before = ret->list.len;
    for (size_t i = 0; i < regions.n; i++) {
        struct gp_error e = {0};
        s.region = regions.v[i];
        int r = aws_region_valid(s.region)
                    ? offers_of_region(&s, &e)
                    : gp_fail(&e, GP_EUSAGE, "offers[%zu]: '%s' is not a region of aws", index, s.region);
        if (r == 0) continue;
        if (r == -GP_ECANCELLED || (r == -GP_EAUTH && e.scope == GP_SCOPE_PROVIDER)) {
            if (err != NULL) *err = e;
            return r;
        }
        if (regions.n > 1) event_emit(a->sink, -1, NODE_PLANNED, EVENT_WARN, "offers", "%s", e.msg);
        int code = gp_exit_code(e.code);
        if (worst.code == GP_OK || gp_exit_worst(code, worst_exit) != worst_exit) {
            worst = e;
            worst_exit = code;
        }
    }
    if (ret->list.len > before) return 0;
    /* An error of this entry does not rule out others. */
    if (worst.code == GP_EUSAGE && worst.scope == GP_SCOPE_NONE) worst.scope = GP_SCOPE_OFFER;
    if (err != NULL) *err = worst;
    return -(int)worst.code;
}
