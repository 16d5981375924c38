#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Searches with libFuzzer: every target for some seconds, from its corpus, new inputs beside the build.
# usage: search.sh BUILD SECONDS fuzz_*.c... Inputs that crash are kept in BUILD/crashes.
set -u
build=$1 seconds=$2
shift 2
bad=0
for src in "$@"; do
  target=$(basename "$src" .c)
  name=${target#fuzz_}
  mkdir -p "$build/found/$name" "$build/crashes"
  echo "== $target, $seconds s"
  "$build/tests/fuzz/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -print_final_stats=0 -artifact_prefix="$build/crashes/$name-" \
    "$build/found/$name" "tests/fuzz/corpus/$name" 2>"$build/found/$name.log" || bad=1
  tail -n 2 "$build/found/$name.log"
done
exit $bad
