// SPDX-License-Identifier: Apache-2.0
/* Capacity that was reserved before: an On-Demand Capacity Reservation or a Capacity Block, by its id. It decides zone
 * and instance type. EC2 begins to terminate the nodes of a block 30 minutes before its end (EC2 user guide, "Work with
 * Capacity Blocks", read 2026-11-23). Buys nothing. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"

#define BLOCK_ENDS_EARLY_S (30 * 60)

void aws_reservation_clear(struct aws_reservation *r) {
    free(r->id);
    free(r->region);
    free(r->type);
    free(r->zone);
    free(r->state);
    free(r->placement);
    *r = (struct aws_reservation){0};
}

/* The name in "arn:aws:ec2:us-east-1:123456789012:placement-group/NAME". */
static const char *name_in_arn(const char *arn) {
    const char *at = strstr(arn, ":placement-group/");
    return str_starts(arn, "arn:") && at != NULL ? at + strlen(":placement-group/") : "";
}

static int on_reservation(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct aws_reservation *r = ctx;
    const char *type = xml_str(item, "instanceType", ""), *zone = xml_str(item, "availabilityZone", "");
    const char *state = xml_str(item, "state", ""), *group = name_in_arn(xml_str(item, "placementGroupArn", ""));
    int64_t free_nodes = 0;
    if (strcmp(xml_str(item, "capacityReservationId", ""), r->id) != 0 || !form_word(type) || !form_word(zone) ||
        !form_word(state) || strlen(group) > 255 ||
        !str_to_i64(xml_str(item, "availableInstanceCount", "0"), 0, 100000, &free_nodes))
        return gp_fail(err, GP_EPROTO,
                       "ec2 DescribeCapacityReservations in %s: an entry that is not %s with its type, zone, state and "
                       "count: run the same command again",
                       r->region, r->id);
    resource_set(&r->type, type);
    resource_set(&r->zone, zone);
    resource_set(&r->state, state);
    resource_set(&r->placement, group);
    str_one_line(r->placement);
    r->block = strcmp(xml_str(item, "reservationType", ""), "capacity-block") == 0;
    r->free_nodes = (int)free_nodes;
    if (!time_parse_utc(xml_str(item, "endDate", ""), &r->ends_s)) r->ends_s = 0;
    if (!time_parse_utc(xml_str(item, "startDate", ""), &r->starts_s)) r->starts_s = 0;
    return 0;
}

static struct aws_reservation *cached(const struct aws *a, const char *region, const char *id) {
    struct aws_reservation *r = &a->cache->reservation;
    return r->id != NULL && strcmp(r->id, id) == 0 && strcmp(r->region, region) == 0 ? r : NULL;
}

int aws_reservation_find(struct aws *a, const char *region, const char *id, bool fresh,
                         const struct aws_reservation **ret, struct gp_error *err) {
    *ret = fresh ? NULL : cached(a, region, id);
    if (*ret != NULL) return 0;
    struct aws_reservation found = {.id = xstrdup(id), .region = xstrdup(region)};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeCapacityReservations");
    aws_param(&body, "CapacityReservationId.1", id);
    int r = aws_describe(a, region, "DescribeCapacityReservations", &body, 0, "capacityReservationSet", on_reservation,
                         &found, err);
    if (r == 0 && found.type == NULL)
        r = gp_fail(err, GP_EUSAGE, "aws %s has no capacity reservation '%s'", region, id);
    if (r == -GP_EUSAGE && err != NULL) err->scope = GP_SCOPE_REGION;
    if (r == 0) {
        aws_reservation_clear(&a->cache->reservation);
        a->cache->reservation = found;
        *ret = &a->cache->reservation;
    } else {
        aws_reservation_clear(&found);
    }
    return r;
}

static int refuse(struct gp_error *err, int r) {
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

int aws_reservation_check(const struct aws_reservation *r, const struct spec *spec, const struct spec_offer *offer,
                          int64_t now_s, struct gp_error *err) {
    const char *what = r->block ? "Capacity Block" : "capacity reservation";
    char start[32], end[32], deadline[32];
    int64_t deadline_s = now_s + spec->ttl_ms / 1000;
    time_format_utc(start, sizeof start, r->starts_s);
    time_format_utc(end, sizeof end, r->ends_s);
    time_format_utc(deadline, sizeof deadline, deadline_s);
    if (offer->market == MARKET_SPOT)
        return refuse(err, gp_fail(err, GP_EUSAGE, "%s %s: it has no spot nodes: remove market: spot", what, r->id));
    if (offer->instance_type != NULL && strcmp(offer->instance_type, r->type) != 0)
        return refuse(err, gp_fail(err, GP_EUSAGE, "%s %s is of %s, not of %s: correct instance_type", what, r->id,
                                   r->type, offer->instance_type));
    if (offer->zones.n > 0 && !strv_has(&offer->zones, r->zone))
        return refuse(err, gp_fail(err, GP_EUSAGE, "%s %s is in %s: correct zones", what, r->id, r->zone));
    if (strcmp(r->state, "active") != 0)
        return refuse(err, gp_fail(err, GP_ECAPACITY, "%s %s in %s is %s%s%s: %s", what, r->id, r->zone, r->state,
                                   r->starts_s > now_s ? ", and begins " : "", r->starts_s > now_s ? start : "",
                                   r->starts_s > now_s ? "wait for its start" : "use another one"));
    if (r->block && r->ends_s > 0 && deadline_s > r->ends_s - BLOCK_ENDS_EARLY_S)
        return refuse(err, gp_fail(err, GP_EUSAGE,
                                   "%s %s ends %s and EC2 terminates its nodes from 30 minutes before on, but the "
                                   "deadline is %s: set limits.ttl to %lld minutes or less",
                                   what, r->id, end, deadline,
                                   (long long)GP_MAX((r->ends_s - BLOCK_ENDS_EARLY_S - now_s) / 60, (int64_t)0)));
    if (r->free_nodes == 0)
        return refuse(err, gp_fail(err, GP_ECAPACITY,
                                   "%s %s in %s has no free node: end the nodes that use it, or use "
                                   "another one",
                                   what, r->id, r->zone));
    return 0;
}

void aws_reservation_add(struct str *body, const struct aws_reservation *r) {
    if (r->block) aws_param(body, "InstanceMarketOptions.MarketType", "capacity-block");
    aws_param(body, "CapacityReservationSpecification.CapacityReservationTarget.CapacityReservationId", r->id);
}
