# SPDX-License-Identifier: Apache-2.0
"""Google's own client (google-api-python-client, google-auth) on the same stand-in cloud: it does the life cycle that
gpuprov does, its requests are compared with gpuprov's field by field, and it lists and deletes what gpuprov made."""
import base64
import json
import time
import uuid
from urllib.parse import parse_qs, urlsplit

import google.auth
import google.auth.compute_engine
import google.auth.transport.requests
import google_cloud
import pytest
from google.oauth2 import service_account
from googleapiclient import discovery
from googleapiclient.errors import HttpError
from test_google import drive, write_spec
from test_google import one_cloud  # noqa: F401
from test_google_credentials import POOL, USER, impersonate


def client(cloud, folder):
    key = service_account.Credentials.from_service_account_file(cloud.key_file(folder), scopes=[google_cloud.SCOPE])
    return discovery.build("compute", "v1", credentials=key, static_discovery=True,
                           client_options={"api_endpoint": cloud.url + "/compute/v1/"})


def wait(sdk, operation):
    while operation["status"] != "DONE":
        if "zone" in operation:
            operation = sdk.zoneOperations().wait(project=google_cloud.PROJECT, zone=operation["zone"].rsplit("/", 1)[1],
                                                  operation=operation["name"]).execute()
        else:
            operation = sdk.globalOperations().wait(project=google_cloud.PROJECT, operation=operation["name"]).execute()
    return operation


def listed(sdk, uid):
    """What the SDK finds of a stack: kind, zone, name."""
    found, request = [], sdk.instances().aggregatedList(project=google_cloud.PROJECT, maxResults=1,
                                                         filter=f'labels.gpuprov-uid="{uid}"')
    while request is not None:
        reply = request.execute()
        found += [("instances", scope.rsplit("/", 1)[1], i["name"])
                  for scope, part in reply["items"].items() for i in part.get("instances", [])]
        request = sdk.instances().aggregatedList_next(request, reply)
    rules = sdk.firewalls().list(project=google_cloud.PROJECT).execute().get("items", [])
    return found + [("firewalls", None, r["name"]) for r in rules if uid in r["description"]]


def test_the_sdk_lists_and_deletes_what_gpuprov_made(cloud, tmp_path):
    spec, sdk = write_spec(tmp_path), client(cloud, tmp_path)
    rc, made, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0, made
    found = listed(sdk, made["uid"])
    assert sorted(n for k, _, n in found if k == "instances") == sorted(r["id"].split("/")[0] for r in made["resources"])
    assert len(found) == 4
    for kind, zone, name in found:
        if kind == "instances":
            one = sdk.instances().get(project=google_cloud.PROJECT, zone=zone, instance=name).execute()
            assert one["scheduling"]["instanceTerminationAction"] == "DELETE" and one["status"] == "RUNNING"
            wait(sdk, sdk.instances().delete(project=google_cloud.PROJECT, zone=zone, instance=name).execute())
    while any(k == "instances" for k, _, _ in listed(sdk, made["uid"])):
        time.sleep(0.01)
    for kind, _, name in found:
        if kind == "firewalls":
            wait(sdk, sdk.firewalls().delete(project=google_cloud.PROJECT, firewall=name).execute())
    assert cloud.left() == []
    rc, result, _ = drive(cloud, tmp_path, spec, "list")
    assert rc == 0 and result["resources"] == []


def shape(value):
    """The structure of a body: the names and types in it."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def gang(zone, uid, until):
    """The body that a person writes for the same launch with Google's client."""
    names = {google_name(uid, slot, zone): {} for slot in (0, 1)}
    labels = {"gpuprov-uid": uid, "gpuprov-owner": "sdk"}
    return {"count": "2", "minCount": "2", "perInstanceProperties": names, "instanceProperties": {
        "machineType": "g2-standard-4", "labels": labels, "tags": {"items": [f"gpuprov-{uid}"]},
        "disks": [{"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": {
            "sourceImage": "projects/ubuntu-os-cloud/global/images/ubuntu-2404-lts-amd64-v20261101",
            "diskSizeGb": "100", "diskType": "pd-balanced", "labels": labels}}],
        "networkInterfaces": [{"network": "projects/proj-1/global/networks/default",
                               "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]}],
        "metadata": {"items": [{"key": "enable-oslogin", "value": "FALSE"}]},
        "scheduling": {"terminationTime": until, "instanceTerminationAction": "DELETE", "automaticRestart": False,
                       "onHostMaintenance": "TERMINATE"}}}


def google_name(uid, slot, zone):
    return f"gpuprov-{uid}-{slot}-1-{zone[-1] * 4}"


def sdk_life(cloud, folder):
    """The same life cycle with the SDK alone."""
    sdk, uid, zone = client(cloud, folder), "0123456789abcdef", "us-central1-a"
    project = {"project": google_cloud.PROJECT}
    rule = {"name": "sdk-claim", "network": "projects/proj-1/global/networks/default", "direction": "INGRESS",
            "description": "{}", "targetTags": [f"gpuprov-{uid}"], "disabled": False,
            "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}], "sourceRanges": ["203.0.113.0/24"]}
    wait(sdk, sdk.firewalls().insert(**project, body=rule, requestId=google_uuid(1)).execute())
    body = gang(zone, uid, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)))
    wait(sdk, sdk.instances().bulkInsert(**project, zone=zone, body=body, requestId=google_uuid(2)).execute())
    again = sdk.instances().bulkInsert(**project, zone=zone, body=body, requestId=google_uuid(2)).execute()
    assert again["status"] == "DONE" and len(cloud.instances) == 2  # the same requestId: the same operation
    with pytest.raises(HttpError) as refused:
        sdk.instances().bulkInsert(**project, zone=zone, body=body, requestId=google_uuid(3)).execute()
    assert refused.value.resp.status == 409 and refused.value.error_details[0]["reason"] == "alreadyExists"
    for name in body["perInstanceProperties"]:
        one = sdk.instances().get(**project, zone=zone, instance=name).execute()
        wait(sdk, sdk.instances().setLabels(**project, zone=zone, instance=name, body={
            "labels": {**one["labels"], "gpuprov-hostkey": "x"},
            "labelFingerprint": one["labelFingerprint"]}).execute())
        wait(sdk, sdk.instances().delete(**project, zone=zone, instance=name, requestId=google_uuid(name)).execute())
    while cloud.instances:
        sdk.instances().aggregatedList(**project).execute()
    wait(sdk, sdk.firewalls().delete(**project, firewall="sdk-claim", requestId=google_uuid(4)).execute())
    assert cloud.left() == []


def google_uuid(n):
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(n)))


def calls(log):
    """method of the API: names in the query and body of the first of the calls that change something."""
    found = {}
    for r in log:
        path = urlsplit(r["target"]).path
        if r["method"] == "GET" or not path.startswith("/compute/") or path.endswith("/wait"):
            continue
        kind = path.rsplit("/", 1)[1] if r["method"] == "POST" else path.rsplit("/", 2)[1]
        body = json.loads(r["body"]) if r["body"] else None
        found.setdefault((r["method"], kind), (set(parse_qs(urlsplit(r["target"]).query)), body))
    return found


def test_requests_are_those_of_the_sdk(cloud, tmp_path):
    """Differences: the SDK adds alt=json to each query. gpuprov's labels, metadata and description have more entries,
    because they are its own."""
    sdk_life(cloud, tmp_path)
    theirs = calls(cloud.log)
    del cloud.log[:]
    spec = write_spec(tmp_path)
    rc, made, _ = drive(cloud, tmp_path, spec, "create")
    assert rc == 0, made
    assert drive(cloud, tmp_path, spec, "destroy")[0] == 0
    ours = calls(cloud.log)
    assert set(theirs) - set(ours) == {("POST", "setLabels")}  # gpuprov writes that label after the first contact
    assert set(ours) - set(theirs) == set()
    for call, (query, body) in ours.items():
        assert query == theirs[call][0] - {"alt"}, call
        if call[1] == "bulkInsert":
            properties = body["instanceProperties"]
            assert set(properties["labels"]) > {"gpuprov-uid", "gpuprov-owner", "gpuprov-stack", "gpuprov-expires"}
            for one in (body, theirs[call][1]):
                p = one["instanceProperties"]
                p["labels"] = p["disks"][0]["initializeParams"]["labels"] = {"own": "x"}
                assert list(one["perInstanceProperties"].values()) == [{}, {}]
                one["perInstanceProperties"] = {}
        assert body is None or shape(body) == shape(theirs[call][1]), call


def test_tokens_are_asked_for_as_google_auth_does(cloud, tmp_path):
    """The same form; of the claims only the times differ."""
    sdk = client(cloud, tmp_path)
    sdk.projects().get(project=google_cloud.PROJECT).execute()
    assert drive(cloud, tmp_path, write_spec(tmp_path), "offers")[0] == 0
    tokens = [{k: v[0] for k, v in parse_qs(r["body"]).items()} for r in cloud.requests("POST /token")]
    assert len(tokens) == 2 and set(tokens[0]) == set(tokens[1])
    parts = [[json.loads(base64.urlsafe_b64decode(p + "==")) for p in t["assertion"].split(".")[:2]] for t in tokens]
    assert parts[0][0] == parts[1][0]
    for _, claims in parts:
        assert claims.pop("exp") - claims.pop("iat") == 3600
    assert parts[0][1] == parts[1][1]


def token_calls(cloud):
    """What was sent to the token services, without the question whose token it is."""
    calls = [r for r in cloud.log if not r["target"].startswith(("/compute/", "/tokeninfo"))]
    cloud.log.clear()
    return [(r["method"], r["target"], {k: v[0] for k, v in parse_qs(r["body"]).items()} if "json" not in
             r["headers"].get("content-type", "") else json.loads(r["body"])) for r in calls]


def of_stand_in(cloud):
    """google-auth's transport; its own addresses, which files cannot change, become the stand-in's."""
    send = google.auth.transport.requests.Request()

    def ask(url, **how):
        where = urlsplit(url)
        assert where.hostname in ("127.0.0.1", "oauth2.googleapis.com", "iamcredentials.googleapis.com", "metadata.google.internal")
        return send(cloud.url + url.partition(where.netloc)[2], **how)
    return ask


@pytest.mark.filterwarnings("ignore:The load_credentials_from_file:DeprecationWarning")
@pytest.mark.parametrize("kind", ["authorized_user", "external_account", "impersonated_service_account", "metadata"])
def test_other_credentials_are_exchanged_as_google_auth_does(cloud, tmp_path, kind):
    """Differences: google-auth writes "delegates" without any; for an exchange that is followed by an impersonation it asks for
    a scope that allows only that, where gpuprov asks for the one scope that it has. At a metadata server each asks in its own way
    who the account is, and google-auth names the scope."""
    (tmp_path / "token").write_text("subject-token")
    user = dict(USER, token_uri=cloud.url + "/token", account="x@y")
    files = {"authorized_user": user, "external_account": dict(
        POOL, token_url=cloud.url + "/sts", credential_source={"file": str(tmp_path / "token")},
        service_account_impersonation_url=impersonate(cloud)), "impersonated_service_account": {
            "type": kind, "service_account_impersonation_url": impersonate(cloud), "source_credentials": user}}
    scopes = [google_cloud.SCOPE]
    if kind == "metadata":
        more = {"GCE_METADATA_HOST": f"127.0.0.1:{cloud.port}"}
        theirs = google.auth.compute_engine.Credentials(scopes=scopes)
    else:
        more = {"GOOGLE_APPLICATION_CREDENTIALS": cloud.file(tmp_path, files[kind])}
        theirs, _ = google.auth.load_credentials_from_file(more["GOOGLE_APPLICATION_CREDENTIALS"],
                                                          scopes=None if kind == "authorized_user" else scopes)
    assert drive(cloud, tmp_path, write_spec(tmp_path), "offers", GOOGLE_CLOUD_PROJECT=google_cloud.PROJECT, **more)[0] == 0
    ours = token_calls(cloud)
    theirs.refresh(of_stand_in(cloud))
    sdk = token_calls(cloud)
    if kind == "metadata":
        ours, sdk = ([(m, urlsplit(t).path, {}) for m, t, _ in calls if urlsplit(t).path.endswith("/token")] for calls in (ours, sdk))
        assert len(ours) == 1
    for _, target, body in sdk:
        if target.endswith(":generateAccessToken"):
            assert not body.pop("delegates")
        if target == "/sts":
            assert body["scope"] == "https://www.googleapis.com/auth/iam"
            body["scope"] = google_cloud.SCOPE
    assert ours == sdk
