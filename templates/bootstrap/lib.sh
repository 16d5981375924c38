# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Sent in front of every fragment. Lines that begin with '::' are for gpuprov.
# A home may be shared by many nodes (NFS): what runs and what was done is kept for each of them.
# shellcheck disable=SC2034 # the fragments use it
NODE_DIR=$HOME/.gpuprov/nodes/$(uname -n)-$(cat /etc/machine-id 2>/dev/null)
say() { printf '::progress %s\n' "$*"; }
warn() { printf '::warn %s\n' "$*"; }
fail() {
    printf '::error %s\n' "$*"
    exit 1
}
root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi; }
# A process that has ended and was not collected has no command line.
runs() { [ -n "$(tr -d '\0' 2>/dev/null <"/proc/$1/cmdline")" ]; } 2>/dev/null
# Ends a process and its whole group, also what sudo started in it. Status 1: it is still there.
end_group() {
    for signal in TERM KILL; do
        kill -s $signal -- "-$1" 2>/dev/null
        # shellcheck disable=SC2016
        root sh -c 'kill -s "$1" -- "-$2"' sh $signal "$1" 2>/dev/null
        n=0
        while runs "$1" && [ $n -lt 20 ]; do
            sleep 0.1
            n=$((n + 1))
        done
    done
    ! runs "$1"
}
# A check of a person's own: quiet, without stdin, bounded.
holds() { timeout -k 5 "${CHECK_S:-60}" sh -c "$1" </dev/null >/dev/null 2>&1; }
# Says which of the folders given lie on a full disk.
full_disks() {
    df -Pk "$@" 2>/dev/null | awk 'NR > 1 && $4 < 1024 && !seen[$6]++ { print $6 }'
}
