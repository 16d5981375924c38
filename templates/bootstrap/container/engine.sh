# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086,SC2154
# Installs a container engine and starts it. ENGINE; PACKAGES: those of this distribution, "": it has none; SYSTEM: its
# name. An engine that is there is left as it is.
enabled() {
    case $ENGINE in podman) return 0 ;; esac # has no daemon
    has_systemd || return 0
    systemctl is-enabled -q "$ENGINE.service" 2>/dev/null || systemctl is-enabled -q "$ENGINE.socket" 2>/dev/null
}
probe() {
    if has_engine; then
        may_be_root "$ENGINE cannot be used"
        if engine_works && enabled; then return 0; fi
        return 10
    fi
    [ -n "$PACKAGES" ] ||
        fail "$SYSTEM has no package of $ENGINE: choose another bootstrap.container.engine, or an image that has it"
    may_install $PACKAGES
    return 10
}
apply() {
    has_engine || install_packages $PACKAGES
    case $ENGINE in podman) return 0 ;; esac
    has_systemd || return 0
    say "starts $ENGINE"
    # an earlier failure must not count
    root systemctl reset-failed "$ENGINE.service" 2>/dev/null
    root systemctl enable --now "$ENGINE.service" 2>&1 | sed 's/^::/ ::/'
    wait_engine
}
verify() {
    has_engine || fail "the package manager reported success, but the program '$program' is not there"
    engine_works || fail "$ENGINE is installed, but does not work: $(engine_trouble)"
    enabled || fail "$ENGINE is not started at boot: 'systemctl enable $ENGINE' failed"
}
