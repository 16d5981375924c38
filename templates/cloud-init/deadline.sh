#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deadline.sh CONFIG: ends this node at its deadline, without gpuprov: it powers off, or runs the script END until the
# cloud has deleted it.
# CONFIG sets EXPIRES (wall clock, seconds since the epoch), TTL and GRACE (seconds of use), and may
# set TICK, END, RETRY, FORCE_AFTER, SYSRQ_AFTER, STATE. Used time is monotonic and is kept in a file that
# survives reboots. The wall clock counts only while it is synchronized. MACHINE: the machine that CONFIG is for.
set -u
TICK=30 FORCE_AFTER=90 SYSRQ_AFTER=60 HOLD=300 RETRY=30 END="" STATE=/var/lib/gpuprov/deadline-used MACHINE=
# shellcheck disable=SC1090
. "$1"

# An image of another node contains that node's CONFIG. cloud-init replaces it soon; if it does not, this
# CONFIG stays in force, except that it never deletes another machine.
if [ "$MACHINE" != "$(cat /sys/class/dmi/id/product_uuid 2>/dev/null)" ]; then
    sleep "$HOLD"
    if [ -n "$END" ]; then
        echo "gpuprov: the deadline here is another machine's: nothing is deleted"
        exit 0 # the unit starts it again
    fi
fi

# Overwrites in place with a fixed width: that needs no new block, so a full disk does not stop the count.
remember() { printf '%012d\n' "$used" 1<>"$STATE"; } 2>/dev/null

clock_is_right() {
    [ -e /run/systemd/timesync/synchronized ] && return 0
    LC_ALL=C timedatectl 2>/dev/null | grep -Eq '(System clock|NTP) synchronized: yes' && return 0
    LC_ALL=C chronyc -n tracking 2>/dev/null | grep -Eq '^Leap status *: Normal'
}

uptime_s() { read -r up _ </proc/uptime; up=${up%%.*}; }

end_node() {
    if [ -n "$END" ]; then # a poweroff would stop this node, but not its bill
        echo "gpuprov: this node deletes itself now: $1"
        while :; do
            sh "$END" delete
            sleep "$RETRY"
        done
    fi
    echo "gpuprov: this node powers off now: $1"
    poweroff &
    sleep "$FORCE_AFTER"
    poweroff -f &
    sleep "$SYSRQ_AFTER"
    echo o >/proc/sysrq-trigger
    sleep 30
    echo b >/proc/sysrq-trigger
}

used=0
if [ -r "$STATE" ]; then
    read -r text <"$STATE"
    case ${text:-x} in
    *[!0-9]*) ;;
    *) used=$(echo "$text" | sed 's/^0*\(.\)/\1/') ;;
    esac
fi
# A start counts as one tick, so that a node that keeps rebooting powers off too.
uptime_s
if [ "$up" -lt "$TICK" ]; then used=$((used + up)); else used=$((used + TICK)); fi
last=$up
remember

while :; do
    if [ "$used" -ge $((TTL + GRACE)) ]; then
        end_node "it was used for $used s, its ttl is $TTL s"
    fi
    if [ "$(date +%s)" -ge "$EXPIRES" ] && clock_is_right; then
        end_node "its deadline has passed"
    fi
    sleep "$TICK"
    uptime_s
    used=$((used + up - last))
    last=$up
    remember
done
