# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# Looks at Secure Boot before anything is installed: it refuses modules that are built on the node, unless dkms signs
# them with a key that is enrolled.
sb_enabled() {
    if command -v mokutil >/dev/null 2>&1; then
        state=$(mokutil --sb-state 2>/dev/null)
        case $state in *'SecureBoot enabled'*) return 0 ;; *'SecureBoot disabled'*) return 1 ;; esac
    fi
    # the value follows 4 bytes of attributes
    for var in /sys/firmware/efi/efivars/SecureBoot-*; do
        [ -r "$var" ] && [ "$(od -An -tu1 -j4 -N1 "$var" 2>/dev/null | tr -d ' ')" = 1 ] && return 0
    done
    return 1
}
# dkms signs with this key; the firmware or the shim must know it.
enrolled() {
    for key in /var/lib/shim-signed/mok/MOK.der /var/lib/dkms/mok.pub; do
        [ -e "$key" ] && mokutil --test-key "$key" 2>/dev/null | grep -q 'already enrolled' && return 0
    done
    return 1
}
probe() {
    driver_fits && return 0
    sb_enabled || return 0
    enrolled && return 0
    # the distribution signs its own ready-made modules
    signer=$(modinfo -k "$(uname -r)" -F signer nvidia 2>/dev/null)
    [ -z "$signer" ] || return 0
    fail 'Secure Boot is enabled, and no key for own kernel modules is enrolled: the driver could be built but not loaded;' \
        'switch Secure Boot off for this node, or choose an image with a signed driver'
}
