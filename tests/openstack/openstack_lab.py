# SPDX-License-Identifier: Apache-2.0
"""A real OpenStack for tests: keystone, placement, glance, neutron and nova of this distribution, whose hypervisors are
fake. The HTTP APIs, the scheduler, quotas, policies and databases are real; servers are no machines.

    with OpenStack(folder) as cloud:
        run(env=cloud.env("gpu"))           # OS_* of a user
        cloud.clouds_yaml                   # the clouds gpu, colleague, stranger, admin

Everything runs in namespaces of its own (mount, pid, ipc, uts) below one process, in a root that base.sh makes once; the
root is read-only, and all state is in one folder. The services listen on a loopback address of the lab's own. When the
test ends, even by SIGKILL, the kernel ends all of it. Needs root. Alone: `make openstack-lab`."""
import ctypes
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "hosts")]

import lab_config as config  # noqa: E402
import lab as hosts  # noqa: E402

# In the new namespaces: the lab's root from its parts, then pid 1.
ENTER = """
set -eu
root=$2/root
mount --make-rprivate /
mount --bind "$1" "$root"
mount -o remount,bind,ro "$root"
mount --bind "$2/state" "$root/lab"
mount --bind "$3" "$root/code"
mount -t proc proc "$root/proc"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs tmpfs "$root/run"
mount --rbind /dev "$root/dev"
exec chroot "$root" /usr/bin/python3 /code/service.py all
"""
PLUGIN = """Metadata-Version: 2.1
Name: lab-neutron
Version: 1.0
"""
USERS = {"gpu": "gpu", "colleague": "gpu", "stranger": "other", "admin": "admin"}


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class OpenStack:
    """token_s: how long a token is valid; cache_s: how long services believe one (-1: not at all); page: the most items
    of one page; hosts: name to driver, instead of config.HOSTS."""

    def __init__(self, folder=None, token_s=3600, cache_s=300, page=1000, hosts=None):
        self._own = folder is None
        self.folder = pathlib.Path(folder or tempfile.mkdtemp(prefix="gpuprov-openstack-"))
        self.address = "127.%d.%d.%d" % (random.randrange(64, 128), random.randrange(256), random.randrange(1, 255))
        self.options = {"address": self.address, "token_s": token_s, "cache_s": cache_s, "page": page,
                        "hosts": hosts or config.HOSTS}
        self.process = None

    def __enter__(self):
        root = base()
        for name in ("root", "state"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._plugin()
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/lab", "LC_ALL": "C.UTF-8",
               "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": "/code:/lab/plugin",
               "LAB_OPTIONS": json.dumps(self.options)}
        with open(self.folder / "log", "wb") as out:
            self.process = subprocess.Popen(
                ["unshare", "--mount", "--pid", "--ipc", "--uts", "--fork", "--kill-child", "sh", "-c", ENTER, "enter",
                 root, str(self.folder), str(HERE)], env=env, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, preexec_fn=_die_with_parent, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.close()
            raise
        self._write_clouds()
        return self

    def __exit__(self, *args):
        self.close()

    def _plugin(self):
        """The driver of neutron that needs no agents; neutron finds it by its entry point."""
        folder = self.folder / "state" / "plugin" / "lab_neutron-1.0.dist-info"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "METADATA").write_text(PLUGIN)
        (folder / "entry_points.txt").write_text("[neutron.ml2.mechanism_drivers]\nbindall = lab_neutron:BindAll\n")
        shutil.copy(HERE / "lab_neutron.py", folder.parent)

    def _wait(self, seconds=600):
        until = time.monotonic() + seconds
        while not (self.folder / "state" / "ready").exists():
            if self.process.poll() is not None:
                raise RuntimeError("the lab ended: %s" % self.why())
            if time.monotonic() > until:
                raise RuntimeError("the lab is not ready after %d s: %s" % (seconds, self.why()))
            time.sleep(0.1)

    def why(self):
        """The last lines of every output, for messages."""
        texts = [(self.folder / "log").read_text(errors="replace")[-500:]]
        for path in sorted((self.folder / "state" / "log").glob("*.out")):
            texts.append("%s: %s" % (path.name, path.read_text(errors="replace")[-300:]))
        return "\n".join(texts)

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()  # --kill-child: pid 1 of the lab goes with it, and all others with that
            self.process.wait()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            shutil.rmtree(self.folder / "state", ignore_errors=True)

    # --- for tests ---

    @property
    def auth_url(self):
        return config.url(self.address, "identity")

    @property
    def clouds_yaml(self):
        return self.folder / "clouds.yaml"

    def _cloud(self, user):
        return {"auth": {"auth_url": self.auth_url, "username": user, "password": config.PASSWORD,
                         "project_name": USERS[user], "user_domain_id": "default", "project_domain_id": "default"},
                "region_name": config.REGION, "identity_api_version": 3}

    def _write_clouds(self):
        clouds = {user: self._cloud(user) for user in USERS}
        self.clouds_yaml.write_text(json.dumps({"clouds": clouds}, indent=1))  # JSON is YAML

    def env(self, user="gpu", auth_url=None):
        """Credentials in the environment, as an openrc file has them."""
        auth = self._cloud(user)["auth"]
        return {"OS_AUTH_URL": auth_url or auth["auth_url"], "OS_USERNAME": user, "OS_PASSWORD": auth["password"],
                "OS_PROJECT_NAME": auth["project_name"], "OS_USER_DOMAIN_ID": "default",
                "OS_PROJECT_DOMAIN_ID": "default", "OS_REGION_NAME": config.REGION,
                "GPUPROV_CLEAR_TEXT": self.address}

    def go(self):
        """The hosts of the zone slow finish what they build."""
        (self.folder / "state" / "go").touch()


def base():
    return hosts.base(script="../openstack/base.sh")


def main():
    with OpenStack() as cloud:
        print("export OS_CLIENT_CONFIG_FILE=%s OS_CLOUD=gpu" % cloud.clouds_yaml, flush=True)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        try:
            code = cloud.process.wait()
            sys.exit("the lab ended with %s: %s" % (code, cloud.why()))
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
