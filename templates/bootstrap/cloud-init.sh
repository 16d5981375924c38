# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Waits until cloud-init has finished: BUDGET seconds, and at most LONGEST.
probe() {
    if [ -e /run/cloud-init/result.json ]; then
        verify
        return
    fi
    command -v cloud-init >/dev/null 2>&1 || fail 'this image has no cloud-init'
    if [ -e /run/cloud-init/disabled ]; then fail 'cloud-init is disabled on this image'; fi
    return 10
}
apply() {
    waited=0
    [ "$BUDGET" -le "$LONGEST" ] || BUDGET=$LONGEST
    until [ -e /run/cloud-init/result.json ]; do
        if [ "$waited" -ge "$BUDGET" ]; then
            fail "cloud-init did not finish in $BUDGET s; its status: $(cloud-init status --long 2>&1 |
                tr -s '\n ' ' ' | cut -c1-200)"
        fi
        [ $((waited % 5)) -ne 0 ] || say "waits for cloud-init ($waited s)"
        sleep 1
        waited=$((waited + 1))
    done
    echo '::unchanged'
}
# The later steps verify everything that gpuprov needs of cloud-init. Its other errors are only warnings.
verify() {
    errors=$(tr -d '\n' </run/cloud-init/result.json | sed -n 's/.*"errors": *\[\([^]]*\).*/\1/p' |
        tr -s ' ' | cut -c1-300)
    [ -z "${errors# }" ] || warn "cloud-init ended with errors: ${errors# }"
    return 0
}
