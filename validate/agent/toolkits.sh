#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints "VERSION COMPILER", newest first, one per major version, for every CUDA toolkit of CUDA_HOMES
# (spaces or colons between), else CUDA_HOME, PATH and /usr/local/cuda*. COMPILER is a toolkit's nvcc
# (13000 /usr/local/cuda/bin/nvcc), or the NVRTC library of a folder that has no nvcc, as Python's
# packages (12090 .../nvidia/cuda_nvrtc/lib/libnvrtc.so.12).
# Prints nothing, and succeeds, when there is none.
set -eu

homes() {
    if [ -n "${CUDA_HOMES:-}" ]; then
        printf '%s' "$CUDA_HOMES" | tr ':' ' ' | tr ' ' '\n'
        printf '\n'
        return
    fi
    [ -z "${CUDA_HOME:-}" ] || printf '%s\n' "$CUDA_HOME"
    path=$(command -v nvcc || :)
    [ -z "$path" ] || dirname "$(dirname "$path")"
    for home in /usr/local/cuda /usr/local/cuda-*; do printf '%s\n' "$home"; done
}

# "12 9" of libnvrtc-builtins.so.12.9
nvrtc_version() {
    for builtins in "$(dirname "$1")"/libnvrtc-builtins.so.*; do
        printf '%s\n' "${builtins##*libnvrtc-builtins.so.}"
    done | sed -n 's/^\([0-9]*\)\.\([0-9]*\).*/\1 \2/p' | head -n 1
}

compilers() {
    homes | while read -r home; do
        [ -n "$home" ] || continue
        if [ -x "$home/bin/nvcc" ]; then
            printf '%s %s\n' "$("$home/bin/nvcc" --version 2>/dev/null |
                sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')" "$home/bin/nvcc"
            continue
        fi
        for lib in "$home"/lib64/libnvrtc.so.[0-9]* "$home"/lib/libnvrtc.so.[0-9]* \
            "$home"/cuda_nvrtc/lib/libnvrtc.so.[0-9]*; do
            [ ! -e "$lib" ] || printf '%s %s\n' "$(nvrtc_version "$lib")" "$lib"
        done
    done
}

compilers | while read -r major minor compiler; do
    [ -n "$compiler" ] || continue
    printf '%d %s\n' $((major * 1000 + minor * 10)) "$compiler"
done | sort -s -n -r -k1,1 | awk '{ major = int($1 / 1000); if (!(major in seen)) print; seen[major] = 1 }'
