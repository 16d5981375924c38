# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Ends a run that overran. STEP, RUN_ID.
cd "$HOME/.gpuprov/steps/$STEP" && read -r p <pid && grep -q "$RUN_ID" "/proc/${p:-x}/cmdline" || exit 0
both() { kill "$1" -- "-$p" 2>/dev/null; root kill "$1" -- "-$p" 2>/dev/null; }
both -TERM
n=0
while [ -d "/proc/$p" ] && [ $n -lt 20 ]; do
    sleep 0.1
    n=$((n + 1))
done
both -KILL
exit 0
