#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The demo: two nodes on this machine, proven and taken away again, by the built program alone.
# usage: demo.sh PROGRAM. Exit 0 only when both nodes were READY and nothing is left.
set -u
cd "$(dirname "$0")/.." || exit

# Whether this machine lets anybody make nodes: the steps of 'gpuprov doctor' that containers forbid, before minutes of
# building.
if [ "$1" = --possible ]; then
  if [ "$(id -u)" -eq 0 ]; then
    why=$(unshare --mount --pid --fork --net sh -ec '
      [ $((0x$(sed -n "s/^CapEff:[[:space:]]*//p" /proc/self/status) >> 12 & 1)) -eq 1 ] || { echo "no CAP_NET_ADMIN"; exit 1; }
      mount -t tmpfs none /tmp; mkdir /tmp/u /tmp/w /tmp/m
      mount -t overlay -o lowerdir=/etc,upperdir=/tmp/u,workdir=/tmp/w none /tmp/m; mount -t proc proc /tmp/m' 2>&1) && exit 0
    case $why in *"root filesystem propagation: Invalid argument"*) exit 0 ;; esac # a chroot: gpuprov can
  else
    why=$(unshare --user true 2>&1) && exit 0
    command -v sudo >/dev/null && exit 0
  fi
  echo "demo: local nodes are not possible here ($(echo "$why" | head -n 1)): run it as root outside a container," \
    "or in one that has CAP_SYS_ADMIN and CAP_NET_ADMIN ('docker run --privileged')" >&2
  exit 1
fi
gpuprov=$(realpath "$1")
spec=examples/local-2.yaml
# Without root the nodes live in a user namespace; where this machine allows none, it takes sudo.
if [ "$(id -u)" -ne 0 ] && "$gpuprov" doctor | grep -A1 '^missing *local nodes' && command -v sudo >/dev/null; then
  echo "demo: nodes on this machine need root here: going on with sudo"
  exec sudo sh tests/demo.sh "$gpuprov"
fi
state=$(mktemp -d)
GPUPROV_STATE_DIR=$state
export GPUPROV_STATE_DIR
name=$(sed -n 's/^name: *\([a-z0-9-]*\).*/\1/p' "$spec")

say() { printf '\n$ gpuprov %s\n' "$*"; }
run() {
  say "$@"
  "$gpuprov" "$@"
}
# Not only by its own word: no process names the state folder, nothing is mounted below it.
left_behind() {
  for p in /proc/[0-9]*; do
    { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -q "__holder.*$state" && return 0
  done
  grep -q " $state" /proc/self/mountinfo && return 0
  "$gpuprov" status --json 2>/dev/null | grep -q '"stacks": *\[\]' || return 0
  [ -n "$(find "$state/local" -mindepth 1 -print -quit 2>/dev/null)" ]
}
# The records of what is left are kept: 'down' needs them.
finish() {
  "$gpuprov" down --quiet "$name" >/dev/null 2>&1
  if left_behind; then
    echo "demo: its records are kept: GPUPROV_STATE_DIR=$state gpuprov down $name" >&2
  else
    rm -rf "$state"
  fi
}
trap 'finish; exit 130' INT TERM HUP

run check "$spec" || { finish; exit 1; }
run up --yes "$spec"
rc=$?
if [ $rc -eq 0 ]; then
  run status "$name"
  run ssh "$name/1" -- uname -sr
  say report "$name"
  "$gpuprov" report "$name" | sed -n '/ together$/,$p'
  ready=$("$gpuprov" status --json "$name" | grep -o '"ready": *true' | wc -l)
  [ "$ready" -eq 2 ] || { echo "demo: $ready of 2 nodes are ready" >&2; rc=1; }
fi
# by the spec only its places are looked at, if 'up' got nowhere
if [ $rc -eq 0 ]; then
  run down "$name" || rc=1
else
  run down "$spec"
fi
if left_behind; then
  echo "demo: something is left:" >&2
  "$gpuprov" status >&2
  find "$state/local" -mindepth 1 >&2 2>/dev/null
  rc=1
else
  echo "what is left: nothing"
fi
finish
[ $rc -eq 0 ] && echo "demo: passed" || echo "demo: failed ($rc)" >&2
exit $rc
