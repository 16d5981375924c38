#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fatbins.sh FOLDER SOURCE.cu NVRTC: compiles the kernels with every toolkit of toolkits.sh and writes
# FOLDER/fatbins.S and FOLDER/fatbins.c (the table cuda_fatbins, newest first). Each architecture is
# compiled by the oldest toolkit that supports it, because newer drivers run older code and not the other way
# round; code for 8.0 also runs on 8.6, for 10.0 on 10.3, for 12.0 on 12.1. Last comes PTX of the newest
# toolkit, which future GPUs can translate. NVRTC: the tool made of nvrtc.c.
# -fmad=false: products and sums are rounded one by one, as on the host. CUDA_ARCHS="90" (the environment)
# builds for these architectures only, which is quicker; the agent then has no code for other GPUs.
set -eu
out=$1
source=$2
nvrtc=$3
here=$(dirname "$0")
mkdir -p "$out"
wanted=${CUDA_ARCHS:-70 75 80 89 90 100 120}

{
    printf '/* made by fatbins.sh */\n.section .rodata\n'
} >"$out/fatbins.S.new"
{
    printf '/* made by fatbins.sh */\n#include "base/gp_base.h"\n\n#include "validate/agent/cuda/cuda.h"\n\n'
} >"$out/fatbins.c.new"
table=''

known_of() {
    case $1 in
        *.so.*) "$nvrtc" "$1" archs ;;
        *) "$1" --list-gpu-code | tr '\n' ' ' | sed 's/sm_//g' ;;
    esac
}

# add VERSION FILE: one image of the table
add() {
    name=gp_$(basename "$2" | tr -c 'a-zA-Z0-9\n' '_')
    printf '.balign 16\n.globl %s\n.type %s, %%object\n%s: .incbin "%s"\n.size %s, . - %s\n' \
        "$name" "$name" "$name" "$2" "$name" "$name" >>"$out/fatbins.S.new"
    printf 'extern const unsigned char %s[];\n' "$name" >>"$out/fatbins.c.new"
    table="$table    {$1, $name},\n"
}

# The architectures that no older toolkit supports: "ARCH..." for the toolkit VERSION.
own_archs() {
    known=" $(known_of "$2") "
    for arch in $wanted; do
        case $known in *" $arch "*) ;; *) continue ;; esac
        older=no
        while read -r version compiler; do
            [ "$version" -lt "$1" ] || continue
            case " $(known_of "$compiler") " in *" $arch "*) older=yes ;; esac
        done <"$out/toolkits"
        [ "$older" = yes ] || printf '%s ' "$arch"
    done
}

sh "$here/toolkits.sh" >"$out/toolkits"
[ -s "$out/toolkits" ] || { echo "fatbins.sh: found no CUDA toolkit; set CUDA_HOMES" >&2; exit 1; }
rm -f "$out"/kernels-*
while read -r version compiler; do
    archs=$(own_archs "$version" "$compiler")
    flags=''
    for arch in $archs; do
        case $compiler in
            *.so.*)
                "$nvrtc" "$compiler" "sm_$arch" "$source" "$out/kernels-$version-$arch.cubin"
                add "$version" "$out/kernels-$version-$arch.cubin"
                ;;
            *) flags="$flags -gencode arch=compute_$arch,code=sm_$arch" ;;
        esac
    done
    [ -n "$flags" ] || continue
    # shellcheck disable=SC2086
    "$compiler" -fatbin -fmad=false -O3 -t 2 -allow-unsupported-compiler $flags \
        -o "$out/kernels-$version.fatbin" "$source"
    add "$version" "$out/kernels-$version.fatbin"
done <"$out/toolkits"

while read -r version compiler; do
    ptx=''
    for arch in $wanted; do
        case " $(known_of "$compiler") " in *" $arch "*) ptx=$arch ;; esac
    done
    [ -n "$ptx" ] || { printf 'fatbins.sh: %s knows no GPU of: %s\n' "$compiler" "$wanted" >&2; exit 1; }
    case $compiler in
        *.so.*) "$nvrtc" "$compiler" "compute_$ptx" "$source" "$out/kernels-$version.ptx" ;;
        *) "$compiler" -fatbin -fmad=false -O3 -allow-unsupported-compiler \
            -gencode "arch=compute_$ptx,code=compute_$ptx" -o "$out/kernels-$version.ptx" "$source" ;;
    esac
    add "$version" "$out/kernels-$version.ptx"
    break
done <"$out/toolkits"

printf '.section .note.GNU-stack,"",%%progbits\n' >>"$out/fatbins.S.new"
# shellcheck disable=SC2059
printf "\nconst struct cuda_fatbin cuda_fatbins[] = {\n$table    {0, NULL},\n};\n" >>"$out/fatbins.c.new"
mv "$out/fatbins.S.new" "$out/fatbins.S"
mv "$out/fatbins.c.new" "$out/fatbins.c"
