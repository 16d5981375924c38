# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Other tools that check.sh compares with. Sourced: OTHERS and OTHERS_ONCE name those that are here, the rest is
# written to $work/missing. others.sh TOOL ARGS...: one measurement on GPU 0, "CHECK METRIC VALUE TOOL" lines.
# shellcheck disable=SC2154,SC2016 # check.sh's variables; Markdown's backquotes
here=${here:-$(cd "$(dirname "$0")" && pwd)}
PYTHON=${PYTHON:-python3}
export PYTHON
best=${B:-build}/tests/gpu/cublaslt_best

if [ -n "${GPUPROV_STEP:-}" ]; then
    tool=$1
    export CUDA_VISIBLE_DEVICES="${CUDA_VISIBLE_DEVICES:-0}"
    [ "$tool" = nccl_tests ] || CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES%%,*}
    case $tool in
    torch) exec "$PYTHON" "$here/torch_rates.py" ;;
    torch_train)
        "$PYTHON" "$here/train_torch.py" --like "$2" |
            awk '/"mode"/ { m = $0; sub(/.*"mode": *"/, "", m); sub(/".*/, "", m); t = $0; sub(/.*"tokens_per_s": */, "", t); sub(/[,}].*/, "", t); print "train.ddp tokens_per_s", t, "pytorch-" m }'
        ;;
    cublaslt_best) LD_LIBRARY_PATH=$GPUPROV_LIBRARY_PATH:${LD_LIBRARY_PATH:-} exec "$best" "$2" ;;
    nvbandwidth)
        nvbandwidth -t host_to_device_memcpy_ce -t device_to_host_memcpy_ce -t device_local_copy |
            awk '/^SUM / { m = $2 ~ /^host_to/ ? "h2d" : $2 ~ /^device_to_host/ ? "d2h" : $2 ~ /local/ ? "copy" : ""
                           if (m != "") print "gpu.bandwidth", m, $3, "nvbandwidth" }'
        ;;
    nccl_tests) # the sizes of nccl.bandwidth: 8 bytes times powers of four, and the largest
        unset CUDA_VISIBLE_DEVICES
        [ "$3" -gt 1 ] || { echo "one GPU: no bus to measure" >&2; exit 1; }
        {
            all_reduce_perf -b 8 -e "$4" -f 4 -g "$3" -n 20 -w 5
            all_reduce_perf -b "$4" -e "$4" -g "$3" -n 20 -w 5
        } | awk '$3 == "float" && NF >= 12 {
            if ($8 > 0) print "nccl.bandwidth busbw_" $1, $8, "nccl-tests"
            if ($6 > 0) print "nccl.bandwidth calls_per_s_" $1, 1e6 / $6, "nccl-tests" }'
        ;;
    dcgm)
        from=$(date +%s)
        text=$(dcgmi diag -r 2 2>&1 || :)
        printf 'DCGM: `dcgmi diag -r 2` took %s s and reported: %s\n' "$(($(date +%s) - from))" "$(printf '%s\n' "$text" |
            awk '/\| *(Pass|Fail|Warn|Skip)/ { n[$0 ~ /Fail/ ? "fail" : $0 ~ /Warn/ ? "warn" : $0 ~ /Skip/ ? "skip" : "pass"]++ } END { for (k in n) printf "%s %d ", k, n[k] }')"
        ;;
    *) exit 2 ;;
    esac
    exit
fi

OTHERS='' OTHERS_ONCE=''
missing() { printf '%s\n' "$*" >>"$work/missing"; }
if command -v "$PYTHON" >/dev/null 2>&1 && "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    OTHERS="$OTHERS torch" OTHERS_ONCE="$OTHERS_ONCE torch_train"
else
    missing "PyTorch (matmul, copy, the same training step)"
fi
if [ -x "$best" ]; then
    OTHERS="$OTHERS cublaslt_best"
else
    missing "every cuBLASLt algorithm (make gpu-programs, with cublasLt.h)"
fi
if command -v nvbandwidth >/dev/null 2>&1; then OTHERS="$OTHERS nvbandwidth"; else missing "nvbandwidth"; fi
if command -v all_reduce_perf >/dev/null 2>&1; then OTHERS_ONCE="$OTHERS_ONCE nccl_tests"; else missing "nccl-tests (all_reduce_perf)"; fi
if command -v dcgmi >/dev/null 2>&1; then OTHERS_ONCE="$OTHERS_ONCE dcgm"; else missing "DCGM (dcgmi diag)"; fi
