#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_storage.sh FOLDER: makes FOLDER/storage once: a copy of FOLDER/base (base.sh makes that) with the distribution's
# tools for file systems, and with rclone and an NFS server in user space. Needs root and about 600 MB. Prints the
# path. Safe to run twice at once (flock); a half-made one never gets its name.
set -eu

dir=${1:?usage: base_storage.sh FOLDER}
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
stamp=$(cat "$0" "$dir/base.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/storage.lock"
flock 9
if [ "$(cat "$dir/storage.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/storage" ]; then
    echo "$dir/storage"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $2, $3, "main", ($1 == "Ubuntu" ? "universe" : ""); exit }')
[ -n "$target" ] || { echo "base_storage.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/storage.new
rm -rf --one-file-system "$new" "$dir/storage" "$dir/storage.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $target" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" \
        >>"$dir/storage.log" 2>&1 || { tail -n 5 "$dir/storage.log" >&2; exit 1; }
}
: >"$dir/storage.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends install e2fsprogs xfsprogs btrfs-progs mdadm rclone fuse3 nfs-ganesha \
    nfs-ganesha-vfs nfs-common
rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/* "$new"/usr/share/doc/* "$new"/usr/share/man/* \
    "$new"/usr/share/locale/*
rm -f "$new/etc/apt/sources.list"
# nothing of it starts by itself on a host
for unit in nfs-ganesha.service nfs-ganesha-lock.service rpcbind.service rpcbind.socket rpc-statd.service; do
    ln -sf /dev/null "$new/etc/systemd/system/$unit"
done
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

mv "$new" "$dir/storage"
echo "$stamp" >"$dir/storage.stamp"
echo "$dir/storage"
