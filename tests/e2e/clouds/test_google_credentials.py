# SPDX-License-Identifier: Apache-2.0
"""Application Default Credentials of the provider google: each source and type, wrong ones, and that no secret is
printed. Against a stand-in for Google's token services, which verifies signatures and claims."""
import json
import pathlib
import subprocess

import google_cloud
import pytest
from test_google import PROGRAM, drive, environment, write_spec
from test_google import one_cloud  # noqa: F401

USER = {"type": "authorized_user", "client_id": "client", "client_secret": "secret-of-client",
        "refresh_token": "1//refresh-token", "quota_project_id": google_cloud.PROJECT}
POOL = {"type": "external_account", "audience": "//iam.googleapis.com/pool",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}
SECRETS = ["BEGIN PRIVATE KEY", "secret-of-client", "1//refresh-token", "subject-token", "ya29."]


def opened(cloud, folder, content, **more):
    """open with this credentials file, with a trace: the result. Nothing secret is in the output."""
    path = cloud.file(folder, content) if content is not None else None
    rc, result, said = drive(cloud, folder, write_spec(folder), "offers", GPUPROV_TRACE="all",
                             **({"GOOGLE_APPLICATION_CREDENTIALS": path} if path else {}), **more)
    for secret in SECRETS:
        assert secret not in said and secret not in json.dumps(result), secret
    assert (rc == 0) == (result["code"] == "ok"), result
    return result


def impersonate(cloud, name=google_cloud.ROBOT):
    return f"{cloud.url}/v1/projects/-/serviceAccounts/{name}:generateAccessToken"


def test_a_service_account(cloud, tmp_path):
    rc, result, said = drive(cloud, tmp_path, write_spec(tmp_path), "offers", GPUPROV_TRACE="all")
    assert rc == 0 and result["owner"] == google_cloud.EMAIL
    assert cloud.grants == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
    assert all(secret not in said for secret in SECRETS) and "Bearer ya29" not in said


def test_the_file_of_gcloud(cloud, tmp_path):
    cloud.file(tmp_path, dict(USER, token_uri=cloud.url + "/token"), "application_default_credentials.json")
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers", GOOGLE_APPLICATION_CREDENTIALS=None)
    assert rc == 0 and result["owner"] == google_cloud.USER and cloud.grants == ["refresh_token"]


def test_a_person(cloud, tmp_path):
    assert opened(cloud, tmp_path, dict(USER, token_uri=cloud.url + "/token"))["owner"] == google_cloud.USER
    named = dict(USER, token_uri=cloud.url + "/token", account="other@example.com")
    assert opened(cloud, tmp_path, named)["owner"] == "other@example.com"
    assert len(cloud.requests("POST /tokeninfo")) == 1


@pytest.mark.parametrize("form", ["text", "json", "url"])
def test_an_external_account(cloud, tmp_path, form):
    if form == "text":
        (tmp_path / "token").write_text("subject-token\n")
        source = {"file": str(tmp_path / "token")}
    elif form == "json":
        (tmp_path / "token").write_text(json.dumps({"id_token": "subject-token"}))
        source = {"file": str(tmp_path / "token"), "format": {"type": "json", "subject_token_field_name": "id_token"}}
    else:
        source = {"url": cloud.url + "/subject", "headers": {"X-Of-Host": "yes"},
                  "format": {"type": "json", "subject_token_field_name": "token"}}
    file = dict(POOL, token_url=cloud.url + "/sts", credential_source=source,
                service_account_impersonation_url=impersonate(cloud))
    assert opened(cloud, tmp_path, file, GOOGLE_CLOUD_PROJECT=google_cloud.PROJECT)["owner"] == google_cloud.ROBOT
    if form == "url":
        assert cloud.requests("GET /subject")[0]["headers"]["x-of-host"] == "yes"
    alone = {k: v for k, v in file.items() if k != "service_account_impersonation_url"}
    nobody = opened(cloud, tmp_path, alone, GOOGLE_CLOUD_PROJECT=google_cloud.PROJECT)
    assert nobody["code"] == "auth" and "give --owner NAME" in nobody["message"]
    named = opened(cloud, tmp_path, alone, GOOGLE_CLOUD_PROJECT=google_cloud.PROJECT, GPUPROV_OWNER="ci")
    assert named["code"] == "ok"


def test_another_accounts_identity(cloud, tmp_path):
    file = {"type": "impersonated_service_account", "service_account_impersonation_url": impersonate(cloud),
            "delegates": [], "source_credentials": dict(USER, token_uri=cloud.url + "/token", account="x@y"),
            "quota_project_id": google_cloud.PROJECT}
    assert opened(cloud, tmp_path, file)["owner"] == google_cloud.ROBOT


def test_the_metadata_server(cloud, tmp_path):
    result = opened(cloud, tmp_path, None, GCE_METADATA_HOST=f"127.0.0.1:{cloud.port}")
    assert result["code"] == "ok" and result["owner"] == google_cloud.EMAIL
    assert all(r["headers"]["metadata-flavor"] == "Google" for r in cloud.requests("computeMetadata"))


@pytest.mark.parametrize("kind", ["service_account", "authorized_user", "external_account", "impersonated_service_account",
                                  "gcloud", "metadata"])
def test_doctor_names_what_was_found(cloud, tmp_path, kind):
    user = dict(USER, token_uri=cloud.url + "/token")
    (tmp_path / "token").write_text("subject-token")
    files = {"service_account": json.loads(pathlib.Path(cloud.key_file(tmp_path)).read_text()), "authorized_user": user, "gcloud": user,
             "external_account": dict(POOL, token_url=cloud.url + "/sts", credential_source={"file": str(tmp_path / "token")},
                                      service_account_impersonation_url=impersonate(cloud)),
             "impersonated_service_account": {
                 "type": "impersonated_service_account", "service_account_impersonation_url": impersonate(cloud),
                 "source_credentials": dict(user, account="x@y")}}
    found, more = "the metadata server", {"GCE_METADATA_HOST": f"127.0.0.1:{cloud.port}"}
    if kind != "metadata":
        found = cloud.file(tmp_path, files[kind], "application_default_credentials.json" if kind == "gcloud" else "adc.json")
        more = {"GOOGLE_APPLICATION_CREDENTIALS": None if kind == "gcloud" else found}
    env = environment(cloud, tmp_path, GOOGLE_CLOUD_PROJECT=google_cloud.PROJECT, **more)
    done = subprocess.run([PROGRAM, "doctor", "--json"], env=env, capture_output=True, text=True, timeout=60, check=False)
    item = next(i for i in json.loads(done.stdout)["items"] if i["name"] == "google")
    assert item["found"] == "ok" and "credentials of " in item["text"] and found in item["text"], item
    assert not any(secret in done.stdout + done.stderr for secret in SECRETS)


def test_tokens_are_renewed_before_they_expire(cloud, tmp_path):
    cloud.token_s = 301
    rc, _, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers")
    few = len(cloud.requests("POST /token"))
    cloud.token_s = 200  # less than the five minutes: renewed for each call
    assert rc == 0 and drive(cloud, tmp_path, write_spec(tmp_path), "offers")[0] == 0
    assert few == 1 and len(cloud.requests("POST /token")) > 3


def test_where_the_project_is_from(cloud, tmp_path):
    key = json.loads(open(cloud.key_file(tmp_path), encoding="utf-8").read())
    bare = {k: v for k, v in key.items() if k != "project_id"}
    assert "no project: set GOOGLE_CLOUD_PROJECT" in opened(cloud, tmp_path, bare)["message"]
    assert opened(cloud, tmp_path, bare, CLOUDSDK_CORE_PROJECT=google_cloud.PROJECT)["code"] == "ok"
    other = opened(cloud, tmp_path, key, GOOGLE_CLOUD_PROJECT="not-mine")
    assert other["code"] == "auth" and "not-mine" in other["message"]
    (tmp_path / "configurations").mkdir()
    (tmp_path / "configurations" / "config_default").write_text(f"[core]\nproject = {google_cloud.PROJECT}\n")
    assert opened(cloud, tmp_path, bare)["code"] == "ok"
    for bad in ("../../x", "a/b", "a?b", "a..b", "x\ny"):
        assert "is not the id of a project" in opened(cloud, tmp_path, key, GOOGLE_CLOUD_PROJECT=bad)["message"]


def test_where_the_region_of_an_offer_is_from(cloud, tmp_path):
    """As gcloud: the variable, else its active configuration."""
    def places(**more):
        path = write_spec(tmp_path, offer={"regions": []})
        path.write_text(path.read_text().replace('"regions": [], ', "").replace(', "regions": []', ""))
        result = drive(cloud, tmp_path, path, "offers", **more)[1]
        return {o["region"] for o in result["offers"]} if result["code"] == "ok" else result["message"]
    assert "no region: give regions, run 'gcloud config set compute/region NAME'" in places()
    (tmp_path / "configurations").mkdir()
    (tmp_path / "configurations" / "config_default").write_text("[compute]\nregion = us-central1\n")
    assert places() == {"us-central1"}
    assert "europe-none9" in places(CLOUDSDK_COMPUTE_REGION="europe-none9")
    (tmp_path / "configurations" / "config_default").write_text("[compute]\nregion = ../../x\n")
    assert "no region" in places()


def test_no_credentials(cloud, tmp_path):
    result = opened(cloud, tmp_path, None, GOOGLE_APPLICATION_CREDENTIALS=None)
    assert result["code"] == "auth" and result["detail"] == "NoCredentials"
    assert "gcloud auth application-default login" in result["message"] and cloud.log == []


@pytest.mark.parametrize("change, text", [
    ({"type": "something"}, "the type 'something' is not one of"), ({"type": None}, "is not one of"),
    ({"private_key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"}, "key"),
    ({"private_key": None}, "no 'private_key'"), ({"client_email": None}, "no 'client_email'"),
    ({"private_key_id": "unknown"}, "invalid_grant"), ({"client_email": "other@x.iam"}, "invalid_grant"),
    ({"token_uri": "http://192.0.2.1/token"}, "https"),
    ({"token_uri": "http://127.0.0.1@192.0.2.1/token"}, "https"),
    ({"token_uri": "http://127.0.0.1.example.com/token"}, "https"),
    ({"token_uri": "file:///etc/passwd"}, "https")])
def test_a_wrong_key_file(cloud, tmp_path, change, text):
    key = json.loads(open(cloud.key_file(tmp_path), encoding="utf-8").read())
    file = {k: v for k, v in {**key, **change}.items() if v is not None}
    result = opened(cloud, tmp_path, file)
    assert result["code"] == "auth" and text in result["message"] and result["scope"] == 4, result


@pytest.mark.parametrize("text", ["", "{", "[]", "\0", '{"type":"authorized_user"}'])
def test_a_file_that_is_none(cloud, tmp_path, text):
    path = tmp_path / "adc.json"
    path.write_text(text)
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers", GOOGLE_APPLICATION_CREDENTIALS=str(path))
    assert rc == 5 and result["code"] == "auth" and str(path) in result["message"], result
    path.unlink()
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers", GOOGLE_APPLICATION_CREDENTIALS=str(path))
    assert rc == 5 and str(path) in result["message"], result


@pytest.mark.parametrize("reply", [{"access_token": "", "expires_in": 3600}, {"access_token": "a\r\nX-Evil: 1",
                                                                              "expires_in": 3600},
                                   {"access_token": "a" * 20000, "expires_in": 3600}, {"access_token": "a"},
                                   {"access_token": "a", "expires_in": -1}, {"access_token": 5, "expires_in": 3600}])
def test_a_token_that_is_none(cloud, tmp_path, reply):
    cloud.rule("POST /token", "reply", times=None, status=200, obj=reply)
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers")
    assert rc == 5 and "no token of use" in result["message"], result


@pytest.mark.parametrize("endpoint", ["http://192.0.2.1/compute/v1/", "https://", "ftp://x/", "http://localhost.evil/"])
def test_an_endpoint_that_gets_no_token(cloud, tmp_path, endpoint):
    rc, result, _ = drive(cloud, tmp_path, write_spec(tmp_path), "offers",
                          CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE=endpoint)
    assert rc == 1 and "https" in result["message"] and cloud.log == []
