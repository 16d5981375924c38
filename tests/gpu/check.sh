#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh [--limit SECONDS] [--work FOLDER] AGENT FOLDER: on a machine with NVIDIA GPUs, runs the whole suite of
# gpuprov-agent-cuda for one minute and for five, then, side by side on GPU 0, what is installed here of other tools
# that measure the same, and writes FOLDER/MODEL.md after each step. Results are kept in --work (build/gpu-check): a call
# that its limit or a signal ended is called again to go on. Needs sh and awk; every other tool only adds a
# comparison, and the page names those that are missing. GPUPROV_GPU_CHECK_TIME=5m, GPUPROV_GPU_CHECK_ROUNDS=3,
# GPUPROV_GPU_CHECK_CHECKS=a,b instead of all that the time chooses, GPUPROV_GPU_CHECK_GANG="a b" on one GPU. Status: 0, 1 when the suite does not pass or a
# ratio is below its goal, 3 when steps are left for the next call. No GPU setting is changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
limit='' work=${B:-build}/gpu-check
while [ $# -gt 2 ]; do
    case $1 in
    --limit) limit=$2 ;;
    --work) work=$2 ;;
    *) echo "gpu-check: unknown option $1" >&2; exit 2 ;;
    esac
    shift 2
done
agent=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
out=$2
time=${GPUPROV_GPU_CHECK_TIME:-5m}
rounds=${GPUPROV_GPU_CHECK_ROUNDS:-3}
checks=${GPUPROV_GPU_CHECK_CHECKS:-}
gang=${GPUPROV_GPU_CHECK_GANG:-nccl.values nccl.bandwidth train.ddp}
file=''
# shellcheck source=tests/gpu/steps.sh
. "$here/steps.sh"
# shellcheck source=tests/gpu/figures.sh
. "$here/figures.sh"
# shellcheck source=tests/gpu/page.sh
. "$here/page.sh"
steps_open
after_step() { [ -z "$file" ] || page; }
: >"$work/missing"

PYTHON=$(find_python)
: "${GPUPROV_LIBRARY_PATH:=$(python_libraries "$PYTHON")}"
export GPUPROV_LIBRARY_PATH

# The driver counts the GPUs: a container may have /dev/nvidia3 alone. Not kept: the machine may be another one.
inputs=''
rm -f "$work/presence.done"
step presence 30 "$agent" run --json --time 1m --checks gpu.presence
ran=0
gpus=$(figures "$work/presence.out" | awk '$2 == "gpus" { print $3 }')
[ "${gpus:-0}" -gt 0 ] || { say "no GPU here: nothing was checked: $(verdicts "$work/presence.out" | cut -d'|' -f5; tail -n 1 "$work/presence.err")"; exit 1; }
model=$(first_text name "$work/presence.out")
[ -n "$model" ] || { say "the inventory names no GPU"; cat "$work/presence.out" >&2; exit 1; }
inputs="$model $gpus $(first_text driver "$work/presence.out") $GPUPROV_LIBRARY_PATH $(cksum <"$agent") $(cat "$here"/*.sh "$here"/*.py | cksum)"
file=$out/$(printf '%s' "$model" | tr -c 'A-Za-z0-9.\n' '-').md

seconds_of() { case $1 in *m) echo $((${1%m} * 60)) ;; *) echo "${1%s}" ;; esac; }
step minute 120 "$agent" run --json --time 1m --gpus "$gpus" ${checks:+--checks "$checks"}
step full $(($(seconds_of "$time") + 90)) "$agent" run --json --time "$time" --all --gpus "$gpus" ${checks:+--checks "$checks"}

# On one GPU the gang's checks run between two processes on it.
if [ "$gpus" -eq 1 ]; then
    for check in $gang; do
        step "same.$check" 120 env GPUPROV_NCCL_SAME_GPU=2 "$agent" run --json --time 2m --checks "$check" --gpus 1
    done
fi

# Other tools: each prints "CHECK METRIC VALUE TOOL" for what it measured on GPU 0.
# shellcheck source=tests/gpu/others.sh
. "$here/others.sh"
round=1
while [ "$round" -le "$rounds" ]; do
    step "round$round" 60 "$agent" run --json --time 1m --gpus "$gpus" --checks gpu.bandwidth,gpu.gemm
    edge=$(number_of gpu.gemm edge "$work/round$round.out")
    for tool in $OTHERS; do step "round$round.$tool" 90 sh "$here/others.sh" "$tool" "${edge:-8192}"; done
    round=$((round + 1))
done
# Training on one GPU, as the other program does it; sizes are taken from this result.
step train 60 "$agent" train --gpu 0 --json
# What needs several GPUs or minutes is compared once.
most=$(number_of nccl.bandwidth bytes "$work/full.out")
for tool in $OTHERS_ONCE; do step "once.$tool" 240 sh "$here/others.sh" "$tool" "$work/train.out" "$gpus" "${most:-1073741824}"; done

page
say "wrote $file"
bad=$(awk '$7 != "-" && $6 + 0 < $7 + 0 { printf "%s%s %s is %.3f of %s (goal %s)", n++ ? "; " : "", $1, $2, $6, $5, $7 }' "$work/ratios")
[ -z "$bad" ] || say "below its goal: $bad"
[ "$(step_seconds minute)" -lt 60 ] || { bad="$bad one minute took longer"; say "run --time 1m took $(step_seconds minute) s"; }
# Every run of the suite counts, the gang's checks on one GPU too.
runs='minute full'
[ "$gpus" -gt 1 ] || for check in $gang; do runs="$runs same.$check"; done
for f in $runs; do
    v=$(end_verdict "$work/$f.out")
    say "$f: ${v:-no verdict}"
    case $v in pass | degraded) ;; *) bad="$bad $f" ;; esac
done
[ -z "$bad" ]
