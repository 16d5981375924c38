# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Sent in front of every fragment. Lines that begin with '::' are for gpuprov.
# Many nodes may share a home folder (NFS): running and finished steps are recorded per node.
# shellcheck disable=SC2034 # the fragments use it
{ read -r node_name </proc/sys/kernel/hostname; } 2>/dev/null || node_name=$(uname -n)
machine_id='' # status 1 where the file has no newline
{ read -r machine_id </etc/machine-id; } 2>/dev/null || :
NODE_DIR=$HOME/.gpuprov/nodes/$node_name-$machine_id
# The steps read messages of programs, such as "Candidate:" of apt-cache, which are translated. Commands of the user get
# the node's own language (with_secrets).
: "${GPUPROV_LANGUAGE=${LC_ALL-}}"
LC_ALL=C
export LC_ALL GPUPROV_LANGUAGE
say() { printf '::progress %s\n' "$*"; }
warn() { printf '::warn %s\n' "$*"; }
fail() {
    printf '::error %s\n' "$*"
    exit 1
}
# Ends apply(): gpuprov reboots the node, and apply() runs again from its beginning. Call it outside of subshells, and
# only when the reason is gone after a reboot.
restart_node() {
    printf '\n::reboot %s\n' "$*"
    exit 75
}
# The login user's umask may be 077: what root writes for everybody must not depend on it.
root() (
    umask 022
    if [ "$(id -u)" = 0 ]; then exec "$@"; else exec sudo -n "$@"; fi
)
# A process that has ended and was not collected is a zombie. The command line is not asked: it is empty for a moment
# while a process starts another program.
runs() { grep -q '^State:.[^XZx]' "/proc/$1/status"; } 2>/dev/null
# Kills a process and its whole group, also processes that sudo started in it. Status 1: it still runs.
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
# Runs a command of the user with the secrets under their own names. Everywhere else the environment has them as
# GPUPROV_SECRET_NAME, so that a secret called RUN or PWD changes no variable of a step. GPUPROV_SECRETS: the names.
with_secrets() (
    if [ -n "$GPUPROV_LANGUAGE" ]; then LC_ALL=$GPUPROV_LANGUAGE; else unset LC_ALL; fi
    for GPUPROV_NAME in $GPUPROV_SECRETS; do
        eval "export $GPUPROV_NAME=\"\$GPUPROV_SECRET_$GPUPROV_NAME\"; unset GPUPROV_SECRET_$GPUPROV_NAME"
    done
    unset GPUPROV_NAME GPUPROV_SECRETS GPUPROV_LANGUAGE
    "$@"
)
# Runs a user's own check: without output and stdin, with a time limit.
holds() { with_secrets timeout -k 5 "${CHECK_S:-60}" sh -c "$1" </dev/null >/dev/null 2>&1; }
# Prints the mount points of the given folders whose disk is full.
full_disks() {
    df -Pk "$@" 2>/dev/null | awk 'NR > 1 && $4 < 1024 && !seen[$6]++ { print $6 }'
}
