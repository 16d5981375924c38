# SPDX-License-Identifier: Apache-2.0
"""The configuration of the lab's services: one function per service, which gives the text of its files."""

PORTS = {"identity": 5000, "placement": 8778, "image": 9292, "network": 9696, "compute": 8774}
REGION = "RegionOne"
PASSWORD = "secret"
# A host's zone is its name without digits; cpu and gpu make the zone of requests that name none.
HOSTS = {"cpu1": "fake.FakeDriver", "cpu2": "fake.FakeDriver", "gpu1": "lab.GpuDriver", "gpu2": "lab.GpuDriver",
         "small1": "fake.SmallFakeDriver", "abort1": "fake.FakeBuildAbortDriver", "slow1": "lab.SlowDriver",
         "stubborn1": "lab.StubbornDriver"}
DEFAULT_ZONE = "main"


def zone_of(host):
    kind = host.rstrip("0123456789")
    return DEFAULT_ZONE if kind in ("cpu", "gpu") else kind


def url(address, service):
    path = {"identity": "/v3", "compute": "/v2.1"}.get(service, "")
    return "http://%s:%d%s" % (address, PORTS[service], path)


def ini(sections):
    """{section: {key: value}} as text; the section None comes first and has no header."""
    lines = []
    for name, keys in sections.items():
        lines += ["[%s]" % name] if name else []
        lines += ["%s = %s" % (key, value) for key, value in keys.items()] + [""]
    return "\n".join(lines)


def login(address):
    """How a service logs in at keystone, as the user svc."""
    return {"auth_url": url(address, "identity"), "auth_type": "password", "username": "svc", "password": PASSWORD,
            "project_name": "service", "user_domain_id": "default", "project_domain_id": "default",
            "region_name": REGION}


def token_check(address, service, cache_s):
    """keystonemiddleware. service_type: the access rules of application credentials need it. A request with a service's
    own token beside the user's is not held to those rules: nova creates ports and reads images for the user."""
    return {"www_authenticate_uri": url(address, "identity"), "token_cache_time": cache_s, "service_type": service,
            "interface": "public", "service_token_roles": "admin", **login(address)}


def database(folder, name):
    return {"connection": "sqlite:///%s/db/%s.db" % (folder, name)}


def keystone(folder, address, opt):
    keys = {"key_repository": folder + "/keys/fernet"}
    return {"keystone.conf": ini({
        "DEFAULT": {"log_file": folder + "/log/keystone.log"},
        "database": database(folder, "keystone"),
        "token": {"provider": "fernet", "expiration": opt["token_s"]},
        "fernet_tokens": keys, "fernet_receipts": keys,
        "credential": {"key_repository": folder + "/keys/credential"},
        "identity": {"password_hash_rounds": 4}})}


def placement(folder, address, opt):
    return {"placement.conf": ini({
        "DEFAULT": {"log_file": folder + "/log/placement.log"},
        "placement_database": {**database(folder, "placement"), "sync_on_startup": "true"},
        "api": {"auth_strategy": "keystone"},
        "keystone_authtoken": token_check(address, "placement", opt["cache_s"])})}


def paste_filter(factory):
    return {"paste.filter_factory": factory}


TOKEN_FILTER = paste_filter("keystonemiddleware.auth_token:filter_factory")
PROXY_FILTER = paste_filter("oslo_middleware:HTTPProxyToWSGI.factory")


def glance(folder, address, opt):
    paste = ini({
        "composite:glance-api-keystone": {"paste.composite_factory": "glance.api:root_app_factory", "/": "api"},
        "pipeline:api": {"pipeline": "proxy versionnegotiation authtoken context rootapp"},
        "composite:rootapp": {"paste.composite_factory": "glance.api:root_app_factory", "/": "apiversions",
                              "/v2": "apiv2app"},
        "app:apiversions": {"paste.app_factory": "glance.api.versions:create_resource"},
        "app:apiv2app": {"paste.app_factory": "glance.api.v2.router:API.factory"},
        "filter:versionnegotiation":
            paste_filter("glance.api.middleware.version_negotiation:VersionNegotiationFilter.factory"),
        "filter:context": paste_filter("glance.api.middleware.context:ContextMiddleware.factory"),
        "filter:authtoken": TOKEN_FILTER, "filter:proxy": PROXY_FILTER})
    return {"glance-paste.ini": paste, "glance.conf": ini({
        "DEFAULT": {"bind_host": address, "bind_port": PORTS["image"], "workers": 0, "transport_url": "fake:///",
                    "log_file": folder + "/log/glance.log", "enabled_backends": "local:file"},
        "database": database(folder, "glance"),
        "glance_store": {"default_backend": "local"},
        "local": {"filesystem_store_datadir": folder + "/images"},
        "os_glance_staging_store": {"filesystem_store_datadir": folder + "/work/staging"},
        "os_glance_tasks_store": {"filesystem_store_datadir": folder + "/work/tasks"},
        "paste_deploy": {"flavor": "keystone", "config_file": folder + "/etc/glance-paste.ini"},
        "keystone_authtoken": token_check(address, "image", opt["cache_s"])})}


def neutron(folder, address, opt):
    paste = ini({
        "composite:neutron": {"use": "egg:Paste#urlmap", "/": "versions", "/v2.0": "api"},
        "composite:api": {"use": "call:neutron.auth:pipeline_factory",
                          "keystone": "proxy request_id catch_errors authtoken keystonecontext extensions app"},
        "composite:versions": {"use": "call:neutron.auth:pipeline_factory", "keystone": "proxy versionsapp"},
        "filter:proxy": PROXY_FILTER,
        "filter:request_id": paste_filter("oslo_middleware:RequestId.factory"),
        "filter:catch_errors": paste_filter("oslo_middleware:CatchErrors.factory"),
        "filter:authtoken": TOKEN_FILTER,
        "filter:keystonecontext": paste_filter("neutron.auth:NeutronKeystoneContext.factory"),
        "filter:extensions": paste_filter("neutron.api.extensions:plugin_aware_extension_middleware_factory"),
        "app:versionsapp": {"paste.app_factory": "neutron.pecan_wsgi.app:versions_factory"},
        "app:app": {"paste.app_factory": "neutron.api.v2.router:APIRouter.factory"}})
    return {"neutron-paste.ini": paste, "neutron.conf": ini({
        "DEFAULT": {"bind_host": address, "bind_port": PORTS["network"], "log_file": folder + "/log/neutron.log",
                    "state_path": folder + "/work", "transport_url": "fake:///", "auth_strategy": "keystone",
                    "api_paste_config": folder + "/etc/neutron-paste.ini", "core_plugin": "ml2",
                    "service_plugins": "router", "api_workers": 0, "rpc_workers": 0, "rpc_state_report_workers": 0,
                    "notify_nova_on_port_status_changes": "false", "notify_nova_on_port_data_changes": "false"},
        "ml2": {"type_drivers": "local,flat,vlan", "tenant_network_types": "local", "mechanism_drivers": "bindall",
                "extension_drivers": "port_security"},
        "ml2_type_flat": {"flat_networks": "public"},
        "securitygroup": {"enable_security_group": "true"},
        "database": database(folder, "neutron"),
        "oslo_concurrency": {"lock_path": folder + "/lock"},
        "keystone_authtoken": token_check(address, "network", opt["cache_s"])})}


def nova(folder, address, opt):
    paste = ini({
        "composite:osapi_compute": {"use": "call:nova.api.openstack.urlmap:urlmap_factory", "/": "apiversions",
                                    "/v2.1": "api21"},
        "composite:api21": {"use": "call:nova.api.auth:pipeline_factory_v21",
                            "keystone": "proxy req_id faultwrap request_log sizelimit authtoken keystonecontext app"},
        "filter:proxy": PROXY_FILTER,
        "filter:req_id": paste_filter("nova.api.compute_req_id:ComputeReqIdMiddleware.factory"),
        "filter:faultwrap": paste_filter("nova.api.openstack:FaultWrapper.factory"),
        "filter:request_log": paste_filter("nova.api.openstack.requestlog:RequestLog.factory"),
        "filter:sizelimit": paste_filter("oslo_middleware:RequestBodySizeLimiter.factory"),
        "filter:authtoken": TOKEN_FILTER,
        "filter:keystonecontext": paste_filter("nova.api.auth:NovaKeystoneContext.factory"),
        "app:app": {"paste.app_factory": "nova.api.openstack.compute:APIRouterV21.factory"},
        "pipeline:apiversions": {"pipeline": "proxy faultwrap versionsapp"},
        "app:versionsapp": {"paste.app_factory": "nova.api.openstack.compute.versions:Versions.factory"}})
    return {"nova-paste.ini": paste, "nova.conf": ini({
        "DEFAULT": {"log_file": folder + "/log/nova.log", "state_path": folder + "/work", "transport_url": "fake:///",
                    "host": "ctl", "my_ip": address, "enabled_apis": "osapi_compute",
                    "osapi_compute_listen": address, "osapi_compute_listen_port": PORTS["compute"],
                    "osapi_compute_workers": 1, "compute_driver": "fake.FakeDriver",
                    "default_schedule_zone": DEFAULT_ZONE, "vif_plugging_timeout": 0,
                    "vif_plugging_is_fatal": "false", "report_interval": 5, "service_down_time": 60,
                    "update_resources_interval": 10, "reserved_host_memory_mb": 0, "cpu_allocation_ratio": 1.0,
                    "ram_allocation_ratio": 1.0, "disk_allocation_ratio": 1.0},
        "api": {"auth_strategy": "keystone", "max_limit": opt["page"]},
        "wsgi": {"api_paste_config": folder + "/etc/nova-paste.ini"},
        "api_database": database(folder, "nova_api"), "database": database(folder, "nova"),
        "oslo_concurrency": {"lock_path": folder + "/lock"},
        "conductor": {"workers": 1},
        "scheduler": {"workers": 1, "discover_hosts_in_cells_interval": -1},
        "filter_scheduler": {"enabled_filters":
                             "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,PciPassthroughFilter"},
        "pci": {"device_spec": '{"vendor_id": "10de", "product_id": "2330"}',
                "alias": '{"name": "h100", "vendor_id": "10de", "product_id": "2330", "device_type": "type-PCI"}'},
        "cinder": {"catalog_info": "volumev3::publicURL"},
        "glance": {"api_servers": url(address, "image")},
        "placement": login(address), "neutron": login(address), "service_user": {"send_service_user_token": "true", **login(address)},
        "keystone_authtoken": token_check(address, "compute", opt["cache_s"])})}


ALL = (keystone, placement, glance, neutron, nova)
