# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2034,SC2094,SC2154
# Mounts folders of NFS servers (also EFS) and Lustre file systems (also FSx) by fstab.
has_helper() { [ -x "/sbin/mount.$kind" ] || [ -x "/usr/sbin/mount.$kind" ]; }
entry_of() {
    what=$source type=$kind more=_netdev,x-systemd.mount-timeout=${MOUNT_S}s
    case $kind,$options,$source in
    # as the maker of EFS recommends
    nfs,,*.efs.*.amazonaws.com*:*)
        more=$more,nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport
        ;;
    lustre,,*) more=$more,noatime,flock ;;
    esac
    has_helper
}
# Lustre shows its servers by address
is_source() {
    case $kind in
    lustre) [ "${have_source##*:/}" = "${source##*:/}" ] ;;
    *) [ "${have_source%/}" = "${source%/}" ] ;;
    esac
}
prepare() {
    has_helper && return
    case $kind in
    nfs)
        package=nfs-utils
        ! is_apt || package=nfs-common
        may_install $package
        install_packages $package
        ;;
    lustre)
        package=lustre-client
        ! is_apt || package=lustre-client-modules-$(uname -r)
        may_install "$package"
        (install_packages "$package") ||
            fail "this node's repositories have no Lustre client for its kernel ($package): add the repository of its \
maker, or use an image with the client"
        ;;
    esac
    has_helper || fail "$package is installed, but mount.$kind is not there"
}
explain() {
    grep -qw "$kind" /proc/filesystems || root modprobe -q "$kind" 2>/dev/null ||
        said="this node's kernel ($(uname -r)) has no $kind client, built in or as a module: use another kernel"
}
