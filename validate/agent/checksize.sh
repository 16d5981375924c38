#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# checksize.sh LIMIT FILE [LIMIT FILE...]: prints the size of each file in bytes, fails when one is over its
# limit or missing.
set -eu
status=0
while [ $# -ge 2 ]; do
    bytes=$(wc -c <"$2") || exit 1
    if [ "$bytes" -gt "$1" ]; then
        printf '%s: %d bytes, more than the %d allowed\n' "$2" "$bytes" "$1" >&2
        status=1
    else
        printf '%s: %d bytes of at most %d\n' "$2" "$bytes" "$1"
    fi
    shift 2
done
exit $status
