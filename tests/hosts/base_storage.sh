#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_storage.sh FOLDER: makes FOLDER/storage once: a copy of FOLDER/base (base.sh makes that) with the distribution's
# tools for file systems, and with rclone and an NFS server in user space. Needs root and about 600 MB. Prints the
# path. Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_storage.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
begin storage "$0" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
cp -a --reflink=auto "$base" "$new"
with_apt
apt_get install e2fsprogs xfsprogs btrfs-progs mdadm rclone fuse3 nfs-ganesha nfs-ganesha-vfs \
    nfs-common
rm -rf "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/*
# nothing of it starts by itself on a host
for unit in nfs-ganesha.service nfs-ganesha-lock.service rpcbind.service rpcbind.socket rpc-statd.service; do
    ln -sf /dev/null "$new/etc/systemd/system/$unit"
done
without_apt

finish
