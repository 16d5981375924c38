#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_python.sh FOLDER: makes FOLDER/python once: a copy of FOLDER/base (base.sh makes that) with the distribution's
# python3-venv, whose packages are kept in /debs, and with an environment of the user ops in /opt/venv. Needs root and
# about 400 MB. Prints the path. Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_python.sh FOLDER}
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
begin python "$0" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
cp -a --reflink=auto "$base" "$new"
with_apt
apt_get --download-only install python3-venv
mkdir "$new/debs"
cp "$new"/var/cache/apt/archives/*.deb "$new/debs/"
apt_get install python3-venv
# most tests need an environment, and not that it is made: it takes seconds of a core
chroot "$new" install -d -o ops -g ops /opt/venv
in_root su ops -c 'python3 -m venv /opt/venv'
without_apt

finish
