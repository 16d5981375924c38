# SPDX-License-Identifier: Apache-2.0
"""A clock of one gpuprov that the test sets ahead (clock_jump.c): limits of minutes end at once."""
import pathlib
import struct
import subprocess

SOURCE = pathlib.Path(__file__).with_name("clock_jump.c")


class Clock:
    """env: for the program. Each clock is for one process."""

    def __init__(self, folder):
        self.file, self.ahead_ms = folder / "clock", 0
        library = folder / "clock_jump.so"
        if not library.exists():
            subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
        self.file.write_bytes(bytes(8))
        # a runtime of a sanitizer that is not the first library only warns
        self.env = {"LD_PRELOAD": str(library), "TEST_CLOCK": str(self.file), "ASAN_OPTIONS": "verify_asan_link_order=0"}

    def jump(self, seconds):
        self.ahead_ms += int(seconds * 1000)
        with open(self.file, "r+b") as f:
            f.write(struct.pack("<q", self.ahead_ms))
