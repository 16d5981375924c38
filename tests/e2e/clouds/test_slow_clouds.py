# SPDX-License-Identifier: Apache-2.0
"""A cloud whose list does not end: machines at other clouds end meanwhile, and it counts as not looked at. It holds its
first page until they are gone, and then gives pages for ever."""
import email.utils
import itertools
import os
import subprocess
import time

import google_cloud
import pytest
from lambda_cloud import LambdaCloud
from test_across_clouds import machines, use, write

HELD_S = 50  # less than a request has


class Held:
    """What the cloud saw while its list was open: whether the machines of the other one went."""
    def __init__(self, evil, other):
        self.tokens, self.other, self.gone = itertools.count(1), other, []
        evil.rule("GET .*/aggregated/", "edit", times=None, change=self.page)

    def page(self, reply):
        end = time.monotonic() + HELD_S
        while not self.gone and machines(self.other) and time.monotonic() < end:
            time.sleep(0.05)
        self.gone.append(not machines(self.other))
        return dict(reply, nextPageToken=str(next(self.tokens)))


def both(gpuprov, evil, folder):
    env = {**os.environ, **gpuprov.env, **{k: v for k, v in evil.environment(folder).items() if v is not None}}
    return {**env, "GPUPROV_OWNER": "tester"}


def ends(program, env, *words):
    return subprocess.run([program, *words], env=env, capture_output=True, text=True, timeout=400, check=False)


@pytest.mark.parametrize("known", [True, False], ids=["journal", "tags"])
def test_gc(gpuprov, program, tmp_path, known):
    """Of this journal, or by its tags alone."""
    with LambdaCloud() as cloud, google_cloud.Google() as evil:
        use(gpuprov, "lambda", cloud)
        gpuprov("up", write(tmp_path, "lambda", limits={"ttl": "1m", "unattended": "accept"}), code=6)
        assert machines(cloud)
        for part in gpuprov.state.glob("journal.db*") if not known else ():
            part.unlink()
        cloud.server.RequestHandlerClass.date_time_string = lambda *_: email.utils.formatdate(time.time() + 300, usegmt=True)
        held = Held(evil, cloud)
        done = ends(program, both(gpuprov, evil, tmp_path), "gc", "--in", "lambda,google")
        assert held.gone[0], done
        assert done.returncode == 8 and "not looked at: google" in done.stdout and machines(cloud) == [], done


def test_gc_of_a_stack_at_several_clouds(gpuprov, program, tmp_path):
    """Its spec has offers at both: a machine at the other one may have a later deadline, so gc waits for that list."""
    with LambdaCloud() as cloud, google_cloud.Google() as other:
        use(gpuprov, "lambda", cloud)
        path = write(tmp_path, "lambda", limits={"ttl": "1m", "unattended": "accept"}, offers=[
            {"provider": "lambda", "regions": ["us-east-1"]}, {"provider": "google", "regions": ["us-central1"]}])
        env = both(gpuprov, other, tmp_path)
        ends(program, env, "up", path, "--yes")
        assert machines(cloud)
        cloud.server.RequestHandlerClass.date_time_string = lambda *_: email.utils.formatdate(time.time() + 300, usegmt=True)
        listed, there = len(cloud.requests("GET .*/instances")), []

        def page(reply):
            end = time.monotonic() + HELD_S
            while len(cloud.requests("GET .*/instances")) == listed and time.monotonic() < end:
                time.sleep(0.05)
            time.sleep(3)  # in which gc would end it
            there.append(len(machines(cloud)))
            return reply
        other.rule("GET .*/aggregated/", "edit", change=page)
        done = ends(program, env, "gc", "--in", "lambda,google")
        assert there == [1] and done.returncode == 0 and machines(cloud) == [], (there, done)


@pytest.mark.parametrize("how", ["name", "spec"])
def test_down(gpuprov, program, tmp_path, how):
    """A stack with offers at both: what the journal launched ends without the other list, and the rest is not stated."""
    with LambdaCloud() as cloud, google_cloud.Google() as evil:
        use(gpuprov, "lambda", cloud)
        path = write(tmp_path, "lambda", offers=[{"provider": "lambda", "regions": ["us-east-1"]},
                                                 {"provider": "google", "regions": ["us-central1"]}])
        env = both(gpuprov, evil, tmp_path)
        ends(program, env, "up", path, "--yes")
        [machine] = machines(cloud)
        held = Held(evil, cloud)
        done = ends(program, env, "down", *([path, "--yes"] if how == "spec" else ["contract"]))
        assert held.gone[0], done
        assert done.returncode == 8 and "not looked at: google" in done.stdout + done.stderr and machines(cloud) == [], done
        assert machine in done.stderr and "waiting for the list of google" in done.stderr, done
