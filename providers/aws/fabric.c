// SPDX-License-Identifier: Apache-2.0
/* EFA between the nodes of a gang: which types have it, and the network interfaces of a launch. AWS documents the
 * layout in the EC2 user guide, "Maximize network bandwidth on instances with multiple network cards" (read
 * 2026-11-23): one interface on each card, the primary one with IP (card 0, device 0), the others EFA only (device 1).
 * EC2 gives no public address to a node with several interfaces. No calls. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

static int xml_number(const struct xml_node *n, const char *path) {
    int64_t v = 0;
    return str_to_i64(xml_str(n, path, "0"), 0, 1024, &v) ? (int)v : 0;
}

static bool takes_efa(const struct xml_node *card) {
    const struct xml_node *set = xml_find(card, "interfaceTypeSet");
    bool efa = set == NULL || set->children.len == 0; /* an older endpoint: every card of a type with EFA */
    for (size_t i = 0; set != NULL && i < set->children.len; i++)
        efa = efa || strcmp(set->children.items[i]->text, "efa") == 0;
    return efa;
}

void aws_nics_read(const struct xml_node *type, struct aws_nics *ret) {
    const struct xml_node *net = xml_find(type, "networkInfo");
    const struct xml_node *cards = xml_find(net, "networkCards");
    *ret = (struct aws_nics){0};
    if (strcmp(xml_str(net, "efaSupported", ""), "true") != 0) return;
    int most = GP_MAX(xml_number(net, "efaInfo/maximumEfaInterfaces"), 1);
    for (size_t i = 0; cards != NULL && i < cards->children.len; i++) {
        int index = xml_number(cards->children.items[i], "networkCardIndex");
        if (index >= AWS_CARDS_MAX || !takes_efa(cards->children.items[i]) || ret->efa == most) continue;
        ret->cards |= UINT64_C(1) << index;
        ret->efa++;
    }
    if (cards == NULL || cards->children.len == 0) *ret = (struct aws_nics){.efa = 1, .cards = 1};
}

static bool has_card(const struct aws_nics *n, int card) { return (n->cards >> card & 1) != 0; }

bool aws_nics_several(const struct aws_nics *n) { return (n->cards & ~UINT64_C(1)) != 0; }

int aws_fabric_choose(const struct spec *spec, const char *type, const struct aws_nics *of, struct aws_nics *ret,
                      struct gp_error *err) {
    int r = 0;
    *ret = (struct aws_nics){0};
    if (spec->nodes < 2 || (spec->fabric != FABRIC_EFA && spec->fabric != FABRIC_AUTO)) return 0;
    if (of->efa == 0 && spec->fabric == FABRIC_EFA)
        r = gp_fail(err, GP_EUSAGE, "aws: %s has no EFA: give an instance_type that has it, or bootstrap.fabric: auto",
                    type);
    else if (aws_nics_several(of) && spec->access.public_ip)
        r = gp_fail(err, GP_EUSAGE,
                    "aws: %s has EFA on %d network cards, and EC2 gives no public address to a node with several: "
                    "set access.public_ip: false with a subnet that has a NAT gateway and access.bastion, or "
                    "bootstrap.fabric: none",
                    type, of->efa);
    else *ret = *of;
    if (r != 0 && err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

char *aws_fabric_text(const struct spec *spec, const struct aws_nics *of, const struct aws_nics *chosen,
                      const char *placement) {
    if (chosen->efa > 0) return xasprintf("EFA x%d, %s", chosen->efa, placement);
    if (spec->nodes > 1 && of->efa > 0 && spec->fabric == FABRIC_NONE)
        return xasprintf("TCP only; the type has EFA x%d: bootstrap.fabric: auto uses it", of->efa);
    return xstrdup("");
}

/* --- the interfaces of a launch --- */

static void add_interface(struct str *body, int n, int card, const char *type, const char *subnet, const char *group) {
    GP_AUTO_FREE char *index = xasprintf("%d", card);
    aws_paramf(body, card == 0 ? "0" : "1", "NetworkInterface.%d.DeviceIndex", n);
    if (type != NULL) {
        aws_paramf(body, index, "NetworkInterface.%d.NetworkCardIndex", n);
        aws_paramf(body, type, "NetworkInterface.%d.InterfaceType", n);
    }
    aws_paramf(body, subnet, "NetworkInterface.%d.SubnetId", n);
    aws_paramf(body, "true", "NetworkInterface.%d.DeleteOnTermination", n);
    aws_paramf(body, group, "NetworkInterface.%d.SecurityGroupId.1", n);
}

void aws_interfaces_add(struct str *body, const struct aws_nics *chosen, const char *subnet, const char *group) {
    int n = 1;
    const char *first = chosen->efa == 0 ? NULL : has_card(chosen, 0) ? "efa" : "interface";
    add_interface(body, n++, 0, first, subnet, group);
    for (int card = 1; card < AWS_CARDS_MAX; card++)
        if (has_card(chosen, card)) add_interface(body, n++, card, "efa-only", subnet, group);
}
