# SPDX-License-Identifier: Apache-2.0
"""Microsoft's Python SDK at the same stand-in, over TLS: it does the same life cycle, its requests are gpuprov's, and
it lists and deletes what gpuprov made. The SDK calls newer API versions, so only there the gate takes any."""
import base64
import json
import re
import urllib.parse

import azure.identity as identity
import azure_cloud
import azure_lab
import pytest
from mock import certificate  # noqa: UP026 (the file of tests/clouds)
from test_azure_credentials import NONE
from test_azure_credentials import certificate as client_certificate

@pytest.fixture(name="world")
def world_fixture(tmp_path):
    cert, key = certificate(tmp_path)
    with azure_cloud.Azure(tls=(cert, key)) as cloud:
        yield cloud, cert


def clients(cloud, cert):
    from azure.mgmt.compute import ComputeManagementClient
    from azure.mgmt.network import NetworkManagementClient
    from azure.mgmt.resource.resources import ResourceManagementClient
    how = {"base_url": cloud.url, "connection_verify": cert, "polling_interval": 0.05}
    who = identity.ClientSecretCredential(azure_cloud.TENANT, azure_cloud.CLIENT, azure_cloud.SECRET, authority=cloud.url,
                                          disable_instance_discovery=True, connection_verify=cert)
    return [kind(who, azure_cloud.SUBSCRIPTION, **how)
            for kind in (ResourceManagementClient, NetworkManagementClient, ComputeManagementClient)]


def sent(cloud, pattern):
    """(path, body) of the requests; API versions are left out."""
    return [(urllib.parse.urlsplit(r["target"]).path.lower(), json.loads(r["body"])) for r in cloud.requests(pattern)]


def drive(cloud, cert, folder, *args, **spec):
    env = azure_lab.environment(cloud, folder, REQUESTS_CA_BUNDLE=cert)
    return azure_lab.Drive(env, azure_lab.spec(folder, **spec), *args)


def typed(body):
    """gpuprov's machine through the SDK's own classes: its serialiser makes the names of the fields."""
    from azure.mgmt.compute import models as m
    p = body["properties"]
    [nic] = p["networkProfile"]["networkInterfaceConfigurations"]
    n = nic["properties"]
    [ip] = n["ipConfigurations"]
    pip = ip["properties"]["publicIPAddressConfiguration"]
    address = m.VirtualMachinePublicIPAddressConfiguration(
        name=pip["name"], sku=m.PublicIPAddressSku(name="Standard"),
        properties=m.VirtualMachinePublicIPAddressConfigurationProperties(
            delete_option="Delete", public_ip_allocation_method="Static"))
    main = m.VirtualMachineNetworkInterfaceIPConfiguration(
        name=ip["name"], properties=m.VirtualMachineNetworkInterfaceIPConfigurationProperties(
            primary=True, subnet=m.SubResource(id=ip["properties"]["subnet"]["id"]),
            public_ip_address_configuration=address))
    interface = m.VirtualMachineNetworkInterfaceConfiguration(
        name=nic["name"], properties=m.VirtualMachineNetworkInterfaceConfigurationProperties(
            primary=True, delete_option="Delete", ip_configurations=[main],
            network_security_group=m.SubResource(id=n["networkSecurityGroup"]["id"])))
    disk, image, os = p["storageProfile"]["osDisk"], p["storageProfile"]["imageReference"], p["osProfile"]
    [login] = os["linuxConfiguration"]["ssh"]["publicKeys"]
    return m.VirtualMachine(
        location=body["location"], tags=body["tags"], zones=body["zones"], properties=m.VirtualMachineProperties(
            hardware_profile=m.HardwareProfile(vm_size=p["hardwareProfile"]["vmSize"]),
            storage_profile=m.StorageProfile(
                image_reference=m.ImageReference(**image),
                os_disk=m.OSDisk(create_option="FromImage", delete_option="Delete", disk_size_gb=disk["diskSizeGB"],
                                 managed_disk=m.ManagedDiskParameters(storage_account_type="Premium_LRS"))),
            os_profile=m.OSProfile(
                computer_name=os["computerName"], admin_username="gpuprov", custom_data=os["customData"],
                linux_configuration=m.LinuxConfiguration(
                    disable_password_authentication=True, ssh=m.SshConfiguration(
                        public_keys=[m.SshPublicKey(path=login["path"], key_data=login["keyData"])]))),
            priority="Spot", eviction_policy="Delete", billing_profile=m.BillingProfile(max_price=-1),
            network_profile=m.NetworkProfile(network_api_version="2020-11-01",
                                             network_interface_configurations=[interface])))


def test_the_sdk_sends_what_gpuprov_sends(world, tmp_path):
    """Group, network and a spot machine: the same bodies; and gpuprov ends what the SDK has created."""
    from azure.core import MatchConditions
    from azure.core.exceptions import HttpResponseError
    cloud, cert = world
    assert drive(cloud, cert, tmp_path, "create", nodes=1, offer={"market": "spot"}).rc == 0
    pattern = "PUT .*/(resourcegroups|networkSecurityGroups|virtualNetworks|virtualMachines)/[^/?]*[?]"
    ours = sorted(sent(cloud, pattern))  # by path: the network's two are sent side by side
    assert len(ours) == 4 and cloud.faults == []
    assert [r["headers"].get("if-none-match") for r in cloud.requests(pattern)] == [None, None, None, "*"]
    assert drive(cloud, cert, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)
    cloud.log.clear()
    cloud.any_version = True
    groups, network, compute = clients(cloud, cert)
    (path, group), (_, vm), (_, guard), (_, net) = ours
    name, own = path.split("/")[-1], vm["properties"]["osProfile"]["computerName"]
    groups.resource_groups.create_or_update(name, group)
    network.network_security_groups.begin_create_or_update(name, "gpuprov-eastus", guard).result()
    network.virtual_networks.begin_create_or_update(name, "gpuprov-eastus", net).result()
    made = compute.virtual_machines.begin_create_or_update(name, own, typed(vm), etag="*",
                                                           match_condition=MatchConditions.IfMissing).result()
    assert made.zones == ["1"] and made.tags == vm["tags"]
    assert sorted(sent(cloud, pattern)) == ours
    assert cloud.requests("PUT .*/virtualMachines/")[0]["headers"]["if-none-match"] == "*"
    with pytest.raises(HttpResponseError) as refused:  # the name is taken
        compute.virtual_machines.begin_create_or_update(name, own, typed(vm), etag="*",
                                                        match_condition=MatchConditions.IfMissing)
    assert refused.value.status_code == 412
    cloud.any_version = False
    listed = drive(cloud, cert, tmp_path, "list")
    [node] = [r for r in listed["resources"] if r["kind"] == "instance"]
    assert node["state"] == "running" and node["public_ip"].startswith("127.77.")
    assert drive(cloud, cert, tmp_path, "destroy").rc == 0
    azure_lab.clean(cloud)


def test_the_sdk_lists_and_deletes_what_gpuprov_made(world, tmp_path):
    """Its requests for it are gpuprov's too: paths and query names are compared."""
    cloud, cert = world
    assert drive(cloud, cert, tmp_path, "create").rc == 0
    assert drive(cloud, cert, tmp_path, "list").rc == 0
    reads = {shape(r) for r in cloud.requests("GET /subscriptions/[^/]*/resource")}
    cloud.any_version, cloud.page = True, 1
    cloud.log.clear()
    groups, network, compute = clients(cloud, cert)
    wanted = "tagName eq 'gpuprov:owner' and tagValue eq '%s'" % azure_cloud.PRINCIPAL
    [group] = groups.resource_groups.list(filter=wanted)
    assert group.tags["gpuprov:stack"] == "contract" and group.tags["gpuprov:claim"] == "1"
    groups.resource_groups.get(group.name)
    vms = list(compute.virtual_machines.list(group.name))
    assert [vm.name.rpartition("-")[0] for vm in vms] == ["gpuprov-contract-0-1", "gpuprov-contract-1-1"]
    for vm in vms:
        view = compute.virtual_machines.instance_view(group.name, vm.name)
        assert "PowerState/running" in [s.code for s in view.statuses]
        compute.virtual_machines.get(group.name, vm.name, expand="instanceView")
    assert len(list(network.network_interfaces.list(group.name))) == 2
    assert len(list(network.public_ip_addresses.list(group.name))) == 2
    assert len(list(compute.disks.list_by_resource_group(group.name))) == 2
    assert list(compute.availability_sets.list(group.name)) == []
    assert len(list(network.network_security_groups.list(group.name))) == 1
    assert len(list(network.virtual_networks.list(group.name))) == 1
    network.network_security_groups.get(group.name, "gpuprov-eastus")
    network.virtual_networks.get(group.name, "gpuprov-eastus")
    theirs = {shape(r) for r in cloud.requests("GET /subscriptions/[^/]*/resource")}
    assert reads <= theirs, reads - theirs
    compute.virtual_machines.begin_delete(group.name, vms[0].name, force_deletion=True).result()
    groups.resource_groups.begin_delete(group.name, force_deletion_types="Microsoft.Compute/virtualMachines").result()
    deletes = {shape(r) for r in cloud.requests("^DELETE")}
    assert cloud.groups == {} and cloud.things == {}
    cloud.any_version = False
    cloud.log.clear()
    assert drive(cloud, cert, tmp_path, "create", "2").rc == 0
    assert drive(cloud, cert, tmp_path, "destroy").rc == 0
    assert {shape(r) for r in cloud.requests("^DELETE")} == deletes
    azure_lab.clean(cloud)


def shape(record):
    """Method, path without the names of machines, and names of the query."""
    parts = urllib.parse.urlsplit(record["target"])
    path = re.sub(r"gpuprov-contract-\d-\d(-[0-9a-f]{20})?", "VM", parts.path.lower())
    return record["method"], path, tuple(sorted(set(urllib.parse.parse_qs(parts.query)) - {"$skiptoken"}))


def test_the_same_token_requests(world, tmp_path):
    """Client secret: form, content type and fields; MSAL adds client_info."""
    cloud, cert = world
    assert drive(cloud, cert, tmp_path, "open").rc == 0
    groups, _, _ = clients(cloud, cert)
    cloud.any_version = True
    assert list(groups.resource_groups.list()) == []
    ours, theirs = (dict(urllib.parse.parse_qsl(r["body"])) for r in cloud.requests("POST .*/token"))
    assert theirs.pop("client_info") == "1"
    assert ours == {**theirs, "scope": theirs["scope"].split(" ")[0]}


def parts(assertion):
    """Header and claims of a JWT, without its times and its id."""
    head, claims = (json.loads(base64.urlsafe_b64decode(p + "=" * (-len(p) % 4))) for p in assertion.split(".")[:2])
    for name in ("exp", "nbf", "iat", "jti"):
        claims.pop(name, None)
    return head, claims


@pytest.mark.parametrize("kind", ["certificate", "federated"])
def test_assertions_are_those_of_the_sdk(world, tmp_path, kind):
    cloud, cert = world
    cloud.assertion = lambda text: True
    how = {"authority": cloud.url, "disable_instance_discovery": True, "connection_verify": cert}
    if kind == "certificate":
        path, _, _ = client_certificate(tmp_path)
        env = {"AZURE_CLIENT_CERTIFICATE_PATH": str(path)}
        who = identity.CertificateCredential(azure_cloud.TENANT, azure_cloud.CLIENT, str(path), **how)
    else:
        path = tmp_path / "token"
        path.write_text("a.federated.token")
        env = {"AZURE_FEDERATED_TOKEN_FILE": str(path)}
        who = identity.WorkloadIdentityCredential(tenant_id=azure_cloud.TENANT, client_id=azure_cloud.CLIENT,
                                                  token_file_path=str(path), **how)
    env = azure_lab.environment(cloud, tmp_path, REQUESTS_CA_BUNDLE=cert, AZURE_CLIENT_SECRET=None, **env)
    assert azure_lab.Drive(env, azure_lab.spec(tmp_path), "open").rc == 0
    who.get_token(azure_cloud.MANAGER + "/.default")
    ours, theirs = (dict(urllib.parse.parse_qsl(r["body"])) for r in cloud.requests("POST .*/token"))
    assertions = [q.pop("client_assertion") for q in (ours, theirs)]
    theirs.pop("client_info", None)
    assert ours == {**theirs, "scope": theirs["scope"].split(" ")[0]}
    if kind == "federated":
        assert assertions == ["a.federated.token"] * 2
    else:
        (head, claims), theirs = map(parts, assertions)
        assert (dict(head, x5t=head["x5t"] + "="), claims) == theirs  # RFC 7515 has no padding, MSAL writes it


def test_the_managed_identity_is_asked_as_the_sdk_does(world, tmp_path, monkeypatch):
    cloud, cert = world
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", cloud.url)
    env = azure_lab.environment(cloud, tmp_path, **{**NONE, "AZURE_CLIENT_ID": azure_cloud.CLIENT},
                                AZURE_POD_IDENTITY_AUTHORITY_HOST=cloud.url, REQUESTS_CA_BUNDLE=cert)
    assert azure_lab.Drive(env, azure_lab.spec(tmp_path), "open").rc == 0
    identity.ManagedIdentityCredential(client_id=azure_cloud.CLIENT, connection_verify=cert).get_token(
        azure_cloud.MANAGER + "/.default")
    asked = [(urllib.parse.urlsplit(r["target"]).path, dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(r["target"]).query)),
              r["headers"].get("metadata")) for r in cloud.requests("GET /metadata")]
    assert len(asked) >= 2 and asked[0] == asked[-1], asked
