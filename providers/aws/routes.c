// SPDX-License-Identifier: Apache-2.0
/* Whether nodes without a public address have a way out: the default route of their subnet. A node that has none
 * cannot fetch packages, and its bootstrap fails after minutes. A table that cannot be read is unknown. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

struct search {
    const char *subnet;
    bool own; /* a table is associated with the subnet: it wins over the VPC's main one */
    enum aws_way way;
};

static enum aws_way way_of(const struct xml_node *table) {
    const struct xml_node *set = xml_find(table, "routeSet");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        const struct xml_node *route = set->children.items[i];
        bool all = strcmp(xml_str(route, "destinationCidrBlock", ""), "0.0.0.0/0") == 0;
        if (!all || strcmp(xml_str(route, "state", ""), "blackhole") == 0) continue;
        return str_starts(xml_str(route, "gatewayId", ""), "igw-") ? AWS_WAY_PUBLIC_ONLY : AWS_WAY_OUT;
    }
    return AWS_WAY_NONE;
}

static int on_table(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct search *s = ctx;
    const struct xml_node *set = xml_find(item, "associationSet");
    (void)err;
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        const struct xml_node *a = set->children.items[i];
        bool mine = strcmp(xml_str(a, "subnetId", ""), s->subnet) == 0;
        bool main = strcmp(xml_str(a, "main", ""), "true") == 0;
        if (!mine && (!main || s->own)) continue;
        s->own = s->own || mine;
        s->way = way_of(item);
    }
    return 0;
}

enum aws_way aws_way_out(struct aws *a, const char *region, const struct aws_subnet *subnet) {
    struct search s = {.subnet = subnet->id, .way = AWS_WAY_UNKNOWN};
    GP_AUTO_STR struct str body = {0};
    aws_begin(&body, "DescribeRouteTables");
    aws_filter(&body, 1, "vpc-id", subnet->vpc);
    int r = aws_describe(a, region, "DescribeRouteTables", &body, 0, "routeTableSet", on_table, &s, NULL);
    return r == 0 ? s.way : AWS_WAY_UNKNOWN;
}
