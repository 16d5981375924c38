#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs test programs one after the other and keeps going; what a program prints is shown when it
# fails, else its closing line. usage: run.sh NAME PROGRAM... Fails when one fails or none ran.
set -u
name=$1
shift
out=$(mktemp)
trap 'rm -f "$out"' EXIT
ran=0 failed="" empty=""
for program in "$@"; do
  ran=$((ran + 1))
  case $name in fuzz) set -- "tests/fuzz/corpus/$(basename "$program" | sed 's/^fuzz_//')" ;; *) set -- ;; esac
  "$program" "$@" >"$out" 2>&1
  rc=$?
  # A program in which every test was skipped proves nothing: it is named, not counted.
  if [ $rc -eq 0 ] && grep -q 'PASSED *\] 0 test' "$out"; then
    ran=$((ran - 1))
    empty="$empty $(basename "$program")"
    printf '%-32s nothing ran: %s\n' "$(basename "$program")" "$(grep -v '^ *$' "$out" | tail -n 1)"
  elif [ $rc -eq 0 ]; then
    printf '%-32s %s\n' "$(basename "$program")" "$(grep -v '^ *$' "$out" | tail -n 1)"
  else
    failed="$failed $(basename "$program")"
    printf '%s: exit %s\n' "$program" "$rc"
    cat "$out"
  fi
done
if [ -n "$failed" ]; then
  echo "$name: failed:$failed"
  exit 1
fi
if [ $ran -eq 0 ]; then
  echo "$name: nothing ran"
  exit 1
fi
echo "$name: $ran programs passed${empty:+; nothing ran in:$empty}"
