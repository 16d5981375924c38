# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086,SC2154
# Installs the headers of the running kernel, for which the driver's module is built. Where the repository no longer has
# them, the node moves to the repository's newest kernel and is rebooted.
have_headers() { [ -e "/lib/modules/$1/build/Makefile" ]; }
probe() {
    driver_fits && return 0
    # a module that came ready-made needs no headers
    ours=$(built_for "$(uname -r)") && version_fits "$ours" && return 0
    have_headers "$(uname -r)" && return 0
    may_install "kernel-headers-of-$(uname -r)"
    return 10
}
# Does the package manager know this package, with a version that it can fetch?
known() {
    if is_apt; then
        apt-cache policy "$1" 2>/dev/null | grep -q '^  Candidate: [0-9]'
    else
        root "$dnf" -q list "$1" >/dev/null 2>&1
    fi
}
# The package of kernel 5.14.0-570.12.1.el9_6.x86_64 in an rpm system: Oracle's own kernel and the newer ones of Amazon
# Linux 2023 have names of their own.
rpm_kernel() {
    case $1 in
    *uek*) echo kernel-uek ;;
    6.1.*) echo kernel ;;
    *.amzn2023.*) echo "kernel$(printf '%s\n' "$1" | cut -d. -f1-2)" ;;
    *) echo kernel ;;
    esac
}
# "6.8.0-1021-aws": aws; "6.1.0-56-cloud-amd64": cloud-amd64; "6.12.57+deb13-amd64": amd64.
kind_of() { printf '%s\n' "$1" | sed 's/^[0-9][^-]*-//; s/^[0-9][0-9]*-//'; }
move_kernel() {
    if is_apt; then
        kind=$(kind_of "$kernel")
        set -- "linux-image-$kind" "linux-headers-$kind"
    else
        kind=$(rpm_kernel "$kernel")
        set -- "$kind" "$kind-devel"
    fi
    for p in "$@"; do
        known "$p" || fail "the repositories have neither the headers of kernel $kernel nor $p: choose a newer image"
    done
    newest=$(cat "$PWD/moved" 2>/dev/null)
    [ "$newest" != "$kernel" ] && [ -z "$newest" ] ||
        fail "the node was moved from kernel $newest and runs $kernel, which has no headers: check its boot loader"
    say "moves the node from kernel $kernel to the newest of its distribution"
    install_packages "$@"
    printf '%s\n' "$kernel" >"$PWD/moved"
    restart_node "kernel $kernel has no headers any more"
}
apply() {
    set -f
    packages_begin
    kernel=$(uname -r)
    if have_headers "$kernel"; then return 0; fi
    # dnf does not see packages that a hold excludes
    release_holds
    name=$(rpm_kernel "$kernel")-devel-$kernel
    if is_apt; then
        name=linux-headers-$kernel
        apt_repair
        known "$name" || apt_update
    elif ! known "$name"; then
        dnf_refresh
    fi
    known "$name" || move_kernel
    install_packages "$name"
}
verify() {
    rm -f "$PWD/moved" # another kernel may lose its headers one day
    have_headers "$(uname -r)" ||
        fail "the headers of the running kernel $(uname -r) are not at /lib/modules/$(uname -r)/build"
}
