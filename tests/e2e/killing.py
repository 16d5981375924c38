# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a program at a moment of its cloud, and a state folder that is lost."""
import random
import socket
import time

from waiting import wait_for


def forget(run):
    """The journal is lost."""
    for f in run.state.glob("journal.db*"):
        f.unlink()


def settle(cloud):
    """Waits until the cloud has acted on all that was sent to it. Its clients have ended, and what they sent last may not
    be read yet: connections are accepted in their order, so those before this function's own were accepted."""
    with socket.create_connection(("127.0.0.1", cloud.port)) as last:
        wait_for(lambda: last.getsockname() in cloud.unread)
    wait_for(lambda: not cloud.unread)


def kill_at(process, cloud, reached, delay=0.0):
    """Kills it a moment after this is true, unless it ended before. The cloud has acted on all requests then."""
    try:
        wait_for(lambda: reached() or process.poll() is not None, 120)
        time.sleep(delay)
    finally:
        process.kill()
        process.communicate()
    settle(cloud)


JOURNALS = ["kept", "lost"]


def killed_up(run, cloud, path, journal, seed, requests):
    """`up` is killed after one of its first requests, and its journal may be lost. `down` leaves nothing."""
    dice = random.Random(f"{seed} {journal}")
    count = dice.randint(1, requests)
    kill_at(run.popen("up", path, "--quiet"), cloud, lambda: len(cloud.log) >= count, dice.uniform(0, 0.05))
    if journal == "lost":
        forget(run)
    run("down", "contract", code=None)
    run("down", path)
    assert cloud.left() == [], count
