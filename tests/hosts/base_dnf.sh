#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_dnf.sh FOLDER: makes FOLDER/dnf once: a copy of FOLDER/base (base.sh makes that) in which dnf and
# rpm manage the packages: apt and dpkg are gone. rpmbuild and createrepo_c are in it, so a test's own
# repository is made on such a host and this machine needs none of them. Needs root and about 500 MB.
# Prints the path. Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_dnf.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
begin dnf "$0" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
cp -a --reflink=auto "$base" "$new"
with_apt
apt_get install dnf rpm createrepo-c
# Debian's rpm has a database per user, others have one
mkdir -p "$new/etc/rpm"
echo '%_dbpath /var/lib/rpm' >"$new/etc/rpm/macros"
in_root rpm --initdb
rm -rf "$new"/usr/bin/apt* "$new"/usr/bin/dpkg* "$new/etc/apt" "$new"/var/lib/apt "$new"/var/lib/dpkg \
    "$new"/var/cache/apt "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/*
without_apt

finish
