# SPDX-License-Identifier: Apache-2.0
"""Role definitions and role assignments of the stand-in for Azure. An assignment outlives the machine of its scope;
its name is unique, and another principal under that name is refused."""
import uuid

ROLE = "55555555-5555-5555-5555-555555555555"
ACTIONS = ["Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/delete"]


class Authorization:
    """Needs error, paged, groups and things of the stand-in. Knobs: role_actions: of the one role definition;
    unknown_principal: so many assignments are refused first, because the identity is new; hidden_grants: assignments
    exist and are not returned."""

    def authorization_init(self, error):
        self.role_error = error
        self.grants, self.role_actions, self.unknown_principal, self.hidden_grants = {}, list(ACTIONS), 0, False

    @staticmethod
    def identity_of(body):
        wanted = body.get("identity", {}).get("type")
        return {"type": wanted, "principalId": str(uuid.uuid4()), "tenantId": str(uuid.uuid4())} if wanted else None

    def RoleDefinitions_Get(self, op, headers):
        if op.path["roleDefinitionId"].lower() != ROLE:
            raise self.role_error(404, "RoleDefinitionDoesNotExist", "The specified role definition does not exist.")
        return 200, {}, {"id": "/%s/providers/Microsoft.Authorization/roleDefinitions/%s" % (op.path["scope"], ROLE),
                         "name": ROLE, "type": "Microsoft.Authorization/roleDefinitions", "properties": {
                             "roleName": "gpuprov me node", "type": "CustomRole", "permissions": [
                                 {"actions": self.role_actions, "notActions": []}]}}

    def RoleAssignments_ListForResourceGroup(self, op, headers):
        below = "/resourcegroups/%s/" % op.path["resourceGroupName"].lower()
        shown = [g for g in self.grants.values() if below in g["properties"]["scope"].lower()]
        return self.paged([] if self.hidden_grants else shown)

    def RoleAssignments_Get(self, op, headers):
        found = self.grants.get(op.path["roleAssignmentName"].lower())
        if found is None or self.hidden_grants:
            raise self.role_error(404, "NotFound", "The role assignment is not found.", {"Retry-After": "0"})
        return 200, {}, found

    def RoleAssignments_Create(self, op, headers):
        wanted, name, scope = op.body["properties"], op.path["roleAssignmentName"].lower(), "/" + op.path["scope"]
        uuid.UUID(name)
        vms = [t for t in self.things.values() if t["id"].lower() == scope.lower()]
        if not vms:
            raise self.role_error(404, "ResourceNotFound", "The scope is not there.")
        if self.unknown_principal:
            self.unknown_principal -= 1
            raise self.role_error(400, "PrincipalNotFound", "Principal %s does not exist." % wanted["principalId"],
                                  {"Retry-After": "0"})
        assert wanted["principalId"] == vms[0]["identity"]["principalId"] and wanted["principalType"] == "ServicePrincipal"
        old = self.grants.get(name)
        if old is not None and old["properties"]["principalId"] != wanted["principalId"]:
            raise self.role_error(400, "RoleAssignmentUpdateNotPermitted", "Principal ID is not allowed to be updated.")
        self.grants[name] = {"id": "%s/providers/Microsoft.Authorization/roleAssignments/%s" % (scope, name),
                             "name": name, "type": "Microsoft.Authorization/roleAssignments",
                             "properties": dict(wanted, scope=scope)}
        return (201 if old is None else 200), {}, self.grants[name]

    def RoleAssignments_Delete(self, op, headers):
        gone = self.grants.pop(op.path["roleAssignmentName"].lower(), None)
        return (200, {}, gone) if gone else (204, {}, None)
