# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# The agents are there. ARCH: what they are made for; AGENTS: name:sha256 apart by blanks.
probe() {
    [ "$(uname -m)" = "$ARCH" ] ||
        fail "this machine is $(uname -m), and this gpuprov carries agents for $ARCH only"
    for a in $AGENTS; do
        name=${a%%:*}
        if [ "$name" = gpuprov-agent-cuda ] && [ ! -e /dev/nvidiactl ]; then continue; fi
        [ "$(sha256sum "$HOME/.gpuprov/agent/$name" 2>/dev/null | cut -c1-64)" = "${a#*:}" ] || return 10
        [ -x "$HOME/.gpuprov/agent/$name" ] || return 10
    done
}
