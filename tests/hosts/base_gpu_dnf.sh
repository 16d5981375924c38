#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_gpu_dnf.sh FOLDER: makes FOLDER/gpu-dnf once: a copy of FOLDER/gpu (base_gpu.sh makes that) in which dnf and rpm
# manage the packages: apt and dpkg are gone. Compiler, dkms and the kernel's headers stay, and so do rpmbuild, rpmsign
# and createrepo_c, with which a host makes a test's repositories. The plugin versionlock lies in /lab/versionlock: on
# RHEL it is a package of its own. Needs root and about 900 MB. Prints the path. Safe to run twice at once (flock); a
# half-made one never gets its name.
set -eu

dir=${1:?usage: base_gpu_dnf.sh FOLDER}
base=$("$(dirname "$0")/base_gpu.sh" "$dir")
dir=${base%/gpu}
stamp=$(cat "$0" "$dir/gpu.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/gpu-dnf.lock"
flock 9
if [ "$(cat "$dir/gpu-dnf.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/gpu-dnf" ]; then
    echo "$dir/gpu-dnf"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $2, $3, "main", ($1 == "Ubuntu" ? "universe" : ""); exit }')
[ -n "$target" ] || { echo "base_gpu_dnf.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/gpu-dnf.new
rm -rf --one-file-system "$new" "$dir/gpu-dnf" "$dir/gpu-dnf.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $target" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$dir/gpu-dnf.log" 2>&1 ||
        { tail -n 5 "$dir/gpu-dnf.log" >&2; exit 1; }
}
: >"$dir/gpu-dnf.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends install dnf rpm createrepo-c dnf-plugins-core gpg-agent curl
# Debian's rpm has a database per user, others have one
mkdir -p "$new/etc/rpm"
printf '%s\n' '%_dbpath /var/lib/rpm' '%__gpg /usr/bin/gpg' >"$new/etc/rpm/macros"
in_new rpm --initdb
# Debian's own plugins: local fails each installation where signatures are checked
plugins=$new/usr/lib/python3/dist-packages/dnf-plugins
mkdir -p "$new/lab/versionlock"
mv "$plugins/versionlock.py" "$new/etc/dnf/plugins/versionlock.conf" "$new/etc/dnf/plugins/versionlock.list" "$new/lab/versionlock/"
rm -rf "${plugins:?}"/* "$new"/etc/dnf/plugins/*
# where packages of RHEL have their libraries
echo /usr/lib64 >"$new/etc/ld.so.conf.d/lib64.conf"
rm -rf "$new"/usr/bin/apt* "$new"/usr/bin/dpkg* "$new/etc/apt" "$new"/var/lib/apt "$new"/var/lib/dpkg \
    "$new"/var/cache/apt "$new"/usr/lib/apt "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/*
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

mv "$new" "$dir/gpu-dnf"
echo "$stamp" >"$dir/gpu-dnf.stamp"
echo "$dir/gpu-dnf"
