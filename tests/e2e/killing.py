# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a program at a moment of its cloud, and a state folder that is lost."""
import random
import time

from waiting import wait_for


def forget(run):
    """The journal is lost."""
    for f in run.state.glob("journal.db*"):
        f.unlink()


def kill_at(process, reached, delay=0.0):
    """Kills it a moment after this is true, unless it ended before."""
    try:
        wait_for(lambda: reached() or process.poll() is not None, 60)
        time.sleep(delay)
    finally:
        process.kill()
        process.communicate()


def killed_up(run, cloud, path, seed, requests):
    """`up` is killed after one of its first requests; the journal of every second seed is lost. `down` leaves nothing."""
    name, round_ = seed
    dice = random.Random(f"{name} {round_}")
    count = dice.randint(1, requests)
    kill_at(run.popen("up", path, "--quiet"), lambda: len(cloud.log) >= count, dice.uniform(0, 0.05))
    with cloud.lock:
        pass  # a request that came in is handled
    if round_ % 2 == 1:
        forget(run)
    run("down", "contract", code=None)
    run("down", path)
    assert cloud.left() == [], count
