# SPDX-License-Identifier: Apache-2.0
"""Waiting for a fact, never for a time."""
import time


def wait_for(what, seconds=60):
    """What the function returns as soon as that is true."""
    end = time.monotonic() + seconds
    while not (got := what()):
        assert time.monotonic() < end, f"did not come true within {seconds} s: {what}"
        time.sleep(0.02)
    return got
