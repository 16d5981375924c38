# SPDX-License-Identifier: Apache-2.0
"""A real terminal for a command: what it shows, and what stays in its history (tmux)."""
import subprocess

from waiting import wait_for


class Terminal:
    """A tmux server of its own; the command's shell stays until it is told to go."""

    def __init__(self, folder, columns, rows, command):
        self.tmux = ["tmux", "-S", str(folder / "tmux"), "-f", "/dev/null"]
        self.done, self.go_on = folder / "done", folder / "go-on"
        self.run("new-session", "-d", "-x", str(columns), "-y", str(rows),
                 f"{command}; echo END; touch {self.done}; cat")

    def run(self, *args):
        return subprocess.run([*self.tmux, *args], check=True, capture_output=True, text=True).stdout

    def screen(self, history=False):
        lines = self.run("capture-pane", "-p", *(["-S", "-"] if history else [])).splitlines()
        return [line for line in lines if line]

    def wait(self, ready, seconds=60):
        wait_for(ready, seconds, lambda: self.screen(history=True))

    def close(self):
        subprocess.run([*self.tmux, "kill-server"], capture_output=True)
