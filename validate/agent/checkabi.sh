#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checkabi.sh LIMIT PROGRAM: fails when the program needs a glibc newer than LIMIT (2.28), or any library
# that is not part of glibc.
set -eu
limit=$1 program=$2
objdump -p "$program" | grep -q 'NEEDED.*libc\.so\.6' || {
    printf '%s: not a dynamic program, or objdump cannot read it\n' "$program" >&2
    exit 1
}
bad=$(objdump -p "$program" | awk -v limit="$limit" '
    $1 == "NEEDED" && $2 !~ /^(libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0|ld-linux.*)$/ {
        print "needs the library " $2 }
    match($0, /GLIBC_[A-Z0-9_.]+/) {
        version = substr($0, RSTART + 6, RLENGTH - 6)
        if (version !~ /^[0-9.]+$/) { print "needs " $NF; next }
        split(version, v, "."); split(limit, l, ".")
        if (v[1] * 1000 + v[2] > l[1] * 1000 + l[2]) print "needs glibc " version }')
if [ -n "$bad" ]; then
    printf '%s: newer than glibc %s:\n%s\n' "$program" "$limit" "$bad" >&2
    objdump -T "$program" | grep GLIBC_ >&2
    exit 1
fi
printf '%s: runs on glibc %s and later, needs only %s\n' "$program" "$limit" \
    "$(objdump -p "$program" | awk '$1 == "NEEDED" { printf "%s ", $2 }')"
