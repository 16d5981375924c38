# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Installs the node's own deadline where cloud-init did not: without user-data, or when cloud-init failed. INSTALL: the
# shell line that installs it. ENDS_WITHIN: "" where a poweroff ends the node; else the script end.sh does, and its right
# to do so may take that many seconds to reach every part of the cloud.
runs() { grep -lq 'gpuprov/[d]eadline.sh' /proc/[0-9]*/cmdline 2>/dev/null; }
# In the environment of the unit: a login may have a proxy that the unit does not have.
may_end() {
    [ -z "$ENDS_WITHIN" ] ||
        why=$(root env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin sh /etc/gpuprov/end.sh check 2>&1)
}
probe() {
    if runs && [ -s /etc/gpuprov/deadline.conf ] && may_end; then
        return 0
    fi
    return 10
}
apply() {
    root sh -c "$INSTALL" ||
        fail "the node would not power off at its deadline: its unit gpuprov-deadline could not be installed"
}
# systemd reports a unit as started before its program is executed.
verify() {
    tries=50
    until runs || [ "$tries" -eq 0 ]; do
        sleep 0.2
        tries=$((tries - 1))
    done
    runs ||
        fail "the node would not power off at its deadline: gpuprov-deadline is not running"
    [ -s /etc/gpuprov/deadline.conf ] ||
        fail 'the node would not power off at its deadline: it has no /etc/gpuprov/deadline.conf'
    left=${ENDS_WITHIN:-0}
    until may_end || [ "$left" -le 0 ]; do
        sleep 10
        left=$((left - 10))
    done
    may_end || fail "the node would not end at its deadline: ${why#gpuprov: }"
}
