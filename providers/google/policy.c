// SPDX-License-Identifier: Apache-2.0
/* The least permissions as a custom role, for `gpuprov providers google --policy`. Pure. */
#include "base/gp_base.h"

#include "providers/google/google_int.h"

#include "base/form.h"

static const char *const permissions[] = {
    /* reads */
    "compute.acceleratorTypes.list", "compute.disks.list", "compute.firewalls.get", "compute.firewalls.list",
    "compute.globalOperations.get", "compute.images.get", "compute.images.getFromFamily", "compute.instances.get",
    "compute.instances.getSerialPortOutput", "compute.instances.list", "compute.machineTypes.list",
    "compute.networks.get", "compute.projects.get", "compute.regions.get", "compute.subnetworks.get",
    "compute.zoneOperations.get",
    /* the claim and the rule between nodes */
    "compute.firewalls.create", "compute.firewalls.delete", "compute.firewalls.update", "compute.networks.updatePolicy",
    /* nodes */
    "compute.disks.create", "compute.disks.delete", "compute.disks.setLabels", "compute.images.useReadOnly",
    "compute.instances.create", "compute.instances.delete", "compute.instances.setLabels",
    "compute.instances.setMetadata", "compute.instances.setServiceAccount", "compute.instances.setTags",
    "compute.subnetworks.use", "compute.subnetworks.useExternalIp"};

int google_policy_json(const char *owner, char **ret, struct gp_error *err) {
    if (!form_owner(owner))
        return gp_fail(err, GP_EUSAGE, "the owner '%.140s' is not valid: give %s", owner != NULL ? owner : "",
                       FORM_OWNER_TEXT);
    GP_AUTO_FREE char *about = xasprintf("Launches and deletes GPU nodes for %s with gpuprov", owner);
    json_t *list = json_array();
    for (size_t i = 0; i < GP_ARRAY_LEN(permissions); i++) json_array_append_new(list, json_string(permissions[i]));
    GP_AUTO_JSON json_t *role = json_pack("{s:s, s:s, s:s, s:o}", "title", "gpuprov", "description", about, "stage",
                                          "GA", "includedPermissions", list);
    GP_AUTO_FREE char *text = json_text(role, 2);
    *ret = xasprintf("%s\n", text);
    return 0;
}
