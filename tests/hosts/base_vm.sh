#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_vm.sh FOLDER: makes FOLDER/vm once: a virtual machine of this machine's own distribution for QEMU: `disk` (ext4),
# `vmlinuz`, `initrd`. It is FOLDER/base (base.sh makes that) with a kernel, udev, ifupdown, mdadm and an NFS server, so
# modules, disks, shares and reboots are real on it. Needs root and about 1.5 GB. Prints the path.
# Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_vm.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
begin vm "$0" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
case $origin in Ubuntu) kernel=linux-image-virtual ;; *) kernel=linux-image-cloud-amd64 ;; esac

root=$new/root
mkdir "$new"
cp -a --reflink=auto "$base" "$root"
with_apt
apt_get install "$kernel" initramfs-tools udev ifupdown isc-dhcp-client mdadm \
    nfs-kernel-server
rm -rf "$new"/root/usr/share/doc/* "$new"/root/usr/share/man/* "$new"/root/usr/share/locale/*
without_apt
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

finish
