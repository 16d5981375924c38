# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# The node's own end is in place and counting. INSTALL: the line that puts it there. cloud-init did that where there
# is user-data; where there is none, or cloud-init did not come so far, it is done here.
probe() {
    if grep -lq 'gpuprov/[d]eadline.sh' /proc/[0-9]*/cmdline 2>/dev/null && [ -s /etc/gpuprov/deadline.conf ]; then
        return 0
    fi
    return 10
}
apply() {
    root sh -c "$INSTALL" || fail "the node would not end by itself: its unit gpuprov-deadline could not be installed"
}
verify() {
    grep -lq 'gpuprov/[d]eadline.sh' /proc/[0-9]*/cmdline 2>/dev/null ||
        fail "the node would not end by itself: gpuprov-deadline is not running"
    [ -s /etc/gpuprov/deadline.conf ] || fail 'the node would not end by itself: it has no /etc/gpuprov/deadline.conf'
}
