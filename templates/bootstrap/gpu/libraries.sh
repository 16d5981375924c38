# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# Installs libraries above the driver. PACKAGES: names or name=version; LOOK: a folder, or the name of a library that
# programs must find.
there() {
    set -f
    [ -z "$(missing $PACKAGES)" ] || return 1
    case $LOOK in
    /*) [ -d "$LOOK" ] ;;
    *) ldconfig -p 2>/dev/null | grep -q "^[[:space:]]*$LOOK " ;;
    esac
}
probe() {
    there && return 0
    may_install $PACKAGES
    return 10
}
apply() {
    set -f
    packages_begin
    release_holds
    install_packages $PACKAGES
    mark_ours
    root ldconfig
}
verify() { there || fail "the packages $PACKAGES are installed, but $LOOK is not found"; }
