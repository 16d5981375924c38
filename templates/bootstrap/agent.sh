# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Checks that the agents are on the node. ARCH: their architecture; AGENTS: name:sha256, separated by blanks.
probe() {
    [ "$(uname -m)" = "$ARCH" ] ||
        fail "this node is $(uname -m), and this gpuprov contains agents for $ARCH only"
    for a in $AGENTS; do
        name=${a%%:*}
        if [ "$name" = gpuprov-agent-cuda ] && [ ! -e /dev/nvidiactl ]; then continue; fi
        [ "$(sha256sum "$HOME/.gpuprov/agent/$name" 2>/dev/null | cut -c1-64)" = "${a#*:}" ] || return 10
        [ -x "$HOME/.gpuprov/agent/$name" ] || return 10
    done
}
