// SPDX-License-Identifier: Apache-2.0
/* The least role of an owner, for `gpuprov providers azure --policy`: the definition of a custom role, as `az role
 * definition create --role-definition` takes it. Azure's roles have no conditions on tags of machines, so a role is
 * limited by its scope only. Pure. */
#include "base/gp_base.h"

#include "providers/azure/azure_int.h"

#include "base/form.h"

static const char *const actions[] = {
    "Microsoft.Resources/subscriptions/read",
    "Microsoft.Resources/subscriptions/locations/read",
    "Microsoft.Resources/subscriptions/resourceGroups/read",
    "Microsoft.Resources/subscriptions/resourceGroups/write",
    "Microsoft.Resources/subscriptions/resourceGroups/delete",
    "Microsoft.Resources/subscriptions/resourceGroups/resources/read",
    "Microsoft.Resources/tags/write",
    "Microsoft.Compute/skus/read",
    "Microsoft.Compute/locations/usages/read",
    "Microsoft.Compute/locations/operations/read",
    "Microsoft.Compute/virtualMachines/read",
    "Microsoft.Compute/virtualMachines/write",
    "Microsoft.Compute/virtualMachines/delete",
    "Microsoft.Compute/virtualMachines/instanceView/read",
    "Microsoft.Compute/availabilitySets/read",
    "Microsoft.Compute/availabilitySets/write",
    "Microsoft.Compute/availabilitySets/delete",
    "Microsoft.Compute/disks/read",
    "Microsoft.Compute/disks/write",
    "Microsoft.Compute/disks/delete",
    "Microsoft.Compute/images/read",
    "Microsoft.Compute/galleries/images/versions/read",
    "Microsoft.Network/networkInterfaces/read",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Network/networkInterfaces/delete",
    "Microsoft.Network/networkInterfaces/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/publicIPAddresses/delete",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/networkSecurityGroups/read",
    "Microsoft.Network/networkSecurityGroups/write",
    "Microsoft.Network/networkSecurityGroups/delete",
    "Microsoft.Network/networkSecurityGroups/join/action",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/write",
    "Microsoft.Network/virtualNetworks/delete",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
};

/* What a node may do with the machine that it runs on. */
static const char *const node_actions[] = {"Microsoft.Compute/virtualMachines/read",
                                           "Microsoft.Compute/virtualMachines/delete"};

static int print_role(const char *owner, const char *kind, const char *about, const char *const *list, size_t n,
                      char **ret, struct gp_error *err) {
    const char *subscription = azure_env("AZURE_SUBSCRIPTION_ID");
    if (!form_owner(owner))
        return gp_fail(err, GP_EUSAGE, "the owner '%.140s' is not valid: give %s", owner != NULL ? owner : "",
                       FORM_OWNER_TEXT);
    if (subscription == NULL || !azure_is_guid(subscription))
        return gp_fail(err, GP_EUSAGE, "a role is limited to a subscription: set AZURE_SUBSCRIPTION_ID to its id");
    json_t *allowed = json_array();
    for (size_t i = 0; i < n; i++) json_array_append_new(allowed, json_string(list[i]));
    GP_AUTO_FREE char *name = xasprintf("gpuprov%s %s", kind, owner);
    GP_AUTO_FREE char *scope = xasprintf("/subscriptions/%s", subscription);
    GP_AUTO_JSON json_t *role = json_pack("{s:s,s:b,s:s,s:o,s:[],s:[s]}", "Name", name, "IsCustom", 1, "Description",
                                          about, "Actions", allowed, "NotActions", "AssignableScopes", scope);
    GP_AUTO_FREE char *text = json_text(role, 2);
    *ret = xasprintf("%s\n", text);
    return 0;
}

int azure_policy_json(const char *owner, char **ret, struct gp_error *err) {
    return print_role(
        owner, "",
        "GPU nodes by gpuprov: resource groups, virtual machines and their networks. Azure has no conditions on tags "
        "here: give the owner a subscription of its own to keep others' resources apart.",
        actions, GP_ARRAY_LEN(actions), ret, err);
}

int azure_node_policy_json(const char *owner, char **ret, struct gp_error *err) {
    return print_role(
        owner, " node",
        "The right of a node of gpuprov to delete itself at its deadline. It is assigned to the identity of "
        "each virtual machine, in the scope of that machine alone.",
        node_actions, GP_ARRAY_LEN(node_actions), ret, err);
}
