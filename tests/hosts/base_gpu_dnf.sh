#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_gpu_dnf.sh FOLDER: makes FOLDER/gpu-dnf once: a copy of FOLDER/gpu (base_gpu.sh makes that) in which dnf and rpm
# manage the packages: apt and dpkg are gone. Compiler, dkms and the kernel's headers stay, and so do rpmbuild, rpmsign
# and createrepo_c, with which a host makes a test's repositories. The plugin versionlock lies in /lab/versionlock: on
# RHEL it is a package of its own. Needs root and about 900 MB. Prints the path. Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_gpu_dnf.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base_gpu.sh" "$dir")
dir=${base%/gpu}
begin gpu-dnf "$0" "$dir/gpu.stamp"

apt_mirror 'Debian|Ubuntu'
cp -a --reflink=auto "$base" "$new"
with_apt
apt_get install dnf rpm createrepo-c dnf-plugins-core gpg-agent curl
# Debian's rpm has a database per user, others have one
mkdir -p "$new/etc/rpm"
printf '%s\n' '%_dbpath /var/lib/rpm' '%__gpg /usr/bin/gpg' >"$new/etc/rpm/macros"
in_root rpm --initdb
# Debian's own plugins: local fails each installation where signatures are checked
plugins=$new/usr/lib/python3/dist-packages/dnf-plugins
mkdir -p "$new/lab/versionlock"
mv "$plugins/versionlock.py" "$new/etc/dnf/plugins/versionlock.conf" "$new/etc/dnf/plugins/versionlock.list" "$new/lab/versionlock/"
rm -rf "${plugins:?}"/* "$new"/etc/dnf/plugins/*
# where packages of RHEL have their libraries
echo /usr/lib64 >"$new/etc/ld.so.conf.d/lib64.conf"
rm -rf "$new"/usr/bin/apt* "$new"/usr/bin/dpkg* "$new/etc/apt" "$new"/var/lib/apt "$new"/var/lib/dpkg \
    "$new"/var/cache/apt "$new"/usr/lib/apt "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/*
without_apt

finish
