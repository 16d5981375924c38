#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# oldglibc.sh CC LIMIT OUT OBJECT...: links a dynamic program whose symbols all exist in glibc LIMIT
# (2.28), on a machine whose glibc is newer. It links once, finds the symbols that need a newer version,
# binds each to the newest version within the limit that the same libc still has, and links again.
# libdl and libpthread are named, because in an old glibc those symbols live there.
set -eu
cc=$1 limit=$2 out=$3
shift 3
dir=$out.link
rm -rf "$dir"
mkdir -p "$dir"
flags='-no-pie -Wl,--gc-sections -Wl,-z,relro,-z,now,-z,noexecstack -s'

# Names of undefined symbols whose version is newer than the limit.
too_new() {
    objdump -T "$1" | awk -v limit="$limit" '
        $0 ~ /\*UND\*/ && match($0, /GLIBC_[0-9.]+/) {
            split(substr($0, RSTART + 6, RLENGTH - 6), v, "."); split(limit, l, ".")
            if (v[1] + 0 > l[1] + 0 || (v[1] + 0 == l[1] + 0 && v[2] + 0 > l[2] + 0)) print $NF
        }'
}

# NAME: the newest version within the limit that libc or libm has for it.
old_version() {
    for lib in libc.so.6 libm.so.6; do
        objdump -T "$("$cc" -print-file-name="$lib")"
    done | awk -v name="$1" -v limit="$limit" '
        $NF == name && $0 !~ /\*UND\*/ && match($0, /GLIBC_[0-9.]+/) {
            version = substr($0, RSTART, RLENGTH); split(substr(version, 7), v, "."); split(limit, l, ".")
            if (v[1] * 1000 + v[2] <= l[1] * 1000 + l[2] && v[1] * 1000000 + v[2] * 1000 + v[3] >= best) {
                best = v[1] * 1000000 + v[2] * 1000 + v[3]; found = version
            }
        }
        END { print found }'
}

# shellcheck disable=SC2086
"$cc" $flags "$@" -o "$dir/first" -ldl -lpthread -lm
: >"$dir/renames"
missing=
for name in $(too_new "$dir/first"); do
    case $name in
        __isoc23_*) printf '%s %s\n' "$name" "${name#__isoc23_}" >>"$dir/renames"; continue ;;
    esac
    version=$(old_version "$name")
    if [ -z "$version" ]; then
        printf 'oldglibc.sh: %s is not in glibc %s: add it to validate/agent/cuda/compat_cuda.c\n' "$name" \
            "$limit" >&2
        missing=yes
        continue
    fi
    printf '%s %s@%s\n' "$name" "$name" "$version" >>"$dir/renames"
done
[ -z "$missing" ] || exit 1

n=0 objects=''
for o in "$("$cc" -print-file-name=crt1.o)" "$@"; do
    n=$((n + 1))
    objcopy --redefine-syms="$dir/renames" "$o" "$dir/$n.o"
    objects="$objects $dir/$n.o"
done
crt() { "$cc" -print-file-name="$1"; }
# shellcheck disable=SC2086
"$cc" $flags -nostartfiles "$(crt crti.o)" "$(crt crtbegin.o)" $objects \
    -Wl,--no-as-needed -l:libdl.so.2 -l:libpthread.so.0 -Wl,--as-needed -lm \
    "$(crt crtend.o)" "$(crt crtn.o)" -o "$dir/second"
left=$(too_new "$dir/second")
[ -z "$left" ] || { printf 'oldglibc.sh: still newer than glibc %s: %s\n' "$limit" "$left" >&2; exit 1; }
mv "$dir/second" "$out"
rm -rf "$dir"
