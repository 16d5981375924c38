#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_gpu.sh FOLDER: makes FOLDER/gpu once: a copy of FOLDER/base (base.sh makes that) on which a kernel module can be
# built: gcc, make, dkms and the headers of the distribution's kernel. The preload fakekernel.so makes that kernel the
# running one, as far as programs can tell, and takes modules that fit it. The machine's own kernel is not touched.
# Needs root, cc and about 800 MB. Prints the path. Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base_gpu.sh FOLDER}
here=$(dirname "$0")
# shellcheck source=tests/hosts/root.sh
. "$here/root.sh"
base=$("$here/base.sh" "$dir")
dir=${base%/base}
begin gpu "$0" "$here/fakekernel.c" "$dir/base.stamp"

apt_mirror 'Debian|Ubuntu'
headers=linux-headers-amd64
[ "$origin" != Ubuntu ] || headers=linux-headers-generic

cp -a --reflink=auto "$base" "$new"
with_apt
apt_get install "$headers" dkms gcc make gpg
# The kernel that hosts of this base run: the one that the headers are for.
set -- "$new"/lib/modules/*
basename "$1" >"$new/etc/lab-kernel"
gcc -O1 -Wall -Wextra -Werror -shared -fPIC -o "$new/usr/local/lib/fakekernel.so" "$here/fakekernel.c" -ldl
echo /usr/local/lib/fakekernel.so >"$new/etc/ld.so.preload"
# The PCI devices of a host are those below /lab-pci.
mkdir -p "$new/lab-pci"
cat >"$new/sbin/lab-boot" <<'X'
mount --bind /lab-pci /sys/bus/pci/devices
# what a package installed as the next kernel
[ ! -e /etc/lab-kernel.next ] || mv /etc/lab-kernel.next /etc/lab-kernel
X
sed -i 's|^exec /usr/sbin/sshd|. /sbin/lab-boot\n&|' "$new/sbin/lab-init"
rm -rf "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/*
without_apt

finish
