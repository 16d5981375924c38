# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Other tools that check.sh compares with. other_NAME WORK: one round on GPU 0, "CHECK METRIC VALUE TOOL"
# lines on stdout. once_NAME: the same, run once. A tool that is not here is written to WORK/missing.
OTHERS=''
OTHERS_ONCE=''
# shellcheck disable=SC2154
missing() { printf '%s\n' "$*" >>"$work/missing"; }

PYTHON=${GPUPROV_GPU_CHECK_PYTHON:-python3}
if command -v "$PYTHON" >/dev/null 2>&1 && "$PYTHON" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null; then
    OTHERS="$OTHERS torch"
    OTHERS_ONCE="$OTHERS_ONCE torch_train"
else
    missing "PyTorch (matmul, copy, the same training step)"
fi
# shellcheck disable=SC2154
other_torch() { CUDA_VISIBLE_DEVICES=0 "$PYTHON" "$here/torch_rates.py"; }
once_torch_train() {
    CUDA_VISIBLE_DEVICES=0 "$PYTHON" "$here/train_torch.py" --like "$1/train.jsonl" |
        awk '/"mode"/ { m = $0; sub(/.*"mode": *"/, "", m); sub(/".*/, "", m); t = $0; sub(/.*"tokens_per_s": */, "", t); sub(/[,}].*/, "", t); print "train.ddp tokens_per_s", t, "pytorch-" m }'
}

# Every algorithm that cuBLASLt offers for the shape, built here when nvcc and its library are.
NVCC=$(command -v nvcc || { [ ! -x /usr/local/cuda/bin/nvcc ] || echo /usr/local/cuda/bin/nvcc; })
if [ -n "$NVCC" ] && "$NVCC" -O2 -o "$work/cublaslt_best" "$here/cublaslt_best.c" -lcublasLt 2>"$work/cublaslt_best.err"; then
    OTHERS="$OTHERS cublaslt_best"
else
    missing "every cuBLASLt algorithm (needs nvcc and libcublasLt to build with)"
fi
other_cublaslt_best() { CUDA_VISIBLE_DEVICES=0 "$1/cublaslt_best"; }

if command -v nvbandwidth >/dev/null 2>&1; then OTHERS="$OTHERS nvbandwidth"; else missing "nvbandwidth"; fi
other_nvbandwidth() {
    CUDA_VISIBLE_DEVICES=0 nvbandwidth -t host_to_device_memcpy_ce -t device_to_host_memcpy_ce -t device_local_copy |
        awk '/^SUM / { m = $2 ~ /^host_to/ ? "h2d" : $2 ~ /^device_to_host/ ? "d2h" : $2 ~ /local/ ? "copy" : ""
                       if (m != "") print "gpu.bandwidth", m, $3, "nvbandwidth" }'
}

if command -v all_reduce_perf >/dev/null 2>&1; then OTHERS_ONCE="$OTHERS_ONCE nccl_tests"; else missing "nccl-tests (all_reduce_perf)"; fi
# shellcheck disable=SC2154 # gpus is check.sh's
once_nccl_tests() {
    [ "$gpus" -gt 1 ] || { echo "one GPU: no bus to measure" >&2; return 1; }
    size=$(awk '/"check":"nccl.bandwidth"/ { s = $0; if (sub(/.*"largest_bytes":/, "", s)) { sub(/[,}].*/, "", s); print s } }' "$1/full.jsonl")
    all_reduce_perf -b "${size:-1073741824}" -e "${size:-1073741824}" -g "$gpus" -n 20 -w 5 |
        awk '$3 == "float" && NF >= 12 { print "nccl.bandwidth busbw", $8, "nccl-tests" }'
}

if command -v dcgmi >/dev/null 2>&1; then OTHERS_ONCE="$OTHERS_ONCE dcgm"; else missing "DCGM (dcgmi diag)"; fi
once_dcgm() {
    began=$(date +%s)
    dcgmi diag -r 2 >"$1/dcgm.txt" 2>&1 || true
    printf 'DCGM: `dcgmi diag -r 2` took %s s and said: %s\n' "$(($(date +%s) - began))" \
        "$(awk '/\| *(Pass|Fail|Warn|Skip)/ { n[$0 ~ /Fail/ ? "fail" : $0 ~ /Warn/ ? "warn" : $0 ~ /Skip/ ? "skip" : "pass"]++ } END { for (k in n) printf "%s %d ", k, n[k] }' "$1/dcgm.txt")" >>"$1/missing"
}
