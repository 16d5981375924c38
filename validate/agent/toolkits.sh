#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints "VERSION NVCC" (13000 /usr/local/cuda/bin/nvcc), newest first, one per major version, for every
# CUDA toolkit of CUDA_HOMES (spaces or colons between), else CUDA_HOME, PATH and /usr/local/cuda*.
# Prints nothing, and succeeds, when there is none.
set -eu

candidates() {
    if [ -n "${CUDA_HOMES:-}" ]; then
        for home in $(printf '%s' "$CUDA_HOMES" | tr ':' ' '); do printf '%s\n' "$home/bin/nvcc"; done
        return
    fi
    [ -z "${CUDA_HOME:-}" ] || printf '%s\n' "$CUDA_HOME/bin/nvcc"
    command -v nvcc || :
    for home in /usr/local/cuda /usr/local/cuda-*; do printf '%s\n' "$home/bin/nvcc"; done
}

candidates | while read -r nvcc; do
    [ -x "$nvcc" ] || continue
    version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
    [ -n "$version" ] || continue
    # shellcheck disable=SC2086
    set -- $version
    printf '%d %s\n' $(($1 * 1000 + $2 * 10)) "$nvcc"
done | sort -s -n -r -k1,1 | awk '{ major = int($1 / 1000); if (!(major in seen)) print; seen[major] = 1 }'
