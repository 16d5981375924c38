// SPDX-License-Identifier: Apache-2.0
/* eRDMA between the nodes of a gang: which types have it (EriQuantity of DescribeInstanceTypes), and the interface of a
 * launch. Only the primary interface becomes an elastic RDMA interface: RunInstances gives its tags to the instance,
 * the disks and the primary interface, so a further one would have no owner. No calls. */
#include "base/gp_base.h"

#include "providers/alibaba/ali_int.h"

static char *key_of(const char *region, const char *type) { return xasprintf("%s/%s", region, type); }

void ali_fabric_seen(struct ali *a, const char *region, const char *type, int interfaces) {
    GP_AUTO_FREE char *key = key_of(region, type);
    if (interfaces > 0 && !strv_has(&a->cache->erdma, key)) strv_add(&a->cache->erdma, key);
}

static bool has(const struct ali *a, const char *region, const char *type) {
    GP_AUTO_FREE char *key = key_of(region, type);
    return strv_has(&a->cache->erdma, key);
}

char *ali_fabric_text(const struct ali *a, const struct spec *spec, const char *region, const char *type) {
    if (spec->nodes < 2 || !has(a, region, type)) return xstrdup("");
    if (spec->fabric == FABRIC_AUTO) return xstrdup("eRDMA on the primary interface");
    return xstrdup("TCP only; the type has eRDMA: bootstrap.fabric: auto uses it");
}

void ali_interface_add(struct str *query, const struct ali *a, const struct create_req *req,
                       const struct ali_place *at) {
    const struct offer *o = req->offer;
    if (req->spec->nodes > 1 && req->spec->fabric == FABRIC_AUTO && has(a, o->region, o->instance_type)) {
        ali_param(query, "NetworkInterface.1.InstanceType", "Primary");
        ali_param(query, "NetworkInterface.1.NetworkInterfaceTrafficMode", "HighPerformance");
        ali_param(query, "NetworkInterface.1.VSwitchId", at->vswitch);
        ali_param(query, "NetworkInterface.1.SecurityGroupId", at->group);
        return;
    }
    ali_param(query, "VSwitchId", at->vswitch);
    ali_param(query, "SecurityGroupId", at->group);
}
