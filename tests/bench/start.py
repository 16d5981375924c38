# SPDX-License-Identifier: Apache-2.0
"""Start time: what a person waits for before anything happens."""
import os
import pathlib
import shutil
import statistics

from timing import Load, cost, load_words, median, ms, rounds, spread, table, verdict

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(program, folder, count):
    """Returns (title, text, goals)."""
    env = {**os.environ, "HOME": str(folder), "CHECKPOINT_DISABLE": "1", "GPUPROV_STATE_DIR": str(folder)}
    env = {k: v for k, v in env.items() if not k.startswith(("AWS_", "TF_"))}
    contestants = {"gpuprov version": [program, "version"],
                   "gpuprov check examples/aws-h100.yaml": [program, "check", ROOT / "examples/aws-h100.yaml"]}
    missing = []
    for name, argv in (("terraform", ["terraform", "version"]), ("aws", ["aws", "--version"])):
        if shutil.which(name):
            contestants[" ".join(argv)] = argv
        else:
            missing.append("`%s` is not installed here: its row is missing.\n" % " ".join(argv))
    calls = {name: (lambda argv=argv: cost(argv, env=env)) for name, argv in contestants.items()}
    for call in calls.values():
        call()  # once for nothing: the files come into memory
    load = Load()
    got = rounds(count, calls)
    words = load_words(load.end())
    rows = []
    for name, costs in got.items():
        low, high = spread(costs)
        rows.append(["`%s`" % name, "%s (%s to %s)" % (ms(median(costs)), ms(low), ms(high)),
                     ms(median(costs, "cpu")), "%.0f MiB" % (median(costs, "rss") / 1024)])
    text = "%d rounds (%s):\n\n%s" % (count, words, table(
        ["command", "wall, median (range)", "CPU", "memory"], rows)) + "".join("\n" + m for m in missing)
    version = median(got["gpuprov version"])
    goals = [["`version` under 12 ms", ms(version), verdict(version < 0.012)]]
    if "terraform version" in got:
        ratio = statistics.median(a.wall / b.wall for a, b in zip(got["gpuprov version"],
                                                                 got["terraform version"]))
        goals.append(["`version` under a quarter of Terraform's", "%.2f" % ratio, verdict(ratio < 0.25)])
    return "Start", text, goals
