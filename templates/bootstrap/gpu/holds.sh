# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# Holds the driver, its libraries and the kernel at their versions: an unattended upgrade of one of them ends in a driver
# that does not load. Only where gpuprov has installed some of them.
unheld() {
    set -f
    names=$(held_names)
    [ -n "$names" ] || return 0
    if is_apt; then
        held=$(apt-mark showhold)
    else
        # a list without the plugin holds nothing
        held=$(installed 'dnf-command(versionlock)' && locked)
    fi
    printf '%s\n' "$names" | grep -v -x -F "$(printf '%s\n/' "$held")"
}
probe() {
    set -f
    if driver_fits && [ -z "$(missing $LIBRARIES)" ]; then
        [ -e "$MARK" ] || return 0
        [ -n "$(unheld)" ] || return 0
    fi
    may_install apt-mark
    return 10
}
apply() {
    set -f
    packages_begin
    names=$(unheld | tr '\n' ' ')
    [ -n "$names" ] || return 0
    say "holds $names"
    if is_apt; then
        patiently root apt-mark hold $names || said apt-mark '^E: '
    else
        installed 'dnf-command(versionlock)' || install_packages 'dnf-command(versionlock)'
        versionlock add $names >versionlock.log 2>&1 ||
            fail "dnf versionlock reported: $(grep . versionlock.log | tail -n 1)"
    fi
}
verify() {
    left=$(unheld | head -n 1)
    [ -z "$left" ] || fail "package $left is not held at its version"
}
