# SPDX-License-Identifier: Apache-2.0
"""bootstrap.mounts of buckets: rclone through /dev/fuse against an independent S3 emulator (moto), with signatures
checked and its requests counted; secrets are looked for where they must not be."""
import json
import pathlib
import socket
import subprocess
import sys

import boto3
import gcs_standin
import lab as labs
import pytest
from botocore.config import Config
from repo import Repo
from storage_node import StorageNode
from waiting import wait_for

pytestmark = [pytest.mark.root, pytest.mark.namespaces]
ADDRESS, PORT = "10.77.0.1", 5055
URL = "http://%s:%d" % (ADDRESS, PORT)
# timeout(1), which gives up after 3 s instead of some other time
SHORTER = """#!/bin/sh
[ "$3" != %d ] || { shift 3; set -- -k 1 3 "$@"; }
exec /usr/bin/timeout "$@"
"""
ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMES = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]


@pytest.fixture(name="lab", scope="module")
def lab_fixture(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("lab")
    with labs.Lab(tmp, base_script="base_storage.sh") as made:
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp / "key"], check=True)
        made.key = tmp / "key"
        made.next = 2
        made.repo = Repo(tmp / "repo")
        made.repo.add("mount-s3", postinst="cp /usr/local/lib/mount-s3 /usr/bin/mount-s3\n")
        made.repo.serve(made, ADDRESS)
        with open(tmp / "moto.log", "wb") as log:
            moto = made.popen([sys.executable, "-c", "from moto.server import main; main()", "-H", ADDRESS, "-p", PORT],
                              stdout=log, stderr=log)
        made.s3 = boto3.client("s3", endpoint_url=URL, aws_access_key_id="a", aws_secret_access_key="b",
                               region_name="us-east-1", config=Config(retries={"max_attempts": 1}))

        def listens():
            try:
                made.call(socket.create_connection, (ADDRESS, PORT), 1).close()
                return True
            except OSError:
                return False
        wait_for(listens, 60)
        made.call(made.s3.create_bucket, Bucket="data")
        made.call(made.s3.put_object, Bucket="data", Key="train/part-1", Body=b"p" * 100000)
        yield made
        moto.kill()
        moto.wait()
        made.repo.close()


@pytest.fixture(name="node")
def node_fixture(lab, tmp_path):
    lab.next += 1
    host = lab.add("light", "b%d" % lab.next, "10.77.4.%d" % lab.next, start=False)
    host.authorize((lab.key.parent / "key.pub").read_text())
    host.start()
    host.wait_ssh()
    made = StorageNode(lab, host, tmp_path)
    (tmp_path / "AWS_ACCESS_KEY_ID").write_text("aKeyOfATest")
    (tmp_path / "AWS_SECRET_ACCESS_KEY").write_text("sEc'ReT\"Va$lUe")
    made.secrets = [{"env": name, "from": "file:" + str(tmp_path / name)} for name in NAMES]
    yield made
    host.remove()


def bucket(**more):
    return {"at": "/data", "bucket": "s3://data", "endpoint": URL, "secrets": NAMES, **more}


@pytest.mark.long
def test_mounted_read_and_written_and_the_second_run_does_nothing(lab, node):
    boot = {"mounts": [bucket()]}
    assert "buckets" in node.run(boot, secrets=node.secrets).done()
    assert node.host.sh("su ops -c 'head -c 3 /data/train/part-1; echo hello >/data/own'").stdout == "ppp"
    assert node.host.sh("stat -c %U /data/own").stdout == "ops\n"
    wait_for(lambda: "'own'" in str(lab.call(lab.s3.list_objects_v2, Bucket="data")), 60)
    assert lab.call(lab.s3.get_object, Bucket="data", Key="own")["Body"].read() == b"hello\n"
    pid = node.host.sh("pgrep -x rclone").stdout
    again = node.run(boot, secrets=node.secrets)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    assert node.host.sh("pgrep -x rclone").stdout == pid
    assert ".gpuprov" not in str(lab.call(lab.s3.list_objects_v2, Bucket="data"))


@pytest.mark.long
def test_it_comes_back(node):
    """After a reboot fstab is what mounts; a mount whose program died is made again."""
    boot = {"mounts": [bucket(mode="read", bucket="s3://data/train")]}
    node.run(boot, secrets=node.secrets)
    assert node.host.sh("ls /data").stdout == "part-1\n"
    node.host.sh("umount /data && ! ls /data | grep . && mount -a")
    assert node.host.sh("ls /data; mount -a; mount | grep -c rclone").stdout == "part-1\n1\n"
    assert node.host.sh("touch /data/x", check=False).returncode != 0
    node.host.sh("pkill -KILL -x rclone; until ! pgrep -x rclone; do sleep .1; done")
    assert "not connected" in node.host.sh("ls /data", check=False).stderr
    assert "buckets" in node.run(boot, secrets=node.secrets).done()
    assert node.host.sh("ls /data").stdout == "part-1\n"


@pytest.mark.long
def test_folders_with_similar_names(node):
    """Each has settings of its own, also after a reboot."""
    boot = {"mounts": [bucket(at="/mnt/a", mode="read"), bucket(at="/mnt_a", mode="read", bucket="s3://data/train")]}
    node.run(boot, secrets=node.secrets)
    node.host.sh("umount /mnt/a /mnt_a && mount -a")
    assert node.host.sh("ls -d /mnt/a/train /mnt_a/part-1").stdout == "/mnt/a/train\n/mnt_a/part-1\n"
    assert node.run(boot, secrets=node.secrets).result["applied"] == 0


@pytest.mark.long
def test_a_mount_that_stopped_to_answer_is_made_again(node):
    """Everything that reads it hangs: looking at it must not."""
    boot = {"mounts": [bucket(mode="read")]}
    node.run(boot, secrets=node.secrets)
    node.host.sh("pkill -STOP -x rclone")
    node.host.put("/usr/local/bin/timeout", SHORTER % 30, 0o755)
    out = node.run(boot, secrets=node.secrets)
    assert "buckets" in out.done(), out
    assert "part-1" in node.host.sh("timeout 20 ls /data/train").stdout


@pytest.mark.long
def test_secrets_are_in_nothing_that_others_read(node):
    node.host.put("/pattern", "sEc'ReT\n")
    node.host.put("/look.sh", "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' | grep -oFf /pattern\n"
                  "[ $(id -u) = 0 ] || grep -rlsFf /pattern /etc /home /tmp /var /run /root\n")
    node.host.put("/watch.sh", "while [ ! -e /stop ]; do sh /look.sh >>/found; su nobody -s /bin/sh /look.sh >>/found; "
                  "su ops -s /bin/sh /look.sh >>/found; echo >/round; done")
    node.host.sh("setsid sh /watch.sh </dev/null >/dev/null 2>&1 &")
    out = node.run({"mounts": [bucket()]}, secrets=node.secrets)
    node.host.sh("rm -f /round; until [ -e /round ]; do sleep .1; done; touch /stop")
    assert node.host.file("/found").read_text() == "" and "sEc" not in repr(out)
    # only the file for the reboot has them
    left = node.host.sh("grep -rls sEc.*ReT /etc /home /tmp /var /run /root /sbin/mount.gpuprov; true").stdout.split()
    assert left == ["/etc/gpuprov/mounts/data"]
    assert node.host.sh("stat -c '%a %U' /etc/gpuprov/mounts/data /etc/gpuprov/mounts").stdout.split("\n")[:2] == \
        ["600 root", "700 root"]
    # and the tool got them whole
    environ = node.host.sh("tr '\\0' '\\n' </proc/$(pgrep -x rclone)/environ | grep SECRET").stdout
    assert environ == "AWS_SECRET_ACCESS_KEY=sEc'ReT\"Va$lUe\n"


@pytest.mark.long
def test_a_baked_node_has_no_copy_of_a_buckets_files(lab, node):
    """What was written to the bucket is uploaded first."""
    node.run({"mounts": [bucket()]}, secrets=node.secrets)
    node.host.sh("su ops -c 'echo private-data >/data/late; echo private-data >/data/later'")
    bake = (ROOT / "templates" / "bootstrap" / "run" / "bake.sh").read_text()
    node.host.put("/bake.sh", bake)
    assert "::fact cleaned yes" in node.host.sh("sh -c \"$(cat /bake.sh)\" bake /home/ops /home/ops/.gpuprov/none").stdout
    assert node.host.sh("grep -rls private-data /var /data /home /etc; true").stdout == ""
    assert lab.call(lab.s3.get_object, Bucket="data", Key="late")["Body"].read() == b"private-data\n"
    assert lab.call(lab.s3.get_object, Bucket="data", Key="later")["Body"].read() == b"private-data\n"


@pytest.mark.long
def test_another_secret_mounts_it_again(node):
    boot = {"mounts": [bucket()]}
    node.run(boot, secrets=node.secrets)
    (node.tmp / "AWS_SECRET_ACCESS_KEY").write_text("another")
    assert "buckets" in node.run(boot, secrets=node.secrets).done()
    assert "=another" in node.host.sh("tr '\\0' '\\n' </proc/$(pgrep -x rclone)/environ").stdout


@pytest.mark.parametrize("change,said", [
    ({"bucket": "s3://missing"}, "s3://missing cannot be listed: "),
    ({"endpoint": "http://10.77.0.1:9"}, "connection refused")])
def test_a_bucket_that_cannot_be_mounted(node, change, said):
    out = node.run({"mounts": [bucket(**change)]}, error="test/1: step 'buckets': s3://", secrets=node.secrets)
    assert said in out.result["error"], out
    assert node.host.sh("grep -c data /etc/fstab", check=False).stdout in ("", "0\n")


def test_a_server_that_never_answers(node):
    """It takes connections and is silent."""
    node.host.put("/usr/local/bin/timeout", SHORTER % 60, 0o755)
    server = "import socket, time\ns = socket.create_server(('10.77.0.1', 5056))\ntime.sleep(1000)"
    with_silence = node.lab.popen([sys.executable, "-c", server])
    try:
        node.run({"mounts": [bucket(endpoint="http://10.77.0.1:5056")]}, secrets=node.secrets,
                 error="s3://data cannot be listed: no answer within 60 s")
    finally:
        with_silence.kill()
        with_silence.wait()


def test_a_mount_that_hangs_is_ended(node):
    """rclone says nothing and does not end."""
    node.host.put("/usr/local/bin/rclone", "#!/bin/sh\n[ \"$1\" = mount ] || exec /usr/bin/rclone \"$@\"\n"
                  "exec sleep 1000\n", 0o755)
    node.host.put("/usr/local/bin/timeout", SHORTER % 90, 0o755)
    node.run({"mounts": [bucket()]}, secrets=node.secrets,
             error="s3://data cannot be mounted at /data: did not answer within 90 s and was killed")
    assert node.host.sh("pgrep -f '[s]leep 1000'", check=False).stdout == ""


def test_a_tool_that_ends_at_once(node):
    """As s3fs does: status 0, and the mount is gone a moment later."""
    node.host.put("/usr/local/bin/rclone", "#!/bin/sh\n/usr/bin/rclone \"$@\" || exit\n"
                  "[ \"$1\" != mount ] || { sleep .5; pkill -KILL -f '^/usr/bin/rclone mount'; }\n", 0o755)
    node.run({"mounts": [bucket()]}, secrets=node.secrets,
             error="/data is mounted and cannot be read by ops: ls: cannot access '/data': Transport endpoint is not")


@pytest.mark.long
def test_what_is_in_the_way(node):
    node.host.sh("mkdir -p /data; echo mine >/data/file")
    node.run({"mounts": [bucket()]}, secrets=node.secrets,
             error="/data is a folder with files, which a mount would hide")
    node.host.sh("mount -t tmpfs own /data")
    node.run({"mounts": [bucket()]}, secrets=node.secrets,
             error="/data is a mount of own (tmpfs) that gpuprov did not make")
    node.host.sh("umount /data; rm /data/file; echo 'tmpfs /data tmpfs defaults 0 0' >>/etc/fstab")
    node.run({"mounts": [bucket()]}, secrets=node.secrets,
             error="/etc/fstab has an entry for /data that gpuprov did not write")


def test_the_tool_is_missing_and_no_repository_has_it(node):
    node.host.sh("rm /usr/bin/rclone")
    node.run({"mounts": [bucket()]}, secrets=node.secrets,
             error="the package rclone is installed, but the program is not")
    node.host.sh("dpkg --remove rclone")
    node.run({"mounts": [bucket()]}, secrets=node.secrets, error="E: Unable to locate package rclone")


def test_the_vendors_tool_is_preferred(node):
    """A stand-in for Amazon Linux's package mount-s3: its arguments and environment are judged."""
    node.host.put("/usr/local/lib/mount-s3", "#!/bin/sh\nprintf '%s\\n' \"$@\" >/args\nenv >/env\n"
                  "for at; do :; done\n. /etc/gpuprov/mounts/data\n"
                  "rclone mount --allow-other --uid 1000 --vfs-cache-mode writes --daemon $REMOTE $at\n", 0o755)
    node.lab.repo.use(node.host)
    node.host.sh("rm /etc/os-release; printf 'ID=\"amzn\"\\nVERSION_ID=\"2023\"\\n' >/etc/os-release")
    node.run({"mounts": [bucket(bucket="s3://data/train", region="eu-west-1")]}, secrets=node.secrets)
    assert node.host.file("/args").read_text().split() == [
        "--allow-other", "--uid", "1000", "--gid", "1000", "--allow-delete", "--allow-overwrite", "--prefix", "train/",
        "--endpoint-url", URL, "--region", "eu-west-1", "data", "/data"]
    assert "AWS_ACCESS_KEY_ID=aKeyOfATest\n" in node.host.file("/env").read_text()


@pytest.mark.long
def test_both_come_back_with_systemd(lab, tmp_path):
    """A booted host: the program behind the bucket belongs to no login, and a reboot mounts the bucket and a share."""
    lab.next += 1
    host = lab.add("systemd", "b%d" % lab.next, "10.77.4.%d" % lab.next, start=False)
    try:
        host.authorize((lab.key.parent / "key.pub").read_text())
        host.put("/etc/tmpfiles.d/fuse.conf", "c /dev/fuse 0666 root root - 10:229\n")
        host.put("/sbin/mount.nfs", "#!/bin/sh\nexec mount -t tmpfs -o mode=777 \"$1\" \"$2\"\n", 0o755)
        host.start()
        host.wait_ssh()
        node = StorageNode(lab, host, tmp_path)
        for name in NAMES:
            (tmp_path / name).write_text("value")
        secrets = [{"env": name, "from": "file:" + str(tmp_path / name)} for name in NAMES]
        boot = {"mounts": [bucket(), {"at": "/shared", "nfs": "10.77.0.1:/x"}]}
        assert node.run(boot, secrets=secrets).done()[:2] == ["shares", "buckets"]
        assert "session" not in host.sh("cat /proc/$(pgrep -x rclone)/cgroup").stdout
        boots = host.boots
        host.sh("systemctl reboot --no-block")
        wait_for(lambda: host.boots > boots and host.ssh_up(), 120)
        wait_for(lambda: host.sh("findmnt /data && findmnt /shared", check=False).returncode == 0, 60)
        assert host.sh("ls /data/train").stdout == "part-1\n"
        again = node.run(boot, secrets=secrets)
        assert again.result["applied"] == 0, again
    finally:
        host.remove()


# --- other clouds: real rclone, stand-in servers ---

@pytest.mark.long
def test_a_bucket_of_alibaba(lab, node):
    """Its servers want the bucket in the host's name."""
    node.host.sh("echo '%s oss.lab data.oss.lab' >>/etc/hosts" % ADDRESS)
    boot = {"mounts": [bucket(bucket="oss://data", endpoint="http://oss.lab:%d" % PORT)]}
    assert "buckets" in node.run(boot, secrets=node.secrets).done()
    assert "RCLONE_CONFIG_GP_PROVIDER=Alibaba" in node.host.sh("cat /etc/gpuprov/mounts/data").stdout
    assert node.host.sh("su ops -c 'head -c 3 /data/train/part-1; echo hello >/data/of-oss'").stdout == "ppp"
    wait_for(lambda: "'of-oss'" in str(lab.call(lab.s3.list_objects_v2, Bucket="data")), 60)
    assert node.run(boot, secrets=node.secrets).result["applied"] == 0


@pytest.fixture(name="google")
def google_fixture(lab, node, tmp_path):
    """The names of Google's servers are this one's for the node; a service account's key."""
    names = ["storage.googleapis.com", "oauth2.googleapis.com"]
    folder, crt, key = tmp_path / "objects", tmp_path / "crt", tmp_path / "crt.key"
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "part-1").write_bytes(b"g" * 100000)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days",
                    "2", "-subj", "/CN=test", "-addext", "subjectAltName=" + ",".join("DNS:" + n for n in names),
                    "-keyout", key, "-out", crt], check=True, capture_output=True)
    robot = subprocess.run(["openssl", "genrsa", "2048"], check=True, capture_output=True, text=True).stdout
    server = lab.popen([sys.executable, pathlib.Path(gcs_standin.__file__), ADDRESS, crt, key, folder])
    node.host.sh("cat >>/etc/ssl/certs/ca-certificates.crt <<'X'\n%sX\necho '%s %s' >>/etc/hosts" % (
        crt.read_text(), ADDRESS, " ".join(names)))

    def account(email):
        (tmp_path / "account").write_text(json.dumps({
            "type": "service_account", "client_email": email, "private_key": robot, "private_key_id": "1",
            "token_uri": "https://oauth2.googleapis.com/token"}))
        return [{"env": "RCLONE_GCS_SERVICE_ACCOUNT_CREDENTIALS", "from": "file:" + str(tmp_path / "account")}]
    yield folder, account
    node.host.sh("umount /data", check=False)
    server.kill()
    server.wait()


@pytest.mark.long
def test_a_bucket_of_google(node, google):
    """With the key of a service account, whose JSON has quotes and line ends."""
    folder, account = google
    mount = {"at": "/data", "bucket": "gs://data/train", "secrets": ["RCLONE_GCS_SERVICE_ACCOUNT_CREDENTIALS"]}
    node.run({"mounts": [mount]}, secrets=account("other@test.example"),
             error="step 'buckets': gs://data/train cannot be listed: ")
    robot = account("robot@test.example")
    first = node.run({"mounts": [mount]}, secrets=robot)
    assert first.done() == ["buckets", "agent"], first
    assert node.host.sh("su ops -c 'head -c 3 /data/part-1; echo hello >/data/own'").stdout == "ggg"
    wait_for((folder / "train" / "own").is_file, 60)
    assert (folder / "train" / "own").read_text() == "hello\n"
    again = node.run({"mounts": [mount]}, secrets=robot)
    assert again.result["applied"] == 0 and [e["event"] for e in again.events] == ["result"], again
    assert not list(folder.rglob(".gpuprov*"))
