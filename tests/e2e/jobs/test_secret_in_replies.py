# SPDX-License-Identifier: Apache-2.0
"""What a node replies may have the secrets that it was given. Also where no bootstrap ran in this process, none of them is
printed, logged, kept or sent to a receiver."""
import pathlib
import shlex

from conftest import Gpuprov, built_program

TOKEN = "hf_SuperSecretTokenOfTheUser12345"
SPEC = """\
name: leak
nodes: 1
offers: [{provider: local}]
limits: {ttl: 30m}
validate: {time: 1m}
secrets: [{env: TOKEN, from: env:JOB_TOKEN}]
notify: [{command: 'cat >>%s/notified'}]
job: {run: "true"}
"""
AGENT = ".gpuprov/agent/gpuprov-agent"
LIAR = r'''#!/bin/sh
case "$1 $2" in "job start")
  x=$(cat | tr -d '\0' | grep -ao 'hf_[A-Za-z0-9]*' | head -1)
  echo "could not start the job: the environment has $x" >&2
  exit 1 ;;
esac
exec "$0.real" "$@"
'''


def test_a_secret_in_the_error_of_a_job(tmp_path):
    (tmp_path / "home").mkdir()
    gpuprov = Gpuprov(built_program(), tmp_path / "state", tmp_path / "home")
    gpuprov.env["JOB_TOKEN"] = TOKEN
    spec = tmp_path / "spec.yaml"
    spec.write_text(SPEC % tmp_path)
    try:
        gpuprov("up", spec)
        gpuprov("ssh", "leak/0", "--", f"mv {AGENT} {AGENT}.real; printf %s {shlex.quote(LIAR)} >{AGENT}; chmod 755 {AGENT}")
        for words in (("exec", spec), ("exec", "leak", "--", "true"), ("exec", "--json", spec), ("run", "--no-down", spec),
                      ("logs", "leak")):
            r = gpuprov(*words, code=None)
            assert TOKEN not in r.out + r.err, (words, r.out, r.err)
            assert words[0] == "logs" or "the environment has ***" in r.out + r.err, (words, r.out, r.err)
        kept = [p for p in pathlib.Path(tmp_path / "state").rglob("*") if p.is_file() and "/local/" not in str(p)]
        assert kept and not [p for p in [*kept, tmp_path / "notified"] if TOKEN.encode() in p.read_bytes()]
    finally:
        gpuprov("down", "leak", code=None)
