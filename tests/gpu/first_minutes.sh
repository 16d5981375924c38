#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# first_minutes.sh CALL [--limit SECONDS] [--work FOLDER] [AGENT [FOLDER]]: the first minutes on a real GPU, in calls
# of at most ten minutes, most telling first. CALL is one of
#   A  facts, the contract programs on the real driver, the whole suite at 1m         4 min
#   B  two processes on one GPU, our own kernels, compute-sanitizer                    7 min
#   C  check.sh, beside other tools                                                    9 min
#   D  the whole suite at 5m (heat), then a GPU that another process uses              7 min
#   E  trouble that does no harm: held memory, hidden GPUs, a killed rank, two agents  4 min
# Each is a list of steps whose results are kept in --work (build/first-minutes): a call that was cut off is called
# again to go on. Status: 0, 1 when a step is not as expected, 3 when steps are left. Build everything before
# (make all test-programs gpu-programs); nothing is compiled here, and no GPU setting is changed.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
B=${B:-build}
limit='' work=$B/first-minutes
call=${1:-}
[ $# -eq 0 ] || shift
while [ $# -gt 1 ]; do
    case $1 in
    --limit) limit=$2 ;;
    --work) work=$2 ;;
    *) break ;;
    esac
    shift 2
done
agent=${1:-$B/agent/gpuprov-agent-cuda}
out=${2:-docs/gpu-results}
agent=$(cd "$(dirname "$agent")" && pwd)/$(basename "$agent")
tests=$(cd "$B" && pwd)/tests/contract
# shellcheck source=tests/gpu/steps.sh
. "$here/steps.sh"
# shellcheck source=tests/gpu/figures.sh
. "$here/figures.sh"
case $call in A | B | C | D | E) ;; *) say "no call '$call': A, B, C, D or E"; exit 2 ;; esac
steps_open
odd=$work/$call.odd
: >"$odd"
after_step() { :; }
PYTHON=$(find_python)
: "${GPUPROV_LIBRARY_PATH:=$(python_libraries "$PYTHON")}"
# the contract programs use the stand-ins when this is not set
: "${GPUPROV_LIBRARY_PATH:=/usr/local/cuda/lib64}"
export GPUPROV_LIBRARY_PATH
inputs="$call $(cksum <"$agent") $(cksum <"$0") $(nvidia-smi --query-gpu=uuid,driver_version --format=csv,noheader 2>/dev/null || :)"

# expect STEP WORD TEXT: what a look at the step's result must show; else it is listed at the end.
expect() {
    if ! grep -q -- "$2" "$work/$1.out" 2>/dev/null; then echo "$1: $3" >>"$odd"; fi
}
passes() { # STEP: the agent's own verdict
    v=$(end_verdict "$work/$1.out")
    case $v in pass | degraded) ;; *) echo "$1: ${v:-no verdict}: $(verdicts "$work/$1.out" | grep -E '\| (fail|error) \|' | head -n 2 | tr '\n' ' ')$(tail -n 1 "$work/$1.err")" >>"$odd" ;; esac
}
ok() { if [ "$(step_status "$1")" != 0 ]; then echo "$1: status $(step_status "$1"): $(grep -E 'FAILED|ERROR' "$work/$1.out" "$work/$1.err" | head -n 2 | tr '\n' ' ')" >>"$odd"; fi; }
contract() { # STEP SECONDS PROGRAM [NAME=VALUE...]
    s=$1 n=$2 p=$3
    shift 3
    [ -x "$tests/$p" ] || { echo "$s: $tests/$p was not built" >>"$odd"; return 0; }
    step "$s" "$n" env "$@" "$tests/$p"
    ok "$s"
}
run() { # STEP SECONDS ARGS...
    s=$1 n=$2
    shift 2
    step "$s" "$n" "$agent" run --json "$@"
}
# While a process of ours holds GPU 0 and computes on it.
beside() { # STEP SECONDS ARGS...
    s=$1 n=$2
    shift 2
    # shellcheck disable=SC2016
    step "$s" "$n" sh -c '"$1" train --gpu 0 --time 120s >/dev/null 2>&1 & other=$!
        sleep ${GPUPROV_BESIDE_S:-8}; agent=$1; shift
        "$agent" run --json "$@"; status=$?; kill "$other" 2>/dev/null; wait "$other" 2>/dev/null; exit $status' sh "$agent" "$@"
}

call_A() {
    # shellcheck disable=SC2016
    step A.facts 20 sh -c 'nvidia-smi -q; nvidia-smi nvlink -s; nvidia-smi topo -m; ls -l /dev/nvidia*
        ldconfig -p | grep -E "cublasLt|nccl|libcuda|nvidia-ml"; echo "GPUPROV_LIBRARY_PATH=$GPUPROV_LIBRARY_PATH"; uname -a; nproc; free -g; exit 0'
    contract A.device 30 test_device
    contract A.gemm 40 test_gemm
    contract A.train_kernels 40 test_train_kernels
    contract A.gemm_own 40 test_gemm GPUPROV_CUBLASLT=off
    run A.suite 110 --all --time 1m
    passes A.suite
    expect A.suite '"by":"cuBLASLt' "cuBLASLt was not found: mend GPUPROV_LIBRARY_PATH before anything else"
}
call_B() {
    for check in nccl.values nccl.bandwidth train.ddp; do
        step "B.$check" 110 env GPUPROV_NCCL_SAME_GPU=2 "$agent" run --json --time 2m --checks "$check" --gpus 1
        passes "B.$check"
    done
    step B.own 40 env GPUPROV_CUBLASLT=off "$agent" run --json --time 1m --checks gpu.gemm,gpu.sdc
    passes B.own
    if command -v compute-sanitizer >/dev/null 2>&1; then
        for tool in memcheck racecheck; do
            for p in test_gemm test_train_kernels; do
                [ -x "$tests/$p" ] || continue
                step "B.$tool.$p" 90 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests/$p"
                ok "B.$tool.$p"
            done
        done
    else
        echo "B: compute-sanitizer is not installed here" >>"$odd"
    fi
}
call_C() {
    rest=$limit
    if [ -n "$limit" ]; then rest=$(left); fi
    status=0
    B=$B sh "$here/check.sh" ${rest:+--limit "$rest"} --work "$work/check" "$agent" "$out" 9>&- || status=$?
    [ "$status" -ne 3 ] || exit 3
    [ "$status" -eq 0 ] || echo "C: check.sh ended with $status" >>"$odd"
}
call_D() {
    run D.suite 390 --all --time 5m
    passes D.suite
    beside D.busy 60 --time 1m --checks gpu.presence,gpu.health,gpu.memory
    expect D.busy 'gpu_busy\|low_tested' "a GPU that another process uses was not reported"
}
call_E() {
    beside E.two_tenants 60 --time 1m --checks gpu.presence,gpu.bandwidth,gpu.gemm
    step E.hidden 30 env CUDA_VISIBLE_DEVICES= "$agent" run --json --time 30s --checks gpu.presence
    expect E.hidden '"type":"end","verdict":"\(fail\|error\)"' "hidden GPUs were not reported"
    # shellcheck disable=SC2016
    step E.killed_rank 90 sh -c 'GPUPROV_NCCL_SAME_GPU=2 "$1" run --json --time 1m --checks nccl.values --gpus 1 & run=$!
        sleep ${GPUPROV_KILL_S:-6}
        for p in $(cat "/proc/$run/task/$run/children"); do last=$p; done
        [ -z "${last:-}" ] || kill -KILL $last; wait "$run"' sh "$agent"
    expect E.killed_rank '"type":"end"' "a gang with a killed rank did not end"
    # shellcheck disable=SC2016
    step E.two_agents 60 sh -c '"$1" run --json --time 30s --checks gpu.presence,gpu.memory >&2 &
        "$1" run --json --time 30s --checks gpu.presence,gpu.memory; status=$?; wait; exit $status' sh "$agent"
    expect E.two_agents '"type":"end"' "two agents at once: the second one did not end"
}

"call_$call"
if [ -s "$odd" ]; then
    say "call $call: not as expected:"
    sed 's/^/  /' "$odd" >&2
    exit 1
fi
say "call $call: as expected; results are in $work"
