# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# root.sh: sourced by the scripts that make a folder below dir once, most of them a root for test hosts from the
# distribution's packages.
# shellcheck disable=SC2154 # dir is theirs

# shellcheck source=tests/hosts/online.sh
. "$(dirname "$0")/../hosts/online.sh"

# begin NAME FILES...: ends the script if dir/NAME was made of these files. Else the caller makes `new` and then calls
# `finish`. root is where packages are installed, log their output.
begin() {
    folder=$1
    shift
    stamp=$(cat "$@" | sha256sum | cut -c1-16)
    exec 9>"$dir/$folder.lock"
    flock 9
    if [ "$(cat "$dir/$folder.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/$folder" ]; then
        echo "$dir/$folder"
        exit 0
    fi
    new=$dir/$folder.new
    root=$new
    log=$dir/$folder.log
    # debootstrap that was ended in the middle leaves its mounts
    while read -r _ at _; do
        case $at in "$new"/*) umount "$at" ;; esac
    done </proc/mounts
    rm -rf --one-file-system "$new" "${dir:?}/$folder" "$dir/$folder.stamp"
    : >"$log"
}

# A half-made folder never gets its name.
finish() {
    mv "$new" "$dir/$folder"
    echo "$stamp" >"$dir/$folder.stamp"
    echo "$dir/$folder"
}

# apt_mirror ORIGINS: sets origin, site and suite to those of the first main index that this machine's apt has of these
# distributions, a pattern of awk.
apt_mirror() {
    # shellcheck disable=SC2016 # apt expands these
    found=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
        awk "\$1 ~ /^($1)\$/ && \$3 !~ /-/ && \$4 == \"main\" { print \$1, \$2, \$3; exit }")
    [ -n "$found" ] || { echo "${0##*/}: apt knows no mirror of $1: run apt-get update" >&2; exit 1; }
    origin=${found%% *}
    site=${found#* }
    site=${site% *}
    suite=${found##* }
}

# in_root COMMAND...: its output goes to the log, and the end of that is printed if it fails.
in_root() {
    chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$log" 2>&1 ||
        { tail -n 5 "$log" >&2; exit 1; }
}

apt_get() {
    # a name server of this machine may have changed since the last try
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"
    online "$log" chroot "$root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} \
        apt-get -q -y --no-install-recommends -o Acquire::Retries=5 "$@" || exit 1
}

# with_apt: packages of apt_mirror's can be installed in the root, over this machine's network. None of their services is
# started.
with_apt() {
    proxy=$(apt-config shell proxy Acquire::http::Proxy)
    [ -z "$proxy" ] || eval "$proxy"
    components=main
    [ "$origin" != Ubuntu ] || components="main universe"
    echo "deb $site $suite $components" >"$root/etc/apt/sources.list"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 0755 "$root/usr/sbin/policy-rc.d"
    # without the option an index that did not come is no error, and then the packages are unknown
    apt_get update --error-on=any
}

# without_apt: what with_apt made is gone, and what apt fetched; the root gets its identity on a host.
without_apt() {
    rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/archives/*.deb "$root"/var/cache/apt/*.bin \
        "$root/etc/apt/sources.list" "$root/usr/sbin/policy-rc.d"
    : >"$root/etc/resolv.conf"
    : >"$root/etc/machine-id"
}
