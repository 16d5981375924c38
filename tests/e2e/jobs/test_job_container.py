# SPDX-License-Identifier: Apache-2.0
"""The end of a job's text in a container, with a program in the place of docker: what it is called with, its exit status,
and that nothing of it stays after SIGTERM. No engine runs."""
import os
import pathlib
import signal
import subprocess

import pytest

from waiting import wait_for

SCRIPT = pathlib.Path(__file__).resolve().parents[3] / "templates/job/container.sh"
DOCKER = """\
#!/bin/sh
printf '%s\\n' "$*" >>"$LOG"
case $1 in
run) while [ $# -gt 0 ] && [ "$1" != -c ]; do shift; done; echo $$ >"$LOG.pid"; exec sh -c "$2" ;;
stop) kill -TERM "$(cat "$LOG.pid")" ;;
esac
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "bin").mkdir()
    for name, body in (("docker", DOCKER), ("id", "#!/bin/sh\necho 0\n")):
        (tmp_path / "bin" / name).write_text(body)
        (tmp_path / "bin" / name).chmod(0o755)

    def run(text, engine="docker"):
        env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "LOG": str(tmp_path / "log"), "JOB_ENGINE": engine,
               "JOB_IMAGE": "busybox:1.36", "JOB_NAME": "gpuprov-job-x", "JOB_VARS": "A TOKEN", "JOB_GPUS": "", "JOB_TEXT": text,
               "GPUPROV_HOSTFILE": str(tmp_path / "hostfile"), "A": "1", "TOKEN": "s3cret"}
        return subprocess.Popen(["sh", SCRIPT], env=env, cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return run


def test_values_are_not_in_the_arguments_and_the_status_is_the_jobs(start, tmp_path):
    p = start('echo "$A $TOKEN"; exit 17')
    out, _ = p.communicate(timeout=60)
    calls = (tmp_path / "log").read_text().splitlines()
    assert (p.returncode, out) == (17, "1 s3cret\n")
    assert calls[0] == calls[-1] == "rm -f gpuprov-job-x"
    assert "s3cret" not in "".join(calls) and "--env A --env TOKEN" in calls[1]
    assert f"--volume {tmp_path}:{tmp_path} --workdir {tmp_path}" in calls[1] and "--network host" in calls[1]


def test_sigterm_stops_the_container(start, tmp_path):
    p = start("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done")
    wait_for(lambda: "up" in p.stdout.readline())
    p.send_signal(signal.SIGTERM)
    out, _ = p.communicate(timeout=60)
    assert (p.returncode, out) == (3, "bye\n")
    calls = (tmp_path / "log").read_text().splitlines()
    assert "stop -t 6 gpuprov-job-x" in calls and calls[-1] == "rm -f gpuprov-job-x"


def test_containerd_is_refused(start):
    p = start("true", engine="containerd")
    _, err = p.communicate(timeout=60)
    assert p.returncode == 125 and "use docker or podman" in err
