#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_gpu.sh FOLDER: makes FOLDER/gpu once: a copy of FOLDER/base (base.sh makes that) on which a kernel module can be
# built: gcc, make, dkms and the headers of the distribution's kernel. The preload fakekernel.so makes that kernel the
# running one, as far as programs can tell, and takes modules that fit it. The machine's own kernel is not touched.
# Needs root, cc and about 800 MB. Prints the path. Safe to run twice at once (flock); a half-made one never gets its
# name.
set -eu

dir=${1:?usage: base_gpu.sh FOLDER}
here=$(dirname "$0")
base=$("$here/base.sh" "$dir")
dir=${base%/base}
stamp=$(cat "$0" "$here/fakekernel.c" "$dir/base.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/gpu.lock"
flock 9
if [ "$(cat "$dir/gpu.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/gpu" ]; then
    echo "$dir/gpu"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $2, $3, "main", ($1 == "Ubuntu" ? "universe" : ""); exit }')
[ -n "$target" ] || { echo "base_gpu.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"
headers=linux-headers-amd64
case $target in *ubuntu*) headers=linux-headers-generic ;; esac

new=$dir/gpu.new
rm -rf --one-file-system "$new" "$dir/gpu" "$dir/gpu.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $target" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$dir/gpu.log" 2>&1 ||
        { tail -n 5 "$dir/gpu.log" >&2; exit 1; }
}
: >"$dir/gpu.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends install "$headers" dkms gcc make gpg
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
rm -rf "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/* "$new"/var/lib/apt/lists/* \
    "$new"/var/cache/apt/*
rm -f "$new/etc/apt/sources.list"
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

mv "$new" "$dir/gpu"
echo "$stamp" >"$dir/gpu.stamp"
echo "$dir/gpu"
