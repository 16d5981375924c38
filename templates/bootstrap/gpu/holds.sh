# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# Holds the driver, its libraries and the kernel at their versions: an unattended upgrade of one of them ends in a driver
# that does not load. Only where gpuprov has installed some of them.
unheld() {
    set -f
    if is_apt; then
        names=$(held_names)
        [ -z "$names" ] || printf '%s\n' "$names" | grep -v -x -F "$(apt-mark showhold; echo /)"
    else
        rpm -qa --qf '%{NAME}-%{VERSION}-%{RELEASE}\n' '*nvidia*' 'cuda-*' 'libcudnn*' 'libnccl*' 'kernel*' |
            while read -r p; do dnf -q versionlock list 2>/dev/null | grep -q -F "$p" || printf '%s\n' "$p"; done
    fi
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
        command -v dnf-3 >/dev/null 2>&1 && rpm -q python3-dnf-plugin-versionlock >/dev/null 2>&1 ||
            install_packages 'dnf-command(versionlock)'
        run_dnf versionlock add $names || dnf_said
    fi
}
verify() {
    left=$(unheld | head -n 1)
    [ -z "$left" ] || fail "package $left is not held at its version"
}
