#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks the subjects of commits: `area: effect`, at most 72 characters, no "wip", no full stop. Checked are the
# commits after the one that added this file, as far back as the checkout's history goes; older ones landed
# before the rule. Run by .ci/run. Usage: subjects.sh [REPOSITORY]
set -eu
LC_ALL=C.UTF-8
export LC_ALL
cd "${1:-$(dirname "$0")/../..}"
if ! git rev-parse -q --verify HEAD >/dev/null 2>&1; then
  echo "subjects: no git history here, nothing checked"
  exit 0
fi
first=$(git log --diff-filter=A --format=%H -- tests/lint/subjects.sh | tail -n 1)
if [ -z "$first" ]; then
  echo "subjects: tests/lint/subjects.sh is not committed, nothing checked"
  exit 0
fi
bad=0
count=0
# why SUBJECT: prints what is wrong with it
why() {
  if printf '%s\n' "$1" | grep -Eq '^.{73,}'; then echo "longer than 72 characters"; fi
  if printf '%s\n' "$1" | grep -Eiq '(^|[^[:alnum:]])wip[0-9]*([^[:alnum:]]|$)'; then echo "says wip"; fi
  printf '%s\n' "$1" | grep -Eq '^[[:alnum:]_./-]+(, [[:alnum:]_./-]+)*: [^ ]' || echo "not of the form 'area: effect'"
  case $1 in *.) echo "ends with a full stop" ;; esac
}
for commit in $(git rev-list --no-merges --reverse "$first..HEAD"); do
  subject=$(git log -1 --format=%s "$commit")
  count=$((count + 1))
  reasons=$(why "$subject")
  if [ -n "$reasons" ]; then
    bad=$((bad + 1))
    printf '%s\n' "$reasons" | while read -r reason; do
      echo "commit $(git rev-parse --short "$commit"): $reason: $subject"
    done
  fi
done
echo "subjects: $count commits after $(git rev-parse --short "$first"), $bad problems"
[ "$bad" = 0 ]
