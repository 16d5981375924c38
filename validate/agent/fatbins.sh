#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fatbins.sh FOLDER SOURCE.cu: compiles the kernels with every toolkit of toolkits.sh and writes
# FOLDER/fatbins.S and FOLDER/fatbins.c (the table cuda_fatbins, newest first).
# -fmad=false: products and sums are rounded one by one, as on the host. CUDA_ARCHS="90" (the environment)
# builds for these architectures only, which is quicker; other GPUs are then told that there is no code.
set -eu
out=$1
source=$2
here=$(dirname "$0")
mkdir -p "$out"
wanted=${CUDA_ARCHS:-70 75 80 86 89 90 100 103 120 121}

{
    printf '/* made by fatbins.sh */\n.section .rodata\n'
} >"$out/fatbins.S.new"
{
    printf '/* made by fatbins.sh */\n#include "base/gp_base.h"\n\n#include "validate/agent/cuda.h"\n\n'
} >"$out/fatbins.c.new"
table=''
sh "$here/toolkits.sh" >"$out/toolkits"
while read -r version nvcc; do
    known=$("$nvcc" --list-gpu-code | tr '\n' ' ')
    flags='' ptx=''
    for arch in $wanted; do
        case " $known " in *" sm_$arch "*) ;; *) continue ;; esac
        flags="$flags -gencode arch=compute_$arch,code=sm_$arch"
        # PTX of the first of the newest family: what later GPUs can still translate.
        [ "$arch" = 121 ] || ptx=$arch
    done
    [ -n "$ptx" ] || { printf 'fatbins.sh: %s knows no GPU of: %s\n' "$nvcc" "$wanted" >&2; exit 1; }
    # shellcheck disable=SC2086
    "$nvcc" -fatbin -fmad=false -O3 -allow-unsupported-compiler $flags \
        -gencode "arch=compute_$ptx,code=compute_$ptx" -o "$out/kernels-$version.fatbin" "$source"
    printf '.balign 16\n.globl gp_fatbin_%s\n.type gp_fatbin_%s, %%object\n' "$version" "$version" \
        >>"$out/fatbins.S.new"
    printf 'gp_fatbin_%s: .incbin "%s"\n.size gp_fatbin_%s, . - gp_fatbin_%s\n' "$version" \
        "$out/kernels-$version.fatbin" "$version" "$version" >>"$out/fatbins.S.new"
    printf 'extern const unsigned char gp_fatbin_%s[];\n' "$version" >>"$out/fatbins.c.new"
    table="$table    {$version, gp_fatbin_$version},\n"
done <"$out/toolkits"
printf '.section .note.GNU-stack,"",%%progbits\n' >>"$out/fatbins.S.new"
# shellcheck disable=SC2059
printf "\nconst struct cuda_fatbin cuda_fatbins[] = {\n$table    {0, NULL},\n};\n" >>"$out/fatbins.c.new"
mv "$out/fatbins.S.new" "$out/fatbins.S"
mv "$out/fatbins.c.new" "$out/fatbins.c"
