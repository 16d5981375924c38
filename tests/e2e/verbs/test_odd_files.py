# SPDX-License-Identifier: Apache-2.0
"""Every file that gpuprov reads for its user, as a bad day leaves it: empty, huge, binary, a folder, unreadable, absent.
No reader crashes, and each error names the file and the next step. A reader that is new gets a row here."""
import json
import re
import socket

import pytest

GUID = "11111111-1111-4111-8111-111111111111"
ROLE = "acs:ram::1234567890123456:role/worker"
# A position in the file is one, too.
NEXT_STEP = re.compile(
    r":\d+:\d+: |line \d+, column \d+: |(?:[:;,(] ?|\bor |\band )"
    r"(?:correct|set|write|name|give|create|copy|check|remove|unset|add|convert|use|run|get|repair|"
    r"see|begin|the smallest|must|it must|expected|'gpuprov|make)\b", re.I)
HUGE = 40 << 20


def make_empty(path):
    path.write_bytes(b"")


def make_blank(path):
    path.write_bytes(b" \r\n\t\n")


def make_huge(path):
    """Larger than any limit; the file has no blocks, so it costs no disk."""
    with open(path, "wb") as f:
        f.truncate(HUGE)


def make_long(path):
    path.write_bytes(b"x" * HUGE)


def make_binary(path):
    path.write_bytes(b"\x7fELF\0\xff\xfe\0\r\n\x1b[31m" + bytes(range(256)) * 8)


def make_nul_behind(path):
    """What a reader of C strings would take for a good token."""
    path.write_bytes(b"abcdefgh\0ijkl\n")


def make_folder(path):
    path.mkdir()


def make_unreadable(path):
    """For root too: a read fails with EIO."""
    path.symlink_to("/proc/self/mem")


def make_absent(path):
    pass


FORMS = {name.removeprefix("make_"): f for name, f in sorted(globals().items()) if name.startswith("make_")}


class World:
    def __init__(self, tmp, gpuprov):
        self.tmp, self.home, self.gpuprov = tmp, tmp / "home", gpuprov
        self.env = {"AWS_EC2_METADATA_DISABLED": "true", "ALIBABA_CLOUD_ECS_METADATA_DISABLED": "true",
                    "GCE_METADATA_HOST": "127.0.0.1:9", "NO_PROXY": "*"}

    def spec(self, text):
        path = self.tmp / "odd.yaml"
        path.write_text("name: odd\n" + text)
        return path

    def cloud(self, provider, **env):
        self.env.update(env)
        return "plan", self.spec("offers: [{provider: %s%s}]\n" % (provider, ", regions: [westeurope]" if provider == "azure" else ""))

    def below_home(self, name):
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def hosts(self, text):
        path = self.tmp / "hosts.yaml"
        path.write_text("hosts:\n  - {address: 127.0.0.1, port: 9, user: me, %s}\n" % text)
        return path


def odd(w):
    return w.tmp / "odd-file"


ROWS = {}


def row(*codes, fine=(), where=odd, names=None):
    """codes: the exit codes that are right. fine: forms that the reader takes, or passes over as its model does. where:
    the file. names: what the error calls the file; None: its path."""
    def add(function):
        ROWS[function.__name__] = (function, codes, fine, where, names)
        return function
    return add


def home(name):
    def where(w):
        return w.below_home(name)
    return where


# --- credentials ---

@row(5)
def azure_federated_token(w, f):
    return w.cloud("azure", AZURE_TENANT_ID="t", AZURE_CLIENT_ID="c", AZURE_FEDERATED_TOKEN_FILE=f, AZURE_SUBSCRIPTION_ID=GUID)


@row(5)
def azure_certificate(w, f):
    return w.cloud("azure", AZURE_TENANT_ID="t", AZURE_CLIENT_ID="c", AZURE_CLIENT_CERTIFICATE_PATH=f,
                   AZURE_SUBSCRIPTION_ID=GUID)


@row(5)
def alibaba_oidc_token(w, f):
    return w.cloud("alibaba", ALIBABA_CLOUD_ROLE_ARN=ROLE, ALIBABA_CLOUD_OIDC_PROVIDER_ARN="acs:ram::1:oidc-provider/x",
                   ALIBABA_CLOUD_OIDC_TOKEN_FILE=f)


@row(5, where=home(".aliyun/config.json"), fine=("absent",))
def alibaba_profiles(w, f):
    return w.cloud("alibaba")


@row(1, 5, fine=("empty", "blank"))
def alibaba_shared_file(w, f):
    return w.cloud("alibaba", ALIBABA_CLOUD_CREDENTIALS_FILE=f)


@row(5)
def aws_web_identity(w, f):
    return w.cloud("aws", AWS_ROLE_ARN="arn:aws:iam::123456789012:role/r", AWS_WEB_IDENTITY_TOKEN_FILE=f)


@row(5)
def aws_container_token(w, f):
    return w.cloud("aws", AWS_CONTAINER_CREDENTIALS_FULL_URI="http://127.0.0.1:9/", AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=f)


@row(1, 5, fine=("empty", "blank", "absent"))
def aws_credentials(w, f):
    return w.cloud("aws", AWS_SHARED_CREDENTIALS_FILE=f)


@row(1, 5, fine=("empty", "blank", "absent"))
def aws_config(w, f):
    return w.cloud("aws", AWS_CONFIG_FILE=f)


@row(1)
def aws_ca_bundle(w, f):
    """A server that takes a connection and is silent: the bundle is read before anything is said to it."""
    w.server = socket.create_server(("127.0.0.1", 0))
    return w.cloud("aws", AWS_ACCESS_KEY_ID="AK", AWS_SECRET_ACCESS_KEY="secretsecret", AWS_CA_BUNDLE=f,
                   AWS_ENDPOINT_URL="https://127.0.0.1:%d" % w.server.getsockname()[1])


@row(5)
def google_credentials(w, f):
    return w.cloud("google", GOOGLE_APPLICATION_CREDENTIALS=f)


@row(5, where=home(".config/gcloud/application_default_credentials.json"), fine=("absent",))
def google_login(w, f):
    return w.cloud("google")


@row(5)
def google_subject_token(w, f):
    path = w.tmp / "external.json"
    path.write_text(json.dumps({"type": "external_account", "audience": "a", "token_url": "http://127.0.0.1:9/token",
                                "credential_source": {"file": str(f)}}))
    return w.cloud("google", GOOGLE_APPLICATION_CREDENTIALS=path)


@row(5, where=home(".lambda_cloud/lambda_keys"), fine=("absent",))
def lambda_key(w, f):
    return w.cloud("lambda")


@row(5, where=home(".shadeform/api_key"), fine=("absent",))
def shadeform_key(w, f):
    return w.cloud("shadeform")


@row(5, where=home(".runpod/config.toml"), fine=("absent",), names=".runpod/config.toml")
def runpod_key(w, f):
    return w.cloud("runpod")


@row(1, 5, fine=("absent",))
def openstack_clouds(w, f):
    return w.cloud("openstack", OS_CLOUD="x", OS_CLIENT_CONFIG_FILE=f)


@row(1, 5, fine=("empty", "blank", "absent"))
def openstack_secure(w, f):
    clouds = w.tmp / "clouds.yaml"
    clouds.write_text("clouds: {x: {auth: {auth_url: 'http://127.0.0.1:9/v3', username: u, password: p, project_name: p}}}\n")
    return w.cloud("openstack", OS_CLOUD="x", OS_CLIENT_CONFIG_FILE=clouds, OS_CLIENT_SECURE_FILE=f)


# --- specs and what they name ---

@row(1, fine=("folder",))
def spec_file(w, f):
    return "plan", f


@row(1, fine=("empty", "blank"))
def spec_substitution(w, f):
    return "check", w.spec("nodes: ${file:%s}\n" % f)


@row(1, fine=("blank",))
def spec_secret(w, f):
    return "check", w.spec("secrets: [{env: TOKEN, from: 'file:%s'}]\n" % f)


@row(1, fine=("empty", "blank"))
def spec_requirements(w, f):
    return "check", w.spec("bootstrap: {python: {requirements: %s}}\n" % f)


@row(1, fine=("empty", "blank", "binary", "nul_behind", "huge", "long", "folder"))
def spec_files(w, f):
    """Content is carried, not read."""
    return "check", w.spec("bootstrap: {files: [{from: %s, to: /srv/x}]}\n" % f)


@row(1)
def spec_hosts(w, f):
    return "plan", w.spec("offers: [{provider: ssh, hosts: %s}]\n" % f)


@row(1, names="odd-file")
def spec_terraform(w, f):
    return "plan", w.spec("offers: [{provider: ssh, hosts: 'terraform:%s'}]\n" % f)


@row(1)
def hosts_file(w, f):
    return "validate", "--hosts", f, "--time", "1s"


@row(1, 5)
def access_key(w, f):
    return "up", w.spec("access: {key: %s}\noffers: [{provider: ssh, hosts: %s}]\n" % (f, w.hosts("host_key: '%s'" % KEY))), "-y"


@row(1)
def baseline(w, f):
    return "validate", "--local", "--time", "1s", "--baseline", f


@row(1, fine=("folder",))
def plan_file(w, f):
    return "up", f, "-y"


@row(1, 2, 3, 7)
def certificate(w, f):
    return "verify", f


KEY = "SHA256:" + "A" * 43


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("reader", ROWS)
def test_a_file(gpuprov, tmp_path, reader, form):
    call, codes, fine, where, names = ROWS[reader]
    w = World(tmp_path, gpuprov)
    path = where(w)
    args = call(w, path)
    FORMS[form](path)
    if path.is_file() and not path.is_symlink():
        path.chmod(0o600)
    run = gpuprov(*args, code=None, env={k: str(v) for k, v in w.env.items()})
    text = run.err + run.out
    assert 0 <= run.code < 128, run  # no signal
    assert "Sanitizer" not in text and "runtime error" not in text, run
    assert "\0" not in text and "\x1b" not in text, run
    if form in fine:
        return
    assert run.code in codes, run
    lines = [line for line in text.splitlines() if (names or str(path)) in line]
    assert lines, run
    assert any(NEXT_STEP.search(line) for line in lines), run
