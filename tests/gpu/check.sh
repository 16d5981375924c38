#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh AGENT FOLDER: on a machine with NVIDIA GPUs, runs the whole suite of gpuprov-agent-cuda for
# five minutes and for one, then, side by side on GPU 0, what is installed here of other tools that
# measure the same, and writes FOLDER/MODEL.md. Needs sh and awk; every other tool only adds a comparison,
# and what was not compared is said. GPUPROV_GPU_CHECK_TIME=5m, GPUPROV_GPU_CHECK_ROUNDS=3,
# GPUPROV_GPU_CHECK_CHECKS=a,b instead of all that the time chooses. It ends with 1
# when the suite does not pass or a ratio is below its goal; no GPU setting is changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
agent=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
out=$2
time=${GPUPROV_GPU_CHECK_TIME:-5m}
rounds=${GPUPROV_GPU_CHECK_ROUNDS:-3}
checks=${GPUPROV_GPU_CHECK_CHECKS:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
: >"$work/pairs"
: >"$work/missing"

say() { printf 'gpu-check: %s\n' "$*" >&2; }

gpus=0
while [ -e "/dev/nvidia$gpus" ]; do gpus=$((gpus + 1)); done
[ "$gpus" -gt 0 ] || { say "no GPU here (no /dev/nvidia0): nothing was checked"; exit 1; }

# What the agent said: "CHECK METRIC VALUE UNIT" and "CHECK VERDICT TOOK_MS CODE" lines.
figures() {
    awk '/^\{"type":"result"/ {
        check = $0; sub(/^\{"type":"result","check":"/, "", check); sub(/".*/, "", check)
        rest = $0; if (!sub(/.*,"metrics":\[/, "", rest)) next
        sub(/\],"data":.*/, "", rest)
        while (match(rest, /\{"name":"[^"]*","value":[^,}]*,"unit":"[^"]*"/)) {
            one = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
            name = one; sub(/^\{"name":"/, "", name); sub(/".*/, "", name)
            value = one; sub(/.*"value":/, "", value); sub(/,.*/, "", value)
            unit = one; sub(/.*"unit":"/, "", unit); sub(/"$/, "", unit)
            print check, name, value, unit
        } }' "$1"
}
# The same of GPU 0 alone, which is the one that other tools measure: "CHECK METRIC VALUE".
first_gpu() {
    awk '/^\{"type":"result"/ {
        check = $0; sub(/^\{"type":"result","check":"/, "", check); sub(/".*/, "", check)
        at = index($0, "\"gpus\":[{\"gpu\":0,"); if (!at) next
        rest = substr($0, at); at = index(rest, "\"metrics\":{"); if (!at) next
        rest = substr(rest, at + 11); sub(/\}.*/, "", rest); n = split(rest, one, ",")
        for (i = 1; i <= n; i++) { split(one[i], part, ":"); gsub(/"/, "", part[1]); print check, part[1], part[2] }
    }' "$1"
}
verdicts() {
    awk '/^\{"type":"result"/ {
        check = $0; sub(/^\{"type":"result","check":"/, "", check); sub(/".*/, "", check)
        m = $0; sub(/^.*,"message":"/, "", m); sub(/","suggestion":.*/, "", m); gsub(/\|/, "/", m)
        ms = $0; sub(/^.*,"took_ms":/, "", ms); sub(/,.*/, "", ms)
        v = substr($0, index($0, "\"verdict\":\"") + 11); sub(/".*/, "", v)
        printf "| %s | %s | %.1f | %s |\n", check, v, ms / 1000, m }' "$1"
}
first_text() { # member FILE: the first string member of that name in the inventory
    awk -v key="\"$1\":\"" '/"check":"gpu.presence"/ {
        data = substr($0, index($0, "\"data\":{")); at = index(data, key)
        if (at) { data = substr(data, at + length(key)); sub(/".*/, "", data); print data; exit } }' "$2"
}
cuda_version() { # the driver's, 13000 as 13.0
    awk '/"check":"gpu.presence"/ && match($0, /"cuda":[0-9]+/) { v = substr($0, RSTART + 7, RLENGTH - 7); print int(v / 1000) "." int(v % 1000 / 10); exit }' "$1"
}
end_verdict() { awk '/^\{"type":"end"/ { v = substr($0, index($0, "\"verdict\":\"") + 11); sub(/".*/, "", v); print v }' "$1"; }

ours() { # NAME ARGS...: the agent's lines to $work/NAME.jsonl, its status to $work/NAME.status, its seconds
    name=$1
    shift
    began=$(date +%s)
    status=0
    "$agent" run --json "$@" >"$work/$name.jsonl" 2>"$work/$name.err" || status=$?
    echo "$status" >"$work/$name.status"
    echo $(($(date +%s) - began)) >"$work/$name.seconds"
}

say "the suite at $time on $gpus GPUs"
ours full --time "$time" --all --gpus "$gpus" ${checks:+--checks "$checks"}
say "the suite at 1m"
ours minute --time 1m --gpus "$gpus" ${checks:+--checks "$checks"}

# Other tools: each prints "CHECK METRIC VALUE TOOL" for what it measured on GPU 0.
# shellcheck source=tests/gpu/others.sh
. "$here/others.sh"

say "side by side, $rounds rounds"
round=1
while [ "$round" -le "$rounds" ]; do
    ours "round$round" --time 1m --gpus "$gpus" --checks gpu.bandwidth,gpu.gemm
    first_gpu "$work/round$round.jsonl" | awk '{ print "ours", $1, $2, $3 }' >>"$work/pairs"
    for tool in $OTHERS; do
        "other_$tool" "$work" 2>"$work/$tool.err" | awk '{ print "other", $1, $2, $3, $4 }' >>"$work/pairs" ||
            say "$tool: $(tail -n 1 "$work/$tool.err")"
    done
    round=$((round + 1))
done
# What needs several GPUs or minutes is compared once.
figures "$work/full.jsonl" | awk '$1 ~ /^nccl\./ { print "ours", $1, $2, $3 }' >>"$work/pairs"
# Training on one GPU, as the other program does it; sizes are taken from this result.
"$agent" train --gpu 0 --json >"$work/train.jsonl" 2>"$work/train.err" || say "train: $(tail -n 1 "$work/train.err")"
figures "$work/train.jsonl" | awk '$2 == "tokens_per_s" { print "ours", $1, $2, $3 }' >>"$work/pairs"
for tool in $OTHERS_ONCE; do
    "once_$tool" "$work" 2>"$work/$tool.err" | awk '{ print "other", $1, $2, $3, $4 }' >>"$work/pairs" ||
        say "$tool: $(tail -n 1 "$work/$tool.err")"
done

# Medians of the rounds, and their ratio.
awk -f "$here/ratios.awk" "$work/pairs" >"$work/ratios"

same=''
if [ "$gpus" -eq 1 ]; then
    say "NCCL between two processes on the one GPU (logic only)"
    GPUPROV_NCCL_SAME_GPU=2 ours same --time 2m --checks nccl.values --gpus 1
    same=$(verdicts "$work/same.jsonl")
fi

model=$(first_text name "$work/full.jsonl")
[ -n "$model" ] || { say "the inventory names no GPU: $(tail -n 1 "$work/full.err")"; cat "$work/full.jsonl" >&2; exit 1; }
file=$out/$(printf '%s' "$model" | tr -c 'A-Za-z0-9.\n' '-').md
mkdir -p "$out"
{
    printf '# %s\n\n' "$model"
    printf 'Made by `make gpu-check` on %s: %s GPU%s, driver %s, CUDA %s, %s.\n\n' "$(date -u +%Y-%m-%d)" "$gpus" \
        "$([ "$gpus" -eq 1 ] || echo s)" "$(first_text driver "$work/full.jsonl")" \
        "$(cuda_version "$work/full.jsonl")" "$("$agent" version)"
    printf '`run --time %s --all`: **%s** in %s s. `run --time 1m`: **%s** in %s s (goal: under 60).\n\n' "$time" \
        "$(end_verdict "$work/full.jsonl")" "$(cat "$work/full.seconds")" \
        "$(end_verdict "$work/minute.jsonl")" "$(cat "$work/minute.seconds")"
    printf '| check | verdict | seconds | said |\n|---|---|---|---|\n'
    verdicts "$work/full.jsonl"
    printf '\n## Figures\n\n| check | figure | value | unit |\n|---|---|---|---|\n'
    figures "$work/full.jsonl" | awk '{ unit = $4; for (i = 5; i <= NF; i++) unit = unit " " $i; print "| " $1 " | " $2 " | " $3 " | " unit " |" }'
    printf '\n## Side by side on GPU 0\n\nMedians of %s rounds, ours and the other in turn. Ratio: ours / other.\n\n' "$rounds"
    printf '| figure | gpuprov | other | tool | ratio | goal |\n|---|---|---|---|---|---|\n'
    awk '{ printf "| %s %s | %.4g | %.4g | %s | %.3f | %s |\n", $1, $2, $3, $4, $5, $6, $7 }' "$work/ratios"
    if [ -s "$work/missing" ]; then
        printf '\nNot compared, because it is not installed here:\n\n'
        sed 's/^/* /' "$work/missing"
    fi
    if [ -n "$same" ]; then
        printf '\n## NCCL, two processes on one GPU\n\nLogic only: over the loopback, so no figure of it is a bandwidth.\n\n'
        printf '| check | verdict | seconds | said |\n|---|---|---|---|\n%s\n' "$same"
    fi
} >"$file.new"
mv "$file.new" "$file"
say "wrote $file"

bad=$(awk '$7 != "-" && $6 + 0 < $7 + 0 { printf "%s%s %s is %.3f of %s (goal %s)", n++ ? "; " : "", $1, $2, $6, $5, $7 }' "$work/ratios")
[ -z "$bad" ] || say "below its goal: $bad"
[ "$(cat "$work/minute.seconds")" -lt 60 ] || bad="$bad one minute took longer"
full=$(end_verdict "$work/full.jsonl")
say "the suite at $time says $full"
[ -z "$bad" ] && { [ "$full" = pass ] || [ "$full" = degraded ]; }
