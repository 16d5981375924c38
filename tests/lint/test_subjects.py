#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The test of subjects.sh, in repositories made for it. Run by `make lint`."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).with_name("subjects.sh")
GOOD = ["engine: replay an open intent before planning", "core/ssh, tests: give a link its own header",
        "x: " + "é" * 69, "docs: name the wiping of secrets"]
BAD = {
    "wip": "says wip",
    "engine: wip2, more later": "says wip",
    "engine: " + "x" * 65: "longer than 72 characters",
    "Sound GPUs are not told apart": "not of the form",
    "fixup! engine: replay an open intent": "not of the form",
    "engine:replay an open intent": "not of the form",
    "engine: replay an open intent.": "full stop",
}


class Subjects(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.repo = self.root / "repo"
        self.repo.mkdir()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.root), "GIT_CONFIG_NOSYSTEM": "1",
                    **{f"GIT_{who}_{what}": "t@example.org"
                       for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}}
        self.git("init", "-q")

    def git(self, *args):
        return subprocess.run(["git", *args], cwd=self.repo, env=self.env, check=True,
                              capture_output=True, text=True).stdout

    def commit(self, subject):
        self.git("commit", "-q", "--allow-empty", "-m", subject)

    def rule(self):
        (self.repo / "tests/lint").mkdir(parents=True)
        shutil.copy(SCRIPT, self.repo / "tests/lint/subjects.sh")
        self.git("add", ".")
        self.commit("Whatever the rule's own commit is called")

    def check(self, repo=None):
        p = subprocess.run(["sh", SCRIPT, repo or self.repo], env=self.env, check=False,
                           capture_output=True, text=True)
        self.assertEqual(p.stderr, "")
        return p.returncode, p.stdout

    def test_only_commits_after_the_rule_count(self):
        self.commit("wip")
        self.rule()
        for subject in GOOD:
            self.commit(subject)
        code, out = self.check()
        self.assertEqual(code, 0, out)
        self.assertRegex(out, rf"^subjects: {len(GOOD)} commits after \w+, 0 problems\n$")

    def test_each_bad_subject_is_reported_with_its_commit(self):
        self.rule()
        for subject, reason in BAD.items():
            with self.subTest(subject):
                self.commit(subject)
                code, out = self.check()
                self.assertEqual(code, 1, out)
                line = next(line for line in out.splitlines() if line.endswith(f": {subject}"))
                self.assertTrue(line.startswith(f"commit {self.git('rev-parse', '--short', 'HEAD').strip()}: "), line)
                self.assertIn(reason, out)
        self.assertIn(f"{len(BAD)} problems", out)

    def test_a_shallow_checkout_is_checked_as_far_as_it_goes(self):
        self.rule()
        for subject in ("engine: a", "wip", "engine: b"):
            self.commit(subject)
        subprocess.run(["git", "clone", "-q", "--depth", "3", f"file://{self.repo}", self.root / "shallow"],
                       env=self.env, check=True, capture_output=True)
        code, out = self.check(self.root / "shallow")
        self.assertEqual(code, 1, out)
        self.assertIn("2 commits", out)

    def test_without_history_nothing_is_checked(self):
        code, out = self.check()
        self.assertEqual((code, out), (0, "subjects: no git history here, nothing checked\n"))


if __name__ == "__main__":
    unittest.main()
