# SPDX-License-Identifier: Apache-2.0
"""Waiting for a fact, never for a time."""
import time


def wait_for(what, seconds=60, found=lambda: ""):
    """What the function returns as soon as that is true. found(): what a failure prints of the state instead."""
    end = time.monotonic() + seconds
    while not (got := what()):
        assert time.monotonic() < end, f"did not come true within {seconds} s: {what} {found()}"
        time.sleep(0.02)
    return got
