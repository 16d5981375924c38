#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_vm.sh FOLDER: makes FOLDER/vm once: a virtual machine of this machine's own distribution for QEMU: `disk` (ext4),
# `vmlinuz`, `initrd`. It is FOLDER/base (base.sh makes that) with a kernel, udev, ifupdown, mdadm and an NFS server, so
# modules, disks, shares and reboots are real on it. Needs root and about 1.5 GB. Prints the path.
# Safe to run twice at once (flock); a half-made one never gets its name.
set -eu

dir=${1:?usage: base_vm.sh FOLDER}
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
stamp=$(cat "$0" "$dir/base.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/vm.lock"
flock 9
if [ "$(cat "$dir/vm.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/vm" ]; then
    echo "$dir/vm"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $1, $2, $3, "main"; exit }')
[ -n "$target" ] || { echo "base_vm.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
case $target in Ubuntu*) kernel=linux-image-virtual ;; *) kernel=linux-image-cloud-amd64 ;; esac
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/vm.new
rm -rf --one-file-system "$new" "$dir/vm" "$dir/vm.stamp"
mkdir "$new"
cp -a --reflink=auto "$base" "$new/root"
echo "deb ${target#* }" >"$new/root/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/root/etc/resolv.conf"
in_new() {
    chroot "$new/root" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$dir/vm.log" 2>&1 ||
        { tail -n 5 "$dir/vm.log" >&2; exit 1; }
}
: >"$dir/vm.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends install "$kernel" initramfs-tools udev ifupdown isc-dhcp-client mdadm \
    nfs-kernel-server
rm -rf "$new"/root/var/lib/apt/lists/* "$new"/root/var/cache/apt/* "$new"/root/usr/share/doc/* "$new"/root/usr/share/man/* \
    "$new"/root/usr/share/locale/*
rm -f "$new/root/etc/apt/sources.list"
: >"$new/root/etc/resolv.conf"
: >"$new/root/etc/machine-id"
# A test writes user-data there.
mkdir -p "$new/root/var/lib/cloud/seed/nocloud"
echo '/dev/vda / ext4 errors=remount-ro 0 1' >"$new/root/etc/fstab"
# An address by DHCP, as clouds give it.
printf 'auto lo eth0\niface lo inet loopback\niface eth0 inet dhcp\n' >"$new/root/etc/network/interfaces"
cp -L "$(find "$new/root/boot" -name 'vmlinuz-*' | sort | tail -n 1)" "$new/vmlinuz"
cp -L "$(find "$new/root/boot" -name 'initrd.img-*' | sort | tail -n 1)" "$new/initrd"
truncate -s 4G "$new/disk"
mkfs.ext4 -q -d "$new/root" "$new/disk"
rm -rf --one-file-system "$new/root"

mv "$new" "$dir/vm"
echo "$stamp" >"$dir/vm.stamp"
echo "$dir/vm"
