#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_container.sh FOLDER: makes FOLDER/container once: a copy of FOLDER/base (base.sh makes that) with docker, podman,
# containerd and a registry, none of them started at boot, and with busybox as a container image (/lab/busybox.tar).
# FOLDER/container.debs has the packages, for tests that install them. Needs root and about 1.2 GB. Prints the path.
# Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_container.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
begin container "$0" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
rm -rf "$dir/container.debs"
cp -a --reflink=auto "$base" "$new"
with_apt
apt_get -o APT::Keep-Downloaded-Packages=true install \
    docker.io podman containerd runc crun iptables fuse-overlayfs docker-registry apache2-utils busybox-static
mv "$new/var/cache/apt/archives" "$dir/container.debs"
mkdir -p "$new/var/cache/apt/archives/partial"
in_root systemctl disable docker.service docker.socket containerd.service docker-registry.service podman.socket \
    podman.service podman-auto-update.timer podman-restart.service
rm -rf "$new"/usr/share/doc/* "$new"/usr/share/man/*

# What a host in a host needs: control groups that may be written, and limits below this machine's own.
mkdir -p "$new/etc/systemd/system/docker.service.d" "$new/etc/systemd/system/containerd.service.d" "$new/etc/containers"
printf '[Service]\nLimitNOFILE=\nLimitNOFILE=16000\nLimitNPROC=\nLimitNPROC=16000\nLimitCORE=\n' |
    tee "$new/etc/systemd/system/docker.service.d/lab.conf" >"$new/etc/systemd/system/containerd.service.d/lab.conf"
cat >"$new/etc/systemd/system/lab-cgroups.service" <<'X'
[Unit]
DefaultDependencies=no
Before=basic.target ssh.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'for c in /sys/fs/cgroup/*/; do mount -o remount,bind,rw $$c; done; true'
[Install]
WantedBy=basic.target
X
in_root systemctl enable lab-cgroups.service
# Its processes are not seen to end in these control groups: a reboot would take two minutes.
ln -s /dev/null "$new/etc/systemd/system/user@.service"
cat >"$new/etc/containers/containers.conf" <<'X'
[containers]
default_ulimits = ["nofile=16000:16000", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
X

img=$dir/container.img
rm -rf "$img"
mkdir -p "$img/bin" "$img/etc" "$img/tmp" "$new/lab"
cp "$new/bin/busybox" "$img/bin/busybox"
for name in sh ls cat env echo sleep id true; do ln -s busybox "$img/bin/$name"; done
echo 'root:x:0:0::/:/bin/sh' >"$img/etc/passwd"
tar -C "$img" --owner=0 --group=0 -cf "$new/lab/busybox.tar" .
rm -rf "$img"
without_apt

finish
