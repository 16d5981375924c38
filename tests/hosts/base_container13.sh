#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_container13.sh FOLDER: makes FOLDER/container13 once: FOLDER/container (base_container.sh makes that) with the
# engines of Debian 13: docker 26 and containerd 1.7, which know CDI. Needs root and about 1.5 GB. Prints the path.
# Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_container13.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base_container.sh" "$dir")
dir=${base%/container}
begin container13 "$0" "$dir/container.stamp"

apt_mirror Debian
export suite=trixie
cp -a --reflink=auto "$base" "$new"
with_apt
apt_get -o Dpkg::Options::=--force-confold install \
    docker.io docker-cli podman containerd runc crun
in_root systemctl disable docker.service docker.socket containerd.service podman.socket podman.service \
    podman-auto-update.timer podman-restart.service podman-clean-transient.service
rm -rf "$new"/usr/share/doc/*
without_apt

finish
