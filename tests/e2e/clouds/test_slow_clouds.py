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
