# SPDX-License-Identifier: Apache-2.0
"""Managed identities and role assignments of the stand-in for Azure, and the metadata service of one of its machines.
A machine's token reads and deletes that machine if a role is assigned to its identity in that scope, and does nothing
else. Assignments stay when their machine or its group is deleted: so a client that forgets one is found out."""
import copy
import re
import urllib.parse
import uuid

from mock import Fault  # noqa: UP026 (the file beside this one)

ROLE = "55555555-5555-4555-8555-555555555555"  # a role of nodes, as 'providers azure --policy --node' prints it
WIDE = "66666666-6666-4666-8666-666666666666"  # one that allows more
TAG = "gpuprov-role"  # of machines and of their group
NODE = ["Microsoft.Compute/virtualMachines/read", "Microsoft.Compute/virtualMachines/delete"]


def error(status, code, message):
    return Fault(status, {"error": {"code": code, "message": message}}, {"Retry-After": "0"})


class Rights:
    """machine: (group, name) of the machine whose metadata service is asked."""

    def begin_rights(self, subscription, tenant):
        self.here, self.tenant = "/subscriptions/" + subscription, tenant
        self.roles = {ROLE: NODE, WIDE: [*NODE, "Microsoft.Compute/virtualMachines/write"]}
        self.grants, self.machine, self.identities = {}, None, {}  # (scope, name): assignment; ..; token: principal

    def identified(self, body):
        made = copy.deepcopy(body)
        if made.get("identity", {}).get("type") == "SystemAssigned":
            made["identity"].update(principalId=str(uuid.uuid4()), tenantId=self.tenant)
        return made

    def machine_metadata(self, target, headers):
        parts = urllib.parse.urlsplit(target)
        query = dict(urllib.parse.parse_qsl(parts.query))
        thing = self.things.get((self.machine[0], "Microsoft.Compute/virtualMachines", self.machine[1]))
        if headers.get("metadata") != "true":
            raise error(400, "BadRequest", "Bad request. Required metadata header not specified")
        if thing is None:
            raise error(410, "Gone", "The machine is gone.")
        if parts.path == "/metadata/identity/oauth2/token" and query == {
                "api-version": "2018-02-01", "resource": "https://management.azure.com"}:
            token = self.token(oid=thing["identity"]["principalId"])
            self.identities[token] = thing["identity"]["principalId"]
            return 200, {}, {"access_token": token, "expires_in": "86399", "token_type": "Bearer",
                             "resource": query["resource"]}
        texts = {"/metadata/instance/compute/resourceId": thing["id"],
                 "/metadata/instance/compute/azEnvironment": "AzurePublicCloud"}
        if parts.path in texts and query == {"api-version": "2021-02-01", "format": "text"}:
            return 200, {"Content-Type": "text/plain; charset=utf-8"}, texts[parts.path].encode()
        raise error(404, "NotFound", target)

    def check_identity(self, method, path, headers):
        principal = self.identities.get(headers["authorization"][7:])
        if principal is None:
            return
        allowed = any(path.lower() == scope and g["properties"]["principalId"] == principal and
                      "Microsoft.Compute/virtualMachines/" + {"GET": "read", "DELETE": "delete"}.get(method, "write") in
                      self.roles[g["properties"]["roleDefinitionId"].split("/")[-1]]
                      for (scope, _), g in self.grants.items())
        if not allowed:
            raise error(403, "AuthorizationFailed", "The client '%s' does not have authorization." % principal)

    # --- operations ---

    def RoleDefinitions_Get(self, op, headers):
        name = op.path["roleDefinitionId"]
        if name not in self.roles:
            raise error(404, "RoleDefinitionDoesNotExist", "The specified role definition with ID '%s' does not exist." % name)
        return 200, {}, {"id": "%s/providers/Microsoft.Authorization/roleDefinitions/%s" % (self.here, name), "name": name,
                         "type": "Microsoft.Authorization/roleDefinitions", "properties": {
                             "roleName": "gpuprov node me", "type": "CustomRole", "assignableScopes": [self.here],
                             "permissions": [{"actions": self.roles[name], "notActions": [], "dataActions": [],
                                              "notDataActions": []}]}}

    def RoleAssignments_Create(self, op, headers):
        scope, wanted = "/" + op.path["scope"].lower().strip("/"), op.body["properties"]
        key = (scope, op.path["roleAssignmentName"])
        vms = {t["id"].lower(): t for t in self.vms()}
        if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", key[1]):
            raise error(400, "InvalidRoleAssignmentId", "The role assignment ID '%s' is not valid." % key[1])
        if scope not in vms:
            raise error(404, "ResourceNotFound", "The Resource '%s' was not found." % scope)
        if wanted["principalId"] != vms[scope].get("identity", {}).get("principalId"):
            raise error(400, "PrincipalNotFound", "Principal %s does not exist in the directory." % wanted["principalId"])
        old = self.grants.get(key)
        same = [k for k, g in self.grants.items() if k[0] == scope and k != key and all(
            g["properties"][m] == wanted[m] for m in ("principalId", "roleDefinitionId"))]
        if same:
            raise error(409, "RoleAssignmentExists", "The role assignment already exists.")
        if old and any(old["properties"][m] != wanted[m] for m in ("principalId", "roleDefinitionId")):
            raise error(400, "RoleAssignmentUpdateNotPermitted", "Tenant ID, application ID, principal ID, and scope are "
                        "not allowed to be updated.")
        self.grants[key] = {"id": vms[scope]["id"] + "/providers/Microsoft.Authorization/roleAssignments/" + key[1],
                            "name": key[1], "type": "Microsoft.Authorization/roleAssignments",
                            "properties": dict(wanted, scope=vms[scope]["id"])}
        return (200 if old else 201), {}, self.grants[key]

    def RoleAssignments_Get(self, op, headers):
        found = self.grants.get(("/" + op.path["scope"].lower().strip("/"), op.path["roleAssignmentName"]))
        if found is None:
            raise error(404, "RoleAssignmentNotFound", "The role assignment '%s' is not found." %
                        op.path["roleAssignmentName"])
        return 200, {}, found

    def RoleAssignments_Delete(self, op, headers):
        found = self.grants.pop(("/" + op.path["scope"].lower().strip("/"), op.path["roleAssignmentName"]), None)
        return (200, {}, found) if found else (204, {}, None)

    def RoleAssignments_ListForResourceGroup(self, op, headers):
        below = "%s/resourcegroups/%s" % (self.here, self.group(op))
        inherited = {"id": self.here + "/providers/Microsoft.Authorization/roleAssignments/" + WIDE, "name": WIDE,
                     "type": "Microsoft.Authorization/roleAssignments",
                     "properties": {"scope": self.here, "principalId": WIDE, "principalType": "User",
                                    "roleDefinitionId": self.here + "/providers/Microsoft.Authorization/roleDefinitions/" +
                                    WIDE}}
        return self.paged([inherited, *(g for (scope, _), g in sorted(self.grants.items())
                                        if scope == below or scope.startswith(below + "/"))])
