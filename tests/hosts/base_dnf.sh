#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_dnf.sh FOLDER: makes FOLDER/dnf once: a copy of FOLDER/base (base.sh makes that) in which dnf and
# rpm manage the packages: apt and dpkg are gone. rpmbuild and createrepo_c are in it, so a test's own
# repository is made on such a host and this machine needs none of them. Needs root and about 500 MB.
# Prints the path. Safe to run twice at once (flock); a half-made one never gets its name.
set -eu

dir=${1:?usage: base_dnf.sh FOLDER}
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
stamp=$(cat "$0" "$dir/base.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/dnf.lock"
flock 9
if [ "$(cat "$dir/dnf.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/dnf" ]; then
    echo "$dir/dnf"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $2, $3, "main", ($1 == "Ubuntu" ? "universe" : ""); exit }')
[ -n "$target" ] || { echo "base_dnf.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/dnf.new
rm -rf --one-file-system "$new" "$dir/dnf" "$dir/dnf.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $target" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$dir/dnf.log" 2>&1 ||
        { tail -n 5 "$dir/dnf.log" >&2; exit 1; }
}
: >"$dir/dnf.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends install dnf rpm createrepo-c
# Debian's rpm has a database per user, others have one
mkdir -p "$new/etc/rpm"
echo '%_dbpath /var/lib/rpm' >"$new/etc/rpm/macros"
in_new rpm --initdb
rm -rf "$new"/usr/bin/apt* "$new"/usr/bin/dpkg* "$new/etc/apt" "$new"/var/lib/apt "$new"/var/lib/dpkg \
    "$new"/var/cache/apt "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/*
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

mv "$new" "$dir/dnf"
echo "$stamp" >"$dir/dnf.stamp"
echo "$dir/dnf"
