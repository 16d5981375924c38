#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base.sh FOLDER: makes FOLDER/openstack once: a copy of FOLDER/base (tests/hosts/base.sh makes that) with the
# distribution's keystone, placement, glance, neutron and nova as Python libraries, without any service.
# openstack_lab.py runs them in it. Needs root and about 1.2 GB. Prints the path. Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/../hosts/root.sh"
base=$("$(dirname "$0")/../hosts/base.sh" "$dir")
dir=${base%/base}
begin openstack "$0" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
cp -a --reflink=auto "$base" "$new"
with_apt
# About 300 packages come: their maintainers' byte-compiling takes minutes, and two thirds of it are test suites.
mv "$new/usr/bin/py3compile" "$new/usr/bin/py3compile.lab"
ln -s true "$new/usr/bin/py3compile"
apt_get -o Dpkg::Options::=--force-unsafe-io \
    -o Dpkg::Options::=--path-exclude='/usr/share/doc/*' -o Dpkg::Options::=--path-exclude='/usr/share/man/*' \
    -o Dpkg::Options::=--path-exclude='/usr/lib/python3/dist-packages/nova/tests/*' install \
    python3-keystone python3-placement python3-glance python3-neutron python3-nova python3-waitress
rm "$new/usr/bin/py3compile"
mv "$new/usr/bin/py3compile.lab" "$new/usr/bin/py3compile"
# a few packages have files that no Python 3 compiles: such a file is never imported
chroot "$new" python3 -m compileall -q -j 2 -x '/tests?/|/test_' /usr/lib/python3/dist-packages \
    >>"$dir/openstack.log" 2>&1 || true
without_apt
mkdir -p "$new/lab" "$new/code"

finish
