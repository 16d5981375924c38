# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# The node's own end is in place and counting.
probe() {
    grep -lq 'gpuprov/[d]eadline.sh' /proc/[0-9]*/cmdline 2>/dev/null ||
        fail "the node would not end by itself: gpuprov-deadline is not running; /var/log/cloud-init-output.log may say why"
    [ -s /etc/gpuprov/deadline.conf ] || fail 'the node would not end by itself: it has no /etc/gpuprov/deadline.conf'
}
