# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Installs packages. PACKAGES: names or name=version, separated by blanks.
# shellcheck disable=SC2086
probe() {
    set -f
    [ -n "$(missing $PACKAGES)" ] || return 0
    may_install $PACKAGES
    return 10
}
apply() {
    set -f
    install_packages $PACKAGES
}
verify() {
    set -f
    left=$(missing $PACKAGES)
    [ -z "$left" ] || fail "the package manager reported success, but$left is not installed"
}
